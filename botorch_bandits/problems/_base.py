"""The base class of all reward problems."""

from __future__ import annotations

from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from ._validation import check_double_tensor


class RewardProblem(BaseTestProblem):
    """A BoTorch test problem whose values are rewards, to be maximised.

    The reward orientation is built into `_evaluate_true`, and `negate` stays
    False. Hence `problem.evaluate_true(X)` and `problem(X, noise=False)` agree;
    in BoTorch they have opposite signs when `negate=True`.

    All inputs are float64.
    """

    _is_minimization_by_default = False
    num_objectives: int = 1
    bounds: Tensor

    def evaluate_true(self, X: Tensor) -> Tensor:
        """Evaluates the reward without noise.

        Args:
            X: Points, `batch_shape x d`, float64.

        Returns:
            Rewards, `batch_shape`.

        Raises:
            TypeError: If `X` is not a tensor.
            ValueError: If `X` is not float64, not finite, has not d columns, or lies
                outside the problem's domain.
        """
        self._check_input(X)
        return super().evaluate_true(X)

    def _check_input(self, X: Tensor) -> None:
        """Checks dtype, entries and the last dimension of points to evaluate."""
        check_double_tensor("X", X)
        if X.dim() < 1 or X.shape[-1] != self.dim:
            raise ValueError(
                f"`X` must have shape batch_shape x {self.dim}, got {tuple(X.shape)}; "
                f"put the {self.dim} coordinates of a point in the last dimension."
            )
