"""Densities under the members of a null that is a family.

The robust null of :class:`.EvidenceDetector` has members with more noise than the model and with
outliers: mixtures of two normal distributions around the same prediction.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NOISE_FACTORS = (1.0, 1.5, 2.25, 3.4)
"""The factors by which members of the robust null multiply the noise variance."""

OUTLIER_SHARES = (0.001, 0.01, 0.05)
"""The shares of outliers among the outcomes in members of the robust null."""

OUTLIER_FACTOR = 36.0
"""The further factor of the noise variance of an outlier."""

ROBUST_MEMBERS = ((1.0, 0.0), *itertools.product(NOISE_FACTORS, OUTLIER_SHARES))
"""Noise factor and share of outliers of each member; the first one is the model itself."""

# factors of the noise, and logarithms of the shares of other outcomes and of outliers
_ROBUST = tuple(
    np.array(column)
    for column in zip(
        *((c, math.log1p(-e), math.log(e) if e else -math.inf) for c, e in ROBUST_MEMBERS),
        strict=True,
    )
)


def log_normal(residuals: Array, variances: Array) -> Array:
    """Return the log densities of ``N(0, variance)``, entry by entry."""
    density: Array = -0.5 * (np.log(2.0 * math.pi * variances) + residuals**2 / variances)
    return density


def log_robust(residuals: Array, variances: Array, noise: Array, members: Any) -> Array:
    """Return the log densities of outcomes under robust members.

    Args:
        residuals: ``... x m x h``.
        variances: The variances of the function, ``... x m x h``.
        noise: ``m x 1``.
        members: ``m x h`` or ``h`` numbers of members.
    """
    factors, log_inner, log_outer = (column[members] for column in _ROBUST)
    inner = log_normal(residuals, variances + factors * noise)
    outer = log_normal(residuals, variances + OUTLIER_FACTOR * factors * noise)
    mixed: Array = np.logaddexp(log_inner + inner, log_outer + outer)
    return mixed


def log_sum(values: Array) -> Array:
    """Return the logarithm of the sum of exponentials over the last dimension."""
    largest = values.max(-1)
    total: Array = largest + np.log(np.exp(values - largest[..., None]).sum(-1))
    return total
