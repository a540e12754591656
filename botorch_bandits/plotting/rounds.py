"""What one run did, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from botorch_bandits.checks import check_instance
from botorch_bandits.history import History
from botorch_bandits.plotting.style import (
    SMALL,
    axes_or_new,
    break_at,
    columns,
    mark_rounds,
    new_figure,
    write_in_the_middle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NO_DIAGNOSTIC = "this method has none"
LABELS = {"width": "width (standard deviations)", "information_gain": "information gain (nats)"}


def plot_rewards(history: History, ax: Axes | None = None, reference: float | None = None) -> Axes:
    """Draw observed rewards and the best so far over rounds.

    Args:
        history: Rounds without an outcome are left out.
        ax: Axes to draw on; new ones if omitted.
        reference: A horizontal line for comparison, such as the default's reward.
    """
    check_history(history)
    ax = axes_or_new(ax)
    arrived = scatter_rewards(history, ax)
    best, steps = float("-inf"), []
    for t, y in arrived:
        best = max(best, y)
        steps.append((t, best))
    if steps:
        ax.step(*columns(steps), where="post", color="black", lw=1.8, label="best so far")
    if reference is not None:
        ax.axhline(reference, color="black", ls="-.", lw=1.2, label="default")
    ax.set_xlabel("round")
    ax.set_ylabel("reward")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="lower right", fontsize=SMALL)
    return ax


def plot_diagnostic(
    history: History, name: str, ax: Axes | None = None, resets: Sequence[Any] | None = None
) -> Axes:
    """Draw one diagnostic of the acquisition over rounds.

    Args:
        history: Rounds without it are left out.
        name: ``"width"``, ``"information_gain"``, ``"mean"`` or ``"standard_deviation"``.
        ax: Axes to draw on; new ones if omitted.
        resets: Where the run began anew, such as ``loop.resets``: the line is not joined across.
            If omitted, they are read off the diagnostics (:func:`resets_on_record`).
    """
    check_history(history)
    ax = axes_or_new(ax)
    points = [
        (q.round_number, q.diagnostics[name]) for q in history.queries if name in q.diagnostics
    ]
    if points:
        resets = resets_on_record(history) if resets is None else resets
        ax.plot(*break_at(*columns(points), resets), color="black", lw=1.5)
    else:
        write_in_the_middle(ax, NO_DIAGNOSTIC)
    ax.set_xlabel("round")
    ax.set_ylabel(LABELS.get(name, name.replace("_", " ")))
    return ax


def plot_run(
    history: History,
    title: str = "",
    reference: float | None = None,
    resets: Sequence[Any] | None = None,
    change_points: Sequence[int] | None = (),
) -> Any:
    """Draw reward, best so far, width and information gain over rounds.

    Args:
        history: What to draw.
        title: A title for the figure.
        reference: A horizontal line in the reward panel.
        resets: Where the run began anew, such as ``loop.resets``: solid vertical lines, at which
            width and information gain begin anew. If omitted, they are read off the diagnostics
            (:func:`resets_on_record`).
        change_points: The last round before each true change, where they are known: dotted lines.

    Returns:
        An array of three axes; ``axes[0].figure`` is the figure.
    """
    check_history(history)
    resets = resets_on_record(history) if resets is None else resets
    figure, axes = new_figure(3)
    column = axes[:, 0]
    for ax in column:
        mark_rounds(ax, resets, change_points)
        ax.set_xlim(0, max(history.num_queries, 1) + 1)
    plot_rewards(history, column[0], reference)
    plot_diagnostic(history, "width", column[1], resets)
    plot_diagnostic(history, "information_gain", column[2], resets)
    for ax in column[:-1]:
        ax.set_xlabel("")
    figure.suptitle(title, fontsize=11)
    return column


def resets_on_record(history: History) -> list[int]:
    """Return after which rounds a loop with ``restart=`` began anew, as its queries tell.

    Each query has the number of its segment among its diagnostics, so that a restart is known once
    a query has followed. A point that was evaluated elsewhere has none: where such come first after
    a restart, it is placed behind them.

    Args:
        history: Of the loop.
    """
    found, before = [], None
    for query in history.queries:
        segment = query.diagnostics.get("segment", before)
        if before is not None and segment != before:
            found.append(query.round_number - 1)
        before = segment
    return found


def scatter_rewards(history: History, ax: Axes) -> list[tuple[int, float]]:
    """Draw arrived rewards, a marker for each origin; return rounds and rewards."""
    told = [(q, history.outcome(q.id)) for q in history.queries]
    arrived = [(q.round_number, q.origin, o.reward) for q, o in told if o is not None]
    for origin, marker, fill, label in (
        ("initial", "s", "white", "reward (initial)"),
        ("exploration", "^", "white", "reward (exploration)"),
        ("random", "v", "white", "reward (random)"),
        ("acquisition", "o", "0.6", "reward"),
        ("attached", "D", "white", "reward (attached)"),
    ):
        points = [(t, y) for t, o, y in arrived if o == origin]
        if points:
            ax.plot(*columns(points), marker, color="0.3", mfc=fill, ms=4, ls="none", label=label)
    return [(t, y) for t, _, y in arrived]


def check_history(history: Any) -> History:
    """Return the history; raise a TypeError that says where to find one otherwise."""
    checked: History = check_instance(
        "history", history, History, "Pass loop.history, or the history of a result."
    )
    return checked
