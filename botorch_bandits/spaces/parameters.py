"""Kinds of named parameters: a real number, an integer, a category, or a fixed value.

A parameter has a range, checks values, and maps them to the coordinate that models see and back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence, Set
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

from botorch_bandits.checks import (
    check_instance,
    check_integer,
    check_number,
    explains_arguments,
    is_listed,
    store_checked,
)
from botorch_bandits.optim import Whole

Plain: TypeAlias = str | int | float | bool | None
"""The types of values that a storage records exactly."""

LARGEST_INTEGER = 2**53
"""Beyond this size, float64 does not distinguish neighboring integers."""

LARGEST_LOG_INTEGER = 10**12
"""Up to this size, an integer can be recovered from its logarithm despite rounding."""

LARGEST_CATEGORICAL = 1000
"""The most categories of one parameter; without an order, each is a column of the model."""


class Parameter(ABC):
    """The base class of named parameters, such as :class:`Float` and :class:`Integer`.

    Attributes:
        log: Whether the coordinate is a logarithm.
        varies: Whether there is a coordinate.
    """

    log: bool = False
    varies: bool = True

    @property
    def categories(self) -> Sequence[Plain] | None:
        """All values, if they are given one by one; None for a range."""
        return None

    @property
    def grid(self) -> Whole | None:
        """The values of the coordinate; None for an interval."""
        return None

    @abstractmethod
    def check(self, name: str, value: Any) -> Plain:
        """Return a value in its native type, if it is a value of the parameter.

        Args:
            name: The name of the parameter, for error messages.
            value: Any value that a user gave.

        Raises:
            TypeError: If it has the wrong type.
            ValueError: If it is outside the range or not one of the categories.
        """

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of the coordinate; a fixed parameter does not have one."""
        raise NotImplementedError

    def encode(self, value: Any) -> float:
        """Return the coordinate of a checked value.

        Args:
            value: A value from :meth:`check`.
        """
        raise NotImplementedError

    def decode(self, coordinate: float) -> Plain:
        """Return the value at a coordinate within the bounds.

        Args:
            coordinate: A number; integers and categories use the nearest value.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        """Show the parameter as Python code."""
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                shown.append(repr(list(value)))
            elif field.default is not False:
                shown.append(repr(value))
            elif value:
                shown.append(f"{field.name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _check_log(value: Any) -> bool:
    return check_instance("log", value, bool, "Pass log=True or log=False.")


def _remedy_of_order(low: float, high: float) -> str:
    if low > high:
        return "Swap them."
    return "A value that does not vary is Fixed(value), or fixed:VALUE as a string."


@dataclass(frozen=True, repr=False)
class Float(Parameter):
    """A real number between two bounds, both included.

    Attributes:
        low: The smallest value.
        high: The largest value.
        log: Whether to search over the logarithm; ``low`` must then be positive.

    Raises:
        TypeError: If a bound is not a number.
        ValueError: If the range is empty or not finite, or a logarithmic range does not begin above
            0.

    Example:
        >>> Float(1e-3, 1e3, log=True).bounds
        (-3.0, 3.0)
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        """Check the range."""
        low, high = check_number("low", self.low), check_number("high", self.high)
        if low >= high:
            raise ValueError(
                f"low is {low!r} and high is {high!r}; low must be less than high. "
                f"{_remedy_of_order(low, high)}"
            )
        if _check_log(self.log) and low <= 0.0:
            raise ValueError(
                f"low is {low!r}, but log=True needs a positive one. Raise it, or leave out log "
                "(on the command line, write float:LOW:HIGH)."
            )
        store_checked(self, low=low, high=high)
        if self.bounds[0] >= self.bounds[1]:
            raise ValueError(
                f"low is {low!r} and high is {high!r}, whose logarithms are the same number in "
                "float64. Leave out log."
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The range, or the logarithms of its ends."""
        return (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)

    def check(self, name: str, value: Any) -> float:
        number = _check_real(name, value)
        if not self.low <= number <= self.high:
            raise ValueError(
                f"parameter {name!r} is {number!r}, outside [{self.low!r}, {self.high!r}]. Widen "
                "the range, or leave the point out."
            )
        return number

    def encode(self, value: Any) -> float:
        low, high = self.bounds
        return min(max(math.log10(value), low), high) if self.log else float(value)

    def decode(self, coordinate: float) -> float:
        low, high = self.bounds
        if coordinate <= low:
            return self.low
        if coordinate >= high:
            return self.high
        if not self.log:
            return float(coordinate)
        return min(max(float(10.0**coordinate), self.low), self.high)


@dataclass(frozen=True, repr=False)
class Integer(Parameter):
    """An integer between two bounds, both included.

    Attributes:
        low: The smallest value.
        high: The largest value.
        log: Whether to search over the logarithm; ``low`` must then be at least 1, and ``high`` at
            most ``10**12``.

    Raises:
        TypeError: If a bound is not an integer.
        ValueError: If the range is empty or too large, or a logarithmic range does not begin above
            0.

    Example:
        >>> Integer(1, 100, log=True).bounds
        (0.0, 2.0)
    """

    low: int
    high: int
    log: bool = False

    def __post_init__(self) -> None:
        """Check the range."""
        low = check_integer("low", self.low, minimum=-LARGEST_INTEGER)
        high = check_integer("high", self.high, minimum=-LARGEST_INTEGER)
        if low >= high:
            raise ValueError(
                f"low is {low} and high is {high}; low must be less than high. "
                f"{_remedy_of_order(low, high)}"
            )
        largest = LARGEST_LOG_INTEGER if _check_log(self.log) else LARGEST_INTEGER
        if high > largest:
            raise ValueError(
                f"high is {high}; it must be at most {largest}, because float64 does not tell "
                "larger integers apart. Count in a larger unit, or use a Float."
            )
        if self.log and low < 1:
            raise ValueError(
                f"low is {low}, but log=True needs at least 1. Raise it, or leave out log "
                "(on the command line, write int:LOW:HIGH)."
            )
        store_checked(self, low=low, high=high)

    @property
    def grid(self) -> Whole:
        """See :attr:`Parameter.grid`."""
        return (_Logarithms if self.log else Whole)(self.low, self.high)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range, or the logarithms of its ends."""
        return self.encode(self.low), self.encode(self.high)

    def check(self, name: str, value: Any) -> int:
        number = _check_real(name, value)
        if number != round(number):
            raise ValueError(
                f"parameter {name!r} is {number!r}; it takes whole numbers. Round it, or make the "
                "parameter a Float."
            )
        if not self.low <= number <= self.high:
            raise ValueError(
                f"parameter {name!r} is {int(number)}, outside {self.low} to {self.high}. Widen "
                "the range, or leave the point out."
            )
        return int(number)

    def encode(self, value: Any) -> float:
        return math.log10(value) if self.log else float(value)

    def decode(self, coordinate: float) -> int:
        number = round(10.0**coordinate if self.log else coordinate)
        return min(max(number, self.low), self.high)


class _Logarithms(Whole):
    """The logarithms of whole numbers.

    They come from Python's function, so that equal numbers have equal logarithms to the last bit.
    """

    def values(self) -> list[float]:
        return [math.log10(value) for value in range(self.low, self.high + 1)]

    def at_shares(self, shares: Tensor) -> Tensor:
        """Return values, of which ``k`` has the share of the axis from ``k - 1/2`` to ``k + 1/2``.

        Args:
            shares: See :meth:`Whole.at_shares`.
        """
        low, high = math.log10(self.low - 0.5), math.log10(self.high + 0.5)
        return self.nearest(low + (high - low) * shares)

    def changes(self, value: float) -> list[float]:
        return [math.log10(number) for number in super().changes(round(10.0**value))]

    def nearest(self, coordinates: Tensor) -> Tensor:
        numbers = [round(10.0**each) for each in coordinates.reshape(-1).tolist()]
        inside = [math.log10(min(max(number, self.low), self.high)) for number in numbers]
        return coordinates.new_tensor(inside).reshape(coordinates.shape)


@dataclass(frozen=True, repr=False)
class Categorical(Parameter):
    """One of several values.

    Values are plain: strings, integers, real numbers, booleans and None. Give any other object,
    such as a class, a name here, and let the function look it up.

    Attributes:
        values: At least two, all different.
        ordered: Whether neighbors in the list are similar, as sizes are; a model then sees the
            position in the list as a number. Otherwise, all values are equally far from each other.

    Raises:
        TypeError: If a value is not plain.
        ValueError: If there are fewer than two values or more than 1000, or two are equal.

    Example:
        >>> Categorical([16, 32, 64], ordered=True)
        Categorical([16, 32, 64], ordered=True)
    """

    values: Sequence[Plain]
    ordered: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if not is_listed(self.values):
            raise TypeError(f"values is {self.values!r}; pass a list of values.")
        if isinstance(self.values, Set):  # each process orders strings in a set differently
            raise TypeError(
                f"values is the set {self.values!r}, whose order changes; pass a list of values."
            )
        values = tuple(check_plain(f"values[{i}]", v) for i, v in enumerate(self.values))
        check_instance("ordered", self.ordered, bool, "Pass ordered=True or ordered=False.")
        if len(values) < 2:
            raise ValueError(
                f"values is {list(values)}; a category has at least two. A value that does not "
                "vary is Fixed(value), or fixed:VALUE as a string."
            )
        if len(values) > LARGEST_CATEGORICAL:
            raise ValueError(
                f"values has {len(values)} entries; at most {LARGEST_CATEGORICAL} are possible. "
                "Make numbers a Float or an Integer."
            )
        for i, value in enumerate(values):
            if value in values[:i]:
                first = values.index(value)
                raise ValueError(
                    f"values[{first}] and values[{i}] are {values[first]!r} and {value!r}, which "
                    "are equal in Python. Give each value once, or as strings."
                )
        store_checked(self, values=values)

    @property
    def categories(self) -> Sequence[Plain]:
        return self.values

    @property
    def grid(self) -> Whole:
        """See :attr:`Parameter.grid`."""
        return Whole(0, len(self.values) - 1, self.ordered)

    @property
    def bounds(self) -> tuple[float, float]:
        """The first and the last index."""
        return 0.0, len(self.values) - 1.0

    def check(self, name: str, value: Any) -> Plain:
        return self.values[self._find(name, value)]

    def encode(self, value: Any) -> float:
        return float(self._find("value", value))

    def decode(self, coordinate: float) -> Plain:
        return self.values[min(max(round(coordinate), 0), len(self.values) - 1)]

    def _find(self, name: str, value: Any) -> int:
        if _is_plain(value):
            for is_same in (_are_equal, _are_close):
                for i, known in enumerate(self.values):
                    if is_same(known, value):
                        return i
        raise ValueError(
            f"parameter {name!r} is {value!r}; it must be one of "
            f"{', '.join(map(repr, self.values))}."
        )


@dataclass(frozen=True, repr=False)
class Fixed(Parameter):
    """A value that does not vary, and is passed to the function with the others.

    Attributes:
        value: A string, a number, a boolean or None.

    Raises:
        TypeError: If the value is not plain.
    """

    value: Plain
    varies = False

    @property
    def categories(self) -> Sequence[Plain]:
        return (self.value,)

    def __post_init__(self) -> None:
        """Check the value."""
        store_checked(self, value=check_plain("value", self.value))

    def check(self, name: str, value: Any) -> Plain:
        if not (_is_plain(value) and _are_close(self.value, value)):
            raise ValueError(
                f"parameter {name!r} is {value!r}, but it is fixed at {self.value!r}. Leave it out."
            )
        return self.value

    def decode(self, coordinate: float) -> Plain:
        return self.value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | np.generic)


