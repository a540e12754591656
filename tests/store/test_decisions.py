"""Resets are on record: machines that share a run start over at the same rounds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel

from benchmarks import fault_cases
from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    EvidenceRestart,
    GPUpperConfidenceBound,
)
from botorch_bandits.change_points.evidence import EvidenceStream
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.store import NewEvent, open_store, read_store

pytestmark = pytest.mark.usefixtures("quick_disk")

RESTARTS: dict[str, Any] = {
    "evidence": EvidenceRestart(),
    "a list": EvidenceRestart(
        candidates=[
            BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=length)
            for length in (0.2, 0.5)
        ]
    ),
    "half samples": fault_cases.settings()["arms, restarts"]["restart"],
}


def settings(restart: str = "evidence") -> dict[str, Any]:
    return {
        "domain": Arms(torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1)),
        "model": BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.2),
        "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
        "restart": RESTARTS[restart],
    }


def play(loop: BanditLoop, total: int) -> None:
    """Play rounds of a reward whose best arm moves every 20 rounds."""
    while (number := loop.history.num_queries) < total:
        query = loop.ask()
        best = 0.25 + 0.5 * ((number // 20) % 2)
        noise = 0.1 * torch.randn(1, generator=torch.Generator().manual_seed(number))
        loop.tell(query.id, -3.0 * float((query.x - best).square()) + float(noise))


def chosen(loop: BanditLoop) -> torch.Tensor:
    return torch.stack([query.x for query in loop.history.queries])


@pytest.fixture
def tested(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the outcomes that are tested, by their queries."""
    made: list[int] = []
    bet = EvidenceStream._bet

    def counting(self: EvidenceStream, rows: Any, *given: Any) -> Any:
        made.extend(row.query for row in rows)
        return bet(self, rows, *given)

    monkeypatch.setattr(EvidenceStream, "_bet", counting)
    return made


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_run_that_is_opened_again_has_its_resets_and_its_tests_and_goes_on_alike(
    restart: str, tmp_path: Path
) -> None:
    with BanditLoop(**settings(restart), storage=tmp_path / "whole.db") as loop:
        play(loop, 70)
        resets, tests, points = loop.resets, loop.change_tests, chosen(loop)
    assert resets
    path = tmp_path / "run.db"
    for total in (33, 50, 51, 70):
        with BanditLoop(**settings(restart), storage=path) as loop:
            play(loop, total)
    with BanditLoop(**settings(restart), storage=path) as loop:
        assert torch.equal(chosen(loop), points)
        assert [r.after_round for r in loop.resets] == [r.after_round for r in resets]
        assert [t.after_round for t in loop.change_tests] == [t.after_round for t in tests]
        for one, other in zip(loop.change_tests, tests, strict=True):
            assert one.statistic == pytest.approx(other.statistic, abs=1e-9, nan_ok=True)
            assert one.candidate_weights == pytest.approx(other.candidate_weights)
        assert loop.check_log(progress=False) == ()


def test_opening_tests_only_the_segment_that_has_not_ended(
    tmp_path: Path, tested: list[int]
) -> None:
    path = tmp_path / "run.db"
    with BanditLoop(**settings(), storage=path) as loop:
        play(loop, 70)
        first = loop.resets[-1].after_round
    tested.clear()
    with BanditLoop(**settings(), storage=path) as loop:
        loop.ask()
        assert tested == list(range(first + 1, 71))
        tested.clear()
        assert len(loop.change_tests) == 70
        assert len(tested) == 69  # of those on record, when somebody asks for their results


def changed(path: Path, other: Path, edit: Any) -> Path:
    """Write a copy of a run with other events."""
    header, events = read_store(path)
    edit(events)
    new = [NewEvent(event.kind, event.query, event.body, event.at) for event in events]
    store = open_store(other, header, lambda header: None)
    store.write(0, lambda news: new)
    store.close()
    return other


