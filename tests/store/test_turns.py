"""One caller at a time has the turn; it ends with its process, whatever that leaves behind."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from botorch_bandits.loop import store as store_module
from botorch_bandits.loop.store import SQLiteStore, StorageError, TurnTimeout
from store.processes import add, run_at, told


def _hold(say: Callable[[Any], None], storage: str, seconds: float = 600.0) -> None:
    with run_at(storage).turn():
        say("has it")
        time.sleep(seconds)
    say("ended")


def _hold_and_fork(say: Callable[[Any], None], storage: str) -> None:
    with run_at(storage).turn():
        child = os.fork()
        if child == 0:
            time.sleep(600.0)
        say(child)
        time.sleep(600.0)


def _take(say: Callable[[Any], None], storage: str, timeout: float | None = None) -> None:
    with run_at(storage).turn(timeout):
        say(time.time())
        time.sleep(0.05)


def test_the_turn_ends_with_its_process(storage: str, start: Any) -> None:
    run_at(storage)
    holder = start(_hold, storage)
    holder.hear()
    waiting = [start(_take, storage, timeout) for timeout in (None, 30.0)]
    for child in waiting:
        assert child.says_nothing(0.2)
    holder.kill()
    for child in waiting:
        child.hear(5.0)
        child.end()


def test_a_forked_child_of_a_killed_holder_has_no_turn(storage: str, start: Any) -> None:
    run_at(storage)
    holder = start(_hold_and_fork, storage)
    child = holder.hear()
    begun = time.monotonic()
    holder.kill()  # its child lives on
    try:
        with run_at(storage).turn(timeout=5.0):
            pass
        assert time.monotonic() - begun < 2.0
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_stopped_holder_is_named(storage: str, start: Any) -> None:
    store = run_at(storage)
    holder = start(_hold, storage)
    holder.hear()
    holder.stop()
    begun = time.monotonic()
    with pytest.raises(TurnTimeout) as caught, store.turn(timeout=1.0):
        pass
    assert 0.9 < time.monotonic() - begun < 3.0
    named = rf"after 1.0 s, .* still with {holder.pid}@\S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\."
    assert re.search(named, str(caught.value))
    add(store, told(0))  # a tell waits for nobody
    holder.kill()
    with store.turn(timeout=5.0):
        pass


def test_turns_are_first_come_first_served(storage: str, start: Any) -> None:
    store = run_at(storage)
    with store.turn():
        waiting = []
        for timeout in (None, 30.0, None, 30.0):
            waiting.append(start(_take, storage, timeout))
            assert waiting[-1].says_nothing(0.3)  # it is in the queue
    times = [child.hear() for child in waiting]
    assert times == sorted(times)


def test_who_gave_up_leaves_nothing(tmp_path: Any, start: Any) -> None:
    storage = str(tmp_path / "run.db")
    store = run_at(storage)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    with store.turn():
        for timeout in (0.0, 0.01, 0.1):
            with pytest.raises(TurnTimeout), store.turn(timeout):
                pass
        child = start(_take, storage)
        assert child.says_nothing(0.2)
    child.hear(5.0)  # those who gave up before do not hold it up
    with store.turn(timeout=5.0):
        pass
    assert not store._descriptors
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 1  # the pipe to the child


def test_errors_end_the_turn(storage: str) -> None:
    store = run_at(storage)
    with pytest.raises(KeyboardInterrupt), store.turn():
        raise KeyboardInterrupt
    with store.turn(timeout=1.0):
        pass


def test_threads_take_turns(storage: str) -> None:
    store = run_at(storage)
    with store.turn():
        failed = []

        def wait() -> None:
            try:
                with store.turn(timeout=0.2):
                    pass
            except TurnTimeout as error:
                failed.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
    assert "after 0.2 s" in failed[0]
    assert f"with {os.getpid()}@" in failed[0]


def test_a_child_forked_in_a_turn_does_not_have_it(storage: str, start: Any) -> None:
    store = run_at(storage)
    turn = store.turn()

    def leave(say: Callable[[Any], None]) -> None:
        turn.__exit__(None, None, None)
        say("left")

    turn.__enter__()
    child = start(leave)
    child.hear()
    child.end()
    with pytest.raises(TurnTimeout), store.turn(timeout=0.2):  # the turn of the parent goes on
        pass
    turn.__exit__(None, None, None)
    with store.turn(timeout=1.0):
        pass


def test_turns_without_flock(tmp_path: Any, start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "fcntl", None)  # as on Windows
    storage = str(tmp_path / "run.db")
    store = run_at(storage)
    holder = start(_hold, storage)
    holder.hear()
    with pytest.raises(TurnTimeout, match="with another process"), store.turn(timeout=0.2):
        pass
    waiting = start(_take, storage)
    assert waiting.says_nothing(0.2)
    holder.kill()
    waiting.hear(5.0)
    waiting.end()
    with store.turn(timeout=5.0):
        pass


def test_a_turn_file_that_leads_elsewhere_is_refused(tmp_path: Any) -> None:
    storage, precious = tmp_path / "run.db", tmp_path / "precious"
    run_at(str(storage)).close()
    precious.write_text("precious")
    (tmp_path / "run.db-turn").unlink()
    (tmp_path / "run.db-turn").symlink_to(precious)
    with pytest.raises(StorageError, match=r"run\.db-turn"), SQLiteStore(storage).turn():
        pass
    assert precious.read_text() == "precious"
