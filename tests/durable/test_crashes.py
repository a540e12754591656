"""A loop that is killed or interrupted anywhere goes on as if nothing had happened."""

from __future__ import annotations

import copy
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from pairwise import by_day
from records import ON_BOXES, assert_same, entries_of, rebuilt

from benchmarks.faults import count_faults
from botorch_bandits.history import History
from botorch_bandits.loop import StorageError, StorageWriteError
from botorch_bandits.loop.store import SQLiteStore, read_store

from .cases import SETTINGS, build, derived, num_steps, play, step

pytestmark = [
    pytest.mark.filterwarnings("ignore::botorch_bandits.loop.view.LateOutcomeWarning"),
    pytest.mark.filterwarnings("ignore:.*is not standardized"),
]


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("name", by_day(SETTINGS))
def test_a_run_in_pieces_is_recorded_as_one_in_one_piece(name: str, tmp_path: Path) -> None:
    total = 80 if name.startswith("arms") else 30
    whole, pieces = tmp_path / "whole.db", tmp_path / "pieces.db"
    chance = random.Random(len(name))
    stops = [*sorted(chance.sample(range(1, total), 6)), total]
    records = []
    with build(name, storage=whole) as loop:
        for stop in stops:
            play(loop, stop)
            records.append(loop.history.to_records())
        seen = derived(loop)
        if "restarts" in name:
            assert loop.resets, "a reset must happen for this test to say anything"
        if "refits" in name:
            assert any("fit" in event.body for event in read_store(whole)[1])
    for stop, expected in zip(stops, records, strict=True):
        with build(name, storage=pieces) as loop:
            play(loop, stop)
            assert_same(loop.history.to_records(), expected, ON_BOXES)
    with build(name, storage=pieces) as loop:
        assert_same(derived(loop), seen, ON_BOXES)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_twenty_kills_each_change_no_suggestion(name: str) -> None:
    """Over all settings these are 200 kills."""
    count = count_faults(name, num_kills=20, seed=1)
    assert count.is_clean, count
    assert count.kills == 20


FULL = StorageWriteError("the disk is full")


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("name", ["arms, ts, initial rounds", "arms, constraints", "box, ucb"])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupted"])
def test_what_cannot_be_written_does_not_count(
    name: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every second step writing fails once; also with outcomes told before it is repeated."""
    total = 24
    with build(name) as plain:
        play(plain, total)
    write, calls = SQLiteStore.write, []

    def fail_at_first(store: SQLiteStore, after: int, compose: Any) -> Any:
        calls.append(compose([]))
        if len(calls) % 2:
            raise error
        return write(store, after, compose)

    with build(name, storage=tmp_path / "run.db") as loop:
        monkeypatch.setattr(SQLiteStore, "write", fail_at_first)
        while num_steps(loop.history) < total:
            before = loop.history.to_records()
            with pytest.raises(type(error)):
                step(loop)
            assert loop.history.to_records() == before
            step(loop)
        assert_same(loop.history.to_records(), plain.history.to_records(), ON_BOXES)
        assert_same(derived(loop), derived(plain), ON_BOXES)
        assert_same(calls[::2], calls[1::2], ON_BOXES)


def test_outcomes_between_a_choice_that_failed_and_its_repetition_count_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With constraints a round ends when the next is chosen; an outcome belongs to one of them."""
    name, path = "arms, constraints", tmp_path / "run.db"
    with build(name, storage=path) as loop:
        for _ in range(4):
            loop.ask()
        with monkeypatch.context() as patch:
            patch.setattr(SQLiteStore, "write", lambda *given: (_ for _ in ()).throw(FULL))
            with pytest.raises(StorageWriteError):
                loop.ask()
        for i in range(4):
            loop.tell(i, 1.0, [0.5 + i, 0.25])
        play(loop, 20)
        live = loop.ask()
        seen = derived(loop)
    again = rebuilt(build(name), entries_of(loop.history)[:-1])
    assert again.ask().x.tolist() == live.x.tolist()
    assert derived(again) == seen


@pytest.mark.usefixtures("quick_disk")
def test_an_interruption_between_disk_and_memory_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, total = "arms, constraints", 30
    with build(name) as plain:
        play(plain, total)
    record, calls = History.record, []

    def interrupt(history: History, entry: Any) -> None:
        if is_stepping and history is loop._history:
            calls.append(entry)
            if len(calls) % 3 == 0:
                raise KeyboardInterrupt
        record(history, entry)

    with build(name, storage=tmp_path / "run.db") as loop:
        monkeypatch.setattr(History, "record", interrupt)
        num_interrupted, is_stepping = 0, False
        while (num_known := num_steps(loop.history)) < total:
            is_stepping = True
            try:
                step(loop)
            except KeyboardInterrupt:
                num_interrupted += 1
            is_stepping = False
            # what is on disk counts, also where the caller saw no answer
            assert num_steps(loop.history) == num_known + 1
        assert num_interrupted > 5
        assert_same(loop.history.to_records(), plain.history.to_records(), ON_BOXES)
        assert_same(derived(loop), derived(plain), ON_BOXES)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loop: pickle.loads(pickle.dumps(loop))])
def test_a_copy_of_a_loop_opens_the_same_run(copied: Any, tmp_path: Path) -> None:
    loop = build("arms, ucb", storage=tmp_path / "run.db")
    play(loop, 8)
    with loop, copied(loop) as other:
        assert other.storage == loop.storage == str(tmp_path / "run.db")
        query = other.ask()
        assert loop.pending[-1].id == query.id
        loop.tell(query.id, 0.5)
        assert other.history.outcome(query.id).reward == 0.5
        waiting = loop.ask()
    for call in (loop.ask, lambda: loop.fail(waiting.id), lambda: loop.attach([0.0], 1.0)):
        with pytest.raises(StorageError, match=r"run\.db is closed"):
            call()
    assert loop.best() is not None
    assert loop.history.num_queries == other.history.num_queries
