"""Multipliers of the two rules with epochs against hand computations, one number at a time."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double

from botorch_bandits import (
    AdditiveEpochs,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    Exponential,
    ImprovedUpperConfidenceBound,
    MultiplicativeEpochs,
)
from botorch_bandits.constraints import MultiplierOverflowError
from botorch_bandits.penalties import (
    CustomPenalty,
    Linear,
    Penalty,
    PenaltyPropertyError,
    Polynomial,
)

RULES = {
    "exponential": MultiplicativeEpochs(2, 5, penalty=Exponential(0.8)),
    "polynomial": MultiplicativeEpochs(2, 5, penalty=Polynomial(0.5, 3.0)),
    "additive": AdditiveEpochs(2, 5, step_size=0.3),
}
RULE = pytest.mark.parametrize("name", RULES)


def psi(name, x):
    if x <= 0.0:
        return 1.0
    return math.exp(0.8 * x) if name == "exponential" else (0.5 * x + 1.0) ** 3.0


def hand_multipliers(name, rounds):
    """Multipliers after each round; ``rounds`` has a list of arrived vectors for each round."""
    kappa = [0.0, 0.0] if name == "additive" else [1.0, 1.0]
    sums, history = [0.0, 0.0], []
    for t, arrived in enumerate(rounds, start=1):
        for j in range(2):
            sums[j] += sum(g[j] for g in arrived)
        if t % 5 == 0:
            for j in range(2):
                mean = sums[j] / 5.0
                if name == "additive":
                    kappa[j] = max(kappa[j] + 0.3 * mean, 0.0)
                else:
                    kappa[j] *= psi(name, mean)
            sums = [0.0, 0.0]
        history.append(list(kappa))
    return np.array(history)


@RULE
def test_late_outcomes_count_once_in_the_epoch_of_their_arrival(name):
    rule = RULES[name]
    late = double([2.0, -1.0])
    state = rule.init()
    for _ in range(5):
        state = rule.step(state, None)  # nothing arrives in the first epoch
    assert torch.equal(rule.multipliers(state), rule.multipliers(rule.init()))
    state = rule.observe(state, torch.stack([late, late]))  # two arrive together
    for _ in range(5):
        state = rule.advance(state)
    expected = hand_multipliers(name, [[]] * 9 + [[late.tolist(), late.tolist()]])[-1]
    np.testing.assert_allclose(rule.multipliers(state), expected, rtol=1e-12, atol=1e-15)
    assert torch.equal(state.sums, torch.zeros(2, dtype=torch.float64))


# --- targets and constants of the inner algorithm -------------------------------------------


@RULE
def test_penalized_targets(name):
    rule, rng = RULES[name], np.random.default_rng(6)
    f, g = rng.normal(size=(2, 3, 7)), rng.normal(size=(2, 3, 7, 2))
    kappa = rng.random((2, 3, 2)) * 4.0
    targets = rule.penalized(*map(torch.from_numpy, (f, g, kappa)))
    expected = np.empty_like(f)
    for b in np.ndindex(2, 3, 7):
        expected[b] = f[b]
        for j in range(2):
            charge = g[b][j] if name == "additive" else psi(name, g[b][j]) - 1.0
            expected[b] -= kappa[b[:2]][j] * charge
    np.testing.assert_allclose(targets, expected, rtol=1e-10, atol=1e-12)


def test_smallest_penalized_outcome():
    multipliers = double([[1.0, 2.0], [0.5, 0.0]])
    rewards = double([[-1.0], [-1.0]])
    constraints = double([[[3.0, 4.0]]] * 2)
    smallest = RULES["additive"].penalized(rewards, constraints, multipliers)
    assert smallest.squeeze(-1).tolist() == [-12.0, -2.5]  # what censored feedback would need
    with pytest.raises(ValueError, match=r"Censored.*has no constraint_bounds=, but"):
        censored_loop(RULES["additive"])
    with pytest.raises(ValueError, match="x n x 2"):
        RULES["additive"].penalized(rewards, constraints[..., :1], multipliers)


def censored_loop(rule):
    return BanditLoop(
        Box([[0.0], [1.0]]),
        BanditGP.with_kernel(RBFKernel(), noise=0.1),
        ImprovedUpperConfidenceBound.with_options(width=1.0),
        feedback=Censored(minimum=-1.0, outcome_bound=1.0),
        constraints=rule,
    )


def test_noise_delta_and_norm():
    multipliers = double([[2.0, 0.0], [1.0, 3.0]])
    assert RULES["exponential"].noise_factor(multipliers).tolist() == [1.0, 1.0]
    # R outside the root: 0.1 * sqrt(5) = 0.2236 at kappa = 2, not sqrt(5 * 0.1)
    factor = RULES["additive"].noise_factor(multipliers)
    np.testing.assert_allclose(factor, np.sqrt([5.0, 11.0]), rtol=1e-14)
    multiplicative, additive = RULES["exponential"], RULES["additive"]
    assert multiplicative.delta(0.1, num_epochs=20) == 0.1 / 20
    assert additive.delta(0.1, num_epochs=20) == 0.1 / 40
    separate = MultiplicativeEpochs(2, 5, surrogate="separate")
    assert separate.delta(0.1, epoch=7) == 0.1
    with pytest.raises(ValueError, match="is 3, but num_epochs"):
        additive.delta(0.1, epoch=3, num_epochs=2)


@pytest.mark.parametrize(("name", "whole"), [("exponential", 0.1), ("additive", 0.05)])
def test_shares_of_an_unknown_number_of_epochs_sum_to_the_whole(name, whole):
    total = sum(RULES[name].delta(0.1, epoch) for epoch in range(1, 20001))
    assert whole * (1.0 - 1e-4) < total < whole


# --- overflow -------------------------------------------------------------------------------


def test_overflow_is_a_clear_error():
    rule = MultiplicativeEpochs(1, 1, penalty=Exponential(3.0))
    state, g = rule.init(), double([100.0])
    for _ in range(2):
        state = rule.step(state, g)
    assert math.isclose(math.log(rule.multipliers(state).item()), 600.0)
    state = rule.step(state, g)  # the update itself is made in logarithms
    assert state.levels.item() == 900.0
    with pytest.raises(MultiplierOverflowError, match=r"logarithm .* is 900.*Polynomial\(c"):
        rule.multipliers(state)
    one = torch.ones(1, dtype=torch.float64)
    with pytest.raises(MultiplierOverflowError, match=r"too large.*Polynomial\(c, n\)"):
        rule.penalized(one, 300.0 * one.unsqueeze(-1), one)
    with pytest.raises(MultiplierOverflowError, match="too large"):  # its square is infinite
        rule.penalized(one, 100.0 * one.unsqueeze(-1), 1e30 * one)


def test_held_multipliers_and_the_polynomial_do_not_overflow():
    g = double([100.0])
    held = MultiplicativeEpochs(1, 1, penalty=Exponential(3.0), max_multiplier=1e6)
    slow = MultiplicativeEpochs(1, 1, penalty=Polynomial(0.01, 2.0))
    states = [held.init(), slow.init()]
    for _ in range(50):
        states = [r.step(s, g) for r, s in zip((held, slow), states, strict=True)]
    assert math.isclose(held.multipliers(states[0]).item(), 1e6)
    assert math.isclose(slow.multipliers(states[1]).item(), 4.0**50, rel_tol=1e-12)
    assert not held.guarantee().holds


# --- refusals and guarantees ----------------------------------------------------------------


def test_bad_settings_are_refused():
    with pytest.raises(PenaltyPropertyError, match="1 for x <="):
        MultiplicativeEpochs(1, 5, penalty=Linear())
    with pytest.raises(TypeError, match="penalty must be"):
        MultiplicativeEpochs(1, 5, penalty=torch.exp)
    with pytest.raises(ValueError, match=r"epoch_length is 0"):
        AdditiveEpochs(1, 0)
    with pytest.raises(ValueError, match=r"num_constraints is 0"):
        AdditiveEpochs(0, 5)
    with pytest.raises(ValueError, match=r"is 'old'.*'relabeled', 'fresh', 'separate'"):
        AdditiveEpochs(1, 5, surrogate="old")
    with pytest.raises(ValueError, match=r"step_size is 0.0"):
        AdditiveEpochs(1, 5, step_size=0.0)
    with pytest.raises(ValueError, match=r"max_multiplier is 0.5"):
        MultiplicativeEpochs(1, 5, max_multiplier=0.5)


def test_bad_values_are_refused():
    rule = AdditiveEpochs(2, 5)
    state = rule.init((3,))
    good = torch.zeros(3, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"shape \(3, 1\).*\(3, 2\)"):
        rule.step(state, good[:, :1])
    with pytest.raises(TypeError, match=r"values has dtype torch.float32"):
        rule.step(state, good.float())
    with pytest.raises(ValueError, match=r"must be finite"):
        rule.step(state, good.fill_(torch.nan))
    with pytest.raises(ValueError, match=r"do not match"):
        rule.penalized(good[:, 0], good, good[0, :1])


class Unchecked(Penalty):
    """A penalty whose properties nobody has looked at."""

    def log_value(self, x):
        return x.clamp_min(0.0)


def test_guarantees_name_theorem_and_gap():
    fresh = MultiplicativeEpochs(1, 20, surrogate="fresh")
    assert fresh.guarantee().holds
    assert "Theorem 1" in fresh.guarantee().explain(10_000)
    relabeled = MultiplicativeEpochs(1, 20)
    assert not relabeled.guarantee().holds
    assert "depend on their noise" in relabeled.guarantee().explain(10_000)
    slow = MultiplicativeEpochs(1, 20, penalty=Polynomial(1.0, 1.0), surrogate="fresh")
    assert "linear in T" in slow.guarantee().explain(10_000)
    assert "four properties" not in fresh.guarantee().explain(10_000)
    custom = CustomPenalty(lambda x: x.clamp_min(0.0).exp())
    checked = MultiplicativeEpochs(1, 20, penalty=custom, surrogate="fresh").guarantee()
    assert "the four properties of Assumption 2, which was checked on a grid" in checked.explain(
        10_000
    )
    vouched = MultiplicativeEpochs(1, 20, penalty=Unchecked(), surrogate="fresh").guarantee()
    assert vouched.assumptions[-1] == "the penalty has the four properties of Assumption 2"
    noisy = AdditiveEpochs(1, 20, surrogate="fresh")
    assert "Theorem 2" in noisy.guarantee().explain(10_000)
    assert (fresh.expects_exact_constraints, noisy.expects_exact_constraints) == (True, False)


def test_rules_compare_by_their_settings():
    assert AdditiveEpochs(1, 5, 0.5) == AdditiveEpochs(1, 5) != AdditiveEpochs(1, 5, 0.4)
    assert MultiplicativeEpochs(1, 5) == MultiplicativeEpochs(1, 5, penalty=Exponential(1.0))
    custom = CustomPenalty(lambda x: x.clamp_min(0.0).exp())
    assert MultiplicativeEpochs(1, 5, penalty=custom).penalty is custom
