r"""Thresholds of the change test, as functions of the half size ``n``.

The statistic is a squared difference, and so is a threshold. It is given for a kernel of unit prior
variance; for a model with prior variance :math:`s^2`, it is :math:`s^2 \theta_n`. Theorem 3.1 has

.. math:: \theta_n = C (F^2 + g^2 \ln^2 T) \, n^{-(2a+d)/(2a+d+1)}

in outcome units, with a bound ``F`` on the norm of every function, the sub-Gaussian bound ``g`` of
the noise and the horizon ``T``, but not the constant ``C``.

Source: Avanesov 2020, theorem 3.1 and (3.6), one of which prints ``g`` in place of ``g^2``; remark
3.1 for calibration.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_number,
    check_positive,
    store_checked,
)


def rate_exponent(smoothness: float, dim: int) -> float:
    r"""Return :math:`(2 a + d) / (2 a + d + 1)`, the rate of the ridge and of the threshold.

    Args:
        smoothness: ``a``, the ``nu`` of a Matern kernel; infinity for the squared exponential
            kernel.
        dim: ``d``, the number of input dimensions, contexts included.

    Example:
        >>> round(rate_exponent(2.5, 1) * 7, 12)
        6.0
    """
    if math.isinf(smoothness):
        return 1.0
    return (2.0 * smoothness + dim) / (2.0 * smoothness + dim + 1.0)


class Threshold(ABC):
    """The threshold for the statistic of a tail of ``2 n`` samples."""

    @abstractmethod
    def values(self, half_sizes: Tensor, smoothness: float, dim: int) -> Tensor:
        """Return one threshold for each half size.

        Args:
            half_sizes: ``n``, positive, float64.
            smoothness: ``a``, the smoothness of the detector's kernel.
            dim: The number of input dimensions, contexts included.
        """


@dataclass(frozen=True)
class PowerThreshold(Threshold):
    r"""A power of the half size; by default the threshold of the experiments of Avanesov 2020.

    .. math:: \theta_n = \mathrm{scale} \cdot n^{\mathrm{exponent}}, \qquad 2.6 \, n^{-6/7}

    The published values are for one dimension, a Matern 5/2 kernel, ``statistic="mean"`` and a
    kernel of unit variance.

    Args:
        scale: The threshold of ``n = 1``, positive. Infinity never detects a change.
        exponent: Usually negative; ``-(2 a + d) / (2 a + d + 1)`` in theory.

    Raises:
        ValueError: If the scale is not positive or the exponent is not finite.

    Example:
        >>> n = torch.tensor([1.0, 128.0], dtype=torch.float64)
        >>> PowerThreshold().values(n, 2.5, 1)
        tensor([2.6000, 0.0406], dtype=torch.float64)
    """

    scale: float = 2.6
    exponent: float = -6.0 / 7.0

    def __post_init__(self) -> None:
        """Check the arguments."""
        store_checked(self, scale=check_positive("scale", self.scale, or_infinite=True))
        store_checked(self, exponent=check_number("exponent", self.exponent))

    def values(self, half_sizes: Tensor, smoothness: float, dim: int) -> Tensor:
        return self.scale * half_sizes**self.exponent


@dataclass(frozen=True)
class CalibratedThreshold(Threshold):
    """A threshold whose level was found by simulation, returned by :func:`calibrate_threshold`.

    Attributes:
        levels: One for each ``n = 1 .. horizon // 2``, for a kernel of unit variance.
        exponent: Beyond the horizon, the last level is continued with this power of ``n``. No rate
            is claimed there.
        horizon: The number of uniform samples since the last reset for which the rate is claimed.
        false_alarm_rate: The desired probability of any alarm within the horizon.
        confidence: With at least this probability over the simulations, the true rate is at most
            ``false_alarm_rate``. If None, this holds on average over the simulations.
        num_simulations: The number of simulated streams without a change.
        num_alarms: The number of these that raise an alarm at these levels. The level was chosen on
            the same streams: for an unbiased check, simulate again with
            :func:`estimate_false_alarm_rate`.
        seed: The seed of the simulations.
        source: The source of functions and noise, in words.
    """

    levels: tuple[float, ...]
    exponent: float
    horizon: int
    false_alarm_rate: float
    confidence: float | None
    num_simulations: int
    num_alarms: int
    seed: int
    source: str

    def values(self, half_sizes: Tensor, smoothness: float, dim: int) -> Tensor:
        levels = torch.tensor(self.levels, dtype=half_sizes.dtype, device=half_sizes.device)
        largest = float(len(levels))
        calibrated = levels[half_sizes.clamp(max=largest).long() - 1]
        return calibrated * (half_sizes.clamp(min=largest) / largest) ** self.exponent
