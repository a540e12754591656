"""Runs of the league in situations.

A run is played round by round, and is a row of a CSV file. The file always holds all that are done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import fmean

from benchmarks.league import DIGITS, Failed, RowsOf, play_in_processes
from benchmarks.league_situation_methods import (
    Outcome,
    SituationMethod,
    SituationPlayer,
    situation_method_of,
)
from benchmarks.league_situations import MAX_DELAY, SITUATIONS, Situation

TABLE = Path(__file__).resolve().parents[2] / "docs" / "results" / "league-situations.csv"
"""The rows in the documentation."""

STEP = 6
"""Curves have a number every so many rounds."""


@dataclass(frozen=True)
class SituationRow:
    """One run.

    Attributes:
        problem: Its name.
        method: Its name.
        seed: Of the world, the first points, the noise, the delays and the method.
        version: The package that played and its version.
        simple: The regret of the point whose outcome was the largest of those that arrived; only
            where outcomes come late.
        signed: The constraint value without noise, averaged over all rounds; None without budget.
        rectified: Likewise of its positive part.
        seconds: Processor seconds a round, for asking and telling.
        curve: Cumulative regret after every :data:`STEP` rounds.
        violations: The signed average after every :data:`STEP` rounds; empty without a budget.
    """

    problem: str
    method: str
    seed: int
    version: str
    simple: float | None
    signed: float | None
    rectified: float | None
    seconds: float
    curve: tuple[float, ...]
    violations: tuple[float, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells runs apart."""
        return self.problem, self.method, self.seed

    @property
    def cumulative(self) -> float:
        """Cumulative regret of all rounds."""
        return self.curve[-1]

    @property
    def violation(self) -> float:
        """The positive part of the signed average."""
        return max(0.0, self.signed or 0.0)

    def to_cells(self) -> list[str]:
        """Return the cells of the file."""
        numbers = (self.cumulative, self.simple, self.signed, self.rectified)
        return [
            *(self.problem, self.method, str(self.seed), self.version),
            *("" if n is None else _digits(n) for n in numbers),
            f"{self.seconds:.3g}",
            *(" ".join(map(_digits, curve)) for curve in (self.curve, self.violations)),
        ]

    @classmethod
    def from_cells(cls, cells: dict[str, str]) -> SituationRow:
        """Return the row of cells by name."""
        simple, signed, rectified = (
            float(cells[name]) if cells[name] else None
            for name in ("simple", "signed", "rectified")
        )
        curve, violations = (
            tuple(map(float, cells[name].split())) for name in ("curve", "violations")
        )
        return cls(
            cells["problem"],
            cells["method"],
            int(cells["seed"]),
            cells["version"],
            simple,
            signed,
            rectified,
            float(cells["seconds"]),
            curve,
            violations,
        )


COLUMNS = (
    *("problem", "method", "seed", "version"),
    *("cumulative", "simple", "signed", "rectified", "seconds", "curve", "violations"),
)
"""The columns of the file."""


def _digits(number: float) -> str:
    return f"{number:.{DIGITS}g}"


class SituationRows(RowsOf[SituationRow]):
    """The runs of the league in situations."""

    row_class = SituationRow
    columns = COLUMNS


