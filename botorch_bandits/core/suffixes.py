r"""The posteriors of suffixes of one stream, each evaluated only at the newest input.

A suffix has the rows since some start. All suffixes share one factor: with the rows in the order
of their queries, and :math:`K + \Lambda = U U^\top` with an UPPER triangular :math:`U`, the rows
since any row :math:`i` have the factor :math:`U_{i:, i:}`, and :math:`W = U^{-1}` is upper
triangular as well. So, for the covariances :math:`k` of the newest input with all rows, and for all
suffixes at once,

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

**Points that repeat.** Rows of one point count as one, with their mean outcome and ``1 / count`` of
the noise. They are merged when enough have come.

**Several priors** are a batch dimension. Those that differ only in their output scale, at the same
ratio of noise variance to output scale, share ``W``, which is kept for output scale 1.

Source: Rasmussen and Williams 2006, algorithm 2.1, in reverse order; Gill, Golub, Murray and
Saunders 1974 for the rank-one change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.core.kernels import KernelList, kernel_function, unit_prior

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

BLOCK = 48
"""Rows that change together: their matrix product costs less than the memory that it reads."""

NEWER = np.triu(np.ones((BLOCK, BLOCK)), 1)
"""In row i, 1 for the rows of a block that are newer than row i."""

ROOM = 16
"""Rows for which memory is allocated at once, besides an eighth of those that there are."""

REPEATS = 32
"""Rows after which repeated points are merged, or half of the rows if these are more.

