r"""The posterior of a stationary Gaussian process in closed form, outside autograd.

It is based on the inverse Cholesky factor of the data, which grows by a row in ``n^2`` operations.
With the constant prior mean :math:`m`, :math:`a = (K + \lambda I)^{-1} (y - m)`,
:math:`\ell(x) = L^{-1} k(x)` and :math:`b(x) = L^{-\top} \ell(x)`,

.. math::
   \mu(x) = m + k(x)^\top a, \qquad \sigma^2(x) = k(x, x) - \|\ell(x)\|^2, \qquad
   \nabla \mu = \sum_j a_j \nabla k(x, x_j), \qquad
   \nabla \sigma^2 = -2 \sum_j b_j \nabla k(x, x_j).

With ``n`` rows and ``b`` points, values cost ``b n^2`` operations and gradients as much again; one
more row costs ``2 n^2``.

**The inverse factor.** With :math:`K + \lambda I = L L^\top` the inverse factor is
:math:`L^{-1}`. New rows of the data add new rows to it; existing rows never change:

.. math::
   \ell = L^{-1} k, \qquad s^2 = k_0 + \lambda - \|\ell\|^2, \qquad
   L^{-1}_{\text{new row}} = \left( -\tfrac1s \ell^\top L^{-1}, \tfrac1s \right)

for one row, and the same with a small Cholesky factor in place of ``s`` for several. Products with
the inverse factor replace triangular solves. The inverse of :math:`K + \lambda I` itself is never
formed: its products lose twice as many digits.

Storage is packed: slabs of 128 rows, each as wide as its last row. At ``n = 1000`` it is 0.59
``n^2`` doubles. Full slabs never change and are shared between all factors that continue them.
The last slab is shared as well: it has room for all its rows, each factor sees only its own rows of
it, and any factor but the newest copies it (at most 128 rows) before writing.

**The same bits on every route.** Rows are processed in steps that depend on their number alone:
every 16 rows form one step, and only the remainder is processed row by row. When a row completes
such a group, its 16 rows are computed again as one step. Thus ``n`` rows added one by one, in
blocks or all at once go through the same arithmetic.

Source: Rasmussen and Williams 2006, algorithm 2.1, with the gradients worked out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self

import torch
from botorch.models import SingleTaskGP
from botorch.posteriors import GPyTorchPosterior
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DenseLinearOperator
from torch import Tensor
from torch.nn import Module

from botorch_bandits.core.kernels import StationaryKernel

STEP_ROWS = 16
"""Rows computed together; of ``n`` rows, the last ``n % STEP_ROWS`` come one by one."""

SLAB_ROWS = 128
"""Rows in one piece of memory; a multiple of ``STEP_ROWS``."""

SMALLEST_PIVOT = 0.5
"""Smallest accepted squared pivot, in noise variances; in exact arithmetic none is below 1."""

CovarianceBlock = Callable[[int, int], tuple[Tensor, Tensor]]
"""Returns for rows ``start`` to ``end`` their covariances with the rows before and the noisy
covariances among themselves, ``r x start`` and ``r x r``."""


class _Slab:
    """The last slab: its memory and how many of its rows are written."""

    def __init__(self, start: int, buffer: Tensor, num_written: int) -> None:
        self.start = start
        self.buffer = buffer
        self.num_written = num_written


@dataclass(frozen=True, eq=False)
class InverseFactor:
    """The inverse Cholesky factor of the first ``num_rows`` rows; see the module.

    It is immutable: :meth:`extended` returns a new factor and does not change this one.

    Attributes:
        num_rows: ``n``.
        full: The full slabs in order, ``SLAB_ROWS x (start + SLAB_ROWS)`` each.
        pivots: The diagonal of ``L``, ``n``.
    """

    num_rows: int
    full: tuple[Tensor, ...]
    pivots: Tensor
    _last: _Slab | None = None

    @classmethod
    def empty(cls, like: Tensor) -> InverseFactor:
        """Return the factor of no rows, with the dtype and device of ``like``."""
        return cls(0, (), like.new_empty(0))

    @classmethod
    def of_matrix(cls, matrix: Tensor, noise: float) -> InverseFactor | None:
        """Return the factor of a whole matrix, for a model that will not grow.

        One factorization takes a small fraction of the time of adding the rows in steps, and has
        different rounding errors.

        Args:
            matrix: ``n x n``, ``n >= 1``, with the noise on its diagonal.
            noise: The noise variance.

        Returns:
            None as in :meth:`extended`.
        """
        cholesky, info = torch.linalg.cholesky_ex(matrix)
        pivots = cholesky.diagonal().clone()
        if not _smallest_pivot(pivots, info).item() >= SMALLEST_PIVOT * noise:
            return None
        identity = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
        inverse = torch.linalg.solve_triangular(cholesky, identity, upper=False)
        num_full = len(matrix) // SLAB_ROWS
        full = tuple(
            inverse[i * SLAB_ROWS : (i + 1) * SLAB_ROWS, : (i + 1) * SLAB_ROWS].contiguous()
            for i in range(num_full)
        )
        start = num_full * SLAB_ROWS
        last = None
        if start < len(matrix):
            # the buffer is exactly as large as its contents, so that it is copied before it grows
            last = _Slab(start, inverse[start:].contiguous(), -1)
        return cls(len(matrix), full, pivots, last)

    def extended(
        self, num_rows: int, covariance: CovarianceBlock, noise: float
    ) -> InverseFactor | None:
        """Return the factor of ``num_rows`` rows that begin with the rows of this one.

        Args:
            num_rows: At least this factor's number of rows.
            covariance: See :data:`CovarianceBlock`; asked for one step at a time.
            noise: The noise variance on the diagonal.

        Returns:
            None if rounding makes the matrix indefinite or a pivot too small to be trusted.
        """
        grouped = num_rows // STEP_ROWS * STEP_ROWS
        factor = self
        if self.num_rows < grouped:
            factor = self._first(self.num_rows // STEP_ROWS * STEP_ROWS)
        pivots = []
        while factor.num_rows < num_rows:
            end = factor.num_rows + (STEP_ROWS if factor.num_rows < grouped else 1)
            factor, smallest = factor._step(*covariance(factor.num_rows, end))
            pivots.append(smallest)
        if not pivots:
            return factor
        # checked once, at the end, as each check waits for a device; NaN is the smallest of all
        smallest = pivots[0] if len(pivots) == 1 else torch.stack(pivots).amin()
        return factor if smallest.item() >= SMALLEST_PIVOT * noise else None

    @cached_property
    def slabs(self) -> tuple[tuple[int, Tensor], ...]:
        """The first row of each slab and its ``rows x (start + rows)`` matrix."""
        pieces = [(SLAB_ROWS * i, slab) for i, slab in enumerate(self.full)]
        start = SLAB_ROWS * len(pieces)
        if self._last is not None and self.num_rows > start:
            pieces.append((start, self._last.buffer[: self.num_rows - start, : self.num_rows]))
        return tuple(pieces)

    def solve(self, rows: Tensor) -> Tensor:
        """Return ``rows @ L^-T``, that is ``L^-1`` times each row, ``b x n``."""
        if len(self.slabs) == 1:
            return rows @ self.slabs[0][1].mT
        solved = torch.empty_like(rows, memory_format=torch.contiguous_format)
        for start, slab in self.slabs:
            end = start + slab.shape[0]
            torch.mm(rows[:, :end], slab.mT, out=solved[:, start:end])
        return solved

    def solve_transposed(self, rows: Tensor, out: Tensor | None = None) -> Tensor:
        """Return ``rows @ L^-1``, that is ``L^-T`` times each row, ``b x n``.

        Args:
            rows: ``b x n``.
            out: The tensor to write to, ``b x n``; new memory if None.
        """
        if out is None:
            out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        *others, (last_start, last) = self.slabs
        torch.mm(rows[:, last_start:], last, out=out)  # the only slab as wide as the result
        for start, slab in others:
            end = start + SLAB_ROWS
            out[:, :end].addmm_(rows[:, start:end], slab)
        return out

    def weights(self, outcomes: Tensor, earlier: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return ``(K + lam I)^-1 y`` and the part of it that comes from the full slabs.

        Args:
            outcomes: ``y``, ``n``.
            earlier: The second result for a factor that this one continues, for the same first
                outcomes; saves its full slabs.
        """
        part = outcomes.new_empty(0) if earlier is None else earlier
        for slab in self.full[len(part) // SLAB_ROWS :]:
            end = slab.shape[1]
            part = torch.cat([part, part.new_zeros(SLAB_ROWS)])
            part.addmv_(slab.mT, slab @ outcomes[:end])
        if self.num_rows == len(part):
            return part, part
        _, last = self.slabs[-1]
        weights = torch.cat([part, part.new_zeros(self.num_rows - len(part))])
        return weights.addmv_(last.mT, last @ outcomes), part

    def times(self, number: float) -> InverseFactor:
        """Return the inverse factor times a positive number: that of ``(K + lam I) / number^2``."""
        slabs = [slab * number for _, slab in self.slabs]
        full, start = tuple(slabs[: len(self.full)]), len(self.full) * SLAB_ROWS
        # the buffer is exactly as large as what is written, so that it is copied before it grows
        last = _Slab(start, slabs[-1], -1) if len(slabs) > len(full) else None
        return InverseFactor(self.num_rows, full, self.pivots / number, last)

    def information_gain(self, noise: float) -> Tensor:
        """Return ``1/2 ln det(I + K / lam)`` in nats, a scalar tensor."""
        gain = self.pivots.log().sum() - 0.5 * self.num_rows * math.log(noise)
        return gain.clamp_min(0.0)

    def _first(self, num_rows: int) -> InverseFactor:
        """The factor of the first rows, at most one step fewer."""
        return InverseFactor(num_rows, self.full, self.pivots[:num_rows], self._last)

    def _step(self, cross: Tensor, block: Tensor) -> tuple[InverseFactor, Tensor]:
        """Add the rows with covariances ``cross`` to the old rows and ``block`` to each other.

        Returns:
            The factor, and the square of its smallest new pivot. Unless the latter is large enough,
            the factor must not be used.
        """
        num_new = block.shape[0]
        solved = self.solve(cross) if self.num_rows > 0 else cross
        remainder = torch.addmm(block, solved, solved.mT, alpha=-1.0)
        if num_new == 1:
            smallest = remainder.reshape(())
            pivots = remainder.reshape(1).sqrt()
            corner = pivots.reciprocal().unsqueeze(-1)
        else:
            cholesky, info = torch.linalg.cholesky_ex(remainder)
            pivots = cholesky.diagonal()
            smallest = _smallest_pivot(pivots, info)
            identity = torch.eye(num_new, dtype=block.dtype, device=block.device)
            corner = torch.linalg.solve_triangular(cholesky, identity, upper=False)
        last = self._writable()
        old = self.num_rows - last.start
        rows = last.buffer[old : old + num_new]
        if self.num_rows > 0:
            left = rows[:, : self.num_rows]
            if num_new == 1:
                self.solve_transposed(solved, out=left).mul_(corner).neg_()
            else:
                torch.mm(corner.neg(), self.solve_transposed(solved), out=left)
        rows[:, self.num_rows : self.num_rows + num_new].copy_(corner)
        last.num_written = old + num_new
        pivots = torch.cat([self.pivots, pivots])
        num_rows = self.num_rows + num_new
        if last.num_written == SLAB_ROWS:
            return InverseFactor(num_rows, (*self.full, last.buffer), pivots), smallest
        return InverseFactor(num_rows, self.full, pivots, last), smallest

    def _writable(self) -> _Slab:
        """Return the last slab if this factor is its newest one, otherwise a copy of its rows."""
        start = len(self.full) * SLAB_ROWS
        num_rows = self.num_rows - start
        last = self._last
        if last is not None and last.num_written == num_rows:
            return last
        buffer = self.pivots.new_empty(SLAB_ROWS, start + SLAB_ROWS)
        buffer[:, start:] = 0.0  # above the diagonal
        if last is not None:
            buffer[:num_rows, : self.num_rows] = last.buffer[:num_rows, : self.num_rows]
        return _Slab(start, buffer, num_rows)


def _smallest_pivot(pivots: Tensor, info: Tensor) -> Tensor:
    """Return the square of the smallest pivot, minus infinity if the factorization failed."""
    return torch.where(info == 0, pivots.min().square(), -math.inf)


class ModuleStamp:
    """Detects every change of a module's parameters, buffers and submodules.

    Parameters are compared by value (GPyTorch sets them without updating torch's version counters),
    everything else by identity and version.

    Args:
        module: A kernel, a likelihood or the like, with few parameters.
    """

    def __init__(self, module: Module) -> None:
        """See the class."""
        self._entries: list[tuple[Mapping[str, Any], str, Any]] = []
        self._values: list[tuple[Tensor, Tensor]] = []
        self._versions: list[tuple[Tensor, int]] = []
        for part in module.modules():
            for table in (part._modules, part._parameters, part._buffers):
                self._entries += [(table, key, value) for key, value in table.items()]
            self._values += [
                (value, value.detach().clone())
                for value in part._parameters.values()
                if value is not None
            ]
            self._versions += [
                (value, version(value)) for value in part._buffers.values() if value is not None
            ]
            settings = vars(part)
            self._entries += [
                (settings, key, value)
                for key, value in settings.items()
                if isinstance(value, float | int | str | Tensor) and key != "training"
            ]
            # such as the noise of GPyTorch's fixed noise levels, which is not a buffer
            self._versions += [
                (value, version(value)) for value in settings.values() if isinstance(value, Tensor)
            ]

    def is_current(self) -> bool:
        """Return whether nothing has changed since."""
        for table, key, value in self._entries:
            if table.get(key) is not value:
                return False
        for tensor, last in self._versions:
            if version(tensor) != last:
                return False
        for parameter, value in self._values:
            if parameter.dtype != value.dtype or parameter.device != value.device:
                return False
            if not torch.equal(parameter, value):
                return False
        return True

    def is_left_alone_by(self, function: Callable[[Tensor], Tensor]) -> bool:
        """Return whether ``function`` returns every tensor itself, as idle conversions do."""
        return all(function(tensor) is tensor for tensor, _ in self._values + self._versions)


def version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place, as far as PyTorch knows."""
    return 0 if tensor.is_inference() else int(tensor._version)


CHUNK_ENTRIES = 2**17
"""Kernel values computed at a time: larger temporaries leave the processor's cache."""


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """The immutable posterior of the reward function after ``n >= 1`` rows.

    Attributes:
        kernel: The kernel with unit lengthscale, because inputs are scaled first.
        lengthscale: ``d`` lengthscales, or one for all dimensions.
        noise: The noise variance ``lam``.
        outputscale: The prior variance.
        center: ``d``, the first input. Distances from it lose fewer digits than from the origin.
        points: ``n x (d + 2)``: scaled inputs, ones, squared norms.
        outcomes: ``n`` outcomes minus the prior mean.
        factor: The inverse Cholesky factor of ``K + lam I``.
        weights: ``a``, ``n``.
        full_weights: The part of ``a`` that later rows do not change.
        prior_mean: ``m``, the same at all points.
        memo: Results that others compute from the first rows, by name; all forms that extend this
            one share it.
        deleted: ``points`` of rows that have left since the factor was computed, in order.
    """

    kernel: StationaryKernel
    lengthscale: Tensor
    noise: float
    outputscale: float
    center: Tensor
    points: Tensor
    outcomes: Tensor
    factor: InverseFactor
    weights: Tensor
    full_weights: Tensor
    prior_mean: float = 0.0
    memo: dict[str, Any] = field(default_factory=dict)
    deleted: Tensor | None = None

    @classmethod
    def of_data(
        cls,
        kernel: StationaryKernel,
        noise: float,
        X: Tensor,
        y: Tensor,
        prior_mean: float = 0.0,
    ) -> ClosedForm | None:
        """Return the posterior given outcomes ``y`` (``n``) at ``X`` (``n x d``), ``n >= 1``.

        Returns:
            None if ``K + lam I`` cannot be factorized in float64.
        """
        none = InverseFactor.empty(X)
        start = cls.of_kernel(kernel, noise, X, none, X.new_empty(0), prior_mean)
        return start.with_rows(X, y)

    @classmethod
    def of_kernel(
        cls,
        kernel: StationaryKernel,
        noise: float,
        X: Tensor,
        factor: InverseFactor,
        weights: Tensor,
        prior_mean: float,
    ) -> Self:
        """Return a posterior with these parts, but no rows yet and no outcomes."""
        return cls(
            kernel=StationaryKernel(
                kernel.smoothness, X.new_ones(1), kernel.outputscale.to(X, copy=True)
            ),
            lengthscale=kernel.lengthscale.to(X, copy=True),
            noise=noise,
            outputscale=float(kernel.outputscale),
            center=X[0].clone(),
            points=X.new_empty(0, X.shape[1] + 2),
            outcomes=X.new_empty(0),
            factor=factor,
            weights=weights,
            full_weights=X.new_empty(0),
            prior_mean=prior_mean,
        )

    @property
    def num_rows(self) -> int:
        """``n``."""
        return self.factor.num_rows

    @property
    def dim(self) -> int:
        """``d``."""
        return len(self.center)

    @property
    def information_gain(self) -> Tensor:
        """``1/2 ln det(I + K / lam)`` in nats, a scalar."""
        return self.factor.information_gain(self.noise)

    def with_rows(self, X: Tensor, y: Tensor) -> Self | None:
        """Return the posterior given ``r x d`` further inputs and their ``r`` outcomes.

        Returns:
            None if the larger matrix cannot be factorized in float64.
        """
        return self._with_points(torch.cat([self.points, self._augment(X)]), self._residual(y))

    def _with_points(self, points: Tensor, residual: Tensor) -> Self | None:
        """Return the posterior of all ``points``, given the outcomes of those that are new."""
        factor = self.factor.extended(len(points), partial(self._covariance, points), self.noise)
        if factor is None:
            return None
        outcomes = torch.cat([self.outcomes, residual])
        weights, full_weights = factor.weights(outcomes, self.full_weights)
        return replace(
            self,
            points=points,
            outcomes=outcomes,
            factor=factor,
            weights=weights,
            full_weights=full_weights,
        )

    def _covariance(self, points: Tensor, start: int, end: int) -> tuple[Tensor, Tensor]:
        """See :data:`CovarianceBlock`."""
        dim, new = self.dim, points[start:end]
        queries = torch.cat([-2.0 * new[:, :dim], new[:, dim + 1 :], new[:, dim : dim + 1]], 1)
        diagonal = self.outputscale + self.noise
        if end == start + 1:
            cross, _ = self.kernel.of_augmented(queries, points[:start], with_slope=False)
            return cross, cross.new_full((1, 1), diagonal)
        values, _ = self.kernel.of_augmented(queries, points[:end], with_slope=False)
        block = values[:, start:].contiguous()
        block.diagonal().fill_(diagonal)
        return values[:, :start].contiguous(), block

    def with_outcomes(self, y: Tensor) -> Self:
        """Return the posterior with all ``n`` outcomes replaced, in ``n^2`` operations."""
        outcomes = self._residual(y)
        weights, full_weights = self.factor.weights(outcomes)
        return replace(self, outcomes=outcomes, weights=weights, full_weights=full_weights)

    def of_inputs_in_units(self, side: Tensor, origin: Tensor) -> Self:
        """Return the posterior as a function of other inputs, by an affine map of each column.

        Args:
            side: ``d`` numbers.
            origin: ``d`` numbers; inputs as the kernel sees them are ``(x - origin) / side``.
        """
        return replace(
            self, lengthscale=self.lengthscale * side, center=origin + side * self.center
        )

    def mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior mean and variance, ``b`` each, at ``b x d`` points."""
        X = X.detach()
        size = max(1, CHUNK_ENTRIES // self.num_rows)
        if len(X) <= size:
            return self._mean_and_variance(X)
        parts = [self._mean_and_variance(part) for part in X.split(size)]
        return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return mean, variance and their gradients at ``b x d`` points.

        Returns:
            Mean (``b``), variance (``b``), gradient of the mean (``b x d``), gradient of the
            variance (``b x d``). A variance that rounding makes negative is set to 0.
        """
        X = X.detach()
        size = max(1, CHUNK_ENTRIES // self.num_rows)
        if len(X) <= size:
            return self._value_and_gradient(X)
        parts = [self._value_and_gradient(part) for part in X.split(size)]
        means, variances, mean_slopes, variance_slopes = zip(*parts, strict=True)
        return (
            torch.cat(means),
            torch.cat(variances),
            torch.cat(mean_slopes),
            torch.cat(variance_slopes),
        )

    def mean(self, X: Tensor) -> Tensor:
        """Return the posterior mean alone, ``b``, at ``b x d`` points; ``b n`` operations."""
        _, queries = self._queries(X.detach())
        values, _ = self.kernel.of_augmented(queries, self.points, with_slope=False)
        return self._add_prior_mean(values @ self.weights)

    def mean_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior mean alone, ``b``, and its gradient, ``b x d``."""
        dim = self.dim
        scaled, queries = self._queries(X.detach())
        values, slope = self.kernel.of_augmented(queries, self.points, with_slope=True)
        assert slope is not None
        sums = slope.mul_(self.weights) @ self.points[:, : dim + 1]
        gradient = torch.addcmul(-sums[:, :dim], sums[:, dim:], scaled).div_(self.lengthscale)
        return self._add_prior_mean(values @ self.weights), gradient

    @property
    def coefficients(self) -> Tensor:
        """The ``n`` coefficients of the kernel values with the rows in the mean."""
        return self.weights

    def with_coefficients(self, coefficients: Tensor) -> Self:
        """Return the same form with another mean; its variance must not be used.

        Args:
            coefficients: The coefficients of the mean, ``n``.
        """
        return replace(self, weights=coefficients)

    def solve(self, residual: Tensor) -> Tensor:
        """Return the noisy kernel matrix's inverse times a vector, ``n``."""
        return self.factor.weights(residual)[0]

    @property
    def row_weights(self) -> Tensor | None:
        """``n`` factors of rows with less noise than ``noise``; None if all have the same."""
        return None

    def kernel_values(self, X: Tensor) -> tuple[Tensor, Any]:
        """Return the kernel values with the rows, and what :meth:`kernel_gradients` needs.

        Args:
            X: ``b x d`` points.

        Returns:
            A ``b x n`` tensor, and something to be passed on.
        """
        scaled, queries = self._queries(X.detach())
        values, slope = self.kernel.of_augmented(queries, self.points, with_slope=True)
        return values, (scaled, slope)

    def kernel_gradients(self, X: Tensor, seen: Any, outer: Tensor) -> Tensor:
        """Return the gradients of sums of kernel values, ``b x d``.

        Args:
            X: ``b x d`` points.
            seen: From :meth:`kernel_values` at these points.
            outer: ``b x n``; the factors of the values.
        """
        scaled, slope = seen
        dim = self.dim
        sums = (outer * slope) @ self.points[:, : dim + 1]
        return torch.addcmul(-sums[:, :dim], sums[:, dim:], scaled).div_(self.lengthscale)

    def prior_covariance(
        self, start: int, end: int, points: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the prior covariances of some rows with those before them and with each other.

        Args:
            start: The first of these rows.
            end: The end of these rows, exclusive.
            points: The points of rows other than this posterior's, in the form of :attr:`points`.

        Returns:
            ``(end - start) x start`` and ``(end - start) x (end - start)`` numbers.
        """
        points = self.points if points is None else points
        cross, block = self._covariance(points, start, end)
        block.diagonal().copy_(self._prior_variances(points[start:end]))
        return cross, block

    def _prior_variances(self, points: Tensor) -> Tensor:
        return points.new_full((len(points),), self.outputscale)

    def shares_factor_with(self, other: ClosedForm) -> bool:
        """Return whether another posterior differs from this one only in its outcomes.

        Args:
            other: The posterior of any model.
        """
        return (
            type(self) is type(other)
            and self.points.shape == other.points.shape
            and (self.noise, self.outputscale) == (other.noise, other.outputscale)
            and self._hyperparameters() == other._hyperparameters()
            and torch.equal(self.points, other.points)
            and torch.equal(self.factor.pivots, other.factor.pivots)
        )

    def _hyperparameters(self) -> list[Any]:
        tensors = (self.lengthscale, self.center)
        return [self.kernel.smoothness, *(each.tolist() for each in tensors)]

    def covariance(self, X: Tensor) -> Tensor:
        """Return the posterior covariance, ``... x q x q``, among ``... x q x d`` points."""
        X = X.detach()
        flat = X.reshape(-1, self.dim)
        scaled, queries = self._queries(flat)
        cross, _ = self.kernel.of_augmented(queries, self.points, with_slope=False)
        solved = self.factor.solve(cross).reshape(*X.shape[:-1], self.num_rows)
        scaled = scaled.reshape(X.shape)
        covariance = self.kernel.matrix(scaled, scaled)
        covariance -= solved @ solved.mT
        variance = (self.outputscale - solved.square().sum(-1)).clamp_min_(0.0)
        covariance.diagonal(dim1=-2, dim2=-1).copy_(variance)
        return covariance

    def _mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        _, queries = self._queries(X)
        values, _ = self.kernel.of_augmented(queries, self.points, with_slope=False)
        solved = self.factor.solve(values)
        variance = torch.rsub(solved.square_().sum(-1), self.outputscale).clamp_min_(0.0)
        return self._add_prior_mean(values @ self.weights), variance

    def _value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dim = self.dim
        scaled, queries = self._queries(X)
        values, slope = self.kernel.of_augmented(queries, self.points, with_slope=True)
        assert slope is not None
        mean = self._add_prior_mean(values @ self.weights)
        solved = self.factor.solve(values)
        # sum_j c_j h_j (x - x_j): both sums of both functions are one matrix product
        coefficients = values.new_empty(2, *values.shape)
        self.factor.solve_transposed(solved, out=coefficients[1]).mul_(slope)
        torch.mul(slope, self.weights, out=coefficients[0])
        variance = torch.rsub(solved.square_().sum(-1), self.outputscale).clamp_min_(0.0)
        sums = coefficients.reshape(-1, self.num_rows) @ self.points[:, : dim + 1]
        sums = sums.reshape(2, len(X), dim + 1)
        gradient = torch.addcmul(-sums[..., :dim], sums[..., dim:], scaled)
        gradient /= self.lengthscale
        return mean, variance, gradient[0], gradient[1].mul_(-2.0)

    def _residual(self, y: Tensor) -> Tensor:
        return y - self.prior_mean if self.prior_mean else y

    def _add_prior_mean(self, mean: Tensor) -> Tensor:
        return mean.add_(self.prior_mean) if self.prior_mean else mean

    def _queries(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Scaled points ``u``, and ``(-2u, |u|^2, 1)``: times a row of ``points`` it is ``r^2``."""
        scaled = (X - self.center).div_(self.lengthscale)
        queries = X.new_empty(len(X), self.dim + 2)
        torch.mul(scaled, -2.0, out=queries[:, : self.dim])
        torch.sum(scaled.square(), dim=-1, out=queries[:, self.dim])
        queries[:, self.dim + 1] = 1.0
        return scaled, queries

    def _augment(self, X: Tensor) -> Tensor:
        """Return rows of ``points``, entry by entry, so that a single row gets the same bits."""
        scaled = (X - self.center).div_(self.lengthscale)
        first, *others = scaled.square().unbind(-1)
        for column in others:
            first = first + column
        return torch.cat([scaled, torch.ones_like(scaled[:, :1]), first.unsqueeze(-1)], dim=-1)


@dataclass(frozen=True, eq=False)
class CachedPosterior:
    """A model's closed form and the state of the model to which it belongs.

    Attributes:
        closed_form: None if the model has none.
        inputs: The model's inputs, as the kernel sees them.
        targets: The model's outcomes.
        versions: How often ``inputs`` and ``targets`` had been changed in place.
        modules: The modules of :func:`parts_of`; none while the model has no copies of its own,
            which therefore cannot have been changed.
        stamps: One for each module.
    """

    closed_form: ClosedForm | None
    inputs: Tensor
    targets: Tensor
    versions: tuple[int, int]
    modules: tuple[Module, ...]
    stamps: tuple[ModuleStamp, ...]

    @classmethod
    def of(
        cls, model: SingleTaskGP, closed_form: ClosedForm | None, modules: tuple[Module, ...]
    ) -> CachedPosterior:
        """Tie a closed form to the present state of a model.

        Args:
            model: The model, which is not changed.
            closed_form: Its closed form.
            modules: Its modules from :func:`parts_of`, if it already has them.
        """
        inputs, targets = model.train_inputs[0], model.train_targets
        stamps = tuple(ModuleStamp(module) for module in modules)
        versions = (version(inputs), version(targets))
        return cls(closed_form, inputs, targets, versions, modules, stamps)

    def with_modules(self, modules: tuple[Module, ...]) -> CachedPosterior:
        """Return the same posterior for a model that has been given its modules.

        Args:
            modules: Its modules from :func:`parts_of`, with the hyperparameters of the closed form.
        """
        stamps = tuple(ModuleStamp(module) for module in modules)
        return replace(self, modules=modules, stamps=stamps)

    def is_current(self, model: SingleTaskGP) -> bool:
        """Return whether neither data nor hyperparameters of the model have changed since then."""
        inputs, targets = model.train_inputs[0], model.train_targets
        return (
            inputs is self.inputs
            and targets is self.targets
            and (version(inputs), version(targets)) == self.versions
            and (not self.modules or parts_of(model) == self.modules)
            and all(stamp.is_current() for stamp in self.stamps)
        )


def parts_of(model: SingleTaskGP) -> tuple[Module, ...]:
    """Return the modules that hold hyperparameters and the scale of outcomes.

    These are the kernel, the likelihood, the mean and, if there is one, the outcome transform. The
    input transform is not among them, because inputs are kept as the kernel sees them.
    """
    modules = model._modules  # quicker than the attributes
    parts = (modules["covar_module"], modules["likelihood"], modules["mean_module"])
    transform = modules.get("outcome_transform")
    return parts if transform is None else (*parts, transform)


class LeanPosterior(GPyTorchPosterior):
    """BoTorch's posterior of one output, from marginals that are already known.

    Analytic acquisition functions need only mean and variance; building a GPyTorch distribution
    would take longer than computing them. Sampling, quantiles and posterior transforms work as with
    any ``GPyTorchPosterior``.

    Args:
        mean: ``batch_shape x q``.
        variance: ``batch_shape x q``, with the observation noise if that was requested.
        covariance: Computes the ``batch_shape x q x q`` covariance; not needed at ``q = 1``.
    """

    def __init__(
        self, mean: Tensor, variance: Tensor, covariance: Callable[[], Tensor] | None = None
    ) -> None:
        """See the class."""
        self._marginal_mean = mean
        self._marginal_variance = variance
        self._covariance = covariance
        self._is_mt = False
        self._device = mean.device
        self._dtype = mean.dtype

    @cached_property
    def distribution(self) -> MultivariateNormal:
        """The joint distribution, built on first use."""
        if self._covariance is None:
            covariance = self._marginal_variance.unsqueeze(-1)
        else:
            covariance = self._covariance()
        return MultivariateNormal(self._marginal_mean, DenseLinearOperator(covariance))

    @property
    def mean(self) -> Tensor:
        """The posterior mean, ``batch_shape x q x 1``."""
        return self._marginal_mean.unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """The posterior variance, ``batch_shape x q x 1``."""
        return self._marginal_variance.unsqueeze(-1)

    @property
    def base_sample_shape(self) -> torch.Size:
        """The shape of the base samples of one sample, ``batch_shape x q``."""
        return self._marginal_mean.shape

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return sample_shape + self._marginal_mean.shape + torch.Size([1])

    def __getstate__(self) -> dict[str, Any]:
        """Keep the joint distribution, but not the model that would compute it."""
        if self._covariance is not None:
            _ = self.distribution
        return self.__dict__ | {"_covariance": None}


def marginals(
    closed_form: Any, X: Tensor, noise: float = 0.0, smallest: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return posterior mean and variance, ``b`` each, at ``b x d`` points.

    They have first derivatives in ``X``; asking for second derivatives raises a ``RuntimeError``.
    Variances below ``smallest`` are set to that value, without a gradient.

    Args:
        closed_form: The posterior, or that of replicates: points and moments are then of each.
        X: The points, as the kernel sees them.
        noise: Added to the variance.
        smallest: GPyTorch's ``min_variance`` times the prior variance if omitted; at prior variance
            1, this is the same as in GPyTorch.
    """
    lowest = smallest
    if lowest is None:
        lowest = settings.min_variance.value(X.dtype) * closed_form.outputscale
    if torch.is_grad_enabled() and X.requires_grad:
        return _Marginals.apply(X, closed_form, noise, lowest)
    mean, variance = closed_form.mean_and_variance(X)
    return mean, variance.add_(noise).clamp_min_(lowest)


class _Marginals(torch.autograd.Function):
    """Mean and variance, whose gradients are computed with the values at little extra cost."""

    @staticmethod
    def forward(
        ctx: Any, X: Tensor, closed_form: ClosedForm, noise: float, lowest: float
    ) -> tuple[Tensor, Tensor]:
        """Compute values and gradients, because both need the same products with the factor."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(X)
        mean, variance, *gradients = closed_form.value_and_gradient(X)
        variance.add_(noise)
        gradients[1].mul_((variance >= lowest).unsqueeze(-1))
        ctx.gradients = gradients
        return mean, variance.clamp_min_(lowest)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        """Chain the gradients with the outer ones, ``b`` each."""
        terms = [
            weight.unsqueeze(-1) * gradient
            for weight, gradient in zip(outer, ctx.gradients, strict=True)
            if weight is not None
        ]
        if not terms:
            return None, None, None, None
        total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        if torch.is_grad_enabled():  # the gradient itself may be differentiated
            total = _OnlyOnce.apply(total, *ctx.saved_tensors)
        return total, None, None, None


class _OnlyOnce(torch.autograd.Function):
    """Returns a gradient that would otherwise count as a constant, and cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, X: Tensor) -> Tensor:
        """Return the gradient as one that depends on ``X``."""
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tensor:
        """Raise an error."""
        raise RuntimeError(
            "this posterior can be differentiated only once, and this call asks for a second "
            "derivative. Inside botorch.settings.propagate_grads(True), the posterior comes from "
            "GPyTorch, which supports it."
        )
