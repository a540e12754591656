"""Domains sample uniformly, maximize, and refuse what is malformed.

Each statistical test has a fixed seed; its level (the share of seeds for which a correct sampler
would fail) is stated where it is not 5 standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from models.textbook import double
from scipy.stats import chi2
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Categorical,
    ChangePointDetector,
    DifferentSettingsError,
    Domain,
    Float,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    Integer,
    LogExpectedImprovement,
    RandomSearch,
    Space,
)
from botorch_bandits.domains import ValueScale, first_of_the_largest

NAN, INF = float("nan"), float("inf")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Value(AcquisitionFunction):
    """A q = 1 acquisition function from a function of ``b x d`` points."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model=None)
        self.function = function
        self.num_calls = 0

    def forward(self, X: Tensor) -> Tensor:
        assert X.shape[-2] == 1
        self.num_calls += 1
        return self.function(X.squeeze(-2))


def bowl(center: list[float]) -> Value:
    """``1 - |x - center|^2``, largest at the center."""
    return Value(lambda X: 1.0 - (X - double(center)).square().sum(-1))


def two_peaks(X: Tensor) -> Tensor:
    """A peak of height 1 at 0.2 and a narrow one of height 1.5 at 0.8, in each dimension."""
    broad = torch.exp(-((X - 0.2) ** 2).sum(-1) / 0.02)
    return broad + 1.5 * torch.exp(-((X - 0.8) ** 2).sum(-1) / 0.005)


# --- boxes: sampling --------------------------------------------------------------------------


def test_samples_of_a_box_are_uniform_and_whole_numbers_take_equal_shares() -> None:
    box = Box([[-1.0, 10.0, -2.0], [3.0, 11.0, 4.0]], integer_dims=[2])
    points = box.sample(14_000, seeded(0))
    assert points.shape == (14_000, 3)
    assert points.dtype == torch.float64
    unit = (points[:, :2] - box.bounds[0, :2]) / torch.tensor([4.0, 1.0])
    cells = ((unit * 5).long().clamp(0, 4) * torch.tensor([5, 1])).sum(-1)
    whole = points[:, 2].long() + 2
    assert torch.equal(points[:, 2], (whole - 2).double())
    counts = torch.bincount(cells * 7 + whole, minlength=175).double()
    statistic = ((counts - 80.0) ** 2 / 80.0).sum().item()
    low, high = chi2.ppf([1e-6, 1 - 1e-6], df=174)
    assert low < statistic < high
    assert points[:, 1].unique().numel() > 13_000


def test_samples_never_leave_the_box() -> None:
    # -0.1 + (0.2 - -0.1) * u rounds to a number above 0.2 when u is just below 1.
    box = Box([[-0.1], [0.2]])
    points = box.coordinates.from_unit(double([[0.0], [math.nextafter(1.0, 0.0)], [1.0]]))
    for point in torch.cat([points, box.sample(1000, seeded(0))]):
        box.check_point("x", point)


@pytest.mark.parametrize(
    "domain",
    [Box([[0.0, -1.0], [5.0, 1.0]], integer_dims=[0]), Arms([[0.0, 1.0], [2.0, 3.0]])],
    ids=["box", "arms"],
)
def test_sampling_draws_from_the_given_generator_alone(domain: Domain) -> None:
    before = torch.get_rng_state()
    generator = seeded(3)
    first, second = domain.sample(50, generator), domain.sample(50, generator)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(domain.sample(50, seeded(3)), first)
    assert not torch.equal(first, second)
    torch.manual_seed(4)
    from_global = domain.sample(50)
    torch.manual_seed(4)
    assert torch.equal(domain.sample(50), from_global)
    assert domain.sample(0).shape == (0, 2)
    for point in first:
        assert torch.equal(domain.check_point("x", point), point)


@pytest.mark.parametrize("domain", [Box([[0.0], [1.0]]), Arms([[0.0], [1.0]])], ids=["box", "arms"])
def test_a_bad_number_of_samples_is_refused(domain: Domain) -> None:
    with pytest.raises(ValueError, match="num_points is -1"):
        domain.sample(-1)
    with pytest.raises(TypeError, match="num_points must be"):
        domain.sample(2.0)  # type: ignore[arg-type]


