"""Reading while others write, and copies of a run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from botorch_bandits.loop.store import open_store, read_store
from store.processes import add, run_at, told


def _write(say: Callable[[Any], None], storage: str) -> None:
    store = run_at(storage)
    for i in range(60):
        add(store, told(i), told(i))
        if i == 5:
            say("going on")
    store.close()


def test_readers_see_whole_transactions(storage: str, start: Any) -> None:
    child = start(_write, storage)
    child.hear()
    seen = 0
    while seen < 120:
        header, events = read_store(storage)
        assert header == {"seed": 0}
        assert [event.query for event in events[::2]] == [event.query for event in events[1::2]]
        assert len(events) >= seen
        seen = len(events)
    child.end()


def test_reading_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = run_at(str(path))
    add(store, told(0))
    open_log = Path(f"{path}-wal").read_bytes()
    assert len(open_log) > 0
    before = path.read_bytes()
    assert len(read_store(path)[1]) == 1
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == (before, open_log)
    store.close()
    before = path.read_bytes()
    assert len(read_store(path)[1]) == 1
    assert path.read_bytes() == before


def test_copies_of_a_live_run_go_on(tmp_path: Path) -> None:
    store = run_at(str(tmp_path / "run.db"))
    add(store, told(0), told(1))
    live = sqlite3.connect(tmp_path / "run.db")
    live.execute("vacuum into ?", (str(tmp_path / "vacuumed.db"),))
    with sqlite3.connect(tmp_path / "backup.db") as backup:
        live.backup(backup)
    backup.close()
    for name in ("vacuumed.db", "backup.db"):
        assert len(read_store(tmp_path / name)[1]) == 2
        copy = open_store(tmp_path / name, {}, lambda header: None)
        add(copy, told(2))
        assert Path(f"{tmp_path / name}-wal").exists()
        copy.close()
        assert len(read_store(tmp_path / name)[1]) == 3
    assert len(store.news()) == 2


def test_a_run_in_the_folder_of_the_time(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    store = run_at("run #1 50%?.db")
    add(store, told(0))
    store.close()
    monkeypatch.chdir("/")
    assert len(store.news()) == 1
    assert store.location == str(tmp_path / "run #1 50%?.db")
    store.close()
    assert {each.name for each in tmp_path.iterdir()} == {
        "run #1 50%?.db",
        "run #1 50%?.db-turn",
    }
