"""Workers that die, hang, raise or answer twice: the run goes on, and the history says what was."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from botorch_bandits import BanditLoop, Box, Censored, RandomSearch, run_async
from botorch_bandits.feedback import LateOutcomeWarning

from .cases import ARMS, BOX, MODEL, SETTINGS, UCB

FOLDER = "DURABLE_TEST_FOLDER"


def random_loop(**options: Any) -> BanditLoop:
    return BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch(), **options)


def value(x: Tensor) -> float:
    return -float((x[-1] - 0.3) ** 2)


def is_bad(x: Tensor) -> bool:
    """Tell about a third of the points."""
    return float(x[0]) * 1000 % 3 < 1


def die_at_bad(x: Tensor) -> float:
    if is_bad(x):
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)  # others are on their way when a worker dies
    return value(x)


def die_once(x: Tensor) -> float:
    mark = Path(os.environ[FOLDER]) / repr(float(x[0]))
    if is_bad(x) and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value(x)


def hang_at_bad(x: Tensor) -> float:
    if is_bad(x):
        time.sleep(600.0)
    return value(x)


def forked() -> ProcessPoolExecutor:
    """A pool whose workers see the environment as it is now, and need no imports."""
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork"))


def check(loop: BanditLoop, result: Any, num_rounds: int, bad: str) -> None:
    """Every query has what its point deserves, once."""
    history = loop.history
    assert result.history is history
    assert history.num_queries == num_rounds
    assert history.num_pending == 0
    for query, task in zip(history.queries, result.tasks, strict=True):
        expected = bad if is_bad(query.x) else "told"
        assert history.state(query.id) == task.state == expected
        assert task.query_id == query.id
        if expected == "told":
            assert history.outcome(query.id).reward == value(query.x)
    assert result.count(bad) > 0
    assert result.count("told") > 0
    assert len(history.events) == num_rounds


def test_a_worker_that_dies_fails_its_own_query_alone() -> None:
    loop = random_loop()
    with forked() as processes:
        result = run_async(loop, die_at_bad, processes, 2, 4, on_error="skip", progress=False)
    check(loop, result, 4, "failed")
    assert {failure.reason for failure in loop.history.failures} == {"its worker died"}
    assert result.num_replaced > 0


def test_a_query_whose_worker_died_once_is_evaluated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    with BanditLoop.open(tmp_path / "run.journal", BOX, None, RandomSearch()) as loop:
        result = run_async(loop, die_once, forked, 2, 8, progress=False)
        assert result.count("told") == loop.history.num_arrived == 8
        assert any(task.num_tries > 1 for task in result.tasks)
    assert any(is_bad(query.x) for query in loop.history.queries)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "threads"])
def test_a_task_that_never_returns_fails_and_the_run_goes_on(kind: str) -> None:
    loop, stop = random_loop(), threading.Event()

    def wait_at_bad(x: Tensor) -> float:
        if is_bad(x):
            stop.wait(60.0)
        return value(x)

    try:
        if kind == "threads":
            with ThreadPoolExecutor(2) as threads:
                result = run_async(loop, wait_at_bad, threads, 2, 10, timeout=0.3, progress=False)
                told = loop.history.to_records()
                stop.set()  # results that come late change nothing
        else:
            with forked() as processes:  # its end waits for no hanging process
                result = run_async(loop, hang_at_bad, processes, 2, 4, timeout=3.0, progress=False)
                told = loop.history.to_records()
    finally:
        stop.set()
    check(loop, result, 10 if kind == "threads" else 4, "failed")
    assert loop.history.to_records() == told
    assert loop.history.failures[0].reason.startswith("no result after")


class TwiceExecutor(Executor):
    """Runs everything twice, as a cluster may that lost track of a worker."""

    def __init__(self) -> None:
        self.threads = ThreadPoolExecutor(2)
        self.num_calls = 0

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        def twice() -> Any:
            function(*arguments, **options)
            self.num_calls += 2
            return function(*arguments, **options)

        return self.threads.submit(twice)


def test_a_task_that_runs_twice_counts_once() -> None:
    loop, executor = BanditLoop(ARMS, MODEL, UCB, horizon=12), TwiceExecutor()
    result = run_async(loop, value, executor, 2, 12, progress=False)
    executor.threads.shutdown()
    assert executor.num_calls == 24
    assert result.count("told") == loop.history.num_arrived == 12
    assert repr(result) == "AsyncResult(12 told, 0 failed, 0 pending, workers replaced 0 times)"
    with pytest.raises(ValueError, match="12 of the horizon=12"):
        run_async(loop, value, executor, 2, 1, progress=False)


def test_what_somebody_else_told_meanwhile_is_kept() -> None:
    loop = random_loop()

    def tell_first(x: Tensor) -> float:
        (query,) = [q for q in loop.history.queries if q.x.equal(x)]
        if query.id == 0:
            loop.tell(query.id, 5.0)
        if query.id == 1:
            loop.tell_failed(query.id, "somebody knew")
        if query.id == 2:
            loop.tell(query.id, 1.0)
        return 1.0

    with ThreadPoolExecutor(1) as threads:
        result = run_async(loop, tell_first, threads, 2, 4, progress=False)
    assert [task.state for task in result.tasks] == ["told", "failed", "told", "told"]
    assert [outcome.reward for outcome in loop.history.outcomes] == [5.0, 1.0, 1.0]
    assert "a second result was dropped" in result.tasks[0].reasons[0]
    assert "a second result was dropped" in result.tasks[1].reasons[0]
    assert result.tasks[2].reasons == ()


def test_a_function_that_cannot_be_sent_is_refused_before_anything_is_asked() -> None:
    loop = random_loop()
    with ProcessPoolExecutor(1) as processes, pytest.raises(TypeError, match="top level of"):
        run_async(loop, lambda x: 0.0, processes, 1, 2, progress=False)
    assert loop.history.num_queries == 0


class ByHand(Executor):
    """An executor whose tasks end when the test says so."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Future[Any], Any]] = []

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self.tasks.append((future, lambda: function(*args)))
        return future

    def end(self, number: int, error: Exception | None = None) -> None:
        future, evaluate = self.tasks[number]
        if error is None:
            future.set_result(evaluate())
        else:
            future.set_exception(error)


