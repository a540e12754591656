"""The model that practitioners use: scale, mean, lengthscales and noise are learned from the data.

It is BoTorch's ``SingleTaskGP`` on normalized inputs and standardized outcomes, refitted whenever
the data change. The fit and the posterior are computed in closed form. No theorem covers learned
hyperparameters.

**Priors.** The kernel and priors are those that performed best in measurements for a user without
prior knowledge (``docs/league.md``): Matern 5/2 with BoTorch's lengthscale prior, whose median
grows with the square root of the dimension (Hvarfner, Hellsten and Nardi 2024); an output scale
with a wide prior around 1, without which the few large outcomes of a first design hide the
differences near the optimum; and noise that may be as small as 1e-6 of the variance of the outcomes
if many outcomes support it, where BoTorch's default stops at 1e-4.

**Low outcomes.** Outcomes far below the others determine the scale, relative to which everything
else is small: if values range from -1e6 to 0, noise of a thousandth of the standard deviation hides
hundreds of units. A search for the best point need not know how bad a bad point is, so
:func:`winsorized` raises such outcomes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import InputTransform
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from botorch_bandits.checks import check_weights
from botorch_bandits.confidence.prior_reading import outcome_units
from botorch_bandits.core.kernels import smoothness_of_whole
from botorch_bandits.core.marginal_likelihood import MarginalLikelihood
from botorch_bandits.domains import Box, Domain
from botorch_bandits.models.bandit_gp import IncrementalGP, RefitWarning
from botorch_bandits.models.noise import collapse, gaussian_likelihood
from botorch_bandits.random_streams import usual_dtype


class LearnedGP(IncrementalGP):
    """BoTorch's ``SingleTaskGP`` whose fit and posterior are computed in closed form.

    It has the arguments, the priors and the parameters of ``SingleTaskGP``, and numbers that agree
    with those of ``SingleTaskGP`` to rounding. The closed form is used for one output, without
    batches, with ``Standardize`` or no outcome transform and a stationary kernel; everything else
    is left to BoTorch and GPyTorch.
    """

    learn_hyperparameters = True

    @property
    def X_baseline(self) -> Tensor:
        """``n x d`` raw inputs, near which an acquisition function may be largest.

        Learned lengthscales can be short, and the promising regions near the best points are then
        too small for random starting points to find.
        """
        return self.raw_inputs

    def nats_ahead_of_noise(self) -> float:
        """Return by how much the fitted model predicts the outcomes better than noise alone does.

        It is the difference of log likelihoods; minus infinity if the outcomes are equal.
        """
        y, smoothness = self.train_targets, smoothness_of_whole(self.covar_module)
        assert smoothness is not None
        if float(y.abs().max()) < 0.5:  # the largest of n standardized outcomes exceeds .7
            return -math.inf
        X = self.transform_inputs(self.raw_inputs)
        likelihood = MarginalLikelihood(X, y, smoothness, self.repeats, self.within_sum_of_squares)
        kernel: Any = self.covar_module
        with torch.no_grad():
            value, _ = likelihood(
                getattr(kernel, "base_kernel", kernel).lengthscale.reshape(-1).numpy(),
                float(getattr(kernel, "outputscale", 1.0)),
                float(self.likelihood.noise),
                float(self.mean_module.constant),
            )
        n = likelihood.num_observations
        # of standardized outcomes, whose squares sum to n - 1
        return value + 0.5 * n * (math.log(2.0 * math.pi * (n - 1) / n) + 1.0)

    def values_without_noise(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return at which points the outcome is the value of the function, and these values.

        This is so at the model's rows if the learned noise is as small as it can be told from none.

        Args:
            X: ``n x d`` raw points.

        Returns:
            ``n`` booleans, and the ``k`` outcomes at the points for which they are true.
        """
        is_row = (X.unsqueeze(-2) == self.raw_inputs).all(-1)  # n x number of rows
        if float(self.likelihood.noise.detach().max()) > 2.0 * SMALLEST_NOISE:
            is_row = torch.zeros_like(is_row)
        (scale, shift), found = outcome_units(self), is_row.any(-1)
        # rows at the same point have the same outcome, up to such noise
        rows = is_row[found].to(torch.uint8).argmax(-1)
        return found, shift + scale * self.train_targets[rows]


SMALLEST_NOISE = 1e-6
"""Smaller noise variances, in variances of the outcomes, are indistinguishable from none."""

