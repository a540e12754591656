"""The log of a loop: what was asked and told, in the order in which it counts.

In memory the log is the history. With ``storage=``, an entry of the history is an event of a
:class:`~botorch_bandits.loop.store.Store` first, to which other processes may write as well, and
every process folds the same events into the same history.

**The order.** Asks take turns; tells never wait for a choice. The event of a query has in ``seen``
the event up to which its chooser had read the log. It counts right after that event, and what was
told while the choice was made counts after the query: its outcome arrived in a later round. Whoever
asks next has read everything, so these intervals do not overlap. A suggestion is thus a function of
settings, seed and the log up to ``seen``.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch

from botorch_bandits.checks import (
    check_number,
    check_vector,
    level_of_users_line,
    store_checked,
)
from botorch_bandits.fingerprints import (
    EnvironmentWarning,
    difference,
    environment,
    environment_warnings,
    fingerprint,
)
from botorch_bandits.history import Entry, Event, Failure, History, Outcome, Query, Retraction
from botorch_bandits.loop import store as stored
from botorch_bandits.loop.aspects import NOTHING_DECIDED, Decided, Decision
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.store import NewEvent, StorageError, Store, open_store, read_store

CONTENT = "a loop of botorch_bandits, version 6"
"""What the header of a loop's run says."""

Fit = Mapping[str, Any]
"""Hyperparameters as plain values, and the rows to which they were fitted."""


