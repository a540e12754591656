"""One stream of rounds on arms: the rows of each round, from which a player chooses.

Whatever a loop adds to the plain case is in the rows: an outcome that arrives adds one, a window
leaves old ones out, weights change their noise, multipliers and pseudo-values change their
outcomes, contexts and the round are columns in front of their arms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from botorch_bandits.acquisition.player import Player
from botorch_bandits.acquisition.rules import (
    ArmsRule,
    ImprovementArmsRule,
    LagrangianArmsRule,
    ListArmsRule,
    RandomizedArmsRule,
    Seen,
    ThompsonArmsRule,
    WidthArmsRule,
)
from botorch_bandits.acquisition.scores import Bounds
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.candidates import LEVEL_OF_SURVIVORS
from botorch_bandits.confidence.censored import censored_rule
from botorch_bandits.confidence.fills import share_of_bound
from botorch_bandits.core.posterior import Posterior
from botorch_bandits.core.round_posterior import RoundPosterior
from botorch_bandits.core.rows import Rows
from botorch_bandits.domains import Arms
from botorch_bandits.feedback import Censored, CensoredQueue, Feedback, Ignored
from botorch_bandits.forgetting import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop.forgetting import NEGLIGIBLE_WEIGHT
from botorch_bandits.loop.state import PenalizedHistory

AnyPosterior = Posterior | RoundPosterior


class _Growing:
    """Numbers that grow at their end, in memory that doubles; NumPy appends faster than PyTorch."""

    def __init__(self, *shape: int, dtype: type = float) -> None:
        self._room: NDArray[Any] = np.empty((16, *shape), dtype)
        self._count = 0

    def append(self, values: Sequence[Any] | NDArray[Any]) -> None:
        """Add values at the end."""
        start, self._count = self._count, self._count + len(values)
        if self._count > len(self._room):
            more = np.empty((2 * self._count, *self._room.shape[1:]), self._room.dtype)
            more[:start] = self._room[:start]
            self._room = more
        self._room[start : self._count] = values

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def __getitem__(self, some: list[int]) -> NDArray[Any]:
        """Return some of them."""
        return self._room[some]

    @property
    def values(self) -> Tensor:
        """All of them, as a view."""
        return torch.from_numpy(self._room[: self._count])


class PointsStream:
    """One stream of rounds on arms.

    Attributes:
        player: Who chooses.
        rule_domain: The arms behind their fronts, for rules that depend on the domain.
        takes_weights: Whether outcomes may be told with a count or their own noise.
    """

    def __init__(
        self,
        player: Player,
        domain: Arms,
        history: History,
        feedback: Feedback,
        forgetting: Forgetting | None = None,
        noise: float = 1.0,
        rounds_before: int = 0,
    ) -> None:
        """See the class.

        Args:
            player: Who chooses, with one output for the reward, or more for constraints as well.
            domain: The arms.
            history: The history of the segment, which grows.
            feedback: How pending queries are treated.
            forgetting: How old outcomes are forgotten, if they are.
            noise: The noise variance of an outcome of weight 1.
            rounds_before: The rounds of earlier segments, for random numbers.
        """
        self.player = player
        self.rule_domain = player.rule_domain
        self._domain, self._history, self._feedback = domain, history, feedback
        self._forgetting, self._noise, self._rounds_before = forgetting, noise, rounds_before
        self._num_front = player.posterior.prior.num_front
        self.takes_weights = not self._num_front and forgetting is None
        self._arms = _Growing(dtype=int)  # of all queries, with their fronts and places
        self._fronts = _Growing(self._num_front)
        self._places = _Growing(dtype=int)
        self._place_of: dict[tuple[int, tuple[float, ...]], int] = {}
        self._version: int | None = None
        self._latest = (-1, -1)
        self._device = domain.choices.device

    def play(self, rule: ArmsRule | None) -> None:
        """Choose by another rule from now on, as happens at the end of an epoch."""
        self.player.rule = rule

    def choose(
        self,
        round_number: int,
        now: float,
        context: Tensor | None = None,
        among: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the point to query, and its diagnostics.

        Args:
            round_number: The round of the segment, from 1.
            now: The time.
            context: The context of the round, if the loop has contexts.
            among: Numbers of the arms that may be chosen; None for all.
        """
        seen, more = self._look(round_number, now, context)
        seen.among = among
        arm = int(self.player.choose(seen))
        self._latest = (round_number - 1, arm)
        return self._domain.choices[arm], {**self.player.describe(seen, arm), **more}

    def describe(
        self, x: Tensor, round_number: int, now: float, context: Tensor | None = None
    ) -> dict[str, float]:
        """Return the diagnostics of a point that something else chooses."""
        seen, _ = self._look(round_number, now, context)
        return self.player.describe(seen, int(self._domain.index_of(x.unsqueeze(0))[0]))

    def bounds(self, round_number: int) -> Bounds | None:
        """Return what is known about all arms from the outcomes that arrived, without fronts."""
        if self._num_front or self._forgetting is not None:
            return None
        rows = self._rows(round_number)
        seen = self.player.look(round_number, rows)
        return seen.rule.known(seen)

    @property
    def bounds_constraints(self) -> bool:
        """Whether constraints are modeled, at arms without fronts."""
        is_plain = not self._num_front and self._forgetting is None
        return is_plain and isinstance(self.player.rule, LagrangianArmsRule)

    def smallest_lower_bounds(self, round_number: int) -> Tensor:
        """Return the least of each constraint's lower bounds over all arms."""
        assert isinstance(self.player.rule, LagrangianArmsRule)
        rule = replace(self.player.rule, constraint_bound=None)
        seen = self.player.look(round_number, self._rows(round_number), rule=rule)
        return rule.ends(seen.prepared.means, seen.prepared.half)[1].amin(-1)

    def noise_ratio_at(self, x: Tensor, round_number: int) -> float | None:
        """Return a list's least ratio of noise to posterior variance at an arm; None otherwise."""
        rule = self.player.rule
        if not isinstance(rule, ListArmsRule):
            return None
        arm = int(self._domain.index_of(x.unsqueeze(0))[0])
        seen = self.player.look(round_number, self._rows(round_number))
        return rule.least_noise_ratio(seen, arm, LEVEL_OF_SURVIVORS)

    def _look(
        self, round_number: int, now: float, context: Tensor | None
    ) -> tuple[Seen, dict[str, float]]:
        """Return what the rule sees, and what else a query's diagnostics say."""
        rows, front = self._rows(round_number), self._front_now(round_number, context)
        pending = self._pending(round_number)
        drawn = self._rounds_before + round_number
        return self.player.look(round_number, rows, front, pending, drawn), {}

    def _rows(self, round_number: int) -> Rows:
        """Return the outcomes that count in a round, in the order in which they arrived."""
        self._catch_up()
        return self._counted(self._of_outcomes(), round_number)

    def _counted(self, rows: Rows, round_number: int) -> Rows:
        """Leave out what a window has left, or let weights fade."""
        assert rows.ids is not None
        rounds = rows.ids + 1
        if isinstance(self._forgetting, SlidingWindow):
            rows = rows[self._forgetting.keeps(rounds, round_number)]
        elif isinstance(self._forgetting, ExponentialWeights):
            weights = self._forgetting.weights(rounds, round_number).to(rows.noise)
            rows = replace(rows, noise=1.0 / weights)[weights > NEGLIGIBLE_WEIGHT]
        return rows

    def _of_outcomes(self) -> Rows:
        parts = [each.values.to(self._device) for each in self._outcomes]
        index, Y, noise, front, place, ids = parts
        return Rows(index, Y, noise, front if self._num_front else None, place, ids)

    def _at(self, ids: Tensor, Y: Tensor, noise: Tensor) -> Rows:
        """Return rows of queries, given by their ids."""
        front = self._fronts.values[ids] if self._num_front else None
        index, place = (each.values[ids].to(self._device) for each in (self._arms, self._places))
        Y, noise = Y.to(self._device), noise.to(self._device)
        return Rows(index, Y, noise, front, place, ids.to(self._device))

    def _pending(self, round_number: int) -> Rows | None:
        if isinstance(self._feedback, Ignored):
            return None
        ids = [query.id for query in self._history.queries_to_avoid()]
        if isinstance(self._forgetting, SlidingWindow):
            ids = [i for i in ids if i + 1 >= round_number - self._forgetting.length]
        if not ids:
            return None
        none = torch.zeros(len(ids), self.player.posterior.mean.shape[1], dtype=DTYPE)
        return self._at(torch.tensor(ids), none, torch.ones(len(ids), dtype=DTYPE))

    def _front_now(self, round_number: int, context: Tensor | None) -> Tensor | None:
        if not self._num_front:
            return None
        return self._fronts_of([] if context is None else [context], [round_number])[0]

    def _fronts_of(self, contexts: list[Tensor], rounds: Sequence[int]) -> Tensor:
        """Return the columns in front of the arms in some rounds, ``n x num_front``."""
        parts = [torch.empty(len(rounds), 0, dtype=DTYPE)]
        if isinstance(self._forgetting, TimeVaryingKernel):
            parts.append(torch.tensor(rounds, dtype=DTYPE).unsqueeze(-1))
        if contexts:
            parts.append(torch.stack(contexts))
        return torch.cat(parts, dim=-1)

    def _catch_up(self) -> None:
        """Take in what happened since the last look."""
        self._take_queries(self._history.queries_since(len(self._arms)))
        if self._version != self._history.version:  # all outcomes are read again
            self._version = self._history.version
            num_outputs, numbers = self.player.posterior.mean.shape[1], partial(_Growing, dtype=int)
            self._outcomes = (
                numbers(),  # of the arms
                _Growing(num_outputs),
                _Growing(),  # multiples of the noise variance
                _Growing(self._num_front),
                numbers(),  # of the places
                numbers(),  # of the queries
            )
        ids = self._outcomes[-1]
        told = self._history.outcomes_since(len(ids))
        if told:
            new = [outcome.query_id for outcome in told]
            columns = (
                self._arms[new],
                [self._read(outcome) for outcome in told],
                [1.0 / outcome.weight(self._noise) for outcome in told],
                self._fronts[new] if self._num_front else np.empty((len(new), 0)),
                self._places[new],
                new,
            )
            for kept, values in zip(self._outcomes, columns, strict=True):
                kept.append(values)

    def _take_queries(self, new: Sequence[Query]) -> None:
        """Take in the arms, fronts and places of queries."""
        if not new:
            return
        if len(new) == 1 and (new[0].id, new[0].origin) == (self._latest[0], "acquisition"):
            arms = [self._latest[1]]
        else:
            arms = self._domain.index_of(torch.stack([query.x for query in new])).tolist()
        self._arms.append(arms)
        if not self.player.numbers_by_row:
            self._places.append(arms)
            return
        # places in the order in which they first occur, in which rows have their random numbers
        contexts = [query.context for query in new if query.context is not None]
        fronts = self._fronts_of(contexts, [query.round_number for query in new])
        self._fronts.append(fronts.numpy())
        known, keys = self._place_of, zip(arms, fronts.tolist(), strict=True)
        self._places.append(
            [known.setdefault((arm, tuple(front)), len(known)) for arm, front in keys]
        )

    def _read(self, outcome: Outcome) -> Sequence[float]:
        """Return the outputs of an outcome."""
        many = self.player.posterior.mean.shape[1] > 1
        return (outcome.reward, *outcome.constraints) if many else (outcome.reward,)


