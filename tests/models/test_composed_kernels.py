"""Noise levels, transforms and time in front of points, against BoTorch and dense algebra."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import (
    Kernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from botorch_bandits.models.fitted import LearnedGP

from .textbook import double, uniform

NOISE, NUM_ROWS = 0.02, 70
X = uniform(NUM_ROWS, 3, seed=0)
Y = 2.0 * (4.0 * X.sum(-1, keepdim=True)).sin() + 0.5
REPEATS = 0.1 + 3.0 * uniform(NUM_ROWS, seed=2)


def part(nu: float | None, lengthscale: list[float], columns: list[int] | None) -> Kernel:
    options: dict[str, Any] = {"ard_num_dims": len(lengthscale), "active_dims": columns}
    kernel = RBFKernel(**options) if nu is None else MaternKernel(nu=nu, **options)
    kernel = kernel.double()
    kernel.lengthscale = double(lengthscale)
    return kernel


def scaled(kernel: Kernel, scale: float) -> ScaleKernel:
    kernel = ScaleKernel(kernel).double()
    kernel.outputscale = double(scale)
    return kernel


PLAIN = part(2.5, [0.3, 0.6, 0.5], None)
PRODUCT = scaled(part(None, [0.4], [1]) * scaled(part(2.5, [0.3, 0.6], [2, 0]), 0.6), 1.5)


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    assert torch.allclose(found, expected.detach(), rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("kernel", [PLAIN, PRODUCT])
def test_noise_levels_and_transforms_of_botorch(kernel: Kernel) -> None:
    bounds = torch.stack([double([0.0, -1.0, 0.1]), double([2.0, 3.0, 0.9])])
    given: dict[str, Any] = {
        "train_Yvar": NOISE / REPEATS.unsqueeze(-1),
        "covar_module": kernel,
        "input_transform": Normalize(3, bounds=bounds),
        "outcome_transform": Standardize(1),
    }
    raw = bounds[0] + (bounds[1] - bounds[0]) * X
    ours, ordinary = LearnedGP(raw, Y, **given).eval(), SingleTaskGP(raw, Y, **given).eval()
    points = raw[:9].clone().requires_grad_() + 0.01
    for has_noise in (False, True):
        found = ours.posterior(points.unsqueeze(-2), observation_noise=has_noise)
        expected = ordinary.posterior(points.unsqueeze(-2), observation_noise=has_noise)
        assert_close(found.mean, expected.mean, 1e-8)
        assert_close(found.variance, expected.variance, 1e-8)
    (slope,) = torch.autograd.grad(expected.mean.sum(), points, retain_graph=True)
    (own,) = torch.autograd.grad(found.mean.sum(), points, retain_graph=True)
    assert_close(own, slope, 1e-7)
    # levels are a plain attribute in GPyTorch: another one counts from train() on
    ours.likelihood.noise_covar.noise = ours.likelihood.noise_covar.noise * 2.0
    ours.train().eval()
    assert float((ours.posterior(points).mean - expected.mean.squeeze(-2)).abs().max()) > 1e-3
