"""Where the outcomes of a run come from: problems of several kinds, or functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from botorch.test_functions.base import BaseTestProblem, ConstrainedBaseTestProblem
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.history import Query
from botorch_bandits.loop import BanditLoop
from botorch_bandits.problems import ArmsProblem, ChangingProblem
from botorch_bandits.random_streams import RandomBlocks, derive_seed, seeded_globally


@dataclass(frozen=True)
class ByRound:
    """A function that is told the round, too.

    Attributes:
        function: Called with a ``d``-dimensional point and the round (from 1) in which it was
            asked; returns what a function of the point alone would.

    Example:
        >>> from botorch_bandits import Arms, BanditLoop, RandomSearch, run
        >>> arms = Arms(torch.zeros(1, 1, dtype=torch.float64))
        >>> rewards = ByRound(lambda x, round_number: 10.0 * round_number)
        >>> run(BanditLoop(arms, None, RandomSearch()), rewards, 3, progress=False).rewards
        tensor([10., 20., 30.], dtype=torch.float64)
    """

    function: Callable[[Tensor, int], Any]


Problem: TypeAlias = Callable[..., Any] | ChangingProblem | ByRound
"""A BoTorch test problem, an environment whose reward depends on the round, or a function from a
``d``-dimensional point to one number. With constraints a function returns the pair of the reward
and the constraint values."""

Told: TypeAlias = tuple[Any, Any]
"""A reward and its constraint values, or None in their place without constraints."""


def check_constraints(loop: BanditLoop, problem: Problem) -> None:
    """Raise if a problem that says how many constraints it has does not fit the loop."""
    wanted = loop.history.num_constraints
    if wanted == 0 or not isinstance(problem, BaseTestProblem | ChangingProblem):
        return
    found = len(problem.constraints) if isinstance(problem, ChangingProblem) else 0
    if isinstance(problem, ConstrainedBaseTestProblem):
        found = problem.num_constraints
    if found != wanted:
        raise ValueError(
            f"problem ({type(problem).__name__}) has {found} constraints, but the loop has "
            f"{wanted}. Build the rule for the multipliers with "
            f"num_constraints={found}, or leave constraints= out of the loop if there are none."
        )


def input_of(query: Query) -> Tensor:
    """Return what a problem is evaluated at: the context, if any, and the point."""
    context = query.context
    return query.x if context is None else torch.cat([context, query.x])


def evaluate_query(loop: BanditLoop, problem: Problem, query: Query) -> Told:
    """Return the outcome of a query: reward, and constraint values if the loop has any."""
    point = input_of(query)
    if isinstance(problem, ByRound):
        return read_told(loop, problem.function(point, query.round_number))
    asked: Any = problem.at(query.round_number) if isinstance(problem, ChangingProblem) else problem
    if not isinstance(asked, BaseTestProblem):
        return read_told(loop, asked(point))
    with torch.no_grad(), seeded_globally(derive_seed(loop.seed, query.round_number, "noise")):
        reward = asked(point.unsqueeze(0)).squeeze(0)
    return reward, observe_constraints(loop, problem, query)


def read_told(loop: BanditLoop, returned: Any) -> Told:
    """Return what a function returned as a reward and constraint values."""
    if loop.history.num_constraints == 0:
        return returned, None
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise TypeError(
            f"the function returned {returned!r}, but the loop has constraints; return a pair of "
            f"the reward and the {loop.history.num_constraints} constraint values, such as "
            "(reward, [g]). At most 0 is feasible."
        )
    return returned


def observe_constraints(loop: BanditLoop, problem: Problem, query: Query) -> Tensor | None:
    """Return noisy constraint values, whose noise depends on seed and round alone."""
    if loop.history.num_constraints == 0:
        return None
    point = input_of(query).unsqueeze(0)
    seed = derive_seed(loop.seed, query.round_number, "constraint noise")
    with torch.no_grad(), seeded_globally(seed):
        if isinstance(problem, ConstrainedBaseTestProblem):
            return -problem.evaluate_slack(point).squeeze(0)
        assert isinstance(problem, ChangingProblem)
        values = [
            (c.at(query.round_number) if isinstance(c, ChangingProblem) else c)(point).squeeze(0)
            for c in problem.constraints
        ]
    return torch.stack(values)


def true_constraints(problem: Problem, X: Tensor, rounds: list[int]) -> Tensor | None:
    """Return noiseless constraint values, one row a round, if the problem knows them."""
    if isinstance(problem, ConstrainedBaseTestProblem):
        with torch.no_grad():
            return -problem.evaluate_slack_true(X)
    if not isinstance(problem, ChangingProblem):
        return None
    rows = [problem.constraint_values(x.unsqueeze(0), t) for x, t in zip(X, rounds, strict=True)]
    return torch.cat(rows) if rows else X.new_empty(0, len(problem.constraints))


def arms_evaluator(
    problem: ArmsProblem | ChangingProblem, loop: BanditLoop
) -> Callable[[BanditLoop, Problem, Query], Told]:
    """Return what evaluates queries with the noise that a simulated replicate has."""
    noise_std = problem.noise_std or 0.0
    noise = RandomBlocks([loop.seed], "noise")

    def evaluate(loop: BanditLoop, _: Problem, query: Query) -> Told:
        point = input_of(query).unsqueeze(0)
        asked: BaseTestProblem = (
            problem.at(query.round_number) if isinstance(problem, ChangingProblem) else problem
        )
        value = float(asked(point, noise=False))
        reward = value + noise_std * float(noise.at(query.round_number))
        return reward, observe_constraints(loop, problem, query)

    return evaluate


def replay(problem: ChangingProblem, X: Tensor, rounds: list[int]) -> tuple[Tensor, Tensor | None]:
    """Return noiseless rewards, and the largest ones where they are known, of given rounds."""
    if not rounds:
        return X.new_empty(0), X.new_empty(0)
    values = [
        problem.evaluate_true(x.unsqueeze(0), t).squeeze(0) for x, t in zip(X, rounds, strict=True)
    ]
    try:
        optima = [problem.optimal_value(t) for t in rounds]
    except NotImplementedError:  # BoTorch's way to say that it is not known
        return torch.stack(values), None
    return torch.stack(values), torch.tensor(optima, dtype=DTYPE, device=X.device)


def known_optimum(problem: Problem) -> float | None:
    """Return the largest noiseless reward, where the problem knows it."""
    if not isinstance(problem, BaseTestProblem):
        return None
    try:
        return float(problem.optimal_value)
    except NotImplementedError:  # BoTorch's way to say that it is not known
        return None
    except ValueError:  # no arm is feasible
        if isinstance(problem, ConstrainedBaseTestProblem):
            return None
        raise