NOISE_PRIOR = (-4.0, 2.0)
"""Mean and standard deviation of the logarithm of the noise variance: from no noise to only noise.

A prior with smaller values lets a few smooth outcomes settle that there is no noise. If the
objective is an accuracy, which is flat in places, the rounds are then spent on one spot.
"""

OUTPUT_SCALE_PRIOR = (0.0, 1.5)
"""Mean and standard deviation of the log of the output scale, in variances of the outcomes."""

SMALLEST_OUTPUT_SCALE = 1e-2
"""The smallest output scale, in variances of the outcomes."""


REACH = 5.0
"""How far below the median :func:`winsorized` keeps outcomes, in distances from it to the top."""


def winsorized(Y: Tensor) -> Tensor:
    """Return the outcomes, with those that are far too low raised to a fence.

    The fence lies :data:`REACH` times as far below the median as the largest outcome lies above it.
    At least half of the outcomes are unchanged. All are unchanged if the median is the largest,
    because the scale is then undetermined. Outcomes in another unit, or with an offset, have the
    same fence.

    Args:
        Y: ``n x m`` outcomes, ``n`` at least 1; each column has its own fence.

    Example:
        >>> winsorized(torch.tensor([[0.0], [1.0], [-3.0], [2.0], [-900.0]])).squeeze(-1)
        tensor([ 0.,  1., -3.,  2., -10.])
    """
    median = Y.median(dim=0).values  # the lower one of two
    above = Y.amax(dim=0) - median
    fence = torch.where(above > 0.0, median - REACH * above, -math.inf)
    return torch.maximum(Y, fence)


def smallest_spread(Y: Tensor) -> float:
    """Return the standard deviation below which outcomes differ by their rounding only.

    Args:
        Y: ``n x m`` outcomes.
    """
    limits = torch.finfo(Y.dtype)
    return max(limits.tiny, 4.0 * limits.eps * float(Y.abs().max()))


def default_kernel(dim: int, learns_outputscale: bool = True) -> Any:
    """Return the kernel with its priors.

    Args:
        dim: The number of inputs, each with its own lengthscale.
        learns_outputscale: Whether the prior variance is learned; otherwise it is 1.
    """
    with usual_dtype():
        base = get_covar_module_with_dim_scaled_prior(dim, use_rbf_kernel=False)
        if not learns_outputscale:
            return base
        return ScaleKernel(
            base,
            outputscale_prior=LogNormalPrior(*OUTPUT_SCALE_PRIOR),
            outputscale_constraint=GreaterThan(
                SMALLEST_OUTPUT_SCALE, transform=None, initial_value=1.0
            ),
        )


def default_likelihood(weights: Tensor | None = None) -> GaussianLikelihood:
    """Return the likelihood with its prior.

    Args:
        weights: ``n``: row ``i`` has the noise variance ``noise / weights[i]``; all are 1 if
            omitted.
    """
    with usual_dtype():
        constraint = GreaterThan(SMALLEST_NOISE, transform=None, initial_value=2.0 * SMALLEST_NOISE)
        likelihood = gaussian_likelihood(
            weights, noise_prior=LogNormalPrior(*NOISE_PRIOR), noise_constraint=constraint
        )
    return likelihood if weights is None else likelihood.to(weights)


