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
from typing import Any

import torch
from botorch.acquisition.analytic import _log_ei_helper, log_Phi
from botorch.posteriors.posterior import Posterior
from botorch.utils.probability.utils import log_phi
from torch import Tensor

from botorch_bandits.acquisition.rules import log_noise_discount
from botorch_bandits.confidence import PriorSummary, UnreadablePriorError
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    MINIMUM_VARIANCE_OF_IMPROVEMENT,
)
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.moments import prior_means, variance_of


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


def score_and_slope(
    mean: Tensor,
    variance: Tensor,
    mean_slope: Tensor,
    variance_slope: Tensor,
    width: float | Tensor,
    sign: float = 1.0,
    smallest_variance: float = MINIMUM_VARIANCE,
) -> tuple[Tensor, Tensor]:
    """Return scores and their gradients from moments and their gradients.

    Args:
        mean: ``batch_shape`` posterior means.
        variance: ``batch_shape`` posterior variances.
        mean_slope: ``batch_shape x d`` gradients of the means.
        variance_slope: ``batch_shape x d`` gradients of the variances.
        width: The width, which broadcasts against the variances.
        sign: See :func:`score`.
        smallest_variance: Smaller variances are replaced by this.
    """
    deviation = variance.clamp_min(smallest_variance).sqrt()
    of_variance = torch.where(variance >= smallest_variance, 0.5 * width / deviation, 0.0)
    mean_slope = mean_slope if sign > 0.0 else -mean_slope
    slope = torch.addcmul(mean_slope, of_variance.unsqueeze(-1), variance_slope)
    return score(mean, half_width(deviation, width, in_place=True), sign), slope


MAXIMUM_ROWS_FOR_DIFFERENCES = 256
"""With more rows, the evaluation, which is quadratic in them, dominates the cost of a step."""


