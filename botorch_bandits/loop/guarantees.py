"""The guarantee of a loop: the facts of its settings and rounds, and what a theorem says of them.

:func:`facts_of` fills in the facts, :func:`guarantee_of` evaluates the tables of
:mod:`botorch_bandits.confidence.theorems` over them, and the last part of this file computes what
the statements amount to in the rounds so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from numpy.typing import NDArray

from botorch_bandits.acquisition import (
    BanditAcquisition,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.base import bandit
from botorch_bandits.acquisition.upper_confidence_bound import FEWEST_ROWS
from botorch_bandits.change_points import OracleRestart, Reset
from botorch_bandits.checks import DTYPE, is_number
from botorch_bandits.confidence import (
    BoundedNorm,
    BoxGain,
    CensoredWidth,
    ChangePointWidth,
    DesignGain,
    Forecast,
    Guarantee,
    KernelizedWidth,
    PriorSummary,
    RegretStatement,
    WidthRule,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.horizon import (
    Run,
    forecasts_of_changes,
    forecasts_of_regret,
    realized_ts_regret_bound,
)
from botorch_bandits.confidence.information_gain import is_stationary
from botorch_bandits.confidence.prior_reading import inputs_of_kernel
from botorch_bandits.confidence.theorems import (
    DETECTED_PERIODS,
    GIVEN_PERIODS,
    IN_EPOCH,
    NO_MORE_THAN_ASSUMED,
    NO_MORE_THAN_OBSERVED,
    NO_ROUND,
    NO_THEOREM,
    NOT_EVERY_ROUND,
    OF_SEPARATE_BOUNDS,
    PLAYED_BY,
    RATES,
    concluded,
)
from botorch_bandits.constraints import MultiplierRule
from botorch_bandits.domains import Domain
from botorch_bandits.history import History, outcome_told_at_once
from botorch_bandits.loop.aspects import Multipliers
from botorch_bandits.loop.settings import (
    LoopSettings,
    model_of,
    settings_in_epoch,
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
    rule, played_as = settings.constraints, settings.played_as
    if rule is None:
        return {}
    if rule.surrogate == "separate":
        return {"constraints": "separate"}
    draws = played_as is GPThompsonSampling
    # Remark 1 allows draws for exact constraints
    is_bound = played_as is ImprovedUpperConfidenceBound
    is_covered = is_bound or (rule.expects_exact_constraints and draws)
    return {"constraints": "penalized", "is_covered": is_covered, "may_draw": draws}


# --- what the log says of each round --------------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """What statements need to know of the rounds so far; one entry for each query, in order.

    Attributes:
        last_start: The number of rounds before the running segment.
        is_chosen: Whether the method chose the point, with nothing that was retracted later.
        has_all: Whether, in addition, every earlier outcome of the segment had arrived. The fate of
            the query itself does not matter: if a bound holds in expectation over the choice, it
            would become invalid if rounds were left out according to the chosen points, such as
            those at which queries fail.
        choice: The number of the round whose point a repeat plays again; 0 if it is none, or if the
            point was chosen from a part of the domain.
        round: The round, counted from the last reset.
        width: The factor on the standard deviation; NaN if it is not on record.
        deviation: The posterior standard deviation at the point, in raw outcome units.
    """

    last_start: int
    is_chosen: NDArray[np.bool_]
    has_all: NDArray[np.bool_]
    choice: NDArray[np.int64]
    round: NDArray[np.int64]
    width: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @property
    def is_known(self) -> NDArray[np.bool_]:
        """Whether width and deviation of a round are on record."""
        return ~np.isnan(self.width + self.deviation)


def rounds_of(history: History, starts: Collection[int] = ()) -> Rounds:
    """Fold a log into what statements need to know of its rounds.

    Args:
        history: The history of all rounds.
        starts: The ids of the first queries of later segments, in which outcomes from before are
            not needed.
    """
    queries, withdrawn = history.queries, set(history.rounds_with_retracted())
    ended = {
        event.query_id: math.inf if event.avoided else event.arrived_round  # it stays occupied
        for event in history.events
    }
    entries, start, latest = [], 0, 0.0  # latest: when the last earlier outcome arrived
    for query in queries:
        if query.id in starts:
            start, latest = query.id, 0.0
        number, known = query.round_number, query.diagnostics
        is_chosen = query.origin == "acquisition" and number not in withdrawn
        choice = int(known["choice_round"]) if query.origin == "repeat" else 0
        choice *= choice == 0 or queries[choice - 1].restriction is None
        width = known.get("width", math.nan), known.get("standard_deviation", math.nan)
        entries.append((is_chosen, is_chosen and latest < number, choice, number - start, *width))
        latest = max(latest, ended.get(query.id, math.inf))
    kinds: tuple[type, ...] = (bool, bool, int, int, float, float)
    columns = zip(*entries, strict=True) if entries else [()] * len(kinds)
    arrays: Any = (np.array(c, dtype=kind) for c, kind in zip(columns, kinds, strict=True))
    return Rounds(max(starts, default=0), *arrays)


# --- evaluation ---------------------------------------------------------------------------------


def guarantee_of(
    acquisition: AcquisitionFunction,
    facts: Facts,
    settings: LoopSettings,
    history: History,
    domain: Domain,
    starts: Collection[int] = (),
    others: Sequence[OtherEpoch] | None = None,
) -> Guarantee:
    """Return what an acquisition function guarantees in a loop, with numbers for the rounds so far.

    Args:
        acquisition: The acquisition function of the next round, built without pending points.
        facts: The facts of the loop.
        settings: The loop's settings.
        history: The history of all rounds.
        domain: The domain on which it is maximized.
        starts: See :func:`rounds_of`.
        others: Earlier epochs with other models, if each epoch has its own.
    """
    rule, rounds, given = settings.constraints, rounds_of(history, starts), (settings, history)
    if facts.constraints == "penalized":
        inner = _of_acquisition(acquisition, replace(facts, **PENALIZED), *given, domain)
        guarantee = _of_epochs(inner, facts, settings, others)
        # the proof needs every round; that some are missing is a gap
        if rounds.has_all.all():
            deviations = [other.prior_deviation for other in others or ()]
            summary = PriorSummary(model_of(acquisition))
            guarantee = with_epochs(guarantee, *given, rounds, summary, deviations)
    else:
        guarantee = _of_acquisition(acquisition, facts, *given, domain)
        if rule is not None:
            # rounds are counted even where a restart voids the statements about them
            segment = replace(facts, restart="")
            of_segment = _of_acquisition(acquisition, segment, *given, domain)
            of_segment = concluded(of_segment, segment, OF_SEPARATE_BOUNDS)
            holds = of_segment.regret is not None and of_segment.regret.holds
            promised = rule.guarantee(facts)
            guarantee = replace(
                guarantee,
                method=facts.say(PLAYED_BY, rule=promised.method, inner=guarantee.method),
                constants={**guarantee.constants, **promised.constants},
            )
            guarantee = concluded(guarantee, facts, OF_SEPARATE_BOUNDS)
            if holds:
                guarantee = with_certificate(guarantee, history, rounds, rule.constraint_bound)
    if facts.restart == "known":
        guarantee = _at_delta_of_all(guarantee, facts.share)
    return with_note_on_size(with_regret(guarantee, rounds), history)


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
        return Guarantee(method=type(acquisition).__name__, gaps=(NO_THEOREM,))
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
    options, names = settings.complete_options, ("delta", "noise_bound")
    of_loop = {name: options[name] for name in names if is_number(options.get(name))}
    of_epoch = {
        f"{name}_of_epoch" if name in names else name: value
        for name, value in inner.constants.items()
    }
    facts = replace(
        facts,
        inner=inner.method,
        variation=0.0 if inner.regret is None else 0.5 * inner.regret.added,
        has_models=others is not None,
        constants={**of_loop, **of_epoch},
    )
    promised = settings.constraints.guarantee(facts)
    guarantee = replace(
        promised,
        method=facts.say(PLAYED_BY, rule=promised.method),
        bands=inner.bands,
        is_drawn=inner.is_drawn,
    )
    guarantee = guarantee.with_gaps(*inner.gaps).with_assumptions(*inner.assumptions)
    for number, of_other, _ in others or ():
        guarantee = guarantee.with_assumptions(*of_other.assumptions)
        gaps = [facts.say(IN_EPOCH, number=number, gap=gap) for gap in of_other.gaps]
        guarantee = guarantee.with_gaps(*gaps, of=RATES)
    return guarantee


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


class OtherEpoch(NamedTuple):
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
    settings: LoopSettings, multipliers: Multipliers | None, domain: Domain, facts: Facts
) -> list[OtherEpoch] | None:
    """Return one earlier epoch for each model that differs from that of the running epoch.

    Args:
        settings: The loop's settings as the user gave them.
        multipliers: The multipliers, if there are constraints.
        domain: The domain on which the acquisition function of the next round is maximized.
        facts: The facts of the loop.

    Returns:
        None if there is one model for all epochs.
    """
    if not settings.models_of_epochs or multipliers is None:
        return None
    if settings.restart is not None or settings.played is None:
        return []  # no statement covers all epochs
    facts = Facts(outcome=facts.outcome, minimizes=facts.minimizes, is_alone=False, **PENALIZED)
    *earlier, latest = multipliers.updates
    seen, found = [settings_in_epoch(settings, latest.epoch).recipe], []
    for update in earlier:
        own = settings_in_epoch(settings, update.epoch)
        if own.recipe is None or own.played is None or own.recipe in seen:
            continue
        seen.append(own.recipe)
        dim = own.context_dim + own.domain.dim
        empty = own.recipe(torch.empty(0, dim, dtype=DTYPE), torch.empty(0, 1, dtype=DTYPE))
        built = bandit(own.played.build(empty, domain, round_number=1))
        if built is not None:
            (prior,) = PriorSummary(empty).active.values()
            deviation = float(prior.standard_deviation)
            found.append(OtherEpoch(update.epoch, built.guarantee(facts), deviation))
    return found


# --- The numbers of a loop's statements: bounds on regret and violation of the rounds so far ------


def with_regret(guarantee: Guarantee, rounds: Rounds) -> Guarantee:
    """Return a guarantee with numbers for the rounds so far that its statement on regret covers.

    The regret of a round is at most ``factor * width * standard_deviation + tail / t ** 2 +
    added``. Each play of a point has the bound of its choice.

    Args:
        guarantee: The guarantee of the acquisition.
        rounds: The rounds so far.
    """
    regret = guarantee.regret
    if regret is None or not regret.holds or guarantee.theorem is None:
        return guarantee
    if regret.num_rounds is not None:  # counted already
        return guarantee
    counts_all = regret.covers_pending or regret.counts_pending
    covered = (rounds.is_chosen if counts_all else rounds.has_all) & rounds.is_known
    factor = math.nan if regret.factor is None else regret.factor
    bounds = factor * rounds.width * rounds.deviation + regret.tail / rounds.round**2
    bounds = bounds + regret.added
    if regret.factor is not None and not regret.is_expected:
        for i in rounds.choice.nonzero()[0]:
            choice = rounds.choice[i] - 1
            bounds[i], covered[i] = bounds[choice], covered[choice]
    num_rounds, largest = int(covered.sum()), regret.largest
    num_others = len(covered) - num_rounds
    if num_others and regret.needs_every_round:
        gap = ALONE.say(NOT_EVERY_ROUND, num=num_others, num_rounds=len(covered))
        return guarantee.with_gaps(gap, of=RATES)
    if num_others and not num_rounds and largest is None:
        gap = ALONE.say(NO_ROUND, num_rounds=len(covered))
        return guarantee.with_gaps(gap, of=("regret",))
    known = bounds[covered]
    total = None
    if not np.isnan(known).any():
        total = math.fsum(known if largest is None else np.minimum(known, largest))
    if num_rounds and largest is not None and None not in (regret.num_points, regret.delta):
        total = _bound_of_draws(rounds, covered, regret, largest)
    told = replace(
        regret,
        bound=total,
        num_rounds=num_rounds,
        num_others=num_others,
        bound_of_others=None if largest is None else largest * num_others,
    )
    return replace(guarantee, regret=told)


def _bound_of_draws(
    rounds: Rounds, covered: NDArray[np.bool_], regret: RegretStatement, largest: float
) -> float | None:
    """Return a bound on the regret of all rounds that were drawn, taken together."""
    if rounds.last_start > covered.argmax():
        return None  # each segment has its own theorem
    assert regret.num_points is not None
    assert regret.prior_deviation is not None
    assert regret.delta is not None
    return realized_ts_regret_bound(
        rounds.width[covered].tolist(),
        rounds.deviation[covered].tolist(),
        rounds.round[covered].tolist(),
        regret.num_points,
        largest,
        regret.prior_deviation,
        0.5 * regret.delta,
    )


def with_certificate(
    guarantee: Guarantee,
    history: History,
    rounds: Rounds,
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
        rounds: What is known of these rounds.
        clipped_at: The bound on the absolute values of constraints, which clips their lower bounds.
    """
    if guarantee.regret is None or guarantee.violation is None or not history.num_queries:
        return guarantee
    regret, violations, sign = [], [], 1.0 if history.maximize else -1.0
    for i in (rounds.has_all & rounds.is_known).nonzero()[0]:
        known = history.queries[i].diagnostics
        lower = sign * known["mean"] - known["width"] * known["standard_deviation"]
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


