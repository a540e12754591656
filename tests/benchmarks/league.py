"""The league: our default beside what a user would pick instead, on common seeds.

All methods get the same first points and, where there is noise, the same noise in the same round. A
run is played round by round and is a row of a CSV file, which always holds all that are done, so
that an interrupted league goes on where it stopped.
"""

from __future__ import annotations

import csv
import io
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any, ClassVar, Generic, Self, TypeVar

from benchmarks.league_methods import Method, method_of
from benchmarks.league_players import Outcome, Player
from benchmarks.league_problems import MAX_DELAY, NUM_ROUNDS, PROBLEMS, Situation
from benchmarks.league_situations import SITUATIONS
from botorch_bandits.cli import write_atomically

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"

ALL = PROBLEMS | SITUATIONS
"""All problems by name."""

CHECKPOINTS = (20, 40, 60)
"""Rounds after which simple regret is in the file, where problems stay."""

STEP = 6
"""Curves of situations have a number every so many rounds."""

DIGITS = 5
"""Significant digits in the file."""


def _digits(number: float) -> str:
    return f"{number:.{DIGITS}g}"


@dataclass(frozen=True)
class Run:
    """What happened in one run.

    Attributes:
        regrets: Of each round, without noise.
        told: Rewards that arrived, with noise, by round from 1.
        constraints: Without noise, of each round; empty without a budget.
        seconds: Processor seconds a round, for asking and telling.
    """

    regrets: list[float]
    told: dict[int, float]
    constraints: list[float]
    seconds: float


Common = tuple[str, str, int, str, float]
"""Problem, method, seed, version and seconds of a run."""


