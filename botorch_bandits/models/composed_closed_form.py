r"""The closed form of posteriors with composed kernels, or with noise that differs between rows.

A single stationary kernel with one noise variance is handled by
:mod:`botorch_bandits.models.closed_form`; the formulas and the factor are the same.

**Noise of rows.** If row ``i`` has the noise variance :math:`\lambda_i`, choose any :math:`\lambda`
and :math:`w_i = \sqrt{\lambda / \lambda_i}`: the kernel :math:`w_i w_j k(x_i, x_j)`, the outcomes
:math:`w_i (y_i - m)` and the single noise variance :math:`\lambda` give the same posterior and the
same information gain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from botorch.models import SingleTaskGP
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from torch import Tensor
from torch.nn import Module

from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models.closed_form import ClosedForm, InverseFactor, parts_of
from botorch_bandits.models.composed_kernels import ComposedKernel, QueryRows
from botorch_bandits.models.likelihoods import RepeatedGaussianLikelihood


@dataclass(frozen=True, eq=False)
class ComposedClosedForm(ClosedForm):
    """A :class:`ClosedForm` with a composed kernel, and with noise that may differ between rows.

    Attributes:
        composed: The kernel. ``kernel`` only says how smooth it is and what its variance is, and
            ``lengthscale`` is 1.
        has_weights: Whether rows have weights ``w``, which are then the last column of ``points``;
            the other columns are those of :meth:`ComposedKernel.augment`.
    """

    composed: ComposedKernel | None = None
    has_weights: bool = False

    @classmethod
    def of_rows(
        cls,
        composed: ComposedKernel,
        noise: float,
        X: Tensor,
        y: Tensor,
        prior_mean: float = 0.0,
        weights: Tensor | None = None,
    ) -> ComposedClosedForm | None:
        """Return the posterior given outcomes ``y`` (``n``) at ``X`` (``n x d``), ``n >= 1``.

        Args:
            composed: The kernel.
            noise: The noise variance of a row of weight 1.
            X: The inputs.
            y: The outcomes.
            prior_mean: The prior mean, the same at all points.
            weights: ``n`` positive numbers ``w``: row ``i`` has the noise variance ``noise / w^2``.

        Returns:
            None if the noisy kernel matrix cannot be factorized in float64.
        """
        composed = composed.to(X)
        nothing = X.new_empty(0)
        start = cls(
            kernel=StationaryKernel(composed.smoothness, X.new_ones(1), composed.outputscale),
            lengthscale=X.new_ones(1),
            noise=noise,
            outputscale=float(composed.outputscale),
            center=X[0].clone(),
            points=X.new_empty(0, composed.width + 1),
            outcomes=nothing,
            factor=InverseFactor.empty(X),
            weights=nothing,
            full_weights=nothing,
            prior_mean=prior_mean,
            composed=composed,
            has_weights=weights is not None,
        )
        return start.with_rows(X, y) if weights is None else start._with_weighted(X, y, weights)

    def with_rows(self, X: Tensor, y: Tensor) -> Self | None:
        """Return the posterior given ``r x d`` further inputs of weight 1 and their outcomes.

        Returns:
            None if the larger matrix cannot be factorized in float64.
        """
        points = self._augmented(X, torch.ones_like(y))
        return self._with_points(torch.cat([self.points, points]), self._residual(y))

    def _with_weighted(self, X: Tensor, y: Tensor, weights: Tensor) -> Self | None:
        """Return the posterior of the first rows, factorized at once: weights change all rows."""
        points = self._augmented(X, weights)
        _, matrix = self._covariance(points, 0, len(points))
        factor = InverseFactor.of_matrix(matrix, self.noise)
        if factor is None:
            return None
        first = replace(self, points=points, factor=factor)
        return first.with_outcomes(y)

    def _augmented(self, X: Tensor, weights: Tensor) -> Tensor:
        return torch.cat([self._kernel.augment(X - self.center), weights.unsqueeze(-1)], dim=-1)

    def with_outcomes(self, y: Tensor) -> Self:
        """Return the posterior with all ``n`` outcomes replaced, in ``n^2`` operations."""
        outcomes = self._residual(y) * self._row_weights
        weights, full_weights = self.factor.weights(outcomes)
        return replace(self, outcomes=outcomes, weights=weights, full_weights=full_weights)

    def of_inputs_in_units(self, side: Tensor, origin: Tensor) -> Self:
        composed = self._kernel.of_inputs_in_units(side)
        return replace(self, composed=composed, center=origin + side * self.center)

    def covariance(self, X: Tensor) -> Tensor:
        """Return the posterior covariance, ``... x q x q``, among ``... x q x d`` points."""
        X = X.detach()
        flat = X.reshape(-1, self.dim)
        cross = self._cross(self._kernel.queries(flat - self.center), len(flat))
        solved = self.factor.solve(cross).reshape(*X.shape[:-1], self.num_rows)
        covariance = self._kernel.matrix(X)
        covariance = covariance - solved @ solved.mT
        variance = (self.outputscale - solved.square().sum(-1)).clamp_min_(0.0)
        covariance.diagonal(dim1=-2, dim2=-1).copy_(variance)
        return covariance

    def mean(self, X: Tensor) -> Tensor:
        values = self._cross(self._kernel.queries(X.detach() - self.center), len(X))
        return self._add_prior_mean(values @ self.weights)

    def mean_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        X = X.detach()
        queries = self._kernel.queries(X - self.center)
        values, slopes = self._kernel.values_and_slopes(queries, self.points, len(X))
        weights = self.coefficients
        (gradient,) = self._gradients(X, queries, slopes, weights.expand(1, len(X), -1))
        return self._add_prior_mean(values @ weights), gradient

    @property
    def coefficients(self) -> Tensor:
        return self.weights * self._row_weights if self.has_weights else self.weights

    def with_coefficients(self, coefficients: Tensor) -> Self:
        return replace(self, weights=coefficients / self._row_weights)

    def solve(self, residual: Tensor) -> Tensor:
        return self.factor.weights(residual * self._row_weights)[0] * self._row_weights

    @property
    def row_weights(self) -> Tensor | None:
        return self._row_weights if self.has_weights else None

    def kernel_values(self, X: Tensor) -> tuple[Tensor, Any]:
        """See the base class; the weights of rows are left out."""
        queries = self._kernel.queries(X.detach() - self.center)
        values, slopes = self._kernel.values_and_slopes(queries, self.points, len(X))
        return values, (queries, slopes)

    def kernel_gradients(self, X: Tensor, seen: Any, outer: Tensor) -> Tensor:
        queries, slopes = seen
        return self._gradients(X, queries, slopes, outer.unsqueeze(0))[0]

    def _hyperparameters(self) -> list[Any]:
        found: list[Any] = [self.center.tolist()]
        for part in self._kernel.parts:
            found += [part.kernel.smoothness, part.kernel.outputscale.tolist()]
            found += [part.columns, part.lengthscale.tolist()]
        return found

    @property
    def _kernel(self) -> ComposedKernel:
        assert self.composed is not None
        return self.composed

    @property
    def _row_weights(self) -> Tensor:
        return self.points[:, -1]

    def _covariance(self, points: Tensor, start: int, end: int) -> tuple[Tensor, Tensor]:
        """See :data:`~botorch_bandits.models.closed_form.CovarianceBlock`."""
        new = points[start:end]
        queries = self._kernel.queries_of_augmented(new)
        values, _ = self._kernel.values(queries, points[:end], len(new))
        values[:, start:].diagonal().fill_(self.outputscale)
        if self.has_weights:
            values *= new[:, -1:]
            values *= points[:end, -1]
        block = values[:, start:].contiguous()
        block.diagonal().add_(self.noise)
        return values[:, :start].contiguous(), block

    def _prior_variances(self, points: Tensor) -> Tensor:
        variances = super()._prior_variances(points)
        return variances * points[:, -1].square() if self.has_weights else variances

    def _cross(self, queries: list[QueryRows], num_queries: int) -> Tensor:
        """Kernel values with the rows, multiplied by the weights of these."""
        values, _ = self._kernel.values(queries, self.points, num_queries)
        return values.mul_(self._row_weights) if self.has_weights else values

    def _mean_and_variance(self, X: Tensor) -> tuple[Tensor, Tensor]:
        values = self._cross(self._kernel.queries(X - self.center), len(X))
        solved = self.factor.solve(values)
        variance = torch.rsub(solved.square_().sum(-1), self.outputscale).clamp_min_(0.0)
        return self._add_prior_mean(values @ self.weights), variance

    def _value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        queries = self._kernel.queries(X - self.center)
        values, slopes = self._kernel.values_and_slopes(queries, self.points, len(X))
        if self.has_weights:
            values.mul_(self._row_weights)
        mean = self._add_prior_mean(values @ self.weights)
        solved = self.factor.solve(values)
        outer = values.new_empty(2, *values.shape)
        outer[0] = self.coefficients
        self.factor.solve_transposed(solved, out=outer[1])
        if self.has_weights:
            outer[1].mul_(self._row_weights)
        variance = torch.rsub(solved.square_().sum(-1), self.outputscale).clamp_min_(0.0)
        of_mean, of_variance = self._gradients(X, queries, slopes, outer)
        return mean, variance, of_mean, of_variance.mul_(-2.0)

    def _gradients(
        self, X: Tensor, queries: list[QueryRows], slopes: list[Tensor], outer: Tensor
    ) -> Tensor:
        """Return the gradients of sums of kernel values, ``k x b x d``.

        Args:
            X: ``b x d`` points.
            queries: The points, as each part sees them.
            slopes: The slopes of each part.
            outer: ``k x b x n``; the factors of the kernel values in ``k`` sums.
        """
        gradient = X.new_zeros(len(outer), *X.shape)
        for part, query, slope in zip(self._kernel.parts, queries, slopes, strict=True):
            # sum_j c_j h_j (x - x_j): all sums are one matrix product
            dim = len(part.columns)
            rows = self._kernel.of_part(self.points, part)[:, : dim + 1]
            sums = (outer * slope).reshape(-1, self.num_rows) @ rows
            sums = sums.reshape(len(outer), len(X), dim + 1)
            share = torch.addcmul(-sums[..., :dim], sums[..., dim:], query.scaled)
            share /= part.lengthscale
            if isinstance(part.place, slice):
                gradient[..., part.place] += share
            else:  # a column may occur twice
                gradient.index_add_(-1, torch.tensor(part.columns, device=X.device), share)
        return gradient


class Noise(NamedTuple):
    """The noise variances of the rows of a model, ``level / weights^2``.

    Attributes:
        level: The noise variance of a row of weight 1, and of a further observation.
        weights: ``n``; None if all are 1.
    """

    level: float
    weights: Tensor | None = None


def read_noise(likelihood: Module, num_rows: int) -> Noise | None:
    """Return the noise of a model's rows in the model's own units, if it is known.

    Args:
        likelihood: The likelihood of the model.
        num_rows: The number of its rows.

    Returns:
        None unless the noise is Gaussian with one variance for all rows, one variance divided by a
        number of repeats, or a fixed variance for each row.
    """
    module: Any = likelihood
    if type(likelihood) is GaussianLikelihood:
        return Noise(module.noise.detach().item()) if module.noise.numel() == 1 else None
    if type(likelihood) is RepeatedGaussianLikelihood:
        repeats = module.repeats
        if repeats.shape != (num_rows,) or module.noise.numel() != 1:
            return None
        return Noise(module.noise.detach().item(), repeats.sqrt())
    if type(likelihood) is FixedNoiseGaussianLikelihood:
        levels = module.noise_covar.noise
        if module.second_noise_covar is not None or levels.shape != (num_rows,):
            return None
        level = levels.mean().item()
        return Noise(level, (level / levels).sqrt())
    return None


def composed_form_of(
    model: SingleTaskGP, y: Tensor, prior_mean: float, unit: float
) -> ComposedClosedForm | None:
    """Factorize the kernel matrix of a model for which :func:`can_be_composed` is true.

    Args:
        model: The model, with the inputs that its kernel sees.
        y: ``n`` raw outcomes.
        prior_mean: In raw outcome units.
        unit: The unit of the model's outcomes, in raw outcome units.

    Returns:
        The posterior in raw outcomes; None if the matrix cannot be factorized in float64.
    """
    inputs = model.train_inputs[0]
    composed = ComposedKernel.read(model.covar_module, inputs.shape[-1])
    noise = read_noise(model.likelihood, len(y))
    assert composed is not None
    assert noise is not None
    if unit != 1.0:
        composed = composed.scaled_by(unit**2)
    level = noise.level * unit**2
    return ComposedClosedForm.of_rows(composed, level, inputs, y, prior_mean, noise.weights)


def can_be_composed(model: SingleTaskGP) -> bool:
    """Return whether the kernel and the noise of a model without batches can be read.

    Args:
        model: A model with at least one row.
    """
    inputs, (kernel, likelihood, *_) = model.train_inputs[0], parts_of(model)
    if read_noise(likelihood, len(inputs)) is None:
        return False
    return ComposedKernel.read(kernel, inputs.shape[-1]) is not None
