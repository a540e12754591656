"""The lines of a journal, one record each, and everything that can be wrong with them.

Line 1 names the format and its version. Every other line is::

    LENGTH CHECKSUM JSON

``LENGTH`` is the number of bytes of the JSON text, and ``CHECKSUM`` the first 32 hexadecimal digits
of the SHA-256 of the preceding checksum followed by the JSON text. The checksum therefore covers
all lines so far: a removed, repeated or moved line is detected like a changed one. The text is
ASCII and has no line break. Floats are written with enough digits to distinguish them from every
other float.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn


class JournalError(RuntimeError):
    """A journal cannot be read or written."""


class JournalFormatError(JournalError):
    """The file is not a journal, or has another version of the format."""


class JournalCorruptionError(JournalError):
    """A line that was once good is damaged.

    Attributes:
        path: The file.
        line: The number of the damaged line, from 1.
    """

    def __init__(self, path: Path, line: int, reason: str) -> None:
        """Name the line and what is wrong with it.

        Args:
            path: The file.
            line: The number of the damaged line, from 1.
            reason: What is wrong with it.
        """
        self.path, self.line = path, line
        super().__init__(
            f"line {line} of {path} is damaged: {reason}. All records from there on are in doubt, "
            "so nothing is changed. Restore the file from a backup."
        )


class JournalLockedError(JournalError):
    """Somebody else is writing to the journal.

    Attributes:
        holder: The number of the process that holds the lock; None if it is unknown.
    """

    def __init__(self, message: str, holder: int | None) -> None:
        """Keep the holder.

        Args:
            message: Which file is locked, and what to do.
            holder: The number of the process that holds the lock; None if it is unknown.
        """
        self.holder = holder
        super().__init__(message)


class JournalWriteError(JournalError):
    """A record could not be put on disk; it does not count as written."""


class TornTailWarning(RuntimeWarning):
    """The last line was incomplete or damaged, and was cut off: its writing was interrupted."""


FORMAT_VERSION = 1
"""The version of the format of journals that is written and read."""

NAME = "botorch_bandits"
NUM_DIGITS = 32  # of a checksum
DEEPEST = 50  # levels of nesting in a record
MAX_LINE_BYTES = 2**28
"""The longest line that is written and read, so that no file can fill the memory."""


@dataclass(frozen=True)
class Position:
    """A position between two lines.

    Attributes:
        num_records: The number of records before it.
        offset: The offset in bytes from the start of the file, after the line break of the line
            before it. If that line is the last one and lacks its line break, this is one more than
            the size.
        checksum: The checksum of the line before it.
    """

    num_records: int
    offset: int
    checksum: str


class DamagedLineError(ValueError):
    """A line differs from what was written; the message is the reason."""


def format_line(kind: str) -> bytes:
    """Return the first line of a file.

    Args:
        kind: What the file is, such as ``"journal"``.
    """
    return f"{NAME} {kind}, format {FORMAT_VERSION}\n".encode("ascii")


def first_checksum(kind: str) -> str:
    """Return the text to which the checksum of line 2 is chained."""
    return hashlib.sha256(format_line(kind)).hexdigest()[:NUM_DIGITS]


def check_format_line(line: bytes, kind: str, path: Path) -> None:
    """Raise an error unless the first line belongs to a file of this kind and version.

    Raises:
        JournalFormatError: With a message that says what the file is instead.
    """
    if line == format_line(kind):
        return
    start = f"{NAME} {kind}, format ".encode("ascii")
    version = line.removeprefix(start).strip()
    if line.startswith(start) and version.isdigit():
        raise JournalFormatError(
            f"{path} has format {version.decode('ascii')}, but this version of botorch_bandits "
            f"only knows format {FORMAT_VERSION}. Use the version that wrote it, or a newer one."
        )
    raise JournalFormatError(
        f"{path} is not a {kind}: its first line is {line[:60]!r} instead of "
        f"{format_line(kind)!r}. "
        "Check the path; if it was one, restore it from a backup."
    )


def encode_line(record: dict[str, Any], previous: str, name: str = "record") -> tuple[bytes, str]:
    """Return the line of a record and its checksum.

    Args:
        record: A dictionary of plain values; see :func:`check_plain`.
        previous: The checksum of the line before.
        name: The name of the record in errors.

    Raises:
        TypeError: If the record is not a dictionary, or holds something that is not plain.
        ValueError: If a number is NaN or infinite, or the line is longer than any that is read.
    """
    if type(record) is not dict:
        raise TypeError(f"{name} must be a dict, got {type(record).__name__}.")
    check_plain(name, record)
    payload = json.dumps(record, allow_nan=False, separators=(",", ":")).encode("ascii")
    checksum = _checksum(payload, previous)
    line = b"%d %s %s\n" % (len(payload), checksum.encode("ascii"), payload)
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(
            f"{name} takes {len(line)} bytes in a file, but a line has at most {MAX_LINE_BYTES}. "
            "Divide it into several records."
        )
    return line, checksum


def decode_line(line: bytes, previous: str) -> tuple[bytes, str]:
    """Return the JSON text of a line and its checksum.

    Args:
        line: The line with its line break.
        previous: The checksum of the line before.

    Raises:
        DamagedLineError: If it differs in a single bit from what was written.
    """
    if not line.endswith(b"\n"):
        raise DamagedLineError("it has no end")
    parts = line[:-1].split(b" ", 2)
    if len(parts) != 3:
        raise DamagedLineError("it is not a length, a checksum and a record")
    length, stated, payload = parts
    if length != b"%d" % len(payload):
        raise DamagedLineError(f"its length is {len(payload)}, not {length[:20]!r}")
    checksum = _checksum(payload, previous)
    if stated != checksum.encode("ascii"):
        raise DamagedLineError("its checksum does not fit")
    return payload, checksum


def read_line(file: BinaryIO) -> bytes:
    """Return the next line of a file, or its beginning if it is longer than any record.

    Args:
        file: The file, at the start of the line.
    """
    return file.readline(MAX_LINE_BYTES + 1)


def scan(file: BinaryIO, start: Position, path: Path) -> Iterator[tuple[bytes, Position]]:
    """Read and check lines from a position to the end of a file.

    A last line that is incomplete or damaged is left out, because it was being written. A last line
    that only lacks its line break is a record, because its length and its checksum are correct. A
    line that is longer than its length says is not of this kind: a line break in it is damaged.

    Args:
        file: The file, at the position.
        start: The position.
        path: The path, for errors.

    Yields:
        The JSON text of each record, and the position after its line.

    Raises:
        JournalCorruptionError: If a line before the last one is damaged, or a line is too long.
    """
    position = start
    while line := read_line(file):
        # without an end it was the last line when it was read; a writer may have continued since
        has_end = line.endswith(b"\n")
        whole = line if has_end else line + b"\n"
        try:
            payload, checksum = decode_line(whole, position.checksum)
        except DamagedLineError as error:
            reason = str(error)
            if len(line) > MAX_LINE_BYTES:
                reason = f"it is longer than {MAX_LINE_BYTES} bytes, the limit of a record"
            elif not (has_end and file.read(1)) and not _is_longer_than_announced(line):
                return
            # the first record is on line 3
            raise JournalCorruptionError(path, position.num_records + 3, reason) from error
        position = Position(position.num_records + 1, position.offset + len(whole), checksum)
        yield payload, position
        if not has_end:
            return


def parse(payload: bytes) -> dict[str, Any]:
    """Return the record of a JSON text whose checksum is correct.

    Args:
        payload: The text.

    Raises:
        JournalFormatError: If it is not a record, because another program wrote it.
    """
    try:
        record = _DECODER.decode(payload.decode("ascii"))
        # most records have few brackets, so their depth need not be checked
        if payload.count(b"[") + payload.count(b"{") > DEEPEST:
            _check_depth(record)
    except (ValueError, RecursionError) as error:
        raise JournalFormatError(
            f"a line with the right checksum is not a record: {payload[:60]!r} ({error}). Another "
            "program wrote it; restore the file from a backup."
        ) from error
    if not isinstance(record, dict):
        raise JournalFormatError(
            f"a line with the right checksum is not a record: {payload[:60]!r}. Another "
            "program wrote it; restore the file from a backup."
        )
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"it has the number {name}, which is not allowed in a record")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _check_depth(record: Any) -> None:
    """Raise an error if a value is nested more deeply than any that is written."""
    level = [record]
    for _ in range(DEEPEST):
        parts = [part for each in level for part in (each.values() if type(each) is dict else each)]
        level = [part for part in parts if type(part) is dict or type(part) is list]
        if not level:
            return
    raise ValueError(f"it is nested more than {DEEPEST} levels deep")


def check_plain(name: str, value: Any, depth: int = 0) -> None:
    """Raise an error unless a value comes back from JSON exactly as it is.

    Raises:
        TypeError: Unless it is None, a bool, int, float, str, or a list or dict of such values with
            strings as keys. Subclasses are refused, because they come back as something else.
        ValueError: If a number is NaN or infinite, a text is not Unicode, or the nesting is too
            deep.
    """
    kind = type(value)
    if kind is float:
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}; numbers in a journal are finite.")
    elif kind is str:
        if not value.isascii():
            _check_text(name, value)
    elif kind is dict or kind is list:
        if depth >= DEEPEST:
            raise ValueError(f"{name} is more than {DEEPEST} levels deep; flatten the record.")
        if kind is list:
            for i, part in enumerate(value):
                check_plain(f"{name}[{i}]", part, depth + 1)
            return
        for key, part in value.items():
            if type(key) is not str:
                raise TypeError(f"{name} has the key {key!r}; keys in a journal are texts.")
            _check_text(f"a key of {name}", key)
            check_plain(f"{name}[{key!r}]", part, depth + 1)
    elif value is not None and kind is not bool and kind is not int:
        raise TypeError(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, which a journal cannot hold. "
            "Pass plain values: tolist() of a tensor or array, list(...) of a tuple, float(...) of "
            "a number."
        )


def _check_text(name: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is {text!r}, which is not Unicode text: {error}.") from error


def _is_longer_than_announced(line: bytes) -> bool:
    length = line.split(b" ", 1)[0]
    if not (length.isdigit() and len(length) <= 18):
        return False  # no writer begins such a line
    return len(line) > len(length) + 1 + NUM_DIGITS + 1 + int(length) + 1


def _checksum(payload: bytes, previous: str) -> str:
    return hashlib.sha256(previous.encode("ascii") + payload).hexdigest()[:NUM_DIGITS]
