"""Chooses the points of a loop, from its settings and its history alone.

:class:`Chooser` decides who chooses the point of each round: a uniform draw; the acquisition
function on a model, which :class:`AcquisitionBuilder` builds from the history; or a
:class:`~botorch_bandits.loop.points_stream.PointsStream`, which plays arms without a BoTorch model.
What each of them sees is a function of the history, so that a loop that is rebuilt from its history
makes the same choices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from botorch_bandits.confidence import Guarantee
from botorch_bandits.core.priors import Prior
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, CensoredView
from botorch_bandits.history import Failure, History, Outcome, Query
from botorch_bandits.loop.acquisitions import bandit
from botorch_bandits.loop.censored_rows import BuildsCensored, CountedRows, SeparatePriors
from botorch_bandits.loop.epochs import SettingsOfEpochs
from botorch_bandits.loop.feasibility import (
    ConstraintWatch,
    Feasibility,
    feasibility_of,
    smallest_lower_bounds,
)
from botorch_bandits.loop.forecasts import Gains, with_change_points, with_forecasts
from botorch_bandits.loop.forgetting import ForgettingModels, forgetful_models
from botorch_bandits.loop.guarantees import (
    guarantee_of,
    with_constraints,
    with_forgetting,
    with_note_on_size,
    with_regret,
    with_restarts,
    with_retractions,
)
from botorch_bandits.loop.minimizing import guarantee_of_costs, turned_history
from botorch_bandits.loop.points_stream import CensoredPointsStream, PointsStream, plays_by_row
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
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.builder import ModelBuilder
from botorch_bandits.models.reading import observed_inputs
from botorch_bandits.queries import flipped_diagnostics
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator, seeded_globally

MOST_ROWS = 20_000
"""From this many distinct rows on, one matrix of an exact model takes 3.2 GB."""

FAILURES_BEFORE_UNIFORM = 3
"""After this many consecutive failures, points are drawn uniformly until an outcome arrives."""


class Chooser:
    """Chooses points from settings and a history that grows as the loop runs.

    It can be discarded and rebuilt at any time: the next choice is the same.

    For a loop that minimizes, the signs of outcomes are flipped here on input, and the signs of
    results on output; in between, everything works as if the negatives were told.

    Args:
        settings: The loop's settings.
        history: The history so far.
        fit: Hyperparameters on record, from :meth:`latest_fit`, which need not be fitted again.

    Attributes:
        segments: Resets and multipliers, if the loop has any.
    """

    def __init__(
        self, settings: LoopSettings, history: History, fit: Mapping[str, Any] | None = None
    ) -> None:
        """See the class."""
        self._minimizes = not settings.maximize
        self.segments: Segments | None = None
        self._of_epochs = SettingsOfEpochs(settings)
        self._settings = settings = self._of_epochs.now(None)
        if self._minimizes:
            history = turned_history(history)
        self._history = history
        self._uniform = RandomBlocks([settings.seed], "sample", (), "uniform")
        self._priors: tuple[Prior, ...] = ()  # kept after resets
        self._gains: dict[Any, Gains | None] = {}
        if settings.restart is not None or settings.constraints is not None:
            self.segments = Segments(settings)
            self.segments.replay(history)
        self._watch = None if settings.constraints is None else ConstraintWatch(settings)
        self._begin_segment()
        place = (self.rounds_before, self.current.version)
        if fit is not None and self._stream is None and (fit["segment"], fit["epoch"]) == place:
            self._builder.restore_fit(fit)

    @property
    def multipliers(self) -> Multipliers | None:
        """The multipliers and their state, if there are constraints."""
        return None if self.segments is None else self.segments.multipliers

    @property
    def current(self) -> History:
        """The history since the last reset."""
        return self._history if self.segments is None else self.segments.current

    @property
    def rounds_before(self) -> int:
        """How many rounds there were before the last reset."""
        return 0 if self.segments is None else self.segments.first_id

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
            now: Clock time in seconds.
            limits: The restriction of the round; None for the whole domain.
        """
        self.begin_round(round_number)
        if self._watch is not None:
            assert self.segments is not None
            known = None
            if self._stream is not None and self._stream.bounds_constraints:
                known = partial(self._stream.smallest_lower_bounds, self.current.num_queries + 1)
            given = (self.segments, self._history, lambda: self.model(now))
            self._watch.look(*given, known, lambda rules: self._builder.widened(rules, now))
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
        local_round = self.current.num_queries + 1
        if self._stream is not None:
            described = self._stream.describe(x, local_round, now, context)
        else:
            domain = self._domain_in(context, local_round)
            acquisition = bandit(self._builder.build(self._played, local_round, domain, now))
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
            self.segments.check_outcome(outcome.flipped() if self._minimizes else outcome)

    def add_query(self, query: Query) -> None:
        """Process a query that was added to the history."""
        query = self._taken_in(query)
        if self.segments is not None:
            self.segments.add_query(query)

    def add_outcome(self, outcome: Outcome) -> None:
        """Process an outcome that was added to the history; a reset may follow."""
        outcome = self._taken_in(outcome)
        is_reset = self.segments is not None and self.segments.add_outcome(outcome) is not None
        is_refused = self._stream is not None and not self._stream.takes_weights
        if is_reset or (outcome.is_weighted and is_refused):
            self._begin_segment()
        if self._watch is not None:
            assert self.segments is not None
            self._watch.hear(self.segments, self._history)

    def add_failure(self, failure: Failure) -> None:
        """Process a failure that was added to the history."""
        self._taken_in(failure)
        if self.segments is not None:
            self.segments.add_failure(failure)

    def _taken_in(self, entry: Any) -> Any:
        """Return a query or an event in the sign of the model, in which the history then has it."""
        if self._minimizes:
            entry = entry.flipped()
            self._history.record(entry)
        return entry

    @property
    def history(self) -> History:
        """The whole history, in the sign of the model."""
        return self._history

    def latest_fit(self) -> dict[str, Any] | None:
        """Return the hyperparameters of the last refit and its rows; None if there was none."""
        fit = None if self._stream is not None else self._builder.latest_fit()
        if fit is None:
            return None
        return {"segment": self.rounds_before, "epoch": self.current.version, **fit}

    def delta_now(self, default: float) -> float:
        """Return the failure probability of what is played now, or the default if it has none."""
        options = {} if self._played is None else self._played.options
        return float(options.get("delta", default))

    def has_no_data(self) -> bool:
        """Return whether a user's model cannot be built yet."""
        return self._stream is None and self._builder.has_no_data()

    def model(self, now: float) -> Model:
        """Return the model with which the next query would be chosen."""
        return self._builder.model(self.current.num_queries + 1, now)

    def feasibility(self, now: float, width: float | None) -> Feasibility:
        """Return whether the constraints can be met, according to the data.

        Args:
            now: Clock time in seconds.
            width: See :func:`~botorch_bandits.loop.feasibility.smallest_lower_bounds`.
        """
        assert self.segments is not None
        assert self.segments.multipliers is not None
        given = (self._settings, self.segments, self._history, lambda: self.model(now), width)
        bounds = smallest_lower_bounds(*given, lambda rules: self._builder.widened(rules, now))
        return feasibility_of(self.segments.multipliers, self._history, bounds)

    def guarantee(self, now: float, num_given: int) -> Guarantee:
        """Return the guarantee of the settings for the history so far.

        Args:
            now: Clock time in seconds.
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
            now: Clock time in seconds.
        """
        next_round = self.current.num_queries + 1
        domain = self._domain_in(context, next_round)
        built = self._builder.build(self._played, next_round, domain, now, with_pending=False)
        return built, domain

    def bounds_on_arms(self) -> Bounds | None:
        """Return the statistics of all arms now, if the settings do not need a model."""
        if self._stream is None:
            return None
        return self._stream.bounds(self.current.num_queries + 1)

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
        local_round = self.current.num_queries + 1
        if local_round <= settings.num_initial:
            return self._sample(round_number, limits), "initial", {}
        if self.segments is not None and self.segments.explores():
            return self._sample(round_number, limits), "exploration", {}
        if settings.is_random:
            return self._sample(round_number, limits), "random", {}
        if self.has_no_data():
            # a user's model cannot be built without data
            return self._sample(round_number, limits), "initial", {}
        if self.current.avoided_in_a_row() >= FAILURES_BEFORE_UNIFORM:
            # the model learns nothing from failures and would continue near the last ones
            return self._sample(round_number, limits), "initial", {}
        if settings.repeats is not None and limits is None:
            again = next_play(self.current, context, self.rounds_before)
            if again is not None:
                return again
        if self._stream is not None:
            among = None if limits is None else limits.among
            x, diagnostics = self._stream.choose(local_round, now, context, among)
            if settings.repeats is not None and limits is None:
                ratio = self._stream.noise_ratio_at(x, local_round)
                diagnostics = with_plays(diagnostics, settings, ratio)
            return x, "acquisition", diagnostics
        domain = self._domain_in(context, local_round)
        acquisition = self._builder.build(self._played, local_round, domain, now)
        there = domain if limits is None else self._domain_in(context, local_round, limits)
        seed = derive_seed(settings.seed, round_number, "maximize")
        whole, value = maximize_checked(there, acquisition, seed)
        diagnostics, known = {"acquisition_value": value}, bandit(acquisition)
        if known is not None:
            diagnostics = known.describe(whole)
        if settings.repeats is not None and limits is None:
            ratio = noise_ratio_of(acquisition, whole)
            diagnostics = with_plays(diagnostics, settings, ratio)
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
            if self._stream is not None and self._played is not None:
                self._stream.play(self._played.arms_rule(self._stream.rule_domain))

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
        self._stream = self._new_stream()
        # no model is needed to choose among arms that are played from sufficient statistics
        self._cached_builder = None if self._stream is not None else self._new_builder()

    @property
    def _builder(self) -> AcquisitionBuilder:
        """The builder of models and acquisition functions of this segment."""
        if self._cached_builder is None:
            self._cached_builder = self._new_builder()
        return self._cached_builder

    def _new_builder(self) -> AcquisitionBuilder:
        forgets = self._settings.forgetting is not None
        kind = ForgettingBuilder if forgets else AcquisitionBuilder
        return kind(self._settings, self.current, self.rounds_before)

    def _new_stream(self) -> PointsStream | None:
        """Return what plays arms without a model, if the settings do not need one."""
        settings, played, rule = self._settings, self._played, self._settings.constraints
        domain, feedback = settings.domain.arms, settings.feedback
        model = settings.listed if settings.recipe is None else settings.recipe
        if domain is None or model is None or played is None:
            return None
        is_censored, forgetting = feedback.censored is not None, settings.forgetting
        by_row = bool(settings.context_dim or forgetting or (rule and is_censored))
        on_device = domain.choices.device.type != "cpu"
        if by_row and (self.current.is_weighted or on_device or settings.recipe is None):
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
        now = (self.current, feedback, forgetting, settings.noise, self.rounds_before)
        known = (player, domain, *now)
        if not is_censored:
            return PointsStream(*known)
        arrived = player_of(*given, known=self._priors)
        assert arrived is not None
        return CensoredPointsStream(*known, arrived=arrived)

    def _sample(self, round_number: int, limits: Restriction | None) -> Tensor:
        domain = self._settings.domain if limits is None else limits.domain
        if (choices := domain.choices) is not None:
            # drawn in blocks, as for replicates on the same arms
            return choices[int(self._uniform.at(round_number) * len(choices))]
        stream = generator(self._settings.seed, round_number, "sample")
        return domain.sample(1, stream).squeeze(0)

    def _domain_in(
        self, context: Tensor | None, local_round: int, limits: Restriction | None = None
    ) -> Domain:
        domain = self._settings.domain if limits is None else limits.domain
        front = [] if context is None else [context]
        if self._settings.drift_rate is not None:  # the round comes first
            front.insert(0, torch.tensor([float(local_round)], dtype=DTYPE))
        return domain.in_context(torch.cat(front)) if front else domain


