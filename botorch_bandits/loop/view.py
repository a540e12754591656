"""What one round sees of the history, and the features that change it.

A :class:`View` begins with everything that was asked and told. Each feature is an :class:`Aspect`,
which narrows, relabels or widens it: a restart and a window leave queries out, multipliers and
censoring change outcomes, weights change the noise of rows, contexts and the time are columns in
front of points. The rows of the view that results condition the posterior from which the point of
the round is chosen. Aspects do not know each other.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.change_points import Reset
from botorch_bandits.checks import (
    DTYPE,
    BelowMinimumWarning,
    MinimumLoweredWarning,
    check_integer,
    check_number,
    check_positive,
    check_probability,
    level_of_users_line,
    store_checked,
)
from botorch_bandits.confidence import WidthRule
from botorch_bandits.confidence.censored import CensoredWidth, Censoring
from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.fills import share_of_bound
from botorch_bandits.domains import Domain
from botorch_bandits.history import Event, Growing, History, Outcome, Query

if TYPE_CHECKING:
    from botorch_bandits.loop.settings import LoopSettings


@dataclass(frozen=True, eq=False)
class View:
    """What one round sees.

    Attributes:
        history: The history, with the inputs of all queries.
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
        has_time: Whether the round is a column in front of context and point.
    """

    history: History
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
    has_time: bool = False

    @cached_property
    def local_round(self) -> int:
        """The round since :attr:`first`, from 1."""
        return self.round_number - self.first

    @property
    def front(self) -> Tensor:
        """The columns in front of the points of this round: the round, then the context."""
        front = torch.tensor([float(self.local_round)] if self.has_time else [], dtype=DTYPE)
        context = self.context
        if context is None:  # of queries, which have their own
            context = torch.zeros(self.history.context_dim, dtype=DTYPE)
        return torch.cat([front, context.to(front)])

    def inputs(self, ids: Tensor) -> Tensor:
        """Return the inputs of the model at queries: the round, the context and the point.

        Args:
            ids: ``k`` ids.
        """
        X = self.history.inputs(ids)  # k x (context_dim + d)
        if not self.has_time:
            return X
        return torch.cat([(ids - self.first + 1).to(X).unsqueeze(-1), X], dim=-1)

    def domain_of(self, domain: Domain) -> Domain:
        """Return the points of a domain behind the columns of this round.

        Args:
            domain: The domain of the points.
        """
        front = self.front
        return domain.in_context(front) if len(front) else domain

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
            self,
            ids=self.ids[told],
            Y=self.Y[told],
            asked=self.asked[counts(self.asked)],
            pending=self.pending[counts(self.pending)],
            weight=weight,
        )

    def faded(self) -> View:
        """Return the view whose weights include those that change from round to round."""
        if self.fading is None:
            return self
        fading = self.fading(self.ids)
        counts = fading > NEGLIGIBLE_WEIGHT
        weight = fading if self.weight is None else self.weight * fading.to(self.weight)
        ids, Y, weight = self.ids[counts], self.Y[counts], weight[counts]
        return replace(self, ids=ids, Y=Y, weight=weight, fading=None)

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


# --- Delayed feedback: how a loop treats outcomes that have not arrived ---------------------------
# :class:`Hallucinated` and :class:`Ignored` are the usual ways. :class:`Censored` is the method
# of Verma, Dai and Low 2022: a query without an outcome stays in the posterior, with the known
# minimum as its value,
#
# .. math:: \tilde y_{s,t} = y_s \text{ if } d_s \le \min(m, t - s), \text{ else the minimum},
#
# for the query of round ``s`` when the query of round ``t`` is chosen. An outcome that was told
# before round ``t`` was asked, and after round ``A`` was, has the delay ``d_s = A + 1 - s``. A
# query without an outcome after ``m`` rounds is lost: it keeps the minimum for good, and a later
# arrival is recorded and reported but kept out of the model. A query that failed is lost at once.
# :meth:`Censored.states` returns which of these queries are.
#
# Source: Verma, Dai and Low, *Bayesian optimization under stochastic delayed feedback*, ICML
# 2022, section 3.1, and appendix A.4 for delays in seconds. While a query is pending, ``fill=``
# replaces the minimum with another value in the range of outcomes; see
# :mod:`botorch_bandits.confidence.fills`.


class LateOutcomeWarning(RuntimeWarning):
    """An outcome came after its query had been given up; it is only recorded."""


class BelowMinimumError(ValueError):
    """An outcome is below the minimum of censored feedback; it is not recorded."""


class Feedback:
    """How a loop treats queries without an outcome.

    Attributes:
        hallucinates: Whether they count as known to have the posterior mean.
        ignores_pending: Whether they are left out.
        censored: The feedback itself if they are censored, otherwise None.
    """

    hallucinates: ClassVar[bool] = False
    ignores_pending: ClassVar[bool] = False
    censored: Censored | None = None

    def is_late(self, query: Query, event: Event) -> bool:
        """Return whether an outcome came after its query was given up.

        Args:
            query: The query.
            event: Its outcome.
        """
        return False


@dataclass(frozen=True)
class Hallucinated(Feedback):
    """Pending queries count as known to have the posterior mean (the loop's default).

    The variance shrinks and the mean is unchanged: GP-BUCB (Desautels, Krause and Burdick 2014),
    and GP-BTS with Thompson sampling. Widths are those of the outcomes that arrived.
    """

    hallucinates: ClassVar[bool] = True


@dataclass(frozen=True)
class Ignored(Feedback):
    """Pending queries are left out: plain GP-UCB, and asynchronous Thompson sampling.

    Without randomness, the same point is asked again until something arrives.
    """

    ignores_pending: ClassVar[bool] = True


@dataclass(frozen=True)
class Censored(Censoring, Feedback):
    r"""Pending queries enter at the known minimum, or at the value of ``fill``; see the module.

    With :math:`d_s` the delay of query ``s``, the model of round ``t`` has the outcome

    .. math:: \tilde y_{s,t} = y_s \text{ if } d_s \le \min\{m, t - s\}, \text{ else } y_{\min},

    where a query with :math:`t - s < m` may have a fill instead of :math:`y_{\min}`.

    Attributes:
        minimum: No noiseless reward is smaller. In a loop with ``maximize=False``, no cost is
            LARGER. If None, it is unknown, and ``minimum_proxy`` replaces it.
        outcome_bound: ``B_y``: no outcome exceeds the minimum by more. It is in units of the
            reward, or, like the other bounds, in prior standard deviations if the acquisition has
            ``units="prior"``. None is possible only with a constant width: the width then has no
            sum.
        max_delay: ``m``, how long a query is waited for; None waits forever.
        unit: What ``max_delay`` counts: ``"rounds"`` or ``"seconds"`` between the times of events.
        window: The queries in the width's sum: ``"pending"``, or ``"all"`` of the last ``m``, as in
            the paper.
        on_lower: What to do with an outcome below ``minimum``: ``"error"``, or ``"lower"`` the
            minimum to it with a warning.
        minimum_proxy: The factor ``w`` of the proxy ``min(mean - w * sd)`` for an unknown minimum,
            over observed points (pending ones if there are none), under the model of what arrived
            in time. It is recomputed whenever something arrives, and the prior mean remains the
            model's. No theorem covers it.
        predictive: Whether to use predictive standard deviations, noise included, in the bound and
            the sum, as the authors' code does for upper confidence bounds. No theorem covers this.
            Draws never include the noise.
        sum_form: How the sum enters a width. ``"theorem"``: ``outcome_bound`` times the sum, both
            in prior standard deviations. ``"published"``: for an upper confidence bound,
            ``outcome_bound`` times the sum of deviations in units of the outcomes, and for a draw
            nothing, as in the authors' code. The latter needs a constant width, and no theorem
            covers it. For bounds, the two agree at prior variance 1.
        tolerance: How far noise can take an outcome below ``minimum``, in units of the reward. Such
            an outcome is recorded as it was told, with a warning for the first one; pending queries
            stay at ``minimum``. If None: four times ``noise_bound``, if the acquisition has it in
            units of the reward; otherwise a twentieth of ``outcome_bound``, if that is in units of
            the reward; otherwise a quarter of how far the largest of ten rewards or more lies above
            ``minimum``, and before that any amount, unless none of three lies above it.
        constraint_bounds: In a loop with ``constraints=``: a pair ``(smallest, largest)`` for each
            constraint, between which every told value lies. If penalized outcomes are modeled, a
            pending query is at the smallest one under the multipliers in force; see
            :meth:`penalized`. If constraints have their own models, its constraint values are 0,
            the border between met and violated, which does not depend on the share of outcomes that
            arrive; see :meth:`outcome_bounds`. No theorem covers either.
    """

    minimum: float | None = None  # a loop has one reward
    outcome_bound: float | None = None
    constraint_bounds: tuple[tuple[float, float], ...] | None = None

    as_theorem: ClassVar[Mapping[str, Any]] = MappingProxyType({"window": "all"})
    """Options as printed in Theorems 1 and 3; pass ``max_delay=m``, and bounds to the width."""

    as_published: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"window": "all", "predictive": True, "sum_form": "published"}
    )
    """Options of the authors' released code; pass ``outcome_bound=1.0``, ``max_delay=m``, and
    ``width=1.0`` to the acquisition (their ``beta_t``). Thompson sampling then draws from the
    posterior itself, with no factor on its deviations."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if self.minimum is not None:
            store_checked(self, minimum=check_number("minimum", self.minimum))
        if self.outcome_bound is not None:
            store_checked(self, outcome_bound=check_positive("outcome_bound", self.outcome_bound))
        if self.constraint_bounds is not None:
            pairs = _check_pairs(self.constraint_bounds)
            store_checked(self, constraint_bounds=pairs)
        super().__post_init__()

    @property
    def censored(self) -> Censored:  # type: ignore[override]
        """The feedback itself."""
        return self

    def check_outcome(
        self,
        query: Query,
        outcome: Outcome,
        history: History,
        noise_bound: float | None,
        outcome_bound: float | None,
    ) -> None:
        """Check an outcome before it is recorded.

        Args:
            query: Its query.
            outcome: The outcome.
            history: What was told before.
            noise_bound: ``R`` in units of the reward, if it is known.
            outcome_bound: ``B_y`` in units of the reward, if it is known.

        Raises:
            BelowMinimumError: If it is below the minimum by more than noise explains and
                ``on_lower="error"``.

        Warns:
            BelowMinimumWarning: If it is the first one below the minimum, but by no more than that.
            MinimumLoweredWarning: If it is the lowest one so far and ``on_lower="lower"``.
            LateOutcomeWarning: If its query was given up.
        """
        reward = outcome.reward
        if self.minimum is not None and history.is_better(self.minimum, reward):
            told = [outcome.reward for outcome in history.outcomes]
            # for costs, the minimum is the largest value, and worse values lie above it
            below, lowered = ("below", "lowered") if history.maximize else ("above", "raised")
            if self.on_lower == "lower":
                if all(history.is_better(y, reward) for y in told):
                    warnings.warn(
                        f"the {history.outcome_name} {reward} lies {below} "
                        f"minimum={self.minimum}, which is {lowered} to it; no theorem covers a "
                        "minimum that depends on the outcomes.",
                        MinimumLoweredWarning,
                        stacklevel=level_of_users_line(),
                    )
            else:
                sign = 1.0 if history.maximize else -1.0
                heights = [sign * (y - self.minimum) for y in told]
                tolerated = self.tolerated(noise_bound, outcome_bound, heights)
                if history.is_better(self.minimum - sign * tolerated, reward):
                    raise BelowMinimumError(
                        f"reward is {reward}, {below} minimum={self.minimum} by more than the "
                        f"{tolerated:.4g} that noise explains. State a minimum "
                        "that holds, pass tolerance= to allow for more noise, or on_lower='lower' "
                        "to lower the minimum as outcomes arrive."
                    )
                if not any(history.is_better(self.minimum, y) for y in told):
                    warnings.warn(
                        f"the {history.outcome_name} {reward} lies {below} "
                        f"minimum={self.minimum}, by no more than noise explains. It is recorded "
                        "as it was told, and so are further ones, without a warning; pending "
                        "queries stay at the minimum.",
                        BelowMinimumWarning,
                        stacklevel=level_of_users_line(),
                    )
        if self.is_late(query, outcome):
            warnings.warn(
                f"the outcome of query_id {query.id} came after max_delay={self.max_delay} "
                f"{self.unit}: it is recorded, but kept out of the model.",
                LateOutcomeWarning,
                stacklevel=level_of_users_line(),
            )

    def check_constraints(self, constraints: Sequence[float]) -> None:
        """Check constraint values before they are recorded.

        Args:
            constraints: The constraint values of one outcome.

        Raises:
            ValueError: If one lies outside its ``constraint_bounds``.
        """
        for j, (value, pair) in enumerate(
            zip(constraints, self.constraint_bounds or (), strict=False)
        ):
            if not pair[0] <= value <= pair[1]:
                raise ValueError(
                    f"constraint {j + 1} is {value}, outside its constraint_bounds="
                    f"({pair[0]:g}, {pair[1]:g}), which determine the pseudo-value of pending "
                    "queries. Build the loop with bounds that hold for every value told, noise "
                    "included."
                )

    def penalized(self, penalize: Callable[[float, Sequence[float]], float]) -> Censored:
        r"""Return the feedback on penalized outcomes, under the multipliers of an epoch.

        .. math::
           o_{\min} = y_{\min} - \sum_j \kappa_j (\psi(g_j^{\max}) - 1), \qquad
           B_o = y_{\min} + B_y - \sum_j \kappa_j (\psi(g_j^{\min}) - 1) - o_{\min}

        with :math:`g_j` in place of :math:`\psi(g_j) - 1` if the rule charges :math:`\kappa_j g_j`.
        Penalties do not decrease in ``g``, so these are the smallest penalized outcome and the
        length of the range of all penalized outcomes.

        Args:
            penalize: A function from a reward and its constraint values to the penalized outcome.
        """
        assert self.minimum is not None
        assert self.constraint_bounds is not None
        least, largest = zip(*self.constraint_bounds, strict=True)
        minimum, bound = penalize(self.minimum, largest), None
        if self.outcome_bound is not None:
            bound = penalize(self.minimum + self.outcome_bound, least) - minimum
        return replace(self, minimum=minimum, outcome_bound=bound, constraint_bounds=None)

    def bound_on_sum(self, draws: bool) -> float | None:
        """Return the factor of the sum of deviations; None if the width has no sum.

        Args:
            draws: Whether the width is the scale of a draw, which has no sum in the published code.
        """
        return None if draws and self.sum_form == "published" else self.outcome_bound

    def outcome_bounds(self, num_constraints: int) -> tuple[float | None, ...]:
        r"""Return how far each outcome can be from its pseudo-value, the reward's bound first.

        With their own models, constraints have the pseudo-value 0, and therefore the bound

        .. math:: B_{g_j} = \max(|g_j^{\min}|, |g_j^{\max}|).

        Args:
            num_constraints: The number of constraints.

        Returns:
            ``1 + num_constraints`` numbers; None for all without ``outcome_bound``.
        """
        if self.outcome_bound is None:
            return (None,) * (1 + num_constraints)
        pairs = self.constraint_bounds or ()
        return (self.outcome_bound, *(max(abs(low), abs(high)) for low, high in pairs))

    def current_minimum(self, history: History, first: int = 0) -> float | None:
        """Return the value of pending queries: the minimum, or the value to which it was lowered.

        None if the minimum is unknown.

        Args:
            history: What was asked and told.
            first: The id of the first query whose outcome counts.
        """
        if self.minimum is None or self.on_lower == "error":
            return self.minimum
        sign = 1.0 if history.maximize else -1.0  # the minimum is that of the model
        counted = [outcome for outcome in history.outcomes if outcome.query_id >= first]
        return min([self.minimum, *(sign * outcome.reward for outcome in counted)])

    def delay_of(self, query: Query, event: Event | None) -> float:
        """Return after how many rounds (or seconds) an outcome could be used.

        Args:
            query: The query.
            event: What ended it, if anything did.

        Returns:
            Infinity if no outcome will come, and NaN if nothing came yet.
        """
        if event is None:
            return math.nan
        if event.counted is None:
            return math.inf
        if self.unit == "seconds":
            return event.arrived_at - query.asked_at
        return event.arrived_round + 1 - query.round_number

    def is_late(self, query: Query, event: Event) -> bool:
        return (
            self.max_delay is not None and self.max_delay < self.delay_of(query, event) < math.inf
        )

    def states(self, ages: Tensor, delays: Tensor) -> tuple[Tensor, Tensor]:
        """Return which queries are observed when a round is chosen, and which are waited for.

        Observed queries have their outcome in the model, all others the minimum or a fill. Those
        that are neither observed nor waited for are lost: given up, failed, or too late.

        Args:
            ages: ``n`` ages of the queries, in rounds or seconds.
            delays: ``n`` delays of their outcomes; infinite if they failed, and NaN if nothing came
                yet.

        Returns:
            ``n`` booleans each.
        """
        is_waited_for = delays.isnan()
        if self.max_delay is None:
            return delays.isfinite(), is_waited_for
        in_rounds = self.unit == "rounds"
        is_given_up = ages >= self.max_delay if in_rounds else ages > self.max_delay
        return delays <= self.max_delay, is_waited_for & ~is_given_up


@dataclass(frozen=True)
class CensoredView:
    """What a censored model sees of the queries so far.

    Attributes:
        rewards: One entry per query that counts, in the order of asking: its reward as it was told
            (with ``constraints=``, not yet penalized), or None if it is censored.
        pending: Ids of censored queries that are waited for.
        lost: Ids of censored queries that were given up, or failed.
        late: Ids of lost queries whose outcome arrived too late.
    """

    rewards: tuple[float | None, ...]
    pending: tuple[int, ...]
    lost: tuple[int, ...]
    late: tuple[int, ...]


def _check_pairs(given: Any) -> tuple[tuple[float, float], ...]:
    """Return ``constraint_bounds`` as pairs of numbers."""
    remedy = (
        "give one pair (least, largest) per constraint, as in constraint_bounds=((-1.0, 2.0),)."
    )
    try:
        pairs = tuple((low, high) for low, high in given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"constraint_bounds is {given!r}; {remedy}") from error
    checked = tuple(
        (check_number("constraint_bounds", low), check_number("constraint_bounds", high))
        for low, high in pairs
    )
    if not checked or any(low > high for low, high in checked):
        raise ValueError(f"constraint_bounds is {given!r}; {remedy}")
    return checked


# --- Models that forget: how a loop's model treats old outcomes if the reward may change ----------
# These are the usual alternatives to restarting. None of them looks for a change; each fades what
# is old at a rate that is fixed beforehand. "Old" always refers to the number of rounds since a
# query was asked.
#
# :class:`SlidingWindow` keeps only the last queries. :class:`ExponentialWeights` is weighted
# Gaussian-process regression (WGP-UCB; Deng, Zhou, Ghosh, Gupta and Shroff, *Weighted Gaussian
# process bandits for non-stationary environments*, AISTATS 2022). :class:`TimeVaryingKernel`
# models a reward that drifts (TV-GP-UCB; Bogunovic, Scarlett and Cevher, *Time-varying Gaussian
# process bandit optimization*, AISTATS 2016). Neither was compared with its paper; each class
# states its form.


class Forgetting(Aspect):
    """How a model fades old outcomes: an aspect without a state.

    Attributes:
        fades: Whether older outcomes have smaller weights.
    """

    fades: ClassVar[bool] = False

    @property
    def window(self) -> int | None:
        """The number of the last rounds whose outcomes count; None if all do."""
        return None

    @property
    def drift_rate(self) -> float | None:
        """The rate at which the reward drifts; the round is then an input of the model."""
        return None


@dataclass(frozen=True)
class SlidingWindow(Forgetting):
    """The model of round t has only the outcomes of queries ``t - length, ..., t - 1``.

    Attributes:
        length: The number of rounds, at least 1.
    """

    length: int

    def __post_init__(self) -> None:
        """Check the length."""
        store_checked(self, length=check_integer("length", self.length, minimum=1))

    @property
    def window(self) -> int:
        """The number of the last rounds whose outcomes count."""
        return self.length

    def see(self, view: View) -> View:
        return view.keeping(lambda ids: ids >= view.round_number - 1 - self.length)


@dataclass(frozen=True)
class ExponentialWeights(Forgetting):
    r"""The outcome of round s has the weight :math:`w_s = \eta^{t - 1 - s}` in round t.

    The latest query has the weight 1, and the noise variance of the others is
    :math:`\lambda / w_s`:

    .. math::
       \mu_t(x) = k_t(x)^\top (K_t + \lambda W_t^{-1})^{-1} y, \qquad
       \sigma_t^2(x) = k(x, x) - k_t(x)^\top (K_t + \lambda W_t^{-1})^{-1} k_t(x) .

    The mean is that of WGP-UCB: the minimizer of :math:`\sum_s w_s (y_s - f(x_s))^2 + \lambda
    \lVert f \rVert_k^2`. The paper's deviation also has squared weights (``W^2`` instead of ``W``,
    as in weighted linear bandits); the deviation here is the posterior of the same Gaussian model
    as the mean, so that every acquisition function and draw can use it. It is never larger than the
    one with squared weights, because no weight exceeds 1.

    Attributes:
        discount: The :math:`\eta` above, in (0, 1).
    """

    discount: float

    fades: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the discount."""
        store_checked(self, discount=check_probability("discount", self.discount))

    def see(self, view: View) -> View:
        def weights(ids: Tensor) -> Tensor:
            age = (view.round_number - 2 - ids).double()
            return torch.exp(math.log(self.discount) * age)

        return replace(view, fading=weights)


@dataclass(frozen=True)
class TimeVaryingKernel(Forgetting):
    r"""The reward drifts: rounds t and t' have the covariance of this kernel.

    .. math:: k(x, x') (1 - \epsilon)^{|t - t'| / 2}

    It is the exact model of :class:`~botorch_bandits.problems.DriftingGP` with the same rate. The
    round of a query is a further input of the model, before context and point.

    Attributes:
        rate: The :math:`\epsilon` above, in (0, 1).
    """

    rate: float

    def __post_init__(self) -> None:
        """Check the rate."""
        store_checked(self, rate=check_probability("rate", self.rate))

    @property
    def drift_rate(self) -> float:
        """The rate at which the reward drifts."""
        return self.rate


# --- Censored feedback: a view in which each query is a row, and the width that this costs --------
# A query without an outcome has a pseudo-value: the minimum, or a fill while it is waited for. If
# constraints have their own models, its constraint values are 0. With :math:`\rho_m` the
# probability that an outcome arrives in time, the models estimate :math:`\rho_m (f - y_{\min})`
# and :math:`\rho_m g_j`. The latter has the sign of :math:`g_j` for every :math:`\rho_m`, so the
# same points meet the constraints; and :math:`\rho_m (f - \sum_j \kappa_j g_j)` has the same
# maximizer. Any other pseudo-value ``c`` would move the border to :math:`g_j = -c (1 - \rho_m) /
# \rho_m`.


Moments = Callable[[View, Tensor], tuple[Tensor, Tensor]]
"""Maps a view and the ids of ``k`` queries to posterior means and variances there, ``k x m``."""


@dataclass(frozen=True, eq=False)
class Widening:
    """What the width of a round takes from the queries that are waited for.

    Attributes:
        feedback: The feedback, with the multipliers in force.
        ids: ``k`` ids of the queries whose deviations are summed.
        shares: ``k`` factors of these deviations: how far an outcome can be from its fill, as a
            share of ``outcome_bound``.
        observed: The outcomes that came in time.
        minimum: The pseudo-value, if it does not depend on the model.
        counts: How many queries are pending, and how many are lost, for diagnostics.
    """

    feedback: Censored
    ids: Tensor
    shares: Tensor
    observed: Tensor
    minimum: float | None
    counts: Mapping[str, float]

    def sums(self, variances: Tensor) -> Tensor:
        """Return the sum of deviations of each output, ``m``.

        Args:
            variances: ``k x m`` variances at the queries.
        """
        deviations = variances.sqrt()
        # separate constraints have their own pseudo-values and bounds
        reward = deviations[:, :1] * self.shares.to(deviations).unsqueeze(-1)
        return torch.cat([reward, deviations[:, 1:]], dim=-1).sum(0)

    def rule(
        self,
        rule: WidthRule,
        total: Tensor,
        round_number: int,
        draws: bool,
        means: Callable[[], Sequence[Tensor] | None] = lambda: None,
    ) -> CensoredWidth:
        """Return the rule of a reward, or of the scale of a draw, with what censoring adds.

        Args:
            rule: The rule for outcomes without delay.
            total: The sum of deviations, a scalar.
            round_number: The round of the model, from 1.
            draws: Whether it scales a draw.
            means: Returns the prior means of the model, for the theorem.
        """
        bound = self.feedback.bound_on_sum(draws)
        censored = self._censored(rule, bound, self.feedback.fill)
        gaps = partial(self._gaps, means, censored.units, draws)
        return replace(censored, deviation_sums=total, round_number=round_number, gaps=gaps)

    def rules(
        self,
        rules: Sequence[WidthRule],
        totals: Tensor,
        round_number: int,
        units: Callable[[int], float],
    ) -> tuple[CensoredWidth, ...]:
        """Return the rules of reward and constraints with the terms that censoring adds.

        Args:
            rules: One per output, for outcomes without delay.
            totals: The sums of deviations, ``m``.
            round_number: See :meth:`rule`.
            units: Maps the number of an output to its prior standard deviation.
        """
        bounds, found = self.feedback.outcome_bounds(len(rules) - 1), []
        for j, (rule, bound) in enumerate(zip(rules, bounds, strict=True)):
            if j and bound is not None and rule.units == "prior":
                bound /= units(j)
            # pseudo-values of constraints are 0 with every fill
            censored = self._censored(rule, bound, "minimum" if j else self.feedback.fill)
            found.append(replace(censored, deviation_sums=totals[j], round_number=round_number))
        return tuple(found)

    def _censored(self, rule: WidthRule, bound: float | None, fill: str) -> CensoredWidth:
        own = self.feedback
        return CensoredWidth(rule, bound, unit=own.unit, fill=fill, sum_form=own.sum_form)

    def _gaps(
        self,
        means: Callable[[], Sequence[Tensor] | None],
        units: str,
        draws: bool,
        facts: Facts,
    ) -> Iterator[str]:
        """Yield why the theorem does not cover this use, besides what the width rule says."""
        feedback = replace(self.feedback, predictive=False) if draws else self.feedback
        values = () if self.minimum is None else (self.minimum,)
        return feedback.gaps(values, means(), (self.observed,), units, facts=facts)


class Censors(Aspect):
    """Makes a row of each query, with a pseudo-value where no outcome came in time.

    Args:
        settings: The settings of a loop with censored feedback.
        history: The history, which grows.
        moments: Returns posterior moments at queries, if pseudo-values depend on them.
    """

    def __init__(self, settings: LoopSettings, history: History, moments: Moments) -> None:
        """See the class."""
        assert settings.feedback.censored is not None
        self._given, self._history, self._moments = settings.feedback.censored, history, moments
        self._fades = settings.forgetting is not None
        self._is_fixed = settings.has_fixed_noise
        self._is_recipe = settings.recipe is not None
        self._asked_at, self._delays = Growing(), Growing()  # of all queries

    def asked(self, query: Query) -> None:
        self._asked_at.append([query.asked_at])
        self._delays.append([math.nan])

    def told(self, outcome: Outcome) -> None:
        self.failed(outcome)

    def failed(self, event: Event) -> None:
        delay = self._given.delay_of(self._history.query(event.query_id), event)
        self._delays.values[event.query_id] = delay

    def in_time(self, view: View) -> View:
        """Return the view of the outcomes that came in time.

        Args:
            view: The view of all outcomes.
        """
        return _observed(view, self._states(view)[0])

    def report(self, view: View) -> CensoredView:
        """Return what the model sees of the queries since a view's first one.

        Args:
            view: The view.
        """
        observed, waits = self._states(view)
        ids = torch.arange(view.first, view.round_number - 1)
        told = view.history.outcome
        rewards = [
            outcome.reward if is_observed and (outcome := told(i)) is not None else None
            for i, is_observed in zip(ids.tolist(), observed.tolist(), strict=True)
        ]
        is_late = ~observed & self._delays.values[view.first :].isfinite()
        parts = waits, ~(observed | waits), is_late
        return CensoredView(tuple(rewards), *(tuple(ids[part].tolist()) for part in parts))

    def see(self, view: View) -> View:
        """Return the view in which each query that counts is a row."""
        feedback = view.censored
        assert feedback is not None
        observed, waits = self._states(view)
        arrived = _observed(view, observed)
        pending = waits.nonzero().squeeze(-1) + view.first
        waiting = pending[torch.isin(pending, view.asked)]
        missing = view.asked[~torch.isin(view.asked, arrived.ids)]
        value = minimum = feedback.current_minimum(self._history, view.first)
        if value is None:
            value = self._proxy(feedback, arrived) if len(missing) else 0.0
        heights = self._heights(feedback, arrived, waiting)
        pseudo = view.Y.new_zeros(len(missing), view.Y.shape[1])
        pseudo[:, 0] = value
        pseudo[torch.searchsorted(missing, waiting), 0] += heights.to(pseudo)
        shares = torch.ones(len(waiting), dtype=DTYPE)
        if feedback.fills_in and feedback.outcome_bound is not None:
            shares = share_of_bound(heights, feedback.outcome_bound)
        seen = self._with_rows(arrived, missing, pseudo, joins=feedback.fills_in or minimum is None)
        summed = feedback.summed((pending - view.first).tolist(), view.local_round - 1)
        ids = torch.tensor(summed, dtype=torch.long) + view.first
        ids = ids[torch.isin(ids, view.asked)]
        of_summed = torch.ones(len(ids), dtype=DTYPE)
        waits_here = torch.isin(ids, waiting)  # both in the order of asking
        of_summed[waits_here] = shares[torch.searchsorted(waiting, ids[waits_here])]
        counts = {"pending": float(len(pending)), "lost": float((~(observed | waits)).sum())}
        widening = Widening(feedback, ids, of_summed, arrived.Y[:, 0], minimum, counts)
        return replace(seen, pending=view.pending[:0], widening=widening)

    def _ages(self, view: View) -> Tensor:
        """Return the ages of the queries since the view's first one."""
        if self._given.unit == "seconds":
            return view.now - self._asked_at.values[view.first :]
        return torch.arange(view.local_round - 1, 0, -1, dtype=DTYPE)

    def _states(self, view: View) -> tuple[Tensor, Tensor]:
        """Return which of the queries since the view's first one are observed, and waited for."""
        return self._given.states(self._ages(view), self._delays.values[view.first :])

    def _with_rows(self, arrived: View, missing: Tensor, pseudo: Tensor, joins: bool) -> View:
        """Return the view with the rows of outcomes and of pseudo-values."""
        ids, Y = torch.cat([arrived.ids, missing]), torch.cat([arrived.Y, pseudo])
        if self._is_recipe and (self._is_fixed or not joins):
            order = ids.argsort()  # rows keep their places when an outcome arrives
            return replace(arrived, ids=ids[order], Y=Y[order])
        # a model is not fitted to the pseudo-values that it determines, nor is a user's
        num_joined = 0 if self._fades and self._is_recipe else len(missing)
        return replace(arrived, ids=ids, Y=Y, num_joined=num_joined)

    def _proxy(self, feedback: Censored, arrived: View) -> float:
        """Return the least lower bound at queries with outcomes, or at all that were asked."""
        assert feedback.minimum_proxy is not None
        some = arrived.ids if len(arrived.ids) else arrived.asked
        mean, variance = self._moments(arrived, some)
        return float((mean - feedback.minimum_proxy * variance.sqrt())[:, 0].min())

    def _heights(self, feedback: Censored, arrived: View, waiting: Tensor) -> Tensor:
        """Return how far the fills of pending queries lie above the minimum."""
        above = torch.zeros(len(waiting), dtype=DTYPE)
        deviation = torch.zeros_like(above)
        if not len(waiting) or not feedback.fills_in:
            return above
        assert feedback.minimum is not None
        assert feedback.outcome_bound is not None
        if feedback.fills_by_model:
            mean, variance = self._moments(arrived, waiting)
            above, deviation = mean[:, 0] - feedback.minimum, variance[:, 0].sqrt()
        shares = torch.ones_like(above)
        if feedback.fill == "soft":
            shares = self._shares_to_come(arrived, waiting)
        return feedback.heights(feedback.outcome_bound, above, deviation, shares)

    def _shares_to_come(self, view: View, waiting: Tensor) -> Tensor:
        """Return the probabilities that outcomes of pending queries will still come in time."""
        ages, delays = self._ages(view), self._delays.values[view.first :]
        observed, waits = self._given.states(ages, delays)
        given = Counter(delays[observed].tolist()), int((~(observed | waits)).sum())
        shares = torch.full_like(ages, math.nan)
        known = self._given.shares_at_ages(ages[waits].tolist(), *given, self._given.max_delay)
        shares[waits] = torch.tensor(known, dtype=DTYPE)
        return shares[waiting - view.first]


def _observed(view: View, observed: Tensor) -> View:
    """Return the view of some outcomes: of a boolean for each query since the view's first one."""
    here = observed[view.ids - view.first]
    return replace(view, ids=view.ids[here], Y=view.Y[here])
