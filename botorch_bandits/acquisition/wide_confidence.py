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
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.scores import half_width, score
from botorch_bandits.checks import level_of_users_line
from botorch_bandits.confidence import ConstantWidth, PriorSummary, UnreadablePriorError, WidthRule
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

GROWTH_BETWEEN_LOOKS = 1.5
"""A width is checked again once the number of rows, or the width, has grown by this factor."""


_seen: dict[tuple[str, int], tuple[int, float, bool]] = {}
"""The number of rows and the width at the last check of a class in a dimension, and whether a
warning was given. Acquisition functions are rebuilt in every round and do not know the earlier
ones: those of one class, on models of one dimension that keep growing, count as one loop's."""


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
    if width.numel() != 1 or is_ensemble(summary.model):
        return None
    try:
        if summary.num_rows < FEWEST_ROWS:
            return None
        (output,), (prior,) = summary.active_outputs, summary.active_priors
    except (UnreadablePriorError, ValueError):
        return None
    if not prior.learned or prior.standard_deviation.numel() != 1:
        return None
    inputs, outcomes = observed_inputs(summary.model), observed_outcomes(summary.model)
    if inputs is None or outcomes is None or len(outcomes) <= output:
        return None
    values = outcomes[output]
    if len(values) < FEWEST_ROWS:
        return None
    spread = float(values.max() - values.min())
    half = float(width) * float(prior.standard_deviation)
    if half <= spread:
        return None
    return WideBand(name, float(width), half, spread, len(values), inputs)


def remedy_of(rule: WidthRule) -> str:
    """Return a sentence that says what to do about a width that is too large.

    Args:
        rule: The rule of the width; the remedy depends on the ingredients that the user gave.
    """
    # with pending feedback, the rule consists of the width with and that without censoring
    parts = [rule, getattr(rule, "censored", None), getattr(rule, "uncovered", None)]
    not_given = {name for part in parts for name in getattr(part, "not_given", ())}
    given = [
        f"{name}="
        for name in ("rkhs_bound", "noise_bound", "outcome_bound")
        if name not in not_given and any(getattr(part, name, None) is not None for part in parts)
    ]
    is_constant = any(
        isinstance(part, ConstantWidth) or getattr(part, "constant", None) is not None
        for part in parts
    )
    if given:
        what = " and ".join(given) if len(given) < 3 else f"{given[0]}, {given[1]} and {given[2]}"
        rest = "or use hallucination" if is_constant else "or use width=2.0"
        return (
            f"Leave {what} out, give smaller ones, fit the model to standardized outcomes, {rest}."
        )
    if is_constant:
        return "Give a smaller width=, such as 2.0, or leave it out."
    if "rkhs_bound" in not_given:
        return (
            "No bound was given: the width is so large because the model found so little noise. "
            "Use width=2.0, or ImprovedUpperConfidenceBound without any_lambda=."
        )
    return "Use width=2.0."


def optimistic_values(
    model: Model,
    X: Tensor,
    width: Tensor,
    posterior_transform: PosteriorTransform | None,
    maximize: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return confidence bounds, and their distances from the means.

    Args:
        model: The model with pending points.
        X: ``n x 1 x d`` points.
        width: The factor on the standard deviation.
        posterior_transform: The user's transform, if any.
        maximize: If False, the values are minus the lower bounds.
    """
    posterior = model.posterior(X, posterior_transform=posterior_transform)
    deviations = posterior.variance.reshape(-1).clamp_min(0.0).sqrt()
    half = half_width(deviations, width)
    return score(posterior.mean.reshape(-1), half, 1.0 if maximize else -1.0), half


class WarnsOfWideness:
    """The interface of acquisition functions that warn if their width dwarfs the outcomes.

    A width counts as too large if two conditions hold on a fitted model with at least ten rows: the
    width times the prior standard deviation of an output exceeds all differences between its
    outcomes, and, among 128 points and the observed ones, the value is largest where it is most
    optimistic. On Branin, Hartmann6 and an SVM, with widths that were too large,
    the warning was given in a sixth to three quarters of the rounds, nearly all of which were
    rounds of exploration. It was never given with a width of 2 or without bounds.
    """

    model: Model

    @abstractmethod
    def _widths_of_outputs(self) -> Iterable[tuple[str, Tensor, PriorSummary]]:
        """Yield the name, the width and the prior of each output that affects the value."""

    @abstractmethod
    def _values_and_optimism(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return values at ``n x 1 x d`` points, and their excess over the values of the means."""

    @abstractmethod
    def _remedy(self) -> str:
        """Return a sentence that says what to do about a width that is too large."""

    @property
    def is_wide(self) -> bool:
        """Whether the width is so large that outcomes do not affect the choice."""
        band = self._wide_band()
        return band is not None and self._chooses_by_deviation(band.inputs)

    def warn_if_wide(self) -> None:
        """Warn if the width is so large that outcomes do not affect the choice.

        The posterior is evaluated only once while the number of rows grows by half.

        Warns:
            WideConfidenceWarning: If it is. The warning is given only once while the model grows.
        """
        band, name = self._wide_band(), type(self).__name__
        if band is None:
            return
        key = (name, band.inputs.shape[-1])
        rows, width, has_warned = _seen.get(key, (0, 0.0, False))
        if band.num_rows < rows:  # another loop begins
            rows, width, has_warned = 0, 0.0, False
        has_grown = (
            band.num_rows >= GROWTH_BETWEEN_LOOKS * rows
            or band.width >= GROWTH_BETWEEN_LOOKS * width
        )
        if has_warned or not has_grown:
            _seen[key] = (band.num_rows if has_warned else rows, width, has_warned)
            return
        is_wide = self._chooses_by_deviation(band.inputs)
        _seen[key] = (band.num_rows, band.width, is_wide)
        if not is_wide:
            return
        warnings.warn(
            f"{name}: the width {band.width:.3g}{band.name} is out of proportion to the outcomes. "
            f"Where nothing is known the band reaches {band.half:.3g} to either side, and all "
            f"{band.num_rows} outcomes lie within {band.spread:.3g} of each other, so that points "
            f"are chosen by their deviation alone, as in pure exploration. {self._remedy()}",
            WideConfidenceWarning,
            stacklevel=level_of_users_line(),
        )

    def _wide_band(self) -> WideBand | None:
        """Return the band that exceeds the differences between outcomes most, if any does."""
        bands = [wide_band(*each) for each in self._widths_of_outputs()]
        wide = [band for band in bands if band is not None]
        return max(wide, key=lambda band: band.half / max(band.spread, 1e-300), default=None)

    def _chooses_by_deviation(self, inputs: Tensor) -> bool:
        low, high = inputs.amin(0), inputs.amax(0)
        spread_out = spread_points(inputs.shape[-1], NUM_PROBES).to(inputs)
        probes = torch.cat([low + (high - low) * spread_out, inputs])
        with torch.no_grad():
            values, optimism = self._values_and_optimism(probes.unsqueeze(-2))
        chosen = values.reshape(-1).argmax()
        optimism = optimism.reshape(-1)
        return bool(optimism[chosen] >= SHARE_OF_EXPLORATION * optimism.max())
