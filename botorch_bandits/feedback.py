r"""Delayed feedback: what a loop makes of outcomes that have not arrived.

:class:`Hallucinated` and :class:`Ignored` are the usual ways. :class:`Censored` is that of Verma,
Dai and Low 2022: a query without an outcome stays in the posterior, with the known minimum as its
value,

.. math:: \tilde y_{s,t} = y_s \text{ if } d_s \le \min(m, t - s), \text{ else the minimum},

for the query of round ``s`` when that of round ``t`` is chosen. An outcome that was told before
round ``t`` was asked, and after round ``A`` was, has the delay ``d_s = A + 1 - s``. A query without
an outcome after ``m`` rounds is lost: it keeps the minimum for good, and a later arrival is
recorded and reported but kept out of the model. A query that failed is lost at once.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
section 3.1, and appendix A.4 for delays in seconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar

from botorch_bandits.checks import (
    MinimumLoweredWarning,
    check_integer,
    check_nonnegative,
    check_number,
    check_one_of,
    check_positive,
    store_checked,
)
from botorch_bandits.history import History, Outcome, Query

__all__ = [
    "Censored",
    "CensoredView",
    "Feedback",
    "Hallucinated",
    "Ignored",
    "LateOutcomeWarning",
]


class LateOutcomeWarning(RuntimeWarning):
    """An outcome came after its query had been given up; it is recorded only."""


class Feedback:
    """How a loop treats queries without an outcome."""


@dataclass(frozen=True)
class Hallucinated(Feedback):
    """Pending queries count as known to have the posterior mean (the loop's default).

    The variance shrinks, the mean stays: GP-BUCB (Desautels, Krause and Burdick 2014), and GP-BTS
    with Thompson sampling. Widths are those of the outcomes that arrived.
    """


@dataclass(frozen=True)
class Ignored(Feedback):
    """Pending queries are left out: GP-UCB as it is, and asynchronous Thompson sampling.

    Without randomness the same point is asked again until something arrives.
    """


@dataclass(frozen=True)
class Censored(Feedback):
    r"""Pending queries enter at the known minimum; see the module.

    With :math:`d_s` the delay of query ``s``, the model of round ``t`` has the outcome

    .. math:: \tilde y_{s,t} = y_s \text{ if } d_s \le \min\{m, t - s\}, \text{ else } y_{\min}.

    Attributes:
        minimum: No outcome is smaller. None: it is unknown, and ``minimum_proxy`` stands in.
        outcome_bound: ``B_y``: no outcome exceeds the minimum by more. In units of the reward, or,
            like the other bounds, in prior standard deviations where the acquisition has
            ``units="prior"``. None, with a constant width only: the width has no sum.
        max_delay: ``m``: for how long a query is waited for; None waits for ever.
        unit: What ``max_delay`` counts: ``"rounds"`` or ``"seconds"`` of the loop's clock.
        window: Which queries the width's sum is over: ``"pending"``, or ``"all"`` of the last
            ``m``, as the paper has it.
        on_lower: What to do with an outcome below ``minimum``: ``"error"``, or ``"lower"`` the
            minimum to it with a warning.
        minimum_proxy: The factor ``w`` of the proxy ``min(mean - w * sd)`` for an unknown minimum,
            over observed points (pending ones without any), by the model of what arrived in time.
            It is taken anew whenever something arrives, and the prior mean stays the model's. No
            theorem covers it.
        predictive: Use predictive standard deviations, noise included, in bound and sum, as the
            authors' code does for upper confidence bounds. No theorem covers it.
    """

    minimum: float | None = None
    outcome_bound: float | None = None
    max_delay: float | None = None
    unit: str = "rounds"
    window: str = "pending"
    on_lower: str = "error"
    minimum_proxy: float | None = None
    predictive: bool = False

    as_theorem: ClassVar[Mapping[str, Any]] = MappingProxyType({"window": "all"})
    """Options as printed in Theorems 1 and 3; pass ``max_delay=m``, and bounds to the width."""

    as_published: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"window": "all", "predictive": True}
    )
    """Options of the authors' upper confidence bound; pass ``max_delay=m``, and ``width=1.0`` to
    the acquisition (their ``beta_t``). Their Thompson sampling has ``width=1.0`` without
    ``outcome_bound``, and none of these."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if (self.minimum is None) == (self.minimum_proxy is None):
            raise ValueError(
                "pass either minimum=, the least outcome possible, or minimum_proxy=, the factor "
                "of the standard deviation in a lower confidence bound; got "
                f"minimum={self.minimum} and minimum_proxy={self.minimum_proxy}."
            )
        if self.minimum is not None:
            store_checked(self, minimum=check_number("minimum", self.minimum))
        if self.minimum_proxy is not None:
            if isinstance(self.minimum_proxy, bool):
                raise TypeError(
                    f"minimum_proxy is {self.minimum_proxy}; pass the factor of the standard "
                    "deviation in the lower confidence bound, such as minimum_proxy=2.0."
                )
            proxy = check_nonnegative("minimum_proxy", self.minimum_proxy)
            store_checked(self, minimum_proxy=proxy)
        if self.outcome_bound is not None:
            store_checked(self, outcome_bound=check_positive("outcome_bound", self.outcome_bound))
        check_one_of("unit", self.unit, ("rounds", "seconds"))
        check_one_of("window", self.window, ("pending", "all"))
        check_one_of("on_lower", self.on_lower, ("error", "lower"))
        check_one_of("predictive", self.predictive, (True, False))
        if self.max_delay is not None:
            if self.unit == "rounds":
                store_checked(self, max_delay=check_integer("max_delay", self.max_delay, minimum=1))
            else:
                store_checked(self, max_delay=check_positive("max_delay", self.max_delay))
        if self.window == "all" and (self.max_delay is None or self.unit != "rounds"):
            raise ValueError(
                "window='all' sums over the last max_delay queries; give max_delay= in rounds."
            )
        if self.minimum is None and self.on_lower != "error":
            raise ValueError(
                "on_lower='lower' lowers a known minimum=, but the minimum is unknown: the proxy "
                "moves with the outcomes. Leave on_lower= out."
            )

    def check_outcome(self, query: Query, reward: float, num_queries: int, now: float) -> None:
        """Look at an outcome before it is recorded.

        Args:
            query: Its query.
            reward: The reward.
            num_queries: How many queries have been asked.
            now: Clock time in seconds.

        Raises:
            ValueError: If it is below the minimum and ``on_lower="error"``.
        """
        if self.minimum is not None and reward < self.minimum:
            if self.on_lower == "error":
                raise ValueError(
                    f"reward is {reward}, below minimum={self.minimum}. State a minimum that "
                    "holds, or pass on_lower='lower' to lower it as outcomes arrive."
                )
            warnings.warn(
                f"the reward {reward} lies below minimum={self.minimum}, which is lowered to it; "
                "no theorem covers a minimum that depends on the outcomes.",
                MinimumLoweredWarning,
                stacklevel=3,
            )
        outcome = Outcome(query.id, reward, now, num_queries)
        if self.is_late(query, outcome):
            warnings.warn(
                f"the outcome of query_id {query.id} came after max_delay={self.max_delay} "
                f"{self.unit}: it is recorded, but kept out of the model.",
                LateOutcomeWarning,
                stacklevel=3,
            )

    def current_minimum(self, history: History) -> float | None:
        """Return the minimum: as stated, or the smallest reward told if that is lower.

        None if the minimum is unknown.

        Args:
            history: What was asked and told.
        """
        if self.minimum is None:
            return None
        rewards = (outcome.reward for outcome in history.outcomes)
        return min(self.minimum, min(rewards, default=self.minimum))

    def is_late(self, query: Query, outcome: Outcome) -> bool:
        """Return whether an outcome came after the query was given up."""
        if self.max_delay is None:
            return False
        if self.unit == "seconds":
            return outcome.arrived_at - query.asked_at > self.max_delay
        return outcome.arrived_round + 1 - query.round_number > self.max_delay

    def is_lost(self, query: Query, round_number: int, now: float) -> bool:
        """Return whether a query without an outcome is given up when a round is chosen.

        Args:
            query: The query.
            round_number: The round that is chosen.
            now: Clock time in seconds.
        """
        if self.max_delay is None:
            return False
        if self.unit == "seconds":
            return now - query.asked_at > self.max_delay
        return round_number - query.round_number >= self.max_delay

    def summed(self, pending: Sequence[int], round_number: int) -> list[int]:
        """Return the ids of the queries whose deviations the width's sum has.

        Args:
            pending: Ids of the queries that are waited for.
            round_number: The round that is chosen.
        """
        if self.outcome_bound is None:
            return []
        if self.window == "pending":
            return list(pending)
        assert self.max_delay is not None
        return list(range(max(0, round_number - 1 - int(self.max_delay)), round_number - 1))

    def view(self, history: History, round_number: int, now: float) -> CensoredView:
        """Return what the model sees when the query of a round is chosen.

        Args:
            history: What was asked and told before.
            round_number: The round that is chosen.
            now: Clock time in seconds.
        """
        rewards: list[float | None] = []
        pending, lost, late = [], [], []
        for query in history.queries[: round_number - 1]:
            outcome = history.outcome(query.id)
            if outcome is not None and outcome.arrived_round >= round_number:
                outcome = None  # it was told later
            failure = history.failure(query.id) or history.retraction(query.id)
            has_failed = failure is not None and failure.arrived_round < round_number
            if outcome is not None and not self.is_late(query, outcome):
                rewards.append(outcome.reward)
                continue
            rewards.append(None)
            if outcome is not None:
                late.append(query.id)
            if outcome is not None or has_failed or self.is_lost(query, round_number, now):
                lost.append(query.id)
            else:
                pending.append(query.id)
        return CensoredView(tuple(rewards), tuple(pending), tuple(lost), tuple(late))


@dataclass(frozen=True)
class CensoredView:
    """What a censored model sees of the queries so far.

    Attributes:
        rewards: One entry a query in asking order: its reward, or None where it is censored.
        pending: Ids of censored queries that are waited for.
        lost: Ids of censored queries that were given up, or failed.
        late: Ids of lost queries whose outcome arrived too late.
    """

    rewards: tuple[float | None, ...]
    pending: tuple[int, ...]
    lost: tuple[int, ...]
    late: tuple[int, ...]

    def shifted(self, first_id: int) -> CensoredView:
        """Return the same with ids that count from ``first_id``."""
        pending, lost, late = (
            tuple(first_id + i for i in ids) for ids in (self.pending, self.lost, self.late)
        )
        return CensoredView(self.rewards, pending, lost, late)
