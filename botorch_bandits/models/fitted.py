"""The model of practitioners: scale, mean, lengthscales and noise learned from the data.

It is BoTorch's ``SingleTaskGP`` with its own priors, on normalized inputs and standardized
outcomes, fitted anew whenever the data change. Fit and posterior are computed in closed form. No
theorem covers learned hyperparameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import ChainedInputTransform, InputTransform
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood
from torch import Tensor

from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.models.growing import IncrementalGP
from botorch_bandits.models.marginal_likelihood import (
    fit_marginal_likelihood,
    fit_ordinarily,
    has_closed_form,
)


class LearnedGP(IncrementalGP):
    """BoTorch's ``SingleTaskGP`` whose fit and posterior are computed in closed form.

    It has the arguments, the priors and the parameters of ``SingleTaskGP``, and numbers that agree
    with those of ``SingleTaskGP`` to rounding. The closed form is used for one output, without
    batches, with ``Standardize`` or no outcome transform and a stationary kernel; everything else is
    left to BoTorch and GPyTorch.
    """

    learn_hyperparameters = True
    repeats: Tensor | None = None
    within_sum_of_squares = 0.0

    def custom_fit(self, mll: MarginalLogLikelihood, **kwargs: Any) -> MarginalLogLikelihood:
        """Fit the hyperparameters; BoTorch's ``fit_gpytorch_mll`` calls this.

        Args:
            mll: What is maximized.
            **kwargs: The other arguments of ``fit_gpytorch_mll``.

        Returns:
            ``mll`` in evaluation mode.
        """
        if has_closed_form(self):
            return fit_marginal_likelihood(mll, in_logarithms=True, **kwargs)
        return fit_ordinarily(mll, **kwargs)


class FittedSingleTaskGP:
    """Builds BoTorch's ``SingleTaskGP`` on normalized inputs, fitted by marginal likelihood.

    For a loop whose user knows neither the scale of the reward nor its smoothness. What is
    learned from the data voids the theorems; :meth:`BanditLoop.guarantee` says so.

    Args:
        bounds: ``2 x d`` bounds that inputs are normalized with.

    Raises:
        TypeError: If ``bounds`` is a tensor of another dtype than float64.
        ValueError: If it is not ``2 x d``, or a lower bound is not below its upper bound.

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

    def __call__(self, X: Tensor, Y: Tensor) -> LearnedGP:
        """Build and fit the model.

        Args:
            X: ``n x d`` inputs, ``n`` at least 1.
            Y: ``n x 1`` rewards.
        """
        bounds = self.bounds.to(X)
        model = LearnedGP(
            X,
            Y,
            input_transform=Normalize(X.shape[-1], bounds=bounds),
            outcome_transform=Standardize(1),
        )
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model.eval()


fill_in_docstrings(__name__)
