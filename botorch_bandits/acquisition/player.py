"""A player: a rule, the posterior that it looks at, and its random numbers.

A player plays a stream of rounds from the rows that the loop gives it, or replicates in lockstep
from rows of their own. Windows, weights, contexts, time, constraints and censoring are in the rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from botorch.models.transforms.input import InputTransform, Normalize
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.baselines import RandomSearch
from botorch_bandits.acquisition.rules import ArmsRule, LagrangianArmsRule, ListArmsRule, Seen
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import WidthRule
from botorch_bandits.confidence.prior_reading import learns_input_scale, prior_variance_of
from botorch_bandits.confidence.width_rules import RunningPriorSummary
from botorch_bandits.core.conditioner import Conditioner, RoundConditioner
from botorch_bandits.core.kernels import TimeDecayKernel, fingerprint_kernel, kernel_of_output
from botorch_bandits.core.posterior import Posterior
from botorch_bandits.core.priors import Prior, Stack, prior_of
from botorch_bandits.core.round_posterior import RoundPosterior
from botorch_bandits.core.rows import Rows, changes_between
from botorch_bandits.domains import Arms, first_of_the_largest
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.models.candidates import CandidatesRecipe
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator


class PlayerSummary(RunningPriorSummary):
    """A view of one of a player's priors that lets width rules work on it as on any model."""

    def __init__(self, player: Player, group: int, prior_variance: float) -> None:
        """See the class.

        Args:
            player: The player.
            group: The number of the prior; replicates have one prior and are all in it.
            prior_variance: The prior variance, the square of the unit of bounds.
        """
        self._player, self._group = player, group
        lam = player.posterior.lam
        super().__init__(
            self, player.outside(lam) if player.batch_shape else lam[group], prior_variance
        )

    @property
    def information_gain(self) -> Tensor:
        """The realized information gain of the rows, a scalar or one a replicate, in nats."""
        gain = self._player.posterior.gain.clamp_min(0.0)
        return gain if self._player.batch_shape else gain[self._group]

    @property
    def num_rows(self) -> int | Tensor:  # type: ignore[override]
        """The number of observations that count; one number per replicate if they differ."""
        return self._player.num_observations


