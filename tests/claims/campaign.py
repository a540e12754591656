"""The campaign: draws settings, plays them, and writes one row for each into a table."""

from __future__ import annotations

import csv
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch

from claims.judging import REFUTED, SUSPICIOUS, Tally, pooled_tail
from claims.running import Player, Run
from claims.settings import AXES, EVENTS, Draws, Setting

STATEMENTS = ("bands", "regret", "violation", "before")
"""What a guarantee may state; the last is what it says before a run."""

NUM_MORE = 450
"""Runs of a setting with suspiciously many failures, which are judged alone."""

COLUMNS = (
    *(each.name for each in fields(Setting)),
    "theorem",
    "holds",
    *(f"{name}_{what}" for name in STATEMENTS for what in ("runs", "failed", "allowed")),
    "p_value",
    "more_runs",
    "more_failed",
    "more_p_value",
    "forbidden",
    "told",
)
"""Of the table."""

ORDINARY = {axis: next(iter(AXES[axis])) for axis in ("played", "units", "output_scale", *EVENTS)}
"""Values that the table leaves out."""

REALIZED = ", with the realized information gain"
"""In the names of most theorems, and left out."""

Row = dict[str, Any]


def judge(setting: Setting, seed: int, num_runs: int, num_more: int = NUM_MORE) -> Row:
    """Play a setting and return its row.

    Args:
        setting: Its axes.
        seed: Of all runs.
        num_runs: Where a guarantee holds; a part of it where one holds in part.
        num_more: Further runs where there are suspiciously many failures.
    """
    torch.set_num_threads(1)
    row: Row = {**asdict(setting), "theorem": "", "holds": False, "p_value": 1.0}
    try:
        player = Player(setting, seed)
        first = player.play(0)
    except (ValueError, NotImplementedError, RuntimeError) as error:
        row["told"] = f"refused: {type(error).__name__}: {error}"[:200]
        return row
    row.update(holds=first.holds, theorem=first.theorem.replace(REALIZED, ""))
    if not first.checks:
        return row
    count = num_runs if first.holds else max(num_runs // 3, 1)
    runs = [first, *(player.play(run) for run in range(1, count))]
    tallies = tally(runs)
    for name, each in tallies.items():
        row.update({f"{name}_runs": each.runs, f"{name}_failed": each.failed})
        row[f"{name}_allowed"] = round(each.allowed, 6)
    worst = min(tallies, key=lambda name: tallies[name].p_value)
    row["p_value"] = float(f"{tallies[worst].p_value:.3g}")
    row["forbidden"] = "; ".join(sorted(runs[-1].forbidden))
    row["told"] = tallies[worst].told
    if row["p_value"] < SUSPICIOUS and num_more:
        more = tally([player.play(run) for run in range(count, count + num_more)])
        again = more.get(worst, Tally())
        row.update(more_runs=again.runs, more_failed=again.failed)
        row["more_p_value"] = float(f"{again.p_value:.3g}")
    return row


def tally(runs: list[Run]) -> dict[str, Tally]:
    """Count failures by statement.

    Args:
        runs: Of one setting.
    """
    found: dict[str, Tally] = {}
    for run in runs:
        for name, check in run.checks.items():
            each = found.setdefault(name, Tally())
            each.runs += 1
            each.failed += check.failed
            each.allowed = max(each.allowed, check.allowed)
            each.told = each.told or check.told
            if check.excess is not None:
                each.excesses = (*each.excesses, check.excess)
    return found


def is_refuted(row: Mapping[str, Any]) -> bool:
    """Return whether the further runs of a setting refute a statement.

    Args:
        row: Of the table.
    """
    value = row.get("more_p_value")
    return value not in (None, "") and float(value) < REFUTED


class Campaign:
    """Draws and plays settings until enough of them hold; goes on where a table ends.

    Args:
        path: Of the table.
        num_settings: How many settings are to hold.
        num_runs: Of each of them.
        seed: Of everything.
        only: Axes and the values that they are held at.
        num_jobs: Processes.
    """

    def __init__(
        self,
        path: Path,
        num_settings: int,
        num_runs: int,
        seed: int = 0,
        only: Mapping[str, str] | None = None,
        num_jobs: int = 1,
    ) -> None:
        """See the class."""
        self._path, self._seed, self._num_runs = path, seed, num_runs
        self._num_settings, self._num_jobs = num_settings, num_jobs
        self._draws = Draws(seed, only=only)
        self.rows: dict[int, Row] = {row_["number"]: row_ for row_ in read(path)}

    def run(self, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
        """Play what is missing; every row is in the table as soon as it is known.

        Args:
            on_row: Called with each new row.

        Returns:
            All rows in order.
        """
        if self._num_jobs == 1:
            for setting in self._missing():
                self._add(judge(setting, self._seed, self._num_runs), on_row)
        else:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(self._num_jobs, mp_context=context) as pool:
                futures = []
                for setting in self._missing():
                    futures.append(pool.submit(judge, setting, self._seed, self._num_runs))
                    while futures and futures[0].done():
                        self._add(futures.pop(0).result(), on_row)
                for future in futures:
                    self._add(future.result(), on_row)
        rows = [self.rows[number] for number in sorted(self.rows)]
        write(self._path, rows)
        return rows

    def _missing(self) -> Iterator[Setting]:
        """Yield settings without a row; each is drawn by which of the earlier ones hold."""
        num_held = number = 0
        while num_held < self._num_settings and number < 20 * self._num_settings + 100:
            row = self.rows.get(number)
            if row is not None:
                setting = Setting.from_row({name: str(value) for name, value in row.items()})
                holds = str(row["holds"]) == "True"
            else:
                setting = self._draws.next(number)
                holds = self._pilot(setting)
                yield setting
            self._draws.record(setting, holds)
            num_held += holds
            number += 1

    def _pilot(self, setting: Setting) -> bool:
        """Return whether the first run of a setting holds."""
        try:
            return Player(setting, self._seed).play(0).holds
        except (ValueError, NotImplementedError, RuntimeError):
            return False

    def _add(self, row: Row, on_row: Callable[[Row], None]) -> None:
        self.rows[row["number"]] = row
        is_new = not self._path.exists()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        row.update({name: row.get(name, "") for name in COLUMNS})
        with self._path.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            if is_new:
                writer.writeheader()
            writer.writerow(_shortened(row))
        on_row(row)


def _shortened(row: Row) -> Row:
    """Return a row without the ordinary values of axes, which :func:`read` puts back."""
    return {name: "" if ORDINARY.get(name) == row[name] else row[name] for name in COLUMNS}


def read(path: Path) -> list[Row]:
    """Return the rows of a table; none if there is no file.

    Args:
        path: Of the table.
    """
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row["number"] = int(row["number"])
        row.update({name: value for name, value in ORDINARY.items() if not row.get(name)})
    return rows


def write(path: Path, rows: list[Row]) -> None:
    """Write a whole table.

    Args:
        path: Of the table.
        rows: In order.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:  # those of earlier tables have fewer columns
            writer.writerow(_shortened({name: row.get(name, "") for name in COLUMNS}))


# --- the summary --------------------------------------------------------------------------------


def summary(rows: list[Row]) -> str:
    """Return what a table says, as text.

    Args:
        rows: Of the table.
    """
    held = [row for row in rows if str(row["holds"]) == "True"]
    lines = [
        f"{len(rows)} settings were drawn. guarantee().holds is True in {len(held)} of them, and "
        f"at least one statement was made in {sum(_num_runs(row) > 0 for row in rows)}.",
        f"Of the {len(held)}, {sum(str(row['domain']).startswith('box') for row in held)} are on "
        "boxes.",
        *_told_of_axes(rows),
        "",
        "A cell has the runs in which a statement failed, of those that tested it, how many may "
        "fail, and p.",
        "",
        f"| theorem | {' | '.join(STATEMENTS)} |",
        f"| --- {'| --- ' * len(STATEMENTS)}|",
    ]
    for theorem in sorted({str(row["theorem"]) for row in rows if _num_runs(row)}):
        of_it = [row for row in rows if row["theorem"] == theorem]
        cells = []
        for name in STATEMENTS:
            stated = [row for row in of_it if _number(row, f"{name}_runs")]
            runs = sum(_number(row, f"{name}_runs") for row in stated)
            failed, allowed, p = pooled(stated, name) if stated else (0, 0.0, 1.0)
            cells.append(f"{failed} of {runs} ({allowed:.1f}, {p:.2g})" if stated else "")
        lines.append(f"| {theorem} | {' | '.join(cells)} |")
    again = [row for row in rows if _number(row, "more_runs")]
    refuted = [row for row in rows if is_refuted(row)]
    lines += [
        "",
        f"{len(again)} settings had suspiciously many failures and were played {NUM_MORE} times "
        f"more; {len(refuted)} statements were refuted.",
    ]
    lines += [f"REFUTED: {row['number']}: {row['told']}" for row in refuted]
    return "\n".join(lines)


def _told_of_axes(rows: list[Row]) -> list[str]:
    counts = coverage(rows)
    smallest = min((n for n in counts.values() if n), default=0)
    never: dict[str, list[str]] = {}
    for (axis, value), n in counts.items():
        if n == 0:
            never.setdefault(axis, []).append(value)
    told = "; ".join(f"{axis}: {', '.join(values)}" for axis, values in never.items())
    return [
        f"Every value of an axis at which anything holds occurs in at least {smallest} of them.",
        f"Nothing holds at these values: {told}.",
    ]


def pooled(rows: list[Row], statement: str) -> tuple[int, float, float]:
    """Return failures, how many are allowed, and the p-value of some settings together.

    Args:
        rows: Of the table.
        statement: One of :data:`STATEMENTS`.
    """
    return pooled_tail(
        (
            _number(row, f"{statement}_failed"),
            _number(row, f"{statement}_runs"),
            float(row[f"{statement}_allowed"]),
        )
        for row in rows
    )


def coverage(rows: list[Row]) -> Counter[tuple[str, str]]:
    """Return in how many settings that hold each value of each axis occurs.

    Args:
        rows: Of the table.
    """
    counts: Counter[tuple[str, str]] = Counter({(axis, v): 0 for axis in AXES for v in AXES[axis]})
    for row in rows:
        if str(row["holds"]) == "True":
            counts.update((axis, str(row[axis])) for axis in AXES)
    return counts


def _number(row: Row, name: str) -> int:
    return int(row.get(name) or 0)


def _num_runs(row: Row) -> int:
    return sum(_number(row, f"{name}_runs") for name in STATEMENTS)
