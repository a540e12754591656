r"""IGP-UCB and related widths, for rewards of bounded norm in the kernel's Hilbert space.

This module contains the printed width of IGP-UCB and GP-TS, its form for every regularization, AMM,
and Theorem 3 of GP-UCB. The conventions are those of
:mod:`botorch_bandits.confidence.width_rules`: a width multiplies the posterior STANDARD DEVIATION,
logarithms are natural, and kernels have unit variance. ``rkhs_bound`` bounds the NORM (never its
square) of the reward in that kernel, in the units of the reward, and ``noise_bound`` is ``R`` of
R-sub-Gaussian noise in the same units. With a prior standard deviation ``s``, both must be divided
by ``s`` first (the width rules do this).

**Noise that differs from row to row** (``train_Yvar``). Let the noise of row ``i`` be sub-Gaussian
given the past, with a bound ``R_i`` that is known before its outcome and may depend on the input
and on the past. Divide each row by its bound: with ``D = diag(1/R_i)`` the outcomes become ``D y``
and the kernel matrix ``D K D``. The function and its norm stay the same, and the noise of every
divided row is 1-sub-Gaussian given the past. The proofs only require that the features of a row are
known before its outcome, which is true for those of a divided row, ``phi(x_i)/R_i``. Every theorem
here for ``R = 1`` therefore holds for these rows. The posterior with ``lam = 1`` on the divided
rows is the one with the noise variances ``v_i = R_i^2`` on the original rows: for a model with
these noise variances (in prior units), it is the model's own posterior, the noise term of each
width has the factor 1, and the information gain is

.. math:: \tfrac12 \ln\det(I + V^{-1/2} K V^{-1/2}), \qquad V = \mathrm{diag}(v_i).

This is ``noise_bound="model"``. With one number ``R`` for all rows and a model of any noise
variances ``v_i``, divide by ``sqrt(v_i)`` instead. The noise then has the bound
``max_i R / sqrt(v_i)``, which multiplies the noise term. The proofs require this number to be fixed
before the data, which is the case if no later row has a smaller variance than the first one.

**Functions that differ from one by at most** ``v``. Let the function of round ``s`` be
:math:`f^s`, with :math:`|f^s(x) - f(x)| \le v` at every point for one function ``f`` of bounded
norm. The outcomes are then outcomes of ``f`` with noise and an error :math:`e_s`,
:math:`|e_s| \le v`. With :math:`a = (K + \lambda I)^{-1} k(x)`,

.. math:: \sigma^2(x) = \lVert \varphi(x) - \Phi^\top a \rVert^2 + \lambda \lVert a \rVert^2,
          \qquad |a^\top e| \le \lVert a \rVert \, v \sqrt{n}
          \le v \sqrt{n / \lambda} \; \sigma(x),

so that adding :math:`v \sqrt{n / \lambda}` to a width for ``f`` observed without errors gives a
width for observations with errors, for every ``lam`` and any choice of the errors. The regret of a
round, compared with the best point of that round or any other, is at most twice the new width times
the standard deviation plus :math:`2 v`. Models that restart, as with ``surrogate="fresh"``, have
few rows ``n``, and ``v`` only needs to bound the variation within an epoch.

**Realized rewards and constraints** (Shi and Eryilmaz 2022, Appendices B and D). If
:math:`f^t = f + \varepsilon^t` and :math:`g^t = g + \varepsilon'^t`, regret can be measured in
realized values,

.. math:: R'_T = \max_{x : g(x) \le 0} \sum_t f^t(x) - \sum_t f^t(x_t), \qquad
          V'_T = \lVert [\textstyle\sum_t g^t(x_t)]^+ \rVert .

* If the noise of a round is the same at all points, :math:`R'_T = R_T`: the best point is the same,
  and the noise cancels. Appendix B then needs no inequality.
* If it is independent from point to point, the best point in hindsight depends on it. Over ``N``
  points, the largest sum of noise is at most :math:`R \sqrt{2 T \ln(2 N / \delta)}`. The sum for
  the points that were played is a martingale and at least :math:`-R \sqrt{2 T \ln(2 / \delta)}`, so
  :math:`R'_T` exceeds :math:`R_T` by at most the difference of the two. Appendix B applies
  Hoeffding's inequality at a fixed point, but neither the best point in hindsight nor the points
  that were chosen by earlier noise are fixed; on a continuum the supremum need not be finite.
* :math:`V'_T` is a sum of observed values, so a run knows it. The proof of Theorem 2 bounds it
  before the run by :math:`S \lVert \kappa^{L+1} \rVert / \mu`, which is LESS than the bound for the
  expected values by the whole noise term of (27). Appendix D instead adds another term by
  Hoeffding's inequality.

Sources: Srinivas, Krause, Kakade and Seeger, *Gaussian process optimization in the bandit
setting*, ICML 2010; Chowdhury and Gopalan, *On kernelized multi-armed bandits*, ICML 2017; Flynn
and Reeb, *Tighter confidence bounds for sequential kernel regression*, arXiv 2403.12732, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_instance,
    check_integer,
    check_nonnegative,
    check_one_of,
    check_probability,
    store_checked,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.information_gain import GainBound
from botorch_bandits.confidence.prior_reading import OutputPrior, UnreadablePriorError
from botorch_bandits.confidence.theorems import (
    AMM,
    DEFAULTS,
    GP_UCB_IN_THE_RKHS,
    IGP_UCB,
    Theorem,
    guarantee_of,
)
from botorch_bandits.confidence.width_rules import (
    MODEL_NOISE,
    Bound,
    NoiseBound,
    PriorSummary,
    WidthRule,
    bound_constants,
    check_all_nonnegative,
    check_bound,
    combined,
    largest_regret,
    pick_bound,
)


@dataclass(frozen=True)
class BoundedNorm:
    r"""What theorems on functions of bounded norm assume of one output, in prior units.

    Attributes:
        rkhs_bound: ``B``, a bound on the norm in the unit-variance kernel, at least 0; a number or
            a tensor, in prior standard deviations like all bounds here.
        noise_bound: ``R`` of R-sub-Gaussian noise, at least 0; the same.
        delta: Bounds fail with at most this probability.
        lam: The regularization, (noise variance) / (prior variance), greater than 0.
        any_lambda: Whether widths have the form that holds for every ``lam``; the printed one needs
            ``lam >= 1``.
        outcome_bound: ``B_y`` of censored feedback, ``|y - minimum| <= B_y``; None without
            censoring.
        bounded_outcomes: Whether ``y - minimum`` is in ``[0, B_y]``, so that no bound on the noise
            is needed. This form holds for every ``lam``.
        is_mixture: Whether the width is that of the analytic mixture martingale bound (AMM), which
            holds for every ``lam``.
        variation: ``v``, by how much the function of a round may differ from a fixed one;
            :func:`width_of_variation` is then added to a width.

    Raises:
        ValueError: If a value is out of its range.

    Example:
        >>> BoundedNorm(2.0, 0.1, delta=math.exp(-1.0)).width(0.0).item()
        2.2
        >>> censored = BoundedNorm(2.0, 0.1, delta=2.0 * math.exp(-1.0), outcome_bound=0.9)
        >>> censored.width(0.0, deviation_sum=0.5).item()
        4.45
    """

    rkhs_bound: float | Tensor
    noise_bound: float | Tensor
    delta: float
    lam: float | Tensor = 1.0
    any_lambda: bool = False
    outcome_bound: float | Tensor | None = None
    bounded_outcomes: bool = False
    is_mixture: bool = False
    variation: float | Tensor = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        for name in ("rkhs_bound", "noise_bound", "variation", "outcome_bound"):
            value = vars(self)[name]
            if value is not None:
                store_checked(self, **{name: check_all_nonnegative(name, value)})
        store_checked(self, delta=check_probability("delta", self.delta))
        lam = torch.as_tensor(self.lam, dtype=DTYPE)
        if not (lam > 0).all():
            raise ValueError(f"lam is {lam.tolist()}; it is a noise variance and must be positive.")
        store_checked(self, lam=lam)

    @property
    def is_for_every_lam(self) -> bool:
        """Whether the width is a bound for every regularization."""
        return self.any_lambda or self.bounded_outcomes or self.is_mixture

    @cached_property
    def terms(self) -> tuple[Any, float]:
        r"""The numbers ``r`` and ``c`` of the noise's term :math:`r \sqrt{2 (\gamma + c)}`."""
        noise, delta = self.noise_bound, self.delta
        if self.outcome_bound is not None and self.bounded_outcomes:
            noise = self.outcome_bound / 2.0  # one event replaces those of noise and of censoring
        elif self.outcome_bound is not None:
            noise, delta = noise + self.outcome_bound, delta if self.is_mixture else delta / 2.0
        level = math.log(1.0 / delta)
        return (noise / self.lam**0.5, level) if self.is_for_every_lam else (noise, 1.0 + level)

    def width(
        self, information_gain: float | Tensor, deviation_sum: float | Tensor = 0.0
    ) -> Tensor:
        r"""Return the width, a float64 tensor of the shape to which everything broadcasts.

        .. math::
           B + R \sqrt{2 (\gamma + 1 + \ln(1/\delta))}, \qquad
           B + \frac{R}{\sqrt\lambda} \sqrt{2 (\gamma + \ln(1/\delta))}, \qquad
           \sqrt{B^2 + \frac{2 R^2}{\lambda} (\gamma + \ln(1/\delta))},

        as printed, for every ``lam``, and by the mixture (there with
        :math:`\gamma = \tfrac12 \ln\det(I + K / a_0)`, :math:`a_0 = \lambda` and
        :math:`c = R^2 / \lambda`, which must be fixed before any data). Sources: Chowdhury and
        Gopalan 2017, Theorem 2 (there ``beta_t``), and its proof before it sets ``lam = 1 + 2/T``
        (the self-normalized bound of Abbasi-Yadkori 2011 in feature space); Flynn and Reeb 2024,
        the analytic bound. The proof uses the gain only through ``ln det(I + K / lam)``, so the
        realized information gain may replace the maximal one; the printed width then holds for
        every ``lam >= 1``, and is NOT a bound for ``lam < 1``. The scale ``v_t`` of GP-TS (Theorem
        4) is this width at ``delta / 2``.

        With censored feedback, ``R`` becomes ``R + B_y``, ``delta`` becomes ``delta / 2``, and
        :meth:`pending` is added: Verma, Dai and Low 2022, Theorem 1 (``nu_t``). GP-TS-SDF
        (Theorem 3) uses it at ``delta / 2``. If outcomes are bounded, ``R`` becomes ``B_y / 2``:
        the censored value of an outcome after ``m`` rounds, which is the outcome or 0, has the mean
        :math:`\rho_m f(x)` and a range of ``B_y``, so it is ``B_y / 2``-sub-Gaussian (Hoeffding's
        lemma).

        Args:
            information_gain: The gain of the data in the posterior (0 without data), in nats, at
                least 0; with censored feedback that of all rows.
            deviation_sum: See :meth:`pending`.
        """
        gain = check_all_nonnegative("information_gain", information_gain)
        return self.width_at(gain) + self.pending(deviation_sum)

    def width_at(self, information_gain: Tensor) -> Tensor:
        """Return the width while nothing is pending; the gain is not checked.

        Args:
            information_gain: See :meth:`width`.
        """
        factor, constant = self.terms
        of_noise: Tensor = factor * (2.0 * (information_gain + constant)).sqrt()
        if self.is_mixture:
            return (self.rkhs_bound**2 + of_noise.square()).sqrt()
        return self.rkhs_bound + of_noise

    def pending(self, deviation_sum: float | Tensor) -> float | Tensor:
        r"""Return what outcomes that are missing may change, 0 without censoring.

        .. math:: B_y \sum_s \sigma_{t-1}(x_s), \qquad
                  \frac{B_y}{\lambda} \sum_s \sigma_{t-1}(x_s),

        as printed, and for every ``lam``. The paper sums over the last ``m`` queries; in its proof
        only queries that are still pending, and younger than ``m`` rounds, contribute, so the sum
        over them is valid and smaller.

        Args:
            deviation_sum: The sum of CURRENT posterior standard deviations, at least 0.
        """
        if self.outcome_bound is None:
            return 0.0
        deviations = check_all_nonnegative("deviation_sum", deviation_sum)
        return self.outcome_bound * deviations / (self.lam if self.is_for_every_lam else 1.0)


