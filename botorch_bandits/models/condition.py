"""The data of a model, and how each kind of BoTorch model is conditioned on pseudo-observations.

Conditioning turns pending queries into rows at a minimum or at the posterior mean, and BoTorch's
models differ in the units, shapes and transforms that they expect. Only this module depends on
these differences. The user's model is never changed: conditioning returns a new model with the same
hyperparameters and outcome statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import KroneckerMultiTaskGP, ModelListGP, MultiTaskGP
from botorch.models.fully_bayesian import AbstractFullyBayesianSingleTaskGP
from botorch.models.gpytorch import GPyTorchModel, MultiTaskGPyTorchModel
from botorch.models.model import Model
from botorch.models.transforms.outcome import Standardize, StratifiedStandardize
from botorch.models.utils.assorted import fantasize
from botorch.posteriors import TransformedPosterior
from gpytorch import settings
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.models import ExactGP
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE, check_double, check_nonnegative, check_one_of
from botorch_bandits.confidence.kernel_reading import insert_task, is_of_output_task
from botorch_bandits.confidence.width_rules import (
    UnreadablePriorError,
    prior_variance_of,
    read_outcome_scale,
)
from botorch_bandits.models.moments import name_of_transform, untransform
from botorch_bandits.models.pending import PendingModel


def on_device_of(model: Model, transform: PosteriorTransform | None) -> PosteriorTransform | None:
    """Move a posterior transform to the device of the model, in place, as BoTorch does.

    Args:
        model: The model.
        transform: The transform of its posterior, or None.
    """
    like = next(model.parameters(), None)
    return transform if transform is None or like is None else transform.to(like.device)


@contextmanager
def moving_models(module: Module, move: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Complete the move of a module to another device, which the block makes.

    GPyTorch's models keep cached predictions on the old device, and BoTorch's models keep their
    untransformed inputs there. The former are dropped, and the latter are moved.

    Args:
        module: The module, such as an acquisition function, that contains the models.
        move: The function that moves one tensor.
    """
    models = [each for each in module.modules() if isinstance(each, ExactGP)]
    before = [_device_of_rows(model) for model in models]
    yield
    for model, device in zip(models, before, strict=True):
        if _device_of_rows(model) != device:
            model.prediction_strategy = None
            original = getattr(model, "_original_train_inputs", None)
            if original is not None:
                model._original_train_inputs = move(original)


def _device_of_rows(model: ExactGP) -> torch.device | None:
    return None if model.train_inputs is None else model.train_inputs[0].device


def observed_inputs(model: Model) -> Tensor | None:
    """Return the raw inputs that a model holds, ``n x d``.

    Args:
        model: Any model. If it has several outputs, members or batches, all rows are listed, but
            equal sets of rows only once.

    Returns:
        None if the model does not show them.
    """
    if isinstance(model, ModelListGP):
        parts = [observed_inputs(submodel) for submodel in model.models]
        shown = [part for part in parts if part is not None]
        return torch.cat(shown) if len(shown) == len(parts) else None
    inputs = getattr(model, "train_inputs", None)
    if not inputs or len(inputs) != 1 or not isinstance(inputs[0], Tensor):
        return None
    X: Tensor = inputs[0]
    # in evaluation mode, BoTorch keeps transformed inputs and stores the raw ones separately
    if not model.training and getattr(model, "input_transform", None) is not None:
        X = getattr(model, "_original_train_inputs", X)
    X = X.detach()
    if isinstance(model, MultiTaskGP):  # the rows of the output task, without its number
        column = model._task_feature
        X = torch.cat([X[..., :column], X[..., column + 1 :]], dim=-1)
        return X[is_of_output_task(model)] if model.num_outputs == 1 else X
    if X.dim() == 2:
        return X
    sets = X.reshape(-1, *X.shape[-2:])
    same = bool((sets == sets[:1]).all())
    return sets[0] if same else sets.reshape(-1, X.shape[-1])


