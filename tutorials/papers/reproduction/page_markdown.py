"""Writes the pages of a reproduction as Markdown for the documentation, one file per page.

The pages thus have the documentation's navigation and search, and share its picture files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.reproduction.blocks import (
    Beside,
    Block,
    Bullets,
    Code,
    Details,
    Heading,
    Image,
    Inline,
    Link,
    Page,
    Paragraph,
    Table,
    is_number,
)

STYLE = """<style>
.main { min-width: 0; }
.content { flex: 1; width: auto; min-width: 0; max-width: 80em; }
.content p, .content li { max-width: 46rem; }
.content table { margin-left: 0; }
.content td, .content th { vertical-align: top; }
.beside { display: grid; grid-template-columns: minmax(14rem, 1fr) minmax(0, 44rem); gap: 0 2rem; }
.beside > div { min-width: 0; }
.beside img, details img { width: 44rem; max-width: 100%; margin: 0 0 .6rem; }
@media (max-width: 78em) { .beside { display: block; } }
@media (max-width: 46em) {
  p:has(> img) { overflow-x: auto; }
  .beside img, details img { min-width: 36rem; }
}
</style>"""

NOTE = "<!-- Written by `python tutorials/papers reproduce --from-results`: changes are lost. -->"

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|$~^#@])")


def write_markdown(pages: Sequence[Page], folder: Path) -> dict[Path, str]:
    """Return the text of each file.

    Args:
        pages: The pages. The first one has the table of contents.
        folder: The folder of the files, to which links to pictures are relative.
    """
    places = {
        block.anchor: (page.name, slug(block.text))
        for page in pages
        for block in page.blocks
        if isinstance(block, Heading)
    }
    texts = {}
    for i, page in enumerate(pages):
        writer = _Writer(page.name, places, folder)
        parts = ["---\nhide-toc: true\n---", NOTE, f"# {escape(page.title)}", STYLE]
        parts += [writer.block(block) for block in page.blocks]
        if i == 0:
            names = "\n".join(other.name for other in pages[1:])
            parts.append(f"```{{toctree}}\n:maxdepth: 1\n:hidden:\n\n{names}\n```")
        texts[folder / f"{page.name}.md"] = "\n\n".join(parts) + "\n"
    return texts


def escape(text: str) -> str:
    """Escape text so that Markdown shows it verbatim.

    Args:
        text: Plain text. Line breaks become spaces.
    """
    return _SPECIAL.sub(r"\\\1", re.sub(r"\s+", " ", text))


def slug(heading: str) -> str:
    """Return the anchor that the documentation assigns to a heading.

    Args:
        heading: The text of the heading.
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@dataclass(frozen=True)
class _Writer:
    page: str
    places: Mapping[str, tuple[str, str]]
    folder: Path

    def inline(self, part: Inline) -> str:
        if isinstance(part, Link):
            page, anchor = self.places[part.anchor]
            file = "" if page == self.page else f"{page}.md"
            return f"[{escape(part.text)}]({file}#{anchor})"
        return escape(part)

    def all(self, blocks: Iterable[Block]) -> str:
        return "\n\n".join(map(self.block, blocks))

    def block(self, block: Block) -> str:
        match block:
            case Heading():
                return f"{'#' * (block.level + 1)} {escape(block.text)}"
            case Paragraph():
                label = f"**{escape(block.label)}** " if block.label else ""
                text = label + "".join(map(self.inline, block.parts))
                return f"```{{note}}\n{text}\n```" if block.is_notice else text
            case Bullets():
                return "\n".join(f"- {escape(text)}" for text in block.texts)
            case Table():
                return self.table(block)
            case Code():
                return f"```text\n{block.text}\n```"
            case Image():
                path = Path(os.path.relpath(block.path, self.folder)).as_posix()
                return f"![{escape(block.alt)}]({path})"
            case Details():
                summary = f"<summary>{_html(block.summary)}</summary>"
                return f"<details>\n{summary}\n\n{self.all(block.blocks)}\n\n</details>"
            case Beside():
                left, right = self.all(block.left), self.all(block.right)
                middle = f"{left}\n\n</div>\n<div>\n\n{right}" if right else left
                return f'<div class="beside">\n<div>\n\n{middle}\n\n</div>\n</div>'

    def table(self, block: Table) -> str:
        numeric = [
            all(is_number(row[i]) or row[i] == "" for row in block.rows) and i > 0
            for i in range(len(block.titles))
        ]
        lines = [
            [escape(title) for title in block.titles],
            ["---:" if right else "---" for right in numeric],
            *([self.inline(cell) for cell in row] for row in block.rows),
        ]
        rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"**{escape(block.caption)}**\n\n{rows}" if block.caption else rows


def _html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
