"""Functions that crash, from the command line: the next command goes on, or the same one does."""

from __future__ import annotations

import csv
import json
import multiprocessing
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits.cli import main
from botorch_bandits.cli.session import OutputFolder
from botorch_bandits.problems.tuning import TuningProblem
from botorch_bandits.stopping import EvaluationFailedWarning

FUNCTION = """
import math
import os
import signal
from pathlib import Path

def call():
    with open("calls.txt", "a") as calls:
        calls.write("x")
    return len(Path("calls.txt").read_text())

def crashing_above(x):
    call()
    if x[0] > 0.5:
        raise MemoryError("too large")
    return x[0]

def nan_above(x):
    return math.nan if x[0] > 0.5 else x[0]

def nan_always(x):
    return math.nan

def lucky(x):
    return 1.0 if call() == 2 else float(call() % 4 == 0) / 2

def broken(x):
    raise KeyError("typo")

def crashing_once(x):
    if call() == 2:
        raise OSError("no network")
    return x[0]

def exiting_above(x):
    call()
    if x[0] > 0.5:
        raise SystemExit(5)
    return x[0]

def killing(x):
    call()
    if x[0] > 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
    return x[0]

def interrupted(x):
    if call() < 4:
        raise KeyboardInterrupt
    return x[0]

def named_exit(values):
    if values["a"] > 0.5:
        raise SystemExit(5)
    return values["a"]

def flat(x):
    return 1.0 if call() == 4 else 0.0

def stopping(x):
    from botorch_bandits import StopRun
    if call() == 3:
        raise StopRun("enough")
    return x[0]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "failing_module.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_module", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def command(name: str, *more: str, method: str = "random") -> list[str]:
    arguments = ["optimize", f"failing_module:{name}", "--bounds", "0:1", "--method", method]
    return [*arguments, "--rounds", "8", "--initial", "2", "--out", "run", "--quiet", *more]


def result_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
    return found


def states_of(folder: Path) -> list[str]:
    with (folder / "run" / "history.csv").open() as file:
        return [row["state"] for row in csv.DictReader(file)]


@pytest.mark.parametrize("more", [(), ("--journal", "run.journal")], ids=["folder", "journal"])
def test_a_run_whose_function_crashed_goes_on_with_the_next_command(
    folder: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    """It used to evaluate the same point again, and crash there forever."""
    arguments = command("crashing_above", *more)
    assert main(arguments) == 1
    note = capsys.readouterr().err
    assert "MemoryError: too large\n" in note
    assert re.search(r"Query \d at \[0\.[5-9]\d*\] failed and stays pending", note)
    assert "--on-error skip" in note
    counts = [(states_of(folder).count("failed"), len(states_of(folder)))]
    assert states_of(folder)[-1] == "pending"
    capsys.readouterr()
    for _ in range(4):
        if "pending" not in states_of(folder):
            break
        assert main(arguments) in (0, 1)
        errors = capsys.readouterr().err
        assert re.search(r"warning: query \d at .* failed again: MemoryError: too large\.", errors)
        counts.append((states_of(folder).count("failed"), len(states_of(folder))))
    assert [number for number, _ in counts] == list(range(len(counts)))
    assert counts[-1][1] == 8 or counts[-1][1] > counts[0][1]


def plays_until_done(arguments: list[str]) -> list[int | None]:
    """Run a command until it ends by itself; return the exit codes."""
    codes: list[int | None] = []
    while (codes or [None])[-1] != 0:
        assert len(codes) < 20, "it goes on forever"
        try:
            codes.append(main(arguments))
        except SystemExit as ending:
            codes.append(ending.code)  # type: ignore[arg-type]
    return codes


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is what takes the time of short runs."""
    monkeypatch.setattr(OutputFolder, "write_pictures", lambda *_, **__: None)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("kind", ["folder", "journal", "delays", "names"])
