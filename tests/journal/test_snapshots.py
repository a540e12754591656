"""Snapshots make opening fast and are never trusted more than the journal."""

from __future__ import annotations

import errno
import math
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import botorch_bandits.journal.journal as reader_module
from botorch_bandits.journal import (
    Journal,
    JournalCorruptionError,
    JournalWriteError,
    SnapshotAheadError,
    SnapshotWarning,
    TornTailWarning,
)
from botorch_bandits.journal.lines import encode_line, first_checksum, format_line

from .cases import HEADER, RECORDS, line_ends, make

pytestmark = pytest.mark.usefixtures("quick_disk")

STATE = {"sum": 0.1, "rows": [[1.0, 2.0], []]}


def with_snapshot(folder: Path, after: int) -> Path:
    path = make(folder)
    with Journal.open(path) as journal:
        journal.write_snapshot(STATE, after)
    return path


def snapshot_of(path: Path) -> Path:
    return path.with_name(path.name + ".snapshot")


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", SnapshotWarning)
        warnings.simplefilter("error", TornTailWarning)
        yield


@pytest.mark.parametrize("after", range(len(RECORDS) + 1))
def test_a_snapshot_comes_back_with_its_place(tmp_path: Path, after: int) -> None:
    path = with_snapshot(tmp_path, after)
    for opening in (Journal.read, Journal.open):
        journal = opening(path)
        for _ in range(2):
            snapshot = journal.read_snapshot()
            assert snapshot is not None
            assert (snapshot.state, snapshot.num_records) == (STATE, after)
        assert journal.num_checked == len(RECORDS) - after
        assert journal.num_records == len(RECORDS)
        for k in range(len(RECORDS) + 1):
            assert list(journal.records(after=k)) == RECORDS[k:]
    with pytest.raises(ValueError, match="after is 6, but"):
        journal.write_snapshot({}, 6)
    # a place that is passed already, and one that was appended since
    journal.write_snapshot({"early": 1}, 1)
    assert journal.append({"more": 1}) == 6
    journal.write_snapshot({"late": 2}, 6)
    journal.close()
    reopened = Journal.read(path)
    snapshot = reopened.read_snapshot()
    assert snapshot is not None
    assert (snapshot.state, snapshot.num_records, reopened.num_checked) == ({"late": 2}, 6, 0)


def test_without_a_snapshot_there_is_none(tmp_path: Path) -> None:
    assert Journal.read(make(tmp_path)).read_snapshot() is None


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    path = with_snapshot(tmp_path, 3)
    good = snapshot_of(path).read_bytes()
    damaged = [good[:size] for size in range(len(good))]
    damaged += [good[:i] + bytes([good[i] ^ 4]) + good[i + 1 :] for i in range(len(good))]
    damaged += [good + b"\n", good.replace(b"format 1", b"format 2")]
    for content in damaged:
        snapshot_of(path).write_bytes(content)
        with pytest.warns(SnapshotWarning, match=r"run\.journal\.snapshot is not used"):
            journal = Journal.read(path)
        assert journal.num_checked == len(RECORDS)
        assert list(journal.records()) == RECORDS
        with pytest.warns(SnapshotWarning, match="The whole journal"):
            assert journal.read_snapshot() is None


@pytest.mark.parametrize("whose", ["other header", "other record", "other order"])
def test_the_snapshot_of_another_journal_is_passed_over(tmp_path: Path, whose: str) -> None:
    path = make(tmp_path)
    (tmp_path / "other").mkdir()
    header = HEADER | ({"seed": 4} if whose == "other header" else {})
    records = {
        "other header": RECORDS,
        "other record": [{"kind": "ask", "id": 1}, *RECORDS[1:]],
        "other order": [RECORDS[1], RECORDS[0], *RECORDS[2:]],
    }[whose]
    with Journal.create(tmp_path / "other" / "run.journal", header) as other:
        for record in records:
            other.append(record)
        other.write_snapshot(STATE, len(records))
    content = snapshot_of(other.path).read_bytes()
    os.replace(snapshot_of(other.path), snapshot_of(path))
    with pytest.warns(SnapshotWarning, match="is not used"):
        journal = Journal.open(path)
    assert list(journal.records()) == RECORDS
    journal.write_snapshot({"own": 1}, 5)
    journal.close()
    snapshot = Journal.read(path).read_snapshot()
    assert snapshot is not None
    assert snapshot.state == {"own": 1}
    (kept,) = tmp_path.glob("run.journal.snapshot.unused-*")  # it may be all that is left of a run
    assert kept.read_bytes() == content


def test_a_journal_that_lost_what_its_snapshot_covers_is_not_continued(tmp_path: Path) -> None:
    path = with_snapshot(tmp_path, 4)
    content, ends = path.read_bytes(), line_ends(path)
    before = snapshot_of(path).read_bytes()
    for torn in (b"", b"77 torn"):  # 2 and 3 whole records
        path.write_bytes(content[: ends[3]] + torn)
        with (
            pytest.warns(SnapshotWarning),
            pytest.raises(SnapshotAheadError, match="has 2 whole"),
        ):
            Journal.open(path)
        with pytest.warns(SnapshotWarning, match="not have the 4"):
            assert Journal.read(path).num_records == 2
        assert path.read_bytes() == content[: ends[3]] + torn
        assert snapshot_of(path).read_bytes() == before
        assert {known.name for known in tmp_path.iterdir()} == {
            "run.journal",
            "run.journal.lock",
            "run.journal.snapshot",
        }
    path.write_bytes(content)
    Journal.open(path).close()


