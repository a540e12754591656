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
from records import assert_same
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ChangePointDetector,
    ChangePointRestart,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    ExponentialWeights,
    FittedSingleTaskGP,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    History,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    OracleRestart,
    RandomSearch,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.confidence import WaterFillingGain
from botorch_bandits.history import flatten_records
from botorch_bandits.loop.points_stream import PointsStream
from tests.models.textbook import posterior, squared_exponential, uniform

LAM = 0.04
KERNEL = squared_exponential(0.3)
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


def gain_of(X: Tensor, noises: Tensor) -> Tensor:
    root = noises.rsqrt()
    scaled = root.unsqueeze(-1) * KERNEL(X, X) * root
    return 0.5 * torch.logdet(torch.eye(len(X), dtype=torch.float64) + scaled)


def check_against(loop: BanditLoop, X: Tensor, y: Tensor, noises: Tensor, shift: float) -> None:
    points = uniform(7, 2, seed=9)
    model = loop.current_model()
    mean, covariance = posterior(KERNEL, X, y - shift, noises, points)
    at = model.posterior(points)
    assert torch.allclose(at.mean[:, 0], mean + shift, **EXACT)
    assert torch.allclose(at.variance[:, 0], covariance.diagonal(), **EXACT)
    # what chooses knows the same: on arms that is no model, but statistics
    query = loop.ask()
    known = query.diagnostics
    mean, covariance = posterior(KERNEL, X, y - shift, noises, query.x.unsqueeze(0))
    assert known["mean"] == pytest.approx(float(mean) + shift, rel=1e-7, abs=1e-7)
    assert known["standard_deviation"] == pytest.approx(float(covariance) ** 0.5, rel=1e-6)
    gain = float(gain_of(X, noises))
    assert known["information_gain"] == pytest.approx(gain, rel=1e-8)
    width = 2.0 + 0.2 / math.sqrt(LAM) * math.sqrt(2.0 * (gain + math.log(10.0)))
    assert known["width"] == pytest.approx(width, rel=1e-8)


@ON_DOMAINS
@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_posterior_gain_and_width_are_those_of_rows_with_their_own_noise(
    domain: str, shift: float
) -> None:
    model = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=0.3, prior_mean=shift)
    loop = build(domain, model=model)
    X, y, noises = tell_some(loop, domain)
    check_against(loop, X, y, noises, shift)


ACQUISITIONS = {
    "IGP-UCB": IGP,
    "GP-UCB": GPUpperConfidenceBound.with_options(width=2.0),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
    "DMM": DMMUpperConfidenceBound.with_options(**BOUNDS),
    "EI": LogExpectedImprovement.with_options(augmented=True),
    "GP-TS": GPThompsonSampling.with_options(**BOUNDS),
}


@ON_DOMAINS
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_the_mean_of_n_outcomes_is_worth_n_outcomes(domain: str, name: str) -> None:
    means, singles = (build(domain, ACQUISITIONS[name]) for _ in range(2))
    normal = torch.Generator().manual_seed(4)
    for t, x in enumerate(points_of(domain, 9)):
        outcomes = torch.randn((1, 3, 8)[t % 3], dtype=torch.float64, generator=normal)
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
@pytest.mark.parametrize("name", ACQUISITIONS)
@pytest.mark.parametrize("maximize", [True, False])
def test_a_journal_that_is_opened_again_gives_the_same_choices(
    domain: str, name: str, maximize: bool, tmp_path: Path
) -> None:
    settings = {"seed": 3, "maximize": maximize}
    path = tmp_path / "run.journal"
    loop = build(domain, ACQUISITIONS[name], journal=path, **settings)
    twin = build(domain, ACQUISITIONS[name], clock=lambda: 0.0, **settings)
    for t in range(10):
        given = [{"count": 3}, {"noise": 0.3}, {}][t % 3]
        query, same = loop.ask(), twin.ask()
        assert torch.equal(query.x, same.x)
        assert_same(query.diagnostics, same.diagnostics)
        loop.tell(query.id, 0.1 * t, **given)
        twin.tell(same.id, 0.1 * t, **given)
        if t % 3 == 1:  # killed: nothing but the file is left
            loop.close()
            loop = build(domain, ACQUISITIONS[name], journal=path, **settings)
    assert [o.count for o in loop.history.outcomes] == [3, None, None] * 3 + [3]
    assert [o.noise for o in loop.history.outcomes] == [None, 0.3, None] * 3 + [None]
    loop.close()


