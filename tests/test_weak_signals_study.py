"""The studies of jumps in noisy rewards: their command, and the tables that the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import weak_signals
from benchmarks.commands import main
from benchmarks.weak_signals import (
    JUMPS,
    METHODS,
    STUDIES,
    JumpRow,
    RegretRow,
    play_check,
    play_jump,
    play_regret,
    played,
)
from benchmarks.without_bounds import RESULTS, Study, read_rows

PAGE = RESULTS.parent / "change-points.md"


@pytest.mark.parametrize("name", ["jumps", "regret"])
def test_the_page_shows_the_committed_table(name: str) -> None:
    study = STUDIES[name]
    rows = read_rows(study, RESULTS / study.table)
    assert len(rows) == 20 * len(study.keys)
    table = [line for line in study.summarize(rows) if line.startswith("|")]
    assert "\n".join(table) in PAGE.read_text(encoding="utf-8")


def test_the_page_has_the_differences_of_the_committed_table() -> None:
    study = STUDIES["regret"]
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    differences = [
        line.rpartition(" by ")[2].split(", ")
        for line in study.summarize(read_rows(study, RESULTS / study.table))
        if not line.startswith("|")
    ]
    assert len(differences) == 3
    for low, high in (differences[0], differences[2]):  # a fast kernel, and the robust form
        assert low in page
        assert high in page


def test_the_page_has_the_counts_of_the_checks() -> None:
    study = STUDIES["checks"]
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    rows = read_rows(study, RESULTS / study.table)
    jump, calm = ([r.first for r in rows if r.setting == s and r.first] for s in ("line", "calm"))
    assert len(rows) == 40
    assert f"in {len(jump)} of 20 runs with a jump after round 100" in page
    assert (
        f"a round from {min(jump)} to {max(jump)}; in 20 runs without a jump, it never did" in page
    )
    assert not calm
    again = play_check("0.3", "line", rows[0].seed)
    assert again == rows[0]


def test_alarms_are_counted_by_when_they_came() -> None:
    alarms = {"robust": [0, 101, 120, 121], "plain": [100, 99, 119, 0]}
    rows = [
        JumpRow("line", "1", "2", form, seed, alarm)
        for form, given in alarms.items()
        for seed, alarm in enumerate(given)
    ]
    *_, line = STUDIES["jumps"].summarize(rows)
    assert line == "| line | 1 | 2 | 2 of 4 | 0 | 1 of 4 | 2 |"


def test_regret_is_averaged_and_compared_in_pairs() -> None:
    methods = list(METHODS)
    lost = {methods[4]: [3.0, 5.0], methods[7]: [1.0, 4.0]}
    rows = [
        RegretRow("1", m, i, value, 0) for m, given in lost.items() for i, value in enumerate(given)
    ]
    lines = list(STUDIES["regret"].summarize(rows))
    assert f"| {methods[4]} | 4.0 ± 1.0 |" in lines
    assert f"{methods[7]}: less than {methods[4]} by 1.5 ± 0.5" in lines


def test_a_run_is_what_the_table_says() -> None:
    rows = read_rows(STUDIES["jumps"], RESULTS / "weak-signals-jumps.csv")
    found = next(r for r in rows if r.noise_variance == "0.03" and r.form == "plain" and r.alarm)
    key = ("line", "0.03", "0.03", "plain", found.seed)
    assert play_jump(*key).alarm == found.alarm
    assert play_jump(*key, num_rounds=found.alarm - 1).alarm == 0
    _, queries, outcomes = played("line", 0.03, found.seed)
    assert len(queries) == len(outcomes) == 250
    rows = read_rows(STUDIES["regret"], RESULTS / "weak-signals-regret.csv")
    again = play_regret("0.3", "`SlidingWindow(50)`", 0)
    (known,) = (r for r in rows if (r.noise_variance, r.method, r.seed) == ("0.3", again.method, 0))
    assert again.regret == pytest.approx(known.regret, rel=1e-4)


def test_the_command_plays_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = STUDIES["jumps"]
    few = Study(study.play, ((*JUMPS[0], "plain"),), study.row, study.table, study.summarize)
    monkeypatch.setattr(weak_signals, "STUDIES", {"jumps": few})
    path = tmp_path / "table.csv"
    assert main(["weak-signals", "jumps", "--seeds", "1", "--quiet", "--out", str(path)]) == 0
    assert "| line | 0.03 | 0.03 |" in capsys.readouterr().out
    assert len(read_rows(few, path)) == 1
    assert main(["weak-signals", "jumps", "--seeds", "0"]) == 2
