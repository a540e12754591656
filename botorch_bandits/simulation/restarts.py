"""Replicates that start over, each at its own time.

This module keeps for all replicates at once what the loop keeps in
:class:`~botorch_bandits.loop.aspects.Restarts` for one stream of rounds: the sizes of both lists
since the last reset, the segment, and the uniform queries that a detector looks at. Random numbers
depend on the round of the whole run; widths depend on the round of the segment, with the segment's
share of delta.

Source of the rule: Avanesov, *How to gamble with non-stationary X-armed bandits and have no
regrets*, arXiv 1908.07636, Algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch
from botorch_bandits.acquisition.rules import ArmsRule, WidthArmsRule
from botorch_bandits.change_points import (
    ChangePointRestart,
    EvidenceRestart,
    Reset,
    Restart,
)
from botorch_bandits.checks import DTYPE, in_lists
from botorch_bandits.confidence import Guarantee, PriorSummary, WidthRule
from botorch_bandits.confidence.facts import ALONE, Facts
from botorch_bandits.domains import Arms


class SegmentWidth(WidthRule):
    """The width of each replicate at its own round since the last reset.

    The given rule is evaluated once for each combination of share of delta and round.

    Args:
        segments: The segments of the replicates.
        rule_of: A function that maps a segment, counted from 0, to its width rule.
        shares: Whether segments have different rules.
    """

    def __init__(
        self, segments: ReplicateSegments, rule_of: Callable[[int], WidthRule], shares: bool
    ) -> None:
        """See the class."""
        self._segments, self._rule_of, self._shares = segments, rule_of, shares
        self._rules: dict[int, WidthRule] = {}

    def width(self, summary: PriorSummary, round_number: int) -> Tensor:
        """See :meth:`WidthRule.width`; the round of the whole run is not used."""
        numbers = self._segments.numbers if self._shares else self._segments.numbers * 0
        rounds = self._segments.local_rounds
        if not self._rule(0).needs_round:
            rounds = torch.ones_like(rounds)
        keys = list(zip(numbers.tolist(), rounds.tolist(), strict=True))
        widths = {key: self._rule(key[0]).width(summary, key[1]) for key in dict.fromkeys(keys)}
        if len(widths) == 1:
            return widths[keys[0]]
        rows = [
            widths[key] if widths[key].dim() == 0 else widths[key].reshape(-1)[b]
            for b, key in enumerate(keys)
        ]
        return torch.stack(rows)

    def guarantee(
        self, summary: PriorSummary, round_number: int, facts: Facts = ALONE
    ) -> Guarantee:
        """Return the guarantee of the first segment's rule."""
        return self._rule(0).guarantee(summary, round_number, facts)

    def information_gain(self, summary: PriorSummary) -> Tensor | None:
        """See :meth:`WidthRule.information_gain`."""
        return self._rule(0).information_gain(summary)

    def _rule(self, number: int) -> WidthRule:
        if number not in self._rules:
            self._rules[number] = self._rule_of(number)
        return self._rules[number]


@dataclass
class Samples:
    """The uniform queries of one replicate since its last reset, oldest first.

    Attributes:
        rounds: Their rounds in the whole run, from 1.
        arms: Their arms.
        outcomes: Their outcomes.
    """

    rounds: list[int] = field(default_factory=list)
    arms: list[int] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)


