"""The coordinates of a box: intervals, whole numbers or their logarithms, and single values.

A part of a box is a box with other coordinates. A context puts single values in front of a point,
and a parameter that is fixed has a single value instead of a range.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Whole:
    """The whole numbers of a coordinate, which may stand for categories.

    Attributes:
        low: The smallest number.
        high: The largest number.
        has_order: Whether neighbors are similar.
    """

    low: int
    high: int
    has_order: bool = True

    @property
    def count(self) -> int:
        """The number of values."""
        return self.high - self.low + 1

    def values(self) -> list[float]:
        """Return all values of the coordinate in order."""
        return [float(value) for value in range(self.low, self.high + 1)]

    def at_shares(self, shares: Tensor) -> Tensor:
        """Return the values at fractions of the range, of which every value has an equal share.

        Args:
            shares: Numbers from 0 to 1, 1 excluded.
        """
        return self.low + torch.floor(shares * self.count)

    def nearest(self, coordinates: Tensor) -> Tensor:
        """Return the nearest values.

        Args:
            coordinates: Numbers in the range.
        """
        return coordinates.round()


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates of a box, and of each of its parts.

    Attributes:
        bounds: ``2 x d``, lower bounds first. A coordinate with equal bounds has a single value.
        grids: The values of the coordinates that are no intervals, by coordinate.
    """

    bounds: Tensor
    grids: Mapping[int, Whole]

    @property
    def dim(self) -> int:
        """The number of coordinates, ``d``."""
        return int(self.bounds.shape[-1])

    @cached_property
    def held(self) -> dict[int, float]:
        """The coordinates with a single value, such as those of a context, and the values."""
        ends = zip(*self.bounds.tolist(), strict=True)
        return {i: low for i, (low, high) in enumerate(ends) if low == high}

    @property
    def free(self) -> list[int]:
        """The continuous coordinates that vary."""
        return [i for i in range(self.dim) if i not in self.grids and i not in self.held]

    @property
    def sides(self) -> Tensor:
        """The side lengths, ``d`` numbers."""
        return self.bounds[1] - self.bounds[0]

    @property
    def unordered(self) -> tuple[int, ...]:
        """The coordinates whose values have no order."""
        return tuple(i for i, grid in self.grids.items() if not grid.has_order)

    def behind(self, front: Tensor) -> Coordinates:
        """Return the coordinates of points with single values before the others.

        Args:
            front: The single values, such as a context.
        """
        bounds = torch.cat([front.to(self.bounds).expand(2, -1), self.bounds], dim=-1)
        return Coordinates(bounds, {i + len(front): grid for i, grid in self.grids.items()})

    def holding(self, values: Mapping[int, float]) -> Coordinates:
        """Return the coordinates of points with given values of some coordinates.

        Args:
            values: By coordinate, within the bounds.
        """
        bounds = self.bounds.clone()
        for i, value in values.items():
            bounds[:, i] = value
        return Coordinates(bounds, {i: g for i, g in self.grids.items() if i not in values})

    def from_unit(self, uniform: Tensor) -> Tensor:
        """Return points from points of the unit cube, so that uniform points stay uniform.

        Args:
            uniform: ``... x d`` numbers from 0 to 1, 1 excluded.
        """
        points = self.bounds[0] + self.sides * uniform
        for i, grid in self.grids.items():
            points[..., i] = grid.at_shares(uniform[..., i])
        return torch.minimum(points, self.bounds[1])  # rounding may carry a point past the end

    def snap(self, points: Tensor) -> Tensor:
        """Return the nearest points.

        Args:
            points: ``... x d``.
        """
        points = torch.minimum(torch.maximum(points, self.bounds[0]), self.bounds[1])
        for i, grid in self.grids.items():
            points[..., i] = grid.nearest(points[..., i])
        return points

    def has(self, points: Tensor) -> Tensor:
        """Return which points have these coordinates, up to rounding.

        Args:
            points: ``... x d``.
        """
        return ((self.snap(points) - points).abs() <= ROUNDING * self.sides).all(-1)

    def all_points(self, most: int) -> Tensor | None:
        """Return all points, ``n x d``; None if there are more than some number.

        Args:
            most: The largest number of points.
        """
        if self.free or math.prod(grid.count for grid in self.grids.values()) > most:
            return None
        values = [
            self.grids[i].values() if i in self.grids else [self.held[i]] for i in range(self.dim)
        ]
        return self.bounds.new_tensor(list(itertools.product(*values)))


ROUNDING = 1e-9
"""How far a point may miss a coordinate, as a share of the side."""
