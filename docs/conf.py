"""The site of the documentation; `.ci/docs` builds it. Nothing here needs the network."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from mathml import FONT  # noqa: E402

import rffl_pl  # noqa: E402

project = "rffl_pl"
author = "the authors of rffl_pl"
project_copyright = "Apache-2.0"
version = release = rffl_pl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "mathml"]
exclude_patterns = ["_build", "figures"]
nitpicky = True
# Types of other packages have no page here.
nitpick_ignore_regex = [
    (r"py:.*", r"(torch|lightning|pytorch_lightning|torchmetrics|collections|typing|pathlib|numpy)\..*"),
    (r"py:class", r"(Any|Path|Tensor|Metric|Dataset|nn\.Module|optional|abc\.\w+)"),
]

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline", "attrs_block"]
myst_heading_anchors = 3

default_role = "autolink"  # `Name` in a docstring is a link where there is such a name
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
autodoc_inherit_docstrings = False
napoleon_numpy_docstring = False
autosummary_generate = False

html_theme = "furo"
html_title = f"rffl_pl {release}"
html_static_path = ["_static", str(FONT)]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
