r"""The posteriors of suffixes of one stream, each evaluated only at the newest inputs.

A suffix has the rows since some start. All suffixes share one factor of the older rows: with these
in the order of their queries, and :math:`K + \Lambda = U U^\top` with an UPPER triangular
:math:`U`, the rows since any row :math:`i` have the factor :math:`U_{i:, i:}`, and
:math:`W = U^{-1}` is upper triangular as well. So, for the covariances :math:`k` and :math:`k'` of
two new inputs with the older rows, and for all suffixes at once,

.. math::
   v = W k, \qquad z = W (y - m), \qquad
   \mu_i = m + \sum_{j \ge i} v_j z_j, \qquad
   c_i = k(x, x') - \sum_{j \ge i} v_j v'_j .

**Recent rows**, a few dozen, have in each suffix a factor of their own,
:math:`L L^\top = c + \Lambda`, in the order in which their outcomes came. It grows by the rows of a
block, and with :math:`w = L^{-1} (y - \mu)`, outcome :math:`r` is predicted from everything before
it by

.. math:: y_r - L_{rr} w_r, \qquad L_{rr}^2 - \lambda .

When they are many, they join the older rows, whose factor is computed anew.

**Points that repeat.** Older rows of one point that no start separates are one row, with the mean
of their outcomes by weight, and the sum of their weights. A weight divides the noise.

**Several priors** are a batch dimension. Those that differ only in their output scale, at the same
ratio of noise variance to output scale, share all factors, which are kept for output scale 1.

Source: Rasmussen and Williams 2006, algorithm 2.1, in reverse order for the older rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.core.kernels import KernelList, kernel_function, unit_prior
from botorch_bandits.core.priors import cholesky

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

RECENT = 32
"""Rows that are recent at most, or a sixteenth of the older ones if these are more.

