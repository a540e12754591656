"""The warning of a loop that keeps asking for a point at which every evaluation fails.

A failure that is reported without ``avoid=True`` is treated as chance: the model does not change,
so the same point maximizes the acquisition function again.
"""

from __future__ import annotations

import warnings

from torch import Tensor

from botorch_bandits.checks import level_of_users_line
from botorch_bandits.history import Event, Failure, History, point_text
from botorch_bandits.loop.settings import LoopSettings

MOST_AT_A_POINT = 3
"""The number of consecutive failures at one point after which a loop warns."""

SAME_POINT = 1e-3
"""Points of a box count as the same if they differ by at most this share of each range."""


class RepeatedFailureWarning(RuntimeWarning):
    """A point fails each time it is asked for, and the loop was not told to avoid it."""


def warn_of_repeated_failures(settings: LoopSettings, history: History) -> None:
    """Warn if the last three evaluations failed at one point that the loop does not avoid.

    Args:
        settings: The settings of the loop.
        history: The history, which ends with a failure. Further failures in the same series are not
            reported again.
    """
    # otherwise avoid=True would change nothing
    if not settings.feedback.hallucinates or settings.is_random:
        return
    events = history.events[-MOST_AT_A_POINT - 1 :]
    row, before = events[-MOST_AT_A_POINT:], events[:-MOST_AT_A_POINT]
    if len(row) < MOST_AT_A_POINT:
        return
    query = history.query(row[-1].query_id)
    tolerance: float | Tensor = 0.0
    if settings.domain.bounds is not None:
        lower, upper = settings.domain.bounds
        tolerance = SAME_POINT * (upper - lower)

    def is_there(x: Tensor) -> bool:
        return bool(((x - query.x).abs() <= tolerance).all())

    def failed_there(event: Event) -> bool:
        is_failure = event.state == Failure.state and not event.avoided
        return is_failure and is_there(history.query(event.query_id).x)

    if not all(map(failed_there, row)):
        return
    if any(map(failed_there, before)):
        return  # the warning was issued before
    if any(is_there(history.query(outcome.query_id).x) for outcome in history.outcomes):
        return
    warnings.warn(
        f"the point ({point_text(query)}) failed {MOST_AT_A_POINT} times in a row and never gave "
        "an outcome, and the loop will go on asking for it. If the point is the cause, pass "
        "avoid=True: loop.fail(query.id, reason, avoid=True).",
        RepeatedFailureWarning,
        stacklevel=level_of_users_line(),
    )
