"""Environments: reward functions that depend on the round.

They switch at change points or drift, and give an ordinary problem for each round, with its own
optimum. Some are drawn from a Gaussian process.

A change point ``tau`` is the last round of a period: the function changes in round ``tau + 1``
(Avanesov, *Online non-stationary kernelized bandits*, section 2). ``K`` periods have ``K - 1``
change points.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from botorch.test_functions.base import (
    BaseTestProblem,
    ConstrainedBaseTestProblem,
    MultiObjectiveTestProblem,
)
from gpytorch.kernels import Kernel
from torch import Tensor

from botorch_bandits.checks import (
    check_instance,
    check_integer,
    check_probability,
)
from botorch_bandits.domains import Arms
from botorch_bandits.problems.base import ArmsProblem, prior_root
from botorch_bandits.problems.functions import gp_draw_on_arms
from botorch_bandits.random_streams import RandomBlocks, derive_seed

_NEEDS_ARMS = "Pass Arms(choices)."


class ChangingProblem(ABC):
    """A reward function to be maximized that depends on the round.

    It is not a BoTorch test problem, because those do not depend on rounds; :meth:`at` gives the
    test problem of a round. ``run`` and ``simulate`` play either, and measure the regret of a round
    relative to the largest reward of that round's function.

    Constraints ``g_j(x) <= 0`` may come with the reward. Each is a separate problem or environment,
    so the reward may change alone, or one constraint alone. Regret does not depend on them.

    Attributes:
        dim: The dimension of the points.
        bounds: The box, or the smallest box that holds all arms; ``2 x dim``.
        choices: ``num_arms x dim`` arms; None on a box.
        noise_std: Standard deviation of the Gaussian observation noise; None for no noise.
        constraints: The functions ``g_j``.
        change_points: The last round of each period but the last one; None if the function changes
            gradually.
    """

    change_points: tuple[int, ...] | None = None
    is_minimization_problem = False

    def __init__(
        self,
        like: BaseTestProblem,
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """Take domain and noise from a problem, and check that constraints have the same domain.

        Args:
            like: A problem with the same domain and the same noise.
            constraints: The functions ``g_j``, on the same domain.
        """
        self.bounds = like.get_buffer("bounds")
        self.dim = int(self.bounds.shape[-1])
        self.choices: Tensor | None = like.choices if is_on_arms(like) else None
        self.noise_std = like.noise_std
        self.constraints = tuple(constraints)
        for i, constraint in enumerate(self.constraints):
            name = f"constraints[{i}]"
            if not isinstance(constraint, ChangingProblem):
                check_reward(name, constraint)
            check_same_domain(name, constraint, self)

    @property
    def num_constraints(self) -> int:
        """The number of constraints."""
        return len(self.constraints)

    @abstractmethod
    def at(self, round_number: int) -> BaseTestProblem:
        """Return the problem of a round.

        Args:
            round_number: The number of the round, from 1.
        """

    def evaluate_true(self, X: Tensor, round_number: int) -> Tensor:
        """Return the noiseless rewards of a round.

        Args:
            X: Points, ``batch_shape x dim``, float64.
            round_number: The number of the round, from 1.

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
            round_number: The number of the round, from 1.

        Raises:
            ValueError: On a box.
        """
        if self.choices is None:
            raise ValueError(f"{type(self).__name__} is on a box; only arms have arm_values.")
        values: Tensor = self.at(round_number).values
        return values

    def optimal_value(self, round_number: int) -> float:
        """Return the largest noiseless reward of a round; numerical on a box.

        Args:
            round_number: The number of the round, from 1.
        """
        if self.choices is not None:
            return float(self.arm_values(round_number).max())
        return float(self.at(round_number).optimal_value)

    def constraint_values(self, X: Tensor, round_number: int) -> Tensor:
        """Return the noiseless constraint functions of a round; a point is feasible if all <= 0.

        Args:
            X: Points, ``batch_shape x dim``, float64.
            round_number: The number of the round, from 1.

        Returns:
            ``batch_shape x num_constraints``.
        """
        columns = []
        for constraint in self.constraints:
            with torch.no_grad():
                columns.append(in_round(constraint, round_number)(X, noise=False))
        return torch.stack(columns, -1) if columns else X.new_empty(*X.shape[:-1], 0)


def in_round(problem: Any, round_number: int) -> Any:
    """Return the problem of a round; anything but an environment is its own in all rounds.

    Args:
        problem: An environment, a test problem, or any function.
        round_number: The number of the round, from 1.
    """
    return problem.at(round_number) if isinstance(problem, ChangingProblem) else problem


def is_on_arms(problem: Any) -> bool:
    """Return whether a problem has finitely many points, in its attribute ``choices``."""
    known = isinstance(problem, ArmsProblem | ChangingProblem)
    return known and problem.choices is not None


class SwitchingProblem(ChangingProblem):
    """A piecewise-constant sequence of reward functions.

    Args:
        problems: One per period, to be maximized, all on the same arms or box with the same noise.
        change_points: The last round of each period but the last one, increasing; the function
            changes in the next round.
        constraints: See :class:`ChangingProblem`; they have their own change points.

    Raises:
        TypeError: If a problem is not a BoTorch test problem.
        ValueError: If problems differ in domain or noise, are to be minimized, or change points do
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
            raise ValueError("problems is empty; give one problem per period.")
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

    def period(self, round_number: int) -> int:
        """Return the period that a round is in, from 0.

        Args:
            round_number: The number of the round, from 1.
        """
        round_number = check_integer("round_number", round_number, minimum=1)
        return bisect_left(self.change_points, round_number)

    def at(self, round_number: int) -> BaseTestProblem:
        """See :meth:`ChangingProblem.at`."""
        return self.problems[self.period(round_number)]


