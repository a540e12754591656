"""The style that all figures share: axes, line styles, grays and marks of rounds.

It applies to a figure's own axes; matplotlib's global settings are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botorch_bandits.spaces import Categorical, Float, Integer, Space

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "font.size": 10,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 130,
}
"""Settings of matplotlib for the figures of this package, which hold while a figure is made."""

LINE_STYLES = tuple(
    {"color": color, "ls": style}
    for color, style in (
        ("#000000", "-"),
        ("#D55E00", "--"),
        ("#0072B2", "-."),
        ("#009E73", ":"),
        ("#E69F00", "-"),
        ("#CC79A7", (0, (6, 1.5, 1, 1.5, 1, 1.5))),
        ("#56B4E9", (0, (9, 2))),
        ("#666666", (0, (2.5, 1))),
    )
)
"""Lines that can be told apart with any color vision, and in black and white by their dashes.

The hues are those of Okabe and Ito, except for their yellow, which is too light on white.
"""

MARKERS = ("o", "s", "^", "D", "v")
"""Markers that can be told apart at small sizes."""

SMALL = 9
"""Font size of legends and of names beside lines."""

ORIGINS = (
    ("initial", "s", "initial, random"),
    ("exploration", "^", "exploration, random"),
    ("random", "v", "random"),
    ("acquisition", "o", "chosen"),
    ("repeat", ".", "played again"),
    ("attached", "D", "attached"),
)
"""The origins of points, with their markers and names in legends."""

LINE_COLOR = "#08306b"
"""Dark blue, nearly black in print: what a run found, and what a model expects."""

RANDOM_COLOR, RANDOM_BAND = "#d95f02", "#fdd0a2"
"""Orange, a middle gray in print: random search and its variation."""

PENDING: dict[str, Any] = {
    "marker": "o",
    "color": "black",
    "mfc": "white",
    "ms": 6.0,
    "mew": 1.6,
    "zorder": 4,
}
"""A point whose outcome is still missing."""

FAILED: dict[str, Any] = {"marker": "x", "color": "black", "ms": 6.0, "mew": 1.4, "zorder": 4}
"""A point whose evaluation failed."""

BEST: dict[str, Any] = {
    "marker": "*",
    "color": "black",
    "mfc": "white",
    "ms": 14.0,
    "mew": 1.0,
    "zorder": 5,
}
"""The best point."""


def need_matplotlib() -> Any:
    """Return ``matplotlib.pyplot`` with a backend that needs no screen if there is none.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'botorch_bandits[plot]'.") from error
    return plt


