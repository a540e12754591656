"""Queries on a picture of the posterior."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.history import History


@dataclass
class PlacedQueries:
    """Queries by what became of them, a row each; those that failed are left out.

    Attributes:
        told: Points whose outcome was told, and their rewards.
        pending: Points without an outcome.
        elsewhere: Points whose outcome was told in another context, and their rewards.
    """

    told: list[tuple[Tensor, float]] = field(default_factory=list)
    pending: list[Tensor] = field(default_factory=list)
    elsewhere: list[tuple[Tensor, float]] = field(default_factory=list)

    def draw_on_line(self, ax: Any, mean_at: Callable[[Tensor], Tensor]) -> None:
        """Draw rewards that were told, and pending queries on the mean."""
        for rows, style, label in (
            (self.elsewhere, _ELSEWHERE, "told in another context"),
            (self.told, _TOLD, "told"),
        ):
            if rows:
                points, rewards = [float(p) for p, _ in rows], [y for _, y in rows]
                ax.plot(points, rewards, ls="none", label=label, **style)
        if self.pending:
            X = torch.stack(self.pending)
            x, y = X[:, 0].numpy(), mean_at(X).numpy()
            ax.plot(x, y, ls="none", label="pending (at the mean)", **_PENDING)

    def draw_on_plane(self, ax: Any) -> None:
        """Draw the points."""
        for points, style, label in (
            ([p for p, _ in self.elsewhere], _ELSEWHERE, "told in another context"),
            ([p for p, _ in self.told], {**_TOLD, "mec": "white", "ms": 6.5}, "told"),
            (self.pending, _PENDING, "pending"),
        ):
            if points:
                x, y = torch.stack(points).T.numpy()
                ax.plot(x, y, ls="none", label=label, clip_on=False, **style)


_TOLD = {"marker": "o", "color": "black", "mfc": "black", "ms": 4.5}
_PENDING = {"marker": "o", "color": "black", "mfc": "white", "ms": 5.5, "mew": 1.3, "zorder": 3}
_ELSEWHERE = {"marker": "x", "color": "0.4", "ms": 4}


def place_queries(history: History, dim: int, front: Tensor) -> PlacedQueries:
    """Sort queries by what became of them.

    Args:
        history: Of the loop.
        dim: The dimension of the points in the picture.
        front: What stands before the points in the model's inputs; it ends with the context.

    Raises:
        ValueError: If the points of the history have another dimension.
    """
    if history.dim != dim:
        raise ValueError(
            f"history has points of {history.dim} dimensions, but the domain has {dim}; pass the "
            "history of a loop on this domain."
        )
    placed = PlacedQueries()
    here = front.cpu()[max(len(front) - history.context_dim, 0) :]  # without the round, if any
    for query in history.queries:
        outcome, x = history.outcome(query.id), query.x.cpu()
        is_here = query.context is None or torch.equal(query.context.to("cpu", DTYPE), here)
        if outcome is not None:
            (placed.told if is_here else placed.elsewhere).append((x, outcome.reward))
        elif history.failure(query.id) is None and is_here:
            placed.pending.append(x)
    return placed
