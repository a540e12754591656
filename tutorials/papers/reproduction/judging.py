"""What an experiment says about a published figure, and the rules by which it is judged.

A figure has several claims. Each claim is checked by one rule against the tables of this run, and
the verdict follows from the checks. :data:`RULES` states the rules in words for the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from papers.estimates import ALIKE_WITHIN, FAR
from papers.estimates import ERRORS as ERRORS
from papers.estimates import Estimate as Estimate
from papers.estimates import are_alike as are_alike
from papers.estimates import is_larger as is_larger
from papers.pictures import Row, Written
from papers.running import read_written


class MissingRowsError(LookupError):
    """A judge asked for rows that the experiment did not write, as its panel was not run."""


@dataclass(frozen=True)
class Evidence(Written):
    """The tables of one experiment, with methods that query them."""

    @classmethod
    def of_folder(cls, folder: Path) -> Evidence:
        """Read the folder of an experiment.

        Args:
            folder: What :func:`~papers.running.run_experiment` wrote.
        """
        return cls(**vars(read_written(folder)))

    def rows(self, table: str, panel: str = "*", **columns: str | int) -> list[Row]:
        """Return the rows of a table.

        Args:
            table: Its name.
            panel: A pattern for the names of panels, which may contain ``*``.
            columns: Values that the rows must have.

        Raises:
            MissingRowsError: If there are none.
        """
        found = [
            row
            for row in self.tables.get(table, ())
            if fnmatchcase(row.get("experiment", ""), panel)
            and all(row.get(name) == str(value) for name, value in columns.items())
        ]
        if not found:
            wanted = ", ".join([panel, *map(str, columns.values())])
            raise MissingRowsError(f"no rows of {wanted} in the table {table!r}")
        return found

    def panels(self, patterns: Sequence[str]) -> list[Mapping[str, Any]]:
        """Return what the settings say about panels, in the order of the patterns.

        Args:
            patterns: Patterns for the names of the panels.
        """
        known = self.settings.get("panels", ())
        return [panel for p in patterns for panel in known if fnmatchcase(panel["name"], p)]

    def mean(self, panel: str, method: str, quantity: str = "regret") -> Estimate:
        """Return the mean of the quantity by which methods of a panel are compared.

        Args:
            panel: Its name.
            method: The method's name.
            quantity: ``"regret"``, ``"simple regret"``, ``"simple regret, middle"``, or a column
                such as ``"violation"`` of the tables with constraints, at the last round.
        """
        if "violation" in self.tables:
            row = self.rows("violation", panel, method=method)[-1]
            return estimate(row, f"{quantity}_mean", f"{quantity}_standard_error")
        row = self.rows("table", panel, method=method)[0]
        if row["regret"] != "simple" or quantity == "simple regret":
            return estimate(row, "mean", "standard_error")
        if quantity == "regret":
            return estimate(row, "cumulative_mean", "cumulative_standard_error")
        raise MissingRowsError(f"{panel} has no column of the {quantity}")

    def difference(self, panel: str, worse: str, better: str, quantity: str = "regret") -> Estimate:
        """Return how much more of a quantity one method has than another over the same trials.

        Args:
            panel: Its name.
            worse: The method that should have more.
            better: The method that should have less.
            quantity: See :meth:`mean`.
        """
        for first, second, sign in ((worse, better, 1.0), (better, worse, -1.0)):
            columns = {"method": first, "less": second, "quantity": quantity}
            try:
                (row,) = self.rows("differences", panel, **columns)
            except MissingRowsError:
                continue
            found = estimate(row, "mean", "standard_error")
            return Estimate(sign * found.mean, found.standard_error)
        raise MissingRowsError(f"no {quantity} of {worse} and {better} in {panel}")


def estimate(row: Row, mean: str, standard_error: str) -> Estimate:
    """Return two columns of a row as an estimate.

    Args:
        row: A row of a table.
        mean: The column of the mean.
        standard_error: The column of its standard error; empty or of one trial is infinite.
    """
    one = row.get("trials") == "1" or row[standard_error] == ""
    return Estimate(float(row[mean]), math.inf if one else float(row[standard_error]))


FALLS_BY = 0.25
"""The share by which a time average that tends to 0 must fall in the second half of a run."""

NUM_QUOTED = 3
"""The largest number of claims that a reason quotes; the list of claims has all of them."""

RULES = (
    "Differences are over the same trials: the second method named in a claim less the first.",
    f"Less, ahead, worse: the mean difference over the same trials is larger than {ERRORS:g} of "
    "its standard errors, in the published direction. Far ahead, in addition: the means differ by "
    "a factor of two or more. Best: ahead of all others.",
    "A curve below another (simple regret over rounds): less in the middle (round 80, or three "
    "fifths of shorter runs) or at the end, and at neither of them more.",
    f"Alike: the difference is at most {ERRORS:g} of its standard errors, or at most "
    f"{ALIKE_WITHIN:.0%} of the larger mean. With few trials the first is a weak test, so the "
    "numbers are shown.",
    f"Tends to 0: between half way and the end the time average falls by {FALLS_BY:.0%} or more, "
    f"and by more than {ERRORS:g} standard errors, or is within {ERRORS:g} of 0. Converges: half "
    "way and the end are alike. Errors of two times, and of two panels, are added as if they were "
    "independent.",
    "A fitted power agrees: the published one lies in our 95% interval, or ours in the published. "
    "Sub-linear, slower than the rounds: all of our 95% interval is below 1.",
    "Verdict: reproduced if all claims hold. Not, if none of the main claims does. Partly "
    "otherwise.",
)


class Verdict(StrEnum):
    """The verdict on a figure."""

    REPRODUCED = "reproduced"
    PARTLY = "partly reproduced"
    NOT = "not reproduced"
    NOT_RUN = "not run"
    NONE = "no verdict: quick settings"


@dataclass(frozen=True)
class Check:
    """A claim and whether it holds.

    Attributes:
        claim: What the paper says, in a few words.
        holds: Whether it holds here.
        ours: The numbers that were compared.
        standard_error: The standard error of the number that decides, where there is one.
        is_main: Whether the claim is a main one; if no main claim holds, the figure is not
            reproduced.
    """

    claim: str
    holds: bool
    ours: str
    standard_error: float | None = None
    is_main: bool = True


def decide(checks: Sequence[Check]) -> Verdict:
    """Return the verdict that follows from checks.

    Args:
        checks: The checks of one figure, at least one of them of a main claim.
    """
    if all(check.holds for check in checks):
        return Verdict.REPRODUCED
    return Verdict.PARTLY if any(c.holds for c in checks if c.is_main) else Verdict.NOT


def reason(checks: Sequence[Check]) -> str:
    """Return the reason for a verdict: how many claims hold, and the numbers of those that do not.

    Args:
        checks: The checks of one figure.
    """
    broken = [check for check in checks if not check.holds]
    quoted = (broken or checks)[:NUM_QUOTED]
    words = "; ".join(f"{check.claim} ({check.ours})" for check in quoted)
    if not broken:
        start = f"All {len(checks)} claims hold" if len(checks) > 1 else "The claim holds"
        return f"{start}{', among them' if len(checks) > len(quoted) else ''}: {words}."
    more = len(broken) - len(quoted)
    end = f"; and {more} more in the list of claims" if more else ""
    return f"{len(checks) - len(broken)} of {len(checks)} claims hold. Does not hold: {words}{end}."


def ahead(
    evidence: Evidence,
    panel: str,
    better: str,
    worse: str,
    quantity: str = "regret",
    far: bool = False,
    is_main: bool = True,
    where: str = "",
) -> Check:
    """Check that one method has less of a quantity than another.

    Args:
        evidence: The tables.
        panel: The panel.
        better: The method that should have less.
        worse: The method that should have more.
        quantity: The quantity that is compared.
        far: Whether the better method should have half or less of it.
        is_main: See :class:`Check`.
        where: Words that identify the panel, for a claim about several panels.
    """
    difference = evidence.difference(panel, worse, better, quantity)
    low, high = (evidence.mean(panel, name, quantity) for name in (better, worse))
    holds = is_larger(difference) and (not far or high.mean >= FAR * low.mean)
    claim = f"{better} {'far ' if far else ''}ahead of {worse}{_in(where)}"
    ours = f"{quantity} {low.mean:.4g} and {high.mean:.4g}, difference {difference.signed}"
    return Check(claim, holds, ours, _finite(difference), is_main)


def best(evidence: Evidence, panel: str, method: str, others: Sequence[str]) -> Check:
    """Check that one method has less regret than all others.

    Args:
        evidence: The tables.
        panel: The panel.
        method: The method that should be best.
        others: The others.
    """
    mean = evidence.mean(panel, method).mean
    more = {other: evidence.difference(panel, other, method) for other in others}
    words = ", ".join(f"{other} {difference.signed}" for other, difference in more.items())
    holds = all(map(is_larger, more.values()))
    return Check(f"{method} best", holds, f"regret {mean:.4g}; differences: {words}")


def below(
    evidence: Evidence,
    panel: str,
    better: str,
    worse: str,
    is_main: bool = True,
    where: str = "",
) -> Check:
    """Check that one curve of simple regret is below another; arguments as for :func:`ahead`."""
    middle = evidence.difference(panel, worse, better, "simple regret, middle")
    end = evidence.difference(panel, worse, better, "simple regret")
    both = (middle, end)
    holds = any(map(is_larger, both)) and not any(is_larger(_minus(each)) for each in both)
    ours = f"difference of simple regret {middle.signed} in the middle, {end.signed} at the end"
    return Check(f"{better} below {worse}{_in(where)}", holds, ours, _finite(middle), is_main)


def alike(
    evidence: Evidence,
    panel: str,
    first: str,
    second: str,
    quantity: str = "regret",
    is_main: bool = True,
    where: str = "",
) -> Check:
    """Check that two methods are alike; arguments as for :func:`ahead`."""
    difference = evidence.difference(panel, second, first, quantity)
    means = [evidence.mean(panel, name, quantity).mean for name in (first, second)]
    holds = are_alike(difference, max(map(abs, means)))
    ours = f"{quantity} {means[0]:.4g} and {means[1]:.4g}, difference {difference.signed}"
    return Check(
        f"{first} and {second} alike{_in(where)}", holds, ours, _finite(difference), is_main
    )


def tends_to_zero(half: Estimate, end: Estimate) -> bool:
    """Whether a time average falls enough between the halfway point and the end.

    Args:
        half: The average halfway.
        end: The average at the end.
    """
    is_there = abs(end.mean) <= ERRORS * end.standard_error < math.inf
    return is_there or (is_larger(half - end) and end.mean <= (1.0 - FALLS_BY) * half.mean)


def _minus(estimate: Estimate) -> Estimate:
    return Estimate(-estimate.mean, estimate.standard_error)


def _finite(estimate: Estimate) -> float | None:
    return estimate.standard_error if math.isfinite(estimate.standard_error) else None


def _in(where: str) -> str:
    return f", {where}" if where else ""


@dataclass(frozen=True)
class Number:
    """A number from the paper and the corresponding number from this run.

    Attributes:
        name: What the number describes.
        published: The paper's number.
        ours: The number from this run, with its error where it has one.
    """

    name: str
    published: str
    ours: str


@dataclass(frozen=True)
class Figure:
    """A published figure, or several that show one run; or an experiment beyond the papers.

    Attributes:
        name: A short name for links and files.
        paper: The authors and year; empty beyond the papers.
        number: The number of the figure; a title beyond the papers.
        experiment: The experiment from which it is drawn.
        panels: Patterns for the experiment's panels.
        published: What the paper says, in our words; beyond the papers, the question.
        judge: Maps the experiment's tables to checked claims; None beyond the papers.
        differs: How this run differs from the paper.
        numbers: Maps the tables to the paper's numbers and ours.
        findings: Maps the tables to what was found, for experiments beyond the papers.
    """

    name: str
    paper: str
    number: str
    experiment: str
    panels: tuple[str, ...]
    published: str
    judge: Callable[[Evidence], list[Check]] | None = None
    differs: str = ""
    numbers: Callable[[Evidence], list[Number]] | None = None
    findings: Callable[[Evidence], Sequence[str]] | None = None

    @property
    def is_published(self) -> bool:
        """Whether it is in a paper."""
        return self.judge is not None
