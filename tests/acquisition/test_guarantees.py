"""What acquisition functions guarantee: their theorems, what takes each away, and what a user adds.

Every class is built with bounds and a prior that are fixed, so that its theorem holds; each line of
the table of gaps then changes one thing.
"""

from __future__ import annotations

import copy
import pickle
from functools import partial
from typing import Any

import pytest
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
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
    WidthUpperConfidenceBound,
)
from botorch_bandits.confidence import CensoredWidth, ConstantWidth, FiniteArmsWidth

X, ARMS = line(0.0, 1.0, 6), line(0.0, 1.0, 30)
Y = 0.1 * X.sin()
BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.1}
GENERAL: dict[str, Any] = {**BOUNDS, "any_lambda": True}
CENSORED: dict[str, Any] = {**GENERAL, "minimum": 0.0, "outcome_bound": 1.0}
WEIGHED: dict[str, Any] = {**GENERAL, "multipliers": [1.0]}
CONSTANT: dict[str, Any] = {"width": 2.0, "rkhs_bound": None, "noise_bound": None}
CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "width": (
        WidthUpperConfidenceBound,
        {"rule": FiniteArmsWidth(30, 0.1)},
        "Srinivas et al. 2010, Theorem 1",
    ),
    "gp": (GPUpperConfidenceBound, {"num_arms": 30}, "Srinivas et al. 2010, Theorem 1"),
    "improved": (
        ImprovedUpperConfidenceBound,
        GENERAL,
        "Chowdhury and Gopalan 2017, Theorem 2, in the form for every lam",
    ),
    "amm": (AMMUpperConfidenceBound, BOUNDS, ""),
    "randomized": (RandomizedUpperConfidenceBound, {"num_arms": 30}, ""),
    "dmm": (DMMUpperConfidenceBound, BOUNDS, ""),
    "thompson": (
        GPThompsonSampling,
        {**GENERAL, "choices": ARMS},
        "Chowdhury and Gopalan 2017, Theorem 4",
    ),
    "censored": (CensoredUpperConfidenceBound, CENSORED, "Verma, Dai and Low 2022, Theorem 1"),
    "censored thompson": (
        CensoredThompsonSampling,
        {**CENSORED, "choices": ARMS},
        "Verma, Dai and Low 2022, Theorem 3",
    ),
    "lagrangian": (LagrangianUpperConfidenceBound, WEIGHED, ""),
    "lagrangian thompson": (LagrangianThompsonSampling, {**WEIGHED, "choices": ARMS}, ""),
}
"""Classes by name, with options, and how their theorem begins."""

OF_BOUNDS = ("improved", "amm", "dmm", "thompson", "lagrangian", "lagrangian thompson")
every_class = pytest.mark.parametrize("name", CASES)
of_bounds = pytest.mark.parametrize("name", OF_BOUNDS)


def given(name: str, prior_mean: float = 0.0, noise: float = 0.05) -> Any:
    """A model whose prior was fixed before the data."""
    recipe = BanditGP.with_kernel(RBFKernel(), noise, prior_mean=prior_mean, lengthscale=0.2)
    one, other = (recipe(X, prior_mean + Y) for _ in range(2))
    return ModelListGP(one, other) if name.startswith("lagrangian") else one


def frozen(name: str, learned_mean: float | None = None) -> Any:
    """A model whose parameters were set before they were frozen, as after a fit."""
    likelihood = GaussianLikelihood().double()
    likelihood.noise = 0.05
    model = SingleTaskGP(
        X,
        Y,
        likelihood=likelihood,
        covar_module=RBFKernel().double(),
        mean_module=ZeroMean() if learned_mean is None else None,
        outcome_transform=None,
    )
    if learned_mean is not None:
        model.mean_module.constant.data.fill_(learned_mean)
    model.requires_grad_(False)
    return ModelListGP(model, model) if name.startswith("lagrangian") else model


