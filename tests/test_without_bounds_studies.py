"""The studies of users who know no bounds: their command, and the tables that the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.commands import main
from benchmarks.without_bounds import RESULTS, STUDIES, Loss, play_study, read_rows
from botorch_bandits.problems import ConstantDelay
from botorch_bandits.problems.delays import NEVER

PAGES = {"widths": "methods.md", "pending": "delayed-feedback.md"}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_shows_the_committed_table(name: str) -> None:
    study = STUDIES[name]
    rows = read_rows(study, RESULTS / study.table)
    assert rows
    page = (RESULTS.parent / PAGES[name]).read_text(encoding="utf-8")
    assert "\n".join(study.summarize(rows)) in page


def test_what_is_told_is_mostly_exploration() -> None:
    study = STUDIES["widths"]
    rows = read_rows(study, RESULTS / study.table)
    told = sum(row.num_told for row in rows)
    assert sum(row.num_both for row in rows) > 0.6 * told
    healthy = [row for row in rows if row.method in ("without bounds", "width 2")]
    assert sum(row.num_told for row in healthy) == 0


def test_the_command_goes_on_where_the_table_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import without_bounds

    path = tmp_path / "table.csv"
    few = {
        name: without_bounds.Study(s.play, s.keys[:1], s.row, s.table, s.summarize)
        for name, s in STUDIES.items()
    }
    monkeypatch.setattr(without_bounds, "STUDIES", few)
    arguments = ["without-bounds", "widths", "--seeds", "1", "--rounds", "16", "--quiet"]
    assert main([*arguments, "--out", str(path)]) == 0
    assert "| branin | without bounds |" in capsys.readouterr().out
    (row,) = read_rows(few["widths"], path)
    assert row.num_looked == 4
    assert 1.0 < row.width < 2.0

    def refused(*key: object, **given: object) -> None:
        raise AssertionError("it was played before")

    again = without_bounds.Study(refused, few["widths"].keys, row.__class__, "", iter)
    assert play_study(again, path, 1, progress=False) == [row]
    assert main(["without-bounds", "widths", "--seeds", "0"]) == 2


def test_lost_outcomes_never_come() -> None:
    delays = Loss(0.3, ConstantDelay(2))
    import torch

    drawn = [delays.of_query(torch.zeros(1), seed=0, round_number=t) for t in range(400)]
    assert set(drawn) == {2.0, NEVER}
    assert 0.2 < sum(each == NEVER for each in drawn) / 400 < 0.4
