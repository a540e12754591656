"""Benchmarks on arms: rounds of a loop against a model that is rebuilt in every round.

The ordinary way costs seconds a round at the larger sizes, so it is timed in some rounds of the
run, spread evenly, on the very data that the run had then.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from torch import Tensor

from benchmarks.measure import (
    NOISE,
    Measurement,
    Scale,
    compare,
    growth_exponent,
    normal_noise,
    ordinary_model,
    smooth_reward,
    standard_kernel,
    timed,
)
from benchmarks.peak_memory import kept_bytes
from botorch_bandits import Arms, BanditGP, BanditLoop
from botorch_bandits.acquisition import (
    GPThompsonSampling,
    GPUpperConfidenceBound,
)
from botorch_bandits.confidence import gp_ucb_finite_width
from botorch_bandits.problems import ArmsProblem
from botorch_bandits.random_streams import derive_seed
from botorch_bandits.simulation import Policy, simulate

DELTA = 0.1
RECIPE = GPUpperConfidenceBound.with_options(delta=DELTA)
POLICY = Policy(BanditGP.with_kernel(standard_kernel(), noise=NOISE), RECIPE)


def arms_problem(num_arms: int, seed: int) -> ArmsProblem:
    """Return the arms of the benchmarks: random points of the unit square, a smooth reward."""
    stream = torch.Generator().manual_seed(seed)
    choices = torch.rand(num_arms, 2, dtype=torch.float64, generator=stream)
    return ArmsProblem(choices, smooth_reward(choices), noise_std=NOISE**0.5)


# --- loops against rebuilding ------------------------------------------------------------------


def few_arms(scale: Scale) -> list[Measurement]:
    """1000 arms: the loop itself, rounds 300 to 1000, GP-UCB."""
    rounds, arms = scale.of(1000, 60), scale.of(1000, 100)
    return [_loop_against_rebuilding("arms-1k", arms, rounds * 3 // 10, rounds, scale, 200)]


def many_arms(scale: Scale) -> list[Measurement]:
    """10000 arms: the loop itself, around 400 observations, GP-UCB."""
    rounds, arms = scale.of(400, 30), scale.of(10_000, 5000)
    return [_loop_against_rebuilding("arms-10k", arms, rounds * 7 // 8, rounds, scale, 200)]


def very_many_arms(scale: Scale) -> list[Measurement]:
    """100000 arms: the loop itself, up to 300 observations, GP-UCB, with the memory it keeps."""
    rounds, arms, once = scale.of(300, 30), scale.of(100_000, 5000), replace(scale, repeats=1)
    return [_loop_against_rebuilding("arms-100k", arms, rounds // 2, rounds, once, 30, 3)]


def _loop_against_rebuilding(
    name: str,
    num_arms: int,
    first: int,
    rounds: int,
    scale: Scale,
    at_least: float,
    num_rebuilt: int = 12,
) -> Measurement:
    """Time asking and telling in rounds ``first`` to ``rounds``, and rebuilding in some of them."""
    problem = arms_problem(num_arms, scale.seed)
    rewards = _rewards_of(problem)
    noise = _noise_of_loops(rounds, scale.seed)
    spans = []
    for _ in range(scale.few_repeats):
        loop = POLICY.loop(Arms(problem.choices), seed=scale.seed)
        _play(loop, rewards, noise[:first])
        seconds, _ = timed(partial(_play, loop, rewards, noise[first:]))
        spans.append(seconds / (rounds - first))
    X, Y = loop.history.arrived()
    total, differing = 0.0, 0
    checked = torch.linspace(first, rounds - 1, scale.of(num_rebuilt, 3)).long().tolist()
    for t in checked:
        seconds, chosen = timed(partial(_ordinary_choice, problem, X[:t], Y[:t], t + 1))
        total += seconds
        differing += int(not torch.equal(chosen, X[t]))
    return Measurement(
        f"{name}: {num_arms} arms, rounds {first} to {rounds}",
        total / len(checked),
        median(spans),
        (at_least, 1000 if at_least == 200 else 100),
        float(differing),
        note=f"difference counts other arms; the loop keeps {kept_bytes(loop) / 1e6:.0f} MB",
    )


def _rewards_of(problem: ArmsProblem) -> dict[tuple[float, ...], float]:
    """Rewards are looked up, because the evaluation is no part of what is timed."""
    points = map(tuple, problem.choices.tolist())
    return dict(zip(points, problem.values.tolist(), strict=True))


def _noise_of_loops(rounds: int, seed: int) -> list[float]:
    return normal_noise(rounds, derive_seed(seed, 0, "noise"))


def _play(loop: BanditLoop, rewards: dict[tuple[float, ...], float], noise: list[float]) -> None:
    for each in noise:
        query = loop.ask()
        loop.tell(query.id, rewards[tuple(query.x.tolist())] + each)


def _ordinary_choice(
    problem: ArmsProblem, X: Tensor, Y: Tensor, t: int, variances: Tensor | None = None
) -> Tensor:
    model = ordinary_model(X, Y, standard_kernel(), NOISE, variances)
    width = gp_ucb_finite_width(problem.num_arms, t, DELTA)
    acquisition = UpperConfidenceBound(model, beta=width**2)
    with torch.no_grad():
        chosen, _ = optimize_acqf_discrete(acquisition, q=1, choices=problem.choices)
    return chosen.squeeze(0)


def long_run(scale: Scale) -> list[Measurement]:
    """100 arms, 30000 rounds: the simulation against BoTorch on counts and means.

    With one replicate, and with 25, as many as the trials of Chowdhury and Gopalan 2017.
    """
    rounds = scale.of(30_000, 500)
    return [_long_run(scale, 1, rounds, 100.0, 300.0), _long_run(scale, 25, rounds, 250.0, 500.0)]


def _long_run(scale: Scale, count: int, rounds: int, *goals: float) -> Measurement:
    problem = arms_problem(100, scale.seed)
    options: dict[str, Any] = {"seed": scale.seed, "with_bounds": False, "progress": False}
    spans, lengths = [], [rounds // 4, rounds // 2, rounds]
    for length in lengths:
        seconds, played = timed(partial(simulate, problem, POLICY, length, count, **options))
        spans.append(seconds / count)
    assert played.arms is not None
    arms, outcomes = played.arms[-1], played.outcomes[-1]
    checked = torch.linspace(rounds // 10, rounds - 1, scale.of(40, 3)).long().tolist()
    total, differing = 0.0, 0
    for t in checked:
        counts = torch.bincount(arms[:t], minlength=100).to(torch.float64)
        sums = torch.zeros(100, dtype=torch.float64).index_add_(0, arms[:t], outcomes[:t])
        seen = counts > 0
        rows = problem.choices[seen], (sums / counts)[seen].unsqueeze(-1)
        seconds, chosen = timed(
            partial(_ordinary_choice, problem, *rows, t + 1, NOISE / counts[seen])
        )
        total += seconds
        differing += int(int(problem.arm_indices(chosen.unsqueeze(0))) != int(arms[t]))
    return Measurement(
        f"arms-100-long: 100 arms, T = {rounds}, {count} replicate{'s' * (count > 1)}",
        total / len(checked),
        spans[-1] / rounds,
        goals,
        difference=float(differing),
        note=f"cost grows as T^{growth_exponent(lengths, spans):.2f}; difference counts other arms",
    )


# --- Thompson sampling -------------------------------------------------------------------------


def thompson_on_choices(scale: Scale) -> list[Measurement]:
    """Batches of five points by Thompson sampling as a drop-in, on choices in six dimensions."""
    return [_thompson_on_choices(scale, scale.of(size, 60)) for size in (500, 1500)]


def _thompson_on_choices(scale: Scale, num_choices: int) -> Measurement:
    stream = torch.Generator().manual_seed(scale.seed)
    choices = torch.rand(num_choices, 6, dtype=torch.float64, generator=stream)
    X = torch.rand(50, 6, dtype=torch.float64, generator=stream)
    model = SingleTaskGP(X, (6.0 * X).sin().sum(-1, keepdim=True)).eval()

    def ours() -> None:
        draw = GPThompsonSampling(model, choices=choices, seed=scale.seed)
        optimize_acqf_discrete(draw, q=5, choices=choices)

    def theirs() -> None:
        with torch.no_grad():
            MaxPosteriorSampling(model, replacement=False)(choices, num_samples=5)

    timing = compare(theirs, ours, scale.repeats)
    note = "other draws from one law, so there are no results to compare"
    return timing.line(f"ts-drop-in: {num_choices} choices", 1, 3, note=note)