# --- boxes: maximizing ------------------------------------------------------------------------


@pytest.mark.parametrize("center", [[0.3, -2.0], [1.0, -5.0], [0.0, 5.0]])
def test_the_maximum_of_a_box_is_found_inside_and_at_corners(center: list[float]) -> None:
    point, value = Box([[0.0, -5.0], [1.0, 5.0]]).maximize(bowl(center))
    assert point.tolist() == pytest.approx(center, abs=1e-5)
    assert value == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("bounds", "integer_dims"),
    [
        ([[0.0, 0.0], [3.0, 3.0]], (0, 1)),  # 16 combinations: all are enumerated
        ([[0.0, 0.0], [4.0, 3.0]], (0, 1)),  # 20: alternating search
        ([[-3.0, -1.0], [8.0, 4.0]], (0,)),  # 12 and a continuous dimension
        ([[-30.0, -1.0], [30.0, 4.0]], (0,)),  # 61 and a continuous dimension
    ],
)
def test_the_maximum_over_whole_numbers_is_found(
    bounds: list[list[float]], integer_dims: tuple[int, ...]
) -> None:
    box = Box(bounds, integer_dims)
    center = [2.3, 1.4]
    expected = [round(c) if i in integer_dims else c for i, c in enumerate(center)]
    for seed in range(3):
        point, value = box.maximize(bowl(center), seed=seed)
        assert point.tolist() == pytest.approx(expected, abs=1e-5)
        assert all(point[i].item() == expected[i] for i in integer_dims)
        loss = sum((a - b) ** 2 for a, b in zip(expected, center, strict=True))
        assert value == pytest.approx(1.0 - loss, abs=1e-8)
        box.check_point("x", point)


@pytest.mark.parametrize(("integer_dims", "best"), [((0, 1), [1.0, 1.0]), ((0,), [1.0, 1.4])])
def test_rounding_the_continuous_maximum_would_be_wrong(
    integer_dims: tuple[int, ...], best: list[float]
) -> None:
    """A narrow valley turned by 45 degrees, with its maximum at (1.2, 1.6)."""

    def valley(X: Tensor) -> Tensor:
        along, across = X.sum(-1) - 2.8, X[..., 0] - X[..., 1] + 0.4
        return -100.0 * across.square() - 0.01 * along.square()

    box = Box([[-2.0, -2.0], [4.0, 4.0]], integer_dims=integer_dims)
    point, value = box.maximize(Value(valley))
    assert point.tolist() == pytest.approx(best, abs=1e-4)
    assert value == pytest.approx(float(valley(double(best))), abs=1e-6)


@pytest.mark.parametrize(
    "domain",
    [
        Box([[0.0, 0.0], [1.0, 1.0]]),
        Box([[0.0, 0.0], [4.0, 1.0]], integer_dims=[0]),
        Box([[0.0, 0.0], [40.0, 1.0]], integer_dims=[0]),
        Arms([[0.1, 0.2], [0.7, 0.7], [0.9, 0.1]]),
    ],
    ids=["box", "few integers", "many integers", "arms"],
)
def test_maximizing_is_reproducible_and_leaves_random_numbers_alone(domain: Domain) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, first_value = domain.maximize(Value(two_peaks), seed=5)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, again_value = domain.maximize(Value(two_peaks), seed=5)
    assert torch.equal(first, again)
    assert first_value == again_value
    assert first.shape == (2,)
    assert first.dtype == torch.float64
    assert not first.requires_grad


def test_the_number_of_starts_can_be_chosen() -> None:
    # One start from two raw points finds the narrow peak only with luck; ten from 256 do.
    poor = [
        Box([[0.0], [1.0]], num_restarts=1, raw_samples=2).maximize(Value(two_peaks), seed=s)[1]
        for s in range(8)
    ]
    assert min(poor) < 1.1
    with pytest.raises(ValueError, match="raw_samples is 3"):
        Box([[0.0], [1.0]], num_restarts=4, raw_samples=3)
    with pytest.raises(ValueError, match="num_restarts is 0"):
        Box([[0.0], [1.0]], num_restarts=0)


