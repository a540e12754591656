"""The posterior of one round, from rows that change in every round.

Contexts and the round are columns in front of all points, and weights fade, so that every round has
other covariances or other noise. Nothing can be kept then but the factor of rows that stay. What
costs most is the variance of every point, ``n^2 A`` operations; everything else costs ``n A``:

    a = (K + lam N)^-1 (Y - prior mean)        mean = prior mean + K(points, rows) a
    draw - mean = f - K(points, rows) (K + lam N)^-1 e     (Matheron's rule)

An upper confidence bound needs variances only where it may be the largest, so that
:meth:`RoundPosterior.screened_variance` bounds the others by the rows that say most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from botorch_bandits.core.posterior import twice_the_gain
from botorch_bandits.core.priors import Stack, cholesky, root_of
from botorch_bandits.core.rows import Rows

FEW_OPERATIONS = 8e6
"""If the variances of all points take fewer, bounds on them cost as much."""
TELLING_ROWS = 64
"""Rows from which bounds on all variances are computed, or a quarter of them if that is more."""
FIRST_CANDIDATES = 16
"""The number of points whose variances are computed first; four times as many in each step."""


class RoundPosterior:
    """The posteriors of ``G`` priors and ``m`` outputs at ``A`` points in one round.

    Attributes:
        prior: The priors.
        lam: ``G`` noise variances.
        rows: The rows.
        now: ``c``, the front of all points; None if there are none.
        mean: ``G x m x A``, in raw units.
        gain: ``G`` realized information gains, in nats.
        factor: ``G x n x n``, the Cholesky factor of the rows.
    """

    def __init__(
        self,
        prior: Stack,
        lam: Tensor,
        prior_mean: Tensor,
        rows: Rows,
        now: Tensor | None,
        factor: Tensor,
    ) -> None:
        """See the class.

        Args:
            prior: The priors.
            lam: ``G`` noise variances.
            prior_mean: ``G x m``.
            rows: The rows.
            now: ``c``, the front of all points; None if there are none.
            factor: The factor of the rows; see :func:`extended`.
        """
        self.prior, self.lam, self.rows, self.now = prior, lam, rows, now
        self._prior_mean, self.factor = prior_mean, factor
        self.gain = 0.5 * twice_the_gain(factor, lam.unsqueeze(-1) * rows.noise)
        # mean = prior mean + K(points, rows) (K + lam N)^-1 (Y - prior mean)
        self._coefficients = self._solved(rows.Y - prior_mean.unsqueeze(-2))  # G x n x m
        self.mean = prior_mean.unsqueeze(-1) + self._coefficients.mT @ self._columns

    @property
    def batch(self) -> int:
        """``G``."""
        return len(self.lam)

    @cached_property
    def _columns(self) -> Tensor:
        """``K(rows, points)``, ``G x n x A``, or 1 for ``G``."""
        return self.prior.columns(self.rows.index, self.rows.front, self.now)

    @cached_property
    def _prior_variance(self) -> Tensor:
        return self.prior.variances(self.now).expand(self.batch, -1)

    @cached_property
    def variance(self) -> Tensor:
        """``G x A``; rounding can make it slightly negative."""
        return self._prior_variance - self._half(self._columns).square().sum(-2)

    def variance_at(self, index: Tensor) -> Tensor:
        """Return the variances of some points, ``G x k``."""
        half = self._half(self._columns[:, :, index])  # G x n x k
        return self._prior_variance[:, index] - half.square().sum(-2)

    def columns(self, index: Tensor) -> Tensor:
        """Return the posterior covariances of points with all points, ``G x k x A``."""
        front = None if self.now is None else self.now.expand(len(index), -1)
        # k(x, .) - k(x, rows) (K + lam N)^-1 K(rows, .)
        weights = self._solved(self._columns[:, :, index])  # G x n x k
        return self.prior.columns(index, front, self.now) - weights.mT @ self._columns

    @property
    def collapsed(self) -> Rows:
        """The rows, for which draws need numbers."""
        return self.rows

    def given(self, pending: Rows) -> RoundPosterior:
        """Return the posterior in which more rows have their posterior means as outcomes.

        Its mean and gain are those of this posterior.

        Args:
            pending: ``k`` rows; their outcomes do not matter.
        """
        every = self.rows.followed_by(pending)
        factor = extended(self.prior, self.lam, every, self.factor)
        view = RoundPosterior(self.prior, self.lam, self._prior_mean, every, self.now, factor)
        view.mean, view.gain = self.mean, self.gain
        return view

    def moments_at(self, index: Tensor, front: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances behind any fronts, ``G x m x k`` and ``G x k``.

        Args:
            index: ``k`` numbers of points.
            front: ``k x c``, the front of each; None if there are none.
        """
        cross = self.prior.block(self.rows.index, self.rows.front, index, front)  # G x n x k
        prior = self.prior.among(index, front).diagonal(dim1=-2, dim2=-1)
        mean = self._prior_mean.unsqueeze(-1) + self._coefficients.mT @ cross
        return mean, (prior - self._half(cross).square().sum(-2)).clamp_min(0.0)

    def group(self, number: int) -> RoundPosterior:
        """Return the posterior of one of the ``G`` priors."""
        some = slice(number, number + 1)
        given = (self.lam[some], self._prior_mean[some], self.rows, self.now, self.factor[some])
        return RoundPosterior(Stack([self.prior.priors[number]]), *given)

    def deviation_of_draw(self, simulated: Tensor, normal: Tensor, rows: Rows) -> Tensor:
        """Return a joint draw less the mean; see :meth:`.Posterior.deviation_of_draw`.

        Args:
            simulated: ``1 x k x ...``, what the only prior simulates.
            normal: ``1 x k x n`` standard normal numbers of the rows.
            rows: The rows of this posterior.
        """
        own = self.prior.priors[0]
        if not own.has_root:
            every = torch.arange(self.prior.num_points, device=self.lam.device)
            root = root_of(self.columns(every)[0])
            return simulated[..., : root.shape[1]] @ root.mT
        function = simulated[..., -self.prior.num_points :]  # 1 x k x A
        noise = self.lam * rows.noise
        if rows.front is None or self.now is None:
            outcomes = function[..., rows.index] + noise.sqrt() * normal
        else:  # values of the rows given the function, and then their noise
            mean, explained = own.rows_given(simulated[0], rows.index, self._columns[0], self.now)
            left = self.prior.among(rows.index, rows.front)[0] - explained
            left.diagonal().add_(noise)
            outcomes = mean + normal @ cholesky(left).mT
        return function - self._solved(outcomes.mT).mT @ self._columns

    def screened_variance(
        self,
        mean: Tensor,
        width: float | Tensor,
        smallest: float,
        tolerance: Callable[[float], float],
        among: Tensor | None = None,
    ) -> Tensor:
        """Return variances that are exact where ``mean + width deviation`` may be the largest.

        Elsewhere they are upper bounds, from the rows that say most about their own points.

        Args:
            mean: ``A``, the posterior means, or minus them if small ones are sought.
            width: The factor of the deviation, one number.
            smallest: The lower limit of variances.
            tolerance: Returns how far below the largest value others count as equal.
            among: Numbers of the points that count; None for all.

        Returns:
            ``1 x A``.
        """
        rows = self.rows
        if self.batch > 1 or len(rows) ** 2 * self.prior.num_points < FEW_OPERATIONS:
            return self.variance
        bound = self._bounded_variance()
        value = mean + width * bound.clamp_min(smallest).sqrt()  # at least the score, A
        is_exact = torch.zeros_like(value, dtype=torch.bool)
        if among is not None:  # the others are never looked at
            is_exact[:] = True
            is_exact[among] = False
        largest, count = -math.inf, FIRST_CANDIDATES
        while True:
            # twice, because values within the tolerance of the largest are compared by number
            lowest = largest - 2.0 * tolerance(largest) if largest > -math.inf else largest
            left = (~is_exact & (value >= lowest)).nonzero()[:, 0]
            if not len(left):  # no bound that is not exact reaches the largest
                return bound.unsqueeze(0)
            if len(left) > count:
                left = left[value[left].topk(count).indices]
            bound[left] = self.variance_at(left)[0]
            value[left] = mean[left] + width * bound[left].clamp_min(smallest).sqrt()
            is_exact[left] = True
            largest, count = max(largest, float(value[left].max())), 4 * count

    def _bounded_variance(self) -> Tensor:
        """Return upper bounds on the variances, from some rows alone, ``A``."""
        rows, prior = self.rows, self._prior_variance[0]
        # how much each row alone says about its own point now
        own = self._columns[0].gather(-1, rows.index.unsqueeze(-1))[:, 0]
        told = own.square() / (self.lam[0] * rows.noise + prior[rows.index])
        # some rows leave at least the variance that all leave
        count = min(max(TELLING_ROWS, len(told) // 4), len(told))
        some = told.topk(count).indices.sort().values
        factor = extended(self.prior, self.lam, rows[some], self.factor[:, :0, :0])
        half = torch.linalg.solve_triangular(factor[0], self._columns[0, some], upper=False)
        return prior - half.square().sum(0)

    def _half(self, columns: Tensor) -> Tensor:
        """Return ``L^-1`` times ``G x n x k`` columns."""
        columns = columns.expand(self.batch, -1, -1)
        return torch.linalg.solve_triangular(self.factor, columns, upper=False)

    def _solved(self, columns: Tensor) -> Tensor:
        """Return ``(K + lam N)^-1`` times ``G x n x k`` columns."""
        # for few columns, ten times as fast as cholesky_solve, which copies the factor
        return torch.linalg.solve_triangular(self.factor.mT, self._half(columns), upper=True)


def extended(prior: Stack, lam: Tensor, rows: Rows, factor: Tensor) -> Tensor:
    """Return the factor ``L`` of rows, ``G x n x n``, from that of the first ones.

    Args:
        prior: The priors.
        lam: ``G`` noise variances.
        rows: ``n`` rows.
        factor: ``G x k x k``, the factor of the first ``k`` rows, which may be none.
    """
    n, k, groups = len(rows), factor.shape[-1], len(lam)
    new = rows[k:]
    cross = prior.block(rows.index, rows.front, new.index, new.front)  # 1 or G x n x r
    cross = cross.expand(groups, -1, -1).contiguous()
    corner = cross[:, k:]  # G x r x r
    corner.diagonal(dim1=-2, dim2=-1).add_(lam.unsqueeze(-1) * new.noise)
    # L = [[L_old, 0], [half', chol(corner - half' half)]] with half = L_old^-1 K(old, new)
    half = torch.linalg.solve_triangular(factor, cross[:, :k], upper=False)  # G x k x r
    whole = factor.new_zeros(groups, n, n)
    whole[:, :k, :k], whole[:, k:, :k] = factor, half.mT
    whole[:, k:, k:] = cholesky(corner - half.mT @ half)
    return whole
