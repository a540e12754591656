"""BoTorch's test functions as rewards, and the published formula where constants differ."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.test_functions import Branin
from torch import Tensor

from botorch_bandits.problems import BraninReward
from papers.environments import Hartmann3Reward


def uniform_points(bounds: Tensor, num_points: int, seed: int) -> Tensor:
    """Uniform points in a box."""
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(num_points, bounds.shape[1], dtype=torch.float64, generator=generator)
    return bounds[0] + (bounds[1] - bounds[0]) * unit


def test_branin_is_that_of_botorch_with_three_optimizers_of_zero_gradient() -> None:
    problem = BraninReward()
    assert problem.optimal_value == pytest.approx(-Branin().optimal_value, abs=1e-6)
    drawn = uniform_points(problem.bounds, 100, seed=0)
    assert torch.equal(problem(drawn), -Branin()(drawn))
    points = problem.optimizers.clone().requires_grad_(True)
    rewards = problem(points)
    assert rewards.tolist() == pytest.approx([problem.optimal_value] * 3, abs=1e-13)
    (gradient,) = torch.autograd.grad(rewards.sum(), points)
    assert gradient.abs().max().item() < 1e-12


def test_hartmann_formula() -> None:
    heights = [1.0, 1.2, 3.0, 3.2]
    rates = [[3.0, 10.0, 30.0], [0.1, 10.0, 35.0], [3.0, 10.0, 30.0], [0.1, 10.0, 35.0]]
    centers = [
        [0.3689, 0.1170, 0.2673],
        [0.4699, 0.4387, 0.7470],
        [0.1091, 0.8732, 0.5547],
        [0.0381, 0.5743, 0.8828],
    ]
    problem = Hartmann3Reward()
    points = uniform_points(problem.bounds, 100, seed=1)
    for row, reward in zip(points.tolist(), problem(points).tolist(), strict=True):
        expected = 0.0
        for height, rate, center in zip(heights, rates, centers, strict=True):
            exponent = sum(a * (x - p) ** 2 for a, x, p in zip(rate, row, center, strict=True))
            expected += height * math.exp(-exponent)
        assert reward == pytest.approx(expected, rel=1e-12)
