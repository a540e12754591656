"""`python tutorials/papers reproduce`: exit codes and words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from papers.commands import main
from papers.registry import TABLES, TableEntry
from papers.reproduction import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    entry = TableEntry(lambda num_trials, seed: [{"trials": num_trials}], "a table alone")
    monkeypatch.setitem(TABLES, "ringing", entry)
    return tmp_path


COMMAND = ("reproduce", "--only", "ringing", "--quiet")


def test_the_default_is_a_quick_look_and_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(COMMAND) == 0
    output = capsys.readouterr().out
    assert "neither --quick nor --full: a quick look" in output
    assert "[1 of 1] ringing" in output
    assert "the page: runs/reproduce-quick/reproduction.html" in output
    assert (folder / "runs/reproduce-quick/verdicts.csv").exists()
    assert (folder / "runs/reproduce-quick/experiments/ringing/report.txt").read_text()


def test_full_and_quick_do_not_share_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, "--out", "out"]) == 0
    assert main([*COMMAND, "--out", "out", "--full"]) == 2
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert "choose another folder with --out" in errors


@pytest.mark.parametrize(
    ("problem", "code", "words"),
    [
        (RuntimeError("broken"), 1, "ringing failed: RuntimeError: broken"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues"),
    ],
    ids=["failure", "interruption"],
)
def test_exit_codes(
    problem: BaseException,
    code: int,
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: Any) -> Any:
        raise problem

    monkeypatch.setattr(run, "run_experiment", fail)
    assert main([*COMMAND, "--quick", "--out", "out"]) == code
    assert words in capsys.readouterr().out
    assert (folder / "out/reproduction.html").read_text().endswith("</html>\n")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--only", "fly"], "only is 'fly'"),
        (["--light", "nowhere.npz"], "light is nowhere.npz, which is not a file"),
        (["--quick", "--full"], "not allowed with argument"),
        (["--seed", "-1"], "seed is -1"),
    ],
)
def test_bad_arguments_are_one_line(
    arguments: list[str], expected: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["reproduce", *arguments])
    except SystemExit as stop:
        code = stop.code
    errors = capsys.readouterr().err
    assert code == 2
    assert len(errors.splitlines()) == 1
    assert expected in errors
    assert not (folder / "runs").exists()
