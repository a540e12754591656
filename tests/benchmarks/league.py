"""The league: our default beside what a user would pick instead, on common seeds.

All methods get the same initial points and, where there is noise, the same noise for the same
number of evaluation. Each finished run is a row of one CSV file, so that an interrupted league goes
on where it stopped.
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
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any, Generic, Protocol, Self, TypeVar

from benchmarks.league_methods import Method, Player, method_of
from benchmarks.league_problems import NUM_EVALUATIONS, PROBLEMS, Coordinates, LeagueProblem
from botorch_bandits.cli import write_atomically

TABLE = Path(__file__).resolve().parents[2] / "docs" / "results" / "league.csv"
"""The rows in the documentation."""

CHECKPOINTS = (20, 40, 60)
"""Evaluations after which simple regret is shown."""

DIGITS = 5
"""Significant digits in the file."""


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        problem: Its name.
        method: Its name.
        seed: Of the initial points, the noise and the method.
        version: The package that played and its version.
        cumulative: Cumulative regret of all evaluations.
        seconds: Processor seconds a suggestion, for asking and telling.
        trace: Where simple regret changed: pairs of evaluation and regret, not below 0 cut off.
    """

    problem: str
    method: str
    seed: int
    version: str
    cumulative: float
    seconds: float
    trace: tuple[tuple[int, float], ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells runs apart."""
        return self.problem, self.method, self.seed

    def simple(self, evaluation: int) -> float:
        """Return simple regret after some evaluations, from 1.

        That is the optimum less the value, without noise, of the point whose observed value is
        the largest so far.
        """
        return next(regret for start, regret in reversed(self.trace) if start <= evaluation)

    def to_cells(self) -> list[str]:
        """Return the cells of the file."""
        trace = " ".join(f"{start}:{_digits(regret)}" for start, regret in self.trace)
        simple = [_digits(self.simple(n)) for n in CHECKPOINTS]
        numbers = [*simple, _digits(self.cumulative), f"{self.seconds:.3g}"]
        return [self.problem, self.method, str(self.seed), self.version, *numbers, trace]

    @classmethod
    def from_cells(cls, cells: dict[str, str]) -> Row:
        """Return the row of cells by name."""
        trace = [pair.split(":") for pair in cells["trace"].split()]
        return cls(
            cells["problem"],
            cells["method"],
            int(cells["seed"]),
            cells["version"],
            float(cells[COLUMNS[-3]]),
            float(cells["seconds"]),
            tuple((int(start), float(regret)) for start, regret in trace),
        )


COLUMNS = (
    *("problem", "method", "seed", "version"),
    *(f"simple_{n}" for n in CHECKPOINTS),
    f"cumulative_{NUM_EVALUATIONS}",
    "seconds",
    "trace",
)
"""The columns of the file."""


def _digits(number: float) -> str:
    return f"{number:.{DIGITS}g}"


class AnyRow(Protocol):
    """What :class:`Rows` needs of a run: it can be told apart, written and read."""

    @property
    def problem(self) -> str:
        """The name of the problem."""

    @property
    def method(self) -> str:
        """The name of the method."""

    @property
    def seed(self) -> int:
        """The seed of the run."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What tells runs apart."""

    def to_cells(self) -> list[str]:
        """Return the cells of the file."""

    @classmethod
    def from_cells(cls, cells: dict[str, str]) -> Self:
        """Return the row of cells by name."""


RowType = TypeVar("RowType", bound=AnyRow)


class RowsOf(Generic[RowType]):
    """The runs that are done, in a file that always holds all of them.

    Args:
        path: Of the CSV file; it need not be there.
    """

    row_class: type[RowType]
    columns: tuple[str, ...]

    def __init__(self, path: Path) -> None:
        """Read the file."""
        self._path = path
        self._rows: dict[tuple[str, str, int], RowType] = {}
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for cells in csv.DictReader(file):
                    row = self.row_class.from_cells(cells)
                    self._rows[row.key] = row

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        """Whether a run is done."""
        return key in self._rows

    def add(self, row: RowType) -> None:
        """Add a run and replace the file at once."""
        self._rows[row.key] = row
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(row.to_cells() for row in self)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, text.getvalue())

    def __iter__(self) -> Iterator[RowType]:
        """Yield the runs by problem, method and seed."""
        return iter(sorted(self._rows.values(), key=lambda row: row.key))

    def of(self, problem: str, method: str) -> dict[int, RowType]:
        """Return the runs of a method on a problem by seed."""
        return {row.seed: row for row in self if (row.problem, row.method) == (problem, method)}


