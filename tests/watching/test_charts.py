"""Axes and marks of charts: where they stand, and what cannot be drawn."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import pytest
from reading_html import NASTY, Reader

from botorch_bandits.watching.charts import LEFT, RIGHT, Axis, Chart, numbers_axis, round_ticks


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (-3.2, 7.9), (1e-12, 3e-12), (-2e9, 5e12), (1e9, 1e9 + 1e-3)]
)
def test_ticks_are_few_round_and_inside(low: float, high: float) -> None:
    ticks = round_ticks(low, high)
    assert 3 <= len(ticks) <= 10
    slack = 1e-6 * (high - low)
    assert all(low - slack <= value <= high + slack for value, _ in ticks)
    assert len({text for _, text in ticks}) == len(ticks)
    steps = {f"{b - a:.3g}" for (a, _), (b, _) in pairwise(ticks)}
    assert len(steps) == 1 or high - low < 1e-9 * high
    if high - low > 1e-9 * high:
        assert re.fullmatch(r"[125]0*(\.0*)?(e[-+]\d+)?|0\.0*[125]|[125]e[-+]\d+", steps.pop())


def test_ticks_at_whole_numbers() -> None:
    assert [value for value, _ in round_ticks(0.4, 3.6, whole=True)] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("values", [[], [2.0], [1e300, 1e300], [0.0, 0.0]])
def test_an_axis_of_one_value_can_be_drawn(values: list[float]) -> None:
    axis = numbers_axis(values, "reward")
    assert axis.can_be_drawn
    assert all(axis.low < value < axis.high for value in values)


@pytest.mark.parametrize(("low", "high"), [(-1.7e308, 1.7e308), (1.0, 1.0), (0.0, math.inf)])
def test_what_float64_cannot_divide_is_said_and_not_drawn(low: float, high: float) -> None:
    chart = Chart(numbers_axis([1.0, 2.0], "round"), Axis(low, high, "y", ()), NASTY)
    chart.mark(1.0, 0.0, "o", "told")
    read = Reader(str(chart.svg()))
    assert read.tags == ["p"]
    assert "too far apart" in read.text


def test_marks_stand_where_their_numbers_are() -> None:
    x, y = Axis(0.0, 10.0, "round", ((5.0, NASTY),)), Axis(0.0, 1.0, "reward", ())
    chart = Chart(x, y, NASTY, width=LEFT + RIGHT + 100.0, height=148.0)  # axes of 100 x 100
    chart.mark(2.5, 0.5, "o", "told", NASTY)
    chart.line([(0.0, 0.0), (5.0, 1.0), (6.0, None), (10.0, 0.0)], "first")
    chart.steps([(0.0, 0.0), (5.0, 1.0), (7.0, None)], "best")
    chart.upright(7.5, "reset", NASTY)
    read = Reader(str(chart.svg()))
    assert ("path", "transform", f"translate({LEFT + 25.0:.1f},60.0)") in read.attributes
    lines = [value for tag, name, value in read.attributes if (tag, name) == ("path", "d")]
    assert "M64.0,110.0L114.0,10.0M164.0,110.0" in lines
    assert "M64.0,110.0L114.0,110.0L114.0,10.0L134.0,10.0" in lines
    assert ("line", "x1", f"{LEFT + 75.0:.1f}") in read.attributes
    assert read.text.count(NASTY) == 3  # of the chart, the mark and the line; ticks are cut off
    assert "script" not in read.tags
