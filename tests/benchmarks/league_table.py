"""What the rows of the league say: medians, paired differences, and who is behind whom.

Simple regret is compared by its logarithm, seed by seed: the seeds have the same initial points and
the same noise for all methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from benchmarks.league import CHECKPOINTS, Row, Rows
from benchmarks.league_methods import AX, METHODS
from benchmarks.league_problems import ADDED_AFTER_THE_CHOICE, CHOSEN_ON, PROBLEMS, LeagueProblem

OURS = "ours-best"
"""The method that the others are compared with."""

BEHIND_RATIO = 1.5
"""A median of ours that is more than this times theirs is behind."""

NUM_ERRORS = 2.0
"""Differences count from this many of their standard errors."""


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, which is NaN for one value.

    Args:
        values: One or more.
    """
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return fmean(values), error


@dataclass(frozen=True)
class Comparison:
    """Ours beside another method, on the seeds that both have.

    Attributes:
        num_seeds: How many seeds both have.
        difference: The mean of our logarithm to base 10 of simple regret less theirs: negative
            where ours is better.
        error: Its standard error.
        ratio: Our median over theirs.
    """

    num_seeds: int
    difference: float
    error: float
    ratio: float

    @classmethod
    def of(cls, ours: dict[int, float], theirs: dict[int, float]) -> Comparison:
        """Compare regrets, which are positive.

        Args:
            ours: Simple regret by seed.
            theirs: Likewise; at least one seed must be common.
        """
        seeds = sorted(ours.keys() & theirs.keys())
        pairs = [math.log10(ours[seed]) - math.log10(theirs[seed]) for seed in seeds]
        ratio = median(ours[seed] for seed in seeds) / median(theirs[seed] for seed in seeds)
        return cls(len(seeds), *mean_and_error(pairs), ratio)

    @property
    def is_behind(self) -> bool:
        """Whether ours is behind: by two standard errors, or by half as much again of a median."""
        return self.difference > NUM_ERRORS * self.error or self.ratio > BEHIND_RATIO

    @property
    def is_ahead(self) -> bool:
        """Whether ours is ahead by two standard errors, and not behind."""
        return self.difference < -NUM_ERRORS * self.error and not self.is_behind

    @property
    def verdict(self) -> str:
        """``"behind"``, ``"ahead"`` or ``"level"``: where ours is."""
        return "behind" if self.is_behind else "ahead" if self.is_ahead else "level"


@dataclass(frozen=True)
class Line:
    """A method on a problem.

    Attributes:
        method: Its name.
        num_seeds: Runs that it has.
        medians: Of simple regret at each checkpoint.
        errors: Standard errors of the mean of its logarithm to base 10 there.
        comparison: Ours beside it after all evaluations; None for ours, or without common seeds.
        cumulative: Cumulative regret and its standard error.
        seconds: Median processor seconds a suggestion.
    """

    method: str
    num_seeds: int
    medians: tuple[float, ...]
    errors: tuple[float, ...]
    comparison: Comparison | None
    cumulative: tuple[float, float]
    seconds: float


def floored(problem: LeagueProblem, rows: dict[int, Row], evaluation: int) -> dict[int, float]:
    """Return simple regret by seed, at least what a problem distinguishes.

    Args:
        problem: What was played.
        rows: The runs of a method by seed.
        evaluation: After how many evaluations.
    """
    smallest = problem.smallest_regret
    return {seed: max(row.simple(evaluation), smallest) for seed, row in rows.items()}


