"""Delayed and parallel evaluations from the command line."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from botorch_bandits.cli import main
from botorch_bandits.problems.tuning import TuningProblem, load_dataset

from .processes import finish, fork_workers, start

FUNCTION = """
import os, time

def reward(x):
    with open("calls.txt", "a") as calls:
        calls.write(f"{os.getpid()} {os.environ.get('OMP_NUM_THREADS')} {float(x[0])!r}\\n")
        calls.flush()
        end = calls.tell()  # other processes may have written after that
    calls = open("calls.txt", "rb").read(end).count(b"\\n")
    if calls >= int(os.environ.get("HANG_FROM_CALL", "1000")):
        time.sleep(600)
    return 1 - (x[0] - 0.3) ** 2

def slow_on_the_left(x):
    time.sleep(0.6 if x[0] < 0.5 else 0.05)
    return x[0]

def raising_above(x):
    if x[0] > 0.9:
        raise RuntimeError("the machine\\nis on fire")
    return reward(x)

def nan_above(x):
    return float("nan") if x[0] > 0.5 else reward(x)

def dying(x):
    os._exit(3)
"""

OPTIMIZE = ("optimize", "waiting_module:reward", "--bounds", "0:1", "--initial", "3", "--quiet")
DELAYED = (*OPTIMIZE, "--rounds", "12", "--delay", "poisson:3")
CENSORED = ("--feedback", "censored", "--minimum", "0", "--outcome-bound", "1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "waiting_module.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # another test's folder may have had a module of this name
    monkeypatch.delitem(sys.modules, "waiting_module", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that are forked are there at once; those that are spawned import for seconds."""
    fork_workers(monkeypatch)


def queries_in(folder: Path) -> list[dict[str, Any]]:
    queries: list[dict[str, Any]] = json.loads((folder / "history.json").read_text())["queries"]
    return queries


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def num_calls() -> int:
    path = Path("calls.txt")
    return len(path.read_text().splitlines()) if path.exists() else 0


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.usefixtures("rendered")
def test_delays_are_shown_counted_and_drawn(folder: Path) -> None:
    arguments = [name for name in DELAYED if name != "--quiet"]
    shown = finish(*arguments, *CENSORED, "--max-delay", "3", "--out", "run")
    assert re.search(r"best=[\d.]+, pending=\d", shown)
    queries = queries_in(folder / "run")
    result = json.loads((folder / "run" / "result.json").read_text())
    assert result["num_rounds"] == len(queries) == 12
    untold = [q for q in queries if q["reward"] is None]
    late = [q for q in queries if q["reward"] is not None and q["arrived_round"] - q["id"] > 3]
    lost = [q for q in untold if 13 - q["round_number"] >= 3]
    assert late, "the test is about late outcomes, too"
    assert result["num_arrived"] == 12 - len(untold)
    assert result["num_late"] == len(late)
    assert result["num_lost"] == len(late) + len(lost)
    assert result["num_pending"] == len(untold) - len(lost)
    line = (
        f"{result['num_arrived']} arrived ({len(late)} late), {result['num_pending']} pending, "
        f"{result['num_lost']} lost"
    )
    assert line in shown
    assert "LateOutcomeWarning" not in shown
    assert result["settings"]["delay"] == "poisson:3"
    assert result["settings"]["feedback"] == "censored"
    with Image.open(folder / "run" / "run.png") as picture:
        assert picture.size[0] > 500


@pytest.mark.parametrize("feedback", [(), (*CENSORED, "--max-delay", "3")], ids=["", "censored"])
def test_stopped_delayed_runs_continue_as_if_nothing_had_happened(
    folder: Path, feedback: tuple[str, ...]
) -> None:
    for name, stop in (("int", signal.SIGINT), ("kill", signal.SIGKILL)):
        (folder / "calls.txt").unlink(missing_ok=True)
        process = start(*DELAYED, *feedback, "--out", name, HANG_FROM_CALL="8")
        wait_until(lambda: num_calls() == 8)
        process.send_signal(stop)
        process.communicate(timeout=120)
        queries = queries_in(folder / name)
        assert len(queries) == 8, "the query that hangs is on file"
        assert 1 < sum(query["reward"] is None for query in queries) < 8
        finish(*DELAYED, *feedback, "--out", name)
    finish(*DELAYED, *feedback, "--out", "whole")

    def told(name: str) -> list[object]:
        names = ("x", "reward", "arrived_round", "arrival_order")
        return [[query[key] for key in names] for query in queries_in(folder / name)]

    assert told("int") == told("kill") == told("whole")


