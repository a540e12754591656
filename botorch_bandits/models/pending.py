r"""The posterior given pending points, from the joint posterior of any model with Gaussian moments.

With ``S`` the posterior covariance of the function, ``P`` the pending points and ``N`` the diagonal
of the observation variances there, both in posterior units,

.. math:: \operatorname{var}(x \mid P) = S_{xx} - S_{xP} (S_{PP} + N)^{-1} S_{Px}.

This equals the result of conditioning on outcomes at the posterior mean, but needs no conditioning:
a joint posterior of several points is enough. It therefore works for models of several tasks,
variational models, deterministic ensembles and user-defined models. If there are several outputs,
they are conditioned on all outputs at ``P`` before they are combined into one. The members of a
mixture are conditioned one by one.

The same algebra gives the posterior of each of ``q`` points given the points before it. With the
Cholesky factor :math:`L L^\top = S + N` of the points, in blocks with one row and column per
output,

.. math:: \operatorname{cov}(x_i \mid x_{<i}) = S_{ii} - \sum_{j<i} L_{ij} L_{ij}^\top.

Source: Desautels, Krause and Burdick, *Parallelizing exploration-exploitation tradeoffs in Gaussian
process bandit optimization*, JMLR 2014, for the effect of pending points on the variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior, PosteriorList, TransformedPosterior
from botorch.posteriors.ensemble import EnsemblePosterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from botorch.utils.transforms import is_ensemble
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from linear_operator.operators import DenseLinearOperator
from linear_operator.utils.cholesky import psd_safe_cholesky
from torch import Tensor

SMALLEST_NOISE = 1e-10
"""The smallest observation noise, as a share of the largest posterior variance."""


@dataclass(frozen=True, eq=False)
class JointMoments:
    """Mean and covariance of all outputs at several points.

    Attributes:
        mean: ``batch_shape x n x m``.
        covariance: ``batch_shape x n x m x n x m``.
        is_mixture: Whether the last batch dimension holds the members of a mixture.
    """

    mean: Tensor
    covariance: Tensor
    is_mixture: bool

    @classmethod
    def of(cls, posterior: Posterior, name: str) -> JointMoments:
        """Read the joint posterior of several points.

        Args:
            posterior: A BoTorch posterior; for a finite ensemble, the mean and covariance of its
                members are used.
            name: The name of the model, for error messages.

        Raises:
            UnsupportedError: If it has no Gaussian moments, or does not provide their covariances.
        """
        if isinstance(posterior, PosteriorList):
            return cls._of_independent([cls.of(each, name) for each in posterior.posteriors])
        if isinstance(posterior, TransformedPosterior):
            raise UnsupportedError(
                f"the outcome transform of {name} is not affine (Log, Power and Bilog are not), so "
                "its posterior is not Gaussian, and points cannot be conditioned on one another "
                "in it. Use Standardize or no outcome transform and transform the outcomes "
                "yourself, or ask for one point at a time of an exact Gaussian process such as "
                "SingleTaskGP (sequential=True in optimize_acqf)."
            )
        if isinstance(posterior, EnsemblePosterior):
            return cls(posterior.mean, _covariance_of_ensemble(posterior), False)
        if not isinstance(posterior, GPyTorchPosterior) or isinstance(
            posterior, MultitaskGPPosterior
        ):
            raise UnsupportedError(
                f"{name} gives a {type(posterior).__name__}, which holds no joint covariance of "
                "points and outputs, so points cannot be conditioned on one another in it. Use a "
                "model with a GPyTorchPosterior (SingleTaskGP, MultiTaskGP, ModelListGP), or leave "
                "X_pending out and ask for one point at a time."
            )
        mean, distribution = posterior.mean, posterior.distribution
        *batch_shape, n, m = mean.shape
        covariance = distribution.covariance_matrix
        if isinstance(distribution, MultitaskMultivariateNormal) and not distribution._interleaved:
            covariance = covariance.reshape(*covariance.shape[:-2], m, n, m, n)
            covariance = covariance.transpose(-4, -3).transpose(-2, -1)
        else:
            covariance = covariance.reshape(*covariance.shape[:-2], n, m, n, m)
        covariance = covariance.expand(*batch_shape, n, m, n, m)
        return cls(mean, covariance, isinstance(posterior, GaussianMixturePosterior))

    @classmethod
    def _of_independent(cls, parts: list[JointMoments]) -> JointMoments:
        batch_shape = torch.broadcast_shapes(*(part.mean.shape[:-2] for part in parts))
        n = parts[0].mean.shape[-2]
        mean = torch.cat([part.mean.expand(*batch_shape, n, -1) for part in parts], dim=-1)
        m = mean.shape[-1]
        covariance = mean.new_zeros(*batch_shape, n, m, n, m)
        start = 0
        for part in parts:
            end = start + part.mean.shape[-1]
            covariance[..., start:end, :, start:end] = part.covariance
            start = end
        return cls(mean, covariance, any(part.is_mixture for part in parts))

    @property
    def variance(self) -> Tensor:
        """``batch_shape x n x m`` variances of the points, each on its own."""
        flat = self.flat
        return flat.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)

    @property
    def flat(self) -> Tensor:
        """The covariance as ``batch_shape x n m x n m``, the outputs of a point being adjacent."""
        size = self.mean.shape[-2] * self.mean.shape[-1]
        return self.covariance.reshape(*self.mean.shape[:-2], size, size)

    def given(self, count: int, noise: Tensor) -> JointMoments:
        """Return the moments of the other points if outcomes at the first ones equal their means.

        Args:
            count: The number of first points.
            noise: ``batch_shape x count x m`` observation variances at these points.
        """
        size = count * self.mean.shape[-1]
        flat = self.flat
        factor = _factor(flat[..., :size, :size], noise)
        solved = torch.linalg.solve_triangular(factor, flat[..., :size, size:], upper=False)
        left = flat[..., size:, size:] - solved.mT @ solved
        mean = self.mean[..., count:, :]
        return JointMoments(mean, left.reshape(*mean.shape, *mean.shape[-2:]), self.is_mixture)

    def moved(self, count: int, noise: Tensor, away: Tensor) -> Tensor:
        """Return the change of the expectations at the other points, ``... x (n - count) x m``.

        Args:
            count: The number of first points.
            noise: ``batch_shape x count x m`` observation variances at these points.
            away: ``batch_shape x count x m``; the differences of the outcomes at the first points
                from their means.
        """
        size = count * self.mean.shape[-1]
        factor = _factor(self.flat[..., :size, :size], noise)
        solved = torch.cholesky_solve(away.flatten(-2).unsqueeze(-1), factor)
        moved = self.flat[..., size:, :size] @ solved
        return moved.reshape(*moved.shape[:-2], -1, self.mean.shape[-1])

    def one_by_one(self, noise: Tensor, values: Tensor | None = None) -> JointMoments:
        """Return the moments of the outputs at each point, given outcomes at the points before it.

        Args:
            noise: ``batch_shape x n x m`` observation variances.
            values: ``m`` outcomes, the same at each point; the posterior mean of each if omitted.

        Returns:
            ``batch_shape x n`` moments of one point each.
        """
        n, m = self.mean.shape[-2:]
        factor = _factor(self.flat, noise)
        mean = self.mean
        if values is not None:
            mean = mean + before(factor, values - mean)
        left = _strictly_lower(factor, m)
        left = left.reshape(*left.shape[:-2], n, m, n * m)
        own = self.covariance.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
        covariance = own - left @ left.mT
        return JointMoments(
            mean.unsqueeze(-2), covariance.unsqueeze(-2).unsqueeze(-4), self.is_mixture
        )

    def deviations_ahead(self, count: int, noise: Tensor, added: Tensor | float = 0.0) -> Tensor:
        """Return deviations at all points, given outcomes at more and more of the first points.

        Args:
            count: The number of first points.
            noise: ``batch_shape x count x m`` observation variances at these points.
            added: Added to all variances; broadcasts against ``batch_shape x n x m``.

        Returns:
            ``batch_shape x n x m x count``: given outcomes at none of these points, at one, at two
            and so on.
        """
        m = self.mean.shape[-1]
        flat = self.flat
        factor = _factor(flat[..., : count * m, : count * m], noise)
        solved = torch.linalg.solve_triangular(factor, flat[..., : count * m, :], upper=False)
        each = solved.square().mT.reshape(*self.mean.shape, count, m).sum(-1)
        explained = each.cumsum(-1) - each
        variance = (self.variance + added).unsqueeze(-1) - explained
        return variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()

    def selected(self, member: int | None) -> JointMoments:
        """Return the moments of one member of a mixture, or all moments if the member is None.

        Args:
            member: The number of the member.
        """
        if member is None:
            return self
        return JointMoments(self.mean.select(-3, member), self.covariance.select(-5, member), False)

    def posterior(self) -> GPyTorchPosterior:
        """Return BoTorch's posterior with these moments."""
        flat = self.flat
        variance = flat.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)  # rounding errors
        covariance = DenseLinearOperator(flat.diagonal_scatter(variance, dim1=-2, dim2=-1))
        if self.mean.shape[-1] == 1:
            distribution = MultivariateNormal(self.mean.squeeze(-1), covariance)
        else:
            distribution = MultitaskMultivariateNormal(self.mean, covariance, interleaved=True)
        kind = GaussianMixturePosterior if self.is_mixture else GPyTorchPosterior
        return kind(distribution)

    def with_noise(self, noise: Tensor) -> JointMoments:
        """Return the moments of noisy outcomes.

        Args:
            noise: ``batch_shape x n x m`` observation variances.
        """
        size = self.mean.shape[-2] * self.mean.shape[-1]
        levels = noise.expand(self.mean.shape).reshape(*self.mean.shape[:-2], size)
        covariance = self.covariance + torch.diag_embed(levels).reshape(self.covariance.shape)
        return JointMoments(self.mean, covariance, self.is_mixture)


