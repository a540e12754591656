"""Pending points of acquisition functions that look at mean and variance."""

from __future__ import annotations

from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.recipe import BanditAcquisition, check_pending
from botorch_bandits.models.condition import hallucinate


class HallucinatesPending(BanditAcquisition):
    """Takes pending points as if their outcomes were known to equal the posterior mean.

    The mean stays as it is and the variance shrinks (GP-BUCB; Desautels, Krause and Burdick 2014).
    Each call starts again from ``base_model``, the user's, which is never changed.
    """

    base_model: Model

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Take points as pending, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If the model cannot be conditioned.
        """
        pending = copy_pending(X_pending, self.base_model)
        # first what may be refused: a refusal leaves the old points and their model in place
        self.model = self.base_model if pending is None else hallucinate(self.base_model, pending)
        AcquisitionFunction.set_X_pending(self, pending)


def copy_pending(X_pending: Tensor | None, model: Model) -> Tensor | None:
    """Return a copy of pending points where a model lives, or None if there are none.

    Raises:
        TypeError: If they are not float64.
        ValueError: If they are not an ``n x d`` matrix of finite numbers.
    """
    points = check_pending(X_pending)
    if points is None:
        return None
    return points.detach().to(next(model.parameters(), points).device, copy=True)
