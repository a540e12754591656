"""The base class of all reward problems."""

from __future__ import annotations

from typing import Any

from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from botorch_bandits.checks import check_double, check_finite, check_nonnegative


class RewardProblem(BaseTestProblem):
    """A BoTorch test problem whose values are rewards, to be maximised.

    The reward orientation is built into ``_evaluate_true``, and ``negate`` stays
    False. Hence ``problem.evaluate_true(X)`` and ``problem(X, noise=False)`` agree;
    in BoTorch they have opposite signs when ``negate=True``.

    All inputs are float64.

    Args:
        noise_std: Standard deviation of the Gaussian observation noise, in units of
            the reward. None means no noise.
        options: Passed on to BoTorch.
    """

    _is_minimization_by_default = False
    num_objectives: int = 1
    bounds: Tensor

    def __init__(self, noise_std: float | None = None, **options: Any) -> None:
        """See the class."""
        if noise_std is not None:
            noise_std = check_nonnegative("noise_std", noise_std)
        super().__init__(noise_std=noise_std, **options)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Evaluate the reward without noise.

        Args:
            X: Points, ``batch_shape x d``, float64.

        Returns:
            Rewards, ``batch_shape``.

        Raises:
            TypeError: If ``X`` is not a float64 tensor.
            ValueError: If ``X`` is not finite, has not d columns, or lies outside the
                problem's domain.
        """
        self._check_input(X)
        return super().evaluate_true(X)

    def _check_input(self, X: Tensor) -> None:
        """Check dtype, entries and the last dimension of points to evaluate."""
        check_finite("X", check_double("X", X))
        if X.dim() < 1 or X.shape[-1] != self.dim:
            raise ValueError(
                f"X must have shape batch_shape x {self.dim}, got {tuple(X.shape)}; "
                f"put the {self.dim} coordinates of a point in the last dimension."
            )
