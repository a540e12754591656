"""Censored feedback where reward and constraints have models of their own.

A query without an outcome has the minimum as its reward and 0 as its constraint values: the share
of outcomes that arrive then scales each constraint about its border, which does not move.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    EvidenceRestart,
    ExponentialWeights,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    PrimalDual,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.acquisition import AffineOutcomes
from botorch_bandits.penalties import Polynomial

ARMS = Arms(torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1))
LENGTHSCALE, NOISE, MAX_DELAY = 0.3, 0.2, 6
MINIMUM, BOUND, PAIRS = -1.0, 3.0, ((-0.7, 0.8), (-0.9, 0.6))
B, R, DELTA = 1.5, 0.1, 0.1
KNOWN = Censored(MINIMUM, BOUND, max_delay=MAX_DELAY, constraint_bounds=PAIRS)
RULES = {
    "epochs": AdditiveEpochs(2, 4, step_size=3.0, surrogate="separate"),
    "exact": MultiplicativeEpochs(2, 4, penalty=Polynomial(1.0, 2.0), surrogate="separate"),
    "rounds": PrimalDual(2, max_multiplier=2.0, divisor=4.0),
}
FORGETTING = {
    "none": None,
    "window": SlidingWindow(5),
    "weights": ExponentialWeights(0.8),
    "time": TimeVaryingKernel(0.1),
}
UCB = LagrangianUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
THOMPSON = LagrangianThompsonSampling.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
PRIOR = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)


def build(rule: Any = RULES["epochs"], domain: Any = ARMS, **others: Any) -> BanditLoop:
    given: dict[str, Any] = {
        "model": PRIOR,
        "acquisition": UCB,
        "feedback": KNOWN,
        "constraints": rule,
        "seed": 3,
    }
    return BanditLoop(domain, **{**given, **others})


def tell(loop: BanditLoop, shift: float = 0.0, sign: float = 1.0) -> None:
    """Tell the oldest of three that are under way; every fifth query never ends."""
    waiting = [q for q in loop.history.pending() if q.id % 5 != 4]
    if len(waiting) > 2:
        x = float(waiting[0].x[0])
        reward = math.sin(5.0 * x) + 0.5 + shift
        loop.tell(waiting[0].id, sign * reward, constraints=[x - 0.6, 0.3 - x])


def play(loop: BanditLoop, num_rounds: int, **others: float) -> None:
    for t in range(num_rounds):
        loop.ask(**({"context": [0.1 * t]} if loop.settings.context_dim else {}))
        tell(loop, **others)


def penalty(name: str, g: Tensor) -> Tensor:
    return (1.0 + g.clamp_min(0.0)).square() - 1.0 if name == "exact" else g


@pytest.mark.parametrize("acquisition", [UCB, THOMPSON], ids=["ucb", "thompson"])
def test_a_minimum_moved_with_the_rewards_changes_nothing(acquisition: Any) -> None:
    """Neither choices nor what evidence says of changes: constraints have the prior mean 0."""
    given = {"acquisition": acquisition, "restart": EvidenceRestart(), "context_dim": 1}
    low = build(RULES["rounds"], **given)
    moved = Censored(MINIMUM + 5.0, BOUND, max_delay=MAX_DELAY, constraint_bounds=PAIRS)
    high = build(RULES["rounds"], feedback=moved, **given)
    play(low, 12)
    play(high, 12, shift=5.0)
    for one, other in zip(low.history.queries, high.history.queries, strict=True):
        assert torch.equal(one.x, other.x)
        lower = "constraint_lower_bound_1"
        assert one.diagnostics[lower] == pytest.approx(other.diagnostics[lower], rel=1e-6)
    statistics = [[test.statistic for test in loop.change_tests] for loop in (low, high)]
    assert statistics[0]
    assert statistics[0] == pytest.approx(statistics[1], rel=1e-6)


def fitted(X: Tensor, Y: Tensor) -> ModelListGP:
    """Both with the same prior, and no fit."""
    return ModelListGP(
        *(SingleTaskGP(X, y, outcome_transform=None) for y in Y.split(1, dim=-1)),
    )


@pytest.mark.parametrize("forgetting", ["none", "window"])
def test_on_a_users_model(forgetting: str) -> None:
    """Pseudo-values join what it made of the outcomes that came."""
    width = LagrangianUpperConfidenceBound.with_options(width=1.0)
    given = {"model": fitted, "acquisition": width, "forgetting": FORGETTING[forgetting]}
    loop = build(**given)
    play(loop, 10)
    assert {q.origin for q in loop.history.queries} == {"initial", "acquisition"}
    if forgetting == "none":
        model = loop.current_model()
        told = {o.query_id: (o.reward, *o.constraints) for o in loop.history.outcomes}
        rows = [told[i] for i in sorted(told)] + [(MINIMUM, 0.0, 0.0)] * (10 - len(told))
        found = torch.stack([each.train_targets for each in model.models], dim=-1)  # type: ignore
        assert torch.allclose(found.sum(0), torch.tensor(rows, dtype=torch.float64).sum(0))


def test_bounds_in_prior_deviations() -> None:
    """Those of constraints stay in their own units, in which their values are told."""
    scaled = BanditGP.with_kernel(_scaled(4.0), noise=4.0 * NOISE)
    prior = LagrangianUpperConfidenceBound.with_options(
        rkhs_bound=B, noise_bound=R, any_lambda=True, units="prior"
    )
    plain = LagrangianUpperConfidenceBound.with_options(
        rkhs_bound=2.0 * B, noise_bound=2.0 * R, any_lambda=True
    )
    in_prior = Censored(MINIMUM, BOUND / 2.0, max_delay=MAX_DELAY, constraint_bounds=PAIRS)
    one = build(model=scaled, acquisition=prior, feedback=in_prior)
    other = build(model=scaled, acquisition=plain)
    play(one, 9)
    play(other, 9)
    for ours, theirs in zip(one.history.queries, other.history.queries, strict=True):
        assert ours.diagnostics == pytest.approx(theirs.diagnostics, rel=1e-9)


def _scaled(scale: float) -> Any:
    from gpytorch.kernels import ScaleKernel

    outer = ScaleKernel(RBFKernel()).double()
    outer.outputscale = scale
    outer.base_kernel.lengthscale = LENGTHSCALE
    return outer


def test_without_bounds_a_constant_width_has_no_sum() -> None:
    loop = build(
        acquisition=LagrangianUpperConfidenceBound.with_options(width=2.0),
        feedback=Censored(MINIMUM, max_delay=MAX_DELAY),
    )
    play(loop, 8)
    assert {q.diagnostics["width"] for q in loop.history.queries} == {2.0}


@pytest.mark.parametrize(
    ("feedback", "others", "message"),
    [
        (
            Censored(0.0, 1.0),
            {},
            r"has no constraint_bounds=, but there are 2 constraints: .* from 0",
        ),
        (Censored(0.0, 1.0, constraint_bounds=((0.0, 1.0),)), {}, r"for 1, but there are 2"),
        (Censored(0.0), {}, r"needs outcome_bound="),
        (Censored(0.0, 3.0, constraint_bounds=PAIRS, predictive=True), {}, r"as published"),
        (
            KNOWN,
            {
                "acquisition": LagrangianUpperConfidenceBound.with_options(
                    width=1.0, posterior_transform=AffineOutcomes(torch.eye(3).double())
                )
            },
            r"posterior_transform=, which does not go",
        ),
    ],
)
def test_what_is_missing_is_an_error(feedback: Any, others: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(feedback=feedback, **others)
