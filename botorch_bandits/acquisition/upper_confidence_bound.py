r"""Upper confidence bounds with theory-backed widths, as drop-in replacements for BoTorch's.

.. math:: a_t(x) = \mu_{t-1}(x) + w_t \, \sigma_{t-1}(x)

The classes subclass BoTorch's ``UpperConfidenceBound`` and only compute its ``beta``, which is
``w_t ** 2``, so they can be used wherever BoTorch uses UCB. They also honor ``X_pending``, so
``q > 1`` works in every sequential optimizer. Each class turns its options into a width in
``width_rule``; its rule on arms and its closed form on boxes follow from that.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.base import (
    BanditAcquisition,
    HallucinatesPending,
    check_model,
    check_required,
    score,
)
from botorch_bandits.acquisition.rules import ArmsRule, RandomizedArmsRule, WidthArmsRule
from botorch_bandits.checks import level_of_users_line
from botorch_bandits.confidence import (
    GainBound,
    Guarantee,
    PriorSummary,
    RandomizedWidth,
    WidthRule,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.gp_ucb import PUBLISHED_WIDTH_CONSTANT, ChangePointWidth
from botorch_bandits.confidence.ingredients import (
    kernelized_rule,
    mixture_rule,
    theorem_rule,
    wanted_by_theorem,
)
from botorch_bandits.confidence.width_rules import (
    WIDTH,
    Assumed,
    Bound,
    NoiseBound,
    check_scale,
    fit_to_batch,
)
from botorch_bandits.models.censoring import spread_points
from botorch_bandits.models.reading import (
    observed_inputs,
    observed_outcomes,
    on_device_of,
    shape_of_batch,
)


class WideConfidenceWarning(RuntimeWarning):
    """A confidence width dwarfs the outcomes, so that points are chosen by deviation alone."""


FEWEST_ROWS = 10
"""With fewer outcomes, their spread is unknown, and exploration is appropriate anyway."""

NUM_PROBES = 128
"""The number of points at which a width is checked, spread evenly over the range of the inputs."""

SHARE_OF_EXPLORATION = 0.95
"""A point counts as chosen by its deviation alone if that is at least this share of the largest."""


class WidthAcquisition(BanditAcquisition):
    """An acquisition function with a width, which warns if the width dwarfs the outcomes.

    A width counts as too large if two conditions hold on a fitted model with at least ten rows: the
    width times the prior standard deviation of an output exceeds all differences between its
    outcomes, and, among 128 points and the observed ones, the value is largest where the deviation
    is nearly the largest. On Branin, Hartmann6 and an SVM, with widths that were too large,
    the warning was given in a sixth to three quarters of the rounds, nearly all of which were
    rounds of exploration. It was never given with a width of 2 or without bounds.
    """

    rule: WidthRule
    width: Tensor
    _summary: PriorSummary

    @abstractmethod
    def _initialize(self, given: Mapping[str, Any]) -> None:
        """Call the constructor with its arguments, or with those of a subclass, by name."""

    @classmethod
    @abstractmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        """Return the width rule for some options; only here are options turned into a rule.

        Args:
            options: Constructor arguments by name, at least all that the width depends on.

        Raises:
            ValueError: If an ingredient is missing or infeasible.
        """

    def _width_in(self, round_number: int) -> Tensor:
        """Return the scaled width of a round, of the model's batch shape or one number."""
        width = self.scale * self.rule.width(self._summary, round_number)
        return fit_to_batch(WIDTH, width, shape_of_batch(self.base_model))

    @property
    def width_rules(self) -> tuple[WidthRule, ...]:
        return (self.rule,)

    def bounds(self, X: Tensor) -> tuple[Tensor, ...]:
        """Return the lower and the upper confidence bound, if the width is one number.

        Args:
            X: ``n x d`` points, float64.
        """
        if self.width.numel() != 1:
            return ()
        mean, deviation = self.moments(X)
        half = deviation * self.width.reshape(())
        return mean - half, mean + half

    def describe(self, x: Tensor) -> dict[str, float]:
        """Return mean, standard deviation, width and information gain at one point.

        Args:
            x: See the base class.
        """
        known = super().describe(x)
        gain = self.rule.information_gain(self._summary)
        if gain is not None:
            known["information_gain"] = float(gain.mean())
        return {**known, "width": float(self.width.mean())}

    def warn_if_wide(self) -> None:
        """Warn if the width is so large that outcomes do not affect the choice.

        Only fitted models with one active output and no batch dimension are checked, because a user
        who gives a prior also states how large the reward is.

        Warns:
            WideConfidenceWarning: If it is; once for each class and number of dimensions.
        """
        model, priors = self.base_model, self._summary.readable
        inputs, outcomes = observed_inputs(model), observed_outcomes(model)
        if len(priors) != 1 or self.width.numel() != 1:
            return
        ((output, prior),) = priors.items()
        if not prior.learned or inputs is None or outcomes is None or len(inputs) < FEWEST_ROWS:
            return
        values, reach = outcomes[output], self.width * prior.standard_deviation.max()
        if bool(reach <= values.max() - values.min()):
            return
        spread_out = spread_points(inputs.shape[-1], NUM_PROBES).to(inputs)
        probes = torch.cat([torch.lerp(inputs.amin(0), inputs.amax(0), spread_out), inputs])
        with torch.no_grad():
            mean, deviation = self.moments(probes)
        chosen = score(mean, deviation * self.width, self._sign).argmax()
        if bool(deviation[chosen] < SHARE_OF_EXPLORATION * deviation.max()):
            return
        _warn_once(type(self).__name__, inputs.shape[-1])


@cache
def _warn_once(name: str, dim: int) -> None:
    """Warn of the width of a class, once for inputs of so many dimensions."""
    warnings.warn(
        f"{name}: the width is out of proportion to the outcomes. Where nothing is known, the band "
        "reaches further to either side than all outcomes differ, so that points are chosen by "
        "their deviation alone, as in pure exploration. Leave the bounds or width= out, give "
        "smaller ones (width=2.0 is common), or fit the model to standardized outcomes.",
        WideConfidenceWarning,
        stacklevel=level_of_users_line(),
    )


class WidthUpperConfidenceBound(WidthAcquisition, HallucinatesPending, UpperConfidenceBound):
    r"""Upper confidence bound whose width is a :class:`~botorch_bandits.confidence.WidthRule`.

    The user's model is never changed. Pending points shrink the posterior variance as if their
    outcomes were known to equal the posterior mean (hallucination, as in GP-BUCB); the width uses
    the information gain of the observed data. No theorem covers the bound in that case.

    Args:
        model: A fitted BoTorch model in float64.
        rule: Computes the width from the model's prior and the round.
        scale: A factor on the width. Guarantees hold only with a factor of 1.
        round_number: The round ``t`` of the first point that is chosen; at least the number of the
            model's rows plus pending points plus 1, which is the default.
        posterior_transform: Needed for a model with several outputs.
        maximize: If False, the reward is minimized: the value is ``-mean + width * sigma``.
        assume: Assumptions that you vouch for because they cannot be read from the model; only
            :meth:`guarantee` uses them. ``"fixed prior"``: the frozen parameters of the model were
            fixed before the data. ``"centered bound"``: ``rkhs_bound`` is for the reward minus the
            prior mean. Give one of them, or both in a tuple.
        X_pending: ``n x d`` points whose outcomes have not arrived.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If an ingredient is infeasible or the model's prior is needed but cannot be
            read.
        UnsupportedError: If the model has an outcome transform that is not affine, or points are
            pending and its posterior has no joint Gaussian moments.
    """

    defines_rule = True
    plays: ClassVar[type[WidthArmsRule]] = WidthArmsRule
    """The rule on arms, which has the same width."""
    beta: Tensor
    width: Tensor
    """The factor of the posterior standard deviation, of the model's batch shape."""

    def __init__(
        self,
        model: Model,
        rule: WidthRule,
        *,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    def _initialize(self, given: Mapping[str, Any]) -> None:
        """Call the constructor with its arguments, or with those of a subclass, by name."""
        super().__init__(
            check_model(given["model"]),
            beta=torch.zeros((), dtype=torch.float64),
            posterior_transform=given["posterior_transform"],
        )
        self.register_buffer("width", torch.zeros((), dtype=torch.float64))
        self._read_arguments(given)
        self.rule, self.scale = self.width_rule(given), check_scale(given.get("scale", 1.0))
        self.set_X_pending(given["X_pending"])
        self.warn_if_wide()

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        rule: WidthRule = options["rule"]
        return rule

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        scale = check_scale(options.get("scale", 1.0))
        return cls.plays(cls.width_rule(options), scale, options["maximize"])

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """See the base class; the width is then for the round after the pending points.

        Args:
            X_pending: ``n x d`` points, or None.
        """
        super().set_X_pending(X_pending)
        self._summary.forget()  # a state may have been loaded into the model
        self._set_width(self._width_in(self.round_number if self.rule.needs_round else 1))

    def _set_width(self, width: Tensor) -> None:
        """Store the width, and BoTorch's ``beta``: a column beside means of ``batch_shape x 1``."""
        self.width = on_device_of(self.base_model, width)
        square = self.width.square()
        self.beta = square.unsqueeze(-1) if square.dim() else square

    def _widths(self, num_points: int) -> Tensor:
        """Return the width of each of several points, ``batch_shape x q`` or ``x 1``."""
        if num_points == 1 or not self.rule.needs_round:
            return self.width.unsqueeze(-1)
        rounds = range(self.round_number, self.round_number + num_points)
        return torch.stack([self._width_in(t) for t in rounds], dim=-1).to(self.width)

    def set_rule(self, rule: WidthRule, predictive: bool = False) -> None:
        """Set another width rule; pending points are forgotten.

        Args:
            rule: The rule that computes the width from now on.
            predictive: Whether deviations are those of outcomes, with their noise, which no theorem
                covers.
        """
        self.rule, self.predictive = rule, predictive
        self.set_X_pending(None)
        self.warn_if_wide()

    def guarantee(self, facts: Facts = ALONE) -> Guarantee:
        """Return the theorem that covers this bound with this model, or why none does.

        Args:
            facts: What is known of its use, such as the rounds of a loop.
        """
        facts = self._facts(facts)
        round_number = self.round_number if self.rule.needs_round else 1
        return self.rule.guarantee(self._summary, round_number, facts)

    def _values(self, X: Tensor) -> Tensor:
        mean, deviation = self._mean_and_deviation(X)  # batch_shape x q each
        return score(mean, deviation * self._widths(X.shape[-2]), self._sign)


class GPUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""GP-UCB (Srinivas et al. 2010): the widths of Theorems 1, 2 and 3, or a constant one.

    ============  ==========================================================================
    Theorem 1     :math:`w_t^2 = 2 \ln(|D| t^2 \pi^2 / (6 \delta))`; finitely many arms
    Theorem 2     :math:`w_t^2 = 2 \ln(2 \pi^2 t^2 / (3 \delta))
                  + 2 d \ln(t^2 d b r \sqrt{\ln(4 d a / \delta)})`; a box
    Theorem 3     :math:`w_t^2 = 2 B^2 + 300 \gamma_t \ln^3(t / \delta)`; bounded RKHS norm
    ============  ==========================================================================

    The width multiplies the standard deviation (the paper's ``beta_t`` is its square). Theorems 1
    and 2 assume that the reward is a draw from the model's prior. The width of Theorem 3 is so
    large that it plays at random for thousands of rounds. If no ingredient is given, the width is
    the constant 2, a heuristic; a loop on arms knows their number and uses the width of Theorem 1.

    Args:
        model: A fitted BoTorch model in float64.
        beta: The square of a constant width, as in BoTorch's ``UpperConfidenceBound(model, beta)``;
            the same as ``width=beta ** 0.5``. For a batch of models, a vector with one entry each.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        assume: See :class:`WidthUpperConfidenceBound`.
        num_arms: ``|D|`` of Theorem 1; in a loop on arms it may be omitted.
        smoothness_a: ``a`` of Theorem 2: partial derivatives exceed ``L`` with probability at most
            ``a exp(-(L/b)^2)``.
        smoothness_b: ``b`` of Theorem 2, in raw outcome units per unit of input.
        dim: ``d`` of Theorem 2; in a loop on a box it may be omitted.
        side_length: ``r`` of Theorem 2, the longest side; in a loop on a box it may be omitted.
        rkhs_bound: ``B`` of Theorem 3, a bound on the norm (not its square) in the unit-variance
            kernel, in raw outcome units.
        information_gain: A bound on the maximal information gain for Theorem 3, such as
            :class:`~botorch_bandits.confidence.WaterFillingGain`.
        delta: The bound fails with at most this probability.
        width: A constant width instead of one from a theorem.
        scale: A factor on the width (the paper's experiments use ``5 ** -0.5``).
        round_number: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        ValueError: If only some ingredients of a width are given, or ingredients of several widths.

    Example:
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = GPUpperConfidenceBound(model, num_arms=100, delta=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        beta: float | Tensor | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        *,
        num_arms: int | None = None,
        smoothness_a: float | None = None,
        smoothness_b: float | None = None,
        dim: int | None = None,
        side_length: float | None = None,
        rkhs_bound: float | None = None,
        information_gain: GainBound | None = None,
        delta: float = 0.1,
        width: float | None = None,
        scale: float = 1.0,
        round_number: int | None = None,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    @classmethod
    def wanted_from_domain(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """See the base class: the number of arms, or the shape of the box, for a theorem."""
        return wanted_by_theorem(options)

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        return theorem_rule(cls.__name__, options)


class ImprovedUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""IGP-UCB (Chowdhury and Gopalan 2017), with the realized information gain.

    .. math:: w_t = B + R \sqrt{2 (\gamma_{t-1} + 1 + \ln(1/\delta))}

    The width multiplies the standard deviation (the paper's ``beta_t`` is the width itself). ``B``
    bounds the norm of the reward in the UNIT-VARIANCE kernel and ``R`` the noise, both in raw
    outcome units; the model's prior variance and outcome transform are taken into account. The
    width as printed gives a valid bound only for ``lam >= 1``; ``any_lambda=True`` gives
    ``B + R / sqrt(lam) * sqrt(2 (gain + ln(1/delta)))``, which is valid for every ``lam``.

    A model can have a different noise variance in each row (``train_Yvar``). Its rows are then
    divided by their noise, ``lam`` is the smallest value among the rows, and the gain is
    ``1/2 ln det(I + V^(-1/2) K V^(-1/2))``, where ``V`` contains the noise variances. With
    ``noise_bound="model"``, both widths have the factor 1 instead of ``R`` and ``R / sqrt(lam)``,
    and both are valid.

    If you know neither bound, omit both: ``B`` is then 1 prior standard deviation, and ``R`` is the
    standard deviation of the model's noise. The model should then learn the scale of the outcomes.
    No theorem covers this case, as :meth:`guarantee` reports. Giving only one bound is an error,
    unless ``units="prior"``.

    Args:
        model: A fitted BoTorch model in float64.
        rkhs_bound: ``B``. One number, or one per output. 1 prior standard deviation if omitted.
        noise_bound: ``R``, a standard deviation for Gaussian noise. One number, or one per output.
            The standard deviation of the model's noise if omitted. With ``"model"`` instead of a
            number, the noise of each row is bounded by the square root of its noise variance in the
            model (``train_Yvar``). These numbers must be known before each outcome; standard errors
            estimated from the same outcomes are not bounds.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form that is valid for every ``lam``.
        information_gain: An explicit gain instead of the realized one, in nats, or a bound on the
            maximal gain (a :class:`~botorch_bandits.confidence.GainBound`). Models whose prior
            cannot be read need it or ``width``.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation (models that learn the scale of the outcomes).
        variation: The largest deviation of a round's reward from one fixed function, in the units
            of the bounds; it is added to the width (:mod:`botorch_bandits.confidence.igp_ucb`).
        width: A constant width instead of the one above.
        scale: A factor on the width.
        round_number: See :class:`WidthUpperConfidenceBound`.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        assume: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        ValueError: If bounds and ``width`` are both given, or only one bound in raw outcome units.

    Example:
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> from botorch.optim import optimize_acqf
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = ImprovedUpperConfidenceBound(model)
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> candidate, value = optimize_acqf(acqf, bounds, q=1, num_restarts=2, raw_samples=8)
        >>> candidate.shape
        torch.Size([1, 1])
    """

    defines_rule = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: Bound | None = None,
        noise_bound: NoiseBound | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        variation: float = 0.0,
        width: float | None = None,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        return kernelized_rule(cls.__name__, options)


class AMMUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""Upper confidence bound with the AMM width at the model's own regularization.

    .. math:: w_t = \sqrt{B^2 + c \ln\det(I + K / \lambda) + 2 c \ln(1/\delta)},
              \qquad c = R^2/\lambda

    Source: Flynn and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv
    2403.12732, 2024.

    The bound holds for every ``lam``, under the assumptions of IGP-UCB: a norm of at most ``B`` in
    the UNIT-VARIANCE kernel and R-sub-Gaussian noise, both in raw outcome units.
    :class:`~botorch_bandits.DMMUpperConfidenceBound` is tighter still, at the cost of an
    eigendecomposition. If the bounds are omitted, the noise of the model and a norm of 1 prior
    standard deviation are used; no theorem covers this case, and the bound is wide.

    Args:
        model: A fitted BoTorch model in float64 whose prior can be read.
        rkhs_bound: ``B``. One number, or one per output. 1 prior standard deviation if omitted.
        noise_bound: ``R``, a standard deviation for Gaussian noise. One number, or one per output.
            ``"model"``: see :class:`ImprovedUpperConfidenceBound`; in that case, ``c`` is 1. This
            is the default.
        delta: The bound fails with at most this probability.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation.
        scale: See :class:`WidthUpperConfidenceBound`.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        assume: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Example:
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = AMMUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    defines_rule = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: Bound | None = None,
        noise_bound: NoiseBound | None = None,
        delta: float = 0.1,
        units: str = "outcome",
        scale: float = 1.0,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        return mixture_rule(cls.__name__, options)


class RandomizedUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""IRGP-UCB on finitely many arms (Takeno, Inatsu and Karasuyama, ICML 2023).

    .. math:: w_t = \sqrt{2 \ln(|D| / 2) + Z_t}, \qquad Z_t \sim \mathrm{Exp}(\text{mean } 2)

    It is for rewards drawn from the model's prior. The theorem bounds the EXPECTED regret; the
    width gives no confidence bound that holds in all rounds at once.

    Args:
        model: A fitted BoTorch model in float64.
        num_arms: ``|D|``, at least 2; in a loop on arms, or on a ``Space`` with so few points that
            all are evaluated, it may be omitted.
        seed: The seed of the draw in each round; taken from torch's global generator if omitted.
        round_number: See :class:`WidthUpperConfidenceBound`; each round has its own draw.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        assume: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Example:
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = RandomizedUpperConfidenceBound(model, num_arms=100, seed=0)
        >>> bool(acqf.width ** 2 > 2 * torch.log(torch.tensor(50.0)))
        True
    """

    defines_rule = True
    from_domain = ("num_arms",)
    on_few_points = True
    plays = RandomizedArmsRule

    def __init__(
        self,
        model: Model,
        *,
        num_arms: int,
        seed: int | None = None,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        seed = int(torch.randint(2**62, ())) if seed is None else seed
        self._initialize({**locals()})

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> RandomizedWidth:
        check_required(cls, options)
        return RandomizedWidth(options["num_arms"], options.get("seed", 0))

    def bounds(self, X: Tensor) -> tuple[Tensor, ...]:
        """See the base class; a width that is drawn gives no bounds."""
        return ()


class ChangePointUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""The upper confidence bound of GP-UCB-CPD (Avanesov, Theorem 3.1).

    .. math:: w_t = \sqrt{D \, t^{d(d+1) / (2a + d(d+1))} \ln^4 T}

    The width grows with the number of queries in the model, so it is small again after a reset. The
    restarts come from :class:`~botorch_bandits.ChangePointRestart`, which works with any other
    acquisition function as well.

    Source: Avanesov, *How to gamble with non-stationary X-armed bandits and have no regrets*,
    arXiv 1908.07636.

    Args:
        model: A fitted BoTorch model in float64, conditioned on the data since the last reset.
        horizon: ``T``, the total number of rounds.
        smoothness: ``a``, the ``nu`` of the Matern kernel.
        dim: ``d``; in a loop it may be omitted.
        width_constant: ``D``; 0.02 in the paper's experiments.
        scale: See :class:`WidthUpperConfidenceBound`.
        round_number: The round ``t`` of the first point that is chosen, counted from the last
            reset; by default, the model's rows plus pending points plus 1.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        assume: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Example:
        >>> import torch
        >>> from botorch_bandits import FittedSingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = FittedSingleTaskGP([[0.0], [1.0]])(X, X.sin())
        >>> acqf = ChangePointUpperConfidenceBound(
        ...     model, horizon=1200, smoothness=2.5, dim=1
        ... )
        >>> round(float(acqf.width), 4)
        8.3172
    """

    defines_rule = True
    from_domain = ("dim",)

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        horizon: int,
        smoothness: float,
        dim: int,
        width_constant: float = PUBLISHED_WIDTH_CONSTANT,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: Assumed = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        check_required(cls, options)
        names = ("horizon", "smoothness", "dim", "width_constant")
        return ChangePointWidth(**{name: options[name] for name in names})
