"""Settings of Sphinx. Build with ``python -m sphinx docs docs/_build/html``."""

import inspect
import sys
from pathlib import Path

from sphinx.util.inspect import stringify_signature

from botorch_bandits.version import __version__

ROOT = Path(__file__).resolve().parents[1]
# the experiments and the benchmarks, which are not installed
sys.path += [str(ROOT / "tutorials"), str(ROOT / "tests")]
sys.path.append(str(ROOT / "docs"))  # class_pages, colons, mathml and wide, which are extensions

project = "botorch_bandits"
author = "the botorch_bandits developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "class_pages",
    "colons",
    "mathml",
    "wide",
]
exclude_patterns = ["_build", "results/*.md"]  # the latter are parts of pages
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
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_domain_indices = False
html_favicon = "_static/favicon.svg"
html_show_copyright = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

# What acquisition functions are asked by a loop. Where classes of one's own are built it is listed
# (with `:no-exclude-members:`), and in other classes not.
autodoc_default_options = {
    "exclude-members": "arms_rule, as_theorem, check_options, closed_form, complete_options,"
    "default_margin, defines_rule, describe, fingerprint, forward, gen_candidates, is_expected,"
    "is_optimistic, load_state_dict, options_from_domain, options_of_widths, set_rule,"
    "set_X_pending, value_scale, width_rule"
}
autosummary_generate = False  # tables only: a page has a small family of classes
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses would otherwise be described twice


def show_constructor(app, what, name, obj, options, signature, return_annotation):
    """Show the arguments of a constructor where Sphinx found those of ``__new__``.

    Acquisition functions check the names of their arguments in ``__new__(cls, *args, **given)``.
    """
    if what != "class" or signature is None or not signature.startswith("(*args"):
        return None
    return stringify_signature(inspect.signature(obj), show_annotation=False), return_annotation


def setup(app):
    """Connect the functions above."""
    app.connect("autodoc-process-signature", show_constructor)
