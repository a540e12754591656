"""The posterior on boxes against a dense computation, over kernels, batches, noise and rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from models.textbook import double, information_gain, posterior, uniform, value_and_gradient
from torch import Tensor

from botorch_bandits.core.box import BoxPosterior, IndefiniteError
from botorch_bandits.core.kernels import KernelList, TimeDecayKernel, kernel_function

DIM = 3


def set_to(kernel: Kernel, lengthscale: Any, scale: float | None = None) -> Kernel:
    kernel = kernel.double()
    kernel.lengthscale = double(lengthscale)
    if scale is None:
        return kernel
    kernel = ScaleKernel(kernel).double()
    kernel.outputscale = double(scale)
    return kernel


def product() -> Kernel:
    parts = (RBFKernel(active_dims=(0,)), RBFKernel(active_dims=(2, 1)), MaternKernel(1.5))
    return set_to(parts[0], 0.4) * set_to(parts[1], 0.7, 0.5) * set_to(parts[2], 2.0)


def nested() -> Kernel:
    one, two = set_to(MaternKernel(2.5, active_dims=(1,)), 0.3), set_to(RBFKernel(), 0.6)
    return ScaleKernel((one + two) * set_to(MaternKernel(0.5, active_dims=(0, 1)), 1.0)).double()


KERNELS: dict[str, Callable[[], Kernel]] = {
    "squared exponential": lambda: set_to(RBFKernel(ard_num_dims=DIM), [0.3, 0.5, 1.0], 2.0),
    "matern 1/2": lambda: set_to(MaternKernel(0.5), 0.5),
    "matern 3/2": lambda: set_to(MaternKernel(1.5, ard_num_dims=DIM), [0.3, 0.5, 1.0]),
    "matern 5/2, tiny": lambda: set_to(MaternKernel(2.5), 0.4, 1e-6),
    "product": product,
    "nested": nested,
    "time": lambda: TimeDecayKernel(set_to(MaternKernel(2.5), 0.3, 3.0), rate=0.2),
    "any, stationary": lambda: set_to(PeriodicKernel(), 0.5, 1.5),
    "any, not stationary": lambda: LinearKernel().double() + set_to(RBFKernel(), 0.5),
}


def dense(
    kernel: Kernel, X: Tensor, y: Tensor, noise: Tensor, points: Tensor, mean: float
) -> tuple[Tensor, Tensor]:
    found, covariance = posterior(lambda A, B: kernel(A, B).to_dense(), X, y - mean, noise, points)
    return mean + found, covariance


def agree(found: Tensor, expected: Tensor, unit: float) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found / unit, expected / unit, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("ratio", [1e-6, 1e-2, 1e2])
@pytest.mark.parametrize("name", KERNELS)
def test_textbook(name: str, ratio: float) -> None:
    """Moments, joint moments, slopes, gains and predictions, also as rows come one by one."""
    kernel = KERNELS[name]().requires_grad_(False)
    X, points, weights = (
        uniform(40, DIM, seed=1),
        uniform(6, DIM, seed=2),
        uniform(40, seed=3) + 0.5,
    )
    X[7], points[0] = X[3], X[0]  # a repeated row, and a point at a row
    scale = float(kernel(X, diag=True).max())
    noise, y = ratio * scale, scale**0.5 * (X.sum(-1).sin() + 2.0)
    box = BoxPosterior.of(
        kernel_function(kernel, DIM), X[:10], y[:10], noise, 1.0, noise / weights[:10]
    )
    sibling = box.with_rows(X[20:21], y[20:21])  # writes to memory that others continue
    for start, end in ((10, 11), (11, 12), (12, 40)):
        box = box.with_rows(X[start:end], y[start:end], noise / weights[start:end])
    assert sibling.num_rows == 11
    assert box.num_rows == 40

    points.requires_grad_()
    levels = noise / weights
    mean, covariance = dense(kernel, X, y, levels, points, 1.0)
    variance = covariance.diagonal()
    slopes = [torch.autograd.grad(m.sum(), points, retain_graph=True)[0] for m in (mean, variance)]
    if "1/2" in name or name == "nested":  # at the kink, a slope is anything
        slopes = [slope[1:] for slope in slopes]
    found = value_and_gradient(box, points)
    unit = scale**0.5
    agree(found[0], mean, unit)
    agree(found[1], variance.clamp_min(0.0), scale)
    for own, slope, size in zip(found[2:], slopes, (unit, scale), strict=True):
        agree(own[-len(slope) :], slope, size)
    own_mean = box.mean(points)
    agree(own_mean, mean, unit)
    agree(torch.autograd.grad(own_mean.sum(), points)[0], found[2], unit)
    with torch.no_grad():  # in parts, without pullbacks
        agree(box.moments(points.repeat(700, 1))[1][-6:], found[1], scale)

    joint, own_covariance = box.mean_and_covariance(points.reshape(2, 3, DIM))
    agree(joint, mean.reshape(2, 3), unit)
    agree(own_covariance, torch.stack([covariance[:3, :3], covariance[3:, 3:]]), scale)
    outer = uniform(2, 3, 3, seed=4)
    expected = (torch.stack([covariance[:3, :3], covariance[3:, 3:]]) * outer).sum()
    if len(slopes[0]) == len(points):
        pair = [
            torch.autograd.grad(each, points)[0]
            for each in ((own_covariance * outer).sum(), expected)
        ]
        agree(*pair, scale)

    agree(box.information_gain, information_gain(kernel(X, X).to_dense(), levels), 1.0)
    expected_mean, expected_variance = dense(kernel, X[:12], y[:12], levels[:12], X[12:13], 1.0)
    predicted = [each[12:13] for each in box.predictions()]
    agree(predicted[0], expected_mean, unit)
    agree(predicted[1], expected_variance[0] + levels[12:13], scale)
    assert box.with_outcomes(2.0 * y).W.data_ptr() == box.W.data_ptr()
    agree(
        box.with_outcomes(2.0 * y).mean(points),
        dense(kernel, X, 2.0 * y, levels, points, 1.0)[0],
        unit,
    )
    agree(box.with_rows(X[:1], None).mean(points), mean, unit)  # hallucinated: means stay


@pytest.mark.parametrize("noise", [1e-6, 1e-2, 1e2])
@pytest.mark.parametrize(
    "names", [list(KERNELS)[:4], list(KERNELS)[4:] + list(KERNELS)[:1], ["nested"] * 2]
)
def test_lists_of_priors(names: list[str], noise: float) -> None:
    """A list is the posteriors of its entries, also for points in batches."""
    kernels = [KERNELS[name]() for name in names]
    functions = KernelList([kernel_function(kernel, DIM) for kernel in kernels])
    X, points = uniform(30, DIM, seed=1), uniform(2, 5, DIM, seed=2).requires_grad_()
    y, flat = X.sum(-1).cos(), points.reshape(-1, DIM)
    means = torch.linspace(-1.0, 1.0, len(names), dtype=torch.float64)
    levels = noise * torch.linspace(1.0, 2.0, len(names), dtype=torch.float64)
    together = BoxPosterior.of(functions, X[:29], y[:29].expand(len(names), -1), levels, means)
    together = together.with_rows(X[29:], y[29:].expand(len(names), -1))
    mean, variance = together.moments(flat)
    joint, covariance = together.mean_and_covariance(points)
    total = torch.zeros_like(points)
    for g, kernel in enumerate(kernels):
        alone = BoxPosterior.of(
            kernel_function(kernel, DIM), X, y, float(levels[g]), float(means[g])
        )
        own_mean, own_variance = alone.moments(flat)
        own_joint, own_covariance = alone.mean_and_covariance(points)
        pairs = [(mean[g], own_mean), (variance[g], own_variance), (joint[:, g], own_joint)]
        pairs.append((covariance[:, g], own_covariance))
        for one, other in zip(
            together.select(g).moments(flat), (own_mean, own_variance), strict=True
        ):
            pairs.append((one, other))
        for one, other in pairs:
            agree(one, other, 1.0)
        agree(together.information_gain[g], alone.information_gain, 1.0)
        total += torch.autograd.grad((own_mean + own_variance).sum(), points)[0]
    agree(torch.autograd.grad((mean + variance).sum(), points)[0], total, 1.0)


def test_replicates() -> None:
    """Replicates have rows of their own; without rows, they are the prior."""
    kernel = KERNELS["squared exponential"]()
    function, X = kernel_function(kernel, DIM), uniform(4, 12, DIM, seed=1)
    y, points = X.sum(-1).sin(), uniform(4, 5, DIM, seed=2)
    empty = BoxPosterior.of(function, X[:, :0], y[:, :0], torch.full((4,), 0.1), torch.zeros(4))
    mean, variance, *slopes = value_and_gradient(empty, points)
    assert not mean.any()
    assert not any(slope.any() for slope in slopes)
    agree(variance, torch.full_like(variance, 2.0), 1.0)
    grown = empty
    for i in range(12):
        grown = grown.with_rows(X[:, i : i + 1], y[:, i : i + 1])
    found = value_and_gradient(grown.select(torch.tensor([3, 1])), points[[3, 1]])
    for at, b in enumerate((3, 1)):
        alone = value_and_gradient(BoxPosterior.of(function, X[b], y[b], 0.1), points[b])
        for one, other in zip(found, alone, strict=True):
            agree(one[at], other, 1.0)


def test_transforms_and_failures() -> None:
    """Points may be given before a transform; a matrix that float64 cannot factorize is refused."""
    function = kernel_function(KERNELS["matern 5/2, tiny"](), DIM)
    X = uniform(9, DIM, seed=1)
    plain = BoxPosterior.of(function, X.square(), X.sum(-1), 1e-8)
    changed = BoxPosterior.of(function, X.square(), X.sum(-1), 1e-8, transform=torch.square)
    raw = uniform(4, DIM, seed=2)
    inner = value_and_gradient(plain, raw.square())
    for i, own in enumerate(value_and_gradient(changed, raw)):
        agree(own, inner[i] if i < 2 else inner[i] * 2.0 * raw, 1.0)
    with pytest.raises(IndefiniteError, match=r"noise is as small as 1e-30: .* 2 rows"):
        BoxPosterior.of(function, X[[0, 0]], X[:2, 0], 1e-30)
