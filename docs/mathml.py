"""Formulas as MathML, which browsers draw themselves: no script, no network, and screen readers read them."""

from __future__ import annotations

from pathlib import Path

import ziamath
from docutils import nodes
from math_core import LatexError, LatexToMathML
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

FONT = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"
"""The font of the formulas: browsers need one that knows how high a bracket may grow."""

_CONVERTER = LatexToMathML()


def setup(app: Sphinx) -> dict[str, bool]:
    """Make it one of Sphinx's ways to write formulas, ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(writer: HTML5Translator, node: nodes.math) -> None:
    writer.body.append(_mathml(node, display=False))
    raise nodes.SkipNode


def _block(writer: HTML5Translator, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula">{_mathml(node, display=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, display: bool) -> str:
    """The formula of a node; one that cannot be read is a warning, which ends the build."""
    source = node.astext()
    try:
        return str(_CONVERTER.convert_with_local_state(source, displaystyle=display))
    except LatexError as error:
        logging.getLogger(__name__).warning("Formula %r cannot be read: %s", source, error, location=node)
        return ""
