"""Benchmarks of tests for changes: all tails at once, and what the evidence adds to a loop.

All tails at once against two models for each tail: both ways return the statistics, which must
agree. A loop with the evidence of all outcomes against the same loop without it: while nothing
changes both must play the same points.
"""

from __future__ import annotations

import torch
from gpytorch.settings import skip_posterior_variances
from torch import Tensor

from benchmarks.arms import NOISE, arms_problem
from benchmarks.measure import Measurement, Scale, compare, ordinary_model, standard_kernel
from botorch_bandits import BanditGP, BanditLoop, EvidenceRestart, GPUpperConfidenceBound
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

    def ours() -> Tensor:
        return engine.test(arms, Y).statistics

    def theirs() -> Tensor:
        statistics = []
        with torch.no_grad(), skip_posterior_variances():  # means are enough: the fair comparison
            for n, ridge in enumerate(ridges, start=1):
                halves = (slice(-2 * n, -n), slice(-n, None))
                means = [
                    ordinary_model(X[half], Y[half].unsqueeze(-1), standard_kernel(), ridge)
                    .posterior(domain.choices)
                    .mean
                    for half in halves
                ]
                statistics.append((means[0] - means[1]).square().mean())
        return torch.stack(statistics)

    repeat = scale.of(20, 1)  # one pass is too short for the clock

    def ours_often() -> Tensor:
        for _ in range(repeat - 1):
            ours()
        return ours()

    timing = compare(theirs, ours_often, scale.repeats, (1, repeat))
    exact = timing.ordinary_result
    difference = float(((timing.our_result - exact).abs() / exact).max())
    return Measurement(
        name=f"cpd-200: {num_samples} samples, all {num_samples // 2} tails",
        ratio=timing.ratio,
        difference=difference,
        tolerance=1e-9,
        unit="test of all tails",
        ordinary_seconds=timing.ordinary_seconds,
        our_seconds=timing.our_seconds,
        at_least=100.0,
        aim=300.0,
        note="relative difference of the statistics",
    )


def evidence_in_loops(scale: Scale) -> list[Measurement]:
    """A whole run with the robust evidence against one without: 1000 arms, and a box."""
    problem = arms_problem(scale.of(1000, 50), scale.seed)
    box = Box([[0.0, 0.0], [1.0, 1.0]])
    return [
        _evidence(scale, f"{problem.values.numel()} arms", Arms(problem.choices), 300, 0.1, 0.3),
        _evidence(scale, "box of 2 dimensions", box, 100, 0.5, 0.8),
    ]


def _evidence(
    scale: Scale, where: str, domain: Domain, full: int, at_least: float, aim: float
) -> Measurement:
    rounds = scale.of(full, 8)
    model = BanditGP.with_kernel(standard_kernel(), noise=NOISE)
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    stream = torch.Generator().manual_seed(scale.seed)
    noise = torch.randn(rounds, dtype=torch.float64, generator=stream) * NOISE**0.5

    def play(restart: EvidenceRestart | None) -> Tensor:
        loop = BanditLoop(domain, model, acquisition, restart=restart, seed=scale.seed)
        for n in range(rounds):
            query = loop.ask()
            reward = torch.sin(6.0 * query.x[0]) + torch.cos(4.0 * query.x[1])
            loop.tell(query.id, float(reward + noise[n]))
        assert not loop.resets
        return torch.stack([query.x for query in loop.history.queries])

    timing = compare(
        lambda: play(None), lambda: play(EvidenceRestart()), min(scale.repeats, 3), (rounds, rounds)
    )
    return Measurement(
        name=f"evidence: {where}, {rounds} rounds, against no restart",
        ratio=timing.ratio,
        difference=float((timing.our_result - timing.ordinary_result).abs().max()),
        tolerance=0.0,
        unit="round",
        ordinary_seconds=timing.ordinary_seconds,
        our_seconds=timing.our_seconds,
        at_least=at_least,
        aim=aim,
        note="difference of the points that are played",
    )
