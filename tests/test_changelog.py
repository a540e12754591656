"""The tables of renamed things in the changelog are true: old ones are gone, new ones there."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")
PACKAGE = "botorch_bandits"


def rows_of(title):
    """Return the names in backticks of each cell of a table, row by row."""
    lines = TEXT.split(f"| {title} |")[1].split("\n\n")[0].splitlines()[2:]
    return [
        [re.findall(r"`([^`]+)`", cell) for cell in line.strip("| ").split(" | ")] for line in lines
    ]


def find(path):
    """Return what a dotted name in the package means, and fail if it means nothing."""
    value = importlib.import_module(PACKAGE)
    for part in path.split("."):
        if inspect.ismodule(value) and not hasattr(value, part):
            value = importlib.import_module(f"{value.__name__}.{part}")
        elif inspect.isclass(value) and part in getattr(value, "__dataclass_fields__", {}):
            return None
        else:
            value = getattr(value, part)
    return value


def exists(name):
    path, _, argument = name.rstrip("=)").partition("(")
    try:
        value = find(path)
    except (AttributeError, ImportError):
        return False
    return not argument or argument in inspect.signature(value).parameters


@pytest.mark.parametrize(("old", "new"), rows_of("Old name | New name"), ids=str)
def test_renamed_names(old, new):
    assert not exists(old[0])
    if new[0] == "BanditLoop.settings":
        assert exists(f"loop.settings.LoopSettings.{new[1]}")
    else:
        assert exists(new[0])


@pytest.mark.parametrize(("old", "new"), rows_of("Old module | New module"), ids=str)
def test_renamed_modules(old, new):
    assert not any(exists(name) for name in old)
    assert all(importlib.util.find_spec(f"{PACKAGE}.{name}") for name in new)


@pytest.mark.parametrize(("old", "new"), rows_of("Old module | New package"), ids=str)
def test_modules_that_left_the_package(old, new):
    assert not exists(old[0].removeprefix(f"{PACKAGE}."))
    folder = Path(__file__).parents[1] / new[1]
    assert (folder / "__init__.py").is_file()


@pytest.mark.parametrize(("old", "_"), rows_of("Old name | Why"), ids=str)
def test_removed_names(old, _):
    assert not exists(old[0])


def test_the_check_itself():
    assert exists("BanditLoop.ask")
    assert exists("BanditLoop.ask(context=)")
    assert exists("loop.settings.LoopSettings.horizon")
    assert not exists("BanditLoop.ask(where=)")
    assert not exists("BanditLoop.answer")
    assert not exists("attic.Box")
