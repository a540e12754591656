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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_integer,
    check_nonnegative,
    check_number,
    check_one_of,
    check_positive,
    check_probability,
    entries_of,
    store_checked,
)
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.confidence.fills import BETWEEN, FILLS, Filling
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.hypotheses import NORM_OF_THE_REST, SUB_GAUSSIAN_NOISE
from botorch_bandits.confidence.igp_ucb import (
    DEFAULT_RKHS_BOUND,
    AMMWidth,
    KernelizedWidth,
    check_not_given,
    gaps_of_defaults,
    gaps_of_small_lam,
    has_row_noise,
    norm_width,
)
from botorch_bandits.confidence.information_gain import GainBound
from botorch_bandits.confidence.prior_reading import OutputPrior, UnreadablePriorError
from botorch_bandits.confidence.theorems import CENSORED, guarantee_of
from botorch_bandits.confidence.width_rules import (
    Bound,
    ConstantWidth,
    PriorSummary,
    WidthRule,
    bound_constants,
    check_bound,
    combine_outputs,
    largest_regret,
    no_ingredient,
    of_constant_width,
    pick_bound,
    prior_gaps,
)

NEEDED = "rkhs_bound=, noise_bound= and outcome_bound="
"""The bounds that the theorems need."""

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
class Censoring(Filling):
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
            yield "standard deviations include the noise"
        if self.sum_form == "published":
            yield "the terms of pending queries are those of the published code"
        if (self.predictive or self.sum_form == "published") and self.fills_in:
            yield f"the published code has no fill={self.fill!r}, and no theorem covers both"
        is_lowered = self.minimum is not None and any(
            value != pick_bound("minimum", self.minimum, j, len(values))
            for j, value in enumerate(values)
        )
        if self.minimum is None:
            yield facts.say("the {minimum} is unknown; a confidence bound replaces it")
        if is_lowered:
            yield facts.say("the {minimum} was moved to an observed outcome")
        if values and prior_means is None:
            yield facts.say("the prior mean cannot be read; it must equal the {minimum}")
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
                    yield facts.say(
                        "the prior mean differs from the {minimum} by {difference:.4g}; {state}"
                        "give the model a fixed prior mean of {told:g} (BanditGP: prior_mean=)",
                        difference=difference,
                        state=f"state minimum={told:g} and " if is_lowered else "",
                        told=told,
                    )
            if self.outcome_bound is None or units != "outcome" or outcomes is None:
                continue
            bound = pick_bound("outcome_bound", self.outcome_bound, j, len(values))
            if isinstance(bound, Tensor):
                continue
            side = 1.0 if signs is None else signs[j]
            num_below = int((side * (outcomes[j] - value) < -1e-9 * bound).sum())
            if self.fills_in and num_below:
                yield facts.say(
                    "{num} outcomes lie {below} the {minimum}, but fill={fill!r} needs noisy "
                    "outcomes on one side of it, at most outcome_bound away",
                    num=num_below,
                    fill=self.fill,
                )
            farthest = float((outcomes[j] - value).abs().max()) if len(outcomes[j]) else 0.0
            if farthest > bound * (1.0 + 1e-9):
                yield facts.say(
                    "an observed outcome is {farthest:.4g} from the {minimum}, more than "
                    "outcome_bound = {bound:.4g}",
                    farthest=farthest,
                    bound=bound,
                )


DIFFERENCES = "outcomes differ from the {minimum} by at most outcome_bound"

IN_PRIOR_UNITS = (
    "rkhs_bound, outcome_bound and, if it is used, noise_bound are multiples of the prior standard "
    "deviation"
)
"""What bounds are if they are not in the units of outcomes."""


ALL_QUERIES_ENTER = (
    "X_pending has every query that is waited for, and each query that was given up, failed or was "
    "retracted is a row of the model with the {minimum} as its outcome"
)
"""What the user of a drop-in must ensure; a loop does it by itself."""