class CensoredPointsStream(PointsStream):
    """One stream in which each query has a row: its outcome, or the value given by censoring."""

    def __init__(self, *given: Any, arrived: Player, **named: Any) -> None:
        """See the class.

        Args:
            *given: See the base class.
            arrived: A player of the same priors, which is conditioned on what arrived in time.
            **named: See the base class.
        """
        super().__init__(*given, **named)
        assert isinstance(self._feedback, Censored)
        self._arrived, self._queue = arrived, CensoredQueue(self._feedback, self._history)

    def bounds(self, round_number: int) -> Bounds | None:
        return None

    def _look(
        self, round_number: int, now: float, context: Tensor | None
    ) -> tuple[Seen, dict[str, float]]:
        feedback, history, rule = self._feedback, self._history, self.player.rule
        assert isinstance(feedback, Censored)
        assert isinstance(rule, WidthArmsRule)
        self._catch_up()
        self._queue.update(now)
        pending, lost = list(self._queue.pending), list(self._queue.lost)
        front = self._front_now(round_number, context)
        if isinstance(history, PenalizedHistory):
            feedback = history.censored(feedback)
        arrived = self._condition_arrived(feedback, set(lost), round_number, front)
        minimum = feedback.current_minimum(history)
        if minimum is None:
            minimum = self._proxy(feedback, arrived, round_number)
        if isinstance(history, PenalizedHistory):
            self.player.set_prior_mean(minimum)
        heights = self._heights(feedback, arrived, pending)
        # every query is a row: told in time, filled in while it is waited for, else at the minimum
        values = torch.full((len(self._arms), 1), minimum, dtype=DTYPE)
        _, outcomes, *_, ids = self._outcomes
        values[ids.values] = outcomes.values
        values[lost] = minimum
        values[pending] = minimum + heights.unsqueeze(-1).cpu()
        every = torch.arange(len(values))
        rows = self._at(every, values, torch.ones(len(values), dtype=DTYPE))
        rows = self._counted(rows, round_number)
        posterior = self.player.condition(rows, front)
        draws = isinstance(rule, ThompsonArmsRule)
        is_predictive = feedback.predictive and not draws
        total = self._sum_of_deviations(feedback, posterior, round_number, is_predictive, heights)
        given = (feedback.bound_on_sum(draws), feedback.unit, feedback.fill, feedback.sum_form)
        width = censored_rule(rule.rule, *given).in_round(total, round_number)
        rule = replace(rule, rule=width, predictive=is_predictive)
        drawn = self._rounds_before + round_number
        seen = self.player.look(round_number, None, front, None, drawn, rule)
        return seen, {"pending": float(len(pending)), "lost": float(len(lost))}

    def _condition_arrived(
        self, feedback: Censored, lost: set[int], round_number: int, front: Tensor | None
    ) -> AnyPosterior | None:
        """Return the posterior from outcomes that came in time, if pseudo-values depend on it."""
        if feedback.minimum is not None and not feedback.fills_by_model:
            return None
        ids = self._outcomes[-1].values.tolist()
        in_time = torch.tensor([i not in lost for i in ids], dtype=torch.bool)
        if isinstance(self._history, PenalizedHistory):
            minimum = feedback.current_minimum(self._history)
            assert minimum is not None
            self._arrived.set_prior_mean(minimum)
        rows = self._counted(self._of_outcomes()[in_time], round_number)
        return self._arrived.condition(rows, front)

    def _proxy(self, feedback: Censored, arrived: AnyPosterior | None, round_number: int) -> float:
        """Return the least lower bound at arms with outcomes, or at those that were asked."""
        assert arrived is not None
        assert feedback.minimum_proxy is not None
        index = arrived.rows.index if len(arrived.rows) else self._arms.values.to(self._device)
        if not len(index):
            return self.player.prior_mean
        mean, variance = arrived.mean[0, 0, index], arrived.variance[0, index].clamp_min(0.0)
        return float((mean - feedback.minimum_proxy * variance.sqrt()).min())

    def _heights(
        self, feedback: Censored, arrived: AnyPosterior | None, pending: list[int]
    ) -> Tensor:
        """Return how far the fills of pending queries lie above the minimum."""
        mean = torch.zeros(len(pending), dtype=DTYPE, device=self._device)
        deviation = torch.zeros_like(mean)
        if not pending or not feedback.fills_in:
            return mean
        if arrived is not None:
            moments = self._moments_at(arrived, pending)
            mean, deviation = moments[0] - self._arrived.prior_mean, moments[1].sqrt()
        shares = torch.ones_like(mean)
        if feedback.fill == "soft":
            shares = mean.new_tensor(self._queue.shares_to_come())
        assert feedback.outcome_bound is not None
        return feedback.heights(feedback.outcome_bound, mean, deviation, shares)

    def _moments_at(self, posterior: AnyPosterior, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances at queries, behind the fronts that they had."""
        index = self._arms.values[list(ids)].to(self._device)
        front = self._fronts.values[list(ids)] if self._num_front else None
        mean, variance = posterior.moments_at(index, front)
        return mean[0, 0], variance[0]

    def _sum_of_deviations(
        self,
        feedback: Censored,
        posterior: AnyPosterior,
        round_number: int,
        is_predictive: bool,
        heights: Tensor,
    ) -> Tensor:
        """Return the sum of deviations at the queries that count for the width, a scalar."""
        pending = list(self._queue.pending)
        ids = feedback.summed(pending, round_number - 1)
        if isinstance(self._forgetting, SlidingWindow):
            kept = self._forgetting.keeps(torch.tensor(ids, dtype=torch.long) + 1, round_number)
            ids = [i for i, stays in zip(ids, kept.tolist(), strict=True) if stays]
        if not ids:
            return posterior.lam.new_zeros(())
        variance = self._moments_at(posterior, ids)[1]
        if is_predictive:
            variance = variance + posterior.lam[0]
        terms = variance.sqrt()
        if feedback.fills_in and pending:
            assert feedback.outcome_bound is not None
            own = share_of_bound(heights, feedback.outcome_bound).tolist()
            share_of = dict(zip(pending, own, strict=True))
            terms = terms * terms.new_tensor([share_of.get(i, 1.0) for i in ids])
        return terms.sum()


def plays_by_row(player: Player, feedback: Feedback) -> bool:
    """Return whether a rule can be played on rows behind fronts, or that leave or fade.

    Args:
        player: The player.
        feedback: How pending queries are treated.
    """
    rule = player.rule
    if isinstance(rule, ImprovementArmsRule):  # it improves on the means of rows, not of arms
        return player.posterior.prior.num_front == 0 and not isinstance(feedback, Censored)
    if not isinstance(feedback, Censored):
        return True
    has_width = type(rule) in (WidthArmsRule, RandomizedArmsRule, ThompsonArmsRule)
    is_predictive = feedback.predictive and not isinstance(rule, ThompsonArmsRule)
    return has_width and feedback.minimum is not None and not is_predictive