def _covariance_of_ensemble(posterior: EnsemblePosterior) -> Tensor:
    """Return the covariance that matches BoTorch's ensemble variance, ``... x n x m x n x m``."""
    away = posterior.values - posterior.mean.unsqueeze(-3)  # ``... x members x n x m``
    if away.shape[-3] == 1:
        return torch.einsum("...snm,...skl->...nmkl", away, away)
    weights = posterior.weights
    total = torch.einsum("s,...snm,...skl->...nmkl", weights, away, away)
    return total / (1.0 - weights.square().sum())


def _factor(covariance: Tensor, noise: Tensor) -> Tensor:
    """Return the Cholesky factor of covariance plus noise, ``batch_shape x s x s``."""
    diagonal = covariance.detach().diagonal(dim1=-2, dim2=-1)
    least = (SMALLEST_NOISE * diagonal.amax(-1, keepdim=True)).clamp_min(
        torch.finfo(covariance.dtype).tiny
    )
    levels = torch.maximum(noise.flatten(-2), least)
    factor: Tensor = psd_safe_cholesky(covariance + torch.diag_embed(levels))
    return factor


def _strictly_lower(factor: Tensor, m: int) -> Tensor:
    """Return a Cholesky factor without the blocks on its diagonal, ``m`` rows and columns each."""
    index = torch.arange(factor.shape[-1], device=factor.device) // m
    return torch.where(index.unsqueeze(-1) > index, factor, 0.0)


