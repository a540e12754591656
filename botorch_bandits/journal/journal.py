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

from botorch_bandits.journal.files import (
    WriterLock,
    check_place,
    open_own,
    open_to_read,
    place_of,
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
    TornTailWarning,
    check_format_line,
    decode_line,
    encode_line,
    first_checksum,
    format_line,
    parse,
    read_line,
    scan,
)

KIND = "journal"


class JournalReader:
    """A journal as it was when it was opened; made by :meth:`Journal.read`.

    A last line that is incomplete or damaged is left out, because it may be in the process of being
    written. A last line that lacks only its line break counts.

    Args:
        path: The path of the journal.

    Attributes:
        path: The path of the journal, absolute and without symbolic links.

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
        with self._open_file() as file:
            self._header, self._first = self._read_header(file)
            self._end = self._first
            for _, position in scan(file, self._first, self.path):
                self._end = position

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

    def records(self) -> Iterator[dict[str, Any]]:
        """Return the records in order, read from the file one at a time.

        Raises:
            JournalCorruptionError: If a line is damaged; the records before it were already
                returned.
        """
        last, end = self._first, self._end
        if last == end:
            return
        with self._open_file() as file:
            file.seek(last.offset)
            for payload, position in scan(file, self._first, self.path):
                yield parse(payload)
                last = position
                if last == end:
                    return
        raise JournalCorruptionError(
            self.path, last.num_records + 3, "it has changed since the journal was opened"
        )

    def _open_file(self) -> BinaryIO:
        try:
            check_place(self.path)
            return open_to_read(self.path)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"there is no journal {self.path}. Check the path, or begin one with "
                "Journal.create."
            ) from error

    def _read_header(self, file: BinaryIO) -> tuple[bytes, Position]:
        check_format_line(read_line(file), KIND, self.path)
        line = read_line(file)
        try:
            payload, checksum = decode_line(line, first_checksum(KIND))
        except DamagedLineError as error:
            raise JournalCorruptionError(self.path, 2, f"the header: {error}") from error
        return payload, Position(0, len(format_line(KIND)) + len(line), checksum)


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

    def __init__(self, path: Path, lock: WriterLock) -> None:
        """For :meth:`create` and :meth:`open`, which hold the lock."""
        self._lock = lock
        super().__init__(path)
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._broken: str | None = None
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
    def create(cls, path: str | Path, header: dict[str, Any]) -> Journal:
        """Begin a journal; it is on disk when this returns.

        Args:
            path: The path of the new file, which must not exist yet.
            header: Data that apply to all records, such as settings.

        Raises:
            FileExistsError: If the file exists.
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
        line, _ = encode_line(header, first_checksum(KIND), name="header")
        check_place(path)
        if os.path.lexists(path):
            raise _is_there_already(path)
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
    def open(cls, path: str | Path) -> Journal:
        """Open a journal to continue it.

        Args:
            path: The path of the journal.

        Raises:
            FileNotFoundError: If there is no such file.
            IsADirectoryError: If it is a folder.
            JournalError: If it, or a file that belongs beside it, is a symbolic link or anything
                else that is not a regular file.
            JournalLockedError: If it is open for writing, here or in another process.
            JournalFormatError: If it is not a journal, or has an unknown version.
            JournalCorruptionError: If a line before the last one is damaged.
            OSError: If it cannot be locked or written to disk, or a torn tail cannot be cut off.

        Warns:
            TornTailWarning: If the last line was incomplete or damaged, and was cut off.
        """
        path = place_of(path)
        check_place(path)
        if not path.exists():
            JournalReader(path)  # raises a better error
        lock = WriterLock(path)
        try:
            lock.write_holder()
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def read(path: str | Path) -> JournalReader:
        """Return a reader of the journal as of now, without a lock; see :class:`JournalReader`."""
        return JournalReader(path)

    def append(self, record: dict[str, Any]) -> int:
        """Write a record; it is on disk when this returns.

        If this raises, the record does not count, and the journal can be appended to as before,
        unless the error says otherwise.

        Args:
            record: A dictionary of plain values.

        Returns:
            The number of records, including this one.

        Raises:
            JournalError: If the journal is closed, or belongs to the parent of this process.
            JournalWriteError: If the record cannot be put on disk.
            TypeError: If the record is not a dictionary of plain values.
            ValueError: If a number in it is NaN or infinite.
        """
        self.check_process()
        with self._guard:
            self._check_writable()
            end = self._end
            line, checksum = encode_line(record, end.checksum)
            try:
                self._write(line)
                self._end = Position(end.num_records + 1, end.offset + len(line), checksum)
            except BaseException as error:
                self._end = end
                self._withdraw(error)
                raise
            return self._end.num_records

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._process != os.getpid():
            self._release()  # another thread of the parent may hold the guard forever
            return
        with self._guard:
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

    def _write(self, line: bytes) -> None:
        if self._lacks_line_break:
            line = b"\n" + line
        write_at(self._descriptor, self._size, line)
        self._lacks_line_break = False

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
                write_at(descriptor, at, part)
                at += len(part)
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
