"""What an acquisition function knows about each point: moments, and confidence bounds if any.

An acquisition function returns one number for each point. To decide when to stop, or which point to
deploy, a user also needs the lower bound, the bounds of the constraints and the mean.
:func:`bounds_at` computes them from an acquisition function at any points, and
:func:`bounds_on_arms` from an engine on all arms; :class:`BoundOfReward` turns them into a function
that a domain can maximize. ``guarantee()`` reports whether the bounds hold.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.candidates import CandidatesUpperConfidenceBound
from botorch_bandits.acquisition.dmm import DMMUpperConfidenceBound
from botorch_bandits.acquisition.lagrangian import LagrangianAcquisition
from botorch_bandits.acquisition.rules import (
    LagrangianArmsRule,
    ListArmsRule,
    RandomizedArmsRule,
    Seen,
    ThompsonArmsRule,
)
from botorch_bandits.acquisition.scores import half_width, prior_variance_of_scalar
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.acquisition.upper_confidence_bound import (
    RandomizedUpperConfidenceBound,
    WidthUpperConfidenceBound,
)
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE
from botorch_bandits.domains import ValueScale, value_scale_of
from botorch_bandits.models import CandidatesModel
from botorch_bandits.models.reading import variance_of, variances_of_outputs


class Bounds(NamedTuple):
    """What is known at ``n`` points, in outcome units, from the outcomes that have arrived.

    Attributes:
        mean: ``n`` posterior means of the reward.
        deviation: ``n`` posterior standard deviations of the reward, without noise.
        lower: ``n`` lower confidence bounds on the reward, or None if the method has none.
        upper: ``n`` upper confidence bounds on the reward, or None.
        constraint_mean: ``n x num_constraints`` posterior means, or None if the model has none.
        constraint_lower: ``n x num_constraints`` lower confidence bounds, or None.
        constraint_upper: ``n x num_constraints`` upper confidence bounds, or None.
    """

    mean: Tensor
    deviation: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None
    constraint_mean: Tensor | None = None
    constraint_lower: Tensor | None = None
    constraint_upper: Tensor | None = None

    def at(self, index: Any) -> Bounds:
        """Return what is known at some of the points.

        Args:
            index: The index of the points, as for a tensor.
        """
        return Bounds._make(None if each is None else each[index] for each in self)


def bounds_at(acquisition: AcquisitionFunction, model: Model, X: Tensor) -> Bounds:
    """Return what an acquisition function and its model know at some points.

    Pending points must not have been passed to the acquisition function.

    Args:
        acquisition: One from this package, or any other. Randomized widths do not give bounds.
        model: Its model. If it has several outputs, the first one is the reward.
        X: ``n x d`` points, float64.

    Raises:
        UnsupportedError: If the model has no posterior mean and variance.
    """
    if isinstance(acquisition, CandidatesUpperConfidenceBound):
        mean, variance = acquisition.base_model.mixture(X)
        return Bounds(mean, variance.clamp_min(0.0).sqrt(), *acquisition.bounds(X))
    if isinstance(acquisition, LagrangianAcquisition):
        mean, deviation = acquisition._moments(X.unsqueeze(-2))
        half = half_width(deviation, acquisition.widths)
        return _of_outputs(mean, deviation, mean - half, mean + half)
    mean, deviation = moments_at(acquisition, model, X)
    if isinstance(acquisition, DMMUpperConfidenceBound):
        return Bounds(mean, deviation, *acquisition.bounds(X))
    width = _width_of(acquisition)
    if width is None:
        return Bounds(mean, deviation)
    half = half_width(deviation, width)
    return Bounds(mean, deviation, mean - half, mean + half)


def _of_outputs(mean: Tensor, deviation: Tensor, lower: Tensor, upper: Tensor) -> Bounds:
    """Separate the reward, which is the first output, from the constraints."""
    return Bounds(
        mean[..., 0],
        deviation[..., 0],
        lower[..., 0],
        upper[..., 0],
        mean[..., 1:],
        lower[..., 1:],
        upper[..., 1:],
    )


def _width_of(acquisition: AcquisitionFunction) -> Tensor | None:
    """Return the factor on the standard deviation if it is one number and not random."""
    is_drawn = isinstance(acquisition, RandomizedUpperConfidenceBound)
    has_width = isinstance(acquisition, WidthUpperConfidenceBound | GPThompsonSampling)
    if is_drawn or not has_width or acquisition.width.numel() != 1:
        return None
    width: Tensor = acquisition.width
    return width.reshape(())


def moments_at(acquisition: AcquisitionFunction, model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return posterior mean and standard deviation of the reward at some points.

    Args:
        acquisition: The acquisition function, whose ``posterior_transform``, if any, defines the
            reward.
        model: Its model. Without such a transform, the first of several outputs is the reward.
        X: ``n x d`` points, float64.

    Returns:
        ``n`` each; for an ensemble, the moments of the mixture of its members.

    Raises:
        UnsupportedError: If the model has no posterior mean and variance.
    """
    transform = getattr(acquisition, "posterior_transform", None)
    if isinstance(model, CandidatesModel) and transform is None:
        mean, variance = model.mixture(X)
        return mean, variance.clamp_min(0.0).sqrt()
    posterior = model.posterior(X.unsqueeze(-2), posterior_transform=transform)
    mean, summary = posterior.mean, getattr(acquisition, "_summary", None)
    if transform is None:
        variance = variances_of_outputs(posterior, model)
    else:
        unit = None if summary is None else prior_variance_of_scalar(summary)
        variance = variance_of(posterior, unit or 1.0)
    mean, variance = mean[..., 0, 0], variance.reshape(mean.shape)[..., 0, 0]
    if is_ensemble(model):
        centered = mean.var(-1, correction=0)
        mean, variance = mean.mean(-1), variance.mean(-1) + centered
    smallest = 0.0
    if isinstance(acquisition, WidthUpperConfidenceBound | DMMUpperConfidenceBound):
        smallest = MINIMUM_VARIANCE * (prior_variance_of_scalar(acquisition._summary) or 1.0)
    return mean, variance.clamp_min(smallest).sqrt()


