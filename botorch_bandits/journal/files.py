"""The files of a journal: one writer, writing that is on disk or not at all, and snapshots.

This module deals with the operating system and knows nothing about records: it contains locks,
files that are replaced as a whole, and the refusal of files that somebody else may have prepared.

**One writer.** The lock is on the journal's own open file. Another name of the file (a hard link)
therefore has the same lock, and a removed ``.lock`` changes nothing. The file ``<path>.lock`` only
says who had the lock last.

**Prepared folders.** A folder may come from somebody else. An entry under the name of a file that a
journal makes may be a symbolic link to a file of the user, or a pipe that never answers. Nothing is
therefore written or read through a link, and anything that is not a regular file is refused.

**Snapshots.** A snapshot is beside its journal, as ``<path>.snapshot``. Its first line names the
format; the second is a line like those of a journal. It holds the state, and the position in the
journal to which the state belongs, with the checksum there. The checksum covers all records so far,
so the snapshot of another journal does not fit. A snapshot can be deleted at any time, because the
journal contains everything.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # as signal, but ten times as fast
import contextlib
import errno
import json
import os
import secrets
import signal
import socket
import stat
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, BinaryIO

from botorch_bandits.journal.lines import (
    MAX_LINE_BYTES,
    DamagedLineError,
    JournalError,
    JournalLockedError,
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

_SAY_LOCKED = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK)
_NUM_LOCK_TRIES = 10
_MAX_HOLDER_BYTES = 1000
_held: dict[tuple[int, int], WriterLock] = {}  # by device and inode of the journal
_held_guard = threading.RLock()  # because garbage collection may release a lock at any time
_forks_are_watched = False


class WriterLock:
    """The right to write to a journal, which at most one object in one process has.

    The operating system takes the lock back when the process ends, however it ends. A forked child
    does not have it.

    Args:
        path: The path of the journal, which must exist.

    Attributes:
        descriptor: The descriptor of the journal's file, open for reading and writing.

    Raises:
        FileNotFoundError: If there is no journal.
        JournalError: If it is not a regular file.
        JournalLockedError: If somebody has the lock.
        OSError: If the file cannot be opened or locked.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and lock it."""
        self._path, self._process = path, os.getpid()
        with _held_guard:
            _watch_forks()
            for _ in range(_NUM_LOCK_TRIES):
                self.descriptor = open_regular(path, os.O_RDWR)
                try:
                    self._lock()
                    status = os.fstat(self.descriptor)
                    is_there = _is_at(path, status)
                except BaseException:
                    os.close(self.descriptor)
                    raise
                if is_there:
                    break
                os.close(self.descriptor)  # the file was replaced after it was opened
            else:
                raise JournalError(
                    f"{path} is replaced again and again by another program. End that program, and "
                    "open the journal again."
                )
            self._key = (status.st_dev, status.st_ino)
            _held[self._key] = self
        self._is_released = False

    def write_holder(self) -> None:
        """Write to ``<path>.lock`` which process has the lock.

        Raises:
            JournalError: If that file is not a regular file with a single name.
            OSError: If it cannot be written.
        """
        descriptor = open_own(_holder_path(self._path), os.O_WRONLY)
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, json.dumps(_myself()).encode("ascii"))
        except OSError as error:
            raise OSError(
                error.errno,
                f"{self._path} is not opened, because {_holder_path(self._path)} cannot be "
                f"written ({error.strerror}). Free space on the disk, and open it again.",
            ) from error
        finally:
            os.close(descriptor)

    def is_on(self, status: os.stat_result) -> bool:
        """Return whether a file is the locked one.

        Args:
            status: The result of ``os.fstat`` or ``os.lstat`` for the file.
        """
        return (status.st_dev, status.st_ino) == self._key

    def release(self) -> None:
        """Give the lock back and close the file; a second call does nothing."""
        if self._process != os.getpid():
            return  # a forked child never had the lock, and has closed its descriptor
        with _held_guard:
            if not self._is_released:
                self._is_released = True
                del _held[self._key]
                try:
                    # a process that is being started has a copy, so closing is not enough
                    _unlock_file(self.descriptor)
                finally:
                    os.close(self.descriptor)

    def _lock(self) -> None:
        try:
            _lock_file(self.descriptor)
        except OSError as error:
            if error.errno not in _SAY_LOCKED:
                raise OSError(
                    error.errno,
                    f"{self._path} cannot be locked, so that a second writer would go unnoticed "
                    f"({error.strerror}). Keep the journal on a disk that has file locks.",
                ) from error
            status = os.fstat(self.descriptor)
            if (status.st_dev, status.st_ino) in _held:
                raise JournalLockedError(
                    f"{self._path} is open for writing in this process already (process "
                    f"{os.getpid()}). Close that journal first, or use Journal.read, which needs "
                    "no lock.",
                    os.getpid(),
                ) from error
            holder = _read_holder(self._path)
            raise JournalLockedError(_locked_message(self._path, holder), holder) from error


def _holder_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _read_holder(path: Path) -> int | None:
    """Return the process that wrote ``<path>.lock`` last; None if it is unknown."""
    try:
        with open_to_read(_holder_path(path)) as file:
            known = json.loads(file.read(_MAX_HOLDER_BYTES))
        return int(known["process"]) if known["host"] == socket.gethostname() else None
    except (JournalError, OSError, ValueError, KeyError, TypeError):
        return None  # it is being written, or was removed


def _is_at(path: Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(status, os.lstat(path))
    except FileNotFoundError:
        return False


def _myself() -> dict[str, str | int]:
    return {"process": os.getpid(), "host": socket.gethostname()}


def _locked_message(path: Path, holder: int | None) -> str:
    who = "another process" if holder is None else f"process {holder}"
    return (
        f"{path} is being written by {who}. One process writes to a journal at a time: end that "
        "one first, or use Journal.read, which needs no lock."
    )


_SIGNALS = tuple(
    sorted(
        int(number)
        for number in signal.valid_signals()
        if int(number) not in (getattr(signal, "SIGKILL", 0), getattr(signal, "SIGSTOP", 0))
    )
)


# the last handlers of all signals, and those among them that are Python functions of the program
_seen: tuple[list[Any], list[tuple[int, Any]]] = ([], [])
_first_thread = threading.main_thread().ident  # a child of a fork keeps the identity


class HandlersOnHold:
    """While this is entered, no Python signal handler runs in this thread.

    A handler may call the function that it interrupts: in the middle of a record, it would wait for
    itself, or write a second record into the first. Signals that arrive are handled at the end. For
    a program without its own handlers, this costs two microseconds. The default handler of
    ``SIGINT``, which calls nothing, interrupts.
    """

    def __enter__(self) -> HandlersOnHold:
        """Put the handlers on hold; handlers never run in other threads than the first."""
        global _seen
        self._kept: list[tuple[int, Any]] = []
        if threading.get_ident() != _first_thread:
            return self
        handlers = list(map(_signal.getsignal, _SIGNALS))
        seen = _seen
        if handlers != seen[0]:
            found = [
                (number, handler)
                for number, handler in zip(_SIGNALS, handlers, strict=True)
                if callable(handler)
                and not isinstance(handler, _Waiting)
                and handler is not signal.default_int_handler
            ]
            seen = _seen = handlers, found
        if seen[1]:
            self._waiting, self._kept = _Waiting(), seen[1]
            try:
                for number, _ in self._kept:
                    _signal.signal(number, self._waiting)
            except BaseException:  # an interrupt must not leave some on hold forever
                self._take_back()
                raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the handlers, and call them for the signals that arrived meanwhile."""
        if self._kept:
            try:
                self._take_back()
            except BaseException:
                self._take_back()
                raise
            _held_signals.extend(self._waiting.numbers)
        if _held_signals and threading.get_ident() == _first_thread:
            _deliver_signals()

    def _take_back(self) -> None:
        for number, handler in self._kept:
            _signal.signal(number, handler)


