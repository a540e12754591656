"""Callers of a loop take turns: threads, processes and forked children.

A thread waits for its turn. A forked child gets a new lock, because the parent's lock may be held
forever, and reads the store anew, because another thread may have been reading it. A signal handler
interrupts its own thread, perhaps in the middle of a record, and must not call the loop.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Self

import torch

from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.log import Log
from botorch_bandits.loop.settings import LoopSettings


class Turns:
    """A lock for one thread at a time, which may take it again; gradients are enabled inside.

    Searches and fits need gradients, and must also work inside ``torch.no_grad()`` and
    ``torch.inference_mode()``.

    Args:
        catch_up: Reads what other processes wrote, when a thread takes the lock and does not have
            it yet: a call of a loop sees one state of the log.
    """

    def __init__(self, catch_up: Callable[[], None]) -> None:
        """See the class."""
        lock = threading.RLock()
        self._acquire, self._release, self._catch_up = lock.acquire, lock.release, catch_up
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
        if len(self._guards) == 1:
            try:
                self._catch_up()
            except BaseException:
                self.__exit__()
                raise
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous modes, and release the lock."""
        guard = self._guards.pop()
        if guard is not None:
            guard.close()
        self._release()


_loops: weakref.WeakSet[TakesTurns] = weakref.WeakSet()


class TakesTurns:
    """The log of a loop and what is derived from it, for one caller at a time.

    Args:
        log: The log.
    """

    settings: LoopSettings
    _lock: Turns

    def __init__(self, log: Log) -> None:
        """See the class."""
        self._log, self._history = log, log.history
        self._cached_chooser: Chooser | None = None  # None: must be derived from the history
        self._begin_turns()

    def _begin_turns(self) -> None:
        self._lock = Turns(self._log.catch_up)
        _loops.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy, without the lock; with ``storage=`` it opens the same run."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state with a new lock."""
        vars(self).update(state)
        self._begin_turns()

    @property
    def _chooser(self) -> Chooser:
        """What is derived from the history; to be used only while the lock is held."""
        log, chooser = self._log, self._cached_chooser
        unseen, log.unseen = log.unseen, []
        if chooser is None or unseen is None:
            self._cached_chooser = None  # the history may be one from which nothing can be derived
            chooser = Chooser(self.settings, self._history, log.decided)
        elif unseen:
            self._cached_chooser = None  # an error must not leave it half done
            for entry in unseen:
                chooser.hear(entry)
            if not chooser.restarts.agrees_with(log.decided):  # another machine decided otherwise
                chooser = Chooser(self.settings, self._history, log.decided)
        if log.fit is not None and unseen != []:
            chooser.restore_fit(log.fit)
        self._cached_chooser = chooser
        return chooser


def _give_children_locks() -> None:
    for loop in list(_loops):
        loop._log.distrust()
        loop._begin_turns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_children_locks)
