r"""Posteriors of the suffixes of one stream, each evaluated only at the newest input.

A stream of inputs and outcomes has many suffixes: all rows since its beginning, and all rows since
some later start. Each suffix has its own Gaussian-process posterior, whose only use is to predict
each outcome before its row is added. Several priors can be evaluated on the same rows. Priors whose
kernels differ only in the output scale, with the same ratio of noise variance to output scale,
share all matrices, which are kept for output scale 1: their weights and means are the same, and
their variances are multiples of each other.

**On points that repeat** (arms), a suffix keeps, for the ``P`` distinct points that it has seen,
:math:`G = (K + \Lambda)^{-1}`, where :math:`\Lambda` has the noise variance of the mean outcome of
each point. A new point has a row and a column of zeros. With the covariances :math:`k` of the
newest point :math:`i` with all of them,

.. math::
   v = k_i - k^\top G k, \qquad u = e_i - G k, \qquad c = v + \lambda, \qquad
   G \leftarrow G + u u^\top / c, \qquad a \leftarrow a + u \, (y - \mu) / c

where :math:`\mu = m + k^\top a`. The cost of a row does not grow with the number of rows.

**On points that do not repeat**, a suffix keeps the inverse Cholesky factor of its own rows, which
grows by one row in ``n^2`` operations; see ``closed_form.py`` for the formulas.

**Memory.** Of each matrix, one triangle is kept, column by column, which grows at its end. So few
starts are kept that all of their triangles together take about as much memory as one square matrix.

**The best fit in a ball.** In addition to posteriors, :class:`BallFit` computes the smallest sum of
squares of a function of bounded norm on the rows of a stream, by Lagrange duality:

.. math:: \min_{\|f\|_k \le B} \|y - f(X)\|^2
   = \max_{a \ge 0} \; a \, y^\top (K + a I)^{-1} y - a B^2 .

Repeated points are merged: with the counts :math:`C` and the means :math:`\bar y` of the distinct
points, it is the sum of squares within them, plus the same expression for :math:`C^{1/2} K C^{1/2}`
and :math:`C^{1/2} \bar y`. Every ``a`` gives a lower bound, and after one eigendecomposition each
``a`` costs little.

Source: Rasmussen and Williams 2006, algorithm 2.1; the first form is a rank-one update. The largest
``a`` is found like the multiplier of a trust region (Moré and Sorensen 1983).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform, Normalize
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from scipy.linalg.blas import dspmv, dspr, dtpmv
from torch import Tensor

from botorch_bandits.core.kernels import StationaryKernel, describe_module
from botorch_bandits.core.priors import Table
from botorch_bandits.models.candidate_groups import split_scale
from botorch_bandits.models.forgetting import BehindTime

Array = NDArray[np.float64]

FIRST_ROOM = 16
"""Points for which memory is allocated at first."""

REFRESHED_EVERY = 1024
"""Rows after which matrices that grow by rank-one updates are recomputed from scratch."""

DESCRIBED = (Normalize, BehindTime)
"""Input transforms that are fully described by their numbers."""


@dataclass(frozen=True, eq=False)
class SuffixPrior:
    """A Gaussian-process prior of one outcome.

    Attributes:
        kernel: A float64 kernel without a batch shape.
        noise: The noise variance ``lam``.
        prior_mean: The prior mean, the same at all points.
        input_transform: Applied to inputs before the kernel; it learns nothing from them.
    """

    kernel: Kernel
    noise: float
    prior_mean: float = 0.0
    input_transform: InputTransform | None = None

    def inputs(self, X: Tensor) -> Tensor:
        """Return ``n x d`` raw inputs as the kernel sees them."""
        if self.input_transform is None:
            return X
        with torch.no_grad():
            transformed: Tensor = self.input_transform(X)
        return transformed

    def with_unit_scale(self) -> tuple[SuffixPrior, float, object]:
        """Return the prior divided by its output scale, that scale, and a key of the kernel.

        Kernels with the same key are equal up to the output scale. A kernel without a known closed
        form is returned as it is, with a scale of 1 and its identity as the key.
        """
        read = StationaryKernel.read(self.kernel)
        if read is None:
            return self, 1.0, id(self.kernel)
        kernel, scale = split_scale(self.kernel)
        key = (read.smoothness, *read.lengthscale.tolist())
        return replace(self, kernel=kernel, noise=self.noise / scale), scale, key

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

    The first suffix is the whole stream. Further ones are opened in order, and each contains the
    rows that are observed for it.

    Args:
        priors: One for each column of outcomes. Those with the same kernel up to the output scale
            and the same noise ratio share their matrices.
    """

    def __init__(self, priors: Sequence[SuffixPrior]) -> None:
        """See the class."""
        self.priors = tuple(priors)
        self._means = np.array([prior.prior_mean for prior in priors])
        kernels: dict[object, int] = {}
        kinds: dict[tuple[int, str], int] = {}
        self._kernels: list[SuffixPrior] = []  # the distinct ones, with output scale 1
        kernel_of: list[int] = []  # of each kind
        noise: list[float] = []
        kind_of, scales = [], []
        for prior in self.priors:
            unit, scale, key = prior.with_unit_scale()
            kernel = kernels.setdefault((key, _key_of(prior.input_transform)), len(kernels))
            if kernel == len(self._kernels):
                self._kernels.append(unit)
            kind = kinds.setdefault((kernel, f"{unit.noise:.11e}"), len(kinds))
            if kind == len(noise):
                kernel_of.append(kernel)
                noise.append(unit.noise)
            kind_of.append(kind)
            scales.append(scale)
        self._kernel_of, self._noise = np.array(kernel_of), np.array(noise)
        self._kind, self._scales = np.array(kind_of), np.array(scales)
        # the entries of all suffixes, one suffix after the other
        self._index = np.zeros(0, dtype=np.int64)
        self._table = np.zeros((self._num_fields, 0))
        self._sizes: list[int] = []
        self._matrices: list[list[Array]] = []  # packed, one for each kind
        self.open()

    @property
    @abstractmethod
    def _num_fields(self) -> int:
        """The number of values of an entry in a suffix; its weights, one per prior, come first."""

    @property
    def num_suffixes(self) -> int:
        """The number of suffixes, including the whole stream."""
        return len(self._sizes)

    def open(self) -> None:
        """Start another suffix, without any rows."""
        self._sizes.append(0)
        self._matrices.append([np.zeros(_packed(FIRST_ROOM)) for _ in self._noise])

    def drop(self, position: int) -> None:
        """Forget the suffix at a position; those after it move up."""
        first = sum(self._sizes[:position])
        dropped = slice(first, first + self._sizes.pop(position))
        self._index = np.delete(self._index, dropped)
        self._table = np.delete(self._table, dropped, axis=1)
        del self._matrices[position]

    def keep_only(self, position: int) -> None:
        """Make the suffix at a position the whole stream, and forget the others."""
        first = sum(self._sizes[:position])
        kept = slice(first, first + self._sizes[position])
        self._index, self._table = self._index[kept].copy(), self._table[:, kept].copy()
        self._sizes = [self._sizes[position]]
        self._matrices = [self._matrices[position]]

    @abstractmethod
    def observe(self, x: Tensor, outcomes: Array, num_suffixes: int) -> tuple[Array, Array]:
        """Let the first suffixes predict an outcome for each prior, and then add it.

        Args:
            x: ``d``, the raw input; on arms a scalar tensor with the arm's number.
            outcomes: ``g``, one for each prior.
            num_suffixes: The number of suffixes, from the first, to which the row belongs.

        Returns:
            Means and variances of the function before the outcome was added, ``num_suffixes x g``
            each. Variances that rounding makes negative are 0.
        """

    def _append(self, suffixes: NDArray[np.int64], entry: int) -> None:
        """Add an entry of zeros to some suffixes.

        Args:
            suffixes: Their positions, ascending.
            entry: The entry's number in the index.
        """
        ends = np.cumsum(self._sizes)[suffixes]
        self._index = np.insert(self._index, ends, entry)
        self._table = np.insert(self._table, ends, 0.0, axis=1)
        for position in suffixes.tolist():
            self._sizes[position] += 1
            needed = _packed(self._sizes[position])
            matrices = self._matrices[position]
            for kind, matrix in enumerate(matrices):
                if needed > len(matrix):
                    matrices[kind] = np.zeros(needed + needed // 4)
                    matrices[kind][: len(matrix)] = matrix

    def _parts(self, num_suffixes: int) -> list[slice]:
        """Return the slices with the entries of the first suffixes."""
        ends = np.cumsum(self._sizes[:num_suffixes]).tolist()
        return [slice(*ends_of) for ends_of in itertools.pairwise([0, *ends])]

    def _predict(self, values: Array, parts: Sequence[slice]) -> Array:
        """Return posterior means, ``g x num_suffixes``.

        Args:
            values: Covariances with the newest input at output scale 1, a row per kind, for the
                entries of all of these suffixes.
            parts: The slice of each suffix.
        """
        weighted = values[self._kind] * self._table[: len(self.priors), : values.shape[-1]]
        return self._means[:, None] + _sums(weighted, parts)

    def _move_weights(self, direction: Array, steps: Array, parts: Sequence[slice]) -> None:
        """Add a multiple of a direction to the weights of each suffix.

        Args:
            direction: One row per kind, for all entries.
            steps: ``g x num_suffixes``.
            parts: The slice of each suffix.
        """
        sizes = self._sizes[: len(parts)]
        moved = direction[self._kind] * np.repeat(steps, sizes, axis=1)
        self._table[: len(self.priors), : moved.shape[-1]] += moved


def _key_of(transform: InputTransform | None) -> object:
    """Return a key that is equal only for transforms that do the same."""
    if transform is None:
        return None
    known = all(type(part) in DESCRIBED for part in transform.modules())
    return describe_module(transform) if known else id(transform)


def _packed(num_rows: int) -> int:
    """Return the number of entries of a triangle, including its diagonal."""
    return num_rows * (num_rows + 1) // 2


def _sums(values: Array, parts: Sequence[slice]) -> Array:
    """Return the sum of each part, none of which is empty: one column per part, rows stay."""
    return np.add.reduceat(values, [part.start for part in parts], axis=-1)


class ArmsSuffixes(SuffixPosteriors):
    """Suffixes of a stream on arms; each has a matrix of the arms that it has seen.

    Args:
        priors: One for each column of outcomes.
        choices: ``num_arms x d``, raw.
    """

    def __init__(self, priors: Sequence[SuffixPrior], choices: Tensor) -> None:
        """See the class."""
        super().__init__(priors)
        self._tables = [
            Table.from_kernel(prior.kernel, prior.inputs(choices)) for prior in self._kernels
        ]
        self._num_rows = 0

    @property
    def _num_fields(self) -> int:
        """Weights and sums of outcomes, one of each per prior, and one count."""
        return 2 * len(self.priors) + 1

    def observe(self, x: Tensor, outcomes: Array, num_suffixes: int) -> tuple[Array, Array]:
        arm, g = int(x), len(self.priors)
        at = self._entries_of(arm, num_suffixes)
        parts = self._parts(num_suffixes)
        number = torch.tensor([arm], device=self._tables[0].diagonal.device)
        columns = np.stack([table.columns(number)[0].cpu().numpy() for table in self._tables])
        values = columns[:, self._index[: parts[-1].stop]][self._kernel_of]
        direction = np.empty_like(values)
        for part, size, matrices in zip(parts, self._sizes, self._matrices, strict=False):
            for kind, matrix in enumerate(matrices):
                direction[kind, part] = dspmv(size, -1.0, matrix, values[kind, part])
        means = self._predict(values, parts)
        own = columns[self._kernel_of, arm, None]
        variances = np.maximum(own + _sums(values * direction, parts), 0.0)
        scales = variances + self._noise[:, None]
        direction[:, at] += 1.0
        self._move_weights(direction, (outcomes[:, None] - means) / scales[self._kind], parts)
        for i, (part, size) in enumerate(zip(parts, self._sizes, strict=False)):
            for kind, matrix in enumerate(self._matrices[i]):
                self._matrices[i][kind] = dspr(
                    size, 1.0 / scales[kind, i], direction[kind, part], matrix, overwrite_ap=True
                )
        self._table[g : 2 * g, at] += outcomes[:, None]
        self._table[2 * g, at] += 1.0
        self._num_rows += 1
        if self._num_rows % REFRESHED_EVERY == 0:
            self._refresh()
        return means.T, (variances[self._kind] * self._scales[:, None]).T

    def _entries_of(self, arm: int, num_suffixes: int) -> NDArray[np.int64]:
        """Return where the first suffixes have an arm; those that have not seen it get an entry."""
        at = np.flatnonzero(self._index == arm)
        ends = np.cumsum(self._sizes)
        have = np.searchsorted(ends, at, side="right")
        missing = np.setdiff1d(np.arange(num_suffixes), have, assume_unique=True)
        if len(missing):
            self._append(missing, arm)
            at = np.flatnonzero(self._index == arm)
        return at[: np.searchsorted(at, sum(self._sizes[:num_suffixes]))]

    def _refresh(self) -> None:
        """Recompute all matrices from counts and sums, whose rounding errors are negligible."""
        g = len(self.priors)
        for part, matrices in zip(self._parts(self.num_suffixes), self._matrices, strict=True):
            arms, counts = self._index[part], self._table[2 * g, part]
            means = self._table[g : 2 * g, part] / counts - self._means[:, None]
            index, size = torch.as_tensor(arms), len(arms)
            for kind, kernel in enumerate(self._kernel_of):
                table = self._tables[kernel]
                all_values = table.columns(index.to(table.diagonal.device)).cpu().numpy()
                noisy = all_values[:, arms] + np.diag(self._noise[kind] / counts)
                factor = np.linalg.inv(np.linalg.cholesky(noisy))
                inverse = factor.T @ factor
                matrices[kind][: _packed(size)] = inverse[np.tri(size, dtype=bool)]
                mine = np.flatnonzero(self._kind == kind)
                self._table[mine, part] = means[mine] @ inverse


class RowsSuffixes(SuffixPosteriors):
    """Suffixes of a stream on a box, or with contexts, each with a factor of its own.

    Args:
        priors: One for each column of outcomes.
    """

    def __init__(self, priors: Sequence[SuffixPrior]) -> None:
        """See the class."""
        super().__init__(priors)
        self._points: list[Tensor] = []  # one per input transform, with room
        self._num_rows = 0
        transforms: dict[object, int] = {}
        self._transformed_by: list[SuffixPrior] = []
        self._points_of: list[int] = []  # of each kernel: which points it takes
        # kernels of closed form with the same smoothness and points are evaluated at once
        self._families: dict[tuple[float, int], list[int]] = {}
        self._others: list[int] = []
        for position, prior in enumerate(self._kernels):
            points = transforms.setdefault(_key_of(prior.input_transform), len(transforms))
            if points == len(self._transformed_by):
                self._transformed_by.append(prior)
            self._points_of.append(points)
            read = StationaryKernel.read(prior.kernel)
            if read is None:
                self._others.append(position)
            else:
                self._families.setdefault((read.smoothness, points), []).append(position)
        self._precisions: dict[tuple[float, int], Tensor] = {}  # d x members, once d is known

    @property
    def _num_fields(self) -> int:
        """Only the weights."""
        return len(self.priors)

    def keep_only(self, position: int) -> None:
        super().keep_only(position)
        first = int(self._index.min()) if len(self._index) else self._num_rows
        self._index -= first
        self._points = [points[first : self._num_rows].clone() for points in self._points]
        self._num_rows -= first

    def observe(self, x: Tensor, outcomes: Array, num_suffixes: int) -> tuple[Array, Array]:
        inputs = [prior.inputs(x.unsqueeze(0))[0] for prior in self._transformed_by]
        covariances, prior_variance = self._covariances(inputs)
        self._append(np.arange(num_suffixes), self._num_rows)
        parts = self._parts(num_suffixes)
        values = covariances[:, self._index[: parts[-1].stop]][self._kernel_of]
        solved = np.zeros_like(values)
        for part, matrices in zip(parts, self._matrices, strict=False):
            old = slice(part.start, part.stop - 1)
            for kind, matrix in enumerate(matrices):
                if old.start < old.stop:
                    size = old.stop - old.start
                    solved[kind, old] = dtpmv(size, matrix, values[kind, old], trans=1)
        means = self._predict(values, parts)
        own = prior_variance[self._kernel_of, None]
        variances = np.maximum(own - _sums(np.square(solved), parts), 0.0)
        scales = variances + self._noise[:, None]
        pivots = np.sqrt(scales)
        rows = self._new_rows(solved, pivots, parts)
        steps = (outcomes[:, None] - means) / pivots[self._kind]
        self._move_weights(rows, steps, parts)
        self._add_point(inputs)
        return means.T, (variances[self._kind] * self._scales[:, None]).T

    def _covariances(self, inputs: Sequence[Tensor]) -> tuple[Array, Array]:
        """Evaluate each kernel at a new point, at output scale 1.

        Args:
            inputs: The point, once per input transform.

        Returns:
            The covariances with all earlier points, and a column of zeros for the point itself,
            ``num_kernels x (n + 1)``; the prior variance at the point, ``num_kernels``.
        """
        n = self._num_rows
        covariances = np.zeros((len(self._kernels), n + 1))
        variances = np.ones(len(self._kernels))
        for position in self._others:
            prior, points = self._kernels[position], self._points_of[position]
            variances[position] = prior.variance(inputs[points])
            if n:
                covariances[position, :-1] = prior.values(inputs[points], self._points[points][:n])
        if n:
            for family, members in self._families.items():
                smoothness, points = family
                # differences before squares: near points keep their distance
                squared = (self._points[points][:n] - inputs[points]).square()
                scaled = squared @ self._precision(family, squared.shape[-1])
                unit = StationaryKernel(smoothness, scaled.new_ones(1), scaled.new_ones(()))
                found = unit.of_squared_distance(scaled, with_slope=False)[0]
                covariances[members, :-1] = found.mT.cpu().numpy()
        return covariances, variances

    def _precision(self, family: tuple[float, int], dim: int) -> Tensor:
        """Return the inverse squared lengthscales of kernels that are evaluated at once."""
        if family not in self._precisions:
            lengthscales = []
            for position in self._families[family]:
                read = StationaryKernel.read(self._kernels[position].kernel)
                assert read is not None
                lengthscales.append(read.lengthscale.expand(dim))
            self._precisions[family] = torch.stack(lengthscales, dim=-1).pow(-2.0)
        return self._precisions[family]

    def _new_rows(self, solved: Array, pivots: Array, parts: Sequence[slice]) -> Array:
        """Give each factor its next row, and return the rows of all suffixes."""
        rows = np.empty_like(solved)
        for i, part in enumerate(parts):
            size = part.stop - part.start
            for kind, matrix in enumerate(self._matrices[i]):
                pivot, row = pivots[kind, i], rows[kind, part]
                if size > 1:
                    row[:-1] = dtpmv(size - 1, matrix, solved[kind, part.start : part.stop - 1])
                    row[:-1] /= -pivot
                row[-1] = 1.0 / pivot
                matrix[_packed(size - 1) : _packed(size)] = row
        return rows

    def _add_point(self, inputs: Sequence[Tensor]) -> None:
        n = self._num_rows
        if not self._points:
            self._points = [point.new_empty(FIRST_ROOM, len(point)) for point in inputs]
        for kind, point in enumerate(inputs):
            if n == len(self._points[kind]):
                room = self._points[kind].new_empty(max(FIRST_ROOM, 2 * n), len(point))
                room[:n] = self._points[kind][:n]
                self._points[kind] = room
            self._points[kind][n] = point
        self._num_rows = n + 1


class BallFit:
    """How well a function of bounded norm fits the rows of one stream.

    Args:
        prior: The prior with the kernel and the noise variance ``R^2``; its mean is subtracted.
        rkhs_bound: ``B``, positive: the largest norm.
    """

    def __init__(self, prior: SuffixPrior, rkhs_bound: float) -> None:
        """See the class."""
        self.prior, self.rkhs_bound = prior, rkhs_bound
        self._slots: dict[tuple[float, ...], int] = {}  # positions of the distinct points
        self._points: list[Tensor] = []  # as the kernel sees them
        self._matrix = np.zeros((FIRST_ROOM, FIRST_ROOM))
        self._counts, self._means = np.zeros(FIRST_ROOM), np.zeros(FIRST_ROOM)
        self._num_rows, self._within = 0, 0.0

    def add(self, x: Tensor, outcome: float) -> None:
        """Add a row.

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
        """Return the largest log density that a function in the ball gives to the outcomes."""
        noise = self.prior.noise
        constant = self._num_rows * math.log(2.0 * math.pi * noise)
        return -0.5 * (constant + self.smallest_squares() / noise)

    def smallest_squares(self) -> float:
        """Return the smallest sum of squared residuals of a function in the ball."""
        n = len(self._points)
        if n == 0:
            return 0.0
        roots = np.sqrt(self._counts[:n])
        values, vectors = np.linalg.eigh(roots[:, None] * self._matrix[:n, :n] * roots)
        squared = np.square(vectors.T @ (roots * self._means[:n]))
        if values[-1] <= 0.0:  # the space contains only 0 at these points
            return float(self._within + squared.sum())
        # values that rounding makes too small would make good fits look bad
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
