"""The last model of a builder, and how it becomes the next one without a rebuild."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from botorch.models.transforms.input import InputTransform, Normalize
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.confidence.readable_prior import learns_input_scale

if TYPE_CHECKING:
    from botorch_bandits.models.bandit_gp import BanditGP


@dataclass(frozen=True, eq=False)
class BuiltModel:
    """A model and what it was built from.

    Attributes:
        X: ``n x d``.
        Y: ``n x m``.
        kernel: Where its hyperparameters came from; the same object means the same ones.
        model: The model.
        parameters: Copies of its parameters as they were built.
    """

    X: Tensor
    Y: Tensor
    kernel: Kernel
    model: BanditGP
    parameters: list[Tensor]

    @classmethod
    def remember(cls, X: Tensor, Y: Tensor, kernel: Kernel, model: BanditGP) -> BuiltModel:
        """Copy what may change under a builder's hands: the caller may reuse the memory."""
        parameters = [parameter.detach().clone() for parameter in model.parameters()]
        return cls(X.clone(), Y.clone(), kernel, model, parameters)

    def continued(
        self, X: Tensor, Y: Tensor, kernel: Kernel, transform: InputTransform | None
    ) -> BanditGP | None:
        """Return the model that would be built from ``X`` and ``Y``, to the last bit.

        Rows are added or outcomes replaced in ``n^2`` operations.

        Args:
            X: ``n' x d`` inputs.
            Y: ``n' x m`` outcomes.
            kernel: Where the hyperparameters now come from.
            transform: The input transform of the recipe.

        Returns:
            None if this model cannot become it: other hyperparameters, other first inputs, or a
            model that does not grow row by row.
        """
        num_known = self.X.shape[0]
        if (
            kernel is not self.kernel
            or not _keeps_rows_apart(transform)
            or not all(isinstance(rows, Tensor) and rows.dtype == self.X.dtype for rows in (X, Y))
            or X.shape[1:] != self.X.shape[1:]
            or Y.shape != (X.shape[0], 1)
            or X.shape[0] < num_known
            or not torch.equal(X[:num_known], self.X)
            or not self._is_left_as_it_was()
            or not self.model.grows()
        ):
            return None
        model = self.model
        if X.shape[0] == num_known or not torch.equal(Y[:num_known], self.Y):
            model = model.with_outcomes(Y[:num_known])
        if X.shape[0] > num_known:
            grown = model.condition_on_observations(X[num_known:], Y[num_known:])
            model = cast("BanditGP", grown)
        return model

    def _is_left_as_it_was(self) -> bool:
        found = list(self.model.parameters())
        return len(found) == len(self.parameters) and all(map(torch.equal, found, self.parameters))


def _keeps_rows_apart(transform: InputTransform | None) -> bool:
    """Whether a transformed row is the same, to the last bit, whatever the other rows are."""
    return transform is None or (type(transform) is Normalize and not learns_input_scale(transform))
