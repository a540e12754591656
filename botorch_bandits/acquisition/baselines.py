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
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from botorch.acquisition import analytic
from botorch.acquisition.analytic import AnalyticAcquisitionFunction, _log_ei_helper
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import (
    average_over_ensemble_models,
    is_ensemble,
    t_batch_mode_transform,
)
from torch import Tensor

from botorch_bandits.acquisition.base import HallucinatesPending, check_model
from botorch_bandits.acquisition.rules import (
    ArmsRule,
    ImprovementArmsRule,
    OneMomentArmsRule,
    log_noise_discount,
    noise_that_counts,
)
from botorch_bandits.acquisition.scores import (
    prior_mean_of_scalar,
    prior_variance_of_scalar,
    scale_in_outcomes,
)
from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_nonnegative,
    check_number,
    check_one_of,
)
from botorch_bandits.confidence import Guarantee, PriorSummary
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE_OF_IMPROVEMENT
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.reading import (
    OneByOneModel,
    check_outcomes,
    observed_inputs,
    observed_outcomes,
    shape_of_batch,
)


@dataclass(frozen=True)
class RandomSearch:
    """Choose every point uniformly at random, regardless of the outcomes."""


class _OneMoment(HallucinatesPending, AnalyticAcquisitionFunction):
    """The common part of the two rules."""

    def __init__(
        self,
        model: Model,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        *,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        check_outcomes(type(self).__name__, check_model(model), "moments", posterior_transform)
        super().__init__(model, posterior_transform=posterior_transform)
        self.maximize = maximize
        self.base_model = model
        self._summary = PriorSummary(model, posterior_transform)
        self.set_X_pending(X_pending)

    @property
    def value_scale(self) -> ValueScale | None:
        return scale_in_outcomes(self._summary, 1.0 if self.maximize else -1.0)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the rule.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is the sum of
                their values, each computed as if the points before it were pending.

        Returns:
            ``batch_shape`` values.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If ``q > 1`` and the posterior has no joint Gaussian moments.
        """
        return self._value(X)

    @t_batch_mode_transform(expected_q=1)
    @average_over_ensemble_models
    def _evaluate(self, X: Tensor) -> Tensor:
        mean, sigma = self._mean_and_sigma(X)
        return self._choose(mean, sigma).squeeze(-1)

    @abstractmethod
    def _choose(self, mean: Tensor, sigma: Tensor) -> Tensor: ...

    def guarantee(self) -> Guarantee:
        """Report that there is no guarantee."""
        return Guarantee(
            method=type(self).__name__,
            gaps=("it does not weigh exploration against exploitation",),
        )


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

    defines_rule: ClassVar[bool] = True

    def _choose(self, mean: Tensor, sigma: Tensor) -> Tensor:
        return mean if self.maximize else -mean

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        return OneMomentArmsRule(uses_mean=True, maximize=options["maximize"])


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

    defines_rule: ClassVar[bool] = True

    @property
    def value_scale(self) -> ValueScale | None:
        """See the base class; deviations do not shift with the prior mean."""
        scale = super().value_scale
        return None if scale is None else ValueScale(unit=scale.unit)

    def _choose(self, mean: Tensor, sigma: Tensor) -> Tensor:
        # without data sigma does not depend on X; its zero gradient must exist
        sigma = sigma + 0.0 * mean
        return sigma if self.maximize else -sigma

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        return OneMomentArmsRule(uses_mean=False, maximize=options["maximize"])


INCUMBENTS = ("posterior_mean", "observed")


class _Improvement(HallucinatesPending):
    """The common part of expected improvement and probability of improvement: the incumbent."""

    default_margin: ClassVar[float]
    """The margin if none is given."""

    smallest_share: ClassVar[float] = MINIMUM_VARIANCE_OF_IMPROVEMENT

    is_expected: ClassVar[bool]
    """Whether this is expected improvement; otherwise, it is the probability of improvement."""

    observed_best_f: Tensor
    best_f: Tensor
    noise_variance: Tensor | None
    """The noise of an outcome; set if expected improvement is augmented."""

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
    ) -> None:
        """See the class."""
        check_one_of("incumbent", incumbent, INCUMBENTS)
        check_outcomes(type(self).__name__, check_model(model), "gaussian", posterior_transform)
        super().__init__(
            model,
            best_f=_best(
                type(self).__name__,
                model,
                incumbent,
                X_observed,
                Y_observed,
                posterior_transform,
                maximize,
            )
            if best_f is None
            else _given_best(best_f),
            posterior_transform=posterior_transform,
            maximize=maximize,
        )
        self.register_buffer("noise_variance", None)
        self.margin = self._margin(margin)
        self.base_model = model
        self._summary = PriorSummary(model, posterior_transform)
        self.register_buffer("observed_best_f", self.best_f)
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
            options.get("augmented", False),
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
        best = self.observed_best_f
        if self.X_pending is not None:
            among_pending = _best_mean(
                self.base_model, self.X_pending, self.posterior_transform, self.maximize
            )
            best = (torch.maximum if self.maximize else torch.minimum)(best, among_pending)
        self.best_f = best + (self.margin if self.maximize else -self.margin)

    @property
    def value_scale(self) -> ValueScale | None:
        """See the base class; values are logarithms, whose unit is 1 at any scale."""
        if not self.is_expected:
            return ValueScale()
        scale = scale_in_outcomes(self._summary)
        return None if scale is None else ValueScale(offset=math.log(scale.unit))

    def guarantee(self) -> Guarantee:
        """Report that there is no guarantee."""
        what = "expected improvement" if self.is_expected else "the probability of improvement"
        return Guarantee(
            method=type(self).__name__,
            gaps=(
                f"no theorem here covers {what}; ImprovedUpperConfidenceBound and "
                "GPThompsonSampling have one, with a prior that was fixed before the data "
                "(BanditGP.with_kernel)",
            ),
        )

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the logarithm of the acquisition value.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is the sum of
                their values, each computed as if the points before it were pending.

        Returns:
            ``batch_shape`` values.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If ``q > 1`` and the posterior has no joint Gaussian moments.
        """
        return self._value(X)

    def _evaluate(self, X: Tensor) -> Tensor:
        """Evaluate single points, ``batch_shape x 1 x d``."""
        return super().forward(X) if self.noise_variance is None else self._augmented(X)

    def _look_ahead(self, view: Any, ahead: OneByOneModel) -> None:
        posterior = ahead.posterior(ahead.points, posterior_transform=self.posterior_transform)
        means = posterior.mean.squeeze(-2)  # ``b x q x batch_shape x 1``
        dim = -2 - len(shape_of_batch(ahead))
        margin = self.margin if self.maximize else -self.margin
        # the best mean before each point; there is none before the first
        worst = torch.full_like(means.narrow(dim, 0, 1), -math.inf if self.maximize else math.inf)
        running = torch.cummax if self.maximize else torch.cummin
        before = running(means.narrow(dim, 0, means.shape[dim] - 1), dim=dim).values
        best = torch.cat([worst, before + margin], dim=dim)
        view.best_f = (torch.maximum if self.maximize else torch.minimum)(self.best_f, best)

    @t_batch_mode_transform(expected_q=1)
    @average_over_ensemble_models
    def _augmented(self, X: Tensor) -> Tensor:
        mean, sigma = self._mean_and_sigma(X)  # ``batch_shape x 1``
        assert self.noise_variance is not None
        scaled = (mean - self.best_f) / sigma * (1.0 if self.maximize else -1.0)
        discount = log_noise_discount(sigma.square(), self.noise_variance)
        value: Tensor = _log_ei_helper(scaled) + sigma.log() + discount
        return value.squeeze(-1)


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

    defines_rule: ClassVar[bool] = True
    default_margin: ClassVar[float] = 0.0
    is_expected: ClassVar[bool] = True

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
        super().__init__(
            model,
            best_f,
            posterior_transform,
            maximize,
            incumbent=incumbent,
            margin=margin,
            X_observed=X_observed,
            Y_observed=Y_observed,
            X_pending=X_pending,
        )
        if augmented:
            rows = _rows_of(model, "posterior_mean") if X_observed is None else X_observed
            if rows is None:
                raise ValueError(
                    "augmented=True needs X_observed=, the points at which the noise is read: the "
                    "model is a batch, or does not show its own inputs."
                )
            noise = _noise_variance(model, rows, posterior_transform)
            prior_variance = prior_variance_of_scalar(self._summary) or 1.0
            self.noise_variance = noise_that_counts(noise, prior_variance)


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

    Example:
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = LogProbabilityOfImprovement(model, margin=0.05)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule: ClassVar[bool] = True
    default_margin: ClassVar[float] = 0.01
    is_expected: ClassVar[bool] = False


def _noise_variance(
    model: Model, X: Tensor, posterior_transform: PosteriorTransform | None
) -> Tensor:
    """Return the mean noise variance of an outcome at some points, in outcome units.

    It is a scalar, or ``members x 1`` for an ensemble or a batched model; 0 without points.
    """
    if X.shape[-2] == 0:
        return X.new_zeros(())
    check_finite("X_observed", check_double("X_observed", X))
    with torch.no_grad():
        variances = [
            model.posterior(
                X, observation_noise=noisy, posterior_transform=posterior_transform
            ).variance.squeeze(-1)
            for noisy in (True, False)
        ]
    difference = (variances[0] - variances[1]).clamp_min(0.0)
    return difference.mean(-1, keepdim=difference.dim() > 1)


def _given_best(best_f: float | Tensor) -> Tensor:
    """Return the incumbent that the user gave: one number, or one for each batch of the model."""
    if isinstance(best_f, Tensor) and best_f.numel() > 1:
        return check_finite("best_f", check_double("best_f", best_f))
    return torch.tensor(check_number("best_f", best_f), dtype=torch.float64)


def _best(
    method: str,
    model: Model,
    incumbent: str,
    X_observed: Tensor | None,
    Y_observed: Tensor | None,
    posterior_transform: PosteriorTransform | None,
    maximize: bool,
) -> Tensor:
    name, rows = (
        ("Y_observed", Y_observed) if incumbent == "observed" else ("X_observed", X_observed)
    )
    rows = _rows_of(model, incumbent) if rows is None else rows
    if rows is None:
        raise ValueError(
            f"{method} with incumbent={incumbent!r} needs {name}= or best_f=: the model is a "
            "batch, or does not show its own."
        )
    check_finite(name, check_double(name, rows))
    if rows.dim() < 2:
        raise ValueError(
            f"{name} has shape {tuple(rows.shape)}; it must be n x columns. Turn a vector into "
            f"a column with {name}.unsqueeze(-1)."
        )
    if rows.shape[-2] == 0:
        # without observations: improvement over the prior mean
        return rows.new_tensor(prior_mean_of_scalar(PriorSummary(model, posterior_transform)))
    if incumbent == "posterior_mean":
        return _best_mean(model, rows, posterior_transform, maximize)
    return _extreme(
        rows.squeeze(-1) if posterior_transform is None else posterior_transform.evaluate(rows),
        maximize,
    )


def _rows_of(model: Model, incumbent: str) -> Tensor | None:
    """Return the inputs of a model, or its outcomes ``n x m``; None if it does not show them."""
    if len(model.batch_shape or ()) and not is_ensemble(model):
        return None  # each model of a batch has its own incumbent
    if incumbent == "posterior_mean":
        return observed_inputs(model)
    outcomes = observed_outcomes(model)
    if outcomes is None or len({len(column) for column in outcomes}) != 1:
        return None
    return torch.stack(outcomes, dim=-1)


def _best_mean(
    model: Model, X: Tensor, posterior_transform: PosteriorTransform | None, maximize: bool
) -> Tensor:
    with torch.no_grad():
        posterior = model.posterior(X, posterior_transform=posterior_transform)
    return _extreme(posterior.mean.squeeze(-1), maximize)


def _extreme(values: Tensor, maximize: bool) -> Tensor:
    # ``members x 1``, one incumbent per member, for an ensemble or a batched model
    keepdim = values.dim() > 1
    return values.amax(-1, keepdim=keepdim) if maximize else values.amin(-1, keepdim=keepdim)