class _Waiting:
    """Replaces a handler, and records which signals arrived."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.numbers.append(number)


_held_signals: list[int] = []
_is_delivering = False
_MOST_PASSES = 10


def _deliver_signals() -> None:
    """Call handlers for the signals that arrived, one after the other.

    A handler may itself write a record while the next signal arrives; that signal waits until the
    handler has ended. Signals that arrive faster than they are handled are left to the next record.
    """
    global _is_delivering
    if _is_delivering:
        return
    _is_delivering = True
    try:
        for _ in range(_MOST_PASSES):
            numbers = list(dict.fromkeys(_held_signals))
            _held_signals.clear()
            _raise_signals(numbers)
            if not _held_signals:
                break
    finally:
        _is_delivering = False


def _raise_signals(numbers: Sequence[int]) -> None:
    """Raise each signal, even if the handler of an earlier one raises an error."""
    if numbers:
        try:
            if callable(_signal.getsignal(numbers[0])):  # the program has not removed the handler
                signal.raise_signal(numbers[0])
        finally:
            _raise_signals(numbers[1:])


if sys.platform == "win32":
    import msvcrt

    # Far beyond the content, because Windows hides locked bytes; the C library takes 31 bits.
    _LOCKED_BYTE = 2**31 - 2

    def _lock_file(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock_file(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        with contextlib.suppress(OSError):
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _watch_forks() -> None:
        """Do nothing: Windows has no forks."""

else:
    import fcntl

    # Not lockf, whose lock is released as soon as any descriptor of the file is closed in this
    # process, such as a reader's.
    def _lock_file(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock_file(descriptor: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _watch_forks() -> None:
        """Have forked children close their copies, which would keep the lock of a dead parent."""
        global _forks_are_watched
        if not _forks_are_watched:
            _forks_are_watched = True
            os.register_at_fork(
                before=_held_guard.acquire,  # so that every open descriptor is in the table
                after_in_parent=_held_guard.release,
                after_in_child=_close_copies,
            )

    def _close_copies() -> None:
        for lock in _held.values():
            with contextlib.suppress(OSError):
                os.close(lock.descriptor)
        _held.clear()
        _held_guard.release()


# A pipe is opened without waiting for its other end; the opened file is checked afterwards.
_SAFE_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
)
_SAY_LINK = (errno.ELOOP, errno.EMLINK)
_SAY_NO_HARD_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
_NUM_TRIES = 10
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def place_of(path: str | Path) -> Path:
    """Return the absolute path of a journal, in a folder without symbolic links.

    The last part of the path is not resolved, so that a link there can be refused.

    Args:
        path: The path of a journal, which need not exist.
    """
    path = Path(path)
    return path.parent.resolve() / path.name


def check_place(path: Path) -> None:
    """Raise an error unless a journal can be at a path.

    Args:
        path: A path as returned by :func:`place_of`.

    Raises:
        FileNotFoundError: If its folder does not exist.
        IsADirectoryError: If it is a folder.
        JournalError: If something other than a regular file is there.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"the folder {path.parent} of the journal {path.name} does not exist. Create it first, "
            "or choose another path."
        )
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(
                f"{path} is a folder, but a journal is a file. Name a file in it, such as "
                f"{path / 'run.journal'}."
            )
        remedy = "Choose another path."
        if stat.S_ISLNK(status.st_mode):
            remedy = f"It points to {os.path.realpath(path)}; pass that path instead."
        check_regular(path, status, remedy)


