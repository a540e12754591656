"""Rules: the scores of all points in a round, from the posterior there.

A rule is the value of an acquisition function on a finite set of points. It looks at a
:class:`Seen`: the posterior of all points in the round, and random numbers of the round. The same
rules play a loop and replicates, with and without contexts, windows, weights and constraints: these
change the rows of the posterior, and nothing here.

Whether two scores count as equal, or a variance as 0, is decided in prior standard deviations,
relative to the prior mean, because it must not depend on the unit of the outcomes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from botorch.acquisition.analytic import _log_ei_helper, log_Phi
from torch import Tensor

from botorch_bandits.acquisition.scores import Bounds
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import PriorSummary, WidthRule
from botorch_bandits.confidence.candidate_widths import CandidateWidths
from botorch_bandits.confidence.censored import PendingWidth
from botorch_bandits.confidence.irgp import irgp_ucb_width
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    MINIMUM_VARIANCE_OF_IMPROVEMENT,
    WIDTH,
    fit_to_batch,
)
from botorch_bandits.core.posterior import Posterior
from botorch_bandits.core.priors import Prior
from botorch_bandits.core.round_posterior import RoundPosterior
from botorch_bandits.core.rows import Rows
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.reading import LEAST_VARIANCE
from botorch_bandits.penalties import Linear, Penalty, check_no_overflow

if TYPE_CHECKING:
    from botorch_bandits.acquisition.player import Player

DRAWS_AT_ONCE = 16
"""The size of the groups in which random numbers of further draws in a round are made."""


def along_arms(values: Tensor) -> Tensor:
    """Return one number per replicate so that it broadcasts against ``batch_shape x num_arms``."""
    return values.unsqueeze(-1) if values.dim() else values


@dataclass(eq=False)
class Seen:
    """What a rule sees when it chooses, and quantities that are computed from that once.

    Tensors of one number an arm are ``num_arms``, with replicates ``num_replicates x num_arms``.

    Attributes:
        rule: The rule that chooses.
        player: Who plays it, which knows the prior, the seeds and the unit.
        posterior: The posterior of all arms given the rows of the round.
        rows: These rows as they were given, repeated outcomes one by one.
        round_number: The round of the stream, from 1, for widths.
        draw_round: The round of the whole run, from 1, for random numbers.
        now: The columns in front of all arms; None if there are none.
        pending: Rows that are asked and whose outcomes are not known; None if there are none.
        among: Numbers of the arms that may be chosen; None for all.
        redraw: How many further draws of the round came before.
    """

    rule: ArmsRule
    player: Player
    posterior: Posterior | RoundPosterior
    rows: Rows | None
    round_number: int
    draw_round: int
    now: Tensor | None = None
    pending: Rows | None = None
    among: Tensor | None = None
    redraw: int = 0

    @property
    def summary(self) -> PriorSummary:
        """The prior and the realized gain, as width rules read them."""
        return self.player.summary

    @property
    def prior_mean(self) -> float:
        """The prior mean of the reward."""
        return self.player.prior_mean

    @property
    def prior_deviation(self) -> float:
        """The prior standard deviation, the unit in which ties and floors are decided."""
        return self.player.prior_deviation

    @property
    def lam(self) -> Tensor:
        """The noise variance of the reward, which broadcasts against one number an arm."""
        return along_arms(self.player.outside(self.posterior.lam))

    @property
    def batch_shape(self) -> torch.Size:
        """``()``, or ``(num_replicates,)``."""
        return self.player.batch_shape

    @property
    def value_scale(self) -> ValueScale:
        """The scale of the rule's scores; see :meth:`ArmsRule.value_scale`."""
        return self.rule.value_scale(self)

    @cached_property
    def prepared(self) -> Any:
        """What the rule computes once in each round; see :meth:`ArmsRule.prepare`."""
        return self.rule.prepare(self)

    @cached_property
    def scores(self) -> Tensor:
        """The rule's scores of all arms."""
        return self.rule.scores(self)

    @cached_property
    def mean(self) -> Tensor:
        """The posterior means of the reward in outcome units."""
        return self.player.outside(self.posterior.mean[:, 0])

    @cached_property
    def view(self) -> Posterior | RoundPosterior:
        """The posterior in which pending rows have their means as outcomes (hallucination)."""
        return self.posterior if self.pending is None else self.posterior.given(self.pending)

    @property
    def variances(self) -> Tensor:
        """``G x num_arms`` variances; pending rows count as known."""
        return self.view.variance

    def variance_at(self, arm: int) -> float:
        """Return the variance at one arm of a single stream."""
        at = torch.tensor([arm], device=self.posterior.lam.device)
        return max(float(self.view.variance_at(at)[0, 0]), 0.0)

    @property
    def variance(self) -> Tensor:
        """The posterior variances of the reward, at least 0; pending rows count as known."""
        return self.player.outside(self.variances.clamp_min(0.0))

    def standard_deviation(self, smallest_share: float) -> Tensor:
        """Return new deviations; variances are clamped at a share of the prior variance."""
        smallest = self.prior_share(smallest_share)
        return self.player.outside(self.variances).clamp_min(smallest).sqrt_()

    def deviation_for(self, width: float | Tensor, maximize: bool) -> Tensor:
        """Return new deviations, exact where a bound with this width may be the largest.

        Args:
            width: The factor of the deviation.
            maximize: Whether the largest upper bound is sought, or the smallest lower one.
        """
        smallest, mean = self.prior_share(MINIMUM_VARIANCE), self.mean if maximize else -self.mean
        given = (mean, width, smallest, self.value_scale.tolerance, self.among)
        variance = self.player.outside(self.view.screened_variance(*given))
        return variance.clamp_min(smallest).sqrt_()

    def prior_share(self, share: float) -> float:
        """Return a share of the prior variance."""
        return share * self.prior_deviation * self.prior_deviation

    def columns(self, index: Tensor) -> Tensor:
        """Return posterior covariances of arms with all arms, ``batch_shape x k x num_arms``.

        Args:
            index: ``batch_shape x k`` numbers of arms, at the present front.
        """
        return self.player.outside(self.view.columns(index))

    def extremes(self) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest outcome, infinite if there are none."""
        return self.player.extremes(self.rows)

    def has_observed(self) -> Tensor:
        """Return which arms have outcomes, ``batch_shape x num_arms``, ``bool``."""
        return self.player.has_observed(self.rows)

    def redrawn(self, number: int) -> Seen:
        """Return the same round with other random numbers."""
        return replace(self, redraw=number) if number else self

    def draw(
        self,
        purpose: str,
        shape: tuple[int, ...] = (),
        distribution: str = "normal",
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return random numbers of the round, ``batch_shape x shape``.

        Args:
            purpose: What they are for; another purpose has other numbers.
            shape: Their shape.
            distribution: Their distribution; see :class:`~.random_streams.RandomBlocks`.
            transform: Turns the numbers of many rounds into others.
        """
        if not self.redraw:
            return self.player.numbers(self.draw_round, purpose, shape, distribution, transform)
        block, place = divmod(self.redraw - 1, DRAWS_AT_ONCE)
        name, many = f"{purpose} redrawn {block}", (DRAWS_AT_ONCE, *shape)
        numbers = self.player.numbers(self.draw_round, name, many, distribution, transform)
        return numbers.select(len(self.batch_shape), place)

    def deviations_of_draws(
        self, purposes: Sequence[str] = ("thompson",), group: int | None = None
    ) -> Tensor:
        """Return joint draws of all arms less the posterior mean, ``batch_shape x k x num_arms``.

        Args:
            purposes: What the random numbers of the ``k`` draws are for.
            group: The number of the prior; None if there is one.
        """
        posterior = self.view if group is None else self.view.group(group)
        own, rows = posterior.prior.priors[0], self.player.rows_of_draw(posterior)
        if self.player.numbers_by_row:
            numbers = [self.draw(p, (own.num_normals,), "normal", own.simulate) for p in purposes]
            normal = torch.stack([self._normal_of_rows(p, len(rows)) for p in purposes])[None]
            simulated = torch.stack(numbers)[None]
        else:  # each arm has a number for its noise, and so has each pending row
            count = posterior.prior.num_points
            simulate = partial(_simulated, own)  # a loop that keeps it can be pickled
            size = (own.num_normals + count,)
            numbers = [self.draw(p, size, "normal", simulate) for p in purposes]
            both = torch.stack([each.reshape(-1, 2, count) for each in numbers], dim=2)
            simulated, of_arms = both.unbind(1)  # G x k x A
            waiting = 0 if self.pending is None else len(self.pending)
            normal = of_arms[..., rows.index[: len(rows) - waiting]]
            if waiting:
                more = self.draw(f"hallucinated noise {waiting}", (waiting,))
                normal = torch.cat([normal, more.expand(*normal.shape[:-1], -1)], dim=-1)
        return self.player.outside(posterior.deviation_of_draw(simulated, normal, rows))

    def _normal_of_rows(self, purpose: str, count: int) -> Tensor:
        first, *rest = purpose.split(",")
        name = ",".join([f"{first} rows", *rest])
        if self.redraw:
            name = f"{name} redrawn {self.redraw}"
        return self.player.normal(self.draw_round, name, count)


