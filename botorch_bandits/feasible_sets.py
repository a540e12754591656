"""The part of a box that meets constraints, in the formats of BoTorch's ``optimize_acqf``.

A :class:`FeasibleSet` determines whether points are in it, names the constraint that a point
violates, draws from itself and maximizes acquisition functions over itself. It knows only
coordinates: the box to which it belongs states which of them take integers and which are fixed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.exceptions.errors import InfeasibilityError
from botorch.generation.gen import gen_candidates_scipy
from botorch.optim.initializers import initialize_q_batch
from botorch.utils.sampling import get_polytope_samples
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_callable,
    check_integer,
    check_number,
    check_vector,
    is_list,
)

INEQUALITY, EQUALITY = 1e-9, 1e-7
"""How far a point may miss a linear constraint, as a share of the range of its sum on the box."""

NONLINEAR = 1e-9
"""How far the value of a nonlinear constraint may lie below 0."""

LEAST_ROOM = 1e-7
"""Two draws that are nearer, as a share of each side, mean that a set has no room to walk in."""

RARE = 0.05
"""If a smaller share of a box meets its linear constraints, points are drawn by a random walk."""

MOST_DRAWS = 100_000
"""After this many draws without a feasible point, an error says that there is none."""

BURN_IN, THINNING = 1000, 16
"""Steps of the random walk before the first point, and between two points."""

VARIABLES_AT_ONCE = 40
"""Local searches under constraints run together up to this number of variables."""

MOST_COMBINATIONS = 16
"""Up to this number of combinations of discrete values, each of them is searched."""

CONSTRAINTS = (
    "inequality_constraints",
    "equality_constraints",
    "nonlinear_inequality_constraints",
)
"""Arguments of a box, and of BoTorch's ``optimize_acqf``."""


def constraints_text(constraints: Mapping[str, Any]) -> str:
    """Return constraints as the user would type them after other arguments.

    Args:
        constraints: The constraints of a box, by the names of their arguments.
    """
    told = ""
    for name, each in constraints.items():
        shown = [
            f"({_name_of(one[0], one[0])}, True)" if len(one) == 2 else repr(one) for one in each
        ]
        told += f", {name}=[{', '.join(shown)}]"
    return told


def _name_of(function: Any, otherwise: Any = None) -> Any:
    """Return how a user's function is called in messages."""
    return getattr(function, "__name__", otherwise or type(function).__name__)


Linear = tuple[tuple[int, ...], tuple[float, ...], float]
"""Indices, coefficients and right-hand side of a linear constraint."""

Nonlinear = tuple[Callable[[Tensor], Any], bool]
"""A function of a point that is at least 0 if the point is feasible; the second entry is True."""

FromUnit = Callable[[Tensor], Tensor]
"""A function from points of the unit cube to points of a box."""


def read_linear(name: str, given: Any, dim: int) -> tuple[Linear, ...]:
    """Return linear constraints as plain numbers.

    Args:
        name: The name of the argument, for error messages.
        given: ``(indices, coefficients, rhs)`` triples, or None.
        dim: The dimension of the points.

    Raises:
        TypeError: If something has the wrong type.
        ValueError: If an index does not exist or is repeated, numbers are missing or not finite, or
            all coefficients are 0.
    """
    if given is None:
        return ()
    if not is_list(given):
        raise TypeError(
            f"{name} is {given!r}; pass a list of (indices, coefficients, rhs) triples, as in "
            "[([0, 1], [1.0, 1.0], 0.5)] for x[0] + x[1] and 0.5."
        )
    found = []
    for k, triple in enumerate(given):
        where = f"{name}[{k}]"
        if not is_list(triple, 3):
            raise TypeError(f"{where} is {triple!r}; pass (indices, coefficients, rhs).")
        indices = read_indices(where, triple[0])
        indices = [check_integer(f"an index of {where}", i, minimum=0) for i in indices]
        if not indices or len(set(indices)) != len(indices) or max(indices) >= dim:
            raise ValueError(
                f"{where} has the indices {indices}; give some of 0 to {dim - 1}, each once."
            )
        coefficients = check_vector(f"coefficients of {where}", triple[1], length=len(indices))
        if not bool((coefficients != 0.0).any()):
            raise ValueError(f"{where} has coefficients that are all 0; leave it out.")
        rhs = check_number(f"rhs of {where}", triple[2])
        found.append((tuple(indices), tuple(coefficients.tolist()), rhs))
    return tuple(found)


