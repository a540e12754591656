"""Signal handlers and forked children that call the loop they interrupt."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from benchmarks.fault_cases import build, derived, num_steps, play, reward
from botorch_bandits.history import History
from botorch_bandits.journal import Journal, JournalError
from botorch_bandits.loop import BanditLoop

pytestmark = [
    pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such timers"),
    pytest.mark.usefixtures("quick_disk"),
]


@pytest.fixture(autouse=True)
def no_deadlock() -> Iterator[None]:
    """A deadlock ends the run, with a trace."""
    faulthandler.dump_traceback_later(100, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


class Alarms:
    """Calls a function at random moments of whatever runs."""

    def __init__(self, call: Callable[[], Any], every: float) -> None:
        self.call, self.every, self.count = call, every, 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.call()

    def __enter__(self) -> Alarms:
        self.previous = signal.signal(signal.SIGALRM, self.handle)
        signal.setitimer(signal.ITIMER_REAL, self.every, self.every)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self.previous)


def tell_oldest(loop: BanditLoop) -> None:
    waiting = loop.history.pending()
    if waiting:
        loop.tell(waiting[0].id, reward(waiting[0].x, waiting[0].id), constraints_of(loop))


def constraints_of(loop: BanditLoop) -> list[float] | None:
    return None if loop.settings.constraints is None else [0.1, -0.2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arms, ucb", "arms, restarts", "arms, constraints", "box, ucb"])
def test_a_handler_that_asks_and_tells_never_waits_and_nothing_is_lost(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.journal"
    with build(name, journal=path) as loop:
        asked, told, state = [], [], [0]

        def handle() -> None:
            state[0] += 1
            if state[0] % 5 == 0:
                loop.best()
            elif state[0] % 2:
                asked.append(loop.ask().id)
            elif waiting := loop.history.pending():
                query = waiting[-1]
                outcome = loop.tell(query.id, 0.25, constraints_of(loop))
                told.append((query.id, outcome.reward))

        deadline = time.monotonic() + 20.0
        with Alarms(handle, 0.02 if name == "arms, ucb" else 0.1) as alarms:
            while (alarms.count < 40 or num_steps(loop.history) < 60) and (
                time.monotonic() < deadline
            ):
                query = loop.ask()
                asked.append(query.id)
                if loop.history.state(query.id) == "pending":
                    try:
                        told.append(
                            (query.id, loop.tell(query.id, 0.5, constraints_of(loop)).reward)
                        )
                    except ValueError as error:
                        if "has the reward 0.25" not in str(error):  # the handler was faster
                            raise
        assert alarms.count > 10
        assert sorted(asked) == list(range(loop.history.num_queries))
        history, seen = json.dumps(loop.history.to_records()), repr(derived(loop))
    with build(name, journal=path) as again:
        assert json.dumps(again.history.to_records()) == history
        assert repr(derived(again)) == seen
        for query_id, value in told:
            outcome = again.history.outcome(query_id)
            assert outcome is not None
            assert outcome.reward == value
        # what is derived goes on as after any other run
        assert torch.equal(again.ask().x, build(name, history=history_before(again)).ask().x)


def history_before(loop: BanditLoop) -> History:
    records = loop.history.to_records()[:-1]
    sizes = loop.history.dim, loop.history.context_dim, loop.history.num_constraints
    return History.from_records(records, *sizes)


def test_a_handler_that_saves_and_leaves_keeps_what_was_told(tmp_path: Path) -> None:
    """As programs do that are told to end: a last outcome, then an exception."""
    path, ends = tmp_path / "run.journal", 0
    for seed in range(40):
        with build("arms, ucb", journal=path) as loop:
            before = num_steps(loop.history)

            def leave(loop: BanditLoop = loop) -> None:
                tell_oldest(loop)
                raise KeyboardInterrupt

            try:
                with Alarms(leave, 0.001 + 0.0002 * seed):
                    while num_steps(loop.history) < before + 10:
                        query = loop.ask()
                        time.sleep(0.0005)
                        if loop.history.state(query.id) == "pending":
                            loop.tell(query.id, reward(query.x, query.id))
            except KeyboardInterrupt:
                ends += 1
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            loop.ask()  # it goes on
            known = loop.history.to_records()
        with build("arms, ucb", journal=path) as again:
            assert again.history.to_records() == known
    assert ends > 5


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
            loop.sync,
        ]
        # another thread has its turn while this one forks
        holds, may_end = threading.Event(), threading.Event()

        def hold() -> None:
            with loop._lock:
                holds.set()
                may_end.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        holds.wait()
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
    assert Journal.read(path).num_records == 21 + (len(waiting) == 0)
