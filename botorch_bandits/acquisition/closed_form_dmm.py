"""The bounds of DMM without automatic differentiation.

At each point one ridge is the tightest, and the gradient is that of its mean and deviation. Where
the bound of the norm is the tightest, which is the same at all points, the gradient vanishes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from botorch_bandits.confidence import RidgeConfidenceSet
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.closed_form import ClosedForm


class ClosedFormRidges:
    """The upper bound, or minus the lower one, with gradients.

    Args:
        posterior: The model's closed form, in raw inputs and outcomes.
        confidence_set: Of its rows.
        weight: What the rows are multiplied with in the set, beside weights of their own.
        sign: 1 to maximize the reward, -1 to minimize it.
    """

    has_cheap_gradients = False
    """The bound has kinks where the tightest ridge changes: differences of slopes mislead."""

    def __init__(
        self,
        posterior: ClosedForm,
        confidence_set: RidgeConfidenceSet,
        weight: float,
        sign: float,
    ) -> None:
        """See the class."""
        self._posterior, self._set, self._sign = posterior, confidence_set, sign
        self._factor: float | Tensor = weight / posterior.outputscale
        if posterior.row_weights is not None:
            self._factor = self._factor * posterior.row_weights
        self._unit = math.sqrt(posterior.outputscale)

    def value(self, X: Tensor) -> Tensor:
        """Return the ``b`` values at ``b x d`` points."""
        values, _ = self._posterior.kernel_values(X)
        lower, upper = self._set.bounds(values.mul_(self._factor), X.new_ones(len(X)))
        return self._in_outcomes(upper if self._sign > 0.0 else -lower)

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ``b`` values and ``b x d`` gradients at ``b x d`` points."""
        values, seen = self._posterior.kernel_values(X)
        cross = values * self._factor
        mean, variance, features, whitened = self._set.moments(cross, X.new_ones(len(X)))
        root = self._set.radicands.clamp_min(0.0).sqrt()
        deviation = variance.sqrt()
        largest = self._set.rkhs_bound

        def end_of(side: float) -> tuple[Tensor, Tensor]:
            end, ridge = (side * mean + deviation * root).min(-1)
            return torch.minimum(end, largest), ridge

        def slope_of(side: float, end: Tensor, ridge: Tensor) -> Tensor:
            of_mean, of_variance = self._set.slopes(features, whitened, ridge)
            at = ridge.unsqueeze(-1)
            is_known = variance.gather(-1, at) > MINIMUM_VARIANCE
            share = torch.where(is_known, root[ridge].unsqueeze(-1) / deviation.gather(-1, at), 0.0)
            slope = side * of_mean - share * of_variance
            return torch.where((end >= largest).unsqueeze(-1), 0.0, slope)

        near, ridge = end_of(self._sign)
        far, other = end_of(-self._sign)
        slope = slope_of(self._sign, near, ridge)
        # an empty set has no bounds: its ends meet in the middle
        is_empty = near < -far
        if bool(is_empty.any()):
            between = 0.5 * (slope - slope_of(-self._sign, far, other))
            slope = torch.where(is_empty.unsqueeze(-1), between, slope)
            near = torch.where(is_empty, 0.5 * (near - far), near)
        slope = slope.mul_(self._factor * self._unit)
        return self._in_outcomes(near), self._posterior.kernel_gradients(X, seen, slope)

    def _in_outcomes(self, end: Tensor) -> Tensor:
        return self._unit * end + self._sign * self._posterior.prior_mean


fill_in_docstrings(__name__)
