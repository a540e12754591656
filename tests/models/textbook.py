"""Gaussian processes written out: explicit kernels and linear algebra, nothing of GPyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

KernelFunction = Callable[[Tensor, Tensor], Tensor]


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def uniform(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def line(low: float, high: float, num_points: int) -> Tensor:
    """``num_points x 1``, equally spaced from one end to the other."""
    return torch.linspace(low, high, num_points, dtype=torch.float64).unsqueeze(-1)


def distance(A: Tensor, B: Tensor, lengthscale: Tensor | float) -> Tensor:
    difference = (A / lengthscale).unsqueeze(-2) - (B / lengthscale).unsqueeze(-3)
    return difference.square().sum(-1).sqrt()


def squared_exponential(lengthscale: Tensor | float, scale: float = 1.0) -> KernelFunction:
    return lambda A, B: scale * torch.exp(-0.5 * distance(A, B, lengthscale) ** 2)


def matern(nu: float, lengthscale: Tensor | float, scale: float = 1.0) -> KernelFunction:
    def kernel(A: Tensor, B: Tensor) -> Tensor:
        r = math.sqrt(2.0 * nu) * distance(A, B, lengthscale)
        polynomial = {0.5: 1.0 + 0.0 * r, 1.5: 1.0 + r, 2.5: 1.0 + r + r**2 / 3.0}[nu]
        return scale * polynomial * torch.exp(-r)

    return kernel


def linear(variance: float) -> KernelFunction:
    return lambda A, B: variance * A @ B.mT


def posterior(
    kernel: KernelFunction, X: Tensor, y: Tensor, noise: Tensor | float, points: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean and covariance at ``points`` given ``y`` at ``X``, all of one output.

    ``noise`` is one variance or one per row.
    """
    levels = torch.as_tensor(noise, dtype=torch.float64).expand(len(X))
    system = kernel(X, X) + torch.diag(levels)
    cross = kernel(points, X)
    mean = cross @ torch.linalg.solve(system, y)
    covariance = kernel(points, points) - cross @ torch.linalg.solve(system, cross.mT)
    return mean, covariance


def information_gain(K: Tensor, noise: Tensor | float) -> Tensor:
    """``1/2 ln det(I + D K D)`` with one over the root of each row's noise variance in ``D``."""
    root = torch.as_tensor(noise, dtype=torch.float64).expand(len(K)).sqrt()
    scaled = K / root / root.unsqueeze(-1)
    return 0.5 * torch.logdet(torch.eye(len(K), dtype=torch.float64) + scaled)


def log_likelihood(kernel: KernelFunction, X: Tensor, y: Tensor, noise: float) -> float:
    """The logarithm of the density of ``y``, of one output."""
    system = kernel(X, X) + noise * torch.eye(len(X), dtype=torch.float64)
    quadratic = y @ torch.linalg.solve(system, y)
    return float(-0.5 * (quadratic + torch.logdet(system) + len(X) * math.log(2.0 * math.pi)))


def value_and_gradient(posterior: Any, points: Tensor) -> tuple[Tensor, ...]:
    """Mean, variance and their gradients, by automatic differentiation."""
    with torch.enable_grad():
        points = points.detach().clone().requires_grad_()
        moments = posterior.moments(points)
        totals = [each.sum() for each in moments]
    slopes = [
        torch.autograd.grad(each, points, retain_graph=True, materialize_grads=True)[0]
        for each in totals
    ]
    return (moments[0].detach(), moments[1].detach().clamp_min(0.0), *slopes)