def before(factor: Tensor, differences: Tensor) -> Tensor:
    r"""Return how differences at the points before each point change its expectation.

    That is :math:`S_{i,<i} (S_{<i,<i} + N)^{-1} d_{<i}`, for all points at once.

    Args:
        factor: ``batch_shape x n m x n m``, the Cholesky factor of covariance plus noise.
        differences: ``batch_shape x n x m`` outcomes less their means.
    """
    flat = differences.flatten(-2).unsqueeze(-1)
    solved = torch.linalg.solve_triangular(factor, flat, upper=False)
    moved = _strictly_lower(factor, differences.shape[-1]) @ solved
    return moved.squeeze(-1).reshape(*moved.shape[:-2], *differences.shape[-2:])


def factor_of(moments: JointMoments, noise: Tensor) -> Tensor:
    """Return the Cholesky factor of covariance plus noise, ``batch_shape x n m x n m``.

    Args:
        moments: The moments of several points.
        noise: ``batch_shape x n x m`` observation variances.
    """
    return _factor(moments.flat, noise)


def read_moments(model: Model, X: Tensor) -> JointMoments:
    """Return the joint moments of a model's outputs at several points.

    Args:
        model: Any model; it is not changed.
        X: ``batch_shape x n x d`` points in raw inputs.

    Raises:
        UnsupportedError: If the posterior has no joint Gaussian moments, or not one row per point.
    """
    name = type(model).__name__
    moments = JointMoments.of(model.posterior(X), name)
    if moments.mean.shape[-2] != X.shape[-2]:
        raise UnsupportedError(
            f"{name} gives {moments.mean.shape[-2]} posterior rows for {X.shape[-2]} points, as "
            "models with InputPerturbation or AppendFeatures do, and then points cannot be "
            "conditioned on one another. Leave X_pending out and ask for one point at a time."
        )
    return moments