class Player:
    """A rule, the posterior that it looks at, and its random numbers.

    Attributes:
        rule: The rule; None to choose uniformly at random.
        prior_mean: The prior mean of the reward.
        prior_deviation: The prior standard deviation of the reward.
        prior_variances: ``m`` prior variances of the outputs.
        group_of_output: The number of each output's prior.
        batch_shape: ``()``, or ``(num_replicates,)``.
        numbers_by_row: Whether draws have a number for the noise of each row, and not of each arm.
        rule_domain: The arms behind their fronts, for rules that depend on the domain.
        evidence: The evidence of each entry of a list of priors.
        transform: The transform of the model's inputs.
        memo: What rules keep from round to round, by name.
    """

    rule_domain: Arms
    transform: InputTransform | None = None

    def __init__(  # noqa: PLR0913 - each setting of a loop on arms
        self,
        rule: ArmsRule | None,
        prior: Prior | Sequence[Prior],
        lam: float | Tensor,
        prior_variance: float | Sequence[float],
        seeds: int | Sequence[int],
        prior_mean: float | Tensor = 0.0,
        group_of_output: Sequence[int] = (0,),
        numbers_by_row: bool = False,
        rows_stay: bool = True,
    ) -> None:
        """See the class.

        Args:
            rule: The rule; None to choose uniformly at random.
            prior: The prior of the arms, or several: of outputs, or of a list.
            lam: The noise variance, or one per prior or replicate.
            prior_variance: The prior variance of each prior.
            seeds: A seed, or one per replicate.
            prior_mean: The prior mean, or one per prior.
            group_of_output: The number of each output's prior.
            numbers_by_row: See the class.
            rows_stay: Whether most rows of a round are those of the one before.
        """
        priors = [prior] if isinstance(prior, Prior) else list(prior)
        units = [prior_variance] if isinstance(prior_variance, float) else list(prior_variance)
        self.rule, self.numbers_by_row = rule, numbers_by_row
        self.batch_shape = torch.Size(() if isinstance(seeds, int) else (len(seeds),))
        self._seeds = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        self.group_of_output = tuple(group_of_output)
        stack = Stack(priors)
        like = stack.variances(
            torch.zeros(stack.num_front, dtype=DTYPE) if stack.num_front else None
        )
        count = max(len(priors), len(self._seeds))
        levels = torch.as_tensor(lam, dtype=DTYPE, device=like.device).expand(count).clone()
        means = torch.as_tensor(prior_mean, dtype=DTYPE, device=like.device)
        means = means.unsqueeze(-1) if means.dim() else means
        outputs = len(self.group_of_output)
        self._conditioner: Conditioner | RoundConditioner
        if stack.num_front or not rows_stay:
            own = means.expand(count, outputs)
            self._conditioner = RoundConditioner(stack, levels, own, rows_stay)
        else:
            self._conditioner = Conditioner(Posterior(stack, levels, outputs, means))
        self.prior_mean = prior_mean if isinstance(prior_mean, float) else 0.0
        self.prior_deviation = _unit_of(float(like[0].max()), units[0])
        self.prior_variances = torch.tensor([units[g] for g in self.group_of_output], dtype=DTYPE)
        self._units = units
        self.recipe: Any = None  # of a list of priors
        self._blocks: dict[str, RandomBlocks] = {}
        self.memo: dict[str, Any] = {}

    @property
    def posterior(self) -> Posterior | RoundPosterior:
        """The posterior of all arms given the rows of the last look."""
        return self._conditioner.posterior

    @property
    def num_observations(self) -> int | Tensor:
        """The number of observations that count, or one a replicate."""
        rows = self._conditioner.rows
        return 0 if rows is None else round(float(rows.noise.reciprocal().sum()))

    def outside(self, values: Tensor) -> Tensor:
        """Return ``G x ...`` values without the first dimension if there are no replicates."""
        return values if self.batch_shape else values[0]

    @cached_property
    def summaries(self) -> tuple[PlayerSummary, ...]:
        """The view of each prior for width rules."""
        return tuple(PlayerSummary(self, g, unit) for g, unit in enumerate(self._units))

    @property
    def summary(self) -> PlayerSummary:
        """The view of the reward's prior for width rules."""
        return self.summaries[0]

    def widths_of_outputs(self, rules: Sequence[WidthRule], scale: float) -> Tensor:
        """Return the width of each output, ``m``.

        Args:
            rules: The rule of each output's width.
            scale: A factor on all of them.
        """
        pairs = zip(rules, self.group_of_output, strict=True)
        widths = [float(rule.width(self.summaries[group], 1)) for rule, group in pairs]
        return scale * torch.tensor(widths, dtype=DTYPE)

    def condition(self, rows: Rows, now: Tensor | None = None) -> Posterior | RoundPosterior:
        """Condition the posterior on the rows of a round, and return it.

        Args:
            rows: All rows that count.
            now: ``c``, the front of all arms, if rows have fronts.
        """
        if self.recipe is not None:
            self._weigh(self.recipe, rows)
        return self._conditioner.at(rows, now)

    def set_prior_mean(self, value: float) -> None:
        """Give the reward another prior mean (``value``), as with other multipliers."""
        if value != self.prior_mean:
            self.prior_mean = value
            self._conditioner.set_prior_mean(value)

    def transformed_contexts(self, contexts: Tensor) -> Tensor:
        """Return ``n x c`` ``contexts`` in the form that the kernel expects."""
        if self.transform is None or not contexts.shape[-1]:
            return contexts
        count = contexts.shape[-1]
        # with a kernel that varies with time, the rounds are not among the transform's columns
        rest = self.rule_domain.dim - self.posterior.prior.num_front
        whole = torch.nn.functional.pad(contexts, (0, rest))
        with torch.no_grad():
            found: Tensor = copy.deepcopy(self.transform).eval()(whole)
        return found[..., :count]

    def follow(self, recipe: CandidatesRecipe) -> None:
        """Follow the evidence of a list of priors, whose groups are the priors here.

        Args:
            recipe: The list.
        """
        self.recipe = recipe
        self._start_evidence(recipe)

    def _start_evidence(self, recipe: CandidatesRecipe) -> None:
        self.evidence, self._weighed = recipe.new_evidence(), Rows.empty(1, self.posterior.lam)

    def _weigh(self, recipe: CandidatesRecipe, rows: Rows) -> None:
        """Add new outcomes to the evidence, each predicted from the rows before it."""
        changes = changes_between(self._weighed, rows)
        if changes is None or changes.left or changes.came != range(len(self._weighed), len(rows)):
            self._start_evidence(recipe)
            self._conditioner.at(rows[:0])
        for i in range(len(self._weighed), len(rows)):
            posterior = self._conditioner.at(rows[:i])
            if i >= recipe.num_skipped:
                at, lam = int(rows.index[i]), posterior.lam
                mean, variance = posterior.mean[:, 0, at], posterior.variance[:, at].clamp_min(0.0)
                moments = (each.cpu().numpy() for each in (mean, variance + lam))
                outcome = float(rows.Y[i, 0])
                self.evidence.update(recipe.groups.log_densities(outcome, *moments))
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
        """Return what the rule sees in a round.

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
        if rule is None:
            raise ValueError("the player has no rule; call choose_uniformly(round_number).")
        if rows is not None:
            self.condition(rows, now)
        draw_round = round_number if draw_round is None else draw_round
        if pending is not None and not (rule.takes_pending and len(pending)):
            pending = None
        given = (rule, self, self.posterior, self._conditioner.rows, round_number, draw_round)
        return Seen(*given, now, pending, among)

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

    def describe(self, seen: Seen, arm: Tensor | int) -> dict[str, float]:
        """Return the diagnostics of an arm in the round ``seen`` of a single stream, by name."""
        index = int(arm)
        mean, deviation = seen.rule.moments(seen, index)
        known = {
            "mean": mean,
            "standard_deviation": deviation,
            "acquisition_value": float(seen.scores[index]),
        }
        described = seen.rule.describe(seen, torch.tensor(index))
        return {**known, **{name: float(value) for name, value in described.items()}}

    # --- what rules ask for ---

    def rows_of_draw(self, posterior: Posterior | RoundPosterior) -> Rows:
        """Return the rows of a ``posterior`` of drawn noise: one a place, and what is pending."""
        return posterior.collapsed

    def extremes(self, rows: Rows | None) -> tuple[Tensor, Tensor]:
        """Return the smallest and the largest outcome of ``rows``, infinite if there are none."""
        assert rows is not None
        if not len(rows):
            return rows.Y.new_tensor(torch.inf), rows.Y.new_tensor(-torch.inf)
        return rows.Y[:, 0].amin(), rows.Y[:, 0].amax()

    def has_observed(self, rows: Rows | None) -> Tensor:
        """Return which arms have outcomes in ``rows``, ``batch_shape x num_arms``, ``bool``."""
        assert rows is not None
        count = self.posterior.prior.num_points
        found = torch.zeros(count, dtype=torch.bool, device=rows.index.device)
        found[rows.index] = True
        return found

    def numbers(
        self,
        draw_round: int,
        purpose: str,
        shape: tuple[int, ...],
        distribution: str,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return the random numbers of a round, ``batch_shape x shape``; see :class:`Seen`."""
        if purpose not in self._blocks:
            device = self.posterior.lam.device
            self._blocks[purpose] = RandomBlocks(
                self._seeds, purpose, shape, distribution, device, transform
            )
        return self.outside(self._blocks[purpose].at(draw_round))

    def normal(self, draw_round: int, purpose: str, count: int) -> Tensor:
        """Return ``count`` standard normal numbers; ``draw_round`` and ``purpose`` choose them."""
        stream = generator(self._seeds[0], draw_round, purpose)
        return torch.randn(count, dtype=DTYPE, generator=stream)

    def stream_of(self, seen: Seen) -> torch.Generator:
        """Return the random numbers with which an entry of a list is drawn in a round, ``seen``."""
        return torch.Generator().manual_seed(
            derive_seed(self._seeds[0], seen.draw_round, "candidate")
        )