def test_a_flat_acquisition_has_a_maximum_too(recwarn: pytest.WarningsRecorder) -> None:
    box = Box([[0.0], [1.0]])
    point, value = box.maximize(Value(lambda X: 0.0 * X.sum(-1)))
    assert value == 0.0
    box.check_point("x", point)
    assert not [w for w in recwarn if "initial" in str(w.message).lower()]


# --- boxes: what is malformed -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ([[0.0], [NAN]], ValueError, r"bounds\[1, 0\] is nan"),
        ([[-INF], [0.0]], ValueError, r"bounds\[0, 0\] is -inf"),
        ([[0.0, 1.0], [1.0, 0.0]], ValueError, r"dimension 1 are \[1\.0, 0\.0\]; the lower bound"),
        ([[0.0], [0.0]], ValueError, "Leave a constant dimension out"),
        ([[-1e308], [1e308]], ValueError, "this side is too long for float64"),
        ([[0.0, 1.0]], ValueError, r"shape 2 x d .*got \(1, 2\)\. .*list of tuples.*from_pairs"),
        (
            [[0.0, 1.0]] * 3,
            ValueError,
            r"shape 2 x d .*got \(3, 2\)\. .*list of tuples.*from_pairs",
        ),
        (double([[0.0, 1.0]] * 3), ValueError, r"got \(3, 2\)\. .*list of tuples"),
        (
            [[0.0, 1.0], [0.0, 2.0]],
            ValueError,
            r"are \[0\.0, 0\.0\]; the lower.*pair per dimension is a list of tuples",
        ),
        ([(1.0, 1.0), (0.0, 2.0)], ValueError, "Leave a constant dimension out"),
        (
            [(0.0, 0.0), (1.0, 2.0)],
            ValueError,
            r"are \[0\.0, 0\.0\]; .*Two lists are the lower bounds",
        ),
        ([(0.0, 0.0, 0.0), (1.0, 1.0, 1.0)], ValueError, r"one \(low, high\) pair.*two lists"),
        ([(0.0, 1.0), [0.0, 1.0]], ValueError, "tuples next to other rows"),
        ([(0.0, NAN)], ValueError, r"bounds\[0, 1\] is nan"),
        ([[0.0], [1.0], [2.0]], ValueError, r"got \(3, 1\)"),
        ([[], []], ValueError, r"got \(2, 0\)"),
        ((0.0, 1.0), ValueError, r"got shape \(2,\)\. .*\[\(0\.0, 1\.0\)\]"),
        ([], ValueError, r"got shape \(0,\)"),
        (
            double([0.0, 1.0]),
            ValueError,
            r"lower bounds, then upper bounds\), got shape \(2,\)\. One",
        ),
        ([torch.zeros(1), torch.ones(1)], TypeError, r"bounds\[0\] has dtype torch\.float32"),
        (
            {"rate": (0.0, 1.0)},
            TypeError,
            r"bounds is a dictionary.*For named parameters, use a Space",
        ),
        (torch.tensor([[0.0], [1.0]]), TypeError, r"float32.*bounds\.double\(\)"),
        ("unit", TypeError, "bounds must be a float64 tensor or nested sequences"),
    ],
)
def test_bad_bounds_are_refused(bounds: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Box(bounds)


@pytest.mark.parametrize(
    ("integer_dims", "error", "message"),
    [
        ([2], ValueError, "integer_dims names dimension 2, but the box has 2"),
        ([-1], ValueError, "integer_dims entry is -1"),
        ([0.0], TypeError, "integer_dims entry must be an integer"),
        ([1], ValueError, r"bounds of integer dimension 1 are \[0\.5, 2\.0\]; .*whole numbers\."),
        (1, TypeError, r"integer_dims is 1\. .*in a list, as in \[1\]"),
    ],
)
def test_bad_integer_dimensions_are_refused(
    integer_dims: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Box([(0.0, 3.0), (0.5, 2.0)], integer_dims)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([0.5], ValueError, "vector of length 2"),
        ([[0.5, 1.0]], ValueError, r"got shape \(1, 2\)"),
        ([1.1, 1.0], ValueError, r"my_x\[0\] is 1\.1, outside \[0\.0, 1\.0\]"),
        ([0.5, 1.5], ValueError, r"my_x\[1\] is 1\.5; this dimension takes whole numbers"),
        ([0.5, 4.0], ValueError, r"my_x\[1\] is 4\.0, outside \[0\.0, 3\.0\]"),
        ([NAN, 1.0], ValueError, r"my_x\[0\] is nan"),
        (torch.tensor([0.5, 1.0]), TypeError, "float32"),
    ],
)
def test_points_outside_a_box_are_refused(x: Any, error: type[Exception], message: str) -> None:
    box = Box([[0.0, 0.0], [1.0, 3.0]], integer_dims=[1])
    assert box.check_point("my_x", [1.0, 3]).tolist() == [1.0, 3.0]
    with pytest.raises(error, match=message):
        box.check_point("my_x", x)


