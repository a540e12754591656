"""The history of a bandit: an append-only table of queries and what came back.

A loop writes to its :class:`History` and derives everything else from it. Each row is a
:class:`Query`, which an :class:`Outcome`, a :class:`Failure` or a :class:`Retraction` may end. None
of them can be changed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.checks import (
    DTYPE,
    check_constraint_values,
    check_count,
    check_instance,
    check_integer,
    check_noise_variance,
    check_text,
    check_told,
    check_vector,
    shown_value,
    store_checked,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "ORIGINS",
    "Event",
    "Failure",
    "History",
    "Outcome",
    "Query",
    "Retraction",
    "flatten_records",
]


ORIGINS = ("initial", "acquisition", "repeat", "random", "exploration", "attached")


def flipped_diagnostics(known: Mapping[str, float]) -> dict[str, float]:
    """Return diagnostics for rewards of the other sign; a second call restores them.

    The value of the acquisition function is unchanged, because it is maximized in either case.

    Args:
        known: The diagnostics by name.
    """
    told = dict(known)
    if "mean" in told:
        told["mean"] = 0.0 - told["mean"]
    if "lower_bound" in told and "upper_bound" in told:
        told["lower_bound"] = 0.0 - known["upper_bound"]
        told["upper_bound"] = 0.0 - known["lower_bound"]
    return told


@dataclass(frozen=True, eq=False)
class Query:
    """A request of the bandit to evaluate the reward at ``x``.

    Attributes:
        id: The number of the query, from 0; pass it when telling the outcome.
        x: The point, ``d``-dimensional, float64; each access returns a copy, so that an evaluation
            that works in place cannot change the history.
        round_number: The round in which it was asked, from 1.
        origin: ``"acquisition"``, ``"initial"`` (a uniform initial round), ``"repeat"`` (a point
            that is played again), ``"exploration"`` (a uniform round that a policy which restarts,
            or another aspect, asks for), ``"random"`` (a method that does not use outcomes) or
            ``"attached"`` (a point that is evaluated elsewhere).
        asked_at: The time in seconds.
        context: The context that was given in this round, if any; a copy like ``x``.
        diagnostics: Values of the acquisition function and its model: ``mean``,
            ``standard_deviation``, ``width``, ``information_gain`` and ``acquisition_value``, as
            far as they exist. Also a copy.
        parameters: The point as native values by name, if the domain has names
            (:class:`~botorch_bandits.Space`); otherwise None. Also a copy.
        restriction: The points or arms that the round could choose from, if not the whole domain;
            see :meth:`.BanditLoop.ask`. On arms, the available ``"arms"`` by index. On a box, the
            available ``"points"``, or the ``"fixed"`` values, by name or column, and points to
            ``"avoid"``. Also a copy.
        asked_by: The process and the host that asked, as in ``"4242@host"``; None in memory.
        arm: The index of the arm, if the domain is :class:`~botorch_bandits.Arms`; otherwise None.
    """

    id: int
    _x: Tensor
    round_number: int
    origin: str
    asked_at: float
    _context: Tensor | None = None
    _diagnostics: Mapping[str, float] = field(default_factory=dict)
    _parameters: Mapping[str, Any] | None = None
    _restriction: Mapping[str, Any] | None = None
    asked_by: str | None = None
    arm: int | None = None

    state: ClassVar[str] = "pending"
    """What a history says of a query whose latest entry this is; see :meth:`.History.state`."""

    @property
    def query_id(self) -> int:
        """The id, under the name that it has in events."""
        return self.id

    @property
    def x(self) -> Tensor:
        """See the class."""
        return self._x.clone()

    @property
    def context(self) -> Tensor | None:
        """See the class."""
        return None if self._context is None else self._context.clone()

    @property
    def diagnostics(self) -> dict[str, float]:
        """See the class."""
        return dict(self._diagnostics)

    @property
    def parameters(self) -> dict[str, Any] | None:
        """See the class."""
        return None if self._parameters is None else dict(self._parameters)

    @property
    def restriction(self) -> dict[str, Any] | None:
        """See the class."""
        return None if self._restriction is None else copy.deepcopy(dict(self._restriction))

    @property
    def is_restricted(self) -> bool:
        """Whether the round could choose only from a part of the domain."""
        return self._restriction is not None

    def __repr__(self) -> str:
        """Show the id, the point and the origin."""
        named = self.parameters
        point = f"x={self.x.tolist()}" if named is None else f"parameters={named}"
        point = point if self.arm is None else f"{point}, arm={self.arm}"
        return f"Query(id={self.id}, {point}, origin={self.origin!r})"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a query.

    Attributes:
        query_id: The query's id.
        reward: The observed reward.
        arrived_at: The time in seconds.
        arrived_round: The number of queries that had been asked when it arrived.
        constraints: The observed constraint values; at most 0 is feasible.
        count: The number of observations of which the reward and constraint values are the means;
            None for one.
        noise: The variance of the noise of the reward; None if it is the model's.
        by: The process and the host that told it; None in memory.
    """

    query_id: int
    reward: float
    arrived_at: float
    arrived_round: int
    constraints: tuple[float, ...] = ()
    count: int | None = field(default=None, kw_only=True)
    noise: float | None = field(default=None, kw_only=True)
    by: str | None = field(default=None, kw_only=True, compare=False)

    state: ClassVar[str] = "told"
    reason: ClassVar[None] = None
    avoided: ClassVar[bool] = False

    @property
    def counted(self) -> Outcome | None:
        """The outcome that models see after this event, if there is one: this one."""
        return self

    @property
    def ever_told(self) -> Outcome | None:
        """The outcome that was told, withdrawn or not: this one."""
        return self

    def arrive_later(self) -> None:
        """Count one query more as asked before, as that was chosen without this outcome."""
        store_checked(self, arrived_round=self.arrived_round + 1)

    def flipped(self) -> Outcome:
        """Return the outcome with the reward in the other sign; 0 stays 0."""
        return replace(self, reward=0.0 - self.reward)

    @property
    def is_weighted(self) -> bool:
        """Whether its noise differs from that of a single observation."""
        return self.count is not None or self.noise is not None

    def weight(self, noise: float) -> float:
        """Return the ratio of the noise variance of one observation to that of this outcome.

        Args:
            noise: The modeled noise variance of one observation.

        Example:
            >>> Outcome(0, 0.25, 0.0, 1, count=40).weight(0.01)
            40.0
            >>> Outcome(0, 0.25, 0.0, 1, noise=0.04).weight(0.01)
            0.25
        """
        if self.count is not None:
            return float(self.count)
        return 1.0 if self.noise is None else noise / self.noise


