"""The command of the combinations: ``python tests/benchmarks combinations``.

It measures what is not in the table yet, and prints and writes what the table says.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import io
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path

from benchmarks.combinations import SIZES, Combination, Row, all_combinations, measure
from benchmarks.combinations_table import describe, page, summary
from benchmarks.league import watch_parent
from botorch_bandits.checks import check_integer
from botorch_bandits.cli import CommandParser, write_atomically
from botorch_bandits.progress import ProgressBar

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
TABLE = RESULTS / "combinations_speed.csv"
"""The rows in the documentation."""

PAGE = RESULTS / "combinations_speed.md"
"""The table in the documentation."""

QUICK_SIZE, QUICK_ARMS, QUICK_ROUNDS, QUICK_STEP = 50, 200, 2, 29
"""``--quick``: so many rows, arms and rounds, and one of so many combinations."""

KEYS = tuple(field.name for field in fields(Combination))
NUMBERS = {
    "ratio": float,
    "ordinary_seconds": float,
    "our_seconds": float,
    "test_seconds": float,
    "worse": float,
    "better": float,
    "ordinary_bytes": int,
    "our_bytes": int,
    "allowed_bytes": int,
}


class Rows:
    """The rows that are measured, in a file that always holds all of them.

    Args:
        path: Of the CSV file; it need not be there.
    """

    def __init__(self, path: Path) -> None:
        """Read the file."""
        self._path = path
        self._rows: dict[str, Row] = {}
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for cells in csv.DictReader(file):
                    row = _read(cells)
                    self._rows[row.combination.key] = row

    def __contains__(self, one: Combination) -> bool:
        """Whether a combination was measured."""
        return one.key in self._rows

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows in the order of the combinations."""
        return iter(self._rows.values())

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows)

    def add(self, row: Row) -> None:
        """Add a row and replace the file at once."""
        self._rows[row.combination.key] = row
        self.write()

    def keep(self, known: Iterable[Combination]) -> None:
        """Put the rows in an order, and drop what is not in it.

        Args:
            known: The combinations in order.
        """
        keys = [one.key for one in known]
        self._rows = {key: self._rows[key] for key in keys if key in self._rows}

    def write(self) -> None:
        """Replace the file."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*KEYS, *NUMBERS, "note"])
        for row in self._rows.values():
            numbers = [_digits(getattr(row, name)) for name in NUMBERS]
            writer.writerow([*astuple(row.combination), *numbers, row.note])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, text.getvalue())


def _digits(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.3g}"


def _read(cells: dict[str, str]) -> Row:
    names = {name: cells[name] for name in KEYS if name != "num_rows"}
    one = Combination(**names, num_rows=int(cells["num_rows"]))
    numbers = {name: kind(cells[name]) for name, kind in NUMBERS.items()}
    return Row(one, **numbers, note=cells["note"])


def build_parser(program: str) -> argparse.ArgumentParser:
    """Return the parser of the combinations.

    Args:
        program: How it is started.
    """
    parser = CommandParser(
        prog=program,
        description="Ask loops of every documented combination of settings for their next points, "
        "make the same suggestions in the ordinary BoTorch way, in turn, and print the ratio of "
        "processor times and the largest memory of both. A second start goes on where the table "
        "ends.",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="measure only rows whose name has this in it, or fits it with * and ?; may be "
        "repeated: all of them must fit",
    )
    parser.add_argument("--again", action="store_true", help="measure what the table has, too")
    parser.add_argument("--list", action="store_true", help="print the names; measure nothing")
    parser.add_argument("--quick", action="store_true", help="a few small ones; for a look")
    parser.add_argument(
        "--table",
        action="store_true",
        help="say what the table has, and write it as a page of the documentation; measure nothing",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--out", metavar="FILE", default=str(TABLE), help="the table, as CSV")
    parser.add_argument("--page", metavar="FILE", default=str(PAGE), help="the page of --table")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def run(options: argparse.Namespace) -> int:
    """Measure combinations, and print what was found; how many threads torch has is as it is.

    Args:
        options: Of the command line.

    Returns:
        The exit code: 0, or 1 if a combination raised an error.
    """
    sizes = [QUICK_SIZE] if options.quick else list(SIZES)
    known = list(all_combinations(sizes))
    wanted = [one for one in known if all(_fits(one.key, part) for part in options.only)]
    if not wanted:
        raise ValueError(f"--only has {options.only}; no row has that. --list prints their names.")
    if options.list:
        print("\n".join(one.key for one in wanted))
        return 0
    if options.quick:
        return _quickly(wanted if options.only else wanted[::QUICK_STEP], options)
    rows = Rows(Path(options.out))
    if options.table:
        rows.keep(known)
        print(summary(list(rows)))
        write_atomically(Path(options.page), page(list(rows)))
        return 0
    if not options.again:
        wanted = [one for one in wanted if one not in rows]
    failed = _measure_all(wanted, options, rows)
    rows.keep(known)
    rows.write()
    print(summary(list(rows)))
    return 1 if failed else 0


def _fits(key: str, pattern: str) -> bool:
    return pattern in key or fnmatch.fnmatchcase(key, pattern)


def _quickly(wanted: list[Combination], options: argparse.Namespace) -> int:
    found: list[Row] = []
    failed = _measure_all(wanted, options, found, QUICK_ROUNDS, QUICK_ARMS)
    print("\n".join(describe(row) for row in found))
    return 1 if failed else 0


def _measure_all(
    wanted: list[Combination],
    options: argparse.Namespace,
    rows: Rows | list[Row],
    num_rounds: int | None = None,
    num_arms: int = 1000,
) -> list[str]:
    failed = []
    add = rows.append if isinstance(rows, list) else rows.add
    jobs = [(one, num_rounds or SIZES[one.num_rows], num_arms) for one in wanted]
    with ProgressBar(len(wanted), "combinations", not options.quiet) as bar:
        for one, result in _results(jobs, check_integer("--jobs", options.jobs, minimum=1)):
            try:
                add(result())
            except Exception as error:
                text = f"{type(error).__name__}: {error}".split("\n")[0]
                failed.append(f"{one.key}: {text}")
                print(f"failed: {failed[-1]}", file=sys.stderr)
            bar.advance(last=one.key)
    return failed


def _results(
    jobs: list[tuple[Combination, int, int]], num_jobs: int
) -> Iterator[tuple[Combination, Callable[[], Row]]]:
    """Yield each combination with what returns its row or raises its error, as they are ready."""
    if num_jobs == 1:
        for job in jobs:
            yield job[0], partial(measure, *job)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # libraries of the processes read it at import
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_jobs, context, initializer=watch_parent) as pool:
        futures = {pool.submit(measure, *job): job[0] for job in jobs}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
