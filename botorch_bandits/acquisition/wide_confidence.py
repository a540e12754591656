"""Detect confidence widths that dwarf the outcomes, and warn about them once.

A bound with such a width is largest where the deviation is largest, regardless of the outcomes. A
class whose bound has widths inherits from :class:`WarnsOfWideness`, and declares which widths it
uses and how optimistic its values are.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

import torch
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.base import BanditAcquisition
from botorch_bandits.acquisition.scores import half_width, score
from botorch_bandits.checks import level_of_users_line
from botorch_bandits.confidence import PriorSummary, UnreadablePriorError
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
        spread: The largest difference between outcomes, in the same units.
        num_rows: The number of outcomes.
        inputs: ``n x d`` observed inputs.
    """

    name: str
    width: float
    half: float
    spread: float
    num_rows: int
    inputs: Tensor


def wide_band(name: str, width: Tensor, summary: PriorSummary) -> WideBand | None:
    """Return the band where nothing is known, if it exceeds all differences between outcomes.

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
    if not prior.learned or width.numel() != 1 or is_ensemble(summary.model):
        return None
    inputs, outcomes = observed_inputs(summary.model), observed_outcomes(summary.model)
    if inputs is None or outcomes is None or len(outcomes[output]) < FEWEST_ROWS:
        return None
    values = outcomes[output]
    spread = float(values.max() - values.min())
    half = float(width) * float(prior.standard_deviation.max())
    band = WideBand(name, float(width), half, spread, len(values), inputs)
    return band if half > spread else None


class WarnsOfWideness(BanditAcquisition):
    """An acquisition function that warns if its width dwarfs the outcomes.

    A width counts as too large if two conditions hold on a fitted model with at least ten rows: the
    width times the prior standard deviation of an output exceeds all differences between its
    outcomes, and, among 128 points and the observed ones, the value is largest where it is most
    optimistic. On Branin, Hartmann6 and an SVM, with widths that were too large,
    the warning was given in a sixth to three quarters of the rounds, nearly all of which were
    rounds of exploration. It was never given with a width of 2 or without bounds.
    """

    maximize: bool
    _summary: PriorSummary

    @abstractmethod
    def _widths_of_outputs(self) -> Iterable[tuple[str, Tensor, PriorSummary]]:
        """Yield the name, the width and the prior of each output that affects the value."""

    def _values_and_optimism(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return values at ``n x 1 x d`` points, and their excess over the values of the means."""
        ((_, width, _),) = self._widths_of_outputs()
        mean, deviation = self.moments(X.squeeze(-2))
        half = half_width(deviation, width)
        return score(mean, half, 1.0 if self.maximize else -1.0), half

    def warn_if_wide(self) -> None:
        """Warn if the width is so large that outcomes do not affect the choice.

        Warns:
            WideConfidenceWarning: If it is. The warning is given only once while the model grows.
        """
        bands = [wide_band(*each) for each in self._widths_of_outputs()]
        wide, name = [band for band in bands if band is not None], type(self).__name__
        if not wide:
            return
        band = max(wide, key=lambda band: band.half / max(band.spread, 1e-300))
        key = (name, band.inputs.shape[-1])
        is_same_loop = band.num_rows >= _told.get(key, band.num_rows + 1)
        if not is_same_loop and not self._chooses_by_deviation(band.inputs):
            return
        _told[key] = band.num_rows
        if is_same_loop:
            return
        warnings.warn(
            f"{name}: the width {band.width:.3g}{band.name} is out of proportion to the outcomes. "
            f"Where nothing is known the band reaches {band.half:.3g} to either side, and all "
            f"{band.num_rows} outcomes lie within {band.spread:.3g} of each other, so that points "
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
            values, optimism = self._values_and_optimism(probes.unsqueeze(-2))
        chosen = values.reshape(-1).argmax()
        optimism = optimism.reshape(-1)
        return bool(optimism[chosen] >= SHARE_OF_EXPLORATION * optimism.max())
