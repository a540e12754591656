"""Environments: reward functions that depend on the round.

They switch at change points or drift, and give an ordinary problem for each round, with its own
optimum. Some are drawn from a Gaussian process or made from sensor measurements.

A change point ``tau`` is the last round of a period: the function changes in round ``tau + 1``
(Avanesov, *Online non-stationary kernelized bandits*, section 2). ``K`` periods have ``K - 1``
change points.

In the sensors' problem, the kernel is the empirical covariance of past measurements, and the reward
functions are later ones (Srinivas et al. 2010, section 6; Chowdhury and Gopalan 2017, section 6).
"""

from __future__ import annotations

import csv
import math
import zipfile
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from botorch.sampling.pathwise import GeneralizedLinearPath
from botorch.test_functions.base import (
    BaseTestProblem,
    ConstrainedBaseTestProblem,
    MultiObjectiveTestProblem,
)
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    check_matrix,
    check_nonnegative,
    check_positive,
    check_probability,
)
from botorch_bandits.domains import Arms, Box
from botorch_bandits.problems.base import (
    ArmsProblem,
    BoxProblem,
    RewardProblem,
    clamped_eigh,
    frozen_double_copy,
    gram_matrix,
    maximize_on_box,
)
from botorch_bandits.problems.functions import GPDraw, RKHSFunction
from botorch_bandits.random_streams import RandomBlocks, derive_seed


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
        problem = self.at(round_number)
        if not isinstance(problem, ArmsProblem):
            raise ValueError(f"{type(self).__name__} is on a box; only arms have arm_values.")
        return problem.values

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
            problem = constraint
            if isinstance(problem, ChangingProblem):
                problem = problem.at(round_number)
            with torch.no_grad():
                columns.append(problem(X, noise=False))
        return torch.stack(columns, -1) if columns else X.new_empty(*X.shape[:-1], 0)


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
        self._largest = [
            float(p.values.max()) if isinstance(p, ArmsProblem) else None for p in self.problems
        ]

    def period(self, round_number: int) -> int:
        """Return the period that a round is in, from 0.

        Args:
            round_number: The number of the round, from 1.
        """
        round_number = check_integer("round_number", round_number, minimum=1)
        return bisect_left(self.change_points, round_number)

    def at(self, round_number: int) -> BaseTestProblem:
        return self.problems[self.period(round_number)]

    def optimal_value(self, round_number: int) -> float:
        known = self._largest[self.period(round_number)]
        return super().optimal_value(round_number) if known is None else known


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


class BoxSnapshot(BoxProblem):
    """The function of one round on a box; its optimum is searched for when it is first requested.

    Args:
        function: Differentiable, from ``n x d`` points to ``(n,)`` rewards.
        bounds: The box, ``2 x d``.
        noise_std: See :class:`GPDraw`.
        seed: The seed of the search for the optimum.
    """

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        bounds: Tensor,
        noise_std: float | None,
        seed: int,
    ) -> None:
        """See the class."""
        super().__init__(bounds, noise_std)
        self._function, self._seed = function, seed
        self._found: tuple[Tensor, float] | None = None

    def _evaluate_rows(self, points: Tensor) -> Tensor:
        return self._function(points)

    def _optimum(self) -> tuple[Tensor, float]:
        if self._found is None:
            self._found = maximize_on_box(self._evaluate_rows, self.bounds, self._seed)
        return self._found

    @property
    def optimal_value(self) -> float:  # type: ignore[override]
        """The largest reward found."""
        return self._optimum()[1]

    @property
    def optimizers(self) -> Tensor:  # type: ignore[override]
        """The point at which it was found, ``1 x d``."""
        return self._optimum()[0].unsqueeze(0)