@pytest.mark.parametrize(
    "bounds",
    [
        [(-5, 10), (0, 15)],
        ((-5.0, 10.0), (0.0, 15.0)),
        [(np.float64(-5.0), double(10.0)), (0.0, 15.0)],
        np.array([[-5.0, 0.0], [10.0, 15.0]]),
        double([[-5.0, 0.0], [10.0, 15.0]]),
        [double([-5.0, 0.0]), double([10.0, 15.0])],
        [np.array([-5.0, 0.0]), np.array([10.0, 15.0])],
    ],
    ids=str,
)
@pytest.mark.filterwarnings("error")
def test_tuples_are_pairs_and_all_else_has_lower_bounds_first(bounds: Any) -> None:
    box = Box(bounds)
    assert box.bounds.tolist() == [[-5.0, 0.0], [10.0, 15.0]]
    assert box.bounds.is_contiguous()
    assert box.check_point("x", [9.0, 14.0]).tolist() == [9.0, 14.0]


@pytest.mark.parametrize("kind", [list, pd.DataFrame])
def test_two_pairs_that_are_bounds_by_row_and_by_column_are_refused(kind: Any) -> None:
    pairs = [[-5.0, 10.0], [0.0, 15.0]]
    ways = r"by row, from -5.0 to 10.0 and .* by column, from -5.0 to 0.0 and from 10.0 to 15.0\."
    remedies = r".*\[\(-5.0, 10.0\), \(0.0, 15.0\)\], or Box.from_pairs\(.*torch.tensor\("
    with pytest.raises(ValueError, match=rf"bounds is .* {ways}{remedies}"):
        Box(kind(pairs))
    assert Box.from_pairs(kind(pairs)).bounds.T.tolist() == pairs
    assert repr(eval(repr(Box(double(pairs))))) == "Box([(-5.0, 0.0), (10.0, 15.0)])"
    for read in ([[0.0, 0.0], [1.0, 2.0]], [[0.0, 1.0], [1.0, 4.0]], [[0.0], [1.0]]):
        assert Box(kind(read)).bounds.tolist() == read  # by row, no bounds or the same ones


