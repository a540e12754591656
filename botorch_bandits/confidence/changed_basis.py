r"""The eigenvectors of a kernel matrix, reused while some rows are added and others removed.

Rows are multiplied by the square roots of their weights, so that the noise of each is the ridge
``a``. Let :math:`K = Q \Lambda Q^\top` be the kernel matrix of the rows of an earlier round,
:math:`f(x) = Q^\top k(x)` and :math:`M_a = Q (\Lambda + a I)^{-1} Q^\top`. Those of these rows that
have left, :math:`R`, are removed by

.. math::
   k_S(x)^\top (K_{SS} + a I)^{-1} k_S(y) = k(x)^\top M_a k(y)
   - (M_a k(x))_R^\top \, (M_a)_{RR}^{-1} \, (M_a k(y))_R ,

regardless of the entries of ``k`` in these rows, and the rows added since form a border, as in
:mod:`botorch_bandits.confidence.bordered_basis`. Both together are one small triangular matrix for
each ridge, whose first entries count with a negative sign.

All rows may fade together: a common factor of their weights multiplies the eigenvalues.

Source: the inverse of a matrix in two by two blocks.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]

AT_ONCE = 1 << 21
"""The largest number of values in memory at once if many points are evaluated."""


class Spectrum(NamedTuple):
    """The eigenvectors of a kernel matrix.

    Attributes:
        eigenvalues: ``p``, at least 0.
        eigenvectors: ``p x p``.
    """

    eigenvalues: Array
    eigenvectors: Array

    @classmethod
    def of(cls, matrix: Array) -> Spectrum:
        """Compute the eigenvectors of a matrix.

        Args:
            matrix: ``p x p``, positive semi-definite up to rounding.
        """
        if not len(matrix):
            return cls(np.zeros(0), np.zeros((0, 0)))
        values, vectors = np.linalg.eigh(matrix)
        return cls(np.maximum(values, 0.0), vectors)


class ChangedBasis:
    r"""The effect at each ridge of rows that are added, are removed or fade.

    Args:
        spectrum: The spectrum of the kernel matrix of the base, ``p`` rows.
        ridges: ``num_ridges`` positive numbers.
        features: ``(r + d) x p``; the rows of the eigenvectors for ``r`` rows of the base that have
            left, followed by :math:`f` of ``d`` added rows.
        num_left: ``r``.
        block: ``d x d`` kernel values among the added rows.
        outcomes: ``p`` outcomes of the base; those of rows that have left do not count.
        added: ``d`` outcomes of the added rows.
        scale: A factor on the eigenvalues.

    Attributes:
        fits: ``num_ridges``; :math:`y^\top (K + a I)^{-1} y` of the rows that count.
    """

    def __init__(
        self,
        spectrum: Spectrum,
        ridges: Array,
        features: Array,
        num_left: int,
        block: Array,
        outcomes: Array,
        added: Array,
        scale: float = 1.0,
    ) -> None:
        """See the class."""
        self._inverse = 1.0 / (scale * spectrum.eigenvalues[:, None] + ridges)  # p x num_ridges
        projected = outcomes @ spectrum.eigenvectors
        self._mean_weights = projected[:, None] * self._inverse
        self.fits: Array = np.square(projected) @ self._inverse
        self._num_changed, self._num_left = len(features), num_left
        if not self._num_changed:
            return
        # num_ridges x (r + d) x p
        self._shrunk = np.ascontiguousarray(self._inverse.T)[:, None] * features
        count, left = self._num_changed, slice(0, num_left)
        products = self._shrunk.reshape(len(ridges) * count, features.shape[1]) @ features.T
        self._factor = _factor(products.reshape(len(ridges), count, count), num_left, block, ridges)
        known = self._shrunk @ projected  # num_ridges x (r + d)
        known[:, num_left:] = added - known[:, num_left:]
        self._of_outcomes = self._solve(self._factor, known[..., None])[..., 0]
        squares = np.square(self._of_outcomes)
        self.fits += squares[:, num_left:].sum(-1) - squares[:, left].sum(-1)
        self._of_outcomes[:, left] *= -1.0

    def moments(
        self, features: Array, added: Array, ridges: Any = slice(None)
    ) -> tuple[Array, Array]:
        """Return means, and how much the rows lower variances, ``k x num_ridges`` each.

        Args:
            features: ``k x p``; :math:`f` of some points.
            added: ``d x k`` kernel values of the added rows with these points.
            ridges: The numbers of the requested ridges.
        """
        inverse, weights = self._inverse[:, ridges], self._mean_weights[:, ridges]
        mean: Array = features @ weights
        explained: Array = np.square(features) @ inverse
        if self._num_changed:
            shrunk = self._shrunk[ridges]
            cross = shrunk.reshape(math.prod(shrunk.shape[:2]), shrunk.shape[2]) @ features.T
            cross = cross.reshape(*shrunk.shape[:2], len(features))
            np.subtract(added, cross[:, self._num_left :], out=cross[:, self._num_left :])
            solved = self._solve(self._factor[ridges], cross)
            mean += (self._of_outcomes[ridges][:, None] @ solved)[:, 0].T
            np.square(solved, out=solved)
            explained += solved[:, self._num_left :].sum(1).T
            explained -= solved[:, : self._num_left].sum(1).T
        return mean, explained

    def points_at_once(self, num_rows: int) -> int:
        """Return for how many points :meth:`moments` may be called at once.

        Args:
            num_rows: The number of kernel values of each point.
        """
        num_ridges = self._inverse.shape[1]
        return max(1, AT_ONCE // (num_rows + num_ridges * (2 + 2 * self._num_changed)))

    @staticmethod
    def _solve(factor: Array, right: Array) -> Array:
        pair = (torch.from_numpy(each) for each in (factor, right))
        solved: Array = torch.linalg.solve_triangular(*pair, upper=False).numpy()
        return solved


def _factor(products: Array, num_left: int, block: Array, ridges: Array) -> Array:
    """Return the triangular matrices of all ridges, ``num_ridges x (r + d) x (r + d)``."""
    r = num_left
    factor = np.zeros_like(products)
    came = block - products[:, r:, r:]
    diagonal = np.arange(came.shape[-1])
    came[:, diagonal, diagonal] += ridges[:, None]
    if r:
        factor[:, :r, :r] = np.linalg.cholesky(products[:, :r, :r])
        half = ChangedBasis._solve(
            np.ascontiguousarray(factor[:, :r, :r]), np.ascontiguousarray(products[:, :r, r:])
        )
        came += half.transpose(0, 2, 1) @ half
        factor[:, r:, :r] = -half.transpose(0, 2, 1)
    if len(diagonal):
        factor[:, r:, r:] = np.linalg.cholesky(came)
    return factor
