r"""The posterior on arms of rows that leave a window or fade, as changes of rows known before.

Where rows leave, or their noise grows, a factorization of a round before is of no use. The
eigenvectors of their covariance are: with :math:`W` the weights of the rows of a round before,
:math:`W^{1/2} K W^{1/2} = Q \Lambda Q^\top` and the features
:math:`\Phi = Q^\top W^{1/2} K_{\cdot}` of all arms, rows whose weights have faded by a common
factor :math:`s` since lower the variances of the arms by

.. math:: \sum_j \frac{s \Phi_j^2}{s \Lambda_j + \lambda} ,

one product of numbers that are kept. Rows that have left are taken out of this, and those that have
come are added, as in :mod:`botorch_bandits.confidence.changed_basis`, which says how and why
digits are kept: with the inverse of a small block, and not as rows of negative noise.

Which rows the eigenvectors are of depends on the number of outcomes alone, so that a loop that is
built again from its history has the same ones. They are of all outcomes up to the last multiple of
:data:`STRIDE`; a round costs as many products of ``n`` rows with all arms as there were changes.
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

from botorch_bandits.confidence.changed_basis import Spectrum
from botorch_bandits.docstrings import fill_in_docstrings
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
"""Eigenvectors are kept for so many outcomes."""

MOST_CHANGES = 96
"""With more changes, as where outcomes come late, eigenvectors are computed anew."""

FEWEST_ROWS = 48
"""With fewer rows a factorization of them in each round costs no more."""

_NAME = "rows with their features of arms"


@dataclass(frozen=True, eq=False)
class Before:
    """The outcomes of which eigenvectors are kept, in the order in which they arrived.

    Attributes:
        arms: ``m`` arms that were played.
        fronts: ``m x num_front``; what stood in front of them.
        pairs: ``m`` numbers that are equal where arms and fronts are.
        weights: ``m`` weights in the round after the last of them.
        scale: What has become of weights since, of all alike; None in a window.
        num_outcomes: How many outcomes there were then.
    """

    arms: Index
    fronts: Array
    pairs: Index
    weights: Array
    scale: float | None
    num_outcomes: int


@dataclass(frozen=True, eq=False)
class Record:
    """What a round knows of the rounds before, in the order in which outcomes arrived.

    Attributes:
        arms: ``n`` arms that were played.
        fronts: ``n x num_front``; what stood in front of them.
        pairs: ``n`` numbers that are equal where arms and fronts are.
        outcomes: ``n`` outcomes, with the prior mean in them; ``n x num_outputs`` where there are
            several outputs.
        weights: ``n`` weights, or None where rows stay as they are.
        version: Another one says that rows before the last ones have changed.
        before: From a stride to what there was after the last multiple of so many outcomes; None
            where rows stay.
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
    """The rows of which eigenvectors are known, and what has become of them.

    Attributes:
        base: The rows that the eigenvectors are of, with their noise of then.
        scale: What their weights have been multiplied with since.
        left: Numbers of rows of the base that do not count any more.
        came: Rows that count beside those that are left.
        outcomes: Mean outcomes of the base; of what has left they do not matter.
        added: Mean outcomes of those that have come.
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
        fronts: ``n x num_front``; what stood in front of them.
        pairs: ``n`` numbers that are equal where arms and fronts are.
        outcomes: ``n`` outcomes, or ``n x num_outputs``.
        weights: ``n`` positive weights: the noise variance of an outcome is ``lam`` over its own.
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
    """Return the rows of a round as changes of rows whose eigenvectors may be known.

    Args:
        rows: Those that count.
        outcomes: Their ``n`` mean outcomes less the prior mean, or ``n x num_outputs``.
        lam: The noise variance of one outcome.
        record: What was observed, less the prior mean.
        fewest: With fewer rows they are a base of their own.
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
    # by pair: weights then and now, and the mean outcomes
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
    if before.scale is None:  # a window: whole numbers
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
    """What is kept of the rows of a round before.

    Attributes:
        base: The rows, ``p``.
        spectrum: Of their covariance, multiplied with the roots of their weights.
        features: ``p x num_arms``.
        squares: Of the features; None where all weights stay as they are.
        explained: ``num_arms``; by how much these rows lowered the variances then.
    """

    base: Rows
    spectrum: Spectrum
    features: Array
    squares: Array | None
    explained: Array


