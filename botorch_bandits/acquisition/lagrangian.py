r"""A penalized reward on a model of reward and constraints: upper bound and Thompson sampling.

.. math:: F(x) = f(x) - \sum_j \kappa_j (\psi(g_j(x)) - 1), \qquad g_j(x) \le 0 \text{ is feasible}

The bound is optimistic in ``f`` and in each ``g_j``; Thompson sampling replaces all of them with
one joint draw.

Sources: Shi and Eryilmaz 2022, for the penalized reward and, in Remark 1, GP-TS instead of IGP-UCB
in Algorithm 2 (Remark 2: not in Algorithm 3); Zhou and Ji 2022, for separate, clipped bounds on
``f`` and each ``g_j`` (a form that was not compared with
that paper).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.exceptions.errors import UnsupportedError
from botorch.models import ModelListGP
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from botorch.utils.transforms import (
    average_over_ensemble_models,
    is_ensemble,
    t_batch_mode_transform,
)
from torch import Tensor

from botorch_bandits.acquisition.affine_outcomes import AffineOutcomes
from botorch_bandits.acquisition.base import (
    BanditAcquisition,
    HallucinatesPending,
    check_model,
    check_points,
    check_single_point,
    copy_pending,
    of_acquisition,
)
from botorch_bandits.acquisition.draws import SeededDraw
from botorch_bandits.acquisition.output_widths import (
    OutputWidths,
    check_lagrangian_options,
    check_num_outputs,
    check_outputs,
    of_minus_the_reward,
)
from botorch_bandits.acquisition.rules import ArmsRule
from botorch_bandits.acquisition.scores import (
    Bounds,
    half_width,
    prior_variances,
    scale_in_outcomes,
    score,
)
from botorch_bandits.acquisition.wide_confidence import WarnsOfWideness
from botorch_bandits.checks import check_one_of, check_positive, check_probability
from botorch_bandits.confidence import (
    GainBound,
    Guarantee,
    PriorSummary,
    WidthRule,
)
from botorch_bandits.confidence.guarantee import at_posterior_mean, outcomes_pending
from botorch_bandits.confidence.width_rules import MINIMUM_VARIANCE, PLAIN_WIDTH
from botorch_bandits.domains import Arms, ValueScale
from botorch_bandits.models.reading import check_outcomes, variance_of
from botorch_bandits.penalties import (
    Linear,
    Penalty,
    check_multipliers,
    check_no_overflow,
    check_penalty,
)


class LagrangianAcquisition(WarnsOfWideness, BanditAcquisition):
    """Base class with multipliers, a penalty and a width for each output of the model."""

    multipliers: Tensor
    widths: Tensor
    penalty: Penalty
    delta: float
    maximize: bool
    reward_bound: float | None = None
    constraint_bound: float | None = None
    posterior_transform: PosteriorTransform | None
    _output_widths: OutputWidths

    def _prepare_outputs(
        self, model: Model, given: Mapping[str, Any], of_widths: Mapping[str, Any]
    ) -> None:
        """Store the arguments of the constructor and the options of the widths."""
        name, transform = type(self).__name__, given["posterior_transform"]
        self.penalty = Linear() if given["penalty"] is None else check_penalty(given["penalty"])
        self.posterior_transform = transform
        here = next(model.parameters(), torch.empty(0)).device
        self.register_buffer("multipliers", check_multipliers(given["multipliers"]).to(here))
        num_outputs = 1 + len(self.multipliers)
        check_outputs(name, model, num_outputs, transform)
        self._output_widths = OutputWidths(
            name, model, num_outputs, transform, given["scale"], of_widths
        )
        self.register_buffer("widths", self._output_widths.compute().to(here))

    @property
    def num_constraints(self) -> int:
        """The number of constraints."""
        return len(self.multipliers)

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        return self._output_widths.rules

    @property
    def value_scale(self) -> ValueScale | None:
        """The scale of the reward, the first output: its prior deviations from its prior mean."""
        return scale_in_outcomes(self._output_widths.summaries[0], self._sign)

    def _prior_variances(self) -> Tensor:
        return self.widths.new_tensor(prior_variances(self._output_widths.summaries))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        for summary in self._output_widths.summaries:
            summary.forget()

    def _widths_of_outputs(self) -> Iterator[tuple[str, Tensor, PriorSummary]]:
        for j, summary in enumerate(self._output_widths.summaries):
            if j == 0 or float(self.multipliers[j - 1]) > 0.0:
                name = f" of constraint {j}" if j else " of the reward"
                yield name, self.widths[..., j], summary

    def _values_and_optimism(self, X: Tensor) -> tuple[Tensor, Tensor]:
        mean, sigma = self._moments(X)
        half = half_width(sigma, self.widths)
        reward = self._sign * mean[..., 0]
        values = self._penalized(reward + half[..., 0], mean[..., 1:] - half[..., 1:])
        return values, values - self._penalized(reward, mean[..., 1:])

    def known_at(self, X: Tensor) -> Bounds:
        mean, deviation = self._moments(X.unsqueeze(-2))
        return Bounds.of_outputs(mean, deviation, half_width(deviation, self.widths))

    def _compute_widths(self) -> None:
        self.widths = self._output_widths.compute().to(self.widths.device)

    def set_rules(self, rules: Sequence[WidthRule]) -> None:
        """Set another width rule for each output; a draw keeps its random numbers.

        Args:
            rules: The ``1 + num_constraints`` rules that compute the widths from now on.
        """
        self._output_widths.rules = tuple(rules)
        self._compute_widths()
        self.warn_if_wide()

    def _base_guarantee(self, method: str) -> Guarantee:
        """Return what the widths of all outputs guarantee together."""
        guarantee = self._output_widths.guarantee(method, self.delta)
        if not self.maximize:
            guarantee = of_minus_the_reward(guarantee)
        guarantee = of_acquisition(self, guarantee)
        if isinstance(self.posterior_transform, AffineOutcomes | None):
            return guarantee
        return guarantee.with_gaps("posterior_transform changes what is modeled")

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return the moments of the reward and the lower bounds of the constraints at one point.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        with torch.no_grad():
            value = self(x.unsqueeze(0))
            mean, sigma = self._moments(x.unsqueeze(0))
            lower = self._bounds(mean, sigma)[1]
        known = {
            "mean": float(mean[..., 0].mean()),
            "standard_deviation": float(sigma[..., 0].mean()),
            "width": float(self.widths[..., 0].mean()),
            "acquisition_value": float(value),
        }
        for j in range(self.num_constraints):
            known[f"constraint_mean_{j + 1}"] = float(mean[..., j + 1].mean())
            known[f"constraint_lower_bound_{j + 1}"] = float(lower[..., j].mean())
        return known

    def _posterior(self, X: Tensor) -> Posterior:
        posterior = self.model.posterior(X, posterior_transform=self.posterior_transform)
        check_num_outputs(type(self).__name__, posterior.mean.shape[-1], 1 + self.num_constraints)
        return posterior

    @property
    def _has_independent_outputs(self) -> bool:
        """Whether the model is a list of one model per output, whose posteriors need no merging."""
        return (
            isinstance(self.model, ModelListGP)
            and self.posterior_transform is None
            and len(self.model.models) == self.model.num_outputs
        )

    def _independent_moments(self, X: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and variances of independent outputs, ``batch_shape x num_outputs``."""
        each = [model.posterior(X) for model in self.model.models]  # ``batch_shape x 1 x 1``
        means = [posterior.mean.squeeze(-2) for posterior in each]
        variances = [
            variance_of(posterior, unit).reshape(mean.shape)
            for posterior, unit, mean in zip(each, units, means, strict=True)
        ]
        return torch.cat(means, dim=-1), torch.cat(variances, dim=-1)

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations, ``batch_shape x num_outputs`` each."""
        units = self._prior_variances()
        if self._has_independent_outputs:
            mean, variance = self._independent_moments(X, units)
        else:
            posterior = self._posterior(X)
            mean = posterior.mean.squeeze(-2)
            variance = variance_of(posterior, units).reshape(mean.shape)
        return mean, torch.maximum(variance, MINIMUM_VARIANCE * units).sqrt()

    def _bounds(self, mean: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Return the upper bound of what is maximized and the lower ones of the constraints."""
        half = half_width(sigma, self.widths)
        upper = score(mean[..., 0], half[..., 0], self._sign)
        lower = -score(mean[..., 1:], half[..., 1:], -1.0)
        if self.reward_bound is not None:
            upper = upper.clamp(-self.reward_bound, self.reward_bound)
        if self.constraint_bound is not None:
            lower = lower.clamp(-self.constraint_bound, self.constraint_bound)
        return upper, lower

    def _penalized(self, reward: Tensor, constraints: Tensor) -> Tensor:
        """Return ``f - sum_j kappa_j (psi(g_j) - 1)``.

        Args:
            reward: ``batch_shape`` values ``f``.
            constraints: ``batch_shape x num_constraints`` values ``g``.
        """
        return penalized(reward, constraints, self.multipliers, self.penalty)


