r"""Exact Gaussian-process posteriors of a finite set of points, given rows that come and go.

With the covariance of the rows factorized as ``L S L' = K + lam N`` (``S`` is diagonal, 1 or -1),

    V = L^-1 K(rows, points)         z = L^-1 (Y - prior mean)
    mean = prior mean + V' S z       variance = k(x, x) - sum_i s_i V_i^2
    gain = 1/2 ln det(K + lam N) - 1/2 ln det(lam N)

A new row is a new row of ``V`` and ``z``, ``n A`` operations: with ``k_n`` its covariances with all
points, ``x_n`` its point and ``v`` the variance there before it,

    p = sqrt(|v + lam N_n|)          V_n = (k_n - sum_i s_i V_i(x_n) V_i) / p
    z_n = s_n (y_n - mean(x_n)) / p  mean += z_n V_n,  variance -= s_n V_n^2

A row is taken back by another one with ``-N_n`` in place of its noise: ``v - lam N_n`` is negative,
and so is ``s_n``. Both together leave everything as it was before them. So a row that leaves a
window, fades, or has another outcome costs as much as one that comes.

:class:`Posterior` has these formulas for ``G`` priors and ``m`` outputs at once; replicates are
priors with rows of their own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.core.priors import Stack, cholesky
from botorch_bandits.core.rows import Rows

FIRST_ROOM = 64
"""Rows for which there is memory at first."""
FOLDED_AT_ONCE = 32
"""Rows that are folded into a covariance of all points at a time, by one fast product."""
ROW_COST = 2.5
"""A kept row costs as much in each round as this many points of a folded covariance."""
MOST_FOLDS = 64
"""After so many folds everything is factorized anew, which ends the accumulation of rounding."""
LARGEST_FOLDED = 2**26
"""Entries of folded covariances of all priors (512 MiB)."""


class _Single(NamedTuple):
    """The memory of a single posterior on the CPU, as NumPy sees it.

    A row of a few hundred numbers takes a NumPy call a microsecond and a PyTorch call five, and
    long runs are made of such rows.
    """

    V: NDArray[np.float64]  # room x A
    sign: NDArray[np.float64]  # room
    mean: NDArray[np.float64]  # m x A
    variance: NDArray[np.float64]  # A
    log_det: NDArray[np.float64]  # 1
    base: NDArray[np.float64] | None  # A x A, from which rows are taken
    lam: float
    product: NDArray[np.float64]  # A, for results in between


class Posterior:
    """The posteriors of ``G`` priors and ``m`` outputs at ``A`` points.

    Attributes:
        prior: The priors.
        lam: ``G`` noise variances of one observation.
        mean: ``G x m x A``, in raw units; changed in place by the next row.
        variance: ``G x A``, changed in place; rounding can make it slightly negative.
        rows: What the posterior is conditioned on.
        num_kept: ``n``, the rows of ``V`` in use.
        folded: ``G x A x A``, the covariance into which earlier rows were folded; None if it is
            the prior's.
    """

    def __init__(
        self,
        prior: Stack,
        lam: Tensor,
        num_outputs: int = 1,
        prior_mean: Tensor | float = 0.0,
    ) -> None:
        """See the class; without rows.

        Args:
            prior: The priors; a single one may serve all ``G`` replicates.
            lam: ``G`` noise variances.
            num_outputs: ``m``.
            prior_mean: One number, or ``G x m``.
        """
        self.prior, self.lam = prior, lam
        self._prior_mean = torch.as_tensor(prior_mean, dtype=lam.dtype, device=lam.device).expand(
            len(lam), num_outputs
        )
        self._begin()

    def _begin(self) -> None:
        groups, outputs, points = len(self.lam), self._prior_mean.shape[1], self.prior.num_points
        self.mean = self._prior_mean.unsqueeze(-1).expand(-1, -1, points).clone()
        self.variance = self.lam.new_zeros(groups, points)
        self.variance += self.prior.variances()
        self.rows = Rows.empty(outputs, self.lam)
        self.folded: Tensor | None = None
        self.num_kept = 0
        self._log_det = self.lam.new_zeros(groups)
        self._V = self.lam.new_empty(groups, FIRST_ROOM, points)
        self._sign = self.lam.new_ones(FIRST_ROOM)
        self._has_signs = False
        self._forget_columns()
        self._share_memory()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the view of the memory by NumPy."""
        return {**vars(self), "_single": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """See the memory by NumPy again."""
        self.__dict__.update(state)
        self._share_memory()

    def _share_memory(self) -> None:
        self._single: _Single | None = None
        if self.batch == 1 and self.lam.device.type == "cpu":
            self._single = _Single(
                self._V[0].numpy(),
                self._sign.numpy(),
                self.mean[0].numpy(),
                self.variance[0].numpy(),
                self._log_det.numpy(),
                self._whole_in_numpy(),
                float(self.lam),
                np.empty(self.prior.num_points),
            )

    def _whole_in_numpy(self) -> NDArray[np.float64] | None:
        whole = self.prior.matrices if self.folded is None else self.folded
        return None if whole is None else whole[0].numpy()

    @property
    def batch(self) -> int:
        """``G``."""
        return len(self.lam)

    def group(self, number: int) -> Posterior:
        """Return the posterior of one of the ``G`` priors, which shares the memory of this one."""
        own, some = copy.copy(self), slice(number, number + 1)
        own.prior = Stack([self.prior.priors[number]])
        own.lam, own._prior_mean = self.lam[some], self._prior_mean[some]
        own.mean, own.variance = self.mean[some], self.variance[some]
        own._V, own._log_det = self._V[some], self._log_det[some]
        own.folded = None if self.folded is None else self.folded[some]
        return own

    @property
    def gain(self) -> Tensor:
        """``G`` realized information gains ``1/2 ln det(I + K / lam)`` of the rows, in nats."""
        return 0.5 * self._log_det

    def set_prior_mean(self, value: float) -> None:
        """Set another prior mean; the rows must be factorized again before anything else."""
        self._prior_mean = torch.full_like(self._prior_mean, value)

    def factorize(self, rows: Rows) -> Posterior:
        """Condition on exactly these rows, from scratch: ``n^2 (n / 3 + A)`` operations.

        Args:
            rows: The rows; with one row for each place this is cheapest.
        """
        n, groups = len(rows), self.batch
        self.rows, self.folded, self.num_kept = rows, None, n
        self._forget_columns()
        self._make_room(n, copies=False)
        prior = self.prior.variances()
        if n == 0:
            self.mean.copy_(self._prior_mean.unsqueeze(-1).expand_as(self.mean))
            self.variance.copy_(prior.expand_as(self.variance))
            self._log_det.zero_()
            return self
        factor, self._log_det[:] = factorized(self.prior, self.lam, rows)
        # V = L^-1 K(rows, points), z = L^-1 (Y - prior mean)
        columns = self.prior.columns(rows.index).expand(groups, -1, -1)
        V = torch.linalg.solve_triangular(factor, columns, upper=False)
        self._V[:, :n] = V
        residual = rows.Y - self._prior_mean.unsqueeze(-2)  # G x n x m
        z = torch.linalg.solve_triangular(factor, residual, upper=False)
        torch.add(self._prior_mean.unsqueeze(-1), z.mT @ V, out=self.mean)
        torch.sub(prior, torch.linalg.vecdot(V, V, dim=-2), out=self.variance)
        return self

    def add(self, index: int, outcomes: Sequence[float], noise: float = 1.0) -> Posterior:
        """Condition on one more row, the same in all ``G``: ``n A`` operations each.

        Args:
            index: The number of its point.
            outcomes: ``m`` outcomes in raw units.
            noise: Its multiple of the noise variance; negative to take an earlier row back.
        """
        n, sign = self.num_kept, 1.0 if noise > 0.0 else -1.0
        if n == len(self._sign):
            self._make_room(2 * n)
        if self._has_signs or sign < 0.0:
            self._sign[n], self._has_signs = sign, True
        if self._single is None:
            self._add_to_all(index, self.lam.new_tensor(outcomes), noise, sign)
        else:
            self._add_to_one(self._single, index, outcomes, noise, sign)
        self.num_kept = n + 1
        return self

    def _add_to_all(self, index: int, outcomes: Tensor, noise: float, sign: float) -> None:
        column = self._column(index)  # G x A
        total = self.variance[:, index] + self.lam * noise  # G
        pivot = (sign * total).sqrt_()
        row = torch.div(column, pivot.unsqueeze(-1), out=self._V[:, self.num_kept])
        step = (outcomes - self.mean[:, :, index]).div_((sign * pivot).unsqueeze(-1))  # G x m
        self.mean.addcmul_(step.unsqueeze(-1), row.unsqueeze(1))
        self.variance.addcmul_(row, row, value=-sign)
        self._log_det += total.div_(self.lam * noise).log_()

    def _add_to_one(
        self, own: _Single, index: int, outcomes: Sequence[float], noise: float, sign: float
    ) -> None:
        """Do the same for a single posterior, in its memory."""
        n, product = self.num_kept, own.product
        row, first = own.V[n], 0
        if own.base is None:
            column, first = self._start_of_column(index)
            known = column.numpy()[0]
        else:
            known = own.base[index]
        if n > first:
            at_index = own.V[first:n, index]
            if self._has_signs:
                at_index = at_index * own.sign[first:n]
            known = np.subtract(known, np.dot(at_index, own.V[first:n], out=product), out=row)
        total = float(own.variance[index]) + own.lam * noise
        pivot = math.sqrt(sign * total)
        np.divide(known, pivot, out=row)
        for mean, outcome in zip(own.mean, outcomes, strict=True):
            np.multiply(row, (outcome - float(mean[index])) / (sign * pivot), out=product)
            mean += product
        np.multiply(row, row, out=product)
        change = np.subtract if sign > 0.0 else np.add
        change(own.variance, product, out=own.variance)
        own.log_det[0] += math.log(total / (own.lam * noise))

    def add_each(self, index: Tensor, outcome: Tensor, mask: Tensor | None = None) -> Posterior:
        """Condition each of ``G`` replicates on a point of its own.

        Args:
            index: ``G`` numbers of points.
            outcome: ``G x m`` outcomes.
            mask: ``G``, which replicates have an outcome; None for all.
        """
        n, groups = self.num_kept, torch.arange(self.batch, device=index.device)
        if n == len(self._sign):
            self._make_room(2 * n)
        if self.folded is None:
            column = self.prior.columns(index.unsqueeze(-1))  # G x 1 x A
        else:
            column = self.folded[groups, index].unsqueeze(1)
        if n:
            V = self._V[:, :n]
            own = V.gather(-1, index.view(-1, 1, 1).expand(-1, n, 1))  # G x n x 1
            column = torch.baddbmm(column, own.mT, V, alpha=-1.0)
        total = self.variance[groups, index] + self.lam
        pivot = total.sqrt()
        keep = torch.ones_like(pivot) if mask is None else mask.to(pivot)
        row = torch.mul(column.squeeze(1), (keep / pivot).unsqueeze(-1), out=self._V[:, n])
        at = self.mean.gather(-1, index.view(-1, 1, 1).expand(-1, self.mean.shape[1], 1))
        step = (outcome - at.squeeze(-1)).nan_to_num_() / pivot.unsqueeze(-1)  # G x m
        self.mean.addcmul_(step.unsqueeze(-1), row.unsqueeze(1))
        self.variance.addcmul_(row, row, value=-1.0)
        self._log_det += keep * total.div_(self.lam).log_()
        self.num_kept = n + 1
        return self

    def forget(self, mask: Tensor) -> None:
        """Take all rows back in some of the ``G`` replicates.

        Args:
            mask: ``G``, which replicates start again from the prior.
        """
        self._V[mask] = 0.0  # rows of zeros change nothing
        self.mean[mask] = self._prior_mean[mask].unsqueeze(-1)
        self.variance[mask] = self.prior.variances().expand_as(self.variance)[mask]
        self._log_det[mask] = 0.0
        if self.folded is not None:
            every = torch.arange(self.prior.num_points, device=mask.device)
            self.folded[mask] = self.prior.columns(every)

    def factorize_each(self, weight: Tensor, sums: Tensor) -> Posterior:
        """Condition ``G`` replicates on their own rows, one for each point that was observed.

        Args:
            weight: ``G x A``, the number of observations of each point; 0 for none.
            sums: ``G x m x A``, the sums of their outcomes.
        """
        observed = weight > 0.0
        n = int(observed.sum(-1).max())
        self.num_kept, self.folded = n, None
        self._make_room(n, copies=False)
        # each replicate's points in their order, then others as rows of zeros
        order = observed.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
        index = order[:, :n]  # G x n
        valid = observed.gather(-1, index)
        count = weight.gather(-1, index).masked_fill_(~valid, 1.0)
        columns = self.prior.columns(index) * valid.unsqueeze(-1)  # G x n x A
        block = columns.gather(-1, index.unsqueeze(-2).expand(-1, n, -1)) * valid.unsqueeze(-2)
        noise = (self.lam.unsqueeze(-1) / count).masked_fill_(~valid, 1.0)
        block.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor = cholesky(block)
        residual = sums.gather(-1, index.unsqueeze(1).expand(-1, sums.shape[1], -1)).mT
        residual = (residual / count.unsqueeze(-1) - self._prior_mean.unsqueeze(-2)) * (
            valid.unsqueeze(-1)
        )
        V = torch.linalg.solve_triangular(factor, columns, upper=False)
        z = torch.linalg.solve_triangular(factor, residual, upper=False)
        self._V[:, :n] = V
        torch.add(self._prior_mean.unsqueeze(-1), z.mT @ V, out=self.mean)
        torch.sub(self.prior.variances(), torch.linalg.vecdot(V, V, dim=-2), out=self.variance)
        logs = 2.0 * factor.diagonal(dim1=-2, dim2=-1).log() - noise.log()
        self._log_det.copy_((logs * valid).sum(-1))
        return self

    def fold(self) -> None:
        """Turn the rows into one dense covariance of all points, which is cheaper for many rows."""
        V = self._V[:, : self.num_kept]
        if self.folded is None:
            every = torch.arange(self.prior.num_points, device=V.device)
            whole = self.prior.columns(every)  # 1 or G x A x A
            self.folded = whole.expand(self.batch, -1, -1).clone()
        self.folded.baddbmm_(self._signed(V).mT, V, alpha=-1.0)
        self.num_kept = 0
        self._share_memory()

    def may_fold(self, num_places: int) -> bool:
        """Return whether folding pays with so many distinct rows, and fits into memory."""
        points = self.prior.num_points
        fits = self.batch * points**2 <= LARGEST_FOLDED
        return ROW_COST * num_places > points and fits

    def columns(self, index: Tensor) -> Tensor:
        """Return the posterior covariances of points with all points, ``G x k x A``.

        Args:
            index: ``k`` numbers of points, or ``G x k``.
        """
        V = self._V[:, : self.num_kept]
        if index.dim() == 2:
            at = V.gather(-1, index.unsqueeze(-2).expand(-1, self.num_kept, -1))  # G x n x k
        else:
            at = V[:, :, index]
        return self._base(index) - self._signed(at).mT @ V

    def variance_given(self, index: Tensor) -> Tensor:
        """Return the variances if points were observed once more, whatever their outcomes.

        Args:
            index: ``k`` numbers of points, or ``G x k``.
        """
        return self.variance - explained_by(self.columns(index), index, self.lam)

    def deviation_of_draw(self, function: Tensor, normal: Tensor, rows: Rows) -> Tensor:
        r"""Return a joint draw less the mean, by Matheron's rule, ``G x k x A``.

        A draw ``f`` of the prior has simulated outcomes :math:`e_i = f(x_i) + \sqrt{\lambda N_i}\,
        n_i` at the rows; the draw is ``f`` less the posterior mean that these would have caused,
        ``S(., rows) e / (lam N)`` with the posterior covariance ``S``.

        Args:
            function: ``G x k x A``, draws of the prior.
            normal: ``G x k x n`` standard normal numbers of the rows.
            rows: The collapsed rows, without fronts; or for replicates one row for each point,
                with infinite noise where nothing was observed.
        """
        precision = 1.0 / (self.lam.unsqueeze(-1) * rows.noise)  # G x n
        weights = precision.unsqueeze(-2) * function[..., rows.index]
        weights += precision.sqrt().unsqueeze(-2) * normal  # e / (lam N), G x k x n
        V = self._V[:, : self.num_kept]
        known = self._signed(V[:, :, rows.index]) @ weights.mT  # G x rows of V x k
        return function - weights @ self._base(rows.index) + known.mT @ V

    def _signed(self, rows: Tensor, first: int = 0) -> Tensor:
        """Multiply ``G x n x k`` rows of ``V``, from a first one on, by their signs."""
        if not self._has_signs:
            return rows
        return rows * self._sign[first : first + rows.shape[1]].unsqueeze(-1)

    def _base(self, index: Tensor) -> Tensor:
        """Return columns of the covariance from which the rows are taken, ``G x k x A``."""
        whole = self.prior.matrices if self.folded is None else self.folded
        every = torch.arange(self.prior.num_points, device=index.device)
        if whole is not None and torch.equal(index, every):
            return whole
        if self.folded is None:
            return self.prior.columns(index)
        if index.dim() == 1:
            return self.folded[:, index]
        return self.folded.gather(1, index.unsqueeze(-1).expand(-1, -1, self.folded.shape[-1]))

    def _forget_columns(self) -> None:
        self._slot_of: dict[int, int] = {}
        self._kept_columns = self.lam.new_empty(self.batch, 0, self.prior.num_points)
        self._num_counted = 0  # rows that the kept columns account for

    def _start_of_column(self, index: int) -> tuple[Tensor, int]:
        """Return a point's covariances with all points, ``G x A``, and the first row to take off.

        Of very many points no matrix is kept. Instead, the columns of observed points are kept, and
        many rows at a time are taken off all of them, by one product.
        """
        if self.folded is not None:
            return self.folded[:, index], 0
        if self.prior.matrices is not None:
            return self.prior.matrices[:, index], 0
        if self.prior.num_points <= MANY_POINTS:
            return self.prior.columns(torch.tensor([index], device=self.lam.device))[:, 0], 0
        if self.num_kept - self._num_counted >= FOLDED_AT_ONCE:
            some = torch.tensor(list(self._slot_of), dtype=torch.long, device=self.lam.device)
            V = self._V[:, self._num_counted : self.num_kept]
            own = self._kept_columns[:, : len(some)]
            own.baddbmm_(self._signed(V[:, :, some], self._num_counted).mT, V, alpha=-1.0)
            self._num_counted = self.num_kept
        slot, count = self._slot_of.get(index), self._num_counted
        if slot is None:
            slot = self._slot_of[index] = len(self._slot_of)
            if slot == self._kept_columns.shape[1]:
                more = self._kept_columns.new_empty(self.batch, 2 * slot + 16, self._V.shape[-1])
                more[:, :slot] = self._kept_columns
                self._kept_columns = more
            at = torch.tensor([index], device=self.lam.device)
            column, V = self.prior.columns(at), self._V[:, :count]
            known = self._signed(V[:, :, at], 0).mT
            self._kept_columns[:, slot] = (column - known @ V)[:, 0]
        return self._kept_columns[:, slot], count

    def _column(self, index: int) -> Tensor:
        """Return the posterior covariances of one point with all points, ``G x A``."""
        column, first = self._start_of_column(index)
        if self.num_kept == first:
            return column.expand(self.batch, -1)
        V = self._V[:, first : self.num_kept]
        known = self._signed(V[:, :, index].unsqueeze(-1), first).mT  # G x 1 x rows
        column = column.expand(self.batch, -1).unsqueeze(1)
        return torch.baddbmm(column, known, V, alpha=-1.0).squeeze(1)

    def _make_room(self, num_rows: int, copies: bool = True) -> None:
        """Make room for rows; the signs of rows that are not in use become 1."""
        if num_rows > len(self._sign):
            V, sign, n = self._V, self._sign, self.num_kept
            self._V = V.new_empty(self.batch, num_rows, V.shape[-1])
            self._sign = sign.new_ones(num_rows)
            if copies:
                self._V[:, :n], self._sign[:n] = V[:, :n], sign[:n]
            self._share_memory()
        if not copies:
            self._sign.fill_(1.0)
            self._has_signs = False
            self._share_memory()


MANY_POINTS = 4096
"""With more points, the columns of observed points are kept, because their matrix is not."""


def factorized(prior: Stack, lam: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
    """Return the factor ``L`` of rows, ``G x n x n``, and ``G`` times twice their gain.

    Args:
        prior: The priors.
        lam: ``G`` noise variances.
        rows: ``n`` rows.
    """
    block = prior.among(rows.index, rows.front).expand(len(lam), -1, -1).clone()
    noise = lam.unsqueeze(-1) * rows.noise  # G x n
    block.diagonal(dim1=-2, dim2=-1).add_(noise)
    factor = cholesky(block)
    return factor, twice_the_gain(factor, noise)


def twice_the_gain(factor: Tensor, noise: Tensor) -> Tensor:
    """Return ``ln det(L L') - ln det(lam N)``, ``G``."""
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - noise.log().sum(-1)


def explained_by(columns: Tensor, index: Tensor, lam: Tensor) -> Tensor:
    """Return by how much one more observation of some points lowers all variances, ``G x A``.

    With ``C`` the posterior covariances of these points and ``R R' = C + lam I``, it is the sum of
    the squares of ``R^-1 C(., points)``.

    Args:
        columns: ``G x k x A`` posterior covariances of the points with all points.
        index: ``k`` or ``G x k``, the numbers of the points.
        lam: ``G`` noise variances.
    """
    at = index if index.dim() == 2 else index.expand(len(columns), -1)
    block = columns.gather(-1, at.unsqueeze(-2).expand(-1, at.shape[-1], -1)).clone()
    block.diagonal(dim1=-2, dim2=-1).add_(lam.unsqueeze(-1))
    half = torch.linalg.solve_triangular(cholesky(block), columns, upper=False)
    return half.square().sum(-2)
