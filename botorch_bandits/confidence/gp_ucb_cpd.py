r"""GP-UCB-CPD (Avanesov): the width of a policy that restarts when the reward changes.

.. math:: w_t = \sqrt{D \, t^{d(d+1) / (2a + d(d+1))} \ln^4 T}

Here ``t`` is the number of queries since the last reset, ``T`` the horizon and ``a`` the smoothness
of a Matern kernel (its ``nu``). The conventions are those of
:mod:`botorch_bandits.confidence.width_rules`.

Source: Avanesov, *How to gamble with non-stationary X-armed bandits and have no regrets*, arXiv
1908.07636, Theorem 3.1. The paper has ``beta_t = w_t ** 2``; the fourth power is that of the
logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_integer, check_positive, store_checked
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Guarantee, RegretStatement
from botorch_bandits.confidence.width_rules import PriorSummary, WidthRule

PUBLISHED_CONSTANT = 0.02
"""The value of ``D`` in the paper's experiments; its lemma requires ``D`` to be at least 1."""


def gp_ucb_cpd_width(
    num_queries: int,
    horizon: int,
    smoothness: float,
    dim: int,
    width_constant: float = PUBLISHED_CONSTANT,
) -> Tensor:
    """Return the width of GP-UCB-CPD; the formula is in the description of the module.

    Args:
        num_queries: ``t``, the number of queries since the last reset; at least 1.
        horizon: ``T``, the total number of rounds.
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``.
        width_constant: ``D``.

    Returns:
        A scalar float64 tensor.

    Example:
        >>> round(float(gp_ucb_cpd_width(300, horizon=1200, smoothness=2.5, dim=1)), 6)
        16.057996
    """
    horizon = check_integer("horizon", horizon, minimum=1)
    smoothness = check_positive("smoothness", smoothness)
    dim = check_integer("dim", dim, minimum=1)
    width_constant = check_positive("width_constant", width_constant)
    t = check_integer("num_queries", num_queries, minimum=1)
    side = dim * (dim + 1)
    power = t ** (0.5 * side / (2.0 * smoothness + side))
    return torch.tensor(power * math.sqrt(width_constant) * math.log(horizon) ** 2, dtype=DTYPE)


def regret_exponent(smoothness: float, dim: int) -> float:
    r"""Return the power of the horizon in the rate of the theorem, (3.9).

    .. math:: \frac{2 a + 3 d (d + 1)}{4 a + 2 d (d + 1)}

    The power is below 1, so that the regret is sublinear, if :math:`d (d + 1) < 2 a`.

    Args:
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``.

    Example:
        >>> regret_exponent(2.5, 1)
        0.7857142857142857
    """
    smoothness = check_positive("smoothness", smoothness)
    side = float(check_integer("dim", dim, minimum=1) * (dim + 1))
    return (2.0 * smoothness + 3.0 * side) / (4.0 * smoothness + 2.0 * side)


def change_point_rate(
    periods: Sequence[int], smallest_change: float, smoothness: float, dim: int
) -> float:
    r"""Return the rate at which the expected regret grows, the first line of (3.9).

    .. math:: \Delta^{-(2 + 2/(2a + d))} \sum_i T_i^e \ln^3 T, \qquad
              e = \frac{2 a + 3 d (d + 1)}{4 a + 2 d (d + 1)}

    The theorem does not state the constant that multiplies it, so the rate can be used to compare
    settings but is not itself a bound.

    Args:
        periods: ``T_1, ..., T_K``, the lengths of the stationary periods.
        smallest_change: ``Delta``, the smallest L2 norm of the difference between two consecutive
            reward functions.
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``.

    Example:
        >>> change_point_rate([500, 500], 1.0, 2.5, 1) < change_point_rate([1000], 0.5, 2.5, 1)
        True
    """
    lengths = _check_periods(periods)
    change = check_positive("smallest_change", smallest_change)
    exponent = regret_exponent(smoothness, dim)
    difficulty = change ** -(2.0 + 2.0 / (2.0 * smoothness + dim))
    total = math.fsum(length**exponent for length in lengths)
    return difficulty * total * math.log(sum(lengths)) ** 3


def change_point_spacing(
    periods: Sequence[int], smallest_change: float | None, smoothness: float, dim: int
) -> float:
    r"""Return how far the spacing of changes is from what the theorem requires, (3.8) or (3.10).

    .. math:: \Bigl(\frac{\ln T}{\Delta}\Bigr)^{2 + 2/(2a + d)}
              \frac{\sqrt{\max_i T_i}}{\min_i T_i}

    should tend to 0. Up to logarithms and for a fixed ``Delta``, only the last factor matters; this
    is (3.10), which ``smallest_change=None`` returns.

    Args:
        periods: ``T_1, ..., T_K``, the lengths of the stationary periods.
        smallest_change: ``Delta``; see :func:`change_point_rate`.
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``.

    Example:
        >>> change_point_spacing([400, 900, 100], None, 2.5, 1)
        0.3
    """
    lengths = _check_periods(periods)
    smoothness = check_positive("smoothness", smoothness)
    dim = check_integer("dim", dim, minimum=1)
    spacing = math.sqrt(max(lengths)) / min(lengths)
    if smallest_change is None:
        return spacing
    change = check_positive("smallest_change", smallest_change)
    power = 2.0 + 2.0 / (2.0 * smoothness + dim)
    return (math.log(sum(lengths)) / change) ** power * spacing


def _check_periods(periods: Sequence[int]) -> list[int]:
    lengths = [check_integer("periods", length, minimum=1) for length in periods]
    if not lengths:
        raise ValueError("periods is empty; give the length of each stationary period.")
    return lengths


@dataclass(frozen=True)
class ChangePointWidth(WidthRule):
    """GP-UCB-CPD: Avanesov, Theorem 3.1.

    Attributes:
        horizon: ``T``.
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``.
        width_constant: ``D``.
    """

    horizon: int
    smoothness: float
    dim: int
    width_constant: float = PUBLISHED_CONSTANT
    needs_round: ClassVar[bool] = True
    is_uniform: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(
            self,
            horizon=check_integer("horizon", self.horizon, minimum=1),
            smoothness=check_positive("smoothness", self.smoothness),
            dim=check_integer("dim", self.dim, minimum=1),
            width_constant=check_positive("width_constant", self.width_constant),
        )
        gp_ucb_cpd_width(1, self.horizon, self.smoothness, self.dim, self.width_constant)

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; there is one query fewer than there are rounds."""
        so_far = max(round_number - 1, 1)
        return gp_ucb_cpd_width(
            so_far, self.horizon, self.smoothness, self.dim, self.width_constant
        )

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        exponent = regret_exponent(self.smoothness, self.dim)
        return Guarantee(
            method="GP-UCB-CPD",
            theorem="Avanesov, Theorem 3.1",
            regret=RegretStatement(
                "the expected regret grows more slowly than the horizon, for D large enough"
            ),
            constants={
                "horizon": float(self.horizon),
                "smoothness": float(self.smoothness),
                "dim": float(self.dim),
                "width_constant": float(self.width_constant),
                "regret_exponent": exponent,
            },
            gaps=(
                *(
                    [f"the rate of the theorem is not sublinear: T to the power {exponent:.4g}"]
                    if exponent >= 1.0
                    else []
                ),
                "the theorem does not say how large D must be; its lemma requires at least 1, and "
                "the experiments of the paper use 0.02",
            ),
        )
