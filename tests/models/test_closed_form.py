"""BanditGP's closed form: values, gradients and every way to come to it, against dense algebra."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.posteriors import GPyTorchPosterior
from botorch.settings import propagate_grads
from gpytorch import settings
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.models.growing import LeanPosterior

from .textbook import (
    KernelFunction,
    double,
    matern,
    squared_exponential,
    uniform,
)

NAMES = ["squared exponential", "matern 1/2", "matern 3/2", "matern 5/2"]
DIMS = [1, 2, 6]


def case(name: str, dim: int, scale: float | None = 1.7) -> tuple[Kernel, KernelFunction]:
    """A kernel with a lengthscale for each dimension, and the same one written out."""
    lengthscale = torch.linspace(0.3, 0.8, dim, dtype=torch.float64)
    nu = {"matern 1/2": 0.5, "matern 3/2": 1.5, "matern 5/2": 2.5}.get(name)
    size = 1.0 if scale is None else scale
    kernel: Kernel
    if nu is None:
        kernel = RBFKernel(ard_num_dims=dim).double()
        function = squared_exponential(lengthscale, size)
    else:
        kernel = MaternKernel(nu=nu, ard_num_dims=dim).double()
        function = matern(nu, lengthscale, size)
    kernel.lengthscale = lengthscale
    if scale is not None:
        kernel = ScaleKernel(kernel).double()
        kernel.outputscale = double(scale)
    return kernel, function


def outcomes(X: Tensor) -> Tensor:
    return 2.0 * (4.0 * X.sum(-1, keepdim=True)).sin() + 0.5


def dense(
    function: KernelFunction, X: Tensor, Y: Tensor, noise: float, points: Tensor, scale: float = 1.7
) -> tuple[Tensor, Tensor]:
    """Mean and variance at each point, differentiable."""
    system = function(X, X) + noise * torch.eye(len(X), dtype=torch.float64)
    cross = function(points, X)
    variance = scale - (cross * torch.linalg.solve(system, cross.mT).mT).sum(-1)
    return cross @ torch.linalg.solve(system, Y[:, 0]), variance


def gradients(mean: Tensor, variance: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    (first,) = torch.autograd.grad(mean.sum(), points, retain_graph=True)
    (second,) = torch.autograd.grad(variance.sum(), points)
    return first, second


def assert_dense(
    model: BanditGP,
    function: KernelFunction,
    X: Tensor,
    Y: Tensor,
    noise: float,
    scale: float = 1.7,
    raw: Callable[[Tensor], Tensor] = lambda points: points,
    tolerance: float = 1e-8,
) -> None:
    """Values and gradients at ten points; the inputs of the dense side are in the unit box."""
    unit = uniform(10, X.shape[-1], seed=9).requires_grad_(True)
    expected = dense(function, X, Y, noise, unit, scale)
    points = uniform(10, X.shape[-1], seed=9).requires_grad_(True)
    posterior = model.posterior(raw(points).unsqueeze(-2))
    assert type(posterior) is LeanPosterior
    assert posterior.mean.shape == posterior.variance.shape == (10, 1, 1)
    found = posterior.mean.flatten(), posterior.variance.flatten()
    pairs = [*zip(found, expected, strict=True)]
    pairs += zip(gradients(*found, points), gradients(*expected, unit), strict=True)
    for one, other in pairs:
        assert torch.allclose(one, other, rtol=0, atol=tolerance)


def model_of(
    num_rows: int, dim: int = 2, name: str = "matern 5/2", noise: float = 0.01
) -> BanditGP:
    X = uniform(num_rows, dim, seed=0)
    return BanditGP(X, outcomes(X), case(name, dim)[0], noise)


# --- values and gradients -------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("scale", [None, 1.7])
def test_values_and_gradients_are_the_dense_ones(name: str, dim: int, scale: float | None) -> None:
    kernel, function = case(name, dim, scale)
    X = uniform(140, dim, seed=0)
    model = BanditGP(X, outcomes(X), kernel, 0.01)
    assert_dense(model, function, X, outcomes(X), 0.01, 1.0 if scale is None else scale)


def test_gradients_once_and_not_twice() -> None:
    model = model_of(30)
    points = uniform(4, 1, 2, seed=3).requires_grad_(True)

    def moments(points: Tensor) -> tuple[Tensor, Tensor]:
        posterior = model.posterior(points)
        return posterior.mean, posterior.variance

    assert torch.autograd.gradcheck(moments, points, atol=1e-6)
    for k in range(2):
        value = moments(points)[k].sum()
        with pytest.raises(
            RuntimeError, match=r"differentiated only once.*propagate_grads\(True\)"
        ):
            torch.autograd.grad(value, points, create_graph=True)
    with propagate_grads(True):
        assert torch.autograd.gradgradcheck(moments, points, atol=1e-5)


def test_variances_that_rounding_makes_negative() -> None:
    """They become GPyTorch's smallest variance, in prior variances, without a gradient."""
    X = uniform(40, 1, seed=0)
    kernel = case("squared exponential", 1)[0]
    model = BanditGP(X, outcomes(X), kernel, 2e-10)
    points = uniform(500, 1, 1, seed=3).requires_grad_(True)
    with settings.min_variance(double_value=1e-9):
        variance = model.posterior(points).variance
    (slope,) = torch.autograd.grad(variance.sqrt().sum(), points)
    smallest = 1e-9 * float(kernel.outputscale)
    lowest = variance == smallest
    assert 0 < lowest.sum() < 500
    assert variance.min().item() == smallest
    assert slope[lowest].abs().max().item() == 0.0
    assert slope[~lowest].abs().min().item() > 0.0


# --- BoTorch's posterior --------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 1), (2, 3, 1), (4,), (2, 3)])
@pytest.mark.parametrize("noisy", [False, True])
def test_the_posterior_is_botorchs(shape: tuple[int, ...], noisy: bool) -> None:
    """Marginals, joint distribution, samples and transforms, as GPyTorch computes them."""
    model = model_of(30)
    points = uniform(*shape, 2, seed=3)
    found = model.posterior(points, observation_noise=noisy)
    with propagate_grads(True):
        expected = model.posterior(points, observation_noise=noisy)
    assert type(found) is LeanPosterior
    assert type(expected) is GPyTorchPosterior
    transform = ScalarizedPosteriorTransform(weights=double([-2.0]), offset=1.0)
    pairs = [(found, expected), (transform(found), transform(expected))]
    pairs.append((model.posterior(points, posterior_transform=transform), transform(found)))
    for one, other in pairs[: 2 if noisy else 3]:
        assert torch.allclose(one.mean, other.mean, rtol=0, atol=1e-10)
        assert torch.allclose(one.variance, other.variance, rtol=0, atol=1e-10)
        assert torch.allclose(
            one.distribution.covariance_matrix,
            other.distribution.covariance_matrix,
            rtol=0,
            atol=1e-10,
        )
        assert one.base_sample_shape == other.base_sample_shape
        assert one.batch_range == other.batch_range
        assert one._extended_shape(torch.Size([7])) == other._extended_shape(torch.Size([7]))
        base = uniform(7, *one.base_sample_shape, seed=4)
        samples = [p.rsample_from_base_samples(torch.Size([7]), base) for p in (one, other)]
        assert torch.allclose(*samples, rtol=0, atol=1e-6)
        assert one.rsample(torch.Size([2])).shape == (2, *shape, 1)
        assert (one.device, one.dtype) == (other.device, other.dtype)
        level = double([0.3])
        assert torch.allclose(one.quantile(level), other.quantile(level), rtol=0, atol=1e-8)