class AcquisitionBuilder(BuildsCensored):
    """Builds models and acquisition functions from a history, and keeps the last model.

    Args:
        settings: The loop's settings.
        history: The history, which grows as the loop goes on.
        rounds_before: The number of rounds before this history, from which random numbers continue.
    """

    def __init__(self, settings: LoopSettings, history: History, rounds_before: int = 0) -> None:
        """See the class."""
        self._settings, self._history = settings, history
        self._recipe, self._censored = settings.recipe, settings.feedback.censored
        self._rounds_before = rounds_before
        self._fits: ModelBuilder | None = None  # what may fit hyperparameters
        self._build_model: Callable[..., Any] = self._call_factory
        # number of constraints with pseudo-values and their own models
        self._num_separate = 0 if self._censored is None else history.num_outputs - 1
        if settings.listed is not None:
            self._build_model = settings.listed.builder()
        elif settings.recipe is not None and self._num_separate:
            self._build_model = SeparatePriors(
                settings.recipe, self._num_separate, lambda prior: prior.builder(settings.seed)
            )
        elif settings.recipe is not None:
            self._begin_models(settings.recipe)
        self._cached_model: tuple[Any, Model] | None = None  # with the data that it was built from
        self._cached_arrived: tuple[Any, Model] | None = None
        self._shares: Mapping[int, float] = {}
        self._next_count = MOST_ROWS  # the number of outcomes at which rows are counted next

    def _begin_models(self, given: BanditGPRecipe) -> None:
        self._recipe = given
        self._fits = given.builder(self._settings.seed, self._merges)
        self._build_model = self._fits

    @property
    def _merges(self) -> bool:
        return self._censored is None  # pseudo-values are replaced row by row

    def latest_fit(self) -> dict[str, Any] | None:
        """Return a recipe's hyperparameters and the rows they were fitted to; None if never."""
        return None if self._fits is None else self._fits.latest_fit()

    def restore_fit(self, fit: Mapping[str, Any]) -> None:
        """Continue from a recorded fit if its rows are the first outcomes that arrived.

        Args:
            fit: The result of :meth:`latest_fit`.
        """
        if self._fits is not None and self._censored is None:
            self._fits.restore_fit(fit, *self._history.arrived())

    def has_no_data(self) -> bool:
        """Return whether a user's model cannot be built yet."""
        if self._settings.priors:
            return False
        if self._censored is not None:
            outcomes = self._history.outcomes
            queries = (self._history.query(outcome.query_id) for outcome in outcomes)
            return all(map(self._censored.is_late, queries, outcomes))
        return self._history.num_arrived == 0

    def model(self, round_number: int, now: float) -> Model:
        """Return the model with which a round's query is chosen.

        Args:
            round_number: The number of the round, from 1.
            now: Clock time in seconds.
        """
        if self._censored is not None:
            feedback = self._censored_now
            view = feedback.view(self._history, round_number, now)
            return self._censored_model(feedback, view, round_number, now)
        key = (self._history.num_arrived, self._history.version)
        if self._cached_model is None or self._cached_model[0] != key:
            rows = (*self._history.arrived(), *self._weights())
            self._check_num_rows(rows[0])
            self._cached_model = (key, self._build_model(*rows))
        return self._cached_model[1]

    def build(
        self,
        recipe: AcquisitionRecipe | None,
        round_number: int,
        domain: Domain,
        now: float,
        with_pending: bool = True,
    ) -> AcquisitionFunction:
        """Build the acquisition function of a round.

        Args:
            recipe: The recipe that is played in this round; None for a user's function.
            round_number: The number of the round, from 1.
            domain: The domain on which it will be maximized.
            now: Clock time in seconds.
            with_pending: Whether pending points are used; censored ones always are.
        """
        if self._censored is not None:
            assert recipe is not None
            return self._build_censored(self._censored_now, recipe, round_number, domain, now)
        model, seed = self.model(round_number, now), self._seed_of(round_number)
        uses_pending = with_pending and not self._settings.feedback.ignores_pending
        X_pending = self._pending(round_number) if uses_pending else None
        if recipe is None:
            make: Any = self._settings.acquisition
            with seeded_globally(seed):
                built: AcquisitionFunction = make(model, X_pending)
                return built
        X, Y = self._observed(round_number)
        return recipe.build(
            model,
            domain,
            round_number=round_number,
            X_pending=X_pending,
            seed=seed,
            X_observed=X if self._fits is None else observed_inputs(model),  # merged, maybe
            Y_observed=Y,
        )

    def _pending(self, round_number: int) -> Tensor | None:
        """Return the inputs of the points whose outcomes are not known, if there are any."""
        inputs = self._history.inputs_to_avoid()
        return inputs if len(inputs) else None

    def _observed(self, round_number: int) -> tuple[Tensor, Tensor]:
        """Return the inputs that an acquisition function has to look at, and all outcomes."""
        return self._history.arrived()

    def _weights(self) -> tuple[Tensor, ...]:
        """Return the weights of the rows that arrived as the last argument of builders, if any."""
        weights = self._history.weights(self._settings.noise)
        return () if weights is None else (weights,)

    def _check_num_rows(self, X: Tensor) -> None:
        """Raise an error before an exact model is built of too many distinct rows.

        Args:
            X: ``n x d`` inputs of the model.

        Raises:
            ValueError: If at least ``MOST_ROWS`` of them are distinct.
        """
        is_exact = self._settings.priors or self._settings.learned is not None
        if self._history.num_arrived < self._next_count or not is_exact:
            return  # a user's function may build a sparse model
        num_distinct = len(X.unique(dim=0))
        # an outcome adds at most one row, so that no earlier one can reach the limit
        self._next_count = self._history.num_arrived + MOST_ROWS - num_distinct
        if num_distinct >= MOST_ROWS:
            raise ValueError(
                f"the outcomes are at {num_distinct} distinct points, but an exact model, such as "
                f"that of model={type(self._settings.model).__name__}, takes fewer than "
                f"{MOST_ROWS} rows. Pass as model= a function of (X, Y) that returns a sparse "
                "model, such as botorch.models.SingleTaskVariationalGP with its "
                "gpytorch.models.ApproximateGP, and history=loop.history; or forget rows with "
                "forgetting=SlidingWindow(...)."
            )

    def _seed_of(self, round_number: int) -> int:
        place = self._rounds_before + round_number
        return derive_seed(self._settings.seed, place, "acquisition")

    def _call_factory(self, X: Tensor, Y: Tensor, *weights: Tensor) -> Model:
        make, place = self._settings.model_in_use, self._rounds_before + len(X)
        assert make is not None
        # a fit by a user's function may draw from the global generator
        with seeded_globally(derive_seed(self._settings.seed, place, "model")):
            return make(X, Y, *weights)


