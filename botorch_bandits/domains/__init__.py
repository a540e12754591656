"""Domains: the sets from which a bandit chooses.

A :class:`Box` is continuous (some of its dimensions may be integer), :class:`Arms` is a finite
set of points. Both sample uniformly, maximise an acquisition function and integrate a function.
"""

from botorch_bandits.domains.arms import Arms
from botorch_bandits.domains.box import Box
from botorch_bandits.domains.domain import (
    TIE_TOLERANCE,
    Domain,
    Integral,
    first_of_the_largest,
)

__all__ = ["TIE_TOLERANCE", "Arms", "Box", "Domain", "Integral", "first_of_the_largest"]
