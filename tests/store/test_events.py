"""What is written comes back, and in order."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from typing import Any

import pandas as pd
import pytest

from botorch_bandits.loop.store import NewEvent, StorageError, open_store, read_store
from store.processes import add, run_at, told

BODY = {
    "x": [0.1, 1e-300, -0.0, 1.7976931348623157e308, 5e-324, 0.1 + 0.2],
    "count": 2**53 + 1,
    "text": 'quotes " and \\ and \n, ünïcode 🙂, \x00 and \x7f',
    "nested": {"a": [None, True, False, {"b": []}], "": {}},
}


def test_events_come_back(storage: str) -> None:
    store, before = run_at(storage, {"seed": 3}), time.time()
    assert store.header == {"seed": 3}
    assert store.news() == []
    first = store.write(0, lambda news: [NewEvent("asked", 0, BODY), told(0)])
    second = store.write(2, lambda news: [NewEvent("failed", 7, {}, at=12)])
    assert store.news() == first + second
    assert store.news(2) == second
    assert store.news(3) == []
    assert [event.seq for event in store.news()] == [1, 2, 3]
    event = first[0]
    assert (event.kind, event.query, event.body) == ("asked", 0, BODY)
    assert before - 5 < event.at < time.time() + 5
    assert event.by.startswith(f"{os.getpid()}@")
    assert second[0].at == 12.0
    store.close()
    assert run_at(storage).news() == first + second
    assert read_store(storage) == ({"seed": 3}, first + second)
    assert str([e.body for e in store.news()]) == str([BODY, {"reward": 0.5}, {}])  # -0.0, too
    assert before - 5 < store.now < time.time() + 5


def test_compose_sees_what_others_wrote(storage: str) -> None:
    store, seen = run_at(storage), []
    add(store, told(0), told(1))

    def compose(news: list[Any]) -> list[NewEvent]:
        seen.extend(news)
        return [told(2)]

    written = store.write(1, compose)
    assert [event.query for event in seen] == [1]
    assert [event.query for event in written] == [1, 2]
    assert store.write(3, lambda news: []) == []
    assert [event.query for event in store.write(0, lambda news: [])] == [0, 1, 2]
    assert len(store.news()) == 3


def test_errors_of_compose_leave_nothing(storage: str) -> None:
    store = run_at(storage)
    add(store, told(0))

    def compose(news: list[Any]) -> list[NewEvent]:
        raise LookupError("query 5 was told before")

    with pytest.raises(LookupError, match="query 5"):
        store.write(1, compose)
    assert len(store.news()) == 1
    add(store, told(1))
    assert len(store.news()) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reward", float("nan")),
        ("constraints", [1.0, float("inf")]),
        ("parameters", {1: 2.0}),
        ("reason", "lone \ud800"),
        ("x", (1.0, 2.0)),
        ("x", b"bytes"),
        ("x", object()),
    ],
)
def test_other_values_are_refused(tmp_path: Any, name: str, value: object) -> None:
    store = run_at(str(tmp_path / "run.db"))
    with pytest.raises(ValueError, match=f"^{name}: this cannot be recorded .* plain values"):
        store.write(0, lambda news: [told(0), NewEvent("told", 0, {"count": 1, name: value})])
    assert store.news() == []
    with pytest.raises(ValueError, match=f"^{name}: "):
        run_at(str(tmp_path / "other.db"), {"seed": 0, name: value})
    assert not (tmp_path / "other.db").exists()


def test_nesting_without_end_is_refused(tmp_path: Any) -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    store = run_at(str(tmp_path / "run.db"))
    for value in (endless, deep):
        with pytest.raises(ValueError, match=r"^x: "):
            store.write(0, lambda news, value=value: [NewEvent("told", 0, {"x": value})])


def test_settings_are_checked_before_anything_is_written(storage: str) -> None:
    run_at(storage, {"seed": 1}).close()
    found = []

    def check(header: Any) -> None:
        found.append(header)
        raise ValueError("the seed was 1, and is 2")

    with pytest.raises(ValueError, match="the seed was 1"):
        open_store(storage, {"seed": 2}, check)
    assert found == [{"seed": 1}]
    assert read_store(storage) == ({"seed": 1}, [])


def test_threads_write_on_one_store(storage: str) -> None:
    store = run_at(storage)

    def work(number: int) -> None:
        for i in range(10):
            with store.turn(timeout=60.0):
                assert len(inside) == 0
                inside.append(number)
                add(store, told(100 * number + i))
                inside.pop()
            store.write(0, lambda news, i=i: [told(1000 + 100 * number + i)])

    inside: list[int] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {100 * n + i for n in range(8) for i in range(10)}
    events = store.news()
    assert [event.seq for event in events] == list(range(1, 161))
    assert sorted(event.query for event in events) == sorted(
        expected | {1000 + q for q in expected}
    )


def test_tools_for_databases_read_a_run(tmp_path: Any) -> None:
    store = run_at(str(tmp_path / "run.db"))
    add(store, NewEvent("asked", 0, {"x": [0.5]}), told(0, 0.25))
    connection = sqlite3.connect(tmp_path / "run.db")
    table = pd.read_sql("select * from event where seq > 0", connection, index_col="seq")
    assert list(table.columns) == ["kind", "query", "at", "by", "body", "checksum"]
    assert list(table.kind) == ["asked", "told"]
    rewards = "select json_extract(body, '$.reward') from event where kind = 'told'"
    assert connection.execute(rewards).fetchall() == [(0.25,)]
    assert connection.execute("select body from event where seq = 0").fetchone() == ('{"seed":0}',)
    own: Any = store
    assert own._connection.execute("pragma synchronous").fetchone() == (2,)  # FULL
    assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
    assert connection.execute("pragma integrity_check").fetchone() == ("ok",)


def test_runs_on_a_server_are_apart(server: Any) -> None:
    address = server.new_run()
    first, second = run_at(address + 'a"; drop'), run_at(address + "b")
    add(first, told(0), told(1))
    with first.turn(), second.turn(timeout=1.0):
        add(second, told(5))
    assert [event.query for event in first.news()] == [0, 1]
    assert [event.query for event in second.news()] == [5]
    assert first.location.endswith('a"; drop')
    with pytest.raises(ValueError, match="at most 63 bytes"):
        run_at(address + 64 * "n")
    with pytest.raises(StorageError, match=r'(?s)relation "head" does not exist.*name of the run'):
        read_store(address + "c")


def test_passwords_are_not_shown(server: Any) -> None:
    address = server.new_run().replace("postgres:@", "postgres:secret@")
    store = run_at(address)
    assert "secret" not in store.location
    assert "postgres@" in store.location
