r"""Confidence widths: by how many posterior standard deviations the reward may lie off the mean.

Every width function returns ``w``, the factor of the posterior STANDARD DEVIATION: the bound is
``mean + w * standard_deviation``. BoTorch's ``UpperConfidenceBound(beta)`` multiplies by
``sqrt(beta)``, so ``beta = w ** 2``. Logarithms are natural.

The theorems speak of a kernel with ``k(x, x) <= 1``, prior mean 0 and the regularisation
``lam = (modelled noise variance) / (prior variance)``. Those for rewards drawn from the Gaussian
process are in :mod:`botorch_bandits.confidence.bayesian_widths`, those for rewards of bounded norm
in :mod:`botorch_bandits.confidence.rkhs_widths`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_nonnegative, check_positive


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


def check_all_nonnegative(name: str, value: float | Tensor) -> Tensor:
    """Return ``value`` as a float64 tensor if every entry is finite and at least 0.

    Raises:
        ValueError: If an entry is negative, NaN or infinite.
    """
    tensor = torch.as_tensor(value, dtype=DTYPE)
    if not ((tensor >= 0) & torch.isfinite(tensor)).all():
        raise ValueError(f"{name} is {tensor.tolist()}; it must be finite and at least 0.")
    return tensor
