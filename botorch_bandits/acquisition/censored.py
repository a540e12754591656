r"""An upper confidence bound for delayed feedback: pending queries are censored at the minimum.

.. math::
   \tilde y_{s,t} = y_s \text{ if it has arrived, else } y_{\min}, \qquad
   \nu_t = B_y \sum_s \sigma_{t-1}(x_s) + B + (R + B_y) \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022:
GP-UCB-SDF, Theorems 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.posteriors.posterior import Posterior
from torch import Tensor

from botorch_bandits.acquisition.censored_state import (
    CensorsPending,
    build_settings,
    check_censored_options,
)
from botorch_bandits.acquisition.ringing import DEFAULT_TOLERANCE
from botorch_bandits.acquisition.width_upper_confidence_bound import (
    MINIMUM_VARIANCE,
    ClosedFormBound,
    WidthUpperConfidenceBound,
)
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Domain


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
    ``optimize_acqf(q=5, sequential=True)`` is batch optimisation with censoring. A query that is
    given up stays in ``X_pending``, or becomes a row of the model with the minimum as its outcome.
    The forms for every ``lam`` are in :mod:`botorch_bandits.confidence.censored_widths`.

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
