"""What replicates play, and what they return: policies, rewards and results.

A :class:`Policy` has the arguments of a loop except domain and seed. Rewards are tables of
arms that may change with the round. A :class:`SimulationResult` has the regret and outcomes of
every replicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.change_points import Reset, Restart
from botorch_bandits.checks import (
    check_integer,
    store_checked,
)
from botorch_bandits.constraints import Ledger, MultiplierRule
from botorch_bandits.domains import Domain
from botorch_bandits.loop import BanditLoop, Forgetting
from botorch_bandits.models import (
    BanditGPRecipe,
    CandidatesRecipe,
    DefaultCandidates,
)
from botorch_bandits.problems import ArmsProblem, ChangingProblem, SwitchingProblem
from botorch_bandits.problems.changing import check_reward, in_round, is_on_arms


@dataclass(frozen=True)
class Policy:
    """The arguments of a loop except domain and seed.

    Attributes:
        model: Kernel and noise, such as ``BanditGP.with_kernel(...)``; or a list of priors,
            ``BanditGP.with_candidates([...])`` or ``DefaultCandidates(bounds)``.
        acquisition: A recipe such as ``ImprovedUpperConfidenceBound.with_options(...)``.
        num_initial: Rounds at the start, and after each reset, that choose uniformly at random.
        forgetting: How old outcomes are treated; None keeps all of them.
        restart: When the policy starts over because the reward function changes:
            ``ChangePointRestart(...)``, or one of the baselines; None never does.
        constraints: The rule for the multipliers of constraints that must hold on average, such as
            ``AdditiveEpochs(...)``; None without constraints.
    """

    model: BanditGPRecipe | CandidatesRecipe | DefaultCandidates
    acquisition: AcquisitionRecipe | RandomSearch
    num_initial: int = 0
    forgetting: Forgetting | None = None
    restart: Restart | None = None
    constraints: MultiplierRule | None = None

    def __post_init__(self) -> None:
        """Check ``num_initial``."""
        number = check_integer("num_initial", self.num_initial, minimum=0)
        store_checked(self, num_initial=number)

    @property
    def recipe(self) -> BanditGPRecipe | None:
        """The model, if it is one prior; None otherwise."""
        return self.model if isinstance(self.model, BanditGPRecipe) else None

    def loop(self, domain: Domain, seed: int, **options: Any) -> BanditLoop:
        """Return a loop that plays this policy.

        Args:
            domain: The domain from which points are chosen.
            seed: The seed of everything that is drawn at random.
            options: Further arguments of :class:`~botorch_bandits.BanditLoop`.
        """
        options = {
            "num_initial": self.num_initial,
            "forgetting": self.forgetting,
            "restart": self.restart,
            "constraints": self.constraints,
            **options,
        }
        return BanditLoop(domain, self.model, self.acquisition, seed=seed, **options)


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What each replicate did. Tensors are on the CPU.

    Attributes:
        arms: ``num_replicates x num_rounds`` arm numbers; None on a box.
        outcomes: ``num_replicates x num_rounds`` noisy outcomes.
        regret: ``num_replicates x num_rounds``; the regret of each round, from noiseless rewards.
        seeds: One per replicate.
        covered: ``num_replicates``; whether the confidence bounds held at all arms in all rounds.
            None on a box, for a policy without bounds, and if loops are played.
        mean_width: ``num_rounds``; the mean half-distance of the bounds over arms, or None.
        points: ``num_replicates x num_rounds x d`` points on a box; None on arms.
        resets: When each replicate started over and why, in order; None without restarts.
        explored: ``num_replicates x num_rounds``, bool; which rounds drew uniformly at random,
            initial ones included. None without restarts.
        constraints: ``num_replicates x num_rounds x num_constraints`` noisy constraint values; None
            without constraints. With them, bounds are for the penalized reward, and regret is
            relative to the best arm that meets all constraints, so that it can be negative.
        constraint_values: The noiseless values of the constraints, of the same shape.
        multipliers: ``num_replicates x num_epochs x num_constraints``; the multipliers in force in
            each epoch. For replicates with fewer epochs than others, as with restarts, the last
            multipliers are repeated.
        epochs: ``num_rounds``, int64; the epoch of each round, from 1. With restarts
            ``num_replicates x num_rounds``: a reset begins another epoch.
    """

    arms: Tensor | None
    outcomes: Tensor
    regret: Tensor
    seeds: tuple[int, ...]
    covered: Tensor | None = None
    mean_width: Tensor | None = None
    points: Tensor | None = None
    resets: tuple[tuple[Reset, ...], ...] | None = None
    explored: Tensor | None = None
    constraints: Tensor | None = None
    constraint_values: Tensor | None = None
    multipliers: Tensor | None = None
    epochs: Tensor | None = None

    @property
    def cumulative_regret(self) -> Tensor:
        """``num_replicates x num_rounds``; the sum of regrets up to each round."""
        return self.regret.cumsum(-1)

    @property
    def simple_regret(self) -> Tensor:
        """``num_replicates x num_rounds``; the smallest regret up to each round."""
        return self.regret.cummin(-1).values if self.regret.shape[-1] else self.regret

    def ledger(self) -> Ledger:
        """Return which constraints were violated and by how much, from noiseless values.

        Raises:
            ValueError: If the policy had no constraints.
        """
        if self.constraint_values is None or self.multipliers is None or self.epochs is None:
            raise ValueError("the policy had no constraints; pass constraints= to Policy.")
        epochs = self.epochs.expand(self.constraint_values.shape[:-1])
        return Ledger(self.constraint_values, epochs, self.multipliers)


