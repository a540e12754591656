"""What is appended comes back, was on disk before, and only whole records count."""

from __future__ import annotations

import io
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from botorch_bandits.journal import Journal, JournalError, JournalFormatError
from botorch_bandits.journal.lines import parse, scan

from .cases import HEADER, RECORDS, make

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(texts, parts, max_size=4),
    max_leaves=8,
)  # fmt: skip
records = st.dictionaries(texts, plain, max_size=4)


def is_same(a: Any, b: Any) -> bool:
    """Compare to the last bit, types and signs of zeros included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b and (not isinstance(a, float) or math.copysign(1, a) == math.copysign(1, b)))


@given(header=records, several=st.lists(records, max_size=5))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_records_come_back_exactly(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any], several: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("exactly") / "run.journal"
    with Journal.create(path, header) as journal:
        numbers = [journal.append(record) for record in several]
        assert numbers == list(range(1, len(several) + 1))
        assert is_same(list(journal.records()), several)
    with Journal.open(path) as journal:
        assert is_same(journal.header, header)
        assert is_same(list(journal.records()), several)
        assert journal.num_records == len(several)
        assert journal.torn_bytes == 0


def test_appending_goes_on_after_reopening(tmp_path: Path) -> None:
    path = make(tmp_path)
    for i in range(3):
        with Journal.open(path) as journal:
            assert journal.append({"more": i}) == len(RECORDS) + i + 1
    expected = [*RECORDS, {"more": 0}, {"more": 1}, {"more": 2}]
    assert list(Journal.read(path).records()) == expected


@pytest.mark.parametrize(
    ("record", "error", "message"),
    [
        ({"reward": math.nan}, ValueError, r"record\['reward'\] is nan"),
        ({"x": [0.0, -math.inf]}, ValueError, r"record\['x'\]\[1\] is -inf"),
        ({"x": (1.0,)}, TypeError, r"record\['x'\] is a builtins.tuple.*list\(...\) of a tuple"),
        ({"x": torch.ones(1)}, TypeError, r"is a torch.Tensor.*tolist\(\)"),
        ({"x": np.float64(0.5)}, TypeError, r"numpy.float64.*float\(...\)"),
        ({1: 2}, TypeError, "has the key 1; keys in a journal are texts"),
        ({"a": {"b": {None: 2}}}, TypeError, r"record\['a'\]\['b'\] has the key None"),
        ({"a": "\ud800"}, ValueError, "not Unicode text"),
        ({"\udfff": 1}, ValueError, "not Unicode text"),
        ([1], TypeError, "record must be a dict, got list"),
        (None, TypeError, "record must be a dict, got NoneType"),
    ],
    ids=lambda value: "" if isinstance(value, str | type) else repr(value).replace("\n", ""),
)
def test_what_would_not_come_back_is_refused(
    tmp_path: Path, record: Any, error: type[Exception], message: str
) -> None:
    path = make(tmp_path)
    before = path.read_bytes()
    with Journal.open(path) as journal:
        with pytest.raises(error, match=message):
            journal.append(record)
        assert path.read_bytes() == before
        assert journal.append({"is": "well"}) == len(RECORDS) + 1


def test_a_record_that_contains_itself_is_refused(tmp_path: Path) -> None:
    record: dict[str, Any] = {}
    record["again"] = record
    with (
        Journal.open(make(tmp_path)) as journal,
        pytest.raises(ValueError, match="50 levels deep"),
    ):
        journal.append(record)


def test_the_file_is_synchronized_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.journal"
    synchronized: list[tuple[int, int]] = []  # inode and size at each call
    fsync = os.fsync

    def watched(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        synchronized.append((status.st_ino, status.st_size))

    monkeypatch.setattr(os, "fsync", watched)
    with Journal.create(path, HEADER) as journal:
        # the file first, then that it is in its folder
        assert synchronized[0] == (path.stat().st_ino, path.stat().st_size)
        assert synchronized[1][0] == tmp_path.stat().st_ino
        for record in RECORDS:
            del synchronized[:]
            journal.append(record)
            # the whole record was there when the file was synchronized
            assert synchronized == [(path.stat().st_ino, path.stat().st_size)]


def test_readers_see_whole_records_while_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    stop = threading.Event()
    failures: list[BaseException] = []
    seen: list[int] = []

    def read() -> None:
        try:
            while not stop.is_set():
                reader = Journal.read(path)
                found = [record["i"] for record in reader.records()]
                assert found == list(range(reader.num_records))
                assert reader.header == HEADER
                seen.append(len(found))
        except BaseException as error:
            failures.append(error)

    with Journal.create(path, HEADER) as journal:
        thread = threading.Thread(target=read)
        thread.start()
        i = 0
        while i < 300 or (len(set(seen)) < 3 and i < 5000 and not failures):
            journal.append({"i": i, "pad": "x" * (i % 7 * 1000)})
            i += 1
        stop.set()
        thread.join()
    assert not failures
    assert seen == sorted(seen)
    assert len(set(seen)) >= 3


def test_a_line_that_is_finished_while_it_is_read_is_no_damage(tmp_path: Path) -> None:
    path = make(tmp_path)
    whole = path.read_bytes()

    class Growing(io.BytesIO):
        """Holds all but the last bytes until its end was met once."""

        def readline(self, size: int | None = -1, /) -> bytes:
            line = super().readline(size)
            if not line.endswith(b"\n"):
                place = self.tell()
                self.seek(0, io.SEEK_END)
                self.write(whole[-9:])
                self.seek(place)
            return line

    file = Growing(whole[:-9])
    start = Journal.read(path)._first
    file.seek(start.offset)
    found = [parse(payload) for payload, _ in scan(file, start, path)]
    assert found == RECORDS[:-1]


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = make(tmp_path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match=r"already exists.*Journal\.open"):
        Journal.create(path, {})
    assert path.read_bytes() == before


def test_a_missing_journal_is_named_and_nothing_is_created(tmp_path: Path) -> None:
    for opening in (Journal.open, Journal.read):
        with pytest.raises(FileNotFoundError, match="there is no journal"):
            opening(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_header_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"header\['delta'\] is nan"):
        Journal.create(tmp_path / "run.journal", {"delta": math.nan})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a journal"),
        (b"id,reward\n1,2\n", "is not a journal: its first line is"),
        (b"\x93NUMPY\x00\xff", "is not a journal"),
        (b"botorch_bandits journal, format 2\n{}\n", "has format 2, but .* only knows format 1"),
    ],
)
def test_other_files_and_versions_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    for opening in (Journal.open, Journal.read):
        with pytest.raises(JournalFormatError, match=message):
            opening(path)
    assert path.read_bytes() == content


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = Journal.open(make(tmp_path))
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match=r"is closed.*Open it again"):
        journal.append({})
    assert list(journal.records()) == RECORDS  # reading needs no lock
    assert "5 records" in repr(journal)


def test_threads_append_whole_records(tmp_path: Path) -> None:
    path, num_threads, num_each = tmp_path / "run.journal", 16, 25
    numbers: dict[tuple[int, int], int] = {}

    def work(thread: int) -> None:
        for i in range(num_each):
            numbers[thread, i] = journal.append({"thread": thread, "i": i, "pad": "x" * i})

    with Journal.create(path, HEADER) as journal:
        threads = [threading.Thread(target=work, args=(k,)) for k in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = list(Journal.read(path).records())
    assert len(found) == num_threads * num_each
    for (thread, i), number in numbers.items():
        assert (found[number - 1]["thread"], found[number - 1]["i"]) == (thread, i)
