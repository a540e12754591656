"""Tables of one changed factor: a figure's claims with one setting replaced by another.

An experiment ``PAPER-factors`` plays the settings by which a figure was judged, and then changes
one of them at a time, with fewer trials. It writes ``factors.csv``, whose rows say which change
makes a claim hold or fail. The rules for a difference and for a fall are those of the page of all
figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from papers.results import write_csv

ERRORS = 2.0
"""A difference counts from this many of its standard errors."""

FALLS_BY = 0.25
"""A time average that tends to 0 must fall by this share in the second half of a run."""


@dataclass(frozen=True)
class Changed:
    """A setting with one factor changed.

    Attributes:
        factor: What was changed, in words; ``"none"`` for the settings as judged.
        setting: Its value, in words.
        source: Section or equation of the paper, ``"released code"``, or ``"ours"``.
    """

    factor: str
    setting: str
    source: str

    @property
    def name(self) -> str:
        """The name of a panel's method under this setting."""
        return self.setting


@dataclass(frozen=True)
class FactorRow:
    """A claim under a setting.

    Attributes:
        figure: The name of the figure, such as ``"shi-2-3"``.
        factor: See :class:`Changed`.
        setting: See :class:`Changed`.
        claim: The claim in the words of the page of all figures.
        ours: The numbers that were compared, in words.
        difference: The difference of these numbers.
        standard_error: The standard error of the difference; empty with a single trial.
        holds: ``"yes"`` or ``"no"``.
        trials: The number of runs.
        source: See :class:`Changed`.
    """

    figure: str
    factor: str
    setting: str
    claim: str
    ours: str
    difference: float
    standard_error: float | str
    holds: str
    trials: int
    source: str


def write_factors(folder: Path, rows: Sequence[FactorRow]) -> None:
    """Write ``factors.csv`` and print it.

    Args:
        folder: The folder for the files.
        rows: The rows, figure by figure, each starting with the settings as judged.
    """
    write_csv(folder / "factors.csv", [asdict(row) for row in rows])
    print("\nclaims with one factor changed")
    for row in rows:
        error = row.standard_error
        spread = "" if isinstance(error, str) else f" (standard error {error:.2g})"
        print(f"{row.figure}, {row.setting}: {row.claim}: {row.holds}; {row.ours}{spread}")


def mean_of(values: Tensor) -> tuple[float, float | str]:
    """Return the mean of a vector and its standard error, which is empty for a single entry.

    Args:
        values: One number a trial.
    """
    count = len(values)
    values = values.to(DTYPE)
    error = float(values.std() / count**0.5) if count > 1 else ""
    return float(values.mean()), error


def falls_to_zero(half: Tensor, end: Tensor) -> bool:
    """Whether a time average falls enough between the halfway point and the end.

    It must either fall by :data:`FALLS_BY` and by more than :data:`ERRORS` standard errors, where
    the errors of both times are added as if they were independent, or be within :data:`ERRORS`
    standard errors of 0 at the end.

    Args:
        half: One number a trial, halfway.
        end: The same at the end.
    """
    (before, error_before), (after, error_after) = mean_of(half), mean_of(end)
    if isinstance(error_before, str) or isinstance(error_after, str):
        return False
    spread = float(torch.tensor([error_before, error_after]).norm())
    is_there = abs(after) <= ERRORS * error_after
    fall = before - after
    falls = fall > 0.0 and fall > ERRORS * spread and after <= (1.0 - FALLS_BY) * before
    return is_there or falls


def fall_row(
    figure: str, changed: Changed, claim: str, half: Tensor, end: Tensor, should_fall: bool
) -> FactorRow:
    """Return the row of a claim that a time average tends to 0, or that it does not.

    The difference is between the end and the halfway point, with the standard error of the paired
    numbers.

    Args:
        figure: The name of the figure.
        changed: The setting.
        claim: The claim in the words of the page.
        half: One number a trial, halfway.
        end: The same at the end.
        should_fall: Whether the claim says that it tends to 0.
    """
    difference, error = mean_of(end - half)
    return FactorRow(
        figure,
        changed.factor,
        changed.setting,
        claim,
        f"{float(half.mean()):.3g} half way, {float(end.mean()):.3g} at the end",
        difference,
        error,
        "yes" if falls_to_zero(half, end) == should_fall else "no",
        len(end),
        changed.source,
    )
