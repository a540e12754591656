"""Machines that die in the middle of an evaluation hold up nothing: their queries fail."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from botorch_bandits import Arms, BanditLoop, RandomSearch, run
from botorch_bandits.loop import store

NUM_ROUNDS, LEASE = 200, 3.0


def _loop(path: Path) -> BanditLoop:
    arms = Arms(torch.linspace(0.0, 1.0, 20, dtype=torch.float64).unsqueeze(-1))
    return BanditLoop(arms, None, RandomSearch(), horizon=NUM_ROUNDS, storage=path)


def _work(say: Callable[[Any], None], path: Path, number: int) -> None:
    """Evaluate until all rounds have ended; three of eight hang in their third evaluation."""
    store.myself = lambda: f"{os.getpid()}@host{number}"
    evaluated = 0

    def reward(x: torch.Tensor) -> float:
        nonlocal evaluated
        evaluated += 1
        if number < 3 and evaluated == 3:
            say("hangs")
            time.sleep(600.0)
        time.sleep(0.01)
        return float(x)

    with _loop(path) as loop:
        while loop.history.num_queries < NUM_ROUNDS or loop.pending:
            with suppress(RuntimeError):  # another process has asked the last of all rounds
                run(loop, reward, 1, workers=1, lease=LEASE, progress=False)
                continue
            run(loop, reward, 0, lease=LEASE, progress=False)
            time.sleep(0.1)
    say(evaluated)


@pytest.mark.slow
def test_three_of_eight_machines_die_and_all_rounds_end(tmp_path: Path, start: Any) -> None:
    path = tmp_path / "run.db"
    children = [start(_work, path, number) for number in range(8)]
    for child in children[:3]:
        assert child.hear() == "hangs"
        child.kill()
    counts = [child.hear(timeout=120.0) for child in children[3:]]
    for child in children[3:]:
        child.end()
    with _loop(path) as loop:
        history = loop.history
    assert (history.num_queries, history.num_pending) == (NUM_ROUNDS, 0)
    assert (history.num_arrived, history.num_failed) == (NUM_ROUNDS - 3, 3)
    assert sum(counts) + 3 * 2 == history.num_arrived
    failures = [event for event in history.events if event.state == "failed"]
    assert {event.reason for event in failures} == {"no answer within 3 seconds"}
    hosts = {history.query(event.query_id).asked_by.partition("@")[2] for event in failures}
    assert hosts == {"host0", "host1", "host2"}
    assert len({query.asked_by for query in history.queries}) == 8
