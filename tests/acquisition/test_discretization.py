"""The growing discretization of GP-TS on a box."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import Arms, BanditGP, BanditLoop, Box, GPThompsonSampling
from botorch_bandits.acquisition import GrowingDiscretization

BOX = Box([[0.0, -1.0], [1.0, 1.0]])


@pytest.mark.parametrize("t", [1, 2, 3])
def test_rounding_to_the_grid_costs_at_most_one_over_t_squared(t: int) -> None:
    """For the steepest function allowed: slope B L along each axis."""
    bound, lipschitz = 0.5, 2.0
    grid = GrowingDiscretization(lipschitz, max_points=100_000, box=BOX)
    points = grid.points(t, bound)
    assert not grid.is_cut(t, bound)
    assert len(points) == math.ceil(bound * lipschitz * 2.0 * 2 * t**2) ** 2
    generator = torch.Generator().manual_seed(t)
    x = BOX.sample(500, generator)
    nearest = (x.unsqueeze(1) - points).abs().sum(-1).amin(-1)
    assert float((bound * lipschitz * nearest).max()) <= 1 / t**2 + 1e-12


def test_a_grid_that_is_too_large_is_cut_and_says_so() -> None:
    grid = GrowingDiscretization(10.0, max_points=400, box=BOX)
    assert len(grid.points(50, 1.0)) == 400
    assert grid.is_cut(50, 1.0)


def test_loop_on_a_box_draws_on_the_grid_of_its_round() -> None:
    recipe = GPThompsonSampling.with_options(
        rkhs_bound=0.5,
        noise_bound=0.1,
        any_lambda=True,
        discretization=GrowingDiscretization(2.0, max_points=100),
    )
    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.5)
    loop = BanditLoop(BOX, model, recipe, seed=1)
    grid = GrowingDiscretization(2.0, max_points=100, box=BOX)
    for t in range(1, 5):
        query = loop.ask()
        assert (grid.points(t, 0.5) == query.x).all(-1).any()
        loop.tell(query.id, float(query.x.sum()))
    assert "cut at max_points" in str(loop.guarantee())


def test_units_of_the_bound_are_raw() -> None:
    """With prior standard deviation s the grid is that of B / s."""
    from gpytorch.kernels import ScaleKernel

    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = torch.tensor(4.0, dtype=torch.float64)
    X = torch.zeros(0, 2, dtype=torch.float64)
    model = BanditGP(X, X[:, :1], kernel=kernel, noise=0.01)
    grid = GrowingDiscretization(2.0, max_points=10_000, box=BOX)
    acqf = GPThompsonSampling(
        model, rkhs_bound=2.0, noise_bound=0.1, discretization=grid, round_number=2, seed=0
    )
    assert acqf.choices is not None
    assert torch.equal(acqf.choices, grid.points(2, 1.0))


def test_bad_settings_are_named() -> None:
    options = {"noise_bound": 0.1, "discretization": GrowingDiscretization(1.0)}
    with pytest.raises(ValueError, match="needs rkhs_bound="):
        GPThompsonSampling.with_options(width=1.0, discretization=GrowingDiscretization(1.0))
    recipe = GPThompsonSampling.with_options(rkhs_bound=1.0, **options)
    model = BanditGP.with_kernel(RBFKernel())
    with pytest.raises(ValueError, match="is for boxes"):
        BanditLoop(Arms([[0.0], [1.0]]), model, recipe)
    with pytest.raises(ValueError, match="has no box"):
        GrowingDiscretization(1.0).points(1, 1.0)
    with pytest.raises(ValueError, match="lipschitz is 0"):
        GrowingDiscretization(0.0)
    with pytest.raises(ValueError, match=r"discrete dimensions \(0,\)"):
        GrowingDiscretization(1.0).on(Box([[0], [5]], integer_dims=[0]))
