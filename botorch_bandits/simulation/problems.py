"""The problems that can be simulated, read in the same way whatever their kind."""

from __future__ import annotations

from typing import TypeAlias

import torch
from botorch.test_functions.base import (
    BaseTestProblem,
    ConstrainedBaseTestProblem,
    MultiObjectiveTestProblem,
)
from torch import Tensor

from botorch_bandits.checks import check_nonnegative
from botorch_bandits.problems import (
    ArmsProblem,
    ChangingProblem,
    SwitchingProblem,
)

Problem: TypeAlias = BaseTestProblem | ChangingProblem
"""A test problem, or a sequence of them in time."""


def evaluate(problems: list[Problem], points: Tensor, round_number: int) -> Tensor:
    """Return the noiseless rewards of one point a replicate in a round, on the CPU."""
    shares = [points] if len(problems) == 1 else points.split(1)
    with torch.no_grad():
        values = [
            _in_round(p, round_number)(share.to(bounds_of(p).device), noise=False)
            for p, share in zip(problems, shares, strict=True)
        ]
    return torch.cat(values).cpu()


def _in_round(problem: Problem, round_number: int) -> BaseTestProblem:
    return problem.at(round_number) if isinstance(problem, ChangingProblem) else problem


def bounds_of(problem: Problem) -> Tensor:
    """Return the bounds of where points are chosen, ``2 x d``."""
    if isinstance(problem, ChangingProblem):
        return problem.bounds
    return problem.get_buffer("bounds")


def is_on_arms(problem: Problem) -> bool:
    """Return whether the points are finitely many."""
    if isinstance(problem, ChangingProblem):
        return problem.choices is not None
    return isinstance(problem, ArmsProblem)


def check_problems(problems: list[Problem]) -> None:
    """Raise unless all problems are of one kind, at one place, with one noise.

    Raises:
        TypeError: If one is no problem.
        ValueError: If there is none, or they cannot be simulated together.
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
        if not is_on_arms(other):
            periods = other.problems if isinstance(other, SwitchingProblem) else ()
            for part in periods or (_in_round(other, 1),):
                _check_reward_on_box(part)
        if is_on_arms(other) != is_on_arms(first):
            raise ValueError(
                "problem is a list of problems on arms and on boxes; simulate these one after the "
                "other."
            )
        where = "choices" if is_on_arms(first) else "bounds"
        is_same = torch.equal(getattr(other, where), getattr(first, where))
        if not is_same or other.noise_std != first.noise_std:
            what = "arms" if is_on_arms(first) else "bounds"
            raise ValueError(f"problem {i} has other {what} or another noise_std than problem 0.")


def _check_reward_on_box(problem: BaseTestProblem) -> None:
    name = type(problem).__name__
    if isinstance(problem, MultiObjectiveTestProblem | ConstrainedBaseTestProblem):
        raise ValueError(
            f"problem ({name}) has several objectives or constraints; a bandit has one reward."
        )
    if problem.is_minimization_problem:
        raise ValueError(
            f"problem ({name}) is to be minimised, but a bandit maximises. Build it with "
            "negate=True."
        )
    if problem.discrete_inds or problem.categorical_inds:
        raise ValueError(
            f"problem ({name}) has dimensions that are not continuous. Run policy.loop(...) on a "
            "Box with integer_dims= for each seed instead."
        )
    if type(problem).forward is not BaseTestProblem.forward:
        raise ValueError(
            f"problem ({name}) evaluates in its own way, so its noise is not known. Run "
            "policy.loop(...) for each seed instead."
        )


def noise_std_of(problem: Problem) -> float:
    """Return the standard deviation of the noise; 0 if the problem has none."""
    return check_nonnegative("noise_std", 0.0 if problem.noise_std is None else problem.noise_std)


def optimal_value_of(problem: Problem, round_number: int) -> float:
    """Return the largest noiseless reward in a round.

    Raises:
        ValueError: If the problem does not know it.
    """
    try:
        return float(_in_round(problem, round_number).optimal_value)
    except (AttributeError, NotImplementedError) as error:
        raise ValueError(
            f"problem ({type(problem).__name__}) does not know its optimal value, which regret "
            "needs. Run policy.loop(...) for each seed instead."
        ) from error