def test_what_another_machine_decided_is_in_force_and_the_check_of_the_log_says_so(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    with BanditLoop(**settings(), storage=path) as loop:
        play(loop, 40)
        (after, *_) = (reset.after_round for reset in loop.resets)

    def without_resets(events: list[Any]) -> None:
        for event in events:
            event.body.pop("resets", None)

    other = changed(path, tmp_path / "other.db", without_resets)
    with BanditLoop(**settings(), storage=other) as loop:
        assert [reset.after_round for reset in loop.resets] == [40]  # by the outcome that came last
        *points, resets = loop.check_log(progress=False)
        assert f"resets after rounds [{after}] here, and after [] on record" in resets
        assert points  # they were chosen after the reset


def test_a_loop_that_decided_otherwise_follows_the_record(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with BanditLoop(**settings(), storage=path) as loop:
        play(loop, 15)
        query = loop.ask()
        assert not loop.resets
        with BanditLoop(**settings(), storage=path) as other:
            other.tell(query.id, 0.0)
            tests = {"statistic": 9.0, "threshold": 4.0, "half_size": None}
            reset = {"outcome": query.id, "after_round": 16, "change_round": 12, **tests}
            restarts = SimpleNamespace(decisions=[{**reset, "quantity": "reward"}])
            other._log.record(
                other.history.new_query(query.x, "acquisition", 0.0),
                chooser=SimpleNamespace(latest_fit=lambda: None, restarts=restarts),
            )
        assert [(r.after_round, r.change_round, r.num_kept) for r in loop.resets] == [(16, 12, 5)]
        assert len(loop.current_model().train_targets) == 5  # type: ignore[arg-type]


def test_a_retraction_tests_all_outcomes_again(tmp_path: Path, tested: list[int]) -> None:
    path = tmp_path / "run.db"
    with BanditLoop(**settings(), storage=path) as loop:
        play(loop, 40)
        loop.retract(loop.history.num_queries - 1, "a broken sensor")
    tested.clear()
    with BanditLoop(**settings(), storage=path) as loop:
        assert loop.resets
        assert len(tested) == 39


def test_a_retraction_that_is_told_during_a_choice_moves_resets_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, choose = tmp_path / "run.db", Chooser.choose
    with (
        BanditLoop(**settings(), storage=path) as loop,
        BanditLoop(**settings(), storage=path) as other,
    ):
        play(loop, 45)
        resets = [reset.after_round for reset in loop.resets]

        def choose_slowly(self: Chooser, *given: Any) -> Any:
            chosen = choose(self, *given)
            other.retract(0, "a broken sensor")
            return chosen

        with monkeypatch.context() as patch:
            patch.setattr(Chooser, "choose", choose_slowly)
            loop.ask()
        for each in (loop, other):
            assert [reset.after_round for reset in each.resets] == resets
    with BanditLoop(**settings(), storage=path) as loop:
        assert [reset.after_round for reset in loop.resets] == resets
        assert loop.check_log(progress=False) == ()


def test_an_interrupt_in_the_middle_of_the_tests_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bet, left = tmp_path / "run.db", EvidenceStream._bet, 10
    with BanditLoop(**settings(), storage=path) as loop:
        play(loop, 41)
        tests = loop.change_tests

    def interrupted(self: EvidenceStream, *given: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt
        return bet(self, *given)

    with BanditLoop(**settings(), storage=path) as loop:
        with monkeypatch.context() as patch:
            patch.setattr(EvidenceStream, "_bet", interrupted)
            with pytest.raises(KeyboardInterrupt):
                _ = loop.change_tests
        assert [t.after_round for t in loop.change_tests] == [t.after_round for t in tests]


@pytest.mark.parametrize("name", fault_cases.settings())
def test_a_machine_makes_the_choices_on_record_again(name: str, tmp_path: Path) -> None:
    """The script fails, attaches and tells late; one outcome is withdrawn on the way."""
    path = tmp_path / "run.db"
    with fault_cases.build(name, storage=path) as loop:
        for _ in range(12):
            fault_cases.step(loop)
        if loop.settings.detection is None:  # a test of uniform draws goes with the whole domain
            domain, context = loop.settings.domain, [0.5] if loop.settings.context_dim else None
            points = domain.sample(3, torch.Generator().manual_seed(0))
            loop.ask(context, available=points.unique(dim=0))
            fixed = None if domain.choices is not None else {0: 0.5}
            loop.ask(context, avoid=points[:1], fixed=fixed)
        loop.retract(loop.history.outcomes[0].query_id, "a broken sensor")
        for _ in range(6):
            fault_cases.step(loop)
        assert loop.check_log(progress=False) == ()
        latest = [query for query in loop.history.queries if query.origin != "attached"][-1]

    def move(events: list[Any]) -> None:
        for event in events:
            if event.kind == "asked" and event.query == latest.id:
                event.body["x"] = [0.0 if event.body["x"] == [1.0] else 1.0]

    other = changed(path, tmp_path / "other.db", move)
    with fault_cases.build(name, storage=other) as loop:
        (found,) = loop.check_log(progress=False)
    assert f"query {latest.id} is at" in found
