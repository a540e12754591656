"""Boxes and spaces with constraints: samples, searches, refusals, storages and guarantees."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import PosteriorMean
from gpytorch.kernels import MaternKernel
from models.textbook import double
from pairwise import by_day
from scipy.optimize import linprog
from torch import Tensor

import botorch_bandits as bb
from botorch_bandits.fingerprints import UnnamedSettingError, fingerprint

DOUBLE = torch.float64
MODEL = bb.BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.4)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
IGP = bb.ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
SMALL: dict[str, Any] = {"num_restarts": 4, "raw_samples": 32}
UNIT = [(0.0, 1.0), (0.0, 1.0)]
BELOW = ([0, 1], [-1.0, -1.0], -1.0)  # x0 + x1 <= 1
ON_LINE = ([0, 1], [1.0, 2.0], 1.0)


def in_disk(x: Tensor) -> Tensor:
    return 0.09 - (x - 0.5).square().sum()


SETS: dict[str, bb.Box] = {
    "triangle": bb.Box(UNIT, inequality_constraints=[BELOW], **SMALL),
    "line": bb.Box(UNIT, equality_constraints=[ON_LINE], **SMALL),
    "disk": bb.Box(UNIT, nonlinear_inequality_constraints=[(in_disk, True)], **SMALL),
    "space": bb.Space(
        {
            "a": bb.Float(0.0, 1.0),
            "rate": bb.Float(1e-3, 1.0, log=True),
            "b": bb.Float(0.0, 2.0),
            "kind": bb.Categorical(["one", "two"]),
        },
        inequality_constraints=[(["a", "b"], [1.0, 1.0], 1.5)],
        **SMALL,
    ),
    "few points": bb.Space(
        {"n": bb.Integer(0, 5), "m": bb.Integer(0, 5)},
        inequality_constraints=[(["n", "m"], [-1.0, -1.0], -4.0)],
    ),
}


def draw_set(seed: int) -> bb.Box:
    """Return a random box with constraints that a random point of it meets.

    One third has an equality, every second one a nonlinear constraint, and whole numbers are in
    every second one; some of the linear ones leave so little that points are drawn by a walk.
    """
    random = np.random.default_rng(seed)
    dim = 2 + seed % 3
    low = random.choice([-200.0, -1.0, 0.0], dim)
    side = random.choice([1e-3, 1.0, 5.0, 300.0], dim)
    whole = [0] if seed % 2 else []
    low[whole], side[whole] = 0.0, random.choice([3.0, 40.0])
    inner = low + side * random.uniform(0.2, 0.8, dim)
    inner[whole] = inner[whole].round()

    def linear(columns: list[int], room: float) -> tuple[list[int], list[float], float]:
        slopes = random.normal(size=len(columns)) / side[columns]
        return columns, slopes.tolist(), float(slopes @ inner[columns] - room)

    given: dict[str, Any] = {
        "inequality_constraints": [
            linear(sorted(random.choice(dim, 2, replace=False).tolist()), room)
            for room in (0.02 if seed % 4 == 0 else 0.3, 0.2)
        ]
    }
    free = [i for i in range(dim) if i not in whole]
    if seed % 3 == 0 and len(free) > 1:
        given["equality_constraints"] = [linear(free, 0.0)]
    if seed % 2 == 0:
        center, unit = torch.from_numpy(inner + 0.1 * side), torch.from_numpy(side)
        ball = lambda x: 0.2 - ((x - center) / unit).square().sum(-1)  # noqa: E731
        given["nonlinear_inequality_constraints"] = [(ball, True)]
    bounds = list(zip(low.tolist(), (low + side).tolist(), strict=True))
    return bb.Box(bounds, integer_dims=whole, num_restarts=2, raw_samples=32, **given)


def slack_by_hand(box: bb.Box, x: Tensor) -> float:
    """The least that a constraint has left, from the definitions in BoTorch's documentation.

    In shares of what a sum of coordinates can be; it is infinite without constraints.
    """
    found, sides = [math.inf], box.bounds[1] - box.bounds[0]
    for name in ("inequality_constraints", "equality_constraints"):
        for indices, coefficients, rhs in box.constraints.get(name, ()):
            at, slopes = list(indices), double(coefficients)
            left = float((slopes @ x[at] - rhs) / (slopes.abs() @ sides[at]))
            found.append(1e-7 - abs(left) if name.startswith("equality") else left)
    for function, _ in box.constraints.get("nonlinear_inequality_constraints", ()):
        found.append(float(function(x)))
    return min(found)


def assert_inside(box: bb.Box, X: Tensor) -> None:
    assert bool(((box.bounds[0] <= X) & (box.bounds[1] >= X)).all())
    for x in X:
        assert slack_by_hand(box, x) >= -1e-9
        assert all(float(x[i]).is_integer() for i in box.integer_dims)
        assert torch.equal(box.check_point("x", x), x)


SEEDS = pytest.mark.parametrize("seed", range(12))


@SEEDS
def test_a_random_set_has_the_points_that_meet_its_constraints(seed: int) -> None:
    """Samples are some of them, and of any points of the box those that are taken."""
    box = draw_set(seed)
    assert box.feasible is not None
    X = box.sample(40, torch.Generator().manual_seed(1))
    assert X.shape == (40, box.dim)
    assert_inside(box, X)
    before = torch.get_rng_state()
    assert torch.equal(X, box.sample(40, torch.Generator().manual_seed(1)))
    assert not torch.equal(X, box.sample(40, torch.Generator().manual_seed(2)))
    assert torch.equal(before, torch.get_rng_state())
    assert box.sample(0).shape == (0, box.dim)
    stream = torch.Generator().manual_seed(3)
    anywhere = box.coordinates.from_unit(torch.rand(60, box.dim, dtype=DOUBLE, generator=stream))
    met = [slack_by_hand(box, x) >= 0.0 for x in anywhere]
    assert box.feasible.contains(anywhere).tolist() == met
    for x, is_met in zip(anywhere, met, strict=True):
        if not is_met:
            with pytest.raises(ValueError, match=r"x is .*which violates .*constraints"):
                box.check_point("x", x)


@SEEDS
def test_parts_of_a_random_set_have_the_points_of_the_set(seed: int) -> None:
    """In a context, and with given values of some coordinates."""
    box = draw_set(seed)
    assert box.feasible is not None
    context = double([7.0, -3.0])
    inside = box.in_context(context)
    X = inside.sample(10, torch.Generator().manual_seed(1))
    assert torch.equal(X[:, :2], context.expand(10, 2))
    assert_inside(box, X[:, 2:])
    last = box.dim - 1
    held = box.feasible.holding({last: float(X[0, -1])})
    stream = torch.Generator().manual_seed(3)
    unit = torch.rand(60, box.dim, dtype=DOUBLE, generator=stream)
    anywhere = torch.cat([held.coordinates.from_unit(unit), X[:1, 2:]])
    assert torch.equal(held.contains(anywhere), box.feasible.contains(anywhere))
    assert bool(held.contains(anywhere)[-1])


@pytest.mark.parametrize("seed", by_day(range(12), every=3))
def test_searches_of_a_random_set_find_what_a_fine_sample_finds(seed: int) -> None:
    box = draw_set(seed)
    low, high = box.bounds
    center = low + (high - low) * torch.linspace(0.9, 1.3, box.dim, dtype=DOUBLE)
    acquisition = Quadratic(center, (high - low).square().reciprocal())
    x, value = box.maximize(acquisition, seed=0)
    assert_inside(box, x.unsqueeze(0))
    with torch.no_grad():
        assert float(acquisition(x.reshape(1, 1, -1))) == pytest.approx(value, abs=1e-12)
        sample = box.sample(2000, torch.Generator().manual_seed(7))
        assert value >= float(acquisition(sample.unsqueeze(-2)).max()) - 1e-4
    assert torch.equal(box.maximize(acquisition, seed=0)[0], x)


class Quadratic(PosteriorMean):
    """Minus the squared distance from a point, weighted; it needs no model."""

    def __init__(self, center: Tensor, weights: Tensor) -> None:
        torch.nn.Module.__init__(self)
        self.center, self.weights = center, weights
        self.X_pending = None

    def forward(self, X: Tensor) -> Tensor:
        return -((X.squeeze(-2) - self.center).square() * self.weights).sum(-1)


@pytest.mark.parametrize("seed", range(4))
def test_projections_onto_polytopes_are_those_of_a_dense_search(seed: int) -> None:
    """The nearest point of a polytope, against the conditions of Karush, Kuhn and Tucker."""
    stream = torch.Generator().manual_seed(seed)
    dim, num = 3, 3
    matrix = torch.randn(num, dim, dtype=DOUBLE, generator=stream)
    inner = torch.full((dim,), 0.5, dtype=DOUBLE)
    rhs = matrix @ inner - 0.2 * torch.rand(num, dtype=DOUBLE, generator=stream)
    center = 2.0 * torch.rand(dim, dtype=DOUBLE, generator=stream) - 0.5
    box = bb.Box(
        [(0.0, 1.0)] * dim,
        inequality_constraints=[
            (list(range(dim)), row.tolist(), float(limit))
            for row, limit in zip(matrix, rhs, strict=True)
        ],
    )
    x, value = box.maximize(Quadratic(center, torch.ones(dim, dtype=DOUBLE)), seed)
    # all constraints A x >= b, bounds among them; each set of active ones by hand
    A = torch.cat([matrix, torch.eye(dim, dtype=DOUBLE), -torch.eye(dim, dtype=DOUBLE)])
    b = torch.cat([rhs, torch.zeros(dim, dtype=DOUBLE), -torch.ones(dim, dtype=DOUBLE)])
    best = -math.inf
    for size in range(dim + 1):
        for active in itertools.combinations(range(len(A)), size):
            rows, limits = A[list(active)], b[list(active)]
            step = torch.linalg.pinv(rows) @ (limits - rows @ center) if size else 0.0
            y = center + step
            if bool((A @ y >= b - 1e-9).all()):
                best = max(best, -float((y - center).square().sum()))
    assert value == pytest.approx(best, abs=1e-4)
    assert_inside(box, x.unsqueeze(0))


def test_points_outside_are_refused_and_the_constraint_named() -> None:
    loop = bb.BanditLoop(SETS["triangle"], MODEL, IGP)
    text = r"x is \[0.75, 0.5\], which violates inequality_constraints\[0\]: "
    text += r"-1 \* x\[0\] \+ -1 \* x\[1\] >= -1, but the sum is -1.25"
    with pytest.raises(ValueError, match=text):
        loop.attach([0.75, 0.5], 1.0)
    assert loop.history.num_queries == 0
    loop.attach([0.1, 0.9], 1.0)  # on the limit, but for rounding
    with pytest.raises(ValueError, match=r"equality_constraints\[0\].* == 1, but"):
        SETS["line"].check_point("x", [0.5, 0.5])
    with pytest.raises(ValueError, match=r"constraints\[0\]: in_disk is -0.41"):
        SETS["disk"].check_point("x", [0.0, 0.0])
    with pytest.raises(ValueError, match=r"violates inequality_constraints\[0\]"):
        SETS["space"].check_point("x", [0.1, -1.0, 0.2, 0.0])


def at_most(x: Tensor) -> Tensor:
    return -1.0 - x.sum()


def both(x: Tensor) -> Tensor:
    return x


def nothing(x: Tensor) -> None:
    return None


def without_gradient(x: Tensor) -> float:
    return 0.5 - float(x[0])


def of_numpy(x: Tensor) -> Any:
    return 0.5 - x.numpy()[0]


def true_or_false(x: Tensor) -> Tensor:
    return x.sum() < 0.5


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            {"inequality_constraints": [([0, 1], [1.0, 1.0], 3.0)]},
            r"contradict each other within the bounds",
        ),
        (
            {"inequality_constraints": [([0], [1.0], 0.6), ([0], [-1.0], -0.5)]},
            r"a linear program finds that no point",
        ),
        ({"inequality_constraints": [([0, 1], [1.0, 1.0], 2.0)]}, r"leave no room"),
        ({"equality_constraints": [([0, 1], [1.0, 1.0], 2.0)]}, r"leave no room"),
        ({"inequality_constraints": [ON_LINE, ([0, 1], [-1.0, -2.0], -1.0)]}, r"no room"),
        ({"nonlinear_inequality_constraints": [(at_most, True)]}, r"none of \d+ points drawn"),
        ({"nonlinear_inequality_constraints": [(at_most, False)]}, r"one point at a time"),
        ({"nonlinear_inequality_constraints": [at_most]}, r"pass \(function, True\)"),
        ({"inequality_constraints": [([2], [1.0], 0.0)]}, r"some of 0 to 1"),
        ({"inequality_constraints": [([0, 0], [1.0, 1.0], 0.0)]}, r"each once"),
        ({"inequality_constraints": [([0], [0.0], 0.0)]}, r"all 0"),
        ({"inequality_constraints": [([0], [1.0, 2.0], 0.0)]}, r"coefficients of"),
        ({"inequality_constraints": ([0], [1.0], 0.0)}, r"pass \(indices, coefficients, rhs\)"),
        ({"inequality_constraints": [([0], [1.0], math.nan)]}, r"rhs of inequality"),
        ({"integer_dims": [0], "equality_constraints": [([0], [1.0], 1.0)]}, r"takes\s+finitely"),
        ({"inequality_constraints": [(0, [1.0], 0.0)]}, r"has 0 for indices; pass a list"),
        ({"nonlinear_inequality_constraints": [(both, True)]}, r"both of .* shape \(2,\) at one"),
        ({"nonlinear_inequality_constraints": [(nothing, True)]}, r"nothing of .* returned None"),
        (
            {"nonlinear_inequality_constraints": [(without_gradient, True)]},
            r"without_gradient of nonlinear_inequality_constraints.* has no gradient.* in PyTorch",
        ),
        ({"nonlinear_inequality_constraints": [(of_numpy, True)]}, r"of_numpy .* no gradient"),
        (
            {"nonlinear_inequality_constraints": [(true_or_false, True)]},
            r"returned (True|False) at one point, and False counts as 0.* Return a number",
        ),
    ],
)
def test_what_cannot_be_is_refused_at_once(given: dict[str, Any], match: str) -> None:
    with pytest.raises((ValueError, TypeError), match=match):
        bb.Box(UNIT, **given)


def test_a_point_by_names_is_checked_and_the_violation_is_by_names() -> None:
    space = bb.Space(
        {"rate": bb.Float(0.0, 1.0), "decay": bb.Float(0.0, 1.0)},
        inequality_constraints=[(["rate", "decay"], [-1.0, -2.0], -1.5)],
    )
    assert space.check_point("x", {"rate": 0.5, "decay": 0.25}).tolist() == [0.5, 0.25]
    with pytest.raises(ValueError, match=r"-2 \* decay >="):
        space.check_point("x", {"rate": 0.5, "decay": 1.0})
    with pytest.raises(TypeError, match="has 'rate' for indices"):
        bb.Space({"rate": bb.Float(0.0, 1.0)}, inequality_constraints=[("rate", [1.0], 0.5)])


@pytest.mark.parametrize("seed", range(6))
def test_emptiness_is_that_of_a_linear_program(seed: int) -> None:
    stream = np.random.default_rng(seed)
    matrix, rhs = stream.normal(size=(6, 3)), stream.normal(size=6)
    found = linprog(np.zeros(3), A_ub=-matrix, b_ub=-rhs, bounds=[(0.0, 1.0)] * 3)
    triples = [([0, 1, 2], row, limit) for row, limit in zip(matrix, rhs, strict=True)]
    if found.status == 2:
        with pytest.raises(ValueError, match="linear program"):
            bb.Box([(0.0, 1.0)] * 3, inequality_constraints=triples)
    else:
        box = bb.Box([(0.0, 1.0)] * 3, inequality_constraints=triples)
        assert_inside(box, box.sample(5, torch.Generator().manual_seed(0)))


def test_names_in_a_space() -> None:
    space = SETS["space"]
    assert isinstance(space, bb.Space)
    assert space.constraints == {"inequality_constraints": [((0, 2), (1.0, 1.0), 1.5)]}
    assert "inequality_constraints=[((0, 2)" in repr(space)
    assert space != bb.Space(space.parameters, **SMALL)
    with pytest.raises(ValueError, match="names 'z'; the parameters"):
        bb.Space(space.parameters, inequality_constraints=[(["a", "z"], [1.0, 1.0], 0.0)])
    for name, what in (("rate", "a logarithmic scale"), ("kind", "values without an order")):
        with pytest.raises(ValueError, match=rf"is on '{name}', which has {what}"):
            bb.Space(space.parameters, inequality_constraints=[(["a", name], [1.0, 1.0], 0.0)])
    few = SETS["few points"]
    best = few.maximize(Quadratic(double([5.0, 1.2]), torch.ones(2)))[0]
    assert best.tolist() == [4.0, 0.0]


def test_storages_name_functions() -> None:
    parts = fingerprint({"domain": SETS["disk"]})["domain"]
    assert parts["nonlinear_inequality_constraints"] == [[f"{__name__}:in_disk", True]]
    assert not [name for name in fingerprint({"domain": bb.Box(UNIT)})["domain"] if "cons" in name]
    unnamed = bb.Box(UNIT, nonlinear_inequality_constraints=[(lambda x: x.sum(), True)])
    with pytest.raises(UnnamedSettingError, match="top level of"):
        fingerprint({"domain": unnamed})


def test_a_function_on_choices_is_maximized_over_those_that_meet_the_constraints() -> None:
    choices = double([[0.9, 0.9], [0.1, 0.1], [0.2, 0.2], [2.0, 0.2]])
    acquisition = Quadratic(choices[0], torch.ones(2, dtype=DOUBLE))
    acquisition.choices = choices
    box = SETS["triangle"]
    inside = [box.feasible.contains(x.unsqueeze(0)).item() for x in choices]
    assert not inside[0]
    assert box.maximize(acquisition)[0].tolist() == [0.2, 0.2]
    acquisition.choices = choices[:1]
    with pytest.raises(ValueError, match="none of the points in choices="):
        box.maximize(acquisition)
