"""Argument checks shared by the problems.

Every check raises an error that names the argument, what was given, and what
to pass instead.
"""

from __future__ import annotations

import math
import operator

import torch
from torch import Tensor


def format_row(row: Tensor) -> str:
    """Writes one point for an error message, digits kept so it can be looked up."""
    return "[" + ", ".join(repr(entry) for entry in row.tolist()) + "]"


def check_double_tensor(name: str, value: Tensor) -> None:
    """Checks that a value is a finite float64 tensor.

    Args:
        name: The argument's name, for the message.
        value: The value given.

    Raises:
        TypeError: If the value is not a tensor.
        ValueError: If its dtype is not float64, or an entry is NaN or infinite.
    """
    if not isinstance(value, Tensor):
        raise TypeError(
            f"`{name}` must be a float64 tensor, got {type(value).__name__}; "
            "build it with torch.tensor(..., dtype=torch.float64)."
        )
    if value.dtype != torch.float64:
        raise ValueError(
            f"`{name}` has dtype {value.dtype}, but bandit problems work in float64 only; "
            f"pass `{name}.double()`."
        )
    is_bad = ~torch.isfinite(value.detach())
    if bool(is_bad.any()):
        first = is_bad.nonzero()[0].tolist()
        raise ValueError(
            f"`{name}` must be finite, but entry {first} is {value[tuple(first)].item()}; "
            "remove or replace NaN and infinite entries."
        )


def check_choices(choices: Tensor) -> None:
    """Checks a set of arms: `num_arms x d`, float64, finite, no row twice.

    Args:
        choices: The arms, one a row.

    Raises:
        TypeError: If `choices` is not a tensor.
        ValueError: If the dtype, the shape or an entry is wrong, or two rows are equal.
    """
    check_double_tensor("choices", choices)
    if choices.dim() != 2 or choices.shape[0] < 1 or choices.shape[1] < 1:
        raise ValueError(
            f"`choices` must have shape (num_arms, d) with at least one arm and one column, "
            f"got {tuple(choices.shape)}; reshape it, e.g. choices.unsqueeze(-1) for d = 1."
        )
    first_row: dict[tuple[float, ...], int] = {}
    repeated: list[str] = []
    for index, row in enumerate(choices.tolist()):
        earlier = first_row.setdefault(tuple(row), index)
        if earlier != index:
            repeated.append(f"row {index} repeats row {earlier}")
    if repeated:
        shown = ", ".join(repeated[:5]) + (", ..." if len(repeated) > 5 else "")
        raise ValueError(
            f"`choices` must not hold the same arm twice, but {shown}; "
            "keep one row of each, e.g. with choices.unique(dim=0)."
        )


def check_bounds(bounds: Tensor) -> None:
    """Checks a box: a float64 tensor `2 x d`, lower row below upper row.

    Args:
        bounds: The lower corner (row 0) and the upper corner (row 1).

    Raises:
        TypeError: If `bounds` is not a tensor.
        ValueError: If the dtype, the shape or an entry is wrong, or a side is empty.
    """
    check_double_tensor("bounds", bounds)
    if bounds.dim() != 2 or bounds.shape[0] != 2 or bounds.shape[1] < 1:
        raise ValueError(
            f"`bounds` must have shape (2, d), got {tuple(bounds.shape)}; pass "
            "torch.stack([lower, upper])."
        )
    is_empty = bounds[0] >= bounds[1]
    if bool(is_empty.any()):
        column = int(is_empty.nonzero()[0].item())
        raise ValueError(
            f"`bounds` must have lower < upper in every column, but column {column} is "
            f"{format_row(bounds[:, column])}; swap or widen it."
        )


def _as_float(value: object) -> float:
    """Returns a number as a float, and NaN for anything else."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan


def check_positive(name: str, value: float) -> float:
    """Returns a number as a float after checking that it is positive and finite.

    Args:
        name: The argument's name, for the message.
        value: The value given.

    Raises:
        ValueError: If the value is not a positive finite number.
    """
    number = _as_float(value)
    if not (math.isfinite(number) and number > 0.0):
        raise ValueError(f"`{name}` must be positive and finite, got {value}; pass e.g. 1.0.")
    return number


def check_noise_std(noise_std: float | list[float] | None) -> float | None:
    """Returns the noise level after checking that it is None or a number >= 0.

    Args:
        noise_std: Standard deviation of the observation noise, in units of the reward.

    Raises:
        ValueError: If it is negative, NaN or infinite.
    """
    if noise_std is None:
        return None
    number = _as_float(noise_std)
    if not (math.isfinite(number) and number >= 0.0):
        raise ValueError(
            f"`noise_std` must be one finite number >= 0, got {noise_std}; "
            "pass None for rewards without noise."
        )
    return number


def check_count(name: str, value: int, minimum: int = 1) -> int:
    """Returns an integer after checking that it is at least `minimum`.

    Args:
        name: The argument's name, for the message.
        value: The value given.
        minimum: The smallest value allowed.

    Raises:
        ValueError: If the value is not an integer or is too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = minimum - 1
    if isinstance(value, bool) or number < minimum:
        raise ValueError(f"`{name}` must be an integer >= {minimum}, got {value!r}.")
    return number
