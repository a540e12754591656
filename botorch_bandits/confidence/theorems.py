"""The theorems on widths, as a table: what each says, of which functions, and what it assumes.

All texts are templates, see :meth:`.Facts.say`. A width rule adds what it knows of the model and of
its own ingredients, and :func:`guarantee_of` makes a :class:`.Guarantee` of both. What a theorem
needs of an acquisition function and of the rounds of a loop is the table of
:mod:`botorch_bandits.confidence.hypotheses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.guarantee import (
    Guarantee,
    RegretStatement,
    Statement,
    of_any_round,
)
from botorch_bandits.confidence.hypotheses import (
    AS_OBSERVED,
    BOUNDED_NOISE,
    DELAYS_ALIKE,
    DRAWN_FROM_LIST,
    DRAWN_FROM_PRIOR,
    FIXED_PRIOR,
    GAUSSIAN_NOISE,
    GAUSSIAN_NOISE_ON_LIST,
    VARIES,
)


@dataclass(frozen=True)
class Theorem:
    """A theorem on a width.

    Attributes:
        method: The method that has the width.
        source: Where the theorem is.
        regret: What it says about the regret.
        bands: What it says about confidence bounds, if anything.
        assumptions: What it assumes whatever the model and the ingredients.
        source_of_draws: Where the theorem on draws that are scaled by the width is, if it is
            another one.
        is_drawn: Whether it is about functions that are drawn from the model's prior.
    """

    method: str
    source: str
    regret: RegretStatement
    bands: Statement | None = None
    assumptions: tuple[str, ...] = ()
    source_of_draws: str | None = None
    is_drawn: bool = False


EVERYWHERE = Statement(
    "with {probability} {subject} lies within the width of the posterior mean, at all points and "
    "in {rounds}{half}",
    reach="everywhere",
)
"""A confidence bound that holds at all points and in all rounds."""

TWICE_THE_BOUND = RegretStatement(
    "with {probability}, on the same event, {regret_of} every round that {optimizes} is at most "
    "twice width times standard deviation at the point that it chose{plus_variation}",
    factor=2.0,
)
"""What a confidence bound that holds at all points implies for the regret."""

OF_DRAWN = (DRAWN_FROM_PRIOR, FIXED_PRIOR, GAUSSIAN_NOISE)
"""What theorems on draws of the Gaussian process assume."""

ON_FEW_ARMS = "the acquisition is maximized over at most num_arms arms, fixed before the data"
ON_A_BOX = (
    "the acquisition is maximized over a box of at most dim dimensions, with sides of at most "
    "side_length, fixed before the data"
)
_SMOOTH = (
    "for each dimension j the largest |df/dx_j| over the box (and over all contexts, if there are "
    "any) exceeds L with probability at most a exp(-(L/b)^2), for every L"
)
_BETWEEN_BOUNDS = (
    "with {probability} {subject} lies between the least lower and the largest upper bound of the "
    "priors that survive, {computed}in {rounds}, "
)
_DISTANCE_OF_BOUNDS = (
    "with {probability}, on the same event, {regret_of} every round t that {optimizes} is at most "
    "the distance of the bounds at the point that it chose, which is twice the effective width "
    "times standard deviation"
)

IGP_UCB = Theorem(
    "IGP-UCB width{varying}",
    "Chowdhury and Gopalan 2017, Theorem 2, {details}",
    TWICE_THE_BOUND,
    EVERYWHERE,
    source_of_draws="Chowdhury and Gopalan 2017, Theorem 4, {details}",
)
AMM = Theorem(
    "AMM width",
    "Flynn and Reeb 2024, analytic mixture-martingale bound, with a_0 = lam",
    TWICE_THE_BOUND,
    EVERYWHERE,
    (AS_OBSERVED,),
)
DMM = Theorem(
    "DMM",
    "Flynn and Reeb 2024, mixture-martingale confidence set, over a grid of ridges",
    TWICE_THE_BOUND,
    EVERYWHERE,
    (AS_OBSERVED,),
)
GP_UCB_IN_THE_RKHS = Theorem(
    "GP-UCB in the RKHS",
    "Srinivas et al. 2010, Theorem 3",
    TWICE_THE_BOUND,
    EVERYWHERE,
    (FIXED_PRIOR, BOUNDED_NOISE),
)
CENSORED = Theorem(
    "censored feedback",
    "Verma, Dai and Low 2022, Theorem 1, {details}",
    RegretStatement(
        "with {probability}, on the same event, rho_m TIMES {regret_of} every round that "
        "{optimizes} is at most twice width times standard deviation at the point that it chose, "
        "whether or not outcomes are pending",
        factor=2.0,
        covers_pending=True,
        quantity="rho_m times the regret",
    ),
    Statement(
        "with {probability} {subject} (less the {minimum}) TIMES rho_m, the probability that an "
        "outcome arrives within max_delay {unit} (ever, if that is None), lies within the width of "
        "the posterior mean (less the {minimum}), at all points and in {rounds}{half}; it has the "
        "same {optimizer}"
    ),
    (DELAYS_ALIKE, FIXED_PRIOR),
    source_of_draws="Verma, Dai and Low 2022, Theorem 3, {details}",
)
GP_UCB_ON_ARMS = Theorem(
    "GP-UCB on finitely many arms",
    "Srinivas et al. 2010, Theorem 1",
    TWICE_THE_BOUND,
    Statement(
        "with {probability} {subject} lies within the width of the posterior mean, on all arms "
        "(with contexts: at the context of each round) and in {rounds}{half}",
        reach="arms",
    ),
    (*OF_DRAWN, ON_FEW_ARMS),
    is_drawn=True,
)
GP_UCB_ON_A_BOX = Theorem(
    "GP-UCB on a box",
    "Srinivas et al. 2010, Theorem 2",
    RegretStatement(
        "with {probability}, on the same event, {regret_of} every round t (counted from the last "
        "reset, if there are any) that {optimizes} is at most twice width times standard deviation "
        "at the point that it chose, plus the prior standard deviation times 1 / t^2",
        factor=2.0,
    ),
    Statement(
        "with {probability} {subject} lies within the width of the posterior mean, in {rounds}, at "
        "the point of the round and on a discretization that grows with it; not at all points at "
        "once"
    ),
    (
        *OF_DRAWN,
        f"{_SMOOTH}, with smoothness_a and smoothness_b for a and b",
        ON_A_BOX,
    ),
    is_drawn=True,
)
IRGP_UCB = Theorem(
    "IRGP-UCB",
    "Takeno, Inatsu and Karasuyama 2023, regret bound for finite domains",
    RegretStatement(
        "{regret_of} a round, in expectation over {outcome}s, noise and draws, is at most the "
        "expectation of width times standard deviation at the point that it chose; no single "
        "confidence bound holds in all rounds",
        factor=1.0,
        is_expected=True,
        quantity="the expected regret",
    ),
    assumptions=(*OF_DRAWN, ON_FEW_ARMS),
    is_drawn=True,
)
LIST_ON_ARMS = Theorem(
    "upper confidence bound of the survivors of a list of priors",
    "Ville's inequality and Srinivas et al. 2010, Theorem 1, each at delta / 2",
    RegretStatement(_DISTANCE_OF_BOUNDS, factor=2.0),
    Statement(
        _BETWEEN_BOUNDS + "on all arms (with contexts: at the context of each round)", reach="arms"
    ),
    (DRAWN_FROM_LIST, GAUSSIAN_NOISE_ON_LIST, ON_FEW_ARMS),
    is_drawn=True,
)
LIST_ON_A_BOX = Theorem(
    LIST_ON_ARMS.method,
    "Ville's inequality and Srinivas et al. 2010, Theorem 2, each at delta / 2",
    RegretStatement(
        _DISTANCE_OF_BOUNDS + ", plus the prior standard deviation times 1 / t^2", factor=2.0
    ),
    Statement(
        _BETWEEN_BOUNDS + "at the point of the round and on a discretization that grows with it; "
        "not at all points at once"
    ),
    (
        DRAWN_FROM_LIST,
        GAUSSIAN_NOISE_ON_LIST,
        f"{_SMOOTH}, with the smoothness_a and smoothness_b of the true prior for a and b",
        ON_A_BOX,
    ),
    is_drawn=True,
)
GP_UCB_CPD = Theorem(
    "GP-UCB-CPD",
    "Avanesov, Theorem 3.1",
    RegretStatement("the expected regret grows more slowly than the horizon, for D large enough"),
)


def guarantee_of(
    theorem: Theorem,
    facts: Facts,
    constants: Mapping[str, float],
    gaps: Iterable[str] = (),
    assumptions: Iterable[str] = (),
    largest: float | None = None,
    tail: float = 0.0,
    **words: Any,
) -> Guarantee:
    """Return what a theorem guarantees of a use.

    Args:
        theorem: A line of the table.
        facts: The facts of the use.
        constants: The numbers in use, by name, such as ``delta``.
        gaps: Why it does not hold, as far as model and ingredients tell.
        assumptions: What it assumes because of the model and the ingredients, as templates.
        largest: ``2 B``, if it bounds the regret of any round for a function that does not vary.
        tail: See :class:`.RegretStatement`.
        **words: Further fields of the templates.
    """
    delta, added, bands = constants.get("delta"), 2.0 * facts.variation, theorem.bands
    largest = None if largest is None else largest + added
    says = facts.say(theorem.regret.wording) + of_any_round(largest, facts)
    assumed = (*assumptions, *theorem.assumptions, *((VARIES,) if facts.variation else ()))
    draws = theorem.source_of_draws
    return Guarantee(
        method=facts.say(theorem.method, **words),
        theorem=facts.say(theorem.source, **words),
        theorem_of_draws=None if draws is None else facts.say(draws, **words),
        bands=bands and replace(bands, wording=facts.say(bands.wording, **words), delta=delta),
        regret=replace(
            theorem.regret, wording=says, delta=delta, largest=largest, tail=tail, added=added
        ),
        assumptions=tuple(map(facts.say, assumed)),
        constants=constants,
        gaps=tuple(gaps),
        is_drawn=theorem.is_drawn,
    )
