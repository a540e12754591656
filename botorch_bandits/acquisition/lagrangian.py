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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
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

from botorch_bandits.acquisition.base import (
    BanditAcquisition,
    HallucinatesPending,
    check_model,
    check_points,
    kernelized_rule,
    of_acquisition,
)
from botorch_bandits.acquisition.draws import SeededDraw
from botorch_bandits.acquisition.rules import ArmsRule, LagrangianArmsRule
from botorch_bandits.acquisition.scores import (
    Bounds,
    scale_in_outcomes,
    score,
    select_output,
)
from botorch_bandits.checks import (
    DTYPE,
    check_matrix,
    check_one_of,
    check_positive,
    check_probability,
    check_vector,
    counted,
)
from botorch_bandits.confidence import (
    GainBound,
    Guarantee,
    PriorSummary,
    RegretStatement,
    Statement,
    WidthRule,
)
from botorch_bandits.confidence.guarantee import at_posterior_mean, outcomes_pending
from botorch_bandits.confidence.width_rules import (
    PLAIN_WIDTH,
    WIDTH,
    check_assume,
    check_scale,
    fit_to_batch,
    pick_bound,
)
from botorch_bandits.domains import ValueScale
from botorch_bandits.models.reading import JointMoments, variance_of
from botorch_bandits.penalties import (
    Linear,
    Penalty,
    check_multipliers,
    check_no_overflow,
    check_penalty,
)


class AffineOutcomes(PosteriorTransform):
    r"""Turns ``m`` outputs into ``W y + c``; each row of ``W`` gives one new output.

    The Lagrangian acquisition functions expect the reward first, followed by constraints
    ``g_j <= 0``. To convert a model of raw metrics, put the objective's weights in the first row
    and ``A y - b`` in the others. The prior of each row can still be read, so widths from theorems
    still work.

    Args:
        weights: ``num_rows x m``, float64.
        offsets: ``num_rows``, float64; zeros if omitted.

    Raises:
        TypeError: If a tensor is not float64.
        ValueError: If a shape is wrong, a number is not finite, or a row of the weights has only
            zeros.

    Example:
        >>> from botorch.models import ModelListGP
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> build = FittedSingleTaskGP([[0.0], [1.0]])
        >>> model = ModelListGP(build(X, X.sin()), build(X, X.cos()))
        >>> weights = torch.tensor([[-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
        >>> model.posterior(X, posterior_transform=AffineOutcomes(weights)).mean.shape
        torch.Size([3, 2])
    """

    scalarize: bool = False
    weights: Tensor
    offsets: Tensor

    def __init__(self, weights: Tensor, offsets: Tensor | None = None) -> None:
        """See the class."""
        super().__init__()
        weights = check_matrix("weights", weights, None, "one new output per row")
        empty = (weights == 0.0).all(-1).nonzero()[:, 0].tolist()
        if empty or not len(weights):
            told = f"has only zeros in row {empty[0]}" if empty else "has no row"
            raise ValueError(f"weights {told}, but each row gives one new output. Leave it out.")
        zeros = torch.zeros(len(weights), dtype=DTYPE)
        offsets = check_vector("offsets", zeros if offsets is None else offsets, len(weights))
        self.register_buffer("weights", weights.detach().clone())
        self.register_buffer("offsets", offsets.detach().clone())

    def row(self, index: int) -> ScalarizedPosteriorTransform:
        """Return the transform that keeps only one of the new outputs.

        Args:
            index: The number of the row.
        """
        return ScalarizedPosteriorTransform(self.weights[index], float(self.offsets[index]))

    def evaluate(self, Y: Tensor, X: Tensor | None = None) -> Tensor:
        """Transform outcomes.

        Args:
            Y: ``... x m`` outcomes.
            X: Not used.

        Returns:
            ``... x num_rows``.
        """
        return Y @ self.weights.to(Y).mT + self.offsets.to(Y)

    def forward(self, posterior: Posterior, X: Tensor | None = None) -> GPyTorchPosterior:
        """Return the joint posterior of the new outputs.

        Args:
            posterior: Gaussian, at ``batch_shape x q`` points, with ``m`` outputs.
            X: Not used.

        Raises:
            UnsupportedError: If the posterior is not jointly Gaussian.
            ValueError: If it does not have ``m`` outputs.
        """
        moments = JointMoments.of(_joint(posterior), "the model")
        m, W = moments.mean.shape[-1], self.weights.to(moments.mean)
        if m != W.shape[-1]:
            raise ValueError(f"weights is for {W.shape[-1]} outputs, but the model has {m}.")
        # ``... x q x m x q x m`` to ``... x q x rows x q x rows``
        covariance = torch.einsum("ji,...piqk,lk->...pjql", W, moments.covariance, W)
        mean = self.evaluate(moments.mean)
        return JointMoments(mean, covariance, moments.is_mixture).posterior()


