"""Rules, which score all points in a round from the posterior there, and who plays them.

A rule is the value of an acquisition function on a finite set of points. It looks at a
:class:`Seen`: the posterior of all points in the round, and random numbers of the round. The same
rules play a loop and replicates, with and without contexts, windows, weights and constraints: these
change the rows of the posterior, and nothing here.

Whether two scores count as equal, or a variance as 0, is decided in prior standard deviations,
relative to the prior mean, because it must not depend on the unit of the outcomes.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from botorch.acquisition.analytic import _log_ei_helper, log_Phi
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe, Bounds, RandomSearch
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import WidthRule
from botorch_bandits.confidence.candidates import CandidateWidths
from botorch_bandits.confidence.censored import CensoredWidth
from botorch_bandits.confidence.gp_ucb import irgp_ucb_width
from botorch_bandits.confidence.prior_reading import learns_input_scale, prior_variance_of
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    MINIMUM_VARIANCE_OF_IMPROVEMENT,
    WIDTH,
    RunningPriorSummary,
    fit_to_batch,
)
from botorch_bandits.core.kernels import TimeDecayKernel, kernel_of_output
from botorch_bandits.core.posterior import (
    Posterior,
    RoundPosterior,
    Rows,
    changes_between,
)
from botorch_bandits.core.priors import Prior, Stack, prior_of
from botorch_bandits.domains import Arms, ValueScale, first_of_the_largest
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.models.reading import LEAST_VARIANCE
from botorch_bandits.penalties import Linear, Penalty, check_no_overflow
from botorch_bandits.random_streams import RandomBlocks, generator


@dataclass(eq=False)
class Seen:
    """What a rule sees in a round, and its scores; :meth:`Player.look` makes it.

    Tensors of one number an arm are ``num_arms``, with replicates ``num_replicates x num_arms``.

    Attributes:
        rule: The rule that chooses.
        player: Who plays it, which knows the prior, the seeds and the unit.
        posterior: The posterior of all arms given the rows of the round.
        view: The posterior in which pending rows have their means as outcomes (hallucination).
        mean: The posterior means of the reward in outcome units.
        value_scale: The scale of the scores.
        round_number: The round of the stream, from 1, for widths.
        draw_round: The round of the whole run, from 1, for random numbers.
        now: The columns in front of all arms; None if there are none.
        pending: Rows that are asked and whose outcomes are not known; None if there are none.
        among: Numbers of the arms that may be chosen; None for all.
        prepared: What the rule computes once in each round; see :meth:`ArmsRule.prepare`.
        scores: The rule's scores of all arms.
    """

    rule: ArmsRule
    player: Player
    posterior: Posterior | RoundPosterior
    view: Posterior | RoundPosterior
    mean: Tensor
    value_scale: ValueScale
    round_number: int
    draw_round: int
    now: Tensor | None
    pending: Rows | None
    among: Tensor | None
    prepared: Any = field(init=False)
    scores: Tensor = field(init=False)

    @property
    def variance(self) -> Tensor:
        """The posterior variances of the reward; pending rows count as known."""
        return self.view.variance[self.player.every]

    def standard_deviation(self, smallest_share: float) -> Tensor:
        """Return new deviations; variances are clamped at a share of the prior variance."""
        return self.variance.clamp_min(smallest_share * self.player.prior_variance).sqrt_()

    def deviation_for(self, width: float | Tensor, posterior: Posterior | RoundPosterior) -> Tensor:
        """Return new deviations, exact where a bound with this width may be what is sought.

        Args:
            width: The factor of the deviation.
            posterior: The posterior, with or without pending rows.
        """
        smallest = MINIMUM_VARIANCE * self.player.prior_variance
        mean = self.mean if self.rule.maximize else -self.mean
        given = (mean, width, smallest, self.value_scale.tolerance, self.among)
        variance = posterior.screened_variance(*given)[self.player.every]
        return variance.clamp_min(smallest).sqrt_()

    def deviations_of_draws(
        self,
        streams: Sequence[str] = ("thompson{}",),
        group: int | None = None,
        again: str = "",
        many: int = 1,
    ) -> Tensor:
        """Return joint draws of all arms less the posterior mean, ``batch_shape x k x num_arms``.

        Args:
            streams: What the random numbers are for, with a place for what they are numbers of.
            group: The number of the prior; None if there is one.
            again: Distinguishes further draws from the first ones.
            many: The number of draws of each stream.
        """
        posterior, player = self.view if group is None else self.view.group(group), self.player
        own, rows = posterior.prior.priors[0], player.rows_of_draw(posterior)
        # functions that a loop keeps can be pickled
        by_row, transform = player.numbers_by_row, partial(_simulated, own)
        size = (many, own.num_normals + posterior.prior.num_points)
        if by_row:
            size, transform = (many, own.num_normals), own.simulate  # type: ignore[assignment]
        names = [s.format("") + again for s in streams]
        each = [player.numbers(self.draw_round, name, size, transform=transform) for name in names]
        drawn = torch.cat(each, dim=len(player.batch_shape))
        drawn = drawn if player.batch_shape else drawn.unsqueeze(0)  # G x k x ...
        if by_row:  # each row has a number for its noise
            names = [f"{s.format(' rows')}{again}" for s in streams]
            generators = [generator(player.seeds[0], self.draw_round, name) for name in names]
            each = [torch.randn(1, many, len(rows), dtype=DTYPE, generator=g) for g in generators]
            return posterior.deviation_of_draw(drawn, torch.cat(each, dim=1), rows)[0]
        # each arm has a number for its noise, and so has each pending row
        simulated, of_arms = drawn.chunk(2, dim=-1)
        waiting = 0 if self.pending is None else len(self.pending)
        normal = of_arms[..., rows.index[: len(rows) - waiting]]
        if waiting:
            name = f"hallucinated noise {waiting}{again}"
            more = player.numbers(self.draw_round, name, (many, waiting))
            normal = torch.cat([normal, more.unsqueeze(0)], dim=-1)
        return posterior.deviation_of_draw(simulated, normal, rows)[player.every]


def _simulated(prior: Prior, normal: Tensor) -> Tensor:
    """Return draws of the prior at all points, and then the numbers that are left, ``...``."""
    rank = prior.num_normals
    return torch.cat([prior.simulate(normal[..., :rank]), normal[..., rank:]], dim=-1)


class ArmsRule(ABC):
    """Scores arms; the arm with the largest score is played, the first one in case of a tie."""

    takes_pending: bool = True
    """Whether pending arms affect what it sees; otherwise they make no difference."""
    num_outputs: int = 1
    """The number of outputs of the posterior that it needs."""
    maximize: bool
    """Whether the largest reward is sought."""

    @cached_property
    def sign(self) -> float:
        """-1 if the smallest reward is sought."""
        return 1.0 if self.maximize else -1.0

    def prepare(self, seen: Seen) -> Any:
        """Return what scores, bounds and description of a round share as ``seen.prepared``."""
        return None

    @abstractmethod
    def scores(self, seen: Seen) -> Tensor:
        """Return ``batch_shape x num_arms`` scores: the values of the acquisition function."""

    def value_scale(self, player: Player) -> ValueScale:
        """Return the scale of the scores: prior standard deviations from the prior mean."""
        return ValueScale(self.sign * player.prior_mean, player.prior_deviation)

    def known(self, seen: Seen) -> Bounds:
        """Return what is known of all arms in a round, with confidence bounds if there are any."""
        return Bounds(seen.mean, seen.standard_deviation(MINIMUM_VARIANCE))

    def describe(self, seen: Seen, arm: int) -> dict[str, Tensor | float]:
        """Return the diagnostics of one arm of a single stream, by name."""
        at = torch.tensor([arm], device=seen.mean.device)
        smallest = MINIMUM_VARIANCE * seen.player.prior_variance
        variance = max(float(seen.view.variance_at(at)[0, 0]), smallest)
        return {"mean": seen.mean[arm], "standard_deviation": variance**0.5}


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

    def prepare(self, seen: Seen) -> Tensor:
        """Return the width, one number or one a replicate: ``1``, or ``num_replicates x 1``."""
        width = self.scale * self.rule.width(seen.player.summaries[0], seen.round_number)
        width = fit_to_batch(WIDTH, width, seen.player.batch_shape).unsqueeze(-1)
        return width.to(seen.posterior.lam.device)

    def scores(self, seen: Seen) -> Tensor:
        if self.predictive:
            noisy = seen.variance + seen.posterior.lam[seen.player.every, None]
            smallest = MINIMUM_VARIANCE * seen.player.prior_variance
            deviation = noisy.clamp_min_(smallest).sqrt_()
        else:
            deviation = seen.deviation_for(seen.prepared, seen.view)
        return torch.add(deviation.mul_(seen.prepared), seen.mean, alpha=self.sign)

    def known(self, seen: Seen) -> Bounds:
        known = super().known(seen)
        half = known.deviation * seen.prepared
        return known._replace(lower=known.mean - half, upper=known.mean + half)

    def describe(self, seen: Seen, arm: int) -> dict[str, Tensor | float]:
        described = {**super().describe(seen, arm), "width": seen.prepared}
        if self.predictive:
            noise = math.sqrt(seen.posterior.lam[0])
            described["standard_deviation"] = math.hypot(described["standard_deviation"], noise)
        gain = self.rule.information_gain(seen.player.summaries[0])
        return described if gain is None else {**described, "information_gain": gain}


@dataclass(frozen=True, eq=False)
class RandomizedArmsRule(WidthArmsRule):
    """IRGP-UCB: the width is drawn independently for each round and replicate."""

    def prepare(self, seen: Seen) -> Tensor:
        draw = seen.player.numbers(seen.draw_round, "IRGP-UCB", (), "exponential")
        width = irgp_ucb_width(seen.posterior.prior.num_points, draw)
        if isinstance(self.rule, CensoredWidth):  # censored rows add to every width
            width = width + self.rule.added(seen.player.summaries[0])
        return width.unsqueeze(-1)

    def known(self, seen: Seen) -> Bounds:
        """See the base class; a width that is drawn gives no bounds."""
        return ArmsRule.known(self, seen)


@dataclass(frozen=True, eq=False)
class ThompsonArmsRule(WidthArmsRule):
    """An exact joint draw whose deviation from the mean is multiplied by a width.

    Attributes:
        hallucinates: Whether each pending query has the posterior mean as its outcome.
    """

    hallucinates: bool = False

    @property
    def takes_pending(self) -> bool:  # type: ignore[override]
        """See the base class; otherwise, draws are made again."""
        return self.hallucinates

    def scores(self, seen: Seen) -> Tensor:
        return self.sign * (seen.mean + seen.prepared * seen.deviations_of_draws()[..., 0, :])


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
        deviation = seen.standard_deviation(MINIMUM_VARIANCE_OF_IMPROVEMENT)
        improvement = self.sign * seen.mean - self._best(seen) - self.margin
        noise = None
        if self.augmented:
            lam = seen.posterior.lam[seen.player.every, None]
            noise = noise_that_counts(lam, seen.player.prior_variance)
        return log_improvement(improvement.div_(deviation), deviation, self.is_expected, noise)

    def value_scale(self, player: Player) -> ValueScale:
        """See the base class; scores are logarithms, whose unit is 1 at any scale."""
        return ValueScale(offset=math.log(player.prior_deviation))

    def _best(self, seen: Seen) -> Tensor:
        """Return what is improved upon, or minus it if minimizing, ``batch_shape x 1``."""
        rows = seen.player.rows
        is_mean = self.best_f is None and self.incumbent == "posterior_mean"
        if seen.among is not None and is_mean:  # the best of what can be chosen
            return (self.sign * seen.mean[..., seen.among]).amax(-1, keepdim=True)
        if self.best_f is not None:
            known = torch.full_like(seen.mean[..., :1], self.sign * self.best_f)
        else:
            observed = self.incumbent == "observed"
            values = rows.Y[..., 0] if observed else seen.mean.gather(-1, rows.index)
            # replicates have rows that do not count
            known = (self.sign * values).where(rows.noise.isfinite(), -torch.inf)
        if seen.pending is not None:
            known = torch.cat([known, self.sign * seen.mean[seen.pending.index]], dim=-1)
        # without outcomes, the prior mean is improved upon
        best = torch.nn.functional.pad(known, (1, 0), value=-torch.inf).amax(-1, keepdim=True)
        return best.nan_to_num(neginf=self.sign * seen.player.prior_mean)


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
        return self.sign * (
            seen.mean if self.uses_mean else seen.standard_deviation(MINIMUM_VARIANCE)
        )

    def value_scale(self, player: Player) -> ValueScale:
        """See the base class; deviations do not shift with the prior mean."""
        scale = super().value_scale(player)
        return scale if self.uses_mean else ValueScale(unit=scale.unit)


# --- several outputs -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LagrangianArmsRule(ArmsRule):
    """A penalized reward: its upper confidence bound, or a joint draw of reward and constraints.

    Output 0 is the reward, output ``j`` is constraint ``j``. If there is one kernel, all share its
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
        return torch.cat([self.multipliers.new_tensor([self.sign]), -self.multipliers])

    def prepare(self, seen: Seen) -> _Outputs:
        player = seen.player
        groups = torch.tensor(player.group_of_output)
        means = seen.posterior.mean[groups, torch.arange(self.num_outputs)]  # m x num_arms
        each = zip(self.rules, player.group_of_output, strict=True)
        own = [float(rule.width(player.summaries[group], 1)) for rule, group in each]
        units = means.new_tensor([player.units[group] for group in player.group_of_output])
        smallest = MINIMUM_VARIANCE * units.unsqueeze(-1)
        deviations = torch.maximum(seen.view.variance[groups], smallest).sqrt_()
        return _Outputs(seen, means, deviations, self.scale * means.new_tensor(own))

    def scores(self, seen: Seen) -> Tensor:
        known: _Outputs = seen.prepared
        if self.draws:
            return self.penalized(self.sign * known.drawn[0], known.drawn[1:])
        if self.is_scalarized:
            weights = self.weights.to(known.means)
            deviation = (weights.square() @ known.deviations.square()).sqrt_()
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
        upper, lower = self.sign * means[0] + half[0], means[1:] - half[1:]
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

    def describe(self, seen: Seen, arm: int) -> dict[str, Tensor | float]:
        known: _Outputs = seen.prepared
        described: dict[str, Tensor | float] = {
            "mean": known.means[0, arm],
            "standard_deviation": known.deviations[0, arm],
            "width": known.widths[0],
        }
        _, lower = self.ends(known.means, known.half)
        for j in range(1, self.num_outputs):
            described[f"constraint_mean_{j}"] = known.means[j, arm]
            if self.draws:
                described[f"constraint_draw_{j}"] = known.drawn[j, arm]
            described[f"constraint_lower_bound_{j}"] = lower[j - 1, arm]
        return described


