r"""Censored feedback for hand-written loops: pending queries enter the model at the known minimum.

:class:`CensoredUpperConfidenceBound` (GP-UCB-SDF) and :class:`CensoredThompsonSampling` (GP-TS-SDF)
condition the user's model on pseudo-outcomes at ``X_pending`` and use the corresponding width. In a
:class:`~botorch_bandits.BanditLoop`, the feedback object does the censoring, and the ordinary
acquisition classes are used.

.. math::
   \tilde y_{s,t} = y_s \text{ if it has arrived, else } y_{\min}, \qquad
   \nu_t = B_y \sum_s \sigma_{t-1}(x_s) + B + (R + B_y) \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022:
Theorems 1 and 2 for GP-UCB-SDF, Theorem 3 for GP-TS-SDF.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.base import copy_pending, default_options
from botorch_bandits.acquisition.rules import ArmsRule
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling, drawn_on
from botorch_bandits.acquisition.upper_confidence_bound import (
    WidthAcquisition,
    WidthUpperConfidenceBound,
)
from botorch_bandits.checks import check_probability
from botorch_bandits.confidence import (
    CensoredWidth,
    Guarantee,
    PriorSummary,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.fills import DelayDistribution
from botorch_bandits.confidence.ingredients import censored_width_rule
from botorch_bandits.confidence.theorems import ALL_QUERIES_ENTER
from botorch_bandits.confidence.width_rules import PLAIN_WIDTH, Assumed, Bound, check_scale
from botorch_bandits.models.censoring import (
    RINGING_TOLERANCE,
    DropInCensoring,
    output_signs,
)
from botorch_bandits.models.reading import (
    observed_outcomes,
    prior_means,
)


def drop_in_censoring(options: Mapping[str, Any]) -> DropInCensoring:
    """Return how to censor, according to a constructor's options.

    Args:
        options: All options, by their names in the constructor.
    """
    names = (field.name for field in fields(DropInCensoring))
    known = {name: options[name] for name in names if name in options}
    known["noise_bound"] = options["noise_bound"] if options["units"] == "outcome" else None
    return DropInCensoring(**known)


class CensorsPending(WidthAcquisition):
    """Sets pending points to the known minimum and computes the corresponding width."""

    rule: CensoredWidth
    _censoring: DropInCensoring
    pseudo_values: tuple[float, ...] | None
    """The value used as the minimum: one number per output, in raw units; None before there is a
    proxy for an unknown minimum."""
    filled_values: Tensor | None
    """The values that fill in pending queries, ``batch_shape x p x m`` in raw units; None if there
    are none, and with ``fill="minimum"``."""

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        minimum: Bound | None = None,
        minimum_proxy: float | None = None,
        outcome_bound: Bound | None = None,
        rkhs_bound: Bound | None = None,
        noise_bound: Bound | None = None,
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
        tolerance: float | None = None,
        ringing_tolerance: float | None = RINGING_TOLERANCE,
        fill: str = "minimum",
        delay_distribution: DelayDistribution | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    def _read_arguments(self, given: Mapping[str, Any]) -> None:
        super()._read_arguments(given)
        self._censoring = drop_in_censoring(given)
        self._signs = output_signs(self.base_model, self.posterior_transform, self.maximize)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """Check the options; there is no rule on arms."""
        cls.width_rule(options)
        drop_in_censoring(options)
        check_scale(options["scale"])
        return None

    def _censor(self, X_pending: Tensor | None) -> Tensor:
        """Replace the model with the censored one, and return the scaled width."""
        base_model, censoring, signs = self.base_model, self._censoring, self._signs
        pending = copy_pending(X_pending, base_model)
        values = censoring.pseudo_values(base_model, signs, pending)
        model = with_ordinary_noise = base_model
        filled = shares = None
        if pending is not None and values is not None:
            if censoring.fills_in:
                filled, shares = censoring.fill_in(base_model, pending, values, signs)
            at = values if filled is None else filled
            model = with_ordinary_noise = censoring.censor(base_model, pending, at)
            if censoring.pseudo_noise > 0.0:  # the width counts pseudo-rows like others
                with_ordinary_noise = censoring.censor(base_model, pending, at, with_noise=False)
        summary = PriorSummary(with_ordinary_noise, self.posterior_transform, self.assume)
        sums = censoring.deviation_sums(base_model, model, pending, shares)
        width = self.scale * replace(self.rule, deviation_sums=sums).width(summary, 1)
        if pending is not None and values is not None:
            of_reward = self.posterior_transform, self.maximize
            censoring.warn_of_ringing(base_model, model, pending, values, *of_reward)
        # no error can follow, so nothing is left half done
        self.model, self.pseudo_values = model, values
        self.filled_values, self._summary = filled, summary
        AcquisitionFunction.set_X_pending(self, pending)
        return width

    def _facts(self, facts: Facts) -> Facts:
        pending_as = "noisy" if self._censoring.pseudo_noise > 0.0 else ""
        return replace(super()._facts(facts), pending_as=pending_as)

    def _censored_guarantee(self, facts: Facts) -> Guarantee:
        """Return the guarantee of the width, if the user does what a loop would do.

        Args:
            facts: What is known of its use, with the facts of this acquisition function.
        """
        censoring, values = self._censoring, self.pseudo_values or ()
        outcomes = observed_outcomes(self.base_model)
        is_one_sided = self.rule.bounded_outcomes or not censoring.fills_in
        # fills have a gap of their own
        if outcomes is not None and censoring.minimum is not None and is_one_sided:
            below, farthest = censoring.below(values, self._signs, outcomes)
            facts = replace(facts, num_below=below, farthest_below=farthest)
        given = values, prior_means(self.base_model), outcomes, censoring.units, self._signs
        rule = replace(self.rule, gaps=lambda facts: censoring.gaps(*given, facts))
        guarantee = rule.guarantee(self._summary, 1, facts)
        if guarantee.theorem is None:
            return guarantee
        return guarantee.with_assumptions(facts.say(ALL_QUERIES_ENTER))


class CensoredUpperConfidenceBound(CensorsPending, WidthUpperConfidenceBound):
    r"""GP-UCB-SDF (Verma, Dai and Low 2022): pending queries enter at the known minimum.

    .. math::
       a_t(x) = \mu_{t-1}(x) + \nu_t \sigma_{t-1}(x), \qquad
       \nu_t = B_y \sum_s \sigma_{t-1}(x_s) + B
               + (R + B_y) \sqrt{2 (\gamma_{t-1} + 1 + \ln(2/\delta))}

    The mean, deviations and information gain come from the model with the pending rows. Every
    :meth:`set_X_pending` starts again from the user's model, which is never changed, so
    ``optimize_acqf(q=5, sequential=True)`` is batch optimization with censoring. A query that has
    been given up either stays in ``X_pending`` or becomes a row of the model with the minimum as
    its outcome. The forms for every ``lam`` are in :mod:`botorch_bandits.confidence.censored`.

    With learned hyperparameters, the posterior often rings: see :class:`RingingWarning` and the
    page on delayed feedback. Hallucination (:class:`~botorch_bandits.ImprovedUpperConfidenceBound`
    with ``X_pending``) is then the better choice.

    Args:
        model: A fitted BoTorch model in float64, conditioned on the outcomes that have arrived.
        minimum: The smallest possible outcome, in raw outcome units. If smaller is better
            (``maximize=False``, or an output with a negative weight), the LARGEST possible outcome.
            One number for all outputs, or one per output.
        minimum_proxy: For an unknown minimum: the factor ``w`` of the proxy ``min(mean - w * sd)``
            over observed points (over pending points if there are no observed ones), recomputed
            from each model. Not covered by the theorem.
        outcome_bound: ``B_y``, with ``|y - minimum| <= B_y``. One number, or one per output.
            Required if ``rkhs_bound`` is given; otherwise, if it is omitted, the width lacks the
            terms that depend on it.
        rkhs_bound: ``B``, a bound on the norm of ``f - minimum`` in the unit-variance kernel. If
            both this and ``noise_bound`` are omitted, 1 prior standard deviation is used, which no
            theorem covers.
        noise_bound: ``R``; not used with ``bounded_outcomes``. If both this and ``rkhs_bound`` are
            omitted, the standard deviation of the model's noise is used.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form that holds for every ``lam``. The printed form needs ``lam >= 1``.
        bounded_outcomes: Use the tighter form for ``y - minimum`` in ``[0, B_y]``, for every
            ``lam``.
        window: With ``"pending"``, the sum is over pending queries. With ``"all"``, it is over the
            last ``max_delay`` queries, as printed; pending queries count as later than the model's
            rows.
        max_delay: ``m`` in rounds. Pending points must then be in the order of issue. With None, no
            query is ever given up.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation.
        width: A constant that replaces everything but the sum (the paper's ``beta_t``); the sum is
            kept if ``outcome_bound`` is given.
        scale: A factor on the width.
        pseudo_noise: A number added to the noise variance of pending rows, in squared outcome units
            or, with ``units="prior"``, in prior variances. It prevents ringing but is not covered
            by the theorem.
        on_lower: What to do with an observed outcome far below the minimum. ``"error"`` raises an
            error; with ``"lower"``, the outcome becomes the minimum, with a
            :class:`MinimumLoweredWarning`.
        tolerance: How far noise can push an outcome below the minimum, in raw outcome units; such
            an outcome is used unchanged, with a :class:`BelowMinimumWarning`. If None, it is four
            times ``noise_bound``, or without that a twentieth of ``outcome_bound``, or a quarter of
            the height of the largest of ten outcomes above the minimum.
        ringing_tolerance: Warn if pending rows raise the posterior's maximum by more than this
            share of its height above the minimum. If None, this is not checked.
        fill: The value at which pending points enter: ``"minimum"``, ``"middle"`` (half-way to
            ``minimum + outcome_bound``), ``"soft"`` (the posterior mean of ``model``, weighted by
            the probability that the outcome will still arrive in time) or ``"lower_bound"`` (its
            mean minus one standard deviation), clipped to the range from ``minimum`` to
            ``minimum + outcome_bound``; see :mod:`botorch_bandits.confidence.fills`. All but the
            first need ``outcome_bound``, and noisy outcomes within this range. Queries that were
            given up should stay at the front of ``X_pending`` rather than become rows of ``model``:
            they are set to the minimum as soon as they are ``max_delay`` rounds old.
        delay_distribution: For ``fill="soft"``: the probabilities of delays 0, 1, 2, ... in
            rounds, or a cumulative distribution function. Pending points are assumed to be in the
            order of issue, one per round.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        assume: See :class:`WidthUpperConfidenceBound`; the norm is always that of ``f - minimum``.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If an ingredient is missing or infeasible, an outcome is below the minimum, or
            the model's prior is needed but cannot be read.
        UnsupportedError: If the model has an outcome transform that is not affine, or points are
            pending and it cannot be conditioned on them.

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

    defines_rule = True

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> CensoredWidth:
        delta = check_probability("delta", options["delta"])
        return censored_width_rule(cls.__name__, options, delta)

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
        self._set_width(self._censor(X_pending))

    def _evaluate(self, X: Tensor) -> Tensor:
        if X.shape[-2] == 1:
            return super()._evaluate(X)
        if X.requires_grad:
            raise UnsupportedError(
                "pending points enter the model, so q > 1 points have a value but no gradient. Ask "
                "for one point at a time (sequential=True in optimize_acqf)."
            )
        pending, values = self.X_pending, []
        known = X.new_empty(0, X.shape[-1]) if pending is None else pending
        try:
            for points in X.reshape(-1, *X.shape[-2:]):  # q x d
                for i, point in enumerate(points.split(1)):
                    self.set_X_pending(torch.cat([known, points[:i]]))
                    values.append(self(point))
        finally:
            self.set_X_pending(pending)
        return torch.cat(values).reshape(X.shape[:-1]).sum(-1).reshape(X.shape[:-2] or (1,))

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this bound with this model, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        return self._censored_guarantee(self._facts(facts))


class CensoredThompsonSampling(CensorsPending, GPThompsonSampling):
    r"""GP-TS-SDF (Verma, Dai and Low 2022): a draw from the censored posterior, scaled by ``nu_t``.

    .. math:: f_t \sim GP(\mu_{t-1}, \nu_t^2 k_{t-1})

    with ``delta / 2`` in place of ``delta`` in the width: the printed form has ``ln(4/delta)``.
    Each call of :meth:`set_X_pending` censors these points, starting from the user's model, and
    makes a new draw.

    Args:
        model: See :class:`~botorch_bandits.CensoredUpperConfidenceBound`.
        minimum: See there.
        minimum_proxy: See there.
        outcome_bound: See there.
        rkhs_bound: See there; if both this and ``noise_bound`` are omitted, the scale is 1, plus
            the sum.
        noise_bound: See there.
        delta: The confidence bound fails with at most half of this probability.
        any_lambda: See there.
        bounded_outcomes: See there.
        window: See there.
        max_delay: See there.
        units: See there.
        width: See there; 1 without ``outcome_bound`` gives plain Thompson sampling from the
            censored posterior.
        scale: A factor on the scale of the draw.
        pseudo_noise: See there.
        on_lower: See there.
        tolerance: See there.
        ringing_tolerance: See there.
        fill: See there.
        delay_distribution: See there.
        choices: ``num_points x d`` points for exact draws; only these points can then be evaluated.
        posterior_transform: See there.
        maximize: See there; when minimizing, the value is minus the value of the draw.
        assume: See there.
        X_pending: See there.
        seed: See :class:`~botorch_bandits.GPThompsonSampling`.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If an ingredient is missing or infeasible, or an outcome is below the minimum.
        UnsupportedError: If the model has an outcome transform that is not affine, or cannot be
            conditioned or drawn from.

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

    defines_rule = True

    def __init__(
        self,
        model: Model,
        *,
        choices: Tensor | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """See the class, which names the ``options``."""
        others = {"X_pending": None, **default_options(CensoredThompsonSampling)}
        self._initialize({**others, **locals(), **options})

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> CensoredWidth:
        """Return the rule of the scale of the draw.

        Args:
            options: Constructor arguments by name, at least all that the scale depends on.

        Raises:
            ValueError: If an ingredient is missing or infeasible.
        """
        # the other half of delta is for the draws
        delta = check_probability("delta", options["delta"]) / 2.0
        return censored_width_rule(cls.__name__, options, delta, PLAIN_WIDTH)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Censor these points, starting again from the user's model, and draw again.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        width = self._censor(X_pending)
        self.width = width.to(next(self.base_model.parameters(), width).device)
        self._begin_draw()

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this draw with this model, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        facts = replace(self._facts(facts), draws=True, **drawn_on(self))
        return self._censored_guarantee(facts)
