"""What tests for a change said, or that they could not be computed."""

from __future__ import annotations

from dataclasses import dataclass


class ChangeNotTestedWarning(RuntimeWarning):
    """A test for a change could not be computed."""


@dataclass(frozen=True)
class DetectorReading:
    """What a test of the uniform queries said.

    Attributes:
        after_round: How many rounds had been asked.
        statistic: Of the tail that came nearest to a detection.
        threshold: Of that tail.
        half_size: Half the number of uniform queries in it.
        detected: Whether the segment ended.
        quantity: What was tested: ``"reward"``, or ``"constraint 1"``, ``"constraint 2"``, ...
    """

    after_round: int
    statistic: float
    threshold: float
    half_size: int
    detected: bool
    quantity: str = "reward"
