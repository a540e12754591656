"""Outcomes told with count= or noise=: exact where a loop takes them in, refused where not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from records import assert_same, rebuilt
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    CandidatesUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    RandomSearch,
    SlidingWindow,
)
from botorch_bandits.history import flatten_records
from tests.models.textbook import uniform

LAM = 0.04
MODEL = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=0.3)
CHOICES = uniform(12, 2, seed=1)
DOMAINS = {"arms": Arms(CHOICES), "box": Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=2)}
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.2, "delta": 0.1}
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
EXACT: dict[str, Any] = {"rtol": 1e-8, "atol": 1e-8}
ON_DOMAINS = pytest.mark.parametrize("domain", DOMAINS)


def points_of(domain: str, count: int) -> Tensor:
    points = uniform(count, 2, seed=2)
    if domain == "box":
        return points
    return CHOICES[(points[:, 0] * len(CHOICES)).long()]


def build(domain: str = "arms", acquisition: Any = IGP, **settings: Any) -> BanditLoop:
    return BanditLoop(DOMAINS[domain], settings.pop("model", MODEL), acquisition, **settings)


def tell_some(loop: BanditLoop, domain: str) -> tuple[Tensor, Tensor, Tensor]:
    """Attach and ask; tell means of some, outcomes of other noise, and plain ones."""
    given = [{"count": 5}, {}, {"noise": 0.5}, {"count": 400}, {"noise": 0.001}, {"count": 1}]
    levels = [LAM / 5, LAM, 0.5, LAM / 400, 0.001, LAM]
    X, rewards = points_of(domain, 18), uniform(18, seed=3) - 0.3
    rows, noises = [], []
    for t, (x, reward) in enumerate(zip(X, rewards.tolist(), strict=True)):
        if t % 2:
            query = loop.ask()
            loop.tell(query.id, reward, **given[t % 6])
            rows.append(query.x)
        else:
            loop.attach(x, reward, **given[t % 6])
            rows.append(x)
        noises.append(levels[t % 6])
    return torch.stack(rows), rewards, torch.tensor(noises, dtype=torch.float64)


ACQUISITIONS = {
    "IGP-UCB": IGP,
    "GP-UCB": GPUpperConfidenceBound.with_options(width=2.0),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
    "DMM": DMMUpperConfidenceBound.with_options(**BOUNDS),
    "EI": LogExpectedImprovement.with_options(augmented=True),
    "GP-TS": GPThompsonSampling.with_options(**BOUNDS),
    "list": CandidatesUpperConfidenceBound.with_options(width=2.0, delta=0.1),
}
LISTED = BanditGP.with_candidates(
    [MODEL, BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=0.7)]
)


@ON_DOMAINS
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_the_mean_of_n_outcomes_is_worth_n_outcomes(domain: str, name: str) -> None:
    model = LISTED if name == "list" else MODEL
    means, singles = (build(domain, ACQUISITIONS[name], model=model) for _ in range(2))
    normal = torch.Generator().manual_seed(4)
    for t, x in enumerate(points_of(domain, 9)):
        # so many that the rows of a place are merged
        outcomes = torch.randn((1, 30, 60)[t % 3], dtype=torch.float64, generator=normal)
        means.attach(x, float(outcomes.mean()), count=len(outcomes))
        for outcome in outcomes.tolist():
            singles.attach(x, outcome)
    points = uniform(7, 2, seed=9)
    one, other = (loop.current_model().posterior(points) for loop in (means, singles))
    assert torch.allclose(one.mean, other.mean, rtol=1e-10, atol=1e-10)
    assert torch.allclose(one.variance, other.variance, rtol=1e-10, atol=1e-10)
    if name != "GP-TS":  # whose random numbers are those of the round
        at = CHOICES if domain == "arms" else points
        one, other = (
            loop._chooser.acquisition_now(None, 0.0)[0](at.unsqueeze(1))
            for loop in (means, singles)
        )
        assert torch.allclose(one, other, rtol=1e-9, atol=1e-9)
    known, of_singles = (loop.ask().diagnostics for loop in (means, singles))
    for key in () if name == "DMM" else ("width", "information_gain"):  # DMM's is of the point
        if key in known:
            assert known[key] == pytest.approx(of_singles[key], rel=1e-10)


@ON_DOMAINS
@pytest.mark.parametrize(
    "settings",
    [{}, {"context_dim": 1}, {"forgetting": SlidingWindow(6)}, {"acquisition": "earned"}],
    ids=["plain", "contexts", "window", "earned"],
)
@pytest.mark.parametrize("name", ["count", "noise"])
def test_the_loop_of_who_knows_nothing_takes_counts_or_noises(
    name: str, domain: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    settings, path = {"seed": 3, **settings}, tmp_path / "run.db"
    given = {"context": [0.3]} if "context_dim" in settings else {}
    loop = BanditLoop(DOMAINS[domain], storage=path, **settings)
    twin = BanditLoop(DOMAINS[domain], **settings)
    for t in range(9):
        query, same = loop.ask(**given), twin.ask(**given)
        assert torch.equal(query.x, same.x)
        for each in (loop, twin):
            each.tell(query.id, math.sin(7.0 * t), **{name: 10 ** (t % 3)})
        if t == 6:  # killed: nothing but the file is left
            loop.close()
            loop = BanditLoop(DOMAINS[domain], storage=path, **settings)
    power = 1.0 if name == "count" else -1.0
    weights = 10.0 ** (power * (torch.arange(9) % 3).double())
    if "forgetting" in settings:
        weights = weights[3:]
    model = loop.current_model()
    assert torch.allclose(model.repeats, weights * (1.0 / weights).mean(), **EXACT)
    query = loop.ask(**given)
    for other in ({"noise": 0.1},) if name == "count" else ({"count": 5}, {}):
        with pytest.raises(ValueError, match="noise= with every outcome or with none"):
            loop.tell(query.id, 0.5, **other)
    assert loop.history.num_pending == 1
    loop.ask(**given)  # while another one is pending
    loop.close()


def test_records_and_files_have_the_weights_where_there_are_any() -> None:
    loop = build()
    tell_some(loop, "arms")
    loop.retract(0, "wrong")
    loop.retract(2, "wrong")
    records = json.loads(json.dumps(loop.history.to_records()))
    again = rebuilt(BanditLoop(DOMAINS["arms"], MODEL, IGP), loop.history)
    assert_same(again.history.to_records(), records)
    assert [each.outcome.count for each in again.history.retractions] == [5, None]
    assert [each.outcome.noise for each in again.history.retractions] == [None, 0.5]
    assert torch.equal(again.history.weights(LAM), loop.history.weights(LAM))
    rows = flatten_records(records)
    assert (rows[3]["count"], rows[4]["noise"]) == (400, 0.001)
    assert (rows[0]["retracted_count"], rows[2]["retracted_noise"]) == (5, 0.5)
    # a history without weights has the columns that it always had
    plain = build()
    plain.tell(plain.ask().id, 1.0, count=1)
    assert not {"count", "noise"} & set(plain.history.to_records()[0])
    assert torch.equal(again.ask().x, loop.ask().x)


def test_telling_the_same_again_does_nothing_and_another_weight_is_another_outcome() -> None:
    loop = build()
    query = loop.ask()
    told = loop.tell(query.id, 0.5, count=np.int64(3))
    assert type(told.count) is int
    assert loop.tell(query.id, 0.5, count=3) is told
    for other in ({}, {"count": 4}, {"noise": 0.1}):
        with pytest.raises(ValueError, match="already has the reward"):
            loop.tell(query.id, 0.5, **other)
    query = loop.ask()
    assert loop.tell(query.id, 1.0, count=1) == loop.tell(query.id, 1.0)


def test_random_search_records_what_it_does_not_look_at() -> None:
    loop = BanditLoop(DOMAINS["box"], None, RandomSearch())
    assert loop.tell(loop.ask().id, 0.5, count=10**12).count == 10**12
    assert loop.tell(loop.ask().id, 0.7, noise=0.25).noise == 0.25
    assert loop.best()[1].reward == 0.7


def test_the_guarantee_says_what_it_needs_of_weights() -> None:
    loop = build()
    plain = loop.guarantee()
    loop.tell(loop.ask().id, 0.5, count=3)
    told = loop.guarantee()
    assert told.holds
    (new,) = set(told.assumptions) - set(plain.assumptions)
    assert "1 round that were told with count=" in new or "told with count=" in new
    assert "does not depend on their noise" in new
    loop.tell(loop.ask().id, 0.5, noise=0.5)
    (new,) = set(loop.guarantee().assumptions) - set(told.assumptions)
    assert "noise_bound sqrt(v / lam)" in new
    draws = build(acquisition=GPUpperConfidenceBound.with_options(delta=0.1))
    draws.tell(draws.ask().id, 0.5, noise=0.5)
    assert any("has the variance v" in each for each in draws.guarantee().assumptions)
    assert "count" not in plain.statement
