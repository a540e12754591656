"""HTML in which all values are escaped: tables in notebooks, and pages.

Text becomes markup only by way of :func:`element`, so that nothing that a user, a journal or an
error message holds can be read as a tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from botorch_bandits.docstrings import fill_in_docstrings

MOST_ROWS = 10
"""Tables in notebooks have at most so many rows, the last ones."""

_VOID = ("circle", "line", "meta", "path", "rect", "use")
"""Elements without an end tag of their own; in SVG they are closed in place."""


class Markup(str):
    """Text that is markup already, and is not escaped again."""


def text_of(value: Any) -> Markup:
    """Return a value as markup: escaped, unless it is markup.

    Args:
        value: Any value; ``str`` shows values that are not strings.

    Example:
        >>> text_of("a < b")
        'a &lt; b'
    """
    return value if isinstance(value, Markup) else Markup(escape(str(value), quote=True))


def element(tag: str, *children: Any, **attributes: Any) -> Markup:
    """Return an element.

    Args:
        tag: Such as ``"td"``.
        *children: What is in it, escaped unless it is markup.
        **attributes: Values are escaped; None leaves an attribute out. ``class_`` is ``class``,
            and underscores stand for hyphens.

    Example:
        >>> element("td", "a < b", class_="number")
        '<td class="number">a &lt; b</td>'
    """
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID and not children:
        return Markup(f"<{tag}{shown}/>")
    return Markup(f"<{tag}{shown}>{''.join(map(text_of, children))}</{tag}>")


def table(names: Sequence[Any], rows: Sequence[Sequence[Any]]) -> Markup:
    """Return a table.

    Args:
        names: Of the columns; a table without them has the name of each row in its first column.
        rows: Cells.
    """
    head: list[Markup] = []
    if names:
        cells = [element("th", name, scope="col") for name in names]
        head = [element("thead", element("tr", *cells))]
    body = []
    for row in rows:
        first, *rest = row
        opening = element("td", first) if names else element("th", first, scope="row")
        body.append(element("tr", opening, *(element("td", cell) for cell in rest)))
    return element("table", *head, element("tbody", *body))


def listed(values: Sequence[Any]) -> Markup:
    """Return a list with a point a value.

    Args:
        values: What is listed.
    """
    return element("ul", *(element("li", value) for value in values))


def display(title: str, facts: Mapping[str, Any], *parts: Markup) -> str:
    """Return what a notebook shows of an object, in the notebook's own colors.

    Args:
        title: What it is.
        facts: Values by name; those that are None are left out.
        *parts: What stands below.
    """
    rows = [(name, value) for name, value in facts.items() if value is not None]
    shown = [table((), rows)] if rows else []
    return str(element("div", element("strong", title), *shown, *parts))


def last_rows(names: Sequence[Any], rows: Sequence[Sequence[Any]], num_rows: int) -> Markup:
    """Return a table of the last rows, and how many came before.

    Args:
        names: Of the columns.
        rows: The last ones at least.
        num_rows: How many there are in all.
    """
    shown = rows[-MOST_ROWS:]
    left_out = num_rows - len(shown)
    note = [element("p", f"{left_out} earlier rows are left out.")] if left_out else []
    return element("div", *note, table(names, shown)) if shown else element("p", "no rows yet")


fill_in_docstrings(__name__)
