"""The player of functions of one variable, against drop-ins and dense computations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Censored,
    CensoredUpperConfidenceBound,
    GPUpperConfidenceBound,
    Hallucinated,
    Ignored,
)
from botorch_bandits.problems import ConstantDelay, PoissonDelay
from botorch_bandits.random_streams import derive_seed
from papers.delayed_curves import (
    CurveMethod,
    Learned,
    Rows,
    learn,
    negative_evidence,
    play_curve,
)
from papers.delayed_studies import NUM_INITIAL, SMALLEST_NOISE

NUM_ARMS, NUM_ROUNDS, SEED = 60, 28, 5
X = np.linspace(0.0, 1.0, NUM_ARMS)
VALUES = 0.5 + 0.5 * np.sin(14.0 * X) * X
START = Learned(0.15, 0.3, 0.02, (0.03, 2.0))
DELAYS = PoissonDelay(5.0)
NOWHERE = torch.zeros(1, dtype=torch.float64)


def told(delays: PoissonDelay | ConstantDelay, t: int, limit: int | None) -> list[int]:
    """The queries, from 0, whose outcomes are known when round ``t`` is chosen."""
    found = []
    for s in range(1, t):
        delay = delays.of_query(NOWHERE, SEED, s)
        if max(delay, 1.0) <= t - s and (limit is None or delay <= limit):
            found.append(s - 1)
    return found


def kernel(a: np.ndarray, b: np.ndarray, learned: Learned) -> np.ndarray:
    squares = (a[:, None] - b[None, :]) ** 2
    return learned.prior_variance * np.exp(-0.5 * squares / learned.lengthscale**2)


def scaled_kernel(learned: Learned) -> ScaleKernel:
    scaled = ScaleKernel(RBFKernel()).double()
    scaled.base_kernel.lengthscale = torch.tensor(learned.lengthscale, dtype=torch.float64)
    scaled.outputscale = torch.tensor(learned.prior_variance, dtype=torch.float64)
    return scaled


def dense(rows: list[int], outcomes: np.ndarray, learned: Learned) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of all arms, by a solve."""
    K = kernel(X[rows], X[rows], learned) + learned.noise * np.eye(len(rows))
    k = kernel(X[rows], X, learned)
    weights = np.linalg.solve(K, k).T if rows else np.zeros((NUM_ARMS, 0))
    return weights @ outcomes, kernel(X, X, learned) - weights @ k


def test_censored_bounds_are_those_of_the_drop_in_as_published() -> None:
    method = CurveMethod("SDF", "censored", DELAYS, max_delay=7, start=START)
    played = play_curve(VALUES, method, SEED, NUM_ROUNDS)
    assert len({each.prior_variance for each in played.hyperparameters}) == 2
    choices = torch.from_numpy(X).unsqueeze(-1)
    for t in range(NUM_INITIAL + 1, NUM_ROUNDS + 1):
        learned, known = played.hyperparameters[t - 1], told(DELAYS, t, 7)
        arms = played.arms[: t - 1]
        labels = [VALUES[arm] if s in known else 0.0 for s, arm in enumerate(arms)]
        # the newest is pending, the others are rows of the model; at the minimum, if they are
        model = BanditGP(
            choices[arms[:-1]],
            torch.tensor(labels[:-1]).double().unsqueeze(-1),
            kernel=scaled_kernel(learned),
            noise=learned.noise,
        )
        is_told = t - 2 in known
        if is_told:
            continue
        acqf = CensoredUpperConfidenceBound(
            model,
            minimum=0.0,
            outcome_bound=1.0,
            max_delay=7,
            X_pending=choices[arms[-1:]],
            ringing_tolerance=None,
            **CensoredUpperConfidenceBound.as_published,
        )
        assert played.widths[t - 1] == pytest.approx(acqf.width.item(), abs=1e-8)
        values = acqf(choices.unsqueeze(-2))
        assert values[played.arms[t - 1]].item() == pytest.approx(values.max().item(), abs=1e-8)


FEEDBACKS = {
    "censored": Censored(0.0, 1.0, max_delay=7, **Censored.as_published),
    "ignored": Ignored(),
    "hallucinated": Hallucinated(),
}


@pytest.mark.parametrize("way", FEEDBACKS)
def test_a_loop_plays_the_same(way: str) -> None:
    """It is given the points that it does not choose, and outcomes when they arrive."""
    limit = 7 if way == "censored" else None
    method = CurveMethod(way, way, DELAYS, max_delay=limit, start=START, learns=False)
    # with fewer outcomes several arms have the same value, and ties are broken otherwise
    method = replace(method, uniform_until=0 if limit else 5, predictive=limit is not None)
    played = play_curve(VALUES, method, SEED, NUM_ROUNDS)
    choices = torch.from_numpy(X).unsqueeze(-1)
    loop = BanditLoop(
        Arms(choices),
        BanditGP.with_kernel(scaled_kernel(START), noise=START.noise),
        GPUpperConfidenceBound.with_options(width=1.0),
        feedback=FEEDBACKS[way],
    )
    num_chosen = 0
    for t in range(1, NUM_ROUNDS + 1):
        for s in told(DELAYS, t, limit):
            loop.tell(s, VALUES[played.arms[s]])  # a second time it does nothing
        arm = played.arms[t - 1]
        if played.widths[t - 1] == 0.0:
            loop.attach(choices[arm])
            continue
        query = loop.ask()
        assert query.x.item() == choices[arm].item()
        assert query.diagnostics["width"] == pytest.approx(played.widths[t - 1], abs=1e-8)
        num_chosen += 1
    assert num_chosen > 12


