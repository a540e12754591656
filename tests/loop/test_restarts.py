"""Loops that begin anew: lists, tests and choices step by step, and what is guaranteed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    NeverRestart,
    OracleRestart,
)
from botorch_bandits.change_points import PowerThreshold
from tests.models.textbook import double, matern, posterior, squared_exponential

NUM_ARMS, LENGTHSCALE, NOISE, DELTA = 25, 0.3, 0.01, 0.1
CHOICES = torch.linspace(0.0, 1.0, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
ARMS, BOX = Arms(CHOICES), Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
CHANGE, SCALE = 40, 2.6
DETECTOR = ChangePointDetector(
    MaternKernel(nu=2.5),
    lengthscale=LENGTHSCALE,
    ridge=0.5,
    threshold=PowerThreshold(scale=SCALE, exponent=-6.0 / 7.0),
)
RESTART = ChangePointRestart(detector=DETECTOR)
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=NOISE, lengthscale=LENGTHSCALE)
UCB = GPUpperConfidenceBound.with_options(delta=DELTA)
KERNEL = matern(2.5, LENGTHSCALE)


def build(restart: Any, **options: Any) -> BanditLoop:
    given = {"domain": ARMS, "model": MODEL, "acquisition": UCB, "seed": 0, **options}
    return BanditLoop(restart=restart, **given)


def reward(x: float, round_number: int, noise: float = 0.0) -> float:
    """One function up to round 40, its negative from round 41 on."""
    sign = 1.0 if round_number <= CHANGE else -1.0
    return sign * math.sin(6.0 * x) + noise


def play(loop: BanditLoop, num_rounds: int) -> None:
    noise = np.random.default_rng(0).normal(0.0, 0.05, num_rounds + 1000)
    for _ in range(num_rounds):
        query = loop.ask()
        t = query.round_number
        loop.tell(query.id, reward(float(query.x[0]), t, noise[t]))


# --- the pseudo-code ------------------------------------------------------------------------------


def change_test(x: Tensor, y: Tensor) -> tuple[int, float, float] | None:
    """The paper's scan: the first n whose statistic exceeds the threshold; everything dense."""
    for n in range(1, len(y) // 2 + 1):
        means = []
        for half in (slice(len(y) - 2 * n, len(y) - n), slice(len(y) - n, len(y))):
            ridge = n * 0.5 * n ** (-6.0 / 7.0)
            means.append(posterior(KERNEL, x[half], y[half], ridge, CHOICES)[0])
        statistic = float((means[0] - means[1]).square().mean())
        if statistic > SCALE * n ** (-6.0 / 7.0):
            return n, statistic, SCALE * n ** (-6.0 / 7.0)
    return None


def scores(x: Tensor, y: Tensor, segment: int) -> Tensor:
    """Theorem 1 at the round since the reset, with the segment's share of delta."""
    mean, covariance = posterior(KERNEL, x, y, NOISE, CHOICES)
    delta = 6.0 * DELTA / (math.pi**2 * (segment + 1) ** 2)
    t = len(x) + 1
    width = math.sqrt(2.0 * math.log(NUM_ARMS * t**2 * math.pi**2 / (6.0 * delta)))
    found: Tensor = mean + width * covariance.diagonal().clamp_min(1e-18).sqrt()
    return found


def test_every_step_is_that_of_the_pseudo_code() -> None:
    loop = build(RESTART, seed=3)
    history: list[tuple[float, float]] = []
    uniform: list[tuple[float, float]] = []
    resets = []
    noise = np.random.default_rng(5).normal(0.0, 0.05, 200)
    for t in range(1, 121):
        explores = len(uniform) ** 2 <= 3 * len(history)  # |uniform| <= sqrt(3 |history|)
        query = loop.ask()
        assert query.origin == ("exploration" if explores else "acquisition"), t
        if not explores:
            rows = double(history)
            of_arms = scores(rows[:, :1], rows[:, 1], len(resets))
            best = int((of_arms >= of_arms.max() - 1e-9).nonzero()[0])
            assert torch.equal(query.x, CHOICES[best]), t
        assert query.diagnostics["segment"] == len(resets)
        outcome = reward(float(query.x[0]), t, noise[t])
        loop.tell(query.id, outcome)
        history.append((float(query.x[0]), outcome))
        if explores:
            uniform.append(history[-1])
            rows = double(uniform)
            found = change_test(rows[:, :1], rows[:, 1])
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


def test_tests_see_arrived_outcomes_in_the_order_of_asking() -> None:
    loop = build(RESTART)
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
            expected = DETECTOR.on(ARMS).test(x, double([values[q.id] for q in known]))
            assert loop.change_tests[-1].statistic == expected.statistic
            assert not expected.detected


def test_late_outcomes_are_not_tested_again() -> None:
    feedback = Censored(-1.5, 3.0, max_delay=1)
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    loop = build(RESTART, acquisition=acquisition, feedback=feedback)
    first = loop.ask()
    late = [loop.ask() for _ in range(3)]
    loop.tell(late[-1].id, 0.0)
    for query in (first, late[0]):
        with pytest.warns(RuntimeWarning, match="max_delay"):
            loop.tell(query.id, 0.0)
    assert len(loop.change_tests) == 0


def test_a_test_that_cannot_be_computed_is_no_detection(monkeypatch: pytest.MonkeyPatch) -> None:
    loop: Any = build(RESTART)
    play(loop, 3)

    def fails(*args: Any, **kwargs: Any) -> None:
        raise ValueError("ridge is too small")

    monkeypatch.setattr(loop._chooser.restarts._tests._engines["reward"], "test", fails)
    with pytest.warns(RuntimeWarning, match="no detection") as caught:
        play(loop, 6)
    assert caught[0].filename == play.__code__.co_filename  # the line that told
    assert loop.history.num_arrived == 9


def test_the_oracle_begins_anew_at_the_change_and_never_only_explores() -> None:
    loop, never = build(OracleRestart(change_points=(CHANGE,))), build(NeverRestart())
    play(loop, 60)
    play(never, 60)
    (reset,) = loop.resets
    assert (reset.after_round, reset.reason, reset.num_dropped) == (CHANGE, "oracle", CHANGE)
    assert math.isnan(reset.statistic)
    assert loop.history.queries[CHANGE].origin == "exploration"  # the first of the new lists
    assert not loop.change_tests
    assert never.resets == ()
    explored = [
        [q.id for q in each.history.queries[:CHANGE] if q.origin == "exploration"]
        for each in (loop, never)
    ]
    assert explored[0] == explored[1]


def test_initial_rounds_come_again_after_a_reset() -> None:
    loop = build(OracleRestart(change_points=(20,), exploration=None), num_initial=3)
    play(loop, 30)
    initial = [q.round_number for q in loop.history.queries if q.origin == "initial"]
    assert initial == [1, 2, 3, 21, 22, 23]


# --- with constraints -----------------------------------------------------------------------------

S = 6
QUICK = ChangePointDetector(
    RBFKernel(), lengthscale=0.3, threshold=PowerThreshold(scale=0.2, exponent=-0.5)
)
NORMS: dict[str, Any] = {"rkhs_bound": 1.5, "noise_bound": 0.2, "delta": 0.2}
IGP = ImprovedUpperConfidenceBound.with_options(**NORMS, any_lambda=True)
AMM = AMMUpperConfidenceBound.with_options(**NORMS)
FRESH = {"acquisition": IGP, "constraints": AdditiveEpochs(1, S, surrogate="fresh"), "seed": 2}


def outcome(i: int, x: float, change: int) -> tuple[float, list[float]]:
    """Of query ``i``: the reward turns around after so many queries."""
    f = math.sin(6.0 * x) if i < change else math.cos(6.0 * x)
    return f + 0.1 * math.sin(9.0 * i), [0.4 - x + 0.05 * math.cos(7.0 * i)]


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_change_tests_look_across_epochs(domain: Any, delay: int) -> None:
    """They are those of the uniform queries since the last reset, which epochs do not cut."""
    loop = build(ChangePointRestart(detector=QUICK), domain=domain, **FRESH)
    for _ in range(60):
        loop.ask()
        for query in loop.history.pending():
            if loop.history.num_queries - query.round_number >= delay:
                loop.tell(query.id, *outcome(query.id, float(query.x[0]), change=25))
    engine, history, records = QUICK.on(domain), loop.history, iter(loop.change_tests)
    starts = [0, *(reset.after_round for reset in loop.resets), 60]
    assert len(starts) > 2
    assert max(np.diff(starts)) > 2 * S
    for k, (start, end) in enumerate(itertools.pairwise(starts)):
        told: list[int] = []
        for event in history.outcomes:
            query = history.query(event.query_id)
            if query.id < start or query.origin != "exploration" or event.arrived_round > end:
                continue
            told = sorted([*told, query.id])
            if len(told) < 2:
                continue
            X = torch.stack([history.query(i).x for i in told])
            known: list[Any] = [history.outcome(i) for i in told]
            test, record = engine.test(X, double([o.reward for o in known])), next(records)
            assert record.statistic == pytest.approx(test.statistic, abs=1e-10)
            assert (record.after_round, record.detected) == (event.arrived_round, test.detected)
            if test.detected:
                assert record.after_round == end
                location = history.query(told[test.location])
                assert loop.resets[k].change_round == location.round_number
                break
    assert next(records, None) is None


@pytest.mark.parametrize("keep", ["since_change", "nothing"])
def test_evidence_looks_across_epochs(keep: str) -> None:
    restart = EvidenceRestart(keep=keep)
    loop = build(restart, model=BanditGP.with_kernel(RBFKernel(), 0.05, lengthscale=0.3), **FRESH)
    other: Any = restart.on(ARMS, loop.settings.model, num_outputs=2)
    number = 0
    for t in range(60):
        query = loop.ask()
        reward, constraints = outcome(t, float(query.x[0]), change=20)
        loop.tell(query.id, reward, constraints)
        test = other.observe(query.x, [reward, *constraints])
        record = loop.change_tests[-1]
        assert record.statistic == pytest.approx(test.statistic, abs=1e-9)
        assert record.detected is test.detected
        if test.detected:
            reset = loop.resets[number]
            number += 1
            assert reset.change_round == test.change
            assert reset.num_kept == (t + 2 - test.change if keep == "since_change" else 0)
            other.reset(test.change if keep == "since_change" else None)
            # the epoch that begins is fresh: what is kept is for the evidence alone
            posterior = loop.current_model().posterior(CHOICES)
            assert torch.allclose(posterior.mean, torch.zeros_like(posterior.mean))
            assert torch.allclose(posterior.variance, torch.ones_like(posterior.mean))
    assert number
    assert any(record.after_round > 2 * S for record in loop.change_tests)


def test_a_constraint_that_changes_alone_is_seen_by_its_own_detector() -> None:
    detector = ChangePointDetector(
        RBFKernel(), lengthscale=0.25, threshold=PowerThreshold(2.0, -0.8)
    )
    restart = ChangePointRestart(detector=detector, constraint_detectors=(detector,))
    loop = build(restart, acquisition=IGP, constraints=AdditiveEpochs(1, 5))
    for t in range(1, 101):
        query = loop.ask()
        x, sign = float(query.x[0]), 1.0 if t <= 50 else -1.0
        loop.tell(query.id, math.sin(5.0 * x) + x, constraints=[sign * math.cos(4.0 * x)])
    assert [reset.quantity for reset in loop.resets] == ["constraint 1"]
    assert loop.resets[0].after_round > 50


# --- what is guaranteed ---------------------------------------------------------------------------


def reward_of_norm(norm: float, lengthscale: float) -> Tensor:
    """One value per arm of a function of exactly this norm."""
    generator = torch.Generator().manual_seed(1)
    centers = torch.rand(6, 1, dtype=torch.float64, generator=generator)
    weights = torch.randn(6, dtype=torch.float64, generator=generator)
    kernel = squared_exponential(lengthscale)
    squared = weights @ kernel(centers, centers) @ weights
    values: Tensor = norm / squared.sqrt() * (kernel(CHOICES, centers) @ weights)
    return values


@pytest.mark.parametrize("acquisition", [IGP, AMM])
def test_exploration_without_restarts_voids_nothing(acquisition: Any) -> None:
    model = BanditGP.with_kernel(RBFKernel(), noise=0.04, lengthscale=0.15)
    loop = build(NeverRestart(exploration=1.0), model=model, acquisition=acquisition)
    f, regret, bound, explored = reward_of_norm(1.5, 0.15), 0.0, 0.0, 0
    noise = torch.randn(30, generator=torch.Generator().manual_seed(2)).double()
    for error in noise.tolist():
        query = loop.ask()
        at = loop.current_model().posterior(CHOICES)
        mean, deviation = at.mean.squeeze(-1), at.variance.sqrt().squeeze(-1)
        known = query.diagnostics
        if query.origin == "acquisition":
            assert bool(((f - mean).abs() <= known["width"] * deviation + 1e-9).all())
            bound += min(2.0 * known["width"] * known["standard_deviation"], 3.0)
        else:
            explored += 1
        value = float(f[(CHOICES - query.x).abs().squeeze(-1).argmin()])
        regret += float(f.max()) - value
        loop.tell(query.id, value + 0.2 * error)
    guarantee = loop.guarantee()
    assert guarantee.holds
    assert 3 < explored < 15
    statement = guarantee.regret
    assert statement is not None
    assert (statement.num_rounds, statement.num_others) == (30 - explored, explored)
    assert statement.bound_of_others == pytest.approx(3.0 * explored)
    assert statement.bound == pytest.approx(bound, abs=1e-8)
    assert guarantee.regret_bound is not None
    assert regret <= guarantee.regret_bound


def test_told_changes_are_an_assumption_and_theorems_on_draws_need_new_draws() -> None:
    for acquisition, words in (
        (IGP, "changes after 4, 9 only"),
        (UCB, "independent of what came before"),
    ):
        restart = OracleRestart(exploration=None, change_points=(4, 9))
        told = build(restart, acquisition=acquisition).guarantee()
        assert told.holds
        assert any(words in each for each in told.assumptions)
        restart = OracleRestart(exploration=None, change_points=(4, 9), split_delta=False)
        loop = build(restart, acquisition=acquisition)
        play(loop, 12)
        assert not loop.guarantee().holds
        assert any("each segment has all of delta" in gap for gap in loop.guarantee().reasons)


def test_restarts_by_tests_have_no_theorem() -> None:
    loop = build(RESTART)
    play(loop, 5)
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert guarantee.regret_bound is None
    assert "segment" in guarantee.gaps[-1]
    assert guarantee.constants["delta"] == pytest.approx(6 * DELTA / math.pi**2)
    for restart in (RESTART, EvidenceRestart(), NeverRestart()):
        reasons = build(restart, **FRESH).guarantee().reasons
        is_cut = any("a reset cuts the running epoch" in gap for gap in reasons)
        assert is_cut == (not isinstance(restart, NeverRestart))
