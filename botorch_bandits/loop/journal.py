"""The journal of a loop: its settings in the header, its events in the records.

:class:`LoopJournal` records each query, outcome, failure and retraction before it counts, and reads
a history from these records. It refuses a journal that was begun with other settings.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from botorch_bandits.checks import check_vector, level_of_users_line
from botorch_bandits.fingerprints import (
    EnvironmentWarning,
    difference,
    environment,
    environment_warnings,
    fingerprint,
)
from botorch_bandits.history import Event, Failure, History, Outcome, Query, Retraction, fill
from botorch_bandits.journal import (
    Journal,
    JournalError,
    JournalFormatError,
    JournalReader,
)
from botorch_bandits.loop.checking import check_given
from botorch_bandits.loop.settings import ATTACH_INSTEAD, LoopSettings, check_history


def record_of(*entries: Query | Event) -> dict[str, Any]:
    """Return the record of a query or an event, or of an attached query and its outcome."""
    record: dict[str, Any] = {}
    for entry in entries:
        record |= _RECORDS[entry.state](entry)
    return record | ({"kind": "attached"} if len(entries) > 1 else {})


def replay(record: Mapping[str, Any], history: History) -> None:
    """Add the content of a record to a history.

    Args:
        record: A record of a journal.
        history: The history as it was when the record was written; the content is added to it.

    Raises:
        JournalError: If the record does not fit the history.
    """
    kind = record.get("kind")
    try:
        if kind in ("asked", "attached"):
            if record["id"] != history.num_queries:
                raise ValueError(f"the id is {record['id']}, but it must be {history.num_queries}.")
            context = record.get("context")
            history.add_query(
                check_vector("x", record["x"]),
                record.get("origin", "attached"),
                record["at"],
                None if context is None else check_vector("context", context),
                decode_floats(record.get("diagnostics", {})),
                record.get("request_id"),
                record.get("parameters"),
                record.get("restriction"),
            )
        if kind in ("told", "attached"):
            history.add_outcome(
                record["id"],
                record["reward"],
                record["at"],
                record.get("constraints"),
                record.get("count"),
                record.get("noise"),
            )
        elif kind == "failed":
            history.add_failure(
                record["id"], record["at"], record.get("reason"), bool(record.get("avoided"))
            )
        elif kind == "retracted":
            history.add_retraction(record["id"], record["reason"], record["at"])
        elif kind != "asked":
            raise ValueError(f"records of the kind {kind!r} are unknown.")
    except _NO_RECORD as error:
        shown = str(dict(record))
        shown = shown if len(shown) <= 300 else f"{shown[:300]} ..."
        raise JournalError(
            f"the record {shown} does not fit those before it: {_reason(error)} Was it "
            "written by a later version of the package, or by another program?"
        ) from error


def encode_floats(values: Mapping[str, float]) -> dict[str, Any]:
    """Return diagnostics as a journal holds them: numbers that are not finite become strings."""
    return {
        name: value if math.isfinite(value) else repr(float(value))
        for name, value in values.items()
    }


def decode_floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Undo :func:`encode_floats`."""
    return {
        name: float(value) if isinstance(value, str) else value for name, value in values.items()
    }


def _asked(query: Query) -> dict[str, Any]:
    record: dict[str, Any] = {
        "kind": "asked",
        "id": query.id,
        "x": query.x.tolist(),
        "origin": query.origin,
        "at": query.asked_at,
    }
    if query.parameters is not None:
        record["parameters"] = query.parameters
    if query.context is not None:
        record["context"] = query.context.tolist()
    if query.request_id is not None:
        record["request_id"] = query.request_id
    if query.restriction is not None:
        record["restriction"] = query.restriction
    if query.diagnostics:
        record["diagnostics"] = encode_floats(query.diagnostics)
    return record


def _failed(failure: Failure) -> dict[str, Any]:
    reason = {} if failure.reason is None else {"reason": failure.reason}
    avoided = {"avoided": True} if failure.avoided else {}
    return {"kind": "failed", "id": failure.query_id, "at": failure.arrived_at, **reason, **avoided}


def _retracted(retraction: Retraction) -> dict[str, Any]:
    known = {"id": retraction.query_id, "at": retraction.retracted_at, "reason": retraction.reason}
    return {"kind": "retracted", **known}


def _told(outcome: Outcome) -> dict[str, Any]:
    record: dict[str, Any] = {
        "kind": "told",
        "id": outcome.query_id,
        "reward": outcome.reward,
        "at": outcome.arrived_at,
    }
    if outcome.constraints:
        record["constraints"] = list(outcome.constraints)
    if outcome.count is not None:
        record["count"] = outcome.count
    if outcome.noise is not None:
        record["noise"] = outcome.noise
    return record


_RECORDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    Query.state: _asked,
    Outcome.state: _told,
    Failure.state: _failed,
    Retraction.state: _retracted,
}


CONTENT, VERSION = "a loop of botorch_bandits", 3
MAX_CONTEXT_DIM = 10_000  # in a journal that is read without its loop