@pytest.mark.parametrize("way", ["ignored", "hallucinated"])
def test_bounds_of_baselines(way: str) -> None:
    method = CurveMethod("baseline", way, DELAYS, uniform_until=2, start=START, learns=False)
    played = play_curve(VALUES, method, SEED, NUM_ROUNDS)
    num_chosen = 0
    for t in range(NUM_INITIAL + 1, NUM_ROUNDS + 1):
        known, arms = told(DELAYS, t, None), played.arms[: t - 1]
        assert (played.widths[t - 1] == 0.0) == (len(known) < 2)
        if len(known) < 2:
            continue
        rows = [arms[s] for s in known]
        mean, covariance = dense(rows, VALUES[rows], START)
        if way == "hallucinated":
            covariance = dense(arms, np.zeros(t - 1), START)[1]
        values = mean + np.sqrt(np.diag(covariance) + START.noise)
        assert values[played.arms[t - 1]] == pytest.approx(values.max(), abs=1e-8)
        num_chosen += 1
    assert num_chosen > 10


def test_draws_have_the_posterior_covariance_and_the_scale_as_published() -> None:
    arms, stream = [3, 20, 21, 50], np.random.default_rng(0)
    rows = Rows(NUM_ARMS, START, arms, 10)
    _, covariance = dense(arms, np.zeros(4), START)
    draws = np.stack([rows.draw(stream) for _ in range(4000)])
    assert np.abs(draws.mean(0)).max() < 0.05
    assert np.abs(draws.T @ draws / 4000 - covariance).max() < 0.03
    assert rows.deviations(False) == pytest.approx(np.sqrt(np.diag(covariance)), abs=1e-7)
    for added, expected in (("nothing", 1.0), ("published", None)):
        method = CurveMethod("TS", "censored", DELAYS, True, 7, added, start=START, learns=False)
        played = play_curve(VALUES, method, SEED, 12)
        t = 12
        known, before = told(DELAYS, t, 7), played.arms[: t - 1]
        outcomes = np.array([VALUES[a] if s in known else 0.0 for s, a in enumerate(before)])
        mean, covariance = dense(before, outcomes, START)
        width = 1.0 + np.sqrt(np.diag(covariance)[before[-7:]]).sum()
        assert played.widths[t - 1] == pytest.approx(expected or width, abs=1e-8)
        grown = Rows(NUM_ARMS, START, before, 12)
        drawn = grown.draw(np.random.default_rng(derive_seed(SEED, t, "draw")))
        assert played.arms[t - 1] == int((mean + played.widths[t - 1] * drawn).argmax())


def test_fits_have_the_largest_likelihood() -> None:
    arms, stream = [2, 9, 17, 17, 30, 41, 55, 58], np.random.default_rng(1)
    outcomes = VALUES[arms] + 0.05 * stream.standard_normal(8)
    found = learn(arms, outcomes, START, NUM_ARMS)
    squares = (X[arms][:, None] - X[arms][None, :]) ** 2

    def loss(learned: Learned) -> float:
        K = kernel(X[arms], X[arms], learned) + learned.noise * np.eye(8)
        return float(outcomes @ np.linalg.solve(K, outcomes) + np.linalg.slogdet(K)[1])

    logarithms = np.log([0.1, 0.4, 0.03])
    value, gradient = negative_evidence(logarithms, squares, outcomes)
    assert value == pytest.approx(loss(Learned(0.1, 0.4, 0.03)), abs=1e-8)
    for i in range(3):
        step = np.zeros(3)
        step[i] = 1e-5
        ends = [
            negative_evidence(logarithms + sign * step, squares, outcomes)[0] for sign in (1, -1)
        ]
        assert gradient[i] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-5)
    low, high = START.lengthscales
    assert low * (1 - 1e-9) <= found.lengthscale <= high * (1 + 1e-9)
    assert found.noise >= SMALLEST_NOISE * (1 - 1e-9)
    others = [
        replace(START, lengthscale=a, prior_variance=b, noise=c)
        for a in np.geomspace(low, high, 9)
        for b in np.geomspace(0.01, 10.0, 9)
        for c in np.geomspace(SMALLEST_NOISE, 1.0, 9)
    ]
    assert loss(found) <= min(map(loss, others)) + 1e-9


def test_simple_regret_counts_what_arrived_in_time() -> None:
    method = CurveMethod("SDF", "censored", DELAYS, max_delay=4, start=START, learns=False)
    played = play_curve(VALUES, method, SEED, NUM_ROUNDS)
    regret = VALUES.max() - VALUES[played.arms]
    for t in range(1, NUM_ROUNDS + 1):
        known = told(DELAYS, t + 1, 4)  # after the round
        expected = min([*regret[known], VALUES.max() - VALUES.min()])
        assert played.simple_regret[t - 1] == pytest.approx(expected, abs=1e-12)
    always = replace(method, way="ignored", max_delay=None, delays=ConstantDelay(3))
    assert play_curve(VALUES, always, SEED, 6).simple_regret[2] < VALUES.max() - VALUES.min()
