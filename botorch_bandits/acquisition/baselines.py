"""Common baselines: improvement, exploitation, exploration and random search.

These are BoTorch's classes, extended by pending points and a choice of incumbent.

Under noise, the largest OBSERVED reward drifts above the optimum, so that improvement over it
becomes nearly impossible everywhere. The largest posterior mean at an observed point does not
drift.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from botorch.acquisition import analytic
from botorch.acquisition.analytic import AnalyticAcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.base import (
    HallucinatesPending,
    check_model,
    check_transform,
    prior_mean_of_scalar,
)
from botorch_bandits.acquisition.rules import (
    ArmsRule,
    ImprovementArmsRule,
    OneMomentArmsRule,
    log_improvement,
    noise_that_counts,
)
from botorch_bandits.checks import (
    DTYPE,
    check_double,
    check_finite,
    check_nonnegative,
    check_number,
    check_one_of,
)
from botorch_bandits.confidence import PriorSummary
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.bandit_gp import closed_form_of
from botorch_bandits.models.reading import (
    observed_inputs,
    observed_outcomes,
)


class _Baseline(HallucinatesPending, AnalyticAcquisitionFunction):
    """The common part: a score of mean and deviation, with pending points at their means."""

    def _start(
        self,
        model: Model,
        posterior_transform: PosteriorTransform | None,
        maximize: bool,
    ) -> None:
        """Do what all constructors do, in place of BoTorch's."""
        check_transform(posterior_transform, model)
        AnalyticAcquisitionFunction.__init__(self, check_model(model), posterior_transform)
        self.base_model = model
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self._summary = PriorSummary(model, posterior_transform)

    def _values(self, X: Tensor) -> Tensor:
        return self._score(*self._mean_and_deviation(X))

    @abstractmethod
    def _score(self, mean: Tensor, sigma: Tensor) -> Tensor:
        """Return the values at ``q`` points from ``batch_shape x q`` means and deviations."""


