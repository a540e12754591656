"""A forked child is another process: it has connections of its own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

from botorch_bandits.loop.store import NewEvent
from store.processes import add, run_at, told


def test_children_write_to_the_run_of_their_parent(storage: str, start: Any) -> None:
    store: Any = run_at(storage)
    add(store, told(0))

    def work(say: Callable[[Any], None], number: int) -> None:
        say(store._connection is None)  # SQLite and servers would confuse the two processes
        say(len(store.news()))
        for i in range(5):
            with store.turn(timeout=30.0):
                add(store, NewEvent("told", number, {"reward": i}))

    children = [start(work, number) for number in range(1, 4)]
    for _ in range(5):
        with store.turn(timeout=30.0):
            add(store, told(0))
    for child in children:
        assert child.hear() is True
        assert child.hear() >= 1
        child.end()
    events = store.news()
    assert len(events) == 21
    assert {event.by.split("@")[0] for event in events} == {
        str(os.getpid()),
        *(str(child.pid) for child in children),
    }


def test_a_fork_waits_for_the_writes_of_other_threads(storage: str, start: Any) -> None:
    store, ended = run_at(storage), threading.Event()

    def write() -> None:
        while not ended.is_set():
            with store.turn():
                add(store, told(0))

    def work(say: Callable[[Any], None]) -> None:
        with store.turn(timeout=30.0):
            add(store, told(1))
        store.close()

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            time.sleep(0.02)
            start(work).end()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    events = store.news()
    assert sum(event.query for event in events) == 10
    assert len(events) > 20


def test_a_started_program_keeps_no_lock(tmp_path: Any) -> None:
    import subprocess
    import sys

    storage = str(tmp_path / "run.db")
    store = run_at(storage)
    with store.turn():
        program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with store.turn(timeout=1.0):
            add(store, told(0))
    finally:
        program.kill()
        program.wait()