@dataclass(frozen=True)
class AnyRow:
    """One run in a file.

    Attributes:
        problem: Its name.
        method: Its name.
        seed: Of the world, the first points, the noise, the delays and the method.
        version: The package that played and its version.
        seconds: Processor seconds a round, for asking and telling.
    """

    table: ClassVar[Path]
    columns: ClassVar[tuple[str, ...]]

    problem: str
    method: str
    seed: int
    version: str
    seconds: float

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells runs apart."""
        return self.problem, self.method, self.seed

    def to_cells(self) -> dict[str, str]:
        """Return the cells of the file by name."""
        return {
            **{name: str(getattr(self, name)) for name in ("problem", "method", "seed", "version")},
            "seconds": f"{self.seconds:.3g}",
        }

    @classmethod
    def from_cells(cls, cells: dict[str, str], *more: Any) -> Self:
        """Return the row of cells by name."""
        names = cells["problem"], cells["method"], int(cells["seed"]), cells["version"]
        return cls(*names, float(cells["seconds"]), *more)


@dataclass(frozen=True)
class Row(AnyRow):
    """A run on a problem that stays.

    Attributes:
        cumulative: Cumulative regret of all rounds.
        trace: Where simple regret changed: pairs of round and regret, not below 0 cut off.
    """

    table = RESULTS / "league.csv"
    columns = (
        *("problem", "method", "seed", "version"),
        *(f"simple_{n}" for n in CHECKPOINTS),
        f"cumulative_{NUM_ROUNDS}",
        "seconds",
        "trace",
    )

    cumulative: float
    trace: tuple[tuple[int, float], ...]

    def simple(self, round_number: int) -> float:
        """Return simple regret after some rounds, from 1.

        That is the optimum less the value, without noise, of the point whose observed value is
        the largest so far.
        """
        return next(regret for start, regret in reversed(self.trace) if start <= round_number)

    def to_cells(self) -> dict[str, str]:
        """Return the cells of the file by name."""
        return {
            **super().to_cells(),
            **{f"simple_{n}": _digits(self.simple(n)) for n in CHECKPOINTS},
            f"cumulative_{NUM_ROUNDS}": _digits(self.cumulative),
            "trace": " ".join(f"{start}:{_digits(regret)}" for start, regret in self.trace),
        }

    @classmethod
    def from_cells(cls, cells: dict[str, str], *more: Any) -> Self:
        """Return the row of cells by name."""
        pairs = [pair.split(":") for pair in cells["trace"].split()]
        trace = tuple((int(start), float(regret)) for start, regret in pairs)
        return super().from_cells(cells, float(cells[f"cumulative_{NUM_ROUNDS}"]), trace)

    @classmethod
    def of_run(cls, common: Common, run: Run) -> Self:
        """Return the row of a run."""
        told = [run.told[t] for t in range(1, len(run.regrets) + 1)]
        return cls(*common, math.fsum(run.regrets), simple_regret_trace(run.regrets, told))


def simple_regret_trace(
    regrets: Sequence[float], told: Sequence[float]
) -> tuple[tuple[int, float], ...]:
    """Return where the regret of the point with the largest observed value changes.

    Args:
        regrets: Of each evaluation, without noise.
        told: What was observed.
    """
    trace: list[tuple[int, float]] = []
    largest = -math.inf
    for number, (regret, value) in enumerate(zip(regrets, told, strict=True), start=1):
        if value > largest:
            largest = value
            trace.append((number, regret))
    return tuple(trace)


@dataclass(frozen=True)
class SituationRow(AnyRow):
    """A run in a situation.

    Attributes:
        simple: The regret of the point whose outcome was the largest of those that arrived; only
            where outcomes come late.
        signed: The constraint value without noise, averaged over all rounds; None without budget.
        rectified: Likewise of its positive part.
        curve: Cumulative regret after every :data:`STEP` rounds.
        violations: The signed average after every :data:`STEP` rounds; empty without a budget.
    """

    table = RESULTS / "league-situations.csv"
    columns = (
        *("problem", "method", "seed", "version"),
        *("cumulative", "simple", "signed", "rectified", "seconds", "curve", "violations"),
    )

    simple: float | None
    signed: float | None
    rectified: float | None
    curve: tuple[float, ...]
    violations: tuple[float, ...]

    @property
    def cumulative(self) -> float:
        """Cumulative regret of all rounds."""
        return self.curve[-1]

    def to_cells(self) -> dict[str, str]:
        """Return the cells of the file by name."""
        numbers = {n: getattr(self, n) for n in ("cumulative", "simple", "signed", "rectified")}
        return {
            **super().to_cells(),
            **{name: "" if n is None else _digits(n) for name, n in numbers.items()},
            "curve": " ".join(map(_digits, self.curve)),
            "violations": " ".join(map(_digits, self.violations)),
        }

    @classmethod
    def from_cells(cls, cells: dict[str, str], *more: Any) -> Self:
        """Return the row of cells by name."""
        numbers = [
            float(cells[name]) if cells[name] else None
            for name in ("simple", "signed", "rectified")
        ]
        curves = [tuple(map(float, cells[name].split())) for name in ("curve", "violations")]
        return super().from_cells(cells, *numbers, *curves)

    @classmethod
    def of_run(cls, common: Common, run: Run) -> Self:
        """Return the row of a run."""
        best, spending = max(run.told, key=run.told.__getitem__), run.constraints
        sums, spent = list(accumulate(run.regrets)), list(accumulate(spending))
        return cls(
            *common,
            run.regrets[best - 1] if ALL[common[0]].kind == "delays" else None,
            fmean(spending) if spending else None,
            fmean(max(0.0, g) for g in spending) if spending else None,
            tuple(sums[STEP - 1 :: STEP]),
            tuple(spent[t - 1] / t for t in range(STEP, len(spent) + 1, STEP)),
        )


RowType = TypeVar("RowType", bound=AnyRow)


class Rows(Generic[RowType]):
    """The runs that are done, in a file that always holds all of them.

    Args:
        row_class: What runs are in the file.
        path: Of the CSV file, which need not be there; that of the documentation if omitted.
    """

    def __init__(self, row_class: type[RowType], path: Path | None = None) -> None:
        """Read the file."""
        self._row_class, self._path = row_class, path or row_class.table
        self._rows: dict[tuple[str, str, int], RowType] = {}
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as file:
                for cells in csv.DictReader(file):
                    row = row_class.from_cells(cells)
                    self._rows[row.key] = row

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        """Whether a run is done."""
        return key in self._rows

    def add(self, row: RowType) -> None:
        """Add a run and replace the file at once."""
        self._rows[row.key] = row
        text = io.StringIO()
        writer = csv.DictWriter(text, self._row_class.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row.to_cells() for row in self)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, text.getvalue())

    def __iter__(self) -> Iterator[RowType]:
        """Yield the runs by problem, method and seed."""
        return iter(sorted(self._rows.values(), key=lambda row: row.key))

    def of(self, problem: str, method: str) -> dict[int, RowType]:
        """Return the runs of a method on a problem by seed."""
        return {row.seed: row for row in self if (row.problem, row.method) == (problem, method)}


def play(
    situation: Situation,
    method: Method,
    seed: int,
    data: Path | None = None,
    num_rounds: int | None = None,
) -> Row | SituationRow:
    """Play a method on a problem.

    An outcome with the delay ``d`` of round ``s`` is told before the query of round ``t`` if
    ``d <= t - s``. One that has not come after :data:`MAX_DELAY` rounds is given up.

    Args:
        situation: Any.
        method: One that plays problems of this kind.
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
        for s, outcome in waiting.items() if situation.kind == "still" else ():
            arrived[s] = outcome.reward  # of the last round, which nobody has to be told
    finally:
        player.close()
    row_class = Row if situation.kind == "still" else SituationRow
    run = Run(regrets, arrived, constraints, fmean(spent))
    common = situation.name, method.name, seed, method.version, run.seconds
    return row_class.of_run(common, run)