def check_regular(path: Path, status: os.stat_result, remedy: str = "Remove it.") -> None:
    """Raise an error unless a file is a regular file.

    Args:
        path: The path of the file, for the message.
        status: The result of ``os.lstat`` or ``os.fstat`` for the file.
        remedy: What to do about it, for the message.

    Raises:
        JournalError: Saying what it is instead.
    """
    if stat.S_ISREG(status.st_mode):
        return
    kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
    raise JournalError(
        f"{path} is {kind}. A journal and the files beside it must be regular files. {remedy}"
    )


def open_regular(path: Path, flags: int) -> int:
    """Open an existing regular file, but never through a symbolic link.

    Args:
        path: The path of the file.
        flags: The flags of ``os.open``.

    Returns:
        The descriptor.

    Raises:
        FileNotFoundError: If it does not exist.
        JournalError: If it is not a regular file.
        OSError: If it cannot be opened.
    """
    check_regular(path, os.lstat(path))
    try:
        descriptor = os.open(path, flags | _SAFE_FLAGS)
    except OSError as error:
        if error.errno in _SAY_LINK:  # it has become a link in the meantime
            raise JournalError(f"{path} is a symbolic link. Remove the link.") from error
        raise
    try:
        check_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_to_read(path: Path) -> BinaryIO:
    """Open a regular file for reading; see :func:`open_regular`.

    Args:
        path: The path of the file.
    """
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a regular file, or of the target of a link, if it is not too large.

    Args:
        path: The path of the file.
        most: The largest number of bytes that is read.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a regular file, or has more bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | (_SAFE_FLAGS & ~getattr(os, "O_NOFOLLOW", 0)))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        if status.st_size > most:
            raise ValueError(f"{path} has {status.st_size} bytes, but at most {most} are read")
        return file.read(most)


