"""The league: our default beside what a user would pick instead, on common seeds.

All methods get the same first points and, where there is noise, the same noise in the same round. A
run is played round by round and is a row of a CSV file, which always holds all that are done, so
that an interrupted league goes on where it stopped.
"""

from __future__ import annotations

import csv
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
from typing import Any

from benchmarks.league_methods import Method, method_of
from benchmarks.league_players import Outcome, Player
from benchmarks.league_problems import MAX_DELAY, NUM_ROUNDS, PROBLEMS, Situation
from benchmarks.league_situations import SITUATIONS
from benchmarks.tables import write_csv

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"

ALL = PROBLEMS | SITUATIONS
"""All problems by name."""

CHECKPOINTS = (20, 40, 60)
"""Rounds after which simple regret is in the file, where problems stay."""

STEP = 6
"""Curves of situations have a number every so many rounds."""

DIGITS = 5
"""Significant digits in the file."""

Row = dict[str, str]
"""One run in a file: its cells by name.

``problem``, ``method``, ``seed`` (of the world, the first points, the noise, the delays and the
method), ``version`` (the package that played) and ``seconds`` (of the processor, a round, for
asking and telling) are in both files. The others are what :func:`of_still` and
:func:`of_situation` return.
"""

Trace = tuple[tuple[int, float], ...]
"""Where simple regret changed: pairs of round and regret, not below 0 cut off."""


def _digits(*numbers: float) -> str:
    return " ".join(f"{number:.{DIGITS}g}" for number in numbers)


@dataclass(frozen=True)
class Run:
    """What happened in one run.

    Attributes:
        regrets: Of each round, without noise.
        told: Rewards that arrived, with noise, by round from 1.
        constraints: Without noise, of each round; empty without a budget.
        comes_late: Whether outcomes do.
    """

    regrets: list[float]
    told: dict[int, float]
    constraints: list[float]
    comes_late: bool = False


def of_still(run: Run) -> Row:
    """Return simple regret at :data:`CHECKPOINTS`, its trace, and cumulative regret.

    Args:
        run: On a problem that stays.
    """
    trace = simple_regret_trace(run.regrets, [run.told[t + 1] for t in range(len(run.regrets))])
    return {
        **{f"simple_{n}": _digits(simple_regret(trace, n)) for n in CHECKPOINTS},
        f"cumulative_{NUM_ROUNDS}": _digits(math.fsum(run.regrets)),
        "trace": " ".join(f"{start}:{_digits(regret)}" for start, regret in trace),
    }


def of_situation(run: Run) -> Row:
    """Return what is measured where problems do not stay.

    ``simple`` is the regret of the point whose outcome was the largest of those that arrived, where
    outcomes come late. ``signed`` and ``rectified`` are averages over all rounds of the constraint
    value without noise and of its positive part. ``curve`` is cumulative regret after every
    :data:`STEP` rounds, ``violations`` the signed average then.

    Args:
        run: In a situation.
    """
    best, spending = max(run.told, key=run.told.__getitem__), run.constraints
    sums, spent = list(accumulate(run.regrets)), list(accumulate(spending))
    averages = [spent[t - 1] / t for t in range(STEP, len(spent) + 1, STEP)]
    return {
        "cumulative": _digits(sums[STEP - 1 :: STEP][-1]),
        "simple": _digits(run.regrets[best - 1]) if run.comes_late else "",
        "signed": _digits(fmean(spending)) if spending else "",
        "rectified": _digits(fmean(max(0.0, g) for g in spending)) if spending else "",
        "curve": _digits(*sums[STEP - 1 :: STEP]),
        "violations": _digits(*averages),
    }


def simple_regret_trace(regrets: Sequence[float], told: Sequence[float]) -> Trace:
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


def simple_regret(trace: Trace, round_number: int) -> float:
    """Return simple regret after some rounds, from 1.

    That is the optimum less the value, without noise, of the point whose observed value is the
    largest so far.
    """
    return next(regret for start, regret in reversed(trace) if start <= round_number)


def trace_of(row: Row) -> Trace:
    """Return the trace of a run on a problem that stays."""
    pairs = (pair.split(":") for pair in row["trace"].split())
    return tuple((int(start), float(regret)) for start, regret in pairs)


COMMON = ("problem", "method", "seed", "version")
STILL = (
    RESULTS / "league.csv",
    (
        *COMMON,
        *(f"simple_{n}" for n in CHECKPOINTS),
        *(f"cumulative_{NUM_ROUNDS}", "seconds", "trace"),
    ),
)
IN_SITUATIONS = (
    RESULTS / "league-situations.csv",
    (*COMMON, "cumulative", "simple", "signed", "rectified", "seconds", "curve", "violations"),
)
"""The files of the documentation, and their columns."""


class Rows:
    """The runs that are done, in a file that always holds all of them.

    Args:
        table: :data:`STILL` or :data:`IN_SITUATIONS`.
        path: Of the CSV file, which need not be there; that of the documentation if omitted.
    """

    def __init__(
        self, table: tuple[Path, tuple[str, ...]] = STILL, path: Path | None = None
    ) -> None:
        """Read the file."""
        self._path, self._columns = path or table[0], table[1]
        self._rows: dict[tuple[str, str, int], Row] = {}
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as file:
                self._rows = {_key(row): row for row in csv.DictReader(file)}

    def __contains__(self, key: tuple[str, str, int]) -> bool:
        """Whether a run is done: its problem, method and seed."""
        return key in self._rows

    def add(self, row: Row) -> None:
        """Add a run and replace the file at once."""
        self._rows[_key(row)] = row
        write_csv(self._path, self._columns, self)

    def __iter__(self) -> Iterator[Row]:
        """Yield the runs by problem, method and seed."""
        return iter(sorted(self._rows.values(), key=_key))

    def of(self, problem: str, method: str) -> dict[int, Row]:
        """Return the runs of a method on a problem by seed."""
        keys = (key for key in self._rows if key[:2] == (problem, method))
        return {key[2]: self._rows[key] for key in keys}


def _key(row: Row) -> tuple[str, str, int]:
    return row["problem"], row["method"], int(row["seed"])


def play(
    situation: Situation,
    method: Method,
    seed: int,
    data: Path | None = None,
    num_rounds: int | None = None,
) -> Row:
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
    run = Run(regrets, arrived, constraints, situation.kind == "delays")
    return {
        "problem": situation.name,
        "method": method.name,
        "seed": str(seed),
        "version": method.version,
        "seconds": f"{fmean(spent):.3g}",
        **(of_still(run) if situation.kind == "still" else of_situation(run)),
    }


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
    rows: Rows,
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
    found, traces = [], [trace_of(row) for row in rows.values()]
    for number in range(1, NUM_ROUNDS + 1):
        regrets = [max(simple_regret(trace, number), problem.smallest_regret) for trace in traces]
        low, middle, high = quantiles(regrets, n=4, method="inclusive")
        found.append((low, middle, high))
    return found
