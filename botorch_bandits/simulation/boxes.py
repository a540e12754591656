"""Replicates on a box are played in lockstep.

The widths are those of the loop's rules; the local search is that of ``gen_candidates_batched``,
with the starting points of all replicates in each evaluation. The raw samples are one Sobol set,
shifted on the torus by a uniform draw for each round and replicate (Cranley and Patterson,
*Randomization of number theoretic methods for multiple integration*, SIAM J. Numerical Analysis
1976), so that a replicate depends on its own seed alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.acquisition.base import AcquisitionRecipe, score
from botorch_bandits.acquisition.rules import WidthArmsRule
from botorch_bandits.acquisition.upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.checks import check_finite, check_kernel_columns
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE, RunningPriorSummary
from botorch_bandits.core.box import BoxPosterior
from botorch_bandits.core.kernels import kernel_function
from botorch_bandits.domains import ORDINARY, Box
from botorch_bandits.models import BanditGP, BanditGPRecipe
from botorch_bandits.models.noise import check_range_on_box
from botorch_bandits.optim import (
    MAXIMUM_DIMENSION,
    MAXIMUM_ROWS_FOR_DIFFERENCES,
    Array,
    Index,
    maximize_locally,
    to_host,
)
from botorch_bandits.random_streams import RandomBlocks


class BoxEngine:
    """A width rule, the posteriors of the replicates and their random numbers.

    Args:
        rule: The rule that provides the width and its sign.
        posterior: The posterior of all ``B`` replicates, without rows, on the device of values.
        box: A box on the CPU without integer dimensions.
        seeds: One per replicate.
    """

    def __init__(
        self, rule: WidthArmsRule, posterior: BoxPosterior, box: Box, seeds: Sequence[int]
    ) -> None:
        """See the class."""
        self.rule, self.posterior, self.box = rule, posterior, box
        self.summary = RunningPriorSummary(
            self.gain, self._num_rows, posterior.noise[0], posterior.outputscale
        )
        device = posterior.X.device
        self._raw = SobolEngine(box.dim).draw(box.raw_samples, dtype=torch.float64).to(device)
        self._shifts = RandomBlocks(seeds, "raw samples", (box.dim,), "uniform", device)

    def choose(self, round_number: int) -> tuple[Tensor, Tensor]:
        """Return the point to play, ``B x d``, and its upper confidence bound, ``B``.

        Args:
            round_number: The number of the round, from 1.

        Raises:
            ValueError: If a width or a value is not finite.
        """
        posterior, bounds = self.posterior, self.box.bounds.to(self.posterior.X)
        num_replicates = len(posterior.noise)
        width = self.rule.scale * self.rule.rule.width(self.summary, round_number).to(bounds)
        width = check_finite("the width", width).expand(num_replicates).unsqueeze(-1)
        bound = _Bound(posterior, width, 1.0 if self.rule.maximize else -1.0)
        unit = (self._raw + self._shifts.at(round_number).unsqueeze(1)).frac_()  # B x raw x d
        raw = bounds[0] + (bounds[1] - bounds[0]) * unit
        highest = bound.value(raw).topk(self.box.num_restarts, dim=-1).indices
        starts = raw.take_along_dim(highest.unsqueeze(-1), dim=1)  # B x restarts x d
        X = torch.minimum(torch.maximum(starts, bounds[0]), bounds[1]).flatten(0, 1).cpu().numpy()
        lower, upper = (np.broadcast_to(end.numpy(), X.shape) for end in self.box.bounds)
        found = maximize_locally(
            bound,
            X,
            lower,
            upper,
            has_cheap_gradients=posterior.num_rows <= MAXIMUM_ROWS_FOR_DIFFERENCES,
            num_functions=num_replicates,
        )
        if found is None:
            raise ValueError(f"the bound of round {round_number} is not finite at a raw sample.")
        # B x starts x d and B x starts
        points, values = (
            torch.from_numpy(each).unflatten(0, (num_replicates, -1)) for each in found
        )
        best = (torch.arange(num_replicates), values.argmax(-1))
        return points[best].to(bounds), (values[best] + bound.offset).to(bounds)

    def observe(self, points: Tensor, outcomes: Tensor) -> None:
        """Add the outcome of one point per replicate.

        Args:
            points: ``B x d`` points of the box.
            outcomes: ``B`` outcomes there.
        """
        X = points.to(self.posterior.X).unsqueeze(-2)
        self.posterior = self.posterior.with_rows(X, outcomes.to(X).unsqueeze(-1))

    def gain(self) -> Tensor:
        """Return the realized gain of each replicate's rows in nats, ``B``."""
        return self.posterior.information_gain

    def _num_rows(self) -> int:
        return self.posterior.num_rows


