"""Runs whose rounds could choose from a part of the domain: regret is against the best of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double, line
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditLoop,
    Box,
    PrimalDual,
    RandomSearch,
    run,
)
from botorch_bandits.problems import (
    ConstrainedArmsProblem,
    gp_draw_on_arms,
)

CHOICES = line(0.0, 1.0, 30)


def sets(round_number: int) -> Mapping[str, Any] | None:
    if round_number % 3 == 0:
        return None
    generator = torch.Generator().manual_seed(round_number)
    return {"available": torch.randperm(30, generator=generator)[:6], "avoid": [0]}


def random_loop(**options: Any) -> BanditLoop:
    return BanditLoop(Arms(CHOICES), None, RandomSearch(), seed=2, **options)


def best_of_each(loop: BanditLoop, values: Tensor) -> Tensor:
    """From the numbers of the arms that each round had, and the values of all arms in it."""
    best = []
    for i, query in enumerate(loop.history.queries):
        row = values if values.dim() == 1 else values[i]
        there = sets(query.round_number)
        left = range(30) if there is None else set(there["available"].tolist()) - {0}
        best.append(max(float(row[j]) for j in left))
    return double(best)


@pytest.mark.parametrize("num_parts", [1, 2])
def test_regret_is_against_the_best_of_what_was_there(num_parts: int) -> None:
    problem = gp_draw_on_arms(RBFKernel().double(), CHOICES, seed=1, noise_std=0.1)
    loop = random_loop()
    for _ in range(num_parts):  # a run that goes on asks for its own rounds
        result = run(loop, problem, 24 // num_parts, restriction=sets, progress=False)
    f = problem(CHOICES, noise=False)
    at = torch.stack([query.x for query in loop.history.queries])
    expected = (best_of_each(loop, f) - problem(at, noise=False))[-len(result.rewards) :]
    assert torch.allclose(result.regret, expected, rtol=0.0, atol=1e-12)
    assert bool((result.regret >= 0.0).all())
    assert float(result.regret.sum()) < float((f.max() - result.values).sum())  # type: ignore[operator]
    for query in loop.history.queries:
        there = sets(query.round_number)
        assert (query.restriction is None) == (there is None)
        if query.restriction is not None:
            wanted = sorted(set(there["available"].tolist()) - {0})  # type: ignore[index]
            assert query.restriction == {"arms": wanted}


def test_regret_of_costs_and_under_constraints() -> None:
    f = (7.0 * CHOICES[:, 0]).sin()
    g = CHOICES - 0.6
    problem = ConstrainedArmsProblem(CHOICES, f, g)
    rule = PrimalDual(1, 2.0, 4.0)
    loop = random_loop(constraints=rule)
    result = run(loop, problem, 12, restriction=sets, progress=False)
    for i, query in enumerate(loop.history.queries):
        there = sets(query.round_number)
        left = range(30) if there is None else sorted(set(there["available"].tolist()) - {0})
        best = max(float(f[j]) for j in left if float(g[j, 0]) <= 0.0)
        at = int(Arms(CHOICES).index_of(query.x.unsqueeze(0)))
        assert float(result.regret[i]) == pytest.approx(best - float(f[at]), abs=1e-12)
    # none of those that are there is feasible
    only = run(loop, problem, 1, restriction=lambda t: {"available": [28, 29]}, progress=False)
    assert bool(only.regret.isnan().all())


def test_regret_is_not_known_where_only_coordinates_are_given() -> None:
    from botorch.test_functions import Branin

    loop = BanditLoop(Box([(-5.0, 10.0), (0.0, 15.0)]), None, RandomSearch())
    problem = Branin(negate=True)
    assert len(run(loop, problem, 2, progress=False).regret) == 2
    result = run(loop, problem, 2, restriction=lambda t: {"fixed": {0: 1.0}}, progress=False)
    with pytest.raises(ValueError, match="restricted other than"):
        _ = result.regret
    points = double([[0.0, 5.0], [3.0, 2.5], [9.0, 14.0]])
    listed = run(loop, problem, 3, restriction=lambda t: {"available": points}, progress=False)
    best = problem(points, noise=False).max()
    assert torch.allclose(listed.regret, best - listed.values)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ([0, 1], TypeError, "restriction"),
        (lambda t: [0, 1], TypeError, "mapping"),
        (lambda t: {"arms": [0]}, TypeError, "'arms'"),
        (lambda t: {"available": [99]}, ValueError, "available names arm 99"),
    ],
)
def test_what_makes_no_sense_is_refused(given: Any, error: type[Exception], message: str) -> None:
    loop = random_loop()
    with pytest.raises(error, match=message):
        run(loop, lambda x: 0.0, 1, restriction=given, progress=False)
    assert loop.history.num_queries == 0