@ON_DOMAINS
@pytest.mark.parametrize(
    "settings",
    [{}, {"context_dim": 1}, {"forgetting": SlidingWindow(6)}, {"objective": "earned"}],
    ids=["plain", "contexts", "window", "earned"],
)
def test_the_loop_of_who_knows_nothing_takes_counts(
    domain: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    settings, path = {"seed": 3, **settings}, tmp_path / "run.journal"
    given = {"context": [0.3]} if "context_dim" in settings else {}
    loop = BanditLoop(DOMAINS[domain], journal=path, **settings)
    twin = BanditLoop(DOMAINS[domain], **settings)
    for t in range(9):
        query, same = loop.ask(**given), twin.ask(**given)
        assert torch.equal(query.x, same.x)
        for each in (loop, twin):
            each.tell(query.id, math.sin(7.0 * t), count=10 ** (t % 3))
        if t == 6:  # killed: nothing but the file is left
            loop.close()
            loop = BanditLoop(DOMAINS[domain], journal=path, **settings)
    weights = torch.tensor([10.0 ** (t % 3) for t in range(9)]).double()
    if "forgetting" in settings:
        weights = weights[3:]
    model = loop.current_model()
    assert torch.allclose(model.repeats, weights * (1.0 / weights).mean(), **EXACT)
    query = loop.ask(**given)
    with pytest.raises(ValueError, match="a mean with count="):
        loop.tell(query.id, 0.5, noise=0.1)
    assert loop.history.num_pending == 1
    loop.ask(**given)  # while another one is pending
    loop.close()


def test_choices_are_those_of_the_negatives_where_a_cost_is_minimized() -> None:
    costs, rewards = build(maximize=False), build()
    for t in range(8):
        query, same = costs.ask(), rewards.ask()
        assert torch.equal(query.x, same.x)
        costs.tell(query.id, 0.1 * t, count=t + 1)
        rewards.tell(same.id, -0.1 * t, count=t + 1)


@ON_DOMAINS
def test_an_outcome_that_is_withdrawn_takes_its_weight_along(domain: str) -> None:
    loop = build(domain)
    X, y, noises = tell_some(loop, domain)
    kept = torch.ones(len(X), dtype=torch.bool)
    for row in (3, 4, 10):
        loop.retract(row, "a broken counter")
        kept[row] = False
    check_against(loop, X[kept], y[kept], noises[kept], 0.0)
    for row in kept.nonzero().squeeze(-1).tolist():
        if loop.history.outcome(row).is_weighted:
            loop.retract(row, "all of them")
    assert not loop.history.is_weighted
    assert loop.history.weights(LAM) is None


def test_records_and_files_have_the_weights_where_there_are_any() -> None:
    loop = build()
    tell_some(loop, "arms")
    loop.retract(0, "wrong")
    loop.retract(2, "wrong")
    records = json.loads(json.dumps(loop.history.to_records()))
    again = History.from_records(records, dim=2)
    assert_same(again.to_records(), loop.history.to_records())
    assert again.outcomes == loop.history.outcomes
    assert again.retractions[0].outcome.count == 5
    assert again.retractions[1].outcome.noise == 0.5
    assert torch.equal(again.weights(LAM), loop.history.weights(LAM))
    rows = flatten_records(records)
    assert (rows[3]["count"], rows[4]["noise"]) == (400, 0.001)
    assert (rows[0]["retracted_count"], rows[2]["retracted_noise"]) == (5, 0.5)
    # a history without weights has the columns that it always had
    plain = build()
    plain.tell(plain.ask().id, 1.0, count=1)
    assert not {"count", "noise"} & set(plain.history.to_records()[0])
    query = BanditLoop(DOMAINS["arms"], MODEL, IGP, history=again).ask()
    assert torch.equal(query.x, loop.ask().x)


def test_telling_the_same_again_does_nothing_and_another_weight_is_another_outcome() -> None:
    loop = build()
    query = loop.ask()
    told = loop.tell(query.id, 0.5, count=np.int64(3))
    assert type(told.count) is int
    assert loop.tell(query.id, 0.5, count=3) is told
    for other in ({}, {"count": 4}, {"noise": 0.1}):
        with pytest.raises(ValueError, match="already has the reward"):
            loop.tell(query.id, 0.5, **other)
    attached = loop.attach(CHOICES[0], 0.5, request_id="a", noise=0.25)
    assert loop.attach(CHOICES[0], 0.5, request_id="a", noise=0.25) is attached
    query = loop.ask()
    assert loop.tell(query.id, 1.0, count=1) == loop.tell(query.id, 1.0)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"count": 0}, ValueError, "count is 0; it must be at least 1"),
    ({"count": -3}, ValueError, "count is -3"),
    ({"count": True}, TypeError, "count must be an integer, got True"),
    ({"count": 3.0}, TypeError, "count must be an integer, got 3.0"),
    ({"count": "3"}, TypeError, "count must be an integer"),
    ({"noise": 0.0}, ValueError, "noise is 0.0; it must be greater than 0"),
    ({"noise": -1.0}, ValueError, "noise is -1.0"),
    ({"noise": math.nan}, ValueError, "noise is nan"),
    ({"noise": math.inf}, ValueError, "noise is inf"),
    ({"noise": 1e60}, ValueError, "noise is 1e.60"),
    ({"noise": True}, TypeError, "noise is True"),
    ({"noise": "low"}, TypeError, "noise must be"),
    ({"noise": torch.tensor([0.1, 0.2])}, TypeError, "noise must be"),
    ({"count": 2, "noise": 0.1}, ValueError, "give only one of them"),
    ({"count": 10**9}, ValueError, "noise variance of the row 4e-11"),
    ({"noise": 1e-11}, ValueError, "Tell a smaller count or a larger noise"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG)
