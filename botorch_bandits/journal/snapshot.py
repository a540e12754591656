"""Snapshots: what a journal amounts to after some records, so that opening need not read them.

A snapshot lies beside its journal, as ``<path>.snapshot``. Its first line names the format; the
second is a line like those of a journal. It holds the state, and the place in the journal that the
state belongs to with the checksum there. The checksum stands for all records so far, so that the
snapshot of another journal does not fit. A snapshot can be deleted at any time: the journal is the
truth.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from botorch_bandits.journal.errors import JournalError
from botorch_bandits.journal.files import open_to_read, write_whole
from botorch_bandits.journal.lines import (
    MAX_LINE_BYTES,
    DamagedLineError,
    Position,
    check_format_line,
    decode_line,
    encode_line,
    first_checksum,
    format_line,
    parse,
    read_first_line,
    read_line,
)

KIND = "snapshot"


class UnusableSnapshotError(ValueError):
    """A snapshot is damaged or belongs to another journal; the message is the reason."""


@dataclass(frozen=True)
class Snapshot:
    """A state and its place in a journal.

    Attributes:
        state: What was handed to :meth:`Journal.write_snapshot`.
        num_records: How many records the state covers.
    """

    state: dict[str, Any]
    before: Position  # of the last line that the state covers
    after: Position

    @property
    def num_records(self) -> int:
        """See the class."""
        return self.after.num_records


def snapshot_path(path: Path) -> Path:
    """Return where the snapshot of a journal lies."""
    return path.with_name(path.name + ".snapshot")


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace the snapshot of a journal, at once and for good.

    Args:
        path: Of the journal.
        snapshot: To write.

    Raises:
        JournalError: If the file that it is first written to is no regular file.
        OSError: If it cannot be written; the old one is left then.
        TypeError: If the state is not plain.
        ValueError: If a number in it is NaN or infinite, or it is longer than any line may be.
    """
    before, after = snapshot.before, snapshot.after
    encode_line(snapshot.state, "", name="state")  # so that errors speak of the state
    line, _ = encode_line(
        {
            "num_records": after.num_records,
            "start": before.offset,
            "end": after.offset,
            "checksum_before": before.checksum,
            "checksum": after.checksum,
            "state": snapshot.state,
        },
        first_checksum(KIND),
    )
    write_whole(snapshot_path(path), format_line(KIND) + line)


def load_snapshot(path: Path, journal: BinaryIO) -> Snapshot | None:
    """Return the snapshot of a journal; None if there is none.

    Args:
        path: Of the journal.
        journal: The journal's file; its position changes.

    Raises:
        UnusableSnapshotError: If it is damaged, or does not fit the journal.
    """
    try:
        with open_to_read(snapshot_path(path)) as file:
            check_format_line(read_first_line(file), KIND, snapshot_path(path))
            payload, _ = decode_line(read_line(file), first_checksum(KIND))
            if file.read(1):
                raise DamagedLineError("there is something behind it")
    except FileNotFoundError:
        return None
    except (JournalError, DamagedLineError, OSError) as error:
        raise UnusableSnapshotError(str(error)) from error
    known = parse(payload)
    snapshot = Snapshot(
        state=known["state"],
        before=Position(known["num_records"] - 1, known["start"], known["checksum_before"]),
        after=Position(known["num_records"], known["end"], known["checksum"]),
    )
    size = snapshot.after.offset - snapshot.before.offset
    if snapshot.before.offset < 0 or not 0 < size <= MAX_LINE_BYTES:
        raise UnusableSnapshotError("the place in the journal that it names is no line")
    journal.seek(snapshot.before.offset)
    line = journal.read(size)
    if len(line) == size - 1:
        line += b"\n"  # the last line of the journal may lack it
    try:
        _, checksum = decode_line(line, snapshot.before.checksum)
    except DamagedLineError as error:
        raise UnusableSnapshotError(
            f"the journal does not have the {snapshot.num_records} records that it covers"
        ) from error
    if checksum != snapshot.after.checksum:
        raise UnusableSnapshotError("it belongs to another journal")
    return snapshot
