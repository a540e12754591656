"""Points that others choose: how a loop records points that are evaluated elsewhere.

An attached point is a round of the loop, like a point that was asked for. Its outcome is recorded
with it, or the point is pending and its outcome is told later.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, overload

from botorch_bandits.checks import check_context, is_list, level_of_users_line
from botorch_bandits.history import Outcome, Query
from botorch_bandits.loop.turns import TakesTurns


def check_one_point(x: Any) -> None:
    """Raise an error if several points are given in place of one.

    Args:
        x: What was passed as the point.

    Raises:
        ValueError: If it is a matrix, or a list of points.
    """
    first = x[0] if is_list(x) and x else 0.0
    has_rows = is_list(first) or isinstance(first, Mapping) or getattr(first, "ndim", 0) > 0
    if has_rows or getattr(x, "ndim", 1) > 1:
        raise ValueError(
            f"x has {len(x)} row{'s' * (len(x) > 1)}, but it must be one point, a vector. Attach "
            "one at a time: for x, reward in zip(X, Y): loop.attach(x, reward)."
        )


class AttachesPoints(TakesTurns):
    """The part of a loop that takes in points that it did not choose."""

    _num_at_opening = 0  # queries of the history with which the loop was built or opened
    _warns_of_repeats = True
    _attached_before: dict[tuple[Any, ...], int] | None = None  # values of rows, and their queries

    @abstractmethod
    def tell(
        self,
        query_id: int,
        reward: Any,
        constraints: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
        at: float | None = None,
    ) -> Outcome:
        """Record the reward of a query, as described in :meth:`.BanditLoop.tell`.

        Args:
            query_id: The id of the query.
            reward: Any finite real number of absolute value at most 1e50: a Python or numpy number,
                or a tensor with one entry, of any precision; True and False count as 1 and 0.
            constraints: One such number for each constraint, or a float64 tensor; a value of at
                most 0 is feasible. None without constraints.
            count: The number of observations whose means these values are, such as the clicks of
                ``count`` impressions; it must not depend on the observed values.
            noise: The variance of this reward's noise, if it differs from the model's; it must be
                known before the reward is observed.
            at: The time in seconds; now if omitted.
        """

    @abstractmethod
    def _check_told(self, outcome: Outcome, query: Query, now: float) -> None:
        """Raise an error if the loop cannot take in an outcome."""

    @abstractmethod
    def _next_round(self) -> int:
        """Return the number of the next round, if there is a next one."""

    @overload
    def attach(
        self,
        x: Any,
        reward: None = None,
        *,
        context: Any = None,
        at: float | None = None,
    ) -> Query: ...

    @overload
    def attach(
        self,
        x: Any,
        reward: Any,
        constraints: Any = None,
        context: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
        at: float | None = None,
    ) -> Outcome: ...

    def attach(
        self,
        x: Any,
        reward: Any = None,
        constraints: Any = None,
        context: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
        at: float | None = None,
    ) -> Outcome | Query:
        """Record a point that was evaluated elsewhere and its reward, or one still in evaluation.

        It counts as a round of the loop: among ``num_initial`` and ``horizon``, and for widths that
        grow with the round. It is a row of the model like any other. Its query has the origin
        ``"attached"``, and tests for a change ignore it.

        Without a reward, the query is pending, as if :meth:`ask` had returned it in this round:
        tell its outcome by its id, or report that it failed.

        Args:
            x: The point, in the domain; under a :class:`~botorch_bandits.Space`, values by name or
                coordinates.
            reward: As for :meth:`tell`; None if it is not known yet.
            constraints: As for :meth:`tell`; given together with the reward.
            context: The ``context_dim`` numbers of the context in which the point is evaluated.
                None without contexts.
            count: As for :meth:`tell`; given together with the reward.
            noise: As for :meth:`tell`; given together with the reward.
            at: As for :meth:`ask`.

        Returns:
            The outcome, or the query if there is no reward.

        Raises:
            RuntimeError: If ``horizon`` rounds were asked already.
            TypeError: If a value is of the wrong kind.
            ValueError: If the point is outside the domain; if a value is NaN, infinite, too large
                (see :meth:`tell`), missing, or given where none is expected. Nothing is recorded
                then.
            StorageError: If it cannot be written to the storage. Nothing is recorded then.

        Warns:
            UserWarning: Once, if the same row was attached before the loop was opened, as by a
                script that runs again. It then counts twice.

        Example:
            >>> from botorch_bandits import Arms, BanditLoop, RandomSearch
            >>> loop = BanditLoop(Arms([[0.0], [0.5], [1.0]]), None, RandomSearch())
            >>> query = loop.attach([0.5])
            >>> loop.history.state(query.id)
            'pending'
            >>> loop.tell(query.id, 2.0).reward
            2.0
        """
        if reward is None:
            given = {"constraints": constraints, "count": count, "noise": noise}
            for name, value in given.items():
                if value is not None:
                    raise ValueError(
                        f"{name} is {value!r}, but reward is missing, and both are told together. "
                        f"Pass the reward, or attach the point alone and pass {name}= to tell()."
                    )
        check_one_point(x)
        named = self.settings.domain.decode(x)  # given values stay exactly as they were given
        x = self.settings.domain.check_point("x", x)
        context = check_context(self.settings.context_dim, context)
        with self._log.turn(), self._lock:
            while True:
                round_number, now = self._next_round(), self._log.now(at)
                query = self._history.new_query(x, "attached", now, context, parameters=named)
                entries: list[Query | Outcome] = [query]
                if reward is not None:
                    outcome = self._history.outcome_of(
                        query.id, reward, now, round_number, constraints, count, noise
                    )
                    self._check_told(outcome, query, now)
                    self._warn_of_a_repeat(query, outcome)
                    entries.append(outcome)
                if recorded := self._log.record(*entries):
                    return recorded[-1]

    def _warn_of_a_repeat(self, query: Query, outcome: Outcome) -> None:
        """Warn once if a row was attached before the loop was opened; two such rows look certain.

        Args:
            query: The query that is about to be attached.
            outcome: Its outcome.
        """
        if not self._warns_of_repeats or self._num_at_opening == 0:
            return
        if self._attached_before is None:
            told = [(q, self._history.outcome(q.id)) for q in self._queries_at_opening()]
            self._attached_before = {_values(q, o): q.id for q, o in told if o is not None}
        earlier = self._attached_before.get(_values(query, outcome))
        if earlier is None:
            return
        self._warns_of_repeats, self._attached_before = False, None
        warnings.warn(
            f"x={query.x.tolist()} with the reward {outcome.reward!r} was attached before this "
            f"loop was opened (query {earlier}), and now counts a second time. If the script "
            "attaches its data each time it runs, let it do so only if "
            "loop.history.num_queries is 0.",
            UserWarning,
            stacklevel=level_of_users_line(),
        )

    def _queries_at_opening(self) -> list[Query]:
        queries = self._history.queries[: self._num_at_opening]
        return [query for query in queries if query.origin == "attached"]


def _values(query: Query, outcome: Outcome) -> tuple[Any, ...]:
    """Return everything that two rows that are told twice have in common."""
    context = None if query.context is None else tuple(query.context.tolist())
    return tuple(query.x.tolist()), context, outcome.reward, outcome.constraints
