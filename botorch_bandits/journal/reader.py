"""Reading a journal, also while somebody writes to it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from botorch_bandits.checks import check_integer, check_one_of
from botorch_bandits.journal.errors import JournalCorruptionError, SnapshotWarning
from botorch_bandits.journal.files import check_place, open_to_read, place_of
from botorch_bandits.journal.lines import (
    DamagedLineError,
    Position,
    check_format_line,
    decode_line,
    first_checksum,
    format_line,
    parse,
    read_first_line,
    read_line,
    scan,
)
from botorch_bandits.journal.snapshot import (
    Snapshot,
    UnusableSnapshotError,
    load_snapshot,
    snapshot_path,
)

KIND = "journal"
VERIFY = ("tail", "all")


class JournalReader:
    """A journal as it was when it was opened; made by :meth:`Journal.read`.

    A last line that is incomplete or damaged is left out: somebody may be writing it. One that
    lacks nothing but its line break counts.

    Args:
        path: Of the journal.
        verify: Which records are checked now: ``"tail"``, those after the snapshot, or ``"all"``.
            The others are checked when they are read.

    Attributes:
        path: Of the journal, absolute and without symbolic links.
        num_checked: How many records were checked on opening.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
        JournalError: If it is a symbolic link or anything else that is no regular file.
        JournalFormatError: If it is no journal, or of an unknown version.
        JournalCorruptionError: If a line before the last one is damaged.
    """

    def __init__(self, path: str | Path, verify: str = "tail") -> None:
        """See the class."""
        check_one_of("verify", verify, VERIFY)
        self.path = place_of(path)
        with self._open_file() as file:
            self._header, self._first = self._read_header(file)
            self._before, self._end = before_header(), self._first
            self._snapshot = self._find_snapshot(file) if verify == "tail" else None
            if self._snapshot is not None:
                self._before, self._end = self._snapshot.before, self._snapshot.after
            self._known = self._end  # from where reading can begin, beside the first record
            file.seek(self._end.offset)
            self.num_checked = 0
            for _, before, position in scan(file, self._end, self.path):
                self._before, self._end = before, position
                self.num_checked += 1

    def __repr__(self) -> str:
        """Show the file and how much is in it."""
        return f"{type(self).__name__}({str(self.path)!r}, {self.num_records} records)"

    @property
    def header(self) -> dict[str, Any]:
        """What the journal was created with; a copy."""
        return parse(self._header)

    @property
    def num_records(self) -> int:
        """How many records there are, the header not counted."""
        return self._end.num_records

    def records(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Return the records in order, read from the file one at a time.

        Args:
            after: How many to pass over, such as those that a snapshot covers.

        Raises:
            JournalCorruptionError: If a line is damaged; the records before it were given out.
            ValueError: If there are fewer records than ``after``.
        """
        after, end = check_integer("after", after, minimum=0), self._end
        if after > end.num_records:
            raise ValueError(
                f"after is {after}, but {self.path} has {end.num_records} records; pass at most "
                "that number."
            )
        return (
            parse(payload)
            for payload, _, position in self._positions(after, end)
            if position.num_records > after
        )

    def read_snapshot(self) -> Snapshot | None:
        """Return the latest snapshot, or None if there is none that can be used.

        Warns:
            SnapshotWarning: If there is one, but it is damaged or of another journal.
        """
        # handed over once, for a state may be large
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            with self._open_file() as file:
                snapshot = self._find_snapshot(file)
        return snapshot

    def _open_file(self) -> BinaryIO:
        try:
            check_place(self.path)
            return open_to_read(self.path)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"there is no journal {self.path}. Check the path, or begin one with "
                "Journal.create."
            ) from error

    def _positions(self, after: int, end: Position) -> Iterator[tuple[bytes, Position, Position]]:
        """Read the records up to a position, from some place at most ``after`` records in."""
        start = self._known if self._known.num_records <= after else self._first
        if start == end:
            return
        last = start
        with self._open_file() as file:
            file.seek(start.offset)
            for payload, before, last in scan(file, start, self.path):
                yield payload, before, last
                if last == end:
                    return
        raise JournalCorruptionError(
            self.path, last.num_records + 3, "it is not as it was when the journal was opened"
        )

    def _read_header(self, file: BinaryIO) -> tuple[bytes, Position]:
        check_format_line(read_first_line(file), KIND, self.path)
        line = read_line(file)
        try:
            payload, checksum = decode_line(line, first_checksum(KIND))
        except DamagedLineError as error:
            raise JournalCorruptionError(self.path, 2, f"the header: {error}") from error
        return payload, Position(0, before_header().offset + len(line), checksum)

    def _find_snapshot(self, file: BinaryIO) -> Snapshot | None:
        try:
            return load_snapshot(self.path, file)
        except UnusableSnapshotError as error:
            warnings.warn(
                f"{snapshot_path(self.path)} is not used: {error}. The whole journal is read "
                "instead; the next snapshot replaces this one.",
                SnapshotWarning,
                stacklevel=4,
            )
            return None


def before_header() -> Position:
    """Return the position behind the first line, before the header."""
    return Position(-1, len(format_line(KIND)), first_checksum(KIND))