def _simulated(prior: Prior, normal: Tensor) -> Tensor:
    """Return draws of the prior at all points, and the numbers of their noise, ``... x 2 x A``."""
    rank = prior.num_normals
    return torch.stack([prior.simulate(normal[..., :rank]), normal[..., rank:]], dim=-2)


class ArmsRule(ABC):
    """Scores arms; the arm with the largest score is played, the first one in case of a tie."""

    takes_pending: bool = True
    """Whether pending arms affect what it sees; otherwise they make no difference."""
    num_outputs: int = 1
    """The number of outputs of the posterior that it needs."""

    def prepare(self, seen: Seen) -> Any:
        """Return what scores, bounds and description of a round share as ``seen.prepared``."""
        return None

    @abstractmethod
    def scores(self, seen: Seen) -> Tensor:
        """Return ``batch_shape x num_arms`` scores: the values of the acquisition function."""

    def value_scale(self, seen: Seen) -> ValueScale:
        """Return the scale of the scores: prior standard deviations from the prior mean."""
        sign = 1.0 if getattr(self, "maximize", True) else -1.0
        return ValueScale(sign * seen.prior_mean, seen.prior_deviation)

    def bounds(self, seen: Seen) -> tuple[Tensor, Tensor] | None:
        """Return lower and upper confidence bounds, each ``batch_shape x num_arms``, if any."""
        return None

    def known(self, seen: Seen) -> Bounds:
        """Return what is known of all arms in a round without pending rows."""
        ends = self.bounds(seen) or (None, None)
        return Bounds(seen.mean, seen.standard_deviation(MINIMUM_VARIANCE), *ends)

    def moments(self, seen: Seen, arm: int) -> tuple[float, float]:
        """Return mean and standard deviation of the reward at an arm, for a query's diagnostics."""
        smallest = seen.prior_share(MINIMUM_VARIANCE)
        return float(seen.mean[arm]), max(seen.variance_at(arm), smallest) ** 0.5

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        """Return more diagnostics of one arm per replicate, each ``batch_shape``, by name."""
        return {}


