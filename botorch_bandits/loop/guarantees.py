"""The guarantee of a loop.

The guarantee of an acquisition function becomes that of a loop: the rounds so far give numbers for
its statements on regret and violation, and restarts, forgetting, constraints and retractions in
these rounds add assumptions and gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction

from botorch_bandits.acquisition import (
    BanditAcquisition,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.base import default_options
from botorch_bandits.acquisition.candidates import CandidatesUpperConfidenceBound
from botorch_bandits.acquisition.upper_confidence_bound import FEWEST_ROWS
from botorch_bandits.change_points import OracleRestart
from botorch_bandits.checks import DTYPE, is_number
from botorch_bandits.confidence import Guarantee, PriorSummary, RegretStatement
from botorch_bandits.confidence.censored import below_the_minimum
from botorch_bandits.confidence.guarantee import (
    ARRIVALS_IGNORE_NOISE,
    ARRIVALS_IGNORE_REWARD,
    ATTACHED_IGNORE_NOISE,
    ATTACHED_IGNORE_REWARD,
    ATTACHED_WITHOUT_LOSS,
    CONTEXTS_IGNORE_NOISE,
    CONTEXTS_IGNORE_REWARD,
    FAILURES_IGNORE_NOISE,
    FAILURES_IGNORE_REWARD,
    SETS_IGNORE_NOISE,
    SETS_IGNORE_REWARD,
    at_posterior_mean,
)
from botorch_bandits.confidence.horizon import realized_ts_regret_bound
from botorch_bandits.constraints import MultiplierRule
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored
from botorch_bandits.history import History, Query
from botorch_bandits.loop.acquisitions import bandit, model_of
from botorch_bandits.loop.epochs import OtherEpoch, with_other_epochs
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.weighted import noise_of_weighted
from botorch_bandits.queries import outcome_told_at_once


def guarantee_of(
    acquisition: AcquisitionFunction,
    history: History,
    settings: LoopSettings,
    domain: Domain,
    of_choices: bool = True,
) -> Guarantee:
    """Return what an acquisition function guarantees in a loop, without a number for the regret.

    Args:
        acquisition: The acquisition function of the next round, built without pending points.
        history: The history of all rounds.
        settings: The loop's settings.
        domain: The domain on which it is maximized.
        of_choices: Whether the guarantee is about the chosen points, with the acquisition and the
            pending queries; otherwise it is about the bounds from the outcomes that arrived alone.
    """
    known = bandit(acquisition)
    if known is None:
        return Guarantee(method=type(acquisition).__name__, gaps=("no theorem is stated for it",))
    guarantee = known.guarantee().of_loop()
    withdrawn = set(history.rounds_with_retracted())  # bounds in these rounds are not evidence
    refuted = [
        q.round_number
        for q in history.queries
        if q.diagnostics.get("is_refuted") and q.round_number not in withdrawn
    ]
    if refuted:
        guarantee = guarantee.with_gaps(
            f"the data refuted the assumptions at this level in round {refuted[0]}"
        )
    if guarantee.theorem is None:
        return guarantee
    guarantee = guarantee.with_gaps(*_gaps_of_gains(known, history, settings))
    guarantee = guarantee.with_assumptions(*_assumptions(guarantee, history, settings))
    if settings.feedback.censored is not None:
        guarantee = guarantee.with_gaps(*_gaps_of_losses(settings.feedback.censored, history))
    if not of_choices:
        return guarantee
    guarantee = guarantee.with_assumptions(*domain.search_assumptions)
    num_restricted = _num_restricted(history)
    if num_restricted and guarantee.regret is not None:
        # confidence bounds hold at all points, so restrictions change nothing else
        against = (
            f"; in the {num_restricted} of {history.num_queries} rounds that could choose from a "
            "part of the domain only, regret is against the best point of that part"
        )
        told = replace(guarantee.regret, wording=guarantee.regret.wording + against)
        guarantee = replace(guarantee, regret=told)
    if settings.feedback.hallucinates and not isinstance(known, CandidatesUpperConfidenceBound):
        guarantee = _with_hallucinated(guarantee, known, history)
    regret = guarantee.regret
    if regret is None or regret.factor is None or regret.is_expected:
        return guarantee
    if settings.feedback.ignores_pending and settings.constraints is None:
        # the band is that of the outcomes that had arrived, and so is the bound that was maximized
        guarantee = replace(guarantee, regret=replace(regret, counts_pending=True))
    return guarantee


def _assumptions(guarantee: Guarantee, history: History, settings: LoopSettings) -> Iterator[str]:
    """Yield the assumptions on the rounds so far, besides those on function and noise."""
    on_draws = guarantee.is_on_draws
    if not settings.priors:
        yield "the function that makes the model makes a row of every outcome, as it was told"
    if settings.played is None:
        yield "the acquisition function is made with the same arguments in every round"
    censored = settings.feedback.censored  # it has its own assumption on delays
    if censored is None and (history.num_pending or _any_late(history)):
        yield ARRIVALS_IGNORE_REWARD if on_draws else ARRIVALS_IGNORE_NOISE
    minimum = None if censored is None else censored.minimum
    # if pending queries are filled in, the feedback adds the gap itself
    if censored is not None and minimum is not None and not censored.fills_in:
        sign = 1.0 if history.maximize else -1.0  # the minimum is that of the model
        rewards = [sign * outcome.reward for outcome in history.outcomes]
        below = [minimum - reward for reward in rewards if reward < minimum]
        if below:
            yield below_the_minimum(len(below), max(below))
    if history.num_failed:
        yield FAILURES_IGNORE_REWARD if on_draws else FAILURES_IGNORE_NOISE
    if any(query.origin == "attached" for query in history.queries):
        yield ATTACHED_IGNORE_REWARD if on_draws else ATTACHED_IGNORE_NOISE
        if censored is not None and _any_attached_with_outcome(history):
            yield ATTACHED_WITHOUT_LOSS
    if settings.context_dim:
        yield CONTEXTS_IGNORE_REWARD if on_draws else CONTEXTS_IGNORE_NOISE
    if _num_restricted(history):
        yield SETS_IGNORE_REWARD if on_draws else SETS_IGNORE_NOISE
    if history.is_weighted:
        yield from noise_of_weighted(history, on_draws)


def _num_restricted(history: History) -> int:
    """Return how many rounds could choose only from a part of the domain."""
    return sum(query.is_restricted for query in history.queries)


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


def _gaps_of_losses(feedback: Censored, history: History) -> Iterator[str]:
    """Yield a gap if attached outcomes, which are never lost, occur along with lost ones."""
    if not _any_attached_with_outcome(history):
        return
    late = [o for o in history.outcomes if feedback.is_late(history.query(o.query_id), o)]
    num_lost = len(late) + history.num_failed + history.num_retracted
    if feedback.max_delay is not None and feedback.unit == "rounds":
        latest = history.num_queries - feedback.max_delay
        num_lost += sum(query.round_number <= latest for query in history.pending())
    if num_lost:
        yield (
            f"attached outcomes are never lost, but {num_lost} others were, so rho_m is not one "
            "number"
        )


def _any_attached_with_outcome(history: History) -> bool:
    """Return whether an attached point came with its outcome, which then cannot be lost."""
    return any(
        outcome_told_at_once(history.query(event.query_id), event) is not None
        for event in history.events
    )


def _any_late(history: History) -> bool:
    """Return whether an outcome arrived after a later query had been asked."""
    return any(
        outcome.arrived_round != history.query(outcome.query_id).round_number
        for outcome in history.outcomes
    )


def _with_hallucinated(
    guarantee: Guarantee, acquisition: BanditAcquisition, history: History
) -> Guarantee:
    """Remove the confidence bounds of rounds with pending or failed queries."""
    is_redrawn = getattr(acquisition, "pending", "hallucinate") == "redraw"
    num_avoided = sum(failure.avoided for failure in history.failures)
    counts = [(history.num_pending, "pending"), (num_avoided, "failed")]
    shown = " and ".join(f"{count} {kind}" for count, kind in counts if count)
    if shown and not is_redrawn:
        gap = at_posterior_mean(history.num_pending + num_avoided, shown)
        return guarantee.with_gaps(gap, of="bands")
    is_late = any(
        event.arrived_round != history.query(event.query_id).round_number
        for event in history.events
    )
    if guarantee.bands is None or not is_late:
        return guarantee
    return _but_for(guarantee, "rounds that were chosen while outcomes were pending")


def _but_for(guarantee: Guarantee, rounds: str) -> Guarantee:
    """Exclude rounds from the statement on confidence bounds."""
    old = "in all rounds but for" if "in all rounds but for" in guarantee.statement else ""
    if old:
        return guarantee.with_wording("bands", old, f"in all rounds but for {rounds}, and for")
    return guarantee.with_wording("bands", "in all rounds", f"in all rounds but for {rounds}")


def rounds_in_hand(history: History, starts: Iterable[int] = ()) -> list[Query]:
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


def with_regret(  # noqa: C901 - a gap for each event
    guarantee: Guarantee, history: History, starts: Iterable[int] = (), num_given: int = 0
) -> Guarantee:
    """Return a guarantee with numbers for the rounds so far that its statement on regret covers.

    Args:
        guarantee: The guarantee of the acquisition.
        history: The history of all rounds.
        starts: See :func:`rounds_in_hand`.
        num_given: How many rounds of the history were given to the loop.
    """
    regret = guarantee.regret
    if num_given > 0 and guarantee.theorem is not None:
        guarantee = guarantee.of_rows()
        if any(query.origin == "acquisition" for query in history.queries[:num_given]):
            guarantee = guarantee.with_assumptions(
                "the points that the given history attributes to the acquisition were chosen by "
                "it, with these settings"
            )
    if regret is None or not regret.holds or guarantee.theorem is None:
        return guarantee
    if regret.num_rounds is not None:  # counted already
        return guarantee
    is_sure = regret.factor is not None and not regret.is_expected
    if not is_sure and history.rounds_with_retracted():
        # with an expectation over choices, rounds must not be left out based on the choices
        guarantee = guarantee.with_assumptions(
            "which outcomes were retracted, and when, does not depend on what was chosen after them"
        )
    if regret.covers_pending or regret.counts_pending:
        withdrawn = set(history.rounds_with_retracted())
        covered = [
            query
            for query in history.queries
            if query.origin == "acquisition" and query.round_number not in withdrawn
        ]
    else:
        covered = rounds_in_hand(history, starts)
    bounds = [_bound_of_round(query, regret, starts) for query in covered]
    covered = [query for query, bound in zip(covered, bounds, strict=True) if bound is not None]
    if is_sure:  # each play of a point has the bound of the choice
        bounds = [bound for bound in bounds if bound is not None]
        of_choices = {
            query.round_number: bound
            for query, bound in zip(covered, bounds, strict=True)
            if query.restriction is None  # the bound is for the points of that round
        }
        for query in history.queries:
            if query.origin == "repeat" and query.diagnostics["choice_round"] in of_choices:
                covered.append(query)
                bounds.append(of_choices[int(query.diagnostics["choice_round"])])
    num_others = history.num_queries - len(covered)
    if num_others and regret.needs_every_round:
        return _without_rates(
            guarantee,
            f"{num_others} of {history.num_queries} rounds were not chosen by the method with "
            "every outcome at hand, but the proof needs all of them to be",
        )
    largest = regret.largest
    if history.num_queries and not covered and largest is None:
        return guarantee.with_gaps(
            f"none of the {history.num_queries} rounds so far was chosen by the method with every "
            "outcome at hand",
            of="regret",
        )
    known = [bound for bound in bounds if bound is not None]
    has_number = not any(math.isnan(bound) for bound in known)
    if largest is not None:
        known = [min(bound, largest) for bound in known]
    total = math.fsum(known) if has_number else None
    if covered and largest is not None and None not in (regret.num_points, regret.delta):
        total = _bound_of_draws(covered, regret, starts, largest)
    told = replace(
        regret,
        bound=total,
        num_rounds=len(covered),
        num_others=num_others,
        bound_of_others=None if largest is None else largest * num_others,
    )
    return replace(guarantee, regret=told)


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
    rounds = "1 round" if num_rounds == 1 else f"{num_rounds} rounds"
    lost = "that round" if num_rounds == 1 else "each of these rounds"
    note = (
        f"the bound on {regret.quantity} says no more than the outcomes do: it is {bound:.6g} for "
        f"{rounds}, and the largest and the smallest of the {len(rewards)} outcomes differ by "
        f"{spread:.6g}, so it would hold even if {lost} had lost as much as that"
    )
    return replace(guarantee, notes=(*guarantee.notes, note))


def _without_rates(guarantee: Guarantee, gap: str) -> Guarantee:
    return guarantee.with_gaps(gap, of="regret").with_gaps(gap, of="violation")


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
        starts: See :func:`rounds_in_hand`.
        clipped_at: The bound on the absolute values of constraints, which clips their lower bounds.
    """
    if guarantee.regret is None or not guarantee.regret.holds or guarantee.violation is None:
        return guarantee
    if not history.num_queries:
        return guarantee
    regret, violations = [], []
    for query in rounds_in_hand(history, starts):
        known = query.diagnostics
        if "width" not in known:  # a history was given without diagnostics
            continue
        mean = known["mean"] if history.maximize else 0.0 - known["mean"]
        lower = mean - known["width"] * known["standard_deviation"]
        regret.append(known.get("regret_bound", known["acquisition_value"] - lower))
        names = [name for name in known if name.startswith("constraint_lower_bound_")]
        upper = [
            known[upper_name]
            if (upper_name := name.replace("lower", "upper")) in known
            else _upper_bound(known[name.replace("lower_bound", "mean")], known[name], clipped_at)
            for name in names
        ]
        violations.append(upper)
    num_others = history.num_queries - len(regret)
    if num_others and not regret:
        return _without_rates(
            guarantee,
            f"none of the {num_others} rounds so far was chosen by the method with every outcome "
            "at hand",
        )
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


