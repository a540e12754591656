"""Spaces of named parameters: numbers, logarithms, whole numbers, categories.

A :class:`Space` is a box with names. A point of it has one coordinate for each parameter that
varies, and models see coordinates:

* of a :class:`Float` the number itself, or its logarithm to base 10 with ``log=True``;
* of an :class:`Integer` the whole number, or its logarithm with ``log=True``. Only logarithms of
  whole numbers are points then, so that two points never stand for one value;
* of a :class:`Categorical` the index of the value, from 0. Without an order, a model should see one
  column a value (one-hot encoding), which :meth:`Space.input_transform` is for;
* a :class:`Fixed` one has no coordinate.

Users read and write native values by name: :attr:`.Query.parameters`, :meth:`Space.decode`,
:meth:`Space.encode`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from botorch.models.transforms import ChainedInputTransform, Normalize
from botorch.models.transforms.input import InputTransform, NumericToCategoricalEncoding
from torch import Tensor
from torch.nn.functional import one_hot

from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_matrix,
    check_number,
    check_text,
    store_checked,
)
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Arms, Box

__all__ = ["Categorical", "Fixed", "Float", "Integer", "Parameter", "Space"]

Plain: TypeAlias = str | int | float | bool | None
"""What a value may be, so that a journal holds it exactly."""

LARGEST_INTEGER = 2**53
"""Beyond, float64 does not tell neighbors apart."""

LARGEST_LOG_INTEGER = 10**12
"""Up to here the logarithm of a whole number leads back to it, with room for rounding."""

LARGEST_CATEGORICAL = 1000
"""Categories of one parameter; each is a column of the model where they have no order."""

FEW_POINTS = 1000
"""Up to so many points in all, each is looked at."""


class Parameter(ABC):
    """What a named parameter may be: see :class:`Float`, :class:`Integer` and the others."""

    @abstractmethod
    def check(self, name: str, value: Any) -> Plain:
        """Return a value in its native type if the parameter can have it.

        Args:
            name: Of the parameter, for errors.
            value: Whatever a user gave.

        Raises:
            TypeError: If it is of another kind.
            ValueError: If it is outside the range, or no category.
        """

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of the coordinate; a fixed parameter has none."""
        raise NotImplementedError

    def encode(self, value: Any) -> float:
        """Return the coordinate of a value that was checked.

        Args:
            value: From :meth:`check`.
        """
        raise NotImplementedError

    def decode(self, coordinate: float) -> Plain:
        """Return the value at a coordinate within the bounds.

        Args:
            coordinate: A number; for whole numbers and categories the nearest one counts.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        """Show the parameter as its user types it."""
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


@dataclass(frozen=True, repr=False)
class Float(Parameter):
    """A real number between two ends, which belong to the range.

    Attributes:
        low: The smallest value.
        high: The largest value.
        log: Search over the logarithm; ``low`` must be positive then.

    Raises:
        TypeError: If an end is no number.
        ValueError: If the range is empty or not finite, or a logarithmic one does not begin above
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
                f"low is {low!r} and high is {high!r}; low must be less than high. A value that "
                "does not vary is Fixed(value)."
            )
        if _check_log(self.log) and low <= 0.0:
            raise ValueError(
                f"low is {low!r}, but log=True needs a positive one. Raise it, or leave log out."
            )
        store_checked(self, low=low, high=high)
        if self.bounds[0] >= self.bounds[1]:
            raise ValueError(
                f"low is {low!r} and high is {high!r}, whose logarithms are the same number in "
                "float64. Leave log out."
            )

    @property
    def bounds(self) -> tuple[float, float]:
        """The range, or the logarithms of its ends."""
        return (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)

    def check(self, name: str, value: Any) -> float:
        """See the base class."""
        number = _check_real(name, value)
        if not self.low <= number <= self.high:
            raise ValueError(
                f"parameter {name!r} is {number!r}, outside [{self.low!r}, {self.high!r}]. Clamp "
                "it or widen the range."
            )
        return number

    def encode(self, value: Any) -> float:
        """See the base class."""
        low, high = self.bounds
        return min(max(math.log10(value), low), high) if self.log else float(value)

    def decode(self, coordinate: float) -> float:
        """See the base class."""
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
    """A whole number between two ends, which belong to the range.

    Attributes:
        low: The smallest value.
        high: The largest value.
        log: Search over the logarithm; ``low`` must be at least 1 then, and ``high`` at most
            ``10**12``.

    Raises:
        TypeError: If an end is no whole number.
        ValueError: If the range is empty or too large, or a logarithmic one does not begin above 0.

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
                f"low is {low} and high is {high}; low must be less than high. A value that does "
                "not vary is Fixed(value)."
            )
        largest = LARGEST_LOG_INTEGER if _check_log(self.log) else LARGEST_INTEGER
        if high > largest:
            raise ValueError(
                f"high is {high}; it must be at most {largest}, for float64 does not tell such "
                "whole numbers apart. Count in a larger unit, or take a Float."
            )
        if self.log and low < 1:
            raise ValueError(
                f"low is {low}, but log=True needs at least 1. Raise it, or leave log out."
            )
        store_checked(self, low=low, high=high)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range, or the logarithms of its ends."""
        if self.log:
            return math.log10(self.low), math.log10(self.high)
        return float(self.low), float(self.high)

    def check(self, name: str, value: Any) -> int:
        """See the base class."""
        number = _check_real(name, value)
        if number != round(number):
            raise ValueError(
                f"parameter {name!r} is {number!r}; it takes whole numbers. Round it, or make the "
                "parameter a Float."
            )
        if not self.low <= number <= self.high:
            raise ValueError(
                f"parameter {name!r} is {int(number)}, outside {self.low} to {self.high}. Clamp it "
                "or widen the range."
            )
        return int(number)

    def encode(self, value: Any) -> float:
        """See the base class."""
        return math.log10(value) if self.log else float(value)

    def decode(self, coordinate: float) -> int:
        """See the base class."""
        number = round(10.0**coordinate if self.log else coordinate)
        return min(max(number, self.low), self.high)

    def values(self) -> list[float]:
        """Return all coordinates in order."""
        return [self.encode(value) for value in range(self.low, self.high + 1)]

    def at_share(self, share: float) -> float:
        """Return the coordinate at a share of the range; whole numbers have equal shares of it.

        On a logarithmic scale ``k`` has the share of the axis from ``k - 1/2`` to ``k + 1/2``.

        Args:
            share: From 0 to 1.
        """
        if not self.log:
            return self.encode(min(self.low + int(share * (self.high - self.low + 1)), self.high))
        low, high = math.log10(self.low - 0.5), math.log10(self.high + 0.5)
        return self.encode(self.decode(low + (high - low) * share))


