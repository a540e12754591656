"""The closed-form marginal likelihood against GPyTorch's, and its fit against BoTorch's."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import botorch.fit
import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize, Warp
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import (
    ExactMarginalLogLikelihood,
)
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from models.textbook import double, uniform
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.core.marginal_likelihood import MarginalLikelihood
from botorch_bandits.models import LearnedGP, default_kernel, default_likelihood
from botorch_bandits.models.fits import (
    log_marginal_likelihood,
    objective_of,
    read_parameters,
)

BASES: dict[str, Callable[..., Kernel]] = {
    "se": RBFKernel,
    "matern 1/2": lambda **kwargs: MaternKernel(nu=0.5, **kwargs),
    "matern 3/2": lambda **kwargs: MaternKernel(nu=1.5, **kwargs),
    "matern 5/2": lambda **kwargs: MaternKernel(nu=2.5, **kwargs),
}
SMOOTHNESS = {"se": math.inf, "matern 1/2": 0.5, "matern 3/2": 1.5, "matern 5/2": 2.5}
every_kernel = pytest.mark.parametrize("name", list(BASES))
IDENTITY = {"transform": None, "initial_value": 0.6}


def outcomes(X: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 100)
    errors = torch.randn(len(X), 1, dtype=torch.float64, generator=generator)
    return 1.5 * (5.0 * X[:, :1]).sin() + X.square().sum(-1, keepdim=True) + 0.3 * errors


def build(
    kernel: Kernel, num_rows: int = 30, dim: int = 3, seed: int = 0, **kwargs: Any
) -> ExactMarginalLogLikelihood:
    """Return the likelihood of a model with a mean of 0."""
    X = uniform(num_rows, dim, seed=seed)
    arguments: dict[str, Any] = {"noise": 0.1, "learn_hyperparameters": True} | kwargs
    model = BanditGP(X, outcomes(X, seed), kernel, **arguments)
    return ExactMarginalLogLikelihood(model.likelihood, model).train()


def learned(
    kernel: Kernel | None = None,
    likelihood: GaussianLikelihood | None = None,
    num_rows: int = 20,
    seed: int = 0,
    cls: type[SingleTaskGP] = LearnedGP,
    **changes: Any,
) -> ExactMarginalLogLikelihood:
    """Return the likelihood of a model that learns its mean as well, of outcomes near 40."""
    X = uniform(num_rows, 3, seed=seed)
    model = cls(
        X,
        40.0 + 7.0 * outcomes(X, seed),
        likelihood=default_likelihood() if likelihood is None else likelihood,
        covar_module=default_kernel(3) if kernel is None else kernel,
        **({"outcome_transform": Standardize(1)} | changes),
    )
    if not changes:
        model.mean_module.constant = double(0.3)
    return ExactMarginalLogLikelihood(model.likelihood, model).train()


def ordinary(mll: ExactMarginalLogLikelihood) -> tuple[float, np.ndarray]:
    """Return what BoTorch minimizes, and its gradient in the free parameters, by autograd."""
    named = list(mll.model.named_parameters())
    order = ("raw_lengthscale", "raw_outputscale", "raw_noise", "raw_constant")
    free = [p for end in order for name, p in named if name.endswith(end) and p.requires_grad]
    value = -mll(mll.model(*mll.model.train_inputs), mll.model.train_targets)
    gradient = torch.autograd.grad(value, free)
    return value.item(), torch.cat([part.reshape(-1) for part in gradient]).numpy()


def assert_equal(mll: ExactMarginalLogLikelihood, step: float = 0.37, **tolerance: float) -> None:
    """Compare objective and gradient at the start, and a step further on."""
    objective = objective_of(mll)
    close = {"rtol": 1e-8, "atol": 1e-8} | tolerance
    for raw in (objective.start, objective.start + step):
        value, gradient = objective(raw)
        objective.write(raw)
        expected, expected_gradient = ordinary(mll)
        expected_gradient[objective.is_log] *= np.exp(raw)[objective.is_log]
        np.testing.assert_allclose(value, expected, **close)
        np.testing.assert_allclose(gradient, expected_gradient, **close)


def state(model: Any) -> dict[str, Tensor]:
    return copy.deepcopy(dict(model.named_parameters()))


def is_same(model: Any, other: Any) -> bool:
    return all(torch.equal(p, state(other)[name]) for name, p in model.named_parameters())


# --- objective and gradient -----------------------------------------------------------------------


def test_the_value_and_the_slopes_are_those_of_the_density() -> None:
    X, y, weights = uniform(15, 2, seed=1), uniform(15, seed=2) - 0.4, uniform(15, seed=3) + 0.5
    given = double([0.4, 0.8, 1.7, 0.05, 0.2]).requires_grad_()
    scaled = X / given[:2]
    squared = (scaled[:, None] - scaled).square().sum(-1)
    K = given[2] * torch.exp(-0.5 * squared) + torch.diag(given[3] / weights)
    density = torch.distributions.MultivariateNormal(given[4].expand(15), K).log_prob(y)
    (slopes,) = torch.autograd.grad(density, given)
    likelihood = MarginalLikelihood(X, y, math.inf, weights, within_sum_of_squares=None)
    value, found = likelihood(np.array([0.4, 0.8]), 1.7, 0.05, 0.2)
    assert value == pytest.approx(density.item(), rel=1e-10)
    np.testing.assert_allclose(found, slopes.numpy(), rtol=1e-8)
    assert likelihood.num_observations == 15


LOG_NORMAL = LogNormalPrior(double(-0.4), double(1.3))
GAMMA = GammaPrior(double(3.0), double(6.0))


@pytest.mark.parametrize("noise", [GreaterThan(1e-4), GreaterThan(1e-6, **IDENTITY)])
@pytest.mark.parametrize(
    "constraint", [GreaterThan(0.1), GreaterThan(0.02, **IDENTITY), Interval(0.1, 4.0, **IDENTITY)]
)
@pytest.mark.parametrize("prior", [None, LOG_NORMAL])
def test_constraints_and_priors_are_kept(noise: Any, constraint: Any, prior: Any) -> None:
    own = [copy.deepcopy(prior) for _ in range(3)]
    base = MaternKernel(
        ard_num_dims=3, lengthscale_prior=own[0], lengthscale_constraint=copy.deepcopy(constraint)
    )
    kernel = ScaleKernel(
        base, outputscale_prior=own[1], outputscale_constraint=copy.deepcopy(constraint)
    )
    likelihood = GaussianLikelihood(noise_prior=own[2], noise_constraint=copy.deepcopy(noise))
    mll = learned(kernel, likelihood)
    assert_equal(mll)
    assert_equal(copy.deepcopy(mll))
    base.raw_lengthscale.requires_grad_(False)  # its prior only shifts the value
    assert_equal(mll)


def test_inputs_are_transformed_as_in_training() -> None:
    for transform in (Normalize(3, bounds=double([[-1.0] * 3, [3.0] * 3])), Normalize(3)):
        mll = build(ScaleKernel(MaternKernel(nu=2.5)), input_transform=transform)
        mll.eval()
        mll.train()
        assert_equal(mll)


def test_jitter_enters_the_gradient() -> None:
    # two equal rows without noise but for the jitter
    likelihood = MarginalLikelihood(double([[0.0], [0.0]]), double([1.0, 1.0]), math.inf)
    with pytest.warns(NumericalWarning, match=r"jitter of 1\.0e-08"):
        value, slopes = likelihood(np.ones(1), 1.0, 0.0)
    # eigenvalues 2 + 1e-8 and 1e-8; the outcomes lie along the first eigenvector
    large, small = 2.0 + 1e-8, 1e-8
    expected = -0.5 * (2.0 / large + math.log(large * small)) - math.log(2.0 * math.pi)
    assert value == pytest.approx(expected, abs=1e-6)
    assert slopes[1] == pytest.approx(0.5 * (4.0 / large**2 - 2.0 / large), abs=1e-6)


def test_matrices_without_a_factor_are_errors_or_not_numbers() -> None:
    likelihood = MarginalLikelihood(double([[0.0], [1.0]]), double([1.0, 2.0]), math.inf)
    with pytest.warns(NumericalWarning), pytest.raises(NotPSDError):
        likelihood(np.ones(1), 1.0, -5.0)
    with pytest.raises(NanError):
        likelihood(np.ones(1), math.nan, 1.0)
    objective = objective_of(build(ScaleKernel(RBFKernel())))
    value, gradient = objective(np.array([-1e4, 0.0, 0.0]))  # the lengthscale underflows
    assert math.isnan(value)
    assert np.isnan(gradient).all()


@every_kernel
def test_an_output_scale_of_nothing_is_no_error(name: str) -> None:
    value, gradient = objective_of(build(ScaleKernel(BASES[name]())))(np.array([0.0, -1e4, 0.0]))
    assert np.isfinite([value, *gradient]).all()
    prior = LogNormalPrior(0.0, 1.0)
    mll = learned(ScaleKernel(BASES[name](), outputscale_prior=prior), GaussianLikelihood())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, _ = objective_of(mll)(np.array([0.0, -1e4, 0.0, 0.0]))
    assert not math.isfinite(value)


# --- rows that are means --------------------------------------------------------------------------


@every_kernel
def test_means_of_repeats_have_the_likelihood_of_all_observations(name: str) -> None:
    generator = torch.Generator().manual_seed(3)
    points = uniform(9, 2, seed=1)
    repeats = torch.tensor([1, 4, 2, 1, 7, 3, 1, 1, 5])
    raw_X = points.repeat_interleave(repeats, 0)
    raw_Y = raw_X.sum(-1).sin() + torch.randn(25, dtype=torch.float64, generator=generator)
    groups = raw_Y.split(repeats.tolist())
    means = torch.stack([group.mean() for group in groups])
    within = sum(float((group - group.mean()).square().sum()) for group in groups)
    expanded = MarginalLikelihood(raw_X, raw_Y, SMOOTHNESS[name])
    collapsed = MarginalLikelihood(points, means, SMOOTHNESS[name], repeats.double(), within)
    for at in np.random.default_rng(0).uniform(0.2, 2.0, size=(3, 5)):
        given = at[:2], *at[2:].tolist()
        (value, slopes), (expected, expected_slopes) = collapsed(*given), expanded(*given)
        assert value == pytest.approx(expected, abs=1e-8)
        np.testing.assert_allclose(slopes, expected_slopes, atol=1e-8)
    assert collapsed.num_observations == expanded.num_observations == 25


# --- fitting --------------------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize(("num_rows", "prior"), [(8, None), (25, LOG_NORMAL), (40, None)])
def test_a_fit_is_as_good_as_the_ordinary_one(name: str, num_rows: int, prior: Any) -> None:
    values = []
    for fit in (fit_gpytorch_mll, botorch.fit._fit_fallback):
        base = BASES[name](ard_num_dims=2, lengthscale_prior=copy.deepcopy(prior))
        mll = build(ScaleKernel(base), num_rows, dim=2, seed=num_rows)
        start = log_marginal_likelihood(mll)
        fit(mll)
        assert not mll.training
        assert not mll.model.training
        values.append(log_marginal_likelihood(mll))
    assert values[0] >= values[1] - 1e-5
    assert values[0] > start


@pytest.mark.parametrize("frozen", ["lengthscale", "outputscale", "noise", "constant"])
def test_frozen_parameters_stay(frozen: str) -> None:
    for mll in (learned(), build(ScaleKernel(MaternKernel(nu=1.5)))):
        for name, parameter in mll.model.named_parameters():
            parameter.requires_grad_(not name.endswith(f"raw_{frozen}"))
        before = state(mll.model)
        assert_equal(mll, step=0.1)
        mll.model.load_state_dict(before, strict=False)
        start = log_marginal_likelihood(mll)
        fit_gpytorch_mll(mll)
        for name, parameter in mll.model.named_parameters():
            assert torch.equal(parameter, before[name]) == name.endswith(f"raw_{frozen}"), name
        assert log_marginal_likelihood(mll) > start


def test_bounds_hold_to_the_last_bit() -> None:
    reached, inexact = 0, 0
    for bound in (0.1, 0.3, 0.7, 1.1, 1.3, 2.9, 3.3):
        within = Interval(bound, 1.5 * bound, transform=None, initial_value=1.2 * bound)
        above = GreaterThan(bound, transform=None, initial_value=4.0)
        kernel = RBFKernel(lengthscale_constraint=within, ard_num_dims=3)
        mll = learned(kernel, GaussianLikelihood(noise_constraint=above))
        fit_gpytorch_mll(mll)
        for value, constraint in (
            (mll.model.covar_module.lengthscale, within),
            (mll.likelihood.noise, above),
        ):
            low, high = constraint.lower_bound, constraint.upper_bound
            assert bool((value >= low).all())
            assert bool((value <= high).all())
            reached += int((value == low).sum() + (value == high).sum())
            inexact += float(np.exp(np.log(float(low)))) != float(low)
    # otherwise they would say nothing
    assert reached >= 7
    assert inexact >= 3


# --- what BoTorch does in its ordinary way --------------------------------------------------------


@pytest.fixture
def fallbacks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is fitted by BoTorch."""
    calls: list[Any] = []
    plain = botorch.fit._fit_fallback

    def fallback(mll: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(mll)
        return plain(mll, *args, **kwargs)

    monkeypatch.setattr(botorch.fit, "_fit_fallback", fallback)
    return calls


@pytest.mark.parametrize(
    ("kernel", "changes"),
    [
        (LinearKernel(), {}),
        (RBFKernel() + MaternKernel(), {}),
        (ScaleKernel(ScaleKernel(RBFKernel())), {}),
        (RBFKernel(active_dims=(0,)), {}),
        (RBFKernel(), {"input_transform": Warp(d=3, indices=[0, 1, 2])}),
        (RBFKernel(lengthscale_constraint=Interval(0.05, 4.0)), {}),
        (RBFKernel(lengthscale_constraint=GreaterThan(0.1, transform=torch.exp)), {}),
        (RBFKernel(lengthscale_prior=GAMMA), {}),
        (RBFKernel(lengthscale_prior=LogNormalPrior(double([-1.0, 1.0]), double([1.0, 2.0]))), {}),
        (ScaleKernel(RBFKernel(lengthscale_prior=NormalPrior(0.0, 1.0))), {}),
        (RBFKernel(), {"mean": LinearMean(3)}),
        (RBFKernel(), {"mean": ConstantMean(constant_constraint=Interval(-1.0, 1.0))}),
    ],
)
def test_other_models_are_fitted_by_botorch(
    kernel: Kernel, changes: dict[str, Any], fallbacks: list[Any]
) -> None:
    mean = changes.get("mean")
    mll = build(kernel, num_rows=8, **({} if mean is not None else changes))
    if mean is not None:
        mll.model.mean_module = mean.double()
    assert read_parameters(mll.model) is None
    with torch.no_grad():
        before = mll(mll.model(*mll.model.train_inputs), mll.model.train_targets).item()
    assert log_marginal_likelihood(mll) == before
    fit_gpytorch_mll(mll)
    assert fallbacks == [mll]
    assert log_marginal_likelihood(mll) > before


@pytest.mark.parametrize("failure", ["error", "nan"])
def test_a_failed_attempt_is_left_to_botorch_from_the_same_start(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = MarginalLikelihood.__call__, []

    def failing(self: Any, *args: Any) -> Any:
        calls.append(args)
        value, slopes = plain(self, *args)
        if len(calls) > 3 and failure == "error":
            raise NotPSDError("no factor")
        return (math.nan if len(calls) > 3 else value), slopes

    monkeypatch.setattr(MarginalLikelihood, "__call__", failing)
    mlls = [build(ScaleKernel(RBFKernel())) for _ in range(2)]
    fit_gpytorch_mll(mlls[0])
    botorch.fit._fit_fallback(mlls[1])
    assert len(calls) > 3
    assert is_same(mlls[0].model, mlls[1].model)
