"""A loop that begins anew: its two lists and its choices against the pseudo-code, step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    GPUpperConfidenceBound,
    NeverRestart,
    OracleRestart,
)
from botorch_bandits.change_points import PowerThreshold

NUM_ARMS, LENGTHSCALE, NOISE, DELTA = 25, 0.3, 0.01, 0.1
GRID = np.linspace(0.0, 1.0, NUM_ARMS)
CHOICES = torch.from_numpy(GRID).unsqueeze(-1)
UCB_ON_A_BOX = GPUpperConfidenceBound.with_options(width=2.0)
CHANGE, SCALE = 40, 2.6
THRESHOLD = PowerThreshold(scale=SCALE, exponent=-6.0 / 7.0)
DETECTOR = ChangePointDetector(
    MaternKernel(nu=2.5), lengthscale=LENGTHSCALE, ridge=0.5, threshold=THRESHOLD
)
RESTART = ChangePointRestart(detector=DETECTOR)
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=NOISE, lengthscale=LENGTHSCALE)
UCB = GPUpperConfidenceBound.with_options(delta=DELTA)


def reward(x: float, round_number: int, noise: float = 0.0) -> float:
    """One function up to round 40, its negative from round 41 on."""
    sign = 1.0 if round_number <= CHANGE else -1.0
    return sign * math.sin(6.0 * x) + noise


def play(loop: BanditLoop, num_rounds: int, seed: int = 0, **ask: object) -> None:
    noise = np.random.default_rng(seed).normal(0.0, 0.05, num_rounds + 1000)
    for _ in range(num_rounds):
        query = loop.ask(**ask)
        t = query.round_number
        loop.tell(query.id, reward(float(query.x[0]), t, noise[t]))


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r = np.sqrt(5.0) * np.abs(a[:, None] - b[None, :]) / LENGTHSCALE
    return (1.0 + r + r**2 / 3.0) * np.exp(-r)


def change_test(x: np.ndarray, y: np.ndarray) -> tuple[int, float, float] | None:
    """The paper's scan: the first n whose statistic exceeds the threshold; everything dense."""
    for n in range(1, len(y) // 2 + 1):
        means = []
        for half in (slice(len(y) - 2 * n, len(y) - n), slice(len(y) - n, len(y))):
            ridge = n * 0.5 * n ** (-6.0 / 7.0)
            weights = np.linalg.solve(matern(x[half], x[half]) + ridge * np.eye(n), y[half])
            means.append(matern(GRID, x[half]) @ weights)
        statistic = np.mean((means[0] - means[1]) ** 2)
        if statistic > SCALE * n ** (-6.0 / 7.0):
            return n, statistic, SCALE * n ** (-6.0 / 7.0)
    return None


def ucb_arm(x: np.ndarray, y: np.ndarray, segment: int) -> int:
    """Theorem 1 at the round since the reset, with the segment's share of delta."""
    K = matern(x, x) + NOISE * np.eye(len(x))
    k = matern(GRID, x)
    mean = k @ np.linalg.solve(K, y)
    variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
    delta = 6.0 * DELTA / (np.pi**2 * (segment + 1) ** 2)
    t = len(x) + 1
    width = np.sqrt(2.0 * np.log(NUM_ARMS * t**2 * np.pi**2 / (6.0 * delta)))
    scores = mean + width * np.sqrt(variance.clip(1e-18))
    return int(np.argmax(scores >= scores.max() - 1e-9 * max(1.0, abs(scores.max()))))


def test_every_step_is_that_of_the_pseudo_code():
    loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=RESTART, seed=3)
    history: list[tuple[float, float]] = []
    uniform: list[tuple[float, float]] = []
    resets = []
    noise = np.random.default_rng(5).normal(0.0, 0.05, 200)
    for t in range(1, 121):
        explores = len(uniform) ** 2 <= 3 * len(history)  # |uniform| <= sqrt(3 |history|)
        x, y = (np.array(column) for column in zip(*history, strict=True)) if history else ((), ())
        query = loop.ask()
        point = float(query.x[0])
        assert query.origin == ("exploration" if explores else "acquisition"), t
        if not explores:
            assert point == GRID[ucb_arm(x, y, len(resets))], t
        assert query.diagnostics["segment"] == len(resets)
        outcome = reward(point, t, noise[t])
        loop.tell(query.id, outcome)
        history.append((point, outcome))
        if explores:
            uniform.append((point, outcome))
            found = change_test(*(np.array(column) for column in zip(*uniform, strict=True)))
            if len(uniform) >= 2:
                assert loop.change_tests[-1].after_round == t
                assert loop.change_tests[-1].detected is (found is not None)
            if found is not None:
                resets.append((t, len(history), len(uniform), *found))
                history, uniform = [], []
    assert len(resets) >= 1
    assert CHANGE < resets[0][0] < 100
    for reset, expected in zip(loop.resets, resets, strict=True):
        assert reset.reason == "detection"
        assert (reset.after_round, reset.num_dropped, reset.num_uniform) == expected[:3]
        assert reset.half_size == expected[3]
        assert (reset.statistic, reset.threshold) == pytest.approx(expected[4:], rel=1e-9)
    # the reported location is the round of a uniform query, near the change
    located = loop.history.queries[loop.resets[0].change_round - 1]
    assert located.origin == "exploration"
    assert abs(located.round_number - CHANGE) <= 20


