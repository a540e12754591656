"""Benchmarks on a GPU: against the CPU, and against BoTorch on the same GPU.

Both sides do the same work, and must choose the same arms, find the same optima and predict the
same moments. Time is that on the wall, because the processor waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.arms import POLICY, arms_problem
from benchmarks.boxes import their_bound
from benchmarks.measure import (
    NOISE,
    NUM_RESTARTS,
    WIDTH,
    Measurement,
    Scale,
    Timing,
    compare,
    maximize,
    moments,
    ordinary_model,
    smooth_data,
    standard_kernel,
)
from botorch_bandits.acquisition import GPUpperConfidenceBound, gen_candidates_batched
from botorch_bandits.models import BanditGP
from botorch_bandits.simulation import simulate

SIZES = (200, 1000, 3000)


def on_device(scale: Scale, device: str = "cuda") -> dict[tuple[str, str], list[Measurement]]:
    """Time the same program on both devices, and BoTorch's way and ours on one of them.

    Args:
        scale: How much.
        device: The other device.

    Returns:
        The lines by what is compared.

    Raises:
        ValueError: If torch cannot use the device.
    """
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"device is {device}, but torch sees no CUDA device.")
    searches = {"BoTorch's search": {}, "our search": {"gen_candidates": gen_candidates_batched}}
    return {
        ("CPU", device): [
            *(_replicates(scale, device, num_arms) for num_arms in (100, 1000)),
            *(_maximization(scale, device, rows) for rows in SIZES[1:]),
        ],
        ("BoTorch", "here"): [
            *(_drop_in(scale, device, n, *each) for each in searches.items() for n in SIZES),
            *(_append(scale, device, rows) for rows in SIZES),
        ],
    }


def _clock() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _compare(ordinary: Callable[[], Any], ours: Callable[[], Any], scale: Scale) -> Timing[Any]:
    """The first pass of each, in which kernels are loaded, does not count."""
    return compare(ordinary, ours, max(scale.few_repeats, 2), clock=_clock)


def _replicates(scale: Scale, device: str, full_arms: int) -> Measurement:
    num_arms, num_rounds, count = scale.of(full_arms, 50), scale.of(300, 20), scale.of(64, 4)
    options: dict[str, Any] = {"seed": scale.seed, "with_bounds": False, "progress": False}
    play = partial(simulate, arms_problem(num_arms, scale.seed), POLICY, num_rounds, count)
    ways = [partial(play, device=where, **options) for where in ("cpu", device)]
    timing = _compare(ways[0], ways[1], scale)
    units = num_rounds * count
    differing = (timing.ordinary_result.arms != timing.our_result.arms).sum()
    return timing.line(
        f"replicates on arms: {count} x {num_arms} arms, {num_rounds} rounds",
        difference=float(differing),
        note=f"{units / timing.ours:.0f} replicates x rounds a second on {device}, "
        f"{units / timing.ordinary:.0f} on the CPU; difference counts other arms",
    )


def _our_bound(X: Tensor, Y: Tensor) -> GPUpperConfidenceBound:
    model = BanditGP(X, Y, kernel=standard_kernel(0.4), noise=NOISE)
    return GPUpperConfidenceBound(model, width=WIDTH)


def _box_of(X: Tensor) -> Tensor:
    return torch.stack([torch.zeros_like(X[0]), torch.ones_like(X[0])])


def _maximization(scale: Scale, device: str, full_rows: int) -> Measurement:
    rows, restarts = scale.of(full_rows, 60), scale.of(256, 16)
    data = smooth_data(rows, 6, scale.seed)

    def search(where: str) -> Callable[[], float]:
        X, Y = (each.to(where) for each in data)
        sizes = (scale.seed, restarts, 4 * restarts)
        bound, box = _our_bound(X, Y), _box_of(X)
        own = gen_candidates_batched
        return lambda: float(maximize(bound, box, *sizes, gen_candidates=own)[1])

    timing = _compare(search("cpu"), search(device), scale)
    name = f"optimize_acqf: n = {rows}, d = 6, {restarts} restarts"
    note = "difference of the optima"
    return timing.line(name, difference=timing.difference, tolerance=1e-6, note=note)


def _drop_in(
    scale: Scale, device: str, full_rows: int, search: str, own: dict[str, Any]
) -> Measurement:
    rows = scale.of(full_rows, 60)
    X, Y = (each.to(device) for each in smooth_data(rows, 6, scale.seed))
    theirs = their_bound(ordinary_model(X, Y, standard_kernel(0.4).to(device), NOISE))
    ours, box = _our_bound(X, Y), _box_of(X)
    timing = _compare(
        lambda: float(maximize(theirs, box, scale.seed, NUM_RESTARTS)[1]),
        lambda: float(maximize(ours, box, scale.seed, NUM_RESTARTS, **own)[1]),
        scale,
    )
    return timing.line(
        f"optimize_acqf, {search}: n = {rows}, d = 6",
        difference=timing.ordinary_result - timing.our_result,
        tolerance=1e-3,
        note="difference: how much worse our optimum was",
    )


def _append(scale: Scale, device: str, full_rows: int) -> Measurement:
    rows = scale.of(full_rows, 60)
    X, Y = (each.to(device) for each in smooth_data(rows + 1, 2, scale.seed))
    points = smooth_data(256, 2, scale.seed + 1)[0].unsqueeze(-2).to(device)
    kernel = standard_kernel().to(device)
    grown = BanditGP(X[:-1], Y[:-1], kernel=kernel, noise=NOISE)
    moments(grown, points)
    timing = _compare(
        lambda: moments(ordinary_model(X, Y, kernel, NOISE), points),
        lambda: moments(grown.condition_on_observations(X[-1:], Y[-1:]), points),
        scale,
    )
    name = f"append a row and predict 256 points: n = {rows}"
    return timing.line(name, difference=timing.difference, tolerance=1e-8)
