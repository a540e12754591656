"""The second half of the league's command: ``python tests/benchmarks league --situations``.

It plays what is not in the table yet, prints what the table says, and draws it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.league_methods import AX, MissingMethodError
from benchmarks.league_situation_figures import draw_all
from benchmarks.league_situation_methods import METHODS, situation_method_of
from benchmarks.league_situation_rows import TABLE, SituationRows, listed, play_all
from benchmarks.league_situation_table import page, summary
from benchmarks.league_situations import SITUATIONS, search_budget_reference
from botorch_bandits.checks import check_integer
from botorch_bandits.cli import write_atomically
from botorch_bandits.progress import ProgressBar

NUM_SEEDS = "10"
"""Seeds unless told otherwise."""

WITH_REFERENCE = "budget-svr"
"""The problem whose best value nobody knows."""


def run_situations(
    options: argparse.Namespace, problems: Sequence[str], methods: Sequence[str], seeds: range
) -> int:
    """Play the league in situations, and print what it found.

    Args:
        options: Of the command line.
        problems: Those that were named.
        methods: Likewise.
        seeds: Of the runs.

    Returns:
        The exit code: 0, or 1 if a run raised an error.

    Raises:
        ValueError: If a name is unknown, data or an environment is missing that was asked for, or
            an option belongs to the other half of the league.
    """
    if options.variant or options.full:
        name = "--variant" if options.variant else "--full"
        raise ValueError(f"{name} is for the league without --situations; leave it out.")
    for name in (*problems, *([options.reference] if options.reference else [])):
        if name not in SITUATIONS:
            known = ", ".join(SITUATIONS)
            raise ValueError(f"the situation is {name!r}; it must be one of {known}.")
    if options.reference:
        if options.reference != WITH_REFERENCE:
            raise ValueError(
                f"--reference is {options.reference!r}; of the situations only {WITH_REFERENCE} "
                "needs one, the others know their best values."
            )
        value, x = search_budget_reference(check_integer("--points", options.points, minimum=4))
        print(f"{WITH_REFERENCE} {value!r} at {SITUATIONS[WITH_REFERENCE].native(x)}")
        return 0
    rows = SituationRows(Path(options.out or TABLE))
    failed = []
    if not options.table:
        data = Path(options.data) if options.data else None
        playing = _playable_methods(methods, options.ax_python)
        chosen = _playable_problems(problems, data)
        with ProgressBar(len(listed(chosen, playing, seeds)), "league", not options.quiet) as bar:
            failed = play_all(
                rows,
                chosen,
                playing,
                seeds,
                data,
                check_integer("--jobs", options.jobs, minimum=1),
                lambda run: bar.advance(last=run),
            )
    print(summary(rows))
    if options.page:
        write_atomically(Path(options.page), page(rows))
    if options.figures:
        for path in draw_all(rows, Path(options.figures)):
            print(path)
    for each in failed:
        print(f"failed: {each.run}: {each.error}", file=sys.stderr)
    return 1 if failed else 0


def _playable_problems(named: Sequence[str], data: Path | None) -> list[str]:
    """Return the problems that were named, or all whose data are there.

    Raises:
        ValueError: If the data of one that was named are not there.
    """
    found = []
    for name in named or SITUATIONS:
        try:
            SITUATIONS[name].world(0, data)
        except ValueError as error:
            if named or data is not None:
                raise
            print(f"{name} is left out: {error}", file=sys.stderr)
        else:
            found.append(name)
    return found


def _playable_methods(named: Sequence[str], ax_python: str | None) -> list[str]:
    """Return the methods that were named, or all that can be played here.

    Raises:
        ValueError: If one is unknown, or was named and cannot be played here.
    """
    wanted = list(named) or [*METHODS, *([AX] if ax_python else [])]
    if not named and not ax_python:
        print(f"{AX} is left out: name the interpreter with --ax-python", file=sys.stderr)
    found = []
    for name in wanted:
        if name == AX and not ax_python:
            raise ValueError(f"method {AX} needs --ax-python, the interpreter of its environment.")
        text = f"{AX}={ax_python}" if name == AX else name
        try:
            situation_method_of(text)
        except MissingMethodError as error:
            if named:
                raise ValueError(f"{error}.") from error
            print(f"{name} is left out: {error}", file=sys.stderr)
        else:
            found.append(text)
    return found
