r"""The posteriors of suffixes of one stream, each evaluated only at the newest input.

A suffix has the rows whose queries are not before its start. It is an ordinary posterior to which
rows are appended in the order of their arrival, so late rows need no special treatment. With the
rows' covariances :math:`K + \Lambda = L L^\top`, the inverse root :math:`W = L^{-1}`, the residuals
:math:`r = y - m` and the covariances :math:`k` of the newest input with the rows,

.. math::
   v = W k, \qquad z = W r, \qquad
   \mu = m + v^\top z, \qquad \sigma^2 = k(x, x) - v^\top v,

and the newest row, whose noise variance is :math:`\lambda`, extends both by one row:

.. math::
   p = \sqrt{\sigma^2 + \lambda}, \qquad
   W \leftarrow \begin{pmatrix} W & 0 \\ -v^\top W / p & 1 / p \end{pmatrix}, \qquad
   z \leftarrow \begin{pmatrix} z \\ (y - \mu) / p \end{pmatrix}.

This takes ``2 n^2`` operations. Suffixes are few if only two starts are kept for every doubling of
the age (:mod:`botorch_bandits.change_points.evidence`): their squares sum to less than ``2.4 n^2``.

**Points that repeat.** Rows of one point count as one, with their mean outcome and ``1 / count`` of
the noise. They are merged when enough have come.

**Several priors** are a batch dimension. Those that differ only in their output scale, at the same
ratio of noise variance to output scale, share ``W``, which is kept for output scale 1.

**The best fit in a ball** is the smallest sum of squares of a function of bounded norm, by Lagrange
duality:

.. math:: \min_{\|f\|_k \le B} \|y - f(X)\|^2
   = \max_{a \ge 0} \; a \, y^\top (K + a I)^{-1} y - a B^2 .

With the counts :math:`C` and the means :math:`\bar y` of the distinct points, it is the sum of
squares within them, plus the same expression for :math:`C^{1/2} K C^{1/2}` and
:math:`C^{1/2} \bar y`.

Source: Rasmussen and Williams 2006, algorithm 2.1, one row at a time. The largest ``a`` is found
like the multiplier of a trust region (More and Sorensen 1983).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.core.kernels import KernelList, describe_module, kernel_function, smoothness_of

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]

WHOLE = 0
"""The start of the whole stream; queries are numbered from 1."""

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
        units = [_unit(prior) for prior in priors]
        # kinds share W: the same kernel, up to its scale, with the same ratio of noise to scale
        kinds = {key: (kernel, ratio) for key, kernel, ratio, _ in units}
        number = {key: i for i, key in enumerate(kinds)}
        self._kind = np.array([number[key] for key, *_ in units])  # g
        self._scales = np.array([scale for *_, scale in units])  # g
        self._prior_means = np.array([prior.prior_mean for prior in priors])  # g
        self._noise = np.array([ratio for _, ratio in kinds.values()])  # kinds
        self._kernels = KernelList([kernel_function(kernel, dim) for kernel, _ in kinds.values()])
        self._points = torch.empty(0, dim, dtype=torch.float64)  # the distinct ones
        self._places: dict[tuple[float, ...], int] = {}
        self._suffixes: dict[int, _Suffix] = {}

    def observe(
        self, x: Tensor, outcomes: Array, query: int, starts: Sequence[int]
    ) -> tuple[Array, Array]:
        """Let suffixes predict an outcome for each prior, and then add it.

        Args:
            x: ``d``, the input as the kernels see it.
            outcomes: ``g``, one for each prior.
            query: The number of its query, from 1.
            starts: The numbers of the first queries of all suffixes that are still needed,
                ascending; the others are forgotten.

        Returns:
            Means and variances of the function before the outcome was added, under the whole stream
            and the suffixes to which the row belongs, ``(1 + num_suffixes) x g`` each.
        """
        place = self._places.setdefault(tuple(x.tolist()), len(self._places))
        if place == len(self._points):
            self._points = torch.cat([self._points, x[None]])
        k = _numbers(self._kernels(x[None], self._points))[:, 0]
        # by itself, as distances of equal points are not exactly 0; kinds x num_points
        k[:, place] = _numbers(self._kernels.diagonal(x[None]))[:, 0]
        residuals = outcomes - self._prior_means
        shape = len(k), len(residuals)
        known, needed = self._suffixes, (WHOLE, *starts)
        self._suffixes = {start: known.get(start) or _Suffix(*shape) for start in needed}
        moved = [suffix for start, suffix in self._suffixes.items() if start <= query]
        for suffix in moved:
            suffix.merge(self._matrix, self._kind, self._noise)
        found = [suffix.add(k, place, residuals, self._kind, self._noise) for suffix in moved]
        means, variances = (np.stack(column) for column in zip(*found, strict=True))
        return self._prior_means + means, self._scales * variances[:, self._kind]

    def covariances(self, points: Tensor) -> Array:
        """Return the prior covariances of ``p x d`` points under each prior, ``g x p x p``."""
        unit: Array = self._matrix(points)[self._kind]
        return self._scales[:, None, None] * unit

    def _matrix(self, points: Tensor | Numbers) -> Array:
        """Return the covariances of points, or of those in some places, for output scale 1."""
        X = points if torch.is_tensor(points) else self._points[points]
        found = _numbers(self._kernels(X, X))  # kinds x p x p
        found[:, range(len(X)), range(len(X))] = _numbers(self._kernels.diagonal(X))
        return found


class _Suffix:
    """One suffix under ``c`` kinds of priors and ``g`` priors.

    Attributes:
        size: ``n``, the number of rows; arrays have room for more.
        W: ``c x n x n``.
        z, residuals: ``g x n``.
        places, counts: ``n``; the point of each row, and how many outcomes it is the mean of.
    """

    def __init__(self, num_kinds: int, num_priors: int) -> None:
        self.size, self.merge_at = 0, REPEATS
        self.W = np.zeros((num_kinds, ROOM, ROOM))
        self.z, self.residuals = np.zeros((2, num_priors, ROOM))
        self.places, self.counts = np.zeros((2, ROOM), dtype=np.int64)

    def add(
        self, k: Array, place: int, residuals: Array, kind: Numbers, noise: Array
    ) -> tuple[Array, Array]:
        """Return the mean (``g``) and the variance (``c``) of a new row, and append it.

        Args:
            k: ``c x num_points``, the covariances of its input with all points.
            place: Which point it is.
            residuals: ``g``.
            kind: ``g``, the kind of each prior.
            noise: ``c``.
        """
        n = self.size
        if n == len(self.places):
            more = [(0, n // 8 + ROOM)]
            self.W = np.pad(self.W, [(0, 0), *more, *more])
            self.z, self.residuals = (np.pad(a, [(0, 0), *more]) for a in (self.z, self.residuals))
            self.places, self.counts = (np.pad(a, more) for a in (self.places, self.counts))
        W = self.W[:, :n, :n]
        v = (W @ k[:, self.places[:n], None])[..., 0]  # c x n
        mean = np.einsum("gn,gn->g", v[kind], self.z[:, :n])
        # rounding must not make it negative
        variance = np.maximum(k[:, place] - np.einsum("cn,cn->c", v, v), 0.0)
        pivot = np.sqrt(variance + noise)  # c
        self.W[:, n, :n] = (v[:, None] @ W)[:, 0] / -pivot[:, None]
        self.W[:, n, n] = 1.0 / pivot
        self.z[:, n] = (residuals - mean) / pivot[kind]
        self.residuals[:, n] = residuals
        self.places[n], self.counts[n] = place, 1
        self.size = n + 1
        return mean, variance

    def merge(self, matrix: Callable[[Numbers], Array], kind: Numbers, noise: Array) -> None:
        """Make rows of one point one row, if enough rows have come since the last time.

        Args:
            matrix: Returns the covariances of the points in ``p`` places, ``c x p x p``.
            kind: See :meth:`add`.
            noise: See :meth:`add`.
        """
        n = self.size
        if n < self.merge_at:
            return
        places, row_of = np.unique(self.places[:n], return_inverse=True)
        self.merge_at = len(places) + max(REPEATS, len(places) // 2)
        if len(places) == n:
            return
        counts = self.counts[:n]
        totals = np.bincount(row_of, counts)
        member = np.eye(len(places))[row_of]  # n x p
        noisy = matrix(places)
        noisy[:, range(len(places)), range(len(places))] += noise[:, None] / totals
        root, info = torch.linalg.cholesky_ex(torch.from_numpy(noisy))
        if bool(info.any()):  # rounding; the rows remain as they are
            return
        identity = torch.eye(len(places), dtype=root.dtype).expand_as(root)
        p = self.size = len(places)
        self.W[:, :p, :p] = torch.linalg.solve_triangular(root, identity, upper=False).numpy()
        self.residuals[:, :p] = (self.residuals[:, :n] * counts) @ member / totals
        self.z[:, :p] = np.einsum("gij,gj->gi", self.W[kind, :p, :p], self.residuals[:, :p])
        self.places[:p], self.counts[:p] = places, totals


def _numbers(values: Tensor) -> Array:
    found: Array = values.cpu().numpy()
    return found


def _unit(prior: SuffixPrior) -> tuple[object, Kernel, float, float]:
    """Return the key of a kind, its kernel, the ratio of noise to output scale, and the scale.

    Kernels without a known closed form may hide settings: their key has their identity.
    """
    kernel, scale = prior.kernel, 1.0
    if type(kernel) is ScaleKernel and kernel.active_dims is None:
        kernel, scale = kernel.base_kernel, float(kernel.outputscale.detach())
    ratio = prior.noise / scale
    described = describe_module(kernel) if smoothness_of(kernel) is not None else id(kernel)
    return (described, f"{ratio:.11e}"), kernel, ratio, scale


def log_likelihood_in_ball(
    covariances: Array, places: Numbers, residuals: Array, noise: float, rkhs_bound: float
) -> float:
    """Return the largest log density that a function of bounded norm gives to outcomes.

    Args:
        covariances: ``p x p``, of the distinct points.
        places: ``n`` numbers of points, each of which occurs.
        residuals: ``n`` outcomes, less the prior mean.
        noise: The noise variance ``R^2``.
        rkhs_bound: ``B``, positive: the largest norm.
    """
    counts = np.bincount(places)  # p
    means = np.bincount(places, residuals) / counts
    within = float(np.square(residuals - means[places]).sum())
    roots = np.sqrt(counts)
    # C^(1/2) K C^(1/2) = Q diag(values) Q', and the squares of Q' C^(1/2) means
    values, vectors = np.linalg.eigh(roots[:, None] * covariances * roots)
    squared = np.square(vectors.T @ (roots * means))
    smallest = within + _smallest_squares(values, squared, rkhs_bound)
    return -0.5 * (len(places) * math.log(2.0 * math.pi * noise) + smallest / noise)


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
        terms = values * squared / np.square(values + a)  # of the squared norm
        norm = math.sqrt(terms.sum())
        if norm <= bound:
            break
        step = (norm / bound - 1.0) * norm**2 / float((terms / (values + a)).sum())
        a += step
        if step <= 1e-15 * a:  # what rounding leaves
            break
    return max(float((a * squared / (values + a)).sum()) - a * bound**2, 0.0)
