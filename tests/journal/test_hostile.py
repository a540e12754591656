"""Files that somebody made to fill the memory, to hang, or to be read as something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits.journal import (
    Journal,
    JournalCorruptionError,
    JournalError,
    JournalFormatError,
    SnapshotWarning,
    TornTailWarning,
    lines,
)
from botorch_bandits.journal.lines import encode_line, first_checksum, format_line

from .cases import HEADER, RECORDS, make

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no holes in files on Windows")


def signed(payload: bytes, previous: str) -> bytes:
    """Return a line whose length and checksum are right, whatever it holds."""
    checksum = lines._checksum(payload, previous)
    return b"%d %s %s\n" % (len(payload), checksum.encode(), payload)


def last_checksum(path: Path) -> str:
    return path.read_bytes().splitlines()[-1].split(b" ")[1].decode()


# In a process of its own for each file: what it needs beyond what it has before opening. They are
# forks of one that has imported everything.
OPENING = """
import json, os, resource, signal, sys, warnings
from botorch_bandits.journal import Journal, JournalError
warnings.simplefilter("ignore")
for line in sys.stdin:
    path, how = json.loads(line)
    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        if status:
            print(json.dumps([f"ended with {status}", 0.0]), flush=True)
        continue
    signal.alarm(120)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = "nothing"
    try:
        getattr(Journal, how)(path)
    except JournalError as error:
        said = str(error)
    needed = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps([said, needed]), flush=True)
    os._exit(0)
