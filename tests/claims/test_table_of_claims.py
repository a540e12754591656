"""The table of the campaign in the documentation: it is large enough, and refutes nothing.

    python tests/benchmarks claims

goes on where the table ends.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from claims.campaign import Row, coverage, read, summary
from claims.command import DEFAULT_TABLE, are_refuted
from claims.edge import table as table_of_edges

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
    counts = coverage(table)
    assert {value: counts[value] for value in NEVER_COVERED if counts[value]} == {}


def test_the_table_refutes_nothing(table: list[Row]) -> None:
    assert not are_refuted(table)


def test_the_page_has_the_summary_of_the_table(table: list[Row]) -> None:
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    for line in summary(table).splitlines():
        assert line in page


@pytest.mark.slow
def test_the_page_has_the_table_of_the_edge() -> None:
    assert table_of_edges() in (DOCS / "claims.md").read_text(encoding="utf-8")
