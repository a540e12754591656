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
    is_listed,
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
