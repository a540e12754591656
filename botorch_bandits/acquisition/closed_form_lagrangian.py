r"""The bound on a penalized reward without automatic differentiation through the models.

The reward and each constraint have a closed-form posterior with gradients. The value is a function
of their means and variances, a few numbers for each point, and its gradient follows from the chain
rule:

.. math::
   \nabla F = \sum_j \frac{\partial F}{\partial \mu_j} \nabla \mu_j
   + \frac{\partial F}{\partial \sigma_j^2} \nabla \sigma_j^2.

Outputs with equal inputs and hyperparameters share one factor of the kernel matrix, hence one
variance; for all but the first of them, only the means are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.scores import ClosedFormBound
from botorch_bandits.models.closed_form import ClosedForm

FromMoments = Callable[[Tensor, Tensor], Tensor]
"""Maps means and variances of all outputs, ``b x m`` each, to ``b`` values."""


class ClosedFormOfOutputs:
    """Values and gradients of a function of the moments of independent outputs.

    Args:
        posteriors: The closed form of each output; None for an output that the function does not
            use, whose mean and variance are passed as 0 and 1.
        function: A differentiable function from the moments to values.
    """

    def __init__(self, posteriors: Sequence[Any], function: FromMoments) -> None:
        """See the class."""
        self._posteriors = posteriors
        self._function = function
        self._first = [
            next(i for i in range(j + 1) if _share_factor(posteriors[i], posteriors[j]))
            for j in range(len(posteriors))
        ]

    @property
    def has_cheap_gradients(self) -> bool:
        """See :class:`~botorch_bandits.acquisition.scores.ClosedFormBound`."""
        known = [each for each in self._posteriors if each is not None]
        return all(ClosedFormBound(each, 0.0, 1.0).has_cheap_gradients for each in known)

    def value(self, X: Tensor) -> Tensor:
        """Return the ``b`` values at ``b x d`` points."""
        mean, variance = self._empty(X)
        for j, posterior in enumerate(self._posteriors):
            if posterior is None:
                continue
            if self._first[j] < j:
                mean[:, j] = posterior.mean(X)
                variance[:, j] = variance[:, self._first[j]]
            else:
                mean[:, j], variance[:, j] = posterior.mean_and_variance(X)
        return self._function(mean, variance)

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ``b`` values and ``b x d`` gradients at ``b x d`` points."""
        mean, variance = self._empty(X)
        slopes: dict[int, tuple[Tensor, Tensor]] = {}
        for j, posterior in enumerate(self._posteriors):
            if posterior is None:
                continue
            first = self._first[j]
            if first < j:
                mean[:, j], mean_slope = posterior.mean_and_gradient(X)
                variance[:, j], slopes[j] = variance[:, first], (mean_slope, slopes[first][1])
            else:
                mean[:, j], variance[:, j], *both = posterior.value_and_gradient(X)
                slopes[j] = (both[0], both[1])
        with torch.enable_grad():
            mean.requires_grad_()
            variance.requires_grad_()
            value = self._function(mean, variance)
            outer = torch.autograd.grad(value.sum(), (mean, variance))
        gradient = torch.zeros_like(X)
        for j, (mean_slope, variance_slope) in slopes.items():
            gradient.addcmul_(outer[0][:, j, None], mean_slope)
            gradient.addcmul_(outer[1][:, j, None], variance_slope)
        return value.detach(), gradient

    def _empty(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean = X.new_zeros(len(X), len(self._posteriors))
        return mean, torch.ones_like(mean)


def closed_forms_of_outputs(model: Model, wanted: Sequence[bool]) -> list[Any] | None:
    """Return the closed form of each output of a list of models.

    Args:
        model: A ``ModelListGP`` of models of one output.
        wanted: The outputs for which one is needed.

    Returns:
        None if a required output has no closed form, or the model is of another type.
    """
    if type(model) is not ModelListGP or len(model.models) != len(wanted):
        return None
    found = [
        getattr(each, "closed_form", None) if needed else None
        for each, needed in zip(model.models, wanted, strict=True)
    ]
    if any(each is None for each, needed in zip(found, wanted, strict=True) if needed):
        return None
    return found


def _share_factor(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if not isinstance(one, ClosedForm) or not isinstance(other, ClosedForm):
        return False
    return one.shares_factor_with(other)
