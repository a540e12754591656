"""The benchmark of tests for changes: all tails at once against two models for each tail.

Both ways return the statistics, which must agree.
"""

from __future__ import annotations

import torch
from gpytorch.settings import skip_posterior_variances
from torch import Tensor

from benchmarks.measure import (
    Measurement,
    Scale,
    compare,
    ordinary_model,
    standard_kernel,
)
from botorch_bandits.change_points import ChangePointDetector
from botorch_bandits.domains import Arms
from botorch_bandits.random_streams import generator


def all_tails(scale: Scale) -> list[Measurement]:
    """1000 arms, 60 and 200 uniform samples: the statistic of every even tail."""
    return [_all_tails(scale, scale.of(full, 12)) for full in (60, 200)]


def _all_tails(scale: Scale, num_samples: int) -> Measurement:
    random = generator(scale.seed, 0, "cpd benchmark")
    domain = Arms(torch.linspace(0.0, 1.0, 1000, dtype=torch.float64).unsqueeze(-1))
    arms = torch.randint(domain.num_arms, (num_samples,), generator=random)
    X = domain.choices[arms]
    normal = torch.randn(num_samples, dtype=torch.float64, generator=random)
    Y = torch.sin(6.0 * X[:, 0]) + 0.05 * normal
    engine = ChangePointDetector(standard_kernel()).on(domain)
    ridges = engine.detector.ridges(engine.half_sizes(num_samples), domain.dim).tolist()
    repeat = scale.of(20, 1)  # one pass of ours is too short for the clock

    def ours() -> Tensor:
        for _ in range(repeat):
            statistics = engine.test(arms, Y).statistics
        return statistics

    def theirs() -> Tensor:
        statistics = []
        with torch.no_grad(), skip_posterior_variances():  # means are enough: the fair comparison
            for n, ridge in enumerate(ridges, start=1):
                means = [
                    ordinary_model(X[half], Y[half].unsqueeze(-1), standard_kernel(), ridge)
                    .posterior(domain.choices)
                    .mean
                    for half in (slice(-2 * n, -n), slice(-n, None))
                ]
                statistics.append((means[0] - means[1]).square().mean())
        return torch.stack(statistics)

    timing = compare(theirs, ours, scale.repeats, (1, repeat))
    exact = timing.ordinary_result
    return timing.line(
        f"cpd-200: {num_samples} samples, all {num_samples // 2} tails",
        100,
        300,
        difference=float(((timing.our_result - exact).abs() / exact).max()),
        tolerance=1e-9,
        note="relative difference of the statistics",
    )
