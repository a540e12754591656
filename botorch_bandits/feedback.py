r"""Delayed feedback: how a loop treats outcomes that have not arrived.

:class:`Hallucinated` and :class:`Ignored` are the usual ways. :class:`Censored` is the method of
Verma, Dai and Low 2022: a query without an outcome stays in the posterior, with the known minimum
as its value,

.. math:: \tilde y_{s,t} = y_s \text{ if } d_s \le \min(m, t - s), \text{ else the minimum},

for the query of round ``s`` when the query of round ``t`` is chosen. An outcome that was told
before round ``t`` was asked, and after round ``A`` was, has the delay ``d_s = A + 1 - s``. A query
without an outcome after ``m`` rounds is lost: it keeps the minimum for good, and a later arrival is
recorded and reported but kept out of the model. A query that failed is lost at once.
:meth:`Censored.states` returns which of these queries are.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
section 3.1, and appendix A.4 for delays in seconds. While a query is pending, ``fill=`` replaces
the minimum with another value in the range of outcomes; see
:mod:`botorch_bandits.confidence.fills`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
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
        outcome: Outcome,
        history: History,
        scale: OutcomeScale | None = None,
    ) -> None:
        """Check an outcome before it is recorded.

        Args:
            query: Its query.
            outcome: The outcome.
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
        reward = outcome.reward
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
        if self.is_late(query, outcome):
            warnings.warn(
                f"the outcome of query_id {query.id} came after max_delay={self.max_delay} "
                f"{self.unit}: it is recorded, but kept out of the model.",
                LateOutcomeWarning,
                stacklevel=level_of_users_line(),
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

    def delay_of(self, query: Query, event: Event | None) -> float:
        """Return after how many rounds (or seconds) an outcome could be used.

        Args:
            query: The query.
            event: What ended it, if anything did.

        Returns:
            Infinity if no outcome will come, and NaN if nothing came yet.
        """
        if event is None:
            return math.nan
        if event.counted is None:
            return math.inf
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
        return (
            self.max_delay is not None and self.max_delay < self.delay_of(query, event) < math.inf
        )

    def states(self, ages: Tensor, delays: Tensor) -> tuple[Tensor, Tensor]:
        """Return which queries are observed when a round is chosen, and which are waited for.

        Observed queries have their outcome in the model, all others the minimum or a fill. Those
        that are neither observed nor waited for are lost: given up, failed, or too late.

        Args:
            ages: ``n`` ages of the queries; see :meth:`age_of`.
            delays: ``n`` delays of their outcomes; infinite if they failed, and NaN if nothing came
                yet.

        Returns:
            ``n`` booleans each.
        """
        is_waited_for = delays.isnan()
        if self.max_delay is None:
            return delays.isfinite(), is_waited_for
        in_rounds = self.unit == "rounds"
        is_given_up = ages >= self.max_delay if in_rounds else ages > self.max_delay
        return delays <= self.max_delay, is_waited_for & ~is_given_up

    def view(self, history: History, round_number: int, now: float, first: int = 0) -> CensoredView:
        """Return what the model sees when the query of a round is chosen.

        Args:
            history: What was asked and told before.
            round_number: The round being chosen.
            now: The time in seconds.
            first: The id of the first query that counts.
        """
        queries = history.queries[first : round_number - 1]
        told = {e.query_id: e for e in history.events if e.arrived_round < round_number}
        events = [told.get(query.id) for query in queries]
        ages = [self.age_of(query, round_number, now) for query in queries]
        delays = [self.delay_of(q, e) for q, e in zip(queries, events, strict=True)]
        given = torch.tensor([ages, delays], dtype=DTYPE)
        observed, waited_for = (each.tolist() for each in self.states(*given))
        rewards: list[float | None] = []
        ids: dict[str, list[int]] = {"pending": [], "lost": [], "late": []}
        for i, (query, event) in enumerate(zip(queries, events, strict=True)):
            outcome = event.counted if event is not None and observed[i] else None
            rewards.append(None if outcome is None else outcome.reward)
            if outcome is None:
                ids["pending" if waited_for[i] else "lost"].append(query.id)
            if outcome is None and math.isfinite(delays[i]):
                ids["late"].append(query.id)
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
