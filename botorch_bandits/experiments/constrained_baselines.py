"""Other people's methods for long-term constraints: how they are played, and what is recorded.

The methods are in files of their own: :mod:`.constrained_saddle_point` (bandit online convex
optimisation), :mod:`.constrained_admm` (ADMMBO) and :mod:`.constrained_improvement` (constrained
expected improvement).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_integer,
    check_number,
    check_vector,
    store_checked,
)
from botorch_bandits.problems import ConstrainedProblem
from botorch_bandits.random_streams import generator


class ConstrainedBaseline(Protocol):
    """A method that is asked for a point and told what was observed there, in turns."""

    def choose(self, round_number: int) -> Tensor:
        """Return the point to play.

        Args:
            round_number: From 1.

        Returns:
            ``d`` numbers, float64.
        """

    def observe(self, x: Tensor, reward: float, constraints: Tensor) -> None:
        """Take the outcome of the point that was chosen last.

        Args:
            x: The point, ``d`` numbers.
            reward: The observed reward.
            constraints: ``num_constraints`` observed constraint values, feasible if at most 0.
        """


@dataclass(frozen=True, eq=False)
class ConstrainedRecord:
    r"""What was played under long-term constraints, and its cost.

    All quantities are those without noise. Regret can be negative, where constraints are violated:
    show it with the violation.

    Attributes:
        points: ``batch_shape x n x d``; the points that were played.
        values: ``batch_shape x n``; their rewards :math:`f(x_t)`.
        constraints: ``batch_shape x n x num_constraints``; their :math:`g(x_t)`.
        optimal_value: The reward of the best feasible fixed point.

    Example:
        >>> record = ConstrainedRecord(
        ...     points=torch.zeros(2, 1, dtype=torch.float64),
        ...     values=torch.tensor([1.0, 0.0], dtype=torch.float64),
        ...     constraints=torch.tensor([[1.0], [-2.0]], dtype=torch.float64),
        ...     optimal_value=0.5,
        ... )
        >>> record.average_regret.tolist()
        [-0.5, 0.0]
        >>> record.average_signed_violation.tolist(), record.average_rectified_violation.tolist()
        ([1.0, 0.0], [1.0, 0.5])
    """

    points: Tensor
    values: Tensor
    constraints: Tensor
    optimal_value: float

    def __post_init__(self) -> None:
        """Check the shapes."""
        for name in ("points", "values", "constraints"):
            check_finite(name, check_double(name, getattr(self, name)))
        shape = tuple(self.values.shape)
        if not shape or self.constraints.shape[:-1] != shape or self.points.shape[:-1] != shape:
            raise ValueError(
                f"values has shape {shape}, constraints {tuple(self.constraints.shape)} and points "
                f"{tuple(self.points.shape)}; they must be batch_shape x n, batch_shape x n x "
                "num_constraints and batch_shape x n x d."
            )
        store_checked(self, optimal_value=check_number("optimal_value", self.optimal_value))

    @property
    def num_rounds(self) -> int:
        """How many rounds were played."""
        return int(self.values.shape[-1])

    @property
    def regret(self) -> Tensor:
        """``batch_shape x n``; that of each round, ``f(x*) - f(x_t)``."""
        return self.optimal_value - self.values

    @property
    def cumulative_regret(self) -> Tensor:
        """``batch_shape x n``; the sum up to each round."""
        return self.regret.cumsum(-1)

    @property
    def signed_violation(self) -> Tensor:
        """``batch_shape x n``; after each round the norm of ``[sum of g]^+``, the papers' ``V_t``.

        The positive part is taken of the sum, and the Euclidean norm over the constraints.
        """
        return self.constraints.cumsum(-2).clamp_min(0.0).norm(dim=-1)

    @property
    def rectified_violation(self) -> Tensor:
        """``batch_shape x n``; after each round the norm of ``sum of [g]^+``."""
        return self.constraints.clamp_min(0.0).cumsum(-2).norm(dim=-1)

    @property
    def average_regret(self) -> Tensor:
        """``batch_shape x n``; :attr:`cumulative_regret` over the rounds so far."""
        return self.cumulative_regret / self._rounds

    @property
    def average_signed_violation(self) -> Tensor:
        """``batch_shape x n``; :attr:`signed_violation` over the rounds so far."""
        return self.signed_violation / self._rounds

    @property
    def average_rectified_violation(self) -> Tensor:
        """``batch_shape x n``; :attr:`rectified_violation` over the rounds so far."""
        return self.rectified_violation / self._rounds

    @property
    def _rounds(self) -> Tensor:
        return torch.arange(
            1, self.num_rounds + 1, dtype=self.values.dtype, device=self.values.device
        )

    @staticmethod
    def stack(records: Sequence[ConstrainedRecord]) -> ConstrainedRecord:
        """Return the records of replicates as one, with a batch dimension more.

        Args:
            records: Of the same shape, on the same problem.

        Raises:
            ValueError: If there is none, or they differ in shape or optimum.
        """
        if not records:
            raise ValueError("records is empty; give at least one.")
        first = records[0]
        for i, record in enumerate(records):
            if (
                record.constraints.shape != first.constraints.shape
                or record.optimal_value != first.optimal_value
            ):
                raise ValueError(
                    f"records[{i}] has constraints of shape {tuple(record.constraints.shape)} and "
                    f"optimum {record.optimal_value}, records[0] has "
                    f"{tuple(first.constraints.shape)} and {first.optimal_value}; they must agree."
                )
        return ConstrainedRecord(
            points=torch.stack([record.points for record in records]),
            values=torch.stack([record.values for record in records]),
            constraints=torch.stack([record.constraints for record in records]),
            optimal_value=first.optimal_value,
        )


def play_constrained(
    baseline: ConstrainedBaseline,
    problem: ConstrainedProblem,
    num_rounds: int,
    seed: int = 0,
    on_round: Callable[[int], None] | None = None,
) -> ConstrainedRecord:
    """Play a baseline for a number of rounds.

    Observations have the problem's noise. It depends on seed and round alone: methods that are
    played with the same seed see the same noise. The record has the values without noise.

    Args:
        baseline: From its start.
        problem: A problem with constraints.
        num_rounds: How long.
        seed: Seeds the noise of observations. The baseline has a seed of its own.
        on_round: Called with each round's number when it is over.

    Returns:
        The record, without a batch dimension.

    Raises:
        TypeError: If the problem has no constraints in the sense of this package.
        ValueError: If the baseline leaves the problem's domain.

    Example:
        >>> from botorch_bandits.experiments.constrained_saddle_point import BanditSaddlePoint
        >>> from botorch_bandits.problems import GardnerProblem
        >>> problem = GardnerProblem(noise_std=0.1)
        >>> record = play_constrained(BanditSaddlePoint(problem.bounds, seed=1), problem, 10)
        >>> record.average_regret.shape, record.average_signed_violation.shape
        (torch.Size([10]), torch.Size([10]))
    """
    num_rounds = check_integer("num_rounds", num_rounds, minimum=1)
    if not isinstance(problem, ConstrainedProblem):
        raise TypeError(
            f"problem must be a ConstrainedProblem, got {type(problem).__name__}; see "
            "botorch_bandits.problems."
        )
    played = []
    for round_number in range(1, num_rounds + 1):
        x = check_vector("x", baseline.choose(round_number), length=problem.dim)
        reward, observed = problem.observe(x, generator(seed, round_number, "constrained noise"))
        played.append(x.clone())
        baseline.observe(x, float(reward), observed)
        if on_round is not None:
            on_round(round_number)
    points = torch.stack(played)
    with torch.no_grad():
        values, constraints = problem.evaluate_true(points), problem.constraint_values(points)
    return ConstrainedRecord(points, values, constraints, float(problem.optimal_value))


class Observations:
    """What a baseline has observed: a growing table, one row a round.

    Args:
        dim: The dimension of points.
        num_constraints: How many constraint values come with each reward.
    """

    def __init__(self, dim: int, num_constraints: int) -> None:
        """See the class."""
        self.points = torch.empty(0, dim, dtype=torch.float64)
        self.rewards = torch.empty(0, dtype=torch.float64)
        self.constraints = torch.empty(0, num_constraints, dtype=torch.float64)

    def __len__(self) -> int:
        return len(self.rewards)

    def append(self, x: Tensor, reward: float, constraints: Tensor | list[float]) -> None:
        """Add a row.

        Args:
            x: ``dim`` numbers.
            reward: A number.
            constraints: ``num_constraints`` numbers.

        Raises:
            TypeError: If a tensor is not float64.
            ValueError: If a shape is wrong or an entry is not finite.
        """
        x = check_vector("x", x, length=self.points.shape[1])
        row = check_vector("constraints", constraints, length=self.constraints.shape[1])
        value = x.new_tensor([check_number("reward", reward)])
        self.points = torch.cat([self.points, x.unsqueeze(0)])
        self.rewards = torch.cat([self.rewards, value])
        self.constraints = torch.cat([self.constraints, row.unsqueeze(0)])

    @property
    def best_row(self) -> int:
        """The feasible row of the largest reward; without one, that of the smallest violation.

        It goes by the observed values, which may be noisy.
        """
        feasible = (self.constraints <= 0.0).all(-1)
        if bool(feasible.any()):
            return int(self.rewards.masked_fill(~feasible, -torch.inf).argmax())
        return int(self.constraints.clamp_min(0.0).norm(dim=-1).argmin())
