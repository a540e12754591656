"""What can be read off a history; see :class:`HistoryReadings`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE, check_integer
from botorch_bandits.history import records as plain
from botorch_bandits.history.entries import Event, Failure, Outcome, Query

if TYPE_CHECKING:
    import pandas as pd


class HistoryReadings:
    """The part of :class:`~botorch_bandits.History` that changes nothing."""

    dim: int
    context_dim: int
    num_constraints: int
    _queries: list[Query]
    _outcomes: dict[int, Outcome]  # by query id, in order of arrival
    _failures: dict[int, Failure]  # likewise
    _pending: dict[int, Query]  # by id, in asking order
    _arrivals: list[Outcome]
    _events: list[Event]  # outcomes and failures, in order of arrival
    _requests: dict[str, int]  # ids of queries
    _best: Outcome | None
    _num_inputs: int
    # inputs, reward and constraints in order of arrival, in memory that grows by doubling
    _rows: Tensor

    def __repr__(self) -> str:
        """Show the counts."""
        return f"History({self.num_queries} queries, {self.num_arrived} arrived)"

    @property
    def version(self) -> int:
        """Changes when old outcomes are read otherwise than before; here they never are."""
        return self.first_version

    @property
    def first_version(self) -> int:
        """The :attr:`version` of an empty history."""
        return 0

    @property
    def changed_after(self) -> int:
        """How many queries had been asked when :attr:`version` last changed."""
        return 0

    @property
    def num_queries(self) -> int:
        """How many queries were asked."""
        return len(self._queries)

    @property
    def num_arrived(self) -> int:
        """How many outcomes arrived."""
        return len(self._outcomes)

    @property
    def num_failed(self) -> int:
        """How many queries failed."""
        return len(self._failures)

    @property
    def num_pending(self) -> int:
        """How many queries have no outcome yet, and have not failed."""
        return len(self._pending)

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries in the order in which they were asked."""
        return tuple(self._queries)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All outcomes in the order in which they arrived."""
        return tuple(self._arrivals)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All failures in the order in which they arrived."""
        return tuple(self._failures.values())

    @property
    def events(self) -> tuple[Event, ...]:
        """Outcomes and failures in the order in which they arrived."""
        return tuple(self._events)

    def queries_since(self, num_known: int) -> list[Query]:
        """Return the queries but the first ``num_known``, in the order in which they were asked."""
        return self._queries[num_known:]

    def outcomes_since(self, num_known: int) -> list[Outcome]:
        """Return the outcomes but the first ``num_known``, in the order in which they arrived."""
        return self._arrivals[num_known:]

    def events_since(self, num_known: int) -> list[Event]:
        """Return outcomes and failures but the first ``num_known``, in order of arrival."""
        return self._events[num_known:]

    def query(self, query_id: int) -> Query:
        """Return the query with this id.

        Raises:
            KeyError: If no such query was asked.
        """
        if isinstance(query_id, Query):
            raise TypeError(f"query_id is {query_id!r}; pass its id, query.id.")
        query_id = check_integer("query_id", query_id, minimum=0)
        if query_id >= len(self._queries):
            asked = f"0 to {len(self._queries) - 1}" if self._queries else "none yet"
            raise KeyError(
                f"query_id {query_id} was never asked (asked so far: {asked}). Tell the id of a "
                "Query that ask() returned."
            )
        return self._queries[query_id]

    def query_of_request(self, request_id: str) -> Query | None:
        """Return the query that a request was answered with, or None if it is new."""
        query_id = self._requests.get(request_id)
        return None if query_id is None else self._queries[query_id]

    def outcome(self, query_id: int) -> Outcome | None:
        """Return the outcome of a query, or None if it has none.

        Raises:
            KeyError: If no such query was asked.
        """
        return self._outcomes.get(self.query(query_id).id)

    def failure(self, query_id: int) -> Failure | None:
        """Return the failure of a query, or None if it did not fail.

        Raises:
            KeyError: If no such query was asked.
        """
        return self._failures.get(self.query(query_id).id)

    def state(self, query_id: int) -> str:
        """Return ``"pending"``, ``"told"`` or ``"failed"``.

        Raises:
            KeyError: If no such query was asked.
        """
        query_id = self.query(query_id).id
        if query_id in self._failures:
            return "failed"
        return "told" if query_id in self._outcomes else "pending"

    def arrived(self) -> tuple[Tensor, Tensor]:
        """Return the inputs and rewards that arrived, in order of arrival.

        Returns:
            ``n x (context_dim + d)`` inputs (columns: context, then point) and ``n x 1`` rewards.
        """
        rows = self._rows[: self.num_arrived]
        reward = self._num_inputs
        return rows[:, :reward].clone(), rows[:, reward : reward + 1].clone()

    def constraints(self) -> Tensor:
        """Return the constraint values that arrived, in order of arrival.

        Returns:
            ``n x num_constraints`` observed values.
        """
        return self._rows[: self.num_arrived, self._num_inputs + 1 :].clone()

    def pending(self) -> tuple[Query, ...]:
        """Return the queries that are waited for, in the order in which they were asked."""
        return tuple(self._pending.values())

    def pending_in(self, round_number: int) -> tuple[Query, ...]:
        """Return the queries that were pending when the query of a round was chosen.

        Args:
            round_number: From 1; one more than the rounds so far stands for now.
        """
        ended = (self._outcomes, self._failures)
        rounds = {e.query_id: e.arrived_round for known in ended for e in known.values()}
        return tuple(
            query
            for query in self._queries[: round_number - 1]
            if rounds.get(query.id, round_number) >= round_number
        )

    def inputs(self) -> Tensor:
        """Return the inputs of all queries, ``num_queries x (context_dim + d)``."""
        rows = [input_of(query) for query in self._queries]
        if not rows:
            return torch.empty(0, self.context_dim + self.dim, dtype=DTYPE)
        return torch.stack(rows)

    def pending_inputs(self) -> Tensor:
        """Return the inputs of the pending queries, ``num_pending x (context_dim + d)``."""
        rows = [input_of(query) for query in self._pending.values()]
        if not rows:
            return torch.empty(0, self.context_dim + self.dim, dtype=DTYPE)
        return torch.stack(rows)

    def best(self) -> tuple[Query, Outcome] | None:
        """Return the query with the largest observed reward (the first of equals), if any."""
        if not self._outcomes:
            return None
        assert self._best is not None
        return self._queries[self._best.query_id], self._best

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary a query, in asking order, of plain Python values.

        ``json.dumps`` and back loses nothing; :meth:`from_records` takes them again. ``state`` is
        ``"pending"``, ``"told"`` or ``"failed"``. While a query is pending ``arrival_order`` is
        None, and so are ``constraints``, if there are. A failure has its place in the order too,
        and a ``reason``.
        """
        return plain.to_records(tuple(self._queries), tuple(self._events), self.num_constraints)

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame, one row a query in asking order.

        The columns are those of :meth:`to_records`, with ``x``, ``context`` and ``constraints`` as
        one column an entry (``x0``, ``x1``, ...) and each diagnostic as a column of its own.

        Raises:
            ImportError: If pandas is not installed.
        """
        return plain.to_dataframe(self.to_records())


def input_of(query: Query) -> Tensor:
    """Return the context and the point of a query in one vector."""
    return (
        query._x if query._context is None else torch.cat([query._context.to(query._x), query._x])
    )
