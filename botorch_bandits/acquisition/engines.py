"""Engines play a rule round after round: on arms, and on a box for replicates in lockstep.

:class:`ArmsEngine` serves one stream of rounds (a loop on arms) or a batch of replicates (the
simulation) from sufficient statistics. Replicate ``b`` makes the same draws as a single stream with
its seed, so both choose the same arms, up to ties.

:class:`BoxEngine` serves replicates on a box. The widths are those of the loop's rules; the local
search is that of ``gen_candidates_batched``, with the starting points of all replicates in each
evaluation. The raw samples are one Sobol set, shifted on the torus by a uniform draw for each round
and replicate (Cranley and Patterson, *Randomization of number theoretic methods for multiple
integration*, SIAM J. Numerical Analysis 1976), so that a replicate depends on its own seed alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.baselines import RandomSearch
from botorch_bandits.acquisition.one_stream import NumpyUpperConfidenceBound
from botorch_bandits.acquisition.scores import (
    ArmsRound,
    ArmsRule,
    WidthArmsRule,
    half_width,
    score,
)
from botorch_bandits.acquisition.upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.checks import check_finite
from botorch_bandits.confidence.width_rules import (
    MINIMUM_VARIANCE,
    RunningPriorSummary,
    learns_input_scale,
    prior_variance_of,
)
from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.core.kernels import check_kernel_columns, kernel_function
from botorch_bandits.domains import ORDINARY, Arms, Box, first_of_the_largest
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.models.arms import ArmsPosterior, ArmsPriorSummary
from botorch_bandits.models.many_arms import posterior_on_arms
from botorch_bandits.models.noise_floor import check_range_on_box
from botorch_bandits.models.outputs_on_arms import OutputsPosterior
from botorch_bandits.models.prior_on_arms import ArmsPrior
from botorch_bandits.optim import (
    MAXIMUM_DIMENSION,
    MAXIMUM_ROWS_FOR_DIFFERENCES,
    Array,
    Index,
    maximize_locally,
    to_host,
)
from botorch_bandits.random_streams import RandomBlocks, generator


class ArmsEngine:
    """A rule, its posterior and its random numbers.

    Args:
        rule: The rule that scores the arms in every round that does not have its own. With None,
            the engine can only play uniformly at random.
        prior: The prior covariance of the arms.
        lam: The regularization of the posterior.
        prior_variance: The unit of bounds on the norm; see
            :class:`~botorch_bandits.confidence.PriorSummary`.
        seeds: One per replicate; an ``int`` for a single stream.
        prior_mean: A constant, in outcome units.
        num_outputs: How many outputs a single stream has; see
            :class:`~botorch_bandits.models.outputs_on_arms.OutputsPosterior`.
    """

    def __init__(
        self,
        rule: ArmsRule | None,
        prior: ArmsPrior,
        lam: float | Tensor,
        prior_variance: float,
        seeds: int | Sequence[int],
        prior_mean: float = 0.0,
        num_outputs: int | None = None,
    ) -> None:
        """See the class."""
        self.rule = rule
        self.prior_mean = prior_mean
        self.prior_deviation = _largest_deviation(prior, prior_variance)
        batch_shape = () if isinstance(seeds, int) else (len(seeds),)
        self._seeds = (seeds,) if isinstance(seeds, int) else tuple(seeds)
        self.posterior: ArmsPosterior
        if num_outputs is not None:
            self.posterior = OutputsPosterior(prior, float(lam), num_outputs)
        elif prior.matrix is None:
            self.posterior = posterior_on_arms(prior, lam, batch_shape)
        else:
            self.posterior = ArmsPosterior(prior, lam, batch_shape)
        self.summary = ArmsPriorSummary(self.posterior, prior_variance)
        self._largest = prior.diagonal.new_full(batch_shape, -torch.inf)
        self._smallest = prior.diagonal.new_full(batch_shape, torch.inf)
        self._blocks: dict[str, RandomBlocks] = {}
        self._in_numpy: NumpyUpperConfidenceBound | None = None

    def look(
        self,
        round_number: int,
        pending: Tensor | None = None,
        draw_round: int | None = None,
        rule: ArmsRule | None = None,
    ) -> ArmsRound:
        """Return what the rule sees in a round.

        Args:
            round_number: The number of the round, from 1; widths grow with it.
            pending: ``batch_shape x k`` arms whose outcomes have not arrived, or None.
            draw_round: The round whose random numbers are drawn; ``round_number`` if omitted.
            rule: The rule for this round alone; the engine's own rule if omitted.

        Raises:
            ValueError: If there is no rule, so that the engine plays at random.
        """
        rule = self.rule if rule is None else rule
        if rule is None:
            raise ValueError("the engine has no rule; call choose_uniformly(round_number).")
        return ArmsRound(
            rule=rule,
            posterior=self.posterior,
            summary=self.summary,
            round_number=round_number,
            largest_outcome=self._largest,
            smallest_outcome=self._smallest,
            draw=partial(self.draw, round_number if draw_round is None else draw_round),
            pending=pending,
            prior_mean=self.prior_mean,
            prior_deviation=self.prior_deviation,
        )

    def choose(self, seen: ArmsRound, check: bool = True) -> Tensor:
        """Return the arm to play, ``batch_shape``.

        Args:
            seen: The round, from :meth:`look`.
            check: Whether to reject scores that are not finite.
        """
        return first_of_the_largest(seen.scores, check, seen.value_scale, seen.among)

    def in_numpy(self, rule: ArmsRule | None) -> NumpyUpperConfidenceBound | None:
        """Return an object that plays a rule for a single stream without torch calls, if possible.

        Args:
            rule: An upper confidence bound; it chooses where no arm is pending.
        """
        if type(rule) is not WidthArmsRule or rule.predictive or not self.posterior.is_in_numpy:
            return None
        if self._in_numpy is None or self._in_numpy.rule is not rule:
            self._in_numpy = NumpyUpperConfidenceBound(
                rule, self.posterior, self.summary, self.prior_mean, self.prior_deviation
            )
        return self._in_numpy

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what shares memory with the posterior."""
        return {**vars(self), "_in_numpy": None}

    def choose_uniformly(self, round_number: int) -> Tensor:
        """Return a uniformly random arm per replicate, ``batch_shape``.

        Args:
            round_number: The number of the round, from 1; the draw is a function of this number and
                the replicate's seed.
        """
        uniform = self.draw(round_number, "sample", (), "uniform")
        return (uniform * self.posterior.num_arms).long()

    def observe(
        self, arm: Tensor | int, outcome: Tensor | float, mask: Tensor | None = None
    ) -> None:
        """Add one outcome per replicate.

        Args:
            arm: ``batch_shape`` numbers of the arms that were played.
            outcome: ``batch_shape`` outcomes, from which the prior mean has not been subtracted.
            mask: ``batch_shape``; False where a replicate has no outcome. If omitted, all have one.
        """
        self.posterior.observe(arm, outcome - self.prior_mean, mask)
        if self.rule is None or not self.rule.needs_extremes:
            return
        value = torch.as_tensor(outcome, dtype=self._largest.dtype, device=self._largest.device)
        above, below = self._largest.maximum(value), self._smallest.minimum(value)
        self._largest = above if mask is None else above.where(mask, self._largest)
        self._smallest = below if mask is None else below.where(mask, self._smallest)

    def observe_many(
        self,
        arms: Sequence[int],
        outcomes: Sequence[float],
        weights: Sequence[float] | None = None,
    ) -> None:
        """Add a record of a single stream; see :meth:`ArmsPosterior.observe_many`."""
        shifted = [outcome - self.prior_mean for outcome in outcomes]
        self.posterior.observe_many(arms, shifted, weights)
        if outcomes and self.rule is not None and self.rule.needs_extremes:
            self._largest = self._largest.clamp_min(max(outcomes))
            self._smallest = self._smallest.clamp_max(min(outcomes))

    def relabel(
        self,
        arms: Tensor | Sequence[int],
        outcomes: Tensor | Sequence[float],
        weights: Sequence[float] | None = None,
    ) -> None:
        """Replace all outcomes that were observed; see :meth:`ArmsPosterior.relabel`.

        Args:
            arms: ``batch_shape x n``, in the order of observation.
            outcomes: Their new outcomes.
            weights: The weights of a single stream, in the order of observation; all are 1 if
                omitted.
        """
        mean = self.posterior.mean
        index = torch.as_tensor(arms, dtype=torch.long, device=mean.device)
        values = torch.as_tensor(outcomes, dtype=mean.dtype, device=mean.device)
        shifted = values - self.prior_mean
        squared = shifted.square()
        if weights is not None:
            own = values.new_tensor(weights)
            shifted, squared = own * shifted, own * squared
        sums = torch.zeros_like(mean).scatter_add_(-1, index, shifted)
        squares = torch.zeros_like(mean).scatter_add_(-1, index, squared)
        self.posterior.relabel(sums, squares)
        if values.shape[-1]:
            self._largest, self._smallest = values.amax(-1), values.amin(-1)

    def reset(self, mask: Tensor) -> None:
        """Forget all outcomes in replicates where ``mask`` (``batch_shape``) is True."""
        self.posterior.reset(mask)
        self._largest = self._largest.masked_fill(mask, -torch.inf)
        self._smallest = self._smallest.masked_fill(mask, torch.inf)

    def describe(self, seen: ArmsRound, arm: Tensor) -> dict[str, float]:
        """Return the diagnostics of an arm of a single stream, by name.

        Args:
            seen: What the rule saw when it chose.
            arm: The arm.
        """
        index = int(arm)
        known = {
            "mean": float(seen.mean[index]),
            "standard_deviation": max(
                float(seen.variance[index]), seen.prior_share(MINIMUM_VARIANCE)
            )
            ** 0.5,
            "acquisition_value": float(seen.scores[index]),
        }
        described = seen.rule.describe(seen, arm)
        return {**known, **{name: float(value) for name, value in described.items()}}

    def draw(
        self,
        round_number: int,
        purpose: str,
        shape: tuple[int, ...],
        distribution: str,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Return the random numbers of a round, ``batch_shape x shape``.

        Args:
            round_number: The number of the round, from 1.
            purpose: The purpose; different purposes have different numbers.
            shape: The shape of the numbers of a replicate.
            distribution: See ``botorch_bandits.random_streams.RandomBlocks``.
            transform: An operation on whole blocks of rounds.
        """
        if purpose not in self._blocks:
            self._blocks[purpose] = RandomBlocks(
                self._seeds, purpose, shape, distribution, self.posterior.device, transform
            )
        numbers = self._blocks[purpose].at(round_number)
        return numbers if self.posterior.batch_shape else numbers[0]


def _largest_deviation(prior: ArmsPrior, prior_variance: float) -> float:
    """Return the prior standard deviation, the unit in which ties and floors are decided."""
    largest = float(prior.diagonal.max())
    # they differ by more than rounding for kernels that are not stationary
    is_stationary = math.isclose(largest, prior_variance, rel_tol=1e-9)
    variance = prior_variance if is_stationary else largest
    return math.sqrt(variance) if 0.0 < variance < math.inf else 1.0


def build_arms_engine(
    model: BanditGPRecipe,
    acquisition: AcquisitionRecipe | RandomSearch,
    domain: Arms,
    seeds: int | Sequence[int],
    prior: ArmsPrior | None = None,
    rule: ArmsRule | None = None,
    num_outputs: int | None = None,
) -> ArmsEngine | None:
    """Return the engine that plays these settings on arms from sufficient statistics.

    Args:
        model: The recipe with kernel and noise.
        acquisition: The acquisition function to play.
        domain: The arms.
        seeds: See :class:`ArmsEngine`.
        prior: The prior of an earlier engine with the same model and domain, to save its
            computation.
        rule: The rule that scores the arms; the acquisition function's rule for the domain if
            omitted.
        num_outputs: See :class:`ArmsEngine`.

    Returns:
        None if the settings need the model itself: hyperparameters or an input scale that are
        learned, a subclass of :class:`~botorch_bandits.BanditGP`, a batch of kernels, an input
        transform that does not map each arm to one point, an acquisition without a rule.
    """
    if rule is None and not isinstance(acquisition, RandomSearch):
        rule = acquisition.arms_rule(domain)
    is_plain = model.model_class is BanditGP and model.refit_every is None
    if (
        not is_plain
        or model.kernel.batch_shape
        or not keeps_arms(model.input_transform)
        or (rule is None and not isinstance(acquisition, RandomSearch))
    ):
        return None
    inputs = domain.choices
    with torch.no_grad():
        if model.input_transform is not None:
            inputs = copy.deepcopy(model.input_transform).to(inputs).eval()(inputs)
        kernel = copy.deepcopy(model.kernel).to(inputs)
        prior = ArmsPrior.from_kernel(kernel, inputs) if prior is None else prior
        variance = float(prior_variance_of(kernel, inputs))
    return ArmsEngine(rule, prior, model.noise, variance, seeds, model.prior_mean, num_outputs)


def keeps_arms(transform: InputTransform | None) -> bool:
    """Whether each arm becomes one point, the same in training and evaluation and with all data."""
    parts = [] if transform is None else transform.modules()
    return not learns_input_scale(transform) and all(
        part.transform_on_train and part.transform_on_eval and not part.is_one_to_many
        for part in parts
        if isinstance(part, InputTransform)
    )


NEIGHBORS_PER_DIMENSION = 2
"""A raw sample is a hilltop if none of the nearest ones, ``d`` times this many, is above it."""

STARTS_PER_RESTART = 3
"""With few rows, more starting points cost little: they share evaluations, and those near a lower
peak are soon given up."""


class BoxEngine:
    """A width rule, the posteriors of the replicates and their random numbers.

    Args:
        rule: The rule that provides the width and its sign.
        posterior: The posterior of all replicates, without rows. Values are computed on its device.
        box: A box on the CPU without integer dimensions.
        seeds: One per replicate.
    """

    def __init__(
        self, rule: WidthArmsRule, posterior: BoxPosterior, box: Box, seeds: Sequence[int]
    ) -> None:
        """See the class."""
        self.rule = rule
        self.posterior = posterior
        self.summary = ReplicatesPriorSummary(self)
        self.box = box
        device = posterior.X.device
        self._raw = SobolEngine(box.dim).draw(box.raw_samples, dtype=torch.float64).to(device)
        self._neighbors = _nearest_on_torus(self._raw, NEIGHBORS_PER_DIMENSION * box.dim)
        self._shifts = RandomBlocks(seeds, "raw samples", (box.dim,), "uniform", device)

    def choose(self, round_number: int) -> tuple[Tensor, Tensor]:
        """Return the point to play, ``B x d``, and its upper confidence bound, ``B``.

        Args:
            round_number: The number of the round, from 1.

        Raises:
            ValueError: If a width or a value is not finite.
        """
        posterior, box = self.posterior, self.box
        width = self.rule.width_in_round(self.summary, round_number).to(posterior.X.device)
        width = check_finite("the width", width).expand(len(posterior.noise))
        sign = 1.0 if self.rule.maximize else -1.0
        # the tolerances of the search are relative to the values: a large mean would widen them
        mean = sign * float(posterior.prior_mean[0])
        offset = mean if abs(mean) > ORDINARY * math.sqrt(posterior.outputscale) else 0.0
        bound = _BoundOfReplicates(posterior, width.unsqueeze(-1), sign, offset)
        unit = (self._raw + self._shifts.at(round_number).unsqueeze(1)).frac_()
        bounds = box.bounds.to(posterior.X)
        raw = bounds[0] + (bounds[1] - bounds[0]) * unit
        has_few_rows = posterior.num_rows <= MAXIMUM_ROWS_FOR_DIFFERENCES
        count = box.num_restarts * (STARTS_PER_RESTART if has_few_rows else 1)
        with torch.no_grad():
            values = bound.value(raw)
        starts = self._starting_points(raw, unit, values, count).reshape(-1, box.dim)
        X = torch.minimum(torch.maximum(starts, bounds[0]), bounds[1]).cpu().numpy()
        lower, upper = (np.broadcast_to(end.numpy(), X.shape) for end in box.bounds)
        found = maximize_locally(
            bound,
            X,
            lower,
            upper,
            has_cheap_gradients=has_few_rows,
            num_functions=len(posterior.noise),
        )
        if found is None:
            raise ValueError(f"the bound of round {round_number} is not finite at a raw sample.")
        points, values = (torch.from_numpy(array) for array in found)
        values = values.reshape(len(posterior.noise), -1) + offset
        best = values.argmax(-1, keepdim=True)
        points = points.reshape(*values.shape, box.dim)
        chosen = points.gather(1, best.unsqueeze(-1).expand(-1, 1, box.dim)).squeeze(1)
        return chosen.to(bounds), values.gather(1, best).squeeze(1).to(bounds)

    def observe(self, points: Tensor, outcomes: Tensor) -> None:
        """Add the outcome of one point per replicate.

        Args:
            points: ``B x d`` points of the box.
            outcomes: ``B`` outcomes there.
        """
        X = points.to(self.posterior.X).unsqueeze(-2)
        self.posterior = self.posterior.with_rows(X, outcomes.to(X).unsqueeze(-1))

    @property
    def information_gain(self) -> Tensor:
        """The realized gain of each replicate's rows in nats, ``B``."""
        return self.posterior.information_gain

    def _starting_points(self, raw: Tensor, unit: Tensor, values: Tensor, count: int) -> Tensor:
        """Return ``B x count x d`` starting points: the highest hilltops, then the rest."""
        beside = unit[:, self._neighbors]
        # points across the edge of the box are not neighbors
        is_near = (unit.unsqueeze(2) - beside).abs().amax(-1) < 0.5
        highest = values[:, self._neighbors].masked_fill(~is_near, -torch.inf).amax(-1)
        order = values.argsort(dim=-1, descending=True, stable=True)
        is_top = (values >= highest).gather(1, order)
        order = order.gather(1, is_top.int().argsort(dim=-1, descending=True, stable=True))
        chosen = order[:, :count].unsqueeze(-1)
        return raw.gather(1, chosen.expand(-1, -1, raw.shape[-1]))


class ReplicatesPriorSummary(RunningPriorSummary):
    """A summary of the posteriors of replicates on a box.

    Args:
        engine: The engine, whose posterior changes.
    """

    def __init__(self, engine: BoxEngine) -> None:
        """See the class."""
        self._engine, posterior = engine, engine.posterior
        super().__init__(engine, posterior.noise[0], posterior.outputscale)

    def kernel_matrix(self) -> Tensor:
        return self._engine.posterior.prior_covariance()

    @property
    def num_rows(self) -> int:
        """The number of rows of each replicate."""
        return self._engine.posterior.num_rows


class _BoundOfReplicates:
    """The upper confidence bounds of all replicates; each is evaluated at points of its own.

    Args:
        posterior: The posterior of all replicates.
        width: ``num_replicates x 1`` factors on the standard deviations.
        sign: 1 to maximize the reward, -1 to minimize it.
        offset: Subtracted from the values.
    """

    def __init__(self, posterior: BoxPosterior, width: Tensor, sign: float, offset: float) -> None:
        """See the class."""
        self._sign, self._offset = sign, offset
        self._of_all = self._in_use = (posterior, width)
        self._slot = np.arange(len(posterior.noise))  # of each replicate

    def value(self, X: Tensor) -> Tensor:
        """Return ``B x r`` values at ``B x r x d`` points of the replicates in use."""
        posterior, width = self._in_use
        smallest = MINIMUM_VARIANCE * posterior.outputscale
        mean, variance = posterior.moments(X)
        return (
            score(mean, half_width(variance.clamp_min(smallest).sqrt(), width), self._sign)
            - self._offset
        )

    def __call__(self, points: Array, replicate: Index) -> tuple[Array, Array]:
        """Return the values and slopes at ``b x d`` points in order of their replicates."""
        posterior, width = self._of_all
        num_replicates, device = len(posterior.noise), posterior.X.device
        counts = np.bincount(replicate, minlength=num_replicates)
        active = np.flatnonzero(counts)
        if 2 * len(active) <= len(self._in_use[0].noise):  # most have finished
            index = torch.from_numpy(active).to(device)
            self._in_use = (posterior.select(index), width[index])
            self._slot = np.zeros(num_replicates, dtype=np.int64)
            self._slot[active] = np.arange(len(active))
        # a rectangle with one row per replicate; shorter rows are filled with the first point
        column = np.arange(len(points)) - (counts.cumsum() - counts)[replicate]
        shape = (len(self._in_use[0].noise), int(counts.max()), points.shape[-1])
        padded = np.broadcast_to(points[0], shape).copy()
        row = self._slot[replicate]
        padded[row, column] = points
        with torch.enable_grad():
            X = torch.from_numpy(padded).to(device).requires_grad_()
            values = self.value(X)
            (slopes,) = torch.autograd.grad(values.sum(), X)
        value, slope = to_host(values.detach()[row, column], slopes[row, column])
        return value, slope


def build_box_engine(
    model: BanditGPRecipe, acquisition: AcquisitionRecipe, box: Box, seeds: Sequence[int]
) -> BoxEngine | None:
    """Return the engine that plays these settings on a box for replicates in lockstep.

    Args:
        model: The recipe with kernel and noise.
        acquisition: The acquisition function to play.
        box: The box; values are computed on its device.
        seeds: One per replicate.

    Returns:
        None if the acquisition function is not an upper confidence bound with a width rule, the
        model does not have a fixed kernel with a closed form, or the box has integer or too many
        dimensions.

    Raises:
        ValueError: If the settings are infeasible on this box.
    """
    if isinstance(acquisition, RandomSearch) or box.discrete_dims or box.dim > MAXIMUM_DIMENSION:
        return None
    if box.constraints:
        return None  # the search for all replicates supports no constraints
    is_bound = issubclass(acquisition.acquisition_class, WidthUpperConfidenceBound)
    rule = acquisition.arms_rule(box) if is_bound else None
    if (
        type(rule) is not WidthArmsRule
        or model.model_class is not BanditGP
        or model.refit_every is not None
        or model.input_transform is not None
        or model.kernel.batch_shape
    ):
        return None
    check_range_on_box(model.kernel, model.prior_mean)
    empty = torch.empty(0, box.dim, dtype=torch.float64)
    model(empty, empty[:, :1])  # checks the settings
    check_kernel_columns(model.kernel, box.dim)
    X = box.bounds.new_empty(len(seeds), 0, box.dim)
    noise, prior_mean = (X.new_full(X.shape[:1], each) for each in (model.noise, model.prior_mean))
    kernel = kernel_function(copy.deepcopy(model.kernel).to(X), box.dim)
    posterior = BoxPosterior.of(kernel, X, X[..., 0], noise, prior_mean)
    host = Box(box.bounds.cpu(), num_restarts=box.num_restarts, raw_samples=box.raw_samples)
    return BoxEngine(rule, posterior, host, seeds)


def sample_uniformly(box: Box, seeds: Sequence[int], round_number: int) -> Tensor:
    """Return the ``B x d`` points that loops with these seeds draw in their initial rounds."""
    draws = [box.sample(1, generator(seed, round_number, "sample")) for seed in seeds]
    return torch.cat(draws)


def _nearest_on_torus(points: Tensor, count: int) -> Tensor:
    """Return ``n x count`` numbers of the other points that are nearest on the unit torus."""
    apart = (points.unsqueeze(0) - points.unsqueeze(1)).abs()
    distance = torch.minimum(apart, 1.0 - apart).square().sum(-1)
    distance.fill_diagonal_(torch.inf)
    return distance.topk(min(count, len(points) - 1), largest=False).indices
