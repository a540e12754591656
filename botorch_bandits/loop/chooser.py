"""Chooses the points of a loop, from its settings and its history alone.

:class:`Chooser` makes the view of each round, and decides who chooses its point: a uniform draw, or
one of the two engines of :mod:`botorch_bandits.loop.chooser`. What they see is a function of the
history, so that a loop that is rebuilt from its history makes the same choices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, PosteriorMean
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import GPThompsonSampling
from botorch_bandits.acquisition.base import bandit
from botorch_bandits.acquisition.lagrangian import LagrangianAcquisition
from botorch_bandits.acquisition.rules import (
    ImprovementArmsRule,
    ListArmsRule,
    Player,
    RandomizedArmsRule,
    Seen,
    ThompsonArmsRule,
    WidthArmsRule,
    player_of,
)
from botorch_bandits.acquisition.upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.change_points import Reset
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import Guarantee, WidthRule
from botorch_bandits.confidence.candidates import LEVEL_OF_SURVIVORS
from botorch_bandits.confidence.prior_reading import read_prior
from botorch_bandits.confidence.repeats import (
    most_choices,
    num_plays,
    num_plays_of_ratio,
)
from botorch_bandits.core.kernels import kernel_of_output
from botorch_bandits.core.posterior import Rows
from botorch_bandits.core.priors import Prior
from botorch_bandits.default_search import (
    EVEN,
    NOISE_TO_REPEAT,
    Taken,
    gains_little,
    is_beside_played,
    learned_noise,
    others,
    say_once,
    tells_nothing,
    untaken,
)
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.history import Growing, History, Outcome, Query, flipped_diagnostics
from botorch_bandits.loop.aspects import (
    NOTHING_DECIDED,
    ConstraintWatch,
    Decided,
    Feasibility,
    Multipliers,
    Restarts,
    feasibility_of,
    smallest_lower_bounds,
    with_feedback,
)
from botorch_bandits.loop.guarantees import (
    Gains,
    facts_of,
    forecasts_of,
    forecasts_of_restarts,
    guarantee_of,
    other_epochs,
)
from botorch_bandits.loop.settings import (
    LoopSettings,
    Restriction,
    forgetful_recipe,
    model_of,
    settings_in_epoch,
)
from botorch_bandits.loop.view import Aspect, CensoredView, Censors, Feedback, View
from botorch_bandits.models import CandidatesModel, condition, winsorized
from botorch_bandits.models.bandit_gp import ModelBuilder
from botorch_bandits.models.fitted import LearnedGP
from botorch_bandits.models.reading import (
    moments_of_outputs,
    observed_inputs,
    prior_means,
    submodels,
)
from botorch_bandits.random_streams import RandomBlocks, derive_seed, generator, seeded_globally

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
        decided: The resets on record.

    Attributes:
        restarts: Where the loop starts over, if it does.
        multipliers: The multipliers and their state, if there are constraints.
        segments: The one of the two whose ``first`` is the id of the first query that counts, since
            the last reset or fresh epoch.
    """

    def __init__(
        self, settings: LoopSettings, history: History, decided: Decided = NOTHING_DECIDED
    ) -> None:
        """See the class."""
        self._minimizes, self._is_random = not settings.maximize, settings.is_random
        self._has_time = settings.drift_rate is not None
        self._searches_for = settings.default_search
        self._given, self._settings = settings, settings_in_epoch(settings)
        self._models_differ = bool(settings.models_of_epochs)
        settings = self._settings
        self._history = history
        self._uniform = RandomBlocks([settings.seed], "sample", (), "uniform")
        self._priors: tuple[Prior, ...] = ()  # kept after resets
        self._gains: dict[Any, Gains | None] = {}
        self._played = with_feedback(settings.played, settings.feedback)
        self.restarts = Restarts(settings, history, decided)
        self.multipliers: Multipliers | None = None
        self._watch: ConstraintWatch | None = None
        self._censors: Censors | None = None
        self._aspects: list[Aspect] = []  # in the order in which they see a view
        if settings.restart is not None:
            self._aspects.append(self.restarts)
        if settings.constraints is not None:
            self.multipliers = Multipliers(settings, history)
            self._watch = ConstraintWatch(settings, history, self.multipliers)
            self._aspects += [self.multipliers, self._watch]
        self.segments: Aspect = self.multipliers or self.restarts
        if settings.forgetting is not None:
            self._aspects.append(settings.forgetting)
        if settings.feedback.censored is not None:
            self._censors = Censors(settings, history, self._moments)
            self._aspects.append(self._censors)
        self._begun_round, self._segment = 0, (-1, 0, False)
        self._steady: ModelEngine | None = None
        self._built: tuple[ArmsEngine | ModelEngine, ModelEngine]
        self.hear(history.in_order())

    @property
    def _place(self) -> tuple[int, int]:
        """The segment and the epoch in which hyperparameters are fitted."""
        multipliers = self.multipliers
        is_penalized = multipliers is not None and multipliers.is_penalized
        epoch = multipliers.num_epochs if multipliers and is_penalized else 0
        return self.segments.first, epoch

    def _engines(self) -> tuple[ArmsEngine | ModelEngine, ModelEngine]:
        """Return what plays, which may be arms without a model, and what builds models.

        Both are built anew if a segment, an epoch with its own model, or weighting has begun.
        """
        differ, multipliers = self._models_differ, self.multipliers
        epoch = multipliers.num_epochs if multipliers is not None and differ else 0
        segment = self.segments.first, epoch, self._history.num_weighted > 0
        if segment != self._segment:
            self._segment = segment
            if differ and multipliers is not None:
                self._settings = settings_in_epoch(self._given, multipliers.epoch)
                self._priors = ()
            arms, models = self._new_arms(), ModelEngine(self._settings)
            self._built = models if arms is None else arms, models
            self._steady = None
        return self._built

    def _moments(self, view: View, ids: Tensor) -> tuple[Tensor, Tensor]:
        return self._engines()[0].moments(view, ids)

    def arrived(
        self,
        now: float,
        context: Tensor | None = None,
        aspects: Sequence[Aspect] | None = None,
    ) -> View:
        """Return the view of the outcomes that count in the next round, without pseudo-values.

        Args:
            now: The time in seconds.
            context: The context of the round, or None.
            aspects: The features that change it; all if omitted.
        """
        history, settings = self._history, self._settings
        pending = () if settings.feedback.ignores_pending else history.pending_or_avoided()
        ids, Y = history.told()
        if self._minimizes:
            Y = torch.cat([0.0 - Y[:, :1], Y[:, 1:]], dim=-1)  # 0 stays 0
        num_queries = history.num_queries
        view = View(
            history=history,
            round_number=num_queries + 1,
            now=now,
            context=context,
            first=0,
            asked=torch.arange(num_queries),
            pending=torch.tensor(pending, dtype=torch.long),
            ids=ids,
            Y=Y,
            weight=history.weights(settings.noise) if history.num_weighted else None,
            recipe=self._played,
            censored=settings.feedback.censored,
            has_time=self._has_time,
        )
        for aspect in self._aspects if aspects is None else aspects:
            view = view if aspect is self._censors else aspect.see(view)
        return view

    def since_reset(self, now: float) -> View:
        """Return the view of all outcomes since the last reset, as they were told.

        Args:
            now: The time in seconds.
        """
        return self.arrived(now, aspects=(self.restarts,))

    def view(self, now: float, context: Tensor | None = None) -> View:
        """Return the view of the next round; see :meth:`arrived` for the arguments."""
        view = self.arrived(now, context)
        return view if self._censors is None else self._censors.see(view)

    def choose(
        self, context: Tensor | None, now: float, limits: Restriction | None = None
    ) -> tuple[Tensor, str, dict[str, float]]:
        """Return the point of the next round, its origin and its diagnostics.

        Args:
            context: The context of the round, or None without contexts.
            now: The time in seconds.
            limits: The restriction of the round; None for the whole domain.
        """
        if self._aspects:
            self._begin_round(self._history.num_queries + 1)
        if self._watch is not None:
            self._watch.look(partial(self._smallest_bounds, now))
        view, rule = self.arrived(now, context), self._settings.constraints
        origin = self._origin_of_draw(view)
        diagnostics: dict[str, float] = {}
        if origin is None:
            x, origin, diagnostics = self._play(view, limits)
        else:
            x = self._sample(view.round_number, limits)
            if self._searches_for == "best":
                x = self._untaken(x, view, limits)
            if rule is not None and rule.observes == "lower_bounds":
                diagnostics = self._lower_bounds(x, view)
        for aspect in self._aspects:
            diagnostics = {**diagnostics, **aspect.describe()}
        return x, origin, flipped_diagnostics(diagnostics) if self._minimizes else diagnostics

    def _play(self, view: View, limits: Restriction | None) -> tuple[Tensor, str, dict[str, float]]:
        """Return the point that the acquisition function chooses, or chose before."""
        settings = self._settings
        repeats = settings.repeats is not None and limits is None
        if repeats and (again := next_play(view)) is not None:
            return again
        view = view if self._censors is None else self._censors.see(view)
        if self._searches_for is not None:
            return self._search(self._raised(view), limits)
        x, diagnostics, ratio = self._engines()[0].choose(view, limits, repeats)
        if view.widening is not None:
            diagnostics = {**diagnostics, **view.widening.counts}
        if repeats:
            diagnostics = with_plays(diagnostics, settings, ratio)
        return x, CHOSEN, diagnostics

    def _search(
        self, view: View, limits: Restriction | None
    ) -> tuple[Tensor, str, dict[str, float]]:
        """Return the point of a search with the default model; see :mod:`.default_search`."""
        settings, round_number = self._settings, view.round_number
        earns, models = self._searches_for == "earned", self._engines()[1]
        model = default_model(models.model(view))
        covers = known_nothing = tells_nothing(model, round_number, only_if_equal=earns)
        if not covers:
            taken = None if earns else self._taken(view, learned_noise(model) < NOISE_TO_REPEAT)
            x, diagnostics, _ = models.choose(view, limits, False, taken)
            if not earns and is_beside_played(model, x):
                if self._steady is None and settings.learned is not None:
                    self._steady = ModelEngine(replace(settings, model=settings.learned.steady()))
                assert self._steady is not None
                x, diagnostics, _ = self._steady.choose(view, limits, False, taken)
                model = default_model(self._steady.model(view))
            value = diagnostics["acquisition_value"]
            covers = not earns and gains_little(model, value, round_number)
        if not covers:
            return x, CHOSEN, diagnostics
        if known_nothing:
            queries = self._history.queries
            say_once(sum(query.origin == EVEN for query in queries), len(view.ids))
        domain = settings.domain if limits is None else limits.domain
        x = domain.even_point(round_number, settings.seed)
        return self._untaken(x, view, limits), EVEN, {}

    def _taken(self, view: View, is_once: bool = True) -> Taken:
        """Return the points that are pending and, if each is asked for once, those played."""
        return Taken(view.inputs(view.pending), view.inputs(view.ids if is_once else view.ids[:0]))

    def _untaken(self, x: Tensor, view: View, limits: Restriction | None) -> Tensor:
        """Return a draw, or another one if it is pending or was played."""
        domain = self._settings.domain if limits is None else limits.domain
        seed = derive_seed(self._settings.seed, view.round_number, "untaken")
        return untaken(domain, x, self._taken(view), seed)

    def _raised(self, view: View) -> View:
        """Return the view with the outcomes with which points are chosen."""
        if self._searches_for != "best" or not len(view.ids):
            return view
        return replace(view, Y=winsorized(view.Y))

    def _lower_bounds(self, x: Tensor, view: View) -> dict[str, float]:
        """Return the lower bounds of a uniformly drawn point that a rule for every round uses."""
        if self.has_no_data(view) or view.recipe is None:
            return {}
        view = view if self._censors is None else self._censors.see(view)
        described = self._engines()[0].describe(x, view)
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
        for aspect in self._aspects:
            aspect.check_outcome(outcome.flipped() if self._minimizes else outcome)

    def hear(self, entries: Iterable[Any]) -> None:
        """Process queries and events that were added to the history; resets may follow.

        Args:
            entries: Queries, outcomes and failures in order; a retraction changes what was
                processed before.
        """
        for entry in entries if self._aspects else ():
            if entry.state == Query.state:
                self._begin_round(entry.round_number)  # unless it was chosen here
                for aspect in self._aspects:
                    aspect.asked(entry)
            elif entry.state == Outcome.state:
                told = entry.flipped() if self._minimizes else entry
                for reset in [aspect.told(told) for aspect in self._aspects]:
                    self._reset(reset)
            else:
                for aspect in self._aspects:
                    aspect.failed(entry)

    def _begin_round(self, round_number: int) -> None:
        """End the last round; a choice that failed may be made again in the same round."""
        if round_number == self._begun_round:
            return
        self._begun_round = round_number
        for aspect in self._aspects:
            self._reset(aspect.begin(round_number))

    def _reset(self, reset: Reset | None) -> None:
        if reset is not None:
            for aspect in self._aspects:
                aspect.reset(reset)

    def latest_fit(self) -> dict[str, Any] | None:
        """Return the hyperparameters of the last refit and its rows; None if there was none."""
        fit = self._engines()[0].latest_fit()
        if fit is None:
            return None
        segment, epoch = self._place
        return {"segment": segment, "epoch": epoch, **fit}

    def restore_fit(self, fit: Mapping[str, Any]) -> None:
        """Continue from hyperparameters on record, which then need not be fitted again.

        Args:
            fit: From :meth:`latest_fit`, perhaps of another process.
        """
        if self._censors is not None or fit == self.latest_fit():
            return
        if (fit["segment"], fit["epoch"]) == self._place:
            self._engines()[0].restore_fit(fit, self.arrived(0.0))

    def delta_now(self, default: float) -> float:
        """Return the failure probability of what is played now, or the default if it has none."""
        recipe = self.arrived(0.0).recipe
        options = {} if recipe is None else recipe.options
        return float(options.get("delta", default))

    def has_no_data(self, view: View | None = None) -> bool:
        """Return whether a user's model cannot be built yet.

        Args:
            view: The result of :meth:`arrived`, if it is known.
        """
        view = self.arrived(0.0) if view is None else view
        view = view if self._censors is None else self._censors.in_time(view)
        if len(view.ids):
            return False
        settings = self._settings
        has_prior = settings.recipe is not None or settings.forgetting is None
        if settings.priors and has_prior:
            return False
        engine, models = self._engines()
        return engine is models

    def check_data(self) -> None:
        """Raise an error if a user's model cannot be built yet."""
        if self.has_no_data():
            raise RuntimeError(
                "no outcome has arrived, so the model cannot be built. Tell the first outcome with "
                "loop.tell(query.id, reward)."
            )

    def feedback_view(self, now: float) -> CensoredView | None:
        """Return what censored feedback sees of the queries so far; None without it.

        Args:
            now: The time in seconds.
        """
        return None if self._censors is None else self._censors.report(self.arrived(now))

    def model(self, now: float) -> Model:
        """Return the model of the outcomes as observed.

        Raises:
            RuntimeError: If a user's model lacks data.
        """
        self.check_data()
        return self._engines()[1].model(self.view(now))

    def model_of_search(self, now: float) -> Model:
        """Return the model with which the next point is chosen; see :func:`.winsorized`.

        Args:
            now: The time in seconds.
        """
        return self._engines()[1].model(self._raised(self.view(now)))

    def constraint_model(self, constraint: int, now: float) -> Model:
        """Return the model of minus a constraint's values since the last reset.

        With separate surrogates, it is the loop's model of reward and constraints.

        Args:
            constraint: The index of the constraint.
            now: The time in seconds.
        """
        assert self.multipliers is not None
        if not self.multipliers.is_penalized:
            return self.model(now)
        view, forgetting = self.since_reset(now), self._settings.forgetting
        view = view if forgetting is None else forgetting.see(view)
        values = -view.Y[:, constraint + 1].unsqueeze(-1)
        told = replace(view, Y=values, prior_mean=0.0)
        return self._engines()[1].model(told, f"constraint {constraint + 1}")

    def widened_rules(self, rules: Sequence[WidthRule], now: float) -> Sequence[WidthRule]:
        """Return rules for reward and constraints with the terms of queries pending next round.

        Args:
            rules: One per output, for outcomes without delay.
            now: The time in seconds.
        """
        return self._engines()[1].widened_rules(rules, self.view(now))

    def feasibility(self, now: float, width: float | None) -> Feasibility:
        """Return whether the constraints can be met, according to the data.

        Args:
            now: The time in seconds.
            width: See :func:`~botorch_bandits.loop.aspects.smallest_lower_bounds`.
        """
        assert self.multipliers is not None
        bounds = self._smallest_bounds(now, width)
        return feasibility_of(self.multipliers, self._history, bounds)

    def _smallest_bounds(self, now: float, width: float | None = None) -> Tensor:
        model_of = partial(self.constraint_model, now=now)
        given = (self._settings, self.since_reset(now), self._history, model_of, width)
        return smallest_lower_bounds(*given, lambda rules: self.widened_rules(rules, now))

    def guarantee(self, now: float) -> Guarantee:
        """Return the guarantee of the settings for the history so far.

        Args:
            now: The time in seconds.
        """
        context_dim = self._settings.context_dim
        latest = torch.zeros(context_dim, dtype=DTYPE) if context_dim else None
        for query in self._history.queries[-1:]:
            latest = query.context
        acquisition, domain = self.acquisition_now(latest, now)
        guarantee, history = self.guarantee_of(acquisition, domain), self._history
        settings, constraints = self._settings, self._given.constraints
        told = forecasts_of(guarantee, acquisition, settings, history, self._gains, constraints)
        given = acquisition, settings, self.restarts.resets, history.num_queries
        return replace(guarantee, forecasts=(*told, *forecasts_of_restarts(*given)))

    def acquisition_now(
        self, context: Tensor | None, now: float
    ) -> tuple[AcquisitionFunction, Domain]:
        """Return the acquisition of the next round without pending points, and its domain.

        Args:
            context: The context of the round, or None without contexts.
            now: The time in seconds.
        """
        view, domain = self.view(now, context), self._settings.domain
        domain, view = view.domain_of(domain), replace(view, pending=view.pending[:0])
        return self._engines()[1].acquisition(view, domain), domain

    def guarantee_of(
        self,
        acquisition: AcquisitionFunction,
        domain: Domain,
        of_choices: bool = True,
    ) -> Guarantee:
        """Return the guarantee of an acquisition function in this loop.

        Args:
            acquisition: The acquisition function of :meth:`acquisition_now`.
            domain: The domain that comes with it.
            of_choices: See :func:`.facts_of`.
        """
        settings, history = self._settings, self._history
        starts = [reset.after_round for reset in self.restarts.resets]
        facts = facts_of(settings, history, self.restarts.number, of_choices)
        others = other_epochs(self._given, self.multipliers, domain, facts)
        guarantee = guarantee_of(acquisition, facts, settings, history, domain, starts, others)
        if settings.repeats is not None:
            # a choice that ignores pending queries knows too large a deviation
            is_stale = settings.feedback.ignores_pending and facts.is_late
            keeps_all = settings.forgetting is None and not starts and not is_stale
            guarantee = with_repeats(guarantee, history, settings.repeats, keeps_all)
        return guarantee

    def _origin_of_draw(self, view: View) -> str | None:
        """Return why the point of a round is drawn uniformly; None if it is not."""
        if view.local_round <= self._settings.num_initial:
            return "initial"
        if view.explores:
            return "exploration"
        if self._is_random:
            return "random"
        if self.has_no_data(view):
            return "initial"
        # The model learns nothing from failures, so that it would continue near the last ones.
        fails = self._history.avoided_in_a_row(view.first) >= FAILURES_BEFORE_UNIFORM
        return "initial" if fails else None

    def _new_arms(self) -> ArmsEngine | None:
        settings, rule = self._settings, self._settings.constraints
        played = self.arrived(0.0).recipe
        domain, feedback = settings.domain.arms, settings.feedback
        model = settings.listed if settings.recipe is None else settings.recipe
        if domain is None or model is None or played is None:
            return None
        is_censored, forgetting = feedback.censored is not None, settings.forgetting
        by_row = bool(settings.context_dim or forgetting or (rule and is_censored))
        on_device = domain.choices.device.type != "cpu"
        # of all outcomes: a loop goes on alike when a window or a reset has left one out
        if by_row and (self._history.num_weighted or on_device or settings.recipe is None):
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
        return ArmsEngine(player, arrived, domain)

    def _sample(self, round_number: int, limits: Restriction | None) -> Tensor:
        domain = self._settings.domain if limits is None else limits.domain
        if (choices := domain.choices) is not None:
            # drawn in blocks, as for replicates on the same arms
            return choices[int(self._uniform.at(round_number) * len(choices))]
        stream = generator(self._settings.seed, round_number, "sample")
        return domain.sample(1, stream).squeeze(0)