def with_restarts(guarantee: Guarantee, settings: LoopSettings, segment: int = 0) -> Guarantee:
    """Return what remains of a guarantee when a policy starts over.

    Args:
        guarantee: The guarantee of the policy alone, at the running segment's share of delta.
        settings: The settings of the loop.
        segment: The number of the running segment, from 0.
    """
    restart, evidence = settings.restart, settings.evidence
    if restart is None or not restart.starts_over:
        return guarantee
    num_constraints = settings.num_constraints
    share = "its share of delta" if restart.split_delta else "delta"
    if isinstance(restart, OracleRestart) and not restart.split_delta:
        return guarantee.with_gaps(
            "each segment has all of delta, so all segments together fail with a larger "
            "probability; split_delta=True divides it"
        )
    if isinstance(restart, OracleRestart):
        told = ", ".join(map(str, restart.change_points)) or "no round"
        what = "the reward function" + (" and the constraints change" if num_constraints else "")
        what += "" if num_constraints else " changes"
        each = "each" if num_constraints else "it"
        kept = (
            f"{each} is a new draw that is independent of what came before"
            if guarantee.is_on_draws
            else f"{each} is a fixed function of that norm"
        )
        fraction = restart.share_of_delta(1.0, segment)
        return _at_delta_of_all(guarantee, fraction).with_assumptions(
            f"{what} after {told} only, and {kept} in each segment"
        )
    if evidence is not None:
        kept = (
            "the rows that later segments keep were chosen by their outcomes"
            if evidence.keep == "since_change"
            else "the outcomes that later segments drop determined when they begin"
        )
        return guarantee.with_gaps(
            f"with restarts the theorem covers each segment at {share}, for as long as the reward "
            f"function does not change in it, and {kept}; a change at points that are not played "
            f"is not seen. On false alarms: {evidence.describe_level(settings.model)}"
        )
    return guarantee.with_gaps(
        "with restarts the theorem covers each segment at "
        f"{share}, for as long as the reward function does not change in it; a change is seen "
        "late or not at all"
    )


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


