"""Detect confidence widths that dwarf the outcomes, and warn about them once.

A bound with such a width is largest where the deviation is largest, regardless of the outcomes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.base import BanditAcquisition
from botorch_bandits.acquisition.scores import Bounds, score
from botorch_bandits.checks import level_of_users_line
from botorch_bandits.confidence import PriorSummary, UnreadablePriorError, WidthRule
from botorch_bandits.models.censoring import spread_points
from botorch_bandits.models.reading import observed_inputs, observed_outcomes


class WideConfidenceWarning(RuntimeWarning):
    """A confidence width dwarfs the outcomes, so that points are chosen by deviation alone."""


FEWEST_ROWS = 10
"""With fewer outcomes, their spread is unknown, and exploration is appropriate anyway."""

NUM_PROBES = 128
"""The number of points at which a width is checked, spread evenly over the range of the inputs."""

SHARE_OF_EXPLORATION = 0.95
"""A point counts as chosen by its deviation alone if that is at least this share of the largest."""

_told: dict[tuple[str, int], int] = {}
"""The number of rows when a class last warned, or would have warned again, in a dimension.
Acquisition functions are rebuilt in every round and do not know the earlier ones: those of one
class, on models of one dimension that keep growing, count as one loop's."""


class WideBand(NamedTuple):
    """A confidence band that is wider than the range of the outcomes.

    Attributes:
        name: The output it belongs to, for the warning.
        width: The factor on the standard deviation.
        half: How far the band extends to either side where nothing is known, in raw outcome units.
        outcomes: The outcomes, in the same units.
    """

    name: str
    width: float
    half: float
    outcomes: Tensor

    @property
    def spread(self) -> float:
        """The largest difference between outcomes."""
        return float(self.outcomes.max() - self.outcomes.min())


def _band(name: str, width: Tensor, summary: PriorSummary) -> WideBand | None:
    """Return the band where nothing is known, if it can be compared with outcomes.

    Only fitted models with one output and no batch dimension are checked, because a user who gives
    a prior also states how large the reward is. The check costs nothing.

    Args:
        name: The name of the output.
        width: The width in use.
        summary: The summary of the user's model, with a transform that returns one output.
    """
    try:
        (output,), (prior,) = summary.active_outputs, summary.active_priors
    except (UnreadablePriorError, ValueError):  # or several outputs
        return None
    outcomes = observed_outcomes(summary.model)
    if not prior.learned or width.numel() != 1 or is_ensemble(summary.model) or outcomes is None:
        return None
    half = float(width) * float(prior.standard_deviation.max())
    return WideBand(name, float(width), half, outcomes[output])


class WidthAcquisition(BanditAcquisition):
    """An acquisition function with a width, which warns if the width dwarfs the outcomes.

    A width counts as too large if two conditions hold on a fitted model with at least ten rows: the
    width times the prior standard deviation of an output exceeds all differences between its
    outcomes, and, among 128 points and the observed ones, the value is largest where it is most
    optimistic. On Branin, Hartmann6 and an SVM, with widths that were too large,
    the warning was given in a sixth to three quarters of the rounds, nearly all of which were
    rounds of exploration. It was never given with a width of 2 or without bounds.
    """

    rule: WidthRule
    width: Any  # a tensor
    base_model: Model
    _summary: PriorSummary

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        return (self.rule,)

    def known_at(self, X: Tensor) -> Bounds:
        """Return what is known at some points; the bounds exist if the width is one number.

        Args:
            X: ``n x d`` points, float64.
        """
        mean, deviation = self.moments(X)
        if self.width.numel() != 1:
            return Bounds(mean, deviation)
        half = deviation * self.width.reshape(())
        return Bounds(mean, deviation, mean - half, mean + half)

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, width and information gain at one point.

        Args:
            x: See the base class.
        """
        known = super().describe(x)
        gain = self.rule.information_gain(self._summary)
        if gain is not None:
            known["information_gain"] = float(gain.mean())
        return {**known, "width": float(self.width.mean())}

    def _widths_of_outputs(self) -> Iterable[tuple[str, Tensor, PriorSummary]]:
        """Return the name, the width and the prior of each output that affects the value."""
        return [("", self.width, self._summary)]

    def _values_and_optimism(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return values at ``n x d`` points, and their excess over the values of the means."""
        mean, deviation = self.moments(X)
        half = deviation * self.width
        return score(mean, half, self._sign), half

    def warn_if_wide(self) -> None:
        """Warn if the width is so large that outcomes do not affect the choice.

        Warns:
            WideConfidenceWarning: If it is. The warning is given only once while the model grows.
        """
        bands = [_band(*each) for each in self._widths_of_outputs()]
        wide = [
            band
            for band in bands
            if band is not None and len(band.outcomes) >= FEWEST_ROWS and band.half > band.spread
        ]
        inputs = observed_inputs(self.base_model)
        if not wide or inputs is None:
            return
        band = max(wide, key=lambda band: band.half / max(band.spread, 1e-300))
        name, num_rows = type(self).__name__, len(band.outcomes)
        key = (name, inputs.shape[-1])
        is_same_loop = num_rows >= _told.get(key, num_rows + 1)
        if not is_same_loop and not self._chooses_by_deviation(inputs):
            return
        _told[key] = num_rows
        if is_same_loop:
            return
        warnings.warn(
            f"{name}: the width {band.width:.3g}{band.name} is out of proportion to the outcomes. "
            f"Where nothing is known the band reaches {band.half:.3g} to either side, and all "
            f"{num_rows} outcomes lie within {band.spread:.3g} of each other, so that points "
            "are chosen by their deviation alone, as in pure exploration. Leave the bounds or "
            "width= out, give smaller ones (width=2.0 is common), or fit the model to standardized "
            "outcomes.",
            WideConfidenceWarning,
            stacklevel=level_of_users_line(),
        )

    def _chooses_by_deviation(self, inputs: Tensor) -> bool:
        low, high = inputs.amin(0), inputs.amax(0)
        spread_out = spread_points(inputs.shape[-1], NUM_PROBES).to(inputs)
        probes = torch.cat([low + (high - low) * spread_out, inputs])
        with torch.no_grad():
            values, optimism = self._values_and_optimism(probes)
        return bool(optimism[values.argmax()] >= SHARE_OF_EXPLORATION * optimism.max())