class RoundWidth(NamedTuple):
    """The width of a round and the resulting half-widths of the bounds."""

    width: Tensor | float
    half: Tensor


@dataclass(frozen=True, eq=False)
class WidthArmsRule(ArmsRule):
    """``mean + width * standard deviation``, the rule of every upper confidence bound.

    Attributes:
        rule: The rule of the width.
        scale: A factor on the width.
        maximize: Whether the largest reward is sought.
        predictive: Whether deviations include the noise of an outcome.
    """

    rule: WidthRule
    scale: float = 1.0
    maximize: bool = True
    predictive: bool = False

    def width(self, seen: Seen) -> Tensor | float:
        """Return the width, a number or ``batch_shape``."""
        width = self.width_in_round(seen.summary, seen.round_number)
        width = fit_to_batch(WIDTH, width, seen.batch_shape)
        return float(width) if not seen.batch_shape else width.to(seen.posterior.lam.device)

    def prepare(self, seen: Seen) -> RoundWidth:
        width = self.width(seen)
        if self.predictive:
            noisy = seen.variance + seen.lam
            deviation = noisy.clamp_min(seen.prior_share(MINIMUM_VARIANCE)).sqrt_()
        else:
            deviation = seen.deviation_for(width, self.maximize)
        factor = width if isinstance(width, float) else along_arms(width)
        return RoundWidth(width, deviation.mul_(factor))

    def scores(self, seen: Seen) -> Tensor:
        return torch.add(seen.prepared.half, seen.mean, alpha=1.0 if self.maximize else -1.0)

    def bounds(self, seen: Seen) -> tuple[Tensor, Tensor]:
        return seen.mean - seen.prepared.half, seen.mean + seen.prepared.half

    def moments(self, seen: Seen, arm: int) -> tuple[float, float]:
        mean, deviation = super().moments(seen, arm)
        if self.predictive:
            deviation = math.sqrt(seen.variance_at(arm) + float(seen.posterior.lam[0]))
        return mean, deviation

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        return _with_gain({"width": seen.prepared.width}, self.rule, seen)

    def width_in_round(self, summary: PriorSummary, round_number: int) -> Tensor:
        """Return the scaled width of the rule, a scalar or ``batch_shape``."""
        width = self.rule.width(summary, round_number)
        return width if self.scale == 1.0 else self.scale * width