def test_tests_see_arrived_outcomes_in_the_order_of_asking():
    loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=RESTART, seed=0)
    queries = [loop.ask() for _ in range(12)]
    uniform = [query for query in queries if query.origin == "exploration"]
    values = {query.id: reward(float(query.x[0]), query.round_number) for query in queries}
    told = []
    for query in reversed(queries):
        loop.tell(query.id, values[query.id])
        told.append(query.id)
        known = [q for q in uniform if q.id in told]
        if query in uniform and len(known) >= 2:
            x = torch.stack([q.x for q in known])
            y = torch.tensor([values[q.id] for q in known], dtype=torch.float64)
            expected = DETECTOR.on(Arms(CHOICES)).test(x, y)
            assert loop.change_tests[-1].statistic == expected.statistic
            assert not expected.detected


class TestBaselines:
    def test_the_oracle_begins_anew_at_the_change(self):
        restart = OracleRestart(change_points=(CHANGE,))
        loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=restart, seed=0)
        play(loop, 60)
        (reset,) = loop.resets
        assert (reset.after_round, reset.reason, reset.num_dropped) == (CHANGE, "oracle", CHANGE)
        assert math.isnan(reset.statistic)
        assert loop.history.queries[CHANGE].origin == "exploration"  # the first of the new lists
        assert not loop.change_tests

    def test_without_detector_only_the_exploration_remains(self):
        loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=NeverRestart(), seed=0)
        play(loop, 60)
        assert loop.resets == ()
        explored = [q.round_number for q in loop.history.queries if q.origin == "exploration"]
        with_detector = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=RESTART, seed=0)
        play(with_detector, CHANGE)
        same = [q.round_number for q in with_detector.history.queries if q.origin == "exploration"]
        assert explored[: len(same)] == same

    def test_without_exploration_and_share_the_policy_is_the_plain_one(self):
        never = NeverRestart(exploration=None, split_delta=False)
        loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=never, seed=0)
        plain = BanditLoop(Arms(CHOICES), MODEL, UCB, seed=0)
        play(loop, 50)
        play(plain, 50)
        points = [[q.x.tolist() for q in which.history.queries] for which in (loop, plain)]
        assert points[0] == points[1]


def test_initial_rounds_come_again_after_a_reset():
    restart = OracleRestart(change_points=(20,), exploration=None)
    loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=restart, num_initial=3, seed=0)
    play(loop, 30)
    initial = [q.round_number for q in loop.history.queries if q.origin == "initial"]
    assert initial == [1, 2, 3, 21, 22, 23]


def test_what_is_promised():
    loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=RESTART, seed=0)
    play(loop, 5)
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert guarantee.regret_bound is None
    assert "segment" in guarantee.gaps[-1]
    assert guarantee.constants["delta"] == pytest.approx(6 * DELTA / math.pi**2)


def test_a_detector_alone_is_no_restart():
    with pytest.raises(TypeError, match="ChangePointRestart"):
        BanditLoop(Arms(CHOICES), MODEL, UCB, restart=DETECTOR)
    with pytest.raises(TypeError, match="restart is 3"):
        BanditLoop(Arms(CHOICES), MODEL, UCB, restart=3)


class TestDetectorsThatCannotTest:
    def test_are_refused_before_anything_is_recorded(self):
        wrong = ChangePointDetector(MaternKernel(nu=2.5, ard_num_dims=3), threshold=THRESHOLD)
        box = Box([[0.0, 0.0], [1.0, 1.0]])
        with pytest.raises(ValueError, match="detector of the reward"):
            BanditLoop(box, MODEL, UCB_ON_A_BOX, restart=ChangePointRestart(detector=wrong))
        # the same kernel is right with a context in front
        BanditLoop(
            box,
            MODEL,
            UCB_ON_A_BOX,
            restart=ChangePointRestart(detector=wrong),
            context_dim=1,
        )

    def test_a_test_that_cannot_be_computed_is_no_detection(self, monkeypatch):
        loop = BanditLoop(Arms(CHOICES), MODEL, UCB, restart=RESTART, seed=0)
        play(loop, 3)

        def fails(*args, **kwargs):
            raise ValueError("ridge is too small")

        monkeypatch.setattr(loop._chooser.restarts._tests._engines["reward"], "test", fails)
        with pytest.warns(RuntimeWarning, match="no detection") as caught:
            play(loop, 6)
        assert caught[0].filename == play.__code__.co_filename  # the line that told
        assert loop.history.num_arrived == 9


def test_late_outcomes_are_not_tested_again():
    feedback = Censored(-1.5, 3.0, max_delay=1)
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    loop = BanditLoop(Arms(CHOICES), MODEL, acquisition, restart=RESTART, feedback=feedback)
    first = loop.ask()
    late = [loop.ask() for _ in range(3)]
    loop.tell(late[-1].id, 0.0)
    for query in (first, late[0]):
        with pytest.warns(RuntimeWarning, match="max_delay"):
            loop.tell(query.id, 0.0)
    assert len(loop.change_tests) == 0


def test_an_oracle_keeps_its_own_change_points():
    given = [3, 5]
    restart = OracleRestart(given)
    given.append(4)
    assert restart == OracleRestart((3, 5))
    assert hash(restart) == hash(OracleRestart((3, 5)))
