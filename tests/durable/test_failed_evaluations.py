"""Queries that failed: what the acquisition makes of them, and what is recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import assert_same
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    BanditLoop,
    GPUpperConfidenceBound,
    Ignored,
    OracleRestart,
    run,
)
from botorch_bandits.loop import RepeatedFailureWarning

from .cases import ARMS, MODEL, UCB

FAILED = pytest.mark.filterwarnings("ignore:.*It is recorded as failed:RuntimeWarning")


def value(x: Tensor) -> float:
    return -float((x[-1] - 0.3) ** 2)


def arms_loop(**more: Any) -> BanditLoop:
    return BanditLoop(ARMS, MODEL, UCB, **more)


def fails_above(limit: float) -> Callable[[Tensor], float]:
    """Grows toward 1, where it cannot be evaluated."""

    def function(x: Tensor) -> float:
        if float(x[-1]) > limit:
            raise OSError("out of memory")
        return float(x[-1])

    return function


@FAILED
def test_arms_that_failed_are_not_asked_again_at_once() -> None:
    """Left out, the arm that failed is chosen forever; avoided, another one is."""
    left_out = arms_loop()

    def play() -> None:
        for _ in range(8):
            query = left_out.ask()
            try:
                left_out.tell(query.id, fails_above(0.7)(query.x))
            except OSError as error:
                left_out.fail(query.id, str(error))

    message = r"the point \(\S+\) failed 3 times in a row and never gave .* avoid=True"
    with pytest.warns(RepeatedFailureWarning, match=message) as caught:
        play()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    points = [float(query.x) for query in left_out.history.queries[-3:]]
    assert points[0] == points[1] == points[2] > 0.7
    loop = arms_loop()
    run(loop, fails_above(0.7), 25, catch=OSError, progress=False)
    best = loop.best()
    assert best is not None
    assert best[1].reward == max(float(x) for x in ARMS.choices if float(x) <= 0.7)
    ignored = arms_loop(feedback=Ignored())
    failure = ignored.fail(ignored.ask().id, avoid=True)
    assert not failure.avoided  # such a loop leaves out whatever has no outcome


@FAILED
def test_after_three_failures_in_a_row_points_are_uniform_until_one_works() -> None:
    loop = arms_loop()
    origins = []
    outcomes = [0.5, None, None, None, None, 0.1, None]
    for reward in outcomes:
        query = loop.ask()
        origins.append(query.origin)
        if reward is None:
            loop.fail(query.id, avoid=True)
        else:
            loop.tell(query.id, reward)
    uniform = ["initial"] * 2
    assert origins == ["acquisition"] * 4 + uniform + ["acquisition"]


@FAILED
def test_guarantees_know_points_that_are_avoided() -> None:
    loop = BanditLoop(ARMS, MODEL, GPUpperConfidenceBound.with_options(delta=0.1), num_initial=0)
    run(loop, value, 3, progress=False)
    before = loop.guarantee()
    assert before.regret is not None
    assert before.regret.num_rounds == 3
    query = loop.ask()
    loop.fail(query.id, "out of memory", avoid=True)
    run(loop, value, 2, progress=False)
    after = loop.guarantee()
    assert after.regret is not None
    assert after.bands is not None
    assert "1 failed point enters at the posterior mean" in after.bands.gaps
    assert (after.regret.num_rounds, after.regret.num_others) == (4, 2)


@pytest.mark.filterwarnings("ignore::botorch_bandits.loop.RepeatedFailureWarning")
@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_failed_evaluation_cost_counts_in_the_ledger_and_the_multipliers(
    tmp_path: Path, restarts: bool
) -> None:
    given: dict[str, Any] = {"constraints": AdditiveEpochs(1, 3, step_size=2.0)}
    if restarts:
        given["restart"] = OracleRestart(change_points=(4,))
    with arms_loop(**given, storage=tmp_path / "run.db") as loop:
        told = arms_loop(**given)
        for cost in (0.5, -0.1, 0.7, 0.2, 0.3):
            loop.fail(loop.ask().id, "it broke", [cost])
            told.tell(told.ask().id, 0.0, [cost])
        loop.fail(loop.ask().id, "it never began")
        told.fail(told.ask().id)
        assert loop.ledger().constraints.tolist() == [[0.5], [-0.1], [0.7], [0.2], [0.3]]
        assert loop.ledger().epochs.tolist() == told.ledger().epochs.tolist()
        assert loop.multipliers == told.multipliers
        assert restarts or loop.multipliers > (0.0,)
        assert loop.history.num_arrived == 0
        assert loop.feasibility(2.0).nearest is None
        records = loop.history.to_records()
        assert [record["constraints"] for record in records[-2:]] == [[0.3], None]
        assert loop.history.to_dataframe()["constraint0"].tolist()[:2] == [0.5, -0.1]

        assert loop.fail(2, constraints=[0.7]) == loop.history.failure(2)
        with pytest.raises(ValueError, match=r"failed with constraints \[0.7\], and was"):
            loop.fail(2, constraints=[0.8])
        with pytest.raises(ValueError, match="its absolute value must be at most 1e"):
            loop.fail(loop.ask().id, constraints=[1e60])
        with pytest.raises(ValueError, match="turns into a multiplier or a penalized outcome"):
            loop.fail(loop.history.num_queries - 1, constraints=[1e50])
        with pytest.raises(ValueError, match=r"constraints .*1"):
            loop.fail(loop.history.num_queries - 1, constraints=[0.1, 0.2])
        loop.tell(loop.history.num_queries - 1, 1.0, [0.2])
        assert loop.feasibility(2.0).nearest == (loop.history.queries[-1], loop.history.outcome(6))
    with arms_loop(**given, storage=tmp_path / "run.db") as again:
        assert again.multipliers == loop.multipliers
        assert_same(again.history.to_records(), loop.history.to_records())
        assert again.ledger().constraints.tolist()[-1] == [0.2]
    plain = arms_loop()
    with pytest.raises(ValueError, match="there are no constraints"):
        plain.fail(plain.ask().id, constraints=[0.1])