@dataclass(frozen=True)
class CensoredWidth(WidthRule):
    r"""Censored feedback: Verma, Dai and Low 2022, Theorem 1.

    The formulas are those of :class:`.BoundedNorm`, and delays depend neither on noise nor on
    inputs. The rule uses the prior of the CENSORED model, whose gain counts pending and lost rows.
    If the noise differs between rows, ``lam`` is the smallest, and no theorem covers the width; see
    :func:`gaps_of_rows`.

    Attributes:
        rkhs_bound: ``B``, a bound on the norm of each output less its minimum in its unit-variance
            kernel, in raw outcome units. One number for all outputs or one per output.
        noise_bound: ``R`` of R-sub-Gaussian noise, in raw outcome units, with the same choices; not
            used with ``bounded_outcomes``.
        outcome_bound: ``B_y``, a bound on ``|y - minimum|``, in raw outcome units, with the same
            choices.
        delta: The bound fails with at most this probability.
        any_lambda: Use the form that holds for every regularization instead of the printed one.
        bounded_outcomes: Use the tighter form for ``y - minimum`` in ``[0, B_y]``, which holds for
            every regularization: the censored value of an outcome after ``m`` rounds, which is the
            outcome or 0, has the mean :math:`\rho_m f(x)` and a range of ``B_y``, so it is
            ``B_y / 2``-sub-Gaussian (Hoeffding's lemma). One event replaces two.
        units: ``"outcome"``: bounds are in raw outcome units. ``"prior"``: they are multiples of
            the prior standard deviation.
        constant: A constant that replaces everything but the sum over pending queries (the paper's
            ``beta_t``). The sum is kept if ``outcome_bound`` is given.
        unit: The unit of ``max_delay``, for messages: ``"rounds"`` or ``"seconds"``.
        not_given: The bounds that the user did not give. ``rkhs_bound`` is then a multiple of the
            prior standard deviation regardless of ``units``, ``noise_bound`` is that of the model's
            noise, and without ``outcome_bound`` the width is that of feedback without delays.
            Missing bounds void every statement.
        fill: The value at which pending queries enter, for messages; see
            :mod:`botorch_bandits.confidence.fills`. The sum of deviations is then weighted.
        sum_form: ``"theorem"``: bound and deviations of the sum are in prior standard deviations,
            so that the width does not depend on the unit of the outcomes. ``"published"``: both
            are in units of the outcomes, as in the authors' released code; only together with
            ``constant``. The two are the same at prior variance 1.
    """

    rkhs_bound: Bound | None = None
    noise_bound: Bound | None = None
    outcome_bound: Bound | None = None
    delta: float = 0.1
    any_lambda: bool = False
    bounded_outcomes: bool = False
    units: str = "outcome"
    constant: float | None = None
    unit: str = "rounds"
    not_given: tuple[str, ...] = ()
    fill: str = "minimum"
    sum_form: str = "theorem"

    def __post_init__(self) -> None:
        """Check the ingredients."""
        check_one_of("sum_form", self.sum_form, SUM_FORMS)
        if self.sum_form == "published" and (
            self.constant is None or self.any_lambda or self.bounded_outcomes
        ):
            raise ValueError(
                "sum_form='published' goes with a constant width, the beta_t of the authors' code, "
                "and without any_lambda= and bounded_outcomes=. Pass width=1.0, or leave sum_form= "
                "out."
            )
        check_one_of("unit", self.unit, ("rounds", "seconds"))
        check_one_of("fill", self.fill, FILLS)
        check_not_given(self.not_given)
        given = {
            "rkhs_bound": self.rkhs_bound,
            "noise_bound": self.noise_bound,
            "outcome_bound": self.outcome_bound,
        }
        bounds = {name: bound for name, bound in given.items() if bound is not None}
        for level in entries_of(self.noise_bound):
            if isinstance(level, str):
                raise ValueError(_needs_a_number(level))
        store_checked(self, **{name: check_bound(name, each) for name, each in bounds.items()})
        store_checked(self, delta=check_probability("delta", self.delta))
        check_one_of("any_lambda", self.any_lambda, (True, False))
        check_one_of("bounded_outcomes", self.bounded_outcomes, (True, False))
        check_one_of("units", self.units, ("outcome", "prior"))
        if self.constant is not None:
            store_checked(self, constant=check_nonnegative("width", self.constant))
            if self.rkhs_bound is not None or self.noise_bound is not None:
                raise ValueError(
                    "give either width= or rkhs_bound= and noise_bound=, not both; got "
                    f"width={self.constant}. With width=, outcome_bound= adds the sum over "
                    "pending queries."
                )
            return
        needed = [name for name in given if name != "noise_bound" or not self.bounded_outcomes]
        missing = [
            f"{name}=" for name in needed if given[name] is None and name not in self.not_given
        ]
        if missing:
            raise ValueError(
                f"the width of censored feedback needs {' and '.join(missing)} (or a constant "
                "width=, or neither rkhs_bound= nor noise_bound=)."
            )

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """Return the width while nothing is pending; see :meth:`WidthRule.width`."""
        zero = torch.zeros((), dtype=DTYPE)
        return self.censored_width(summary, (zero,) * summary.num_outputs)

    def censored_width(self, summary: PriorSummary, deviation_sums: Sequence[Tensor]) -> Tensor:
        """Return the width with pending queries, of the model's batch shape.

        Args:
            summary: The prior of the censored model.
            deviation_sums: For each output the sum of current posterior standard deviations of the
                censored model over pending queries, in raw outcome units.

        Raises:
            UnreadablePriorError: If the model's prior is needed but cannot be read.
        """
        num_outputs = summary.num_outputs
        if self.constant is not None and self.outcome_bound is None:
            return torch.tensor(self.constant, dtype=DTYPE)

        def pick(name: str, j: int, unit: float | Tensor) -> float | Tensor:
            bound = getattr(self, name)
            return 0.0 if bound is None else pick_bound(name, bound, j, num_outputs) / unit

        def pick_noise(j: int, prior: OutputPrior, unit: float | Tensor) -> float | Tensor:
            if "noise_bound" in self.not_given:
                return prior.lam.sqrt()
            return pick("noise_bound", j, unit)

        def of_output(j: int, prior: OutputPrior, delta: float) -> Tensor:
            if self.sum_form == "published":
                unit = 1.0 if self.units == "outcome" else 1.0 / prior.standard_deviation
                return pick("outcome_bound", j, unit) * deviation_sums[j].to(prior.lam)
            unit = prior.standard_deviation if self.units == "outcome" else 1.0
            deviations = deviation_sums[j].to(prior.lam) / prior.standard_deviation
            rkhs_bound = pick("rkhs_bound", j, 1.0 if "rkhs_bound" in self.not_given else unit)
            noise_bound = pick_noise(j, prior, unit)
            outcome_bound = pick("outcome_bound", j, unit)
            for_every_lam = self.any_lambda or self.bounded_outcomes
            pending = outcome_bound * deviations / (prior.lam if for_every_lam else 1.0)
            if self.constant is not None:
                return pending
            noise, share = noise_bound + outcome_bound, delta / 2.0
            if self.bounded_outcomes:  # one event replaces those of noise and of censoring
                noise, share = outcome_bound / 2.0, delta
            gain = prior.information_gain
            width = norm_width(rkhs_bound, noise, gain, share, prior.lam, for_every_lam)
            return width + pending

        try:
            width = combine_outputs(summary, self.delta, of_output)
        except UnreadablePriorError as error:
            raise error.in_method(
                "the width needs the model's prior",
                "Pass an explicit width= (without outcome_bound=).",
            ) from error
        return width if self.constant is None else width + self.constant

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        if self.constant is not None:
            return of_constant_width(
                f"censored feedback, constant width {self.constant:g}",
                {"width": float(self.constant)},
                (no_ingredient(self.constant, NEEDED),) if self.not_given else (),
            )
        bounds = {"rkhs_bound": self.rkhs_bound, "outcome_bound": self.outcome_bound}
        if not self.bounded_outcomes:
            bounds["noise_bound"] = self.noise_bound
        constants = bound_constants(
            self.delta, **{name: bound for name, bound in bounds.items() if bound is not None}
        )
        gaps = [*prior_gaps(summary), *gaps_of_defaults(self.not_given), *gaps_of_rows(summary)]
        is_relative = self.units == "prior" or bool(self.not_given)
        lam, gain = summary.smallest_lam(), self.information_gain(summary)
        if lam is not None:
            constants["lam"] = lam
        if not (self.any_lambda or self.bounded_outcomes):
            gaps += gaps_of_small_lam(summary.readable.values())
        if gain is not None:
            constants["information_gain"] = float(gain.max())
        if self.bounded_outcomes:
            form = "in the form for bounded outcomes"
            noise = (
                "outcomes have the {outcome} as their mean given the past, and lie on one side of "
                "the {minimum}, at most outcome_bound away"
            )
        else:
            form = "in the form for every lam" if self.any_lambda else "as printed"
            noise = SUB_GAUSSIAN_NOISE
        details = f"{form}, with the realized information gain"
        if self.fill != "minimum":
            details += f", and the lemma on fills for fill={self.fill!r}"
        largest = None
        if self.rkhs_bound is not None:
            largest = largest_regret(summary, self.rkhs_bound, is_relative, self.not_given)
        told = (
            NORM_OF_THE_REST,
            DIFFERENCES if self.fill == "minimum" else BETWEEN,
            noise,
            *((IN_PRIOR_UNITS,) if self.units == "prior" else ()),
        )
        return guarantee_of(
            CENSORED, facts, constants, gaps, told, largest, details=details, unit=self.unit
        )

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        return summary.realized_information_gain()


