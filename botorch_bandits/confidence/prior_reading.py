"""What a theorem needs to know of a model's prior, read from BoTorch's and GPyTorch's objects.

:func:`read_prior` inspects exact Gaussian-process models (BoTorch's ``SingleTaskGP`` family,
``ModelListGP`` of them, models of several tasks, ensembles and batches) for kernel, inputs, noise
and units without changing them. It relies on BoTorch's conventions: in evaluation mode, a model
holds its transformed inputs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import torch
from botorch.models import ModelListGP, MultiTaskGP
from botorch.models.gpytorch import BatchedMultiOutputGPyTorchModel
from botorch.models.model import Model
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Standardize
from botorch.utils.transforms import is_ensemble
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    HadamardGaussianLikelihood,
)
from gpytorch.means import MultitaskMean
from gpytorch.models import ExactGP
from torch import Tensor

from botorch_bandits.checks import check_instance
from botorch_bandits.confidence.information_gain import is_stationary, realized_information_gain


class UnreadablePriorError(ValueError):
    """The model's prior cannot be read; the message says why."""

    def in_method(self, need: str, remedy: str) -> UnreadablePriorError:
        """Return the error of a method that needs the prior.

        Args:
            need: What needs it.
            remedy: What to do instead.
        """
        return UnreadablePriorError(f"{need}, but {self}. {remedy}")


@dataclass(frozen=True)
class OutputPrior:
    """The prior of one output; every tensor has the model's batch shape.

    Attributes:
        gain: Returns the realized information gain of the model's rows, in nats; see
            :func:`gain_of_rows`.
        noise_variance: Modeled noise variance in the model's own (transformed) outcome units; the
            smallest one if it differs between rows.
        prior_variance: Prior variance in the same units: that of the whole kernel if it is
            stationary, otherwise the outer ``ScaleKernel``'s output scale (1 without one).
        outcome_scale: Raw outcome units in one transformed outcome unit.
        learned: A description of what was, or could have been, learned from the same data.
        prior_mean: The constant prior mean in the same units (for a batch, the one farthest from
            0); None if it is not constant.
        is_stationary: Whether the prior variance is the same at all points.
        is_given: Whether the model was built from a given prior, as ``BanditGP`` is, so that no
            parameter can have been fitted before it was frozen.
        row_noise: ``batch_shape x n`` noise variances of the rows, in the same units; None if there
            is one level (``noise_variance``).
        has_tasks: Whether rows belong to several tasks, in which case the norm is the norm of all
            their functions together. The output is one of the tasks, and the prior variance is that
            of its function.
    """

    gain: Callable[[], Tensor]
    noise_variance: Tensor
    prior_variance: Tensor
    outcome_scale: Tensor
    learned: tuple[str, ...] = ()
    prior_mean: float | None = 0.0
    is_stationary: bool = True
    is_given: bool = True
    row_noise: Tensor | None = None
    has_tasks: bool = False

    @cached_property
    def lam(self) -> Tensor:
        """The regularization of the theorem: (smallest) noise variance over prior variance."""
        return self.noise_variance / self.prior_variance

    @property
    def first_lam(self) -> Tensor:
        """The regularization of the first row, which is known before all outcomes."""
        first = self.noise_variance if self.row_noise is None else self.row_noise[..., 0]
        return first / self.prior_variance

    @property
    def lam_has_fallen(self) -> bool:
        """Whether the noise of some row is below that of the first one, so that ``lam`` changed."""
        return bool((self.lam < self.first_lam * (1.0 - 1e-12)).any())

    @cached_property
    def standard_deviation(self) -> Tensor:
        """The prior standard deviation ``s`` in raw outcome units."""
        return self.prior_variance.sqrt() * self.outcome_scale


def part_of(model: Model, name: str) -> Any:
    """Return a part that not every model has, such as ``input_transform``; None without it."""
    return getattr(model, name, None)


def has_tasks(model: Model) -> bool:
    """Return whether the rows of a model belong to several tasks, one of which is its output."""
    return isinstance(model, MultiTaskGP)


