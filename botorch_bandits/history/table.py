"""The table itself; see :class:`History`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_integer, check_number, check_vector
from botorch_bandits.history import records as plain
from botorch_bandits.history.entries import ORIGINS, Event, Failure, Outcome, Query
from botorch_bandits.history.readings import HistoryReadings, input_of


class History(HistoryReadings):
    """Append-only table of queries and outcomes for points in ``dim`` dimensions.

    The history is the only truth. Models, acquisition functions and suggestions are derived from
    it and can be thrown away. Nothing in it is ever changed or removed.

    A query is pending until its outcome is told, or until it is said to have failed.

    Args:
        dim: The dimension of the points.
        context_dim: The dimension of the contexts; 0 where there are none.
        num_constraints: How many constraint values come with each reward.

    Example:
        >>> history = History(dim=1)
        >>> query = history.add_query(torch.tensor([0.5], dtype=torch.float64), "initial", 0.0)
        >>> outcome = history.add_outcome(query.id, reward=2.0, arrived_at=1.0)
        >>> X, Y = history.arrived()
        >>> X.tolist(), Y.tolist()
        ([[0.5]], [[2.0]])
    """

    def __init__(self, dim: int, context_dim: int = 0, num_constraints: int = 0) -> None:
        """See the class."""
        self.dim = check_integer("dim", dim, minimum=1)
        self.context_dim = check_integer("context_dim", context_dim, minimum=0)
        self.num_constraints = check_integer("num_constraints", num_constraints, minimum=0)
        self._queries = []
        self._outcomes = {}
        self._failures = {}
        self._pending = {}
        self._arrivals = []
        self._events = []
        self._requests = {}
        self._best = None
        self._num_inputs = self.context_dim + self.dim
        self._rows = torch.empty(16, self._num_inputs + 1 + self.num_constraints, dtype=DTYPE)

    def add_query(
        self,
        x: Tensor,
        origin: str,
        asked_at: float,
        context: Tensor | None = None,
        diagnostics: Mapping[str, float] | None = None,
        request_id: str | None = None,
    ) -> Query:
        """Record a question and return it.

        Args:
            x: The point, ``d``-dimensional, float64.
            origin: ``"initial"``, ``"acquisition"``, ``"exploration"``, ``"random"`` or
                ``"attached"``.
            asked_at: Clock reading in seconds.
            context: The context, if the history has a context dimension.
            diagnostics: What the acquisition knew, by name.
            request_id: The caller's name for the request.

        Raises:
            TypeError: If the request's name is no text.
            ValueError: If a shape is wrong, a value is not finite, the origin is unknown, or the
                request was answered before.
        """
        query = self.new_query(x, origin, asked_at, context, diagnostics, request_id)
        self.record(query)
        return query

    def add_outcome(
        self, query_id: int, reward: Any, arrived_at: float, constraints: Any = None
    ) -> Outcome:
        """Record what came back for a query and return it.

        Args:
            query_id: The query's id.
            reward: One finite number.
            arrived_at: Clock reading in seconds.
            constraints: ``num_constraints`` finite numbers; None if there are none.

        Raises:
            KeyError: If no such query was asked.
            ValueError: If the query has an outcome already or failed, the reward is not finite, or
                constraint values are missing, not wanted, too few or too many, or not finite.
            TypeError: If the reward is not one number, or has less than double precision.
        """
        outcome = self.new_outcome(query_id, reward, arrived_at, constraints)
        self.record(outcome)
        return outcome

    def add_failure(self, query_id: int, arrived_at: float, reason: str | None = None) -> Failure:
        """Record that no outcome of a query will come.

        Args:
            query_id: The query's id.
            arrived_at: Clock reading in seconds.
            reason: Why.

        Raises:
            KeyError: If no such query was asked.
            TypeError: If the reason is no text.
            ValueError: If the query has an outcome, or failed before.
        """
        failure = self.new_failure(query_id, arrived_at, reason)
        self.record(failure)
        return failure

    def new_query(
        self,
        x: Tensor,
        origin: str,
        asked_at: float,
        context: Tensor | None = None,
        diagnostics: Mapping[str, float] | None = None,
        request_id: str | None = None,
    ) -> Query:
        """Return what :meth:`add_query` would record, checked; see there."""
        if origin not in ORIGINS:
            raise ValueError(f"origin is {origin!r}; it must be one of {', '.join(ORIGINS)}.")
        if (context is None) != (self.context_dim == 0):
            raise ValueError(f"context is {context}, but context_dim is {self.context_dim}.")
        if request_id is not None and check_text("request_id", request_id) in self._requests:
            raise ValueError(f"request_id {request_id!r} was answered before; use another name.")
        return Query(
            id=len(self._queries),
            _x=check_vector("x", x, length=self.dim).detach().clone(),
            round_number=len(self._queries) + 1,
            origin=origin,
            asked_at=check_number("asked_at", asked_at),
            _context=None
            if context is None
            else check_vector("context", context, length=self.context_dim).detach().clone(),
            _diagnostics=dict(diagnostics or {}),
            request_id=request_id,
        )

    def new_outcome(
        self, query_id: int, reward: Any, arrived_at: float, constraints: Any = None
    ) -> Outcome:
        """Return what :meth:`add_outcome` would record, checked; see there."""
        query = self.query(query_id)
        known = self._outcomes.get(query.id)
        if known is not None:
            raise ValueError(
                f"query_id {query.id} already has the reward {known.reward}; the history is "
                "append-only. Ask again to evaluate the point a second time."
            )
        if query.id in self._failures:
            raise ValueError(
                f"query_id {query.id} failed ({self._failures[query.id].reason}), and a failure is "
                "final. Attach the point with its reward: loop.attach(query.x, reward)."
            )
        return self.outcome_of(query.id, reward, arrived_at, len(self._queries), constraints)

    def new_failure(self, query_id: int, arrived_at: float, reason: str | None = None) -> Failure:
        """Return what :meth:`add_failure` would record, checked; see there."""
        query = self.query(query_id)
        if query.id not in self._pending:
            raise ValueError(
                f"query_id {query.id} is {self.state(query.id)} already; only a query that is "
                "pending can fail."
            )
        return Failure(
            query.id,
            None if reason is None else check_text("reason", reason),
            check_number("arrived_at", arrived_at),
            len(self._queries),
        )

    def outcome_of(
        self,
        query_id: int,
        reward: Any,
        arrived_at: float,
        arrived_round: int,
        constraints: Any = None,
    ) -> Outcome:
        """Return an outcome with checked values, whatever is known of its query.

        Args:
            query_id: The id of its query.
            reward: One finite number.
            arrived_at: Clock reading in seconds.
            arrived_round: How many queries had been asked.
            constraints: ``num_constraints`` finite numbers; None if there are none.
        """
        return Outcome(
            query_id=query_id,
            reward=check_number("reward", reward),
            arrived_at=check_number("arrived_at", arrived_at),
            arrived_round=arrived_round,
            constraints=self._check_constraints(constraints),
        )

    def record(self, entry: Query | Event) -> None:
        """Record a query, outcome or failure that was made for this history as it is now.

        Args:
            entry: From :meth:`new_query`, :meth:`new_outcome` or :meth:`new_failure`.
        """
        if isinstance(entry, Query):
            self._queries.append(entry)
            self._pending[entry.id] = entry
            if entry.request_id is not None:
                self._requests[entry.request_id] = entry.id
            return
        if isinstance(entry, Outcome):
            self._add_row(entry)
        else:
            self._failures[entry.query_id] = entry
        self._events.append(entry)
        del self._pending[entry.query_id]

    @classmethod
    def from_records(
        cls,
        records: Iterable[Mapping[str, Any]],
        dim: int,
        context_dim: int = 0,
        num_constraints: int = 0,
    ) -> History:
        """Rebuild a history from what :meth:`to_records` returned.

        Args:
            records: One mapping a query, in asking order.
            dim: The dimension of the points.
            context_dim: The dimension of the contexts.
            num_constraints: How many constraint values come with each reward.

        Raises:
            ValueError: If the records are not a history: ids out of order, an outcome that
                arrived before its query was asked or before an earlier one, orders of arrival
                with gaps.
        """
        history = cls(dim, context_dim, num_constraints)
        plain.fill(history, records)
        return history

    def _check_constraints(self, constraints: Any) -> tuple[float, ...]:
        if self.num_constraints == 0:
            if constraints is not None:
                raise ValueError(
                    f"constraints is {constraints}, but there are no constraints. Build the loop "
                    "with constraints= and a rule for the multipliers."
                )
            return ()
        if constraints is None:
            raise ValueError(
                f"constraints is missing: each outcome has {self.num_constraints} constraint "
                "values. Tell them with constraints=[...]; at most 0 is feasible."
            )
        values = check_vector("constraints", constraints, length=self.num_constraints)
        return tuple(values.tolist())

    def _add_row(self, outcome: Outcome) -> None:
        n = self.num_arrived
        if n == 0:
            self._rows = self._rows.to(self._queries[outcome.query_id]._x.device)
        if n == len(self._rows):
            self._rows = torch.cat([self._rows, torch.empty_like(self._rows)])
        self._rows[n, : self._num_inputs] = input_of(self._queries[outcome.query_id])
        self._rows[n, self._num_inputs] = outcome.reward
        if outcome.constraints:
            self._rows[n, self._num_inputs + 1 :] = torch.tensor(outcome.constraints, dtype=DTYPE)
        self._outcomes[outcome.query_id] = outcome
        self._arrivals.append(outcome)
        best = self._best
        if best is None or (outcome.reward, -outcome.query_id) > (best.reward, -best.query_id):
            self._best = outcome


def check_text(name: str, value: Any) -> str:
    """Return a text that is not empty.

    Raises:
        TypeError: If it is no text.
        ValueError: If it is empty.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, got {value!r}.")
    if not value:
        raise ValueError(f"{name} is empty; leave it out or give it some letters.")
    return value
