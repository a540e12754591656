"""The environments in which the tests run: the oldest versions, and the subset of tests."""

from __future__ import annotations

import re
import tomllib

from environments.__main__ import ENVIRONMENTS, OLDEST, ROOT, SUBSET, TABLE, constraints_of, pins

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_oldest_versions_are_those_of_the_project() -> None:
    requirements = [
        *PROJECT["dependencies"],
        *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
    ]
    least: dict[str, str] = {}
    for requirement in requirements:
        name, _, version = requirement.partition(">=")
        if not name.startswith("botorch_bandits"):
            assert version, requirement
            assert least.setdefault(name, version) == version, f"{name} has two minimums"
    del least["ax-platform"]  # has an environment of its own, with few releases of BoTorch
    del least["setuptools"]  # builds in an environment of its own; torch wants one that fits it
    pinned = pins(OLDEST)
    assert pinned.keys() == least.keys()
    for name, version in pinned.items():
        # >=2.1 is first met by 2.1.0, or by 2.1.1 where that was withdrawn
        assert re.fullmatch(rf"{re.escape(least[name])}(\.[01])*", version), (name, version)


def test_the_small_environment_has_another_torch_alone() -> None:
    oldest, small = (constraints_of(ENVIRONMENTS[name]) for name in ("oldest", "small"))
    assert {name for name in oldest if oldest[name] != small[name]} == {"torch"}
    assert small["torch"] == pins(ROOT / "constraints.txt")["torch"]


def test_the_subset_has_something_of_each_room() -> None:
    text = ""
    for path in SUBSET:
        assert (ROOT / path).exists(), path
        files = sorted((ROOT / path).glob("test_*.py")) if (ROOT / path).is_dir() else [ROOT / path]
        text += "".join(file.read_text(encoding="utf-8") for file in files)
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| (.*?) \|", page, re.MULTILINE)
    rooms = {room for row in rows for room in re.findall(r"`(\w+)`", row)}
    assert len(rooms) > 20
    # these are reached by way of all others
    within = {"bounds", "late_imports", "processes", "progress", "queries", "version"}
    within.add("in_ax")  # its tests run with Ax, in an environment of their own
    missing = {room for room in rooms - within if f"botorch_bandits.{room}" not in text}
    assert not missing


def test_the_table_has_the_environments() -> None:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines[2:]]
    assert {"oldest", "small"} <= {row[0] for row in rows} <= set(ENVIRONMENTS)
    assert all(len(row) == len(lines[0].strip("| ").split(" | ")) for row in rows)
    for row in rows:
        assert row[1] == ENVIRONMENTS[row[0]].note
        assert row[9] == "0" or "is not installed" in row[3]
