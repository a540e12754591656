"""Benchmarks of a GPU against the CPU: replicates on arms, and acquisitions on large models.

Both devices do the same work, and must choose the same arms and find the same optima.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from botorch.optim import optimize_acqf

from benchmarks.arms import RECIPE, arms_problem
from benchmarks.boxes import NOISE, WIDTH
from benchmarks.measure import Measurement, Scale, smooth_data, standard_kernel
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
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {device}, but torch sees no CUDA device.")
    lines = [_replicates(scale, device, num_arms) for num_arms in (100, 1000)]
    return lines + [_maximization(scale, device, rows) for rows in (1000, 3000)]


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