def with_forgetting(guarantee: Guarantee) -> Guarantee:
    """Return what remains of a guarantee when the model forgets."""
    return guarantee.with_gaps("this package claims no theorem for a model that forgets")


def with_constraints(  # noqa: C901 - a gap for each requirement
    guarantee: Guarantee,
    acquisition: AcquisitionFunction,
    settings: LoopSettings,
    history: History,
    starts: Iterable[int] = (),
    others: Sequence[OtherEpoch] | None = None,
) -> Guarantee:
    """Return the guarantee of a loop with constraints.

    Args:
        guarantee: The guarantee of its acquisition in the running epoch.
        acquisition: That acquisition.
        settings: The loop's settings.
        history: The history of all rounds.
        starts: See :func:`rounds_in_hand`.
        others: Earlier epochs with other models, if each epoch has its own.
    """
    rule = settings.constraints
    assert rule is not None
    acquisition_class = None if settings.played is None else settings.played.acquisition_class
    promised = rule.guarantee()
    method = f"{promised.method}, played by {guarantee.method}"
    if rule.surrogate == "separate":
        constants = {**guarantee.constants, **promised.constants}
        told = replace(guarantee, method=method, constants=constants)
        if settings.feedback.censored is not None:
            told = told.with_gaps(
                "no theorem is claimed for censored feedback with constraints: the bounds are "
                "on the reward less the minimum, and on each constraint, times the probability "
                "that an outcome arrives in time"
            )
        return with_certificate(told, history, starts, rule.constraint_bound)
    rates: list[str] = []
    if not _is_covered(rule, acquisition_class):
        rates.append(
            f"the theorem's inner algorithm is IGP-UCB, not {guarantee.method}"
            + (
                "; Remark 1 allows GP-TS for Algorithm 2 only"
                if _is_played_as(acquisition_class, GPThompsonSampling)
                else ""
            )
        )
    if settings.context_dim:
        rates.append(
            "the theorem is against the best fixed point; none is stated here with contexts"
        )
    if _num_restricted(history):
        rates.append(
            "the theorem is against the best fixed point; none is stated here where rounds could "
            "choose from a part of the domain only"
        )
    if settings.restarts:
        rates.append(
            "a reset cuts the running epoch short without an update of the multipliers, but the "
            "proof needs the update of every epoch"
        )
    # the surrogate models the penalized function
    about = guarantee.about("the penalized function of each epoch")
    bands = about.bands
    if bands is not None:
        about_epoch = "the penalized function of the running epoch"
        bands = replace(bands, wording=bands.wording.replace("the reward", about_epoch))
    options = _complete_options(settings)
    delta = options.get("delta")
    assert promised.regret is not None
    assert promised.violation is not None
    constants = {
        f"{name}_of_epoch" if name in ("delta", "noise_bound") else name: value
        for name, value in about.constants.items()
    }
    users = ("delta", "noise_bound")
    given = {name: options[name] for name in users if is_number(options.get(name))}
    combined = replace(
        promised,
        method=method,
        bands=bands,
        regret=replace(
            promised.regret, delta=delta, added=0.0 if about.regret is None else about.regret.added
        ),
        violation=replace(promised.violation, delta=delta),
        assumptions=tuple(dict.fromkeys((*promised.assumptions, *about.assumptions))),
        constants={**given, **constants, **promised.constants},
        gaps=tuple(dict.fromkeys((*promised.gaps, *about.gaps))),
    )
    if combined.regret is not None and combined.regret.added:
        combined = combined.with_assumptions(
            "the fixed point that regret compares with meets the constraints of every round"
        )
    if others is not None:
        combined = with_other_epochs(combined, others)
    for gap in rates:
        combined = _without_rates(combined, gap)
    if settings.feedback.censored is not None:
        combined = combined.with_gaps(
            "no theorem is claimed for censored feedback with constraints: the value of "
            "pending queries, the smallest penalized outcome, changes with the multipliers, which "
            "follow from earlier noise"
        )
    num_without = history.num_failed + history.num_retracted
    if num_without:
        combined = _without_rates(
            combined,
            f"{num_without} of {history.num_queries} rounds have no outcome, but the proof needs "
            "the reward and the constraint values of all rounds",
        )
    if len(rounds_in_hand(history, starts)) < history.num_queries:
        return combined  # the proof needs every round: :func:`with_regret` says so
    summary = PriorSummary(model_of(acquisition))
    deviations = [other.prior_deviation for other in others or ()]
    return _with_epochs(combined, settings, history, summary, deviations)


