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

from botorch_bandits.journal import Journal, TornTailWarning

from .cases import HEADER


def write_for_ever(path: Path, answers: Connection) -> None:
    """Append the numbers 0, 1, 2, ..., and tell each when it is written."""
    journal = Journal.open(path)
    while True:
        number = journal.num_records
        journal.append({"number": number, "pad": "x" * (number % 5 * 3000)})
        answers.send(number)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_writer_killed_at_any_moment_lost_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    context, chance = multiprocessing.get_context("fork"), random.Random(0)
    Journal.create(path, HEADER).close()
    num_told = 0
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
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", TornTailWarning)  # it is all that may happen
            with Journal.open(path) as journal:
                numbers = [record["number"] for record in journal.records()]
        # the last one may have been written and not told
        assert len(numbers) - 1 in (told[-1], told[-1] + 1)
        assert numbers == list(range(len(numbers)))
        num_told = len(numbers)
    assert Journal.read(path).num_records == num_told
