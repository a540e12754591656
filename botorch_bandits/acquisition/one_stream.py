"""Upper confidence bounds for a single stream on arms, in NumPy on the memory of its posterior.

A round on a few hundred arms is a handful of operations on short arrays, where the overhead of
torch calls exceeds the cost of the arithmetic. :class:`NumpyUpperConfidenceBound` does what
:class:`~botorch_bandits.acquisition.scores.WidthArmsRule` and
:func:`~botorch_bandits.domains.first_of_the_largest` do, operation by operation, so that a loop
makes exactly the choices, to the last bit, that it would make on tensors.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.acquisition.scores import WidthArmsRule
from botorch_bandits.checks import check_finite
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE
from botorch_bandits.domains import ROUNDING, TIE_TOLERANCE, ValueScale, first_of_the_largest
from botorch_bandits.models.arms import ArmsPosterior, ArmsPriorSummary


class NumpyUpperConfidenceBound:
    """Chooses by ``mean + width * standard deviation`` for a single stream.

    Args:
        rule: The rule to play; its deviations exclude noise.
        posterior: The posterior of one stream on the CPU, without pending arms.
        summary: The summary of the posterior, for widths.
        prior_mean: The prior mean, which has been subtracted from the outcomes of the posterior.
        prior_deviation: The prior standard deviation, the unit of ties and floors.
    """

    def __init__(
        self,
        rule: WidthArmsRule,
        posterior: ArmsPosterior,
        summary: ArmsPriorSummary,
        prior_mean: float,
        prior_deviation: float,
    ) -> None:
        """See the class."""
        self.rule = rule
        self._summary = summary
        self._mean, self._variance = posterior.moments_in_numpy
        self._smallest = MINIMUM_VARIANCE * prior_deviation * prior_deviation
        # zero-dimensional arrays, because numpy would convert each plain number to one
        self._floor, self._factor, self._threshold = (np.array(self._smallest) for _ in range(3))
        self._prior_mean = prior_mean
        self._offset = prior_mean if rule.maximize else -prior_mean
        self._unit, self._rounding = prior_deviation, ROUNDING * abs(prior_mean)
        self._width_in_round, self._width = rule.rule.in_numbers(summary), 0.0
        self._scores = np.empty_like(self._mean)
        self._in_torch = torch.from_numpy(self._scores)
        self._shifted = np.empty_like(self._mean)
        self._is_close = np.empty(len(self._mean), dtype=np.bool_)

    def choose(self, round_number: int, among: Tensor | None = None) -> int:
        """Return the arm to play: the first whose score is within a tolerance of the largest.

        Args:
            round_number: The number of the round, from 1; widths grow with it.
            among: The arms that may be played, in order; all if omitted.

        Raises:
            ValueError: If the width is not one number, or a score is not finite.
        """
        width = self._width_in_round(round_number)
        self._width = width = width if self.rule.scale == 1.0 else self.rule.scale * width
        scores = np.maximum(self._variance, self._floor, out=self._scores)
        self._in_torch.sqrt_()  # its last digit is not always that of numpy's root
        self._factor[()] = width
        np.multiply(scores, self._factor, out=scores)
        mean = self._mean
        if self._prior_mean != 0.0:
            mean = np.add(mean, self._prior_mean, out=self._shifted)
        combine = np.add if self.rule.maximize else np.subtract
        combine(scores, mean, out=scores)
        if among is not None:
            scale = ValueScale(self._offset, self._unit)
            return int(first_of_the_largest(self._in_torch, True, scale, among))
        top = float(scores[scores.argmax()])  # NaN if any entry is
        if not math.isfinite(scores.dot(scores)):
            check_finite("the acquisition's values", self._in_torch)
        relative = TIE_TOLERANCE * max(abs(top - self._offset), self._unit)
        self._threshold[()] = top - max(relative, self._rounding)
        return int(np.greater_equal(scores, self._threshold, out=self._is_close).argmax())

    def describe(self, arm: int) -> dict[str, float]:
        """Return the diagnostics of an arm from the last call of :meth:`choose`, by name.

        Args:
            arm: The number of the arm; no outcome may have been added to the posterior since.
        """
        variance = max(float(self._variance[arm]), self._smallest)
        known = {
            "mean": float(self._mean[arm]) + self._prior_mean,
            "standard_deviation": variance**0.5,
            "acquisition_value": float(self._scores[arm]),
            "width": self._width,
        }
        gain = self.rule.rule.information_gain(self._summary)
        return known if gain is None else {**known, "information_gain": float(gain)}
