"""The part of a box that meets constraints, in the formats of BoTorch's ``optimize_acqf``.

A :class:`FeasibleSet` determines whether points are in it, names the constraint that a point
violates, draws from itself and maximizes acquisition functions over itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
    check_instance,
    check_integer,
    check_number,
    check_vector,
    is_list,
    name_of,
)
from botorch_bandits.optim import Coordinates, neighbors

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
        shown = [f"({name_of(one[0])}, True)" if len(one) == 2 else repr(one) for one in each]
        told += f", {name}=[{', '.join(shown)}]"
    return told


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


@dataclass(frozen=True)
class Condition:
    """A nonlinear constraint: a function of a point must be at least 0.

    Attributes:
        function: The function.
        name: How error messages call the constraint.
        takes_rows: Whether the function is called with many points at once.
        num_left_out: How many of a point's first coordinates the function does not see.
    """

    function: Callable[[Tensor], Any]
    name: str
    takes_rows: bool = False
    num_left_out: int = 0

    def behind(self, count: int) -> Condition:
        """Return the same constraint on points with more coordinates before the others.

        Args:
            count: The number of coordinates.
        """
        return replace(self, num_left_out=self.num_left_out + count)

    def __call__(self, X: Tensor) -> Any:
        """Return what the function returns at ``d`` coordinates, or ``n x d`` if it takes rows."""
        return self.function(X[..., self.num_left_out :])

    def holds(self, X: Tensor) -> Tensor:
        """Return which of ``n x d`` points meet the constraint, ``n`` booleans."""
        if not self.takes_rows:
            met = [self.value(x) >= -NONLINEAR for x in X]
            return torch.tensor(met, dtype=torch.bool, device=X.device)
        with torch.no_grad():
            met_by_rows: Tensor = self(X) >= -NONLINEAR
            return met_by_rows

    def value(self, x: Tensor) -> float:
        """Return the value of the function at a point.

        Args:
            x: ``d`` coordinates.

        Raises:
            ValueError: If it is not one number.
        """
        with torch.no_grad():
            value = self(x)
        if getattr(value, "dtype", type(value)) in (bool, torch.bool, np.dtype(bool)):
            raise ValueError(
                f"{name_of(self.function)} of nonlinear_inequality_constraints returned {value} at "
                "one point, and False counts as 0, which is feasible. Return a number that is "
                "negative if a point is infeasible."
            )
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            shape = getattr(value, "shape", None)
            what = repr(value) if shape is None else f"shape {tuple(shape)}"
            raise ValueError(
                f"{name_of(self.function)} of nonlinear_inequality_constraints returned {what} at "
                "one point; return one number, or a tensor with one element."
            ) from None

    def has_gradient(self, x: Tensor) -> bool:
        """Return whether the function has a gradient at a point."""
        try:
            return bool(getattr(self(x.clone().requires_grad_(True)), "requires_grad", False))
        except (RuntimeError, TypeError):  # NumPy does not accept tensors with a gradient
            return False


def read_linear(given: Any, dim: int, is_equality: bool) -> tuple[Limit, ...]:
    """Return linear constraints.

    Args:
        given: ``(indices, coefficients, rhs)`` triples, or None.
        dim: The dimension of the points.
        is_equality: Whether they are equalities.

    Raises:
        TypeError: If something has the wrong type.
        ValueError: If an index does not exist or is repeated, numbers are missing or not finite, or
            all coefficients are 0.
    """
    name = CONSTRAINTS[is_equality]
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
        found.append(Limit(tuple(indices), tuple(coefficients.tolist()), rhs, is_equality, where))
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


def read_nonlinear(given: Any) -> tuple[Condition, ...]:
    """Return nonlinear constraints after checking them.

    Args:
        given: ``(function, True)`` pairs, or None.

    Raises:
        TypeError: If something has the wrong type.
        ValueError: If a constraint applies to several points jointly.
    """
    name, found = CONSTRAINTS[2], []
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
        check_instance(where, pair[0], Callable, "Pass a function of a point, and True.")
        if pair[1] is not True:
            raise ValueError(
                f"{where} has {pair[1]!r} after its function, but a loop asks for one point at a "
                "time: pass True, for a constraint on each point separately."
            )
        found.append(Condition(pair[0], where))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class FeasibleSet:
    """The points of a box that meet all constraints.

    Attributes:
        coordinates: The coordinates of the box.
        linear: Constraints on sums of coordinates.
        nonlinear: Constraints on functions of points.
        names: The names of the coordinates, for error messages; ``x[0]`` and so on if empty.
    """

    coordinates: Coordinates
    linear: tuple[Limit, ...] = ()
    nonlinear: tuple[Condition, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def given(self) -> dict[str, Any]:
        """The constraints as a user gave them, by the names of the arguments."""
        found: dict[str, Any] = {}
        for limit in self.linear:
            found.setdefault(CONSTRAINTS[limit.is_equality], []).append(limit[:3])
        for condition in self.nonlinear:
            found.setdefault(CONSTRAINTS[2], []).append((condition.function, True))
        return found

    def behind(self, coordinates: Coordinates) -> FeasibleSet:
        """Return the set of points with single values before the other coordinates.

        Args:
            coordinates: The coordinates of these points.
        """
        count = coordinates.dim - self.coordinates.dim
        return FeasibleSet(
            coordinates,
            tuple(limit.at(i + count for i in limit.indices) for limit in self.linear),
            tuple(condition.behind(count) for condition in self.nonlinear),
        )

    def holding(self, values: Mapping[int, float]) -> FeasibleSet:
        """Return the set of points with given values of some coordinates.

        Args:
            values: By coordinate, within the bounds.

        Raises:
            ValueError: If a constraint applies only to these coordinates and is violated.
        """
        kept = []
        for limit, scale in zip(self.linear, self.rows[2].tolist(), strict=True):
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
        return replace(self, coordinates=self.coordinates.holding(values), linear=tuple(kept))

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """Matrix, right-hand sides and scales of the ``m`` linear constraints.

        These are ``m x d``, ``m`` and ``m`` numbers; the scale is the range of a sum on the box.
        """
        sides = self.coordinates.sides
        matrix = sides.new_zeros(len(self.linear), len(sides))
        for row, limit in zip(matrix, self.linear, strict=True):
            row[list(limit.indices)] = row.new_tensor(limit.coefficients)
        rhs = sides.new_tensor([limit.rhs for limit in self.linear])
        return matrix, rhs, matrix.abs() @ sides

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
        matrix, rhs, scale = self.rows
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
        for condition in self.nonlinear:
            inside[inside.clone()] = condition.holds(X[inside])
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
        for condition in self.nonlinear:
            value = condition.value(x)
            if not value >= -NONLINEAR:
                raise ValueError(
                    f"{name} is {point}, which violates {condition.name}: "
                    f"{name_of(condition.function)} is {value:.6g} there, but it must be at least "
                    "0. Move the point, or relax the constraint."
                )

    def check_not_empty(self) -> None:
        """Raise an error if no point meets all constraints.

        For linear constraints that leave little of the box, a linear program decides it, with which
        a random walk begins.

        Raises:
            ValueError: If there is none, an equality is on a discrete dimension, or a function has
                no gradient although there are continuous dimensions.
        """
        for limit in self.linear:
            on_discrete = sorted(set(limit.indices) & self.coordinates.grids.keys())
            if limit.is_equality and on_discrete:
                raise ValueError(
                    f"{limit.name} is on dimension {on_discrete[0]}, which takes finitely many "
                    "values, so that a uniform draw hardly ever meets it. Solve it for one "
                    "dimension and leave that out, or use Arms of the feasible points."
                )
        if self.only_point() is not None:
            raise ValueError(
                "inequality_constraints and equality_constraints leave no room: wherever they "
                "hold, a continuous dimension is at its bound or an inequality is an equality. "
                "Write such an inequality as equality_constraints, and leave out dimensions that "
                "are then fixed."
            )
        one = self.sample(1, torch.Generator().manual_seed(0)).squeeze(0)
        for condition in self.nonlinear if self.coordinates.free else ():
            if not (condition.takes_rows or condition.has_gradient(one)):
                raise ValueError(
                    f"{name_of(condition.function)} of {condition.name} has no gradient, which "
                    "searches on continuous dimensions need. Compute it from the point in PyTorch, "
                    "without float(), .numpy() or comparisons; or use Arms of feasible points."
                )

    def only_point(self) -> Tensor | None:
        """Return the point if the set leaves no room to a continuous dimension; otherwise None.

        Raises:
            ValueError: If there is none.
        """
        free = self.coordinates.free
        one, other = self.sample(2, torch.Generator().manual_seed(0))
        if not free or bool(
            ((one - other).abs() > LEAST_ROOM * self.coordinates.sides)[free].any()
        ):
            return None
        matrix, rhs, _ = (part[self._is_equality] for part in self.rows)
        if len(matrix):  # the walk misses an equality by rounding
            matrix, missing = matrix[:, free], rhs - matrix @ one
            one[free] = one[free] + torch.linalg.pinv(matrix) @ missing
        return one

    def _of_free(self) -> FeasibleSet:
        """Return the continuous dimensions as a set, with the linear constraints on these alone."""
        free = self.coordinates.free
        kept = [limit for limit in self.linear if set(limit.indices) <= set(free)]
        limits = tuple(limit.at(map(free.index, limit.indices)) for limit in kept)
        return FeasibleSet(Coordinates(self.coordinates.bounds[:, free], {}), limits)

    def sample(self, num_points: int, generator: torch.Generator | None) -> Tensor:
        """Draw points uniformly, by rejection, or by BoTorch's random walk if few are feasible.

        Args:
            num_points: The number of points.
            generator: A CPU generator; PyTorch's global one if omitted.

        Returns:
            ``num_points x d``.

        Raises:
            ValueError: If :data:`MOST_DRAWS` draws contain no point that meets all constraints.
        """
        coordinates, walks = self.coordinates, self._walks()
        found = [coordinates.bounds[:0]]
        rejects = not walks or bool(self.nonlinear or coordinates.grids)
        num_found, num_drawn, size = 0, 0, max(64, 2 * num_points) if rejects else num_points
        while num_found < num_points:
            unit = torch.rand(size, coordinates.dim, dtype=DTYPE, generator=generator)
            X = coordinates.from_unit(unit.to(coordinates.bounds))
            if walks:
                seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
                X[:, coordinates.free] = self._of_free()._walk(size, seed)
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
        return torch.cat(found)[:num_points]

    def _walks(self) -> bool:
        """Whether points are drawn by a random walk."""
        part, coordinates = self._of_free(), self.coordinates
        if bool(self._is_equality.any()) or not part.linear:
            return bool(self._is_equality.any())
        source = torch.Generator().manual_seed(0)
        unit = torch.rand(1024, coordinates.dim, dtype=DTYPE, generator=source)
        X = coordinates.from_unit(unit.to(coordinates.bounds))[:, coordinates.free]
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
                self.coordinates.bounds,
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
        return self.coordinates.snap(points.to(self.coordinates.bounds))

    def reduced(self, x: Tensor, free: Sequence[int]) -> dict[str, Any]:
        """Return the constraints on some dimensions of a point in the form of ``optimize_acqf``.

        Args:
            x: ``d`` coordinates, of which the others keep their values.
            free: ``k`` dimensions that vary, in the unit cube of their bounds.
        """
        low, side = self.coordinates.bounds[0, list(free)], self.coordinates.sides[list(free)]
        others = x.clone()
        others[list(free)] = 0.0
        told: dict[str, Any] = {}
        matrix, rhs, _ = self.rows
        left = rhs - matrix @ others - matrix[:, list(free)] @ low
        for limit, row, end in zip(self.linear, matrix[:, list(free)] * side, left, strict=True):
            used = row.nonzero().reshape(-1)
            if len(used):
                unit = float(row.norm())
                rows = told.setdefault(CONSTRAINTS[limit.is_equality], [])
                rows.append((used, row[used] / unit, float(end) / unit))
        if self.nonlinear:
            told["nonlinear_inequality_constraints"] = [
                (_OnFree(x, free, low, side, condition), True) for condition in self.nonlinear
            ]
        return told

    def pulled(self, X: Tensor, start: Tensor) -> Tensor:
        """Return points that miss a constraint by little after moving them toward feasible ones.

        Args:
            X: ``n x d``; points returned by an optimizer.
            start: ``n x d`` feasible points from which the optimizer started.
        """
        step = X - start
        matrix = self.rows[0][self._is_equality]
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
        low, high = self.coordinates.bounds
        within = bool(((x >= low) & (x <= high)).all())
        return within and bool(self.contains(x.unsqueeze(0)))


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
        num_restarts: The number of local searches.
        raw_samples: The number of points from which their starting points are chosen.
    """

    feasible: FeasibleSet
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
        raw = self.feasible.sample(self.raw_samples, generator)
        if near is not None and len(near):
            kept = near[self.feasible.coordinates.has(near)]
            raw = torch.cat([raw, kept[self.feasible.contains(kept)]])
        values = _evaluate(acquisition, raw)
        found = [(raw[values.argmax()], float(values.max()))]
        found += [self._climb(acquisition, starts) for starts in self._starts(raw, values)]
        best = max(found, key=lambda each: each[1])
        for _ in range(10 if self.feasible.coordinates.grids else 0):
            moved = self._step(acquisition, best)
            if moved is None:
                break
            best = moved
        return best

    def _starts(self, raw: Tensor, values: Tensor) -> list[Tensor]:
        """Return starting points, grouped by their discrete values."""
        chosen, _ = initialize_q_batch(raw.unsqueeze(-2), values, min(self.num_restarts, len(raw)))
        groups: dict[tuple[float, ...], list[Tensor]] = {}
        discrete = list(self.feasible.coordinates.grids)
        for row in chosen.squeeze(-2):
            groups.setdefault(tuple(row[discrete].tolist()), []).append(row)
        return [torch.stack(rows) for rows in groups.values()]

    def _climb(self, acquisition: AcquisitionFunction, starts: Tensor) -> tuple[Tensor, float]:
        """Return the best end of local searches from points with the same discrete values."""
        feasible, coordinates = self.feasible, self.feasible.coordinates
        free, ends = coordinates.free, starts
        if free:
            low, side = coordinates.bounds[0, free], coordinates.sides[free]
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
        ends = coordinates.snap(ends)
        ends = ends[feasible.contains(ends)] if len(ends) else ends
        ends = ends if len(ends) else starts
        values = _evaluate(acquisition, ends)
        best = int(values.argmax())
        return ends[best], float(values[best])

    def _step(
        self, acquisition: AcquisitionFunction, best: tuple[Tensor, float]
    ) -> tuple[Tensor, float] | None:
        """Return the best result of changing one discrete value, if it is better."""
        x, value = best
        X = neighbors(x, self.feasible.coordinates.grids)
        X = X[self.feasible.contains(X)]
        if len(X) == 0:
            return None
        values = _evaluate(acquisition, X)
        moved = self._climb(acquisition, X[int(values.argmax())].unsqueeze(0))
        return moved if moved[1] > value else None


def _evaluate(acquisition: AcquisitionFunction, X: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([acquisition(rows.unsqueeze(-2)) for rows in X.split(4096)])
