r"""Reads and conditions any BoTorch model: rows, units, moments, pending points, pseudo-outcomes.

BoTorch's models differ in the units, shapes and transforms that they expect, and only this module
depends on these differences. A user's model is never changed: conditioning returns a new model with
the same hyperparameters and outcome statistics.

**Outcomes.** A model with an outcome transform answers in raw outcomes. With ``Standardize``, they
are Gaussian. With any other transform they are not: such a model is rejected when an acquisition
function is constructed, so that no value is wrong or not a number.

**Several points.** With ``S`` the posterior covariance of the function, ``P`` the pending points
and ``N`` the diagonal of the observation variances there, both in posterior units,

.. math:: \operatorname{var}(x \mid P) = S_{xx} - S_{xP} (S_{PP} + N)^{-1} S_{Px}.

This equals the result of conditioning on outcomes at the posterior mean, but a joint posterior of
several points is enough. It therefore works for models of several tasks, variational models,
deterministic ensembles and user-defined models. If there are several outputs, they are conditioned
on all outputs at ``P`` before they are combined into one. The members of a mixture are conditioned
one by one.

The posterior of each of ``q`` points given the points before it follows from the same identity.
With the Cholesky factor :math:`L L^\top = S + N` of the points, in blocks with one row and column
per output, and outcomes ``y`` there,

.. math::
   \operatorname{cov}(x_i \mid x_{<i}) = S_{ii} - \sum_{j<i} L_{ij} L_{ij}^\top, \qquad
   \operatorname{E}(x_i \mid y_{<i}) = \mu_i + \sum_{j<i} L_{ij} \bigl(L^{-1} (y - \mu)\bigr)_j .

Source: Desautels, Krause and Burdick, *Parallelizing exploration-exploitation tradeoffs in Gaussian
process bandit optimization*, JMLR 2014, for the effect of pending points on the variance.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import HigherOrderGP
from botorch.models.gpytorch import BatchedMultiOutputGPyTorchModel, GPyTorchModel
from botorch.models.model import Model, ModelList
from botorch.models.model_list_gp_regression import ModelListGP
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Standardize
from botorch.models.utils.assorted import fantasize
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.ensemble import EnsemblePosterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from botorch.utils.transforms import is_ensemble
from gpytorch import settings
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from linear_operator.operators import DenseLinearOperator
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE, check_double, check_nonnegative
from botorch_bandits.confidence.prior_reading import (
    UnreadablePriorError,
    has_tasks,
    insert_task,
    is_of_output_task,
    outcome_units,
    part_of,
    read_prior,
)
from botorch_bandits.core.priors import cholesky

# --- parts and devices ----------------------------------------------------------------------------


def submodels(model: Model) -> tuple[Model, ...]:
    """Return the models of a list, or the model itself.

    Args:
        model: Any model; lists in lists are flattened.
    """
    if not isinstance(model, ModelList):
        return (model,)
    return tuple(each for part in model.models for each in submodels(part))


def shape_of_batch(model: Model) -> torch.Size:
    """Return the batch shape of a model; empty if the model states none, as in BoTorch.

    Args:
        model: Any model.
    """
    try:
        return model.batch_shape or torch.Size()
    except NotImplementedError:
        return torch.Size()


def on_device_of(model: Model, moved: Any) -> Any:
    """Return a tensor, or a posterior transform (in place, as in BoTorch), on a model's device.

    Args:
        model: The model.
        moved: The tensor or the transform of its posterior, or None.
    """
    like = next(model.parameters(), None)
    return moved if moved is None or like is None else moved.to(like.device)


def move_the_rest(module: Module, move: Callable[[Tensor], Tensor]) -> None:
    """Complete the move of a module to another device.

    GPyTorch's models keep cached predictions on the old device, and BoTorch's models keep their
    untransformed inputs there. The former are dropped, and the latter are moved.

    Args:
        module: The module, such as an acquisition function, that contains the models.
        move: The function that has moved its parameters and buffers.
    """
    for model in module.modules():
        if isinstance(model, ExactGP):
            model.prediction_strategy = None
            if "_original_train_inputs" in vars(model):
                model._original_train_inputs = move(model._original_train_inputs)


# --- rows and their units -------------------------------------------------------------------------


def _raw_inputs(model: Model) -> Tensor | None:
    """Return the raw inputs of a model without a column of tasks, ``batch_shape x n x d``.

    Returns:
        None if the model shows none, or several sets of them.
    """
    inputs = part_of(model, "train_inputs")
    if inputs is None or len(inputs) != 1:
        return None
    # in evaluation mode, BoTorch keeps transformed inputs and stores the raw ones separately
    original = None if model.training else part_of(model, "_original_train_inputs")
    X: Tensor = (inputs[0] if original is None else original).detach()
    if not has_tasks(model):
        return X
    column = model._task_feature
    return torch.cat([X[..., :column], X[..., column + 1 :]], dim=-1)


def _is_of_output(model: Model) -> Tensor | slice:
    """Return which rows of a model belong to its output: those of its task, if it predicts one."""
    is_one = has_tasks(model) and model.num_outputs == 1
    return is_of_output_task(model) if is_one else slice(None)


def observed_inputs(model: Model) -> Tensor | None:
    """Return the raw inputs that a model holds, ``n x d``.

    Args:
        model: Any model. If parts, members or batches have different rows, all are listed.

    Returns:
        None if the model does not show them.
    """
    shown: list[Tensor] = []
    for part in submodels(model):
        X = _raw_inputs(part)
        if X is None:
            return None
        shown += X[..., _is_of_output(part), :].unsqueeze(0).flatten(0, -3)  # n x d each
    are_same = all(torch.equal(X, shown[0]) for X in shown)
    return shown[0] if are_same else torch.cat(shown)


def count_columns(model: Model) -> int | None:
    """Return the number of columns of a model's raw inputs; for ``MultiTaskGP``, without the task.

    Args:
        model: Any model. For a list, the number on which all parts agree.

    Returns:
        None if that cannot be determined: the model does not show its rows, or its ``posterior`` or
        an input transform takes points with other columns than these.
    """
    counts = {_count_columns(part) for part in submodels(model)}
    return counts.pop() if len(counts) == 1 else None


def _count_columns(model: Model) -> int | None:
    # a user's class may take points with other columns than its rows
    kind = type(model)
    for method in (kind.posterior, kind.transform_inputs):
        if not method.__module__.startswith(("botorch.", __package__)):
            return None
    transform = part_of(model, "input_transform")
    parts = [] if transform is None else transform.modules()
    if any(part_of(part, "transform_on_train") is False for part in parts):
        return None  # it may add columns to points
    X = _raw_inputs(model)
    return None if X is None else X.shape[-1]


def observed_outcomes(model: Model) -> tuple[Tensor, ...] | None:
    """Return the outcomes that a model holds, in raw units: one vector per output.

    Returns:
        None if the model does not show them or its outcome transform cannot be inverted. Members
        and batches are listed one after another.
    """
    found: list[Tensor] = []
    for part in submodels(model):
        own = part_of(part, "train_targets")  # batch_shape x (m) x n
        has_rows = isinstance(part, BatchedMultiOutputGPyTorchModel) or part.num_outputs == 1
        if own is None or not has_rows:  # the targets of several tasks have other shapes
            return None
        own = own.detach()[..., _is_of_output(part)]
        Y = own.unsqueeze(-1) if part.num_outputs == 1 else own.mT
        transform = part_of(part, "outcome_transform")
        try:
            Y = Y if transform is None else transform.untransform(Y)[0]
        except (NotImplementedError, TypeError, ValueError):
            return None
        found += [column.reshape(-1) for column in Y.unbind(-1)]
    return tuple(found)


def prior_means(model: Model) -> tuple[Tensor, ...] | None:
    """Return the prior mean of each output at the model's rows (or at the origin), in raw units.

    Args:
        model: Any model; it is not changed.

    Returns:
        One vector per output; None if the model has no mean function that can be read.
    """
    X = observed_inputs(model)
    is_exact = all(isinstance(part, ExactGP) for part in submodels(model))
    if X is None or not is_exact:
        return None
    points = X if len(X) else X.new_zeros(1, X.shape[-1])
    with torch.no_grad(), settings.prior_mode(True):
        mean = model.posterior(points).mean  # batch_shape x n x m
    return tuple(column.reshape(-1) for column in mean.unbind(-1))


# --- what is supported ----------------------------------------------------------------------------


def check_model(model: Model) -> Model:
    """Return ``model`` if its numbers are finite and all of them are float64.

    Bounds of constraints do not count: GPyTorch keeps them in float32 in some models, and they are
    only used during a fit.

    Raises:
        TypeError: If a parameter, buffer, training input or target is not float64.
        ValueError: If a training target is not finite.
        UnsupportedError: If its outcomes are tensors, or it has an outcome transform that is not
            affine.
    """
    for each in submodels(model):
        name, targets = type(each).__name__, part_of(each, "train_targets")
        state = (*each.named_parameters(), *each.named_buffers())
        held = [tensor for key, tensor in state if not key.endswith("_bound")]
        for tensor in (*held, *(part_of(each, "train_inputs") or ()), targets):
            if tensor is not None and tensor.is_floating_point() and tensor.dtype != DTYPE:
                raise TypeError(
                    f"model ({name}) holds {tensor.dtype} numbers, but float64 is needed. Build it "
                    "from train_X.double() and train_Y.double()."
                )
        if isinstance(each, HigherOrderGP):
            raise UnsupportedError(
                f"model is a {name}, whose outcomes are tensors; acquisition functions of this "
                "package need one column per output. Use a ModelListGP of SingleTaskGPs, one for "
                "each number that matters."
            )
        transform = part_of(each, "outcome_transform")
        parts = [] if transform is None else list(transform.modules())
        if not all(isinstance(part, Standardize | ChainedOutcomeTransform) for part in parts):
            kind = " of ".join(type(part).__name__ for part in parts)
            raise UnsupportedError(
                f"model ({name}) has the outcome transform {kind}, with which outcomes may not "
                "be Gaussian. Use Standardize or no outcome transform. To use another transform, "
                "apply it to train_Y and maximize the transformed outcome: if it is increasing, "
                "the best points are the same."
            )
        if targets is not None and not bool(targets.isfinite().all()):
            is_lost = ~targets.isfinite().reshape(-1, targets.shape[-1]).all(0)
            raise ValueError(
                f"train_Y of model ({name}) is infinite or not a number in these rows: "
                f"{', '.join(map(str, is_lost.nonzero().squeeze(-1).tolist()))}. Leave them out."
            )
    return model


# --- variances ------------------------------------------------------------------------------------

LEAST_VARIANCE = 1e-60
"""Smaller posterior variances count as this, so that bounds have gradients.

