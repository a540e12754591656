"""One writer at a time, whoever it is and however it ends."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

from botorch_bandits.journal import Journal, JournalError, JournalLockedError
from botorch_bandits.journal import files as locks

from .cases import RECORDS, make


def write_and_wait(path: Path) -> None:
    """Open a journal, append a record and wait to be killed."""
    journal = Journal.open(path)
    print(journal.append({"by": "the other process"}), flush=True)
    time.sleep(600)


def start_writer(path: Path) -> Forked:
    """Start a process that opens a journal, appends a record and waits to be killed."""
    process = Forked(write_and_wait, path)
    assert process.read_line() == str(len(RECORDS) + 1)
    return process


# A new interpreter has nothing of a lock that is held here, as a fork of this one would.
WRITER = """
import sys
from botorch_bandits.journal import Journal, JournalError
for line in sys.stdin:
    try:
        with Journal.open(line.strip()) as journal:
            print(journal.append({"by": "the other process"}), flush=True)
    except JournalError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
"""


@pytest.fixture(scope="module")
def append_elsewhere() -> Iterator[Callable[[Path], str]]:
    """A function that lets another process append a record, and returns what that says."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def appended(path: Path) -> str:
            print(path, file=requests, flush=True)
            return answers.readline().strip()

        yield appended


def test_a_second_process_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    path = make(tmp_path)
    process = start_writer(path)
    try:
        for _ in range(2):  # to be refused takes nothing from who has the lock
            with pytest.raises(
                JournalLockedError, match=rf"is being written by process {process.pid}"
            ) as caught:
                Journal.open(path)
            assert caught.value.holder == process.pid
        assert Journal.read(path).num_records == len(RECORDS) + 1
    finally:
        process.kill()  # no chance to give the lock back
    with Journal.open(path) as journal:
        assert list(journal.records()) == [*RECORDS, {"by": "the other process"}]
        journal.append({"by": "this process"})


def test_a_second_opening_in_one_process_is_refused(
    tmp_path: Path, append_elsewhere: Callable[[Path], str]
) -> None:
    path = make(tmp_path)
    with Journal.open(path) as journal:
        for _ in range(2):
            with pytest.raises(JournalLockedError, match="in this process already") as caught:
                Journal.open(path)
            assert caught.value.holder == os.getpid()
        Journal.read(path)
        journal.append({"still": "writing"})
        # and the lock still keeps others out
        assert append_elsewhere(path).startswith(
            f"JournalLockedError: {path} is being written by process {os.getpid()}"
        )
    Journal.open(path).close()


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
def test_another_name_of_the_folder_has_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path = make(tmp_path / "folder")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "folder")
    with Journal.open(link / path.name) as journal:
        assert journal.path == path.resolve()
        with pytest.raises(JournalLockedError):
            Journal.open(path)


@pytest.mark.parametrize("trick", ["hard link", "no lock file", "both"])
def test_the_lock_is_on_the_file_and_not_on_a_name(tmp_path: Path, trick: str) -> None:
    path, other = make(tmp_path), tmp_path / "other.journal"
    if trick != "no lock file":
        os.link(path, other)
    process = start_writer(path)
    try:
        if trick != "hard link":
            path.with_name("run.journal.lock").unlink()
        for name in (path, other) if other.exists() else (path,):
            with pytest.raises(JournalLockedError, match="is being written by"):
                Journal.open(name)
    finally:
        process.kill()
    for name in (path, other) if other.exists() else (path,):
        with Journal.open(name) as journal:  # and in one process
            path.with_name(name.name + ".lock").unlink()
            for again in (path, other) if other.exists() else (path,):
                with pytest.raises(JournalLockedError, match="in this process already"):
                    Journal.open(again)
            journal.append({"by": str(name)})


def test_what_this_process_reads_and_closes_does_not_give_the_lock_up(
    tmp_path: Path, append_elsewhere: Callable[[Path], str]
) -> None:
    path = make(tmp_path)
    with Journal.open(path):
        path.read_bytes()
        list(Journal.read(path).records())
        assert f"is being written by process {os.getpid()}" in append_elsewhere(path)


