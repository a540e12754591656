"""Whether two runs are the same: equal points, and numbers up to rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

TOLERANCE = 1e-9
"""A loop that is rebuilt factorizes what the first one added by row, which changes last bits."""


def differ(found: Any, expected: Any) -> bool:
    """Return whether two records differ by more than the rounding of their numbers."""
    if isinstance(expected, Mapping):
        return found.keys() != expected.keys() or any(
            differ(found[name], value) for name, value in expected.items()
        )
    if isinstance(expected, Tensor):
        return not torch.equal(found, expected)
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return len(found) != len(expected) or any(map(differ, found, expected))
    if isinstance(expected, float) and isinstance(found, float) and found != expected:
        return not math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(found != expected)


def assert_same(found: Any, expected: Any) -> None:
    """Check diagnostics, records, or lists of them."""
    assert not differ(found, expected), (found, expected)