class _Bound:
    """The upper confidence bounds of all replicates; each is evaluated at points of its own.

    Args:
        posterior: The posterior of all replicates.
        width: ``B x 1`` factors on the standard deviations.
        sign: 1 to maximize the reward, -1 to minimize it.

    Attributes:
        offset: Subtracted from the values.
    """

    def __init__(self, posterior: BoxPosterior, width: Tensor, sign: float) -> None:
        """See the class."""
        self._posterior, self._width, self._sign = posterior, width, sign
        # the tolerances of the search are relative to the values: a large mean would widen them
        mean = sign * float(posterior.prior_mean[0])
        self.offset = mean if abs(mean) > ORDINARY * math.sqrt(posterior.outputscale) else 0.0

    def value(self, X: Tensor) -> Tensor:
        """Return ``B x r`` values at ``B x r x d`` points."""
        mean, variance = self._posterior.moments(X)
        least = MINIMUM_VARIANCE * self._posterior.outputscale
        deviation = variance.clamp_min(least).sqrt()
        return score(mean, deviation * self._width, self._sign) - self.offset

    def __call__(self, points: Array, replicate: Index) -> tuple[Array, Array]:
        """Return the values and slopes at ``b x d`` points in order of their replicates."""
        # a rectangle with one row per replicate; shorter rows are filled with the first point
        counts = np.bincount(replicate, minlength=len(self._width))
        column = np.arange(len(points)) - (counts.cumsum() - counts)[replicate]
        shape = (len(counts), int(counts.max()), points.shape[-1])
        padded = np.broadcast_to(points[0], shape).copy()
        place = replicate, column
        padded[place] = points
        with torch.enable_grad():
            X = torch.from_numpy(padded).to(self._width.device).requires_grad_()
            values = self.value(X)
            (slopes,) = torch.autograd.grad(values.sum(), X)
        value, slope = to_host(values.detach()[place], slopes[place])
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
        dimensions, or constraints, which the search for all replicates does not support.

    Raises:
        ValueError: If the settings are infeasible on this box.
    """
    is_bound = issubclass(acquisition.acquisition_class, WidthUpperConfidenceBound)
    rule = acquisition.arms_rule(box) if is_bound else None
    if (
        type(rule) is not WidthArmsRule
        or (box.coordinates.grids or box.constraints or box.dim > MAXIMUM_DIMENSION)
        or model.model_class is not BanditGP
        or model.refit_every is not None
        or model.input_transform is not None
        or model.kernel.batch_shape
    ):
        return None
    check_range_on_box(model.kernel, model.prior_mean)
    check_kernel_columns(model.kernel, box.dim)
    empty = torch.empty(0, box.dim, dtype=torch.float64)
    model(empty, empty[:, :1])  # checks the settings
    X = box.bounds.new_empty(len(seeds), 0, box.dim)
    noise, prior_mean = (X.new_full(X.shape[:1], each) for each in (model.noise, model.prior_mean))
    kernel = kernel_function(copy.deepcopy(model.kernel).to(X), box.dim)
    posterior = BoxPosterior.of(kernel, X, X[..., 0], noise, prior_mean)
    host = Box(box.bounds.cpu(), num_restarts=box.num_restarts, raw_samples=box.raw_samples)
    return BoxEngine(rule, posterior, host, seeds)
