"""Means with standard errors, and the rules by which a difference counts.

Published claims are judged by these rules, and tables of one changed factor use them to say whether
a claim holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

ERRORS = 2.0
"""A difference counts from this many of its standard errors."""

ALIKE_WITHIN = 0.1
"""Means also count as alike if they differ by less than this share of the larger one."""

FAR = 2.0
"""Far ahead means that the means differ by this factor or more."""


@dataclass(frozen=True)
class Estimate:
    """A mean over trials.

    Attributes:
        mean: The mean.
        standard_error: The standard error; infinite with a single trial, which does not reveal the
            spread.
    """

    mean: float
    standard_error: float

    @classmethod
    def of(cls, values: Tensor) -> Estimate:
        """Return the mean of one number per trial.

        Args:
            values: ``num_trials`` numbers.
        """
        count = len(values)
        error = float(values.std()) / count**0.5 if count > 1 else math.inf
        return cls(float(values.mean()), error)

    def __str__(self) -> str:
        """Return the mean and its standard error."""
        if math.isinf(self.standard_error):
            return f"{self.mean:.3g} (one trial)"
        mean = self.mean if abs(self.mean) > 1e-9 * self.standard_error else 0.0  # rounding
        return f"{mean:.3g} ± {self.standard_error:.2g}"

    @property
    def signed(self) -> str:
        """The mean, with its sign, and its standard error, for differences."""
        return f"{self}" if self.mean < 0.0 else f"+{self}"

    def __sub__(self, other: Estimate) -> Estimate:
        """Return the difference of independent estimates."""
        spread = math.hypot(self.standard_error, other.standard_error)
        return Estimate(self.mean - other.mean, spread)


def is_larger(difference: Estimate) -> bool:
    """Whether a difference is positive beyond its errors.

    Args:
        difference: The difference, with its standard error.
    """
    return difference.mean > 0.0 and difference.mean > ERRORS * difference.standard_error


def are_alike(difference: Estimate, larger: float) -> bool:
    """Whether a difference is within its errors, or small compared with the larger mean.

    Args:
        difference: The difference of two means; from a single trial, it must be small.
        larger: The larger of the two means.
    """
    size = abs(difference.mean)
    errors = difference.standard_error
    return size <= ALIKE_WITHIN * larger or (math.isfinite(errors) and size <= ERRORS * errors)
