r"""Inverse Cholesky factors without their first rows, in one pass over the remaining ones.

Partition the inverse factor of all rows into blocks, with the first ``r`` rows in front:

.. math::
   L^{-1} = \begin{pmatrix} W_{11} & 0 \\ W_{21} & W_{22} \end{pmatrix}, \qquad
   U = W_{21} W_{11}^{-1}, \qquad C C^\top = I + U U^\top ,

The inverse factor of the other rows is then :math:`C^{-1} W_{22}`. It is computed by blocks of
rows. With :math:`S = I + U^\top U` and :math:`G = U^\top W_{22}`, both over the rows above a block
``b``,

.. math::
   C_{bb} C_{bb}^\top = I + U_b S^{-1} U_b^\top, \qquad
   W'_b = C_{bb}^{-1} \left( (W_{22})_b - U_b S^{-1} G \right) .

No difference of large numbers occurs: pivots only grow, and a matrix that could be factorized can
still be factorized without its first rows. This takes about ``n^2 (r + 32)`` operations in matrix
products, while a factorization takes ``n^3``.

Source: the marginal precision of a Gaussian, :math:`P_{22} - P_{21} P_{11}^{-1} P_{12}`, with
:math:`P = L^{-\top} L^{-1}`, and the inverse of a matrix of low rank plus the unit matrix.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from botorch_bandits.models.closed_form import SLAB_ROWS, ClosedForm, InverseFactor, _Slab

BLOCK = 64
"""Rows that are computed together; ``SLAB_ROWS`` is a multiple of it."""


class _Deletion:
    """What is accumulated over the rows above a block.

    Args:
        first: ``... x r x r``; :math:`W_{11}`.
        num_left: The number of remaining rows.
    """

    def __init__(self, first: Tensor, num_left: int) -> None:
        """Start without rows."""
        self._first, self._num_deleted = first, first.shape[-1]
        identity = torch.eye(self._num_deleted, dtype=first.dtype, device=first.device)
        self._gram = identity.expand_as(first).clone()
        self._sums = first.new_zeros(*first.shape[:-1], num_left)
        self._start = 0

    def block(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next rows of the result, and the factors by which their pivots grow.

        Args:
            rows: ``... x b x (r + start + b)``; the same rows of the original factor.

        Returns:
            ``... x b x (start + b)`` and ``... x b``.
        """
        start, end = self._start, self._start + rows.shape[-2]
        left, own = rows[..., : self._num_deleted], rows[..., self._num_deleted :]
        shares = torch.linalg.solve_triangular(self._first, left, upper=False, left=False)
        root = torch.linalg.cholesky(self._gram)
        scaled = torch.linalg.solve_triangular(root, shares.mT, upper=False)
        own_gram = scaled.mT @ scaled
        own_gram.diagonal(dim1=-2, dim2=-1).add_(1.0)
        corner = torch.linalg.cholesky(own_gram)
        new = own.clone()
        if start:
            above = torch.linalg.solve_triangular(root, self._sums[..., :start], upper=False)
            new[..., :start] -= scaled.mT @ above
        self._sums[..., :end] += shares.mT @ own
        self._gram = self._gram + shares.mT @ shares
        self._start = end
        new = torch.linalg.solve_triangular(corner, new, upper=False)
        return new, corner.diagonal(dim1=-2, dim2=-1)


def without_first_rows(factor: InverseFactor, num_rows: int) -> InverseFactor:
    """Return the inverse factor of all rows but the first ones.

    Args:
        factor: The factor of all rows, which is not changed.
        num_rows: The number of rows to leave out, fewer than there are.
    """
    if num_rows == 0:
        return factor
    num_left = factor.num_rows - num_rows
    deletion = _Deletion(_rows_of(factor, 0, num_rows), num_left)
    full: list[Tensor] = []
    pivots = factor.pivots[num_rows:].clone()
    buffer = pivots.new_empty(0)
    for start in range(0, num_left, BLOCK):
        end = min(start + BLOCK, num_left)
        first = start // SLAB_ROWS * SLAB_ROWS
        if first == start:
            buffer = pivots.new_empty(SLAB_ROWS, first + SLAB_ROWS)
            buffer[:, first:] = 0.0  # above the diagonal
        rows, growth = deletion.block(_rows_of(factor, num_rows + start, num_rows + end))
        buffer[start - first : end - first, :end] = rows
        pivots[start:end] *= growth
        if end == first + SLAB_ROWS:
            full.append(buffer)
    first = len(full) * SLAB_ROWS
    last = _Slab(first, buffer, num_left - first) if first < num_left else None
    return InverseFactor(num_left, tuple(full), pivots, last)


def posterior_without_first_rows(
    posterior: ClosedForm, num_rows: int, others: ClosedForm | None = None
) -> ClosedForm:
    """Return the posterior given all rows but the first ones.

    Args:
        posterior: The posterior given all rows, which is not changed.
        num_rows: The number of rows to leave out, fewer than there are.
        others: A result of this function for a posterior that shares its factor with this one, if
            there is any; its factor is reused.
    """
    factor = without_first_rows(posterior.factor, num_rows) if others is None else others.factor
    outcomes = posterior.outcomes[num_rows:].clone()
    weights, full_weights = factor.weights(outcomes)
    return replace(
        posterior,
        points=posterior.points[num_rows:].clone(),
        outcomes=outcomes,
        factor=factor,
        weights=weights,
        full_weights=full_weights,
        deleted=posterior.points[:num_rows].clone(),
    )


def inverse_without_first_rows(inverse: Tensor, num_rows: int) -> Tensor:
    """Return dense inverse factors of all rows but the first ones.

    Args:
        inverse: ``... x n x n``, lower triangular.
        num_rows: The number of rows to leave out, fewer than ``n``.

    Returns:
        ``... x (n - num_rows) x (n - num_rows)``.
    """
    if num_rows == 0:
        return inverse
    num_left = inverse.shape[-1] - num_rows
    deletion = _Deletion(inverse[..., :num_rows, :num_rows], num_left)
    result = inverse.new_zeros(*inverse.shape[:-2], num_left, num_left)
    for start in range(0, num_left, BLOCK):
        end = min(start + BLOCK, num_left)
        rows = inverse[..., num_rows + start : num_rows + end, : num_rows + end]
        result[..., start:end, :end], _ = deletion.block(rows)
    return result


def _rows_of(factor: InverseFactor, start: int, end: int) -> Tensor:
    """Return some rows of a factor up to the last one's diagonal, ``(end - start) x end``."""
    rows = factor.pivots.new_zeros(end - start, end)
    for first, slab in factor.slabs:
        low, high = max(start, first), min(end, first + len(slab))
        if low < high:
            width = min(end, slab.shape[1])
            rows[low - start : high - start, :width] = slab[low - first : high - first, :width]
    return rows
