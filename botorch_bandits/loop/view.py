"""What one round sees of the history, and the features that change it.

A :class:`View` begins with everything that was asked and told. Each feature is an :class:`Aspect`,
which narrows, relabels or widens it: a restart and a window leave queries out, multipliers and
censoring change outcomes, weights change the noise of rows, contexts and the time are columns in
front of points. The rows of the view that results condition the posterior from which the point of
the round is chosen. Aspects do not know each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.change_points import Reset
from botorch_bandits.feedback import Censored
from botorch_bandits.history import Event, History, Outcome, Query

if TYPE_CHECKING:
    from botorch_bandits.loop.censoring import Widening
    from botorch_bandits.loop.settings import LoopSettings


@dataclass(frozen=True, eq=False)
class View:
    """What one round sees.

    Attributes:
        round_number: The round of the whole run, from 1.
        now: The time in seconds.
        context: The context of the round, if there are contexts.
        first: The number of queries before those that count; rounds of the model count from there.
        asked: ``a`` ids of the queries that count, in the order of asking.
        pending: ``p`` ids of those that the acquisition function has as pending points: without an
            outcome, or failed and avoided; none with ``Ignored()``. An aspect that counts queries
            without an outcome follows :meth:`Aspect.asked`, ``told`` and ``failed`` instead.
        ids: ``n`` ids of the queries that are rows, in the order of the rows.
        Y: ``n x m`` outcomes.
        weight: ``n`` weights of the rows, with which their noise is divided; None if all are 1.
        recipe: The recipe of the acquisition function; None for a user's function.
        censored: How missing outcomes are censored, in the units of the outcomes; None if not.
        explores: Whether the point of the round is drawn uniformly, whatever the outcomes say. The
            origin of its query is then ``"exploration"``, which detectors on uniform draws test.
        prior_mean: The prior mean of the reward, if it is not that of the model's recipe.
        fading: Maps ids to weights that change from round to round; None without such weights.
        num_joined: How many of the last rows join a model that is built, and fitted, without them.
        widening: What the width takes from queries that are waited for; None if it takes nothing.
    """

    round_number: int
    now: float
    context: Tensor | None
    first: int
    asked: Tensor
    pending: Tensor
    ids: Tensor
    Y: Tensor
    weight: Tensor | None
    recipe: AcquisitionRecipe | None
    censored: Censored | None
    explores: bool = False
    prior_mean: float | None = None
    fading: Callable[[Tensor], Tensor] | None = None
    num_joined: int = 0
    widening: Widening | None = None

    @property
    def local_round(self) -> int:
        """The round since :attr:`first`, from 1."""
        return self.round_number - self.first

    def since(self, first: int) -> View:
        """Return the view of the queries from an id on.

        Args:
            first: The id.
        """
        if first == self.first:
            return self
        return replace(self.keeping(lambda ids: ids >= first), first=first)

    def keeping(self, counts: Callable[[Tensor], Tensor]) -> View:
        """Return the view of some queries.

        Args:
            counts: Maps ids to booleans.
        """
        told, weight = counts(self.ids), self.weight
        if weight is not None:
            weight = weight[told] if bool((weight[told] != 1.0).any()) else None
        return replace(
            self.with_rows(self.ids[told], self.Y[told]),
            asked=self.asked[counts(self.asked)],
            pending=self.pending[counts(self.pending)],
            weight=weight,
        )

    def with_rows(self, ids: Tensor, Y: Tensor, **changes: Any) -> View:
        """Return the view with other rows.

        Args:
            ids: ``n`` ids of queries.
            Y: ``n x m`` outcomes.
            **changes: Further attributes that change.
        """
        return replace(self, ids=ids, Y=Y, **changes)

    def faded(self) -> View:
        """Return the view whose weights include those that change from round to round."""
        if self.fading is None:
            return self
        fading = self.fading(self.ids)
        counts = fading > NEGLIGIBLE_WEIGHT
        weight = fading if self.weight is None else self.weight * fading.to(self.weight)
        return self.with_rows(self.ids[counts], self.Y[counts], weight=weight[counts], fading=None)

    def has_rows_of(self, other: View) -> bool:
        """Return whether a model of these rows is one of those of another view."""
        return (
            (self.prior_mean, self.num_joined) == (other.prior_mean, other.num_joined)
            and torch.equal(self.ids, other.ids)
            and torch.equal(self.Y, other.Y)
            and _are_equal(self.weight, other.weight)
        )


class Aspect:
    """One feature of a loop: it processes what happens, and changes what a round sees.

    A subclass overrides what it needs. Queries and events come in the order in which they count,
    and what is derived from them depends on nothing else, so that a loop that is rebuilt from its
    history goes on alike.

    Before each query, ``begin`` is called once, then ``see`` and ``describe``, also where the point
    is drawn uniformly, and ``asked`` when the query is on record. ``see`` is called for guarantees
    and models as well, so it must not change the aspect.

    Attributes:
        first: The id of the first query that counts; 0 if all do.

    Example:
        A feature that plays every second round at random:

        >>> class EverySecondRound(Aspect):
        ...     def see(self, view: View) -> View:
        ...         return replace(view, explores=view.explores or view.round_number % 2 == 0)
    """

    first = 0

    def check_outcome(self, outcome: Outcome) -> None:
        """Raise an error if an outcome that is about to be recorded cannot be taken.

        Args:
            outcome: The outcome, of which large rewards are sought.

        Raises:
            ValueError: If it cannot; nothing has changed then.
        """

    def begin(self, round_number: int) -> Reset | None:
        """End the last round, before the point of the next one is chosen.

        Args:
            round_number: The number of the round that begins, from 1; each begins once.

        Returns:
            A reset, if earlier queries do not count any more; every aspect hears it.
        """
        return None

    def asked(self, query: Query) -> None:
        """Process a query, whose round has begun.

        Args:
            query: The query.
        """

    def told(self, outcome: Outcome) -> Reset | None:
        """Process an outcome.

        Args:
            outcome: The outcome, of which large rewards are sought.

        Returns:
            A reset, if earlier queries do not count any more; every aspect hears it.
        """
        return None

    def failed(self, event: Event) -> None:
        """Process that a query has no outcome.

        Args:
            event: Its failure, or the retraction of its outcome; ``event.query_id`` is the query. A
                retraction comes after ``told`` of the same query.
        """

    def reset(self, reset: Reset) -> None:
        """Process a reset.

        Args:
            reset: The reset.
        """

    def see(self, view: View) -> View:
        """Return the view of the next round as this feature changes it; nothing else changes.

        Args:
            view: The view after the features before this one.
        """
        return view

    def describe(self) -> dict[str, float]:
        """Return what is in force in the round, for the diagnostics of its query."""
        return {}


NONE = torch.empty(0, dtype=torch.long)
"""No ids."""

NEGLIGIBLE_WEIGHT = 1e-18
"""Rows with smaller weights are left out; next to the latest row, they are rounding error."""


def _are_equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


def view_of(
    history: History,
    settings: LoopSettings,
    recipe: AcquisitionRecipe | None,
    now: float,
    context: Tensor | None = None,
) -> View:
    """Return the view of the next round before any feature changes it.

    Args:
        history: Everything that was asked and told; the view has minus the costs.
        settings: The settings of the loop.
        recipe: See :class:`View`.
        now: See :class:`View`.
        context: See :class:`View`.
    """
    feedback, num_queries = settings.feedback, history.num_queries
    avoided = () if feedback.ignores_pending else history.queries_to_avoid()
    ids, told = history.told()
    Y = told.clone()  # a user's model may work in place
    if not history.maximize:
        Y = torch.cat([0.0 - Y[:, :1], Y[:, 1:]], dim=-1)  # 0 stays 0
    return View(
        round_number=num_queries + 1,
        now=now,
        context=context,
        first=0,
        asked=torch.arange(num_queries),
        pending=torch.tensor([q.id for q in avoided], dtype=torch.long) if avoided else NONE,
        ids=ids,
        Y=Y,
        weight=history.weights(settings.noise) if history.is_weighted else None,
        recipe=recipe,
        censored=feedback.censored,
    )
