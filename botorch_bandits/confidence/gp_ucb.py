r"""GP-UCB, IRGP-UCB and GP-UCB-CPD: widths for rewards that are drawn from the Gaussian process.

The conventions are those of :mod:`botorch_bandits.confidence.width_rules`: a width multiplies the
posterior STANDARD DEVIATION, and logarithms are natural.

**GP-UCB** (Srinivas et al. 2010) has one width for finitely many arms (Theorem 1) and one for a box
(Theorem 2).

**IRGP-UCB** (Takeno et al. 2023) has a random width that does not grow with the round, on finitely
many arms.

**GP-UCB-CPD** (Avanesov) has the width of a policy that restarts when the reward changes,

.. math:: w_t = \sqrt{D \, t^{d(d+1) / (2a + d(d+1))} \ln^4 T}

Here ``t`` is the number of queries since the last reset, ``T`` the horizon and ``a`` the smoothness
of a Matern kernel (its ``nu``). The paper has ``beta_t = w_t ** 2``; the fourth power is that of
the logarithm.

Sources: Srinivas, Krause, Kakade and Seeger, *Gaussian process optimization in the bandit setting*,
ICML 2010; Takeno, Inatsu and Karasuyama, *Randomized Gaussian process upper confidence bound with
tighter Bayesian regret bounds*, ICML 2023; Avanesov, *How to gamble with non-stationary X-armed
bandits and have no regrets*, arXiv 1908.07636, Theorem 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_positive,
    check_probability,
    store_checked,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.theorems import (
    GP_UCB_CPD,
    GP_UCB_ON_A_BOX,
    GP_UCB_ON_ARMS,
    IRGP_UCB,
    guarantee_of,
)
from botorch_bandits.confidence.width_rules import (
    PriorSummary,
    WidthRule,
    check_all_nonnegative,
)
from botorch_bandits.random_streams import generator


def store_numbers(rule: WidthRule, *counts: str) -> None:
    """Store the ingredients of a rule as Python numbers, after checking that they are positive.

    Args:
        rule: A frozen dataclass of numbers.
        *counts: The names of those that are integers.
    """
    for name, value in vars(rule).items():
        checked = check_integer(name, value, 1) if name in counts else check_positive(name, value)
        store_checked(rule, **{name: checked})


def gp_ucb_finite_width(num_arms: int, round_number: int, delta: float) -> Tensor:
    r"""Return the width of GP-UCB on finitely many arms.

    .. math:: w_t = \sqrt{2 \ln \frac{|D| t^2 \pi^2}{6 \delta}}

    Source: Srinivas et al. 2010, Theorem 1 (there ``beta_t = w_t ** 2``). Assumes that the
    reward is a draw from the Gaussian process, that noise is Gaussian, and that ``lam`` is its
    variance.

    Args:
        num_arms: ``|D|``, at least 1.
        round_number: ``t``, from 1.
        delta: The bound fails with at most this probability.

    Returns:
        A scalar float64 tensor.

    Example:
        >>> round(float(gp_ucb_finite_width(num_arms=100, round_number=1, delta=0.1)), 6)
        3.848495
    """
    num_arms = check_integer("num_arms", num_arms, minimum=1)
    round_number = check_integer("round_number", round_number, minimum=1)
    delta = check_probability("delta", delta)
    argument = num_arms * round_number**2 * math.pi**2 / (6.0 * delta)
    return torch.tensor(math.sqrt(2.0 * math.log(argument)), dtype=DTYPE)


def gp_ucb_compact_width(
    dim: int,
    round_number: int,
    delta: float,
    side_length: float,
    smoothness_a: float | Tensor,
    smoothness_b: float | Tensor,
) -> Tensor:
    r"""Return the width of GP-UCB on a compact box.

    .. math::
       w_t^2 = 2 \ln\frac{2 \pi^2 t^2}{3 \delta}
             + 2 d \ln\left(t^2 d b r \sqrt{\ln(4 d a / \delta)}\right)

    Source: Srinivas et al. 2010, Theorem 2 (there ``beta_t = w_t ** 2``; Lemma 5.8 prints another
    constant, and the theorem is right). Assumes that the reward is a draw from the Gaussian
    process, Gaussian noise with variance ``lam``, a domain in ``[0, r]^d`` and
    ``P(sup |df/dx_j| > L) <= a exp(-(L/b)^2)`` for each ``j`` and every ``L > 0``.

    The paper's domain is convex. If ``f`` is a draw on a whole box and its derivatives are bounded
    there, the domain may be any part of the box, such as the part that constraints leave: in each
    cell of the paper's grid that has points of the part, one of these points replaces the grid
    point. There are at most as many of them, every point of the part has one as near, and the line
    between the two is in the box.

    Args:
        dim: ``d``, at least 1.
        round_number: ``t``, from 1.
        delta: The bound fails with at most this probability.
        side_length: ``r``, the longest side of the box.
        smoothness_a: ``a``; one number, or a tensor of one per prior.
        smoothness_b: ``b``, in units of the prior standard deviation per unit of input; the same.

    Returns:
        A float64 tensor, scalar or of one width per prior.

    Raises:
        ValueError: If the constants make a logarithm's argument too small for the theorem.
    """
    dim = check_integer("dim", dim, minimum=1)
    t = check_integer("round_number", round_number, minimum=1)
    delta = check_probability("delta", delta)
    side_length = check_positive("side_length", side_length)
    for name, values in (("smoothness_a", smoothness_a), ("smoothness_b", smoothness_b)):
        for each in values.reshape(-1).tolist() if torch.is_tensor(values) else [values]:
            check_positive(name, each)
    a, b = (torch.as_tensor(each, dtype=DTYPE) for each in (smoothness_a, smoothness_b))
    inner = torch.log(4.0 * dim * a / delta)
    if bool((inner <= 0.0).any()):
        raise ValueError(
            f"smoothness_a is {float(a.min())}, so ln(4 d a / delta) is {float(inner.min()):.4g}; "
            "Theorem 2 needs it positive. A larger smoothness_a is a weaker assumption and always "
            "allowed."
        )
    # the discretization behind the second term has at least one point per side
    side = (t**2 * dim * side_length * b * inner.sqrt()).clamp_min(1.0)
    beta = 2.0 * math.log(2.0 * math.pi**2 * t**2 / (3.0 * delta)) + 2.0 * dim * side.log()
    return beta.sqrt()


@dataclass(frozen=True)
class FiniteArmsWidth(WidthRule):
    """GP-UCB on finitely many arms: Srinivas et al. 2010, Theorem 1.

    Attributes:
        num_arms: ``|D|``.
        delta: The bound fails with at most this probability.
    """

    num_arms: int
    delta: float
    needs_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_numbers(self, "num_arms")
        gp_ucb_finite_width(round_number=1, **vars(self))

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the width does not depend on the model."""
        return gp_ucb_finite_width(round_number=round_number, **vars(self))

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        return guarantee_of(GP_UCB_ON_ARMS, summary.known_to(facts), vars(self))


