"""What a model's kernel sees, and the noise of each row, beyond the ordinary cases.

:func:`~botorch_bandits.confidence.width_rules.read_prior` uses this module to read models of
user-defined classes, models with several tasks and models with outliers. It relies on BoTorch's
conventions: in evaluation mode, a model holds its transformed inputs.
"""

from __future__ import annotations

import math

import torch
from botorch.models import MultiTaskGP
from botorch.models.likelihoods.sparse_outlier_noise import SparseOutlierGaussianLikelihood
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import HadamardGaussianLikelihood
from gpytorch.means import MultitaskMean
from gpytorch.models import ExactGP
from torch import Tensor

from botorch_bandits.checks import check_instance


class UnreadablePriorError(ValueError):
    """The model's prior cannot be read; the message says why."""

    def in_method(self, need: str, remedy: str) -> UnreadablePriorError:
        """Return the error of a method that needs the prior.

        Args:
            need: What needs it.
            remedy: What to do instead.
        """
        return UnreadablePriorError(f"{need}, but {self}. {remedy}")


def refuse_several(verb: str, model: Model) -> None:
    """Raise an error unless a model has a single output.

    Args:
        verb: What is done with the model, for the error.
        model: A BoTorch model.

    Raises:
        TypeError: If it is not a BoTorch model.
        ValueError: If it has several outputs or a batch dimension, or is a list of priors.
    """
    check_instance("model", model, Model, "Pass a BoTorch model.")
    if callable(getattr(model, "member", None)):
        raise ValueError(
            f"model is a list of priors; {verb} each of them alone, such as model.member(0)."
        )
    if model.num_outputs != 1:
        raise ValueError(
            f"model has {model.num_outputs} outputs; {verb} each of them alone, such as "
            "model.subset_output([0])."
        )
    if len(model.batch_shape) > 0:
        raise ValueError(
            f"model has the batch shape {tuple(model.batch_shape)}; {verb} each model of the batch "
            "alone."
        )


def check_forward(model: ExactGP, inputs: Tensor) -> None:
    """Raise an error unless a user's class evaluates its mean and kernel at some of its inputs.

    This is checked because mean and kernel are read from the model.

    Args:
        model: The model, whose mode is not changed.
        inputs: ``batch_shape x n x d``, as its kernel sees them.

    Raises:
        UnreadablePriorError: If its ``forward`` computes a different prior.
    """
    points = inputs[..., :10, :]
    if points.shape[-2] == 0:
        points = inputs.new_zeros(*inputs.shape[:-2], 1, inputs.shape[-1])
    was_training, model.training = model.training, False  # the inputs are transformed already
    try:
        with torch.no_grad():
            prior = model.forward(points)
            covariance, expected = prior.covariance_matrix, model.covar_module(points).to_dense()
            mean, expected_mean = prior.mean, model.mean_module(points)
    finally:
        model.training = was_training
    scale = float(expected.abs().max())
    close = torch.allclose(covariance, expected, rtol=1e-9, atol=1e-9 * scale) and torch.allclose(
        mean, expected_mean, rtol=1e-9, atol=1e-9 * math.sqrt(scale)
    )
    if not close:
        raise UnreadablePriorError(
            f"{type(model).__name__}.forward computes a different prior than its mean_module and "
            "covar_module"
        )


def outlier_variances(
    model: ExactGP, likelihood: SparseOutlierGaussianLikelihood, inputs: Tensor
) -> Tensor | None:
    """Return the noise variance of each row if rows that look like outliers have additional noise.

    Rows that were added later, such as pseudo-observations, have the ordinary noise.

    Args:
        model: A model with this likelihood.
        likelihood: The likelihood of BoTorch's robust models.
        inputs: ``batch_shape x n x d``, as the kernel sees them.

    Returns:
        ``batch_shape x n``; None if no row has additional noise and all have the same variance.

    Raises:
        UnreadablePriorError: If the ordinary noise of rows that were added is unknown.
    """
    noise, num_rows = likelihood.noise_covar, inputs.shape[-2]
    with torch.no_grad():
        level, rho = noise.base_noise.noise.detach(), noise.rho.detach()
        if not bool(rho.any()) and level.shape[-1] == 1:
            return None
        if level.shape[-1] not in (1, num_rows):
            raise UnreadablePriorError("the noise of rows that were added is unknown")
        if noise.convex_parameterization:
            rows = inputs[..., : rho.shape[-1], :]
            of_rows = level if level.shape[-1] == 1 else level[..., : rho.shape[-1]]
            rho = (model.covar_module(rows, diag=True) + of_rows) * rho
        levels = level.expand(*rho.shape[:-1], num_rows).clone()
        levels[..., : rho.shape[-1]] += rho
    return levels