def gp_ucb_rkhs_width(
    rkhs_bound: float | Tensor,
    maximal_information_gain: float | Tensor,
    round_number: int,
    delta: float,
) -> Tensor:
    r"""Return the width of GP-UCB for a function in the RKHS.

    .. math:: w_t = \sqrt{2 B^2 + 300 \gamma_t \ln^3(t / \delta)}

    Source: Srinivas et al. 2010, Theorem 3 (there ``beta_t = w_t ** 2`` and ``B`` bounds the
    SQUARED norm; here ``B`` bounds the norm). Assumes noise bounded by ``sigma`` almost surely and
    ``lam = sigma ** 2``. The gain is the MAXIMAL one of ``t`` observations: the theorem is not
    proven for the realized gain.

    Args:
        rkhs_bound: ``B``, at least 0. Scalar or tensor.
        maximal_information_gain: An upper bound on ``gamma_t``, in nats. Scalar or tensor.
        round_number: ``t``, from 1.
        delta: The bound fails with at most this probability.

    Returns:
        A float64 tensor of the broadcast shape.
    """
    t = check_integer("round_number", round_number, minimum=1)
    delta = check_probability("delta", delta)
    bound = check_all_nonnegative("rkhs_bound", rkhs_bound)
    gain = check_all_nonnegative("maximal_information_gain", maximal_information_gain)
    return torch.sqrt(2.0 * bound**2 + 300.0 * gain * math.log(t / delta) ** 3)


