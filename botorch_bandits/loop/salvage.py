"""What remains of a damaged journal of a loop: its good records, and those that its snapshot adds.

A snapshot has queries and events, from which records are reconstructed in a possible order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch_bandits.history import History, Query, Retraction
from botorch_bandits.journal import Journal, JournalError
from botorch_bandits.journal.salvage import Remains
from botorch_bandits.loop.journal import (
    CONTENT,
    Fit,
    check_snapshot,
    first_difference,
    read_state,
    rebuild_history,
    record_of,
)
from botorch_bandits.queries import outcome_told_at_once


@dataclass(frozen=True)
class Salvage:
    """The content that was written to a new journal.

    Attributes:
        num_records: The number of records from the good prefix.
        num_from_snapshot: The number of further records from the snapshot.
        num_behind: The number of further records from after the snapshot's position.
        notes: What could not be used, and why.
    """

    num_records: int
    num_from_snapshot: int
    num_behind: int
    notes: tuple[str, ...]


def is_of_loop(remains: Remains) -> bool:
    """Return whether a journal says that it is a loop's journal."""
    return remains.header.get("content") == CONTENT


def check_remains(remains: Remains) -> list[str]:
    """Return everything that is wrong with a journal as texts.

    Args:
        remains: The remains of the journal.
    """
    problems = [] if remains.damage is None else [remains.damage]
    if remains.snapshot_problem is not None:
        problems.append(remains.snapshot_problem)
    snapshot, num_records = remains.snapshot, len(remains.records)
    if snapshot is not None and remains.is_consistent is None:
        problems.append(
            f"the snapshot covers {snapshot.num_records} records, but only {num_records} are whole"
        )
    if remains.is_consistent is False:
        problems.append("the snapshot belongs to another journal, or to other records")
    if not is_of_loop(remains):
        return problems
    try:
        rebuild_history(remains.header, None, remains.records)
        if snapshot is not None and remains.is_consistent:
            covered = remains.records[: snapshot.num_records]
            known = rebuild_history(remains.header, None, covered)
            check_snapshot(snapshot, known, remains.path)
    except JournalError as error:
        problems.append(str(error))
    return problems


def write_salvage(remains: Remains, path: str | Path) -> Salvage:
    """Write what remains of a journal to a new one.

    Args:
        remains: The remains of the journal.
        path: The path of the new one; no file may exist there.

    Raises:
        FileExistsError: If a file exists there.
        JournalError: If it cannot be written, or the records of the prefix are not a loop's.
    """
    records, later, notes = list(remains.records), [], []
    num_from_snapshot = 0
    if remains.snapshot_problem is not None:
        notes.append(remains.snapshot_problem)
    if is_of_loop(remains):
        records, broken = _good_prefix(remains.header, records)
        if broken is not None:
            notes.append(broken)
    beyond = remains.snapshot is not None and remains.is_consistent is None
    if beyond and is_of_loop(remains):
        try:
            more = _records_beyond(remains, records)
            num_from_snapshot, later = len(more), list(remains.later)
            whole, broken = _good_prefix(remains.header, [*records, *more, *later])
            records = whole
            if broken is not None:
                notes.append(broken)
        except JournalError as error:
            notes.append(f"the snapshot is not used: {error}")
    elif beyond:
        notes.append(
            "the snapshot covers more records, but only the program that wrote it can read its "
            "content"
        )
    header = {name: part for name, part in remains.header.items() if name != "durability"}
    with Journal.create(path, header) as journal:
        for number, record in enumerate(records, 1):
            journal.append(record, sync=number % 100 == 0 or number == len(records))
    return Salvage(
        len(records) - num_from_snapshot - len(later), num_from_snapshot, len(later), tuple(notes)
    )


def _good_prefix(
    header: dict[str, Any], records: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the records up to the first one that does not fit those before it, and why."""
    try:
        rebuild_history(header, None, records)
    except JournalError as error:
        low, high = 0, len(records) - 1  # at least ``low`` records are good, and at most ``high``
        while low < high:
            middle = (low + high + 1) // 2
            try:
                rebuild_history(header, None, records[:middle])
                low = middle
            except JournalError:
                high = middle - 1
        rebuild_history(header, None, records[:low])  # raises if the header itself is wrong
        return records[:low], str(error)
    return records, None


def _records_beyond(remains: Remains, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records that must follow the good prefix to give what the snapshot has.

    Raises:
        JournalError: If the snapshot does not continue the prefix.
    """
    assert remains.snapshot is not None
    known = rebuild_history(remains.header, None, records)
    state = remains.snapshot.state
    whole = rebuild_history(remains.header, state, [])
    _, fit = read_state(state, History(*_sizes(whole)))
    more = list(_steps_beyond(whole, known, fit))
    problem = first_difference(rebuild_history(remains.header, None, [*records, *more]), whole)
    if problem is not None:
        raise JournalError(f"it does not continue the records that are left: {problem}.")
    return more


def _sizes(history: History) -> tuple[int, int, int, bool]:
    return history.dim, history.context_dim, history.num_constraints, history.maximize


def _steps_beyond(whole: History, known: History, fit: Fit | None) -> Iterator[dict[str, Any]]:
    """Return records of what one history has in addition to another, in a possible order."""
    events: dict[int, list[Any]] = {}
    for event in whole.events:
        events.setdefault(event.arrived_round, []).append(event)
    withdrawn: dict[int, list[Retraction]] = {}
    for retraction in whole.retractions:
        withdrawn.setdefault(retraction.retracted_round, []).append(retraction)
    attached: set[int] = set()
    last = whole.num_queries - 1
    for asked in range(whole.num_queries + 1):
        for event in events.get(asked, []):
            if event.query_id in attached or _has_ended(known, event.query_id):
                continue
            yield record_of(event.outcome if isinstance(event, Retraction) else event)
        for retraction in withdrawn.get(asked, []):
            if not _is_retracted(known, retraction.query_id):
                yield record_of(retraction)
        if asked == whole.num_queries or asked < known.num_queries:
            continue
        query: Query = whole.queries[asked]
        with_fit = {"fit": fit} if fit is not None and asked == last else {}
        outcome = outcome_told_at_once(query, next(iter(events.get(asked + 1, [])), None))
        if outcome is not None:
            attached.add(query.id)
            yield {**record_of(query, outcome), **with_fit}
        else:
            yield {**record_of(query), **with_fit}


def _has_ended(history: History, query_id: int) -> bool:
    return query_id < history.num_queries and history.state(query_id) != "pending"


def _is_retracted(history: History, query_id: int) -> bool:
    return query_id < history.num_queries and history.retraction(query_id) is not None
