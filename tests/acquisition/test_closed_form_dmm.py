"""DMM on boxes: kept eigenvectors and closed-form slopes, against one inverse a ridge."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import BanditGP, Box, DMMUpperConfidenceBound
from botorch_bandits.confidence import bordered_basis
from botorch_bandits.models.fitted import LearnedGP

NORM, DELTA, NOISE, NUM_RIDGES = 5.0, 0.1, 0.04, 48
POINTS = torch.rand(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def few_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigenvectors of 32 rows are those of a model of 37; models of less have all of them."""
    monkeypatch.setattr(bordered_basis, "STRIDE", 32)
    monkeypatch.setattr("botorch_bandits.acquisition.dmm.FEWEST_KEPT_ROWS", 20)


def rows(num_rows: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(num_rows, 2, dtype=torch.float64, generator=generator)
    noise = 0.2 * torch.randn(num_rows, 1, dtype=torch.float64, generator=generator)
    return X, 3.0 + (4.0 * X).sin().sum(-1, keepdim=True) + noise


def kernel(name: str) -> Any:
    found: Any = MaternKernel(nu=2.5)
    if name == "product":
        found = MaternKernel(nu=2.5, active_dims=[0]) * RBFKernel(active_dims=[1])
    found = ScaleKernel(found).double()
    found.outputscale = torch.tensor(1.7, dtype=torch.float64)
    return found


def dense_upper(model: Any, X: Tensor, y: Tensor, points: Tensor, sign: float) -> Tensor:
    """The bound as printed, in units of the prior deviation."""
    covariance, variance = model.covar_module, 1.7
    K = covariance(X).to_dense().detach() / variance
    identity = torch.eye(len(X), dtype=torch.float64)
    base, residual = NOISE / variance, sign * (y - model.prior_mean) / math.sqrt(variance)

    def inverse(ridge: Tensor | float) -> Tensor:
        return torch.linalg.inv(K + ridge * identity)

    radius = (
        base * residual @ inverse(base) @ residual
        + base * torch.logdet(identity + K / base)
        + 2.0 * base * math.log(1.0 / DELTA)
    )
    norm = NORM / math.sqrt(variance)
    high = 1e2 * (base + float(K.trace()))
    steps = torch.linspace(0.0, 1.0, NUM_RIDGES - 1, dtype=torch.float64)
    grid = [*(1e-2 * base * (high / (1e-2 * base)) ** steps), base]
    cross = covariance(points, X).to_dense() / variance
    ends = []
    for ridge in grid:
        solved = inverse(ridge)
        radicand = radius / ridge + norm**2 - residual @ solved @ residual
        assert radicand > 0.0
        deviation = (1.0 - ((cross @ solved) * cross).sum(-1)).sqrt()
        ends.append(cross @ solved @ residual + deviation * radicand.sqrt())
    ends.append(torch.full_like(ends[0], norm))
    upper = torch.stack(ends).min(0).values
    return math.sqrt(variance) * upper + sign * model.prior_mean


@pytest.mark.parametrize("name", ["plain", "product"])
@pytest.mark.parametrize("num_rows", [12, 32, 37])
@pytest.mark.parametrize("noise_bound", [math.sqrt(NOISE), "model"])
@pytest.mark.parametrize("maximize", [True, False])
def test_values_and_slopes_are_the_dense_ones(
    name: str, num_rows: int, noise_bound: Any, maximize: bool
) -> None:
    X, Y = rows(num_rows)
    model = BanditGP(X, Y, kernel=kernel(name), noise=NOISE, prior_mean=2.5)
    acquisition = DMMUpperConfidenceBound(
        model, rkhs_bound=NORM, noise_bound=noise_bound, delta=DELTA, maximize=maximize
    )
    assert (acquisition._sets[0].border is None) == (num_rows != 37)
    points = POINTS.clone().requires_grad_()
    expected = dense_upper(model, X, Y[:, 0], points, 1.0 if maximize else -1.0)
    (slope,) = torch.autograd.grad(expected.sum(), points)
    closed_form = acquisition.closed_form
    assert closed_form is not None
    value, gradient = closed_form.value_and_gradient(POINTS)
    for found in (value, acquisition(POINTS.unsqueeze(-2)), closed_form.value(POINTS)):
        assert torch.allclose(found, expected.detach(), rtol=0.0, atol=1e-8)
    assert torch.allclose(gradient, slope, rtol=0.0, atol=1e-8)


def test_a_kept_basis_serves_all_rows_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = rows(70)
    sizes, eigh = [], torch.linalg.eigh

    def counted(matrix: Tensor) -> Any:
        sizes.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", counted)
    build = BanditGP.with_kernel(kernel("plain"), noise=NOISE).builder(0)
    for n in range(33, 71):
        grown = DMMUpperConfidenceBound(build(X[:n], Y[:n]), rkhs_bound=NORM, noise_bound=0.2)
    assert sizes == [32, 64]
    # another history, another basis: what is kept is looked at
    other = DMMUpperConfidenceBound(
        BanditGP(X, Y, kernel=kernel("plain"), noise=NOISE), rkhs_bound=NORM, noise_bound=0.2
    )
    assert sizes == [32, 64, 64]
    assert torch.equal(other(POINTS.unsqueeze(-2)), grown(POINTS.unsqueeze(-2)))


def test_a_refuted_set_and_transforms_are_followed() -> None:
    X, Y = rows(37)
    bounds = torch.tensor([[0.0, -1.0], [2.0, 1.0]], dtype=torch.float64)
    learned: Any = LearnedGP(
        X,
        Y,
        covar_module=kernel("plain"),
        input_transform=Normalize(2, bounds=bounds),
        outcome_transform=Standardize(1),
    )
    for norm in (0.05, 60.0):
        for maximize in (True, False):
            with pytest.warns() if norm < 1.0 else nullcontext():
                acquisition = DMMUpperConfidenceBound(
                    learned.eval(), rkhs_bound=norm, noise_bound=0.3, maximize=maximize
                )
            assert acquisition.is_refuted == (norm < 1.0)
            points = POINTS.clone().requires_grad_()
            expected = acquisition(points.unsqueeze(-2))
            (slope,) = torch.autograd.grad(expected.sum(), points)
            closed_form = acquisition.closed_form
            assert closed_form is not None
            value, gradient = closed_form.value_and_gradient(POINTS)
            assert torch.allclose(value, expected.detach(), rtol=0.0, atol=1e-9)
            assert torch.allclose(gradient, slope, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("noise_bound", [0.2, "model"])
def test_rows_with_weights_have_slopes_too(noise_bound: Any) -> None:
    X, Y = rows(37)
    weights = torch.linspace(0.1, 2.0, 37, dtype=torch.float64)
    model = BanditGP(X, Y, kernel=kernel("plain"), noise=NOISE, repeats=weights)
    acquisition = DMMUpperConfidenceBound(model, rkhs_bound=NORM, noise_bound=noise_bound)
    closed_form = acquisition.closed_form
    assert closed_form is not None
    points = POINTS.clone().requires_grad_()
    expected = acquisition(points.unsqueeze(-2))
    (slope,) = torch.autograd.grad(expected.sum(), points)
    value, gradient = closed_form.value_and_gradient(POINTS)
    assert torch.allclose(value, expected.detach(), rtol=0.0, atol=1e-9)
    assert torch.allclose(gradient, slope, rtol=0.0, atol=1e-8)


def test_a_box_is_searched_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = rows(37)
    acquisition = DMMUpperConfidenceBound(
        BanditGP(X, Y, kernel=kernel("plain"), noise=NOISE), rkhs_bound=NORM, noise_bound=0.2
    )
    box = Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=6, raw_samples=64)
    _, value = box.maximize(acquisition, seed=1)
    monkeypatch.setattr(DMMUpperConfidenceBound, "closed_form", None)
    _, ordinary = box.maximize(acquisition, seed=1)
    assert value >= ordinary - 1e-6
