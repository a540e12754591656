"""The cheapest exact way from the rows of one round to the posterior of the next."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from botorch_bandits.core.posterior import FIRST_ROOM, FOLDED_AT_ONCE, Posterior
from botorch_bandits.core.priors import Stack, cholesky
from botorch_bandits.core.round_posterior import RoundPosterior
from botorch_bandits.core.rows import Changes, Rows, changes_between

MOST_CHANGES = 8
"""More changed rows in one round are factorized anew, unless all of them came."""
SMALLEST_NOISE = 1e-3
"""Rows with less noise than this share of the prior variance are not taken back but factorized
anew: the two pivots nearly cancel, and digits are lost in proportion to the inverse noise."""


class _GrowingFactor:
    """The Cholesky factor of rows behind fronts, which grows by the rows that come."""

    def __init__(self, prior: Stack, lam: Tensor) -> None:
        self._prior, self._lam = prior, lam
        self._rows = Rows.empty(1, lam, prior.num_front)
        self._buffer = lam.new_zeros(len(lam), 0, 0)

    def of(self, rows: Rows) -> Tensor:
        """Return ``L`` of these rows, ``G x n x n``."""
        n, k = len(rows), len(self._rows)
        if k > n or not self._begins(rows[:k]):
            k = 0  # other rows than those of the factor: from scratch
        if n > self._buffer.shape[-1]:  # a quarter more, so that growth costs n^2 on average
            grown = self._lam.new_zeros(len(self._lam), n + n // 4 + 16, n + n // 4 + 16)
            grown[:, :k, :k] = self._buffer[:, :k, :k]
            self._buffer = grown
        if k < n:
            new, front = rows[k:], rows.front
            cross = self._prior.block(rows.index, front, new.index, new.front)  # 1 or G x n x r
            cross = cross.expand(len(self._lam), -1, -1).clone()
            corner = cross[:, k:]
            corner.diagonal(dim1=-2, dim2=-1).add_(self._lam.unsqueeze(-1) * new.noise)
            # L = [[L_old, 0], [half', chol(corner - half' half)]]
            if k:  # half = L_old^-1 K(old, new), G x k x r
                old = self._buffer[:, :k, :k]
                half = torch.linalg.solve_triangular(old, cross[:, :k], upper=False)
                self._buffer[:, k:n, :k] = half.mT
                corner = corner - half.mT @ half
            self._buffer[:, k:n, k:n] = cholesky(corner)
        self._rows = rows
        # triangular solves would copy a part of a larger buffer, every time
        return self._buffer[:, :n, :n].contiguous()

    def _begins(self, rows: Rows) -> bool:
        known = self._rows
        return (
            torch.equal(known.index, rows.index)
            and torch.equal(known.noise, rows.noise)
            and (known.front is None or torch.equal(known.front, rows.front))  # type: ignore[arg-type]
        )


class Conditioner:
    """Keeps a posterior up to date with rows most of which stay, by the cheapest exact way.

    Attributes:
        posterior: The posterior given the rows of the last call of :meth:`at`.
        rows: These rows; None before the first call.
    """

    def __init__(self, posterior: Posterior) -> None:
        """See the class.

        Args:
            posterior: A posterior without rows, which is changed in place.
        """
        self.posterior = posterior
        self.rows: Rows | None = None
        largest = float(posterior.variance.max())
        self._smallest_noise = SMALLEST_NOISE * largest / float(posterior.lam.min())

    def set_prior_mean(self, value: float) -> None:
        """Give all outputs another prior mean; the next rows are factorized anew."""
        self.posterior.set_prior_mean(value)
        self.rows = None

    def at(self, rows: Rows, now: Tensor | None = None) -> Posterior:
        """Return the posterior given the rows of a round.

        Args:
            rows: All rows that count in the round.
            now: None; these points have no fronts.
        """
        old, self.rows, posterior = self.rows, rows, self.posterior
        changes = None if old is None else changes_between(old, rows)
        if (
            old is None
            or changes is None
            or not self._is_small(changes, old)
            or not posterior.has_room(len(changes))
        ):
            posterior.factorize(rows.collapsed())
        else:
            self._take(old, changes.left, -1.0)  # with negative noise
            self._take(rows, changes.came, 1.0)
        posterior.rows = rows
        return posterior

    def _take(self, rows: Rows, some: Sequence[int], sign: float) -> None:
        for i in some:
            noise = sign * float(rows.noise[i])
            self.posterior.add(int(rows.index[i]), rows.Y[i].tolist(), noise)

    def _is_small(self, changes: Changes, old: Rows) -> bool:
        if not changes.left:  # rows that come lose no digits
            return len(changes) <= FOLDED_AT_ONCE
        least = float(old.noise[changes.left].min())
        return len(changes) <= MOST_CHANGES and least >= self._smallest_noise


class RoundConditioner:
    """Conditions on rows behind fronts, or that fade, in every round anew.

    Attributes:
        posterior: The posterior given the rows of the last call of :meth:`at`.
        rows: These rows; None before the first call.
    """

    def __init__(self, prior: Stack, lam: Tensor, prior_mean: Tensor, rows_stay: bool) -> None:
        """See the class.

        Args:
            prior: The priors.
            lam: ``G`` noise variances.
            prior_mean: ``G x m``.
            rows_stay: Whether rows only come, so that their factor grows; otherwise they leave or
                fade, and one row for each place is factorized.
        """
        self._prior, self._lam, self._prior_mean = prior, lam, prior_mean
        self._rows_stay = rows_stay
        self._growing = _GrowingFactor(prior, lam)
        self._num_merged, self._limit = 0, FIRST_ROOM
        self.rows: Rows | None = None
        none = Rows.empty(prior_mean.shape[1], lam, prior.num_front)
        now = lam.new_zeros(prior.num_front) if prior.num_front else None
        self.posterior = RoundPosterior(prior, lam, prior_mean, none, now)

    def set_prior_mean(self, value: float) -> None:
        """Give all outputs another prior mean."""
        self._prior_mean = torch.full_like(self._prior_mean, value)

    def at(self, rows: Rows, now: Tensor | None = None) -> RoundPosterior:
        """Return the posterior given the rows of a round.

        Args:
            rows: All rows that count in the round.
            now: ``c``, the front of all points in the round; None if there are none.
        """
        self.rows, factor = rows, None
        if self._rows_stay:  # n^2 operations a row, instead of n^3 / 3 a round
            rows = self._merged(rows)
            factor = self._growing.of(rows)
        else:
            rows = rows.collapsed()
        given = (self._prior, self._lam, self._prior_mean, rows, now, factor)
        self.posterior = RoundPosterior(*given)
        return self.posterior

    def _merged(self, rows: Rows) -> Rows:
        """Return rows of which the first are one row for each place, if that pays.

        Rows that stay grow the factor. Whenever they have doubled, the factor is begun again with
        one row for each place unless more than three in four are distinct. That depends on the rows
        alone, so that a rebuilt loop merges the same ones.
        """
        if len(rows) < self._num_merged:
            self._num_merged, self._limit = 0, FIRST_ROOM
        while True:
            first = rows[: self._num_merged].collapsed()
            end = self._num_merged + self._limit - len(first)
            if end >= len(rows):
                return first.followed_by(rows[self._num_merged :]) if len(first) else rows
            distinct = len(rows[:end].collapsed())
            # merging starts the factor again, which pays if the rows become fewer by a quarter
            if 4 * distinct <= 3 * self._limit:
                self._num_merged, self._limit = end, max(FIRST_ROOM, 2 * distinct)
            else:
                self._limit *= 2
