"""What the rows of the combinations say: a page of the documentation, and a summary.

Rows whose ratio is below 1, and those that need more memory than allowed, are named as faults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from benchmarks.combinations import SIZES, Row, documented

SAME = 1e-6
"""A difference of acquisition values that is none."""

MARK = "*"
"""Behind a ratio: more memory than allowed."""


def describe(row: Row) -> str:
    """Return a row as a line of text.

    Args:
        row: Any.
    """
    parts = [
        f"{row.ratio:8.3g}  {row.combination.key}",
        f"{1e3 * row.ordinary_seconds:.3g} against {1e3 * row.our_seconds:.3g} ms",
        f"{row.ordinary_bytes / 1e6:.3g} against {row.our_bytes / 1e6:.3g} MB",
    ]
    if row.is_larger:
        parts.append(f"more than {row.allowed_bytes / 1e6:.3g} MB")
    if not math.isnan(row.worse):
        parts.append(f"worse by {row.worse:.1e}, better by {row.better:.1e}")
    if not math.isnan(row.test_seconds):
        parts.append(f"a round with a test {1e3 * row.test_seconds:.3g} ms")
    return "; ".join([*parts, row.note] if row.note else parts)


def summary(rows: Sequence[Row]) -> str:
    """Return what the rows say, for a terminal.

    Args:
        rows: All of them.
    """
    slow, large = _slow(rows), _large(rows)
    lines = [f"{len(rows)} combinations, {len(slow)} slower than BoTorch, {len(large)} too large"]
    for title, some in (("slower:", slow), ("more memory than allowed:", large)):
        if some:
            lines += ["", title, *map(describe, some)]
    return "\n".join(lines)


def _slow(rows: Iterable[Row]) -> list[Row]:
    return sorted((row for row in rows if row.is_slower), key=lambda row: row.ratio)


def _large(rows: Iterable[Row]) -> list[Row]:
    large = [row for row in rows if row.is_larger]
    return sorted(large, key=lambda row: row.allowed_bytes / row.our_bytes)


def page(rows: Sequence[Row]) -> str:
    """Return the tables of the documentation.

    Args:
        rows: All of them, in order.
    """
    domains = list(dict.fromkeys(row.combination.domain for row in rows))
    lines = [*_overview(rows, domains), "", *_values(rows)]
    for domain in domains:
        lines += ["", *_ratios([row for row in rows if row.combination.domain == domain])]
    for title, some, cell in (
        ("Slower than the ordinary way", _slow(rows), _ratio_of),
        ("More memory than allowed", _large(rows), _memory_of),
    ):
        lines += ["", *_faults(title, some, cell)]
    return "\n".join(lines) + "\n"


def _table(headings: Sequence[str], cells: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(headings)} |", "| --- " * len(headings) + "|"]
    return lines + [f"| {' | '.join(row)} |" for row in cells]


def _overview(rows: Sequence[Row], domains: Sequence[str]) -> list[str]:
    cells = []
    for acquisition in dict.fromkeys(row.combination.acquisition for row in rows):
        for domain in domains:
            some = [
                row
                for row in rows
                if (row.combination.acquisition, row.combination.domain) == (acquisition, domain)
            ]
            if some:
                ratios = [row.ratio for row in some]
                numbers = [min(ratios), median(ratios), max(ratios)]
                counts = [len(some), len(_slow(some)), len(_large(some))]
                cells.append(
                    [acquisition, domain, *map(str, counts), *(f"{each:.3g}" for each in numbers)]
                )
    headings = ("rows", "slower", "too large", "least ratio", "median", "largest")
    return _table(("Acquisition", "Domain", *headings), cells)


def _values(rows: Sequence[Row]) -> list[str]:
    """Whose points had the larger acquisition values."""
    lines = []
    for name, some in (
        ("arms", [row for row in rows if row.combination.on_arms]),
        ("boxes", [row for row in rows if not row.combination.on_arms]),
    ):
        compared = [row for row in some if not math.isnan(row.worse)]
        if compared:
            worse = [row.worse for row in compared]
            better = [row.better for row in compared]
            lines.append(
                f"On {name} values can be compared in {len(compared)} rows. Our point was worse "
                f"in {sum(each > SAME for each in worse)} of them (by {fmean(worse):.2g} in the "
                f"mean of all), and better in {sum(each > SAME for each in better)} (by "
                f"{fmean(better):.2g})."
            )
    return lines


def _ratios(rows: Sequence[Row]) -> list[str]:
    constraints = list(documented().CONSTRAINTS)
    found: dict[tuple[str, ...], dict[str, dict[int, Row]]] = {}
    for row in rows:
        one = row.combination
        key = (one.acquisition, one.contexts, one.feedback, one.restart, one.forgetting)
        found.setdefault(key, {}).setdefault(one.constraints, {})[one.num_rows] = row
    cells = [
        [*key, *(_pair(entry.get(name, {})) for name in constraints)]
        for key, entry in found.items()
    ]
    domain = rows[0].combination.domain
    first = (f"Acquisition, {domain}", "Contexts", "Feedback", "Restart", "Forgetting")
    return _table((*first, *constraints), cells)


def _pair(by_size: dict[int, Row]) -> str:
    if not by_size:
        return ""
    return " / ".join(_short(by_size[size]) if size in by_size else "-" for size in SIZES)


def _short(row: Row) -> str:
    number = f"{row.ratio:.2g}" if row.ratio < 100.0 else f"{row.ratio:.0f}"
    number = f"**{number}**" if row.is_slower else number
    return f"{number}{MARK}" if row.is_larger else number


def _faults(title: str, rows: Sequence[Row], cell: Callable[[Row], str]) -> list[str]:
    if not rows:
        return [f"{title}: none."]
    names = [row.combination.key.replace(" | ", ", ") for row in rows]
    return _table(
        (f"{title}: {len(rows)} rows", ""),
        [[name, cell(row)] for name, row in zip(names, rows, strict=True)],
    )


def _ratio_of(row: Row) -> str:
    return f"{row.ratio:.2g}"


def _memory_of(row: Row) -> str:
    return f"{row.our_bytes / 1e6:.3g} MB, allowed are {row.allowed_bytes / 1e6:.3g}"