def test_what_arrives_while_a_point_is_chosen_is_told_before_the_next_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a process that is killed in one of several choices would lose it."""
    loop, workers, seen = random_loop(), ByHand(), []
    ask = loop.ask

    def slow_ask(*args: Any, **kwargs: Any) -> Any:
        seen.append(loop.history.num_arrived)
        query = ask(*args, **kwargs)
        if query.id >= 2:  # while this point is chosen, the result of the one before it arrives
            workers.end(query.id - 2)
        if query.id == 5:
            workers.end(4)
        return query

    monkeypatch.setattr(loop, "ask", slow_ask)
    submit = workers.submit
    last = lambda: len(workers.tasks) == 6 and workers.end(5)  # noqa: E731
    monkeypatch.setattr(workers, "submit", lambda *a: (submit(*a), last())[0])
    run_async(loop, value, workers, 4, 6, progress=False)
    assert seen == [0, 0, 0, 1, 2, 3]
    assert loop.history.num_arrived == 6


def test_what_is_running_is_told_before_an_error_ends_the_run() -> None:
    loop, together, is_over = random_loop(), threading.Barrier(3), threading.Event()

    def one_is_bad(x: Tensor) -> float:
        if together.wait(30.0) == 0:
            threading.Timer(0.2, is_over.set).start()
            raise OSError("no such machine")
        is_over.wait(30.0)
        return value(x)

    with ThreadPoolExecutor(3) as threads, pytest.raises(OSError, match="no such machine"):
        run_async(loop, one_is_bad, threads, 3, 9, on_error="raise", progress=False)
    assert (loop.history.num_arrived, loop.history.num_pending) == (2, 1)


@pytest.mark.filterwarnings("error:.*loop refused the:RuntimeWarning")
def test_the_failure_is_recorded_before_its_warning_that_may_be_an_error() -> None:
    loop = BanditLoop(ARMS, MODEL, UCB, feedback=Censored(minimum=-0.1, outcome_bound=1.0))
    loop.attach(ARMS.choices[0], 0.0)
    with ThreadPoolExecutor(1) as threads, pytest.raises(RuntimeWarning, match="below minimum"):
        run_async(loop, lambda x: -0.5, threads, 1, 2, progress=False)
    assert [failure.query_id for failure in loop.history.failures] == [1]


def test_contexts_constraints_and_pending_queries_reach_the_function() -> None:
    loop = BanditLoop(**SETTINGS["arms, constraints"], context_dim=1)
    loop.ask([7.0])

    def evaluate(x: Tensor) -> tuple[float, list[float]]:
        return float(x[0]), [float(x[1]), 0.0]

    seen = []
    with ThreadPoolExecutor(3) as threads:
        run_async(
            loop,
            evaluate,
            threads,
            3,
            5,
            contexts=lambda t: torch.tensor([float(t)], dtype=torch.float64),
            progress=False,
            on_round=lambda query, event: seen.append((query.id, event)),
        )
    history = loop.history
    for query in history.queries:
        outcome = history.outcome(query.id)
        assert outcome.reward == (7.0 if query.id == 0 else query.round_number)
        assert outcome.constraints == (float(query.x[0]), 0.0)
    assert {query_id for query_id, _ in seen} == set(range(6))
    short = torch.ones(6, 1, dtype=torch.float64)
    with ThreadPoolExecutor(1) as threads, pytest.raises(ValueError, match="contexts has 6 rows"):
        run_async(loop, evaluate, threads, 1, 1, contexts=short, progress=False)


def test_at_most_so_many_are_pending_and_lost_ones_take_no_place() -> None:
    stop, most = threading.Event(), []

    def first_waits(x: Tensor) -> float:
        if loop.history.num_queries <= 2:
            stop.wait(30.0)
        elif loop.history.num_queries >= 11:
            stop.set()
        return 0.5

    feedback = Censored(minimum=0.0, max_delay=3)
    loop = BanditLoop(ARMS, MODEL, UCB, feedback=feedback)
    # the first two queries block both places until they are given up, two rounds later
    loop.ask()
    loop.ask()
    loop.tell(1, 0.1)
    with ThreadPoolExecutor(3) as threads, pytest.warns(LateOutcomeWarning):
        run_async(
            loop,
            first_waits,
            threads,
            2,
            10,
            progress=False,
            on_round=lambda *_: most.append(len(loop.feedback_view().pending)),
        )
    assert max(most) <= 2
    assert loop.history.num_arrived == 12
    assert loop.feedback_view().late


def test_a_run_that_is_interrupted_goes_on_from_its_journal(tmp_path: Path) -> None:
    path, num_calls = tmp_path / "run.journal", []

    def interrupt(query: Any, event: Any) -> None:
        num_calls.append(event)
        if len(num_calls) == 4:
            raise KeyboardInterrupt

    with BanditLoop.open(path, ARMS, MODEL, UCB) as loop, ThreadPoolExecutor(3) as threads:
        with pytest.raises(KeyboardInterrupt):
            run_async(loop, value, threads, 3, 20, progress=False, on_round=interrupt)
        known = loop.history.to_records()
    with BanditLoop.open(path, ARMS, MODEL, UCB) as loop, ThreadPoolExecutor(3) as threads:
        assert loop.history.to_records() == known
        num_left = 20 - loop.history.num_queries
        result = run_async(loop, value, threads, 3, num_left, progress=False)
        assert loop.history.num_arrived == 20
    assert result.count("told") == len(result.tasks) < 20


class BrokenForGood(Executor):
    """Cannot be made again."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        raise concurrent.futures.BrokenExecutor("it broke")


