"""Tables in which each pair of values occurs, in place of full products of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def pairwise(
    *axes: Sequence[Any], allowed: Callable[..., bool] = lambda *row: True
) -> list[tuple[Any, ...]]:
    """Return rows of one value an axis, so that each allowed pair of values is in one of them.

    Each next row is the one with the most pairs that are in none before it.
    """
    indices = product(*(range(len(axis)) for axis in axes))
    rows = {index: tuple(axis[i] for axis, i in zip(axes, index, strict=True)) for index in indices}
    pairs = {
        index: set(combinations(enumerate(index), 2))
        for index, row in rows.items()
        if allowed(*row)
    }
    found = []
    while pairs:
        best = max(pairs, key=lambda index: len(pairs[index]))
        found.append(best)
        covered = pairs[best]
        pairs = {index: left - covered for index, left in pairs.items() if left - covered}
    return [rows[index] for index in sorted(found)]


def by_day(rows: Iterable[Any], every: int = 4) -> list[Any]:
    """Return the rows of a long table, of which the tests of each day play one of ``every``.

    The others are marked as slow, and are played at night.
    """
    marks = [[pytest.mark.slow] if i % every else [] for i in range(every)]
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=marks[i % every])
        for i, row in enumerate(rows)
    ]
