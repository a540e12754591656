"""Opening and writing files safely: regular files only, on disk as a whole or not at all.

A folder may come from somebody else. What lies in it under the name of a file that a journal makes
may be a symbolic link to a file of the user, or a pipe that never answers. Nothing is therefore
written or read through a link, and whatever is no regular file is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from botorch_bandits.journal.errors import JournalError

# A pipe is opened without waiting for its other end; what was opened is checked afterwards.
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
        path: Of a journal that need not be there.
    """
    path = Path(path)
    return path.parent.resolve() / path.name


def check_place(path: Path) -> None:
    """Raise unless a journal can be at a path.

    Args:
        path: As :func:`place_of` returns it.

    Raises:
        FileNotFoundError: If its folder is not there.
        IsADirectoryError: If it is a folder.
        JournalError: If something else than a regular file is there.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"the folder {path.parent} of the journal {path.name} is not there. Make it first, "
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
    """Raise unless a file is a regular one.

    Args:
        path: Of the file, for the message.
        status: What ``os.lstat`` or ``os.fstat`` says of it.
        remedy: What to do otherwise, for the message.

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
    """Open a regular file that is there, and never what a symbolic link points to.

    Args:
        path: Of the file.
        flags: Of ``os.open``.

    Returns:
        The descriptor.

    Raises:
        FileNotFoundError: If it is not there.
        JournalError: If it is no regular file.
        OSError: If it cannot be opened.
    """
    check_regular(path, os.lstat(path))
    try:
        descriptor = os.open(path, flags | _SAFE_FLAGS)
    except OSError as error:
        if error.errno in _SAY_LINK:  # it has become one since
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
        path: Of the file.
    """
    return os.fdopen(open_regular(path, os.O_RDONLY), "rb")


def open_own(path: Path, flags: int) -> int:
    """Open a file that a journal keeps beside it, and make it if it is not there.

    Args:
        path: Of the file.
        flags: Of ``os.open``.

    Returns:
        The descriptor.

    Raises:
        JournalError: If something else than a regular file with this one name is there.
        OSError: If it cannot be opened.
    """
    for _ in range(_NUM_TRIES):
        with contextlib.suppress(FileExistsError):
            return os.open(path, flags | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o666)
        try:
            descriptor = open_regular(path, flags)
        except FileNotFoundError:
            continue  # it was removed in between
        if os.fstat(descriptor).st_nlink > 1:
            os.close(descriptor)
            raise JournalError(
                f"{path} is a hard link: the file has another name too, and would be changed under "
                f"that name. Remove {path}."
            )
        return descriptor
    raise JournalError(f"{path} is made and removed again and again by somebody else. End that.")


def write_first(path: Path, content: bytes) -> None:
    """Write a file that is not there yet; it is there as a whole or not at all.

    Args:
        path: Of the file.
        content: Of the file.

    Raises:
        FileExistsError: If something is there.
        OSError: If it cannot be written.
    """
    # a name of its own, for another process may be doing the same
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
    """Write a file that is there as a whole or not at all, also after a crash.

    One process at a time may do this for a path: the one that has the lock.

    Args:
        path: Of the file; one that is there is replaced.
        content: Of the file.

    Raises:
        JournalError: If ``<path>.new`` is something else than what a crash left behind.
        OSError: If it cannot be written; what was there before is left as it was.
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
    """Put on disk that a file is in its folder; on Windows the system does it by itself.

    Args:
        path: Of the file.
    """
    if sys.platform == "win32":
        return
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_at(descriptor: int, offset: int, content: bytes) -> None:
    """Write bytes at an offset, and put them on disk.

    Args:
        descriptor: Of the file.
        offset: In bytes from its start.
        content: What to write.
    """
    os.lseek(descriptor, offset, os.SEEK_SET)
    written = 0
    while written < len(content):  # the system may take less than it is given
        written += os.write(descriptor, content[written:])
    os.fsync(descriptor)


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o666)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
