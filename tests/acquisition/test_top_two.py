"""Top-two Thompson sampling: the law of what it plays, the challenger in closed form, its loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    ExponentialWeights,
    GPThompsonSampling,
    History,
    Ignored,
    ImprovedUpperConfidenceBound,
    SlidingWindow,
    TimeVaryingKernel,
    TopTwoThompsonSampling,
)
from botorch_bandits.acquisition.rules import Replicates
from botorch_bandits.acquisition.thompson_sampling import TopTwoArmsRule
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.core.priors import Prior
from tests.records import rebuilt

from .cases import bandit_gp, uniform

NOISE, LENGTHSCALE = 0.1, 0.3
GRID = np.linspace(0.0, 1.0, 7)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.2}
CHOICES = uniform(6, 2, seed=3)
ALWAYS = {"leader_probability": 1e-12}  # the challenger


def make(acquisition: Any, model: Any = MODEL, domain: Any = ARMS, **options: Any) -> BanditLoop:
    return BanditLoop(domain, model, acquisition, **options)


def top_two(**options: Any) -> Any:
    return TopTwoThompsonSampling.with_options(**options)


def rbf(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / LENGTHSCALE**2)


def law_of_top_two(mean: np.ndarray, covariance: np.ndarray, share: float) -> np.ndarray:
    """Probabilities of the arms by the definition, from a great many draws of the posterior."""
    random = np.random.default_rng(0)
    draws = random.multivariate_normal(mean, covariance, size=400_000, method="eigh")
    best = np.bincount(draws.argmax(-1), minlength=len(mean)) / len(draws)
    challenger = np.zeros(len(mean))
    for leader, p in enumerate(best):
        others = np.delete(np.arange(len(mean)), leader)
        challenger[others] += p * best[others] / (1.0 - p)
    return share * best + (1.0 - share) * challenger


def check_law(counts: np.ndarray, law: np.ndarray) -> None:
    """Within four and a half standard deviations each; the law is itself of 400 000 draws."""
    total = counts.sum()
    deviation = np.sqrt(law * (1.0 - law) * (1.0 / total + 1.0 / 100_000))
    assert np.all(np.abs(counts / total - law) <= 4.5 * deviation + 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("num_streams", [1, 3])
def test_arms_are_played_by_the_law_of_russo(num_streams: int) -> None:
    K = rbf(GRID, GRID)
    rule = TopTwoArmsRule(ConstantWidth(1.0), leader_probability=0.3, max_draws=300)
    prior, seeds = Prior.from_matrix(torch.from_numpy(K)), list(range(num_streams))
    player = Replicates(rule, [prior], NOISE, [1.0], seeds, prior_mean=0.4)
    rows, y = np.array([0, 2, 3, 3, 5]), np.array([0.1, 0.9, 0.8, 1.1, 0.2])
    for arm, outcome in zip(rows, y, strict=True):
        player.observe(*(torch.tensor(each).expand(num_streams) for each in (arm, outcome)))
    ridge = K[np.ix_(rows, rows)] + NOISE * np.eye(len(rows))
    gains = np.linalg.solve(ridge, K[rows]).T
    law = law_of_top_two(0.4 + gains @ (y - 0.4), K - gains @ K[rows], 0.3)
    played = torch.stack([player.choose(player.look(t)) for t in range(1, 1501)])
    for stream in played.reshape(1500, -1).mT:
        check_law(np.bincount(stream.numpy(), minlength=len(GRID)), law)


SETTINGS: dict[str, dict[str, Any]] = {
    "arms": {},
    "pending queries drawn anew": {"pending": "redraw"},
    "pending queries left out": {"feedback": Ignored()},
    "contexts": {"context_dim": 1},
    "a window": {"forgetting": SlidingWindow(8)},
    "weights": {"forgetting": ExponentialWeights(0.8)},
    "time": {"forgetting": TimeVaryingKernel(0.1)},
    "costs": {"maximize": False},
    "a model and no engine": {"model": lambda X, Y: MODEL(X, Y)},
}


def history_of(seed: int, has_context: bool, maximize: bool) -> tuple[History, np.ndarray]:
    """Twelve queries of which two are pending; and their places, contexts and outcomes."""
    random = np.random.default_rng(seed)
    history = History(1, 1 if has_context else 0, maximize=maximize)
    table = np.stack([GRID[random.integers(7, size=12)], random.random(12), random.random(12)])
    for i, (x, z, y) in enumerate(table.T):
        context = double([z]) if has_context else None
        arm = int((x == GRID).argmax())
        history.record(history.new_query(double([x]), "acquisition", float(i), context, arm=arm))
        if i not in (7, 10):
            history.record(history.new_outcome(i, y, float(i)))
    return history, table


def dense_posterior(
    name: str, table: np.ndarray, rows: list[int], noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the arms in round 13 and, where there are any, context 0.5."""
    x, z, y = table[:, rows]
    rounds = np.array(rows) + 1.0
    among, cross = rbf(x, x), rbf(GRID, x)
    if name == "contexts":
        among, cross = among * rbf(z, z), cross * rbf(np.full(7, 0.5), z)
    if name == "time":
        among = among * 0.9 ** (np.abs(np.subtract.outer(rounds, rounds)) / 2.0)
        cross = cross * 0.9 ** ((13.0 - rounds) / 2.0)
    gains = np.linalg.solve(among + np.diag(noise[rows]), cross.T).T
    return gains @ y, rbf(GRID, GRID) - gains @ cross.T


