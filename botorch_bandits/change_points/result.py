"""What a test of one stream at one time says."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE


@dataclass(frozen=True, eq=False)
class ChangePointTest:
    """The result of testing every even tail of a stream.

    If a change is detected, the tail is the shortest one whose statistic exceeds its threshold,
    where the scan of Avanesov 2020 stops. Otherwise it is the one nearest to an alarm: the
    largest ratio of statistic to threshold.

    Attributes:
        num_samples: ``N``, how many samples the stream has.
        statistic: The squared difference of both posterior means, in squared outcome units.
        threshold: What the statistic is compared with, in the same units.
        half_size: ``n``; the tail has ``2 n`` samples. 0 without any tail (``N < 2``).
        location: Index in the stream of the first sample after the estimated change, ``N - n``.
        detected: Whether a statistic exceeds its threshold.
        statistics: One for each ``n = 1 .. N // 2``.
        thresholds: One for each ``n``.
        integration_error: Estimated error of ``statistic``; 0 on arms, where it is exact.
    """

    num_samples: int
    statistic: float
    threshold: float
    half_size: int
    location: int
    detected: bool
    statistics: Tensor
    thresholds: Tensor
    integration_error: float = 0.0

    @classmethod
    def of_no_tail(cls, num_samples: int, device: torch.device | None = None) -> ChangePointTest:
        """Return the result for fewer than two samples: nothing is detected.

        Args:
            num_samples: How many there are.
            device: Where the tensors of the result are.
        """
        nothing = torch.empty(0, dtype=DTYPE, device=device)
        return cls(num_samples, 0.0, math.inf, 0, num_samples, False, nothing, nothing)


def deciding_tail(statistics: Tensor, thresholds: Tensor) -> tuple[int, bool]:
    """Return the position of the tail that is reported, and whether it is an alarm.

    Args:
        statistics: One a tail, at least one, shortest tail first.
        thresholds: One a tail, positive; infinity never alarms.
    """
    alarms = statistics > thresholds
    if bool(alarms.any()):
        return int(alarms.to(torch.int8).argmax()), True  # the first of equal entries
    return int((statistics / thresholds).argmax()), False
