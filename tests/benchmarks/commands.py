"""The command line of the benchmarks, of the campaign of claims and of the league.

``python tests/benchmarks [NAME ...]`` measures speed against the ordinary BoTorch way;
``python tests/benchmarks claims`` tries to refute what ``guarantee()`` says; ``python
tests/benchmarks league`` plays our default and what a user would pick instead.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks import BENCHMARKS, PARTS, Measurement, Scale, league_command
from benchmarks.devices import on_device
from benchmarks.tables import as_text, write_csv
from botorch_bandits.checks import check_integer
from botorch_bandits.cli import CommandParser, run_command
from botorch_bandits.progress import progress_bar

QUICK = 10
"""``--quick`` divides the sizes of the benchmarks by this."""

PROGRAM = "python tests/benchmarks"

COLUMNS = ("name", "ratio", "at_least", "aim", "difference", "tolerance", "note")
"""Of the table as CSV."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks, or a campaign if the first word names one.

    Args:
        arguments: Command-line arguments; those of the process if omitted.

    Returns:
        The exit code: 0, 1 if results differed or anything was lost, 2 for bad arguments, 130 if
        the user interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    first = given[0] if given else ""
    if first == "claims":
        from claims.command import build_parser

        return run_command(build_parser(f"{PROGRAM} claims"), given[1:])
    if first == "league":
        return run_command(league_command.build_parser(f"{PROGRAM} league"), given[1:])
    return run_command(build_bench_parser(), given)


def build_bench_parser() -> argparse.ArgumentParser:
    """Return the parser of the benchmarks."""
    bench = CommandParser(
        prog=PROGRAM,
        description="Do the same work both ways in one process on one thread, in turn, and print "
        "the ratio of processor times and the largest difference of the results. "
        f"Benchmarks: {', '.join(BENCHMARKS)}. Only where named: {', '.join(PARTS)}.",
        epilog=f"'{PROGRAM} claims' tries to refute guarantees, "
        f"'{PROGRAM} league' plays against other packages; they have options of their own.",
    )
    bench.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all)")
    bench.add_argument("--repeats", type=int, default=7, help="interleaved repeats (default 7)")
    bench.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    bench.add_argument(
        "--device", help="measure this device, such as cuda, against the CPU, and BoTorch on it"
    )
    bench.add_argument("--quick", action="store_true", help="a tenth of the sizes; for a look")
    bench.add_argument("--seed", type=int, default=0, help="default 0")
    bench.add_argument("--out", type=Path, metavar="FILE", help="write the table as CSV, too")
    bench.add_argument("--quiet", action="store_true", help="no progress bar")
    bench.set_defaults(start=run_bench)
    return bench


def run_bench(options: argparse.Namespace) -> int:
    """Run the benchmarks that the options name.

    Returns:
        The exit code: 0, or 1 if results differed.
    """
    names, known = options.names or list(BENCHMARKS), BENCHMARKS | PARTS
    for name in names:
        if name not in known:
            raise ValueError(f"benchmark is {name!r}; it must be one of {', '.join(known)}.")
    if options.device and options.names:
        raise ValueError("--device has benchmarks of its own; leave the names out.")
    repeats = check_integer("--repeats", options.repeats, minimum=1)
    seed = check_integer("--seed", options.seed, minimum=0)
    scale = Scale(repeats, 1.0 / QUICK if options.quick else 1.0, seed)
    with _threads(check_integer("--threads", options.threads, minimum=1)):
        lines: list[Measurement] = []
        if options.device:
            for (ordinary, ours), found in on_device(scale, options.device).items():
                print(f"{ordinary} / {ours}\n{as_text(table(found))}\n")
                lines += found
        else:
            with progress_bar(len(names), "benchmarks", not options.quiet) as advance:
                for name in names:
                    gc.collect()
                    gc.freeze()  # what earlier benchmarks and imports left is not scanned again
                    lines += known[name](scale)
                    advance(last=name)
            print(as_text(table(lines)))
    if options.out:
        write_csv(options.out, COLUMNS, table(lines))
    return 0 if all(line.agrees for line in lines) else 1


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def table(lines: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Return measurements as rows of a table.

    Args:
        lines: What was measured.
    """
    rows = []
    for line in lines:
        goals = dict(zip(("at_least", "aim"), (*line.goals, None, None), strict=False))
        row = {"name": line.name, "ratio": line.ratio, **asdict(line), **goals}
        del row["goals"]
        if not line.agrees:
            row["note"] = f"{line.note} DIFFERS"
        for name, value in row.items():
            if name not in ("name", "note"):
                row[name] = "" if value is None else f"{value:.3g}"
        rows.append(row)
    return rows