"""

Opener = Callable[[Path, str], tuple[str, float]]


@pytest.fixture(scope="module")
def open_elsewhere() -> Iterator[Opener]:
    """A function that returns what opening says, and how many MB it takes."""
    with subprocess.Popen(
        [sys.executable, "-c", OPENING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def opened(path: Path, how: str) -> tuple[str, float]:
            print(json.dumps([str(path), how]), file=requests, flush=True)
            said, megabytes = json.loads(answers.readline())
            return said, megabytes

        yield opened


@pytest.mark.parametrize("num_bytes", [0, 60 * 2**20])
def test_memory_of_an_opening_is_seen(
    tmp_path: Path, open_elsewhere: Opener, num_bytes: int
) -> None:
    path = make(tmp_path, [{"x": "y" * num_bytes}])
    said, megabytes = open_elsewhere(path, "read")
    assert said == "nothing"
    assert (megabytes > 50) == (num_bytes > 0)


def hole(path: Path, num_bytes: int) -> None:
    with open(path, "r+b") as file:
        file.truncate(num_bytes)


def begun_line(path: Path, num_bytes: int) -> None:
    """A line that says that it is as long as the hole behind its beginning."""
    start = path.stat().st_size
    with open(path, "ab") as file:
        file.write(b"%d %s {" % (num_bytes, b"a" * 32))
    hole(path, start + num_bytes + 60)


GIANTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a terabyte of nothing": (lambda path: hole(path, 2**40), "does not begin like a line"),
    "300 MB of nothing": (lambda path: hole(path, 300 * 2**20), "does not begin like a line"),
    "a line of 900 MB that was begun": (lambda path: begun_line(path, 900 * 2**20), "longer than"),
    "a line longer than any": (lambda path: begun_line(path, 2**35), "longer than 1073741824"),
}


@pytest.mark.parametrize("how", ["open", "read"])
@pytest.mark.parametrize("kind", GIANTS)
def test_a_giant_is_refused_before_it_is_read(
    tmp_path: Path, open_elsewhere: Opener, kind: str, how: str
) -> None:
    path = make(tmp_path)
    grow, reason = GIANTS[kind]
    grow(path)
    size, began = path.stat().st_size, time.monotonic()
    said, megabytes = open_elsewhere(path, how)
    assert f"line 8 of {path} is damaged" in said
    assert reason in said
    assert megabytes < 50
    assert time.monotonic() - began < 60
    assert path.stat().st_size == size
    assert not list(tmp_path.glob("*.cut-*"))


def test_a_giant_beside_a_journal_is_not_read(tmp_path: Path, open_elsewhere: Opener) -> None:
    path = make(tmp_path)
    for content in (b"", format_line("snapshot"), format_line("snapshot") + b"9" * 100):
        beside = path.with_name("run.journal.snapshot")
        beside.write_bytes(content)
        hole(beside, 2**40)
        with pytest.warns(SnapshotWarning, match="is not used"):
            journal = Journal.read(path)
        assert journal.num_records == len(RECORDS)
    path.with_name("run.journal.snapshot").unlink()
    hole(path.with_name("run.journal.lock"), 2**40)
    Journal.open(path).close()
    empty = tmp_path / "empty"
    empty.write_bytes(format_line("journal"))
    hole(empty, 2**40)
    said, megabytes = open_elsewhere(empty, "open")
    assert "line 2 of" in said
    assert megabytes < 50


def test_a_long_record_is_read_when_its_checksum_is_right(tmp_path: Path) -> None:
    """At sizes around those where reading changes from one piece to many."""
    records = [
        {"x": "y" * size}
        for around in (lines._SHORT_BYTES, lines._SHORT_BYTES + lines._CHUNK_BYTES)
        for size in range(around - 60, around + 4)
    ]
    path = make(tmp_path, [{"first": 1}])
    with Journal.open(path) as journal:
        for record in records:
            journal.append(record, sync=False)
        journal.write_snapshot({"x": "y" * 3_000_000}, 5)
    with Journal.read(path, verify="all")._open_file() as file:
        content = file.read()
    assert list(Journal.read(path).records()) == [{"first": 1}, *records]
    snapshot = Journal.read(path).read_snapshot()
    assert snapshot is not None
    assert len(snapshot.state["x"]) == 3_000_000
    path.with_name("run.journal.snapshot").unlink()
    end = len(content)
    for cut in (1, 2, 1000, lines._SHORT_BYTES + lines._CHUNK_BYTES - 10):  # of the last record
        path.write_bytes(content[: end - cut])
        assert Journal.read(path).num_records == len(records) + (cut == 1)
    path.write_bytes(content + content[-30:])
    assert Journal.read(path).num_records == len(records) + 1
    at = content.index(b"yyyy", end - 5000)
    path.write_bytes(content[:at] + b"z" + content[at + 1 :] + b"1")
    with pytest.raises(JournalCorruptionError, match=f"line {len(records) + 3} of"):
        Journal.open(path)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"x":' + b"[" * 51 + b"]" * 51 + b"}", "nested more than 50 levels deep"),
        (b'{"x":' + b"[" * 900 + b"]" * 900 + b"}", "nested more than 50 levels deep"),
        (b'{"x":' + b"[" * 10**6 + b"]" * 10**6 + b"}", "recursion"),
        (b'{"x":' + b'{"y":' * 60 + b"1" + b"}" * 60 + b"}", "nested more than 50 levels deep"),
        (b'{"x":NaN}', "it has the number NaN"),
        (b'{"x":-Infinity}', "it has the number -Infinity"),
        (b'{"x":' + b"9" * 5000 + b"}", "is not a record"),
        (b"[" + b"[]," * 60 + b"[]]", "is not a record"),
        (b'"' + b"[" * 60 + b'"', "is not a record"),
        (b'{"x":"\xff"}', "is not a record"),
    ],
)
def test_what_no_record_can_be_is_refused_though_its_checksum_is_right(
    tmp_path: Path, payload: bytes, reason: str
) -> None:
    path = make(tmp_path)
    with open(path, "ab") as file:
        file.write(signed(payload, last_checksum(path)))
    with Journal.open(path) as journal, pytest.raises(JournalFormatError, match=reason) as caught:
        list(journal.records())
    assert len(str(caught.value)) < 500


def test_the_deepest_record_that_is_written_is_read(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(48):
        deep = [deep]
    record = {"x": deep, "many": [[]] * 100}
    path = make(tmp_path, [record])
    assert list(Journal.read(path).records()) == [record]
    with Journal.open(path) as journal, pytest.raises(ValueError, match="50 levels deep"):
        journal.append({"x": [deep]})


@pytest.mark.parametrize(
    "entries",
    [
        {"num_records": -5},
        {"start": 2**80},
        {"start": -1},
        {"end": 10**30},
        {"checksum": "x" * 10**6},
        {"checksum_before": ""},
        {"header_checksum": 3},
        {"state": []},
        {"num_records": True},
    ],
)
def test_a_snapshot_with_absurd_entries_is_not_used(
    tmp_path: Path, entries: dict[str, Any]
) -> None:
    path = make(tmp_path)
    with Journal.open(path) as journal:
        journal.write_snapshot({"x": 1}, 2)
    beside = path.with_name("run.journal.snapshot")
    record = json.loads(beside.read_bytes().splitlines()[1].split(b" ", 2)[2])
    payload = json.dumps({**record, **entries}).encode()
    beside.write_bytes(format_line("snapshot") + signed(payload, first_checksum("snapshot")))
    with pytest.warns(SnapshotWarning, match="is not used"), Journal.open(path) as opened:
        assert list(opened.records()) == RECORDS


def test_a_snapshot_that_lies_about_a_place_is_found_when_all_is_verified(tmp_path: Path) -> None:
    """The place is right, but the number of records is not."""
    path = make(tmp_path)
    with Journal.open(path) as journal:
        journal.write_snapshot({"x": 1}, 3)
    beside = path.with_name("run.journal.snapshot")
    record = json.loads(beside.read_bytes().splitlines()[1].split(b" ", 2)[2])
    line, _ = encode_line({**record, "num_records": 4}, first_checksum("snapshot"))
    beside.write_bytes(format_line("snapshot") + line)
    with pytest.raises(JournalCorruptionError, match="its snapshot has it at another position"):
        Journal.open(path, verify="all")


def test_a_torn_tail_of_zeros_is_cut_off_as_a_power_cut_leaves_it(tmp_path: Path) -> None:
    path = make(tmp_path)
    size = path.stat().st_size
    hole(path, size + 5000)
    with pytest.warns(TornTailWarning, match="the last 5000 bytes"):
        Journal.open(path).close()
    assert path.stat().st_size == size


def test_a_child_refuses_at_once_whoever_held_the_guard(tmp_path: Path) -> None:
    """Another thread of the parent may have been in the middle of a record when it forked."""
    path = make(tmp_path)
    journal = Journal.open(path)
    with journal._guard:  # as that thread
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for call in (lambda: journal.append({}), journal.sync):
                    try:
                        call()
                    except JournalError as error:
                        code = 0 if "was opened by process" in str(error) else 2
                journal.close()
            finally:
                os._exit(code)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert journal.append({"parent": 1}) == len(RECORDS) + 1
    journal.close()
    assert Journal.read(path).header == HEADER