def test_an_executor_that_cannot_be_replaced_ends_the_run_and_keeps_what_is_pending() -> None:
    loop = random_loop()
    with pytest.raises(RuntimeError, match="pass a function that"):
        run_async(loop, value, BrokenForGood(), 2, 5, progress=False)
    assert loop.history.num_pending == 1
    with ThreadPoolExecutor(2) as threads:
        run_async(loop, value, threads, 2, 4, progress=False)
    assert loop.history.num_arrived == 5


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip(
        "distributed", reason="dask.distributed is not installed: pip install distributed"
    )
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
class TestDask:
    def test_equal_points_are_evaluated_each_time(self, client: Any, tmp_path: Path) -> None:
        """Dask takes equal calls for one; on arms points come again."""
        loop = BanditLoop(ARMS, MODEL, UCB, horizon=20)
        result = run_async(
            loop, _count_in(str(tmp_path)), client.get_executor(), 2, 20, progress=False
        )
        assert result.count("told") == 20
        assert len(list(tmp_path.iterdir())) == 20
        assert len({tuple(query.x.tolist()) for query in loop.history.queries}) < 20

    def test_a_worker_killed_in_the_middle_of_a_task(self, client: Any, tmp_path: Path) -> None:
        loop = random_loop()
        result = run_async(
            loop, _die_in(str(tmp_path)), client.get_executor(), 2, 4, progress=False
        )
        assert result.count("told") == loop.history.num_arrived == len(loop.history.events) == 4
        assert any(is_bad(query.x) for query in loop.history.queries)
        died = [query.id for query in loop.history.queries if is_bad(query.x)]
        assert len(list(tmp_path.iterdir())) == len(died)

    def test_a_task_that_raises(self, client: Any) -> None:
        loop = random_loop()
        executor = client.get_executor()
        result = run_async(loop, _raise_at_bad(), executor, 2, 12, progress=False)
        check(loop, result, 12, "failed")


# Dask sends functions of test modules by name, which its workers cannot import; these it copies.


def _count_in(folder: str) -> Any:
    def count(x: Tensor) -> float:
        import uuid
        from pathlib import Path

        (Path(folder) / uuid.uuid4().hex).touch()
        return -float((x[-1] - 0.3) ** 2)

    return count


def _die_in(folder: str) -> Any:
    def die(x: Tensor) -> float:
        import os
        import signal
        from pathlib import Path

        mark = Path(folder) / repr(float(x[0]))
        if float(x[0]) * 1000 % 3 < 1 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -float((x[-1] - 0.3) ** 2)

    return die


def _raise_at_bad() -> Any:
    def evaluate(x: Tensor) -> float:
        if float(x[0]) * 1000 % 3 < 1:
            raise OSError("no such machine")
        return -float((x[-1] - 0.3) ** 2)

    return evaluate
