"""Writes out what docstrings only refer to, so that ``help()`` explains every argument in place.

Many classes share arguments, which are described once in the source and referred to elsewhere. A
module that uses such references ends with ``fill_in_docstrings(__name__)``, which replaces each of
the following with the text to which it refers:

* an argument ``name: See :class:`Other`.``, with the text of ``Other`` for that argument; further
  arguments may then say ``See there.``,
* a method's ``See the base class.``, ``See :class:`Other`.`` or ``See :meth:`Other.method`.``,
  alone or at the end of its first paragraph, with the docstring of that method,
* the docstring of a constructor, which gets the ``Args`` of its class,
* the docstring of a dataclass, which gets the ``Attributes`` that its base classes explain.

A reference that cannot be followed is left as it is: importing never fails because of a docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

_ROLE = r":(?:class|meth|func):`(?P<name>[^`]+)`"
_REFERENCE = re.compile(
    r"(?P<before>.*?)(?:[;.:,] |^)(?:[Ss]ee|[Aa]s for) "
    rf"(?:the (?P<kin>base class|class)|(?P<there>there)|{_ROLE})"
    r"(?:[;,] (?P<after>.*))?\.",
    re.DOTALL,
)
_MENTION = re.compile(r"(?:[Ss]ee|[Aa]s for)\s+(?:the |there|:)")
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Examples|Note|Yields):$", re.M)
_ENTRY = re.compile(r"^    \*{0,2}(\w+)(?: \([^)]*\))?: (.*(?:\n {5,}.*|\n(?=\n {5,}))*)", re.M)

_clean = functools.lru_cache(maxsize=4096)(inspect.cleandoc)
_Place = tuple[Any, type | None, str]  # what has a docstring, its class, and its name there


def fill_in_docstrings(module_name: str) -> None:
    """Replace the references in the docstrings of a module's classes and functions.

    Args:
        module_name: The ``__name__`` of a module that has been executed to its end.
    """
    names = vars(sys.modules[module_name])
    own = [value for value in names.values() if getattr(value, "__module__", "") == module_name]
    classes = [value for value in own if inspect.isclass(value)]
    places: list[_Place] = [(one, one, "") for one in classes]
    places += [(one, None, one.__name__) for one in own if inspect.isfunction(one)]
    for one in classes:
        for name, member in vars(one).items():
            holder = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if inspect.isfunction(holder) or isinstance(holder, property):
                places.append((holder, one, name))
    mentions = [place for place in places if _MENTION.search(place[0].__doc__ or "")]
    for _ in range(3):  # a text that is referred to may itself contain a reference
        mentions = [place for place in mentions if _fill_in(*place, names)]
    for holder, owner, name in places:
        if owner is not None and holder.__doc__ and name == "__init__":
            text = _clean(holder.__doc__)
            holder.__doc__ = _add_arguments(text, holder, _inherited_entries(owner))
        elif not name and holder.__doc__ and "__dataclass_fields__" in vars(holder):
            _add_fields(holder)


def _fill_in(holder: Any, owner: type | None, name: str, names: dict[str, Any]) -> bool:
    """Replace the references in one docstring, and return whether there were any.

    Args:
        holder: The class, function or property that has the docstring.
        owner: The class that defines it, or the class itself.
        name: The name in its class; empty for a class.
        names: The meanings of the names in the module.
    """
    text = _clean(holder.__doc__)
    filled = _fill_in_entries(text, owner, name, names)
    if name:
        filled = _fill_in_opening(filled, holder, owner, name, names)
    if filled == text:
        return False
    holder.__doc__ = filled
    return True


def _fill_in_entries(text: str, owner: type | None, name: str, names: dict[str, Any]) -> str:
    """Replace the references of arguments and attributes."""
    last: re.Match[str] | None = None

    def replace(entry: re.Match[str]) -> str:
        nonlocal last
        said = " ".join(entry[2].split())
        match = _REFERENCE.fullmatch(said)
        if match is not None and match["there"] is None:
            last = match
        if match is None or last is None:
            return entry[0]
        found = _target(last, owner, name, names)
        meant = dict(_entries(found)).get(entry[1])
        if found is None or not meant or meant == entry[2]:
            return entry[0]
        before, after = match["before"], match["after"]
        start = entry[0][: entry.start(2) - entry.start()]
        more = f" {after[0].upper()}{after[1:]}." if after else ""
        if before and meant[1:2].islower():
            meant = f"{meant[0].lower()}{meant[1:]}"
        return f"{start}{before}: {meant}{more}" if before else f"{start}{meant}{more}"

    return _ENTRY.sub(replace, text)


def _fill_in_opening(
    text: str, holder: Any, owner: type | None, name: str, names: dict[str, Any]
) -> str:
    """Replace a reference that is the first paragraph of a docstring, or ends it."""
    opening, _, rest = text.partition("\n\n")
    match = _REFERENCE.fullmatch(opening)
    found = _target(match, owner, name, names) if match else None
    meant = _text_of(found)
    if match is None or not meant:
        return text
    before, after = match["before"], match["after"]
    after = f"{after[0].upper()}{after[1:]}." if after else ""
    if found is owner:
        said = meant.partition("\n\n")[0] if name == "__init__" else dict(_entries(owner)).get(name)
        said = _clean(said) if said else opening
        text = "\n\n".join(part for part in [said, rest] if part)
    elif not inspect.isclass(found) and _name_of(found) == name:
        own = {one.partition(":")[0] for one in _sections(rest)}
        theirs = [one for one in _sections(meant) if one.partition(":")[0] not in {*own, "Args"}]
        if before:
            opening = " ".join(part for part in (f"{before}.", after) if part)
        else:
            opening = "\n\n".join(p for p in (_SECTION.split(meant)[0].strip(), after) if p)
        text = "\n\n".join(part for part in [opening, rest, *theirs] if part)
    # any other reference is for further reading, and stays
    return _add_arguments(text, holder, dict(_entries(found)))


def _add_arguments(text: str, holder: Any, described: dict[str, str]) -> str:
    """Add descriptions that a function's docstring lacks for its parameters, from elsewhere."""
    if not inspect.isfunction(holder):
        return text
    head, _, arguments = text.partition("\n\nArgs:\n")
    own = dict(_ENTRY.findall(f"    {arguments.lstrip()}")) if arguments else {}
    code = holder.__code__
    count = code.co_argcount + code.co_kwonlyargcount
    stars = bin(code.co_flags & 12).count("1")
    lines = [
        f"    {name}: {described[name]}"
        for name in code.co_varnames[: count + stars]
        if name in described and name not in own
    ]
    if not lines:
        return text
    if arguments:
        entries, gap, rest = arguments.partition("\n\n")
        return "\n".join([f"{head}\n\nArgs:", entries, *lines]) + gap + rest
    summary, *sections = re.split(r"\n\n(?=(?:Returns|Raises|Example|Yields):\n)", text)
    return "\n\n".join([summary, "\n".join(["Args:", *lines]), *sections])


