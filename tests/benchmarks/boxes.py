"""Benchmarks on boxes: growing models, predictions and the maximization of acquisition functions.

Each does the same work with this package's model and with BoTorch's, on the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.optim import optimize_acqf
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
from botorch_bandits.acquisition import (
    GPUpperConfidenceBound,
    gen_candidates_batched,
)
from botorch_bandits.models import BanditGP
from botorch_bandits.random_streams import seeded_globally

NOISE, WIDTH = 0.01, 2.0
SIZES = tuple((num_rows, dim) for num_rows in (50, 200, 1000) for dim in (2, 6))
"""Rows and dimensions."""


def chain(scale: Scale) -> list[Measurement]:
    """Grow a model from 50 to 550 rows, with a posterior at one point after each."""
    first, last = 50, scale.of(550, 70)
    X, Y = smooth_data(last, 2, scale.seed)
    point = torch.full((1, 2), 0.4, dtype=torch.float64)
    spans, moments = [], torch.empty(0)
    for _ in range(min(scale.repeats, 3)):
        model = _our_model(X[:first], Y[:first])
        model.posterior(point)
        found = []
        start = time.process_time()
        for n in range(first, last):
            model = model.condition_on_observations(X[n : n + 1], Y[n : n + 1])
            found.append(_moments(model, point))
        spans.append((time.process_time() - start) / (last - first))
        moments = torch.stack(found)
    steps = torch.linspace(first, last - 1, scale.of(50, 4)).long().tolist()
    total, difference = 0.0, 0.0
    for n in steps:
        start = time.process_time()
        expected = _moments(ordinary_model(X[: n + 1], Y[: n + 1], standard_kernel(), NOISE), point)
        total += time.process_time() - start
        difference = max(difference, float((expected - moments[n - first]).abs().max()))
    ours, ordinary = sorted(spans)[len(spans) // 2], total / len(steps)
    return [
        Measurement(
            name=f"chain-500: {first} to {last} rows",
            ratio=ordinary / ours,
            difference=difference,
            tolerance=1e-8,
            unit="row",
            ordinary_seconds=ordinary,
            our_seconds=ours,
            at_least=15.0,
            aim=25.0,
        )
    ]


def append_and_predict(scale: Scale) -> list[Measurement]:
    """Add a row to 1000 and predict 256 points; and how the cost of it grows with the rows."""
    points = smooth_data(256, 2, scale.seed + 1)[0].unsqueeze(-2)

    def measure(num_rows: int, repeats: int) -> Any:
        X, Y = smooth_data(num_rows + 1, 2, scale.seed)
        grown = _our_model(X[:-1], Y[:-1])
        grown.posterior(points[:1])
        return compare(
            lambda: _moments(ordinary_model(X, Y, standard_kernel(), NOISE), points),
            lambda: _moments(grown.condition_on_observations(X[-1:], Y[-1:]), points),
            repeats,
        )

    num_rows = scale.of(1000, 100)
    timing = measure(num_rows, scale.repeats)
    sizes = [num_rows, 2 * num_rows]
    spans = [timing.our_seconds, measure(sizes[1], 1).our_seconds]
    return [
        Measurement(
            name=f"append-predict-1000: {num_rows} + 1 rows, 256 points",
            ratio=timing.ratio,
            difference=_difference(timing),
            tolerance=1e-8,
            unit="step",
            ordinary_seconds=timing.ordinary_seconds,
            our_seconds=timing.our_seconds,
            at_least=8.0,
            aim=12.0,
            note=f"our cost grows as n^{growth_exponent(sizes, spans):.2f}",
        )
    ]


def change_a_value(scale: Scale) -> list[Measurement]:
    """Change one of 1000 past outcomes and predict 256 points."""
    num_rows = scale.of(1000, 100)
    X, Y = smooth_data(num_rows, 2, scale.seed)
    points = smooth_data(256, 2, scale.seed + 1)[0].unsqueeze(-2)
    changed = Y.clone()
    changed[num_rows // 3] += 0.5
    model = _our_model(X, Y)
    model.posterior(points[:1])
    timing = compare(
        lambda: _moments(ordinary_model(X, changed, standard_kernel(), NOISE), points),
        lambda: _moments(model.with_outcomes(changed), points),
        scale.repeats,
    )
    return [
        Measurement(
            name=f"value-change-1000: {num_rows} rows, 256 points",
            ratio=timing.ratio,
            difference=_difference(timing),
            tolerance=1e-8,
            unit="change",
            ordinary_seconds=timing.ordinary_seconds,
            our_seconds=timing.our_seconds,
            at_least=6.0,
            aim=9.0,
        )
    ]


def drop_in(scale: Scale) -> list[Measurement]:
    """``optimize_acqf`` as it is, with BoTorch's acquisition, on our model."""
    return _maximizations(
        scale, "acqf-dropin", lambda model: UpperConfidenceBound(model, beta=WIDTH**2), {}, 3, 1e-9
    )


