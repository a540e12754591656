"""A disk that is full or fails, a file that somebody else touches: no half record counts."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import Forked

from botorch_bandits.journal import Journal, JournalError, JournalWriteError

from .cases import RECORDS, make


@pytest.mark.parametrize("how_much", ["nothing", "a part", "all"])
@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_record_that_cannot_be_written_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, how_much: str
) -> None:
    path = make(tmp_path)
    before = path.read_bytes()
    real_write, real_fsync = os.write, os.fsync
    calls = {"write": 0, "fsync": 0}

    def write(descriptor: int, content: bytes) -> int:
        calls["write"] += 1
        share = {"nothing": 0, "a part": 7, "all": len(content)}[how_much]
        if calls["write"] > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real_write(descriptor, content[:share])
        if share in (0, len(content)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return written

    def fsync(descriptor: int) -> None:
        calls["fsync"] += 1
        if calls["fsync"] == 1:
            raise OSError(errno.EIO, "Input/output error")
        real_fsync(descriptor)

    with Journal.open(path) as journal:
        monkeypatch.setattr(os, failing, {"write": write, "fsync": fsync}[failing])
        with pytest.raises(JournalWriteError, match=r"was not written.*Free space"):
            journal.append({"lost": True})
        monkeypatch.undo()
        assert journal.num_records == len(RECORDS)
        assert path.read_bytes() == before
        assert list(journal.records()) == RECORDS
        journal.append({"kept": True})
    assert list(Journal.read(path).records()) == [*RECORDS, {"kept": True}]


def test_after_a_failure_that_cannot_be_undone_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    path = make(tmp_path)
    with Journal.open(path) as journal:
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(JournalWriteError, match=r"neither written .* nor"):
            journal.append({"lost": True})
        monkeypatch.undo()
        with pytest.raises(JournalError, match=r"neither written .* nor"):
            journal.append({"later": True})
    with Journal.open(path) as journal:
        assert list(journal.records()) == RECORDS
        journal.append({"later": True})


def test_an_interrupted_append_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path)
    real_fsync = os.fsync
    calls = []

    def interrupted(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 1:
            raise KeyboardInterrupt
        real_fsync(descriptor)

    with Journal.open(path) as journal:
        monkeypatch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append({"lost": True})
        assert journal.append({"kept": True}) == len(RECORDS) + 1
    assert list(Journal.read(path).records()) == [*RECORDS, {"kept": True}]


def write_on_a_full_disk(path: Path) -> None:
    """Append records where 100 bytes are free, and say why one is refused."""
    import resource

    journal = Journal.open(path)
    size = journal.path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
    journal.append({"fits": 1})
    size, written = journal.path.stat().st_size, journal.num_records
    try:
        journal.append({"long": "x" * 200})
    except JournalWriteError as error:
        print(error)
    assert (journal.path.stat().st_size, journal.num_records) == (size, written)
    journal.append({"fits": 2})
    journal.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limits on file sizes")
def test_a_file_that_may_not_grow_keeps_whole_records(tmp_path: Path) -> None:
    """The system itself takes a part of the record and refuses the rest."""
    path = make(tmp_path)
    process = Forked(write_on_a_full_disk, path)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "File too large" in said
    assert list(Journal.read(path).records()) == [*RECORDS, {"fits": 1}, {"fits": 2}]


@pytest.mark.parametrize("what", ["moved", "deleted", "replaced", "longer", "shorter"])
def test_a_file_that_somebody_else_touched_is_not_written(tmp_path: Path, what: str) -> None:
    path = make(tmp_path)
    content = path.read_bytes()
    with Journal.open(path) as journal:
        if what == "moved":
            path.rename(tmp_path / "elsewhere")
        elif what == "deleted":
            path.unlink()
        elif what == "replaced":
            (tmp_path / "other").write_bytes(content)
            os.replace(tmp_path / "other", path)
        else:
            path.write_bytes(content + b"1" if what == "longer" else content[:-1])
        with pytest.raises(JournalWriteError, match=f"{path.name} was .* while it was open"):
            journal.append({"lost": True})
        assert journal.num_records == len(RECORDS)
