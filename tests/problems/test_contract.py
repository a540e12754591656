"""What every problem promises, whatever its function."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from botorch.test_functions.base import BaseTestProblem
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from models.textbook import double, uniform
from torch import Tensor

from botorch_bandits.problems import (
    ArmsProblem,
    BraninReward,
    RKHSFunction,
    gp_draw_on_arms,
)
from papers.environments import Hartmann3Reward

BOX = double([[-1.0, 0.0], [1.0, 3.0]])
ARMS = BOX[0] + (BOX[1] - BOX[0]) * uniform(40, 2, seed=5)
MATERN = ScaleKernel(MaternKernel(nu=2.5))

BOX_PROBLEMS: dict[str, Callable[[], BaseTestProblem]] = {
    "branin": lambda: BraninReward(noise_std=0.3),
    "hartmann3": lambda: Hartmann3Reward(noise_std=0.3),
    "rkhs_se": lambda: RKHSFunction(RBFKernel(), BOX, seed=1, noise_std=0.3),
    "rkhs_matern": lambda: RKHSFunction(MATERN, BOX, rkhs_norm=4.0, seed=2, noise_std=0.3),
}
ARM_PROBLEMS: dict[str, Callable[[], BaseTestProblem]] = {
    "table": lambda: ArmsProblem(ARMS, ARMS.sum(dim=-1), noise_std=0.3),
    "rkhs_on_arms": lambda: RKHSFunction.on_arms(MATERN, ARMS, seed=3, noise_std=0.3),
    "gp_on_arms": lambda: gp_draw_on_arms(MATERN, ARMS, seed=3, noise_std=0.3),
}
ALL_PROBLEMS = {**BOX_PROBLEMS, **ARM_PROBLEMS}
all_problems = pytest.mark.parametrize("name", list(ALL_PROBLEMS))


def points_of(problem: BaseTestProblem, *batch_shape: int) -> Tensor:
    """Random points in the domain of a problem."""
    generator = torch.Generator().manual_seed(11)
    if isinstance(problem, ArmsProblem):
        return problem.choices[torch.randint(problem.num_arms, batch_shape, generator=generator)]
    unit = torch.rand(*batch_shape, problem.dim, dtype=torch.float64, generator=generator)
    return problem.bounds[0] + (problem.bounds[1] - problem.bounds[0]) * unit


@all_problems
@pytest.mark.parametrize("batch_shape", [(), (1,), (5,), (2, 3)])
def test_shapes_and_dtype(name: str, batch_shape: tuple[int, ...]) -> None:
    problem = ALL_PROBLEMS[name]()
    points = points_of(problem, *batch_shape)
    for rewards in (problem(points), problem.evaluate_true(points)):
        assert rewards.shape == batch_shape
        assert rewards.dtype == torch.float64
    assert problem.bounds.shape == (2, problem.dim)
    assert problem.bounds.dtype == torch.float64


@all_problems
@pytest.mark.parametrize("batch_shape", [(), (4,)])
def test_noise_is_botorchs_own(name: str, batch_shape: tuple[int, ...]) -> None:
    problem = ALL_PROBLEMS[name]()
    points = points_of(problem, *batch_shape)
    clean = problem(points, noise=False).clone()
    torch.manual_seed(3)
    noisy = problem(points)
    torch.manual_seed(3)
    expected = clean + 0.3 * torch.randn_like(clean)
    assert torch.allclose(noisy, expected, rtol=0.0, atol=1e-12)
    # A noisy evaluation must not write into the stored rewards.
    assert torch.equal(problem(points, noise=False), clean)


@all_problems
def test_bad_points_are_refused(name: str) -> None:
    problem = ALL_PROBLEMS[name]()
    points = points_of(problem, 3)
    with_nan = points.clone()
    with_nan[2, 0] = float("nan")
    with pytest.raises(TypeError, match=r"X has dtype torch.float32.*double\(\)"):
        problem(points.float())
    with pytest.raises(ValueError, match=r"X\[2, 0\] is nan"):
        problem(with_nan)
    with pytest.raises(ValueError, match=r"\d, got \(3, 1\)"):
        problem(points[:, :1])
    # BoTorch checks boxes, the package checks arms
    with pytest.raises(ValueError, match=r"within the bounds|not one of the 40 arms"):
        problem(problem.bounds[1:] + 1.0)
