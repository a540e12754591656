r"""The posteriors of all suffixes of one stream, each evaluated only at the newest input.

A suffix has the rows since some start. All suffixes share one factor: with the rows in order,
oldest first, and :math:`K + \Lambda = U U^\top` with an UPPER triangular :math:`U`, the rows since
any row :math:`i` have the factor :math:`U_{i:, i:}`, and :math:`W = U^{-1}` is upper triangular as
well. So, for the covariances :math:`k` of the newest input with all rows, and for all suffixes at
once,

.. math::
   v = W k, \qquad z = W (y - m), \qquad
   \mu_i = m + \sum_{j \ge i} v_j z_j, \qquad
   \sigma_i^2 = k(x, x) - \sum_{j \ge i} v_j^2 .

**One more row**, at position :math:`p` (late outcomes do not come last), changes the rows before
it. With :math:`t_i = \sigma_i^2 + \lambda` and, over the rows as they were,
:math:`B_i = \sum_{j \ge i} v_j W_j - e_p`,

.. math::
   W_{\text{new}} = - B_p / \sqrt{t_p}, \qquad
   W_i \leftarrow \sqrt{t_{i+1} / t_i} \; W_i + \frac{v_i}{\sqrt{t_i t_{i+1}}} B_{i+1}
   \quad (i < p),

and :math:`z` changes likewise, with the residual of the prediction, :math:`\mu_i - y`, for
:math:`B_i`. This is the closed form of the rank-one downdate of :math:`U` whose vector is the
column of the new row; it takes ``n^2`` operations for all suffixes together.

**Points that repeat.** Rows of one point that no start separates count as one, with their mean
outcome and ``1 / count`` of the noise. They are merged when enough have come.

**Several priors** are a batch dimension. Those that differ only in their output scale, at the same
ratio of noise variance to output scale, share ``W``, which is kept for output scale 1.

**The best fit in a ball**, :class:`BallFit`, is the smallest sum of squares of a function of
bounded norm, by Lagrange duality:

.. math:: \min_{\|f\|_k \le B} \|y - f(X)\|^2
   = \max_{a \ge 0} \; a \, y^\top (K + a I)^{-1} y - a B^2 .

With the counts :math:`C` and the means :math:`\bar y` of the distinct points, it is the sum of
squares within them, plus the same expression for :math:`C^{1/2} K C^{1/2}` and
:math:`C^{1/2} \bar y`.

Source: Rasmussen and Williams 2006, algorithm 2.1, in reverse order; Gill, Golub, Murray and
Saunders 1974 for the rank-one change. The largest ``a`` is found like the multiplier of a trust
region (More and Sorensen 1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.core.kernels import KernelList, describe_module, kernel_function, smoothness_of

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

BLOCK = 48
"""Rows that change together: their matrix product costs less than the memory that it reads."""

NEWER = np.triu(np.ones((BLOCK, BLOCK)), 1)
"""Which rows of a block are newer than which."""

FIRST_ROOM = 16
"""Rows for which memory is allocated at first."""


@dataclass(frozen=True, eq=False)
class SuffixPrior:
    """A Gaussian-process prior of one outcome.

    Attributes:
        kernel: A float64 kernel without a batch shape.
        noise: The noise variance.
        prior_mean: The prior mean, the same at all points.
        transform: Turns ``n x d`` raw inputs into those that the kernel sees, row by row. Priors
            with the same transform should have the same object.
    """

    kernel: Kernel
    noise: float
    prior_mean: float = 0.0
    transform: Callable[[Tensor], Tensor] | None = None


class Places:
    """The distinct points of a stream and their covariances.

    Args:
        priors: One for each of the ``c`` kernels.
    """

    def __init__(self, priors: Sequence[SuffixPrior]) -> None:
        """See the class."""
        self._members: dict[Callable[[Tensor], Tensor] | None, list[int]] = {}
        for number, prior in enumerate(priors):
            self._members.setdefault(prior.transform, []).append(number)
        self._kernels = [prior.kernel for prior in priors]
        self._lists: list[KernelList] = []  # one for each transform, once the dimension is known
        self._points: list[Tensor] = []
        self._slots: dict[tuple[float, ...], int] = {}
        self._room = np.zeros((len(priors), FIRST_ROOM, FIRST_ROOM))

    @property
    def covariances(self) -> Array:
        """``c x num_places x num_places``."""
        size = len(self._slots)
        return self._room[:, :size, :size]

    def slot_of(self, x: Tensor) -> int:
        """Return the number of a point (``d``), which may be new."""
        key = tuple(x.tolist())
        if key not in self._slots:
            self._add(x)
            self._slots[key] = len(self._slots)
        return self._slots[key]

    def keep(self, slots: Numbers) -> None:
        """Forget all points but those with the given numbers, which are renumbered in order."""
        keys = list(self._slots)
        self._slots = {keys[slot]: new for new, slot in enumerate(slots.tolist())}
        self._points = [points[torch.from_numpy(slots)] for points in self._points]
        self._room = self._room[:, slots[:, None], slots]

    def _add(self, x: Tensor) -> None:
        n = len(self._slots)
        if n == self._room.shape[-1]:
            self._room = with_room(self._room, n)
        inputs = [x[None] if change is None else change(x[None]) for change in self._members]
        if not self._lists:
            for members, own in zip(self._members.values(), inputs, strict=True):
                dim = own.shape[-1]
                functions = [kernel_function(self._kernels[i], dim) for i in members]
                self._lists.append(KernelList(functions))
            self._points = [own[:0] for own in inputs]
        self._points = [torch.cat(pair) for pair in zip(self._points, inputs, strict=True)]
        parts = zip(self._members.values(), self._lists, inputs, self._points, strict=True)
        for members, kernels, own, points in parts:
            # members x 1 x (n + 1)
            values = kernels(own, points)[:, 0].cpu().numpy()
            self._room[members, n, : n + 1] = self._room[members, : n + 1, n] = values
            # by itself, as distances of equal points are not exactly 0
            self._room[members, n, n] = kernels.diagonal(own)[:, 0].cpu().numpy()


def with_room(matrices: Array, size: int) -> Array:
    """Return ``... x size x size`` matrices with room for more rows and columns of zeros."""
    room = size + size // 8 + FIRST_ROOM
    larger = np.zeros((*matrices.shape[:-2], room, room))
    larger[..., :size, :size] = matrices[..., :size, :size]
    return larger


class Suffixes:
    """Posteriors of the suffixes of a stream under ``g`` priors; :meth:`observe` changes them.

    Args:
        priors: One for each column of outcomes.
    """

    def __init__(self, priors: Sequence[SuffixPrior]) -> None:
        """See the class."""
        units = [_unit_scale(prior) for prior in priors]  # key of the kernel, kernel, scale
        kernels = {key: unit for key, unit, _ in units}
        # kinds share W: the same kernel, up to its scale, with the same ratio of noise to scale
        kinds = {(key, f"{unit.noise:.11e}"): unit.noise for key, unit, _ in units}
        number = {key: i for i, key in enumerate([*kernels, *kinds])}
        self.kernel_of = np.array([number[key] for key, _, _ in units])  # of each prior
        self.scales = np.array([scale for _, _, scale in units])
        self.places = Places(list(kernels.values()))
        self._prior_means = np.array([prior.prior_mean for prior in priors])[:, None]
        self._kernel_of = np.array([number[key] for key, _ in kinds])
        self._kind = np.array([number[key, f"{unit.noise:.11e}"] for key, unit, _ in units])
        self._kind -= len(kernels)
        self._noise = np.array(list(kinds.values()))[:, None]
        self._W = np.zeros((len(kinds), FIRST_ROOM, FIRST_ROOM))
        # of each row, oldest first: z, the mean residual; then the query, the place and the count
        self._z = self._residuals = np.zeros((len(self.scales), 0))
        self._rows = np.zeros((3, 0), dtype=np.int64)
        self._merge_at = 4 * FIRST_ROOM

    def observe(
        self, x: Tensor, outcomes: Array, query: int, starts: Sequence[int]
    ) -> tuple[Array, Array]:
        """Let suffixes predict an outcome for each prior, and then add it.

        Args:
            x: ``d``, the raw input.
            outcomes: ``g``, one for each prior.
            query: The number of its query; rows are in the order of queries.
            starts: The numbers of the first queries of all suffixes that are still needed,
                ascending.

        Returns:
            Means and variances of the function before the outcome was added, under the whole stream
            and the suffixes to which the row belongs, ``(1 + num_suffixes) x g`` each.
        """
        if self._rows.shape[-1] >= self._merge_at:
            self._merge(np.array(starts, dtype=np.int64))
        queries, slots, _ = self._rows
        slot = self.places.slot_of(x)
        covariances = self.places.covariances[:, slot]  # kernels x places
        size = len(queries)
        k = covariances[:, slots][self._kernel_of]  # kinds x n
        v = (self._W[:, :size, :size] @ k[..., None])[..., 0]
        own = covariances[self._kernel_of, slot, None]
        variances = np.maximum(own - _from_each(v * v), 0.0)  # kinds x (n + 1), of rows i to n
        residuals = outcomes[:, None] - self._prior_means
        misses = _from_each(v[self._kind] * self._z) - residuals  # g x (n + 1): mean less outcome
        moved = [start for start in starts if start <= query]
        at = [0, *np.searchsorted(queries, moved).tolist()]
        means = outcomes[:, None] + misses[:, at]
        scaled = variances[self._kind][:, at] * self.scales[:, None]
        position = int(np.searchsorted(queries, query, side="right"))
        self._insert(position, v, variances + self._noise, misses)
        self._rows = _inserted(self._rows, position, np.array([query, slot, 1]))
        self._residuals = _inserted(self._residuals, position, residuals[:, 0])
        return means.T, scaled.T

    def keep_from(self, query: int) -> None:
        """Make the suffix from a query on the whole stream."""
        first = int(np.searchsorted(self._rows[0], query))
        size = self._rows.shape[-1]
        self._W = with_room(self._W[:, first:size, first:size], size - first)
        self._z, self._residuals = self._z[:, first:].copy(), self._residuals[:, first:]
        self._rows = self._rows[:, first:].copy()
        kept, self._rows[1] = np.unique(self._rows[1], return_inverse=True)
        self.places.keep(kept)

    def _insert(self, position: int, v: Array, t: Array, misses: Array) -> None:
        """Add a row to ``W`` and ``z``, and change those before it; see the module.

        Args:
            position: ``p``.
            v: kinds x n.
            t: kinds x (n + 1).
            misses: ``B`` of ``z``, ``g x (n + 1)``.
        """
        size, p = v.shape[-1], position
        if size == self._W.shape[-1]:
            self._W = with_room(self._W, size)
        W = self._W[:, : size + 1, : size + 1]
        if p < size:  # a late row: a row and a column of zeros make room for it
            W[...] = np.insert(np.insert(W[:, :-1, :-1], p, 0.0, axis=1), p, 0.0, axis=2)
        pivot = np.sqrt(t[:, p])  # kinds
        shrink = np.sqrt(t[:, 1 : p + 1] / t[:, :p])  # kinds x p
        slope = v[:, :p] / np.sqrt(t[:, :p] * t[:, 1 : p + 1])
        self._z[:, :p] *= shrink[self._kind]
        self._z[:, :p] += slope[self._kind] * misses[:, 1 : p + 1]
        self._z = _inserted(self._z, p, -misses[:, p] / pivot[self._kind])
        B = v[:, None, p:] @ W[:, p + 1 :]  # kinds x 1 x (n + 1)
        B[..., p] -= 1.0
        W[:, p] = -B[:, 0] / pivot[:, None]
        for last in range(p, 0, -BLOCK):  # newest rows first, as B is summed from there
            first = max(last - BLOCK, 0)
            own = slice(first, last)
            rows = W[:, own, first:]
            # row i: shrink_i W_i + slope_i (sum of v_j W_j over newer rows j, in this block and B)
            mixing = slope[:, own, None] * v[:, None, own] * NEWER[: last - first, : last - first]
            mixing[:, range(last - first), range(last - first)] = shrink[:, own]
            changed = mixing @ rows + slope[:, own, None] * B[..., first:]
            B[..., first:] += v[:, None, own] @ rows
            W[:, own, first:] = changed

    def _merge(self, starts: Numbers) -> None:
        """Make rows of one point that no start separates one row, if there are any."""
        queries, slots, counts = self._rows
        keys, row_of = np.unique(
            [np.searchsorted(starts, queries, side="right"), slots], axis=1, return_inverse=True
        )
        size = keys.shape[-1]
        self._merge_at = len(queries) + 2 * FIRST_ROOM
        if size == len(queries):
            return
        member = np.eye(size)[row_of]  # old rows x new rows
        totals = counts @ member
        noisy = self.places.covariances[:, keys[1][:, None], keys[1]][self._kernel_of]
        noisy[:, range(size), range(size)] += self._noise / totals
        # in reverse order, K = U U' is a Cholesky factorization; kinds x n x n
        lower, info = torch.linalg.cholesky_ex(torch.from_numpy(noisy).flip(-2, -1))
        if bool(info.any()):  # rounding; the rows remain as they are
            return
        eye = torch.eye(size, dtype=lower.dtype).expand_as(lower)
        factors = torch.linalg.solve_triangular(lower, eye, upper=False).flip(-2, -1).numpy()
        self._merge_at = size + max(2 * FIRST_ROOM, size // 2)
        # a late row between two starts may come anywhere among its like
        first_queries = np.append(0, starts)[keys[0]]
        self._rows = np.stack([first_queries, keys[1], totals.astype(np.int64)])
        self._residuals = (self._residuals * counts) @ member / totals
        self._W = with_room(factors, size)
        self._z = (factors[self._kind] @ self._residuals[..., None])[..., 0]


def _from_each(values: Array) -> Array:
    """Return the sums from each entry to the last, and 0 at the end: ``... x (n + 1)``."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values[..., ::-1], axis=-1, out=sums[..., -2::-1])
    return sums