def _unit_of(largest: float, prior_variance: float) -> float:
    """Return the prior standard deviation, the unit in which ties and floors are decided."""
    # the largest variance of the arms for kernels whose variance differs from arm to arm
    is_stationary = math.isclose(largest, prior_variance, rel_tol=1e-9)
    variance = prior_variance if is_stationary else largest
    return math.sqrt(variance) if 0.0 < variance < math.inf else 1.0


class Replicates(Player):
    """Plays replicates in lockstep, each with outcomes of its own at arms without fronts."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """See :class:`Player`; ``seeds`` has one seed per replicate."""
        super().__init__(*given, **named)
        posterior = self._conditioner.posterior
        assert isinstance(posterior, Posterior)
        self._own = posterior
        self._counts = posterior.lam.new_zeros(posterior.batch, posterior.prior.num_points)
        self._sums = torch.zeros_like(self._counts)
        self._largest = posterior.lam.new_full(self.batch_shape, -torch.inf)
        self._smallest = posterior.lam.new_full(self.batch_shape, torch.inf)
        self._waiting: list[tuple[int, float]] = []

    @property
    def num_observations(self) -> int | Tensor:
        """See the base class."""
        self._count()
        totals = self._counts.sum(-1)
        first = totals[0]
        return int(first) if bool((totals == first).all()) else totals

    def observe(self, arm: Tensor, outcome: Tensor, mask: Tensor | None = None) -> None:
        """Add one outcome per replicate.

        Args:
            arm: ``num_replicates`` numbers of arms.
            outcome: ``num_replicates`` outcomes.
            mask: ``num_replicates``, which of them count; None for all.
        """
        posterior, index = self._own, arm.unsqueeze(-1)
        one = torch.ones_like(outcome) if mask is None else mask.to(outcome)
        told = outcome if mask is None else outcome.where(mask, torch.zeros_like(outcome))
        self._make_room()
        posterior.add_each(arm, told.unsqueeze(-1), mask)
        self._counts.scatter_add_(-1, index, one.unsqueeze(-1))
        self._sums.scatter_add_(-1, index, (told * one).unsqueeze(-1))
        lowest, highest = self._smallest.minimum(told), self._largest.maximum(told)
        self._smallest = lowest if mask is None else lowest.where(mask, self._smallest)
        self._largest = highest if mask is None else highest.where(mask, self._largest)

    def observe_one(self, arm: int, outcome: float) -> None:
        """Add an outcome of a single replicate, without calls that only batches need.

        Args:
            arm: The number of the arm.
            outcome: Its outcome.
        """
        self._make_room()
        self._own.add(arm, [outcome])
        self._waiting.append((arm, outcome))

    def _count(self) -> None:
        """Count outcomes of a single replicate together, as tensors of one number cost most."""
        if self._waiting:
            arms, outcomes = zip(*self._waiting, strict=True)
            index, values = torch.tensor(arms), self._sums.new_tensor(outcomes)
            self._counts[0].index_add_(0, index, torch.ones_like(values))
            self._sums[0].index_add_(0, index, values)
            self._smallest = self._smallest.minimum(values.amin())
            self._largest = self._largest.maximum(values.amax())
            self._waiting = []

    def reset(self, mask: Tensor) -> None:
        """Forget all outcomes of replicates where ``mask`` (``num_replicates``) is True."""
        self._count()
        self._counts[mask], self._sums[mask] = 0.0, 0.0
        self._own.forget(mask)
        self._largest = self._largest.masked_fill(mask, -torch.inf)
        self._smallest = self._smallest.masked_fill(mask, torch.inf)

    def _make_room(self) -> None:
        """Condition on one row for each observed arm if there is no room for the next row."""
        if not self._own.has_room(1):
            self._count()
            observed = self._counts > 0.0
            count = int(observed.sum(-1).max())
            # each replicate's arms in their order, then others with infinite noise
            order = observed.to(torch.int8).sort(dim=-1, descending=True, stable=True).indices
            index = order[:, :count]
            counts = self._counts.gather(-1, index)
            means = self._sums.gather(-1, index) / counts.clamp_min(1.0)
            self._own.factorize(Rows(index, means.unsqueeze(-1), counts.reciprocal()))

    def rows_of_draw(self, posterior: Posterior | RoundPosterior) -> Rows:
        """See the base class: one row for each arm; of one replicate, for those with outcomes."""
        self._count()
        some = torch.arange(self._counts.shape[-1], device=self._counts.device)
        if len(self._counts) == 1:
            some = some[self._counts[0] > 0.0]
        counts = self._counts[:, some]
        means = self._sums[:, some] / counts.clamp_min(1.0)
        return Rows(some, means.unsqueeze(-1), counts.reciprocal())

    def extremes(self, rows: Rows | None) -> tuple[Tensor, Tensor]:
        self._count()
        return self._smallest, self._largest

    def has_observed(self, rows: Rows | None) -> Tensor:
        self._count()
        return self._counts > 0.0


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
    rule: ArmsRule | None = None,
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
        rule: What is played instead of the rule of the acquisition function.

    Returns:
        The player; None if these settings need a model.
    """
    if isinstance(model, CandidatesRecipe):
        return _player_of_list(model, acquisition, domain, seeds, known)
    num_front = num_contexts + (rate is not None)
    is_plain = model.model_class is BanditGP and model.refit_every is None
    transform = model.input_transform
    can_split = num_contexts == 0 or transform is None or type(transform) is Normalize
    if not is_plain or not keeps_arms(transform) or not can_split:
        return None
    there = domain.in_context(torch.zeros(num_front, dtype=DTYPE)) if num_front else domain
    if rule is None and isinstance(acquisition, AcquisitionRecipe):
        rule = acquisition.arms_rule(there)
        if rule is None:
            return None
    kernels, group_of_output = _kernels_of_outputs(model, 1 if rule is None else rule.num_outputs)
    if kernels is None:
        return None
    with torch.no_grad():
        points = _transformed(transform, domain.choices, num_contexts)
        own = [copy.deepcopy(kernel).to(points) for kernel in kernels]
        whole = own if rate is None else [TimeDecayKernel(kernel, rate) for kernel in own]
        priors = list(known) or [prior_of(kernel, points, num_front) for kernel in whole]
        inputs = points.new_empty(0, there.dim) if num_front else points
        units = [float(prior_variance_of(kernel, inputs)) for kernel in whole]
    if isinstance(rule, LagrangianArmsRule) and not all(0.0 < unit < math.inf for unit in units):
        return None  # bounds of outputs are measured in prior deviations
    mean, kept = model.prior_mean, (numbers_by_row, rows_stay)
    kind = Player if isinstance(seeds, int) else Replicates
    player = kind(rule, priors, model.noise, units, seeds, mean, group_of_output, *kept)
    player.rule_domain, player.transform = there, transform
    return player