def test_data_frames_are_read_where_arrays_are() -> None:
    """In the order of their columns, and on a space by the names of the columns."""
    table = pd.DataFrame({"b": [0.25, 0.5], "a": pd.array([1, 2], dtype="Int64")}, index=["u", "v"])
    rows = [[0.25, 1.0], [0.5, 2.0]]
    assert Arms(table).choices.tolist() == Arms([table.loc["u"], table.loc["v"]]).choices.tolist()
    assert Arms(table).choices.tolist() == rows
    wide = table.assign(c=[0.0, 3.0])
    assert Box(wide).bounds.tolist() == [[0.25, 1.0, 0.0], [0.5, 2.0, 3.0]]
    space = Space({"a": Integer(0, 5), "b": Float(0.0, 1.0), "k": Categorical(["x", "y"])})
    named = table.assign(k=["y", "x"])
    kernel = BanditGP.with_kernel(RBFKernel(), noise=0.1, lengthscale=0.3)
    budget = AdditiveEpochs(num_constraints=2, epoch_length=5)
    rule = ImprovedUpperConfidenceBound.with_options(rkhs_bound=1.0, noise_bound=0.1)
    loop = BanditLoop(Arms(table), kernel, rule, context_dim=2, constraints=budget)
    context = table.loc["v"]
    query = loop.ask(context, available=table.iloc[1:])
    assert (query.arm, query.context.tolist()) == (1, [0.5, 2.0])  # type: ignore[union-attr]
    assert loop.ask(context, fixed=pd.Series({1: 1.0})).arm == 0
    assert loop.ask(context, avoid=pd.Series([True, False])).arm == 1
    values = pd.Series([0.5, -1.0], ["cost", "time"])
    assert loop.tell(query.id, pd.Series([1.0]), constraints=values).constraints == (0.5, -1.0)
    loop.attach(table.loc["u"], 2.0, values, context=context)
    assert loop.history.queries[-1].x.tolist() == rows[0]
    loop = BanditLoop(space, acquisition=RandomSearch())
    assert loop.ask(available=named.iloc[1:]).parameters == {"a": 2, "b": 0.5, "k": "x"}
    assert loop.ask(fixed=pd.Series({"a": 3})).x[0] == 3.0
    loop.attach(named.loc["u"], 1.0)
    assert loop.history.queries[-1].parameters == {"a": 1, "b": 0.25, "k": "y"}
    holed = table.assign(a=pd.array([1, None], dtype="Int64"))
    with pytest.raises(TypeError, match=r"choices must be a float64 tensor .* <NA>"):
        Arms(holed)
    with pytest.raises(TypeError, match=r"torch.as_tensor\(train_X.to_numpy\(\), dtype"):
        BanditGP(table, table, 0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kind", [list, tuple, double, np.array, iter], ids=lambda kind: kind.__name__
)
def test_a_box_from_pairs(kind: Any) -> None:
    pairs = kind([[-5.0, 10.0], [0.0, 15.0], [1.0, 4.0]])
    box = Box.from_pairs(pairs, integer_dims=[2], num_restarts=3, raw_samples=7)
    assert box.bounds.tolist() == [[-5.0, 0.0, 1.0], [10.0, 15.0, 4.0]]
    assert (box.integer_dims, box.num_restarts, box.raw_samples) == ((2,), 3, 7)
    with pytest.raises(ValueError, match=r"0 are \[0\.0, 0\.0\]"):
        Box.from_pairs([[0.0, 0.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match=r"2 columns \(one \(low"):
        Box.from_pairs([[0.0, 1.0, 2.0]])
    with pytest.raises(TypeError, match=r"pairs is a dictionary.*Space"):
        Box.from_pairs({"rate": (0.0, 1.0)})  # type: ignore[dict-item]


def test_a_box_keeps_its_own_bounds_and_shows_them() -> None:
    bounds = double([[0.0, 0.0], [1.0, 3.0]])
    box = Box(bounds, integer_dims=[1, 1])
    bounds.add_(5.0)
    assert box.bounds.tolist() == [[0.0, 0.0], [1.0, 3.0]]
    assert repr(box) == "Box([(0.0, 1.0), (0.0, 3.0)], integer_dims=(1,))"
    assert eval(repr(box)).bounds.tolist() == box.bounds.tolist()


# --- arms -------------------------------------------------------------------------------------


def test_the_largest_arm_is_found_among_many() -> None:
    choices = torch.rand(10_000, 2, dtype=torch.float64, generator=seeded(0))
    acquisition = Value(two_peaks)
    point, value = Arms(choices).maximize(acquisition)
    values = two_peaks(choices).tolist()
    best = values.index(max(values))
    assert torch.equal(point, choices[best])
    assert value == pytest.approx(values[best], rel=1e-14)
    assert acquisition.num_calls == 3  # in parts, so that memory stays bounded


def test_ties_go_to_the_first_arm() -> None:
    arms = Arms([[0.0], [1.0], [2.0], [3.0]])

    def choose(*values: float) -> int:
        table = double(values)
        point, value = arms.maximize(Value(lambda X: table[X.squeeze(-1).long()]))
        assert value == values[int(point)]
        return int(point)

    assert choose(0.0, 1.0, 1.0, 0.5) == 1
    assert choose(0.0, 1.0 - 9e-10, 1.0, 0.5) == 1  # within 1e-9: a tie
    assert choose(0.0, 1.0 - 2e-9, 1.0, 0.5) == 2
    assert choose(1e-10, 0.0, 5e-10, 0.0) == 2  # relative to the largest where all are small
    assert choose(1e-10, 0.0, 1e-10 * (1.0 + 9e-10), 0.0) == 0
    assert choose(1e-10, -1.0, 5e-10, 0.0) == 0  # absolute where the largest is below 1
    assert choose(0.0, 1e6 - 9e-4, 1e6, 0.0) == 1  # relative above
    assert choose(0.0, 1e6 - 2e-3, 1e6, 0.0) == 2
    assert choose(-5.0, -1e6 - 9e-4, -1e6, -4.0) == 3


def test_ties_are_counted_in_the_unit_of_the_values() -> None:
    scale = ValueScale(offset=1e3, unit=1e-6)
    tied, apart = (double([0.0, 1e3 + (1.0 - e) * 1e-6, 1e3 + 1e-6]) for e in (0.9e-6, 3e-6))
    # a rounding of the offset is more than 1e-9 units
    assert int(first_of_the_largest(tied, scale=scale)) == 1
    assert int(first_of_the_largest(apart, scale=scale)) == 2
    scale = ValueScale(offset=-4.0, unit=1e-2)
    tied, apart = (double([-5.0, -4.0 + 1e-2 * (1.0 - e), -4.0 + 1e-2]) for e in (9e-10, 2e-9))
    assert int(first_of_the_largest(tied, scale=scale)) == 1
    assert int(first_of_the_largest(apart, scale=scale)) == 2
    both = torch.stack([tied, apart])
    assert first_of_the_largest(both, scale=scale).tolist() == [1, 2]
    # an acquisition function says its own
    arms, acquisition = Arms([[0.0], [1.0], [2.0]]), Value(lambda X: tied[X.squeeze(-1).long()])
    assert float(arms.maximize(acquisition)[0]) == 1.0
    acquisition.value_scale = ValueScale(offset=-3.99, unit=1e-4)
    assert float(arms.maximize(acquisition)[0]) == 2.0


def test_values_that_are_not_finite_have_no_maximum() -> None:
    for bad in (NAN, INF, -INF):
        with pytest.raises(ValueError, match=r"acquisition's values\[1\] is"):
            first_of_the_largest(double([0.0, bad, 1.0]))
        with pytest.raises(ValueError, match="acquisition's values"):
            Arms([[0.0], [1.0]]).maximize(Value(lambda X, bad=bad: X.squeeze(-1) + bad))


def test_arms_are_looked_up_to_the_last_bit() -> None:
    choices = torch.rand(500, 3, dtype=torch.float64, generator=seeded(4))
    arms = Arms(choices)
    order = torch.randperm(500, generator=seeded(5))
    assert torch.equal(arms.index_of(choices[order]), order)
    off = choices[7].clone()
    off[1] = math.nextafter(off[1].item(), 2.0)
    with pytest.raises(ValueError, match=r"500 arms \(arm 7"):
        arms.index_of(off.unsqueeze(0), "my_x")
    with pytest.raises(ValueError, match=r"has the row .*cat\(\[choices"):
        arms.check_point("x", off)


def test_negative_zero_is_zero() -> None:
    arms = Arms([[-0.0], [1.0]])
    assert arms.index_of(double([[0.0], [-0.0]])).tolist() == [0, 0]
    assert math.copysign(1.0, arms.check_point("x", [-0.0]).item()) == 1.0
    with pytest.raises(ValueError, match="rows 0 and 1"):
        Arms([[0.0], [-0.0]])


def test_rows_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "botorch_bandits.domains._hash_rows", lambda X: torch.zeros(len(X), dtype=torch.long)
    )
    choices = torch.rand(40, 2, dtype=torch.float64)
    arms = Arms(choices)
    order = torch.randperm(40)
    assert torch.equal(arms.index_of(choices[order]), order)
    with pytest.raises(ValueError, match="rows 3 and 40"):
        Arms(torch.cat([choices, choices[3:4]]))


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ([[0.0, 1.0], [2.0, 3.0], [0.0, 1.0]], ValueError, "rows 0 and 2 are the same point"),
        ([[0.0, NAN]], ValueError, r"choices\[0, 1\] is nan"),
        ([[INF, 0.0]], ValueError, r"choices\[0, 0\] is inf"),
        (torch.empty(0, 2, dtype=torch.float64), ValueError, r"\(0, 2\); at least one arm"),
        (torch.empty(3, 0, dtype=torch.float64), ValueError, r"\(3, 0\); at least one column"),
        ([0.0, 1.0], ValueError, "choices must be a matrix"),
        (torch.zeros(2, 2), TypeError, r"float32.*choices\.double\(\)"),
    ],
)
def test_bad_arms_are_refused(choices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Arms(choices)


# --- domains of a user ------------------------------------------------------------------------


class Circle(Domain):
    """Points of distance ``radius`` from the origin of the plane; the least that a loop needs."""

    def __init__(self, radius: float) -> None:
        self.dim, self.radius = 2, radius

    def at(self, angles: Tensor) -> Tensor:
        return self.radius * torch.stack([angles.cos(), angles.sin()], dim=-1)

    def sample(self, num_points: int, generator: torch.Generator | None = None) -> Tensor:
        turns = torch.rand(num_points, generator=generator, dtype=torch.float64)
        return self.at(2 * math.pi * turns)

    def maximize(self, acquisition: AcquisitionFunction, seed: int = 0) -> tuple[Tensor, float]:
        points = self.at(torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64))
        with torch.no_grad():
            value, index = acquisition(points.unsqueeze(-2)).max(dim=0)
        return points[index], float(value)

    def check_point(self, name: str, x: Any) -> Tensor:
        x = torch.as_tensor(x, dtype=torch.float64)
        if abs(float(x.norm()) - self.radius) > 1e-9:
            raise ValueError(f"{name} is {x.tolist()}; it must lie on the circle.")
        return x


