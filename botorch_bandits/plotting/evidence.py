"""The evidence of the outcomes about the priors on a list, one outcome after the other.

Each prior is a line: how much better the whole list predicted than this prior did. One threshold
decides which are eliminated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botorch_bandits.checks import check_instance, check_integer
from botorch_bandits.confidence import EvidenceTable
from botorch_bandits.plotting.style import (
    LINE_STYLES,
    SMALL,
    axes_or_new,
    write_in_the_middle,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ABOVE_THE_THRESHOLD = 2.0
"""The upper end of the axis, in thresholds: lines of eliminated priors soon leave the picture."""


def plot_evidence(table: EvidenceTable, ax: Axes | None = None, num_named: int = 5) -> Axes:
    """Draw the log evidence against each prior on a list over the outcomes.

    A prior whose line reaches the threshold is eliminated there, and the line continues in light
    gray. Of the others, those with the largest posterior weights have names.

    Args:
        table: The table, such as ``loop.evidence()``.
        ax: Axes to draw on; new ones if omitted.
        num_named: The number of lines with names, at most 7.

    Raises:
        TypeError: If ``table`` is not a table of evidence.
        ValueError: If ``num_named`` is negative.
    """
    remedy = "Pass loop.evidence()."
    check_instance("table", table, EvidenceTable, remedy)
    count = min(check_integer("num_named", num_named, minimum=0), len(LINE_STYLES) - 1)
    ax = axes_or_new(ax)
    ax.set_xlabel("outcomes")
    ax.set_ylabel("log evidence against the prior")
    if table.num_outcomes == 0:
        write_in_the_middle(ax, "no outcome has been counted yet")
        return ax
    rows = list(table)
    order = sorted(range(len(rows)), key=lambda k: -rows[k].posterior_weight)
    named = [k for k in order if rows[k].survives][:count]
    steps = range(1, table.num_outcomes + 1)
    for k in range(len(rows)):
        if k not in named:
            color = "0.6" if rows[k].survives else "0.85"
            ax.plot(steps, table.path[:, k].tolist(), color=color, lw=0.8, zorder=1)
    for style, k in zip(LINE_STYLES[1:], named, strict=False):
        values = table.path[:, k].tolist()
        look: dict[str, Any] = {"label": rows[k].name, **style}
        ax.plot(steps, values, lw=1.5, zorder=2, **look)
    label = f"eliminated at level {table.level:g}"
    ax.axhline(table.threshold, color="black", lw=2.5, label=label)
    lowest = min(float(table.path.min()), 0.0)
    ax.set_ylim(1.1 * lowest - 0.2, ABOVE_THE_THRESHOLD * table.threshold)
    if table.is_refuted:
        ax.set_title(f"the list is refuted after {table.refuted_after} outcomes", fontsize=SMALL)
    ax.legend(fontsize=SMALL)
    return ax
