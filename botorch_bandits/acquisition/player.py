"""A player: a rule, the posterior that it looks at, and its random numbers.

A player plays a stream of rounds from the rows that the loop gives it, or replicates in lockstep
from rows of their own. Windows, weights, contexts, time, constraints and censoring are in the rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.baselines import RandomSearch
from botorch_bandits.acquisition.rules import ArmsRule, ListArmsRule, Seen
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.prior_reading import learns_input_scale, prior_variance_of
from botorch_bandits.confidence.width_rules import RunningPriorSummary
from botorch_bandits.core.conditioner import Conditioner, RoundConditioner
from botorch_bandits.core.kernels import TimeDecayKernel, kernel_of_output
from botorch_bandits.core.posterior import Posterior
from botorch_bandits.core.priors import Prior, Stack, prior_of
from botorch_bandits.core.round_posterior import RoundPosterior
from botorch_bandits.core.rows import Rows, changes_between
from botorch_bandits.domains import Arms, first_of_the_largest
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.random_streams import RandomBlocks


class Player:
    """A rule, the posterior that it looks at, and its random numbers.

    Attributes:
        rule: The rule; None to choose uniformly at random.
        seeds: The seed, or one per replicate.
        batch_shape: ``()``, or ``(num_replicates,)``.
        prior_mean: The prior mean of the reward.
        prior_deviation: The prior standard deviation of the reward, the unit in which ties and
            floors are decided.
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
        self._conditioner: Conditioner | RoundConditioner
        if stack.num_front or not rows_stay:
            self._conditioner = RoundConditioner(stack, levels, means)
        else:
            self._conditioner = Conditioner(Posterior(stack, levels, means.shape[1], means))
        self.prior_mean = float(means[0, 0])
        # the largest variance of the arms for kernels whose variance differs from arm to arm
        largest = float(variances[0].max())
        self.prior_deviation = math.sqrt(largest) if 0.0 < largest < math.inf else 1.0
        self.units = units
        self._blocks: dict[str, RandomBlocks] = {}
        self.memo: dict[str, Any] = {}

    @property
    def posterior(self) -> Posterior | RoundPosterior:
        """The posterior of all arms given the rows of the last look."""
        return self._conditioner.posterior

    @property
    def rows(self) -> Rows:
        """The rows of the last look, as they were given."""
        known = self._conditioner.rows
        return self.posterior.rows if known is None else known

    def num_observations(self) -> int | Tensor:
        """Return the number of observations that count, or one a replicate if they differ."""
        counts = self.rows.noise.reciprocal().sum(-1).round().long()
        first = int(counts.reshape(-1)[0])
        return first if bool((counts == first).all()) else counts

    def outside(self, values: Tensor) -> Tensor:
        """Return ``G x ...`` values without the first dimension if there are no replicates."""
        return values if self.batch_shape else values[0]

    def gain(self, group: int = 0) -> Tensor:
        """Return the realized information gain of the rows, in nats, one number a replicate.

        Args:
            group: The number of the prior; replicates have one prior and are all in it.
        """
        gains = self._conditioner.posterior.gain.clamp_min(0.0)
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

    @property
    def summary(self) -> RunningPriorSummary:
        """What width rules need to know of the reward's prior."""
        return self.summaries[0]

    def condition(self, rows: Rows, now: Tensor | None = None) -> Posterior | RoundPosterior:
        """Condition the posterior on the rows of a round, and return it.

        Args:
            rows: All rows that count.
            now: ``c``, the front of all arms, if rows have fronts.
        """
        if self.recipe is not None:
            self._weigh(rows)
        return self._conditioner.at(rows, now)

    def set_prior_mean(self, value: float) -> None:
        """Give the reward another prior mean (``value``), as with other multipliers."""
        if value != self.prior_mean:
            self.prior_mean = value
            self._conditioner.set_prior_mean(value)

    def follow(self, recipe: CandidatesRecipe) -> None:
        """Follow the evidence of a list of priors (``recipe``), whose groups are the priors."""
        self.recipe, self.evidence = recipe, recipe.new_evidence()
        self._weighed = self.posterior.rows[:0]

    def _weigh(self, rows: Rows) -> None:
        """Add new outcomes to the evidence, each predicted from the rows before it."""
        changes = changes_between(self._weighed, rows)
        if changes != ((), range(len(self._weighed), len(rows))):
            self.follow(self.recipe)  # rows are gone, or are others
            self._conditioner.at(rows[:0])
        for i in range(len(self._weighed), len(rows)):
            posterior = self._conditioner.at(rows[:i])
            if i >= self.recipe.num_skipped:
                at, lam = int(rows.index[i]), posterior.lam
                mean, variance = posterior.mean[:, 0, at], posterior.variance[:, at].clamp_min(0.0)
                moments = (each.cpu().numpy() for each in (mean, variance + lam))
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
    ) -> Seen:
        """Return what the rule sees in a round.

        Args:
            round_number: The round, from 1.
            rows: The rows that count, on which the posterior is conditioned; None for replicates,
                and for a posterior that :meth:`condition` has conditioned already.
            now: ``c``, the front of all arms, if rows have fronts.
            pending: Rows that are asked and whose outcomes are not known.
            draw_round: The round of the whole run, for random numbers; None for ``round_number``.
            rule: What is played instead of the player's rule.
        """
        rule = self.rule if rule is None else rule
        assert rule is not None
        if rows is not None:
            self.condition(rows, now)
        if pending is not None and not (rule.takes_pending and len(pending)):
            pending = None
        drawn = round_number if draw_round is None else draw_round
        return Seen(rule, self, self.posterior, round_number, drawn, now, pending)

    def choose(self, seen: Seen, check: bool = True) -> Tensor:
        """Return the arm to play, ``batch_shape``.

        Args:
            seen: The round.
            check: Whether to raise an error if scores are not finite.
        """
        return first_of_the_largest(seen.scores, check, seen.rule.value_scale(seen), seen.among)

    def choose_uniformly(self, round_number: int) -> Tensor:
        """Return a uniformly random arm of ``round_number``, one a replicate: ``batch_shape``."""
        uniform = self.numbers(round_number, "sample", (), "uniform")
        return (uniform * self.posterior.prior.num_points).long()

    def describe(self, seen: Seen, arm: int) -> dict[str, float]:
        """Return the diagnostics of an arm in the round ``seen`` of a single stream, by name."""
        described = {**seen.rule.describe(seen, arm), "acquisition_value": seen.scores[arm]}
        return {name: float(value) for name, value in described.items()}

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
        return self.outside(self._blocks[purpose].at(draw_round))


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
        if not self._own.has_room(1):
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
