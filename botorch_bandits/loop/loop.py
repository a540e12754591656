"""The loop that a user asks and tells: :class:`BanditLoop`.

A suggestion is a pure function of settings, history and seed. The loop keeps a history and
derives everything else from it, so a loop that continues a run from its storage suggests the same
point.
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
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast, overload

import torch
from botorch.models.model import Model

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.change_points import Reset, Restart
from botorch_bandits.checks import (
    check_context,
    check_number,
    check_positive,
    check_vector,
    explains_arguments,
    is_list,
    level_of_users_line,
    name_of,
    store_checked,
)
from botorch_bandits.confidence import EvidenceTable, Guarantee, ModelCheck
from botorch_bandits.constraints import Ledger, MultiplierOverflowError, MultiplierRule
from botorch_bandits.domains import Domain
from botorch_bandits.fingerprints import (
    EnvironmentWarning,
    difference,
    environment,
    environment_warnings,
    fingerprint,
)
from botorch_bandits.history import Entry, Event, Failure, History, Outcome, Query, Retraction
from botorch_bandits.loop import store as stored
from botorch_bandits.loop.aspects import (
    NOTHING_DECIDED,
    ChangeTestRecord,
    Decided,
    Feasibility,
)
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.reports import (
    Recommendation,
    best_now,
    check_of_loop,
    differences_of_replay,
    evidence_of_loop,
    recommendation_now,
    warn_of_drift_rate,
    warn_of_repeated_failures,
)
from botorch_bandits.loop.settings import (
    DEFAULT_INITIAL,
    AcquisitionFactory,
    LoopSettings,
    ModelFactory,
    check_weighted,
    read_restriction,
    turned_check,
)
from botorch_bandits.loop.store import (
    NewEvent,
    StorageError,
    Store,
    open_store,
    read_store,
    store_at,
)
from botorch_bandits.loop.view import CensoredView, Feedback, Forgetting, Hallucinated
from botorch_bandits.models import BanditGPRecipe

# --- The log of a loop: what was asked and told, in the order in which it counts ------------------
# In memory the log is the history. With ``storage=``, an entry of the history is an event of a
# :class:`~botorch_bandits.loop.store.Store` first, to which other processes may write as well,
# and every process folds the same events into the same history.
#
# **The order.** Asks take turns; tells never wait for a choice. The event of a query has in
# ``seen`` the event up to which its chooser had read the log. It counts right after that event,
# and what was told while the choice was made counts after the query: its outcome arrived in a
# later round. Whoever asks next has read everything, so these intervals do not overlap. A
# suggestion is thus a function of settings, seed and the log up to ``seen``.


CONTENT = "a loop of botorch_bandits, version 6"
"""What the header of a loop's run says."""

Fit = Mapping[str, Any]
"""Hyperparameters as plain values, and the rows to which they were fitted."""


class Log:
    """The log of a loop in memory, which is its history.

    Args:
        history: The history.

    Attributes:
        history: Everything that was asked and told.
        unseen: The entries of the history that what is derived from it has not seen yet, in order;
            None if it must be derived anew, since it has seen entries in another order.
        fit: The latest fit on record, if no outcome was retracted since.
        decided: The resets on record that tests decided, if no outcome was retracted since.
        location: Where the run is kept; None in memory.
        turn: From the seconds to wait at most (None without limit), returns a context in which no
            other process chooses.
        catch_up: Reads what other processes wrote; None if there are none.
    """

    fit: Fit | None = None
    decided = NOTHING_DECIDED
    location: str | None = None
    turn: Callable[..., AbstractContextManager[None]] = staticmethod(nullcontext)
    catch_up: Callable[[], None] | None = None

    def __init__(self, history: History) -> None:
        """See the class."""
        self.history, self.unseen = history, cast(list[Query | Event] | None, None)

    def close(self) -> None:
        """Close the store, if there is one; the history stays."""

    def distrust(self) -> None:
        """Read a store from its beginning the next time, since another thread may have read."""

    def now(self, at: float | None) -> float:
        """Return the time of a new event in seconds: as given, or now.

        Args:
            at: The time as given.
        """
        return time.time() if at is None else check_number("at", at)

    def record(self, *entries: Entry, chooser: Chooser | None = None) -> Sequence[Entry]:
        """Add entries to the history, and write them to the store before, if there is one.

        Args:
            entries: A query or an event, or an attached query and its outcome; made for the history
                as it is.
            chooser: What chose a query; its hyperparameters, and the resets that its tests decided,
                are written if they are new.

        Returns:
            The entries; none if another process has asked since, or ended this query. Nothing is
            written then, and the history has what that process wrote.

        Raises:
            StorageError: If they cannot be written; nothing is added then.
        """
        unseen, self.unseen = self.unseen, None  # derived anew if this is interrupted
        for entry in entries:
            self.history.record(entry)
            if entry.state == Retraction.state:
                unseen = None
            elif unseen is not None:
                unseen.append(entry)
        self.unseen = unseen
        return entries