def test_longer_delayed_runs_and_other_settings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [*OPTIMIZE, "--method", "random", "--delay", "constant:3", "--out", "run"]
    assert main([*short, "--rounds", "5"]) == 0
    assert [q["id"] for q in queries_in(folder / "run") if q["reward"] is None] == [3, 4]
    assert main([*short, "--rounds", "8"]) == 0
    assert main([*short[:-1], "whole", "--rounds", "8"]) == 0
    rewards = [[q["reward"] for q in queries_in(folder / name)] for name in ("run", "whole")]
    assert rewards[0] == rewards[1]
    capsys.readouterr()
    assert main([*short, "--rounds", "8", "--delay", "constant:2"]) == 2
    assert "holds a run with delay='constant:3', not 'constant:2'" in capsys.readouterr().err
    assert main([*short, "--rounds", "8", "--feedback", "ignored"]) == 2
    assert "holds a run with feedback='hallucinated', not 'ignored'" in capsys.readouterr().err


def test_a_reward_below_the_minimum_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*DELAYED, "--feedback", "censored", "--minimum", "1.5", "--outcome-bound", "1"]
    assert main([*arguments, "--out", "run"]) == 1
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert "below --minimum 1.5 by more than noise explains. Start over" in errors
    assert "a larger --tolerance" in errors


@pytest.mark.parametrize("method", ["best", "igp-ucb", "gp-ts"])
def test_noise_below_the_minimum_is_told_once_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    arguments = [*DELAYED, *CENSORED[:2], "--minimum", "0.97", "--method", method, "--out", "run"]
    assert main([*arguments, "--tolerance", "0.5"]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line)
    assert line.startswith("warning: the reward 0.")
    assert "below minimum=0.97, by no more than noise explains" in line
    result = json.loads((folder / "run" / "result.json").read_text())
    assert (result["settings"]["tolerance"], result["settings"]["outcome_bound"]) == (0.5, None)
    rewards = [query["reward"] for query in queries_in(folder / "run")]
    assert sum(reward is not None and reward < 0.97 for reward in rewards) > 1


def test_a_censored_run_of_an_earlier_version_keeps_its_bound(folder: Path) -> None:
    """There the bound of ``tune`` was 1, and bounds on norm and noise were 1 and 0.1."""
    arguments = ["tune", "--dataset", "iris", "--folds", "3", "--quiet", "--out", "run"]
    arguments += ["--initial", "2", "--delay", "constant:2", "--feedback", "censored"]
    arguments += ["--method", "igp-ucb"]
    bounds = ["--rkhs-bound", "1", "--noise-bound", "0.1", "--outcome-bound", "1"]
    assert main([*arguments, *bounds, "--rounds", "4"]) == 0
    assert main([*arguments, "--rounds", "5"]) == 0
    settings = json.loads((folder / "run" / "result.json").read_text())["settings"]
    names = ("rkhs_bound", "noise_bound", "outcome_bound")
    assert [settings[name] for name in names] == [1.0, 0.1, 1.0]


DELAY = ["--delay", "poisson:2"]
FILLED = ["--feedback", "censored", "--outcome-bound", "1", "--fill", "soft"]
FUNCTION_ARGUMENTS = ["optimize", "waiting_module:reward", "--bounds", "0:1"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tune", "--delay", "soon"], "delay is 'soon'; it must be constant:ROUNDS"),
        (["tune", *DELAY, "--max-delay", "3"], "--max-delay is 3, but it goes with --feedback"),
        (["tune", *DELAY, "--minimum", "0"], "--minimum is 0.0, but it goes with --feedback"),
        (["tune", "--max-delay", "3"], "--max-delay is 3, but it goes with --feedback censored"),
        (["tune", "--feedback", "ignored"], "Add one of the two, or leave --feedback out"),
        (["tune", "--feedback", "guessed", *DELAY], "invalid choice: 'guessed'"),
        (["tune", "--workers", "0"], "--workers is 0"),
        (["tune", "--workers", "2", *DELAY], "--workers is 2 and --delay is 'poisson:2'"),
        (
            ["tune", *DELAY, "--feedback", "censored", "--method", "ei"],
            "has no width for the acquisition LogExpectedImprovement",
        ),
        (
            ["tune", *DELAY, "--feedback", "censored", "--max-delay", "0"],
            "max_delay is 0",
        ),
        (
            [*FUNCTION_ARGUMENTS, *DELAY, *CENSORED[:4], "--method", "gp-ts", "--rkhs-bound", "2"],
            "--feedback censored needs --outcome-bound with --rkhs-bound",
        ),
        (["tune", *DELAY, "--tolerance", "1"], "--tolerance is 1.0, but it goes with --feedback"),
        (["tune", *DELAY, "--fill", "soft"], "--fill is soft, but it goes with --feedback"),
        (
            ["tune", *DELAY, "--feedback", "censored", "--fill", "middle"],
            "fill='middle' needs outcome_bound=",
        ),
        (
            ["tune", *DELAY, *FILLED, "--method", "igp-ucb"],
            "in the units of outcomes, but ImprovedUpperConfidenceBound has units='prior'",
        ),
        (
            ["tune", *DELAY, *FILLED, "--delay-distribution", "0.5", "0.4"],
            "delay_distribution sums to 0.9, not 1",
        ),
        (
            [*FUNCTION_ARGUMENTS, *DELAY, "--feedback", "censored"],
            "--feedback censored needs --minimum",
        ),
    ],
)
def test_options_that_contradict_each_other_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as stop:
        code = stop.code
    errors = capsys.readouterr().err
    assert code == 2
    assert len(errors.splitlines()) == 1
    assert expected in errors
    assert not (folder / "runs").exists()