def _complete_options(settings: LoopSettings) -> dict[str, Any]:
    """Return the options of the acquisition, as given by the user or by default."""
    if settings.played is None:
        return {}
    return {**default_options(settings.played.acquisition_class), **settings.options}


def _with_epochs(
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
    options = _complete_options(settings)
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
            noise *= max((float(summary.active_priors[0].standard_deviation), *deviations))
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
    if _is_played_as(
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


def _is_played_as(acquisition_class: type[Any] | None, parent: type) -> bool:
    return acquisition_class is not None and acquisition_class.played_as is parent


def _is_covered(rule: MultiplierRule, acquisition_class: type | None) -> bool:
    # Remark 1 allows draws for exact constraints
    return _is_played_as(acquisition_class, ImprovedUpperConfidenceBound) or (
        rule.expects_exact_constraints and _is_played_as(acquisition_class, GPThompsonSampling)
    )


def with_retractions(guarantee: Guarantee, history: History) -> Guarantee:
    """Return a guarantee with the assumptions that it makes if outcomes were withdrawn.

    The theorems are about the noise of the outcomes that a model has. Leaving some out changes
    nothing only if the choice of the outcomes to leave out does not depend on the noise.

    Args:
        guarantee: The guarantee of the loop without regard to retractions.
        history: The history of all rounds.
    """
    num_retracted = history.num_retracted
    if not num_retracted:
        return guarantee
    many = num_retracted > 1
    depends = (
        "depends neither on their noise nor, except through the outcomes that are kept, on the "
        "reward function"
        if guarantee.is_on_draws
        else "does not depend on their noise"
    )
    ids = ", ".join(str(retraction.query_id) for retraction in history.retractions)
    told = (
        f"{num_retracted} outcome{'s were' if many else ' was'} retracted (query_id {ids}); "
        f"which outcomes are kept {depends}"
    )
    rounds = history.rounds_with_retracted()
    if rounds:
        which = (
            f"the {len(rounds)} rounds from {rounds[0]} to {rounds[-1]} that were chosen with what "
            "was retracted later are"
            if len(rounds) > 1
            else f"round {rounds[0]}, which was chosen with what was retracted later, is"
        )
        told += f"; {which} not among those that the statements cover"
        first, last = rounds[0], rounds[-1]
        guarantee = _but_for(
            guarantee,
            f"rounds {first} to {last}, which were chosen with what was retracted later"
            if len(rounds) > 1
            else f"round {first}, which was chosen with what was retracted later",
        )
    return guarantee.with_assumptions(told)
