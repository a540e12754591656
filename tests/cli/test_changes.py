"""Rewards that change, from the command line: shifts of the data, detection, restarts."""

from __future__ import annotations

import argparse
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from PIL import Image

from botorch_bandits import (
    Box,
    Categorical,
    ChangePointDetector,
    EvidenceRestart,
    Float,
    Space,
)
from botorch_bandits.change_points import CalibratedThreshold
from botorch_bandits.cli import main
from botorch_bandits.cli.changes import DETECTOR_OPTIONS, read_changes
from botorch_bandits.models import lengthscale_ladder
from botorch_bandits.problems.tuning import (
    ShiftingTuning,
    TuningProblem,
    load_dataset,
    shift_problem,
    split_by_feature,
)

from .processes import fork_workers

# two plateaus: the reward falls by 1 in the fourteenth call
FUNCTION = """
def reward(x):
    with open("calls.txt", "a") as calls:
        calls.write("x\\n")
    calls = len(open("calls.txt").readlines())
    return (1.0 if calls <= 13 else 0.0) + 0.05 * x[0]
"""

TUNE = ["tune", "--dataset", "iris", "--folds", "2", "--shift-feature", "1", "--method", "random"]
OPTIMIZE = ["optimize", "changing_module:reward", "--bounds", "0:1", "--method", "random"]
CPD = ["--restart", "cpd", "--reward-mean", "0.5", "--reward-scale", "0.5", "--lengthscale", "1"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "changing_module.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "changing_module", raising=False)
    return tmp_path


def result_in(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def queries_in(folder: Path) -> list[dict[str, Any]]:
    queries: list[dict[str, Any]] = json.loads((folder / "history.json").read_text())["queries"]
    return queries


@pytest.mark.parametrize(
    "waiting", [[], ["--delay", "constant:2"], ["--workers", "2"]], ids=["", "delay", "workers"]
)
@pytest.mark.usefixtures("rendered")
def test_the_function_of_a_round_is_that_of_its_population(
    folder: Path, waiting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reward against the accuracy on the half of the round in which it was asked."""
    fork_workers(monkeypatch)
    arguments = [*TUNE, "--shift", "--rounds", "6", "--initial", "2", "--quiet", "--out", "run"]
    assert main([*arguments, *waiting]) == 0
    X, y = load_dataset("iris")
    first = X[:, 1] <= np.median(X[:, 1])
    halves = [TuningProblem("svm", X[rows], y[rows], num_folds=2) for rows in (first, ~first)]
    told = 0
    for query in queries_in(folder / "run"):
        if query["reward"] is not None:
            told += 1
            x = torch.tensor(query["x"], dtype=torch.float64)
            half = halves[0] if query["round_number"] <= 3 else halves[1]
            assert query["reward"] == pytest.approx(half(x), abs=1e-12)
    assert told >= 5
    result = result_in(folder / "run")
    assert result["change_points"] == [3]
    after = [q for q in queries_in(folder / "run") if q["id"] >= 3 and q["reward"] is not None]
    (best,) = result["best_since"]
    assert best["since_round"] == result["best_since_round"] == 4
    assert best["reward"] == result["best_reward"]
    assert best["reward"] == max(query["reward"] for query in after)
    assert result["reference"]["reward"] == halves[1].default_accuracy()
    with Image.open(folder / "run" / "run.png") as picture:
        assert picture.size[0] > 500


def test_a_longer_run_shifts_where_it_did(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TUNE, "--shift", "--restart", "oracle", "--initial", "1", "--quiet"]
    assert main([*arguments, "--rounds", "6", "--out", "run"]) == 0
    assert main([*arguments, "--rounds", "9", "--out", "run"]) == 0
    result = result_in(folder / "run")
    assert result["change_points"] == [3]
    (reset,) = result["resets"]
    assert (reset["after_round"], reset["reason"], reset["statistic"]) == (3, "oracle", None)
    assert "reset after" in capsys.readouterr().out
    explicit = [*arguments, "--shift-round", "3", "--rounds", "9", "--out", "whole"]
    assert main(explicit) == 0
    points = [[q["x"] for q in queries_in(folder / name)] for name in ("run", "whole")]
    assert points[0] == points[1]
    assert main([*arguments, "--rounds", "9", "--shift-round", "4", "--out", "run"]) == 2
    assert "holds a run with shift_round=3, not 4" in capsys.readouterr().err


@pytest.mark.parametrize("value", [[], ["evidence"]], ids=["without a value", "evidence"])
def test_evidence_finds_a_change_without_exploration(folder: Path, value: list[str]) -> None:
    arguments = [*OPTIMIZE, "--rounds", "18", "--out", "run", "--quiet", "--initial", "2"]
    arguments += ["--reward-mean", "0.5", "--reward-scale", "0.5", "--restart", *value]
    assert main(arguments) == 0
    result = result_in(folder / "run")
    (reset,) = result["resets"]
    assert 14 <= reset["after_round"] <= 16
    assert reset["change_round"] == 14
    assert reset["num_kept"] == reset["after_round"] - 13
    assert {query["origin"] for query in queries_in(folder / "run")} <= {"initial", "random"}


def correlations(priors: Any, space: Space) -> torch.Tensor:
    """Between the points ``x = 0.5`` of all categories, by the first prior on a list."""
    prior = priors.candidates[0]
    categories = torch.arange(3.0, dtype=torch.float64)
    X = torch.stack([torch.full((3,), 0.5, dtype=torch.float64), categories], dim=-1)
    inputs = X if prior.input_transform is None else prior.input_transform(X)
    matrix = prior.kernel(inputs).to_dense().detach()
    return matrix / matrix[0, 0]


def test_evidence_takes_no_category_for_a_number(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = Space({"x": Float(0.0, 2.0), "kind": Categorical(["a", "b", "c"])})
    names = ("change_points", "exploration", *DETECTOR_OPTIONS)
    options = argparse.Namespace(
        restart="evidence", reward_mean=0.5, reward_scale=0.5, rounds=9, **dict.fromkeys(names)
    )
    new = read_changes(options, space, {})
    assert new.settings["encoded_candidates"] is True
    assert isinstance(new.restart, EvidenceRestart)
    # one unit in each of two columns apart, by a Matern 5/2 kernel with the first rung
    found = correlations(new.restart.candidates, space)
    rung = lengthscale_ladder(space.num_columns)[0]
    r = (5.0 * 2.0) ** 0.5 / rung
    expected = (1.0 + r + r * r / 3.0) * np.exp(-r)
    assert torch.allclose(found[~torch.eye(3).bool()], torch.tensor(expected), atol=1e-9)
    # a run of an earlier version goes on with the list that it had
    old = read_changes(options, space, {"restart": "evidence"})
    assert "encoded_candidates" not in old.settings
    assert isinstance(old.restart, EvidenceRestart)
    before = correlations(old.restart.candidates, space)
    assert before[0, 1] > before[0, 2]
    ordered = Space({"kind": Categorical(["a", "b", "c"], ordered=True)})
    assert "encoded_candidates" not in read_changes(options, ordered, {}).settings
    (folder / "changing_module.py").write_text(
        "def reward(p):\n    return float(p['kind'] == 'b')\n"
    )
    arguments = ["optimize", "changing_module:reward", "--param", "x=float:0:2", "--param"]
    arguments += ["kind=choice:a,b,c", "--method", "random", "--out", "run", "--quiet"]
    arguments += ["--restart", "--reward-mean", "0.5", "--reward-scale", "0.5"]
    for rounds in ("6", "8"):
        assert main([*arguments, "--rounds", rounds]) == 0
    record = json.loads((folder / "run" / "history.json").read_text())
    assert record["settings"]["encoded_candidates"] is True
    del record["settings"]["encoded_candidates"]
    (folder / "run" / "history.json").write_text(json.dumps(record))
    assert main([*arguments, "--rounds", "9"]) == 0
    assert len(queries_in(folder / "run")) == 9
    capsys.readouterr()


def test_a_change_is_detected_shown_and_survives_a_restart_of_the_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*OPTIMIZE, *CPD, "--initial", "2", "--rounds", "30"]
    assert main([*arguments, "--out", "whole"]) == 0
    shown = capsys.readouterr()
    result = result_in(folder / "whole")
    first = result["resets"][0]
    assert 13 < first["after_round"] < 25
    assert first["reason"] == "detection"
    assert first["statistic"] > first["threshold"]
    assert f"reset=after round {first['after_round']}" in shown.err
    since = result["best_since_round"]
    assert since == result["resets"][-1]["after_round"] + 1
    assert re.search(rf"best since round {since}=[\d.]+, largest ever=[\d.]+", shown.err)
    told = [q for q in queries_in(folder / "whole") if q["reward"] is not None]
    assert result["best_reward"] == max(q["reward"] for q in told if q["round_number"] >= since)
    assert result["largest"]["reward"] == max(q["reward"] for q in told)
    best = re.escape(f"{result['best_reward']:.6g}")
    assert re.search(rf"best reward +{best}\b", shown.out)
    assert re.search(rf"best is counted +from round {since} on\n", shown.out)
    assert re.search(r"largest reward ever +[\d.]+ in round \d+\n", shown.out)
    assert f"{first['after_round']} (detection, change placed before" in shown.out
    assert result["settings"]["threshold"]["horizon"] == 18  # 3 sqrt(30), rounded up, and one
    # the threshold is not simulated again, and is the same although there are more rounds
    (folder / "calls.txt").unlink()
    assert main([*arguments[:-1], "17", "--quiet", "--out", "part"]) == 0
    threshold = result_in(folder / "part")["settings"]["threshold"]
    assert threshold["horizon"] == 14
    assert main([*arguments, "--quiet", "--out", "part"]) == 0
    result = result_in(folder / "part")
    assert result["settings"]["threshold"] == threshold
    assert result["resets"][0]["after_round"] > 13


def test_the_threshold_is_that_of_the_settings(folder: Path) -> None:
    """The statistics of the run against a detector that is built here."""
    arguments = [*OPTIMIZE, *CPD, "--initial", "2", "--rounds", "30", "--ridge", "0.2"]
    assert main([*arguments, "--threshold-scale", "1.7", "--quiet", "--out", "run"]) == 0
    (first, *_) = result_in(folder / "run")["resets"]
    box = Box([[0.0], [1.0]])
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    kernel.base_kernel.lengthscale, kernel.outputscale = 1.0, 0.25
    engine = ChangePointDetector(kernel, ridge=0.2, prior_mean=0.5).on(box)
    uniform = [
        q
        for q in queries_in(folder / "run")[: first["after_round"]]
        if q["origin"] in ("initial", "exploration")
    ]
    test = engine.test(
        torch.tensor([q["x"] for q in uniform], dtype=torch.float64),
        torch.tensor([q["reward"] for q in uniform], dtype=torch.float64),
    )
    n = first["half_size"]
    assert first["threshold"] == pytest.approx(0.25 * 1.7 * n ** (-6.0 / 7.0))
    assert first["statistic"] == pytest.approx(float(test.statistics[n - 1]), rel=1e-9)


def test_a_recorded_threshold_is_whole() -> None:
    threshold = CalibratedThreshold(
        (2.0, 1.0), -0.8, 5, 0.1, 0.95, 100, 3, (0.0, 0.1), seed=1, source="prior draws"
    )
    from botorch_bandits.cli.changes import plain_record, recorded_threshold

    again = recorded_threshold(json.loads(json.dumps(plain_record(threshold))))
    assert again == threshold
    assert recorded_threshold({"scale": 2.0}) is None


def test_a_split_has_all_classes_or_says_why() -> None:
    X, y = load_dataset("breast-cancer")
    first, feature = split_by_feature(X, y, num_folds=5)
    assert feature == 0
    assert np.array_equal(first, X[:, 0] <= np.median(X[:, 0]))
    X, y = load_dataset("iris")
    _, feature = split_by_feature(X, y, num_folds=5, feature=2)  # a class may be in one half
    assert feature == 2
    with pytest.raises(ValueError, match="feature 0 does not"):
        split_by_feature(np.zeros_like(X), y, num_folds=5, feature=0)
    with pytest.raises(ValueError, match="the data have 4 features"):
        split_by_feature(X, y, num_folds=5, feature=4)
    with pytest.raises(ValueError, match="no feature has that"):
        split_by_feature(X[:, 2:], y, num_folds=5)


def test_a_shifting_problem_can_be_sent_to_another_process() -> None:
    one, other, _ = shift_problem(TuningProblem("svm", *load_dataset("iris"), num_folds=2), 1)
    sent = pickle.loads(pickle.dumps(ShiftingTuning((one, other), 5)))
    x = torch.tensor([0.5, -2.0], dtype=torch.float64)
    assert (sent(x, 5), sent(x, 6)) == (one(x), other(x))
    assert one(x) != other(x)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (TUNE, "--shift-feature is 1, but it goes with --shift only"),
        ([*TUNE, "--shift", "--shift-round", "0"], "--shift-round is 0"),
        ([*TUNE[:-4], "--exploration", "3"], "--exploration is 3.0, but it goes with --restart"),
        ([*TUNE[:-4], "--restart", "oracle"], "needs to know the changes; add --shift."),
        ([*TUNE[:-4], "--restart", "never", "--ridge", "1"], "it goes with --restart cpd only"),
        ([*TUNE[:-4], "--restart", "cpd", "--ridge", "-1"], "--ridge is -1"),
        ([*TUNE[:-4], "--restart", "cpd", "--false-alarm-rate", "2"], "--false-alarm-rate is 2"),
        (
            [*TUNE[:-4], *CPD, "--false-alarm-rate", "0.1", "--threshold-scale", "2"],
            "--threshold-scale replaces --false-alarm-rate",
        ),
        ([*OPTIMIZE, "--restart", "cpd"], "--restart cpd needs --reward-mean"),
        ([*OPTIMIZE, "--restart", "oracle"], "add --change-points, as in 30,60"),
        ([*OPTIMIZE, "--restart", "oracle", "--change-points", "3;4"], "must be rounds, as in"),
        ([*OPTIMIZE, "--restart", "oracle", "--change-points", "4,3"], "increasing numbers"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert main([*arguments, "--quiet"]) == 2
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert expected in errors
    assert not (folder / "runs").exists()
