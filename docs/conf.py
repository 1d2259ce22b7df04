"""The site of the documentation; `.ci/docs` builds it. Nothing here needs the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from mathml import FONT  # noqa: E402
from sphinx.application import Sphinx  # noqa: E402
from sphinx.util.inspect import signature, stringify_signature  # noqa: E402

import rffl_pl  # noqa: E402
from rffl_pl.configured import Configured  # noqa: E402

project = "rffl_pl"
version = release = rffl_pl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_build", "figures"]
nitpicky = True
# Types of other packages have no page here, nor do short names for a few words.
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|lightning|pytorch_lightning|torchmetrics|collections|typing|pathlib)\..*"),
    (r"py:class", r"Any|Path|Tensor|Metric|Dataset|OptimizerCallable|nn\.Module|rffl_pl\.training\.cohort\.Cohort"),
    (r"py:class", r"Optimizer|nn\.Parameter"),
    (r"py:class", r"Watch|Draw|Subset|Channels"),
    (r"py:obj", r".*"),  # a name that exists, or it would be no link, but has no page
]

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3

default_role = "autolink"  # `Name` in a docstring is a link where there is such a name
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes as a list
autosummary_generate = False

html_theme = "furo"
html_title = f"rffl_pl {release}"
html_static_path = ["_static", str(FONT)]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False


def setup(app: Sphinx) -> None:
    """Have the options of a class where Sphinx would show those of ``Configured.__new__``, which takes anything."""
    app.connect("autodoc-process-signature", _options)


def _options(app: Sphinx, what: str, name: str, thing: Any, *_: Any) -> tuple[str, str] | None:
    if what != "class" or not issubclass(thing, Configured):
        return None
    if thing.__init__ is object.__init__:
        return "()", ""
    return stringify_signature(signature(thing.__init__, bound_method=True), show_annotation=False), ""