@dataclass(frozen=True)
class Failure:
    """The event that a query failed: no outcome of it will come.

    Attributes:
        query_id: The query's id.
        reason: The reason, if one was given.
        arrived_at: The time in seconds when the failure was told.
        arrived_round: The number of queries that had been asked then.
        constraints: The constraint values that were observed nevertheless; empty if none were.
        avoided: Whether the point is avoided: the acquisition function keeps treating it as it did
            while the query was pending.
        by: The process and the host that told it; None in memory.
    """

    query_id: int
    reason: str | None
    arrived_at: float
    arrived_round: int
    constraints: tuple[float, ...] = field(default=(), kw_only=True)
    avoided: bool = field(default=False, kw_only=True)
    by: str | None = field(default=None, kw_only=True, compare=False)

    state: ClassVar[str] = "failed"
    counted: ClassVar[None] = None

    @property
    def ever_told(self) -> Outcome | None:
        """The outcome that was told and withdrawn; None if the query failed."""
        return None

    def arrive_later(self) -> None:
        """See :meth:`Outcome.arrive_later`."""
        store_checked(self, arrived_round=self.arrived_round + 1)


@dataclass(frozen=True)
class Retraction(Failure):
    """The event that an outcome that was told is withdrawn.

    From then on, the query counts as one that failed when its outcome arrived. The withdrawn
    outcome and the reason stay on record.

    See :class:`Failure` for the other arguments.

    Attributes:
        query_id: The query's id.
        reason: The reason why the outcome is withdrawn.
        arrived_at: The time in seconds when the outcome arrived.
        arrived_round: The number of queries that had been asked when the outcome arrived.
        outcome: The outcome that had been told.
        retracted_at: The time in seconds when the outcome was withdrawn.
        retracted_round: The number of queries that had been asked when the outcome was withdrawn.
    """

    reason: str
    outcome: Outcome
    retracted_at: float
    retracted_round: int

    state: ClassVar[str] = "retracted"

    @property
    def ever_told(self) -> Outcome:
        return self.outcome

    def arrive_later(self) -> None:
        """See :meth:`Outcome.arrive_later`; the outcome may have arrived earlier."""
        now = {"retracted_round": self.retracted_round + 1}
        store_checked(self, arrived_round=self.outcome.arrived_round, **now)


Event: TypeAlias = Outcome | Failure
"""An event that ends the waiting for a query."""

Entry = TypeVar("Entry", bound=Query | Event)
"""A query, or what ended it."""

OneEvent = TypeVar("OneEvent", bound=Event)


def input_of(query: Query) -> Tensor:
    """Return the context and the point of a query in one vector, as a copy."""
    return query.x if query._context is None else torch.cat([query._context.to(query._x), query._x])


def argument_of(query: Query) -> Tensor | dict[str, Any]:
    """Return the argument with which a user's function is called; it is the same in every runner.

    Args:
        query: The query that is evaluated.

    Returns:
        If points have names (:class:`~botorch_bandits.Space`), a dictionary of native values, with
        the context under ``"context"`` if there is one. Otherwise a float64 tensor of one
        dimension: the context, if any, and the point.
    """
    parameters = query.parameters
    if parameters is None:
        return input_of(query)
    if query.context is None:
        return parameters
    if "context" in parameters:
        raise ValueError(
            "a parameter is named 'context', which is also the name of the context that the "
            "function gets next to the parameters. Give the parameter another name."
        )
    return {**parameters, "context": query.context}