class ForgettingBuilder(AcquisitionBuilder):
    """Builds the model of each round from outcomes that have not been forgotten.

    With a time-varying kernel the model's inputs are ``(round, context, point)``.

    Args:
        settings: The loop's settings.
        history: As for :class:`AcquisitionBuilder`.
        rounds_before: As for :class:`AcquisitionBuilder`.
    """

    def __init__(self, settings: LoopSettings, history: History, rounds_before: int = 0) -> None:
        """See the class."""
        assert settings.forgetting is not None
        self._censored_round = 0  # the round whose model is cached
        self._forgetting = settings.forgetting
        self._models: ForgettingModels | None = None
        self._build_rows: Callable[..., Any] | None = None
        super().__init__(settings, history, rounds_before)
        if settings.recipe is not None and self._num_separate:
            self._begin_models(settings.recipe)
            self._build_rows = SeparatePriors(
                settings.recipe,
                self._num_separate,
                lambda prior: forgetful_models(prior, self._forgetting).build,
            )
        elif settings.listed is not None:
            self._models = ForgettingModels(self._forgetting, settings.listed.builder())

    def has_no_data(self) -> bool:
        """See :meth:`AcquisitionBuilder.has_no_data`; a window may be empty again."""
        if self._recipe is not None:
            return False
        next_round = self._history.num_queries + 1
        if self._censored is not None:
            told = ((self._history.query(o.query_id), o) for o in self._history.outcomes)
            counted = self._counted(next_round).ids
            return all(q.id not in counted or self._censored.is_late(q, o) for q, o in told)
        return len(self._arrived(next_round)[0]) == 0

    def model(self, round_number: int, now: float) -> Model:
        if self._censored is not None:
            return super().model(round_number, now)
        key = (self._history.num_arrived, round_number, self._history.version)
        if self._cached_model is None or self._cached_model[0] != key:
            self._cached_model = None  # not needed for the next one; keeps one model in memory
            of_round = None if self._models is not None else round_number
            in_force, _, their_rounds = self._arrived(round_number)
            self._check_num_rows(self._inputs(in_force, their_rounds))
            X, Y, rounds = self._arrived(of_round)
            weights = self._weights_in(of_round)
            if self._models is None:
                model = self._call_factory(X, Y, *weights)
            else:
                model = self._models.build(X, Y, rounds, round_number, *weights)
            self._cached_model = (key, model)
        return self._cached_model[1]

    def _arrived(self, round_number: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs, outcomes and rounds of what arrived, in that order, within the window.

        Without a round, outcomes that have left the window are included.
        """
        X, Y = self._history.arrived()
        rounds = self._history.rounds().to(X.device)
        if round_number is not None and self._forgetting.window is not None:
            kept = self._forgetting.keeps(rounds, round_number)
            X, Y, rounds = X[kept], Y[kept], rounds[kept]
        return X, Y, rounds

    def _weights_in(self, round_number: int | None) -> tuple[Tensor, ...]:
        """Return the weights of the rows in :meth:`_arrived`; nothing if all weigh the same."""
        if round_number is None or self._forgetting.window is None:
            return self._weights()
        kept = self._forgetting.keeps(self._history.rounds(), round_number)
        return tuple(each[kept.to(each.device)] for each in self._weights())

    def _censored_model(
        self, feedback: Censored, view: CensoredView, round_number: int, now: float
    ) -> Model:
        if round_number != self._censored_round:
            self._cached_model, self._censored_round = None, round_number
        return super()._censored_model(feedback, view, round_number, now)

    def _begin_models(self, given: BanditGPRecipe) -> None:
        self._recipe = given
        self._models = forgetful_models(given, self._forgetting, self._merges)
        self._build_rows = self._models.build

    def _counted(self, round_number: int) -> CountedRows:
        X, rounds = self._history.inputs(), _rounds(self._history.queries)
        models = self._models
        return CountedRows(
            self._forgetting.keeps(rounds, round_number).nonzero().squeeze(-1).tolist(),
            lambda ids: self._inputs(X[ids], rounds[ids]),
            lambda ids, Y: (
                self._call_factory(X[ids], Y.to(X.device))
                if self._build_rows is None
                else self._build_rows(X[ids], Y.to(X.device), rounds[ids], round_number)
            ),
            self._recipe is not None,
            joins=models is None,
        )

    def _pending(self, round_number: int) -> Tensor | None:
        X = self._history.inputs_to_avoid()
        rounds = _rounds(self._history.queries_to_avoid()).to(X.device)
        kept = self._forgetting.keeps(rounds, round_number)
        X, rounds = X[kept], rounds[kept]
        return self._inputs(X, rounds) if len(X) else None

    def _observed(self, round_number: int) -> tuple[Tensor, Tensor]:
        X, Y, rounds = self._arrived(round_number)
        return self._inputs(X, rounds), Y

    def _inputs(self, X: Tensor, rounds: Tensor) -> Tensor:
        return X if self._models is None else self._models.inputs(X, rounds)


def _rounds(queries: list[Query] | tuple[Query, ...]) -> Tensor:
    return torch.tensor([query.round_number for query in queries], dtype=torch.long)
