"""Replicates that are loops: for policies that no engine plays as one tensor program.

:func:`play_loops` runs ``policy.loop(...)`` once per replicate, one after the other, and collects
the runs in the result of a simulation. It accepts everything that a loop accepts, such as
forgetting, restarts, separate models of constraints, and lists of priors with any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.domains import Arms, Box, Domain
from botorch_bandits.loop import BanditLoop
from botorch_bandits.loop.aspects import UNIFORM_ORIGINS
from botorch_bandits.problems.changing import is_on_arms
from botorch_bandits.running import RunResult, run
from botorch_bandits.simulation.problems import (
    Policy,
    Problem,
    SimulationResult,
    optimal_value_of,
    points_of,
)


def play_loops(
    problems: Sequence[Problem],
    policy: Policy,
    num_rounds: int,
    seeds: Sequence[int],
    on_round: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Run one loop per replicate: ``run(policy.loop(domain, seed=seed), problem, num_rounds)``.

    Args:
        problems: One per replicate, or one for all.
        policy: The policy that is played.
        num_rounds: The number of rounds.
        seeds: The seeds of the loops, one per replicate.
        on_round: Called ``num_rounds`` times in total, each time after as many rounds as there are
            replicates, because the replicates are run one after the other.

    Returns:
        The result without ``covered`` and ``mean_width``.

    Raises:
        ValueError: If settings cannot be combined, or a problem does not know its optimum.
    """
    points = points_of(problems[0])
    domain: Domain = Arms(points) if is_on_arms(problems[0]) else Box(points)
    for problem in problems:
        optimal_value_of(problem, 1)
    num_played = 0

    def count(*_: object) -> None:
        nonlocal num_played
        num_played += 1
        if on_round is not None and num_played % len(seeds) == 0:
            on_round(num_played // len(seeds))

    loops, runs = [], []
    for b, seed in enumerate(seeds):
        loops.append(policy.loop(domain, seed=seed))
        problem = problems[b % len(problems)]
        runs.append(run(loops[-1], problem, num_rounds, progress=False, callbacks=(count,)))
    points = torch.stack([_points(loop, domain.dim) for loop in loops])
    has_restarts = policy.restart is not None
    return SimulationResult(
        arms=_arm_numbers(domain, points),
        outcomes=torch.stack([played.rewards for played in runs]),
        regret=torch.stack([played.regret for played in runs]),
        seeds=tuple(seeds),
        points=points if domain.arms is None else None,
        resets=tuple(loop.resets for loop in loops) if has_restarts else None,
        explored=torch.stack([_explored(loop) for loop in loops]) if has_restarts else None,
        **_of_constraints(policy, loops, runs),
    )


def _points(loop: BanditLoop, dim: int) -> Tensor:
    points = [query.x for query in loop.history.queries]
    return torch.stack(points) if points else torch.empty(0, dim, dtype=DTYPE)


def _arm_numbers(domain: Domain, points: Tensor) -> Tensor | None:
    if domain.arms is None:
        return None
    numbers = domain.arms.index_of(points.reshape(-1, domain.dim))
    return torch.as_tensor(numbers, dtype=torch.long).reshape(points.shape[:-1])


def _explored(loop: BanditLoop) -> Tensor:
    uniform = [query.origin in UNIFORM_ORIGINS for query in loop.history.queries]
    return torch.tensor(uniform, dtype=torch.bool)


def _of_constraints(
    policy: Policy, loops: Sequence[BanditLoop], runs: Sequence[RunResult]
) -> dict[str, Tensor | None]:
    """Return the fields of a result that concern constraints; empty without them."""
    if policy.constraints is None:
        return {}
    ledgers = [loop.ledger() for loop in loops]
    most = max(ledger.num_epochs for ledger in ledgers)
    epochs = torch.stack([ledger.epochs for ledger in ledgers])
    return {
        "constraints": torch.stack([ledger.constraints for ledger in ledgers]),
        "constraint_values": torch.stack([played.constraint_values for played in runs]),
        "multipliers": torch.stack([_padded(ledger.multipliers, most) for ledger in ledgers]),
        # without restarts, all replicates are always in the same epoch
        "epochs": epochs[0] if policy.restart is None else epochs,
    }


def _padded(multipliers: Tensor, num_epochs: int) -> Tensor:
    """Repeat the last of multipliers ``... x n x num_constraints`` up to ``num_epochs`` of them."""
    missing = num_epochs - multipliers.shape[-2]
    last = multipliers[..., -1:, :]
    return torch.cat([multipliers, last.expand(*last.shape[:-2], missing, -1)], dim=-2)
