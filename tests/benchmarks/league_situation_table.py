"""What the rows of the league in situations say: means, paired differences, and verdicts.

Where regret is positive it is compared as in the league: by its logarithm, seed by seed. Under a
budget regret may be negative, for a method may break the budget; there regret and violation are
compared by their plain differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.league_methods import AX
from benchmarks.league_situation_methods import METHODS
from benchmarks.league_situation_rows import SituationRow, SituationRows
from benchmarks.league_situations import KINDS, SITUATIONS, Situation
from benchmarks.league_table import NUM_ERRORS, Comparison, mean_and_error

OURS = "ours"
"""The method whose cumulative regret and violation the others are compared with."""

BEST = "ours-best"
"""The method whose simple regret the others are compared with."""

FEWEST = 3
"""Verdicts need this many common seeds."""

OPEN = "open"
"""What is said where there are fewer."""


@dataclass(frozen=True)
class Difference:
    """Ours beside another method by plain differences, on the seeds that both have.

    Attributes:
        num_seeds: How many seeds both have.
        difference: The mean of ours less theirs: negative where ours is better.
        error: Its standard error.
    """

    num_seeds: int
    difference: float
    error: float

    @classmethod
    def of(cls, ours: dict[int, float], theirs: dict[int, float]) -> Difference | None:
        """Compare numbers by seed; None if there is no common seed.

        Args:
            ours: By seed.
            theirs: Likewise.
        """
        seeds = sorted(ours.keys() & theirs.keys())
        if not seeds:
            return None
        return cls(len(seeds), *mean_and_error([ours[s] - theirs[s] for s in seeds]))

    @property
    def verdict(self) -> str:
        """``"behind"``, ``"ahead"`` or ``"level"``: where ours is, by two standard errors."""
        if self.difference > NUM_ERRORS * self.error:
            return "behind"
        return "ahead" if self.difference < -NUM_ERRORS * self.error else "level"

    def __str__(self) -> str:
        """Return the verdict with the difference and its standard error."""
        return f"{self.verdict} {_signed(self.difference)} ({_short(self.error)})"


Verdict = Comparison | Difference


@dataclass(frozen=True)
class Line:
    """A method on a problem.

    Attributes:
        method: Its name.
        num_seeds: Runs that it has.
        cumulative: Mean cumulative regret and its standard error.
        regret: The cumulative regret of :data:`OURS` beside its own; None for :data:`OURS`, or
            without common seeds.
        simple: Median simple regret, where outcomes come late.
        best: The simple regret of :data:`BEST` beside its own, likewise.
        signed: Mean constraint value and its standard error, under a budget.
        rectified: Likewise of its positive part.
        violation: The positive part of the mean constraint value of :data:`OURS` beside its own.
        seconds: Median processor seconds a round.
    """

    method: str
    num_seeds: int
    cumulative: tuple[float, float]
    regret: Verdict | None
    simple: float | None
    best: Verdict | None
    signed: tuple[float, float] | None
    rectified: tuple[float, float] | None
    violation: Verdict | None
    seconds: float


def lines_of(situation: Situation, rows: SituationRows) -> list[Line]:
    """Return a line for each method that has runs on a problem, in the order of the league.

    Args:
        situation: What was played.
        rows: All of them.
    """
    ours = rows.of(situation.name, OURS)
    best = rows.of(situation.name, BEST)
    lines = []
    for method in in_order({row.method for row in rows if row.problem == situation.name}):
        runs = rows.of(situation.name, method)
        regret: Verdict | None = None
        if method != OURS and situation.has_budget:
            regret = Difference.of(_each(ours, "cumulative"), _each(runs, "cumulative"))
        elif method != OURS:
            regret = Comparison.of(
                _positive(situation, ours, "cumulative"), _positive(situation, runs, "cumulative")
            )
        simple, compared = None, None
        if situation.has_delays:
            found = _positive(situation, runs, "simple")
            simple = median(found.values())
            if method != BEST:
                compared = Comparison.of(_positive(situation, best, "simple"), found)
        violation: Verdict | None = None
        if situation.has_budget and method != OURS:
            violation = Difference.of(_each(ours, "violation"), _each(runs, "violation"))
        lines.append(
            Line(
                method,
                len(runs),
                mean_and_error(list(_each(runs, "cumulative").values())),
                regret,
                simple,
                compared,
                _mean(runs, "signed") if situation.has_budget else None,
                _mean(runs, "rectified") if situation.has_budget else None,
                violation,
                median(row.seconds for row in runs.values()),
            )
        )
    return lines


def _each(rows: dict[int, SituationRow], name: str) -> dict[int, float]:
    return {seed: float(getattr(row, name)) for seed, row in rows.items()}


def _positive(situation: Situation, rows: dict[int, SituationRow], name: str) -> dict[int, float]:
    least = situation.smallest_regret
    return {seed: max(number, least) for seed, number in _each(rows, name).items()}


def _mean(rows: dict[int, SituationRow], name: str) -> tuple[float, float]:
    return mean_and_error(list(_each(rows, name).values()))


def in_order(names: set[str]) -> list[str]:
    """Return names of methods in the order of the league.

    Args:
        names: Of methods.
    """
    known = [*METHODS, AX]
    return [name for name in known if name in names] + sorted(names.difference(known))


def headings_of(situation: Situation) -> list[str]:
    """Return the headings of the table of a problem.

    Args:
        situation: The problem.
    """
    more = []
    if situation.has_delays:
        more = ["simple", f"{BEST} is"]
    if situation.has_budget:
        more = ["mean cost", "violated by", f"violation: {OURS} is"]
    return ["method", "seeds", "cumulative", f"{OURS} is", *more, "seconds"]


def cells_of(situation: Situation, line: Line) -> list[str]:
    """Return a line as text, a cell a heading.

    Args:
        situation: The problem.
        line: Of its table.
    """
    cells = [line.method, str(line.num_seeds), _pair(line.cumulative), _verdict(line.regret)]
    if line.simple is not None:
        cells += [_short(line.simple), _verdict(line.best)]
    if situation.has_budget:
        cells += [_pair(line.signed), _pair(line.rectified), _verdict(line.violation)]
    return [*cells, _short(line.seconds)]


def _verdict(found: Verdict | None) -> str:
    if found is None:
        return ""
    if found.num_seeds < FEWEST:
        return str(found).replace(found.verdict, OPEN, 1)
    return str(found)


def _pair(numbers: tuple[float, float] | None) -> str:
    return "" if numbers is None else f"{_short(numbers[0])} ({_short(numbers[1])})"


def _short(number: float) -> str:
    return "-" if number != number else f"{number:.3g}"


def _signed(number: float) -> str:
    return f"{number:+.3g}"


def summary(rows: SituationRows) -> str:
    """Return the tables as text, for a terminal.

    Args:
        rows: All of them.
    """
    blocks = []
    for situation in SITUATIONS.values():
        lines = lines_of(situation, rows)
        if lines:
            table = [headings_of(situation), *(cells_of(situation, line) for line in lines)]
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            padded = [
                "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                for row in table
            ]
            blocks.append("\n".join([situation.title, *(row.rstrip() for row in padded)]))
    return "\n\n".join(blocks) or "the table has no rows yet"


HEADERS = {
    "delays": "Outcomes that come late",
    "changes": "Rewards that change",
    "budget": "A budget on average",
    "contexts": "Contexts",
}
"""The headings of the page, by kind."""


def page(rows: SituationRows) -> str:
    """Return what the page of the documentation includes: the verdicts, then all figures.

    Args:
        rows: All of them.
    """
    lines = {name: lines_of(situation, rows) for name, situation in SITUATIONS.items()}
    played = [situation for situation in SITUATIONS.values() if lines[situation.name]]
    found = {(name, line.method): line for name in lines for line in lines[name]}
    parts = [*_verdicts(f"Cumulative regret: `{OURS}` is", played, found, "regret")]
    budgets = [situation for situation in played if situation.has_budget]
    parts += _verdicts(f"Violation of the budget: `{OURS}` is", budgets, found, "violation")
    late = [situation for situation in played if situation.has_delays]
    parts += _verdicts(f"Simple regret: `{BEST}` is", late, found, "best")
    for kind in KINDS:
        of_kind = [situation for situation in played if situation.kind == kind]
        if of_kind:
            parts += [f"**{HEADERS[kind]}.**", ""]
        for situation in of_kind:
            title = f"`{situation.name}`: {situation.title}, {situation.num_rounds} rounds"
            headings = headings_of(situation)
            parts += [title, "", _markdown(headings), _markdown(["---"] * len(headings))]
            parts += [_markdown(cells_of(situation, line)) for line in lines[situation.name]]
            parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _verdicts(
    title: str,
    situations: list[Situation],
    found: dict[tuple[str, str], Line],
    kind: str,
) -> list[str]:
    names = {s.name for s in situations}
    compared = {
        key: getattr(line, kind)
        for key, line in found.items()
        if key[0] in names and getattr(line, kind) is not None
    }
    others = in_order({method for _, method in compared})
    if not others:
        return []
    parts = [title, "", _markdown(["against", *others]), _markdown(["---"] * (len(others) + 1))]
    for situation in situations:
        verdicts = [compared.get((situation.name, method)) for method in others]
        cells = ["" if each is None else _verdict(each).split()[0] for each in verdicts]
        parts.append(_markdown([situation.name, *cells]))
    return [*parts, ""]


def _markdown(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
