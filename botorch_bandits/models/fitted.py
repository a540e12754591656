"""The model of practitioners: scale, mean, lengthscales and noise learned from the data.

It is BoTorch's ``SingleTaskGP`` with its own priors, on normalized inputs and standardized
outcomes, fitted anew whenever the data change. No theorem covers learned hyperparameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Box


class FittedSingleTaskGP:
    """Builds BoTorch's ``SingleTaskGP`` on normalized inputs, fitted by marginal likelihood.

    For a loop whose user knows neither the scale of the reward nor its smoothness. What is
    learned from the data voids the theorems; :meth:`BanditLoop.guarantee` says so.

    Args:
        bounds: What inputs are normalized with, as :class:`~botorch_bandits.Box` takes it: one
            ``(low, high)`` tuple a dimension, or a ``2 x d`` tensor, array or nested list.

    Raises:
        TypeError: If ``bounds`` is a tensor of another dtype than float64.
        ValueError: If its shape is another, or a lower bound is not below its upper bound.

    Example:
        >>> import torch
        >>> X = torch.rand(5, 2, dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0, 0.0], [1.0, 1.0]])(X, X.sum(-1, keepdim=True))
        >>> model.posterior(X).mean.shape
        torch.Size([5, 1])
    """

    def __init__(self, bounds: Tensor | Sequence[Sequence[float]]) -> None:
        """See the class."""
        self.bounds = Box(bounds).bounds

    def __repr__(self) -> str:
        """Show the bounds."""
        return f"FittedSingleTaskGP({self.bounds.tolist()})"

    def __call__(self, X: Tensor, Y: Tensor) -> SingleTaskGP:
        """Build and fit the model.

        Args:
            X: ``n x d`` inputs, ``n`` at least 1.
            Y: ``n x 1`` rewards.
        """
        bounds = self.bounds.to(X)
        model = SingleTaskGP(
            X,
            Y,
            input_transform=Normalize(X.shape[-1], bounds=bounds),
            outcome_transform=Standardize(1),
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model.eval()


fill_in_docstrings(__name__)