class ClosedFormBound:
    """An upper confidence bound without automatic differentiation.

    Args:
        posterior: A model's :class:`~botorch_bandits.models.closed_form.ClosedForm`, or that of
            replicates; points, values and gradients then have a first dimension for the replicates.
        width: The factor on the standard deviation; for replicates, ``num_replicates x 1``.
        sign: 1 to maximize the reward, -1 to minimize it.
    """

    def __init__(self, posterior: Any, width: float | Tensor, sign: float) -> None:
        """See the class."""
        self.posterior = posterior
        self.width = width
        self.sign = sign

    def select(self, index: Tensor) -> ClosedFormBound:
        """Return the bound of some of the replicates.

        Args:
            index: Their numbers.
        """
        width = self.width[index] if isinstance(self.width, Tensor) else self.width
        return ClosedFormBound(self.posterior.select(index), width, self.sign)

    @property
    def has_cheap_gradients(self) -> bool:
        """Whether ``d`` more gradients at each point cost less than the steps that they save.

        The kinks of a Matern kernel with ``nu = 1/2`` would spoil their differences.
        """
        is_smooth = self.posterior.kernel.smoothness > 0.5
        return is_smooth and self.posterior.num_rows <= MAXIMUM_ROWS_FOR_DIFFERENCES

    @property
    def smallest_variance(self) -> float:
        """The variance that replaces smaller ones."""
        return MINIMUM_VARIANCE * float(self.posterior.outputscale)

    def value(self, X: Tensor) -> Tensor:
        """Return the ``b`` values at ``b x d`` points."""
        mean, variance = self.posterior.mean_and_variance(X)
        deviation = variance.clamp_min(self.smallest_variance).sqrt_()
        return score(mean, half_width(deviation, self.width, in_place=True), self.sign)

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ``b`` values and ``b x d`` gradients at ``b x d`` points."""
        mean, variance, mean_slope, variance_slope = self.posterior.value_and_gradient(X)
        return score_and_slope(
            mean,
            variance,
            mean_slope,
            variance_slope,
            self.width,
            self.sign,
            self.smallest_variance,
        )


class ClosedFormImprovement:
    r"""The logarithm of expected improvement, or of its probability, without autograd.

    With :math:`u = (\mu - y^*) / \sigma` and :math:`h(u) = \varphi(u) + u \Phi(u)`,

    .. math::
       \ln \mathrm{EI} = \ln \sigma + \ln h(u), \qquad
       \frac{\partial}{\partial \mu} = \frac{\Phi(u)}{\sigma h(u)}, \qquad
       \frac{\partial}{\partial \sigma} = \frac{\varphi(u)}{\sigma h(u)}.

    The probability of improvement is :math:`\Phi(u)`. Augmented expected improvement adds
    :func:`log_noise_discount`, whose slope in the variance is, with
    :math:`t^2 = \sigma^2 + \tau^2`,

    .. math::
       \frac{1}{\sigma^2} - \frac{1}{2 t^2} - \frac{1}{2 t (t + \tau)}.

    Args:
        posterior: As for :class:`ClosedFormBound`.
        best_f: :math:`y^*`, the value to be improved, including the margin.
        sign: 1 to maximize the reward, -1 to minimize it.
        is_expected: Whether it is expected improvement; otherwise it is the probability of
            improvement.
        noise_variance: :math:`\tau^2` of the augmented form of expected improvement.
    """

    def __init__(
        self,
        posterior: Any,
        best_f: float,
        sign: float,
        is_expected: bool,
        noise_variance: float | None = None,
    ) -> None:
        """See the class."""
        self.posterior = posterior
        self.best_f = best_f
        self.sign = sign
        self.is_expected = is_expected
        self.noise_variance = noise_variance

    @property
    def has_cheap_gradients(self) -> bool:
        """See :class:`ClosedFormBound`."""
        return ClosedFormBound(self.posterior, 0.0, self.sign).has_cheap_gradients

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ``b`` values and ``b x d`` gradients at ``b x d`` points."""
        mean, variance, mean_slope, variance_slope = self.posterior.value_and_gradient(X)
        value, deviation, improvement, log_h = self._improve(mean, variance)
        if self.is_expected:
            of_mean = (log_Phi(improvement) - log_h).exp_()
            of_deviation = (log_phi(improvement) - log_h).exp_()
        else:
            of_mean = (log_phi(improvement) - log_h).exp_()
            of_deviation = -of_mean * improvement
        # derivatives with respect to the mean and the variance, whose square root is the deviation
        of_mean = of_mean.mul_(self.sign).div_(deviation)
        of_variance = 0.5 * of_deviation / deviation.square()
        if self.noise_variance is not None:
            used = deviation.square()
            predictive = (used + self.noise_variance).sqrt()
            both = predictive + math.sqrt(self.noise_variance)
            of_variance += 1.0 / used - 0.5 / predictive.square() - 0.5 / (predictive * both)
        of_variance = torch.where(variance >= self._smallest_variance, of_variance, 0.0)
        slope = of_mean.unsqueeze(-1) * mean_slope
        return value, slope.addcmul_(of_variance.unsqueeze(-1), variance_slope)

    def value(self, X: Tensor) -> Tensor:
        """Return the ``b`` values at ``b x d`` points."""
        return self._improve(*self.posterior.mean_and_variance(X))[0]

    @property
    def _smallest_variance(self) -> float:
        return MINIMUM_VARIANCE_OF_IMPROVEMENT * float(self.posterior.outputscale)

    def _improve(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return values, deviations, ``u``, and ``ln h(u)``, or ``ln Phi(u)`` for probabilities."""
        deviation = variance.clamp_min(self._smallest_variance).sqrt_()
        improvement = (mean - self.best_f).mul_(self.sign).div_(deviation)
        if not self.is_expected:
            value = log_Phi(improvement)
            return value, deviation, improvement, value
        log_h = _log_ei_helper(improvement)
        value = log_h + deviation.log()
        if self.noise_variance is not None:
            value = value + log_noise_discount(deviation.square(), self.noise_variance)
        return value, deviation, improvement, log_h


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