def open_own(path: Path, flags: int) -> int:
    """Open a file that a journal keeps beside it, and create it if it does not exist.

    Args:
        path: The path of the file.
        flags: The flags of ``os.open``.

    Returns:
        The descriptor.

    Raises:
        JournalError: If it is anything but a regular file with this single name.
        OSError: If it cannot be opened.
    """
    for _ in range(_NUM_TRIES):
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o666)
        try:
            descriptor = open_regular(path, flags)
        except FileNotFoundError:
            continue  # the file was removed in between
        if os.fstat(descriptor).st_nlink > 1:
            os.close(descriptor)
            raise JournalError(
                f"{path} is a hard link: the file has another name too, and would be changed under "
                f"that name. Remove {path}."
            )
        return descriptor
    raise JournalError(
        f"{path} is created and removed again and again by another program. End that program."
    )


def write_first(path: Path, content: bytes) -> None:
    """Write a file that does not exist yet; afterwards it exists as a whole or not at all.

    Args:
        path: The path of the file.
        content: The content of the file.

    Raises:
        FileExistsError: If a file exists there.
        OSError: If it cannot be written.
    """
    # a unique name, because another process may be doing the same
    temporary = path.with_name(f"{path.name}.new-{secrets.token_hex(8)}")
    try:
        _write_new(temporary, content)
        try:
            os.link(temporary, path)  # unlike renaming, this replaces nothing
        except OSError as error:
            if error.errno not in _SAY_NO_HARD_LINKS:
                raise
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from error
            os.rename(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that exists as a whole or not at all, even after a crash.

    Only the process that has the lock may do this for a path.

    Args:
        path: The path of the file; an existing one is replaced.
        content: The content of the file.

    Raises:
        JournalError: If ``<path>.new`` is anything but what a crash left behind.
        OSError: If it cannot be written; the previous file is left as it was.
    """
    temporary = path.with_name(path.name + ".new")
    with contextlib.suppress(FileNotFoundError):
        check_regular(temporary, os.lstat(temporary))
        temporary.unlink()
    try:
        _write_new(temporary, content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Sync the entry of a file in its folder to disk; Windows does this automatically.

    Args:
        path: The path of the file.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: Path) -> None:
    """Create a folder and missing folders above it, and sync their entries to disk.

    Args:
        path: The path of the folder.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_folder(folder)  # the folder is an entry of the one above it


def write_at(descriptor: int, offset: int, content: bytes, is_synced: bool = True) -> None:
    """Write bytes at an offset, and sync them to disk.

    Args:
        descriptor: The descriptor of the file.
        offset: The offset in bytes from the start of the file.
        content: The bytes to write.
        is_synced: Whether to sync them; otherwise the system decides when to do so.
    """
    os.lseek(descriptor, offset, os.SEEK_SET)
    written = 0
    while written < len(content):  # the system may write less than it is given
        written += os.write(descriptor, content[written:])
    if is_synced:
        os.fsync(descriptor)


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o666)
    try:
        write_at(descriptor, 0, content)
    finally:
        os.close(descriptor)


KIND = "snapshot"
_MAX_OFFSET = 2**62  # the largest offset that the system can seek


class UnusableSnapshotError(ValueError):
    """A snapshot is damaged or belongs to another journal; the message is the reason.

    Attributes:
        snapshot: Its content, if it is whole and may belong to this journal.
    """

    def __init__(self, reason: str, snapshot: Snapshot | None = None) -> None:
        """Keep the content of the snapshot.

        Args:
            reason: Why it cannot be used.
            snapshot: Its content, if it is whole and may belong to this journal.
        """
        self.snapshot = snapshot
        super().__init__(reason)


@dataclass(frozen=True)
class Snapshot:
    """A state and its position in a journal.

    Attributes:
        state: The state that was passed to :meth:`Journal.write_snapshot`.
        before: The start of the last line that the state covers.
        after: The end of that line.
        num_records: The number of records that the state covers.
        header_checksum: The checksum of the journal's header; None in snapshots of earlier
            versions.
    """

    state: dict[str, Any]
    before: Position
    after: Position
    header_checksum: str | None = None

    @property
    def num_records(self) -> int:
        """See the class."""
        return self.after.num_records


def snapshot_path(path: Path) -> Path:
    """Return the path of the snapshot of a journal."""
    return path.with_name(path.name + ".snapshot")


