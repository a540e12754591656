"""Sums and products of kernels, times and weights of rows in closed form, against dense algebra."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from botorch_bandits import BanditGP, TimeVaryingKernel
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.models.closed_form import InverseFactor
from botorch_bandits.models.composed_closed_form import ComposedClosedForm
from botorch_bandits.models.composed_kernels import ComposedKernel
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


def closed_form_of(model: Any) -> ComposedClosedForm:
    closed_form = model.closed_form
    assert type(closed_form) is ComposedClosedForm
    return closed_form


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    assert torch.allclose(found, expected.detach(), rtol=0.0, atol=tolerance)


def assert_dense(closed_form: Any, function: KernelFunction, noise: Tensor | float) -> None:
    points = POINTS.clone().requires_grad_()
    _, covariance = posterior(function, X, Y[:, 0] - MEAN, noise, POINTS)
    system, cross = function(X, X), function(points, X)
    system = system + torch.diag(torch.as_tensor(noise, dtype=torch.float64).expand(NUM_ROWS))
    mean = MEAN + cross @ torch.linalg.solve(system, Y[:, 0] - MEAN)
    prior = function(POINTS[:1], POINTS[:1]).squeeze()  # the same at all points
    variance = prior - (cross * torch.linalg.solve(system, cross.mT).mT).sum(-1)
    slopes = [
        torch.autograd.grad(each.sum(), points, retain_graph=True)[0] for each in (mean, variance)
    ]
    expected = (mean, variance, *slopes)
    for found, wanted in zip(closed_form.value_and_gradient(points), expected, strict=True):
        assert_close(found, wanted)
    for found, wanted in zip(closed_form.mean_and_variance(points), expected, strict=False):
        assert_close(found, wanted)
    for found, wanted in zip(closed_form.mean_and_gradient(points), expected[::2], strict=True):
        assert_close(found, wanted)
    assert_close(closed_form.mean(points), mean)
    assert_close(closed_form.covariance(points), covariance)


@every_case
@pytest.mark.parametrize("has_weights", [False, True])
def test_values_slopes_and_covariances_are_the_dense_ones(name: str, has_weights: bool) -> None:
    kernel, function = CASES[name]
    repeats = REPEATS if has_weights else None
    model = BanditGP(X, Y, kernel=kernel, noise=NOISE, prior_mean=MEAN, repeats=repeats)
    noise = NOISE / REPEATS if has_weights else NOISE
    assert_dense(closed_form_of(model), function, noise)
    levels = torch.as_tensor(noise, dtype=torch.float64).expand(NUM_ROWS)
    whitened = function(X, X) / levels.unsqueeze(-1)
    gain = 0.5 * torch.logdet(torch.eye(NUM_ROWS, dtype=torch.float64) + whitened)
    assert float(model.information_gain) == pytest.approx(float(gain), rel=1e-10)


@every_case
def test_rows_one_by_one_give_the_bits_of_all_at_once(name: str) -> None:
    kernel, _ = CASES[name]
    whole = closed_form_of(BanditGP(X, Y, kernel=kernel, noise=NOISE, prior_mean=MEAN))
    grown: Any = BanditGP(X[:5], Y[:5], kernel=kernel, noise=NOISE, prior_mean=MEAN)
    for start, end in ((5, 6), (6, 40), *((n, n + 1) for n in range(40, NUM_ROWS))):
        grown = grown.condition_on_observations(X[start:end], Y[start:end])
    assert torch.equal(closed_form_of(grown).weights, whole.weights)
    assert torch.equal(closed_form_of(grown).points, whole.points)
    moments = zip(
        closed_form_of(grown).mean_and_variance(POINTS),
        whole.mean_and_variance(POINTS),
        strict=True,
    )
    assert all(torch.equal(one, other) for one, other in moments)


@pytest.mark.parametrize("has_weights", [False, True])
def test_replaced_outcomes_keep_the_factor(has_weights: bool) -> None:
    kernel, function = CASES["product"]
    repeats = REPEATS if has_weights else None
    model = BanditGP(X, Y.cos(), kernel=kernel, noise=NOISE, prior_mean=MEAN, repeats=repeats)
    factor = closed_form_of(model).factor
    replaced = model.with_outcomes(Y)
    assert closed_form_of(replaced).factor is factor
    assert_dense(replaced.closed_form, function, NOISE / REPEATS if has_weights else NOISE)


def test_all_points_with_one_context_are_computed_as_any() -> None:
    kernel, _ = CASES["nested"]
    closed_form = closed_form_of(BanditGP(X, Y, kernel=kernel, noise=NOISE))
    points = POINTS.clone()
    points[:, 1] = 0.4
    one_by_one = [closed_form.value_and_gradient(point.unsqueeze(0)) for point in points]
    for found, each in zip(
        closed_form.value_and_gradient(points), zip(*one_by_one, strict=True), strict=True
    ):
        assert_close(found, torch.cat(each), 1e-11)


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
    assert type(ours.closed_form) is ComposedClosedForm
    for has_noise in (False, True):
        found = ours.posterior(points.unsqueeze(-2), observation_noise=has_noise)
        expected = ordinary.posterior(points.unsqueeze(-2), observation_noise=has_noise)
        assert_close(found.mean, expected.mean, 1e-8)
        assert_close(found.variance, expected.variance, 1e-8)
    (slope,) = torch.autograd.grad(expected.mean.sum(), points, retain_graph=True)
    assert_close(ours.closed_form.value_and_gradient(points)[2], slope, 1e-7)
    # levels are a plain attribute in GPyTorch: another one is noticed
    ours.likelihood.noise_covar.noise = ours.likelihood.noise_covar.noise * 2.0
    assert float((ours.posterior(points).mean - expected.mean.squeeze(-2)).abs().max()) > 1e-3


@pytest.mark.parametrize(
    "kernel",
    [
        LinearKernel() + RBFKernel(),
        ProductKernel(RBFKernel(), PeriodicKernel()),
        ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2])),
        RBFKernel(ard_num_dims=2),
        RBFKernel(active_dims=[5]),
    ],
)
def test_other_kernels_are_left_to_gpytorch(kernel: Kernel) -> None:
    assert ComposedKernel.read(kernel.double(), 3) is None


def test_a_time_varying_model_grows_and_one_with_weights_is_factorized_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = {"grown rows": 0, "whole": 0}
    extended, of_matrix = InverseFactor.extended, InverseFactor.of_matrix.__func__  # type: ignore[attr-defined]

    def count_rows(self: InverseFactor, num_rows: int, *rest: Any) -> Any:
        calls["grown rows"] += num_rows - self.num_rows
        return extended(self, num_rows, *rest)

    def count_whole(cls: Any, *rest: Any) -> Any:
        calls["whole"] += 1
        return of_matrix(cls, *rest)

    monkeypatch.setattr(InverseFactor, "extended", count_rows)
    monkeypatch.setattr(InverseFactor, "of_matrix", classmethod(count_whole))
    models = ForgettingModels(
        BanditGP.with_kernel(CASES["product"][0], noise=NOISE, input_transform=None),
        TimeVaryingKernel(0.1),
    )
    rounds = torch.arange(1, NUM_ROWS + 1)
    for n in range(NUM_ROWS - 5, NUM_ROWS + 1):
        model = models.build(X[:n], Y[:n], rounds[:n], n + 1)
        assert model.closed_form is not None
    assert calls == {"grown rows": NUM_ROWS, "whole": 0}
    weighted = BanditGP(X, Y, kernel=CASES["product"][0], noise=NOISE, repeats=REPEATS)
    assert weighted.closed_form is not None
    assert calls == {"grown rows": NUM_ROWS, "whole": 1}


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
    found = closed_form_of(model).mean_and_variance(points)
    assert_close(found[0], mean)
    assert_close(found[1], covariance.diagonal())
