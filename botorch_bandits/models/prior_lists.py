"""Lists of priors for :meth:`BanditGP.with_candidates`: ladders, grids and quasi-random draws.

A guarantee needs a list that was fixed before the data. The lists here depend only on the
arguments; quasi-random draws have a fixed seed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from botorch.models.transforms.input import InputTransform, Normalize
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.bounds import read_bounds
from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_number,
    check_one_of,
    check_positive,
    store_checked,
)
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe
from botorch_bandits.models.candidates import CandidatesModel, CandidatesRecipe

SMOOTHNESS = (0.5, 1.5, 2.5, math.inf)
"""``nu`` of Matern kernels, and infinity for the squared exponential kernel."""

LADDER = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Lengthscales on a unit interval; in ``d`` dimensions they are multiplied by ``sqrt(d)``."""


def lengthscale_ladder(dim: int) -> tuple[float, ...]:
    """Return lengthscales for a unit cube, the same in all dimensions: ``LADDER * sqrt(dim)``.

    Args:
        dim: The number of dimensions.

    Raises:
        TypeError: If ``dim`` is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> lengthscale_ladder(4)
        (0.1, 0.2, 0.4, 0.8, 1.6)
    """
    root = math.sqrt(check_integer("dim", dim, minimum=1))
    return tuple(root * rung for rung in LADDER)


def draw_lengthscales(dim: int, num_draws: int, seed: int = 0) -> tuple[tuple[float, ...], ...]:
    """Return quasi-random draws from BoTorch's prior of lengthscales, one per dimension.

    That prior is log-normal; its median grows with the square root of the dimension. The draws are
    the quantiles at the points of a scrambled Sobol sequence, at least BoTorch's smallest
    lengthscale.

    Args:
        dim: The number of dimensions.
        num_draws: The number of draws; powers of 2 spread best.
        seed: The seed of the scrambling. Fix it before the data.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If it is too small.

    Example:
        >>> [len(draw) for draw in draw_lengthscales(dim=3, num_draws=2)]
        [3, 3]
    """
    dim, seed = check_integer("dim", dim, minimum=1), check_integer("seed", seed, minimum=0)
    count = check_integer("num_draws", num_draws, minimum=1)
    unit = SobolEngine(dim, True, seed).draw(count, dtype=DTYPE).clamp(1e-9, 1.0 - 1e-9)
    kernel = get_covar_module_with_dim_scaled_prior(dim)
    smallest = float(kernel.raw_lengthscale_constraint.lower_bound)
    return tuple(map(tuple, kernel.lengthscale_prior.icdf(unit).clamp_min(smallest).tolist()))


def candidate_grid(
    lengthscales: Sequence[float | Sequence[float]],
    noise_ratios: Sequence[float] = (0.01,),
    scales: Sequence[float] = (1.0,),
    *,
    smoothness: Sequence[float] = (2.5,),
    prior_means: Sequence[float] = (0.0,),
    input_transform: InputTransform | None = None,
) -> list[BanditGPRecipe]:
    """Return every combination of lengthscale, noise ratio, scale, smoothness and prior mean.

    The scales cost nothing, because all of them share the factor of a lengthscale and a noise
    ratio.

    Args:
        lengthscales: Each entry is one number for all dimensions, or one number per dimension.
        noise_ratios: The ratios of noise variance to output scale.
        scales: Output scales, which are prior variances in squared outcome units.
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5 or 2.5), or infinity for the squared
            exponential kernel.
        prior_means: Constants, in outcome units.
        input_transform: Applied to inputs before each kernel; lengthscales are in its units.

    Raises:
        TypeError: If a numeric argument is not a number.
        ValueError: If a number is infeasible.

    Example:
        >>> priors = candidate_grid([0.1, 0.3], noise_ratios=[0.01, 0.1], scales=[0.1, 1.0, 10.0])
        >>> len(priors)
        12
        >>> round(priors[-1].noise, 9)
        1.0
    """
    return [
        BanditGP.with_kernel(
            _kernel(nu, lengthscale, check_positive("scales", scale)),
            noise=check_positive("noise_ratios", ratio) * scale,
            prior_mean=check_number("prior_means", mean),
            input_transform=input_transform,
        )
        for nu, lengthscale, ratio, mean, scale in itertools.product(
            smoothness, lengthscales, noise_ratios, prior_means, scales
        )
    ]


def _kernel(smoothness: float, lengthscale: float | Sequence[float], scale: float) -> Kernel:
    values = torch.as_tensor(lengthscale, dtype=DTYPE).reshape(-1)
    for value in values.tolist():
        check_positive("lengthscales", value)
    num_dims = len(values) if len(values) > 1 else None
    nu = check_one_of("smoothness", smoothness, SMOOTHNESS)
    kernel: Kernel = (
        RBFKernel(ard_num_dims=num_dims)
        if nu == math.inf
        else MaternKernel(nu=nu, ard_num_dims=num_dims)
    )
    scaled = ScaleKernel(kernel).to(DTYPE)
    kernel.lengthscale = values
    scaled.outputscale = torch.tensor(scale, dtype=DTYPE)
    return scaled


