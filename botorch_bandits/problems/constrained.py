"""Problems with constraints: maximize a reward subject to ``g_j(x) <= 0``.

They are also constrained test problems of BoTorch. BoTorch uses slacks, which are ``-g_j``: a point
is feasible if all slacks are at least 0.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from botorch.test_functions.base import ConstrainedBaseTestProblem
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    check_matrix,
    check_nonnegative,
    check_one_of,
)
from botorch_bandits.problems.base import ArmsProblem, RewardProblem

NOISE_DISTRIBUTIONS = ("normal", "uniform")
"""The distributions of the noise of constraints; both are centered."""

LARGEST_GRID = 10**6
"""The most arms that :meth:`ConstrainedProblem.on_grid` makes."""


class ConstrainedProblem(RewardProblem, ConstrainedBaseTestProblem):
    """A reward to be maximized subject to ``g_j(x) <= 0``, all observed together.

    Regret is measured against ``optimal_value``, the reward of the best feasible fixed point.
    Regret is negative if violating a constraint gains reward.

    Attributes:
        num_constraints: The number of constraints.
        constraint_noise_std: Standard deviation of the noise on each observed constraint value;
            None for exact observations.
        constraint_noise_distribution: ``"normal"`` or ``"uniform"``.
    See :class:`RewardProblem` for the other arguments.

    """

    constraint_noise_distribution: str = "normal"
    optimal_value: float
    optimizers: Tensor

    def _set_constraint_noise(self, std: float | None, distribution: str = "normal") -> None:
        """Check and store the noise on constraint values."""
        check_one_of("constraint_noise_distribution", distribution, NOISE_DISTRIBUTIONS)
        self.constraint_noise_distribution = distribution
        self.constraint_noise_std = (
            None if std is None else check_nonnegative("constraint_noise_std", std)
        )

    @abstractmethod
    def _evaluate_constraints(self, X: Tensor) -> Tensor:
        """Return ``batch_shape x num_constraints`` noiseless constraint values."""

    def constraint_values(self, X: Tensor) -> Tensor:
        """Evaluate the constraint functions without noise.

        Args:
            X: Points, ``batch_shape x d``, float64.

        Returns:
            ``batch_shape x num_constraints``; a point is feasible if all are at most 0.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If ``X`` is not finite, does not have d columns, or lies outside the domain.
        """
        return -self.evaluate_slack_true(X)

    def observe(self, X: Tensor, stream: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """Draw noisy outcomes.

        The noise does not depend on the points, so two methods that are given the same stream
        see the same noise.

        Args:
            X: Points, ``batch_shape x d``, float64.
            stream: A CPU generator; torch's global one if omitted.

        Returns:
            Rewards, ``batch_shape``, and constraint values, ``batch_shape x num_constraints``.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If ``X`` is not finite, does not have d columns, or lies outside the domain.
        """
        with torch.no_grad():
            rewards, constraints = self.evaluate_true(X), self.constraint_values(X)
        # drawn even if unused: the constraints' noise must not depend on the reward's noise
        noise = torch.randn(rewards.shape, dtype=X.dtype, generator=stream).to(X.device)
        rewards = rewards + (self.noise_std or 0.0) * noise
        return rewards, constraints + self.constraint_noise(constraints, stream)

    def evaluate_slack_true(self, X: Tensor) -> Tensor:
        """Evaluate BoTorch's slacks ``-g_j`` without noise.

        Args:
            X: Points, ``batch_shape x d``, float64.

        Returns:
            ``batch_shape x num_constraints``.
        """
        self._check_input(X)
        return super().evaluate_slack_true(X)

    def evaluate_slack(self, X: Tensor, noise: bool = True) -> Tensor:
        """Evaluate BoTorch's slacks ``-g_j``.

        Args:
            X: Points, ``batch_shape x d``, float64.
            noise: Whether to add noise, from torch's global generator.

        Returns:
            ``batch_shape x num_constraints``.
        """
        slack = self.evaluate_slack_true(X)
        return slack + self.constraint_noise(slack, None) if noise else slack

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        return -self._evaluate_constraints(X)

    def constraint_noise(self, like: Tensor, stream: torch.Generator | None = None) -> Tensor:
        """Draw the noise that :meth:`evaluate_slack` adds.

        Args:
            like: A tensor with the shape and device of the noise.
            stream: A CPU generator; torch's global one if omitted.
        """
        std = self.constraint_noise_std
        if std is None:
            return torch.zeros_like(like)
        if self.constraint_noise_distribution == "normal":
            draws = torch.randn(like.shape, dtype=like.dtype, generator=stream)
        else:
            uniform = torch.rand(like.shape, dtype=like.dtype, generator=stream)
            draws = math.sqrt(3.0) * (2.0 * uniform - 1.0)
        return std * draws.to(like.device)

    def on_grid(self, num_points: int) -> ConstrainedArmsProblem:
        """Tabulate the problem on a grid that contains the corners of the box.

        The grid has its own optimum, the best of its feasible points, against which regret on it
        must be measured. It may be far below the optimum of the box.

        Args:
            num_points: The number of points per dimension, at least 2.

        Returns:
            The problem on ``num_points ** d`` arms, with the noise of this one.

        Raises:
            TypeError: If ``num_points`` is not an integer.
            ValueError: If it is below 2, the grid has more than a million points, or none of them
                is feasible.
        """
        num_points = check_integer("num_points", num_points, minimum=2)
        if num_points**self.dim > LARGEST_GRID:
            raise ValueError(
                f"num_points is {num_points}, which makes {num_points**self.dim} arms in "
                f"{self.dim} dimensions; choose fewer, at most {LARGEST_GRID} arms in total."
            )
        lines = [
            torch.linspace(low, high, num_points, dtype=torch.float64)
            for low, high in self.bounds.T.tolist()
        ]
        choices = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).reshape(-1, self.dim)
        choices = choices.to(self.bounds.device)
        with torch.no_grad():
            values, constraints = self.evaluate_true(choices), self.constraint_values(choices)
        if not bool((constraints <= 0).all(-1).any()):
            raise ValueError(
                f"num_points is {num_points}, and no point of that grid is feasible; choose more."
            )
        return ConstrainedArmsProblem(
            choices,
            values,
            constraints,
            noise_std=self.noise_std,
            constraint_noise_std=self.constraint_noise_std,
            constraint_noise_distribution=self.constraint_noise_distribution,
        )


class ConstrainedArmsProblem(ConstrainedProblem, ArmsProblem):
    """Rewards and constraints known on a finite set of arms.

    Args:
        choices: The arms, ``num_arms x d``, float64, no row twice.
        values: The reward of each arm, ``(num_arms,)``, float64.
        constraints: ``num_arms x num_constraints``, float64; an arm is feasible if all entries of
            its row are at most 0. There need not be a feasible arm.
        noise_std: Standard deviation of the Gaussian noise on rewards. None means no noise.
        constraint_noise_std: Standard deviation of the noise on constraint values. None means
            none.
        constraint_noise_distribution: ``"normal"`` or ``"uniform"``.

    Attributes:
        constraint_table: The noiseless constraints (buffer, ``num_arms x num_constraints``).
        optimizers: All feasible arms of maximal reward (buffer, ``num_best x d``).

    See :class:`ArmsProblem` for the other arguments.

    Raises:
        TypeError: If a tensor is not float64 or a standard deviation not a number.
        ValueError: If a shape or an entry is wrong, or ``choices`` has two equal rows.

    Example:
        >>> choices = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
        >>> values = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
        >>> constraints = torch.tensor([[-1.0], [0.5], [0.0]], dtype=torch.float64)
        >>> problem = ConstrainedArmsProblem(choices, values, constraints)
        >>> problem.optimal_value, problem.optimal_arm
        (2.0, 2)
    """

    constraint_table: Tensor

    def __init__(
        self,
        choices: Tensor,
        values: Tensor,
        constraints: Tensor,
        noise_std: float | None = None,
        *,
        constraint_noise_std: float | None = None,
        constraint_noise_distribution: str = "normal",
    ) -> None:
        """Check the tables and store copies of them."""
        ArmsProblem.__init__(self, choices, values, noise_std=noise_std)
        self._set_constraint_noise(constraint_noise_std, constraint_noise_distribution)
        table = check_matrix("constraints", constraints).detach().clone().to(self.values.device)
        if table.shape[0] != self.num_arms or table.shape[1] == 0:
            raise ValueError(
                f"constraints has shape {tuple(table.shape)}; it must have one row for each of the "
                f"{self.num_arms} arms and at least one column."
            )
        self.num_constraints = table.shape[1]
        self.register_buffer("constraint_table", table)
        rewards = self.values.masked_fill(~self.feasible, -torch.inf)
        is_best = self.feasible & (rewards == rewards.max())
        self.register_buffer("optimizers", self.choices[is_best])

    @property
    def feasible(self) -> Tensor:
        """Which arms meet all constraints, ``(num_arms,)`` booleans."""
        return (self.constraint_table <= 0.0).all(-1)

    @property
    def optimal_value(self) -> float:  # type: ignore[override]
        """The largest reward of any feasible arm, exact.

        Raises:
            ValueError: If no arm is feasible.
        """
        return float(self.values[self.optimal_arm])

    @property
    def optimal_arm(self) -> int:
        """The row of the first feasible arm of maximal reward.

        Raises:
            ValueError: If no arm is feasible.
        """
        if not bool(self.feasible.any()):
            raise ValueError(
                "no arm meets all constraints, so there is no optimum to compare with; relax the "
                "constraints or add arms."
            )
        return int(self.values.masked_fill(~self.feasible, -torch.inf).argmax())

    def evaluate_slack_true(self, X: Tensor) -> Tensor:
        """Look up BoTorch's slacks ``-g_j`` without noise.

        Args:
            X: Arms, ``batch_shape x d``, float64.

        Returns:
            ``batch_shape x num_constraints``.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If a row of ``X`` is not an arm.
        """
        return self._evaluate_slack_true(X)

    def _evaluate_constraints(self, X: Tensor) -> Tensor:
        return self.constraint_table[self.arm_indices(X)]


class GardnerProblem(ConstrainedProblem):
    r"""A small feasible region in two dimensions.

    .. math:: f(x) = -\sin x_1 - x_2, \qquad g(x) = \sin x_1 \sin x_2 + 0.95 \le 0
        \quad \text{on } [0, 6]^2

    The optimum is ``1 - arcsin 0.95 = -0.253236`` at ``(3 pi / 2, arcsin 0.95)``. Less than 2% of
    the box is feasible: a disc that contains the optimum, and another one around
    ``(pi / 2, 3 pi / 2)``, where ``f`` is about -5.4. Without the constraint the reward reaches 1.
    With the linear penalty ``optimal_multiplier * g`` the optimum of the box stays the same.

    Source: Gardner et al. 2014 (they minimize ``-f``); Shi and Eryilmaz 2022, appendix E.1, where
    the noise variance is 0.01 for the reward and, in E.1.2, for the constraint.

    Args:
        noise_std: Standard deviation of the Gaussian noise on rewards; 0.1 in the paper. None
            means no noise.
        constraint_noise_std: The same for constraint values; 0.1 in E.1.2. None means no noise.

    Attributes:
        optimal_multiplier: The ``kappa`` for which the optimum also maximizes ``f - kappa
            g`` on the box, so that no random choice of points is better on average.

    See :class:`RewardProblem` for the other arguments.

    Raises:
        TypeError: If a standard deviation is not one number.
        ValueError: If it is negative or not finite.

    Example:
        >>> problem = GardnerProblem()
        >>> round(problem.optimal_value, 6), [round(x, 5) for x in problem.optimizers[0].tolist()]
        (-0.253236, [4.71239, 1.25324])
        >>> round(problem.on_grid(61).optimal_value, 3)
        -0.3
    """

    dim = 2
    num_constraints = 1
    continuous_inds: ClassVar[list[int]] = [0, 1]
    _bounds: ClassVar[list[tuple[float, float]]] = [(0.0, 6.0), (0.0, 6.0)]
    optimal_value = 1.0 - math.asin(0.95)
    optimal_multiplier = 1.0 / math.cos(math.asin(0.95))
    _worst_feasible_value = math.asin(0.95) - 2.0 * math.pi - 1.0  # in the other disc

    def __init__(
        self, noise_std: float | None = None, constraint_noise_std: float | None = None
    ) -> None:
        """See the class."""
        super().__init__(noise_std=noise_std)
        self._set_constraint_noise(constraint_noise_std)
        point = [1.5 * math.pi, math.asin(0.95)]
        self._optimizers = [tuple(point)]
        self.register_buffer("optimizers", torch.tensor([point], dtype=torch.float64))

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -X[..., 0].sin() - X[..., 1]

    def _evaluate_constraints(self, X: Tensor) -> Tensor:
        return (X[..., :1].sin() * X[..., 1:].sin()) + 0.95
