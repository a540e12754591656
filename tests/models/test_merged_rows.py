"""Boxes whose rows take few places: merged rows give what dense algebra on all rows gives."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bandits import BanditGP
from botorch_bandits.models.bandit_gp import FEWEST_ROWS, ModelBuilder
from botorch_bandits.models.fits import log_marginal_likelihood

from .textbook import (
    double,
    information_gain,
    log_likelihood,
    matern,
    posterior,
    squared_exponential,
    uniform,
)

LENGTHSCALES = (0.3, 0.5)
SCALE = 1.7
NOISE = 0.04
PRIOR_MEAN = 0.6


def rows_at_places(num_rows: int, num_places: int, seed: int = 0) -> tuple[torch.Tensor, ...]:
    stream = torch.Generator().manual_seed(seed)
    places = torch.rand(num_places, 2, generator=stream, dtype=torch.float64)
    X = places[torch.randint(num_places, (num_rows,), generator=stream)]
    noise = torch.randn(num_rows, 1, generator=stream, dtype=torch.float64)
    return X, torch.sin(5.0 * X.sum(-1, keepdim=True)) + 0.2 * noise


def kernel(name: str = "Matern") -> ScaleKernel:
    base = RBFKernel(ard_num_dims=2) if name == "RBF" else MaternKernel(nu=2.5, ard_num_dims=2)
    built = ScaleKernel(base).double()
    built.base_kernel.lengthscale = double(LENGTHSCALES)
    built.outputscale = double(SCALE)
    return built


def textbook(name: str, X: torch.Tensor, Y: torch.Tensor, at: torch.Tensor) -> dict[str, object]:
    """Posterior, information gain and marginal likelihood, from all rows."""
    scales = double(LENGTHSCALES)
    function = squared_exponential(scales, SCALE) if name == "RBF" else matern(2.5, scales, SCALE)
    residual = Y[:, 0] - PRIOR_MEAN
    mean, covariance = posterior(function, X, residual, NOISE, at)
    return {
        "mean": PRIOR_MEAN + mean,
        "variance": covariance.diagonal(),
        "gain": information_gain(function(X, X), NOISE),
        "likelihood": log_likelihood(function, X, residual, NOISE),
    }


def builder(name: str = "Matern", **options: object) -> ModelBuilder:
    recipe = BanditGP.with_kernel(kernel(name), noise=NOISE, prior_mean=PRIOR_MEAN, **options)
    return recipe.builder(0, merges=True)


@pytest.mark.parametrize("name", ["Matern", "RBF"])
@pytest.mark.parametrize("num_rows", [256, 293, 700])
def test_merged_rows_are_all_rows(name: str, num_rows: int) -> None:
    X, Y = rows_at_places(num_rows, 30)
    at = uniform(20, 2, seed=1)
    model = builder(name)(X, Y)
    expected = textbook(name, X, Y, torch.cat([at, X[:5]]))
    found = model.posterior(torch.cat([at, X[:5]]).unsqueeze(-2))
    torch.testing.assert_close(found.mean.flatten(), expected["mean"], rtol=0, atol=1e-8)
    torch.testing.assert_close(found.variance.flatten(), expected["variance"], rtol=0, atol=1e-8)
    torch.testing.assert_close(model.information_gain, expected["gain"], rtol=1e-10, atol=1e-8)
    learning = builder(name, refit_every=10**6)(X, Y)  # not due yet
    mll = ExactMarginalLogLikelihood(learning.likelihood, learning)
    likelihood = num_rows * log_marginal_likelihood(mll)
    assert likelihood == pytest.approx(float(expected["likelihood"]), rel=1e-9, abs=1e-8)
    assert model.num_observations == num_rows
    assert model.num_rows <= 30


def test_few_rows_and_rows_that_are_distinct_stay_as_they_are() -> None:
    X, Y = rows_at_places(FEWEST_ROWS - 1, 5)
    assert builder()(X, Y).num_rows == FEWEST_ROWS - 1
    X, Y = rows_at_places(600, 100_000)
    model = builder()(X, Y)
    assert model.repeats is None
    assert model.num_rows == 600


def test_zeros_of_either_sign_are_one_place_and_other_rows_start_over() -> None:
    X = torch.zeros(FEWEST_ROWS, 2, dtype=torch.float64)
    X[::2] = -0.0
    built = builder()
    assert built(X, X[:, :1]).num_rows == 1
    others, Y = rows_at_places(400, 20)
    assert built(others, Y).num_rows == 20
    assert built(others[:15], Y[:15]).num_rows == 15