It is in squared outcome units, which may be as small as 1e-24.
"""


def variance_of(posterior: Posterior) -> Tensor:
    """Return posterior variances, without the limit of GPyTorch.

    GPyTorch raises every variance to at least 1e-10 in squared outcome units, which may be more
    than all variances of outcomes in a small unit.

    Args:
        posterior: The posterior of any model.
    """
    with settings.min_variance(double_value=0.0):
        return posterior.variance.clamp_min(LEAST_VARIANCE)


def moments_of_outputs(model: Model, X: Tensor, with_noise: bool = False) -> tuple[Tensor, Tensor]:
    """Return posterior means and standard deviations of all outputs, without gradients.

    Args:
        model: Any model.
        X: ``batch_shape x q x d`` points in raw inputs.
        with_noise: Whether the deviations are those of outcomes, noise included.

    Returns:
        ``batch_shape x q x m`` each, in raw outcome units.
    """
    with torch.no_grad():
        posterior = model.posterior(X, observation_noise=with_noise)
        return posterior.mean, variance_of(posterior).sqrt()


def prior_variances_of_outputs(model: Model) -> Tensor | None:
    """Return the prior variances in raw units, ``batch_shape x 1 x m``; None if unreadable."""
    try:
        priors = read_prior(model)
    except UnreadablePriorError:
        return None
    parts = torch.broadcast_tensors(*(prior.standard_deviation.detach() for prior in priors))
    return torch.stack(parts, dim=-1).square().unsqueeze(-2)


# --- several points at once -----------------------------------------------------------------------

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
    is_mixture: bool = False

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
        if isinstance(posterior, EnsemblePosterior):
            away, weights = posterior.values - posterior.mean.unsqueeze(-3), posterior.weights
            # BoTorch's unbiased variance; a single member is nowhere away from its mean
            share = (1.0 - weights.square().sum()).clamp_min(torch.finfo(DTYPE).tiny)
            covariance = torch.einsum("k,...kim,...kjl->...imjl", weights / share, away, away)
            return cls(posterior.mean, covariance)
        is_joint = not isinstance(posterior, MultitaskGPPosterior)
        if not (is_joint and isinstance(posterior, GPyTorchPosterior)):
            raise UnsupportedError(
                f"{name} gives a {type(posterior).__name__}, which has no joint Gaussian moments "
                "of points and outputs, so points cannot be conditioned on one another in it. Use "
                "a model with a GPyTorchPosterior (SingleTaskGP, MultiTaskGP, ModelListGP), or "
                "leave X_pending out and ask for one point at a time (sequential=True in "
                "optimize_acqf)."
            )
        mean, covariance = posterior.mean, posterior.distribution.covariance_matrix
        n, m = mean.shape[-2:]
        covariance = covariance.expand(*mean.shape[:-2], n * m, n * m)
        if getattr(posterior.distribution, "_interleaved", True):
            covariance = _blocks(covariance, n, m)
        else:  # GPyTorch has the points of an output next to each other
            covariance = _blocks(covariance, m, n).transpose(-1, -2).transpose(-3, -4)
        return cls(mean, covariance, isinstance(posterior, GaussianMixturePosterior))

    @property
    def matrix(self) -> Tensor:
        """The covariance as ``batch_shape x n m x n m``; the outputs of a point are adjacent."""
        return self.covariance.flatten(-2).flatten(-3, -2)

    @property
    def variance(self) -> Tensor:
        """``batch_shape x n x m`` variances of the points, each on its own."""
        return self.matrix.diagonal(dim1=-2, dim2=-1).unflatten(-1, self.mean.shape[-2:])

    def given(self, noise: Tensor) -> JointMoments:
        """Return the moments of all points, given outcomes equal to their means at the first ones.

        Args:
            noise: ``batch_shape x count x m`` observation variances at the first points.
        """
        matrix, size = self.matrix, noise.shape[-2] * noise.shape[-1]
        factor = _factor(matrix[..., :size, :size], noise)
        # L^{-1} S_P., of which the products with itself are what P explains
        half = torch.linalg.solve_triangular(factor, matrix[..., :size, :], upper=False)
        left = _blocks(matrix - half.mT @ half, *self.mean.shape[-2:])
        return replace(self, covariance=left)

    def one_by_one(self, noise: Tensor) -> JointMoments:
        """Return the moments at each point, given the means as outcomes at the points before it.

        Args:
            noise: ``batch_shape x n x m`` observation variances.

        Returns:
            ``batch_shape x n`` moments of one point each.
        """
        n, m = self.mean.shape[-2:]
        factor = _factor(self.matrix, noise)
        # rows of L, one for each output of a point, without the columns of the point itself
        index = torch.arange(n * m, device=factor.device) // m
        earlier = torch.where(index.unsqueeze(-1) > index, factor, 0.0)
        rows = earlier.unflatten(-2, (n, m))  # ... x n x m x n m
        own = self.covariance.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)  # ... x n x m x m
        left = (own - rows @ rows.mT).unsqueeze(-2).unsqueeze(-4)  # ... x n x 1 x m x 1 x m
        return JointMoments(self.mean.unsqueeze(-2), left, self.is_mixture)

    def selected(self, member: int | None) -> JointMoments:
        """Return the moments of one member of a mixture, or all moments if the member is None.

        Args:
            member: The number of the member.
        """
        if member is None:
            return self
        return JointMoments(self.mean.select(-3, member), self.covariance.select(-5, member))

    def posterior(self) -> GPyTorchPosterior:
        """Return BoTorch's posterior with these moments."""
        matrix = self.matrix
        variance = matrix.diagonal(dim1=-2, dim2=-1).clamp_min(0.0)  # rounding errors
        covariance = DenseLinearOperator(matrix.diagonal_scatter(variance, dim1=-2, dim2=-1))
        if self.mean.shape[-1] == 1:
            distribution = MultivariateNormal(self.mean.squeeze(-1), covariance)
        else:
            distribution = MultitaskMultivariateNormal(self.mean, covariance, interleaved=True)
        kind = GaussianMixturePosterior if self.is_mixture else GPyTorchPosterior
        with settings.min_variance(double_value=0.0):  # mixtures compute their variances at once
            return kind(distribution)

    def with_noise(self, noise: Tensor) -> JointMoments:
        """Return the moments of noisy outcomes.

        Args:
            noise: ``batch_shape x n x m`` observation variances.
        """
        levels = torch.diag_embed(noise.expand(self.mean.shape).flatten(-2))
        noisy = self.covariance + _blocks(levels, *self.mean.shape[-2:])
        return replace(self, covariance=noisy)


