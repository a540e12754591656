"""The cheapest exact way from the rows of one round to the posterior of the next."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from botorch_bandits.core.posterior import FOLDED_AT_ONCE, Posterior
from botorch_bandits.core.priors import Stack
from botorch_bandits.core.round_posterior import RoundPosterior, extended
from botorch_bandits.core.rows import Rows, begins_with, changes_between

MOST_CHANGES = 8
"""More changed rows in one round are factorized anew, unless all of them came."""
SMALLEST_NOISE = 1e-3
"""Rows with less noise than this share of the prior variance are not taken back but factorized
anew: the two pivots nearly cancel, and digits are lost in proportion to the inverse noise."""


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
            or not self._is_small(*changes, old)
            or not posterior.has_room(sum(map(len, changes)))
        ):
            posterior.factorize(rows.collapsed())
        else:
            left, came = changes
            self._take(old, left, -1.0)  # with negative noise
            self._take(rows, came, 1.0)
        posterior.rows = rows
        return posterior

    def _take(self, rows: Rows, some: Sequence[int], sign: float) -> None:
        for i in some:
            noise = sign * float(rows.noise[i])
            self.posterior.add(int(rows.index[i]), rows.Y[i].tolist(), noise)

    def _is_small(self, left: Sequence[int], came: Sequence[int], old: Rows) -> bool:
        if not left:  # rows that come lose no digits
            return len(came) <= FOLDED_AT_ONCE
        least = float(old.noise[left].min())
        return len(left) + len(came) <= MOST_CHANGES and least >= self._smallest_noise


class RoundConditioner:
    """Conditions on rows behind fronts, or that fade, in every round anew.

    The factor of the rows grows by those that come, unless others change: ``n^2`` operations a row
    instead of ``n^3 / 3`` a round.

    Attributes:
        posterior: The posterior given the rows of the last call of :meth:`at`.
        rows: These rows; None before the first call.
    """

    def __init__(self, prior: Stack, lam: Tensor, prior_mean: Tensor) -> None:
        """See the class.

        Args:
            prior: The priors.
            lam: ``G`` noise variances.
            prior_mean: ``G x m``.
        """
        self._prior, self._lam, self._prior_mean = prior, lam, prior_mean
        self.rows: Rows | None = None
        none = Rows.empty(prior_mean.shape[1], lam, prior.num_front)
        now = lam.new_zeros(prior.num_front) if prior.num_front else None
        factor = lam.new_empty(len(lam), 0, 0)
        self.posterior = RoundPosterior(prior, lam, prior_mean, none, now, factor)

    def set_prior_mean(self, value: float) -> None:
        """Give all outputs another prior mean."""
        self._prior_mean = torch.full_like(self._prior_mean, value)

    def at(self, rows: Rows, now: Tensor | None = None) -> RoundPosterior:
        """Return the posterior given the rows of a round.

        Args:
            rows: All rows that count in the round.
            now: ``c``, the front of all points in the round; None if there are none.
        """
        self.rows, known = rows, self.posterior
        # rows that come stay the last ones unless some place has several
        if rows.place is None or rows.front is None or len(rows.place.unique()) < len(rows):
            rows = rows.collapsed()
        factor = known.factor if begins_with(rows, known.rows) else known.factor[:, :0, :0]
        factor = extended(self._prior, self._lam, rows, factor)
        given = (self._prior, self._lam, self._prior_mean, rows, now, factor)
        self.posterior = RoundPosterior(*given)
        return self.posterior
