"""What a bandit asks, and what may come back: queries, outcomes, failures and retractions.

A :class:`Query` is one row of a history, which an :class:`Outcome`, a :class:`Failure` or a
:class:`Retraction` may end. None of them can be changed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from botorch_bandits.checks import shown_value
from botorch_bandits.docstrings import fill_in_docstrings

if TYPE_CHECKING:
    import pandas as pd

ORIGINS = ("initial", "acquisition", "repeat", "random", "exploration", "attached")


@dataclass(frozen=True, eq=False)
class Query:
    """One question that the bandit asked: evaluate the reward at ``x``.

    Attributes:
        id: Counts queries from 0; name it when telling the outcome.
        x: The point, ``d``-dimensional, float64; a copy at each reading, so that an evaluation
            that works in place cannot change the history.
        round_number: The round in which it was asked, from 1.
        origin: ``"acquisition"``, ``"initial"`` (a uniform initial round), ``"exploration"`` (a
            uniform or probing round of a policy that restarts), ``"random"`` (a method that does
            not look at outcomes) or ``"attached"`` (a point that is evaluated elsewhere).
        asked_at: Clock time in seconds.
        context: The context that was given in this round, if any; a copy like ``x``.
        diagnostics: What the acquisition knew: ``mean``, ``standard_deviation``, ``width``,
            ``information_gain`` and ``acquisition_value``, as far as they exist. A copy too.
        request_id: The caller's name for the request, if it had one.
        parameters: The point by names and in native values, where the domain has names
            (:class:`~botorch_bandits.Space`); None elsewhere. A copy too.
        restriction: What the round could choose from, if not from the whole domain; see
            :meth:`.BanditLoop.ask`. On arms ``"arms"`` that were available, by number, or those
            ``"absent"``, or ``"bits"``, one an arm, in base 64; on a box the available
            ``"points"``, or what was ``"fixed"``, by name or column, and points to ``"avoid"``
            with ``"avoid_within"``. A copy too.
    """

    id: int
    _x: Tensor
    round_number: int
    origin: str
    asked_at: float
    _context: Tensor | None = None
    _diagnostics: Mapping[str, float] = field(default_factory=dict)
    request_id: str | None = None
    _parameters: Mapping[str, Any] | None = None
    _restriction: Mapping[str, Any] | None = None

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
        """Whether the round could choose from a part of the domain only."""
        return self._restriction is not None

    def __repr__(self) -> str:
        """Show what a user evaluates and tells."""
        named = self.parameters
        point = f"x={self.x.tolist()}" if named is None else f"parameters={named}"
        return f"Query(id={self.id}, {point}, origin={self.origin!r})"


@dataclass(frozen=True)
class Outcome:
    """What came back for a query.

    Attributes:
        query_id: The query's id.
        reward: The observed reward.
        arrived_at: Clock time in seconds.
        arrived_round: How many queries had been asked when it arrived.
        constraints: The observed constraint values; at most 0 is feasible.
        count: Of how many observations reward and constraint values are the means; None for one.
        noise: The variance of the noise of the reward; None where it is the model's.
    """

    query_id: int
    reward: float
    arrived_at: float
    arrived_round: int
    constraints: tuple[float, ...] = ()
    count: int | None = field(default=None, kw_only=True)
    noise: float | None = field(default=None, kw_only=True)

    @property
    def is_weighted(self) -> bool:
        """Whether its noise is another one than that of a single observation."""
        return self.count is not None or self.noise is not None

    def weight(self, noise: float) -> float:
        """Return the ratio of the noise variance of one observation to that of this outcome.

        Args:
            noise: The noise variance of one observation, as it is modeled.

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
    """The news that no outcome of a query will come.

    Attributes:
        query_id: The query's id.
        reason: Why, if anybody said so.
        arrived_at: Clock time in seconds when the news arrived.
        arrived_round: How many queries had been asked then.
        avoided: Whether the point is kept away from: it stays in the acquisition function as it
            was while the query was pending.
    """

    query_id: int
    reason: str | None
    arrived_at: float
    arrived_round: int
    avoided: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Retraction(Failure):
    """The news that an outcome that was told is withdrawn.

    From then on the query counts as one that failed, and did so when its outcome arrived. What was
    told, and why it does not count, stay on record.

    Attributes:
        query_id: The query's id.
        reason: Why the outcome is withdrawn.
        arrived_at: Clock time in seconds when the outcome arrived.
        arrived_round: How many queries had been asked when the outcome arrived.
        outcome: What had been told.
        retracted_at: Clock time in seconds when the outcome was withdrawn.
        retracted_round: How many queries had been asked when the outcome was withdrawn.
    """

    reason: str
    outcome: Outcome
    retracted_at: float
    retracted_round: int


