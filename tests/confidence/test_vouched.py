"""What no model shows, and a user vouches for: priors that were fixed, and bounds less the mean."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ZeroMean
from models.textbook import double, line

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Guarantee,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits.acquisition import WidthUpperConfidenceBound
from botorch_bandits.confidence import FiniteArmsWidth

LENGTHSCALE = 0.2
ARMS = line(0.0, 1.0, 30)
BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1}
GENERAL: dict[str, Any] = {**BOUNDS, "any_lambda": True}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


X = torch.rand(6, 1, dtype=torch.float64, generator=generator(0))
Y = torch.rand(6, 1, dtype=torch.float64, generator=generator(1))


def kernel() -> RBFKernel:
    made = RBFKernel().double()
    made.lengthscale = double(LENGTHSCALE)
    return made


def frozen(learned_mean: float | None = None) -> SingleTaskGP:
    """A model whose parameters were set before they were frozen, as after a fit."""
    likelihood = GaussianLikelihood().double()
    model = SingleTaskGP(
        X,
        Y,
        likelihood=likelihood,
        covar_module=kernel(),
        mean_module=ZeroMean() if learned_mean is None else None,
        outcome_transform=None,
    )
    likelihood.noise = 0.05
    if learned_mean is not None:
        model.mean_module.constant.data.fill_(learned_mean)
    return model.requires_grad_(False)


def two_outputs(learned_mean: float | None = None) -> ModelListGP:
    return ModelListGP(frozen(learned_mean), frozen(learned_mean))


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "width": (WidthUpperConfidenceBound, {"rule": FiniteArmsWidth(30, 0.1)}),
    "gp": (GPUpperConfidenceBound, {"num_arms": 30}),
    "improved": (ImprovedUpperConfidenceBound, GENERAL),
    "amm": (AMMUpperConfidenceBound, BOUNDS),
    "randomized": (RandomizedUpperConfidenceBound, {"num_arms": 30}),
    "dmm": (DMMUpperConfidenceBound, BOUNDS),
    "thompson": (GPThompsonSampling, {**GENERAL, "choices": ARMS}),
    "censored": (
        CensoredUpperConfidenceBound,
        {**GENERAL, "minimum": 0.0, "outcome_bound": 1.0},
    ),
    "censored thompson": (
        CensoredThompsonSampling,
        {**GENERAL, "minimum": 0.0, "outcome_bound": 1.0, "choices": ARMS},
    ),
    "lagrangian": (LagrangianUpperConfidenceBound, {**GENERAL, "multipliers": [1.0]}),
    "lagrangian thompson": (
        LagrangianThompsonSampling,
        {**GENERAL, "multipliers": [1.0], "choices": ARMS},
    ),
}
ON_NORMS = ("improved", "amm", "dmm", "thompson", "lagrangian", "lagrangian thompson")


def told(name: str, model: Any, **options: Any) -> Guarantee:
    cls, own = CASES[name]
    promise = cls(model, **own, **options).guarantee()
    assert isinstance(promise, Guarantee)
    return promise


def model_for(name: str, learned_mean: float | None = None) -> Any:
    return two_outputs(learned_mean) if name.startswith("lagrangian") else frozen(learned_mean)


@pytest.mark.parametrize("name", CASES)
def test_frozen_parameters_may_have_been_fitted_so_the_user_must_say_that_they_were_not(
    name: str,
) -> None:
    assert any('assume="fixed prior"' in gap for gap in told(name, model_for(name)).gaps)
    assert told(name, model_for(name), assume="fixed prior").gaps == ()


@pytest.mark.parametrize("name", ON_NORMS)
def test_a_learned_constant_mean_needs_both_words(name: str) -> None:
    for some in ((), "fixed prior", "centered bound"):
        assert not told(name, model_for(name, 0.7), assume=some).holds
    promise = told(name, model_for(name, 0.7), assume=("fixed prior", "centered bound"))
    assert promise.gaps == ()
    assert any("less the prior mean" in assumption for assumption in promise.assumptions)


@pytest.mark.parametrize("name", ON_NORMS)
def test_a_prior_mean_needs_a_bound_on_the_reward_less_it(name: str) -> None:
    def model(prior_mean: float) -> Any:
        outcomes = prior_mean + 0.1 * Y
        one = BanditGP(X, outcomes, kernel(), noise=0.05, prior_mean=prior_mean)
        return ModelListGP(one, copy.deepcopy(one)) if name.startswith("lagrangian") else one

    assert told(name, model(0.0)).gaps == ()
    assert any('assume="centered bound"' in gap for gap in told(name, model(3.0)).gaps)
    promise = told(name, model(3.0), assume="centered bound")
    assert promise.gaps == ()
    assert any("less the prior mean" in assumption for assumption in promise.assumptions)


@pytest.mark.parametrize("name", ["gp", "randomized", "width"])
def test_theorems_on_draws_need_nothing_of_the_prior_mean(name: str) -> None:
    assert told(name, BanditGP(X, Y, kernel(), noise=0.05, prior_mean=3.0)).gaps == ()


@pytest.mark.parametrize("name", CASES)
def test_it_is_kept_by_copies_and_after_new_hyperparameters(name: str) -> None:
    cls, options = CASES[name]
    acquisition = cls(model_for(name), **options, assume="fixed prior")
    for each in (copy.deepcopy(acquisition), pickle.loads(pickle.dumps(acquisition))):
        assert each.guarantee().gaps == ()
    acquisition.load_state_dict(acquisition.state_dict())
    assert acquisition.guarantee().gaps == ()


@pytest.mark.parametrize("name", CASES)
def test_an_unknown_word_is_refused_by_name(name: str) -> None:
    cls, options = CASES[name]
    message = r"assume is 'fixed'; .*'fixed prior', 'centered bound'"
    with pytest.raises(ValueError, match=message):
        cls.with_options(**options, assume="fixed")
    with pytest.raises(ValueError, match=message):
        cls(model_for(name), **options, assume="fixed")
    with pytest.raises(TypeError, match="assume is 3; pass"):
        cls.with_options(**options, assume=3)


# --- in a loop -----------------------------------------------------------------------------------


def loop_of(assume: Any = (), prior_mean: float = 3.0, **settings: Any) -> BanditLoop:
    model = BanditGP.with_kernel(kernel(), noise=0.05, prior_mean=prior_mean)
    recipe = ImprovedUpperConfidenceBound.with_options(**GENERAL, assume=assume)
    return BanditLoop(Arms(ARMS), model, recipe, seed=4, **settings)


def test_censored_feedback_bounds_the_norm_less_the_minimum_anyway() -> None:
    loop = loop_of(prior_mean=3.0, feedback=Censored(minimum=3.0, outcome_bound=2.0, max_delay=4))
    query = loop.ask()
    loop.tell(query.id, 3.5)
    assert loop.guarantee().holds
    assert any("less the minimum" in assumption for assumption in loop.guarantee().assumptions)
