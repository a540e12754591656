"""Several loops on one run: in one process, in many, and in some that are killed.

Two loops on one storage are to each other as two processes are, so most tests have just two.
"""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.acquisition import UpperConfidenceBound
from gpytorch.kernels import MaternKernel
from records import ON_BOXES, assert_same
from store.conftest import server  # noqa: F401 - a fixture

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    DifferentSettingsError,
    EvidenceRestart,
    GPUpperConfidenceBound,
    run,
)
from botorch_bandits.loop import TurnTimeout
from botorch_bandits.loop.store import NewEvent, open_store, read_store
from botorch_bandits.running import may_be_running

pytestmark = pytest.mark.usefixtures("quick_disk")

ARMS = Arms(torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1))
MODEL = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3)
UCB = GPUpperConfidenceBound.with_options(width=2.0)

DURING: list[Callable[[], Any]] = []
"""What happens while a point is chosen, once each."""


SEEN: list[Any] = []
"""The pending points of the last choice."""


def acquisition(model: Any, X_pending: Any, best: Any) -> Any:
    SEEN[:] = [] if X_pending is None else X_pending.tolist()
    while DURING:
        DURING.pop(0)()
    return UpperConfidenceBound(model, beta=4.0)


EPOCHS = {"constraints": AdditiveEpochs(1, 2, step_size=1.0), "num_initial": 1}
PLAYED: dict[str, dict[str, Any]] = {
    "rewards": {},
    "costs": {"maximize": False},
    "epochs": EPOCHS,
    "costs in epochs": {**EPOCHS, "maximize": False},
    "evidence": {"restart": EvidenceRestart(), "num_initial": 1},
}


def slow(storage: Any, name: str = "rewards") -> BanditLoop:
    """Return a loop in whose choices something else may happen."""
    return BanditLoop(ARMS, MODEL, acquisition, storage=storage, **PLAYED[name])


def fast(storage: Any = None, **more: Any) -> BanditLoop:
    return BanditLoop(ARMS, MODEL, UCB, storage=storage, seed=3, **more)


def value(x: torch.Tensor) -> float:
    return -float((x - 0.3) ** 2)


def tell(loop: BanditLoop, query_id: int) -> None:
    outcome = value(loop.history.query(query_id).x)
    loop.tell(query_id, outcome, [0.4] if loop.history.num_constraints else None)


def seen_by(loop: BanditLoop) -> list[Any]:
    """Return what is derived from the history."""
    return [loop.history.to_records(), loop.multipliers, loop.resets, loop.change_tests]


# --- what is told while another process chooses -------------------------------------------------


@pytest.mark.parametrize("looks", [False, True], ids=["", "looked at"])
@pytest.mark.parametrize("event", ["told", "failed", "retracted", "both"])
@pytest.mark.parametrize("name", PLAYED)
def test_what_is_told_during_a_choice_counts_after_it(
    name: str, event: str, looks: bool, tmp_path: Path
) -> None:
    first, second = (slow(tmp_path / "run.db", name) for _ in range(2))
    for _ in range(4):
        tell(first, first.ask().id)
    first.ask(), first.ask()

    def meanwhile() -> None:
        if event in ("told", "both"):
            tell(second, 4)
            assert second.history.outcome(4).arrived_round == 6  # as far as it knows
        if event == "failed":
            second.fail(4, "no power")
        if event in ("retracted", "both"):
            second.retract(1, "another unit")
        if event == "both":
            second.retract(4, "another unit")
        if looks:  # what is derived has the events in another order for a while
            second.best(), second.guarantee(), seen_by(second)

    DURING.append(meanwhile)
    query = first.ask()
    kinds = [e.kind for e in read_store(tmp_path / "run.db")[1]][-3:]
    assert kinds[-1] == "asked"
    assert kinds[-2] != "asked"
    for ended in second.history.events:
        if ended.query_id == 4:
            assert ended.arrived_round == 7
    assert query.id == 6
    third = slow(tmp_path / "run.db", name)
    assert_same(seen_by(second), seen_by(first), ON_BOXES)
    assert_same(seen_by(third), seen_by(first), ON_BOXES)
    tell(second, 5)
    query = third.ask()
    tell(first, query.id)
    assert_same(seen_by(second), seen_by(third), ON_BOXES)
    check_replays(tmp_path / "run.db", lambda storage: slow(storage, name), tmp_path)


def test_an_ask_whose_turn_was_lost_chooses_again(tmp_path: Path) -> None:
    first, second = (slow(tmp_path / "run.db") for _ in range(2))
    for _ in range(2):
        tell(first, first.ask().id)
    second._log._store.turn = lambda timeout=None: nullcontext()  # type: ignore[method-assign]
    asked: list[Any] = []
    DURING.append(lambda: asked.append(second.ask()))
    query = first.ask()
    assert (asked[0].id, query.id) == (2, 3)
    assert [asked[0].x.tolist()] == SEEN  # the other one is pending
    DURING.append(lambda: second.attach([0.0], 0.5))
    assert first.ask().id == 5
    assert first.history.to_records() == second.history.to_records()
    check_replays(tmp_path / "run.db", slow, tmp_path)


