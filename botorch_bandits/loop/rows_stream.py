"""One stream of rounds on arms with contexts or with a model that forgets, without a BoTorch model.

:class:`RowsStream` reads a history as the loop goes on and shows an engine the rows that count in
each round. These rows are a function of history and round, so a loop that is rebuilt from its
history continues identically to the last bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.acquisition.base import AcquisitionRecipe
from botorch_bandits.acquisition.lagrangian_rows import (
    LagrangianRowsEngine,
    build_lagrangian_rows_engine,
)
from botorch_bandits.acquisition.rows_engine import RowsEngine, build_rows, build_rows_engine
from botorch_bandits.acquisition.scores import (
    RandomizedArmsRule,
    ThompsonArmsRule,
    WidthArmsRule,
)
from botorch_bandits.confidence.censored import censored_rule
from botorch_bandits.confidence.fills import share_of_bound
from botorch_bandits.domains import Arms
from botorch_bandits.feedback import Censored, CensoredQueue, Feedback, Ignored
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.history import History, Outcome
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.state import PenalizedHistory
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.arms_rows import Rows, RowsPosterior
from botorch_bandits.models.changed_rows import Before, Record
from botorch_bandits.models.front_kernels import Array, FrontCovariance, Index


def _is_plain(feedback: Censored, engine: RowsEngine | LagrangianRowsEngine) -> bool:
    """Return whether only the width differs, so that no model must provide pseudo-values."""
    rule = engine.rule if isinstance(engine, RowsEngine) else None
    has_width = type(rule) in (WidthArmsRule, RandomizedArmsRule, ThompsonArmsRule)
    is_predictive = feedback.predictive and not isinstance(rule, ThompsonArmsRule)
    return has_width and feedback.minimum is not None and not is_predictive


class RowsStream:
    """One stream of rounds on arms.

    Args:
        engine: The engine that chooses.
        domain: The arms.
        history: The history, which grows as the loop goes on.
        feedback: How pending queries are treated.
        forgetting: How old outcomes are treated, or None.
        lam: The noise variance of one outcome.
        rounds_before: The number of rounds that were asked before this history.
    """

    def __init__(
        self,
        engine: RowsEngine | LagrangianRowsEngine,
        domain: Arms,
        history: History,
        feedback: Feedback,
        forgetting: Forgetting | None,
        lam: float,
        rounds_before: int = 0,
    ) -> None:
        """See the class."""
        self.engine: Any = engine
        self._rule: Any = engine.rule
        self._domain, self._history, self._feedback = domain, history, feedback
        self._forgetting, self._lam, self._rounds_before = forgetting, lam, rounds_before
        self._has_time = isinstance(forgetting, TimeVaryingKernel)
        num_front = engine.num_front
        # for each query, as far as they were needed
        self._arms: Index = np.zeros(0, dtype=np.int64)
        self._fronts: Array = np.zeros((0, num_front))
        self._pairs: Index = np.zeros(0, dtype=np.int64)
        self._numbers: dict[tuple[int, bytes], int] = {}
        # for each outcome
        self._queries: Index = np.zeros(0, dtype=np.int64)
        self._outcomes: Array = self._no_outcomes()
        self._version = history.first_version
        self._chosen: int | None = None  # the arm that was chosen last

    @property
    def rule_domain(self) -> Arms:
        """The arms with the columns in front of them, for rules that depend on the domain."""
        domain: Arms = self.engine.rule_domain
        return domain

    def play(self, rule: Any) -> None:
        """Choose by another rule from now on, as happens at the end of an epoch.

        Args:
            rule: The rule that scores the arms from the same posterior; any that the engine takes.
        """
        assert rule is not None
        self._rule = rule

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
            context: The context of the round, or None without contexts.
            among: The arms that may be chosen, in order; None for all.
        """
        seen = self._look(round_number, context)
        return self._choose(seen, among)

    def _choose(self, seen: Any, among: Tensor | None) -> tuple[Tensor, dict[str, float]]:
        seen.among = among
        self._chosen = arm = int(self.engine.choose(seen))
        return self._domain.choices[arm], self.engine.describe(seen, arm)

    def describe(
        self, x: Tensor, round_number: int, context: Tensor | None = None
    ) -> dict[str, float]:
        """Return the diagnostics of a point that something else chooses.

        Args:
            x: An arm.
            round_number: The number of the round, from 1.
            context: The context of the round, or None without contexts.
        """
        seen = self._look(round_number, context)
        described: dict[str, float] = self.engine.describe(
            seen, int(self._domain.index_of(x.unsqueeze(0))[0])
        )
        return described

    def _look(self, round_number: int, context: Tensor | None) -> Any:
        self._catch_up()
        record, front = self._record(round_number), self._front_now(round_number, context)
        pending = self._pending(round_number)
        # random numbers continue where widths start over
        draw_round = self._rounds_before + round_number
        return self.engine.look(round_number, front, record, pending, draw_round, self._rule)

    def _record(self, round_number: int) -> Record:
        """Return the outcomes that count in a round."""
        queries, outcomes = self._queries, self._outcomes
        kept, weights = self._kept(queries, round_number)
        if kept is not None:
            queries, outcomes = queries[kept], outcomes[kept]
        return Record(
            self._arms[queries],
            self._fronts[queries],
            self._pairs[queries],
            outcomes,
            weights,
            self._version,
            None if weights is None else partial(self._before, round_number),
        )

    def _front_now(self, round_number: int, context: Tensor | None) -> Array:
        return self._front_of([] if context is None else [context], [round_number])[0]

    def _kept(self, queries: Index, round_number: int) -> tuple[Index | None, Array | None]:
        """Return which outcomes count (None: all) and their weights (None: rows that stay)."""
        if self._forgetting is None or self._has_time:
            return None, None
        rounds = torch.from_numpy(queries + 1)
        if isinstance(self._forgetting, SlidingWindow):
            kept = self._forgetting.keeps(rounds, round_number).numpy().nonzero()[0]
            return kept, np.ones(len(kept))
        assert isinstance(self._forgetting, ExponentialWeights)
        return None, self._forgetting.weights(rounds, round_number).numpy()

    def _before(self, round_number: int, stride: int) -> Before:
        """Return what counted after the last multiple of this many outcomes."""
        count = len(self._queries) // stride * stride
        queries = self._queries[:count]
        then = int(queries.max(initial=-1)) + 2  # the round after the last of these queries
        kept, weights = self._kept(queries, then)
        assert weights is not None
        if kept is not None:
            queries = queries[kept]
        scale = None
        if isinstance(self._forgetting, ExponentialWeights):
            scale = float(self._forgetting.weights(torch.tensor([then - 1]), round_number))
        return Before(
            self._arms[queries], self._fronts[queries], self._pairs[queries], weights, scale, count
        )

    def _pending(self, round_number: int) -> Rows | None:
        if isinstance(self._feedback, Ignored):
            return None
        ids = [query.id for query in self._history.queries_to_avoid()]
        if isinstance(self._forgetting, SlidingWindow):
            ids = [i for i in ids if i + 1 >= round_number - self._forgetting.length]
        if not ids:
            return None
        return Rows(self._arms[ids], self._fronts[ids], np.full(len(ids), self._lam))

    def _catch_up(self) -> None:
        """Take in what happened since the last look."""
        self._take_queries()
        if self._history.version != self._version:
            self._version = self._history.version
            self._queries, self._outcomes = self._queries[:0], self._outcomes[:0]
        told = self._history.outcomes_since(len(self._queries))
        if told:
            queries = [outcome.query_id for outcome in told]
            self._queries = np.concatenate([self._queries, np.array(queries)])
            self._outcomes = np.concatenate([self._outcomes, self._read(told)])

    def _take_queries(self) -> None:
        """Take in the queries that were asked since the last look."""
        new = self._history.queries_since(len(self._arms))
        if new:
            arms = self._arms_of([query.x for query in new])
            contexts = [query.context for query in new if query.context is not None]
            fronts = self._front_of(contexts, [query.round_number for query in new])
            pairs = [
                self._numbers.setdefault((arm, front.tobytes()), len(self._numbers))
                for arm, front in zip(arms.tolist(), fronts, strict=True)
            ]
            self._arms = np.concatenate([self._arms, arms])
            self._fronts = np.concatenate([self._fronts, fronts])
            self._pairs = np.concatenate([self._pairs, np.array(pairs)])

    def _arms_of(self, points: list[Tensor]) -> Index:
        """Return the numbers of arms; usually it is the arm that was chosen last."""
        choices, chosen = self._domain.choices, self._chosen
        if len(points) == 1 and chosen is not None and torch.equal(points[0], choices[chosen]):
            return np.array([chosen])
        arms: Index = self._domain.index_of(torch.stack(points)).numpy()
        return arms

    def _read(self, told: Sequence[Outcome]) -> Array:
        """Return what the engine observes of outcomes, one row each."""
        return np.array([outcome.reward for outcome in told])

    def _no_outcomes(self) -> Array:
        return np.zeros(0)

    def _front_of(self, contexts: list[Tensor], rounds: list[int]) -> Array:
        """Return the columns in front of the arms in some rounds, ``n x num_front``."""
        parts = []
        if self._has_time:
            parts.append(np.array(rounds, dtype=np.float64)[:, None])
        if contexts:
            transformed: Array = self.engine.transformed_contexts(torch.stack(contexts))
            parts.append(transformed)
        if not parts:
            return np.zeros((len(rounds), 0))
        return np.ascontiguousarray(np.concatenate(parts, axis=1))


