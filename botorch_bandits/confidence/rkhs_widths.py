r"""Confidence widths for rewards of bounded norm in the kernel's reproducing-kernel Hilbert space.

Conventions as in :mod:`botorch_bandits.confidence.widths`: a width multiplies the posterior
STANDARD DEVIATION, logarithms are natural, kernels have unit variance. ``rkhs_bound`` bounds the
NORM (never its square) of the reward in that kernel, in the units of the reward, and
``noise_bound`` is ``R`` of R-sub-Gaussian noise in the same units. Who has a prior standard
deviation ``s`` divides both by ``s`` first (the width rules do).

Sources: Srinivas, Krause, Kakade and Seeger, *Gaussian process optimization in the bandit
setting*, ICML 2010; Chowdhury and Gopalan, *On kernelized multi-armed bandits*, ICML 2017; Flynn
and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv 2403.12732, 2024.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_integer, check_probability
from botorch_bandits.confidence.widths import check_all_nonnegative


def igp_ucb_width(
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
) -> Tensor:
    r"""Width of IGP-UCB as printed.

    .. math:: w_t = B + R \sqrt{2 (\gamma_{t-1} + 1 + \ln(1/\delta))}

    Source: Chowdhury and Gopalan 2017, Theorem 2 (there ``beta_t = w_t``). Assumes
    ``||f||_k <= B`` and R-sub-Gaussian noise. The proof uses the gain only through
    ``ln det(I + K / lam)``, so the realised information gain may stand for
    :math:`\gamma_{t-1}`; with it the width holds for every ``lam >= 1``. For ``lam < 1`` it is
    NOT a bound: use :func:`any_lambda_width`. The scale ``v_t`` of GP-TS (Theorem 4) is this
    width at ``delta / 2``.

    Args:
        rkhs_bound: ``B``, at least 0. Scalar or tensor.
        noise_bound: ``R``, at least 0. Scalar or tensor.
        information_gain: The gain of the data in the posterior (0 without data), in nats.
            Scalar or tensor of any shape that broadcasts.
        delta: The bound fails with at most this probability.

    Returns:
        A float64 tensor of the broadcast shape.

    Example:
        >>> igp_ucb_width(2.0, 0.1, information_gain=0.0, delta=math.exp(-1.0)).item()
        2.2
    """
    delta = check_probability("delta", delta)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    noise = check_all_nonnegative("noise_bound", noise_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    return bound + noise * torch.sqrt(2.0 * (gain + 1.0 + math.log(1.0 / delta)))


def any_lambda_width(
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
    lam: float | Tensor,
) -> Tensor:
    r"""Width for R-sub-Gaussian noise that holds for every regularisation.

    .. math:: w_t = B + \frac{R}{\sqrt{\lambda}} \sqrt{2 (\gamma_{t-1} + \ln(1/\delta))}

    Source: the proof of Theorem 2 of Chowdhury and Gopalan 2017 before it sets
    ``lam = 1 + 2/T`` (the self-normalised bound of Abbasi-Yadkori 2011 in feature space).

    Args:
        rkhs_bound: ``B``, at least 0. Scalar or tensor.
        noise_bound: ``R``, at least 0. Scalar or tensor.
        information_gain: ``1/2 ln det(I + K / lam)`` of the data in the posterior, in nats.
        delta: The bound fails with at most this probability.
        lam: The regularisation, a variance, greater than 0. Scalar or tensor.

    Returns:
        A float64 tensor of the broadcast shape.
    """
    delta = check_probability("delta", delta)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    noise = check_all_nonnegative("noise_bound", noise_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    lam = torch.as_tensor(lam, dtype=DTYPE)
    if not (lam > 0).all():
        raise ValueError(f"lam is {lam.tolist()}; it is a noise variance and must be positive.")
    radius = torch.sqrt(2.0 * (gain + math.log(1.0 / delta)))
    return bound + noise / lam.sqrt() * radius


def gp_ucb_rkhs_width(
    rkhs_bound: float | Tensor,
    maximal_information_gain: float | Tensor,
    round_number: int,
    delta: float,
) -> Tensor:
    r"""Width of GP-UCB for a function in the RKHS.

    .. math:: w_t = \sqrt{2 B^2 + 300 \gamma_t \ln^3(t / \delta)}

    Source: Srinivas et al. 2010, Theorem 3 (there ``beta_t = w_t ** 2`` and ``B`` bounds the
    SQUARED norm; here ``B`` bounds the norm). Assumes noise bounded by ``sigma`` almost surely and
    ``lam = sigma ** 2``. The gain is the MAXIMAL one of ``t`` observations: the realised gain is
    not proven here.

    Args:
        rkhs_bound: ``B``, at least 0. Scalar or tensor.
        maximal_information_gain: An upper bound on ``gamma_t``, in nats. Scalar or tensor.
        round_number: ``t``, from 1.
        delta: The bound fails with at most this probability.

    Returns:
        A float64 tensor of the broadcast shape.
    """
    t = check_integer("round_number", round_number, minimum=1)
    delta = check_probability("delta", delta)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    gain = check_all_nonnegative("maximal_information_gain", maximal_information_gain)
    return torch.sqrt(2.0 * bound**2 + 300.0 * gain * math.log(t / delta) ** 3)


def amm_width(
    rkhs_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
    radius_factor: float | Tensor,
) -> Tensor:
    r"""Width of the analytic mixture martingale bound (AMM).

    .. math:: w_t = \sqrt{B^2 + c \ln\det(I + K / a_0) + 2 c \ln(1/\delta)}, \qquad a_0 = R^2 / c

    for the posterior with regularisation ``a_0``. With ``c = R^2 / lam`` that is the model's own.

    Source: Flynn and Reeb 2024, the analytic bound. Assumes ``||f||_k <= B``, R-sub-Gaussian noise
    and ``c`` fixed before any data.

    Args:
        rkhs_bound: ``B``, at least 0. Scalar or tensor.
        information_gain: ``1/2 ln det(I + K / a_0)`` of the observed inputs, in nats.
        delta: The bound fails with at most this probability.
        radius_factor: ``c``, at least 0. Scalar or tensor.

    Returns:
        A float64 tensor of the broadcast shape.
    """
    delta = check_probability("delta", delta)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    gain = check_all_nonnegative("information_gain", information_gain)
    c = check_all_nonnegative("radius_factor", radius_factor)
    return torch.sqrt(bound**2 + 2.0 * c * (gain + math.log(1.0 / delta)))
