"""One page for each class of the API reference, with a table of its members.

The pages in ``docs/api`` group classes and functions, and list them with the directives of autodoc.
Before Sphinx reads them, each class gets a file of its own, which git ignores; on the page of its
group a table with a link takes its place. Exceptions, and the pages for those who change the
package, stay as they are.
"""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

FOLDER = "classes"
WHOLE = ("api/internals", "api/experiments")  # pages that stay as they are
BLOCK = re.compile(r"^\.\. (autoclass|currentmodule):: (\S+)\n((?:[ ]+\S.*\n)*)", re.MULTILINE)
FEW_MEMBERS = 2  # with fewer, a table says nothing new


@dataclass
class Entry:
    """A class on the page of its group: its full name, and the lines that it takes there."""

    name: str
    module: str
    options: str
    begin: int
    end: int


def entries_of(text: str) -> Iterator[Entry]:
    """Find the classes of a page that get pages of their own."""
    module = ""
    for block in BLOCK.finditer(text):
        kind, name, options = block.groups()
        if kind == "currentmodule":
            module = name
            continue
        full = name if "." in name else f"{module}.{name}"
        home, _, short = full.rpartition(".")
        if not issubclass(getattr(importlib.import_module(home), short), BaseException):
            yield Entry(full, module, options, block.start(), block.end())


def has_classes(name: str) -> bool:
    """Say whether the classes of a page get pages of their own."""
    return name.startswith("api/") and not name.startswith(WHOLE)


def write_pages(app: Sphinx) -> None:
    """Write a page for each class; pages that are as they were keep their dates."""
    source = Path(app.srcdir)
    pages: dict[Path, str] = {}
    for path in sorted((source / "api").rglob("*.rst")):
        place = path.relative_to(source).with_suffix("")
        if not has_classes(place.as_posix()):
            continue
        groups = [group for group in reversed(place.parents) if group.parent.name] + [place]
        trail = " / ".join(f":doc:`/{group.as_posix()}`" for group in groups)
        for entry in entries_of(path.read_text(encoding="utf-8")):
            title = entry.name.rpartition(".")[2]
            pages[source / FOLDER / f"{entry.name}.rst"] = (
                f":orphan:\n\n{title}\n{'=' * len(title)}\n\n:doc:`/api/index` / {trail}\n\n"
                f".. currentmodule:: {entry.module}\n\n"
                f".. autoclass:: {entry.name}\n{entry.options}"
            )
    (source / FOLDER).mkdir(exist_ok=True)
    for path in (source / FOLDER).iterdir():
        if path not in pages:
            path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def show_tables(app: Sphinx, name: str, source: list[str]) -> None:
    """Put a table with links in the place of classes that follow one another."""
    if not has_classes(name):
        return
    parts: list[str] = []
    position = 0
    for entry in entries_of(source[0]):
        between = source[0][position : entry.begin]
        if not parts or between.strip():
            parts.append(f"{between}.. autosummary::\n   :nosignatures:\n\n")
        parts.append(f"   ~{entry.name.removeprefix(entry.module + '.')}\n")
        position = entry.end
    source[0] = "".join([*parts, source[0][position:]])


def list_members(app: Sphinx, document: nodes.document) -> None:
    """Begin what a page says about a class with a table of its members."""
    if not app.env.docname.startswith(FOLDER):
        return
    for description in document.findall(addnodes.desc):
        content = description[-1]
        members = [part for part in content.children if isinstance(part, addnodes.desc)]
        if description["objtype"] == "class" and len(members) >= FEW_MEMBERS:
            fields = (part for part in content.children if isinstance(part, nodes.field_list))
            place = content.index(next(fields, members[0]))
            content.insert(min(place, content.index(members[0])), table_of(members))


def table_of(members: list[addnodes.desc]) -> nodes.table:
    """Make a table of the names of members and the first paragraphs of what is said about them."""
    body = nodes.tbody()
    for member in members:
        signature = member.next_node(addnodes.desc_signature)
        name = signature.next_node(addnodes.desc_name).astext()
        if member["objtype"] == "method":
            name += "()"
        ids = signature["ids"]
        literal = nodes.literal("", name, classes=["xref", "py"])
        link = nodes.reference("", "", literal, internal=True, refid=ids[0]) if ids else literal
        paragraph = member[-1].next_node(nodes.paragraph)
        summary = paragraph.deepcopy() if paragraph is not None else nodes.paragraph()
        entries = [nodes.entry("", nodes.paragraph("", "", link)), nodes.entry("", summary)]
        body += nodes.row("", *entries)
    columns = [nodes.colspec(colwidth=width) for width in (30, 70)]
    group = nodes.tgroup("", *columns, body, cols=2)
    return nodes.table("", group, classes=["autosummary", "longtable"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Act before pages are found, when they are read and when they have been read."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", show_tables)
    app.connect("doctree-read", list_members)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
