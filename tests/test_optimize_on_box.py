"""The whole of ``optimize_acqf`` on a box: BoTorch's starting points, no fixed features moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_bandits import BanditGP, Box, GPUpperConfidenceBound, optim
from botorch_bandits.acquisition import gen_candidates_batched
from botorch_bandits.optim import minimize_on_unit_cube
from botorch_bandits.random_streams import seeded_globally

X = torch.rand(25, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = (5.0 * X).sin().sum(-1, keepdim=True)
BOUNDS = torch.tensor([[0.0, -1.0, 0.5], [1.0, 2.0, 0.9]], dtype=torch.float64)
PRODUCT = MaternKernel(nu=0.5, active_dims=[0]) * RBFKernel(active_dims=[1, 2])
EFFORT: dict[str, Any] = {"num_restarts": 5, "raw_samples": 32}


def acquisition(kernel: Any = None) -> Any:
    kernel = MaternKernel(nu=2.5) if kernel is None else kernel
    return GPUpperConfidenceBound(BanditGP(X, Y, kernel=kernel.double(), noise=0.01), width=2.0)


@pytest.mark.parametrize("kernel", [MaternKernel(nu=2.5), PRODUCT])
def test_a_context_is_fixed_and_nothing_is_handed_to_botorch(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    acqf, context = acquisition(kernel), torch.tensor([0.3], dtype=torch.float64)
    box = Box(BOUNDS[:, 1:], **EFFORT).in_context(context)
    with seeded_globally(0):
        _, ordinary = optimize_acqf(acqf, BOUNDS, 1, fixed_features={0: 0.3}, **EFFORT)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("handed over")

    monkeypatch.setattr(optim, "gen_candidates_scipy", refuse)
    found, value = box.maximize(acqf, seed=2)
    assert float(found[0]) == 0.3
    assert value == pytest.approx(float(acqf(found.unsqueeze(0))), abs=1e-12)
    assert value >= float(ordinary) - 1e-6


def test_all_features_fixed_stay() -> None:
    start = torch.full((2, 1, 3), 0.6, dtype=torch.float64)
    fixed = {0: 0.2, 1: 0.4, 2: 0.7}
    candidates, values = gen_candidates_batched(
        start, acquisition(), BOUNDS[0], BOUNDS[1], fixed_features=fixed
    )
    assert candidates.squeeze(-2).tolist() == [[0.2, 0.4, 0.7]] * 2
    assert torch.allclose(values, acquisition()(candidates))


def test_restarts_on_one_hill_are_left_and_the_minimum_is_found() -> None:
    matrix, center = np.diag([1.0, 30.0]), np.array([0.3, 0.6])
    evaluated = []

    def bowl(points: Any, function: Any) -> Any:
        evaluated.append(len(points))
        away = points - center
        value = ((away @ matrix) * away).sum(-1)
        # a ripple, so that no step is exact
        value = value + 0.05 * np.sin(6.0 * away).sum(-1)
        return value, 2.0 * away @ matrix + 0.3 * np.cos(6.0 * away)

    starts = np.random.default_rng(0).random((8, 2))
    alone = [minimize_on_unit_cube(bowl, start[None], 100)[1][0] for start in starts]  # type: ignore[index]
    evaluated.clear()
    points, losses = minimize_on_unit_cube(bowl, starts, 100)  # type: ignore[misc]
    assert losses.min() == pytest.approx(min(alone), abs=1e-9)
    assert evaluated[-1] < len(starts)
    assert ((points >= 0.0) & (points <= 1.0)).all()


@pytest.mark.parametrize("dim", [21, 40])
def test_in_many_dimensions_the_optimum_is_botorchs(dim: int) -> None:
    points = torch.rand(30, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = torch.tensor(0.3 * dim**0.5, dtype=torch.float64)
    model = BanditGP(points, points.sin().sum(-1, keepdim=True), kernel=kernel, noise=0.01)
    acqf = GPUpperConfidenceBound(model, width=2.0)
    bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64)
    _, value = Box(bounds, **EFFORT).maximize(acqf, seed=1)
    with seeded_globally(1):
        _, ordinary = optimize_acqf(acqf, bounds, 1, **EFFORT)
    assert value >= float(ordinary) - 1e-6
