"""Reading a journal, even while another process writes to it, and writing one.

A reader checks every line and repairs nothing. A writer holds the lock, cuts off a last line that a
crash left half written (and keeps it in a separate file), and returns from writing a record when it
is on disk.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from botorch_bandits.checks import check_integer, check_one_of
from botorch_bandits.journal.files import (
    HandlersOnHold,
    Snapshot,
    UnusableSnapshotError,
    WriterLock,
    check_place,
    keep_unusable_snapshot,
    load_snapshot,
    open_own,
    open_to_read,
    place_of,
    save_snapshot,
    snapshot_path,
    sync_folder,
    write_at,
    write_first,
)
from botorch_bandits.journal.lines import (
    DamagedLineError,
    JournalCorruptionError,
    JournalError,
    JournalWriteError,
    Position,
    SnapshotAheadError,
    SnapshotWarning,
    TornTailWarning,
    check_format_line,
    decode_line,
    encode_line,
    first_checksum,
    format_line,
    parse,
    read_first_line,
    read_line,
    scan,
)

KIND = "journal"
DURABILITY = ("record", "batch")
MAX_GROUPED_RECORDS = 100
MAX_GROUPED_BYTES = 2**20
"""The most records and bytes that wait to be written to disk together."""


class JournalReader:
    """A journal as it was when it was opened; made by :meth:`Journal.read`.

    A last line that is incomplete or damaged is left out, because it may be in the process of being
    written. A last line that lacks only its line break counts.

    Args:
        path: The path of the journal.

    Attributes:
        path: The path of the journal, absolute and without symbolic links.
        num_checked: How many records were checked on opening.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
        JournalError: If it is a symbolic link or anything else that is not a regular file.
        JournalFormatError: If it is not a journal, or has an unknown version.
        JournalCorruptionError: If a line before the last one is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        """See the class."""
        self.path = place_of(path)
        self._is_snapshot_unusable = False
        self._ahead: Snapshot | None = (
            None  # a snapshot that may have records that the journal has lost
        )
        with self._open_file() as file:
            self._header, self._first = self._read_header(file)
            self._before, self._end = before_header(), self._first
            snapshot = self._find_snapshot(file, is_opening=True)
            self._snapshot = snapshot
            if self._snapshot is not None:
                self._before, self._end = self._snapshot.before, self._snapshot.after
            self._known = self._end  # where reading can begin, besides the first record
            file.seek(self._end.offset)
            self.num_checked = 0
            for _, before, position in scan(file, self._end, self.path, self._num_grouped_bytes()):
                self._before, self._end = before, position
                self.num_checked += 1
                if snapshot is not None and snapshot.num_records == position.num_records:
                    self._check_place_of_snapshot(snapshot)

    def __repr__(self) -> str:
        """Show the file and its number of records."""
        return f"{type(self).__name__}({str(self.path)!r}, {self.num_records} records)"

    @property
    def header(self) -> dict[str, Any]:
        """The header with which the journal was created; a copy."""
        return parse(self._header)

    @property
    def num_records(self) -> int:
        """The number of records, without the header."""
        return self._end.num_records

    def records(self, after: int = 0) -> Iterator[dict[str, Any]]:
        """Return the records in order, read from the file one at a time.

        Args:
            after: How many records to skip, such as those that a snapshot covers.

        Raises:
            JournalCorruptionError: If a line is damaged; the records before it were already
                returned.
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
        """Return the latest snapshot, or None if no usable one exists.

        Warns:
            SnapshotWarning: If there is one, but it is damaged or belongs to another journal.
        """
        # it is returned only once, because a state may be large
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is None:
            with self._open_file() as file:
                snapshot = self._find_snapshot(file)
        return snapshot

    def _num_grouped_bytes(self) -> int:
        """Return how many bytes at the end may have been written to disk in groups."""
        durability = parse(self._header).get("durability", DURABILITY[0])
        return 0 if durability == DURABILITY[0] else MAX_GROUPED_BYTES

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
        """Read the records up to a position, starting at most ``after`` records in."""
        start = self._known if self._known.num_records <= after else self._first
        if start == end:
            return
        last = start
        with self._open_file() as file:
            file.seek(start.offset)
            for payload, before, last in scan(file, start, self.path, self._num_grouped_bytes()):
                yield payload, before, last
                if last == end:
                    return
        raise JournalCorruptionError(
            self.path, last.num_records + 3, "it has changed since the journal was opened"
        )

    def _read_header(self, file: BinaryIO) -> tuple[bytes, Position]:
        check_format_line(read_first_line(file), KIND, self.path)
        line, is_whole = read_line(file, first_checksum(KIND))
        try:
            if not is_whole:
                raise DamagedLineError("its line is too long, or its checksum does not fit")
            payload, checksum = decode_line(line, first_checksum(KIND))
        except DamagedLineError as error:
            raise JournalCorruptionError(self.path, 2, f"the header: {error}") from error
        return payload, Position(0, before_header().offset + len(line), checksum)

    def _find_snapshot(self, file: BinaryIO, is_opening: bool = False) -> Snapshot | None:
        try:
            return load_snapshot(self.path, file, self._first.checksum)
        except UnusableSnapshotError as error:
            self._is_snapshot_unusable = True
            self._ahead = error.snapshot if is_opening else None
            self._warn_of_snapshot(str(error))
            return None

    def _check_place_of_snapshot(self, snapshot: Snapshot) -> None:
        if self._end != snapshot.after:
            raise JournalCorruptionError(
                self.path, snapshot.num_records + 2, "its snapshot has it at another position"
            )

    def _warn_of_snapshot(self, reason: str) -> None:
        warnings.warn(
            f"{snapshot_path(self.path)} is not used: {reason}. The whole journal is read "
            "instead; the next snapshot replaces this one.",
            SnapshotWarning,
            stacklevel=5,
        )


def before_header() -> Position:
    """Return the position after the first line, before the header."""
    return Position(-1, len(format_line(KIND)), first_checksum(KIND))


class Journal(JournalReader):
    """An append-only file of records that survives crashes; one process writes, others read.

    :meth:`create`, :meth:`open` and :meth:`read` return one. A record is a dictionary of plain
    values (None, bools, ints, floats, strings, lists, dictionaries). It is read back exactly as it
    was written. Several threads may append. A forked child may not append, because the journal
    belongs to its parent.

    See :class:`JournalReader` for the other arguments.

    Attributes:
        torn_bytes: How many bytes were cut off on opening, because their writing had been
            interrupted. They are kept in ``<path>.cut-<offset>``.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.journal"
        >>> with Journal.create(path, {"seed": 0}) as journal:
        ...     journal.append({"x": [0.1], "reward": 0.2})
        1
        >>> with Journal.open(path) as journal:
        ...     journal.header, list(journal.records())
        ({'seed': 0}, [{'x': [0.1], 'reward': 0.2}])
    """

    def __init__(self, path: Path, lock: WriterLock, durability: str | None = None) -> None:
        """For :meth:`create` and :meth:`open`, which hold the lock and know ``durability``."""
        self._lock = lock
        super().__init__(path)
        self._check_not_behind()
        self.durability = self._settle_durability(durability)
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._broken: str | None = None
        self._num_waiting = self._num_waiting_bytes = 0  # records not known to be on disk
        self._descriptor, self._name = lock.descriptor, os.fspath(self.path)
        # an object that is garbage-collected without close() also releases its lock
        self._release = weakref.finalize(self, lock.release)
        num_behind = os.fstat(self._descriptor).st_size - self._end.offset
        self._lacks_line_break = num_behind == -1  # the next append writes it after the last line
        self.torn_bytes = max(num_behind, 0)
        if self.torn_bytes:
            self._cut_torn_tail()
        # a process that died may have created and written the file without syncing it
        os.fsync(self._descriptor)
        sync_folder(self.path)

    @classmethod
    def create(
        cls, path: str | Path, header: dict[str, Any], durability: str = DURABILITY[0]
    ) -> Journal:
        """Begin a journal; it is on disk when this returns.

        Args:
            path: The path of the new file, which must not exist yet.
            header: Data that apply to all records, such as settings.
            durability: ``"record"``: each record is on disk when :meth:`append` returns. With
                ``"batch"`` records are put on disk together, by :meth:`sync`, :meth:`close`, a
                snapshot, or as soon as 100 of them or 1 MiB wait: what waits survives if the
                process dies, but not if the machine does. The header then has an entry of this
                name.

        Raises:
            FileExistsError: If the file, or a snapshot of an earlier one, exists.
            FileNotFoundError: If its folder does not exist.
            IsADirectoryError: If it is a folder.
            JournalError: If it, or a file that belongs beside it, is not a regular file.
            JournalLockedError: If another process opened it as soon as it existed.
            JournalWriteError: If it cannot be written to disk.
            OSError: If it cannot be locked.
            TypeError: If the header is not a dictionary of plain values.
            ValueError: If a number in it is NaN or infinite.
        """
        path = place_of(path)
        if check_one_of("durability", durability, DURABILITY) != DURABILITY[0]:
            header = {**header, "durability": durability}
        line, _ = encode_line(header, first_checksum(KIND), name="header")
        check_place(path)
        for known in (path, snapshot_path(path)):
            if os.path.lexists(known):
                raise _is_there_already(known)
        try:
            write_first(path, format_line(KIND) + line)
        except FileExistsError as error:
            raise _is_there_already(path) from error
        except OSError as error:
            raise JournalWriteError(
                f"{path} cannot be written: {error}. Free space on the disk, or choose another "
                "path."
            ) from error
        lock = WriterLock(path)
        try:
            lock.write_holder()
            return cls(path, lock)
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()  # no other process has opened it, and it is empty
            lock.release()
            raise

    @classmethod
    def open(cls, path: str | Path, durability: str | None = None) -> Journal:
        """Open a journal to continue it.

        Args:
            path: The path of the journal.
            durability: As for :meth:`create`; if omitted, the one with which it was begun.
                ``"batch"`` requires a journal that was begun with it, so that the remains of a
                batch after a power cut can be recognized.

        Raises:
            FileNotFoundError: If there is no such file.
            IsADirectoryError: If it is a folder.
            JournalError: If it, or a file that belongs beside it, is a symbolic link or anything
                else that is not a regular file.
            JournalLockedError: If it is open for writing, here or in another process.
            JournalFormatError: If it is not a journal, or has an unknown version.
            JournalCorruptionError: If a line before the last one is damaged.
            SnapshotAheadError: If its snapshot covers records that it has lost.
            OSError: If it cannot be locked or written to disk, or a torn tail cannot be cut off.
            ValueError: If ``durability`` is ``"batch"``, but the journal was not begun with it.

        Warns:
            TornTailWarning: If the last line was incomplete or damaged, and was cut off.
            SnapshotWarning: If the snapshot is damaged or belongs to another journal, and is not
                used.
        """
        path = place_of(path)
        check_place(path)
        if not path.exists():
            JournalReader(path)  # raises a better error
        lock = WriterLock(path)
        try:
            lock.write_holder()
            return cls(path, lock, durability)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def read(path: str | Path) -> JournalReader:
        """Return a reader of the journal as of now, without a lock; see :class:`JournalReader`."""
        return JournalReader(path)

    def append(self, record: dict[str, Any], sync: bool | None = None) -> int:
        """Write a record; it is on disk when this returns, unless ``durability`` says otherwise.

        If this raises, the record does not count, and the journal can be appended to as before,
        unless the error says otherwise. Signal handlers are called after it.

        Args:
            record: A dictionary of plain values.
            sync: Whether this and all earlier records are on disk when this returns; if omitted,
                ``durability`` decides.

        Returns:
            The number of records, including this one.

        Raises:
            JournalError: If the journal is closed, or belongs to the parent of this process.
            JournalWriteError: If the record cannot be put on disk.
            TypeError: If the record is not a dictionary of plain values.
            ValueError: If a number in it is NaN or infinite.
        """
        self.check_process()
        with HandlersOnHold(), self._guard:
            self._check_writable()
            before, end = self._before, self._end
            line, checksum = encode_line(record, end.checksum)
            is_synced = self.durability == DURABILITY[0] if sync is None else sync
            if not is_synced and self._num_waiting_bytes + len(line) > MAX_GROUPED_BYTES:
                self._sync()
            is_synced = is_synced or (
                self._num_waiting + 1 >= MAX_GROUPED_RECORDS or len(line) > MAX_GROUPED_BYTES
            )
            try:
                self._write(line, is_synced)
                self._before = end
                self._end = Position(end.num_records + 1, end.offset + len(line), checksum)
            except BaseException as error:
                self._before, self._end = before, end
                self._withdraw(error)
                raise
            self._num_waiting = 0 if is_synced else self._num_waiting + 1
            self._num_waiting_bytes = 0 if is_synced else self._num_waiting_bytes + len(line)
            return self._end.num_records

    def sync(self) -> None:
        """Write pending records to disk; without ``durability="batch"`` there are none.

        Raises:
            JournalError: If the journal is closed, or belongs to the parent of this process.
            JournalWriteError: If they cannot be written to disk; nothing more is written then.
        """
        self.check_process()
        with HandlersOnHold(), self._guard:
            self._check_writable()
            self._sync()

    def write_snapshot(self, state: dict[str, Any], after: int) -> None:
        """Store the state after the first records, replacing the last snapshot.

        Args:
            state: A dictionary of plain values.
            after: The number of records that it covers.

        Raises:
            JournalError: If the journal is closed, or belongs to the parent of this process, or
                the file to which the snapshot is first written is not a regular file.
            JournalWriteError: If it cannot be put on disk; the last snapshot is then kept.
            TypeError: If the state is not a dictionary of plain values.
            ValueError: If a number in it is NaN or infinite, it is longer than any line may be, or
                there are fewer records.
        """
        self.check_process()
        with HandlersOnHold(), self._guard:
            self._check_writable()
            before, position = self._find(check_integer("after", after, minimum=0))
            self._sync()  # a snapshot is never ahead of its journal
            snapshot = Snapshot(state, before, position, self._first.checksum)
            try:
                if self._is_snapshot_unusable:
                    keep_unusable_snapshot(self.path)
                    self._is_snapshot_unusable = False
                save_snapshot(self.path, snapshot)
            except OSError as error:
                raise JournalWriteError(
                    f"{snapshot_path(self.path)} cannot be written: {error}. The journal itself is "
                    "whole; free space on the disk."
                ) from error
            self._snapshot, self._known = None, position

    def close(self) -> None:
        """Write pending records to disk and release the lock; a second call does nothing.

        Raises:
            JournalWriteError: If they cannot be written to disk; the lock is released anyway.
        """
        if self._process != os.getpid():
            self._release()  # another thread of the parent may hold the guard forever
            return
        with HandlersOnHold(), self._guard:
            try:
                if self._release.alive and self._broken is None:
                    self._sync()
            finally:
                self._release()

    def __enter__(self) -> Journal:
        """Return the journal itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the journal."""
        self.close()

    def _find(self, num_records: int) -> tuple[Position, Position]:
        """Return the positions before and after the last of the first records."""
        if num_records == self.num_records:
            return self._before, self._end
        if num_records > self.num_records:
            raise ValueError(
                f"after is {num_records}, but {self.path} has {self.num_records} records; pass at "
                "most that number."
            )
        if num_records == 0:
            return before_header(), self._first
        for _, before, position in self._positions(num_records - 1, self._end):
            if position.num_records == num_records:
                return before, position
        raise AssertionError("reading ends with the last record or an error")

    def check_process(self) -> None:
        """Raise an error in a child process forked from the one that opened the journal.

        Raises:
            JournalError: If this is such a child process.
        """
        if self._process != os.getpid():
            raise JournalError(
                f"{self.path} was opened by process {self._process}, and this is its child "
                f"{os.getpid()}. Write in the parent; children can use Journal.read."
            )

    def _check_writable(self) -> None:
        if not self._release.alive:
            raise JournalError(f"{self.path} is closed. Open it again to continue.")
        if self._broken is not None:
            raise JournalError(self._broken)
        try:
            is_there = self._lock.is_on(os.lstat(self._name))
        except FileNotFoundError:
            is_there = False
        if not is_there or os.fstat(self._descriptor).st_size != self._size:
            what = "changed by somebody else" if is_there else "moved, deleted or replaced"
            raise JournalWriteError(
                f"{self.path} was {what} while it was open, so nothing is written. Restore it, "
                "and open it again."
            )

    @property
    def _size(self) -> int:
        """Return the size of the file."""
        return self._end.offset - self._lacks_line_break

    def _write(self, line: bytes, is_synced: bool) -> None:
        if self._lacks_line_break:
            line = b"\n" + line
        write_at(self._descriptor, self._size, line, is_synced)
        self._lacks_line_break = False

    def _sync(self) -> None:
        if not self._num_waiting:
            return
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # the system may have dropped data that it could not write, and reports it only once
            self._broken = (
                f"the last {self._num_waiting} records could not be put on disk: {error}. Repair "
                f"the disk and open {self.path} again to see which of them it contains."
            )
            raise JournalWriteError(self._broken) from error
        self._num_waiting = self._num_waiting_bytes = 0

    def _num_grouped_bytes(self) -> int:
        """See the reader; what this process wrote can be read even if it is not yet on disk."""
        return 0 if hasattr(self, "_num_waiting") else super()._num_grouped_bytes()

    def _check_not_behind(self) -> None:
        """Raise an error if the snapshot has records that the journal lacks.

        Raises:
            SnapshotAheadError: If it does; both files are left unchanged.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.num_records > self.num_records:
            raise SnapshotAheadError(
                f"{self.path} has {self.num_records} whole records, but its snapshot "
                f"{snapshot_path(self.path)} covers {ahead.num_records}: the journal was cut off, "
                "or replaced by an earlier copy. Nothing is changed. Restore the journal from a "
                "backup. If the snapshot belongs to another journal, move it away."
            )

    def _settle_durability(self, wanted: str | None) -> str:
        begun = parse(self._header).get("durability")
        begun = begun if begun in DURABILITY else DURABILITY[0]
        if wanted is None:
            return str(begun)
        if check_one_of("durability", wanted, DURABILITY) != DURABILITY[0] and wanted != begun:
            raise ValueError(
                f"durability= is to group records, but {self.path} was begun with {begun!r}, so "
                "what a power cut leaves of a group would be taken for damage. Leave it out, or "
                "begin another journal."
            )
        return wanted

    def _open_file(self) -> BinaryIO:
        """Open the journal for reading, and check that it is the file that is locked."""
        file = super()._open_file()
        if not self._lock.is_on(os.fstat(file.fileno())):
            file.close()
            raise JournalError(
                f"{self.path} was replaced while it was open. Restore it, and open it again."
            )
        return file

    def _withdraw(self, error: BaseException) -> None:
        """Undo what a failed append has written."""
        self._broken = (
            f"an earlier record could be neither written to {self.path} nor removed again. Repair "
            "the disk and open the journal again to see whether it contains that record."
        )
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
            self._broken = None
        if isinstance(error, OSError):
            remedy = self._broken or "Free space on the disk and write it again."
            raise JournalWriteError(
                f"the record was not written to {self.path}: {error}. {remedy}"
            ) from error

    def _cut_torn_tail(self) -> None:
        offset = self._end.offset
        kept = self.path.with_name(f"{self.path.name}.cut-{offset}")
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        descriptor = open_own(kept, os.O_WRONLY)
        try:
            at = os.fstat(descriptor).st_size  # the file may contain an earlier tail
            while part := os.read(self._descriptor, 1 << 20):
                write_at(descriptor, at, part, is_synced=False)
                at += len(part)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(kept)
        os.ftruncate(self._descriptor, offset)
        os.fsync(self._descriptor)
        warnings.warn(
            f"the last {self.torn_bytes} bytes of {self.path}, on line {self.num_records + 3}, are "
            f"not a whole record and were cut off, because their writing was interrupted. They are "
            f"kept in {kept}.",
            TornTailWarning,
            stacklevel=4,
        )


def _is_there_already(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{path} already exists. Continue it with Journal.open, move it away, or choose another "
        "path."
    )