class _Gradual(ChangingProblem):
    """Keeps the problem of the last round that was requested."""

    def __init__(
        self,
        like: BaseTestProblem,
        constraints: Sequence[BaseTestProblem | ChangingProblem],
    ) -> None:
        super().__init__(like, constraints)
        self._last: tuple[int, BaseTestProblem] | None = None

    def at(self, round_number: int) -> BaseTestProblem:
        round_number = check_integer("round_number", round_number, minimum=1)
        if self._last is None or self._last[0] != round_number:
            if self.choices is None:
                problem: BaseTestProblem = self._on_box(round_number)
            else:
                values = self.arm_values(round_number)
                problem = ArmsProblem(self.choices, values, self.noise_std)
            self._last = (round_number, problem)
        return self._last[1]

    def _on_box(self, round_number: int) -> BoxSnapshot:
        raise NotImplementedError


class DriftingProblem(_Gradual):
    r"""Rotates from one reward function to another, and on.

    .. math:: f_t = \cos(\varphi_t) f + \sin(\varphi_t) g, \qquad
              \varphi_t = 2 \pi (t - 1) / \text{rounds\_per\_turn} .

    If ``f`` and ``g`` are independent draws from one Gaussian process, each ``f_t`` is such a draw,
    with covariance :math:`k(x, x') \cos(\varphi_t - \varphi_{t'})`. If both have an RKHS norm of at
    most B, each ``f_t`` has a norm of at most :math:`\sqrt 2 B`.

    Args:
        first: The function ``f`` of round 1.
        second: The function ``g``, reached a quarter turn later.
        rounds_per_turn: The number of rounds of a turn, positive.
        constraints: See :class:`ChangingProblem`.

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> first = ArmsProblem(choices, torch.tensor([1.0, 0.0], dtype=torch.float64))
        >>> second = ArmsProblem(choices, torch.tensor([0.0, 1.0], dtype=torch.float64))
        >>> environment = DriftingProblem(first, second, rounds_per_turn=40)
        >>> environment.arm_values(11).round(decimals=12).tolist()
        [0.0, 1.0]
    """

    def __init__(
        self,
        first: BaseTestProblem,
        second: BaseTestProblem,
        rounds_per_turn: float,
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """See the class."""
        check_reward("first", first)
        check_reward("second", second)
        super().__init__(first, constraints)
        check_same_domain("second", second, self)
        self.first, self.second = first, second
        self.rounds_per_turn = check_positive("rounds_per_turn", rounds_per_turn)

    def arm_values(self, round_number: int) -> Tensor:
        if not isinstance(self.first, ArmsProblem) or not isinstance(self.second, ArmsProblem):
            return super().arm_values(round_number)
        cosine, sine = self._weights(round_number)
        return cosine * self.first.values + sine * self.second.values

    def _weights(self, round_number: int) -> tuple[float, float]:
        angle = 2.0 * math.pi * (round_number - 1) / self.rounds_per_turn
        return math.cos(angle), math.sin(angle)

    def _on_box(self, round_number: int) -> BoxSnapshot:
        cosine, sine = self._weights(round_number)

        def function(points: Tensor) -> Tensor:
            value: Tensor = cosine * self.first(points, noise=False)
            return value + sine * self.second(points, noise=False)

        return BoxSnapshot(function, self.bounds, self.noise_std, seed=0)


class DriftingGP(_Gradual):
    r"""A drifting Gaussian process, the model of TV-GP-UCB.

    .. math:: f_{t+1} = \sqrt{1 - \epsilon} f_t + \sqrt{\epsilon} g_{t+1} ,

    with independent draws ``f_1, g_2, g_3, ...`` from GP(0, k). Every ``f_t`` is such a draw, and
    the covariance of rounds t and t' is :math:`k(x, x') (1 - \epsilon)^{|t - t'| / 2}`.

    Source: Bogunovic, Scarlett and Cevher, *Time-varying Gaussian process bandit optimization*,
    AISTATS 2016 (from memory).

    Args:
        kernel: On arms, any GPyTorch kernel; on a box, one that :class:`GPDraw` accepts. Copied.
        domain: The arms or the box. The function of the first round is that of ``gp_draw_on_arms``
            or :class:`GPDraw` with the same seed; on a box all rounds share their random features.
        rate: The ``epsilon`` above, in (0, 1).
        seed: Seed of everything that is drawn.
        noise_std: See :class:`GPDraw`.
        num_features: The number of features on a box; see :class:`GPDraw`.
        constraints: See :class:`ChangingProblem`.

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
        domain: Arms | Box,
        rate: float,
        seed: int = 0,
        noise_std: float | None = None,
        num_features: int = 2048,
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """See the class."""
        self.rate = check_probability("rate", rate)
        self.seed = check_integer("seed", seed, minimum=0)
        self._path: GeneralizedLinearPath | None = None
        if isinstance(domain, Arms):
            gram = gram_matrix(frozen_double_copy(kernel, domain.choices.device), domain.choices)
            eigenvalues, eigenvectors = clamped_eigh(gram)
            # the symmetric root does not depend on the signs of the eigenvectors
            self._root = (eigenvectors * eigenvalues.sqrt()) @ eigenvectors.mT
            stream = torch.Generator().manual_seed(self.seed)
            start = torch.randn(domain.num_arms, generator=stream, dtype=torch.float64)
            start = start.to(domain.choices.device)
            like: BaseTestProblem = ArmsProblem(domain.choices, self._root @ start, noise_std)
        elif isinstance(domain, Box):
            draw = GPDraw(kernel, domain.bounds, self.seed, noise_std, num_features)
            self._path, start, like = draw.path, draw.path.weight.detach(), draw
        else:
            raise TypeError(f"domain must be Arms or a Box, got {type(domain).__name__}.")
        super().__init__(like, constraints)
        self._start = start
        self._state = (1, start)  # the last round that was requested, and its coordinates
        blocks_seed = derive_seed(self.seed, 0, "drift")
        self._steps = RandomBlocks([blocks_seed], "drift", start.shape, device=start.device)

    def arm_values(self, round_number: int) -> Tensor:
        if self.choices is None:
            return super().arm_values(round_number)
        return self._root @ self._coordinates(round_number)

    def _coordinates(self, round_number: int) -> Tensor:
        """Return standard normal coordinates of a round; this is fast for rounds in order."""
        round_number = check_integer("round_number", round_number, minimum=1)
        known, state = self._state
        if round_number < known:
            known, state = 1, self._start
        while known < round_number:
            known += 1
            step = self._steps.at(known)[0]
            state = math.sqrt(1.0 - self.rate) * state + math.sqrt(self.rate) * step
        self._state = (known, state)
        return state

    def _on_box(self, round_number: int) -> BoxSnapshot:
        assert self._path is not None
        path = GeneralizedLinearPath(
            feature_map=self._path.feature_map, weight=self._coordinates(round_number)
        )
        return BoxSnapshot(path, self.bounds, self.noise_std, self.seed)


class TabulatedProblem(_Gradual):
    """Rewards of arms from a table of readings, with one row per time.

    Args:
        choices: The arms, ``num_arms x d``.
        table: ``num_times x num_arms`` rewards, float64.
        rounds_per_row: The number of rounds for which each row holds.
        noise_std: See :class:`GPDraw`.
        constraints: See :class:`ChangingProblem`.

    Example:
        >>> choices = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> table = torch.tensor([[1.0, 2.0], [4.0, 3.0]], dtype=torch.float64)
        >>> environment = TabulatedProblem(choices, table, rounds_per_row=2)
        >>> [environment.optimal_value(t) for t in range(1, 5)]
        [2.0, 2.0, 4.0, 4.0]
    """

    def __init__(
        self,
        choices: Tensor,
        table: Tensor,
        rounds_per_row: int = 1,
        noise_std: float | None = None,
        constraints: Sequence[BaseTestProblem | ChangingProblem] = (),
    ) -> None:
        """See the class."""
        table = check_matrix("table", table).detach().clone()
        if not len(table):
            raise ValueError("table has no rows; give at least one time.")
        self.table = table
        self.rounds_per_row = check_integer("rounds_per_row", rounds_per_row, minimum=1)
        super().__init__(ArmsProblem(choices, table[0], noise_std), constraints)

    @property
    def num_rounds(self) -> int:
        """The number of rounds for which the table lasts."""
        return len(self.table) * self.rounds_per_row

    def arm_values(self, round_number: int) -> Tensor:
        """See :meth:`ChangingProblem.arm_values`.

        Raises:
            ValueError: If the table has ended.
        """
        round_number = check_integer("round_number", round_number, minimum=1)
        if round_number > self.num_rounds:
            raise ValueError(
                f"round {round_number} is after the end of the table, which lasts for "
                f"{self.num_rounds} rounds; play fewer, or raise rounds_per_row."
            )
        return self.table[(round_number - 1) // self.rounds_per_row]


@dataclass(frozen=True, eq=False)
class SensorData:
    """Readings of the same sensors at many times, divided into past and later ones.

    Attributes:
        past: ``num_past x num_sensors``; the kernel is computed from them.
        later: ``num_later x num_sensors``; each row is a reward function.
    """

    past: Tensor
    later: Tensor

    def __post_init__(self) -> None:
        """Check the shapes."""
        check_matrix("past", self.past)
        check_matrix("later", self.later, num_columns=self.past.shape[1])
        if len(self.past) < 2:
            raise ValueError(f"past has {len(self.past)} rows; a covariance needs at least 2.")

    @property
    def num_sensors(self) -> int:
        """The number of sensors."""
        return self.past.shape[1]

    def kernel_matrix(self, ridge: float = 0.0) -> Tensor:
        """Return the empirical covariance of the past readings, ``num_sensors x num_sensors``.

        Args:
            ridge: The number added to its diagonal; needed if there are fewer times than sensors.
        """
        covariance = torch.cov(self.past.T, correction=1)
        return covariance + check_nonnegative("ridge", ridge) * torch.eye(
            self.num_sensors, dtype=covariance.dtype
        )

    def average_variance(self) -> float:
        """Return the variance of a sensor's past readings, averaged over sensors."""
        return float(self.past.var(0).mean())

    def rewards(self, center: bool = True, negate: bool = False) -> Tensor:
        """Return the reward functions, ``num_later x num_sensors``.

        Args:
            center: Whether to subtract each sensor's past mean: the model's prior mean is 0.
            negate: Whether the smallest reading is sought instead of the largest.
        """
        values = self.later - self.past.mean(0) if center else self.later
        return -values if negate else values

    def problem(self, row: int, noise_std: float | None = None, center: bool = True) -> ArmsProblem:
        """Return one reward function as a problem on arms (the arms are sensor numbers).

        Args:
            row: The number of the later reading.
            noise_std: Standard deviation of the observation noise.
            center: See :meth:`rewards`.
        """
        row = check_integer("row", row, minimum=0)
        if row >= len(self.later):
            raise ValueError(f"row is {row}, but there are {len(self.later)} later readings.")
        arms = torch.arange(self.num_sensors, dtype=torch.float64).unsqueeze(-1)
        return ArmsProblem(arms, self.rewards(center)[row], noise_std=noise_std)


def load_readings(path: str | Path, array: str | None = None) -> Tensor:
    """Return a table of readings, with one row per time and one column per sensor.

    Args:
        path: A CSV file with a header whose first column is the time, or a NumPy ``.npz`` file.
        array: The array's name in a ``.npz`` file.

    Raises:
        ValueError: If the file cannot be read, or a reading is missing.
    """
    path = Path(path)
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                if array not in file:
                    raise ValueError(f"it has no array {array!r}, but {', '.join(file.files)}")
                table = np.asarray(file[array], dtype=np.float64)
        else:
            with path.open(newline="", encoding="utf-8") as lines:
                rows = [row for row in csv.reader(lines) if row]
            table = _numbers_of(rows)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, csv.Error) as error:
        raise ValueError(f"data file {path} cannot be used: {error}.") from error
    return check_matrix(f"readings in {path}", torch.from_numpy(table))


