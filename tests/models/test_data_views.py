"""A model since a row is the model built from these rows."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import BanditGP

from .textbook import posterior, squared_exponential


def data(seed: int, num_rows: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(size=(num_rows, 2))), torch.from_numpy(
        rng.normal(size=(num_rows, 1))
    )


@pytest.mark.parametrize("row", [0, 1, 5, 9])
def test_since_is_the_dense_posterior_of_the_kept_rows(row):
    X, Y = data(row)
    model = BanditGP(X, Y, kernel=RBFKernel(), noise=0.05, prior_mean=0.3)
    model.posterior(X)  # caches must not leak into the view
    view = model.since(row)
    points = data(100)[0]
    found = view.posterior(points)
    kernel = squared_exponential(math.log(2.0))  # GPyTorch's default, softplus of 0
    mean, covariance = posterior(kernel, X[row:], Y[row:, 0] - 0.3, 0.05, points)
    assert torch.allclose(found.mean[:, 0], 0.3 + mean, rtol=0.0, atol=1e-8)
    assert torch.allclose(found.variance[:, 0], covariance.diagonal(), rtol=0.0, atol=1e-8)
    assert model.num_rows == 9  # the user's model is as it was


def test_rows_that_there_are_not_are_refused():
    X, Y = data(0)
    model = BanditGP(X, Y, kernel=RBFKernel(), noise=0.1)
    with pytest.raises(ValueError, match="row is 10, but"):
        model.since(10)
    with pytest.raises(ValueError, match="row"):
        model.since(-1)
    collapsed = BanditGP(
        X, Y, kernel=RBFKernel(), noise=0.1, repeats=torch.full((9,), 2.0, dtype=torch.float64)
    )
    with pytest.raises(ValueError, match="no order in time"):
        collapsed.since(2)
