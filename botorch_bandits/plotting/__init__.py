"""Figures of a run, of a posterior and of regret. Functions return matplotlib's axes.

==========================  ====================================================================
:func:`plot_run`            what one run found: outcomes by round and parameter, constraints
:func:`plot_posterior`      the posterior over a domain of one or two dimensions, or a slice
:func:`plot_regret`         how fast regret grows, method against method
==========================  ====================================================================

:func:`new_figure` makes axes of the same style for your own figures, and ``LINE_STYLES`` are lines
that can be told apart with any color vision and in black and white.

Nothing here changes matplotlib's global settings, and no screen is needed.
"""

from botorch_bandits.plotting.posterior import plot_posterior
from botorch_bandits.plotting.regret import plot_regret
from botorch_bandits.plotting.run import plot_run
from botorch_bandits.plotting.style import LINE_STYLES, new_figure

__all__ = ["LINE_STYLES", "new_figure", "plot_posterior", "plot_regret", "plot_run"]
