"""Names at the ends of lines: beside their line, in its order, and never over one another."""

from __future__ import annotations

import itertools
import random

import pytest
from matplotlib.text import Text

from botorch_bandits.plotting import label_lines, label_points, new_figure
from botorch_bandits.plotting.labels import move_apart


@pytest.mark.parametrize("seed", range(5))
def test_intervals_are_moved_apart_as_little_as_possible(seed: int) -> None:
    """Against a search over small moves of all intervals that stay apart."""
    draw = random.Random(seed)
    sizes = [draw.uniform(0.05, 0.2) for _ in range(5)]
    centers = [draw.random() for _ in sizes]
    found = move_apart(centers, sizes)

    def cost(places: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(places, centers, strict=True))

    def is_allowed(places: list[float]) -> bool:
        spans = sorted((c - s / 2, c + s / 2) for c, s in zip(places, sizes, strict=True))
        apart = all(a[1] <= b[0] + 1e-9 for a, b in itertools.pairwise(spans))
        return apart and spans[0][0] >= -1e-9 and spans[-1][1] <= 1 + 1e-9

    assert is_allowed(found)
    order = sorted(range(5), key=centers.__getitem__)
    assert sorted(range(5), key=found.__getitem__) == order
    for _ in range(3000):
        moved = [place + draw.gauss(0.0, 0.02) for place in found]
        same_order = sorted(range(5), key=moved.__getitem__) == order
        if is_allowed(moved) and same_order:
            assert cost(moved) >= cost(found) - 1e-9


def test_what_does_not_fit_is_centered_and_what_is_apart_stays() -> None:
    assert move_apart([0.2, 0.8], [0.1, 0.1]) == [0.2, 0.8]
    assert move_apart([0.0, 1.0], [1.0, 1.0]) == [0.0, 1.0]
    assert move_apart([], []) == []


def test_names_stand_at_the_right_in_the_order_of_the_ends_and_apart() -> None:
    figure, axes = new_figure(width=7.0, height=3.0)
    ax = axes[0, 0]
    for end in (0.5, 0.51, 0.49, 0.9):
        ax.plot([0, 1], [0, end], label=f"to {end}")
    ax.plot([0, 1], [0, 1])  # has no name
    ax.plot([0, float("nan")], [0, 1], label="early")
    ax.plot([float("nan")], [0.0], label="nowhere")
    names = label_lines(ax)
    assert [name.get_text() for name in names] == [
        "to 0.5",
        "to 0.51",
        "to 0.49",
        "to 0.9",
        "early",
    ]
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(name) for name in names]  # without the line to it
    for a, b in itertools.combinations(boxes[:4], 2):
        assert a.y1 <= b.y0 or b.y1 <= a.y0
    heights = [(box.y0 + box.y1) / 2 for box in boxes]
    assert heights[2] < heights[0] < heights[1] < heights[3]
    right = ax.get_window_extent().x1
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)
    assert all(name.get_position()[0] > 1.0 for name in names[:4])
    assert boxes[4].x1 < right


def test_long_names_have_several_rows() -> None:
    ax = new_figure()[1][0, 0]
    ax.plot([0, 1], [0, 1], label="a name that is longer than a margin should be")
    (name,) = label_lines(ax)
    assert "\n" in name.get_text()
    assert label_lines(new_figure()[1][0, 0]) == []


def test_names_of_points_stand_beside_them_and_apart() -> None:
    figure, axes = new_figure(width=7.0, height=3.0)
    ax = axes[0, 0]
    points = [(1.0, 1.0), (1.0, 1.001), (1.01, 1.0), (5.0, 9.0)]
    ax.plot(*zip(*points, strict=True), "o")
    names = label_points(ax, points, ["a", "b", "c", "d"])
    figure.draw_without_rendering()
    boxes = [Text.get_window_extent(name) for name in names]
    for a, b in itertools.combinations(boxes[:3], 2):
        assert a.y1 <= b.y0 or b.y1 <= a.y0
    for box, point in zip(boxes, points, strict=True):
        assert box.x0 > ax.transData.transform(point)[0]
    assert (boxes[3].y0 + boxes[3].y1) / 2 == pytest.approx(
        ax.transData.transform(points[3])[1], abs=2.0
    )
    assert label_points(ax, [], []) == []
    with pytest.raises(ValueError, match="names has 1 entries for 2 points"):
        label_points(ax, points[:2], ["a"])
