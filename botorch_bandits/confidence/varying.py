r"""Rewards and constraints that vary with the round: what a theorem on one function still implies.

**Functions that differ from one by at most** ``v``. Let the function of round ``s`` be
:math:`f^s`, with :math:`|f^s(x) - f(x)| \le v` at every point for one function ``f`` of bounded
norm. The outcomes are then outcomes of ``f`` with noise and an error :math:`e_s`,
:math:`|e_s| \le v`. With :math:`a = (K + \lambda I)^{-1} k(x)`,

.. math:: \sigma^2(x) = \lVert \varphi(x) - \Phi^\top a \rVert^2 + \lambda \lVert a \rVert^2,
          \qquad |a^\top e| \le \lVert a \rVert \, v \sqrt{n}
          \le v \sqrt{n / \lambda} \; \sigma(x),

so that adding :math:`v \sqrt{n / \lambda}` to a width for ``f`` observed without errors gives a
width for observations with errors, for every ``lam`` and any choice of the errors. The regret of a
round, compared with the best point of that round or any other, is at most twice the new width times
the standard deviation plus :math:`2 v`. Models that restart, as with ``surrogate="fresh"``, have
few rows ``n``, and ``v`` only needs to bound the variation within an epoch.

**Realized rewards and constraints** (Shi and Eryilmaz 2022, Appendices B and D). If
:math:`f^t = f + \varepsilon^t` and :math:`g^t = g + \varepsilon'^t`, regret can be measured in
realized values,

.. math:: R'_T = \max_{x : g(x) \le 0} \sum_t f^t(x) - \sum_t f^t(x_t), \qquad
          V'_T = \lVert [\textstyle\sum_t g^t(x_t)]^+ \rVert .

* If the noise of a round is the same at all points, :math:`R'_T = R_T`: the best point is the same,
  and the noise cancels. Appendix B then needs no inequality.
* If it is independent from point to point, the best point in hindsight depends on it. Over ``N``
  points, the largest sum of noise is at most :math:`R \sqrt{2 T \ln(2 N / \delta)}`. The sum for
  the points that were played is a martingale and at least :math:`-R \sqrt{2 T \ln(2 / \delta)}`, so
  :math:`R'_T` exceeds :math:`R_T` by at most the difference of the two. Appendix B applies
  Hoeffding's inequality at a fixed point, but neither the best point in hindsight nor the points
  that were chosen by earlier noise are fixed; on a continuum the supremum need not be finite.
* :math:`V'_T` is a sum of observed values, so a run knows it. The proof of Theorem 2 bounds it
  before the run by :math:`S \lVert \kappa^{L+1} \rVert / \mu`, which is LESS than the bound for the
  expected values by the whole noise term of (27). Appendix D instead adds another term by
  Hoeffding's inequality.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_nonnegative,
    check_probability,
    store_checked,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.igp_ucb import KernelizedWidth
from botorch_bandits.confidence.information_gain import GainBound
from botorch_bandits.confidence.width_rules import PriorSummary, WidthRule

VARIES = (
    "in every round and at every point {function} differs by at most variation from one fixed "
    "function, for which all other assumptions hold; how it varies may depend on what happened "
    "before, not on noise that is still to come"
)
"""What replaces the assumption of one function if each round has its own."""


def width_of_variation(variation: float | Tensor, num_rows: int | Tensor, lam: Tensor) -> Tensor:
    r"""Return the amount that varying functions add to a width, :math:`v \sqrt{n / \lambda}`.

    Args:
        variation: ``v``, in prior standard deviations.
        num_rows: ``n``, the number of outcomes that the model has.
        lam: The regularization; the smallest one if rows differ.

    Example:
        >>> lam = torch.tensor(0.25, dtype=torch.float64)
        >>> width_of_variation(0.1, 16, lam)
        tensor(0.8000, dtype=torch.float64)
    """
    rows = torch.as_tensor(num_rows, dtype=DTYPE, device=lam.device)
    return variation * torch.sqrt(rows / lam)


def realized_regret_bound(
    regret_bound: float,
    horizon: int,
    noise_bound: float,
    delta: float,
    num_points: int | None = None,
) -> float:
    r"""Return a bound on regret in realized rewards: Appendix B of Shi and Eryilmaz 2022.

    With probability at least :math:`1 - \delta`, besides that of the bound for expected rewards,

    .. math:: R'_T \le R_T + R \sqrt{2 T}
              \bigl(\sqrt{\ln(2 N / \delta)} + \sqrt{\ln(2 / \delta)}\bigr)

    if the noise is independent from point to point, and :math:`R'_T = R_T` if the noise of a round
    is the same at all points.

    Args:
        regret_bound: A bound on the cumulative regret in expected rewards.
        horizon: ``T``.
        noise_bound: ``R``.
        delta: The probability of failure for the noise.
        num_points: ``N``, the number of points that may be the best in hindsight; None if the noise
            of a round is the same at all points.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> realized_regret_bound(50.0, 100, 0.1, 0.1)
        50.0
        >>> round(realized_regret_bound(50.0, 100, 0.1, 0.1, num_points=20), 1)
        55.9
    """
    regret_bound = check_nonnegative("regret_bound", regret_bound)
    horizon = check_integer("horizon", horizon, minimum=1)
    noise_bound = check_nonnegative("noise_bound", noise_bound)
    delta = check_probability("delta", delta)
    if num_points is None:
        return regret_bound
    num_points = check_integer("num_points", num_points, minimum=1)
    logs = math.log(2.0 * num_points / delta), math.log(2.0 / delta)
    return regret_bound + noise_bound * math.sqrt(2.0 * horizon) * sum(map(math.sqrt, logs))


@dataclass(frozen=True)
class VaryingWidth(WidthRule):
    """The width of IGP-UCB when the function of each round differs from a fixed one.

    Attributes:
        rule: The width for one function.
        variation: ``v``, in the units of the rule's bounds.
    """

    rule: KernelizedWidth
    variation: float

    def __post_init__(self) -> None:
        """Check the number."""
        store_checked(self, variation=check_nonnegative("variation", self.variation))

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`.

        Raises:
            ValueError: If the model has several outputs.
        """
        of_one = self.rule.width(summary, round_number)
        priors = summary.active_priors
        if len(priors) > 1:
            raise ValueError(
                f"variation is {self.variation:g}, but the model has {len(priors)} outputs. Give "
                "each output its own model, or leave variation= out."
            )
        unit = 1.0 if self.rule.units == "prior" else priors[0].standard_deviation
        return of_one + width_of_variation(self.variation / unit, summary.num_rows, priors[0].lam)

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        unit = 1.0
        if self.rule.units == "prior":
            unit = float(summary.active_priors[0].standard_deviation.max())
        facts = replace(facts, variation=self.variation * unit)
        told = self.rule.guarantee(summary, round_number, facts)
        return replace(
            told,
            method=f"{told.method}, functions that vary",
            assumptions=(*told.assumptions, facts.say(VARIES)),
            constants={**told.constants, "variation": self.variation},
        )

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        return self.rule.information_gain(summary)

    def bound_on_gain(self) -> GainBound | None:
        return self.rule.bound_on_gain()
