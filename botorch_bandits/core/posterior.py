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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.core.priors import LARGEST_MATRIX, Stack, cholesky
from botorch_bandits.core.rows import Rows

FIRST_ROOM = 64
"""Rows for which memory is allocated at first, and which are kept before a new factorization."""
FIRST_ROOM_OF_MANY = 512
"""The same for so many points that no matrix of them is kept."""
FOLDED_AT_ONCE = 32
"""Rows that are folded into a covariance of all points at a time, by one fast product."""
ROW_COST = 2.5
"""A kept row costs as much in each round as this many points of a folded covariance."""
MOST_FOLDS = 64
"""After so many folds everything is factorized anew, which ends the accumulation of rounding."""
LARGEST_FOLDED = 2**26
"""Entries of folded covariances of all priors (512 MiB)."""


class Posterior:
    """The posteriors of ``G`` priors and ``m`` outputs at ``A`` points.

    Attributes:
        prior: The priors.
        lam: ``G`` noise variances of one observation.
        mean: ``G x m x A``, in raw units; changed in place by the next row.
        variance: ``G x A``, changed in place; rounding can make it slightly negative.
        rows: What the posterior is conditioned on, as it was given.
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
        groups, points = len(lam), prior.num_points
        means = torch.as_tensor(prior_mean, dtype=lam.dtype, device=lam.device)
        self._prior_mean = means.expand(groups, num_outputs)
        self.mean = self._prior_mean.unsqueeze(-1).expand(-1, -1, points).clone()
        self.variance = prior.variances().expand(groups, -1).clone()
        self.rows = Rows.empty(num_outputs, lam)
        self.folded: Tensor | None = None
        self.num_kept = 0
        self._log_det = lam.new_zeros(groups)
        self._V = lam.new_empty(groups, FIRST_ROOM, points)
        self._sign = lam.new_ones(FIRST_ROOM)
        self._first_limit = FIRST_ROOM if points <= LARGEST_MATRIX else FIRST_ROOM_OF_MANY
        self._num_folds, self._limit = 0, self._first_limit
        self._pending: Rows | None = None
        # by the number of a point, how many rows its column of covariances accounts for, and these
        self._seen: dict[int, tuple[int, NDArray[np.float64]]] = {}

    @property
    def batch(self) -> int:
        """``G``."""
        return len(self.lam)

    @property
    def gain(self) -> Tensor:
        """``G`` realized information gains ``1/2 ln det(I + K / lam)`` of the rows, in nats."""
        return 0.5 * self._log_det

    @property
    def collapsed(self) -> Rows:
        """The rows, one for each place, and what is pending; see :meth:`given`."""
        found = self.rows.collapsed()
        return found if self._pending is None else found.followed_by(self._pending)

    def group(self, number: int) -> Posterior:
        """Return the posterior of one of the ``G`` priors, which shares the memory of this one."""
        own, some = copy.copy(self), slice(number, number + 1)
        own.prior = Stack([self.prior.priors[number]])
        own._seen = {}  # the columns of one prior are not those of another
        for name in ("lam", "_prior_mean", "mean", "variance", "_V", "_log_det", "folded"):
            values = vars(self)[name]
            vars(own)[name] = None if values is None else values[some]
        return own

    def given(self, pending: Rows) -> Posterior:
        """Return the posterior in which more rows have their posterior means as outcomes.

        Its mean and its gain are those of this posterior. It shares memory with this one, and only
        holds until the next row.

        Args:
            pending: ``k`` rows; their outcomes do not matter.
        """
        # rows beyond num_kept are scratch, so the view may write there
        self._make_room(self.num_kept + len(pending))
        own, gain = copy.copy(self), self._log_det.clone()
        own.variance = self.variance.clone()
        own._pending, own._seen = pending, {}
        for index, noise in zip(pending.index.tolist(), pending.noise.tolist(), strict=True):
            own.add(index, None, noise)
        self._log_det.copy_(gain)  # both share it
        return own

    def set_prior_mean(self, value: float) -> None:
        """Set another prior mean; the rows must be factorized again before anything else."""
        self._prior_mean = torch.full_like(self._prior_mean, value)

    def factorize(self, rows: Rows) -> Posterior:
        """Condition on exactly these rows, from scratch: ``n^2 (n / 3 + A)`` operations.

        Args:
            rows: The rows, cheapest with one for each place; or ``G x n`` rows of replicates, of
                which those with infinite noise say nothing.
        """
        n, groups = rows.index.shape[-1], self.batch
        self.rows, self.folded, self._seen, self.num_kept = rows, None, {}, 0
        self._make_room(n)
        columns = self.prior.columns(rows.index).expand(groups, -1, -1)  # G x n x A
        at = rows.index.expand(groups, n).unsqueeze(-2).expand(-1, n, -1)
        block = columns.gather(-1, at)  # G x n x n
        noise = self.lam.unsqueeze(-1) * rows.noise  # G x n
        if rows.index.dim() == 2:  # rows that say nothing are rows of zeros with noise 1
            says = noise.isfinite()
            columns = columns * says.unsqueeze(-1)
            block = block * (says.unsqueeze(-1) & says.unsqueeze(-2))
            noise = noise.masked_fill(~says, 1.0)
        block.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor = cholesky(block)
        self._log_det.copy_(twice_the_gain(factor, noise))
        # V = L^-1 K(rows, points), z = L^-1 (Y - prior mean)
        V = torch.linalg.solve_triangular(factor, columns, upper=False)
        self._V[:, :n], self.num_kept = V, n
        self._sign.fill_(1.0)
        residual = rows.Y - self._prior_mean.unsqueeze(-2)  # G x n x m
        z = torch.linalg.solve_triangular(factor, residual, upper=False)
        torch.add(self._prior_mean.unsqueeze(-1), z.mT @ V, out=self.mean)
        known = V.square().sum(-2)  # G x A
        torch.sub(self.prior.variances(), known, out=self.variance)
        self._num_folds, self._limit = 0, max(self._first_limit, 2 * n)
        if 2 * n > FIRST_ROOM and self._folding_pays(n):
            self.fold()
        return self

    def add(self, index: int, outcomes: Sequence[float] | None, noise: float = 1.0) -> Posterior:
        """Condition on one more row, the same in all ``G``: ``n A`` operations each.

        Args:
            index: The number of its point.
            outcomes: ``m`` outcomes in raw units; None for the posterior means.
            noise: Its multiple of the noise variance; negative to take an earlier row back.
        """
        if self.batch == 1 and self.lam.device.type == "cpu":
            self._add_to_one(index, outcomes, noise)
            return self
        every = torch.full((self.batch,), index, device=self.lam.device)
        given = None if outcomes is None else self.lam.new_tensor(outcomes)
        return self.add_each(every, given, noise=noise)

    def _add_to_one(self, index: int, outcomes: Sequence[float] | None, noise: float) -> None:
        """Do what :meth:`add_each` does for a single posterior on the CPU, in its memory.

        A row of a few hundred numbers takes a NumPy call a microsecond and a PyTorch call five, and
        long runs are made of such rows.
        """
        n, whole = self.num_kept, self.prior.matrices if self.folded is None else self.folded
        self._make_room(n + 1)
        V, variance, signs = self._V.numpy()[0], self.variance.numpy()[0], self._sign.numpy()
        row, first, lam = V[n], 0, float(self.lam)
        if whole is not None:
            known = whole.numpy()[0, index]
        elif index in self._seen:  # too many points for a matrix, so observed ones keep columns
            first, known = self._seen[index]
        else:
            known = self.prior.columns(torch.tensor([index])).numpy()[0, 0]
        if n > first:
            at_index = V[first:n, index] * signs[first:n]
            known = np.subtract(known, np.dot(at_index, V[first:n]), out=row)
        if whole is None:
            self._seen[index] = n, known.copy()
        total = float(variance[index]) + lam * noise
        signs[n] = sign = math.copysign(1.0, noise)
        pivot = math.sqrt(sign * total)
        np.divide(known, pivot, out=row)
        means = self.mean.numpy()[0]  # m x A
        for mean, outcome in zip(means, outcomes or (), strict=outcomes is not None):
            mean += row * ((outcome - float(mean[index])) / (sign * pivot))
        variance -= row * row * sign
        self._log_det += math.log(total / (lam * noise))
        self.num_kept = n + 1

    def add_each(
        self,
        index: Tensor,
        outcome: Tensor | None,
        noise: float = 1.0,
    ) -> Posterior:
        """Condition each of ``G`` posteriors on a point of its own.

        Args:
            index: ``G`` numbers of points.
            outcome: ``G x m`` outcomes, or ``m`` for all; None for the posterior means.
            noise: The multiple of the noise variance; negative to take earlier rows back.
        """
        n, groups = self.num_kept, torch.arange(self.batch, device=index.device)
        self._make_room(n + 1)
        self._sign[n] = sign = math.copysign(1.0, noise)
        column = self.columns(index.unsqueeze(-1)).squeeze(1)  # G x A
        total = self.variance[groups, index] + self.lam * noise  # G
        pivot = (sign * total).sqrt()
        row = torch.mul(column, pivot.reciprocal().unsqueeze(-1), out=self._V[:, n])
        if outcome is not None:
            at = self.mean.gather(-1, index.view(-1, 1, 1).expand(-1, self.mean.shape[1], 1))
            step = (outcome - at.squeeze(-1)) / (sign * pivot.unsqueeze(-1))  # G x m
            self.mean.addcmul_(step.unsqueeze(-1), row.unsqueeze(1))
        self.variance.addcmul_(row, row, value=-sign)
        self._log_det += total.div_(self.lam * noise).log_()
        self.num_kept = n + 1
        return self

    def has_room(self, num_rows: int) -> bool:
        """Fold the rows if that makes room, or return that everything must be factorized anew."""
        if self.num_kept + num_rows <= self._limit:
            return True
        if self.folded is None or self._num_folds == MOST_FOLDS:
            return False
        self.fold()
        return True

    def fold(self) -> None:
        """Turn the rows into one dense covariance of all points, which is cheaper for many rows."""
        V = self._V[:, : self.num_kept]
        if self.folded is None:
            every = torch.arange(self.prior.num_points, device=V.device)
            whole = self.prior.columns(every)  # 1 or G x A x A
            self.folded = whole.expand(self.batch, -1, -1).clone()
        self.folded.baddbmm_(self._signed(V).mT, V, alpha=-1.0)  # K - V' S V
        self.num_kept, self._limit = 0, FOLDED_AT_ONCE
        self._num_folds += 1

    def _folding_pays(self, num_places: int) -> bool:
        points = self.prior.num_points
        fits = self.batch * points**2 <= LARGEST_FOLDED
        return ROW_COST * num_places > points and fits

    def columns(self, index: Tensor) -> Tensor:
        """Return the posterior covariances of points with all points, ``G x k x A``.

        Args:
            index: ``k`` numbers of points, or ``G x k``.
        """
        base = self._base(index)  # 1 or G x k x A
        if not self.num_kept:
            return base.expand(self.batch, -1, -1)
        V = self._V[:, : self.num_kept]
        at = index.expand(self.batch, -1).unsqueeze(-2).expand(-1, self.num_kept, -1)
        at = V.gather(-1, at)  # G x n x k
        return torch.baddbmm(base, self._signed(at).mT, V, alpha=-1.0)

    def variance_at(self, index: Tensor) -> Tensor:
        """Return the variances of some points, ``G x k``."""
        return self.variance[:, index]

    def moments_at(self, index: Tensor, front: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances of some points, ``G x m x k`` and ``G x k``.

        Args:
            index: ``k`` numbers of points.
            front: None; these points have no fronts.
        """
        return self.mean[:, :, index], self.variance[:, index].clamp_min(0.0)

    def screened_variance(self, *given: Any) -> Tensor:
        """Return all variances; see :meth:`.RoundPosterior.screened_variance`."""
        return self.variance

    def deviation_of_draw(self, simulated: Tensor, normal: Tensor, rows: Rows) -> Tensor:
        r"""Return a joint draw less the mean, by Matheron's rule, ``G x k x A``.

        A draw ``f`` of the prior has simulated outcomes :math:`e_i = f(x_i) + \sqrt{\lambda N_i}\,
        n_i` at the rows; the draw is ``f`` less the posterior mean that these would have caused,
        ``S(., rows) e / (lam N)`` with the posterior covariance ``S``.

        Args:
            simulated: ``G x k x A``, draws of the prior.
            normal: ``G x k x n`` standard normal numbers of the rows.
            rows: The collapsed rows, without fronts; or for replicates one row for each point,
                with infinite noise where nothing was observed.
        """
        precision = 1.0 / (self.lam.unsqueeze(-1) * rows.noise)  # G x n
        weights = precision.unsqueeze(-2) * simulated[..., rows.index]
        weights += precision.sqrt().unsqueeze(-2) * normal  # e / (lam N), G x k x n
        V = self._V[:, : self.num_kept]
        known = self._signed(V[:, :, rows.index]) @ weights.mT  # G x rows of V x k
        return simulated - weights @ self._base(rows.index) + known.mT @ V

    def _signed(self, rows: Tensor) -> Tensor:
        """Multiply ``G x n x k`` rows of ``V`` by their signs."""
        return rows * self._sign[: rows.shape[1]].unsqueeze(-1)

    def _base(self, index: Tensor) -> Tensor:
        """Return columns of the covariance from which the rows are taken, ``G x k x A``."""
        if self.folded is None:
            return self.prior.columns(index)
        if index.dim() == 1:
            return self.folded[:, index]
        return self.folded.gather(1, index.unsqueeze(-1).expand(-1, -1, self.folded.shape[-1]))

    def _make_room(self, num_rows: int) -> None:
        if num_rows > len(self._sign):
            V, sign, n = self._V, self._sign, self.num_kept
            room = max(num_rows, 2 * n)
            self._V, self._sign = V.new_empty(self.batch, room, V.shape[-1]), sign.new_ones(room)
            self._V[:, :n], self._sign[:n] = V[:, :n], sign[:n]


def twice_the_gain(factor: Tensor, noise: Tensor) -> Tensor:
    """Return ``ln det(L L') - ln det(lam N)``, ``G``."""
    return 2.0 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - noise.log().sum(-1)
