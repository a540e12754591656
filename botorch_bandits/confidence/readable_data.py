"""What a confidence set needs to know of a model's data, in units of the prior standard deviation.

A width needs only the prior (:mod:`botorch_bandits.confidence.readable_prior`); the bounds of DMM
need kernel, inputs and outcomes themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.confidence.readable_prior import (
    OutputPrior,
    UnreadablePriorError,
    read_prior,
)


@dataclass(frozen=True, eq=False)
class OutputData:
    """The data of one output, as a theorem sees them: unit-variance kernel, prior mean 0.

    Attributes:
        prior: The prior they were read with.
        kernel_matrix: ``n x n``.
        outcomes: ``n`` outcomes, less the prior mean, in prior standard deviations.
        cross: Maps ``b x d`` raw inputs to ``b x n`` kernel values with the data and ``b`` kernel
            values with themselves; differentiable.
        to_outcome_units: Maps ``b`` values in prior standard deviations and their ``b x d`` raw
            inputs to raw outcome units (the prior mean is added).
    """

    prior: OutputPrior
    kernel_matrix: Tensor
    outcomes: Tensor
    cross: Callable[[Tensor], tuple[Tensor, Tensor]]
    to_outcome_units: Callable[[Tensor, Tensor], Tensor]


def read_data(model: Model) -> tuple[OutputData, ...]:
    """Read the data of each output of an exact Gaussian-process model.

    Args:
        model: Not batched, no ensemble; it is put into evaluation mode.

    Raises:
        UnreadablePriorError: If the model's prior cannot be read, or the model is batched.
    """
    if isinstance(model, ModelListGP):
        return tuple(data for submodel in model.models for data in read_data(submodel))
    priors = read_prior(model)
    if len(model.batch_shape) > 0:
        raise UnreadablePriorError(f"{type(model).__name__} is batched or an ensemble")
    model.eval()
    kernel: Kernel = model.covar_module
    num_outputs = model.num_outputs
    inputs = model.train_inputs[0].detach()
    repeats = getattr(model, "repeats", None)

    def select(values: Tensor, output: int) -> Tensor:
        return values if num_outputs == 1 else values[output]

    def transformed(X: Tensor) -> Tensor:
        Z: Tensor = model.transform_inputs(X)
        return Z if num_outputs == 1 else Z.expand(num_outputs, *Z.shape)

    def read_output(j: int, prior: OutputPrior) -> OutputData:
        unit = prior.prior_variance
        # n_i observations of one input count as one with sqrt(n_i) times kernel and outcome
        root = torch.ones_like(model.train_targets) if repeats is None else repeats.sqrt()

        def cross(X: Tensor) -> tuple[Tensor, Tensor]:
            Z = transformed(X)
            if inputs.shape[-2] == 0:
                values = X.new_zeros(len(X), 0)
            else:
                values = select(kernel(Z, inputs).to_dense(), j) / unit
            return values * select(root, j), select(kernel(Z, diag=True), j) / unit

        def to_outcome_units(values: Tensor, X: Tensor) -> Tensor:
            values = values * unit.sqrt() + select(model.mean_module(transformed(X)), j)
            transform = getattr(model, "outcome_transform", None)
            if transform is None:
                return values
            scale, mean = transform.stdvs.squeeze(-2), transform.means.squeeze(-2)
            return values * scale[..., j] + mean[..., j]

        with torch.no_grad():
            residual = select(model.train_targets - model.mean_module(inputs), j)
        return OutputData(
            prior,
            prior.kernel_matrix() / unit * select(root, j).outer(select(root, j)),
            residual / unit.sqrt() * select(root, j),
            cross,
            to_outcome_units,
        )

    return tuple(read_output(j, prior) for j, prior in enumerate(priors))