Problem: TypeAlias = BaseTestProblem | ChangingProblem
"""A test problem, or a sequence of them in time."""


def evaluate(problems: list[Problem], points: Tensor, round_number: int) -> Tensor:
    """Return the noiseless rewards of one point per replicate in a round, on the CPU."""
    shares = [points] if len(problems) == 1 else points.split(1)
    with torch.no_grad():
        values = [
            in_round(p, round_number)(share.to(points_of(p).device), noise=False)
            for p, share in zip(problems, shares, strict=True)
        ]
    return torch.cat(values).cpu()


def points_of(problem: Any) -> Tensor:
    """Return the arms of a problem, ``num_arms x d``, or the bounds of its box, ``2 x d``."""
    points: Tensor = problem.choices if is_on_arms(problem) else problem.bounds
    return points


def check_problems(problems: list[Problem], has_constraints: bool = False) -> None:
    """Raise an error unless all problems have the same kind, domain and noise.

    Args:
        problems: At least one.
        has_constraints: Whether a policy observes constraint values as well.

    Raises:
        TypeError: If one of them is not a problem.
        ValueError: If the list is empty, or they cannot be simulated together.
    """
    for problem in problems:
        if not isinstance(problem, Problem):
            raise TypeError(
                f"problem must be an ArmsProblem or a BoTorch test problem, got {problem!r}. A "
                "table of rewards becomes one with ArmsProblem(choices, values)."
            )
    if not problems:
        raise ValueError("problem is an empty list; give at least one problem.")
    first = problems[0]
    for i, other in enumerate(problems):
        if not (is_on_arms(other) or has_constraints):
            periods = other.problems if isinstance(other, SwitchingProblem) else ()
            for part in periods or (in_round(other, 1),):
                check_reward("problem", part)
                is_discrete = bool(part.discrete_inds or part.categorical_inds)
                if is_discrete or type(part).forward is not BaseTestProblem.forward:
                    raise ValueError(
                        f"problem ({type(part).__name__}) has dimensions that are not continuous, "
                        "or adds noise in its own way. Run policy.loop(...) for each seed instead."
                    )
        if is_on_arms(other) != is_on_arms(first):
            raise ValueError(
                "problem is a list of problems on arms and on boxes; simulate the two kinds "
                "separately."
            )
        is_same = torch.equal(points_of(other), points_of(first))
        if not is_same or other.noise_std != first.noise_std:
            what = "arms" if is_on_arms(first) else "bounds"
            raise ValueError(f"problem {i} has other {what} or another noise_std than problem 0.")


def optimal_value_of(problem: Problem, round_number: int) -> float:
    """Return the largest noiseless reward in a round.

    Raises:
        ValueError: If the problem does not know it.
    """
    try:
        return float(in_round(problem, round_number).optimal_value)
    except (AttributeError, NotImplementedError) as error:
        raise ValueError(
            f"problem ({type(problem).__name__}) does not know its optimal value, which regret "
            "needs. Run policy.loop(...) for each seed instead."
        ) from error


def rewards_of(
    problems: Sequence[ChangingProblem | ArmsProblem],
    num_replicates: int,
    device: torch.device | str,
) -> Tensor | Callable[[int], Tensor]:
    """Return the rewards of problems on arms; a matrix if none of them changes.

    Args:
        problems: One per replicate, or one for all.
        num_replicates: The number of replicates.
        device: The device of the rewards.

    Returns:
        ``num_replicates x num_arms``; or a function that maps the number of a round, from 1, to
        such a matrix, the same object as long as nothing changes.
    """
    tables: list[Tensor] = []
    rewards = torch.empty(0)

    def in_round(round_number: int) -> Tensor:
        nonlocal tables, rewards
        found = [
            p.arm_values(round_number) if isinstance(p, ChangingProblem) else p.values
            for p in problems
        ]
        if not tables or any(new is not old for new, old in zip(found, tables, strict=True)):
            tables = found
            rewards = torch.stack(found).to(device).expand(num_replicates, -1)
        return rewards

    changes = any(isinstance(p, ChangingProblem) for p in problems)
    return in_round if changes else in_round(1)
