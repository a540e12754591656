"""A space maps values by name to coordinates and back, samples, maximizes, and refuses."""

from __future__ import annotations

import inspect
import itertools
import math
import pickle
import random
from typing import Any

import numpy as np
import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from hypothesis import given, settings
from hypothesis import strategies as st
from models.textbook import double
from torch import Tensor

from botorch_bandits import Categorical, Fixed, Float, Integer, Space
from botorch_bandits.spaces import Parameter

SPACE = Space(
    {
        "C": Float(1e-3, 1e3, log=True),
        "momentum": Float(-0.5, 0.9),
        "depth": Integer(2, 12),
        "units": Integer(1, 300, log=True),
        "kernel": Categorical(["rbf", "poly", None, True, 2.5]),
        "batch": Categorical([16, 32, 64], ordered=True),
        "data": Fixed("digits"),
    }
)
SMALL = Space(
    {"x": Float(0.0, 1.0), "n": Integer(1, 9), "kind": Categorical(["a", "b", "c"])},
    num_restarts=4,
    raw_samples=64,
)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def values_of(parameter: Parameter) -> st.SearchStrategy[Any]:
    if isinstance(parameter, Float):
        return st.floats(parameter.low, parameter.high)
    if isinstance(parameter, Integer):
        return st.integers(parameter.low, parameter.high)
    assert isinstance(parameter, Categorical)
    return st.sampled_from(parameter.values)


POINTS = st.fixed_dictionaries({name: values_of(SPACE.parameters[name]) for name in SPACE.names})


class Value(AcquisitionFunction):
    """A q = 1 acquisition function from a function of ``b x d`` points."""

    def __init__(self, function: Any) -> None:
        super().__init__(model=None)
        self.function = function

    def forward(self, X: Tensor) -> Tensor:
        return self.function(X.squeeze(-2))


# --- values and coordinates -----------------------------------------------------------------


def test_coordinates_are_numbers_logarithms_and_indices() -> None:
    values = {
        "C": 0.01,
        "momentum": 0.25,
        "depth": 7,
        "units": 100,
        "kernel": None,
        "batch": 64,
    }
    x = SPACE.encode(values)
    assert x.tolist() == [-2.0, 0.25, 7.0, 2.0, 2.0, 2.0]
    assert SPACE.decode(x) == {**values, "data": "digits"}
    assert SPACE.names == ("C", "momentum", "depth", "units", "kernel", "batch")
    assert SPACE.bounds.tolist() == [
        [-3.0, -0.5, 2.0, 0.0, 0.0, 0.0],
        [3.0, 0.9, 12.0, math.log10(300), 4.0, 2.0],
    ]


@given(POINTS)
@settings(max_examples=60, deadline=None)
def test_values_lead_to_a_point_and_back(values: dict[str, Any]) -> None:
    x = SPACE.encode(values)
    assert torch.equal(SPACE.check_point("x", x), x)
    back = SPACE.decode(x)
    assert list(back) == list(SPACE.parameters)
    assert back["C"] == pytest.approx(values["C"], rel=1e-14)
    assert 1e-3 <= back["C"] <= 1e3
    for name in ("momentum", "depth", "units", "kernel", "batch"):
        assert back[name] == values[name]
        assert type(back[name]) is type(values[name])
    again = SPACE.encode(back)
    assert torch.equal(again[1:], x[1:])
    assert float(again[0]) == pytest.approx(float(x[0]), abs=1e-15 * 8)


@given(st.floats(1e-12, 1e12), st.floats(1.0 + 1e-9, 1e6))
@settings(max_examples=60, deadline=None)
def test_ends_of_a_logarithmic_range_are_exact(low: float, factor: float) -> None:
    parameter = Float(low, low * factor, log=True)
    for end, coordinate in zip((low, low * factor), parameter.bounds, strict=True):
        assert parameter.encode(parameter.check("C", end)) == coordinate
        assert parameter.decode(coordinate) == end
    for share in (1e-16, 0.3, 1 - 1e-16):
        inside = parameter.bounds[0] + share * (parameter.bounds[1] - parameter.bounds[0])
        assert low <= parameter.decode(inside) <= low * factor


@pytest.mark.parametrize("low", [1, 7, 10**6, 10**12 - 3000])
def test_logarithms_of_whole_numbers_are_all_different_and_lead_back(low: int) -> None:
    parameter = Integer(low, low + 3000, log=True)
    coordinates = parameter.grid.values()
    assert all(a < b for a, b in itertools.pairwise(coordinates))
    assert [parameter.decode(c) for c in coordinates] == list(range(low, low + 3001))
    space = Space({"n": parameter})
    assert coordinates[0] == space.bounds[0]
    assert coordinates[-1] == space.bounds[1]


