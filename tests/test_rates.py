"""Rates as outcomes: by summing over all numbers of successes, and in loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel, ScaleKernel
from models.textbook import uniform
from scipy.stats import binom

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    EvidenceDetector,
    EvidenceRestart,
    RandomSearch,
    rate,
)
from botorch_bandits.change_points.calibration import binomial_interval

KERNEL = ScaleKernel(MaternKernel(nu=2.5)).double()
KERNEL.outputscale, KERNEL.base_kernel.lengthscale = 0.03**2, 0.4
PRIOR = BanditGP.with_kernel(KERNEL, noise=1e-4, prior_mean=0.05)
ARMS = Arms(uniform(50, 2, seed=1))


def test_rewards_are_unbiased_with_their_weights_and_within_their_bands():
    covered = []
    for p in (*np.geomspace(0.01, 0.1, 9), 0.3, 0.5, 0.9):
        for n in np.geomspace(20, 2000, 9).astype(int):
            told = [rate(s, n) for s in range(n + 1)]
            y, v = np.array([[each["reward"], each["noise"]] for each in told]).T
            chance = binom.pmf(range(n + 1), n, p)
            information = chance @ (1.0 / v)
            # of the sum of (y - p) / v, in standard deviations
            assert abs(chance @ ((y - p) / v)) <= 0.013 * math.sqrt(information)
            assert chance @ ((y - p) / v) ** 2 <= 1.11 * information
            covered.append(chance @ (np.abs(y - p) <= 1.96 * np.sqrt(v)))
    assert min(covered) >= 0.92
    assert np.mean(covered) >= 0.95
    assert rate(0, 20) == {"reward": 0.0, "noise": pytest.approx(0.062**2, rel=0.01)}


def rates_of(random):
    K = KERNEL(ARMS.choices).to_dense().detach().numpy() + 1e-12 * np.eye(50)
    drawn = np.linalg.cholesky(K) @ random.standard_normal(50)
    return 0.01 + 0.09 / (1.0 + np.exp(-50.0 * drawn))


def shown(random, p):
    n = int(np.exp(random.uniform(np.log(20), np.log(2001))))
    return rate(int(random.binomial(n, p)), n)


def test_bands_of_a_model_cover_rates():
    random, covered = np.random.default_rng(0), []
    for _ in range(20):
        p = rates_of(random)
        loop = BanditLoop(ARMS, PRIOR, RandomSearch())
        for _ in range(60):
            query = loop.ask()
            loop.tell(query.id, **shown(random, p[query.arm]))
        found = loop.current_model().posterior(ARMS.choices)
        error = found.mean.detach().numpy()[:, 0] - p
        deviation = found.variance.sqrt().detach().numpy()[:, 0]
        covered.append(np.mean(np.abs(error) <= 1.96 * deviation))
    assert np.mean(covered) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("robust", [False, True])
def test_false_alarms_keep_the_level(robust):
    """60 runs; a lower bound of their rate at confidence .99 is at most the level."""
    detector, alarms = EvidenceDetector(alpha=0.8, change_scale=5.0, robust=robust), 0
    random = np.random.default_rng(2)
    for _ in range(60):
        p, stream, arm, tests = rates_of(random), detector.on(ARMS, PRIOR), 0, []
        for _ in range(40):
            told = shown(random, p[arm])
            weight = stream.noise / told["noise"]
            tests.append(
                stream.tell(stream.issue(ARMS.choices[arm]), told["reward"], weight=weight)
            )
            arm = (arm + 1 + 3 * (told["reward"] > 0.05)) % 50
        alarms += any(test.detected for test in tests)
    assert binomial_interval(alarms, 60, confidence=0.99)[0] <= detector.level(1)


def test_late_and_lost_clicks_after_a_jump():
    random = np.random.default_rng(3)
    before, after = rates_of(random), rates_of(random)
    loop, waiting = BanditLoop(ARMS, PRIOR, restart=EvidenceRestart(), seed=0), []
    stream = EvidenceDetector().on(ARMS, PRIOR)
    while not loop.resets:
        query, day = loop.ask(), stream.issue(loop.history.queries[-1].x)
        waiting.append((query, shown(random, (before if day <= 30 else after)[query.arm])))
        for query, told in waiting[-3:-2]:
            if day % 10 == 3:
                loop.fail(query.id, "not counted")
                stream.forget(query.id + 1)
                continue
            loop.tell(query.id, **told)
            weight = stream.noise / told["noise"]
            test = stream.tell(query.id + 1, told["reward"], weight=weight)
            assert loop.change_tests[-1].statistic == pytest.approx(test.statistic, abs=1e-9)
    assert 30 < loop.resets[0].after_round <= 42


def test_numbers_that_are_no_counts_are_refused():
    with pytest.raises(ValueError, match="successes is 3 and trials 2"):
        rate(3, 2)
    for given in ((0, 0), (-1, 5), (1.5, 5)):
        with pytest.raises((TypeError, ValueError), match=r"trials is 0|is -1|must be an integer"):
            rate(*given)