def _no_gaps(facts: Facts) -> Iterable[str]:
    return ()


@dataclass(frozen=True, eq=False)
class PendingWidth(WidthRule):
    """The width of one round of a loop with censored feedback; see :func:`censored_rule`.

    Attributes:
        censored: The theorem's width, or only the sum over pending queries in addition to
            ``uncovered``.
        uncovered: A rule to which the sum is added without a theorem; its ``noise_bound`` (if it
            has one) is increased by ``outcome_bound``.
        deviation_sum: The sum of current posterior standard deviations over pending queries, in
            outcome units; a scalar or ``batch_shape``.
        round_number: The round being chosen.
        gaps: A function from the facts of the use to the reasons why the theorem does not cover it,
            in addition to those that the rule knows; only a guarantee calls it.
    """

    censored: CensoredWidth
    uncovered: WidthRule | None = None
    deviation_sum: Tensor | None = None
    round_number: int = 1
    gaps: Callable[[Facts], Iterable[str]] = _no_gaps

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the round is that of the rule."""
        if self.uncovered is None:
            return self.added(summary)
        return self.uncovered.width(summary, self.round_number) + self.added(summary)

    def added(self, summary: PriorSummary) -> Tensor:
        """Return what censoring adds to the width of ``uncovered``; without it, the whole width.

        Args:
            summary: The prior of the censored model.
        """
        if self.deviation_sum is None:
            return self.censored.width(summary, self.round_number)
        sums = (self.deviation_sum,) * summary.num_outputs  # only one of several outputs is active
        return self.censored.censored_width(summary, sums)

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        if self.uncovered is None:
            told = self.censored.guarantee(summary, self.round_number, facts)
            return told.with_gaps(*self.gaps(facts))
        guarantee = self.uncovered.guarantee(summary, self.round_number, facts)
        return Guarantee(
            method=f"censored feedback, {guarantee.method}",
            constants=guarantee.constants,
            gaps=(
                *guarantee.gaps,
                "no theorem covers this width with censored feedback; outcome_bound was added as "
                "Verma, Dai and Low 2022 add it to IGP-UCB's",
                *self.gaps(facts),
            ),
        )

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        rule = self.censored if self.uncovered is None else self.uncovered
        return rule.information_gain(summary)

    def bound_on_gain(self) -> GainBound | None:
        return None if self.uncovered is None else self.uncovered.bound_on_gain()


def censored_rule(
    rule: WidthRule,
    outcome_bound: float | None,
    unit: str = "rounds",
    fill: str = "minimum",
    sum_form: str = "theorem",
) -> PendingWidth:
    """Return a width rule with the terms that censoring adds, for a round without pending queries.

    Args:
        rule: The rule of IGP-UCB or GP-TS, or a constant width (the sum over pending queries is
            added), as in the paper; or the rule of any other upper confidence bound, which no
            theorem then covers.
        outcome_bound: ``B_y``; None, which is for a constant width only, adds nothing.
        unit: The unit of delays, for messages.
        fill: The value at which pending queries enter; the sum of deviations is then weighted.
        sum_form: See :class:`CensoredWidth`.

    Raises:
        ValueError: If ``outcome_bound`` is needed, or ``sum_form`` is not for this rule.
    """
    if isinstance(rule, ConstantWidth):
        missing = ("rkhs_bound", "noise_bound") if rule.is_default else ()
        terms = CensoredWidth(
            outcome_bound=outcome_bound,
            constant=rule.value,
            not_given=missing,
            fill=fill,
            sum_form=sum_form,
        )
        return PendingWidth(terms)
    if sum_form == "published":
        raise ValueError(
            "sum_form='published' of feedback=Censored(...) goes with a constant width, the beta_t "
            f"of the authors' code, not with {type(rule).__name__}. Use "
            "GPUpperConfidenceBound.with_options(width=1.0) or "
            "GPThompsonSampling.with_options(width=1.0), or leave sum_form= out."
        )
    kernelized = rule if isinstance(rule, KernelizedWidth) else None
    not_given = () if kernelized is None else kernelized.not_given
    goes_without = not_given == ("rkhs_bound", "noise_bound")
    if outcome_bound is None and not goes_without:
        raise ValueError(
            "feedback=Censored(...) needs outcome_bound=, how far outcomes can lie above the "
            f"minimum, for {type(rule).__name__}. If you know none, pass a constant width, as in "
            "GPUpperConfidenceBound.with_options(width=2.0), or use ImprovedUpperConfidenceBound "
            "or GPThompsonSampling without rkhs_bound= and noise_bound=."
        )
    is_covered = kernelized is not None and not kernelized.variation
    if kernelized is not None and is_covered and kernelized.explicit_gain is None:
        knows_noise = "noise_bound" not in not_given
        return PendingWidth(
            CensoredWidth(
                rkhs_bound=kernelized.rkhs_bound,
                # never a string, as checked there
                noise_bound=kernelized.noise_bound if knows_noise else None,  # type: ignore[arg-type]
                outcome_bound=outcome_bound,
                delta=kernelized.delta,
                any_lambda=kernelized.any_lambda,
                units=kernelized.units,
                unit=unit,
                not_given=(*not_given, *(("outcome_bound",) if outcome_bound is None else ())),
                fill=fill,
            )
        )
    if outcome_bound is None:
        raise ValueError(
            "feedback=Censored(...) needs outcome_bound=, how far outcomes can lie above the "
            "minimum, in addition to information_gain=."
        )
    terms = CensoredWidth(outcome_bound=outcome_bound, constant=0.0, fill=fill)
    if kernelized is not None:  # each of the two noises gets half of delta
        terms = replace(terms, any_lambda=kernelized.any_lambda, units=kernelized.units)
        noise_bound = _raised(kernelized.noise_bound, outcome_bound)
        rule = replace(kernelized, noise_bound=noise_bound, delta=kernelized.delta / 2.0)
    elif isinstance(rule, AMMWidth):  # it holds for every lam, so the sum has that form, too
        terms = replace(terms, any_lambda=True)
        rule = replace(rule, noise_bound=_raised(rule.noise_bound, outcome_bound))
    return PendingWidth(terms, rule)


def _raised(noise_bound: Any, outcome_bound: float) -> Any:
    if isinstance(noise_bound, tuple):
        return tuple(_raised(bound, outcome_bound) for bound in noise_bound)
    if isinstance(noise_bound, str):
        raise ValueError(_needs_a_number(noise_bound))
    return noise_bound + outcome_bound


def _needs_a_number(noise_bound: str) -> str:
    return (
        f"noise_bound is {noise_bound!r}; with censored feedback it must be a number in the units "
        "of the outcomes, because the rows of pending queries are not outcomes."
    )


# --- bounds that were not given, and rows whose noise differs -------------------------------------


def gaps_of_rows(summary: PriorSummary) -> tuple[str, ...]:
    """Return why the theorem does not cover rows whose noise differs.

    With the smallest of the rows' variances in ``lam``, the terms of the norm and of pending
    queries are still bounds. The martingale of the noise is not: it needs weights of the rows that
    are fixed before their outcomes, but the weight of a row changes when its outcome arrives.

    Args:
        summary: The prior summary of the censored model.
    """
    if not has_row_noise(summary):
        return ()
    return (
        "the noise differs between rows (train_Yvar), and a pending row has their mean until its "
        "outcome arrives; the theorem needs weights of rows that were fixed before their outcomes. "
        "A model with one noise level has them",
    )


def complete_censored_bounds(
    rkhs_bound: Bound | None,
    noise_bound: Bound | None,
    outcome_bound: Bound | None,
    units: str,
    bounded_outcomes: bool,
) -> tuple[Bound | None, tuple[str, ...]]:
    """Return ``rkhs_bound`` or its default, and the names of bounds that are defaults.

    If neither norm nor noise is known, ``outcome_bound`` is not needed either; if it is given, it
    has its units.

    Args:
        rkhs_bound: The bound as the user gave it, or None.
        noise_bound: The bound as the user gave it, or None.
        outcome_bound: The bound as the user gave it, or None.
        units: ``"outcome"`` or ``"prior"``, the units of the bounds that were given.
        bounded_outcomes: Whether the form that needs no bound on the noise is used.
    """
    given = {"rkhs_bound": rkhs_bound, "noise_bound": noise_bound}
    if bounded_outcomes:
        del given["noise_bound"]
    missing = tuple(name for name, bound in given.items() if bound is None)
    if not missing or (units != "prior" and len(missing) < len(given)):
        return rkhs_bound, ()  # either nothing is missing, or it is an error
    if outcome_bound is None and not bounded_outcomes and len(missing) == len(given):
        missing = (*missing, "outcome_bound")
    return DEFAULT_RKHS_BOUND if rkhs_bound is None else rkhs_bound, missing
