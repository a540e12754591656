"""Draws from Gaussian process priors."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import (
    Kernel,
    RBFKernel,
    ScaleKernel,
)
from models.textbook import double, line
from torch import Tensor

from botorch_bandits.problems import gp_draw_on_arms


def se_kernel(lengthscale: float, scale: float) -> ScaleKernel:
    """A scaled squared exponential kernel of GPyTorch in float64."""
    kernel = ScaleKernel(RBFKernel()).double()
    # GPyTorch would round a plain Python number to float32.
    kernel.base_kernel.lengthscale = double(lengthscale)
    kernel.outputscale = double(scale)
    return kernel


def se_matrix(points: Tensor, lengthscale: float, scale: float) -> Tensor:
    """Its Gram matrix, from explicit differences."""
    differences = points.unsqueeze(1) - points.unsqueeze(0)
    return scale * torch.exp(-0.5 * differences.square().sum(dim=-1) / lengthscale**2)


def column(num_points: int, upper: float = 1.0) -> Tensor:
    """Equally spaced points on a line, as arms."""
    return line(0.0, upper, num_points)


def test_draw_applies_the_symmetric_square_root() -> None:
    # The draw is linear in one standard normal vector that depends on the seed alone. With
    # the identity as Gram matrix (arms far apart) the draw is that vector itself.
    stream = torch.Generator().manual_seed(9)
    normal = torch.randn(6, dtype=torch.float64, generator=stream)
    apart = gp_draw_on_arms(se_kernel(1.0, 1.0), column(6, upper=1e4), seed=9).values
    assert torch.allclose(apart, normal, rtol=0.0, atol=1e-12)
    choices = column(6, upper=2.0)
    gram = se_matrix(choices, 0.4, 3.0)
    eigenvalues, eigenvectors = torch.linalg.eigh(gram)
    root = eigenvectors @ eigenvalues.sqrt().diag() @ eigenvectors.T
    values = gp_draw_on_arms(se_kernel(0.4, 3.0), choices, seed=9).values
    assert torch.allclose(values, root @ normal, rtol=0.0, atol=1e-10)


def test_rescaling_is_affine_onto_the_unit_interval() -> None:
    choices = column(30)
    plain = gp_draw_on_arms(se_kernel(0.2, 5.0), choices, seed=3).values
    problem = gp_draw_on_arms(se_kernel(0.2, 5.0), choices, seed=3, rescale="unit_interval")
    low, high = min(plain.tolist()), max(plain.tolist())
    expected = [(value - low) / (high - low) for value in plain.tolist()]
    assert problem.values.tolist() == pytest.approx(expected, abs=1e-12)
    assert problem.values.min().item() == 0.0
    assert problem.optimal_value == 1.0


class NegativeKernel(Kernel):
    """Not a covariance function."""

    has_lengthscale = False

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        """Returns -1 everywhere."""
        shape = x1.shape[:-1] if diag else (*x1.shape[:-1], x2.shape[-2])
        return -torch.ones(shape, dtype=x1.dtype)


def test_indefinite_kernels_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel is not positive"):
        gp_draw_on_arms(NegativeKernel(), column(4))
