"""The benchmark of combinations: both ways make the same suggestions.

No test looks at a time.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.combinations import WAYS, Combination, measure
from benchmarks.peak_memory import kept_bytes, peak_bytes


@pytest.mark.slow
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"acquisition": "EI"},
        {"acquisition": "AMM", "feedback": "hallucinated"},
        {"feedback": "ignored", "contexts": "one"},
        {"feedback": "censored", "restart": "halves"},
        {"feedback": "censored", "constraints": "relabeled"},
        {"forgetting": "window", "constraints": "relabeled"},
        {"forgetting": "weights", "feedback": "hallucinated"},
        {"forgetting": "time", "contexts": "product"},
        {"constraints": "separate", "forgetting": "time"},
        {"constraints": "primal-dual", "restart": "evidence"},
        {"constraints": "separate", "feedback": "censored"},
        {"constraints": "primal-dual", "feedback": "censored", "contexts": "one"},
        {"acquisition": "GP-TS", "constraints": "separate"},
        {"acquisition": "list, TS"},
        {"domain": "box", "contexts": "one"},
    ],
    ids=str,
)
def test_both_ways_choose_the_same_arm(others):
    one = Combination(12, **others)
    line = measure(one, 2, 40)
    assert line.ratio > 0
    if one.on_arms and not WAYS[one.acquisition].note:
        assert line.difference <= 1e-9


def test_memory_of_torch_and_numpy_is_counted():
    size = 8 * 500 * 500

    def multiply():
        matrix = torch.ones(500, 500, dtype=torch.float64)
        return (matrix @ matrix).sum()

    assert 2 * size <= peak_bytes(multiply) < 2 * size + 50_000
    assert size <= peak_bytes(lambda: np.ones((500, 500)).sum()) < size + 50_000
    whole = torch.zeros(500, 500, dtype=torch.float64)
    array = np.zeros((100, 100))
    held = {"views": [whole[0], whole.T], "arrays": (array, array[1:])}
    assert kept_bytes(held) == size + array.nbytes
    assert kept_bytes(lambda: whole) == size