def test_tune_with_censored_feedback_has_defaults(folder: Path) -> None:
    arguments = ["tune", "--dataset", "iris", "--folds", "3", "--rounds", "8", "--quiet"]
    arguments += ["--initial", "2", "--delay", "constant:3", "--feedback", "censored"]
    assert main([*arguments, "--max-delay", "2", "--out", "run"]) == 0
    settings = json.loads((folder / "run" / "result.json").read_text())["settings"]
    assert settings["minimum"] == 0.0
    assert settings["outcome_bound"] is settings["tolerance"] is None
    assert settings["max_delay"] == 2


def test_a_fill_is_kept_by_a_run_that_goes_on(folder: Path) -> None:
    arguments = ["tune", "--dataset", "iris", "--folds", "3", "--quiet", "--initial", "2"]
    arguments += ["--delay", "constant:3", "--journal", "run.journal", "--out", "run"]
    filled = [*FILLED, "--max-delay", "5", "--delay-distribution", "0", "0", "0.25", "0.75"]
    assert main([*arguments, *filled, "--rounds", "6"]) == 0
    assert main([*arguments, "--feedback", "censored", "--rounds", "8"]) == 0
    settings = json.loads((folder / "run" / "result.json").read_text())["settings"]
    assert settings["fill"] == "soft"
    assert settings["delay_distribution"] == [0.0, 0.0, 0.25, 0.75]
    plain = [*arguments[:-3], "plain.journal", "--out", "plain"]
    assert main([*plain, "--feedback", "censored", "--rounds", "4"]) == 0
    settings = json.loads((folder / "plain" / "result.json").read_text())["settings"]
    assert settings.get("fill") is settings.get("delay_distribution") is None


def test_a_tuning_problem_can_be_sent_to_another_process() -> None:
    problem = TuningProblem("svm", *load_dataset("iris"), num_folds=3, fold_seed=4)
    sent = pickle.loads(pickle.dumps(problem))
    x = torch.tensor([0.5, -2.0], dtype=torch.float64)
    assert sent(x) == problem(x)


PARALLEL = (*OPTIMIZE, "--workers", "2", "--method", "random")


@pytest.mark.usefixtures("forked_workers")
def test_workers_evaluate_at_once_and_tell_in_order_of_arrival(folder: Path) -> None:
    arguments = [name for name in PARALLEL if name != "--quiet"]
    arguments[1] = "waiting_module:slow_on_the_left"
    shown = finish(*arguments, "--rounds", "8", "--out", "run")
    assert "pending=2" in shown
    assert "8 arrived, 0 pending" in shown
    queries = queries_in(folder / "run")
    assert all(query["reward"] == query["x"][0] for query in queries)
    by_arrival = sorted(queries, key=lambda query: query["arrival_order"])
    assert [query["id"] for query in by_arrival] != list(range(8))
    times = [query["arrived_at"] for query in by_arrival]
    assert times == sorted(times)
    for query in queries:
        others = [
            q for q in queries if q["id"] < query["id"] and q["arrived_at"] > query["asked_at"]
        ]
        assert len(others) < 2, "no more than two are pending"
    assert (folder / "run" / "run.png").exists()


