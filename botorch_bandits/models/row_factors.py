"""Cholesky factors of the covariance of the rows on arms.

A factor is computed at once (:class:`FreshFactor`), grows row by row as its inverse
(:class:`GrowingFactor`), or extends another one by further rows (:class:`ExtendedFactor`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from botorch_bandits.models.front_kernels import Array, Index
from botorch_bandits.models.roots import cholesky

SMALLEST_ROOM = 64
"""Rows for which a growing factor allocates memory at first."""

GROWTH = 1.25
"""The factor by which its memory grows, which is at most the square of this times what it needs."""

ROWS_OF_A_BLOCK = 64
"""Rows of a growing factor that are multiplied at once, because its other triangle is zero."""

MANY_ROWS = 512
"""From this number of rows on, vectors are also multiplied in blocks, which have twice the rows."""


class RowFactor(ABC):
    """The Cholesky factor ``L`` of the covariance of the rows, noise included.

    Attributes:
        num_rows: ``n``.
        log_determinant: The log determinant of the covariance.
    """

    num_rows: int
    log_determinant: float

    @abstractmethod
    def half(self, columns: Array) -> Array:
        """Return ``L^-1 columns`` for ``n x m`` columns, or for ``n`` numbers."""

    @abstractmethod
    def back(self, values: Array) -> Array:
        """Return ``L^-T values`` for ``n`` numbers."""

    def whole(self, values: Array) -> Array:
        """Return ``L^-T L^-1 values`` for ``n`` numbers."""
        return self.back(self.half(values))

    def half_of_groups(self, slots: Index, weights: Array, num_groups: int) -> Array:
        """Return ``L^-1`` of sparse columns: row ``i`` has one entry, in column ``slots[i]``.

        Args:
            slots: ``n`` columns.
            weights: ``n`` entries.
            num_groups: The number of columns.
        """
        columns = np.zeros((self.num_rows, num_groups))
        columns[np.arange(self.num_rows), slots] = weights
        return self.half(columns)


class FreshFactor(RowFactor):
    """A factor that is computed at once.

    Something is added to the diagonal of the covariance only if rounding has made it indefinite.

    Args:
        covariance: ``n x n``, noise included.
    """

    def __init__(self, covariance: Array) -> None:
        """See the class."""
        self.num_rows = len(covariance)
        self._factor = cholesky(covariance)
        self.log_determinant = 2.0 * float(self._factor.diagonal().log().sum())

    def half(self, columns: Array) -> Array:
        return self._solve(self._factor, columns, upper=False)

    def back(self, values: Array) -> Array:
        return self._solve(self._factor.T, values, upper=True)

    def _solve(self, factor: Tensor, columns: Array, upper: bool) -> Array:
        right = torch.from_numpy(columns[:, None] if columns.ndim == 1 else columns)
        solved: Array = torch.linalg.solve_triangular(factor, right, upper=upper).numpy()
        return solved.reshape(columns.shape)


class GrowingFactor(RowFactor):
    """The inverse of a factor, to which rows are added one by one.

    The transpose of the inverse, which is upper triangular, is kept, with room for more rows.
    """

    def __init__(self) -> None:
        """See the class."""
        self.num_rows, self.log_determinant = 0, 0.0
        self._buffer = np.zeros((SMALLEST_ROOM, SMALLEST_ROOM))

    def append(self, covariances: Array, variance: float, noise: float) -> None:
        """Add a row.

        Args:
            covariances: ``n``; the covariances with the existing rows.
            variance: The prior variance of the new row.
            noise: The noise variance of the new row.
        """
        n = self.num_rows
        if n == len(self._buffer):
            more = np.zeros((math.ceil(GROWTH * n),) * 2)
            more[:n, :n] = self._buffer
            self._buffer = more
        known = self.half(covariances)
        # up to rounding, the remainder is at least the noise
        left = math.sqrt(max(variance + noise - float(known @ known), noise))
        self._buffer[:n, n] = self.back(known / -left)
        self._buffer[n, n] = 1.0 / left
        self.num_rows = n + 1
        self.log_determinant += 2.0 * math.log(left)

    def half(self, columns: Array) -> Array:
        n = self.num_rows
        result = np.empty((n, *columns.shape[1:]))
        for start, end in self._blocks(columns):  # beyond the block there are only zeros
            np.matmul(self._buffer[:end, start:end].T, columns[:end], out=result[start:end])
        return result

    def back(self, values: Array) -> Array:
        n = self.num_rows
        result = np.empty((n, *values.shape[1:]))
        for start, end in self._blocks(values):  # before the block there are only zeros
            np.matmul(self._buffer[start:end, start:n], values[start:], out=result[start:end])
        return result

    def _blocks(self, like: Array) -> list[tuple[int, int]]:
        """Return the blocks of rows that are multiplied at once by a vector or some columns."""
        n = self.num_rows
        if like.ndim == 1 and n < MANY_ROWS:
            return [(0, n)]
        size = ROWS_OF_A_BLOCK if n < MANY_ROWS else 2 * ROWS_OF_A_BLOCK
        return [(start, min(start + size, n)) for start in range(0, n, size)]

    def half_of_groups(self, slots: Index, weights: Array, num_groups: int) -> Array:
        n = self.num_rows
        groups = csr_array((weights, slots, np.arange(n + 1)), shape=(n, num_groups))
        # the whole buffer, whose rows are contiguous in memory and zero beyond n
        result: Array = (groups.T @ self._buffer[:n])[:, :n].T
        return result


class ExtendedFactor(RowFactor):
    """A factor with further rows after those of another factor, which is not changed.

    Args:
        base: The other factor, of ``n`` rows.
        covariances: ``n x m``; the covariances of its rows with the further ones.
        among: ``m x m``; the covariances among the further rows, noise included.
    """

    def __init__(self, base: RowFactor, covariances: Array, among: Array) -> None:
        """See the class."""
        self._base, self._known = base, base.half(covariances)
        self._rest = FreshFactor(among - self._known.T @ self._known)
        self.num_rows = base.num_rows + self._rest.num_rows
        self.log_determinant = base.log_determinant + self._rest.log_determinant

    def half(self, columns: Array) -> Array:
        n = self._base.num_rows
        return self._with_rest(self._base.half(columns[:n]), columns[n:])

    def back(self, values: Array) -> Array:
        n = self._base.num_rows
        rest = self._rest.back(values[n:])
        return np.concatenate([self._base.back(values[:n] - self._known @ rest), rest])

    def half_of_groups(self, slots: Index, weights: Array, num_groups: int) -> Array:
        n = self._base.num_rows
        columns = np.zeros((self.num_rows - n, num_groups))
        columns[np.arange(len(columns)), slots[n:]] = weights[n:]
        return self._with_rest(
            self._base.half_of_groups(slots[:n], weights[:n], num_groups), columns
        )

    def _with_rest(self, first: Array, columns: Array) -> Array:
        return np.concatenate([first, self._rest.half(columns - self._known.T @ first)])