def test_a_point_at_which_processes_end_is_given_up(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    more = {"journal": ["--journal", "run.journal"], "delays": ["--delay", "constant:2"]}
    arguments = command("exiting_above", *more.get(kind, []))
    if kind == "names":
        arguments[1] = "failing_module:named_exit"
        bounds = arguments.index("--bounds")
        arguments[bounds : bounds + 2] = ["--param", "a=float:0:1", "--param", "b=choice:u,v"]
    codes = plays_until_done(arguments)
    states = states_of(folder)
    number = states.count("failed")
    assert number > 0
    assert codes == [5, 5] * number + [0]
    assert states.count("told") + states.count("pending") == 8 - number
    if kind != "delays":
        assert "pending" not in states
    with (folder / "run" / "history.csv").open() as file:
        reasons = {row["reason"] for row in csv.DictReader(file) if row["state"] == "failed"}
    assert reasons == {"the process that evaluated it ended 2 times"}
    warned = capsys.readouterr().err.count("is recorded as failed, and the run goes on")
    assert warned == number
    assert not (folder / "run" / "evaluating.json").exists()


@pytest.mark.usefixtures("no_pictures")
def test_a_function_that_kills_the_process_is_not_called_there_for_ever(folder: Path) -> None:
    arguments = command("killing", "--rounds", "3")
    for _ in range(2):
        process = multiprocessing.get_context("fork").Process(target=main, args=(arguments,))
        process.start()
        process.join(120)
        assert process.exitcode == -9
    num_calls = len((folder / "calls.txt").read_text())
    assert main(arguments) == 0
    assert states_of(folder) == ["told", "told", "failed"]
    assert len((folder / "calls.txt").read_text()) == num_calls == 4


@pytest.mark.usefixtures("no_pictures")
def test_an_interrupt_says_nothing_against_a_point(folder: Path) -> None:
    arguments = command("interrupted", "--rounds", "3")
    assert [main(arguments) for _ in range(4)] == [130, 130, 130, 0]
    assert states_of(folder) == ["told"] * 3


@pytest.mark.usefixtures("no_pictures")
def test_a_run_that_begins_afresh_gives_every_point_another_chance(folder: Path) -> None:
    arguments = command("exiting_above", "--rounds", "3")
    for _ in range(2):
        with pytest.raises(SystemExit):
            main(arguments)
    assert json.loads((folder / "run" / "evaluating.json").read_text())["3"]["times"] == 2
    with pytest.raises(SystemExit):
        main([*arguments, "--overwrite"])
    assert json.loads((folder / "run" / "evaluating.json").read_text())["3"]["times"] == 1
    (folder / "run" / "evaluating.json").write_text("{")  # damaged, it says nothing
    with pytest.raises(SystemExit):
        main(arguments)


@pytest.mark.usefixtures("no_pictures")
def test_compare_skips_failures(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def fails_at_times(problem: TuningProblem, **hyperparameters: float) -> float:
        calls.append(hyperparameters)
        if len(calls) == 3:
            raise OSError("no space left")
        return 0.5

    monkeypatch.setattr(TuningProblem, "accuracy", fails_at_times)
    arguments = ["compare", "--dataset", "iris", "--methods", "random", "--seeds", "2"]
    arguments += ["--rounds", "3", "--initial", "1", "--out", "compared", "--quiet"]
    assert main(arguments) == 2
    assert "error: no space left" in capsys.readouterr().err
    calls.clear()
    with pytest.warns(EvaluationFailedWarning, match="OSError: no space left"):
        assert main([*arguments, "--on-error", "skip"]) == 0
    assert "1 of 6 evaluations failed" in capsys.readouterr().out
    assert main([*arguments, "--on-error", "ignore"]) == 2


def test_failures_that_are_skipped_are_counted_with_their_reasons(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("crashing_above", "--on-error", "skip")) == 0
    output, errors = capsys.readouterr()
    result = result_of(folder)
    number = states_of(folder).count("failed")
    assert result["num_failed"] == number > 0
    assert states_of(folder).count("told") == 8 - number
    assert f"{number} evaluation" in output
    # a failure is a round, and the run is over
    assert f"8 of 8 ({number} failed)" in output
    assert re.search(r"^  more rounds .*--rounds 16$", output, re.MULTILINE)
    assert errors.count("warning: query ") == number
    assert len(errors.splitlines()) == 2 * number  # a line for each, and one before it
    with (folder / "run" / "history.csv").open() as file:
        reasons = {row["reason"] for row in csv.DictReader(file) if row["state"] == "failed"}
    assert reasons == {"MemoryError: too large"}
    assert result["best_reward"] <= 0.5


def test_what_is_no_number_is_skipped_likewise(folder: Path) -> None:
    assert main(command("nan_above", "--on-error", "skip")) == 0
    assert result_of(folder)["num_failed"] > 0
    assert main(command("nan_above", "--on-error", "raise", "--overwrite")) == 1


@pytest.mark.usefixtures("no_pictures")
def test_a_run_without_any_reward_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A metric that is always NaN ended with the exit code of success."""
    arguments = command("nan_always", "--on-error", "skip")
    assert main(arguments) == 1
    output, errors = capsys.readouterr()
    expected = "error: all 8 evaluations failed, so there is no result. Correct the function"
    assert errors.splitlines()[-1].startswith(expected)
    assert "with --overwrite, because a run" in errors
    assert "8 of 8 (8 failed)" in output
    assert re.search(r"^  start over +botorch-bandits .*--overwrite$", output, re.MULTILINE)
    assert "more rounds" not in output
    assert main(arguments) == 1  # nothing is left to play
    assert main([*arguments, "--journal", "a.journal", "--rounds", "1", "--out", "other"]) == 1
    assert "error: the evaluation failed" in (errors := capsys.readouterr().err)
    assert "with --overwrite and another --journal, because" in errors


@pytest.mark.usefixtures("no_pictures")
def test_the_point_in_python_is_the_recommended_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was the one with the best reward, which the summary does not recommend."""
    assert main(command("lucky", method="gp-ucb")) == 0
    result = result_of(folder)
    assert result["recommended"]["parameters"] != result["best_parameters"]
    point = list(result["recommended"]["parameters"].values())
    assert f"in Python {point}" in re.sub(" +", " ", capsys.readouterr().out)


def test_a_retry_is_no_failure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("crashing_once", "--on-error", "retry:1")) == 0
    assert states_of(folder) == ["told"] * 8
    assert (folder / "calls.txt").read_text() == "x" * 9
    assert "failed" not in capsys.readouterr().out


def test_a_function_that_always_fails_ends_the_run_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("broken", "--on-error", "skip", "--rounds", "40")) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("error: 10 evaluations in a row failed; the last one was query 9 at")
    assert "KeyError: 'typo'. They are on record as failed. Repair the function" in last
    assert states_of(folder) == ["failed"] * 10


