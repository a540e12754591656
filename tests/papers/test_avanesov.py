"""Restarts where rewards change: settings, bookkeeping, fitted powers, detections."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from models.textbook import double

from botorch_bandits import BanditGP, BanditLoop, run
from botorch_bandits.change_points import (
    NeverRestart,
    OracleRestart,
)
from botorch_bandits.problems import ArmsProblem, SwitchingProblem
from papers import avanesov
from papers.avanesov import count_detections, fit_power, kernel, tabulate_detections
from papers.runner import ArmsExperiment, build_experiments, run_arms_experiment


def panels(name: str, **options: object) -> list[ArmsExperiment]:
    return build_experiments(name, **{"num_trials": 3, "num_arms": 40, **options})  # type: ignore[arg-type]


def test_settings_are_the_papers() -> None:
    assert [e.num_rounds for e in panels("avanesov-horizon")] == [900, 1275, 1650, 2025, 2400]
    by_periods = panels("avanesov-periods")
    assert [e.make_study(0, 2).periods.shape[1] for e in by_periods] == [3, 4, 5, 6, 7, 8, 9]
    assert {e.num_rounds for e in by_periods} == {2700}
    (comparison,) = panels("avanesov-compare")
    study = comparison.make_study(0, 2)
    assert study.change_points == (300, 600, 900)
    assert study.noise_std == 0.05
    restarts = [m.restart(study.change_points) for m in comparison.make_methods(study)]
    oracle, cpd, plain, never = restarts
    assert oracle == OracleRestart(change_points=(300, 600, 900))
    assert cpd.exploration == never.exploration == math.sqrt(3.0)
    assert plain == NeverRestart(exploration=0.0)
    half_sizes = double([1.0, 5.0])
    levels = cpd.detector.thresholds(half_sizes, 1, 1.0)
    assert levels.tolist() == pytest.approx([2.6, 2.6 * 5 ** (-6 / 7)])
    assert cpd.detector.ridges(half_sizes, 1).tolist() == pytest.approx([1.0, 5 ** (1 / 7)])
    choices = avanesov.arms_of(avanesov.NUM_ARMS).choices
    assert choices[[0, -1], 0].tolist() == [0.0, 5.0]


def test_replicates_are_loops_and_chunks_do_not_matter(tmp_path: Path) -> None:
    (experiment,) = panels("avanesov-compare", num_rounds=80, num_trials=2)
    whole = run_arms_experiment(experiment, tmp_path / "whole")
    parts = run_arms_experiment(replace(experiment, chunk=1), tmp_path / "parts")
    study = experiment.make_study(0, 2)
    model = BanditGP.with_kernel(kernel(), noise=0.0025)
    periods = [ArmsProblem(study.arms.choices, row, 0.05) for row in study.periods[1]]
    for method in experiment.make_methods(study):
        curve, other = whole[method.name], parts[method.name]
        assert torch.equal(curve.others["resets"], other.others["resets"])
        assert torch.allclose(curve.regret, other.regret, atol=1e-12, rtol=0)
        restart = method.restart(study.change_points)
        loop = BanditLoop(
            study.arms, model, method.acquisition, restart=restart, seed=study.seeds[1]
        )
        result = run(loop, SwitchingProblem(periods, study.change_points), 80, progress=False)
        assert torch.allclose(result.regret, curve.regret[1], atol=1e-12, rtol=0)
        resets = (torch.nonzero(curve.others["resets"][1]).squeeze(-1) + 1).tolist()
        assert resets == [reset.after_round for reset in loop.resets]
    explored = {name: curve.others["explored"].sum(-1) for name, curve in whole.items()}
    (row,) = tabulate_detections([experiment], [whole])
    assert (row["method"], row["changes"], row["runs"]) == ("GP-UCB-CPD", 3, 2)
    assert row["explored_per_run"] == float(explored["GP-UCB-CPD"].double().mean())
    assert explored["GP-UCB"].tolist() == [1, 1]


def test_power_is_that_of_the_normal_equations() -> None:
    rng = np.random.default_rng(0)
    sizes = [3, 4, 6, 9]
    totals = [100.0 * size**0.4 * rng.lognormal(0.0, 0.3, 50) for size in sizes]
    fit = fit_power(sizes, [torch.from_numpy(total) for total in totals])
    slope, intercept = np.polyfit(np.log(sizes), np.log([t.mean() for t in totals]), 1)
    assert fit.power == pytest.approx(slope, rel=1e-10)
    assert fit.constant == pytest.approx(math.exp(intercept), rel=1e-10)
    # the delta method gives nearly the interval of the bootstrap
    variances = np.array([total.var(ddof=1) / 50 / total.mean() ** 2 for total in totals])
    centered = np.log(sizes) - np.log(sizes).mean()
    error = math.sqrt(centered**2 @ variances) / (centered @ centered)
    assert fit.upper - fit.lower == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert fit.lower < slope < fit.upper


@pytest.mark.parametrize(
    ("rounds", "delays", "missed", "false_alarms"),
    [
        ([], [], 2, 0),
        ([35, 70], [5, 10], 0, 0),
        ([20], [], 2, 1),  # before any change
        ([35, 50], [5], 1, 1),  # nothing new between 35 and 50
        ([65], [5], 1, 0),  # the first change is missed; the second one is counted
        ([30, 40, 70], [10], 0, 2),  # anew exactly at the change: nothing was left to detect
        ([60], [30], 0, 0),  # the last round before the next change, which then needs nothing
    ],
)
def test_detections_misses_and_false_alarms(
    rounds: list[int], delays: list[int], missed: int, false_alarms: int
) -> None:
    resets = torch.zeros(2, 90, dtype=torch.bool)
    resets[1, [r - 1 for r in rounds]] = True
    found = count_detections(resets, (30, 60))
    assert found.delays.tolist() == delays
    assert found.missed.tolist() == [2, missed]
    assert found.false_alarms.tolist() == [0, false_alarms]
