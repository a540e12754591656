"""A handler that calls what it interrupts: every record is whole, and nothing waits for itself."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from botorch_bandits.journal import Journal

from .cases import make

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="there are no timers that signal"
)


@pytest.fixture(autouse=True)
def no_deadlock() -> Iterator[None]:
    """A deadlock ends the run, with a trace."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class Alarms:
    """Calls something again and again, in the middle of whatever runs."""

    def __init__(self, call: Any, every: float, number: int = signal.SIGALRM) -> None:
        self.call, self.every, self.number = call, every, number
        self.count = 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.call(self.count)

    def __enter__(self) -> Alarms:
        self.previous = signal.signal(signal.SIGALRM, self.handle)
        signal.setitimer(signal.ITIMER_REAL, self.every, self.every)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self.previous)


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("every", [0.003, 0.0002])
def test_a_handler_appends_in_the_middle_of_appending(tmp_path: Path, every: float) -> None:
    path = make(tmp_path, [])
    numbers: list[int] = []
    with Journal.open(path) as journal:

        def handle(count: int) -> None:
            if count % 7 == 0:
                journal.write_snapshot({"count": count}, journal.num_records)
            numbers.append(journal.append({"handler": count}))

        with Alarms(handle, every) as alarms:
            for i in range(20_000):
                numbers.append(journal.append({"main": i}))
                if alarms.count > 300:
                    break
    assert alarms.count > 50
    records = list(Journal.read(path).records())
    assert sorted(numbers) == list(range(1, len(records) + 1))
    assert [r["main"] for r in records if "main" in r] == list(range(i + 1))
    # a handler may interrupt one that has not begun to append
    assert sorted(r["handler"] for r in records if "handler" in r) == [
        count + 1 for count in range(alarms.count)
    ]


def test_a_handler_that_raises_leaves_the_record_and_the_handlers(tmp_path: Path) -> None:
    """What raises is called behind the record, which then is there."""
    path = make(tmp_path, [])

    class StopError(Exception):
        pass

    def stop(number: int, frame: FrameType | None) -> None:
        raise StopError

    seen: list[int] = []
    before = {
        signal.SIGUSR1: signal.signal(signal.SIGUSR1, stop),
        signal.SIGUSR2: signal.signal(signal.SIGUSR2, lambda *_: seen.append(1)),
    }
    try:
        with Journal.open(path) as journal:
            real = journal._write

            def interrupted(line: bytes, is_synced: bool) -> None:
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGUSR2)
                signal.raise_signal(signal.SIGUSR1)
                real(line, is_synced)

            journal._write = interrupted  # type: ignore[method-assign]
            with pytest.raises(StopError):
                journal.append({"kept": 1})
            assert seen == [1]
            assert signal.getsignal(signal.SIGUSR1) is stop
            journal._write = real  # type: ignore[method-assign]
            assert journal.append({"kept": 2}) == 2
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert list(Journal.read(path).records()) == [{"kept": 1}, {"kept": 2}]


def test_other_threads_and_programs_without_handlers_are_left_alone(tmp_path: Path) -> None:
    with Journal.open(make(tmp_path, [])) as journal:
        known = {number: signal.getsignal(number) for number in signal.valid_signals()}
        thread = threading.Thread(target=journal.append, args=({"thread": 1},))
        thread.start()
        thread.join()
        assert journal.append({"main": 1}) == 2
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == known
    assert sys.getrefcount(journal) < 10
