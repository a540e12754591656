r"""Delayed feedback: how a loop treats outcomes that have not arrived.

:class:`Hallucinated` and :class:`Ignored` are the usual ways. :class:`Censored` is the method of
Verma, Dai and Low 2022: a query without an outcome stays in the posterior, with the known minimum
as its value,

.. math:: \tilde y_{s,t} = y_s \text{ if } d_s \le \min(m, t - s), \text{ else the minimum},

for the query of round ``s`` when the query of round ``t`` is chosen. An outcome that was told
before round ``t`` was asked, and after round ``A`` was, has the delay ``d_s = A + 1 - s``. A query
without an outcome after ``m`` rounds is lost: it keeps the minimum for good, and a later arrival is
recorded and reported but kept out of the model. A query that failed is lost at once.
:meth:`Censored.status` returns which of these a query is; :class:`CensoredView` contains all
queries of a round, and :class:`CensoredQueue` follows a growing history.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
section 3.1, and appendix A.4 for delays in seconds. While a query is pending, ``fill=`` replaces
the minimum with another value in the range of outcomes; see
:mod:`botorch_bandits.confidence.fills`.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

from botorch_bandits.checks import (
    BelowMinimumWarning,
    MinimumLoweredWarning,
    check_number,
    check_positive,
    level_of_users_line,
    store_checked,
)
from botorch_bandits.confidence.censored import Censoring
from botorch_bandits.history import Event, History, Outcome, Query

__all__ = [
    "BelowMinimumError",
    "Censored",
    "CensoredView",
    "Feedback",
    "Hallucinated",
    "Ignored",
    "LateOutcomeWarning",
    "OutcomeScale",
]


class LateOutcomeWarning(RuntimeWarning):
    """An outcome came after its query had been given up; it is only recorded."""


class BelowMinimumError(ValueError):
    """An outcome is below the minimum of censored feedback; it is not recorded."""


class Feedback:
    """How a loop treats queries without an outcome.

    Attributes:
        hallucinates: Whether they count as known to have the posterior mean.
        ignores_pending: Whether they are left out.
    """

    hallucinates: ClassVar[bool] = False
    ignores_pending: ClassVar[bool] = False

    @property
    def censored(self) -> Censored | None:
        """The feedback itself if they are censored, otherwise None."""
        return None

    def is_late(self, query: Query, event: Event) -> bool:
        """Return whether an outcome came after its query was given up.

        Args:
            query: The query.
            event: Its outcome.
        """
        return False


@dataclass(frozen=True)
class Hallucinated(Feedback):
    """Pending queries count as known to have the posterior mean (the loop's default).

    The variance shrinks and the mean is unchanged: GP-BUCB (Desautels, Krause and Burdick 2014),
    and GP-BTS with Thompson sampling. Widths are those of the outcomes that arrived.
    """

    hallucinates: ClassVar[bool] = True


@dataclass(frozen=True)
class Ignored(Feedback):
    """Pending queries are left out: plain GP-UCB, and asynchronous Thompson sampling.

    Without randomness, the same point is asked again until something arrives.
    """

    ignores_pending: ClassVar[bool] = True


class OutcomeScale(NamedTuple):
    """What the settings of a loop state about the size of noise and outcomes.

    Attributes:
        noise_bound: ``R`` in units of the reward; None if it is not stated in these units.
        in_outcomes: Whether ``outcome_bound`` is in units of the reward.
    """

    noise_bound: float | None
    in_outcomes: bool


@dataclass(frozen=True)
class Censored(Censoring, Feedback):
    r"""Pending queries enter at the known minimum, or at the value of ``fill``; see the module.

    With :math:`d_s` the delay of query ``s``, the model of round ``t`` has the outcome

    .. math:: \tilde y_{s,t} = y_s \text{ if } d_s \le \min\{m, t - s\}, \text{ else } y_{\min},

    where a query with :math:`t - s < m` may have a fill instead of :math:`y_{\min}`.

    Attributes:
        minimum: No noiseless reward is smaller. In a loop with ``maximize=False``, no cost is
            LARGER. If None, it is unknown, and ``minimum_proxy`` replaces it.
        outcome_bound: ``B_y``: no outcome exceeds the minimum by more. It is in units of the
            reward, or, like the other bounds, in prior standard deviations if the acquisition has
            ``units="prior"``. None is possible only with a constant width: the width then has no
            sum.
        max_delay: ``m``, how long a query is waited for; None waits forever.
        unit: What ``max_delay`` counts: ``"rounds"`` or ``"seconds"`` between the times of events.
        window: The queries in the width's sum: ``"pending"``, or ``"all"`` of the last ``m``, as in
            the paper.
        on_lower: What to do with an outcome below ``minimum``: ``"error"``, or ``"lower"`` the
            minimum to it with a warning.
        minimum_proxy: The factor ``w`` of the proxy ``min(mean - w * sd)`` for an unknown minimum,
            over observed points (pending ones if there are none), under the model of what arrived
            in time. It is recomputed whenever something arrives, and the prior mean remains the
            model's. No theorem covers it.
        predictive: Whether to use predictive standard deviations, noise included, in the bound and
            the sum, as the authors' code does for upper confidence bounds. No theorem covers this.
            Draws never include the noise.
        sum_form: How the sum enters a width. ``"theorem"``: ``outcome_bound`` times the sum, both
            in prior standard deviations. ``"published"``: for an upper confidence bound,
            ``outcome_bound`` times the sum of deviations in units of the outcomes, and for a draw
            nothing, as in the authors' code. The latter needs a constant width, and no theorem
            covers it. For bounds, the two agree at prior variance 1.
        tolerance: How far noise can take an outcome below ``minimum``, in units of the reward. Such
            an outcome is recorded as it was told, with a warning for the first one; pending queries
            stay at ``minimum``. If None: four times ``noise_bound``, if the acquisition has it in
            units of the reward; otherwise a twentieth of ``outcome_bound``, if that is in units of
            the reward; otherwise a quarter of how far the largest of ten rewards or more lies above
            ``minimum``, and before that any amount, unless none of three lies above it.
        constraint_bounds: In a loop with ``constraints=``: a pair ``(smallest, largest)`` for each
            constraint, between which every told value lies. If penalized outcomes are modeled, a
            pending query is at the smallest one under the multipliers in force; see
            :meth:`penalized`. If constraints have their own models, its constraint values are 0,
            the border between met and violated, which does not depend on the share of outcomes that
            arrive; see :meth:`outcome_bounds`. No theorem covers either.
    """

    minimum: float | None = None  # a loop has one reward
    outcome_bound: float | None = None
    constraint_bounds: tuple[tuple[float, float], ...] | None = None

    as_theorem: ClassVar[Mapping[str, Any]] = MappingProxyType({"window": "all"})
    """Options as printed in Theorems 1 and 3; pass ``max_delay=m``, and bounds to the width."""

    as_published: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"window": "all", "predictive": True, "sum_form": "published"}
    )
    """Options of the authors' released code; pass ``outcome_bound=1.0``, ``max_delay=m``, and
    ``width=1.0`` to the acquisition (their ``beta_t``). Thompson sampling then draws from the
    posterior itself, with no factor on its deviations."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.minimum is not None:
            store_checked(self, minimum=check_number("minimum", self.minimum))
        if self.outcome_bound is not None:
            store_checked(self, outcome_bound=check_positive("outcome_bound", self.outcome_bound))
        if self.constraint_bounds is not None:
            pairs = _check_pairs(self.constraint_bounds)
            store_checked(self, constraint_bounds=pairs)
        super().__post_init__()

    @property
    def censored(self) -> Censored:
        return self

    def check_outcome(
        self,
        query: Query,
        reward: float,
        num_queries: int,
        now: float,
        history: History,
        scale: OutcomeScale | None = None,
    ) -> None:
        """Check an outcome before it is recorded.

        Args:
            query: Its query.
            reward: The reward.
            num_queries: The number of queries asked so far.
            now: The time in seconds.
            history: What was told before.
            scale: What is known about the size of noise and outcomes.

        Raises:
            BelowMinimumError: If it is below the minimum by more than noise explains and
                ``on_lower="error"``.

        Warns:
            BelowMinimumWarning: If it is the first one below the minimum, but by no more than that.
            MinimumLoweredWarning: If it is the lowest one so far and ``on_lower="lower"``.
            LateOutcomeWarning: If its query was given up.
        """
        if self.minimum is not None and history.is_better(self.minimum, reward):
            told = [outcome.reward for outcome in history.outcomes]
            # for costs, the minimum is the largest value, and worse values lie above it
            below, lowered = ("below", "lowered") if history.maximize else ("above", "raised")
            if self.on_lower == "lower":
                if all(history.is_better(y, reward) for y in told):
                    warnings.warn(
                        f"the {history.outcome_name} {reward} lies {below} "
                        f"minimum={self.minimum}, which is {lowered} to it; no theorem covers a "
                        "minimum that depends on the outcomes.",
                        MinimumLoweredWarning,
                        stacklevel=level_of_users_line(),
                    )
            else:
                least = self.least_reward(history, scale)
                assert least is not None
                if history.is_better(least, reward):
                    raise BelowMinimumError(
                        f"reward is {reward}, {below} minimum={self.minimum} by more than the "
                        f"{abs(self.minimum - least):.4g} that noise explains. State a minimum "
                        "that holds, pass tolerance= to allow for more noise, or on_lower='lower' "
                        "to lower the minimum as outcomes arrive."
                    )
                if not any(history.is_better(self.minimum, y) for y in told):
                    warnings.warn(
                        f"the {history.outcome_name} {reward} lies {below} "
                        f"minimum={self.minimum}, by no more than noise explains. It is recorded "
                        "as it was told, and so are further ones, without a warning; pending "
                        "queries stay at the minimum.",
                        BelowMinimumWarning,
                        stacklevel=level_of_users_line(),
                    )
        outcome = Outcome(query.id, reward, now, num_queries)
        if self.is_late(query, outcome):
            warnings.warn(
                f"the outcome of query_id {query.id} came after max_delay={self.max_delay} "
                f"{self.unit}: it is recorded, but kept out of the model.",
                LateOutcomeWarning,
                stacklevel=3,
            )

    def check_constraints(self, constraints: Sequence[float]) -> None:
        """Check constraint values before they are recorded.

        Args:
            constraints: The constraint values of one outcome.

        Raises:
            ValueError: If one lies outside its ``constraint_bounds``.
        """
        for j, (value, pair) in enumerate(
            zip(constraints, self.constraint_bounds or (), strict=False)
        ):
            if not pair[0] <= value <= pair[1]:
                raise ValueError(
                    f"constraint {j + 1} is {value}, outside its constraint_bounds="
                    f"({pair[0]:g}, {pair[1]:g}), which determine the pseudo-value of pending "
                    "queries. Build the loop with bounds that hold for every value told, noise "
                    "included."
                )

    def penalized(self, penalize: Callable[[float, Sequence[float]], float]) -> Censored:
        r"""Return the feedback on penalized outcomes, under the multipliers of an epoch.

        .. math::
           o_{\min} = y_{\min} - \sum_j \kappa_j (\psi(g_j^{\max}) - 1), \qquad
           B_o = y_{\min} + B_y - \sum_j \kappa_j (\psi(g_j^{\min}) - 1) - o_{\min}

        with :math:`g_j` in place of :math:`\psi(g_j) - 1` if the rule charges :math:`\kappa_j g_j`.
        Penalties do not decrease in ``g``, so these are the smallest penalized outcome and the
        length of the range of all penalized outcomes.

        Args:
            penalize: A function from a reward and its constraint values to the penalized outcome.
        """
        assert self.minimum is not None
        assert self.constraint_bounds is not None
        least, largest = zip(*self.constraint_bounds, strict=True)
        minimum, bound = penalize(self.minimum, largest), None
        if self.outcome_bound is not None:
            bound = penalize(self.minimum + self.outcome_bound, least) - minimum
        return replace(self, minimum=minimum, outcome_bound=bound, constraint_bounds=None)

    def bound_on_sum(self, draws: bool) -> float | None:
        """Return the factor of the sum of deviations; None if the width has no sum.

        Args:
            draws: Whether the width is the scale of a draw, which has no sum in the published code.
        """
        return None if draws and self.sum_form == "published" else self.outcome_bound

    def outcome_bounds(self, num_constraints: int) -> tuple[float | None, ...]:
        r"""Return how far each outcome can be from its pseudo-value, the reward's bound first.

        With their own models, constraints have the pseudo-value 0, and therefore the bound

        .. math:: B_{g_j} = \max(|g_j^{\min}|, |g_j^{\max}|).

        Args:
            num_constraints: The number of constraints.

        Returns:
            ``1 + num_constraints`` numbers; None for all without ``outcome_bound``.
        """
        if self.outcome_bound is None:
            return (None,) * (1 + num_constraints)
        pairs = self.constraint_bounds or ()
        return (self.outcome_bound, *(max(abs(low), abs(high)) for low, high in pairs))

    def least_reward(self, history: History, scale: OutcomeScale | None = None) -> float | None:
        """Return the worst reward that is recorded, or the largest cost; None if all are recorded.

        Args:
            history: What was told before.
            scale: What is known about the size of noise and outcomes.
        """
        if self.minimum is None or self.on_lower == "lower":
            return None
        sign = 1.0 if history.maximize else -1.0
        heights = [sign * (outcome.reward - self.minimum) for outcome in history.outcomes]
        noise_bound, in_outcomes = (None, True) if scale is None else scale
        bound = self.outcome_bound if in_outcomes else None
        return self.minimum - sign * self.tolerated(noise_bound, bound, heights)

    def current_minimum(self, history: History, first: int = 0) -> float | None:
        """Return the value of pending queries: the minimum, or the value to which it was lowered.

        None if the minimum is unknown.

        Args:
            history: What was asked and told.
            first: The id of the first query whose outcome counts.
        """
        if self.minimum is None or self.on_lower == "error":
            return self.minimum
        sign = 1.0 if history.maximize else -1.0  # the minimum is that of the model
        counted = [outcome for outcome in history.outcomes if outcome.query_id >= first]
        return min([self.minimum, *(sign * outcome.reward for outcome in counted)])

    def delay_of(self, query: Query, event: Event) -> float:
        """Return after how many rounds (or seconds) an outcome could be used.

        Args:
            query: The query.
            event: Its outcome.
        """
        if self.unit == "seconds":
            return event.arrived_at - query.asked_at
        return event.arrived_round + 1 - query.round_number

    def age_of(self, query: Query, round_number: int, now: float) -> float:
        """Return the age of a query in rounds (or seconds) when a round is chosen.

        Args:
            query: The query.
            round_number: The round being chosen.
            now: The time in seconds.
        """
        return now - query.asked_at if self.unit == "seconds" else round_number - query.round_number

    def is_late(self, query: Query, event: Event) -> bool:
        return self.max_delay is not None and self.delay_of(query, event) > self.max_delay

    def is_lost(self, query: Query, round_number: int, now: float) -> bool:
        """Return whether a query without an outcome has been given up when a round is chosen.

        Args:
            query: The query.
            round_number: The round being chosen.
            now: The time in seconds.
        """
        if self.max_delay is None:
            return False
        age = self.age_of(query, round_number, now)
        return age > self.max_delay if self.unit == "seconds" else age >= self.max_delay

    def status(
        self, query: Query, event: Event | None, round_number: int, now: float
    ) -> Literal["observed", "pending", "lost", "late"]:
        """Return the status of a query when a round is chosen.

        ``"observed"`` queries have their outcome in the model, all others the minimum.
        ``"pending"`` queries are waited for, ``"lost"`` queries were given up or failed, and
        ``"late"`` queries are lost ones whose outcome has arrived nevertheless.

        Args:
            query: The query.
            event: Its outcome or failure, if that was told before the round was asked.
            round_number: The round being chosen.
            now: The time in seconds.
        """
        if event is None:
            return "lost" if self.is_lost(query, round_number, now) else "pending"
        if event.counted is None:
            return "lost"
        return "late" if self.is_late(query, event) else "observed"

    def view(self, history: History, round_number: int, now: float, first: int = 0) -> CensoredView:
        """Return what the model sees when the query of a round is chosen.

        Args:
            history: What was asked and told before.
            round_number: The round being chosen.
            now: The time in seconds.
            first: The id of the first query that counts.
        """
        rewards: list[float | None] = []
        ids: dict[str, list[int]] = {"pending": [], "lost": [], "late": []}
        told = {event.query_id: event for event in history.events}
        for query in history.queries[first : round_number - 1]:
            event = told.get(query.id)
            if event is not None and event.arrived_round >= round_number:
                event = None  # it was told later
            status = self.status(query, event, round_number, now)
            outcome = None if event is None or status != "observed" else event.counted
            rewards.append(None if outcome is None else outcome.reward)
            if outcome is None:
                ids[status].append(query.id)
            if status == "late":
                ids["lost"].append(query.id)
        return CensoredView(tuple(rewards), *(tuple(ids[name]) for name in ids))


@dataclass(frozen=True)
class CensoredView:
    """What a censored model sees of the queries so far.

    Attributes:
        rewards: One entry per query that counts, in the order of asking: its reward as it was told
            (with ``constraints=``, not yet penalized), or None if it is censored.
        pending: Ids of censored queries that are waited for.
        lost: Ids of censored queries that were given up, or failed.
        late: Ids of lost queries whose outcome arrived too late.
    """

    rewards: tuple[float | None, ...]
    pending: tuple[int, ...]
    lost: tuple[int, ...]
    late: tuple[int, ...]


def _check_pairs(given: Any) -> tuple[tuple[float, float], ...]:
    """Return ``constraint_bounds`` as pairs of numbers."""
    remedy = (
        "give one pair (least, largest) per constraint, as in constraint_bounds=((-1.0, 2.0),)."
    )
    try:
        pairs = tuple((low, high) for low, high in given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"constraint_bounds is {given!r}; {remedy}") from error
    checked = tuple(
        (check_number("constraint_bounds", low), check_number("constraint_bounds", high))
        for low, high in pairs
    )
    if not checked or any(low > high for low, high in checked):
        raise ValueError(f"constraint_bounds is {given!r}; {remedy}")
    return checked


class CensoredQueue:
    """The censored queries of a growing history, as :meth:`Censored.view` returns them for now.

    Each update costs only what has changed since the last one, however long the history is: the
    oldest pending query is examined first, and none after one that is still waited for.

    Args:
        feedback: Determines which queries are given up.
        history: The history, which grows.
    """

    def __init__(self, feedback: Censored, history: History) -> None:
        """See the class."""
        self._feedback, self._history = feedback, history
        self._start(0)

    def _start(self, first: int) -> None:
        self._first = self._num_queries = first
        self._num_events = 0
        self._waiting: dict[int, Query] = {}  # by id, in the order of asking
        self._lost: set[int] = set()
        self._late: set[int] = set()
        self._now = self._last_asked_at = -math.inf
        self._is_ordered = True  # with seconds, the clock may have been set back
        self._delay_of: dict[int, float] = {}  # of outcomes that came in time, by query
        self._delays: Counter[float] = Counter()

    @property
    def pending(self) -> tuple[int, ...]:
        """Ids of censored queries that are waited for, in the order of asking."""
        return tuple(self._waiting)

    @property
    def num_lost(self) -> int:
        """The number of censored queries that were given up, or failed."""
        return len(self._lost)

    @property
    def lost(self) -> tuple[int, ...]:
        """Their ids, in the order of asking."""
        return tuple(sorted(self._lost))

    @property
    def late(self) -> tuple[int, ...]:
        """Ids of lost queries whose outcome arrived too late."""
        return tuple(sorted(self._late))

    def shares_to_come(self) -> tuple[float, ...]:
        """Return, for each pending query, the probability that its outcome comes in time."""
        when = self._num_queries + 1, self._now
        ages = [self._feedback.age_of(query, *when) for query in self._waiting.values()]
        given = ages, self._delays, len(self._lost), self._feedback.max_delay
        return self._feedback.shares_at_ages(*given)

    def update(self, now: float, first: int = 0) -> None:
        """Process what happened since the last update, before the next query is chosen.

        Args:
            now: The time in seconds.
            first: The id of the first query that counts.
        """
        if now < self._now or first != self._first:
            self._start(first)  # if the clock was set back, which queries are lost is open again
        self._now = now
        for query in self._history.queries_since(self._num_queries):
            self._waiting[query.id] = query
            self._is_ordered = self._is_ordered and query.asked_at >= self._last_asked_at
            self._last_asked_at = max(self._last_asked_at, query.asked_at)
        self._num_queries = self._history.num_queries
        events = self._history.events_since(self._num_events)
        self._num_events += len(events)
        for event in events:
            if event.query_id < first:
                continue
            query = self._history.query(event.query_id)
            self._waiting.pop(query.id, None)
            self._lost.discard(query.id)
            if query.id in self._delay_of:  # an outcome that was withdrawn
                self._delays[self._delay_of.pop(query.id)] -= 1
            status = self._feedback.status(query, event, self._num_queries + 1, now)
            if status == "late":
                self._late.add(query.id)
            if status != "observed":
                self._lost.add(query.id)
            elif self._feedback.fill == "soft":
                delay = self._delay_of[query.id] = self._feedback.delay_of(query, event)
                self._delays[delay] += 1
        self._give_up(now)

    def _give_up(self, now: float) -> None:
        """Stop waiting for the queries that are lost by now."""
        given_up = []
        for query in self._waiting.values():
            if self._feedback.status(query, None, self._num_queries + 1, now) == "lost":
                given_up.append(query.id)
            elif self._is_ordered:
                break
        for query_id in given_up:
            del self._waiting[query_id]
        self._lost.update(given_up)
