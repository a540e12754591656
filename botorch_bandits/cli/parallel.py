"""Evaluating several queries at once, each in a worker process with one thread.

Outcomes are told in the order in which evaluations end. When the run ends or is interrupted, so do
the workers.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeAlias

from botorch_bandits.asynchronous import as_plain, from_plain, one_thread_each, outcome_of
from botorch_bandits.checks import check_integer
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.evaluation import argument_of, progress_of
from botorch_bandits.history import Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.progress import ProgressBar

Reading: TypeAlias = float | tuple[float, list[float]]
"""A reward, or with constraints the pair of it and the constraint values."""

Evaluation: TypeAlias = tuple[Reading | None, str]
"""A reading and nothing, or None and what went wrong."""


class EvaluationError(ValueError):
    """The function gave no usable reward."""


def run_parallel(
    loop: BanditLoop,
    function: Callable[[Any, int], Any],
    num_rounds: int,
    num_workers: int,
    *,
    check: Callable[[Any, Query], Any],
    progress: bool = True,
    on_change: Callable[[], None] | None = None,
    shown: Callable[[BanditLoop], Mapping[str, float | str]] = progress_of,
) -> None:
    """Ask, evaluate in processes and tell, in the order in which evaluations end.

    Queries that were left pending are evaluated first. A query is asked when a worker is free,
    with every outcome told that is there. If an evaluation fails or the run is interrupted, the
    workers are stopped, and the loop keeps everything that was told.

    Args:
        loop: The loop; it continues from its history.
        function: From what :func:`run` calls a function with, and the round in which the query was
            asked, to one number, with constraints to a pair of that and the constraint values; it
            can be pickled.
        num_rounds: How many queries to ask, beside those that were left pending.
        num_workers: How many evaluations run at once.
        check: Called with what the function returned and its query before it is told; returns it,
            or raises an :class:`EvaluationError`.
        progress: Show a progress bar with the best reward and the number of pending queries.
        on_change: Called after each query and after each outcome.
        shown: What the progress bar shows, beside the number of pending queries.

    Raises:
        EvaluationError: If an evaluation raised, returned no finite number, or its process died.
    """
    left = list(loop.history.pending())
    num_rounds = check_integer("num_rounds", num_rounds, minimum=0)
    num_workers = check_integer("num_workers", num_workers, minimum=1)
    changed = on_change or (lambda: None)
    with (
        ProgressBar(len(left) + num_rounds, "rounds", progress) as bar,
        _Workers(function, min(num_workers, len(left) + num_rounds)) as workers,
    ):
        while left or num_rounds or workers.num_running:
            has_more = bool(left or num_rounds)
            if has_more and workers.num_running < num_workers and workers.finished.empty():
                query = left.pop(0) if left else None
                if query is None:
                    query, num_rounds = loop.ask(), num_rounds - 1
                    changed()
                workers.start(query)
                bar.show(**shown(loop), pending=loop.history.num_pending)
            else:
                query, (reading, trouble) = workers.next_finished()
                if reading is None:
                    raise EvaluationError(
                        f"the evaluation of query {query.id} at {query.x.tolist()} {trouble} The "
                        "same command continues the run; without --workers it shows where a "
                        "function fails."
                    )
                reading = check(reading, query)
                loop.tell(query.id, *(reading if isinstance(reading, tuple) else (reading,)))
                changed()
                bar.advance(1, **shown(loop), pending=loop.history.num_pending)


class _Workers:
    """Processes that evaluate queries, and what they have finished."""

    def __init__(self, function: Callable[[Any, int], Any], num_workers: int) -> None:
        self._function, self._num_workers = function, max(num_workers, 1)
        self._running: dict[Future[Evaluation], Query] = {}
        self._others: set[BaseProcess] = set()
        self.finished: SimpleQueue[Future[Evaluation]] = SimpleQueue()

    @property
    def num_running(self) -> int:
        """How many queries were started and not yet taken."""
        return len(self._running)

    def start(self, query: Query) -> None:
        """Evaluate a query as soon as a worker is free."""
        # a process starts in here: with an interrupt on hold, so that it cannot hit its imports
        with one_thread_each(), _interrupts_on_hold():
            try:
                argument = as_plain(argument_of(query))
                future = self._pool.submit(_evaluate, argument, query.round_number)
            except BrokenProcessPool:
                future = Future()
                future.set_result((None, _DIED))
        self._running[future] = query
        future.add_done_callback(self.finished.put)

    def next_finished(self) -> tuple[Query, Evaluation]:
        """Wait for the next evaluation that ends; failed ones after those that succeeded."""
        future = self.finished.get()
        failed = []
        while _evaluation_of(future)[0] is None and not self.finished.empty():
            failed.append(future)
            future = self.finished.get()
        for other in failed:
            self.finished.put(other)
        return self._running.pop(future), _evaluation_of(future)

    def __enter__(self) -> Self:
        self._others = set(multiprocessing.active_children())
        self._pool = ProcessPoolExecutor(
            self._num_workers,
            multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(self._function,),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            for process in set(multiprocessing.active_children()) - self._others:
                process.terminate()
        self._pool.shutdown(wait=True, cancel_futures=True)


_DIED = "was lost: a worker process ended by itself; it may have lacked memory."


def _evaluation_of(future: Future[Evaluation]) -> Evaluation:
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, BrokenProcessPool):
        return None, _DIED
    return None, f"failed: {_one_line(error)}."


@contextmanager
def _interrupts_on_hold() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# the rest runs in the workers

_known: list[Callable[[Any, int], Any]] = []


def _prepare(function: Callable[[Any, int], Any]) -> None:
    _known.append(function)
    # a terminal interrupts all processes; it is the first one that stops the others
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent has ended, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _evaluate(argument: Any, round_number: int) -> Evaluation:
    try:
        value = _known[-1](from_plain(argument), round_number)
    except BaseException as error:  # whatever it is, it must not end the worker
        return None, f"raised {_one_line(error)}."
    try:
        reward, constraints = outcome_of(value)
        return (reward if constraints is None else (reward, constraints)), ""
    except (TypeError, ValueError) as error:
        return None, f"returned {value!r}: {_one_line(error)}"


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


fill_in_docstrings(__name__)
