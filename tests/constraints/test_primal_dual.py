"""Per-round multipliers against hand computations."""

import math

import pytest

from botorch_bandits import PrimalDual


def test_constants_and_what_is_promised():
    rule = PrimalDual.with_constants(
        1, reward_bound=2.0, constraint_bound=3.0, slater_gap=0.5, horizon=400
    )
    assert rule.max_multiplier == 16.0
    assert math.isclose(rule.divisor, 3.0 * 20.0 / 16.0)
    assert (rule.reward_bound, rule.constraint_bound) == (2.0, 3.0)
    assert (rule.observes, rule.surrogate) == ("lower_bounds", "separate")
    assert rule.delta(0.1, epoch=9) == 0.1
    assert not rule.guarantee().holds
    assert "from memory" in rule.guarantee().explain(10_000)
    with pytest.raises(ValueError, match=r"slater_gap is 0.0"):
        PrimalDual.with_constants(
            1, reward_bound=2.0, constraint_bound=3.0, slater_gap=0.0, horizon=400
        )
    with pytest.raises(ValueError, match=r"divisor is -1.0"):
        PrimalDual(1, 2.0, -1.0)
