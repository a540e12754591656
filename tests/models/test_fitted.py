"""The practitioners' model: what it learns, and that it says no more than it knows."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bandits import FittedSingleTaskGP
from botorch_bandits.models import RefitWarning, winsorized
from botorch_bandits.models.fitted import default_kernel, default_likelihood

from .textbook import double, matern, posterior, uniform

LOW, HIGH = double([-5.0, 0.0]), double([10.0, 15.0])
BOUNDS = torch.stack([LOW, HIGH])
X, POINTS = (LOW + (HIGH - LOW) * uniform(n, 2, seed=n) for n in (12, 5))
Y = 100.0 + 20.0 * (0.3 * X[:, :1]).sin() + X[:, 1:]


def kernel_of(model: Any) -> Any:
    kernel = model.covar_module
    lengthscale = kernel.base_kernel.lengthscale.detach().squeeze(0)
    return matern(2.5, lengthscale, kernel.outputscale.item())


def test_the_posterior_is_that_of_its_learned_parameters_in_raw_units() -> None:
    model = FittedSingleTaskGP(BOUNDS)(X, Y)
    assert not model.training
    unit, shift = Y.std(), Y.mean()
    prior_mean, noise = model.mean_module.constant.item(), model.likelihood.noise.item()
    mean, covariance = posterior(
        kernel_of(model),
        (X - LOW) / (HIGH - LOW),
        ((Y - shift) / unit).squeeze(-1) - prior_mean,
        noise,
        (POINTS - LOW) / (HIGH - LOW),
    )
    found = model.posterior(POINTS)
    assert torch.allclose(found.mean[:, 0], shift + unit * (prior_mean + mean), rtol=0, atol=1e-7)
    assert torch.allclose(
        found.variance[:, 0], unit**2 * covariance.diagonal(), rtol=1e-7, atol=1e-9
    )


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
def test_one_row_is_enough() -> None:
    found = FittedSingleTaskGP(BOUNDS)(X[:1], Y[:1]).posterior(POINTS)
    assert torch.isfinite(found.mean).all()
    assert (found.variance > 0.0).all()


def test_a_fit_that_fails_leaves_the_starting_hyperparameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(mll: Any) -> None:
        mll.model.covar_module.outputscale = 17.0
        raise ModelFittingError("all attempts failed")

    monkeypatch.setattr("botorch_bandits.models.fitted.fit_gpytorch_mll", fail)
    with pytest.warns(RefitWarning, match="fit to 12 rows"):
        model = FittedSingleTaskGP(BOUNDS)(X, Y)
    assert model.covar_module.outputscale.item() == 1.0
    assert torch.isfinite(model.posterior(POINTS).mean).all()


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        (BOUNDS.float(), TypeError, "bounds has dtype torch.float32"),
        ([[0.0], [float("nan")]], ValueError, "is nan"),
        ([0.0, 1.0], ValueError, "bounds must be a matrix"),
        ([[1.0], [0.0]], ValueError, "the lower bound must be below"),
    ],
)
def test_bad_bounds_are_refused(bounds: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        FittedSingleTaskGP(bounds)


# --- low outcomes ---------------------------------------------------------------------------------

SKEWED = double([[-1e6], [-40.0], [-70.0], [-30.0], [-20.0], [-131.0], [-2e3]])


def test_outcomes_far_below_the_median_are_raised_to_a_fence() -> None:
    # the median is -70, the largest outcome 50 above it
    raised = double([[-320.0], [-40.0], [-70.0], [-30.0], [-20.0], [-131.0], [-320.0]])
    assert torch.equal(winsorized(SKEWED), raised)
    assert torch.equal(winsorized(raised), raised)


@pytest.mark.parametrize(("unit", "offset"), [(1e-6, 0.0), (1e3, -1e7), (0.25, 5.0)])
def test_the_fence_does_not_depend_on_unit_and_offset(unit: float, offset: float) -> None:
    found = winsorized(offset + unit * SKEWED)
    assert torch.allclose(found, offset + unit * winsorized(SKEWED), rtol=1e-12, atol=1e-9)


def test_half_of_the_outcomes_stay_as_they_are_and_all_of_an_even_spread() -> None:
    for seed in range(20):
        Y = -(uniform(9, 1, seed=seed) ** -3)
        assert int((winsorized(Y) == Y).sum()) >= 5
        even = uniform(9, 1, seed=seed)
        above = even.amax() - even.median()
        assert torch.equal(winsorized(even), even.clamp_min(even.median() - 5.0 * above))
    assert torch.equal(winsorized(Y[:1]), Y[:1])
    assert torch.equal(winsorized(Y[:2]), Y[:2])


def test_where_most_outcomes_are_the_largest_none_is_raised() -> None:
    plateau = double([[0.9], [0.9], [0.1], [0.9], [-7.0]])
    assert torch.equal(winsorized(plateau), plateau)


def test_each_column_has_a_fence_of_its_own() -> None:
    both = winsorized(torch.cat([SKEWED, -SKEWED], dim=-1))
    assert torch.equal(both[:, :1], winsorized(SKEWED))
    assert torch.equal(both[:, 1:], winsorized(-SKEWED))


def test_a_model_of_raised_outcomes_distinguishes_points_near_the_best() -> None:
    outcomes = Y.clone()
    outcomes[3] = -1e7
    build = FittedSingleTaskGP(BOUNDS)
    deviation = build(X, winsorized(outcomes)).posterior(POINTS).variance.sqrt()
    assert float(deviation.max()) < 1e3 < float(build(X, outcomes).posterior(POINTS).stddev.max())


@pytest.mark.parametrize("offset", [0.0, 1.0, -1e7])
def test_outcomes_that_differ_by_rounding_only_count_as_equal(offset: float) -> None:
    rounding = 2.0**-52 * abs(offset) * torch.tensor([0.0, 1.0, 0.0, -1.0, 0.0]).double()
    model = FittedSingleTaskGP(BOUNDS)(X[:5], (offset + rounding).unsqueeze(-1))
    assert float(model.outcome_transform.stdvs) == 1.0


def test_outcomes_at_the_same_point_are_merged_without_changing_the_model() -> None:
    many, noisy = X.repeat(5, 1), Y.repeat(5, 1) + 6.0 * (uniform(60, 1, seed=5) - 0.5)
    model = FittedSingleTaskGP(BOUNDS)(many, noisy)
    assert model.num_rows == len(X)
    # every outcome is a row of the textbook, and of the likelihood that BoTorch maximizes
    targets = ((noisy - noisy.mean()) / noisy.std()).squeeze(-1)
    prior_mean, noise = model.mean_module.constant.item(), model.likelihood.noise.item()
    given = (many - LOW) / (HIGH - LOW), targets - prior_mean, noise, (POINTS - LOW) / (HIGH - LOW)
    mean, covariance = posterior(kernel_of(model), *given)
    found = model.posterior(POINTS)
    expected = noisy.mean() + noisy.std() * (prior_mean + mean)
    assert torch.allclose(found.mean[:, 0], expected, rtol=1e-9, atol=0.0)
    variance = noisy.var() * covariance.diagonal()
    assert torch.allclose(found.variance[:, 0], variance, rtol=1e-6, atol=0.0)
    alone = SingleTaskGP(
        many,
        noisy,
        likelihood=default_likelihood(),
        covar_module=default_kernel(2),
        input_transform=Normalize(2, bounds=BOUNDS),
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(alone.likelihood, alone))
    assert noise == pytest.approx(alone.likelihood.noise.item(), rel=1e-2)
    lengthscales = (each.covar_module.base_kernel.lengthscale for each in (model, alone))
    assert torch.allclose(*lengthscales, rtol=2e-2)


@pytest.mark.parametrize("times", [1, 3], ids=["once", "repeated"])
def test_what_a_model_tells_is_its_log_likelihood_less_that_of_noise_alone(times: int) -> None:
    many, outcomes = X.repeat(times, 1), Y.repeat(times, 1)
    outcomes = outcomes + (times - 1) * uniform(len(outcomes), 1, seed=5)
    targets = ((outcomes - outcomes.mean()) / outcomes.std()).squeeze(-1)
    noise_alone = torch.distributions.Normal(0.0, targets.square().mean().sqrt())
    for build in (FittedSingleTaskGP(BOUNDS), FittedSingleTaskGP(BOUNDS).steady()):
        model = build(many, outcomes)
        kernel = getattr(model.covar_module, "base_kernel", model.covar_module)
        scale = float(getattr(model.covar_module, "outputscale", torch.ones(())).detach())
        assert (scale == 1.0) == (model.covar_module is kernel)
        covariance = matern(2.5, kernel.lengthscale.detach().squeeze(0), scale)
        unit = (many - LOW) / (HIGH - LOW)
        K = covariance(unit, unit) + model.likelihood.noise.item() * torch.eye(len(many)).double()
        mean = model.mean_module.constant.detach().expand(len(many))
        fitted = torch.distributions.MultivariateNormal(mean, K).log_prob(targets)
        expected = fitted - noise_alone.log_prob(targets).sum()
        assert model.nats_ahead_of_noise() == pytest.approx(float(expected), abs=1e-8)


def test_equal_outcomes_tell_nothing() -> None:
    model = FittedSingleTaskGP(BOUNDS)(X[:4], torch.full((4, 1), 7.0).double())
    assert model.nats_ahead_of_noise() == -math.inf
