r"""The smallest sum of squares of a function of bounded norm.

By Lagrange duality:

.. math:: \min_{\|f\|_k \le B} \|y - f(X)\|^2
   = \max_{a \ge 0} \; a \, y^\top (K + a I)^{-1} y - a B^2 .

With the counts :math:`C` and the means :math:`\bar y` of the distinct points, it is the sum of
squares within them, plus the same expression for :math:`C^{1/2} K C^{1/2}` and
:math:`C^{1/2} \bar y`.

Source: the largest ``a`` is found like the multiplier of a trust region (More and Sorensen 1983).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]


def log_likelihood_in_ball(
    covariances: Array,
    places: Numbers,
    residuals: Array,
    noise: float,
    rkhs_bound: float,
    weights: Array,
) -> float:
    """Return the largest log density that a function of bounded norm gives to outcomes.

    Args:
        covariances: ``p x p``, of the distinct points.
        places: ``n`` numbers of points, each of which occurs.
        residuals: ``n`` outcomes, less the prior mean.
        noise: The noise variance ``R^2``.
        rkhs_bound: ``B``, positive: the largest norm.
        weights: ``n``, with which the noise variances of the outcomes are divided.
    """
    counts = np.bincount(places, weights)  # p
    means = np.bincount(places, weights * residuals) / counts
    within = float(weights @ np.square(residuals - means[places]))
    roots = np.sqrt(counts)
    # C^(1/2) K C^(1/2) = Q diag(values) Q', and the squares of Q' C^(1/2) means
    values, vectors = np.linalg.eigh(roots[:, None] * covariances * roots)
    squared = np.square(vectors.T @ (roots * means))
    smallest = within + _smallest_squares(values, squared, rkhs_bound)
    return -0.5 * (float(np.log(2.0 * math.pi * noise / weights).sum()) + smallest / noise)


def _smallest_squares(values: Array, squared: Array, bound: float) -> float:
    """Return the smallest sum of squared residuals of a function with a norm of at most ``bound``.

    The inverse of the norm of the ridge fit is concave and grows with the ridge ``a``, so that
    Newton's method on it comes from the left and never overshoots; a few steps are enough.

    Args:
        values: Eigenvalues of the kernel matrix, ascending.
        squared: Squares of the outcomes in its eigenbasis.
        bound: ``B``.
    """
    if values[-1] <= 0.0:  # the space contains only 0 at these points
        return float(squared.sum())
    # values that rounding makes too small would make good fits look bad
    values = np.maximum(values, len(values) * np.finfo(np.float64).eps * values[-1])
    a = 0.0
    for _ in range(100):
        terms = values * squared / np.square(values + a)  # of the squared norm
        norm = math.sqrt(terms.sum())
        if norm <= bound:
            break
        step = (norm / bound - 1.0) * norm**2 / float((terms / (values + a)).sum())
        a += step
        if step <= 1e-15 * a:  # what rounding leaves
            break
    return max(float((a * squared / (values + a)).sum()) - a * bound**2, 0.0)
