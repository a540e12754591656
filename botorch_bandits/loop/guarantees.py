"""The guarantee of a loop: the facts of its settings and rounds, and what a theorem says of them.

:func:`facts_of` fills in the facts, :func:`guarantee_of` evaluates the tables of
:mod:`botorch_bandits.confidence.hypotheses` over them, and :mod:`botorch_bandits.loop.numbers`
computes what the statements amount to in the rounds so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction

from botorch_bandits.acquisition import (
    BanditAcquisition,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.change_points import OracleRestart
from botorch_bandits.checks import DTYPE, is_number
from botorch_bandits.confidence import Guarantee, PriorSummary
from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.hypotheses import (
    OF_EPOCHS,
    OF_SEPARATE_BOUNDS,
    RATES,
    concluded,
)
from botorch_bandits.domains import Domain
from botorch_bandits.history import History, outcome_told_at_once
from botorch_bandits.loop.aspects import Multipliers
from botorch_bandits.loop.numbers import (
    complete_options,
    rounds_with_all_outcomes,
    with_certificate,
    with_epochs,
)
from botorch_bandits.loop.settings import (
    LoopSettings,
    bandit,
    is_played_as,
    model_of,
    settings_of_model,
)

PENALIZED: dict[str, Any] = {
    "function": "the penalized function of each epoch",
    "subject": "the penalized function of the running epoch",
}
"""What the model of a loop is of, if the constraints are in its outcomes as penalties."""


# --- facts --------------------------------------------------------------------------------------


def facts_of(
    settings: LoopSettings, history: History, segment: int, of_choices: bool = True
) -> Facts:
    """Return the facts of a loop.

    Args:
        settings: Its settings, in the sign of the model.
        history: The history of all rounds, in the sign in which it was told.
        segment: The number of the running segment, from 0.
        of_choices: Whether statements are about the chosen points as well, with the acquisition and
            the pending queries; otherwise they are about the bounds from the outcomes that arrived.
    """
    return Facts(
        outcome="reward" if history.maximize else "cost",
        minimizes=not history.maximize,
        is_alone=False,
        of_choices=of_choices,
        has_own_model=not settings.priors,
        has_own_acquisition=settings.played is None,
        context_dim=settings.context_dim,
        forgets=settings.forgetting is not None,
        **_of_rounds(history),
        **_of_feedback(settings, history),
        **_of_restarts(settings, segment),
        **_of_constraints(settings, history),
    )


def _of_rounds(history: History) -> dict[str, Any]:
    """Return the facts about queries and what became of them."""
    withdrawn = history.rounds_with_retracted()  # bounds in these rounds are not evidence
    refuted = (
        query.round_number
        for query in history.queries
        if query.diagnostics.get("is_refuted") and query.round_number not in withdrawn
    )
    return {
        "num_rounds": history.num_queries,
        "refuted_round": next(refuted, None),
        "is_late": any(
            event.arrived_round != history.query(event.query_id).round_number
            for event in history.events
        ),
        "num_pending": history.num_pending,
        "num_failed": history.num_failed,
        "num_avoided": sum(failure.avoided for failure in history.failures),
        "has_attached": any(query.origin == "attached" for query in history.queries),
        "num_restricted": sum(query.is_restricted for query in history.queries),
        "num_counted": sum(outcome.count is not None for outcome in history.outcomes),
        "num_noisy": sum(outcome.noise is not None for outcome in history.outcomes),
        "num_missing": history.num_failed + history.num_retracted,
        "retracted": tuple(retraction.query_id for retraction in history.retractions),
        "withdrawn": tuple(withdrawn),
    }


def _of_feedback(settings: LoopSettings, history: History) -> dict[str, Any]:
    """Return the facts about what pending and lost queries count as."""
    feedback = settings.feedback.censored
    facts: dict[str, Any] = {"hallucinates": settings.feedback.hallucinates}
    if feedback is None:
        return facts
    facts["is_censored"] = True
    # an attached point that came with its outcome cannot lose it
    facts["has_told_attached"] = any(
        outcome_told_at_once(history.query(event.query_id), event) is not None
        for event in history.events
    )
    late = [o for o in history.outcomes if feedback.is_late(history.query(o.query_id), o)]
    num_lost = len(late) + history.num_failed + history.num_retracted
    if feedback.max_delay is not None and feedback.unit == "rounds":
        latest = history.num_queries - feedback.max_delay
        num_lost += sum(query.round_number <= latest for query in history.pending())
    facts["num_lost"] = num_lost
    # if pending queries are filled in, the feedback adds a gap itself
    if feedback.minimum is not None and not feedback.fills_in:
        sign = 1.0 if history.maximize else -1.0  # the minimum is that of the model
        depths = [feedback.minimum - sign * outcome.reward for outcome in history.outcomes]
        below = [depth for depth in depths if depth > 0.0]
        facts |= {"num_below": len(below), "farthest_below": max(below, default=0.0)}
    return facts


def _of_restarts(settings: LoopSettings, segment: int) -> dict[str, Any]:
    """Return the facts about how the loop starts over."""
    restart, evidence = settings.restart, settings.evidence
    if restart is None or not restart.starts_over:
        return {}
    facts: dict[str, Any] = {"restart": "tests"}
    if restart.split_delta:
        facts["segment_delta"] = "its share of delta"
    if isinstance(restart, OracleRestart):
        facts["restart"] = "known" if restart.split_delta else "undivided"
        facts["change_points"] = restart.change_points or ("no round",)
        facts["share"] = restart.share_of_delta(1.0, segment)
    elif evidence is not None:
        facts["restart"] = "evidence"
        facts["keeps_rows"] = evidence.keep == "since_change"
        facts["false_alarms"] = evidence.describe_level(settings.model)
    return facts


def _of_constraints(settings: LoopSettings, history: History) -> dict[str, Any]:
    """Return the facts about constraints."""
    rule, played = settings.constraints, settings.played
    if rule is None:
        return {}
    if rule.surrogate == "separate":
        return {"constraints": "separate"}
    acquisition_class = None if played is None else played.acquisition_class
    draws = is_played_as(acquisition_class, GPThompsonSampling)
    # Remark 1 allows draws for exact constraints
    is_covered = is_played_as(acquisition_class, ImprovedUpperConfidenceBound) or (
        rule.expects_exact_constraints and draws
    )
    return {"constraints": "penalized", "is_covered": is_covered, "may_draw": draws}


# --- evaluation ---------------------------------------------------------------------------------


def guarantee_of(
    acquisition: AcquisitionFunction,
    facts: Facts,
    settings: LoopSettings,
    history: History,
    domain: Domain,
    starts: Sequence[int] = (),
    others: Sequence[OtherEpoch] | None = None,
) -> Guarantee:
    """Return what an acquisition function guarantees in a loop, with numbers for constraints.

    Args:
        acquisition: The acquisition function of the next round, built without pending points.
        facts: The facts of the loop.
        settings: The loop's settings.
        history: The history of all rounds.
        domain: The domain on which it is maximized.
        starts: See :func:`.rounds_with_all_outcomes`.
        others: Earlier epochs with other models, if each epoch has its own.
    """
    rule = settings.constraints
    if facts.constraints == "penalized":
        inner = _of_acquisition(acquisition, replace(facts, **PENALIZED), settings, history, domain)
        guarantee = _of_epochs(inner, facts, settings, others)
        # the proof needs every round; that some are missing is a gap
        if len(rounds_with_all_outcomes(history, starts)) == history.num_queries:
            deviations = [other.prior_deviation for other in others or ()]
            summary = PriorSummary(model_of(acquisition))
            guarantee = with_epochs(guarantee, settings, history, summary, deviations)
    else:
        guarantee = _of_acquisition(acquisition, facts, settings, history, domain)
        if rule is not None:
            # rounds are counted even where a restart voids the statements about them
            segment = replace(facts, restart="")
            of_segment = _of_acquisition(acquisition, segment, settings, history, domain)
            of_segment = concluded(of_segment, segment, OF_SEPARATE_BOUNDS)
            holds = of_segment.regret is not None and of_segment.regret.holds
            promised = rule.guarantee(facts)
            guarantee = replace(
                guarantee,
                method=f"{promised.method}, played by {guarantee.method}",
                constants={**guarantee.constants, **promised.constants},
            )
            guarantee = concluded(guarantee, facts, OF_SEPARATE_BOUNDS)
            if holds:
                guarantee = with_certificate(guarantee, history, starts, rule.constraint_bound)
    return _at_delta_of_all(guarantee, facts.share) if facts.restart == "known" else guarantee


def _of_acquisition(
    acquisition: AcquisitionFunction,
    facts: Facts,
    settings: LoopSettings,
    history: History,
    domain: Domain,
) -> Guarantee:
    """Return what an acquisition function guarantees of its model's function."""
    known = bandit(acquisition)
    if known is None:
        return Guarantee(method=type(acquisition).__name__, gaps=("no theorem is stated for it",))
    guarantee = known.guarantee(facts)
    if guarantee.theorem is None:
        return guarantee
    guarantee = guarantee.with_gaps(*_gaps_of_gains(known, history, settings))
    if not facts.of_choices:
        return guarantee
    guarantee = guarantee.with_assumptions(*domain.search_assumptions)
    regret = guarantee.regret
    if regret is None or regret.factor is None or regret.is_expected:
        return guarantee
    if settings.feedback.ignores_pending and settings.constraints is None:
        # the band is that of the outcomes that had arrived, and so is the bound that was maximized
        guarantee = replace(guarantee, regret=replace(regret, counts_pending=True))
    return guarantee