def test_a_point_between_two_logarithms_of_whole_numbers_is_refused() -> None:
    space = Space({"n": Integer(1, 1000, log=True)})
    near = double([math.log10(7.0) * (1.0 + 1e-15)])  # as another processor may round
    assert space.check_point("x", near).tolist() == [math.log10(7)]
    with pytest.raises(ValueError, match=r"x\[0\] is 0.8"):
        space.check_point("x", [0.8])


def test_numbers_of_numpy_and_whole_floats_are_taken_for_what_they_are() -> None:
    row = {
        "C": np.float64(0.5),
        "momentum": 0,
        "depth": 3.0,
        "units": np.int64(8),
        "kernel": np.str_("poly"),
        "batch": np.int32(32),
    }
    found = SPACE.check_parameters(row)
    assert [type(value) for value in found.values()] == [float, float, int, int, str, int, str]
    assert found["kernel"] is SPACE.parameters["kernel"].values[1]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 2e3}, r"parameter 'C' is 2000.0, outside \[0.001, 1000.0\]. Widen the range"),
        ({"C": "big"}, "parameter 'C' must be one number, got the text 'big'"),
        ({"C": True}, "parameter 'C' is True; pass a number"),
        ({"C": math.nan}, "parameter 'C' is nan; it must be finite"),
        ({"depth": 3.5}, "parameter 'depth' is 3.5; it takes whole numbers. Round it"),
        ({"depth": 13}, "parameter 'depth' is 13, outside 2 to 12. Widen the range"),
        ({"units": 0}, "parameter 'units' is 0, outside 1 to 300"),
        ({"kernel": "RBF"}, "parameter 'kernel' is 'RBF'; it must be one of 'rbf', 'poly', None"),
        ({"kernel": 1}, "parameter 'kernel' is 1; it must be one of"),  # True is another value
        ({"kernel": [1]}, r"parameter 'kernel' is \[1\]; it must be one of"),
        ({"batch": True}, "parameter 'batch' is True; it must be one of 16, 32, 64"),
        ({"data": "iris"}, "parameter 'data' is 'iris', but it is fixed at 'digits'. Leave it out"),
        ({"deep": 3}, "parameter 'deep' is not known; the space has C, momentum, depth"),
    ],
)
def test_values_that_cannot_be_name_parameter_value_and_remedy(
    change: dict[str, Any], message: str
) -> None:
    values = SPACE.decode(SPACE.sample(1, seeded(0))[0])
    with pytest.raises((TypeError, ValueError), match=message):
        SPACE.encode({**values, **change})