DEFAULT_RKHS_BOUND = 1.0
"""The default bound on the norm, in prior standard deviations."""


def check_noise_bound(bound: NoiseBound) -> NoiseBound:
    """Return a noise bound: one number, one per output or one per replicate, or ``"model"``.

    Args:
        bound: A tuple can have ``"model"`` for some outputs.

    Raises:
        ValueError: If it is another string, or a number is negative or not finite.
    """
    if isinstance(bound, str):
        if bound != MODEL_NOISE:
            raise ValueError(
                f"noise_bound is {bound!r}; it must be a number of at least 0, in the units of the "
                f"outcomes, or {MODEL_NOISE!r} for the noise variances of the model's rows."
            )
        return bound
    if isinstance(bound, tuple):
        return tuple(check_noise_bound(each) for each in bound)  # type: ignore[misc]
    return check_bound("noise_bound", bound)


@dataclass(frozen=True)
class NormBounds:
    """Bounds on the norm of the reward and on the noise, as theorems for such rewards use them.

    Attributes:
        rkhs_bound: ``B``, a bound on the norm of each output in its unit-variance kernel, in raw
            outcome units. One number for all outputs or one per output; a float64 tensor has one
            number per replicate.
        noise_bound: ``R`` of R-sub-Gaussian noise, in raw outcome units, with the same choices.
            With ``"model"`` instead of a number, the noise of each row is bounded by the square
            root of its noise variance in the model.
        delta: The bound fails with at most this probability.
        units: ``"outcome"``: the bounds are in raw outcome units. ``"prior"``: they are multiples
            of the prior standard deviation, for models that learn the scale of the outcomes.
        not_given: The names, among ``"rkhs_bound"`` and ``"noise_bound"``, of bounds that the user
            did not give. ``rkhs_bound`` is then a multiple of the prior standard deviation
            regardless of ``units``, and ``noise_bound="model"`` is the standard deviation of the
            modeled noise, used as ``R`` of the printed width. Missing bounds void every statement.
    """

    rkhs_bound: Bound
    noise_bound: NoiseBound
    delta: float
    units: str = "outcome"
    not_given: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(self, rkhs_bound=check_bound("rkhs_bound", self.rkhs_bound))
        store_checked(self, noise_bound=check_noise_bound(self.noise_bound))
        store_checked(self, delta=check_probability("delta", self.delta))
        check_one_of("units", self.units, ("outcome", "prior"))
        for name in self.not_given:
            check_one_of("not_given", name, tuple(DEFAULTS))

    def units_of(self, prior: OutputPrior) -> tuple[float | Tensor, float | Tensor]:
        """Return what divides the bounds on norm and noise, for prior standard deviations.

        Args:
            prior: The prior of the output.
        """
        unit = prior.standard_deviation if self.units == "outcome" else 1.0
        return (
            1.0 if "rkhs_bound" in self.not_given else unit,
            1.0 if "noise_bound" in self.not_given else unit,
        )

    @property
    def is_relative(self) -> bool:
        """Whether bounds are multiples of the prior standard deviation."""
        return self.units == "prior" or bool(self.not_given)

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """Return the realized gain, summed over outputs; None if it cannot be read.

        Args:
            summary: The prior summary of the model.
        """
        return summary.realized_information_gain()

    def guarantee_of(
        self, theorem: Theorem, summary: PriorSummary, facts: Facts, **words: Any
    ) -> Guarantee:
        """Return what a theorem on the norm guarantees.

        Args:
            theorem: The theorem.
            summary: The prior summary of the model.
            facts: What is known of its use, and what is particular to the width.
            **words: Further arguments of :func:`.guarantee_of`, and fields of the theorem's texts.
        """
        lam, gain = summary.smallest_lam(), self.information_gain(summary)
        not_given = facts.not_given or self.not_given
        # without a readable prior, bounds are taken as multiples of its standard deviation
        in_units = self.is_relative or lam is None
        facts = summary.known_to(
            facts, self.noise_bound, not_given=not_given, in_prior_units=in_units
        )
        bounds: dict[str, NoiseBound] = {"rkhs_bound": self.rkhs_bound}
        if not facts.bounded_outcomes:
            bounds["noise_bound"] = self.noise_bound
        constants = {**bound_constants(delta=self.delta, **bounds), **facts.constants}
        known = {"lam": lam, "information_gain": None if gain is None else float(gain.max())}
        constants |= {name: value for name, value in known.items() if value is not None}
        constants |= constants_of_means(facts)
        largest = largest_regret(summary, self.rkhs_bound, self.is_relative, self.not_given)
        return guarantee_of(theorem, facts, constants, largest=largest, **words)