def keeps_arms(transform: InputTransform | None) -> bool:
    """Return whether each arm becomes one point, whatever the data and in every use."""
    parts = [] if transform is None else transform.modules()
    return not learns_input_scale(transform) and all(
        part.transform_on_train and part.transform_on_eval and not part.is_one_to_many
        for part in parts
        if isinstance(part, InputTransform)
    )


def _kernels_of_outputs(model: BanditGPRecipe, count: int) -> tuple[list[Any] | None, list[int]]:
    """Return the different kernels of the outputs, and the number of each output's kernel."""
    if not model.kernel.batch_shape:
        return [model.kernel], [0] * count
    if count == 1:
        return None, []
    names: dict[str, int] = {}
    kernels, group_of_output = [], []
    for j in range(count):
        kernel = kernel_of_output(model.kernel, j)
        name = fingerprint_kernel(kernel)
        if name not in names:
            names[name] = len(names)
            kernels.append(kernel)
        group_of_output.append(names[name])
    return kernels, group_of_output


def _transformed(transform: InputTransform | None, choices: Tensor, num_contexts: int) -> Tensor:
    """Return arms as the kernel expects them; behind contexts, transforms work by column."""
    if transform is None:
        return choices
    whole = torch.nn.functional.pad(choices, (num_contexts, 0))
    inner = copy.deepcopy(transform).to(choices).eval()
    found: Tensor = inner(whole)[..., num_contexts:]
    return found.contiguous()


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
        points = _transformed(recipe.input_transform, domain.choices, 0)
        own = [copy.deepcopy(kernel).to(points) for kernel in groups.kernels]
        priors = list(known) or [prior_of(kernel, points) for kernel in own]
    lam, means = groups.lam.to(points), groups.prior_means.to(points)
    player = Player(rule, priors, lam, [1.0] * len(priors), seeds, means)
    player.follow(recipe)
    player.rule_domain = domain
    return player
