"""``optimize``: functions of users, their failures, interrupts and workers."""

import json
import sys
from pathlib import Path

import pytest

from botorch_bandits.cli import INTERRUPTED, main

SOURCE = """
import os
from pathlib import Path

def reward(p):
    with open("calls", "a") as file:
        file.write("x")
    return -(p["x"] - 0.3) ** 2

def cost(p):
    return 5.0 - reward(p)

def _call():
    reward({"x": 0.0})
    return os.path.getsize("calls")

def interrupted(p):
    if _call() == 3:
        raise KeyboardInterrupt
    return p["x"]

def broken(p):
    if _call() == 3:
        raise RuntimeError("no coolant")
    return p["x"]

def never(p):
    raise RuntimeError("no coolant")

def in_process(p):
    return os.getpid() + 0.0

text = "no function"
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SOURCE, encoding="utf-8")
    yield
    sys.modules.pop("mine", None)
    sys.path.remove(str(tmp_path)) if str(tmp_path) in sys.path else None


def typed(name, *more):
    shared = ["--param", "x=float:0:1", "--rounds", "6", "--quiet", "--out", "run"]
    return ["optimize", f"mine:{name}", *shared, *more]


def result(folder="run"):
    return json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))


def test_minimizing_a_cost_is_maximizing_the_reward(capsys):
    assert main(typed("cost", "--minimize", "--rounds", "7")) == 0
    text = capsys.readouterr().out
    assert "best cost" in text
    assert "best reward" not in text
    assert main(typed("reward", "--rounds", "7", "--out", "high")) == 0
    low, high = result(), result("high")
    assert low["best_reward"] == pytest.approx(5.0 - high["best_reward"])
    assert low["best_parameters"]["x"] == pytest.approx(high["best_parameters"]["x"], abs=1e-3)
    assert main(typed("cost")) == 2  # it is continued as what it is
    assert "minimize" in capsys.readouterr().err


def test_parameters_of_several_kinds_arrive_by_name():
    Path("mine.py").write_text(
        "def score(p):\n    assert 1e-3 <= p['C'] <= 10 and p['depth'] in (2, 3)\n"
        "    return float(p['kind'] == 'b')\n",
        encoding="utf-8",
    )
    more = ["--param", "C=log:1e-3:10", "--param", "depth=int:2:3", "--param", "kind=choice:a,b"]
    rest = ["--rounds", "4", "--quiet", "--method", "random"]
    assert main(["optimize", "mine:score", *more, *rest]) == 0
    assert result("runs/optimize-mine-score-random-0")["best_parameters"]["kind"] == "b"


def test_an_interrupted_command_goes_on_where_it_stopped(capsys):
    command = typed("interrupted", "--method", "random")
    assert main(command) == INTERRUPTED == 130
    captured = capsys.readouterr()
    assert "the same command continues" in captured.err
    assert "interrupted" in captured.out
    assert "go on" in captured.out
    assert (result()["num_arrived"], result()["num_pending"]) == (2, 1)
    assert main(command) == 0
    assert (result()["num_arrived"], result()["num_pending"]) == (6, 0)
    assert Path("calls").stat().st_size == 7  # the pending query was evaluated again


def test_a_function_that_raises_ends_the_run_and_the_same_command_goes_on(capsys):
    command = typed("broken", "--method", "random")
    assert main(command) == 1
    said = capsys.readouterr().err
    assert "no coolant" in said
    assert "mine.py" in said
    assert result()["num_arrived"] == 2
    assert main(command) == 0
    assert result()["num_arrived"] == 6


@pytest.mark.filterwarnings("ignore:.*It is recorded as failed:RuntimeWarning")
def test_failures_are_recorded_if_wanted(capsys):
    assert main(typed("broken", "--method", "random", "--catch")) == 0
    assert (result()["num_arrived"], result()["num_failed"]) == (5, 1)
    assert "6 of 6 (1 failed)" in capsys.readouterr().out
    assert main(["show", "run"]) == 0
    assert "round 3 failed" in capsys.readouterr().out
    assert main(typed("never", "--catch", "--out", "none")) == 1
    assert result("none")["best_reward"] is None


@pytest.mark.slow
def test_workers_evaluate_in_processes_of_their_own():
    import os

    assert main(typed("in_process", "--method", "random", "--workers", "2")) == 0
    assert result()["num_arrived"] == 6
    assert result()["best_reward"] != os.getpid()


@pytest.mark.parametrize(
    ("function", "param", "named"),
    [
        ("mine", "x=float:0:1", ["'mine'", "MODULE:FUNCTION"]),
        ("mine.py:reward", "x=float:0:1", ["mine.py", "without .py"]),
        ("mine:text", "x=float:0:1", ["'mine'", "'text'"]),
        ("mine:reward", "x=float:1:0", ["--param", "x"]),
        ("mine:reward", "x", ["--param", "x"]),
    ],
)
def test_wrong_functions_and_parameters_are_refused(function, param, named, capsys):
    assert main(["optimize", function, "--param", param, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert [word for word in named if word not in said] == []
    assert not Path("runs").exists()


def test_a_module_that_raises_is_named_with_its_error(capsys):
    Path("mine.py").write_text("1 / 0\n", encoding="utf-8")
    assert main(typed("reward")) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err
