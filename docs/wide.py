"""What is wide on a page: tables, pictures and names; ``_static/site.css`` does the rest.

Where a table would be wider than the text, each of its rows becomes a card that names every value,
by the rules of ``cards.css``. CSS cannot ask how wide a table would be, so that is estimated here.
"""

import re
from html import escape, unescape
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.images import get_image_size
from sphinx.writers.html5 import HTML5Translator

SMALLEST_SCALE = 0.6  # of a picture; docs/check_site.py asks for as much
SMALLEST_WIDTH = 576  # pixels, of one that is as wide
MOST_COLUMNS = 7  # which have room beside the menu
WIDTHS = 0.46, 0.9  # rem: of most characters of a table, and of the padding of a cell
CROWDED = 0.42, 0.45  # likewise, where there are many columns
COMFORT = 8  # characters: what a column of sentences should be wide enough for
STEP = 4  # rem; each multiple has rules of its own
WIDEST = 64
LONG_TEXT, LONG_FORMULA = 24, 14  # characters of a value that gets a line of its own on a card
TAGS = re.compile(r"(<[^>]*>)")
OPTION = re.compile(r"--?[\w-]{1,20}")
BREAKS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[_.(\[=/])(?=[\w(\[])")


def text_of(node: nodes.Node) -> str:
    """Return what a reader sees of a cell, in one line, with formulas as characters."""
    if isinstance(node, nodes.math):
        return unescape(TAGS.sub("", convert(node.astext())))
    if isinstance(node, nodes.Text):
        return node.astext()
    return re.sub(r"[ \n]+", " ", "".join(map(text_of, node.children))).strip()


def width_of(cells: list[nodes.entry], crowded: bool) -> float:
    """Estimate the width, in rem, that a column needs to be read with ease."""
    character, padding = CROWDED if crowded else WIDTHS
    least = comfortable = 0
    for cell in cells:
        parts = [len(text_of(formula)) for formula in cell.findall(nodes.math)]
        for text in cell.findall(nodes.Text):
            if isinstance(text.parent, nodes.literal):
                words = [text] if OPTION.fullmatch(text) else BREAKS.sub(" ", text).split()
            else:
                words = re.split(r"[\s-]", text) if not isinstance(text.parent, nodes.math) else []
            parts += map(len, words)
        least = max([least, *parts])
        comfortable = max(comfortable, len(text_of(cell)))
    return character * max(least, min(comfortable, COMFORT)) + padding


class MarkWide(SphinxPostTransform):
    """Give tables the width that they need and names to their cells, and pictures a box."""

    default_priority = 400
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Mark what is on one page."""
        for group in self.document.findall(nodes.tgroup):
            self.name_cells(group)
        for image in list(self.document.findall(nodes.image)):
            if isinstance(image.parent, nodes.paragraph) and len(image.parent.children) == 1:
                self.box(image)

    def name_cells(self, group: nodes.tgroup) -> None:
        """Mark a table, and its cells with the names of their columns."""
        rows = [row.children for row in group.findall(nodes.row)]
        columns = int(group["cols"])
        if any(len(row) != columns for row in rows):
            return  # cells that are joined
        crowded = columns > MOST_COLUMNS
        if crowded:
            group.parent["classes"].append("crowded")
        needs = sum(width_of([row[k] for row in rows], crowded) for k in range(columns))
        steps = min(-(-needs // STEP) * STEP, WIDEST)
        group.parent["classes"] += ["stacks", f"needs-{steps:.0f}"]
        has_names = group.next_node(nodes.thead) is not None
        names = [text_of(cell) if has_names else "" for cell in rows[0]]
        for row in group.next_node(nodes.tbody).children:
            for name, cell in zip(names, row.children, strict=True):
                cell["name_of_column"] = name
                text = text_of(cell)
                if not text:
                    cell["classes"].append("empty")
                elif len(text) > LONG_TEXT or any(
                    len(text_of(formula)) > LONG_FORMULA for formula in cell.findall(nodes.math)
                ):
                    cell["classes"].append("long")

    def box(self, image: nodes.image) -> None:
        """Let a picture shrink so far only that its text can be read."""
        size = get_image_size(Path(self.app.srcdir) / image["uri"])
        if size is None:
            return
        least = max(SMALLEST_SCALE * size[0], min(size[0], SMALLEST_WIDTH))
        box = f'<div class="picture-box" style="--least-width: {least:.0f}px">'
        image.parent.replace_self(
            [nodes.raw("", box, format="html"), image, nodes.raw("", "</div>", format="html")]
        )


def visit_entry(self: HTML5Translator, node: nodes.entry) -> None:
    """Begin a cell, with the name of its column for the style sheet."""
    HTML5Translator.visit_entry(self, node)
    name = node.get("name_of_column")
    if name:
        place = next(k for k in reversed(range(len(self.body))) if self.body[k].startswith("<t"))
        tag, rest = self.body[place].split(">", 1)
        self.body[place] = f'{tag} data-name="{escape(name)}">{rest}'


def depart_entry(self: HTML5Translator, node: nodes.entry) -> None:
    """End a cell."""
    HTML5Translator.depart_entry(self, node)


def visit_literal(self: HTML5Translator, node: nodes.literal) -> None:
    """Begin code within a line, and remember where."""
    if OPTION.fullmatch(node.astext()):
        node["classes"].append("option")
    HTML5Translator.visit_literal(self, node)
    node["begins"] = len(self.body)


def depart_literal(self: HTML5Translator, node: nodes.literal) -> None:
    """Let long names break where their words do."""
    for place in range(node["begins"], len(self.body)):
        parts = TAGS.split(self.body[place])  # texts, with tags between them
        parts[::2] = [BREAKS.sub("<wbr>", text) for text in parts[::2]]
        self.body[place] = "".join(parts)
    HTML5Translator.depart_literal(self, node)


def write_rules(app: Sphinx) -> None:
    """Write the rules of cards for each width that a table may need."""
    rules = (Path(app.srcdir) / "cards.css").read_text(encoding="utf-8")
    folder = Path(app.doctreedir) / "wide"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cards.css").write_text(
        "".join(
            f"@container (max-width: {width}rem) {{\n"
            f"{rules.replace('table.stacks', f'table.needs-{width}')}}}\n"
            for width in range(STEP, WIDEST + STEP, STEP)
        ),
        encoding="utf-8",
    )
    app.config.html_static_path.append(str(folder))
    app.add_css_file("cards.css", priority=900)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the transform and the rules."""
    app.connect("builder-inited", write_rules)
    app.add_node(nodes.entry, override=True, html=(visit_entry, depart_entry))
    app.add_node(nodes.literal, override=True, html=(visit_literal, depart_literal))
    app.add_post_transform(MarkWide)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
