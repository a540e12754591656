"""The command line of the benchmarks, of two campaigns and of the league.

``python tests/benchmarks [NAME ...]`` measures speed against the ordinary BoTorch way; ``python
tests/benchmarks faults`` kills loops and counts what was lost;
``python tests/benchmarks claims`` tries to refute what ``guarantee()`` says; ``python
tests/benchmarks league`` plays our default and what a user would pick instead.
"""

from __future__ import annotations

import argparse
import csv
import gc
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch

from benchmarks import (
    BENCHMARKS,
    Measurement,
    Scale,
    league_command,
)
from benchmarks.devices import against_botorch, against_cpu
from benchmarks.fault_cases import SETTING_NAMES
from benchmarks.faults import FaultCount, count_faults
from botorch_bandits.checks import check_integer
from botorch_bandits.cli import CommandParser, run_command, write_atomically
from botorch_bandits.progress import progress_bar

QUICK = 0.1
"""``--quick`` multiplies the sizes of the benchmarks by this."""

FAULTS = "faults"
"""The first word of a command that starts the campaign of faults."""

CLAIMS = "claims"
"""The first word of a command that starts the campaign against guarantees."""

LEAGUE = "league"
"""The first word of a command that starts the league."""

PROGRAM = "python tests/benchmarks"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks, or a campaign if the first word names one.

    Args:
        arguments: Command-line arguments; those of the process if omitted.

    Returns:
        The exit code: 0, 1 if results differed or anything was lost, 2 for bad arguments, 130 if
        the user interrupted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser, given = parser_for(given)
    return run_command(parser, given)


def parser_for(arguments: Sequence[str]) -> tuple[argparse.ArgumentParser, list[str]]:
    """Return the parser of the command that is meant, and the arguments that are left for it.

    Args:
        arguments: Command-line arguments.
    """
    if arguments[:1] == [FAULTS]:
        return build_faults_parser(), list(arguments[1:])
    if arguments[:1] == [CLAIMS]:
        from claims.command import build_parser

        return build_parser(f"{PROGRAM} {CLAIMS}"), list(arguments[1:])
    if arguments[:1] == [LEAGUE]:
        return league_command.build_parser(f"{PROGRAM} {LEAGUE}"), list(arguments[1:])
    return build_bench_parser(), list(arguments)


def build_bench_parser() -> argparse.ArgumentParser:
    """Return the parser of the benchmarks."""
    bench = CommandParser(
        prog=PROGRAM,
        description="Do the same work both ways in one process on one thread, in turn, and print "
        "the ratio of processor times and the largest difference of the results. "
        f"Benchmarks: {', '.join(BENCHMARKS)}.",
        epilog=f"'{PROGRAM} {FAULTS}' kills and cuts off loops, '{PROGRAM} {CLAIMS}' tries to "
        "refute guarantees, '{PROGRAM} {LEAGUE}' plays against other packages; they have options "
        "of their own.",
    )
    bench.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all)")
    bench.add_argument("--repeats", type=int, default=7, help="interleaved repeats (default 7)")
    bench.add_argument("--quick", action="store_true", help="a tenth of the sizes; for a look")
    bench.add_argument("--seed", type=int, default=0, help="default 0")
    bench.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    bench.add_argument(
        "--device", help="measure this device, such as cuda, against the CPU, and BoTorch on it"
    )
    bench.add_argument("--out", metavar="FILE", help="write the table as CSV, too")
    bench.add_argument("--quiet", action="store_true", help="no progress bar")
    bench.set_defaults(start=run_bench)
    return bench


def run_bench(options: argparse.Namespace) -> int:
    """Run the benchmarks that the options name.

    Returns:
        The exit code: 0, or 1 if results differed.
    """
    names = options.names or list(BENCHMARKS)
    for name in names:
        if name not in BENCHMARKS:
            raise ValueError(f"benchmark is {name!r}; it must be one of {', '.join(BENCHMARKS)}.")
    if options.device and options.names:
        raise ValueError("--device has benchmarks of its own; leave the names out.")
    repeats = check_integer("--repeats", options.repeats, minimum=1)
    seed = check_integer("--seed", options.seed, minimum=0)
    scale = Scale(repeats, QUICK if options.quick else 1.0, seed)
    with _threads(check_integer("--threads", options.threads, minimum=1)):
        lines = []
        if options.device:
            lines = against_cpu(scale, options.device)
            print(format_measurements(lines, "CPU", options.device), end="\n\n")
            on_device = against_botorch(scale, options.device)
            print(format_measurements(on_device, "BoTorch", "here"))
            lines += on_device
        else:
            with progress_bar(len(names), "benchmarks", not options.quiet) as advance:
                for name in names:
                    gc.collect()
                    gc.freeze()  # what earlier benchmarks and imports left is not scanned again
                    lines += BENCHMARKS[name].run(scale)
                    advance(last=name)
            print(format_measurements(lines, "BoTorch", "here"))
    if options.out:
        write_atomically(Path(options.out), _csv(lines))
    return 0 if all(line.agrees for line in lines) else 1


