"""The pictures of the league in situations.

There is one file a problem, with a line a method, and one more of what was spent under a budget.
Matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from benchmarks.league_methods import AX
from benchmarks.league_situation_rows import STEP, SituationRow, SituationRows
from benchmarks.league_situation_table import in_order
from benchmarks.league_situations import SITUATIONS, Situation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The palette of Okabe and Ito (2008), which is safe for color blindness; dashes tell in gray.
STYLES: dict[str, tuple[str, str | tuple[int, tuple[float, ...]]]] = {
    "ours": ("#000000", "-"),
    "ours-best": ("#0072B2", (0, (6, 1.5))),
    "ours-censored": ("#56B4E9", (0, (2, 1))),
    "ours-window": ("#0072B2", (0, (6, 1.5))),
    "ours-still": ("#56B4E9", (0, (2, 1))),
    "ours-separate": ("#0072B2", (0, (6, 1.5))),
    "ours-short": ("#56B4E9", (0, (2, 1))),
    "botorch": ("#D55E00", (0, (4, 1, 1, 1))),
    "botorch-window": ("#E69F00", (0, (8, 2, 2, 2))),
    "botorch-ucb": ("#E69F00", (0, (8, 2, 2, 2))),
    "optuna-gp": ("#009E73", (0, (3, 1, 1, 1, 1, 1))),
    "optuna-tpe": ("#CC79A7", (0, (1, 1))),
    AX: ("#7F7F7F", (0, (10, 2))),
    "random": ("#7F7F7F", (0, (1, 3))),
}
"""Color and dashes by method."""

WIDTH, HEIGHT = 7.2, 3.8
"""Inches; the page shows a picture as wide as its text."""


def draw(situation: Situation, rows: SituationRows, quantity: str, path: Path) -> None:
    """Draw what became of a quantity over the rounds, by method.

    Args:
        situation: The problem.
        rows: All of them.
        quantity: A key of :data:`QUANTITIES`.
        path: Of the picture.
    """
    import matplotlib.pyplot as plt

    methods = in_order({row.method for row in rows if row.problem == situation.name})
    last = situation.num_rounds
    with plt.rc_context({"font.size": 10.0, "axes.titlesize": 10.0}):
        figure, ax = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
        ends = {}
        for method in methods:
            runs = list(rows.of(situation.name, method).values())
            ends[method] = _draw_curve(ax, method, runs, quantity)
        if quantity == "violations":
            ax.axhline(0.0, color="0.6", lw=0.8, zorder=0)
        ax.set_xlabel("round")
        ax.set_ylabel(QUANTITIES[quantity])
        ax.set_xlim(0, last * 1.27)
        ax.set_xticks(range(0, last + 1, 2 * STEP))
        ax.spines[["top", "right"]].set_visible(False)
        _label(ax, ends, last)
        ax.set_title(f"{situation.name}: mean over seeds, with its standard error at the end")
        figure.savefig(path, dpi=130)
        plt.close(figure)


QUANTITIES = {"curve": "cumulative regret", "violations": "mean cost less budget"}
"""What is drawn: attributes of rows, and what they are in words."""


def _draw_curve(ax: Axes, method: str, runs: list[SituationRow], quantity: str) -> float:
    curves = [getattr(run, quantity) for run in runs]
    means = [fmean(numbers) for numbers in zip(*curves, strict=True)]
    rounds = [STEP * (i + 1) for i in range(len(means))]
    color, dashes = STYLES.get(method, ("#000000", "-"))
    ax.plot(rounds, means, color=color, ls=dashes, lw=1.8 if method == "ours" else 1.4)
    if len(runs) > 1:
        error = stdev(curve[-1] for curve in curves) / math.sqrt(len(curves))
        ax.errorbar(rounds[-1], means[-1], error, color=color, capsize=2, lw=1.2)
    return means[-1]


def _label(ax: Axes, ends: dict[str, float], last: int) -> None:
    """Write names at the ends of their lines, moved apart where these are close."""
    low, high = ax.get_ylim()
    gap = 0.062 * (high - low)
    names = sorted(ends, key=ends.__getitem__)
    places = [ends[name] for name in names]
    for _ in range(200):  # push neighbors apart until all have room
        for i in range(len(places) - 1):
            lack = gap - (places[i + 1] - places[i])
            if lack > 0.0:
                places[i] -= 0.5 * lack
                places[i + 1] += 0.5 * lack
        lowest = places[0] - low
        if lowest < 0.0:
            places = [place - lowest for place in places]
    for name, place in zip(names, places, strict=True):
        color, _ = STYLES.get(name, ("#000000", "-"))
        ax.annotate(
            name,
            (last, ends[name]),
            xytext=(last * 1.045, place),
            textcoords="data",
            color=color,
            fontsize=10,
            va="center",
            arrowprops={"arrowstyle": "-", "color": color, "lw": 0.6},
            annotation_clip=False,
        )


def draw_all(rows: SituationRows, folder: Path) -> list[Path]:
    """Draw a picture for each problem that has rows, and of what was spent under a budget.

    Args:
        rows: All of them.
        folder: Gets ``league-situations-PROBLEM.png``, and ``league-situations-PROBLEM-cost.png``.

    Returns:
        The pictures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for situation in SITUATIONS.values():
        if any(row.problem == situation.name for row in rows):
            stem = f"league-situations-{situation.name}"
            pictures = {"curve": f"{stem}.png"}
            if situation.has_budget:
                pictures["violations"] = f"{stem}-cost.png"
            for quantity, name in pictures.items():
                draw(situation, rows, quantity, folder / name)
                paths.append(folder / name)
    return paths
