"""A loop that is killed, cut off or interrupted anywhere goes on as if nothing had happened."""

from __future__ import annotations

import pickle
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from pairwise import by_day
from records import ON_BOXES, assert_same

from benchmarks.faults import count_faults
from botorch_bandits.history import History
from botorch_bandits.journal import (
    Journal,
    JournalError,
    JournalWriteError,
    TornTailWarning,
)
from botorch_bandits.loop import journal as loop_journal

from .cases import SETTINGS, build, cut, derived, num_steps, play, step

pytestmark = [
    pytest.mark.filterwarnings("ignore::botorch_bandits.feedback.LateOutcomeWarning"),
    pytest.mark.filterwarnings("ignore:.*is not standardized"),
]


def write_and_watch(name: str, path: Path, total: int) -> tuple[bytes, list[Any]]:
    """Play to the end; return the journal, and history and next suggestion at each record."""
    states = []
    with build(name, journal=path) as loop:
        twin = build(name)  # in step with the other, and can be copied
        for _ in range(total + 1):
            query = pickle.loads(pickle.dumps(twin)).ask(
                [0.5] if twin.settings.context_dim else None
            )
            states.append((loop.history.to_records(), query.x.tolist(), query.diagnostics))
            for each in (loop, twin):
                step(each)
            assert loop.history.to_records() == twin.history.to_records()
        assert derived(loop) == derived(twin)
    return cut(path.read_bytes(), total), states


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize(
    ("name", "total", "asks_every"),
    [
        ("arms, constraints", 4, 40),
        pytest.param("arms, constraints", 10, 1, marks=pytest.mark.slow),
        pytest.param("arms, ts, initial rounds", 14, 1, marks=pytest.mark.slow),
        pytest.param("box, ts, refits", 14, 1, marks=pytest.mark.slow),
    ],
)
def test_a_journal_cut_at_any_byte_is_a_prefix_with_the_same_next_suggestion(
    name: str, total: int, asks_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read at every byte, what is asked then near the ends of lines and here and there."""
    path = tmp_path / "run.journal"
    content, states = write_and_watch(name, path, total)
    settings = build(name).settings
    header = loop_journal.header_of(settings)
    monkeypatch.setattr(loop_journal, "header_of", lambda settings: header)  # it takes long
    first_end = len(cut(content, 0))
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        if size < first_end:  # no header, so nothing was ever asked
            if size % 50 == 0:
                with pytest.raises(JournalError):
                    build(name, journal=path)
            continue
        # a last line that lacks nothing but its line break counts
        num_whole = content[: size + 1].count(b"\n") - 2
        for torn in tmp_path.glob("*.cut-*"):
            torn.unlink()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TornTailWarning)
            is_near_end = b"\n" in content[size - 2 : size + 2]
            if not is_near_end and size % asks_every:
                journal = loop_journal.LoopJournal(path, settings, None)
                assert journal.read().to_records() == states[num_whole][0]
                journal.close()
                continue
            loop = build(name, journal=path)
        with loop:
            query = loop.ask()
            found = (loop.history.to_records()[:-1], query.x.tolist(), query.diagnostics)
            assert_same(found, states[num_whole], ON_BOXES)


@pytest.mark.usefixtures("quick_disk")
@pytest.mark.parametrize("name", by_day(SETTINGS))
def test_a_run_in_pieces_is_recorded_as_one_in_one_piece(name: str, tmp_path: Path) -> None:
    total = 80 if name.startswith("arms") else 30
    whole, pieces = tmp_path / "whole.journal", tmp_path / "pieces.journal"
    chance = random.Random(len(name))
    stops = [*sorted(chance.sample(range(1, total), 6)), total]
    records = []
    with build(name, journal=whole) as loop:
        for stop in stops:
            play(loop, stop)
            records.append(loop.history.to_records())
        seen = derived(loop)
        if "restarts" in name:
            assert loop.resets, "a reset must happen for this test to say anything"
        if "refits" in name:
            assert b'"fit"' in whole.read_bytes()
    for stop, expected in zip(stops, records, strict=True):
        with build(name, journal=pieces) as loop:
            play(loop, stop)
            assert_same(loop.history.to_records(), expected, ON_BOXES)
    with build(name, journal=pieces) as loop:
        assert_same(derived(loop), seen, ON_BOXES)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_twenty_kills_each_change_no_suggestion(name: str) -> None:
    """Over all settings these are 200 kills."""
    count = count_faults(name, num_kills=20, num_cuts=5, seed=1)
    assert count.is_clean, count
    assert (count.kills, count.cuts) == (20, 5)


FULL = JournalWriteError("the disk is full")


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
    append, calls = Journal.append, []

    def fail_at_first(journal: Journal, record: dict[str, Any]) -> int:
        calls.append(record)
        if len(calls) % 2:
            raise error
        return append(journal, record)

    with build(name, journal=tmp_path / "run.journal") as loop:
        monkeypatch.setattr(Journal, "append", fail_at_first)
        while num_steps(loop.history) < total:
            before = loop.history.to_records()
            with pytest.raises(type(error)):
                step(loop)
            assert loop.history.to_records() == before
            step(loop)
        assert_same(loop.history.to_records(), plain.history.to_records(), ON_BOXES)
        assert_same(derived(loop), derived(plain), ON_BOXES)
        assert all(one == two for one, two in zip(calls[::2], calls[1::2], strict=True))


def test_outcomes_between_a_choice_that_failed_and_its_repetition_count_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With constraints a round ends when the next is chosen; an outcome belongs to one of them."""
    name, path = "arms, constraints", tmp_path / "run.journal"
    with build(name, journal=path) as loop:
        for _ in range(4):
            loop.ask()
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "append", lambda journal, record: (_ for _ in ()).throw(FULL))
            with pytest.raises(JournalWriteError):
                loop.ask()
        for i in range(4):
            loop.tell(i, 1.0, [0.5 + i, 0.25])
        play(loop, 20)
        live = loop.ask()
        seen = derived(loop)
    again = build(name, history=History.from_records(loop.history.to_records()[:-1], 1, 0, 2))
    assert again.ask().x.tolist() == live.x.tolist()
    assert derived(again) == seen


@pytest.mark.usefixtures("quick_disk")
def test_an_interruption_between_disk_and_memory_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, total = "arms, constraints", 30
    with build(name) as plain:
        play(plain, total)
    record, calls = History.record_journaled, []

    def interrupt(history: History, entry: Any) -> None:
        if history is loop.history:
            calls.append(entry)
            if len(calls) % 3 == 0:
                raise KeyboardInterrupt
        record(history, entry)

    with build(name, journal=tmp_path / "run.journal") as loop:
        monkeypatch.setattr(History, "record_journaled", interrupt)
        num_interrupted = 0
        while (num_known := num_steps(loop.history)) < total:
            try:
                step(loop)
            except KeyboardInterrupt:
                num_interrupted += 1
            # what is on disk counts, also where the caller saw no answer
            assert num_steps(loop.history) == num_known + 1
        assert num_interrupted > 5
        assert_same(loop.history.to_records(), plain.history.to_records(), ON_BOXES)
        assert_same(derived(loop), derived(plain), ON_BOXES)


def test_a_loop_with_a_journal_is_not_copied(tmp_path: Path) -> None:
    loop = build("arms, ucb", journal=tmp_path / "run.journal")
    with loop, pytest.raises(TypeError, match=r"one writer.*loop\.history"):
        pickle.dumps(loop)
    with pytest.raises(JournalError, match="closed"):
        loop.ask()
    assert loop.history.num_queries == 0
