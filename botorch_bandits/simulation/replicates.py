"""Replicates of a bandit: as one tensor program on arms, in lockstep on a box, or as loops.

The rules are those of the loop, applied to tensors with one more dimension if an engine has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from botorch_bandits.acquisition import RandomSearch
from botorch_bandits.acquisition.rules import Replicates, player_of
from botorch_bandits.checks import DTYPE, check_finite, check_integer
from botorch_bandits.domains import Arms, Box
from botorch_bandits.problems import ChangingProblem
from botorch_bandits.problems.changing import is_on_arms
from botorch_bandits.progress import progress_bar
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator
from botorch_bandits.simulation.arms import play_arms
from botorch_bandits.simulation.boxes import BoxEngine, build_box_engine
from botorch_bandits.simulation.loops import play_loops
from botorch_bandits.simulation.problems import (
    Policy,
    Problem,
    SimulationResult,
    check_problems,
    evaluate,
    optimal_value_of,
    points_of,
    rewards_of,
)


def simulate(
    problem: Problem | Sequence[Problem],
    policy: Policy,
    num_rounds: int,
    num_replicates: int | None = None,
    *,
    seed: int = 0,
    device: torch.device | str = "cpu",
    with_bounds: bool = True,
    progress: bool | None = None,
) -> SimulationResult:
    """Play independent replicates of a bandit at once, on arms or on a box.

    **On arms**, ``run(policy.loop(Arms(problem.choices), seed=result.seeds[b]), problem,
    num_rounds)`` plays the same as replicate ``b``, up to ties that are decided by rounding. On a
    CPU, replicates share the calls, not the arithmetic: batching pays off most below about a
    hundred arms, and on a GPU.

    **On a box**, upper confidence bounds with a width rule (GP-UCB, IGP-UCB, AMM) on a plain
    ``BanditGP`` are played in lockstep. Each round maximizes the bounds of all
    replicates together, from ``Box``'s default numbers of raw samples and restarts. A replicate's
    points depend only on its own seed, up to rounding. Its initial rounds are those of
    ``policy.loop(Box(problem.bounds), seed=result.seeds[b])``; later ones start from other raw
    samples, and the noise is drawn as on arms. Batching pays off most with few rounds.

    **Any other policy** is played by loops, one per replicate: ``run(policy.loop(domain,
    seed=result.seeds[b]), problem, num_rounds)``, with the noise of that run. This applies to
    constraints, lists of priors, forgetting, restarts, learned hyperparameters, acquisition
    functions without such a rule, and, on a box, draws and random search. It takes as long as the
    loops do, and the result has no ``covered`` and ``mean_width``.

    Args:
        problem: A reward function to be maximized, with its noise: an
            :class:`~botorch_bandits.problems.ArmsProblem`, or a BoTorch test problem on a box that
            knows its optimal value; or an environment whose reward depends on the round
            (:class:`~botorch_bandits.problems.ChangingProblem`), on either. Alternatively, a list
            of these with one per replicate, all on the same arms or box with the same noise. Regret
            is relative to the largest reward of the round.
        policy: The policy that is played.
        num_rounds: The number of rounds.
        num_replicates: The number of replicates; the number of problems if omitted.
        seed: Replicate ``b`` has the seed ``derive_seed(seed, b, "replicate")``.
        device: Where the arithmetic runs. Random numbers are drawn on the CPU.
        with_bounds: Whether to compute ``covered`` and ``mean_width`` on arms, which takes time.
        progress: Whether to show a progress bar of the rounds; if omitted, it is shown if tqdm is
            installed.

    Raises:
        TypeError: If the problem is not a test problem.
        ValueError: If problems differ in arms, box or noise, the settings of the policy cannot be
            combined, or a device other than the CPU is requested for a policy that is played by
            loops.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP, GPUpperConfidenceBound
        >>> from botorch_bandits.problems import BraninReward, gp_draw_on_arms
        >>> choices = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> problem = gp_draw_on_arms(RBFKernel().double(), choices, noise_std=0.1)
        >>> policy = Policy(
        ...     BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        ...     GPUpperConfidenceBound.with_options(delta=0.1),
        ... )
        >>> result = simulate(problem, policy, num_rounds=20, num_replicates=3, progress=False)
        >>> result.regret.shape
        torch.Size([3, 20])
        >>> policy = Policy(
        ...     BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=3.0),
        ...     GPUpperConfidenceBound.with_options(width=2.0),
        ... )
        >>> result = simulate(BraninReward(noise_std=0.1), policy, 5, 3, progress=False)
        >>> result.points.shape
        torch.Size([3, 5, 2])
    """
    problems = [problem] if isinstance(problem, Problem) else list(problem)
    check_problems(problems, has_constraints=policy.constraints is not None)
    count = len(problems) if num_replicates is None else num_replicates
    count = check_integer("num_replicates", count, minimum=1)
    if len(problems) not in (1, count):
        raise ValueError(
            f"num_replicates is {count}, but there are {len(problems)} problems; give one problem, "
            "or one per replicate."
        )
    num_rounds = check_integer("num_rounds", num_rounds, minimum=0)
    seeds = tuple(derive_seed(seed, b, "replicate") for b in range(count))
    device = torch.device(device)
    engine = _engine_of(problems[0], policy, seeds, device)
    if engine is None and device.type != "cpu":
        raise ValueError(
            f"device is {device!s}, but this policy ({policy.acquisition!r}) is played by loops, "
            "which are on the CPU. Leave device= out."
        )
    with progress_bar(num_rounds, "rounds", progress) as advance:

        def on_round(_: int) -> None:
            advance()

        if isinstance(engine, BoxEngine):
            return _play_box(engine, problems, num_rounds, seeds, policy.num_initial, on_round)
        if engine is None:
            return play_loops(problems, policy, num_rounds, seeds, on_round)
        return play_arms(
            engine,
            rewards_of(problems, count, device),
            problems[0].noise_std or 0.0,
            num_rounds,
            seeds,
            policy.num_initial,
            with_bounds,
            on_round,
        )


def _engine_of(
    problem: Problem, policy: Policy, seeds: tuple[int, ...], device: torch.device
) -> Replicates | BoxEngine | None:
    """Return the engine that plays replicates of a policy; None if loops have to."""
    # engines of replicates have no restarts, forgetting, lists of priors or multipliers
    features = (policy.restart, policy.forgetting, policy.constraints)
    if policy.recipe is None or any(feature is not None for feature in features):
        return None
    points = points_of(problem).to(device)
    if is_on_arms(problem):
        engine = player_of(policy.recipe, policy.acquisition, Arms(points), seeds)
        assert engine is None or isinstance(engine, Replicates)
        return engine
    if isinstance(policy.acquisition, RandomSearch):
        return None
    return build_box_engine(policy.recipe, policy.acquisition, Box(points), seeds)


def _play_box(
    engine: BoxEngine,
    problems: list[Problem],
    num_rounds: int,
    seeds: tuple[int, ...],
    num_initial: int,
    on_round: Callable[[int], None],
) -> SimulationResult:
    """Play replicates on a box in lockstep."""
    box = engine.box
    is_changing = any(isinstance(p, ChangingProblem) for p in problems)
    rounds = range(1, (num_rounds if is_changing else 1) + 1)
    optima = [[optimal_value_of(p, t) for t in rounds] for p in problems]
    noise, noise_std = RandomBlocks(seeds, "noise"), problems[0].noise_std or 0.0
    points = torch.empty(len(seeds), num_rounds, box.dim, dtype=DTYPE)
    values, outcomes = torch.empty(2, len(seeds), num_rounds, dtype=DTYPE)
    for t in range(num_rounds):
        if t < num_initial:
            # as loops with these seeds draw in their initial rounds
            draws = [box.sample(1, generator(seed, t + 1, "sample")) for seed in seeds]
            points[:, t] = torch.cat(draws)
        else:
            points[:, t] = engine.choose(t + 1)[0]
        rewards = evaluate(problems, points[:, t], t + 1)
        values[:, t] = check_finite("the problem's values", rewards)
        outcomes[:, t] = values[:, t] + noise_std * noise.at(t + 1)
        engine.observe(points[:, t], outcomes[:, t])
        on_round(t + 1)
    return SimulationResult(
        arms=None,
        outcomes=outcomes,
        regret=torch.tensor(optima, dtype=DTYPE).expand(len(seeds), -1) - values,
        seeds=seeds,
        points=points,
    )
