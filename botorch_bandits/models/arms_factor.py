r"""The running factor behind the posterior on arms: covariance, mean, variance and gain.

The posterior covariance is ``S_0 - R' R`` with rows ``R`` that grow by one an observation;
:mod:`botorch_bandits.models.arms_posterior` says what happens when there are many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from linear_operator.utils.cholesky import psd_safe_cholesky
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.models.arms_prior import LARGEST_MATRIX, ArmsPrior

SMALLEST_BUFFER = 64
"""Rows that are kept before the posterior decides how to go on."""

DENSE_BLOCK = 32
"""Rows that are folded into a dense covariance at a time: one product of matrices is fast."""

ROW_COST = 2.5
"""Rows of distinct arms cost as much a round as a dense covariance of this many arms each."""


@dataclass(eq=False, slots=True)
class _Memory:
    """The memory of a single stream, as numpy sees it."""

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    statistics: NDArray[np.float64]
    gain: NDArray[np.float64]
    rows: NDArray[np.float64]
    row_arms: NDArray[np.int64]
    row_scale: NDArray[np.float64]
    row_valid: NDArray[np.bool_]
    lam: float


class ArmsFactor:
    """State and arithmetic, always with one batch dimension ``B``; nothing is checked here.

    Args:
        prior: The prior covariance of the arms.
        lam: ``B x 1``; the regularisation of each replicate.
    """

    def __init__(self, prior: ArmsPrior, lam: Tensor) -> None:
        """See the class."""
        self.prior = prior
        self._lam = lam
        diagonal = prior.diagonal
        self._statistics = diagonal.new_zeros(3, len(lam), self.num_arms)
        self._mean = diagonal.new_zeros(len(lam), self.num_arms)
        self._variance = diagonal.expand(len(lam), -1).clone()
        self._gain = diagonal.new_zeros(len(lam))
        self._base: Tensor | None = None
        self._allocate(SMALLEST_BUFFER)
        self._num_rows, self._row_limit = 0, SMALLEST_BUFFER

    @property
    def num_arms(self) -> int:
        """How many arms there are."""
        return self.prior.num_arms

    @property
    def device(self) -> torch.device:
        """Where the arithmetic runs."""
        return self._mean.device

    @property
    def all_arms(self) -> Tensor:
        """The arm numbers."""
        return torch.arange(self.num_arms, device=self._mean.device)

    def refactorise(self) -> None:
        """Compute everything afresh from the statistics, and choose the form of ``S_0``."""
        self._compact()
        self._choose_form()

    def _allocate(self, num_rows: int) -> None:
        shape = (len(self._gain), num_rows)
        self._rows = self._mean.new_empty(*shape, self.num_arms)
        self._row_arms = torch.zeros(shape, dtype=torch.long, device=self._mean.device)
        self._row_scale = self._mean.new_ones(shape)
        self._row_valid = torch.zeros(shape, dtype=torch.bool, device=self._mean.device)
        self._share_memory()

    def _share_memory(self) -> None:
        self._counts, self._sums, self._squares = self._statistics
        if len(self._gain) == 1 and self._mean.device.type == "cpu":
            self._memory = _Memory(
                mean=self._mean.numpy()[0],
                variance=self._variance.numpy()[0],
                statistics=self._statistics.numpy()[:, 0],
                gain=self._gain.numpy(),
                rows=self._rows.numpy()[0],
                row_arms=self._row_arms.numpy()[0],
                row_scale=self._row_scale.numpy()[0],
                row_valid=self._row_valid.numpy()[0],
                lam=float(self._lam),
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what shares memory with the rest."""
        shared = ("_memory", "_counts", "_sums", "_squares")
        return {name: value for name, value in self.__dict__.items() if name not in shared}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Share memory again."""
        self.__dict__.update(state)
        self._share_memory()

    def _columns(self, index: Tensor) -> Tensor:
        """``B x k`` arms to the ``B x k x num_arms`` columns of their posterior covariance."""
        if self._base is None:
            columns = self.prior.columns(index)
        else:
            columns = self._base.gather(-2, index.unsqueeze(-1).expand(-1, -1, self.num_arms))
        if self._num_rows == 0:
            return columns
        rows = self._rows[:, : self._num_rows]
        at_arms = rows.gather(-1, index.unsqueeze(-2).expand(-1, self._num_rows, -1))
        return torch.baddbmm(columns, at_arms.mT, rows, alpha=-1.0)

    def _gains_of(self, simulated: Tensor) -> Tensor:
        """``B x num_arms`` mean outcomes of the arms to the posterior mean that they would make."""
        n = self._num_rows
        if self._base is not None:
            weights = (simulated * self._counts / self._lam).unsqueeze(-1)
            gains = self._base @ weights
            if n:
                rows = self._rows[:, :n]
                gains -= rows.mT @ (rows @ weights)
            return gains.squeeze(-1)
        if n == 0:
            return torch.zeros_like(simulated)
        arms, rows = self._row_arms[:, :n], self._rows[:, :n]
        factor = rows.gather(-1, arms.unsqueeze(-2).expand(-1, n, -1)).mT.tril(-1)
        factor = factor * self._row_valid[:, :n].unsqueeze(-1)
        factor.diagonal(dim1=-2, dim2=-1).copy_(self._row_scale[:, :n])
        weights = torch.linalg.solve_triangular(
            factor, simulated.gather(-1, arms).unsqueeze(-1), upper=False
        )
        return (weights.mT @ rows).squeeze(-2)

    def _forget_all(self) -> None:
        self._base, self._num_rows, self._row_limit = None, 0, SMALLEST_BUFFER
        self._forget(torch.ones_like(self._gain, dtype=torch.bool))

    def _forget(self, mask: Tensor) -> None:
        self._statistics[:, mask] = 0.0
        self._mean[mask] = 0.0
        self._variance[mask] = self.prior.diagonal
        self._gain[mask] = 0.0
        self._rows[mask] = 0.0
        self._row_valid[mask] = False
        if self._base is not None:
            self._base[mask] = self.prior.columns(self.all_arms)

    def _observe_one(self, arm: int, outcome: float) -> None:
        # numpy on the same memory: calls of torch would cost more than the arithmetic
        if self._num_rows == self._row_limit:
            self._make_room()
        n, memory = self._num_rows, self._memory
        base = self.prior.column(arm) if self._base is None else self._base[0, arm]
        column = base.numpy()
        if n:
            column = column - memory.rows[:n, arm] @ memory.rows[:n]
        before = max(float(memory.variance[arm]), 0.0)
        scale = math.sqrt(before + memory.lam)
        row = np.divide(column, scale, out=memory.rows[n])
        memory.mean += row * ((outcome - float(memory.mean[arm])) / scale)
        memory.variance -= row * row
        memory.gain[0] += 0.5 * math.log1p(before / memory.lam)
        memory.statistics[0, arm] += 1.0
        memory.statistics[1, arm] += outcome
        memory.statistics[2, arm] += outcome * outcome
        memory.row_arms[n] = arm
        memory.row_scale[n] = scale
        memory.row_valid[n] = True
        self._num_rows = n + 1

    def _observe_batch(self, arm: Tensor, outcome: Tensor, mask: Tensor | None) -> None:
        if self._num_rows == self._row_limit:
            self._make_room()
        n = self._num_rows
        index = arm.unsqueeze(-1)
        column = self._columns(index).squeeze(-2)
        before = self._variance.gather(-1, index).clamp_min_(0.0)
        scale = (before + self._lam).sqrt_()
        row = column.div_(scale)
        gain = torch.log1p(before.div_(self._lam)).mul_(0.5).squeeze(-1)
        one = torch.ones_like(scale)
        if mask is not None:
            row = row.mul_(mask.unsqueeze(-1))
            gain, one = gain * mask, one * mask.unsqueeze(-1)
        residual = (outcome.unsqueeze(-1) - self._mean.gather(-1, index)).div_(scale)
        self._rows[:, n] = row
        self._mean.addcmul_(row, residual)
        self._variance.addcmul_(row, row, value=-1.0)
        self._gain += gain
        values = torch.stack([one, outcome.unsqueeze(-1), outcome.unsqueeze(-1) ** 2])
        self._statistics.scatter_add_(-1, index.expand_as(values), values)
        self._row_arms[:, n] = arm
        self._row_scale[:, n] = scale.squeeze(-1)
        self._row_valid[:, n] = True if mask is None else mask
        if mask is not None:  # a row that does not count has a factor of its own, 1
            self._row_scale[:, n].masked_fill_(~mask, 1.0)
        self._num_rows = n + 1

    def _make_room(self) -> None:
        if self._base is None:
            self._compact()
            self._choose_form()
        else:
            rows = self._rows[:, : self._num_rows]
            self._base.baddbmm_(rows.mT, rows, alpha=-1.0)
            self._variance.copy_(self._base.diagonal(dim1=-2, dim2=-1))
            self._num_rows = 0

    def _choose_form(self) -> None:
        """Behind :meth:`_compact`: keep the rows of the distinct arms, or fold them."""
        few = ROW_COST * self._num_rows < self.num_arms
        if few or self.num_arms > LARGEST_MATRIX or self._num_rows <= SMALLEST_BUFFER // 2:
            self._row_limit = max(SMALLEST_BUFFER, 2 * self._num_rows)
            return
        rows = self._rows[:, : self._num_rows]
        self._base = torch.baddbmm(
            self.prior.columns(self.all_arms).expand(len(rows), -1, -1), rows.mT, rows, alpha=-1.0
        )
        self._num_rows, self._row_limit = 0, DENSE_BLOCK

    def _compact(self) -> None:
        """Turn the rows into those of the distinct arms played, from the statistics alone."""
        self._base = None
        played = self._counts > 0
        p = int(played.sum(-1).max())
        if 2 * p > self._rows.shape[1]:
            self._allocate(max(SMALLEST_BUFFER, 2 * p))
        self._num_rows = p
        if p == 0:
            self._mean.zero_()
            self._variance.copy_(self.prior.diagonal.expand_as(self._variance))
            self._gain.zero_()
            return
        # replicates that played fewer arms fill up with rows that do not count
        index = torch.sort(played.to(torch.int8), dim=-1, descending=True, stable=True).indices
        index = index[:, :p]
        valid = played.gather(-1, index)
        counts = self._counts.gather(-1, index).clamp_min(1.0)
        columns = self.prior.columns(index) * valid.unsqueeze(-1)  # B x p x num_arms
        block = columns.gather(-1, index.unsqueeze(-2).expand(-1, p, -1)) * valid.unsqueeze(-2)
        noise = (self._lam / counts).where(valid, torch.ones_like(counts))
        block.diagonal(dim1=-2, dim2=-1).add_(noise)
        # in units of the prior variance; an absolute jitter would be lost on large ones
        jitter = 1e-14 * float(self.prior.diagonal.max())
        factor = psd_safe_cholesky(block, jitter=jitter, max_tries=4)
        means = self._sums.gather(-1, index) / counts * valid
        right = torch.cat([columns, means.unsqueeze(-1)], dim=-1)
        solved = torch.linalg.solve_triangular(factor, right, upper=False)
        rows, weights = solved[..., :-1], solved[..., -1:]
        self._rows[:, :p] = rows
        self._mean.copy_((rows.mT @ weights).squeeze(-1))
        self._variance.copy_(self.prior.diagonal - rows.square().sum(-2))
        scale = factor.diagonal(dim1=-2, dim2=-1)
        logs = scale.log() + 0.5 * (counts / self._lam).log()
        self._gain.copy_((logs * valid).sum(-1))
        self._row_arms[:, :p] = index
        self._row_scale[:, :p] = scale
        self._row_valid[:, :p] = valid
