"""What `best()` says where the reward is not the same in all rounds: what is best now."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    CandidatesUpperConfidenceBound,
    ExponentialWeights,
    GPUpperConfidenceBound,
    OracleRestart,
    RandomSearch,
    SlidingWindow,
    TimeVaryingKernel,
)
from tests.models.textbook import double, posterior, squared_exponential

NOISE, KERNEL = 0.05, squared_exponential(0.3)
ARMS = Arms(torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1))
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=0.3)
UCB = GPUpperConfidenceBound.with_options(delta=0.1)


def make(model: Any = MODEL, acquisition: Any = UCB, **options: Any) -> BanditLoop:
    return BanditLoop(ARMS, model, acquisition, **options)


def play(loop: BanditLoop, *rewards: float, g: Any = None) -> None:
    for i, reward in enumerate(rewards):
        loop.tell(loop.ask().id, reward, None if g is None else [g[i]])


def id_of(best: Any) -> int | None:
    return None if best is None else best[0].id


def restart_after(number: int) -> OracleRestart:
    return OracleRestart(change_points=(number,), exploration=None)


def test_after_a_reset_only_what_came_since_counts() -> None:
    loop = make(restart=restart_after(3))
    play(loop, 5.0, 9.0, 7.0)
    assert id_of(loop.best()) == 1
    first = loop.ask()
    assert loop.resets[-1].after_round == 3
    assert loop.best() is None  # nothing is known of what is best now
    loop.tell(first.id, 1.0)
    play(loop, 2.0, 2.0)
    assert id_of(loop.best()) == 4
    assert id_of(loop.history.best()) == 1
    late = make(restart=restart_after(2))
    query = late.ask()
    play(late, 3.0, 1.0)
    late.tell(query.id, 8.0)  # of before the reset
    assert id_of(late.best()) == 2


def test_with_constraints_it_is_the_best_since_then_that_meets_them() -> None:
    loop = make(constraints=AdditiveEpochs(1, 2), restart=restart_after(2))
    play(loop, 9.0, 8.0, 5.0, 2.0, 1.0, g=(-1.0, -1.0, 0.5, 0.0, -1.0))
    assert id_of(loop.best()) == 3
    loop = make(context_dim=1, constraints=AdditiveEpochs(1, 50))
    for x, reward, g in ((0.0, 2.0, 0.5), (0.5, 1.0, -1.0), (1.0, 0.5, -1.0)):
        loop.attach([x], reward, [g], context=[0.0])
    assert id_of(loop.best([0.0])) == 1


def test_only_what_is_in_the_window_counts() -> None:
    loop = make(forgetting=SlidingWindow(3))
    play(loop, 9.0, 1.0, 3.0, 2.0)
    assert id_of(loop.best()) == 2
    for expected in (2, 3, None):  # the window moves on, with queries that have no outcome
        loop.ask()
        assert id_of(loop.best()) == expected


@pytest.mark.parametrize("forgetting", [ExponentialWeights(0.7), TimeVaryingKernel(0.3)], ids=str)
def test_where_outcomes_fade_the_posterior_mean_now_decides(forgetting: Any) -> None:
    loop, decided = make(forgetting=forgetting), []
    plays = [(0.0, 2.0), (0.125, 1.0), (0.75, 1.2), (1.0, 1.0), (0.875, 1.1), (0.0, 0.3)]
    for n, (x, reward) in enumerate(plays, start=1):
        loop.attach([x], reward)
        X, y = double(plays[:n])[:, :1], double(plays[:n])[:, 1]
        rounds, noise = (
            torch.arange(1.0, n + 2).double(),
            torch.full((n,), NOISE, dtype=torch.float64),
        )

        def kernel(A: Tensor, C: Tensor) -> Tensor:
            values = KERNEL(A[:, 1:], C[:, 1:])
            if isinstance(forgetting, TimeVaryingKernel):
                values = values * 0.7 ** ((A[:, None, 0] - C[None, :, 0]).abs() / 2)
            return values

        if isinstance(forgetting, ExponentialWeights):
            noise = NOISE / 0.7 ** (n - rounds[:-1])
        rows = torch.cat([rounds[:-1].unsqueeze(-1), X], dim=-1)
        now = torch.cat([rounds[-1:].expand(n, 1), X], dim=-1)
        means = posterior(kernel, rows, y, noise, now)[0]
        best, outcome = loop.best()  # type: ignore[misc]
        assert float(best.x) == float(X[means.argmax()])
        assert best.id == max(i for i in range(n) if X[i] == best.x)  # the latest there
        assert outcome.query_id == best.id
        decided.append(best.id)
    assert decided[0] == 0
    assert id_of(loop.history.best()) == 0
    assert decided[-1] in (2, 3, 4)


PLAYS = ((0.0, 0.0, 1.0), (0.0, 1.0, 0.1), (1.0, 0.0, 0.2), (1.0, 0.875, 1.5), (1.0, 0.0, 0.3))
"""Context, point and reward."""


def with_contexts(**options: Any) -> BanditLoop:
    loop = make(context_dim=1, **options)
    for context, x, reward in PLAYS:
        loop.attach([x], reward, context=[context])
    return loop


def test_the_context_is_asked_for() -> None:
    loop = with_contexts()
    with pytest.raises(ValueError, match=r"context is missing: .*best\(context=.*history.best"):
        loop.best()
    with pytest.raises(ValueError, match="vector of length 1"):
        loop.best([0.0, 1.0])
    with pytest.raises(ValueError, match="context is"):
        make().best([0.0])
    assert id_of(loop.history.best()) == 3


@pytest.mark.parametrize("context", [0.0, 0.4, 1.0])
def test_it_is_the_point_with_the_largest_mean_in_the_context(context: float) -> None:
    rows, points = double(PLAYS), double([[0.0], [1.0], [0.875]])
    at = torch.cat([torch.full((3, 1), context, dtype=torch.float64), points], dim=-1)
    means = posterior(KERNEL, rows[:, :2], rows[:, 2], NOISE, at)[0]
    best, outcome = with_contexts().best([context])  # type: ignore[misc]
    assert torch.equal(best.x, points[means.argmax()])
    assert outcome.query_id == best.id


def test_of_outcomes_at_the_point_it_is_one_of_the_context_or_else_the_latest() -> None:
    loop = with_contexts()
    assert id_of(loop.best(torch.zeros(1, dtype=torch.float64))) == 0
    assert id_of(loop.best([0.05])) == 4  # at the same point, not in this context
    assert id_of(loop.best([1.0])) == 3
    # without a model what was told in the context counts
    search = with_contexts(model=None, acquisition=RandomSearch())
    assert [id_of(search.best([c])) for c in (0.0, 1.0, 0.5)] == [0, 3, None]


def test_in_a_context_a_list_of_priors_has_the_mean_of_its_mixture() -> None:
    priors = [BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=s) for s in (0.1, 0.4)]
    loop = BanditLoop(
        ARMS,
        BanditGP.with_candidates(priors),
        CandidatesUpperConfidenceBound.with_options(),
        context_dim=1,
        seed=1,
    )
    for t in range(12):
        query = loop.ask(context=[0.1 * t])
        loop.tell(query.id, -float((query.x - 0.3).square().sum()) + 0.1 * t)
    context = double([0.5])
    best = loop.best(context=context)
    played = torch.stack([query.x for query in loop.history.queries])
    X = torch.cat([context.expand(len(played), 1), played], dim=-1)
    model: Any = loop.current_model()
    with torch.no_grad():
        means, _ = model.mixture(X)
    assert best is not None
    assert float(means[best[0].id]) == pytest.approx(float(means.max()), abs=1e-12)