def observed_outcomes(model: Model) -> tuple[Tensor, ...] | None:
    """Return the outcomes that a model holds, in raw units: one vector per output.

    Returns:
        None if the model does not show them or its outcome transform cannot be inverted. Members
        and batches are listed one after another.
    """
    if isinstance(model, ModelListGP):
        parts = [observed_outcomes(submodel) for submodel in model.models]
        if any(part is None for part in parts):
            return None
        return tuple(outcomes for part in parts if part is not None for outcomes in part)
    targets = getattr(model, "train_targets", None)
    if not isinstance(targets, Tensor) or isinstance(model, KroneckerMultiTaskGP):
        return None
    Y = targets.detach()
    if isinstance(model, MultiTaskGP):
        if model.num_outputs > 1 or isinstance(
            getattr(model, "outcome_transform", None), StratifiedStandardize
        ):
            return None
        Y = Y[is_of_output_task(model)]
    elif model.num_outputs > 1 and Y.dim() < 2:
        return None
    Y = Y.unsqueeze(-1) if model.num_outputs == 1 else Y.mT
    Y_raw = untransform(model, Y)
    return None if Y_raw is None else tuple(column.reshape(-1) for column in Y_raw.unbind(-1))


def check_transformable(name: str, model: Model, values: Sequence[float]) -> None:
    """Raise an error unless the model's outcome transform maps outcomes to finite numbers.

    Args:
        name: The argument from which the outcomes come, for error messages.
        model: Any model; it is not changed.
        values: One raw outcome for each output.

    Raises:
        ValueError: If an outcome becomes infinite or not a number, as 0 does under ``Log``.
    """
    if isinstance(model, ModelListGP):
        start = 0
        for submodel in model.models:
            end = start + submodel.num_outputs
            check_transformable(name, submodel, values[start:end])
            start = end
        return
    transform = getattr(model, "outcome_transform", None)
    if transform is None or isinstance(transform, Standardize):
        return
    row = torch.tensor([values], dtype=DTYPE)
    here = next(transform.buffers(), row).device
    was_training = transform.training
    try:
        with torch.no_grad():
            Y = transform.eval()(row.to(here).expand(*model.batch_shape, 1, len(values)))[0]
    finally:
        transform.train(was_training)
    for value, column in zip(values, Y.unbind(-1), strict=True):
        bad = column[~torch.isfinite(column)]
        if len(bad):
            kind = name_of_transform(transform)
            raise ValueError(
                f"{name} is {value:g}, which the outcome transform {kind} of "
                f"{type(model).__name__} maps to {float(bad[0])}. Pass a value that {kind} maps to "
                "a finite number (for Log, one above 0), or a model with Standardize or without "
                "an outcome transform."
            )