def outcome_told_at_once(query: Query, event: Event | None) -> Outcome | None:
    """Return the outcome with which a query was attached, or None if it was asked or is pending.

    Args:
        query: The query.
        event: The event that ended it, or None; a retraction has the outcome that it withdraws.
    """
    outcome = None if event is None else event.ever_told
    if query.origin != "attached" or outcome is None:
        return None
    is_its_own = outcome.query_id == query.id and outcome.arrived_round == query.round_number
    return outcome if is_its_own and outcome.arrived_at == query.asked_at else None


def point_text(query: Query) -> str:
    """Return a query's point in one line, with values by name if there are names.

    Args:
        query: The query.

    Example:
        >>> point_text(Query(0, torch.tensor([0.5, 2.0]), 1, "attached", 0.0))
        '0.5, 2'
    """
    if query.parameters is None:
        return ", ".join(f"{value:.6g}" for value in query.x.tolist())
    return ", ".join(
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in query.parameters.items()
    )


def plain_record(
    query: Query, event: Event | None, order: int | None, has_constraints: bool
) -> dict[str, Any]:
    """Return a query and its event in the form of :meth:`History.to_records`.

    Args:
        query: The query.
        event: The event that ended the waiting; None while the query is pending.
        order: The position of the event among all events.
        has_constraints: Whether outcomes have constraint values.
    """
    outcome = None if event is None else event.counted
    record: dict[str, Any] = {
        "id": query.id,
        "round_number": query.round_number,
        "origin": query.origin,
        "x": query.x.tolist(),
        **({} if query.arm is None else {"arm": query.arm}),
        **({} if query.parameters is None else {"parameters": query.parameters}),
        "context": None if query.context is None else query.context.tolist(),
        "asked_at": query.asked_at,
        "state": state_after(event),
        "reward": None if outcome is None else outcome.reward,
        **({} if outcome is None else weighting_of(outcome)),
        "arrived_at": None if event is None else event.arrived_at,
        "arrived_round": None if event is None else event.arrived_round,
        "arrival_order": order,
        "reason": None if event is None else event.reason,
        **({"avoided": True} if event is not None and event.avoided else {}),
        **({} if query.restriction is None else {"restriction": query.restriction}),
        "diagnostics": query.diagnostics,
    }
    if has_constraints:
        known = () if event is None else event.constraints
        record["constraints"] = list(known) or None
    if isinstance(event, Retraction):
        record["retracted_reward"] = event.outcome.reward
        record |= {f"retracted_{k}": v for k, v in weighting_of(event.outcome).items()}
        if has_constraints:
            record["retracted_constraints"] = list(event.outcome.constraints)
        record["retracted_at"] = event.retracted_at
        record["retracted_round"] = event.retracted_round
    return record


def weighting_of(outcome: Outcome) -> dict[str, Any]:
    """Return ``count`` or ``noise`` of an outcome by name, if it has one."""
    told = {"count": outcome.count, "noise": outcome.noise}
    return {name: value for name, value in told.items() if value is not None}