@pytest.mark.usefixtures("forked_workers")  # threads of those that are spawned: see below
def test_workers_have_one_thread_and_do_not_disturb_the_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    arguments = [*OPTIMIZE, "--workers", "2", "--rounds", "7", "--out", "run"]
    assert main(arguments) == 0
    assert os.environ["OMP_NUM_THREADS"] == "3"
    calls = [line.split() for line in (folder / "calls.txt").read_text().splitlines()]
    assert {threads for _, threads, _ in calls} == {"1"}
    assert str(os.getpid()) not in {pid for pid, _, _ in calls}
    queries = queries_in(folder / "run")
    assert [q["origin"] for q in queries] == ["initial"] * 3 + ["acquisition"] * 4
    assert sorted(float(x) for _, _, x in calls) == sorted(q["x"][0] for q in queries)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_workers_end_and_the_same_command_continues(
    folder: Path, stop: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stop is not signal.SIGINT:  # a terminal's interrupt may hit workers while they import
        fork_workers(monkeypatch)
    environment = {"HANG_FROM_CALL": "3", "OMP_NUM_THREADS": "3"}
    process = start(*PARALLEL, "--rounds", "6", "--out", "run", **environment)
    wait_until(lambda: num_calls() >= 4)
    if stop is signal.SIGINT:
        os.killpg(process.pid, stop)  # as a terminal does: to the workers, too
    else:
        process.send_signal(stop)
    output, errors = process.communicate(timeout=60)
    lines = (folder / "calls.txt").read_text().splitlines()
    workers = {int(line.split()[0]) for line in lines}
    assert {line.split()[1] for line in lines} == {"1"}, "each worker has one thread"
    wait_until(lambda: not any(is_running(pid) for pid in workers))
    if stop is not signal.SIGKILL:
        assert process.returncode == 130
        assert "interrupted" in output
        assert errors == ""
    before = queries_in(folder / "run")
    assert [query["reward"] is None for query in before].count(True) == 2
    fork_workers(monkeypatch)  # nothing interrupts what follows
    finish(*PARALLEL, "--rounds", "6", "--out", "run")
    queries = queries_in(folder / "run")
    assert len(queries) == 6
    assert all(query["reward"] is not None for query in queries)
    # what was on its way is evaluated again, and nothing else twice
    assert [query["x"] for query in queries[: len(before)]] == [query["x"] for query in before]
    again = (folder / "calls.txt").read_text().splitlines()[len(lines) :]
    known = [query["x"][0] for query in before if query["reward"] is not None]
    rest = [query["x"][0] for query in queries if query["x"][0] not in known]
    assert sorted(float(line.split()[2]) for line in again) == sorted(rest)


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "raising_above",
            r": the machine\nis on fire\nQuery \d+ at \[0\.9\d*\] failed",
        ),
        ("dying", r"its worker died\. Query \d+ at \[0\.\d*\] failed and stays pending"),
    ],
)
def test_an_evaluation_that_fails_in_a_worker_ends_the_run(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, expected: str
) -> None:
    arguments = [*PARALLEL, "--rounds", "40", "--out", "run"]
    arguments[1] = f"waiting_module:{name}"
    assert main(arguments) == 1
    errors = capsys.readouterr().err
    assert re.search(expected, errors)
    if name == "raising_above":  # the traceback of the worker, from the function on
        assert errors.count('  File "') == 1
        assert "in raising_above" in errors
    else:
        assert len(errors.splitlines()) == 1
    queries = queries_in(folder / "run")
    told = [query for query in queries if query["reward"] is not None]
    assert len(queries) - 2 <= len(told) < len(queries)
    assert bool(told) == (name != "dying")


@pytest.mark.usefixtures("forked_workers")
def test_workers_go_on_where_failures_are_skipped(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*PARALLEL, "--rounds", "8", "--method", "random", "--out", "run"]
    arguments[1] = "waiting_module:nan_above"
    assert main([*arguments, "--on-error", "skip"]) == 0
    output, errors = capsys.readouterr()
    states = [query["state"] for query in queries_in(folder / "run")]
    number = states.count("failed")
    assert 0 < number == 8 - states.count("told")
    assert errors.count("failed: EvaluationError: the function returned nan: reward is") == number
    assert f"{number} evaluations (reasons: history.csv)" in output


@pytest.mark.usefixtures("forked_workers")  # sending the problem: see above
def test_tune_with_workers(folder: Path) -> None:
    arguments = ["tune", "--dataset", "iris", "--folds", "3", "--initial", "2", "--rounds", "5"]
    assert main([*arguments, "--workers", "2", "--quiet", "--out", "run"]) == 0
    problem = TuningProblem("svm", *load_dataset("iris"), num_folds=3)
    for query in queries_in(folder / "run"):
        x = torch.tensor(query["x"], dtype=torch.float64)
        assert query["reward"] == pytest.approx(problem(x), abs=1e-12)
    # the number of workers may change: the history is the truth
    longer = [*arguments[:-1], "6", "--quiet", "--out", "run"]
    assert main(longer) == 0
