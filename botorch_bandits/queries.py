"""The rows and events of a history: queries, outcomes, failures and retractions.

A :class:`Query` is one row of a history, which an :class:`Outcome`, a :class:`Failure` or a
:class:`Retraction` may end. None of them can be changed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from botorch_bandits.checks import store_checked

if TYPE_CHECKING:
    import pandas as pd

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
        origin: ``"acquisition"``, ``"initial"`` (a uniform initial round), ``"exploration"`` (a
            uniform round of a policy that restarts), ``"random"`` (a method that does
            does not use outcomes) or ``"attached"`` (a point that is evaluated elsewhere).
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


def flatten_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Turn one record of :meth:`History.to_records` into one flat table row."""
    return flatten_records([record])[0]


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
