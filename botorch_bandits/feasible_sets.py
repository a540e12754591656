"""The part of a box that meets constraints, in the formats of BoTorch's ``optimize_acqf``.

A :class:`FeasibleSet` determines whether points are in it, names the constraint that a point
violates, draws from itself and maximizes acquisition functions over itself. It knows only
coordinates: the box to which it belongs states which of them take integers and which are fixed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.generation.gen import gen_candidates_scipy
from botorch.optim.initializers import initialize_q_batch
from botorch.utils.sampling import get_polytope_samples
from scipy.optimize import Bounds, LinearConstraint, milp
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_callable, check_integer, check_number, check_vector

INEQUALITY, EQUALITY = 1e-9, 1e-7
"""How far a point may miss a linear constraint, as a share of the range of its sum on the box."""

NONLINEAR = 1e-9
"""How far the value of a nonlinear constraint may lie below 0."""

LEAST_ROOM = 1e-7
"""A linear constraint whose largest slack is below this share of its range is not an inequality."""

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


def _is_list(given: Any, length: int | None = None) -> bool:
    return isinstance(given, list | tuple) and length in (None, len(given))


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
    if not _is_list(given):
        raise TypeError(
            f"{name} is {given!r}; pass a list of (indices, coefficients, rhs) triples, as in "
            "[([0, 1], [1.0, 1.0], 0.5)] for x[0] + x[1] and 0.5."
        )
    found = []
    for k, triple in enumerate(given):
        where = f"{name}[{k}]"
        if not _is_list(triple, 3):
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
    if not _is_list(listed):
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
    if not _is_list(given):
        raise TypeError(f"{name} is {given!r}; pass a list of (function, True) pairs.")
    for k, pair in enumerate(given):
        where = f"{name}[{k}]"
        if not _is_list(pair, 2):
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


@dataclass(frozen=True, eq=False)
class FeasibleSet:
    """The points of a box that meet all constraints.

    Attributes:
        bounds: ``2 x d``; the bounds of the box.
        inequality: Constraints ``sum(coefficients * x[indices]) >= rhs``.
        equality: Constraints ``sum(coefficients * x[indices]) == rhs``, on continuous dimensions.
        nonlinear: Constraints ``function(x) >= 0``. A function with the attribute ``takes_rows`` is
            called with many points at once.
        discrete: The dimensions that take finitely many values.
        num_fixed: The number of first coordinates that are fixed, such as a context; they are in
            ``bounds``, and constraints do not count them.
        held: Further coordinates that have a single value, which is in ``bounds``.
        names: The names of the coordinates after the first ones, for error messages; ``x[0]`` and
            so on if empty.
    """

    bounds: Tensor
    inequality: tuple[Linear, ...] = ()
    equality: tuple[Linear, ...] = ()
    nonlinear: tuple[Nonlinear, ...] = ()
    discrete: tuple[int, ...] = ()
    num_fixed: int = 0
    held: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def behind(self, front: Tensor) -> FeasibleSet:
        """Return the set of points with fixed coordinates before the others.

        Args:
            front: The values of the fixed coordinates.
        """
        bounds = torch.cat([front.to(self.bounds).expand(2, -1), self.bounds], dim=-1)
        discrete, held = (
            tuple(i + len(front) for i in dims) for dims in (self.discrete, self.held)
        )
        in_front = self.num_fixed + len(front)
        return replace(self, bounds=bounds, discrete=discrete, num_fixed=in_front, held=held)

    def holding(self, values: Mapping[int, float]) -> FeasibleSet:
        """Return the set of points with given values of some coordinates.

        Args:
            values: By coordinate, within the bounds; coordinates after those that are already
                fixed.

        Raises:
            ValueError: If a constraint applies only to these coordinates and is violated.
        """
        bounds = self.bounds.clone()
        told = {i + self.num_fixed: value for i, value in values.items()}
        for i, value in told.items():
            bounds[:, i] = value
        left = []
        for name, linear, sign in (
            ("inequality_constraints", self.inequality, ">="),
            ("equality_constraints", self.equality, "=="),
        ):
            _, _, scales = self.rows(linear)
            kept = []
            for k, (indices, coefficients, rhs) in enumerate(linear):
                pairs = list(zip(indices, coefficients, strict=True))
                rest = rhs - math.fsum(c * values[i] for i, c in pairs if i in values)
                free = [(i, c) for i, c in pairs if i not in values]
                if free:
                    some, factors = zip(*free, strict=True)
                    kept.append((some, factors, rest))
                    continue
                share = -rest / float(scales[k])
                if share < -INEQUALITY if sign == ">=" else abs(share) > EQUALITY:
                    raise ValueError(
                        f"{name}[{k}] is violated: its sum is {rhs - rest:.6g}, and it must be "
                        f"{sign} {rhs:g}."
                    )
            left.append(tuple(kept))
        return replace(
            self,
            bounds=bounds,
            inequality=left[0],
            equality=left[1],
            discrete=tuple(i for i in self.discrete if i not in told),
            held=tuple(sorted({*self.held, *told})),
        )

    @property
    def dim(self) -> int:
        """The dimension of the points, including fixed coordinates."""
        return self.bounds.shape[-1]

    def rows(self, linear: Sequence[Linear]) -> tuple[Tensor, Tensor, Tensor]:
        """Return matrix, right-hand sides and scales of linear constraints.

        Args:
            linear: ``m`` constraints.

        Returns:
            ``m x d``, ``m`` and ``m`` numbers; the scale is the range of a sum on the box.
        """
        matrix = self.bounds.new_zeros(len(linear), self.dim)
        for k, (indices, coefficients, _) in enumerate(linear):
            for i, value in zip(indices, coefficients, strict=True):
                matrix[k, i + self.num_fixed] = value
        rhs = self.bounds.new_tensor([each[2] for each in linear])
        return matrix, rhs, matrix.abs() @ (self.bounds[1] - self.bounds[0])

    def slacks(self, X: Tensor) -> Tensor:
        """Return the slacks of all but the nonlinear constraints, which are negative if violated.

        Args:
            X: ``n x d`` points.

        Returns:
            ``n x m``, as shares of the range of a sum, with the tolerance added.
        """
        parts = []
        for linear, tolerance in ((self.inequality, INEQUALITY), (self.equality, EQUALITY)):
            if linear:
                matrix, rhs, scale = self.rows(linear)
                left = (X @ matrix.T - rhs) / scale
                parts.append((left if linear is self.inequality else -left.abs()) + tolerance)
        return torch.cat(parts, dim=-1) if parts else X.new_zeros(len(X), 0)

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
                    inside &= function(X[:, self.num_fixed :]) >= -NONLINEAR
                continue
            for k in inside.nonzero().reshape(-1).tolist():
                if not self._value(function, X[k]) >= -NONLINEAR:
                    inside[k] = False
        return inside

    def _value(self, function: Callable[[Tensor], Any], x: Tensor) -> float:
        with torch.no_grad():
            value = function(x[self.num_fixed :])
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

    def check(self, name: str, x: Tensor) -> None:
        """Raise an error if a point violates a constraint, naming the constraint and its value.

        Args:
            name: The name of the argument, for error messages.
            x: A point of the box.

        Raises:
            ValueError: If it violates one.
        """
        point = x[self.num_fixed :].tolist()
        left = self.slacks(x.unsqueeze(0)).squeeze(0)
        told = [("inequality_constraints", k, ">=") for k in range(len(self.inequality))]
        told += [("equality_constraints", k, "==") for k in range(len(self.equality))]
        linear = [*self.inequality, *self.equality]
        for (argument, k, sign), (indices, coefficients, rhs), slack in zip(
            told, linear, left.tolist(), strict=True
        ):
            if slack < 0.0:
                pairs = list(zip(indices, coefficients, strict=True))
                total = math.fsum(c * point[i] for i, c in pairs)
                named = self.names or [f"x[{i}]" for i in range(len(point))]
                words = " + ".join(f"{c:g} * {named[i]}" for i, c in pairs)
                raise ValueError(
                    f"{name} is {point}, which violates {argument}[{k}]: {words} {sign} {rhs:g}, "
                    f"but the sum is {total:.6g}. Move the point, or relax the constraint."
                )
        for k, (function, _) in enumerate(self.nonlinear):
            value = self._value(function, x)
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

    def check_not_empty(self, from_unit: FromUnit, whole: Sequence[int]) -> None:
        """Raise an error if no point meets all constraints.

        For linear constraints, this is decided by a linear program, with integers where required.

        Args:
            from_unit: The map from the unit cube to the box.
            whole: Dimensions that take integers.

        Raises:
            ValueError: If there is none, an equality is on a discrete dimension, or a function has
                no gradient although there are continuous dimensions.
        """
        for k, (indices, _, _) in enumerate(self.equality):
            on_discrete = sorted(set(indices) & set(self.discrete))
            if on_discrete:
                raise ValueError(
                    f"equality_constraints[{k}] is on dimension {on_discrete[0]}, which takes "
                    "finitely many values, so that a uniform draw hardly ever meets it. Solve it "
                    "for one dimension and leave that out, or use Arms of the feasible points."
                )
        room = self._linear_program(whole)
        if room is None:
            raise ValueError(
                "inequality_constraints and equality_constraints contradict each other within the "
                "bounds: a linear program finds that no point of the box meets all of them. "
                f"{self._alone(whole)}Relax them, or widen the box."
            )
        if room < LEAST_ROOM:
            raise ValueError(
                "inequality_constraints and equality_constraints leave no room: wherever they "
                "hold, a continuous dimension is at its bound or an inequality is an equality. "
                "Write such an inequality as equality_constraints, and leave out dimensions that "
                "are then fixed."
            )
        if self.nonlinear or self.discrete:
            point = self.sample(1, torch.Generator().manual_seed(0), from_unit).squeeze(0)
            if any(i not in self.discrete and i not in self.held for i in range(self.dim)):
                self._check_gradients(point)

    def _check_gradients(self, x: Tensor) -> None:
        """Raise an error unless the nonlinear constraints have gradients at a feasible point."""
        for k, (function, _) in enumerate(self.nonlinear):
            if getattr(function, "takes_rows", False):
                continue
            try:
                value = function(x[self.num_fixed :].clone().requires_grad_(True))
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

    def _alone(self, whole: Sequence[int]) -> str:
        """Return which constraint cannot be met even on its own, if there is one."""
        for argument in ("inequality", "equality"):
            for k, each in enumerate(getattr(self, argument)):
                pair = ((each,), ()) if argument == "inequality" else ((), (each,))
                alone = FeasibleSet(self.bounds, pair[0], pair[1], held=self.held)
                if alone._linear_program(whole) is None:
                    return f"{argument}_constraints[{k}] cannot be met even on its own. "
        return ""

    def _linear_program(self, whole: Sequence[int]) -> float | None:
        """Return the largest slack that linear constraints and bounds can have; None if infeasible.

        It is a share of the range of a sum, or of the side of a continuous dimension.
        """
        low, high = self.bounds.cpu().numpy()
        # the last variable is the slack, as a share, that all inequalities have, at most 1
        constraints = []
        for linear, is_equality in ((self.inequality, False), (self.equality, True)):
            if linear:
                matrix, rhs, scale = (each.cpu().numpy() for each in self.rows(linear))
                left = np.zeros(len(rhs)) if is_equality else -np.ones(len(rhs))
                top = rhs / scale if is_equality else np.full(len(rhs), np.inf)
                table = np.column_stack([matrix / scale[:, None], left])
                constraints.append(LinearConstraint(table, rhs / scale, top))
        free = [i for i in range(self.dim) if i not in self.discrete and i not in self.held]
        sides = np.eye(self.dim)[free] / (high - low)[free, None]
        for sign, ends in ((1.0, low), (-1.0, high)) if free else ():
            table = np.column_stack([sign * sides, -np.ones(len(free))])
            constraints.append(
                LinearConstraint(table, sign * ends[free] / (high - low)[free], np.inf)
            )
        integrality = np.zeros(self.dim + 1)
        integrality[list(whole)] = 1
        found = milp(
            c=np.append(np.zeros(self.dim), -1.0),
            constraints=constraints,
            integrality=integrality,
            bounds=Bounds(np.append(low, 0.0), np.append(high, 1.0)),
        )
        return None if found.x is None else float(found.x[-1])

    def _continuous(self) -> tuple[list[int], list[Linear], list[Linear]]:
        """Return the continuous dimensions that vary, and the linear constraints on these alone."""
        one_value = {*self.discrete, *self.held}
        free = [i for i in range(self.num_fixed, self.dim) if i not in one_value]
        place = {i - self.num_fixed: k for k, i in enumerate(free)}
        kept = [
            [
                (tuple(place[i] for i in indices), coefficients, rhs)
                for indices, coefficients, rhs in linear
                if all(i in place for i in indices)
            ]
            for linear in (self.inequality, self.equality)
        ]
        return free, kept[0], kept[1]

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
                free, inequality, equality = self._continuous()
                seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
                X[:, free] = self._walk(size, seed, free, inequality, equality)
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
        if self.equality:
            return True
        free, inequality, _ = self._continuous()
        if not inequality:
            return False
        unit = torch.rand(1024, self.dim, dtype=DTYPE, generator=torch.Generator().manual_seed(0))
        X = from_unit(unit.to(self.bounds))[:, free]
        part = FeasibleSet(self.bounds[:, free], tuple(inequality))
        return float(part.contains(X).double().mean()) < RARE

    def _walk(
        self,
        num_points: int,
        seed: int,
        free: Sequence[int],
        inequality: Sequence[Linear],
        equality: Sequence[Linear],
    ) -> Tensor:
        points = get_polytope_samples(
            num_points,
            self.bounds[:, list(free)],
            inequality_constraints=as_tensors(inequality) or None,
            equality_constraints=as_tensors(equality) or None,
            seed=seed,
            n_burnin=BURN_IN,
            n_thinning=THINNING,
        )
        low, high = self.bounds[:, list(free)]
        return torch.minimum(torch.maximum(points.to(self.bounds), low), high)

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
        for name, linear in (("inequality", self.inequality), ("equality", self.equality)):
            matrix, rhs, _ = self.rows(linear)
            coefficients = matrix[:, list(free)] * side
            left = rhs - matrix @ others - matrix[:, list(free)] @ low
            rows = []
            for row, limit in zip(coefficients, left, strict=True):
                used = row.nonzero().reshape(-1)
                if len(used):
                    unit = float(row.norm())
                    rows.append((used, row[used] / unit, float(limit) / unit))
            if rows:
                told[f"{name}_constraints"] = rows
        if self.nonlinear:
            told["nonlinear_inequality_constraints"] = [
                (_OnFree(x, free, low, side, self.num_fixed, function), True)
                for function, _ in self.nonlinear
            ]
        return told

    def pulled(self, X: Tensor, start: Tensor) -> Tensor:
        """Return points that miss a constraint by little after moving them toward feasible ones.

        Args:
            X: ``n x d``; points returned by an optimizer.
            start: ``n x d`` feasible points from which the optimizer started.
        """
        step = X - start
        if self.equality:  # stay where all equalities hold
            matrix, _, _ = self.rows(self.equality)
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


def as_tensors(linear: Sequence[Linear]) -> list[tuple[Tensor, Tensor, float]]:
    """Return linear constraints in BoTorch's form.

    Args:
        linear: The constraints in plain numbers.
    """
    return [
        (torch.tensor(indices), torch.tensor(coefficients, dtype=DTYPE), rhs)
        for indices, coefficients, rhs in linear
    ]


class _OnFree(AcquisitionFunction):
    """A function of all coordinates as a function of those that vary, in their unit cube."""

    def __init__(
        self,
        x: Tensor,
        free: Sequence[int],
        low: Tensor,
        side: Tensor,
        num_left_out: int,
        function: Callable[[Tensor], Any],
    ) -> None:
        torch.nn.Module.__init__(self)
        self._x, self._free, self._low, self._side = x, list(free), low, side
        self._num_left_out = num_left_out
        self._function = [function]  # in a list, so that it does not become part of this module

    def whole(self, U: Tensor) -> Tensor:
        """Return all coordinates."""
        X = self._x.expand(*U.shape[:-1], -1).clone()
        X[..., self._free] = self._low + self._side * U
        return X

    def forward(self, U: Tensor) -> Any:
        return self._function[0](self.whole(U)[..., self._num_left_out :])


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
        fixed = {*range(feasible.num_fixed), *feasible.held, *self.values}
        free = [i for i in range(feasible.dim) if i not in fixed]
        ends = starts
        if free:
            low = feasible.bounds[0, free]
            side = feasible.bounds[1, free] - low
            inner = _OnFree(starts[0], free, low, side, 0, acquisition)
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
