"""On boxes and spaces: coordinates that are given, points to avoid, and lists of points."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel
from numpy.typing import NDArray

from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    EvidenceRestart,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Query,
    RandomSearch,
    Space,
)
from botorch_bandits.spaces import Categorical, Fixed, Float, Integer
from tests.models.textbook import matern, posterior

Array = NDArray[np.float64]
NOISE, LENGTH, WIDTH = 0.05, 0.4, 2.5
UCB = GPUpperConfidenceBound.with_options(width=WIDTH)


def recipe() -> Any:
    return BanditGP.with_kernel(MaternKernel(nu=2.5).double(), noise=NOISE, lengthscale=LENGTH)


def textbook(X: Array, y: Array, at: Array) -> Array:
    """Upper bounds at points."""
    kernel = matern(2.5, LENGTH)
    rows, values = torch.from_numpy(X), torch.from_numpy(y)
    mean, covariance = posterior(kernel, rows, values, NOISE, torch.from_numpy(at))
    return (mean + WIDTH * covariance.diagonal().sqrt()).numpy()


def disk(x: torch.Tensor) -> torch.Tensor:
    return 0.6 - (x[:2] - 0.3).square().sum()


SQUARE = [(0.0, 1.0), (0.0, 1.0)]
DOMAINS: dict[str, tuple[Box, dict[Any, Any]]] = {
    "a box": (Box(SQUARE), {1: 0.25}),
    "long sides": (Box([(0.0, 1.0), (-3000.0, 3000.0)]), {1: 0.125}),
    "three dimensions, two of them given": (Box([*SQUARE, (-1.0, 1.0)]), {0: 0.75, 2: -0.5}),
    "whole numbers": (Box([*SQUARE, (0.0, 3.0)], integer_dims=[2]), {1: 0.5}),
    "a whole number": (Box([*SQUARE, (0.0, 3.0)], integer_dims=[2]), {2: 2}),
    "many whole numbers": (Box([*SQUARE, (0.0, 40.0)], integer_dims=[2]), {0: 0.5}),
    "only whole numbers are left": (Box([(0.0, 1.0), (0.0, 40.0)], integer_dims=[1]), {0: 0.5}),
    "nothing is left": (Box(SQUARE), {0: 0.5, 1: 0.125}),
    "an inequality": (Box(SQUARE, inequality_constraints=[([0, 1], [-1.0, -1.0], -0.9)]), {1: 0.5}),
    "an equality": (
        Box([*SQUARE, (0.0, 1.0)], equality_constraints=[([0, 1, 2], [1.0, 1.0, 1.0], 1.2)]),
        {1: 0.25},
    ),
    "a disk": (Box(SQUARE, nonlinear_inequality_constraints=[(disk, True)]), {0: 0.875}),
    "an inequality on what is given": (
        Box([*SQUARE, (0.0, 2.0)], inequality_constraints=[([1], [1.0], 0.1), ([0, 2], [1, 1], 1)]),
        {1: 0.5, 2: 0.75},
    ),
    "names": (Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0), "c": Fixed("a")}), {"y": 0.25}),
    "an integer by name": (
        Space({"x": Float(0.0, 1.0), "n": Integer(1, 9, log=True), "c": Fixed("a")}),
        {"n": 4, "c": "a"},
    ),
    "a category": (
        Space({"x": Float(0.01, 1.0, log=True), "k": Categorical(["a", "b", "c"])}), {"k": "b"}
    ),
    "only categories are left": (
        Space({"x": Float(0.0, 1.0), "k": Categorical(["a", "b", "c"])}), {"x": 0.5}
    ),
    "all finite": (
        Space({"n": Integer(1, 6), "k": Categorical(["a", "b", "c"], ordered=True)}), {"k": "c"}
    ),
}  # fmt: skip


def played(domain: Box, num_rounds: int = 12, **options: Any) -> BanditLoop:
    given = {"model": recipe(), "acquisition": UCB, "seed": 3, **options}
    loop = BanditLoop(domain, **given)
    dim = given.get("context_dim", 0)
    for t, x in enumerate(domain.sample(num_rounds, torch.Generator().manual_seed(1))):
        context = [0.25 * (t % 3)] if dim else None
        y = math.sin(5.0 * float(x.sum()) + (context or [0.0])[0]) + 0.1 * math.sin(9.0 * t)
        loop.attach(x, y, context=context)
    return loop


def coordinates(domain: Box, fixed: dict[Any, Any]) -> dict[int, float]:
    if not isinstance(domain, Space):
        return {i: float(value) for i, value in fixed.items()}
    kinds = domain.parameters
    return {
        domain.names.index(name): kinds[name].encode(value)
        for name, value in fixed.items()
        if name in domain.names
    }


def points_of(domain: Box, held: dict[int, float], num_points: int = 1500) -> Array:
    """Feasible points with given coordinates, from a grid or a sample of the others."""
    free = [i for i in range(domain.dim) if i not in held]
    axes = []
    for i in range(domain.dim):
        low, high = domain.bounds[:, i].tolist()
        count = max(2, round(num_points ** (1.0 / max(len(free), 1))))
        grid = np.linspace(low, high, count).tolist()
        grids = domain.coordinates.grids
        values = grids[i].values() if i in grids else grid
        axes.append([held[i]] if i in held else values)
    points = torch.tensor(list(itertools.product(*axes)), dtype=torch.float64)
    if "equality_constraints" in domain.constraints:  # of three coordinates, of which one is given
        points[:, 2] = 1.2 - points[:, 0] - points[:, 1]
        points = points[(points[:, 2] >= 0.0) & (points[:, 2] <= 1.0)]
    if domain.feasible is not None:
        points = points[domain.feasible.contains(points)]
    assert len(points)
    return points.numpy()


def check_largest(query: Query, loop: BanditLoop, others: Array, slack: float = 1e-6) -> None:
    """The query, which was just asked, has the largest textbook bound of these points."""
    X, Y = loop.history.arrived()
    at = np.concatenate([query.x.unsqueeze(0).numpy(), others])
    if query.context is not None:
        at = np.concatenate([np.full((len(at), 1), float(query.context)), at], axis=1)
    bounds = textbook(X.numpy(), Y[:, 0].numpy(), at)
    assert query.diagnostics["acquisition_value"] == pytest.approx(bounds[0], abs=1e-8)
    assert bounds[0] >= bounds[1:].max() - slack


@pytest.mark.parametrize("num_contexts", [0, 1])
@pytest.mark.parametrize("case", DOMAINS)
def test_the_choice_has_the_largest_bound_of_the_points_with_given_coordinates(
    case: str, num_contexts: int
) -> None:
    domain, fixed = DOMAINS[case]
    loop = played(domain, context_dim=num_contexts)
    context = [0.4] if num_contexts else None
    query = loop.ask(context, fixed=fixed)
    held = coordinates(domain, fixed)
    for i, value in held.items():
        assert float(query.x[i]) == value
    domain.check_point("x", query.x)
    if query.parameters is not None:
        assert {name: query.parameters[name] for name in fixed} == fixed
    grid = points_of(domain, held)
    # where every whole number has an optimum of its own, BoTorch does not look at all of them
    check_largest(query, loop, grid, 0.05 if case == "many whole numbers" else 1e-6)
    record = {str(name): value for name, value in fixed.items()}
    assert query.restriction == {"fixed": record}


@pytest.mark.parametrize("case", DOMAINS)
def test_uniform_draws_have_given_coordinates(case: str) -> None:
    domain, fixed = DOMAINS[case]
    loop, free = (BanditLoop(domain, None, RandomSearch(), seed=2) for _ in range(2))
    held = coordinates(domain, fixed)
    drawn = []
    for _ in range(4 if "equality_constraints" in domain.constraints else 20):  # of a random walk
        query = loop.ask(fixed=fixed)
        domain.check_point("x", query.x)
        assert {i: float(query.x[i]) for i in held} == held
        drawn.append(query.x)
        other = free.ask().x
        is_plain = domain.feasible is None and case in (
            "a box", "long sides", "three dimensions, two of them given", "a whole number",
            "names", "a category",
        )  # fmt: skip
        if is_plain:  # the random numbers are those of the round
            for i, value in held.items():
                other[i] = value
            assert torch.equal(query.x, other)
    if case != "nothing is left":
        assert len(torch.stack(drawn).unique(dim=0)) > 1


# with long sides the kernel sees nothing from point to point
AVOIDING = [each for each in DOMAINS if each not in ("long sides", "nothing is left", "all finite")]


# Contexts are columns in front whatever the domain is: every third domain shows that.
@pytest.mark.parametrize(
    ("case", "num_contexts"),
    [
        pytest.param(case, n, marks=pytest.mark.slow if (i + n) % 3 else [])
        for i, case in enumerate(AVOIDING)
        for n in (0, 1)
    ],
)
def test_the_choice_has_the_largest_bound_of_the_points_that_are_not_avoided(
    case: str, num_contexts: int
) -> None:
    domain, _ = DOMAINS[case]
    context = [0.4] if num_contexts else None
    first = played(domain, context_dim=num_contexts).ask(context)
    loop = played(domain, context_dim=num_contexts)
    query = loop.ask(context, avoid=[first.x])
    domain.check_point("x", query.x)
    sides = (domain.bounds[1] - domain.bounds[0]).numpy()
    discrete = list(domain.coordinates.grids)

    def distances(points: Array) -> Array:
        shares = ((points - first.x.numpy()) / sides) ** 2
        shares[:, discrete] = shares[:, discrete] > 0.0
        return np.asarray(np.sqrt(shares.sum(-1)))

    chosen = query.x.unsqueeze(0).numpy()
    assert distances(chosen)[0] >= 0.01 * (1.0 - 1e-8)
    num_points = 300 if "equality_constraints" in domain.constraints else 3000  # of a random walk
    points = domain.sample(num_points, torch.Generator().manual_seed(8)).numpy()
    check_largest(query, loop, points[distances(points) >= 0.01])
    assert query.restriction == {"avoid": [first.x.tolist()]}


def test_points_that_are_far_away_change_nothing() -> None:
    first = played(Box(SQUARE)).ask()
    far = (first.x + 0.5) % 1.0
    again = played(Box(SQUARE)).ask(avoid=[far, 1.0 - far])
    assert torch.equal(again.x, first.x)
    assert again.diagnostics == first.diagnostics


def test_given_coordinates_and_points_to_avoid_go_together() -> None:
    domain = Box([*SQUARE, (0.0, 1.0)], inequality_constraints=[([0, 1], [-1.0, -1.0], -1.2)])
    for restart in (None, EvidenceRestart(exploration=1.0)):  # probes, too
        first = played(domain, restart=restart).ask(fixed={2: 0.5})
        loop, origins = played(domain, restart=restart), set()
        for t in range(1 if restart is None else 6):
            query = loop.ask(fixed={2: 0.5}, avoid=[first.x])
            origins.add(query.origin)
            assert float(query.x[2]) == 0.5
            assert float((query.x - first.x).norm()) >= 0.01 * (1.0 - 1e-8)
            assert float(query.x[:2].sum()) <= 1.2 + 1e-9
            loop.tell(query.id, 0.1 * t)
        assert ("exploration" in origins) == (restart is not None)


def test_queries_that_are_running_are_not_asked_again() -> None:
    """Each configuration of a finite space once, and no more."""
    space = Space({"n": Integer(1, 4), "k": Categorical(["a", "b", "c"])})
    loop = BanditLoop(space, seed=1)
    for _ in range(12):
        query = loop.ask(avoid=[each.x for each in loop.history.queries])
        loop.tell(query.id, float(query.x.sum()))
    assert len({tuple(query.x.tolist()) for query in loop.history.queries}) == 12
    with pytest.raises(ValueError, match="no point: all 12"):
        loop.ask(avoid=[each.parameters for each in loop.history.queries])
    assert loop.history.num_queries == 12


def test_a_list_of_points_of_a_box() -> None:
    domain = Box([*SQUARE, (0.0, 3.0)], integer_dims=[2])
    for context in (None, [0.4]):
        loop = played(domain, context_dim=0 if context is None else 1)
        X, Y = loop.history.arrived()
        points = domain.sample(40, torch.Generator().manual_seed(5))
        query = loop.ask(context, available=torch.cat([points, points[:3]]))
        at = points.numpy()
        if context is not None:
            at = np.concatenate([np.full((40, 1), 0.4), at], axis=1)
        bounds = textbook(X.numpy(), Y[:, 0].numpy(), at)
        assert torch.equal(query.x, points[int(bounds.argmax())])
        assert query.restriction == {"points": points.tolist()}
        less = loop.ask(context, available=points, avoid=[query.x], fixed={2: float(query.x[2])})
        kept = (points[:, 2] == query.x[2]) & (points != query.x).any(-1)
        assert less.restriction == {"points": points[kept].tolist()}
    space = Space({"x": Float(0.0, 1.0), "k": Categorical(["a", "b"])})
    named = [{"x": 0.5, "k": "a"}, {"x": 0.25, "k": "b"}]
    seen = [BanditLoop(space, seed=i).ask(available=named).parameters for i in range(16)]
    assert all(each in named for each in seen)
    assert all(each in seen for each in named)


def test_an_acquisition_that_lives_on_points_chooses_among_those_that_are_left() -> None:
    choices = Box(SQUARE).sample(60, torch.Generator().manual_seed(4))
    choices[:20, 1] = 0.25
    draws = GPThompsonSampling.with_options(width=1.0, choices=choices)
    best = played(Box(SQUARE), acquisition=draws).ask()

    def asked(**limits: Any) -> torch.Tensor:
        return played(Box(SQUARE), acquisition=draws).ask(**limits).x

    there = [tuple(row) for row in choices.tolist()]
    assert tuple(asked(fixed={1: 0.25}).tolist()) in there[:20]
    assert tuple(asked(available=choices[30:50]).tolist()) in there[30:50]
    away = asked(avoid=[best.x])
    assert tuple(away.tolist()) in there
    assert float((away - best.x).norm()) >= 0.01
    for limits in ({"fixed": {1: 0.5}}, {"available": [[0.5, 0.5]]}):
        with pytest.raises(ValueError, match="the points in choices="):
            asked(**limits)


SPACE = Space({"x": Float(0.0, 1.0), "k": Categorical(["a", "b"]), "c": Fixed(3)})


@pytest.mark.parametrize(
    ("fixed", "expected"),
    [({0: 0.25, 1: 0.25}, [0.25, 0.25, 0.5]), ({0: 0.25, 1: 0.75}, [0.25, 0.75, 0.0])],
)
def test_the_only_point_that_meets_an_equality_is_chosen(
    fixed: dict[int, float], expected: list[float]
) -> None:
    cube, limit = [*SQUARE, (0.0, 1.0)], [([0], [1.0], 0.2)]
    mixture = [([0, 1, 2], [1.0, 1.0, 1.0], 1.0)]
    box = Box(cube, equality_constraints=mixture, inequality_constraints=limit)
    loop = BanditLoop(box, recipe(), UCB)
    for _ in range(2):  # without and with an outcome
        query = loop.ask(fixed=fixed)
        assert query.x.tolist() == pytest.approx(expected, abs=1e-12)
        loop.tell(query.id, 1.0)
    with pytest.raises(ValueError, match=r"leaves no point: .* contradict each other"):
        loop.ask(fixed={0: 0.75, 1: 0.75})


def test_fixing_only_what_never_varies_restricts_nothing() -> None:
    query = BanditLoop(SPACE, None, RandomSearch()).ask(fixed={"c": 3})
    assert query.restriction is None
    assert torch.equal(query.x, BanditLoop(SPACE, None, RandomSearch()).ask().x)