def on_circle(domain: Domain, **more: Any) -> BanditLoop:
    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.7)
    bounds = {"rkhs_bound": 2.0, "noise_bound": 0.1}
    return BanditLoop(domain, model, AMMUpperConfidenceBound.with_options(**bounds), **more)


def test_a_domain_of_a_user_is_played_and_storageed(tmp_path: Any) -> None:
    path = tmp_path / "run.db"
    with on_circle(Circle(1.0), storage=path) as loop:
        for _ in range(4):
            query = loop.ask()
            loop.tell(query.id, float(query.x[0]))
    with on_circle(Circle(1.0), storage=path) as loop:
        query = loop.ask()
        # the next query is the maximizer of the bound by an independent dense computation
        X, Y = loop.history.arrived()
        points = Circle(1.0).at(torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64))
        K, k = (torch.exp(-torch.cdist(A, X).square() / (2 * 0.49)) for A in (X, points))
        solve = torch.linalg.inv(K + 0.01 * torch.eye(4, dtype=torch.float64))
        deviation = (1.0 - ((k @ solve) * k).sum(-1)).clamp_min(0.0).sqrt()
        gain = 0.5 * torch.logdet(torch.eye(4, dtype=torch.float64) + K / 0.01)
        width = (4.0 + 2.0 * (0.1**2 / 0.01) * (gain + math.log(10.0))).sqrt()
        bounds = k @ solve @ Y.squeeze(-1) + width * deviation
        assert bounds.max() - bounds[torch.cdist(query.x[None], points).argmin()] < 1e-8
        loop.tell(query.id, 0.0)
        assert loop.guarantee().holds
        assert "maximized exactly by domain.maximize" in loop.guarantee().explain(10_000)
        with pytest.raises(ValueError, match="it must lie on"):
            loop.attach([2.0, 0.0], 0.1)
    with pytest.raises(DifferentSettingsError, match=r"was 1.0, is 2.0"):
        on_circle(Circle(2.0), storage=path)


