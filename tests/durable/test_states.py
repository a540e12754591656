"""Queries that are pending, told, failed or attached, in memory and on disk."""

from __future__ import annotations

import math
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from models.textbook import double, line
from records import rebuilt

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    DifferentSettingsError,
    GPUpperConfidenceBound,
    History,
    RandomSearch,
)
from botorch_bandits.fingerprints import EnvironmentWarning, UnnamedSettingError
from botorch_bandits.loop import StorageError
from botorch_bandits.loop import loop as loop_log
from botorch_bandits.loop.store import open_store

from .cases import ARMS, BOX, MODEL, SETTINGS, UCB, build

pytestmark = pytest.mark.usefixtures("quick_disk")
NAN = float("nan")


class TestStorageOfALoop:
    @pytest.mark.parametrize(
        ("changes", "difference"),
        [
            ({"seed": 6}, "seed: was 5, is 6"),
            ({"horizon": 10}, "horizon"),
            ({"domain": Box([[0.0], [2.0]])}, r"domain\.bounds"),
            (
                {"model": BanditGP.with_kernel(MaternKernel(nu=1.5), noise=0.05, lengthscale=0.3)},
                r"model\.kernel\.nu: was 2\.5, is 1\.5",
            ),
            ({"acquisition": GPUpperConfidenceBound.with_options(width=3.0)}, "width"),
            ({"feedback": Censored(minimum=0.0)}, "feedback"),
        ],
    )
    def test_other_settings_are_refused_by_name(
        self, changes: dict[str, Any], difference: str, tmp_path: Path
    ) -> None:
        path, known = tmp_path / "run.db", {**SETTINGS["box, ucb"], "seed": 5}
        BanditLoop(**known, storage=path).close()
        content = path.read_bytes()
        with pytest.raises(DifferentSettingsError, match=difference) as caught:
            BanditLoop(**(known | changes), storage=path)
        assert caught.value.differences
        assert path.read_bytes() == content
        BanditLoop(**known, storage=path).close()  # the lock is free

    def test_a_lambda_has_no_name(self, tmp_path: Path) -> None:
        path = tmp_path / "run.db"
        with pytest.raises(UnnamedSettingError):
            BanditLoop(BOX, lambda X, Y: None, UCB, storage=path)
        assert not path.exists()

    def test_another_environment_warns(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "run.db"
        build("box, ucb", storage=path).close()
        here = loop_log.environment
        monkeypatch.setattr(loop_log, "environment", lambda d: here(d) | {"number of threads": 99})
        with pytest.warns(EnvironmentWarning, match="number of threads was") as caught:
            build("box, ucb", storage=path).close()
        assert caught[0].filename == build.__code__.co_filename  # the line that opened

    def test_a_run_of_something_else_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "run.db"
        open_store(path, {"seed": 0}, lambda header: None).close()
        with pytest.raises(StorageError, match="is not a run that this version can read"):
            build("box, ucb", storage=path)

    def test_diagnostics_that_are_not_finite_come_back(self, tmp_path: Path) -> None:
        history = History(1)
        known = {"acquisition_value": float("-inf"), "width": float("inf"), "mean": 0.1}
        history.record(history.new_query(double([0.5]), "acquisition", 0.0, diagnostics=known))
        with BanditLoop(BOX, None, RandomSearch(), storage=tmp_path / "run.db") as loop:
            rebuilt(loop, history).ask()
        with BanditLoop(BOX, None, RandomSearch(), storage=tmp_path / "run.db") as loop:
            assert loop.history.query(0).diagnostics == known


def test_sixteen_threads_ask_and_tell_on_one_loop(tmp_path: Path) -> None:
    path, errors = tmp_path / "run.db", []
    arms = Arms(line(0, 1, 30))
    loop = BanditLoop(arms, MODEL, UCB, storage=path)

    def work(number: int) -> None:
        try:
            for i in range(12):
                query = loop.ask()
                if (number + i) % 5 == 0:
                    loop.fail(query.id, f"thread {number}")
                else:
                    loop.tell(query.id, float(query.id))
                    loop.tell(query.id, float(query.id))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    loop.close()
    live = loop.history
    assert (live.num_queries, live.num_pending) == (192, 0)
    assert all(outcome.reward == outcome.query_id for outcome in live.outcomes)
    with BanditLoop(arms, MODEL, UCB, storage=path) as again:
        assert again.history.to_records() == live.to_records()
        # what was asked is a function of the order in which things happened, and of nothing else
        replayed = BanditLoop(arms, MODEL, UCB)
        events = list(live.events)
        for query in live.queries:
            while events and events[0].arrived_round < query.round_number:
                event = events.pop(0)
                if live.outcome(event.query_id) is None:
                    replayed.fail(event.query_id)
                else:
                    replayed.tell(event.query_id, float(event.query_id))
            assert replayed.ask().x.equal(query.x)


class DurableLoop(RuleBasedStateMachine):
    """Against a table: one entry ``[x, state, value]`` a query."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.table: list[list[Any]] = []
        self.loop: BanditLoop | None = None
        self.reopen()

    @rule()
    def ask(self) -> None:
        query = self.loop.ask()
        self.table.append([query.x.tolist(), "pending", None])

    @rule(number=st.integers(0, 12), value=st.sampled_from([0.0, 1.0, NAN]))
    def tell(self, number: int, value: float) -> None:
        row = self.table[number] if number < len(self.table) else None
        if (
            row is not None
            and not math.isnan(value)
            and (row[1] == "pending" or row[1:] == ["told", value])
        ):
            self.loop.tell(number, value)
            row[1:] = ["told", value]
            return
        with pytest.raises((KeyError, ValueError)):
            self.loop.tell(number, value)

    @rule(number=st.integers(0, 12), reason=st.sampled_from(["x", "y"]))
    def fail(self, number: int, reason: str) -> None:
        row = self.table[number] if number < len(self.table) else None
        if row is None or row[1] in ("told", "retracted"):
            with pytest.raises((KeyError, ValueError)):
                self.loop.fail(number, reason)
        else:
            known = self.loop.fail(number, reason).reason
            row[1:] = ["failed", row[2] or reason]
            assert known == row[2]

    @rule(number=st.integers(0, 12), reason=st.sampled_from(["v", "w", ""]))
    def retract(self, number: int, reason: str) -> None:
        row = self.table[number] if number < len(self.table) else None
        if row is None or row[1] != "told" or not reason:
            with pytest.raises((KeyError, ValueError)):
                self.loop.retract(number, reason)
        else:
            assert self.loop.retract(number, reason).outcome.reward == row[2]
            row[1:] = ["retracted", reason]

    @rule(arm=st.integers(0, 12), value=st.sampled_from([2.0, NAN]))
    def attach(self, arm: int, value: float) -> None:
        if arm == 12 or math.isnan(value):
            with pytest.raises(ValueError, match=r"not one of|reward is nan"):
                self.loop.attach([2.0] if arm == 12 else ARMS.choices[arm], value)
        else:
            self.loop.attach(ARMS.choices[arm], value)
            self.table.append([ARMS.choices[arm].tolist(), "told", value])

    @rule()
    def reopen(self) -> None:
        if self.loop is not None:
            self.loop.close()
        self.loop = BanditLoop(ARMS, MODEL, UCB, storage=f"{self.folder.name}/run.db")

    @invariant()
    def is_the_table(self) -> None:
        history = self.loop.history
        found = [[r["x"], r["state"], r["reason"] or r["reward"]] for r in history.to_records()]
        assert found == self.table
        states = [row[1] for row in self.table]
        counts = (history.num_pending, history.num_arrived, history.num_failed)
        counts += (history.num_retracted,)
        assert counts == tuple(states.count(s) for s in ("pending", "told", "failed", "retracted"))

    def teardown(self) -> None:
        if getattr(self, "loop", None) is not None:
            self.loop.close()
            self.folder.cleanup()


TestDurableLoop = pytest.mark.usefixtures("quick_disk")(DurableLoop.TestCase)
TestDurableLoop.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, derandomize=True
)


def test_what_is_on_record_may_be_told_again_after_the_storage_was_closed(tmp_path: Path) -> None:
    arms = Arms(line(0, 1, 3))
    with BanditLoop(arms, MODEL, UCB, storage=tmp_path / "run.db") as loop:
        told = loop.tell(loop.ask().id, 1.0)
        failed = loop.fail(loop.ask().id)
        waiting = loop.ask()
    assert (loop.tell(0, 1.0), loop.fail(1)) == (told, failed)
    with pytest.raises(KeyError, match="never asked"):
        loop.tell(99, 1.0)
    for late in (lambda: loop.tell(waiting.id, 1.0), lambda: loop.fail(waiting.id), loop.ask):
        with pytest.raises(StorageError, match="is closed"):
            late()


def test_a_models_function_that_works_in_place_changes_no_record() -> None:
    def make(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
        Y -= Y.mean()
        return SingleTaskGP(X, Y, outcome_transform=None)

    box = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
    loop = BanditLoop(box, make, GPUpperConfidenceBound.with_options(width=2.0), num_initial=1)
    for i in range(4):
        loop.tell(loop.ask().id, 10.0 + i)
    assert loop.history.arrived()[1].squeeze(-1).tolist() == [10.0, 11.0, 12.0, 13.0]
