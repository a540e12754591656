"""Whoever calls a loop takes turns: threads, forked children and signal handlers.

A thread waits for its turn. A child that was forked gets a lock of its own, for that of the parent
may be held for ever, and cannot write. A signal handler interrupts its own thread, which cannot
wait: while a record is written and added to the history, handlers are on hold; at all other
moments they find a history that is whole, and what is derived from it is built anew for them.
What was interrupted notices that the history has grown, and is done again.
"""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.history import Event, History, Query
from botorch_bandits.journal import JournalError
from botorch_bandits.journal.files import HandlersOnHold
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.journal import Fit, LoopJournal
from botorch_bandits.loop.settings import LoopSettings

_MOST_OUTDATED = 3
_loops: weakref.WeakSet[TakesTurns] = weakref.WeakSet()


class TakesTurns:
    """What a loop knows and derives from it, for one caller at a time."""

    settings: LoopSettings
    _history: History
    _lock: threading.RLock

    def __init__(self) -> None:
        """Begin without a journal; the history is set by whoever inherits."""
        self._cached_chooser: Chooser | None = None  # None: it is to be built from the history
        self._chooser_in_use: Chooser | None = None
        self._journal: LoopJournal | None = None
        self._num_records = 0  # of the journal, that the history has
        self._num_changes = 0  # counts what is recorded
        self._num_outdated = 0  # choices in a row that a signal handler has overtaken
        self._begin_turns()

    def _begin_turns(self) -> None:
        self._lock = threading.RLock()
        _loops.add(self)

    def _state_to_copy(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    @property
    def _chooser(self) -> Chooser:
        """What is derived from the history; to be used while the lock is held."""
        with self._lock:
            known = self._cached_chooser
            # a handler may have come while the other one was in the middle of something
            if known is None or known is self._chooser_in_use:
                fit = None if self._journal is None else self._journal.recorded_fit
                known = self._cached_chooser = Chooser(self.settings, self._history, fit)
            return known

    @contextmanager
    def _reading(self) -> Iterator[Chooser]:
        """Hand out what is derived from the history, and nobody else has it meanwhile."""
        is_nested = self._chooser_in_use is not None  # one handler at a time, or there is no end
        with self._lock, HandlersOnHold() if is_nested else nullcontext():
            chooser, outer = self._chooser, self._chooser_in_use
            self._chooser_in_use = chooser
            try:
                yield chooser
            finally:
                self._chooser_in_use = outer

    @contextmanager
    def _derived_state(self, seen: int) -> Iterator[Chooser]:
        """Hand out what is derived from the history; throw it away if it falls out of step.

        Args:
            seen: What :meth:`_catch_up` returned; one change is recorded in here.
        """
        # signals may come faster than a point is chosen
        is_hurried = self._num_outdated >= _MOST_OUTDATED
        try:
            with HandlersOnHold() if is_hurried else nullcontext(), self._reading() as chooser:
                yield chooser
        except BaseException:
            self._cached_chooser = None
            with suppress(JournalError):  # the next call tries again
                self._catch_up()
            raise
        if self._num_changes == seen + 1:
            self._cached_chooser = chooser
        elif self._cached_chooser is chooser:  # a handler recorded something behind its back
            self._cached_chooser = None

    @contextmanager
    def _recording(self, seen: int) -> Iterator[bool]:
        """Hold signal handlers back, and say whether the history is as it was.

        Args:
            seen: What :meth:`_catch_up` returned.
        """
        with HandlersOnHold():
            is_current = self._num_changes == seen
            self._num_outdated = 0 if is_current else self._num_outdated + 1
            if not is_current:
                self._num_changes += 1  # so that the handler's change is not taken for the own one
            yield is_current

    def _record(self, *entries: Query | Event, fit: Fit | None = None) -> None:
        """Write down what happened, then add it to the history.

        Args:
            entries: A query or an event, or an attached query and its outcome; made for the
                history as it is.
            fit: The hyperparameters with which a query was chosen.

        Raises:
            JournalError: If it cannot be written down; nothing is added then.
        """
        if self._journal is not None:
            self._journal.append(*entries, fit=fit)
        for entry in entries:
            self._history.record(entry)
        self._num_changes += 1
        if self._journal is not None:
            self._num_records = self._journal.num_records
            self._journal.write_snapshot_if_due(self._history)

    def _catch_up(self) -> int:
        """Make sure that the history has all that is on record, and that it may be added to.

        The journal is ahead after an interruption between the two. Where a handler has interrupted
        what reads the history, that goes on with the history as it was.

        Returns:
            A number that changes with the history.

        Raises:
            JournalError: In a child that was forked after the journal was opened.
        """
        if self._chooser_in_use is not None:
            self._history, self._cached_chooser = _copy_of(self._history), None
            self._num_changes += 1
        if self._journal is None:
            return self._num_changes
        self._journal.check_process()
        if self._journal.num_records != self._num_records:
            with HandlersOnHold():
                self._read_journal()
                self._cached_chooser = None
                self._num_changes += 1
        return self._num_changes

    def _read_journal(self) -> None:
        assert self._journal is not None
        self._history = self._journal.read()
        self._history.name_points(self.settings.domain.decode)
        self._num_records = self._journal.num_records


def _copy_of(history: History) -> History:
    copied = copy.copy(history)
    for name, value in vars(history).items():
        if isinstance(value, list | dict):
            setattr(copied, name, value.copy())
    copied._rows = history._rows.clone()
    return copied


def _give_children_locks() -> None:
    for loop in list(_loops):
        loop._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_children_locks)


fill_in_docstrings(__name__)