def own_generator(scale: Scale) -> list[Measurement]:
    """``optimize_acqf`` with our acquisition and our ``gen_candidates``."""
    options = {"gen_candidates": gen_candidates_batched}
    return _maximizations(
        scale,
        "acqf-own",
        lambda model: GPUpperConfidenceBound(model, width=WIDTH),
        options,
        12,
        1e-6,
        (*SIZES, (200, 21), (200, 40)),
    )


def memory(scale: Scale) -> list[Measurement]:
    """What a model of 1000 rows, grown one by one, keeps."""
    num_rows = scale.of(1000, 300)
    X, Y = smooth_data(num_rows, 2, scale.seed)
    model = _our_model(X[:50], Y[:50])
    for n in range(50, num_rows):
        model = model.condition_on_observations(X[n : n + 1], Y[n : n + 1])
        model.posterior(X[:1])
    kept = _bytes_of(model.closed_form) / (8.0 * num_rows**2)
    return [
        Measurement(
            name=f"memory-1000: {num_rows} rows",
            ratio=1.3 / kept,
            difference=0.0,
            tolerance=0.0,
            unit="model",
            ordinary_seconds=0.0,
            our_seconds=0.0,
            at_least=1.0,
            note=f"keeps {kept:.2f} n^2 doubles; the ratio is 1.3 n^2 over that",
        )
    ]


def _our_model(X: Tensor, Y: Tensor) -> Any:
    return BanditGP(X, Y, kernel=standard_kernel(), noise=NOISE)


def _moments(model: Model, points: Tensor) -> Tensor:
    with torch.no_grad():
        posterior = model.posterior(points)
        return torch.stack([posterior.mean.reshape(-1), posterior.variance.reshape(-1)])


def _difference(timing: Any) -> float:
    return float((timing.ordinary_result - timing.our_result).abs().max())


def _maximizations(
    scale: Scale,
    name: str,
    build: Callable[[Model], Any],
    options: dict[str, Any],
    num_seeds: int,
    tolerance: float,
    sizes: tuple[tuple[int, int], ...] = SIZES,
) -> list[Measurement]:
    """Against BoTorch's UCB on its own model; the difference is how much worse our optimum is."""
    goals = {"acqf-dropin": ((2.0, 3.0), (2.0, 3.0)), "acqf-own": ((3.0, 6.0), (3.0, 6.0))}[name]
    lines = []
    for num_rows, dim in sizes:
        rows = scale.of(num_rows, 30)
        X, Y = smooth_data(rows, dim, scale.seed)
        bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64)
        # in many dimensions points are farther apart
        lengthscale = 0.4 * max(1.0, (dim / 6.0) ** 0.5)
        ordinary: SingleTaskGP = ordinary_model(X, Y, standard_kernel(lengthscale), NOISE)
        ours = BanditGP(X, Y, kernel=standard_kernel(lengthscale), noise=NOISE)

        def maximize(model: Model, make: Any, seed: int, **extra: Any) -> float:
            with seeded_globally(seed):
                _, value = optimize_acqf(
                    make(model),
                    bounds,  # noqa: B023
                    q=1,
                    num_restarts=10,
                    raw_samples=256,
                    options={"batch_limit": 10, "init_batch_limit": 256},
                    **extra,
                )
            return float(value)

        def botorch_ucb(model: Model) -> UpperConfidenceBound:
            return UpperConfidenceBound(model, beta=WIDTH**2)

        seeds = range(scale.of(num_seeds, 2))
        timings = [
            compare(
                lambda s=s: maximize(ordinary, botorch_ucb, s),  # type: ignore[misc] # noqa: B023
                lambda s=s: maximize(ours, build, s, **options),  # type: ignore[misc] # noqa: B023
                1 if num_seeds > 3 else min(scale.repeats, 3),
            )
            for s in seeds
        ]
        theirs = sorted(t.ordinary_seconds for t in timings)[len(timings) // 2]
        own = sorted(t.our_seconds for t in timings)[len(timings) // 2]
        at_least, aim = (1.0, None) if dim > 6 else goals[num_rows == 1000]
        lines.append(
            Measurement(
                name=f"{name}: n = {rows}, d = {dim}",
                ratio=theirs / own,
                difference=max(t.ordinary_result - t.our_result for t in timings),
                tolerance=tolerance,
                unit="maximization",
                ordinary_seconds=theirs,
                our_seconds=own,
                at_least=at_least,
                aim=aim,
                note="difference: how much worse our optimum was, at worst",
            )
        )
    return lines


def _bytes_of(value: Any, seen: set[int] | None = None) -> int:
    """The memory of every tensor that can be reached through attributes and containers."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        key = storage.data_ptr()
        if key in seen:
            return 0
        seen.add(key)
        return int(storage.nbytes())
    if isinstance(value, dict):
        return sum(_bytes_of(entry, seen) for entry in value.values())
    if isinstance(value, list | tuple):
        return sum(_bytes_of(entry, seen) for entry in value)
    attributes = list(vars(value).values()) if hasattr(value, "__dict__") else []
    attributes += [getattr(value, slot, None) for slot in getattr(value, "__slots__", ())]
    return sum(_bytes_of(entry, seen) for entry in attributes)
