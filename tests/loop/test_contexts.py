"""Contexts: the point is chosen for a context that is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.test_functions import Branin
from gpytorch.kernels import Kernel, MaternKernel, ProductKernel, RBFKernel
from records import ON_BOXES, assert_same
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    ChangePointUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    History,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    RandomSearch,
    run,
)

CHOICES = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}


def product_kernel() -> Kernel:
    return ProductKernel(
        RBFKernel(active_dims=(0,)), MaternKernel(nu=2.5, active_dims=(1,))
    ).double()


def reward(context: float, x: float) -> float:
    return float(-((x - context) ** 2))


ACQUISITIONS = {
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**BOUNDS),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
    "DMM": DMMUpperConfidenceBound.with_options(**BOUNDS),
    "EI": LogExpectedImprovement.with_options(),
    "GP-TS": GPThompsonSampling.with_options(**BOUNDS),
    "random": RandomSearch(),
}


def make_loop(domain: str, acquisition: Any, kernel: Kernel | None = None, **options: Any) -> Any:
    return BanditLoop(
        Arms(CHOICES) if domain == "arms" else Box([[0.0], [1.0]], num_restarts=4, raw_samples=32),
        BanditGP.with_kernel(RBFKernel() if kernel is None else kernel, noise=0.01),
        acquisition,
        context_dim=1,
        seed=2,
        **options,
    )


@pytest.mark.parametrize("domain", ["arms", "box"])
@pytest.mark.parametrize("name", ACQUISITIONS)
def test_choice_is_the_best_for_the_context(domain: str, name: str) -> None:
    """Against an evaluation of the acquisition function on a grid of points in that context."""
    loop = make_loop(domain, ACQUISITIONS[name], num_initial=2)
    contexts = torch.rand(7, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for t in range(6):
        query = loop.ask(context=contexts[t])
        assert torch.equal(query.context, contexts[t])
        assert query.x.shape == (1,)
        loop.settings.domain.check_point("x", query.x)
        loop.tell(query.id, reward(float(query.context), float(query.x)))
    X = loop.history.arrived()[0]
    assert X.shape == (6, 2)
    assert torch.equal(X[:, :1], contexts[:6])
    if name in ("random", "GP-TS"):
        return
    round_number, context = 7, contexts[6]
    acquisition = loop._chooser._builder.build(
        loop._chooser._played, round_number, loop.settings.domain.in_context(context), 0.0
    )
    grid = torch.linspace(0, 1, 11 if domain == "arms" else 2001, dtype=torch.float64)
    points = torch.stack([context.expand(len(grid)), grid], dim=-1).unsqueeze(-2)
    values = acquisition(points)
    query = loop.ask(context=context)
    chosen = acquisition(torch.cat([context, query.x]).reshape(1, 1, 2))
    assert float(chosen) >= float(values.max()) - 1e-6
    assert query.diagnostics["acquisition_value"] == pytest.approx(float(chosen), abs=1e-8)


@pytest.mark.parametrize("kernel", [RBFKernel(), product_kernel()])
@pytest.mark.parametrize("domain", ["arms", "box"])
def test_points_follow_the_context(domain: str, kernel: Kernel) -> None:
    """The best point is the context itself; contexts repeat and come in any order."""
    recipe = ImprovedUpperConfidenceBound.with_options(width=1.5)
    loop = BanditLoop(
        Arms(CHOICES) if domain == "arms" else Box([[0.0], [1.0]]),
        BanditGP.with_kernel(kernel, noise=1e-3),
        recipe,
        context_dim=1,
    )
    contexts = torch.tensor([0.2, 0.8, 0.2, 0.5, 0.8, 0.2, 0.5, 0.35] * 3, dtype=torch.float64)
    errors = []
    for context in contexts:
        query = loop.ask(context=context.reshape(1))
        errors.append(abs(float(query.x) - float(context)))
        loop.tell(query.id, reward(float(context), float(query.x)))
    assert sum(errors[-8:]) / 8 < 0.08


@pytest.mark.parametrize("name", ["IGP-UCB", "GP-TS"])
@pytest.mark.parametrize("domain", ["arms", "box"])
def test_rebuilt_loop_continues(domain: str, name: str) -> None:
    contexts = torch.rand(8, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def play(loop: BanditLoop, last: int) -> list[Tensor]:
        for t in range(loop.history.num_queries, last):
            query = loop.ask(context=contexts[t])
            if t != 3:  # one stays pending
                loop.tell(query.id, reward(float(contexts[t]), float(query.x)))
        return [query.x for query in loop.history.queries]

    whole = play(make_loop(domain, ACQUISITIONS[name]), 8)
    first = make_loop(domain, ACQUISITIONS[name])
    play(first, 5)
    history = History.from_records(first.history.to_records(), dim=1, context_dim=1)
    second = make_loop(domain, ACQUISITIONS[name], history=history)
    assert_same(play(second, 8), whole, ON_BOXES)


def test_pending_queries_count_in_their_own_context() -> None:
    loop = make_loop("arms", ACQUISITIONS["IGP-UCB"])
    here, there = (torch.tensor([c], dtype=torch.float64) for c in (0.0, 50.0))
    first = loop.ask(context=here)
    assert float(loop.ask(context=here).x) != float(first.x)  # known to be pending here
    assert float(loop.ask(context=there).x) == float(first.x)  # another context tells nothing


def test_rows_on_arms_are_added_and_not_rebuilt() -> None:
    loop = make_loop("arms", ACQUISITIONS["IGP-UCB"])
    memory = set()
    for t in range(4):
        query = loop.ask(context=torch.tensor([t % 2], dtype=torch.float64))
        loop.tell(query.id, 0.1 * t)
        growing = loop._chooser._stream.player._conditioner._growing
        assert len(growing._rows) == t  # as of the last query
        memory.add(growing._buffer.data_ptr())
    assert len(memory - {0}) == 1
    assert loop._chooser._cached_builder is None  # no model was built


def test_integer_dimensions_in_a_context() -> None:
    for high in (5, 40):  # all combinations, and BoTorch's alternating search
        loop = BanditLoop(
            Box([[0.0, 0.0], [1.0, high]], integer_dims=[1], num_restarts=2, raw_samples=16),
            BanditGP.with_kernel(RBFKernel(), noise=0.01),
            ACQUISITIONS["IGP-UCB"],
            context_dim=2,
        )
        for t in range(3):
            query = loop.ask(context=torch.tensor([0.5, float(t)], dtype=torch.float64))
            assert float(query.x[1]) == round(float(query.x[1]))
            loop.tell(query.id, float(query.x.sum()))


def test_a_users_model_and_acquisition_get_context_columns() -> None:
    seen = []

    def build(X: Tensor, Y: Tensor) -> SingleTaskGP:
        seen.append(X.shape)
        return SingleTaskGP(X, Y)

    loop = BanditLoop(
        Box([[0.0], [1.0]], num_restarts=2, raw_samples=8),
        build,
        GPUpperConfidenceBound.with_options(width=2.0),
        context_dim=2,
        num_initial=2,
    )
    for t in range(4):
        query = loop.ask(context=[0.1 * t, 1.0])
        loop.tell(query.id, float(query.x))
    assert seen[-1] == (3, 3)


def test_guarantee_holds_in_contexts() -> None:
    loop = make_loop("arms", ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True))
    assert loop.guarantee().holds
    for t in range(3):
        query = loop.ask(context=[0.3 * t])
        loop.tell(query.id, 0.1)
    guarantee = loop.guarantee()
    assert guarantee.holds
    assert guarantee.regret_bound is not None


def test_run_plays_contexts() -> None:
    problem = Branin(negate=True)
    domain = Box([[0.0], [15.0]], num_restarts=2, raw_samples=16)
    contexts = torch.linspace(-5, 10, 6, dtype=torch.float64).unsqueeze(-1)
    results = []
    for given in (contexts, lambda t: contexts[t - 1]):
        loop = BanditLoop(
            domain,
            BanditGP.with_kernel(RBFKernel(), noise=0.01),
            GPUpperConfidenceBound.with_options(width=2.0),
            context_dim=1,
        )
        results.append(run(loop, problem, 6, contexts=given, progress=False))
    X, _ = results[0].history.arrived()
    assert torch.equal(X[:, :1], contexts)
    assert torch.allclose(results[0].rewards, problem(X))
    assert torch.equal(results[0].rewards, results[1].rewards)
    with pytest.raises(ValueError, match="regret needs"):
        _ = results[0].regret
    with pytest.raises(ValueError, match="contexts has 6 rows"):
        run(loop, problem, 1, contexts=contexts, progress=False)


@pytest.mark.parametrize(
    ("context", "error", "message"),
    [
        (None, ValueError, "context is missing"),
        (torch.tensor([0.1, 0.2]).double(), ValueError, "context"),
        (torch.tensor([0.1]), TypeError, "float64"),
        ([float("nan")], ValueError, "nan"),
    ],
)
def test_bad_contexts_are_refused_before_anything_is_recorded(
    context: Any, error: type[Exception], message: str
) -> None:
    loop = make_loop("arms", ACQUISITIONS["IGP-UCB"])
    with pytest.raises(error, match=message):
        loop.ask(context=context)
    assert loop.history.num_queries == 0


def test_context_without_context_dim_is_refused() -> None:
    loop = BanditLoop(Arms(CHOICES), None, RandomSearch())
    with pytest.raises(ValueError, match="context_dim=0"):
        loop.ask(context=[0.1])
    with pytest.raises(ValueError, match="context dimensions"):
        BanditLoop(Arms(CHOICES), None, RandomSearch(), context_dim=1, history=History(1))


def test_dimensions_in_the_options_are_checked_with_the_contexts_at_once():
    settings = {"horizon": 100, "smoothness": 2.5}
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01)
    with pytest.raises(ValueError, match="has dim=1"):
        BanditLoop(
            Box([[0.0], [1.0]]),
            model,
            ChangePointUpperConfidenceBound.with_options(dim=1, **settings),
            context_dim=1,
        )
    BanditLoop(
        Box([[0.0], [1.0]]),
        model,
        ChangePointUpperConfidenceBound.with_options(dim=2, **settings),
        context_dim=1,
    ).ask([0.5])
