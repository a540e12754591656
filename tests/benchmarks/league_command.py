"""The command of the league: ``python tests/benchmarks league``.

It plays what is not in the table yet, and prints what the table says. With ``--situations`` that is
the league with delays, changes, budgets and contexts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.league import TABLE, Rows, play_all
from benchmarks.league_methods import AX, METHODS, MissingMethodError, method_of
from benchmarks.league_problems import PROBLEMS, search_reference
from benchmarks.league_situation_command import NUM_SEEDS as NUM_SITUATION_SEEDS
from benchmarks.league_situation_command import run_situations
from benchmarks.league_situation_methods import METHODS as SITUATION_METHODS
from benchmarks.league_situations import SITUATIONS
from benchmarks.league_table import page, summary
from botorch_bandits.checks import check_integer
from botorch_bandits.cli import CommandParser, write_atomically
from botorch_bandits.progress import ProgressBar

REFERENCE_POINTS = 4000
"""``--reference`` computes this many points unless told otherwise."""

NUM_SEEDS = "20"
"""Seeds unless told otherwise."""


def build_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the league.

    Args:
        program: How it is started.
    """
    parser = CommandParser(
        prog=program,
        description="Play the default of this package and what a user would pick instead on common "
        "seeds with common initial points. A second start goes on where the table ends. "
        f"Problems: {', '.join(PROBLEMS)}. Methods: {', '.join(METHODS)}, {AX}. With --situations "
        f"problems are {', '.join(SITUATIONS)}; methods are {', '.join(SITUATION_METHODS)}, {AX}.",
    )
    parser.add_argument(
        "--situations", action="store_true", help="play delays, changes, budgets and contexts"
    )
    parser.add_argument(
        "--data", metavar="FOLDER", help="with --situations: where the files of real data are"
    )
    parser.add_argument(
        "--figures", metavar="FOLDER", help="with --situations: draw what the table has into it"
    )
    parser.add_argument("--problems", default="", metavar="A,B", help="default: the core, in order")
    parser.add_argument("--methods", default="", metavar="A,B", help="default: the core, in order")
    parser.add_argument("--full", action="store_true", help="all problems and methods by default")
    parser.add_argument(
        "--seeds",
        metavar="N",
        help=f"how many, from 0; or FIRST:BEHIND (default {NUM_SEEDS}, "
        f"with --situations {NUM_SITUATION_SEEDS})",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument(
        "--variant",
        action="append",
        default=[],
        metavar="NAME=MODULE:FACTORY",
        help="also play the loop that FACTORY(domain, num_initial, seed) returns; may be repeated",
    )
    parser.add_argument(
        "--ax-python", metavar="PATH", help="the interpreter of an environment with Ax, to play it"
    )
    parser.add_argument("--out", metavar="FILE", help="the table, as CSV")
    parser.add_argument("--table", action="store_true", help="say what the table has; play nothing")
    parser.add_argument(
        "--page", metavar="FILE", help="write what the table has as a page of the documentation"
    )
    parser.add_argument(
        "--reference",
        metavar="PROBLEM",
        help="play nothing; search for the largest value that regret is counted from",
    )
    parser.add_argument(
        "--points",
        type=int,
        default=REFERENCE_POINTS,
        help=f"of --reference (default {REFERENCE_POINTS})",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(start=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Play the league, and print what it found.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 0, or 1 if a run raised an error.
    """
    if options.situations:
        named, methods = _listed(options.problems), _listed(options.methods)
        seeds = parse_seeds(options.seeds or NUM_SITUATION_SEEDS)
        return run_situations(options, named, methods, seeds)
    for name in ("data", "figures"):
        if getattr(options, name):
            raise ValueError(f"--{name} goes with --situations; add it, or leave --{name} out.")
    if options.reference:
        problem = PROBLEMS[_known("--reference", options.reference)]
        points = check_integer("--points", options.points, minimum=4)
        value, x = search_reference(problem, points)
        print(f"{problem.name} {value!r} at {problem.native(x)}")
        return 0
    problems = [_known("--problems", name) for name in _listed(options.problems)] or [
        name for name, problem in PROBLEMS.items() if problem.is_core or options.full
    ]
    seeds = parse_seeds(options.seeds or NUM_SEEDS)
    methods = [] if options.table else playable(options)
    rows = Rows(Path(options.out or TABLE))
    failed = []
    if methods:
        total = len(problems) * len(methods) * len(seeds)
        with ProgressBar(total, "league", not options.quiet) as bar:
            failed = play_all(
                rows,
                problems,
                methods,
                seeds,
                check_integer("--jobs", options.jobs, minimum=1),
                lambda run: bar.advance(last=run),
            )
    print(summary(rows))
    if options.page:
        write_atomically(Path(options.page), page(rows))
    for each in failed:
        print(f"failed: {each.run}: {each.error}", file=sys.stderr)
    return 1 if failed else 0


def playable(options: argparse.Namespace) -> list[str]:
    """Return the methods that the options name and that can be played here.

    What is missing is said on standard error; what was named must be there.

    Args:
        options: Of the command line.

    Raises:
        ValueError: If a method is unknown, or was named and cannot be played here.
    """
    named = _listed(options.methods)
    wanted = named or [name for name, m in METHODS.items() if m.is_core or options.full]
    if options.ax_python and not named:
        wanted.append(AX)
    elif options.full and not named:
        print(f"{AX} is left out: name the interpreter with --ax-python", file=sys.stderr)
    if options.ax_python:
        wanted = [f"{AX}={options.ax_python}" if name == AX else name for name in wanted]
    if options.variant and not named:
        wanted = []
    found = []
    for text in [*wanted, *options.variant]:
        if text == AX:
            raise ValueError(f"method {AX} needs --ax-python, the interpreter of its environment.")
        try:
            method_of(text)
        except MissingMethodError as error:
            if named:
                raise ValueError(f"{error}.") from error
            print(f"{text} is left out: {error}", file=sys.stderr)
        else:
            found.append(text)
    return found


def parse_seeds(text: str) -> range:
    """Return the seeds that a text names.

    Args:
        text: How many, from 0; or the first and the one behind the last, as in ``10:20``.

    Raises:
        ValueError: If it names none.
    """
    first, colon, behind = text.partition(":")
    try:
        seeds = range(int(first), int(behind)) if colon else range(int(first))
    except ValueError:
        seeds = range(0)
    if not seeds or seeds[0] < 0:
        raise ValueError(f"--seeds is {text!r}; it must be a number, or two as in 10:20.")
    return seeds


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _known(option: str, name: str) -> str:
    if name not in PROBLEMS:
        raise ValueError(f"{option} has {name!r}; problems are {', '.join(PROBLEMS)}.")
    return name
