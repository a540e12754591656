"""Whether two runs are the same: equal points, and numbers up to rounding."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from botorch_bandits import BanditLoop
from botorch_bandits.history import Event, History, Query

TOLERANCE = 1e-9
"""A loop that is rebuilt factorizes what the first one added by row, which changes last bits."""
ON_BOXES = 1e-6
"""There, a search ends within its own digits of a maximum."""


def differ(found: Any, expected: Any, tolerance: float = TOLERANCE) -> bool:
    """Return whether two records differ by more than the rounding of their numbers."""
    if dataclasses.is_dataclass(expected) and type(found) is type(expected):
        names = [field.name for field in dataclasses.fields(expected) if field.compare]
        pairs = [(getattr(found, name), getattr(expected, name)) for name in names]
        return any(differ(*pair, tolerance) for pair in pairs)
    if isinstance(expected, Mapping):
        return found.keys() != expected.keys() or any(
            differ(found[name], value, tolerance) for name, value in expected.items()
        )
    if isinstance(expected, Tensor):
        return not torch.allclose(found, expected, rtol=tolerance, atol=tolerance)
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        entries = zip(found, expected, strict=False)
        return len(found) != len(expected) or any(differ(*pair, tolerance) for pair in entries)
    if isinstance(expected, float) and isinstance(found, float) and found != expected:
        if math.isnan(expected):
            return not math.isnan(found)
        return not math.isclose(found, expected, rel_tol=tolerance, abs_tol=tolerance)
    return bool(found != expected)


def assert_same(found: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Check diagnostics, records, or lists of them."""
    assert not differ(found, expected, tolerance), (found, expected)


def entries_of(history: History) -> list[Query | Event]:
    """Return what was asked, told and withdrawn, in an order in which it may be recorded."""
    rows: list[tuple[int, Query | Event]] = [(q.round_number, q) for q in history.queries]
    rows += [(e.arrived_round, e.ever_told or e) for e in history.events]
    rows += [(r.retracted_round, r) for r in history.retractions]
    return [entry for _, entry in sorted(rows, key=lambda row: row[0])]


def rebuilt(loop: BanditLoop, known: History | Iterable[Query | Event] = ()) -> BanditLoop:
    """Return a new loop once it has the rounds of a history, or these entries, on record."""
    for entry in entries_of(known) if isinstance(known, History) else known:
        assert loop._log.record(entry)
    loop._log.unseen = None  # everything is derived from the whole log
    return loop