def _joint(posterior: Posterior) -> GPyTorchPosterior:
    """Return a posterior that holds the covariances of its outputs.

    Raises:
        UnsupportedError: If it does not.
    """
    # a Kronecker model's posterior holds only variances, from which those of sums would be wrong
    if isinstance(posterior, MultitaskGPPosterior) or not isinstance(posterior, GPyTorchPosterior):
        raise UnsupportedError(
            f"weighted sums of outputs need their joint Gaussian posterior, got "
            f"{type(posterior).__name__}. Use MultiTaskGP or a ModelListGP, without outcome "
            "transforms that are not affine, or pass separate_bounds=True."
        )
    return posterior


PER_OUTPUT = ("rkhs_bound", "noise_bound", "width")
"""Options that may be tuples with one entry per output."""


def output_rules(name: str, num_outputs: int, options: Mapping[str, Any]) -> tuple[WidthRule, ...]:
    """Return a width rule for each output, with an equal share of ``delta`` each.

    Each output always gets ``delta / num_outputs``, even if its multiplier is 0: the bounds then
    hold for all multipliers, and in all rounds, at once.

    Args:
        name: The name of the acquisition class, for error messages.
        num_outputs: The number of outputs, the reward and the constraints.
        options: Constructor arguments, at least those of :func:`kernelized_rule`.
    """
    delta = check_probability("delta", options["delta"]) / num_outputs
    return tuple(
        kernelized_rule(
            name,
            {
                **options,
                "delta": delta,
                **{key: pick_bound(key, options[key], j, num_outputs) for key in PER_OUTPUT},
            },
        )
        for j in range(num_outputs)
    )


def of_minus_the_reward(guarantee: Guarantee) -> Guarantee:
    """Return the guarantee for a penalized reward if the reward is minimized.

    Args:
        guarantee: The guarantee for maximization.
    """
    every, less = "the regret of every round", "less the lower confidence bound of the reward"
    plus = "plus the upper confidence bound of the reward"
    minimized = guarantee.with_wording(
        "regret", every, "the regret, of minus the reward, in every round"
    )
    return minimized.with_wording("regret", less, plus)


