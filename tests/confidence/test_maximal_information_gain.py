"""Bounds on the maximal information gain, bracketed by brute force on tiny sets."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from models.textbook import line
from torch import Tensor

from botorch_bandits.confidence import (
    DesignGain,
    GreedyGain,
    WaterFillingGain,
)
from papers.chowdhury import RateGain


def squared_exponential(num_arms: int, seed: int, lengthscale: float = 0.2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(num_arms, 1, dtype=torch.float64, generator=generator)
    return torch.exp(-(torch.cdist(points, points) ** 2) / (2 * lengthscale**2))


def gain_of(kernel_matrix: Tensor, arms: tuple[int, ...], lam: float) -> float:
    matrix = kernel_matrix[list(arms)][:, list(arms)] / lam
    return 0.5 * float(torch.linalg.slogdet(torch.eye(len(arms), dtype=torch.float64) + matrix)[1])


CASES = list(itertools.product([0, 1, 2], [0.01, 0.5, 3.0], [1, 2, 3, 5]))


@pytest.mark.parametrize(("seed", "lam", "size"), CASES)
def test_every_bound_brackets_the_exact_gain(seed: int, lam: float, size: int) -> None:
    K = squared_exponential(4, seed) * (1.0 + seed)  # the prior variance need not be 1
    sets = itertools.combinations_with_replacement(range(4), size)
    exact = max(gain_of(K, arms, lam) for arms in sets)
    greedy = GreedyGain(K, lam)
    tolerance = 1e-9
    assert greedy.greedy_gain(size) <= exact + tolerance
    assert greedy.greedy_gain(size) >= (1 - math.exp(-1)) * exact - tolerance
    bounds = (WaterFillingGain, DesignGain)
    for bound in (greedy, *(each(K, lam) for each in bounds)):
        assert bound.is_upper_bound
        assert bound(size) >= exact - tolerance


def test_greedy_set_is_the_dense_one() -> None:
    K, lam = squared_exponential(6, 3), 0.1
    chosen: tuple[int, ...] = ()
    for _ in range(8):
        gains = [gain_of(K, (*chosen, arm), lam) for arm in range(6)]
        chosen = (*chosen, max(range(6), key=lambda arm: gains[arm]))
    assert GreedyGain(K, lam).greedy_gain(8) == pytest.approx(gain_of(K, chosen, lam), abs=1e-10)


def test_published_comparison_on_a_hundred_arms() -> None:
    """Squared exponential, 100 arms, lam = 0.03, 1000 rounds: the order and rough sizes."""
    points = line(0, 1, 100)
    K = torch.exp(-(torch.cdist(points, points) ** 2) / (2 * 0.2**2))
    greedy = GreedyGain(K, 0.03)
    sizes = [greedy.greedy_gain(1000), WaterFillingGain(K, 0.03)(1000), greedy(1000)]
    assert sizes == pytest.approx([28.5, 38.3, 45.1], rel=0.02)


@pytest.mark.parametrize(
    ("kernel", "dim", "nu", "expected"),
    [
        ("linear", 3, None, 3 * math.log(50)),
        ("rbf", 2, None, math.log(50) ** 3),
        ("matern", 2, 2.5, 50 ** (6 / 11) * math.log(50)),
        ("matern-tight", 2, 2.5, 50 ** (2 / 7) * math.log(50) ** (5 / 7)),
    ],
)
def test_rates(kernel: str, dim: int, nu: float | None, expected: float) -> None:
    assert RateGain(kernel, dim, nu, constant=2.0)(50) == pytest.approx(2 * expected, rel=1e-12)


def test_bad_input_is_named() -> None:
    K = squared_exponential(3, 0)
    with pytest.raises(ValueError, match="not symmetric"):
        GreedyGain(torch.triu(K), 1.0)
    with pytest.raises(ValueError, match=r"shape \(2, 3\)"):
        WaterFillingGain(K[:2], 1.0)
    with pytest.raises(TypeError, match="float64"):
        WaterFillingGain(K.float(), 1.0)
    with pytest.raises(ValueError, match="lam is 0"):
        GreedyGain(K, 0.0)
    with pytest.raises(ValueError, match="nu is None"):
        RateGain("matern", 1)
    with pytest.raises(ValueError, match="num_observations is -1"):
        GreedyGain(K, 1.0)(-1)