A merge factorizes anew, so it has to be rare."""


@dataclass(frozen=True, eq=False)
class SuffixPrior:
    """A Gaussian-process prior of one outcome.

    Attributes:
        kernel: A float64 kernel without a batch shape.
        noise: The noise variance.
        prior_mean: The prior mean, the same at all points.
    """

    kernel: Kernel
    noise: float
    prior_mean: float = 0.0


class Suffixes:
    """Posteriors of suffixes of a stream under ``g`` priors; :meth:`observe` adds a row to them.

    Args:
        priors: One for each column of outcomes.
        dim: ``d``, the number of columns that the kernels see.
    """

    def __init__(self, priors: Sequence[SuffixPrior], dim: int) -> None:
        """See the class."""
        units = [unit_prior(prior.kernel, prior.noise) for prior in priors]
        # kinds share W: the same kernel, up to its scale, with the same ratio of noise to scale
        kinds = {key: (kernel, ratio) for key, kernel, ratio, _ in units}
        number = {key: i for i, key in enumerate(kinds)}
        self._kind = np.array([number[key] for key, *_ in units])  # g
        self._scales = np.array([scale for *_, scale in units])[:, None]  # g x 1
        self._prior_means = np.array([prior.prior_mean for prior in priors])  # g
        self._noise = np.array([ratio for _, ratio in kinds.values()])[:, None]  # kinds x 1
        self._kernels = KernelList([kernel_function(kernel, dim) for kernel, _ in kinds.values()])
        # the distinct points, their numbers, and their covariances for output scale 1
        self._points = torch.empty(0, dim, dtype=torch.float64)
        self._places: dict[tuple[float, ...], int] = {}
        self._covariances = np.zeros((len(kinds), ROOM, ROOM))
        # of each row, in the order of queries: W, z, the mean residual; query, place and count
        self._W = np.zeros((len(kinds), ROOM, ROOM))
        self._z = self._residuals = np.zeros((len(priors), 0))
        self._rows = np.zeros((3, 0), dtype=np.int64)
        self._merge_at = 2 * REPEATS

    def observe(
        self, x: Tensor, outcomes: Array, query: int, starts: Sequence[int]
    ) -> tuple[Array, Array]:
        """Let suffixes predict an outcome for each prior, and then add it.

        Args:
            x: ``d``, the input as the kernels see it.
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
        key = tuple(x.tolist())
        if key not in self._places:
            self._add_point(x, key)
        place = self._places[key]
        queries, places, _ = self._rows
        n, p = len(queries), int(np.searchsorted(queries, query, side="right"))
        k = self._covariances[:, place]  # kinds x num_points
        own = k[:, [place]]  # kinds x 1
        v = (self._W[:, :n, :n] @ k[:, places, None])[..., 0]  # kinds x n
        # of the suffixes from row 0 to n; rounding must not make them negative
        variances = np.maximum(own - _from_each(v * v), 0.0)  # kinds x (n + 1)
        residuals = outcomes - self._prior_means
        misses = _from_each(v[self._kind] * self._z) - residuals[:, None]  # g x (n + 1)
        at = [0, *np.searchsorted(queries, [start for start in starts if start <= query])]
        means = outcomes[:, None] + misses[:, at]
        found = means.T, (self._scales * variances[self._kind][:, at]).T
        self._insert(p, v, variances + self._noise, misses)
        self._residuals = _inserted(self._residuals, p, residuals)
        self._rows = _inserted(self._rows, p, np.array([query, place, 1]))
        return found

    def covariances(self, points: Tensor) -> Array:
        """Return the prior covariances of points (``p x d``) that were observed, ``g x p x p``."""
        places = np.array([self._places[tuple(x)] for x in points.tolist()])
        return self._scales[..., None] * self._covariances[self._kind][:, places[:, None], places]

    def _add_point(self, x: Tensor, key: tuple[float, ...]) -> None:
        n = self._places[key] = len(self._points)
        self._points = torch.cat([self._points, x[None]])
        self._covariances = _with_room(self._covariances, n)
        k = self._kernels(x[None], self._points)[:, 0].cpu().numpy()  # kinds x (n + 1)
        self._covariances[:, n, : n + 1] = self._covariances[:, : n + 1, n] = k
        # by itself, as distances of equal points are not exactly 0
        self._covariances[:, n, n] = self._kernels.diagonal(x[None])[:, 0].cpu().numpy()

    def _insert(self, p: int, v: Array, t: Array, misses: Array) -> None:
        """Add row ``p`` to ``W`` and ``z``, and change those before it; see the module.

        Args:
            p: The number of rows before it.
            v: ``kinds x n``.
            t: ``kinds x (n + 1)``.
            misses: ``B`` of ``z``, ``g x (n + 1)``.
        """
        n, kind = v.shape[-1], self._kind
        self._W = _with_room(self._W, n)
        W = self._W[:, : n + 1, : n + 1]
        if p < n:  # a late row: a row and a column of zeros make room for it
            W[...] = np.insert(np.insert(W[:, :-1, :-1], p, 0.0, axis=1), p, 0.0, axis=2)
        pivot = np.sqrt(t[:, p])  # kinds
        shrink = np.sqrt(t[:, 1 : p + 1] / t[:, :p])  # kinds x p
        slope = v[:, :p] / np.sqrt(t[:, :p] * t[:, 1 : p + 1])
        self._z[:, :p] *= shrink[kind]
        self._z[:, :p] += slope[kind] * misses[:, 1 : p + 1]
        self._z = _inserted(self._z, p, -misses[:, p] / pivot[kind])
        B = v[:, None, p:] @ W[:, p + 1 :]  # kinds x 1 x (n + 1)
        B[..., p] -= 1.0
        W[:, p] = -B[:, 0] / pivot[:, None]
        for last in range(p, 0, -BLOCK):  # newest rows first, as B is summed from there
            first = max(last - BLOCK, 0)
            own, size = slice(first, last), last - first
            rows = W[:, own, first:]
            # row i: shrink_i W_i + slope_i (sum of v_j W_j over newer rows j, in this block and B)
            mixing = slope[:, own, None] * (v[:, None, own] * NEWER[:size, :size])
            mixing[:, range(size), range(size)] = shrink[:, own]
            changed = mixing @ rows + slope[:, own, None] * B[..., first:]
            B[..., first:] += v[:, None, own] @ rows
            W[:, own, first:] = changed

    def _merge(self, starts: Numbers) -> None:
        """Make rows of one point that no start separates one row, if there are any."""
        queries, places, counts = self._rows
        after = np.searchsorted(starts, queries, side="right")
        (after, places), row_of = np.unique([after, places], axis=1, return_inverse=True)
        size = len(places)
        self._merge_at = size + max(REPEATS, size // 2)
        if size == len(queries):
            return
        member = np.eye(size)[row_of]  # old rows x new rows
        totals = counts @ member
        noisy = self._covariances[:, places[:, None], places]
        noisy[:, range(size), range(size)] += self._noise / totals
        # in reverse order, K = U U' is a Cholesky factorization; kinds x n x n
        lower, info = torch.linalg.cholesky_ex(torch.from_numpy(noisy).flip(-2, -1))
        if bool(info.any()):  # rounding; the rows remain as they are
            return
        identity = torch.eye(size, dtype=lower.dtype).expand_as(lower)
        inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
        self._W = inverse.flip(-2, -1).numpy()
        # a late row between two starts may come anywhere among its like
        self._rows = np.stack([np.append(0, starts)[after], places, totals.astype(np.int64)])
        self._residuals = (self._residuals * counts) @ member / totals
        self._z = (self._W[self._kind] @ self._residuals[..., None])[..., 0]


def _from_each(values: Array) -> Array:
    """Return the sums from each entry to the last, and 0 at the end: ``... x (n + 1)``."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values[..., ::-1], axis=-1, out=sums[..., -2::-1])
    return sums


def _with_room(matrices: Array, size: int) -> Array:
    """Return ``... x size x size`` matrices with room for one more row and column."""
    more = (0, size // 8 + ROOM)
    return matrices if size < matrices.shape[-1] else np.pad(matrices, [(0, 0), more, more])


def _inserted(columns: NDArray[Any], position: int, new: NDArray[Any]) -> NDArray[Any]:
    """Return columns with one more at a position."""
    parts = [columns[:, :position], new[:, None], columns[:, position:]]
    return np.concatenate(parts, axis=1)
