"""Rows with weights, against dense algebra with a noise variance of its own in each row."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import FittedSingleTaskGP
from botorch_bandits.models.fits import objective_of
from botorch_bandits.models.reading import hallucinate

from .textbook import (
    double,
    matern,
    normal,
    posterior,
    uniform,
)

EXACT: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8}


def weights_of(n: int, seed: int) -> Tensor:
    """Some below 1, some far above, some whole numbers."""
    return torch.exp(6.0 * uniform(n, seed=seed) - 2.0).where(
        uniform(n, seed=seed + 1) < 0.7, double(40.0)
    )


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
