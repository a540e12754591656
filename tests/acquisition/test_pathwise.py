"""Pathwise draws: BoTorch's numbers, the law of composed kernels, and scaled draws."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from botorch.models.transforms import Normalize, Standardize
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.utils.sampling import draw_sobol_normal_samples
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from botorch_bandits import BanditGP, Box, GPThompsonSampling
from botorch_bandits.acquisition.draws import draw_path
from botorch_bandits.acquisition.pathwise import draw_prior_paths, first_sobol_normals
from botorch_bandits.core.kernels import TimeDecayKernel
from botorch_bandits.models.fitted import LearnedGP
from botorch_bandits.random_streams import seeded_globally

X = torch.rand(30, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = (5.0 * X).sin().sum(-1, keepdim=True) + 2.0
POINTS = torch.rand(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
PRODUCT = ScaleKernel(MaternKernel(nu=1.5, active_dims=[0])) * RBFKernel(active_dims=[1, 2])
SUM = PRODUCT + ScaleKernel(MaternKernel(nu=2.5, active_dims=[1]))
KERNELS: dict[str, Any] = {
    "matern": ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)),
    "squared exponential": RBFKernel(),
    "some columns": ScaleKernel(MaternKernel(nu=1.5, active_dims=[2, 0])),
    "product": PRODUCT,
    "sum": SUM,
    "time": TimeDecayKernel(MaternKernel(nu=2.5), rate=0.2),
}
KERNELS["matern"].base_kernel.lengthscale = torch.tensor([[0.3, 0.5, 0.8]])
KERNELS["matern"].outputscale = 1.7


def models(name: str) -> dict[str, Any]:
    kernel = copy.deepcopy(KERNELS[name]).double()
    bounds = torch.tensor([[-1.0, 0.0, 0.2], [2.0, 1.5, 1.0]], dtype=torch.float64)
    weights = torch.linspace(0.2, 2.0, len(X), dtype=torch.float64)
    learned = LearnedGP(
        X,
        Y,
        covar_module=copy.deepcopy(kernel),
        input_transform=Normalize(3, bounds=bounds),
        outcome_transform=Standardize(1),
    )
    return {
        "given": BanditGP(X, Y, kernel=kernel, noise=0.05, prior_mean=0.5),
        "weights": BanditGP(X, Y, kernel=kernel, noise=0.05, repeats=weights),
        "learned": learned.eval(),
    }


every_model = pytest.mark.parametrize("which", ["given", "weights", "learned"])


@pytest.mark.parametrize("num_points", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("dim", [7, 1024])
def test_the_first_sobol_points_and_what_follows_are_botorchs(num_points: int, dim: int) -> None:
    with seeded_globally(7):
        expected = draw_sobol_normal_samples(dim, num_points, dtype=torch.float64), torch.randn(3)
    with seeded_globally(7):
        found = first_sobol_normals(num_points, dim), torch.randn(3)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])


@every_model
@pytest.mark.parametrize("name", ["matern", "squared exponential", "some columns"])
def test_draws_are_those_of_botorch(name: str, which: str) -> None:
    model = models(name)[which]
    with seeded_globally(3), torch.no_grad():
        expected = draw_matheron_paths(model, torch.Size())(POINTS)
    with seeded_globally(3), torch.no_grad():
        found = draw_path(model)(POINTS).squeeze(-1)
    assert torch.allclose(found, expected, rtol=0.0, atol=1e-9)


@every_model
@pytest.mark.parametrize("name", KERNELS)
def test_a_scaled_draw_deviates_from_the_mean_by_its_width(name: str, which: str) -> None:
    model = models(name)[which]
    points = POINTS.clone().requires_grad_()
    plain, scaled = (
        sign * GPThompsonSampling(model, width=w, maximize=sign > 0.0, seed=5)(points.unsqueeze(-2))
        for w, sign in ((1.0, 1.0), (1.7, -1.0))
    )
    mean = model.posterior(points).mean.squeeze(-1)
    expected = mean + 1.7 * (plain - mean)
    assert torch.allclose(scaled, expected, rtol=0.0, atol=1e-9)
    slopes = [torch.autograd.grad(each.sum(), points)[0] for each in (scaled, expected)]
    assert torch.allclose(*slopes, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("name", ["product", "sum", "time"])
def test_waves_of_composed_kernels_have_their_covariance(name: str) -> None:
    kernel = copy.deepcopy(KERNELS[name]).double()
    model = BanditGP(X, Y, kernel=kernel, noise=0.05)
    total, repeats = torch.zeros(8, 8, dtype=torch.float64), 40
    for seed in range(repeats):
        with seeded_globally(seed), torch.no_grad():
            features = draw_prior_paths(model, torch.Size()).feature_map(POINTS)
        total += features @ features.mT / repeats
    expected = kernel(POINTS).to_dense().detach()
    # waves are as many draws from a distribution: their mean of cosines misses by this at most
    assert float((total - expected).abs().max()) < 5.0 * 1.5 / math.sqrt(repeats * 128)


def test_a_box_is_searched_with_it_and_the_draw_is_not_made_again() -> None:
    acquisition = GPThompsonSampling(models("product")["given"], seed=2)
    found, value = Box([[0.0] * 3, [1.0] * 3], num_restarts=8, raw_samples=128).maximize(
        acquisition, seed=1
    )
    grid = torch.cartesian_prod(*[torch.linspace(0.0, 1.0, 12, dtype=torch.float64)] * 3)
    with torch.no_grad():
        assert value >= float(acquisition(grid.unsqueeze(-2)).max()) - 1e-9
        assert value == pytest.approx(float(acquisition(found.unsqueeze(0))), abs=1e-9)
