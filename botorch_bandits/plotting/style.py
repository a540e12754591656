"""The style that all figures share: axes, line styles, names of axes and marks of rounds.

It applies to a figure's own axes; matplotlib's global settings are not changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botorch_bandits.spaces import Space

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

LINE_STYLES: tuple[dict[str, Any], ...] = tuple(
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

SMALL = 9
"""Font size of legends."""

EXPECTED_COLOR, BAND_COLOR = "#0072B2", "0.87"
"""What a model expects: a dark blue line over a light gray band."""

TOLD: dict[str, Any] = {"marker": "o", "color": "black", "mfc": "0.5", "ms": 4.5, "ls": "none"}
PENDING: dict[str, Any] = {**TOLD, "mfc": "white", "ms": 5.5, "mew": 1.3, "zorder": 4}
FAILED: dict[str, Any] = {**TOLD, "marker": "x", "zorder": 4}
ELSEWHERE: dict[str, Any] = {**TOLD, "marker": ".", "color": "0.7", "mfc": "0.7"}
BEST: dict[str, Any] = {**PENDING, "marker": "*", "ms": 13.0, "mew": 1.0, "zorder": 5}
"""Points: their outcome was told, is missing, does not come, belongs to another context, is best.

They differ in shape and fill, not in color alone.
"""


def need_matplotlib() -> Any:
    """Return ``matplotlib.pyplot``.

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


def label_axis(axis: Axis, domain: Any, i: int, dim: int) -> None:
    """Name an axis that shows a coordinate, with native values at its ticks.

    Args:
        axis: The axis, such as ``ax.xaxis``.
        domain: A :class:`~botorch_bandits.Space` has names; otherwise they are ``x``, or ``x1``,
            ``x2``, ...
        i: The number of the coordinate, from 0.
        dim: The number of coordinates.
    """
    if domain is None or not domain.names:
        axis.set_label_text("x" if dim == 1 else f"x{i + 1}")
        return
    axis.set_label_text(domain.names[i])
    ticks = native_ticks(domain, i)
    if ticks:
        axis.set_ticks([at for at, _ in ticks], [text for _, text in ticks])
    elif i in domain.integer_dims:
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(integer=True))


MOST_TICKS = 8
"""With more categories or decades than this, only every so many have their names at the axis."""


def native_ticks(space: Space, i: int) -> list[tuple[float, str]]:
    """Return positions and texts of a coordinate's ticks; none if plain numbers are enough.

    Logarithms have ticks at 1, 10, 100, ... and, over less than two decades, at 2 and 5 as well.

    Args:
        space: The domain.
        i: The number of the coordinate, from 0.
    """
    parameter: Any = space.parameters[space.names[i]]
    if parameter.categories is not None:
        step = math.ceil(len(parameter.categories) / MOST_TICKS)
        return [(float(k), str(v)) for k, v in enumerate(parameter.categories)][::step]
    if not parameter.log:
        return []
    low, high = parameter.bounds
    first, last = math.floor(low), math.ceil(high)
    step = math.ceil((last - first) / MOST_TICKS)
    factors = (1, 2, 5) if high - low < 2.0 else (1,)
    values = [m * 10.0**k for k in range(first, last + 1, step) for m in factors]
    inside = [v for v in values if parameter.low <= v <= parameter.high]
    if len(inside) < 2:  # the range is less than a decade
        inside = [parameter.low, parameter.high]
    return [(math.log10(v), f"{v:g}") for v in inside]


def mark_rounds(ax: Axes, restarts: Sequence[int], change_points: Sequence[int]) -> None:
    """Draw restarts (solid) and true changes (dotted) as vertical lines; one legend entry each.

    They are drawn between the last round before and the first one after.
    """
    for rounds, label, look in (
        (change_points, "true change", {"color": "black", "ls": ":", "lw": 1.4}),
        (restarts, "restart", {"color": "0.5", "ls": "-", "lw": 0.9}),
    ):
        for k, last in enumerate(rounds):
            ax.axvline(last + 0.5, label="_" if k else label, **look)  # type: ignore[arg-type]


def plot_points(
    ax: Axes, points: Sequence[tuple[Any, Any]], look: dict[str, Any], **more: Any
) -> None:
    """Draw points, if there are any, so that a legend has no entry without one."""
    if points:
        ax.plot([x for x, _ in points], [y for _, y in points], **look, **more)


MOST_BARS = 60
"""More discrete values than this are joined by a line."""


def plot_expected(ax: Axes, x: Any, mean: Any, half: Any, is_discrete: bool, label: str) -> None:
    """Draw a posterior mean and its band: bars at discrete values, otherwise a line.

    Args:
        ax: The axes.
        x: ``n`` values in increasing order.
        mean: ``n`` values.
        half: ``n`` half-widths of the band.
        is_discrete: Whether there is nothing between the values.
        label: The name of the mean in the legend.
    """
    if is_discrete and len(x) <= MOST_BARS:
        bars: dict[str, Any] = {"fmt": "_", "ms": 7, "mew": 2.0, "elinewidth": 3.0}
        ax.errorbar(x, mean, half, color=EXPECTED_COLOR, ecolor="0.75", label=label, **bars)
    else:
        ax.fill_between(x, mean - half, mean + half, color=BAND_COLOR, lw=0)
        ax.plot(x, mean, color=EXPECTED_COLOR, lw=1.6, label=label)