def _blocks(matrix: Tensor, n: int, m: int) -> Tensor:
    """Return ``... x n m x n m`` numbers as ``... x n x m x n x m``."""
    return matrix.unflatten(-1, (n, m)).unflatten(-3, (n, m))


def _factor(covariance: Tensor, noise: Tensor) -> Tensor:
    """Return the Cholesky factor of covariance plus noise, ``batch_shape x s x s``."""
    largest = covariance.detach().diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True)
    least = (SMALLEST_NOISE * largest).clamp_min(torch.finfo(DTYPE).tiny)
    return cholesky(covariance + torch.diag_embed(torch.maximum(noise.flatten(-2), least)))


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


class MomentsModel(Model):
    """A model whose posterior is computed from joint moments."""

    @abstractmethod
    def _moments(self, X: Tensor, observation_noise: bool | Tensor) -> JointMoments:
        """Return the joint moments of ``batch_shape x q x d`` points."""

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> Posterior:
        """Return the posterior; see BoTorch.

        Args:
            X: ``batch_shape x q x d`` points in raw inputs.
            output_indices: The outputs; all if omitted.
            observation_noise: Whether to add the noise variance, or a tensor of variances.
            posterior_transform: Applied to the posterior, after conditioning.
        """
        moments = self._moments(X, observation_noise)
        if output_indices is not None:
            covariance = moments.covariance[..., output_indices, :, :][..., output_indices]
            mean = moments.mean[..., output_indices]
            moments = replace(moments, mean=mean, covariance=covariance)
        posterior: Posterior = moments.posterior()
        return posterior if posterior_transform is None else posterior_transform(posterior, X)


