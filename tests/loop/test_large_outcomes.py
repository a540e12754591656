"""Outcomes up to a stated size keep every loop going; larger ones are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.acquisition import qUpperConfidenceBound
from gpytorch.kernels import RBFKernel
from pairwise import by_day

import botorch_bandits as bb
import botorch_bandits.acquisition as room
from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    FittedSingleTaskGP,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    PrimalDual,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.checks import LARGEST_OUTCOME
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.penalties import Polynomial

pytestmark = pytest.mark.filterwarnings("ignore")

BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
ARMS = Arms(torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1))
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2)
PRIORS = BanditGP.with_candidates(
    [BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=each) for each in (0.1, 0.3)]
)
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
WIDTH = GPUpperConfidenceBound.with_options(width=2.0)
LARGE = math.nextafter(LARGEST_OUTCOME, 0.0)
DETECTOR = bb.ChangePointDetector(
    RBFKernel(), lengthscale=0.2, threshold=PowerThreshold(scale=1.0, exponent=-0.8)
)


def of(cls: Any, model: Any = MODEL, **options: Any) -> dict[str, Any]:
    return {"acquisition": cls.with_options(**options), "model": model}


def upper_confidence_bound(model: Any, X_pending: Any, best: Any) -> Any:
    return qUpperConfidenceBound(model, beta=4.0, X_pending=X_pending)


ON_ARMS: list[dict[str, Any]] = [
    of(bb.TopTwoThompsonSampling, **BOUNDS),
    of(bb.TopTwoThompsonSampling, FittedSingleTaskGP([[0.0], [1.0]]), max_draws=0),
    {"feedback": Censored(-LARGEST_OUTCOME, 2.0, max_delay=3)},
]
LOOPS: list[dict[str, Any]] = [
    *ON_ARMS,
    of(ImprovedUpperConfidenceBound, **BOUNDS, any_lambda=True, units="prior"),
    of(GPUpperConfidenceBound, width=2.0),
    of(bb.WidthUpperConfidenceBound, rule=ConstantWidth(2.0)),
    of(bb.AMMUpperConfidenceBound, **BOUNDS),
    of(bb.DMMUpperConfidenceBound, **BOUNDS),
    of(bb.RandomizedUpperConfidenceBound, num_arms=12),
    of(bb.GPThompsonSampling, width=1.0),
    of(bb.ChangePointUpperConfidenceBound, horizon=20, smoothness=2.5, dim=1),
    of(bb.CensoredUpperConfidenceBound, minimum=-LARGEST_OUTCOME, width=2.0),
    of(bb.CensoredThompsonSampling, minimum=-LARGEST_OUTCOME, width=1.0),
    of(LogExpectedImprovement),
    of(LogExpectedImprovement, incumbent="posterior_mean"),
    of(bb.LogProbabilityOfImprovement),
    of(bb.MeanOnly),
    of(bb.VarianceOnly),
    of(bb.CandidatesUpperConfidenceBound, PRIORS),
    of(bb.CandidatesUpperConfidenceBound, PRIORS, form="mixture"),
    of(bb.CandidatesThompsonSampling, PRIORS),
    {"acquisition": bb.RandomSearch(), "model": None},
    {"model": BanditGP.with_kernel(RBFKernel(), noise=0.01, refit_every=2)},
    {"model": FittedSingleTaskGP([[0.0], [1.0]]), "acquisition": upper_confidence_bound},
    {"feedback": bb.Ignored()},
    {"forgetting": bb.SlidingWindow(3)},
    {"forgetting": bb.ExponentialWeights(0.9)},
    {"forgetting": bb.TimeVaryingKernel(0.1)},
    {"restart": bb.ChangePointRestart(detector=DETECTOR)},
    {"restart": bb.OracleRestart((3,))},
    {"acquisition": WIDTH, "feedback": Censored(minimum_proxy=2.0, max_delay=3)},
]
LAGRANGIAN = [
    of(LagrangianUpperConfidenceBound, width=2.0),
    of(LagrangianThompsonSampling, width=1),
]


def build(domain: Any, **settings: Any) -> BanditLoop:
    return BanditLoop(domain, **{"model": MODEL, "acquisition": IGP, **settings})


def refuse_and_go_on(loop: BanditLoop, constraints: list[float] | None = None) -> None:
    """Before each outcome a larger one is refused; each point is in the domain."""
    rewards = [0.3, -LARGE, 0.7, LARGE, LARGE / 3.0, -LARGE, -0.2]
    for reward in rewards:
        query = loop.ask()
        loop.settings.domain.check_point("x", query.x)
        for wrong in (math.nextafter(LARGEST_OUTCOME, math.inf), -1e155, -1e308):
            with pytest.raises(ValueError, match=r"be at most 1e\+50"):
                loop.tell(query.id, wrong, constraints)
            assert loop.history.state(query.id) == "pending"
        loop.tell(query.id, reward, constraints)
    loop.settings.domain.check_point("x", loop.ask().x)
    assert loop.history.num_arrived == len(rewards)


def test_every_acquisition_is_here() -> None:
    classes = {
        known
        for known in (getattr(room, name) for name in room.__all__)
        if isinstance(known, type) and issubclass(known, room.BanditAcquisition)
    }
    recipes = [settings.get("acquisition", IGP) for settings in (*LOOPS, *LAGRANGIAN)]
    known = {getattr(recipe, "acquisition_class", None) for recipe in recipes}
    assert classes - {room.BanditAcquisition} <= known


@pytest.mark.parametrize("number", range(len(LOOPS)))
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_large_outcomes_in_every_kind_of_loop(number: int, domain: Any) -> None:
    settings = LOOPS[number]
    is_of_arms = settings in ON_ARMS or "num_arms" in str(settings)
    if domain is ARMS or not is_of_arms:
        refuse_and_go_on(build(domain, **settings))


RULES: list[dict[str, Any]] = [
    {"constraints": AdditiveEpochs(1, 2)},
    {"constraints": AdditiveEpochs(1, 2, surrogate="fresh")},
    {"constraints": MultiplicativeEpochs(1, 2, Polynomial(1.0, 2.0))},
    {"constraints": MultiplicativeEpochs(1, 2), **of(bb.DMMUpperConfidenceBound, **BOUNDS)},
    *({"constraints": AdditiveEpochs(1, 2, surrogate="separate"), **each} for each in LAGRANGIAN),
    *({"constraints": PrimalDual(1, 5.0, 2.0), **each} for each in LAGRANGIAN),
]


@pytest.mark.parametrize(
    ("number", "domain"), by_day([(n, d) for d in (ARMS, BOX) for n in range(len(RULES))], every=2)
)
def test_large_constraint_values(number: int, domain: Any) -> None:
    """A value is taken if the penalized outcome that it makes is within the bound, too."""
    loop = build(domain, **RULES[number])
    refuse_and_go_on(loop, [-0.5])
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