Event: TypeAlias = Outcome | Failure
"""What ends the waiting for a query."""


class KeptInJournal:
    """What is recorded here may have to be in a journal first; a copy is free of it."""

    _journal_path: str | None = None

    def keep_in_journal(self, path: Any) -> None:
        """Let nothing be recorded from now on but what a loop wrote to its journal.

        Args:
            path: Of the journal.
        """
        self._journal_path = str(path)

    def refuse_beside_journal(self, entry: Query | Event) -> None:
        """Raise if there is a journal that would not have an entry.

        Args:
            entry: What is to be recorded.

        Raises:
            RuntimeError: If there is.
        """
        if self._journal_path is None:
            return
        kinds = {Query: "ask", Outcome: "tell", Retraction: "retract", Failure: "tell_failed"}
        kind = type(entry)
        raise RuntimeError(
            f"history.add_{kind.__name__.lower()} would record a row that the loop's journal "
            f"{self._journal_path} does not get, so that it is lost when the loop is opened again. "
            f"Use loop.{kinds.get(kind, 'tell')}(...), or add to a copy: copy.deepcopy(history)."
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the journal: a copy belongs to no loop."""
        return {name: value for name, value in vars(self).items() if name != "_journal_path"}


def input_of(query: Query) -> Tensor:
    """Return the context and the point of a query in one vector, a copy at each call."""
    return query.x if query._context is None else torch.cat([query._context.to(query._x), query._x])


def argument_of(query: Query) -> Tensor | dict[str, Any]:
    """Return what a user's function is called with: the same in whatever runs it.

    Args:
        query: The query that is evaluated.

    Returns:
        Where points have names (:class:`~botorch_bandits.Space`), a dictionary of native values,
        with the context under ``"context"`` if there is one. Otherwise a float64 tensor of one
        dimension: the context, if any, and the point.
    """
    parameters = query.parameters
    if parameters is None:
        return input_of(query)
    if query.context is None:
        return parameters
    if "context" in parameters:
        raise ValueError(
            "a parameter is named 'context', and so is the context that the function is given "
            "beside the parameters. Name the parameter otherwise."
        )
    return {**parameters, "context": query.context}


def outcome_told_at_once(query: Query, event: Event | None) -> Outcome | None:
    """Return the outcome that a query was attached with, or None if it was asked or pending.

    Args:
        query: The query.
        event: What ended it, or None; a retraction has the outcome that it withdraws.
    """
    outcome = event.outcome if isinstance(event, Retraction) else event
    if query.origin != "attached" or not isinstance(outcome, Outcome):
        return None
    is_its_own = outcome.query_id == query.id and outcome.arrived_round == query.round_number
    return outcome if is_its_own and outcome.arrived_at == query.asked_at else None


def point_text(query: Query) -> str:
    """Return a query's point in one line: values by name where there are names.

    Args:
        query: Whose point it is.

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
    """Return a query and what ended the waiting for it as :meth:`History.to_records` does.

    Args:
        query: The query.
        event: What ended the waiting; None while the query is pending.
        order: The place of the event among all of them.
        has_constraints: Whether outcomes have constraint values.
    """
    outcome = event if isinstance(event, Outcome) else None
    failure = event if isinstance(event, Failure) else None
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
        "reason": None if failure is None else failure.reason,
        **({"avoided": True} if failure is not None and failure.avoided else {}),
        "request_id": query.request_id,
        **({} if query.restriction is None else {"restriction": query.restriction}),
        "diagnostics": query.diagnostics,
    }
    if has_constraints:
        record["constraints"] = None if outcome is None else list(outcome.constraints)
    if isinstance(event, Retraction):
        record["retracted_reward"] = event.outcome.reward
        record |= {f"retracted_{k}": v for k, v in weighting_of(event.outcome).items()}
        if has_constraints:
            record["retracted_constraints"] = list(event.outcome.constraints)
        record["retracted_at"] = event.retracted_at
        record["retracted_round"] = event.retracted_round
    return record


