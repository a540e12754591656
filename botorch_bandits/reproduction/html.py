"""A few honest functions that write HTML; every text that goes in is escaped here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

STYLE = """
body { font: 1rem/1.5 Georgia, serif; color: #111; background: #fff; margin: 0 auto;
  max-width: 62rem; padding: 1rem; overflow-wrap: break-word; }
h1, h2, h3, h4 { font-family: Helvetica, Arial, sans-serif; line-height: 1.25; }
h2 { border-top: 3px solid #111; padding-top: .6rem; margin-top: 3rem; }
h3 { border-top: 1px solid #111; padding-top: .5rem; margin-top: 2.5rem; }
a { color: #111; }
.beside { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2rem; }
.beside > div { min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .6rem 0; }
caption { text-align: left; font-weight: bold; padding: .3rem 0; }
th, td { border-bottom: 1px solid #999; padding: .2rem .7rem .2rem 0; text-align: left;
  vertical-align: top; }
thead th { border-bottom: 2px solid #111; }
td.number { text-align: right; white-space: nowrap; }
img { max-width: 100%; height: auto; border: 1px solid #999; }
figure { margin: 1rem 0; }
figcaption, .small { font-size: .85rem; }
.notice { border: 2px solid #111; padding: .5rem .8rem; }
pre { white-space: pre-wrap; font-size: .8rem; }
@media (max-width: 40rem) { .beside { display: block; } }
@media print { h3, figure, tr { break-inside: avoid; } a { text-decoration: none; } }
"""


class Html(str):
    """What is HTML already."""

    __slots__ = ()


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole page.

    Args:
        title: As text.
        body: HTML.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def element(name: str, text: str, *, of_class: str = "", anchor: str = "") -> str:
    """Return an element around a text.

    Args:
        name: Of the element.
        text: As text.
        of_class: Its class.
        anchor: Its id, where links lead.
    """
    return wrap(name, [escape(text)], of_class=of_class, anchor=anchor)


def wrap(name: str, inside: Iterable[str], *, of_class: str = "", anchor: str = "") -> str:
    """Return an element around HTML; arguments as for :func:`element`."""
    given = f' id="{escape(anchor)}"' if anchor else ""
    given += f' class="{escape(of_class)}"' if of_class else ""
    return f"<{name}{given}>{''.join(inside)}</{name}>"


def link(anchor: str, text: str) -> Html:
    """Return a link to a place on the page.

    Args:
        anchor: The id of the place.
        text: As text.
    """
    return Html(f'<a href="#{escape(anchor)}">{escape(text)}</a>')


def bullets(texts: Iterable[str]) -> str:
    """Return a list.

    Args:
        texts: As text.
    """
    return wrap("ul", (element("li", text) for text in texts))


def table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are text, but for those of :class:`Html`.

    Args:
        caption: As text.
        titles: Of the columns.
        rows: Cells.
    """
    head = wrap("tr", (f'<th scope="col">{escape(title)}</th>' for title in titles))
    body = (wrap("tr", [_cell(cell, i == 0) for i, cell in enumerate(row)]) for row in rows)
    inside = [
        element("caption", caption),
        wrap("thead", [head]),
        wrap("tbody", body),
    ]
    return wrap("div", [wrap("table", inside)], of_class="scroll")


def _cell(cell: str, is_first: bool) -> str:
    text = cell if isinstance(cell, Html) else escape(cell)
    if is_first:
        return f'<th scope="row">{text}</th>'
    return wrap("td", [text], of_class="number" if _is_number(cell) else "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def image(path: Path, caption: str, description: str) -> str:
    """Return a PNG file as part of the page.

    Args:
        path: The file.
        caption: As text.
        description: What it shows, for who cannot see it; as text.
    """
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    source = f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'
    return wrap("figure", [source, element("figcaption", caption)])
