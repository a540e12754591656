"""A Gaussian posterior that knows its marginals and builds its joint distribution when asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from botorch.posteriors import GPyTorchPosterior
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from linear_operator.operators import DenseLinearOperator
from torch import Tensor

from botorch_bandits.models.closed_form import ClosedForm


class LeanPosterior(GPyTorchPosterior):
    """BoTorch's posterior of one output, from marginals that are known already.

    Analytic acquisition functions ask for nothing but mean and variance; building a GPyTorch
    distribution would take longer than computing them. Sampling, quantiles and posterior transforms
    work as with any ``GPyTorchPosterior``.

    Args:
        mean: ``batch_shape x q``.
        variance: ``batch_shape x q``, with the observation noise if that was asked for.
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
        """The joint distribution goes along, the model that would compute it does not."""
        if self._covariance is not None:
            _ = self.distribution
        return self.__dict__ | {"_covariance": None}


def marginals(closed_form: ClosedForm, X: Tensor, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return posterior mean and variance, ``b`` each, at ``b x d`` points.

    They have first derivatives in ``X``; asking for second ones is a ``RuntimeError``. Variances
    below GPyTorch's ``min_variance`` become that, without a gradient, as in GPyTorch.

    Args:
        closed_form: The posterior.
        X: The points, as the kernel sees them.
        noise: Added to the variance.
    """
    lowest = settings.min_variance.value(X.dtype)
    if torch.is_grad_enabled() and X.requires_grad:
        return _Marginals.apply(X, closed_form, noise, lowest)
    mean, variance = closed_form.mean_and_variance(X)
    return mean, variance.add_(noise).clamp_min_(lowest)


class _Marginals(torch.autograd.Function):
    """Mean and variance, with gradients that come with the values at little cost."""

    @staticmethod
    def forward(
        ctx: Any, X: Tensor, closed_form: ClosedForm, noise: float, lowest: float
    ) -> tuple[Tensor, Tensor]:
        """Compute values and gradients: both need the same products with the factor."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(X)
        mean, variance, *gradients = closed_form.value_and_gradient(X)
        variance.add_(noise)
        gradients[1].mul_((variance >= lowest).unsqueeze(-1))
        ctx.gradients = gradients
        return mean, variance.clamp_min_(lowest)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        """Chain the gradients with the outer ones, ``b`` each."""
        terms = [
            weight.unsqueeze(-1) * gradient
            for weight, gradient in zip(outer, ctx.gradients, strict=True)
            if weight is not None
        ]
        if not terms:
            return None, None, None, None
        total = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        if torch.is_grad_enabled():  # somebody may differentiate the gradient
            total = _OnlyOnce.apply(total, *ctx.saved_tensors)
        return total, None, None, None


class _OnlyOnce(torch.autograd.Function):
    """Returns a gradient that would be taken for a constant, and refuses to differentiate it."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, X: Tensor) -> Tensor:
        """Return the gradient as one that depends on ``X``."""
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> Tensor:
        """Refuse."""
        raise RuntimeError(
            "the posterior of BanditGP can be differentiated once, and this asks for a second "
            "derivative. Inside botorch.settings.propagate_grads(True) the posterior comes from "
            "GPyTorch, which has it."
        )