def flatten_records(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turn records of :meth:`History.to_records` into flat rows of one table.

    ``x``, ``context`` and ``constraints`` have one column per entry (``x0``, ``x1``, ...), and each
    diagnostic has its own column. If the point has names, these replace the columns ``x0``, ``x1``,
    ...; a name that another column already has gets the prefix ``parameter_``.

    Args:
        records: One per row.

    Example:
        >>> record = {"id": 0, "x": [-1.0], "parameters": {"C": 0.1, "id": "a"}, "reward": 2.0}
        >>> flatten_records([record])
        [{'id': 0, 'C': 0.1, 'parameter_id': 'a', 'reward': 2.0}]
    """
    taken = _taken_by_others(records)
    return [_flatten(record, taken) for record in records]


def _taken_by_others(records: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of the columns that are not parameters."""
    own = [{k: v for k, v in r.items() if k not in ("x", "parameters")} for r in records]
    return {column for record in own for column in _flatten(record)}


def frame_of_records(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows of :func:`flatten_records` as a pandas DataFrame.

    A parameter with the category None has a column of objects, in which this category is None and
    not NaN.

    Args:
        records: One per row.

    Raises:
        ImportError: If pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError(
            "History.to_dataframe needs pandas: pip install 'botorch_bandits[dataframe]'. "
            "History.to_records gives the same as plain dictionaries."
        ) from error
    rows, taken = flatten_records(records), _taken_by_others(records)
    frame = pd.DataFrame(rows)
    for name in {n for r in records for n, v in (r.get("parameters") or {}).items() if v is None}:
        column = f"parameter_{name}" if name in taken else name
        frame[column] = pd.Series([row.get(column) for row in rows], dtype=object)
    return frame


def _flatten(record: Mapping[str, Any], taken: Set[str] = frozenset()) -> dict[str, Any]:
    """Return one row; names of parameters that are already taken get a prefix."""
    row: dict[str, Any] = {}
    named = record.get("parameters")
    for name, value in record.items():
        if name == "parameters":
            row |= {f"parameter_{n}" if n in taken else n: v for n, v in (named or {}).items()}
        elif name == "x" and named is not None:
            continue
        elif name in ("x", "context", "constraints", "retracted_constraints"):
            stem = name.removesuffix("s")
            row |= {f"{stem}{i}": v for i, v in enumerate(value or ())}
        elif name == "diagnostics":
            row |= value
        else:
            row[name] = value
    return row


def state_after(event: Event | None) -> str:
    """Return ``"pending"``, ``"told"``, ``"failed"`` or ``"retracted"``.

    Args:
        event: The event that ended the waiting for a query; None if there is none.
    """
    return Query.state if event is None else event.state


class Growing:
    """Numbers that grow at their end, in memory that doubles; NumPy appends faster than PyTorch.

    Args:
        *shape: The shape of one entry.
        dtype: Their type.

    Attributes:
        values: All of them, on the same memory.
    """

    def __init__(self, *shape: int, dtype: Any = float) -> None:
        """See the class."""
        self._room: NDArray[Any] = np.empty((16, *shape), dtype)
        self.values = torch.from_numpy(self._room[:0])

    def append(self, values: Sequence[Any] | NDArray[Any], start: int | None = None) -> None:
        """Add values at the end.

        Args:
            values: The values.
            start: How many there are before them, if the last call may have been interrupted.
        """
        start = len(self.values) if start is None else start
        end = start + len(values)
        if end > len(self._room):
            more = np.empty((2 * end, *self._room.shape[1:]), self._room.dtype)
            more[:start] = self._room[:start]
            self._room = more
        self._room[start:end] = values
        self.values = torch.from_numpy(self._room[:end])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state; in a copy as well, the values are on the same memory."""
        vars(self).update(state)
        self.values = torch.from_numpy(self._room[: len(self.values)])

    def without(self, i: int) -> Growing:
        """Return all but one of them, in new memory, because callers may hold the values."""
        kept = Growing(*self._room.shape[1:], dtype=self._room.dtype)
        kept.append(np.delete(self.values.numpy(), i, axis=0))
        return kept


class History:
    """Append-only table of queries and outcomes for points in ``dim`` dimensions.

    The history is the single source of truth: models, acquisition functions and suggestions are
    derived from it and can be discarded. Nothing in it is ever changed or removed: an outcome that
    is withdrawn stays on record with its retraction, but models and sums leave it out.

    Args:
        dim: The dimension of the points.
        context_dim: The dimension of the contexts; 0 if there are none.
        num_constraints: The number of constraint values that come with each reward.
        maximize: Whether large rewards are sought. If False, outcomes are costs: they are stored in
            place of the rewards with their sign unchanged, and the best is the smallest.

    Attributes:
        latest_at: The latest time of a query or an event.
        num_weighted: The number of outcomes that arrived with their own ``count`` or ``noise``.

    Example:
        >>> history = History(dim=1)
        >>> x = torch.tensor([0.5], dtype=torch.float64)
        >>> query = history.record(history.new_query(x, "initial", asked_at=0.0))
        >>> outcome = history.record(history.new_outcome(query.id, 2.0, arrived_at=1.0))
        >>> X, Y = history.arrived()
        >>> X.tolist(), Y.tolist()
        ([[0.5]], [[2.0]])
    """

    def __init__(
        self, dim: int, context_dim: int = 0, num_constraints: int = 0, maximize: bool = True
    ) -> None:
        """See the class."""
        self.maximize = check_instance("maximize", maximize, bool, "Pass True or False.")
        self.dim = check_integer("dim", dim, minimum=1)
        self.context_dim = check_integer("context_dim", context_dim, minimum=0)
        self.num_constraints = check_integer("num_constraints", num_constraints, minimum=0)
        self._queries: list[Query] = []
        self._pending: dict[int, Query] = {}  # by id, in asking order
        # in order of arrival; a retraction takes the position of its outcome
        self._events: list[Event] = []
        self._ended: dict[int, Event] = {}  # the same by query id
        self._retractions: list[Retraction] = []  # in the order in which they were made
        self._arrivals: list[Outcome] = []
        self.latest_at = -math.inf
        self._avoided: list[int] = []  # ids of failed queries whose points are avoided
        self.num_weighted = 0
        # arm (-1 if there is none), context and point of all queries; id, reward and constraint
        # values of outcomes, in order of arrival
        self._asked = Growing(1 + self.context_dim + self.dim)
        self._told = Growing(2 + self.num_constraints)

    def __contains__(self, entry: Query | Event) -> bool:
        """Return whether this very entry is on record."""
        if isinstance(entry, Query):
            return entry in self._queries[entry.id : entry.id + 1]
        return self._ended.get(entry.query_id) is entry

    def new_query(
        self,
        x: Tensor,
        origin: str,
        asked_at: float,
        context: Tensor | None = None,
        diagnostics: Mapping[str, float] | None = None,
        parameters: Mapping[str, Any] | None = None,
        restriction: Mapping[str, Any] | None = None,
        arm: int | None = None,
    ) -> Query:
        """Return the next query, checked; :meth:`record` records it.

        Args:
            x: The point, ``d``-dimensional, float64.
            origin: ``"initial"``, ``"acquisition"``, ``"exploration"``, ``"random"`` or
                ``"attached"``.
            asked_at: The time in seconds.
            context: The context, if the history has a context dimension.
            diagnostics: The values reported by the acquisition function, by name.
            parameters: The point as native values by name, if the domain has names.
            restriction: The points or arms that the round could choose from; see :class:`Query`.
            arm: The index of the arm, if the domain is a list of arms.

        Raises:
            ValueError: If a shape is wrong, a value is not finite, or the origin is unknown.
        """
        if origin not in ORIGINS:
            raise ValueError(f"origin is {origin!r}; it must be one of {', '.join(ORIGINS)}.")
        if (context is None) != (self.context_dim == 0):
            raise ValueError(f"context is {context}, but context_dim is {self.context_dim}.")
        return Query(
            id=len(self._queries),
            _x=check_vector("x", x, length=self.dim).detach().clone(),
            round_number=len(self._queries) + 1,
            origin=origin,
            asked_at=asked_at,
            _context=None
            if context is None
            else check_vector("context", context, length=self.context_dim).detach().clone(),
            _diagnostics=dict(diagnostics or {}),
            _parameters=None if parameters is None else dict(parameters),
            _restriction=None if restriction is None else dict(restriction),
            arm=arm,
        )

    def new_outcome(
        self,
        query_id: int,
        reward: Any,
        arrived_at: float,
        constraints: Any = None,
        count: Any = None,
        noise: Any = None,
    ) -> Outcome:
        """Return the outcome of a query, checked; :meth:`record` records it.

        Args:
            query_id: The query's id.
            reward: One finite real number; see ``botorch_bandits.checks.check_reward``.
            arrived_at: The time in seconds.
            constraints: ``num_constraints`` finite numbers; None if there are none.
            count: The number of observations of which the reward and constraint values are the
                means.
            noise: The variance of the reward's noise, if it differs from the model's.

        Returns:
            The outcome; the one on record if the query has it already, with the same numbers.

        Raises:
            KeyError: If no such query was asked.
            ValueError: If the query has another outcome already or failed, a number is not finite,
                constraint values are missing, not expected, too few or too many, ``count`` or
                ``noise`` is not positive, or both are given.
            TypeError: If the reward is not a single real number, or ``count`` is not an integer.
        """
        query = self.query(query_id)
        event, num_queries = self._ended.get(query.id), len(self._queries)
        values = constraints, count, noise
        if event is None:
            return self.outcome_of(query.id, reward, arrived_at, num_queries, *values)
        reason = str(event.reason).partition("\n")[0]  # without traceback
        if isinstance(event, Outcome):
            arrival = event.arrived_at, event.arrived_round
            if event == self.outcome_of(query.id, reward, *arrival, *values):
                return event
            also, and_now = "", ""
            if event.constraints:
                also = f" and constraints {list(event.constraints)}"
                and_now = f" and {shown_value(constraints)}"
            raise ValueError(
                f"query_id {query.id} already has the reward {event.reward}{also}, and was now "
                f"told {shown_value(reward)}{and_now}; the history is append-only. Ask again to "
                "evaluate the point a second time; if the reward on record is wrong, withdraw it: "
                "loop.retract(query_id, reason)."
            )
        attach = "loop.attach(query.x, reward"
        attach += ", context=query.context" if self.context_dim else ""
        attach += ", constraints=[...])" if self.num_constraints else ")"
        is_failure = event.state == Failure.state
        raise ValueError(
            f"query_id {query.id} {'failed' if is_failure else 'was retracted'} ({reason}), and a "
            f"{'failure' if is_failure else 'retraction'} is final. Attach the point with its "
            f"{'' if is_failure else 'right '}reward: {attach}."
        )

    def new_failure(
        self,
        query_id: int,
        arrived_at: float,
        reason: str | None = None,
        avoided: bool = False,
        constraints: Any = None,
    ) -> Failure:
        """Return the failure of a query, of which no outcome will come; :meth:`record` records it.

        Args:
            query_id: The query's id.
            arrived_at: The time in seconds.
            reason: The reason.
            avoided: Whether the point is avoided; see :class:`Failure`.
            constraints: ``num_constraints`` finite numbers, if they were observed nevertheless.

        Raises:
            KeyError: If no such query was asked.
            TypeError: If the reason is not a string.
            ValueError: If the query has an outcome, or failed before, or a constraint value is not
                finite, not expected or missing.
        """
        query = self.query(query_id)
        event = self._ended.get(query.id)
        if isinstance(event, Outcome | Retraction):
            raise ValueError(
                f"query_id {query.id} is already {event.state}; only a pending query can fail."
            )
        values: tuple[float, ...] = ()
        if constraints is not None:
            values = check_constraint_values(constraints, self.num_constraints)
        if event is None:
            reason = None if reason is None else check_text("reason", reason)
            arrival = arrived_at, len(self._queries)
            return Failure(query.id, reason, *arrival, constraints=values, avoided=avoided)
        if constraints is not None and values != event.constraints:
            raise ValueError(
                f"query_id {query.id} failed with constraints {list(event.constraints)}, "
                f"and was now told {shown_value(constraints)}; a failure is final."
            )
        return event

    def new_retraction(self, query_id: int, reason: str, retracted_at: float) -> Retraction:
        """Return the withdrawal of an outcome; once recorded, its query counts as failed.

        Args:
            query_id: The query's id.
            reason: The reason.
            retracted_at: The time in seconds.

        Raises:
            KeyError: If no such query was asked.
            TypeError: If the reason is not a string.
            ValueError: If the query has no outcome that could be withdrawn, or the reason is empty.
        """
        query = self.query(query_id)
        if not check_text("reason", reason, "say why the outcome is withdrawn.").strip():
            raise ValueError("reason is blank; say why the outcome is withdrawn.")
        outcome = self._ended.get(query.id)
        if not isinstance(outcome, Outcome):
            remedy = "There is nothing to withdraw."
            if outcome is None:
                remedy = "Nothing was told yet; say that nothing will come with fail()."
            elif isinstance(outcome, Retraction):
                remedy = f"The reason was: {outcome.reason}"
            raise ValueError(
                f"query_id {query.id} is {state_after(outcome)}, and only an outcome that was told "
                f"can be retracted. {remedy}"
            )
        return Retraction(
            query_id=query.id,
            reason=reason,
            arrived_at=outcome.arrived_at,
            arrived_round=outcome.arrived_round,
            outcome=outcome,
            retracted_at=retracted_at,
            retracted_round=len(self._queries),
        )

    def outcome_of(
        self,
        query_id: int,
        reward: Any,
        arrived_at: float,
        arrived_round: int,
        constraints: Any = None,
        count: Any = None,
        noise: Any = None,
    ) -> Outcome:
        """Return an outcome with checked values, without looking at its query.

        Args:
            query_id: The id of its query.
            reward: One finite number.
            arrived_at: The time in seconds.
            arrived_round: The number of queries asked so far.
            constraints: ``num_constraints`` finite numbers; None if there are none.
            count: See :meth:`new_outcome`.
            noise: See :meth:`new_outcome`.
        """
        return Outcome(
            query_id=query_id,
            reward=check_told(reward),
            arrived_at=arrived_at,
            arrived_round=arrived_round,
            constraints=()
            if constraints is None and not self.num_constraints
            else check_constraint_values(constraints, self.num_constraints),
            count=None if count is None else check_count(count, noise),
            noise=None if noise is None else check_noise_variance(noise),
        )

    def record(self, entry: Entry) -> Entry:
        """Record a query or event that was made for the current state of this history.

        An interrupt leaves a query, an outcome or a failure on record as a whole or not at all:
        Python handles signals at calls, and there is none among the changes that count.

        Args:
            entry: From :meth:`new_query`, :meth:`new_outcome`, :meth:`new_failure` or
                :meth:`new_retraction`.
        """
        if isinstance(entry, Query):
            at = entry.asked_at
            context = [] if entry._context is None else entry._context.tolist()
            arm = -1 if entry.arm is None else entry.arm
            self._asked.append([[arm, *context, *entry._x.tolist()]], entry.id)
            self._pending[entry.id] = entry
            self._queries += [entry]
        elif isinstance(entry, Retraction):
            at = entry.retracted_at
            self._withdraw(entry)
        else:
            at = entry.arrived_at
            if isinstance(entry, Outcome):
                row = entry.query_id, entry.reward, *entry.constraints
                is_weighted = entry.is_weighted
                self._told.append([row], len(self._arrivals))
                self._arrivals += [entry]
                self.num_weighted += is_weighted
            elif entry.avoided:
                self._avoided += [entry.query_id]
            self._events += [entry]
            self._ended[entry.query_id] = entry
            del self._pending[entry.query_id]
        self.latest_at = max(self.latest_at, at)
        return entry

    def __repr__(self) -> str:
        """Show the counts."""
        retracted = f", {self.num_retracted} retracted" if self._retractions else ""
        return f"History({self.num_queries} queries, {self.num_arrived} arrived{retracted})"

    @property
    def outcome_name(self) -> str:
        """The name of an outcome's number: ``"reward"``, or ``"cost"`` if it is minimized."""
        return "reward" if self.maximize else "cost"

    def is_better(self, one: float, other: float) -> bool:
        """Return whether one reward is better than another: larger, or smaller if it is a cost.

        Args:
            one: The reward or cost as told.
            other: The reward or cost that it is compared with, as told.
        """
        return one > other if self.maximize else one < other

    def rank(self, outcome: Outcome) -> tuple[float, int]:
        """Return a key that is largest for the best outcome, the first asked among equal ones.

        Args:
            outcome: An outcome of this history.
        """
        reward = outcome.reward if self.maximize else 0.0 - outcome.reward
        return reward, -outcome.query_id

    @property
    def num_queries(self) -> int:
        """The number of queries asked so far."""
        return len(self._queries)

    @property
    def num_arrived(self) -> int:
        """The number of outcomes that arrived and were not retracted."""
        return len(self._arrivals)

    @property
    def num_failed(self) -> int:
        """The number of queries that failed; those whose outcome was retracted are not counted."""
        return len(self._events) - len(self._arrivals) - len(self._retractions)

    @property
    def num_retracted(self) -> int:
        """The number of retracted outcomes."""
        return len(self._retractions)

    @property
    def num_pending(self) -> int:
        """The number of queries that have no outcome yet and have not failed."""
        return len(self._pending)

    @property
    def queries(self) -> tuple[Query, ...]:
        """All queries in the order in which they were asked."""
        return tuple(self._queries)

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """All outcomes in the order in which they arrived, without those that were retracted."""
        return tuple(self._arrivals)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """All failures in the order in which they arrived."""
        ended = (self._latest(Failure, query_id) for query_id in self._ended)
        return tuple(event for event in ended if event is not None)

    @property
    def retractions(self) -> tuple[Retraction, ...]:
        """All retractions, with what had been told, in the order in which they were made."""
        return tuple(self._retractions)

    def rounds_with_retracted(self) -> list[int]:
        """Return the rounds between an outcome's arrival and its retraction, in order."""
        rounds: set[int] = set()
        for retraction in self._retractions:
            rounds.update(range(retraction.arrived_round + 1, retraction.retracted_round + 1))
        return sorted(rounds)

    @property
    def events(self) -> tuple[Event, ...]:
        """Outcomes and failures in the order in which they arrived.

        A retraction has the position of its outcome: the query counts as having failed at that
        time.
        """
        return tuple(self._events)

    def in_order(self) -> Iterator[Query | Event]:
        """Yield queries, and what ended them, in the order in which they count."""
        events = iter(self._events)
        waiting = next(events, None)
        for query in self._queries:
            while waiting is not None and waiting.arrived_round < query.round_number:
                yield waiting
                waiting = next(events, None)
            yield query
        while waiting is not None:
            yield waiting
            waiting = next(events, None)

    def query(self, query_id: int) -> Query:
        """Return the query with this id.

        Args:
            query_id: The query's id.

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

    def outcome(self, query_id: int) -> Outcome | None:
        """Return the outcome of a query, or None if it has none or it was retracted.

        Args:
            query_id: The query's id.

        Raises:
            KeyError: If no such query was asked.
        """
        return self._latest(Outcome, query_id)

    def failure(self, query_id: int) -> Failure | None:
        """Return the failure of a query, or None if it did not fail.

        Args:
            query_id: The query's id.

        Raises:
            KeyError: If no such query was asked.
        """
        return self._latest(Failure, query_id)

    def retraction(self, query_id: int) -> Retraction | None:
        """Return the retraction of a query's outcome, or None if there is none.

        Args:
            query_id: The query's id.

        Raises:
            KeyError: If no such query was asked.
        """
        return self._latest(Retraction, query_id)

    def state(self, query_id: int) -> str:
        """Return ``"pending"``, ``"told"``, ``"failed"`` or ``"retracted"``.

        Args:
            query_id: The query's id.

        Raises:
            KeyError: If no such query was asked.
        """
        return state_after(self._ended.get(self.query(query_id).id))

    def arrived(self) -> tuple[Tensor, Tensor]:
        """Return the inputs and rewards that arrived, in order of arrival.

        Returns:
            ``n x (context_dim + d)`` inputs (columns: context, then point) and ``n x 1`` rewards.
        """
        ids, Y = self.told()
        X = self.inputs(ids)
        return X, Y[:, :1].to(X.device)

    def told(self) -> tuple[Tensor, Tensor]:
        """Return the ids of queries, and what was told of them, in order of arrival.

        Returns:
            ``n`` ids and ``n x (1 + num_constraints)`` rewards and constraint values, on the CPU.
        """
        told = self._told.values
        return told[:, 0].long(), told[:, 1:].clone()  # a user's model may work in place

    def constraints(self) -> Tensor:
        """Return the constraint values that arrived, in order of arrival.

        Returns:
            ``n x num_constraints`` observed values.
        """
        return self._told.values[:, 2:].clone()

    def weights(self, noise: float) -> Tensor | None:
        """Return the weights of the rows that arrived, ``n`` in that order; None if all are 1.

        Args:
            noise: The modeled noise variance of one observation.
        """
        if not self.num_weighted:
            return None
        return torch.tensor([each.weight(noise) for each in self._arrivals], dtype=DTYPE)

    def pending(self) -> tuple[Query, ...]:
        """Return the pending queries, in the order in which they were asked."""
        return tuple(self._pending.values())

    def pending_in(self, round_number: int) -> tuple[Query, ...]:
        """Return the queries that were pending when the query of a round was chosen.

        Args:
            round_number: From 1; one more than the number of rounds so far means now.
        """
        rounds = {event.query_id: event.arrived_round for event in self._events}
        return tuple(
            query
            for query in self._queries[: round_number - 1]
            if rounds.get(query.id, round_number) >= round_number
        )

    def inputs(self, ids: Tensor | None = None) -> Tensor:
        """Return the inputs of queries, ``n x (context_dim + d)``, on the device of the points.

        Args:
            ids: ``n`` ids; all queries if omitted.
        """
        X = self._asked.values[slice(None) if ids is None else ids, 1:].clone()
        return X.to(self._queries[0]._x.device) if self._queries else X

    def arms(self, ids: Tensor) -> Tensor:
        """Return the indices of the arms of queries, ``n``, on the CPU; -1 where there is none.

        Args:
            ids: ``n`` ids.
        """
        return self._asked.values[ids, 0].long()

    def pending_or_avoided(self) -> list[int]:
        """Return the ids of pending queries, and of failed ones that are avoided, in order.

        Their inputs become the ``X_pending`` of acquisition functions.
        """
        return sorted({*self._pending, *self._avoided}) if self._avoided else [*self._pending]

    def avoided_in_a_row(self, first: int = 0) -> int:
        """Return the number of failures with avoided points since the last outcome.

        Args:
            first: Events of queries with a smaller id do not count.
        """
        count = 0
        for event in reversed(self._events):
            if event.query_id < first:
                continue
            if not event.avoided:
                break
            count += 1
        return count

    def best(self) -> tuple[Query, Outcome] | None:
        """Return the query with the best observed reward (the first of equal ones), if any.

        That is the largest reward, or the smallest cost if ``maximize`` is False.
        """
        if not self._arrivals:
            return None
        ids, rewards = self._told.values[:, :2].mT
        best = rewards.max() if self.maximize else rewards.min()
        place = int(ids[rewards == best].min())
        return self._queries[place], cast(Outcome, self._ended[place])

    def to_records(self) -> list[dict[str, Any]]:
        """Return one dictionary of plain Python values per query, in asking order.

        ``json.dumps`` and back loses nothing. ``state`` is ``"pending"``, ``"told"``, ``"failed"``
        or ``"retracted"``. ``parameters`` exists if points have names. While a query is pending,
        ``arrival_order`` is None, and so are ``constraints``, if there are any. A failure also has
        a position in the order, a ``reason``, and ``constraints`` if they were told; ``avoided`` is
        present, and True, if its point is avoided. ``count`` and ``noise`` are present if they were
        told.

        A query whose outcome was retracted has the outcome's position, the reason for the
        retraction, and None for ``reward`` and ``constraints``. The withdrawn values are in
        ``retracted_reward`` and ``retracted_constraints``; ``retracted_at``, ``retracted_round``
        and ``retraction_order`` say when it was withdrawn. Other queries lack these entries.
        """
        retraction_orders = {each.query_id: k for k, each in enumerate(self._retractions)}
        ended = {event.query_id: (order, event) for order, event in enumerate(self._events)}
        records = []
        for query in self._queries:
            order, event = ended.get(query.id, (None, None))
            record = plain_record(query, event, order, self.num_constraints > 0)
            if query.id in retraction_orders:
                record["retraction_order"] = retraction_orders[query.id]
            records.append(record)
        return records

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table as a pandas DataFrame, one row per query in asking order.

        The columns are those of :meth:`to_records`, with ``x``, ``context`` and ``constraints`` as
        one column per entry (``x0``, ``x1``, ...) and one column per diagnostic. If points have
        names, these replace ``x`` as columns; see :func:`.flatten_records`.

        Raises:
            ImportError: If pandas is not installed.
        """
        return frame_of_records(self.to_records())

    def _latest(self, kind: type[OneEvent], query_id: int) -> OneEvent | None:
        event = self._ended.get(self.query(query_id).id)
        return event if isinstance(event, kind) and event.state == kind.state else None

    def _withdraw(self, retraction: Retraction) -> None:
        """Replace an outcome with its retraction."""
        outcome, query_id = retraction.outcome, retraction.query_id
        row = self._arrivals.index(outcome)
        del self._arrivals[row]
        self._told = self._told.without(row)
        self._events[self._events.index(outcome)] = self._ended[query_id] = retraction
        self._retractions.append(retraction)
        self.num_weighted -= outcome.is_weighted
