r"""The posterior of a stationary Gaussian process in closed form, outside autograd.

With the constant prior mean :math:`m`, :math:`a = (K + \lambda I)^{-1} (y - m)`,
:math:`\ell(x) = L^{-1} k(x)` and :math:`b(x) = L^{-\top} \ell(x)`,

.. math::
   \mu(x) = m + k(x)^\top a, \qquad \sigma^2(x) = k(x, x) - \|\ell(x)\|^2, \qquad
   \nabla \mu = \sum_j a_j \nabla k(x, x_j), \qquad
   \nabla \sigma^2 = -2 \sum_j b_j \nabla k(x, x_j).

``n`` rows, ``b`` points: values cost ``b n^2`` operations and gradients as much again; one row more
costs ``2 n^2``.

Source: Rasmussen and Williams 2006, algorithm 2.1, with the gradients worked out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bandits.models.inverse_factor import InverseFactor
from botorch_bandits.models.stationary_kernel import StationaryKernel

CHUNK_ENTRIES = 2**17
"""Kernel values computed at a time: larger temporaries leave the processor's cache."""


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """What is known of the reward function after ``n >= 1`` rows; a value, never changed.

    Attributes:
        kernel: With unit lengthscale: inputs are scaled first.
        lengthscale: ``d`` lengthscales, or one for all dimensions.
        noise: The noise variance ``lam``.
        outputscale: The prior variance.
        centre: ``d``, the first input. Distances from it lose fewer digits than from the origin.
        points: ``n x (d + 2)``: scaled inputs, ones, squared norms.
        outcomes: ``n``, less the prior mean.
        factor: The inverse Cholesky factor of ``K + lam I``.
        weights: ``a``, ``n``.
        full_weights: The part of ``a`` that later rows leave as it is.
        prior_mean: ``m``, the same at all points.
    """

    kernel: StationaryKernel
    lengthscale: Tensor
    noise: float
    outputscale: float
    centre: Tensor
    points: Tensor
    outcomes: Tensor
    factor: InverseFactor
    weights: Tensor
    full_weights: Tensor
    prior_mean: float = 0.0

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
            None if ``K + lam I`` cannot be factorised in float64.
        """
        unit = StationaryKernel(
            kernel.smoothness, X.new_ones(1), kernel.outputscale.to(X, copy=True)
        )
        nothing = X.new_empty(0)
        start = cls(
            kernel=unit,
            lengthscale=kernel.lengthscale.to(X, copy=True),
            noise=noise,
            outputscale=float(kernel.outputscale),
            centre=X[0].clone(),
            points=X.new_empty(0, X.shape[1] + 2),
            outcomes=nothing,
            factor=InverseFactor.empty(X),
            weights=nothing,
            full_weights=nothing,
            prior_mean=prior_mean,
        )
        return start.with_rows(X, y)

    @property
    def num_rows(self) -> int:
        """``n``."""
        return self.factor.num_rows

    @property
    def dim(self) -> int:
        """``d``."""
        return len(self.centre)

    @property
    def information_gain(self) -> Tensor:
        """``1/2 ln det(I + K / lam)`` in nats, a scalar."""
        return self.factor.information_gain(self.noise)

    def with_rows(self, X: Tensor, y: Tensor) -> ClosedForm | None:
        """Return the posterior given ``r x d`` further inputs and their ``r`` outcomes.

        Returns:
            None if the larger matrix cannot be factorised in float64.
        """
        points = torch.cat([self.points, self._augment(X)])
        dim = self.dim

        def covariance(start: int, end: int) -> tuple[Tensor, Tensor]:
            new = points[start:end]
            queries = torch.cat([-2.0 * new[:, :dim], new[:, dim + 1 :], new[:, dim : dim + 1]], 1)
            diagonal = self.outputscale + self.noise
            if end == start + 1:
                cross, _ = self.kernel.of_augmented(queries, points[:start], with_slope=False)
                return cross, cross.new_full((1, 1), diagonal)
            values, _ = self.kernel.of_augmented(queries, points[:end], with_slope=False)
            block = values[:, start:].contiguous()
            block.diagonal().fill_(diagonal)
            return values[:, :start].contiguous(), block

        factor = self.factor.extended(len(points), covariance, self.noise)
        if factor is None:
            return None
        outcomes = torch.cat([self.outcomes, self._residual(y)])
        weights, full_weights = factor.weights(outcomes, self.full_weights)
        return replace(
            self,
            points=points,
            outcomes=outcomes,
            factor=factor,
            weights=weights,
            full_weights=full_weights,
        )

    def with_outcomes(self, y: Tensor) -> ClosedForm:
        """Return the posterior with all ``n`` outcomes replaced; ``n^2`` operations."""
        outcomes = self._residual(y)
        weights, full_weights = self.factor.weights(outcomes)
        return replace(self, outcomes=outcomes, weights=weights, full_weights=full_weights)

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
            variance (``b x d``). Where rounding makes the variance negative it is 0.
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
        # sum_j c_j h_j (x - x_j): both sums for both functions are one matrix product
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
        scaled = (X - self.centre).div_(self.lengthscale)
        queries = X.new_empty(len(X), self.dim + 2)
        torch.mul(scaled, -2.0, out=queries[:, : self.dim])
        torch.sum(scaled.square(), dim=-1, out=queries[:, self.dim])
        queries[:, self.dim + 1] = 1.0
        return scaled, queries

    def _augment(self, X: Tensor) -> Tensor:
        """The rows of ``points``; entry by entry, so that one row alone gets the same bits."""
        scaled = (X - self.centre).div_(self.lengthscale)
        first, *others = scaled.square().unbind(-1)
        for column in others:
            first = first + column
        return torch.cat([scaled, torch.ones_like(scaled[:, :1]), first.unsqueeze(-1)], dim=-1)
