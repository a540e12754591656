"""Settings of Sphinx. Build with ``python -m sphinx docs docs/_build/html``."""

import inspect
import re
import shutil
from html import escape
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.inspect import stringify_signature

import botorch_bandits

ROOT = Path(__file__).resolve().parents[1]

project = "botorch_bandits"
author = "the botorch_bandits developers"
version = release = botorch_bandits.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "results/*.md"]  # the latter are parts of pages
templates_path = ["_templates"]

# A reference that has the full name of something in the package must lead somewhere. Names of
# other packages have no link, because nothing is downloaded while building; nor have bases in
# inner modules, and what properties return from there.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!botorch_bandits\.).*"),
    ("py:class", r"botorch_bandits\.\w+\.\w+\.\w+"),
    (
        "py:class",
        r"botorch_bandits\.(optim\.Whole|feasible_sets\.FeasibleSet|history\.Entry)",
    ),
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
nb_execution_mode = "off"  # the notebooks are committed with their outputs

# Each module lists its public names, and each of them gets a page.
autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
autosummary_context = {"top": set(botorch_bandits.__all__)}
# What acquisition functions are asked by a loop.
autodoc_default_options = {
    "exclude-members": "arms_rule, as_theorem, check_options, complete_options,"
    "default_margin, defines_rule, describe, fingerprint, forward, is_expected,"
    "load_state_dict, default_width, draws, of_ensemble, on_few_points, is_one_output,"
    "played_as, plays, predictive,"
    "known_at, moments, set_rule, set_X_pending, value_scale,"
    "from_domain, wanted_from_domain, width_rule"
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 88
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses would otherwise be described twice


def copy_notebooks(app):
    """Copy the notebooks into the source folder, where they become pages."""
    folder = Path(app.srcdir) / "tutorials"
    folder.mkdir(exist_ok=True)
    for path in (ROOT / "tutorials").glob("*.ipynb"):
        shutil.copy2(path, folder)


def show_constructor(app, what, name, obj, options, signature, return_annotation):
    """Show the arguments of a constructor where Sphinx found those of ``__new__``.

    Acquisition functions check the names of their arguments in ``__new__(cls, *args, **given)``.
    """
    if what != "class" or signature is None or not signature.startswith("(*args"):
        return None
    return stringify_signature(inspect.signature(obj), show_annotation=False), return_annotation


def mathml_of(latex, display, node):
    """Convert a formula to MathML, which browsers show without a script or a download."""
    mathml = convert(re.sub(r"\\arg\b", r"\\operatorname{arg}", latex), display=display)
    unknown = re.search(r">\s*\\[A-Za-z]+", mathml)
    if unknown:
        logging.getLogger(__name__).warning(
            "no MathML for %r in %s", unknown[0], escape(latex), location=node
        )
    return mathml


def visit_inline_math(translator, node):
    """Write a formula within a line."""
    translator.body.append(translator.starttag(node, "span", "", CLASS="math notranslate"))
    translator.body.append(mathml_of(node.astext(), "inline", node) + "</span>")
    raise nodes.SkipNode


def visit_math_block(translator, node):
    """Write a formula in a line of its own."""
    translator.body.append(translator.starttag(node, "div", "", CLASS="math notranslate"))
    latex = node.astext().strip()
    if re.search(r"(?<!\\)&|\\\\", latex) and r"\begin" not in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    translator.body.append(mathml_of(latex, "block", node) + "</div>\n")
    raise nodes.SkipNode


SIDEBARS = {}
"""The sidebar of the pages of single names, which takes most of the time to write a page."""


def shorten_navigation(app, pagename, templatename, context, doctree):
    """Leave the pages of single names out of the sidebar, which is made once for all of them."""
    toctree = context["toctree"]

    def shortened(**options):
        folder = pagename.rpartition("/")[0]
        if folder != "api/generated":
            return toctree(**options | {"maxdepth": 2})
        if folder not in SIDEBARS:
            SIDEBARS[folder] = str(toctree(**options | {"maxdepth": 2})).replace("current", "")
        return SIDEBARS[folder]

    context["toctree"] = shortened


def setup(app):
    """Connect the functions above."""
    app.connect("builder-inited", copy_notebooks)
    app.connect("autodoc-process-signature", show_constructor)
    app.connect("html-page-context", shorten_navigation, priority=100)  # before the theme
    app.add_html_math_renderer("mathml", (visit_inline_math, None), (visit_math_block, None))
