"""Tables of one changed factor: a figure's claims again, with one setting in place of another.

An experiment ``PAPER-factors`` plays the settings that a figure was judged by, and then each of
them changed by itself, with fewer trials. It writes ``factors.csv``, whose rows say which change
makes a claim hold, or fail. What counts as a difference and as a fall is what the page of all
figures counts.
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
"""A difference counts from so many of its standard errors."""

FALLS_BY = 0.25
"""A time average that tends to 0 falls by this share between half way and the end."""


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
        """As the methods of panels are called."""
        return self.setting


@dataclass(frozen=True)
class FactorRow:
    """A claim under a setting.

    Attributes:
        figure: The name of the figure, such as ``"shi-2-3"``.
        factor: See :class:`Changed`.
        setting: See :class:`Changed`.
        claim: As the page of all figures has it.
        ours: The numbers that were compared, in words.
        difference: Of these numbers.
        standard_error: Of the difference; empty with a single trial.
        holds: ``"yes"`` or ``"no"``.
        trials: How many runs.
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
        folder: Where files go.
        rows: Figure by figure, the settings as judged first.
    """
    write_csv(folder / "factors.csv", [asdict(row) for row in rows])
    print("\nclaims with one factor changed")
    for row in rows:
        error = row.standard_error
        spread = "" if isinstance(error, str) else f" (standard error {error:.2g})"
        print(f"{row.figure}, {row.setting}: {row.claim}: {row.holds}; {row.ours}{spread}")


def mean_of(values: Tensor) -> tuple[float, float | str]:
    """Return the mean of a vector and its standard error, which is empty for one entry.

    Args:
        values: One number a trial.
    """
    count = len(values)
    values = values.to(DTYPE)
    error = float(values.std() / count**0.5) if count > 1 else ""
    return float(values.mean()), error


def falls_to_zero(half: Tensor, end: Tensor) -> bool:
    """Whether a time average falls enough between half way and the end.

    It must fall by :data:`FALLS_BY` and by more than :data:`ERRORS` standard errors, those of both
    times added as if they were independent; or be within so many of 0 at the end.

    Args:
        half: One number a trial, half way.
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

    The difference is that of the end and half way, with the standard error of the paired numbers.

    Args:
        figure: Its name.
        changed: The setting.
        claim: As the page has it.
        half: One number a trial, half way.
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