def with_epochs(
    guarantee: Guarantee,
    settings: LoopSettings,
    history: History,
    rounds: Rounds,
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
    is_complete = history.num_queries == history.num_arrived and rounds.is_known.all()
    if not history.num_queries or not is_complete:
        return guarantee
    assert rule is not None
    options, constants = settings.complete_options, dict(guarantee.constants)
    bound = math.fsum(2.0 * rounds.width * rounds.deviation + regret.added)
    told = [history.outcome(query.id) for query in history.queries]
    values = torch.tensor([each.constraints for each in told if each is not None], dtype=DTYPE)
    violations = values.sum(0)
    if not rule.expects_exact_constraints:
        noise, delta = options["noise_bound"], options["delta"]
        if not is_number(noise):
            return guarantee
        if options["units"] == "prior":
            # the noise of all epochs, whose models may have different scales
            noise *= max(float(summary.active[0].standard_deviation), *deviations, 0.0)
        names = [f"multiplier_{j + 1}" for j in range(rule.num_constraints)]
        rows = [[query.diagnostics[name] for name in names] for query in history.queries]
        multipliers = torch.tensor(rows, dtype=DTYPE)
        noise_sum = _largest_noise_sum(float(multipliers.square().sum()), noise, delta / 4.0)
        bound += noise_sum - float((multipliers * values).sum())
        share = delta / (4.0 * rule.num_constraints)
        # Appendix D: known after the run
        constants["realized_violation"] = float(violations.clamp_min(0.0).norm())
        violations = violations + _largest_noise_sum(float(len(values)), noise, share)
    counts: dict[str, Any] = {"num_rounds": history.num_queries}
    worst = float(violations.clamp_min(0.0).norm())
    # a draw is not an upper bound
    draws = settings.played_as is GPThompsonSampling
    return replace(
        guarantee,
        regret=regret if draws else replace(regret, bound=bound, **counts),
        violation=replace(violation, bound=worst, **counts),
        constants=constants,
    )


def _largest_noise_sum(squares: float, noise_bound: float, delta: float) -> float:
    """Bound a weighted sum of noises; each weight is fixed before its noise."""
    log = 0.5 * math.log1p(squares) - math.log(delta)
    return noise_bound * math.sqrt(2.0 * (squares + 1.0) * log)


def with_note_on_size(guarantee: Guarantee, history: History) -> Guarantee:
    """Return a guarantee with a note if its bound on the regret says nothing new.

    It says no more than the assumptions if it is the number of rounds times what any round can lose
    under them, and no more than the outcomes if it is at least the number of rounds that it bounds
    times the difference between the largest and the smallest outcome. With fewer than ten outcomes,
    or if all of them are equal, this difference is not informative.

    Args:
        guarantee: The guarantee of the loop, with its numbers.
        history: The history of all rounds.
    """
    regret = guarantee.regret
    if regret is None or not regret.holds or regret.is_expected or regret.bound is None:
        return guarantee
    bound, num_rounds = regret.bound, regret.num_rounds or 0
    if regret.bound_of_others is not None:
        bound, num_rounds = bound + regret.bound_of_others, num_rounds + regret.num_others
    if not num_rounds:
        return guarantee
    rewards = [outcome.reward for outcome in history.outcomes]
    spread = max(rewards, default=0.0) - min(rewards, default=0.0)
    if regret.largest is not None and bound >= num_rounds * regret.largest * (1.0 - 1e-12):
        template = NO_MORE_THAN_ASSUMED
    elif len(rewards) >= FEWEST_ROWS and 0.0 < num_rounds * spread <= bound:
        template = NO_MORE_THAN_OBSERVED
    else:
        return guarantee
    words = {"bound": bound, "num_bounded": num_rounds, "spread": spread}
    note = ALONE.say(template, **vars(regret) | words, num_outcomes=len(rewards))
    return replace(guarantee, notes=(*guarantee.notes, note))


# --- what theorems say about a loop before its run ------------------------------------------------
#
# The papers bound the regret of a horizon in terms of the maximal information gain. A loop that
# knows its horizon also knows everything else in these bounds: norm, noise, kernel and domain. The
# numbers hold under the assumptions of the guarantee that contains them if the remaining rounds are
# chosen as it states. They are larger than the sum of a run's own widths.

LARGEST_DESIGN = 1200
"""For more arms than this, the gain is bounded as for points without any correlation."""


class Gains(NamedTuple):
    """Bounds on the maximal information gain of a loop's domain.

    Attributes:
        bound: The tightest bound that is available.
        name: A description of that bound.
    """

    bound: Callable[[int], float]
    name: str


def gains_of(settings: LoopSettings, lam: float, is_level: bool = True) -> Gains | None:
    """Return bounds on the gain of any observations in the loop's domain.

    Args:
        settings: The settings of the loop.
        lam: The noise variance over the prior variance.
        is_level: Whether the prior variance is the same at all points.

    Returns:
        None if the prior variance may be larger at some point than ``lam`` implies.
    """
    unrelated = None
    if is_level:
        unrelated = Gains(lambda n: 0.5 * n * math.log1p(1.0 / lam), "points that share nothing")
    recipe, choices, bounds = settings.recipe, settings.domain.choices, settings.domain.bounds
    if recipe is None or settings.context_dim:
        return unrelated
    kernel, transform, noise = recipe.kernel, recipe.input_transform, recipe.noise
    if choices is not None and len(choices) <= LARGEST_DESIGN:
        if transform is not None:
            choices = inputs_of_kernel(recipe(choices[:0], choices[:0, :1]), choices).detach()
        if float(kernel(choices, diag=True).detach().max()) > noise / lam * (1.0 + 1e-9):
            return unrelated
        return Gains(DesignGain.on(choices, kernel, noise), "the best design on the arms")
    if bounds is None or transform is not None or kernel.batch_shape:
        return unrelated
    if not is_stationary(kernel, bounds.shape[-1]):
        return unrelated
    between = "the best design on a grid of the box, and what lies between"
    return Gains(BoxGain(bounds, kernel, noise), between)


def forecasts_of(
    guarantee: Guarantee,
    acquisition: AcquisitionFunction,
    settings: LoopSettings,
    history: History,
    gains: dict[Any, Gains | None],
    constraints: MultiplierRule | None,
) -> Iterator[Forecast]:
    """Yield the numbers of a guarantee that are known before the run.

    Args:
        guarantee: The guarantee of the loop; only what it states as guaranteed has a number.
        acquisition: The acquisition of the next round.
        settings: The settings of the loop, in the running epoch.
        history: The history of all rounds.
        gains: Bounds on the gain by model, to which new ones are added.
        constraints: The rule of all epochs, if there is one.
    """
    known, regret, played = bandit(acquisition), guarantee.regret, settings.played
    if known is None or len(known.width_rules) != 1 or regret is None or played is None:
        return
    # rounds without an outcome gain no information
    is_lost = history.num_retracted or (history.num_failed and not regret.covers_pending)
    changes = settings.restarts or settings.forgetting is not None or history.num_weighted
    if guarantee.theorem is None or not regret.holds or is_lost or changes:
        return
    (rule,), summary = known.width_rules, PriorSummary(model_of(known))
    run = _run_of(settings, rule, summary, gains)
    if run is None:
        return
    if constraints is None:
        of_rounds = rule.needs_round and regret.source_of_run
        width = float(rule.width(summary, run.num_rounds)) if of_rounds else None
        yield from forecasts_of_regret(run, regret, width)
    elif settings.played_as is ImprovedUpperConfidenceBound:
        # the rule of the running epoch has its share of delta, and more noise
        rule = played.acquisition_class.width_rule(settings.complete_options)
        yield from constraints.forecasts(replace(run, norm=_norm_of(rule, summary)))


def _run_of(
    settings: LoopSettings,
    rule: WidthRule,
    summary: PriorSummary,
    gains: dict[Any, Gains | None],
) -> Run | None:
    """Return what is known of a run before it; None if too little is."""
    try:
        (prior,) = summary.active.values()
        lam, deviation = float(prior.lam), float(prior.standard_deviation)
    except ValueError:  # it cannot be read, or there are several outputs
        return None
    if prior.row_noise is not None or settings.horizon is None:
        return None  # the noise of future rows is unknown
    if settings.model not in gains:
        gains[settings.model] = gains_of(settings, lam, prior.is_stationary)
    found, feedback = gains[settings.model], settings.feedback.censored
    if found is None:
        return None
    waits = None if feedback is None or feedback.unit != "rounds" else feedback.max_delay
    return Run(
        settings.horizon,
        rule.bound_on_gain() or found.bound,
        found.name,
        deviation,
        lam,
        None if feedback is not None and waits is None else _norm_of(rule, summary),
        0 if waits is None else math.ceil(waits),  # and rho_m = 1, as it is of rho_m times regret
        settings.repeats or 1.0,
    )


def _norm_of(rule: WidthRule, summary: PriorSummary) -> BoundedNorm | None:
    """Return what a rule assumes of the function if a theorem has a number for it."""
    inner = rule.inner if isinstance(rule, CensoredWidth) and rule.is_covered else rule
    if not isinstance(inner, KernelizedWidth) or inner.not_given:
        return None
    # the rows that the model bounds have the regularization 1, which the gain is not for
    if isinstance(inner.noise_bound, str):
        return None
    (norm,) = rule.norms(summary).values()
    return norm


def forecasts_of_restarts(
    acquisition: AcquisitionFunction,
    settings: LoopSettings,
    resets: Sequence[Reset],
    num_rounds: int,
) -> Iterator[Forecast]:
    """Yield what the theorem on change points says of the periods of a loop that restarts.

    Args:
        acquisition: The acquisition of the next round.
        settings: The settings of the loop.
        resets: The resets so far.
        num_rounds: The number of rounds so far.
    """
    restart, detection, known_one = settings.restart, settings.detection, bandit(acquisition)
    rules = () if known_one is None else known_one.width_rules
    width = next((rule for rule in rules if isinstance(rule, ChangePointWidth)), None)
    smoothness, dim, change = None, settings.domain.dim + settings.context_dim, None
    if detection is not None:
        smoothness, change = detection.detector.known_smoothness, detection.smallest_change
    if width is not None:
        smoothness, dim = width.smoothness, width.dim
    known = settings.horizon or (None if width is None else width.horizon)
    if isinstance(restart, OracleRestart):
        horizon, changes = known or num_rounds, list(restart.change_points)
        what = GIVEN_PERIODS
    elif detection is not None:
        horizon, changes = num_rounds, [reset.after_round for reset in resets]
        what = DETECTED_PERIODS
    else:
        return
    ends = [0, *(end for end in changes if 0 < end < horizon), horizon]
    periods = [end - start for start, end in pairwise(ends)]
    if smoothness is None or not math.isfinite(smoothness) or horizon < 1:
        return
    yield from forecasts_of_changes(periods, what, smoothness, dim, change, width is not None)
