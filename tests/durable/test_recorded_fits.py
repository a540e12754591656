"""A loop that learns its hyperparameters takes up the last fit on record, if it is of its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from models.textbook import line

from botorch_bandits import BanditGP, BanditLoop, Box, GPUpperConfidenceBound
from botorch_bandits.loop.store import Event, NewEvent, open_store, read_store
from botorch_bandits.models.bandit_gp import ModelBuilder
from tests.records import entries_of, rebuilt

pytestmark = pytest.mark.usefixtures("quick_disk")


def settings(every: int) -> dict[str, Any]:
    kernel = ScaleKernel(MaternKernel(nu=2.5))
    return {
        "domain": Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
        "model": BanditGP.with_kernel(kernel, noise=0.01, lengthscale=0.3, refit_every=every),
        "acquisition": GPUpperConfidenceBound.with_options(width=2.0),
        "num_initial": 4,
        "seed": 2,
    }


def play(loop: BanditLoop, total: int) -> None:
    while loop.history.num_queries < total:
        query = loop.ask()
        loop.tell(query.id, float(torch.sin(7.0 * query.x).sum() + 0.05 * (query.id % 5)))


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count fits, by their rows."""
    made: list[int] = []
    refit = ModelBuilder._refit

    def counting(self: ModelBuilder, X: torch.Tensor, *others: Any) -> Any:
        made.append(len(X))
        return refit(self, X, *others)

    monkeypatch.setattr(ModelBuilder, "_refit", counting)
    return made


@pytest.mark.parametrize("every", [1, 3])
def test_opening_makes_no_fit_again_and_goes_on_as_if_nothing_had_happened(
    every: int, tmp_path: Path, fits: list[int]
) -> None:
    whole, path = tmp_path / "whole.db", tmp_path / "run.db"
    with BanditLoop(**settings(every), storage=whole) as loop:
        play(loop, 16)
    with BanditLoop(**settings(every), storage=path) as loop:
        play(loop, 11)
    fits.clear()
    with BanditLoop(**settings(every), storage=path) as loop:
        query = loop.ask()
        # the outcome of the last round came behind the last fit on record
        assert fits == ([11] if every == 1 else [])
        loop.tell(query.id, float(torch.sin(7.0 * query.x).sum() + 0.05 * (query.id % 5)))
        play(loop, 16)
        ours = loop.history.to_records()
    with BanditLoop(**settings(every), storage=whole) as loop:
        theirs = loop.history.to_records()
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):  # to rounding, as rows are factorized anew
        assert one["x"] == pytest.approx(other["x"], abs=1e-6)
        assert one["diagnostics"] == pytest.approx(other["diagnostics"], abs=1e-6)


@pytest.mark.parametrize("every", [1, 3])
def test_a_history_alone_makes_each_fit_of_the_loop_once_and_in_its_order(
    every: int, fits: list[int]
) -> None:
    loop = BanditLoop(**settings(every))
    play(loop, 13)
    known = entries_of(loop.history)
    asked = loop.ask()
    fits.clear()
    again = rebuilt(BanditLoop(**settings(every)), known)
    assert again.ask().x.tolist() == pytest.approx(asked.x.tolist(), abs=1e-6)
    assert fits == list(range(every, 13 + 1, every))
    fits.clear()
    again.ask()  # of the same outcomes
    assert fits == []


def change(path: Path, other: Path, edit: Any) -> Path:
    header, events = read_store(path)
    edit(events)
    new = [NewEvent(event.kind, event.query, event.body, event.at) for event in events]
    store = open_store(other, header, lambda header: None)
    store.write(0, lambda news: new)
    store.close()
    return other


@pytest.mark.parametrize("what", ["a reward", "the digest"])
def test_a_fit_that_is_not_of_these_rows_is_made_again(
    what: str, tmp_path: Path, fits: list[int]
) -> None:
    path = tmp_path / "run.db"
    with BanditLoop(**settings(3), storage=path) as loop:
        play(loop, 11)

    def edit(events: list[Event]) -> None:
        bodies: list[Any] = [event.body for event in events]
        latest = [body["fit"] for body in bodies if "fit" in body][-1]
        assert latest["num_rows"] == 9
        if what == "a reward":
            next(body for body in bodies if "reward" in body)["reward"] += 1e-12
        else:
            latest["digest"] = "0" * 64

    other = change(path, tmp_path / "other.db", edit)
    fits.clear()
    with BanditLoop(**settings(3), storage=other) as loop:
        loop.ask()
    assert fits == [3, 6, 9]


def test_a_retraction_makes_the_fits_anew(tmp_path: Path, fits: list[int]) -> None:
    path = tmp_path / "run.db"
    with BanditLoop(**settings(3), storage=path) as loop:
        play(loop, 11)
        loop.retract(1, "a broken sensor")
    fits.clear()
    with BanditLoop(**settings(3), storage=path) as loop:
        query = loop.ask()
        assert fits == [3, 6, 9]
        known = [entry for entry in entries_of(loop.history) if entry is not query]
    assert rebuilt(BanditLoop(**settings(3)), known).ask().x.tolist() == query.x.tolist()


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_rows_that_change_behind_a_fit_that_was_taken_are_fitted_from_the_start(
    num_outputs: int, fits: list[int]
) -> None:
    X = line(0.0, 1.0, 8)
    Y = torch.cat([torch.sin(6.0 * X), torch.cos(6.0 * X)], dim=-1)[:, :num_outputs]
    recipe = settings(2)["model"]
    first = recipe.builder(seed=0)
    first(X, Y)
    fit = json.loads(json.dumps(first.latest_fit()))
    second = recipe.builder(seed=0)
    assert not second.restore_fit(fit, X, Y + 1.0)
    assert second.restore_fit(fit, X, Y)
    fits.clear()
    again, expected = second(X, Y), first(X, Y)
    assert not fits
    assert torch.equal(again.posterior(X).mean, expected.posterior(X).mean)
    changed = Y.clone()
    changed[1] += 1.0
    model = second(X, changed)
    assert fits == [2, 4, 6, 8] * num_outputs
    assert torch.equal(
        model.posterior(X).mean, recipe.builder(seed=0)(X, changed).posterior(X).mean
    )
