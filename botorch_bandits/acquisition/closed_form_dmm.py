"""The bounds of DMM without automatic differentiation.

At each point, one ridge gives the tightest bound, and its mean and deviation give the gradient.
Where the bound on the norm, which is the same at all points, is the tightest, the gradient is zero.

With many rows, an evaluation reads the matrix of all eigenvectors twice, which takes most of its
time. Local searches therefore start on a coarse bound that omits eigenvectors with little effect.
The bound itself is then evaluated at the local maxima found, and those that may be the largest are
refined to convergence: the result is a maximum of the bound, not of the coarse one.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.confidence import RidgeConfidenceSet
from botorch_bandits.confidence.bordered_basis import FEWEST_KEPT_ROWS
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE
from botorch_bandits.models.closed_form import ClosedForm
from botorch_bandits.optim import Array, climb

COARSE_STEPS = 8
"""Steps of a climb on the coarse bound, which has kinks: more steps gain little."""

NEARBY = 0.02
"""The expected distance between maxima of the bound and of the coarse one, in sides of the box."""


class ClosedFormRidges:
    """The upper bound, or minus the lower one, with gradients.

    Args:
        posterior: The model's closed form, in raw inputs and outcomes.
        confidence_set: The confidence set of its rows.
        weight: The factor that multiplies the rows in the set, in addition to their own weights.
        sign: 1 to maximize the reward, -1 to minimize it.
    """

    has_cheap_gradients = False
    """The bound has kinks where the tightest ridge changes, so differences of slopes mislead."""

    def __init__(
        self,
        posterior: ClosedForm,
        confidence_set: RidgeConfidenceSet,
        weight: float,
        sign: float,
    ) -> None:
        """See the class."""
        self._posterior, self._set, self._sign = posterior, confidence_set, sign
        self._weight = weight
        self._factor: float | Tensor = weight / posterior.outputscale
        if posterior.row_weights is not None:
            self._factor = self._factor * posterior.row_weights
        self._unit = math.sqrt(posterior.outputscale)

    @cached_property
    def coarse(self) -> ClosedFormRidges | None:
        """The bound without eigenvectors that have little effect; None if it would save little."""
        leading = self._set.leading if self._posterior.num_rows >= FEWEST_KEPT_ROWS else None
        if leading is None:
            return None
        return ClosedFormRidges(self._posterior, leading, self._weight, self._sign)

    def climb(
        self, X: Array, lower: Array, upper: Array, steps: int, deadline: float | None, device: Any
    ) -> tuple[Array, Array] | None:
        """Climb from starting points in a box; see :func:`~botorch_bandits.optim.maximize_locally`.

        Args:
            X: ``b x d`` starting points.
            lower: ``b x d`` lower bounds.
            upper: ``b x d`` upper bounds.
            steps: The maximal number of steps.
            deadline: The deadline on the clock of ``time.monotonic``, or None.
            device: The device of the model.

        Returns:
            ``b x d`` points and their ``b`` values; only the points whose values may be the largest
            are maxima. None if a number is not finite.
        """

        def climbed(form: ClosedFormRidges, X: Array, low: Array, high: Array) -> Any:
            most = min(steps, COARSE_STEPS) if form is self.coarse else steps
            return climb(form, X, low, high, most, deadline, device)

        rough = None if self.coarse is None else climbed(self.coarse, X, lower, upper)
        if rough is None:
            return climbed(self, X, lower, upper)
        points, guesses = rough
        values = self.value(torch.from_numpy(points).to(device)).cpu().numpy()
        slack = 2.0 * float(np.abs(values - guesses).max())
        near, tops = NEARBY * (upper - lower), np.empty((0, X.shape[-1]))
        best = -math.inf
        for i in np.argsort(-values, kind="stable"):
            is_known = (np.abs(tops - points[i]) <= 0.1 * near[i]).all(-1).any()
            if values[i] + slack < best or is_known:
                continue
            tops = np.concatenate([tops, points[i : i + 1]])
            low = np.maximum(lower[i], points[i] - near[i])[None]
            high = np.minimum(upper[i], points[i] + near[i])[None]
            found = climbed(self, points[i : i + 1], low, high)
            if found is not None and self._is_cut_off(found[0], low, high, lower[i], upper[i]):
                found = climbed(self, found[0], lower[i : i + 1], upper[i : i + 1])
            if found is not None and found[1][0] > values[i]:
                points[i], values[i] = found[0][0], found[1][0]
            best = max(best, float(values[i]))
        return points, values

    @staticmethod
    def _is_cut_off(X: Array, low: Array, high: Array, lower: Array, upper: Array) -> bool:
        """Return whether a point is on a side of a small box that the large box does not share."""
        return bool((((low >= X) & (low > lower)) | ((high <= X) & (high < upper))).any())

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
