"""What is not a run, or differs from what was written, is an error, and nothing is written."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits.loop.store import (
    Event,
    NewEvent,
    StorageError,
    open_store,
    read_store,
)
from store.processes import add, run_at, told

HEADER = {"seed": 0, "domain": "Arms of 12 points " * 20}


def _written(path: Path) -> list[Event]:
    store = run_at(str(path), HEADER)
    add(store, *(NewEvent("asked", i, {"x": [i / 7, 1.0]}, at=float(i)) for i in range(120)))
    events = store.news()
    store.close()  # which also merges the log
    assert sorted(each.name for each in path.parent.iterdir()) == ["run.db", "run.db-turn"]
    return events


def _opened_and_read(path: Path) -> tuple[Any, list[Event]]:
    store = open_store(str(path), {}, lambda header: None)
    try:
        return store.header, store.news()
    finally:
        store.close()


@pytest.mark.parametrize("flips", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, flips: int) -> None:
    path, rng, refused = tmp_path / "run.db", random.Random(flips), 0
    events = _written(path)
    good = path.read_bytes()
    for _ in range(flips):
        bad = bytearray(good)
        place = rng.randrange(len(bad))
        bad[place] ^= 1 << rng.randrange(8)
        for read in (_opened_and_read, read_store):
            path.write_bytes(bad)
            said, found = f"{path} row 0", None
            try:
                found = read(path)
            except StorageError as error:
                said = str(error)
            if found is None:
                refused += 1
                assert path.read_bytes() == bad  # nothing was written
            else:
                assert found == (HEADER, events), place
            assert str(path) in said
            assert re.search(r"row \d+|not a run|format|schema|malformed", said), said
            for left in ("-wal", "-shm"):
                Path(f"{path}{left}").unlink(missing_ok=True)
    assert refused > flips / 2  # the others met unused space


def test_a_cut_file_is_an_error(tmp_path: Path) -> None:
    path, rng = tmp_path / "run.db", random.Random(0)
    _written(path)
    good = path.read_bytes()
    for size in [0, 1, 50, 100, 4096, *(rng.randrange(len(good)) for _ in range(20))]:
        for read in (_opened_and_read, read_store):
            path.write_bytes(good[:size])
            with pytest.raises(StorageError, match=re.escape(str(path))):
                read(path)
            assert path.read_bytes() == good[:size]
            for left in ("-wal", "-shm"):
                Path(f"{path}{left}").unlink(missing_ok=True)


def _changed(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statements", "row"),
    [
        (["delete from event where seq = 120"], 119),  # the last one
        (["delete from event where seq > 100"], 100),
        (["delete from event where seq = 60"], 60),
        (["update event set body = replace(body, '1.0', '1.5') where seq = 7"], 7),
        (["update event set at = at + 1 where seq = 7"], 7),
        (["update event set by = 'me' where seq = 120"], 120),
        (["update event set query = 3 where seq = 1"], 1),
        (["update event set body = '{}' where seq = 0"], 0),
        (["delete from event where seq = 0"], 0),
        (["delete from head"], 0),
        (["update head set seq = 119"], 120),
        (
            [
                "update event set seq = -1 where seq = 5",
                "update event set seq = 5 where seq = 6",
                "update event set seq = 6 where seq = -1",
            ],
            5,
        ),
        (
            [
                "insert into event select 121, kind, query, at, by, body, checksum from event "
                "where seq = 120"
            ],
            121,
        ),
    ],
)
def test_changed_rows_are_named(tmp_path: Path, statements: list[str], row: int) -> None:
    path = tmp_path / "run.db"
    _written(path)
    _changed(path, *statements)
    before = path.read_bytes()
    for read in (_opened_and_read, read_store):
        with pytest.raises(StorageError, match=rf"run\.db .* row {row} .* backup"):
            read(path)
    assert path.read_bytes() == before


def test_lost_rows_are_noticed_while_a_run_is_open(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = run_at(str(path))
    add(store, told(0), told(1))
    store.close()
    shutil.copy(path, tmp_path / "old")
    add(store, told(2), told(3))
    store.close()
    shutil.copy(tmp_path / "old", path)  # somebody restores a backup
    for act in (lambda: store.news(4), lambda: store.write(4, lambda news: [told(4)])):
        with pytest.raises(StorageError, match="rows up to 2 were written"):
            act()
    assert len(store.news()) == 2


def _link(path: Path) -> None:
    run_at(str(path.with_name("other.db"))).close()
    path.symlink_to(path.with_name("other.db"))


def _foreign(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table event (seq integer)")
    connection.close()


def _newer(path: Path) -> None:
    run_at(str(path)).close()
    _changed(path, "update head set format = 2")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_link, "not a run of botorch_bandits: it is a symbolic link, so pass the path"),
        (Path.mkdir, "not a run of botorch_bandits: it is not a file"),
        (os.mkfifo, "not a run of botorch_bandits: it is not a file"),
        (lambda path: path.write_text("Some notes of a user.\n" * 9), "begins with b'Some notes"),
        (lambda path: path.write_bytes(b""), "begins with b''"),
        (_foreign, "begins with b'SQLite format 3.*of another program"),
        (_newer, "has format 2, but this version of botorch_bandits only knows format 1. Use"),
    ],
)
def test_what_is_not_a_run_is_refused(
    tmp_path: Path, make: Callable[[Path], Any], message: str
) -> None:
    path = tmp_path / "run.db"
    make(path)
    before = {each: each.read_bytes() for each in tmp_path.iterdir() if each.is_file()}
    for read in (_opened_and_read, read_store):
        with pytest.raises(StorageError, match=message) as caught:
            read(path)
        assert str(path) in str(caught.value)
        left = {f"{path}-wal", f"{path}-shm"}  # of SQLite, which removes them the next time
        after = {
            each: each.read_bytes()
            for each in tmp_path.iterdir()
            if each.is_file() and str(each) not in left
        }
        assert after == before


def test_other_settings_change_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    _written(path)
    for copy in ("as it is", "without a log"):
        if copy == "without a log":
            _changed(path, "pragma journal_mode = delete")
        before = path.read_bytes()

        def check(header: Any) -> None:
            raise ValueError("other settings")

        with pytest.raises(ValueError, match="other settings"):
            open_store(path, {"seed": 1}, check)
        assert path.read_bytes() == before


def test_rows_on_a_server_are_checked(server: Any) -> None:
    import psycopg

    address = server.new_run()
    store = run_at(address)
    add(store, told(0), told(1), told(2))
    url, _, name = address.partition("#")
    with psycopg.connect(url) as connection:
        connection.execute(f'update "{name}".event set at = at + 1 where seq = 2')
    with pytest.raises(StorageError, match="at row 2 of the table event: its checksum"):
        run_at(address).news()
    with psycopg.connect(url) as connection:
        connection.execute(f'update "{name}".event set at = at - 1 where seq = 2')
        connection.execute(f'delete from "{name}".event where seq = 3')
    with pytest.raises(StorageError, match=r"at row 2 .* rows up to 3 were written"):
        run_at(address).news()
