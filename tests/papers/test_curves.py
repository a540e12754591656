"""The table of curves against means, errors and medians that are computed anew."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from papers import build_experiments
from papers.curves import MOST_ROUNDS, over_rounds, shown_rounds, tabulate_curves
from papers.running import run_experiment
from papers.trials import ArmsExperiment, Curves


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("num_rounds", [1, 2, MOST_ROUNDS, MOST_ROUNDS + 1, 1000, 30000])
def test_few_rounds_are_shown_and_always_the_first_and_the_last(
    num_rounds: int, logarithmic: bool
) -> None:
    rounds = shown_rounds(num_rounds, logarithmic)
    assert (rounds[0], rounds[-1]) == (1, num_rounds)
    assert rounds == sorted(set(rounds))
    assert len(rounds) <= MOST_ROUNDS
    if num_rounds <= MOST_ROUNDS:
        assert rounds == list(range(1, num_rounds + 1))
    if num_rounds == 30000:
        steps = np.diff(np.log(rounds[-20:]) if logarithmic else rounds[-20:])
        assert steps.max() / steps.min() < 1.02


def panel(**others: bool) -> ArmsExperiment:
    """A panel that is not played."""
    (experiment,) = build_experiments("srinivas-synthetic", num_trials=5, num_rounds=200)
    known = {"average": False, **others}
    return ArmsExperiment(**{**vars(experiment), **known})


def regrets() -> Tensor:
    return torch.rand(5, 200, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("average", [False, True])
def test_rows_are_means_errors_and_medians(average: bool) -> None:
    regret = regrets()
    rows = tabulate_curves([panel(average=average)], [{"m": Curves(regret, None, None)}])
    assert [row["round"] for row in rows] == shown_rounds(200)
    for row in rows:
        t = row["round"]
        totals = regret.numpy()[:, :t].sum(1) / (t if average else 1)
        assert row["mean"] == pytest.approx(totals.mean(), rel=1e-4)
        assert row["standard_error"] == pytest.approx(totals.std(ddof=1) / 5**0.5, rel=1e-4)
        assert row["median"] == pytest.approx(np.median(totals), rel=1e-4)
        assert row["quantity"] == ("mean regret a round" if average else "cumulative regret")


def test_runs_that_stopped_are_left_out_and_few_runs_are_not_shown() -> None:
    regret, constraint = regrets(), regrets() - 0.5
    stopped = torch.tensor([3, 9, 9, 200, 200])
    others = {"constraint": constraint, "stopped": stopped}
    curves = Curves(regret, None, None, others=others)
    rows = tabulate_curves([panel()], [{"m": curves}])
    assert {row["quantity"] for row in rows} == {"time-averaged regret", "time-averaged violation"}
    assert max(row["round"] for row in rows) == 9  # later less than half of the runs go on
    for row in rows:
        t = row["round"]
        going = stopped.numpy() >= t
        if row["quantity"] == "time-averaged regret":
            averages = regret.numpy()[going, :t].mean(1)
        else:
            averages = np.maximum(constraint.numpy()[going, :t].sum(1), 0.0) / t
        assert row["mean"] == pytest.approx(averages.mean(), rel=1e-4)


def test_before_the_first_outcome_there_is_no_simple_regret() -> None:
    simple = regrets()
    simple[:, 0] = torch.inf
    simple[0, 1] = torch.inf
    rows = tabulate_curves([panel()], [{"m": Curves(simple, None, None, simple)}])
    assert rows[0]["round"] == shown_rounds(200)[1]
    one = tabulate_curves([panel()], [{"m": Curves(simple[1:2], None, None, simple[1:2])}])
    assert {row["standard_error"] for row in one} == {""}


def test_an_experiment_writes_the_table(tmp_path: Path) -> None:
    finished = run_experiment(
        "chowdhury-functions", tmp_path, num_trials=2, num_rounds=3, progress=False
    )
    with (tmp_path / "curves.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    pairs = zip(finished.panels, finished.curves, strict=True)
    methods = {(panel.name, name) for panel, curves in pairs for name in curves}
    assert {(row["experiment"], row["method"]) for row in rows} == methods
    assert len(rows) == 3 * len(methods)
    experiment, curves = finished.panels[0], finished.curves[0]
    last = next(row for row in rows if row["round"] == "3")
    (total,) = over_rounds(experiment, curves[last["method"]]).values()
    assert float(last["mean"]) == pytest.approx(float(total[:, -1].mean()), rel=1e-4)