def gain_of_rows(kernel_matrix: Tensor, noise: Tensor) -> Tensor:
    """Return ``1/2 ln det(I + V^(-1/2) K V^(-1/2))``, with ``V`` the diagonal matrix of the noise.

    Args:
        kernel_matrix: ``batch_shape x n x n``.
        noise: ``batch_shape x n`` noise variances of the rows.
    """
    root = noise.rsqrt()
    return realized_information_gain(kernel_matrix * root.unsqueeze(-1) * root.unsqueeze(-2), 1.0)


def read_prior(model: Model) -> tuple[OutputPrior, ...]:
    """Read the prior of each output of an exact Gaussian-process model.

    Args:
        model: In training or evaluation mode; it is not changed.

    Returns:
        One entry per output. For a batched model or an ensemble each tensor has the model's
        batch shape.

    Raises:
        UnreadablePriorError: If the model is not an exact Gaussian process with one noise level
            or one per row (``train_Yvar``), a plain kernel and no other outcome transform than
            ``Standardize``.
        ValueError: If the noise variance of a row is unknown.
    """
    if isinstance(model, ModelListGP):
        return tuple(prior for submodel in model.models for prior in read_prior(submodel))
    name = type(model).__name__
    if part_of(model, "evidence") is not None:
        raise UnreadablePriorError(
            "the model is a list of priors (CandidatesUpperConfidenceBound is for such lists)"
        )
    kernel = part_of(model, "covar_module")
    if not (isinstance(model, ExactGP) and isinstance(kernel, Kernel)):
        raise UnreadablePriorError(f"{name} is not an exact Gaussian process with its own kernel")
    if len(model.train_inputs) != 1:
        raise UnreadablePriorError(f"{name} has several tensors of inputs")
    is_of_tasks = has_tasks(model)
    if is_of_tasks:
        check_tasks(model)
    elif model.num_outputs > 1 and not isinstance(model, BatchedMultiOutputGPyTorchModel):
        raise UnreadablePriorError(
            f"{name} is not an exact Gaussian process with its own kernel: its kernel joins outputs"
        )
    inputs = kernel_inputs(model)
    own_package = __name__.partition(".")[0]
    if type(model).forward.__module__.partition(".")[0] not in ("botorch", own_package):
        check_forward(model, inputs)
    # internally, several outputs are the last batch dimension
    noise, learned_noise = _noise_of_rows(model)  # ``batch_shape x n``, or ``x 1``
    learned = (*learned_noise, *_learned_beside_noise(model))
    scale, _ = outcome_units(model)
    with torch.no_grad():
        prior_variance = (
            variance_of_output_task(model, inputs)
            if is_of_tasks
            else prior_variance_of(kernel, inputs)
        )
    levels = noise.amin(-1)
    batch_shape = torch.broadcast_shapes(inputs.shape[:-2], kernel.batch_shape, levels.shape)
    is_level = torch.allclose(noise, noise[..., :1], rtol=1e-12, atol=0.0)

    @cache
    def gain() -> Tensor:
        # a model that grows row by row has factorized its kernel matrix already
        box = part_of(model, "closed_form")
        if box is not None and is_level:
            found: Tensor = box.information_gain
            return found
        with torch.no_grad():
            matrix = kernel(inputs).to_dense() if inputs.shape[-2] else inputs.new_zeros(0, 0)
        matrix = matrix.expand(*batch_shape, *matrix.shape[-2:])
        repeats = part_of(model, "repeats")
        of_rows = noise if repeats is None else noise / repeats
        return gain_of_rows(matrix, of_rows.expand(*batch_shape, matrix.shape[-1]))

    def of_output(j: int | None) -> OutputPrior:
        def pick(values: Tensor) -> Tensor:
            whole = values.expand(batch_shape)
            return whole if j is None else whole[..., j]

        rows = noise.expand(*batch_shape, noise.shape[-1])
        return OutputPrior(
            lambda: pick(gain()),
            pick(levels),
            pick(prior_variance),
            pick(scale),
            learned,
            prior_mean=constant_prior_mean(model),
            is_stationary=is_of_tasks or is_stationary(kernel, inputs.shape[-1]),
            is_given=part_of(model, "learn_hyperparameters") is False,
            row_noise=None if is_level else rows if j is None else rows[..., j, :],
            has_tasks=is_of_tasks,
        )

    return tuple(map(of_output, [None] if model.num_outputs == 1 else range(model.num_outputs)))


