"""What is wide on a page: tables, pictures and names; ``_static/site.css`` does the rest."""

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.images import get_image_size
from sphinx.writers.html5 import HTML5Translator

SMALLEST_SCALE = 0.6  # of a picture; docs/check_site.py asks for as much
FEW_COLUMNS = 3  # which fit on a phone
MOST_COLUMNS = 7  # which have room beside the menu
TAGS = re.compile(r"(<[^>]*>)")
BREAKS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[_.(\[=/-])(?=[\w(\[])")


class MarkWide(SphinxPostTransform):
    """Give tables of many columns a class, and pictures a box in which they scroll."""

    default_priority = 400
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Mark what is on one page."""
        for group in self.document.findall(nodes.tgroup):
            columns = int(group["cols"])
            if columns > FEW_COLUMNS:
                group.parent["classes"].append("many-columns")
            if columns > MOST_COLUMNS:
                group.parent["classes"].append("crowded")
        for image in list(self.document.findall(nodes.image)):
            if isinstance(image.parent, nodes.paragraph) and len(image.parent.children) == 1:
                self.box(image)

    def box(self, image: nodes.image) -> None:
        """Let a picture shrink so far only that its text can be read."""
        size = get_image_size(Path(self.app.srcdir) / image["uri"])
        if size is None:
            return
        least = f'<div class="picture-box" style="--least-width: {SMALLEST_SCALE * size[0]:.0f}px">'
        image.parent.replace_self(
            [nodes.raw("", least, format="html"), image, nodes.raw("", "</div>", format="html")]
        )


def visit_literal(self: HTML5Translator, node: nodes.literal) -> None:
    """Begin code within a line, and remember where."""
    HTML5Translator.visit_literal(self, node)
    node["begins"] = len(self.body)


def depart_literal(self: HTML5Translator, node: nodes.literal) -> None:
    """Let long names break where their words do."""
    for place in range(node["begins"], len(self.body)):
        parts = TAGS.split(self.body[place])  # texts, with tags between them
        parts[::2] = [BREAKS.sub("<wbr>", text) for text in parts[::2]]
        self.body[place] = "".join(parts)
    HTML5Translator.depart_literal(self, node)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transform."""
    app.add_node(nodes.literal, override=True, html=(visit_literal, depart_literal))
    app.add_post_transform(MarkWide)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
