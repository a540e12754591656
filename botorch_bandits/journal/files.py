"""The files of a journal: one writer, and writing that is on disk or not at all.

This module deals with the operating system and knows nothing about records: it contains locks,
files that are replaced as a whole, and the refusal of files that somebody else may have prepared.

**One writer.** The lock is on the journal's own open file. Another name of the file (a hard link)
therefore has the same lock, and a removed ``.lock`` changes nothing. The file ``<path>.lock`` only
says who had the lock last.

**Prepared folders.** A folder may come from somebody else. An entry under the name of a file that a
journal makes may be a symbolic link to a file of the user, or a pipe that never answers. Nothing is
therefore written or read through a link, and anything that is not a regular file is refused.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from botorch_bandits.journal.lines import (
    JournalError,
    JournalLockedError,
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


def write_at(descriptor: int, offset: int, content: bytes) -> None:
    """Write bytes at an offset, and sync them to disk.

    Args:
        descriptor: The descriptor of the file.
        offset: The offset in bytes from the start of the file.
        content: The bytes to write.
    """
    os.lseek(descriptor, offset, os.SEEK_SET)
    written = 0
    while written < len(content):  # the system may write less than it is given
        written += os.write(descriptor, content[written:])
    os.fsync(descriptor)


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o666)
    try:
        write_at(descriptor, 0, content)
    finally:
        os.close(descriptor)
