"""One end of the confidence bounds on the reward, as a function that a domain can maximize.

An acquisition function returns one number for each point. To decide when to stop, or which point to
deploy, a user also needs the lower bound, the bounds of the constraints and the mean.
:class:`BoundOfReward` turns them into a function that a domain can maximize. ``guarantee()``
reports whether the bounds hold.
"""

from __future__ import annotations

from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.base import BanditAcquisition
from botorch_bandits.acquisition.scores import Bounds, moments_at
from botorch_bandits.domains import ValueScale, value_scale_of


def bounds_at(acquisition: AcquisitionFunction, model: Model, X: Tensor) -> Bounds:
    """Return what an acquisition function and its model know at some points.

    Pending points must not have been passed to the acquisition function.

    Args:
        acquisition: One from this package, or any other, of which only the model is asked.
        model: Its model. If it has several outputs, the first one is the reward.
        X: ``n x d`` points, float64.

    Raises:
        UnsupportedError: If the model has no posterior mean and variance.
    """
    if isinstance(acquisition, BanditAcquisition):
        return acquisition.known_at(X)
    return Bounds(*moments_at(model, X, getattr(acquisition, "posterior_transform", None)))


class BoundOfReward(AcquisitionFunction):
    """A confidence bound on the reward, or its mean, as an acquisition function.

    With constraints, ``weights`` times the positive parts of constraint values is subtracted. These
    values are the upper bounds with ``side="lower"``, the means with ``"mean"``, and the lower
    bounds with ``"upper"``. With ``"upper"``, the maximum over a domain is, for any weights, at
    least the largest upper bound among the points that may meet all constraints.

    Args:
        acquisition: The acquisition function that provides the bounds, without pending points.
        model: Its model.
        side: ``"lower"``, ``"mean"`` or ``"upper"``: the pessimistic end of the bounds, the mean,
            or the other end. If the reward is minimized, all three refer to minus the reward.
        maximize: If False, the bound is on minus the reward, whose lower bound is minus the upper
            one.
        weights: One for each constraint; None without constraints.
    """

    def __init__(
        self,
        acquisition: AcquisitionFunction,
        model: Model,
        side: str,
        maximize: bool = True,
        weights: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(model)
        self._of, self._side, self._weights = [acquisition], side, weights  # not part of the state
        self._sign = 1.0 if maximize else -1.0

    @property
    def value_scale(self) -> ValueScale | None:
        """The scale of the reward, taken from the acquisition function."""
        return value_scale_of(self._of[0])

    def values(self, known: Bounds) -> Tensor:
        """Return ``n`` values from what is known at ``n`` points.

        Args:
            known: The result of :func:`bounds_at`, with bounds unless the side is the mean.
        """
        of_reward, of_constraints = {
            "lower": (known.lower if self._sign > 0.0 else known.upper, known.constraint_upper),
            "mean": (known.mean, known.constraint_mean),
            "upper": (known.upper if self._sign > 0.0 else known.lower, known.constraint_lower),
        }[self._side]
        assert of_reward is not None
        value = self._sign * of_reward
        if self._weights is None:
            return value
        assert of_constraints is not None
        return value - (self._weights * of_constraints.clamp_min(0.0)).sum(-1)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.

        Returns:
            ``batch_shape`` values.
        """
        points = X.reshape(-1, X.shape[-1])
        # without data nothing depends on X; the zero gradient must exist
        values = self.values(bounds_at(self._of[0], self.model, points)) + 0.0 * points.sum(-1)
        return values.reshape(X.shape[:-2])
