"""BanditGP against dense linear algebra, and at work in what BoTorch does with models."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.acquisition import (
    qKnowledgeGradient,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import BanditGP

from .textbook import (
    KernelFunction,
    double,
    linear,
    matern,
    posterior,
    squared_exponential,
    uniform,
)

X, NEW_X, POINTS = uniform(12, 2, seed=0), uniform(3, 2, seed=1), uniform(6, 2, seed=2)


def outcomes(inputs: Tensor) -> Tensor:
    """Two outcomes on scales that are not 1."""
    first = 3.0 + 2.0 * (5.0 * inputs[..., :1]).sin()
    return torch.cat([first, 40.0 * (4.0 * inputs[..., 1:2]).cos()], dim=-1)


Y, NEW_Y = outcomes(X), outcomes(NEW_X)


def scaled(base: Kernel, scale: float, lengthscale: Any) -> ScaleKernel:
    kernel = ScaleKernel(base).double()
    kernel.outputscale = double(scale)
    kernel.base_kernel.lengthscale = double(lengthscale)
    return kernel


def linear_kernel(variance: float) -> LinearKernel:
    kernel = LinearKernel().double()
    kernel.variance = double(variance)
    return kernel


def on_columns(first: KernelFunction, second: KernelFunction) -> KernelFunction:
    return lambda A, B: first(A[..., :1], B[..., :1]) * second(A[..., 1:], B[..., 1:])


def product_kernel() -> Kernel:
    product = RBFKernel(active_dims=(0,)).double() * MaternKernel(nu=0.5, active_dims=(1,)).double()
    product.kernels[0].lengthscale = double(0.4)
    product.kernels[1].lengthscale = double(0.8)
    return product


def sum_kernel() -> Kernel:
    total = scaled(RBFKernel(), 2.0, 0.3) + linear_kernel(0.7)
    return total.double()


KERNELS: dict[str, tuple[Callable[[], Kernel], KernelFunction]] = {
    "squared exponential": (
        lambda: scaled(RBFKernel(), 4.0, 0.3),
        squared_exponential(0.3, 4.0),
    ),
    "one lengthscale per dimension": (
        lambda: scaled(RBFKernel(ard_num_dims=2), 1.0, [[0.2, 0.9]]),
        squared_exponential(double([0.2, 0.9])),
    ),
    "matern 1/2": (lambda: scaled(MaternKernel(nu=0.5), 2.0, 0.5), matern(0.5, 0.5, 2.0)),
    "matern 3/2": (lambda: scaled(MaternKernel(nu=1.5), 0.1, 0.5), matern(1.5, 0.5, 0.1)),
    "matern 5/2": (lambda: scaled(MaternKernel(nu=2.5), 1.0, 0.25), matern(2.5, 0.25)),
    "one column": (
        lambda: scaled(RBFKernel(active_dims=(1,)), 1.0, 0.3),
        lambda A, B: squared_exponential(0.3)(A[..., 1:], B[..., 1:]),
    ),
    "product": (product_kernel, on_columns(squared_exponential(0.4), matern(0.5, 0.8))),
    "sum": (
        sum_kernel,
        lambda A, B: squared_exponential(0.3, 2.0)(A, B) + linear(0.7)(A, B),
    ),
    "linear": (lambda: linear_kernel(1.5), linear(1.5)),
}
kernels = pytest.mark.parametrize("name", list(KERNELS))


def assert_dense(model: Any, j: int, mean: Tensor, covariance: Tensor, tolerance: float) -> None:
    """Compare output ``j`` of the model's joint posterior at POINTS."""
    found = model.posterior(POINTS)
    block = found.distribution.covariance_matrix
    size = max(1.0, mean.abs().max().item())
    assert torch.allclose(found.mean[:, j], mean, rtol=0, atol=tolerance * size)
    assert torch.allclose(block, covariance, rtol=0, atol=tolerance)
    assert torch.allclose(found.variance[:, j], covariance.diagonal(), rtol=0, atol=tolerance)


# --- the posterior --------------------------------------------------------------------------------


@kernels
@pytest.mark.parametrize("noise", [1e-2, 2.0])
def test_the_posterior_is_the_textbook_one(name: str, noise: float) -> None:
    build, function = KERNELS[name]
    model = BanditGP(X, Y[:, :1], build(), noise)
    assert_dense(model, 0, *posterior(function, X, Y[:, 0], noise, POINTS), tolerance=1e-10)


