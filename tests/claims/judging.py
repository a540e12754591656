"""Whether failures are more than a statement allows.

A statement that fails with probability ``delta`` at most, in each of ``n`` independent runs, fails
in at least ``k`` of them with at most the upper tail of the binomial distribution at ``k``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom
from scipy.stats import t as student

SUSPICIOUS = 0.05
"""Below it a setting is played again, more often."""

REFUTED = 1e-4
"""Below it, on runs that were not looked at before, a statement is refuted."""


@dataclass
class Tally:
    """Failures of one statement in runs of one setting.

    Attributes:
        runs: In how many runs it held, as ``guarantee()`` says.
        failed: In how many of them it was not true.
        allowed: The probability with which it may fail.
        excesses: Of statements about an expectation, by how much more there was in each run.
        told: The first failure in words.
    """

    runs: int = 0
    failed: int = 0
    allowed: float = 0.0
    excesses: tuple[float, ...] = ()
    told: str = ""

    @property
    def p_value(self) -> float:
        """The probability of as many failures or more, if the statement is true."""
        p = 1.0
        if self.failed:
            p = binomial_tail(self.failed, self.runs, self.allowed)
        if len(self.excesses) > 2:
            p = min(p, mean_tail(self.excesses))
        return p


def binomial_tail(failed: int, runs: int, allowed: float) -> float:
    """Return the probability of at least so many failures.

    Args:
        failed: How many there were.
        runs: In how many runs.
        allowed: The probability of each.
    """
    return float(binom.sf(failed - 1, runs, allowed))


def mean_tail(excesses: Sequence[float]) -> float:
    """Return the p-value of a one-sided t-test that the mean is at most 0.

    Args:
        excesses: One number per run.
    """
    values = np.asarray(excesses)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    mean = float(values.mean())
    if error == 0.0:
        return 1.0 if mean <= 0.0 else 0.0
    return float(student.sf(mean / error, len(values) - 1))


def pooled_tail(counts: Iterable[tuple[int, int, float]]) -> tuple[int, float, float]:
    """Return failures of many settings together, how many are allowed, and the p-value.

    The number of failures is a sum of binomial numbers, whose distribution is computed exactly.

    Args:
        counts: Failures, runs and the allowed probability of each setting.
    """
    runs_at: dict[float, int] = {}
    failed = 0
    for bad, runs, allowed in counts:
        failed += bad
        runs_at[allowed] = runs_at.get(allowed, 0) + runs
    expected = sum(allowed * runs for allowed, runs in runs_at.items())
    distribution = np.ones(1)
    for allowed, runs in runs_at.items():
        distribution = np.convolve(distribution, binom.pmf(np.arange(runs + 1), runs, allowed))
    return failed, expected, float(min(distribution[failed:].sum(), 1.0)) if failed else 1.0