def _numbers_of(rows: list[list[str]]) -> NDArray[np.float64]:
    """Return the rows of a CSV file below the header, without their first column."""
    if len(rows) < 2:
        raise ValueError("it has a header and no rows below it" if rows else "it is empty")
    table = []
    for i, row in enumerate(rows[1:], 2):
        if len(row) != len(rows[0]):
            raise ValueError(f"row {i} has {len(row)} entries, and the header {len(rows[0])}")
        try:
            table.append([float(value or "nan") for value in row[1:]])
        except ValueError as error:
            raise ValueError(f"row {i}: {error}") from error
    return np.array(table, dtype=np.float64)


def switching_gp_draws(
    kernel: Kernel,
    domain: Arms | Box,
    change_points: Sequence[int],
    seed: int = 0,
    noise_std: float | None = None,
    num_features: int = 2048,
) -> SwitchingProblem:
    """Draw an independent function from GP(0, k) for each period.

    The function of period k (from 0) is ``gp_draw_on_arms`` or :class:`GPDraw` with the seed
    ``derive_seed(seed, k, "period")``. Many replicates on arms are drawn faster by
    :func:`gp_draws_of_periods`.

    Args:
        kernel: On arms, any GPyTorch kernel; on a box, one that :class:`GPDraw` accepts. Copied.
        domain: The arms or the box.
        change_points: See :class:`SwitchingProblem`.
        seed: Seed of the draws.
        noise_std: See :class:`GPDraw`.
        num_features: The number of features on a box; see :class:`GPDraw`.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits.problems import evenly_spaced_change_points
        >>> arms = Arms(torch.linspace(0, 5, 50, dtype=torch.float64).unsqueeze(-1))
        >>> change_points = evenly_spaced_change_points(900, num_periods=3)
        >>> environment = switching_gp_draws(MaternKernel(nu=2.5), arms, change_points)
        >>> environment.change_points
        (300, 600)
    """
    seeds = _period_seeds(seed, len(change_points) + 1)
    if isinstance(domain, Box):
        return SwitchingProblem(
            [GPDraw(kernel, domain.bounds, s, noise_std, num_features) for s in seeds],
            change_points,
        )
    choices = _check_arms(domain).choices
    values = gp_draws_of_periods(kernel, domain, len(seeds), [seed])[0]
    return SwitchingProblem([ArmsProblem(choices, row, noise_std) for row in values], change_points)


