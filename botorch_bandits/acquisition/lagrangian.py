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
from botorch.models.model import Model
from botorch.posteriors import GPyTorchPosterior
from botorch.posteriors.multitask import MultitaskGPPosterior
from botorch.posteriors.posterior import Posterior
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from botorch_bandits.acquisition.base import (
    BanditAcquisition,
    Bounds,
    HallucinatesPending,
    check_model,
    check_points,
    score,
    select_output,
)
from botorch_bandits.acquisition.draws import SeededDraw
from botorch_bandits.acquisition.rules import ArmsRule, LagrangianArmsRule
from botorch_bandits.checks import (
    DTYPE,
    check_instance,
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
    WidthRule,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.ingredients import PER_OUTPUT, output_rules
from botorch_bandits.confidence.theorems import (
    NO_JOINT_DRAWS,
    PENALIZED_BOUND,
    PENALIZED_DRAW,
    WITHIN_LIMITS,
    union_of,
)
from botorch_bandits.confidence.width_rules import (
    PLAIN_WIDTH,
    WIDTH,
    Assumed,
    Bound,
    NoiseBound,
    check_assume,
    check_scale,
    fit_to_batch,
)
from botorch_bandits.models.reading import (
    JointMoments,
    moments_of_each,
    on_device_of,
    posterior_of_each,
    submodels,
)
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
        ValueError: If a shape is wrong, or a number is not finite.

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


class LagrangianAcquisition(BanditAcquisition):
    """Base class with multipliers, a penalty and a width for each output of the model."""

    is_one_output = False
    draws: ClassVar[bool] = False
    """Whether it is a draw, not a bound."""
    default_width: ClassVar[float | None] = None
    """The width of each output if no bound is given; None to guess the bounds."""
    width_rules: tuple[WidthRule, ...] = ()
    widths: Tensor
    delta: float
    posterior_transform: AffineOutcomes | None
    _settings: LagrangianArmsRule
    _summaries: tuple[PriorSummary, ...]

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        multipliers: Tensor | Sequence[float],
        penalty: Penalty | None = None,
        rkhs_bound: Bound | None = None,
        noise_bound: NoiseBound | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        width: Bound | None = None,
        scale: float = 1.0,
        posterior_transform: AffineOutcomes | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        **_own: Any,
    ) -> None:
        """See the classes; ``_own`` are the options that only one of them has."""
        given, transform = {**locals(), **_own}, posterior_transform
        super().__init__(check_model(model))
        self.base_model = model
        self._settings = settings = self._settings_of(given)
        self.maximize, self.scale = settings.maximize, settings.scale
        self.width_rules = settings.rules
        self.delta = check_probability("delta", delta)
        if transform is not None:
            remedy = "Pass AffineOutcomes(weights, offsets), or leave it out."
            check_instance("posterior_transform", transform, AffineOutcomes, remedy)
        self.posterior_transform = transform
        found = model.num_outputs if transform is None else len(transform.weights)
        if found != settings.num_outputs:
            raise ValueError(
                f"{type(self).__name__} has "
                f"{counted(settings.num_outputs - 1, 'multiplier', 'multipliers')}, so it needs a "
                f"model with {settings.num_outputs} outputs (the reward first, then each "
                f"constraint), but the model has {found}. ModelListGP combines several models."
            )
        self._summaries = tuple(
            PriorSummary(
                model,
                transform.row(j) if transform else select_output(j, found),
                check_assume(assume),
            )
            for j in range(found)
        )
        self._summary = self._summaries[0]
        self.register_buffer("widths", on_device_of(model, self._widths()))

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """Return the rule on arms; without multipliers, only check the options.

        In a loop, multipliers come from the multiplier rule in use.
        """
        settings = cls._settings_of(options)
        return None if options["multipliers"] is None else settings

    @classmethod
    def _settings_of(cls, options: Mapping[str, Any]) -> LagrangianArmsRule:
        """Return the checked options; as if there were multipliers of 0 if there are none."""
        multipliers, penalty, width = (
            options[name] for name in ("multipliers", "penalty", "width")
        )
        if multipliers is None:
            lengths = [len(options[key]) for key in PER_OUTPUT if isinstance(options[key], tuple)]
            multipliers = [0.0] * (lengths[0] - 1 if lengths else 1)
        kappa = check_multipliers(multipliers)
        clips: dict[str, Any] = {
            clip: check_positive(clip, options[clip])
            for clip in ("reward_bound", "constraint_bound")
            if options.get(clip) is not None
        }
        separate = options.get("separate_bounds", False)
        own = {**options, "default_width": cls.default_width}
        if cls.draws:  # the other half is for the draws
            own["delta"] = options["delta"] / 2
        return LagrangianArmsRule(
            output_rules(cls.__name__, 1 + len(kappa), own),
            kappa,
            Linear() if penalty is None else check_penalty(penalty),
            cls.draws,
            check_scale(options["scale"]),
            check_one_of("maximize", options["maximize"], (True, False)),
            has_one_width=width is not None and not isinstance(width, tuple),
            separate_bounds=check_one_of("separate_bounds", separate, (True, False)),
            **clips,
        )

    def _prior_variances(self) -> Tensor:
        return self.widths.new_tensor([each.scalar_variance or 1.0 for each in self._summaries])

    def _forget(self) -> None:
        super()._forget()
        for summary in self._summaries:
            summary.forget()

    def known_at(self, X: Tensor) -> Bounds:
        mean, deviation = (each.squeeze(-2) for each in self._moments(X.unsqueeze(-2)))
        return Bounds.of_outputs(mean, deviation, deviation * self.widths)

    def _widths(self) -> Tensor:
        """Return ``batch_shape x num_outputs`` widths, where ``batch_shape`` is the model's."""
        widths = [
            fit_to_batch(WIDTH, self.scale * rule.width(summary, 1), self.model.batch_shape)
            for rule, summary in zip(self.width_rules, self._summaries, strict=True)
        ]
        return torch.stack(torch.broadcast_tensors(*widths), dim=-1)

    def set_rules(self, rules: Sequence[WidthRule]) -> None:
        """Set another width rule for each output.

        Args:
            rules: The ``1 + num_constraints`` rules that compute the widths from now on.
        """
        self.width_rules = tuple(rules)
        self.widths = self._widths().to(self.widths.device)

    def _base_guarantee(self, method: str, facts: Facts) -> Guarantee:
        """Return what the widths of all outputs guarantee together.

        Args:
            method: The template of the method's name.
            facts: What is known of its use.
        """
        facts = self._facts(facts)
        of_each = replace(facts, function="each function")
        pairs = zip(self.width_rules, self._summaries, strict=True)
        each = [rule.guarantee(summary, 1, of_each) for rule, summary in pairs]
        return union_of(each, facts, method, self.delta)

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return the moments of the reward and the lower bounds of the constraints at one point.

        Args:
            x: A ``d``-dimensional point. The model must not be batched.
        """
        known = super().describe(x)
        with torch.no_grad():
            mean, deviation = self._moments(x.unsqueeze(0))
            _, lower = self._ends(mean, deviation)
        known["width"] = float(self.widths[..., 0].mean())
        for j in range(1, self._settings.num_outputs):
            known[f"constraint_mean_{j}"] = float(mean[..., j].mean())
            known[f"constraint_lower_bound_{j}"] = float(lower[j - 1].mean())
        return known

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Return means and standard deviations, ``batch_shape x q x num_outputs`` each."""
        q, transform = X.shape[-2], self.posterior_transform
        # the joint moments of independent outputs would take twice as long
        parts = submodels(self.model) if q == 1 and transform is None else (self.model,)
        each = [moments_of_each(posterior_of_each(part, X, transform), q) for part in parts]
        mean, variance = (torch.cat(of_outputs, dim=-1) for of_outputs in zip(*each, strict=True))
        return mean, variance.sqrt()

    def _ends(self, mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bounds of :meth:`.LagrangianArmsRule.ends` from ``... x q x m`` moments."""
        half = deviation * self.widths.unsqueeze(-2)
        return self._settings.ends(mean.movedim(-1, 0), half.movedim(-1, 0))


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
        posterior_transform: :class:`~botorch_bandits.acquisition.AffineOutcomes`, which makes the
            ``1 + num_constraints`` outputs from metrics in another order, sign or scale; no other
            transform is taken.
        maximize: If False, the reward is minimized: ``-f`` replaces ``f``.
        assume: The assumptions that you vouch for, for every output; see
            :class:`~botorch_bandits.WidthUpperConfidenceBound`.
        X_pending: ``n x d`` points whose outcomes have not arrived. They enter a copy of the model
            at the posterior mean, while the widths use the gain of the observed data.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64, or ``posterior_transform`` is no
            ``AffineOutcomes``.
        ValueError: If the number of outputs is wrong or an ingredient is infeasible.
        UnsupportedError: If points are pending and the model cannot be conditioned, or a value
            needs a joint posterior of several outputs that the model does not provide.
        OverflowError: In an evaluation, if a penalty is too large for float64.

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

    defines_rule = True

    def __init__(
        self,
        model: Model,
        *,
        separate_bounds: bool = False,
        reward_bound: float | None = None,
        constraint_bound: float | None = None,
        X_pending: Tensor | None = None,
        **options: Any,
    ) -> None:
        """See the class, which names the ``options``."""
        super().__init__(
            model,
            separate_bounds=separate_bounds,
            reward_bound=reward_bound,
            constraint_bound=constraint_bound,
            **options,
        )
        self.set_X_pending(X_pending)

    @property
    def width(self) -> Tensor:
        """The factor on the standard deviation of the weighted sum, in the model's batch shape."""
        return self._settings.combined_width(self.widths.movedim(-1, 0))

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
        return self._ends(*self._moments(X))[1].movedim(0, -1).squeeze(-2)

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers the bounds with this model, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        settings = self._settings
        guarantee = self._base_guarantee(PENALIZED_BOUND[settings.is_scalarized], facts)
        if settings.is_clipped:
            guarantee = guarantee.with_assumptions(facts.say(WITHIN_LIMITS))
        return guarantee

    def _values(self, X: Tensor) -> Tensor:
        settings = self._settings
        if not settings.is_scalarized:
            return settings.penalized(*self._ends(*self._moments(X)))
        weights = settings.weights.to(self.widths)
        is_independent = len(submodels(self.base_model)) == settings.num_outputs
        if is_independent and self.posterior_transform is None:  # it needs no joint posterior
            means, deviations = self._moments(X)
            mean, variance = means @ weights, deviations.square() @ weights.square()
        else:
            whole = posterior_of_each(self.model, X, self.posterior_transform)
            scalar = ScalarizedPosteriorTransform(weights)(_joint(whole))
            mean, variance = (each.squeeze(-1) for each in moments_of_each(scalar, X.shape[-2]))
        return check_no_overflow(score(mean, variance.sqrt() * self.width.unsqueeze(-1)))


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
        posterior_transform: See :class:`LagrangianUpperConfidenceBound`.
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
    default_width = PLAIN_WIDTH

    defines_rule = True

    def __init__(
        self,
        model: Model,
        *,
        choices: Tensor | None = None,
        X_pending: Tensor | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        """See the class, which names the ``options``."""
        super().__init__(model, **options)
        if len(model.batch_shape) > 0:
            raise UnsupportedError(
                f"{type(self).__name__} draws from one model, got {type(model).__name__} with "
                f"batch shape {tuple(model.batch_shape)}. Use LagrangianUpperConfidenceBound."
            )
        self._prepare_draws(choices, seed)
        self.set_X_pending(X_pending)

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
        return self._scaled(X if X.dim() > 2 else X.unsqueeze(0), self.widths, ahead).squeeze(-2)

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this draw, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        guarantee = self._base_guarantee(PENALIZED_DRAW, facts)
        if guarantee.theorem is not None:
            guarantee = guarantee.with_gaps(NO_JOINT_DRAWS, of=("regret",))
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
