r"""Acquisition functions for delayed feedback: pending queries are censored at the minimum.

.. math::
   \tilde y_{s,t} = y_s \text{ if it has arrived, else } y_{\min}, \qquad
   \nu_t = B_y \sum_s \sigma_{t-1}(x_s) + B + (R + B_y) \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022:
GP-UCB-SDF, Theorems 1 and 2.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022:
GP-TS-SDF, Theorem 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.posterior import Posterior
from botorch.utils.transforms import is_ensemble
from torch import Tensor

from botorch_bandits.acquisition.base import BanditAcquisition, check_pending
from botorch_bandits.acquisition.scores import (
    ArmsRound,
    RandomizedArmsRule,
    ThompsonArmsRule,
    WidthArmsRule,
)
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.acquisition.upper_confidence_bound import (
    MINIMUM_VARIANCE,
    ClosedFormBound,
    WidthUpperConfidenceBound,
)
from botorch_bandits.checks import check_probability
from botorch_bandits.confidence import (
    AMMWidth,
    CensoredWidth,
    ConstantWidth,
    Guarantee,
    KernelizedWidth,
    PriorSummary,
    WidthRule,
)
from botorch_bandits.confidence.width_rules import check_scale
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Domain
from botorch_bandits.models.censoring import DEFAULT_TOLERANCE, Censoring, output_signs
from botorch_bandits.models.condition import observed_outcomes, prior_means


def build_settings(halves_delta: bool = False, **options: Any) -> tuple[Censoring, CensoredWidth]:
    """Return how to censor, and the width rule, from the options of a constructor.

    Args:
        halves_delta: Whether half of ``delta`` is for something else than the confidence bound.
        options: The options of both, by the names of the constructor; ``width`` is the constant.
    """
    delta = check_probability("delta", options.pop("delta", 0.1))
    constant = options.pop("width", None)
    of_censoring = {field.name for field in fields(Censoring)}
    of_rule = {field.name for field in fields(CensoredWidth)}
    rule = CensoredWidth(
        delta=delta / 2.0 if halves_delta else delta,
        constant=constant,
        **{name: value for name, value in options.items() if name in of_rule},
    )
    censoring = Censoring(**{name: v for name, v in options.items() if name in of_censoring})
    return censoring, rule


def check_censored_options(options: dict[str, Any]) -> None:
    """Raise what a constructor raises for these options on any model."""
    check_scale(options.get("scale", 1.0))
    known = {field.name for field in (*fields(Censoring), *fields(CensoredWidth))} | {"width"}
    build_settings(**{name: value for name, value in options.items() if name in known})


class CensorsPending(BanditAcquisition):
    """Takes pending points at the known minimum and computes the width that goes with it."""

    base_model: Model
    rule: Any  # a CensoredWidth
    posterior_transform: PosteriorTransform | None
    scale: float
    predictive: bool = False
    _censoring: Censoring | None = None
    _pseudo_values: tuple[float, ...] | None = None
    _signs: tuple[float, ...] = ()
    _X_observed: Tensor | None = None
    _Y_observed: Tensor | None = None

    @property
    def is_optimistic(self) -> bool:
        """False: the bound is on the reward times the probability of arriving in time."""
        return False

    @property
    def pseudo_values(self) -> tuple[float, ...] | None:
        """What pending queries are filled in with: one number an output, in raw units.

        None before there is a proxy for an unknown minimum.
        """
        return self._pseudo_values

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, width and information gain at one point.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        known = super().describe(x)
        gain = self.rule.information_gain(self._gain_reading())
        if gain is not None:  # that of the base class is without pending rows
            known["information_gain"] = float(gain.mean())
        return known

    def _censor(self, base_model: Model, X_pending: Tensor | None, maximize: bool) -> Tensor:
        """Replace the model by the censored one; return the scaled width."""
        assert self._censoring is not None
        pending = check_pending(X_pending)
        if pending is not None:
            here = next(base_model.parameters(), pending).device
            pending = pending.detach().to(here, copy=True)
        signs = output_signs(base_model, self.posterior_transform, maximize)
        values = self._censoring.pseudo_values(
            base_model, signs, self._X_observed, self._Y_observed
        )
        model = base_model
        if pending is not None:
            if values is None:
                values = self._censoring.proxy(base_model, signs, pending)
            model = self._censoring.censor(base_model, pending, values)
        sums = self._censoring.deviation_sums(base_model, model, pending, self.predictive)
        summary = self._reading_of(base_model, model, pending, values)
        width = check_scale(self.scale) * self.rule.censored_width(summary, sums)
        if pending is not None:
            assert values is not None
            self._censoring.warn_of_ringing(
                base_model,
                model,
                pending,
                values,
                self.posterior_transform,
                maximize,
                self._X_observed,
            )
        # all that may be refused has been: now nothing is left half done
        self.model, self._pseudo_values, self._signs = model, values, signs
        AcquisitionFunction.set_X_pending(self, pending)
        return width

    def _reading_of(
        self,
        base_model: Model,
        model: Model,
        pending: Tensor | None,
        values: tuple[float, ...] | None,
    ) -> PriorSummary:
        """Read the prior with all rows; pseudo-rows count as rows with ordinary noise."""
        assert self._censoring is not None
        if pending is not None and self._censoring.pseudo_noise > 0.0:
            assert values is not None
            model = self._censoring.censor(base_model, pending, values, with_noise=False)
        return PriorSummary(model, self.posterior_transform)

    def _gain_reading(self) -> PriorSummary:
        return self._reading_of(self.base_model, self.model, self.X_pending, self._pseudo_values)

    def _of_draws(self, guarantee: Guarantee) -> Guarantee:
        """Word a guarantee of the width for draws, which have the other half of delta."""
        return guarantee.for_draws("Thompson sampling, censored feedback", 2.0 * self.rule.delta)

    def _censoring_gaps(self) -> Iterator[str]:
        """Why the theorem does not cover this use, beside what the width rule knows."""
        censoring = self._censoring
        assert censoring is not None
        if self.scale != 1.0:
            yield f"the width is scaled by {self.scale:g}"
        if self.predictive:
            yield "standard deviations include the noise"
        if is_ensemble(self.base_model):
            yield "the bound is averaged over the members of an ensemble"
        if censoring.minimum is None:
            yield "the minimum is unknown; a lower confidence bound is in its place"
        if censoring.pseudo_noise > 0.0 and self.X_pending is not None:
            yield "pending rows have more noise than the others"
        if self._pseudo_values is not None:
            yield from self._value_gaps(self._pseudo_values)

    def _value_gaps(self, values: tuple[float, ...]) -> Iterator[str]:
        censoring = self._censoring
        assert censoring is not None
        stated = censoring.minimum if isinstance(censoring.minimum, tuple) else ()
        stated = stated or (censoring.minimum,) * len(values)  # type: ignore[assignment]
        if censoring.minimum is not None and any(
            value != before for value, before in zip(values, stated, strict=True)
        ):
            yield "the minimum was lowered to an observed outcome"
        means = prior_means(self.base_model)
        if means is None:
            yield "the prior mean cannot be read; it must equal the minimum"
        outcomes = self._observed_columns()
        for j, value in enumerate(values):
            if self._signs[j] == 0.0:
                continue
            here = means[j] if means is not None else torch.tensor([value], dtype=torch.float64)
            difference = float((here - value).abs().max())
            if difference > 1e-6 * (1.0 + abs(value)):
                yield (
                    f"the prior mean differs from the minimum by {difference:.4g}; give the model "
                    f"a fixed prior mean of {value:g} (BanditGP: prior_mean=)"
                )
            bound = self.rule.outcome_bound
            bound = bound[j] if isinstance(bound, tuple) else bound
            if isinstance(bound, float | int) and self.rule.units == "outcome" and outcomes:
                farthest = float((outcomes[j] - value).abs().max()) if len(outcomes[j]) else 0.0
                if farthest > bound * (1.0 + 1e-9):
                    yield (
                        f"an observed outcome is {farthest:.4g} from the minimum, more than "
                        f"outcome_bound = {bound:.4g}"
                    )

    def _observed_columns(self) -> tuple[Tensor, ...] | None:
        if self._Y_observed is not None:
            return self._Y_observed.unbind(-1)
        return observed_outcomes(self.base_model)


class PredictiveDeviations(WidthUpperConfidenceBound):
    """Takes predictive standard deviations, noise included, where ``predictive`` says so."""

    predictive: bool = False

    def _mean_and_sigma(
        self, X: Tensor, compute_sigma: bool = True, min_var: float = MINIMUM_VARIANCE
    ) -> tuple[Tensor, Tensor | None]:
        if not self.predictive:
            return super()._mean_and_sigma(X, compute_sigma, min_var)
        posterior: Posterior = self.model.posterior(
            X, observation_noise=True, posterior_transform=self.posterior_transform
        )
        mean = posterior.mean.squeeze(-2).squeeze(-1)
        sigma = posterior.variance.clamp_min(min_var).sqrt().view(mean.shape)
        return mean, sigma if compute_sigma else None


class CensoredUpperConfidenceBound(CensorsPending, PredictiveDeviations):
    r"""GP-UCB-SDF (Verma, Dai and Low 2022): pending queries enter at the known minimum.

    .. math::
       a_t(x) = \mu_{t-1}(x) + \nu_t \sigma_{t-1}(x), \qquad
       \nu_t = B_y \sum_s \sigma_{t-1}(x_s) + B
               + (R + B_y) \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

    Mean, deviations and information gain are those of the model with pending rows. Every
    :meth:`set_X_pending` starts again from the user's model, which is never changed, so
    ``optimize_acqf(q=5, sequential=True)`` is batch optimization with censoring. A query that is
    given up stays in ``X_pending``, or becomes a row of the model with the minimum as its outcome.
    The forms for every ``lam`` are in :mod:`botorch_bandits.confidence.censored`.

    With learned hyperparameters the posterior often rings: see :class:`RingingWarning` and the
    page on delayed feedback. Hallucination (:class:`~botorch_bandits.ImprovedUpperConfidenceBound`
    with ``X_pending``) is then the better choice.

    Args:
        model: A fitted BoTorch model in float64, conditioned on the outcomes that have arrived.
        minimum: The least outcome that is possible, in raw outcome units. Where less is better
            (``maximize=False``, an output with a negative weight) the LARGEST outcome. One number
            for all outputs, or one an output.
        minimum_proxy: With an unknown minimum: the factor ``w`` of the proxy ``min(mean - w * sd)``
            over observed points (pending ones without any), taken anew from each model. Outside
            the theorem.
        outcome_bound: ``B_y``, with ``|y - minimum| <= B_y``. One number, or one an output.
        rkhs_bound: ``B``, a bound on the norm of ``f - minimum`` in the unit-variance kernel.
        noise_bound: ``R``; not used with ``bounded_outcomes``.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form for every ``lam``. The printed one needs ``lam >= 1``.
        bounded_outcomes: Use the tighter form for ``y - minimum`` in ``[0, B_y]``, for every
            ``lam``.
        window: ``"pending"``: sum over pending queries. ``"all"``: over the last ``max_delay``
            queries, as printed; pending ones count as later than the model's rows.
        max_delay: ``m`` in rounds. Pending points must then be in the order of issue. None: no
            query is ever given up.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation.
        width: A constant in place of all but the sum (the paper's ``beta_t``); the sum is kept if
            ``outcome_bound`` is given.
        scale: A factor on the width.
        pseudo_noise: Added to the noise variance of pending rows, in squared outcome units or, with
            ``units="prior"``, in prior variances. It cures ringing, outside the theorem.
        predictive: Use the predictive standard deviation, noise included, as the published code.
        on_lower: What an observed outcome below the minimum is: an ``"error"``, or ``"lower"``: it
            becomes the minimum, with a :class:`MinimumLoweredWarning`.
        ringing_tolerance: Warn if pending rows raise the posterior's maximum by more than this
            share of its height above the minimum; None: do not look.
        X_observed: ``n x d`` observed inputs; the model's if omitted.
        Y_observed: ``n x m`` observed outcomes, to check the minimum; the model's if omitted.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If an ingredient is missing or infeasible, an outcome is below the minimum, the
            model's outcome transform maps the minimum to no finite number (as ``Log`` does with
            0), or the model's prior is needed but cannot be read.
        UnsupportedError: If points are pending and the model cannot be conditioned.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.tensor([[0.1], [0.6]], dtype=torch.float64)
        >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=1.1)
        >>> acqf = CensoredUpperConfidenceBound(
        ...     model, minimum=0.0, outcome_bound=1.0, rkhs_bound=2.0, noise_bound=0.1, X_pending=X
        ... )
        >>> acqf.guarantee().holds
        True
    """

    as_theorem: ClassVar[Mapping[str, Any]] = MappingProxyType({"window": "all"})
    """Options as printed in Theorem 1: the sum has the last ``m`` queries; pass ``max_delay=m``."""

    as_published: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"window": "all", "width": 1.0, "predictive": True}
    )
    """Options of the authors' code: ``beta_t = 1``, predictive deviations; pass ``max_delay=m``."""

    def __init__(
        self,
        model: Model,
        *,
        minimum: float | tuple[float, ...] | None = None,
        minimum_proxy: float | None = None,
        outcome_bound: float | tuple[float, ...] | None = None,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | tuple[float, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        bounded_outcomes: bool = False,
        window: str = "pending",
        max_delay: int | None = None,
        units: str = "outcome",
        width: float | None = None,
        scale: float = 1.0,
        pseudo_noise: float = 0.0,
        predictive: bool = False,
        on_lower: str = "error",
        ringing_tolerance: float | None = DEFAULT_TOLERANCE,
        X_observed: Tensor | None = None,
        Y_observed: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._censoring, rule = build_settings(
            minimum=minimum,
            minimum_proxy=minimum_proxy,
            outcome_bound=outcome_bound,
            rkhs_bound=rkhs_bound,
            noise_bound=noise_bound,
            delta=delta,
            any_lambda=any_lambda,
            bounded_outcomes=bounded_outcomes,
            window=window,
            max_delay=max_delay,
            units=units,
            width=width,
            pseudo_noise=pseudo_noise,
            on_lower=on_lower,
            ringing_tolerance=ringing_tolerance,
        )
        self.predictive = predictive
        self._X_observed, self._Y_observed = X_observed, Y_observed
        super().__init__(
            model,
            rule,
            scale=scale,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the ingredients; see the base class."""
        check_censored_options(options)
        return options

    @property
    def closed_form(self) -> ClosedFormBound | None:
        """See the base class; there is none for predictive deviations."""
        posterior = getattr(self.model, "closed_form", None)
        if (
            posterior is None
            or self.predictive
            or self.posterior_transform is not None
            or self.beta.numel() != 1
            or type(self) is not CensoredUpperConfidenceBound
        ):
            return None
        return ClosedFormBound(posterior, float(self.width), 1.0 if self.maximize else -1.0)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Censor these points, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers, or an observed
                outcome is below the minimum.
            UnsupportedError: If the model cannot be conditioned.
        """
        width = self._censor(self.base_model, X_pending, self.maximize)
        beta = (width**2).unsqueeze(-1) if width.dim() else width**2
        self.beta = beta.to(self.beta.device)

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this bound with this model, or why none does."""
        guarantee = self.rule.guarantee(self._gain_reading(), 1)
        return guarantee.with_gaps(*self._censoring_gaps())


class CensoredThompsonSampling(CensorsPending, GPThompsonSampling):
    r"""GP-TS-SDF (Verma, Dai and Low 2022): a draw of the censored posterior, scaled by ``nu_t``.

    .. math:: f_t \sim GP(\mu_{t-1}, \nu_t^2 k_{t-1})

    with ``delta / 2`` in place of ``delta`` in the width: the printed form has ``ln(4/delta)``.
    Each :meth:`set_X_pending` censors these points, starting from the user's model, and draws
    again.

    Args:
        model: See :class:`~botorch_bandits.CensoredUpperConfidenceBound`.
        minimum: See there.
        minimum_proxy: See there.
        outcome_bound: See there.
        rkhs_bound: See there.
        noise_bound: See there.
        delta: The confidence bound fails with at most half of this probability.
        any_lambda: See there.
        bounded_outcomes: See there.
        window: See there.
        max_delay: See there.
        units: See there.
        width: See there; 1 without ``outcome_bound`` is plain Thompson sampling of the censored
            posterior.
        scale: A factor on the scale of the draw.
        pseudo_noise: See there.
        on_lower: See there.
        ringing_tolerance: See there.
        X_observed: See there.
        Y_observed: See there.
        choices: ``num_points x d`` points to draw on exactly; only they can be evaluated then.
        posterior_transform: See there.
        X_pending: See there.
        seed: See :class:`~botorch_bandits.GPThompsonSampling`.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If an ingredient is missing or infeasible, an outcome is below the minimum, or
            the model's outcome transform maps the minimum to no finite number (as ``Log`` does
            with 0).
        UnsupportedError: If the model cannot be conditioned or drawn from.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from botorch_bandits import BanditGP
        >>> X = torch.tensor([[0.1], [0.6]], dtype=torch.float64)
        >>> model = BanditGP(X, X.sin(), kernel=RBFKernel(), noise=1.1)
        >>> acqf = CensoredThompsonSampling(model, minimum=0.0, width=1.0, X_pending=X, seed=0)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([2])
    """

    as_theorem: ClassVar[Mapping[str, Any]] = MappingProxyType({"window": "all"})
    """Options as printed: the sum has the last ``m`` queries; pass ``max_delay=m``."""

    as_published: ClassVar[Mapping[str, Any]] = MappingProxyType({"width": 1.0})
    """Options of the authors' code: draws without ``nu_t`` (leave ``outcome_bound`` out)."""

    def __init__(
        self,
        model: Model,
        *,
        minimum: float | tuple[float, ...] | None = None,
        minimum_proxy: float | None = None,
        outcome_bound: float | tuple[float, ...] | None = None,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | tuple[float, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        bounded_outcomes: bool = False,
        window: str = "pending",
        max_delay: int | None = None,
        units: str = "outcome",
        width: float | None = None,
        scale: float = 1.0,
        pseudo_noise: float = 0.0,
        on_lower: str = "error",
        ringing_tolerance: float | None = DEFAULT_TOLERANCE,
        X_observed: Tensor | None = None,
        Y_observed: Tensor | None = None,
        choices: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        censoring, rule = build_settings(
            minimum=minimum,
            minimum_proxy=minimum_proxy,
            outcome_bound=outcome_bound,
            rkhs_bound=rkhs_bound,
            noise_bound=noise_bound,
            delta=delta,
            any_lambda=any_lambda,
            bounded_outcomes=bounded_outcomes,
            window=window,
            max_delay=max_delay,
            units=units,
            width=width,
            pseudo_noise=pseudo_noise,
            on_lower=on_lower,
            ringing_tolerance=ringing_tolerance,
            halves_delta=True,
        )
        super().__init__(
            model,
            width=1.0,
            delta=delta,
            scale=scale,
            choices=choices,
            posterior_transform=posterior_transform,
            seed=seed,
        )
        self.rule = rule
        self._censoring = censoring
        self._X_observed, self._Y_observed = X_observed, Y_observed
        self._num_draws = -1
        self.set_X_pending(X_pending)

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the ingredients, and draw on the arms of a finite domain.

        Args:
            options: Constructor arguments.
            domain: Where the acquisition will be maximized; None if that is not known yet.
        """
        check_censored_options(options)
        plain = {"choices": options["choices"]} if "choices" in options else {}
        completed = super().complete_options({"width": 1.0, **plain}, domain)
        return {**options, **{k: v for k, v in completed.items() if k == "choices"}}

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Censor these points, starting again from the user's model, and draw again.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        if self._censoring is not None:  # the base class calls this before all is there
            width = self._censor(self.base_model, X_pending, maximize=True)
            self.width = width.to(self.width.device)
            X_pending = self.X_pending
        GPThompsonSampling.set_X_pending(self, X_pending)

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this draw with this model, or why none does."""
        guarantee = self.rule.guarantee(self._gain_reading(), 1)
        gaps = list(self._censoring_gaps())
        if self.arms is None:
            gaps.append(
                "Theorem 3 draws on a finite set; a pathwise draw approximates a draw on the box"
            )
        return self._of_draws(guarantee).with_gaps(*gaps)


@dataclass(frozen=True, eq=False)
class UncoveredCensoredWidth:
    """A width that no theorem covers with censored feedback, with the terms that censoring adds.

    Attributes:
        rule: The rule, its ``noise_bound`` (if it has one) raised by ``outcome_bound``.
        pending: The sum over pending queries, as a width of its own.
    """

    rule: WidthRule
    pending: CensoredWidth

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        """Return what the rule says of itself, and that censoring is not in its theorem."""
        known = self.rule.guarantee(summary, round_number)
        return Guarantee(
            method=f"censored feedback, {known.method}",
            constants=known.constants,
            gaps=(
                *known.gaps,
                "no theorem covers this width with censored feedback; outcome_bound was added as "
                "Verma, Dai and Low 2022 add it to IGP-UCB's",
            ),
        )


@dataclass(frozen=True, eq=False)
class PendingWidth(WidthRule):
    """The width of censored feedback in one round, with what was pending then.

    Attributes:
        rule: The width rule.
        deviation_sum: The sum of current posterior standard deviations over pending queries, in
            outcome units; a scalar or ``batch_shape``.
        round_number: The round that is chosen.
        gaps: Why the theorem does not cover this use, beside what the rule knows.
    """

    rule: CensoredWidth | UncoveredCensoredWidth
    deviation_sum: Tensor
    round_number: int
    gaps: tuple[str, ...] = ()
    is_uniform: ClassVar[bool] = False

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the round is the rule's own."""
        if isinstance(self.rule, CensoredWidth):
            return self.rule.censored_width(summary, (self.deviation_sum,))
        return self.rule.rule.width(summary, self.round_number) + self.added(summary)

    def added(self, summary: PriorSummary) -> Tensor:
        """Return the term of the pending queries alone, of a width that no theorem covers."""
        assert isinstance(self.rule, UncoveredCensoredWidth)
        return self.rule.pending.censored_width(summary, (self.deviation_sum,))

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        return self.rule.guarantee(summary, self.round_number).with_gaps(*self.gaps)

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        rule = self.rule if isinstance(self.rule, CensoredWidth) else self.rule.rule
        return rule.information_gain(summary)


def censored_rule(
    rule: WidthRule, outcome_bound: float | None
) -> CensoredWidth | UncoveredCensoredWidth:
    """Return a width rule with the terms that censoring adds.

    Args:
        rule: Of IGP-UCB or GP-TS, or a constant width (the sum over pending queries is added), as
            in the paper. Of any other upper confidence bound: outside any theorem.
        outcome_bound: ``B_y``; None, for a constant width only, adds nothing.

    Raises:
        ValueError: If ``outcome_bound`` is needed.
    """
    if isinstance(rule, ConstantWidth):
        return CensoredWidth(outcome_bound=outcome_bound, constant=rule.value)
    if outcome_bound is None:
        raise ValueError(
            "feedback=Censored(...) needs outcome_bound=, how far outcomes can lie above the "
            f"minimum, for {type(rule).__name__}. Only a constant width= goes without."
        )
    if isinstance(rule, KernelizedWidth) and rule.explicit_gain is None:
        return CensoredWidth(
            rkhs_bound=rule.rkhs_bound,
            noise_bound=rule.noise_bound,
            outcome_bound=outcome_bound,
            delta=rule.delta,
            any_lambda=rule.any_lambda,
            units=rule.units,
        )
    pending = CensoredWidth(outcome_bound=outcome_bound, constant=0.0)
    if isinstance(rule, KernelizedWidth):  # half of delta for each of the two noises
        pending = replace(pending, any_lambda=rule.any_lambda, units=rule.units)
        rule = replace(rule, noise_bound=_raised(rule.noise_bound, outcome_bound))
        rule = replace(rule, delta=rule.delta / 2.0)
    elif isinstance(rule, AMMWidth):  # it holds for every lam, so the sum takes that form
        pending = replace(pending, any_lambda=True)
        rule = replace(rule, noise_bound=_raised(rule.noise_bound, outcome_bound))
    return UncoveredCensoredWidth(rule, pending)


def censored_arms_rule(
    rule: WidthArmsRule | ThompsonArmsRule,
    width: PendingWidth,
    summary: PriorSummary,
    predictive: bool,
) -> WidthArmsRule | ThompsonArmsRule:
    """Return a rule on arms with the width of censored feedback in one round.

    Args:
        rule: The acquisition's.
        width: Of the round.
        summary: The prior with all rows.
        predictive: Whether deviations include the noise; plain upper confidence bounds only.
    """
    if predictive:
        assert isinstance(rule, WidthArmsRule)
        return PredictiveArmsRule(width, rule.scale)
    if isinstance(rule, RandomizedArmsRule):  # it draws its width itself
        return replace(rule, added=width.added(summary))
    return replace(rule, rule=width)


@dataclass(frozen=True, eq=False)
class PredictiveArmsRule(WidthArmsRule):
    """An upper confidence bound with predictive standard deviations, noise included."""

    def _half_width(self, seen: ArmsRound) -> Tensor:
        if "half width" not in seen.known:
            noise = seen.posterior.lam
            deviation = (seen.variance + noise).clamp_min(self.smallest_variance).sqrt()
            seen.known["half width"] = deviation * self.width(seen)
        return seen.known["half width"]


class PredictiveUpperConfidenceBound(PredictiveDeviations, WidthUpperConfidenceBound):
    """An upper confidence bound with predictive standard deviations, noise included."""

    predictive = True


def censor_acquisition(
    acquisition: BanditAcquisition, rule: WidthRule, predictive: bool
) -> BanditAcquisition:
    """Return a built acquisition function with another width rule.

    Args:
        acquisition: An upper confidence bound or Thompson sampling, without pending points; it may
            be changed.
        rule: The rule.
        predictive: Whether deviations include the noise; upper confidence bounds only.
    """
    if isinstance(acquisition, GPThompsonSampling):
        acquisition.rule = rule
        width = acquisition.scale * rule.width(acquisition._summary, 1)
        acquisition.width = width.to(acquisition.width)
        return acquisition
    assert isinstance(acquisition, WidthUpperConfidenceBound)
    if predictive:
        return PredictiveUpperConfidenceBound(
            acquisition.base_model,
            rule,
            scale=acquisition.scale,
            posterior_transform=acquisition.posterior_transform,
        )
    acquisition.rule = rule
    acquisition.set_X_pending(None)
    return acquisition


def _raised(noise_bound: Any, outcome_bound: float) -> Any:
    if isinstance(noise_bound, tuple):
        return tuple(bound + outcome_bound for bound in noise_bound)
    return noise_bound + outcome_bound


fill_in_docstrings(__name__)