def _gaps_of_gains(
    acquisition: BanditAcquisition, history: History, settings: LoopSettings
) -> Iterator[str]:
    """Yield why a bound on the information gain does not hold on the loop's domain."""
    choices, bounds = settings.domain.choices, settings.domain.bounds
    if choices is None and bounds is None:
        return  # the points of a user's own domain are unknown
    contexts = [q.context for q in history.queries if q.context is not None]
    for rule in acquisition.width_rules:
        bound = rule.bound_on_gain()
        if bound is not None:
            yield from bound.gaps_on(choices, contexts if settings.context_dim else None, bounds)


def _of_epochs(
    inner: Guarantee,
    facts: Facts,
    settings: LoopSettings,
    others: Sequence[OtherEpoch] | None,
) -> Guarantee:
    """Return the guarantee of epochs, each of which plays a penalized function.

    Args:
        inner: What is guaranteed in an epoch.
        facts: The facts of the loop.
        settings: The loop's settings.
        others: Earlier epochs with other models, if each epoch has its own.
    """
    assert settings.constraints is not None
    promised, options = settings.constraints.guarantee(facts), complete_options(settings)
    regret, violation, delta = promised.regret, promised.violation, options.get("delta")
    assert regret is not None
    assert violation is not None
    added = 0.0 if inner.regret is None else inner.regret.added
    names = ("delta", "noise_bound")
    of_loop = {name: options[name] for name in names if is_number(options.get(name))}
    of_epoch = {
        f"{name}_of_epoch" if name in names else name: value
        for name, value in inner.constants.items()
    }
    guarantee = replace(
        promised,
        method=f"{promised.method}, played by {inner.method}",
        bands=inner.bands,
        regret=replace(regret, delta=delta, added=added),
        violation=replace(violation, delta=delta),
        constants={**of_loop, **of_epoch, **promised.constants},
        is_drawn=inner.is_drawn,
    )
    guarantee = guarantee.with_gaps(*inner.gaps).with_assumptions(*inner.assumptions)
    for other in others or ():
        guarantee = guarantee.with_assumptions(*other.guarantee.assumptions)
        gaps = [f"in epoch {other.number}: {gap}" for gap in other.guarantee.gaps]
        guarantee = guarantee.with_gaps(*gaps, of=RATES)
    facts = replace(facts, inner=inner.method, variation=added, has_models=others is not None)
    return concluded(guarantee, facts, OF_EPOCHS)