def _with_gain(
    known: dict[str, Tensor | float], rule: WidthRule, seen: Seen
) -> dict[str, Tensor | float]:
    gain = rule.information_gain(seen.summary)
    return known if gain is None else {**known, "information_gain": gain}


@dataclass(frozen=True, eq=False)
class RandomizedArmsRule(WidthArmsRule):
    """IRGP-UCB: the width is drawn independently for each round and replicate."""

    def width(self, seen: Seen) -> Tensor:
        draw = seen.draw("IRGP-UCB", (), "exponential")
        width = irgp_ucb_width(seen.posterior.prior.num_points, draw)
        if isinstance(self.rule, PendingWidth):  # censored rows add to every width
            width = width + self.rule.added(seen.summary)
        return fit_to_batch(WIDTH, width, seen.batch_shape).to(seen.posterior.lam.device)

    def known(self, seen: Seen) -> Bounds:
        """See the base class; a width that is drawn gives no bounds."""
        return super().known(seen)._replace(lower=None, upper=None)


@dataclass(frozen=True, eq=False)
class ThompsonArmsRule(ArmsRule):
    """An exact joint draw whose deviation from the mean is multiplied by a width.

    Attributes:
        rule: The rule of the width.
        scale: A factor on the width.
        maximize: Whether the largest reward is sought.
        hallucinates: Whether each pending query has the posterior mean as its outcome.
    """

    rule: WidthRule
    scale: float = 1.0
    maximize: bool = True
    hallucinates: bool = False

    @property
    def takes_pending(self) -> bool:  # type: ignore[override]
        """See the base class; otherwise, draws are made again."""
        return self.hallucinates

    def prepare(self, seen: Seen) -> Tensor:
        """Return the width, a scalar or ``batch_shape``."""
        width = self.scale * self.rule.width(seen.summary, seen.round_number)
        return fit_to_batch(WIDTH, width, seen.batch_shape).to(seen.posterior.lam.device)

    def scores(self, seen: Seen) -> Tensor:
        half = seen.deviations_of_draws()[..., 0, :] * along_arms(seen.prepared)
        values = half.add_(seen.mean)
        return values if self.maximize else values.neg_()

    def known(self, seen: Seen) -> Bounds:
        known = super().known(seen)
        half = known.deviation * along_arms(seen.prepared)
        return known._replace(lower=known.mean - half, upper=known.mean + half)

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        return _with_gain({"width": seen.prepared}, self.rule, seen)


