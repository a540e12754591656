"""Rewards on a finite set of arms."""

from __future__ import annotations

import torch
from botorch.test_functions.base import (
    BaseTestProblem,
    ConstrainedBaseTestProblem,
    MultiObjectiveTestProblem,
)
from torch import Tensor

from botorch_bandits.checks import check_vector
from botorch_bandits.domains import Arms
from botorch_bandits.problems.reward_problem import RewardProblem


class ArmsProblem(RewardProblem):
    """A reward function known on a finite set of arms.

    A point is evaluated by looking it up among the arms, entry by entry and
    without any tolerance. A point that is not an arm is refused.

    ``bounds`` is the smallest box that holds all arms.

    Args:
        choices: The arms, ``num_arms x d``, float64, no row twice.
        values: The reward of each arm, ``(num_arms,)``, float64.
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.
        rkhs_norm: The RKHS norm of the function, where it is known.

    Attributes:
        choices: The arms (buffer, ``num_arms x d``).
        values: Their rewards (buffer, ``(num_arms,)``).
        optimizers: All arms of maximal reward (buffer, ``num_best x d``).
        rkhs_norm: The RKHS norm, or None where it is unknown.

    Raises:
        TypeError: If ``choices`` or ``values`` is not float64, or ``noise_std`` not a number.
        ValueError: If a shape or an entry is wrong, or ``choices`` has two equal rows.

    Example:
        >>> import torch
        >>> choices = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)
        >>> values = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
        >>> problem = ArmsProblem(choices, values)
        >>> problem.optimal_value, problem.optimal_arm
        (3.0, 1)
        >>> problem(choices[1:]).tolist()
        [3.0, 2.0]
    """

    choices: Tensor
    values: Tensor
    optimizers: Tensor

    def __init__(
        self,
        choices: Tensor,
        values: Tensor,
        noise_std: float | None = None,
        *,
        rkhs_norm: float | None = None,
    ) -> None:
        """Check the arms and store a copy of them."""
        self._arms = Arms(choices)
        choices = self._arms.choices
        values = check_vector("values", values, length=self._arms.num_arms).detach().clone()
        self.dim = choices.shape[1]
        self.continuous_inds = list(range(self.dim))
        self._bounds = list(
            zip(choices.amin(dim=0).tolist(), choices.amax(dim=0).tolist(), strict=True)
        )
        super().__init__(noise_std=noise_std)
        self.rkhs_norm = rkhs_norm
        self.register_buffer("choices", choices)
        self.register_buffer("values", values)
        self.register_buffer("optimizers", choices[values == values.max()])
        self.to(choices.device)

    @property
    def num_arms(self) -> int:
        """The number of arms."""
        return self.choices.shape[0]

    @property
    def optimal_value(self) -> float:
        """The largest reward of any arm, exact."""
        return float(self.values.max().item())

    @property
    def optimal_arm(self) -> int:
        """The row of the first arm of maximal reward."""
        return int((self.values == self.values.max()).nonzero()[0].item())

    def arm_indices(self, X: Tensor) -> Tensor:
        """Find the row of ``choices`` that each point equals.

        Args:
            X: Arms, ``batch_shape x d``, float64.

        Returns:
            Row indices (int64), ``batch_shape``.

        Raises:
            ValueError: If a point is not an arm.
        """
        self._check_input(X)
        rows = self._arms.index_of(X.reshape(-1, self.dim))
        return rows.reshape(X.shape[:-1]).to(self.values.device)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Look up rewards without noise.

        Args:
            X: Arms, ``batch_shape x d``, float64.

        Returns:
            Rewards, ``batch_shape``.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If a row of ``X`` is not an arm.
        """
        return self._evaluate_true(X)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        # take() copies even for a single point, where indexing would return a view that
        # BoTorch then adds the noise to in place.
        return self.values.take(self.arm_indices(X))


def restrict_to_arms(problem: BaseTestProblem, choices: Tensor) -> ArmsProblem:
    """Restrict a problem to a finite set of arms.

    The problem is evaluated once, without noise, on every arm. Regret on the
    result is measured against the best of the arms, not the best of the box.

    Args:
        problem: A single-objective problem without constraints whose values are
            rewards, i.e. ``is_minimization_problem`` is False.
        choices: The arms, ``num_arms x d``, float64, inside the bounds of the problem.

    Returns:
        The restricted problem, with the noise level of the given one.

    Raises:
        TypeError: If ``problem`` is not a BoTorch test problem or ``choices`` not float64.
        ValueError: If the problem is one to be minimised, has several objectives or
            constraints, or an arm is not in its domain.

    Example:
        >>> import torch
        >>> from botorch.test_functions import Branin
        >>> choices = torch.tensor([[0.0, 0.0], [3.0, 2.0]], dtype=torch.float64)
        >>> restrict_to_arms(Branin(negate=True), choices).optimal_arm
        1
    """
    if not isinstance(problem, BaseTestProblem):
        raise TypeError(
            f"problem must be a BoTorch BaseTestProblem, got {type(problem).__name__}; "
            "for a table of rewards use ArmsProblem(choices, values)."
        )
    name = type(problem).__name__
    if isinstance(problem, (MultiObjectiveTestProblem, ConstrainedBaseTestProblem)):
        raise ValueError(
            f"problem ({name}) has several objectives or constraints, which a bandit "
            "with one reward cannot keep; pass a problem with one objective."
        )
    if problem.is_minimization_problem:
        raise ValueError(
            f"problem ({name}) is to be minimised, but bandits maximise rewards; "
            f"build it with {name}(negate=True)."
        )
    choices = Arms(choices).choices
    if choices.shape[1] != problem.dim:
        raise ValueError(
            f"choices must have {problem.dim} columns like problem ({name}), "
            f"got shape {tuple(choices.shape)}."
        )
    lower, upper = problem.get_buffer("bounds")
    is_outside = ((choices < lower) | (choices > upper)).any(dim=-1)
    if bool(is_outside.any()):
        row = int(is_outside.nonzero()[0].item())
        raise ValueError(
            f"choices must lie inside the bounds of problem ({name}), but row {row} = "
            f"{choices[row].tolist()} does not; drop or move it."
        )
    with torch.no_grad():
        values = problem(choices, noise=False)
    return ArmsProblem(choices, values, noise_std=problem.noise_std)