def _learned_beside_noise(model: ExactGP) -> Iterator[str]:
    """Describe what was, or could have been, learned from the data, apart from the likelihood."""
    if _standardizations(model):
        yield "outcome scale and mean (Standardize)"
    if learns_input_scale(part_of(model, "input_transform")):
        yield "input scale (an input transform without given bounds)"
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not name.startswith("likelihood."):
            yield f"{name} (a free parameter)"


def constant_prior_mean(model: ExactGP) -> float | None:
    """Return the constant of a model's mean, the one farthest from 0 in a batch.

    Args:
        model: A model with a ``mean_module``.

    Returns:
        None for other mean modules, or if tasks have different constants.
    """
    mean = part_of(model, "mean_module")
    constants = {_constant_of(each) for each in getattr(mean, "base_means", [mean])}
    return constants.pop() if len(constants) == 1 else None


def _constant_of(mean: Any) -> float | None:
    kind = type(mean).__name__  # a subclass need not be constant
    if kind == "ZeroMean":
        return 0.0
    if kind != "ConstantMean":
        return None
    values: list[float] = mean.constant.detach().reshape(-1).tolist()
    return max(values, key=abs)


def _some_of(inputs: Tensor, count: int) -> Tensor:
    """Return the first inputs, ``batch_shape x n x d``; one at the origin if there are none."""
    if inputs.shape[-2]:
        return inputs[..., :count, :]
    return inputs.new_zeros(*inputs.shape[:-2], 1, inputs.shape[-1])


def learns_input_scale(transform: InputTransform | None) -> bool:
    """Return whether an input transform takes its scale from the data (``Normalize(d)`` does)."""
    parts = [] if transform is None else transform.modules()
    return any(getattr(part, "learn_coefficients", False) for part in parts)


def kernel_inputs(model: ExactGP) -> Tensor:
    """Return a model's inputs as its kernel sees them; the model is not changed.

    Args:
        model: In training or evaluation mode.
    """
    inputs = model.train_inputs[0].detach()
    transform = part_of(model, "input_transform")
    # in training mode BoTorch keeps raw inputs, in evaluation mode their transforms
    if model.training and transform is not None:
        with torch.no_grad():
            inputs = copy.deepcopy(transform).preprocess_transform(inputs)
    return number_tasks(model, inputs) if has_tasks(model) else inputs


def inputs_of_kernel(model: ExactGP, X: Tensor) -> Tensor:
    """Return new points as a model's kernel sees them; the model stays in its mode.

    Args:
        model: In training or evaluation mode.
        X: ``... x d`` raw points; differentiable.
    """
    X = insert_task(model, X) if has_tasks(model) else X
    transform = part_of(model, "input_transform")
    if transform is not None:
        was_training = transform.training
        try:
            X = transform.eval()(X)
        finally:
            transform.train(was_training)
    return number_tasks(model, X) if has_tasks(model) else X


def _noise_of_rows(model: ExactGP) -> tuple[Tensor, list[str]]:
    """Return noise variances, ``batch_shape x n`` or ``x 1``, and what of them was learned."""
    likelihood = model.likelihood
    is_free = any(parameter.requires_grad for parameter in likelihood.parameters())
    learned = ["likelihood noise (a free parameter)"] if is_free else []
    if isinstance(likelihood, FixedNoiseGaussianLikelihood):
        noise = likelihood.noise.detach()
        if noise.shape[-1] == 0:
            raise UnreadablePriorError("the model has noise at its rows only, and it has no rows")
        unknown = ~(torch.isfinite(noise) & (noise > 0.0)).reshape(-1, noise.shape[-1]).all(0)
        if bool(unknown.any()):
            rows = ", ".join(map(str, unknown.nonzero().squeeze(-1).tolist()))
            raise ValueError(
                f"the observation variances (train_Yvar) of {type(model).__name__} are not finite "
                f"and positive in these rows: {rows}. A width needs a bound on the noise of each "
                "row, known before its outcome: give one for them too, or leave the rows out."
            )
        return noise, learned
    if isinstance(likelihood, HadamardGaussianLikelihood) and has_tasks(model):
        return noise_of_tasks(model, likelihood), learned
    if type(likelihood) is GaussianLikelihood or hasattr(likelihood, "repeats"):
        return likelihood.noise.detach(), learned
    raise UnreadablePriorError(f"{type(likelihood).__name__} has no single noise level")


