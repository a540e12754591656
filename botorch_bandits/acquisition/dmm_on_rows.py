r"""The DMM bound on arms with contexts, or with a model that forgets, without a BoTorch model.

Outcomes of one arm with one front (context and round) form one row, multiplied by the square root
``w`` of its weight. The eigenvectors of all rows serve all ridges. With few rows, they are computed
in each round; with many, they are kept for up to 32 rounds while rows are added, leave a window or
fade (:mod:`botorch_bandits.confidence.changed_basis`). The choice of these rows depends only on the
history, so that a loop rebuilt from it has the same eigenvectors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from botorch_bandits.acquisition.ridge_search import RidgeSearch
from botorch_bandits.confidence.changed_basis import ChangedBasis, Spectrum
from botorch_bandits.confidence.dmm import radicands_of, ridge_grid
from botorch_bandits.models.arms_rows import Rows, RowsPosterior
from botorch_bandits.models.changed_rows import Changes, Record
from botorch_bandits.models.changed_rows import changes_of as changes_of_rows
from botorch_bandits.models.front_kernels import FrontCovariance

Array = NDArray[np.float64]
Index = NDArray[np.int64]

FEWEST_KEPT_ROWS = 256
"""With fewer rows the eigenvectors are computed in every round, in a few milliseconds."""

_NAME = "eigenvectors of rows"


def changes_of(posterior: RowsPosterior, record: Record) -> Changes:
    """Return the rows of a round as changes to rows whose eigenvectors may already be known.

    Args:
        posterior: The posterior of the round.
        record: The observations, minus the prior mean.
    """
    rows, outcomes = posterior.rows, posterior.outcomes
    return changes_of_rows(rows, outcomes, posterior.lam, record, FEWEST_KEPT_ROWS)


class RowsInRidges(RidgeSearch):
    """Means and deviations at all ridges, for the requested arms.

    Args:
        posterior: The posterior of one round.
        changes: The rows.
        memo: A store that keeps the eigenvectors from round to round.
        rkhs_bound: ``B`` in outcome units.
        noise_bound: ``R`` in outcome units.
        delta: The set fails to contain the reward with at most this probability.
        num_ridges: The size of the grid.
        doubles: See :meth:`~botorch_bandits.confidence.RidgeConfidenceSet.from_data`.
        unit: The prior standard deviation, the unit of everything except the outcomes.
        may_prune: Whether to compute bounds on all variances, which :meth:`scores` needs.

    Attributes:
        smallest_rkhs_bound: The smallest ``B`` that the data do not refute, in units of ``unit``.
    """

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        posterior: RowsPosterior,
        changes: Changes,
        memo: dict[str, Any],
        rkhs_bound: float,
        noise_bound: float,
        delta: float,
        num_ridges: int,
        doubles: bool,
        unit: float,
        may_prune: bool,
    ) -> None:
        """See the class."""
        self._posterior, self._changes = posterior, changes
        covariance, base, came = posterior.covariance, changes.base, changes.came
        base_ridge = posterior.lam / unit**2
        self._spectrum, trace = _spectrum(covariance, changes, posterior.lam, unit, memo)
        vectors = self._spectrum.eigenvectors
        # for each row, the root of its weight divided by the prior standard deviation
        self._root = np.sqrt(posterior.lam * changes.scale / base.noise) / unit
        self._root_of_came = np.sqrt(posterior.lam / came.noise) / unit
        cross, block = _border(covariance, base, came)
        cross *= self._root * self._root_of_came[:, None]
        block *= self._root_of_came * self._root_of_came[:, None]
        total = changes.scale * (trace.sum() - trace[changes.left].sum()) + block.trace()
        ridges = ridge_grid(
            torch.tensor([base_ridge], dtype=torch.float64),
            torch.tensor([total], dtype=torch.float64),
            num_ridges,
        )
        self._basis = ChangedBasis(
            self._spectrum,
            ridges.numpy(),
            np.concatenate([vectors[changes.left], cross @ vectors]),
            len(changes.left),
            block,
            changes.outcomes * self._root,
            changes.added * self._root_of_came,
            changes.scale,
        )
        # for the arms that were evaluated, in the order of evaluation
        self._slots = np.full(posterior.num_arms, -1)
        self._features, self._added = np.zeros((0, len(vectors))), np.zeros((len(block), 0))
        fits = torch.from_numpy(self._basis.fits)
        # the model's ridge is the last one
        radius = base_ridge * fits[-1:] + (noise_bound / unit) ** 2 * 2.0 * (
            posterior.information_gain + math.log(1.0 / delta)
        )
        radicands, smallest, bound, _ = radicands_of(
            radius, ridges, fits, torch.tensor(rkhs_bound / unit, dtype=torch.float64), doubles
        )
        self.smallest_rkhs_bound = float(smallest)
        super().__init__(
            posterior.mean.numpy(),
            posterior.largest_variance if may_prune else posterior.prior_variances,
            posterior.prior_variances / unit**2,
            unit,
            radicands.numpy(),
            float(bound),
        )

    def moments(self, arms: Index, ridges: Index | slice) -> tuple[Array, Array]:
        new = arms[self._slots[arms] < 0]
        if len(new):
            features, added = self._rows_at(new)
            count = len(self._features)
            self._slots[new] = np.arange(count, count + len(new))
            self._features = np.concatenate([self._features, features])
            self._added = np.concatenate([self._added, added], axis=1)
        slots = self._slots[arms]
        return self._basis.moments(self._features[slots], self._added[:, slots], ridges)

    def of_all(self) -> tuple[Array, Array]:
        """Return the lower and upper bounds of all arms; they are equal if the set is empty."""
        num_rows = len(self._changes.base.arms) + len(self._changes.came.arms)
        count = self._basis.points_at_once(num_rows)
        every = np.arange(self._posterior.num_arms)
        parts = []
        for start in range(0, len(every), count):
            some = every[start : start + count]
            parts.append(self.bounds_of(*self._basis.moments(*self._rows_at(some)), some))
        lower, upper = (np.concatenate(part) for part in zip(*parts, strict=True))
        middle = 0.5 * (lower + upper)
        return np.minimum(lower, middle), np.maximum(upper, middle)

    def _rows_at(self, arms: Index) -> tuple[Array, Array]:
        """Return the features of some arms, and their kernel values with added rows."""
        posterior, changes = self._posterior, self._changes
        base, came = (
            posterior.covariance.columns(rows.arms, rows.fronts, posterior.front, arms)
            * (root / self.unit)[:, None]
            for rows, root in ((changes.base, self._root), (changes.came, self._root_of_came))
        )
        return base.T @ self._spectrum.eigenvectors, came


def _border(covariance: FrontCovariance, base: Rows, came: Rows) -> tuple[Array, Array]:
    """Return the covariances of added rows, ``d x p`` and ``d x d``."""
    count = len(base.arms)
    if not covariance.num_front and len(came.arms):
        both, none = np.concatenate([base.arms, came.arms]), np.zeros(0)
        whole = covariance.columns(came.arms, came.fronts, none, both)
        return whole[:, :count].copy(), whole[:, count:].copy()
    every = base.followed_by(came)
    pairs = zip(came.arms.tolist(), came.fronts, strict=True)
    rows = [covariance.with_rows(every.arms, every.fronts, *pair) for pair in pairs]
    whole = np.array(rows).reshape(len(rows), len(every.arms))
    return whole[:, :count].copy(), whole[:, count:].copy()


def _spectrum(
    covariance: FrontCovariance, changes: Changes, lam: float, unit: float, memo: dict[str, Any]
) -> tuple[Spectrum, Array]:
    """Return the eigenvectors of the base, kept or computed, and its diagonal at that time."""
    base, known = changes.base, memo.get(_NAME)
    if known is not None and base.is_same(known[0]):
        return known[1], known[2]
    root = np.sqrt(lam / base.noise) / unit
    matrix = covariance.among(base.arms, base.fronts) * root
    matrix *= root[:, None]
    diagonal = matrix.diagonal().copy()
    spectrum = Spectrum.of(matrix)
    memo[_NAME] = (base, spectrum, diagonal)
    return spectrum, diagonal
