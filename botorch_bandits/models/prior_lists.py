"""Lists of priors for :meth:`BanditGP.with_candidates`: ladders, grids and quasi-random draws.

A guarantee needs a list that was fixed before the data. What is here depends on nothing but its
arguments; quasi-random draws have a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.checks import DTYPE, check_integer, check_number, check_one_of, check_positive
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.models.bandit_gp import BanditGP, BanditGPRecipe

SMOOTHNESS = (0.5, 1.5, 2.5, math.inf)
"""Matern kernels, and infinity for the squared exponential one."""

LADDER = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Lengthscales on a unit interval; in ``d`` dimensions they are multiplied by ``sqrt(d)``."""


def lengthscale_ladder(dim: int, rungs: Sequence[float] = LADDER) -> tuple[float, ...]:
    """Return lengthscales for a unit cube, the same in all dimensions: ``rungs * sqrt(dim)``.

    Args:
        dim: The number of dimensions.
        rungs: What is multiplied by ``sqrt(dim)``.

    Raises:
        TypeError: If ``dim`` is not an integer.
        ValueError: If a number is not positive.

    Example:
        >>> lengthscale_ladder(4)
        (0.1, 0.2, 0.4, 0.8, 1.6)
    """
    root = math.sqrt(check_integer("dim", dim, minimum=1))
    return tuple(root * check_positive(f"rungs[{i}]", rung) for i, rung in enumerate(rungs))


def draw_lengthscales(dim: int, num_draws: int, seed: int = 0) -> tuple[tuple[float, ...], ...]:
    """Return quasi-random draws from BoTorch's prior of lengthscales, one a dimension.

    That prior is log-normal; its median grows with the square root of the dimension. The draws are
    the quantiles at the points of a scrambled Sobol sequence, at least BoTorch's smallest
    lengthscale.

    Args:
        dim: The number of dimensions.
        num_draws: How many draws; powers of 2 spread best.
        seed: Of the scrambling. Fix it before the data.

    Raises:
        TypeError: If a number is not an integer.
        ValueError: If it is too small.

    Example:
        >>> [len(draw) for draw in draw_lengthscales(dim=3, num_draws=2)]
        [3, 3]
    """
    dim = check_integer("dim", dim, minimum=1)
    count = check_integer("num_draws", num_draws, minimum=1)
    engine = SobolEngine(dim, scramble=True, seed=check_integer("seed", seed, minimum=0))
    unit = engine.draw(count, dtype=DTYPE).clamp(1e-9, 1.0 - 1e-9)
    kernel = get_covar_module_with_dim_scaled_prior(dim)
    prior = kernel.lengthscale_prior
    assert isinstance(prior, LogNormalPrior)
    normal = torch.special.ndtri(unit)
    draws = torch.exp(float(prior.loc) + float(prior.scale) * normal)
    smallest = float(kernel.raw_lengthscale_constraint.lower_bound)
    return tuple(map(tuple, draws.clamp_min(smallest).tolist()))


def candidate_grid(
    lengthscales: Sequence[float | Sequence[float]],
    noise_ratios: Sequence[float] = (0.01,),
    scales: Sequence[float] = (1.0,),
    *,
    smoothness: Sequence[float] = (2.5,),
    prior_means: Sequence[float] = (0.0,),
) -> list[BanditGPRecipe]:
    """Return every combination of lengthscale, noise ratio, scale, smoothness and prior mean.

    The scales cost nothing: all of them share the factor of a lengthscale and a noise ratio.

    Args:
        lengthscales: One number for all dimensions each, or one number a dimension.
        noise_ratios: Noise variance over output scale.
        scales: Output scales: prior variances, in squared outcome units.
        smoothness: ``nu`` of a Matern kernel (0.5, 1.5 or 2.5), or infinity for the squared
            exponential kernel.
        prior_means: Constants, in outcome units.

    Raises:
        TypeError: If a number is not one.
        ValueError: If one is infeasible.

    Example:
        >>> priors = candidate_grid([0.1, 0.3], noise_ratios=[0.01, 0.1], scales=[0.1, 1.0, 10.0])
        >>> len(priors)
        12
        >>> round(priors[-1].noise, 9)
        1.0
    """
    recipes = []
    for nu in smoothness:
        check_one_of("smoothness", nu, SMOOTHNESS)
        for lengthscale in lengthscales:
            for ratio in noise_ratios:
                for mean in prior_means:
                    for scale in scales:
                        variance = check_positive("scales", scale)
                        recipes.append(
                            BanditGP.with_kernel(
                                _kernel(nu, lengthscale, variance),
                                noise=check_positive("noise_ratios", ratio) * variance,
                                prior_mean=check_number("prior_means", mean),
                            )
                        )
    return recipes


def _kernel(smoothness: float, lengthscale: float | Sequence[float], scale: float) -> Kernel:
    values = [lengthscale] if isinstance(lengthscale, int | float) else list(lengthscale)
    lengths = [check_positive("lengthscales", value) for value in values]
    num_dims = len(lengths) if len(lengths) > 1 else None
    kernel: Kernel = (
        RBFKernel(ard_num_dims=num_dims)
        if smoothness == math.inf
        else MaternKernel(nu=smoothness, ard_num_dims=num_dims)
    )
    scaled = ScaleKernel(kernel).to(DTYPE)
    kernel.lengthscale = _double(lengths)
    scaled.outputscale = _double([scale]).squeeze(0)
    return scaled


def _double(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=DTYPE)


fill_in_docstrings(__name__)
