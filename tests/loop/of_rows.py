"""The model of a loop that was told certain outcomes of certain rounds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from botorch_bandits import BanditGPRecipe, BanditLoop, Box, GPUpperConfidenceBound
from botorch_bandits.loop import Forgetting


def model_of_rounds(
    prior: BanditGPRecipe,
    forgetting: Forgetting | None,
    X: Tensor,
    Y: Tensor,
    rounds: Tensor,
    next_round: int,
    noise: Tensor | None = None,
) -> Any:
    """Return the model with which the next round chooses.

    Args:
        prior: Of the model.
        forgetting: Of the loop.
        X: Points in the unit cube, ``n x d``, in the order in which outcomes arrive.
        Y: ``n x 1`` outcomes.
        rounds: ``n`` rounds in which the points were asked; another point is pending in others.
        next_round: The number of the round.
        noise: ``n`` noise variances, if they are told.
    """
    bounds = [[-4.0] * X.shape[-1], [4.0] * X.shape[-1]]
    rule = GPUpperConfidenceBound.with_options(width=2.0)
    loop = BanditLoop(Box(bounds), prior, rule, forgetting=forgetting)
    points = dict(zip(rounds.tolist(), X, strict=True))
    for t in range(1, next_round):
        loop.attach(points.get(t, torch.zeros(X.shape[-1], dtype=torch.float64)))
    told = [None] * len(X) if noise is None else noise.tolist()
    for t, y, variance in zip(rounds.tolist(), Y[:, 0].tolist(), told, strict=True):
        loop.tell(t - 1, y, noise=variance)
    return loop.current_model()


def with_round(points: Tensor, round_number: int) -> Tensor:
    """Return points behind the round, as inputs of a model with a time-varying kernel."""
    now = torch.full((len(points), 1), float(round_number), dtype=torch.float64)
    return torch.cat([now, points], dim=-1)