class PendingModel(MomentsModel):
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
        self._is_ensemble = is_ensemble(model)
        with torch.no_grad():
            read_moments(model, X)  # raises now any error that it would raise later
        self.register_buffer("pending_points", X.detach().clone(), persistent=False)
        self.register_buffer("pending_noise", read_noise(model, X), persistent=False)

    @property
    def num_outputs(self) -> int:
        """The number of outputs of the model."""
        return int(self.base.num_outputs)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the model."""
        return shape_of_batch(self.base)

    def _moments(self, X: Tensor, observation_noise: bool | Tensor) -> JointMoments:
        pending = self.pending_points
        both = torch.cat([pending.expand(*X.shape[:-2], *pending.shape), X], dim=-2)
        given = read_moments(self.base, both).given(self.pending_noise)
        p = len(pending)
        left = given.covariance[..., p:, :, p:, :]
        moments = replace(given, mean=given.mean[..., p:, :], covariance=left)
        if observation_noise is False:
            return moments
        noise = read_noise(self.base, X) if observation_noise is True else observation_noise
        return moments.with_noise(torch.as_tensor(noise))


def posterior_of_each(
    model: Model,
    X: Tensor,
    transform: PosteriorTransform | None = None,
    with_noise: bool = False,
) -> Posterior:
    """Return the posterior of each of several points given those before it.

    Args:
        model: Any model; pending points are in it already.
        X: ``batch_shape x q x d`` points in raw inputs. For a batched model, the last dimensions of
            ``batch_shape`` are those of the model.
        transform: Applied to the posterior.
        with_noise: Whether the posterior is that of outcomes, with their noise.

    Returns:
        A posterior of single points. Its batch shape is that of ``model.posterior(X)`` for one
        point, and has one more dimension, of size ``q``, at its end for several.

    Raises:
        UnsupportedError: If there are several points and the posterior has no joint Gaussian
            moments.
    """
    if X.shape[-2] == 1:
        return model.posterior(X, observation_noise=with_noise, posterior_transform=transform)
    moments = replace(read_moments(model, X), is_mixture=False)
    noise = read_noise(model, X).expand(moments.mean.shape)
    each = moments.one_by_one(noise)
    posterior = (each.with_noise(noise.unsqueeze(-2)) if with_noise else each).posterior()
    return posterior if transform is None else transform(posterior, X)


def moments_of_each(posterior: Posterior, num_points: int) -> tuple[Tensor, Tensor]:
    """Return the means and variances of a :func:`posterior_of_each`, ``batch_shape x q x m`` each.

    Args:
        posterior: The posterior.
        num_points: ``q``.
    """
    mean = posterior.mean
    variance = variance_of(posterior).reshape(mean.shape)
    return (mean, variance) if num_points == 1 else (mean.squeeze(-2), variance.squeeze(-2))


# --- pseudo-outcomes ------------------------------------------------------------------------------


def condition(model: Model, X: Tensor, Y: Tensor, extra_noise: float | Tensor = 0.0) -> Model:
    """Return ``model`` conditioned on outcomes ``Y`` at ``X``; ``model`` is not changed.

    The hyperparameters and the statistics of outcome transforms remain those of the model and never
    depend on the pseudo-observations. With fixed noise levels, the new rows get the mean level of
    the rows.

    Args:
        model: An exact Gaussian-process model, or a ``ModelListGP`` of such.
        X: ``n x d`` points in raw inputs.
        Y: ``batch_shape x n x m`` outcomes in raw units (``batch_shape`` is the model's).
        extra_noise: Added to the noise variance of the new rows, in squared raw outcome units: one
            number, or ``batch_shape x 1 x m``.

    Returns:
        A model of the same class with ``n`` more rows.

    Raises:
        UnsupportedError: If this kind of model cannot be conditioned.
    """
    check_double("X", X)
    check_double("Y", Y)
    extra = torch.as_tensor(extra_noise, dtype=DTYPE, device=Y.device)
    check_nonnegative("extra_noise", float(extra.min()))
    if isinstance(model, ModelListGP):
        sizes = [part.num_outputs for part in model.models]
        extra = extra.expand(*extra.shape[:-1], Y.shape[-1])
        each = zip(model.models, Y.split(sizes, dim=-1), extra.split(sizes, dim=-1), strict=True)
        return ModelListGP(*(condition(part, X, *own) for part, *own in each))
    if not (isinstance(model, ExactGP) and isinstance(model, GPyTorchModel)):
        raise UnsupportedError(_refusal(model, "it is not an exact Gaussian process"))
    if has_tasks(model) and model.num_outputs > 1:
        reason = "it has several output tasks; build it with output_tasks=[one of them]"
        raise UnsupportedError(_refusal(model, reason))
    # even if inputs are perturbed, a pending point is the point itself; and GPyTorch would silently
    # raise small levels of noise
    with torch.no_grad(), fantasize(), settings.min_fixed_noise(double_value=0.0):
        options, added = {}, None
        is_fixed = isinstance(model.likelihood, FixedNoiseGaussianLikelihood)
        if is_fixed or bool((extra > 0.0).any()):
            try:
                unit = outcome_units(model)[0].reshape(*model.batch_shape, 1, -1)
            except UnreadablePriorError as error:
                reason = f"{error}, so the unit of its noise is unknown"
                raise UnsupportedError(_refusal(model, reason)) from error
            added = extra / unit**2
            if is_fixed:  # BoTorch takes it in the units of transformed outcomes
                options["noise"] = (read_noise(model, X) / unit**2).expand_as(Y)
        rows = insert_task(model, X) if has_tasks(model) else X
        try:
            model.posterior(X[..., :1, :])  # GPyTorch extends the caches of an evaluated model only
            rows = rows.expand(*Y.shape[:-2], *rows.shape[-2:])
            conditioned = model.condition_on_observations(rows, Y, **options)
        except (NotImplementedError, AttributeError, RuntimeError) as error:
            raise UnsupportedError(_refusal(model, str(error))) from error
        if added is not None and bool((added > 0.0).any()):
            # each row gets a level of its own; for several outputs, they are batch_shape x m x n
            shape = conditioned.train_targets.shape
            noise = conditioned.likelihood._shaped_noise_covar(shape, *conditioned.train_inputs)
            levels = noise.diagonal(dim1=-2, dim2=-1).expand(shape).clone()
            levels[..., -len(X) :] += added.mT if model.num_outputs > 1 else added.squeeze(-1)
            conditioned.likelihood = FixedNoiseGaussianLikelihood(levels).eval()
            conditioned.prediction_strategy = None
    return conditioned


def hallucinate(model: Model, X: Tensor) -> Model:
    """Return ``model`` conditioned on its own posterior mean at ``X``.

    The posterior mean is unchanged and the posterior variance shrinks as if the outcomes at ``X``
    were known, which is how GP-BUCB treats pending points (Desautels, Krause and Burdick 2014).

    An exact Gaussian process gets ``X`` as new rows, with the noise of its likelihood or the mean
    of ``train_Yvar``. For every other model, the joint posterior with ``X`` is conditioned instead,
    which gives the same numbers; the noise at ``X`` is what ``observation_noise=True`` adds to the
    model's posterior there (for ``MultiTaskGP``, the noise of each task, and with ``train_Yvar``
    the mean of each task).

    Args:
        model: An exact Gaussian-process model, or any other whose posterior is Gaussian; for a
            finite ensemble, the mean and covariance of its members are used.
        X: ``n x d`` pending points in raw inputs.

    Raises:
        UnsupportedError: If the model is not an exact Gaussian process and its posterior is not
            Gaussian, has no joint covariance or no noise.
    """
    try:
        with torch.no_grad(), fantasize():
            mean = model.posterior(X).mean  # members are in the batch shape
        return condition(model, X, mean)
    except UnsupportedError:
        return PendingModel(model, X)


def _refusal(model: Model, reason: str) -> str:
    return (
        f"{type(model).__name__} cannot take pseudo-observations for pending points: {reason}. Use "
        "an exact Gaussian process (SingleTaskGP, BanditGP, ModelListGP of such), or leave "
        "X_pending out."
    )
