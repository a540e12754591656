"""The width of one round of a loop with censored feedback.

A loop has an acquisition for outcomes without delay. :func:`censored_rule` makes its width rule one
for censored feedback: that of Verma, Dai and Low 2022 where it is IGP-UCB's, GP-TS's or a constant,
and for other upper confidence bounds their own width and the terms that censoring adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from botorch_bandits.confidence.censored import CensoredWidth, needs_a_number
from botorch_bandits.confidence.guarantee import Guarantee
from botorch_bandits.confidence.igp_ucb import AMMWidth, KernelizedWidth
from botorch_bandits.confidence.information_gain import GainBound
from botorch_bandits.confidence.width_rules import ConstantWidth, PriorSummary, WidthRule
from botorch_bandits.docstrings import fill_in_docstrings


@dataclass(frozen=True, eq=False)
class PendingWidth(WidthRule):
    """The width of one round of a loop with censored feedback; see :func:`censored_rule`.

    Attributes:
        censored: The theorem's width, or only the sum over pending queries beside ``uncovered``.
        uncovered: A rule to which the sum is added, without any theorem; its ``noise_bound`` (if it
            has one) is raised by ``outcome_bound``.
        deviation_sum: The sum of current posterior standard deviations over pending queries, in
            outcome units; a scalar or ``batch_shape``.
        round_number: The round that is chosen.
        gaps: Gives the reasons why the theorem does not cover this use, beside those that the rule
            knows; only a guarantee asks for them.
    """

    censored: CensoredWidth
    uncovered: WidthRule | None = None
    deviation_sum: Tensor | None = None
    round_number: int = 1
    gaps: Callable[[], Iterable[str]] = tuple
    is_uniform: ClassVar[bool] = False

    def in_round(
        self, deviation_sum: Tensor, round_number: int, gaps: Callable[[], Iterable[str]] = tuple
    ) -> PendingWidth:
        """Return the width of one round.

        Args:
            deviation_sum: See the class.
            round_number: See the class.
            gaps: See the class.
        """
        return PendingWidth(self.censored, self.uncovered, deviation_sum, round_number, gaps)

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the round is the rule's own."""
        if self.uncovered is None:
            return self.added(summary)
        return self.uncovered.width(summary, self.round_number) + self.added(summary)

    def added(self, summary: PriorSummary) -> Tensor:
        """Return what censoring adds to the width of ``uncovered``, or the whole width without.

        Args:
            summary: The prior of the censored model.
        """
        if self.deviation_sum is None:
            return self.censored.width(summary, self.round_number)
        sums = (self.deviation_sum,) * summary.num_outputs  # of several outputs one is active
        return self.censored.censored_width(summary, sums)

    def guarantee(self, summary: PriorSummary, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        if self.uncovered is None:
            return self.censored.guarantee(summary, self.round_number).with_gaps(*self.gaps())
        guarantee = self.uncovered.guarantee(summary, self.round_number)
        return Guarantee(
            method=f"censored feedback, {guarantee.method}",
            constants=guarantee.constants,
            gaps=(
                *guarantee.gaps,
                "no theorem covers this width with censored feedback; outcome_bound was added as "
                "Verma, Dai and Low 2022 add it to IGP-UCB's",
                *self.gaps(),
            ),
        )

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        rule = self.censored if self.uncovered is None else self.uncovered
        return rule.information_gain(summary)

    def bound_on_gain(self) -> GainBound | None:
        """See :meth:`WidthRule.bound_on_gain`."""
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
        rule: Of IGP-UCB or GP-TS, or a constant width (the sum over pending queries is added), as
            in the paper. Of any other upper confidence bound: outside any theorem.
        outcome_bound: ``B_y``; None, for a constant width only, adds nothing.
        unit: Of delays, for texts.
        fill: What pending queries enter at; the sum of deviations is then weighted.
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
    not_given = getattr(rule, "not_given", ())
    goes_without = isinstance(rule, KernelizedWidth) and not_given == ("rkhs_bound", "noise_bound")
    if outcome_bound is None and not goes_without:
        raise ValueError(
            "feedback=Censored(...) needs outcome_bound=, how far outcomes can lie above the "
            f"minimum, for {type(rule).__name__}. Who knows none passes a constant width, as in "
            "GPUpperConfidenceBound.with_options(width=2.0), or takes ImprovedUpperConfidenceBound "
            "or GPThompsonSampling without rkhs_bound= and noise_bound=."
        )
    if isinstance(rule, KernelizedWidth) and rule.explicit_gain is None:
        knows_noise = "noise_bound" not in not_given
        return PendingWidth(
            CensoredWidth(
                rkhs_bound=rule.rkhs_bound,
                # no string: checked there
                noise_bound=rule.noise_bound if knows_noise else None,  # type: ignore[arg-type]
                outcome_bound=outcome_bound,
                delta=rule.delta,
                any_lambda=rule.any_lambda,
                units=rule.units,
                unit=unit,
                not_given=(*not_given, *(("outcome_bound",) if outcome_bound is None else ())),
                fill=fill,
            )
        )
    if outcome_bound is None:
        raise ValueError(
            "feedback=Censored(...) needs outcome_bound=, how far outcomes can lie above the "
            "minimum, beside information_gain=."
        )
    terms = CensoredWidth(outcome_bound=outcome_bound, constant=0.0, fill=fill)
    if isinstance(rule, KernelizedWidth):  # half of delta for each of the two noises
        terms = replace(terms, any_lambda=rule.any_lambda, units=rule.units)
        noise_bound = _raised(rule.noise_bound, outcome_bound)
        rule = replace(rule, noise_bound=noise_bound, delta=rule.delta / 2.0)
    elif isinstance(rule, AMMWidth):  # it holds for every lam, so the sum takes that form
        terms = replace(terms, any_lambda=True)
        rule = replace(rule, noise_bound=_raised(rule.noise_bound, outcome_bound))
    return PendingWidth(terms, rule)


def _raised(noise_bound: Any, outcome_bound: float) -> Any:
    if isinstance(noise_bound, tuple):
        return tuple(_raised(bound, outcome_bound) for bound in noise_bound)
    if isinstance(noise_bound, str):
        raise ValueError(needs_a_number(noise_bound))
    return noise_bound + outcome_bound


fill_in_docstrings(__name__)