def constants_of_means(facts: Facts) -> dict[str, float]:
    """Return the prior means that are constants of a guarantee, by name."""
    means = facts.prior_means
    names = ["prior_mean"] if len(means) == 1 else [f"prior_mean_{j}" for j in range(len(means))]
    return {n: mean for n, mean in zip(names, means, strict=True) if not math.isnan(mean)}


@dataclass(frozen=True)
class KernelizedWidth(NormBounds, WidthRule):
    """IGP-UCB and the scale of GP-TS: Chowdhury and Gopalan 2017, Theorems 2 and 4; and AMM.

    See :class:`NormBounds` for the bounds and their units.

    Attributes:
        any_lambda: Use the form that holds for every regularization instead of the printed one,
            which needs ``lam >= 1``.
        explicit_gain: The information gain to use instead of the realized one: a number, or a bound
            on the maximal gain as a function of the number of observations. For a model whose prior
            cannot be read, the bounds are interpreted in units of its prior standard deviation.
        variation: By how much the function of a round may differ from a fixed one, in the units of
            the bounds; only for models with one output.
        is_mixture: Use the width of AMM at the model's own regularization: Flynn and Reeb 2024.
    """

    any_lambda: bool = False
    explicit_gain: float | GainBound | None = None
    variation: float = 0.0
    is_mixture: bool = False

    def __post_init__(self) -> None:
        """Check the ingredients."""
        super().__post_init__()
        store_checked(self, variation=check_nonnegative("variation", self.variation))
        gain = self.explicit_gain
        if gain is not None and not isinstance(gain, GainBound):
            store_checked(self, explicit_gain=check_nonnegative("information_gain", gain))

    def norms(self, summary: PriorSummary) -> dict[int, BoundedNorm]:
        try:
            active = summary.active
        except UnreadablePriorError as error:
            # with one bound per output, or the model's own noise, no number can stand for it
            is_one = not isinstance(self.rkhs_bound, tuple) and not isinstance(
                self.noise_bound, tuple | str
            )
            has_form = not (self.any_lambda or self.variation or self.is_mixture)
            if self.explicit_gain is not None and has_form and is_one:
                return {0: BoundedNorm(self.rkhs_bound, self.noise_bound, self.delta)}  # type: ignore[arg-type]
            raise error.in_method(
                "the width needs the model's prior",
                "Pass information_gain= (bounds are then in units of the prior standard "
                "deviation, any_lambda=False) or an explicit width= "
                "(ImprovedUpperConfidenceBound), or use BanditGP or SingleTaskGP.",
            ) from error
        if self.variation and len(active) > 1:
            raise ValueError(
                f"variation is {self.variation:g}, but the model has {len(active)} outputs. Give "
                "each output its own model, or leave variation= out."
            )
        count, share, found = summary.num_outputs, self.delta / len(active), {}
        for j, prior in active.items():
            of_norm, of_noise = self.units_of(prior)
            noise = pick_bound("noise_bound", self.noise_bound, j, count)
            if noise != MODEL_NOISE:
                noise = noise / of_noise
            elif self.any_lambda or self.is_mixture or "noise_bound" in self.not_given:
                noise = prior.lam.sqrt()  # the smallest one of all rows
            else:
                noise = 1.0  # rows divided by their noise bound have R = 1 and lam = 1
            norm = pick_bound("rkhs_bound", self.rkhs_bound, j, count) / of_norm
            found[j] = BoundedNorm(
                norm,
                noise,
                share,
                prior.lam,
                self.any_lambda,
                is_mixture=self.is_mixture,
                variation=self.variation / of_norm,
            )
        return found

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        return combined(self.widths(summary, summary.norms_of(self)))

    def widths(self, summary: PriorSummary, norms: Mapping[int, BoundedNorm]) -> list[Tensor]:
        """Return the width of each active output.

        Args:
            summary: The prior of the model without pending points.
            norms: What is assumed of each of them: :meth:`norms`, perhaps with censored feedback.
        """
        gain = None if self.explicit_gain is None else self._evaluate_explicit_gain(summary)
        widths = []
        for j, norm in norms.items():
            widths.append(norm.width_at(summary.active[j].gain() if gain is None else gain))
        if self.variation:
            (norm,) = norms.values()
            lam, rows = torch.as_tensor(norm.lam), summary.weight_of_rows
            widths[0] = widths[0] + width_of_variation(norm.variation, rows, lam)
        return widths

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        if self.is_mixture:
            return self.guarantee_of(AMM, summary, facts)
        constants, variation = {}, self.variation
        if variation:
            constants["variation"] = variation
            if self.units == "prior":
                (prior,) = summary.active.values()
                variation *= float(prior.standard_deviation.max())
        gain, realized = self.information_gain(summary), summary.realized_information_gain()
        small: dict[str, Any] = {}
        if gain is not None and realized is not None and bool((gain < realized - 1e-9).any()):
            small = {"small_gain": float(gain.max()), "realized_gain": float(realized.max())}
        given = self.bound_on_gain()
        facts = replace(
            facts,
            variation=variation,
            is_printed=not self.any_lambda,
            gain_is_number=self.explicit_gain is not None and given is None,
            constants=constants,
            **small,
        )
        form = "in the form for every lam" if self.any_lambda else "as printed"
        source = "the realized" if self.explicit_gain is None else "a given"
        return self.guarantee_of(
            IGP_UCB,
            summary,
            facts,
            gaps=() if given is None else given.gaps_with(summary.smallest_lam()),
            assumptions=() if given is None else (given.assumption,),
            details=f"{form}, with {source} information gain",
            varying=", functions that vary" if self.variation else "",
        )

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        if self.explicit_gain is None:
            return summary.realized_information_gain()
        return self._evaluate_explicit_gain(summary)

    def bound_on_gain(self) -> GainBound | None:
        return self.explicit_gain if isinstance(self.explicit_gain, GainBound) else None

    def _evaluate_explicit_gain(self, summary: PriorSummary) -> Tensor:
        if not isinstance(self.explicit_gain, GainBound):
            return torch.as_tensor(self.explicit_gain, dtype=DTYPE)
        # one number of observations, or one per replicate
        rows = torch.as_tensor(summary.num_rows)
        bounds = [self.explicit_gain(number) for number in rows.reshape(-1).tolist()]
        return torch.tensor(bounds, dtype=DTYPE).reshape(rows.shape)