def bounds_on_arms(seen: Seen) -> Bounds:
    """Return what a rule knows about all arms, in one pass over its means and deviations.

    Args:
        seen: The round, without pending rows.
    """
    rule = seen.rule
    if isinstance(rule, ListArmsRule):
        mean, variance = rule.mixture(seen)
        return Bounds(mean, variance.clamp_min(0.0).sqrt(), *(rule.bounds(seen) or ()))
    if isinstance(rule, LagrangianArmsRule):
        known = seen.prepared
        each = (known.means, known.deviations, *rule.bounds(seen))
        return _of_outputs(*(values.mT for values in each))
    if isinstance(rule, RandomizedArmsRule):  # its width is drawn
        return Bounds(seen.mean, seen.standard_deviation(MINIMUM_VARIANCE))
    ends = rule.bounds(seen)
    if ends is not None:
        return Bounds(seen.mean, seen.standard_deviation(MINIMUM_VARIANCE), *ends)
    deviation = seen.standard_deviation(0.0)
    if not isinstance(rule, ThompsonArmsRule):
        return Bounds(seen.mean, deviation)
    half = deviation * rule.prepare(seen)
    return Bounds(seen.mean, deviation, seen.mean - half, seen.mean + half)


SIDES = ("lower", "mean", "upper")
"""What can be maximized: the pessimistic end of the reward's bounds, its mean, or the other end.

If the reward is minimized, all three refer to minus the reward."""


class BoundOfReward(AcquisitionFunction):
    """A confidence bound on the reward, or its mean, as an acquisition function.

    With constraints, ``weights`` times the positive parts of constraint values is subtracted. These
    values are the upper bounds with ``side="lower"``, the means with ``"mean"``, and the lower
    bounds with ``"upper"``. With ``"upper"``, the maximum over a domain is, for any weights, at
    least the largest upper bound among the points that may meet all constraints.

    Args:
        acquisition: The acquisition function that provides the bounds, without pending points.
        model: Its model.
        side: One of :data:`SIDES`.
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
        value = _side_of(known, self._side, self._sign)
        if self._weights is None:
            return value
        of_constraints = {
            "lower": known.constraint_upper,
            "mean": known.constraint_mean,
            "upper": known.constraint_lower,
        }[self._side]
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


def _side_of(known: Bounds, side: str, sign: float) -> Tensor:
    """Return one end of the bounds of the reward, or of minus the reward."""
    if side == "mean":
        return sign * known.mean
    end = known.upper if (side == "upper") == (sign > 0.0) else known.lower
    assert end is not None
    return sign * end
