"""Per-round multipliers against hand computations."""

import math

import numpy as np
import pytest
import torch

from botorch_bandits import PrimalDual


@pytest.mark.parametrize("bound", [None, 0.5], ids=["unclipped", "clipped"])
def test_batch_against_a_loop(bound):
    rng = np.random.default_rng(0)
    lower = rng.normal(0.2, 1.0, (40, 3, 2))
    rule = PrimalDual(2, max_multiplier=1.5, divisor=3.0, constraint_bound=bound)
    state, phi = rule.init((3,)), np.zeros((3, 2))
    hit = set()
    for values in lower:
        state = rule.step(state, torch.from_numpy(values))
        steps = values if bound is None else values.clip(-bound, bound)
        phi = (phi + steps / 3.0).clip(0.0, 1.5)
        hit |= set(phi.ravel().tolist())
        np.testing.assert_allclose(rule.multipliers(state), phi, rtol=1e-10, atol=1e-12)
    assert 0.0 in hit  # it met its lower end
    assert bound is not None or 1.5 in hit
    assert state.epochs.tolist() == [40] * 3  # one update per round


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
    assert "from memory" in str(rule.guarantee())
    with pytest.raises(ValueError, match=r"slater_gap is 0.0"):
        PrimalDual.with_constants(
            1, reward_bound=2.0, constraint_bound=3.0, slater_gap=0.0, horizon=400
        )
    with pytest.raises(ValueError, match=r"divisor is -1.0"):
        PrimalDual(1, 2.0, -1.0)
