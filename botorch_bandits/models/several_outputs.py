"""Independent outputs of the same rows as separate models, and how a loop builds these models.

Outputs with equal hyperparameters differ only in their outcomes: all but the first reuse the model
of the first with other outcomes and share its factor of the kernel matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botorch.models import ModelListGP
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.core.kernels import kernel_of_output


class OutputsBuilder:
    """Builds a model for each output, and continues the previous ones.

    Args:
        continue_model: Given the previous result (or None), inputs, the outcomes of an output, its
            kernel and its noise, returns the new result.
        remember: Given inputs, outcomes, a kernel and a model, returns the result to keep.
    """

    def __init__(self, continue_model: Callable[..., Any], remember: Callable[..., Any]) -> None:
        """See the class."""
        self._continue, self._remember = continue_model, remember
        self._latest: list[Any] = []
        self._kernel_of_all: Kernel | None = None  # the source of the kernels of the outputs
        self._kernels: list[Kernel] = []

    def __call__(self, X: Tensor, Y: Tensor, kernel: Kernel, noise: float | Tensor) -> ModelListGP:
        """Return one model for each output, with its part of the hyperparameters of all.

        Args:
            X: ``n x d``.
            Y: ``n x m``.
            kernel: The kernel of all outputs, or one with a batch entry per output.
            noise: The noise variance of all outputs, or one per output.
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
        return ModelListGP(*(each.model for each in built))

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