def lines_of(problem: LeagueProblem, rows: Rows, ours: str = OURS) -> list[Line]:
    """Return a line for each method that has runs on a problem, in the order of the league.

    Args:
        problem: What was played.
        rows: All of them.
        ours: The method that the others are compared with.
    """
    our_last = floored(problem, rows.of(problem.name, ours), CHECKPOINTS[-1])
    lines = []
    for method in _in_order({row.method for row in rows if row.problem == problem.name}):
        runs = rows.of(problem.name, method)
        regrets = [list(floored(problem, runs, n).values()) for n in CHECKPOINTS]
        last = floored(problem, runs, CHECKPOINTS[-1])
        is_comparable = method != ours and bool(our_last.keys() & last.keys())
        logs = [[math.log10(value) for value in values] for values in regrets]
        lines.append(
            Line(
                method,
                len(runs),
                tuple(median(values) for values in regrets),
                tuple(mean_and_error(values)[1] for values in logs),
                Comparison.of(our_last, last) if is_comparable else None,
                mean_and_error([row.cumulative for row in runs.values()]),
                median(row.seconds for row in runs.values()),
            )
        )
    return lines


def _in_order(names: set[str]) -> list[str]:
    known = [*METHODS, AX]
    return [name for name in known if name in names] + sorted(names.difference(known))


HEADINGS = (
    "method",
    "seeds",
    *(f"at {n}" for n in CHECKPOINTS),
    "ours less theirs",
    "ours is",
    "cumulative",
    "seconds",
)


def cells_of(line: Line) -> list[str]:
    """Return a line as text, a cell a heading.

    Args:
        line: Of the table.
    """
    regrets = [
        f"{_short(value)} ({_error(error)})"
        for value, error in zip(line.medians, line.errors, strict=True)
    ]
    difference, verdict = "", ""
    if line.comparison is not None:
        found = line.comparison
        difference = f"{found.difference:+.2f} ({_error(found.error)})"
        verdict = found.verdict
    mean, error = line.cumulative
    cumulative = f"{_short(mean)} ({_short(error)})"
    return [
        line.method,
        str(line.num_seeds),
        *regrets,
        difference,
        verdict,
        cumulative,
        _short(line.seconds),
    ]


def _short(number: float) -> str:
    return "-" if math.isnan(number) else f"{number:.3g}"


def _error(number: float) -> str:
    return "-" if math.isnan(number) else f"{number:.2f}"


def summary(rows: Rows) -> str:
    """Return the table as text, for a terminal.

    Args:
        rows: All of them.
    """
    blocks = []
    for problem in PROBLEMS.values():
        lines = lines_of(problem, rows)
        if lines:
            blocks.append("\n".join([problem.title, *_aligned([cells_of(line) for line in lines])]))
    return "\n\n".join(blocks) or "the table has no rows yet"


def _aligned(cells: list[list[str]]) -> list[str]:
    table = [list(HEADINGS), *cells]
    widths = [max(len(row[i]) for row in table) for i in range(len(HEADINGS))]
    lines = []
    for first, *rest in table:
        padded = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([f"{first:<{widths[0]}}", *padded]))
    return lines


def role_of(problem: LeagueProblem) -> str:
    """Return what a problem was used for, as a sentence.

    Args:
        problem: Any.
    """
    if problem.name in CHOSEN_ON:
        return "The default was chosen on it, among others."
    if problem.name in ADDED_AFTER_THE_CHOICE:
        return "It was added after the default was chosen."
    return "The default is judged on it."


def page(rows: Rows) -> str:
    """Return the page of the documentation that shows the table.

    Args:
        rows: All of them.
    """
    parts = [
        "# The league in figures",
        "",
        "Written by `python tests/benchmarks league --table --page docs/results/league.md`; "
        "{doc}`../league` says what was played and how to read it.",
    ]
    for problem in PROBLEMS.values():
        lines = lines_of(problem, rows)
        if not lines:
            continue
        title = problem.title[0].upper() + problem.title[1:]
        parts += ["", f"## {title}", "", role_of(problem), ""]
        parts += [_markdown(HEADINGS), _markdown(["---"] * len(HEADINGS))]
        parts += [_markdown(cells_of(line)) for line in lines]
    return "\n".join(parts) + "\n"


def _markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
