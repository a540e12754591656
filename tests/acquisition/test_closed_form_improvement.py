"""Improvement in closed form: BoTorch's values and automatic gradients, and when there is none."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.acquisition import analytic
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.generation import gen_candidates_scipy
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    FittedSingleTaskGP,
    Float,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    Space,
    gen_candidates_batched,
)
from botorch_bandits import optim as generation
from botorch_bandits.acquisition.rules import log_noise_discount
from botorch_bandits.acquisition.scores import MINIMUM_VARIANCE_OF_IMPROVEMENT, ClosedFormImprovement

from .cases import uniform

CLASSES = {
    LogExpectedImprovement: analytic.LogExpectedImprovement,
    LogProbabilityOfImprovement: analytic.LogProbabilityOfImprovement,
}
both_classes = pytest.mark.parametrize("cls", list(CLASSES))
both_ways = pytest.mark.parametrize("maximize", [True, False])

SPACE = Space(
    {"x": Float(-2.0, 5.0), "kind": Categorical(["a", "b", "c"]), "y": Float(1e-3, 1.0, log=True)}
)


def outcomes(X: Tensor) -> Tensor:
    return 30.0 + 8.0 * (X.sum(-1, keepdim=True)).sin()


def models() -> dict[str, Any]:
    box = Box([(0.0, 1.0)] * 3)
    X, Z = uniform(14, 3, seed=0), SPACE.sample(14, torch.Generator().manual_seed(0))
    return {
        "fitted": (FittedSingleTaskGP.for_domain(box)(X, outcomes(5.0 * X)), X, box),
        "fixed": (
            BanditGP(X, outcomes(5.0 * X) - 30.0, MaternKernel(nu=1.5).double(), noise=0.1),
            X,
            box,
        ),
        "categories": (FittedSingleTaskGP.for_domain(SPACE)(Z, outcomes(Z)), Z, SPACE),
    }


MODELS = models()


def values_and_gradients(acquisition: Any, X: Tensor) -> tuple[Tensor, Tensor]:
    at = X.clone().requires_grad_()
    values = acquisition(at.unsqueeze(-2))
    (gradient,) = torch.autograd.grad(values.sum(), at)
    return values.detach(), gradient


# --- values and gradients -------------------------------------------------------------------------


@both_classes
@both_ways
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("margin", [0.0, 0.7])
def test_values_and_gradients_are_botorchs(
    cls: Any, maximize: bool, name: str, margin: float
) -> None:
    model, observed, domain = MODELS[name]
    X = domain.sample(9, torch.Generator().manual_seed(3))
    for pending in (None, domain.sample(2, torch.Generator().manual_seed(4))):
        ours = cls(model, maximize=maximize, margin=margin, X_observed=observed, X_pending=pending)
        theirs = CLASSES[cls](ours.model, best_f=ours.best_f, maximize=maximize)
        assert ours.closed_form is not None
        value, gradient = ours.closed_form.value_and_gradient(X)
        expected, slope = values_and_gradients(theirs, X)
        assert torch.allclose(value, expected, rtol=1e-10, atol=1e-10)
        size = float(slope.abs().max())
        assert torch.allclose(gradient, slope, rtol=1e-8, atol=1e-8 * size)
        assert torch.allclose(value, ours(X.unsqueeze(-2)), rtol=1e-10, atol=1e-10)


def noisy_model() -> tuple[Any, Tensor, float]:
    X = uniform(14, 3, seed=0)
    model = FittedSingleTaskGP([(0.0, 1.0)] * 3)(X, outcomes(5.0 * X))
    model.likelihood.noise = 0.2
    variance = model.outcome_transform.stdvs.item() ** 2
    return model.eval(), X, variance * model.covar_module.outputscale.item()


@both_ways
@pytest.mark.parametrize("name", ["fixed", "fitted"])
def test_the_augmented_form_is_the_papers(maximize: bool, name: str) -> None:
    model, observed, prior_variance = (
        noisy_model() if name == "fitted" else (*MODELS[name][:2], 1.0)
    )
    X = uniform(9, 3, seed=3)
    for pending in (None, uniform(2, 3, seed=4)):
        given: dict[str, Any] = {"X_observed": observed, "X_pending": pending, "maximize": maximize}
        ours = LogExpectedImprovement(model, augmented=True, **given)
        plain = LogExpectedImprovement(model, **given)
        # the paper's factor from the moments of BoTorch's posteriors
        variance = ours.model.posterior(X).variance.squeeze(-1).detach()
        noisy = model.posterior(observed, observation_noise=True).variance
        noise = float((noisy - model.posterior(observed).variance).mean()) - 1e-3 * prior_variance
        assert noise > 0.01
        factor = 1.0 - math.sqrt(noise) / (variance + noise).sqrt()
        expected = plain(X.unsqueeze(-2)).detach() + factor.log()
        assert torch.allclose(ours(X.unsqueeze(-2)), expected, rtol=1e-8, atol=1e-8)
        assert ours.closed_form is not None
        value, gradient = ours.closed_form.value_and_gradient(X)
        same, slope = values_and_gradients(ours, X)
        assert torch.allclose(value, same, rtol=1e-10, atol=1e-10)
        assert torch.allclose(gradient, slope, rtol=1e-8, atol=1e-8 * float(slope.abs().max()))


@pytest.mark.parametrize("name", ["fitted", "categories"])
def test_with_negligible_noise_the_augmented_form_changes_nothing(name: str) -> None:
    model, observed, domain = MODELS[name]
    X = domain.sample(9, torch.Generator().manual_seed(3)).unsqueeze(-2)
    ours = LogExpectedImprovement(model, X_observed=observed, augmented=True)
    assert float(ours.noise_variance) == 0.0
    plain = LogExpectedImprovement(model, X_observed=observed)
    assert torch.allclose(ours(X), plain(X), rtol=1e-9, atol=1e-9)


def test_arms_have_the_values_of_the_augmented_form() -> None:
    choices = uniform(12, 2, seed=5)
    played = torch.tensor([0, 3, 3, 7, 9, 9])
    Y = outcomes(choices[played]) - 30.0
    kernel = MaternKernel(nu=2.5).double()
    acquisition = LogExpectedImprovement(
        BanditGP(choices[played], Y, kernel, noise=0.3), X_observed=choices[played], augmented=True
    )
    loop = BanditLoop(
        Arms(choices),
        BanditGP.with_kernel(
            MaternKernel(nu=2.5), noise=0.3, lengthscale=float(kernel.lengthscale)
        ),
        LogExpectedImprovement.with_options(augmented=True),
        num_initial=0,
        seed=0,
    )
    for arm, y in zip(played.tolist(), Y.squeeze(-1).tolist(), strict=True):
        loop.attach(choices[arm], y)
    query = loop.ask()
    values = acquisition(choices.unsqueeze(-2))
    assert query.x.tolist() == choices[values.argmax()].tolist()
    assert query.diagnostics["acquisition_value"] == pytest.approx(float(values.max()), abs=1e-8)


def test_without_noise_the_augmented_form_changes_nothing() -> None:
    variance = torch.logspace(-12, 2, 15, dtype=torch.float64)
    assert torch.allclose(log_noise_discount(variance, 0.0), torch.zeros(15).double(), atol=1e-12)
    # little noise costs no digits: 1 - tau / sqrt(sigma^2 + tau^2) is about sigma^2 / (2 tau^2)
    found = log_noise_discount(torch.tensor([1e-20], dtype=torch.float64), 1.0)
    assert float(found) == pytest.approx(math.log(0.5e-20), rel=1e-12)


def test_the_augmented_form_reads_the_noise_at_the_rows_of_the_model() -> None:
    model, observed, _ = noisy_model()
    given = LogExpectedImprovement(model, X_observed=observed, augmented=True)
    read = LogExpectedImprovement(model, best_f=1.0, augmented=True)
    assert float(read.noise_variance) == pytest.approx(float(given.noise_variance), rel=1e-12)
    X = uniform(6, 2, seed=0).unsqueeze(0).repeat(2, 1, 1)
    batch = SingleTaskGP(X, X.sum(-1, keepdim=True), outcome_transform=None)
    with pytest.raises(ValueError, match="augmented=True needs X_observed="):
        LogExpectedImprovement(batch, best_f=1.0, augmented=True)


@both_classes
@both_ways
def test_the_incumbent_is_shifted_by_the_margin(cls: Any, maximize: bool) -> None:
    model, observed, _ = MODELS["fitted"]
    means = model.posterior(observed).mean
    best = float(means.max() if maximize else means.min())
    found = cls(model, maximize=maximize, margin=0.4, X_observed=observed).closed_form
    assert found.best_f == pytest.approx(best + (0.4 if maximize else -0.4), rel=1e-12)


class Known:
    """A posterior with given moments: the first column is the mean, the second the variance."""

    outputscale, num_rows, kernel = 4.0, 10, MaternKernel()

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, ...]:
        slopes = torch.eye(2, dtype=torch.float64).expand(len(X), 2, 2)
        return X[:, 0].clone(), X[:, 1].clone(), slopes[:, 0].clone(), slopes[:, 1].clone()


TAILS = [-40.0, -38.5, -30.0, -20.0, -8.0, -5.0, -2.0, -1.0, -0.1, 0.0, 0.1, 1.0, 2.0, 3.5, 5.0]


@both_ways
@pytest.mark.parametrize("deviation", [1e-3, 0.5, 2.0])
def test_tails_are_botorchs(maximize: bool, deviation: float) -> None:
    u = torch.tensor(TAILS, dtype=torch.float64)
    sign = 1.0 if maximize else -1.0
    X = torch.stack([1.5 + sign * u * deviation, torch.full_like(u, deviation**2)], dim=-1)
    at = X.clone().requires_grad_()
    scaled = sign * (at[:, 0] - 1.5) / at[:, 1].sqrt()
    for is_expected, expected in (
        (True, analytic._log_ei_helper(scaled) + 0.5 * at[:, 1].log()),
        (False, analytic.log_Phi(scaled)),
    ):
        (slope,) = torch.autograd.grad(expected.sum(), at, retain_graph=True)
        value, gradient = ClosedFormImprovement(Known(), 1.5, sign, is_expected).value_and_gradient(
            X
        )
        assert torch.allclose(value, expected, rtol=1e-10, atol=1e-10)
        assert torch.allclose(gradient, slope, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("u", [-30.0, -3.0, 0.0, 3.0])
def test_the_value_is_an_integral(u: float) -> None:
    # int_0^inf v phi(v - u) dv, with the largest exponent taken out
    grid = torch.linspace(0.0, 12.0 + max(u, 0.0), 400_001, dtype=torch.float64)
    exponent = -0.5 * (grid - u).square() + 0.5 * min(u, 0.0) ** 2
    integral = torch.trapezoid(grid * exponent.exp(), grid) / math.sqrt(2.0 * math.pi)
    expected = math.log(0.25 * float(integral)) - 0.5 * min(u, 0.0) ** 2
    X = torch.tensor([[0.25 * u, 0.25**2]], dtype=torch.float64)
    value, _ = ClosedFormImprovement(Known(), 0.0, 1.0, is_expected=True).value_and_gradient(X)
    assert float(value) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("is_expected", [True, False])
def test_where_the_variance_is_clamped_it_has_no_slope(is_expected: bool) -> None:
    smallest = MINIMUM_VARIANCE_OF_IMPROVEMENT * Known.outputscale
    X = torch.tensor([[1.0, 0.0], [1.0, 0.5 * smallest], [1.0, smallest]], dtype=torch.float64)
    form = ClosedFormImprovement(Known(), 1.0, 1.0, is_expected)
    value, gradient = form.value_and_gradient(X)
    assert torch.isfinite(gradient).all()
    assert float((value - value[0]).abs().max()) == 0.0
    assert gradient[:2, 1].tolist() == [0.0, 0.0]
    assert bool((gradient[:, 0] > 0.0).all())


# --- when there is none ---------------------------------------------------------------------------


@both_classes
def test_what_changes_the_values_has_no_closed_form(cls: Any) -> None:
    class Halved(cls):  # type: ignore[misc]
        def forward(self, X: Tensor) -> Tensor:
            return 0.5 * super().forward(X)

    class Renamed(cls):  # type: ignore[misc]
        """Adds nothing."""

    model, observed, _ = MODELS["fitted"]
    weights = ScalarizedPosteriorTransform(torch.ones(1, dtype=torch.float64))
    botorchs = SingleTaskGP(observed, outcomes(observed))
    for acquisition in (
        Halved(model, X_observed=observed),
        cls(model, X_observed=observed, posterior_transform=weights),
        cls(model, best_f=torch.tensor([0.1, 0.2], dtype=torch.float64)),
        cls(botorchs, X_observed=observed),
    ):
        assert acquisition.closed_form is None
        assert acquisition.gen_candidates is None
    renamed = Renamed(model, X_observed=observed)
    assert renamed.closed_form is not None
    assert renamed.gen_candidates is gen_candidates_batched


# --- maximization ---------------------------------------------------------------------------------


@both_classes
@pytest.mark.parametrize("name", ["fitted", "fixed"])
def test_a_box_is_searched_in_closed_form(
    cls: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, observed, domain = MODELS[name]
    acquisition = cls(model, X_observed=observed)
    expected = domain.maximize(_Without(acquisition), seed=5)[1]
    monkeypatch.setattr(generation, "gen_candidates_scipy", None)
    x, value = domain.maximize(acquisition, seed=5)
    assert value == pytest.approx(float(acquisition(x.unsqueeze(0))), abs=1e-9)
    assert value >= expected - 1e-6


class _Without(torch.nn.Module):
    """The same function, for BoTorch's generator."""

    def __init__(self, acquisition: Any) -> None:
        super().__init__()
        self.acquisition, self.model = acquisition, acquisition.model
        self.X_baseline = getattr(acquisition, "X_baseline", None)
        self.value_scale = acquisition.value_scale
        self.gen_candidates = gen_candidates_scipy
        self.X_pending = None

    def forward(self, X: Tensor) -> Tensor:
        return self.acquisition(X)