@contextmanager
def _threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def format_measurements(lines: list[Measurement], ordinary: str, ours: str) -> str:
    """Return the table as text.

    Args:
        lines: Its rows.
        ordinary: What the ordinary way is called.
        ours: What ours is called.
    """
    width = max(len(line.name) for line in lines)
    rows = [
        f"{'benchmark':<{width}} {'ratio':>8} {'promised':>9} {'aim':>6} {'difference':>11} "
        f"{ordinary + ' ms':>12} {ours + ' ms':>12}  note"
    ]
    for line in lines:
        promised = "" if line.at_least is None else f"{line.at_least:g}"
        aim = "" if line.aim is None else f"{line.aim:g}"
        differs = "" if line.agrees else " DIFFERS"
        rows.append(
            f"{line.name:<{width}} {line.ratio:>8.1f} {promised:>9} {aim:>6} "
            f"{line.difference:>11.1e} {line.ordinary_seconds * 1e3:>12.4g} "
            f"{line.our_seconds * 1e3:>12.4g}  {line.note}{differs}"
        )
    return "\n".join(rows)


def _csv(lines: list[Measurement]) -> str:
    text = io.StringIO()
    fields = ("name", "ratio", "at_least", "aim", "difference", "tolerance", "note")
    writer = csv.DictWriter(text, fields, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for line in lines:
        known = asdict(line)
        for name in ("ratio", "difference"):
            known[name] = f"{known[name]:.3g}"
        writer.writerow(known)
    return text.getvalue()


QUICK_FAULTS = 10
"""``--quick`` divides the numbers by this."""


def build_faults_parser() -> argparse.ArgumentParser:
    """Return the parser of the campaign of faults."""
    faults = CommandParser(
        prog=f"{PROGRAM} {FAULTS}",
        description="Kill processes that play at random moments; continue, and compare with "
        "uninterrupted runs. The exit code is 1 if an outcome was lost or a suggestion changed.",
    )
    faults.add_argument("--kills", type=int, default=200, help="in all (default 200)")
    faults.add_argument("--quick", action="store_true", help="a tenth of them; for a look")
    faults.add_argument("--seed", type=int, default=0, help="default 0")
    faults.add_argument("--out", metavar="FILE", help="write the table as CSV, too")
    faults.add_argument("--quiet", action="store_true", help="no progress bar")
    faults.set_defaults(start=run_faults)
    return faults


def run_faults(options: argparse.Namespace) -> int:
    """Run the campaign and print its table.

    Returns:
        The exit code: 0, or 1 if anything was lost or changed.
    """
    number = check_integer("--kills", options.kills, minimum=0)
    number //= QUICK_FAULTS if options.quick else 1
    seed = check_integer("--seed", options.seed, minimum=0)
    # the processes that play have one thread, as libraries read it at import
    os.environ["OMP_NUM_THREADS"] = "1"
    shares = _shares(number, len(SETTING_NAMES))
    counts = []
    with progress_bar(number, "faults", not options.quiet) as advance:
        for setting, kills in zip(SETTING_NAMES, shares, strict=True):
            counts.append(count_faults(setting, kills, seed, lambda: advance(1)))
    print(format_counts(counts))
    if options.out:
        _write_counts(options.out, counts)
    return 0 if all(count.is_clean for count in counts) else 1


def _write_counts(path: str, counts: Sequence[FaultCount]) -> None:
    """Write counts as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(asdict(counts[0])), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(count) for count in counts)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(Path(path), text.getvalue())


def format_counts(counts: list[FaultCount]) -> str:
    """Return the counts as a table with their sums."""
    rows = [list(asdict(count).values()) for count in counts]
    sums = [sum(column) for column in list(zip(*rows, strict=True))[1:]]
    names = [name.replace("_", " ") for name in asdict(counts[0])]
    size = max(len(str(row[0])) for row in rows)
    lines = []
    for first, *rest in (names, *rows, ["all", *sums]):
        cells = [f"{value!s:>{len(name)}}" for value, name in zip(rest, names[1:], strict=True)]
        lines.append("  ".join([f"{first:<{size}}", *cells]))
    return "\n".join(lines)


def _shares(number: int, num_parts: int) -> list[int]:
    """Divide a number as evenly as whole numbers allow."""
    return [number // num_parts + (i < number % num_parts) for i in range(num_parts)]