@dataclass(frozen=True, repr=False)
class Categorical(Parameter):
    """One of several values.

    Values are plain: texts, whole and real numbers, truth values and None. What is none of these,
    such as a class, gets a name here, and the function looks it up.

    Attributes:
        values: At least two, all different.
        ordered: Whether neighbors in the list are alike, as sizes are; a model then sees the place
            in the list as a number. Otherwise all values are equally far from each other.

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
        if isinstance(self.values, str | bytes) or not isinstance(self.values, Iterable):
            raise TypeError(f"values is {self.values!r}; pass a list of values.")
        values = tuple(_check_plain(f"values[{i}]", v) for i, v in enumerate(self.values))
        check_instance("ordered", self.ordered, bool, "Pass ordered=True or ordered=False.")
        if len(values) < 2:
            raise ValueError(
                f"values is {list(values)}; a category has at least two. A value that does not "
                "vary is Fixed(value)."
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
                    "are equal in Python. Give each value once, or as texts."
                )
        store_checked(self, values=values)

    @property
    def bounds(self) -> tuple[float, float]:
        """The first and the last index."""
        return 0.0, len(self.values) - 1.0

    def check(self, name: str, value: Any) -> Plain:
        """See the base class."""
        return self.values[self._find(name, value)]

    def encode(self, value: Any) -> float:
        """See the base class."""
        return float(self._find("value", value))

    def decode(self, coordinate: float) -> Plain:
        """See the base class."""
        return self.values[min(max(round(coordinate), 0), len(self.values) - 1)]

    def _find(self, name: str, value: Any) -> int:
        is_truth = isinstance(value, bool | np.bool_)
        if isinstance(value, str | int | float | np.generic) or value is None:
            for i, known in enumerate(self.values):
                if known == value and isinstance(known, bool) == is_truth:
                    return i
        raise ValueError(
            f"parameter {name!r} is {value!r}; it must be one of "
            f"{', '.join(map(repr, self.values))}."
        )


@dataclass(frozen=True, repr=False)
class Fixed(Parameter):
    """A value that does not vary, and is handed to the function with the others.

    Attributes:
        value: A text, a number, a truth value or None.

    Raises:
        TypeError: If the value is not plain.
    """

    value: Plain

    def __post_init__(self) -> None:
        """Check the value."""
        store_checked(self, value=_check_plain("value", self.value))

    def check(self, name: str, value: Any) -> Plain:
        """See the base class."""
        is_same = isinstance(value, str | int | float | np.generic) or value is None
        is_same = is_same and isinstance(value, bool | np.bool_) == isinstance(self.value, bool)
        if not (is_same and value == self.value):
            raise ValueError(
                f"parameter {name!r} is {value!r}, but it is fixed at {self.value!r}. Leave it out."
            )
        return self.value


def _check_real(name: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_):
        raise TypeError(f"parameter {name!r} is {value!r}; pass a number.")
    return check_number(f"parameter {name!r}", value)


def _check_plain(name: str, value: Any) -> Plain:
    """Return a plain value; numpy's become Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (str, bool, int):
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}; a number must be finite. Use None, or a text.")
        return value
    raise TypeError(
        f"{name} is {value!r}, but values are plain: texts, numbers, True, False and None, so that "
        "a journal can hold them. Give each object a name here, and look it up in the function."
    )


