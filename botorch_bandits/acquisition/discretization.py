"""The growing discretisation of a box on which Theorem 4 of GP-TS draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from botorch_bandits.checks import check_integer, check_positive, store_checked
from botorch_bandits.domains import Box


@dataclass(frozen=True)
class GrowingDiscretization:
    r"""A grid so fine in round ``t`` that rounding to it costs at most ``1 / t^2``.

    A function whose slope along each axis is at most ``B L`` differs by at most ``1 / t^2`` between
    a point and the nearest of a grid with ``ceil(B L r d t^2)`` points a side, ``r`` the longest
    side.

    Source: Chowdhury and Gopalan 2017, the decision sets ``D_t`` of Theorem 4. They serve the
    proof: the grid grows so fast that it is soon cut at ``max_points``, which :meth:`is_cut` tells.

    Attributes:
        lipschitz: ``L``; a function of norm 1 has slopes of at most ``L``, in prior standard
            deviations per unit of input.
        max_points: Exact draws cost the cube of the number of points.
        box: Where it lives; a loop on a box fills it in.
    """

    lipschitz: float
    max_points: int = 1000
    box: Box | None = None

    def __post_init__(self) -> None:
        """Check the settings."""
        store_checked(self, lipschitz=check_positive("lipschitz", self.lipschitz))
        store_checked(self, max_points=check_integer("max_points", self.max_points, minimum=2))
        if self.box is not None and self.box.integer_dims:
            raise ValueError(
                f"box has integer dimensions {self.box.integer_dims}; list its points as Arms."
            )

    def on(self, box: Box) -> GrowingDiscretization:
        """Return the same discretisation of this box."""
        return replace(self, box=box)

    def points(self, round_number: int, rkhs_bound: float) -> Tensor:
        """Return the grid of one round, ``num_points x d``.

        Args:
            round_number: ``t``, from 1.
            rkhs_bound: ``B``, in prior standard deviations.

        Raises:
            ValueError: If no box is known.
        """
        box = self._box
        size = min(self._wanted(round_number, rkhs_bound), self._affordable)
        lower, sides = box.bounds[0], box.bounds[1] - box.bounds[0]
        # the middles of equal cells: no point of the box is farther than half a cell
        middles = (torch.arange(size, dtype=torch.float64) + 0.5) / size
        unit = torch.cartesian_prod(*[middles] * box.dim).reshape(-1, box.dim)
        return lower + sides * unit

    def is_cut(self, round_number: int, rkhs_bound: float) -> bool:
        """Return whether the theorem's grid would have had more than ``max_points``.

        Args:
            round_number: The round ``t``, from 1.
            rkhs_bound: The norm's bound, in prior standard deviations.
        """
        return self._wanted(round_number, rkhs_bound) > self._affordable

    @property
    def _box(self) -> Box:
        if self.box is None:
            raise ValueError("discretization has no box; pass discretization.on(Box(bounds)).")
        return self.box

    @property
    def _affordable(self) -> int:
        return max(int(self.max_points ** (1.0 / self._box.dim) + 1e-9), 1)

    def _wanted(self, round_number: int, rkhs_bound: float) -> int:
        box = self._box
        longest = float((box.bounds[1] - box.bounds[0]).max())
        slope = max(rkhs_bound, 1e-12) * self.lipschitz
        return max(math.ceil(slope * longest * box.dim * round_number**2), 1)
