"""One writer at a time: the lock lies on the journal's own file, not on a name beside it.

Another name of the file (a hard link) therefore has the same lock, and a removed ``.lock`` changes
nothing. The file ``<path>.lock`` only says who had the lock last.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
from pathlib import Path

from botorch_bandits.journal.errors import JournalError, JournalLockedError
from botorch_bandits.journal.files import open_own, open_regular, open_to_read

_SAY_LOCKED = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK)
_NUM_TRIES = 10
_MAX_HOLDER_BYTES = 1000
_held: dict[tuple[int, int], WriterLock] = {}  # by device and inode of the journal
_held_guard = threading.RLock()  # a lock may be released by the garbage collector at any time
_forks_are_watched = False


class WriterLock:
    """The right to write to a journal; at most one process has it, and there only one object.

    The operating system takes the lock back when the process ends, however it ends. A child that
    was forked does not have it.

    Args:
        path: Of the journal, which is there.

    Attributes:
        descriptor: Of the journal's file, open for reading and writing.

    Raises:
        FileNotFoundError: If there is no journal.
        JournalError: If it is no regular file.
        JournalLockedError: If somebody has the lock.
        OSError: If the file cannot be opened or locked.
    """

    def __init__(self, path: Path) -> None:
        """Open the file and lock it."""
        self._path, self._process = path, os.getpid()
        with _held_guard:
            _watch_forks()
            for _ in range(_NUM_TRIES):
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
                os.close(self.descriptor)  # it was replaced after it was opened
            else:
                raise JournalError(
                    f"{path} is replaced again and again by somebody else. End that, and open it "
                    "again."
                )
            self._key = (status.st_dev, status.st_ino)
            _held[self._key] = self
        self._is_released = False

    def write_holder(self) -> None:
        """Write into ``<path>.lock`` which process has the lock.

        Raises:
            JournalError: If that is no regular file with one name.
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
        """Return whether a file is the one that is locked.

        Args:
            status: What ``os.fstat`` or ``os.lstat`` says of the file.
        """
        return (status.st_dev, status.st_ino) == self._key

    def release(self) -> None:
        """Give the lock back and close the file; a second call does nothing."""
        if self._process != os.getpid():
            return  # a forked child never had it, and has closed its descriptor
        with _held_guard:
            if not self._is_released:
                self._is_released = True
                del _held[self._key]
                try:
                    # closing is not enough while a process is being started, which has a copy
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
    """Return the process that wrote ``<path>.lock`` last; None if that is not known."""
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


if sys.platform == "win32":
    import msvcrt

    # Far behind what is written, for Windows hides locked bytes; the C library takes 31 bits.
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

    # Not lockf: its lock falls as soon as any descriptor of the file is closed in this process,
    # such as that of a reader.
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
                before=_held_guard.acquire,  # no descriptor is open that is not in the table yet
                after_in_parent=_held_guard.release,
                after_in_child=_close_copies,
            )

    def _close_copies() -> None:
        for lock in _held.values():
            with contextlib.suppress(OSError):
                os.close(lock.descriptor)
        _held.clear()
        _held_guard.release()
