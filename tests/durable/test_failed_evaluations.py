"""Evaluations that raise or return no reward: what is recorded, what is asked next, what stops."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from records import ON_BOXES, assert_same
from torch import Tensor

from botorch_bandits import (
    BanditLoop,
    Box,
    Censored,
    EvaluationError,
    Exponential,
    GPUpperConfidenceBound,
    History,
    Ignored,
    MultiplicativeEpochs,
    RandomSearch,
    StopRun,
    run,
    run_async,
)
from botorch_bandits.loop import RepeatedFailureWarning
from botorch_bandits.problems import ConstantDelay
from botorch_bandits.stopping import EvaluationFailedWarning, rounds_without_gain

from .cases import ARMS, BOX, MODEL, UCB

FAILED = pytest.mark.filterwarnings("ignore::botorch_bandits.stopping.EvaluationFailedWarning")


def value(x: Tensor) -> float:
    return -float((x[-1] - 0.3) ** 2)


class Flaky:
    """Raises in some of its calls, counted from 1."""

    def __init__(self, *bad_calls: int, error: type[BaseException] = OSError) -> None:
        self.bad_calls, self.error = bad_calls, error
        self.points: list[list[float]] = []

    def __call__(self, x: Tensor) -> float:
        self.points.append(x.tolist())
        if len(self.points) in self.bad_calls:
            raise self.error("no such machine")
        return value(x)


def arms_loop(**more: Any) -> BanditLoop:
    return BanditLoop(ARMS, MODEL, UCB, **more)


def random_loop(**more: Any) -> BanditLoop:
    return BanditLoop(Box([(0.0, 1.0)]), None, RandomSearch(), **more)


def play(loop: BanditLoop, function: Any, num_rounds: int, way: str, **more: Any) -> Any:
    """Play with ``run``, or in one thread with ``run_async``, which tell in the same order."""
    if way == "run":
        return run(loop, function, num_rounds, progress=False, **more)
    with ThreadPoolExecutor(1) as threads:
        return run_async(loop, function, threads, 1, num_rounds, progress=False, **more)


both = pytest.mark.parametrize("way", ["run", "run_async"])


# --- raise ------------------------------------------------------------------------------------


@both
def test_an_error_ends_the_run_and_its_query_stays_pending(way: str) -> None:
    loop, function = random_loop(), Flaky(3)
    with pytest.raises(OSError, match="no such machine") as caught:
        play(loop, function, 6, way, on_error="raise")
    assert (loop.history.num_arrived, loop.history.num_pending) == (2, 1)
    (note,) = caught.value.__notes__
    assert f"Query 2 at {function.points[2]} failed and stays pending" in note
    assert "--on-error skip" in note
    assert "tensor" not in note  # it has nothing to do with the argument
    play(loop, function, 3, way, on_error="raise")  # the machine is there again
    assert function.points[3] == function.points[2]
    assert (loop.history.num_arrived, loop.history.num_failed) == (6, 0)


@both
def test_what_fails_again_is_recorded_and_the_run_goes_on(way: str) -> None:
    """A run whose function crashes at a point forever goes on with the next command."""
    loop, function = random_loop(), Flaky(3, 4)
    with pytest.raises(OSError, match="no such machine"):
        play(loop, function, 6, way, on_error="raise")
    message = r"query 2 at \[0\.\d+\] failed again: OSError: no such machine\. It is recorded"
    with pytest.warns(EvaluationFailedWarning, match=message):
        play(loop, function, 3, way, on_error="raise")
    history = loop.history
    assert (history.num_queries, history.num_arrived, history.num_pending) == (6, 5, 0)
    (failure,) = history.failures
    assert (failure.query_id, failure.reason) == (2, "OSError: no such machine")


@both
def test_one_query_a_run_is_given_up_where_every_evaluation_fails(way: str) -> None:
    """A function that is broken costs no more than one pending query per run."""
    loop = random_loop()
    queries = [loop.ask() for _ in range(3)]
    with pytest.raises(OSError, match="no such") as caught, pytest.warns(EvaluationFailedWarning):
        play(loop, Flaky(*range(1, 99)), 5, way, on_error="raise")
    assert [loop.history.state(query.id) for query in queries] == ["failed", "pending", "pending"]
    assert loop.history.num_queries == 3
    assert "is the function itself at fault?" in caught.value.__notes__[0]


@both
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("on_error", ["raise", "skip", "retry:2"])
def test_interrupts_are_never_swallowed(
    way: str, error: type[BaseException], on_error: str
) -> None:
    loop, function = random_loop(), Flaky(3, error=error)
    with pytest.raises(error):
        play(loop, function, 6, way, on_error=on_error)
    assert (loop.history.num_arrived, loop.history.num_pending) == (2, 1)
    assert len(function.points) == 3


@both
@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (math.nan, "reward is nan; it must be finite"),
        (None, "reward must be one number, got None"),
        (1e60, "its absolute value must be at most 1e"),
        ((1.0, [0.0]), "one number|there are no constraints"),
    ],
    ids=str,
)
def test_what_is_no_reward_is_a_failure(way: str, returned: Any, reason: str) -> None:
    loop = random_loop()
    with pytest.raises(EvaluationError, match=reason) as caught:
        play(loop, lambda x: returned, 2, way, on_error="raise")
    assert "Query 0 at [" in str(caught.value)
    assert loop.history.num_pending == 1
    with pytest.warns(EvaluationFailedWarning, match="failed"), pytest.raises(EvaluationError):
        play(loop, lambda x: returned, 2, way, on_error="raise")
    assert re.search(reason, str(loop.history.failures[0].reason))


@both
@pytest.mark.parametrize("error", [ValueError, TypeError, OSError])
def test_an_error_of_the_callback_ends_the_run(way: str, error: type[Exception]) -> None:
    """It is no evaluation that failed, and what was told before is on record."""

    def breaks(query: Any, event: Any) -> None:
        raise error("of the callback")

    loop = random_loop()
    with pytest.raises(error, match="of the callback"):
        play(loop, value, 3, way, on_error="skip", on_round=breaks)
    assert (loop.history.num_arrived, loop.history.num_failed) == (1, 0)


# --- skip and retry ---------------------------------------------------------------------------


@both
def test_skipped_failures_are_on_record_and_the_run_goes_on(way: str) -> None:
    loop, function = random_loop(), Flaky(2, 5)
    events = []
    with pytest.warns(EvaluationFailedWarning, match="It is recorded as"):
        play(
            loop,
            function,
            6,
            way,
            on_error="skip",
            on_round=lambda query, event: events.append((query.id, type(event).__name__)),
        )
    history = loop.history
    assert [history.state(i) for i in range(6)] == [
        "told",
        "failed",
        "told",
        "told",
        "failed",
        "told",
    ]
    assert all(failure.avoided for failure in history.failures)
    assert events == [(i, "Failure" if i in (1, 4) else "Outcome") for i in range(6)]
    assert len(function.points) == 6


@both
@FAILED
def test_a_failure_is_retried_at_the_same_point(way: str) -> None:
    loop, function = random_loop(), Flaky(2, 3, 5, 6, 7)
    play(loop, function, 3, way, on_error="retry:2")
    assert [loop.history.state(i) for i in range(3)] == ["told", "told", "failed"]
    assert function.points[1] == function.points[2] == function.points[3]
    assert function.points[4] == function.points[5] == function.points[6]
    assert len(function.points) == 7


@both
def test_a_retry_that_worked_is_mentioned_once_at_the_end(way: str) -> None:
    loop = random_loop()
    with pytest.warns(EvaluationFailedWarning) as caught:
        result = play(loop, Flaky(2, 4, 6, 8, 10), 6, way, on_error="retry:1")
    assert loop.history.num_arrived == 6
    (text,) = [str(w.message) for w in caught if w.category is EvaluationFailedWarning]
    assert text == (
        "evaluations that worked only when they were tried again: 5 (query 1: OSError: no such "
        "machine, query 2: OSError: no such machine, query 3: OSError: no such machine, ...). "
        "Their outcomes count like all others."
    )
    if way == "run_async":
        assert result.num_retried == 5
        assert [task.is_retried for task in result.tasks] == [False, *[True] * 5]
        assert "6 told, 0 failed, 0 pending, 5 told after another try, workers" in repr(result)


@both
@FAILED
def test_a_run_of_nothing_but_failures_ends_with_an_error(way: str) -> None:
    loop = random_loop()
    message = "all 4 evaluations of this run failed, and the history has no outcome; .* query 3 at"
    with pytest.raises(EvaluationError, match=message):
        play(loop, lambda x: math.nan, 4, way, on_error="skip")
    assert (loop.history.num_failed, loop.history.num_pending) == (4, 0)
    play(loop, lambda x: math.nan, 2, way, on_error="skip")  # too few to tell
    play(loop, value, 1, way)
    play(loop, lambda x: math.nan, 4, way, on_error="skip")
    assert (loop.history.num_arrived, loop.history.num_failed) == (1, 10)


@both
@FAILED
def test_failures_that_are_not_the_points_fault_need_not_be_avoided(way: str) -> None:
    loop, function = arms_loop(), Flaky(3)
    play(loop, function, 4, way, on_error="skip", avoid_failed=False)
    (failure,) = loop.history.failures
    assert not failure.avoided
    assert function.points[3] == function.points[2]  # nothing has been learned
    with pytest.raises(TypeError, match="avoid_failed"):
        play(loop, function, 1, way, avoid_failed="no")


@both
def test_an_argument_that_does_not_exist_is_explained(way: str) -> None:
    with pytest.raises(TypeError, match="has no argument 'on_eror'"):
        play(random_loop(), value, 1, way, on_eror="skip")
    other = "run_async" if way == "run" else "Pass an executor and max_pending="
    with pytest.raises(TypeError, match=f"^{way} has no argument 'workers'. .*{other}"):
        play(random_loop(), value, 1, way, workers=2)


@both
def test_another_type_is_a_failure_only_after_an_outcome(way: str) -> None:
    loop = random_loop()
    with pytest.raises(EvaluationError, match=r"returned \(0.9, 0.01\).* itself"):
        play(loop, lambda x: (0.9, 0.01), 12, way, on_error="skip")
    assert (loop.history.num_failed, loop.history.num_pending) == (0, 1)
    play(loop, value, 1, way, on_error="skip")
    with pytest.warns(EvaluationFailedWarning, match="A pair is read"):
        play(loop, lambda x: (0.9, 0.01), 1, way, on_error="skip")
    assert (loop.history.num_arrived, loop.history.num_failed) == (2, 1)


@both
@FAILED
def test_ten_failures_in_a_row_end_the_run(way: str) -> None:
    loop, function = random_loop(), Flaky(*range(4, 99))
    with pytest.raises(EvaluationError, match="10 evaluations in"):
        play(loop, function, 50, way, on_error="skip")
    assert (loop.history.num_arrived, loop.history.num_failed) == (3, 10)
    play(loop, value, 2, way, on_error="skip")  # it can be repaired
    assert (loop.history.num_arrived, loop.history.num_pending) == (5, 0)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_reward_below_the_stated_minimum_is_never_recorded_as_a_failure(on_error: str) -> None:
    """The evaluation was right, and the setting is wrong."""
    loop = arms_loop(feedback=Censored(minimum=-0.05, outcome_bound=1.0))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"is -0\..*, below minimum=-0\.05"):
            run(loop, value, 12, on_error=on_error, progress=False)
    assert (loop.history.num_failed, loop.history.num_pending) == (0, 1)


@FAILED
def test_a_result_that_the_loop_refuses_otherwise_is_a_failure() -> None:
    results = iter([1.0, (1.0, [0.0]), 2.0, 3.0])
    rule = MultiplicativeEpochs(1, 4, penalty=Exponential(3.0))
    loop = random_loop(constraints=rule)
    told = iter([(1.0, [0.0]), (1.0, [1e3]), (2.0, [0.0])])
    run(loop, lambda x: next(told), 3, on_error="skip", progress=False)
    assert [loop.history.state(i) for i in range(3)] == ["told", "failed", "told"]
    assert "the loop refused the result: constraints is" in str(loop.history.failures[0].reason)
    loop = random_loop()
    run(loop, lambda x: next(results), 4, on_error="skip", progress=False)
    assert [loop.history.state(i) for i in range(4)] == ["told", "failed", "told", "told"]


@FAILED
def test_failures_become_known_after_the_delay_of_their_outcome() -> None:
    loop = random_loop()
    result = run(loop, Flaky(2), 6, delays=ConstantDelay(3), on_error="skip", progress=False)
    (failure,) = loop.history.failures
    assert (failure.query_id, failure.arrived_round) == (1, 4)
    assert torch.isnan(result.rewards[1])
    assert torch.isinf(result.arrivals[1])  # type: ignore[index]


@pytest.mark.parametrize("on_error", ["Skip", "retry", "retry:0", "retry:-1", "retry:x", 3, None])
def test_other_words_are_refused_before_anything_is_asked(on_error: Any) -> None:
    for way in ("run", "run_async"):
        loop = random_loop()
        with pytest.raises(ValueError, match="'raise', 'skip' or 'retry:N'"):
            play(loop, value, 1, way, on_error=on_error)
        assert loop.history.num_queries == 0


# --- what the acquisition makes of failures ---------------------------------------------------


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
                left_out.tell_failed(query.id, str(error))

    message = r"the point \(\S+\) failed 3 times in a row and never gave .* avoid=True"
    with pytest.warns(RepeatedFailureWarning, match=message) as caught:
        play()
    assert len(caught) == 1
    assert caught[0].filename == __file__
    points = [float(query.x) for query in left_out.history.queries[-3:]]
    assert points[0] == points[1] == points[2] > 0.7
    loop = arms_loop()
    run(loop, fails_above(0.7), 25, on_error="skip", progress=False)
    best = loop.best()
    assert best is not None
    assert best[1].reward == max(float(x) for x in ARMS.choices if float(x) <= 0.7)
    ignored = arms_loop(feedback=Ignored())
    failure = ignored.tell_failed(ignored.ask().id, avoid=True)
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
            loop.tell_failed(query.id, avoid=True)
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
    loop.tell_failed(query.id, "out of memory", avoid=True)
    run(loop, value, 2, progress=False)
    after = loop.guarantee()
    assert after.regret is not None
    assert after.bands is not None
    assert "1 failed point enters at the posterior mean" in after.bands.gaps
    assert (after.regret.num_rounds, after.regret.num_others) == (4, 2)


# --- journals and records ---------------------------------------------------------------------


@FAILED
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_a_journal_with_failures_goes_on(domain: Any, tmp_path: Path) -> None:
    def open_loop() -> BanditLoop:
        return BanditLoop.open(tmp_path / "run.journal", domain, MODEL, UCB)

    function = Flaky(2, 3, 4, 5, 8)
    whole = BanditLoop(domain, MODEL, UCB)
    run(whole, function, 10, on_error="skip", progress=False)
    again = Flaky(2, 3, 4, 5, 8)
    for num_rounds in (1, 2, 1, 3, 3):
        with open_loop() as loop:
            run(loop, again, num_rounds, on_error="skip", progress=False)
    assert_same(again.points, function.points, ON_BOXES)
    with open_loop() as loop:
        assert [failure.avoided for failure in loop.history.failures] == [True] * 5
        records = [{**r, "asked_at": 0, "arrived_at": 0} for r in loop.history.to_records()]
        expected = [{**r, "asked_at": 0, "arrived_at": 0} for r in whole.history.to_records()]
        assert_same(records, expected, ON_BOXES)
        assert records[1]["avoided"] is True
        assert "avoided" not in records[0]
        rebuilt = History.from_records(loop.history.to_records(), dim=1)
        assert rebuilt.failures == loop.history.failures
        following = BanditLoop(domain, MODEL, UCB, history=rebuilt).ask().x
        assert_same(following, whole.ask().x, ON_BOXES)


def exits_above(x: Tensor) -> float:
    if float(x[-1]) > 0.8:
        os._exit(7)
    return float(x[-1])


def run_once(path: Path, options: dict[str, Any]) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    with BanditLoop.open(path, ARMS, MODEL, UCB) as loop:
        run(loop, exits_above, 20 - loop.history.num_queries, progress=False, **options)


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("on_error", ["skip", "retry:1", "raise"])
def test_a_script_whose_function_ends_the_process_is_started_again(
    tmp_path: Path, on_error: str
) -> None:
    """With ``skip`` and ``retry`` a point is given up behind two deaths, and the script ends."""
    path, options = tmp_path / "run.journal", {"on_error": on_error}
    mark = tmp_path / "run.journal.evaluating"
    codes: list[int | None] = []
    while (codes or [None])[-1] != 0 and len(codes) < 30:
        # forked, so that nothing is imported again
        process = multiprocessing.get_context("fork").Process(target=run_once, args=(path, options))
        process.start()
        process.join(120)
        codes.append(process.exitcode)
        if on_error == "raise" and len(codes) == 4:
            break
    with BanditLoop.open(path, ARMS, MODEL, UCB) as loop:
        failures = loop.history.failures
        if on_error == "raise":  # nobody asked for records of failures
            assert codes == [7] * 4
            assert (loop.history.num_failed, loop.history.num_pending) == (0, 1)
            assert not mark.exists()
            return
        assert codes == [7, 7] * len(failures) + [0]
        assert len(failures) > 0
        assert {each.reason for each in failures} == {"the process that evaluated it ended 2 times"}
        assert all(each.avoided for each in failures)
        assert all(float(loop.history.query(each.query_id).x[-1]) > 0.8 for each in failures)
        assert (loop.history.num_queries, loop.history.num_pending) == (20, 0)
    assert not mark.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, StopRun])
def test_an_evaluation_that_is_interrupted_says_nothing_against_its_point(
    tmp_path: Path, error: type[BaseException]
) -> None:
    function = Flaky(1, 2, 3, error=error)
    with BanditLoop.open(tmp_path / "run.journal", ARMS, MODEL, UCB) as loop:
        for _ in range(3):
            with contextlib.suppress(KeyboardInterrupt):
                num_rounds = 1 - loop.history.num_queries
                run(loop, function, num_rounds, on_error="skip", progress=False)
        run(loop, function, 0, on_error="skip", progress=False)
        assert (loop.history.num_arrived, loop.history.num_failed) == (1, 0)
    assert len({tuple(point) for point in function.points}) == 1


@FAILED
def test_a_failure_by_deaths_is_handed_to_the_callback(tmp_path: Path) -> None:
    path, told = tmp_path / "run.journal", []
    with BanditLoop.open(path, ARMS, MODEL, UCB) as loop:
        for _ in range(2):
            with pytest.raises(SystemExit):
                run(
                    loop,
                    Flaky(1, error=SystemExit),
                    1 - loop.history.num_queries,
                    on_error="skip",
                    progress=False,
                )
        point = loop.history.pending()[0].x.tolist()
        marked = json.loads((tmp_path / "run.journal.evaluating").read_text())
        assert marked == {"1": {"argument": point, "times": 2}}
        result = run(
            loop,
            value,
            1,
            on_error="skip",
            progress=False,
            on_round=lambda query, event: told.append((query.id, type(event).__name__)),
        )
    assert told == [(0, "Failure"), (1, "Outcome")]
    assert result.rewards.isnan().tolist() == [True, False]
    assert BanditLoop(ARMS, MODEL, UCB).journal_path is None


# --- the end of a run -------------------------------------------------------------------------


@both
def test_a_callback_ends_the_run(way: str) -> None:
    loop = random_loop()

    def stop(query: Any, event: Any) -> None:
        if query.id == 3:
            raise StopRun("that is enough")

    result = play(loop, value, 10, way, on_round=stop)
    assert result.stopped == "that is enough"
    assert "stopped: that is enough" in repr(result)
    assert (loop.history.num_arrived, loop.history.num_pending) == (4, 0)
    result = play(loop, value, 2, way)
    assert result.stopped is None
    assert loop.history.num_arrived == 6


@both
def test_the_function_may_end_the_run_too(way: str) -> None:
    loop, function = random_loop(), Flaky(3, error=StopRun)
    result = play(loop, function, 10, way, on_error="skip")
    assert result.stopped == "no such machine"
    assert (loop.history.num_arrived, loop.history.num_pending) == (2, 1)


def test_what_is_on_its_way_is_told_before_the_run_ends() -> None:
    loop = random_loop()

    def stop(query: Any, event: Any) -> None:
        raise StopRun

    together = Barrier(4)

    def wait_for_all(x: Tensor) -> float:
        together.wait(30.0)
        return value(x)

    with ThreadPoolExecutor(4) as threads:
        result = run_async(loop, wait_for_all, threads, 4, 50, on_round=stop, progress=False)
    assert result.stopped == "StopRun"
    assert loop.history.num_queries == 4
    assert loop.history.num_pending == 0


def test_due_outcomes_are_told_before_the_run_ends() -> None:
    loop = random_loop()
    seen = []

    def stop(query: Any, event: Any) -> None:
        seen.append(query.id)
        raise StopRun

    run(loop, value, 3, delays=ConstantDelay(20), progress=False)
    run(loop, value, 20, delays=ConstantDelay(2), on_round=stop, progress=False)
    assert seen == [0, 1]  # both were due; the third was not


@both
@FAILED
def test_a_run_ends_without_gain_and_goes_on_with_a_larger_number(way: str) -> None:
    rewards = iter([5.0, 1.0, 7.0, 3.0, None, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])

    def function(x: Tensor) -> float:
        reward = next(rewards)
        if reward is None:
            raise OSError
        return reward

    loop = random_loop()
    options = {"on_error": "skip"}
    result = play(loop, function, 12, way, stop_after_no_gain=3, **options)
    assert result.stopped == "no better reward in 3 rounds"
    assert loop.history.num_queries == 6  # a failure is a round, and an equal reward is no gain
    assert rounds_without_gain(loop) == 3
    result = play(loop, function, 6, way, stop_after_no_gain=3, **options)
    assert loop.history.num_queries == 6
    result = play(loop, function, 6, way, stop_after_no_gain=4, **options)
    assert loop.history.num_queries == 11
    assert result.stopped == "no better reward in 4 rounds"


def test_initial_rounds_do_not_count_nor_attached_points() -> None:
    loop = BanditLoop(ARMS, MODEL, UCB, num_initial=5)
    result = run(
        loop, lambda x: -float(loop.history.num_queries), 9, stop_after_no_gain=2, progress=False
    )
    assert loop.history.num_queries == 7
    assert result.stopped is not None
    loop.attach(ARMS.choices[0], -50.0)
    assert rounds_without_gain(loop) == 2


def test_rewards_that_cannot_be_compared_end_no_run() -> None:
    loop = random_loop(context_dim=1)
    with pytest.raises(ValueError, match="stop_after_no_gain is 3, but"):
        run(loop, value, 2, contexts=lambda t: torch.zeros(1), stop_after_no_gain=3)
    with pytest.raises(ValueError, match="stop_after_no_gain is 0"):
        run(random_loop(), value, 2, stop_after_no_gain=0)