class LagrangianAcquisition(BanditAcquisition):
    """Base class with multipliers, a penalty and a width for each output of the model."""

    draws: ClassVar[bool] = False
    """Whether it is a draw, not a bound."""
    widths: Tensor
    delta: float
    posterior_transform: PosteriorTransform | None
    _settings: LagrangianArmsRule
    _affine: AffineOutcomes | None
    rules: tuple[WidthRule, ...]
    scale: float
    _summaries: tuple[PriorSummary, ...]

    def _prepare_outputs(self, model: Model, given: Mapping[str, Any]) -> None:
        """Store the arguments of the constructor, and compute the width of each output."""
        name, transform = type(self).__name__, given["posterior_transform"]
        self.base_model = model
        self._settings = settings = self._settings_of(given, given["multipliers"])
        self.maximize, self.rules, self.scale = settings.maximize, settings.rules, settings.scale
        self.delta = check_probability("delta", given["delta"])
        self.posterior_transform = transform
        here = next(model.parameters(), torch.empty(0)).device
        affine = self._affine = transform if isinstance(transform, AffineOutcomes) else None
        num_outputs = settings.num_outputs
        if transform is None:
            self._check_num_outputs(model.num_outputs)
        elif affine is not None:
            self._check_num_outputs(len(affine.weights))
        elif transform.scalarize:  # the first evaluation shows how many another one returns
            raise UnsupportedError(
                f"{name} weights the outputs by its multipliers itself; "
                f"{type(transform).__name__} leaves only one. Leave it out, or pass one with "
                "scalarize = False."
            )
        self._summaries = tuple(
            PriorSummary(
                model,
                affine.row(j) if affine else transform or select_output(j, num_outputs),
                check_assume(given["assume"]),
            )
            for j in range(num_outputs)
        )
        self.register_buffer("widths", self._widths().to(here))

    @staticmethod
    def options_of_widths(options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options for the widths.

        Args:
            options: The options of the constructor.
        """
        return options

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """Return the rule on arms; without multipliers, only check the options.

        In a loop, multipliers come from the multiplier rule in use.
        """
        if check_one_of("maximize", options["maximize"], (True, False)) is False:
            raise ValueError(
                f"{cls.__name__} has maximize=False, but a loop maximizes the reward under "
                "constraints. Pass maximize=False to the loop instead."
            )
        if options["multipliers"] is not None:
            return cls._settings_of(options, options["multipliers"])
        lengths = [len(options[key]) for key in PER_OUTPUT if isinstance(options[key], tuple)]
        cls._settings_of(options, [0.0] * (lengths[0] - 1 if lengths else 1))
        return None

    @classmethod
    def _settings_of(
        cls, options: Mapping[str, Any], multipliers: Tensor | Sequence[float]
    ) -> LagrangianArmsRule:
        """Return the checked options."""
        kappa, penalty, width = check_multipliers(multipliers), options["penalty"], options["width"]
        clips: dict[str, Any] = {
            clip: check_positive(clip, options[clip])
            for clip in ("reward_bound", "constraint_bound")
            if options.get(clip) is not None
        }
        separate = options.get("separate_bounds", False)
        return LagrangianArmsRule(
            output_rules(cls.__name__, 1 + len(kappa), cls.options_of_widths(options)),
            kappa,
            Linear() if penalty is None else check_penalty(penalty),
            cls.draws,
            check_scale(options["scale"]),
            check_one_of("maximize", options["maximize"], (True, False)),
            has_one_width=width is not None and not isinstance(width, tuple),
            separate_bounds=check_one_of("separate_bounds", separate, (True, False)),
            **clips,
        )

    @property
    def multipliers(self) -> Tensor:
        """``kappa``, one number for each constraint."""
        return self._settings.multipliers

    @property
    def num_constraints(self) -> int:
        """The number of constraints."""
        return len(self.multipliers)

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        return self.rules

    @property
    def value_scale(self) -> ValueScale | None:
        """The scale of the reward, the first output: its prior deviations from its prior mean."""
        return scale_in_outcomes(self._summaries[0], self._sign)

    def _forget(self) -> None:
        super()._forget()
        for summary in self._summaries:
            summary.forget()

    def known_at(self, X: Tensor) -> Bounds:
        mean, deviation = self._moments(self._posteriors(X.unsqueeze(-2)))
        return Bounds.of_outputs(mean, deviation, deviation * self.widths)

    def _widths(self) -> Tensor:
        """Return ``batch_shape x num_outputs`` widths, where ``batch_shape`` is the model's."""
        widths = [
            fit_to_batch(WIDTH, self.scale * rule.width(summary, 1), self.model.batch_shape)
            for rule, summary in zip(self.rules, self._summaries, strict=True)
        ]
        return torch.stack(torch.broadcast_tensors(*widths), dim=-1)

    def set_rules(self, rules: Sequence[WidthRule]) -> None:
        """Set another width rule for each output.

        Args:
            rules: The ``1 + num_constraints`` rules that compute the widths from now on.
        """
        self.rules = tuple(rules)
        self.widths = self._widths().to(self.widths.device)

    def _base_guarantee(self, method: str) -> Guarantee:
        """Return what the widths of all outputs guarantee together."""
        each = [
            rule.guarantee(summary, 1)
            for rule, summary in zip(self.rules, self._summaries, strict=True)
        ]
        names = ["reward", *(f"constraint {j}" for j in range(1, len(each)))]
        gaps = [
            gap if all(gap in other.gaps for other in each) else f"{name}: {gap}"
            for name, guarantee in zip(names, each, strict=True)
            for gap in guarantee.gaps
        ]
        constants = {
            f"{key}_{j}": value
            for j, guarantee in enumerate(each)
            for key, value in guarantee.constants.items()
        }
        combined = Guarantee(
            method=method,
            constants={"delta": self.delta, **constants},
            gaps=tuple(dict.fromkeys(gaps)),
        )
        if all(guarantee.theorem is not None for guarantee in each):
            on_same = "with {probability}, on the same event, "
            assumptions = [a for g in each for a in g.about("each function").assumptions]
            combined = replace(
                combined,
                theorem=f"{each[0].theorem}, for reward and constraints at delta / {len(each)} "
                "each (union bound)",
                bands=Statement(
                    "with {probability} the reward and each constraint lie within their widths of "
                    "their posterior means, at all points and in all rounds, for all multipliers "
                    "at once",
                    delta=self.delta,
                    reach="everywhere",
                ),
                regret=RegretStatement(
                    f"{on_same}the regret of every round that maximizes the bound of the penalized "
                    "reward, against the best point that meets the constraints, is at most the "
                    "value of that bound less the lower confidence bound of the reward, at the "
                    "point that it chose",
                    delta=self.delta,
                ),
                violation=Statement(
                    f"{on_same}each constraint is at most its upper confidence bound at the points "
                    "that were chosen, so that the norm of the positive part of summed constraint "
                    "values is at most that of summed bounds",
                    delta=self.delta,
                ),
                assumptions=tuple(dict.fromkeys(assumptions)),
            )
        if self.scale != 1.0:
            combined = combined.with_gaps(f"the width is scaled by {self.scale:g}")
        if is_ensemble(self.model):
            combined = combined.with_gaps("the bound is averaged over the members of an ensemble")
        if not self.maximize:
            combined = of_minus_the_reward(combined)
        combined = of_acquisition(self, combined)
        if self.posterior_transform is self._affine:
            return combined
        return combined.with_gaps("posterior_transform changes what is modeled")

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return the moments of the reward and the lower bounds of the constraints at one point.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        known = super().describe(x)
        with torch.no_grad():
            mean, sigma = self._moments(self._posteriors(x.unsqueeze(0)))
            _, lower = self._ends(mean, sigma)
        known["width"] = float(self.widths[..., 0].mean())
        for j in range(self.num_constraints):
            known[f"constraint_mean_{j + 1}"] = float(mean[..., j + 1].mean())
            known[f"constraint_lower_bound_{j + 1}"] = float(lower[j].mean())
        return known

    def _posteriors(self, X: Tensor) -> list[Posterior]:
        """Return the posteriors of all outputs, one by one if a list has a model for each."""
        model, transform = self.model, self.posterior_transform
        is_list = isinstance(model, ModelListGP) and transform is None
        if is_list and len(model.models) == model.num_outputs:
            return [part.posterior(X) for part in model.models]  # they need no merging
        posterior = model.posterior(X, posterior_transform=transform)
        self._check_num_outputs(posterior.mean.shape[-1])
        return [posterior]

    def _check_num_outputs(self, found: int) -> None:
        wanted = 1 + self.num_constraints
        if found != wanted:
            raise ValueError(
                f"{type(self).__name__} has {counted(wanted - 1, 'multiplier', 'multipliers')}, so "
                f"it needs a model with {wanted} outputs (the reward first, then each constraint), "
                f"but the model has {found}. ModelListGP combines several models."
            )

    def _moments(self, posteriors: Sequence[Posterior]) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations, ``batch_shape x num_outputs`` each."""
        means = [posterior.mean.squeeze(-2) for posterior in posteriors]
        variances = [
            variance_of(posterior).reshape(mean.shape)
            for posterior, mean in zip(posteriors, means, strict=True)
        ]
        return torch.cat(means, dim=-1), torch.cat(variances, dim=-1).sqrt()

    def _ends(self, mean: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds of :meth:`.LagrangianArmsRule.ends` from ``... x m`` moments."""
        return self._settings.ends(mean.movedim(-1, 0), (sigma * self.widths).movedim(-1, 0))


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
        self._prepare_outputs(model, given)
        self.set_X_pending(X_pending)

    @property
    def is_scalarized(self) -> bool:
        """Whether the value is the exact bound of one weighted sum of the outputs."""
        return self._settings.is_scalarized

    @property
    def width(self) -> Tensor:
        """The factor on the standard deviation of the weighted sum, in the model's batch shape."""
        return self._settings.combined_width(self.widths.movedim(-1, 0))

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
        return self._value(X)

    @t_batch_mode_transform(expected_q=1, assert_output_shape=False)
    def constraint_lower_bounds(self, X: Tensor) -> Tensor:
        """Return the lower confidence bounds of the constraints, clipped if that was requested.

        They drive per-round multipliers, and show whether a constraint can be met at all.

        Args:
            X: ``batch_shape x 1 x d`` points, float64; the model must not be a batch or an
                ensemble.

        Returns:
            ``batch_shape x num_constraints``.
        """
        check_points(self, X)
        return self._ends(*self._moments(self._posteriors(X)))[1].movedim(0, -1)

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers the bounds with this model, or why none does."""
        form = "as one weighted sum of outputs" if self.is_scalarized else "output by output"
        guarantee = self._base_guarantee(
            f"the upper confidence bound of the penalized reward ({form})"
        )
        if self._settings.is_clipped:
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
        return self._settings.penalized(*self._ends(*self._moments(self._posteriors(X))))

    def _scalarized(self, X: Tensor) -> Tensor:
        """Return the bound of one weighted sum of the outputs."""
        weights = self._settings.weights.to(self.widths)
        posteriors = self._posteriors(X)
        if len(posteriors) > 1:
            means, sigmas = self._moments(posteriors)
            mean, variance = means @ weights, sigmas.square() @ weights.square()
        else:
            scalar = ScalarizedPosteriorTransform(weights)(_joint(posteriors[0]))
            mean = scalar.mean.squeeze(-1).squeeze(-1)
            variance = variance_of(scalar).reshape(mean.shape)
        return check_no_overflow(score(mean, variance.sqrt() * self.width))


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
    draws = True

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
        self._prepare_outputs(model, given)
        if posterior_transform is not self._affine and choices is None:
            raise UnsupportedError("a pathwise draw takes no posterior_transform; pass choices=.")
        self._prepare_draws(choices, seed)
        self.set_X_pending(X_pending)

    @staticmethod
    def options_of_widths(options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options for the widths: half of ``delta`` is for the draws.

        Args:
            options: The options of the constructor.
        """
        return {**options, "delta": options["delta"] / 2, "default_width": PLAIN_WIDTH}

    @t_batch_mode_transform(expected_q=1)
    def _evaluate(self, X: Tensor, ahead: int = 0) -> Tensor:
        drawn = self.draw(X, ahead).movedim(-1, 0)
        return self._settings.penalized(self._sign * drawn[0], drawn[1:])

    def draw(self, X: Tensor, ahead: int = 0) -> Tensor:
        """Evaluate the draw of every output.

        Args:
            X: ``batch_shape x 1 x d`` points, float64.
            ahead: The number of further draws after the present one.

        Returns:
            ``batch_shape x (1 + num_constraints)`` values, the reward's first.

        Raises:
            TypeError: If ``X`` is not float64.
        """
        check_points(self, X)
        drawn = self._scaled(X if X.dim() > 2 else X.unsqueeze(0), self.widths, ahead).squeeze(-2)
        self._check_num_outputs(drawn.shape[-1])
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
            _, *drawn = self.draw(x.unsqueeze(0)).reshape(-1).tolist()
        return {**known, **{f"constraint_draw_{j + 1}": each for j, each in enumerate(drawn)}}
