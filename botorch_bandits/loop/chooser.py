"""Chooses the points of a loop: everything that is derived from its history and settings."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, BanditAcquisition, RandomSearch
from botorch_bandits.acquisition.arms_player import build_arms_player
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.feedback import Censored, Ignored
from botorch_bandits.history import Failure, History, Outcome, Query
from botorch_bandits.loop.acquisition_source import AcquisitionFactory, AcquisitionSource
from botorch_bandits.loop.arguments import with_feedback
from botorch_bandits.loop.arms_stream import ArmsStream
from botorch_bandits.loop.constrained import at_multipliers, with_constraints
from botorch_bandits.loop.constraint_watch import ConstraintWatch
from botorch_bandits.loop.feasibility import Feasibility, feasibility_of, smallest_lower_bounds
from botorch_bandits.loop.forgetting_source import ForgettingSource, with_forgetting
from botorch_bandits.loop.guarantees import guarantee_of, with_restarts
from botorch_bandits.loop.segments import UNIFORM_ORIGINS, Segments
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.arms_prior import ArmsPrior
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator


class Chooser:
    """Chooses points from settings and a history that grows as the loop goes on.

    It can be thrown away and built again at any time: the next choice is the same.

    Args:
        settings: Of the loop.
        history: What happened so far.

    Attributes:
        segments: Resets and multipliers, if the loop has any.
    """

    def __init__(self, settings: LoopSettings, history: History) -> None:
        """See the class."""
        self._settings, self._history = settings, history
        self._uniform = RandomBlocks([settings.seed], "sample", (), "uniform")
        self._arms_prior: ArmsPrior | None = None
        self.segments: Segments | None = None
        if settings.restart is not None or settings.constraints is not None:
            self.segments = Segments(
                settings.restart,
                settings.domain,
                settings.feedback,
                settings.context_dim,
                settings.constraints,
            )
            self.segments.replay(history)
        self._watch = None if settings.constraints is None else ConstraintWatch(settings)
        self._begin_segment()

    @property
    def current(self) -> History:
        """What was asked and told since the last reset."""
        return self._history if self.segments is None else self.segments.current

    @property
    def rounds_before(self) -> int:
        """How many rounds there were before the last reset."""
        return 0 if self.segments is None else self.segments.first_id

    def choose(
        self, round_number: int, context: Tensor | None, now: float
    ) -> tuple[Tensor, str, dict[str, float]]:
        """Return the point of a round, its origin, and what was known of it.

        Args:
            round_number: One more than the rounds so far.
            context: Of the round, or None.
            now: Clock reading in seconds.
        """
        self.begin_round(round_number)
        if self._watch is not None:
            assert self.segments is not None
            self._watch.look(self.segments, self._history, lambda: self.model(now))
        x, origin, known = self._choose(round_number, context, now)
        rule = self._settings.constraints
        if rule is not None and rule.observes == "lower_bounds" and origin in UNIFORM_ORIGINS:
            known = {**known, **self._lower_bounds(x, round_number, context, now)}
        return x, origin, known if self.segments is None else {**known, **self.segments.describe()}

    def _lower_bounds(
        self, x: Tensor, round_number: int, context: Tensor | None, now: float
    ) -> dict[str, float]:
        """What a rule for every round counts of a point that was drawn uniformly."""
        if self._source.has_no_data() or not isinstance(
            self._settings.acquisition, AcquisitionRecipe
        ):
            return {}
        local_round = self.current.num_queries + 1
        domain = self._domain_in(context, local_round)
        acquisition = self._source.build(local_round, domain, now)
        assert isinstance(acquisition, BanditAcquisition)
        whole = domain.sample(1, generator(0, 0, "columns in front")).squeeze(0)
        whole[-len(x) :] = x  # what stands in front is fixed: the round, the context
        described = acquisition.describe(whole)
        return {k: v for k, v in described.items() if k.startswith("constraint_lower_bound")}

    def add_query(self, query: Query) -> None:
        """Take in a query that was added to the history."""
        if self.segments is not None:
            self.segments.add_query(query)

    def add_outcome(self, outcome: Outcome) -> None:
        """Take in an outcome that was added to the history; a reset may follow."""
        if self.segments is not None and self.segments.add_outcome(outcome) is not None:
            self._begin_segment()
        if self._watch is not None:
            assert self.segments is not None
            self._watch.hear(self.segments, self._history)

    def add_failure(self, failure: Failure) -> None:
        """Take in a failure that was added to the history."""
        if self.segments is not None:
            self.segments.add_failure(failure)

    def latest_fit(self) -> dict[str, Any] | None:
        """Return the hyperparameters of the last refit and which rows it was to; None if none."""
        fit = self._source.latest_fit()
        if fit is None:
            return None
        return {"segment": self.rounds_before, "epoch": self.current.version, **fit}

    def has_no_data(self) -> bool:
        """Return whether a user's model cannot be built yet."""
        return self._source.has_no_data()

    def model(self, now: float) -> Model:
        """Return the model with which the next query would be chosen."""
        return self._source.model(self.current.num_queries + 1, now)

    def feasibility(self, now: float, width: float | None) -> Feasibility:
        """Return what is known of whether the constraints can be met.

        Args:
            now: Clock reading in seconds.
            width: See :func:`~botorch_bandits.loop.feasibility.smallest_lower_bounds`.
        """
        assert self.segments is not None
        assert self.segments.multipliers is not None
        bounds = smallest_lower_bounds(
            self._settings, self.segments, self._history, lambda: self.model(now), width
        )
        return feasibility_of(self.segments.multipliers, self._history, bounds)

    def guarantee(self, now: float, num_given: int) -> Guarantee:
        """Return what the settings promise, as the history so far used them.

        Args:
            now: Clock reading in seconds.
            num_given: How many rounds of the history the loop was given.
        """
        settings = self._settings
        latest = torch.zeros(settings.context_dim, dtype=DTYPE) if settings.context_dim else None
        for query in self._history.queries[-1:]:
            latest = query.context
        next_round = self.current.num_queries + 1
        domain = self._domain_in(latest, next_round)
        acquisition = self._source.build(next_round, domain, now)
        leaves_out = isinstance(settings.feedback, Ignored)
        guarantee = guarantee_of(acquisition, self._history, domain, num_given, leaves_out)
        if settings.forgetting is not None:
            guarantee = with_forgetting(guarantee)
        if settings.constraints is not None:
            played = getattr(settings.acquisition, "acquisition_class", None)
            guarantee = with_constraints(guarantee, settings.constraints, played)
        return guarantee if settings.restart is None else with_restarts(guarantee, settings.restart)

    def _choose(
        self, round_number: int, context: Tensor | None, now: float
    ) -> tuple[Tensor, str, dict[str, float]]:
        settings = self._settings
        local_round = self.current.num_queries + 1
        if local_round <= settings.num_initial:
            return self._sample(round_number), "initial", {}
        if self.segments is not None and self.segments.explores():
            return self._sample(round_number), "exploration", {}
        if isinstance(settings.acquisition, RandomSearch):
            return self._sample(round_number), "random", {}
        if self._source.has_no_data():
            # a user's model cannot be built without data
            return self._sample(round_number), "initial", {}
        if self._stream is not None:
            x, known = self._stream.choose(local_round, now)
            return x, "acquisition", known
        domain = self._domain_in(context, local_round)
        acquisition = self._source.build(local_round, domain, now)
        whole, value = domain.maximize(
            acquisition, seed=derive_seed(settings.seed, round_number, "maximize")
        )
        known = {"acquisition_value": value}
        if isinstance(acquisition, BanditAcquisition):
            known = acquisition.describe(whole)
        return whole[-settings.domain.dim :], "acquisition", known

    def begin_round(self, round_number: int) -> None:
        """Let the last round end; a segment or an epoch may begin."""
        if self.segments is None:
            return
        multipliers = self.segments.multipliers
        num_epochs = 0 if multipliers is None else multipliers.num_epochs
        if self.segments.before_round(round_number):
            self._begin_segment()
        elif multipliers is not None and multipliers.num_epochs != num_epochs:
            played = self._acquisition_now()
            self._source.play(played)
            if self._stream is not None:
                assert isinstance(played, AcquisitionRecipe)
                self._stream.player.rule = played.arms_rule(self._settings.domain)

    def _acquisition_now(self) -> AcquisitionRecipe | RandomSearch | AcquisitionFactory:
        """What is played in this segment and epoch: shares of delta, multipliers."""
        settings = self._settings
        played = with_feedback(settings.acquisition, settings.feedback)
        if not isinstance(played, AcquisitionRecipe) or self.segments is None:
            return played
        if settings.restart is not None:
            share = partial(settings.restart.share_of_delta, segment=self.segments.number)
            played = played.at_share_of_delta(share)
        if self.segments.multipliers is not None:
            played = at_multipliers(played, self.segments.multipliers, settings.horizon)
        return played

    def _begin_segment(self) -> None:
        """Build what depends on the history that counts."""
        settings, played = self._settings, self._acquisition_now()
        is_censored = isinstance(settings.feedback, Censored)  # values are replaced row by row
        is_plain = isinstance(settings.domain, Arms) and settings.context_dim == 0
        parts = (
            settings.model,
            played,
            self.current,
            settings.feedback,
            settings.seed,
            is_plain and not is_censored,  # one row for all observations of an arm
            self.rounds_before,
        )
        self._source = (
            AcquisitionSource(*parts)
            if settings.forgetting is None
            else ForgettingSource(*parts, settings.forgetting)
        )
        self._stream = self._build_stream(played) if is_plain else None

    def _build_stream(
        self, played: AcquisitionRecipe | RandomSearch | AcquisitionFactory
    ) -> ArmsStream | None:
        settings = self._settings
        assert isinstance(settings.domain, Arms)
        if not (
            settings.forgetting is None
            and isinstance(settings.model, BanditGPRecipe)
            and isinstance(played, AcquisitionRecipe)
        ):
            return None
        player = build_arms_player(
            settings.model, played, settings.domain, settings.seed, self._arms_prior
        )
        if player is None:
            return None
        self._arms_prior = player.posterior.prior  # it outlives resets
        return ArmsStream(
            player, settings.domain, self.current, settings.feedback, self.rounds_before
        )

    def _sample(self, round_number: int) -> Tensor:
        domain = self._settings.domain
        if isinstance(domain, Arms):
            # in blocks, as replicates on the same arms draw
            return domain.choices[int(self._uniform.at(round_number) * domain.num_arms)]
        stream = generator(self._settings.seed, round_number, "sample")
        return domain.sample(1, stream).squeeze(0)

    def _domain_in(self, context: Tensor | None, local_round: int) -> Domain:
        domain = self._settings.domain
        if isinstance(self._source, ForgettingSource):
            return self._source.domain_in(domain, context, local_round)
        return domain if context is None else domain.in_context(context)
