"""A posterior in the form that BoTorch's acquisition functions expect, from known marginals.

Most callers need only means and variances. The covariances among many points are computed on
request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from botorch.posteriors import GPyTorchPosterior
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
        alone = self._marginal_variance.unsqueeze(-1)
        covariance = alone if self._covariance is None else self._covariance()
        return MultivariateNormal(self._marginal_mean, DenseLinearOperator(covariance))

    @property
    def mean(self) -> Tensor:
        """The posterior mean, ``batch_shape x q x 1``."""
        return self._marginal_mean.unsqueeze(-1)

    @property
    def variance(self) -> Tensor:
        """The posterior variance, ``batch_shape x q x 1``."""
        return self._marginal_variance.unsqueeze(-1)
