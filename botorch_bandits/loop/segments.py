"""The part of a history that counts: what was asked and told since the last reset.

Resets and multipliers are derived from the history, query by query and outcome by outcome, in the
order in which things happened. A loop that is rebuilt from its history therefore resets where the
first one did.

With constraints whose surrogate is fresh in each epoch, the end of an epoch is a reset of the data
too, though not of the multipliers.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch
from torch import Tensor

from botorch_bandits.change_points import (
    ChangePointRestart,
    DetectorEngine,
    Reset,
    Restart,
)
from botorch_bandits.checks import DTYPE
from botorch_bandits.constraints import MultiplierRule
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, Feedback
from botorch_bandits.history import Event, Failure, History, Outcome, Query
from botorch_bandits.loop.detector_reading import ChangeNotTestedWarning, DetectorReading
from botorch_bandits.loop.multipliers import Multipliers
from botorch_bandits.loop.target_history import PenalisedHistory, StackedHistory
from botorch_bandits.random_streams import generator

UNIFORM_ORIGINS = ("exploration", "initial")
"""Origins of queries that were drawn uniformly at random, whatever the data said."""


class Segments:
    """Cuts a history into segments; the latest is kept as a history of its own.

    Args:
        restart: Says when a segment ends; None if only the end of an epoch may end one.
        domain: Where points are chosen.
        feedback: What is made of late outcomes: what the model does not see, no test sees.
        context_dim: The dimension of the contexts.
        rule: How multipliers follow from constraint values, if there are constraints.

    Attributes:
        current: Queries and outcomes since the last reset; ids and rounds count from there.
        first_id: The id, in the whole history, of the segment's first query.
        resets: All resets so far, but for those at the end of an epoch.
        readings: What the tests said so far.
        multipliers: The rule and its state, if there are constraints.
    """

    def __init__(
        self,
        restart: Restart | None,
        domain: Domain,
        feedback: Feedback,
        context_dim: int = 0,
        rule: MultiplierRule | None = None,
    ) -> None:
        """See the class."""
        self._restart, self._domain, self._feedback = restart, domain, feedback
        self._context_dim = context_dim
        keeps = restart is not None and restart.keep_multipliers
        self.multipliers = None if rule is None else Multipliers(rule, keeps)
        self._engines: dict[str, DetectorEngine] = {}
        if isinstance(restart, ChangePointRestart):
            self._engines["reward"] = restart.detector.on(domain)
            for j, detector in enumerate(restart.constraint_detectors):
                self._engines[f"constraint {j + 1}"] = detector.on(domain)
        for quantity, engine in self._engines.items():
            _check_engine(quantity, engine, domain, context_dim)
        self.resets: list[Reset] = []
        self.readings: list[DetectorReading] = []
        self._begun_round = 0
        self._first_id_of_segment = 0  # an epoch that is fresh begins later than its segment
        self._begin(0)

    @property
    def number(self) -> int:
        """The segment's number, from 0."""
        return len(self.resets)

    @property
    def first_id_of_segment(self) -> int:
        """The id of the segment's first query; an epoch that is fresh may begin later."""
        return self._first_id_of_segment

    def describe(self) -> dict[str, float]:
        """Return what is in force now, for a query's diagnostics."""
        known = {} if self._restart is None else {"segment": float(self.number)}
        if self.multipliers is not None:
            known["epoch"] = float(self.multipliers.num_epochs)
            for j, value in enumerate(self.multipliers.values.tolist()):
                known[f"multiplier_{j + 1}"] = value
        return known

    def explores(self) -> bool:
        """Return whether the next query is to be drawn uniformly."""
        if self._restart is None:
            return False
        return bool(self._restart.explores(len(self._uniform), self.current.num_queries))

    def before_round(self, round_number: int) -> bool:
        """Let the last round end, and begin anew if it is time; return whether data were dropped.

        Nothing happens when it is called for the same round again, as after a choice that failed.

        Args:
            round_number: Of the whole history, from 1.
        """
        if round_number == self._begun_round:
            return False
        self._begun_round = round_number
        is_new = self._restart is not None and self._restart.is_told_of_change(round_number)
        if is_new:
            self._reset(reason="oracle")
        if self.multipliers is None or not self.multipliers.before_round():
            return is_new
        if self.multipliers.rule.surrogate_in_use != "fresh":
            return is_new
        self._begin(round_number - 1)
        return True

    def add_query(self, query: Query) -> None:
        """Take in a query of the whole history."""
        if self.multipliers is not None:
            self.multipliers.add_query(query)
        local = self.current.add_query(
            query.x, query.origin, query.asked_at, query.context, query.diagnostics
        )
        if local.origin in UNIFORM_ORIGINS:
            self._uniform.append(local)

    def add_outcome(self, outcome: Outcome) -> Reset | None:
        """Take in an outcome of the whole history; return the reset that it brought, if any.

        Outcomes of queries before the last reset change no model. The ledger has them all.
        """
        if self.multipliers is not None:
            counts = outcome.query_id >= self._first_id_of_segment
            self.multipliers.add_outcome(outcome, counts)
        local_id = outcome.query_id - self.first_id
        if local_id < 0:
            return None
        self.current.add_outcome(
            local_id, outcome.reward, outcome.arrived_at, outcome.constraints or None
        )
        query = self.current.query(local_id)
        if not self._engines or query.origin not in UNIFORM_ORIGINS:
            return None
        if self._is_late(query, replace(outcome, arrived_round=self.current.num_queries)):
            return None
        self._told[local_id] = outcome
        return self._test()

    def add_failure(self, failure: Failure) -> None:
        """Take in the failure of a query of the whole history; no test sees the query."""
        local_id = failure.query_id - self.first_id
        if local_id >= 0:
            self.current.add_failure(local_id, failure.arrived_at, failure.reason)

    def replay(self, history: History) -> None:
        """Take in a whole history, in the order in which things happened."""
        events = iter(history.events)
        waiting = next(events, None)
        for query in history.queries:
            while waiting is not None and waiting.arrived_round < query.round_number:
                self._add_event(waiting)
                waiting = next(events, None)
            self.before_round(query.round_number)
            self.add_query(query)
        while waiting is not None:
            self._add_event(waiting)
            waiting = next(events, None)

    def _add_event(self, event: Event) -> None:
        if isinstance(event, Failure):
            self.add_failure(event)
        else:
            self.add_outcome(event)

    def _test(self) -> Reset | None:
        """Test the uniform queries with an outcome, in the order in which they were asked."""
        known = [query for query in self._uniform if query.id in self._told]
        if len(known) < 2:
            return None
        outcomes = [self._told[query.id] for query in known]
        X = torch.stack([query.x for query in known])
        contexts = _contexts(known)
        columns = [[o.reward for o in outcomes]]
        columns += [[o.constraints[j] for o in outcomes] for j in range(len(self._engines) - 1)]
        after_round = self.first_id + self.current.num_queries
        for (quantity, engine), column in zip(self._engines.items(), columns, strict=True):
            try:
                test = engine.test(X, torch.tensor(column, dtype=DTYPE), contexts=contexts)
            except (RuntimeError, ValueError) as error:
                # the outcome is recorded already: the loop must go on, and in the same way again
                warnings.warn(
                    f"the {quantity} could not be tested for a change after round {after_round} "
                    f"({error}); that counts as no detection.",
                    ChangeNotTestedWarning,
                    stacklevel=2,
                )
                continue
            self.readings.append(
                DetectorReading(
                    after_round,
                    test.statistic,
                    test.threshold,
                    test.half_size,
                    test.detected,
                    quantity,
                )
            )
            if test.detected:
                return self._reset(
                    reason="detection",
                    statistic=test.statistic,
                    threshold=test.threshold,
                    half_size=test.half_size,
                    change_round=self.first_id + known[test.location].round_number,
                    quantity=quantity,
                )
        return None

    def _is_late(self, query: Query, outcome: Outcome) -> bool:
        return isinstance(self._feedback, Censored) and self._feedback.is_late(query, outcome)

    def _reset(self, reason: str, **found: float | int | str | None) -> Reset:
        num_dropped = self.current.num_queries
        reset = Reset(
            after_round=self.first_id + num_dropped,
            num_dropped=num_dropped,
            num_uniform=len(self._uniform),
            reason=reason,
            **found,  # type: ignore[arg-type]
        )
        self.resets.append(reset)
        if self.multipliers is not None:
            self.multipliers.reset()
        self._first_id_of_segment = reset.after_round
        self._begin(reset.after_round)
        return reset

    def _begin(self, first_id: int) -> None:
        self.first_id = first_id
        self.current = self._new_history()
        self._uniform: list[Query] = []  # of the segment
        self._told: dict[int, Outcome] = {}  # of them, by local id, what came in time

    def _new_history(self) -> History:
        dim, context_dim, multipliers = self._domain.dim, self._context_dim, self.multipliers
        if multipliers is None:
            return History(dim, context_dim)
        if multipliers.rule.surrogate_in_use == "separate":
            return StackedHistory(dim, context_dim, multipliers.rule.num_constraints)
        return PenalisedHistory(dim, context_dim, multipliers)


def _check_engine(quantity: str, engine: DetectorEngine, domain: Domain, context_dim: int) -> None:
    """Raise if a detector cannot test points of the domain, before anything is recorded."""
    X = domain.sample(2, generator(0, 0, "detector check"))
    contexts = torch.zeros(2, context_dim, dtype=DTYPE) if context_dim else None
    try:
        engine.test(X, torch.zeros(2, dtype=DTYPE), contexts=contexts)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"restart= has a detector of the {quantity} that cannot test points with "
            f"{context_dim} context and {domain.dim} other dimensions ({error}). Its kernel must "
            "be on the context and the point together."
        ) from error


def _contexts(queries: list[Query]) -> Tensor | None:
    contexts = [query.context for query in queries]
    known = [context for context in contexts if context is not None]
    return torch.stack(known) if known else None
