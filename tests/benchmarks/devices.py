"""Benchmarks on a GPU: against the CPU, and against BoTorch on the same GPU.

Both sides do the same work, and must choose the same arms, find the same optima and predict the
same moments. Time is that on the wall, because the processor waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.models.model import Model
from botorch.optim import optimize_acqf
from torch import Tensor

from benchmarks.arms import RECIPE, arms_problem
from benchmarks.boxes import NOISE, WIDTH
from benchmarks.measure import (
    Measurement,
    Scale,
    ordinary_model,
    smooth_data,
    standard_kernel,
)
from botorch_bandits.acquisition import GPUpperConfidenceBound, gen_candidates_batched
from botorch_bandits.models import BanditGP
from botorch_bandits.random_streams import seeded_globally
from botorch_bandits.simulation import Policy, simulate


def against_cpu(scale: Scale, device: str = "cuda") -> list[Measurement]:
    """Time the same program on both devices, by the clock on the wall.

    Args:
        scale: How much.
        device: The other device.

    Raises:
        ValueError: If torch cannot use it.
    """
    _check(device)
    lines = [_replicates(scale, device, num_arms) for num_arms in (100, 1000)]
    return lines + [_maximization(scale, device, rows) for rows in (1000, 3000)]


def against_botorch(scale: Scale, device: str = "cuda") -> list[Measurement]:
    """Time BoTorch's way and ours on one device, by the clock on the wall.

    Args:
        scale: How much.
        device: Where both compute.

    Raises:
        ValueError: If torch cannot use it.
    """
    _check(device)
    sizes = (200, 1000, 3000)
    return [
        *(_drop_in(scale, device, rows, batched) for batched in (False, True) for rows in sizes),
        *(_append(scale, device, rows) for rows in sizes),
    ]


def _check(device: str) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {device}, but torch sees no CUDA device.")


def _replicates(scale: Scale, device: str, full_arms: int) -> Measurement:
    num_arms, num_rounds, count = scale.of(full_arms, 50), scale.of(300, 20), scale.of(64, 4)
    problem = arms_problem(num_arms, scale.seed)
    policy = Policy(BanditGP.with_kernel(standard_kernel(), noise=NOISE), RECIPE)

    def play(where: str) -> Any:
        return simulate(
            problem,
            policy,
            num_rounds,
            count,
            seed=scale.seed,
            device=where,
            with_bounds=False,
            progress=False,
        )

    (cpu, host), (gpu, other) = (_clock(lambda w=w: play(w), scale) for w in ("cpu", device))  # type: ignore[misc]
    units = num_rounds * count
    return Measurement(
        name=f"replicates on arms: {count} x {num_arms} arms, {num_rounds} rounds",
        ratio=cpu / gpu,
        difference=float((host.arms != other.arms).sum()),
        tolerance=0.0,
        unit="replicate and round",
        ordinary_seconds=cpu / units,
        our_seconds=gpu / units,
        note=f"{units / gpu:.0f} replicates x rounds a second on {device}, {units / cpu:.0f} on "
        "the CPU; difference counts other arms",
    )


def _maximization(scale: Scale, device: str, full_rows: int) -> Measurement:
    rows, dim, restarts = scale.of(full_rows, 60), 6, scale.of(256, 16)
    X, Y = smooth_data(rows, dim, scale.seed)
    bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64)

    def maximize(where: str) -> float:
        model = models[where]
        with seeded_globally(scale.seed):
            _, value = optimize_acqf(
                GPUpperConfidenceBound(model, width=WIDTH),
                bounds.to(where),
                q=1,
                num_restarts=restarts,
                raw_samples=4 * restarts,
                gen_candidates=gen_candidates_batched,
                options={"batch_limit": restarts, "init_batch_limit": 4 * restarts},
            )
        return float(value)

    models = {
        where: BanditGP(X.to(where), Y.to(where), kernel=standard_kernel(0.4), noise=NOISE)
        for where in ("cpu", device)
    }
    (cpu, host), (gpu, other) = (_clock(lambda w=w: maximize(w), scale) for w in ("cpu", device))  # type: ignore[misc]
    return Measurement(
        name=f"optimize_acqf: n = {rows}, d = {dim}, {restarts} restarts",
        ratio=cpu / gpu,
        difference=abs(host - other),
        tolerance=1e-6,
        unit="maximization",
        ordinary_seconds=cpu,
        our_seconds=gpu,
        note="difference of the optima",
    )


def _drop_in(scale: Scale, device: str, full_rows: int, batched: bool) -> Measurement:
    rows, dim, restarts = scale.of(full_rows, 60), 6, 10
    X, Y = (each.to(device) for each in smooth_data(rows, dim, scale.seed))
    bounds = torch.tensor([[0.0] * dim, [1.0] * dim], dtype=X.dtype, device=device)
    ordinary = ordinary_model(X, Y, standard_kernel(0.4).to(device), NOISE)
    ours = BanditGP(X, Y, kernel=standard_kernel(0.4), noise=NOISE)
    own: dict[str, Any] = {"gen_candidates": gen_candidates_batched} if batched else {}

    def maximize(acquisition: Any, **extra: Any) -> float:
        with seeded_globally(scale.seed):
            _, value = optimize_acqf(
                acquisition,
                bounds,
                q=1,
                num_restarts=restarts,
                raw_samples=256,
                options={"batch_limit": restarts, "init_batch_limit": 256},
                **extra,
            )
        return float(value)

    theirs, reference = _clock(
        lambda: maximize(UpperConfidenceBound(ordinary, beta=WIDTH**2)), scale
    )
    seconds, found = _clock(
        lambda: maximize(GPUpperConfidenceBound(ours, width=WIDTH), **own), scale
    )
    search = "our search" if batched else "BoTorch's search"
    return Measurement(
        name=f"optimize_acqf, {search}: n = {rows}, d = {dim}",
        ratio=theirs / seconds,
        difference=reference - found,
        tolerance=1e-3,
        unit="maximization",
        ordinary_seconds=theirs,
        our_seconds=seconds,
        note="difference: how much worse our optimum was",
    )


def _append(scale: Scale, device: str, full_rows: int) -> Measurement:
    rows = scale.of(full_rows, 60)
    X, Y = (each.to(device) for each in smooth_data(rows + 1, 2, scale.seed))
    points = smooth_data(256, 2, scale.seed + 1)[0].unsqueeze(-2).to(device)
    kernel = standard_kernel().to(device)
    grown = BanditGP(X[:-1], Y[:-1], kernel=kernel, noise=NOISE)
    _moments(grown, points)
    theirs, reference = _clock(lambda: _moments(ordinary_model(X, Y, kernel, NOISE), points), scale)
    seconds, found = _clock(
        lambda: _moments(grown.condition_on_observations(X[-1:], Y[-1:]), points), scale
    )
    return Measurement(
        name=f"append a row and predict 256 points: n = {rows}",
        ratio=theirs / seconds,
        difference=float((reference - found).abs().max()),
        tolerance=1e-8,
        unit="step",
        ordinary_seconds=theirs,
        our_seconds=seconds,
    )


def _moments(model: Model, points: Tensor) -> Tensor:
    with torch.no_grad():
        posterior = model.posterior(points)
        return torch.stack([posterior.mean.reshape(-1), posterior.variance.reshape(-1)])


def _clock(way: Callable[[], Any], scale: Scale) -> tuple[float, Any]:
    way()  # kernels are loaded and memory is reserved once
    times = []
    for _ in range(min(scale.repeats, 3)):
        _synchronize()
        start = time.perf_counter()
        result = way()
        _synchronize()
        times.append(time.perf_counter() - start)
    return median(times), result


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
