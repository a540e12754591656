"""Posteriors in the form that BoTorch's acquisition functions expect, from known marginals.

Most callers need only means and variances. The covariances among many points, for ensembles a
matrix for each member, are computed on request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.fully_bayesian import GaussianMixturePosterior
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DenseLinearOperator
from torch import Tensor


class LeanPosterior(GPyTorchPosterior):
    """BoTorch's posterior of one output, from marginals that are already known.

    Analytic acquisition functions need only mean and variance; building a GPyTorch distribution
    would take longer than computing them. Sampling, quantiles and posterior transforms work as with
    any ``GPyTorchPosterior``.

    Args:
        mean: ``batch_shape x q``.
        variance: ``batch_shape x q``, with the observation noise if that was requested.
        covariance: Computes the ``batch_shape x q x q`` covariance; not needed at ``q = 1``.
    """

    def __init__(
        self, mean: Tensor, variance: Tensor, covariance: Callable[[], Tensor] | None = None
    ) -> None:
        """See the class."""
        self._marginal_mean = mean
        self._marginal_variance = variance
        self._covariance = covariance
        self._is_mt = False
        self._device = mean.device
        self._dtype = mean.dtype

    @cached_property
    def distribution(self) -> MultivariateNormal:
        """The joint distribution, built on first use."""
        if self._covariance is None:
            covariance = self._marginal_variance.unsqueeze(-1)
        else:
            covariance = self._covariance()
        return MultivariateNormal(self._marginal_mean, DenseLinearOperator(covariance))

    @property
    def mean(self) -> Tensor:
        """The posterior mean, ``batch_shape x q x 1``."""
        return self._marginal_mean.unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """The posterior variance, ``batch_shape x q x 1``."""
        return self._marginal_variance.unsqueeze(-1)

    @property
    def base_sample_shape(self) -> torch.Size:
        """The shape of the base samples of one sample, ``batch_shape x q``."""
        return self._marginal_mean.shape

    def _extended_shape(self, sample_shape: torch.Size = torch.Size()) -> torch.Size:  # noqa: B008
        return sample_shape + self._marginal_mean.shape + torch.Size([1])

    def __getstate__(self) -> dict[str, Any]:
        """Keep the joint distribution, but not the model that would compute it."""
        if self._covariance is not None:
            _ = self.distribution
        return self.__dict__ | {"_covariance": None}


class LeanMixture(GaussianMixturePosterior):
    """BoTorch's posterior of an ensemble, from marginals that are already known.

    If many points are evaluated together, as BoTorch does with all rows to find the best, the
    covariance of each member would be by far the largest part of the work, and it is rarely needed.

    Args:
        mean: ``... x members x q``.
        variance: Computes the ``... x members x q`` variances, with the observation noise if that
            was requested.
        covariance: Computes the ``... x members x q x q`` covariances.
    """

    def __init__(
        self, mean: Tensor, variance: Callable[[], Tensor], covariance: Callable[[], Tensor]
    ) -> None:
        """See the class."""
        self._marginal_mean, self._compute_covariance = mean, covariance
        self._mean, self._compute_variance = mean.unsqueeze(-1), variance
        self._mixture_mean = self._mixture_variance = self._mixture_covariance_matrix = None
        self._is_mt = False
        self._device, self._dtype = mean.device, mean.dtype

    @cached_property
    def distribution(self) -> MultivariateNormal:
        """The joint distribution, built on first use."""
        covariance = DenseLinearOperator(self._compute_covariance())
        return MultivariateNormal(self._marginal_mean, covariance)

    @property
    def _covariance_matrix(self) -> Any:
        return self.distribution.lazy_covariance_matrix

    @cached_property
    def _variance(self) -> Tensor:
        return self._compute_variance().unsqueeze(-1)

    @property
    def mean(self) -> Tensor:
        """The posterior mean of each member, ``... x members x q x 1``."""
        return self._mean

    @property
    def variance(self) -> Tensor:
        """The posterior variance of each member, ``... x members x q x 1``."""
        return self._variance

    def __getstate__(self) -> dict[str, Any]:
        """The joint distribution goes along, the model that would compute it does not."""
        kept = {
            "_variance": self._variance,
            "_compute_variance": partial(_same, self._variance.squeeze(-1)),
            "_compute_covariance": partial(_same, self.distribution.covariance_matrix),
        }
        return self.__dict__ | kept


def _same(value: Tensor) -> Tensor:
    return value