def gp_draws_of_periods(
    kernel: Kernel, domain: Arms, num_periods: int, seeds: Sequence[int]
) -> Tensor:
    """Draw independent functions from GP(0, k) on arms, for many replicates at once.

    Entry ``b`` has the functions of ``switching_gp_draws`` with the seed ``seeds[b]``, up to
    rounding. One eigendecomposition, which costs the cube of the number of arms, serves them all.
    :class:`~botorch_bandits.simulation.PeriodRewards` accepts the result.

    Args:
        kernel: Any GPyTorch kernel with one output and no batch shape. Copied.
        domain: The arms.
        num_periods: The number of functions of each replicate.
        seeds: One per replicate.

    Returns:
        ``num_replicates x num_periods x num_arms`` rewards.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> arms = Arms(torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1))
        >>> gp_draws_of_periods(RBFKernel(), arms, num_periods=3, seeds=[0, 1]).shape
        torch.Size([2, 3, 50])
    """
    choices = _check_arms(domain).choices
    num_periods = check_integer("num_periods", num_periods, minimum=1)
    gram = gram_matrix(frozen_double_copy(kernel, choices.device), choices)
    eigenvalues, eigenvectors = clamped_eigh(gram)
    normal = torch.stack(
        [
            torch.randn(
                len(choices), generator=torch.Generator().manual_seed(s), dtype=torch.float64
            )
            for seed in seeds
            for s in _period_seeds(seed, num_periods)
        ]
    ).to(choices.device)
    # the symmetric root does not depend on the signs of the eigenvectors
    values = (normal @ eigenvectors * eigenvalues.sqrt()) @ eigenvectors.mT
    return values.reshape(len(seeds), num_periods, len(choices))


