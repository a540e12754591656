r"""Upper confidence bounds with theory-backed widths, as drop-ins for BoTorch's.

.. math:: a_t(x) = \mu_{t-1}(x) + w_t \, \sigma_{t-1}(x)

The classes subclass BoTorch's ``UpperConfidenceBound`` and only compute its ``beta``, which is
``w_t ** 2``: what BoTorch can do with UCB it can do with them. Beyond it they honour
``X_pending``, so that ``q > 1`` works in every sequential optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.arms_rules import ArmsRule, width_arms_rule
from botorch_bandits.acquisition.kernelized import (
    check_kernelized_options,
    kernelized_rule,
    kernelized_rule_of,
)
from botorch_bandits.acquisition.recipe import check_domain_size
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.checks import check_nonnegative, check_probability
from botorch_bandits.confidence import (
    CompactBoxWidth,
    ConstantWidth,
    FiniteArmsWidth,
    GainBound,
    RKHSWidth,
    WidthRule,
)
from botorch_bandits.confidence.widths import check_scale
from botorch_bandits.domains import Arms, Box, Domain


class GPUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""GP-UCB (Srinivas et al. 2010): the widths of Theorems 1, 2 and 3, or a constant one.

    ============  ==========================================================================
    Theorem 1     :math:`w_t^2 = 2 \ln(|D| t^2 \pi^2 / (6 \delta))`; finitely many arms
    Theorem 2     :math:`w_t^2 = 2 \ln(2 \pi^2 t^2 / (3 \delta))
                  + 2 d \ln(t^2 d b r \sqrt{\ln(4 d a / \delta)})`; a box
    Theorem 3     :math:`w_t^2 = 2 B^2 + 300 \gamma_t \ln^3(t / \delta)`; bounded RKHS norm
    ============  ==========================================================================

    The width multiplies the standard deviation (the paper's ``beta_t`` is its square). Theorems 1
    and 2 assume that the reward is a draw from the model's prior. Theorem 3's width is so large
    that it plays at random for thousands of rounds.

    Args:
        model: A fitted BoTorch model in float64.
        beta: The square of a constant width, as in BoTorch's ``UpperConfidenceBound(model, beta)``;
            the same as ``width=beta ** 0.5``.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
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
        width: A constant width in place of a theorem's.
        scale: A factor on the width (the paper's experiments use ``5 ** -0.5``).
        round_number: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        ValueError: If the ingredients of no width, or of more than one, are given.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = SingleTaskGP(X, X.sin())
        >>> acqf = GPUpperConfidenceBound(model, num_arms=100, delta=0.1)
        >>> acqf(X.unsqueeze(-2)).shape
        torch.Size([3])
    """

    def __init__(
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
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            model,
            self._rule(
                delta,
                beta=beta,
                num_arms=num_arms,
                smoothness_a=smoothness_a,
                smoothness_b=smoothness_b,
                dim=dim,
                side_length=side_length,
                rkhs_bound=rkhs_bound,
                information_gain=information_gain,
                width=width,
            ),
            scale=scale,
            round_number=round_number,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Take the number of arms, or the shape of the box, from the domain.

        Args:
            options: Constructor arguments.
            domain: Where the acquisition will be maximised; None if that is not known yet.
        """
        check_scale(options.get("scale", 1.0))
        given = {name for name in INGREDIENTS if options.get(name) is not None}
        if not given and isinstance(domain, Arms):
            options["num_arms"] = domain.num_arms
        elif "smoothness_b" in given and isinstance(domain, Box):
            sides = domain.bounds[1] - domain.bounds[0]
            options.setdefault("dim", domain.dim)
            options.setdefault("side_length", float(sides.max()))
        elif domain is None and given <= {"smoothness_a", "smoothness_b"}:
            return options  # the domain will complete them
        check_domain_size(cls.__name__, options, domain)
        cls._rule(options.get("delta", 0.1), **{name: options.get(name) for name in INGREDIENTS})
        return options

    @classmethod
    def arms_rule(cls, options: dict[str, Any]) -> ArmsRule | None:
        """See the base class."""
        ingredients = {name: options.get(name) for name in INGREDIENTS}
        return width_arms_rule(cls._rule(options.get("delta", 0.1), **ingredients), options)

    @staticmethod
    def _rule(delta: float, **ingredients: Any) -> WidthRule:
        delta = check_probability("delta", delta)
        given = {name: value for name, value in ingredients.items() if value is not None}
        for names, build in THEOREMS.items():
            if given.keys() == set(names):
                return build(delta=delta, **given)
        options = "; ".join(" and ".join(f"{name}=" for name in names) for names in THEOREMS)
        raise ValueError(
            f"GPUpperConfidenceBound takes the ingredients of exactly one width ({options}), got "
            f"{', '.join(f'{n}={v}' for n, v in given.items()) or 'none'}. On a box, "
            "ImprovedUpperConfidenceBound has a width with a theorem that needs only rkhs_bound= "
            "and noise_bound=."
        )


THEOREMS: dict[tuple[str, ...], Callable[..., WidthRule]] = {
    ("num_arms",): FiniteArmsWidth,
    ("smoothness_a", "smoothness_b", "dim", "side_length"): CompactBoxWidth,
    ("rkhs_bound", "information_gain"): lambda rkhs_bound, information_gain, delta: RKHSWidth(
        rkhs_bound, information_gain, delta
    ),
    ("width",): lambda width, delta: ConstantWidth(width),
    ("beta",): lambda beta, delta: ConstantWidth(math.sqrt(check_nonnegative("beta", beta))),
}
"""The ingredients of each width and what they make."""

INGREDIENTS = tuple(name for names in THEOREMS for name in names)


class ImprovedUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""IGP-UCB (Chowdhury and Gopalan 2017), with the realised information gain.

    .. math:: w_t = B + R \sqrt{2 (\gamma_{t-1} + 1 + \ln(1/\delta))}

    It multiplies the standard deviation (the paper's ``beta_t`` is the width itself). ``B`` bounds
    the norm of the reward in the UNIT-VARIANCE kernel and ``R`` the noise, both in raw outcome
    units; the model's prior variance and outcome transform are taken into account. The printed
    width is a bound for ``lam >= 1`` only; ``any_lambda=True`` gives
    ``B + R / sqrt(lam) * sqrt(2 (gain + ln(1/delta)))``, which is one for every ``lam``.

    Args:
        model: A fitted BoTorch model in float64.
        rkhs_bound: ``B``. One number, or one an output.
        noise_bound: ``R``, a standard deviation for Gaussian noise. One number, or one an output.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form for every ``lam``.
        information_gain: An explicit gain in place of the realised one, in nats, or a bound on the
            maximal gain (a :class:`~botorch_bandits.confidence.GainBound`). Models whose
            prior cannot be read need it or ``width``.
        units: ``"outcome"`` for bounds in raw outcome units, ``"prior"`` for multiples of the
            model's prior standard deviation (models that learn the scale of the outcomes).
        width: A constant width in place of all this.
        scale: A factor on the width.
        round_number: See :class:`WidthUpperConfidenceBound`.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Raises:
        ValueError: If neither the two bounds nor ``width`` is given, or both are.

    Example:
        >>> import torch
        >>> from botorch.models import SingleTaskGP
        >>> from botorch.optim import optimize_acqf
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> model = SingleTaskGP(X, X.sin())
        >>> acqf = ImprovedUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        >>> bounds = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> candidate, value = optimize_acqf(acqf, bounds, q=1, num_restarts=2, raw_samples=8)
        >>> candidate.shape
        torch.Size([1, 1])
    """

    def __init__(
        self,
        model: Model,
        *,
        rkhs_bound: float | tuple[float, ...] | None = None,
        noise_bound: float | tuple[float, ...] | None = None,
        delta: float = 0.1,
        any_lambda: bool = False,
        information_gain: float | GainBound | None = None,
        units: str = "outcome",
        width: float | None = None,
        scale: float = 1.0,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            model,
            kernelized_rule(
                type(self).__name__,
                rkhs_bound=rkhs_bound,
                noise_bound=noise_bound,
                delta=delta,
                any_lambda=any_lambda,
                information_gain=information_gain,
                units=units,
                width=width,
            ),
            scale=scale,
            round_number=round_number,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Check the ingredients; see the base class."""
        check_kernelized_options(cls.__name__, options)
        return options

    @classmethod
    def arms_rule(cls, options: dict[str, Any]) -> ArmsRule | None:
        """See the base class."""
        return width_arms_rule(kernelized_rule_of(cls.__name__, options), options)
