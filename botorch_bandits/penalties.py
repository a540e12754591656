r"""Penalties for violated constraints: what a multiplier charges for.

A constraint ``g`` is met where ``g(x) <= 0``. A penalty with the function ``psi`` subtracts ``kappa
* (psi(g(x)) - 1)`` from the reward, where ``kappa`` is the constraint's multiplier.

Shi and Eryilmaz (2022) require four properties of ``psi`` (their Assumption 2):

1. it is convex,
2. ``psi(x) = 1`` for ``x <= 0``,
3. it is strictly increasing on ``x >= 0``,
4. ``psi(x) * psi(y) >= psi(x + y)``.

The fourth lets the multiplier of an epoch represent all violations before it. The paper's Algorithm
2 has the constant ``c`` inside ``psi`` (``psi(g)``), while its Assumption 3 also writes ``psi(c
g)``. These are two notations for the same penalty: ``c`` is applied once, here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_number,
    check_positive,
    check_vector,
    store_checked,
)

__all__ = [
    "CustomPenalty",
    "Exponential",
    "Linear",
    "Penalty",
    "PenaltyPropertyError",
    "Polynomial",
    "check_penalty_properties",
]


class PenaltyPropertyError(ValueError):
    """A penalty function lacks a required property; the message names it."""


class Penalty(ABC):
    """A function ``psi`` and what is subtracted from the reward, ``psi - 1``, element by element.

    A subclass of your own defines :meth:`log_value`. Its four properties are not checked unless its
    constructor calls :func:`check_penalty_properties`, as that of :class:`CustomPenalty` does.
    """

    is_linear: ClassVar[bool] = False
    """Whether ``psi(x) - 1 = x`` everywhere, so that met constraints earn a bonus."""

    assumed: ClassVar[tuple[str, ...]] = ("the penalty has the four properties of Assumption 2",)
    """What theorems assume about it because it is not known."""

    @property
    def is_linear_beyond(self) -> bool:
        """Whether it is known to grow only linearly for violations, as with ``n = 1``."""
        return False

    @abstractmethod
    def log_value(self, x: Tensor) -> Tensor:
        """Return ``ln psi(x)``, which does not overflow where ``psi`` would.

        Args:
            x: Constraint values of any shape, float64.
        """

    def value(self, x: Tensor) -> Tensor:
        """Return ``psi(x)``, which is exactly 1 for ``x <= 0``.

        Args:
            x: Constraint values of any shape, float64.
        """
        return self.log_value(x).exp()

    def excess(self, x: Tensor) -> Tensor:
        """Return ``psi(x) - 1``, without cancellation for small ``x``.

        Args:
            x: Constraint values of any shape, float64.
        """
        return self.log_value(x).expm1()


@dataclass(frozen=True)
class Polynomial(Penalty):
    r"""A power; Shi and Eryilmaz 2022, equation (9).

    .. math:: \psi(x) = (c \max\{x, 0\} + 1)^n

    Its multipliers grow slowly. The violation is sublinear only for ``n > 1``.

    Attributes:
        c: Slope, greater than 0, in one over the unit of the constraint.
        n: Power, at least 1.

    Example:
        >>> import torch
        >>> Polynomial(c=1.0, n=2.0).value(torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64))
        tensor([1., 1., 9.], dtype=torch.float64)
    """

    c: float = 1.0
    n: float = 2.0

    assumed: ClassVar[tuple[str, ...]] = ()

    @property
    def is_linear_beyond(self) -> bool:
        """Whether ``n`` is 1."""
        return self.n <= 1.0

    def __post_init__(self) -> None:
        """Check the constants."""
        store_checked(self, c=check_positive("c", self.c))
        store_checked(self, n=check_number("n", self.n))
        if self.n < 1.0:
            raise ValueError(f"n is {self.n}; it must be at least 1, or psi is not convex.")

    def log_value(self, x: Tensor) -> Tensor:
        return self.n * (self.c * x.clamp_min(0.0)).log1p()

    def value(self, x: Tensor) -> Tensor:
        return (self.c * x.clamp_min(0.0) + 1.0) ** self.n


@dataclass(frozen=True)
class Exponential(Penalty):
    r"""Exponential growth; Shi and Eryilmaz 2022, equation (10).

    .. math:: \psi(x) = e^{c \max\{x, 0\}}

    It has the best order of violation in theory. Its multipliers can grow beyond any number, in
    which case the paper recommends :class:`Polynomial`.

    Attributes:
        c: Rate, greater than 0, in one over the unit of the constraint.

    Example:
        >>> import torch
        >>> Exponential(c=2.0).log_value(torch.tensor([-1.0, 500.0], dtype=torch.float64))
        tensor([   0., 1000.], dtype=torch.float64)
    """

    c: float = 1.0

    assumed: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        """Check the constant."""
        store_checked(self, c=check_positive("c", self.c))

    def log_value(self, x: Tensor) -> Tensor:
        return self.c * x.clamp_min(0.0)


@dataclass(frozen=True)
class Linear(Penalty):
    r"""The Lagrangian ``f - kappa g`` of noisy constraints.

    .. math:: \psi(x) - 1 = x \quad \text{everywhere, also for } x < 0

    Noise in the constraint enters once and is not amplified. ``psi`` is not 1 for ``x < 0``, so
    that :class:`~botorch_bandits.MultiplicativeEpochs` rejects it.

    Example:
        >>> import torch
        >>> Linear().excess(torch.tensor([-1.0, 2.0], dtype=torch.float64))
        tensor([-1.,  2.], dtype=torch.float64)
    """

    is_linear: ClassVar[bool] = True

    def value(self, x: Tensor) -> Tensor:
        """See :meth:`Penalty.value`; it is ``1 + x``."""
        return 1.0 + x

    def excess(self, x: Tensor) -> Tensor:
        """See :meth:`Penalty.excess`; it is ``x`` itself."""
        return x

    def log_value(self, x: Tensor) -> Tensor:
        """Raise an error, because ``1 + x`` is negative for ``x < -1``.

        Raises:
            PenaltyPropertyError: Always.
        """
        raise PenaltyPropertyError(
            "the linear penalty is not 1 for x <= 0, so it has no logarithm there. Use "
            "Polynomial(c, n) or Exponential(c) where a logarithm is needed."
        )


@dataclass(frozen=True)
class CustomPenalty(Penalty):
    """A user's own ``psi``, which is checked for the four properties on a grid.

    Attributes:
        function: A function from a float64 tensor to a float64 tensor of the same shape, element by
            element.
        largest: The grid spans ``[-largest, largest]``; choose it as large as constraint values
            get. A property can still fail between grid points or outside the grid.
        num_points: The number of grid points on either side of 0.
        log_function: ``ln psi``, used instead of the logarithm of ``function``, which overflows
            where ``psi`` does.

    Raises:
        PenaltyPropertyError: If a property fails; the error names the property and the point.

    Example:
        >>> penalty = CustomPenalty(lambda x: (1.0 + x.clamp_min(0.0)) ** 3)
        >>> try:
        ...     CustomPenalty(lambda x: 1.0 + x)
        ... except ValueError as error:
        ...     print(str(error)[:26])
        psi is not 1 for x <= 0: a
    """

    assumed: ClassVar[tuple[str, ...]] = (f"{Penalty.assumed[0]}, which was checked on a grid",)

    function: Callable[[Tensor], Tensor]
    largest: float = 5.0
    num_points: int = 100
    log_function: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        """Check the properties."""
        largest = check_positive("largest", self.largest)
        num_points = check_integer("num_points", self.num_points, minimum=2)
        store_checked(self, largest=largest, num_points=num_points)
        check_instance("function", self.function, Callable, "Pass a function of a float64 tensor.")
        check_penalty_properties(self, largest, num_points)

    def value(self, x: Tensor) -> Tensor:
        return self.function(x)

    def excess(self, x: Tensor) -> Tensor:
        """See :meth:`Penalty.excess`; with the rounding of ``function``."""
        return self.function(x) - 1.0

    def log_value(self, x: Tensor) -> Tensor:
        return self.function(x).log() if self.log_function is None else self.log_function(x)


def check_penalty(penalty: Penalty) -> Penalty:
    """Return ``penalty`` if it is one.

    Raises:
        TypeError: If it is not.
    """
    if not isinstance(penalty, Penalty):
        raise TypeError(
            f"penalty must be a Penalty, got {penalty!r}. Use Linear(), Polynomial(c, n), "
            "Exponential(c) or CustomPenalty(function)."
        )
    return penalty


def check_penalty_properties(penalty: Penalty, largest: float, num_points: int = 100) -> None:
    """Raise an error unless a penalty has the four properties of Assumption 2 on a grid.

    Args:
        penalty: The penalty to check.
        largest: The grid spans ``[-largest, largest]``.
        num_points: The number of grid points on either side of 0.

    Raises:
        TypeError: If it does not map a float64 tensor to one of the same shape.
        PenaltyPropertyError: If a property fails; the error names the property and the point.
    """
    x = torch.arange(-num_points, num_points + 1, dtype=DTYPE) * (largest / num_points)
    with torch.no_grad():
        psi = penalty.value(x)
    if not isinstance(psi, Tensor) or psi.dtype != DTYPE or psi.shape != x.shape:
        raise TypeError(
            f"psi must map a float64 tensor of shape {tuple(x.shape)} to another, element by "
            f"element, got {_kind(psi)}."
        )
    if not torch.isfinite(psi).all():
        where = x[~torch.isfinite(psi)][0].item()
        raise PenaltyPropertyError(
            f"psi is not finite at x = {where:g}. Choose a smaller largest= (now {largest:g}) or "
            "a psi that grows more slowly, such as Polynomial(c, n)."
        )
    _refuse_where(
        (psi - 1.0).abs()[x <= 0.0] > 1e-12,
        x[x <= 0.0],
        "psi is not 1 for x <= 0",
        "A met constraint must cost nothing: clamp x at 0 from below (x.clamp_min(0.0)).",
    )
    nonnegative = x >= 0.0
    right, values = x[nonnegative], psi[nonnegative]
    _refuse_where(
        values.diff() <= 0.0,
        right[1:],
        "psi is not strictly increasing on x >= 0",
        "A larger violation must cost more.",
    )
    _refuse_where(
        psi.diff().diff() < -1e-9 * psi[1:-1],
        x[1:-1],
        "psi is not convex",
        "Polynomial(c, n) with n >= 1 and Exponential(c) are.",
    )
    # the sums of grid points that stay on the grid: x_i + x_j is x_(i + j) counted from 0
    index = torch.arange(-num_points, num_points + 1)
    sums = index.unsqueeze(0) + index.unsqueeze(1)
    inside = sums.abs() <= num_points
    of_sum = psi[sums.clamp(-num_points, num_points) + num_points]
    fails = inside & (psi.unsqueeze(0) * psi.unsqueeze(1) < of_sum * (1.0 - 1e-9))
    _refuse_where(
        fails.any(dim=0),
        x,
        "psi(x) psi(y) >= psi(x + y) fails",
        "Multipliers of later epochs would be too small for the violations so far. (1 + c x)^n "
        "with n >= 1 and e^(c x) have this property, 1 + x^2 does not.",
    )


def _refuse_where(fails: Tensor, x: Tensor, what: str, remedy: str) -> None:
    if bool(fails.any()):
        raise PenaltyPropertyError(f"{what}: at x = {x[fails][0].item():g}. {remedy}")


def _kind(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return type(value).__name__


def check_multipliers(multipliers: Tensor | Sequence[float]) -> Tensor:
    """Return multipliers as a float64 vector of numbers that are at least 0.

    Raises:
        ValueError: If there are none, one is negative or not finite, or they are not a vector.
    """
    shown: Any = multipliers
    if isinstance(shown, int | float) or getattr(shown, "ndim", 1) == 0:
        raise ValueError(
            f"multipliers is {float(shown)}, a single number; give one for each constraint in a "
            f"list, such as [{float(shown)}]."
        )
    vector = check_vector("multipliers", multipliers).detach().clone()
    if len(vector) == 0:
        raise ValueError("multipliers is empty; give one for each constraint.")
    if bool((vector < 0.0).any()):
        raise ValueError(f"multipliers is {vector.tolist()}; each must be at least 0.")
    return vector


def check_no_overflow(values: Tensor) -> Tensor:
    """Return values of a penalized reward if they are finite or NaN.

    Raises:
        OverflowError: If one is infinite.
    """
    if bool(torch.isinf(values).any()):
        raise OverflowError(
            "a penalty is too large for float64. Use penalty=Polynomial(c, n), which grows "
            "more slowly, a smaller c, or smaller multipliers."
        )
    return values