# --- Rounds that play the point of an earlier choice again, as ``repeats=`` of a loop requests ----
#
# What is still to be played follows from the queries that were asked: the diagnostics of a chosen
# one contain the number of its plays (``plays``), and those of each later one contain its own
# number (``play``) and the round of the choice (``choice_round``). A rebuilt loop therefore
# continues as the original one would have.


CHOSEN, AGAIN = "acquisition", "repeat"
"""The origins of a chosen point and of a point that is played again."""


def with_plays(
    diagnostics: dict[str, float], settings: LoopSettings, noise_ratio: float | None = None
) -> dict[str, float]:
    """Return diagnostics with the number of plays of the point being chosen, if it has one.

    Args:
        diagnostics: The diagnostics of the choice.
        settings: The settings of the loop, of which ``repeats`` is not None.
        noise_ratio: Noise variance over posterior variance, for a list of priors.
    """
    assert settings.repeats is not None
    deviation = diagnostics.get("standard_deviation")
    if noise_ratio is not None:
        plays = num_plays_of_ratio(noise_ratio, settings.repeats)
    elif deviation is None or settings.recipe is None:
        return diagnostics
    else:
        plays = num_plays(deviation, settings.recipe.noise, settings.repeats)
    return {**diagnostics, "plays": float(plays)}


