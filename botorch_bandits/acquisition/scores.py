"""What is known at points: moments, scores, confidence bounds, and the scale of values.

Whether two values count as equal, or a variance as 0, must not depend on the unit of the outcomes:
it is decided in prior standard deviations, relative to the prior mean.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import PriorSummary, UnreadablePriorError
from botorch_bandits.domains import ValueScale
from botorch_bandits.models import CandidatesModel
from botorch_bandits.models.reading import (
    moments_of_each,
    posterior_of_each,
    prior_means,
)


class Bounds(NamedTuple):
    """What is known at ``n`` points, in outcome units, from the outcomes that have arrived.

    Attributes:
        mean: ``n`` posterior means of the reward.
        deviation: ``n`` posterior standard deviations of the reward, without noise.
        lower: ``n`` lower confidence bounds on the reward, or None if the method has none.
        upper: ``n`` upper confidence bounds on the reward, or None.
        constraint_mean: ``n x num_constraints`` posterior means, or None if the model has none.
        constraint_lower: ``n x num_constraints`` lower confidence bounds, or None.
        constraint_upper: ``n x num_constraints`` upper confidence bounds, or None.
    """

    mean: Tensor
    deviation: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None
    constraint_mean: Tensor | None = None
    constraint_lower: Tensor | None = None
    constraint_upper: Tensor | None = None

    @classmethod
    def of_outputs(cls, mean: Tensor, deviation: Tensor, half: Tensor) -> Bounds:
        """Separate the reward, which is the first output, from the constraints.

        Args:
            mean: ``n x m`` posterior means.
            deviation: ``n x m`` posterior standard deviations.
            half: ``n x m`` distances of the bounds from the means.
        """
        lower, upper = mean - half, mean + half
        reward = (each[..., 0] for each in (mean, deviation, lower, upper))
        return cls(*reward, *(each[..., 1:] for each in (mean, lower, upper)))

    def at(self, index: Any) -> Bounds:
        """Return what is known at some of the points.

        Args:
            index: The index of the points, as for a tensor.
        """
        return Bounds._make(None if each is None else each[index] for each in self)


def moments_at(
    model: Model, X: Tensor, transform: PosteriorTransform | None = None, noisy: bool = False
) -> tuple[Tensor, Tensor]:
    """Return posterior mean and standard deviation of the reward at some points.

    Args:
        model: The model.
        X: ``n x d`` points, float64.
        transform: Defines the reward; if None, it is the first output.
        noisy: Whether deviations are those of outcomes, with their noise.

    Returns:
        ``n`` each; for an ensemble, the moments of the mixture of its members.

    Raises:
        UnsupportedError: If the model has no posterior mean and variance.
    """
    if isinstance(model, CandidatesModel) and transform is None:  # its members have weights
        mean, variance = model.mixture(X)
        return mean, variance.sqrt()
    each = moments_of_each(posterior_of_each(model, X.unsqueeze(-2), transform, noisy), 1)
    mean, variance = (values[..., 0, 0] for values in each)
    if is_ensemble(model):
        among_members = mean.var(-1, correction=0)
        mean, variance = mean.mean(-1), variance.mean(-1) + among_members
    return mean, variance.sqrt()


def score(mean: Tensor, half: Tensor, sign: float = 1.0) -> Tensor:
    """Return ``sign * mean + half``: the upper bound, or minus the lower one.

    Args:
        mean: Posterior means.
        half: The distance of the bound from the mean, ``width * deviation``.
        sign: 1 to maximize the reward, -1 to minimize it.
    """
    return torch.add(half, mean, alpha=sign)


def select_output(index: int, num_outputs: int) -> ScalarizedPosteriorTransform:
    """Return the transform that keeps one output unchanged and drops the others.

    Args:
        index: The output's number, from 0.
        num_outputs: How many outputs the model has.
    """
    weights = torch.zeros(num_outputs, dtype=DTYPE)
    weights[index] = 1.0
    return ScalarizedPosteriorTransform(weights)


def prior_mean_of_scalar(summary: PriorSummary) -> float:
    """Return the prior mean of a model's scalar at its first row; 0 if it cannot be read.

    Args:
        summary: The summary of the model, including the transform that combines several outputs
            into one.
    """
    with suppress(UnreadablePriorError, ValueError):
        (weights, mean), means = summary.weights, prior_means(summary.model)
        if means is not None:
            mean += sum(weight * float(means[j][0]) for j, weight in weights.items())
            return mean if math.isfinite(mean) else 0.0
    return 0.0


def scale_in_outcomes(summary: PriorSummary, sign: float = 1.0) -> ValueScale | None:
    """Return the scale of values in outcome units, such as confidence bounds.

    Args:
        summary: The prior summary of the model.
        sign: -1 if the values are those of minus the reward.

    Returns:
        None if the prior cannot be read.
    """
    variance = summary.scalar_variance
    if variance is None:
        return None
    return ValueScale(sign * prior_mean_of_scalar(summary), math.sqrt(variance))
