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
from torch.nn.functional import pad

from botorch_bandits.core.kernels import KernelFunction

SMALLEST_PIVOT = 0.5
"""Smallest accepted squared pivot, in noise variances; in exact arithmetic none is below 1."""


class IndefiniteError(ValueError):
    """Rounding makes a kernel matrix indefinite, or a pivot too small to be trusted."""


@dataclass(frozen=True, eq=False)
class BoxPosterior:
    """An immutable posterior; see the module.

    Attributes:
        kernel: The prior covariance.
        X: ``n x d``, or ``*g x n x d`` if replicates have rows of their own.
        residuals: ``*g x n`` outcomes minus the prior mean.
        noise: ``*g``; the noise variance of a further observation.
        row_noise: ``*g x n``; the noise variances of the rows.
        prior_mean: ``*g``.
        coefficients: ``a``, ``*g x n``.
        W: ``*g x n x n``; the inverse Cholesky factor of the noisy covariance of the rows.
        transform: Turns the points that callers give into those that the kernel sees, row by row.
        memo: Results that others keep about the first rows; all posteriors that extend this one
            share it.
    """

    kernel: KernelFunction
    X: Tensor
    residuals: Tensor
    noise: Tensor
    row_noise: Tensor
    prior_mean: Tensor
    coefficients: Tensor
    W: Tensor
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
        row_noise: Tensor | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> BoxPosterior:
        """Condition on rows.

        Args:
            kernel: The prior covariance.
            X: ``n x d`` or ``*g x n x d`` inputs, transformed already; ``n`` may be 0.
            y: ``*g x n`` outcomes.
            noise: ``*g`` noise variances.
            prior_mean: ``*g``.
            row_noise: ``*g x n``; that of a further observation if omitted.
            transform: See the class.

        Raises:
            IndefiniteError: If a matrix cannot be factorized in float64.
        """
        with torch.no_grad():
            noise, prior_mean = (
                torch.as_tensor(each, dtype=X.dtype, device=X.device)
                for each in (noise, prior_mean)
            )
            if row_noise is None:
                row_noise = noise.unsqueeze(-1).expand(*noise.shape, X.shape[-2])
            matrix = kernel(X, X)  # *g x n x n
            matrix.diagonal(dim1=-2, dim2=-1).copy_(kernel.diagonal(X) + row_noise)
            W = _inverse_factor(matrix, row_noise, 0)
            start = cls(kernel, X, y, noise, row_noise, prior_mean, y, W, transform)
            return start.with_outcomes(y)

    @property
    def num_rows(self) -> int:
        """``n``."""
        return self.X.shape[-2]

    @property
    def pivots(self) -> Tensor:
        """``*g x n``; the standard deviations of predictions of each row from those before it."""
        return self.W.diagonal(dim1=-2, dim2=-1).reciprocal()

    @property
    def information_gain(self) -> Tensor:
        r"""``*g``; :math:`\frac12 \ln \det(I + \Lambda^{-1/2} K \Lambda^{-1/2})` in nats."""
        # ln det(K + Lambda) = 2 sum ln(pivot)
        return (self.pivots.log() - 0.5 * self.row_noise.log()).sum(-1).clamp_min(0.0)

    @cached_property
    def outputscale(self) -> float:
        """The prior variance; the largest one at the rows and the origin where it differs."""
        points = pad(self.X, (0, 0, 0, 1))
        return float(self.kernel.diagonal(points).amax())

    def predictions(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance, ``*g x n`` each, of each outcome given those before it.

        The variance includes the noise.
        """
        # y - E(y | before) = pivot (W (y - m))
        errors = (self.W @ self.residuals.unsqueeze(-1)).squeeze(-1) * self.pivots
        return self._shifted(self.residuals - errors), self.pivots.square()

    def with_outcomes(self, y: Tensor) -> BoxPosterior:
        """Return the posterior with other outcomes, ``*g x n``, in ``n^2`` operations."""
        residuals = y - self.prior_mean.unsqueeze(-1)
        return replace(self, residuals=residuals, coefficients=self.inverse_times(residuals))

    def with_rows(
        self, X: Tensor, y: Tensor | None, row_noise: Tensor | None = None
    ) -> BoxPosterior:
        """Return the posterior given further rows as well.

        Args:
            X: ``r x d`` or ``*g x r x d`` inputs.
            y: ``*g x r`` outcomes; None for their posterior means.
            row_noise: ``*g x r``; see :meth:`of`.

        Raises:
            IndefiniteError: If a matrix cannot be factorized in float64.
        """
        with torch.no_grad():
            if row_noise is None:
                row_noise = self.noise.unsqueeze(-1).expand(*self.noise.shape, X.shape[-2])
            cross = self.kernel(X, self.X)  # C, *g x r x n
            half = cross @ self.W.mT  # H
            # D + Lambda - H H', *g x r x r
            block = self.kernel(X, X) - half @ half.mT
            prior = self.kernel.diagonal(X) - half.square().sum(-1)
            block.diagonal(dim1=-2, dim2=-1).copy_(prior + row_noise)
            corner = _inverse_factor(block, row_noise, self.num_rows)  # R^-1
            rows = torch.cat([-(corner @ half @ self.W), corner], dim=-1)  # *g x r x (n + r)
            y = self._mean(cross) if y is None else y
            residuals = torch.cat([self.residuals, y - self.prior_mean.unsqueeze(-1)], dim=-1)
            # a = W' W (y - m): the old rows of W give the old coefficients
            added = (residuals.unsqueeze(-2) @ rows.mT @ rows).squeeze(-2)  # ... x *g x (n + r)
            added[..., : self.num_rows] += self.coefficients
            return replace(
                self,
                X=torch.cat([self.X, X], dim=-2),
                residuals=residuals,
                row_noise=torch.cat(
                    [self.row_noise, row_noise.expand(*self.row_noise.shape[:-1], -1)], dim=-1
                ),
                coefficients=added,
                W=torch.cat([pad(self.W, (0, X.shape[-2])), rows], dim=-2),
            )

    def select(self, index: Tensor | list[int] | int) -> BoxPosterior:
        """Return the posteriors of some replicates or of a single prior, by their numbers."""
        parts = ("residuals", "noise", "row_noise", "prior_mean", "coefficients", "W")
        return replace(
            self,
            **{name: vars(self)[name][index] for name in parts},
            kernel=self.kernel.select(index),
            X=self.X[index] if self.X.dim() > 2 else self.X,
        )

    def moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance, ``*g x b`` each, differentiable once in the points.

        Rounding may make a variance negative.

        Args:
            X: ``b x d`` points, or ``*g x b x d`` for replicates.
        """
        points = self._seen(X)
        values = self.kernel(points, self.X)  # *g x b x n
        explained = (values @ self.W.mT).square().sum(-1)  # *g x b
        return self._mean(values), self.kernel.diagonal(points) - explained

    def mean(self, X: Tensor) -> Tensor:
        """Return the mean alone, ``*g x b``, in ``b n`` operations; see :meth:`moments`."""
        return self._mean(self.kernel(self._seen(X), self.X))

    def mean_and_covariance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return joint moments, differentiable in the points.

        Args:
            X: ``... x q x d`` points, for posteriors of the same rows.

        Returns:
            ``... x *g x q`` and ``... x *g x q x q``.
        """
        points = self._seen(X)
        # all points in one matrix, because batches of points would each get a copy of the factors
        values = self.kernel(points.flatten(0, -2), self.X)
        shape = points.shape[:-1]
        mean = self._mean(values).unflatten(-1, shape)
        half = (values @ self.W.mT).unflatten(-2, shape)  # *g x ... x q x n
        batch, t = half.dim() - len(shape) - 1, len(shape) - 1
        for _ in range(t):  # the dimensions of the points go in front of *g
            mean, half = mean.movedim(batch + t - 1, 0), half.movedim(batch + t - 1, 0)
        covariance = self.kernel(points, points)
        covariance = covariance.sub_(half @ half.mT)  # in place: it may be the largest matrix
        variance = self.kernel.diagonal(points) - half.square().sum(-1)
        covariance.diagonal(dim1=-2, dim2=-1).copy_(variance.clamp_min(0.0))
        return mean, covariance

    def inverse_times(self, residuals: Tensor) -> Tensor:
        r"""Return :math:`(K + \Lambda)^{-1} r = W^\top W r` for ``*g x n`` numbers."""
        return (residuals.unsqueeze(-2) @ self.W.mT @ self.W).squeeze(-2)

    def _seen(self, X: Tensor) -> Tensor:
        return X if self.transform is None else self.transform(X)

    def _mean(self, values: Tensor) -> Tensor:
        return self._shifted((values @ self.coefficients.unsqueeze(-1)).squeeze(-1))

    def _shifted(self, values: Tensor) -> Tensor:
        return values + self.prior_mean.unsqueeze(-1)


def _inverse_factor(matrix: Tensor, noise: Tensor, num_before: int) -> Tensor:
    """Return the inverse Cholesky factor of ``*g x r x r`` noisy covariances given earlier rows."""
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
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return torch.linalg.solve_triangular(factor, identity.expand_as(factor), upper=False)