def test_a_missing_value_is_named_and_a_fixed_one_need_not_be_given() -> None:
    values = SPACE.decode(SPACE.sample(1, seeded(0))[0])
    del values["data"]
    SPACE.encode(values)
    del values["depth"]
    with pytest.raises(ValueError, match="parameter 'depth' is missing"):
        SPACE.encode(values)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Float(1.0, 1.0), r"low is 1.0 and high is 1.0; .* Fixed\(value\)"),
        (lambda: Float(1e2, 1e-2, log=True), "low is 100.0 and high is 0.01; .* high. Swap them.$"),
        (lambda: Integer(3, 2), "low is 3 and high is 2; low must be less than high. Swap them.$"),
        (lambda: Float(0.0, 1.0, log=True), "low is 0.0, but log=True needs a positive one"),
        (lambda: Float(1e3, 1e3 + 2e-13, log=True), "whose logarithms are the same number"),
        (lambda: Float(0.0, math.inf), "high is inf; it must be finite"),
        (lambda: Float("a", 1.0), "low must be one number"),  # type: ignore[arg-type]
        (lambda: Float(0.0, 1.0, log=1), "log is 1. Pass log=True"),  # type: ignore[arg-type]
        (lambda: Integer(2.5, 3), "low must be an integer"),  # type: ignore[arg-type]
        (lambda: Integer(3, 3), r"low must be less than high. .* Fixed\(value\)"),
        (lambda: Integer(0, 3, log=True), "low is 0, but log=True needs at least 1"),
        (lambda: Integer(1, 2**53 + 1), "high is 9007199254740993; it must be at most"),
        (lambda: Integer(1, 10**13, log=True), "it must be at most 1000000000000"),
        (lambda: Categorical(["a"]), r"a category has at least two. .* Fixed\(value\)"),
        (lambda: Categorical("abc"), "values is 'abc'; pass a list"),
        (lambda: Categorical({"a", "b"}), "values is the set .* whose order changes; pass a list"),  # type: ignore[arg-type]
        (lambda: Categorical([1, 2, True]), r"values\[0\] and values\[2\] are 1 and True, which"),
        (lambda: Categorical(["a", math.nan]), r"values\[1\] is nan; a number must be finite"),
        (lambda: Categorical(["a", (1, 2)]), r"values\[1\] is \(1, 2\), but values must be plain"),
        (lambda: Categorical([str, int]), "Give each object a name, and look it up"),
        (lambda: Categorical(list(range(1001))), "values has 1001 entries; at most 1000"),
        (lambda: Fixed([1]), r"value is \[1\], but values must be plain"),  # type: ignore[arg-type]
        (lambda: Space({"a": Fixed(1)}), "where nothing varies"),
        (lambda: Space({}), "where nothing varies"),
        (lambda: Space({"": Float(0.0, 1.0)}), "name is empty"),
        (lambda: Space({" ": Float(0.0, 1.0)}), "name is ' '; give it some letters"),
        (lambda: Space({1: Float(0.0, 1.0)}), "name must be a string, got 1"),  # type: ignore[dict-item]
        (lambda: Space({"a": (0.0, 1.0)}), r"parameter 'a' is \(0.0, 1.0\). Pass Float"),  # type: ignore[dict-item]
        (lambda: Space([Float(0.0, 1.0)]), "Pass a dict from names to parameters"),  # type: ignore[arg-type]
    ],
)
def test_what_describes_no_space_is_refused(build: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        build()


# --- the domain -----------------------------------------------------------------------------


def test_every_draw_is_a_point_of_the_space() -> None:
    X = SPACE.sample(500, seeded(1))
    for x in X:
        assert torch.equal(SPACE.check_point("x", x), x)
    for i, name in enumerate(SPACE.names):
        if i in SPACE.coordinates.grids and name != "units":
            assert len(X[:, i].unique()) == SPACE.bounds[1, i] - SPACE.bounds[0, i] + 1
    assert SPACE.volume == pytest.approx(6.0 * 1.4 * 11 * 300 * 5 * 3)


def test_whole_numbers_on_a_logarithmic_scale_are_drawn_by_their_share_of_the_axis() -> None:
    """``k`` has the axis from ``k - 1/2`` to ``k + 1/2``; the level is 5 standard errors."""
    space = Space({"n": Integer(1, 20, log=True)})
    n = 4_000
    drawn = [space.decode(x)["n"] for x in space.sample(n, seeded(2))]
    for k in (1, 2, 20):
        share = math.log((k + 0.5) / (k - 0.5)) / math.log(20.5 / 0.5)
        assert abs(drawn.count(k) / n - share) < 5 * math.sqrt(share * (1 - share) / n)


def peak(center: dict[str, Any], space: Space) -> Value:
    """Smooth in numbers, one value per category; the largest value is 1, at the center."""
    at = space.encode(center)
    unordered = space.unordered_dims
    sides = space.bounds[1] - space.bounds[0]

    def function(X: Tensor) -> Tensor:
        off = ((X - at) / sides).square()
        for i in unordered:
            off[..., i] = 0.3 * (X[..., i].round() != at[i]).to(X)
        return 1.0 - off.sum(-1)

    return Value(function)


@pytest.mark.parametrize(
    ("space", "center"),
    [
        pytest.param(SMALL, {"x": 0.37, "n": 4, "kind": "c"}, id="alternating"),
        pytest.param(
            Space({"C": Float(1e-3, 1e3, log=True), "kind": Categorical(["a", "b", "c"])}),
            {"C": 17.0, "kind": "b"},
            id="each category",
        ),
        pytest.param(
            Space(
                {"n": Integer(1, 30), "m": Integer(1, 30, log=True), "k": Categorical(["x", "y"])}
            ),
            {"n": 17, "m": 9, "k": "y"},
            id="many points, none continuous",
        ),
        pytest.param(
            Space(
                {"n": Integer(1, 20), "m": Integer(1, 20, log=True), "k": Categorical(["x", "y"])}
            ),
            {"n": 17, "m": 9, "k": "y"},
            id="few points",
        ),
        pytest.param(
            Space({"x": Float(0.0, 1.0), "k": Categorical(list(range(40)))}),
            {"x": 0.6, "k": 23},
            id="forty categories",
        ),
        pytest.param(
            Space({"x": Float(0.0, 1.0), "n": Integer(1, 10**9), "m": Integer(1, 10**9, log=True)}),
            {"x": 0.6, "n": 123_456_789, "m": 1234},
            id="more whole numbers than can be listed",
        ),
    ],
)
def test_the_maximum_over_a_mixed_space_is_found(space: Space, center: dict[str, Any]) -> None:
    random.seed(5)
    state = random.getstate()
    torch.manual_seed(5)
    x, value = space.maximize(peak(center, space), seed=1)
    assert random.getstate() == state
    assert torch.equal(space.check_point("x", x), x)
    found = space.decode(x)
    for name, wanted in center.items():
        listed = isinstance(wanted, str) or (isinstance(wanted, int) and wanted <= 1000)
        assert found[name] == (wanted if listed else pytest.approx(wanted, rel=1e-2))
    assert value == pytest.approx(1.0, abs=1e-4)
    again, same = space.maximize(peak(center, space), seed=1)
    assert torch.equal(again, x)
    assert same == value


def test_a_local_search_tries_all_categories_and_whole_numbers_at_growing_distances() -> None:
    numbers, logs = Integer(1, 30).grid, Integer(1, 30, log=True).grid
    assert sorted(numbers.changes(5.0)) == [1.0, 3.0, 4.0, 6.0, 7.0, 9.0, 13.0, 21.0]
    assert set(logs.changes(math.log10(5))) == {math.log10(n) for n in numbers.changes(5.0)}
    assert set(logs.changes(math.log10(5))) <= set(logs.values())
    assert Categorical(["a", "b", "c"]).grid.changes(1.0) == [0.0, 2.0]
    assert sorted(Categorical([1, 2, 4], ordered=True).grid.changes(0.0)) == [1.0, 2.0]


@pytest.mark.parametrize(
    "space", [SMALL, Space({"n": Integer(1, 9, log=True), "k": Categorical(["x", "y"])})]
)
def test_in_a_context_only_the_point_is_chosen(space: Space) -> None:
    context = double([0.25, -3.0])
    domain = space.in_context(context)
    inner = peak(space.decode(space.sample(1, seeded(6))[0]), space)
    best, value = space.maximize(inner, seed=2)
    x, in_context = domain.maximize(Value(lambda X: inner.function(X[..., 2:]) + X[..., 0]), seed=2)
    assert x[:2].tolist() == context.tolist()
    assert x[2:].tolist() == pytest.approx(best.tolist(), abs=1e-4)
    assert in_context == pytest.approx(value + 0.25, abs=1e-6)
    drawn = domain.sample(20, seeded(7))
    assert torch.equal(drawn[:, :2], context.expand(20, 2))
    for row in drawn[:, 2:]:
        space.check_point("x", row)


# --- what a model sees ----------------------------------------------------------------------


def test_models_see_one_column_a_category_and_normalized_numbers() -> None:
    X = SPACE.sample(50, seeded(8))
    transform = SPACE.input_transform()
    assert transform is not None
    found = transform(X)
    low, high = SPACE.bounds
    unit = (X - low) / (high - low)
    one_hot = (X[:, 4:5] == torch.arange(5.0, dtype=torch.float64)).double()
    assert torch.allclose(found, torch.cat([unit[:, :4], one_hot, unit[:, 5:]], dim=-1), atol=1e-15)
    assert found.shape[-1] == SPACE.num_columns == 10


def test_a_context_in_front_of_the_point_is_normalized_with_its_own_bounds() -> None:
    X = SMALL.sample(9, seeded(9))
    context = torch.rand(9, 1, dtype=torch.float64, generator=seeded(10)) * 4.0 - 1.0
    inside, plain = SMALL.input_transform([[-1.0], [3.0]]), SMALL.input_transform()
    assert inside is not None
    assert plain is not None
    found = inside(torch.cat([context, X], dim=-1))
    assert torch.allclose(found, torch.cat([(context + 1.0) / 4.0, plain(X)], dim=-1), atol=1e-15)
    with pytest.raises(ValueError, match=r"context_bounds is .*; pass"):
        SMALL.input_transform([[3.0], [-1.0]])


def test_where_every_category_has_an_order_there_is_nothing_to_encode() -> None:
    space = Space({"x": Float(0.0, 1.0), "size": Categorical(["S", "M", "L"], ordered=True)})
    assert space.input_transform() is None
    assert space.num_columns == 2


# --- the same space -------------------------------------------------------------------------


def test_a_space_prints_as_it_is_typed_and_survives_a_process() -> None:
    names = {kind.__name__: kind for kind in (Space, Float, Integer, Categorical, Fixed)}
    for space in (SPACE, SMALL):
        assert eval(repr(space), names) == space
        assert pickle.loads(pickle.dumps(space)) == space
        assert hash(pickle.loads(pickle.dumps(space))) == hash(space)
    assert SPACE != SMALL
    assert SPACE != "space"


def test_an_unknown_argument_of_a_parameter_is_explained() -> None:
    with pytest.raises(TypeError, match="has no argument 'logg'"):
        Float(1.0, 2.0, logg=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="has no argument 'step'"):
        Integer(1, 9, step=2)  # type: ignore[call-arg]
    assert str(inspect.signature(Float)).startswith("(low: 'float', high: 'float', log")
