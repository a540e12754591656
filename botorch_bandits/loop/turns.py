"""Callers of a loop take turns: threads and forked children.

A thread waits for its turn. A forked child gets a new lock, because the parent's lock may be held
forever, and it cannot write. A signal handler interrupts its own thread, perhaps in the middle of a
record, and must not call the loop.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

import torch

from botorch_bandits.history import Event, History, Query
from botorch_bandits.journal import JournalError
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.journal import Fit, LoopJournal
from botorch_bandits.loop.settings import LoopSettings


class Turns:
    """A lock for one thread at a time, which may take it again; gradients are enabled inside.

    Searches and fits need gradients, and must also work inside ``torch.no_grad()`` and
    ``torch.inference_mode()``.
    """

    def __init__(self) -> None:
        """See the class."""
        lock = threading.RLock()
        self._acquire, self._release = lock.acquire, lock.release
        self._guards: list[ExitStack | None] = []  # those of the thread that holds the lock

    def __enter__(self) -> Self:
        """Wait for the turn."""
        self._acquire()
        guard = None
        if not torch.is_grad_enabled():  # also the case in inference mode
            guard = ExitStack()
            guard.enter_context(torch.inference_mode(False))
            guard.enter_context(torch.enable_grad())
        self._guards.append(guard)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous modes, and release the lock."""
        guard = self._guards.pop()
        if guard is not None:
            guard.close()
        self._release()


_loops: weakref.WeakSet[TakesTurns] = weakref.WeakSet()


class TakesTurns:
    """The history of a loop and what is derived from it, for one caller at a time."""

    settings: LoopSettings
    _history: History
    _lock: Turns

    def __init__(self) -> None:
        """Begin without a journal; subclasses set the history."""
        self._cached_chooser: Chooser | None = None  # None: must be rebuilt from the history
        self._journal: LoopJournal | None = None
        self._num_records = 0  # number of records of the journal that the history has
        self._begin_turns()

    def _begin_turns(self) -> None:
        self._lock = Turns()
        _loops.add(self)

    def _state_to_copy(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    @property
    def _chooser(self) -> Chooser:
        """What is derived from the history; to be used only while the lock is held."""
        chooser = self._cached_chooser
        if chooser is None:
            with self._lock:
                fit = None if self._journal is None else self._journal.recorded_fit
                chooser = self._cached_chooser = Chooser(self.settings, self._history, fit)
        return chooser

    def _record(self, *entries: Query | Event, fit: Fit | None = None) -> None:
        """Write an entry to the journal, then add it to the history.

        Args:
            entries: A query or an event, or an attached query and its outcome; made for the
                current history.
            fit: The hyperparameters with which a query was chosen.

        Raises:
            JournalError: If it cannot be written; nothing is added then.
        """
        if self._journal is not None:
            self._journal.append(*entries, fit=fit)
        for entry in entries:
            self._history.record_journaled(entry)
        if self._journal is not None:
            self._num_records = self._journal.num_records

    def _catch_up(self) -> None:
        """Read the journal again if it is ahead, as after an interruption between the two steps.

        Raises:
            JournalError: In a child that was forked after the journal was opened.
        """
        if self._journal is None:
            return
        self._journal.check_process()
        if self._journal.num_records != self._num_records:
            self._read_journal()
            self._cached_chooser = None

    def _read_journal(self) -> None:
        assert self._journal is not None
        self._history = self._journal.read()
        self._history.keep_in_journal(self._journal.path)
        self._history.name_points(self.settings.domain.decode)
        self._num_records = self._journal.num_records

    @contextmanager
    def _derived_state(self) -> Iterator[Chooser]:
        """Yield what is derived from the history; discard it if an error leaves it out of step."""
        try:
            yield self._chooser
        except BaseException:
            self._cached_chooser = None
            with suppress(JournalError):  # the next call tries again
                self._catch_up()
            raise


def _give_children_locks() -> None:
    for loop in list(_loops):
        loop._lock = Turns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_children_locks)
