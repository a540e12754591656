"""The command of the league: ``python tests/benchmarks league``.

It plays what is not in the table yet, and prints what the table says. With ``--situations`` that is
the league with delays, changes, budgets and contexts.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from statistics import median

from benchmarks.league import IN_SITUATIONS, STILL, Rows, play_all
from benchmarks.league_methods import AX, METHODS, method_of
from benchmarks.league_problems import NUM_ROUNDS, PROBLEMS
from benchmarks.league_situations import SITUATIONS
from botorch_bandits.checks import check_integer
from botorch_bandits.cli import CommandParser
from botorch_bandits.progress import progress_bar


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
        f"problems are {', '.join(SITUATIONS)}. "
        f"{AX} is named with the interpreter of its environment: {AX}=.venv-ax/bin/python.",
    )
    parser.add_argument(
        "--situations", action="store_true", help="play delays, changes, budgets and contexts"
    )
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="of --situations: the files of real data"
    )
    parser.add_argument("--problems", default="", metavar="A,B", help="default: the core, in order")
    parser.add_argument("--methods", default="", metavar="A,B", help="default: the core, in order")
    parser.add_argument("--seeds", metavar="N", type=int, default=20, help="default 20, from 0")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the table, as CSV")
    parser.add_argument("--table", action="store_true", help="say what the table has; play nothing")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(start=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Play the league, and print the medians over seeds of what was measured.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 0, or 1 if a run raised an error.

    Raises:
        ValueError: If a problem or method is unknown or cannot be played here.
    """
    is_still = not options.situations
    known = PROBLEMS if is_still else SITUATIONS
    problems = _listed(options.problems) or [name for name, p in known.items() if p.is_core]
    for name in problems:
        if name not in known:
            raise ValueError(f"--problems has {name!r}; problems are {', '.join(known)}.")
    core = [n for n, m in METHODS.items() if (m.is_core if is_still else {*m.makes} - {"still"})]
    methods = _listed(options.methods) or core
    for name in methods:
        method_of(name)
    seeds = range(check_integer("--seeds", options.seeds, minimum=1))
    jobs = check_integer("--jobs", options.jobs, minimum=1)
    rows = Rows(STILL if is_still else IN_SITUATIONS, options.out)
    failed = []
    total = 0 if options.table else len(problems) * len(methods) * len(seeds)
    with progress_bar(total, "league", not options.quiet) as advance:
        if total:
            for name in problems:
                known[name].world(0, options.data)  # whether its data are there
            given = problems, methods, seeds, options.data, jobs
            failed = play_all(rows, *given, lambda run: advance(last=run))
    measure = f"simple_{NUM_ROUNDS}" if is_still else "cumulative"
    for problem, method in dict.fromkeys((row["problem"], row["method"]) for row in rows):
        values = [float(row[measure]) for row in rows.of(problem, method).values()]
        print(f"{problem:<20} {method:<20} {len(values):>3} seeds  median {median(values):.4g}")
    for each in failed:
        print(f"failed: {each.run}: {each.error}", file=sys.stderr)
    return 1 if failed else 0


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