def weighting_of(outcome: Outcome) -> dict[str, Any]:
    """Return ``count`` or ``noise`` of an outcome by name, as far as it has one."""
    told = {"count": outcome.count, "noise": outcome.noise}
    return {name: value for name, value in told.items() if value is not None}


RECORDED = (
    "id",
    "origin",
    "x",
    "context",
    "asked_at",
    "reward",
    "arrived_at",
    "arrived_round",
    "arrival_order",
    "diagnostics",
)
"""What each record of a history has; the rest is there where it is in use."""


def checked_records(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return records if each has its entries; what stands in them is checked where it is read.

    Args:
        records: One mapping a query.

    Raises:
        ValueError: Naming the first record that has not, and the entry.
    """
    remedy = "Pass records as History.to_records() returned them."
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        raise ValueError(f"records is {shown_value(records)}, which is no list. {remedy}")
    found = list(records)
    for i, record in enumerate(found):
        if not isinstance(record, Mapping):
            raise ValueError(f"records[{i}] is {shown_value(record)}, which is no dict. {remedy}")
        missing = [name for name in RECORDED if name not in record]
        if record.get("state") == "retracted":
            retracted = ("retraction_order", "retracted_at", "retracted_round", "retracted_reward")
            missing += [name for name in retracted if name not in record]
        if missing:
            raise ValueError(f"records[{i}] has no {', '.join(map(repr, missing))}. {remedy}")
        for name in ("diagnostics", "parameters", "restriction"):
            value = record.get(name)
            if value is not None and not isinstance(value, Mapping):
                raise ValueError(
                    f"records[{i}][{name!r}] is {shown_value(value)}, which is no dict. {remedy}"
                )
        for name in ("arrival_order", "arrived_round", "retraction_order", "retracted_round"):
            value = record.get(name)
            if value is not None and type(value) is not int:
                raise ValueError(
                    f"records[{i}][{name!r}] is {shown_value(value)}, which is no whole number. "
                    f"{remedy}"
                )
    return found


def flatten_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Turn one record of :meth:`History.to_records` into one flat table row."""
    return flatten_records([record])[0]


def flatten_records(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turn records of :meth:`History.to_records` into flat rows of one table.

    ``x``, ``context`` and ``constraints`` have one column an entry (``x0``, ``x1``, ...), and each
    diagnostic has a column of its own. Where the point has names, they are the columns in place of
    ``x0``, ``x1``, ...; a name that another column has is written with ``parameter_`` in front.

    Args:
        records: One a row.

    Example:
        >>> record = {"id": 0, "x": [-1.0], "parameters": {"C": 0.1, "id": "a"}, "reward": 2.0}
        >>> flatten_records([record])
        [{'id': 0, 'C': 0.1, 'parameter_id': 'a', 'reward': 2.0}]
    """
    own = [{k: v for k, v in r.items() if k not in ("x", "parameters")} for r in records]
    taken = {column for record in own for column in _flatten(record)}
    return [_flatten(record, taken) for record in records]


def frame_of_records(records: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the rows of :func:`flatten_records` as a pandas DataFrame.

    Args:
        records: One a row.

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
    return pd.DataFrame(flatten_records(records))


def _flatten(record: Mapping[str, Any], taken: Set[str] = frozenset()) -> dict[str, Any]:
    """Return one row; names of parameters that are taken get a prefix."""
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
        event: What ended the waiting for a query; None if nothing did.
    """
    if isinstance(event, Retraction):
        return "retracted"
    if isinstance(event, Failure):
        return "failed"
    return "pending" if event is None else "told"


fill_in_docstrings(__name__)
