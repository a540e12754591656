"""Detect confidence widths that dwarf the outcomes, and warn about them once.

A bound with such a width is largest where the deviation is largest, regardless of the outcomes.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.base import BanditAcquisition, of_acquisition
from botorch_bandits.acquisition.scores import Bounds, score
from botorch_bandits.checks import level_of_users_line
from botorch_bandits.confidence import Guarantee, PriorSummary, WidthRule
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


class WidthAcquisition(BanditAcquisition):
    """An acquisition function with a width, which warns if the width dwarfs the outcomes.

    A width counts as too large if two conditions hold on a fitted model with at least ten rows: the
    width times the prior standard deviation of an output exceeds all differences between its
    outcomes, and, among 128 points and the observed ones, the value is largest where the deviation
    is nearly the largest. On Branin, Hartmann6 and an SVM, with widths that were too large,
    the warning was given in a sixth to three quarters of the rounds, nearly all of which were
    rounds of exploration. It was never given with a width of 2 or without bounds.
    """

    of_ensemble: ClassVar[str] = "the bound is averaged over the members of an ensemble"
    """What becomes of the members of an ensemble."""
    rule: WidthRule
    width: Any  # a tensor
    scale: float
    posterior_transform: PosteriorTransform | None
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

    def _as_used(self, guarantee: Guarantee) -> Guarantee:
        """Return what remains of a width's guarantee, worded for this use."""
        if self.scale != 1.0:
            guarantee = guarantee.with_gaps(f"the width is scaled by {self.scale:g}")
        if is_ensemble(self.base_model):
            guarantee = guarantee.with_gaps(self.of_ensemble)
        if self.posterior_transform is not None:
            guarantee = guarantee.of_weighted_sum()
        guarantee = guarantee if self.maximize else guarantee.for_minimizing()
        return of_acquisition(self, guarantee)

    def warn_if_wide(self) -> None:
        """Warn if the width is so large that outcomes do not affect the choice.

        Only fitted models with one active output and no batch dimension are checked, because a user
        who gives a prior also states how large the reward is.

        Warns:
            WideConfidenceWarning: If it is. The warning is given only once while the model grows.
        """
        name, model = type(self).__name__, self.base_model
        priors, inputs = self._summary.readable, observed_inputs(model)
        outcomes = observed_outcomes(model)
        if len(priors) != 1 or self.width.numel() != 1 or is_ensemble(model):
            return
        ((output, prior),) = priors.items()
        if not prior.learned or inputs is None or outcomes is None:
            return
        values, width = outcomes[output], float(self.width)
        half = width * float(prior.standard_deviation.max())
        if len(values) < FEWEST_ROWS or half <= float(values.max() - values.min()):
            return
        key = (name, inputs.shape[-1])
        is_same_loop = len(values) >= _told.get(key, len(values) + 1)
        if not is_same_loop and not self._chooses_by_deviation(inputs):
            return
        _told[key] = len(values)
        if is_same_loop:
            return
        warnings.warn(
            f"{name}: the width {width:.3g} is out of proportion to the outcomes. Where nothing is "
            f"known the band reaches {half:.3g} to either side, and all {len(values)} outcomes lie "
            f"within {float(values.max() - values.min()):.3g} of each other, so that points are "
            "chosen by their deviation alone, as in pure exploration. Leave the bounds or width= "
            "out, give smaller ones (width=2.0 is common), or fit the model to standardized "
            "outcomes.",
            WideConfidenceWarning,
            stacklevel=level_of_users_line(),
        )

    def _chooses_by_deviation(self, inputs: Tensor) -> bool:
        low, high = inputs.amin(0), inputs.amax(0)
        spread_out = spread_points(inputs.shape[-1], NUM_PROBES).to(inputs)
        probes = torch.cat([low + (high - low) * spread_out, inputs])
        with torch.no_grad():
            mean, deviation = self.moments(probes)
        chosen = score(mean, deviation * self.width, self._sign).argmax()
        return bool(deviation[chosen] >= SHARE_OF_EXPLORATION * deviation.max())