def _at_delta_of_all(guarantee: Guarantee, fraction: float) -> Guarantee:
    """Return the guarantee of all segments together from the guarantee of one.

    Args:
        guarantee: The guarantee of a segment that has its share of delta.
        fraction: This share, as a fraction of 1.
    """
    changed: dict[str, Any] = {
        name: replace(each, delta=each.delta / fraction)
        for name, each in guarantee.statements.items()
        if each.delta is not None
    }
    constants = dict(guarantee.constants)
    if "delta" in constants:
        constants["delta"] /= fraction
    return replace(guarantee, constants=constants, **changed)


# --- The guarantee of a loop whose epochs have different models: the proofs need one for each epoch
#
# The bands of a guarantee are about the running epoch, but regret and violation are sums over all
# epochs, so a statement about them that does not hold for one model does not hold at all.


class SettingsOfEpochs:
    """The settings of a loop epoch by epoch, for outcomes in the sign of the model.

    Args:
        settings: The settings as the user gave them.

    Attributes:
        differ: Whether epochs have different models.
    """

    def __init__(self, settings: LoopSettings) -> None:
        """See the class."""
        self._settings = settings
        self.differ = bool(settings.models_of_epochs)

    def now(self, multipliers: Multipliers | None) -> LoopSettings:
        """Return the settings of the running epoch.

        Args:
            multipliers: The state of the multipliers, if there are constraints.
        """
        if multipliers is None or not self.differ:
            return self.in_epoch()
        return self.in_epoch(multipliers.epoch)

    def in_epoch(self, epoch: int = 1) -> LoopSettings:
        """Return the settings of an epoch.

        Args:
            epoch: The number of the epoch in its segment, from 1.
        """
        settings = self._settings.in_epoch(epoch)
        return settings if settings.maximize else settings_of_model(settings)

    def others(
        self, multipliers: Multipliers | None, domain: Domain, facts: Facts
    ) -> list[OtherEpoch] | None:
        """Return earlier epochs with other models; None if there is one model for all epochs.

        Args:
            multipliers: See :meth:`now`.
            domain: The domain on which the acquisition function of the next round is maximized.
            facts: The facts of an epoch without data.
        """
        if not self.differ or multipliers is None:
            return None
        if self._settings.restart is not None:
            return []  # then no statement covers all epochs
        return other_epochs(self.in_epoch, multipliers, domain, facts)


