r"""A growing inverse Cholesky factor of :math:`K + \lambda I`.

With :math:`K + \lambda I = L L^\top` the inverse factor is :math:`L^{-1}`. New rows of the data are
new rows of it; what is there already never changes:

.. math::
   \ell = L^{-1} k, \qquad s^2 = k_0 + \lambda - \|\ell\|^2, \qquad
   L^{-1}_{\text{new row}} = \left( -\tfrac1s \ell^\top L^{-1}, \tfrac1s \right)

for one row, and the same with a small Cholesky factor in place of ``s`` for several. Products with
the inverse factor replace triangular solves. The inverse of :math:`K + \lambda I` itself is never
formed: its products lose twice as many digits.

Storage is packed: slabs of 128 rows, each as wide as its last row. At ``n = 1000`` it is 0.59
``n^2`` doubles. Full slabs never change and are shared between all factors that continue them.
The last slab is shared too: it has room for all its rows, each factor sees only its own rows of
it, and whoever is not the newest copies it (at most 128 rows) before writing.

**The same bits on every route.** Rows come in steps that depend on their number alone: every 16
rows form one step, only what is left of them comes row by row. When a row completes such a group,
its 16 rows are computed again as one step. So ``n`` rows added one by one, in blocks or all at once
have gone through the same arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from botorch_bandits.docstrings import fill_in_docstrings

STEP_ROWS = 16
"""Rows computed together; of ``n`` rows, the last ``n % STEP_ROWS`` come one by one."""

SLAB_ROWS = 128
"""Rows in one piece of memory; a multiple of ``STEP_ROWS``."""

SMALLEST_PIVOT = 0.5
"""Smallest accepted squared pivot, in noise variances; in exact arithmetic none is below 1."""

CovarianceBlock = Callable[[int, int], tuple[Tensor, Tensor]]
"""Gives for rows ``start`` to ``end`` their covariances with the rows before and the noisy
covariances among themselves, ``r x start`` and ``r x r``."""


class _Slab:
    """The last slab: its memory and how many of its rows are written."""

    def __init__(self, start: int, buffer: Tensor, num_written: int) -> None:
        self.start = start
        self.buffer = buffer
        self.num_written = num_written


@dataclass(frozen=True, eq=False)
class InverseFactor:
    """The inverse Cholesky factor of the first ``num_rows`` rows; see the module.

    It is a value: :meth:`extended` returns a new one and leaves this one as it was.

    Attributes:
        num_rows: ``n``.
        full: The full slabs in order, ``SLAB_ROWS x (start + SLAB_ROWS)`` each.
        pivots: The diagonal of ``L``, ``n``.
    """

    num_rows: int
    full: tuple[Tensor, ...]
    pivots: Tensor
    _last: _Slab | None = None

    @classmethod
    def empty(cls, like: Tensor) -> InverseFactor:
        """Return the factor of no rows, with the dtype and device of ``like``."""
        return cls(0, (), like.new_empty(0))

    def extended(
        self, num_rows: int, covariance: CovarianceBlock, noise: float
    ) -> InverseFactor | None:
        """Return the factor of ``num_rows`` rows, of which this one has the first.

        Args:
            num_rows: At least this factor's number of rows.
            covariance: See :data:`CovarianceBlock`; asked for one step at a time.
            noise: The noise variance that is on the diagonal.

        Returns:
            None if rounding makes the matrix indefinite or a pivot too small to be trusted.
        """
        grouped = num_rows // STEP_ROWS * STEP_ROWS
        factor: InverseFactor | None = self
        if self.num_rows < grouped:
            factor = self._first(self.num_rows // STEP_ROWS * STEP_ROWS)
        while factor is not None and factor.num_rows < num_rows:
            end = factor.num_rows + (STEP_ROWS if factor.num_rows < grouped else 1)
            factor = factor._step(*covariance(factor.num_rows, end), noise)
        return factor

    @cached_property
    def slabs(self) -> tuple[tuple[int, Tensor], ...]:
        """The first row of each slab and its ``rows x (start + rows)`` matrix."""
        pieces = [(SLAB_ROWS * i, slab) for i, slab in enumerate(self.full)]
        start = SLAB_ROWS * len(pieces)
        if self._last is not None and self.num_rows > start:
            pieces.append((start, self._last.buffer[: self.num_rows - start, : self.num_rows]))
        return tuple(pieces)

    def solve(self, rows: Tensor) -> Tensor:
        """Return ``rows @ L^-T``, that is ``L^-1`` times each row, ``b x n``."""
        if len(self.slabs) == 1:
            return rows @ self.slabs[0][1].mT
        solved = torch.empty_like(rows, memory_format=torch.contiguous_format)
        for start, slab in self.slabs:
            end = start + slab.shape[0]
            torch.mm(rows[:, :end], slab.mT, out=solved[:, start:end])
        return solved

    def solve_transposed(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Return ``rows @ L^-1``, that is ``L^-T`` times each row, ``b x n``.

        Args:
            rows: ``b x n``.
            out: Where to write it, ``b x n``; new memory if None.
        """
        if out is None:
            out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        *others, (last_start, last) = self.slabs
        torch.mm(rows[:, last_start:], last, out=out)  # the only slab as wide as the result
        for start, slab in others:
            end = start + SLAB_ROWS
            out[:, :end].addmm_(rows[:, start:end], slab)
        return out

    def weights(self, outcomes: Tensor, known: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return ``(K + lam I)^-1 y`` and the part of it that the full slabs give.

        Args:
            outcomes: ``y``, ``n``.
            known: The second result for a factor that this one continues, for the same first
                outcomes; saves its full slabs.
        """
        part = outcomes.new_empty(0) if known is None else known
        for slab in self.full[len(part) // SLAB_ROWS :]:
            end = slab.shape[1]
            part = torch.cat([part, part.new_zeros(SLAB_ROWS)])
            part.addmv_(slab.mT, slab @ outcomes[:end])
        if self.num_rows == len(part):
            return part, part
        _, last = self.slabs[-1]
        weights = torch.cat([part, part.new_zeros(self.num_rows - len(part))])
        return weights.addmv_(last.mT, last @ outcomes), part

    def information_gain(self, noise: float) -> Tensor:
        """Return ``1/2 ln det(I + K / lam)`` in nats, a scalar tensor."""
        gain = self.pivots.log().sum() - 0.5 * self.num_rows * math.log(noise)
        return gain.clamp_min(0.0)

    def _first(self, num_rows: int) -> InverseFactor:
        """The factor of the first rows, at most one step fewer."""
        return InverseFactor(num_rows, self.full, self.pivots[:num_rows], self._last)

    def _step(self, cross: Tensor, block: Tensor, noise: float) -> InverseFactor | None:
        """Add the rows with covariances ``cross`` to the old rows and ``block`` to each other."""
        num_new = block.shape[0]
        solved = self.solve(cross) if self.num_rows > 0 else cross
        remainder = torch.addmm(block, solved, solved.mT, alpha=-1.0)
        if num_new == 1:
            smallest = remainder.item()
            pivots = remainder.reshape(1).sqrt()
            corner = pivots.reciprocal().unsqueeze(-1)
        else:
            cholesky, info = torch.linalg.cholesky_ex(remainder)
            pivots = cholesky.diagonal()
            smallest = pivots.min().item() ** 2 if info.item() == 0 else -math.inf
            identity = torch.eye(num_new, dtype=block.dtype, device=block.device)
            corner = torch.linalg.solve_triangular(cholesky, identity, upper=False)
        if not smallest >= SMALLEST_PIVOT * noise:  # NaN fails too
            return None
        last = self._writable()
        old = self.num_rows - last.start
        rows = last.buffer[old : old + num_new]
        if self.num_rows > 0:
            left = rows[:, : self.num_rows]
            if num_new == 1:
                self.solve_transposed(solved, out=left).mul_(corner).neg_()
            else:
                torch.mm(corner.neg(), self.solve_transposed(solved), out=left)
        rows[:, self.num_rows : self.num_rows + num_new].copy_(corner)
        last.num_written = old + num_new
        pivots = torch.cat([self.pivots, pivots])
        num_rows = self.num_rows + num_new
        if last.num_written == SLAB_ROWS:
            return InverseFactor(num_rows, (*self.full, last.buffer), pivots)
        return InverseFactor(num_rows, self.full, pivots, last)

    def _writable(self) -> _Slab:
        """The last slab if this factor is the newest on it, else a copy with this one's rows."""
        start = len(self.full) * SLAB_ROWS
        num_rows = self.num_rows - start
        last = self._last
        if last is not None and last.num_written == num_rows:
            return last
        buffer = self.pivots.new_empty(SLAB_ROWS, start + SLAB_ROWS)
        buffer[:, start:] = 0.0  # above the diagonal
        if last is not None:
            buffer[:num_rows, : self.num_rows] = last.buffer[:num_rows, : self.num_rows]
        return _Slab(start, buffer, num_rows)


fill_in_docstrings(__name__)