Older rows are factorized anew when there are more recent ones, so this has to be rare; but each
suffix has a factor of the recent ones."""

ROOM = 16
"""Points for which memory is allocated at once, besides an eighth of those that there are."""


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
    """Posteriors of suffixes of a stream under ``g`` priors; :meth:`observe` adds rows to them.

    Args:
        priors: One for each column of outcomes.
        dim: ``d``, the number of columns that the kernels see.
    """

    _V: Array  # W times the covariances of older rows and recent ones, kinds x n x t

    def __init__(self, priors: Sequence[SuffixPrior], dim: int) -> None:
        """See the class."""
        units = [unit_prior(prior.kernel, prior.noise) for prior in priors]
        # kinds share factors: the same kernel, up to its scale, with the same ratio of noise to it
        kinds = {key: (kernel, ratio) for key, kernel, ratio, _ in units}
        number = {key: i for i, key in enumerate(kinds)}
        self._kind = np.array([number[key] for key, *_ in units])  # g
        self._scales = np.array([scale for *_, scale in units])[:, None, None]  # g x 1 x 1
        self._prior_means = np.array([prior.prior_mean for prior in priors])[:, None]  # g x 1
        self._noise = np.array([ratio for _, ratio in kinds.values()])[:, None]  # kinds x 1
        self._kernels = KernelList([kernel_function(kernel, dim) for kernel, _ in kinds.values()])
        # the distinct points, their numbers, and their covariances for output scale 1
        self._points = torch.empty(0, dim, dtype=torch.float64)
        self._places: dict[tuple[float, ...], int] = {}
        self._covariances = np.zeros((len(kinds), 0, 0))
        # of all rows, first the older ones in the order of queries: query, place, weight, residual
        self._rows, self._weights = np.zeros((2, 0), dtype=np.int64), np.zeros(0)
        self._residuals = np.zeros((len(priors), 0))
        self._set_older(self._covariances)

    def observe(
        self,
        X: Tensor,
        outcomes: Array,
        queries: Sequence[int],
        starts: Sequence[int] | Numbers,
        weights: Array | float = 1.0,
    ) -> tuple[Array, Array]:
        """Let suffixes predict outcomes for each prior, one after the other, and then add them.

        Args:
            X: ``b x d``, the inputs as the kernels see them, in the order of their outcomes.
            outcomes: ``b x g``, one for each prior.
            queries: The numbers of their queries.
            starts: The numbers of the first queries of all suffixes that are still needed,
                ascending. One that was left out before must not have had rows.
            weights: ``b``, with which the noise of the outcomes is divided.

        Returns:
            Means and variances of the function before each outcome was added, under the whole
            stream and ``s`` suffixes, ``b x (1 + s) x g`` each. Those of a suffix that begins after
            a row mean nothing.
        """
        starts, b, kind = np.append(0, starts).astype(np.int64), len(X), self._kind
        if self._rows.shape[1] - self._num_older + b > max(RECENT, self._num_older // 16):
            self._merge(starts[1:])
        n, total = self._num_older, self._rows.shape[1] + b
        added = np.array([queries, self._places_of(X)])
        self._rows = np.concatenate([self._rows, added], axis=1)
        self._weights = np.append(self._weights, np.broadcast_to(weights, b))
        noise = (self._noise / self._weights[-b:])[:, None]  # kinds x 1 x b
        residuals = outcomes.T - self._prior_means  # g x b
        self._residuals = np.concatenate([self._residuals, residuals], axis=1)
        old, new, recent = slice(0, total - b - n), slice(total - b - n, None), self._rows[:, n:]
        # what the older rows of each suffix leave open about the t recent rows, b of which are new
        k = self._covariances[:, self._rows[1, :, None], added[1]]  # kinds x total x b
        v = self._W @ k[:, :n]  # kinds x n x b
        self._V = np.concatenate([self._V, v], axis=-1)  # kinds x n x t
        first = np.searchsorted(self._rows[0, :n], starts)
        c = k[:, None, n:] - _sums_from(first, self._V, v)  # kinds x (1 + s) x t x b
        known = _sums_from(first, self._z[..., None], v[kind])[..., 0, :]
        left = residuals[:, None] - known  # g x (1 + s) x b
        # a row before a start has nothing to do with its suffix
        belongs = recent[0] >= starts[:, None]  # (1 + s) x t
        c *= belongs[:, :, None] & belongs[:, None, new]
        left *= belongs[:, new]
        # the factor grows to [L 0; u' L_new]: u = L^-1 c, and L_new L_new' = c_new + noise - u' u
        L, w = self._factors_of(starts, b)
        u = _solved(L[..., old, old], c[..., old, :])
        c_new = c[..., new, :] - u.swapaxes(-2, -1) @ u
        c_new[..., range(b), range(b)] += noise
        L_new = cholesky(torch.from_numpy(c_new)).numpy()
        left -= (w[..., None, old] @ u[kind])[..., 0, :]
        w_new = _solved(L_new[kind], left[..., None])[..., 0]
        L[..., new, old], L[..., new, new], w[..., new] = u.swapaxes(-2, -1), L_new, w_new
        self._starts, self._L, self._w = starts, L, w
        pivots = np.diagonal(L_new, axis1=-2, axis2=-1)  # kinds x (1 + s) x b
        means = outcomes.T[:, None] - pivots[kind] * w_new
        # rounding must not make variances negative
        variances = self._scales * np.maximum(pivots**2 - noise, 0.0)[kind]
        return means.T, variances.T

    def covariances(self, points: Tensor) -> Array:
        """Return the prior covariances of points (``p x d``) that were observed, ``g x p x p``."""
        places = np.array([self._places[tuple(x)] for x in points.tolist()])
        return self._scales * self._covariances[self._kind][:, places[:, None], places]

    def _places_of(self, X: Tensor) -> list[int]:
        """Return the numbers of ``b x d`` points; keep the covariances of those that are new."""
        points = [tuple(x) for x in X.tolist()]
        places = [self._places.setdefault(point, len(self._places)) for point in points]
        n, size = len(self._points), len(self._places)
        if size > n:
            added = X[[places.index(place) for place in range(n, size)]]
            self._points = torch.cat([self._points, added])
            if size > self._covariances.shape[-1]:
                more = (0, size + size // 8 + ROOM - self._covariances.shape[-1])
                self._covariances = np.pad(self._covariances, [(0, 0), more, more])
            k = self._kernels(added, self._points).cpu().numpy()  # kinds x (size - n) x size
            self._covariances[:, n:size, :size] = k
            self._covariances[:, :size, n:size] = k.swapaxes(1, 2)
            # by itself, as distances of equal points are not exactly 0
            own = self._kernels.diagonal(added).cpu().numpy()
            self._covariances[:, range(n, size), range(n, size)] = own
        return places

    def _factors_of(self, starts: Numbers, num_new: int) -> tuple[Array, Array]:
        """Return ``L`` and ``w`` of suffixes, with zeros for new rows."""
        before = self._L.shape[-1]
        size = before + num_new
        L = np.zeros((len(self._L), len(starts), size, size))
        w = np.zeros((len(self._w), len(starts), size))
        # no recent row belongs to a suffix that is new
        L[..., range(before), range(before)] = np.sqrt(self._noise)[..., None]
        _, at, at_known = np.intersect1d(starts, self._starts, True, return_indices=True)
        L[:, at, :before, :before], w[:, at, :before] = self._L[:, at_known], self._w[:, at_known]
        return L, w

    def _merge(self, starts: Numbers) -> None:
        """Make all rows older ones, those of one point that no start separates a single one."""
        queries, places = self._rows
        after = np.searchsorted(starts, queries, side="right")
        (after, places), row_of = np.unique([after, places], axis=1, return_inverse=True)
        size = len(places)
        member = np.eye(size)[row_of]  # rows as they were x older rows
        totals = self._weights @ member
        noisy = self._covariances[:, places[:, None], places]
        noisy[:, range(size), range(size)] += self._noise / totals
        # in reverse order, K = U U' is a Cholesky factorization; kinds x n x n
        lower = cholesky(torch.from_numpy(noisy).flip(-2, -1))
        identity = torch.eye(size, dtype=lower.dtype).expand_as(lower)
        inverse = torch.linalg.solve_triangular(lower, identity, upper=False)
        # a late row between two starts may come anywhere among its like
        self._rows = np.stack([np.append(0, starts)[after], places])
        self._residuals = (self._residuals * self._weights) @ member / totals
        self._weights = totals
        self._set_older(inverse.flip(-2, -1).numpy())

    def _set_older(self, W: Array) -> None:
        """Take all rows as older ones with the inverse factors ``W``, ``kinds x n x n``."""
        self._W, self._num_older = W, W.shape[-1]
        pairs = zip(self._kind, self._residuals, strict=True)
        self._z = np.stack([W[kind] @ residuals for kind, residuals in pairs])  # g x n
        self._V = np.zeros((*W.shape[:-1], 0))
        # of the recent rows, for each start
        self._starts = np.zeros(1, dtype=np.int64)
        self._L, self._w = np.zeros((len(W), 1, 0, 0)), np.zeros((len(self._z), 1, 0))


def _sums_from(first: Numbers, left: Array, right: Array) -> Array:
    """Return the products of rows from each of ``s`` numbers on, ``g x s x p x q``.

    Args:
        first: The numbers, ascending.
        left: ``g x n x p``.
        right: ``g x n x q``.
    """
    ends = itertools.pairwise([*first, left.shape[1]])
    parts = [left[:, i:j].swapaxes(1, 2) @ right[:, i:j] for i, j in ends]
    return np.cumsum(np.stack(parts[::-1], axis=1), axis=1)[:, ::-1]


def _solved(L: Array, right: Array) -> Array:
    """Return ``L^-1 right`` for lower triangular matrices."""
    factor, columns = torch.from_numpy(L), torch.from_numpy(right)
    return torch.linalg.solve_triangular(factor, columns, upper=False).numpy()
