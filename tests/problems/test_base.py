"""Rewards on a finite set of arms."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.test_functions import Ackley, Branin, BraninCurrin
from botorch.test_functions.synthetic import ConstrainedHartmann
from torch import Tensor

from botorch_bandits.problems import ArmsProblem, BraninReward, restrict_to_arms


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


def test_look_up_of_many_points_at_once() -> None:
    choices, values = random_arms(2000, 2)
    rows = torch.randint(2000, (7000,), generator=torch.Generator().manual_seed(1))
    assert torch.equal(ArmsProblem(choices, values)(choices[rows]), values[rows])


def test_optimum_is_the_largest_reward() -> None:
    choices, values = random_arms(50, 2)
    problem = ArmsProblem(choices, values)
    best = max(range(50), key=values.tolist().__getitem__)
    assert problem.optimal_arm == best
    assert problem.optimal_value == values.tolist()[best]
    assert torch.equal(problem.optimizers, choices[best : best + 1])


def test_all_best_arms_are_optimizers() -> None:
    choices = torch.tensor([[0.0], [1.0], [2.0], [3.0]], dtype=torch.float64)
    values = torch.tensor([1.0, 5.0, 2.0, 5.0], dtype=torch.float64)
    problem = ArmsProblem(choices, values)
    assert problem.optimal_arm == 1
    assert problem.optimizers.tolist() == [[1.0], [3.0]]


def test_bounds_are_the_smallest_box() -> None:
    choices, values = random_arms(30, 2)
    lower, upper = ArmsProblem(choices, values).bounds
    assert lower.tolist() == [min(column) for column in choices.T.tolist()]
    assert upper.tolist() == [max(column) for column in choices.T.tolist()]


def test_arms_are_copied() -> None:
    choices, values = random_arms(5, 2)
    problem = ArmsProblem(choices, values)
    original, expected = choices.clone(), values.clone()
    choices.add_(1.0)
    values.add_(1.0)
    assert torch.equal(problem(original), expected)


def test_negative_zero_is_zero() -> None:
    choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    problem = ArmsProblem(choices, torch.tensor([4.0, 5.0], dtype=torch.float64))
    assert problem(torch.tensor([[-0.0]], dtype=torch.float64)).item() == 4.0


def test_points_that_are_no_arms_are_refused() -> None:
    choices, values = random_arms(6, 2)
    problem = ArmsProblem(choices, values)
    points = choices[:4].clone()
    points[2, 1] = math.nextafter(points[2, 1].item(), 2.0)
    for X in (points, points.reshape(2, 2, 2), points[2]):
        with pytest.raises(ValueError, match=r"X has the row .* not one of the 6 arms") as info:
            problem(X)
        assert repr(points[2, 1].item()) in str(info.value)
        assert "arm 2 is nearest" in str(info.value)


def test_bad_arms_are_refused() -> None:
    choices, values = random_arms(4, 2)
    with pytest.raises(ValueError, match="choices rows 0 and 2 are the same point"):
        ArmsProblem(choices[[0, 1, 0, 1]], values)
    with pytest.raises(TypeError, match=r"choices has dtype torch.float32.*choices.double\(\)"):
        ArmsProblem(choices.float(), values)
    with pytest.raises(TypeError, match=r"values has dtype torch.float32.*values.double\(\)"):
        ArmsProblem(choices, values.float())
    with pytest.raises(ValueError, match=r"choices must be a matrix .*got shape \(4,\)"):
        ArmsProblem(choices[:, 0], values)
    with pytest.raises(ValueError, match=r"choices has shape \(0, 2\); at least one arm"):
        ArmsProblem(choices[:0], values[:0])
    with pytest.raises(ValueError, match=r"choices has shape \(2, 0\); at least one column"):
        ArmsProblem(choices[:2, :0], values[:2])
    with pytest.raises(ValueError, match=r"values must be a vector of length 4.*\(4, 1\)"):
        ArmsProblem(choices, values.unsqueeze(-1))
    with pytest.raises(ValueError, match=r"values\[0\] is inf"):
        ArmsProblem(choices, values.abs() / 0.0)


def test_restriction_keeps_rewards_and_noise() -> None:
    unit, _ = random_arms(300, 2)
    choices = unit * 15.0 - torch.tensor([5.0, 0.0], dtype=torch.float64)
    x, y = choices.T
    bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    expected = -(bend**2 + 10 * (1 - 1 / (8 * math.pi)) * torch.cos(x) + 10)
    for source in (Branin(noise_std=0.2, negate=True), BraninReward(noise_std=0.2)):
        problem = restrict_to_arms(source, choices)
        assert torch.allclose(problem(choices, noise=False), expected, rtol=0.0, atol=1e-10)
        assert problem.noise_std == 0.2
        # The best arm is worse than the best of the box; regret counts from the arm.
        assert problem.optimal_value == problem.values.max().item()
        assert problem.optimal_value < source.optimal_value
        assert problem.optimal_arm == expected.argmax().item()


def test_restriction_of_unsuitable_problems_is_refused() -> None:
    choices, values = random_arms(5, 2)
    with pytest.raises(
        ValueError, match=r"problem \(Ackley\) is to be minimized.*Ackley\(negate=True\)"
    ):
        restrict_to_arms(Ackley(dim=2), choices)
    with pytest.raises(ValueError, match="several objectives or constraints"):
        restrict_to_arms(BraninCurrin(negate=True), choices)
    with pytest.raises(ValueError, match="several objectives or constraints"):
        restrict_to_arms(ConstrainedHartmann(dim=6, negate=True), choices)
    with pytest.raises(TypeError, match="problem must be a BoTorch BaseTestProblem, got Tensor"):
        restrict_to_arms(values, choices)
    with pytest.raises(ValueError, match="choices must have 3 columns"):
        restrict_to_arms(Ackley(dim=3, negate=True), choices)
    with pytest.raises(ValueError, match=r"choices must lie inside the bounds.*row 0"):
        restrict_to_arms(BraninReward(), choices + 100.0)
    with pytest.raises(ValueError, match="rows 0 and 1 are the same point"):
        restrict_to_arms(BraninReward(), choices[[0, 0]])
