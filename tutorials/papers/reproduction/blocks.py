"""The blocks of the pages of a reproduction, before they are written as HTML or Markdown.

A page is a title and blocks. All texts are plain; the writers escape them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


@dataclass(frozen=True)
class Link:
    """A link to a heading of the reproduction.

    Attributes:
        anchor: The anchor of the heading.
        text: The text of the link.
    """

    anchor: str
    text: str


Inline: TypeAlias = str | Link


@dataclass(frozen=True)
class Heading:
    """A heading within a page.

    Attributes:
        text: The text, which differs from those of the page's other headings.
        anchor: The target of links.
        level: The level, which is 1 directly below the page's title.
    """

    text: str
    anchor: str
    level: int = 1


@dataclass(frozen=True)
class Paragraph:
    """A paragraph.

    Attributes:
        parts: Texts and links.
        label: Emphasized words at the start, such as the name of a column.
        is_notice: Whether the paragraph is highlighted as a notice.
    """

    parts: tuple[Inline, ...]
    label: str = ""
    is_notice: bool = False


def paragraph(*parts: Inline, label: str = "") -> Paragraph:
    """Return a paragraph of texts and links."""
    return Paragraph(parts, label)


@dataclass(frozen=True)
class Bullets:
    """A list of texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row names it.

    Attributes:
        caption: The caption above the table.
        titles: The titles of the columns.
        rows: The cells of each row.
    """

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[Inline]]


@dataclass(frozen=True)
class Code:
    """Commands and settings, shown verbatim."""

    text: str


@dataclass(frozen=True)
class Image:
    """A picture.

    Attributes:
        path: The file, SVG or PNG.
        alt: The alternative text.
    """

    path: Path
    alt: str


@dataclass(frozen=True)
class Details:
    """Blocks that are shown on demand.

    Attributes:
        summary: The text that is always shown.
        blocks: The blocks that are shown on demand.
    """

    summary: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Beside:
    """Two columns; on narrow screens, the second is below the first.

    Attributes:
        left: The blocks of the left column, which is narrower.
        right: The blocks of the right column.
    """

    left: Sequence[Block]
    right: Sequence[Block]


Block: TypeAlias = Heading | Paragraph | Bullets | Table | Code | Image | Details | Beside


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        name: The name of its file, without the suffix.
        title: The title of the page.
        blocks: The blocks on the page.
    """

    name: str
    title: str
    blocks: Sequence[Block]


def is_number(cell: Inline) -> bool:
    """Whether a cell of a table consists of a number only.

    Args:
        cell: The cell.
    """
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
