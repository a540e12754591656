"""Outcomes up to a stated size keep every loop going; larger ones are refused."""

from __future__ import annotations

import math
import re

import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from gpytorch.kernels import RBFKernel

import botorch_bandits.acquisition as room
from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    ChangePointDetector,
    ChangePointRestart,
    ChangePointUpperConfidenceBound,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    FittedSingleTaskGP,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Ignored,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    MultiplicativeEpochs,
    OracleRestart,
    PrimalDual,
    RandomizedUpperConfidenceBound,
    RandomSearch,
    SlidingWindow,
    TimeVaryingKernel,
    TopTwoThompsonSampling,
    VarianceOnly,
    WidthUpperConfidenceBound,
)
from botorch_bandits.acquisition import (
    BanditAcquisition,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.checks import LARGEST_OUTCOME
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.penalties import Polynomial

BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
ARMS = Arms(torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1))
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
KERNEL = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2)
RECIPES = [
    ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
    ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True, units="prior"),
    GPUpperConfidenceBound.with_options(width=2.0),
    WidthUpperConfidenceBound.with_options(rule=ConstantWidth(2.0)),
    AMMUpperConfidenceBound.with_options(**BOUNDS),
    DMMUpperConfidenceBound.with_options(**BOUNDS),
    RandomizedUpperConfidenceBound.with_options(num_arms=12),
    GPThompsonSampling.with_options(width=1.0),
    ChangePointUpperConfidenceBound.with_options(horizon=20, smoothness=2.5, dim=1),
    CensoredUpperConfidenceBound.with_options(minimum=-LARGEST_OUTCOME, width=2.0),
    CensoredThompsonSampling.with_options(minimum=-LARGEST_OUTCOME, width=1.0),
    LogExpectedImprovement.with_options(),
    LogExpectedImprovement.with_options(incumbent="posterior_mean"),
    LogProbabilityOfImprovement.with_options(),
    MeanOnly.with_options(),
    VarianceOnly.with_options(),
]
ON_ARMS = [
    TopTwoThompsonSampling.with_options(**BOUNDS),
    TopTwoThompsonSampling.with_options(max_draws=0, leader_probability=0.1),
]
LAGRANGIAN = [
    LagrangianUpperConfidenceBound.with_options(width=2.0),
    LagrangianThompsonSampling.with_options(width=1.0),
]
CANDIDATES = [
    CandidatesUpperConfidenceBound.with_options(),
    CandidatesUpperConfidenceBound.with_options(form="mixture"),
    CandidatesThompsonSampling.with_options(),
]
PRIORS = BanditGP.with_candidates(
    [BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=each) for each in (0.1, 0.3)]
)
LARGE = math.nextafter(LARGEST_OUTCOME, 0.0)
REWARDS = [0.3, -LARGE, 0.7, LARGE, LARGE / 3.0, -LARGE, -0.2]


def name_of(recipe: object) -> str:
    return getattr(getattr(recipe, "acquisition_class", recipe), "__name__", str(recipe))


def build(domain=BOX, model=KERNEL, recipe=RECIPES[0], **settings) -> BanditLoop:
    return BanditLoop(domain, model, recipe, **settings)


def refuse_and_go_on(loop: BanditLoop, rewards=REWARDS, constraints=None, **ask) -> None:
    """Before each outcome a larger one is refused; each point is in the domain."""
    for reward in rewards:
        query = loop.ask(**ask)
        loop.settings.domain.check_point("x", query.x)
        for wrong in (math.nextafter(LARGEST_OUTCOME, math.inf), -1e155, -1e308):
            with pytest.raises(ValueError, match=r"be at most 1e\+50"):
                loop.tell(query.id, wrong, constraints)
            assert loop.history.state(query.id) == "pending"
        loop.tell(query.id, reward, constraints)
    last = loop.ask(**ask)
    loop.settings.domain.check_point("x", last.x)
    assert loop.history.num_arrived == len(rewards)


def test_every_acquisition_is_here():
    classes = {
        known
        for known in (getattr(room, name) for name in room.__all__)
        if isinstance(known, type) and issubclass(known, BanditAcquisition)
    } - {BanditAcquisition}
    recipes = RECIPES + ON_ARMS + LAGRANGIAN + CANDIDATES
    assert {recipe.acquisition_class for recipe in recipes} == classes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("recipe", [*RECIPES, RandomSearch()], ids=name_of)
def test_large_outcomes_of_every_acquisition(recipe, domain):
    if "num_arms" in getattr(recipe, "options", {}) and domain is BOX:
        pytest.skip("it is for arms alone")
    refuse_and_go_on(build(domain, None if recipe == RandomSearch() else KERNEL, recipe))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recipe", ON_ARMS, ids=str)
