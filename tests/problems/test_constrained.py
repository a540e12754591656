"""Constrained problems: functions, optima, noise and grids."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from models.textbook import double
from torch import Tensor

from botorch_bandits.problems import ConstrainedArmsProblem, ConstrainedProblem
from papers.environments import GardnerProblem


def points_of(problem: ConstrainedProblem, *shape: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    unit = torch.rand(*shape, problem.dim, dtype=torch.float64, generator=stream)
    return problem.bounds[0] + (problem.bounds[1] - problem.bounds[0]) * unit


def gardner_by_hand(x: np.ndarray) -> tuple[float, float]:
    return -math.sin(x[0]) - x[1], math.sin(x[0]) * math.sin(x[1]) + 0.95


def test_gardner_against_scalar_arithmetic() -> None:
    problem = GardnerProblem()
    points = points_of(problem, 5, 40)
    expected = double([[gardner_by_hand(x) for x in rows] for rows in points.numpy()])
    close = {"rtol": 0.0, "atol": 1e-12}
    torch.testing.assert_close(problem(points, noise=False), expected[..., 0], **close)
    g = problem.constraint_values(points)
    torch.testing.assert_close(g, expected[..., 1:], **close)
    assert torch.equal(problem.evaluate_slack_true(points), -g)
    assert torch.equal(problem.is_feasible(points, noise=False), expected[..., 1] <= 0)


def test_the_optimum_of_gardner_against_dense_optimization() -> None:
    """Any feasible x has f(x) <= f(x) - kappa g(x), so the largest of these bounds the optimum."""
    problem = GardnerProblem()
    value = problem(problem.optimizers, noise=False)
    assert value.item() == pytest.approx(problem.optimal_value, abs=1e-12)
    assert abs(problem.constraint_values(problem.optimizers).item()) < 1e-12
    x1, x2 = np.meshgrid(*[np.linspace(0.0, 6.0, 3001)] * 2, indexing="ij")
    penalty = problem.optimal_multiplier * (np.sin(x1) * np.sin(x2) + 0.95)
    # the grid's largest value is at most its spacing squared below that of the box
    gap = problem.optimal_value - (-np.sin(x1) - x2 - penalty).max()
    assert -1e-9 <= gap <= 1e-5


# --- noise ------------------------------------------------------------------------------------


def test_noise_on_reward_and_constraint_is_normal_with_the_given_deviations() -> None:
    problem = GardnerProblem(noise_std=0.1, constraint_noise_std=0.3)
    points = points_of(problem, 1).expand(40_000, 2)
    rewards, constraints = problem.observe(points, torch.Generator().manual_seed(1))
    noise = rewards - problem(points, noise=False)
    on_constraint = (constraints - problem.constraint_values(points))[:, 0]
    # five standard errors of mean, deviation and kurtosis
    for draws, std in ((noise, 0.1), (on_constraint, 0.3)):
        assert abs(draws.mean().item()) < 5 * std / 200
        assert draws.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * 40_000))
        assert (draws / std).pow(4).mean().item() == pytest.approx(3.0, abs=5 * math.sqrt(96) / 200)
    assert abs(torch.corrcoef(torch.stack([noise, on_constraint]))[0, 1].item()) < 5 / 200


# --- refusals ---------------------------------------------------------------------------------


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="constraint_noise_std is -1"):
        GardnerProblem(constraint_noise_std=-1.0)
    choices = torch.arange(2, dtype=torch.float64).unsqueeze(-1)
    with pytest.raises(ValueError, match="one row for each"):
        ConstrainedArmsProblem(choices, choices[:, 0], choices[:1])
    with pytest.raises(TypeError, match="float64"):
        ConstrainedArmsProblem(choices, choices[:, 0], choices.float())
    with pytest.raises(ValueError, match="constraint_noise_std is -1"):
        ConstrainedArmsProblem(choices, choices[:, 0], choices, constraint_noise_std=-1.0)
    with pytest.raises(ValueError, match="one of the 2"):
        ConstrainedArmsProblem(choices, choices[:, 0], choices).constraint_values(choices + 0.5)
