"""Rules on arms where each replicate is in a segment and a round of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_bandits.acquisition.arms_rules import ArmsRound, ArmsRule
from botorch_bandits.confidence import Guarantee, PriorReading, WidthRule

if TYPE_CHECKING:
    from botorch_bandits.simulation.restarts import ReplicateSegments


class SegmentWidth(WidthRule):
    """The width of each replicate at its own round since the last reset.

    The given rule is evaluated once for each pair of share of delta and round that occurs.

    Args:
        segments: Where the replicates stand.
        rule_of: From a segment, counted from 0, to its width rule.
        shares: Whether segments have different rules.
    """

    def __init__(
        self, segments: ReplicateSegments, rule_of: Callable[[int], WidthRule], shares: bool
    ) -> None:
        """See the class."""
        self._segments, self._rule_of, self._shares = segments, rule_of, shares
        self._rules: dict[int, WidthRule] = {}

    def width(self, reading: PriorReading, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the round of the whole run is not looked at."""
        numbers = self._segments.numbers if self._shares else self._segments.numbers * 0
        rounds = self._segments.local_rounds
        if not self._rule(0).needs_round:
            rounds = torch.ones_like(rounds)
        keys = list(zip(numbers.tolist(), rounds.tolist(), strict=True))
        widths = {key: self._rule(key[0]).width(reading, key[1]) for key in dict.fromkeys(keys)}
        if len(widths) == 1:
            return widths[keys[0]]
        rows = [
            widths[key] if widths[key].dim() == 0 else widths[key].reshape(-1)[b]
            for b, key in enumerate(keys)
        ]
        return torch.stack(rows)

    def guarantee(self, reading: PriorReading, round_number: int) -> Guarantee:
        """Return the promise of the first segment's rule."""
        return self._rule(0).guarantee(reading, round_number)

    def information_gain(self, reading: PriorReading) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        return self._rule(0).information_gain(reading)

    def _rule(self, number: int) -> WidthRule:
        if number not in self._rules:
            self._rules[number] = self._rule_of(number)
        return self._rules[number]


class SegmentArmsRule(ArmsRule):
    """A rule that depends on delta other than through a width: each segment has its own.

    Args:
        segments: Where the replicates stand.
        rule_of: From a segment, counted from 0, to its rule.
    """

    def __init__(self, segments: ReplicateSegments, rule_of: Callable[[int], ArmsRule]) -> None:
        """See the class."""
        self._segments, self._rule_of = segments, rule_of
        self._rules: dict[int, ArmsRule] = {0: rule_of(0)}
        self.needs_extremes = self._rules[0].needs_extremes

    def scores(self, seen: ArmsRound) -> Tensor:
        """See the base class."""
        (scores,) = self._gather(seen, lambda rule, part: (rule.scores(part),))
        return scores

    def bounds(self, seen: ArmsRound) -> tuple[Tensor, Tensor] | None:
        """See the base class."""
        if self._rules[0].bounds(replace(seen, known={})) is None:
            return None

        def both(rule: ArmsRule, part: ArmsRound) -> tuple[Tensor, ...]:
            bounds = rule.bounds(part)
            assert bounds is not None
            return bounds

        lower, upper = self._gather(seen, both)
        return lower, upper

    def _gather(
        self, seen: ArmsRound, evaluate: Callable[[ArmsRule, ArmsRound], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        numbers = self._segments.numbers
        gathered: tuple[Tensor, ...] | None = None
        for number in dict.fromkeys(numbers.tolist()):
            if number not in self._rules:
                self._rules[number] = self._rule_of(number)
            # what a rule keeps for the round is kept for each segment
            known = seen.known.setdefault(f"segment {number}", {})
            values = evaluate(self._rules[number], replace(seen, known=known))
            here = (numbers == number).to(values[0].device).unsqueeze(-1)
            old = values if gathered is None else gathered
            gathered = tuple(v.where(here, o) for v, o in zip(values, old, strict=True))
        assert gathered is not None
        return gathered