def test_a_run_ends_without_gain_and_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = command("flat", "--stop-after-no-gain", "3", "--rounds", "20")
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert result_of(folder)["stopped"] == "no better reward in 3 rounds"
    assert re.search(r"^stopped +no better reward in 3 rounds$", output, re.MULTILINE)
    assert re.search(r"^  go on +botorch-bandits .*--stop-after-no-gain 6$", output, re.MULTILINE)
    assert len(states_of(folder)) == 7
    assert main(arguments) == 0  # nothing to do
    assert len(states_of(folder)) == 7
    assert main([*arguments, "--stop-after-no-gain", "5"]) == 0
    assert len(states_of(folder)) == 9


def test_the_function_may_end_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("stopping")) == 0
    assert result_of(folder)["stopped"] == "enough"
    assert re.search(r"stopped +enough\n", capsys.readouterr().out)
    assert states_of(folder) == ["told", "told", "pending"]


def test_resume_takes_the_options_of_the_end(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = ("--journal", "run.journal")
    assert main(command("crashing_above", *journal, "--stop-after-no-gain", "7")) == 1
    capsys.readouterr()
    assert main(["show", "run.journal"]) == 0
    assert "go on    botorch-bandits resume run.journal --rounds 8\n" in capsys.readouterr().out
    more = ("--on-error", "skip", "--stop-after-no-gain", "20")
    assert main(["resume", "--trust", "run.journal", *more, "--quiet"]) == 0
    assert len(states_of(folder)) == 8
    assert result_of(folder)["num_failed"] > 0
    capsys.readouterr()
    assert main(["show", "run.journal"]) == 0
    assert (
        "more rounds  botorch-bandits resume run.journal --rounds 16\n" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--on-error", "ignore"), "--on-error is 'ignore'; it must be 'raise', 'skip' or"),
        (("--stop-after-no-gain", "0"), "--stop-after-no-gain is 0; it must be at least 1"),
    ],
)
def test_bad_options_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], expected: str
) -> None:
    assert main(command("flat", *more)) == 2
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert expected in errors
    assert not (folder / "run").exists()
