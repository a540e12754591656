"""Independent outputs of the same rows as separate models, and how a loop builds these models.

Outputs with equal hyperparameters differ only in their outcomes: all but the first reuse the model
of the first with other outcomes and share its factor of the kernel matrix. :class:`JointOutputs` is
drawn in the same way as one model of all outputs, with the same random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from botorch.models import ModelListGP
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.core.kernels import (
    StationaryKernel,
    double_kernel,
    expand_kernel,
    kernel_of_output,
)
from botorch_bandits.models.growing import IncrementalGP

TOGETHER = "together"
"""Requests models of outputs that are drawn jointly."""


class JointOutputs(ModelListGP):
    """A list of models of the same rows that is drawn as a single model of all outputs would be.

    Args:
        *models: One per output; their kernels must pass :meth:`can_join`.
    """

    @staticmethod
    def can_join(models: list[Any]) -> bool:
        """Return whether models can be drawn jointly, given what is known about each.

        Args:
            models: Models of the same rows; their closed forms are computed.
        """
        read = [StationaryKernel.read(model.covar_module) for model in models]
        return len({None if each is None else each.smoothness for each in read}) == 1 and all(
            each is not None and isinstance(model, IncrementalGP) and model.factored is not None
            for each, model in zip(read, models, strict=True)
        )

    @property
    def joint_kernel(self) -> Kernel:
        """A copy of the kernels as a single one with a batch of outputs."""
        first, *others = (model.covar_module for model in self.models)
        kernel = double_kernel(first)
        expand_kernel(kernel, torch.Size([len(self.models)]))
        parameters = [dict(each.named_parameters()) for each in (first, *others)]
        for name, parameter in kernel.named_parameters():
            parameter.data = torch.stack([each[name].detach() for each in parameters])
        return kernel.requires_grad_(False)


class OutputsBuilder:
    """Builds a model for each output, and continues the previous ones.

    Args:
        continue_model: Given the previous result (or None), inputs, the outcomes of an output, its
            kernel and its noise, returns the new result.
        remember: Given inputs, outcomes, a kernel and a model, returns the result to keep.
        are_joint: Whether the outputs are to be drawn jointly.
    """

    def __init__(
        self, continue_model: Callable[..., Any], remember: Callable[..., Any], are_joint: bool
    ) -> None:
        """See the class."""
        self._continue, self._remember = continue_model, remember
        self._are_joint = are_joint
        self._latest: list[Any] = []
        self._kernel_of_all: Kernel | None = None  # the source of the kernels of the outputs
        self._kernels: list[Kernel] = []

    def __call__(
        self, X: Tensor, Y: Tensor, kernel: Kernel, noise: float | Tensor
    ) -> ModelListGP | None:
        """Return one model for each output, with its part of the hyperparameters of all.

        Args:
            X: ``n x d``.
            Y: ``n x m``.
            kernel: The kernel of all outputs, or one with a batch entry per output.
            noise: The noise variance of all outputs, or one per output.

        Returns:
            None if the outputs are to be drawn jointly and cannot be.
        """
        columns = Y.split(1, dim=-1)
        kernels = self.kernels(kernel, len(columns))
        has_one_prior = not kernel.batch_shape and not (isinstance(noise, Tensor) and noise.dim())
        built: list[Any] = []
        for j, column in enumerate(columns):
            first = built[0].model if built else None
            if has_one_prior and first is not None and first.grows():
                _ = first.factored  # computed here, so that the others share it
                model = first.with_outcomes(column)
                built.append(self._remember(X, column, kernels[j], model))
                continue
            own_noise = noise[j] if isinstance(noise, Tensor) and noise.dim() else noise
            built.append(self._continue(self._latest[j], X, column, kernels[j], own_noise))
        self._latest = built
        models = [each.model for each in built]
        if not self._are_joint:
            return ModelListGP(*models)
        return JointOutputs(*models) if JointOutputs.can_join(models) else None

    def kernels(self, kernel: Kernel, num_outputs: int) -> list[Kernel]:
        """Return the kernel of each output; the same objects as long as their source is the same.

        Args:
            kernel: The kernel of all outputs, or one with a batch entry per output.
            num_outputs: ``m``.
        """
        if kernel is not self._kernel_of_all or num_outputs != len(self._kernels):
            self._kernel_of_all = kernel
            self._kernels = [kernel_of_output(kernel, j) for j in range(num_outputs)]
            self._latest = [None] * num_outputs
        return self._kernels

    def forget(self) -> None:
        """Forget the previous models; the next ones are built from scratch."""
        self._latest = [None] * len(self._kernels)