@dataclass(frozen=True)
class OtherEpoch:
    """An earlier epoch whose model differs from that of the running one.

    Attributes:
        number: The number of the epoch, from 1.
        guarantee: The guarantee of the acquisition function on its model without data.
        prior_deviation: The prior standard deviation of its model, in raw outcome units.
    """

    number: int
    guarantee: Guarantee
    prior_deviation: float


def other_epochs(
    settings_in: Callable[[int], LoopSettings],
    multipliers: Multipliers,
    domain: Domain,
    facts: Facts,
) -> list[OtherEpoch]:
    """Return one earlier epoch for each model that differs from that of the running epoch.

    Args:
        settings_in: A function from an epoch's number to the loop's settings in it.
        multipliers: The multipliers of a loop that never restarted: epochs are counted once.
        domain: The domain on which the acquisition function of the next round is maximized.
        facts: The facts of an epoch without data.
    """
    *earlier, latest = multipliers.updates
    now = settings_in(latest.epoch)
    seen, found = [now.recipe], []
    for update in earlier:
        settings = settings_in(update.epoch)
        recipe, played = settings.recipe, settings.played
        if recipe is None or recipe in seen:
            continue
        seen.append(recipe)
        if played is None:
            continue  # no theorem is stated for it
        dim = settings.context_dim + settings.domain.dim
        empty = recipe(torch.empty(0, dim, dtype=DTYPE), torch.empty(0, 1, dtype=DTYPE))
        built = bandit(played.build(empty, domain, round_number=1))
        if built is not None:
            (prior,) = PriorSummary(empty).active.values()
            deviation = float(prior.standard_deviation)
            found.append(OtherEpoch(update.epoch, built.guarantee(facts), deviation))
    return found