def evenly_spaced_change_points(num_rounds: int, num_periods: int) -> tuple[int, ...]:
    """Return the change points of periods of equal length, up to rounding down.

    Args:
        num_rounds: The horizon.
        num_periods: The number of periods, at most ``num_rounds``.

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
    """Raise an error unless a problem is a BoTorch test problem with one objective to maximize."""
    if not isinstance(problem, BaseTestProblem):
        raise TypeError(
            f"{name} must be a BoTorch BaseTestProblem, got {type(problem).__name__}; a table of "
            "rewards becomes one with ArmsProblem(choices, values)."
        )
    kind = type(problem).__name__
    if isinstance(problem, MultiObjectiveTestProblem | ConstrainedBaseTestProblem):
        raise ValueError(
            f"{name} ({kind}) has several objectives or BoTorch's own constraints; give the reward "
            "alone, and constraints as separate functions (constraints=)."
        )
    if problem.is_minimization_problem:
        raise ValueError(
            f"{name} ({kind}) is to be minimized, but its values are used as they are; build it "
            "with negate=True."
        )


def check_same_domain(
    name: str, problem: BaseTestProblem | ChangingProblem, environment: ChangingProblem
) -> None:
    """Raise an error if a problem has other arms, or another box, than the environment."""
    choices = getattr(problem, "choices", None)
    bounds: Any = problem.bounds
    is_same = torch.equal(bounds, environment.bounds) and (
        (choices is None) == (environment.choices is None)
    )
    if is_same and choices is not None:
        assert environment.choices is not None
        is_same = torch.equal(choices, environment.choices)
    if not is_same:
        where = "box" if environment.choices is None else "arms"
        raise ValueError(f"{name} is not on the {where} of the environment; use the same {where}.")


class DriftingGP(ChangingProblem):
    r"""A drifting Gaussian process on arms, the model of TV-GP-UCB.

    .. math:: f_{t+1} = \sqrt{1 - \epsilon} f_t + \sqrt{\epsilon} g_{t+1} ,

    with independent draws ``f_1, g_2, g_3, ...`` from GP(0, k). Every ``f_t`` is such a draw, and
    the covariance of rounds t and t' is :math:`k(x, x') (1 - \epsilon)^{|t - t'| / 2}`.

    Source: Bogunovic, Scarlett and Cevher, *Time-varying Gaussian process bandit optimization*,
    AISTATS 2016 (from memory).

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape. Copied.
        domain: The arms. The function of the first round is that of ``gp_draw_on_arms`` with the
            same seed, up to rounding.
        rate: The ``epsilon`` above, in (0, 1).
        seed: Seed of everything that is drawn.
        noise_std: Standard deviation of the Gaussian observation noise; None means no noise.
        constraints: See :class:`ChangingProblem`.

    Raises:
        TypeError: If ``domain`` is not ``Arms``.
        ValueError: If a number is out of its range.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> arms = Arms(torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1))
        >>> environment = DriftingGP(RBFKernel(), arms, rate=0.01, noise_std=0.1)
        >>> environment.arm_values(3).shape
        torch.Size([5])
    """

    def __init__(
        self,
        kernel: Kernel,
        domain: Arms,
        rate: float,
        seed: int = 0,
        noise_std: float | None = None,
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """See the class."""
        self.rate = check_probability("rate", rate)
        self.seed = check_integer("seed", seed, minimum=0)
        choices = check_instance("domain", domain, Arms, _NEEDS_ARMS).choices
        self._root = prior_root(kernel, choices)
        stream = torch.Generator().manual_seed(self.seed)
        start = torch.randn(len(choices), generator=stream, dtype=torch.float64)
        self._start = start.to(choices.device)
        super().__init__(ArmsProblem(choices, self._root @ self._start, noise_std), constraints)
        self._arms = choices
        self._state = (1, self._start)  # the last round that was requested, and its coordinates
        blocks_seed = derive_seed(self.seed, 0, "drift")
        self._steps = RandomBlocks([blocks_seed], "drift", start.shape, device=choices.device)

    def arm_values(self, round_number: int) -> Tensor:
        """See :meth:`ChangingProblem.arm_values`; this is fast for rounds in order."""
        round_number = check_integer("round_number", round_number, minimum=1)
        known, state = self._state
        if round_number < known:
            known, state = 1, self._start
        while known < round_number:
            known += 1
            step = self._steps.at(known)[0]
            state = math.sqrt(1.0 - self.rate) * state + math.sqrt(self.rate) * step
        self._state = (known, state)
        return self._root @ state

    def at(self, round_number: int) -> ArmsProblem:
        """See :meth:`ChangingProblem.at`."""
        return ArmsProblem(self._arms, self.arm_values(round_number), self.noise_std)


def switching_gp_draws(
    kernel: Kernel,
    domain: Arms,
    change_points: Sequence[int],
    seed: int = 0,
    noise_std: float | None = None,
) -> SwitchingProblem:
    """Draw an independent function from GP(0, k) on arms for each period.

    The function of period k (from 0) is ``gp_draw_on_arms`` with the seed
    ``derive_seed(seed, k, "period")``.

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape. Copied.
        domain: The arms.
        change_points: See :class:`SwitchingProblem`.
        seed: Seed of the draws.
        noise_std: Standard deviation of the Gaussian observation noise; None means no noise.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits.problems import evenly_spaced_change_points
        >>> arms = Arms(torch.linspace(0, 5, 50, dtype=torch.float64).unsqueeze(-1))
        >>> change_points = evenly_spaced_change_points(900, num_periods=3)
        >>> environment = switching_gp_draws(MaternKernel(nu=2.5), arms, change_points)
        >>> environment.change_points
        (300, 600)
    """
    choices = check_instance("domain", domain, Arms, _NEEDS_ARMS).choices
    seeds = (derive_seed(seed, k, "period") for k in range(len(change_points) + 1))
    problems = [gp_draw_on_arms(kernel, choices, each, noise_std) for each in seeds]
    return SwitchingProblem(problems, change_points)