def switching_rkhs(
    kernel: Kernel,
    domain: Arms | Box,
    change_points: Sequence[int],
    num_centers: int = 30,
    rkhs_norm: float = 1.0,
    seed: int = 0,
    noise_std: float | None = None,
) -> SwitchingProblem:
    """Draw a function of known RKHS norm for each period.

    The function of period k (from 0) is :class:`RKHSFunction` with the seed
    ``derive_seed(seed, k, "period")``.

    Args:
        kernel: See :class:`RKHSFunction`.
        domain: The arms or the box.
        change_points: See :class:`SwitchingProblem`.
        num_centers: See :class:`RKHSFunction`.
        rkhs_norm: The norm of each function.
        seed: Seed of the draws.
        noise_std: See :class:`GPDraw`.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> arms = Arms(torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1))
        >>> environment = switching_rkhs(RBFKernel(), arms, [100], rkhs_norm=2.0)
        >>> [problem.rkhs_norm for problem in environment.problems]
        [2.0, 2.0]
    """
    problems: list[RewardProblem] = []
    for s in _period_seeds(seed, len(change_points) + 1):
        if isinstance(domain, Box):
            problems.append(
                RKHSFunction(kernel, domain.bounds, num_centers, rkhs_norm, s, noise_std)
            )
        else:
            choices = _check_arms(domain).choices
            problems.append(
                RKHSFunction.on_arms(kernel, choices, num_centers, rkhs_norm, s, noise_std)
            )
    return SwitchingProblem(problems, change_points)


