"""A torn tail is cut; damage elsewhere is refused; nothing is ever invented.

What may come back from a damaged file are the first records as they were written: all of them, or
all but the last.
"""

from __future__ import annotations

import errno
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_bandits.journal import (
    Journal,
    JournalCorruptionError,
    JournalError,
    JournalFormatError,
    JournalWriteError,
    TornTailWarning,
)

from .cases import HEADER, RECORDS, line_ends, make

pytestmark = pytest.mark.usefixtures("quick_disk")

SHORT: list[dict[str, Any]] = [{"x": [0.5]}, {}, {"reward": 2.0}]
often = settings(max_examples=400, deadline=None, derandomize=True)


def open_and_read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the records of a journal that is opened for writing, and how many bytes were cut."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Journal.open(path) as journal:
            assert journal.header == HEADER
            found, torn = list(journal.records()), journal.torn_bytes
    assert [w.category for w in caught] == [TornTailWarning] * (torn > 0)
    return found, torn


def test_a_journal_cut_at_any_byte_keeps_its_whole_records(tmp_path: Path) -> None:
    path = make(tmp_path)
    content, ends = path.read_bytes(), line_ends(path)
    for size in range(len(content) + 1):
        for old in tmp_path.iterdir():
            old.unlink()
        path.write_bytes(content[:size])
        if size < ends[1]:  # no header, so nothing was ever recorded
            for opening in (Journal.open, Journal.read):
                with pytest.raises((JournalCorruptionError, JournalFormatError)):
                    opening(path)
            assert path.read_bytes() == content[:size]
            continue
        # a line that lacks nothing but its line break is whole
        whole = [end for end in ends if end - 1 <= size]
        kept = RECORDS[: len(whole) - 2]
        assert list(Journal.read(path).records()) == kept
        assert path.read_bytes() == content[:size]  # readers change nothing
        assert open_and_read(path) == (kept, max(size - whole[-1], 0))
        assert path.read_bytes() == content[: min(size, whole[-1])]
        if size > whole[-1]:
            torn = path.with_name(f"run.journal.cut-{whole[-1]}")
            assert torn.read_bytes() == content[whole[-1] : size]
        with Journal.open(path) as journal:
            journal.append({"again": size})
        assert path.read_bytes()[: whole[-1]] == content[: whole[-1]]
        assert list(Journal.read(path).records()) == [*kept, {"again": size}]


def test_what_is_cut_twice_at_one_place_is_kept_twice(tmp_path: Path) -> None:
    path = make(tmp_path)
    size = path.stat().st_size
    for torn in (b"12 ab", b'7 "'):
        with open(path, "ab") as file:
            file.write(torn)
        assert open_and_read(path) == (RECORDS, len(torn))
    assert path.with_name(f"run.journal.cut-{size}").read_bytes() == b'12 ab7 "'


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = make(tmp_path, SHORT)
    content, ends = path.read_bytes(), line_ends(path)
    for index in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[index] ^= 1 << bit
            path.write_bytes(damaged)
            line = sum(end <= index for end in ends) + 1
            if line == len(ends):
                # of the last record nobody can say whether it was ever whole
                assert_refused_or_without_the_last(path, line)
            elif line == 1:
                with pytest.raises(JournalFormatError):
                    Journal.read(path)
            else:
                with pytest.raises(JournalCorruptionError, match=f"line {line} of"):
                    Journal.read(path)


def assert_refused_or_without_the_last(path: Path, line: int) -> None:
    try:
        reader = Journal.read(path)
    except JournalCorruptionError as error:
        refused = error.line  # the flip made a line break
    else:
        assert list(reader.records()) == SHORT[:-1]
        return
    assert refused == line


@given(data=st.data())
@often
def test_garbage_in_the_file_is_refused_or_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = make(tmp_path_factory.mktemp("garbage"))
    content, ends = path.read_bytes(), line_ends(path)
    start = data.draw(st.integers(0, len(content)), label="start")
    stop = data.draw(st.integers(start, len(content)), label="stop")
    garbage = data.draw(
        st.binary(max_size=40) | st.sampled_from([content[ends[1] : ends[2]], b"\n", b"\x00" * 30]),
        label="garbage",
    )
    damaged = content[:start] + garbage + content[stop:]
    path.write_bytes(damaged)
    unharmed = max(sum(end <= start for end in ends) - 2, 0)
    try:
        found, torn = open_and_read(path)
    except JournalError:
        assert damaged != content
        assert path.read_bytes() == damaged  # what is refused is left alone
        return
    assert found == RECORDS[: len(found)]
    assert len(found) >= unharmed
    assert path.read_bytes() + damaged[len(damaged) - torn :] == damaged


