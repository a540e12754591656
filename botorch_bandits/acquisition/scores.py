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
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from botorch.acquisition.analytic import _log_ei_helper, log_Phi
from botorch.posteriors.posterior import Posterior
from torch import Tensor

from botorch_bandits.confidence import PriorSummary, UnreadablePriorError, WidthRule
from botorch_bandits.confidence.censored import PendingWidth
from botorch_bandits.confidence.irgp import irgp_ucb_width
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    MINIMUM_VARIANCE_OF_IMPROVEMENT,
    WIDTH,
    fit_to_batch,
)
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.arms import ArmsPosterior
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


def along_arms(values: Tensor) -> Tensor:
    """Return one number per replicate so that it broadcasts against ``batch_shape x num_arms``."""
    return values.unsqueeze(-1) if values.dim() else values


class Draw(Protocol):
    """Provides the random numbers of a round; see :class:`RandomBlocks`."""

    def __call__(
        self,
        purpose: str,
        shape: tuple[int, ...],
        distribution: str,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return ``batch_shape x shape`` numbers."""


@dataclass(eq=False)
class ArmsRound:
    """What a rule sees when it chooses, and quantities that are computed from that once.

    Attributes:
        rule: The rule that is played.
        posterior: The posterior given all outcomes that have arrived; ``batch_shape`` is the shape
            of the replicates.
        summary: The prior, for widths.
        round_number: The number of the round, from 1.
        largest_outcome: ``batch_shape``; the largest outcome so far, minus infinity without any.
        smallest_outcome: ``batch_shape``; the smallest outcome so far, infinity without any.
        draw: A function that maps a purpose, a shape, a distribution and an operation on whole
            blocks of rounds to the random numbers of this round, ``batch_shape x shape``.
        pending: ``batch_shape x k`` arms whose outcomes have not arrived, or None.
        prior_mean: The prior mean, which has been subtracted from the outcomes of the posterior.
        prior_deviation: The prior standard deviation, the unit of ties and floors.
        among: The arms that may be chosen, in order; None for all. Scores of other arms may be
            larger than the acquisition function's values.
    """

    rule: ArmsRule
    posterior: ArmsPosterior
    summary: PriorSummary
    round_number: int
    largest_outcome: Tensor
    smallest_outcome: Tensor
    draw: Draw
    pending: Tensor | None = None
    prior_mean: float = 0.0
    prior_deviation: float = 1.0
    among: Tensor | None = None

    @property
    def value_scale(self) -> ValueScale:
        """The scale of the rule's scores; see :meth:`ArmsRule.value_scale`."""
        return self.rule.value_scale(self)

    def redrawn(self, number: int) -> ArmsRound:
        """Return the same round with other random numbers.

        Args:
            number: Which random numbers, counted from 1; 0 means those of the round itself.
        """
        if number == 0:
            return self
        dim = len(self.posterior.batch_shape)

        def draw(
            purpose: str,
            shape: tuple[int, ...],
            distribution: str,
            transform: Callable[[Tensor], Tensor] | None = None,
        ) -> Tensor:
            block = f"{purpose} redrawn {(number - 1) // DRAWS_AT_ONCE}"
            numbers = self.draw(block, (DRAWS_AT_ONCE, *shape), distribution, transform)
            return numbers.select(dim, (number - 1) % DRAWS_AT_ONCE)

        return replace(self, draw=draw)

    @cached_property
    def prepared(self) -> Any:
        """What the rule computes once in each round; see :meth:`ArmsRule.prepare`."""
        return self.rule.prepare(self)

    @cached_property
    def scores(self) -> Tensor:
        """``batch_shape x num_arms``; the rule's scores."""
        return self.rule.scores(self)

    @cached_property
    def mean(self) -> Tensor:
        """``batch_shape x num_arms``; the posterior mean in outcome units."""
        mean = self.posterior.mean
        return mean if self.prior_mean == 0.0 else mean + self.prior_mean

    @cached_property
    def variance(self) -> Tensor:
        """``batch_shape x num_arms``; pending arms count as known (hallucination)."""
        if self.pending is None:
            return self.posterior.variance
        return self.posterior.variance_given(self.pending)

    def standard_deviation(self, smallest_share: float) -> Tensor:
        """``batch_shape x num_arms``; variances are clamped as the acquisition function does.

        Args:
            smallest_share: The share of the prior variance that replaces smaller variances.
        """
        smallest_variance = self.prior_share(smallest_share)
        if self.pending is None:
            return self.posterior.clamped_variance(smallest_variance).sqrt_()
        return self.variance.clamp_min(smallest_variance).sqrt_()

    def prior_share(self, share: float) -> float:
        """Return a share of the prior variance."""
        return share * self.prior_deviation * self.prior_deviation


DRAWS_AT_ONCE = 16
"""The size of the groups in which random numbers of further draws in a round are made."""


class ArmsRule(ABC):
    """Scores arms; the arm with the largest score is played, the first one in case of a tie."""

    needs_extremes: bool = False
    """Whether it looks at the largest or smallest outcome."""

    takes_pending: ClassVar[bool] = True
    """Whether pending arms affect what it sees; otherwise they make no difference."""

    def prepare(self, seen: ArmsRound) -> Any:
        """Return what scores, bounds and description of a round share as ``seen.prepared``."""
        return None

    @abstractmethod
    def scores(self, seen: ArmsRound) -> Tensor:
        """Return ``batch_shape x num_arms`` scores: the values of the acquisition function."""

    def value_scale(self, seen: ArmsRound) -> ValueScale:
        """Return the scale of the scores: prior standard deviations from the prior mean.

        Args:
            seen: The round, of which only the prior is used.
        """
        sign = 1.0 if getattr(self, "maximize", True) else -1.0
        return ValueScale(sign * seen.prior_mean, seen.prior_deviation)

    def bounds(self, seen: ArmsRound) -> tuple[Tensor, Tensor] | None:
        """Return lower and upper confidence bounds, each ``batch_shape x num_arms``, if any."""
        return None

    def describe(self, seen: ArmsRound, arm: Tensor) -> dict[str, Tensor]:
        """Return more diagnostics of one arm per replicate, each ``batch_shape``, by name."""
        return {}


class RoundWidth(NamedTuple):
    """The width of a round and the resulting half-widths of the bounds.

    Attributes:
        width: A scalar or ``batch_shape``.
        half: ``batch_shape x num_arms``; the distance of the bounds from the mean.
    """

    width: Tensor
    half: Tensor


@dataclass(frozen=True, eq=False)
class WidthArmsRule(ArmsRule):
    """``mean + width * standard deviation``, the rule of every upper confidence bound.

    Attributes:
        rule: Computes the width.
        scale: A factor on the width.
        maximize: If False, the score is ``-mean + width * standard deviation``.
        predictive: Whether standard deviations include the noise.
    """

    rule: WidthRule
    scale: float = 1.0
    maximize: bool = True
    predictive: bool = False

    def width(self, seen: ArmsRound) -> Tensor:
        """Return the width, a scalar or ``batch_shape``."""
        width = fit_to_batch(WIDTH, self._compute_width(seen), seen.posterior.batch_shape)
        return width.to(seen.posterior.device)

    def deviation(self, seen: ArmsRound) -> Tensor:
        """Return what the width multiplies as a new tensor, ``batch_shape x num_arms``."""
        if self.predictive:
            noisy = seen.variance + seen.posterior.lam
            return noisy.clamp_min(seen.prior_share(MINIMUM_VARIANCE)).sqrt_()
        return seen.standard_deviation(MINIMUM_VARIANCE)

    def prepare(self, seen: ArmsRound) -> RoundWidth:
        width = self.width(seen)
        half = half_width(self.deviation(seen), along_arms(width), in_place=True)
        return RoundWidth(width, half)

    def scores(self, seen: ArmsRound) -> Tensor:
        return score(seen.mean, seen.prepared.half, 1.0 if self.maximize else -1.0)

    def bounds(self, seen: ArmsRound) -> tuple[Tensor, Tensor]:
        half, mean = seen.prepared.half, seen.mean
        return mean - half, mean + half

    def describe(self, seen: ArmsRound, arm: Tensor) -> dict[str, Tensor]:
        known = {"width": seen.prepared.width}
        gain = self.rule.information_gain(seen.summary)
        return known if gain is None else {**known, "information_gain": gain}

    def width_in_round(self, summary: PriorSummary, round_number: int) -> Tensor:
        """Return the scaled width of the rule, a scalar or ``batch_shape``."""
        width = self.rule.width(summary, round_number)
        return width if self.scale == 1.0 else self.scale * width

    def _compute_width(self, seen: ArmsRound) -> Tensor:
        return self.width_in_round(seen.summary, seen.round_number)


@dataclass(frozen=True, eq=False)
class RandomizedArmsRule(WidthArmsRule):
    """IRGP-UCB: the width is drawn independently for each round and replicate.

    Only the part of its rule that censored feedback adds is computed.
    """

    def _compute_width(self, seen: ArmsRound) -> Tensor:
        draw = seen.draw("IRGP-UCB", (), "exponential")
        width = irgp_ucb_width(seen.posterior.num_arms, draw)
        if isinstance(self.rule, PendingWidth):
            width = width + self.rule.added(seen.summary)
        return width


@dataclass(frozen=True, eq=False)
class ThompsonArmsRule(ArmsRule):
    """An exact joint draw whose deviation from the mean is multiplied by a width.

    Attributes:
        rule: Computes the width.
        scale: A factor on the width.
        maximize: If False, the smallest value of the draw is played.
    """

    rule: WidthRule
    scale: float = 1.0
    maximize: bool = True

    takes_pending: ClassVar[bool] = False  # each round and each pending set has its own draw

    def prepare(self, seen: ArmsRound) -> Tensor:
        """Return the width, a scalar or ``batch_shape``."""
        width = self.scale * self.rule.width(seen.summary, seen.round_number)
        width = fit_to_batch(WIDTH, width, seen.posterior.batch_shape)
        return width.to(seen.posterior.device)

    def scores(self, seen: ArmsRound) -> Tensor:
        posterior = seen.posterior
        simulation = seen.draw(
            "thompson", (posterior.num_normals,), "normal", posterior.simulate_prior
        )
        draw, mean = posterior.correct(simulation), posterior.mean  # minus the prior mean
        half = half_width(draw - mean, along_arms(seen.prepared), in_place=True)
        values = score(seen.mean, half)
        return values if self.maximize else values.neg_()

    def describe(self, seen: ArmsRound, arm: Tensor) -> dict[str, Tensor]:
        known = {"width": seen.prepared}
        gain = self.rule.information_gain(seen.summary)
        return known if gain is None else {**known, "information_gain": gain}


@dataclass(frozen=True, eq=False)
class ImprovementArmsRule(ArmsRule):
    """The logarithm of expected improvement or of the probability of improvement.

    Attributes:
        is_expected: Whether it is expected improvement; otherwise it is the probability of
            improvement.
        incumbent: ``"posterior_mean"`` (best over the arms that were played) or ``"observed"``.
        margin: The amount by which the incumbent must be improved.
        best_f: The incumbent's value, if given.
        maximize: If False, the reward is minimized.
        augmented: Whether expected improvement is discounted by :func:`log_noise_discount`.
    """

    is_expected: bool
    incumbent: str
    margin: float
    best_f: float | None
    maximize: bool
    augmented: bool = False

    @property
    def needs_extremes(self) -> bool:  # type: ignore[override]
        return self.incumbent == "observed"

    def scores(self, seen: ArmsRound) -> Tensor:
        sign = 1.0 if self.maximize else -1.0
        deviation = seen.standard_deviation(MINIMUM_VARIANCE_OF_IMPROVEMENT)
        improvement = sign * (seen.mean - self._best(seen)) - self.margin
        standardized = improvement.div_(deviation)
        if not self.is_expected:
            return log_Phi(standardized)
        value = _log_ei_helper(standardized)
        if self.augmented:
            noise = along_arms(seen.posterior.regularization)
            noise = noise_that_counts(noise, seen.prior_deviation**2)
            value = value + log_noise_discount(deviation.square(), noise)
        return value + deviation.log_()

    def value_scale(self, seen: ArmsRound) -> ValueScale:
        """See the base class; scores are logarithms, whose unit is 1 at any scale."""
        return ValueScale(offset=math.log(seen.prior_deviation) if self.is_expected else 0.0)

    def _best(self, seen: ArmsRound) -> Tensor:
        posterior, worst = seen.posterior, -torch.inf if self.maximize else torch.inf
        extreme = torch.amax if self.maximize else torch.amin
        if self.best_f is not None:
            best = posterior.mean.new_full((*posterior.batch_shape, 1), self.best_f)
        else:
            if self.incumbent == "observed":
                known = seen.largest_outcome if self.maximize else seen.smallest_outcome
                best = known.unsqueeze(-1)
            else:
                played = posterior.counts > 0
                best = extreme(seen.mean.masked_fill(~played, worst), -1, keepdim=True)
            # without observations: the prior mean
            best = best.nan_to_num(posinf=seen.prior_mean, neginf=seen.prior_mean)
        if seen.pending is not None:
            means = seen.mean.gather(-1, seen.pending)
            best = extreme(torch.cat([best, means], dim=-1), -1, keepdim=True)
        return best


@dataclass(frozen=True, eq=False)
class OneMomentArmsRule(ArmsRule):
    """The posterior mean alone, or the standard deviation alone.

    Attributes:
        uses_mean: Whether it is the mean.
        maximize: If False, the score is negated.
    """

    uses_mean: bool
    maximize: bool

    def scores(self, seen: ArmsRound) -> Tensor:
        value = seen.mean if self.uses_mean else seen.standard_deviation(MINIMUM_VARIANCE)
        return value if self.maximize else -value

    def value_scale(self, seen: ArmsRound) -> ValueScale:
        """See the base class; deviations do not shift with the prior mean."""
        scale = super().value_scale(seen)
        return scale if self.uses_mean else ValueScale(unit=scale.unit)


NEGLIGIBLE_NOISE = 1e-3
"""A noise variance of this many prior variances counts as no noise.

A fit learns about this much noise even from exact outcomes, and a discount would then keep the last
digits from being improved.
"""


def noise_that_counts(noise_variance: Tensor, prior_variance: float) -> Tensor:
    """Return the nonnegative noise variance minus a negligible amount, in the same unit.

    Args:
        noise_variance: The noise variance of an outcome.
        prior_variance: The prior variance of the function.
    """
    return (noise_variance - NEGLIGIBLE_NOISE * prior_variance).clamp_min(0.0)


def log_noise_discount(variance: Tensor, noise_variance: Tensor | float) -> Tensor:
    r"""Return the logarithm of the share of an improvement that remains under noise.

    That is :math:`1 - \tau / \sqrt{\sigma^2 + \tau^2}`: 1 where the posterior variance
    :math:`\sigma^2` dwarfs the noise variance :math:`\tau^2`, and near 0 where one more noisy
    outcome would be uninformative (Huang, Allen, Notz and Zeng 2006, the augmented expected
    improvement).

    Args:
        variance: Posterior variances of the function, positive.
        noise_variance: The noise variance of an outcome, in the same unit, nonnegative; it
            broadcasts.
    """
    predictive = (variance + noise_variance).sqrt()
    deviation = noise_variance**0.5
    # the difference in the numerator is multiplied out so that no digits are lost with little noise
    return variance.log() - predictive.log() - (predictive + deviation).log()


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
