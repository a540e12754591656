"""Algorithm 1 of Avanesov 2020 written out in numpy: two fits a tail, nothing shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[np.float64]
KernelFunction = Callable[[Array, Array], Array]


def matern52(lengthscale: float = 1.0, variance: float = 1.0) -> KernelFunction:
    def kernel(A: Array, B: Array) -> Array:
        distance = np.sqrt(((A[:, None, :] - B[None, :, :]) ** 2).sum(-1)) / lengthscale
        a = np.sqrt(5.0) * distance
        return variance * (1.0 + a + a**2 / 3.0) * np.exp(-a)

    return kernel


def squared_exponential(lengthscale: float = 1.0, variance: float = 1.0) -> KernelFunction:
    def kernel(A: Array, B: Array) -> Array:
        squared = ((A[:, None, :] - B[None, :, :]) ** 2).sum(-1) / lengthscale**2
        return variance * np.exp(-0.5 * squared)

    return kernel


def log_sum(values: Iterable[float]) -> float:
    return float(np.logaddexp.reduce(list(values)))


def normal(y: float, mean: float, variance: float) -> float:
    """The logarithm of a normal density."""
    return -0.5 * (math.log(2.0 * math.pi * variance) + (y - mean) ** 2 / variance)


def predict(
    X: Array, y: Any, x: Array, kernel: KernelFunction | None = None, noise: Any = 0.01
) -> tuple[float, float]:
    """Mean and variance of the function at one point; Matern 5/2 by default.

    The noise variance is one number, or one for each row.
    """
    kernel = matern52() if kernel is None else kernel
    prior = float(kernel(x[None], x[None])[0, 0])
    if len(y) == 0:
        return 0.0, prior
    cross = kernel(x[None], X)[0]
    solved = np.linalg.solve(kernel(X, X) + noise * np.eye(len(y)), cross)
    return float(solved @ np.asarray(y)), prior - float(solved @ cross)


def mean_function(
    kernel: KernelFunction, X: Array, y: Array, ridge: float
) -> Callable[[Array], Array]:
    """The posterior mean with the whole ridge ``n rho_n`` on the diagonal."""
    system = kernel(X, X) + ridge * np.eye(len(X))
    return lambda points: kernel(points, X) @ np.linalg.solve(system, y)


def statistics(
    kernel: KernelFunction,
    X: Array,
    y: Array,
    ridge: Callable[[int], float],
    points: Array,
    weights: Array,
) -> Array:
    """The weighted sum of squares of ``mu_1 - mu_2`` for ``n = 1 .. N // 2``."""
    found = []
    total = len(y)
    for n in range(1, total // 2 + 1):
        first, second = slice(total - 2 * n, total - n), slice(total - n, total)
        older = mean_function(kernel, X[first], y[first], ridge(n))
        newer = mean_function(kernel, X[second], y[second], ridge(n))
        found.append(weights @ (older(points) - newer(points)) ** 2)
    return np.array(found)


def gauss_legendre(bounds: list[tuple[float, float]], nodes: int) -> tuple[Array, Array]:
    """Points and weights of a product rule for the mean over a box."""
    abscissae, weights = np.polynomial.legendre.leggauss(nodes)
    lines = [low + (high - low) * (abscissae + 1.0) / 2.0 for low, high in bounds]
    grid = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, len(bounds))
    product = np.ones(1)
    for _ in bounds:
        product = np.outer(product, weights / 2.0).reshape(-1)
    return grid, product


def samples(num: int, dim: int, seed: int, high: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Uniform inputs of ``[0, high]^dim`` and outcomes whose function changes at two thirds."""
    random = torch.Generator().manual_seed(seed)
    X = high * torch.rand(num, dim, dtype=torch.float64, generator=random)
    noise = torch.randn(num, dtype=torch.float64, generator=random)
    y = torch.sin(3.0 * X).sum(-1) + 0.1 * noise
    y[2 * num // 3 :] *= -1.0
    return X, y
