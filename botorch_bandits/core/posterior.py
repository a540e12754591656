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
priors with rows of their own. :class:`RoundPosterior` is for points behind fronts, which are others
in every round. Both go by their method ``at`` from the :class:`Rows` of one round to those of the
next.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.core.priors import LARGEST_MATRIX, Stack, cholesky, root_of

# --- Rows: all that a posterior knows of the data -------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rows:
    """Outcomes at points of a finite set, one row each; ``n`` rows and ``m`` outputs.

    A window leaves rows out, weights and counts change their noise, constraints and censoring
    change their outcomes, and contexts and the round are columns in front of their points.

    Attributes:
        index: ``n`` numbers of points.
        Y: ``n x m`` outcomes in raw units.
        noise: ``n`` positive multiples of the noise variance: ``1 / count`` or ``1 / weight``.
        front: ``n x c`` columns in front of the points; None if there are none.
        place: ``n`` numbers, the same for rows with the same point and front; None if a point's
            number says it.
        ids: ``n`` numbers that say which rows of two rounds are the same, such as the numbers of
            queries; None if rows are only ever added.
    """

    index: Tensor
    Y: Tensor
    noise: Tensor
    front: Tensor | None = None
    place: Tensor | None = None
    ids: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.index)

    def __getitem__(self, some: Tensor | slice) -> Rows:
        """Return some of the rows."""
        parts = (self.index, self.Y, self.noise, self.front, self.place, self.ids)
        return Rows(*(None if part is None else part[some] for part in parts))  # type: ignore[arg-type]

    @classmethod
    def empty(cls, num_outputs: int, like: Tensor, num_front: int = 0) -> Rows:
        """Return no rows.

        Args:
            num_outputs: ``m``.
            like: A tensor whose dtype and device are used.
            num_front: The number of columns in front of the points.
        """
        none = torch.empty(0, dtype=torch.long, device=like.device)
        front = like.new_empty(0, num_front) if num_front else None
        return cls(none, like.new_empty(0, num_outputs), like.new_empty(0), front, none, none)

    def followed_by(self, other: Rows) -> Rows:
        """Return these rows and then others; both have fronts, or neither does."""
        front = None
        if self.front is not None and other.front is not None:
            front = torch.cat([self.front, other.front])
        return Rows(
            torch.cat([self.index, other.index]),
            torch.cat([self.Y, other.Y]),
            torch.cat([self.noise, other.noise]),
            front,
        )

    def collapsed(self) -> Rows:
        r"""Return one row for each place: exact, by the weighted mean of its outcomes.

        With :math:`w_i = 1 / N_i`, rows of one place are one observation of
        :math:`\sum_i w_i y_i / \sum_i w_i` with the noise :math:`1 / \sum_i w_i`.
        """
        place = self.index if self.place is None else self.place
        # every group in the order of its place, so that a rebuilt loop has the same order
        distinct, group = torch.unique(place, return_inverse=True)
        count = len(distinct)
        if count == len(self) and bool((place[1:] > place[:-1]).all()):
            return self
        # the last row that writes wins, so the rows are written from the last to the first
        order = torch.arange(len(self) - 1, -1, -1, device=group.device)
        first = group.new_empty(count).scatter_(0, group.flip(0), order)
        weight = self.noise.reciprocal()  # n
        total = self.noise.new_zeros(count).index_add_(0, group, weight)
        sums = self.Y.new_zeros(count, self.Y.shape[1])
        sums.index_add_(0, group, self.Y * weight.unsqueeze(-1))  # count x m
        return Rows(
            self.index[first],
            sums / total.unsqueeze(-1),
            total.reciprocal(),
            None if self.front is None else self.front[first],
            distinct,
        )


