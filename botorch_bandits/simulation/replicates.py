"""Replicates of a bandit: as one tensor program on arms, in lockstep on a box, or as loops.

The rules are those of the loop, applied to tensors with one more dimension if an engine has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.acquisition.candidates_engine import build_candidates_engine
from botorch_bandits.acquisition.engines import (
    BoxEngine,
    build_arms_engine,
    build_box_engine,
    sample_uniformly,
)
from botorch_bandits.checks import DTYPE, check_finite, check_integer
from botorch_bandits.domains import Arms, Box
from botorch_bandits.loop.settings import check_restart
from botorch_bandits.models import (
    BanditGPRecipe,
    CandidatesRecipe,
    DefaultCandidates,
)
from botorch_bandits.problems import ArmsProblem, ChangingProblem, ConstrainedArmsProblem
from botorch_bandits.progress import ProgressBar
from botorch_bandits.random_streams import RandomBlocks, derive_seed
from botorch_bandits.simulation.arms import play_arms
from botorch_bandits.simulation.candidates import CandidatesReplicates
from botorch_bandits.simulation.constrained import (
    check_constrained,
    is_played_in_step,
    play_constrained_arms,
)
from botorch_bandits.simulation.in_processes import play_in_processes
from botorch_bandits.simulation.loops import play_loops
from botorch_bandits.simulation.problems import (
    Policy,
    Problem,
    SimulationResult,
    bounds_of,
    check_problems,
    evaluate,
    is_on_arms,
    noise_std_of,
    optimal_value_of,
    rewards_of,
)
from botorch_bandits.simulation.restarts import ReplicateSegments


def play_box(
    engine: BoxEngine | None,
    box: Box,
    evaluate: Callable[[Tensor, int], Tensor],
    optimal_values: Tensor,
    noise_std: float,
    num_rounds: int,
    seeds: Sequence[int],
    num_initial: int = 0,
    on_round: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Let an engine play reward functions on a box, one per replicate.

    Args:
        engine: An engine with one seed per replicate; None plays uniformly at random.
        box: The box, on the CPU.
        evaluate: Maps a point per replicate, ``num_replicates x d`` on the CPU, and the round (from
            1) to the noiseless rewards, ``num_replicates``.
        optimal_values: ``num_replicates x num_rounds``, the largest rewards; or one column if they
            do not depend on the round.
        noise_std: Standard deviation of the Gaussian noise.
        num_rounds: The number of rounds.
        seeds: The seeds of noise and initial rounds, one per replicate.
        num_initial: Rounds at the start that choose uniformly at random.
        on_round: Called with the number of each finished round.

    Raises:
        ValueError: If a reward is not finite.
    """
    noise = RandomBlocks(seeds, "noise")
    points = torch.empty(len(seeds), num_rounds, box.dim, dtype=torch.float64)
    values, outcomes = torch.empty(2, len(seeds), num_rounds, dtype=torch.float64)
    for t in range(num_rounds):
        if engine is None or t < num_initial:
            chosen = sample_uniformly(box, seeds, t + 1)
        else:
            chosen, _ = engine.choose(t + 1)
        points[:, t] = chosen
        values[:, t] = check_finite("the problem's values", evaluate(points[:, t], t + 1))
        outcomes[:, t] = values[:, t] + noise_std * noise.at(t + 1)
        if engine is not None:
            engine.observe(points[:, t], outcomes[:, t])
        if on_round is not None:
            on_round(t + 1)
    return SimulationResult(
        arms=None,
        outcomes=outcomes,
        regret=optimal_values - values,
        seeds=tuple(seeds),
        points=points,
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
    num_processes: int = 1,
    progress: bool = True,
) -> SimulationResult:
    """Play independent replicates of a bandit at once, on arms or on a box.

    **On arms**, ``run(policy.loop(Arms(problem.choices), seed=result.seeds[b]), problem,
    num_rounds)`` plays the same as replicate ``b``, up to ties that are decided by rounding. On a
    CPU, replicates share the calls, not the arithmetic: batching pays off most below about a
    hundred arms, and on a GPU.

    With ``policy.restart``, each replicate on arms starts over on its own: its detector looks at
    its own uniform queries, and its widths count its own rounds and segments.

    With ``policy.constraints``, on a :class:`~botorch_bandits.problems.ConstrainedArmsProblem` and
    with the surrogate ``"relabeled"`` or ``"fresh"``, each replicate has its own multipliers.

    With a list of priors (:meth:`BanditGP.with_candidates`), each replicate on arms has its own
    evidence; replicates share only the prior covariances.

    **On a box**, random search and upper confidence bounds with a width rule (GP-UCB, IGP-UCB, AMM)
    on a plain ``BanditGP`` are played in lockstep. Each round maximizes the bounds of all
    replicates together, from ``Box``'s default numbers of raw samples and restarts. A replicate's
    points depend only on its own seed, up to rounding. Its initial rounds are those of
    ``policy.loop(Box(problem.bounds), seed=result.seeds[b])``; later ones start from other raw
    samples, and the noise is drawn as on arms. Batching pays off most with few rounds.

    **Any other policy** is played by loops, one per replicate: ``run(policy.loop(domain,
    seed=result.seeds[b]), problem, num_rounds)``, with the noise of that run. This applies to
    forgetting, models of epochs, restarts together with constraints or a list of priors, separate
    models of constraints, learned hyperparameters, acquisition functions without such a rule, and,
    on a box, draws, lists of priors, restarts and constraints. It takes as long as the loops do,
    and the result has no ``covered`` and ``mean_width``.

    **In processes** (``num_processes``), the replicates are divided among processes, and each
    process plays its part on one thread. Each replicate plays the same as in one process, up to
    ties that are decided by rounding.

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
        num_processes: The number of processes among which the replicates are divided; with 1, this
            process plays all. Other processes are newly started, so a script that uses them must do
            its work under ``if __name__ == "__main__"``. If the simulation fails or is interrupted,
            they end.
        progress: Whether to show a progress bar, which counts the rounds of all processes.

    Raises:
        RuntimeError: If a process died.
        TypeError: If the problem is not a test problem, or cannot be sent to a process.
        ValueError: If problems differ in arms, box or noise, the settings of the policy cannot be
            combined, or a device other than the CPU is requested with several processes or for a
            policy that is played by loops.

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
    if policy.constraints is not None:
        check_constrained(policy, problems)
    count = len(problems) if num_replicates is None else num_replicates
    count = check_integer("num_replicates", count, minimum=1)
    if len(problems) not in (1, count):
        raise ValueError(
            f"num_replicates is {count}, but there are {len(problems)} problems; give one problem, "
            "or one per replicate."
        )
    num_rounds = check_integer("num_rounds", num_rounds, minimum=0)
    seeds = tuple(derive_seed(seed, b, "replicate") for b in range(count))
    if check_integer("num_processes", num_processes, minimum=1) > 1:
        if torch.device(device).type != "cpu":
            raise ValueError(
                f"num_processes is {num_processes}, but device is {device!s}, which processes "
                "would share. Leave out one of them."
            )
        num_processes = min(num_processes, count)
        return play_in_processes(
            _play, problems, policy, num_rounds, seeds, with_bounds, num_processes, progress
        )
    with ProgressBar(num_rounds, "rounds", progress) as bar:
        return _play(
            problems, policy, num_rounds, seeds, device, with_bounds, lambda t: bar.advance()
        )


def _play(
    problems: list[Problem],
    policy: Policy,
    num_rounds: int,
    seeds: tuple[int, ...],
    device: torch.device | str,
    with_bounds: bool,
    on_round: Callable[[int], None],
) -> SimulationResult:
    on_arms = [p for p in problems if is_on_arms(p)]
    played = None
    given = policy.model, getattr(policy.restart, "candidates", None)
    is_many = any(isinstance(each, DefaultCandidates) for each in given)
    is_many = is_many or (policy.constraints is not None and bool(policy.constraints.models_in_use))
    if policy.forgetting is not None or is_many:
        pass  # engines of replicates have no forgetting, model changes, or separate lists
    elif on_arms:
        played = _simulate_arms(on_arms, policy, num_rounds, seeds, device, with_bounds, on_round)
    else:
        played = _simulate_box(problems, policy, num_rounds, seeds, device, on_round)
    if played is not None:
        return played
    if torch.device(device).type != "cpu":
        raise ValueError(
            f"device is {device!s}, but this policy ({policy.acquisition!r}) is played by loops, "
            "which are on the CPU. Leave device= out."
        )
    return play_loops(problems, policy, num_rounds, seeds, on_round)


def _simulate_arms(
    problems: list[Problem],
    policy: Policy,
    num_rounds: int,
    seeds: tuple[int, ...],
    device: torch.device | str,
    with_bounds: bool,
    on_round: Callable[[int], None],
) -> SimulationResult | None:
    """Play replicates on arms as one tensor program; return None if no engine can."""
    on_arms = [p for p in problems if isinstance(p, ArmsProblem | ChangingProblem)]
    choices = on_arms[0].choices
    assert choices is not None
    arms = Arms(choices.to(device))
    has_constraints = policy.constraints is not None
    if has_constraints and not is_played_in_step(policy, problems, arms):
        return None
    rule, segments = None, None
    if (restart := check_restart(policy.restart)) is not None:
        segments = ReplicateSegments(restart, arms, len(seeds), policy.num_initial, policy.model)
        rule = segments.rule(policy.acquisition, arms)
    engine: Any = None
    if isinstance(policy.model, CandidatesRecipe):
        if has_constraints or restart is not None or not _plays_list(policy, arms):
            return None
        engine = CandidatesReplicates(policy.model, policy.acquisition, arms, seeds)
    else:
        assert isinstance(policy.model, BanditGPRecipe)
        engine = build_arms_engine(policy.model, policy.acquisition, arms, seeds, rule=rule)
    if engine is None:
        return None
    if policy.constraints is not None:
        constrained = [p for p in problems if isinstance(p, ConstrainedArmsProblem)]
        return play_constrained_arms(
            engine, policy, arms, constrained, num_rounds, seeds, with_bounds, on_round
        )
    values = rewards_of(on_arms, len(seeds), device)
    noise_std = problems[0].noise_std or 0.0
    return play_arms(
        engine,
        values,
        noise_std,
        num_rounds,
        seeds,
        policy.num_initial,
        with_bounds,
        on_round,
        segments,
    )


def _plays_list(policy: Policy, arms: Arms) -> bool:
    """Return whether an engine on arms can play a list of priors."""
    if not isinstance(policy.acquisition, AcquisitionRecipe):
        return False
    assert isinstance(policy.model, CandidatesRecipe)
    return build_candidates_engine(policy.model, policy.acquisition, arms, 0) is not None


def _simulate_box(
    problems: list[Problem],
    policy: Policy,
    num_rounds: int,
    seeds: tuple[int, ...],
    device: torch.device | str,
    on_round: Callable[[int], None],
) -> SimulationResult | None:
    """Play replicates on a box in lockstep; return None if no engine can."""
    if check_restart(policy.restart) is not None or policy.constraints is not None:
        return None
    box = Box(bounds_of(problems[0]).cpu())
    engine = None
    if not isinstance(policy.acquisition, RandomSearch):
        if isinstance(policy.model, CandidatesRecipe):
            return None
        assert isinstance(policy.model, BanditGPRecipe)
        there = Box(box.bounds.to(device))
        engine = build_box_engine(policy.model, policy.acquisition, there, seeds)
        if engine is None:
            return None
    is_changing = any(isinstance(p, ChangingProblem) for p in problems)
    rounds = range(1, (num_rounds if is_changing else 1) + 1)
    optima = [[optimal_value_of(p, t) for t in rounds] for p in problems]
    return play_box(
        engine,
        box,
        lambda points, t: evaluate(problems, points, t),
        torch.tensor(optima, dtype=DTYPE).expand(len(seeds), -1),
        noise_std_of(problems[0]),
        num_rounds,
        seeds,
        policy.num_initial,
        on_round,
    )
