"""HTML in which all values are escaped: tables in notebooks, and pages.

Text becomes markup only through :func:`element`, so that nothing in a user's values, a journal or
an error message can be read as a tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

MOST_ROWS = 10
"""The largest number of rows of a table in a notebook; the last rows are shown."""

_VOID = ("circle", "line", "meta", "path", "rect", "use")
"""Elements without an end tag of their own; in SVG they are closed in place."""


class Markup(str):
    """A string that is already markup, and is not escaped again."""


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
        tag: The name of the tag, such as ``"td"``.
        *children: The contents, which are escaped unless they are markup.
        **attributes: Their values are escaped; None omits an attribute. ``class_`` is ``class``,
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
        names: The names of the columns; without them, the first column contains the names of the
            rows.
        rows: The cells.
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
    """Return a list with one item per value.

    Args:
        values: The values.
    """
    return element("ul", *(element("li", value) for value in values))


def display(title: str, facts: Mapping[str, Any], *parts: Markup) -> str:
    """Return what a notebook shows for an object, in the notebook's own colors.

    Args:
        title: The title.
        facts: Values by name; those that are None are left out.
        *parts: The parts below these values.
    """
    rows = [(name, value) for name, value in facts.items() if value is not None]
    shown = [table((), rows)] if rows else []
    return str(element("div", element("strong", title), *shown, *parts))


def last_rows(names: Sequence[Any], rows: Sequence[Sequence[Any]], num_rows: int) -> Markup:
    """Return a table of the last rows, and the number of rows before them.

    Args:
        names: The names of the columns.
        rows: At least the last rows.
        num_rows: The number of all rows.
    """
    shown = rows[-MOST_ROWS:]
    left_out = num_rows - len(shown)
    note = [element("p", f"{left_out} earlier rows are left out.")] if left_out else []
    return element("div", *note, table(names, shown)) if shown else element("p", "no rows yet")
