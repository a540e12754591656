"""Settings of Sphinx. Build with ``python -m sphinx docs docs/_build/html``."""

import sys
from pathlib import Path

from botorch_bandits.version import __version__

ROOT = Path(__file__).resolve().parents[1]
# the experiments and the benchmarks, which are not installed
sys.path += [str(ROOT / "tutorials"), str(ROOT / "tests")]

project = "botorch_bandits"
author = "the botorch_bandits developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build", "results/league.md"]  # the latter is a part of league.md
templates_path: list[str] = []

# A reference that has the full name of something in these packages must lead somewhere. Names of
# other packages have no link, because nothing is downloaded while building; nor have bases in
# inner modules.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!(botorch_bandits|papers|benchmarks)\.).*"),
    ("py:class", r"(botorch_bandits\.\w+|papers(\.\w+)?|benchmarks)\.\w+\.\w+"),
]

html_theme = "furo"
html_title = f"botorch_bandits {version}"
html_show_copyright = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses would otherwise be described twice
