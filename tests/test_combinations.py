"""Delay, change, constraint and context are independent arguments of one loop: any subset works.

Each subset is played by several workers over a change of the reward, rebuilt from its history
half-way, and must go on as the uninterrupted loop does, to the last bit. What each argument says
must hold in all of them.
"""

from __future__ import annotations

import itertools
import math

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
    History,
    Ignored,
    ImprovedUpperConfidenceBound,
    OracleRestart,
)
from botorch_bandits.change_points import PowerThreshold

ARMS = Arms(torch.linspace(0.0, 1.0, 15, dtype=torch.float64).unsqueeze(-1))
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=0.4)
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=1.0, noise_bound=0.1, any_lambda=True
)
DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.4, threshold=PowerThreshold(scale=1.0, exponent=-0.8)
)
NUM_ROUNDS, CHANGE = 45, 20
PARTS = {
    "delay": {},  # which feedback depends on the constraints
    "change": {"restart": ChangePointRestart(detector=DETECTOR)},
    "constraint": {"constraints": AdditiveEpochs(1, 6, step_size=1.0)},
    "context": {"context_dim": 1},
}
SUBSETS = [
    subset for size in range(len(PARTS) + 1) for subset in itertools.combinations(PARTS, size)
]


def build(subset, domain, history=None, **others):
    options = {key: value for part in subset for key, value in PARTS[part].items()}
    if "delay" in subset:
        options["feedback"] = (
            Ignored() if "constraint" in subset else Censored(-3.0, 6.0, max_delay=5)
        )
    return BanditLoop(
        domain,
        MODEL,
        IGP_UCB,
        seed=2,
        clock=lambda: 0.0,
        history=history,
        **{**options, **others},
    )


def go_on(loop, num_rounds, subset):
    """Ask; tell one of the pending queries, or all of them where nothing is delayed."""
    for _ in range(num_rounds):
        t = loop.history.num_queries + 1
        loop.ask(**({"context": [math.sin(3.0 * t)]} if "context" in subset else {}))
        waiting = list(loop.history.pending())
        if "delay" in subset:
            waiting = [] if len(waiting) < 4 else [waiting[(5 * t) % 3]]
        for query in waiting:
            x, sign = float(query.x[0]), 1.0 if query.round_number <= CHANGE else -1.0
            shift = 0.0 if query.context is None else 0.3 * float(query.context[0])
            told = {"constraints": [x - 0.6]} if "constraint" in subset else {}
            loop.tell(query.id, sign * 2.0 * math.cos(3.0 * x) + shift, **told)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the outcome of query_id")
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("subset", SUBSETS, ids=lambda subset: "+".join(subset) or "nothing")
def test_a_rebuilt_loop_goes_on(subset, domain):
    num_rounds = NUM_ROUNDS if isinstance(domain, Arms) else 26
    cut = num_rounds - 4
    whole = build(subset, domain)
    go_on(whole, cut, subset)
    sizes = {
        "dim": 1,
        "context_dim": int("context" in subset),
        "num_constraints": int("constraint" in subset),
    }
    again = build(subset, domain, History.from_records(whole.history.to_records(), **sizes))
    go_on(whole, 4, subset)
    go_on(again, 4, subset)
    assert_same(again.history.to_records(), whole.history.to_records())
    assert (again.resets, again.multipliers) == (whole.resets, whole.multipliers)
    guarantee = whole.guarantee()
    if "change" in subset:
        assert whole.resets or isinstance(domain, Box) or "delay" in subset
        assert any("segment" in gap for gap in guarantee.gaps)
    if "constraint" in subset:
        ledger = whole.ledger()
        told = [whole.history.outcome(q.id) for q in whole.history.queries]
        values = [outcome.constraints[0] for outcome in told if outcome is not None]
        assert ledger.rectified_violation.item() == pytest.approx(
            sum(max(value, 0.0) for value in values)
        )
        assert "Shi and Eryilmaz" in guarantee.theorem
    if "delay" in subset and "constraint" not in subset:
        view = whole.feedback_view()
        pending = {query.id for query in whole.history.pending()}
        first = whole.resets[-1].after_round if whole.resets else 0
        assert set(view.pending) <= pending
        assert set(view.pending) | set(view.lost) >= {i for i in pending if i >= first}


@pytest.mark.parametrize("subset", [s for s in SUBSETS if "change" in s], ids="+".join)
def test_after_a_reset_the_loop_is_a_new_one(subset):
    """It chooses what a loop does that never saw the rounds before, up to its share of delta."""
    oracle = OracleRestart((12,), exploration=None, split_delta=False)
    loop = build(subset, ARMS, restart=oracle)
    if "delay" in subset:  # nothing may be under way across the reset
        go_on(loop, 12, [part for part in subset if part != "delay"])
    else:
        go_on(loop, 12, subset)
    fresh = build([part for part in subset if part != "change"], ARMS)
    for t in range(13, 30):
        context = {"context": [math.cos(2.0 * t)]} if "context" in subset else {}
        ours, theirs = loop.ask(**context), fresh.ask(**context)
        assert torch.equal(ours.x, theirs.x), t
        value = math.cos(4.0 * float(ours.x[0]))
        told = {"constraints": [0.4 - float(ours.x[0])]} if "constraint" in subset else {}
        loop.tell(ours.id, value, **told)
        fresh.tell(theirs.id, value, **told)
    if "constraint" in subset:
        assert loop.multipliers == fresh.multipliers


# --- the table in the documentation -----------------------------------------------------------
