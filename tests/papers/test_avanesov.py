"""Restarts where rewards change: settings, bookkeeping, fitted powers, detections."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from botorch_bandits import Arms, BanditGP, BanditLoop, run
from botorch_bandits.change_points import ChangePointRestart, NeverRestart, OracleRestart
from botorch_bandits.problems import ArmsProblem, SwitchingProblem
from papers import EXPERIMENTS, build_experiments
from papers.avanesov import (
    ChangingStudy,
    RestartMethod,
    count_detections,
    fit_power,
    kernel,
    model_noise,
    tabulate_detections,
)
from papers.commands import main
from papers.trials import ArmsExperiment, run_arms_experiment

matplotlib.use("Agg")

DOCS = Path(__file__).parents[2] / "docs"
SMALL = {"num_trials": 3, "num_arms": 40}


def panels(name: str, **options: object) -> list[ArmsExperiment]:
    return build_experiments(name, **{**SMALL, **options})  # type: ignore[arg-type]


def study_of(experiment: ArmsExperiment) -> ChangingStudy:
    study = experiment.make_study(0, 2)
    assert isinstance(study, ChangingStudy)
    return study


def test_settings_are_the_papers() -> None:
    assert [e.num_rounds for e in panels("avanesov-horizon")] == [900, 1275, 1650, 2025, 2400]
    assert all(study_of(e).periods.shape == (2, 3, 40) for e in panels("avanesov-horizon"))
    by_periods = panels("avanesov-periods")
    assert [study_of(e).periods.shape[1] for e in by_periods] == [3, 4, 5, 6, 7, 8, 9]
    assert {e.num_rounds for e in by_periods} == {2700}
    assert study_of(by_periods[0]).change_points == (900, 1800)
    (comparison,) = build_experiments("avanesov-compare")
    assert (comparison.num_trials, comparison.num_rounds) == (64, 1200)
    (comparison,) = panels("avanesov-compare")
    study = study_of(comparison)
    assert study.change_points == (300, 600, 900)
    assert study.noise_std == 0.05
    restarts = {}
    for method in comparison.make_methods(study):
        assert isinstance(method, RestartMethod)
        assert method.lam == pytest.approx(0.0025)
        restarts[method.name] = method.restart(study.change_points)
    oracle, cpd, plain, never = restarts.values()
    assert oracle == OracleRestart(change_points=(300, 600, 900))
    assert isinstance(cpd, ChangePointRestart)
    assert cpd.exploration == never.exploration == math.sqrt(3.0)
    assert plain == NeverRestart(exploration=0.0)
    assert never == NeverRestart()
    half_sizes = torch.tensor([1.0, 5.0], dtype=torch.float64)
    levels = cpd.detector.thresholds(half_sizes, 1, 1.0)
    assert levels.tolist() == pytest.approx([2.6, 2.6 * 5 ** (-6 / 7)])
    assert cpd.detector.ridges(half_sizes, 1).tolist() == pytest.approx([1.0, 5 ** (1 / 7)])


def test_what_the_paper_leaves_unsaid_is_a_parameter() -> None:
    assert model_noise("theorem", 1200) == pytest.approx(6 * 0.0025 * math.log(1200))
    assert model_noise(0.2, 1200) == 0.2
    options = {"ridge": 0.3, "statistic": "integral", "noise_variance": "theorem"}
    for name in ("avanesov-horizon", "avanesov-periods", "avanesov-compare"):
        for experiment in panels(name, **options):
            study = study_of(experiment)
            for method in experiment.make_methods(study):
                assert isinstance(method, RestartMethod)
                assert method.lam == pytest.approx(model_noise("theorem", experiment.num_rounds))
                restart = method.restart(study.change_points)
                if isinstance(restart, ChangePointRestart):
                    assert restart.detector.ridge == 0.3
                    assert restart.detector.on(study.arms).factor == 5.0
    with pytest.raises(ValueError, match="noise_variance"):
        panels("avanesov-compare", noise_variance="figure")


def test_functions_belong_to_panel_and_trial() -> None:
    first, second = panels("avanesov-horizon")[:2]
    whole, part = first.make_study(0, 3), first.make_study(2, 1)
    assert isinstance(whole, ChangingStudy)
    assert isinstance(part, ChangingStudy)
    assert torch.equal(whole.periods[2:], part.periods)
    assert whole.seeds[2:] == part.seeds
    assert not torch.allclose(whole.periods[:2], study_of(second).periods, atol=0.1)
    # the variants of the constants meet the functions of the comparison
    (comparison,), (constants,) = panels("avanesov-compare"), panels("avanesov-constants")
    assert torch.equal(study_of(comparison).periods, study_of(constants).periods)
    # draws of a process with unit variance that are correlated over a lengthscale
    (many,) = panels("avanesov-compare", num_trials=200)
    study = many.make_study(0, 200)
    assert isinstance(study, ChangingStudy)
    drawn = study.periods.reshape(-1, 40)
    covariance = drawn.T @ drawn / len(drawn)
    exact = kernel()(study.arms.choices).to_dense().detach()
    assert float((covariance - exact).abs().max()) < 5.0 * math.sqrt(2.0 / len(drawn))


def test_replicates_are_loops_and_chunks_do_not_matter(tmp_path: Path) -> None:
    (experiment,) = panels("avanesov-compare", num_rounds=80, num_trials=2)
    whole = run_arms_experiment(experiment, tmp_path / "whole", progress=False)
    parts = run_arms_experiment(replace(experiment, chunk=1), tmp_path / "parts", progress=False)
    study = study_of(experiment)
    model = BanditGP.with_kernel(kernel(), noise=0.0025)
    for method in experiment.make_methods(study):
        assert isinstance(method, RestartMethod)
        curve, other = whole[method.name], parts[method.name]
        assert torch.equal(curve.others["resets"], other.others["resets"])
        assert torch.allclose(curve.regret, other.regret, atol=1e-12, rtol=0)
        restart = method.restart(study.change_points)
        loop = BanditLoop(
            study.arms, model, method.acquisition, restart=restart, seed=study.seeds[1]
        )
        periods = [ArmsProblem(study.arms.choices, row, 0.05) for row in study.periods[1]]
        result = run(loop, SwitchingProblem(periods, study.change_points), 80, progress=False)
        assert torch.allclose(result.regret, curve.regret[1], atol=1e-12, rtol=0)
        resets = (torch.nonzero(curve.others["resets"][1]).squeeze(-1) + 1).tolist()
        assert resets == [reset.after_round for reset in loop.resets]
        explored = [query.origin == "exploration" for query in loop.history.queries]
        assert curve.others["explored"][1].tolist() == explored


def test_power_is_that_of_the_normal_equations() -> None:
    rng = np.random.default_rng(0)
    sizes = [3, 4, 6, 9]
    totals = [100.0 * size**0.4 * rng.lognormal(0.0, 0.3, 50) for size in sizes]
    fit = fit_power(sizes, [torch.from_numpy(total) for total in totals])
    X = np.column_stack([np.ones(4), np.log(sizes)])
    y = np.log([total.mean() for total in totals])
    intercept, slope = np.linalg.solve(X.T @ X, X.T @ y)
    assert fit.power == pytest.approx(slope, rel=1e-10)
    assert fit.constant == pytest.approx(math.exp(intercept), rel=1e-10)
    # another bootstrap, and the delta method, give nearly the same interval
    slopes = []
    for _ in range(2000):
        means = [rng.choice(total, 50).mean() for total in totals]
        slopes.append(np.polyfit(np.log(sizes), np.log(means), 1)[0])
    lower, upper = np.quantile(slopes, [0.025, 0.975])
    variances = np.array([total.var(ddof=1) / 50 / total.mean() ** 2 for total in totals])
    centered = np.log(sizes) - np.log(sizes).mean()
    error = math.sqrt(centered**2 @ variances) / (centered @ centered)
    assert (fit.lower, fit.upper) == pytest.approx((lower, upper), abs=0.2 * error)
    assert fit.upper - fit.lower == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_power_without_scatter_is_exact() -> None:
    totals = [torch.full((5,), 2.0 * size**0.74, dtype=torch.float64) for size in (900, 2400)]
    fit = fit_power([900, 2400], totals)
    values = (fit.constant, fit.power, fit.lower, fit.upper)
    assert values == pytest.approx((2.0, 0.74, 0.74, 0.74), rel=1e-10)


@pytest.mark.parametrize(
    ("rounds", "delays", "missed", "false_alarms"),
    [
        ([], [], 2, 0),
        ([35, 70], [5, 10], 0, 0),
        ([20], [], 2, 1),  # before any change
        ([35, 50], [5], 1, 1),  # nothing new between 35 and 50
        ([65], [5], 1, 0),  # the first change is missed; the second one is counted
        ([30, 40, 70], [10], 0, 2),  # anew exactly at the change: nothing was left to detect
        ([31, 61], [1, 1], 0, 0),
        ([60], [30], 0, 0),  # the last round before the next change, which then needs nothing
    ],
)
def test_detections_misses_and_false_alarms(
    rounds: list[int], delays: list[int], missed: int, false_alarms: int
) -> None:
    resets = torch.zeros(1, 90, dtype=torch.bool)
    resets[0, [r - 1 for r in rounds]] = True
    found = count_detections(resets, (30, 60))
    assert found.delays.tolist() == delays
    assert found.missed.tolist() == [missed]
    assert found.false_alarms.tolist() == [false_alarms]
    beside = count_detections(torch.cat([torch.zeros_like(resets), resets]), (30, 60))
    assert beside.missed.tolist() == [2, missed]
    assert beside.false_alarms.tolist() == [0, false_alarms]


def test_only_detectors_have_a_row_of_detections(tmp_path: Path) -> None:
    experiments = panels("avanesov-compare", num_rounds=60, num_trials=2)
    curves = [run_arms_experiment(e, tmp_path, progress=False) for e in experiments]
    (row,) = tabulate_detections(experiments, curves)
    assert (row["method"], row["changes"], row["runs"]) == ("GP-UCB-CPD", 3, 2)
    explored = {name: curve.others["explored"].sum(-1) for name, curve in curves[0].items()}
    assert row["explored_per_run"] == float(explored["GP-UCB-CPD"].double().mean())
    assert explored["GP-UCB"].tolist() == [1, 1]
    # 7 of each 15 rounds, by the pseudo-code
    assert explored["GP-UCB-Oracle"].tolist() == [4 * 7] * 2
    assert bool((explored["GP-UCB-NO-Detector"] < explored["GP-UCB-Oracle"]).all())


@pytest.mark.parametrize("name", ["avanesov-horizon", "avanesov-periods", "avanesov-compare"])
def test_report_prints_and_writes(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments = panels(name, num_rounds=40, num_trials=2, num_arms=15)
    curves = [run_arms_experiment(e, tmp_path, progress=False) for e in experiments]
    report = EXPERIMENTS[name].report
    assert report is not None
    report(experiments, curves, tmp_path)
    printed = capsys.readouterr().out
    with (tmp_path / "detections.csv").open(encoding="utf-8") as file:
        detections = list(csv.DictReader(file))
    assert len(detections) == len(curves)
    if name == "avanesov-compare":
        return
    with (tmp_path / "power.csv").open(encoding="utf-8") as file:
        fitted, published = csv.DictReader(file)
    sizes = [e.num_rounds for e in experiments] if "horizon" in name else list(range(3, 10))
    totals = [c["GP-UCB-CPD"].regret.sum(-1).mean() for c in curves]
    slope = np.polyfit(np.log(sizes), np.log(totals), 1)[0]
    assert float(fitted["power"]) == pytest.approx(slope, rel=1e-8)
    assert float(published["power"]) == (0.74 if "horizon" in name else 0.282)
    assert f"{slope:.3f}" in printed
    assert "published" in printed


@pytest.mark.parametrize("name", ["avanesov-compare", "avanesov-constants"])
def test_runs_from_the_command_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["experiment", name, "--trials", "2", "--rounds", "12", "--quiet"]
    arguments += ["--out", str(tmp_path)]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    with (tmp_path / "table.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert (row["trials"], row["rounds"]) == ("2", "12")
            assert row["method"] in output
    assert "what the detector did" in output
    assert (tmp_path / "images" / f"{name}.svg").stat().st_size > 5_000
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "trials").iterdir()}
    assert main(arguments) == 0
    assert capsys.readouterr().out == output
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "trials").iterdir()}


def test_too_few_rounds_for_the_periods_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["experiment", "avanesov-periods", "--rounds", "5", "--trials", "1", "--quiet"]
    assert main(arguments) == 2
    assert "num_rounds is 5" in capsys.readouterr().err


def test_arms_are_those_of_the_paper() -> None:
    (experiment,) = build_experiments("avanesov-compare", num_trials=1)
    study = study_of(experiment)
    assert isinstance(study.arms, Arms)
    assert study.arms.num_arms == 1000
    assert study.arms.choices[[0, -1], 0].tolist() == [0.0, 5.0]


def test_the_committed_order_is_the_published_one() -> None:
    with (DOCS / "results" / "avanesov-compare.csv").open(encoding="utf-8") as file:
        oracle, cpd, plain, never = (float(row["mean"]) for row in csv.DictReader(file))
    assert oracle < cpd < plain <= never
