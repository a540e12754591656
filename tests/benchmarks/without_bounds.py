"""Fitted models and users who know no bounds: which widths are too large, and when censoring pays.

``python tests/benchmarks without-bounds widths`` plays loops with several widths and counts in how
many rounds a width is told to dwarf the outcomes, in how many the point that was chosen has the
largest standard deviation of the whole domain, as pure exploration would have it, and in how many
both hold. ``python tests/benchmarks without-bounds pending`` plays delays and lost outcomes with
each kind of feedback. Both use :class:`~botorch_bandits.FittedSingleTaskGP`, and go on where the
table ends.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import torch
from botorch.test_functions import Branin, Hartmann
from torch import Tensor

from botorch_bandits import (
    BanditLoop,
    Box,
    Censored,
    FittedSingleTaskGP,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Hallucinated,
    Ignored,
    ImprovedUpperConfidenceBound,
    VarianceOnly,
    run,
)
from botorch_bandits.checks import check_integer
from botorch_bandits.cli import CommandParser
from botorch_bandits.problems import (
    Delays,
    HeavyTailedDelay,
    PoissonDelay,
    TuningProblem,
    load_dataset,
)
from botorch_bandits.progress import ProgressBar

RESULTS = Path(__file__).parents[2] / "docs" / "results"

NUM_ROUNDS = 30
"""Of a run, initial rounds included."""

LOOK_EVERY = 3
"""The largest standard deviation of the domain is searched for in each round of this number."""

SHARE = 0.8
"""A point counts as one of pure exploration if its deviation is so much of the largest one."""


@dataclass(frozen=True)
class Problem:
    """A reward on a box.

    Attributes:
        function: From a ``d``-dimensional point to the reward.
        bounds: ``2 x d``.
        best: The largest reward, as far as it is known.
        least: The least one.
    """

    function: Callable[[Tensor], float]
    bounds: Tensor
    best: float
    least: float


def _of_botorch(function: Branin | Hartmann, best: float, least: float) -> Problem:
    def reward(x: Tensor) -> float:
        return float(function(x.unsqueeze(0)))

    return Problem(reward, function.bounds.double(), best, least)


def _svm() -> Problem:
    problem = TuningProblem("svm", *load_dataset("breast-cancer"))
    return Problem(problem, problem.box.bounds, 1.0, 0.0)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "branin": lambda: _of_botorch(Branin(negate=True), -0.397887, -308.13),
    "hartmann6": lambda: _of_botorch(Hartmann(dim=6, negate=True), 3.32237, 0.0),
    "svm": _svm,
}

WIDTHS = {
    "without bounds": ImprovedUpperConfidenceBound.with_options(),
    "width 2": GPUpperConfidenceBound.with_options(width=2.0),
    "B = 2, R = 0.1, units of outcomes": ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=2.0, noise_bound=0.1
    ),
    "width 10": GPUpperConfidenceBound.with_options(width=10.0),
}
"""Acquisition functions with a width, from small to large."""


@dataclass(frozen=True)
class WidthRow:
    """What one run says of its widths, over the rounds that were looked at.

    Attributes:
        problem: A key of :data:`PROBLEMS`.
        method: A key of :data:`WIDTHS`.
        seed: Of the loop.
        width: The median.
        num_looked: In how many rounds.
        num_told: In how many of them the width is told to be too large.
        num_explored: In how many the point was one of pure exploration.
        num_both: In how many both.
        simple_regret: Of the best reward.
        cumulative_regret: Of all rounds after the initial ones.
    """

    problem: str
    method: str
    seed: int
    width: float
    num_looked: int
    num_told: int
    num_explored: int
    num_both: int
    simple_regret: float
    cumulative_regret: float


def play_widths(name: str, method: str, seed: int, num_rounds: int = NUM_ROUNDS) -> WidthRow:
    """Play one run and look at its widths.

    Args:
        name: Of the problem.
        method: Of the acquisition function.
        seed: Of the loop.
        num_rounds: The rounds of the run.
    """
    problem = PROBLEMS[name]()
    box, num_initial = Box(problem.bounds), 2 * problem.bounds.shape[-1]
    recipe = WIDTHS[method]
    loop = BanditLoop(
        box, FittedSingleTaskGP(problem.bounds), recipe, num_initial=num_initial, seed=seed
    )
    looked: list[tuple[float, bool, bool]] = []
    rewards = []
    for t in range(num_rounds):
        model = loop.current_model() if t >= num_initial else None
        query = loop.ask()
        if model is not None and t % LOOK_EVERY == 0:
            looked.append(_look(model, recipe.build(model, box), query.x, box))
        rewards.append(problem.function(query.x))
        loop.tell(query.id, rewards[-1])
    told, explored = [each[1] for each in looked], [each[2] for each in looked]
    return WidthRow(
        name,
        method,
        seed,
        median(each[0] for each in looked),
        len(looked),
        sum(told),
        sum(explored),
        sum(a and b for a, b in zip(told, explored, strict=True)),
        problem.best - max(rewards),
        sum(problem.best - reward for reward in rewards[num_initial:]),
    )


def _look(model: Any, acquisition: Any, x: Tensor, box: Box) -> tuple[float, bool, bool]:
    deviation = VarianceOnly(model)
    farthest, largest = box.maximize(deviation, seed=0)
    with torch.no_grad():
        largest = max(float(deviation(farthest.unsqueeze(0))), largest)
        chosen = float(deviation(x.unsqueeze(0)))
    return float(acquisition.width), acquisition.is_wide, chosen >= SHARE * largest


@dataclass(frozen=True)
class Loss(Delays):
    """Outcomes that come after a delay, or never.

    Attributes:
        share: The probability that an outcome is lost.
        delays: Of the others.
    """

    share: float
    delays: Delays

    def draw(self, x: Tensor, stream: torch.Generator) -> float:
        """See the base class."""
        is_lost = float(torch.rand((), dtype=torch.float64, generator=stream)) < self.share
        return math.inf if is_lost else self.delays.draw(x, stream)


DELAYS: dict[str, Delays] = {
    "heavy-tailed": HeavyTailedDelay(2.0, 1.0),
    "3 of 10 lost": Loss(0.3, PoissonDelay(2.0)),
}
"""When outcomes arrive, in rounds."""

MAX_DELAY = 15
"""Censored feedback gives queries up after so many rounds."""

PENDING: dict[str, Callable[[Problem], tuple[Any, Any]]] = {
    "hallucinated": lambda problem: (ImprovedUpperConfidenceBound.with_options(), Hallucinated()),
    "ignored, Thompson sampling": lambda problem: (GPThompsonSampling.with_options(), Ignored()),
    "censored": lambda problem: (
        ImprovedUpperConfidenceBound.with_options(),
        Censored(problem.least, max_delay=MAX_DELAY),
    ),
    "censored, outcome_bound": lambda problem: (
        ImprovedUpperConfidenceBound.with_options(),
        Censored(problem.least, problem.best - problem.least, max_delay=MAX_DELAY),
    ),
}
"""Acquisition function and feedback; all without bounds on norm and noise."""


@dataclass(frozen=True)
class PendingRow:
    """One run with delays.

    Attributes:
        problem: A key of :data:`PROBLEMS`.
        delays: A key of :data:`DELAYS`.
        method: A key of :data:`PENDING`.
        seed: Of loop and delays.
        width: The median; NaN without one.
        num_arrived: How many outcomes had arrived at the end.
        simple_regret: Of the best reward that arrived.
        cumulative_regret: Of all rounds after the initial ones, whether or not outcomes arrived.
    """

    problem: str
    delays: str
    method: str
    seed: int
    width: float
    num_arrived: int
    simple_regret: float
    cumulative_regret: float


def play_pending(
    name: str, delays: str, method: str, seed: int, num_rounds: int = NUM_ROUNDS
) -> PendingRow:
    """Play one run with delays.

    Args:
        name: Of the problem.
        delays: Of the delays.
        method: Of acquisition function and feedback.
        seed: Of loop and delays.
        num_rounds: The rounds of the run.
    """
    problem = PROBLEMS[name]()
    num_initial = 2 * problem.bounds.shape[-1]
    acquisition, feedback = PENDING[method](problem)
    loop = BanditLoop(
        Box(problem.bounds),
        FittedSingleTaskGP(problem.bounds),
        acquisition,
        feedback=feedback,
        num_initial=num_initial,
        seed=seed,
    )
    run(loop, problem.function, num_rounds, delays=DELAYS[delays], progress=False)
    queries = loop.history.queries
    widths = [query.diagnostics["width"] for query in queries if "width" in query.diagnostics]
    missed = [problem.best - problem.function(query.x) for query in queries]
    arrived = [outcome.reward for outcome in loop.history.outcomes]
    return PendingRow(
        name,
        delays,
        method,
        seed,
        median(widths) if widths else math.nan,
        len(arrived),
        problem.best - max(arrived),
        sum(missed[num_initial:]),
    )


@dataclass(frozen=True)
class Study:
    """A study by its rows.

    Attributes:
        play: Plays one run; takes the key and ``num_rounds``.
        keys: The names of the runs, but for their seeds.
        row: The class of a row.
        table: Where its rows are kept.
        summarize: Says in lines what the rows say.
    """

    play: Callable[..., Any]
    keys: tuple[tuple[str, ...], ...]
    row: type
    table: str
    summarize: Callable[[Sequence[Any]], Iterator[str]]


def _summarize_widths(rows: Sequence[WidthRow]) -> Iterator[str]:
    """Yield the lines of the page's table."""
    yield "| Problem | Width | Median | Told | Explored | Explored where told | Cumulative regret |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for (problem, method), runs in _grouped(rows, "problem", "method"):
        looked, told = sum(r.num_looked for r in runs), sum(r.num_told for r in runs)
        explored, both = sum(r.num_explored for r in runs), sum(r.num_both for r in runs)
        where = f"{both / told:.2f}" if told else ""
        width = _short(median(r.width for r in runs))
        lost = _short(fmean(r.cumulative_regret for r in runs))
        yield (
            f"| {problem} | {method} | {width} | {told / looked:.2f} | {explored / looked:.2f} | "
            f"{where} | {lost} |"
        )


