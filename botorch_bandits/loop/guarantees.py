"""The guarantee of a loop: the facts of its settings and rounds, and what a theorem says of them.

:func:`facts_of` fills in the facts, :func:`guarantee_of` evaluates the tables of
:mod:`botorch_bandits.confidence.theorems` over them, and the last part of this file computes what
the statements amount to in the rounds so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction

from botorch_bandits.acquisition import (
    BanditAcquisition,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.base import bandit, default_options
from botorch_bandits.acquisition.upper_confidence_bound import FEWEST_ROWS
from botorch_bandits.change_points import OracleRestart
from botorch_bandits.checks import DTYPE, counted, is_number
from botorch_bandits.confidence import Guarantee, PriorSummary, RegretStatement
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.horizon import realized_ts_regret_bound
from botorch_bandits.confidence.theorems import (
    NO_ROUND,
    NOT_EVERY_ROUND,
    OF_EPOCHS,
    OF_SEPARATE_BOUNDS,
    RATES,
    concluded,
)
from botorch_bandits.domains import Domain
from botorch_bandits.history import History, Query, outcome_told_at_once
from botorch_bandits.loop.aspects import Multipliers
from botorch_bandits.loop.settings import (
    LoopSettings,
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


# --- The numbers of a loop's statements: bounds on regret and violation of the rounds so far ------
#
# Each is a sum over the rounds that a statement covers, of what their diagnostics contain.


def rounds_with_all_outcomes(history: History, starts: Iterable[int] = ()) -> list[Query]:
    """Return the queries that the method chose when every earlier outcome had arrived.

    Outcomes from before the last reset are not required. The fate of the query itself does not
    matter: if a bound holds in expectation over the choice, it would become invalid if rounds were
    left out according to the chosen points, such as those at which queries fail. A query that was
    chosen with an outcome that was withdrawn later is not included.

    Args:
        history: The history of all rounds.
        starts: The ids of the first queries of later segments.
    """
    ended = {
        event.query_id: math.inf if event.avoided else event.arrived_round  # it stays occupied
        for event in history.events
    }
    withdrawn, begins = set(history.rounds_with_retracted()), set(starts)
    found, latest = [], 0.0  # the round in which the last earlier outcome arrived
    for query in history.queries:
        if query.id in begins:
            latest = 0.0
        if (
            query.origin == "acquisition"
            and latest < query.round_number
            and query.round_number not in withdrawn
        ):
            found.append(query)
        latest = max(latest, ended.get(query.id, math.inf))
    return found


def with_regret(guarantee: Guarantee, history: History, starts: Iterable[int] = ()) -> Guarantee:
    """Return a guarantee with numbers for the rounds so far that its statement on regret covers.

    Args:
        guarantee: The guarantee of the acquisition.
        history: The history of all rounds.
        starts: See :func:`rounds_with_all_outcomes`.
    """
    regret = guarantee.regret
    if regret is None or not regret.holds or guarantee.theorem is None:
        return guarantee
    if regret.num_rounds is not None:  # counted already
        return guarantee
    bounds = dict(_bounds_of_rounds(regret, history, starts))
    num_others = history.num_queries - len(bounds)
    if num_others and regret.needs_every_round:
        return guarantee.with_gaps(
            ALONE.say(NOT_EVERY_ROUND, num=num_others, num_rounds=history.num_queries), of=RATES
        )
    largest = regret.largest
    if num_others and not bounds and largest is None:
        return guarantee.with_gaps(
            ALONE.say(NO_ROUND, num_rounds=history.num_queries), of=("regret",)
        )
    known = bounds.values() if largest is None else [min(b, largest) for b in bounds.values()]
    has_number = not any(map(math.isnan, bounds.values()))
    total = math.fsum(known) if has_number else None
    if bounds and largest is not None and None not in (regret.num_points, regret.delta):
        drawn = [history.queries[number - 1] for number in bounds]
        total = _bound_of_draws(drawn, regret, starts, largest)
    told = replace(
        regret,
        bound=total,
        num_rounds=len(bounds),
        num_others=num_others,
        bound_of_others=None if largest is None else largest * num_others,
    )
    return replace(guarantee, regret=told)


def _bounds_of_rounds(
    regret: RegretStatement, history: History, starts: Iterable[int]
) -> Iterator[tuple[int, float]]:
    """Yield the rounds that a statement covers, and a bound on the regret of each.

    Each play of a point has the bound of its choice, unless that is for a part of the domain.
    """
    if regret.covers_pending or regret.counts_pending:
        withdrawn = set(history.rounds_with_retracted())
        covered = [
            query
            for query in history.queries
            if query.origin == "acquisition" and query.round_number not in withdrawn
        ]
    else:
        covered = rounds_with_all_outcomes(history, starts)
    of_choices: dict[int, float] = {}
    for query in covered:
        bound = _bound_of_round(query, regret, starts)
        if bound is not None:
            yield query.round_number, bound
            if query.restriction is None:
                of_choices[query.round_number] = bound
    if regret.factor is None or regret.is_expected:
        return
    for query in history.queries:
        choice = int(query.diagnostics["choice_round"]) if query.origin == "repeat" else 0
        if choice in of_choices:
            yield query.round_number, of_choices[choice]


def _bound_of_round(query: Query, regret: RegretStatement, starts: Iterable[int]) -> float | None:
    """Return the bound on one round's regret; NaN if rounds have none, None without diagnostics.

    The round ``t`` of the theorem is counted from the last reset.
    """
    known = query.diagnostics
    if "width" not in known or "standard_deviation" not in known:
        return None
    if regret.factor is None:
        return math.nan
    width, deviation = known["width"], known["standard_deviation"]
    tail = regret.tail / _round_of_segment(query, starts) ** 2
    return regret.factor * width * deviation + tail + regret.added


def _round_of_segment(query: Query, starts: Iterable[int]) -> int:
    """Return the round of a query, counted from the last reset."""
    return query.round_number - max((start for start in starts if start <= query.id), default=0)


def _bound_of_draws(
    covered: list[Query], regret: RegretStatement, starts: Iterable[int], largest: float
) -> float | None:
    """Return a bound on the regret of all rounds that were drawn, taken together."""
    if any(start > covered[0].id for start in starts):
        return None  # each segment has its own theorem
    assert regret.num_points is not None
    assert regret.prior_deviation is not None
    assert regret.delta is not None
    return realized_ts_regret_bound(
        [query.diagnostics["width"] for query in covered],
        [query.diagnostics["standard_deviation"] for query in covered],
        [_round_of_segment(query, starts) for query in covered],
        regret.num_points,
        largest,
        regret.prior_deviation,
        0.5 * regret.delta,
    )


def with_certificate(
    guarantee: Guarantee,
    history: History,
    starts: Iterable[int] = (),
    clipped_at: float | None = None,
) -> Guarantee:
    """Return a guarantee with numbers for regret and violation from separate confidence bounds.

    On the event that the bounds hold, the constraints have lower bounds of at most 0 at a point
    ``x*`` that meets all of them, so that the bound of the penalized reward there is at least
    ``f(x*)``.

    Args:
        guarantee: The guarantee of an upper confidence bound on separate models of reward and
            constraints.
        history: The history of all rounds.
        starts: See :func:`rounds_with_all_outcomes`.
        clipped_at: The bound on the absolute values of constraints, which clips their lower bounds.
    """
    if guarantee.regret is None or guarantee.violation is None or not history.num_queries:
        return guarantee
    regret, violations = [], []
    for query in rounds_with_all_outcomes(history, starts):
        known = query.diagnostics
        if "width" not in known:  # a history was given without diagnostics
            continue
        mean = known["mean"] if history.maximize else 0.0 - known["mean"]
        lower = mean - known["width"] * known["standard_deviation"]
        regret.append(known["acquisition_value"] - lower)
        violations.append(
            [
                _upper_bound(known[name.replace("lower_bound", "mean")], bound, clipped_at)
                for name, bound in known.items()
                if name.startswith("constraint_lower_bound_")
            ]
        )
    num_others = history.num_queries - len(regret)
    if num_others and not regret:
        return guarantee.with_gaps(ALONE.say(NO_ROUND, num_rounds=num_others), of=RATES)
    sums = torch.tensor(violations, dtype=DTYPE).reshape(len(regret), -1).sum(0).clamp_min(0.0)
    counts: dict[str, Any] = {"num_rounds": len(regret), "num_others": num_others}
    return replace(
        guarantee,
        regret=replace(guarantee.regret, bound=math.fsum(regret), **counts),
        violation=replace(guarantee.violation, bound=float(sums.norm()), **counts),
    )


def _upper_bound(mean: float, lower: float, clipped_at: float | None) -> float:
    """Return the upper bound of a constraint; it does not follow from a clipped lower bound."""
    if clipped_at is None:
        return 2.0 * mean - lower
    return clipped_at if abs(lower) >= clipped_at else min(2.0 * mean - lower, clipped_at)


def complete_options(settings: LoopSettings) -> dict[str, Any]:
    """Return the options of the acquisition, as given by the user or by default."""
    if settings.played is None:
        return {}
    return {**default_options(settings.played.acquisition_class), **settings.options}


def with_epochs(
    guarantee: Guarantee,
    settings: LoopSettings,
    history: History,
    summary: PriorSummary,
    deviations: Sequence[float] = (),
) -> Guarantee:
    r"""Return a guarantee with numbers from the proofs of both algorithms and the rounds so far.

    A point that meets the constraints has a penalized value of at least ``f``, so that regret plus
    penalty of a round is at most twice width times standard deviation. For exact constraints the
    penalty is not negative. With noise, the penalty :math:`\sum_j \kappa_j g_j` is the observed one
    less its noise, whose sum over rounds is at most

    .. math:: \sqrt{2 (V + R^2) \ln(\sqrt{V / R^2 + 1} / \delta')}, \qquad
        V = R^2 \sum_t \sum_j \kappa_{j,t}^2

    in all rounds with probability :math:`1 - \delta'` (method of mixtures). Half of delta is
    reserved for this, of which one half is for the regret and the constraints share the rest
    equally.
    """
    rule, regret, violation = settings.constraints, guarantee.regret, guarantee.violation
    if regret is None or violation is None or not (regret.holds and violation.holds):
        return guarantee
    if history.num_queries > history.num_arrived or not history.num_queries:
        return guarantee
    assert rule is not None
    assert settings.played is not None
    options = complete_options(settings)
    seen = [query.diagnostics for query in history.queries]
    if not all("width" in each for each in seen):
        return guarantee
    bound = math.fsum(
        2.0 * each["width"] * each["standard_deviation"] + regret.added for each in seen
    )
    told = [history.outcome(query.id) for query in history.queries]
    values = torch.tensor([each.constraints for each in told if each is not None], dtype=DTYPE)
    violations = values.sum(0)
    if not rule.expects_exact_constraints:
        noise, delta = options["noise_bound"], options["delta"]
        if not is_number(noise):
            return guarantee
        if options["units"] == "prior":
            # the noise of all epochs, whose models may have different scales
            noise *= max(
                (float(next(iter(summary.active.values())).standard_deviation), *deviations)
            )
        names = [f"multiplier_{j + 1}" for j in range(rule.num_constraints)]
        multipliers = torch.tensor([[each[name] for name in names] for each in seen], dtype=DTYPE)
        noise_sum = _largest_noise_sum(float(multipliers.square().sum()), noise, delta / 4.0)
        bound += noise_sum - float((multipliers * values).sum())
        share = delta / (4.0 * rule.num_constraints)
        realized = float(violations.clamp_min(0.0).norm())  # Appendix D: known after the run
        guarantee = replace(
            guarantee, constants={**guarantee.constants, "realized_violation": realized}
        )
        violations = violations + _largest_noise_sum(float(len(values)), noise, share)
    counts: dict[str, Any] = {"num_rounds": history.num_queries}
    worst = float(violations.clamp_min(0.0).norm())
    if is_played_as(
        settings.played.acquisition_class, GPThompsonSampling
    ):  # a draw is not an upper bound
        return replace(guarantee, violation=replace(violation, bound=worst, **counts))
    return replace(
        guarantee,
        regret=replace(regret, bound=bound, **counts),
        violation=replace(violation, bound=worst, **counts),
    )


def _largest_noise_sum(squares: float, noise_bound: float, delta: float) -> float:
    """Bound a weighted sum of noises; each weight is fixed before its noise."""
    log = 0.5 * math.log1p(squares) - math.log(delta)
    return noise_bound * math.sqrt(2.0 * (squares + 1.0) * log)


def with_note_on_size(guarantee: Guarantee, history: History) -> Guarantee:
    """Return a guarantee with a note if its bound on the regret says no more than the outcomes.

    It says no more if it is at least the number of rounds that it bounds times the difference
    between the largest and the smallest outcome. With fewer than ten outcomes, or if all of them
    are equal, this difference is not informative either, and there is no note.

    Args:
        guarantee: The guarantee of the loop, with its numbers.
        history: The history of all rounds.
    """
    regret = guarantee.regret
    if regret is None or not regret.holds or regret.is_expected or regret.bound is None:
        return guarantee
    rewards = [outcome.reward for outcome in history.outcomes]
    if len(rewards) < FEWEST_ROWS or regret.num_rounds is None:
        return guarantee
    bound, num_rounds = regret.bound, regret.num_rounds
    if regret.bound_of_others is not None:
        bound, num_rounds = bound + regret.bound_of_others, num_rounds + regret.num_others
    spread = max(rewards) - min(rewards)
    if not 0.0 < num_rounds * spread <= bound:
        return guarantee
    rounds = counted(num_rounds, "round", "rounds")
    lost = "that round" if num_rounds == 1 else "each of these rounds"
    note = (
        f"the bound on {regret.quantity} says no more than the outcomes do: it is {bound:.6g} for "
        f"{rounds}, and the largest and the smallest of the {len(rewards)} outcomes differ by "
        f"{spread:.6g}, so it would hold even if {lost} had lost as much as that"
    )
    return replace(guarantee, notes=(*guarantee.notes, note))
