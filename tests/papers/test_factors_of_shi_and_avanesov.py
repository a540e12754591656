"""Tables of one changed factor, the calibration behind a ridge, and realized functions."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.problems import GardnerProblem
from papers import EXPERIMENTS, avanesov_factors, build_experiments, shi_varying
from papers.avanesov import arms_of, detector
from papers.beyond_varying import KINDS, environment
from papers.changed_factors import FactorRow, falls_to_zero
from papers.constrained_study import play_constrained
from papers.environments import RatesProblem, best_fixed_arm
from papers.reproduction.judging import Estimate, tends_to_zero
from papers.running import run_experiment
from papers.shi import Setting, averages
from papers.shi_factors import (
    NUM_FIRST,
    OCO_JUDGED,
    SUBSTITUTES,
    RatesOf,
    drawn_constants,
    epochs_of,
)
from papers.shi_varying import REWARDS_ALONE, VaryingMethod, play_in_environment
from papers.trials import run_arms_experiment

matplotlib.use("Agg")

RESULTS = Path(__file__).parents[2] / "docs" / "results"
COLUMNS = list(FactorRow.__dataclass_fields__)
SMALL = {
    "avanesov-factors": {"num_trials": 2, "num_rounds": 36, "num_arms": 12},
    "shi-factors": {"num_trials": 2, "num_rounds": 4, "num_points": 9},
}
NUM_ROWS = {
    "avanesov-factors": {"avanesov-2": 3, "avanesov-3": 7},
    "shi-factors": {"shi-2-3": 9, "shi-4-5": 9, "shi-6-7": 17, "shi-8-9": 17},
}


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("seed", range(3))
def test_a_fall_is_what_the_page_of_figures_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    answers = set()
    for _ in range(60):
        half = rng.normal(rng.choice([0.1, 0.2, 1.0]), rng.choice([0.01, 0.2]), 12)
        end = rng.normal(rng.choice([0.0, 0.1, 0.15, 0.8]), rng.choice([0.01, 0.2]), 12)
        both = [Estimate(x.mean(), x.std(ddof=1) / math.sqrt(12)) for x in (half, end)]
        found = falls_to_zero(torch.from_numpy(half), torch.from_numpy(end))
        assert found == tends_to_zero(*both)
        answers.add(found)
    assert answers == {True, False}


@pytest.mark.parametrize("name", SMALL)
def test_rows_are_written_figure_by_figure(name: str, tmp_path: Path) -> None:
    run_experiment(name, tmp_path, progress=False, **SMALL[name])  # type: ignore[arg-type]
    rows = read(tmp_path / "factors.csv")
    assert list(rows[0]) == COLUMNS
    counts = {figure: sum(row["figure"] == figure for row in rows) for figure in NUM_ROWS[name]}
    assert counts == NUM_ROWS[name]
    table = read(tmp_path / "table.csv")
    for figure in counts:
        first, *others = [row for row in rows if row["figure"] == figure]
        assert (first["factor"], first["source"]) == ("none", "ours")
        assert all(row["factor"] != "none" and row["source"] for row in others)
    if name == "avanesov-factors":
        # the judged setting is that of the judged experiment, digit by digit
        (judged,) = build_experiments("avanesov-compare", **{**SMALL[name], "num_rounds": 16})
        run_experiment("avanesov-compare", tmp_path / "judged", progress=False, **{
            **SMALL[name], "num_rounds": judged.num_rounds
        })  # fmt: skip
        same = {row["method"]: row["mean"] for row in read(tmp_path / "judged" / "table.csv")}
        ours = [row for row in table if row["experiment"] == "avanesov-factors-compare"]
        assert ours[0]["mean"] == same["GP-UCB-CPD"]
    assert EXPERIMENTS[name].report is not None


def test_rows_of_64_runs_are_the_fits_of_the_full_experiments() -> None:
    rows = {r["setting"]: r for r in read(RESULTS / "factors-avanesov.csv") if r["trials"] == "64"}
    files = {"c = 0.3": "avanesov-powers-ridge-0.3.csv"}
    assert len(rows) == 2
    for setting, row in rows.items():
        known = read(RESULTS / files.get(setting, "avanesov-powers.csv"))
        (fit,) = [r for r in known if (r["source"], r["variable"]) == ("fitted", "K")]
        power, lower, upper = (float(fit[name]) for name in ("power", "lower", "upper"))
        assert row["ours"] == f"power {power:.3f} of K, interval {lower:.3f} to {upper:.3f}"
        assert float(row["difference"]) == pytest.approx(power - 0.282, abs=1e-9)
        assert float(row["standard_error"]) == pytest.approx((upper - lower) / 3.92, rel=1e-8)


@pytest.mark.parametrize("name", ["avanesov", "shi"])
def test_committed_rows_are_those_of_claims_of_the_page(name: str) -> None:
    rows = read(RESULTS / f"factors-{name}.csv")
    assert list(rows[0]) == COLUMNS
    claims = {row["published"] for row in read(RESULTS / "verdicts.csv")}
    figures = list(dict.fromkeys(row["figure"] for row in rows))
    assert {f: sum(r["figure"] == f for r in rows) for f in figures} == NUM_ROWS[f"{name}-factors"]
    for row in rows:
        assert row["claim"] in claims
        assert row["holds"] in ("yes", "no")
        assert math.isfinite(float(row["difference"]))
        assert float(row["standard_error"]) >= 0.0


@pytest.mark.slow
def test_committed_rows_are_played_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    panels = {e.name: e for e in build_experiments("shi-factors", num_trials=5)}
    whole = panels["shi-factors-rates-2"]
    names = (OCO_JUDGED.name, "constants of the servers, draw 3")
    some = replace(
        whole, make_methods=lambda study: [m for m in whole.make_methods(study) if m.name in names]
    )
    curves = run_arms_experiment(some, tmp_path, progress=False)
    rows = [r for r in read(RESULTS / "factors-shi.csv") if r["figure"] == "shi-6-7"]
    for name in names:
        (row,) = [r for r in rows if r["setting"] == name]
        known = averages(curves[name])
        ends = [known.at("violation", t) for t in (175, 350)]
        expected = f"{float(ends[0].mean()):.3g} half way, {float(ends[1].mean()):.3g} at the end"
        assert row["ours"] == expected
        assert float(row["difference"]) == pytest.approx(float((ends[1] - ends[0]).mean()))
    monkeypatch.setattr(avanesov_factors, "CALIBRATED", (("mean", 3.0),))
    (found,) = avanesov_factors.calibration()
    (row,) = [r for r in read(RESULTS / "avanesov-calibration.csv") if r["ridge"] == "3"]
    for column, cell in row.items():
        if column != "statistic":
            assert found[column] == pytest.approx(float(cell), rel=1e-8)


def test_the_calibration_counts_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few samples and streams, against tests of whole streams."""
    monkeypatch.setattr(avanesov_factors, "CALIBRATED", (("mean", 0.3), ("integral", 1.0)))
    mean, integral = avanesov_factors.calibration(num_trials=20, seed=3)
    assert mean["alarms_low"] <= mean["alarms"] <= mean["alarms_high"]
    assert integral["alarms"] > mean["alarms"]
    assert 0.0 <= mean["chosen_at_most"] == integral["chosen_at_most"] - 0.0 <= 1.0
    # the integral over [0, 5] is five times the mean, and so is its calibrated scale
    arms, generator = arms_of(1000), torch.Generator().manual_seed(0)
    drawn = torch.randint(1000, (30,), generator=generator)
    y = torch.randn(30, dtype=torch.float64, generator=generator)
    tests = [detector(1.0, s).on(arms).test(arms=drawn, Y=y) for s in ("mean", "integral")]
    assert torch.allclose(5.0 * tests[0].statistics, tests[1].statistics, rtol=1e-12)
    assert mean["calibrated_scale"] != PowerThreshold().scale


