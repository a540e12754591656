r"""Confidence widths for rewards drawn from the Gaussian process.

Conventions as in :mod:`botorch_bandits.confidence.widths`: a width multiplies the posterior
STANDARD DEVIATION, logarithms are natural.

Sources: Srinivas, Krause, Kakade and Seeger, *Gaussian process optimization in the bandit
setting*, ICML 2010; Takeno, Inatsu and Karasuyama, *Randomized Gaussian process upper confidence
bound with tighter Bayesian regret bounds*, ICML 2023.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_positive,
    check_probability,
)
from botorch_bandits.confidence.widths import check_all_nonnegative


def gp_ucb_finite_width(num_arms: int, round_number: int, delta: float) -> Tensor:
    r"""Width of GP-UCB on finitely many arms.

    .. math:: w_t = \sqrt{2 \ln \frac{|D| t^2 \pi^2}{6 \delta}}

    Source: Srinivas et al. 2010, Theorem 1 (there ``beta_t = w_t ** 2``). Assumes that the
    reward is a draw from the Gaussian process, Gaussian noise, ``lam`` the noise variance.

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
    smoothness_a: float,
    smoothness_b: float,
) -> Tensor:
    r"""Width of GP-UCB on a compact box.

    .. math::
       w_t^2 = 2 \ln\frac{2 \pi^2 t^2}{3 \delta}
             + 2 d \ln\left(t^2 d b r \sqrt{\ln(4 d a / \delta)}\right)

    Source: Srinivas et al. 2010, Theorem 2 (there ``beta_t = w_t ** 2``; Lemma 5.8 prints another
    constant, the theorem is right). Assumes that the reward is a draw from the Gaussian process,
    Gaussian noise with ``lam`` its variance, a domain in ``[0, r]^d`` and
    ``P(sup |df/dx_j| > L) <= a exp(-(L/b)^2)`` for each ``j`` and every ``L > 0``.

    Args:
        dim: ``d``, at least 1.
        round_number: ``t``, from 1.
        delta: The bound fails with at most this probability.
        side_length: ``r``, the longest side of the box.
        smoothness_a: ``a``.
        smoothness_b: ``b``, in units of the prior standard deviation per unit of input.

    Returns:
        A scalar float64 tensor.

    Raises:
        ValueError: If the constants make a logarithm's argument too small for the theorem.
    """
    dim = check_integer("dim", dim, minimum=1)
    t = check_integer("round_number", round_number, minimum=1)
    delta = check_probability("delta", delta)
    side_length = check_positive("side_length", side_length)
    a = check_positive("smoothness_a", smoothness_a)
    b = check_positive("smoothness_b", smoothness_b)
    inner = math.log(4.0 * dim * a / delta)
    if inner <= 0.0:
        raise ValueError(
            f"smoothness_a is {a}, so ln(4 d a / delta) is {inner:.4g}; Theorem 2 needs it "
            "positive. A larger smoothness_a is a weaker assumption and always allowed."
        )
    # the discretisation behind the second term has at least one point a side
    side = max(t**2 * dim * b * side_length * math.sqrt(inner), 1.0)
    beta = 2.0 * math.log(2.0 * math.pi**2 * t**2 / (3.0 * delta)) + 2.0 * dim * math.log(side)
    return torch.tensor(math.sqrt(beta), dtype=DTYPE)


def irgp_ucb_width(num_arms: int, exponential: float | Tensor) -> Tensor:
    r"""Width of IRGP-UCB: random, and not growing with the round.

    .. math:: w_t = \sqrt{2 \ln(|D| / 2) + Z_t}, \qquad Z_t \sim \mathrm{Exp}(\text{mean } 2)

    Source: Takeno, Inatsu and Karasuyama 2023, finite domains (there ``zeta_t = w_t ** 2``). It
    bounds the expected regret of a reward drawn from the Gaussian process; it is no confidence
    bound that holds in all rounds at once.

    Args:
        num_arms: ``|D|``, at least 2.
        exponential: ``Z_t / 2``, a draw from the exponential distribution with mean 1, fresh in
            each round. Scalar or tensor.

    Returns:
        A float64 tensor of its shape.
    """
    num_arms = check_integer("num_arms", num_arms, minimum=2)
    draw = check_all_nonnegative("exponential", exponential)
    return torch.sqrt(2.0 * math.log(num_arms / 2.0) + 2.0 * draw)