@dataclass(eq=False)
class _Outputs:
    """The moments of all outputs at all arms in a round."""

    seen: Seen
    means: Tensor  # m x num_arms
    deviations: Tensor  # m x num_arms
    widths: Tensor  # m

    @cached_property
    def half(self) -> Tensor:
        """``m x num_arms``, the distance of the bounds from the means."""
        return self.deviations * self.widths.unsqueeze(-1)

    @cached_property
    def drawn(self) -> Tensor:
        """A draw of every output, scaled about its mean, ``m x num_arms``."""
        streams = [f"lagrangian thompson{{}}, output {j}" for j in range(len(self.means))]
        if len(self.seen.posterior.lam) == 1:  # all have one prior
            drawn = self.seen.deviations_of_draws(streams)
        else:
            each = [self.seen.deviations_of_draws([s], j) for j, s in enumerate(streams)]
            drawn = torch.cat(each)
        return drawn * self.widths.unsqueeze(-1) + self.means


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
            stream = generator(seen.player.seeds[0], seen.draw_round, "candidate")
            weights = torch.from_numpy(seen.player.evidence.posterior_weights)
            return int(torch.multinomial(weights, 1, generator=stream))
        return self._bounds(self.widths, seen, seen.view)

    def scores(self, seen: Seen) -> Tensor:
        if self.widths is None:
            entry, groups = seen.prepared, seen.player.recipe.groups
            group, scale = int(groups.group_of[entry]), float(groups.scales[entry]) ** 0.5
            # groups have different roots, and so numbers of their own
            deviation = seen.deviations_of_draws([f"thompson{{}}, group {group}"], group)[0]
            return self.sign * (seen.posterior.mean[group, 0] + scale * deviation)
        lower, upper = seen.prepared
        return upper if self.maximize else -lower

    def value_scale(self, player: Player) -> ValueScale:
        """See the base class; the unit is the largest prior deviation on the list."""
        return ValueScale(unit=float(player.recipe.groups.scales.max()) ** 0.5)

    def known(self, seen: Seen) -> Bounds:
        """Return moments of the mixture of all entries, and bounds, from what arrived."""
        variance = seen.posterior.variance.clamp_min(0.0)
        weights = seen.player.evidence.posterior_weights
        mixture = seen.player.recipe.groups.mixture(seen.posterior.mean[:, 0], variance, weights)
        ends = () if self.widths is None else self._bounds(self.widths, seen, seen.posterior)
        return Bounds(mixture[0], mixture[1].clamp_min(LEAST_VARIANCE).sqrt(), *ends)

    def describe(self, seen: Seen, arm: int) -> dict[str, Tensor | float]:
        known = self.known(seen).at(arm)
        described: dict[str, Tensor | float] = {
            "mean": known.mean,
            "standard_deviation": known.deviation,
        }
        if self.widths is None or known.lower is None or known.upper is None:
            return {**described, "candidate": float(seen.prepared)}
        survivors = seen.player.evidence.survivors(self.widths.level)
        return {
            **described,
            "width": 0.5 * (known.upper - known.lower) / known.deviation,
            "lower_bound": known.lower,
            "upper_bound": known.upper,
            "num_survivors": float(survivors.sum()),
            "is_refuted": float(self.widths.form == "survivors" and not survivors.any()),
        }

    def least_noise_ratio(self, seen: Seen, arm: int, default_level: float) -> float:
        """Return the least ratio of noise to posterior variance at an arm among the survivors."""
        level = default_level if self.widths is None else self.widths.level
        variances = seen.posterior.variance[:, arm]
        in_force = seen.player.evidence.in_force(level)
        return seen.player.recipe.groups.least_noise_ratio(variances, in_force)

    def _bounds(
        self, widths: CandidateWidths, seen: Seen, posterior: Posterior | RoundPosterior
    ) -> tuple[Tensor, Tensor]:
        width = widths.in_round(seen.round_number, seen.player.recipe.groups.scales)
        variance = posterior.variance.clamp_min(0.0)
        return widths.bounds(seen.player, seen.posterior.mean[:, 0], variance, width)