class Space(Box):
    """Named parameters, as people have them.

    Args:
        parameters: :class:`Float`, :class:`Integer`, :class:`Categorical` and :class:`Fixed`
            parameters by name. Their order is that of the coordinates.
        num_restarts: Starting points of the acquisition's local optimization.
        raw_samples: Quasi-random points from which the starting points are chosen.

    Attributes:
        names: What the coordinates are called, in order.

    Raises:
        TypeError: If a parameter is none, or a name no text.
        ValueError: If no parameter varies.

    Example:
        >>> space = Space({
        ...     "C": Float(1e-3, 1e3, log=True),
        ...     "depth": Integer(2, 12),
        ...     "kernel": Categorical(["rbf", "poly"]),
        ... })
        >>> x = space.encode({"C": 0.01, "depth": 3, "kernel": "poly"})
        >>> x.tolist()
        [-2.0, 3.0, 1.0]
        >>> space.decode(x)
        {'C': 0.01, 'depth': 3, 'kernel': 'poly'}
    """

    def __init__(
        self,
        parameters: Mapping[str, Parameter],
        num_restarts: int = 10,
        raw_samples: int = 256,
    ) -> None:
        """See the class."""
        check_instance("parameters", parameters, Mapping, "Pass a dict from names to parameters.")
        for name, parameter in parameters.items():
            if not check_text("a parameter's name", name, "give it some letters.").strip():
                raise ValueError(f"a parameter's name is {name!r}; give it some letters.")
            check_instance(
                f"parameter {name!r}",
                parameter,
                Parameter,
                "Pass Float(low, high), Integer(low, high), Categorical(values) or Fixed(value).",
            )
        self._parameters = dict(parameters)
        self._varied = {n: p for n, p in self._parameters.items() if not isinstance(p, Fixed)}
        if not self._varied:
            raise ValueError(
                f"parameters is {self._parameters}, where nothing varies. Give at least one Float, "
                "Integer or Categorical."
            )
        self.names = tuple(self._varied)
        varied = list(self._varied.values())
        super().__init__(
            torch.tensor([p.bounds for p in varied], dtype=DTYPE).T,
            [i for i, p in enumerate(varied) if not (isinstance(p, Float) or _is_log(p))],
            num_restarts,
            raw_samples,
        )
        self._logarithms = {i: p for i, p in enumerate(varied) if isinstance(p, Integer) and p.log}

    def __repr__(self) -> str:
        """Show the space as its user types it."""
        further = "".join(
            f", {name}={value}"
            for name, value, default in (
                ("num_restarts", self.num_restarts, 10),
                ("raw_samples", self.raw_samples, 256),
            )
            if value != default
        )
        return f"Space({self._parameters}{further})"

    def __eq__(self, other: object) -> bool:
        """Whether another space has the same parameters in the same order."""
        return type(other) is type(self) and repr(other) == repr(self)

    def __hash__(self) -> int:
        """Return the same number for equal spaces."""
        return hash(repr(self))

    @property
    def parameters(self) -> dict[str, Parameter]:
        """All parameters by name, in order; a copy."""
        return dict(self._parameters)

    def decode(self, x: Any) -> dict[str, Any]:
        """Return a point by names and in native values, fixed ones included.

        Args:
            x: ``d`` coordinates, or already values by name.

        Raises:
            TypeError: If it is a tensor of another dtype than float64.
            ValueError: If it is not in the space.
        """
        if isinstance(x, Mapping):
            return self.check_parameters(x)
        coordinates = iter(self.check_point("x", x).tolist())
        return {
            name: p.value if isinstance(p, Fixed) else p.decode(next(coordinates))
            for name, p in self._parameters.items()
        }

    def encode(self, parameters: Mapping[str, Any]) -> Tensor:
        """Return the point with these values, ``d``-dimensional, float64.

        Args:
            parameters: Values by name; fixed ones may be left out.

        Raises:
            TypeError: If a value is of the wrong kind.
            ValueError: If a name is missing or not known, or a value is outside its range, or no
                category.
        """
        values = self.check_parameters(parameters)
        coordinates = [p.encode(values[name]) for name, p in self._varied.items()]
        return torch.tensor(coordinates, dtype=DTYPE, device=self.bounds.device)

    def check_parameters(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by name in order and in their native types, fixed ones included.

        Args:
            parameters: See :meth:`encode`.

        Raises:
            TypeError: See :meth:`encode`.
            ValueError: See :meth:`encode`.
        """
        unknown = [name for name in parameters if name not in self._parameters]
        if unknown:
            raise ValueError(
                f"parameter {unknown[0]!r} is not known; the space has "
                f"{', '.join(self._parameters)}."
            )
        missing = [name for name in self._varied if name not in parameters]
        if missing:
            raise ValueError(
                f"parameter {missing[0]!r} is missing; give a value of {', '.join(self._varied)}."
            )
        return {
            name: p.check(name, parameters[name]) if name in parameters else p.value  # type: ignore[attr-defined]
            for name, p in self._parameters.items()
        }

    def check_point(self, name: str, x: Any) -> Tensor:
        """Return a point of the space as coordinates.

        Args:
            name: Of the argument, for errors.
            x: Values by name, or ``d`` coordinates.

        Raises:
            TypeError: If it is of the wrong kind.
            ValueError: If it lies outside; see :meth:`encode` for values by name.
        """
        if isinstance(x, Mapping):
            return self.encode(x)
        point = super().check_point(name, x)
        for i, p in self._logarithms.items():
            whole, found = p.decode(float(point[i])), float(10.0 ** point[i])
            if abs(found - whole) > 1e-9 * whole:  # logarithms may round otherwise elsewhere
                raise ValueError(
                    f"{name}[{i}] is {float(point[i])}, the logarithm of {found:.6g}, but "
                    f"{self.names[i]!r} takes whole numbers. Pass values by name."
                )
            point[i] = p.encode(whole)
        return point

    def input_transform(self, context_bounds: Any = None) -> InputTransform | None:
        """Return what a model should do to points before its kernel sees them.

        That is BoTorch's one-hot encoding of categories without an order, followed by ``Normalize``
        over the columns that come of it. A kernel with a lengthscale a column has
        ``ard_num_dims=``:attr:`num_columns` of them.

        Args:
            context_bounds: ``2 x c`` bounds, where the model's inputs have ``c`` columns of a
                context in front; they are normalized with them.

        Returns:
            None if every category has an order: ``Normalize`` with :attr:`bounds` is all then.

        Example:
            >>> space = Space({"x": Float(0.0, 2.0), "kernel": Categorical(["rbf", "poly"])})
            >>> X = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
            >>> space.input_transform()(X)
            tensor([[0.5000, 0.0000, 1.0000]], dtype=torch.float64)
        """
        bounds = self.bounds
        if context_bounds is not None:
            front = check_matrix("context_bounds", context_bounds)
            if len(front) != 2 or not bool((front[0] < front[1]).all()):
                raise ValueError(
                    f"context_bounds is {front.tolist()}; pass a row of lower and a row of upper "
                    "ends, each lower one below its upper one."
                )
            bounds = torch.cat([front.to(bounds), bounds], dim=-1)
        behind = bounds.shape[-1] - self.dim
        sizes = {behind + i: self._counts()[i] for i in self._unordered_dims()}
        if not sizes:
            return None
        encoding = NumericToCategoricalEncoding(
            dim=bounds.shape[-1],
            categorical_features=sizes,
            encoders={i: partial(one_hot, num_classes=size) for i, size in sizes.items()},
        )
        unit = bounds.new_tensor([[0.0], [1.0]])
        columns = [
            unit.expand(2, sizes[i]) if i in sizes else bounds[:, i : i + 1]
            for i in range(bounds.shape[-1])
        ]
        encoded = torch.cat(columns, dim=-1)
        normalize = Normalize(encoded.shape[-1], bounds=encoded)
        return ChainedInputTransform(encode=encoding, normalize=normalize)

    @property
    def num_columns(self) -> int:
        """How many columns a point has behind :meth:`input_transform`."""
        return self.dim + sum(self._counts()[i] - 1 for i in self._unordered_dims())

    def recorded_parts(self) -> dict[str, Any]:
        """See :meth:`Domain.recorded_parts`."""
        return {
            "parameters": self._parameters,
            "names": list(self._parameters),  # a mapping says nothing of the order
            "num_restarts": self.num_restarts,
            "raw_samples": self.raw_samples,
        }

    def without_names(self) -> Box | None:
        """Return the box with the same points and suggestions, if there is one.

        There is none where a category has no order, a whole number is on a logarithmic scale, or
        nothing is continuous.
        """
        if self._unordered_dims() or self._logarithms or self._few_points() is not None:
            return None
        return Box(self.bounds, self.integer_dims, self.num_restarts, self.raw_samples)

    def _unordered_dims(self) -> tuple[int, ...]:
        return tuple(
            i
            for i, p in enumerate(self._varied.values())
            if isinstance(p, Categorical) and not p.ordered
        )

    def _counts(self) -> dict[int, int]:
        further = {i: p.high - p.low + 1 for i, p in self._logarithms.items()}
        return dict(sorted({**super()._counts(), **further}.items()))

    def _values_of(self, dim: int) -> list[float]:
        of_logarithm = self._logarithms.get(dim)
        return super()._values_of(dim) if of_logarithm is None else of_logarithm.values()

    def _few_points(self) -> Arms | None:
        return self._few

    @cached_property
    def _few(self) -> Arms | None:
        counts = self._counts()
        if len(counts) < self.dim or math.prod(counts.values()) > FEW_POINTS:
            return None
        values = [torch.tensor(self._values_of(i), dtype=DTYPE) for i in range(self.dim)]
        points = torch.cartesian_prod(*values).reshape(-1, self.dim)
        return Arms(points.to(self.bounds))

    def _from_unit(self, uniform: Tensor) -> Tensor:
        points = super()._from_unit(uniform)
        for i, p in self._logarithms.items():
            shares = uniform[..., i].reshape(-1).tolist()
            found = points.new_tensor([p.at_share(share) for share in shares])
            points[..., i] = found.reshape(uniform.shape[:-1])
        return points

    def _snap(self, points: Tensor) -> Tensor:
        points = super()._snap(points)
        for i, p in self._logarithms.items():
            near = [p.encode(p.decode(c)) for c in points[..., i].reshape(-1).tolist()]
            points[..., i] = points.new_tensor(near).reshape(points.shape[:-1])
        return points


def _is_log(parameter: Parameter) -> bool:
    return bool(getattr(parameter, "log", False))


fill_in_docstrings(__name__)