def _inserted(columns: NDArray[Any], position: int, new: NDArray[Any]) -> NDArray[Any]:
    """Return columns with one more at a position."""
    parts = [columns[:, :position], new[:, None], columns[:, position:]]
    return np.concatenate(parts, axis=1)


def _unit_scale(prior: SuffixPrior) -> tuple[object, SuffixPrior, float]:
    """Return a key of the kernel up to its scale, the prior divided by the scale, and the scale.

    Kernels without a known closed form may hide settings: their key is their identity.
    """
    kernel, scale = prior.kernel, 1.0
    if type(kernel) is ScaleKernel and kernel.active_dims is None:
        kernel, scale = kernel.base_kernel, float(kernel.outputscale.detach())
    is_known = smoothness_of(kernel) is not None
    key = describe_module(kernel) if is_known else id(kernel)
    unit = SuffixPrior(kernel, prior.noise / scale, transform=prior.transform)
    return (key, id(prior.transform)), unit, scale


class BallFit:
    """How well a function of bounded norm fits the rows of a stream that are added to it.

    Args:
        noise: The noise variance ``R^2``.
        rkhs_bound: ``B``, positive: the largest norm.
    """

    def __init__(self, noise: float, rkhs_bound: float) -> None:
        """See the class."""
        self.noise, self.rkhs_bound = noise, rkhs_bound
        self._outcomes: dict[int, tuple[int, float]] = {}  # count and mean of each place
        self._within = 0.0

    def add(self, slot: int, residual: float) -> None:
        """Add an outcome, less the prior mean, at a place with a number."""
        count, mean = self._outcomes.get(slot, (0, 0.0))
        moved = mean + (residual - mean) / (count + 1)
        self._within += (residual - mean) * (residual - moved)
        self._outcomes[slot] = (count + 1, moved)

    def log_likelihood(self, covariances: Array) -> float:
        """Return the largest log density that a function in the ball gives to the outcomes.

        Args:
            covariances: Of all places, ``num_places x num_places``.
        """
        slots = np.array(list(self._outcomes))
        counts, means = np.array(list(self._outcomes.values())).T
        roots = np.sqrt(counts)
        values, vectors = np.linalg.eigh(
            roots[:, None] * covariances[slots[:, None], slots] * roots
        )
        squared = np.square(vectors.T @ (roots * means))
        smallest = self._within + _smallest_squares(values, squared, self.rkhs_bound)
        constant = counts.sum() * math.log(2.0 * math.pi * self.noise)
        return float(-0.5 * (constant + smallest / self.noise))


def _smallest_squares(values: Array, squared: Array, bound: float) -> float:
    """Return the smallest sum of squared residuals of a function with a norm of at most ``bound``.

    The inverse of the norm of the ridge fit is concave and grows with the ridge ``a``, so that
    Newton's method on it comes from the left and never overshoots; a few steps are enough.

    Args:
        values: Eigenvalues of the kernel matrix, ascending.
        squared: Squares of the outcomes in its eigenbasis.
        bound: ``B``.
    """
    if values[-1] <= 0.0:  # the space contains only 0 at these points
        return float(squared.sum())
    # values that rounding makes too small would make good fits look bad
    values = np.maximum(values, len(values) * np.finfo(np.float64).eps * values[-1])
    a = 0.0
    for _ in range(100):
        terms = values * squared / np.square(values + a)
        norm = math.sqrt(terms.sum())
        if norm <= bound:
            break
        step = (norm / bound - 1.0) * norm**2 / float((terms / (values + a)).sum())
        a += step
        if step <= 1e-15 * a:
            break
    return max(float((a * squared / (values + a)).sum()) - a * bound**2, 0.0)
