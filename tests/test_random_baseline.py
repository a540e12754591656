"""What random search finds, against all orders in which it can find it."""

from __future__ import annotations

import itertools
import statistics

import pytest

from botorch_bandits.random_baseline import RandomBaseline

REWARDS = [0.5, -1.0, 2.0, 2.0, 0.0, 3.5, 1.0]


@pytest.mark.parametrize("num_rounds", range(1, 8))
def test_all_searches_are_counted(num_rounds: int) -> None:
    baseline = RandomBaseline(REWARDS)
    best = sorted(max(search) for search in itertools.combinations(REWARDS, num_rounds))
    assert baseline.expected_best(num_rounds) == pytest.approx(statistics.fmean(best), abs=1e-12)
    for reward in (-2.0, -1.0, 0.7, 2.0, 3.5, 4.0):
        share = sum(value >= reward for value in best) / len(best)
        assert baseline.chance(num_rounds, reward) == pytest.approx(share, abs=1e-12)
    for level in (0.1, 0.35, 0.5, 0.9):
        at = baseline.quantile(num_rounds, level)
        assert sum(value <= at for value in best) >= level * len(best) - 1e-9
        assert sum(value < at for value in best) < level * len(best)


def test_many_rewards_do_not_overflow() -> None:
    baseline = RandomBaseline(range(5000))
    assert baseline.expected_best(1) == pytest.approx(2499.5)
    assert baseline.expected_best(2500) == pytest.approx(2500 * 5001 / 2501 - 1.0)
    assert baseline.expected_best(5000) == 4999.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RandomBaseline([]), "rewards is empty"),
        (lambda: RandomBaseline([1.0, float("nan")]), r"rewards\[1\] is nan"),
        (lambda: RandomBaseline(REWARDS).expected_best(8), "rewards of only 7 random points"),
        (lambda: RandomBaseline(REWARDS).chance(0, 9.0), "num_rounds is 0"),
        (lambda: RandomBaseline(REWARDS).chance(8, -9.0), "rewards of only 7 random points"),
        (lambda: RandomBaseline(REWARDS).quantile(2, 1.0), "level is 1"),
    ],
)
def test_what_cannot_be_said_is_refused(call, message) -> None:
    with pytest.raises(ValueError, match=message):
        call()
