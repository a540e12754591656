"""Outcomes against what all other outcomes predict of them: whether a model can be trusted.

Each outcome is a mark with the interval that the model gives it; outcomes outside it stand out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botorch_bandits.checks import check_instance
from botorch_bandits.models import ModelCheck
from botorch_bandits.plotting.style import SMALL, axes_or_new, write_in_the_middle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 1.959963984540054
"""The half-width, in standard deviations, of an interval with probability 0.95."""


def plot_leave_one_out(check: ModelCheck, ax: Axes | None = None) -> Axes:
    """Draw each outcome against what all other outcomes predict of it, with its 95% interval.

    Marks near the diagonal were predicted well. Outcomes outside their interval are filled; under a
    correct model these are about one in twenty.

    Args:
        check: The check, such as ``loop.check_model()``.
        ax: Axes to draw on; new ones if omitted.

    Raises:
        TypeError: If ``check`` is not a check of a model.
    """
    check_instance("check", check, ModelCheck, "Pass loop.check_model().")
    ax = axes_or_new(ax)
    ax.set_xlabel("outcome")
    ax.set_ylabel("predicted by all others")
    if len(check.outcomes) == 0:
        write_in_the_middle(ax, "no outcome has arrived yet")
        return ax
    means, half = check.left_out_means, WIDTH * check.left_out_deviations
    inside = (check.outcomes - means).abs() <= half
    for chosen, fill, label in ((inside, "white", "within its 95%"), (~inside, "black", "outside")):
        if bool(chosen.any()):
            ax.errorbar(
                check.outcomes[chosen].tolist(), means[chosen].tolist(),
                yerr=half[chosen].tolist(), fmt="o", color="black", mfc=fill, ms=4.5, lw=0.8,
                ecolor="0.6", label=f"{label}: {int(chosen.sum())}",
            )  # fmt: skip
    low, high = float(check.outcomes.min()), float(check.outcomes.max())
    ax.plot([low, high], [low, high], color="0.4", ls="--", lw=1.0)
    ax.set_title(check.verdict.partition(":")[0].rstrip("."), fontsize=SMALL + 1)
    ax.legend(fontsize=SMALL)
    return ax