class OutputsRowsStream(RowsStream):
    """One stream of rounds in which reward and constraints are observed separately."""

    def _read(self, told: Sequence[Outcome]) -> Array:
        return np.array([(outcome.reward, *outcome.constraints) for outcome in told])

    def _no_outcomes(self) -> Array:
        return np.zeros((0, 1 + self._history.num_constraints))


class CensoredRowsStream(RowsStream):
    """One stream of rounds in which each query has a row: its outcome, or a pseudo-value.

    Rows are in the order of the queries, so they stay where they are when an outcome replaces a
    pseudo-value. The minimum is known. With constraints, it is the minimum of penalized outcomes
    under the multipliers in force, and so is the prior mean.

    The arguments are those of :class:`RowsStream`.

    Args:
        arrived: Gives the posterior of the outcomes that arrived, if the pseudo-values of pending
            queries depend on it.
    """

    def __init__(self, *given: Any, arrived: RowsEngine | None = None) -> None:
        """See the class."""
        super().__init__(*given)
        self._arrived = arrived
        self._told: Array = np.zeros(0)  # the outcome of each query; NaN without one
        self._order: list[int] = []  # the queries with an outcome, in order of arrival
        self._num_told = 0
        assert isinstance(self._feedback, Censored)
        self._queue = CensoredQueue(self._feedback, self._history)

    def choose(
        self,
        round_number: int,
        now: float,
        context: Tensor | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        history, feedback = self._history, self._feedback
        assert isinstance(feedback, Censored)
        if isinstance(history, PenalizedHistory):
            feedback = history.censored(feedback)
        minimum = feedback.current_minimum(history)
        assert minimum is not None
        if isinstance(history, PenalizedHistory):
            self.engine.prior_mean = minimum
        self._catch_up()
        self._queue.update(now)
        pending, lost = self._queue.pending, self._queue.lost
        heights = self._heights(feedback, round_number, context, minimum)
        self._queries, self._outcomes = np.arange(len(self._told)), self._told.copy()
        self._outcomes[[*lost]] = minimum
        self._outcomes[[*pending]] = minimum + heights
        record, front = self._record(round_number), self._front_now(round_number, context)
        draw_round = self._rounds_before + round_number
        posterior = self.engine.posterior_of(
            front,
            record,
            normal=partial(self.engine.normal, draw_round),
            draws=isinstance(self._rule, ThompsonArmsRule),
        )
        ids, shares = feedback.summed(pending, round_number - 1), {}
        if feedback.fills_in and pending:
            assert feedback.outcome_bound is not None
            own = share_of_bound(torch.from_numpy(heights), feedback.outcome_bound)
            shares = dict(zip(pending, own.tolist(), strict=True))
        total = self._sum_of_deviations(ids, posterior, shares)
        bound = feedback.bound_on_sum(isinstance(self._rule, ThompsonArmsRule))
        given = bound, feedback.unit, feedback.fill, feedback.sum_form
        width = censored_rule(self._rule.rule, *given)
        in_round = width.in_round(torch.tensor(total, dtype=torch.float64), round_number)
        rule = replace(self._rule, rule=in_round)
        seen = self.engine.look(round_number, front, record, None, draw_round, rule, posterior)
        x, described = self._choose(seen, among)
        return x, {**described, "pending": float(len(pending)), "lost": float(len(lost))}

    def _heights(
        self, feedback: Censored, round_number: int, context: Tensor | None, minimum: float
    ) -> Array:
        """Return how far the fills of pending queries lie above the minimum."""
        pending = [*self._queue.pending]
        mean, variance = np.zeros(len(pending)), np.zeros(len(pending))
        if not pending or not feedback.fills_in:
            return mean
        if self._arrived is not None:
            self._arrived.prior_mean = minimum
            lost = set(self._queue.lost)
            told = [i for i in self._order if i not in lost]
            self._queries, self._outcomes = np.array(told, dtype=np.int64), self._told[told]
            record, front = self._record(round_number), self._front_now(round_number, context)
            posterior = self._arrived.posterior_of(front, record)
            places = self._arms[pending], self._fronts[pending]
            mean, variance = posterior.moments_of_rows(*places)
        shares = np.ones(len(pending))
        if feedback.fill == "soft":
            shares = np.array(self._queue.shares_to_come())
        assert feedback.outcome_bound is not None
        moments = (torch.from_numpy(each) for each in (mean, np.sqrt(variance), shares))
        heights: Array = feedback.heights(feedback.outcome_bound, *moments).numpy()
        return heights

    def _sum_of_deviations(
        self, ids: Sequence[int], posterior: RowsPosterior, shares: Mapping[int, float]
    ) -> float:
        """Return the sum of current posterior standard deviations at queries that count.

        Args:
            ids: The ids of queries, each at its own context and, with a drifting reward, in its
                own round.
            posterior: The posterior of the round.
            shares: The factors other than 1 of the deviations of some queries.
        """
        if isinstance(self._forgetting, SlidingWindow):  # queries that left it are not waited for
            kept, _ = self._kept(np.array(ids, dtype=np.int64), len(self._told) + 1)
            ids = [] if kept is None else [ids[i] for i in kept]
        if not len(ids):
            return 0.0
        variances = posterior.variance_of_rows(self._arms[[*ids]], self._fronts[[*ids]])
        deviations = np.sqrt(variances)
        if shares:
            deviations *= [shares.get(i, 1.0) for i in ids]
        return float(deviations.sum())

    def _catch_up(self) -> None:
        """See the base class; an outcome replaces its query."""
        self._take_queries()
        if self._history.version != self._version:
            self._version, self._num_told = self._history.version, 0
            self._told, self._order = self._told[:0], []
        missing = len(self._arms) - len(self._told)
        self._told = np.concatenate([self._told, np.full(missing, np.nan)])
        told = self._history.outcomes_since(self._num_told)
        self._num_told += len(told)
        for outcome in told:
            self._told[outcome.query_id] = outcome.reward
            self._order.append(outcome.query_id)


def rows_stream_of(
    settings: LoopSettings,
    model: BanditGPRecipe,
    played: AcquisitionRecipe,
    history: History,
    rounds_before: int,
    covariances: tuple[FrontCovariance, ...] = (),
) -> RowsStream | None:
    """Return the stream of a loop on arms with contexts or forgetting; None if a model is needed.

    Args:
        settings: The settings of a loop on arms.
        model: The model of the settings.
        played: The recipe that is played, with multipliers.
        history: The history, which grows as the loop goes on.
        rounds_before: The number of rounds that were asked before this history.
        covariances: The priors of an earlier stream of these settings.
    """
    domain, rule = settings.domain, settings.constraints
    assert isinstance(domain, Arms)
    given = domain, settings.context_dim, settings.forgetting, settings.seed
    engine: RowsEngine | LagrangianRowsEngine | None
    feedback = settings.feedback
    kind: type[RowsStream] = RowsStream
    if rule and rule.surrogate_in_use == "separate":
        kind = OutputsRowsStream
        engine = build_lagrangian_rows_engine(model, played, *given, covariances)
    else:
        engine = build_rows_engine(model, played, *given, *covariances)
        if isinstance(feedback, Censored):
            kind = CensoredRowsStream
    if engine is None or (isinstance(feedback, Censored) and not _is_plain(feedback, engine)):
        return None
    known = engine, domain, history, feedback, settings.forgetting, model.noise, rounds_before
    if kind is CensoredRowsStream and getattr(feedback, "fills_by_model", False):
        return CensoredRowsStream(
            *known, arrived=build_rows(model, None, *given, *engine.covariances)
        )
    return kind(*known)
