r"""Confidence widths for censored feedback: pending queries enter at the known minimum.

With outcomes less the minimum, :math:`\tilde y_{s,t} = y_s` if the outcome of query ``s`` has
arrived within ``m`` rounds, else 0. The posterior mean of these values estimates
:math:`\rho_m f`, where :math:`\rho_m` is the probability of arriving within ``m`` rounds.

Conventions as in :mod:`botorch_bandits.confidence.rkhs_widths`: widths multiply the posterior
STANDARD DEVIATION, logarithms are natural, kernels have unit variance. ``rkhs_bound`` bounds the
norm of ``f - minimum``, ``outcome_bound`` is ``B_y`` with ``|y - minimum| <= B_y``. Who has a prior
standard deviation ``s`` divides all bounds and the sum of deviations by ``s`` first (the width
rules do). The information gain is that of all rows, pending and lost ones too; the realised gain
may stand for the maximal one, because the proof uses it through ``ln det(I + K / lam)`` alone.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
Theorem 1 (there the width is ``nu_t``) and its proof, appendix A.1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_probability
from botorch_bandits.confidence.widths import check_all_nonnegative


def censored_width(
    deviation_sum: float | Tensor,
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor,
    outcome_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
) -> Tensor:
    r"""Width of GP-UCB-SDF as printed.

    .. math::
       \nu_t = B_y \sum_s \sigma_{t-1}(x_s) + B
               + (R + B_y) \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

    Source: Verma, Dai and Low 2022, Theorem 1. The paper sums over the last ``m`` queries; in its
    proof only queries that are still pending, and younger than ``m`` rounds, contribute, so the sum
    over them is valid and smaller. Assumes ``lam > 1`` (with the realised gain ``lam >= 1``),
    R-sub-Gaussian noise, ``|y - minimum| <= B_y`` and delays that depend neither on noise nor on
    inputs. GP-TS-SDF (Theorem 3) takes this width at ``delta / 2``.

    Args:
        deviation_sum: The sum of CURRENT posterior standard deviations, at least 0.
        rkhs_bound: ``B``, at least 0.
        noise_bound: ``R``, at least 0.
        outcome_bound: ``B_y``, at least 0.
        information_gain: The gain of all rows, in nats.
        delta: The bound fails with at most this probability.

    Returns:
        A float64 tensor of the shape to which the arguments broadcast.

    Example:
        >>> censored_width(0.5, 2.0, 0.1, 0.9, 0.0, delta=2.0 * math.exp(-1.0)).item()
        4.45
    """
    delta = check_probability("delta", delta)
    deviations = check_all_nonnegative("deviation_sum", deviation_sum)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    noise = check_all_nonnegative("noise_bound", noise_bound)
    outcome = check_all_nonnegative("outcome_bound", outcome_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    radius = torch.sqrt(2.0 * (gain + 1.0 + math.log(2.0 / delta)))
    return outcome * deviations + bound + (noise + outcome) * radius


def any_lambda_censored_width(
    deviation_sum: float | Tensor,
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor,
    outcome_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
    lam: float | Tensor,
) -> Tensor:
    r"""Width for censored feedback that holds for every regularisation.

    .. math::
       \frac{B_y}{\lambda} \sum_s \sigma_{t-1}(x_s) + B
       + \frac{R + B_y}{\sqrt\lambda} \sqrt{2 (\gamma_{t-1} + \ln(2/\delta))}

    Source: the proof of Theorem 1 of Verma, Dai and Low 2022 before it uses ``lam > 1``, with the
    self-normalised bound of Abbasi-Yadkori 2011 for the two noises, each at ``delta / 2``.

    Args:
        deviation_sum: See :func:`censored_width`.
        rkhs_bound: See :func:`censored_width`.
        noise_bound: See :func:`censored_width`.
        outcome_bound: See :func:`censored_width`.
        information_gain: See :func:`censored_width`.
        delta: The bound fails with at most this probability.
        lam: The regularisation, a variance, greater than 0.

    Returns:
        A float64 tensor of the shape to which the arguments broadcast.
    """
    delta = check_probability("delta", delta)
    deviations = check_all_nonnegative("deviation_sum", deviation_sum)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    noise = check_all_nonnegative("noise_bound", noise_bound)
    outcome = check_all_nonnegative("outcome_bound", outcome_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    lam = _check_lam(lam)
    radius = torch.sqrt(2.0 * (gain + math.log(2.0 / delta)) / lam)
    return outcome / lam * deviations + bound + (noise + outcome) * radius


def bounded_censored_width(
    deviation_sum: float | Tensor,
    rkhs_bound: float | Tensor,
    outcome_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
    lam: float | Tensor,
) -> Tensor:
    r"""Width for censored outcomes of a bounded range, for every regularisation.

    .. math::
       \frac{B_y}{\lambda} \sum_s \sigma_{t-1}(x_s) + B
       + \frac{B_y}{2 \sqrt\lambda} \sqrt{2 (\gamma_{t-1} + \ln(1/\delta))}

    Tighter than :func:`any_lambda_censored_width` where ``y - minimum`` lies in ``[0, B_y]``: what
    is left of an outcome after ``m`` rounds, itself or 0, has the mean :math:`\rho_m f(x)` and a
    range of ``B_y``, so it is ``B_y / 2``-sub-Gaussian (Hoeffding's lemma). One event takes the
    place of two, and ``R`` is not needed.

    Args:
        deviation_sum: See :func:`censored_width`.
        rkhs_bound: See :func:`censored_width`.
        outcome_bound: ``B_y``, the length of the interval, at least 0.
        information_gain: See :func:`censored_width`.
        delta: The bound fails with at most this probability.
        lam: The regularisation, a variance, greater than 0.

    Returns:
        A float64 tensor of the shape to which the arguments broadcast.
    """
    delta = check_probability("delta", delta)
    deviations = check_all_nonnegative("deviation_sum", deviation_sum)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    outcome = check_all_nonnegative("outcome_bound", outcome_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    lam = _check_lam(lam)
    radius = torch.sqrt(2.0 * (gain + math.log(1.0 / delta)) / lam)
    return outcome / lam * deviations + bound + 0.5 * outcome * radius


def _check_lam(lam: float | Tensor) -> Tensor:
    lam = torch.as_tensor(lam, dtype=DTYPE)
    if not (lam > 0).all():
        raise ValueError(f"lam is {lam.tolist()}; it is a noise variance and must be positive.")
    return lam