# --- the outcome of a query is told once, by anybody --------------------------------------------


def test_an_outcome_that_is_told_twice_counts_once_and_another_one_is_refused(
    tmp_path: Path,
) -> None:
    first, second = (fast(tmp_path / "run.db") for _ in range(2))
    query = first.ask()
    assert [pending.id for pending in second.pending] == [query.id]
    assert second.pending[0].asked_by == f"{os.getpid()}@{os.uname().nodename}"
    outcome = second.tell(query.id, 0.5)
    assert first.tell(query.id, 0.5) == outcome
    for loop in (first, second):
        with pytest.raises(ValueError, match=r"has the reward 0\.5, and was now told 0\.75"):
            loop.tell(query.id, 0.75)
        with pytest.raises(ValueError, match="is already told"):
            loop.fail(query.id)
    other = second.ask()
    failure = second.fail(other.id, "no power")
    assert first.fail(other.id, "no time") == failure
    with pytest.raises(ValueError, match=r"failed \(no power\)"):
        first.tell(other.id, 0.5)
    first.retract(query.id, "another unit")
    with pytest.raises(ValueError, match=r"is retracted.*another unit"):
        second.retract(query.id, "wrong")
    assert [e.kind for e in read_store(tmp_path / "run.db")[1]] == [
        *("asked", "told", "asked", "failed", "retracted")
    ]