def noise_ratio_of(acquisition: Any, x: Tensor) -> float | None:
    """Return the least noise variance over posterior variance among the survivors of a list.

    Args:
        acquisition: The acquisition on the model of the round.
        x: The point that it chose, with the columns in front of it.

    Returns:
        None for a single prior, whose standard deviation is known already.
    """
    model = model_of(acquisition)
    if not isinstance(model, CandidatesModel):
        return None
    level = getattr(getattr(acquisition, "widths", None), "level", LEVEL_OF_SURVIVORS)
    return model.least_noise_ratio(x, model.evidence.in_force(level))


def next_play(view: View) -> tuple[Tensor, str, dict[str, float]] | None:
    """Return the point to play again, its origin and diagnostics; None if one is to be chosen.

    A choice is over after its plays, if the context differs, or if its latest play failed or was
    retracted. Rounds of exploration come in between.

    Args:
        view: The view of the round.
    """
    history, context = view.history, view.context
    recent = map(history.query, range(view.round_number - 2, view.first - 1, -1))
    latest = next((query for query in recent if query.origin in (CHOSEN, AGAIN)), None)
    if latest is None or latest.restriction is not None or "plays" not in latest.diagnostics:
        return None  # the best available point of one round need not be good in another
    known = latest.diagnostics
    play = known.get("play", 1.0) + 1.0
    if play > known["plays"]:
        return None
    if context is not None and (latest.context is None or not torch.equal(latest.context, context)):
        return None
    if history.failure(latest.id) is not None or history.retraction(latest.id) is not None:
        return None
    chosen_in = known.get("choice_round", float(latest.round_number))
    return latest.x, AGAIN, {"play": play, "plays": known["plays"], "choice_round": chosen_in}