def read_noise(model: Model, X: Tensor) -> Tensor:
    """Return the variances that a model assigns to the noise of outcomes at some points.

    They are what ``observation_noise=True`` adds to BoTorch's posterior, in raw outcome units: the
    noise of the likelihood, by task if it differs between tasks; the mean of ``train_Yvar`` (of
    each task) if the noise of each row is given; 0 for models without noise.

    Args:
        model: Any model; it is not changed.
        X: ``batch_shape x n x d`` points in raw inputs.

    Returns:
        ``batch_shape x n x m``.

    Raises:
        UnsupportedError: If the model rejects ``observation_noise=True``.
    """
    name = type(model).__name__
    with torch.no_grad():
        try:
            noisy = model.posterior(X, observation_noise=True)
        except (NotImplementedError, UnsupportedError, TypeError) as error:
            raise UnsupportedError(
                f"{name} does not say how noisy an outcome is, which pending points need: its "
                f"posterior rejects observation_noise=True ({error}). Give the model a likelihood, "
                "or leave X_pending out."
            ) from error
        latent = model.posterior(X)
        difference = JointMoments.of(noisy, name).variance - JointMoments.of(latent, name).variance
    if not bool(difference.isfinite().all()):
        raise UnsupportedError(
            f"{name} gives outcomes a noise variance of {float(difference.min())}: it has no rows, "
            "or none of a task, whose mean noise it could use. Give it a likelihood with a noise "
            "of its own, or leave X_pending out."
        )
    return difference.clamp_min(0.0)


