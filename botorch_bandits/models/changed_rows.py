r"""The posterior on arms from rows that leave a window or fade, as changes of earlier rows.

If rows leave, or their noise grows, the factorization of an earlier round is of no use, but the
eigenvectors of their covariance are. With :math:`W` the weights of the rows in an earlier round,
:math:`W^{1/2} K W^{1/2} = Q \Lambda Q^\top` and the features :math:`\Phi = Q^\top W^{1/2}
K_{\cdot}` of all arms, rows whose weights have since faded by a common factor :math:`s` lower the
variances of the arms by

.. math:: \sum_j \frac{s \Phi_j^2}{s \Lambda_j + \lambda} ,

which is one product with numbers that are kept. Rows that have left are then removed and new rows
are added, as in :mod:`botorch_bandits.core.ridges`: through the inverse of a small
block rather than as rows with negative noise, which preserves digits.

Which rows the eigenvectors belong to depends only on the number of outcomes, so that a loop that is
rebuilt from its history has the same ones: they are all outcomes up to the last multiple of
:data:`STRIDE`. In a round, each change costs one product of ``n`` rows with all arms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg.lapack import dtrtri
from torch import Tensor

from botorch_bandits.models.arms_rows import (
    Rows,
    RowsPosterior,
    along_rows,
    sums_of_groups,
)
from botorch_bandits.models.forgetting import NEGLIGIBLE_WEIGHT
from botorch_bandits.models.front_kernels import Array, FrontCovariance, Index
from botorch_bandits.models.row_factors import RowFactor

STRIDE = 32
"""Eigenvectors are kept for this many outcomes."""

MOST_CHANGES = 96
"""With more changes, for example when outcomes arrive late, eigenvectors are recomputed."""

FEWEST_ROWS = 48
"""With fewer rows, factorizing them in each round costs no more."""

_NAME = "rows with their features of arms"


class Spectrum(NamedTuple):
    """The eigenvectors of a kernel matrix.

    Attributes:
        eigenvalues: ``p``, at least 0.
        eigenvectors: ``p x p``.
    """

    eigenvalues: Array
    eigenvectors: Array

    @classmethod
    def of(cls, matrix: Array) -> Spectrum:
        """Compute the eigenvectors of a matrix.

        Args:
            matrix: ``p x p``, positive semi-definite up to rounding.
        """
        if not len(matrix):
            return cls(np.zeros(0), np.zeros((0, 0)))
        values, vectors = np.linalg.eigh(matrix)
        return cls(np.maximum(values, 0.0), vectors)


@dataclass(frozen=True, eq=False)
class Before:
    """The outcomes whose eigenvectors are kept, in the order in which they arrived.

    Attributes:
        arms: ``m`` arms that were played.
        fronts: ``m x num_front``; their fronts.
        pairs: ``m`` numbers, equal for equal pairs of arm and front.
        weights: ``m`` weights in the round after the last of these outcomes.
        scale: The common factor by which all weights have changed since; None in a window.
        num_outcomes: The number of outcomes at that time.
    """

    arms: Index
    fronts: Array
    pairs: Index
    weights: Array
    scale: float | None
    num_outcomes: int


@dataclass(frozen=True, eq=False)
class Record:
    """What a round knows about the rounds before it, in the order in which outcomes arrived.

    Attributes:
        arms: ``n`` arms that were played.
        fronts: ``n x num_front``; their fronts.
        pairs: ``n`` numbers, equal for equal pairs of arm and front.
        outcomes: ``n`` outcomes, including the prior mean; ``n x num_outputs`` if there are several
            outputs.
        weights: ``n`` weights, or None if rows stay as they are.
        version: A number that differs whenever rows before the last ones have changed.
        before: Given a stride, returns the outcomes up to the last multiple of it; None if rows
            stay.
    """

    arms: Index
    fronts: Array
    pairs: Index
    outcomes: Array
    weights: Array | None
    version: int
    before: Callable[[int], Before] | None = None


@dataclass(frozen=True, eq=False)
class Changes:
    """Rows whose eigenvectors are known, and how they have changed since.

    Attributes:
        base: The rows that the eigenvectors belong to, with their noise at that time.
        scale: The factor by which their weights have been multiplied since.
        left: The numbers of the rows of the base that no longer count.
        came: The rows that count in addition to the remaining ones.
        outcomes: Mean outcomes of the base; those of rows that have left do not matter.
        added: Mean outcomes of the rows that have been added.
        fades: Whether weights change at all.
    """

    base: Rows
    scale: float
    left: Index
    came: Rows
    outcomes: Array
    added: Array
    fades: bool = False


def collapsed_rows(
    arms: Index, fronts: Array, pairs: Index, outcomes: Array, weights: Array, lam: float
) -> tuple[Rows, Array]:
    """Return one row for each distinct pair of an arm and a front, and its weighted mean outcome.

    Args:
        arms: ``n`` arms that were played.
        fronts: ``n x num_front``; their fronts.
        pairs: ``n`` numbers, equal for equal pairs of arm and front.
        outcomes: ``n`` outcomes, or ``n x num_outputs``.
        weights: ``n`` positive weights: an outcome has the noise variance ``lam`` over its weight.
        lam: The noise variance of an outcome of weight 1.
    """
    totals = np.bincount(pairs, weights)
    sums = sums_of_groups(pairs, along_rows(weights, outcomes) * outcomes, len(totals))
    first = np.zeros(len(totals), dtype=np.int64)
    first[pairs[::-1]] = np.arange(len(pairs))[::-1]
    present = np.flatnonzero(totals)
    first, totals = first[present], totals[present]
    means = sums[present] / along_rows(totals, outcomes)
    return Rows(arms[first], fronts[first], lam / totals), means


def changes_of(rows: Rows, outcomes: Array, lam: float, record: Record, fewest: int) -> Changes:
    """Express the rows of a round as changes of rows whose eigenvectors may be known.

    Args:
        rows: The rows that count.
        outcomes: Their ``n`` mean outcomes less the prior mean, or ``n x num_outputs``.
        lam: The noise variance of one outcome.
        record: The observations, less the prior mean.
        fewest: With fewer rows than this, the rows are a base of their own.
    """
    count = len(rows.arms)
    nothing = Rows(rows.arms[:0], rows.fronts[:0], rows.noise[:0])
    alone = Changes(rows, 1.0, np.zeros(0, dtype=np.int64), nothing, outcomes, outcomes[:0])
    if count < fewest:
        return alone
    if record.weights is None:
        first = count // STRIDE * STRIDE
        base, came = (
            Rows(rows.arms[some], rows.fronts[some], rows.noise[some])
            for some in (slice(0, first), slice(first, None))
        )
        return Changes(base, 1.0, alone.left, came, outcomes[:first], outcomes[first:])
    assert record.before is not None
    before = record.before(STRIDE)
    # by pair: the weights then and now, and the mean outcomes
    size = int(record.pairs.max()) + 1
    if len(before.pairs):
        size = max(size, int(before.pairs.max()) + 1)
    then = np.bincount(before.pairs, before.weights, size)
    now = np.bincount(record.pairs, record.weights, size)
    weighted = along_rows(record.weights, outcomes) * record.outcomes
    sums = sums_of_groups(record.pairs, weighted, size)
    means = sums / along_rows(np.where(now > 0.0, now, 1.0), outcomes)
    first_of = np.zeros(size, dtype=np.int64)
    first_of[record.pairs[::-1]] = np.arange(len(record.pairs))[::-1]
    in_base = np.flatnonzero(then > NEGLIGIBLE_WEIGHT)
    if before.scale is None:  # in a window, weights are whole numbers
        has_left = now[in_base] < then[in_base]
        more = now - then
        more[in_base[has_left]] = now[in_base[has_left]]
    else:
        has_left = np.zeros(len(in_base), dtype=np.bool_)
        late = record.pairs[before.num_outcomes :]
        more = np.bincount(late, record.weights[before.num_outcomes :], size)
    new = np.flatnonzero(more > 0.0)
    left = np.flatnonzero(has_left)
    if len(left) + len(new) > MOST_CHANGES:
        return alone
    at = first_of[new]
    came = Rows(record.arms[at], record.fronts[at], lam / more[new])
    own = np.zeros(size, dtype=np.int64)
    own[before.pairs[::-1]] = np.arange(len(before.pairs))[::-1]
    own = own[in_base]
    base = Rows(before.arms[own], before.fronts[own], lam / then[in_base])
    fades = before.scale is not None
    scale = 1.0 if before.scale is None else before.scale
    return Changes(base, scale, left, came, means[in_base], means[new], fades)


class Kept(NamedTuple):
    """What is kept of the rows of an earlier round.

    Attributes:
        base: The ``p`` rows.
        spectrum: The spectrum of their covariance, multiplied by the roots of their weights.
        features: ``p x num_arms``.
        squares: The squares of the features; None if all weights stay as they are.
        explained: ``num_arms``; by how much these rows lowered the variances at that time.
    """

    base: Rows
    spectrum: Spectrum
    features: Array
    squares: Array | None
    explained: Array


def kept_of(
    covariance: FrontCovariance, changes: Changes, lam: float, memo: dict[str, Any]
) -> Kept:
    """Return what is kept of the base of a round, from an earlier round or newly computed.

    Args:
        covariance: The prior of arms without fronts.
        changes: The rows as changes of the base.
        lam: The noise variance of one outcome.
        memo: The dictionary in which it is kept.
    """
    base = changes.base
    known: Kept | None = memo.get(_NAME)
    if known is not None and base.is_same(known.base):
        return known
    root = np.sqrt(lam / base.noise)
    every = np.arange(covariance.num_arms)  # named explicitly, so that the columns are not kept too
    rows = covariance.columns(base.arms, base.fronts, np.zeros(0), every) * root[:, None]
    spectrum = Spectrum.of(rows[:, base.arms] * root)
    features = spectrum.eigenvectors.T @ rows
    squares = np.square(features)
    explained = (1.0 / (spectrum.eigenvalues + lam)) @ squares
    known = Kept(base, spectrum, features, squares if changes.fades else None, explained)
    memo[_NAME] = known
    return known


class ChangedRowsPosterior(RowsPosterior):
    """The posterior of all arms from rows that have changed, without factorizing them.

    No outcome is pending and arms have no fronts. A factor is computed only if draws need one.

    Args:
        covariance: The prior.
        rows: The observed rows.
        outcomes: ``n`` mean outcomes of the rows, less the prior mean; or ``n x num_outputs``.
        factor: A function that returns the factor of the rows.
        lam: The noise variance of one outcome.
        normal: See the base class.
        matrices: See the base class.
        played: See the base class.
        changes: How the base has changed.
        kept: What is kept of the base.
    """

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        covariance: FrontCovariance,
        rows: Rows,
        outcomes: Array,
        factor: Callable[[], RowFactor],
        lam: float,
        normal: Callable[..., Array] | None,
        matrices: Callable[[], tuple[Array, list[Array]]] | None,
        played: Index | None,
        changes: Changes,
        kept: Kept,
    ) -> None:
        """See the class."""
        super().__init__(
            covariance, np.zeros(0), rows, outcomes, factor, lam, None, normal, matrices, played
        )
        self._changes, self._kept = changes, kept

    @cached_property
    def information_gain(self) -> Tensor:
        changes, moments = self._changes, self._moments
        count = len(changes.base.arms) - len(changes.left) + len(changes.came.arms)
        logs = np.log(changes.scale * self._kept.spectrum.eigenvalues + self.lam).sum()
        logs += 2.0 * np.log(moments.diagonal).sum() - count * np.log(self.lam)
        return torch.tensor(0.5 * float(logs), dtype=torch.float64)

    @cached_property
    def means(self) -> Tensor:
        return torch.from_numpy(self._moments.means)

    @cached_property
    def variance(self) -> Tensor:
        known = self._moments.explained
        return torch.from_numpy(np.maximum(self.prior_variances - known, 0.0))

    @property
    def largest_variance(self) -> Array:
        """See the base class; these are the variances themselves."""
        return self.variance.numpy()

    def variance_at(self, arms: Index) -> Array:
        return self.variance.numpy()[arms]

    def moments_of_rows(self, arms: Index, fronts: Array) -> tuple[Array, Array]:
        """See the base class; arms have no fronts."""
        return self.mean.numpy()[arms], self.variance_at(arms)

    def screened_variance(
        self,
        mean: Array,
        width: float,
        smallest: float,
        tolerance: Callable[[float], float],
        among: Tensor | None = None,
    ) -> Tensor:
        """See the base class; all variances are exact."""
        return self.variance

    @cached_property
    def _moments(self) -> Moments:
        return _moments(self.covariance, self._changes, self._kept, self.lam)


class Moments(NamedTuple):
    """What changed rows say about all arms.

    Attributes:
        means: ``num_outputs x num_arms``.
        explained: ``num_arms``; by how much the variances are lowered.
        diagonal: The diagonal of the triangular matrix of the changes.
    """

    means: Array
    explained: Array
    diagonal: Array


def _moments(covariance: FrontCovariance, changes: Changes, kept: Kept, lam: float) -> Moments:
    """Return what changed rows say about all arms, by the formulas of ``core.ridges``."""
    base, came, num_left = changes.base, changes.came, len(changes.left)
    vectors, scale = kept.spectrum.eigenvectors, changes.scale
    inverse = 1.0 / (scale * kept.spectrum.eigenvalues + lam)
    outcomes, added = (
        each[:, None] if each.ndim == 1 else each for each in (changes.outcomes, changes.added)
    )
    # rows are multiplied by the roots of their present weights, features by the root of the scale
    projected = vectors.T @ (np.sqrt(scale * lam / base.noise)[:, None] * outcomes)
    means = (scale**0.5 * inverse[:, None] * projected).T @ kept.features
    explained = kept.explained
    if kept.squares is not None:
        explained = (scale * inverse) @ kept.squares
    if not num_left + len(came.arms):
        return Moments(means, explained, np.ones(0))
    root = np.sqrt(lam / came.noise)
    of_came = kept.features[:, came.arms].T * (scale**0.5 * root)[:, None]
    features = np.concatenate([vectors[changes.left], of_came])
    shrunk = features * inverse
    cross = (scale**0.5 * shrunk) @ kept.features
    if len(came.arms):
        rows = covariance.columns(came.arms, came.fronts, np.zeros(0))
        np.subtract(rows * root[:, None], cross[num_left:], out=cross[num_left:])
        block = rows[:, came.arms] * root * root[:, None]
    else:
        block = np.zeros((0, 0))
    solving, diagonal = _solving_matrix(shrunk @ features.T, num_left, block, lam)
    solved = solving @ cross
    known = shrunk @ projected
    known[num_left:] = added * root[:, None] - known[num_left:]
    weights = solving @ known
    weights[:num_left] *= -1.0
    means += weights.T @ solved
    np.square(solved, out=solved)
    explained = explained + solved[num_left:].sum(0) - solved[:num_left].sum(0)
    return Moments(means, explained, diagonal)


def _solving_matrix(
    products: Array, num_left: int, block: Array, lam: float
) -> tuple[Array, Array]:
    """Return the inverse of the triangular matrix of the changes, and that matrix's diagonal."""
    r = num_left
    came = block - products[r:, r:]
    came[np.diag_indices_from(came)] += lam
    solving = np.zeros_like(products)
    if r:
        own = dtrtri(np.linalg.cholesky(products[:r, :r]).T, lower=0)[0].T
        half = own @ products[:r, r:]
        came += half.T @ half
        solving[:r, :r] = own
    if len(came):
        of_came = dtrtri(np.linalg.cholesky(came).T, lower=0)[0].T
        solving[r:, r:] = of_came
        if r:
            solving[r:, :r] = of_came @ half.T @ own
    return solving, 1.0 / solving.diagonal()
