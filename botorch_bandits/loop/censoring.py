r"""Censored feedback: a view in which each query is a row, and the width that this costs.

A query without an outcome has a pseudo-value: the minimum, or a fill while it is waited for. If
constraints have their own models, its constraint values are 0. With :math:`\rho_m` the probability
that an outcome arrives in time, the models estimate :math:`\rho_m (f - y_{\min})` and
:math:`\rho_m g_j`. The latter has the sign of :math:`g_j` for every :math:`\rho_m`, so the same
points meet the constraints; and :math:`\rho_m (f - \sum_j \kappa_j g_j)` has the same maximizer.
Any other pseudo-value ``c`` would move the border to :math:`g_j = -c (1 - \rho_m) / \rho_m`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import WidthRule
from botorch_bandits.confidence.censored import PendingWidth, censored_rule
from botorch_bandits.confidence.facts import Facts
from botorch_bandits.confidence.fills import share_of_bound
from botorch_bandits.feedback import Censored
from botorch_bandits.history import Event, Growing, History, Outcome, Query
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.view import Aspect, View

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
    ) -> PendingWidth:
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
        gaps = partial(self._gaps, means, censored.censored.units, draws)
        return replace(censored, deviation_sum=total, round_number=round_number, gaps=gaps)

    def rules(
        self,
        rules: Sequence[WidthRule],
        totals: Tensor,
        round_number: int,
        units: Callable[[int], float],
    ) -> tuple[PendingWidth, ...]:
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
            found.append(replace(censored, deviation_sum=totals[j], round_number=round_number))
        return tuple(found)

    def _censored(self, rule: WidthRule, bound: float | None, fill: str) -> PendingWidth:
        return censored_rule(rule, bound, self.feedback.unit, fill, self.feedback.sum_form)

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
            return arrived.with_rows(ids[order], Y[order])
        # a model is not fitted to the pseudo-values that it determines, nor is a user's
        num_joined = 0 if self._fades and self._is_recipe else len(missing)
        return arrived.with_rows(ids, Y, num_joined=num_joined)

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
    return view.with_rows(view.ids[here], view.Y[here])
