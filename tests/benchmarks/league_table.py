"""What the rows of the league say: medians, paired differences, and who is behind whom.

Simple regret is compared by its logarithm, seed by seed: the seeds have the same initial points and
the same noise for all methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles, stdev

from benchmarks.league import CHECKPOINTS, Row, Rows
from benchmarks.league_methods import AX, METHODS
from benchmarks.league_problems import (
    ADDED_AFTER_THE_CHOICE,
    CHOSEN_ON,
    NUM_EVALUATIONS,
    PROBLEMS,
    PROMPTED_A_CHANGE,
    LeagueProblem,
)

BEST = "ours-best"
"""The method whose simple regret the others are compared with."""

EARNED = "ours-earned"
"""The method whose cumulative regret the others are compared with."""

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
        difference: The mean of our logarithm to base 10 of regret less theirs: negative where ours
            is better.
        error: Its standard error.
        ratio: Our median over theirs.
    """

    num_seeds: int
    difference: float
    error: float
    ratio: float

    @classmethod
    def of(cls, ours: dict[int, float], theirs: dict[int, float]) -> Comparison | None:
        """Compare regrets, which are positive.

        Args:
            ours: Regret by seed.
            theirs: Likewise.

        Returns:
            None if there is no common seed.
        """
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds:
            return None
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

    def __str__(self) -> str:
        """Return the verdict with the difference and its standard error."""
        return f"{self.verdict} {self.difference:+.2f} ({_error(self.error)})"


@dataclass(frozen=True)
class Line:
    """A method on a problem.

    Attributes:
        method: Its name.
        num_seeds: Runs that it has.
        medians: Of simple regret at each checkpoint.
        errors: Standard errors of the mean of its logarithm to base 10 there.
        best: The simple regret of :data:`BEST` beside its own, after all evaluations; None for
            methods of ours, or without common seeds.
        cumulative: Mean cumulative regret and its standard error.
        earned: The cumulative regret of :data:`EARNED` beside its own; None as above.
        seconds: Median processor seconds a suggestion.
    """

    method: str
    num_seeds: int
    medians: tuple[float, ...]
    errors: tuple[float, ...]
    best: Comparison | None
    cumulative: tuple[float, float]
    earned: Comparison | None
    seconds: float


def simple_regrets(problem: LeagueProblem, rows: dict[int, Row], number: int) -> dict[int, float]:
    """Return simple regret by seed, at least what a problem distinguishes.

    Args:
        problem: What was played.
        rows: The runs of a method by seed.
        number: After how many evaluations.
    """
    return {seed: max(row.simple(number), problem.smallest_regret) for seed, row in rows.items()}


def cumulative_regrets(problem: LeagueProblem, rows: dict[int, Row]) -> dict[int, float]:
    """Return cumulative regret by seed, likewise.

    Args:
        problem: What was played.
        rows: The runs of a method by seed.
    """
    return {seed: max(row.cumulative, problem.smallest_regret) for seed, row in rows.items()}


def lines_of(problem: LeagueProblem, rows: Rows) -> list[Line]:
    """Return a line for each method that has runs on a problem, in the order of the league.

    Args:
        problem: What was played.
        rows: All of them.
    """
    our_best = simple_regrets(problem, rows.of(problem.name, BEST), CHECKPOINTS[-1])
    our_earned = cumulative_regrets(problem, rows.of(problem.name, EARNED))
    lines = []
    for method in _in_order({row.method for row in rows if row.problem == problem.name}):
        runs = rows.of(problem.name, method)
        simple = [simple_regrets(problem, runs, number) for number in CHECKPOINTS]
        cumulative = cumulative_regrets(problem, runs)
        logs = [[math.log10(value) for value in regrets.values()] for regrets in simple]
        is_ours = method in (BEST, EARNED)
        lines.append(
            Line(
                method,
                len(runs),
                tuple(median(regrets.values()) for regrets in simple),
                tuple(mean_and_error(values)[1] for values in logs),
                None if is_ours else Comparison.of(our_best, simple[-1]),
                mean_and_error(list(cumulative.values())),
                None if is_ours else Comparison.of(our_earned, cumulative),
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
    f"{BEST} is",
    "cumulative",
    f"{EARNED} is",
    "seconds",
)


def cells_of(line: Line) -> list[str]:
    """Return a line as text, a cell a heading.

    Args:
        line: Of the table.
    """
    mean, error = line.cumulative
    return [
        line.method,
        str(line.num_seeds),
        *(f"{_short(m)} ({_error(e)})" for m, e in zip(line.medians, line.errors, strict=True)),
        "" if line.best is None else str(line.best),
        f"{_short(mean)} ({_short(error)})",
        "" if line.earned is None else str(line.earned),
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
    if problem.name in PROMPTED_A_CHANGE:
        return "A part of the default was mended because of it."
    if problem.name in ADDED_AFTER_THE_CHOICE:
        return "It was added after the default was chosen."
    return "The default is judged on it."


def page(rows: Rows) -> str:
    """Return what the page of the documentation includes: the verdicts, then all figures.

    Args:
        rows: All of them.
    """
    lines = {problem.name: lines_of(problem, rows) for problem in PROBLEMS.values()}
    played = [problem for problem in PROBLEMS.values() if lines[problem.name]]
    parts = []
    for title, kind in (
        (f"Simple regret after {CHECKPOINTS[-1]} evaluations: `{BEST}` is", "best"),
        (f"Cumulative regret: `{EARNED}` is", "earned"),
    ):
        verdicts = {
            (name, line.method): getattr(line, kind) for name in lines for line in lines[name]
        }
        others = _in_order({method for (_, method), each in verdicts.items() if each is not None})
        if not others:
            continue
        parts += [f"{title}", "", _markdown(["against", *others])]
        parts.append(_markdown(["---"] * (len(others) + 1)))
        for problem in played:
            found = [verdicts.get((problem.name, method)) for method in others]
            parts.append(
                _markdown([problem.name, *("" if c is None else c.verdict for c in found)])
            )
        parts.append("")
    for problem in played:
        parts += [f"### {problem.title[0].upper()}{problem.title[1:]}", "", role_of(problem), ""]
        parts += [_markdown(HEADINGS), _markdown(["---"] * len(HEADINGS))]
        parts += [*(_markdown(cells_of(line)) for line in lines[problem.name]), ""]
    return "\n".join(parts).rstrip() + "\n"


def _markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def quartiles_of(problem: LeagueProblem, rows: dict[int, Row]) -> list[tuple[float, float, float]]:
    """Return the quartiles of simple regret over seeds after each evaluation.

    Args:
        problem: What was played.
        rows: The runs of a method by seed, at least two.
    """
    found = []
    for number in range(1, NUM_EVALUATIONS + 1):
        regrets = list(simple_regrets(problem, rows, number).values())
        low, middle, high = quantiles(regrets, n=4, method="inclusive")
        found.append((low, middle, high))
    return found
