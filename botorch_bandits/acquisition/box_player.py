"""Plays an upper confidence bound on a box for a batch of replicates in lockstep.

The widths are those of the loop's rules, the local search is that of ``gen_candidates_batched``,
with all starting points of all replicates in each evaluation. A replicate's numbers are drawn from
its own seed.

Raw samples are one Sobol set, shifted on the torus by a uniform draw of round and replicate.
Source: Cranley and Patterson, *Randomization of number theoretic methods for multiple integration*,
SIAM J. Numerical Analysis 1976.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.acquisition.arms_rules import WidthArmsRule
from botorch_bandits.acquisition.baselines import RandomSearch
from botorch_bandits.acquisition.generation import MAXIMUM_DIMENSION, maximize_locally
from botorch_bandits.acquisition.projected_quasi_newton import Array, Index
from botorch_bandits.acquisition.recipe import AcquisitionRecipe
from botorch_bandits.acquisition.width_upper_confidence_bound import (
    MAXIMUM_ROWS_FOR_DIFFERENCES,
    ClosedFormBound,
    WidthUpperConfidenceBound,
)
from botorch_bandits.checks import check_finite
from botorch_bandits.domains import Box
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.models.batched_closed_form import BatchedClosedForm
from botorch_bandits.models.running_reading import ReplicatesReading
from botorch_bandits.models.stationary_kernel import StationaryKernel
from botorch_bandits.random_streams import RandomBlocks, generator

NEIGHBOURS_PER_DIMENSION = 2
"""A raw sample is a hilltop if none of so many nearest ones, times ``d``, is above it."""

STARTS_PER_RESTART = 3
"""With few rows more starting points cost little: they share evaluations, and those near a lower
peak are soon given up."""


class BoxPlayer:
    """A width rule, the posteriors of the replicates and their random numbers.

    Args:
        rule: Gives the width and its sign.
        posterior: Of all replicates, without rows; its device is where values are computed.
        box: Without integer dimensions, on the CPU.
        seeds: One a replicate.
    """

    def __init__(
        self, rule: WidthArmsRule, posterior: BatchedClosedForm, box: Box, seeds: Sequence[int]
    ) -> None:
        """See the class."""
        self.rule = rule
        self.posterior = posterior
        self.reading = ReplicatesReading(posterior)
        self.box = box
        device = posterior.centre.device
        self._raw = SobolEngine(box.dim).draw(box.raw_samples, dtype=torch.float64).to(device)
        self._neighbours = _nearest_on_torus(self._raw, NEIGHBOURS_PER_DIMENSION * box.dim)
        self._shifts = RandomBlocks(seeds, "raw samples", (box.dim,), "uniform", device)

    def choose(self, round_number: int) -> tuple[Tensor, Tensor]:
        """Return the point to play, ``B x d``, and its upper confidence bound, ``B``.

        Args:
            round_number: From 1.

        Raises:
            ValueError: If a width or a value is not finite.
        """
        posterior, box = self.posterior, self.box
        width = self.rule.width_in_round(self.reading, round_number).to(posterior.centre.device)
        width = check_finite("the width", width).expand(posterior.num_replicates)
        sign = 1.0 if self.rule.maximize else -1.0
        bound = ClosedFormBound(posterior, width.unsqueeze(-1), sign)
        unit = (self._raw + self._shifts.at(round_number).unsqueeze(1)).frac_()
        bounds = box.bounds.to(posterior.centre)
        raw = bounds[0] + (bounds[1] - bounds[0]) * unit
        count = box.num_restarts
        if posterior.num_rows <= MAXIMUM_ROWS_FOR_DIFFERENCES:
            count *= STARTS_PER_RESTART
        starts = self._starting_points(raw, unit, bound.value(raw), count).reshape(-1, box.dim)
        X = torch.minimum(torch.maximum(starts, bounds[0]), bounds[1]).cpu().numpy()
        lower, upper = (np.broadcast_to(end.numpy(), X.shape) for end in box.bounds)
        found = maximize_locally(
            _Values(bound, width, sign),
            X,
            lower,
            upper,
            has_cheap_gradients=bound.has_cheap_gradients,
            num_functions=posterior.num_replicates,
        )
        if found is None:
            raise ValueError(f"the bound of round {round_number} is not finite at a raw sample.")
        points, values = (torch.from_numpy(array) for array in found)
        values = values.reshape(posterior.num_replicates, -1)
        best = values.argmax(-1, keepdim=True)
        points = points.reshape(*values.shape, box.dim)
        chosen = points.gather(1, best.unsqueeze(-1).expand(-1, 1, box.dim)).squeeze(1)
        return chosen.to(bounds), values.gather(1, best).squeeze(1).to(bounds)

    def observe(self, points: Tensor, outcomes: Tensor) -> None:
        """Take in the outcome of one point a replicate, ``B x d`` and ``B``."""
        centre = self.posterior.centre
        self.posterior.append(points.to(centre), outcomes.to(centre))

    def _starting_points(self, raw: Tensor, unit: Tensor, values: Tensor, count: int) -> Tensor:
        """Return ``B x count x d`` starting points: the highest hilltops, then the rest."""
        beside = unit[:, self._neighbours]
        # neighbours across the edge of the box are none
        is_near = (unit.unsqueeze(2) - beside).abs().amax(-1) < 0.5
        highest = values[:, self._neighbours].masked_fill(~is_near, -torch.inf).amax(-1)
        order = values.argsort(dim=-1, descending=True, stable=True)
        is_top = (values >= highest).gather(1, order)
        order = order.gather(1, is_top.int().argsort(dim=-1, descending=True, stable=True))
        chosen = order[:, :count].unsqueeze(-1)
        return raw.gather(1, chosen.expand(-1, -1, raw.shape[-1]))


class _Values:
    """Evaluates points that belong to different replicates, all in one batch.

    Args:
        bound: Of all replicates.
        width: Theirs, ``B``.
        sign: As the bound has it.
    """

    def __init__(self, bound: ClosedFormBound, width: Tensor, sign: float) -> None:
        """See the class."""
        self._all = (bound.posterior, width)
        self._sign = sign
        self._bound = bound
        self._slot = np.arange(len(width))  # of each replicate in the bound

    def __call__(self, points: Array, replicate: Index) -> tuple[Tensor, Tensor]:
        """Return the values and gradients at ``b x d`` points in order of their replicates."""
        posterior, width = self._all
        counts = np.bincount(replicate, minlength=len(width))
        active = np.flatnonzero(counts)
        if 2 * len(active) <= self._bound.posterior.num_replicates:  # most have finished
            index = torch.from_numpy(active).to(width.device)
            self._bound = ClosedFormBound(
                posterior.select(index), width[index].unsqueeze(-1), self._sign
            )
            self._slot = np.zeros(len(width), dtype=np.int64)
            self._slot[active] = np.arange(len(active))
        # a rectangle with a row a replicate; shorter rows are filled with the first point
        column = np.arange(len(points)) - (counts.cumsum() - counts)[replicate]
        shape = (self._bound.posterior.num_replicates, int(counts.max()), points.shape[-1])
        padded = np.broadcast_to(points[0], shape).copy()
        row = self._slot[replicate]
        padded[row, column] = points
        value, gradient = self._bound.value_and_gradient(torch.from_numpy(padded).to(width.device))
        return value[row, column], gradient[row, column]


def build_box_player(
    model: BanditGPRecipe, acquisition: AcquisitionRecipe, box: Box, seeds: Sequence[int]
) -> BoxPlayer | None:
    """Return what plays these settings on a box for replicates in lockstep.

    Args:
        model: Kernel and noise.
        acquisition: What is played.
        box: Its device is where values are computed.
        seeds: One a replicate.

    Returns:
        None if the acquisition is no upper confidence bound of a width rule, or the model none
        with a fixed kernel in closed form, or the box has integer or too many dimensions.

    Raises:
        ValueError: If the settings are infeasible on this box.
    """
    if isinstance(acquisition, RandomSearch) or box.integer_dims or box.dim > MAXIMUM_DIMENSION:
        return None
    is_bound = issubclass(acquisition.acquisition_class, WidthUpperConfidenceBound)
    rule = acquisition.arms_rule(box) if is_bound else None
    kernel = StationaryKernel.read(model.kernel)
    if (
        type(rule) is not WidthArmsRule
        or model.model_class is not BanditGP
        or model.refit_every is not None
        or model.input_transform is not None
        or kernel is None
    ):
        return None
    empty = torch.empty(0, box.dim, dtype=torch.float64)
    model(empty, empty[:, :1])  # checks the settings
    if len(kernel.lengthscale) not in (1, box.dim):
        raise ValueError(
            f"the kernel has {len(kernel.lengthscale)} lengthscales, but the box has {box.dim} "
            "dimensions. Give one lengthscale, or one a dimension."
        )
    posterior = BatchedClosedForm(
        kernel, model.noise, len(seeds), box.bounds.mean(0), model.prior_mean
    )
    host = Box(box.bounds.cpu(), num_restarts=box.num_restarts, raw_samples=box.raw_samples)
    return BoxPlayer(rule, posterior, host, seeds)


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