@pytest.mark.parametrize("failing", ["write", "ftruncate", "flock", "lstat", "fstat"])
def test_a_failure_while_locking_releases_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = make(tmp_path)
    module: Any = os
    if failing == "flock":
        module = pytest.importorskip("fcntl")

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    num_open = count_open_files(tmp_path)
    for _ in range(2):
        monkeypatch.setattr(module, failing, fail)
        with pytest.raises(OSError, match="No space left on"):
            Journal.open(path)
        monkeypatch.undo()
        assert count_open_files(tmp_path) == num_open
    with Journal.open(path) as journal:
        journal.append({"after": failing})


def test_a_failure_while_locking_a_new_journal_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "run.journal"
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(OSError, match=r"run\.journal\.lock cannot be written.*Free"):
        Journal.create(path, {})
    monkeypatch.undo()
    assert not path.exists()
    Journal.create(path, {}).close()


def count_open_files(under: Path) -> int:
    """Count descriptors of files in a folder: others may be closed by the garbage collector."""
    count = 0
    for entry in Path("/proc/self/fd").glob("*"):
        with contextlib.suppress(OSError):  # of the listing itself, which is closed by now
            count += str(under) in os.readlink(entry)
    return count


@pytest.mark.skipif(sys.platform == "win32", reason="Windows replaces no open file")
def test_a_journal_that_is_replaced_before_it_is_locked_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    content, lock_file, calls = path.read_bytes(), locks._lock_file, []

    def replace_first(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            path.rename(tmp_path / "old.journal")
            path.write_bytes(content)
        lock_file(descriptor)

    monkeypatch.setattr(locks, "_lock_file", replace_first)
    with Journal.open(path) as journal:
        journal.append({"goes": "to the new one"})
    assert len(calls) == 2
    assert Journal.read(path).num_records == len(RECORDS) + 1
    assert (tmp_path / "old.journal").read_bytes() == content
    Journal.open(tmp_path / "old.journal").close()  # its lock was given back

    def replace_always(descriptor: int) -> None:
        os.unlink(path)
        path.write_bytes(content)
        lock_file(descriptor)

    monkeypatch.setattr(locks, "_lock_file", replace_always)
    with pytest.raises(JournalError, match="replaced again and again"):
        Journal.open(path)
    monkeypatch.undo()
    Journal.open(path).close()


def create_and_wait(path: Path, name: str, moment: float, end: Path) -> None:
    """Create a journal at a moment, and wait for the end if it is there."""
    time.sleep(max(moment - time.time(), 0.0))
    try:
        journal = Journal.create(path, {"by": name})
        print("created", flush=True)
        while not end.exists():
            time.sleep(0.01)
        journal.close()
    except FileExistsError:
        print("refused", flush=True)


def test_of_two_processes_that_create_a_journal_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    path, end, moment = tmp_path / "folder" / "run.journal", tmp_path / "end", time.time() + 0.5
    processes = [Forked(create_and_wait, path, str(i), moment, end) for i in range(2)]
    answers = [process.read_line() for process in processes]
    end.touch()
    for process in processes:
        assert process.wait(60) == 0
    assert sorted(answers) == ["created", "refused"]
    assert Journal.read(path).header == {"by": str(answers.index("created"))}
    assert [known.name for known in path.parent.iterdir() if ".new" in known.name] == []


def fork_and_wait(path: Path) -> None:
    """Open a journal, fork, tell the child and wait to be killed."""
    journal = Journal.open(path)
    child = os.fork()
    if child:
        print(child, flush=True)
    time.sleep(600)
    journal.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_outlives_a_killed_writer_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = make(tmp_path)
    process = Forked(fork_and_wait, path)
    child = int(process.read_line())
    try:
        with pytest.raises(JournalLockedError):
            Journal.open(path)
        time.sleep(0.2)  # the child may still be closing its copy
        process.kill()
        os.kill(child, 0)  # it lives
        Journal.open(path).close()
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)


def test_a_failed_opening_gives_its_lock_back(tmp_path: Path) -> None:
    path = make(tmp_path)
    content = path.read_bytes()
    path.write_bytes(b"something else\n")
    for _ in range(2):
        with pytest.raises(JournalError, match="is not a journal"):
            Journal.open(path)
    path.write_bytes(content)
    Journal.open(path).close()
    for _ in range(2):
        with pytest.raises(FileExistsError):
            Journal.create(path, {})