def kept_of(
    covariance: FrontCovariance, changes: Changes, lam: float, memo: dict[str, Any]
) -> Kept:
    """Return what is kept of the base of a round, from a round before or computed.

    Args:
        covariance: The prior, with nothing in front of arms.
        changes: By the base.
        lam: The noise variance of one outcome.
        memo: Where it is kept.
    """
    base = changes.base
    known: Kept | None = memo.get(_NAME)
    if known is not None and base.is_same(known.base):
        return known
    root = np.sqrt(lam / base.noise)
    every = np.arange(covariance.num_arms)  # asked for by name, so that they are not kept, too
    rows = covariance.columns(base.arms, base.fronts, np.zeros(0), every) * root[:, None]
    spectrum = Spectrum.of(rows[:, base.arms] * root)
    features = spectrum.eigenvectors.T @ rows
    squares = np.square(features)
    explained = (1.0 / (spectrum.eigenvalues + lam)) @ squares
    known = Kept(base, spectrum, features, squares if changes.fades else None, explained)
    memo[_NAME] = known
    return known


class ChangedRowsPosterior(RowsPosterior):
    """The posterior of all arms from rows that have changed, without a factorization of them.

    Nothing is pending and nothing stands in front of the arms. A factor is computed where draws
    need one.

    Args:
        covariance: The prior.
        rows: The observed rows.
        outcomes: ``n`` mean outcomes of the rows, less the prior mean; or ``n x num_outputs``.
        factor: Returns the factor of the rows.
        lam: The noise variance of one outcome.
        normal: See the base class.
        matrices: See the base class.
        played: See the base class.
        changes: What has become of the base.
        kept: What is kept of it.
    """

    def __init__(
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
        """See the base class."""
        changes, moments = self._changes, self._moments
        count = len(changes.base.arms) - len(changes.left) + len(changes.came.arms)
        logs = np.log(changes.scale * self._kept.spectrum.eigenvalues + self.lam).sum()
        logs += 2.0 * np.log(moments.diagonal).sum() - count * np.log(self.lam)
        return torch.tensor(0.5 * float(logs), dtype=torch.float64)

    @cached_property
    def means(self) -> Tensor:
        """See the base class."""
        return torch.from_numpy(self._moments.means)

    @cached_property
    def variance(self) -> Tensor:
        """See the base class."""
        known = self._moments.explained
        return torch.from_numpy(np.maximum(self.prior_variances - known, 0.0))

    @property
    def largest_variance(self) -> Array:
        """See the base class; here they are the variances."""
        return self.variance.numpy()

    def variance_at(self, arms: Index) -> Array:
        """See the base class."""
        return self.variance.numpy()[arms]

    def moments_of_rows(self, arms: Index, fronts: Array) -> tuple[Array, Array]:
        """See the base class; nothing stands in front of the arms."""
        return self.mean.numpy()[arms], self.variance_at(arms)

    def screened_variance(
        self,
        mean: Array,
        width: float,
        smallest: float,
        tolerance: Callable[[float], float],
        among: Tensor | None = None,
    ) -> Tensor:
        """See the base class; here all are exact."""
        return self.variance

    @cached_property
    def _moments(self) -> Moments:
        return _moments(self.covariance, self._changes, self._kept, self.lam)


class Moments(NamedTuple):
    """What changed rows tell of all arms.

    Attributes:
        means: ``num_outputs x num_arms``.
        explained: ``num_arms``; by how much variances are lowered.
        diagonal: Of the triangular matrix of the changes.
    """

    means: Array
    explained: Array
    diagonal: Array


def _moments(covariance: FrontCovariance, changes: Changes, kept: Kept, lam: float) -> Moments:
    """Return what changed rows tell; the formulas are those of ``changed_basis``."""
    base, came, num_left = changes.base, changes.came, len(changes.left)
    vectors, scale = kept.spectrum.eigenvectors, changes.scale
    inverse = 1.0 / (scale * kept.spectrum.eigenvalues + lam)
    outcomes, added = (
        each[:, None] if each.ndim == 1 else each for each in (changes.outcomes, changes.added)
    )
    # rows are multiplied with the roots of their weights now, features with the root of the scale
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


fill_in_docstrings(__name__)
