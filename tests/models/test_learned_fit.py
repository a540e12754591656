"""Fits of a model that learns everything: mean, priors and constraints, and where they end."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior, Prior
from torch import Tensor

from benchmarks.measure import smooth_data
from botorch_bandits.models import LearnedGP, default_kernel, default_likelihood
from botorch_bandits.models.marginal_likelihood import (
    MarginalLikelihoodObjective,
    fit_marginal_likelihood,
    has_closed_form,
    log_marginal_likelihood,
)

from .test_marginal_likelihood import BASES, assert_equal, every_kernel
from .textbook import double, log_likelihood, matern, squared_exponential, uniform

DIM = 3
BOUNDS = double([[-2.0, 0.0, 10.0], [3.0, 0.5, 40.0]])


def data(num_rows: int, seed: int, dim: int = DIM) -> tuple[Tensor, Tensor]:
    unit = uniform(num_rows, dim, seed=seed)
    generator = torch.Generator().manual_seed(seed + 100)
    errors = torch.randn(num_rows, 1, dtype=torch.float64, generator=generator)
    Y = 40.0 + 7.0 * (5.0 * unit[:, :1]).sin() + unit.square().sum(-1, keepdim=True)
    return BOUNDS[0, :dim] + (BOUNDS[1] - BOUNDS[0])[:dim] * unit, Y + 0.5 * errors


def build(
    kernel: Kernel | None = None,
    likelihood: GaussianLikelihood | None = None,
    num_rows: int = 20,
    seed: int = 0,
    cls: type[SingleTaskGP] = LearnedGP,
    **changes: Any,
) -> ExactMarginalLogLikelihood:
    X, Y = data(num_rows, seed)
    arguments: dict[str, Any] = {
        "input_transform": Normalize(DIM, bounds=BOUNDS),
        "outcome_transform": Standardize(1),
    } | changes
    model = cls(
        X,
        Y,
        likelihood=default_likelihood() if likelihood is None else likelihood,
        covar_module=default_kernel(DIM) if kernel is None else kernel,
        **arguments,
    )
    model.mean_module.constant = double(0.3)
    return ExactMarginalLogLikelihood(model.likelihood, model).train()


def likelihood_with(prior: Prior | None, constraint: Interval | None = None) -> GaussianLikelihood:
    return GaussianLikelihood(noise_prior=prior, noise_constraint=constraint)


# --- value and gradient ---------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("ard", [None, DIM])
def test_a_learned_mean_has_the_value_and_gradient_of_autograd(name: str, ard: int | None) -> None:
    for kernel in (BASES[name](ard_num_dims=ard), ScaleKernel(BASES[name](ard_num_dims=ard))):
        for num_rows in (2, 23):
            mll = build(kernel, GaussianLikelihood(), num_rows)
            assert has_closed_form(mll.model)
            objective = MarginalLikelihoodObjective(mll)
            assert len(objective.start) == sum(p.numel() for p in mll.parameters())
            assert_equal(objective, mll)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("se", squared_exponential(0.8, 1.7)), ("matern 5/2", matern(2.5, 0.8, 1.7))],
)
def test_the_value_is_that_of_dense_algebra(
    name: str, kernel: Callable[[Tensor, Tensor], Tensor]
) -> None:
    mll = build(ScaleKernel(BASES[name]()).double(), GaussianLikelihood().double())
    model = mll.model
    model.covar_module.base_kernel.lengthscale = double(0.8)
    model.covar_module.outputscale = double(1.7)
    model.likelihood.noise = double(0.2)
    X, Y = data(20, 0)
    unit_X = (X - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    unit_Y = (Y - Y.mean()).squeeze(-1) / Y.std()
    expected = log_likelihood(kernel, unit_X, unit_Y - 0.3, 0.2) / 20
    assert log_marginal_likelihood(mll) == pytest.approx(expected, rel=1e-10)


PRIORS: dict[str, Callable[[], Prior]] = {
    "log-normal": lambda: LogNormalPrior(double(-0.4), double(1.3)),
    "gamma": lambda: GammaPrior(double(3.0), double(6.0)),
}


@every_kernel
@pytest.mark.parametrize("prior", list(PRIORS))
@pytest.mark.parametrize("has_scale", [False, True])
def test_known_priors_have_a_closed_form(
    name: str, prior: str, has_scale: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MarginalLikelihoodObjective, "_evaluate_priors", None)
    kernel = BASES[name](ard_num_dims=DIM, lengthscale_prior=PRIORS[prior]())
    if has_scale:
        kernel = ScaleKernel(kernel, outputscale_prior=PRIORS[prior]())
    mll = build(kernel, likelihood_with(PRIORS[prior]()))
    assert_equal(MarginalLikelihoodObjective(mll), mll)
    twin = copy.deepcopy(mll)
    assert_equal(MarginalLikelihoodObjective(twin), twin)


IDENTITY = {"transform": None, "initial_value": 0.6}


@pytest.mark.parametrize(
    ("lengthscale", "outputscale", "noise"),
    [
        (GreaterThan(0.02, **IDENTITY), Positive(), GreaterThan(1e-4)),
        (Positive(), GreaterThan(0.02, **IDENTITY), GreaterThan(1e-4, **IDENTITY)),
        (GreaterThan(0.1), GreaterThan(0.02), GreaterThan(1e-6, **IDENTITY)),
        (Interval(0.05, 4.0), GreaterThan(0.02, **IDENTITY), GreaterThan(1e-4)),
    ],
)
def test_constraints_may_differ(lengthscale: Any, outputscale: Any, noise: Any) -> None:
    for prior in PRIORS.values():
        base = MaternKernel(
            nu=2.5,
            ard_num_dims=DIM,
            lengthscale_prior=prior(),
            lengthscale_constraint=copy.deepcopy(lengthscale),
        )
        kernel = ScaleKernel(
            base, outputscale_prior=prior(), outputscale_constraint=copy.deepcopy(outputscale)
        )
        mll = build(kernel, likelihood_with(prior(), copy.deepcopy(noise)))
        # upward: a raw value under the identity is the parameter itself
        assert_equal(MarginalLikelihoodObjective(mll), mll, step=0.37)


def on_mean(mll: ExactMarginalLogLikelihood) -> None:
    mll.model.mean_module.register_prior("mean_prior", NormalPrior(0.0, 1.0), "constant")


def on_log_lengthscale(mll: ExactMarginalLogLikelihood) -> None:
    base = mll.model.covar_module.base_kernel
    base.register_prior(
        "lengthscale_prior", GammaPrior(double(3.0), double(6.0)), lambda m: 1.0 / m.lengthscale
    )


def with_transform(mll: ExactMarginalLogLikelihood) -> None:
    base = mll.model.covar_module.base_kernel
    prior = GammaPrior(double(3.0), double(6.0), transform=torch.exp)
    base.register_prior("lengthscale_prior", prior, base._lengthscale_param)


def one_a_dimension(mll: ExactMarginalLogLikelihood) -> None:
    base = mll.model.covar_module.base_kernel
    prior = LogNormalPrior(double([-1.0, 0.0, 1.0]), double([1.0, 0.5, 2.0]))
    base.register_prior("lengthscale_prior", prior, base._lengthscale_param)


def of_a_subclass(mll: ExactMarginalLogLikelihood) -> None:
    class Doubled(LogNormalPrior):
        def log_prob(self, x: Tensor) -> Tensor:
            return 2.0 * super().log_prob(x)

    scale = mll.model.covar_module
    scale.register_prior("outputscale_prior", Doubled(0.0, 1.0), scale._outputscale_param)


def by_another_name(mll: ExactMarginalLogLikelihood) -> None:
    noise = mll.likelihood.noise_covar
    noise.register_prior(
        "other_prior", GammaPrior(double(1.1), double(0.5)), lambda m: m.noise.sqrt()
    )


@pytest.mark.parametrize(
    "register",
    [on_mean, on_log_lengthscale, with_transform, one_a_dimension, of_a_subclass, by_another_name],
)
def test_priors_of_the_users_own_are_differentiated_automatically(
    register: Callable[[ExactMarginalLogLikelihood], None],
) -> None:
    mll = build(
        ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=DIM)),
        likelihood_with(GammaPrior(double(1.1), double(0.5))),
    )
    plain = log_marginal_likelihood(mll)
    register(mll)
    assert log_marginal_likelihood(mll) != plain
    assert has_closed_form(mll.model)
    assert_equal(MarginalLikelihoodObjective(mll), mll)


def test_a_mean_of_another_kind_is_left_to_botorch() -> None:
    mean = ConstantMean(constant_constraint=Interval(-1.0, 1.0))
    assert not has_closed_form(build(mean_module=mean).model)
    assert has_closed_form(build().model)


# --- where fits end -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_fit_is_as_good_as_the_ordinary_one_on_a_dozen_data_sets() -> None:
    for seed in range(12):
        values = []
        for cls in (LearnedGP, SingleTaskGP):
            mll = build(num_rows=5 + seed, seed=seed, cls=cls)
            mll.model.mean_module.constant = double(0.0)
            fit_gpytorch_mll(mll)
            mll.train()
            with torch.no_grad():
                values.append(
                    float(mll(mll.model(*mll.model.train_inputs), mll.model.train_targets))
                )
        assert values[0] >= values[1] - 1e-5, seed


def test_a_step_that_is_far_too_long_is_not_the_end() -> None:
    # in logarithms the second step would be 2000 long
    X, Y = smooth_data(200, 6, seed=3, noise=1e-4)
    values = []
    for in_logarithms in (True, False):
        model = LearnedGP(
            X,
            Y,
            likelihood=default_likelihood(),
            covar_module=default_kernel(6),
            outcome_transform=Standardize(1),
        )
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fit_marginal_likelihood(mll, in_logarithms=in_logarithms)
        values.append(log_marginal_likelihood(mll))
    assert values[0] >= values[1] - 1e-5


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_parameters_may_end_far_from_where_they_start(scale: float) -> None:
    # without priors and transforms the noise and the output scale follow the unit of the outcomes
    X = uniform(15, 1, seed=3)
    Y = scale * (6.0 * X).sin()
    fits = []
    for in_logarithms in (True, False):
        kernel = ScaleKernel(RBFKernel(), outputscale_constraint=GreaterThan(1e-12, **IDENTITY))
        likelihood = likelihood_with(None, GreaterThan(1e-12, **IDENTITY))
        model = LearnedGP(X, Y, likelihood=likelihood, covar_module=kernel, outcome_transform=None)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_marginal_likelihood(mll, in_logarithms=in_logarithms)
        fits.append(log_marginal_likelihood(mll))
    assert fits[0] >= fits[1] - 1e-5


BOUNDARIES = [0.1, 0.3, 0.7, 1.1, 1.3, 2.9, 3.3]


def test_bounds_hold_to_the_last_bit() -> None:
    reached, inexact = 0, 0
    for bound in BOUNDARIES:
        within = Interval(bound, 1.5 * bound, transform=None, initial_value=1.2 * bound)
        above = GreaterThan(bound, transform=None, initial_value=4.0)
        kernel = RBFKernel(lengthscale_constraint=within, ard_num_dims=DIM)
        mll = build(kernel, likelihood_with(None, above))
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


@pytest.mark.parametrize(("num_outcomes", "largest"), [(25, 5e-4), (60, 1e-5)])
def test_noise_vanishes_as_smooth_outcomes_come_in(num_outcomes: int, largest: float) -> None:
    X = uniform(num_outcomes, DIM, seed=5)
    Y = X.sum(-1, keepdim=True).sin()
    model = LearnedGP(
        X,
        Y,
        likelihood=default_likelihood(),
        covar_module=default_kernel(DIM),
        outcome_transform=Standardize(1),
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    assert 1e-6 * (1.0 - 1e-7) <= model.likelihood.noise.item() < largest


@pytest.mark.parametrize("frozen", ["lengthscale", "outputscale", "noise", "constant"])
def test_frozen_parameters_stay(frozen: str) -> None:
    mll = build()
    for name, parameter in mll.model.named_parameters():
        parameter.requires_grad_(not name.endswith(f"raw_{frozen}"))
    before = copy.deepcopy(dict(mll.model.named_parameters()))
    assert_equal(MarginalLikelihoodObjective(mll), mll, step=0.1)
    mll.model.load_state_dict(before, strict=False)
    start = log_marginal_likelihood(mll)
    fit_gpytorch_mll(mll)
    for name, parameter in mll.model.named_parameters():
        assert torch.equal(parameter, before[name]) == name.endswith(f"raw_{frozen}"), name
    assert log_marginal_likelihood(mll) > start


def test_a_scale_that_vanishes_is_no_warning() -> None:
    base = RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 1.0))
    mll = build(ScaleKernel(base, outputscale_prior=LogNormalPrior(0.0, 1.0)), GaussianLikelihood())
    objective = MarginalLikelihoodObjective(mll)
    raw = objective.start.copy()
    raw[1] = -1e4  # the softplus of which is 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, _ = objective(raw)
    assert not math.isfinite(value)
