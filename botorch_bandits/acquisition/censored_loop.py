"""Censored feedback in a loop: the loop fills in pseudo-values, only the width is left to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from botorch_bandits.acquisition.recipe import BanditAcquisition
from botorch_bandits.acquisition.thompson_sampling import GPThompsonSampling
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.confidence import (
    CensoredWidth,
    ConstantWidth,
    Guarantee,
    KernelizedWidth,
    PriorReading,
    WidthRule,
)


@dataclass(frozen=True, eq=False)
class PendingWidth(WidthRule):
    """The width of censored feedback in one round, with what was pending then.

    Attributes:
        rule: The width rule.
        deviation_sum: The sum of current posterior standard deviations over pending queries, in
            outcome units; a scalar or ``batch_shape``.
    """

    rule: CensoredWidth
    deviation_sum: Tensor
    is_uniform: ClassVar[bool] = False

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`."""
        return self.rule.censored_width(reading, (self.deviation_sum,))

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """See :meth:`WidthRule.guarantee`."""
        return self.rule.guarantee(reading, round_number)

    def information_gain(self, reading: PriorReading) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        return self.rule.information_gain(reading)


def censored_rule(rule: WidthRule, outcome_bound: float) -> CensoredWidth:
    """Return a width rule with the terms that censoring adds.

    Args:
        rule: Of IGP-UCB or GP-TS, or a constant width (the sum over pending queries is added).
        outcome_bound: ``B_y``.

    Raises:
        ValueError: If the rule is another one, or has a gain of its own.
    """
    if isinstance(rule, ConstantWidth):
        return CensoredWidth(outcome_bound=outcome_bound, constant=rule.value)
    if isinstance(rule, KernelizedWidth) and rule.explicit_gain is None:
        return CensoredWidth(
            rkhs_bound=rule.rkhs_bound,
            noise_bound=rule.noise_bound,
            outcome_bound=outcome_bound,
            delta=rule.delta,
            any_lambda=rule.any_lambda,
            units=rule.units,
        )
    raise ValueError(
        f"feedback=Censored(...) has no width for {type(rule).__name__}. Use "
        "ImprovedUpperConfidenceBound or GPThompsonSampling with rkhs_bound= and noise_bound= (and "
        "the realised information gain), or a constant width=; or feedback=Hallucinated()."
    )


def set_width_rule(acquisition: BanditAcquisition, rule: WidthRule) -> None:
    """Give a built acquisition function another width rule.

    Args:
        acquisition: An upper confidence bound or Thompson sampling, without pending points.
        rule: The rule.
    """
    assert isinstance(acquisition, WidthUpperConfidenceBound | GPThompsonSampling)
    acquisition.rule = rule
    if isinstance(acquisition, GPThompsonSampling):
        width = acquisition.scale * rule.width(acquisition._reading, 1)
        acquisition.width = width.to(acquisition.width)
    else:
        acquisition.set_X_pending(None)
