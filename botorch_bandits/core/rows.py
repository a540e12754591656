"""Rows: all that a posterior knows of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """Outcomes at points of a finite set, one row each; ``n`` rows and ``m`` outputs.

    A window leaves rows out, weights and counts change their noise, constraints and censoring
    change their outcomes, and contexts and the round are columns in front of their points.

    Attributes:
        index: ``n`` numbers of points.
        Y: ``n x m`` outcomes in raw units.
        noise: ``n`` positive multiples of the noise variance: ``1 / count`` or ``1 / weight``.
        front: ``n x c`` columns in front of the points; None if there are none.
        place: ``n`` numbers, the same for rows with the same point and front; None if a point's
            number says it.
        ids: ``n`` numbers that say which rows of two rounds are the same, such as the numbers of
            queries; None if rows are only ever added.
    """

    index: Tensor
    Y: Tensor
    noise: Tensor
    front: Tensor | None = None
    place: Tensor | None = None
    ids: Tensor | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.index)

    def __getitem__(self, some: Tensor | slice) -> Rows:
        """Return some of the rows."""
        parts = (self.index, self.Y, self.noise, self.front, self.place, self.ids)
        return Rows(*(None if part is None else part[some] for part in parts))  # type: ignore[arg-type]

    @classmethod
    def empty(cls, num_outputs: int, like: Tensor, num_front: int = 0) -> Rows:
        """Return no rows.

        Args:
            num_outputs: ``m``.
            like: A tensor whose dtype and device are used.
            num_front: The number of columns in front of the points.
        """
        none = torch.empty(0, dtype=torch.long, device=like.device)
        front = like.new_empty(0, num_front) if num_front else None
        return cls(none, like.new_empty(0, num_outputs), like.new_empty(0), front, none, none)

    def followed_by(self, other: Rows) -> Rows:
        """Return these rows and then others; both have fronts, or neither does."""
        front = None
        if self.front is not None and other.front is not None:
            front = torch.cat([self.front, other.front])
        return Rows(
            torch.cat([self.index, other.index]),
            torch.cat([self.Y, other.Y]),
            torch.cat([self.noise, other.noise]),
            front,
        )

    def collapsed(self) -> Rows:
        r"""Return one row for each place: exact, by the weighted mean of its outcomes.

        With :math:`w_i = 1 / N_i`, rows of one place are one observation of
        :math:`\sum_i w_i y_i / \sum_i w_i` with the noise :math:`1 / \sum_i w_i`.
        """
        place = self.index if self.place is None else self.place
        # every group in the order of its place, so that a rebuilt loop has the same order
        distinct, group = torch.unique(place, return_inverse=True)
        count = len(distinct)
        if count == len(self) and bool((place[1:] > place[:-1]).all()):
            return self
        # the last row that writes wins, so the rows are written from the last to the first
        order = torch.arange(len(self) - 1, -1, -1, device=group.device)
        first = group.new_empty(count).scatter_(0, group.flip(0), order)
        weight = self.noise.reciprocal()  # n
        total = self.noise.new_zeros(count).index_add_(0, group, weight)
        sums = self.Y.new_zeros(count, self.Y.shape[1])
        sums.index_add_(0, group, self.Y * weight.unsqueeze(-1))  # count x m
        return Rows(
            self.index[first],
            sums / total.unsqueeze(-1),
            total.reciprocal(),
            None if self.front is None else self.front[first],
            distinct,
        )


def changes_between(old: Rows, new: Rows) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return how rows differ from earlier ones; None if nothing says which rows are the same.

    A row whose outcome or noise is another one has left and come again.

    Returns:
        The numbers of the earlier rows that are gone, and those of the rows that are new.
    """
    n = len(old)
    are_same = begins_with(new, old) and torch.equal(old.Y, new.Y[:n])
    if old.ids is not None and new.ids is not None:
        are_same = are_same and torch.equal(old.ids, new.ids[:n])
    if n == 0 or are_same:
        return (), range(n, len(new))  # rows were only added
    if old.ids is None or new.ids is None:
        return None
    # places of the rows that both have
    _, at_old, at_new = np.intersect1d(old.ids.cpu(), new.ids.cpu(), True, return_indices=True)
    left = torch.ones(n, dtype=torch.bool, device=old.index.device)
    came = torch.ones(len(new), dtype=torch.bool, device=new.index.device)
    # another outcome or another weight is another row
    same = (old.Y[at_old] == new.Y[at_new]).all(-1) & (old.noise[at_old] == new.noise[at_new])
    left[at_old], came[at_new] = ~same, ~same
    return left.nonzero()[:, 0].tolist(), came.nonzero()[:, 0].tolist()


def begins_with(rows: Rows, first: Rows) -> bool:
    """Return whether rows begin with others, regardless of outcomes."""
    n, front = len(first), rows.front
    return (
        torch.equal(first.index, rows.index[:n])
        and torch.equal(first.noise, rows.noise[:n])
        and (first.front is None or front is None or torch.equal(first.front, front[:n]))
    )
