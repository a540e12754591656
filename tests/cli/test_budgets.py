"""Budgets from the command line: costs that must hold on average, with their ledger."""

from __future__ import annotations

import csv
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from botorch_bandits.cli import main
from botorch_bandits.problems.tuning import TuningProblem, load_dataset

from .processes import fork_workers

IRIS = ["tune", "--dataset", "iris", "--folds", "3", "--initial", "3", "--epoch-length", "3"]
LIMIT = 40.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result_in(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return result


def rows_in(folder: Path) -> list[dict[str, str]]:
    with (folder / "history.csv").open() as file:
        return list(csv.DictReader(file))


def support_vectors(C: float, gamma: float) -> float:
    """Mean over the folds, fold by fold, without the package."""
    X, y = load_dataset("iris")
    folds = StratifiedKFold(3, shuffle=True, random_state=0).split(X, y)
    models = [
        make_pipeline(StandardScaler(), SVC(C=C, gamma=gamma)).fit(X[rows], y[rows])
        for rows, _ in folds
    ]
    return sum(len(model[-1].support_) for model in models) / 3


@pytest.mark.usefixtures("rendered")
def test_the_ledger_is_in_every_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*IRIS, "--budget", f"support_vectors<={LIMIT:g}", "--rounds", "8"]) == 0
    shown = capsys.readouterr()
    run = folder / "runs" / "tune-svm-iris-best-0"
    rows, result = rows_in(run), result_in(run)
    for row in rows[:2]:
        amount = support_vectors(float(row["C"]), float(row["gamma"]))
        assert float(row["constraint0"]) == pytest.approx(amount / LIMIT - 1.0, abs=1e-12)
    g = [float(row["constraint0"]) for row in rows]

    # the additive rule by hand: epochs of 3 rounds, steps of 0.5
    multiplier, played = 0.0, []
    for t in range(8):
        if t > 0 and t % 3 == 0:
            multiplier = max(multiplier + 0.5 * sum(g[t - 3 : t]) / 3, 0.0)
        played.append(multiplier)
    assert [float(row["multiplier_1"]) for row in rows] == pytest.approx(played, abs=1e-12)
    assert [record["multiplier"] for record in result["ledger"]] == pytest.approx(played[::3])
    assert [record["num_outcomes"] for record in result["ledger"]] == [3, 3, 2]
    assert result["ledger"][0]["signed_violation"] == pytest.approx(max(sum(g[:3]), 0.0))

    (entry,) = result["budgets"]
    assert entry["average"] == pytest.approx(LIMIT * (1.0 + sum(g) / 8))
    assert entry["is_kept"] is (sum(g) <= 0.0)
    within = [(float(row["reward"]), row) for row, value in zip(rows, g, strict=True) if value <= 0]
    best = max(within, key=lambda pair: pair[0])
    assert result["best_reward"] == best[0]
    assert entry["of_best"] == pytest.approx(LIMIT * (1.0 + float(best[1]["constraint0"])))
    assert re.search(r"support_vectors=[\d.]+/40 \(multiplier [\d.]+\)", shown.err)
    assert "best within budget" in shown.out
    with Image.open(run / "run.png") as picture:
        assert picture.size[0] > 500


def test_a_budget_that_is_too_small_leaves_no_best(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*IRIS, "--budget", "model_size<=1", "--method", "random", "--rounds", "3"]
    assert main([*arguments, "--quiet", "--out", "run"]) == 0
    assert result_in(folder / "run")["best_reward"] is None
    assert "none: no evaluation is within all budgets" in capsys.readouterr().out


def test_measured_times_are_kept_when_a_run_goes_on(folder: Path) -> None:
    arguments = [*IRIS, "--budget", "fit_seconds<=0.01", "--budget", "predict_seconds<=0.01"]
    arguments += ["--method", "gp-ucb", "--quiet", "--out", "run"]
    assert main([*arguments, "--rounds", "4"]) == 0
    first = json.loads((folder / "run" / "history.json").read_text())["queries"]
    assert all(len(query["constraints"]) == 2 for query in first)
    assert main([*arguments, "--rounds", "6"]) == 0
    again = json.loads((folder / "run" / "history.json").read_text())["queries"]
    assert again[:4] == first
    assert len(again) == 6
    assert all(g > -1.0 for query in again for g in query["constraints"])


