"""One stream of rounds on arms, played from sufficient statistics without a BoTorch model.

:class:`ArmsStream` reads a history as the loop goes on and lets an engine observe it. What the
engine sees is a function of the history, operation by operation, so that a loop that is rebuilt
from its history continues identically to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.acquisition.bounds import Bounds, bounds_on_arms
from botorch_bandits.acquisition.engines import ArmsEngine
from botorch_bandits.acquisition.scores import ArmsRound, ArmsRule, ThompsonArmsRule, WidthArmsRule
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.censored import censored_rule
from botorch_bandits.confidence.fills import share_of_bound
from botorch_bandits.domains import Arms
from botorch_bandits.feedback import Censored, CensoredQueue, Feedback, Ignored
from botorch_bandits.history import History, Outcome
from botorch_bandits.models.arms import ArmsPosterior


class ArmsStream:
    """One stream of rounds on arms.

    Args:
        engine: The engine that chooses and observes.
        domain: The arms.
        history: The history, which grows as the loop goes on.
        feedback: How pending queries are treated.
        rounds_before: The number of rounds that were asked before this history.
        noise: The noise variance of one observation, with which told variances are compared.

    Raises:
        ValueError: If feedback is censored and the engine's rule has no width for it.
    """

    def __init__(
        self,
        engine: ArmsEngine,
        domain: Arms,
        history: History,
        feedback: Feedback,
        rounds_before: int = 0,
        noise: float = 1.0,
    ) -> None:
        """See the class."""
        self.engine, self._rule, self._noise = engine, engine.rule, noise
        self._rounds_before = rounds_before
        self._domain, self._history, self._feedback = domain, history, feedback
        self._num_outcomes = 0  # how many outcomes the engine has seen
        self._version = history.first_version
        self._arms: list[int] = []  # the arm of each query, as far as arms were needed
        self._latest = (-1, -1)  # the query that was chosen last, and its arm
        if isinstance(feedback, Censored):
            rule = self._rule
            assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
            bound = feedback.bound_on_sum(isinstance(rule, ThompsonArmsRule))
            self._censored_width = censored_rule(
                rule.rule, bound, fill=feedback.fill, sum_form=feedback.sum_form
            )
            self._queue = CensoredQueue(feedback, history)
            self._num_seen = 0  # how many queries have a row in the engine
            self._num_censored: dict[int, int] = {}  # number of rows at the pseudo-value, by arm
            self._minimum = engine.prior_mean if feedback.minimum is None else feedback.minimum
            self._observed: ArmsPosterior | None = None
            # an unknown minimum, and a fill, follow from only those outcomes that arrived in time
            if feedback.minimum is None or feedback.fills_by_model:
                self._observed = ArmsPosterior(engine.posterior.prior, engine.posterior.lam)

    def play(self, rule: Any) -> None:
        """Choose by another rule from now on, as happens at the end of an epoch.

        Args:
            rule: The rule that scores the arms from the same posterior; any that the engine takes.
        """
        self._rule = rule

    @property
    def rule_domain(self) -> Arms:
        """The arms, for rules that depend on the domain."""
        return self._domain

    def choose(
        self,
        round_number: int,
        now: float,
        context: Tensor | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the point to query, and its diagnostics.

        Args:
            round_number: The number of the round, from 1.
            now: Clock time in seconds.
            context: None, because there are no contexts.
            among: The arms that may be chosen, in order; None for all.
        """
        self.catch_up()
        if isinstance(self._feedback, Censored):
            chosen, described = self._choose_censored(self._feedback, round_number, now, among)
            arm = int(chosen)
        else:
            arm, described = self._choose(round_number, among)
        self._latest = (round_number - 1, arm)  # the id that the query will have
        return self._domain.choices[arm], described

    def _choose(self, round_number: int, among: Tensor | None) -> tuple[int, dict[str, float]]:
        pending = self._pending()
        if pending is None and isinstance(self.engine, ArmsEngine):
            quick = self.engine.in_numpy(self._rule)
            if quick is not None:
                arm = quick.choose(round_number, among)
                return arm, quick.describe(arm)
        seen = self._look(round_number, self._rule, pending)
        seen.among = among
        chosen = self.engine.choose(seen)
        return int(chosen), self.engine.describe(seen, chosen)

    def describe(self, x: Tensor, round_number: int) -> dict[str, float]:
        """Return the diagnostics of a point that something else chooses.

        Args:
            x: An arm.
            round_number: The number of the round, from 1. Feedback must not be censored.
        """
        self.catch_up()
        seen = self._look(round_number, self._rule, self._pending())
        return self.engine.describe(seen, self._domain.index_of(x.unsqueeze(0))[0])

    def bounds(self, round_number: int) -> Bounds | None:
        """Return the statistics of all arms from the outcomes that arrived.

        They are None with censored feedback.

        Args:
            round_number: The number of the round, from 1, with which widths grow.
        """
        if isinstance(self._feedback, Censored):
            return None
        self.catch_up()
        return bounds_on_arms(self.engine, self._rule, round_number)

    def _pending(self) -> Tensor | None:
        if isinstance(self._feedback, Ignored):
            return None
        arms = [self._arms[query.id] for query in self._history.queries_to_avoid()]
        return torch.tensor(arms, device=self._device) if arms else None

    def _look(
        self, round_number: int, rule: ArmsRule | None, pending: Tensor | None = None
    ) -> ArmsRound:
        # random numbers continue across resets, after which widths start over
        return self.engine.look(round_number, pending, self._rounds_before + round_number, rule)

    def catch_up(self) -> None:
        """Let the engine observe what happened since it last looked."""
        new = self._history.queries_since(len(self._arms))
        if new and (new[0].id, new[0].origin) == (self._latest[0], "acquisition"):
            self._arms.append(self._latest[1])
            new = new[1:]
        if new:
            points = torch.stack([query.x for query in new])
            self._arms += self._domain.index_of(points).tolist()
        if isinstance(self._feedback, Censored):
            self._catch_up_censored(self._feedback)
            return
        outcomes = self._history.outcomes_since(self._num_outcomes)
        if self._history.version != self._version:
            # first what came before the labels changed, then the change, as in a live stream
            self._version, last_round = self._history.version, self._history.changed_after
            num_before = sum(outcome.arrived_round <= last_round for outcome in outcomes)
            self._observe(outcomes[:num_before])
            self._relabel_all()
            outcomes = outcomes[num_before:]
        self._observe(outcomes)

    def _observe(self, outcomes: list[Outcome]) -> None:
        if outcomes:
            arms = [self._arms[outcome.query_id] for outcome in outcomes]
            values = [self._read(outcome) for outcome in outcomes]
            self.engine.observe_many(arms, values, *self._weights(outcomes))
            self._num_outcomes += len(outcomes)

    def _weights(self, outcomes: list[Outcome]) -> tuple[list[float], ...]:
        """Return the weights of outcomes as the last argument of an engine; none if all are 1."""
        if not self._history.is_weighted:
            return ()
        return ([outcome.weight(self._noise) for outcome in outcomes],)

    def _read(self, outcome: Outcome) -> Any:
        """Return what the engine observes of an outcome."""
        return outcome.reward

    def _relabel_all(self) -> None:
        """Update the outcomes that the engine has seen to the values that they have now."""
        seen = self._history.outcomes_since(0)[: self._num_outcomes]
        arms = [self._arms[outcome.query_id] for outcome in seen]
        self.engine.relabel(arms, [outcome.reward for outcome in seen], *self._weights(seen))

    @property
    def _device(self) -> torch.device:
        return self._domain.choices.device

    def _catch_up_censored(self, feedback: Censored) -> None:
        """Take in each round in order: its query, then the outcomes that arrived after it."""
        history = self._history
        outcomes = history.outcomes_since(self._num_outcomes)
        position = 0
        for query in history.queries_since(self._num_seen):
            # outcomes that were told before this query was asked, but not yet taken in
            position = self._hear(feedback, outcomes, position, before=query.round_number)
            self._take_proxy(feedback)
            arm = self._arms[query.id]
            self.engine.observe(arm, self._minimum)
            self._num_censored[arm] = self._num_censored.get(arm, 0) + 1
            self._num_seen += 1
        self._num_outcomes += self._hear(feedback, outcomes, position, history.num_queries + 1)

    def _hear(self, feedback: Censored, outcomes: list[Outcome], position: int, before: int) -> int:
        """Replace pseudo-values by outcomes that arrived before a round; return how many so far."""
        offset = self.engine.prior_mean
        while position < len(outcomes) and outcomes[position].arrived_round < before:
            outcome = outcomes[position]
            position += 1
            if feedback.on_lower == "lower" and outcome.reward < self._minimum:
                self._relabel(outcome.reward)
            if feedback.is_late(self._history.query(outcome.query_id), outcome):
                continue
            arm = self._arms[outcome.query_id]
            self._num_censored[arm] -= 1
            value = outcome.reward - offset
            if outcome.reward != self._minimum:
                self.engine.posterior.change_outcome(arm, self._minimum - offset, value)
            if self._observed is not None:
                self._observed.observe(arm, value)
        return position

    def _take_proxy(self, feedback: Censored) -> None:
        """Replace an unknown minimum by the least lower bound at arms with outcomes, if any."""
        if self._observed is None or feedback.minimum_proxy is None:
            return
        lower = self._observed.mean - feedback.minimum_proxy * self._observed.standard_deviation
        counts = self._observed.counts > 0
        if not bool(counts.any()):
            counts[[arm for arm, count in self._num_censored.items() if count > 0]] = True
        if bool(counts.any()):
            self._relabel(float(lower[counts].min()) + self.engine.prior_mean)

    def _relabel(self, minimum: float) -> None:
        """Give all censored rows another pseudo-value, at a cost independent of their number."""
        middle = 0.5 * (minimum + self._minimum) - self.engine.prior_mean
        half = 0.5 * (minimum - self._minimum)
        if half != 0.0:
            for arm, count in self._num_censored.items():
                if count > 0:  # changes an arm's sum and sum of squares as ``count`` changes would
                    self.engine.posterior.change_outcome(
                        arm, middle - count * half, middle + count * half
                    )
        self._minimum = minimum

    def _choose_censored(
        self, feedback: Censored, round_number: int, now: float, among: Tensor | None
    ) -> tuple[Tensor, dict[str, float]]:
        engine, rule = self.engine, self._rule
        assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
        self._take_proxy(feedback)
        self._queue.update(now)
        pending = self._queue.pending
        ids = feedback.summed(pending, round_number - 1)
        arms = self._arms_of(ids)
        is_predictive = feedback.predictive and isinstance(rule, WidthArmsRule)
        noise = engine.posterior.regularization if is_predictive else 0.0
        deviation = (engine.posterior.variance + noise).sqrt_()
        terms, shift = deviation[arms], None
        if feedback.fills_in and pending:
            heights = self._heights(feedback, pending)
            shift = self._shift(pending, heights)
            assert feedback.outcome_bound is not None
            own = share_of_bound(heights, feedback.outcome_bound).tolist()
            share_of = dict(zip(pending, own, strict=True))
            terms = terms * terms.new_tensor([share_of.get(i, 1.0) for i in ids])
        width = self._censored_width.in_round(terms.sum(), round_number)
        censored = replace(rule, rule=width)
        if is_predictive:
            assert isinstance(censored, WidthArmsRule)
            censored = replace(censored, predictive=True)
        seen = self._look(round_number, censored)
        seen.among = among
        if shift is not None:
            seen.mean = seen.mean + shift
        arm = engine.choose(seen)
        described = engine.describe(seen, arm)
        if is_predictive:
            described["standard_deviation"] = float(deviation[arm])
        counts = {"pending": float(len(pending)), "lost": float(self._queue.num_lost)}
        return arm, {**described, **counts}

    def _arms_of(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor([self._arms[i] for i in ids], dtype=torch.long, device=self._device)

    def _heights(self, feedback: Censored, pending: Sequence[int]) -> Tensor:
        """Return how far the fills of pending queries lie above the minimum."""
        assert feedback.outcome_bound is not None
        arms = self._arms_of(pending)
        mean = deviation = torch.zeros(len(pending), dtype=DTYPE, device=self._device)
        shares = torch.ones_like(mean)
        if self._observed is not None:
            mean = self._observed.mean[arms]  # less the prior mean, which is the minimum
            deviation = self._observed.standard_deviation[arms]
        if feedback.fill == "soft":
            shares = mean.new_tensor(self._queue.shares_to_come())
        return feedback.heights(feedback.outcome_bound, mean, deviation, shares)

    def _shift(self, pending: Sequence[int], heights: Tensor) -> Tensor:
        """Return the increase of the posterior means of all arms due to the fills of queries.

        In the engine, pending queries are at the minimum. The weight of a row is the posterior
        covariance with its arm over the noise variance.
        """
        posterior = self.engine.posterior
        columns = posterior.covariance_columns(self._arms_of(pending))
        return (heights / posterior.regularization) @ columns


class OutputsStream(ArmsStream):
    """One stream of rounds on arms in which reward and constraints are observed separately."""

    def _read(self, outcome: Outcome) -> Any:
        return (outcome.reward, *outcome.constraints)

    def smallest_lower_bounds(self) -> Tensor:
        """Return the least of each constraint's lower confidence bounds over all arms."""
        self.catch_up()
        engine: Any = self.engine
        bounds: Tensor = engine.lower_bounds_of_constraints().amin(dim=-1)
        return bounds
