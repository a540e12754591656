"""Loops that play a point several times before the next choice (``repeats=``)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    Hallucinated,
    Ignored,
    ImprovedUpperConfidenceBound,
    OracleRestart,
)
from botorch_bandits.confidence import num_plays, num_plays_at
from tests.records import rebuilt

ARMS = Arms(torch.rand(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
BOX = Box([(0.0, 1.0), (0.0, 1.0)], num_restarts=3, raw_samples=32)
NOISE, FACTOR = 0.04, 1.5
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=NOISE, lengthscale=0.4)
RULE = ImprovedUpperConfidenceBound.with_options(rkhs_bound=1.5, noise_bound=0.2, any_lambda=True)


def build(domain: Any = ARMS, **options: Any) -> BanditLoop:
    given = {"repeats": FACTOR, "seed": 4, **options}
    return BanditLoop(domain, given.pop("model", MODEL), given.pop("acquisition", RULE), **given)


def go_on(loop: BanditLoop, num_rounds: int) -> None:
    for _ in range(num_rounds):
        t = loop.history.num_queries + 1
        context = {"context": [0.2 * (t % 3 == 0)]} if loop.settings.context_dim else {}
        query = loop.ask(**context)
        loop.tell(query.id, math.cos(4.0 * float(query.x[0])) + 0.2 * math.sin(7.0 * t))


def runs_of(loop: BanditLoop) -> list[list[Any]]:
    runs: list[list[Any]] = []
    for query in loop.history.queries:
        if query.origin == "acquisition":
            runs.append([query])
        elif query.origin == "repeat":
            runs[-1].append(query)
    return runs


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_a_point_is_played_as_often_as_its_deviation_allows(domain: Any) -> None:
    loop = build(domain)
    go_on(loop, 60)
    runs = runs_of(loop)
    assert len(runs) < 50
    for run in runs[:-1]:
        deviation = run[0].diagnostics["standard_deviation"]
        plays = num_plays(deviation, NOISE, FACTOR)
        assert len(run) == plays == run[0].diagnostics["plays"]
        assert all(torch.equal(query.x, run[0].x) for query in run)
        assert [query.diagnostics["play"] for query in run[1:]] == list(range(2, plays + 1))
    assert max(map(len, runs)) > 1


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_regret_of_repeats_is_bounded_by_that_of_their_choice(domain: Any) -> None:
    loop = build(domain)
    go_on(loop, 40)
    total = 0.0
    for run in runs_of(loop):
        known = run[0].diagnostics
        total += len(run) * min(2.0 * known["width"] * known["standard_deviation"], 3.0)
    guarantee = loop.guarantee()
    assert guarantee.regret is not None
    assert guarantee.regret.holds
    assert guarantee.regret.num_rounds == 40
    assert guarantee.regret.bound == pytest.approx(total, rel=1e-12)
    constants = guarantee.constants
    assert constants["choices"] == len(runs_of(loop)) <= constants["most_choices"]
    assert constants["repeats"] == FACTOR


@pytest.mark.parametrize("feedback", [Ignored(), Hallucinated()])
def test_the_number_of_choices_is_bounded_only_if_each_knew_what_was_pending(feedback: Any) -> None:
    """Many workers choose before anything arrives."""
    for num_workers in (1, 5, 30):
        loop = build(feedback=feedback)
        queries = [loop.ask() for _ in range(num_workers)]
        for query in queries:
            loop.tell(query.id, 0.1)
        constants = loop.guarantee().constants
        is_stale = num_workers > 1 and feedback == Ignored()
        assert ("most_choices" in constants) is not is_stale
        assert is_stale or constants["choices"] <= constants["most_choices"]


def test_runs_end_with_the_context_a_failure_a_retraction_or_a_reset() -> None:
    loop = build(context_dim=1, repeats=8.0)  # three plays of the first point
    origins = [loop.ask(context=[c]).origin for c in (0.0, 0.0, 0.7, 0.7, 0.7, 0.7)]
    assert origins == ["acquisition", "repeat", "acquisition", "repeat", "repeat", "acquisition"]

    for end in ("failed", "retracted"):
        loop = build()
        go_on(loop, 6)
        query = loop.ask()
        while query.diagnostics.get("plays", 1.0) < 3.0 or query.origin == "repeat":
            loop.tell(query.id, 0.1)
            query = loop.ask()
        if end == "failed":
            loop.fail(query.id)
        else:
            loop.tell(query.id, 0.1)
            loop.retract(query.id, "wrong")
        assert loop.ask().origin == "acquisition"

    loop = build(restart=OracleRestart([5]))
    go_on(loop, 12)
    later = [q.origin for q in loop.history.queries[5:] if q.origin != "exploration"]
    assert later[0] == "acquisition"
    starts = [q.diagnostics["choice_round"] for q in loop.history.queries if q.origin == "repeat"]
    assert all(loop.history.queries[int(t) - 1].origin == "acquisition" for t in starts)
    assert "most_choices" not in loop.guarantee().constants


def test_what_is_not_chosen_from_all_is_chosen_anew_and_pending_points_are_played_again() -> None:
    loop = build(repeats=8.0)
    first = loop.ask()
    assert first.diagnostics["plays"] == 3.0
    restricted = loop.ask(available=list(range(10)))
    assert restricted.origin == "acquisition"
    assert "plays" not in restricted.diagnostics
    assert loop.ask().origin == "acquisition"
    loop = build(repeats=8.0)
    queries = [loop.ask() for _ in range(4)]
    assert [q.origin for q in queries] == ["acquisition", "repeat", "repeat", "acquisition"]
    assert queries[2].diagnostics == {"play": 3.0, "plays": 3.0, "choice_round": 1.0}


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_the_best_of_what_was_there_is_not_played_again_when_there_is_more(domain: Any) -> None:
    """On its own the point of a restricted round may be the worst of all, and bounds none."""
    given = {"available": [29]} if domain is ARMS else {"fixed": {0: 1.0}}
    loop = build(domain, repeats=4.0)
    for t in range(24):
        query = loop.ask(**(given if 6 <= t < 16 else {}))
        assert query.origin != "repeat" or query.restriction is None
        if 6 <= t <= 16:
            assert query.origin == "acquisition"
        loop.tell(query.id, -3.0 * float(query.x[0]) + 0.1 * math.sin(7.0 * t))
    regret = loop.guarantee().regret
    assert regret is not None
    bounds, of_choices = [], {}
    for query in loop.history.queries:
        known = query.diagnostics
        if query.origin == "acquisition":
            of_choices[query.round_number] = 2.0 * known["width"] * known["standard_deviation"]
            bounds.append(of_choices[query.round_number])
        else:
            bounds.append(of_choices[int(known["choice_round"])])
    assert regret.num_rounds == len(bounds) == 24
    assert regret.bound == pytest.approx(sum(min(bound, 3.0) for bound in bounds), rel=1e-12)


LIST = BanditGP.with_candidates(
    [BanditGP.with_kernel(MaternKernel(nu=2.5), 0.04, lengthscale=each) for each in (0.2, 0.4, 1.0)]
)
OF_LIST = CandidatesUpperConfidenceBound.with_options(smoothness_a=1.0, smoothness_b=1.0)


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("name", ["survivors", "mixture", "draws"])
def test_a_list_of_priors_plays_as_often_as_its_survivors_allow(domain: Any, name: str) -> None:
    on_arms = domain is ARMS
    acquisition = {
        "survivors": CandidatesUpperConfidenceBound.with_options() if on_arms else OF_LIST,
        "mixture": CandidatesUpperConfidenceBound.with_options(form="mixture", width=2.0),
        "draws": CandidatesThompsonSampling.with_options(),
    }[name]
    factor = FACTOR if on_arms else 4.0
    loop = build(domain, model=LIST, acquisition=acquisition, repeats=factor)
    num_rounds = 40 if on_arms else 14
    expected: list[float] = []
    for _ in range(num_rounds):
        X, Y = loop.history.arrived()
        query = loop.ask()
        if query.origin == "acquisition":
            model = LIST(X.reshape(-1, 2), Y.reshape(-1, 1))
            expected.append(num_plays_at(model, query.x, factor))
        loop.tell(query.id, math.cos(4.0 * float(query.x[0])) + 0.2 * math.sin(7.0 * query.id))
    runs = runs_of(loop)
    assert [run[0].diagnostics["plays"] for run in runs] == expected
    assert [len(run) for run in runs[:-1]] == expected[:-1]
    assert max(expected) > 1
    guarantee = loop.guarantee()
    if name == "survivors":
        known = [run[0].diagnostics for run in runs]
        distances = [known["upper_bound"] - known["lower_bound"] for known in known]
        tail = 0.0 if on_arms else 1.0
        added = [tail / run[0].round_number ** 2 for run in runs]
        total = sum(
            len(run) * (distance + more)
            for run, distance, more in zip(runs, distances, added, strict=True)
        )
        assert guarantee.regret is not None
        assert guarantee.regret.num_rounds == num_rounds
        assert guarantee.regret.bound == pytest.approx(total, rel=1e-9)
    else:
        assert not guarantee.holds
    again = build(domain, model=LIST, acquisition=acquisition, repeats=factor)
    assert torch.equal(rebuilt(again, loop.history).ask().x, loop.ask().x)
