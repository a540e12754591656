"""Environments: reward functions that depend on the round.

A change point ``tau`` is the last round of a period: the function of round ``tau + 1`` is another
one (Avanesov, *Online non-stationary kernelized bandits*, section 2). ``K`` periods have ``K - 1``
change points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import torch
from botorch.test_functions.base import (
    BaseTestProblem,
    ConstrainedBaseTestProblem,
    MultiObjectiveTestProblem,
)
from torch import Tensor

from botorch_bandits.checks import check_integer
from botorch_bandits.problems.arms import ArmsProblem


class ChangingProblem(ABC):
    """A reward function to be maximised that depends on the round.

    It is no BoTorch test problem, because those know no rounds; :meth:`at` gives the one of a
    round. ``run`` and ``simulate`` play either, and measure the regret of a round against the
    largest reward of that round's function.

    Constraints ``g_j(x) <= 0`` may come with the reward. Each is a problem or an environment of its
    own, so the reward may change alone, or one constraint. Regret does not look at them.

    Attributes:
        dim: The dimension of the points.
        bounds: The box, or the smallest box that holds all arms; ``2 x dim``.
        choices: ``num_arms x dim`` arms; None on a box.
        noise_std: Standard deviation of the Gaussian observation noise; None for no noise.
        constraints: The functions ``g_j``.
        change_points: The last round of each period but the last one; None where the function
            changes gradually.
    """

    change_points: tuple[int, ...] | None = None

    def __init__(
        self,
        like: BaseTestProblem,
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """Take domain and noise from a problem, and check that constraints share the domain."""
        self.bounds = like.get_buffer("bounds")
        self.dim = int(self.bounds.shape[-1])
        self.choices = like.choices if isinstance(like, ArmsProblem) else None
        self.noise_std = like.noise_std
        self.constraints = tuple(constraints)
        for i, constraint in enumerate(self.constraints):
            name = f"constraints[{i}]"
            if not isinstance(constraint, ChangingProblem):
                check_reward(name, constraint)
            check_same_domain(name, constraint, self)

    @abstractmethod
    def at(self, round_number: int) -> BaseTestProblem:
        """Return the problem of a round.

        Args:
            round_number: From 1.
        """

    def evaluate_true(self, X: Tensor, round_number: int) -> Tensor:
        """Return the noiseless rewards of a round.

        Args:
            X: Points, ``batch_shape x dim``, float64.
            round_number: From 1.

        Returns:
            Rewards, ``batch_shape``.
        """
        with torch.no_grad():
            rewards: Tensor = self.at(round_number)(X, noise=False)
        return rewards

    def arm_values(self, round_number: int) -> Tensor:
        """Return the noiseless rewards of all arms in a round, ``(num_arms,)``.

        The tensor is shared; do not change it.

        Args:
            round_number: From 1.

        Raises:
            ValueError: On a box.
        """
        problem = self.at(round_number)
        if not isinstance(problem, ArmsProblem):
            raise ValueError(f"{type(self).__name__} is on a box; only arms have arm_values.")
        return problem.values

    def optimal_value(self, round_number: int) -> float:
        """Return the largest noiseless reward of a round; numerical on a box.

        Args:
            round_number: From 1.
        """
        if self.choices is not None:
            return float(self.arm_values(round_number).max())
        return float(self.at(round_number).optimal_value)

    def constraint_values(self, X: Tensor, round_number: int) -> Tensor:
        """Return the noiseless constraint functions of a round; a point is feasible if all <= 0.

        Args:
            X: Points, ``batch_shape x dim``, float64.
            round_number: From 1.

        Returns:
            ``batch_shape x num_constraints``.
        """
        columns = []
        for constraint in self.constraints:
            problem = constraint
            if isinstance(problem, ChangingProblem):
                problem = problem.at(round_number)
            with torch.no_grad():
                columns.append(problem(X, noise=False))
        return torch.stack(columns, -1) if columns else X.new_empty(*X.shape[:-1], 0)


class SwitchingProblem(ChangingProblem):
    """A piecewise-constant sequence of reward functions.

    Args:
        problems: One a period, to be maximised, all on the same arms or box with the same noise.
        change_points: The last round of each period but the last one, increasing; the function
            changes in the round behind it.
        constraints: See :class:`ChangingProblem`; they have change points of their own.

    Raises:
        TypeError: If a problem is no BoTorch test problem.
        ValueError: If problems differ in domain or noise, are to be minimised, or change points do
            not fit.

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> low = ArmsProblem(choices, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> high = ArmsProblem(choices, torch.tensor([5.0, 4.0], dtype=torch.float64))
        >>> environment = SwitchingProblem([low, high], change_points=[10])
        >>> environment.optimal_value(10), environment.optimal_value(11)
        (2.0, 5.0)
    """

    change_points: tuple[int, ...]

    def __init__(
        self,
        problems: Sequence[BaseTestProblem],
        change_points: Sequence[int],
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """See the class."""
        self.problems = tuple(problems)
        if not self.problems:
            raise ValueError("problems is empty; give one problem a period.")
        for i, problem in enumerate(self.problems):
            check_reward(f"problems[{i}]", problem)
        super().__init__(self.problems[0], constraints)
        for i, problem in enumerate(self.problems):
            check_same_domain(f"problems[{i}]", problem, self)
            if problem.noise_std != self.noise_std:
                raise ValueError(
                    f"problems[{i}] has noise_std={problem.noise_std}, problems[0] has "
                    f"{self.noise_std}; give all periods the same noise."
                )
        self.change_points = check_change_points(change_points, len(self.problems))
        self._largest = [
            float(p.values.max()) if isinstance(p, ArmsProblem) else None for p in self.problems
        ]

    def period(self, round_number: int) -> int:
        """Return which period a round is in, from 0.

        Args:
            round_number: From 1.
        """
        round_number = check_integer("round_number", round_number, minimum=1)
        return bisect_left(self.change_points, round_number)

    def at(self, round_number: int) -> BaseTestProblem:
        """See :meth:`ChangingProblem.at`."""
        return self.problems[self.period(round_number)]

    def optimal_value(self, round_number: int) -> float:
        """See :meth:`ChangingProblem.optimal_value`."""
        known = self._largest[self.period(round_number)]
        return super().optimal_value(round_number) if known is None else known


def evenly_spaced_change_points(num_rounds: int, num_periods: int) -> tuple[int, ...]:
    """Return the change points of periods of equal length, up to rounding down.

    Args:
        num_rounds: The horizon.
        num_periods: How many, at most ``num_rounds``.

    Example:
        >>> evenly_spaced_change_points(1200, 4)
        (300, 600, 900)
    """
    num_periods = check_integer("num_periods", num_periods, minimum=1)
    num_rounds = check_integer("num_rounds", num_rounds, minimum=num_periods)
    return tuple(num_rounds * k // num_periods for k in range(1, num_periods))


def check_change_points(change_points: Sequence[int], num_periods: int) -> tuple[int, ...]:
    """Return change points as integers if they are increasing and fit the number of periods."""
    points = tuple(check_integer("change_points", tau, minimum=1) for tau in change_points)
    if len(points) != num_periods - 1:
        raise ValueError(
            f"change_points has {len(points)} entries, but {num_periods} periods have "
            f"{num_periods - 1}; give the last round of each period but the last one."
        )
    if any(second <= first for first, second in pairwise(points)):
        raise ValueError(f"change_points is {points}; it must increase strictly.")
    return points


def check_reward(name: str, problem: BaseTestProblem) -> None:
    """Refuse what is no BoTorch test problem with one objective to be maximised."""
    if not isinstance(problem, BaseTestProblem):
        raise TypeError(
            f"{name} must be a BoTorch BaseTestProblem, got {type(problem).__name__}; a table of "
            "rewards becomes one with ArmsProblem(choices, values)."
        )
    kind = type(problem).__name__
    if isinstance(problem, MultiObjectiveTestProblem | ConstrainedBaseTestProblem):
        raise ValueError(
            f"{name} ({kind}) has several objectives or constraints of BoTorch's kind; give the "
            "reward alone, and constraints as functions of their own (constraints=)."
        )
    if problem.is_minimization_problem:
        raise ValueError(
            f"{name} ({kind}) is to be minimised, but its values are taken as they are; build it "
            "with negate=True."
        )


def check_same_domain(
    name: str, problem: BaseTestProblem | ChangingProblem, environment: ChangingProblem
) -> None:
    """Refuse a problem on other arms, or another box, than the environment's."""
    choices = getattr(problem, "choices", None)
    bounds = problem.bounds if isinstance(problem, ChangingProblem) else None
    bounds = problem.get_buffer("bounds") if bounds is None else bounds  # type: ignore[union-attr]
    is_same = torch.equal(bounds, environment.bounds) and (
        (choices is None) == (environment.choices is None)
    )
    if is_same and choices is not None:
        assert environment.choices is not None
        is_same = torch.equal(choices, environment.choices)
    if not is_same:
        where = "box" if environment.choices is None else "arms"
        raise ValueError(f"{name} is not on the {where} of the environment; use the same {where}.")