def test_other_budgets_are_another_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*IRIS, "--method", "random", "--rounds", "2", "--quiet", "--out", "run"]
    assert main([*arguments, "--budget", "support_vectors<=40"]) == 0
    assert main([*arguments, "--budget", "support_vectors<=50"]) == 2
    assert "holds a run with budget=['support_vectors<=40.0']" in capsys.readouterr().err
    assert main([*arguments, "--budget", "support_vectors<=40", "--step-size", "0.2"]) == 2
    assert "holds a run with step_size=0.5, not 0.2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "multipliers"),
    [
        (["--multiplier-rule", "multiplicative"], 1.0),
        (["--multiplier-rule", "primal-dual"], 0.0),
        (["--delay", "constant:3"], 0.0),
        (["--method", "random", "--workers", "2"], 0.0),
        (["--shift", "--shift-feature", "1", "--restart", "never"], 0.0),
    ],
    ids=["multiplicative", "primal-dual", "delay", "workers", "shift"],
)
def test_other_rules_and_what_goes_with_them(
    folder: Path, options: list[str], multipliers: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_workers(monkeypatch)
    arguments = ["tune", "--dataset", "iris", "--folds", "2", "--initial", "3", "--quiet"]
    arguments += ["--budget", "support_vectors<=30", "--rounds", "7", "--out", "run", *options]
    if "primal-dual" not in options:
        arguments += ["--epoch-length", "2"]
    assert main(arguments) == 0
    rows = rows_in(folder / "run")
    assert len(rows) == 7
    assert float(rows[0]["multiplier_1"]) == multipliers
    arrived = [float(row["constraint0"]) for row in rows if row["reward"]]
    assert len(arrived) == (5 if "--delay" in options else 7)
    (entry,) = result_in(folder / "run")["budgets"]
    assert entry["average"] == pytest.approx(30.0 * (1.0 + sum(arrived) / len(arrived)))
    if "primal-dual" in options:
        # without data there is no model, and no step in the first round
        steps = [float(row["constraint_lower_bound_1"] or 0.0) for row in rows[:-1]]
        by_hand = 0.0
        for row, step in zip(rows[1:], steps, strict=True):
            by_hand = min(max(by_hand + 0.5 * step, 0.0), 1.0)
            assert float(row["multiplier_1"]) == pytest.approx(by_hand, abs=1e-12)


BUDGET = ["--budget", "fit_seconds<=0.05"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--budget", "fit_seconds"], "'fit_seconds'; it must be COST<=NUMBER"),
        (["--budget", "fit_seconds<=fast"], "it must be COST<=NUMBER"),
        (["--budget", "joules<=3"], "unknown cost 'joules'; known are fit_seconds, predict_"),
        (["--budget", "fit_seconds<=0"], "budget of fit_seconds is 0.0; it must be positive"),
        ([*BUDGET, *BUDGET], "each for another cost"),
        (
            ["--task", "logistic-regression", "--budget", "support_vectors<=3"],
            "logistic-regression has no support_vectors; only svm has",
        ),
        (["--epoch-length", "3"], "--epoch-length is 3, but it goes with --budget only"),
        ([*BUDGET, "--epoch-length", "0"], "--epoch-length is 0"),
        ([*BUDGET, "--multiplier-rule", "multiplicative"], "is for exact costs, and fit_seconds"),
        (
            [*BUDGET, "--multiplier-rule", "primal-dual", "--method", "gp-ts"],
            "primal-dual goes with --objective and the methods igp-ucb and gp-ucb",
        ),
        (
            [*BUDGET, "--multiplier-rule", "primal-dual", "--epoch-length", "2"],
            "the primal-dual rule has no epochs",
        ),
        (
            [*BUDGET, "--delay", "poisson:2", "--feedback", "censored"],
            "--feedback censored goes with --budget only if costs are modeled separately",
        ),
        (
            [
                *(*BUDGET, "--multiplier-rule", "primal-dual"),
                *("--delay", "poisson:2", "--feedback", "censored", "--outcome-bound", "1"),
            ],
            "--outcome-bound is 1.0, which does not go with --budget",
        ),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert main(["tune", "--dataset", "iris", *arguments]) == 2
    errors = capsys.readouterr().err
    assert len(errors.splitlines()) == 1
    assert expected in errors
    assert not (folder / "runs").exists()


def test_model_size_is_that_of_pickled_models(folder: Path) -> None:
    arguments = [*IRIS, "--budget", "model_size<=5000", "--method", "random", "--rounds", "1"]
    assert main([*arguments, "--quiet", "--out", "run"]) == 0
    (row,) = rows_in(folder / "run")
    problem = TuningProblem("svm", *load_dataset("iris"), num_folds=3)
    x = torch.tensor(json.loads((folder / "run" / "history.json").read_text())["queries"][0]["x"])
    models = problem.cross_validate(problem.decode(x.double()))["estimator"]
    sizes = [len(pickle.dumps(model, protocol=5)) for model in models]
    found = 5000.0 * (1.0 + float(row["constraint0"]))
    assert found == pytest.approx(sum(sizes) / 3, rel=1e-3)