def changes_between(old: Rows, new: Rows) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return how rows differ from earlier ones; None if nothing says which rows are the same.

    A row whose outcome or noise is another one has left and come again.

    Returns:
        The numbers of the earlier rows that are gone, and those of the rows that are new.
    """
    n, total = len(old.index), len(new.index)
    are_same = begins_with(new, old) and torch.equal(old.Y, new.Y[:n])
    if old.ids is not None and new.ids is not None:
        are_same = are_same and torch.equal(old.ids, new.ids[:n])
    if n == 0 or are_same:
        return (), range(n, total)  # rows were only added
    if old.ids is None or new.ids is None:
        return None
    # places of the rows that both have
    _, at_old, at_new = np.intersect1d(old.ids.cpu(), new.ids.cpu(), True, return_indices=True)
    left = torch.ones(n, dtype=torch.bool, device=old.index.device)
    came = torch.ones(total, dtype=torch.bool, device=new.index.device)
    # another outcome or another weight is another row
    same = (old.Y[at_old] == new.Y[at_new]).all(-1) & (old.noise[at_old] == new.noise[at_new])
    left[at_old], came[at_new] = ~same, ~same
    return left.nonzero()[:, 0].tolist(), came.nonzero()[:, 0].tolist()


def begins_with(rows: Rows, first: Rows) -> bool:
    """Return whether rows begin with others, regardless of outcomes."""
    n, front = len(first.index), rows.front
    return (
        torch.equal(first.index, rows.index[:n])
        and torch.equal(first.noise, rows.noise[:n])
        and (first.front is None or front is None or torch.equal(first.front, front[:n]))
    )


# --- The posterior of points that stay, given rows that come and go -------------------------------


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
MOST_CHANGES = 8
"""More changed rows in one round are factorized anew, unless all of them came."""
SMALLEST_NOISE = 1e-3
"""Rows with less noise than this share of the prior variance are not taken back but factorized
anew: the two pivots nearly cancel, and digits are lost in proportion to the inverse noise."""


class Posterior:
    """The posteriors of ``G`` priors and ``m`` outputs at ``A`` points.

    Attributes:
        prior: The priors.
        lam: ``G`` noise variances of one observation.
        mean: ``G x m x A``, in raw units; changed in place by the next row.
        variance: ``G x A``, changed in place; rounding can make it slightly negative.
        gain: ``G`` realized information gains ``1/2 ln det(I + K / lam)`` of the rows, in nats.
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
        self.gain = lam.new_zeros(groups)
        self._must_factorize = False
        self._smallest_noise = SMALLEST_NOISE * float(self.variance.max()) / float(lam.min())
        self._V = lam.new_empty(groups, FIRST_ROOM, points)
        self._sign = lam.new_ones(FIRST_ROOM)
        self._first_limit = FIRST_ROOM if points <= LARGEST_MATRIX else FIRST_ROOM_OF_MANY
        self._num_folds, self._limit = 0, self._first_limit
        self._pending: Rows | None = None
        # by the number of a point, how many rows its column of covariances accounts for, and these
        self._seen: dict[int, tuple[int, NDArray[np.float64]]] = {}

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
        for name in ("lam", "_prior_mean", "mean", "variance", "_V", "gain", "folded"):
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
        own = copy.copy(self)
        own.variance = self.variance.clone()
        own._pending, own._seen = pending, {}
        for index, noise in zip(pending.index.tolist(), pending.noise.tolist(), strict=True):
            own.add(index, None, noise)
        own.gain = self.gain
        return own

    def set_prior_mean(self, value: float) -> None:
        """Give all outputs another prior mean, from the next call of :meth:`at` on."""
        self._prior_mean = torch.full_like(self._prior_mean, value)
        self._must_factorize = True

    def at(self, rows: Rows, now: Tensor | None = None) -> Posterior:
        """Condition on the rows of a round in place, by the cheapest exact way from the last ones.

        Args:
            rows: All rows that count in the round.
            now: None; these points have no fronts.
        """
        old = self.rows
        changes = None if self._must_factorize else changes_between(old, rows)
        self._must_factorize = True  # if this is interrupted
        if changes is None or not self.has_room(*changes):
            self.factorize(rows.collapsed())
        else:
            left, came = changes
            for each, some, sign in ((old, left, -1.0), (rows, came, 1.0)):  # negative noise
                for i in some:
                    self.add(int(each.index[i]), each.Y[i].tolist(), sign * float(each.noise[i]))
        self.rows, self._must_factorize = rows, False
        return self

    def factorize(self, rows: Rows) -> Posterior:
        """Condition on exactly these rows, from scratch: ``n^2 (n / 3 + A)`` operations.

        Args:
            rows: The rows, cheapest with one for each place; or ``G x n`` rows of replicates, of
                which those with infinite noise say nothing.
        """
        n, groups = rows.index.shape[-1], len(self.lam)
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
        self.gain = gain_of(factor, noise)
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
        if len(self.lam) > 1 or self.lam.device.type != "cpu":
            every = torch.full((len(self.lam),), index, device=self.lam.device)
            given = None if outcomes is None else self.lam.new_tensor(outcomes)
            return self.add_each(every, given, noise=noise)
        # What add_each does, in the memory of a single posterior: a row of a few hundred numbers
        # takes a NumPy call a microsecond and a PyTorch call five, and long runs are made of them.
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
        self.gain = self.gain + 0.5 * math.log(total / (lam * noise))
        self.num_kept = n + 1
        return self

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
        n, groups = self.num_kept, torch.arange(len(self.lam), device=index.device)
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
        self.gain = self.gain + 0.5 * total.div_(self.lam * noise).log_()
        self.num_kept = n + 1
        return self

    def has_room(self, left: Sequence[int], came: Sequence[int]) -> bool:
        """Return whether rows are best changed one by one; rows are folded if that makes room.

        Args:
            left: The numbers of the rows that leave.
            came: The numbers of the rows that come.
        """
        count = len(left) + len(came)
        if left:  # rows that come lose no digits
            least = float(self.rows.noise[left].min())
            if count > MOST_CHANGES or least < self._smallest_noise:
                return False
        if count > FOLDED_AT_ONCE:
            return False
        if self.num_kept + count <= self._limit:
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
            self.folded = whole.expand(len(self.lam), -1, -1).clone()
        self.folded.baddbmm_(self._signed(V).mT, V, alpha=-1.0)  # K - V' S V
        self.num_kept, self._limit = 0, FOLDED_AT_ONCE
        self._num_folds += 1

    def _folding_pays(self, num_places: int) -> bool:
        points = self.prior.num_points
        fits = len(self.lam) * points**2 <= LARGEST_FOLDED
        return ROW_COST * num_places > points and fits

    def columns(self, index: Tensor) -> Tensor:
        """Return the posterior covariances of points with all points, ``G x k x A``.

        Args:
            index: ``k`` numbers of points, or ``G x k``.
        """
        base = self._base(index)  # 1 or G x k x A
        if not self.num_kept:
            return base.expand(len(self.lam), -1, -1)
        V = self._V[:, : self.num_kept]
        at = index.expand(len(self.lam), -1).unsqueeze(-2).expand(-1, self.num_kept, -1)
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
            self._V, self._sign = V.new_empty(len(self.lam), room, V.shape[-1]), sign.new_ones(room)
            self._V[:, :n], self._sign[:n] = V[:, :n], sign[:n]


