"""Benchmark of replicates on a box in lockstep.

One more round of all replicates at once against one replicate after another, each with a model and
a maximization of its own.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.optim import optimize_acqf
from torch import Tensor

from benchmarks.measure import (
    Measurement,
    Scale,
    compare,
    ordinary_model,
    smooth_data,
    standard_kernel,
)
from botorch_bandits.acquisition import GPUpperConfidenceBound
from botorch_bandits.domains import Box
from botorch_bandits.models import BanditGP
from botorch_bandits.random_streams import seeded_globally
from botorch_bandits.simulation.boxes import BoxEngine, build_box_engine

NOISE, WIDTH, DIM = 0.01, 2.0, 2


def replicates_on_a_box(scale: Scale) -> list[Measurement]:
    """One more round in each of 25 replicates with 50 rows: a row, then the largest bound."""
    count, rows = scale.of(25, 3), scale.of(50, 10)
    X, Y = smooth_data(count * (rows + 1), DIM, scale.seed)
    X, Y = X.reshape(count, rows + 1, DIM), Y.reshape(count, rows + 1)
    box = Box([[0.0] * DIM, [1.0] * DIM], num_restarts=10, raw_samples=256)
    recipe = BanditGP.with_kernel(standard_kernel(), noise=NOISE)
    bound = GPUpperConfidenceBound.with_options(width=WIDTH)
    seeds = [scale.seed + b for b in range(count)]
    player = build_box_engine(recipe, bound, box, seeds)
    assert player is not None
    for i in range(rows):
        player.observe(X[:, i], Y[:, i])
    models: list[Any] = [recipe(X[b, :rows], Y[b, :rows].unsqueeze(-1)) for b in range(count)]
    for model in models:
        model.posterior(X[0, :1])
    # one for each pass, for a row changes it
    players = [copy.deepcopy(player) for _ in range(2 * scale.repeats + 2)]

    def ordinary() -> Tensor:
        return torch.cat([_ordinary_round(X[b], Y[b], box, seeds[b]) for b in range(count)])

    def batched() -> Tensor:
        return _batched_round(players.pop(), X[:, rows], Y[:, rows], rows + 1)

    def separate() -> Tensor:
        points = []
        for b in range(count):
            grown = models[b].condition_on_observations(X[b, rows:], Y[b, rows:].unsqueeze(-1))
            points.append(box.maximize(GPUpperConfidenceBound(grown, width=WIDTH), seeds[b])[0])
        return torch.stack(points)

    timing = compare(ordinary, batched, scale.repeats)
    loops = compare(separate, batched, scale.repeats)
    theirs, ours = _bounds(X, Y, timing.ordinary_result), _bounds(X, Y, timing.our_result)
    return [
        Measurement(
            name=f"replicates-n50: {count} replicates, {rows} + 1 rows, d = {DIM}",
            ratio=timing.ratio,
            difference=float((theirs - ours).max()),
            tolerance=1e-6,
            unit="round of all",
            ordinary_seconds=timing.ordinary_seconds,
            our_seconds=timing.our_seconds,
            at_least=4.0,
            aim=7.0,
            note=f"{loops.ratio:.1f} times against separate loops of ours; difference: how much "
            "worse our optimum was, at worst",
        )
    ]


def _batched_round(player: BoxEngine, X: Tensor, y: Tensor, round_number: int) -> Tensor:
    player.observe(X, y)
    return player.choose(round_number)[0]


def _ordinary_round(X: Tensor, y: Tensor, box: Box, seed: int) -> Tensor:
    """Return the point that BoTorch finds, ``1 x d``, with a model that is built again."""
    acquisition = UpperConfidenceBound(_ordinary_model(X, y), beta=WIDTH**2)
    with seeded_globally(seed):
        point, _ = optimize_acqf(
            acquisition,
            box.bounds,
            q=1,
            num_restarts=box.num_restarts,
            raw_samples=box.raw_samples,
            options={"batch_limit": box.num_restarts, "init_batch_limit": box.raw_samples},
        )
    return point.detach()


def _bounds(X: Tensor, Y: Tensor, points: Tensor) -> Tensor:
    """Return the bound at one point a replicate as BoTorch evaluates it."""
    with torch.no_grad():
        values = [
            UpperConfidenceBound(_ordinary_model(X[b], Y[b]), beta=WIDTH**2)(points[b : b + 1])
            for b in range(len(points))
        ]
    return torch.cat(values)


def _ordinary_model(X: Tensor, y: Tensor) -> Any:
    return ordinary_model(X, y.unsqueeze(-1), standard_kernel(), NOISE)
