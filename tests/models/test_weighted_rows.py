"""Rows with weights, against dense algebra with a noise variance of its own in each row."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from loop.of_rows import model_of_rounds
from torch import Tensor

from botorch_bandits import BanditGP, FittedSingleTaskGP
from botorch_bandits.loop import ExponentialWeights, SlidingWindow, TimeVaryingKernel
from botorch_bandits.models.fits import objective_of
from botorch_bandits.models.reading import hallucinate

from .textbook import (
    double,
    information_gain,
    matern,
    normal,
    posterior,
    squared_exponential,
    uniform,
)

LAM = 0.03
EXACT: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8}


def weights_of(n: int, seed: int) -> Tensor:
    """Some below 1, some far above, some whole numbers."""
    return torch.exp(6.0 * uniform(n, seed=seed) - 2.0).where(
        uniform(n, seed=seed + 1) < 0.7, double(40.0)
    )


@pytest.mark.parametrize(
    "forgetting", [SlidingWindow(12), ExponentialWeights(0.9), TimeVaryingKernel(0.05)]
)
def test_models_that_forget_fade_each_row_from_its_own_weight(forgetting: Any) -> None:
    X = uniform(8, 1, seed=1)[(uniform(20, seed=2) * 8).long()]
    Y, own, points = uniform(20, 1, seed=3), weights_of(20, seed=4), uniform(5, 1, seed=5)
    rounds, t = torch.arange(1, 21), 22
    recipe = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=0.3)
    model = model_of_rounds(recipe, forgetting, X, Y, rounds, t, LAM / own)
    kernel, weights, kept = squared_exponential(0.3), own, rounds > 0
    at = points
    if isinstance(forgetting, SlidingWindow):
        kept = rounds >= t - 12
    elif isinstance(forgetting, ExponentialWeights):
        weights = own * 0.9 ** (t - 1 - rounds).double()
    else:
        X = torch.cat([rounds.double().unsqueeze(-1), X], dim=-1)
        at = torch.cat([torch.full((5, 1), float(t), dtype=torch.float64), points], dim=-1)

        def kernel(A: Tensor, B: Tensor) -> Tensor:
            gap = (A[:, None, 0] - B[None, :, 0]).abs()
            return squared_exponential(0.3)(A[:, 1:], B[:, 1:]) * (1.0 - 0.05) ** (gap / 2.0)

    X, y, weights = X[kept], Y[kept, 0], weights[kept]
    mean, covariance = posterior(kernel, X, y, LAM / weights, at)
    assert torch.allclose(model.posterior(at).mean[:, 0], mean, **EXACT)
    assert torch.allclose(model.posterior(at).variance[:, 0], covariance.diagonal(), **EXACT)
    assert torch.allclose(
        model.information_gain, information_gain(kernel(X, X), LAM / weights), **EXACT
    )
    assert model.num_observations == int(kept.sum())


# --- what is learned ------------------------------------------------------------------------------


def fitted(weights: Tensor | None, n: int = 24) -> tuple[Any, Tensor, Tensor]:
    X = uniform(n, 2, seed=1)
    noise = normal(n, seed=2)
    levels = torch.ones(n, dtype=torch.float64) if weights is None else weights
    Y = (40.0 + (5.0 * X[:, 0]).sin() + 0.3 * noise / levels.sqrt()).unsqueeze(-1)
    build = FittedSingleTaskGP([[0.0, 0.0], [1.0, 1.0]])
    return build(X, Y, *(() if weights is None else (weights,))), X, Y


def test_the_default_model_takes_weights_as_ratios_of_the_noise_of_its_rows() -> None:
    weights = weights_of(24, seed=4)
    model, X, Y = fitted(weights)
    center, unit = float(Y.mean()), float(Y.std())
    base, scale = model.covar_module.base_kernel, float(model.covar_module.outputscale)
    kernel = matern(2.5, base.lengthscale.detach().squeeze(0), scale * unit**2)
    level = float(model.likelihood.noise) * unit**2
    relative = weights * (1.0 / weights).mean()  # the level is the average noise of the rows
    mean = center + unit * float(model.mean_module.constant)
    points = uniform(6, 2, seed=5)

    def check(model: Any, X: Tensor, y: Tensor, noises: Tensor) -> None:
        expected, covariance = posterior(kernel, X, y - mean, noises, points)
        at = model.posterior(points)
        assert torch.allclose(at.mean[:, 0], mean + expected, **EXACT)
        assert torch.allclose(at.variance[:, 0], covariance.diagonal(), **EXACT)
        noisy = model.posterior(points, observation_noise=True).variance[:, 0]
        assert torch.allclose(noisy, covariance.diagonal() + level, **EXACT)

    check(model, X, Y[:, 0], level / relative)
    check(copy.deepcopy(model), X, Y[:, 0], level / relative)
    # as a point is pending; a new row has the average noise
    more = hallucinate(model, points[:2])
    rows, y = torch.cat([X, points[:2]]), torch.cat([Y[:, 0], model.posterior(points).mean[:2, 0]])
    noises = torch.cat([level / relative, torch.full((2,), level, dtype=torch.float64)])
    check(more, rows, y, noises)
    check(model, X, Y[:, 0], level / relative)
    other = model.condition_on_observations(points[2:4], Y[:2])
    rows, y = torch.cat([X, points[2:4]]), torch.cat([Y[:, 0], Y[:2, 0]])
    check(other, rows, y, noises)


def test_the_default_model_is_fitted_to_rows_with_their_own_noise() -> None:
    model, _, _ = fitted(weights_of(24, seed=4))
    mll = ExactMarginalLogLikelihood(model.likelihood, model).train()
    objective = objective_of(mll)
    value, gradient = objective(objective.start)
    # GPyTorch's own density of the rows, with autograd
    density = mll(model(*model.train_inputs), model.train_targets)
    assert value == pytest.approx(-float(density), rel=1e-7)  # it adds jitter
    base, scale = model.covar_module.base_kernel, model.covar_module
    free = [base.raw_lengthscale, scale.raw_outputscale, model.likelihood.noise_covar.raw_noise]
    free.append(model.mean_module.raw_constant)
    slopes = torch.cat([each.reshape(-1) for each in torch.autograd.grad(-density, free)])
    # arguments with a positive lower bound are logarithms
    raw = np.where(objective.is_log, np.exp(objective.start), 1.0)
    assert np.allclose(gradient, slopes.numpy() * raw, rtol=1e-6, atol=1e-8)
    # the fit ended where nothing is gained any more, or at a bound
    low, high = objective.bounds
    inside = (objective.start > low + 1e-6) & (objective.start < high - 1e-6)
    assert np.abs(gradient[inside]).max() < 1e-3