class StoredLog(Log):
    """A log whose entries are events of a store, to which other processes write as well.

    Args:
        history: The history, which is empty.
        open_run: Opens the store.
        device: The device of the points.
    """

    def __init__(
        self, history: History, open_run: Callable[[], Store], device: torch.device | str = "cpu"
    ) -> None:
        """See the class."""
        super().__init__(history)
        self._open_run, self._device = open_run, device
        self._seq = 0  # the last event that the history has
        self._later: list[tuple[int, Event]] = []  # what ended queries since the last one was asked
        self._is_whole = True  # whether the history has all events up to that one
        self._is_closed = False
        self._store = open_run()
        self.location = self._store.location

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the connection; a copy opens the same store."""
        return {name: value for name, value in vars(self).items() if name != "_store"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state."""
        vars(self).update(state)
        self._store = self._open_run()

    def close(self) -> None:
        self._is_closed = True
        self._store.close()

    def turn(self, timeout: float | None = None) -> AbstractContextManager[None]:
        """Return a context in which no other process chooses.

        Args:
            timeout: For how many seconds to wait for it at most.

        Raises:
            StorageError: If the store is closed.
        """
        self._check_open()
        return self._store.turn(timeout)

    def now(self, at: float | None) -> float:
        return super().now(self._store.now if at is None else at)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StorageError(f"{self.location} is closed. Build the loop again to continue.")

    def record(self, *entries: Entry, chooser: Chooser | None = None) -> Sequence[Entry]:
        self._check_open()
        first, about = entries[0], entries[0].query_id
        more: dict[str, Any] = {}
        if first.state == Query.state:
            more = {"seen": self._seq}
            if chooser is not None:
                fit, resets = chooser.latest_fit(), chooser.restarts.decisions
                more["fit"] = None if fit == self.fit else fit
                if len(resets) != len(self.decided.resets):
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
        if self._is_closed:
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
        self._is_whole = False

    def _take(self, events: Sequence[stored.Event]) -> list[Query | Event]:
        """Add events that follow those that the history has, and return their entries."""
        self._is_whole, added = False, []
        for event in events:
            try:
                entry = self._entry_of(event)
                super().record(entry)
            except _NO_EVENT as error:
                reason = f"there is no {error}." if isinstance(error, KeyError) else str(error)
                raise StorageError(
                    f"event {event.seq} ({event.kind} of query {event.query}) of {self.location} "
                    f"does not fit those before it: {reason:.300} Was it written by a later "
                    "version of the package, or by another program?"
                ) from error
            self._seq = event.seq
            added.append(entry)
            if event.kind == "asked":
                self._put_later(event)
            else:
                self._later.append((event.seq, entry))  # type: ignore[arg-type]
        self._is_whole = True
        return added

    def _put_later(self, asked: stored.Event) -> None:
        """Put what was told while a query was chosen after the query, which is the last entry."""
        later = [entry for seq, entry in self._later if seq > asked.body["seen"]]
        self._later = []
        for each in later:
            each.arrive_later()
            if each.state == Retraction.state:  # what the query's chooser knew had its outcome
                self.fit, self.decided = None, NOTHING_DECIDED
        if self.unseen is None:
            return
        place = len(self.unseen) - 1 - len(later)
        if place < 0:
            self.unseen = None
        else:
            self.unseen.insert(place, self.unseen.pop())

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
                body.get("arm"),
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
                "arm": entry.arm,
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
    log = StoredLog(History(*settings.history_sizes), open_run, points.device)
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
    log = StoredLog(History(*sizes), partial(store_at, storage, "ro"))
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
            it yet: a call of a loop sees one state of the log. None if there are none.
    """

    def __init__(self, catch_up: Callable[[], None] | None) -> None:
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
        if self._catch_up is not None and len(self._guards) == 1:
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


_loops: weakref.WeakSet[BanditLoop] = weakref.WeakSet()


def _give_children_locks() -> None:
    for loop in list(_loops):
        loop._log.distrust()
        loop._begin_turns()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_children_locks)


class BanditLoop:
    """Sequential decisions under uncertainty: :meth:`ask`, evaluate, :meth:`tell`, repeat.

    The reward is maximized, or with ``maximize=False`` a cost minimized. Any number of queries may
    be asked before an outcome is told, and outcomes may be told in any order; queries without an
    outcome are passed to the acquisition function as pending points. Several threads may ask, tell
    and read on one loop; they take turns. Recipes and rules are copied, so later changes to the
    originals do not affect the loop.

    With ``storage=``, everything that is asked or told is on disk before the call returns. A loop
    with the same settings and storage continues the run as if nothing had happened, and loops in
    several processes, or on several machines, ask and tell on one run: they choose one after
    another, and each sees what the others were told.

    Args:
        domain: The domain of the points: :class:`~botorch_bandits.Space` (named parameters),
            :class:`~botorch_bandits.Box`, :class:`~botorch_bandits.Arms`, or a
            :class:`~botorch_bandits.Domain` of your own.
        model: A recipe such as ``BanditGP.with_kernel(...)`` (for one per epoch of multipliers,
            see ``models=`` of :class:`.AdditiveEpochs`); or any callable from inputs ``n x d`` and
            rewards ``n x 1`` that arrived to a BoTorch model (called once a change of the data,
            with ``n > 0``). If omitted, a :class:`~botorch_bandits.FittedSingleTaskGP`, which
            learns from the data.
        acquisition: A recipe such as ``ImprovedUpperConfidenceBound.with_options(...)``,
            ``RandomSearch()``, or any callable that takes a model, pending points (``n x d`` or
            None) and the largest outcome that the model has (None before the first; with
            ``maximize=False``, minus the least cost), which BoTorch calls ``best_f``, and returns a
            BoTorch acquisition function. ``"best"``, the default, finds a good point, and
            ``"earned"`` collects reward during the run; both were chosen by measurement, and
            neither comes with a theorem.
        horizon: The number of rounds, if it is known. Asking for more is an error.
        feedback: How queries without an outcome are treated: ``Hallucinated()`` (the default),
            ``Ignored()`` or ``Censored(...)``. With censored feedback and ``BanditGP``, the prior
            mean is the minimum, if it is known.
        forgetting: How the model treats old outcomes if the reward function changes:
            ``SlidingWindow(...)``, ``ExponentialWeights(...)`` or ``TimeVaryingKernel(...)``; None
            keeps all of them. With a time-varying kernel, the first column of the model's inputs is
            the round.
        context_dim: The dimension of the contexts; see :meth:`ask`. The model's inputs are then
            ``(context, point)``, and its kernel is over both.
        restart: When the loop starts over because the reward function changes:
            ``EvidenceRestart(...)``, ``ChangePointRestart(...)`` or one of the baselines. It goes
            with any acquisition.
        constraints: The rule for the multipliers of constraints that must hold on average:
            ``AdditiveEpochs(...)``, ``MultiplicativeEpochs(...)`` or ``PrimalDual(...)``. Outcomes
            then come with constraint values.
        num_initial: The number of rounds at the start, and after each reset, that choose uniformly
            at random; if omitted, 0, or 5 with the acquisitions ``"best"`` and ``"earned"``.
        seed: The seed of everything that is drawn at random.
        maximize: If False, outcomes are costs, and the loop minimizes them. The history, the
            storage, :meth:`best`, diagnostics and plots show the costs as they were told; a prior
            mean and the ``minimum`` of ``Censored`` (the largest cost) have the same sign. Models,
            including those that your own function builds, see minus the cost. Constraints keep
            their sign.
        repeats: If 1.1, a point is played repeatedly before the next one is chosen, for as long as
            the bound on regret grows by at most 10 percent. The computing time then depends on the
            few distinct points, not on the number of rounds.
        storage: Where the run is recorded: the path of an SQLite file, or the URL of a PostgreSQL
            database (``"postgresql://user@host/database#run"``), which many machines can reach. If
            there is a run, the loop continues it. None for memory.

    Raises:
        TypeError: If an argument is of the wrong kind, or a setting cannot be written to a storage
            (``UnnamedSettingError``).
        ValueError: If a setting is infeasible on this domain, or the run was begun with other
            settings (:class:`~botorch_bandits.DifferentSettingsError`).
        StorageError: If the storage cannot be used.

    Warns:
        EnvironmentWarning: If the run was begun with another processor, versions or threads.
        UserWarning: If ``forgetting=TimeVaryingKernel(rate)`` comes with an ``EvidenceRestart``
            that has another ``drift_rate``, or none.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import Box, BanditGP, ImprovedUpperConfidenceBound
        >>> model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2)
        >>> rule = ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1)
        >>> loop = BanditLoop(Box([[0.0], [1.0]]), model, rule, seed=0)
        >>> for _ in range(3):
        ...     query = loop.ask()
        ...     outcome = loop.tell(query.id, reward=-float((query.x - 0.3) ** 2))
        >>> loop.history
        History(3 queries, 3 arrived)

        A run that goes on later, in another process as well:

        >>> import tempfile
        >>> settings = dict(model=model, acquisition=rule, seed=0)
        >>> path = Path(tempfile.mkdtemp()) / "run.db"
        >>> with BanditLoop(Box([[0.0], [1.0]]), **settings, storage=path) as loop:
        ...     outcome = loop.tell(loop.ask().id, reward=1.0)
        >>> with BanditLoop(Box([[0.0], [1.0]]), **settings, storage=path) as loop:
        ...     loop.history
        History(1 queries, 1 arrived)
    """

    _num_at_opening = 0  # queries of the history with which the loop was built or opened

    @explains_arguments(
        "BanditLoop",
        journal="Pass storage=, such as storage='run.db'.",
        clock="Pass at= to ask, tell, fail, attach and retract.",
        minimize="To minimize, pass maximize=False.",
        objective="Pass acquisition='best' or acquisition='earned'.",
        direction="To minimize, pass maximize=False.",
        random_state="Pass seed=, an integer.",
    )
    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        domain: Domain,
        model: BanditGPRecipe | ModelFactory | None = None,
        acquisition: AcquisitionRecipe | RandomSearch | AcquisitionFactory | str | None = None,
        *,
        horizon: int | None = None,
        feedback: Feedback | None = None,
        restart: Restart | None = None,
        constraints: MultiplierRule | None = None,
        forgetting: Forgetting | None = None,
        num_initial: int | None = None,
        context_dim: int = 0,
        seed: int = 0,
        maximize: bool = True,
        repeats: float | None = None,
        storage: str | Path | None = None,
    ) -> None:
        """See the class."""
        acquisition = "best" if acquisition is None else acquisition
        if num_initial is None:
            num_initial = DEFAULT_INITIAL if isinstance(acquisition, str) else 0
        self.settings = settings = LoopSettings(
            domain=domain,
            model=model,
            acquisition=acquisition,
            horizon=horizon,
            feedback=Hallucinated() if feedback is None else feedback,
            restart=restart,
            constraints=constraints,
            forgetting=forgetting,
            num_initial=num_initial,
            context_dim=context_dim,
            seed=seed,
            maximize=maximize,
            repeats=repeats,
        )
        warn_of_drift_rate(settings)
        self._noise_and_range = settings.noise_and_range
        self._log = open_log(settings, storage)
        self._history = self._log.history
        self._cached_chooser: Chooser | None = None  # None: must be derived from the history
        self._begin_turns()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

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

    def __repr__(self) -> str:
        """Show the domain, the acquisition and the number of rounds so far."""
        played = self.settings.played
        name = name_of(self.settings.acquisition if played is None else played.acquisition_class)
        with self._lock:
            return f"BanditLoop({self.settings.domain!r}, {name}, {self._history!r})"

    @property
    def storage(self) -> str | None:
        """Where the run is recorded; None in memory."""
        return self._log.location

    def close(self) -> None:
        """Close the storage, if there is one; a second call does nothing."""
        with self._lock:
            self._log.close()

    def __enter__(self) -> Self:
        """Return the loop itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the storage."""
        self.close()

    def ask(
        self,
        context: Any = None,
        *,
        available: Any = None,
        fixed: Mapping[Any, Any] | None = None,
        avoid: Any = None,
        at: float | None = None,
        timeout: float | None = None,
    ) -> Query:
        """Choose the next point, record the query and return it.

        With ``available``, ``fixed`` or ``avoid``, the acquisition function is maximized over the
        points that remain, and uniform draws are taken from these points; nothing else changes.
        Regret is then measured against the best of these points, and :meth:`guarantee` states what
        that requires.

        On a run that several processes share, asks take turns: the query is chosen from everything
        that was told when its turn came. Queries that other processes asked are pending queries
        like those of this one; see :attr:`pending`.

        Args:
            context: ``context_dim`` numbers that are known before the choice; the loop chooses only
                the point. None without contexts.
            available: What can be chosen in this round: indices of arms, one boolean per arm, or
                points as rows; on a box or a space, a list or a table of points.
            fixed: Values that are fixed in this round, by parameter name on a space and by column
                index elsewhere.
            avoid: Arms (in the same format as ``available``) or points that must not be chosen in
                this round, such as those of running queries. If empty, nothing is avoided. On a box
                or a space, a query keeps the distance 0.01 from them, in sides of the box; whole
                numbers and categories count 1 if they differ.
            at: The time in seconds of a query that was asked at another time, as in a replay; now
                if omitted. Delays in seconds are differences of such times.
            timeout: For how many seconds to wait at most while others choose; without limit if
                omitted.

        Returns:
            A :class:`~botorch_bandits.Query`; evaluate the reward at ``query.x``, or at
            ``query.parameters`` under a :class:`~botorch_bandits.Space`, and tell it with
            ``query.id``.

        Raises:
            RuntimeError: If ``horizon`` rounds were asked already.
            TypeError: If the context is a tensor whose dtype is not float64, or an argument has the
                wrong type.
            ValueError: If the context is missing, given without ``context_dim``, of the wrong
                length or not finite; or if nothing is left to choose from, a value is not in the
                domain, or the loop does not support the restriction. Nothing is recorded then.
            StorageError: If the query cannot be written to the storage, in which case nothing is
                recorded, or its turn does not come in time (``TurnTimeout``).

        Example:
            >>> from botorch_bandits import Arms
            >>> loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), None, RandomSearch())
            >>> loop.ask(available=[0, 2], avoid=[2]).x
            tensor([0.], dtype=torch.float64)
        """
        context = check_context(self.settings.context_dim, context)
        limits = None
        if not (available is None and fixed is None and avoid is None):
            limits = read_restriction(self.settings, available, fixed, avoid)
        record = None if limits is None else limits.record
        if timeout is not None:
            timeout = check_positive("timeout", timeout)
        with self._log.turn(timeout), self._lock:
            while True:
                self._check_horizon()
                now = self._log.now(at)
                # put back when the query is on record: an error leaves it in a round that it began
                chooser, self._cached_chooser = self._chooser, None
                x, origin, diagnostics = chooser.choose(context, now, limits)
                domain = self.settings.domain
                told = now, context, diagnostics, domain.decode(x), record, domain.arm_of(x)
                query = self._history.new_query(x, origin, *told)
                if recorded := self._log.record(query, chooser=chooser):
                    self._cached_chooser = chooser
                    return recorded[0]

    def tell(
        self,
        query_id: int,
        reward: Any,
        constraints: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
        at: float | None = None,
    ) -> Outcome:
        """Record the reward of a query, whichever process asked it.

        With ``restart=``, the outcome of a uniform query may bring a reset; see :attr:`resets`.

        Telling the same outcome again does nothing and returns the recorded outcome. An outcome
        that is told while another process chooses counts after the query that it chooses.

        Args:
            query_id: The id of a query that :meth:`ask` returned.
            reward: Any finite real number of absolute value at most 1e50: a Python or numpy number,
                or a tensor with one entry, of any precision; True and False count as 1 and 0.
            constraints: One such number for each constraint, or a float64 tensor; a value of at
                most 0 is feasible. None without constraints.
            count: The number of observations whose means these values are, such as the clicks of
                ``count`` impressions; it must not depend on the observed values.
            noise: The variance of this reward's noise, if it differs from the model's; it must be
                known before the reward is observed. The noise variances of constraint values
                differ from the model's by the same factor.
            at: The time in seconds, as for :meth:`ask`.

        Raises:
            KeyError: If the id was never asked.
            TypeError: If the reward is not one real number, or ``count`` not an integer.
            ValueError: If the reward or a constraint value is NaN, infinite or larger than 1e50 in
                absolute value, or leads to a multiplier or a penalized outcome that is; if
                constraint values are missing or too many; if the query already has a different
                reward, has failed, or was retracted; if the reward is below the minimum of censored
                feedback by more than noise explains; if ``count`` or ``noise`` is not positive,
                both are given, or a part of the loop does not support them. Nothing is recorded
                then.
            StorageError: If the outcome cannot be written to the storage. Nothing is recorded then.
        """
        with self._lock:
            while True:
                given = reward, self._log.now(at), constraints, count, noise
                outcome = self._history.new_outcome(query_id, *given)
                if outcome in self._history:
                    return outcome
                self._check_told(outcome)
                if recorded := self._log.record(outcome):
                    return recorded[0]

    @overload
    def attach(
        self,
        x: Any,
        reward: None = None,
        *,
        context: Any = None,
        at: float | None = None,
    ) -> Query: ...

    @overload
    def attach(
        self,
        x: Any,
        reward: Any,
        constraints: Any = None,
        context: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
        at: float | None = None,
    ) -> Outcome: ...

    def attach(
        self,
        x: Any,
        reward: Any = None,
        constraints: Any = None,
        context: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
        at: float | None = None,
    ) -> Outcome | Query:
        """Record a point that was evaluated elsewhere and its reward, or one still in evaluation.

        It counts as a round of the loop: among ``num_initial`` and ``horizon``, and for widths that
        grow with the round. It is a row of the model like any other. Its query has the origin
        ``"attached"``, and tests for a change ignore it.

        Without a reward, the query is pending, as if :meth:`ask` had returned it in this round:
        tell its outcome by its id, or report that it failed.

        Args:
            x: The point, in the domain; under a :class:`~botorch_bandits.Space`, values by name
                (a dict or a row of a data frame) or coordinates.
            reward: As for :meth:`tell`; None if it is not known yet.
            constraints: As for :meth:`tell`; given together with the reward.
            context: The ``context_dim`` numbers of the context in which the point is evaluated.
                None without contexts.
            count: As for :meth:`tell`; given together with the reward.
            noise: As for :meth:`tell`; given together with the reward.
            at: As for :meth:`ask`.

        Returns:
            The outcome, or the query if there is no reward.

        Raises:
            RuntimeError: If ``horizon`` rounds were asked already.
            TypeError: If a value is of the wrong kind.
            ValueError: If the point is outside the domain; if a value is NaN, infinite, too large
                (see :meth:`tell`), missing, or given where none is expected. Nothing is recorded
                then.
            StorageError: If it cannot be written to the storage. Nothing is recorded then.

        Warns:
            UserWarning: Once, if the same row was attached before the loop was opened, as by a
                script that runs again. It then counts twice.

        Example:
            >>> from botorch_bandits import Arms, BanditLoop, RandomSearch
            >>> loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), None, RandomSearch())
            >>> query = loop.attach([0.5])
            >>> loop.history.state(query.id)
            'pending'
            >>> loop.tell(query.id, 2.0).reward
            2.0
        """
        if reward is None:
            given = {"constraints": constraints, "count": count, "noise": noise}
            for name, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"{name} is {value!r}, but reward is missing, and both are told together. "
                        f"Pass the reward, or attach the point alone and pass {name}= to tell()."
                    )
        check_one_point(x)
        named = self.settings.domain.decode(x)  # given values stay exactly as they were given
        x = self.settings.domain.check_point("x", x)
        context = check_context(self.settings.context_dim, context)
        with self._log.turn(), self._lock:
            while True:
                self._check_horizon()
                now = self._log.now(at)
                query = self._history.new_query(
                    x, "attached", now, context, None, named, None, self.settings.domain.arm_of(x)
                )
                entries: list[Query | Outcome] = [query]
                if reward is not None:
                    outcome = self._history.outcome_of(
                        query.id, reward, now, query.round_number, constraints, count, noise
                    )
                    self._check_told(outcome, query)
                    self._warn_of_a_repeat(query, outcome)
                    entries.append(outcome)
                if recorded := self._log.record(*entries):
                    return recorded[-1]

    def fail(
        self,
        query_id: int,
        reason: str | None = None,
        constraints: Any = None,
        avoid: bool = False,
        *,
        at: float | None = None,
    ) -> Failure:
        """Record that no outcome of a query will come.

        The query is no longer pending, and no model sees it, so that its point may be chosen again
        at once. With ``avoid=True``, the acquisition function keeps it among its pending points, as
        if its outcome were known to equal the posterior mean. With censored feedback, a failed
        query is lost: it keeps the minimum. Its round still counts. Telling the failure again does
        nothing and returns the recorded failure.

        In a loop with constraints, a failed query counts in the ledger and in the multipliers if
        its constraint values are told, such as what the evaluation cost before it failed.

        Args:
            query_id: The id of a query that :meth:`ask` returned.
            reason: Why.
            constraints: One number for each constraint, as for :meth:`tell`; None if they are not
                known.
            avoid: Whether the loop should avoid the point, because the point caused the failure.
                This makes a difference only with ``Hallucinated`` feedback.
            at: The time in seconds, as for :meth:`ask`.

        Raises:
            KeyError: If the id was never asked.
            TypeError: If the reason is not a string.
            ValueError: If the query has a reward, had one that was retracted, or failed with other
                constraint values; or if constraint values are refused as in :meth:`tell`.
            StorageError: If the failure cannot be written to the storage. Nothing is recorded then.

        Warns:
            RepeatedFailureWarning: If a point without an outcome failed three times in a row and
                is not avoided, with ``Hallucinated`` feedback.
        """
        avoided = avoid and self.settings.feedback.hallucinates
        with self._lock:
            while True:
                given = self._log.now(at), reason, avoided, constraints
                failure = self._history.new_failure(query_id, *given)
                if failure in self._history:
                    return failure
                if failure.constraints:
                    arrival = failure.arrived_at, failure.arrived_round
                    lost = Outcome(failure.query_id, 0.0, *arrival, failure.constraints)
                    self._chooser.check_outcome(lost)
                if self._log.record(failure):
                    warn_of_repeated_failures(self.settings, self._history)

    def retract(self, query_id: int, reason: str, *, at: float | None = None) -> Retraction:
        """Withdraw an outcome that was told, because it is wrong.

        The outcome stays on record with the reason, but no longer counts: it is removed from the
        model, from :meth:`best`, from the multipliers and the ledger, and from the tests for a
        change. The query counts as one that failed when its outcome arrived; its round still
        counts. Everything derived from the history is recomputed from the remaining outcomes, so
        resets and epochs may move. A retraction is final: attach the point to tell the right value.

        The theorems hold if the reason for withdrawing an outcome does not depend on its noise. A
        typing error or a broken sensor does not; a value that looks too good or too bad does.
        :meth:`guarantee` states this assumption.

        Args:
            query_id: The id of a query whose outcome was told, or attached.
            reason: Why the outcome is withdrawn; it is recorded.
            at: The time in seconds, as for :meth:`ask`.

        Raises:
            KeyError: If the id was never asked.
            TypeError: If the reason is not a string.
            ValueError: If the reason is blank, or the query is pending, has failed, or was already
                retracted.
            StorageError: If it cannot be written to the storage. Nothing is recorded then.
        """
        with self._lock:
            while True:
                retraction = self._history.new_retraction(query_id, reason, self._log.now(at))
                if recorded := self._log.record(retraction):
                    return recorded[0]

    def check_log(self, progress: bool | None = None) -> tuple[str, ...]:
        """Choose every point on record again, and return where this machine chooses otherwise.

        Another processor, or another version of a library, may decide otherwise where numbers are
        compared or hyperparameters are fitted. Each choice is repeated with what was on
        record when it was made, and with the resets on record, so that one difference does not lead
        to the next; then all tests are repeated. Hyperparameters are fitted again, and after a
        retraction, resets are found again. This takes as long as all choices of the run together.
        Nothing is recorded.

        Args:
            progress: Whether to show a progress bar; None shows it if tqdm is installed.

        Returns:
            One sentence for each difference; empty if there is none. Coordinates count as equal if
            they differ by at most 1e-6 of the domain's side.

        Example:
            >>> from botorch_bandits import Arms, RandomSearch
            >>> loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), None, RandomSearch())
            >>> outcome = loop.tell(loop.ask().id, 0.2)
            >>> loop.check_log(progress=False)
            ()
        """
        with self._lock:
            settings, history, decided = self.settings, self._history, self._log.decided
            return differences_of_replay(settings, history, decided, progress)

    @property
    def history(self) -> History:
        """Everything that was asked and told; do not add to it."""
        if self.storage is not None:
            with self._lock:  # which reads what other processes wrote
                return self._history
        return self._history

    @property
    def pending(self) -> tuple[Query, ...]:
        """The queries without an outcome, in the order in which they were asked.

        They may have been asked by other processes: ``asked_at`` and ``asked_by`` say when and by
        whom. Any process may tell the outcome of a query, or that it failed.
        """
        return self.history.pending()

    def feedback_view(self) -> CensoredView:
        """Return how censored feedback classifies the queries now: pending, lost or late.

        After a reset it covers only the queries since then; their ids are those of the history.

        Raises:
            RuntimeError: If feedback is not censored.
        """
        with self._lock:
            seen = self._chooser.feedback_view(self._history.latest_at)
        if seen is None:
            raise RuntimeError("the loop has no censored feedback; pass feedback=Censored(...).")
        return seen

    def best(self, context: Any = None) -> tuple[Query, Outcome] | None:
        """Return the query that is best now and its outcome, if there is one.

        This is the query with the largest observed reward, or the least cost; with constraints,
        only queries whose observed values meet all of them are considered. With noise, such a value
        may be luck; :meth:`feasibility` says more, and has the query that comes nearest. If the
        reward is not the same in all rounds, the current round decides:

        * After a reset, only queries since then count.
        * With ``SlidingWindow``, only those in the window count.
        * With contexts, ``ExponentialWeights`` or ``TimeVaryingKernel``, it is the played point
          with the largest posterior mean now, in the requested context. The outcome is the latest
          one at that point, if possible in that context, and may be far from that mean. Without a
          model, only outcomes in the same context count.

        The largest of all rewards is ``loop.history.best()``.

        Args:
            context: With contexts, the ``context_dim`` numbers for which the best point is sought.
                None without contexts.

        Raises:
            TypeError: If the context is a tensor of another dtype than float64.
            ValueError: If the context is missing, not wanted, of the wrong length or not finite.
        """
        if context is None and self.settings.context_dim:
            raise ValueError(
                f"context is missing: the loop has context_dim={self.settings.context_dim}, and "
                "which point is best depends on the context. Ask with best(context=...); the "
                "largest of all rewards is history.best()."
            )
        context = check_context(self.settings.context_dim, context)
        with self._lock:
            chooser = self._chooser
            now = self._history.latest_at
            return best_now(self.settings, self._history, chooser, context, now)

    def recommend(self, context: Any = None, among: str = "all") -> Recommendation:
        """Return the point to deploy, and a bound on how much better another point can be.

        If :meth:`guarantee` has confidence bounds that hold at all points at once, this is the
        point with the largest lower bound, and the certificate is ``max U - L(x)``. Otherwise it is
        the point with the largest posterior mean, with the reason why there is no certificate.
        ``print`` shows both. Pending points are not used. Nothing is recorded, and no later choice
        changes.

        Args:
            context: With contexts, the one for which the point is recommended; None without
                contexts.
            among: ``"all"`` points of the domain, or those that were ``"played"`` (since the last
                reset, within a window), which Ax calls in-sample.

        Raises:
            RuntimeError: If the loop has no model, a user's model lacks data, or no outcome has
                arrived and ``among`` is ``"played"``.
            TypeError: If the context is a tensor of another dtype than float64.
            ValueError: If the context is missing, not wanted, of the wrong length or not finite.
            UnsupportedError: If the model has no posterior mean and variance.

        Example:
            >>> from gpytorch.kernels import RBFKernel
            >>> from botorch_bandits import Arms, BanditGP, GPUpperConfidenceBound, run
            >>> arms = Arms([[0.0], [0.5], [1.0]])
            >>> model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3)
            >>> loop = BanditLoop(arms, model, GPUpperConfidenceBound.with_options(delta=0.1))
            >>> result = run(loop, lambda x: float(x), 60, progress=False)
            >>> found = loop.recommend()
            >>> found.point, round(found.certificate, 2), found.delta
            ([1.0], 0.13, 0.1)
        """
        context = check_context(self.settings.context_dim, context, "recommend")
        with self._lock:
            args = self.settings, self._history, self._chooser
            return recommendation_now(*args, context, among, self._history.latest_at)

    @property
    def resets(self) -> tuple[Reset, ...]:
        """When the loop started over and why, in order; see ``restart=``."""
        with self._lock:
            return tuple(self._chooser.restarts.resets)

    @property
    def multipliers(self) -> tuple[float, ...]:
        """The multipliers in force, one per constraint; empty without constraints."""
        with self._lock:
            multipliers = self._chooser.multipliers
            return () if multipliers is None else tuple(multipliers.values.tolist())

    def ledger(self) -> Ledger:
        """Return by how much the constraints were violated, by constraint and epoch.

        It uses observed values, in order of arrival.

        Raises:
            RuntimeError: If there are no constraints.
        """
        with self._lock:
            multipliers = self._chooser.multipliers
            if multipliers is None:
                raise RuntimeError("the loop has no constraints; pass constraints=.")
            return multipliers.ledger()

    def feasibility(self, width: float | None = None) -> Feasibility:
        """Return whether the constraints can be met, as far as the data say.

        It fits a model of each constraint and searches the domain for its smallest lower
        confidence bound; with contexts, this bound is averaged over the last ten. The loop does the
        same at the end of an epoch if multipliers keep growing, and warns
        (:class:`~botorch_bandits.constraints.InfeasibleConstraintsWarning`).

        With ``forgetting=``, the bounds are those of the model that forgets, in the next round. No
        theorem covers them, and where old outcomes are forgotten they tend to the bounds of the
        prior: a positive bound says that no point seems to meet the constraint now, and a negative
        one does not say that some point does.

        Args:
            width: The factor of the standard deviation; if omitted, that of the acquisition at
                ``delta / (1 + num_constraints)``.

        Raises:
            RuntimeError: If there are no constraints.
            ValueError: If there is no model, or the acquisition has no width and none is given.
        """
        self.ledger()
        if width is not None:
            width = check_positive("width", width)
        with self._lock:
            return self._chooser.feasibility(self._history.latest_at, width)

    @property
    def change_tests(self) -> tuple[ChangeTestRecord, ...]:
        """The result of each test for a change, in order; see ``restart=``."""
        with self._lock:
            # put back afterwards: an interruption leaves it with part of the tests
            chooser, self._cached_chooser = self._chooser, None
            tests = tuple(chooser.restarts.change_tests)
            self._cached_chooser = chooser
            return tests

    def guarantee(self) -> Guarantee:
        """Return what a theorem states about the rounds so far: bounds, regret and violation.

        The statement on regret covers the rounds that the method chose when every earlier outcome
        had arrived, and with ``Ignored()``, for upper confidence bounds, all that it chose. For
        upper confidence bounds, its number is the sum of ``2 w_t sigma_{t-1}(x_t)`` over these
        rounds. Other rounds are counted separately, if they are bounded at all.
        """
        if self.settings.is_random:
            return Guarantee(method="random search", gaps=("it does not look at outcomes",))
        with self._lock:
            if self._chooser.has_no_data():
                name = name_of(self.settings.model)
                gap = f"the model is made from outcomes (by {name}), and none has arrived yet"
                return Guarantee(method="a loop without outcomes", gaps=(gap,))
            return self._chooser.guarantee(self._history.latest_at)

    def check_model(self) -> ModelCheck:
        """Return whether the outcomes since the last reset agree with the model.

        ``print`` shows the result in one sentence. :meth:`.ModelCheck.coverage` has the share of
        outcomes within their predicted intervals, outcome by outcome. Kernel and noise are those of
        the current model. Of a list of priors, the likeliest is checked. With constraints, this is
        about the reward; ``check_model(loop.current_model().models[j])``, from
        ``botorch_bandits.confidence``, checks the model of constraint ``j``.

        Raises:
            RuntimeError: If the loop has no model or no data, feedback is censored, or rows are
                means of penalized rewards.
            ValueError: If the model is not an exact Gaussian process
                (:class:`~botorch_bandits.confidence.UnreadablePriorError`).

        Example:
            >>> from botorch_bandits import Box, run
            >>> loop = BanditLoop(Box([[0.0], [1.0]]), seed=0)
            >>> result = run(loop, lambda x: float((9.0 * x).sin()), 12, progress=False)
            >>> len(loop.check_model().one_step)
            12
        """
        with self._lock:
            view = self._chooser.arrived(self._history.latest_at)
            check = check_of_loop(self.settings, self.current_model(), view)
            return check if self.settings.maximize else turned_check(check)

    def evidence(self, level: float | None = None) -> EvidenceTable:
        """Return the evidence of the outcomes since the last reset for each prior on the list.

        Args:
            level: The true prior is ever rejected with at most this probability. If omitted, it is
                half of the ``delta`` that the acquisition has now, or 0.05 if it has none.

        Raises:
            RuntimeError: If the loop's model is not a list of priors, or a user's model lacks data.
                The weights of a list that only ``EvidenceRestart(candidates=...)`` has are in
                ``loop.change_tests[-1].candidate_weights``.
        """
        with self._lock:
            return evidence_of_loop(self.settings, self._chooser, self._history.latest_at, level)

    def current_model(self) -> Model:
        """Return the model of the outcomes since the last reset; it is shared, so do not change it.

        With censored feedback it models the outcomes that arrived in time and pseudo-values. With
        ``maximize=False`` it models minus the cost.

        Raises:
            RuntimeError: If the loop has no model, or a user's model lacks data.
        """
        if self.settings.model is None:
            raise RuntimeError("random search has no model.")
        with self._lock:
            return self._chooser.model(self._history.latest_at)

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
            chooser.hear(unseen)
            is_alike = self.settings.restart is None or chooser.restarts.agrees_with(log.decided)
            if not is_alike:  # another machine decided otherwise
                chooser = Chooser(self.settings, self._history, log.decided)
        if log.fit is not None and unseen != []:
            chooser.restore_fit(log.fit)
        self._cached_chooser = chooser
        return chooser

    def _begin(self) -> None:
        """Derive the state from the history, even if an outcome makes multipliers overflow."""
        self._num_at_opening = self._history.num_queries
        try:
            with self._lock:
                _ = self._chooser
        except MultiplierOverflowError as error:  # as after outcomes were withdrawn
            warnings.warn(
                f"the outcomes on record make multipliers overflow ({error}), so that best() and "
                "ask() raise. Withdraw them with loop.retract(query_id, reason).",
                RuntimeWarning,
                stacklevel=level_of_users_line(),
            )

    def _check_told(self, outcome: Outcome, query: Query | None = None) -> None:
        settings, history = self.settings, self._history
        check_weighted(settings, outcome, history.outcomes)
        if (censored := settings.feedback.censored) is not None:
            query = query or history.query(outcome.query_id)
            censored.check_outcome(query, outcome, history, *self._noise_and_range)
        if settings.constraints is not None:
            self._chooser.check_outcome(outcome)

    def _check_horizon(self) -> None:
        horizon = self.settings.horizon
        if horizon is not None and self._history.num_queries >= horizon:
            raise RuntimeError(
                f"horizon={horizon} rounds were asked already. To go on, build a loop with a "
                "larger horizon and attach the outcomes to it."
            )

    def _warn_of_a_repeat(self, query: Query, outcome: Outcome) -> None:
        """Warn once if a row was attached before the loop was opened; two such rows look certain.

        Args:
            query: The query that is about to be attached.
            outcome: Its outcome.
        """
        earlier = self._attached_before.get(_values(query, outcome))
        if earlier is None:
            return
        self._attached_before.clear()
        warnings.warn(
            f"x={query.x.tolist()} with the reward {outcome.reward!r} was attached before this "
            f"loop was opened (query {earlier}), and now counts a second time. If the script "
            "attaches its data first, each time it runs, let it attach "
            "rows[loop.history.num_queries:], those that are not on record.",
            UserWarning,
            stacklevel=level_of_users_line(),
        )

    @cached_property
    def _attached_before(self) -> dict[tuple[Any, ...], int]:
        """The rows that were attached before the loop was opened, and the ids of their queries."""
        queries, outcome = self._history.queries[: self._num_at_opening], self._history.outcome
        told = [(q, outcome(q.id)) for q in queries if q.origin == "attached"]
        return {_values(q, o): q.id for q, o in told if o is not None}


def check_one_point(x: Any) -> None:
    """Raise an error if several points are given in place of one.

    Args:
        x: What was passed as the point.

    Raises:
        ValueError: If it is a matrix, or a list of points.
    """
    first = x[0] if is_list(x) and x else 0.0
    has_rows = is_list(first) or isinstance(first, Mapping) or getattr(first, "ndim", 0) > 0
    if has_rows or getattr(x, "ndim", 1) > 1:
        raise ValueError(
            f"x has {len(x)} row{'s' * (len(x) > 1)}, but it must be one point, a vector. Attach "
            "one at a time: for x, reward in zip(X, Y): loop.attach(x, reward)."
        )


def _values(query: Query, outcome: Outcome) -> tuple[Any, ...]:
    """Return everything that two rows that are told twice have in common."""
    context = None if query.context is None else tuple(query.context.tolist())
    return tuple(query.x.tolist()), context, outcome.reward, outcome.constraints
