"""Scores and their slopes from mean, deviation and width, and the rules that score arms.

Drop-in acquisition functions, their closed forms and their rules on arms all compute their values
with :func:`score`. A rule on arms takes mean and deviation from the exact posterior on a finite
set, for one stream or for a batch of replicates; the loop on arms and the batched simulation play
these rules.

Whether two values count as equal, or a variance as 0, must not depend on the unit of the outcomes:
it is decided in prior standard deviations, relative to the prior mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from botorch.posteriors.posterior import Posterior
from torch import Tensor

from botorch_bandits.confidence import PriorSummary, UnreadablePriorError
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.reading import prior_means, variance_of


def half_width(deviation: Tensor, width: float | Tensor, in_place: bool = False) -> Tensor:
    """Return ``width * deviation``, the distance of a confidence bound from the mean.

    Args:
        deviation: Posterior standard deviations, or deviations of a draw from the mean.
        width: The width, which broadcasts against them.
        in_place: Whether to overwrite ``deviation``; only possible without automatic
            differentiation.
    """
    return deviation.mul_(width) if in_place else deviation * width


def score(mean: Tensor, half: Tensor, sign: float = 1.0) -> Tensor:
    """Return ``sign * mean + half``: the upper bound, or minus the lower one.

    Args:
        mean: Posterior means.
        half: The result of :func:`half_width`.
        sign: 1 to maximize the reward, -1 to minimize it.
    """
    return torch.add(half, mean, alpha=sign)


def prior_variance_of_scalar(summary: PriorSummary) -> float | None:
    """Return the prior variance of the scalar that an acquisition function sees.

    Args:
        summary: The summary of the model, including the transform that combines several outputs
            into one. In a batch of models, the largest variance counts.

    Returns:
        None if the prior cannot be read, or has no variance.
    """
    if _PRIOR_VARIANCE in vars(summary):  # the prior is read at most once
        known: float | None = vars(summary)[_PRIOR_VARIANCE]
        return known
    vars(summary)[_PRIOR_VARIANCE] = found = _read_prior_variance(summary)
    return found


_PRIOR_VARIANCE = "_prior_variance_of_scalar"


def _read_prior_variance(summary: PriorSummary) -> float | None:
    try:
        priors, weights = summary.active_priors, _weights(summary)
    except (UnreadablePriorError, ValueError):
        return None
    parts = [
        (weight * prior.standard_deviation.detach().cpu()) ** 2
        for weight, prior in zip(weights, priors, strict=True)
    ]
    if not all(part.numel() for part in parts):
        return None
    variance = float(torch.stack(torch.broadcast_tensors(*parts)).sum(0).max())
    return variance if 0.0 < variance < math.inf else None


def prior_variances(summaries: Sequence[PriorSummary]) -> list[float]:
    """Return the prior variance of each of several scalars, 1 where it cannot be read.

    Args:
        summaries: One per scalar.
    """
    return [prior_variance_of_scalar(summary) or 1.0 for summary in summaries]


def prior_mean_of_scalar(summary: PriorSummary) -> float:
    """Return the prior mean of a model's scalar at its first row; 0 if it cannot be read.

    Args:
        summary: As for :func:`prior_variance_of_scalar`.
    """
    try:
        active, weights = summary.active_outputs, _weights(summary)
        means = prior_means(summary.model)
    except (UnreadablePriorError, ValueError):
        return 0.0
    if means is None or any(not means[j].numel() for j in active):
        return 0.0
    offset = float(getattr(summary.posterior_transform, "offset", 0.0))
    mean = offset + sum(
        weight * float(means[j][0]) for weight, j in zip(weights, active, strict=True)
    )
    return mean if math.isfinite(mean) else 0.0


def _weights(summary: PriorSummary) -> list[float]:
    """Return the weights of the active outputs."""
    transform = summary.posterior_transform
    if transform is None:
        return [1.0] * len(summary.active_outputs)
    return [float(transform.weights[j]) for j in summary.active_outputs]


def scale_in_outcomes(summary: PriorSummary, sign: float = 1.0) -> ValueScale | None:
    """Return the scale of values in outcome units, such as confidence bounds.

    Args:
        summary: The prior summary of the model.
        sign: -1 if the values are those of minus the reward.

    Returns:
        None if the prior cannot be read.
    """
    variance = prior_variance_of_scalar(summary)
    if variance is None:
        return None
    return ValueScale(sign * prior_mean_of_scalar(summary), math.sqrt(variance))


def deviation_of(posterior: Posterior, summary: PriorSummary, smallest_share: float) -> Tensor:
    """Return the posterior standard deviations of a scalar.

    Args:
        posterior: The posterior of the scalar.
        summary: The prior summary of the model. If the prior cannot be read, its variance counts
            as 1.
        smallest_share: Smaller variances are replaced by this many prior variances.
    """
    unit = prior_variance_of_scalar(summary) or 1.0
    return variance_of(posterior, unit).clamp_min(smallest_share * unit).sqrt()