def sensor_day(
    path: str | Path,
    array: str = "temperature",
    num_past: int = 720,
    num_later: int = 144,
    rounds_per_reading: int = 1,
    noise_std: float | None = None,
    center: bool = True,
) -> tuple[TabulatedProblem, SensorData]:
    """Follow sensors over the day: which one reads the largest value now?

    The arms are sensor numbers. The defaults suit the temperatures of the Intel Berkeley Research
    Lab, with one reading every ten minutes: five days to learn from, and a sixth one to play.

    Args:
        path: See :func:`load_readings`.
        array: The array's name in a ``.npz`` file, with one row per time and one column per sensor.
        num_past: The number of first rows that are past readings.
        num_later: The number of rows after them that are played.
        rounds_per_reading: The number of rounds for which each reading holds.
        noise_std: Standard deviation of the observation noise.
        center: Whether to subtract each sensor's past mean: the model's prior mean is 0.

    Returns:
        The environment, and the readings, whose past gives the model's kernel.

    Raises:
        ValueError: If the file cannot be used, or has too few rows.
    """
    num_past = check_integer("num_past", num_past, minimum=2)
    num_later = check_integer("num_later", num_later, minimum=1)
    readings = load_readings(path, array)
    if len(readings) < num_past + num_later:
        raise ValueError(
            f"data file {path} has {len(readings)} rows, fewer than num_past + num_later = "
            f"{num_past + num_later}; lower one of them."
        )
    data = SensorData(readings[:num_past], readings[num_past : num_past + num_later])
    arms = torch.arange(data.num_sensors, dtype=torch.float64).unsqueeze(-1)
    return TabulatedProblem(arms, data.rewards(center), rounds_per_reading, noise_std), data


def _period_seeds(seed: int, num_periods: int) -> list[int]:
    seed = check_integer("seed", seed, minimum=0)
    return [derive_seed(seed, k, "period") for k in range(num_periods)]


def _check_arms(domain: Arms | Box) -> Arms:
    if not isinstance(domain, Arms):
        raise TypeError(f"domain must be Arms or a Box, got {type(domain).__name__}.")
    return domain
