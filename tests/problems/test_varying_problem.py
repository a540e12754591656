"""Environments that vary around a mean, how much they do, and what regret is against."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import AdditiveEpochs, Arms, BanditGP, BanditLoop, GPUpperConfidenceBound, run
from botorch_bandits.problems import (
    ArmsProblem,
    BraninReward,
    VaryingProblem,
    best_fixed_arm,
    variation_budget,
)

CHOICES = torch.linspace(0.0, 1.0, 7, dtype=torch.float64).unsqueeze(-1)


def table(seed: int, scale: float = 1.0) -> ArmsProblem:
    stream = torch.Generator().manual_seed(seed)
    values = torch.randn(len(CHOICES), dtype=torch.float64, generator=stream)
    return ArmsProblem(CHOICES, scale * values / values.abs().max(), 0.1)


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("kind", ["waves", "shocks"])
def test_functions_of_rounds_are_what_the_formula_says(kind: str, is_shared: bool) -> None:
    mean, shape = table(0), None if is_shared else table(1)
    environment = VaryingProblem(mean, 0.3, kind, period=9.0, seed=4, shape=shape)
    h = torch.ones(7, dtype=torch.float64) if shape is None else shape.values
    coefficients = [environment.coefficient(t) for t in range(1, 200)]
    for t in (1, 2, 50):
        expected = mean.values + 0.3 * coefficients[t - 1] * h
        assert torch.allclose(environment.arm_values(t), expected, rtol=0.0, atol=1e-14)
        assert torch.allclose(environment.evaluate_true(CHOICES, t), expected, rtol=0, atol=1e-14)
        assert environment.optimal_value(t) == pytest.approx(float(expected.max()), abs=1e-14)
        assert environment.at(t).noise_std == 0.1
    if kind == "waves":
        assert coefficients[3] == pytest.approx(math.sin(8.0 * math.pi / 9.0), abs=1e-12)
    else:
        assert set(coefficients) == {1.0, -1.0}
        assert abs(sum(coefficients)) < 50  # 3.5 standard deviations
        again = VaryingProblem(mean, 0.3, kind, seed=4)
        assert [again.coefficient(t) for t in (150, 3)] == [coefficients[149], coefficients[2]]
    assert environment.variation == pytest.approx(0.3)


def test_on_a_box_it_moves_as_a_whole() -> None:
    mean = BraninReward(noise_std=0.2)
    environment = VaryingProblem(mean, 2.0, period=4.0)
    x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    expected = float(mean(x, noise=False)) + 2.0
    assert float(environment.evaluate_true(x, 1)) == pytest.approx(expected, abs=1e-12)
    assert environment.optimal_value(1) == pytest.approx(float(mean.optimal_value) + 2.0)


def test_budgets_and_the_best_arm_against_loops_over_everything() -> None:
    constraint = VaryingProblem(table(2, 0.5), 0.2, "shocks", seed=8, shape=table(3))
    environment = VaryingProblem(
        table(0), 0.3, period=5.0, shape=table(1), constraints=[constraint]
    )
    T = 13
    values = [environment.arm_values(t).tolist() for t in range(1, T + 1)]
    costs = [constraint.arm_values(t).tolist() for t in range(1, T + 1)]
    budget = variation_budget(environment, T)
    for rows, path, widest in (
        (values, budget.reward, budget.widest),
        (costs, budget.constraints[0], budget.widest_constraints[0]),
    ):
        steps = [max(abs(p[i] - q[i]) for i in range(7)) for p, q in pairwise(rows)]
        assert path == pytest.approx(sum(steps), rel=1e-12)
        means = [sum(row[i] for row in rows) / T for i in range(7)]
        off = max(abs(row[i] - means[i]) for row in rows for i in range(7))
        assert widest == pytest.approx(off, rel=1e-12)
    for meets in ("every round", "on average"):
        best, arm = -math.inf, -1
        for i in range(7):
            each = [row[i] for row in costs]
            feasible = max(each) <= 0.0 if meets == "every round" else sum(each) <= 0.0
            total = sum(row[i] for row in values)
            if feasible and total > best:
                best, arm = total, i
        found, rewards = best_fixed_arm(environment, T, meets)
        assert found == arm
        assert float(rewards.sum()) == pytest.approx(best, rel=1e-12)


def test_a_loop_plays_it() -> None:
    constraint = VaryingProblem(table(2, 0.5), 0.2, "shocks", seed=8)
    environment = VaryingProblem(table(0), 0.3, period=5.0, constraints=[constraint])
    loop = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(RBFKernel(), noise=0.1),
        GPUpperConfidenceBound.with_options(width=2.0),
        constraints=AdditiveEpochs(1, 4),
        seed=0,
    )
    result = run(loop, environment, 9, progress=False)
    expected = [
        environment.optimal_value(t) - float(environment.evaluate_true(q.x.unsqueeze(0), t))
        for t, q in enumerate(loop.history.queries, start=1)
    ]
    assert list(result.regret) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"amplitude": -1.0}, ValueError, "amplitude"),
        ({"amplitude": math.nan}, ValueError, "amplitude"),
        ({"kind": "noise"}, ValueError, "kind"),
        ({"period": 0.0}, ValueError, "period"),
        ({"seed": -1}, ValueError, "seed"),
        ({"shape": table(1, 2.0)}, ValueError, "shape has the value 2"),
        ({"shape": BraninReward()}, ValueError, "shape is not on the arms"),
        ({"mean": 3.0}, TypeError, "mean"),
    ],
)
def test_bad_settings_are_named(changed: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        VaryingProblem(**{"mean": table(0), "amplitude": 0.1, **changed})


def test_bad_questions_are_named() -> None:
    environment = VaryingProblem(BraninReward(), 0.1)
    for question in (variation_budget, best_fixed_arm):
        with pytest.raises(ValueError, match="on a box"):
            question(environment, 5)
    costly = VaryingProblem(
        table(0), 0.1, constraints=[ArmsProblem(CHOICES, 1.0 + 0.0 * CHOICES[:, 0])]
    )
    with pytest.raises(ValueError, match="no arm meets the constraints"):
        best_fixed_arm(costly, 3)
    with pytest.raises(ValueError, match="num_rounds"):
        variation_budget(costly, 0)