class ReplicateSegments:
    """The state of each replicate since its own last reset.

    Counters are on the CPU, where they determine what is done next.

    Args:
        restart: Determines when a replicate explores and when it starts over; all but restarts by
            evidence, which :func:`~botorch_bandits.simulation.play_loops` plays.
        domain: The arms.
        num_replicates: The number of replicates.
        num_initial: Rounds at the start of each segment that choose uniformly at random.

    Raises:
        TypeError: If the restart is by evidence.

    Attributes:
        num_history: ``num_replicates``, float64; the number of queries since the last reset.
        num_uniform: ``num_replicates``, float64; how many of them were drawn uniformly.
        numbers: ``num_replicates``, int64; each replicate's segment, from 0.
        resets: All resets so far, one list per replicate.

    Example:
        >>> from botorch_bandits import NeverRestart
        >>> arms = Arms(torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1))
        >>> segments = ReplicateSegments(NeverRestart(), arms, num_replicates=2)
        >>> segments.num_history += torch.tensor([0.0, 4.0])
        >>> segments.num_uniform += torch.tensor([0.0, 4.0])
        >>> segments.explores().tolist(), segments.local_rounds.tolist()
        ([True, False], [1, 5])
    """

    def __init__(
        self,
        restart: Restart,
        domain: Arms,
        num_replicates: int,
        num_initial: int = 0,
    ) -> None:
        """See the class."""
        if isinstance(restart, EvidenceRestart):
            raise TypeError(f"restart is {restart!r}, which loops play; call play_loops instead.")
        self._restart, self._num_initial = restart, num_initial
        self._engine = None
        if isinstance(restart, ChangePointRestart):
            self._engine = restart.detector.on(Arms(domain.choices.cpu()))
        # float64, because torch would multiply integers by the rule's constant in float32
        self.num_history = torch.zeros(num_replicates, dtype=DTYPE)
        self.num_uniform = torch.zeros(num_replicates, dtype=DTYPE)
        self.numbers = torch.zeros(num_replicates, dtype=torch.long)
        self.resets: list[list[Reset]] = [[] for _ in range(num_replicates)]
        self._samples = [Samples() for _ in range(num_replicates)]
        self._explored: list[Tensor] = []

    @property
    def local_rounds(self) -> Tensor:
        """The round to be played, counted from the last reset; ``num_replicates``, int64."""
        return self.num_history.long() + 1

    @property
    def explored(self) -> Tensor:
        """Whether a round drew its arm uniformly at random; ``num_replicates x num_rounds``."""
        if not self._explored:
            return torch.zeros(len(self.numbers), 0, dtype=torch.bool)
        return torch.stack(self._explored, -1)

    def before_round(self, round_number: int) -> Tensor | None:
        """Start over replicates that are told of a change; return which, or None if none is.

        Args:
            round_number: The number of the round in the whole run, from 1.
        """
        if not self._restart.is_told_of_change(round_number):
            return None
        for b in range(len(self.numbers)):
            self._reset(b, round_number - 1, reason="oracle")
        return torch.ones_like(self.numbers, dtype=torch.bool)

    def explores(self) -> Tensor:
        """Return which replicates explore in the next round, ``num_replicates``."""
        explores = torch.as_tensor(self._restart.explores(self.num_uniform, self.num_history))
        return explores | (self.num_history < self._num_initial)

    def observe(
        self,
        round_number: int,
        explored: Tensor,
        arms: Tensor | Sequence[int],
        outcomes: Tensor | Sequence[float],
    ) -> Tensor | None:
        """Record what was played, and start over replicates whose detector finds a change.

        Args:
            round_number: The number of the round in the whole run, from 1.
            explored: The result of :meth:`explores`.
            arms: One arm per replicate.
            outcomes: One outcome per replicate.

        Returns:
            Which replicates started over, ``num_replicates``, or None if none did.
        """
        self.num_history += 1.0
        self.num_uniform += explored
        self._explored.append(explored)
        exploring = torch.nonzero(explored).squeeze(-1).tolist()
        if self._engine is None or not exploring:
            return None
        # waits for a GPU only once
        played, heard = in_lists(arms), in_lists(outcomes)
        detected: list[int] = []
        for b in exploring:
            samples = self._samples[b]
            samples.rounds.append(round_number)
            samples.arms.append(played[b])
            samples.outcomes.append(heard[b])
            if self._detects(b, round_number):
                detected.append(b)
        if not detected:
            return None
        mask = torch.zeros_like(explored)
        mask[detected] = True
        return mask

    def rule(self, acquisition: AcquisitionRecipe | RandomSearch, domain: Arms) -> ArmsRule | None:
        """Return a recipe's rule, at each replicate's own round and share of delta.

        Args:
            acquisition: The acquisition that is played between the uniform queries.
            domain: The arms.

        Returns:
            None for random search, and if no rule on arms is based on a width that depends on round
            and delta.
        """
        if isinstance(acquisition, RandomSearch):
            return None

        def of_segment(number: int) -> ArmsRule | None:
            share = partial(self._restart.share_of_delta, segment=number)
            return acquisition.at_share_of_delta(share).arms_rule(domain)

        first = of_segment(0)
        shares = acquisition.at_share_of_delta(lambda delta: 0.5 * delta) is not acquisition
        shares = shares and self._restart.split_delta
        if not isinstance(first, WidthArmsRule):
            return None if shares else first  # other rules do not depend on the round

        def width_of_segment(number: int) -> WidthRule:
            rule = of_segment(number)
            assert isinstance(rule, WidthArmsRule)
            return rule.rule

        return replace(first, rule=SegmentWidth(self, width_of_segment, shares))

    def _detects(self, b: int, round_number: int) -> bool:
        samples = self._samples[b]
        if len(samples.arms) < 2:
            return False
        assert self._engine is not None
        outcomes = torch.tensor(samples.outcomes, dtype=DTYPE)
        test = self._engine.test(torch.tensor(samples.arms), outcomes)
        if test.detected:
            self._reset(
                b,
                round_number,
                reason="detection",
                statistic=test.statistic,
                threshold=test.threshold,
                half_size=test.half_size,
                change_round=samples.rounds[test.location],
            )
        return test.detected

    def _reset(
        self,
        b: int,
        after_round: int,
        reason: str,
        **found: float | int | None,
    ) -> None:
        self.resets[b].append(
            Reset(
                after_round=after_round,
                num_dropped=int(self.num_history[b]),
                num_uniform=int(self.num_uniform[b]),
                reason=reason,
                **found,  # type: ignore[arg-type]
            )
        )
        self._samples[b] = Samples()
        self.num_history[b] = self.num_uniform[b] = 0.0
        self.numbers[b] += 1