def save_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Replace the snapshot of a journal, atomically and durably.

    Args:
        path: The path of the journal.
        snapshot: The snapshot to write.

    Raises:
        JournalError: If the file to which it is first written is not a regular file.
        OSError: If it cannot be written; the old one is then kept.
        TypeError: If the state is not plain.
        ValueError: If a number in it is NaN or infinite, or it is longer than any line may be.
    """
    before, after = snapshot.before, snapshot.after
    encode_line(snapshot.state, "", name="state")  # so that errors name the state
    line, _ = encode_line(
        {
            "num_records": after.num_records,
            "start": before.offset,
            "end": after.offset,
            "checksum_before": before.checksum,
            "checksum": after.checksum,
            "header_checksum": snapshot.header_checksum,
            "state": snapshot.state,
        },
        first_checksum(KIND),
    )
    write_whole(snapshot_path(path), format_line(KIND) + line)


def load_snapshot(path: Path, journal: BinaryIO, header_checksum: str) -> Snapshot | None:
    """Return the snapshot of a journal, or None.

    Args:
        path: The path of the journal.
        journal: The journal's file; its position changes.
        header_checksum: The checksum of the journal's header.

    Raises:
        UnusableSnapshotError: If it is damaged, or does not fit the journal.
    """
    try:
        snapshot = read_whole_snapshot(path)
    except FileNotFoundError:
        return None
    except (JournalError, DamagedLineError, OSError) as error:
        raise UnusableSnapshotError(str(error)) from error
    if snapshot.header_checksum != header_checksum:
        raise UnusableSnapshotError("it belongs to another journal")
    size = snapshot.after.offset - snapshot.before.offset
    if not (0 <= snapshot.before.offset <= _MAX_OFFSET and 0 < size <= MAX_LINE_BYTES):
        raise UnusableSnapshotError("its position in the journal is not a line")
    missing = UnusableSnapshotError(
        f"the journal does not have the {snapshot.num_records} records that it covers", snapshot
    )
    if os.fstat(journal.fileno()).st_size < snapshot.after.offset - 1:
        raise missing
    journal.seek(snapshot.before.offset)
    line, is_whole = read_line(journal, snapshot.before.checksum)
    if not line.endswith(b"\n"):
        line += b"\n"  # the last line of the journal may lack the line break
    try:
        if not is_whole or len(line) != size:
            raise DamagedLineError("its line in the journal has another length")
        _, checksum = decode_line(line, snapshot.before.checksum)
    except DamagedLineError as error:
        raise missing from error
    if checksum != snapshot.after.checksum:
        raise UnusableSnapshotError("it belongs to another journal", snapshot)
    return snapshot


def read_whole_snapshot(path: Path) -> Snapshot:
    """Return the content of the snapshot beside a journal, whether it fits the journal or not.

    Args:
        path: The path of the journal.

    Raises:
        DamagedLineError: If it is damaged.
        FileNotFoundError: If there is none.
        JournalError: If it is not a snapshot, or not a regular file.
        OSError: If it cannot be read.
    """
    with open_to_read(snapshot_path(path)) as file:
        check_format_line(read_first_line(file), KIND, snapshot_path(path))
        line, is_whole = read_line(file, first_checksum(KIND))
        if not is_whole:
            raise DamagedLineError("its line is too long, or its checksum does not fit")
        payload, _ = decode_line(line, first_checksum(KIND))
        if file.read(1):
            raise DamagedLineError("something follows it")
    return _snapshot_of(parse(payload))


def keep_unusable_snapshot(path: Path) -> None:
    """Rename a snapshot that does not fit its journal, before another one takes its place.

    Args:
        path: The path of the journal.
    """
    known = snapshot_path(path)
    with contextlib.suppress(FileNotFoundError):
        os.rename(known, known.with_name(f"{known.name}.unused-{secrets.token_hex(4)}"))


def _snapshot_of(record: dict[str, Any]) -> Snapshot:
    """Return the snapshot that a record describes.

    Raises:
        DamagedLineError: If the record does not describe a snapshot.
    """
    kinds = {"state": dict, "num_records": int, "start": int, "end": int}
    kinds |= {"checksum_before": str, "checksum": str, "header_checksum": str}
    for name, kind in kinds.items():
        if type(record.get(name)) is not kind:
            raise DamagedLineError(f"its entry {name!r} is missing or of another kind")
    if record["num_records"] < 0:
        raise DamagedLineError("the number of records that it covers is negative")
    return Snapshot(
        state=record["state"],
        before=Position(record["num_records"] - 1, record["start"], record["checksum_before"]),
        after=Position(record["num_records"], record["end"], record["checksum"]),
        header_checksum=record["header_checksum"],
    )