# --- A player: a rule, the posterior that it looks at, and its random numbers ---------------------
# A player plays a stream of rounds from the rows that the loop gives it, or replicates in lockstep
# from rows of their own. Windows, weights, contexts, time, constraints and censoring are in the
# rows.


class Player:
    """A rule, the posterior that it looks at, and its random numbers.

    Attributes:
        rule: The rule; None to choose uniformly at random.
        seeds: The seed, or one per replicate.
        batch_shape: ``()``, or ``(num_replicates,)``.
        prior_mean: The prior mean of the reward.
        prior_deviation: The prior standard deviation of the reward, the unit in which ties are
            decided.
        prior_variance: Its square, of which floors of variances are shares.
        every: The index of everything in a batch of replicates, and of a single stream in a batch
            of one.
        posterior: The posterior of all arms given the rows of the last look.
        units: The prior variance of each prior.
        group_of_output: The number of each output's prior.
        numbers_by_row: Whether draws have a number for the noise of each row, and not of each arm.
        rule_domain: The arms behind their fronts, for rules that depend on the domain.
        recipe: The list of priors, which are the groups of a :class:`.CandidatesRecipe`, if any.
        evidence: The evidence of each entry of the list.
        memo: What rules keep from round to round, by name.
    """

    rule_domain: Arms
    recipe: Any = None

    def __init__(  # noqa: PLR0913 - each setting of a loop on arms
        self,
        rule: ArmsRule | None,
        priors: Sequence[Prior],
        lam: float | Tensor,
        units: Sequence[float],
        seeds: int | Sequence[int],
        prior_mean: float | Tensor = 0.0,
        group_of_output: Sequence[int] = (0,),
        numbers_by_row: bool = False,
        rows_stay: bool = True,
    ) -> None:
        """See the class.

        Args:
            rule: The rule; None to choose uniformly at random.
            priors: The prior of the arms, or several: of outputs, or of a list.
            lam: The noise variance, or one per prior or replicate.
            units: The prior variance of each prior.
            seeds: A seed, or one per replicate.
            prior_mean: The prior mean, or one per prior.
            group_of_output: The number of each output's prior.
            numbers_by_row: See the class.
            rows_stay: Whether most rows of a round are those of the one before.
        """
        self.rule, self.numbers_by_row = rule, numbers_by_row
        self.batch_shape = torch.Size(() if isinstance(seeds, int) else (len(seeds),))
        self.every = slice(None) if self.batch_shape else 0
        self.seeds = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        self.group_of_output = tuple(group_of_output)
        stack = Stack(priors)
        front = torch.zeros(stack.num_front, dtype=DTYPE) if stack.num_front else None
        variances = stack.variances(front)
        count = max(len(priors), len(self.seeds))
        levels, means = (
            torch.as_tensor(each, dtype=DTYPE, device=variances.device)
            for each in (lam, prior_mean)
        )
        levels = levels.expand(count).clone()
        means = means.reshape(-1, 1).expand(count, len(self.group_of_output))
        self.posterior: Posterior | RoundPosterior
        if stack.num_front or not rows_stay:
            self.posterior = RoundPosterior(stack, levels, means)
        else:
            self.posterior = Posterior(stack, levels, means.shape[1], means)
        self.prior_mean = float(means[0, 0])
        # the largest variance of the arms for kernels whose variance differs from arm to arm
        largest = float(variances[0].max())
        self.prior_deviation = math.sqrt(largest) if 0.0 < largest < math.inf else 1.0
        self.prior_variance = self.prior_deviation**2
        self.units = units
        self._blocks: dict[str, RandomBlocks] = {}
        self.memo: dict[str, Any] = {}

    @property
    def rows(self) -> Rows:
        """The rows of the last look, as they were given."""
        return self.posterior.rows

    def num_observations(self) -> int | Tensor:
        """Return the number of observations that count, or one a replicate if they differ."""
        counts = self.rows.noise.reciprocal().sum(-1).round().long()
        first = int(counts.reshape(-1)[0])
        return first if bool((counts == first).all()) else counts

    def gain(self, group: int = 0) -> Tensor:
        """Return the realized information gain of the rows, in nats, one number a replicate.

        Args:
            group: The number of the prior; replicates have one prior and are all in it.
        """
        gains = self.posterior.gain.clamp_min(0.0)
        return gains if self.batch_shape else gains[group]

    @cached_property
    def summaries(self) -> tuple[RunningPriorSummary, ...]:
        """What width rules need to know of each prior."""
        lam, batched = self.posterior.lam, bool(self.batch_shape)
        return tuple(
            RunningPriorSummary(
                partial(self.gain, g), self.num_observations, lam if batched else lam[g], unit
            )
            for g, unit in enumerate(self.units)
        )

    def condition(self, rows: Rows, now: Tensor | None = None) -> Posterior | RoundPosterior:
        """Condition the posterior on the rows of a round, and return it.

        Args:
            rows: All rows that count.
            now: ``c``, the front of all arms, if rows have fronts.
        """
        if self.recipe is not None:
            self._weigh(rows)
        self.posterior = self.posterior.at(rows, now)
        return self.posterior

    def set_prior_mean(self, value: float) -> None:
        """Give the reward another prior mean (``value``), as with other multipliers."""
        if value != self.prior_mean:
            self.prior_mean = value
            self.posterior.set_prior_mean(value)

    def follow(self, recipe: CandidatesRecipe) -> None:
        """Follow the evidence of a list of priors (``recipe``), whose groups are the priors."""
        self.recipe, self.evidence = recipe, recipe.new_evidence()
        self._weighed = self.posterior.rows[:0]

    def _weigh(self, rows: Rows) -> None:
        """Add new outcomes to the evidence, each predicted from the rows before it."""
        changes = changes_between(self._weighed, rows)
        if changes != ((), range(len(self._weighed), len(rows))):
            self.follow(self.recipe)  # rows are gone, or are others
            self.posterior = self.posterior.at(rows[:0])
        for i in range(len(self._weighed), len(rows)):
            self.posterior = posterior = self.posterior.at(rows[:i])
            if i >= self.recipe.num_skipped:
                at, lam = int(rows.index[i]), posterior.lam
                mean, variance = posterior.mean[:, 0, at], posterior.variance[:, at].clamp_min(0.0)
                noisy = variance + lam * rows.noise[i]
                moments = (each.cpu().numpy() for each in (mean, noisy))
                outcome = float(rows.Y[i, 0])
                self.evidence.update(self.recipe.groups.log_densities(outcome, *moments))
        self._weighed = rows

    def look(
        self,
        round_number: int,
        rows: Rows | None = None,
        now: Tensor | None = None,
        pending: Rows | None = None,
        draw_round: int | None = None,
        rule: ArmsRule | None = None,
        among: Tensor | None = None,
    ) -> Seen:
        """Return what the rule sees in a round, and its scores.

        Args:
            round_number: The round, from 1.
            rows: The rows that count, on which the posterior is conditioned; None for replicates,
                and for a posterior that :meth:`condition` has conditioned already.
            now: ``c``, the front of all arms, if rows have fronts.
            pending: Rows that are asked and whose outcomes are not known.
            draw_round: The round of the whole run, for random numbers; None for ``round_number``.
            rule: What is played instead of the player's rule.
            among: Numbers of the arms that may be chosen; None for all.
        """
        rule = self.rule if rule is None else rule
        assert rule is not None
        if rows is not None:
            self.condition(rows, now)
        if pending is not None and not (rule.takes_pending and len(pending)):
            pending = None
        posterior, scale = self.posterior, rule.value_scale(self)
        view, mean = posterior if pending is None else posterior.given(pending), posterior.mean
        known = posterior, view, mean[self.every, 0], scale
        drawn = round_number if draw_round is None else draw_round
        seen = Seen(rule, self, *known, round_number, drawn, now, pending, among)
        seen.prepared = rule.prepare(seen)
        seen.scores = rule.scores(seen)
        return seen

    def choose(self, seen: Seen, check: bool = True) -> Tensor:
        """Return the arm to play, ``batch_shape``.

        Args:
            seen: The round.
            check: Whether to raise an error if scores are not finite.
        """
        return first_of_the_largest(seen.scores, check, seen.value_scale, seen.among)

    def choose_uniformly(self, round_number: int) -> Tensor:
        """Return a uniformly random arm of ``round_number``, one a replicate: ``batch_shape``."""
        uniform = self.numbers(round_number, "sample", (), "uniform")
        return (uniform * self.posterior.prior.num_points).long()

    def describe(self, seen: Seen, arm: int) -> dict[str, float]:
        """Return the diagnostics of an arm in the round ``seen`` of a single stream, by name."""
        described: dict[str, Any] = seen.rule.describe(seen, arm)
        described["acquisition_value"] = seen.scores[arm]
        for name, value in described.items():
            described[name] = float(value)
        return described

    def collapsed(self, posterior: Posterior | RoundPosterior) -> Rows:
        """Return the rows of a ``posterior``, one a place, and what is pending."""
        return posterior.collapsed

    def rows_of_draw(self, posterior: Posterior | RoundPosterior) -> Rows:
        """Return the rows of a ``posterior`` that have drawn noise, the same for replicates."""
        return posterior.collapsed

    def numbers(
        self,
        draw_round: int,
        purpose: str,
        shape: tuple[int, ...],
        distribution: str = "normal",
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return the random numbers of a round, ``batch_shape x shape``.

        Args:
            draw_round: The round of the whole run, from 1.
            purpose: What they are for; another purpose has other numbers.
            shape: Their shape.
            distribution: Their distribution; see :class:`~.random_streams.RandomBlocks`.
            transform: Turns the numbers of many rounds into others.
        """
        if purpose not in self._blocks:
            device = self.posterior.lam.device
            self._blocks[purpose] = RandomBlocks(
                self.seeds, purpose, shape, distribution, device, transform
            )
        return self._blocks[purpose].at(draw_round)[self.every]


class Replicates(Player):
    """Plays replicates in lockstep, each with outcomes of its own at arms without fronts."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """See :class:`Player`; ``seeds`` has one seed per replicate."""
        super().__init__(*given, **named)
        self._own: Any = self.posterior
        none = self._own.lam.new_empty(len(self.seeds), 0)
        self._told = [none.long(), none, none]  # arms, outcomes and noise, G x n each
        self._waiting: list[Any] = []

    @property
    def rows(self) -> Rows:
        """One row a round, ``G x n``; those with infinite noise do not count."""
        if self._waiting:  # many at a time, as tensors of one number cost most
            index, Y = (
                self._own.lam.new_tensor([each]) if len(self.seeds) == 1 else torch.stack(each, -1)
                for each in zip(*self._waiting, strict=True)
            )
            new = (index.long(), Y, torch.ones_like(Y))
            self._told = [torch.cat(each, -1) for each in zip(self._told, new, strict=True)]
            self._waiting = []
        index, Y, noise = self._told
        return Rows(index, Y.unsqueeze(-1), noise)

    def observe(self, arm: Tensor | int, outcome: Tensor | float) -> None:
        """Add one outcome per replicate.

        Args:
            arm: ``num_replicates`` numbers of arms; a plain number for one replicate.
            outcome: ``num_replicates`` outcomes; a plain number for one replicate.
        """
        if not self._own.has_room((), (0,)):
            self._own.factorize(self.collapsed(self._own))
        if len(self.seeds) == 1:
            arm, outcome = int(arm), float(outcome)
            self._own.add(arm, [outcome])
        else:
            self._own.add_each(arm, outcome.unsqueeze(-1))  # type: ignore[union-attr]
        self._waiting.append((arm, outcome))

    def collapsed(self, posterior: Posterior | RoundPosterior) -> Rows:
        """See the base class: ``G x n`` arms in order, and then others with infinite noise."""
        counts, sums = self._counted()
        observed = counts > 0.0
        order = observed.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
        index = order[:, : int(observed.sum(-1).max())]
        return _means(index, counts.gather(-1, index), sums.gather(-1, index))

    def rows_of_draw(self, posterior: Posterior | RoundPosterior) -> Rows:
        """See the base class: one row for each arm that some replicate has observed."""
        counts, sums = self._counted()
        some = counts.sum(0).nonzero()[:, 0]
        return _means(some, counts[:, some], sums[:, some])

    def _counted(self) -> tuple[Tensor, Tensor]:
        """Return the number and the sum of the outcomes at each arm, ``G x num_arms``."""
        rows, none = self.rows, torch.zeros_like(self._own.variance)
        weight = rows.noise.reciprocal()  # 0 of rows that do not count
        told = (weight, weight * rows.Y[..., 0])
        counts, sums = (none.scatter_add(-1, rows.index, each) for each in told)
        return counts, sums


def _means(index: Tensor, counts: Tensor, sums: Tensor) -> Rows:
    """Return one row for each of some arms; without outcomes, its noise is infinite."""
    return Rows(index, (sums / counts.clamp_min(1.0)).unsqueeze(-1), counts.reciprocal())


# --- how settings become a player ----------------------------------------------------------------


def player_of(  # noqa: PLR0913 - each setting of a loop on arms
    model: BanditGPRecipe | CandidatesRecipe,
    acquisition: AcquisitionRecipe | RandomSearch,
    domain: Arms,
    seeds: int | Sequence[int],
    num_contexts: int = 0,
    rate: float | None = None,
    numbers_by_row: bool = False,
    rows_stay: bool = True,
    known: Sequence[Prior] = (),
) -> Player | None:
    """Return who plays these settings on arms, without a BoTorch model.

    Args:
        model: The recipe of the model, or of a list of priors.
        acquisition: The recipe of the acquisition function, or random search.
        domain: The arms.
        seeds: A seed, or one per replicate.
        num_contexts: The number of contexts.
        rate: The rate of a kernel that varies with time; None without one.
        numbers_by_row: See :class:`Player`.
        rows_stay: See :class:`Player`.
        known: The priors of a player of the same model and domain.

    Returns:
        The player; None if these settings need a model.
    """
    if isinstance(model, CandidatesRecipe):
        return _player_of_list(model, acquisition, domain, seeds, known)
    num_front = num_contexts + (rate is not None)
    is_plain = model.model_class is BanditGP and model.refit_every is None
    transform = model.input_transform
    # a transform may mix contexts and arms
    if not is_plain or not keeps_arms(transform) or (num_contexts and transform is not None):
        return None
    there = domain.in_context(torch.zeros(num_front, dtype=DTYPE)) if num_front else domain
    rule = None
    if isinstance(acquisition, AcquisitionRecipe):
        rule = acquisition.arms_rule(there)
        if rule is None:
            return None
    outputs = range(1 if rule is None else rule.num_outputs)
    has_several = bool(model.kernel.batch_shape)  # kernels
    if has_several and len(outputs) == 1:
        return None
    group_of_output = outputs if has_several else [0] * len(outputs)
    with torch.no_grad():
        points = _transformed(transform, domain.choices)
        own = [copy.deepcopy(model.kernel).to(points)]
        if has_several:
            own = [kernel_of_output(own[0], j) for j in outputs]
        whole = own if rate is None else [TimeDecayKernel(kernel, rate) for kernel in own]
        priors = list(known) or [prior_of(kernel, points, num_front) for kernel in whole]
        inputs = points.new_empty(0, there.dim) if num_front else points
        units = [float(prior_variance_of(kernel, inputs)) for kernel in whole]
    if len(group_of_output) > 1 and not all(0.0 < unit < math.inf for unit in units):
        return None  # bounds of outputs are measured in prior deviations
    mean, kept = model.prior_mean, (numbers_by_row, rows_stay)
    kind = Player if isinstance(seeds, int) else Replicates
    player = kind(rule, priors, model.noise, units, seeds, mean, group_of_output, *kept)
    player.rule_domain = there
    return player


def keeps_arms(transform: InputTransform | None) -> bool:
    """Return whether each arm becomes one point, whatever the data and in every use."""
    parts = [] if transform is None else transform.modules()
    return not learns_input_scale(transform) and all(
        part.transform_on_train and part.transform_on_eval and not part.is_one_to_many
        for part in parts
        if isinstance(part, InputTransform)
    )


def _transformed(transform: InputTransform | None, choices: Tensor) -> Tensor:
    """Return arms as the kernel expects them."""
    if transform is None:
        return choices
    found: Tensor = copy.deepcopy(transform).to(choices).eval()(choices)
    return found


def _player_of_list(
    recipe: CandidatesRecipe,
    acquisition: AcquisitionRecipe | RandomSearch,
    domain: Arms,
    seeds: int | Sequence[int],
    known: Sequence[Prior],
) -> Player | None:
    rule = None if isinstance(acquisition, RandomSearch) else acquisition.arms_rule(domain)
    if not isinstance(rule, ListArmsRule):
        return None
    groups = recipe.groups
    with torch.no_grad():
        points = _transformed(recipe.input_transform, domain.choices)
        own = (copy.deepcopy(kernel).to(points) for kernel in groups.kernels)
        priors = list(known) or [prior_of(kernel, points) for kernel in own]
    lam, means = groups.lam.to(points), groups.prior_means.to(points)
    player = Player(rule, priors, lam, [1.0] * len(priors), seeds, means)
    player.follow(recipe)
    player.rule_domain = domain
    return player
