"""Problems with constraints: maximize a reward subject to ``g_j(x) <= 0``.

They are also constrained test problems of BoTorch. BoTorch uses slacks, which are ``-g_j``: a point
is feasible if all slacks are at least 0.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from botorch.test_functions.base import ConstrainedBaseTestProblem
from torch import Tensor

from botorch_bandits.checks import (
    check_matrix,
    check_nonnegative,
)
from botorch_bandits.problems.base import ArmsProblem, RewardProblem


class ConstrainedProblem(RewardProblem, ConstrainedBaseTestProblem):
    """A reward to be maximized subject to ``g_j(x) <= 0``, all observed together.

    Regret is measured against ``optimal_value``, the reward of the best feasible fixed point.
    Regret is negative if violating a constraint gains reward.

    Attributes:
        num_constraints: The number of constraints.
        constraint_noise_std: Standard deviation of the Gaussian noise on each observed constraint
            value; None for exact observations.

    See :class:`RewardProblem` for the other arguments.
    """

    optimal_value: float
    optimizers: Tensor

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

    def evaluate_slack_true(self, X: Tensor) -> Tensor:
        """Evaluate BoTorch's slacks ``-g_j`` without noise.

        Args:
            X: Points, ``batch_shape x d``, float64.

        Returns:
            ``batch_shape x num_constraints``.
        """
        self._check_input(X)
        return super().evaluate_slack_true(X)

    def _evaluate_slack_true(self, X: Tensor) -> Tensor:
        return -self._evaluate_constraints(X)


class ConstrainedArmsProblem(ConstrainedProblem, ArmsProblem):
    """Rewards and constraints known on a finite set of arms.

    Args:
        choices: The arms, ``num_arms x d``, float64, no row twice.
        values: The reward of each arm, ``(num_arms,)``, float64.
        constraints: ``num_arms x num_constraints``, float64; an arm is feasible if all entries of
            its row are at most 0. There need not be a feasible arm.
        noise_std: Standard deviation of the Gaussian noise on rewards. None means no noise.
        constraint_noise_std: Standard deviation of the Gaussian noise on constraint values. None
            means none.

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
    ) -> None:
        """Check the tables and store copies of them."""
        ArmsProblem.__init__(self, choices, values, noise_std=noise_std)
        if constraint_noise_std is not None:
            constraint_noise_std = check_nonnegative("constraint_noise_std", constraint_noise_std)
        self.constraint_noise_std = constraint_noise_std
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
