"""Forked processes that say what they have done, and events to write."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from typing import Any

from botorch_bandits.loop.store import Event, NewEvent, Store, open_store


class Child:
    """A function in a forked process; its first argument is ``say``, which tells a value."""

    def __init__(self, function: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("fork")
        self._reader, writer = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(function, writer, arguments))
        self._process.start()
        writer.close()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def hear(self, timeout: float = 30.0) -> Any:
        """Wait for the next value that the process says."""
        assert self._reader.poll(timeout), "the process says nothing"
        return self._reader.recv()

    def hear_all(self) -> list[Any]:
        """Return what the process says until it ends."""
        said = []
        try:
            while True:
                said.append(self._reader.recv())
        except EOFError:
            self._process.join()
        return said

    def says_nothing(self, seconds: float) -> bool:
        return not self._reader.poll(seconds)

    def end(self) -> None:
        """Wait for an end without errors."""
        self._process.join(60)
        assert self._process.exitcode == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.join()

    def stop(self) -> None:
        """Stop the process, as a debugger does."""
        os.kill(self.pid, signal.SIGSTOP)


def _run(function: Callable[..., None], writer: Any, arguments: tuple[Any, ...]) -> None:
    function(writer.send, *arguments)


def run_at(storage: str, header: dict[str, Any] | None = None) -> Store:
    """Open a run, or begin it."""
    return open_store(storage, header or {"seed": 0}, lambda header: None)


def told(query: int, reward: float = 0.5) -> NewEvent:
    return NewEvent("told", query, {"reward": reward})


def add(store: Store, *new: NewEvent) -> list[Event]:
    """Write events at the end, whatever is there."""
    after = len(store.news())
    return store.write(after, lambda news: new)