def test_what_is_no_weight_is_refused_before_anything_is_recorded(
    given: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    loop = build(journal=tmp_path / "run.journal")
    query = loop.ask()
    size = (tmp_path / "run.journal").stat().st_size
    with pytest.raises(error, match=message):
        loop.tell(query.id, 0.5, **given)
    with pytest.raises(error, match=message):
        loop.attach(CHOICES[0], 0.5, **given)
    assert (loop.history.num_queries, loop.history.num_arrived) == (1, 0)
    assert (tmp_path / "run.journal").stat().st_size == size
    loop.tell(query.id, 0.5, count=2)
    loop.close()


DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.3, threshold=PowerThreshold(scale=1.0, exponent=-0.8)
)
WATER = WaterFillingGain(KERNEL(CHOICES, CHOICES), LAM)
LIST = BanditGP.with_candidates([MODEL, BanditGP.with_kernel(RBFKernel(), noise=LAM)])
RULE = AdditiveEpochs(num_constraints=1, step_size=0.1, epoch_length=3)


def users_model(X: Tensor, Y: Tensor) -> BanditGP:
    return MODEL(X, Y)


class OwnIdea(FittedSingleTaskGP):
    """It may do something else with rows."""


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "censored": ({"feedback": Censored(-3.0, 6.0, max_delay=3)}, "feedback=Censored"),
    "detector": (
        {"restart": ChangePointRestart(detector=DETECTOR, exploration=0.1)},
        "restart=ChangePointRestart",
    ),
    "evidence": ({"restart": EvidenceRestart()}, "restart=EvidenceRestart"),
    "gain": (
        {
            "acquisition": ImprovedUpperConfidenceBound.with_options(
                **BOUNDS, information_gain=WATER
            )
        },
        "information_gain= bounds the gain",
    ),
    "refits": (
        {"model": BanditGP.with_kernel(RBFKernel(), noise=LAM, refit_every=5)},
        "refit_every=5",
    ),
    "function": ({"model": users_model}, "function of inputs and outcomes"),
    "subclass": ({"model": OwnIdea([[0.0, 0.0], [1.0, 1.0]])}, "OwnIdea, a function of inputs"),
    "list": (
        {"model": LIST, "acquisition": GPUpperConfidenceBound.with_options(width=2.0)},
        "list",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_takes_each_outcome_for_one_observation_refuses_weights(name: str) -> None:
    settings, message = REFUSED[name]
    loop = build(**settings)
    query = loop.ask()
    for given in ({"count": 5}, {"noise": 0.1}):
        with pytest.raises(ValueError, match=message) as refused:
            loop.tell(query.id, 0.5, **given)
        assert str(next(iter(given.values()))) in str(refused.value)
        with pytest.raises(ValueError, match=message):
            loop.attach(CHOICES[0], 0.5, **given)
    assert (loop.history.num_queries, loop.history.num_arrived) == (1, 0)
    loop.tell(query.id, 0.5, count=1)  # one observation
    donor = build()
    donor.tell(donor.ask().id, 0.5, count=5)
    with pytest.raises(ValueError, match=f"query 0 in history has a weight.*{message}"):
        build(**settings, history=donor.history)


def test_random_search_records_what_it_does_not_look_at() -> None:
    loop = BanditLoop(DOMAINS["box"], None, RandomSearch())
    assert loop.tell(loop.ask().id, 0.5, count=10**12).count == 10**12
    assert loop.tell(loop.ask().id, 0.7, noise=0.25).noise == 0.25
    assert loop.best()[1].reward == 0.7


SEPARATE = AdditiveEpochs(num_constraints=1, step_size=0.1, epoch_length=3, surrogate="separate")
WEIGHED = {
    "bound": LagrangianUpperConfidenceBound.with_options(width=2.0),
    "draw": LagrangianThompsonSampling.with_options(width=2.0),
}


@ON_DOMAINS
@pytest.mark.parametrize("name", WEIGHED)
def test_a_count_is_that_of_the_reward_and_of_each_constraint(domain: str, name: str) -> None:
    loop = build(domain, WEIGHED[name], constraints=SEPARATE)
    X, Y, noises = [], [], []
    for t in range(8):
        query, count = loop.ask(), (1, 4, 30)[t % 3]
        loop.tell(query.id, 0.1 * t, constraints=[0.3 - 0.1 * t], count=count)
        X.append(query.x)
        Y.append([0.1 * t, 0.3 - 0.1 * t])
        noises.append(LAM / count)
    rows, outcomes = torch.stack(X), torch.tensor(Y, dtype=torch.float64)
    points, levels = uniform(5, 2, seed=9), torch.tensor(noises, dtype=torch.float64)
    query = loop.ask()
    known = query.diagnostics
    for j, output in enumerate(("mean", "constraint_mean_1")):
        mean, _ = posterior(KERNEL, rows, outcomes[:, j], levels, points)
        at = loop.current_model().posterior(points)
        assert torch.allclose(at.mean[:, j], mean, **EXACT)
        mean, covariance = posterior(KERNEL, rows, outcomes[:, j], levels, query.x.unsqueeze(0))
        if output in known:
            assert known[output] == pytest.approx(float(mean), abs=1e-7)
    if name == "bound":
        lower = float(mean) - 2.0 * float(covariance) ** 0.5
        assert known["constraint_lower_bound_1"] == pytest.approx(lower, abs=1e-6)
    with pytest.raises(ValueError, match="variance of the reward's"):
        loop.tell(query.id, 0.1, constraints=[0.1], noise=0.5)


@ON_DOMAINS
@pytest.mark.parametrize("surrogate", ["relabeled", "fresh"])
def test_penalized_means_have_the_counts_of_their_outcomes(domain: str, surrogate: str) -> None:
    rule = AdditiveEpochs(num_constraints=1, step_size=0.5, epoch_length=3, surrogate=surrogate)
    loop = build(domain, constraints=rule)
    rows, rewards, values, noises = [], [], [], []
    for t in range(8):
        query, count = loop.ask(), (1, 4, 30)[t % 3]
        loop.tell(query.id, 0.1 * t, constraints=[0.8 - 0.1 * t], count=count)
        rows.append(query.x)
        rewards.append(0.1 * t)
        values.append(0.8 - 0.1 * t)
        noises.append(LAM / count)
    query = loop.ask()
    kappa = loop.multipliers[0]
    assert kappa > 0.0
    start = 6 if surrogate == "fresh" else 0
    penalized = torch.tensor(rewards).double() - kappa * torch.tensor(values).double()
    X, y, levels = torch.stack(rows), penalized, torch.tensor(noises).double()
    at = (X[start:], y[start:], levels[start:], query.x.unsqueeze(0))
    mean, covariance = posterior(KERNEL, *at)
    assert query.diagnostics["mean"] == pytest.approx(float(mean), abs=1e-6)
    deviation = query.diagnostics["standard_deviation"]
    assert deviation == pytest.approx(float(covariance) ** 0.5, rel=1e-6)
    found = loop.current_model().posterior(query.x.unsqueeze(0)).mean
    assert float(found) == pytest.approx(float(mean), abs=1e-8)
    # the models of the constraints, of all values, know the counts too
    least = loop.feasibility(width=2.0).constraints[0].smallest_lower_bound
    constraint = torch.tensor(values).double()
    grid = CHOICES if domain == "arms" else uniform(200, 2, seed=9)
    mean, covariance = posterior(KERNEL, X, constraint, levels, grid)
    lower = float((mean - 2.0 * covariance.diagonal().sqrt()).min())
    assert least == pytest.approx(lower, abs=1e-7) if domain == "arms" else least <= lower + 1e-7


@ON_DOMAINS
@pytest.mark.parametrize(
    "settings",
    [
        {"context_dim": 1},
        {"forgetting": SlidingWindow(5)},
        {"forgetting": ExponentialWeights(0.9)},
        {"forgetting": TimeVaryingKernel(0.1)},
        {"restart": OracleRestart(change_points=(4,), exploration=None)},
    ],
    ids=["contexts", "window", "weights", "drift", "restart"],
)
def test_contexts_forgetting_and_resets_keep_weights(
    domain: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    path = tmp_path / "run.journal"
    loop = build(domain, acquisition, journal=path, **settings)
    given = {"context": [0.3]} if settings.get("context_dim") else {}
    rows, y, noises = [], [], []
    for t in range(10):  # the first ones are plain, so that on arms a stream of rows begins
        query, count = loop.ask(**given), (1, 1, 1, 6, 1, 25)[t % 6]
        loop.tell(query.id, math.sin(t), count=count)
        rows.append(torch.tensor([*given.get("context", []), *query.x.tolist()]).double())
        y.append(math.sin(t))
        noises.append(LAM / count)
    X, Y, levels = torch.stack(rows), torch.tensor(y).double(), torch.tensor(noises).double()
    query = loop.ask(**given)
    at = torch.tensor([[*given.get("context", []), *query.x.tolist()]]).double()
    kernel, rounds = KERNEL, torch.arange(1, 11)
    kept, scale = rounds > 0, torch.ones(10, dtype=torch.float64)
    if "restart" in settings:
        kept = rounds > 4
    if isinstance(settings.get("forgetting"), SlidingWindow):
        kept = rounds >= 11 - 5
    if isinstance(settings.get("forgetting"), ExponentialWeights):
        scale = 0.9 ** (10 - rounds).double()
    if isinstance(settings.get("forgetting"), TimeVaryingKernel):
        X = torch.cat([rounds.double().unsqueeze(-1), X], dim=-1)
        at = torch.cat([torch.tensor([[11.0]]).double(), at], dim=-1)

        def kernel(A: Tensor, B: Tensor) -> Tensor:
            gap = (A[:, None, 0] - B[None, :, 0]).abs()
            return KERNEL(A[:, 1:], B[:, 1:]) * 0.9 ** (gap / 2.0)

    mean, covariance = posterior(kernel, X[kept], Y[kept], (levels / scale)[kept], at)
    known = query.diagnostics
    assert known["mean"] == pytest.approx(float(mean), abs=1e-7)
    assert known["standard_deviation"] == pytest.approx(float(covariance) ** 0.5, rel=1e-6)
    loop.close()
    loop = build(domain, acquisition, journal=path, **settings)
    loop.tell(query.id, 0.5, count=2)
    again = loop.ask(**given)
    loop.close()
    loop = build(domain, acquisition, journal=path, **settings)
    loop.tell_failed(again.id)
    loop.close()


def test_pending_queries_stand_for_one_observation_each() -> None:
    loop, other = build("box"), build("box")
    for each in (loop, other):
        for t in range(4):
            each.tell(each.ask().id, 0.2 * t, count=10)
    first = loop.ask()
    second = loop.ask()
    other.ask()
    X = torch.stack([q.x for q in loop.history.queries[:4]])
    rows = torch.cat([X, first.x.unsqueeze(0)])
    levels = torch.tensor([LAM / 10] * 4 + [LAM], dtype=torch.float64)
    y = torch.tensor([0.0, 0.2, 0.4, 0.6], dtype=torch.float64)
    mean, _ = posterior(KERNEL, X, y, levels[:4], first.x.unsqueeze(0))
    y = torch.cat([y, mean])
    _, covariance = posterior(KERNEL, rows, y, levels, second.x.unsqueeze(0))
    found = second.diagnostics["standard_deviation"]
    assert found == pytest.approx(float(covariance) ** 0.5, rel=1e-6)


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


@pytest.mark.slow
def test_certificates_cover_the_reward_in_runs_with_clicks() -> None:
    """200 runs of 15 rounds: the band of the last round holds everywhere but in few of them.

    Click rates are in [0, 1], so that single clicks are 1/2-sub-Gaussian. If the band failed in
    more than a tenth of all runs, 36 failures in 200 had a probability below 1e-3.
    """
    delta, kernel = 0.1, squared_exponential(0.25)
    choices = torch.linspace(0.0, 1.0, 15, dtype=torch.float64).unsqueeze(-1)
    model = BanditGP.with_kernel(RBFKernel(), noise=0.25, lengthscale=0.25, prior_mean=0.3)
    generator = np.random.default_rng(0)
    failures, certificates = 0, []
    for seed in range(200):
        centers = torch.from_numpy(generator.random((3, 1)))
        weights = torch.from_numpy(generator.uniform(-0.1, 0.2, 3))
        norm = float((weights @ kernel(centers, centers) @ weights).sqrt())
        rates = (0.3 + kernel(choices, centers) @ weights).clamp(0.0, 1.0)
        assert float((0.3 + kernel(choices, centers) @ weights - rates).abs().max()) == 0.0
        loop = BanditLoop(
            Arms(choices),
            model,
            ImprovedUpperConfidenceBound.with_options(
                rkhs_bound=norm,
                noise_bound=0.5,
                delta=delta,
                any_lambda=True,
                assume="centered bound",
            ),
            seed=seed,
        )
        for _ in range(15):
            query = loop.ask()
            rate = float(rates[int((query.x * 14).round())])
            shown = int(generator.integers(50, 5000))
            loop.tell(query.id, generator.binomial(shown, rate) / shown, count=shown)
        found = loop.recommend()
        assert found.certificate is not None
        best, here = float(rates.max()), float(rates[int((torch.tensor(found.point) * 14).round())])
        bounds = loop._chooser.bounds_on_arms()
        is_outside = bool(((rates < bounds.lower) | (rates > bounds.upper)).any())
        failures += is_outside or best - here > found.certificate
        certificates.append(found.certificate)
    assert failures < 36
    # thousands of impressions say much more than 15 outcomes
    assert float(np.median(certificates)) < 0.15


def test_arms_without_contexts_are_played_from_statistics() -> None:
    loop = build()
    loop.tell(loop.ask().id, 0.5, count=3)
    loop.ask()
    assert isinstance(loop._chooser._stream, PointsStream)
