"""The campaign beside kills and cuts: a look at each kind that needs no cluster."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import pytest
from campaign_of_faults import hostile_files
from campaign_of_faults.fault_kinds import KindCount, count_kinds
from campaign_of_faults.hostile_files import KINDS, HostileCount, count_hostile

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")


def test_a_look_at_each_kind_finds_nothing() -> None:
    counts = list(count_kinds(160, seed=3))
    assert all(count.is_clean for count in counts), counts
    assert all(count.tried > 0 for count in counts), counts
    assert sum(count.tried for count in counts if count.fault.startswith("mutated")) == 160


@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_that_break_something_are_counted(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign itself: an error that is no refusal, and a file elsewhere that is written."""
    calls = []

    def careless(kind: str, folder: Path, *rest: Any) -> None:
        calls.append(folder)
        if len(calls) > 20:
            (folder.parent / "victim").write_bytes(b"written")
            raise ZeroDivisionError

    monkeypatch.setattr(hostile_files, "_open", careless)
    count = count_hostile(kind, 40)
    assert count.crashed > 10
    assert count.elsewhere == count.crashed
    assert "ZeroDivisionError" in count.first
    assert not count.is_clean
    assert not HostileCount(kind, megabytes=201.0).is_clean
    assert not KindCount("lost", lost=1).is_clean


def test_the_table_of_the_campaign_says_that_nothing_was_lost() -> None:
    with (ROOT / "docs/results/fault_kinds.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs/journal.md").read_text(encoding="utf-8")
    mutated = [row for row in rows if row["fault"].startswith("mutated")]
    assert sum(int(row["tried"]) for row in mutated) >= 100_000
    assert all(float(row["megabytes"]) < 200.0 for row in mutated)
    for row in rows:
        assert {row[name] for name in ("lost", "changed", "elsewhere", "hung")} == {"0"}
        size = row["megabytes"]
        cells = [row[name] for name in ("fault", "tried", "lost", "changed", "elsewhere", "hung")]
        assert f"| {' | '.join([*cells, size])} |".replace("|  |", "| |") in page, row