def new_figure(
    num_rows: int = 1, num_columns: int = 1, width: float = 7.0, height: float | None = None
) -> tuple[Figure, Any]:
    """Return a figure in the package's style and an array of its axes.

    Args:
        num_rows: Rows of axes.
        num_columns: Columns of axes.
        width: Inches.
        height: Inches; if omitted, 2.6 per row and a little more.

    Returns:
        The figure and a ``num_rows x num_columns`` array of axes.
    """
    plt = need_matplotlib()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            num_rows,
            num_columns,
            figsize=(width, 2.6 * num_rows + 0.4 if height is None else height),
            squeeze=False,
            layout="constrained",
        )
    return figure, axes


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes, or those of a new figure with one panel."""
    if ax is None:
        panel: Axes = new_figure()[1][0, 0]
        return panel
    if not hasattr(ax, "get_lines"):
        raise TypeError(f"ax is {ax!r}; pass one matplotlib Axes, or leave it out.")
    return ax


def axis_names(domain: Any, dim: int) -> list[str]:
    """Return the names of the coordinates of a domain.

    Args:
        domain: The domain. A :class:`~botorch_bandits.Space` has names; otherwise they are ``x``,
            or ``x1``, ``x2``, ...
        dim: The number of coordinates.
    """
    if isinstance(domain, Space):
        return list(domain.names)
    return ["x"] if dim == 1 else [f"x{i + 1}" for i in range(dim)]


def label_axis(axis: Axis, domain: Any, i: int, dim: int) -> None:
    """Name an axis that shows a coordinate, with native values at its ticks.

    Args:
        axis: The axis, such as ``ax.xaxis``.
        domain: See :func:`axis_names`.
        i: The number of the coordinate, from 0.
        dim: The number of coordinates.
    """
    name = axis_names(domain, dim)[i]
    axis.set_label_text(name)
    if not isinstance(domain, Space):
        return
    ticks = native_ticks(domain, i)
    if ticks is not None:
        axis.set_ticks([at for at, _ in ticks], [text for _, text in ticks])
    elif i in domain.integer_dims:
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(integer=True))


MOST_TICKS = 12
"""With more categories than this, only every so many have their names at the axis."""


def native_ticks(space: Space, i: int) -> list[tuple[float, str]] | None:
    """Return positions and texts of a coordinate's ticks; None if plain numbers are enough.

    Logarithms have ticks at 1, 10, 100, ... and, over less than two decades, at 2 and 5 as well.

    Args:
        space: The domain.
        i: The number of the coordinate, from 0.
    """
    parameter = space.parameters[space.names[i]]
    if isinstance(parameter, Categorical):
        step = math.ceil(len(parameter.values) / MOST_TICKS)
        return [(float(k), str(v)) for k, v in enumerate(parameter.values)][::step]
    if not isinstance(parameter, Float | Integer) or not parameter.log:
        return None
    low, high = parameter.bounds
    first, last = math.floor(low), math.ceil(high)
    step = math.ceil((last - first) / MOST_TICKS)
    factors = (1, 2, 5) if high - low < 2.0 else (1,)
    values = [m * 10.0**k for k in range(first, last + 1, step) for m in factors]
    inside = [v for v in values if parameter.low <= v <= parameter.high]
    if len(inside) < 2:  # the range is less than a decade
        inside = [parameter.low, parameter.high]
    return [(math.log10(v), f"{v:g}") for v in inside]


def line_style(number: int) -> dict[str, Any]:
    """Return the style of the line with this number, from 0; markers tell later ones apart."""
    style: dict[str, Any] = dict(LINE_STYLES[number % len(LINE_STYLES)])
    repeat = number // len(LINE_STYLES)
    if repeat > len(MARKERS):
        most = len(LINE_STYLES) * (len(MARKERS) + 1)
        raise ValueError(
            f"there are more than {most} lines in one panel, which nobody can tell apart; draw "
            "them in several panels with ax=."
        )
    if repeat:
        style |= {"marker": MARKERS[repeat - 1], "markevery": 0.1, "ms": 4}
    return style


def write_in_the_middle(ax: Axes, text: str) -> None:
    """Write in an empty panel why it is empty."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center")


def mark_rounds(
    ax: Axes, resets: Sequence[Any] = (), change_points: Sequence[int] | None = ()
) -> None:
    """Draw restarts (solid) and true changes (dotted) as vertical lines; one legend entry each.

    They are drawn between the last round before and the first one after.
    """
    for i, tau in enumerate(change_points or ()):
        label = "_" if i else "true change"
        ax.axvline(tau + 0.5, color="black", ls=":", lw=1.4, label=label)
    for i, reset in enumerate(resets):
        label = "_" if i else "restart"
        ax.axvline(after_round(reset) + 0.5, color="0.5", lw=0.9, label=label)


def after_round(reset: Any) -> int:
    """Return the round after which a loop started over.

    Args:
        reset: A :class:`~botorch_bandits.change_points.Reset`, or the number of the round itself.
    """
    return int(getattr(reset, "after_round", reset))


def break_at(
    rounds: Sequence[int], values: Sequence[float], resets: Sequence[Any]
) -> tuple[list[float], list[float]]:
    """Return a line that is interrupted at restarts by a NaN in each gap.

    Args:
        rounds: The round of each value, or the round after which it holds, in order.
        values: One per round.
        resets: See :func:`after_round`.
    """
    ends = sorted(after_round(reset) for reset in resets)
    xs: list[float] = []
    ys: list[float] = []
    for t, value in zip(rounds, values, strict=True):
        crossed = 0
        while ends and ends[0] < t:
            ends.pop(0)
            crossed += 1
        if crossed and xs:
            xs.append(float("nan"))
            ys.append(float("nan"))
        xs.append(t)
        ys.append(value)
    return xs, ys


def columns(points: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    """Return first and second entries of pairs, as two lists."""
    return [p[0] for p in points], [p[1] for p in points]
