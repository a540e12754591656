r"""The posterior of a Gaussian process on any points, in values and slopes.

With ``n`` rows of noise variances :math:`\lambda_i`, prior mean :math:`m` and
:math:`K + \Lambda = L L^\top`, it keeps the inverse factor :math:`W = L^{-1}`:

.. math::
   \ell(x) = W k(x), \qquad a = W^\top W (y - m), \qquad
   \mu(x) = m + k(x)^\top a, \qquad \sigma^2(x) = k(x, x) - \|\ell(x)\|^2.

Values at ``b`` points cost ``b n^2`` operations. All of it is differentiable in the points by
autograd, which needs one vector-Jacobian product of the kernel values:

.. math::
   \nabla \mu = \sum_j a_j \nabla k(x, x_j), \qquad
   \nabla \sigma^2 = \nabla k(x, x) - 2 \sum_j (W^\top \ell(x))_j \nabla k(x, x_j).

**More rows** add rows to ``W``, ``2 n^2`` operations each; existing ones never change. With the
covariances :math:`C` of the new rows with the old ones and :math:`D` among each other,

.. math::
   H = C W^\top, \qquad D + \Lambda - H H^\top = R R^\top, \qquad
   W_{\text{new}} = \left( -R^{-1} H W, \; R^{-1} \right).

The inverse of :math:`K + \Lambda` itself is never formed: its products lose twice as many digits.

**Batches.** ``*g`` is a batch of priors, as with :class:`~botorch_bandits.core.kernels.KernelList`,
or of replicates with rows of their own; it may be empty. Posteriors that differ only in
their outcomes, such as those of outputs that share a prior, share ``W``.

Source: Rasmussen and Williams 2006, algorithm 2.1; for ``W``, the inverse of a bordered matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.core.kernels import (
    KernelFunction,
    Pullback,
    differentiable_values,
    only_once,
)

SMALLEST_PIVOT = 0.5
"""Smallest accepted squared pivot, in noise variances; in exact arithmetic none is below 1."""

CHUNK_ENTRIES = 2**17
"""Kernel values computed at a time without gradients: larger ones leave a processor's cache."""

SMALL_MATRIX = 256
"""Matrices of more rows are factorized one after the other, so that only one needs work space."""

SMALL_TRIANGLE = 64
"""Triangles of up to this many rows are inverted at once, larger ones by their quarters."""


class IndefiniteError(ValueError):
    """Rounding makes a kernel matrix indefinite, or a pivot too small to be trusted."""


@dataclass(eq=False)
class _Memory:
    """``*g x capacity x capacity`` numbers, of which the first rows are those of ``W``."""

    numbers: Tensor
    num_written: int

    def with_room(self, num_rows: int, num_more: int) -> _Memory:
        """Return memory whose first ``num_rows`` rows are these and that has room for more.

        Only the newest factor may write to the memory that it shares with those before it.
        """
        capacity = self.numbers.shape[-1]
        if self.num_written == num_rows and num_rows + num_more <= capacity:
            return self
        # a quarter more costs 4 n^2 copied numbers a row, and at most 1.6 n^2 in memory
        capacity = num_rows + num_more + num_rows // 4 + 8
        numbers = self.numbers.new_zeros(*self.numbers.shape[:-2], capacity, capacity)
        numbers[..., :num_rows, :num_rows] = self.numbers[..., :num_rows, :num_rows]
        return _Memory(numbers, num_rows)


