"""Points that others choose: what a loop is told of those that were, or are, evaluated elsewhere.

An attached point is a round of the loop like one that was asked. Its outcome is recorded with it,
or is pending and told later.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, overload

from botorch_bandits.checks import check_context
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.history import Outcome, Query
from botorch_bandits.journal.files import HandlersOnHold
from botorch_bandits.loop.checking import check_request
from botorch_bandits.loop.turns import TakesTurns


class AttachesPoints(TakesTurns):
    """The part of a loop that takes points which it did not choose."""

    _clock: Callable[[], float]

    @abstractmethod
    def tell(
        self,
        query_id: int,
        reward: Any,
        constraints: Any = None,
        *,
        count: int | None = None,
        noise: float | None = None,
    ) -> Outcome:
        """Record the reward of a query; :meth:`.BanditLoop.tell` has it.

        Args:
            query_id: The id of the query.
            reward: Any finite real number of at most 1e50 in size: of Python, of numpy, or a tensor
                with one entry, of any precision; True and False are 1 and 0.
            constraints: One such number for each constraint, or a float64 tensor; at most 0 is
                feasible. None without constraints.
            count: Of how many observations these are the means, such as clicks of ``count``
                impressions; it must not depend on them.
            noise: The variance of this reward's noise, if it is not the model's; known before it.
        """

    @abstractmethod
    def _check_told(self, outcome: Outcome, query: Query, now: float) -> None:
        """Raise if an outcome is not one that the loop takes."""

    @abstractmethod
    def _next_round(self) -> int:
        """Return the number of the next round, if there is one."""

    @overload
    def attach(
        self,
        x: Any,
        reward: None = None,
        *,
        context: Any = None,
        request_id: str | None = None,
    ) -> Query: ...

    @overload
    def attach(
        self,
        x: Any,
        reward: Any,
        constraints: Any = None,
        context: Any = None,
        request_id: str | None = None,
        *,
        count: int | None = None,
        noise: float | None = None,
    ) -> Outcome: ...

    def attach(
        self,
        x: Any,
        reward: Any = None,
        constraints: Any = None,
        context: Any = None,
        request_id: str | None = None,
        *,
        count: int | None = None,
        noise: float | None = None,
    ) -> Outcome | Query:
        """Record a point that was evaluated elsewhere, and its reward, or that is evaluated there.

        It counts as a round of the loop: among ``num_initial`` and ``horizon``, and where widths
        grow with the round. It is a row of the model like any other. Its query has the origin
        ``"attached"``, which no test for a change looks at.

        Without a reward the query is pending, like one that :meth:`ask` returned in this round:
        tell its outcome, or that it failed, by its id.

        Args:
            x: The point, in the domain; under a :class:`~botorch_bandits.Space` values by name, or
                coordinates.
            reward: As for :meth:`tell`; None if it is not known yet.
            constraints: As for :meth:`tell`; they come with the reward.
            context: ``context_dim`` numbers: in which context the point is evaluated. None without
                contexts.
            request_id: The caller's name for the request; a second call with the same name, point
                and reward does nothing and returns what is known. With a reward it may follow one
                without, whose query is then told.
            count: As for :meth:`tell`; it comes with the reward.
            noise: As for :meth:`tell`; it comes with the reward.

        Returns:
            The outcome, or without a reward the query.

        Raises:
            RuntimeError: If ``horizon`` rounds were asked already.
            TypeError: If a value is of the wrong kind.
            ValueError: If the point is outside the domain, or a value is NaN, infinite, too large
                (see :meth:`tell`), missing, not wanted, or another than the request had before.
                Nothing is recorded then.
            JournalError: If it cannot be written to the journal. Nothing is recorded then.

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
                        f"{name} is {value!r}, but reward is missing, and they come together. Pass "
                        f"the reward, or attach the point alone and pass {name}= to tell()."
                    )
        named = self.settings.domain.decode(x)  # values that were given stay as they were given
        x = self.settings.domain.check_point("x", x)
        context = check_context(self.settings.context_dim, context)
        with HandlersOnHold(), self._lock:
            self._catch_up()
            if request_id is not None:
                answered = self._history.query_of_request(request_id)
                if answered is not None:
                    check_request(answered, context, x)
                    if reward is None:
                        return answered
                    return self.tell(answered.id, reward, constraints, count=count, noise=noise)
            round_number = self._next_round()
            now = self._clock()
            query = self._history.new_query(
                x, "attached", now, context, request_id=request_id, parameters=named
            )
            if reward is None:
                with self._derived_state() as chooser:
                    chooser.begin_round(round_number)
                    self._record(query)
                    chooser.add_query(query)
                return query
            outcome = self._history.outcome_of(
                query.id, reward, now, round_number, constraints, count, noise
            )
            self._check_told(outcome, query, now)
            with self._derived_state() as chooser:
                chooser.begin_round(round_number)
                chooser.check_outcome(outcome)
                self._record(query, outcome)
                chooser.add_query(query)
                chooser.add_outcome(outcome)
            return outcome


fill_in_docstrings(__name__)
