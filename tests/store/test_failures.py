"""Disks that are full, folders that are not there, and servers that do not answer."""

from __future__ import annotations

import builtins
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits.loop.store import (
    NewEvent,
    SQLiteStore,
    StorageError,
    StorageWriteError,
    read_store,
)
from store.processes import add, run_at, told


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    store = run_at(str(tmp_path / "run.db"))
    add(store, told(0))
    pages = store._connection.execute("pragma page_count").fetchone()[0]
    store._connection.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(
        StorageWriteError, match=r"run\.db: database or disk is full\. Nothing was written\. See"
    ):
        store.write(1, lambda news: [NewEvent("asked", 1, {"x": [0.25] * 9999})])
    assert [event.query for event in store.news()] == [0]
    add(store, told(1))
    assert [event.query for event in store.news()] == [0, 1]


class _FailsToCommit:
    """A connection to a server that dies at a bad time."""

    def __init__(self, connection: Any, error: Exception, commits: bool) -> None:
        self._connection, self._error, self._commits = connection, error, commits

    def execute(self, statement: str, *parameters: Any) -> Any:
        if statement != "commit":
            return self._connection.execute(statement, *parameters)
        if self._commits:
            self._connection.execute(statement)
        raise self._error

    def close(self) -> None:
        self._connection.close()


@pytest.mark.parametrize("commits", [False, True])
def test_an_unknown_end_is_said(storage: str, commits: bool) -> None:
    store: Any = run_at(storage)
    add(store, told(0))
    store._connection = _FailsToCommit(store._connection, store._error("lost it"), commits)
    with pytest.raises(StorageWriteError, match=r"lost it\. Read the run to see what was written"):
        store.write(1, lambda news: [told(1)])
    assert [event.query for event in store.news()] == ([0, 1] if commits else [0])


def test_a_file_that_may_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    run_at(str(path)).close()
    store = SQLiteStore(path, "ro")
    store.open(lambda header: None)
    with pytest.raises(StorageWriteError, match=r"run\.db: attempt to write a readonly database"):
        store.write(0, lambda news: [told(0)])
    assert store.news() == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing is not a folder\. Make it"):
        run_at(str(tmp_path / "missing" / "run.db"))
    with pytest.raises(FileNotFoundError, match=r"There is no run at .*run\.db"):
        read_store(tmp_path / "run.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def refuse(*arguments: Any, **options: Any) -> int:
        raise PermissionError(13, "Permission denied", arguments[0])

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match=r"Permission denied.*run\.db-turn.*folder can be writ"):
        run_at(str(tmp_path / "run.db"))


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_at(str(tmp_path / "run.db")).close()

    def refuse(*arguments: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(StorageError, match=r"run\.db: .*Permission denied.* See that"):
        read_store(tmp_path / "run.db")


def test_a_killed_beginner_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "run.db-new").write_bytes(b"half a run")
    store = run_at(str(tmp_path / "run.db"))
    add(store, told(0))
    assert not (tmp_path / "run.db-new").exists()


def test_a_busy_file_is_an_error_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = run_at(str(tmp_path / "run.db"))
    other = sqlite3.connect(tmp_path / "run.db", isolation_level=None)
    other.execute("begin immediate")
    store.news()
    store._connection.execute("pragma busy_timeout = 100")
    with pytest.raises(StorageWriteError, match=r"database is locked\. Nothing was written"):
        store.write(0, lambda news: [told(0)])
    assert store.news() == []  # a reader waits for nobody
    other.close()


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("psycopg")
    address = "postgresql://user:secret@127.0.0.1:1/runs"
    for act in (run_at, read_store):
        with pytest.raises(StorageError, match=r"(?s)user@127.0.0.1:1/runs#run: .*See that the s"):
            act(address)


@pytest.mark.parametrize("address", ["sqlite:///run.db", "mysql://host/runs"])
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match=rf"'{address}' is neither .* such as storage='run\.db'"):
        run_at(address)


def test_a_server_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    original = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'")
        return original(name, *arguments, **options)

    monkeypatch.delitem(sys.modules, "botorch_bandits.loop.store", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r'pip install "botorch_bandits\[postgres\]"'):
        run_at("postgresql://host/runs")


def test_a_lost_connection_is_made_again(server: Any) -> None:
    store: Any = run_at(server.new_run())
    add(store, told(0))
    pid = store._connection.info.backend_pid
    other = run_at(server.new_run())
    other.news()
    other._connection.execute("select pg_terminate_backend(%s)", (pid,))
    with pytest.raises(StorageWriteError, match="Nothing was written"):
        store.write(1, lambda news: [told(1)])
    assert [event.query for event in store.write(1, lambda news: [told(1)])] == [1]


def test_defaults_of_the_server_do_not_matter(server: Any) -> None:
    import threading

    address = server.new_run()
    url, _, name = address.partition("#")
    options = "?options=-c%20default_transaction_isolation%3Dserializable%20-c%20" + (
        "default_transaction_read_only%3Don"
    )
    strict = f"{url.replace('?', options + '&')}#{name}"
    stores = [run_at(strict) for _ in range(4)]
    stores[0]._connection = None

    def work(store: Any) -> None:
        for i in range(10):
            store.write(0, lambda news, i=i: [told(i)])

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stores[0].news()) == 40


def test_the_server_ends_transactions_of_stopped_processes(server: Any) -> None:
    store: Any = run_at(server.new_run())
    shown = store._connection.execute("show idle_in_transaction_session_timeout").fetchone()
    assert shown == ("1min",)
