"""The command of the campaign: ``python tests/benchmarks claims``."""

from __future__ import annotations

import argparse
from pathlib import Path

from botorch_bandits.checks import check_integer
from botorch_bandits.cli import CommandParser
from botorch_bandits.progress import progress_bar
from claims.campaign import (
    STATEMENTS,
    Campaign,
    Row,
    coverage,
    is_refuted,
    pooled,
    summary,
)
from claims.edge import table
from claims.faults import FAULTS
from claims.judging import REFUTED

DEFAULT_TABLE = Path(__file__).resolve().parents[2] / "docs" / "results" / "claims.csv"
"""The table in the documentation."""


def build_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the campaign.

    Args:
        program: How it is started.
    """
    parser = CommandParser(
        prog=program,
        description="Draw settings of loops and drop-ins at random, play them with functions and "
        "noise at the edge of what is assumed, and count how often what guarantee() says fails. A "
        "second start goes on where the table ends. The exit code is 1 if a statement is refuted.",
    )
    parser.add_argument(
        "--settings", type=int, default=500, help="how many are to hold (default 500)"
    )
    parser.add_argument("--runs", type=int, default=50, help="of each setting (default 50)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument(
        "--only",
        nargs="*",
        default=[],
        metavar="AXIS=VALUE",
        help="hold axes at values, such as method=DMM",
    )
    parser.add_argument(
        "--out", metavar="FILE", default=str(DEFAULT_TABLE), help="the table, as CSV"
    )
    parser.add_argument(
        "--summary", action="store_true", help="say what the table has; play nothing"
    )
    parser.add_argument(
        "--faults", action="store_true", help="put faults back one by one; each must be found"
    )
    parser.add_argument(
        "--edge", action="store_true", help="print how much of each width is needed"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(start=run)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the campaign, and print what it found.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 0, or 1 if a statement was refuted or a fault was not found.
    """
    seed = check_integer("--seed", options.seed, minimum=0)
    if options.edge:
        print(table())
        return 0
    if options.faults:
        return run_faults(seed, options.quiet)
    number = check_integer("--settings", options.settings, minimum=1)
    if options.summary:
        number = 0
    only = {}
    for text in options.only:
        axis, _, value = text.partition("=")
        only[axis] = value
    campaign = Campaign(
        Path(options.out),
        number,
        check_integer("--runs", options.runs, minimum=1),
        seed,
        only,
        check_integer("--jobs", options.jobs, minimum=1),
    )
    with progress_bar(number, "settings that hold", not options.quiet) as advance:
        held = sum(str(row["holds"]) == "True" for row in campaign.rows.values())
        advance(held)
        rows = campaign.run(
            lambda row: advance(int(row["holds"]), p=row["p_value"], last=row["method"])
        )
    print(summary(rows))
    return 1 if are_refuted(rows) else 0


def are_refuted(rows: list[Row]) -> bool:
    """Return whether a table refutes a statement, of one setting or of a theorem.

    Args:
        rows: Of the table.
    """
    if any(is_refuted(row) for row in rows):
        return True
    for theorem in {str(row["theorem"]) for row in rows}:
        for name in STATEMENTS:
            stated = [
                row
                for row in rows
                if row["theorem"] == theorem and int(row.get(f"{name}_runs") or 0)
            ]
            if stated and pooled(stated, name)[2] < REFUTED:
                return True
    return False


def run_faults(seed: int, is_quiet: bool) -> int:
    """Put each fault back and look whether it is found.

    Args:
        seed: Of all runs.
        is_quiet: Whether there is no progress bar.

    Returns:
        The exit code: 0, or 1 if one was not found.
    """
    found = {}
    with progress_bar(len(FAULTS), "faults", not is_quiet) as advance:
        for fault in FAULTS:
            found[fault.name] = fault.found_by(seed)
            advance()
    for name, by in found.items():
        print(f"{' and '.join(by) or 'NOT FOUND':<15} {name}")
    return 0 if all(found.values()) else 1


__all__ = ["are_refuted", "build_parser", "coverage", "run", "run_faults"]
