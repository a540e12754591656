"""The table of the campaign in the documentation: it is large enough, and refutes nothing.

    python tests/benchmarks claims

goes on where the table ends.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from claims.campaign import STATEMENTS, Row, coverage, is_refuted, pooled, read, summary
from claims.command import DEFAULT_TABLE
from claims.judging import REFUTED
from claims.settings import AXES

DOCS = Path(__file__).resolve().parents[2] / "docs"

NEVER_COVERED = {
    ("method", "constant width"),
    ("method", "Lagrangian TS"),
    ("method", "IGP-UCB, gain too small"),
    ("model", "frozen"),
    ("model", "fitted, frozen"),
    ("model", "standardized"),
    ("model", "learned"),
    ("constraints", "additive, relabeled"),
    ("restart", "change points"),
    ("restart", "oracle, delta not split"),
    ("forgetting", "window"),
    ("forgetting", "weights"),
    ("forgetting", "time kernel"),
}
"""Values of axes of which no theorem speaks, so that nothing is claimed."""


@pytest.fixture(scope="module")
def table() -> list[Row]:
    return read(DEFAULT_TABLE)


def test_the_table_has_settings_enough(table: list[Row]) -> None:
    counts = coverage(table)
    assert sum(str(row["holds"]) == "True" for row in table) >= 500
    few = {value: n for value, n in counts.items() if n < 20 and value not in NEVER_COVERED}
    assert few == {}
    boxes = sum(n for (axis, value), n in counts.items() if axis == "domain" and "box" in value)
    assert boxes >= 100


def test_every_theorem_has_settings_enough(table: list[Row]) -> None:
    counts = Counter(
        str(row["theorem"]).split(", as printed")[0].split(", in the form")[0]
        for row in table
        if str(row["holds"]) == "True"
    )
    assert len(counts) >= 12
    assert {theorem: n for theorem, n in counts.items() if n < 20} == {}


def test_nothing_is_claimed_where_no_theorem_speaks(table: list[Row]) -> None:
    claimed: Counter[tuple[str, str]] = Counter()
    for row in table:
        if str(row["holds"]) == "True":
            claimed.update((axis, str(row[axis])) for axis in AXES)
    assert {value for value in NEVER_COVERED if claimed[value]} == set()


def test_the_table_refutes_nothing(table: list[Row]) -> None:
    assert not any(is_refuted(row) for row in table)
    for theorem in {row["theorem"] for row in table}:
        for name in STATEMENTS:
            of_it = [
                r for r in table if r["theorem"] == theorem and int(r.get(f"{name}_runs") or 0)
            ]
            assert not of_it or pooled(of_it, name)[2] >= REFUTED, (theorem, name)


def test_the_page_has_the_summary_of_the_table(table: list[Row]) -> None:
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    for line in summary(table).splitlines():
        assert line in page