@dataclass(frozen=True, eq=False)
class ImprovementArmsRule(ArmsRule):
    """The logarithm of expected improvement or of the probability of improvement.

    Attributes:
        is_expected: Whether it is expected improvement.
        incumbent: ``"observed"`` or ``"posterior_mean"``: what is improved upon.
        margin: By how much at least.
        best_f: What is improved upon, if it was given.
        maximize: Whether the largest reward is sought.
        augmented: Whether it is discounted by the noise.
    """

    is_expected: bool
    incumbent: str
    margin: float
    best_f: float | None
    maximize: bool
    augmented: bool = False

    def scores(self, seen: Seen) -> Tensor:
        sign = 1.0 if self.maximize else -1.0
        deviation = seen.standard_deviation(MINIMUM_VARIANCE_OF_IMPROVEMENT)
        improvement = sign * (seen.mean - self._best(seen)) - self.margin
        noise = noise_that_counts(seen.lam, seen.prior_deviation**2) if self.augmented else None
        return log_improvement(improvement.div_(deviation), deviation, self.is_expected, noise)

    def value_scale(self, seen: Seen) -> ValueScale:
        """See the base class; scores are logarithms, whose unit is 1 at any scale."""
        return ValueScale(offset=math.log(seen.prior_deviation) if self.is_expected else 0.0)

    def _best(self, seen: Seen) -> Tensor:
        worst = -torch.inf if self.maximize else torch.inf
        extreme = torch.amax if self.maximize else torch.amin
        if self.best_f is not None:
            best = seen.mean.new_full((*seen.batch_shape, 1), self.best_f)
        else:
            if self.incumbent == "observed":
                smallest, largest = seen.extremes()
                best = (largest if self.maximize else smallest).unsqueeze(-1)
            else:
                known = seen.mean.masked_fill(~seen.has_observed(), worst)
                best = extreme(known, -1, keepdim=True)
            # without outcomes, the prior mean is improved upon
            best = best.nan_to_num(posinf=seen.prior_mean, neginf=seen.prior_mean)
        if seen.pending is not None:
            means = seen.mean[..., seen.pending.index]
            best = extreme(torch.cat([best, means], dim=-1), -1, keepdim=True)
        return best


def log_improvement(
    scaled: Tensor, deviation: Tensor, is_expected: bool, noise_variance: Tensor | None
) -> Tensor:
    """Return the logarithm of the expectation, or of the probability, of an improvement.

    Args:
        scaled: The improvements of the means, in posterior standard deviations.
        deviation: The posterior standard deviations.
        is_expected: Whether it is the expectation.
        noise_variance: The noise by which it is discounted; see :func:`log_noise_discount`.
    """
    value: Tensor = _log_ei_helper(scaled) + deviation.log() if is_expected else log_Phi(scaled)
    if noise_variance is None:
        return value
    return value + log_noise_discount(deviation.square(), noise_variance)


NEGLIGIBLE_NOISE = 1e-3
"""A noise variance of this many prior variances counts as no noise.

A fit learns about this much noise even from exact outcomes, and a discount would then keep the last
digits from being improved.
"""


def noise_that_counts(noise_variance: Tensor, prior_variance: float) -> Tensor:
    """Return the nonnegative noise variance minus a negligible amount, in the same unit.

    Args:
        noise_variance: The noise variance of an outcome.
        prior_variance: The prior variance.
    """
    return (noise_variance - NEGLIGIBLE_NOISE * prior_variance).clamp_min(0.0)


def log_noise_discount(variance: Tensor, noise_variance: Tensor | float) -> Tensor:
    r"""Return the logarithm of the share of an improvement that remains under noise.

    It is :math:`1 - \tau / \sqrt{\sigma^2 + \tau^2}` (Huang et al. 2006), as
    :math:`\sigma^2 / (s (s + \tau))` with :math:`s^2 = \sigma^2 + \tau^2`, which cancels nothing.

    Args:
        variance: Posterior variances.
        noise_variance: The noise variance of an outcome.
    """
    predictive = (variance + noise_variance).sqrt()
    deviation = noise_variance**0.5
    return variance.log() - predictive.log() - (predictive + deviation).log()


