"""Benchmarks of tests for changes: all tails at once, and what the evidence adds to a loop.

All tails at once against two models for each tail: both ways return the statistics, which must
agree. A loop with the evidence of all outcomes against the same loop without it: while nothing
changes both must play the same points.
"""

from __future__ import annotations

import torch
from gpytorch.settings import skip_posterior_variances
from torch import Tensor

from benchmarks.arms import arms_problem
from benchmarks.boxes import BOUND, RECIPE
from benchmarks.measure import (
    Measurement,
    Scale,
    compare,
    normal_noise,
    ordinary_model,
    smooth_reward,
    standard_kernel,
)
from botorch_bandits import BanditLoop, EvidenceRestart
from botorch_bandits.change_points import ChangePointDetector
from botorch_bandits.domains import Arms, Box, Domain
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


def evidence_in_loops(scale: Scale) -> list[Measurement]:
    """A whole run with the robust evidence against one without: 1000 arms, and a box."""
    arms = Arms(arms_problem(scale.of(1000, 50), scale.seed).choices)
    box = Box([[0.0, 0.0], [1.0, 1.0]])
    return [
        _evidence(scale, f"{arms.num_arms} arms", arms, scale.of(300, 8), 0.1, 0.3),
        _evidence(scale, "box of 2 dimensions", box, scale.of(100, 8), 0.5, 0.8),
    ]


def _evidence(scale: Scale, where: str, domain: Domain, rounds: int, *goals: float) -> Measurement:
    noise = normal_noise(rounds, scale.seed)

    def play(restart: EvidenceRestart | None) -> Tensor:
        loop = BanditLoop(domain, RECIPE, BOUND, restart=restart, seed=scale.seed)
        for each in noise:
            query = loop.ask()
            loop.tell(query.id, float(smooth_reward(query.x)) + each)
        assert not loop.resets
        return torch.stack([query.x for query in loop.history.queries])

    ways = (lambda: play(None), lambda: play(EvidenceRestart()))
    timing = compare(*ways, scale.few_repeats, (rounds, rounds))
    name = f"evidence: {where}, {rounds} rounds, against no restart"
    note = "difference of the points that are played"
    return timing.line(name, *goals, difference=timing.difference, note=note)