def test_a_lost_line_break_between_the_last_two_records_is_no_torn_tail(tmp_path: Path) -> None:
    path = make(tmp_path)
    content, ends = path.read_bytes(), line_ends(path)
    for kept in (content, content[:-1], content[:-20]):
        path.write_bytes(kept[: ends[-2] - 1] + b" " + kept[ends[-2] :])
        with pytest.raises(JournalCorruptionError, match=f"line {len(ends) - 1} of"):
            Journal.open(path)


@pytest.mark.parametrize("change", ["remove", "repeat", "swap", "insert from another journal"])
def test_whole_lines_that_are_moved_are_noticed(tmp_path: Path, change: str) -> None:
    path = make(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "other").mkdir()
    other = make(tmp_path / "other", RECORDS[::-1]).read_bytes().splitlines(keepends=True)
    damaged = {
        "remove": lines[:3] + lines[4:],
        "repeat": [*lines[:4], lines[3], *lines[4:]],
        "swap": [*lines[:3], lines[4], lines[3], *lines[5:]],
        "insert from another journal": [*lines[:3], other[3], *lines[4:]],
    }[change]
    path.write_bytes(b"".join(damaged))
    line = 5 if change == "repeat" else 4
    for opening in (Journal.open, Journal.read):
        with pytest.raises(JournalCorruptionError, match=f"line {line} of .*checksum") as caught:
            opening(path)
        assert (caught.value.line, caught.value.path) == (line, path)


def test_damage_behind_the_last_record_is_cut_if_it_is_one_line(tmp_path: Path) -> None:
    """As a file system may leave it that had made room before it wrote."""
    path = make(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content + b"\x00" * 5000)
    assert open_and_read(path) == (RECORDS, 5000)
    path.write_bytes(content + b"\x00\n\x00\n")
    with pytest.raises(JournalCorruptionError, match=f"line {len(RECORDS) + 3} of"):
        Journal.open(path)


def test_damage_after_opening_is_noticed_when_records_are_read(tmp_path: Path) -> None:
    path = make(tmp_path)
    reader = Journal.read(path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(JournalCorruptionError, match=f"line {len(RECORDS) + 2} of"):
        list(reader.records())


def without_line_break(folder: Path) -> tuple[Path, bytes]:
    """Make a journal whose last line lacks its line break; return its content, too."""
    path = make(folder)
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    return path, content


def test_a_last_line_that_lacks_only_its_line_break_is_kept(tmp_path: Path) -> None:
    path, content = without_line_break(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(Journal.read(path).records()) == RECORDS
        with Journal.open(path) as journal:
            assert (journal.num_records, journal.torn_bytes) == (len(RECORDS), 0)
            assert list(journal.records()) == RECORDS
        assert path.read_bytes() == content[:-1]  # opening changes nothing
        with Journal.open(path) as journal:
            journal.append({"more": 1})
            assert list(journal.records()) == [*RECORDS, {"more": 1}]
            journal.append({"more": 2})
        assert path.read_bytes().startswith(content)  # the line break came first
        assert list(Journal.read(path).records()) == [*RECORDS, {"more": 1}, {"more": 2}]
    assert [known for known in tmp_path.iterdir() if ".cut-" in known.name] == []


@pytest.mark.parametrize("how_much", [0, 1, 2, 20])
def test_a_record_behind_a_missing_line_break_is_withdrawn_if_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how_much: int
) -> None:
    path, content = without_line_break(tmp_path)
    real_write, calls = os.write, []

    def write(descriptor: int, part: bytes) -> int:
        calls.append(part)
        if len(calls) == 1 and how_much:
            return real_write(descriptor, part[:how_much])
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal.open(path) as journal:
        monkeypatch.setattr(os, "write", write)
        with pytest.raises(JournalWriteError, match="Free space"):
            journal.append({"lost": 1})
        monkeypatch.undo()
        assert path.read_bytes() == content[:-1]
        assert journal.append({"kept": 1}) == len(RECORDS) + 1
    assert list(Journal.read(path).records()) == [*RECORDS, {"kept": 1}]


def test_a_torn_record_behind_a_line_break_that_was_missing_is_cut(tmp_path: Path) -> None:
    path, content = without_line_break(tmp_path)
    with Journal.open(path) as journal:
        journal.append({"more": 1})
    whole = path.read_bytes()
    for size in range(len(content) - 1, len(whole) + 1):
        path.write_bytes(whole[:size])
        kept = [*RECORDS, {"more": 1}] if size >= len(whole) - 1 else RECORDS
        assert open_and_read(path)[0] == kept
