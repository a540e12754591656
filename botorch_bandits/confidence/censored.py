r"""Censored feedback (Verma, Dai and Low 2022): its options, its widths and its guarantees.

A query whose outcome has not arrived enters the model at the known minimum. This module contains
what drop-ins, the loop and the rules on arms share: :class:`Censoring` (the options, and why the
theorem does not cover a use), the width of the theorem, and the terms that censoring adds to other
widths.

With the minimum subtracted from the outcomes, :math:`\tilde y_{s,t} = y_s` if the outcome of query
``s`` has arrived within ``m`` rounds, else 0. The posterior mean of these values estimates
:math:`\rho_m f`, where :math:`\rho_m` is the probability of arriving within ``m`` rounds.

The conventions are those of :mod:`botorch_bandits.confidence.igp_ucb`: widths multiply the
posterior STANDARD DEVIATION, logarithms are natural, and kernels have unit variance. ``rkhs_bound``
bounds the norm of ``f - minimum``, and ``outcome_bound`` is ``B_y`` with
``|y - minimum| <= B_y``. With a prior standard deviation ``s``, all bounds and the sum of
deviations must be divided by ``s`` first (the width rules do this). The information gain is that of
all rows, including pending and lost ones. The realized gain may replace the maximal one, because
the proof uses the gain only through ``ln det(I + K / lam)``.

Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML 2022,
Theorem 1 (there the width is ``nu_t``) and its proof, appendix A.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

import torch
from torch import Tensor

from botorch_bandits.checks import (
    check_integer,
    check_nonnegative,
    check_number,
    check_one_of,
    check_positive,
    entries_of,
    store_checked,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.fills import (
    FILLS,
    LOWER_BOUND_DEVIATIONS,
    DelayDistribution,
    Survival,
    check_delay_distribution,
)
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.igp_ucb import (
    BoundedNorm,
    KernelizedWidth,
)
from botorch_bandits.confidence.information_gain import GainBound
from botorch_bandits.confidence.prior_reading import UnreadablePriorError
from botorch_bandits.confidence.theorems import (
    BELOW_FILLS,
    BEYOND_BOUND,
    CENSORED,
    FILL_AS_PUBLISHED,
    LOWERED_MINIMUM,
    NOT_COVERED,
    OTHER_MEAN,
    STANDARD_DEVIATIONS_WITH_NOISE,
    SUM_AS_PUBLISHED,
    UNKNOWN_MINIMUM,
    UNREADABLE_MEAN,
    WITH_CENSORING,
    guarantee_of,
)
from botorch_bandits.confidence.width_rules import (
    Bound,
    ConstantWidth,
    PriorSummary,
    WidthRule,
    bound_constants,
    check_bound,
    combined,
    pick_bound,
)

NOISE_DEVIATIONS = 4.0
"""The largest distance of an outcome below the minimum, in bounds on the noise: Gaussian noise
exceeds it once in 30000 rounds."""

SHARE_OF_RANGE = 0.05
"""The tolerance, as a share of ``outcome_bound``, if no bound on the noise is known."""

SHARE_OF_SPREAD = 0.25
"""The tolerance, as a share of the height of outcomes, if ``outcome_bound`` is unknown, too."""

FEWEST_OUTCOMES = 10
"""With fewer outcomes, it is unknown how far they lie above the minimum."""

SUM_FORMS = ("theorem", "published")
"""The amount that the sum of deviations adds to a width; see :class:`CensoredWidth`."""

FEWEST_BELOW = 3
"""If this many outcomes are not above the minimum, it is not a minimum."""


@dataclass(frozen=True)
class Censoring:
    """The options of censored feedback, the same for a drop-in, for a loop and on arms.

    Attributes:
        minimum: A lower bound on the noise-free reward: one number, or one per output. With None it
            is unknown, and ``minimum_proxy`` is used instead.
        outcome_bound: ``B_y``, the largest distance of an outcome from the minimum. One number, or
            one per output. None is possible with a constant width only, which then has no sum.
        max_delay: ``m``, how long to wait for the outcome of a query; None waits forever.
        unit: What ``max_delay`` counts: ``"rounds"`` or ``"seconds"``.
        window: The queries over which the width sums: ``"pending"``, or ``"all"`` of the last
            ``m``, as in the paper.
        on_lower: What to do with an outcome below ``minimum``: ``"error"``, or ``"lower"`` the
            minimum to it with a warning.
        minimum_proxy: The factor ``w`` of the proxy ``min(mean - w * sd)`` for an unknown minimum.
        predictive: Whether standard deviations include the noise, in bound and sum.
        tolerance: How far noise can push an outcome below ``minimum``. Such an outcome is used
            unchanged, and the first one triggers a :class:`BelowMinimumWarning`; ``on_lower``
            applies to lower ones. For None, see :meth:`tolerated`.
        sum_form: What the sum of deviations adds to a width: ``"theorem"`` or ``"published"``, see
            :class:`CensoredWidth`.
        fill: The value at which a pending query enters. ``"minimum"``: the minimum, as published.
            ``"middle"``: ``minimum + outcome_bound / 2``, which halves the sum in the width.
            ``"soft"``: ``w * mean + (1 - w) * minimum``, with the posterior mean given the outcomes
            that arrived, and ``w`` the probability that the outcome is still to come in time.
            ``"lower_bound"``: the posterior mean minus one standard deviation, given the outcomes
            that arrived. All but the first are clipped to ``[minimum, minimum + outcome_bound]``,
            in which noisy outcomes must lie, and need both numbers in the units of outcomes.
            Queries that were given up, or failed, are at the minimum with any fill.
        delay_distribution: The distribution of delays, for ``fill="soft"``: the probabilities of
            delays 0, 1, 2, ... in rounds, or a cumulative distribution function, which may stay
            below 1 if outcomes can be lost. A delay is the number of rounds (or seconds) after
            which an outcome can be used; 0 and 1 round are equivalent. With None, it is estimated
            from the delays and ages of the queries so far (Kaplan and Meier 1958).

    Raises:
        TypeError: If an option is of the wrong kind.
        ValueError: If an option is infeasible, or two of them contradict each other.
    """

    minimum: float | tuple[float, ...] | None = None
    outcome_bound: float | tuple[float, ...] | None = None
    max_delay: float | None = None
    unit: str = "rounds"
    window: str = "pending"
    on_lower: str = "error"
    minimum_proxy: float | None = None
    predictive: bool = False
    tolerance: float | None = None
    sum_form: str = "theorem"
    _: KW_ONLY
    fill: str = "minimum"
    delay_distribution: DelayDistribution | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        if self.tolerance is not None:
            store_checked(self, tolerance=check_nonnegative("tolerance", self.tolerance))
        if (self.minimum is None) == (self.minimum_proxy is None):
            raise ValueError(
                "pass either minimum=, the least possible outcome, or minimum_proxy=, the factor "
                "of the standard deviation in a lower confidence bound; got "
                f"minimum={self.minimum} and minimum_proxy={self.minimum_proxy}."
            )
        if isinstance(self.minimum, tuple):
            minima = tuple(check_number("minimum", value) for value in self.minimum)
            store_checked(self, minimum=minima)
        elif self.minimum is not None:
            store_checked(self, minimum=check_number("minimum", self.minimum))
        if self.minimum_proxy is not None:
            if isinstance(self.minimum_proxy, bool):
                raise TypeError(
                    f"minimum_proxy is {self.minimum_proxy}; pass the factor of the standard "
                    "deviation in the lower confidence bound, such as minimum_proxy=2.0."
                )
            proxy = check_nonnegative("minimum_proxy", self.minimum_proxy)
            store_checked(self, minimum_proxy=proxy)
        if self.outcome_bound is not None:
            bound = check_bound("outcome_bound", self.outcome_bound)
            store_checked(self, outcome_bound=bound)
        check_one_of("unit", self.unit, ("rounds", "seconds"))
        check_one_of("window", self.window, ("pending", "all"))
        check_one_of("on_lower", self.on_lower, ("error", "lower"))
        check_one_of("predictive", self.predictive, (True, False))
        check_one_of("sum_form", self.sum_form, SUM_FORMS)
        if self.max_delay is not None:
            if self.unit == "rounds":
                store_checked(self, max_delay=check_integer("max_delay", self.max_delay, minimum=1))
            else:
                store_checked(self, max_delay=check_positive("max_delay", self.max_delay))
        if self.window == "all" and (self.max_delay is None or self.unit != "rounds"):
            raise ValueError(
                "window='all' sums over the last m queries: pass max_delay=m, in rounds."
            )
        if self.minimum is None and self.on_lower != "error":
            raise ValueError(
                "on_lower='lower' lowers a known minimum=, but the minimum is unknown: the proxy "
                "moves with the outcomes. Leave on_lower= out."
            )
        self.check_fill()

    @property
    def fills_in(self) -> bool:
        """Whether pending queries enter at a value other than the minimum."""
        return self.fill != "minimum"

    @property
    def fills_by_model(self) -> bool:
        """Whether the posterior given the outcomes that arrived determines the fill."""
        return self.fill in ("soft", "lower_bound")

    def check_fill(self) -> None:
        """Raise an error unless the fill fits the other options; store the checked distribution."""
        check_one_of("fill", self.fill, FILLS)
        if self.delay_distribution is not None:
            if self.fill != "soft":
                raise ValueError(
                    f"delay_distribution= is given, but fill is {self.fill!r}, which does not use "
                    'it. Leave it out, or pass fill="soft".'
                )
            known = self.delay_distribution, self.max_delay, self.unit
            checked = check_delay_distribution(*known)
            store_checked(self, delay_distribution=checked)
        if not self.fills_in:
            return
        needed = {"minimum": self.minimum, "outcome_bound": self.outcome_bound}
        missing = [name for name, value in needed.items() if value is None]
        if missing:
            raise ValueError(
                f"fill={self.fill!r} needs {' and '.join(f'{name}=' for name in missing)}: fills "
                "lie between the minimum and the largest outcome, minimum + outcome_bound. State "
                'them in the units of outcomes, or leave fill= out (fill="minimum").'
            )
        for bound in entries_of(self.outcome_bound):
            if not bound > 0.0:
                raise ValueError(
                    f"fill={self.fill!r} needs a positive outcome_bound=, got {bound}: fills lie "
                    'between minimum and minimum + outcome_bound. Or use fill="minimum".'
                )
        if self.on_lower == "lower":
            raise ValueError(
                f"fill={self.fill!r} does not go with on_lower='lower': fills lie between a "
                "minimum that holds and minimum + outcome_bound. Leave one of the two out."
            )

    def shares_at_ages(
        self,
        ages: Sequence[float],
        arrived: Mapping[float, int],
        num_longer: int,
        max_delay: float | None,
    ) -> tuple[float, ...]:
        """Return the probabilities that the outcomes of pending queries will still arrive in time.

        Args:
            ages: The ages of the queries that are waited for.
            arrived: A map from delays to the number of outcomes that had them, for the estimate.
            num_longer: The number of delays that are known to be longer than any that counts.
            max_delay: How long a query is waited for; None if forever.
        """
        given = self.delay_distribution
        expected = (
            Survival.estimated(arrived, ages, num_longer)
            if given is None
            else Survival.stated(given)
        )
        return tuple(expected.still_to_come(age, max_delay) for age in ages)

    def heights(
        self,
        bound: float | Tensor,
        mean: Tensor,
        deviation: Tensor,
        shares: Tensor,
    ) -> Tensor:
        r"""Return how far fills lie above the minimum, between 0 and ``outcome_bound``.

        .. math::
           \varphi_s - y_{\min} = \tfrac12 B_y, \quad w_s (\mu(x_s) - y_{\min}), \quad
           \mu(x_s) - \sigma(x_s) - y_{\min}

        for ``"middle"``, ``"soft"`` and ``"lower_bound"``, clipped.

        Args:
            bound: ``outcome_bound``, in outcome units.
            mean: The posterior means at pending queries given what arrived, LESS the minimum.
            deviation: The posterior standard deviations there, of the same shape.
            shares: The probability for each that its outcome is still to come in time.
        """
        if self.fill == "middle":
            heights = torch.full_like(mean, 0.5) * bound
        elif self.fill == "soft":
            heights = shares * mean
        elif self.fill == "lower_bound":
            heights = mean - LOWER_BOUND_DEVIATIONS * deviation
        else:
            heights = torch.zeros_like(mean)
        largest = torch.as_tensor(bound, dtype=mean.dtype, device=mean.device)
        return torch.minimum(heights.clamp_min(0.0), largest)

    def tolerated(
        self,
        noise_bound: float | None,
        outcome_bound: float | None,
        heights: Sequence[float],
    ) -> float:
        """Return how far noise can push an outcome below the minimum.

        It is ``tolerance``, if that is given. Otherwise it is :data:`NOISE_DEVIATIONS` times the
        bound on the noise, if one is stated in the units of outcomes, or else
        :data:`SHARE_OF_RANGE` of ``outcome_bound``. If nothing is stated, it is
        :data:`SHARE_OF_SPREAD` of the height of outcomes above the minimum, as soon as that is
        known; until then any outcome is accepted, unless none lies above the minimum.

        Args:
            noise_bound: ``R`` in the units of outcomes; None if it is unknown.
            outcome_bound: ``B_y`` in the units of outcomes; None if it is unknown in these units.
            heights: How far the other outcomes lie above the minimum; negative below it.
        """
        if self.tolerance is not None:
            return self.tolerance
        if noise_bound is not None:
            return NOISE_DEVIATIONS * noise_bound
        if outcome_bound is not None:
            return SHARE_OF_RANGE * outcome_bound
        top = max(heights, default=0.0)
        if len(heights) >= FEWEST_BELOW and top <= 0.0:
            return 0.0
        return SHARE_OF_SPREAD * top if len(heights) >= FEWEST_OUTCOMES else math.inf

    def summed(self, pending: Sequence[int], num_queries: int) -> list[int]:
        """Return the numbers of the queries whose deviations enter the sum in the width.

        Queries are numbered from 0 in the order of issue. In the proof of the theorem, queries that
        are ``m`` rounds old contribute nothing, so the window ``"pending"`` has at most ``m - 1``
        of them.

        Args:
            pending: The numbers of the queries that are waited for, in order.
            num_queries: The number of queries so far.
        """
        if self.outcome_bound is None:
            return []
        if self.window == "all":
            assert self.max_delay is not None
            return list(range(max(0, num_queries - int(self.max_delay)), num_queries))
        if self.max_delay is None or self.unit == "seconds":
            return list(pending)
        oldest = num_queries - int(self.max_delay) + 1
        return [number for number in pending if number >= oldest]

    def gaps(  # noqa: C901, PLR0912 - a gap for each requirement of the theorem
        self,
        values: Sequence[float],
        prior_means: Sequence[Tensor] | None,
        outcomes: Sequence[Tensor] | None,
        units: str = "outcome",
        signs: Sequence[float] | None = None,
        facts: Facts = ALONE,
    ) -> Iterator[str]:
        """Yield why the theorem does not cover a use, in addition to what the width rule knows.

        Args:
            values: The minimum in use, one per output; empty if there is none to check.
            prior_means: The model's prior means, one tensor per output; None if they cannot be
                read.
            outcomes: The observed outcomes, one tensor per output; None if they are not known.
            units: The units of ``outcome_bound``; a bound in prior standard deviations is not
                compared with outcomes.
            signs: One per output, 0 if it has no weight; None if all have one.
            facts: What is known of the use.
        """
        if self.predictive:
            yield STANDARD_DEVIATIONS_WITH_NOISE
        if self.sum_form == "published":
            yield SUM_AS_PUBLISHED
        if (self.predictive or self.sum_form == "published") and self.fills_in:
            yield facts.say(FILL_AS_PUBLISHED, fill=self.fill)
        is_lowered = self.minimum is not None and any(
            value != pick_bound("minimum", self.minimum, j, len(values))
            for j, value in enumerate(values)
        )
        if self.minimum is None:
            yield facts.say(UNKNOWN_MINIMUM)
        if is_lowered:
            yield facts.say(LOWERED_MINIMUM)
        if values and prior_means is None:
            yield facts.say(UNREADABLE_MEAN)
        for j, value in enumerate(values):
            if signs is not None and signs[j] == 0.0:
                continue
            if prior_means is not None:
                difference = float((prior_means[j] - value).abs().max())
                size = abs(value) + 1.0
                if outcomes is not None and len(outcomes[j]):  # outcomes tell how large 1 is
                    size = abs(value) + min(1.0, float((outcomes[j] - value).abs().max()))
                if difference > 1e-6 * size:
                    told = facts.as_told(value)
                    yield facts.say(OTHER_MEAN[is_lowered], difference=difference, told=told)
            if self.outcome_bound is None or units != "outcome" or outcomes is None:
                continue
            bound = pick_bound("outcome_bound", self.outcome_bound, j, len(values))
            if isinstance(bound, Tensor):
                continue
            side = 1.0 if signs is None else signs[j]
            num_below = int((side * (outcomes[j] - value) < -1e-9 * bound).sum())
            if self.fills_in and num_below:
                yield facts.say(BELOW_FILLS, num=num_below, fill=self.fill)
            farthest = float((outcomes[j] - value).abs().max()) if len(outcomes[j]) else 0.0
            if farthest > bound * (1.0 + 1e-9):
                yield facts.say(BEYOND_BOUND, farthest=farthest, bound=bound)


def _no_gaps(facts: Facts) -> Iterable[str]:
    """Return no reasons.

    Args:
        facts: The facts of the use.
    """
    return ()


@dataclass(frozen=True)
class CensoredWidth(WidthRule):
    r"""What censored feedback makes of a width: Verma, Dai and Low 2022, Theorem 1.

    The formulas are those of :class:`.BoundedNorm`, and delays depend neither on noise nor on
    inputs. The theorem covers IGP-UCB and GP-TS with the realized gain. To other widths the sum
    over pending queries is added without a theorem, and the bound on the noise, if they have one,
    is increased by ``outcome_bound``. The rule uses the prior of the CENSORED model, whose gain
    counts pending and lost rows. If the noise differs between rows, ``lam`` is the smallest, and no
    theorem covers the width.

    Attributes:
        inner: The rule for outcomes without delay. Its bound on the norm is one on that of each
            output less its minimum.
        outcome_bound: ``B_y``, a bound on ``|y - minimum|``, in raw outcome units: one number for
            all outputs or one per output. None is for a constant width, to which nothing is then
            added, and for bounds that were not given.
        units: ``"outcome"``: ``outcome_bound`` is in raw outcome units. ``"prior"``: it is a
            multiple of the prior standard deviation. A rule with bounds has its own units.
        any_lambda: Whether the sum has the form that holds for every regularization; the same.
        bounded_outcomes: Use the tighter form for ``y - minimum`` in ``[0, B_y]``, which needs no
            bound on the noise.
        unit: The unit of ``max_delay``, for messages: ``"rounds"`` or ``"seconds"``.
        fill: The value at which pending queries enter, for messages; see
            :mod:`botorch_bandits.confidence.fills`. The sum of deviations is then weighted.
        sum_form: ``"theorem"``: bound and deviations of the sum are in prior standard deviations,
            so that the width does not depend on the unit of the outcomes. ``"published"``: both
            are in units of the outcomes, as in the authors' released code; only together with a
            constant. The two are the same at prior variance 1.
        deviation_sums: The sum of current posterior standard deviations of the censored model over
            pending queries, in raw outcome units: one for all outputs or one per output, each a
            scalar or of the model's batch shape. None while nothing is pending.
        round_number: The round being chosen, if it is not that of the censored model's rows.
        gaps: A function from the facts of the use to the reasons why the theorem does not cover it,
            in addition to those that the rule knows; only a guarantee calls it.
    """

    inner: WidthRule
    outcome_bound: Bound | None = None
    units: str = "outcome"
    any_lambda: bool = False
    bounded_outcomes: bool = False
    unit: str = "rounds"
    fill: str = "minimum"
    sum_form: str = "theorem"
    deviation_sums: Tensor | tuple[Tensor, ...] | None = None
    round_number: int = 1
    gaps: Callable[[Facts], Iterable[str]] = _no_gaps

    def __post_init__(self) -> None:
        """Check the ingredients."""
        rounds = check_integer("round_number", self.round_number, minimum=1)
        store_checked(self, round_number=rounds)
        check_one_of("sum_form", self.sum_form, SUM_FORMS)
        check_one_of("unit", self.unit, ("rounds", "seconds"))
        check_one_of("fill", self.fill, FILLS)
        check_one_of("units", self.units, ("outcome", "prior"))
        rule = self.inner
        is_constant = isinstance(rule, ConstantWidth)
        if self.sum_form == "published" and (
            not is_constant or self.any_lambda or self.bounded_outcomes
        ):
            raise ValueError(
                "sum_form='published' goes with a constant width, the beta_t of the authors' code, "
                f"and without any_lambda= and bounded_outcomes=, not with {type(rule).__name__}. "
                "Pass width=1.0, as in GPUpperConfidenceBound.with_options(width=1.0), or leave "
                "sum_form= out."
            )
        has_defaults = False
        if isinstance(rule, KernelizedWidth):
            has_defaults = rule.not_given == ("rkhs_bound", "noise_bound")
            for level in entries_of(rule.noise_bound):
                if isinstance(level, str) and "noise_bound" not in rule.not_given:
                    raise ValueError(
                        f"noise_bound is {level!r}; with censored feedback it must be a number in "
                        "the units of the outcomes, because the rows of pending queries are not "
                        "outcomes."
                    )
            every = rule.any_lambda or rule.is_mixture
            store_checked(self, units=rule.units, any_lambda=every)
        if self.outcome_bound is not None:
            bound = check_bound("outcome_bound", self.outcome_bound)
            store_checked(self, outcome_bound=bound)
        elif not is_constant and not (has_defaults and self.is_covered):
            raise ValueError(
                "outcome_bound is None, but with censored feedback the width of "
                f"{type(rule).__name__} needs outcome_bound=, how far outcomes can lie above the "
                "minimum. If you know none, pass a constant width=, as in "
                "GPUpperConfidenceBound.with_options(width=2.0), or use "
                "ImprovedUpperConfidenceBound or GPThompsonSampling without rkhs_bound= and "
                "noise_bound=."
            )

    def norms(self, summary: PriorSummary) -> dict[int, BoundedNorm]:
        """See :meth:`WidthRule.norms`; bounds are 0 if the inner rule has none.

        Args:
            summary: The prior of the censored model.
        """
        try:
            active = summary.active
        except UnreadablePriorError as error:
            raise error.in_method(
                "the width needs the model's prior",
                "Pass an explicit width= (without outcome_bound=).",
            ) from error
        norms, found = summary.norms_of(self.inner), {}
        for j, prior in active.items():
            norm = norms.get(j) or BoundedNorm(0.0, 0.0, 0.5, prior.lam, self.any_lambda)
            given = 0.0 if self.outcome_bound is None else self.outcome_bound
            bound = pick_bound("outcome_bound", given, j, summary.num_outputs)
            unit = prior.standard_deviation if self.units == "outcome" else 1.0
            if self.sum_form == "published":  # bound and deviations are in units of the outcomes
                unit = unit / prior.standard_deviation.square()
            found[j] = replace(
                norm, outcome_bound=bound / unit, bounded_outcomes=self.bounded_outcomes
            )
        return found

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the round is that of the rule."""
        if not isinstance(self.inner, KernelizedWidth):
            own = self.inner.width(summary, self.round_number)
            return own if self.outcome_bound is None else own + self.added(summary)
        norms = self.norms(summary)
        each = zip(self.inner.widths(summary, norms), self._pending(summary, norms), strict=True)
        return combined([width + pending for width, pending in each])

    def added(self, summary: PriorSummary) -> Tensor:
        """Return what pending queries add to the width of a rule without bounds.

        Args:
            summary: The prior of the censored model.
        """
        return combined(self._pending(summary, self.norms(summary)))

    def _pending(self, summary: PriorSummary, norms: Mapping[int, BoundedNorm]) -> list[Tensor]:
        """Return what pending queries add to the width of each output."""
        found = []
        for j, norm in norms.items():
            sums = 0.0 if self.deviation_sums is None else self.deviation_sums
            total = pick_bound("deviation_sums", sums, j, summary.num_outputs)
            prior = summary.active[j]
            deviations = torch.as_tensor(total).to(prior.lam) / prior.standard_deviation
            found.append(torch.as_tensor(norm.pending(deviations)))
        return found

    @property
    def is_covered(self) -> bool:
        """Whether a theorem covers what censored feedback makes of the inner rule."""
        rule = self.inner
        return isinstance(rule, KernelizedWidth) and not (
            rule.variation or rule.is_mixture or rule.explicit_gain is not None
        )

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        rule = self.inner
        if not isinstance(rule, KernelizedWidth) or not self.is_covered:
            inner = rule.guarantee(summary, self.round_number, replace(facts, draws=False))
            lost = () if inner.theorem is None else (NOT_COVERED,)
            return guarantee_of(
                WITH_CENSORING,
                facts,
                inner.constants,
                (*inner.gaps, *lost, *self.gaps(facts)),
                inner=inner.method,
            )
        not_given, constants = rule.not_given, {}
        if self.outcome_bound is None:
            not_given = (*not_given, "outcome_bound")
        else:
            constants = bound_constants(outcome_bound=self.outcome_bound)
        form = "in the form for every lam" if self.any_lambda else "as printed"
        if self.bounded_outcomes:
            form = "in the form for bounded outcomes"
        details = f"{form}, with the realized information gain"
        if self.fill != "minimum":
            details += f", and the lemma on fills for fill={self.fill!r}"
        facts = replace(
            facts,
            not_given=not_given,
            fill=self.fill,
            bounded_outcomes=self.bounded_outcomes,
            is_printed=not (self.any_lambda or self.bounded_outcomes),
            constants=constants,
        )
        gaps = self.gaps(facts)
        return rule.guarantee_of(
            CENSORED, summary, facts, gaps=gaps, details=details, unit=self.unit
        )

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        return self.inner.information_gain(summary)

    def bound_on_gain(self) -> GainBound | None:
        return self.inner.bound_on_gain()
