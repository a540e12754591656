r"""A penalized reward on arms, from sufficient statistics of reward and constraints.

:class:`LagrangianEngine` plays what ``lagrangian.py`` evaluates on a model with several outputs:

.. math:: f(x) - \sum_j \kappa_j (\psi(g_j(x)) - 1)

with an upper bound, or a draw, in place of ``f`` and each ``g_j``. Outputs with the same kernel
share one factor; see :mod:`botorch_bandits.models.outputs_on_arms`. The formulas and their sources
are those of ``lagrangian.py``. A draw has the same distribution as in
:class:`.LagrangianThompsonSampling`, but uses other random numbers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, cast

import torch
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.baselines import RandomSearch
from botorch_bandits.acquisition.engines import ArmsEngine, build_arms_engine
from botorch_bandits.acquisition.lagrangian import (
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    combined_width,
    penalized,
)
from botorch_bandits.acquisition.output_widths import PER_OUTPUT, output_rules
from botorch_bandits.acquisition.rows_engine import RowsEngine
from botorch_bandits.acquisition.scores import half_width, score
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE
from botorch_bandits.core.kernels import fingerprint_kernel, kernel_of_output
from botorch_bandits.domains import Arms, ValueScale, first_of_the_largest
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.outputs_on_arms import OutputsPosterior
from botorch_bandits.penalties import Linear, Penalty, check_no_overflow


@dataclass(frozen=True, eq=False)
class Weights:
    """The quantities that change with the multipliers within a segment.

    Attributes:
        multipliers: ``num_constraints``.
        penalty: The penalty for a violation.
        separate_bounds: Whether the bounds on the outputs are combined even where a bound on the
            sum is known.
        reward_bound: The value at which the bound on the reward is clipped, if at all.
        constraint_bound: The same for the constraints.
    """

    multipliers: Tensor
    penalty: Penalty
    separate_bounds: bool = False
    reward_bound: float | None = None
    constraint_bound: float | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Weights:
        """Read the options of a recipe as played in an epoch.

        Args:
            options: The options of :class:`.LagrangianUpperConfidenceBound` or
                :class:`.LagrangianThompsonSampling`, with multipliers.
        """
        known = ("separate_bounds", "reward_bound", "constraint_bound")
        return cls(
            torch.as_tensor(options["multipliers"], dtype=DTYPE),
            Linear() if options.get("penalty") is None else options["penalty"],
            **{name: options[name] for name in known if options.get(name) is not None},
        )

    @property
    def is_scalarized(self) -> bool:
        """Whether the bound is that of one weighted sum of the outputs."""
        clips = self.reward_bound is not None or self.constraint_bound is not None
        return self.penalty.is_linear and not self.separate_bounds and not clips


@dataclass(eq=False)
class LagrangianRound:
    """The state of all arms in a round.

    Attributes:
        engine: The engine that computed this.
        weights: The weights in use.
        means: ``num_outputs x num_arms`` posterior means, the reward's first.
        find_variances: A function from an arm's number, or None for all arms, to the posterior
            variances of the outputs, ``num_outputs x k``, or ``1 x k`` if all outputs share them.
            For bounds, pending arms count as known.
        widths: ``num_outputs``.
        draw_round: The round whose random numbers are drawn.
        among: The arms that may be chosen, in order; None for all.
    """

    engine: PenalizedEngine
    weights: Weights
    means: Tensor
    find_variances: Callable[[int | None], Tensor]
    widths: Tensor
    draw_round: int
    among: Tensor | None = None

    @cached_property
    def variances(self) -> Tensor:
        """``num_outputs x num_arms`` posterior variances, or ``1 x num_arms``."""
        return self.find_variances(None)

    @cached_property
    def deviations(self) -> Tensor:
        """Posterior standard deviations, of the shape of the variances."""
        return self._deviations(self.variances)

    def deviations_at(self, arm: int) -> Tensor:
        """Return the standard deviations at one arm, ``num_outputs``, or 1 if all are the same.

        A draw needs them nowhere else.

        Args:
            arm: Its number.
        """
        if self.engine.draws:
            return self._deviations(self.find_variances(arm))[:, 0]
        return self.deviations[:, arm]

    def _deviations(self, variances: Tensor) -> Tensor:
        if self.engine.draws:
            return variances.clamp_min(0.0).sqrt()
        if len(variances) == 1:
            return variances.clamp_min(MINIMUM_VARIANCE * self.engine.prior_variance).sqrt_()
        smallest = MINIMUM_VARIANCE * self.engine.prior_variances
        return torch.maximum(variances, smallest.unsqueeze(-1)).sqrt_()

    @cached_property
    def half_widths(self) -> Tensor:
        """``num_outputs x num_arms``; the distance of the bounds from the means."""
        return half_width(self.deviations, self.widths.unsqueeze(-1))

    @cached_property
    def drawn(self) -> Tensor:
        """``num_outputs x num_arms``; the draw of every output, scaled about its mean."""
        deviation = self.engine.deviations_of_draw(self.draw_round)
        return score(self.means, half_width(deviation, self.widths.unsqueeze(-1)))

    def lower_bounds(self, arm: int | None = None) -> Tensor:
        """Return lower confidence bounds of the constraints, ``num_constraints x num_arms``.

        Args:
            arm: The number of one arm, for which there are ``num_constraints`` bounds; all arms if
                omitted.
        """
        if arm is None:
            lower = -score(self.means[1:], self.half_widths[1:], -1.0)
        else:
            half = half_width(self.deviations_at(arm), self.widths)
            lower = -score(self.means[1:, arm], half[1:], -1.0)
        clip = self.weights.constraint_bound
        return lower if clip is None else lower.clamp(-clip, clip)

    @cached_property
    def scores(self) -> Tensor:
        """``num_arms``; the values of the acquisition function."""
        weights, sign = self.weights, self.engine.sign
        if self.engine.draws:
            value = self._penalized(sign * self.drawn[0], self.drawn[1:])
        elif weights.is_scalarized:
            value = self._of_weighted_sum()
        else:
            upper = score(self.means[0], self.half_widths[0], sign)
            if weights.reward_bound is not None:
                upper = upper.clamp(-weights.reward_bound, weights.reward_bound)
            value = self._penalized(upper, self.lower_bounds())
        return check_no_overflow(value)

    def _penalized(self, reward: Tensor, constraints: Tensor) -> Tensor:
        return penalized(reward, constraints.mT, self.weights.multipliers, self.weights.penalty)

    def _of_weighted_sum(self) -> Tensor:
        engine, multipliers = self.engine, self.weights.multipliers
        factors = torch.cat([multipliers.new_tensor([engine.sign]), -multipliers])
        squared = factors.square()
        smallest = MINIMUM_VARIANCE * float(squared @ engine.prior_variances.to(squared.device))
        if len(self.variances) == 1:
            variance = self.variances[0] * squared.sum()
        else:
            variance = squared @ self.variances
        deviation = variance.clamp_min_(smallest).sqrt_()
        width = combined_width(self.widths, multipliers, engine.width_is_one_number)
        return score(factors @ self.means, half_width(deviation, width, in_place=True))


class PenalizedEngine(ABC):
    """Plays the bound on a penalized reward, or a draw of it, on arms in one stream of rounds.

    Args:
        groups: One for each kernel, with what it knows about its outputs: a prior mean, and a
            summary of the prior for widths.
        outputs: The indices of the outputs in each group; the reward is output 0.
        options: All constructor options of the acquisition function.
        draws: Whether the reward is drawn (Thompson sampling) rather than bounded.
        name: The name of the acquisition class, for error messages.
    """

    def __init__(
        self,
        groups: Sequence[ArmsEngine | RowsEngine],
        outputs: Sequence[Sequence[int]],
        options: Mapping[str, Any],
        draws: bool,
        name: str,
    ) -> None:
        """See the class."""
        self._outputs = tuple(map(tuple, outputs))
        self.draws = draws
        self.rule = Weights.of(options)
        self.prior_mean = groups[0].prior_mean
        self.sign = 1.0 if options["maximize"] else -1.0
        self._scale = options["scale"]
        num_outputs = sum(map(len, outputs))
        rules = output_rules(name, num_outputs, options)
        self.width_is_one_number = options["width"] is not None and not isinstance(
            options["width"], tuple
        )
        # the group of each output
        order = {j: g for g, each in enumerate(outputs) for j in each}
        self._group_of = tuple(order[j] for j in range(num_outputs))
        rows = [j for each in outputs for j in each]
        self._rows = torch.tensor([rows.index(j) for j in range(num_outputs)])
        variances = [float(each.summary.active_priors[0].prior_variance) for each in groups]
        self.prior_variance = variances[order[0]]
        self.prior_variances = torch.tensor([variances[g] for g in self._group_of], dtype=DTYPE)
        # one number for all outputs makes one rule for all
        is_one_rule = not any(isinstance(options[key], tuple) for key in PER_OUTPUT)
        keys = list(self._group_of) if is_one_rule else list(range(num_outputs))
        first = {key: j for j, key in reversed(list(enumerate(keys)))}
        place = {key: i for i, key in enumerate(first)}
        self._rule_of = tuple(place[key] for key in keys)
        self._width_of_rule = [
            rules[j].in_numbers(groups[self._group_of[j]].summary) for j in first.values()
        ]
        self._value_scale = ValueScale(self.sign * self.prior_mean, math.sqrt(variances[order[0]]))

    def _round(
        self,
        means: Sequence[Tensor],
        variances: Callable[[int | None], Sequence[Tensor]],
        draw_round: int,
        rule: Weights | None,
    ) -> LagrangianRound:
        """Return the state of a round.

        Args:
            means: The means of each group, ``num_outputs x num_arms``, minus the prior mean.
            variances: A function from an arm, or None for all arms, to ``k`` variances per group.
            draw_round: The round whose random numbers are drawn.
            rule: The weights in use; the initial ones if omitted.
        """
        mean = means[0] if len(means) == 1 else torch.cat(list(means))[self._rows]
        rule = self.rule if rule is None else rule
        return LagrangianRound(
            self,
            replace(rule, multipliers=rule.multipliers.to(mean.device)),
            mean if self.prior_mean == 0.0 else mean + self.prior_mean,
            partial(self._variances_of_outputs, variances),
            self._widths().to(mean.device),
            draw_round,
        )

    def _variances_of_outputs(
        self, variances: Callable[[int | None], Sequence[Tensor]], index: int | None
    ) -> Tensor:
        found = variances(index)
        if len(found) == 1:
            return found[0].unsqueeze(0)
        return torch.stack([found[g] for g in self._group_of])

    def _widths(self) -> Tensor:
        """The width of each output."""
        known = [width(1) for width in self._width_of_rule]
        return self._scale * torch.tensor([known[i] for i in self._rule_of], dtype=DTYPE)

    @abstractmethod
    def deviations_of_draw(self, draw_round: int) -> Tensor:
        """Return the difference between a joint draw of all outputs and their means.

        Args:
            draw_round: The round whose random numbers are drawn.

        Returns:
            ``num_outputs x num_arms``.
        """

    def choose(self, seen: LagrangianRound, check: bool = True) -> Tensor:
        """Return the arm to play.

        Args:
            seen: The round, from :meth:`look`.
            check: Whether to reject scores that are not finite.
        """
        return first_of_the_largest(seen.scores, check, self._value_scale, seen.among)

    def describe(self, seen: LagrangianRound, arm: Tensor) -> dict[str, float]:
        """Return the diagnostics of an arm, by name, as the acquisition function reports them.

        Args:
            seen: The round, from :meth:`look`.
            arm: The arm.
        """
        index = int(arm)
        means = seen.means[:, index].tolist()
        known = {
            "mean": means[0],
            "standard_deviation": float(seen.deviations_at(index)[0]),
            "width": float(seen.widths[0]),
            "acquisition_value": float(seen.scores[index]),
        }
        lower = seen.lower_bounds(index).tolist()
        for j, mean in enumerate(means[1:], 1):
            known[f"constraint_mean_{j}"] = mean
            if self.draws:
                known[f"constraint_draw_{j}"] = float(seen.drawn[j, index])
            known[f"constraint_lower_bound_{j}"] = lower[j - 1]
        return known


class LagrangianEngine(PenalizedEngine):
    """Plays a penalized reward on arms from sufficient statistics.

    Args:
        groups: Engines without a rule, one for each kernel.
        outputs: The indices of the outputs in each group; the reward is output 0.
        options: All constructor options of the acquisition function.
        draws: Whether the reward is drawn (Thompson sampling) rather than bounded.
        name: The name of the acquisition class, for error messages.
    """

    def __init__(
        self,
        groups: Sequence[ArmsEngine],
        outputs: Sequence[Sequence[int]],
        options: Mapping[str, Any],
        draws: bool,
        name: str,
    ) -> None:
        """See the class."""
        super().__init__(groups, outputs, options, draws, name)
        self._groups = tuple(groups)

    @property
    def posteriors(self) -> tuple[OutputsPosterior, ...]:
        """One posterior for each group of outputs with the same kernel."""
        return tuple(cast(OutputsPosterior, each.posterior) for each in self._groups)

    def look(
        self,
        round_number: int,
        pending: Tensor | None = None,
        draw_round: int | None = None,
        rule: Weights | None = None,
    ) -> LagrangianRound:
        """Return the state of a round.

        Args:
            round_number: The number of the round, from 1.
            pending: ``k`` arms whose outcomes have not arrived, or None. Draws ignore them.
            draw_round: The round whose random numbers are drawn; ``round_number`` if omitted.
            rule: The weights in use; the initial ones if omitted.
        """
        posteriors = self.posteriors
        return self._round(
            [posterior.means for posterior in posteriors],
            partial(self._variances, None if self.draws else pending),
            round_number if draw_round is None else draw_round,
            rule,
        )

    def _variances(self, pending: Tensor | None, index: int | None) -> list[Tensor]:
        found = [
            posterior.variance if pending is None else posterior.variance_given(pending)
            for posterior in self.posteriors
        ]
        return found if index is None else [each[index : index + 1] for each in found]

    def lower_bounds_of_constraints(self) -> Tensor:
        """Return lower confidence bounds without clips, ``num_constraints x num_arms``.

        Pending arms are ignored.
        """
        seen = self.look(1, rule=replace(self.rule, constraint_bound=None))
        return seen.lower_bounds()

    def deviations_of_draw(self, draw_round: int) -> Tensor:
        first = self.posteriors[0]
        shape = (len(self._group_of), first.num_arms)
        drawn = torch.empty(shape, dtype=DTYPE, device=first.device)
        for engine, posterior, outputs in zip(
            self._groups, self.posteriors, self._outputs, strict=True
        ):
            simulations = [
                engine.draw(
                    draw_round,
                    f"lagrangian thompson, output {j}",
                    (posterior.num_normals,),
                    "normal",
                    posterior.simulate_prior,
                )
                for j in outputs
            ]
            drawn[list(outputs)] = posterior.deviations_of_draws(torch.stack(simulations))
        return drawn

    def observe_many(
        self,
        arms: Sequence[int],
        outcomes: Sequence[Sequence[float]],
        weights: Sequence[float] | None = None,
    ) -> None:
        """Add a record; see :meth:`.OutputsPosterior.observe_many_outputs`.

        Args:
            arms: Arm numbers in order.
            outcomes: The reward and the constraint values of each.
            weights: The weight of each round; all are 1 if omitted.
        """
        for posterior, outputs in zip(self.posteriors, self._outputs, strict=True):
            own = [[each[j] - self.prior_mean for j in outputs] for each in outcomes]
            posterior.observe_many_outputs(arms, own, weights)


def build_lagrangian_engine(
    model: BanditGPRecipe,
    acquisition: AcquisitionRecipe,
    domain: Arms,
    seed: int,
) -> LagrangianEngine | None:
    """Return an engine that plays a penalized reward on arms from sufficient statistics.

    Args:
        model: Kernel and noise, the same for reward and constraints unless the kernel has a batch
            shape.
        acquisition: The acquisition function to play, with multipliers.
        domain: The arms.
        seed: The seed of the draws.

    Returns:
        None if the settings need the model itself; see
        :func:`~botorch_bandits.acquisition.engines.build_arms_engine`.
    """
    settings = read_outputs(model, acquisition, domain)
    if settings is None:
        return None
    groups = []
    for recipe, outputs in zip(settings.models, settings.outputs, strict=True):
        engine = build_arms_engine(recipe, RandomSearch(), domain, seed, num_outputs=len(outputs))
        if engine is None or not has_scale(engine):
            return None
        groups.append(engine)
    return LagrangianEngine(
        groups, settings.outputs, settings.options, settings.draws, settings.name
    )


def has_scale(engine: ArmsEngine | RowsEngine) -> bool:
    """Whether the prior of an engine has a variance, the unit in which bounds are measured."""
    return 0.0 < float(engine.summary.active_priors[0].prior_variance) < math.inf


@dataclass(frozen=True, eq=False)
class OutputsSettings:
    """The rule played on reward and constraints, and the outputs that share a kernel.

    Attributes:
        options: All constructor options of the acquisition function.
        draws: Whether the reward is drawn (Thompson sampling) rather than bounded.
        name: The name of the acquisition class, for error messages.
        outputs: The indices of the outputs in each group; the reward is output 0.
        models: The kernel and noise of each group.
    """

    options: dict[str, Any]
    draws: bool
    name: str
    outputs: tuple[tuple[int, ...], ...]
    models: tuple[BanditGPRecipe, ...]


def read_outputs(
    model: BanditGPRecipe, acquisition: AcquisitionRecipe, domain: Arms
) -> OutputsSettings | None:
    """Return what is played on reward and constraints.

    Args:
        model: Kernel and noise, the same for all outputs unless the kernel has a batch shape.
        acquisition: The acquisition function to play, with multipliers.
        domain: The arms.

    Returns:
        None if it is not a bound on a penalized reward or a draw of it, or its options need a
        model.
    """
    cls = acquisition.acquisition_class
    played = cls.played_as
    if played not in (LagrangianUpperConfidenceBound, LagrangianThompsonSampling):
        return None
    if any(
        acquisition.options.get(name) is not None for name in ("posterior_transform", "choices")
    ):
        return None
    draws = played is LagrangianThompsonSampling
    options = cls.complete_options(acquisition.options, domain)
    if draws:
        options = LagrangianThompsonSampling.options_of_widths(options)
    outputs: dict[str, list[int]] = {}
    kernels = {}
    for j in range(1 + len(options["multipliers"])):
        kernel = kernel_of_output(model.kernel, j) if model.kernel.batch_shape else model.kernel
        name = fingerprint_kernel(kernel) if model.kernel.batch_shape else ""
        outputs.setdefault(name, []).append(j)
        kernels[name] = kernel
    return OutputsSettings(
        options,
        draws,
        cls.__name__,
        tuple(map(tuple, outputs.values())),
        tuple(replace(model, kernel=kernels[name]) for name in outputs),
    )