Fit = dict[str, Any]
"""Hyperparameters as plain values, and the rows to which they were fitted."""


class DifferentSettingsError(ValueError):
    """A journal was begun with other settings than those with which it is opened.

    Attributes:
        differences: One line for each difference.
    """

    def __init__(self, path: Path, differences: list[str], remedy: str) -> None:
        """Put the differences into the message.

        If the domain differs, the lines on how the model encodes its points are only counted,
        because they usually follow from the domain.

        Args:
            path: The path of the journal.
            differences: One line for each difference.
            remedy: What else can be done than to open it with its own settings, in a clause.
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
            f"{path} was begun with other settings:\n  {text}\nOpen it with those, or {remedy}"
        )


_OF_ENCODING = ("model.bounds", "model.encode.")
"""How the lines begin that say how a model encodes the points of its domain."""


class LoopJournal:
    """Records the events of a loop, and reads them back.

    Args:
        path: The path of the journal; a new one is begun if the file does not exist.
        settings: The loop's settings.
        given: The history with which a new journal begins.

    Attributes:
        num_given: The number of queries with which the journal began.

    Raises:
        DifferentSettingsError: If the journal was begun with other settings.
        UnnamedSettingError: If a setting has no name in a file, such as a lambda.
        ValueError: If there is a journal already, and a history is given as well.
    """

    def __init__(self, path: str | Path, settings: LoopSettings, given: History | None) -> None:
        """See the class."""
        self._domain = settings.domain
        self._sizes = settings.history_sizes
        self.num_given = 0
        self._recorded_fit: Fit | None = None  # the latest fit on record
        self._is_checked = True  # whether this process has repeated that fit
        header = header_of(settings)
        path = Path(path)
        is_new = not path.exists()
        if not is_new and given is not None:
            raise ValueError(
                f"{path} already exists, and has its own history. Leave history= out to continue "
                "it, or choose another path."
            )
        self._journal = Journal.create(path, header) if is_new else Journal.open(path)
        try:
            if is_new and given is not None and given.num_queries:
                self._journal.append({"kind": "given", "history": _encode(given)})
            if not is_new:
                self._check_header(header)
        except BaseException:
            self._journal.close()
            raise

    @property
    def path(self) -> Path:
        """The path of the journal."""
        return self._journal.path

    @property
    def recorded_fit(self) -> Fit | None:
        """The latest fit on record, if no outcome was retracted since."""
        return self._recorded_fit

    @property
    def num_records(self) -> int:
        """The number of records on disk."""
        return self._journal.num_records

    def read(self) -> History:
        """Return the history in the journal.

        Raises:
            JournalError: If a record does not fit those before it.
        """
        history = History(*self._sizes)
        self.num_given, self._recorded_fit = 0, None
        for record in self._journal.records():
            if record.get("kind") == "given":
                self.num_given = replay_given(record, history)
            else:
                self._recorded_fit = record.get("fit", self._recorded_fit)
                if record.get("kind") == "retracted":
                    self._recorded_fit = None  # it may use a row that no longer counts
                replay(record, history)
        self._is_checked = False
        return history

    def append(self, *entries: Query | Event, fit: Fit | None = None) -> None:
        """Write what is about to be added to the history; it is on disk when this returns.

        Args:
            entries: A query or an event, or an attached query and its outcome if it is known.
            fit: The hyperparameters with which a query was chosen; written if they are new.

        Raises:
            JournalWriteError: If it cannot be written, in which case it does not count.
        """
        record = record_of(*entries)
        if fit is not None:
            self._check_fit(fit)
            if fit != self._recorded_fit:
                record["fit"] = fit
        self._journal.append(record)
        if fit is not None:
            self._recorded_fit = fit
        if record["kind"] == "retracted":
            self._recorded_fit = None  # see read()

    def check_process(self) -> None:
        """Raise an error in a child process forked from the one that opened the journal.

        Raises:
            JournalError: If this is such a child process.
        """
        self._journal.check_process()

    def close(self) -> None:
        """Close the journal; a second call does nothing."""
        self._journal.close()

    def _check_header(self, header: Mapping[str, Any]) -> None:
        path, recorded = self._journal.path, self._journal.header
        check_content(self._journal)
        known = recorded["settings"]
        differences = difference(known, header["settings"])
        if differences:
            raise DifferentSettingsError(path, differences, self._remedy())
        lines = environment_warnings(recorded["environment"], header["environment"])
        if lines:
            warnings.warn(
                f"{path} is continued elsewhere: " + " ".join(lines),
                EnvironmentWarning,
                stacklevel=level_of_users_line(),
            )

    def _remedy(self) -> str:
        """Return how a loop with the settings of this one can use the history on record."""
        begin = "begin another journal"
        try:
            history = read_history(self._journal)
            if history.num_queries == 0:
                return f"{begin}; this one has no query yet."
            check_history(history, *self._sizes)
            for query in history.queries:
                check_given(self._domain, query)
        except (JournalError, TypeError, ValueError) as error:
            reason = str(error).removesuffix(ATTACH_INSTEAD).strip()
            return (
                f"{begin} and attach the outcomes of this one to its loop, each with its values "
                f"under the new settings. They cannot be passed as history=: {reason}"
            )
        return f"{begin} and pass history= to continue from this one."

    def _check_fit(self, fit: Fit) -> None:
        """Compare the first fit after opening with the recorded one."""
        recorded, is_checked, self._is_checked = self._recorded_fit, self._is_checked, True
        if is_checked or recorded is None:
            return
        is_same = all(recorded[name] == fit[name] for name in ("kernel", "noise"))
        is_of_these = all(recorded[name] == fit[name] for name in ("num_rows", "segment", "epoch"))
        if is_of_these and not is_same:
            warnings.warn(
                f"the fit to {fit['num_rows']} rows came out as {fit['kernel']}, noise "
                f"{fit['noise']}, but the journal has {recorded['kernel']}, noise "
                f"{recorded['noise']}: suggestions differ from those of a run that was not "
                "interrupted.",
                EnvironmentWarning,
                stacklevel=level_of_users_line(),
            )


def header_of(settings: LoopSettings) -> dict[str, Any]:
    """Return the header of a loop's journal.

    Raises:
        UnnamedSettingError: If a setting has no name in a file, such as a lambda.
    """
    points = settings.domain.sample(1, torch.Generator().manual_seed(0))
    return {
        "content": CONTENT,
        "version": VERSION,
        "settings": fingerprint(vars(settings)),
        "environment": environment(points.device),
    }


def check_content(journal: JournalReader) -> None:
    """Raise an error unless a journal is a loop's journal.

    Raises:
        JournalFormatError: If it is another kind of journal, or has an unknown version.
    """
    header = journal.header
    if type(header.get("settings")) is not dict or type(header.get("environment")) is not dict:
        raise JournalFormatError(
            f"{journal.path} is not a loop's journal: its header has no settings or no environment."
        )
    if header.get("content") != CONTENT or header.get("version") != VERSION:
        raise JournalFormatError(
            f"{journal.path} is not a loop's journal that this version can read: its header has "
            f"{header.get('content')!r:.80}, version {header.get('version')!r:.80}; expected "
            f"{CONTENT!r}, "
            f"version {VERSION}. Begin another journal, or continue this one with the version of "
            "botorch_bandits that wrote it."
        )


def replay_given(record: Mapping[str, Any], history: History) -> int:
    """Fill an empty history from what a journal began with; return the number of its queries.

    Raises:
        JournalError: If the record is not the first one, or is of another kind.
    """
    try:
        if history.num_queries:
            raise ValueError("it is not the first record.")
        _fill(history, record["history"])
    except _NO_RECORD as error:
        raise JournalError(
            f"the history with which the journal begins cannot be read: {_reason(error)} Was it "
            "written by a later version of the package, or by another program?"
        ) from error
    return history.num_queries


def read_history(reader: JournalReader) -> History:
    """Return the history in a loop's journal, without the loop.

    Args:
        reader: The reader of the journal.

    Raises:
        JournalError: If it is not a journal of a loop, or a record does not fit those before it.
    """
    check_content(reader)
    records = list(reader.records())
    history = History(*_sizes_of(reader.header, records))
    for record in records:
        if record.get("kind") == "given":
            replay_given(record, history)
        else:
            replay(record, history)
    return history


def _sizes_of(
    header: Mapping[str, Any], records: list[dict[str, Any]]
) -> tuple[int, int, int, bool]:
    """Return the sizes of a history, as given by header and records."""
    try:
        settings = header["settings"]
        context_dim, maximize = settings["context_dim"], settings.get("maximize", True)
        if type(context_dim) is not int or not 0 <= context_dim <= MAX_CONTEXT_DIM:
            raise ValueError(f"context_dim is {context_dim!r}.")
        if type(maximize) is not bool:
            raise ValueError(f"maximize is {maximize!r}.")
        entries: list[dict[str, Any]] = []
        for record in records:
            entries += record["history"] if record.get("kind") == "given" else [record]
        dim = next((len(entry["x"]) for entry in entries if entry.get("x")), 1)
        names = ("constraints", "retracted_constraints")
        counts = (len(entry[name]) for entry in entries for name in names if entry.get(name))
        return dim, context_dim, next(counts, 0), maximize
    except _NO_RECORD as error:
        raise JournalError(
            f"its header or a record is not what a loop writes: {_reason(error)} Was it written by "
            "a later version of the package, or by another program?"
        ) from error


_NO_RECORD = (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError)
"""The errors of reading if an entry is missing or of another kind."""


def _reason(error: BaseException) -> str:
    text = f"there is no entry {error}." if isinstance(error, KeyError) else str(error)
    return text if len(text) <= 300 else f"{text[:300]} ..."


def _encode(history: History) -> list[dict[str, Any]]:
    records = history.to_records()
    for record in records:
        record["diagnostics"] = encode_floats(record["diagnostics"])
    return records


def _fill(history: History, records: list[dict[str, Any]]) -> None:
    for record in records:
        record["diagnostics"] = decode_floats(record["diagnostics"])
    fill(history, records)
