"""Processes of the command line in which queries are evaluated: workers, or the run's own.

Each worker has one thread, and the function from its start. When the run ends or is interrupted, so
do the workers. A run without workers leaves an :class:`EvaluationMark` where its process dies.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from botorch_bandits.asynchronous import one_thread_each
from botorch_bandits.cli.command_line import write_atomically
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.history import Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.queries import argument_of

MARK_FILE = "evaluating.json"

MOST_DEATHS = 2
"""At a point where so many processes died no other one tries."""


class EvaluationMark:
    """A file that is there while the run's own process evaluates a query.

    Where the process dies (a segmentation fault, the end of the memory, ``sys.exit``), nothing else
    tells the next command at which point it did, so that it would die there, too, for ever.

    Args:
        folder: Where the file is.
    """

    def __init__(self, folder: Path) -> None:
        """See the class."""
        self._path = folder / MARK_FILE
        self._deaths = self._read()

    @contextmanager
    def around(self, argument: Any, round_number: int) -> Iterator[None]:
        """Mark an evaluation; the mark stays if the process ends in it.

        Args:
            argument: Of the function.
            round_number: The round in which the query was asked.
        """
        begun = {"argument": _plain(argument), "times": 1}
        known = self._deaths.get(str(round_number), {})
        if known.get("argument") == begun["argument"]:
            begun["times"] = known["times"] + 1
        self._deaths[str(round_number)] = begun
        self._write()
        try:
            yield
        except SystemExit:
            raise
        except BaseException:
            self.forget(round_number)
            raise
        self.forget(round_number)

    def fatal_query(self, loop: BanditLoop, num_rounds: int) -> Query | None:
        """Return a query in whose evaluation too many processes died, if there is one.

        It is pending. Where it was asked after the last history was written, it is asked again.

        Args:
            loop: As the run goes on with it.
            num_rounds: How many rounds the run has in total.
        """
        history = loop.history
        for name, known in self._deaths.items():
            round_number = int(name)
            if known["times"] < MOST_DEATHS or round_number > num_rounds:
                continue
            if round_number == history.num_queries + 1:
                loop.ask()
            if round_number > history.num_queries:
                continue
            query = history.query(round_number - 1)
            is_same = _plain(argument_of(query)) == known["argument"]
            if is_same and history.state(query.id) == "pending":
                return query
        return None

    def forget(self, round_number: int) -> None:
        """Take away what is known of the query of a round."""
        self._deaths.pop(str(round_number), None)
        self._write()

    def _write(self) -> None:
        if self._deaths:
            write_atomically(self._path, json.dumps(self._deaths) + "\n")
        else:
            self._path.unlink(missing_ok=True)

    def _read(self) -> dict[str, dict[str, Any]]:
        """Return what is known, by round; nothing if the file is missing or damaged."""
        try:
            known: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(int(t)): {k: m[k] for k in ("argument", "times")} for t, m in known.items()}
        except (OSError, ValueError, AttributeError, KeyError, TypeError):
            return {}


def _plain(argument: Any) -> Any:
    """Return the argument of a function as a JSON file has it."""
    plain = argument.tolist() if isinstance(argument, Tensor) else argument
    return json.loads(json.dumps(plain, default=str))


class WorkerPool(ProcessPoolExecutor):
    """Processes that evaluate one function; see :func:`evaluate_known`.

    Args:
        function: Of an argument and a round; it can be pickled.
        num_workers: How many processes there are.
        before_submit: Called before each evaluation that is handed out.
    """

    def __init__(
        self,
        function: Callable[[Any, int], Any],
        num_workers: int,
        before_submit: Callable[[], None],
    ) -> None:
        """See the class."""
        super().__init__(
            num_workers,
            multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(function,),
        )
        self._before_submit = before_submit
        self._futures: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See :class:`concurrent.futures.Executor`."""
        self._before_submit()
        # a process starts in here: with an interrupt on hold, so that it cannot hit its imports
        with one_thread_each(), _interrupts_on_hold():
            future = super().submit(function, *args, **kwargs)
        self._futures = [each for each in self._futures if not each.done()] + [future]
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, also in the middle of an evaluation."""
        if not all(future.done() for future in self._futures):
            for process in list((getattr(self, "_processes", None) or {}).values()):
                process.terminate()
        super().shutdown(wait, cancel_futures=True)


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


def evaluate_known(argument: Any, round_number: int) -> Any:
    """Return what the function of a :class:`WorkerPool` returns, in one of its processes.

    Args:
        argument: Of the function.
        round_number: The round in which the query was asked.
    """
    return _known[-1](argument, round_number)


fill_in_docstrings(__name__)