class _OneMoment(_Baseline):
    """The common part of the two rules."""

    uses_mean: ClassVar[bool]
    no_theorem = "it does not weigh exploration against exploitation"

    def __init__(
        self,
        model: Model,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        *,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._start(model, posterior_transform, maximize)
        self.set_X_pending(X_pending)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        return OneMomentArmsRule(cls.uses_mean, options["maximize"])

    @property
    def value_scale(self) -> ValueScale | None:
        """See the base class; deviations do not shift with the prior mean."""
        scale = super().value_scale
        return scale if self.uses_mean or scale is None else ValueScale(unit=scale.unit)

    def _score(self, mean: Tensor, sigma: Tensor) -> Tensor:
        # without data sigma does not depend on X; its zero gradient must exist
        return self._sign * (mean if self.uses_mean else sigma + 0.0 * mean)


class MeanOnly(_OneMoment):
    """Choose the largest posterior mean: exploit, never explore.

    Args:
        model: A fitted BoTorch model in float64.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimized.
        X_pending: ``n x d`` points whose outcomes have not arrived; they do not move the mean.

    Example:
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> MeanOnly(model)(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule = True
    uses_mean: ClassVar[bool] = True


class VarianceOnly(_OneMoment):
    """Choose the largest posterior standard deviation: explore, never exploit.

    Args:
        model: A fitted BoTorch model in float64.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the value is minus the standard deviation, as in BoTorch.
        X_pending: ``n x d`` points whose outcomes have not arrived; they count as known.

    Example:
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> VarianceOnly(model)(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule = True
    uses_mean: ClassVar[bool] = False


INCUMBENTS = ("posterior_mean", "observed")

NO_THEOREM = (
    "no theorem here covers {}; ImprovedUpperConfidenceBound and GPThompsonSampling have one, with "
    "a prior that was fixed before the data (BanditGP.with_kernel)"
)


class _Improvement(_Baseline):
    """The common part of expected improvement and probability of improvement: the incumbent."""

    default_margin: ClassVar[float]
    """The margin if none is given."""

    is_expected: ClassVar[bool]
    """Whether this is expected improvement; otherwise, it is the probability of improvement."""

    observed_best_f: Tensor
    best_f: Tensor
    noise_variance: Tensor | None
    """The noise of an outcome; set if the improvement is augmented."""

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        best_f: float | Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        *,
        incumbent: str = "posterior_mean",
        margin: float | None = None,
        X_observed: Tensor | None = None,
        Y_observed: Tensor | None = None,
        X_pending: Tensor | None = None,
        augmented: bool = False,
    ) -> None:
        """See the class."""
        check_one_of("incumbent", incumbent, INCUMBENTS)
        self._start(model, posterior_transform, maximize)
        self.margin = self._margin(margin)
        if best_f is not None:
            best = check_finite("best_f", torch.as_tensor(best_f, dtype=DTYPE))
        elif incumbent == "observed":
            best = self._best_outcome(self._observed("Y_observed", Y_observed))
        else:
            best = self._best_mean(self._observed("X_observed", X_observed))
        noise = self._read_noise(self._observed("X_observed", X_observed)) if augmented else None
        self.register_buffer("noise_variance", noise)
        self.register_buffer("observed_best_f", best)
        self.register_buffer("best_f", best)
        self.set_X_pending(X_pending)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        best_f = options["best_f"]
        return ImprovementArmsRule(
            cls.is_expected,
            check_one_of("incumbent", options["incumbent"], INCUMBENTS),
            cls._margin(options["margin"]),
            None if best_f is None else check_number("best_f", best_f),
            options["maximize"],
            options["augmented"],
        )

    @classmethod
    def _margin(cls, margin: float | None) -> float:
        return check_nonnegative("margin", cls.default_margin if margin is None else margin)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points; their posterior means compete for the incumbent.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If the posterior of the model has no joint Gaussian moments.
        """
        super().set_X_pending(X_pending)
        best = self._sign * self.observed_best_f
        if self.X_pending is not None:
            best = torch.maximum(best, self._sign * self._best_mean(self.X_pending))
        self.best_f = self._sign * (best + self.margin)

    @property
    def value_scale(self) -> ValueScale | None:
        """See the base class; values are logarithms, whose unit is 1 at any scale."""
        scale = super().value_scale
        return None if scale is None else ValueScale(offset=math.log(scale.unit))

    def _score(self, mean: Tensor, sigma: Tensor) -> Tensor:
        means = self._sign * mean
        # the best mean before each point competes; there is none before the first
        before = means[..., :-1].cummax(dim=-1).values + self.margin
        before = torch.nn.functional.pad(before, (1, 0), value=-math.inf)
        scaled = (means - torch.maximum(self._sign * self.best_f, before)) / sigma
        return log_improvement(scaled, sigma, self.is_expected, self.noise_variance)

    def _read_noise(self, X: Tensor) -> Tensor:
        """Return the mean noise variance of an outcome at ``n x d`` points, in outcome units.

        It is a scalar, or ``members x 1`` for an ensemble or a batched model; 0 without points.
        """
        if not X.shape[-2]:
            return X.new_zeros(())
        transform = self.posterior_transform
        with torch.no_grad():
            noisy, free = (
                self.model.posterior(X, observation_noise=added, posterior_transform=transform)
                for added in (True, False)
            )
            # variances are computed when they are read
            noise = (noisy.variance - free.variance).clamp_min(0.0).squeeze(-1)
        noise = noise.mean(-1, keepdim=noise.dim() > 1)
        return noise_that_counts(noise, self._summary.scalar_variance or 1.0)

    def _observed(self, name: str, rows: Tensor | None) -> Tensor:
        """Return observed inputs or outcomes, ``n x columns``: as given, or the model's own."""
        model = self.model
        # each model of a batch has its own incumbent
        if rows is None and (is_ensemble(model) or not model.batch_shape):
            if name == "X_observed":
                rows = observed_inputs(model)
            elif (outcomes := observed_outcomes(model)) is not None:
                same = len({len(column) for column in outcomes}) == 1
                rows = torch.stack(outcomes, dim=-1) if same else None
        if rows is None:
            raise ValueError(
                f"{type(self).__name__} needs {name}=, or best_f= and augmented=False: the model "
                "is a batch, or does not show its own."
            )
        return check_finite(name, check_double(name, rows))

    def _best_outcome(self, Y: Tensor) -> Tensor:
        """Return the best of ``n x m`` outcomes."""
        transform = self.posterior_transform
        return self._extreme(Y.squeeze(-1) if transform is None else transform.evaluate(Y))

    def _best_mean(self, X: Tensor) -> Tensor:
        """Return the best posterior mean at ``n x d`` points."""
        transform = self.posterior_transform
        with torch.no_grad():
            closed = closed_form_of(self.base_model) if transform is None and X.dim() == 2 else None
            if closed is not None:  # means of n rows take n^2 operations, and variances n^3
                return self._extreme(closed.mean(X))
            posterior = self.base_model.posterior(X, posterior_transform=transform)
        return self._extreme(posterior.mean.squeeze(-1))

    def _extreme(self, values: Tensor) -> Tensor:
        if not values.shape[-1]:  # without observations: improvement over the prior mean
            return values.new_tensor(prior_mean_of_scalar(self._summary))
        # ``members x 1``, one incumbent per member, for an ensemble or a batched model
        return self._sign * (self._sign * values).amax(-1, keepdim=values.dim() > 1)


class LogExpectedImprovement(_Improvement, analytic.LogExpectedImprovement):
    """BoTorch's ``LogExpectedImprovement``, with a choice of incumbent and pending points.

    Values are logarithms, and the arguments that BoTorch takes by position are taken by position.

    Args:
        model: A fitted BoTorch model in float64.
        best_f: The incumbent's value, or one value for each batch of the model; computed if
            omitted.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimized.
        incumbent: ``"posterior_mean"`` or ``"observed"``; how ``best_f`` is computed.
        margin: Added to the incumbent (subtracted when minimizing), in outcome units; default 0.
        X_observed: ``n x d`` observed inputs, for ``"posterior_mean"``; the model's if omitted.
        Y_observed: ``n x m`` observed outcomes of the model's ``m`` outputs, for ``"observed"``;
            the model's if omitted.
        X_pending: ``n x d`` points whose outcomes have not arrived; they enter at the posterior
            mean.
        augmented: Whether values are multiplied by the share of an improvement that remains under
            noise, ``1 - noise / sqrt(variance + noise**2)`` (Huang, Allen, Notz and Zeng 2006):
            this avoids points where one more noisy outcome would provide little information. The
            noise variance is the average that the model expects at the observed points, minus a
            thousandth of the prior variance; with less noise than that, nothing changes.

    Example:
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = LogExpectedImprovement(model)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule = True
    default_margin: ClassVar[float] = 0.0
    is_expected: ClassVar[bool] = True
    no_theorem = NO_THEOREM.format("expected improvement")


class LogProbabilityOfImprovement(_Improvement, analytic.LogProbabilityOfImprovement):
    """BoTorch's ``LogProbabilityOfImprovement`` (MPI), by at least a margin.

    Values are logarithms, and the arguments that BoTorch takes by position are taken by position.
    With the posterior mean as the incumbent and no margin, this is the mean-only rule, which never
    explores.

    Args:
        model: A fitted BoTorch model in float64.
        best_f: The incumbent's value, or one value for each batch of the model; computed if
            omitted.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimized.
        incumbent: See :class:`LogExpectedImprovement`.
        margin: The amount by which the incumbent must be improved, in outcome units; default 0.01.
        X_observed: See :class:`LogExpectedImprovement`.
        Y_observed: See :class:`LogExpectedImprovement`.
        X_pending: See :class:`LogExpectedImprovement`.
        augmented: See :class:`LogExpectedImprovement`.

    Example:
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = LogProbabilityOfImprovement(model, margin=0.05)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule = True
    default_margin: ClassVar[float] = 0.01
    is_expected: ClassVar[bool] = False
    no_theorem = NO_THEOREM.format("the probability of improvement")