def _clock(player: Player) -> float:
    """Return the processor seconds that this process and the player's own have taken."""
    return time.process_time() + player.seconds_elsewhere


WARM_UP = {
    "still": "branin",
    "delays": "delays-branin",
    "changes": "changes-functions",
    "budget": "budget-functions",
    "contexts": "contexts-hartmann3",
}
"""The problem by kind that a process plays once for a few rounds before it times a method."""

WARM_UP_SEED, WARM_UP_ROUNDS = 10**6, 7


@cache
def _warmed_up(text: str, kind: str) -> Method:
    """Return a method that this process has played, so that imports are not timed."""
    method = method_of(text)
    play(ALL[WARM_UP[kind]], method, WARM_UP_SEED, num_rounds=WARM_UP_ROUNDS)
    return method


def _end_with_parent() -> None:
    """End this process when the one that started it has ended, even if that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def watch_parent() -> None:
    """Let this process end with the one that started it, even if that is killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _play_in_worker(problem: str, text: str, seed: int, data: Path | None) -> Any:
    situation = ALL[problem]
    return play(situation, _warmed_up(text, situation.kind), seed, data)


@dataclass(frozen=True)
class Failed:
    """A run that raised an error.

    Attributes:
        run: Problem, method and seed.
        error: In one line.
    """

    run: str
    error: str


def play_all(
    rows: Rows[Any],
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
        methods: Their names, or what :func:`method_of` reads; each plays the kinds of
            problems that it is for.
        seeds: Of the runs.
        data: The folder of ``--data``.
        num_jobs: How many processes play at once.
        done: Called with a line about each run when it is finished, or was done before.

    Returns:
        The runs that raised an error; the others were played all the same.
    """
    runs = []
    for seed, problem, text in listed(problems, methods, seeds):
        name = method_of(text).name
        label = f"{problem} {name} {seed}"
        if (problem, name, seed) in rows:
            done(label)
        else:
            runs.append((label, (problem, text, seed, data)))
    # libraries of the processes read it at import; processor time would count all threads
    os.environ["OMP_NUM_THREADS"] = "1"
    failed = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_jobs, context, initializer=watch_parent) as pool:
        futures = {pool.submit(_play_in_worker, *run): label for label, run in runs}
        try:
            for future in as_completed(futures):
                label = futures[future]
                try:
                    rows.add(future.result())
                except Exception as error:
                    text = f"{type(error).__name__}: {error}".split("\n")[0]
                    failed.append(Failed(label, text))
                done(label)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def listed(
    problems: Sequence[str], methods: Sequence[str], seeds: Sequence[int]
) -> list[tuple[int, str, str]]:
    """Return seed, problem and method of each run, in the order in which they are played.

    Args:
        problems: Their names.
        methods: Their names, or what :func:`method_of` reads.
        seeds: Of the runs.
    """
    return [
        (seed, problem, text)
        for seed in seeds
        for problem in problems
        for text in methods
        if ALL[problem].kind in method_of(text).makes
    ]


def quartiles_of(problem: Situation, rows: dict[int, Row]) -> list[tuple[float, float, float]]:
    """Return the quartiles of simple regret over seeds after each evaluation.

    Args:
        problem: What was played; regret is at least what it distinguishes.
        rows: The runs of a method by seed, at least two.
    """
    found = []
    for number in range(1, NUM_ROUNDS + 1):
        regrets = [max(row.simple(number), problem.smallest_regret) for row in rows.values()]
        low, middle, high = quantiles(regrets, n=4, method="inclusive")
        found.append((low, middle, high))
    return found
