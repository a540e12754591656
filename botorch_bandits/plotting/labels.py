"""Names of lines at their ends, where they cover no line, instead of a legend.

Names that would overlap are moved apart, as little as possible; a short piece of line leads from
each to its line, in that line's color and dashes.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botorch_bandits.plotting.style import SMALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

LINE_HEIGHT = 1.3
"""The height of a name, in units of its font size."""

AT_THE_RIGHT = 0.8
"""A line that ends to the left of this share of the axes has its name at its end."""

DISTANCE = 0.04
"""The gap between axes and names, as a share of the width of the axes."""

NEAR, BESIDE = 0.1, 0.018
"""The distance of close points, and that of names from their points, as shares of the width."""

MOST_CHARACTERS = 28
"""Longer names are broken into several rows."""


def label_lines(ax: Axes, fontsize: float = SMALL) -> list[Any]:
    """Write the name of each line at its end, to the right of the axes.

    Names keep the order of the ends of their lines and are moved apart where they would overlap.
    Call it last: names do not move when limits of the axes or the size of the figure change. The
    figure must make room for them, as one with a constrained layout does.

    Args:
        ax: The axes. Lines with a label get names, unless the label begins with an underscore.
        fontsize: The size in points.

    Returns:
        The annotations, in the order of the lines.

    Example:
        >>> from botorch_bandits.plotting import new_figure
        >>> ax = new_figure()[1][0, 0]
        >>> line = ax.plot([0, 1], [0, 1], label="a method")
        >>> label_lines(ax)[0].get_text()
        'a method'
    """
    ends = [(line, end) for line in ax.get_lines() if (end := _end_of(line)) is not None]
    if not ends:
        return []
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    height = ax.get_window_extent().height / ax.figure.dpi * 72.0
    to_axes = ax.transData + ax.transAxes.inverted()
    places = [tuple(to_axes.transform(end)) for _, end in ends]
    names = [textwrap.wrap(str(line.get_label()), MOST_CHARACTERS) for line, _ in ends]
    sizes = [LINE_HEIGHT * fontsize * len(rows) / height for rows in names]
    right = [i for i, (x, _) in enumerate(places) if x >= AT_THE_RIGHT]
    moved = move_apart([places[i][1] for i in right], [sizes[i] for i in right])
    heights = dict(zip(right, moved, strict=True))
    return [
        _annotate(ax, line, end, "\n".join(names[i]), heights.get(i), fontsize)
        for i, (line, end) in enumerate(ends)
    ]


def move_apart(
    centers: Sequence[float], sizes: Sequence[float], low: float = 0.0, high: float = 1.0
) -> list[float]:
    """Return centers of intervals that do not overlap, with the least sum of squared moves.

    Args:
        centers: The preferred centers of the intervals.
        sizes: The lengths of the intervals.
        low: No interval begins below this, unless they do not all fit.
        high: No interval ends above this, unless they do not all fit.

    Example:
        >>> move_apart([0.5, 0.5, 0.9], [0.2, 0.2, 0.2])
        [0.4, 0.6, 0.9]
    """
    order = sorted(range(len(centers)), key=lambda i: centers[i])
    starts: list[float] = []  # start of each interval if all are joined end to end from 0
    total = 0.0
    for i in order:
        starts.append(total)
        total += sizes[i]
    spare = max(high - low - total, 0.0)
    bottom = low if spare > 0.0 else (low + high - total) / 2.0
    # less the lengths below them, the centers only have to be non-decreasing
    wanted = [centers[i] - sizes[i] / 2.0 - start for i, start in zip(order, starts, strict=True)]
    moved = [min(max(value, bottom), bottom + spare) for value in _not_decreasing(wanted)]
    found = [0.0] * len(centers)
    for i, start, value in zip(order, starts, moved, strict=True):
        found[i] = round(value + start + sizes[i] / 2.0, 12)
    return found


def _not_decreasing(values: Sequence[float]) -> list[float]:
    """Return the nearest values that do not decrease: neighbors that decrease are pooled."""
    pools: list[tuple[float, int]] = []
    for value in values:
        mean, count = value, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean = (before * number + mean * count) / (number + count)
            count += number
        pools.append((mean, count))
    return [mean for mean, count in pools for _ in range(count)]


def _end_of(line: Line2D) -> tuple[float, float] | None:
    """Return the last finite point of a line that has a name."""
    if str(line.get_label()).startswith("_"):
        return None
    points = line.get_xydata().tolist()  # type: ignore[union-attr]
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    return finite[-1] if finite else None


def _annotate(
    ax: Axes,
    line: Line2D,
    end: tuple[float, float],
    name: str,
    height: float | None,
    fontsize: float,
) -> Any:
    if height is None:  # the line ends early, so there is room after its end
        return ax.annotate(
            name,
            end,
            xytext=(5.0, 0.0),
            textcoords="offset points",
            va="center",
            fontsize=fontsize,
            bbox={"fc": "white", "ec": "none", "alpha": 0.75, "pad": 0.5},
        )
    leader = {"color": line.get_color(), "ls": line.get_linestyle(), "lw": 1.0}
    return ax.annotate(
        name,
        end,
        xytext=(1.0 + DISTANCE, height),
        textcoords="axes fraction",
        va="center",
        fontsize=fontsize,
        annotation_clip=False,
        arrowprops={"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5), **leader},
    )


def label_points(
    ax: Axes,
    points: Sequence[tuple[float, float]],
    names: Sequence[str],
    fontsize: float = SMALL,
) -> list[Any]:
    """Write names to the right of points; names of close points are moved apart in height.

    Call it last, like :func:`label_lines`.

    Args:
        ax: Axes on which the points are drawn.
        points: The points in the units of the axes.
        names: One name per point.
        fontsize: The size in points.

    Returns:
        The annotations, in the order of the points.

    Raises:
        ValueError: If there are not as many names as points.
    """
    if len(points) != len(names):
        raise ValueError(f"names has {len(names)} entries for {len(points)} points; give one each.")
    if not points:
        return []
    ax.figure.draw_without_rendering()  # type: ignore[union-attr]
    size = LINE_HEIGHT * fontsize / (ax.get_window_extent().height / ax.figure.dpi * 72.0)
    to_axes = ax.transData + ax.transAxes.inverted()
    places = [tuple(to_axes.transform(point)) for point in points]
    heights = [0.0] * len(points)
    for near in _clusters([x for x, _ in places]):
        moved = move_apart([places[i][1] for i in near], [size] * len(near))
        for i, height in zip(near, moved, strict=True):
            heights[i] = height
    return [
        ax.annotate(
            name,
            point,
            xytext=(x + BESIDE, height),
            textcoords="axes fraction",
            va="center",
            fontsize=fontsize,
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "shrinkA": 0,
                "shrinkB": 3,
                "relpos": (0, 0.5),
                "color": "0.6",
                "lw": 0.6,
            },
        )
        for point, name, (x, _), height in zip(points, names, places, heights, strict=True)
    ]


def _clusters(places: Sequence[float]) -> list[list[int]]:
    """Return the numbers of places in groups in which each is close to the next."""
    groups: list[list[int]] = []
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        if groups and places[i] - places[groups[-1][-1]] < NEAR:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups
