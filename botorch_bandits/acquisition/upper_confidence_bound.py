r"""Upper confidence bounds with theory-backed widths, as drop-in replacements for BoTorch's.

.. math:: a_t(x) = \mu_{t-1}(x) + w_t \, \sigma_{t-1}(x)

The classes subclass BoTorch's ``UpperConfidenceBound`` and only compute its ``beta``, which is
``w_t ** 2``, so they can be used wherever BoTorch uses UCB. They also honor ``X_pending``, so
``q > 1`` works in every sequential optimizer. Each class turns its options into a width in
``width_rule``; its rule on arms and its closed form on boxes follow from that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from botorch.acquisition import UpperConfidenceBound
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from botorch.utils.transforms import (
    average_over_ensemble_models,
    t_batch_mode_transform,
)
from torch import Tensor

from botorch_bandits.acquisition.base import (
    HallucinatesPending,
    check_model,
    check_required,
    kernelized_rule,
)
from botorch_bandits.acquisition.rules import ArmsRule, RandomizedArmsRule, WidthArmsRule
from botorch_bandits.acquisition.scores import Bounds, score
from botorch_bandits.acquisition.wide_confidence import WidthAcquisition
from botorch_bandits.checks import check_one_of, check_probability
from botorch_bandits.confidence import (
    AMMWidth,
    CompactBoxWidth,
    ConstantWidth,
    FiniteArmsWidth,
    GainBound,
    Guarantee,
    PriorSummary,
    RandomizedWidth,
    RKHSWidth,
    WidthRule,
)
from botorch_bandits.confidence.gp_ucb import width_of_beta
from botorch_bandits.confidence.gp_ucb_cpd import PUBLISHED_CONSTANT, ChangePointWidth
from botorch_bandits.confidence.guarantee import at_posterior_mean
from botorch_bandits.confidence.igp_ucb import complete_bounds
from botorch_bandits.confidence.width_rules import (
    DEFAULT_WIDTH,
    WIDTH,
    check_assume,
    check_scale,
    fit_to_batch,
)
from botorch_bandits.domains import Domain
from botorch_bandits.models.reading import OneByOneModel, shape_of_batch


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
        predictive: Use the predictive standard deviation, with the noise. No theorem covers that.
        X_pending: ``n x d`` points whose outcomes have not arrived.

    Raises:
        TypeError: If the model or ``X_pending`` is not float64.
        ValueError: If an ingredient is infeasible or the model's prior is needed but cannot be
            read.
        UnsupportedError: If points are pending and the posterior of the model has no joint Gaussian
            moments, or its outcome transform does not provide a mean and variance of the outcomes.
    """

    defines_rule: ClassVar[bool] = True
    beta: Tensor

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        rule: WidthRule,
        *,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        predictive: bool = False,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    def _initialize(self, given: Mapping[str, Any]) -> None:
        """Call the constructor with its arguments, or with those of a subclass, by name."""
        model, transform = given["model"], given["posterior_transform"]
        super().__init__(
            check_model(model),
            beta=torch.zeros((), dtype=torch.float64),
            posterior_transform=transform,
            maximize=given["maximize"],
        )
        self.base_model = model
        self.rule = self.width_rule(given)
        self.scale = check_scale(given.get("scale", 1.0))
        self.predictive = check_one_of("predictive", given.get("predictive", False), (True, False))
        self.assume = check_assume(given["assume"])
        self._summary = PriorSummary(model, transform, self.assume)
        self._start_rounds(given.get("round_number"), given["X_pending"])
        self.set_X_pending(given["X_pending"])
        self.warn_if_wide()

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        """Return the width rule for some options; only here are options turned into a rule.

        Args:
            options: Constructor arguments by name, at least all that the width depends on.

        Raises:
            ValueError: If an ingredient is missing or infeasible.
        """
        rule: WidthRule = options["rule"]
        return rule

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        scale, predictive = check_scale(options["scale"]), options.get("predictive", False)
        return WidthArmsRule(cls.width_rule(options), scale, options["maximize"], predictive)

    @property
    def width(self) -> Tensor:
        """The factor of the posterior standard deviation; the model's batch shape."""
        return self.beta.sqrt().squeeze(-1) if self.beta.dim() else self.beta.sqrt()

    def set_X_pending(self, X_pending: Tensor | None = None) -> None:
        """Set the pending points, starting again from the user's model.

        Args:
            X_pending: ``n x d`` points, or None.

        Raises:
            TypeError: If they are not float64.
            ValueError: If they are not an ``n x d`` matrix of finite numbers.
            UnsupportedError: If the posterior of the model has no joint Gaussian moments.
        """
        super().set_X_pending(X_pending)
        self._summary.forget()  # a state may have been loaded into the model
        self._set_width(self._width_in(self.round_number if self.rule.needs_round else 1))

    def _width_in(self, round_number: int) -> Tensor:
        width = self.scale * self.rule.width(self._summary, round_number)
        return fit_to_batch(WIDTH, width, shape_of_batch(self.base_model))

    def _set_width(self, width: Tensor) -> None:
        # ``batch_shape x 1`` lines up with BoTorch's ``batch_shape x m`` means and deviations
        beta = (width**2).unsqueeze(-1) if width.dim() else width**2
        self.beta = beta.to(self.beta.device)

    def _look_ahead(self, view: Any, ahead: OneByOneModel) -> None:
        if not self.rule.needs_round:
            return
        widths = [self._width_in(self.round_number + i) for i in range(ahead.num_points)]
        shape = torch.broadcast_shapes(shape_of_batch(ahead), widths[0].shape)
        view._set_width(torch.stack([width.expand(shape) for width in widths]))  # q x batch_shape

    def set_rule(self, rule: WidthRule, predictive: bool = False) -> None:
        """Set another width rule; pending points are forgotten.

        Args:
            rule: The rule that computes the width from now on.
            predictive: See the class.
        """
        self.rule, self.predictive = rule, predictive
        self.set_X_pending(None)
        self.warn_if_wide()

    def guarantee(self) -> Guarantee:
        """Return the theorem that covers this bound with this model, or why none does."""
        round_number = self.round_number if self.rule.needs_round else 1
        guarantee = self.rule.guarantee(self._summary, round_number)
        if self.X_pending is not None:
            guarantee = guarantee.with_gaps(at_posterior_mean(len(self.X_pending)))
        return self._as_used(guarantee)

    def forward(self, X: Tensor) -> Tensor:
        """Evaluate the bound.

        Args:
            X: ``batch_shape x q x d`` points, float64. The value of several points is the sum of
                their bounds, each computed as if the points before it were pending. No theorem is
                stated for that.

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
        mean, sigma = self._mean_and_sigma(X)  # ``batch_shape x 1`` each
        return score(mean, sigma * self.beta.sqrt(), self._sign).squeeze(-1)


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

    defines_rule: ClassVar[bool] = True

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
        assume: str | tuple[str, ...] = (),
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
        delta, given = check_probability("delta", options["delta"]), ingredients(cls, options)
        if not given:
            return ConstantWidth(DEFAULT_WIDTH, is_default=True)
        return THEOREMS[tuple(given)](delta=delta, **given)


THEOREMS: dict[tuple[str, ...], Callable[..., WidthRule]] = {
    ("num_arms",): FiniteArmsWidth,
    ("smoothness_a", "smoothness_b", "dim", "side_length"): CompactBoxWidth,
    ("rkhs_bound", "information_gain"): lambda rkhs_bound, information_gain, delta: RKHSWidth(
        rkhs_bound, information_gain, delta
    ),
    ("width",): lambda width, delta: ConstantWidth(width),
    ("beta",): lambda beta, delta: width_of_beta(beta),
}
"""The ingredients of each width, and the function that makes a rule of them."""


def wanted_by_theorem(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a domain fills in: the number of arms, or the shape of a box, for a theorem.

    Args:
        options: Constructor arguments by name, None for those that were left out.
    """
    given = [name for each in THEOREMS for name in each if options.get(name) is not None]
    if not given:
        return ("num_arms",)
    return ("dim", "side_length") if "smoothness_b" in given else ()


