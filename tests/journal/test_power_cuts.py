"""What a power cut leaves of a journal: whatever was promised, at each moment and in each order."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks.power_cuts import PowerCuts, cut_power
from botorch_bandits.journal import Journal, TornTailWarning
from botorch_bandits.loop.settings import LoopSettings

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc"),
    pytest.mark.filterwarnings("ignore::botorch_bandits.journal.TornTailWarning"),
]


def record(i: int) -> dict[str, Any]:
    return {"i": i, "text": "x" * (10 + 7 * i)}


def check(folder: Path, promised: list[Any], name: str = "run.journal") -> None:
    """Raise unless all that was promised is there, and nothing that was not written."""
    if not promised:
        return  # nobody was told that there is a journal
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", TornTailWarning)
        with Journal.open(folder / name) as journal:
            found = list(journal.records())
            assert found == [record(i) for i in range(len(found))]
            assert len(found) >= max(promised)
            assert journal.append(record(len(found))) == len(found) + 1
        assert Journal.read(folder / name).num_records == len(found) + 1


def test_each_record_is_there_when_append_has_returned(tmp_path: Path) -> None:
    def program(folder: Path, cuts: PowerCuts) -> None:
        with Journal.create(folder / "run.journal", {"seed": 1}) as journal:
            cuts.promise(0)
            for i in range(6):
                cuts.promise(journal.append(record(i)))
        with Journal.open(folder / "run.journal") as journal:
            cuts.promise(journal.append(record(6)))

    assert cut_power(tmp_path, program, check) > 30


def test_a_record_that_a_dead_process_left_is_promised_only_when_it_is_on_disk(
    tmp_path: Path,
) -> None:
    """It was killed between writing and synchronizing; the next one sees the record."""

    def program(folder: Path, cuts: PowerCuts) -> None:
        path = folder / "run.journal"
        with Journal.create(path, {"seed": 1}) as journal:
            journal.append(record(0))
            line = journal.path.read_bytes()
            journal.append(record(1))
            whole = journal.path.read_bytes()
        path.unlink()  # the same without the last synchronization
        cuts.steps.clear()
        import os

        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        os.write(descriptor, line)
        os.fsync(descriptor)
        os.write(descriptor, whole[len(line) :])
        os.close(descriptor)  # and no word to the folder either
        with Journal.open(path) as journal:
            cuts.promise(journal.num_records)

    assert cut_power(tmp_path, program, check) > 3


def test_what_was_cut_off_is_kept_or_still_there(tmp_path: Path) -> None:
    torn = b"999 torn " * 40

    def program(folder: Path, cuts: PowerCuts) -> None:
        path = folder / "run.journal"
        with Journal.create(path, {"seed": 1}) as journal:
            for i in range(2):
                cuts.promise(journal.append(record(i)))
        import os

        descriptor = os.open(path, os.O_WRONLY)
        os.lseek(descriptor, 0, os.SEEK_END)
        os.write(descriptor, torn)
        os.fsync(descriptor)
        os.close(descriptor)
        cuts.promise("torn")
        with Journal.open(path) as journal:
            cuts.promise(journal.append(record(2)))

    def check_torn(folder: Path, promised: list[Any]) -> None:
        kept = b"".join(path.read_bytes() for path in folder.glob("*.cut-*"))
        if "torn" in promised:
            assert torn in (folder / "run.journal").read_bytes() or torn in kept
        check(folder, [each for each in promised if each != "torn"])

    assert cut_power(tmp_path, program, check_torn) > 20


@pytest.fixture
def settings() -> LoopSettings:
    from botorch_bandits import BanditLoop, Box, RandomSearch

    return BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch()).settings


def test_the_simulation_notices_what_is_not_synchronized(tmp_path: Path) -> None:
    """The check itself: without synchronizing, records and the file itself get lost."""

    def forgetful(folder: Path, cuts: PowerCuts) -> None:
        with Journal.create(folder / "run.journal", {"seed": 1}) as journal:
            cuts.promise(0)
            num_before = len(cuts.steps)
            for i in range(3):
                cuts.promise(journal.append(record(i)))
        cuts.steps[num_before:] = [each for each in cuts.steps[num_before:] if each[0] != "sync"]

    with pytest.raises((AssertionError, FileNotFoundError)):
        cut_power(tmp_path, forgetful, check)
    (tmp_path / "again").mkdir()

    def without_folder(folder: Path, cuts: PowerCuts) -> None:
        forgetful_cuts(folder, cuts)

    def forgetful_cuts(folder: Path, cuts: PowerCuts) -> None:
        with Journal.create(folder / "run.journal", {"seed": 1}) as journal:
            cuts.promise(0)
            cuts.promise(journal.append(record(0)))
        cuts.steps[:] = [step for step in cuts.steps if step[0] != "sync folder"]

    with pytest.raises(FileNotFoundError):
        cut_power(tmp_path / "again", without_folder, check)