class Log:
    """A history, and the store in which its entries are events; without one, they are in memory.

    Args:
        history: The history; empty if there is a store.
        open_run: Opens the store.
        device: The device of the points.

    Attributes:
        history: Everything that was asked and told.
        unseen: The entries of the history that what is derived from it has not seen yet, in order;
            None if it must be derived anew, since it has seen entries in another order.
        fit: The latest fit on record, if no outcome was retracted since.
        decided: The resets on record that tests decided, if no outcome was retracted since.
    """

    def __init__(
        self,
        history: History,
        open_run: Callable[[], Store] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """See the class."""
        self.history, self._open_run, self._device = history, open_run, device
        self.unseen: list[Query | Event] | None = None
        self.fit: Fit | None = None
        self.decided = NOTHING_DECIDED
        self._seq = 0  # the last event that the history has
        self._later: list[tuple[int, Event]] = []  # what ended queries since the last one was asked
        self._is_whole = True  # whether the history has all events up to that one
        self._is_closed = False
        self._store = None if open_run is None else open_run()

    @property
    def location(self) -> str | None:
        """Where the store is; None in memory."""
        return None if self._store is None else self._store.location

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the connection; a copy opens the same store."""
        return {**vars(self), "_store": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        vars(self).update(state)
        self._store = None if self._open_run is None else self._open_run()

    def close(self) -> None:
        """Close the store; the history stays."""
        self._is_closed = True
        if self._store is not None:
            self._store.close()

    def turn(self, timeout: float | None = None) -> AbstractContextManager[None]:
        """Return a context in which no other process chooses.

        Args:
            timeout: For how many seconds to wait for it at most.

        Raises:
            StorageError: If the store is closed.
        """
        self._check_open()
        return nullcontext() if self._store is None else self._store.turn(timeout)

    def now(self, at: float | None) -> float:
        """Return the time of a new event in seconds: as given, or now.

        Args:
            at: The time as given.
        """
        if at is not None:
            return check_number("at", at)
        return time.time() if self._store is None else self._store.now

    def _check_open(self) -> None:
        if self._is_closed and self._store is not None:
            raise StorageError(f"{self.location} is closed. Build the loop again to continue.")

    def record(
        self, *entries: Entry, fit: Fit | None = None, resets: Sequence[Decision] | None = None
    ) -> Sequence[Entry]:
        """Write entries to the store, and add them to the history.

        Args:
            entries: A query or an event, or an attached query and its outcome; made for the history
                as it is.
            fit: The hyperparameters with which a query was chosen; written if they are new.
            resets: The resets that tests had decided when a query was chosen; written likewise.

        Returns:
            The entries; none if another process has asked since, or ended this query. Nothing is
            written then, and the history has what that process wrote.

        Raises:
            StorageError: If they cannot be written; nothing is added then.
        """
        if self._store is None:
            for entry in entries:
                self._add(entry)
            return entries
        self._check_open()
        first, about = entries[0], entries[0].query_id
        more: dict[str, Any] = {}
        if first.state == Query.state:
            more = {"seen": self._seq, "fit": None if fit == self.fit else fit}
            if resets is not None and len(resets) != len(self.decided.resets):
                more["resets"] = [*map(_in_plain_numbers, resets)]
        own = [event_of(first, **more), *map(event_of, entries[1:])]
        is_first = False

        def compose(news: list[stored.Event]) -> Sequence[NewEvent]:
            nonlocal is_first
            is_first = all(each.kind != "asked" if more else each.query != about for each in news)
            return own if is_first else ()

        added: Any = self._take(self._store.write(self._seq, compose))
        return added[-len(own) :] if is_first else ()

    def catch_up(self) -> None:
        """Read what was written to the store since the last time."""
        if self._store is None or self._is_closed:
            return
        if not self._is_whole:  # after an interruption between the store and the history
            old = self.history
            sizes = old.dim, old.context_dim, old.num_constraints, old.maximize
            vars(old).update(vars(History(*sizes)))
            self._seq, self._later = 0, []
            self.unseen = self.fit = None
            self.decided = NOTHING_DECIDED
        self._take(self._store.news(self._seq))

    def distrust(self) -> None:
        """Read the store from its beginning the next time, since another thread may have read."""
        self._is_whole = False

    def _take(self, events: Sequence[stored.Event]) -> list[Query | Event]:
        """Add events that follow those that the history has, and return their entries."""
        self._is_whole, added = False, []
        for event in events:
            try:
                entry = self._entry_of(event)
                self._add(entry, self._not_seen_by(event))
            except _NO_EVENT as error:
                reason = f"there is no {error}." if isinstance(error, KeyError) else str(error)
                raise StorageError(
                    f"event {event.seq} ({event.kind} of query {event.query}) of {self.location} "
                    f"does not fit those before it: {reason:.300} Was it written by a later "
                    "version of the package, or by another program?"
                ) from error
            self._seq = event.seq
            added.append(entry)
            if event.kind != "asked":
                self._later.append((event.seq, entry))  # type: ignore[arg-type]
        self._is_whole = True
        return added

    def _not_seen_by(self, event: stored.Event) -> list[Event]:
        """Return what was told while a query was chosen; it counts after the query."""
        if event.kind != "asked":
            return []
        later = [entry for seq, entry in self._later if seq > event.body["seen"]]
        self._later = []
        return later

    def _add(self, entry: Query | Event, later: Sequence[Event] = ()) -> None:
        """Add an entry to the history, before the last ones if these count later."""
        self.history.record(entry)
        for each in later:
            each.arrive_later()
            if each.state == Retraction.state:  # what the query's chooser knew had its outcome
                self.fit, self.decided = None, NOTHING_DECIDED
        if self.unseen is None:
            return
        place = len(self.unseen) - len(later)
        if place < 0 or entry.state == Retraction.state:
            self.unseen = None
        else:
            self.unseen.insert(place, entry)

    def _entry_of(self, event: stored.Event) -> Query | Event:
        """Return the entry of the history that an event is."""
        history, body, about = self.history, event.body, event.query
        if event.kind == "asked":
            if about != history.num_queries:
                raise ValueError(f"the id is {about}, but it must be {history.num_queries}.")
            self.fit = body.get("fit", self.fit)
            if body["origin"] != "attached":  # nothing is tested for a point that is attached
                resets = body.get("resets", self.decided.resets)
                self.decided = Decided(tuple(resets), about)
            context = body.get("context")
            query = history.new_query(
                check_vector("x", body["x"]).to(self._device),
                body["origin"],
                event.at,
                None if context is None else check_vector("context", context).to(self._device),
                {k: float(v) for k, v in body.get("diagnostics", {}).items()},
                body.get("parameters"),
                body.get("restriction"),
            )
            store_checked(query, asked_by=event.by)
            return query
        entry: Event
        constraints = body.get("constraints")
        if event.kind == Outcome.state:
            weighting = body.get("count"), body.get("noise")
            entry = history.new_outcome(about, body["reward"], event.at, constraints, *weighting)
        elif event.kind == Failure.state:
            given = event.at, body.get("reason"), body.get("avoided", False), constraints
            entry = history.new_failure(about, *given)
        elif event.kind == Retraction.state:
            self.fit, self.decided = None, NOTHING_DECIDED  # they may use what no longer counts
            entry = history.new_retraction(about, body["reason"], event.at)
        else:
            raise ValueError(f"events of the kind {event.kind!r} are unknown.")
        if entry in history:
            raise ValueError(f"query {about} has this {event.kind} event already.")
        store_checked(entry, by=event.by)
        return entry


_NO_EVENT = (KeyError, TypeError, ValueError)
"""The errors of reading if a part of an event is missing or of another kind."""


def event_of(entry: Query | Event, **more: Any) -> NewEvent:
    """Return what a store keeps of an entry of a history.

    Args:
        entry: The entry.
        more: What else its body says.
    """
    if isinstance(entry, Query):
        kind, at, body = (
            "asked",
            entry.asked_at,
            {
                "x": entry.x.tolist(),
                "origin": entry.origin,
                "parameters": entry.parameters,
                "context": None if entry.context is None else entry.context.tolist(),
                "restriction": entry.restriction,
                "diagnostics": _in_plain_numbers(entry.diagnostics),
            },
        )
    else:
        kind, at = entry.state, entry.arrived_at
        body = {name: vars(entry)[name] for name in _KEPT[kind]}
        if isinstance(entry, Retraction):
            at = entry.retracted_at
        if "constraints" in body:
            body["constraints"] = list(entry.constraints) or None
    body = {k: v for k, v in {**body, **more}.items() if v is not None and v is not False}
    return NewEvent(kind, entry.query_id, body, at)


_KEPT = {
    Outcome.state: ("reward", "constraints", "count", "noise"),
    Failure.state: ("reason", "constraints", "avoided"),
    Retraction.state: ("reason",),
}
"""What a store keeps of an event, next to its query, the time and who wrote it."""


def _in_plain_numbers(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return numbers by name as JSON has them, which are finite; others become text."""
    return {
        name: repr(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in numbers.items()
    }


class DifferentSettingsError(ValueError):
    """A run was begun with other settings than those with which it is opened.

    Attributes:
        differences: One line for each difference.
    """

    def __init__(self, location: str, differences: list[str]) -> None:
        """Put the differences into the message.

        If the domain differs, the lines on how the model encodes its points are only counted,
        because they usually follow from the domain.

        Args:
            location: Where the run is.
            differences: One line for each difference.
        """
        self.differences = differences
        shown = differences
        if any(line.startswith("domain.") for line in differences):
            shown = [line for line in differences if not line.startswith(_OF_ENCODING)]
            num_hidden = len(differences) - len(shown)
            if num_hidden:
                shown = [
                    *shown,
                    f"model: encodes the points of that domain (further differences: {num_hidden}; "
                    "the attribute differences of this error lists them all)",
                ]
        text = "\n  ".join(shown)
        super().__init__(
            f"{location} was begun with other settings:\n  {text}\nOpen it with those, or choose "
            "another storage= and attach the outcomes of this run, each with its values under the "
            "new settings."
        )


_OF_ENCODING = ("model.bounds", "model.encode.")
"""How the lines begin that say how a model encodes the points of its domain."""


def open_log(settings: LoopSettings, storage: str | Path | None) -> Log:
    """Return the log of a loop, which continues what the storage has.

    Args:
        settings: The loop's settings.
        storage: Where the run is; None for memory.

    Raises:
        DifferentSettingsError: If the run was begun with other settings.
        StorageError: If the storage cannot be used.
        UnnamedSettingError: If a setting has no name in a file, such as a lambda.
    """
    if storage is None:
        return Log(History(*settings.history_sizes))
    points = settings.domain.sample(1, torch.Generator().manual_seed(0))
    header = {
        "content": CONTENT,
        "settings": fingerprint(vars(settings)),
        "environment": environment(points.device),
    }
    if "://" not in str(storage):
        storage = Path(storage).absolute()  # a copy may be in another folder
    open_run = partial(_open_run, storage, header)
    log = Log(History(*settings.history_sizes), open_run, points.device)
    try:
        log.catch_up()
    except BaseException:
        log.close()
        raise
    return log


def _open_run(storage: str | Path, header: Mapping[str, Any]) -> Store:
    without_password = re.sub("//[^/]*@", "//", str(storage))
    return open_store(storage, header, partial(_check_header, without_password, header))


def _check_header(location: str, header: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Raise an error if a run was begun with other settings; warn if in another environment."""
    _check_content(location, recorded)
    differences = difference(recorded["settings"], header["settings"])
    if differences:
        raise DifferentSettingsError(location, differences)
    lines = environment_warnings(recorded["environment"], header["environment"])
    if lines:
        warnings.warn(
            f"{location} is continued elsewhere: " + " ".join(lines),
            EnvironmentWarning,
            stacklevel=level_of_users_line(),
        )


def _check_content(location: str, header: Mapping[str, Any]) -> None:
    if header.get("content") != CONTENT:
        raise StorageError(
            f"{location} is not a run that this version can read: its header says "
            f"{header.get('content')!r:.80}, expected {CONTENT!r}. Choose another storage=, or "
            "continue it with the version of botorch_bandits that wrote it."
        )


def read_history(storage: str | Path) -> tuple[Mapping[str, Any], History]:
    """Return the settings on record and the history of a run, without its loop.

    Args:
        storage: Where the run is.

    Raises:
        StorageError: If it is not a run of a loop, or an event does not fit those before it.
    """
    header, events = read_store(storage)
    _check_content(str(storage), header)
    settings: Mapping[str, Any] = header["settings"]
    dims = (len(event.body["x"]) for event in events if event.kind == "asked")
    counts = (len(event.body.get("constraints", ())) for event in events if event.kind == "told")
    sizes = next(dims, 1), settings["context_dim"], next(counts, 0), settings["maximize"]
    log = Log(History(*sizes))
    log._take(events)
    return settings, log.history


# --- Callers of a loop take turns: threads, processes and forked children -------------------------
#
# A thread waits for its turn. A forked child gets a new lock, because the parent's lock may be
# held forever, and reads the store anew, because another thread may have been reading it. A
# signal handler interrupts its own thread, perhaps in the middle of a record, and must not call
# the loop.


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
            is_alike = self.settings.restart is None or chooser.restarts.agrees_with(log.decided)
            if not is_alike:  # another machine decided otherwise
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
