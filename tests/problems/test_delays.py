"""Delays have the distributions they claim, and belong to seed, round and point."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from botorch_bandits.problems import (
    ConstantDelay,
    Delays,
    PoissonDelay,
)
from papers.environments import GeometricDelay

X = torch.zeros(2, dtype=torch.float64)
NUM_DRAWS = 20_000


def shares(delays: Delays) -> dict[int, float]:
    stream = torch.Generator().manual_seed(0)
    drawn = [delays.draw(X, stream) for _ in range(NUM_DRAWS)]
    assert all(d >= 0 and (math.isinf(d) or d == int(d)) for d in drawn)
    return {k: sum(d == k for d in drawn) / NUM_DRAWS for k in range(40)}


@pytest.mark.parametrize(
    ("delays", "probability"),
    [
        (PoissonDelay(3.0), lambda k: math.exp(-3.0) * 3.0**k / math.factorial(k)),
        (PoissonDelay(0.0), lambda k: float(k == 0)),
        (GeometricDelay(4.0), lambda k: 0.2 * 0.8**k),
        (GeometricDelay(0.0), lambda k: float(k == 0)),
        (ConstantDelay(7), lambda k: float(k == 7)),
    ],
)
def test_distribution(delays: Delays, probability: Callable[[int], float]) -> None:
    for k, share in shares(delays).items():
        p = probability(k)
        # 5 standard deviations of a binomial share
        assert abs(share - p) <= 5.0 * math.sqrt(p * (1 - p) / NUM_DRAWS) + 1e-12, k


class ByPoint(Delays):
    """The delay is the point's first coordinate."""

    def draw(self, x: torch.Tensor, stream: torch.Generator) -> float:
        return float(x[0])


def test_delay_belongs_to_seed_round_and_point() -> None:
    assert ByPoint().of_query(torch.tensor([4.0]).double(), 0, 1) == 4.0
    poisson = PoissonDelay(10.0)
    drawn = [poisson.of_query(X, 0, t) for t in range(1, 30)]
    assert drawn == [poisson.of_query(X, 0, t) for t in range(1, 30)]
    assert drawn != [poisson.of_query(X, 1, t) for t in range(1, 30)]