@dataclass(frozen=True, eq=False)
class BoxPosterior:
    """An immutable posterior; see the module.

    Attributes:
        kernel: The prior covariance.
        X: ``n x d``, or ``*g x n x d`` if replicates have rows of their own.
        residuals: ``*g x n`` outcomes minus the prior mean.
        noise: ``*g``; the noise variance of a row of weight 1, and of a further observation.
        weights: ``n``; row ``i`` has the noise variance ``noise / weights[i]``. None if all are 1.
        prior_mean: ``*g``.
        coefficients: ``a``, ``*g x n``.
        transform: Turns the points that callers give into those that the kernel sees, row by row.
        memo: Results that others keep about the first rows; all posteriors that extend this one
            share it.
    """

    kernel: KernelFunction
    X: Tensor
    residuals: Tensor
    noise: Tensor
    weights: Tensor | None
    prior_mean: Tensor
    coefficients: Tensor
    _memory: _Memory
    transform: Callable[[Tensor], Tensor] | None = None
    memo: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        kernel: KernelFunction,
        X: Tensor,
        y: Tensor,
        noise: Tensor | float,
        prior_mean: Tensor | float = 0.0,
        weights: Tensor | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> BoxPosterior:
        """Condition on rows.

        Args:
            kernel: The prior covariance.
            X: ``n x d`` or ``*g x n x d`` inputs; ``n`` may be 0.
            y: ``*g x n`` outcomes.
            noise: ``*g`` noise variances.
            prior_mean: ``*g``.
            weights: See the class.
            transform: See the class; ``X`` is transformed already.

        Raises:
            IndefiniteError: If a matrix cannot be factorized in float64.
        """
        with torch.no_grad():
            noise, prior_mean = (
                torch.as_tensor(each, dtype=X.dtype, device=X.device)
                for each in (noise, prior_mean)
            )
            matrix = kernel.values(X, kernel.prepared(X))  # *g x n x n
            row_noise = _noise_of_rows(noise, weights, X)
            matrix.diagonal(dim1=-2, dim2=-1).copy_(kernel.diagonal(X) + row_noise)
            memory = _Memory(_inverted(_cholesky(matrix, row_noise, 0)), X.shape[-2])
            start = cls(kernel, X, y, noise, weights, prior_mean, y, memory, transform)
            return start.with_outcomes(y)

    @property
    def num_rows(self) -> int:
        """``n``."""
        return self.X.shape[-2]

    @property
    def W(self) -> Tensor:
        """``*g x n x n``; the inverse Cholesky factor of the noisy covariance of the rows."""
        n = self.num_rows
        return self._memory.numbers[..., :n, :n]

    @cached_property
    def _rows(self) -> Any:
        return self.kernel.prepared(self.X)

    @cached_property
    def pivots(self) -> Tensor:
        """``*g x n``; the standard deviations of predictions of each row from those before it."""
        return self.W.diagonal(dim1=-2, dim2=-1).reciprocal()

    @property
    def row_noise(self) -> Tensor:
        """``*g x n``; the noise variances of the rows."""
        return _noise_of_rows(self.noise, self.weights, self.X)

    @property
    def information_gain(self) -> Tensor:
        r"""``*g``; :math:`\frac12 \ln \det(I + \Lambda^{-1/2} K \Lambda^{-1/2})` in nats."""
        return (self.pivots.log() - 0.5 * self.row_noise.log()).sum(-1).clamp_min(0.0)

    @cached_property
    def outputscale(self) -> float:
        """The prior variance; the largest one at the rows and the origin where it differs."""
        points = torch.nn.functional.pad(self.X, (0, 0, 0, 1))
        return float(self.kernel.diagonal(points).amax())

    def predictions(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance, ``*g x n`` each, of each outcome given those before it.

        The variance includes the noise.
        """
        errors = (self.W @ self.residuals.unsqueeze(-1)).squeeze(-1) * self.pivots
        return self._shifted(self.residuals - errors), self.pivots.square()

    def with_outcomes(self, y: Tensor) -> BoxPosterior:
        """Return the posterior with other outcomes, ``*g x n``, in ``n^2`` operations."""
        residuals = y - self.prior_mean.unsqueeze(-1)
        # a = W' (W (y - m)), as rows: ... x *g x 1 x n
        coefficients = (residuals.unsqueeze(-2) @ self.W.mT @ self.W).squeeze(-2)
        return replace(self, residuals=residuals, coefficients=coefficients)

    def with_rows(self, X: Tensor, y: Tensor | None, weights: Tensor | None = None) -> BoxPosterior:
        """Return the posterior given further rows as well.

        Args:
            X: ``r x d`` or ``*g x r x d`` inputs.
            y: ``*g x r`` outcomes; None for their posterior means.
            weights: ``r``; see :meth:`of`.

        Raises:
            IndefiniteError: If a matrix cannot be factorized in float64.
        """
        with torch.no_grad():
            cross = self.kernel.values(X, self._rows)  # *g x r x n
            half = cross @ self.W.mT
            block = self.kernel.values(X, self.kernel.prepared(X)) - half @ half.mT  # *g x r x r
            noise = _noise_of_rows(self.noise, weights, X)  # *g x r
            prior = self.kernel.diagonal(X) - half.square().sum(-1)
            block.diagonal(dim1=-2, dim2=-1).copy_(prior + noise)
            corner = _inverted(_cholesky(block, noise, self.num_rows))
            n, r = self.num_rows, X.shape[-2]
            memory = self._memory.with_room(n, r)
            rows = memory.numbers[..., n : n + r, : n + r]
            rows[..., :n] = (corner @ half @ self.W).neg_()
            rows[..., n:] = corner
            memory.num_written = n + r
            if y is None:
                y = self._mean(cross)
            new = y - self.prior_mean.unsqueeze(-1)
            residuals = torch.cat([self.residuals, new], dim=-1)
            # a = W' W (y - m): the old rows of W give the old coefficients
            added = residuals.unsqueeze(-2) @ rows.mT @ rows  # ... x *g x 1 x (n + r)
            added[..., :n] += self.coefficients.unsqueeze(-2)
            return replace(
                self,
                X=torch.cat([self.X, X], dim=-2),
                residuals=residuals,
                weights=_joined(self.weights, weights, n, residuals),
                coefficients=added.squeeze(-2),
                _memory=memory,
            )

    def with_coefficients(self, coefficients: Tensor) -> BoxPosterior:
        """Return the same posterior with another mean, ``m + k(x)' a``; ``*g x n``."""
        return replace(self, coefficients=coefficients)

    def select(self, index: Tensor | list[int] | int) -> BoxPosterior:
        """Return the posteriors of some replicates or of a single prior, by their numbers."""
        return replace(
            self,
            kernel=self.kernel.select(index),
            X=self.X[index] if self.X.dim() > 2 else self.X,
            residuals=self.residuals[index],
            noise=self.noise[index],
            prior_mean=self.prior_mean[index],
            coefficients=self.coefficients[index],
            _memory=_Memory(self.W[index], self.num_rows),
        )

    def shares_factor_with(self, other: BoxPosterior) -> bool:
        """Return whether another posterior differs from this one only in its outcomes."""
        return self._memory is other._memory and self.num_rows == other.num_rows

    def kernel_values(self, X: Tensor) -> tuple[Tensor, Pullback]:
        """Return the kernel values with the rows, and their vector-Jacobian product.

        Args:
            X: ``b x d`` points, or ``*g x b x d`` for replicates.

        Returns:
            ``*g x b x n`` values, and a function from derivatives in them to those in the points.
        """
        with torch.enable_grad():
            X = X.detach().requires_grad_(self.transform is not None)
            points = self._seen(X)
        values, pullback = self.kernel.values_and_pullback(points.detach(), self._rows)
        if not points.requires_grad:
            return values, pullback

        def to_raw(outer: Tensor) -> Tensor:
            return torch.autograd.grad(points, X, pullback(outer), retain_graph=True)[0]

        return values, to_raw

    def prior_covariance(self, X: Tensor | None = None) -> Tensor:
        """Return the prior covariances of the rows, or of other points as the kernel sees them.

        Args:
            X: ``*g x n x d``; the rows if omitted.

        Returns:
            ``*g x n x n``, symmetric up to rounding, without noise.
        """
        X = self.X if X is None else X
        matrix = self.kernel.values(X, self.kernel.prepared(X))
        matrix.diagonal(dim1=-2, dim2=-1).copy_(self.kernel.diagonal(X))
        return matrix

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance, ``*g x b`` each, differentiable once in the points.

        Rounding may make a variance negative.

        Args:
            X: ``b x d`` points, or ``*g x b x d`` for replicates.
        """
        points = self._seen(X)
        if torch.is_grad_enabled() and points.requires_grad:
            mean, reduction = _Moments.apply(points, self)
        else:
            values = self.kernel.values(points, self._rows)  # *g x b x n
            mean, reduction = self._mean(values), self.solve(values).square_().sum(-1)
        return mean, self.kernel.diagonal(points) - reduction

    def mean(self, X: Tensor) -> Tensor:
        """Return the mean alone, ``*g x b``, in ``b n`` operations; see :meth:`moments`."""
        with torch.no_grad():
            return self._mean(self.kernel.values(self._seen(X), self._rows))

    def mean_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean alone, ``b``, and its gradient, ``b x d``, in ``b n`` operations."""
        with torch.no_grad():
            values, pullback = self.kernel_values(X)
            return self._mean(values), pullback(self.coefficients.expand_as(values))

    def mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same as :meth:`moments` without gradients, the variance at least 0."""
        with torch.no_grad():
            entries = max(1, self.coefficients.numel()) * (len(X) if X.dim() > 2 else 1)
            parts = [self.moments(part) for part in X.split(max(1, CHUNK_ENTRIES // entries), -2)]
        means, variances = zip(*parts, strict=True)
        return torch.cat(means, dim=-1), torch.cat(variances, dim=-1).clamp_min_(0.0)

    def mean_and_covariance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return joint moments, differentiable in the points.

        Args:
            X: ``... x q x d`` points, for posteriors of the same rows.

        Returns:
            ``... x *g x q`` and ``... x *g x q x q``.
        """
        points = self._seen(X)
        # all points in one matrix, because batches of points would each get a copy of the factors
        values = differentiable_values(self.kernel, points.reshape(-1, points.shape[-1]), self.X)
        shape = points.shape[:-1]
        mean = self._mean(values).unflatten(-1, shape)
        half = self.solve(values).unflatten(-2, shape)  # *g x ... x q x n
        batch, t = half.dim() - len(shape) - 1, len(shape) - 1
        for _ in range(t):  # the dimensions of the points go in front of *g
            mean, half = mean.movedim(batch + t - 1, 0), half.movedim(batch + t - 1, 0)
        covariance = differentiable_values(self.kernel, points, points)
        covariance = covariance.sub_(half @ half.mT)  # in place: it may be the largest matrix
        variance = self.kernel.diagonal(points) - half.square().sum(-1)
        covariance.diagonal(dim1=-2, dim2=-1).copy_(variance.clamp_min(0.0))
        return mean, covariance

    def solve(self, values: Tensor) -> Tensor:
        """Return ``W k`` for ``*g x b x n`` kernel values, as rows."""
        return values @ self.W.mT

    def inverse_times(self, residuals: Tensor) -> Tensor:
        r"""Return :math:`(K + \Lambda)^{-1} r` for ``*g x n`` numbers."""
        return (residuals.unsqueeze(-2) @ self.W.mT @ self.W).squeeze(-2)

    def _seen(self, X: Tensor) -> Tensor:
        return X if self.transform is None else self.transform(X)

    def _mean(self, values: Tensor) -> Tensor:
        return self._shifted((values @ self.coefficients.unsqueeze(-1)).squeeze(-1))

    def _shifted(self, values: Tensor) -> Tensor:
        return values + self.prior_mean.unsqueeze(-1)


class _Moments(torch.autograd.Function):
    """The mean and the reduction of the variance, whose gradients are one pullback together."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, posterior: BoxPosterior) -> tuple[Tensor, Tensor]:
        """Return ``*g x b`` each."""
        ctx.save_for_backward(points)
        values, ctx.pullback = posterior.kernel.values_and_pullback(points, posterior._rows)
        ctx.posterior, ctx.half = posterior, posterior.solve(values)
        return posterior._mean(values), ctx.half.square().sum(-1)

    @staticmethod
    def backward(ctx: Any, of_mean: Tensor, of_reduction: Tensor) -> tuple[Tensor, None]:
        """Chain the derivatives in the kernel values, ``a`` and ``2 W' W k``."""
        posterior = ctx.posterior
        with torch.no_grad():
            outer = (2.0 * of_reduction.unsqueeze(-1)) * (ctx.half @ posterior.W)
            outer.addcmul_(of_mean.unsqueeze(-1), posterior.coefficients.unsqueeze(-2))
            gradient = ctx.pullback(outer)
        return only_once(gradient, *ctx.saved_tensors, of_mean, of_reduction), None


def _noise_of_rows(noise: Tensor, weights: Tensor | None, X: Tensor) -> Tensor:
    """Return the noise variances of ``n x d`` or ``*g x n x d`` rows, ``*g x n``."""
    each = noise.unsqueeze(-1)
    return each.expand(*each.shape[:-1], X.shape[-2]) if weights is None else each / weights


def _joined(
    first: Tensor | None, more: Tensor | None, num_first: int, like: Tensor
) -> Tensor | None:
    """Return the weights of all rows, from those of the first ones and of the others."""
    if first is None and more is None:
        return None
    weights = like.new_ones(like.shape[-1])
    weights[:num_first] = 1.0 if first is None else first
    weights[num_first:] = 1.0 if more is None else more
    return weights


def _cholesky(matrix: Tensor, noise: Tensor, num_before: int) -> Tensor:
    """Return the Cholesky factor of ``*g x r x r`` noisy covariances given the rows before."""
    factor, info = torch.linalg.cholesky_ex(matrix)
    squared = factor.diagonal(dim1=-2, dim2=-1).square()  # *g x r
    is_lost = (info != 0) | ~(squared >= SMALLEST_PIVOT * noise).all(-1)
    if bool(is_lost.any()):
        which = f" of entry {int(is_lost.int().argmax())} of the batch" if is_lost.dim() else ""
        raise IndefiniteError(
            f"noise is as small as {float(noise.min()):g}: the kernel matrix{which} cannot be "
            f"factorized with {num_before + matrix.shape[-1]} rows in float64. Model a larger "
            "noise variance."
        )
    return factor


def _inverted(factor: Tensor) -> Tensor:
    """Return the inverse of ``... x n x n`` lower triangular matrices, which it overwrites.

    Solving for the unit matrix would do three times the work, because it does not exploit that the
    result is triangular.
    """
    n = factor.shape[-1]
    if n <= SMALL_TRIANGLE:
        eye = torch.eye(n, dtype=factor.dtype, device=factor.device).expand_as(factor)
        return factor.copy_(torch.linalg.solve_triangular(factor, eye, upper=False))
    half = n // 2
    first, last = _inverted(factor[..., :half, :half]), _inverted(factor[..., half:, half:])
    factor[..., half:, :half] = -(last @ factor[..., half:, :half] @ first)
    return factor
