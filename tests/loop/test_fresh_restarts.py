"""Surrogates that are fresh in each epoch, in loops that begin anew.

A detector tests what came since the last reset, in whatever epoch; the model has the rows of the
running epoch; a reset cuts the epoch and begins another one.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from records import assert_same

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    Exponential,
    ImprovedUpperConfidenceBound,
    MultiplicativeEpochs,
    NeverRestart,
    OracleRestart,
)
from botorch_bandits.change_points import PowerThreshold

GRID = np.linspace(0.0, 1.0, 21)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
LENGTH, NOISE, B, R, DELTA, S = 0.3, 0.05, 1.5, 0.1, 0.1, 6
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTH)
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=LENGTH, threshold=PowerThreshold(scale=0.2, exponent=-0.5)
)
FRESH = AdditiveEpochs(1, S, surrogate="fresh")


def build(restart: Any, domain: Any = ARMS, **options: Any) -> BanditLoop:
    given = {"constraints": FRESH, "seed": 2, "clock": lambda: 0.0, **options}
    return BanditLoop(domain, MODEL, IGP_UCB, restart=restart, **given)


def outcome(i: int, x: float, change: int = 25) -> tuple[float, list[float]]:
    """Of query ``i``: the reward turns around after so many queries."""
    f = math.sin(6.0 * x) if i < change else math.cos(6.0 * x)
    return f + 0.1 * math.sin(9.0 * i), [0.4 - x + 0.05 * math.cos(7.0 * i)]


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-((a[:, None] - b[None]) ** 2) / (2.0 * LENGTH**2))


def igp_ucb_scores(x: np.ndarray, y: np.ndarray, noise_bound: float, delta: float) -> np.ndarray:
    """Of all arms, by the textbook."""
    gram, cross = rbf(x, x) + NOISE * np.eye(len(x)), rbf(GRID, x)
    mean = cross @ np.linalg.solve(gram, y)
    variance = 1.0 - np.einsum("ij,ji->i", cross, np.linalg.solve(gram, cross.T))
    gain = 0.5 * np.linalg.slogdet(gram / NOISE)[1]
    width = B + noise_bound / math.sqrt(NOISE) * math.sqrt(2.0 * (gain + math.log(1.0 / delta)))
    return mean + width * np.sqrt(variance.clip(1e-18))


@pytest.mark.parametrize("keeps", [False, True])
def test_a_told_change_begins_an_epoch(keeps: bool) -> None:
    """Algorithm 2 in each segment, at the segment's and the epoch's share of delta."""
    rule = MultiplicativeEpochs(1, S, penalty=Exponential(0.7), surrogate="fresh")
    restart = OracleRestart((9, 20), exploration=None, keep_multipliers=keeps)
    loop = build(restart, constraints=rule)
    kappa, segment, epoch, first = 1.0, 0, 1, 0
    xs, fs, gs = np.zeros(40), np.zeros(40), np.zeros(40)
    for t in range(34):
        if t in (9, 20):
            segment, first = segment + 1, t
            if not keeps:  # else the epoch that was cut begins once more
                kappa, epoch = 1.0, 1
        elif t - first == S:
            kappa *= math.exp(0.7 * max(np.mean(gs[first:t]), 0.0))
            epoch, first = epoch + 1, t
        share = 6.0 * DELTA / (math.pi * (segment + 1)) ** 2 * 6.0 / (math.pi * epoch) ** 2
        rows = slice(first, t)
        labels = fs[rows] - kappa * (np.exp(0.7 * gs[rows].clip(0.0)) - 1.0)
        scores = igp_ucb_scores(xs[rows], labels, R, share)
        query = loop.ask()
        arm = int(np.abs(GRID - float(query.x[0])).argmin())
        assert scores[arm] >= scores.max() - 1e-8
        assert query.diagnostics["acquisition_value"] == pytest.approx(scores[arm], abs=1e-8)
        assert query.diagnostics["multiplier_1"] == pytest.approx(kappa, rel=1e-12)
        assert query.diagnostics["segment"] == segment
        xs[t] = GRID[arm]
        fs[t], (gs[t],) = outcome(t, xs[t])
        loop.tell(query.id, fs[t], [gs[t]])
    assert [(r.after_round, r.num_dropped) for r in loop.resets] == [(9, 9), (20, 11)]


def go_on(loop: BanditLoop, num_rounds: int, delay: int = 0) -> None:
    for _ in range(num_rounds):
        loop.ask()
        for query in loop.history.pending():
            if loop.history.num_queries - query.round_number >= delay:
                loop.tell(query.id, *outcome(query.id, float(query.x[0])))


@pytest.mark.parametrize("delay", [0, 2])
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_change_tests_look_across_epochs(domain: Any, delay: int) -> None:
    """They are those of the uniform queries since the last reset, which epochs do not cut."""
    restart = ChangePointRestart(detector=DETECTOR)
    loop = build(restart, domain)
    go_on(loop, 60, delay)
    engine = DETECTOR.on(domain)
    history, records = loop.history, iter(loop.change_tests)
    starts = [0, *(reset.after_round for reset in loop.resets)]
    assert len(starts) > 1
    assert max(np.diff(starts)) > 2 * S
    for k, start in enumerate(starts):
        end = starts[k + 1] if k + 1 < len(starts) else 60
        mine = [q for q in history.queries if start <= q.id]
        uniform = 0
        for number, query in enumerate(q for q in mine if q.id < end):
            explores = uniform**2 <= 3 * number  # of sqrt(3) times the root
            assert (query.origin == "exploration") is explores
            uniform += explores
        told = []
        for event in history.outcomes:
            query = history.query(event.query_id)
            if query.id < start or query.origin != "exploration" or event.arrived_round > end:
                continue
            told = sorted([*told, query.id])
            if len(told) < 2:
                continue
            X = torch.stack([history.query(i).x for i in told])
            known = [history.outcome(i) for i in told]
            Y = torch.tensor([o.reward for o in known if o is not None], dtype=torch.float64)
            test, record = engine.test(X, Y), next(records)
            assert record.statistic == pytest.approx(test.statistic, abs=1e-10)
            assert (record.after_round, record.detected) == (event.arrived_round, test.detected)
            if test.detected:
                assert record.after_round == end
                found = loop.resets[k].change_round
                assert found == history.query(told[test.location]).round_number
                break
    assert next(records, None) is None


@pytest.mark.parametrize("keep", ["since_change", "nothing"])
def test_evidence_looks_across_epochs(keep: str) -> None:
    restart = EvidenceRestart(keep=keep)
    loop = build(restart)
    other = restart.on(ARMS, MODEL, num_outputs=2).stream()
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
            posterior = loop.current_model().posterior(ARMS.choices)
            assert torch.allclose(posterior.mean, torch.zeros_like(posterior.mean))
            assert torch.allclose(posterior.variance, torch.ones_like(posterior.mean))
    assert number
    assert any(record.after_round > 2 * S for record in loop.change_tests)


RESTARTS: dict[str, Any] = {
    "oracle": OracleRestart((8, 15)),
    "never": NeverRestart(),
    "detector": ChangePointRestart(
        detector=DETECTOR, constraint_detectors=(DETECTOR,), keep_multipliers=True
    ),
    "evidence": EvidenceRestart(),
}


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("feedback", ["hallucinated", "censored"])
@pytest.mark.parametrize("name", RESTARTS)
def test_reopened_loops_go_on(name: str, feedback: str, domain: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {}
    if feedback == "censored":
        options["feedback"] = Censored(
            minimum=-2.0, outcome_bound=4.0, max_delay=3, constraint_bounds=((-1.0, 1.0),)
        )
    rounds = (16, 14) if domain is ARMS else (8, 7)
    whole = build(RESTARTS[name], domain, **options)
    go_on(whole, sum(rounds), delay=2)
    path = tmp_path / "run.journal"
    with build(RESTARTS[name], domain, journal=path, **options) as first:
        go_on(first, rounds[0], delay=2)
    with build(RESTARTS[name], domain, journal=path, **options) as second:
        go_on(second, rounds[1], delay=2)
        assert second.resets == whole.resets
        assert second.change_tests == whole.change_tests
        assert second.multipliers == whole.multipliers
        for ours, theirs in zip(second.history.queries, whole.history.queries, strict=True):
            assert torch.equal(ours.x, theirs.x)
            assert_same(ours.diagnostics, theirs.diagnostics)


def test_what_is_guaranteed() -> None:
    never = build(NeverRestart()).guarantee()
    assert not any("reset cuts" in gap for gap in never.reasons)
    for restart in (RESTARTS["oracle"], RESTARTS["detector"], RESTARTS["evidence"]):
        guarantee = build(restart).guarantee()
        assert not guarantee.regret.holds
        assert not guarantee.violation.holds
        assert any("a reset cuts the running epoch" in gap for gap in guarantee.reasons)
    told = build(RESTARTS["oracle"]).guarantee()
    assert told.bands is not None
    assert told.bands.holds  # of the running epoch
