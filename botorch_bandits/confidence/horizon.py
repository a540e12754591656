r"""What the theorems say about a horizon before a run: bounds on regret and violation as numbers.

The papers state most of these bounds up to constants. The constants follow from the proofs and are
given here. Every bound holds for the first ``T`` rounds of a run in which the method chooses all
points, with every outcome available (except for censored feedback). The conventions are those of
:mod:`botorch_bandits.confidence.width_rules`: kernels have unit variance, ``lam`` is the noise
variance of the model, and bounds are in prior standard deviations. With a prior standard deviation
``s``, divide ``rkhs_bound``, ``noise_bound`` and ``outcome_bound`` by ``s`` and ``lam`` by its
square, and multiply the result by ``s``.

What is assumed of the function is a :class:`.BoundedNorm`, in these units, whose printed widths
need a ``lam`` of at least 1. The argument ``information_gain`` is a function of the number of
observations that bounds the maximal gain: :class:`~botorch_bandits.confidence.DesignGain` on arms,
:class:`~botorch_bandits.confidence.BoxGain` on a box. The widths of a run may still use the
realized gain, which is never larger.

**From deviations to the gain.** As :math:`\sigma^2 \le 1`,
:math:`\sigma^2 \le \ln(1 + \sigma^2/\lambda) / \ln(1 + 1/\lambda)`, so that

.. math:: \sum_{t=1}^T \sigma_{t-1}^2(x_t) \le C_1^2 \gamma_T, \qquad
          C_1^2 = \frac{2}{\ln(1 + 1/\lambda)}, \qquad
          \sum_{t=1}^T \sigma_{t-1}(x_t) \le C_1 \sqrt{T \gamma_T}.

**Thompson sampling.** With :math:`p = P(Z > 1) = 0.1587` for a standard normal ``Z`` (the papers
use the lower bound :math:`1 / (4 e \sqrt\pi) = 0.052`), a draw is optimistic at the best point with
probability at least ``p``, given that the band holds. With probability :math:`1 - 1/t^2` it lies
within :math:`\sqrt{2 \ln(|D_t| t^2)}` of its own standard deviations on all of :math:`D_t`.
Conditional on the past and with :math:`c_t = v_t (1 + \sqrt{2 \ln(|D_t| t^2)})`,

.. math:: E[r_t] \le C_t E[\sigma_{t-1}(x_t)] + \frac{2 B}{t^2}, \qquad
          C_t = c_t \Bigl(1 + \frac{2}{p - 1/t^2}\Bigr),

for :math:`t^2 > 1/p`, that is, from the third round on; the first two rounds have regret at most
:math:`4 B`. (The printed proofs bound :math:`1/(p - 1/t^2)` by :math:`5/p`, even in the rounds in
which it is negative and the preceding step does not hold.) The random part of the sum of
:math:`r_t - C_t \sigma_{t-1}(x_t)` is bounded by the Azuma-Hoeffding inequality, with steps of
range :math:`2 B + C_t`.

Sources: Srinivas et al. 2010, Theorems 1 to 3; Chowdhury and Gopalan 2017, Theorems 3 and 4;
Verma, Dai and Low 2022, Theorems 2 and 3; Shi and Eryilmaz 2022, Theorems 1 and 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_nonnegative,
    check_positive,
    check_probability,
)
from botorch_bandits.confidence.facts import ALONE
from botorch_bandits.confidence.gp_ucb import (
    change_point_rate,
    change_point_spacing,
    regret_exponent,
)
from botorch_bandits.confidence.guarantee import Forecast, RegretStatement
from botorch_bandits.confidence.igp_ucb import BoundedNorm
from botorch_bandits.confidence.theorems import (
    GAIN_OF_RUN,
    LEAST_LAM,
    MARGIN_OF_NOISY,
    MULTIPLIERS_OF_NOISY,
    NO_RUN_OF_NOISY,
    NO_VIOLATION_OF_EXACT,
    OTHER_ROUNDS,
    RATE_OF_CHANGES,
    REGRET_OF_EXACT,
    REGRET_OF_NOISY,
    REGRET_OF_RUN,
    SMALL_MARGIN_OF_NOISY,
    SPACING_OF_CHANGES,
    SPACING_WITH_SIZE,
    VIOLATION_AS_OBSERVED,
    VIOLATION_OF_EXACT,
    VIOLATION_OF_NOISY,
)
from botorch_bandits.penalties import Penalty

GainFunction = Callable[[int], float]
"""A bound on the maximal information gain of so many observations, such as a ``GainBound``."""

OPTIMISM = 0.5 * math.erfc(math.sqrt(0.5))
"""The probability that a standard normal exceeds 1."""


def regret_bound_of_width(
    width: float | Tensor,
    horizon: int,
    information_gain: GainFunction,
    lam: float,
    largest: float | None = None,
    tail: float = 0.0,
) -> float:
    r"""Return a bound on the cumulative regret of an upper confidence bound.

    .. math:: R_T \le 2 w_T C_1 \sqrt{T \gamma_T} + \text{tail}
              = \sqrt{\frac{8 T w_T^2 \gamma_T}{\ln(1 + 1/\lambda)}} + \text{tail}

    This is Theorem 1 of Srinivas et al. 2010 with the width of round ``T`` from
    :func:`gp_ucb_finite_width`, Theorem 2 with that of :func:`gp_ucb_compact_width` and a ``tail``
    of :math:`\pi^2 / 6`, and Theorem 3 with that of :func:`gp_ucb_rkhs_width`. Theorem 3 of
    Chowdhury and Gopalan 2017 is :func:`igp_ucb_regret_bound`. The bound on the regret holds on the
    event on which the width is a bound.

    Args:
        width: The largest width of all rounds; widths never decrease, so that of round ``T``.
        horizon: ``T``, at least 1.
        information_gain: A bound on the maximal gain.
        lam: The noise variance of the model over the prior variance.
        largest: A bound on the regret of any round, if there is one; the result is then at most
            ``T * largest``.
        tail: The amount that discretization adds.

    Example:
        >>> from botorch_bandits.confidence import DesignGain, gp_ucb_finite_width
        >>> gain = DesignGain(torch.eye(2, dtype=torch.float64), lam=1.0)
        >>> width = gp_ucb_finite_width(num_arms=2, round_number=1000, delta=0.1)
        >>> round(regret_bound_of_width(width, 1000, gain, lam=1.0), 1)
        1576.0
    """
    horizon = check_integer("horizon", horizon, minimum=1)
    width, lam = check_nonnegative("width", float(width)), check_positive("lam", lam)
    bound = 2.0 * width * math.sqrt(horizon * _sum_of_variances(horizon, information_gain, lam))
    if largest is not None:
        bound = min(bound, check_nonnegative("largest", largest) * horizon)
    return bound + check_nonnegative("tail", tail)


def igp_ucb_regret_bound(
    horizon: int,
    information_gain: GainFunction,
    assumed: BoundedNorm,
    max_delay: int = 0,
    arrival_probability: float = 1.0,
) -> float:
    r"""Return Theorem 3 of Chowdhury and Gopalan 2017 as a number, or with censoring GP-UCB-SDF's.

    With probability at least :math:`1 - \delta` the regret of IGP-UCB over ``T`` rounds is at most

    .. math:: 2 w_T C_1 \sqrt{T \gamma_T}, \qquad
              w_T = B + R \sqrt{2 (\gamma_{T-1} + 1 + \ln(1/\delta))}

    and never more than :math:`2 B T`. Instead of :math:`C_1 \sqrt{T \gamma_T}`, which is smaller,
    the paper has :math:`\sqrt{4 (T + 2) \gamma_T}` with :math:`\lambda = 1 + 2/T`. If functions
    vary by ``v`` (:mod:`botorch_bandits.confidence.igp_ucb`), :math:`v \sqrt{(T - 1) / \lambda}` is
    added to :math:`w_T` and :math:`2 v T` to the bound.

    With censored feedback it is Theorem 2 of Verma, Dai and Low 2022,

    .. math:: R_T \le \frac{2}{\rho_m} \bigl(w_T C_1 \sqrt{T \gamma_T}
              + m B_y C_1^2 \gamma_T\bigr), \qquad
              w_T = B + (R + B_y) \sqrt{2 (\gamma_{T-1} + 1 + \ln(2/\delta))},

    in the form for every ``lam`` with :math:`B_y / \lambda` for :math:`B_y` in the second term.

    Args:
        horizon: ``T``, at least 1.
        information_gain: A bound on the maximal gain.
        assumed: What is assumed of the function, with censored feedback of the reward less the
            minimum.
        max_delay: ``m``, with censored feedback.
        arrival_probability: ``rho_m``, the probability that an outcome arrives within
            ``max_delay``.

    Raises:
        ValueError: If an argument is out of its range, or the printed width is not a bound.

    Example:
        >>> from botorch_bandits.confidence import BoundedNorm, DesignGain
        >>> gain = DesignGain(torch.eye(2, dtype=torch.float64), lam=1.0)
        >>> round(igp_ucb_regret_bound(1000, gain, BoundedNorm(1.0, 0.1, delta=0.1)), 1)
        384.7
    """
    horizon = check_integer("horizon", horizon, minimum=1)
    variation = float(assumed.variation)
    if variation and assumed.outcome_bound is not None:
        raise ValueError(
            f"variation is {variation:g}, but no theorem covers censored outcomes of functions "
            "that vary. Leave variation= or outcome_bound= out."
        )
    pending = check_integer("max_delay", max_delay, minimum=0) * float(assumed.pending(1.0))
    lam = _proved_lam(assumed)
    width = float(assumed.width(_gain(information_gain, horizon - 1)))
    width += variation * math.sqrt((horizon - 1) / lam)
    variances = _sum_of_variances(horizon, information_gain, lam)
    bound = 2.0 * (width * math.sqrt(horizon * variances) + pending * variances)
    bound /= _arrival_probability(arrival_probability)
    return min(bound, 2.0 * float(assumed.rkhs_bound) * horizon) + 2.0 * variation * horizon


def gp_ts_regret_bound(
    horizon: int,
    information_gain: GainFunction,
    assumed: BoundedNorm,
    num_points: int | Callable[[int], int],
    discretized: bool = False,
    max_delay: int = 0,
    arrival_probability: float = 1.0,
) -> float:
    r"""Return Theorem 4 of Chowdhury and Gopalan 2017 as a number, or with censoring GP-TS-SDF's.

    With probability at least :math:`1 - \delta` the regret of GP-TS over ``T`` rounds is at most

    .. math:: 4 B + C_1 \sqrt{\gamma_T \sum_{t=3}^T C_t^2} + \sum_{t=3}^T \frac{2 B}{t^2}
              + \sqrt{\tfrac12 \ln(2/\delta) \sum_{t=3}^T (2 B + C_t)^2},

    and never more than :math:`2 B T`; :math:`C_t` is defined in the description of the module. Half
    of delta is for the band with scale :math:`v_t` and half for the draws.

    With censored feedback it is Theorem 3 of Verma, Dai and Low 2022 on finitely many points:
    :math:`v_t` is the width without the sum of pending deviations, and :math:`C_t` is divided by
    :math:`\rho_m`. These sums add :math:`m B_y C_1^2 \gamma_T` times the largest :math:`C_t/v_t` to
    the regret, and at most :math:`m B_y` to :math:`v_t` in the ranges.

    Args:
        horizon: ``T``, at least 1.
        information_gain: A bound on the maximal gain.
        assumed: See :func:`igp_ucb_regret_bound`.
        num_points: The number of points on which a draw is made: a number, or a function of the
            round.
        discretized: Whether the points represent a box, each within :math:`1/t^2` in value of the
            points it represents, as Theorem 4 requires. This adds :math:`\sum_t 1/t^2`.
        max_delay: See :func:`igp_ucb_regret_bound`.
        arrival_probability: See :func:`igp_ucb_regret_bound`.

    Raises:
        ValueError: If an argument is out of its range, or the printed scale is not a bound.
    """
    horizon = check_integer("horizon", horizon, minimum=1)
    max_delay = check_integer("max_delay", max_delay, minimum=0)
    lam, B, delta = _proved_lam(assumed), float(assumed.rkhs_bound), assumed.delta
    band = replace(assumed, delta=0.5 * delta)
    t = torch.arange(3, max(3, horizon + 1), dtype=DTYPE)
    gains = [_gain(information_gain, each - 1) for each in range(3, horizon + 1)]
    of_round = num_points if callable(num_points) else lambda _: num_points
    counts = [check_integer("num_points", of_round(n), minimum=1) for n in range(3, horizon + 1)]
    scales = band.width(torch.tensor(gains, dtype=DTYPE))
    factors = _optimism_factor(t, torch.tensor(counts, dtype=DTYPE))
    factors = factors / _arrival_probability(arrival_probability)
    pending = max_delay * float(band.pending(1.0))
    variances = _sum_of_variances(horizon, information_gain, lam)
    bound = math.sqrt(variances) * float((scales * factors).norm())
    bound += pending * variances * max(factors.tolist(), default=0.0)
    # the first two rounds, unlikely draws and the martingale
    bound += 2.0 * B * (min(horizon, 2) + float((1.0 / t.square()).sum()))
    ranges = float((2.0 * B + (scales + pending) * factors).norm())
    bound += ranges * math.sqrt(0.5 * math.log(2.0 / delta))
    if discretized:
        bound += sum(1.0 / n**2 for n in range(1, horizon + 1))
    return min(bound, 2.0 * B * horizon)


def realized_ts_regret_bound(
    scales: Sequence[float],
    deviations: Sequence[float],
    rounds: Sequence[int],
    num_points: int,
    largest: float,
    prior_deviation: float,
    delta: float,
) -> float:
    r"""Return Theorem 4 of Chowdhury and Gopalan 2017 for the rounds that were played.

    With probability at least :math:`1 - \delta`, given that the band with scale :math:`v_t` holds
    in all rounds, their cumulative regret is at most

    .. math:: \sum_{t \le 2} b + \sum_{t > 2} \Bigl(C_t \sigma_{t-1}(x_t) + \frac{b}{t^2}\Bigr)
              + \sqrt{(V + \rho) \ln\frac{V + \rho}{\rho \delta^2}}, \qquad
              V = \frac14 \sum_{t > 2} (b + s C_t)^2

    in all rounds at once, and never more than ``b`` per round. The Azuma-Hoeffding inequality does
    not apply to scales that depend on the data. The last term is therefore that of the method of
    mixtures, for sub-Gaussian steps whose ranges are known before each round, with
    :math:`\rho = (b + C_3 b / (2 v_3))^2 / 4`, which is known before the data.

    Args:
        scales: :math:`v_t`, in the units in which they multiply ``deviations``.
        deviations: :math:`\sigma_{t-1}(x_t)`, in raw outcome units.
        rounds: The round number ``t`` of each.
        num_points: The number of points on which each draw was made.
        largest: ``b``, which bounds the regret of any round, in raw outcome units.
        prior_deviation: ``s``, in raw outcome units.
        delta: The probability of failure of the draws: half of delta if the other half is for the
            band.
    """
    largest = check_nonnegative("largest", largest)
    delta = check_probability("delta", delta)
    known = torch.tensor([list(scales), list(deviations), list(rounds)], dtype=DTYPE)
    scale, deviation, t = known[:, known[2] > 2]
    points, third = torch.tensor([num_points, 3.0], dtype=DTYPE)
    steps = scale * _optimism_factor(t, points)
    trivial = largest * known.shape[-1]
    if largest == 0.0:
        return trivial
    sums = (steps * deviation + largest / t.square()).sum()
    sums += largest * (known.shape[-1] - len(t))
    start = 0.25 * (largest + 0.5 * largest * _optimism_factor(third, points)) ** 2
    total = start + 0.25 * (largest + prior_deviation * steps).square().sum()
    spread = (total * ((total / start).log() - 2.0 * math.log(delta))).sqrt()
    return min(float(sums + spread), trivial)


class PenalizedBounds(NamedTuple):
    """The bounds guaranteed for a run with long-term constraints.

    Attributes:
        regret: A bound on the cumulative regret against the best fixed feasible point.
        violation: A bound on the norm of the positive parts of the summed constraint values.
        multiplier: A bound on the norm of the multipliers in all epochs; None if none is known.
        realized_violation: Like ``violation``, but for the observed values, noise included
            (Appendix D); None if constraints are observed exactly, so that both are the same.
    """

    regret: float
    violation: float
    multiplier: float | None = None
    realized_violation: float | None = None


def exact_constraints_bounds(
    num_epochs: int,
    epoch_length: int,
    information_gain: GainFunction,
    assumed: BoundedNorm,
    penalty: Penalty,
    unconstrained_gap: float,
    num_constraints: int = 1,
) -> PenalizedBounds:
    r"""Return Theorem 1 of Shi and Eryilmaz 2022, bounds (11) and (12), as numbers.

    In Algorithm 2, constraints are observed exactly, and each of the ``L`` epochs of ``S`` rounds
    starts without the data of the earlier ones. With probability at least :math:`1 - \delta`

    .. math:: R_{LS} \le U = 2 L w_S C_1 \sqrt{S \gamma_S}, \qquad
              V_{LS} \le \sqrt{m} \, S \, \psi_+^{-1}(1 + L \Delta + U / S),

    where :math:`w_S` has the confidence :math:`\delta / L`, :math:`m` is the number of constraints
    and :math:`\Delta` is the amount by which the largest reward at any point exceeds that of the
    best feasible point. (The paper leaves the factor :math:`\sqrt{m}` to its ``O``.)

    If the penalized function varies by ``v`` within an epoch
    (:mod:`botorch_bandits.confidence.igp_ucb`), :math:`v \sqrt{(S - 1) / \lambda}` is added to
    :math:`w_S` and :math:`2 v L S` to ``U``. Regret and :math:`\Delta` then compare with one point
    that meets the constraints of every round, in the functions of the rounds.

    Args:
        num_epochs: ``L``.
        epoch_length: ``S``.
        information_gain: A bound on the maximal gain of the observations of one epoch; the largest
            over all kernels if epochs have different kernels.
        assumed: What is assumed of the penalized function of every epoch (Assumption 3).
        penalty: ``psi``.
        unconstrained_gap: ``Delta``, at least 0.
        num_constraints: ``m``.

    Raises:
        ValueError: If an argument is out of its range, or the penalty is not of Algorithm 2.
    """
    if penalty.is_linear:
        raise ValueError(
            "penalty is Linear, which belongs to Algorithm 3; use noisy_constraints_bounds, or "
            "Polynomial(n=2) or Exponential() for Algorithm 2."
        )
    _checked_epochs(num_epochs, epoch_length, num_constraints)
    of_epoch = replace(assumed, delta=assumed.delta / num_epochs)
    regret = num_epochs * igp_ucb_regret_bound(epoch_length, information_gain, of_epoch)
    given = num_epochs, epoch_length, regret, penalty, unconstrained_gap, num_constraints
    return PenalizedBounds(regret, exact_violation_bound(*given))


def exact_violation_bound(
    num_epochs: int,
    epoch_length: int,
    regret_bound: float,
    penalty: Penalty,
    unconstrained_gap: float,
    num_constraints: int = 1,
) -> float:
    r"""Return bound (12) of Shi and Eryilmaz 2022 from a bound ``U`` on regret and penalties.

    .. math:: V_{LS} \le \sqrt{m} \, S \, \psi_+^{-1}(1 + L \Delta + U / S)

    Args:
        num_epochs: ``L``.
        epoch_length: ``S``.
        regret_bound: ``U``, in raw outcome units, in which the multipliers of the first epoch are
            1.
        penalty: ``psi``.
        unconstrained_gap: ``Delta``, at least 0.
        num_constraints: ``m``.

    Raises:
        ValueError: If an argument is out of its range.
    """
    L, S, m = _checked_epochs(num_epochs, epoch_length, num_constraints)
    gap = check_nonnegative("unconstrained_gap", unconstrained_gap)
    regret_bound = check_nonnegative("regret_bound", regret_bound)
    return math.sqrt(m) * S * _invert(penalty, math.log1p(L * gap + regret_bound / S))


def noisy_constraints_bounds(  # noqa: PLR0913 - options, each with a name
    num_epochs: int,
    epoch_length: int,
    information_gain: GainFunction,
    assumed: BoundedNorm,
    step_size: float,
    slater_margin: float,
    reward_bound: float,
    constraint_bound: float,
    num_constraints: int = 1,
) -> PenalizedBounds:
    r"""Return Theorem 2 of Shi and Eryilmaz 2022 as numbers.

    In Algorithm 3, constraints are observed with noise, the penalty is linear, and multipliers move
    by ``mu`` times the average of an epoch. With
    :math:`g = \sqrt{4 m} + \sqrt{\ln(2 L / \delta)}`,
    :math:`W = 2 C_1 \sqrt{\gamma_S / S}`, :math:`w_0` the width of IGP-UCB at
    :math:`\delta / (2 L)` and :math:`w_0 - B` its noise term, the multipliers of all epochs have a
    norm of at most

    .. math:: \kappa = \sqrt{m} \mu M + \frac{2 \mu R g}{\sqrt S}
              + \frac{2 Q + W w_0 + m \mu M^2 + 4 \mu R^2 g^2 / S}
                     {\epsilon - W (w_0 - B) - 2 R g / \sqrt S}

    with probability at least :math:`1 - \delta`, if the denominator is positive, that is, if the
    Slater margin exceeds the uncertainty that an epoch leaves. Then

    .. math:: V_{LS} \le \frac{S \kappa}{\mu} + 2 R L \sqrt{S} g, \qquad
              R_{LS} \le L \bigl(S W (B + \sqrt{1 + \kappa^2} (w_0 - B))
              + m S \mu M^2 + 4 \mu R^2 g^2 + 2 R \kappa \sqrt{S} g\bigr).

    The observed constraint values sum to at most :math:`S \kappa / \mu` by (26), without a noise
    term; Appendix D adds one, which is not needed. If the penalized function varies by ``v`` within
    an epoch (:mod:`botorch_bandits.confidence.igp_ucb`) and the margin holds in every round, ``B``
    grows by :math:`v \sqrt{(S - 1) / \lambda}`, the numerator by :math:`2 v` and the regret by
    :math:`2 v L S`.

    Source: equations (25) to (33) of the proof. Equations (32) and (33) have ``/ S`` where the sum
    of the noise of an epoch, divided by ``S``, leaves :math:`1 / \sqrt{S}`.

    Args:
        num_epochs: ``L``.
        epoch_length: ``S``.
        information_gain: See :func:`exact_constraints_bounds`.
        assumed: What is assumed of the penalized function of every epoch (Assumption 5);
            its noise bound is for the reward and for each constraint.
        step_size: ``mu``; in the theorem it is of the order of ``1 / sqrt(L)``.
        slater_margin: ``epsilon``: at some point every constraint is at most ``-epsilon``.
        reward_bound: ``Q``, which bounds the absolute value of the reward.
        constraint_bound: ``M``, which bounds the absolute value of each constraint.
        num_constraints: ``m``.

    Raises:
        ValueError: If an argument is out of its range, or the margin is too small for these epochs;
            the message gives the margin that they would require.
    """
    L, S, m = _checked_epochs(num_epochs, epoch_length, num_constraints)
    mu = check_positive("step_size", step_size)
    margin = check_positive("slater_margin", slater_margin)
    Q = check_nonnegative("reward_bound", reward_bound)
    M = check_nonnegative("constraint_bound", constraint_bound)
    v = float(assumed.variation)
    B = float(assumed.rkhs_bound) + v * math.sqrt((S - 1) / _proved_lam(assumed))
    noise_term, of_noise, W = _of_noisy_epoch(L, S, information_gain, assumed, m)
    uncertainty = W * noise_term + of_noise / S
    if margin <= uncertainty:
        raise ValueError(
            f"slater_margin is {margin:g}; the theorem needs more than {uncertainty:g} with epochs "
            f"of {S} rounds. Use longer epochs: the margin that is needed falls with their length."
        )
    # ``of_noise`` is 2 R g sqrt(S)
    excess = 2.0 * (Q + v) + W * (B + noise_term) + mu * (m * M**2 + (of_noise / S) ** 2)
    kappa = mu * (math.sqrt(m) * M + of_noise / S) + excess / (margin - uncertainty)
    realized = S * kappa / mu
    violation = realized + L * of_noise
    regret = L * (
        S * W * (B + math.sqrt(1.0 + kappa**2) * noise_term)
        + S * mu * (m * M**2 + (of_noise / S) ** 2)
        + kappa * of_noise
        + 2.0 * S * v
    )
    return PenalizedBounds(
        min(regret, 2.0 * Q * L * S), min(violation, math.sqrt(m) * M * L * S), kappa, realized
    )


def smallest_slater_margin(
    num_epochs: int,
    epoch_length: int,
    information_gain: GainFunction,
    assumed: BoundedNorm,
    num_constraints: int = 1,
) -> float:
    r"""Return the Slater margin that Theorem 2 of Shi and Eryilmaz 2022 requires to be exceeded.

    It is :math:`W (w_0 - B) + 2 R g / \sqrt S`; see :func:`noisy_constraints_bounds`.

    Args:
        num_epochs: ``L``.
        epoch_length: ``S``.
        information_gain: See :func:`exact_constraints_bounds`.
        assumed: See :func:`noisy_constraints_bounds`.
        num_constraints: ``m``.

    Raises:
        ValueError: If an argument is out of its range, or the printed width is not a bound.
    """
    L, S, m = _checked_epochs(num_epochs, epoch_length, num_constraints)
    noise_term, of_noise, W = _of_noisy_epoch(L, S, information_gain, assumed, m)
    return W * noise_term + of_noise / S


# --- the terms of these bounds -------------------------------------------------------------------


def _gain(information_gain: GainFunction, num_observations: int) -> float:
    gain = float(information_gain(num_observations)) if num_observations else 0.0
    return check_nonnegative(f"information_gain({num_observations})", gain)


def _sum_of_variances(horizon: int, information_gain: GainFunction, lam: float) -> float:
    """Bound the sum of posterior variances at the points played, each at most 1."""
    of_gain = 2.0 * _gain(information_gain, horizon) / math.log1p(1.0 / lam)
    return min(of_gain, float(horizon))


def _proved_lam(assumed: BoundedNorm) -> float:
    """Return ``lam`` if widths are bounds for it."""
    lam = float(assumed.lam)
    if lam < LEAST_LAM and not assumed.any_lambda:
        raise ValueError(
            f"lam is {lam:g}, but the printed width is a bound only for lam of at least 1; pass "
            "any_lambda=True."
        )
    return lam


def _checked_epochs(num_epochs: int, length: int, num_constraints: int) -> tuple[int, int, int]:
    return (
        check_integer("num_epochs", num_epochs, minimum=1),
        check_integer("epoch_length", length, minimum=1),
        check_integer("num_constraints", num_constraints, minimum=1),
    )


def _of_noisy_epoch(
    L: int, S: int, information_gain: GainFunction, assumed: BoundedNorm, m: int
) -> tuple[float, float, float]:
    """Return ``w_0 - B``, ``2 R g sqrt(S)`` and ``W`` of :func:`noisy_constraints_bounds`."""
    lam, share = _proved_lam(assumed), 0.5 * assumed.delta / L
    noise = replace(assumed, rkhs_bound=0.0, delta=share)
    g = math.sqrt(4.0 * m) + math.sqrt(math.log(1.0 / share))
    W = 2.0 * math.sqrt(_sum_of_variances(S, information_gain, lam) / S)
    noise_term = float(noise.width(_gain(information_gain, S - 1)))
    return noise_term, 2.0 * float(assumed.noise_bound) * g * math.sqrt(S), W


def _arrival_probability(probability: float) -> float:
    probability = check_positive("arrival_probability", probability)
    if probability > 1.0:
        raise ValueError(f"arrival_probability is {probability}; it must be at most 1.")
    return probability


def _optimism_factor(t: Tensor, num_points: Tensor) -> Tensor:
    """``C_t / v_t`` of some rounds after the second; see the module."""
    spread = torch.sqrt(2.0 * (num_points.log() + 2.0 * t.log()))
    return (1.0 + spread) * (1.0 + 2.0 / (OPTIMISM - 1.0 / t.square()))


def _invert(penalty: Penalty, log_value: float) -> float:
    """The largest ``x`` with ``ln psi(x)`` at most this, by bisection; psi increases."""

    def is_below(x: float) -> bool:
        return float(penalty.log_value(torch.tensor(x, dtype=DTYPE))) < log_value

    low, high = 0.0, 1.0
    while is_below(high) and high < math.inf:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return high


# --- what a run is told of them -------------------------------------------------------------------

MOST_ROUNDS_OF_DRAWS = 50_000
"""The bounds of draws are sums over rounds, which take part of a second for this many."""


@dataclass(frozen=True)
class Run:
    """What is known of a run before it.

    Attributes:
        num_rounds: ``T``.
        gain: A bound on the maximal information gain.
        name_of_gain: A description of that bound.
        deviation: The prior standard deviation, in raw outcome units.
        lam: The noise variance of the model over the prior variance.
        norm: What is assumed of the function, for all delta; None if a bound is not one number.
        max_delay: ``m`` of censored feedback, in rounds.
        repeats: How much larger the bound on the regret is because points are played again.
    """

    num_rounds: int
    gain: GainFunction
    name_of_gain: str
    deviation: float
    lam: float
    norm: BoundedNorm | None = None
    max_delay: int = 0
    repeats: float = 1.0


def forecasts_of_regret(
    run: Run, regret: RegretStatement, width: float | None = None
) -> Iterator[Forecast]:
    """Yield the bounds on gain and regret without constraints.

    Args:
        run: The run.
        regret: What is guaranteed of the regret, with the rounds so far.
        width: The width of the last round, if it does not depend on the outcomes.
    """
    T = run.num_rounds
    yield GAIN_OF_RUN.of(run.gain(T), num_rounds=T, name=run.name_of_gain)
    bound = _regret_of_horizon(run, regret, width)
    has_extras = regret.tail or regret.num_points is not None
    if bound is None or not regret.source_of_run or (run.repeats > 1.0 and has_extras):
        return
    bound *= run.repeats
    if regret.num_others and regret.largest is None:
        return
    if regret.largest is not None:
        bound = min(bound + regret.largest * regret.num_others, regret.largest * T)
    others = ALONE.say(OTHER_ROUNDS, num_others=regret.num_others) if regret.num_others else ""
    words = {"source": regret.source_of_run, "num_rounds": T, "others": others}
    yield REGRET_OF_RUN[regret.covers_pending].of(bound, **words)


def _regret_of_horizon(run: Run, regret: RegretStatement, width: float | None) -> float | None:
    """Return the bound in raw outcome units, if there is one for this width."""
    T, gain, s, norm = run.num_rounds, run.gain, run.deviation, run.norm
    if norm is not None and regret.delta is not None:
        norm = replace(norm, delta=regret.delta)
        if norm.is_mixture:
            width = float(norm.width(_gain(gain, T - 1)))
    if width is not None:
        bound = s * regret_bound_of_width(width, T, gain, run.lam)
        return bound + math.pi**2 / 6.0 * regret.tail
    if norm is None:
        return None
    if regret.factor is not None:
        return s * igp_ucb_regret_bound(T, gain, norm, run.max_delay)
    if regret.num_points is None or T > MOST_ROUNDS_OF_DRAWS:
        return None
    some, points = _at_some_rounds(gain, T), regret.num_points
    return s * gp_ts_regret_bound(T, some, norm, points, max_delay=run.max_delay)


def _at_some_rounds(gain: GainFunction, horizon: int) -> GainFunction:
    """Return a bound that is evaluated at rounds 1% apart; it does not decrease with rounds."""
    known = cache(gain)

    def bound(number: int) -> float:
        if number <= 100:
            return known(number)
        later = math.ceil(1.01 ** math.ceil(math.log(number, 1.01) - 1e-9))
        return known(max(min(later, horizon), number))

    return bound


def forecasts_of_exact_epochs(
    run: Run,
    norm: BoundedNorm,
    epoch_length: int,
    num_constraints: int,
    penalty: Penalty,
    unconstrained_gap: float | None,
) -> Iterator[Forecast]:
    """Yield the bounds of Algorithm 2 of Shi and Eryilmaz 2022 for all epochs of the horizon.

    Args:
        run: The run.
        norm: What is assumed of the penalized function of every epoch.
        epoch_length: ``S``.
        num_constraints: ``m``.
        penalty: ``psi``.
        unconstrained_gap: ``Delta``, in raw outcome units, if it is known.
    """
    words = _epochs_of(run, epoch_length)
    epochs = words["num_epochs"]
    given = epochs, epoch_length, run.gain, norm, penalty, 0.0, num_constraints
    regret = run.deviation * exact_constraints_bounds(*given).regret
    yield REGRET_OF_EXACT.of(regret, **words)
    if unconstrained_gap is None:
        yield NO_VIOLATION_OF_EXACT.of()
        return
    known = epochs, epoch_length, regret, penalty, unconstrained_gap, num_constraints
    yield VIOLATION_OF_EXACT.of(exact_violation_bound(*known), **words)


def forecasts_of_noisy_epochs(
    run: Run,
    norm: BoundedNorm,
    epoch_length: int,
    num_constraints: int,
    step_size: float,
    slater_margin: float | None,
    largest_reward: float | None,
    largest_constraint: float | None,
) -> Iterator[Forecast]:
    """Yield the bounds of Algorithm 3 of Shi and Eryilmaz 2022 for all epochs of the horizon.

    All functions are divided by the prior deviation, which leaves the multipliers as they are.

    Args:
        run: The run.
        norm: What is assumed of the penalized function of every epoch.
        epoch_length: ``S``.
        num_constraints: ``m``.
        step_size: ``mu``.
        slater_margin: ``epsilon``, in raw outcome units like the next two, if it is known.
        largest_reward: ``Q``.
        largest_constraint: ``M``.
    """
    words, s = _epochs_of(run, epoch_length), run.deviation
    given = words["num_epochs"], epoch_length, run.gain, norm
    needed = s * smallest_slater_margin(*given, num_constraints)
    yield MARGIN_OF_NOISY.of(needed, **words)
    if slater_margin is None or largest_constraint is None:
        yield NO_RUN_OF_NOISY.of()
        return
    if slater_margin <= needed:
        yield SMALL_MARGIN_OF_NOISY.of(margin=slater_margin)
        return
    # in the first epoch the penalized function is the reward itself, so that B bounds it
    reward = float(norm.rkhs_bound) if largest_reward is None else largest_reward / s
    sizes = slater_margin / s, reward, largest_constraint / s
    bounds = noisy_constraints_bounds(*given, step_size * s, *sizes, num_constraints)
    assert bounds.realized_violation is not None
    yield REGRET_OF_NOISY.of(s * bounds.regret, **words)
    yield VIOLATION_OF_NOISY.of(s * bounds.violation, **words)
    yield VIOLATION_AS_OBSERVED.of(s * bounds.realized_violation, **words)
    yield MULTIPLIERS_OF_NOISY.of(bounds.multiplier)


def _epochs_of(run: Run, length: int) -> dict[str, int]:
    """Return the numbers of rounds and of whole epochs of a run, by name."""
    epochs = math.ceil(run.num_rounds / length)
    return {"num_epochs": epochs, "num_rounds": epochs * length, "length": length}


def forecasts_of_changes(
    periods: Sequence[int],
    what: str,
    smoothness: float,
    dim: int,
    smallest_change: float | None,
    has_width: bool,
) -> Iterator[Forecast]:
    """Yield conditions and rate of Avanesov's theorem, (3.8) to (3.10).

    These are not bounds: the conditions are asymptotic, and the constant of the rate is unknown.

    Args:
        periods: The lengths of the stationary periods.
        what: What these are, in words.
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``.
        smallest_change: ``Delta``, if it is known.
        has_width: Whether the width is that of the theorem.
    """
    given = periods, smallest_change, smoothness, dim
    spacing = change_point_spacing(periods, None, smoothness, dim)
    yield SPACING_OF_CHANGES.of(spacing, periods=what)
    if smallest_change is not None:
        yield SPACING_WITH_SIZE.of(change_point_spacing(*given), change=smallest_change)
    if has_width:
        power = 2.0 + 2.0 / (2.0 * smoothness + dim)
        words = {"exponent": regret_exponent(smoothness, dim), "power": power, "periods": what}
        rate = change_point_rate(periods, smallest_change or 1.0, smoothness, dim)
        yield RATE_OF_CHANGES[smallest_change is not None].of(rate, **words)
