"""Many processes on one run, some of which are killed, and a server that is killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from botorch_bandits.loop.store import StorageError, read_store
from store.processes import Child, add, run_at, told


def _write_until_killed(say: Callable[[Any], None], storage: str, number: int) -> None:
    store = run_at(storage)
    say("up")
    for i in range(10**6):
        try:
            with store.turn():
                add(store, told(number, i), told(number, i))
        except StorageError as error:  # of the server
            say(str(error))
            time.sleep(0.05)
        else:
            say(i)


def _check_nothing_is_lost(storage: str, acknowledged: dict[int, list[int]]) -> None:
    _, events = read_store(storage)
    for number, said in acknowledged.items():
        pairs = [int(event.body["reward"]) for event in events if event.query == number]
        assert pairs[::2] == pairs[1::2]  # the two events of a transaction are there, or neither
        assert len(pairs[::2]) == len(set(pairs))  # nothing is there twice
        assert set(said) <= set(pairs)
        assert len(pairs) <= 2 * len(said) + 2  # the last one may have been written unheard


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        ("sqlite", 10),
        ("postgresql", 5),
        pytest.param("sqlite", 200, marks=pytest.mark.slow),
        pytest.param("postgresql", 50, marks=pytest.mark.slow),
    ],
)
def test_killed_writers_lose_nothing(
    kind: str, kills: int, tmp_path: Any, request: Any, start: Any
) -> None:
    on_server = kind == "postgresql"
    storage = request.getfixturevalue("server").new_run() if on_server else str(tmp_path / "run.db")
    rng, acknowledged = random.Random(kills), {}
    running: list[tuple[int, Child]] = []
    for number in range(kills + 2):
        running.append((number, start(_write_until_killed, storage, number)))
        if len(running) < 3:
            continue
        killed, child = running.pop(rng.randrange(3))
        if rng.random() < 0.8:  # sometimes it is killed while it begins or opens the run
            child.hear()
        time.sleep(rng.uniform(0.0, 0.05))
        child.kill()
        acknowledged[killed] = [said for said in child.hear_all() if said != "up"]
    for number, child in running:
        child.kill()
        acknowledged[number] = [said for said in child.hear_all() if said != "up"]
    assert sum(map(len, acknowledged.values())) > kills / 4
    _check_nothing_is_lost(storage, acknowledged)
    with run_at(storage).turn(timeout=10.0):  # the dead have no turns
        pass


@pytest.mark.parametrize("kills", [1, pytest.param(5, marks=pytest.mark.slow)])
def test_a_killed_server_loses_nothing(server: Any, kills: int, start: Any) -> None:
    storage, acknowledged = server.new_run(), {}
    children = [start(_write_until_killed, storage, number) for number in range(3)]
    for child in children:
        child.hear()
    for _ in range(kills):
        time.sleep(0.3)
        server.kill()
    time.sleep(0.5)
    failures = 0
    for number, child in enumerate(children):
        child.kill()
        said = child.hear_all()
        acknowledged[number] = [each for each in said if isinstance(each, int)]
        failed = [each for each in said if isinstance(each, str)]
        failures += len(failed)
        assert all("See that the server is running" in text for text in failed)
    assert failures >= kills
    _, events = read_store(storage)
    for number, said in acknowledged.items():
        rewards = [int(event.body["reward"]) for event in events if event.query == number]
        assert set(said) <= set(rewards)
        assert rewards[::2] == rewards[1::2]
        assert len(rewards[::2]) == len(set(rewards))
