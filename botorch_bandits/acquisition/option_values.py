"""The options of a recipe for an acquisition function: a mapping that nobody can change.

Numbers are Python numbers in it, whatever the user passed: a tensor with one entry, a numpy number
or a fraction is converted when the recipe is made, so that every part of the package reads the same
value.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from botorch_bandits.checks import check_number

FLOAT_OPTIONS = frozenset(
    {
        "best_f",
        "constraint_bound",
        "delta",
        "information_gain",
        "margin",
        "minimum",
        "minimum_proxy",
        "noise_bound",
        "outcome_bound",
        "pseudo_noise",
        "reward_bound",
        "ringing_tolerance",
        "rkhs_bound",
        "scale",
        "side_length",
        "smoothness",
        "smoothness_a",
        "smoothness_b",
        "width",
        "width_constant",
    }
)
"""Options that are a number, or one number an output in a tuple."""

INTEGER_OPTIONS = frozenset({"dim", "horizon", "max_delay", "num_arms", "num_ridges"})
"""Options that are a whole number."""


class Options(Mapping[str, Any]):
    """A mapping from the names of options to their values that cannot be changed.

    Args:
        values: The options as the user passed them; copied, with every number as a Python number.

    Raises:
        TypeError: If a number has lower precision than float64.
        ValueError: If a number is NaN or infinite.

    Example:
        >>> from fractions import Fraction
        >>> Options({"delta": Fraction(1, 10), "units": "prior"})
        {'delta': 0.1, 'units': 'prior'}
    """

    __slots__ = ("_values",)
    _values: dict[str, Any]

    def __init__(self, values: Mapping[str, Any]) -> None:
        """See the class."""
        converted = {name: _convert(name, value) for name, value in values.items()}
        object.__setattr__(self, "_values", converted)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse: options are read only."""
        raise AttributeError("the options of a recipe cannot be changed; make another recipe.")

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Go through the names, in the order in which they were given."""
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many options were given."""
        return len(self._values)

    def __repr__(self) -> str:
        """Show the options as a dictionary."""
        return repr(self._values)

    def __reduce__(self) -> tuple[type[Options], tuple[dict[str, Any]]]:
        """Pickle and copy by the values."""
        return Options, (self._values,)


def _convert(name: str, value: Any) -> Any:
    if name in INTEGER_OPTIONS:
        return _convert_integer(value)
    if name not in FLOAT_OPTIONS:
        return value
    if isinstance(value, tuple):
        return tuple(_convert_float(name, entry) for entry in value)
    return _convert_float(name, value)


def _convert_float(name: str, value: Any) -> Any:
    """Return one number as a float; other values are left to the check of the option."""
    is_number = value.dim() == 0 if isinstance(value, Tensor) else hasattr(value, "__float__")
    return check_number(name, value) if is_number else value


def _convert_integer(value: Any) -> Any:
    if isinstance(value, bool):
        return value  # refused by the check of the option
    try:
        return operator.index(value)
    except TypeError:
        return value
