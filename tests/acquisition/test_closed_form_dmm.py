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

from botorch_bandits import (
    BanditGP,
    Box,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    SlidingWindow,
)
from botorch_bandits.confidence import bordered_basis
from botorch_bandits.models.fitted import LearnedGP
from botorch_bandits.models.forgetting import ForgettingModels

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


def dense_upper(
    model: Any,
    X: Tensor,
    y: Tensor,
    points: Tensor,
    sign: float,
    weights: Tensor | None = None,
) -> Tensor:
    """The bound as printed, in units of the prior deviation, of rows times roots of weights."""
    covariance, variance = model.covar_module, 1.7
    root = torch.ones(len(X), dtype=torch.float64) if weights is None else weights.sqrt()
    K = covariance(X).to_dense().detach() / variance * root * root[:, None]
    identity = torch.eye(len(X), dtype=torch.float64)
    base, residual = NOISE / variance, sign * (y - model.prior_mean) / math.sqrt(variance) * root

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
    cross = covariance(points, X).to_dense() / variance * root
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


@pytest.fixture
def decompositions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows they had; a basis is computed after every 8 rows."""
    sizes: list[int] = []
    eigh = torch.linalg.eigh

    def counted(matrix: Tensor) -> Any:
        sizes.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", counted)
    monkeypatch.setattr(bordered_basis, "STRIDE", 8)
    return sizes


def assert_dense(
    model: Any, X: Tensor, Y: Tensor, maximize: bool, weights: Tensor | None = None
) -> None:
    acquisition = DMMUpperConfidenceBound(
        model, rkhs_bound=NORM, noise_bound=math.sqrt(NOISE), delta=DELTA, maximize=maximize
    )
    points = POINTS.clone().requires_grad_()
    sign = 1.0 if maximize else -1.0
    expected = dense_upper(model, X, Y[:, 0], points, sign, weights)
    (slope,) = torch.autograd.grad(expected.sum(), points)
    closed_form = acquisition.closed_form
    assert closed_form is not None
    value, gradient = closed_form.value_and_gradient(POINTS)
    assert torch.allclose(acquisition(POINTS.unsqueeze(-2)), expected.detach(), atol=1e-8)
    assert torch.allclose(value, expected.detach(), rtol=0.0, atol=1e-8)
    assert torch.allclose(gradient, slope, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("name", ["plain", "product"])
def test_rows_that_leave_a_window_are_taken_out_of_the_basis(
    name: str, decompositions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values and slopes are the dense ones; a decomposition serves eight rounds."""
    monkeypatch.setattr("botorch_bandits.models.forgetting.FEWEST_ROWS", 10)
    X, Y = rows(80)
    recipe = BanditGP.with_kernel(kernel(name), noise=NOISE, prior_mean=2.5)
    models = ForgettingModels(recipe, SlidingWindow(30))
    rounds = torch.arange(1, 81)
    for t in range(36, 81):
        kept = slice(t - 30, t)
        model: Any = models.build(X[:t], Y[:t], rounds[:t], t + 1)
        assert model.num_rows == 30
        assert_dense(model, X[kept], Y[kept], maximize=t % 2 == 0)
    assert set(decompositions) <= {*range(24, 31)}
    assert len(decompositions) <= 9  # and one where the rows are factorized anew


@pytest.mark.parametrize("name", ["plain", "product"])
def test_rows_that_fade_keep_the_basis(name: str, decompositions: list[int]) -> None:
    X, Y = rows(60)
    recipe = BanditGP.with_kernel(kernel(name), noise=NOISE, prior_mean=2.5)
    forgetting = ExponentialWeights(0.95)
    models = ForgettingModels(recipe, forgetting)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(2))
    rounds = torch.arange(1, 61)[order]  # outcomes that arrive late, in another order
    for n in range(30, 61):
        weights = forgetting.weights(rounds[:n], 62 + n)
        model: Any = models.build(X[:n], Y[:n], rounds[:n], 62 + n)
        assert_dense(model, X[:n], Y[:n], n % 2 == 0, weights)
    assert decompositions == [24, 32, 40, 48, 56]
    again: Any = ForgettingModels(recipe, forgetting).build(X, Y, rounds, 122)
    values = (
        DMMUpperConfidenceBound(each, rkhs_bound=NORM, noise_bound=0.2)(POINTS.unsqueeze(-2))
        for each in (model, again)
    )
    assert torch.equal(*values)  # to the last bit, whenever the basis was computed


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