def told(name: str, model: Any = None, **options: Any) -> Guarantee:
    cls, own, _ = CASES[name]
    acquisition = cls(given(name) if model is None else model, **{**own, **options})
    guarantee: Guarantee = acquisition.guarantee()
    return guarantee


# --- theorems, and what takes them away -----------------------------------------------------------


@every_class
@pytest.mark.parametrize("num_pending", [0, 2])
def test_the_theorem_of_each_class(name: str, num_pending: int) -> None:
    guarantee = told(name, X_pending=ARMS[7 : 7 + num_pending])
    assert str(guarantee.theorem).startswith(CASES[name][2])
    if num_pending and not name.startswith("censored"):
        (gap,) = guarantee.gaps
        assert gap.startswith("2 ")
        assert "pending" in gap
        return
    assert guarantee.gaps == ()
    assert guarantee.holds == (name != "lagrangian thompson")
    text = "\n".join(guarantee.assumptions)
    if name.startswith("censored"):  # of whoever has a loop of their own
        for words in (
            "X_pending has every query that is waited for",
            "is a row of the model with the minimum as its outcome",
            "delays depend neither on the noise nor on the inputs",
            "less the minimum",
        ):
            assert words in text
        assert "rho_m" in guarantee.statement


def test_constants_are_those_of_the_options() -> None:
    improved = told("improved", delta=0.2)
    assert (improved.constants["delta"], improved.constants["rkhs_bound"]) == (0.2, 2.0)
    assert improved.constants["lam"] == pytest.approx(0.05)
    assert told("gp").constants["num_arms"] == 30.0
    # the confidence bound may fail with delta / 2, the draw with the other half
    draw = told("thompson", delta=0.1)
    assert draw.constants["delta"] == 0.1
    assert "probability 0.95" in draw.statement
    assert told("censored thompson", delta=0.1).constants["delta"] == 0.1
    both = told("lagrangian", rkhs_bound=(2.0, 3.0), delta=0.1)
    assert both.constants["rkhs_bound_1"] == 3.0
    assert "for reward and constraints at delta / 2 each" in both.explain(10_000)
    joint = told("lagrangian thompson", delta=0.1)
    assert joint.constants["delta_0"] == 0.025
    assert "no theorem bounds the regret of joint draws" in joint.explain(10_000)
    clipped = told("lagrangian", reward_bound=2.0)
    assert clipped.holds
    assert "clipped" in clipped.explain(10_000)


@pytest.mark.parametrize(
    "options", [{"any_lambda": False}, {"bounded_outcomes": True, "any_lambda": False}]
)
def test_forms_that_hold_with_much_noise_or_bounded_outcomes(options: dict[str, Any]) -> None:
    noise = 0.05 if "bounded_outcomes" in options else 1.1
    assert told("censored", given("censored", noise=noise), **options).holds


GAPS: list[tuple[str, dict[str, Any], str]] = [
    *(
        (name, options, words)
        for name in ("improved", "thompson", "censored", "lagrangian")
        for options, words in (
            ({"any_lambda": False}, "lam = 0.05 is below 1"),
            ({"scale": 0.5}, "scaled by 0.5"),
            (CONSTANT, "heuristic"),
        )
    ),
    ("improved", {"information_gain": 30.0}, "information_gain was given"),
    ("thompson", {"choices": None}, "a pathwise draw approximates"),
    ("censored", {"prior_mean": 0.5}, "the prior mean differs from the minimum by 0.5"),
    ("censored", {"X_pending": X[:2], "pseudo_noise": 1.0}, "pending rows have more noise"),
    ("censored", {"outcome_bound": 0.05}, "more than outcome_bound = 0.05"),
    ("censored thompson", {"choices": None}, "pathwise"),
]


@pytest.mark.parametrize(("name", "options", "words"), GAPS)
def test_what_takes_a_theorem_away_is_its_only_reason(
    name: str, options: dict[str, Any], words: str
) -> None:
    options = dict(options)
    guarantee = told(name, given(name, prior_mean=options.pop("prior_mean", 0.0)), **options)
    assert not guarantee.holds
    (reason,) = {*guarantee.gaps, *guarantee.reasons}
    assert words in reason
    assert reason in guarantee.explain(10_000)


