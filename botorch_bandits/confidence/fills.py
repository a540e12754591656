r"""The values that fill in pending queries of censored feedback, and their effect on the width.

With censored feedback, a pending query :math:`s` enters the model at the known minimum. It may also
enter at any other value :math:`\varphi_s` of the range in which noisy outcomes lie, which is
:math:`[y_{\min}, y_{\min} + B_y]`, and the confidence bounds still hold.

**Lemma.** Let :math:`v_s` be the final value of query ``s`` under censoring: its outcome if it
arrives within ``m`` rounds, else the minimum. Let the model have :math:`v_s` for all queries except
those that are pending (:math:`0 < t - s < m`), which have :math:`\varphi_s`. Its posterior mean
:math:`\mu` and the mean :math:`\mu^v` of the model with all :math:`v_s` obey, at every ``x``,

.. math::
   |\mu(x) - \mu^v(x)| \le \frac{\sigma(x)}{\lambda} \sum_{s \text{ pending}} b_s \sigma(x_s),
   \qquad b_s = \max(\varphi_s - y_{\min},\; y_{\min} + B_y - \varphi_s) \le B_y.

Proof: both means are linear in the outcomes, and the weight of row ``s`` in either is the posterior
covariance of :math:`f(x)` and :math:`f(x_s)` over :math:`\lambda`, which is at most
:math:`\sigma(x) \sigma(x_s) / \lambda` (Cauchy and Schwarz). Rows that are not pending are the same
in both models, and :math:`v_s` of a pending row lies in the range, at most :math:`b_s` from
:math:`\varphi_s`.

The argument is deterministic, so fills may depend on everything observed. The rest of the width,
which is for :math:`\mu^v`, is that of Verma, Dai and Low 2022, Theorem 1. With
:math:`\varphi_s = y_{\min}` the lemma is a step of its proof (appendix A.1), with
:math:`b_s = B_y`.

The fills are named in ``FILLS``. A *soft* fill needs the probability that a pending outcome will
still arrive: :class:`Survival` computes it from a given distribution, or estimates it from the
delays so far (Kaplan and Meier 1958).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_number,
    check_one_of,
    entries_of,
    is_listed,
    store_checked,
)

FILLS = ("minimum", "middle", "soft", "lower_bound")
"""At the minimum; half-way to the largest outcome; at the posterior mean of the outcomes that
arrived, weighted by the probability that the outcome still comes; at their lower confidence
bound."""

LOWER_BOUND_DEVIATIONS = 1.0
"""The number of posterior standard deviations from the mean down to the fill ``"lower_bound"``. Two
and three were measured as worse, in the experiment ``beyond-fills``."""

SUM_TOLERANCE = 1e-6
"""The tolerance for the sum of the probabilities of delays, which must be 1."""

ROUNDING = 1e-9
"""The tolerance for the values of a cumulative distribution function."""

DelayDistribution = tuple[float, ...] | Callable[[float], float]
"""The probabilities of delays 0, 1, 2, ..., or a cumulative distribution function."""


@dataclass(frozen=True, kw_only=True)
class Filling:
    """How pending queries are filled in: a part of the options of censored feedback.

    Attributes:
        fill: The value at which a pending query enters. ``"minimum"``: the minimum, as published.
            ``"middle"``: ``minimum + outcome_bound / 2``, which halves the sum in the width.
            ``"soft"``: ``w * mean + (1 - w) * minimum``, with the posterior mean given the outcomes
            that arrived, and ``w`` the probability that the outcome is still to come in time.
            ``"lower_bound"``: the posterior mean minus one standard deviation, given the outcomes
            that arrived. All but the first are clipped to ``[minimum, minimum + outcome_bound]``,
            in which noisy outcomes must lie, and need both numbers in the units of outcomes.
            Queries that were given up, or failed, are at the minimum with any fill.
        delay_distribution: The distribution of delays, for ``fill="soft"``: the probabilities of
            delays 0, 1, 2, ... in rounds, or a cumulative distribution function, which may stay
            below 1 if outcomes can be lost. A delay is the number of rounds (or seconds) after
            which an outcome can be used; 0 and 1 round are equivalent. With None, it is estimated
            from the delays and ages of the queries so far (Kaplan and Meier 1958).
    """

    fill: str = "minimum"
    delay_distribution: DelayDistribution | None = None

    @property
    def fills_in(self) -> bool:
        """Whether pending queries enter at a value other than the minimum."""
        return self.fill != "minimum"

    @property
    def fills_by_model(self) -> bool:
        """Whether the posterior given the outcomes that arrived determines the fill."""
        return self.fill in ("soft", "lower_bound")

    def check_fill(self) -> None:
        """Raise an error unless the fill fits the other options; store the checked distribution."""
        check_one_of("fill", self.fill, FILLS)
        if self.delay_distribution is not None:
            if self.fill != "soft":
                raise ValueError(
                    f"delay_distribution= is given, but fill is {self.fill!r}, which does not use "
                    'it. Leave it out, or pass fill="soft".'
                )
            limit, unit = getattr(self, "max_delay", None), getattr(self, "unit", "rounds")
            checked = check_delay_distribution(self.delay_distribution, limit, unit)
            store_checked(self, delay_distribution=checked)
        if not self.fills_in:
            return
        given: Any = self
        needed = {"minimum": given.minimum, "outcome_bound": given.outcome_bound}
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            raise ValueError(
                f"fill={self.fill!r} needs {' and '.join(f'{name}=' for name in missing)}: fills "
                "lie between the minimum and the largest outcome, minimum + outcome_bound. State "
                'them in the units of outcomes, or leave fill= out (fill="minimum").'
            )
        for bound in entries_of(given.outcome_bound):
            if not bound > 0.0:
                raise ValueError(
                    f"fill={self.fill!r} needs a positive outcome_bound=, got {bound}: fills lie "
                    'between minimum and minimum + outcome_bound. Or use fill="minimum".'
                )
        if given.on_lower == "lower":
            raise ValueError(
                f"fill={self.fill!r} does not go with on_lower='lower': fills lie between a "
                "minimum that holds and minimum + outcome_bound. Leave one of the two out."
            )

    def shares_at_ages(
        self,
        ages: Sequence[float],
        arrived: Mapping[float, int],
        num_longer: int,
        max_delay: float | None,
    ) -> tuple[float, ...]:
        """Return the probabilities that the outcomes of pending queries will still arrive in time.

        Args:
            ages: The ages of the queries that are waited for.
            arrived: A map from delays to the number of outcomes that had them, for the estimate.
            num_longer: The number of delays that are known to be longer than any that counts.
            max_delay: How long a query is waited for; None if forever.
        """
        given = self.delay_distribution
        expected = (
            Survival.estimated(arrived, ages, num_longer)
            if given is None
            else Survival.stated(given)
        )
        return tuple(expected.still_to_come(age, max_delay) for age in ages)

    def heights(
        self,
        bound: float | Tensor,
        mean: Tensor,
        deviation: Tensor,
        shares: Tensor,
    ) -> Tensor:
        r"""Return how far fills lie above the minimum, between 0 and ``outcome_bound``.

        .. math::
           \varphi_s - y_{\min} = \tfrac12 B_y, \quad w_s (\mu(x_s) - y_{\min}), \quad
           \mu(x_s) - \sigma(x_s) - y_{\min}

        for ``"middle"``, ``"soft"`` and ``"lower_bound"``, clipped.

        Args:
            bound: ``outcome_bound``, in outcome units.
            mean: The posterior means at pending queries given what arrived, LESS the minimum.
            deviation: The posterior standard deviations there, of the same shape.
            shares: The probability for each that its outcome is still to come in time.
        """
        if self.fill == "middle":
            heights = torch.full_like(mean, 0.5) * bound
        elif self.fill == "soft":
            heights = shares * mean
        elif self.fill == "lower_bound":
            heights = mean - LOWER_BOUND_DEVIATIONS * deviation
        else:
            heights = torch.zeros_like(mean)
        largest = torch.as_tensor(bound, dtype=mean.dtype, device=mean.device)
        return torch.minimum(heights.clamp_min(0.0), largest)


def share_of_bound(heights: Tensor, bound: float | Tensor) -> Tensor:
    r"""Return :math:`b_s / B_y`, the factor of a pending query's deviation in the sum.

    Args:
        heights: How far fills lie above the minimum.
        bound: ``outcome_bound``, in the same units.
    """
    return torch.maximum(heights, bound - heights) / bound


@dataclass(frozen=True)
class Survival:
    """The probability that an outcome takes longer than a number of rounds or seconds.

    Attributes:
        beyond: Maps a delay of at least 0 to the probability of a longer one; ``math.inf`` stands
            for an outcome that never arrives.
    """

    beyond: Callable[[float], float]

    @classmethod
    def in_steps(cls, delays: Sequence[float], survival: Sequence[float]) -> Survival:
        """Return a survival function that is constant between some delays.

        Args:
            delays: The delays that occur, in ascending order.
            survival: The probability of a longer delay, for each of them.
        """

        def beyond(delay: float) -> float:
            position = bisect_right(delays, delay)
            return survival[position - 1] if position else 1.0

        return cls(beyond)

    @classmethod
    def stated(cls, distribution: DelayDistribution) -> Survival:
        """Return the survival function of a distribution that the user gave, checked before.

        Args:
            distribution: The probabilities of delays 0, 1, 2, ..., or a cumulative distribution
                function.
        """
        if isinstance(distribution, tuple):
            delays = range(len(distribution))
            return cls.in_steps(delays, [math.fsum(distribution[d + 1 :]) for d in delays])
        return cls(lambda delay: 1.0 - _cumulative(distribution, delay))

    @classmethod
    def estimated(
        cls, arrived: Mapping[float, int], waiting: Sequence[float], num_longer: int = 0
    ) -> Survival:
        r"""Return the Kaplan-Meier estimate from delays, and from ages of queries that wait.

        .. math:: S(a) = \prod_{u \le a} \left(1 - \frac{n_u}{r_u}\right)

        over the delays ``u`` that were seen, ``n_u`` of each, where ``r_u`` queries had a delay of
        at least ``u`` or no outcome at the age ``u``. Nothing is known beyond the oldest query;
        from there on, the estimate is constant, so that no further outcomes are expected.

        Source: Kaplan and Meier, *Nonparametric estimation from incomplete observations*, JASA
        1958.

        Args:
            arrived: A map from delays to the number of outcomes that had them.
            waiting: The ages of queries that are waited for.
            num_longer: The number of queries whose delay is longer than any that counts, because
                they were given up, or failed.
        """
        delays = np.array(sorted(delay for delay, count in arrived.items() if count > 0))
        counts = np.array([arrived[delay] for delay in delays.tolist()], dtype=np.float64)
        ages = np.sort(np.array(waiting, dtype=np.float64))
        # at risk: those with this delay or a longer one, and those of at least this age
        with_longer = counts[::-1].cumsum()[::-1]
        older = len(ages) - np.searchsorted(ages, delays, side="left")
        survival = np.cumprod(1.0 - counts / (with_longer + older + num_longer))
        return cls.in_steps(delays.tolist(), survival.tolist())

    def still_to_come(self, age: float, max_delay: float | None) -> float:
        r"""Return :math:`P(d \le m \mid d > a)`, for a query without an outcome at the age ``a``.

        It is 0 if no outcome is expected to take that long.

        Args:
            age: The age of the query.
            max_delay: ``m``; None if every outcome is waited for.
        """
        waited = self.beyond(age)
        if waited <= 0.0:
            return 0.0
        lost = self.beyond(math.inf if max_delay is None else max_delay)
        return min(max(1.0 - lost / waited, 0.0), 1.0)


def check_delay_distribution(
    distribution: Any, max_delay: float | None = None, unit: str = "rounds"
) -> DelayDistribution:
    """Return a distribution of delays if it is valid.

    Args:
        distribution: The distribution that the user gave.
        max_delay: How long a query is waited for, or None.
        unit: The unit of delays: ``"rounds"`` or ``"seconds"``.

    Raises:
        TypeError: If it is neither a sequence of numbers nor a function.
        ValueError: If they are not probabilities, or it is not a cumulative distribution function.
    """
    remedy = (
        "Pass the probabilities of delays 0, 1, 2, ... as a tuple that sums to 1, a cumulative "
        "distribution function, or None to have it estimated."
    )
    if callable(distribution):
        last = -math.inf
        longest = math.inf if max_delay is None else float(max_delay)
        for delay in (*(d for d in (0.0, 1.0, 2.0, 5.0, 10.0, 100.0) if d < longest), longest):
            value = _cumulative(distribution, delay)
            if value < last - ROUNDING:
                raise ValueError(
                    f"delay_distribution falls to {value} at a delay of {delay:g}; a cumulative "
                    f"distribution function never does. {remedy}"
                )
            last = value
        return distribution
    if not is_listed(distribution):
        raise TypeError(f"delay_distribution is {distribution!r}. {remedy}")
    probabilities = tuple(check_number("delay_distribution", p) for p in distribution)
    if unit != "rounds":
        raise ValueError(
            "delay_distribution has probabilities of delays in rounds, but delays count seconds. "
            "Pass a cumulative distribution function of seconds, or None to have it estimated."
        )
    if not probabilities or min(probabilities) < 0.0:
        worst = min(probabilities, default=math.nan)
        raise ValueError(
            f"delay_distribution has {len(probabilities)} probabilities, the least of which is "
            f"{worst:g}. {remedy}"
        )
    total = math.fsum(probabilities)
    if abs(total - 1.0) > SUM_TOLERANCE:
        raise ValueError(
            f"delay_distribution sums to {total:.8g}, not 1. {remedy} If outcomes may be lost, "
            "a function may stay below 1."
        )
    return probabilities


def _cumulative(distribution: Callable[[float], float], delay: float) -> float:
    """Return a value of a user's cumulative distribution function, checked."""
    value = float(distribution(delay))
    if not -ROUNDING <= value <= 1.0 + ROUNDING:
        raise ValueError(
            f"delay_distribution gives {value} at a delay of {delay:g}; a cumulative distribution "
            "function lies between 0 and 1."
        )
    return min(max(value, 0.0), 1.0)
