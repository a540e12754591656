"""Run a published experiment by name."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path

from botorch_bandits.checks import check_integer
from botorch_bandits.cli.session import INTERRUPTED
from botorch_bandits.experiments.running import run_experiment as run


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
    if options.no_centre:
        further["centre"] = False
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
    """Let matplotlib draw files only; whoever draws says so if it is not installed."""
    with suppress(ImportError):
        import matplotlib

        matplotlib.use("Agg")
