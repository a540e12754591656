"""Keeps Napoleon from taking the beginning of a property's docstring for its type.

In "The round of the next point: rows plus pending points plus 1", Napoleon takes the words before
the colon for the type and prints them last. The types of this package come from annotations, so the
colon is hidden from Napoleon.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

HIDDEN = "\ue000"
"""A character that no docstring has."""

BEFORE_NAPOLEON, AFTER_NAPOLEON = 400, 600  # which has the ordinary priority, 500


def hide(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Hide the colons in the first line of a property, an attribute or a variable."""
    if what in ("property", "attribute", "data") and lines:
        lines[0] = lines[0].replace(":", HIDDEN)


def show(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Show them again."""
    lines[:] = [line.replace(HIDDEN, ":") for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Act before and after Napoleon."""
    app.connect("autodoc-process-docstring", hide, BEFORE_NAPOLEON)
    app.connect("autodoc-process-docstring", show, AFTER_NAPOLEON)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
