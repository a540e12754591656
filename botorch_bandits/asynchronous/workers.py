"""Executors that are replaced when a worker dies or hangs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from typing import Any

from botorch_bandits.checks import check_callable


class Workers:
    """An executor that is replaced when it breaks, if it can be.

    Args:
        given: The executor, or what makes one.
    """

    def __init__(self, given: Executor | Callable[[], Executor]) -> None:
        if not isinstance(given, Executor):
            check_callable(
                "executor",
                given,
                "Pass an executor, such as ThreadPoolExecutor(4) or client.get_executor() of a "
                "Dask client, or a function that makes one.",
            )
        self._make = _maker_of(given) if isinstance(given, Executor) else given
        self.current = given if isinstance(given, Executor) else given()
        self._own = [] if isinstance(given, Executor) else [self.current]
        self._retired: list[Executor] = []  # a task hangs in them
        self._hung: list[Executor] = []
        self.num_replaced = 0

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Submit to an executor that works."""
        try:
            return self.current.submit(function, *arguments)
        except BrokenExecutor as error:
            if self._make is None:
                raise RuntimeError(
                    f"the executor {self.current!r} broke, and how to make another is not known. "
                    "What was on its way is pending; pass a function that makes an executor, and "
                    "call run_async again."
                ) from error
            self._replace(self._make)
            return self.current.submit(function, *arguments)

    def retire(self, executor: Executor) -> None:
        """Use another executor from now on, if one can be made; a task of this one hangs."""
        if executor is self.current and self._make is not None:
            self._replace(self._make)
            self._retired.append(executor)

    def kill_retired(self, in_use: set[Executor | None]) -> None:
        """Kill the processes of executors in which nothing but what hangs is left."""
        for executor in [each for each in self._retired if each not in in_use]:
            self._retired.remove(executor)
            self._hung.append(executor)
            _kill(executor)

    def close(self) -> None:
        """Shut down what was made here."""
        self.kill_retired(set())
        for executor in self._own:
            executor.shutdown(wait=executor not in self._hung, cancel_futures=True)

    def _replace(self, make: Callable[[], Executor]) -> None:
        self.current = make()
        self._own.append(self.current)
        self.num_replaced += 1


def _maker_of(executor: Executor) -> Callable[[], Executor] | None:
    """Return what makes an executor like one of the standard library; None for others."""
    known = vars(executor)
    names = {"_max_workers": "max_workers", "_initializer": "initializer", "_initargs": "initargs"}
    if type(executor) is ProcessPoolExecutor:
        names["_mp_context"] = "mp_context"
    elif type(executor) is not ThreadPoolExecutor:
        return None
    options = {public: known[private] for private, public in names.items() if private in known}
    return lambda: type(executor)(**options)


def _kill(executor: Executor) -> None:
    for process in list((getattr(executor, "_processes", None) or {}).values()):
        process.kill()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Processes that start in here have one thread each, as libraries read it at import."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
