"""Plays arms for a loop: the player, fed from the history in the order in which things happened.

What the player sees is a function of the history alone, operation by operation, so a loop that is
rebuilt from its history plays on to the last bit.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from botorch_bandits.acquisition.arms_player import ArmsPlayer
from botorch_bandits.acquisition.arms_rules import ArmsRule, ThompsonArmsRule, WidthArmsRule
from botorch_bandits.acquisition.censored_loop import PendingWidth, censored_rule
from botorch_bandits.confidence import CensoredWidth
from botorch_bandits.domains import Arms
from botorch_bandits.feedback import Censored, Feedback, Ignored
from botorch_bandits.history import History, Outcome


class ArmsStream:
    """One stream of rounds on arms.

    Args:
        player: Chooses and observes.
        domain: The arms.
        history: What happened; it grows as the loop goes on.
        feedback: What is made of pending queries.

    Raises:
        ValueError: If feedback is censored and the player's rule has no width for that.
    """

    def __init__(
        self, player: ArmsPlayer, domain: Arms, history: History, feedback: Feedback
    ) -> None:
        """See the class."""
        self.player = player
        self._domain, self._history, self._feedback = domain, history, feedback
        self._num_outcomes = 0  # that the player has seen
        self._arms: list[int] = []  # of each query, as far as they were needed
        self._labels: list[float] = []  # of each query, as the player has it (censored feedback)
        self._usable: set[int] = (
            set()
        )  # queries whose outcome has taken the place of a pseudo-value
        self._censored_width: CensoredWidth | None = None
        if isinstance(feedback, Censored):
            rule = player.rule
            assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
            self._censored_width = censored_rule(rule.rule, feedback.outcome_bound)
            self._minimum = feedback.minimum

    def choose(self, round_number: int, now: float) -> tuple[Tensor, dict[str, float]]:
        """Return the point to query, and what was known of it.

        Args:
            round_number: From 1.
            now: Clock reading in seconds.
        """
        self.catch_up()
        if self._censored_width is None:
            pending = None
            if self._history.num_pending and not isinstance(self._feedback, Ignored):
                ids = [query.id for query in self._history.pending()]
                pending = torch.tensor([self._arms[i] for i in ids], device=self._device)
            seen = self.player.look(round_number, pending)
            arm = self.player.choose(seen)
            described = self.player.describe(seen, arm)
        else:
            arm, described = self._choose_censored(round_number, now)
        return self._domain.choices[arm], described

    def catch_up(self) -> None:
        """Let the player observe what happened since it last looked."""
        new = [query.x for query in self._history.queries_since(len(self._arms))]
        if new:
            self._arms += self._domain.index_of(torch.stack(new)).tolist()
        if self._censored_width is not None:
            self._catch_up_censored()
            return
        outcomes = self._history.outcomes_since(self._num_outcomes)
        if outcomes:
            arms = [self._arms[outcome.query_id] for outcome in outcomes]
            self.player.observe_many(arms, [outcome.reward for outcome in outcomes])
            self._num_outcomes += len(outcomes)

    @property
    def _device(self) -> torch.device:
        return self._domain.choices.device

    def _catch_up_censored(self) -> None:
        """Round by round: the query of the round, then the outcomes that arrived behind it."""
        feedback, history = self._feedback, self._history
        assert isinstance(feedback, Censored)
        outcomes = history.outcomes_since(self._num_outcomes)
        position = 0
        for query in history.queries_since(len(self._labels)):
            # outcomes told since the player looked, but before this query was asked
            position = self._hear(outcomes, position, before=query.round_number)
            self._labels.append(self._minimum)
            self.player.observe(self._arms[query.id], self._minimum)
        self._num_outcomes += self._hear(outcomes, position, before=history.num_queries + 1)

    def _hear(self, outcomes: list[Outcome], position: int, before: int) -> int:
        """Replace pseudo-values by outcomes that arrived before a round; return how many."""
        feedback = self._feedback
        assert isinstance(feedback, Censored)
        while position < len(outcomes) and outcomes[position].arrived_round < before:
            outcome = outcomes[position]
            position += 1
            if outcome.reward < self._minimum:
                self._lower(outcome.reward)
            if not feedback.is_late(self._history.query(outcome.query_id), outcome):
                self._usable.add(outcome.query_id)
                self._change(outcome.query_id, outcome.reward)
        return position

    def _lower(self, minimum: float) -> None:
        for query_id in range(len(self._labels)):
            if query_id not in self._usable:
                self._change(query_id, minimum)
        self._minimum = minimum

    def _change(self, query_id: int, label: float) -> None:
        offset = self.player.prior_mean
        old = self._labels[query_id]
        if label != old:
            arm = self._arms[query_id]
            self.player.posterior.change_outcome(arm, old - offset, label - offset)
            self._labels[query_id] = label

    def _choose_censored(self, round_number: int, now: float) -> tuple[Tensor, dict[str, float]]:
        feedback, player = self._feedback, self.player
        assert isinstance(feedback, Censored)
        assert self._censored_width is not None
        view = feedback.view(self._history, round_number, now)
        ids = feedback.summed(view, round_number)
        deviation = player.posterior.standard_deviation
        arms = torch.tensor([self._arms[i] for i in ids], dtype=torch.long, device=self._device)
        rule = player.rule
        assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
        width = PendingWidth(self._censored_width, deviation[arms].sum())
        player.rule = _with_width(rule, width)
        try:
            seen = player.look(round_number)
            arm = player.choose(seen)
            described = player.describe(seen, arm)
        finally:
            player.rule = rule
        counts = {"pending": float(len(view.pending)), "lost": float(len(view.lost))}
        return arm, {**described, **counts}


def _with_width(rule: WidthArmsRule | ThompsonArmsRule, width: PendingWidth) -> ArmsRule:
    return replace(rule, rule=width)
