"""The two ways from the rows of a view to a point: arms from their posterior, or a model.

On arms, a :class:`~botorch_bandits.acquisition.player.Player` chooses from the exact posterior of
all arms, without a BoTorch model. Everywhere else, and where a setting needs a model, the model of
the view's rows is built, or the last one extended, and an acquisition function on it is maximized.
Both compare the rows with those of the last round; nothing else is kept between rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import GPThompsonSampling
from botorch_bandits.acquisition.lagrangian import LagrangianAcquisition
from botorch_bandits.acquisition.player import Player
from botorch_bandits.acquisition.rules import (
    ImprovementArmsRule,
    LagrangianArmsRule,
    ListArmsRule,
    RandomizedArmsRule,
    Seen,
    ThompsonArmsRule,
    WidthArmsRule,
)
from botorch_bandits.acquisition.upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import WidthRule
from botorch_bandits.confidence.candidates import LEVEL_OF_SURVIVORS
from botorch_bandits.confidence.prior_reading import read_prior
from botorch_bandits.core.kernels import kernel_of_output
from botorch_bandits.core.rows import Rows
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.feedback import Feedback
from botorch_bandits.history import Growing, History
from botorch_bandits.loop.settings import LoopSettings, forgetful_recipe
from botorch_bandits.loop.view import View
from botorch_bandits.models import condition
from botorch_bandits.models.builder import ModelBuilder
from botorch_bandits.models.reading import (
    moments_of_outputs,
    observed_inputs,
    prior_means,
    submodels,
)
from botorch_bandits.random_streams import derive_seed, seeded_globally

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
        history: History,
        has_time: bool,
    ) -> None:
        """See the class.

        Args:
            player: Who chooses, with one output for the reward, or more for constraints as well.
            arrived: A player of the same priors, which is conditioned on other rows of a round.
            domain: The arms.
            history: The history, which grows.
            has_time: Whether the round is a column in front of the arms.
        """
        self.player, self._arrived = player, arrived
        self._domain, self._history, self._has_time = domain, history, has_time
        self._device = domain.choices.device
        self._num_front = player.posterior.prior.num_front
        self._arms = Growing(dtype=int)  # of all queries
        self._places, self._first = Growing(dtype=int), 0  # of the queries from an id on
        self._place_of: dict[tuple[int, tuple[float, ...]], int] = {}
        self._latest = (-1, -1)
        self._recipe: Any = None

    def choose(self, view: View, among: Tensor | None = None) -> tuple[Tensor, dict[str, float]]:
        """Return the point to query, and its diagnostics.

        Args:
            view: The view of the round.
            among: Numbers of the arms that may be chosen; None for all.
        """
        seen = self._look(view)
        seen.among = among
        arm = int(self.player.choose(seen))
        self._latest = (view.round_number - 1, arm)
        return self._domain.choices[arm], self.player.describe(seen, arm)

    def describe(self, x: Tensor, view: View) -> dict[str, float]:
        """Return the diagnostics of a point that something else chooses."""
        return self.player.describe(self._look(view), self._arm(x))

    def smallest_lower_bounds(self, view: View) -> Tensor | None:
        """Return the least of each constraint's lower bounds; None if they are not known here."""
        self._play(view)
        rule = self.player.rule
        if self._num_front or view.fading is not None or not isinstance(rule, LagrangianArmsRule):
            return None
        rule = replace(rule, constraint_bound=None)
        seen = self.player.look(view.local_round, self._rows(view), rule=rule)
        return rule.ends(seen.prepared.means, seen.prepared.half)[1].amin(-1)

    def noise_ratio_at(self, x: Tensor, view: View) -> float | None:
        """Return a list's least ratio of noise to posterior variance at an arm; None otherwise."""
        rule = self.player.rule
        if not isinstance(rule, ListArmsRule):
            return None
        return rule.least_noise_ratio(self._look(view), self._arm(x), LEVEL_OF_SURVIVORS)

    def moments(self, view: View, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means and variances at queries given the rows of a view.

        Args:
            view: The view.
            ids: ``k`` ids.

        Returns:
            ``k x m`` each, on the CPU.
        """
        player = self._arrived
        self._catch_up(view.first)
        if view.prior_mean is not None:
            player.set_prior_mean(view.prior_mean)
        player.condition(self._rows(view), self._front_now(view))
        mean, variance = self._moments_of(player, view, ids)
        return mean.cpu(), variance.cpu()

    def _moments_of(self, player: Player, view: View, ids: Tensor) -> tuple[Tensor, Tensor]:
        index, front, _ = self._columns(ids, view)
        mean, variance = player.posterior.moments_at(index, front)  # G x m x k, G x k
        groups = list(player.group_of_output)
        mean = mean[groups, range(len(groups))]  # m x k
        return mean.mT, variance[groups].clamp_min(0.0).mT

    def _arm(self, x: Tensor) -> int:
        return int(self._domain.index_of(x.unsqueeze(0))[0])

    def _play(self, view: View) -> None:
        """Play the view's recipe, with its prior mean."""
        self._catch_up(view.first)
        if view.recipe is not self._recipe and view.recipe is not None:
            self._recipe = view.recipe
            self.player.rule = view.recipe.arms_rule(self.player.rule_domain)
        if view.prior_mean is not None:
            self.player.set_prior_mean(view.prior_mean)

    def _look(self, view: View) -> Seen:
        """Return what the rule sees."""
        self._play(view)
        front, rule = self._front_now(view), self.player.rule
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
        pending = None
        if len(view.pending):
            none = view.Y.new_zeros(len(view.pending), self.player.posterior.mean.shape[1])
            pending = self._at(view.pending, none, view.Y.new_ones(len(none)), view)
        return self.player.look(view.local_round, rows, front, pending, view.round_number, rule)

    def _rows(self, view: View) -> Rows:
        view = view.faded()
        noise = view.Y.new_ones(len(view.ids)) if view.weight is None else 1.0 / view.weight
        return self._at(view.ids, view.Y, noise, view)

    def _at(self, ids: Tensor, Y: Tensor, noise: Tensor, view: View) -> Rows:
        index, front, place = self._columns(ids, view)
        Y, noise = Y.to(self._device), noise.to(self._device)
        return Rows(index, Y, noise, front, place, ids.to(self._device))

    def _columns(self, ids: Tensor, view: View) -> tuple[Tensor, Tensor | None, Tensor]:
        """Return the arms, fronts and places of queries, ``k`` rows each."""
        index = place = self._arms.values[ids].to(self._device)
        if self.player.numbers_by_row:
            place = self._places.values[ids - view.first].to(self._device)
        return index, self._fronts(ids, view.first) if self._num_front else None, place

    def _fronts(self, ids: Tensor, first: int) -> Tensor:
        """Return the columns in front of the arms of queries, ``k x num_front``."""
        parts = [self._history.inputs(ids)[:, : self._history.context_dim]]
        if self._has_time:
            parts.insert(0, (ids - first + 1).to(DTYPE).unsqueeze(-1))
        return torch.cat(parts, dim=-1)

    def _front_now(self, view: View) -> Tensor | None:
        if not self._num_front:
            return None
        context = view.context
        if context is None:  # moments at queries have the contexts of these
            context = torch.zeros(self._history.context_dim, dtype=DTYPE)
        if not self._has_time:
            return context
        return torch.cat([torch.tensor([float(view.local_round)], dtype=DTYPE), context])

    def _catch_up(self, first: int) -> None:
        """Read the queries since the last look."""
        new = self._history.queries_since(len(self._arms))
        if len(new) == 1 and (new[0].id, new[0].origin) == (self._latest[0], "acquisition"):
            self._arms.append([self._latest[1]])
        elif new:
            points = torch.stack([query.x for query in new])
            self._arms.append(self._domain.index_of(points).tolist())
        if self.player.numbers_by_row:
            self._number_places(first)

    def _number_places(self, first: int) -> None:
        """Number places in the order in which they first occur, in which rows have their draws."""
        if first != self._first:
            self._places, self._first, self._place_of = Growing(dtype=int), first, {}
        ids = torch.arange(first + len(self._places), len(self._arms))
        known, arms = self._place_of, self._arms.values[ids].tolist()
        keys = zip(arms, self._fronts(ids, first).tolist(), strict=True)
        self._places.append(
            [known.setdefault((arm, tuple(front)), len(known)) for arm, front in keys]
        )


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
        history: The history, which grows.
    """

    def __init__(self, settings: LoopSettings, history: History) -> None:
        """See the class."""
        self._settings, self._history = settings, history
        self._kept: dict[str, tuple[View, Model]] = {}  # the last model of each use, and its rows
        self._builders: dict[str, tuple[float | None, Callable[..., Any]]] = {}
        self._next_count = MOST_ROWS  # the number of outcomes at which rows are counted next

    def inputs(self, ids: Tensor, view: View) -> Tensor:
        """Return the inputs of the model at queries: the time, the context and the point.

        Args:
            ids: ``k`` ids.
            view: The view, from whose first query the time counts.
        """
        X = self._history.inputs(ids)
        if self._settings.drift_rate is None or self._settings.recipe is None:
            return X
        return torch.cat([(ids - view.first + 1).to(X).unsqueeze(-1), X], dim=-1)

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
            if self._settings.drift_rate is not None:
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
        X, model = self.inputs(ids, view), self.model(view, use)
        each = moments_of_outputs(model, X.unsqueeze(-2), predictive)  # k x members? x 1 x m
        mean, deviation = (part.reshape(len(ids), -1, part.shape[-1]) for part in each)
        center = mean.mean(1, keepdim=True)
        variance = (deviation.square() + (mean - center).square()).mean(1)
        return center.squeeze(1).cpu(), variance.cpu()

    def acquisition(self, view: View, domain: Domain) -> AcquisitionFunction:
        """Return the acquisition function of a round.

        Args:
            view: The view of the round.
            domain: The domain of the model's inputs on which it will be maximized.
        """
        model = self.model(view)
        seed = derive_seed(self._settings.seed, view.round_number, "acquisition")
        X_pending = self.inputs(view.pending, view) if len(view.pending) else None
        if view.recipe is None:
            make: Any = self._settings.acquisition
            best = float(view.Y[:, 0].max()) if len(view.Y) else None  # as best_f of BoTorch
            with seeded_globally(seed):
                built: AcquisitionFunction = make(model, X_pending, best)
                return built
        given: dict[str, Any] = {"round_number": view.local_round, "seed": seed}
        if view.widening is None:
            X = None if self._settings.recipe is None else observed_inputs(model)  # merged, maybe
            X = self.inputs(view.ids, view) if X is None else X
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
        if self._settings.recipe is None:
            return
        builder = self._builder_of(view, "choice")
        if isinstance(builder, ModelBuilder):
            builder.restore_fit(fit, self.inputs(view.ids, view), view.Y)

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
            known = view.with_rows(view.ids[:n], view.Y[:n], weight=weight, num_joined=0)
            X = self.inputs(view.ids[n:], view)
            return condition(self.model(known, "arrived"), X, view.Y[n:].to(X.device))
        X = self.inputs(view.ids, view)
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
        settings = self._settings
        if settings.listed is not None:
            return settings.listed.builder()
        if settings.recipe is None:
            return lambda X, *rest: self._call_factory(view.first, X, *rest)
        recipe = settings.recipe
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
        make = self._settings.model_in_use
        assert make is not None
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
        is_exact = self._settings.priors or self._settings.learned is not None
        if len(X) < self._next_count or not is_exact:
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
