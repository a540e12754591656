"""Measure this package against the ordinary BoTorch way, and a GPU against the CPU."""

from __future__ import annotations

import argparse
import csv
import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from botorch_bandits.benchmarks import BENCHMARKS, Measurement, Scale
from botorch_bandits.benchmarks.devices import against_cpu
from botorch_bandits.checks import check_integer
from botorch_bandits.cli.output import write_atomically
from botorch_bandits.progress import ProgressBar

QUICK = 0.1


def add_bench_parser(commands: Any) -> None:
    """Add the command ``bench``.

    Args:
        commands: What ``argparse`` returned for the commands.
    """
    bench = commands.add_parser(
        "bench",
        help="measure speed as a ratio against the ordinary BoTorch way",
        description="Do the same work both ways in one process on one thread, in turn, and print "
        "the ratio of processor times and the largest difference of the results. "
        f"Benchmarks: {', '.join(BENCHMARKS)}.",
    )
    bench.add_argument("names", nargs="*", metavar="NAME", help="benchmarks (default: all)")
    bench.add_argument("--repeats", type=int, default=7, help="interleaved repeats (default 7)")
    bench.add_argument("--quick", action="store_true", help="a tenth of the sizes; for a look")
    bench.add_argument("--seed", type=int, default=0, help="default 0")
    bench.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    bench.add_argument("--device", help="measure this device, such as cuda, against the CPU")
    bench.add_argument("--out", metavar="FILE", help="write the table as CSV, too")
    bench.add_argument("--quiet", action="store_true", help="no progress bar")
    bench.set_defaults(start=run_bench)


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
    before = torch.get_num_threads()
    torch.set_num_threads(check_integer("--threads", options.threads, minimum=1))
    try:
        if options.device:
            lines = against_cpu(scale, options.device)
        else:
            lines = []
            with ProgressBar(len(names), "benchmarks", not options.quiet) as bar:
                for name in names:
                    lines += BENCHMARKS[name].run(scale)
                    bar.advance(last=name)
    finally:
        torch.set_num_threads(before)
    ways = ("CPU", options.device) if options.device else ("BoTorch", "here")
    print(format_measurements(lines, *ways))
    if options.out:
        write_atomically(Path(options.out), _csv(lines))
    return 0 if all(line.agrees for line in lines) else 1


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