# --- several tasks ----------------------------------------------------------------------------


def check_tasks(model: MultiTaskGP) -> None:
    """Raise an error unless a model of several tasks predicts one, with an ordinary kernel.

    Args:
        model: A model of several tasks.

    Raises:
        UnreadablePriorError: If it predicts several tasks or has another kernel.
    """
    name = type(model).__name__
    if is_ensemble(model):
        raise UnreadablePriorError(f"{name} is an ensemble of models with several tasks")
    if model.num_outputs != 1:
        raise UnreadablePriorError(
            f"{name} has {model.num_outputs} output tasks, which are correlated; build it with "
            "output_tasks=[one of them]"
        )
    kernels: list[Kernel] = list(getattr(model.covar_module, "kernels", ()))
    if len(kernels) != 2 or not kernels[0].is_stationary:
        raise UnreadablePriorError(
            f"the kernel of {name} is not a product of a stationary kernel and a task kernel"
        )


def insert_task(model: MultiTaskGP, X: Tensor) -> Tensor:
    """Return points with the column of the output task inserted.

    Args:
        model: A model of several tasks, one of which is its output.
        X: ``... x d`` points without the column, or with it already.
    """
    if X.shape[-1] > model.num_non_task_features:
        return X
    column, task = model._task_feature, float(model._output_tasks[0])
    return torch.cat(
        [X[..., :column], X.new_full((*X.shape[:-1], 1), task), X[..., column:]], dim=-1
    )


def number_tasks(model: MultiTaskGP, inputs: Tensor) -> Tensor:
    """Return transformed inputs with the number of each row's task, as the kernel sees them.

    Args:
        model: A model of several tasks.
        inputs: ``... x n x (d + 1)``.
    """
    before, tasks, after = model._split_inputs(inputs)
    return torch.cat([before, tasks.to(inputs), after], dim=-1)


def variance_of_output_task(model: MultiTaskGP, inputs: Tensor) -> Tensor:
    """Return the prior variance of the output task's function, a scalar.

    Args:
        model: A model of several tasks, with a stationary kernel.
        inputs: ``n x (d + 1)``, as the kernel sees them.
    """
    task = inputs.new_tensor([float(model._output_tasks[0])]).long()
    point = inputs[:1].clone()
    point[:, model._task_feature] = model._map_tasks(task).to(point)
    variance: Tensor = model.covar_module(point, diag=True)
    return variance.squeeze(-1)


def is_of_output_task(model: MultiTaskGP) -> Tensor:
    """Return which rows of a model belong to its output task, as ``n`` booleans.

    Args:
        model: A model of several tasks.
    """
    tasks: Tensor = model.train_inputs[0][..., model._task_feature] == model._output_tasks[0]
    return tasks


def noise_of_tasks(model: MultiTaskGP, likelihood: HadamardGaussianLikelihood) -> Tensor:
    """Return the noise variance of each row, which is the variance of its task.

    Args:
        model: A model of several tasks.
        likelihood: Its likelihood.

    Raises:
        UnreadablePriorError: If a task has no noise level; GPyTorch counts tasks from 0.
    """
    levels = likelihood.noise.detach().reshape(-1)
    tasks = model.train_inputs[0][..., model._task_feature].long()
    if bool(((tasks < 0) | (tasks >= len(levels))).any()):
        raise UnreadablePriorError(
            f"the tasks of {type(model).__name__} are not numbered from 0, as its likelihood "
            "requires"
        )
    return levels[tasks]


def prior_mean_at(model: ExactGP, inputs: Tensor) -> Tensor:
    """Return the prior mean of a model at some inputs.

    Args:
        model: Any exact Gaussian process.
        inputs: ``... x n x d``, as the kernel sees them.
    """
    mean = model.mean_module
    if not isinstance(model, MultiTaskGP) or not isinstance(mean, MultitaskMean):
        return mean(inputs)
    column = model._task_feature
    points = torch.cat([inputs[..., :column], inputs[..., column + 1 :]], dim=-1)
    tasks = inputs[..., column : column + 1].long()
    return mean(points).gather(-1, tasks).squeeze(-1)
