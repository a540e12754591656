"""Classic test functions of BoTorch, turned into rewards."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from botorch.test_functions.synthetic import Branin, Hartmann, Rosenbrock
from torch import Tensor

from botorch_bandits.checks import check_integer
from botorch_bandits.problems.reward_problem import RewardProblem


class BraninReward(RewardProblem, Branin):
    """The Branin function with its sign changed, on ``[-5, 10] x [0, 15]``.

    The largest reward is ``-5 / (4 pi)``, about -0.397887, at three points. It is stored
    in full precision, so that no point has negative regret beyond rounding.

    Args:
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.

    Raises:
        TypeError: If ``noise_std`` is not one number.
        ValueError: If it is negative or not finite.

    Example:
        >>> problem = BraninReward()
        >>> problem.is_minimization_problem
        False
        >>> round(problem.optimal_value, 6)
        -0.397887
    """

    _optimal_value = -5.0 / (4.0 * math.pi)
    _optimizers: ClassVar = [(-math.pi, 12.275), (math.pi, 2.275), (3.0 * math.pi, 2.475)]

    def __init__(self, noise_std: float | None = None) -> None:
        """Build the problem on its usual box."""
        super().__init__(noise_std=noise_std)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -super()._evaluate_true(X)


class Hartmann3Reward(RewardProblem, Hartmann):
    """The three-dimensional Hartmann function with its sign changed, on ``[0, 1]^3``.

    Two numbers differ from BoTorch's. The constants of the function are float64
    (BoTorch rounds them to the default dtype), and the optimum is that of the function
    as BoTorch defines it, in full precision: 3.86277979 (the published 3.86278 is
    rounded up and reached nowhere, which would leave every point with some regret).

    Args:
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.

    Raises:
        TypeError: If ``noise_std`` is not one number.
        ValueError: If it is negative or not finite.

    Example:
        >>> problem = Hartmann3Reward()
        >>> problem.dim, problem.is_minimization_problem
        (3, False)
        >>> round(problem.optimal_value, 6)
        3.86278
    """

    ALPHA: Tensor
    A: Tensor

    def __init__(self, noise_std: float | None = None) -> None:
        """Build the problem on its usual box."""
        super().__init__(dim=3, noise_std=noise_std)
        self._optimal_value = 3.8627797873326625
        self._optimizers = [(0.11458887665506896, 0.5556488946169301, 0.8525469846866774)]
        # In place, because BoTorch makes `optimizers` a read-only property here.
        self.optimizers.copy_(torch.tensor(self._optimizers, dtype=torch.float64))
        # Published with one decimal, so rounding in float64 restores them.
        for name in ("ALPHA", "A", "P"):
            setattr(self, name, getattr(self, name).double().round(decimals=1))

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -super()._evaluate_true(X)


class RosenbrockReward(RewardProblem, Rosenbrock):
    """The Rosenbrock function with its sign changed, on ``[-5, 10]^dim``.

    The largest reward is 0, at ``(1, ..., 1)``.

    Args:
        dim: The number of inputs, at least 2.
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.

    Raises:
        TypeError: If ``dim`` is not an integer or ``noise_std`` not one number.
        ValueError: If ``dim`` is below 2, or ``noise_std`` is negative or not finite.

    Example:
        >>> problem = RosenbrockReward(dim=4)
        >>> problem.dim, problem.optimal_value
        (4, 0.0)
    """

    def __init__(self, dim: int = 2, noise_std: float | None = None) -> None:
        """Build the problem on its usual box."""
        super().__init__(dim=check_integer("dim", dim, minimum=2), noise_std=noise_std)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return -super()._evaluate_true(X)