def read_indices(where: str, given: Any) -> list[Any]:
    """Return the indices, or names, of a linear constraint as a list.

    Args:
        where: The name of the constraint, for error messages.
        given: A list, a tuple or a tensor.

    Raises:
        TypeError: If it is a single index or name.
    """
    listed = given.tolist() if hasattr(given, "tolist") else given
    if not is_list(listed):
        raise TypeError(f"{where} has {given!r} for indices; pass a list, such as [{given!r}].")
    return list(listed)


def read_nonlinear(name: str, given: Any) -> tuple[Nonlinear, ...]:
    """Return nonlinear constraints after checking them.

    Args:
        name: The name of the argument, for error messages.
        given: ``(function, True)`` pairs, or None.

    Raises:
        TypeError: If something has the wrong type.
        ValueError: If a constraint applies to several points jointly.
    """
    if given is None:
        return ()
    if not is_list(given):
        raise TypeError(f"{name} is {given!r}; pass a list of (function, True) pairs.")
    for k, pair in enumerate(given):
        where = f"{name}[{k}]"
        if not is_list(pair, 2):
            raise TypeError(
                f"{where} is {pair!r}; pass (function, True), where the function maps a point, a "
                "vector, to a number that is at least 0 if the point is feasible."
            )
        check_callable(where, pair[0], "Pass a function of a point, and True.")
        if pair[1] is not True:
            raise ValueError(
                f"{where} has {pair[1]!r} after its function, but a loop asks for one point at a "
                "time: pass True, for a constraint on each point separately."
            )
    return tuple((pair[0], True) for pair in given)


class Limit(NamedTuple):
    """A linear constraint: ``sum(coefficients * x[indices])`` is at least, or equals, ``rhs``."""

    indices: tuple[int, ...]
    coefficients: tuple[float, ...]
    rhs: float
    is_equality: bool
    name: str

    @property
    def sign(self) -> str:
        """How the sum compares with the right-hand side."""
        return "==" if self.is_equality else ">="

    def at(self, indices: Iterable[int]) -> Limit:
        """Return the same constraint on other coordinates."""
        return self._replace(indices=tuple(indices))


def limits_of(inequality: Sequence[Linear], equality: Sequence[Linear]) -> tuple[Limit, ...]:
    """Return linear constraints with the names that error messages have for them.

    Args:
        inequality: Constraints of the form ``>=``.
        equality: Constraints of the form ``==``, on continuous dimensions.
    """
    named = ((CONSTRAINTS[0], inequality, False), (CONSTRAINTS[1], equality, True))
    return tuple(
        Limit(*each, is_equality, f"{name}[{k}]")
        for name, given, is_equality in named
        for k, each in enumerate(given)
    )


@dataclass(frozen=True)
class Behind:
    """A nonlinear constraint that does not see the first coordinates of a point.

    Attributes:
        function: The constraint.
        num_left_out: The number of coordinates that it does not see.
    """

    function: Callable[[Tensor], Any]
    num_left_out: int

    @property
    def takes_rows(self) -> bool:
        """Whether it is called with many points at once."""
        return getattr(self.function, "takes_rows", False)

    def __call__(self, X: Tensor) -> Any:
        """Return the value at ``... x d`` points."""
        return self.function(X[..., self.num_left_out :])