def choices_that_end_early(history: History) -> tuple[int, int]:
    """Return how many choices there were, and how many but the last had fewer plays than planned.

    Args:
        history: The history of all rounds.
    """
    planned = played = 0
    num_choices = num_short = 0
    for query in history.queries:
        if query.origin == CHOSEN:
            num_short += played < planned
            num_choices += 1
            planned, played = int(query.diagnostics.get("plays", 1.0)), 1
        elif query.origin == AGAIN:
            played += 1
    return num_choices, num_short


def with_repeats(
    guarantee: Guarantee, history: History, factor: float, keeps_all: bool
) -> Guarantee:
    """Return a guarantee whose constants contain the number of choices and a bound on it.

    Args:
        guarantee: The guarantee of the loop.
        history: The history of all rounds.
        factor: ``repeats`` of the loop.
        keeps_all: Whether each choice knew the rows of all rounds: none was forgotten or ignored.
            Otherwise, and if outcomes are missing or have a different noise, there is no bound.
    """
    num_choices, num_short = choices_that_end_early(history)
    constants = {**guarantee.constants, "repeats": factor, "choices": float(num_choices)}
    gain = guarantee.constants.get("information_gain")
    has_all = history.num_arrived == history.num_queries and not history.num_weighted
    if gain is not None and keeps_all and has_all:
        constants["most_choices"] = most_choices(gain, factor, num_short)
    return replace(guarantee, constants=constants)


