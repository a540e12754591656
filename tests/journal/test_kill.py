"""A writer that is killed at any moment has lost nothing that it was told is written."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from botorch_bandits.journal import Journal, SnapshotWarning

from .cases import HEADER


def write_for_ever(path: Path, answers: Connection) -> None:
    """Append the numbers 0, 1, 2, ..., tell each when it is written, and take snapshots."""
    journal = Journal.open(path)
    while True:
        number = journal.num_records
        journal.append({"number": number, "pad": "x" * (number % 5 * 3000)})
        answers.send(number)
        if number % 7 == 0:
            journal.write_snapshot({"largest": number}, journal.num_records)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_writer_killed_at_any_moment_lost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    context, chance = multiprocessing.get_context("fork"), random.Random(0)
    Journal.create(path, HEADER).close()
    num_told = num_snapshots = 0
    for _ in range(25):
        receiving, sending = context.Pipe(duplex=False)
        writer = context.Process(target=write_for_ever, args=(path, sending))
        writer.start()
        sending.close()
        told = [receiving.recv()]
        time.sleep(chance.uniform(0.0, 0.04))
        writer.kill()
        writer.join()
        try:
            while True:
                told.append(receiving.recv())
        except (EOFError, OSError):
            receiving.close()
        assert told == list(range(num_told, told[-1] + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("error", SnapshotWarning)  # a torn tail is all that may happen
            with Journal.open(path) as journal:
                numbers = [record["number"] for record in journal.records()]
                snapshot = journal.read_snapshot()
        # the last one may have been written and not told
        assert len(numbers) - 1 in (told[-1], told[-1] + 1)
        assert numbers == list(range(len(numbers)))
        num_told = len(numbers)
        if snapshot is not None:
            num_snapshots += 1
            assert snapshot.state["largest"] == snapshot.num_records - 1
    assert num_snapshots > 0
    assert Journal.read(path).num_records == num_told
