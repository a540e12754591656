"""Runs with a journal from the command line; what shows and continues them."""

from __future__ import annotations

import csv
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks import faults
from benchmarks.commands import format_counts
from benchmarks.fault_cases import build, play
from botorch_bandits import AdditiveEpochs, BanditLoop, Box, RandomSearch
from botorch_bandits.cli import main
from botorch_bandits.cli.show import describe, read_history
from botorch_bandits.journal import Journal
from botorch_bandits.loop import journal as loop_journal

from .processes import start

FUNCTION = """
import os, time

def reward(x):
    with open("calls.txt", "a") as calls:
        calls.write("x\\n")
    calls = len(open("calls.txt").readlines())
    if calls >= int(os.environ.get("HANG_FROM_CALL", "1000")):
        time.sleep(600)
    return 1 - (x[0] - 0.3) ** 2
"""

OPTIMIZE = ("optimize", "waiting_module:reward", "--bounds", "0:1", "--initial", "3", "--quiet")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "waiting_module.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delitem(sys.modules, "waiting_module", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def told(path: Path) -> list[dict[str, Any]]:
    """Return what a journal has but for clock readings."""
    return [{k: v for k, v in r.items() if k != "at"} for r in Journal.read(path).records()]


def test_a_killed_run_resumes_to_the_same_points(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (*OPTIMIZE, "--rounds", "8", "--out", "killed", "--journal", "killed.journal")
    process = start(*arguments, HANG_FROM_CALL="5")
    deadline = time.monotonic() + 120
    while not Path("calls.txt").exists() or len(Path("calls.txt").read_text()) < 10:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    assert main(["show", "killed.journal"]) == 0
    assert re.search(r"5: 4 told .*, 1 pending, 0 failed", capsys.readouterr().out)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert main(["resume", "--trust", "../killed.journal", "--quiet"]) == 0
    monkeypatch.chdir(folder)
    whole = ("--rounds", "8", "--out", "whole", "--journal", "whole.journal")
    assert main([*OPTIMIZE, *whole]) == 0
    assert told(folder / "killed.journal") == told(folder / "whole.journal")
    assert not (folder / "killed" / "history.json").exists()
    rows = list(csv.DictReader((folder / "killed" / "history.csv").open()))
    records = told(folder / "killed.journal")
    assert [float(row["x0"]) for row in rows] == [r["x"][0] for r in records if "x" in r]
    # further rounds, by either command; other settings are refused
    assert main(["resume", "--trust", "killed.journal", "--rounds", "9"]) == 0
    assert sum(r["kind"] == "told" for r in told(folder / "killed.journal")) == 9
    assert main([*arguments, "--seed", "1"]) == 2
    assert "seed=0, not 1" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 2
    assert "--overwrite does not delete" in capsys.readouterr().err


def test_a_journal_is_the_only_record_of_a_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = (*OPTIMIZE, "--method", "random", "--rounds", "2", "--out", "run")
    assert main([*random]) == 0
    assert main([*random, "--journal", "run.journal"]) == 2
    assert "holds a run without a journal" in capsys.readouterr().err
    assert not (folder / "run.journal").exists()
    assert main([*random, "--journal", "run.journal", "--overwrite"]) == 0
    assert not (folder / "run" / "history.json").exists()
    assert main(["resume", "--trust", "run.journal", "--rounds", "3"]) == 0
    assert sum(r["kind"] == "told" for r in told(folder / "run.journal")) == 3


def test_a_tuning_run_with_budgets_is_continued(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", "--dataset", "iris", "--folds", "2", "--initial", "2", "--rounds", "4"]
    arguments += ["--budget", "support_vectors<=40", "--restart", "cpd", "--shift", "--quiet"]
    arguments += ["--shift-feature", "1", "--threshold-scale", "50", "--out", "run"]
    assert main([*arguments, "--journal", "run.journal"]) == 0
    assert main(["resume", "--trust", "run.journal", "--rounds", "6", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["show", "run.journal"]) == 0
    shown = capsys.readouterr().out
    for words in ("6: 6 told", "resets: none", "rectified violation"):
        assert words in shown


@pytest.mark.parametrize("with_snapshots", [False, True], ids=["journal", "snapshots"])
def test_show_says_what_is_pending_failed_and_violated(
    with_snapshots: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if with_snapshots:
        monkeypatch.setattr(loop_journal, "SNAPSHOT_EVERY", 3)
    path = tmp_path / "run.journal"
    rule = AdditiveEpochs(num_constraints=1, epoch_length=2)
    with BanditLoop.open(
        path, Box([[0.0], [1.0]]), None, RandomSearch(), constraints=rule, clock=lambda: 100.0
    ) as loop:
        for _ in range(4):
            loop.ask()
        loop.tell(1, 0.5, [0.25])
        loop.tell(0, 0.125, [-1.0])
        loop.tell_failed(2, reason="the oven broke")
        reader = Journal.read(path)  # while it is open for writing
        history = read_history(reader)
        assert history.to_records() == loop.history.to_records()
        shown = describe(reader, history, now=160.0)
    assert re.search(r"4: 2 told \(2 after later ones were asked\), 1 pending, 1 failed", shown)
    assert re.search(r"\n3 +4 +1 +60\.0\n", shown)
    assert re.search(r"\n2 +3 +the oven broke\n", shown)
    # a delay counts as that of censored feedback does: round 1 was told after round 4
    assert re.search(r"\n1 +random +told +4 +0\.125 +0\.125 ", shown)
    assert re.search(r"\n2 +random +told +3 +0\.5 +0\.5 ", shown)
    assert "late" not in shown.replace("after later", "")  # without max_delay nothing is
    assert re.search(r"\n1 +-0\.375 +0 +0\.25( |$)", shown)
    assert main(["show", str(path), "--plot", str(tmp_path / "run.png")]) == 0
    with Image.open(tmp_path / "run.png") as picture:
        assert picture.size[0] > 500
    assert main(["resume", "--trust", str(path)]) == 2
    assert "BanditLoop.open" in capsys.readouterr().err
    capsys.readouterr()
    assert main(["show", str(tmp_path / "none.journal")]) == 2
    assert re.search(r"there is no file \S+none\.journal\. Check", capsys.readouterr().err)
    monkeypatch.chdir(tmp_path)
    assert main(["show", "."]) == 2
    assert ". is a folder, not a journal. Name a journal." in capsys.readouterr().err
    (tmp_path / "journal.txt").write_text(f"{path}\n")  # as the folder of a run has
    assert main(["show", "."]) == 2
    assert f"The journal of its run is {path}." in capsys.readouterr().err


def test_resets_are_where_the_segment_changes(tmp_path: Path) -> None:
    with build("arms, restarts", journal=tmp_path / "run.journal") as loop:
        play(loop, 80)
        reader = Journal.read(loop._journal._journal.path)
        shown = describe(reader, read_history(reader), now=0.0)
        assert loop.resets
        for k, reset in enumerate(loop.resets):
            asked = [q for q in loop.history.queries_since(reset.after_round) if q.diagnostics]
            if asked:
                number = asked[0].round_number
                assert re.search(rf"\nbefore round {number} +{k + 2} +{reset.reason}(\n|$)", shown)


def test_what_differs_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    with build("arms, ucb", journal=path) as loop:
        play(loop, 12)
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    kinds = [record["kind"] for record in Journal.read(path).records()]
    assert faults.compare_journals(content, content) == (0, 0, 0)
    for k, kind in enumerate(kinds):
        changed = [*lines]
        changed[k + 2] = changed[k + 2].replace(b'"at": ', b'"at": 1').replace(b'"at":', b'"at":1')
        expected = (0, 1, 0) if kind == "asked" else (1, 0, 0)
        assert faults.compare_journals(b"".join(changed), content) == expected
    shorter = b"".join(lines[:-1])
    lost = faults.compare_journals(shorter, content)
    assert lost == ((0, 1, 0) if kinds[-1] == "asked" else (1, 0, 0))
    count = faults.FaultCount("arms, ucb", 1, 0, 12, 0, *lost)
    assert not count.is_clean
    assert format_counts([count, count]).splitlines()[-1].split() == [
        "all", "2", "0", "24", "0", *(str(2 * n) for n in lost),
    ]  # fmt: skip


def test_the_campaign_finds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import commands as command

    monkeypatch.setattr(command, "SETTING_NAMES", ("arms, ts, initial rounds",))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "faults.csv"
    assert (
        command.main(["faults", "--kills", "2", "--cuts", "3", "--quiet", "--out", str(out)]) == 0
    )
    (row,) = csv.DictReader(out.open())
    assert (row["kills"], row["cuts"], row["lost_outcomes"]) == ("2", "3", "0")
    changed = faults.FaultCount("arms", 1, 0, 9, 0, 0, 1, 0)
    monkeypatch.setattr(command, "count_faults", lambda *arguments: changed)
    assert command.main(["faults", "--quiet"]) == 1
    assert "changed suggestions" in capsys.readouterr().out


def test_results_of_a_journal_are_not_written_over_by_another_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_journal = (*OPTIMIZE, "--out", "o", "--journal", "y.journal")
    assert main([*with_journal, "--rounds", "4"]) == 0
    assert main(["resume", "--trust", "y.journal", "--rounds", "6", "--quiet"]) == 0
    before = Path("o/result.json").read_bytes()
    capsys.readouterr()
    for other in (["--rounds", "3"], ["--rounds", "3", "--journal", "z.journal"]):
        assert main([*OPTIMIZE, "--out", "o", *other]) == 2
        message = capsys.readouterr().err
        assert "resume" in message
        assert "y.journal" in message
        assert "--overwrite" in message
    assert Path("o/result.json").read_bytes() == before
    # a run that has all its rounds says how to go on
    assert main(["resume", "--trust", "y.journal", "--quiet"]) == 0
    assert "--rounds N" in capsys.readouterr().err
    assert main([*OPTIMIZE, "--out", "o", "--rounds", "3", "--overwrite"]) == 0
    assert len(list(Journal.read("y.journal").records())) == 12  # asked and told, six rounds