def outcome_units(model: Model) -> tuple[Tensor, Tensor]:
    """Return scale and shift of a model's outcomes: raw ones are ``shift + scale * own``.

    Both have the model's batch shape, then one entry per output if there are several. Without an
    outcome transform they are a scalar 1 and a scalar 0.

    Args:
        model: A BoTorch model with training targets.

    Raises:
        UnreadablePriorError: If a transform is neither ``Standardize`` nor a chain of them.
    """
    scale = torch.ones((), dtype=torch.float64, device=model.train_targets.device)
    shift = torch.zeros_like(scale)
    for part in _standardizations(model):
        shift = shift + scale * part.means.detach().squeeze(-2)
        scale = scale * part.stdvs.detach().squeeze(-2)
    if model.num_outputs == 1 and scale.dim():
        return scale.squeeze(-1), shift.squeeze(-1)
    return scale, shift


def _standardizations(model: Model) -> list[Standardize]:
    """Return the transforms of a model's outcomes, in the order of their application."""
    transform = part_of(model, "outcome_transform")
    if transform is None:
        return []
    parts = transform.values() if isinstance(transform, ChainedOutcomeTransform) else [transform]
    for part in parts:
        if type(part) is not Standardize:
            raise UnreadablePriorError(f"the outcome transform {type(part).__name__} is not affine")
    return list(parts)


def prior_variance_of(kernel: Kernel, inputs: Tensor) -> Tensor:
    """Return the unit in which bounds on the norm are measured; see :class:`OutputPrior`.

    Args:
        kernel: The kernel of the model.
        inputs: ``batch_shape x n x d``, inputs of the model; ``n`` may be 0.
    """
    if is_stationary(kernel, inputs.shape[-1]):
        return kernel(_some_of(inputs, 1), diag=True).squeeze(-1)
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale.detach()
    return inputs.new_ones(())


def count_rows(model: Model) -> int:
    """Return how many observations a model holds, the most of all models of a list.

    Args:
        model: Any model.

    Raises:
        UnreadablePriorError: If it does not show its training targets.
    """
    if isinstance(model, ModelListGP):
        return max(count_rows(submodel) for submodel in model.models)
    count = part_of(model, "num_observations")  # a row may be the mean of several observations
    if count is not None:
        return int(count)
    targets = part_of(model, "train_targets")
    if targets is None:
        raise UnreadablePriorError(f"{type(model).__name__} does not show its training targets")
    return int(targets.shape[-1])


def weight_of_rows(model: Model) -> float:
    """Return the sum of the rows' weights, the most of all models of a list.

    A row of weight ``w`` has the noise variance of one observation over ``w``, so that the sum of
    ``1 / lam`` over rows is this sum over the ``lam`` of one observation.

    Args:
        model: Any model.

    Raises:
        UnreadablePriorError: If it does not show its training targets.
    """
    if isinstance(model, ModelListGP):
        return max(weight_of_rows(submodel) for submodel in model.models)
    repeats = part_of(model, "repeats")
    return float(count_rows(model)) if repeats is None else float(repeats.sum(-1).max())


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
    points = _some_of(inputs, 10)
    was_training, model.training = model.training, False  # the inputs are transformed already
    try:
        with torch.no_grad():
            prior = model.forward(points)
            kernel, mean = model.covar_module(points).to_dense(), model.mean_module(points)
    finally:
        model.training = was_training
    scale = kernel.abs().max()
    close = (prior.covariance_matrix - kernel).abs().max() <= 1e-9 * scale
    close &= ((prior.mean - mean).abs() <= 1e-9 * (mean.abs() + scale.sqrt())).all()
    if not close:
        raise UnreadablePriorError(
            f"{type(model).__name__}.forward computes a different prior than its mean_module and "
            "covar_module"
        )


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
