"""What remains of a journal that cannot be opened: its good prefix, and the lines after the damage.

Nothing here changes a file. A damaged line ends the prefix, because the checksum of each line
covers all lines before it. What follows can be verified only with a snapshot, which has a checksum
from which the lines after its position can be checked again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch_bandits.journal.files import (
    Snapshot,
    check_place,
    open_to_read,
    place_of,
    read_whole_snapshot,
    snapshot_path,
)
from botorch_bandits.journal.journal import KIND, before_header
from botorch_bandits.journal.lines import (
    DamagedLineError,
    JournalCorruptionError,
    JournalError,
    Position,
    check_format_line,
    decode_line,
    first_checksum,
    parse,
    read_first_line,
    read_line,
    scan,
)


@dataclass(frozen=True)
class Remains:
    """What remains of a journal.

    Attributes:
        path: The path of the journal.
        header: Its header.
        records: The records before the first damaged line.
        damage: What is wrong with the next line; None if nothing is.
        num_left_bytes: How many bytes, which are not a whole record, follow the last good record.
        snapshot: Its snapshot, if it is whole and has the header of this journal.
        snapshot_problem: Why there is no snapshot, although there is a file.
        is_consistent: Whether the snapshot's position agrees with the good records; None if they
            end before it.
        later: The records after the snapshot's position, if the prefix ends before it.
    """

    path: Path
    header: dict[str, Any]
    records: list[dict[str, Any]]
    damage: str | None
    num_left_bytes: int
    snapshot: Snapshot | None
    snapshot_problem: str | None
    is_consistent: bool | None
    later: list[dict[str, Any]]


def read_remains(path: str | Path) -> Remains:
    """Read everything that is readable in a journal, which may be damaged and is not changed.

    Args:
        path: The path of the journal.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
        JournalError: If it is not a journal or not a regular file, or its header is damaged.
    """
    path = place_of(path)
    check_place(path)
    with open_to_read(path) as file:
        check_format_line(read_first_line(file), KIND, path)
        line, is_whole = read_line(file, first_checksum(KIND))
        try:
            if not is_whole:
                raise DamagedLineError("its line is too long, or its checksum does not fit")
            payload, checksum = decode_line(line, first_checksum(KIND))
        except DamagedLineError as error:
            raise JournalCorruptionError(path, 2, f"the header: {error}") from error
        header, end = parse(payload), Position(0, before_header().offset + len(line), checksum)
        snapshot, problem = _snapshot_beside(path, end.checksum)
        is_consistent = None
        if snapshot is not None and snapshot.num_records == 0:
            is_consistent = snapshot.after == end
        records, damage = [], None
        try:
            for payload, _, after in scan(file, end, path):
                end = after
                records.append(parse(payload))
                if snapshot is not None and end.num_records == snapshot.num_records:
                    is_consistent = end == snapshot.after
        except JournalError as error:
            damage = str(error).removesuffix(" Restore the file from a backup.")
        size = os.fstat(file.fileno()).st_size
        later = []
        if snapshot is not None and is_consistent is None and snapshot.after.offset < size:
            file.seek(snapshot.after.offset)
            try:
                for payload, _, _ in scan(file, snapshot.after, path):
                    later.append(parse(payload))
            except JournalError:
                pass  # what is good before that is kept
    left = max(size - end.offset, 0)
    return Remains(path, header, records, damage, left, snapshot, problem, is_consistent, later)


def _snapshot_beside(path: Path, header_checksum: str) -> tuple[Snapshot | None, str | None]:
    try:
        snapshot = read_whole_snapshot(path)
    except FileNotFoundError:
        return None, None
    except (JournalError, DamagedLineError, OSError) as error:
        return None, f"{snapshot_path(path)} cannot be used: {error}"
    if snapshot.header_checksum not in (None, header_checksum):
        return None, f"{snapshot_path(path)} belongs to another journal"
    return snapshot, None
