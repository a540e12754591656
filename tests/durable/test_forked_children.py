"""Forked children that call the loop of their parent."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from benchmarks.fault_cases import build, play

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.usefixtures("quick_disk"),
]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
def test_a_forked_child_asks_and_tells_like_any_process(tmp_path: Path) -> None:
    with build("arms, ucb", storage=tmp_path / "run.db") as loop:
        play(loop, 20)
        waiting, known = loop.ask(), loop.history.num_queries
        # another thread has the loop's lock while this one forks
        holds, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with loop._lock:
                holds.set()
                may_end.wait()

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        holds.wait()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                loop.tell(waiting.id, 1.0)
                asked = loop.ask()
                assert asked.asked_by.startswith(f"{os.getpid()}@")
                loop.attach([0.0], 1.0)
                loop.best()
                loop.close()
                code = 0
            finally:
                os._exit(code)
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
        assert [query.asked_by for query in loop.pending[-1:]] != [waiting.asked_by]
        assert loop.history.outcome(waiting.id).by == loop.pending[-1].asked_by
        assert loop.ask().id == known + 2
