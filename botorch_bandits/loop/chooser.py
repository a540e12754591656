"""Chooses the points of a loop, from its settings and its history alone.

:class:`Chooser` makes the view of each round, and decides who chooses its point: a uniform draw, or
one of the two engines of :mod:`botorch_bandits.loop.engines`. What they see is a function of the
history, so that a loop that is rebuilt from its history makes the same choices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.acquisition.player import player_of
from botorch_bandits.acquisition.scores import Bounds
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee, WidthRule
from botorch_bandits.core.priors import Prior
from botorch_bandits.domains import Domain
from botorch_bandits.forgetting import ExponentialWeights
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop.acquisitions import bandit
from botorch_bandits.loop.censoring import Censoring
from botorch_bandits.loop.engines import ArmsEngine, ModelEngine, plays_by_row
from botorch_bandits.loop.epochs import SettingsOfEpochs
from botorch_bandits.loop.feasibility import (
    ConstraintWatch,
    Feasibility,
    feasibility_of,
    smallest_lower_bounds,
)
from botorch_bandits.loop.forecasts import Gains, with_change_points, with_forecasts
from botorch_bandits.loop.guarantees import (
    guarantee_of,
    with_constraints,
    with_forgetting,
    with_note_on_size,
    with_regret,
    with_restarts,
    with_retractions,
)
from botorch_bandits.loop.minimizing import guarantee_of_costs
from botorch_bandits.loop.repeats import next_play, noise_ratio_of, with_plays, with_repeats
from botorch_bandits.loop.restrictions import Restriction
from botorch_bandits.loop.searching import maximize_checked
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.state import (
    UNIFORM_ORIGINS,
    Multipliers,
    Segments,
    at_multipliers,
    with_feedback,
)
from botorch_bandits.loop.view import Inputs, View, view_of
from botorch_bandits.queries import flipped_diagnostics
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator

FAILURES_BEFORE_UNIFORM = 3
"""After this many consecutive failures, points are drawn uniformly until an outcome arrives."""


class Chooser:
    """Chooses points from settings and a history that grows as the loop runs.

    It can be discarded and rebuilt at any time: the next choice is the same.

    For a loop that minimizes, the view has outcomes with the other sign, and the signs of results
    are flipped on output; in between, everything works as if the negatives were told.

    Args:
        settings: The loop's settings.
        history: The history so far, in the sign in which it was told.

    Attributes:
        segments: Resets and multipliers, if the loop has any.
    """

    def __init__(self, settings: LoopSettings, history: History) -> None:
        """See the class."""
        self._minimizes = not settings.maximize
        self.segments: Segments | None = None
        self._of_epochs = SettingsOfEpochs(settings)
        self._settings = settings = self._of_epochs.now(None)
        self._history, self._inputs = history, Inputs(history)
        self._uniform = RandomBlocks([settings.seed], "sample", (), "uniform")
        self._priors: tuple[Prior, ...] = ()  # kept after resets
        self._gains: dict[Any, Gains | None] = {}
        if settings.restart is not None or settings.constraints is not None:
            self.segments = Segments(settings)
            self.segments.replay(history)
        self._watch = None if settings.constraints is None else ConstraintWatch(settings)
        self._begin_segment()

    @property
    def multipliers(self) -> Multipliers | None:
        """The multipliers and their state, if there are constraints."""
        return None if self.segments is None else self.segments.multipliers

    @property
    def first(self) -> int:
        """The id of the first query that counts, since the last reset."""
        return 0 if self.segments is None else self.segments.first_id

    @property
    def local_round(self) -> int:
        """The number of the next round, counted since the last reset, from 1."""
        return self._history.num_queries - self.first + 1

    @property
    def _place(self) -> tuple[int, int]:
        """The segment and the epoch in which hyperparameters are fitted."""
        rule = self._settings.constraints
        is_penalized = rule is not None and rule.surrogate != "separate"
        assert self.multipliers is not None or not is_penalized
        return self.first, self.multipliers.num_epochs if is_penalized and self.multipliers else 0

    def arrived(self, now: float, context: Tensor | None = None) -> View:
        """Return the view of the outcomes that count in the next round, without pseudo-values.

        Args:
            now: The time in seconds.
            context: The context of the round, or None.
        """
        view = self._all(now, context)
        return self._remembered(view if self.segments is None else self.segments.see(view))

    def _all(self, now: float, context: Tensor | None = None) -> View:
        settings = self._settings
        given = (self._played, now, context, settings.noise, settings.feedback.ignores_pending)
        return view_of(self._history, *given)

    def _remembered(self, view: View) -> View:
        """Return the view of what the loop does not forget."""
        forgetting, local, first = self._settings.forgetting, view.local_round, view.first
        if forgetting is None:
            return view
        if forgetting.window is not None:
            view = view.keeping(lambda ids: forgetting.keeps(ids - first + 1, local))
        if isinstance(forgetting, ExponentialWeights):
            view = replace(view, fading=lambda ids: forgetting.weights(ids - first + 1, local))
        return view

    def view(self, now: float, context: Tensor | None = None) -> View:
        """Return the view of the next round; see :meth:`arrived` for the arguments."""
        view = self.arrived(now, context)
        return view if self._censoring is None else self._censoring.see(view)

    def choose(
        self,
        round_number: int,
        context: Tensor | None,
        now: float,
        limits: Restriction | None = None,
    ) -> tuple[Tensor, str, dict[str, float]]:
        """Return the point of a round, its origin and its diagnostics.

        Args:
            round_number: One more than the rounds so far.
            context: The context of the round, or None without contexts.
            now: The time in seconds.
            limits: The restriction of the round; None for the whole domain.
        """
        self.begin_round(round_number)
        if self._watch is not None:
            assert self.segments is not None
            arms = self._arms
            known = None if arms is None else lambda: arms.smallest_lower_bounds(self.view(now))
            given = (self.segments, self._history, lambda j: self.constraint_model(j, now))
            self._watch.look(*given, known, lambda rules: self.widened_rules(rules, now))
        x, origin, diagnostics = self._choose(round_number, context, now, limits)
        rule = self._settings.constraints
        if rule is not None and rule.observes == "lower_bounds" and origin in UNIFORM_ORIGINS:
            diagnostics = {**diagnostics, **self._lower_bounds(x, round_number, context, now)}
        if self.segments is not None:
            diagnostics = {**diagnostics, **self.segments.describe()}
        return x, origin, flipped_diagnostics(diagnostics) if self._minimizes else diagnostics

    def _lower_bounds(
        self, x: Tensor, round_number: int, context: Tensor | None, now: float
    ) -> dict[str, float]:
        """Return the lower bounds of a uniformly drawn point that a rule for every round uses."""
        if self.has_no_data() or self._played is None:
            return {}
        view = self.view(now, context)
        if self._arms is not None:
            described = self._arms.describe(x, view)
        else:
            domain = self._domain_in(context)
            acquisition = bandit(self._models.acquisition(view, domain))
            assert acquisition is not None
            whole = domain.sample(1, generator(0, 0, "columns in front")).squeeze(0)
            whole[-len(x) :] = x  # the columns in front, round and context, are fixed
            described = acquisition.describe(whole)
        return {k: v for k, v in described.items() if k.startswith("constraint_lower_bound")}

    def check_outcome(self, outcome: Outcome) -> None:
        """Raise if an outcome, penalized with the multipliers, is too large; nothing is changed.

        Args:
            outcome: The outcome of a query that was asked or is about to be recorded.

        Raises:
            ValueError: If it is; see :meth:`.Multipliers.check_outcome`.
        """
        censored = self._settings.feedback.censored
        if censored is not None:
            censored.check_constraints(outcome.constraints)
        if self.segments is not None:
            self.segments.check_outcome(self._in_sign_of_model(outcome))

    def hear(self, entry: Any) -> None:
        """Process a query or an event that was added to the history; a reset may follow.

        Args:
            entry: A query, outcome or failure; a retraction changes what was processed before.
        """
        segments = self.segments
        if entry.state == Outcome.state:
            told = self._in_sign_of_model(entry)
            is_reset = segments is not None and segments.add_outcome(told) is not None
            is_refused = self._arms is not None and not self._arms.takes_weights
            if is_reset or (entry.is_weighted and is_refused):
                self._begin_segment()
            if self._watch is not None:
                assert segments is not None
                self._watch.hear(segments, self._history)
        elif segments is None:
            return
        elif entry.state == Query.state:
            self.begin_round(entry.round_number)
            segments.add_query(entry)
        else:
            segments.add_failure(entry)

    def _in_sign_of_model(self, outcome: Outcome) -> Outcome:
        return outcome.flipped() if self._minimizes else outcome

    def latest_fit(self) -> dict[str, Any] | None:
        """Return the hyperparameters of the last refit and its rows; None if there was none."""
        fit = None if self._arms is not None else self._models.latest_fit()
        if fit is None:
            return None
        segment, epoch = self._place
        return {"segment": segment, "epoch": epoch, **fit}

    def restore_fit(self, fit: Mapping[str, Any]) -> None:
        """Continue from hyperparameters on record, which then need not be fitted again.

        Args:
            fit: From :meth:`latest_fit`, perhaps of another process.
        """
        if self._arms is not None or self._censoring is not None or fit == self.latest_fit():
            return
        if (fit["segment"], fit["epoch"]) == self._place:
            self._models.restore_fit(fit, self.arrived(0.0))

    def delta_now(self, default: float) -> float:
        """Return the failure probability of what is played now, or the default if it has none."""
        options = {} if self._played is None else self._played.options
        return float(options.get("delta", default))

    def has_no_data(self) -> bool:
        """Return whether a user's model cannot be built yet."""
        settings = self._settings
        has_prior = settings.recipe is not None or settings.forgetting is None
        if self._arms is not None or (settings.priors and has_prior):
            return False
        history, feedback = self._history, settings.feedback
        told = map(history.outcome, self.arrived(0.0).ids.tolist())
        return all(
            each is None or feedback.is_late(history.query(each.query_id), each) for each in told
        )

    def model(self, now: float) -> Model:
        """Return the model with which the next query would be chosen."""
        return self._models.model(self.view(now))

    def constraint_model(self, constraint: int, now: float) -> Model:
        """Return the model of minus a constraint's values since the last reset.

        With separate surrogates, it is the loop's model of reward and constraints.

        Args:
            constraint: The index of the constraint.
            now: The time in seconds.
        """
        rule = self._settings.constraints
        assert rule is not None
        assert self.segments is not None
        if rule.surrogate == "separate":
            return self.model(now)
        view = self._remembered(self._all(now).since(self.segments.first_id_of_segment))
        told = view.with_rows(view.ids, -view.Y[:, constraint + 1].unsqueeze(-1), prior_mean=0.0)
        return self._models.model(told, f"constraint {constraint + 1}")

    def inputs(self, view: View) -> Tensor:
        """Return the inputs of the rows of a view, ``n x (context_dim + d)``."""
        return self._inputs(view.ids)

    def widened_rules(self, rules: Sequence[WidthRule], now: float) -> Sequence[WidthRule]:
        """Return rules for reward and constraints with the terms of queries pending next round.

        Args:
            rules: One per output, for outcomes without delay.
            now: The time in seconds.
        """
        return self._models.widened_rules(rules, self.view(now))

    def feasibility(self, now: float, width: float | None) -> Feasibility:
        """Return whether the constraints can be met, according to the data.

        Args:
            now: The time in seconds.
            width: See :func:`~botorch_bandits.loop.feasibility.smallest_lower_bounds`.
        """
        assert self.segments is not None
        assert self.segments.multipliers is not None
        model_of = partial(self.constraint_model, now=now)
        given = (self._settings, self.segments, self._history, model_of, width)
        bounds = smallest_lower_bounds(*given, lambda rules: self.widened_rules(rules, now))
        return feasibility_of(self.segments.multipliers, self._history, bounds)

    def guarantee(self, now: float, num_given: int) -> Guarantee:
        """Return the guarantee of the settings for the history so far.

        Args:
            now: The time in seconds.
            num_given: How many rounds of the history the loop was given.
        """
        context_dim = self._settings.context_dim
        latest = torch.zeros(context_dim, dtype=DTYPE) if context_dim else None
        for query in self._history.queries[-1:]:
            latest = query.context
        acquisition, domain = self.acquisition_now(latest, now)
        told = self.guarantee_of(acquisition, domain, num_given), acquisition, self._settings
        guarantee = with_forecasts(
            *told, self._history, cache=self._gains, has_several_models=self._of_epochs.differ
        )
        if self._settings.restart is None:
            return guarantee
        resets = () if self.segments is None else self.segments.resets
        return with_change_points(guarantee, *told[1:], resets, self._history.num_queries)

    def acquisition_now(
        self, context: Tensor | None, now: float
    ) -> tuple[AcquisitionFunction, Domain]:
        """Return the acquisition of the next round without pending points, and its domain.

        Args:
            context: The context of the round, or None without contexts.
            now: The time in seconds.
        """
        domain, view = self._domain_in(context), self.view(now, context)
        view = replace(view, pending=view.pending[:0])
        return self._models.acquisition(view, domain), domain

    def bounds_on_arms(self) -> Bounds | None:
        """Return the statistics of all arms now, if the settings do not need a model."""
        if self._arms is None or self._censoring is not None:
            return None
        view = self.arrived(0.0)
        return self._arms.bounds(replace(view, pending=view.pending[:0]))

    def guarantee_of(
        self,
        acquisition: AcquisitionFunction,
        domain: Domain,
        num_given: int,
        of_choices: bool = True,
    ) -> Guarantee:
        """Return the guarantee of an acquisition function in this loop.

        Args:
            acquisition: The acquisition function of :meth:`acquisition_now`.
            domain: The domain that comes with it.
            num_given: How many rounds of the history the loop was given.
            of_choices: See :func:`.guarantee_of`.
        """
        settings = self._settings
        resets = [] if self.segments is None else self.segments.resets
        starts = [reset.after_round for reset in resets]
        guarantee = guarantee_of(acquisition, self._history, settings, domain, of_choices)
        if settings.forgetting is not None:
            guarantee = with_forgetting(guarantee)
        if settings.constraints is not None:
            others = self._of_epochs.others(self.multipliers, domain)
            given = acquisition, settings, self._history, starts, others
            guarantee = with_constraints(guarantee, *given)
        if settings.restart is not None:
            number = 0 if self.segments is None else self.segments.number
            guarantee = with_restarts(guarantee, settings, number)
        guarantee = with_retractions(guarantee, self._history)
        guarantee = with_regret(guarantee, self._history, starts, num_given)
        if settings.repeats is not None:
            keeps_all = settings.forgetting is None and not starts
            guarantee = with_repeats(guarantee, self._history, settings.repeats, keeps_all)
        guarantee = with_note_on_size(guarantee, self._history)
        return guarantee_of_costs(guarantee) if self._minimizes else guarantee

    def _choose(
        self, round_number: int, context: Tensor | None, now: float, limits: Restriction | None
    ) -> tuple[Tensor, str, dict[str, float]]:
        settings = self._settings
        if self.local_round <= settings.num_initial:
            return self._sample(round_number, limits), "initial", {}
        if self.segments is not None and self.segments.explores():
            return self._sample(round_number, limits), "exploration", {}
        if settings.is_random:
            return self._sample(round_number, limits), "random", {}
        if self.has_no_data():
            # a user's model cannot be built without data
            return self._sample(round_number, limits), "initial", {}
        if self._history.avoided_in_a_row(self.first) >= FAILURES_BEFORE_UNIFORM:
            # the model learns nothing from failures and would continue near the last ones
            return self._sample(round_number, limits), "initial", {}
        if settings.repeats is not None and limits is None:
            again = next_play(self._history, context, self.first)
            if again is not None:
                return again
        view = self.view(now, context)
        if self._arms is not None:
            among = None if limits is None else limits.among
            x, diagnostics = self._arms.choose(view, among)
            if self._censoring is not None:
                queue = self._censoring.queue
                counts = {"pending": float(len(queue.pending)), "lost": float(queue.num_lost)}
                diagnostics = {**diagnostics, **counts}
            if settings.repeats is not None and limits is None:
                ratio = self._arms.noise_ratio_at(x, view)
                diagnostics = with_plays(diagnostics, settings, ratio)
            return x, "acquisition", diagnostics
        return self._search(view, limits)

    def _search(
        self, view: View, limits: Restriction | None
    ) -> tuple[Tensor, str, dict[str, float]]:
        """Return the point that maximizes the acquisition function on the model of a view."""
        settings, domain = self._settings, self._domain_in(view.context)
        acquisition = self._models.acquisition(view, domain)
        there = domain if limits is None else self._domain_in(view.context, limits)
        seed = derive_seed(settings.seed, view.round_number, "maximize")
        whole, value = maximize_checked(there, acquisition, seed)
        diagnostics, known = {"acquisition_value": value}, bandit(acquisition)
        if known is not None:
            diagnostics = known.describe(whole)
        if settings.repeats is not None and limits is None:
            diagnostics = with_plays(diagnostics, settings, noise_ratio_of(acquisition, whole))
        return whole[-settings.domain.dim :], "acquisition", diagnostics

    def begin_round(self, round_number: int) -> None:
        """End the last round; a segment or an epoch may begin."""
        if self.segments is None:
            return
        multipliers = self.segments.multipliers
        num_epochs = 0 if multipliers is None else multipliers.num_epochs
        if self.segments.before_round(round_number):
            self._begin_segment()
        elif multipliers is not None and multipliers.num_epochs != num_epochs:
            self._played = self._acquisition_now()

    def _acquisition_now(self) -> AcquisitionRecipe | None:
        """Return the recipe played now, at its share of delta and with the multipliers in force."""
        settings = self._settings
        played = with_feedback(settings.played, settings.feedback)
        if played is None or self.segments is None:
            return played
        if settings.restart is not None:
            share = partial(settings.restart.share_of_delta, segment=self.segments.number)
            played = played.at_share_of_delta(share)
        if self.segments.multipliers is not None:
            played = at_multipliers(played, self.segments.multipliers, settings.horizon)
        return played

    def _begin_segment(self) -> None:
        """Recompute everything that depends on the history that counts."""
        if self._of_epochs.differ:
            self._settings = self._of_epochs.now(self.multipliers)
            self._priors = ()
            if self._watch is not None:
                self._watch.settings = self._settings
        self._played = self._acquisition_now()
        self._arms = self._new_arms()
        self._models = ModelEngine(self._settings, self._inputs)
        self._censoring = None
        if self._settings.feedback.censored is not None:
            engine = self._models if self._arms is None else self._arms
            rule = self._settings.constraints
            is_penalized = rule is not None and rule.surrogate != "separate"
            multipliers = self.multipliers if is_penalized else None
            given = (self._settings, self._history, multipliers, engine.moments)
            self._censoring = Censoring(*given)

    def _new_arms(self) -> ArmsEngine | None:
        """Return what plays arms without a model, if the settings do not need one."""
        settings, played, rule = self._settings, self._played, self._settings.constraints
        domain, feedback = settings.domain.arms, settings.feedback
        model = settings.listed if settings.recipe is None else settings.recipe
        if domain is None or model is None or played is None:
            return None
        is_censored, forgetting = feedback.censored is not None, settings.forgetting
        by_row = bool(settings.context_dim or forgetting or (rule and is_censored))
        on_device = domain.choices.device.type != "cpu"
        # of all outcomes since the reset: a loop goes on alike when a window has left one
        is_weighted = self._all(0.0).since(self.first).weight is not None
        if by_row and (is_weighted or on_device or settings.recipe is None):
            return None
        if by_row and played.options.get("choices") is not None:
            return None
        # behind contexts, a window is factorized anew in each round as well
        leaves = settings.window is not None and settings.context_dim > 0
        stays = not leaves and not (forgetting is not None and forgetting.fades)
        rate, dim = settings.drift_rate, settings.context_dim
        given = (model, played, domain, settings.seed, dim, rate, by_row, stays)
        player = player_of(*given, known=self._priors)
        if player is None or (by_row and not plays_by_row(player, feedback)):
            return None
        self._priors = player.posterior.prior.priors
        arrived = player_of(*given, known=self._priors) if is_censored else player
        assert arrived is not None
        takes_weights = not (dim or forgetting)
        known = (player, arrived, domain, self._history, rate is not None, takes_weights)
        return ArmsEngine(*known)

    def _sample(self, round_number: int, limits: Restriction | None) -> Tensor:
        domain = self._settings.domain if limits is None else limits.domain
        if (choices := domain.choices) is not None:
            # drawn in blocks, as for replicates on the same arms
            return choices[int(self._uniform.at(round_number) * len(choices))]
        stream = generator(self._settings.seed, round_number, "sample")
        return domain.sample(1, stream).squeeze(0)

    def _domain_in(self, context: Tensor | None, limits: Restriction | None = None) -> Domain:
        domain = self._settings.domain if limits is None else limits.domain
        front = [] if context is None else [context]
        if self._settings.drift_rate is not None:  # the round comes first
            front.insert(0, torch.tensor([float(self.local_round)], dtype=DTYPE))
        return domain.in_context(torch.cat(front)) if front else domain