def _summarize_pending(rows: Sequence[PendingRow]) -> Iterator[str]:
    """Yield the lines of the page's table."""
    yield "| Problem | Delays | Feedback | Width | Simple regret | Cumulative regret |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for (problem, delays, method), runs in _grouped(rows, "problem", "delays", "method"):
        width = median(row.width for row in runs)
        lost = [row.cumulative_regret for row in runs]
        error = f" ± {_short(stdev(lost) / math.sqrt(len(lost)))}" if len(lost) > 1 else ""
        yield (
            f"| {problem} | {delays} | {method} | {'' if math.isnan(width) else _short(width)} | "
            f"{median(row.simple_regret for row in runs):.2g} | {_short(fmean(lost))}{error} |"
        )


def _short(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 100.0 else f"{number:.2g}"


def _grouped(rows: Sequence[Any], *names: str) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    groups: dict[tuple[str, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(getattr(row, name) for name in names), []).append(row)
    yield from groups.items()


STUDIES = {
    "widths": Study(
        play_widths,
        tuple((problem, method) for problem in PROBLEMS for method in WIDTHS),
        WidthRow,
        "wide-widths.csv",
        _summarize_widths,
    ),
    "pending": Study(
        play_pending,
        tuple(
            (problem, delays, method)
            for problem in ("branin", "hartmann6")
            for delays in DELAYS
            for method in PENDING
        ),
        PendingRow,
        "censored-pays.csv",
        _summarize_pending,
    ),
}


def read_rows(study: Study, path: Path) -> list[Any]:
    """Return the rows of a table; none if it does not exist.

    Args:
        study: Whose rows they are.
        path: Of the table.
    """
    if not path.exists():
        return []
    kinds = {"str": str, "int": int, "float": float}
    types = {field.name: kinds[str(field.type)] for field in fields(study.row)}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            study.row(**{name: types[name](value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


def play_study(
    study: Study,
    path: Path,
    num_seeds: int,
    num_rounds: int = NUM_ROUNDS,
    progress: bool = True,
) -> list[Any]:
    """Play what is not in the table yet; each row is written when it is there.

    Args:
        study: What is played.
        path: Of the table.
        num_seeds: Runs of each setting, with the seeds from 0.
        num_rounds: The rounds of a run.
        progress: Show a progress bar.

    Returns:
        All rows of the table.
    """
    names = [field.name for field in fields(study.row)]
    known = read_rows(study, path)
    keys = names[: names.index("seed") + 1]
    done = {tuple(getattr(row, name) for name in keys) for row in known}
    wanted = [(*key, seed) for seed in range(num_seeds) for key in study.keys]
    with ProgressBar(len(wanted), "runs", progress) as bar:
        for each in wanted:
            if each not in done:
                row = study.play(*each, num_rounds=num_rounds)
                is_new = not path.exists()
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a", newline="", encoding="utf-8") as file:
                    writer = csv.DictWriter(file, names, lineterminator="\n")
                    if is_new:
                        writer.writeheader()
                    writer.writerow(
                        {
                            name: f"{value:.6g}" if isinstance(value, float) else value
                            for name, value in asdict(row).items()
                        }
                    )
            bar.advance(last=" ".join(map(str, each)))
    return read_rows(study, path)


def build_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the command.

    Args:
        program: How it is started.
    """
    parser = parser_of_studies(
        program,
        STUDIES,
        "What users get who know no bounds, on fitted models: which widths are too large, and "
        "which feedback pays where outcomes are late or lost.",
        num_seeds=3,
    )
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help=f"default {NUM_ROUNDS}")
    parser.set_defaults(start=start)
    return parser


def parser_of_studies(
    program: str, studies: Iterable[str], description: str, num_seeds: int
) -> argparse.ArgumentParser:
    """Return a parser with the options that :func:`start_study` needs.

    Args:
        program: How the command is started.
        studies: The names of its studies.
        description: What they are about.
        num_seeds: The default number of runs of each setting.
    """
    parser = CommandParser(prog=program, description=description)
    parser.add_argument("study", choices=list(studies), help="what is measured")
    runs = f"runs of each setting (default {num_seeds})"
    parser.add_argument("--seeds", type=int, default=num_seeds, help=runs)
    parser.add_argument("--out", metavar="FILE", help="the table (default: that of the docs)")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def start(options: argparse.Namespace) -> int:
    """Play a study and print its table.

    Returns:
        The exit code: 0.
    """
    num_rounds = check_integer("--rounds", options.rounds, minimum=16)
    return start_study(STUDIES[options.study], options, num_rounds)


def start_study(study: Study, options: argparse.Namespace, num_rounds: int) -> int:
    """Play what the options ask for and print the table of the page.

    Args:
        study: What is played.
        options: Its ``seeds``, ``out`` and ``quiet``.
        num_rounds: The rounds of a run.

    Returns:
        The exit code: 0.
    """
    path = RESULTS / study.table if options.out is None else Path(options.out)
    num_seeds = check_integer("--seeds", options.seeds, minimum=1)
    rows = play_study(study, path, num_seeds, num_rounds, progress=not options.quiet)
    print("\n".join(study.summarize(rows)))
    return 0