@pytest.mark.parametrize("after", [0, 3, 5])
def test_a_journal_cut_at_any_byte_opens_beside_its_snapshot(tmp_path: Path, after: int) -> None:
    path = with_snapshot(tmp_path, after)
    content, ends, snapshot = path.read_bytes(), line_ends(path), snapshot_of(path).read_bytes()
    for size in range(ends[1], len(content) + 1):
        path.write_bytes(content[:size])
        snapshot_of(path).write_bytes(snapshot)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            num_whole = sum(end <= size + 1 for end in ends) - 2  # a line break may be missing
            if size == ends[1]:
                num_whole = 0
            if num_whole < after:
                with pytest.raises(SnapshotAheadError):
                    Journal.open(path)
                continue
            journal = Journal.open(path)
        kinds = {warning.category for warning in caught}
        assert SnapshotWarning not in kinds
        assert (TornTailWarning in kinds) == (size not in ends and size + 1 not in ends)
        assert list(journal.records()) == RECORDS[:num_whole]
        assert (journal.append({"more": 1}), journal.num_records) == (num_whole + 1,) * 2
        journal.close()


def test_damage_before_the_snapshot_is_found_when_it_is_looked_for(tmp_path: Path) -> None:
    path = with_snapshot(tmp_path, 4)
    content, ends = bytearray(path.read_bytes()), line_ends(path)
    content[ends[2] + 50] ^= 1  # in the second record, on line 4
    path.write_bytes(content)
    journal = Journal.read(path)
    assert list(journal.records(after=4)) == RECORDS[4:]
    with pytest.raises(JournalCorruptionError, match="line 4 of"):
        list(journal.records())


def test_damage_behind_the_snapshot_has_the_right_line(tmp_path: Path) -> None:
    path = with_snapshot(tmp_path, 2)
    content, ends = bytearray(path.read_bytes()), line_ends(path)
    content[ends[4] + 50] ^= 1  # in the fourth record, on line 6
    path.write_bytes(content)
    with pytest.raises(JournalCorruptionError, match="line 6 of"):
        Journal.open(path)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_snapshot_that_cannot_be_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = with_snapshot(tmp_path, 3)
    files = sorted(tmp_path.iterdir())
    with Journal.open(path) as journal:
        monkeypatch.setattr(os, failing, fail)
        with pytest.raises(JournalWriteError, match=r"snapshot cannot be written.*journal"):
            journal.write_snapshot({"new": 1}, 5)
        monkeypatch.undo()
        snapshot = journal.read_snapshot()
        assert snapshot is not None
        assert snapshot.state == STATE
        assert journal.append({"goes": "on"}) == 6
        with pytest.raises(ValueError, match=r"state\['x'\] is nan"):
            journal.write_snapshot({"x": math.nan}, 5)
    assert sorted(tmp_path.iterdir()) == files


class CountedFile:
    """Counts what is read from a file."""

    def __init__(self, file: Any, counts: dict[str, int]) -> None:
        self._file, self._counts = file, counts

    def __enter__(self) -> CountedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def readline(self, size: int) -> bytes:
        line: bytes = self._file.readline(size)
        self._counts["lines"] += bool(line)
        self._counts["bytes"] += len(line)
        return line

    def read(self, size: int) -> bytes:
        content: bytes = self._file.read(size)
        self._counts["bytes"] += len(content)
        return content

    def fileno(self) -> int:
        return int(self._file.fileno())

    def seek(self, offset: int) -> int:
        return int(self._file.seek(offset))


def test_opening_after_100000_records_reads_what_follows_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.journal"
    Journal.create(path, HEADER).close()
    num_records, num_after = 100_000, 7
    lines, (_, checksum) = [], encode_line(HEADER, first_checksum("journal"))
    for i in range(num_records):  # without synchronizing each
        line, checksum = encode_line({"kind": "tell", "id": i, "reward": 0.1 * i}, checksum)
        lines.append(line)
    with open(path, "ab") as file:
        file.write(b"".join(lines))
    with Journal.open(path) as journal:
        assert journal.num_checked == num_records
        journal.write_snapshot({"count": num_records}, num_records)
        for i in range(num_after):
            journal.append({"after": i})

    counts = {"lines": 0, "bytes": 0}

    def counted_open(path: Path) -> CountedFile:
        return CountedFile(path.open("rb"), counts)

    monkeypatch.setattr(reader_module, "open_to_read", counted_open)
    with Journal.open(path) as journal:
        assert journal.num_records == num_records + num_after
        assert journal.num_checked == num_after
        snapshot = journal.read_snapshot()
        assert snapshot is not None
        assert snapshot.state == {"count": num_records}
        tail = list(journal.records(after=snapshot.num_records))
        assert tail == [{"after": i} for i in range(num_after)]
        journal.append({"goes": "on"})
    # twice the tail, for checking and for reading, and first line, header, line of the snapshot
    assert counts["lines"] == 2 * num_after + 3
    assert counts["bytes"] < 20 * 200 + len(format_line("journal"))
