"""The benchmark of combinations: both ways make the same suggestions.

No test looks at a time.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from benchmarks.combinations import (
    PRIMAL_DUAL,
    SEPARATE,
    WAYS,
    Player,
    measure,
)
from benchmarks.measure import Timing
from benchmarks.peak_memory import kept_bytes, peak_bytes, peak_bytes_since
from benchmarks.settings import plain

RELABELED, NO_CONSTRAINTS = '`"relabeled"`', "no constraints"


@pytest.mark.slow
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"acquisition": "EI"},
        {"acquisition": "AMM", "feedback": "`Hallucinated()`"},
        {"feedback": "`Ignored()`", "contexts": "with contexts"},
        {"feedback": "`Censored(...)`", "restart": "`ChangePointRestart(...)`"},
        {"feedback": "`Censored(...)`", "constraints": RELABELED},
        {"forgetting": "`SlidingWindow(...)`", "constraints": RELABELED},
        {"forgetting": "`ExponentialWeights(...)`", "feedback": "`Hallucinated()`"},
        {"forgetting": "`TimeVaryingKernel(...)`", "contexts": "with contexts, product kernel"},
        {"constraints": SEPARATE, "forgetting": "`TimeVaryingKernel(...)`"},
        {"constraints": PRIMAL_DUAL, "restart": "`EvidenceRestart()`"},
        {"constraints": SEPARATE, "feedback": "`Censored(...)`"},
        {"constraints": PRIMAL_DUAL, "feedback": "`Censored(...)`", "contexts": "with contexts"},
        {"acquisition": "GP-TS", "constraints": SEPARATE},
        {"acquisition": "list of priors, TS"},
        {"domain": "on a box", "contexts": "with contexts"},
    ],
    ids=str,
)
def test_both_ways_choose_the_same_arm(others):
    row = measure(plain(12, **others), 2, num_arms=40)
    assert min(row.ratio, row.ordinary_bytes, row.our_bytes) > 0
    if row.combination.on_arms and WAYS[row.combination.acquisition].is_compared:
        assert max(row.worse, row.better) <= 1e-9
    else:
        assert math.isnan(row.worse) or row.combination.domain == "on a box"
    assert math.isnan(row.test_seconds) == ("ChangePoint" not in row.combination.restart)


def test_rounds_in_which_the_clock_did_not_move_are_not_counted(monkeypatch):
    measure(plain(12, constraints=PRIMAL_DUAL), 2, 20)  # what is played once in a process is played
    times = iter([0.0, 1.0, 0.0, 1.0, 0.0, 0.5, 0.0, 1.5])
    play = Player.round

    def stopped(self):
        return next(times, 1.0), *play(self)[1:]

    monkeypatch.setattr(Player, "round", stopped)
    row = measure(plain(12, constraints=PRIMAL_DUAL), 2, 20)
    assert row.our_seconds == 1.0  # behind two rounds that are not counted
    assert Timing(1.0, 0.0, None, None).ratio != Timing(1.0, 0.5, None, None).ratio == 2.0


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


def test_memory_that_a_round_frees_is_taken_off():
    size = 8 * 500 * 500

    def build():
        parts = {"torch": torch.zeros(4, 500, 500, dtype=torch.float64)}
        parts |= {"numpy": np.zeros((2, 500, 500)), "objects": [str(i) for i in range(10_000)]}
        return parts

    def replace(parts):
        del parts["torch"], parts["numpy"]
        parts["torch"] = torch.ones(3, 500, 500, dtype=torch.float64)
        parts["numpy"] = np.ones((3, 500, 500))

    counted = peak_bytes_since(build, replace)  # four and then three, two and then three
    assert 4 * size + 3 * size <= counted < 4 * size + 3 * size + 500_000
    assert 6 * size <= peak_bytes_since(build, len) < 6 * size + 500_000