def test_substitute_constants_are_those_of_the_problem() -> None:
    X = 2.0 * torch.rand(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    theirs, ours = RatesProblem(0.1, 0.2), RatesOf(*SUBSTITUTES, is_noisy=True)
    assert torch.allclose(ours.evaluate_true(X), theirs.evaluate_true(X), atol=1e-12)
    assert torch.allclose(ours.constraint_values(X), theirs.constraint_values(X), atol=1e-15)
    noises = [p.observe(X, torch.Generator().manual_seed(1))[1] for p in (ours, theirs)]
    assert torch.allclose(*noises, atol=1e-15)
    assert theirs.optimal_value - 0.1 < ours.optimal_value <= theirs.optimal_value
    steep, shift = drawn_constants(4)
    assert drawn_constants(4) == (steep, shift) != drawn_constants(5)
    assert all(3.0 <= steep[i] <= 12.0 and 1.0 <= steep[i + 1] <= 10.0 for i in (0, 2))
    assert all(0.4 <= b <= 1.4 for b in shift)
    ends = RatesOf(steep, shift, budget=0.5, scale=3.0)
    corners = torch.tensor([[0.0] * 4, [2.0] * 4], dtype=torch.float64)
    assert ends.evaluate_true(corners).tolist() == pytest.approx([0.0, 12.0], abs=1e-12)
    assert ends.constraint_values(corners)[:, 0].tolist() == pytest.approx([-1.0, 4.2])


def test_epochs_differ_by_one_factor() -> None:
    setting = Setting("x", GardnerProblem(0.1), 9, ((1, 1), (1, 1)), (7.0, 1.95, 0.05), 45)
    known = {changed.factor: method for changed, method in epochs_of(setting, 2).items()}
    rules = {factor: m.build(0).loop.settings.constraints for factor, m in known.items()}
    assert rules["none"].epoch_length == 20
    assert rules["rounds an epoch"].epoch_length == 100  # the longest comes last
    assert rules["step of the multipliers"].penalty.c == 0.25
    assert rules["data of an epoch"].surrogate == "relabeled"
    assert {r.surrogate for f, r in rules.items() if f != "data of an epoch"} == {"fresh"}
    player = known["initial points"].build(7)
    record = play_constrained(player, setting.grid, 45, seed=1)
    first = [query for query in player.loop.history.queries if (query.id % 20) < NUM_FIRST]
    assert len({tuple(query.x.tolist()) for query in first}) > 10
    # without these draws it is the judged loop
    judged = play_constrained(known["none"].build(7), setting.grid, 45, seed=1)
    assert not torch.equal(record.points, judged.points)


def test_realized_functions_are_those_of_the_environment() -> None:
    """Regret and violation of a run, evaluated again at its points, one round at a time."""
    for method in (
        VaryingMethod("x", KINDS[0]),
        VaryingMethod("x", KINDS[1], is_stationary=True),
        VaryingMethod("x", REWARDS_ALONE, 2),
    ):
        regret, values, largest = play_in_environment(method, 60, 11)
        problem, _ = environment(method.played, 11)
        rewards, constraints = shi_varying.values_of_rounds(problem, 60)
        choices = problem.choices
        for t in (1, 2, 59):
            expected = torch.stack([problem.evaluate_true(x, t) for x in choices])
            assert torch.equal(rewards[t - 1], expected.squeeze())
            limits = torch.stack([problem.constraint_values(x, t) for x in choices])
            assert torch.equal(constraints[t - 1], limits.squeeze())
        # every round is one arm's regret and constraint
        _, best = best_fixed_arm(shi_varying.compared_with(problem, method.played), 60)
        for t in range(60):
            arm = (best[t] - rewards[t] - regret[t]).abs() + (constraints[t] - values[t]).abs()
            assert float(arm.min()) < 1e-12
        assert largest >= (1.0 if method.algorithm == 2 else 0.0)
        amplitude = float((rewards - rewards.mean(0)).abs().max())
        assert (amplitude < 1e-12) == method.is_stationary


def test_panels_of_realized_functions(tmp_path: Path) -> None:
    run_experiment("shi-varying", tmp_path, num_trials=2, num_rounds=12, progress=False)
    rows = read(tmp_path / "violation.csv")
    panels = dict.fromkeys(row["experiment"] for row in rows)
    assert [p.removeprefix("shi-varying-") for p in panels] == [
        *("rewards", "constraints"),
        *("waves", "drift"),
    ]
    assert list((tmp_path / "images").glob("shi-varying-*.svg"))
    # in all environments the best arm of all violates the constraint
    for trial in range(3):
        problem, _ = environment(KINDS[0], shi_varying.binding_seed(0, trial))
        (constraint,) = problem.constraints
        assert float(constraint.mean.values[problem.mean.values.argmax()]) >= 0.1