@pytest.mark.parametrize("name", SETTINGS)
def test_without_further_draws_the_challenger_is_that_of_t3c(name: str) -> None:
    """Its value is that of dense algebra, given the leader that Thompson sampling plays."""
    settings = dict(SETTINGS[name])
    model = settings.pop("model", MODEL)
    pending = {"pending": settings.pop("pending")} if "pending" in settings else {}
    takes_pending = not (pending or "feedback" in settings)
    has_context, minimizes = "context_dim" in settings, "maximize" in settings
    now = {"context": double([0.5])} if has_context else {}
    noise = np.full(12, NOISE)
    if name == "weights":
        noise = NOISE / 0.8 ** (11.0 - np.arange(12.0))
        noise[[7, 10]] = NOISE  # what is pending has its full weight
    first = 4 if name == "a window" else 0
    seen = [i for i in range(first, 12) if i not in (7, 10)]
    leaders = set()
    for seed in range(6):
        plays = {}
        for kind, acquisition in (
            ("leader", GPThompsonSampling.with_options(width=1.0, **pending)),
            ("challenger", top_two(max_draws=0, **ALWAYS, **pending)),
        ):
            history, table = history_of(seed, has_context, not minimizes)
            loop = make(acquisition, model, seed=seed, **settings)
            plays[kind] = rebuilt(loop, history).ask(**now)
        mean, S = dense_posterior(name, table, seen, noise)
        if takes_pending:
            S = dense_posterior(name, table, [*seen, 7, 10], noise)[1]
        if minimizes:
            mean = -mean
        arm = {kind: int(np.abs(GRID - float(q.x)).argmin()) for kind, q in plays.items()}
        leader = arm["leader"]
        difference = np.diag(S) + S[leader, leader] - 2.0 * S[leader]
        above = (mean - mean[leader]) / np.sqrt(np.maximum(difference, 1e-18))
        above[leader] = -math.inf
        assert arm["challenger"] == above.argmax()
        known = plays["challenger"].diagnostics
        assert known["acquisition_value"] == pytest.approx(above.max(), abs=1e-8)
        assert known["is_challenger"] == 1.0
        leaders.add(leader)
    assert len(leaders) > 1