def test_who_tells_at_the_same_moment_gets_what_the_other_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is first between reading and writing."""
    first, second = (fast(tmp_path / "run.db") for _ in range(2))
    for reward in (0.5, 0.75):
        query = first.ask()
        write = type(first._log._store).write

        def late(store: Any, *given: Any, at: int = query.id, write: Any = write) -> Any:
            monkeypatch.undo()
            second.tell(at, 0.5)
            return write(store, *given)

        monkeypatch.setattr(type(first._log._store), "write", late)
        if reward == 0.5:
            assert first.tell(query.id, reward).reward == 0.5
        else:
            with pytest.raises(ValueError, match=r"already has the reward 0\.5"):
                first.tell(query.id, reward)
    assert first.history.num_arrived == 2


def forked(function: Callable[..., Any], *arguments: Any) -> Any:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process


def ask_and_die(storage: Any) -> None:
    torch.set_num_threads(1)  # threads do not survive a fork
    fast(storage).ask()
    os._exit(9)


def test_the_query_of_a_process_that_died_is_told_or_evaluated_by_another(tmp_path: Path) -> None:
    storage = tmp_path / "run.db"
    for _ in range(2):
        forked(ask_and_die, storage).join()
    with fast(storage) as loop:
        asked = loop.pending
        assert len({query.asked_by for query in asked}) == 2
        loop.tell(asked[0].id, value(asked[0].x))
        own = loop.ask()
        run(loop, lambda x: value(x), 2, progress=False)  # first what was left behind
        assert [outcome.query_id for outcome in loop.history.outcomes] == [0, 1, own.id, 3, 4]


def test_queries_of_a_process_that_may_be_running_are_left_to_it(tmp_path: Path) -> None:
    loop, store = fast(tmp_path / "run.db"), open_store(tmp_path / "run.db", {}, lambda _: None)
    body = {"x": [0.0], "origin": "initial", "seen": 0}
    store.write(0, lambda news: [NewEvent("asked", 0, body)])
    run(loop, lambda x: value(x), 1, progress=False)
    assert loop.history.num_pending == 0  # it was this process that asked
    by = f"1@{os.uname().nodename}", "4242@elsewhere"
    for query, name in zip((loop.ask(), loop.ask()), by, strict=True):
        object.__setattr__(query, "asked_by", name)
    run(loop, lambda x: value(x), 1, progress=False)
    assert [query.id for query in loop.pending] == [2, 3]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="states of processes are found in /proc")
def test_a_process_that_ended_is_not_running_before_somebody_has_waited_for_it() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert not may_be_running(f"{child}@{os.uname().nodename}")
    os.waitpid(child, 0)
    assert not may_be_running(f"{child}@{os.uname().nodename}")


# --- turns and settings ---------------------------------------------------------------------------


def test_an_ask_does_not_wait_longer_than_it_may(tmp_path: Path) -> None:
    first, second = (fast(tmp_path / "run.db") for _ in range(2))
    query = first.ask()
    with first._log.turn():
        with pytest.raises(TurnTimeout, match=f"{os.getpid()}@"):
            second.ask(timeout=0.05)
        thread = threading.Thread(target=second.tell, args=(query.id, 0.5))
        thread.start()  # a tell does not wait
        thread.join(30.0)
        assert not thread.is_alive()
    assert second.ask(timeout=10.0).id == 1


def test_other_settings_are_refused_while_the_run_goes_on(tmp_path: Path) -> None:
    with fast(tmp_path / "run.db") as loop:
        loop.ask()
        with pytest.raises(DifferentSettingsError, match="horizon: was None, is 5"):
            fast(tmp_path / "run.db", horizon=5)
        loop.ask()
    assert [e.kind for e in read_store(tmp_path / "run.db")[1]] == ["asked", "asked"]


def test_the_run_is_looked_at_as_of_its_latest_event(tmp_path: Path) -> None:
    with fast(tmp_path / "run.db") as loop:
        query = loop.ask(at=10.0)
        loop.tell(query.id, 1.0, at=30.0)
        loop.ask(at=20.0)
        assert loop.history.latest_at == 30.0
        outcome = loop.history.outcome(query.id)
        assert (query.asked_at, outcome.arrived_at) == (10.0, 30.0)
    times = [event.at for event in read_store(tmp_path / "run.db")[1]]
    assert times == [10.0, 30.0, 20.0]


# --- many processes -------------------------------------------------------------------------------


def work(storage: Any, number: int, rounds: int, is_box: bool) -> None:
    torch.set_num_threads(1)
    loop = on_box(storage) if is_box else fast(storage)
    for i in range(rounds):
        query = loop.ask()
        if (number + i) % 5 == 0:
            loop.fail(query.id, f"process {number}")
        else:
            loop.tell(query.id, value(query.x))
            loop.tell(query.id, value(query.x))
    loop.close()


def on_box(storage: Any = None) -> BanditLoop:
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3, refit_every=5)
    box = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
    return BanditLoop(box, model, UCB, storage=storage, seed=3, num_initial=2)


def check_replays(
    storage: Any, build: Callable[[Any], BanditLoop], folder: Path, most: int = 20
) -> None:
    """Check that the log up to what each query had seen gives the query again."""
    header, events = read_store(storage)
    asked = [e for e in events if e.kind == "asked" and e.body["origin"] != "attached"]
    for event in asked[:: max(len(asked) // most, 1)]:
        known = [NewEvent(e.kind, e.query, e.body, e.at) for e in events[: event.body["seen"]]]
        path = folder / f"replayed-{event.seq}.db"
        store = open_store(path, header, lambda _: None)
        store.write(0, lambda news, known=known: known)  # type: ignore[misc]
        store.close()
        with build(path) as loop:
            query = loop.ask(at=event.at)
            assert query.id == event.query
            # near a flat maximum a search ends within more than its own digits
            assert query.x.tolist() == pytest.approx(event.body["x"], abs=10.0 * ON_BOXES)
            told = event.body.get("diagnostics", {}).get("acquisition_value", math.nan)
            now = query.diagnostics.get("acquisition_value", math.nan)
            assert now == pytest.approx(told, abs=ON_BOXES, nan_ok=True)
            assert query.origin == event.body["origin"]


def check_run(storage: Any, build: Callable[[Any], BanditLoop], total: int, folder: Path) -> None:
    """Check a run that several processes have played to its end."""
    _, events = read_store(storage)
    assert [event.seq for event in events] == list(range(1, 2 * total + 1))
    asked = [event for event in events if event.kind == "asked"]
    assert [event.query for event in asked] == list(range(total))
    ended = [event.query for event in events if event.kind != "asked"]
    assert sorted(ended) == list(range(total))
    for before, event in itertools.pairwise(asked):
        assert before.seq <= event.body["seen"] < event.seq
    assert len({event.by for event in events}) > 1
    with build(storage) as one, build(storage) as other:
        assert one.history.to_records() == other.history.to_records()
        assert one.history.num_pending == 0
    check_replays(storage, build, folder)


@pytest.mark.parametrize(
    ("kind", "num_processes", "rounds", "is_box"),
    [
        ("sqlite", 2, 10, False),
        ("sqlite", 2, 6, True),
        ("sqlite", 8, 3, False),
        ("postgresql", 2, 6, False),
        pytest.param("sqlite", 8, 63, False, marks=pytest.mark.slow),
        pytest.param("sqlite", 8, 8, True, marks=pytest.mark.slow),
        pytest.param("postgresql", 8, 63, False, marks=pytest.mark.slow),
    ],
)
def test_processes_share_a_run(
    kind: str,
    num_processes: int,
    rounds: int,
    is_box: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    storage: Any = tmp_path / "run.db"
    if kind == "postgresql":
        storage = request.getfixturevalue("server").new_run()
    workers = [forked(work, storage, number, rounds, is_box) for number in range(num_processes)]
    for worker in workers:
        worker.join(600)
        assert worker.exitcode == 0
    check_run(storage, on_box if is_box else fast, num_processes * rounds, tmp_path)