def condition(
    model: Model, X: Tensor, Y: Tensor, extra_noise: float = 0.0, noise_unit: str = "outcome"
) -> Model:
    """Return ``model`` conditioned on outcomes ``Y`` at ``X``; ``model`` is not changed.

    The hyperparameters and the statistics of outcome transforms remain those of the model and never
    depend on the pseudo-observations. With fixed noise levels, the new rows get the mean level of
    the rows.

    Args:
        model: An exact Gaussian-process model, or a ``ModelListGP`` of such.
        X: ``n x d`` points in raw inputs.
        Y: ``batch_shape x n x m`` outcomes in raw units (``batch_shape`` is the model's).
        extra_noise: A variance, added to the noise of the new rows.
        noise_unit: ``"outcome"`` if it is in squared raw outcome units, ``"prior"`` if it is a
            multiple of the prior variance.

    Returns:
        A model of the same class with ``n`` more rows.

    Raises:
        UnsupportedError: If this kind of model cannot be conditioned.
        ValueError: If the model's outcome transform does not map an outcome to a finite number.
    """
    check_double("X", X)
    check_double("Y", Y)
    extra_noise = check_nonnegative("extra_noise", extra_noise)
    check_one_of("noise_unit", noise_unit, ("outcome", "prior"))
    if isinstance(model, ModelListGP):
        sizes = [submodel.num_outputs for submodel in model.models]
        columns = Y.split(sizes, dim=-1)
        return ModelListGP(
            *(
                condition(sub, X, Y_sub, extra_noise, noise_unit)
                for sub, Y_sub in zip(model.models, columns, strict=True)
            )
        )
    if getattr(model, "outcome_transform", None) is not None:
        for values in Y.detach().reshape(-1, Y.shape[-1]).unique(dim=0).tolist():
            check_transformable("an outcome", model, values)
    if not (isinstance(model, ExactGP) and isinstance(model, GPyTorchModel)):
        raise UnsupportedError(_refusal(model, "it is not an exact Gaussian process"))
    options = {}
    if isinstance(model.likelihood, FixedNoiseGaussianLikelihood):
        options["noise"] = _mean_noise(model, Y)
    if isinstance(model, MultiTaskGP):
        if model.num_outputs > 1:
            reason = "it has several output tasks; build it with output_tasks=[one of them]"
            raise UnsupportedError(_refusal(model, reason))
        X = insert_task(model, X)
    if not isinstance(model, AbstractFullyBayesianSingleTaskGP):
        X = X.expand(*Y.shape[:-2], *X.shape[-2:])
    # even if inputs are perturbed, a pending point is the point itself
    with torch.no_grad(), fantasize():
        model.posterior(X[..., :1, :])  # GPyTorch extends the caches of an evaluated model only
        try:
            conditioned = model.condition_on_observations(X, Y, **options)
        except (NotImplementedError, AttributeError, RuntimeError) as error:
            raise UnsupportedError(_refusal(model, str(error))) from error
    if extra_noise > 0.0:
        _add_noise(conditioned, X.shape[-2], extra_noise, noise_unit)
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
            Gaussian (an outcome transform such as ``Log``), has no joint covariance or no noise.
    """
    if isinstance(model, ModelListGP):
        parts = [hallucinate(submodel, X) for submodel in model.models]
        is_exact = not any(isinstance(part, PendingModel) for part in parts)
        return ModelListGP(*parts) if is_exact else PendingModel(model, X)
    if not _takes_rows(model):
        return PendingModel(model, X)
    with torch.no_grad(), fantasize():
        posterior = model.posterior(X)
        if isinstance(posterior, TransformedPosterior):
            # under a log-normal distribution, for example, the Gaussian process has its mean at the
            # median
            base_samples = X.new_zeros(1, *posterior.base_sample_shape)
            Y = posterior.rsample_from_base_samples(torch.Size([1]), base_samples).squeeze(0)
        else:
            Y = posterior.mean  # an ensemble has its members in the batch shape
    try:
        return condition(model, X, Y)
    except UnsupportedError:  # an exact Gaussian process that does not accept rows after all
        return PendingModel(model, X)


def _takes_rows(model: Model) -> bool:
    """Whether pseudo-observations at points can become rows of a model, one row per point."""
    is_exact = isinstance(model, ExactGP) and isinstance(model, GPyTorchModel)
    # rows of several tasks have a column for the task and their own noise
    return is_exact and not isinstance(model, MultiTaskGPyTorchModel | KroneckerMultiTaskGP)


def _mean_noise(model: ExactGP, Y: Tensor) -> Tensor:
    levels = model.likelihood.noise  # ``batch_shape x (m) x n``, in transformed outcome units
    if levels.shape[-1] == 0:
        raise UnsupportedError(_refusal(model, "it has no rows to take a noise level from"))
    if isinstance(model, MultiTaskGP) and bool(is_of_output_task(model).any()):
        levels = levels[..., is_of_output_task(model)]
    mean = levels.mean(dim=-1, keepdim=True)
    mean = mean.unsqueeze(-1) if model.num_outputs == 1 else mean.transpose(-1, -2)
    return mean.expand_as(Y)


def _add_noise(model: ExactGP, num_rows: int, extra_noise: float, noise_unit: str) -> None:
    """Add noise to the last rows of a model that is not shared."""
    if noise_unit == "prior":
        with torch.no_grad():
            extra = extra_noise * prior_variance_of(model.covar_module, model.train_inputs[0])
    else:
        try:
            extra = extra_noise / read_outcome_scale(model)[0] ** 2
        except UnreadablePriorError as error:
            reason = f"{error}, so the unit of extra noise is unknown"
            raise UnsupportedError(_refusal(model, reason)) from error
    targets = model.train_targets  # ``batch_shape x (m) x n``
    with torch.no_grad():
        rows = model.likelihood.noise
        repeats = getattr(model.likelihood, "repeats", None)
        levels = (rows if repeats is None else rows / repeats).expand_as(targets).clone()
        levels[..., -num_rows:] += extra.unsqueeze(-1)
    with settings.min_fixed_noise(double_value=0.0):  # it would silently raise small levels
        model.likelihood = FixedNoiseGaussianLikelihood(levels).eval()
    model.prediction_strategy = None


def _refusal(model: Model, reason: str) -> str:
    return (
        f"{type(model).__name__} cannot take pseudo-observations for pending points: {reason}. Use "
        "an exact Gaussian process (SingleTaskGP, BanditGP, ModelListGP of such), or leave "
        "X_pending out."
    )
