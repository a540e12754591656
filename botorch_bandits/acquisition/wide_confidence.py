"""Detect confidence widths that dwarf the outcomes, and warn about them once.

A bound with such a width is largest where the deviation is largest, regardless of the outcomes. A
class whose bound has widths inherits from :class:`WarnsOfWideness`, and declares which widths it
uses and how optimistic its values are.
"""

from __future__ import annotations

import threading
import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.scores import half_width, score
from botorch_bandits.checks import level_of_users_line
from botorch_bandits.confidence import ConstantWidth, PriorSummary, UnreadablePriorError, WidthRule
from botorch_bandits.confidence.censored import PendingWidth
from botorch_bandits.models.censoring import spread_points
from botorch_bandits.models.condition import observed_inputs, observed_outcomes


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


class _Looks:
    """Remembers at how many rows widths were last checked, and whether that led to a warning.

    An acquisition function is rebuilt in every round and does not know the earlier ones. Functions
    of the same class, on models of the same dimension that keep growing, are therefore assumed to
    belong to one loop.
    """

    largest = 64

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[int, float, bool]] = {}
        self._lock = threading.Lock()

    def is_due(self, key: Any, num_rows: int, width: float) -> bool:
        """Return whether to check this width, given the number of rows of its model."""
        with self._lock:
            rows, largest, has_warned = self._seen.get(key, (0, 0.0, False))
            if num_rows < rows:  # another loop begins
                rows, largest, has_warned = 0, 0.0, False
            grown = num_rows >= GROWTH_BETWEEN_LOOKS * rows
            if has_warned or not (grown or width >= GROWTH_BETWEEN_LOOKS * largest):
                self._seen[key] = (num_rows if has_warned else rows, largest, has_warned)
                return False
            self._seen[key] = (num_rows, width, False)
            while len(self._seen) > self.largest:
                del self._seen[next(iter(self._seen))]
            return True

    def warned(self, key: Any) -> None:
        """Remember that a warning was given."""
        with self._lock:
            rows, width, _ = self._seen.get(key, (0, 0.0, False))
            self._seen[key] = (rows, width, True)


_looks = _Looks()


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
    names = ("rkhs_bound", "noise_bound", "outcome_bound")
    given = [name for name in names if getattr(rule, name, None) is not None]
    not_given = set(getattr(rule, "not_given", ()))
    if isinstance(rule, PendingWidth):
        given = ["outcome_bound"] if rule.censored.outcome_bound is not None else []
        rule = rule.censored if rule.uncovered is None else rule.uncovered
        not_given = set(getattr(rule, "not_given", ()))
        given = [name for name in names if name in given or getattr(rule, name, None) is not None]
    given = [f"{name}=" for name in given if name not in not_given]
    is_constant = isinstance(rule, ConstantWidth) or getattr(rule, "constant", None) is not None
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
        if not _looks.is_due(key, band.num_rows, band.width):
            return
        if not self._chooses_by_deviation(band.inputs):
            return
        _looks.warned(key)
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
