"""Surrogates that are fresh in each epoch, in loops that begin anew.

A detector tests what came since the last reset, in whatever epoch; the model has the rows of the
running epoch; a reset cuts the epoch and begins another one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    ChangePointDetector,
    ChangePointRestart,
    EvidenceRestart,
    ImprovedUpperConfidenceBound,
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
    given = {"constraints": FRESH, "seed": 2, **options}
    return BanditLoop(domain, MODEL, IGP_UCB, restart=restart, **given)


def outcome(i: int, x: float, change: int = 25) -> tuple[float, list[float]]:
    """Of query ``i``: the reward turns around after so many queries."""
    f = math.sin(6.0 * x) if i < change else math.cos(6.0 * x)
    return f + 0.1 * math.sin(9.0 * i), [0.4 - x + 0.05 * math.cos(7.0 * i)]


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
