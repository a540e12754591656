"""Benchmarks of boxes with many rows: rows that repeat, merged exactly, and the local model.

The ordinary way factorizes all rows: ``SingleTaskGP``, whose memory grows with the square of the
rows and whose time with the cube. So it is measured at fewer rows, and its growth is told.
"""

from __future__ import annotations

import math
import time
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import (
    Measurement,
    Scale,
    compare,
    growth_exponent,
    ordinary_model,
    smooth_data,
    standard_kernel,
)
from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    GPUpperConfidenceBound,
    History,
    ImprovedUpperConfidenceBound,
)

NOISE = 0.01

REPEATS = 1.5
"""By which factor the bound on regret may grow."""


def many_rows(scale: Scale) -> list[Measurement]:
    """One more outcome and 256 points: repeated rows; then whole rounds."""
    num_rows, num_places = scale.of(4000, 300), scale.of(200, 20)
    places = smooth_data(num_places, 2, scale.seed)[0]
    stream = torch.Generator().manual_seed(scale.seed)
    X = places[torch.randint(num_places, (num_rows,), generator=stream)]
    Y = X.sum(-1, keepdim=True).sin()
    points = smooth_data(256, 2, scale.seed + 1)[0].unsqueeze(-2)
    loop = _loop(BanditGP.with_kernel(standard_kernel(), noise=NOISE), X, Y)

    def ours() -> Tensor:
        again = BanditLoop(
            loop.settings.domain,
            loop.settings.model,
            loop.settings.acquisition,
            history=loop.history,
        )
        return _moments(again.current_model(), points)  # nothing is kept from before

    timing = compare(
        lambda: _moments(ordinary_model(X, Y, standard_kernel(), NOISE), points),
        ours,
        min(scale.repeats, 3),
    )
    difference = float((timing.ordinary_result - timing.our_result).abs().max())
    all_rows = scale.of(20000, 600)
    X = places[torch.randint(num_places, (all_rows,), generator=stream)]
    in_loop = _seconds_of_rounds(loop.settings.model, X, X.sum(-1, keepdim=True).sin())
    return [
        Measurement(
            name=f"many-rows: {num_rows} rows at {num_places} places, 256 points",
            ratio=timing.ratio,
            difference=difference,
            tolerance=1e-8,
            unit="pass",
            ordinary_seconds=timing.ordinary_seconds,
            our_seconds=timing.our_seconds,
            at_least=10.0,
            note=f"a round of a loop with {all_rows} rows there takes {1000 * in_loop:.0f} ms",
        )
    ]


SECONDS_OF_A_ROUND = 0.05
"""What a round may take, however many came before it."""


def rounds_without_end(scale: Scale) -> list[Measurement]:
    """Rounds that play points again: their cost in each decade, and what the loop keeps."""
    last = scale.of(100_000, 400)
    sizes = (last // 100, last // 10, last)
    model = BanditGP.with_kernel(standard_kernel(), noise=NOISE)
    rule = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=2.0, noise_bound=math.sqrt(NOISE), any_lambda=True
    )
    box = Box(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))
    loop = BanditLoop(box, model, rule, seed=scale.seed, repeats=REPEATS)
    noise = math.sqrt(NOISE) * torch.randn(
        last, dtype=torch.float64, generator=torch.Generator().manual_seed(scale.seed)
    )
    totals, spent = [], 0.0
    for number, error in enumerate(noise.tolist(), 1):
        start = time.process_time()
        query = loop.ask()
        spent += time.process_time() - start
        x = query.x
        reward = float(torch.sin(6.0 * x[0]) * torch.cos(4.0 * x[1])) + error
        start = time.process_time()
        loop.tell(query.id, reward)
        spent += time.process_time() - start
        if number in sizes:
            totals.append(spent)
    constants = loop.guarantee().constants
    choices = f"{constants['choices']:.0f} choices of at most {constants['most_choices']:.0f}"
    start = time.process_time()
    again = BanditLoop(box, model, rule, seed=scale.seed, repeats=REPEATS, history=loop.history)
    next_point = again.ask().x
    opened = time.process_time() - start
    per_round = (totals[-1] - totals[-2]) / (sizes[-1] - sizes[-2])
    rate = growth_exponent(sizes[1:], totals[1:])
    return [
        Measurement(
            name=f"rounds-without-end: {last} rounds on a box",
            ratio=SECONDS_OF_A_ROUND / per_round,
            difference=float((next_point - loop.ask().x).abs().max()),
            tolerance=0.0,
            unit="round",
            ordinary_seconds=SECONDS_OF_A_ROUND,
            our_seconds=per_round,
            at_least=1.0,
            note=(
                f"the ratio is {1000 * SECONDS_OF_A_ROUND:.0f} ms over a round of the last decade; "
                f"all rounds cost n^{rate:.2f} there; {choices}; the first point after opening "
                f"takes {opened:.1f} s"
            ),
        )
    ]


def _loop(model: Any, X: Tensor, Y: Tensor) -> BanditLoop:
    dim = X.shape[-1]
    history = History(dim)
    for x, y in zip(X, Y[:, 0].tolist(), strict=True):
        history.add_outcome(history.add_query(x, "attached", 0.0).id, y, 0.0)
    box = Box(torch.tensor([[0.0], [1.0]], dtype=torch.float64).expand(2, dim))
    bound = GPUpperConfidenceBound.with_options(width=2.0)
    return BanditLoop(box, model, bound, history=history)


def _seconds_of_rounds(model: Any, X: Tensor, Y: Tensor, num_rounds: int = 3) -> float:
    """Return the median time of asking and telling, after the first round."""
    loop = _loop(model, X, Y)
    loop.tell(loop.ask().id, 0.0)
    spans = []
    for _ in range(num_rounds):
        start = time.process_time()
        loop.tell(loop.ask().id, 0.0)
        spans.append(time.process_time() - start)
    return sorted(spans)[num_rounds // 2]


def _moments(model: Any, points: Tensor) -> Tensor:
    with torch.no_grad():
        posterior = model.posterior(points)
        return torch.stack([posterior.mean.flatten(), posterior.variance.flatten()])