def play(
    situation: Situation,
    method: SituationMethod,
    seed: int,
    data: Path | None = None,
    num_rounds: int | None = None,
) -> SituationRow:
    """Play a method in a situation.

    An outcome with the delay ``d`` of round ``s`` is told before the query of round ``t`` if
    ``d <= t - s``. One that has not come after :data:`MAX_DELAY` rounds is given up.

    Args:
        situation: Any.
        method: One that plays in situations of this kind.
        seed: Of everything that is drawn.
        data: The folder of ``--data``.
        num_rounds: The first points included; those of the situation if omitted.

    Raises:
        ValueError: If the data are not there.
    """
    world = situation.world(seed, data)
    rounds = range(1, (num_rounds or situation.num_rounds) + 1)
    noise, delays = situation.noise(seed), situation.delays(seed)
    first = situation.initial_points(seed)
    regrets: list[float] = []
    constraints: list[float] = []
    spent: list[float] = []
    waiting: dict[int, Outcome] = {}
    arrived: dict[int, float] = {}
    player = method.makes[situation.kind](situation, seed)
    try:
        for t in rounds:
            context = world.context(t)
            if t <= len(first):
                x = first[t - 1]
            else:
                begun = _clock(player)
                for s in list(waiting):
                    if delays[s - 1] <= t - s <= MAX_DELAY:
                        arrived[s] = waiting[s].reward
                        player.tell(s, waiting.pop(s))
                    elif t - s > MAX_DELAY:
                        player.give_up(s)
                        del waiting[s]
                x = player.ask(t, context)
                spent.append(_clock(player) - begun)
            reward, constraint = world.reward(x, t), world.constraint(x, t)
            regrets.append(world.best(t) - reward)
            outcome = Outcome(reward + noise[t - 1][0])
            if constraint is not None:
                constraints.append(constraint)
                outcome = Outcome(outcome.reward, constraint + noise[t - 1][1])
            if t <= len(first):
                arrived[t] = outcome.reward
                player.attach(t, x, context, outcome)
            else:
                waiting[t] = outcome
    finally:
        player.close()
    best = max(arrived, key=arrived.__getitem__)
    sums, spending = list(accumulate(regrets)), list(accumulate(constraints))
    return SituationRow(
        situation.name,
        method.name,
        seed,
        method.version,
        regrets[best - 1] if situation.has_delays else None,
        fmean(constraints) if constraints else None,
        fmean(max(0.0, g) for g in constraints) if constraints else None,
        fmean(spent),
        tuple(sums[STEP - 1 :: STEP]),
        tuple(spending[t - 1] / t for t in range(STEP, len(spending) + 1, STEP)),
    )


def _clock(player: SituationPlayer) -> float:
    """Return the processor seconds that this process and the player's own have taken."""
    return time.process_time() + player.seconds_elsewhere


WARM_UP = {
    "delays": "delays-branin",
    "changes": "changes-functions",
    "budget": "budget-functions",
    "contexts": "contexts-hartmann3",
}
"""The problem by kind that a process plays once for a few rounds before it times a method."""

WARM_UP_SEED, WARM_UP_ROUNDS = 10**6, 7


@cache
def _warmed_up(text: str, kind: str) -> SituationMethod:
    """Return a method that this process has played, so that imports are not timed."""
    method = situation_method_of(text)
    play(SITUATIONS[WARM_UP[kind]], method, WARM_UP_SEED, num_rounds=WARM_UP_ROUNDS)
    return method


def _play_in_worker(problem: str, text: str, seed: int, data: Path | None) -> SituationRow:
    situation = SITUATIONS[problem]
    return play(situation, _warmed_up(text, situation.kind), seed, data)


def play_all(
    rows: SituationRows,
    problems: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    data: Path | None = None,
    num_jobs: int = 1,
    done: Callable[[str], None] = lambda run: None,
) -> list[Failed]:
    """Play what is not done yet, seed by seed, in processes with one thread each.

    Args:
        rows: Gets each run when it is finished.
        problems: Their names.
        methods: Their names, or what :func:`situation_method_of` reads; each plays the kinds of
            situations that it is for.
        seeds: Of the runs.
        data: The folder of ``--data``.
        num_jobs: How many processes play at once.
        done: Called with a line about each run when it is finished, or was done before.

    Returns:
        The runs that raised an error; the others were played all the same.
    """
    runs = []
    for seed, problem, text in listed(problems, methods, seeds):
        name = situation_method_of(text).name
        label = f"{problem} {name} {seed}"
        if (problem, name, seed) in rows:
            done(label)
        else:
            runs.append((label, (problem, text, seed, data)))
    return play_in_processes(_play_in_worker, runs, rows.add, num_jobs, done)


def listed(
    problems: Sequence[str], methods: Sequence[str], seeds: Sequence[int]
) -> list[tuple[int, str, str]]:
    """Return seed, problem and method of each run, in the order in which they are played.

    Args:
        problems: Their names.
        methods: Their names, or what :func:`situation_method_of` reads.
        seeds: Of the runs.
    """
    return [
        (seed, problem, text)
        for seed in seeds
        for problem in problems
        for text in methods
        if SITUATIONS[problem].kind in situation_method_of(text).makes
    ]
