"""Runs that explore and begin anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botorch_bandits.history import History
from botorch_bandits.plotting.rounds import check_history, scatter_rewards
from botorch_bandits.plotting.style import (
    SMALL,
    break_at,
    columns,
    mark_rounds,
    new_figure,
    write_in_the_middle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SYMBOLS = ("o", "s", "D", "v", "P")  # an upright triangle is an estimated change
DASHES: tuple[Any, ...] = ("--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))


def plot_timeline(
    history: History,
    resets: Sequence[Any] = (),
    readings: Sequence[Any] = (),
    change_points: Sequence[int] | None = (),
    title: str = "",
) -> Any:
    """Draw a run that explores and begins anew: rewards, and what the detector said.

    Args:
        history: What to draw, such as ``loop.history``.
        resets: Where it began anew, such as ``loop.resets``.
        readings: What the tests said, such as ``loop.detector_readings``.
        change_points: The last round before each true change, where they are known.
        title: A title for the figure.

    Returns:
        An array of two axes. Above, rewards by round, with those of exploration rounds as open
        triangles. Below, the statistic of each test (of the tail nearest to a detection) and its
        threshold, with a marker and a line for each quantity that was tested; detections are
        filled. Thresholds are not joined across restarts. Solid vertical lines are restarts,
        dotted ones true changes; carets at the foot are where the detector takes the changes to be.
    """
    check_history(history)
    figure, axes = new_figure(2)
    column = axes[:, 0]
    rewards, tests = column
    scatter_rewards(history, rewards)
    rewards.set_ylabel("reward")
    if readings:
        _draw_readings(tests, readings, resets)
    else:
        write_in_the_middle(tests, "no test for a change")
    tests.set_ylabel("squared difference\n(squared outcome units)")
    tests.set_xlabel("round")
    located = [r.change_round for r in resets if getattr(r, "change_round", None) is not None]
    for ax in column:
        mark_rounds(ax, resets, change_points)
        if located:
            ax.plot(
                located,
                [0.0] * len(located),
                "^",
                color="black",
                ms=6,
                transform=ax.get_xaxis_transform(),
                clip_on=False,
                label="estimated change",
            )
        ax.set_xlim(0, max(history.num_queries, 1) + 1)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=SMALL)
    figure.suptitle(title, fontsize=11)
    return column


def _draw_readings(ax: Axes, readings: Sequence[Any], resets: Sequence[Any]) -> None:
    """Draw statistics and thresholds, by quantity."""
    by_quantity: dict[str, list[Any]] = {}
    for reading in readings:
        by_quantity.setdefault(getattr(reading, "quantity", "reward"), []).append(reading)
    for i, (quantity, some) in enumerate(by_quantity.items()):
        ending = "" if len(by_quantity) == 1 else f", {quantity}"
        grey = "0.4" if i < len(DASHES) else "0.65"
        points = [(r.after_round, r.threshold) for r in some]
        ax.plot(
            *break_at(*columns(points), resets),
            ls=DASHES[i % len(DASHES)],
            color=grey,
            lw=1.2,
            label=f"threshold{ending}",
        )
        for detected, fill, label in ((False, "white", "statistic"), (True, "black", "detection")):
            points = [(r.after_round, r.statistic) for r in some if r.detected is detected]
            if points:
                ax.plot(
                    *columns(points),
                    SYMBOLS[i % len(SYMBOLS)],
                    color="black",
                    mfc=fill,
                    ms=4,
                    ls="none",
                    label=f"{label}{ending}",
                )
    values = [value for r in readings for value in (r.statistic, r.threshold)]
    if any(value > 0.0 and math.isfinite(value) for value in values):
        ax.set_yscale("log")
