"""Functions of known RKHS norm, against dense formulas written out here."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RBFKernelGrad, ScaleKernel
from models.textbook import double, line
from torch import Tensor

from botorch_bandits.problems import RKHSFunction

BOX = double([[-2.0, 1.0], [1.0, 2.0]])
LENGTHSCALES = double([0.7, 0.3])


def se_kernel(scale: float = 1.0) -> ScaleKernel:
    """A scaled squared exponential kernel of GPyTorch in float64."""
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = LENGTHSCALES
    # GPyTorch would round a plain Python number to float32.
    kernel.outputscale = double(scale)
    return kernel


def se_matrix(left: Tensor, right: Tensor, scale: float = 1.0) -> Tensor:
    """The same kernel, written out entry by entry."""
    rows = []
    for x in left.tolist():
        row = []
        for y in right.tolist():
            exponent = sum(
                ((a - b) / ell) ** 2 for a, b, ell in zip(x, y, LENGTHSCALES.tolist(), strict=True)
            )
            row.append(scale * math.exp(-0.5 * exponent))
        rows.append(row)
    return double(rows)


def exponential_matrix(left: Tensor, right: Tensor, lengthscale: float) -> Tensor:
    """The Matern kernel with nu = 1/2: its Gram matrices are well conditioned."""
    return torch.exp(
        -torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist") / lengthscale
    )


def points_in_box(num_points: int, seed: int = 0) -> Tensor:
    """Uniform points in BOX."""
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(num_points, 2, dtype=torch.float64, generator=generator)
    return BOX[0] + (BOX[1] - BOX[0]) * unit


@pytest.mark.parametrize("scale", [1.0, 4.5])
def test_value_and_norm_match_the_written_out_kernel(scale: float) -> None:
    problem = RKHSFunction(se_kernel(scale), BOX, num_centers=12, rkhs_norm=2.5, seed=3)
    points = points_in_box(40)
    expected = se_matrix(points, problem.centers, scale) @ problem.weights
    assert torch.allclose(problem(points), expected, rtol=0.0, atol=1e-10)
    gram = se_matrix(problem.centers, problem.centers, scale)
    norm = math.sqrt((problem.weights @ gram @ problem.weights).item())
    assert norm == pytest.approx(2.5, rel=1e-12)
    assert problem.rkhs_norm == 2.5


@pytest.mark.parametrize("seed", range(4))
def test_optimum_in_one_dimension_matches_a_dense_grid(seed: int) -> None:
    kernel = RBFKernel().double()
    kernel.lengthscale = double(0.05)
    bounds = double([[0.0], [1.0]])
    problem = RKHSFunction(kernel, bounds, rkhs_norm=5.0, seed=seed)
    grid = line(0.0, 1.0, 100_001)
    best_on_grid = problem(grid).max().item()
    # Half a grid step costs at most |f''| h^2 / 8 <= norm sqrt(3) / ell^2 h^2 / 8.
    slack = 5.0 * math.sqrt(3.0) / 0.05**2 * 1e-10 / 8.0
    assert best_on_grid <= problem.optimal_value + 1e-12
    assert problem.optimal_value <= best_on_grid + slack


def test_on_arms_has_the_norm_and_the_exact_optimum() -> None:
    choices = points_in_box(25, seed=6)
    kernel = MaternKernel(nu=0.5).double()
    kernel.lengthscale = double(0.4)
    problem = RKHSFunction.on_arms(kernel, choices, num_centers=40, rkhs_norm=2.0, seed=1)
    gram = exponential_matrix(choices, choices, 0.4)
    # All centers are arms, so the interpolant on the arms is the function itself.
    squared = problem.values @ torch.linalg.solve(gram, problem.values)
    assert squared.item() == pytest.approx(4.0, rel=1e-8)
    assert problem.rkhs_norm == 2.0
    assert problem.optimal_value == problem(choices).max().item()
    other = RKHSFunction.on_arms(kernel, choices, num_centers=40, rkhs_norm=2.0, seed=2)
    assert not torch.equal(problem.values, other.values)


def test_unusable_kernels_are_refused() -> None:
    origin = torch.zeros(1, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"squared norm of 0.0"):
        RKHSFunction.on_arms(LinearKernel(), origin)
    with pytest.raises(ValueError, match="pass a kernel with"):
        RKHSFunction(RBFKernelGrad(), BOX)
