"""What the pages of a reproduction consist of, before it is HTML or Markdown.

A page is a title and blocks. Text is plain text everywhere; what writes it escapes it.
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
        anchor: Of the heading.
        text: What is written.
    """

    anchor: str
    text: str


Inline: TypeAlias = str | Link


@dataclass(frozen=True)
class Heading:
    """A heading within a page.

    Attributes:
        text: What is written; different from the page's other headings.
        anchor: Where links lead.
        level: 1 below the page's title, and so on.
    """

    text: str
    anchor: str
    level: int = 1


@dataclass(frozen=True)
class Paragraph:
    """A paragraph.

    Attributes:
        parts: Texts and links.
        label: Words that stand out in front, such as the name of a column.
        is_notice: Whether it stands out.
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
        caption: Above it.
        titles: Of the columns.
        rows: Cells.
    """

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[Inline]]


@dataclass(frozen=True)
class Code:
    """Commands and settings, as they are."""

    text: str


@dataclass(frozen=True)
class Image:
    """A picture.

    Attributes:
        path: The file, SVG or PNG.
        alt: What is seen.
    """

    path: Path
    alt: str


@dataclass(frozen=True)
class Details:
    """What is shown on demand.

    Attributes:
        summary: What is always shown.
        blocks: The rest.
    """

    summary: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Beside:
    """Two columns; on narrow screens the second is below the first.

    Attributes:
        left: Blocks, the narrower column.
        right: Blocks.
    """

    left: Sequence[Block]
    right: Sequence[Block]


Block: TypeAlias = Heading | Paragraph | Bullets | Table | Code | Image | Details | Beside


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        name: Of its file, without the suffix.
        title: Its title.
        blocks: What is on it.
    """

    name: str
    title: str
    blocks: Sequence[Block]


def is_number(cell: Inline) -> bool:
    """Whether a cell of a table is a number alone.

    Args:
        cell: The cell.
    """
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