@pytest.mark.parametrize("maximize", [True, False])
def test_a_drop_in_has_the_challenger_of_t3c(maximize: bool) -> None:
    model = bandit_gp()
    pending = uniform(2, 2, seed=4)
    everything = torch.cat([CHOICES, pending])
    posterior = model.posterior(everything)
    mean = posterior.mean.squeeze(-1).detach()[:6]
    joint = posterior.distribution.covariance_matrix.detach()
    block = joint[6:, 6:] + float(model.likelihood.noise.mean()) * torch.eye(2).double()
    S = joint[:6, :6] - joint[:6, 6:] @ torch.linalg.solve(block, joint[6:, :6])
    for seed in range(10):
        options: dict[str, Any] = {"choices": CHOICES, "seed": seed, "maximize": maximize}
        options |= {"pending": "hallucinate", "X_pending": pending}
        draw = GPThompsonSampling(model, width=1.0, **options)
        leader = int(draw(CHOICES.unsqueeze(-2)).argmax())
        found = TopTwoThompsonSampling(model, max_draws=0, **ALWAYS, **options)
        deviation = (S.diagonal() + S[leader, leader] - 2.0 * S[leader]).sqrt()
        above = (mean - mean[leader]) / deviation * (1.0 if maximize else -1.0)
        scale = found.value_scale
        assert scale is not None
        values = (found(CHOICES.unsqueeze(-2)).detach() - scale.offset) / scale.unit
        others = [i for i in range(6) if i != leader]
        assert torch.allclose(values[others], above[others], atol=1e-8)
        assert int(values.argmax()) == max(others, key=above.tolist().__getitem__)
        assert found.describe(CHOICES[0])["is_challenger"] == 1.0


def test_its_confidence_bounds_are_those_of_igp_ucb_and_no_regret_is_claimed() -> None:
    bounds = {**BOUNDS, "delta": 0.05, "any_lambda": True}
    loops = [make(top_two(**bounds)), make(ImprovedUpperConfidenceBound.with_options(**bounds))]
    for loop in loops:
        for i in range(9):
            loop.attach([GRID[i % 7]], math.sin(3.0 * GRID[i % 7]))
    found, expected = (loop.recommend() for loop in loops)
    for name in ("arm", "theorem", "delta", "assumptions"):
        assert getattr(found, name) == getattr(expected, name)
    for name in ("mean", "certificate", "lower_bound", "upper_bound", "best_possible"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-9)
    guarantee = loops[0].guarantee()
    assert not guarantee.holds
    assert guarantee.bands is not None
    assert guarantee.bands.holds
    assert guarantee.regret is not None
    assert not guarantee.regret.holds
    assert guarantee.regret_bound is None
    assert "independent arms" in guarantee.explain(10_000)
    without = make(top_two()).guarantee()
    assert without.theorem is None
    assert "no regret bound is stated" in str(without)


def test_what_it_cannot_do_is_refused_with_the_reason() -> None:
    model = bandit_gp()
    with pytest.raises(ValueError, match="choices is None, but"):
        make(top_two(), domain=Box([[0.0], [1.0]]))
    with pytest.raises(ValueError, match="choices is None, but"):
        TopTwoThompsonSampling(model)
    for wrong in (0.0, 1.0, math.nan, -0.5):
        with pytest.raises(ValueError, match=f"leader_probability is {wrong}"):
            top_two(leader_probability=wrong)
    with pytest.raises(ValueError, match="max_draws is -1"):
        top_two(max_draws=-1)
    with pytest.raises(ValueError, match="for the acquisition TopTwoThompsonSampling"):
        make(top_two(), feedback=Censored(0.0, max_delay=3))
    with pytest.raises(ValueError, match=r"surrogate='separate'|separately"):
        make(top_two(), constraints=AdditiveEpochs(1, epoch_length=3, surrogate="separate"))
    with pytest.raises(TypeError, match=r"choices has dtype torch\.float32"):
        TopTwoThompsonSampling(model, choices=CHOICES.float())


def test_one_choice_is_chosen() -> None:
    loop = make(top_two(), domain=Arms(CHOICES[:1]))
    for _ in range(3):
        query = loop.ask()
        assert query.x.tolist() == CHOICES[0].tolist()
        loop.tell(query.id, 0.5)
