"""Find the arm with the largest DMM bound, evaluating all ridges for only a few arms.

The bound is the minimum over the ridges. The bound at any single ridge is therefore at least as
large, and an arm whose bound at one ridge is below the minimum of another arm can be discarded. The
search first uses the ridge of the model, whose posterior is at hand, then a few ridges, then all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE

Array = NDArray[np.float64]
Index = NDArray[np.int64]

NUM_PROBES = 16
"""The number of arms with the largest means, and with the largest bounds at one ridge, that are
evaluated first."""

STEP = 4
"""The spacing of the ridges that are evaluated before all of them."""

NUM_FIRST = 4
"""The number of these arms for which all ridges are then evaluated first."""

MARGIN = 1e-6
"""Arms this close to the largest bound are evaluated, in prior standard deviations."""

SMALLEST_RADICAND = 0.05
"""Below this share of the squared norm the set is nearly empty, and everything is computed."""


class RidgeSearch(ABC):
    """Means and deviations at all ridges, for the requested arms.

    Args:
        mean: ``num_arms`` posterior means at the model's ridge, minus the prior mean.
        variance: ``num_arms`` posterior variances there, or upper bounds on them.
        prior_variance: ``num_arms``.
        unit: The prior standard deviation, the unit of everything except the outcomes.
        radicands: ``num_ridges``; the last one is that of the model's ridge.
        rkhs_bound: ``B``, after doubling if that was requested.

    Attributes:
        unit: The prior standard deviation.
        radicands: ``num_ridges``; the radicand at each ridge.
    """

    def __init__(
        self,
        mean: Array,
        variance: Array,
        prior_variance: Array,
        unit: float,
        radicands: Array,
        rkhs_bound: float,
    ) -> None:
        """See the class."""
        self.unit, self.radicands = unit, radicands
        self._mean, self._variance = mean, variance
        self._prior_variance, self._rkhs_bound = prior_variance, rkhs_bound
        self._roots = np.sqrt(np.maximum(radicands, 0.0))

    @abstractmethod
    def moments(self, arms: Index, ridges: Index | slice) -> tuple[Array, Array]:
        """Return means, and the reductions of the variances by outcomes, ``k x num_ridges`` each.

        Args:
            arms: ``k`` arm numbers.
            ridges: The numbers of the ridges.
        """

    @property
    def is_refuted(self) -> bool:
        """Whether the data refute kernel, ``B`` and ``R`` at level ``delta``."""
        return bool((self.radicands < 0.0).any())

    @property
    def is_nearly_empty(self) -> bool:
        """Whether the set is so small that its ends may meet."""
        return float(self.radicands.min()) < SMALLEST_RADICAND * self._rkhs_bound**2

    def ends(self, arms: Index, ridges: Index | slice = slice(None)) -> tuple[Array, Array]:
        """Return the lower and upper bound at some arms, the tightest of all or some ridges.

        Args:
            arms: ``k`` arm numbers.
            ridges: The numbers of the ridges.
        """
        return self.bounds_of(*self.moments(arms, ridges), arms, ridges)

    def bounds_of(
        self, mean: Array, explained: Array, arms: Index, ridges: Index | slice = slice(None)
    ) -> tuple[Array, Array]:
        """Return the lower and upper bound that follow from moments.

        Args:
            mean: ``k x num_ridges``, from :meth:`moments`.
            explained: ``k x num_ridges``, from :meth:`moments`.
            arms: ``k`` arm numbers.
            ridges: The numbers of the ridges.
        """
        prior = self._prior_variance[arms]
        deviation = np.maximum(prior[:, None] - explained, MINIMUM_VARIANCE)
        np.sqrt(deviation, out=deviation)
        deviation *= self._roots[ridges]
        at_infinity = self._rkhs_bound * np.sqrt(prior)
        lower = (mean - deviation).max(-1)
        np.add(mean, deviation, out=deviation)
        self._tightest = deviation.argmin(-1)
        upper = np.minimum(deviation.min(-1), at_infinity)
        return np.maximum(lower, -at_infinity), upper

    def scores(self, sign: float, among: Index | None = None) -> Array | None:
        """Return the bounds where they may be the largest, and larger numbers elsewhere.

        Args:
            sign: 1 for upper bounds, -1 for minus the lower ones.
            among: The arms among which the largest bound is sought; all if omitted.

        Returns:
            ``num_arms``: an arm whose number is not its bound is never the largest, by a margin far
            above rounding. None if the set is nearly empty.
        """
        if self.is_nearly_empty:
            return None
        mean = self._mean * (sign / self.unit)
        scores = np.maximum(self._variance / self.unit**2, MINIMUM_VARIANCE)
        np.sqrt(scores, out=scores)
        scores *= self._roots[-1]
        scores += mean
        np.minimum(scores, self._rkhs_bound * np.sqrt(self._prior_variance), out=scores)
        told = (mean, scores) if among is None else (mean[among], scores[among])
        probes = np.union1d(*(_largest(each, NUM_PROBES) for each in told))
        may_win = np.ones(len(scores), dtype=np.bool_)
        if among is not None:
            probes, may_win[:] = among[probes], False
            may_win[among] = True
        num_ridges = len(self.radicands)
        if not self._refine(scores, probes, sign, np.arange(0, num_ridges, STEP)):
            return None
        best = probes[_largest(scores[probes], NUM_FIRST)]
        if not self._refine(scores, best, sign, slice(None)):
            return None
        place = int(scores[best].argmax())
        largest = float(scores[best[place]])
        # the tightest bounds of other arms are likely at the same ridge as that of the best arm
        tightest = int(self._tightest[place])
        near = np.unique(np.clip([tightest - 2, tightest, tightest + 2], 0, num_ridges - 1))
        for looked_at, ridges in ((probes, near), (best, slice(None))):
            is_left = may_win & (scores >= largest - MARGIN)
            is_left[looked_at] = False
            left = np.flatnonzero(is_left)
            if len(left) and not self._refine(scores, left, sign, ridges):
                return None
        return scores

    def _refine(self, scores: Array, arms: Index, sign: float, ridges: Index | slice) -> bool:
        """Lower the numbers of some arms to their bounds; return whether no ends crossed."""
        lower, upper = self.ends(arms, ridges)
        scores[arms] = np.minimum(scores[arms], upper if sign > 0.0 else -lower)
        return not bool((lower > upper).any())


def _largest(values: Array, count: int) -> Index:
    """Return the numbers of the largest values, in no order."""
    if count >= len(values):
        return np.arange(len(values))
    found: Index = np.argpartition(values, -count)[-count:]
    return found