@dataclass(frozen=True, eq=False)
class FeasibleSet:
    """The points of a box that meet all constraints.

    Attributes:
        bounds: ``2 x d``; the bounds of the box.
        linear: Constraints on sums of coordinates.
        nonlinear: Constraints ``function(x) >= 0``. A function with the attribute ``takes_rows`` is
            called with many points at once.
        discrete: The dimensions that take finitely many values.
        held: Coordinates that have a single value, such as a context; it is in ``bounds``.
        names: The names of the coordinates, for error messages; ``x[0]`` and so on if empty.
    """

    bounds: Tensor
    linear: tuple[Limit, ...] = ()
    nonlinear: tuple[Nonlinear, ...] = ()
    discrete: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def behind(self, front: Tensor) -> FeasibleSet:
        """Return the set of points with fixed coordinates before the others.

        Args:
            front: The values of the fixed coordinates.
        """
        count = len(front)
        return FeasibleSet(
            torch.cat([front.to(self.bounds).expand(2, -1), self.bounds], dim=-1),
            tuple(limit.at(i + count for i in limit.indices) for limit in self.linear),
            tuple((Behind(function, count), True) for function, _ in self.nonlinear),
            tuple(i + count for i in self.discrete),
            (*range(count), *(i + count for i in self.held)),
        )

    def holding(self, values: Mapping[int, float]) -> FeasibleSet:
        """Return the set of points with given values of some coordinates.

        Args:
            values: By coordinate, within the bounds.

        Raises:
            ValueError: If a constraint applies only to these coordinates and is violated.
        """
        bounds = self.bounds.clone()
        for i, value in values.items():
            bounds[:, i] = value
        kept = []
        for limit, scale in zip(self.linear, self.rows()[2].tolist(), strict=True):
            pairs = list(zip(limit.indices, limit.coefficients, strict=True))
            rest = limit.rhs - math.fsum(c * values[i] for i, c in pairs if i in values)
            free = [(i, c) for i, c in pairs if i not in values]
            if free:
                some, factors = zip(*free, strict=True)
                kept.append(limit._replace(indices=some, coefficients=factors, rhs=rest))
                continue
            share = -rest / scale
            if abs(share) > EQUALITY if limit.is_equality else share < -INEQUALITY:
                raise ValueError(
                    f"{limit.name} is violated: its sum is {limit.rhs - rest:.6g}, and it must be "
                    f"{limit.sign} {limit.rhs:g}."
                )
        return replace(
            self,
            bounds=bounds,
            linear=tuple(kept),
            discrete=tuple(i for i in self.discrete if i not in values),
            held=tuple(sorted({*self.held, *values})),
        )

    @property
    def dim(self) -> int:
        """The dimension of the points, including those that are held."""
        return self.bounds.shape[-1]

    @property
    def free(self) -> list[int]:
        """The continuous dimensions that vary."""
        return [i for i in range(self.dim) if i not in self.discrete and i not in self.held]

    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return matrix, right-hand sides and scales of the ``m`` linear constraints.

        Returns:
            ``m x d``, ``m`` and ``m`` numbers; the scale is the range of a sum on the box.
        """
        matrix = self.bounds.new_zeros(len(self.linear), self.dim)
        for row, limit in zip(matrix, self.linear, strict=True):
            row[list(limit.indices)] = row.new_tensor(limit.coefficients)
        rhs = self.bounds.new_tensor([limit.rhs for limit in self.linear])
        return matrix, rhs, matrix.abs() @ (self.bounds[1] - self.bounds[0])

    @property
    def _is_equality(self) -> Tensor:
        """Which linear constraints are equalities, ``m`` booleans."""
        return torch.tensor([limit.is_equality for limit in self.linear], dtype=torch.bool)

    def slacks(self, X: Tensor) -> Tensor:
        """Return the slacks of all but the nonlinear constraints, which are negative if violated.

        Args:
            X: ``n x d`` points.

        Returns:
            ``n x m``, as shares of the range of a sum, with the tolerance added.
        """
        matrix, rhs, scale = self.rows()
        left = (X @ matrix.T - rhs) / scale  # n x m
        equal = self._is_equality.to(left.device)
        return torch.where(equal, EQUALITY - left.abs(), left + INEQUALITY)

    def contains(self, X: Tensor) -> Tensor:
        """Return which points meet all constraints, up to rounding.

        Args:
            X: ``n x d`` points of the box.

        Returns:
            ``n`` booleans.
        """
        inside = (self.slacks(X) >= 0.0).all(-1)
        for function, _ in self.nonlinear:
            if getattr(function, "takes_rows", False):
                with torch.no_grad():
                    inside &= function(X) >= -NONLINEAR
                continue
            for k in inside.nonzero().reshape(-1).tolist():
                if not _value(function, X[k]) >= -NONLINEAR:
                    inside[k] = False
        return inside

    def check(self, name: str, x: Tensor) -> None:
        """Raise an error if a point violates a constraint, naming the constraint and its value.

        Args:
            name: The name of the argument, for error messages.
            x: A point of the box.

        Raises:
            ValueError: If it violates one.
        """
        point, slacks = x.tolist(), self.slacks(x.unsqueeze(0)).squeeze(0).tolist()
        for limit, slack in zip(self.linear, slacks, strict=True):
            if slack < 0.0:
                pairs = list(zip(limit.indices, limit.coefficients, strict=True))
                total = math.fsum(c * point[i] for i, c in pairs)
                named = self.names or [f"x[{i}]" for i in range(len(point))]
                words = " + ".join(f"{c:g} * {named[i]}" for i, c in pairs)
                raise ValueError(
                    f"{name} is {point}, which violates {limit.name}: {words} {limit.sign} "
                    f"{limit.rhs:g}, but the sum is {total:.6g}. Move the point, or relax the "
                    "constraint."
                )
        for k, (function, _) in enumerate(self.nonlinear):
            value = _value(function, x)
            if not value >= -NONLINEAR:
                called = _name_of(function)
                raise ValueError(
                    f"{name} is {point}, which violates nonlinear_inequality_constraints[{k}]: "
                    f"{called} is {value:.6g} there, but it must be at least 0. Move the point, or "
                    "relax the constraint."
                )

    def check_choices(self, choices: Tensor) -> None:
        """Raise an error unless all points of a finite set are feasible.

        Args:
            choices: ``n x d``; the points at which an acquisition function is defined.

        Raises:
            ValueError: If one of them is not.
        """
        if not bool(self.contains(choices).all()):
            raise ValueError(
                "the acquisition function has choices= that violate the constraints of the box. "
                "Leave out those points, or choices= altogether."
            )

    def check_not_empty(self, from_unit: FromUnit) -> None:
        """Raise an error if no point meets all constraints.

        For linear constraints that leave little of the box, a linear program decides it, with which
        a random walk begins.

        Args:
            from_unit: The map from the unit cube to the box.

        Raises:
            ValueError: If there is none, an equality is on a discrete dimension, or a function has
                no gradient although there are continuous dimensions.
        """
        for limit in self.linear:
            on_discrete = sorted(set(limit.indices) & set(self.discrete))
            if limit.is_equality and on_discrete:
                raise ValueError(
                    f"{limit.name} is on dimension {on_discrete[0]}, which takes finitely many "
                    "values, so that a uniform draw hardly ever meets it. Solve it for one "
                    "dimension and leave that out, or use Arms of the feasible points."
                )
        one, other = self.sample(2, torch.Generator().manual_seed(0), from_unit)
        free = self.free
        side = (self.bounds[1] - self.bounds[0])[free]
        if not free:
            return
        if bool(((one - other)[free].abs() <= LEAST_ROOM * side).all()):
            raise ValueError(
                "inequality_constraints and equality_constraints leave no room: wherever they "
                "hold, a continuous dimension is at its bound or an inequality is an equality. "
                "Write such an inequality as equality_constraints, and leave out dimensions that "
                "are then fixed."
            )
        self._check_gradients(one)

    def _check_gradients(self, x: Tensor) -> None:
        """Raise an error unless the nonlinear constraints have gradients at a feasible point."""
        for k, (function, _) in enumerate(self.nonlinear):
            if getattr(function, "takes_rows", False):
                continue
            try:
                value = function(x.clone().requires_grad_(True))
                has_gradient = isinstance(value, Tensor) and value.requires_grad
            except (RuntimeError, TypeError):  # NumPy does not accept tensors with a gradient
                has_gradient = False
            if not has_gradient:
                called = _name_of(function)
                raise ValueError(
                    f"{called} of nonlinear_inequality_constraints[{k}] has no gradient, which "
                    "searches on continuous dimensions need. Compute it from the point in PyTorch, "
                    "without float(), .numpy() or comparisons; or use Arms of feasible points."
                )

    def _of_free(self) -> FeasibleSet:
        """Return the continuous dimensions as a set, with the linear constraints on these alone."""
        place = {i: k for k, i in enumerate(self.free)}
        kept = [limit for limit in self.linear if all(i in place for i in limit.indices)]
        limits = tuple(limit.at(place[i] for i in limit.indices) for limit in kept)
        return FeasibleSet(self.bounds[:, self.free], limits)

    def sample(
        self, num_points: int, generator: torch.Generator | None, from_unit: FromUnit
    ) -> Tensor:
        """Draw points uniformly, by rejection, or by BoTorch's random walk if few are feasible.

        Args:
            num_points: The number of points.
            generator: A CPU generator; PyTorch's global one if omitted.
            from_unit: The map from the unit cube to the box.

        Returns:
            ``num_points x d``.

        Raises:
            ValueError: If :data:`MOST_DRAWS` draws contain no point that meets all constraints.
        """
        walks = self._walks(from_unit)
        found: list[Tensor] = []
        rejects = not walks or bool(self.nonlinear or self.discrete)
        num_found, num_drawn, size = 0, 0, max(64, 2 * num_points) if rejects else num_points
        while num_found < num_points:
            unit = torch.rand(size, self.dim, dtype=DTYPE, generator=generator)
            X = from_unit(unit.to(self.bounds))
            if walks:
                seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
                X[:, self.free] = self._of_free()._walk(size, seed)
            kept = X[self.contains(X)]
            found.append(kept)
            num_found, num_drawn = num_found + len(kept), num_drawn + size
            size = min(2 * size, 4096)
            if num_found == 0 and num_drawn >= MOST_DRAWS:
                raise ValueError(
                    f"none of {num_drawn} points drawn from the box meets all constraints: the "
                    "feasible set is empty, or too small to be found. Relax the constraints, "
                    "narrow the bounds to the feasible part, or use Arms of feasible "
                    "points."
                )
        return torch.cat([self.bounds[:0], *found])[:num_points]

    def _walks(self, from_unit: FromUnit) -> bool:
        """Whether points are drawn by a random walk."""
        part = self._of_free()
        if bool(self._is_equality.any()) or not part.linear:
            return bool(self._is_equality.any())
        unit = torch.rand(1024, self.dim, dtype=DTYPE, generator=torch.Generator().manual_seed(0))
        X = from_unit(unit.to(self.bounds))[:, self.free]
        return float(part.contains(X).double().mean()) < RARE

    def _walk(self, num_points: int, seed: int) -> Tensor:
        """Draw points by a random walk, which knows only linear constraints."""
        of_kind: dict[bool, list[tuple[Tensor, Tensor, float]]] = {False: [], True: []}
        for limit in self.linear:
            coefficients = torch.tensor(limit.coefficients, dtype=DTYPE)
            of_kind[limit.is_equality].append(
                (torch.tensor(limit.indices), coefficients, limit.rhs)
            )
        try:
            points = get_polytope_samples(
                num_points,
                self.bounds,
                inequality_constraints=of_kind[False] or None,
                equality_constraints=of_kind[True] or None,
                seed=seed,
                n_burnin=BURN_IN,
                n_thinning=THINNING,
            )
        except InfeasibilityError as error:
            raise ValueError(
                "inequality_constraints and equality_constraints contradict each other within the "
                "bounds: a linear program finds that no point of the box meets all of them. Relax "
                "them, or widen the box."
            ) from error
        return torch.minimum(torch.maximum(points.to(self.bounds), self.bounds[0]), self.bounds[1])

    def reduced(self, x: Tensor, free: Sequence[int]) -> dict[str, Any]:
        """Return the constraints on some dimensions of a point in the form of ``optimize_acqf``.

        Args:
            x: ``d`` coordinates, of which the others keep their values.
            free: ``k`` dimensions that vary, in the unit cube of their bounds.
        """
        low = self.bounds[0, list(free)]
        side = self.bounds[1, list(free)] - low
        others = x.clone()
        others[list(free)] = 0.0
        told: dict[str, Any] = {}
        matrix, rhs, _ = self.rows()
        left = rhs - matrix @ others - matrix[:, list(free)] @ low
        for limit, row, end in zip(self.linear, matrix[:, list(free)] * side, left, strict=True):
            used = row.nonzero().reshape(-1)
            if len(used):
                unit = float(row.norm())
                rows = told.setdefault(CONSTRAINTS[limit.is_equality], [])
                rows.append((used, row[used] / unit, float(end) / unit))
        if self.nonlinear:
            told["nonlinear_inequality_constraints"] = [
                (_OnFree(x, free, low, side, function), True) for function, _ in self.nonlinear
            ]
        return told

    def pulled(self, X: Tensor, start: Tensor) -> Tensor:
        """Return points that miss a constraint by little after moving them toward feasible ones.

        Args:
            X: ``n x d``; points returned by an optimizer.
            start: ``n x d`` feasible points from which the optimizer started.
        """
        step = X - start
        matrix = self.rows()[0][self._is_equality]
        if len(matrix):  # stay where all equalities hold
            step = step - (torch.linalg.pinv(matrix) @ (matrix @ step.T)).T
        pulled = start + step
        for k in range(len(X)):
            reach, whole = 0.0, 1.0
            if self._has(pulled[k]):
                continue
            for _ in range(40):
                middle = 0.5 * (reach + whole)
                if self._has(start[k] + middle * step[k]):
                    reach = middle
                else:
                    whole = middle
            pulled[k] = start[k] + reach * step[k]
        return pulled

    def _has(self, x: Tensor) -> bool:
        within = bool(((x >= self.bounds[0]) & (x <= self.bounds[1])).all())
        return within and bool(self.contains(x.unsqueeze(0)))


def _value(function: Callable[[Tensor], Any], x: Tensor) -> float:
    """Return the value of a nonlinear constraint at a point."""
    with torch.no_grad():
        value = function(x)
    called = _name_of(function)
    dtype = getattr(value, "dtype", None)
    if isinstance(value, bool) or dtype in (torch.bool, np.dtype(bool)):
        raise ValueError(
            f"{called} of nonlinear_inequality_constraints returned {value} at one point, and "
            "False counts as 0, which is feasible. Return a number that is negative if a "
            "point is infeasible."
        )
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        what = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(
            f"{called} of nonlinear_inequality_constraints returned {what} at one point; "
            "return one number, or a tensor with one element."
        ) from None


class _OnFree(AcquisitionFunction):
    """A function of all coordinates as a function of those that vary, in their unit cube."""

    def __init__(
        self,
        x: Tensor,
        free: Sequence[int],
        low: Tensor,
        side: Tensor,
        function: Callable[[Tensor], Any],
    ) -> None:
        torch.nn.Module.__init__(self)
        self._x, self._free, self._low, self._side = x, list(free), low, side
        self._function = [function]  # in a list, so that it does not become part of this module

    def whole(self, U: Tensor) -> Tensor:
        """Return all coordinates."""
        X = self._x.expand(*U.shape[:-1], -1).clone()
        X[..., self._free] = self._low + self._side * U
        return X

    def forward(self, U: Tensor) -> Any:
        return self._function[0](self.whole(U))


@dataclass(frozen=True)
class Search:
    """A search for the largest value of an acquisition function over a feasible set.

    Attributes:
        feasible: The feasible set.
        from_unit: The map from the unit cube to the box.
        values: The values of discrete dimensions.
        unordered: The discrete dimensions whose values have no order.
        num_restarts: The number of local searches.
        raw_samples: The number of points from which their starting points are chosen.
    """

    feasible: FeasibleSet
    from_unit: FromUnit
    values: Mapping[int, Sequence[float]]
    unordered: Sequence[int]
    num_restarts: int
    raw_samples: int

    def maximize(
        self, acquisition: AcquisitionFunction, generator: torch.Generator, near: Tensor | None
    ) -> tuple[Tensor, float]:
        """Return the best point found, and its value.

        Args:
            acquisition: The acquisition function, evaluated on ``b x 1 x d`` tensors.
            generator: The generator of all random draws.
            near: ``n x d`` further starting points, of which the feasible ones are used.
        """
        raw = self.feasible.sample(self.raw_samples, generator, self.from_unit)
        if near is not None and len(near):
            inside = (near >= self.feasible.bounds[0]) & (near <= self.feasible.bounds[1])
            kept = near[inside.all(-1)]
            raw = torch.cat([raw, kept[self.feasible.contains(kept)]])
        values = _evaluate(acquisition, raw)
        found = [(raw[values.argmax()], float(values.max()))]
        for starts in self._starts(acquisition, raw, values, generator):
            found.append(self._climb(acquisition, starts))
        best = max(found, key=lambda each: each[1])
        for _ in range(10 if self.values else 0):
            moved = self._step(acquisition, best)
            if moved is None:
                break
            best = moved
        return best

    def _starts(
        self,
        acquisition: AcquisitionFunction,
        raw: Tensor,
        values: Tensor,
        generator: torch.Generator,
    ) -> list[Tensor]:
        """Return starting points, grouped by their discrete values."""
        dims = list(self.values)
        combinations = math.prod(map(len, self.values.values()))
        if not dims or combinations > MOST_COMBINATIONS:
            count = min(self.num_restarts, len(raw))
            chosen, _ = initialize_q_batch(raw.unsqueeze(-2), values, count)
            groups: dict[tuple[float, ...], list[Tensor]] = {}
            for row in chosen.squeeze(-2):
                groups.setdefault(tuple(row[dims].tolist()), []).append(row)
            return [torch.stack(rows) for rows in groups.values()]
        each = max(2, -(-2 * self.num_restarts // combinations))
        starts = []
        for combination in itertools.product(*self.values.values()):
            rows = self._with(raw, dims, combination)
            if len(rows) == 0:
                continue
            own = _evaluate(acquisition, rows)
            starts.append(rows[own.argsort(descending=True)[:each]])
        return starts

    def _with(self, raw: Tensor, dims: Sequence[int], combination: Sequence[float]) -> Tensor:
        """Return feasible points with these discrete values: the same points with others."""
        rows = raw.clone()
        rows[:, list(dims)] = rows.new_tensor(combination)
        rows = torch.cat([raw[(raw[:, list(dims)] == rows[:, list(dims)]).all(-1)], rows])
        return rows[self.feasible.contains(rows)]

    def _climb(self, acquisition: AcquisitionFunction, starts: Tensor) -> tuple[Tensor, float]:
        """Return the best end of local searches from points with the same discrete values."""
        feasible = self.feasible
        fixed = {*feasible.held, *self.values}
        free = [i for i in range(feasible.dim) if i not in fixed]
        ends = starts
        if free:
            low = feasible.bounds[0, free]
            side = feasible.bounds[1, free] - low
            inner = _OnFree(starts[0], free, low, side, acquisition)
            at_once = 1 if feasible.nonlinear else max(1, VARIABLES_AT_ONCE // len(free))
            begin = ((starts[:, free] - low) / side).clamp(0.0, 1.0).unsqueeze(-2)
            # the function that optimize_acqf calls, which rejects results that miss a constraint by
            # rounding
            found = torch.cat(
                [
                    gen_candidates_scipy(
                        some,
                        inner,
                        lower_bounds=torch.zeros_like(low),
                        upper_bounds=torch.ones_like(low),
                        options={"maxiter": 200},
                        **feasible.reduced(starts[0], free),
                    )[0]
                    for some in begin.split(at_once)
                ]
            )
            searched = inner.whole(found.detach().reshape(len(starts), -1).clamp(0.0, 1.0))
            searched = torch.where(searched.isfinite(), searched, starts)
            ends = torch.cat([feasible.pulled(searched, starts), starts])
        ends = self._rounded(ends)
        ends = ends[feasible.contains(ends)] if len(ends) else ends
        ends = ends if len(ends) else starts
        values = _evaluate(acquisition, ends)
        best = int(values.argmax())
        return ends[best], float(values[best])

    def _rounded(self, X: Tensor) -> Tensor:
        """Return points whose discrete dimensions have allowed values, also those of long lists."""
        X = torch.minimum(torch.maximum(X, self.feasible.bounds[0]), self.feasible.bounds[1])
        for i in set(self.feasible.discrete) - set(self.values):
            X[:, i] = X[:, i].round()
        return X

    def _step(
        self, acquisition: AcquisitionFunction, best: tuple[Tensor, float]
    ) -> tuple[Tensor, float] | None:
        """Return the best result of changing one discrete value, if it is better."""
        x, value = best
        rows = []
        for i, known in self.values.items():
            at = min(range(len(known)), key=lambda k: abs(known[k] - float(x[i])))
            near = range(len(known)) if i in self.unordered else (at - 1, at + 1)
            for k in near:
                if 0 <= k < len(known) and k != at:
                    rows.append(x.clone())
                    rows[-1][i] = known[k]
        if not rows:
            return None
        X = torch.stack(rows)
        X = X[self.feasible.contains(X)]
        if len(X) == 0:
            return None
        values = _evaluate(acquisition, X)
        moved = self._climb(acquisition, X[int(values.argmax())].unsqueeze(0))
        return moved if moved[1] > value else None


def _evaluate(acquisition: AcquisitionFunction, X: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([acquisition(rows.unsqueeze(-2)) for rows in X.split(4096)])
