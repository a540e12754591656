"""Formulas as MathML, which browsers show by themselves: without a script, and with no download."""

import re
from html import escape

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
ARG = re.compile(r"\\arg\b")  # which the converter does not know
SYMBOL = re.compile(r"<m[ion]\b")
LONG = 20  # symbols, with which a formula may be wider than a phone
UNKNOWN = re.compile(r">\s*\\[A-Za-z]+")


def mathml_of(latex: str, display: str, place: nodes.Node) -> str:
    """Convert a formula; one that is not understood is a warning, and with ``-W`` an error."""
    latex = ARG.sub(r"\\operatorname{arg}", latex)
    try:
        mathml = convert(latex, display=display)
    except Exception as error:
        logger.warning(
            "no MathML for %r: %s: %s", latex, type(error).__name__, error, location=place
        )
        return f"<code>{escape(latex)}</code>"
    unknown = UNKNOWN.search(mathml)
    if unknown:
        logger.warning("no MathML for %r in %r", unknown[0], latex, location=place)
    return mathml


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    mathml = mathml_of(node.astext(), "inline", node)
    length = " long" if len(SYMBOL.findall(mathml)) > LONG else ""
    self.body.append(self.starttag(node, "span", "", CLASS=f"math notranslate{length}"))
    self.body.append(mathml + "</span>")
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula in a line of its own."""
    self.body.append(self.starttag(node, "div", "", CLASS="math notranslate"))
    latex = node.astext().strip()
    if re.search(r"(?<!\\)&|\\\\", latex) and r"\begin" not in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    self.body.append(mathml_of(latex, "block", node) + "</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register as the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
