"""Constraint violations and multipliers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botorch_bandits.plotting.style import MARKERS, SMALL, line_style, new_figure

THICK, THIN = 1.8, 0.8


def plot_ledger(ledger: Any, names: Sequence[str] = (), title: str = "") -> Any:
    """Draw what was violated, and the multipliers that followed.

    Args:
        ledger: Of one run, such as ``loop.ledger()``.
        names: One a constraint; their numbers if omitted.
        title: A title for the figure.

    Returns:
        An array of two axes over the outcomes, in order of arrival. Above, for each constraint the
        mean of its values in each epoch (open markers), the running signed violation (thick line),
        in which slack makes up for violation, and the running rectified one (thin line), in which
        it does not; both are time averages. Below, the multipliers in force.

    Raises:
        ValueError: If the ledger is of several replicates, or there are too few or too many names.
    """
    from matplotlib.lines import Line2D

    if ledger.constraints.ndim != 2:
        raise ValueError(
            f"ledger has constraints of shape {tuple(ledger.constraints.shape)}; draw one "
            "replicate at a time."
        )
    if names and (isinstance(names, str) or len(names) != ledger.num_constraints):
        raise ValueError(
            f"names is {names!r}; give a list with one name for each of the "
            f"{ledger.num_constraints} constraints, or leave it out."
        )
    figure, axes = new_figure(2)
    column = axes[:, 0]
    violations, multipliers = column
    known = slice(None) if ledger.mask is None else ledger.mask
    values, epochs = ledger.constraints[known], ledger.epochs[known]
    signed = ledger.running_signed_average[known]
    rectified = ledger.running_rectified_average[known]
    outcomes = range(1, len(values) + 1)
    violations.axhline(0.0, color="0.7", lw=0.8)
    for j in range(ledger.num_constraints):
        style = line_style(j)
        name = names[j] if names else f"constraint {j + 1}"
        violations.plot(outcomes, signed[:, j].tolist(), lw=THICK, label=name, **style)
        violations.plot(outcomes, rectified[:, j].tolist(), lw=THIN, label="_rectified", **style)
        last, means, played = [], [], []
        for epoch in range(1, ledger.num_epochs + 1):
            rows = (epochs == epoch).nonzero().reshape(-1)
            if len(rows):
                last.append(int(rows[-1]) + 1)
                means.append(float(values[rows, j].mean()))
            played += [float(ledger.multipliers[epoch - 1, j])] * len(rows)
        marker = MARKERS[j % len(MARKERS)]
        violations.plot(
            last,
            means,
            marker,
            color=style["color"],
            mfc="white",
            ms=4,
            ls="none",
            label="_epochs",
        )
        multipliers.step(outcomes, played, where="mid", lw=1.5, label=name, **style)
    violations.set_ylabel("constraint value (0 is the limit)")
    multipliers.set_ylabel("multiplier")
    multipliers.set_xlabel("outcome, in order of arrival")
    meanings = [
        Line2D([], [], color="black", lw=THICK, label="signed average (thick)"),
        Line2D([], [], color="black", lw=THIN, label="rectified average (thin)"),
        Line2D([], [], color="black", marker="o", mfc="white", ms=4, ls="none", label="epoch mean"),
    ]
    handles = [*violations.get_legend_handles_labels()[0], *meanings]
    violations.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=SMALL)
    for ax in column:
        ax.set_xlim(0, max(len(values), 1) + 1)
    figure.suptitle(title, fontsize=11)
    return column