class FittedSingleTaskGP:
    """Builds BoTorch's ``SingleTaskGP`` on normalized inputs, fitted by marginal likelihood.

    It is for a loop whose user knows neither the scale of the reward nor its smoothness.
    Hyperparameters learned from the data void the theorems, as :meth:`BanditLoop.guarantee`
    reports.

    Args:
        bounds: The bounds used to normalize inputs, as in :class:`~botorch_bandits.Box`: one
            ``(low, high)`` tuple a dimension, or a ``2 x d`` tensor, array or nested list.

    Raises:
        TypeError: If ``bounds`` is a tensor with a dtype other than float64.
        ValueError: If its shape is wrong, or a lower bound is not below its upper bound.

    Example:
        >>> import torch
        >>> X = torch.rand(5, 2, dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0, 0.0], [1.0, 1.0]])(X, X.sum(-1, keepdim=True))
        >>> model.posterior(X).mean.shape
        torch.Size([5, 1])
    """

    learns_outputscale = True
    # of a domain that provides it, for the bounds of a context
    encode: Callable[[Tensor | None], InputTransform | None] | None = None

    def __init__(self, bounds: Tensor | Sequence[Sequence[float]]) -> None:
        """See the class."""
        self.bounds = Box(bounds).bounds

    @classmethod
    def for_domain(cls, domain: Domain) -> FittedSingleTaskGP:
        """Return a builder of models on a domain.

        Args:
            domain: A domain with ``bounds`` (``2 x d``) or with arms, whose range is used. If it
                has a method ``input_transform(context_bounds=None)``, this returns the transform
                that encodes its points, after a context with these ``2 x c`` bounds.

        Raises:
            TypeError: If it has neither bounds nor arms.
        """
        built = cls(domain.input_bounds)
        if domain.input_transform() is not None:
            built.encode = domain.input_transform
        return built

    def steady(self) -> FittedSingleTaskGP:
        """Return a builder of models whose prior variance is the variance of the outcomes."""
        other = copy(self)
        other.learns_outputscale = False
        return other

    def __repr__(self) -> str:
        """Show the bounds."""
        return f"FittedSingleTaskGP({self.bounds.tolist()})"

    def __call__(
        self, X: Tensor, Y: Tensor, weights: Tensor | None = None
    ) -> LearnedGP | ModelListGP:
        """Build and fit the model.

        Args:
            X: ``n x d`` inputs, ``n`` at least 1. Columns before those of the bounds, such as
                contexts, are normalized by their own range.
            Y: ``n x m`` outcomes, ``m`` at least 1: the reward, and constraint values if there are
                any.
            weights: ``n`` positive numbers, such as the number of observations of which each row is
                the mean: noise variances of rows are in the ratio of their reciprocals. The level
                is learned as the mean of these variances, so that only ratios matter. All are 1 if
                omitted.

        Returns:
            A model of one output, or a list with one model per column of ``Y``.
        """
        if Y.shape[-1] > 1:
            return ModelListGP(*(self._fit(X, y, weights) for y in Y.split(1, dim=-1)))
        return self._fit(X, Y, weights)

    def _fit(self, X: Tensor, y: Tensor, weights: Tensor | None) -> LearnedGP:
        model = self._build(X, y, weights)
        try:
            with warnings.catch_warnings():
                # the fit may evaluate points where the covariance is nearly singular, but it does
                # not end there
                warnings.simplefilter("ignore", NumericalWarning)
                fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        except ModelFittingError as error:
            warnings.warn(
                f"the marginal-likelihood fit to {len(X)} rows failed ({error}); the model has "
                "its starting hyperparameters. Rescaled rewards usually help.",
                RefitWarning,
                stacklevel=4,
            )
            model = self._build(X, y, weights)
        return model.eval()

    def _build(self, X: Tensor, y: Tensor, weights: Tensor | None) -> LearnedGP:
        """Return the model with its starting hyperparameters; outcomes at one point are one row."""
        transform, standardize = self._transform(X), Standardize(1, min_stdv=smallest_spread(y))
        targets, _ = standardize(y)  # by the mean and spread of single outcomes
        repeats, within = None if weights is None else _relative(weights, y), None
        if weights is None:
            rows = collapse(X, targets)
            if len(rows.X) < len(X):
                X, targets, repeats, within = rows
        model = LearnedGP(
            X,
            targets,
            likelihood=default_likelihood(repeats),
            # an encoding of categories adds columns
            covar_module=default_kernel(transform(X[:1]).shape[-1], self.learns_outputscale),
            input_transform=transform,
            outcome_transform=None,
        )
        model.outcome_transform = standardize.eval()
        if repeats is not None:
            model.within_sum_of_squares = within
        return model

    def _transform(self, X: Tensor) -> InputTransform:
        """Return ``Normalize``, or the transform with which the domain encodes its points."""
        bounds, of_contexts = self.bounds.to(X), None
        num_contexts = X.shape[-1] - bounds.shape[-1]
        if num_contexts > 0:
            low, high = X[:, :num_contexts].aminmax(dim=0)
            # contexts that have not differed yet carry no information
            of_contexts = torch.stack([low, torch.where(high > low, high, low + 1.0)])
            bounds = torch.cat([of_contexts, bounds], dim=-1)
        encoded = None if self.encode is None else self.encode(of_contexts)
        return Normalize(X.shape[-1], bounds=bounds) if encoded is None else encoded


def _relative(weights: Tensor, y: Tensor) -> Tensor:
    """Return weights whose reciprocals have the mean 1, so that the learned noise is the average.

    The prior of the noise refers to its share of the variance of the outcomes.
    """
    weights = check_weights("weights", weights, y)
    return weights * weights.reciprocal().mean()
