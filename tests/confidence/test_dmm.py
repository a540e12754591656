"""The confidence set behind DMM, against dense algebra and by simulation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from models.textbook import double, line
from torch import Tensor

from botorch_bandits.confidence import RidgeConfidenceSet
from botorch_bandits.core.ridges import Ridges


def kernel(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-(torch.cdist(a, b) ** 2) / (2 * 0.2**2))


def draw(seed: int, num_rows: int, norm: float = 2.0, noise: float = 0.1) -> tuple[Tensor, ...]:
    """Inputs, noisy outcomes, test points and the true values there, of known norm."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(num_rows, 1, dtype=torch.float64, generator=generator)
    centers = torch.rand(12, 1, dtype=torch.float64, generator=generator)
    weights = torch.randn(12, dtype=torch.float64, generator=generator)
    weights *= norm / (weights @ kernel(centers, centers) @ weights).sqrt()
    noises = noise * torch.randn(num_rows, dtype=torch.float64, generator=generator)
    test = line(0, 1, 30)
    return X, kernel(X, centers) @ weights + noises, test, kernel(test, centers) @ weights


def set_of(
    X: Tensor, y: Tensor, bound: float, noise: float, delta: float, base: float, **options: Any
) -> RidgeConfidenceSet:
    ridges = Ridges(X, torch.ones_like(y), y, kernel, double(base))
    return RidgeConfidenceSet.of(ridges, bound, noise, delta, **options)


def test_a_norm_that_cannot_be_is_refuted_without_nan() -> None:
    X, y, test, _ = draw(1, 20, norm=2.0)
    for bound in (0.1, 0.5):
        found = set_of(X, y, bound, 0.1, 0.05, 0.01)
        assert found.is_refuted
        lower, upper, _ = found.bounds(kernel(test, X), torch.ones(30, dtype=torch.float64))
        assert bool(torch.isfinite(lower).all())
        assert bool(torch.isfinite(upper).all())
    smallest = float(found.smallest_rkhs_bound)
    for factor, refuted in ((1.01, False), (0.99, True)):
        again = set_of(X, y, factor * smallest, 0.1, 0.05, 0.01)
        assert bool(again.is_refuted) is refuted
    doubled = set_of(X, y, 0.3 * smallest, 0.1, 0.05, 0.01, doubles=True)
    assert float(doubled.rkhs_bound) == pytest.approx(1.2 * smallest)
    assert not doubled.is_refuted
