r"""Posteriors of the suffixes of one stream, each asked at the newest input only.

A stream of inputs and outcomes has many suffixes: all rows since its beginning, and all rows since
some later start. Each suffix has a Gaussian-process posterior of its own. Before a row joins, every
one of them predicts its outcome; nothing else is ever asked of them. Several priors can look at
the same rows: they are a batch dimension of all that is computed.

**On points that repeat** (arms) a suffix keeps, for the ``P`` distinct points of the stream,
:math:`G = (K + \Lambda)^{-1}`, where :math:`\Lambda` has the noise variance of the mean outcome of
each point, and rows and columns of points that it has not seen are 0. With the covariances
:math:`k` of the newest point :math:`i` with all of them,

.. math::
   v = k_i - k^\top G k, \qquad u = e_i - G k, \qquad c = v + \lambda, \qquad
   G \leftarrow G + u u^\top / c, \qquad a \leftarrow a + u \, (y - \mu) / c

and :math:`\mu = m + k^\top a`. The cost of a row does not grow with their number, and all suffixes
are one batched product.

**On points that do not** a suffix keeps the inverse Cholesky factor of its own rows, which grows by
one row in ``n^2`` operations; see ``closed_form.py`` for the formulas.

**The best fit in a ball.** Beside posteriors, :class:`BallFit` has the smallest sum of squares of a
function of bounded norm on the rows of a stream, by Lagrange duality

.. math:: \min_{\|f\|_k \le B} \|y - f(X)\|^2
   = \max_{a \ge 0} \; a \, y^\top (K + a I)^{-1} y - a B^2 .

Repeated points are merged: with counts :math:`C` and means :math:`\bar y` of the distinct ones it
is the sum of squares within them, plus the same expression for :math:`C^{1/2} K C^{1/2}` and
:math:`C^{1/2} \bar y`. Every ``a`` gives a lower bound, and after one eigendecomposition an ``a``
costs little.

Source: Rasmussen and Williams 2006, algorithm 2.1; the first form is a rank-one update. The largest
``a`` is found like the multiplier of a trust region (Moré and Sorensen 1983).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.kernels import StationaryKernel
from botorch_bandits.models.prior_on_arms import ArmsPrior

Array = NDArray[np.float64]

FIRST_ROOM = 16
"""Points that there is room for at first; it doubles when they are used up."""

REFRESHED_EVERY = 1024
"""Rows after which matrices that grow by rank-one updates are computed afresh."""


@dataclass(frozen=True, eq=False)
class SuffixPrior:
    """A Gaussian-process prior of one outcome.

    Attributes:
        kernel: Float64, without a batch shape.
        noise: The noise variance ``lam``.
        prior_mean: The same at all points.
        input_transform: Applied to inputs before the kernel; it learns nothing from them.
    """

    kernel: Kernel
    noise: float
    prior_mean: float = 0.0
    input_transform: InputTransform | None = None

    def inputs(self, X: Tensor) -> Tensor:
        """Return ``n x d`` raw inputs as the kernel wants them."""
        if self.input_transform is None:
            return X
        with torch.no_grad():
            transformed: Tensor = self.input_transform(X)
        return transformed

    def values(self, x: Tensor, points: Tensor) -> Array:
        """Return the ``n`` covariances of one point (``d``) with ``n x d`` others."""
        stationary = StationaryKernel.read(self.kernel)
        with torch.no_grad():
            if stationary is not None:
                found = stationary.matrix(x.unsqueeze(0), points)
            else:
                found = self.kernel(x.unsqueeze(0), points).to_dense()
        return np.asarray(found[0].cpu().numpy())

    def variance(self, x: Tensor) -> float:
        """Return the prior variance at one point (``d``)."""
        with torch.no_grad():
            return float(self.kernel(x.unsqueeze(0), diag=True)[0])


class SuffixPosteriors(ABC):
    """Posteriors of the suffixes of a stream under ``g`` priors; :meth:`observe` changes them.

    The first suffix is the whole stream. Further ones are opened in order, and each has the rows
    that are observed for it.

    Args:
        priors: One for each column of outcomes.
    """

    def __init__(self, priors: Sequence[SuffixPrior]) -> None:
        """See the class."""
        self.priors = tuple(priors)
        self._noise = np.array([prior.noise for prior in priors])
        self._means = np.array([prior.prior_mean for prior in priors])

    @property
    @abstractmethod
    def num_suffixes(self) -> int:
        """How many there are, the whole stream among them."""

    @abstractmethod
    def open(self) -> None:
        """Begin one more suffix, without any rows."""

    @abstractmethod
    def drop(self, position: int) -> None:
        """Forget the suffix at a position; those behind it move up."""

    @abstractmethod
    def keep_only(self, position: int) -> None:
        """Make the suffix at a position the whole stream, and forget the others."""

    @abstractmethod
    def observe(self, x: Tensor, outcomes: Array, num_suffixes: int) -> tuple[Array, Array]:
        """Let the first suffixes predict an outcome each prior, and take it in.

        Args:
            x: ``d``, the raw input; on arms a scalar tensor with the arm's number.
            outcomes: ``g``, one for each prior.
            num_suffixes: How many of the suffixes, from the first, the row belongs to.

        Returns:
            Means and variances of the function before the outcome was taken in,
            ``num_suffixes x g`` each. Where rounding makes a variance negative it is 0.
        """


class ArmsSuffixes(SuffixPosteriors):
    """Suffixes of a stream on arms, all in one batch.

    Args:
        priors: One for each column of outcomes.
        choices: ``num_arms x d``, raw.
    """

    def __init__(self, priors: Sequence[SuffixPrior], choices: Tensor) -> None:
        """See the class."""
        super().__init__(priors)
        self._tables = [
            ArmsPrior.from_kernel(prior.kernel, prior.inputs(choices)) for prior in priors
        ]
        self._slots: dict[int, int] = {}  # of each arm
        self._arms = np.zeros(0, dtype=np.int64)  # in the order of their slots
        self._num_suffixes, self._num_rows = 1, 0
        self._allocate(4, FIRST_ROOM)

    @property
    def num_suffixes(self) -> int:
        """See the base class."""
        return self._num_suffixes

    def open(self) -> None:
        """See the base class."""
        if self._num_suffixes == len(self._inverse):
            self._resize(2 * self._num_suffixes, self._inverse.shape[-1])
        self._clear(self._num_suffixes)
        self._num_suffixes += 1

    def drop(self, position: int) -> None:
        """See the base class."""
        last, n = self._num_suffixes, len(self._arms)
        self._inverse[position : last - 1, :, :n, :n] = self._inverse[
            position + 1 : last, :, :n, :n
        ]
        for table in (self._weights, self._counts, self._sums):
            table[position : last - 1] = table[position + 1 : last]
        self._num_suffixes = last - 1

    def keep_only(self, position: int) -> None:
        """See the base class."""
        kept = np.flatnonzero(self._counts[position, : len(self._arms)])
        old = (self._inverse, self._weights, self._counts, self._sums)
        inverse, weights, counts, sums = (table[position] for table in old)
        self._arms = self._arms[kept]
        self._slots = {int(arm): slot for slot, arm in enumerate(self._arms)}
        self._num_suffixes = 1
        self._allocate(4, max(FIRST_ROOM, len(kept)))
        n = len(kept)
        self._inverse[0, :, :n, :n] = inverse[:, kept[:, None], kept]
        self._weights[0, :, :n] = weights[:, kept]
        self._counts[0, :n] = counts[kept]
        self._sums[0, :, :n] = sums[:, kept]

    def observe(self, x: Tensor, outcomes: Array, num_suffixes: int) -> tuple[Array, Array]:
        """See the base class."""
        arm, s = int(x), num_suffixes
        at = self._slot(arm)
        n = len(self._arms)
        columns = [table.column(arm).cpu().numpy() for table in self._tables]
        values = np.stack([column[self._arms] for column in columns])  # g x n
        inverse, weights = self._inverse[:s, :, :n, :n], self._weights[:s, :, :n]
        solved = np.matmul(inverse, values[:, :, None])[..., 0]  # s x g x n
        means = self._means + (values * weights).sum(-1)
        prior = np.array([column[arm] for column in columns])
        variances = np.maximum(prior - (values * solved).sum(-1), 0.0)
        scales = variances + self._noise
        direction = np.negative(solved, out=solved)
        direction[..., at] += 1.0
        weights += direction * ((outcomes - means) / scales)[..., None]
        inverse += (direction / scales[..., None])[..., None] * direction[..., None, :]
        self._counts[:s, at] += 1.0
        self._sums[:s, :, at] += outcomes
        self._num_rows += 1
        if self._num_rows % REFRESHED_EVERY == 0:
            self._refresh()
        return means, variances

    def _slot(self, arm: int) -> int:
        slot = self._slots.get(arm)
        if slot is None:
            slot = self._slots[arm] = len(self._arms)
            self._arms = np.append(self._arms, arm)
            if slot == self._inverse.shape[-1]:
                self._resize(len(self._inverse), 2 * slot)
        return slot

    def _allocate(self, num_suffixes: int, num_points: int) -> None:
        shape = (num_suffixes, len(self.priors), num_points)
        self._inverse = np.zeros((*shape, num_points))
        self._weights = np.zeros(shape)
        self._counts = np.zeros((num_suffixes, num_points))
        self._sums = np.zeros(shape)

    def _resize(self, num_suffixes: int, num_points: int) -> None:
        old = (self._inverse, self._weights, self._counts, self._sums)
        s, n = len(self._inverse), self._inverse.shape[-1]
        self._allocate(num_suffixes, num_points)
        self._inverse[:s, :, :n, :n], self._weights[:s, :, :n] = old[0], old[1]
        self._counts[:s, :n], self._sums[:s, :, :n] = old[2], old[3]

    def _clear(self, position: int) -> None:
        n = len(self._arms)  # there is nothing beyond
        self._inverse[position, :, :n, :n] = 0.0
        for table in (self._weights, self._counts, self._sums):
            table[position] = 0.0

    def _refresh(self) -> None:
        """Compute all matrices from counts and sums, which have no rounding errors to speak of."""
        index = torch.as_tensor(self._arms)
        for g, table in enumerate(self._tables):
            all_values = table.columns(index.to(table.diagonal.device)).cpu().numpy()[:, self._arms]
            for position in range(self._num_suffixes):
                seen = np.flatnonzero(self._counts[position, : len(self._arms)])
                counts = self._counts[position, seen]
                noisy = all_values[seen[:, None], seen] + np.diag(self._noise[g] / counts)
                factor = np.linalg.inv(np.linalg.cholesky(noisy))
                inverse = factor.T @ factor
                means = self._sums[position, g, seen] / counts - self._means[g]
                self._inverse[position, g][seen[:, None], seen] = inverse
                self._weights[position, g, seen] = inverse @ means


class _Rows:
    """The rows of one suffix: where they stand in the stream, factor and weights.

    Args:
        num_priors: ``g``.
    """

    def __init__(self, num_priors: int) -> None:
        """See the class."""
        self.count = 0
        self.index = np.zeros(FIRST_ROOM, dtype=np.int64)
        self.factor = np.zeros((num_priors, FIRST_ROOM, FIRST_ROOM))
        self.weights = np.zeros((num_priors, FIRST_ROOM))

    def append(self, at: int, solved: Array, means: Array, scales: Array, outcomes: Array) -> None:
        """Take in one row.

        Args:
            at: Its place in the stream.
            solved: ``g x n``, the factor times its covariances with the rows before.
            means: ``g`` predictions.
            scales: ``g`` variances of the prediction, with noise.
            outcomes: ``g``.
        """
        n = self.count
        if n == len(self.index):
            self.index = np.pad(self.index, (0, n))
            self.factor = np.pad(self.factor, ((0, 0), (0, n), (0, n)))
            self.weights = np.pad(self.weights, ((0, 0), (0, n)))
        pivots = np.sqrt(scales)
        row = self.factor[:, n, : n + 1]
        old = self.factor[:, :n, :n]
        row[:, :n] = np.matmul(solved[:, None, :], old)[:, 0] / -pivots[:, None]
        row[:, n] = 1.0 / pivots
        self.weights[:, : n + 1] += row * ((outcomes - means) / pivots)[:, None]
        self.index[n] = at
        self.count = n + 1


class RowsSuffixes(SuffixPosteriors):
    """Suffixes of a stream on a box, or with contexts, each with a factor of its own.

    Args:
        priors: One for each column of outcomes.
    """

    def __init__(self, priors: Sequence[SuffixPrior]) -> None:
        """See the class."""
        super().__init__(priors)
        self._suffixes = [_Rows(len(self.priors))]
        self._points: list[Tensor] = []  # one a prior, with room
        self._num_rows = 0

    @property
    def num_suffixes(self) -> int:
        """See the base class."""
        return len(self._suffixes)

    def open(self) -> None:
        """See the base class."""
        self._suffixes.append(_Rows(len(self.priors)))

    def drop(self, position: int) -> None:
        """See the base class."""
        del self._suffixes[position]

    def keep_only(self, position: int) -> None:
        """See the base class."""
        kept = self._suffixes[position]
        self._suffixes = [kept]
        n = kept.count
        first = int(kept.index[:n].min()) if n else self._num_rows
        kept.index[:n] -= first
        self._points = [points[first : self._num_rows].clone() for points in self._points]
        self._num_rows -= first

    def observe(self, x: Tensor, outcomes: Array, num_suffixes: int) -> tuple[Array, Array]:
        """See the base class."""
        inputs = [prior.inputs(x.unsqueeze(0))[0] for prior in self.priors]
        values = np.zeros((len(self.priors), self._num_rows))
        prior_variance = np.empty(len(self.priors))
        for g, (prior, point) in enumerate(zip(self.priors, inputs, strict=True)):
            prior_variance[g] = prior.variance(point)
            if self._num_rows:
                values[g] = prior.values(point, self._points[g][: self._num_rows])
        means = np.empty((num_suffixes, len(self.priors)))
        variances = np.empty_like(means)
        for i, suffix in enumerate(self._suffixes[:num_suffixes]):
            n = suffix.count
            own = values[:, suffix.index[:n]]
            solved = np.matmul(suffix.factor[:, :n, :n], own[:, :, None])[..., 0]
            means[i] = self._means + (own * suffix.weights[:, :n]).sum(-1)
            variances[i] = np.maximum(prior_variance - np.square(solved).sum(-1), 0.0)
            scales = variances[i] + self._noise
            suffix.append(self._num_rows, solved, means[i], scales, outcomes)
        self._add_point(inputs)
        return means, variances

    def _add_point(self, inputs: Sequence[Tensor]) -> None:
        n = self._num_rows
        if not self._points:
            self._points = [point.new_empty(FIRST_ROOM, len(point)) for point in inputs]
        for g, point in enumerate(inputs):
            if n == len(self._points[g]):
                room = self._points[g].new_empty(max(FIRST_ROOM, 2 * n), len(point))
                room[:n] = self._points[g][:n]
                self._points[g] = room
            self._points[g][n] = point
        self._num_rows = n + 1


class BallFit:
    """How well a function of bounded norm fits the rows of one stream.

    Args:
        prior: Whose kernel and noise variance ``R^2`` it is; functions are counted from its mean.
        rkhs_bound: ``B``, positive: the largest norm.
    """

    def __init__(self, prior: SuffixPrior, rkhs_bound: float) -> None:
        """See the class."""
        self.prior, self.rkhs_bound = prior, rkhs_bound
        self._slots: dict[tuple[float, ...], int] = {}  # of distinct points
        self._points: list[Tensor] = []  # as the kernel wants them
        self._matrix = np.zeros((FIRST_ROOM, FIRST_ROOM))
        self._counts, self._means = np.zeros(FIRST_ROOM), np.zeros(FIRST_ROOM)
        self._num_rows, self._within = 0, 0.0

    def add(self, x: Tensor, outcome: float) -> None:
        """Take in a row.

        Args:
            x: ``d``, the raw input.
            outcome: One number.
        """
        at = self._slot(x)
        self._num_rows += 1
        self._counts[at] += 1.0
        off = outcome - self.prior.prior_mean - self._means[at]
        self._means[at] += off / self._counts[at]
        self._within += off * (outcome - self.prior.prior_mean - self._means[at])

    def log_likelihood(self) -> float:
        """Return the largest log density that a function of the ball gives to the outcomes."""
        noise = self.prior.noise
        constant = self._num_rows * math.log(2.0 * math.pi * noise)
        return -0.5 * (constant + self.smallest_squares() / noise)

    def smallest_squares(self) -> float:
        """Return the smallest sum of squared residuals of a function of the ball."""
        n = len(self._points)
        if n == 0:
            return 0.0
        roots = np.sqrt(self._counts[:n])
        values, vectors = np.linalg.eigh(roots[:, None] * self._matrix[:n, :n] * roots)
        squared = np.square(vectors.T @ (roots * self._means[:n]))
        if values[-1] <= 0.0:  # the space has 0 alone at these points
            return float(self._within + squared.sum())
        # what rounding makes too small would make good fits look bad
        values = np.maximum(values, n * np.finfo(np.float64).eps * values[-1])
        multiplier = _multiplier(values, squared, self.rkhs_bound)
        penalized = (multiplier * squared / (values + multiplier)).sum()
        return float(self._within + max(penalized - multiplier * self.rkhs_bound**2, 0.0))

    def _slot(self, x: Tensor) -> int:
        key = tuple(x.tolist())
        if key in self._slots:
            return self._slots[key]
        slot = self._slots[key] = len(self._points)
        if slot == len(self._counts):
            self._matrix = np.pad(self._matrix, (0, slot))
            self._counts = np.pad(self._counts, (0, slot))
            self._means = np.pad(self._means, (0, slot))
        point = self.prior.inputs(x.unsqueeze(0))[0]
        if slot:
            values = self.prior.values(point, torch.stack(self._points))
            self._matrix[slot, :slot] = self._matrix[:slot, slot] = values
        self._matrix[slot, slot] = self.prior.variance(point)
        self._points.append(point)
        return slot


def _multiplier(values: Array, squared: Array, bound: float) -> float:
    """Return the ``a`` at which the ridge fit has the norm ``bound``; 0 if it never has more.

    The inverse of the norm is concave and grows with ``a``, so that Newton's method on it comes
    from the left and never overshoots; a few steps are enough.

    Args:
        values: Positive eigenvalues of the kernel matrix.
        squared: Squares of the outcomes in its eigenbasis.
        bound: ``B``.
    """
    found = 0.0
    for _ in range(100):
        terms = values * squared / np.square(values + found)
        norm = math.sqrt(terms.sum())
        if norm <= bound:
            break
        step = (norm / bound - 1.0) * norm**2 / float((terms / (values + found)).sum())
        found += step
        if step <= 1e-15 * found:
            break
    return found


fill_in_docstrings(__name__)