def _add_fields(owner: type) -> None:
    """Add descriptions that a dataclass's docstring lacks for its fields, from its base classes."""
    fields = owner.__dict__["__dataclass_fields__"]
    if not any(hasattr(one, "__dataclass_fields__") for one in owner.__mro__[1:]):
        return
    text = _clean(owner.__doc__ or "")
    own, described = dict(_entries(owner)), _inherited_entries(owner)
    lines = [
        f"    {name}: {described[name]}"
        for name, one in fields.items()
        if one.init and name in described and name not in own
    ]
    title = next((name for name in ("Attributes", "Args") if f"\n{name}:\n" in text), None)
    if lines and title is None:
        summary, *sections = re.split(r"\n\n(?=(?:Raises|Example):\n)", text)
        text = "\n\n".join([summary, "\n".join(["Attributes:", *lines]), *sections])
    elif lines:
        head, _, rest = text.partition(f"\n{title}:\n")
        text = "\n".join([head, f"{title}:", *lines, rest])
    owner.__doc__ = text


def _inherited_entries(owner: type) -> dict[str, str]:
    """Return what a class and its base classes in this package explain."""
    package = owner.__module__.partition(".")[0]
    kin = [one for one in owner.__mro__ if one.__module__.partition(".")[0] == package]
    return {name: text for one in reversed(kin) for name, text in _entries(one)}


def _target(
    match: re.Match[str], owner: type | None, name: str, names: dict[str, Any]
) -> Any | None:
    """Return the class or method to which a reference refers, or None if it cannot be found."""
    if match["kin"] == "class":
        return owner
    if match["kin"] == "base class":
        kin = owner.__mro__[1:] if owner is not None else ()
        return next((vars(one)[name] for one in kin if name in vars(one)), None)
    roles = re.findall(_ROLE, match["before"]) if match["there"] else [match["name"]]
    if not roles:
        return None
    path = roles[-1].lstrip("~").split(".")
    known = {one.__name__: one for one in (owner.__mro__ if owner is not None else ())}
    if len(path) == 1 and ":meth:" in match[0] and owner is not None:
        return getattr(owner, path[0], None)
    for start in (-1, -2):
        if len(path) < -start:
            break
        found = names.get(path[start], known.get(path[start]))
        for part in path[len(path) + start + 1 :]:
            found = getattr(found, part, None)
        if found is not None:
            same = getattr(found, name, None) if inspect.isclass(found) and name else None
            is_method = same is not None and name != "__init__" and found is not owner
            return same if is_method else found
    return None


def _name_of(value: Any) -> str:
    holder = value.fget if isinstance(value, property) else value
    return str(getattr(holder, "__name__", ""))


def _text_of(value: Any) -> str:
    """Return a cleaned docstring, or an empty string."""
    holder = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return _clean(getattr(holder, "__doc__", None) or "") if holder is not None else ""


def _entries(value: Any) -> list[tuple[str, str]]:
    """Return the names and texts of the arguments and attributes that a docstring explains."""
    return _entries_of_text(getattr(value, "__doc__", None) or "")


@functools.lru_cache(maxsize=1024)
def _entries_of_text(text: str) -> list[tuple[str, str]]:
    if not re.search(r"^ *(?:Args|Attributes):$", text, re.MULTILINE):
        return []
    found: list[tuple[str, str]] = []
    for section in _sections(_clean(text)):
        if section.startswith(("Args:", "Attributes:")):
            found += _ENTRY.findall(section)
    return found


def _sections(text: str) -> Iterator[str]:
    """Yield the sections of a docstring with their titles."""
    pieces = _SECTION.split(text)
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        yield f"{title}:{body.rstrip()}"