@dataclass(frozen=True)
class RKHSWidth(WidthRule):
    """GP-UCB for a function in the RKHS: Srinivas et al. 2010, Theorem 3.

    Attributes:
        rkhs_bound: ``B``, a bound on the norm (not on its square) in the unit-variance kernel, in
            raw outcome units.
        gain_bound: Bounds the MAXIMAL information gain of ``t`` observations.
        delta: The bound fails with at most this probability.
    """

    rkhs_bound: float | Tensor
    gain_bound: GainBound
    delta: float
    needs_round: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the ingredients."""
        store_checked(self, rkhs_bound=check_bound("rkhs_bound", self.rkhs_bound))
        store_checked(self, delta=check_probability("delta", self.delta))
        remedy = (
            "Theorem 3 needs a bound on the maximal information gain: pass "
            "information_gain=WaterFillingGain(kernel_matrix, lam)."
        )
        check_instance("information_gain", self.gain_bound, GainBound, remedy)

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        gain, priors = self.gain_bound(round_number), summary.active.values()
        share = self.delta / len(priors)
        units = [prior.standard_deviation for prior in priors]
        return combined(
            [gp_ucb_rkhs_width(self.rkhs_bound / s, gain, round_number, share) for s in units]
        )

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        gain, small = self.gain_bound(round_number), {}
        realized = [float(prior.gain().max()) for prior in summary.readable.values()]
        if realized and gain < max(realized) - 1e-9:
            small = {"small_gain": gain, "realized_gain": max(realized)}
        facts = summary.known_to(facts, **small)
        constants = bound_constants(delta=self.delta, rkhs_bound=self.rkhs_bound)
        return guarantee_of(
            GP_UCB_IN_THE_RKHS,
            facts,
            {**constants, "maximal_information_gain": gain, **constants_of_means(facts)},
            self.gain_bound.gaps_with(summary.smallest_lam()),
            (self.gain_bound.assumption,),
            largest_regret(summary, self.rkhs_bound, False),
        )

    def bound_on_gain(self) -> GainBound | None:
        return self.gain_bound


# --- functions that vary with the round -----------------------------------------------------------


def width_of_variation(variation: float | Tensor, num_rows: float | Tensor, lam: Tensor) -> Tensor:
    r"""Return the amount that varying functions add to a width, :math:`v \sqrt{n / \lambda}`.

    Args:
        variation: ``v``, in prior standard deviations.
        num_rows: ``n``, the sum of the weights of the rows, which is their number without weights.
        lam: The regularization of a row of weight 1; the smallest one if other rows differ.

    Example:
        >>> lam = torch.tensor(0.25, dtype=torch.float64)
        >>> width_of_variation(0.1, 16, lam)
        tensor(0.8000, dtype=torch.float64)
    """
    rows = torch.as_tensor(num_rows, dtype=DTYPE, device=lam.device)
    return variation * torch.sqrt(rows / lam)


def realized_regret_bound(
    regret_bound: float,
    horizon: int,
    noise_bound: float,
    delta: float,
    num_points: int | None = None,
) -> float:
    r"""Return a bound on regret in realized rewards: Appendix B of Shi and Eryilmaz 2022.

    With probability at least :math:`1 - \delta`, besides that of the bound for expected rewards,

    .. math:: R'_T \le R_T + R \sqrt{2 T}
              \bigl(\sqrt{\ln(2 N / \delta)} + \sqrt{\ln(2 / \delta)}\bigr)

    if the noise is independent from point to point, and :math:`R'_T = R_T` if the noise of a round
    is the same at all points.

    Args:
        regret_bound: A bound on the cumulative regret in expected rewards.
        horizon: ``T``.
        noise_bound: ``R``.
        delta: The probability of failure for the noise.
        num_points: ``N``, the number of points that may be the best in hindsight; None if the noise
            of a round is the same at all points.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> realized_regret_bound(50.0, 100, 0.1, 0.1)
        50.0
        >>> round(realized_regret_bound(50.0, 100, 0.1, 0.1, num_points=20), 1)
        55.9
    """
    regret_bound = check_nonnegative("regret_bound", regret_bound)
    horizon = check_integer("horizon", horizon, minimum=1)
    noise_bound = check_nonnegative("noise_bound", noise_bound)
    delta = check_probability("delta", delta)
    if num_points is None:
        return regret_bound
    num_points = check_integer("num_points", num_points, minimum=1)
    logs = math.log(2.0 * num_points / delta), math.log(2.0 / delta)
    return regret_bound + noise_bound * math.sqrt(2.0 * horizon) * sum(map(math.sqrt, logs))