def test_what_a_domain_of_a_user_lacks_is_named() -> None:
    circle = Circle(1.0)
    with pytest.raises(NotImplementedError, match=r"Circle has no in_context.*Arms\("):
        on_circle(circle, context_dim=1)
    with pytest.raises(NotImplementedError, match="Circle has no volume"):
        circle.volume  # noqa: B018
    with pytest.raises(TypeError, match=r"change test knows only.*Arms\(domain.sample"):
        ChangePointDetector(RBFKernel()).on(circle)
    with pytest.raises(ValueError, match="Circle is a domain"):
        on_circle(circle).ask(available=[[0.0]])
    with pytest.raises(TypeError, match=r"shows no bounds.*Pass BanditGP.with_kernel"):
        BanditLoop(circle)
    assert BanditLoop(circle, acquisition=RandomSearch()).settings.model is None
    del circle.dim
    with pytest.raises(ValueError, match=r"domain\.dim is 0; it must be at least 1"):
        on_circle(circle)


class PeakAt(torch.nn.Module):
    """A narrow peak at one point, in any unit; notes where it is asked."""

    def __init__(self, baseline: Tensor | None, unit: float = 1.0) -> None:
        super().__init__()
        X = double([[0.31, 0.62], [0.9, 0.1]])
        Y = double([[2.0], [0.0]])
        self.model = SingleTaskGP(X, Y).eval()
        self.peak, self.unit, self.asked = X[0], unit, []
        self.X_pending = None
        if unit != 1.0:
            self.value_scale = ValueScale(offset=100.0 * unit, unit=unit)
        if baseline is not None:
            self.X_baseline = baseline

    def forward(self, X: Tensor) -> Tensor:
        self.asked.append(X.detach().reshape(-1, 2))
        squared = (X.squeeze(-2) - self.peak).square().sum(-1)
        return self.unit * (100.0 - torch.log1p(1e6 * squared))


