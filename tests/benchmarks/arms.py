"""Benchmarks on arms: rounds of a loop against a model that is rebuilt in every round.

The ordinary way costs seconds a round at the larger sizes, so it is timed in some rounds of the
run, spread evenly, on the very data that the run had then.
"""

from __future__ import annotations

import copy
import time
from dataclasses import replace

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf_discrete
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from benchmarks.measure import (
    Measurement,
    Scale,
    compare,
    growth_exponent,
    ordinary_model,
    standard_kernel,
)
from benchmarks.peak_memory import kept_bytes
from botorch_bandits.acquisition import (
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Replicates,
    player_of,
)
from botorch_bandits.confidence import gp_ucb_finite_width
from botorch_bandits.core.posterior import Posterior
from botorch_bandits.domains import Arms
from botorch_bandits.models import BanditGP, double_kernel
from botorch_bandits.problems import ArmsProblem
from botorch_bandits.random_streams import derive_seed
from botorch_bandits.simulation import Policy, play_arms, simulate

NOISE, DELTA = 0.01, 0.1
RECIPE = GPUpperConfidenceBound.with_options(delta=DELTA)


def few_arms(scale: Scale) -> list[Measurement]:
    """1000 arms: the loop itself, rounds 300 to 1000, GP-UCB."""
    rounds = scale.of(1000, 60)
    problem = arms_problem(scale.of(1000, 100), scale.seed)
    return [
        _loop_against_rebuilding("arms-1k", problem, rounds * 3 // 10, rounds, scale, 200, 1000)
    ]


def many_arms(scale: Scale) -> list[Measurement]:
    """10000 arms: the loop itself, around 400 observations, GP-UCB."""
    rounds = scale.of(400, 30)
    problem = arms_problem(scale.of(10_000, 5000), scale.seed)
    return [
        _loop_against_rebuilding("arms-10k", problem, rounds * 7 // 8, rounds, scale, 200, 1000)
    ]


def very_many_arms(scale: Scale) -> list[Measurement]:
    """100000 arms: the loop itself, up to 300 observations, GP-UCB, with the memory it keeps."""
    rounds = scale.of(300, 30)
    problem = arms_problem(scale.of(100_000, 5000), scale.seed)
    once = replace(scale, repeats=1)
    found = _loop_against_rebuilding("arms-100k", problem, rounds // 2, rounds, once, 30, 100, 3)
    return [found]


def many_loops(scale: Scale) -> list[Measurement]:
    """40 loops on the same 1000 arms, after 50 rounds each: what they keep beyond one of them."""
    count, rounds = scale.of(40, 4), scale.of(50, 5)
    problem = arms_problem(scale.of(1000, 100), scale.seed)
    model = BanditGP.with_kernel(standard_kernel(), noise=NOISE)
    # equal arms in tensors of their own, as programs that know nothing of each other have them
    loops = [
        Policy(model, RECIPE).loop(Arms(problem.choices.clone()), seed=scale.seed)
        for _ in range(count)
    ]
    points = map(tuple, problem.choices.tolist())
    rewards = dict(zip(points, problem.values.tolist(), strict=True))
    for noise in _noisy(problem, rounds, scale.seed):
        for loop in loops:
            query = loop.ask()
            loop.tell(query.id, rewards[tuple(query.x.tolist())] + noise)
    alone, together = kept_bytes(loops[0]), kept_bytes(loops)
    played = [loop.history.arrived()[0] for loop in loops]
    return [
        Measurement(
            name=f"arms-40-loops: {problem.num_arms} arms, {count} loops, {rounds} rounds",
            ratio=(count - 1) * alone / (together - alone),
            difference=float(max((played[0] - X).abs().max() for X in played)),
            tolerance=0.0,
            unit="loop",
            ordinary_seconds=0.0,
            our_seconds=0.0,
            at_least=10.0,
            note=f"{(together - alone) / 1e6:.0f} MB beyond the first loop, which keeps "
            f"{alone / 1e6:.1f} MB; the ratio is to as many that share nothing",
        )
    ]


def long_run(scale: Scale) -> list[Measurement]:
    """100 arms, 30000 rounds: the simulation against BoTorch on counts and means.

    With one replicate, and with 25, as many as the trials of Chowdhury and Gopalan 2017.
    """
    return [
        _long_run(scale, 1, scale.of(30_000, 500), 100.0, 300.0),
        _long_run(scale, 25, scale.of(30_000, 500), 250.0, 500.0),
    ]


def _long_run(scale: Scale, count: int, rounds: int, at_least: float, aim: float) -> Measurement:
    problem = arms_problem(100, scale.seed)
    policy = Policy(BanditGP.with_kernel(standard_kernel(), noise=NOISE), RECIPE)
    spans, lengths = [], [rounds // 4, rounds // 2, rounds]
    for length in lengths:
        start = time.process_time()
        played = simulate(
            problem, policy, length, count, seed=scale.seed, with_bounds=False, progress=False
        )
        spans.append((time.process_time() - start) / count)
    assert played.arms is not None
    arms, outcomes = played.arms[-1], played.outcomes[-1]
    checked = torch.linspace(rounds // 10, rounds - 1, scale.of(40, 3)).long().tolist()
    total, differing = 0.0, 0
    for t in checked:
        counts = torch.bincount(arms[:t], minlength=100).to(torch.float64)
        sums = torch.zeros(100, dtype=torch.float64).index_add_(0, arms[:t], outcomes[:t])
        start = time.process_time()
        chosen = _ordinary_choice_on_counts(problem, counts, sums, t + 1)
        total += time.process_time() - start
        differing += int(chosen != int(arms[t]))
    ours, ordinary = spans[-1] / rounds, total / len(checked)
    return Measurement(
        name=f"arms-100-long: 100 arms, T = {rounds}, {count} replicate{'s' * (count > 1)}",
        ratio=ordinary / ours,
        difference=float(differing),
        tolerance=0.0,
        unit="round of a replicate",
        ordinary_seconds=ordinary,
        our_seconds=ours,
        at_least=at_least,
        aim=aim,
        note=f"cost grows as T^{growth_exponent(lengths, spans):.2f}; difference counts other arms",
    )


def thompson(scale: Scale) -> list[Measurement]:
    """Rounds of Thompson sampling on 1000 arms, exact joint draws, after 100 observations."""
    num_arms, rounds = scale.of(1000, 100), scale.of(100, 20)
    problem = arms_problem(num_arms, scale.seed)
    smooth = double_kernel(RBFKernel(), lengthscale=0.2)
    recipe = GPThompsonSampling.with_options(width=1.0)
    model = BanditGP.with_kernel(smooth, noise=NOISE)
    player = player_of(model, recipe, Arms(problem.choices), [scale.seed])
    assert isinstance(player, Replicates)
    seeds = [derive_seed(scale.seed, 0, "replicate")]
    values = problem.values.unsqueeze(0)
    played = play_arms(player, values, NOISE**0.5, rounds, seeds)
    assert played.arms is not None
    X, Y = problem.choices[played.arms[0]], played.outcomes[0].unsqueeze(-1)
    ordinary = ordinary_model(X, Y, smooth, NOISE)
    draws = scale.of(200, 5)
    copies = iter([copy.deepcopy(player) for _ in range(scale.repeats + 1)])

    def ours() -> None:
        own = next(copies)
        for t in range(rounds, rounds + draws):
            arm = int(own.choose(own.look(t + 1)))
            own.observe(arm, float(problem.values[arm]))

    def theirs() -> None:
        for _ in range(3):
            rebuilt = ordinary_model(X, Y, smooth, NOISE)
            MaxPosteriorSampling(rebuilt, replacement=False)(problem.choices, num_samples=1)

    timing = compare(theirs, ours, scale.repeats, (3, draws))
    posterior = ordinary.posterior(problem.choices)
    difference = max(
        float((player.posterior.mean[0, 0] - posterior.mean.squeeze(-1)).abs().max()),
        float((_covariance_of_draws(player) - posterior.covariance_matrix).abs().max()),
    )
    return [
        Measurement(
            name=f"ts-exact-1k: {num_arms} arms",
            ratio=timing.ratio,
            difference=difference,
            tolerance=1e-8,
            unit="round",
            ordinary_seconds=timing.ordinary_seconds,
            our_seconds=timing.our_seconds,
            at_least=150.0,
            aim=400.0,
            note="difference of the mean and covariance of draws",
        )
    ]


def thompson_on_choices(scale: Scale) -> list[Measurement]:
    """Batches of five points by Thompson sampling as a drop-in, on choices in six dimensions."""
    measurements = []
    for size in (500, 1500):
        num_choices, dim = scale.of(size, 60), 6
        stream = torch.Generator().manual_seed(scale.seed)
        choices = torch.rand(num_choices, dim, dtype=torch.float64, generator=stream)
        X = torch.rand(50, dim, dtype=torch.float64, generator=stream)
        model = SingleTaskGP(X, (6.0 * X).sin().sum(-1, keepdim=True)).eval()

        def ours(model: SingleTaskGP = model, choices: Tensor = choices) -> None:
            draw = GPThompsonSampling(model, choices=choices, seed=scale.seed)
            optimize_acqf_discrete(draw, q=5, choices=choices)

        def theirs(model: SingleTaskGP = model, choices: Tensor = choices) -> None:
            with torch.no_grad():
                MaxPosteriorSampling(model, replacement=False)(choices, num_samples=5)

        timing = compare(theirs, ours, scale.repeats, (1, 1))
        measurements.append(
            Measurement(
                name=f"ts-drop-in: {num_choices} choices",
                ratio=timing.ratio,
                difference=0.0,
                tolerance=0.0,
                unit="batch of 5",
                ordinary_seconds=timing.ordinary_seconds,
                our_seconds=timing.our_seconds,
                at_least=1.0,
                aim=3.0,
                note="other draws from one law, so there are no results to compare",
            )
        )
    return measurements


def arms_problem(num_arms: int, seed: int) -> ArmsProblem:
    """Return the arms of the benchmarks: random points of the unit square, a smooth reward."""
    stream = torch.Generator().manual_seed(seed)
    choices = torch.rand(num_arms, 2, dtype=torch.float64, generator=stream)
    values = torch.sin(6.0 * choices[:, 0]) + torch.cos(4.0 * choices[:, 1])
    return ArmsProblem(choices, values, noise_std=NOISE**0.5)


def _loop_against_rebuilding(
    name: str,
    problem: ArmsProblem,
    first: int,
    rounds: int,
    scale: Scale,
    at_least: float,
    aim: float,
    num_rebuilt: int = 12,
) -> Measurement:
    """Time asking and telling in rounds ``first`` to ``rounds``, and rebuilding in some of them."""
    domain = Arms(problem.choices)
    model = BanditGP.with_kernel(standard_kernel(), noise=NOISE)
    points = map(tuple, problem.choices.tolist())
    rewards = dict(zip(points, problem.values.tolist(), strict=True))
    spans = []
    for _ in range(min(scale.repeats, 3)):
        loop = Policy(model, RECIPE).loop(domain, seed=scale.seed)
        values = iter(_noisy(problem, rounds, scale.seed))
        for t in range(rounds):
            if t == first:
                start = time.process_time()
            query = loop.ask()
            # looked up, for the evaluation is no part of what is timed
            loop.tell(query.id, rewards[tuple(query.x.tolist())] + next(values))
        spans.append((time.process_time() - start) / (rounds - first))
    X, Y = loop.history.arrived()
    differing, total = 0, 0.0
    checked = torch.linspace(first, rounds - 1, scale.of(num_rebuilt, 3)).long().tolist()
    for t in checked:
        start = time.process_time()
        chosen = _ordinary_choice(problem, X[:t], Y[:t])
        total += time.process_time() - start
        differing += int(not torch.equal(chosen, X[t]))
    ours, ordinary = sorted(spans)[len(spans) // 2], total / len(checked)
    return Measurement(
        name=f"{name}: {problem.num_arms} arms, rounds {first} to {rounds}",
        ratio=ordinary / ours,
        difference=float(differing),
        tolerance=0.0,
        unit="round",
        ordinary_seconds=ordinary,
        our_seconds=ours,
        at_least=at_least,
        aim=aim,
        note=f"difference counts other arms; the loop keeps {kept_bytes(loop) / 1e6:.0f} MB",
    )


def _noisy(problem: ArmsProblem, rounds: int, seed: int) -> list[float]:
    stream = torch.Generator().manual_seed(derive_seed(seed, 0, "noise"))
    normal = torch.randn(rounds, dtype=torch.float64, generator=stream)
    return (normal * (problem.noise_std or 0.0)).tolist()


def _ordinary_choice(problem: ArmsProblem, X: Tensor, Y: Tensor) -> Tensor:
    model = ordinary_model(X, Y, standard_kernel(), NOISE)
    return _discrete_maximum(model, problem, len(X) + 1)


def _ordinary_choice_on_counts(
    problem: ArmsProblem, counts: Tensor, sums: Tensor, round_number: int
) -> int:
    played = counts > 0
    noise = (NOISE / counts[played]).unsqueeze(-1)
    model = SingleTaskGP(
        problem.choices[played],
        (sums / counts)[played].unsqueeze(-1),
        train_Yvar=noise,
        covar_module=double_kernel(standard_kernel()),
        mean_module=ZeroMean(),
        outcome_transform=None,
    ).eval()
    chosen = _discrete_maximum(model, problem, round_number)
    return int(problem.arm_indices(chosen.unsqueeze(0)))


def _discrete_maximum(model: SingleTaskGP, problem: ArmsProblem, round_number: int) -> Tensor:
    width = gp_ucb_finite_width(problem.num_arms, round_number, DELTA)
    acquisition = UpperConfidenceBound(model, beta=width**2)
    with torch.no_grad():
        chosen, _ = optimize_acqf_discrete(acquisition, q=1, choices=problem.choices)
    return chosen.squeeze(0)


def _covariance_of_draws(player: Replicates) -> Tensor:
    """A draw is linear in its normal numbers, so its covariance can be computed exactly."""
    posterior = player.posterior
    assert isinstance(posterior, Posterior)
    (prior,) = posterior.prior.priors
    rank, rows = prior.num_normals, player.rows_of_draw(posterior)
    numbers = torch.eye(rank + len(rows), dtype=torch.float64)
    function = prior.simulate(numbers[:, :rank]).unsqueeze(0)
    root = posterior.deviation_of_draw(function, numbers[:, rank:].unsqueeze(0), rows)[0]
    return root.T @ root
