"""Chooses the points of a loop: everything that is derived from its history and settings.

What an engine observes is a function of the history alone, operation by operation, so a loop that
is rebuilt from its history plays on to the last bit.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, BanditAcquisition, RandomSearch
from botorch_bandits.acquisition.engines import ArmsEngine, build_arms_engine
from botorch_bandits.acquisition.scores import ArmsRound, ArmsRule, ThompsonArmsRule, WidthArmsRule
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee
from botorch_bandits.confidence.censored import censored_rule
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.feedback import Censored, CensoredQueue, Feedback, Ignored
from botorch_bandits.history import Failure, History, Outcome, Query
from botorch_bandits.loop.builders import (
    AcquisitionBuilder,
    AcquisitionFactory,
    ForgettingBuilder,
    at_multipliers,
    with_constraints,
    with_forgetting,
)
from botorch_bandits.loop.guarantees import (
    ConstraintWatch,
    Feasibility,
    feasibility_of,
    guarantee_of,
    smallest_lower_bounds,
    with_restarts,
    with_retractions,
)
from botorch_bandits.loop.settings import LoopSettings, with_feedback
from botorch_bandits.loop.state import UNIFORM_ORIGINS, Multipliers, Segments
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.arms import ArmsPosterior, ArmsPrior
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator


class ArmsStream:
    """One stream of rounds on arms.

    Args:
        engine: Chooses and observes.
        domain: The arms.
        history: What happened; it grows as the loop goes on.
        feedback: What is made of pending queries.
        rounds_before: How many rounds were asked before this history.

    Raises:
        ValueError: If feedback is censored and the engine's rule has no width for that.
    """

    def __init__(
        self,
        engine: ArmsEngine,
        domain: Arms,
        history: History,
        feedback: Feedback,
        rounds_before: int = 0,
    ) -> None:
        """See the class."""
        self.engine, self._rule = engine, engine.rule
        self._rounds_before = rounds_before
        self._domain, self._history, self._feedback = domain, history, feedback
        self._num_outcomes = 0  # that the engine has seen
        self._version = history.first_version
        self._arms: list[int] = []  # of each query, as far as they were needed
        if isinstance(feedback, Censored):
            rule = self._rule
            assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
            self._censored_width = censored_rule(rule.rule, feedback.outcome_bound)
            self._queue = CensoredQueue(feedback, history)
            self._num_seen = 0  # queries that the engine has a row of
            self._num_censored: dict[int, int] = {}  # rows at the pseudo-value, by arm
            self._minimum = engine.prior_mean if feedback.minimum is None else feedback.minimum
            self._observed: ArmsPosterior | None = None
            if feedback.minimum is None:  # the proxy is of what arrived in time, alone
                self._observed = ArmsPosterior(engine.posterior.prior, engine.posterior.lam)

    def play(self, rule: ArmsRule | None) -> None:
        """Choose by another rule from now on, as at the end of an epoch.

        Args:
            rule: Scores the arms, from the same posterior.
        """
        self._rule = rule

    def choose(self, round_number: int, now: float) -> tuple[Tensor, dict[str, float]]:
        """Return the point to query, and its diagnostics.

        Args:
            round_number: From 1.
            now: Clock time in seconds.
        """
        self.catch_up()
        if not isinstance(self._feedback, Censored):
            pending = None
            if self._history.num_pending and not isinstance(self._feedback, Ignored):
                ids = [query.id for query in self._history.pending()]
                pending = torch.tensor([self._arms[i] for i in ids], device=self._device)
            seen = self._look(round_number, self._rule, pending)
            arm = self.engine.choose(seen)
            described = self.engine.describe(seen, arm)
        else:
            arm, described = self._choose_censored(self._feedback, round_number, now)
        return self._domain.choices[arm], described

    def _look(
        self, round_number: int, rule: ArmsRule | None, pending: Tensor | None = None
    ) -> ArmsRound:
        # random numbers go on where widths begin anew
        return self.engine.look(round_number, pending, self._rounds_before + round_number, rule)

    def catch_up(self) -> None:
        """Let the engine observe what happened since it last looked."""
        new = [query.x for query in self._history.queries_since(len(self._arms))]
        if new:
            self._arms += self._domain.index_of(torch.stack(new)).tolist()
        if isinstance(self._feedback, Censored):
            self._catch_up_censored(self._feedback)
            return
        outcomes = self._history.outcomes_since(self._num_outcomes)
        if self._history.version != self._version:
            # what came before the labels changed, then the change, as a live stream has it
            self._version, last_round = self._history.version, self._history.changed_after
            num_before = sum(outcome.arrived_round <= last_round for outcome in outcomes)
            self._observe(outcomes[:num_before])
            self._relabel_all()
            outcomes = outcomes[num_before:]
        self._observe(outcomes)

    def _observe(self, outcomes: list[Outcome]) -> None:
        if outcomes:
            arms = [self._arms[outcome.query_id] for outcome in outcomes]
            self.engine.observe_many(arms, [outcome.reward for outcome in outcomes])
            self._num_outcomes += len(outcomes)

    def _relabel_all(self) -> None:
        """Give the outcomes that the engine has seen the values with which they are read now."""
        seen = self._history.outcomes_since(0)[: self._num_outcomes]
        arms = [self._arms[outcome.query_id] for outcome in seen]
        self.engine.relabel(arms, [outcome.reward for outcome in seen])

    @property
    def _device(self) -> torch.device:
        return self._domain.choices.device

    def _catch_up_censored(self, feedback: Censored) -> None:
        """Round by round: the query of the round, then the outcomes that arrived behind it."""
        history = self._history
        outcomes = history.outcomes_since(self._num_outcomes)
        position = 0
        for query in history.queries_since(self._num_seen):
            # outcomes told since the engine looked, but before this query was asked
            position = self._hear(feedback, outcomes, position, before=query.round_number)
            self._take_proxy(feedback)
            arm = self._arms[query.id]
            self.engine.observe(arm, self._minimum)
            self._num_censored[arm] = self._num_censored.get(arm, 0) + 1
            self._num_seen += 1
        self._num_outcomes += self._hear(feedback, outcomes, position, history.num_queries + 1)

    def _hear(self, feedback: Censored, outcomes: list[Outcome], position: int, before: int) -> int:
        """Replace pseudo-values by outcomes that arrived before a round; return how many."""
        offset = self.engine.prior_mean
        while position < len(outcomes) and outcomes[position].arrived_round < before:
            outcome = outcomes[position]
            position += 1
            if self._observed is None and outcome.reward < self._minimum:
                self._relabel(outcome.reward)
            if feedback.is_late(self._history.query(outcome.query_id), outcome):
                continue
            arm = self._arms[outcome.query_id]
            self._num_censored[arm] -= 1
            value = outcome.reward - offset
            if outcome.reward != self._minimum:
                self.engine.posterior.change_outcome(arm, self._minimum - offset, value)
            if self._observed is not None:
                self._observed.observe(arm, value)
        return position

    def _take_proxy(self, feedback: Censored) -> None:
        """Where the minimum is unknown: the least lower bound at arms with outcomes, if any."""
        if self._observed is None:
            return
        assert feedback.minimum_proxy is not None
        lower = self._observed.mean - feedback.minimum_proxy * self._observed.standard_deviation
        known = self._observed.counts > 0
        if not bool(known.any()):
            known[[arm for arm, count in self._num_censored.items() if count > 0]] = True
        if bool(known.any()):
            self._relabel(float(lower[known].min()) + self.engine.prior_mean)

    def _relabel(self, minimum: float) -> None:
        """Give all censored rows another pseudo-value; the cost does not grow with their number."""
        middle = 0.5 * (minimum + self._minimum) - self.engine.prior_mean
        half = 0.5 * (minimum - self._minimum)
        if half != 0.0:
            for arm, count in self._num_censored.items():
                if count > 0:  # ``count`` changes of an arm at once: of its sum and sum of squares
                    self.engine.posterior.change_outcome(
                        arm, middle - count * half, middle + count * half
                    )
        self._minimum = minimum

    def _choose_censored(
        self, feedback: Censored, round_number: int, now: float
    ) -> tuple[Tensor, dict[str, float]]:
        engine, rule = self.engine, self._rule
        assert isinstance(rule, WidthArmsRule | ThompsonArmsRule)
        self._take_proxy(feedback)
        self._queue.update(now)
        pending = self._queue.pending
        ids = feedback.summed(pending, round_number - 1)
        arms = torch.tensor([self._arms[i] for i in ids], dtype=torch.long, device=self._device)
        noise = engine.posterior.regularization if feedback.predictive else 0.0
        deviation = (engine.posterior.variance + noise).sqrt_()
        width = self._censored_width.in_round(deviation[arms].sum(), round_number)
        censored = replace(rule, rule=width)
        if feedback.predictive:
            assert isinstance(censored, WidthArmsRule)
            censored = replace(censored, predictive=True)
        seen = self._look(round_number, censored)
        arm = engine.choose(seen)
        described = engine.describe(seen, arm)
        if feedback.predictive:
            described["standard_deviation"] = float(deviation[arm])
        counts = {"pending": float(len(pending)), "lost": float(self._queue.num_lost)}
        return arm, {**described, **counts}


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
    def multipliers(self) -> Multipliers | None:
        """The multipliers and what they follow from, if there are constraints."""
        return None if self.segments is None else self.segments.multipliers

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
            now: Clock time in seconds.
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

    def check_outcome(self, outcome: Outcome) -> None:
        """Raise if an outcome, penalized with the multipliers, is too large; nothing is changed.

        Args:
            outcome: Of a query that was asked or is about to be recorded.

        Raises:
            ValueError: If it is; see :meth:`.Multipliers.check_outcome`.
        """
        if self.segments is not None:
            self.segments.check_outcome(outcome)

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
            now: Clock time in seconds.
            width: See :func:`~botorch_bandits.loop.guarantees.smallest_lower_bounds`.
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
            now: Clock time in seconds.
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
        if settings.restart is not None:
            guarantee = with_restarts(guarantee, settings.restart)
        return with_retractions(guarantee, self._history)

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
                self._stream.play(played.arms_rule(self._settings.domain))

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
            AcquisitionBuilder(*parts)
            if settings.forgetting is None
            else ForgettingBuilder(*parts, settings.forgetting)
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
        engine = build_arms_engine(
            settings.model, played, settings.domain, settings.seed, self._arms_prior
        )
        if engine is None:
            return None
        self._arms_prior = engine.posterior.prior  # it outlives resets
        return ArmsStream(
            engine, settings.domain, self.current, settings.feedback, self.rounds_before
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
        if isinstance(self._source, ForgettingBuilder):
            return self._source.domain_in(domain, context, local_round)
        return domain if context is None else domain.in_context(context)


fill_in_docstrings(__name__)