def gain_of(factor: Tensor, noise: Tensor) -> Tensor:
    """Return ``1/2 ln det(L L') - 1/2 ln det(lam N)``, ``G``."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) - 0.5 * noise.log().sum(-1)


# --- The posterior of one round, from rows that change in every round -----------------------------
# Contexts and the round are columns in front of all points, and weights fade, so that every round
# has other covariances or other noise. Nothing can be kept then but the factor of rows that stay.
# What costs most is the variance of every point, ``n^2 A`` operations; everything else costs ``n
# A``:
#
#     a = (K + lam N)^-1 (Y - prior mean)        mean = prior mean + K(points, rows) a
#     draw - mean = f - K(points, rows) (K + lam N)^-1 e     (Matheron's rule)
#
# An upper confidence bound needs variances only where it may be the largest, so that
# :meth:`RoundPosterior.screened_variance` bounds the others by the rows that say most.


FEW_OPERATIONS = 8e6
"""If the variances of all points take fewer, bounds on them cost as much."""
TELLING_ROWS = 64
"""Rows from which bounds on all variances are computed, or a quarter of them if that is more."""
FIRST_CANDIDATES = 16
"""The number of points whose variances are computed first; four times as many in each step."""


class RoundPosterior:
    """The posteriors of ``G`` priors and ``m`` outputs at ``A`` points in one round.

    Its factor of the rows grows by those that come, unless others change: ``n^2`` operations a row
    instead of ``n^3 / 3`` a round.

    Attributes:
        prior: The priors.
        lam: ``G`` noise variances.
        rows: The rows, as they were given.
        collapsed: The rows that are factorized, for which draws need numbers.
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
        rows: Rows | None = None,
        now: Tensor | None = None,
        factor: Tensor | None = None,
    ) -> None:
        """See the class.

        Args:
            prior: The priors.
            lam: ``G`` noise variances.
            prior_mean: ``G x m``.
            rows: The rows; none if omitted.
            now: ``c``, the front of all points; None if there are none.
            factor: The factor of the first rows; see :func:`extended`.
        """
        if rows is None:
            rows = Rows.empty(prior_mean.shape[1], lam, prior.num_front)
            now = lam.new_zeros(prior.num_front) if prior.num_front else None
        known = lam.new_empty(len(lam), 0, 0) if factor is None else factor
        self.prior, self.lam, self.now = prior, lam, now
        self.rows = self.collapsed = rows
        self._prior_mean, self.factor = prior_mean, extended(prior, lam, rows, known)
        self.gain = gain_of(self.factor, lam.unsqueeze(-1) * rows.noise)
        # mean = prior mean + K(points, rows) (K + lam N)^-1 (Y - prior mean)
        self._coefficients = self._solved(rows.Y - prior_mean.unsqueeze(-2))  # G x n x m
        self.mean = prior_mean.unsqueeze(-1) + self._coefficients.mT @ self._columns

    def set_prior_mean(self, value: float) -> None:
        """Give all outputs another prior mean, from the next call of :meth:`at` on."""
        self._prior_mean = torch.full_like(self._prior_mean, value)

    def at(self, rows: Rows, now: Tensor | None = None) -> RoundPosterior:
        """Return the posterior given the rows of a round.

        Args:
            rows: All rows that count in the round.
            now: ``c``, the front of all points in the round; None if there are none.
        """
        factored, factor = rows, None
        # rows that come stay the last ones unless some place has several
        if rows.place is None or rows.front is None or len(rows.place.unique()) < len(rows):
            factored = rows.collapsed()
        if begins_with(factored, self.collapsed):
            factor = self.factor
        given = (self.prior, self.lam, self._prior_mean, factored, now, factor)
        found = RoundPosterior(*given)
        found.rows = rows
        return found

    @cached_property
    def _columns(self) -> Tensor:
        """``K(rows, points)``, ``G x n x A``, or 1 for ``G``."""
        return self.prior.columns(self.collapsed.index, self.collapsed.front, self.now)

    @cached_property
    def _prior_variance(self) -> Tensor:
        return self.prior.variances(self.now).expand(len(self.lam), -1)

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

    def given(self, pending: Rows) -> RoundPosterior:
        """Return the posterior in which more rows have their posterior means as outcomes.

        Its mean and gain are those of this posterior.

        Args:
            pending: ``k`` rows; their outcomes do not matter.
        """
        every = self.collapsed.followed_by(pending)
        view = RoundPosterior(self.prior, self.lam, self._prior_mean, every, self.now, self.factor)
        view.mean, view.gain = self.mean, self.gain
        return view

    def moments_at(self, index: Tensor, front: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances behind any fronts, ``G x m x k`` and ``G x k``.

        Args:
            index: ``k`` numbers of points.
            front: ``k x c``, the front of each; None if there are none.
        """
        cross = self.prior.block(
            self.collapsed.index, self.collapsed.front, index, front
        )  # G x n x k
        prior = self.prior.among(index, front).diagonal(dim1=-2, dim2=-1)
        mean = self._prior_mean.unsqueeze(-1) + self._coefficients.mT @ cross
        return mean, (prior - self._half(cross).square().sum(-2)).clamp_min(0.0)

    def group(self, number: int) -> RoundPosterior:
        """Return the posterior of one of the ``G`` priors."""
        some = slice(number, number + 1)
        means, factor = self._prior_mean[some], self.factor[some]
        given = (self.lam[some], means, self.collapsed, self.now, factor)
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
        rows = self.collapsed
        if len(self.lam) > 1 or len(rows) ** 2 * self.prior.num_points < FEW_OPERATIONS:
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
        rows, prior = self.collapsed, self._prior_variance[0]
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
        columns = columns.expand(len(self.lam), -1, -1)
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