class Rows(RowsOf[Row]):
    """The runs of the league."""

    row_class = Row
    columns = COLUMNS


def play(
    problem: LeagueProblem, method: Method, seed: int, num_evaluations: int = NUM_EVALUATIONS
) -> Row:
    """Play a method on a problem.

    Args:
        problem: Any.
        method: Any that can be played here.
        seed: Of the initial points, the noise and the method.
        num_evaluations: The initial ones included.
    """
    points = problem.initial_points(seed)
    noise = problem.noise(seed)
    values = [problem.value(x) for x in points]
    told = [value + noise[i] for i, value in enumerate(values)]
    player = method.make(problem, seed)
    spent = []
    try:
        player.begin(points, told)
        while len(values) < num_evaluations:
            asked = _clock(player)
            x: Coordinates = player.ask()
            seconds = _clock(player) - asked
            values.append(problem.value(x))
            told.append(values[-1] + noise[len(told)])
            asked = _clock(player)
            player.tell(x, told[-1])
            spent.append(seconds + _clock(player) - asked)
    finally:
        player.close()
    regrets = [problem.optimum - value for value in values]
    return Row(
        problem.name,
        method.name,
        seed,
        method.version,
        math.fsum(regrets),
        fmean(spent),
        simple_regret_trace(regrets, told),
    )


def _clock(player: Player) -> float:
    """Return the processor seconds that this process and the player's own have taken."""
    return time.process_time() + player.seconds_elsewhere


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


WARM_UP = ("branin", 10**6, 7)
"""The problem, seed and evaluations that a process plays once before it times a method."""


@cache
def _warmed_up(text: str) -> Method:
    """Return a method that this process has played, so that imports are not timed."""
    method = method_of(text)
    problem, seed, num_evaluations = WARM_UP
    play(PROBLEMS[problem], method, seed, num_evaluations)
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


def _play_in_worker(problem: str, method: str, seed: int) -> Row:
    return play(PROBLEMS[problem], _warmed_up(method), seed)


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
    rows: Rows,
    problems: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    num_jobs: int = 1,
    done: Callable[[str], None] = lambda run: None,
) -> list[Failed]:
    """Play what is not done yet, in processes with one thread each.

    Args:
        rows: Gets each run when it is finished.
        problems: Their names, in the order in which they are played.
        methods: Their names, or what :func:`~benchmarks.league_methods.method_of` reads.
        seeds: Of the runs.
        num_jobs: How many processes play at once.
        done: Called with a line about each run when it is finished, or was done before.

    Returns:
        The runs that raised an error; the others were played all the same.
    """
    names = {text: method_of(text).name for text in methods}
    runs = []
    for problem in problems:
        for text in methods:
            for seed in seeds:
                label = f"{problem} {names[text]} {seed}"
                if (problem, names[text], seed) in rows:
                    done(label)
                else:
                    runs.append((label, (problem, text, seed)))
    return play_in_processes(_play_in_worker, runs, rows.add, num_jobs, done)


def play_in_processes(
    play_one: Callable[..., RowType],
    runs: Sequence[tuple[str, tuple[Any, ...]]],
    add: Callable[[RowType], None],
    num_jobs: int,
    done: Callable[[str], None],
) -> list[Failed]:
    """Play runs in processes with one thread each.

    Args:
        play_one: Plays one run and returns its row.
        runs: A line about each and the arguments of ``play_one``.
        add: Gets each row when it is finished.
        num_jobs: How many processes play at once.
        done: Called with the line about each run when it is finished.

    Returns:
        The runs that raised an error; the others were played all the same.
    """
    # libraries of the processes read it at import; processor time would count all threads
    os.environ["OMP_NUM_THREADS"] = "1"
    failed = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_jobs, context, initializer=watch_parent) as pool:
        futures = {pool.submit(play_one, *run): label for label, run in runs}
        try:
            for future in as_completed(futures):
                label = futures[future]
                try:
                    add(future.result())
                except Exception as error:
                    text = f"{type(error).__name__}: {error}".split("\n")[0]
                    failed.append(Failed(label, text))
                done(label)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def quartiles_of(problem: LeagueProblem, rows: dict[int, Row]) -> list[tuple[float, float, float]]:
    """Return the quartiles of simple regret over seeds after each evaluation.

    Args:
        problem: What was played; regret is at least what it distinguishes.
        rows: The runs of a method by seed, at least two.
    """
    found = []
    for number in range(1, NUM_EVALUATIONS + 1):
        regrets = [max(row.simple(number), problem.smallest_regret) for row in rows.values()]
        low, middle, high = quantiles(regrets, n=4, method="inclusive")
        found.append((low, middle, high))
    return found
