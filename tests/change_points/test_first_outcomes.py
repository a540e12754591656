"""Evidence of changes where the first outcomes choose the output scales of the list of priors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from models.textbook import line

from botorch_bandits import (
    Arms,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    EvidenceRestart,
    GPUpperConfidenceBound,
)
from botorch_bandits.models import DefaultCandidates

NUM_FIRST, SCALE = 4, 50.0
BOUNDS = [(0.0, 1.0)]
LISTED = DefaultCandidates(BOUNDS, num_draws=1, noise_ratios=(0.01,), num_first=NUM_FIRST)
DOMAINS = {
    "arms": Arms(line(0.0, 1.0, 9)),
    "box": Box(BOUNDS, num_restarts=2, raw_samples=16),
}
OF_LIST = CandidatesUpperConfidenceBound.with_options(width=2.0)


def build(domain: str = "arms", **others: Any) -> BanditLoop:
    given: dict[str, Any] = {
        "model": LISTED,
        "acquisition": OF_LIST,
        "restart": EvidenceRestart(robust=False),
        "num_initial": NUM_FIRST,
        "seed": 1,
    }
    return BanditLoop(DOMAINS[domain], **{**given, **others})


def play(loop: BanditLoop, num_rounds: int, sign: float = 1.0, **others: Any) -> None:
    """The reward turns after round 12; one query in five arrives late."""
    for _ in range(num_rounds):
        loop.ask(**others)
        num_asked = loop.history.num_queries
        for query in loop.history.pending():
            if query.id % 5 == 3 and num_asked < query.id + 3:
                continue
            t, x = query.round_number, float(query.x[0])
            reward = SCALE * math.sin(4.0 * x) * (1.0 if t <= 12 else -1.0) + math.cos(float(t))
            loop.tell(query.id, sign * reward)


@pytest.mark.parametrize("robust", [False, True])
@pytest.mark.parametrize("domain", DOMAINS)
def test_it_is_the_evidence_of_the_list_that_they_choose(domain: str, robust: bool) -> None:
    """Which is known in hindsight. The first outcomes are rows, and no bets."""
    loop = build(domain, restart=EvidenceRestart(robust=robust))
    play(loop, 20)
    first = torch.tensor([o.reward for o in loop.history.outcomes[:NUM_FIRST]]).double()
    known = LISTED.list_of(first)
    assert known.num_skipped == NUM_FIRST
    other = build(domain, restart=EvidenceRestart(robust=robust, candidates=known))
    play(other, 20)
    assert [q.x.tolist() for q in other.history.queries] == [
        q.x.tolist() for q in loop.history.queries
    ]
    assert loop.resets == other.resets
    assert len(loop.resets) >= 1
    assert loop.change_tests == other.change_tests
    assert len(loop.change_tests) == loop.history.num_arrived - NUM_FIRST
    gaps = " ".join(loop.guarantee().gaps)
    assert f"given the first {NUM_FIRST} outcomes, which are not tested" in gaps


def test_as_candidates_beside_another_model() -> None:
    """Such as the default one, whose hyperparameters are learned."""
    plain = {"acquisition": GPUpperConfidenceBound.with_options(width=2.0), "model": None}
    late = EvidenceRestart(robust=False, candidates=LISTED)
    loop = build(restart=late, **plain)
    play(loop, 18)
    assert loop.resets
    model_too = build()
    play(model_too, 3)
    assert not model_too.change_tests  # nothing is tested without a list