@pytest.mark.parametrize("forgetting", [None, SlidingWindow(3)])
def test_large_outcomes_of_what_is_for_arms(recipe, forgetting):
    refuse_and_go_on(build(ARMS, KERNEL, recipe, forgetting=forgetting))
    model = FittedSingleTaskGP([[0.0], [1.0]])
    refuse_and_go_on(build(ARMS, model, recipe, num_initial=1, forgetting=forgetting))


@pytest.mark.filterwarnings("ignore")  # the list is refuted
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("recipe", CANDIDATES, ids=str)
def test_large_outcomes_with_a_list_of_priors(recipe, domain):
    refuse_and_go_on(build(domain, PRIORS, recipe))


def upper_confidence_bound(model, X_pending, best):
    return qUpperConfidenceBound(model, beta=4.0, X_pending=X_pending)


DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.2, threshold=PowerThreshold(scale=1.0, exponent=-0.8)
)
SETTINGS = {
    "refits": {"model": BanditGP.with_kernel(RBFKernel(), noise=0.01, refit_every=2)},
    "a function of the user's": {
        "model": FittedSingleTaskGP([[0.0], [1.0]]),
        "recipe": upper_confidence_bound,
    },
    "pending points left out": {"feedback": Ignored()},
    "window": {"forgetting": SlidingWindow(3)},
    "weights": {"forgetting": ExponentialWeights(0.9)},
    "time": {"forgetting": TimeVaryingKernel(0.1)},
    "detector": {"restart": ChangePointRestart(detector=DETECTOR)},
    "oracle": {"restart": OracleRestart((3,))},
    "censored": {
        "recipe": ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
        "feedback": Censored(minimum=-LARGEST_OUTCOME, outcome_bound=2.0, max_delay=3),
    },
    "censored at a proxy": {
        "recipe": GPUpperConfidenceBound.with_options(width=2.0),
        "feedback": Censored(minimum_proxy=2.0, max_delay=3),
    },
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_large_outcomes_in_every_kind_of_loop(settings, domain):
    if domain is BOX and settings is SETTINGS["censored"]:  # the minimum is the prior mean
        with pytest.raises(ValueError, match=r"with Censored, the minimum.*use Arms"):
            build(domain, **settings)
    else:
        refuse_and_go_on(build(domain, **settings))


RULES = [
    (AdditiveEpochs(1, 2, surrogate="relabeled"), RECIPES[0]),
    (AdditiveEpochs(1, 2, surrogate="fresh"), RECIPES[0]),
    (MultiplicativeEpochs(1, 2, Polynomial(1.0, 2.0)), RECIPES[0]),
    (MultiplicativeEpochs(1, 2), DMMUpperConfidenceBound.with_options(**BOUNDS)),
    *((AdditiveEpochs(1, 2, surrogate="separate"), recipe) for recipe in LAGRANGIAN),
    *((PrimalDual(1, max_multiplier=5.0, divisor=2.0), recipe) for recipe in LAGRANGIAN),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize(("rule", "recipe"), RULES, ids=lambda part: type(part).__name__)
def test_large_constraint_values(rule, recipe, domain):
    """A value is taken if the penalized outcome that it makes is within the bound, too."""
    loop = build(domain, KERNEL, recipe, constraints=rule)
    refuse_and_go_on(loop, constraints=[-0.5])
    exponents = (308, 200, 100, 51, 50, 40, 24, 16, 12, 8, 5, 3, 2, 1)
    for exponent in exponents if domain is ARMS else exponents[1::2]:  # a box is searched each time
        loop.settings.domain.check_point("x", loop.ask().x)
        query, known = loop.history.pending()[0], loop.history.num_arrived
        refused = ""
        try:
            loop.tell(query.id, 0.5, [10.0**exponent])
        except ValueError as error:
            refused = str(error)
        assert bool(refused) == (loop.history.state(query.id) == "pending")
        assert bool(refused) == (loop.history.num_arrived == known)
        if refused:
            assert refused.startswith("constraints")
            assert "at most 1e+50" in refused
            assert exponent != 1


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_attached_points_and_constraint_values_are_refused_before_anything_is_recorded(domain):
    loop = build(domain, constraints=AdditiveEpochs(2, 2))
    query = loop.ask()
    for reward, values, name in (
        (1e51, [0.0, 0.0], "reward is 1e+51"),
        (0.0, [0.0, -1e51], "constraints[1] is -1e+51"),
        (0.0, [1e40, 0.0], "constraints is [1e+40, 0.0], which AdditiveEpochs turns into"),
    ):
        with pytest.raises(ValueError, match=re.escape(name)):
            loop.tell(query.id, reward, values)
        with pytest.raises(ValueError, match=re.escape(name)):
            loop.attach(domain.sample(1, torch.Generator().manual_seed(0))[0], reward, values)
    assert (loop.history.num_queries, loop.history.num_pending) == (1, 1)
    assert loop.multipliers == (0.0, 0.0)
    loop.tell(query.id, 1.0, [0.5, -0.5])
    domain.check_point("x", loop.ask().x)
