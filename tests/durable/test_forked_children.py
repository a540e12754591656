"""Forked children that call the loop of their parent."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fault_cases import build, play
from botorch_bandits.journal import Journal, JournalError

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.usefixtures("quick_disk"),
]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_at_once_and_the_parent_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    with build("arms, ucb", journal=path) as loop:
        play(loop, 20)
        waiting = loop.history.pending() or (loop.ask(),)
        calls: list[Callable[[], Any]] = [
            loop.ask,
            lambda: loop.tell(waiting[0].id, 1.0),
            lambda: loop.tell_failed(waiting[0].id),
            lambda: loop.attach([0.0], 1.0),
            lambda: loop.retract(loop.history.outcomes[0].query_id, "wrong"),
        ]
        # another thread has its turn while this one forks
        holds, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with loop._lock:
                holds.set()
                may_end.wait()

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        holds.wait()
        num_records = Journal.read(path).num_records
        size, child = path.stat().st_size, os.fork()
        if child == 0:
            refused = 0
            try:
                for call in calls:
                    try:
                        call()
                    except JournalError as error:
                        refused += "was opened by process" in str(error)
                loop.best()  # looking is allowed
                loop.close()
            finally:
                os._exit(0 if refused == len(calls) else 1)
        deadline = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.02)
        may_end.set()
        thread.join()
        if ended == (0, 0):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        assert os.waitstatus_to_exitcode(ended[1]) == 0
        assert path.stat().st_size == size
        loop.ask()
    assert Journal.read(path).num_records == num_records + 1
