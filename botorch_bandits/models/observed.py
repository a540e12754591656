"""What a model was given: its inputs, outcomes and prior mean, in raw units."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Standardize
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE


def observed_inputs(model: Model) -> Tensor | None:
    """Return the raw inputs that a model holds, ``n x d``.

    Args:
        model: Any model. Of several outputs, members or batches all rows are listed; equal sets
            of rows only once.

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
    # in evaluation mode BoTorch keeps transformed inputs, and the raw ones aside
    if not model.training and getattr(model, "input_transform", None) is not None:
        X = getattr(model, "_original_train_inputs", X)
    X = X.detach()
    if X.dim() == 2:
        return X
    sets = X.reshape(-1, *X.shape[-2:])
    same = bool((sets == sets[:1]).all())
    return sets[0] if same else sets.reshape(-1, X.shape[-1])


def observed_outcomes(model: Model) -> tuple[Tensor, ...] | None:
    """Return the outcomes that a model holds, in raw units: one vector an output.

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
    if not isinstance(targets, Tensor):
        return None
    Y = targets.detach()
    Y = Y.unsqueeze(-1) if model.num_outputs == 1 else Y.mT
    Y_raw = _untransform(model, Y)
    return None if Y_raw is None else tuple(column.reshape(-1) for column in Y_raw.unbind(-1))


def prior_means(model: Model) -> tuple[Tensor, ...] | None:
    """Return the prior mean of each output at the model's rows (or at the origin), in raw units.

    Returns:
        One vector an output; None if the model has no mean function that can be read.
    """
    if isinstance(model, ModelListGP):
        parts = [prior_means(submodel) for submodel in model.models]
        if any(part is None for part in parts):
            return None
        return tuple(means for part in parts if part is not None for means in part)
    mean = getattr(model, "mean_module", None)
    inputs = getattr(model, "train_inputs", None)
    if mean is None or not inputs:
        return None
    X: Tensor = inputs[0]
    if X.shape[-2] == 0:
        X = X.new_zeros(*X.shape[:-2], 1, X.shape[-1])
    with torch.no_grad():
        M = mean(X)
    M_raw = _untransform(model, M.unsqueeze(-1) if model.num_outputs == 1 else M.mT)
    if M_raw is None:
        return None
    return tuple(column.reshape(-1) for column in M_raw.detach().unbind(-1))


def check_transformable(name: str, model: Model, values: Sequence[float]) -> None:
    """Raise unless the model's outcome transform maps outcomes to finite numbers.

    Args:
        name: The argument that the outcomes come from, for the error.
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
    if transform is None or type(transform) is Standardize:
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
            kind = _name_of_transform(transform)
            raise ValueError(
                f"{name} is {value:g}, which the outcome transform {kind} of "
                f"{type(model).__name__} maps to {float(bad[0])}. Pass a value that {kind} maps to "
                "a finite number (for Log, one above 0), or a model with Standardize or without "
                "an outcome transform."
            )


def _name_of_transform(transform: Module) -> str:
    if isinstance(transform, ChainedOutcomeTransform):
        parts = [type(part).__name__ for part in transform.values()]
        return f"{type(transform).__name__}({', '.join(parts)})"
    return type(transform).__name__


def _untransform(model: Model, Y: Tensor) -> Tensor | None:
    transform = getattr(model, "outcome_transform", None)
    if transform is None:
        return Y
    was_training = transform.training
    try:
        with torch.no_grad():
            raw: Tensor = transform.eval().untransform(Y)[0]
    except (NotImplementedError, TypeError, ValueError):
        return None
    finally:
        transform.train(was_training)
    return raw
