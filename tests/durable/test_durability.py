"""``durability=`` of a loop: what is on disk when a call returns."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from records import ON_BOXES, assert_same

from benchmarks.fault_cases import build, num_steps, play
from benchmarks.power_cuts import PowerCuts, cut_power
from botorch_bandits import BanditLoop, Box, RandomSearch
from botorch_bandits.journal import Journal, TornTailWarning

pytestmark = pytest.mark.filterwarnings("ignore::botorch_bandits.journal.TornTailWarning")


def opened(path: Path, **options: Any) -> BanditLoop:
    return BanditLoop.open(path, Box([[0.0], [1.0]]), None, RandomSearch(), **options)


@pytest.mark.parametrize(
    ("durability", "expected"), [("record", (1, 1)), ("round", (0, 1)), ("batch", (0, 0))]
)
def test_what_is_synchronized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str, expected: tuple[int, int]
) -> None:
    path, calls, real = tmp_path / "run.journal", [], os.fsync

    def counted(descriptor: int) -> None:
        calls.append(descriptor)
        real(descriptor)

    with opened(path, durability=durability) as loop:
        monkeypatch.setattr(os, "fsync", counted)
        query = loop.ask()
        asked = len(calls)
        loop.tell(query.id, 1.0)
        assert (asked, len(calls) - asked) == expected
        loop.sync()
        assert len(calls) == max(sum(expected), 1)
        loop.ask()
        calls.clear()
    assert len(calls) == (durability != "record")  # closing puts the rest on disk
    assert Journal.read(path).num_records == 3
    assert (Journal.read(path).header.get("durability") == "batch") == (durability != "record")
    with opened(path) as loop:
        assert loop.history.num_queries == 2
    with opened(path, durability="record") as loop:
        loop.ask()


def test_what_does_not_go_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "run.journal").close()
    with pytest.raises(ValueError, match="durability= is to group"):
        opened(tmp_path / "run.journal", durability="round")
    with pytest.raises(ValueError, match="durability"):
        opened(tmp_path / "other.journal", durability="never")
    assert not (tmp_path / "other.journal").exists()
    with pytest.raises(ValueError, match="durability is 'round'"):
        BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch(), durability="round")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize("durability", ["record", "round", "batch"])
def test_a_power_cut_takes_no_more_than_was_allowed(tmp_path: Path, durability: str) -> None:
    """And the loop goes on with the suggestions that it would have made."""

    def program(folder: Path, cuts: PowerCuts) -> None:
        with opened(folder / "run.journal", durability=durability, clock=lambda: 0.0) as loop:
            for i in range(4):
                query = loop.ask()
                if durability == "record":
                    cuts.promise((i + 1, i))
                loop.tell(query.id, float(i))
                if durability == "batch" and i == 2:
                    loop.sync()
                if durability != "batch" or i == 2:
                    cuts.promise((i + 1, i + 1))
        cuts.promise((4, 4))

    whole = BanditLoop(Box([[0.0], [1.0]]), None, RandomSearch(), clock=lambda: 0.0)
    points = [whole.ask().x.tolist() for _ in range(5)]

    def check(folder: Path, promised: list[Any]) -> None:
        if not promised:
            return
        with opened(folder / "run.journal", clock=lambda: 0.0) as loop:
            history = loop.history
            assert history.num_queries >= promised[-1][0]
            assert history.num_arrived >= promised[-1][1]
            assert [outcome.reward for outcome in history.outcomes] == [
                float(i) for i in range(history.num_arrived)
            ]
            loop.ask()
            assert [q.x.tolist() for q in history.queries] == points[: history.num_queries]

    assert cut_power(tmp_path, program, check) > 20


@pytest.mark.parametrize("durability", ["round", "batch"])
def test_a_batch_that_is_damaged_in_the_middle_is_cut_off_there(
    tmp_path: Path, durability: str
) -> None:
    path = tmp_path / "run.journal"
    with build("arms, ucb", journal=path, durability=durability) as loop:
        play(loop, 30)
        known = loop.history.to_records()
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    hole = len(b"".join(lines[:20]))  # a page that did not reach the disk, with pages behind it
    path.write_bytes(content[:hole] + bytes(200) + content[hole + 200 :])
    with pytest.warns(TornTailWarning):
        loop = build("arms, ucb", journal=path)
    with loop:
        assert num_steps(loop.history) == 18
        play(loop, 30)
        assert_same(loop.history.to_records(), known, ON_BOXES)
    (kept,) = tmp_path.glob("*.cut-*")
    assert kept.read_bytes() == bytes(200) + content[hole + 200 :]