class PendingModel(Model):
    """A model with pending points, whose outcomes count as known to equal the posterior mean.

    The mean is unchanged and the covariance shrinks; see the module. The model itself is neither
    conditioned nor changed.

    Args:
        model: Any model whose posterior has Gaussian moments.
        X: ``n x d`` pending points in raw inputs.

    Raises:
        UnsupportedError: If the model's posterior has no joint Gaussian moments.
    """

    pending_points: Tensor
    pending_noise: Tensor

    def __init__(self, model: Model, X: Tensor) -> None:
        """See the class."""
        super().__init__()
        self.base = model
        with torch.no_grad():
            read_moments(model, X)  # raises now any error that it would raise later
        self.register_buffer("pending_points", X.detach().clone(), persistent=False)
        self.register_buffer("pending_noise", read_noise(model, X), persistent=False)
        self._is_ensemble = is_ensemble(model)
        self._is_fully_bayesian = getattr(model, "_is_fully_bayesian", False)

    @property
    def num_outputs(self) -> int:
        """The number of outputs of the model."""
        return int(self.base.num_outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the model."""
        return self.base.batch_shape

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Return the posterior given the pending points; see BoTorch.

        Args:
            X: ``batch_shape x q x d`` points in raw inputs.
            output_indices: The outputs; all if omitted.
            observation_noise: Whether to add the noise variance, or a tensor of variances.
            posterior_transform: Applied to the posterior, after conditioning.
        """
        pending = self.pending_points
        both = torch.cat([pending.expand(*X.shape[:-2], *pending.shape), X], dim=-2)
        moments = read_moments(self.base, both).given(len(pending), self.pending_noise)
        if isinstance(observation_noise, Tensor):
            moments = moments.with_noise(observation_noise)
        elif observation_noise:
            moments = moments.with_noise(read_noise(self.base, X))
        return _finished(moments, X, output_indices, posterior_transform)


class OneByOneModel(Model):
    """The posteriors of ``q`` points, each given the points before it, as of ``q`` single points.

    Args:
        model: Any model whose posterior has Gaussian moments; it already includes pending points.
        X: ``batch_shape x q x d`` points in raw inputs.
        noise: ``batch_shape x q x m`` observation variances there; those of the model if omitted.
        values: ``m`` outcomes that each point has for the points after it; the posterior mean if
            omitted.

    Attributes:
        points: ``batch_shape x q x 1 x d``; the points of its posterior. For a batched model, the
            model's batch dimensions follow ``q``.
        num_points: ``q``.
        inputs: ``batch_shape x q x d``; the points as the model sees them.
        moments: The joint moments.
        noise: The observation variances.

    Raises:
        UnsupportedError: If the posterior has no joint Gaussian moments.
    """

    def __init__(
        self,
        model: Model,
        X: Tensor,
        noise: Tensor | None = None,
        values: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__()
        self.num_points = X.shape[-2]
        self._is_ensemble = is_ensemble(model)
        self._is_fully_bayesian = getattr(model, "_is_fully_bayesian", False)
        self._num_outputs, self._batch_shape = model.num_outputs, shape_of_batch(model)
        depth = 0 if self._is_ensemble else len(self._batch_shape)
        if depth:
            X = X.expand(*torch.broadcast_shapes(X.shape[:-2], self._batch_shape), *X.shape[-2:])
        self.inputs = X
        self.points = X.movedim(-2, -2 - depth).unsqueeze(-2)
        self.moments = read_moments(model, X)
        self.noise = read_noise(model, X) if noise is None else noise
        each = self.moments.one_by_one(self.noise, values)
        depth = len(self._batch_shape)
        self._each = JointMoments(
            each.mean.movedim(-3, -3 - depth),
            each.covariance.movedim(-5, -5 - depth),
            each.is_mixture,
        )
        noise_of_each = self.noise.expand(self.moments.mean.shape).unsqueeze(-2)
        self._noise_of_each = noise_of_each.movedim(-3, -3 - depth)

    @property
    def num_outputs(self) -> int:
        """The number of outputs of the model."""
        return int(self._num_outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the model."""
        return self._batch_shape

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Return the posterior of each point; see BoTorch.

        Args:
            X: :attr:`points`, possibly with their batch dimensions flattened into one.
            output_indices: The outputs; all if omitted.
            observation_noise: Whether to add the noise variance.
            posterior_transform: Applied to the posterior, after conditioning.

        Raises:
            ValueError: If ``X`` contains other points.
        """
        if X.numel() != self.points.numel():
            raise ValueError(
                f"X has shape {tuple(X.shape)}, but this posterior covers only the points of shape "
                f"{tuple(self.points.shape)}."
            )
        moments = self._each.with_noise(self._noise_of_each) if observation_noise else self._each
        if X.shape != self.points.shape:
            m = moments.mean.shape[-1]
            members = self._batch_shape if self._is_ensemble else ()
            shape = (*X.shape[:-2], *members, 1, m)
            moments = JointMoments(
                moments.mean.reshape(shape),
                moments.covariance.reshape(*shape, 1, m),
                moments.is_mixture,
            )
        return _finished(moments, X, output_indices, posterior_transform)


def shape_of_batch(model: Model) -> torch.Size:
    """Return the batch shape of a model; empty if the model states none, as in BoTorch.

    Args:
        model: Any model.
    """
    try:
        return model.batch_shape or torch.Size()
    except NotImplementedError:
        return torch.Size()


def _finished(
    moments: JointMoments,
    X: Tensor,
    output_indices: list[int] | None,
    posterior_transform: PosteriorTransform | None,
) -> Posterior:
    if output_indices is not None:
        covariance = moments.covariance[..., output_indices][..., output_indices, :, :]
        moments = JointMoments(moments.mean[..., output_indices], covariance, moments.is_mixture)
    posterior: Any = moments.posterior()
    if posterior_transform is not None:
        posterior = posterior_transform(posterior=posterior, X=X)
    found: Posterior = posterior
    return found