@kernels
def test_without_data_it_is_the_prior(name: str) -> None:
    build, function = KERNELS[name]
    model = BanditGP(X[:0], Y[:0, :1], build(), noise=0.1)
    assert model.num_rows == 0
    zero = torch.zeros(len(POINTS), dtype=torch.float64)
    assert_dense(model, 0, zero, function(POINTS, POINTS), tolerance=1e-12)
    noisy = model.posterior(POINTS, observation_noise=True).variance
    expected = function(POINTS, POINTS).diagonal() + 0.1
    assert torch.allclose(noisy[:, -1], expected, rtol=0, atol=1e-12)
    assert model.posterior(POINTS.unsqueeze(-2)).mean.shape == (6, 1, 1)


@kernels
def test_batches_are_separate_models(name: str) -> None:
    build, function = KERNELS[name]
    inputs = uniform(3, 7, 2, seed=4)
    noise = double([0.1, 0.3, 0.5])
    model = BanditGP(inputs, outcomes(inputs)[..., :1], build(), noise)
    found = model.posterior(POINTS)
    assert model.batch_shape == (3,)
    assert found.mean.shape == (3, 6, 1)
    for k in range(3):
        y = outcomes(inputs[k])[:, 0]
        mean, covariance = posterior(function, inputs[k], y, noise[k], POINTS)
        assert torch.allclose(found.mean[k, :, 0], mean, rtol=0, atol=1e-8)
        assert torch.allclose(found.variance[k, :, 0], covariance.diagonal(), rtol=0, atol=1e-9)


def test_the_kernel_is_copied() -> None:
    kernel = scaled(RBFKernel(), 1.0, 0.3)
    model = BanditGP(X, Y[:, :1], kernel, 0.1)
    before = model.posterior(POINTS)
    kernel.outputscale = double(50.0)
    kernel.base_kernel.lengthscale = double(5.0)
    after = BanditGP.posterior(copy.deepcopy(model), POINTS)
    assert torch.equal(before.mean, after.mean)
    twin = BanditGP(X, Y[:, :1], model.covar_module, 0.1)
    assert twin.covar_module is not model.covar_module
    assert kernel.raw_outputscale.requires_grad
    assert not any(parameter.requires_grad for parameter in model.parameters())


# --- conditioning ---------------------------------------------------------------------------------


@kernels
@pytest.mark.parametrize("num_rows", [0, 1, 12])
def test_conditioning_is_rebuilding(name: str, num_rows: int) -> None:
    build, function = KERNELS[name]
    old = BanditGP(X[:num_rows], Y[:num_rows, :1], build(), noise=0.1)
    before = copy.deepcopy(old.state_dict())
    model = old.condition_on_observations(NEW_X, NEW_Y[:, :1])
    assert isinstance(model, BanditGP)
    assert (old.num_rows, model.num_rows) == (num_rows, num_rows + 3)
    inputs = torch.cat([X[:num_rows], NEW_X])
    y = torch.cat([Y[:num_rows, 0], NEW_Y[:, 0]])
    assert_dense(model, 0, *posterior(function, inputs, y, 0.1, POINTS), tolerance=1e-8)
    assert all(torch.equal(value, before[key]) for key, value in old.state_dict().items())


# --- learning -------------------------------------------------------------------------------------


def fit(model: BanditGP) -> None:
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))


@pytest.mark.parametrize(
    "model",
    [
        BanditGP(X, Y[:, :1], scaled(RBFKernel(), 1.0, 0.3), 0.1),
        BanditGP(X[:0], Y[:0, :1], scaled(RBFKernel(), 1.0, 0.3), 0.1),
        BanditGP(X[:0], Y[:0, :1], scaled(RBFKernel(), 1.0, 0.3), 0.1, learn_hyperparameters=True),
    ],
    ids=["fixed", "fixed without data", "learning without data"],
)
def test_fitting_does_nothing_where_nothing_can_be_learned(model: BanditGP) -> None:
    before = copy.deepcopy(model.state_dict())
    model.train()
    fit(model)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not model.training


# --- what is refused ------------------------------------------------------------------------------

