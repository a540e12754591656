"""The posterior over two dimensions, as contours or points in shades of grey."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from botorch_bandits.plotting.queries import PlacedQueries
from botorch_bandits.plotting.style import SMALL, new_figure

NUM_LEVELS = 8
_STAR: dict[str, Any] = {"ms": 14, "ls": "none", "clip_on": False, "zorder": 4}


def draw_plane(
    X: Tensor,
    mean: Tensor,
    deviation: Tensor,
    true_values: Tensor | None,
    excluded: Tensor | None,
    queries: PlacedQueries,
    star: Tensor | None,
    axes: Any,
    is_arms: bool,
) -> Any:
    """Draw mean and standard deviation side by side; see :func:`.plot_posterior`.

    Args:
        X: ``n x 2`` points; those of a grid, first dimension slowest, unless they are arms.
        mean: ``n`` values.
        deviation: ``n`` values.
        true_values: ``n`` values, or None.
        excluded: ``n`` values of a constraint, or None.
        queries: To be marked.
        star: The next query, or None.
        axes: A pair of axes, or None for new ones.
        is_arms: Whether points are drawn in place of contours.

    Returns:
        An array of two axes.
    """
    panels = new_figure(1, 2, width=9.0, height=4.2)[1][0] if axes is None else axes
    if np.size(panels) != 2:
        raise ValueError(
            f"ax is {axes!r}; two dimensions need a pair of axes: mean and standard deviation."
        )
    panels = np.asarray(panels).reshape(-1)
    for ax, values, title in zip(
        panels, (mean, deviation), ("posterior mean", "posterior standard deviation"), strict=True
    ):
        if is_arms:
            _draw_arms(ax, X, values, excluded, title)
        else:
            _draw_contours(ax, X, values, excluded)
        queries.draw_on_plane(ax)
        if star is not None:
            x, y = star.tolist()
            ax.plot(x, y, "*", color="black", mfc="white", label="next query", **_STAR)
        ax.set_title(f"{title} (units of the reward)", fontsize=SMALL + 2)
        ax.set_xlabel("x1")
        ax.set_ylabel("x2")
        ax.grid(False)
    if true_values is not None and not is_arms:
        levels = _levels(mean)
        side = round(len(X) ** 0.5)
        x, y, z = (v.reshape(side, side).numpy() for v in (X[:, 0], X[:, 1], true_values))
        panels[0].contour(x, y, z, levels=levels, colors="black", linestyles="--", linewidths=0.8)
        panels[0].plot([], [], color="black", ls="--", lw=0.8, label="reward function")
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        panels[0].figure.legend(
            handles, labels, loc="outside lower center", ncols=len(handles), fontsize=SMALL
        )
    return panels


def _levels(values: Tensor) -> Any:
    """Return increasing levels for contours, also of a constant."""
    from matplotlib.ticker import MaxNLocator

    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        low, high = low - 0.5, high + 0.5
    return MaxNLocator(NUM_LEVELS).tick_values(low, high)


def _light_greys() -> Any:
    """Return shades on which black and white markers can be seen; dark is large."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("light greys", ["1.0", "0.45"])


def _draw_contours(ax: Any, X: Tensor, values: Tensor, excluded: Tensor | None) -> None:
    side = round(len(X) ** 0.5)
    x, y, z = (v.reshape(side, side).numpy() for v in (X[:, 0], X[:, 1], values))
    levels = _levels(values)
    ax.contourf(x, y, z, levels=levels, cmap=_light_greys())
    lines = ax.contour(x, y, z, levels=levels, colors="0.35", linestyles="-", linewidths=0.7)
    ax.clabel(lines, fontsize=SMALL - 1, colors="black")
    if excluded is None:
        return
    g = excluded.reshape(side, side).numpy()
    if g.max() > 0.0:
        hatched = ax.contourf(
            x, y, g, levels=[0.0, max(float(g.max()), 1e-300)], colors="none", hatches=["//"]
        )
        hatched.set_edgecolor("0.5")
        hatched.set_linewidth(0.0)
    if g.min() < 0.0 < g.max():
        ax.contour(x, y, g, levels=[0.0], colors="black", linestyles="-.", linewidths=1.4)
        ax.plot([], [], color="black", ls="-.", lw=1.4, label="limit of the constraint")


def _draw_arms(ax: Any, X: Tensor, values: Tensor, excluded: Tensor | None, title: str) -> None:
    x, y = X.T.numpy()
    shades = ax.scatter(
        x, y, c=values.numpy(), cmap=_light_greys(), s=90, marker="s", edgecolors="0.4"
    )
    ax.figure.colorbar(shades, ax=ax).set_label(title, fontsize=SMALL)
    if excluded is not None:
        bad = (excluded > 0.0).numpy()
        ax.plot(x[bad], y[bad], "x", color="black", ms=9, ls="none", label="not feasible")
