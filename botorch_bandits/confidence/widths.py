r"""Confidence widths: by how many posterior standard deviations the reward may lie off the mean.

Every function returns ``w``, the factor of the posterior STANDARD DEVIATION: the bound is
``mean + w * standard_deviation``. BoTorch's ``UpperConfidenceBound(beta)`` multiplies by
``sqrt(beta)``, so ``beta = w ** 2``. Logarithms are natural.

The theorems speak of a kernel with ``k(x, x) <= 1``, prior mean 0 and the regularisation
``lam = (modelled noise variance) / (prior variance)``. ``rkhs_bound`` bounds the norm of the
reward in that unit-variance kernel, in the units of the reward, and ``noise_bound`` is ``R`` of
R-sub-Gaussian noise in the same units. Who has a prior standard deviation ``s`` divides both by
``s`` first (:mod:`botorch_bandits.confidence.rules` does).

Sources: Srinivas, Krause, Kakade and Seeger, *Gaussian process optimization in the bandit
setting*, ICML 2010; Chowdhury and Gopalan, *On kernelized multi-armed bandits*, ICML 2017.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_nonnegative,
    check_positive,
    check_probability,
)


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
    rkhs_bound, noise_bound, gain, delta = _check(rkhs_bound, noise_bound, information_gain, delta)
    return rkhs_bound + noise_bound * torch.sqrt(2.0 * (gain + 1.0 + math.log(1.0 / delta)))


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
    rkhs_bound, noise_bound, gain, delta = _check(rkhs_bound, noise_bound, information_gain, delta)
    lam = torch.as_tensor(lam, dtype=DTYPE)
    if not (lam > 0).all():
        raise ValueError(f"lam is {lam.tolist()}; it is a noise variance and must be positive.")
    radius = torch.sqrt(2.0 * (gain + math.log(1.0 / delta)))
    return rkhs_bound + noise_bound / lam.sqrt() * radius


def constant_width(width: float) -> Tensor:
    """Return a fixed width as a scalar float64 tensor; no theorem covers it.

    Args:
        width: The factor of the standard deviation, at least 0.
    """
    return torch.tensor(check_nonnegative("width", width), dtype=DTYPE)


def check_scale(scale: float) -> float:
    """Check a factor on a width. Only the factor 1 keeps a guarantee.

    Srinivas et al. 2010 divide ``beta`` by 5 in their experiments: ``scale = 5 ** -0.5``.
    """
    return check_positive("scale", scale)


def _check(
    rkhs_bound: float | Tensor,
    noise_bound: float | Tensor,
    information_gain: float | Tensor,
    delta: float,
) -> tuple[Tensor, Tensor, Tensor, float]:
    tensors = []
    for name, value in (
        ("rkhs_bound", rkhs_bound),
        ("noise_bound", noise_bound),
        ("information_gain", information_gain),
    ):
        tensor = torch.as_tensor(value, dtype=DTYPE)
        if not ((tensor >= 0) & torch.isfinite(tensor)).all():
            raise ValueError(f"{name} is {tensor.tolist()}; it must be finite and at least 0.")
        tensors.append(tensor)
    return tensors[0], tensors[1], tensors[2], check_probability("delta", delta)