TWICE = {"train_X": X.expand(2, 12, 2), "train_Y": Y[:, :1].expand(2, 12, 1)}


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"train_X": X.float()}, TypeError, r"train_X has dtype torch\.float32"),
        ({"train_Y": Y.float()}, TypeError, r"train_Y has dtype torch\.float32"),
        ({"train_X": X.tolist()}, TypeError, r"train_X must be a torch\.Tensor"),
        ({"train_X": X / 0.0}, ValueError, r"train_X\[0, 0\] is inf"),
        ({"train_Y": Y[:, :1] * float("nan")}, ValueError, r"train_Y\[0, 0\] is nan"),
        ({"train_Y": Y[:, 0]}, ValueError, r"train_Y \(12,\).*train_Y with y\.unsqueeze\(-1\)"),
        ({"train_X": X[:, 0]}, ValueError, r"train_X has shape \(12,\)"),
        ({"train_Y": Y[:5]}, ValueError, r"train_X has shape \(12, 2\) and train_Y \(5, 2\)"),
        ({"train_Y": Y}, ValueError, r"BanditGP has one output.*ModelListGP"),
        ({"kernel": "rbf"}, TypeError, "kernel must be a gpytorch.*MaternKernel"),
        ({"kernel": RBFKernel}, TypeError, "kernel must be a gpytorch"),
        ({"noise": 0.0}, ValueError, "noise is 0.0; it must be greater than 0"),
        ({"noise": -1.0}, ValueError, "noise is -1.0"),
        ({"noise": float("nan")}, ValueError, "noise is nan"),
        ({"noise": 1e-10}, ValueError, "noise is 1e-10 and .*ratio is 1e-10, but it must be above"),
        ({**TWICE, "noise": double([0.1, -0.2])}, ValueError, "noise is -0.2"),
        (
            {**TWICE, "noise": double([0.1] * 3)},
            ValueError,
            r"noise has batch shape \(3,\).*shape \(2,\)",
        ),
        (
            {**TWICE, "kernel": RBFKernel(batch_shape=torch.Size([3]))},
            ValueError,
            r"kernel has batch shape \(3,\), which does not fit the data's batch shape \(2,\)",
        ),
        (
            {"train_X": X[:0], "train_Y": Y[:0, :1], "input_transform": Normalize(2)},
            ValueError,
            r"input_transform learns its scale.*Normalize\(d, bounds=bounds\)",
        ),
    ],
)
def test_malformed_arguments_are_refused(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments = {"train_X": X, "train_Y": Y[:, :1], "kernel": RBFKernel(), "noise": 0.1} | changes
    with pytest.raises(error, match=message):
        BanditGP(**arguments)


def test_a_kernel_set_in_single_precision_is_warned_of() -> None:
    kernel = RBFKernel()
    kernel.lengthscale = 0.2
    with pytest.warns(UserWarning, match=r"set in float32.*0\.200000003.*kernel\.double\(\)"):
        BanditGP(X, Y[:, :1], kernel, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BanditGP(X, Y[:, :1], RBFKernel(), 0.1)  # untouched parameters lost nothing
        BanditGP(X, Y[:, :1], scaled(RBFKernel(), 1.0, 0.2), 0.1)


@pytest.mark.parametrize("num_rows", [0, 12])
def test_fantasies_are_rebuilt_models(num_rows: int) -> None:
    model = BanditGP(X[:num_rows], Y[:num_rows, :1], RBFKernel(), noise=0.1)
    model.posterior(POINTS)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=0)
    fantasies = model.fantasize(NEW_X, sampler)
    assert fantasies.num_rows == num_rows + 3
    found = fantasies.posterior(POINTS)
    assert found.mean.shape == (4, 6, 1)
    samples = SobolQMCNormalSampler(torch.Size([4]), seed=0)(
        model.posterior(NEW_X, observation_noise=True)
    )
    for i in range(4):
        rebuilt = BanditGP(
            torch.cat([X[:num_rows], NEW_X]),
            torch.cat([Y[:num_rows, :1], samples[i]]),
            RBFKernel(),
            noise=0.1,
        ).posterior(POINTS)
        assert torch.allclose(found.mean[i], rebuilt.mean, rtol=0, atol=1e-8)
        assert torch.allclose(found.variance[i], rebuilt.variance, rtol=0, atol=1e-10)


@pytest.mark.parametrize("num_rows", [0, 12])
def test_the_knowledge_gradient_can_be_optimized(num_rows: int) -> None:
    model = BanditGP(X[:num_rows], Y[:num_rows, :1], RBFKernel(), noise=0.1)
    acquisition = qKnowledgeGradient(model, num_fantasies=4)
    points = uniform(3, 5, 2, seed=8).requires_grad_(True)
    acquisition(points).sum().backward()
    assert points.grad is not None
    assert torch.isfinite(points.grad).all()
    assert points.grad.abs().max().item() > 0.0
