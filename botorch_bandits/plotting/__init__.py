"""Figures: one style, legible in color and in black and white. Functions return their axes.

========================================  ======================================================
:func:`plot_regret`                       how fast regret grows, method against method
:func:`plot_run`                          what one run found: the gain, the points, the model
:func:`plot_rewards`                      its first panel, the gain over rounds
:func:`plot_diagnostic`                   the width, or another diagnostic, over rounds
:func:`plot_width_against_error`          whether the confidence band covers the reward function
:func:`plot_information_gain`             what was learned, beside what can be learned at most
:func:`plot_posterior`                    the posterior over a domain of one or two dimensions
:func:`plot_pending`                      how many outcomes were in flight, and for how long
:func:`plot_timeline`                     what the tests for a change said, and when a run restarted
:func:`plot_ledger`                       constraint violations and multipliers
:func:`plot_evidence`                     which priors on a list the outcomes speak against
:func:`plot_leave_one_out`                outcomes beside what all others predict of them
========================================  ======================================================

:func:`label_lines` and :func:`label_points` write names beside lines and points, for your own
figures.

Nothing here changes matplotlib's global settings, and no screen is needed.
"""

from botorch_bandits.plotting.evidence import plot_evidence
from botorch_bandits.plotting.labels import label_lines, label_points
from botorch_bandits.plotting.leave_one_out import plot_leave_one_out
from botorch_bandits.plotting.overview import plot_run
from botorch_bandits.plotting.posterior import plot_posterior, plot_width_against_error
from botorch_bandits.plotting.regret import plot_regret
from botorch_bandits.plotting.runs import (
    plot_diagnostic,
    plot_information_gain,
    plot_ledger,
    plot_pending,
    plot_rewards,
    plot_timeline,
)
from botorch_bandits.plotting.style import LINE_STYLES, MARKERS, STYLE, need_matplotlib, new_figure

__all__ = [
    "LINE_STYLES",
    "MARKERS",
    "STYLE",
    "label_lines",
    "label_points",
    "need_matplotlib",
    "new_figure",
    "plot_diagnostic",
    "plot_evidence",
    "plot_information_gain",
    "plot_leave_one_out",
    "plot_ledger",
    "plot_pending",
    "plot_posterior",
    "plot_regret",
    "plot_rewards",
    "plot_run",
    "plot_timeline",
    "plot_width_against_error",
]