def coarse_bound(num_rows: int, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr("botorch_bandits.acquisition.closed_form_dmm.FEWEST_KEPT_ROWS", 20)
    X, Y = rows(num_rows)
    smooth = ScaleKernel(RBFKernel()).double()
    smooth.outputscale = torch.tensor(1.7, dtype=torch.float64)
    model = BanditGP.with_kernel(smooth, noise=NOISE, lengthscale=0.3)(X, Y)
    return DMMUpperConfidenceBound(model, rkhs_bound=NORM, noise_bound=0.2, **options)


@pytest.mark.parametrize("num_rows", [64, 70])
def test_coarse_set_explains_nearly_as_much(num_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left out is at most the share of the largest eigenvalue that is left out."""
    closed_form = coarse_bound(num_rows, monkeypatch).closed_form
    whole, leading = closed_form._set, closed_form._set.leading
    assert leading is not None
    num_kept, num_all = leading.eigenvectors.shape[-1], whole.eigenvectors.shape[-1]
    assert 0 < num_kept <= num_all // 2
    assert closed_form.coarse._set is leading
    base = float(whole.ridges[-1])
    eigenvalues = (whole.variance_weights[:, -1].reciprocal() - base).sort().values
    largest = float(eigenvalues[num_all - num_kept - 1])
    assert largest <= 0.1 * base
    assert float(eigenvalues[num_all - num_kept]) > 0.1 * base
    values = closed_form._posterior.kernel_values(POINTS)[0] * closed_form._factor
    if whole.border is None:
        _, variance, *_ = whole.moments(values, torch.ones(6).double())
        _, coarse, *_ = leading.moments(values, torch.ones(6).double())
        lost = coarse - variance
        assert bool((lost >= -1e-12).all())
        assert bool((lost <= largest / (largest + whole.ridges) + 1e-12).all())
    found = closed_form.coarse.value(POINTS)
    assert torch.allclose(found, closed_form.value(POINTS), rtol=0, atol=0.3)
    assert not torch.equal(found, closed_form.value(POINTS))
    X = POINTS.clone()
    _, slope = closed_form.coarse.value_and_gradient(X)
    for j in range(2):  # the slopes are those of the coarse bound
        step = torch.zeros(2).double()
        step[j] = 1e-6
        ends = closed_form.coarse.value(X + step) - closed_form.coarse.value(X - step)
        assert torch.allclose(slope[:, j], ends / 2e-6, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("nearby", [0.02, 1e-3])
def test_climbing_in_two_steps_ends_at_a_maximum_of_the_bound(
    sign: float, nearby: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the tops of the two bounds are further apart than expected."""
    monkeypatch.setattr("botorch_bandits.acquisition.closed_form_dmm.NEARBY", nearby)
    bound = coarse_bound(70, monkeypatch, maximize=sign > 0.0)
    closed_form = bound.closed_form
    assert closed_form.coarse is not None
    start = torch.rand(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    lower, upper = torch.zeros_like(start).numpy(), torch.ones_like(start).numpy()
    upper[:, 1] = 0.8
    start[:, 1] *= 0.8
    points, values = closed_form.climb(start.numpy(), lower, upper, 2000, None, "cpu")
    assert bool(((points >= lower) & (points <= upper)).all())
    found = torch.from_numpy(points)
    assert torch.allclose(bound(found.unsqueeze(1)), torch.from_numpy(values), rtol=0, atol=1e-9)
    grid = torch.linspace(0.0, 1.0, 201, dtype=torch.float64)
    X = torch.cartesian_prod(grid, 0.8 * grid)
    assert float(values.max()) >= float(closed_form.value(X).max()) - 1e-9
    best = found[int(values.argmax())]
    for radius in (1e-3, 1e-5):  # it is the top, not only near it
        around = best + radius * (2.0 * X - 1.0)[::37]
        around = around.clamp_min(0.0).minimum(torch.tensor([1.0, 0.8]).double())
        assert float(closed_form.value(around).max()) <= float(values.max()) + 1e-8


def test_few_rows_have_no_coarse_bound() -> None:
    X, Y = rows(70)
    model = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=0.3)(X, Y)
    bound = DMMUpperConfidenceBound(model, rkhs_bound=NORM, noise_bound=0.2)
    assert bound.closed_form is not None
    assert bound.closed_form.coarse is None