def _are_equal(known: Plain, value: Any) -> bool:
    """Return whether two values are the same; True and 1 are not."""
    is_truth = isinstance(value, bool | np.bool_)
    return bool(known == value) and isinstance(known, bool) == is_truth


def _are_close(known: Plain, value: Any) -> bool:
    """Return whether two values are equal, for numbers up to rounding: ``3 * 0.1`` is 0.3."""
    if _is_number(known) and _is_number(value):
        return math.isclose(known, value, rel_tol=1e-12)  # type: ignore[arg-type]
    return _are_equal(known, value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _check_real(name: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"parameter {name!r} is {value!r}; pass a number.")
    return check_number(f"parameter {name!r}", value)


def check_plain(name: str, value: Any) -> Plain:
    """Return a plain value; NumPy values become Python values."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (str, bool, int):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}; a number must be finite. Use None, or a string.")
        return value
    raise TypeError(
        f"{name} is {value!r}, but values must be plain: strings, numbers, True, False and None, "
        "so that a storage can hold them. Give each object a name, and look it up in the function."
    )


for _kind in (Float, Integer, Categorical, Fixed):
    _kind.__init__ = explains_arguments(  # type: ignore[method-assign]
        _kind.__name__,
        step="Write values with a step as Categorical([...], ordered=True).",
    )(_kind.__init__)
