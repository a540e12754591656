"""Reads the bounds of a box, or a point, as given by a user, into one tensor.

BoTorch's layout and pairs in tuples are accepted; anything else is rejected with an error that says
what was probably meant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from botorch_bandits.checks import check_matrix, check_vector, without_labels

_OF_PAIRS = "One (low, high) pair per dimension is a list of tuples, or Box.from_pairs(pairs)."
ONE_DIMENSION = "One dimension from 0 to 1 is [(0.0, 1.0)]."


def read_bounds(name: str, bounds: Any) -> Tensor:
    """Return the bounds of a box, as given by a user, as ``2 x d`` with lower bounds first.

    Args:
        name: The name of the argument, for error messages.
        bounds: One ``(low, high)`` tuple per dimension, or a ``2 x d`` tensor, array, table or
            nested list.

    Raises:
        TypeError: If it is a tensor with a dtype other than float64, or not numeric.
        ValueError: If the shape is wrong, an entry is not finite, or a lower bound is not below its
            upper bound; or if a list or a table has two pairs that are valid bounds by row and by
            column, but different ones.
    """
    check_no_names(name, bounds)
    is_table, bounds = hasattr(bounds, "to_numpy"), without_labels(bounds)
    listed = list(bounds) if isinstance(bounds, list | tuple) else []
    are_tuples = [isinstance(row, tuple) for row in listed]
    has_pairs = any(are_tuples)
    if has_pairs and not all(are_tuples):
        raise ValueError(
            f"{name} has tuples next to other rows: {bounds!r}. Give one (low, high) tuple per "
            "dimension, or a list of lower bounds and a list of upper bounds."
        )
    if has_pairs:
        pairs = [list(pair) for pair in listed]
        layout = "one (low, high) pair per dimension"
        remedy = "Lower bounds, then upper bounds, are two lists: [[...], [...]]."
        rows = check_matrix(name, pairs, 2, layout, remedy).T.contiguous()
    else:
        given = rows_in_lists(name, listed) if listed else bounds
        layout = "lower bounds, then upper bounds"
        rows = check_matrix(name, given, rows=layout, remedy=ONE_DIMENSION).detach().clone()
    if rows.shape[0] != 2 or rows.shape[1] < 1:
        raise ValueError(
            f"{name} must have shape 2 x d (lower bounds, then upper bounds), got "
            f"{tuple(rows.shape)}. {_OF_PAIRS}"
        )
    if rows.shape[1] == 2 and (is_table or {*map(type, listed)} == {list}):
        (a, b), (c, d) = rows.tolist()
        if a < b and c < d and a < c and b < d and b != c:
            raise ValueError(
                f"{name} is {rows.tolist()}, which can be read by row, from {a} to {b} and from "
                f"{c} to {d}, or by column, from {a} to {c} and from {b} to {d}. Pass tuples, "
                f"[({a}, {b}), ({c}, {d})], or Box.from_pairs({rows.tolist()}) for the first, and "
                f"torch.tensor({rows.tolist()}, dtype=torch.float64), lower bounds and then upper "
                "bounds, for the second."
            )
    for i, (low, high) in enumerate(rows.T.tolist()):
        if low >= high:
            raise ValueError(
                f"{name} of dimension {i} are [{low}, {high}]; the lower bound must be below "
                "the upper one. Leave a constant dimension out of the box. Two lists are the lower "
                f"bounds, then the upper bounds. {_OF_PAIRS}"
            )
        if math.isinf(high - low):
            raise ValueError(
                f"{name} of dimension {i} are [{low}, {high}]; this side is too long for float64."
            )
    return rows


def check_no_names(name: str, value: Any) -> None:
    """Raise an error if bounds or coordinates have names, which only a ``Space`` supports."""
    if isinstance(value, Mapping):
        raise TypeError(
            f"{name} is a dictionary, but the domain has no names. For named parameters, use a "
            "Space, as in Space({'rate': Float(0.0, 1.0)}); otherwise, pass numbers."
        )


def rows_in_lists(name: str, rows: list[Any]) -> list[Any]:
    """Return rows of which some are vectors of a library as nested lists, others unchanged."""
    if not any(getattr(row, "ndim", 0) == 1 for row in rows):
        return rows
    return [check_vector(f"{name}[{i}]", row).tolist() for i, row in enumerate(rows)]


def check_coordinates(name: str, x: Any, dim: int) -> Tensor:
    """Return a point as a float64 vector.

    Args:
        name: The name of the argument, for error messages.
        x: A float64 tensor or a list of numbers.
        dim: The required number of coordinates.
    """
    check_no_names(name, x)
    return check_vector(name, x, length=dim)
