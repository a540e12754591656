"""What was learned about the reward function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botorch_bandits.checks import check_callable
from botorch_bandits.history import History
from botorch_bandits.plotting.rounds import NO_DIAGNOSTIC, check_history, resets_on_record
from botorch_bandits.plotting.style import (
    SMALL,
    after_round,
    axes_or_new,
    break_at,
    columns,
    line_style,
    mark_rounds,
    write_in_the_middle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GainCurve = Callable[[int], float]


def plot_information_gain(
    history: History,
    bounds: GainCurve | Mapping[str, GainCurve] | None = None,
    resets: Sequence[Any] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the realised information gain over rounds, beside what it can be at most.

    The gain of a round is that of the outcomes with which its query was chosen. After a restart it
    begins again from nothing, and so does the bound.

    Args:
        history: Rounds in which the acquisition did not say its gain are left out.
        bounds: What the gain is compared with: a function from a number of observations (one less
            than the round, counted since the last restart) to nats, such as
            :class:`~botorch_bandits.confidence.GreedyGain` or
            :class:`~botorch_bandits.confidence.RateGain`; or several by name.
        resets: Where the run began anew, such as ``loop.resets``; marked by vertical lines. If
            omitted, they are read off the diagnostics.
        ax: Axes to draw on; new ones if omitted.

    Raises:
        TypeError: If a bound cannot be called.

    Example:
        >>> from botorch_bandits import History
        >>> import math
        >>> ax = plot_information_gain(History(dim=1), {"logarithm": lambda n: math.log(1 + n)})
        >>> ax.get_ylabel()
        'information gain (nats)'
    """
    check_history(history)
    ax = axes_or_new(ax)
    resets = resets_on_record(history) if resets is None else resets
    curves = bounds if isinstance(bounds, Mapping) else {} if bounds is None else {"bound": bounds}
    points = [
        (q.round_number, q.diagnostics["information_gain"])
        for q in history.queries
        if "information_gain" in q.diagnostics
    ]
    mark_rounds(ax, resets)
    if points:
        ax.plot(*break_at(*columns(points), resets), lw=1.5, label="realised gain", **line_style(0))
    else:
        write_in_the_middle(ax, NO_DIAGNOSTIC)
    rounds = list(range(1, history.num_queries + 1))
    starts = [0, *sorted(after_round(reset) for reset in resets)]
    observed = [t - 1 - max(start for start in starts if start < t) for t in rounds]
    for i, (name, curve) in enumerate(curves.items()):
        check_callable("bounds", curve, "Pass a function from a number of observations to nats.")
        known = {n: float(curve(n)) for n in sorted(set(observed))}
        values = [known[n] for n in observed]
        ax.plot(*break_at(rounds, values, resets), lw=1.2, label=name, **line_style(i + 2))
    ax.set_xlim(0, max(history.num_queries, 1) + 1)
    ax.set_xlabel("round")
    ax.set_ylabel("information gain (nats)")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=SMALL)
    return ax