# --- The two ways from the rows of a view to a point: arms from their posterior, or a model -------
# On arms, a :class:`~botorch_bandits.acquisition.rules.Player` chooses from the exact posterior
# of all arms, without a BoTorch model. Everywhere else, and where a setting needs a model, the
# model of the view's rows is built, or the last one extended, and an acquisition function on it
# is maximized. Both compare the rows with those of the last round; nothing else is kept between
# rounds.


MOST_ROWS = 20_000
"""From this many distinct rows on, one matrix of an exact model takes 3.2 GB."""


class ArmsEngine:
    """Chooses among arms from their posterior, without a model.

    Attributes:
        player: Who chooses.
    """

    def __init__(
        self,
        player: Player,
        arrived: Player,
        domain: Arms,
    ) -> None:
        """See the class.

        Args:
            player: Who chooses, with one output for the reward, or more for constraints as well.
            arrived: A player of the same priors, which is conditioned on other rows of a round.
            domain: The arms.
        """
        self.player, self._arrived, self._domain = player, arrived, domain
        self._device = domain.choices.device
        self._num_front = player.posterior.prior.num_front
        self._places, self._first = Growing(dtype=int), 0  # of the queries from an id on
        self._place_of: dict[tuple[int, tuple[float, ...]], int] = {}
        self._recipe: Any = None

    def choose(
        self, view: View, limits: Restriction | None, repeats: bool
    ) -> tuple[Tensor, dict[str, float], float | None]:
        """Return the point to query.

        Args:
            view: The view of the round.
            limits: The arms that may be chosen; None for all.
            repeats: Whether the point is played more than once.

        Returns:
            The point, its diagnostics, and, if a list of priors plays it more than once, the least
            ratio of the noise to the posterior variance.
        """
        seen, rule = self._look(view, limits), self.player.rule
        arm, ratio = int(self.player.choose(seen)), None
        if repeats and isinstance(rule, ListArmsRule):
            ratio = rule.least_noise_ratio(seen, arm, LEVEL_OF_SURVIVORS)
        return self._domain.choices[arm], self.player.describe(seen, arm), ratio

    def describe(self, x: Tensor, view: View) -> dict[str, float]:
        """Return the diagnostics of a point that something else chooses.

        Args:
            x: The point.
            view: The view of the round.
        """
        return self.player.describe(self._look(view), self._domain.arm_of(x))

    def latest_fit(self) -> None:
        """Return None: priors are fixed."""

    def restore_fit(self, fit: Mapping[str, Any], view: View) -> None:
        """Do nothing: priors are fixed."""

    def moments(self, view: View, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances at queries given the rows of a view.

        Args:
            view: The view.
            ids: ``k`` ids.

        Returns:
            ``k x m`` each, on the CPU.
        """
        player = self._arrived
        if view.prior_mean is not None:
            player.set_prior_mean(view.prior_mean)
        player.condition(self._rows(view), view.front if self._num_front else None)
        mean, variance = self._moments_of(player, view, ids)
        return mean.cpu(), variance.cpu()

    def _moments_of(self, player: Player, view: View, ids: Tensor) -> tuple[Tensor, Tensor]:
        rows = self._rows(view, ids)
        mean, variance = player.posterior.moments_at(rows.index, rows.front)  # G x m x k, G x k
        groups = list(player.group_of_output)
        mean = mean[groups, range(len(groups))]  # m x k
        return mean.mT, variance[groups].clamp_min(0.0).mT

    def _look(self, view: View, limits: Restriction | None = None) -> Seen:
        """Return what the view's rule sees."""
        if view.recipe is not self._recipe and view.recipe is not None:
            self._recipe = view.recipe
            self.player.rule = view.recipe.arms_rule(self.player.rule_domain)
        if view.prior_mean is not None:
            self.player.set_prior_mean(view.prior_mean)
        front, rule = view.front if self._num_front else None, self.player.rule
        rows: Rows | None = self._rows(view)
        if view.widening is not None:
            assert isinstance(rule, WidthArmsRule)
            assert rows is not None
            posterior, widening = self.player.condition(rows, front), view.widening
            draws = isinstance(rule, ThompsonArmsRule)
            is_predictive = widening.feedback.predictive and not draws
            total, rows = posterior.lam.new_zeros(()), None
            if len(widening.ids):
                _, variance = self._moments_of(self.player, view, widening.ids)
                total = widening.sums(variance + (posterior.lam[0] if is_predictive else 0.0))[0]
            width = widening.rule(rule.rule, total, view.local_round, draws)
            rule = replace(rule, rule=width, predictive=is_predictive)
        pending = self._rows(view, view.pending) if len(view.pending) else None
        among = None if limits is None else limits.among
        given = rows, front, pending, view.round_number, rule, among
        return self.player.look(view.local_round, *given)

    def _rows(self, view: View, ids: Tensor | None = None) -> Rows:
        """Return the rows of a view, or queries as rows without outcomes and with the noise of one.

        Args:
            view: The view.
            ids: The ids of the queries; None for the rows of the view.
        """
        weight = None
        if ids is None:
            view = view if view.fading is None else view.faded()
            ids, Y, weight = view.ids, view.Y, view.weight
        else:
            Y = view.Y.new_zeros(len(ids), self.player.posterior.mean.shape[1])
        noise = view.Y.new_ones(len(ids)) if weight is None else 1.0 / weight
        front = view.inputs(ids)[:, : self._num_front] if self._num_front else None
        index = place = view.history.arms(ids)
        if self.player.numbers_by_row:
            place = self._places_of(view)[ids - view.first]
        if self._device.type != "cpu":
            on_device = (each.to(self._device) for each in (index, Y, noise, place, ids))
            index, Y, noise, place, ids = on_device
        return Rows(index, Y, noise, front, place, ids)

    def _places_of(self, view: View) -> Tensor:
        """Return a number for each query since the view's first one, the same for one place.

        Places are numbered in the order in which they first occur, in which rows have their draws.
        """
        if view.first != self._first:
            self._places, self._first, self._place_of = Growing(dtype=int), view.first, {}
        ids = torch.arange(view.first + len(self._places.values), view.round_number - 1)
        known, arms = self._place_of, view.history.arms(ids).tolist()
        keys = zip(arms, view.inputs(ids)[:, : self._num_front].tolist(), strict=True)
        self._places.append(
            [known.setdefault((arm, tuple(front)), len(known)) for arm, front in keys]
        )
        return self._places.values


def plays_by_row(player: Player, feedback: Feedback) -> bool:
    """Return whether a rule can be played on rows behind fronts, or that leave or fade.

    Args:
        player: The player.
        feedback: How pending queries are treated.
    """
    rule, censored = player.rule, feedback.censored
    if isinstance(rule, ImprovementArmsRule):  # it improves on the means of rows, not of arms
        return player.posterior.prior.num_front == 0 and censored is None
    if censored is None:
        return True
    has_width = type(rule) in (WidthArmsRule, RandomizedArmsRule, ThompsonArmsRule)
    is_predictive = censored.predictive and not isinstance(rule, ThompsonArmsRule)
    return has_width and censored.minimum is not None and not is_predictive


# --- models ---------------------------------------------------------------------------------------


class ModelEngine:
    """Builds the model of a view's rows, and acquisition functions on it.

    Args:
        settings: The settings of the loop.
    """

    def __init__(self, settings: LoopSettings) -> None:
        """See the class."""
        self._settings, self._recipe = settings, settings.recipe
        self._is_exact = bool(settings.priors) or settings.learned is not None
        self._kept: dict[str, tuple[View, Model]] = {}  # the last model of each use, and its rows
        self._builders: dict[str, tuple[float | None, Callable[..., Any]]] = {}
        self._next_count = MOST_ROWS  # the number of outcomes at which rows are counted next

    def choose(
        self,
        view: View,
        limits: Restriction | None,
        repeats: bool,
        taken: Taken | None = None,
    ) -> tuple[Tensor, dict[str, float], float | None]:
        """Return the point that maximizes the acquisition function; see :class:`ArmsEngine`.

        Args:
            view: The view of the round.
            limits: The points that may be chosen; None for all.
            repeats: Whether the point is played more than once.
            taken: Points that are not chosen while others remain, or None.
        """
        settings = self._settings
        domain = there = view.domain_of(settings.domain)
        seed, incumbent = derive_seed(settings.seed, view.round_number, "maximize"), None
        if limits is not None:
            there = view.domain_of(limits.domain)
            options = settings.complete_options
            if options.get("incumbent") == "posterior_mean":
                mean = PosteriorMean(self.model(view), maximize=options["maximize"])
                incumbent, _ = there.maximize(mean, seed)  # the best of what can be chosen
        acquisition = self.acquisition(view, domain, incumbent)
        whole, value = maximize_checked(there, acquisition, seed)
        if taken is not None and taken.among(whole):
            whole, value = maximize_checked(others(there, whole, taken, seed), acquisition, seed)
        known = bandit(acquisition)
        ratio = noise_ratio_of(acquisition, whole) if repeats else None
        diagnostics = {"acquisition_value": value} if known is None else known.describe(whole)
        return whole[-settings.domain.dim :], diagnostics, ratio

    def describe(self, x: Tensor, view: View) -> dict[str, float]:
        """Return the diagnostics of a point that something else chooses.

        Args:
            x: The point.
            view: The view of the round.
        """
        acquisition = bandit(self.acquisition(view, view.domain_of(self._settings.domain)))
        assert acquisition is not None
        return acquisition.describe(torch.cat([view.front.to(x), x]))

    def model(self, view: View, use: str = "choice") -> Model:
        """Return the model of the rows of a view.

        Args:
            view: The view.
            use: Models of each use are extended when rows are added.
        """
        rows = view.faded()
        kept = self._kept.get(use)
        if kept is None or not rows.has_rows_of(kept[0]):
            self._kept.pop(use, None)  # keeps one model in memory
            kept = self._kept[use] = rows, self._build(rows, use)
        for each in submodels(kept[1]):
            if view.fading is not None and view.weight is None:
                each.num_outcomes = None  # they count in proportion to their weights
            if view.has_time:
                each.current_round = view.local_round  # where figures evaluate it
        return kept[1]

    def moments(
        self, view: View, ids: Tensor, use: str = "arrived", predictive: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances at queries; of the mixture for an ensemble.

        Args:
            view: The view whose rows are known.
            ids: ``k`` ids.
            use: See :meth:`model`.
            predictive: Whether variances include the noise.

        Returns:
            ``k x m`` each.
        """
        X, model = view.inputs(ids), self.model(view, use)
        each = moments_of_outputs(model, X.unsqueeze(-2), predictive)  # k x members? x 1 x m
        mean, deviation = (part.reshape(len(ids), -1, part.shape[-1]) for part in each)
        center = mean.mean(1, keepdim=True)
        variance = (deviation.square() + (mean - center).square()).mean(1)
        return center.squeeze(1).cpu(), variance.cpu()

    def acquisition(
        self, view: View, domain: Domain, incumbent: Tensor | None = None
    ) -> AcquisitionFunction:
        """Return the acquisition function of a round.

        Args:
            view: The view of the round.
            domain: The domain of the model's inputs on which it will be maximized.
            incumbent: The point to improve upon, if it is not the best observed one.
        """
        model = self.model(view)
        seed = derive_seed(self._settings.seed, view.round_number, "acquisition")
        X_pending = view.inputs(view.pending) if len(view.pending) else None
        if view.recipe is None:
            make: Any = self._settings.acquisition
            best = float(view.Y[:, 0].max()) if len(view.Y) else None  # as best_f of BoTorch
            with seeded_globally(seed):
                built: AcquisitionFunction = make(model, X_pending, best)
                return built
        given: dict[str, Any] = {"round_number": view.local_round, "seed": seed}
        if view.widening is None:
            merges = self._recipe is not None or self._settings.learned is not None
            X = observed_inputs(model) if merges else None
            X = X if incumbent is None else incumbent.unsqueeze(0)
            X = view.inputs(view.ids) if X is None else X
            given |= {"X_pending": X_pending, "X_observed": X, "Y_observed": view.Y.to(X.device)}
        acquisition = view.recipe.build(model, domain, **given)
        return acquisition if view.widening is None else self._widened(acquisition, view)

    def widened_rules(self, rules: Sequence[WidthRule], view: View) -> Sequence[WidthRule]:
        """Return the rules of reward and constraints with the terms of queries waited for.

        Args:
            rules: One per output, for outcomes without delay.
            view: The view of the round.
        """
        if view.widening is None:
            return rules
        model = self.model(view)

        def unit(output: int) -> float:
            return float(read_prior(model)[output].standard_deviation)

        totals = self._totals(view, len(rules), predictive=view.widening.feedback.predictive)
        return view.widening.rules(rules, totals, view.local_round, unit)

    def latest_fit(self) -> dict[str, Any] | None:
        """Return a recipe's hyperparameters and the rows they were fitted to; None if never."""
        known = self._builders.get("choice")
        return None if known is None else fit_of(known[1])

    def restore_fit(self, fit: Mapping[str, Any], view: View) -> None:
        """Continue from a recorded fit if its rows are the first outcomes that arrived.

        Args:
            fit: The result of :meth:`latest_fit`.
            view: The view of the outcomes that arrived.
        """
        if self._recipe is None:
            return
        builder = self._builder_of(view, "choice")
        if isinstance(builder, ModelBuilder):
            builder.restore_fit(fit, view.inputs(view.ids), view.Y)

    def _widened(self, acquisition: AcquisitionFunction, view: View) -> AcquisitionFunction:
        """Give an acquisition function the width of censored feedback, and return it."""
        assert view.widening is not None
        if isinstance(acquisition, LagrangianAcquisition):
            acquisition.set_rules(self.widened_rules(acquisition.width_rules, view))
            return acquisition
        assert isinstance(acquisition, GPThompsonSampling | WidthUpperConfidenceBound)
        draws = isinstance(acquisition, GPThompsonSampling)
        predictive = view.widening.feedback.predictive
        total = self._totals(view, 1, predictive=predictive)[0]
        model = self.model(view)
        given = (total, view.local_round, draws, lambda: prior_means(model))
        rule = view.widening.rule(acquisition.rule, *given)
        if isinstance(acquisition, GPThompsonSampling):
            acquisition.set_rule(rule)
        else:
            acquisition.set_rule(rule, predictive)
        return acquisition

    def _totals(self, view: View, num_outputs: int, predictive: bool) -> Tensor:
        """Return the sums of deviations at queries that are waited for, one for each output."""
        assert view.widening is not None
        if not len(view.widening.ids):
            return torch.zeros(num_outputs, dtype=DTYPE)
        _, variance = self.moments(view, view.widening.ids, "choice", predictive)
        return view.widening.sums(variance)

    def _build(self, view: View, use: str) -> Model:
        """Return the model of the rows, and of those that join it without being fitted."""
        if view.num_joined:
            n = len(view.ids) - view.num_joined
            weight = None if view.weight is None else view.weight[:n]
            ids, Y = view.ids[:n], view.Y[:n]
            known = replace(view, ids=ids, Y=Y, weight=weight, num_joined=0)
            X = view.inputs(view.ids[n:])
            return condition(self.model(known, "arrived"), X, view.Y[n:].to(X.device))
        X = view.inputs(view.ids)
        self._check_num_rows(X)
        weights = [] if view.weight is None else [view.weight.to(X.device)]
        built: Model = self._builder_of(view, use)(X, view.Y.to(X.device), *weights)
        return built

    def _builder_of(self, view: View, use: str) -> Callable[..., Any]:
        known = self._builders.get(use)
        if known is None or known[0] != view.prior_mean:
            known = self._builders[use] = view.prior_mean, self._new_builder(view)
        return known[1]

    def _new_builder(self, view: View) -> Callable[..., Any]:
        settings, recipe = self._settings, self._recipe
        if settings.listed is not None:
            return settings.listed.builder()
        if recipe is None:
            return lambda X, *rest: self._call_factory(view.first, X, *rest)
        if view.prior_mean is not None:
            recipe = replace(recipe, prior_mean=view.prior_mean)
        if settings.forgetting is not None:
            recipe = forgetful_recipe(recipe, settings.forgetting)
        if settings.feedback.censored is None:
            # pseudo-values are replaced row by row
            return recipe.builder(settings.seed, True)
        num_outputs = view.Y.shape[1]
        if num_outputs == 1:
            return recipe.builder(settings.seed, False)
        means = [recipe.prior_mean, *[0.0] * (num_outputs - 1)]  # 0 for constraints
        builders = [
            replace(recipe, kernel=kernel_of_output(recipe.kernel, j), prior_mean=mean).builder(
                settings.seed, False
            )
            for j, mean in enumerate(means)
        ]
        return lambda X, Y, *rest: ModelListGP(
            *(build(X, y, *rest) for build, y in zip(builders, Y.split(1, dim=-1), strict=True))
        )

    def _call_factory(self, first: int, X: Tensor, Y: Tensor, *weights: Tensor) -> Model:
        make: Any = self._settings.model
        # a fit by a user's function may draw from the global generator
        with seeded_globally(derive_seed(self._settings.seed, first + len(X), "model")):
            return make(X, Y, *weights)

    def _check_num_rows(self, X: Tensor) -> None:
        """Raise an error before an exact model is built of too many distinct rows.

        Args:
            X: ``n x d`` inputs of the model.

        Raises:
            ValueError: If at least ``MOST_ROWS`` of them are distinct.
        """
        if len(X) < self._next_count or not self._is_exact:
            return  # a user's function may build a sparse model
        num_distinct = len(X.unique(dim=0))
        # an outcome adds at most one row, so that no earlier one can reach the limit
        self._next_count = len(X) + MOST_ROWS - num_distinct
        if num_distinct >= MOST_ROWS:
            raise ValueError(
                f"the outcomes are at {num_distinct} distinct points, but an exact model, such as "
                f"that of model={type(self._settings.model).__name__}, takes fewer than "
                f"{MOST_ROWS} rows. Pass as model= a function of (X, Y) that returns a sparse "
                "model, such as botorch.models.SingleTaskVariationalGP with its "
                "gpytorch.models.ApproximateGP, and attach the outcomes to that loop; or forget "
                "rows with forgetting=SlidingWindow(...)."
            )


def default_model(model: Model) -> LearnedGP:
    """Return the model of the reward that a default search fits."""
    (learned,) = submodels(model)
    assert isinstance(learned, LearnedGP)
    return learned


def fit_of(builder: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the latest fit of a builder; None if it fits nothing."""
    return builder.latest_fit() if isinstance(builder, ModelBuilder) else None


# --- The search for the point of a round ----------------------------------------------------------
#
# If an acquisition function is NaN, BoTorch's searches fail with an error about a random draw.
# This search says at which point the function is NaN, and what its model predicts there.


def maximize_checked(
    domain: Domain, acquisition: AcquisitionFunction, seed: int
) -> tuple[Tensor, float]:
    """Return what :meth:`.Domain.maximize` returns, or report which model is not finite.

    Args:
        domain: The domain on which it is maximized.
        acquisition: The acquisition function; it may be NaN or infinite because its model is.
        seed: See :meth:`.Domain.maximize`.

    Raises:
        ValueError: If the acquisition function is not finite at its maximum, or the search fails
            and it is not finite at some points of the domain.
    """
    try:
        whole, value = domain.maximize(acquisition, seed=seed)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        points = domain.sample(NUM_LOOKED_AT, torch.Generator().manual_seed(seed % 2**63))
        if (told := _not_finite(acquisition, points)) is not None:
            raise ValueError(told) from error
        raise
    if not math.isfinite(value):
        told = _not_finite(acquisition, whole.unsqueeze(0))
        raise ValueError(told or f"the acquisition function is {value} at its maximum.")
    return whole, value


NUM_LOOKED_AT = 64
"""The number of points at which a model is examined if a search failed."""


def _not_finite(acquisition: AcquisitionFunction, points: Tensor) -> str | None:
    """Return where an acquisition function is not finite, and what its model predicts there."""
    try:
        with torch.no_grad():
            values = acquisition(points.unsqueeze(-2)).reshape(len(points))
    except Exception:  # the error of the search says more
        return None
    bad = (~values.isfinite()).nonzero()
    if len(bad) == 0:
        return None
    i, name = int(bad[0]), type(acquisition).__name__
    told = f"the acquisition function ({name}) is {float(values[i])} at {points[i].tolist()}"
    with suppress(Exception), torch.no_grad():  # it may have no model
        posterior = acquisition.model.posterior(points[i : i + 1])
        moments = posterior.mean.reshape(-1).tolist(), posterior.variance.reshape(-1).tolist()
        told += (
            f", where the model ({type(acquisition.model).__name__}) has the mean {moments[0]} "
            f"and the variance {moments[1]}"
        )
    return (
        f"{told}; both must be finite. Check model= on the outcomes so far: its transforms, "
        "priors and noise, and whether rows repeat or outcomes are all equal."
    )