@dataclass(frozen=True, eq=False)
class OneMomentArmsRule(ArmsRule):
    """The posterior mean alone, or the standard deviation alone.

    Attributes:
        uses_mean: Whether it is the mean.
        maximize: Whether the largest reward, or deviation, is sought.
    """

    uses_mean: bool
    maximize: bool

    def scores(self, seen: Seen) -> Tensor:
        value = seen.mean if self.uses_mean else seen.standard_deviation(MINIMUM_VARIANCE)
        return value if self.maximize else -value

    def value_scale(self, seen: Seen) -> ValueScale:
        """See the base class; deviations do not shift with the prior mean."""
        scale = super().value_scale(seen)
        return scale if self.uses_mean else ValueScale(unit=scale.unit)


# --- several outputs -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LagrangianArmsRule(ArmsRule):
    """A penalized reward: its upper confidence bound, or a joint draw of reward and constraints.

    Output 0 is the reward, output ``j`` is constraint ``j``. Outputs with the same kernel share a
    prior.

    Attributes:
        rules: The rule of each output's width, at its share of ``delta``.
        multipliers: ``num_constraints``.
        penalty: The penalty of the constraints.
        draws: Whether it is a draw.
        scale: A factor on the widths.
        maximize: Whether the largest reward is sought.
        has_one_width: Whether one number was given as the width of the weighted sum.
        separate_bounds: Whether outputs are bounded one by one even if the penalty is linear.
        reward_bound: A limit on the bound of the reward, if any.
        constraint_bound: A limit on the bounds of the constraints, if any.
    """

    rules: tuple[WidthRule, ...]
    multipliers: Tensor
    penalty: Penalty = field(default_factory=Linear)
    draws: bool = False
    scale: float = 1.0
    maximize: bool = True
    has_one_width: bool = False
    separate_bounds: bool = False
    reward_bound: float | None = None
    constraint_bound: float | None = None

    @property
    def takes_pending(self) -> bool:  # type: ignore[override]
        """See the base class; draws are made again instead."""
        return not self.draws

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        """See the base class."""
        return len(self.rules)

    @property
    def is_clipped(self) -> bool:
        """Whether bounds are limited."""
        return self.reward_bound is not None or self.constraint_bound is not None

    @property
    def is_scalarized(self) -> bool:
        """Whether the bound is that of one weighted sum of the outputs."""
        return self.penalty.is_linear and not self.separate_bounds and not self.is_clipped

    @property
    def weights(self) -> Tensor:
        """``m`` weights of the outputs in ``f - sum_j kappa_j g_j``, or with minus ``f``."""
        return torch.cat([self.multipliers.new_tensor([self._sign]), -self.multipliers])

    def prepare(self, seen: Seen) -> _Outputs:
        player = seen.player
        groups = torch.tensor(player.group_of_output)
        every = torch.arange(self.num_outputs)
        means = seen.posterior.mean[groups, every]  # m x num_arms
        widths = player.widths_of_outputs(self.rules, self.scale).to(means)
        variances = seen.variances[groups]
        units = player.prior_variances.to(means)
        smallest = 0.0 if self.draws else MINIMUM_VARIANCE
        deviations = torch.maximum(variances, smallest * units.unsqueeze(-1)).sqrt_()
        return _Outputs(means, variances, deviations, widths, units)

    def scores(self, seen: Seen) -> Tensor:
        known: _Outputs = seen.prepared
        if self.draws:
            drawn = known.drawn(seen)
            return self.penalized(self._sign * drawn[0], drawn[1:])
        if self.is_scalarized:
            weights = self.weights.to(known.means)
            squared = weights.square()
            smallest = MINIMUM_VARIANCE * float(squared @ known.units)
            deviation = (squared @ known.variances).clamp_min_(smallest).sqrt_()
            width = self.combined_width(known.widths)
            return check_no_overflow(torch.addcmul(weights @ known.means, deviation, width))
        return self.penalized(*self.ends(known.means, known.half))

    def ends(self, means: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
        """Return the upper bound of what is maximized, and the lower ones of the constraints.

        Args:
            means: ``m x ...`` posterior means.
            half: ``m x ...`` distances of the bounds from them.

        Returns:
            ``...`` and ``num_constraints x ...``.
        """
        upper, lower = self._sign * means[0] + half[0], means[1:] - half[1:]
        if self.reward_bound is not None:
            upper = upper.clamp(-self.reward_bound, self.reward_bound)
        if self.constraint_bound is not None:
            lower = lower.clamp(-self.constraint_bound, self.constraint_bound)
        return upper, lower

    def penalized(self, reward: Tensor, constraints: Tensor) -> Tensor:
        """Return ``f - sum_j kappa_j (psi(g_j) - 1)``.

        Args:
            reward: ``...`` values of ``f``.
            constraints: ``num_constraints x ...`` values of ``g``.

        Raises:
            OverflowError: If a penalty is too large for float64.
        """
        excess = self.penalty.excess(constraints.movedim(0, -1))
        return check_no_overflow(reward - excess @ self.multipliers.to(reward))

    def combined_width(self, widths: Tensor) -> Tensor:
        """Return the width of a weighted sum from ``m x ...`` widths, by Cauchy and Schwarz.

        Only outputs with a positive multiplier count.
        """
        if self.has_one_width:
            return widths[0]
        active = torch.cat([self.multipliers.new_ones(1), (self.multipliers > 0.0).double()])
        return torch.einsum("j,j...->...", active.to(widths), widths.square()).sqrt()

    def known(self, seen: Seen) -> Bounds:
        known: _Outputs = seen.prepared
        return Bounds.of_outputs(known.means.mT, known.deviations.mT, known.half.mT)

    def moments(self, seen: Seen, arm: int) -> tuple[float, float]:
        known: _Outputs = seen.prepared
        return float(known.means[0, arm]), float(known.deviations[0, arm])

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        known: _Outputs = seen.prepared
        index = int(arm)
        described: dict[str, Tensor | float] = {"width": known.widths[0]}
        _, lower = self.ends(known.means, known.half)
        for j in range(1, self.num_outputs):
            described[f"constraint_mean_{j}"] = known.means[j, index]
            if self.draws:
                described[f"constraint_draw_{j}"] = known.drawn(seen)[j, index]
            described[f"constraint_lower_bound_{j}"] = lower[j - 1, index]
        return described

    @property
    def _sign(self) -> float:
        return 1.0 if self.maximize else -1.0


@dataclass(eq=False)
class _Outputs:
    """The moments of all outputs at all arms in a round."""

    means: Tensor  # m x num_arms
    variances: Tensor  # m x num_arms
    deviations: Tensor  # m x num_arms
    widths: Tensor  # m
    units: Tensor  # m prior variances
    _drawn: Tensor | None = None

    @cached_property
    def half(self) -> Tensor:
        """``m x num_arms``, the distance of the bounds from the means."""
        return self.deviations * self.widths.unsqueeze(-1)

    def drawn(self, seen: Seen) -> Tensor:
        """Return a draw of every output, scaled about its mean, ``m x num_arms``."""
        if self._drawn is None:
            groups, drawn = seen.player.group_of_output, torch.empty_like(self.means)
            for group in dict.fromkeys(groups):  # outputs of one prior at once
                own = [j for j, each in enumerate(groups) if each == group]
                purposes = [f"lagrangian thompson, output {j}" for j in own]
                drawn[own] = seen.deviations_of_draws(purposes, group)
            self._drawn = drawn * self.widths.unsqueeze(-1) + self.means
        return self._drawn


# --- lists of priors -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ListArmsRule(ArmsRule):
    """A list of priors: bounds of those that survive, of the mixture, or a draw of one of them.

    Attributes:
        widths: The bands in each round; None for draws.
        maximize: Whether the largest reward is sought.
    """

    widths: CandidateWidths | None
    maximize: bool = True

    @property
    def takes_pending(self) -> bool:  # type: ignore[override]
        """See the base class; draws are made again instead."""
        return self.widths is not None

    def prepare(self, seen: Seen) -> int | tuple[Tensor, Tensor]:
        """Return the entry whose function is drawn, or the bounds of all arms."""
        if self.widths is None:
            weights = seen.player.evidence.posterior_weights
            return int(torch.multinomial(weights, 1, generator=seen.player.stream_of(seen)))
        return self._bounds(self.widths, seen, seen.variances.clamp_min(0.0))

    def scores(self, seen: Seen) -> Tensor:
        if self.widths is None:
            values = self._drawn(seen)
            return values if self.maximize else -values
        lower, upper = seen.prepared
        return upper if self.maximize else -lower

    def value_scale(self, seen: Seen) -> ValueScale:
        """See the base class; the unit is the largest prior deviation on the list."""
        return ValueScale(unit=float(seen.player.recipe.groups.scales.max()) ** 0.5)

    def bounds(self, seen: Seen) -> tuple[Tensor, Tensor] | None:
        """Return the bounds from the outcomes that arrived."""
        if self.widths is None:
            return None
        if seen.pending is None:
            lower, upper = seen.prepared
            return lower, upper
        return self._bounds(self.widths, seen, seen.posterior.variance.clamp_min(0.0))

    def known(self, seen: Seen) -> Bounds:
        mean, variance = self.mixture(seen)
        return Bounds(mean, variance.clamp_min(0.0).sqrt(), *(self.bounds(seen) or ()))

    def mixture(self, seen: Seen, variances: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return mean and variance of the mixture of all entries, ``num_arms`` each.

        Args:
            seen: The round.
            variances: ``G x num_arms``; None for those from the outcomes that arrived.
        """
        known = seen.posterior.variance.clamp_min(0.0) if variances is None else variances
        weights = seen.player.evidence.numpy_posterior_weights()
        return seen.player.recipe.groups.mixture(seen.posterior.mean[:, 0], known, weights)

    def moments(self, seen: Seen, arm: int) -> tuple[float, float]:
        mean, variance = self.mixture(seen)
        return float(mean[arm]), math.sqrt(max(float(variance[arm]), LEAST_VARIANCE))

    def describe(self, seen: Seen, arm: Tensor) -> dict[str, Tensor | float]:
        if self.widths is None:
            return {"candidate": torch.tensor(float(seen.prepared))}
        bounds = self.bounds(seen)
        assert bounds is not None
        lower, upper = (bound[arm] for bound in bounds)
        survivors = seen.player.evidence.numpy_survivors(self.widths.level)
        is_refuted = self.widths.form == "survivors" and not survivors.any()
        return {
            "width": 0.5 * (upper - lower) / self.moments(seen, int(arm))[1],
            "lower_bound": lower,
            "upper_bound": upper,
            "num_survivors": torch.tensor(float(survivors.sum())),
            "is_refuted": torch.tensor(float(is_refuted)),
        }

    def least_noise_ratio(self, seen: Seen, arm: int, default_level: float) -> float:
        """Return the least ratio of noise to posterior variance at an arm among the survivors."""
        level = default_level if self.widths is None else self.widths.level
        variances = seen.posterior.variance[:, arm]
        in_force = seen.player.evidence.numpy_in_force(level)
        return seen.player.recipe.groups.least_noise_ratio(variances, in_force)

    def _bounds(
        self, widths: CandidateWidths, seen: Seen, variances: Tensor
    ) -> tuple[Tensor, Tensor]:
        width = widths.in_round(seen.round_number, seen.player.recipe.groups.scales)
        return widths.bounds(seen.player, seen.posterior.mean[:, 0], variances, width)

    def _drawn(self, seen: Seen) -> Tensor:
        """Return a joint draw of one entry's posterior; its numbers follow those of the entry."""
        entry, groups = seen.prepared, seen.player.recipe.groups
        group, scale = int(groups.group_of[entry]), float(groups.scales[entry]) ** 0.5
        posterior = seen.posterior.group(group)
        own, rows = posterior.prior.priors[0], seen.player.rows_of_draw(posterior)
        stream, count = seen.player.stream_of(seen), posterior.prior.num_points
        torch.multinomial(seen.player.evidence.posterior_weights, 1, generator=stream)
        normal = torch.randn(2 * count, dtype=DTYPE, generator=stream).to(posterior.lam)
        rank = own.num_normals
        function = own.simulate(normal[:rank])[None, None]
        of_rows = normal[rank : rank + count][rows.index][None, None]
        deviation = posterior.deviation_of_draw(function, of_rows, rows)[0, 0]
        return posterior.mean[0, 0] + scale * deviation
