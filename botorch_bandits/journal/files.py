"""Files that survive a crash: a lock for one writer, and writing that is on disk or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import threading
from pathlib import Path

from botorch_bandits.journal.errors import JournalLockedError

_LOCKED_BYTE = 4096  # far behind what is written in the lock file: Windows hides locked bytes
_SAY_LOCKED = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_held: dict[tuple[int, int], int] = {}  # device and inode of a lock file: process that holds it
_held_guard = threading.RLock()  # a lock may be released by the garbage collector at any time


class WriterLock:
    """The right to write to a journal; at most one process has it, and there only one object.

    The operating system takes the lock back when the process ends, however it ends. A child that
    was forked does not have it. The lock file ``<path>.lock`` stays behind: its existence means
    nothing. It says who had the lock last.

    Args:
        path: Of the journal.

    Raises:
        JournalLockedError: If somebody has the lock.
    """

    def __init__(self, path: Path) -> None:
        """See the class."""
        self._process = os.getpid()
        self._lock_path = path.with_name(path.name + ".lock")
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"the folder {path.parent} of the journal {path.name} is not there. Make it first, "
                "or choose another path."
            )
        if path.is_dir():
            raise IsADirectoryError(
                f"{path} is a folder, but a journal is a file. Name a file in it, such as "
                f"{path / 'run.journal'}."
            )
        with _held_guard:
            # Closing any handle of the file would give up the lock that this process may hold.
            self._check_not_held_here(path)
            self._descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _lock(self._descriptor)
            except OSError as error:
                holder = self._read_holder()
                os.close(self._descriptor)
                if error.errno not in _SAY_LOCKED:
                    raise OSError(
                        error.errno,
                        f"{path} cannot be locked, so that a second writer would go unnoticed "
                        f"({error.strerror}). Keep the journal on a disk that has file locks.",
                    ) from error
                raise JournalLockedError(_locked_message(path, holder), holder) from error
            status = os.fstat(self._descriptor)
            self._key = (status.st_dev, status.st_ino)
            _held[self._key] = self._process
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, json.dumps(_myself()).encode("ascii"))
        self._is_released = False

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._process != os.getpid():
            return  # a forked child never had it
        with _held_guard:
            if not self._is_released:
                self._is_released = True
                del _held[self._key]
                os.close(self._descriptor)

    def _check_not_held_here(self, path: Path) -> None:
        try:
            status = os.stat(self._lock_path)
        except FileNotFoundError:
            return
        if _held.get((status.st_dev, status.st_ino)) == os.getpid():
            raise JournalLockedError(
                f"{path} is open for writing in this process already (process {os.getpid()}). "
                "Close that journal first, or use Journal.read, which needs no lock.",
                os.getpid(),
            )

    def _read_holder(self) -> int | None:
        try:
            known = json.loads(os.read(self._descriptor, 1000))
            return int(known["process"]) if known["host"] == socket.gethostname() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # it is being written


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all, also after a crash.

    Args:
        path: Of the file; one that is there is replaced.
        content: Of the file.

    Raises:
        OSError: If it cannot be written; what was there before is left as it was.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Put on disk that a file is in its folder; on Windows the system does it by itself."""
    if sys.platform == "win32":
        return
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_at(descriptor: int, offset: int, content: bytes) -> None:
    """Write bytes at an offset, and put them on disk."""
    os.lseek(descriptor, offset, os.SEEK_SET)
    written = 0
    while written < len(content):  # the system may take less than it is given
        written += os.write(descriptor, content[written:])
    os.fsync(descriptor)


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

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        # Not flock: its lock would live on in forked children of a writer that was killed.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCKED_BYTE)
