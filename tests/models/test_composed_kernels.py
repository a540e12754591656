"""Noise levels, transforms and time in front of points, against BoTorch and dense algebra."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from botorch_bandits import BanditGP, TimeVaryingKernel
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.models.fitted import LearnedGP
from botorch_bandits.models.forgetting import ForgettingModels

from .textbook import KernelFunction, double, matern, posterior, squared_exponential, uniform

NOISE, MEAN, NUM_ROWS = 0.02, 0.3, 70
X, POINTS = uniform(NUM_ROWS, 3, seed=0), uniform(7, 3, seed=1)
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


def on(function: KernelFunction, columns: list[int]) -> KernelFunction:
    return lambda A, B: function(A[..., columns], B[..., columns])


SMOOTH, MIDDLE, ROUGH = part(None, [0.4], [1]), part(2.5, [0.3, 0.6], [2, 0]), part(0.5, [0.8], [1])
ALL = part(1.5, [0.5, 0.7, 0.9], None)
smooth, middle = on(squared_exponential(0.4), [1]), on(matern(2.5, double([0.3, 0.6])), [2, 0])
rough, everywhere = on(matern(0.5, 0.8), [1]), matern(1.5, double([0.5, 0.7, 0.9]))
decay = matern(0.5, -2.0 / torch.tensor(0.9, dtype=torch.float64).log())

CASES: dict[str, tuple[Kernel, KernelFunction]] = {
    "one part": (scaled(MIDDLE, 1.7), lambda A, B: 1.7 * middle(A, B)),
    "product": (
        scaled(SMOOTH * scaled(MIDDLE, 0.6), 1.5),
        lambda A, B: 0.9 * smooth(A, B) * middle(A, B),
    ),
    "sum": (
        scaled(SMOOTH + scaled(MIDDLE, 0.6), 1.5),
        lambda A, B: 1.5 * smooth(A, B) + 0.9 * middle(A, B),
    ),
    "squared exponentials": (
        SMOOTH * part(None, [0.5, 0.3], [0, 1]),
        lambda A, B: smooth(A, B) * squared_exponential(double([0.5, 0.3]))(A[:, :2], B[:, :2]),
    ),
    "nested": (
        ProductKernel(AdditiveKernel(scaled(SMOOTH, 0.5), ROUGH * MIDDLE), scaled(ALL, 1.2)),
        lambda A, B: 1.2 * everywhere(A, B) * (0.5 * smooth(A, B) + rough(A, B) * middle(A, B)),
    ),
    "time": (
        TimeDecayKernel(scaled(part(2.5, [0.4, 0.5], None), 1.3), rate=0.1),
        lambda A, B: (
            1.3
            * decay(A[:, :1], B[:, :1])
            * matern(2.5, double([0.4, 0.5]))(A[..., 1:], B[..., 1:])
        ),
    ),
}
every_case = pytest.mark.parametrize("name", CASES)


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    assert torch.allclose(found, expected.detach(), rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("name", ["product", "plain"])
def test_noise_levels_and_transforms_of_botorch(name: str) -> None:
    kernel = part(2.5, [0.3, 0.6, 0.5], None) if name == "plain" else CASES["product"][0]
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
    # levels are a plain attribute in GPyTorch: another one is noticed
    ours.likelihood.noise_covar.noise = ours.likelihood.noise_covar.noise * 2.0
    assert float((ours.posterior(points).mean - expected.mean.squeeze(-2)).abs().max()) > 1e-3


def test_a_normalized_time_varying_model_has_a_closed_form() -> None:
    transform = Normalize(3, bounds=torch.stack([double([0.0] * 3), double([2.0, 4.0, 1.0])]))
    recipe = BanditGP.with_kernel(
        part(2.5, [0.4, 0.5, 0.6], None), noise=NOISE, input_transform=transform
    )
    models, rounds = ForgettingModels(recipe, TimeVaryingKernel(0.1)), torch.arange(1, NUM_ROWS + 1)
    model: Any = models.build(X, Y, rounds, NUM_ROWS + 1)
    points = torch.cat([torch.full((7, 1), NUM_ROWS + 1.0, dtype=torch.float64), POINTS], dim=-1)

    def function(A: Tensor, B: Tensor) -> Tensor:
        sides = double([2.0, 4.0, 1.0])
        space = matern(2.5, double([0.4, 0.5, 0.6]))(A[..., 1:] / sides, B[..., 1:] / sides)
        return decay(A[..., :1], B[..., :1]) * space

    inputs = torch.cat([rounds.double().unsqueeze(-1), X], dim=-1)
    mean, covariance = posterior(function, inputs, Y[:, 0], NOISE, points)
    found = model.posterior(points.unsqueeze(-2))
    assert_close(found.mean.flatten(), mean)
    assert_close(found.variance.flatten(), covariance.diagonal())