def ingredients(cls: type, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ingredients of a width among some options; empty if none are given.

    Args:
        cls: The acquisition class, for errors.
        options: Constructor arguments by name, None for those that were left out.

    Raises:
        ValueError: If they are not those of exactly one width.
    """
    names = [name for theorem in THEOREMS for name in theorem]
    given = {name: options[name] for name in names if options.get(name) is not None}
    if given and tuple(given) not in THEOREMS:
        theorems = "; ".join(" and ".join(f"{name}=" for name in each) for each in THEOREMS)
        raise ValueError(
            f"{cls.__name__} takes the ingredients of exactly one width ({theorems}), got "
            f"{', '.join(f'{n}={v}' for n, v in given.items())}. On a box, "
            "ImprovedUpperConfidenceBound has a width with a theorem that needs only rkhs_bound= "
            "and noise_bound=."
        )
    return given


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
            of the bounds; it is added to the width (:mod:`botorch_bandits.confidence.varying`).
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

    defines_rule: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | str | tuple[float | str, ...] | None = None,
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
        assume: str | tuple[str, ...] = (),
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

    defines_rule: ClassVar[bool] = True

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | str | tuple[float | str, ...] | None = None,
        delta: float = 0.1,
        units: str = "outcome",
        scale: float = 1.0,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        bounds = options["rkhs_bound"], options["noise_bound"]
        norm, noise, not_given = complete_bounds(cls.__name__, *bounds, options["units"])
        return AMMWidth(norm, noise, options["delta"], options["units"], not_given)


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

    defines_rule: ClassVar[bool] = True
    from_domain: ClassVar[tuple[str, ...]] = ("num_arms",)

    def __init__(
        self,
        model: Model,
        *,
        num_arms: int,
        seed: int | None = None,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        seed = int(torch.randint(2**62, ())) if seed is None else seed
        self._initialize({**locals()})

    @classmethod
    def options_from_domain(
        cls, options: Mapping[str, Any], domain: Domain | None
    ) -> dict[str, Any]:
        few = None if domain is None else domain.few_points()
        return super().options_from_domain(options, few or domain)

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> RandomizedWidth:
        check_required(cls.__name__, options, ("num_arms",))
        return RandomizedWidth(options["num_arms"], options.get("seed", 0))

    def known_at(self, X: Tensor) -> Bounds:
        """See the base class; a width that is drawn gives no bounds."""
        return Bounds(*self.moments(X))

    @classmethod
    def arms_rule(cls, options: Mapping[str, Any]) -> ArmsRule | None:
        """See the base class; each round and replicate draws from its own seed."""
        return RandomizedArmsRule(cls.width_rule(options), maximize=options["maximize"])


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

    defines_rule: ClassVar[bool] = True
    from_domain: ClassVar[tuple[str, ...]] = ("dim",)

    def __init__(  # noqa: PLR0913 - a public constructor
        self,
        model: Model,
        *,
        horizon: int,
        smoothness: float,
        dim: int,
        width_constant: float = PUBLISHED_CONSTANT,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        assume: str | tuple[str, ...] = (),
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        self._initialize({**locals()})

    @classmethod
    def width_rule(cls, options: Mapping[str, Any]) -> WidthRule:
        names = ("horizon", "smoothness", "dim", "width_constant")
        check_required(cls.__name__, options, names)
        return ChangePointWidth(**{name: options[name] for name in names})