def penalized(reward: Tensor, constraints: Tensor, multipliers: Tensor, penalty: Penalty) -> Tensor:
    """Return ``f - sum_j kappa_j (psi(g_j) - 1)``.

    Args:
        reward: ``batch_shape`` values ``f``.
        constraints: ``batch_shape x num_constraints`` values ``g``.
        multipliers: ``num_constraints``.
        penalty: ``psi``.
    """
    return reward - (multipliers * penalty.excess(constraints)).sum(dim=-1)


def combined_width(widths: Tensor, multipliers: Tensor, is_one_number: bool) -> Tensor:
    """Return the factor on the standard deviation of a weighted sum of outputs.

    Args:
        widths: ``batch_shape x num_outputs``.
        multipliers: ``num_constraints``; those that are 0 add nothing.
        is_one_number: Whether the user gave one constant width, which is used unchanged.
    """
    if is_one_number:
        return widths[..., 0]
    active = torch.cat([multipliers.new_ones(1), (multipliers > 0.0).double()])
    return (active * widths.square()).sum(dim=-1).sqrt()


class LagrangianUpperConfidenceBound(LagrangianAcquisition, HallucinatesPending):
    r"""Upper confidence bound of ``f - sum_j kappa_j (psi(g_j) - 1)``.

    The model's first output is the reward ``f``, the others are the constraints ``g_j``; as in
    BoTorch, ``g_j <= 0`` is feasible. Two forms:

    * Linear penalty: the exact scalarization with weights ``(1, -kappa)``. Its variance accounts
      for the correlations between outputs. Its width is ``sqrt(w_0^2 + sum of w_j^2)`` over the
      constraints with ``kappa_j > 0``, which suffices for independent outputs (Cauchy-Schwarz).
    * Other penalties, ``separate_bounds=True`` or clipping: the optimistic plug-in bound

      .. math:: \mu_0 + w_0 \sigma_0 - \sum_j \kappa_j (\psi(\mu_j - w_j \sigma_j) - 1).

      It is a valid bound whenever the bounds on all outputs are valid, because ``psi`` never
      decreases.

    Widths are those of IGP-UCB with ``delta / (1 + number of constraints)`` for each output, valid
    for all multipliers at once. With one constant ``width`` for all outputs, the scalarization uses
    that number itself.

    Args:
        model: A fitted BoTorch model in float64 with ``1 + num_constraints`` outputs, or a
            ``ModelListGP``.
        multipliers: ``kappa``, one nonnegative number for each constraint. In a loop, they come
            from the multiplier rule in use.
        penalty: The penalty for a violation; see :mod:`botorch_bandits.penalties`.
        rkhs_bound: ``B``; one number, or one per output. See
            :class:`~botorch_bandits.ImprovedUpperConfidenceBound`, also for the defaults of omitted
            bounds.
        noise_bound: ``R`` of R-sub-Gaussian noise; one number, or one per output. ``"model"``: see
            :class:`~botorch_bandits.ImprovedUpperConfidenceBound`.
        delta: All bounds together fail with at most this probability.
        any_lambda: Use the form of the width that holds for every ``lam``.
        information_gain: An explicit gain for each output instead of the realized one.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            prior standard deviation of the model.
        width: A constant width instead of the one above; one number, or one per output.
        scale: A factor on every width.
        separate_bounds: Use the plug-in bound for the linear penalty as well.
        reward_bound: Clip the upper bound on ``f`` to plus and minus this number (for per-round
            multipliers). Gradients are zero where it is clipped.
        constraint_bound: Clip the lower bound on each ``g_j`` to plus and minus this number.
        posterior_transform: A transform applied to the posterior first; it must return
            ``1 + num_constraints`` outputs. :class:`~botorch_bandits.acquisition.AffineOutcomes`
            computes them from metrics in another order, sign or scale. The prior cannot be read
            through any other transform: in that case, give ``width`` or ``information_gain``.
        maximize: If False, the reward is minimized: ``-f`` replaces ``f``.
        assume: The assumptions that you vouch for, for every output; see
            :class:`~botorch_bandits.WidthUpperConfidenceBound`.
        X_pending: ``n x d`` points whose outcomes have not arrived. They enter a copy of the model
            at the posterior mean, while the widths use the gain of the observed data.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If the number of outputs is wrong or an ingredient is infeasible.
        UnsupportedError: If points are pending and the model cannot be conditioned, or the
            posterior transform returns only one output.

    Example:
        >>> import torch
        >>> from botorch.models import ModelListGP
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> build = FittedSingleTaskGP([[0.0], [1.0]])
        >>> model = ModelListGP(build(X, X.sin()), build(X, X - 0.5))
        >>> acqf = LagrangianUpperConfidenceBound(model, multipliers=[2.0])
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        multipliers: Tensor | Sequence[float],
        penalty: Penalty | None = None,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | str | tuple[float | str, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        width: float | tuple[float, ...] | None = None,
        scale: float = 1.0,
        separate_bounds: bool = False,
        reward_bound: float | None = None,
        constraint_bound: float | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        given = dict(locals())
        super().__init__(check_model(model))
        self.base_model = model
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self.delta = check_probability("delta", delta)
        self.separate_bounds = check_one_of("separate_bounds", separate_bounds, (True, False))
        self.reward_bound = _check_clip("reward_bound", reward_bound)
        self.constraint_bound = _check_clip("constraint_bound", constraint_bound)
        self._prepare_outputs(model, given, given)
        check_outcomes(type(self).__name__, model, "gaussian" if self.is_scalarized else "moments")
        self.set_X_pending(X_pending)
        self.warn_if_wide()

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """Check the options; there is no rule on arms."""
        check_lagrangian_options(cls.__name__, options)
        for name in ("reward_bound", "constraint_bound"):
            _check_clip(name, options[name])
        return None

    @property
    def is_scalarized(self) -> bool:
        """Whether the value is the exact bound of one weighted sum of the outputs."""
        clips = self.reward_bound is not None or self.constraint_bound is not None
        return self.penalty.is_linear and not self.separate_bounds and not clips

    @property
    def width(self) -> Tensor:
        """The factor on the standard deviation of the weighted sum, in the model's batch shape."""
        return combined_width(self.widths, self.multipliers, self._output_widths.is_one_number)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If the model cannot be conditioned.
        """
        super().set_X_pending(X_pending)
        self._compute_widths()

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is the sum of
                their bounds, each computed as if the points before it were pending.

        Returns:
            ``batch_shape`` values.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If the value needs a joint posterior of several outputs, or of
                ``q > 1`` points, that the model does not provide.
            OverflowError: If a penalty is too large for float64.
        """
        return check_no_overflow(self._value(X))

    def constraint_lower_bounds(self, X: Tensor) -> Tensor:
        """Return the lower confidence bounds of the constraints, clipped if that was requested.

        They drive per-round multipliers, and show whether a constraint can be met at all.

        Args:
            X: ``batch_shape x 1 x d`` points, float64; the model must not be a batch or an
                ensemble.

        Returns:
            ``batch_shape x num_constraints``.
        """
        check_single_point(self, X)
        mean, sigma = self._moments(X)
        return self._bounds(mean, sigma)[1]

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers the bounds with this model, or why none does."""
        form = "as one weighted sum of outputs" if self.is_scalarized else "output by output"
        guarantee = self._base_guarantee(
            f"the upper confidence bound of the penalized reward ({form})"
        )
        if self.reward_bound is not None or self.constraint_bound is not None:
            clipped = "reward and constraints lie within the limits at which bounds are clipped"
            guarantee = guarantee.with_assumptions(clipped)
        if self.X_pending is not None:
            guarantee = guarantee.with_gaps(at_posterior_mean(len(self.X_pending)))
        return guarantee

    @t_batch_mode_transform(expected_q=1)
    @average_over_ensemble_models
    def _evaluate(self, X: Tensor) -> Tensor:
        if self.is_scalarized:
            return self._scalarized(X)
        return self._penalized(*self._bounds(*self._moments(X)))

    def _scalarized(self, X: Tensor) -> Tensor:
        """Return the bound of one weighted sum of the outputs."""
        weights = torch.cat([self.multipliers.new_tensor([self._sign]), -self.multipliers])
        units = self._prior_variances()
        unit = float(weights.square() @ units)
        if self._has_independent_outputs:
            mean, variance = self._independent_moments(X, units)
            mean, variance = mean @ weights, variance @ weights.square()
        else:
            scalar = ScalarizedPosteriorTransform(weights)(self._joint_posterior(X))
            mean = scalar.mean.squeeze(-1).squeeze(-1)
            variance = variance_of(scalar, unit).reshape(mean.shape)
        deviation = variance.clamp_min(MINIMUM_VARIANCE * unit).sqrt()
        return score(mean, half_width(deviation, self.width))

    def _joint_posterior(self, X: Tensor) -> GPyTorchPosterior:
        posterior = self._posterior(X)
        # a Kronecker model's posterior holds only variances, from which the sum's would be wrong
        if not isinstance(posterior, GPyTorchPosterior) or isinstance(
            posterior, MultitaskGPPosterior
        ):
            raise UnsupportedError(
                "a weighted sum of outputs needs their joint Gaussian posterior, got "
                f"{type(posterior).__name__} of {type(self.model).__name__}. Pass "
                "separate_bounds=True (for correlated outputs, MultiTaskGP provides it)."
            )
        return posterior


def _check_clip(name: str, bound: float | None) -> float | None:
    return None if bound is None else check_positive(name, bound)


class LagrangianThompsonSampling(LagrangianAcquisition, SeededDraw):
    r"""One joint draw of reward and constraints, scored by ``f - sum_j kappa_j (psi(g_j) - 1)``.

    The draw of each output is scaled about its mean by its own width. The same draw is used in
    every evaluation until :meth:`set_X_pending` is called: each pending set has its own draw.

    Args:
        model: A fitted BoTorch model in float64 with ``1 + num_constraints`` outputs (the reward
            first), or a ``ModelListGP``. Batches of models and ensembles are not supported.
        multipliers: ``kappa``, one nonnegative number for each constraint.
        penalty: The penalty for a violation.
        rkhs_bound: See :class:`LagrangianUpperConfidenceBound`; if no bound is given, every scale
            is 1.
        noise_bound: See there.
        delta: The failure probability. As in GP-TS, half of it is for the confidence bounds and
            half for the draws.
        any_lambda: See there.
        information_gain: See there.
        units: See there.
        width: A constant scale; one number, or one per output. 1 is plain Thompson sampling.
        scale: A factor on every scale.
        choices: ``num_points x d`` points for exact draws; only these points can then be evaluated.
            In a loop on arms, they are the arms. Without choices, the draw is pathwise.
        posterior_transform: See :class:`LagrangianUpperConfidenceBound`; transforms other than
            ``AffineOutcomes`` need ``choices``.
        maximize: See there.
        assume: See there.
        X_pending: ``n x d`` points whose outcomes have not arrived. They do not enter the model,
            but each set of them leads to a new draw.
        seed: Makes the draws reproducible; taken from torch's global generator if omitted.

    Raises:
        TypeError: If the model, ``choices`` or ``X_pending`` is not float64.
        ValueError: If the number of outputs is wrong or an ingredient is infeasible.
        UnsupportedError: If the model is a batch or an ensemble, its posterior is not Gaussian, or
            BoTorch has no pathwise draws of its correlated outputs (in that case, pass
            ``choices``).

    Example:
        >>> import torch
        >>> from botorch.models import ModelListGP
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> build = FittedSingleTaskGP([[0.0], [1.0]])
        >>> model = ModelListGP(build(X, X.sin()), build(X, X - 0.5))
        >>> acqf = LagrangianThompsonSampling(model, multipliers=[2.0], seed=0)
        >>> bool((acqf(X.unsqueeze(-2)) == acqf(X.unsqueeze(-2))).all())
        True
    """

    stream = "lagrangian thompson"

    defines_rule: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        multipliers: Tensor | Sequence[float],
        penalty: Penalty | None = None,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | str | tuple[float | str, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        width: float | tuple[float, ...] | None = None,
        scale: float = 1.0,
        choices: Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        """See the class."""
        given = dict(locals())
        super().__init__(check_model(model))
        if is_ensemble(model) or len(model.batch_shape) > 0:
            raise UnsupportedError(
                f"{type(self).__name__} draws from one model, got {type(model).__name__} with "
                f"batch shape {tuple(model.batch_shape)}. Use LagrangianUpperConfidenceBound."
            )
        if not isinstance(posterior_transform, AffineOutcomes | None) and choices is None:
            raise UnsupportedError("a pathwise draw takes no posterior_transform; pass choices=.")
        self.maximize = check_one_of("maximize", maximize, (True, False))
        self.delta = check_probability("delta", delta)
        self._prepare_outputs(model, given, self.options_of_widths(given))
        self._prepare_draws(choices, seed)
        is_plain = choices is None and self._output_widths.are_one
        check_outcomes(type(self).__name__, model, "draws" if is_plain else "gaussian")
        self.set_X_pending(X_pending)
        self.warn_if_wide()

    @classmethod
    def wanted_from_domain(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return ("choices",)

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """Check the options; there is no rule on arms."""
        check_lagrangian_options(cls.__name__, options)
        if options["choices"] is not None:
            Arms(options["choices"])
        return None

    @staticmethod
    def options_of_widths(options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options for the widths: half of ``delta`` is for the draws.

        Args:
            options: The options of the constructor.
        """
        return {**options, "delta": options["delta"] / 2, "default_width": PLAIN_WIDTH}

    def set_rules(self, rules: Sequence[WidthRule]) -> None:
        """See the base class."""
        check_outcomes(type(self).__name__, self.model, "gaussian")
        super().set_rules(rules)

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points and draw again.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
        """
        AcquisitionFunction.set_X_pending(self, copy_pending(X_pending, self.model))
        self._compute_widths()
        self._begin_draw()

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the score of the draw.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is a sum over
                draws: each point has its own draw.

        Returns:
            ``batch_shape`` scores.

        Raises:
            TypeError: If ``X`` is not float64.
            OverflowError: If a penalty is too large for float64.
        """
        check_points(self, X)
        parts = X.split(1, dim=-2) if X.shape[-2] else (X,)
        return torch.stack([self._score(part, ahead) for ahead, part in enumerate(parts)]).sum(0)

    def _score(self, X: Tensor, ahead: int) -> Tensor:
        drawn = self.draw(X, ahead)
        return check_no_overflow(self._penalized(self._sign * drawn[..., 0], drawn[..., 1:]))

    def draw(self, X: Tensor, ahead: int = 0) -> Tensor:
        """Evaluate the draw of every output.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.
            ahead: The number of further draws after the present one.

        Returns:
            ``batch_shape x (1 + num_constraints)`` values, the reward's first.

        Raises:
            TypeError: If ``X`` is not float64.
            UnsupportedError: If points are to be evaluated jointly (``q > 1``).
        """
        check_single_point(self, X)
        drawn = self._scaled(X if X.dim() > 2 else X.unsqueeze(0), self.widths, ahead).squeeze(-2)
        check_num_outputs(type(self).__name__, drawn.shape[-1], 1 + self.num_constraints)
        return drawn

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this draw, or why none does."""
        guarantee = self._base_guarantee("Thompson sampling of a penalized reward")
        if guarantee.theorem is not None:
            # Remark 1 draws the penalized reward; separate draws of f and g are another method
            guarantee = guarantee.with_gaps(
                "no theorem bounds the regret of joint draws of reward and constraints", of="regret"
            )
        if self.X_pending is not None:
            guarantee = guarantee.with_gaps(outcomes_pending(len(self.X_pending)))
        return guarantee

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return moments of the reward, and means, draws and lower bounds of the constraints.

        Args:
            x: A ``d``-dimensional point.
        """
        known = super().describe(x)
        with torch.no_grad():
            drawn = self.draw(x.unsqueeze(0)).reshape(-1).tolist()
        draws = {f"constraint_draw_{j}": drawn[j] for j in range(1, len(drawn))}
        return {**known, **draws}