@dataclass(frozen=True)
class CompactBoxWidth(WidthRule):
    """GP-UCB on a box: Srinivas et al. 2010, Theorem 2.

    Attributes:
        dim: ``d``.
        side_length: ``r``, the longest side of the box.
        smoothness_a: ``a`` in ``P(sup |df/dx_j| > L) <= a exp(-(L/b)^2)``.
        smoothness_b: ``b``, in raw outcome units per unit of input.
        delta: The bound fails with at most this probability.
    """

    dim: int
    side_length: float
    smoothness_a: float
    smoothness_b: float
    delta: float
    needs_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_numbers(self, "dim")
        gp_ucb_compact_width(round_number=1, **vars(self))

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        priors = list(summary.active.values())
        if len(priors) > 1:
            raise ValueError(
                f"Theorem 2 covers one output, but {len(priors)} are scalarized. Use "
                "ImprovedUpperConfidenceBound, or an explicit width=."
            )
        unit = priors[0].standard_deviation.detach().cpu()
        given = {**vars(self), "smoothness_b": self.smoothness_b / unit}
        return gp_ucb_compact_width(round_number=round_number, **given)

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        # the discretization adds at most the prior standard deviation over t^2
        units = (float(prior.standard_deviation.max()) for prior in summary.readable.values())
        tail = max(units, default=0.0)
        return guarantee_of(GP_UCB_ON_A_BOX, summary.known_to(facts), vars(self), tail=tail)


# --- IRGP-UCB -------------------------------------------------------------------------------------


def irgp_ucb_width(num_arms: int, exponential: float | Tensor) -> Tensor:
    r"""Return the width of IRGP-UCB, which is random and does not grow with the round.

    .. math:: w_t = \sqrt{2 \ln(|D| / 2) + Z_t}, \qquad Z_t \sim \mathrm{Exp}(\text{mean } 2)

    Source: Takeno, Inatsu and Karasuyama 2023, finite domains (where ``zeta_t = w_t ** 2``). The
    width bounds the expected regret of a reward drawn from the Gaussian process; it is not a
    confidence bound that holds in all rounds at once.

    Args:
        num_arms: ``|D|``, at least 2.
        exponential: ``Z_t / 2``, a draw from the exponential distribution with mean 1, a new one
            in each round. Scalar or tensor.

    Returns:
        A float64 tensor of the shape of ``exponential``.
    """
    num_arms = check_integer("num_arms", num_arms, minimum=2)
    draw = check_all_nonnegative("exponential", exponential)
    return torch.sqrt(2.0 * math.log(num_arms / 2.0) + 2.0 * draw)


@dataclass(frozen=True)
class RandomizedWidth(WidthRule):
    """IRGP-UCB: Takeno, Inatsu and Karasuyama 2023, on finitely many arms.

    Attributes:
        num_arms: ``|D|``, at least 2.
        seed: The seed of the draw in each round.
    """

    num_arms: int
    seed: int = 0
    needs_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(self, num_arms=check_integer("num_arms", self.num_arms, minimum=2))
        store_checked(self, seed=check_integer("seed", self.seed, minimum=0))

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the width does not depend on the model."""
        stream = generator(self.seed, round_number, "IRGP-UCB")
        draw = torch.empty((), dtype=torch.float64).exponential_(generator=stream)
        return irgp_ucb_width(self.num_arms, float(draw))

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        return guarantee_of(IRGP_UCB, summary.known_to(facts), {"num_arms": self.num_arms})


# --- GP-UCB-CPD -----------------------------------------------------------------------------------


PUBLISHED_WIDTH_CONSTANT = 0.02
"""The value of ``D`` in the paper's experiments; its lemma requires ``D`` to be at least 1."""


def gp_ucb_cpd_width(
    num_queries: int,
    horizon: int,
    smoothness: float,
    dim: int,
    width_constant: float = PUBLISHED_WIDTH_CONSTANT,
) -> Tensor:
    """Return the width of GP-UCB-CPD; its formula is in the description of the module.

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
    width_constant: float = PUBLISHED_WIDTH_CONSTANT
    needs_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_numbers(self, "horizon", "dim")

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; there is one query fewer than there are rounds."""
        return gp_ucb_cpd_width(max(round_number - 1, 1), **vars(self))

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        exponent = regret_exponent(self.smoothness, self.dim)
        return guarantee_of(GP_UCB_CPD, facts, {**vars(self), "regret_exponent": exponent})
