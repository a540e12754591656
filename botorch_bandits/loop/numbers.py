"""The numbers of a loop's statements: bounds on regret and violation of the rounds so far.

Each is a sum over the rounds that a statement covers, of what their diagnostics contain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from botorch_bandits.acquisition import GPThompsonSampling
from botorch_bandits.acquisition.base import default_options
from botorch_bandits.acquisition.upper_confidence_bound import FEWEST_ROWS
from botorch_bandits.checks import DTYPE, counted, is_number
from botorch_bandits.confidence import Guarantee, PriorSummary, RegretStatement
from botorch_bandits.confidence.facts import ALONE
from botorch_bandits.confidence.horizon import realized_ts_regret_bound
from botorch_bandits.confidence.hypotheses import NO_ROUND, NOT_EVERY_ROUND, RATES
from botorch_bandits.history import History, Query
from botorch_bandits.loop.settings import LoopSettings, is_played_as


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
