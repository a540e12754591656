"""Writes the pages of a reproduction as one self-contained HTML file.

Pictures are embedded, and nothing is loaded from elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape

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

STYLE = """
body { font: 1rem/1.5 Georgia, serif; color: #111; background: #fff; margin: 0 auto;
  max-width: 78rem; padding: 1rem; overflow-wrap: break-word; }
h1, h2, h3 { font-family: Helvetica, Arial, sans-serif; line-height: 1.25; }
h2 { border-top: 3px solid #111; padding-top: .6rem; margin-top: 3rem; }
h3 { border-top: 1px solid #111; padding-top: .5rem; margin-top: 2.5rem; }
a { color: #00509e; }
p, ul { max-width: 46rem; }
.beside { display: grid; grid-template-columns: minmax(16rem, 1fr) minmax(0, 44rem); gap: 0 2rem; }
.beside > div { min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .6rem 0; }
caption { text-align: left; font-weight: bold; padding: .3rem 0; }
th, td { border-bottom: 1px solid #999; padding: .2rem .7rem .2rem 0; text-align: left;
  vertical-align: top; }
thead th { border-bottom: 2px solid #111; }
td.number { text-align: right; white-space: nowrap; }
.picture { overflow-x: auto; }
img { width: 44rem; min-width: 36rem; max-width: 100%; height: auto; margin: .3rem 0; }
.notice { border: 2px solid #111; padding: .5rem .8rem; }
pre { white-space: pre-wrap; font-size: .8rem; }
@media (max-width: 64rem) { .beside { display: block; } }
@media print { h3, img, tr { break-inside: avoid; } a { text-decoration: none; } }
"""


def write_html(title: str, pages: Sequence[Page]) -> str:
    """Return one HTML page with all pages.

    Args:
        title: The title of the HTML page.
        pages: The pages. The title of the first one is not shown, as it equals ``title``.
    """
    body: list[str] = [_element("h1", escape(title))]
    for i, page in enumerate(pages):
        if i:
            body.append(_element("h2", escape(page.title), id=f"page-{page.name}"))
        body += [_block(block, level=1 if i == 0 else 2) for block in page.blocks]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _element(name: str, inside: str, **attributes: str) -> str:
    given = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f"<{name}{given}>{inside}</{name}>"


def _inline(part: Inline) -> str:
    if isinstance(part, Link):
        return f'<a href="#{escape(part.anchor)}">{escape(part.text)}</a>'
    return escape(part)


def _all(blocks: Iterable[Block], level: int) -> str:
    return "\n".join(_block(block, level) for block in blocks)


def _block(block: Block, level: int) -> str:
    match block:
        case Heading():
            return _element(f"h{level + block.level}", escape(block.text), id=block.anchor)
        case Paragraph():
            label = f"<strong>{escape(block.label)}</strong> " if block.label else ""
            inside = label + "".join(map(_inline, block.parts))
            return _element("p", inside, **({"class": "notice"} if block.is_notice else {}))
        case Bullets():
            return _element("ul", "".join(_element("li", escape(text)) for text in block.texts))
        case Table():
            return _table(block)
        case Code():
            return _element("pre", escape(block.text))
        case Image():
            data = base64.b64encode(block.path.read_bytes()).decode("ascii")
            kind = "svg+xml" if block.path.suffix == ".svg" else "png"
            source = f"data:image/{kind};base64,{data}"
            picture = f'<img alt="{escape(block.alt)}" src="{source}">'
            return _element("div", picture, **{"class": "picture"})
        case Details():
            summary = _element("summary", escape(block.summary))
            return _element("details", f"{summary}\n{_all(block.blocks, level)}")
        case Beside():
            columns = [_element("div", _all(each, level)) for each in (block.left, block.right)]
            return _element("div", "\n".join(columns), **{"class": "beside"})


def _table(block: Table) -> str:
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in block.titles)
    rows = "".join(
        _element("tr", "".join(_cell(cell, i == 0) for i, cell in enumerate(row)))
        for row in block.rows
    )
    caption = _element("caption", escape(block.caption))
    inside = f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return _element("div", _element("table", inside), **{"class": "scroll"})


def _cell(cell: Inline, is_first: bool) -> str:
    if is_first:
        return f'<th scope="row">{_inline(cell)}</th>'
    return _element("td", _inline(cell), **({"class": "number"} if is_number(cell) else {}))
