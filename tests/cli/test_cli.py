"""The command line as a user meets it: in processes of its own."""

from __future__ import annotations

import csv
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from botorch_bandits.cli import main

from .processes import finish, start

FUNCTION = """
import math, os, time

def reward(x):
    with open("calls.txt", "a") as calls:
        calls.write("x\\n")
    calls = len(open("calls.txt").readlines())
    if calls == int(os.environ.get("HANG_IN_CALL", "0")):
        time.sleep(600)
    return -(x[0] - 0.3) ** 2 - (x[1] - 2) ** 2

def broken(x):
    return math.nan

def huge(x):
    return 1e60

def raising(x):
    raise RuntimeError("the machine is on fire")

def of_a_tensor(x):
    import torch
    assert x.dtype == torch.float64 and x.shape == (2,)
    first, second = x
    return torch.tensor(float(first) + round(x.tolist()[1], 3), dtype=torch.float32)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mymodule.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # another test's folder may have had a module of this name
    monkeypatch.delitem(sys.modules, "mymodule", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


OPTIMIZE = (
    *("optimize", "mymodule:reward", "--bounds", "0:1,0:4", "--integer", "1"),
    *("--initial", "3", "--out", "run"),
)


@pytest.mark.usefixtures("rendered")
def test_optimize_writes_everything(folder: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-m", "botorch_bandits", *OPTIMIZE, "--rounds", "8"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    output, errors = process.stdout, process.stderr
    assert process.returncode == 0, errors
    assert "best reward" in output
    assert "8/8" in errors  # the progress bar
    assert "best=" in errors

    result = json.loads((folder / "run" / "result.json").read_text())
    with (folder / "run" / "history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == result["num_rounds"] == 8
    rewards = [float(row["reward"]) for row in rows]
    assert result["best_reward"] == max(rewards)
    assert result["best_parameters"]["x1"] == 2.0
    assert {row["origin"] for row in rows[:3]} == {"initial"}
    assert all(math.isfinite(float(row["acquisition_value"])) for row in rows[3:])
    assert all(float(row["x1"]).is_integer() for row in rows)
    with Image.open(folder / "run" / "run.png") as picture:
        assert picture.size[0] > 500


def test_a_picture_is_named_only_if_it_was_drawn(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["optimize", "mymodule:reward", "--bounds", "0:1,0:4", "--method", "random"]
    command += ["--rounds", "2", "--quiet"]
    assert main([*command, "--out", "drawn"]) == 0
    assert "drawn (run.png is the picture)" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    assert main([*command, "--out", "plain"]) == 0
    output = capsys.readouterr().out
    assert "no picture: pip install" in output
    assert "run.png" not in output
    assert not (folder / "plain" / "run.png").exists()


def test_interrupted_and_killed_runs_continue_as_if_nothing_had_happened(folder: Path) -> None:
    for name, stop in (("int", signal.SIGINT), ("term", signal.SIGTERM), ("kill", signal.SIGKILL)):
        (folder / "calls.txt").unlink(missing_ok=True)
        process = start(*OPTIMIZE[:-1], name, "--rounds", "7", "--quiet", HANG_IN_CALL="5")
        history = folder / name / "history.json"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if history.exists() and len(json.loads(history.read_text())["queries"]) == 4:
                break
            time.sleep(0.05)
        time.sleep(0.5)  # into the call that hangs
        process.send_signal(stop)
        output, _ = process.communicate(timeout=120)
        told = [q for q in json.loads(history.read_text())["queries"] if q["reward"] is not None]
        assert len(told) == 4, "what was done is kept"
        if stop is not signal.SIGKILL:
            assert process.returncode == 130
            assert "interrupted" in output
            assert json.loads((folder / name / "result.json").read_text())["interrupted"]
        finish(*OPTIMIZE[:-1], name, "--rounds", "7", "--quiet")
    finish(*OPTIMIZE[:-1], "whole", "--rounds", "7", "--quiet")

    def points(name: str) -> list[object]:
        queries = json.loads((folder / name / "history.json").read_text())["queries"]
        return [(query["x"], query["reward"]) for query in queries]

    for name in ("int", "term", "kill"):
        assert points(name) == points("whole")


def test_longer_run_reuses_what_is_known(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPTIMIZE, "--rounds", "4", "--quiet"]) == 0
    assert main([*OPTIMIZE, "--rounds", "6", "--quiet"]) == 0
    assert "continuing run after 4 rounds" in capsys.readouterr().err
    assert len((folder / "calls.txt").read_text().splitlines()) == 6


def test_other_settings_never_overwrite(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPTIMIZE, "--rounds", "4", "--quiet"]) == 0
    before = (folder / "run" / "history.json").read_text()
    assert main([*OPTIMIZE, "--rounds", "4", "--quiet", "--seed", "1"]) == 2
    assert "holds a run with seed=0, not 1" in capsys.readouterr().err
    assert (folder / "run" / "history.json").read_text() == before
    assert main([*OPTIMIZE, "--rounds", "4", "--quiet", "--seed", "1", "--overwrite"]) == 0
    assert (folder / "run" / "history.json").read_text() != before


def test_the_function_is_given_the_tensor_that_run_gives(folder: Path) -> None:
    arguments = ["optimize", "mymodule:of_a_tensor", "--bounds", "0:1,0:4", "--rounds", "2"]
    assert main([*arguments, "--method", "random", "--out", "run", "--quiet"]) == 0
    queries = json.loads((folder / "run" / "history.json").read_text())["queries"]
    for query in queries:
        first, second = query["x"]
        assert query["reward"] == pytest.approx(first + second, abs=1e-3)


def test_bounds_may_begin_with_a_minus(folder: Path) -> None:
    arguments = ["optimize", "mymodule:reward", "--bounds", "-1:1,-4:4", "--rounds", "2"]
    assert main([*arguments, "--out", "run", "--quiet"]) == 0


@pytest.mark.usefixtures("rendered")
@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_nothing_is_written_through_links_in_a_prepared_folder(folder: Path) -> None:
    (folder / "run").mkdir()
    names = [".writable", "history.json", "history.csv", "result.json", "run.png"]
    for name in names:
        for link in (f".{name}.tmp", f".{name}.tmp.png"):
            (folder / name).write_text("of the user")
            (folder / "run" / link).symlink_to(folder / name)
    assert main([*OPTIMIZE, "--rounds", "2", "--quiet"]) == 0
    for name in names:
        assert (folder / name).read_bytes() == b"of the user"
    assert (folder / "run" / "history.csv").read_text().startswith("id,")


def test_damaged_or_impossible_output_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "history.json").write_text("[]")
    assert main([*OPTIMIZE, "--rounds", "2", "--quiet"]) == 2
    assert "history.json is damaged (it is not the history of a run)" in capsys.readouterr().err
    (folder / "file").write_text("")


@pytest.mark.parametrize(
    ("name", "returned", "reason"),
    [
        ("broken", "nan", "reward is nan"),
        ("huge", "1e+60", "its absolute value must be at most 1e+50"),
    ],
)
def test_bad_reward_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, returned: str, reason: str
) -> None:
    arguments = ["optimize", f"mymodule:{name}", "--bounds", "0:1", "--out", "run", "--quiet"]
    assert main(arguments) == 1
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert f"returned {returned} at [" in errors
    assert reason in errors


def test_an_error_in_the_function_is_the_users_to_see(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its traceback begins in the function; it was long, and stood below the summary."""
    arguments = ["optimize", "mymodule:raising", "--bounds", "0:1", "--out", "run", "--quiet"]
    assert main(arguments) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{folder / "mymodule.py"}", line ')
    assert sum(line.startswith("  File ") for line in lines) == 1
    assert any(line.startswith("RuntimeError: the machine") for line in lines)
    assert "--on-error skip" in lines[-1]
    queries = json.loads((folder / "run" / "history.json").read_text())["queries"]
    assert [query["reward"] for query in queries] == [None]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["tune", "--method", "magic"], "invalid choice: 'magic'"),
        (["tune", "--rounds", "0"], "--rounds is 0"),
        (["tune", "--rounds", "many"], "invalid int value: 'many'"),
        (["tune", "--method", "igp-ucb", "--delta", "1.5"], "delta is 1.5"),
        (["tune", "--method", "gp-ts", "--rkhs-bound", "-1"], "rkhs_bound is -1"),
        (["tune", "--rkhs-bound", "2"], "--rkhs-bound is 2, but best would not use it"),
        (["tune", "--objective", "earned", "--width", "3"], "--width is 3, but earned would not"),
        (["compare", "--methods", "best,gp-ucb", "--delta", "0.2"], "best and gp-ucb would not"),
        (["tune", "--objective", "best", "--method", "ei"], "give one of them"),
        (["tune", "--objective", "fast"], "invalid choice: 'fast'"),
        (["tune", "--data", "x.csv"], "--data and --target go together"),
        (["tune", "--data", "x.csv", "--target", "y"], "x.csv cannot be read"),
        (["tune", "--folds", "1"], "num_folds is 1"),
        (["tune", "--seed", "-3"], "seed is -3"),
        (["optimize", "mymodule:reward"], "needs --bounds or --param"),
        (["optimize", "mymodule:reward", "--bounds", "0-1"], "'0-1'; each part must be low:high"),
        (["optimize", "mymodule:reward", "--bounds", "1:0"], "[1.0, 0.0]"),
        (["optimize", "mymodule:reward", "--bounds", "0:1", "--integer", "4"], "dimension 4"),
        (["optimize", "mymodule", "--bounds", "0:1"], "must be MODULE:FUNCTION"),
        (["optimize", "nowhere:f", "--bounds", "0:1"], "'nowhere' cannot be imported"),
        (["optimize", "nowhere.py:f", "--bounds", "0:1"], "Leave out .py: nowhere:f."),
        (["optimize", "mymodule:f", "--bounds", "0:1"], "has no function 'f'"),
        (["optimize", "statistics:correlation", "--bounds", "0:1"], "called with one argument"),
        (["tune", "--budgt", "x"], "arguments: --budgt x; did you mean --budget? (see botorch-ba"),
        (["optimize", "m:f", "--maximize"], "--maximize (see botorch-bandits optimize --help)"),
        (["optimize", "m:f", "--budget=x"], "only tune has --budget; for a function of your own"),
        (["show", "x", "--rounds", "3"], "only tune, optimize, compare, resume have --rounds (see"),
        (["compare", "--methods", "igp-ucb,magic"], "method is 'magic'"),
        (["compare", "--seeds", "0"], "--seeds is 0"),
        (["fly"], "invalid choice: 'fly'"),
        ([], "required: command"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(
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


def test_tune_beats_the_default_on_a_csv_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rings around each other: the default SVM is poor, a narrower kernel is not."""
    lines = ["u,v,ring"]
    state = 1
    for i in range(160):
        state = state * 16807 % 2147483647  # any fixed sequence of angles will do
        angle, radius = state / 2147483647 * 6.283, 1.0 + i % 8
        lines.append(f"{radius * math.cos(angle)},{radius * math.sin(angle)},{'ab'[i % 2]}")
    (folder / "rings.csv").write_text("\n".join(lines) + "\n")
    arguments = ["tune", "--data", "rings.csv", "--target", "ring", "--rounds", "15", "--quiet"]
    arguments += ["--seed", "1"]
    assert main([*arguments, "--out", "rings"]) == 0
    result = json.loads((folder / "rings" / "result.json").read_text())
    assert result["best_reward"] > result["reference"]["reward"] + 0.1
    assert set(result["best_parameters"]) == {"C", "gamma"}
    assert "scikit-learn's default" in capsys.readouterr().out


def test_compare_is_resumable(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        *("compare", "--dataset", "iris", "--methods", "gp-ucb,random", "--seeds", "2"),
        *("--rounds", "6", "--folds", "3", "--out", "both", "--quiet"),
    ]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "both").glob("*.json")}
    assert len(stamps) == 4
    (folder / "both" / "random-1.json").unlink()
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    for path, stamp in stamps.items():
        assert (path.stat().st_mtime_ns == stamp) == (path.name != "random-1.json")
    trials = [
        json.loads((folder / "both" / f"{m}-0.json").read_text()) for m in ("gp-ucb", "random")
    ]
    assert trials[0]["best_so_far"][:5] == trials[1]["best_so_far"][:5]  # same initial rounds
