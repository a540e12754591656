"""The command line of the experiments: ``experiment`` runs one, and ``reproduce`` runs all.

``python tutorials/papers experiment NAME`` writes a folder of tables and figures, and ``python
tutorials/papers reproduce`` writes one page with a verdict on each published figure.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from botorch_bandits.checks import check_integer
from botorch_bandits.cli import INTERRUPTED, CommandParser, run_command
from papers.registry import EXPERIMENTS, TABLES
from papers.reproduction import Reproduction, reproduce
from papers.reproduction.committed import redraw
from papers.reproduction.page import PAGE
from papers.reproduction.run import commit_to, write_from_results
from papers.reproduction.state import DATA
from papers.running import run_experiment as run

FAILED = 1
"""The exit code of ``reproduce`` if an experiment failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The command-line arguments; those of the process if omitted.

    Returns:
        The exit code: 0, 1 if an experiment of several failed, 2 for bad arguments, 130 if the
        user interrupted.
    """
    return run_command(build_parser(), sys.argv[1:] if arguments is None else arguments)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser for both commands."""
    parser = CommandParser(
        prog="python tutorials/papers",
        description="The published experiments: run one of them, or all with one page at the end.",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=CommandParser)
    add_experiment_parser(commands)
    add_reproduce_parser(commands)
    return parser


def add_experiment_parser(commands: Any) -> None:
    """Add the command ``experiment``.

    Args:
        commands: What ``argparse`` returned for the commands.
    """
    experiment = commands.add_parser(
        "experiment",
        help="run a published experiment",
        description="Run a published experiment, or the study of what a guarantee costs. "
        "Interrupted experiments continue where they stopped.",
    )
    experiment.add_argument(
        "name",
        choices=(*EXPERIMENTS, *TABLES),
        metavar="NAME",
        help=", ".join((*EXPERIMENTS, *TABLES)),
    )
    experiment.add_argument("--trials", type=int, help="default: the paper's number")
    experiment.add_argument("--rounds", type=int, help="default: the paper's number")
    experiment.add_argument("--data", metavar="FILE", nargs="+", help="data files, where needed")
    experiment.add_argument(
        "--ridge",
        type=float,
        help="added to an empirical covariance; avanesov-*: that of the detector",
    )
    experiment.add_argument("--no-center", action="store_true", help="keep the sensors' means")
    experiment.add_argument("--seed", type=int, default=0, help="default 0")
    experiment.add_argument("--out", metavar="FOLDER", help="default runs/experiment-NAME")
    experiment.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="play trials in N processes (default 1); results do not depend on it",
    )
    experiment.add_argument("--quiet", action="store_true", help="no progress bar")
    experiment.set_defaults(start=run_experiment)


def run_experiment(options: argparse.Namespace) -> int:
    """Run the experiment that the options name; returns the exit code.

    Trials that an earlier start finished are not run again.
    """
    for name in ("trials", "rounds"):
        if getattr(options, name) is not None:
            check_integer(f"--{name}", getattr(options, name), minimum=1)
    check_integer("--seed", options.seed, minimum=0)
    check_integer("--workers", options.workers, minimum=1)
    further = {}
    if options.ridge is not None:
        further["ridge"] = options.ridge
    if options.no_center:
        further["center"] = False
    folder = Path(options.out or f"runs/experiment-{options.name}")
    draw_without_screen()
    try:
        run(
            options.name,
            folder,
            tuple(Path(path) for path in options.data or ()),
            options.trials,
            options.rounds,
            options.seed,
            options.workers,
            not options.quiet,
            **further,
        )
    except KeyboardInterrupt:
        print(f"\ninterrupted; the same command continues from {folder / 'trials'}")
        return INTERRUPTED
    print(f"\nfiles: {folder}")
    return 0


def draw_without_screen() -> None:
    """Let matplotlib draw to files only; if it is not installed, drawing reports that."""
    with suppress(ImportError):
        import matplotlib

        matplotlib.use("Agg")


def add_reproduce_parser(commands: Any) -> None:
    """Add the command ``reproduce``.

    Args:
        commands: What ``argparse`` returned for the commands.
    """
    parser = commands.add_parser(
        "reproduce",
        help="run all published experiments and write one page",
        description="Run every published experiment and write one HTML page: each figure as "
        "published beside ours, with settings, errors and a verdict. An interrupted run continues "
        "with the same command. The exit code is 1 if an experiment failed.",
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="few trials and rounds (the default)")
    size.add_argument("--full", action="store_true", help="the papers' sizes; takes hours")
    size.add_argument(
        "--from-results",
        action="store_true",
        help="play nothing: write the pages of the documentation from its committed results, and "
        "with --out also the self-contained page",
    )
    parser.add_argument(
        "--docs",
        metavar="FOLDER",
        default="docs",
        help="the folder of the documentation for --from-results and --commit (default docs)",
    )
    parser.add_argument(
        "--redraw",
        action="store_true",
        help="with --from-results: also redraw the pictures of the documentation",
    )
    parser.add_argument(
        "--commit",
        action="store_true",
        help="with --full: copy results and pictures into the documentation at the end",
    )
    parser.add_argument("--out", metavar="FOLDER", help="default runs/reproduce-quick or -full")
    parser.add_argument("--only", metavar="NAME", nargs="+", default=[], help="only these")
    for kind, file in DATA.items():
        parser.add_argument(f"--{kind}", metavar="FILE", help=file.what)
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="play trials in N processes (default 1); results do not depend on it",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.set_defaults(start=run_reproduce)


def write_pages(options: argparse.Namespace) -> int:
    """Write pages from committed results; returns the exit code."""
    folder = None if options.out is None else Path(options.out)
    if options.redraw:
        draw_without_screen()
        print(f"{len(redraw(Path(options.docs)))} pictures drawn")
    for path in write_from_results(Path(options.docs), folder):
        print(path)
    return 0


def run_reproduce(options: argparse.Namespace) -> int:
    """Run the experiments; returns the exit code."""
    if options.from_results:
        return write_pages(options)
    if options.redraw:
        raise ValueError("--redraw is given without --from-results, which it needs.")
    if options.commit and not options.full:
        raise ValueError("--commit is given without --full; only full runs go into documentation.")
    if not (options.quick or options.full):
        print("neither --quick nor --full: a quick look, from which no verdict follows")
    size = "full" if options.full else "quick"
    files = {kind: getattr(options, kind) for kind in DATA}
    settings = Reproduction(
        folder=Path(options.out or f"runs/reproduce-{size}"),
        quick=not options.full,
        seed=options.seed,
        num_workers=options.workers,
        files={kind: Path(path) for kind, path in files.items() if path is not None},
        only=tuple(options.only),
        progress=not options.quiet,
    )
    draw_without_screen()
    state = reproduce(settings)
    print(f"\nthe page: {settings.folder / PAGE}")
    if options.commit and not state.is_interrupted:
        print(f"{len(commit_to(state, Path(options.docs)))} files written into {options.docs}")
    if state.is_interrupted:
        print("interrupted; the same command continues")
        return INTERRUPTED
    for name, error in state.errors.items():
        print(f"{name} failed: {error} (see {settings.folder_of(name) / 'error.txt'})")
    return FAILED if state.errors else 0