# --- units ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*OF_BOUNDS, "censored", "censored thompson"])
def test_bounds_in_prior_units_are_not_worded_as_raw(name: str) -> None:
    for units in ("prior", "outcome"):
        text = "\n".join(told(name, units=units).assumptions)
        assert ("multiples of the prior standard deviation" in text) == (units == "prior")


def test_the_largest_regret_is_in_raw_units() -> None:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(4.0)
    for units, expected in (("outcome", 4.0), ("prior", 8.0)):
        regret = told("improved", BanditGP(X, Y, kernel, noise=0.2), units=units).regret
        assert regret is not None
        assert regret.largest == pytest.approx(expected)


def test_delays_of_a_loop_are_told_in_their_unit() -> None:
    for unit in ("rounds", "seconds"):
        loop = BanditLoop(
            Arms(X),
            BanditGP.with_kernel(RBFKernel(), noise=0.2),
            ImprovedUpperConfidenceBound.with_options(**GENERAL),
            feedback=Censored(minimum=0.0, outcome_bound=1.0, max_delay=3, unit=unit),
        )
        bands = loop.guarantee().bands
        assert bands is not None
        assert f"arrives within max_delay {unit} (ever, if that is None)" in bands.text
        assert "X_pending" not in loop.guarantee().explain(10_000)  # a loop sees to it itself
    with pytest.raises(ValueError, match="unit is 'days'"):
        CensoredWidth(ConstantWidth(2.0), 1.0, unit="days")


# --- what no model shows, and a user vouches for --------------------------------------------------


@every_class
def test_frozen_parameters_may_have_been_fitted_so_the_user_must_say_that_they_were_not(
    name: str,
) -> None:
    assert any('assume="fixed prior"' in gap for gap in told(name, frozen(name)).gaps)
    assert told(name, frozen(name), assume="fixed prior").gaps == ()


@of_bounds
def test_a_learned_constant_mean_needs_both_words(name: str) -> None:
    for some in ((), "fixed prior", "centered bound"):
        assert not told(name, frozen(name, 0.7), assume=some).holds
    guarantee = told(name, frozen(name, 0.7), assume=("fixed prior", "centered bound"))
    assert guarantee.gaps == ()
    assert any("less the prior mean" in assumption for assumption in guarantee.assumptions)


@of_bounds
def test_a_prior_mean_needs_a_bound_on_the_reward_less_it(name: str) -> None:
    assert any('assume="centered bound"' in gap for gap in told(name, given(name, 3.0)).gaps)
    guarantee = told(name, given(name, 3.0), assume="centered bound")
    assert guarantee.gaps == ()
    assert any("less the prior mean" in assumption for assumption in guarantee.assumptions)


@pytest.mark.parametrize("name", ["gp", "randomized", "width"])
def test_theorems_on_draws_need_nothing_of_the_prior_mean(name: str) -> None:
    assert told(name, given(name, 3.0)).gaps == ()


@every_class
def test_what_is_assumed_is_kept_by_copies_and_after_new_hyperparameters(name: str) -> None:
    cls, options, _ = CASES[name]
    acquisition = cls(frozen(name), **options, assume="fixed prior")
    for each in (copy.deepcopy(acquisition), pickle.loads(pickle.dumps(acquisition))):
        assert each.guarantee().gaps == ()
    acquisition.load_state_dict(acquisition.state_dict())
    assert acquisition.guarantee().gaps == ()


@every_class
def test_an_unknown_word_is_refused_by_name(name: str) -> None:
    cls, options, _ = CASES[name]
    message = r"assume is 'fixed'; .*'fixed prior', 'centered bound'"
    for build in (cls.with_options, partial(cls, frozen(name))):
        with pytest.raises(ValueError, match=message):
            build(**options, assume="fixed")
    with pytest.raises(TypeError, match="assume is 3; pass"):
        cls.with_options(**options, assume=3)
