"""The whole of ``optimize_acqf`` on a box: BoTorch's starting points, no fixed features moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel
from models.textbook import double, uniform

from botorch_bandits import BanditGP, Box, GPUpperConfidenceBound
from botorch_bandits.optim import minimize_on_unit_cube
from botorch_bandits.random_streams import seeded_globally

EFFORT: dict[str, Any] = {"num_restarts": 5, "raw_samples": 32}


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
    points = uniform(30, dim, seed=5)
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = double(0.3 * dim**0.5)
    model = BanditGP(points, points.sin().sum(-1, keepdim=True), kernel=kernel, noise=0.01)
    acqf = GPUpperConfidenceBound(model, width=2.0)
    bounds = double([[0.0] * dim, [1.0] * dim])
    _, value = Box(bounds, **EFFORT).maximize(acqf, seed=1)
    with seeded_globally(1):
        _, ordinary = optimize_acqf(acqf, bounds, 1, **EFFORT)
    assert value >= float(ordinary) - 1e-6
