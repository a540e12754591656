"""Shi and Eryilmaz 2022, Proposition 1: a fixed penalty fails where an updated one does not.

A small dense loop on arms, with the rules of the package and nothing else of it.
"""

import numpy as np
import pytest
import torch

from botorch_bandits import AdditiveEpochs, Exponential, MultiplicativeEpochs
from botorch_bandits.constraints import Ledger

ARMS = np.linspace(-1.0, 1.5, 51)  # 0 and 1 are among them
NUM_ROUNDS, EPOCH = 400, 10
NOISE = 0.1


def posterior(counts, means, signal, lengthscale=0.5):
    """Mean and standard deviation on the arms; repeated arms collapse to their means."""
    K = signal**2 * np.exp(-0.5 * ((ARMS[:, None] - ARMS[None]) / lengthscale) ** 2)
    seen = counts > 0
    A = K[np.ix_(seen, seen)] + np.diag(NOISE**2 / counts[seen])
    weights = np.linalg.solve(A, K[seen])
    mean = weights.T @ means[seen]
    variance = np.diag(K) - np.einsum("ij,ij->j", weights, K[seen])
    return mean, np.sqrt(np.clip(variance, 1e-18, None))


def play(rule, reward, seed, constraint_noise=0.0, fixed=None):
    """Run UCB on relabeled targets; returns time averages of regret and violation."""
    rng = np.random.default_rng(seed)
    state = rule.init()
    arms, f, g = [], [], []
    epochs, multipliers = [], [rule.multipliers(state)]
    for _ in range(NUM_ROUNDS):
        kappa = multipliers[-1] if fixed is None else torch.tensor([fixed], dtype=torch.float64)
        if arms:
            targets = rule.penalized(torch.tensor(f), torch.tensor(g).unsqueeze(-1), kappa).numpy()
            counts = np.bincount(arms, minlength=len(ARMS))
            sums = np.bincount(arms, weights=targets, minlength=len(ARMS))
            mean, sd = posterior(counts, sums / np.maximum(counts, 1), signal=3.0)
            arm = int((mean + 2.0 * sd).argmax())
        else:
            arm = int(rng.integers(len(ARMS)))
        arms.append(arm)
        f.append(reward(ARMS[arm]) + NOISE * rng.normal())
        g.append(ARMS[arm] + constraint_noise * rng.normal())
        epochs.append(int(state.epoch))
        state = rule.step(state, torch.tensor([g[-1]], dtype=torch.float64))
        if int(state.epoch) > len(multipliers):
            multipliers.append(rule.multipliers(state))
    x = ARMS[arms]
    best = max(reward(a) for a in ARMS if a <= 0.0)
    regret = np.cumsum(best - reward(x)) / np.arange(1, NUM_ROUNDS + 1)
    ledger = Ledger(
        torch.from_numpy(x).unsqueeze(-1), torch.tensor(epochs), torch.stack(multipliers)
    )
    return regret, ledger.running_average.clamp_min(0.0).squeeze(-1).numpy(), ledger


def counterexample(x):
    # the proof's: f = Lambda(g) - (x - c)^2 with g(x) = x, c = 1 and the multiplier 1
    return np.expm1(np.maximum(x, 0.0)) - (x - 1.0) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_fixed_penalty_fails_where_the_updated_one_does_not(seed):
    rule = MultiplicativeEpochs(1, EPOCH, penalty=Exponential(1.0))
    regret, violation, _ = play(rule, counterexample, seed, fixed=1.0)
    # the proof: the sum of g is at least c T / 2 up to o(T)
    assert violation[-1] > 0.8
    assert violation[-1] > violation[99] - 0.1
    assert regret[-1] < -1.0  # and its reward is better than any feasible point's
    regret, violation, ledger = play(rule, counterexample, seed)
    assert violation[-1] < 0.15
    assert violation[-1] < 0.6 * violation[99]
    assert abs(regret[-1]) < 0.6
    # the multiplier that makes 0 the maximizer is 3; they rise to about that and no further
    last = float(ledger.multipliers[-1])
    assert 2.5 < last < 6.0
    assert (ledger.multipliers.diff(dim=-2) >= 0.0).all()


@pytest.mark.parametrize("seed", range(3))
def test_additive_rule_bears_noise_in_the_constraint(seed):
    rule = AdditiveEpochs(1, EPOCH, step_size=0.5)
    regret, violation, ledger = play(rule, lambda x: -((x - 1.0) ** 2), seed, constraint_noise=0.1)
    assert violation[-1] < 0.15
    assert violation[-1] < 0.6 * violation[99]
    assert abs(regret[-1]) < 0.3
    # at 0 the slope of the reward is 2: the multiplier of the constrained optimum
    assert 1.5 < float(ledger.multipliers[-10:].mean()) < 2.5