FIRST_OUTCOMES = 8
"""The number of outcomes that determine the scales of a default list."""

HALF_DECADES = 2
"""Steps of ``sqrt(10)`` on each side of the variance of the first outcomes, on a default list."""

DEFAULT_RATIOS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Noise ratios of a default list."""


@dataclass(frozen=True)
class DefaultCandidates:
    """A list of priors for a box and outcomes of unknown scale, for use as the model of a loop.

    Inputs are normalized to the unit cube, so that lengthscales, also in names and tables, are
    fractions of the sides of the box. They are the isotropic ladder and quasi-random draws from
    BoTorch's prior. Output scales are on the fixed grid ``10^(k/2)`` with integer ``k``,
    of which those around the variance of the first outcomes are on the list. The evidence starts
    after these outcomes, and all claims are conditional on them: begin with the same number of
    uniform rounds, ``num_initial`` of the loop.

    Args:
        bounds: The bounds used to normalize inputs, as in :class:`~botorch_bandits.Box`: one
            ``(low, high)`` tuple per dimension, or a ``2 x d`` tensor, array or nested list with
            the lower bounds first.
        num_draws: The number of quasi-random draws of lengthscales.
        noise_ratios: The ratios of noise variance to output scale.
        prior_mean: A constant, in outcome units.
        num_first: The number of outcomes that determine the scales.

    Raises:
        TypeError: If a numeric argument is not a number.
        ValueError: If a number is infeasible.

    Example:
        >>> X = torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)
        >>> model = DefaultCandidates([(0.0, 1.0)], num_draws=4)(X, 100.0 * X.sin())
        >>> model.evidence.num_outcomes
        4
    """

    bounds: Sequence[Sequence[float]]
    num_draws: int = 32
    noise_ratios: Sequence[float] = DEFAULT_RATIOS
    prior_mean: float = 0.0
    num_first: int = FIRST_OUTCOMES

    def __post_init__(self) -> None:
        """Check the settings."""
        bounds = tuple(map(tuple, read_bounds("bounds", self.bounds).mT.tolist()))
        store_checked(
            self,
            bounds=bounds,
            num_draws=check_integer("num_draws", self.num_draws, minimum=0),
            noise_ratios=tuple(check_positive("noise_ratios", each) for each in self.noise_ratios),
            prior_mean=check_number("prior_mean", self.prior_mean),
            num_first=check_integer("num_first", self.num_first, minimum=2),
        )

    def flipped(self) -> DefaultCandidates:
        """Return the list for minus the outcomes."""
        return replace(self, prior_mean=0.0 - self.prior_mean)

    def scales(self, outcomes: Tensor) -> tuple[float, ...]:
        """Return the output scales that the first outcomes select for the list.

        Args:
            outcomes: All outcomes so far, in order of arrival; the first ``num_first`` count.
        """
        first = outcomes.reshape(-1)[: self.num_first]
        variance = float(first.var()) if len(first) > 1 else 1.0
        middle = round(2.0 * math.log10(variance)) if variance > 0.0 else 0
        steps = range(middle - HALF_DECADES, middle + HALF_DECADES + 1)
        return tuple(10.0 ** (0.5 * k) for k in steps)

    def list_of(self, outcomes: Tensor) -> CandidatesRecipe:
        """Return the list that the first outcomes select.

        Args:
            outcomes: All outcomes so far, in order of arrival; the first ``num_first`` count.
        """
        return _listed(self, self.scales(outcomes))

    def __call__(self, X: Tensor, Y: Tensor, weights: Tensor | None = None) -> CandidatesModel:
        """Build the model; see :class:`.CandidatesModel` for arguments and errors."""
        return self.list_of(Y)(X, Y, weights)


@lru_cache(maxsize=8)
def _listed(default: DefaultCandidates, scales: tuple[float, ...]) -> CandidatesRecipe:
    """Return the list with these output scales, which takes longer to build than a model."""
    bounds = torch.tensor(default.bounds, dtype=DTYPE).mT  # 2 x d
    dim = bounds.shape[-1]
    lengthscales: list[float | Sequence[float]] = [*lengthscale_ladder(dim)]
    if default.num_draws:
        lengthscales += draw_lengthscales(dim, default.num_draws)
    entries = candidate_grid(
        lengthscales,
        default.noise_ratios,
        scales,
        prior_means=(default.prior_mean,),
        input_transform=Normalize(dim, bounds=bounds),
    )
    return BanditGP.with_candidates(entries, num_skipped=default.num_first)