@pytest.mark.parametrize("unit", [1.0, 1e-6])
def test_starting_points_are_also_near_the_best_points(unit: float) -> None:
    box = Box([(0.0, 1.0), (0.0, 1.0)], num_restarts=2, raw_samples=32)
    near = {}
    for baseline in (None, PeakAt(None).model.train_inputs[0]):
        acquisition = PeakAt(baseline, unit)
        x, value = box.maximize(acquisition, seed=4)
        first = torch.cat(acquisition.asked)[: 32 if baseline is None else 64]
        distance = (first - acquisition.peak).norm(dim=-1)
        near[baseline is None] = int((distance < 0.1).sum())
        assert value == pytest.approx(float(acquisition(x[None, None])), rel=1e-9)
    # at random a few, and 32 more with a standard deviation of 0.02 around the best point
    assert near[True] <= 4
    assert near[False] >= 32


@pytest.mark.parametrize("integer_dims", [(), (1,)])
@pytest.mark.parametrize("name", ["improvement", "bound"])
def test_a_list_of_priors_without_rows_has_no_best_one_to_look_near(name, integer_dims):
    """BoTorch would look for the best of no points."""
    priors = [BanditGP.with_kernel(RBFKernel(), noise=noise) for noise in (0.1, 0.2)]
    X = torch.zeros(0, 2, dtype=torch.float64)
    model = BanditGP.with_candidates(priors)(X, X[:, :1])
    box = Box([[0.0, 0.0], [1.0, 3.0]], integer_dims, num_restarts=2, raw_samples=16)
    recipe = (
        LogExpectedImprovement.with_options()
        if name == "improvement"
        else GPUpperConfidenceBound.with_options(width=2.0)
    )
    acquisition = recipe.build(model, box, round_number=1, X_observed=X, Y_observed=X[:, :1])
    x, value = box.maximize(acquisition, seed=0)
    assert box.check_point("x", x).shape == (2,)
    assert math.isfinite(value)
