"""Rewards on a finite set of arms."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from botorch_bandits.problems import ArmsProblem


def random_arms(num_arms: int, dim: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Arms in the unit cube with standard normal rewards."""
    generator = torch.Generator().manual_seed(seed)
    choices = torch.rand(num_arms, dim, dtype=torch.float64, generator=generator)
    return choices, torch.randn(num_arms, dtype=torch.float64, generator=generator)


def test_look_up_returns_the_rewards_of_the_rows() -> None:
    choices, values = random_arms(200, 3)
    problem = ArmsProblem(choices, values)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    assert torch.equal(problem(choices[order]), values[order])
    assert torch.equal(problem.arm_indices(choices[order]), order)
    grid = order[:6].reshape(2, 3)
    assert torch.equal(problem(choices[grid]), values[grid])
    assert problem(choices[:0]).shape == (0,)
    assert (problem.num_arms, problem.dim) == (200, 3)


def test_arms_are_copied() -> None:
    choices, values = random_arms(5, 2)
    problem = ArmsProblem(choices, values)
    original, expected = choices.clone(), values.clone()
    choices.add_(1.0)
    values.add_(1.0)
    assert torch.equal(problem(original), expected)


def test_bad_arms_are_refused() -> None:
    choices, values = random_arms(4, 2)
    with pytest.raises(ValueError, match="rows 0 and 2"):
        ArmsProblem(choices[[0, 1, 0, 1]], values)
    with pytest.raises(TypeError, match=r"values has dtype torch.float32.*values.double\(\)"):
        ArmsProblem(choices, values.float())
    with pytest.raises(ValueError, match=r"of length 4.*\(4, 1\)"):
        ArmsProblem(choices, values.unsqueeze(-1))
    with pytest.raises(ValueError, match=r"values\[0\] is inf"):
        ArmsProblem(choices, values.abs() / 0.0)
