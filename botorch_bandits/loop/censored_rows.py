r"""The rows of a censored model: outcomes that came in time, and pseudo-values for the others.

:func:`build_censored` makes the model of a round from the queries that count in it. These are given
by :class:`CountedRows`: all queries, or those in the window of a model that forgets.
:class:`CensoredRound` gives the acquisition function on this model the width of censored feedback.

If constraints have their own models (:class:`SeparatePriors`), a query without an outcome has the
constraint values 0. With :math:`\rho_m` the probability that an outcome arrives in time, the models
estimate :math:`\rho_m (f - y_{\min})` and :math:`\rho_m g_j`. The latter has the sign of
:math:`g_j` for every :math:`\rho_m`, so the same points meet the constraints; and
:math:`\rho_m (f - \sum_j \kappa_j g_j)` has the same maximizer. Any other pseudo-value ``c`` would
move the border to :math:`g_j = -c (1 - \rho_m) / \rho_m`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import ModelListGP
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, GPThompsonSampling
from botorch_bandits.acquisition.lagrangian import LagrangianAcquisition
from botorch_bandits.acquisition.upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import WidthRule
from botorch_bandits.confidence.censored import PendingWidth, censored_rule
from botorch_bandits.confidence.fills import share_of_bound
from botorch_bandits.confidence.prior_reading import read_prior
from botorch_bandits.core.kernels import kernel_of_output
from botorch_bandits.domains import Domain
from botorch_bandits.feedback import Censored, CensoredView
from botorch_bandits.history import History
from botorch_bandits.models import BanditGPRecipe, condition
from botorch_bandits.models.censoring import least_lower_bounds
from botorch_bandits.models.reading import moments_of_outputs, prior_means


@dataclass(frozen=True)
class CountedRows:
    """The queries that count in a round, and the functions that make a model of them.

    Attributes:
        ids: The ids of these queries, in asking order.
        inputs: A function from ids to ``n x d`` inputs of the model.
        build: A function from ids and ``n x m`` outcomes to a model.
        is_recipe: Whether a recipe makes the model, which is then not fitted to pseudo-values.
        joins: Whether pseudo-values of an unknown minimum join the model of outcomes that arrived.
            They do not if outcomes fade, because they would have to fade, too.
    """

    ids: Sequence[int]
    inputs: Callable[[list[int]], Tensor]
    build: Callable[[list[int], Tensor], Model]
    is_recipe: bool
    joins: bool = True


class SeparatePriors:
    """Builds a model of the reward and of each constraint with pseudo-values as prior means.

    Args:
        recipe: The recipe for the reward, with its minimum as the prior mean. The prior mean of
            constraints is 0.
        num_constraints: The number of constraints.
        builder_of: A function from the recipe of one output to the function that builds its models.
    """

    def __init__(
        self,
        recipe: BanditGPRecipe,
        num_constraints: int,
        builder_of: Callable[[BanditGPRecipe], Callable[..., Any]],
    ) -> None:
        """See the class."""
        means = [recipe.prior_mean, *[0.0] * num_constraints]
        self._builders = [
            builder_of(replace(recipe, kernel=kernel_of_output(recipe.kernel, j), prior_mean=mean))
            for j, mean in enumerate(means)
        ]

    def __call__(self, X: Tensor, Y: Tensor, *others: Any) -> ModelListGP:
        """Return one model for each output.

        Args:
            X: ``n x d``.
            Y: ``n x (1 + num_constraints)``.
            *others: Further arguments of the builders.
        """
        columns = zip(self._builders, Y.split(1, dim=-1), strict=True)
        return ModelListGP(*(build(X, column, *others) for build, column in columns))


def build_censored(
    feedback: Censored,
    minimum: float | None,
    rewards: Sequence[float | None],
    history: History,
    rows: CountedRows,
) -> Model:
    """Return the model with one row per query; censored queries are at their pseudo-value.

    A recipe's model has all queries as rows in asking order. Pseudo-values join the model of
    outcomes that arrived in time if the model is a user's, which must not be fitted to them, or if
    the model determines them (an unknown minimum).

    Args:
        feedback: Determines the pseudo-value; for feedback with a ``fill``, see
            :func:`build_filled`.
        minimum: The pseudo-value, or None if the model determines it.
        rewards: One per query in asking order, None if it is censored.
        history: The history of these queries.
        rows: The queries that count.
    """
    met = _constraints_at_the_border(history)
    if rows.is_recipe and minimum is not None:
        values = [
            (minimum, *met) if rewards[i] is None else _told(rewards[i], history, i)
            for i in rows.ids
        ]
        return rows.build(list(rows.ids), _table(values, 1 + len(met)))
    model, told = build_arrived(rewards, history, rows)
    censored = [i for i in rows.ids if rewards[i] is None]
    if not censored:
        return model
    if minimum is None:
        assert feedback.minimum_proxy is not None
        places = rows.inputs(told or censored)
        signs = (1.0,) * (1 + len(met))
        minimum = least_lower_bounds(model, feedback.minimum_proxy, signs, places)[0]
    return build_filled(model, dict.fromkeys(censored, minimum), rewards, history, rows)


def build_arrived(
    rewards: Sequence[float | None], history: History, rows: CountedRows
) -> tuple[Model, list[int]]:
    """Return the model of the outcomes that arrived in time, and the queries that are its rows.

    Args:
        rewards: See :func:`build_censored`.
        history: See :func:`build_censored`.
        rows: See :func:`build_censored`.
    """
    told = _told_in_order(rewards, history, rows)
    num_outputs = 1 + len(_constraints_at_the_border(history))
    observed = [_told(rewards[i], history, i) for i in told]
    return rows.build(told, _table(observed, num_outputs)), told


def build_filled(
    arrived: Model | None,
    values: Mapping[int, float],
    rewards: Sequence[float | None],
    history: History,
    rows: CountedRows,
) -> Model:
    """Return the model of what arrived in time, joined by pseudo-values.

    Args:
        arrived: From :func:`build_arrived`; None if pseudo-values do not join a model.
        values: The pseudo-value of each censored query that counts.
        rewards: See :func:`build_censored`.
        history: See :func:`build_censored`.
        rows: See :func:`build_censored`.
    """
    met = _constraints_at_the_border(history)
    pseudo_values = [(value, *met) for value in values.values()]
    if not rows.joins:
        told = _told_in_order(rewards, history, rows)
        observed = [_told(rewards[i], history, i) for i in told]
        table = _table([*observed, *pseudo_values], 1 + len(met))
        return rows.build([*told, *values], table)
    assert arrived is not None
    X = rows.inputs(list(values))
    return condition(arrived, X, _table(pseudo_values, 1 + len(met)).to(X.device))


def _told_in_order(
    rewards: Sequence[float | None], history: History, rows: CountedRows
) -> list[int]:
    """Return the queries whose outcomes arrived in time, in the order in which they become rows."""
    told = [i for i in rows.ids if rewards[i] is not None]
    if not rows.is_recipe:
        return told
    counted = set(told)  # in order of arrival, so that rows are only ever appended
    return [o.query_id for o in history.outcomes if o.query_id in counted]


@dataclass(frozen=True)
class CensoredRound:
    """A round of a loop with censored feedback.

    Attributes:
        feedback: Determines what is added to widths.
        view: The queries as the model sees them.
        model: That model.
        history: The history of these queries.
        rows: The queries that count; a query that has left the window is no longer waited for.
        number: The number of the round, from 1.
        shares: The factors other than 1 of deviations at pending queries in the sum: how far the
            outcome can be from its fill, as a share of ``outcome_bound``.
            not 1: how far the outcome can be from its fill, as a share of ``outcome_bound``.
    """

    feedback: Censored
    view: CensoredView
    model: Model
    history: History
    rows: CountedRows
    number: int
    shares: Mapping[int, float]

    def widen(self, acquisition: AcquisitionFunction) -> AcquisitionFunction:
        """Give an acquisition function the width of censored feedback, and return it.

        Args:
            acquisition: The acquisition function on the censored model.
        """
        if isinstance(acquisition, LagrangianAcquisition):
            acquisition.set_rules(self.widened(acquisition.width_rules))
            return acquisition
        if isinstance(acquisition, GPThompsonSampling):
            acquisition.set_rule(self._width(acquisition.rule, draws=True))
            return acquisition
        assert isinstance(acquisition, WidthUpperConfidenceBound)
        width = self._width(acquisition.rule, draws=False)
        acquisition.set_rule(width, self.feedback.predictive)
        return acquisition

    def _width(self, rule: WidthRule, draws: bool) -> WidthRule:
        bound = self.feedback.bound_on_sum(draws)
        censored = self._censored(rule, bound, self.feedback.fill)
        gaps = partial(self._gaps, censored.censored.units, draws)
        return censored.in_round(self._deviations().sum(), self.number, gaps)

    def widened(self, rules: Sequence[WidthRule]) -> tuple[PendingWidth, ...]:
        """Return the width rules of reward and constraints with the terms that censoring adds.

        Args:
            rules: One per output, for outcomes without delay.
        """
        sums = self._deviations().sum(dim=(0, 1))
        bounds, found = self.feedback.outcome_bounds(len(rules) - 1), []
        for j, (rule, bound) in enumerate(zip(rules, bounds, strict=True)):
            if j and bound is not None and rule.units == "prior":
                bound /= float(read_prior(self.model)[j].standard_deviation)
            # pseudo-values of constraints are 0 with every fill
            censored = self._censored(rule, bound, "minimum" if j else self.feedback.fill)
            found.append(censored.in_round(sums[j], self.number))
        return tuple(found)

    def _censored(self, rule: WidthRule, bound: float | None, fill: str) -> PendingWidth:
        return censored_rule(rule, bound, self.feedback.unit, fill, self.feedback.sum_form)

    def _deviations(self) -> Tensor:
        """Return the posterior deviations at queries that are waited for, ``n x 1 x m``."""
        counted = set(self.rows.ids)
        summed = self.feedback.summed(self.view.pending, self.number - 1)
        ids = [i for i in summed if i in counted]
        if not ids:
            return torch.zeros(0, 1, int(self.model.num_outputs), dtype=DTYPE)
        points = self.rows.inputs(ids).unsqueeze(-2)
        _, deviations = moments_of_outputs(self.model, points, self.feedback.predictive)
        if self.shares:
            shares = deviations.new_tensor([self.shares.get(i, 1.0) for i in ids])
            # separate constraints have their own pseudo-values and bounds
            filled = deviations if self.history.num_outputs == 1 else deviations[..., :1]
            filled *= shares.reshape(-1, *[1] * (deviations.dim() - 1))
        return deviations

    def _gaps(self, units: str, draws: bool) -> Iterator[str]:
        """Yield why the theorem does not cover this use, besides what the width rule says."""
        feedback = replace(self.feedback, predictive=False) if draws else self.feedback
        minimum = self.feedback.current_minimum(self.history)
        observed = [reward for reward in self.view.rewards if reward is not None]
        values = () if minimum is None else (minimum,)
        outcomes = (torch.tensor(observed, dtype=DTYPE),)
        return feedback.gaps(values, prior_means(self.model), outcomes, units)


class BuildsCensored(ABC):
    """Builds models and acquisition functions in which queries without an outcome are censored.

    It is the part of a loop's builder that deals with censored feedback.
    """

    _recipe: BanditGPRecipe | None
    _history: History
    _censored: Censored | None
    _build_model: Callable[..., Any]
    _cached_model: tuple[Any, Model] | None
    _cached_arrived: tuple[Any, Model] | None  # used if pending queries have a fill
    _shares: Mapping[int, float]
    _num_separate: int

    @abstractmethod
    def model(self, round_number: int, now: float) -> Model:
        """Return the model with which a round's query is chosen.

        Args:
            round_number: The number of the round, from 1.
            now: Clock time in seconds.
        """

    @abstractmethod
    def _seed_of(self, round_number: int) -> int:
        """Return the seed of everything that is built in a round."""

    @property
    def _censored_now(self) -> Censored:
        """Return how pending queries are treated now; it may change with the multipliers."""
        assert self._censored is not None
        return self._history.censored(self._censored)

    def _censored_model(
        self, feedback: Censored, view: CensoredView, round_number: int, now: float
    ) -> Model:
        """Return the model with one row per query; see :func:`build_censored`."""
        minimum = feedback.current_minimum(self._history)
        recipe = self._recipe if self._history.is_penalized else None
        if recipe is not None and minimum not in (None, recipe.prior_mean):
            self._begin_models(replace(recipe, prior_mean=minimum))  # with other multipliers
        if feedback.fills_in:
            return self._filled_model(feedback, view, round_number, now)
        key = (view.rewards, minimum)
        if self._cached_model is None or self._cached_model[0] != key:
            rows = self._counted(round_number)
            model = build_censored(feedback, minimum, view.rewards, self._history, rows)
            self._cached_model = (key, model)
        return self._cached_model[1]

    def _filled_model(
        self, feedback: Censored, view: CensoredView, round_number: int, now: float
    ) -> Model:
        """Return the model with one row per query in which pending queries have a fill."""
        history, rows = self._history, self._counted(round_number)
        assert feedback.minimum is not None
        assert feedback.outcome_bound is not None
        arrived: Model | None = None
        told = tuple((i, view.rewards[i]) for i in rows.ids if view.rewards[i] is not None)
        key = (told, feedback.minimum, None if rows.joins else round_number)
        if rows.joins or feedback.fills_by_model:
            if self._cached_arrived is None or self._cached_arrived[0] != key:
                self._cached_arrived = (key, build_arrived(view.rewards, history, rows)[0])
            arrived = self._cached_arrived[1]
        counted = set(rows.ids)
        values = {i: feedback.minimum for i in rows.ids if view.rewards[i] is None}
        waiting = [i for i in view.pending if i in counted]
        heights = torch.zeros(0, dtype=DTYPE)
        if waiting:
            shares = torch.ones(len(view.pending), dtype=DTYPE)
            if feedback.fill == "soft":
                to_come = feedback.shares_to_come(view, history, round_number, now)
                shares = torch.tensor(to_come, dtype=DTYPE)
            which = [position for position, i in enumerate(view.pending) if i in counted]
            mean = deviation = torch.zeros(len(waiting), dtype=DTYPE)
            if feedback.fills_by_model:
                assert arrived is not None
                mean, deviation = _moments_of_reward(arrived, rows.inputs(waiting))
            above = mean - feedback.minimum
            heights = feedback.heights(feedback.outcome_bound, above, deviation, shares[which])
        own = share_of_bound(heights, feedback.outcome_bound).tolist()
        values.update(zip(waiting, (feedback.minimum + heights).tolist(), strict=True))
        self._shares = dict(zip(waiting, own, strict=True))
        full_key = (*key, tuple(values.items()))
        if self._cached_model is None or self._cached_model[0] != full_key:
            model = arrived
            if values or model is None:
                model = build_filled(arrived, values, view.rewards, history, rows)
            self._cached_model = (full_key, model)
        return self._cached_model[1]

    @abstractmethod
    def _begin_models(self, given: BanditGPRecipe) -> None:
        """Build models by a recipe from now on."""

    def _counted(self, round_number: int) -> CountedRows:
        """Return the queries that count in a round in which pending queries are censored."""
        X = self._history.inputs()
        return CountedRows(
            range(self._history.num_queries),
            lambda ids: X[ids],
            lambda ids, Y: self._build_model(X[ids], Y.to(X.device)),
            self._recipe is not None,
        )

    def _build_censored(
        self,
        feedback: Censored,
        recipe: AcquisitionRecipe,
        round_number: int,
        domain: Domain,
        now: float,
    ) -> AcquisitionFunction:
        """Return the acquisition on the censored model, with the width of censored feedback."""
        view = feedback.view(self._history, round_number, now)
        model = self._censored_model(feedback, view, round_number, now)
        acquisition = recipe.build(
            model,
            domain,
            round_number=round_number,
            seed=self._seed_of(round_number),
        )
        rows = self._counted(round_number)
        given = (feedback, view, model, self._history, rows, round_number, self._shares)
        return CensoredRound(*given).widen(acquisition)

    def widened(self, rules: Sequence[WidthRule], now: float) -> tuple[WidthRule, ...]:
        """Return the rules for reward and constraints with the terms of queries pending next round.

        Args:
            rules: One per output, for outcomes without delay.
            now: Clock time in seconds.
        """
        if not self._num_separate:
            return tuple(rules)
        feedback, next_round = self._censored_now, self._history.num_queries + 1
        view = feedback.view(self._history, next_round, now)
        model, rows = self.model(next_round, now), self._counted(next_round)
        given = (feedback, view, model, self._history, rows, next_round, self._shares)
        return CensoredRound(*given).widened(rules)


def _moments_of_reward(model: Model, X: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation at ``n x d`` inputs; of the mixture for an ensemble."""
    mean, deviation = (each[..., 0].reshape(-1, len(X)) for each in moments_of_outputs(model, X))
    center = mean.mean(0)
    spread = deviation.square() + (mean - center).square()
    return center.to(X.device), spread.mean(0).sqrt().to(X.device)


def _constraints_at_the_border(history: History) -> tuple[float, ...]:
    """Return the constraint values of a query without an outcome if they have their own models."""
    return (0.0,) * (history.num_outputs - 1)


def _told(reward: float | None, history: History, query_id: int) -> tuple[float | None, ...]:
    """Return the row of an outcome that came in time."""
    if history.num_outputs == 1:
        return (reward,)
    outcome = history.outcome(query_id)
    assert outcome is not None
    return (reward, *outcome.constraints)


def _table(values: Sequence[tuple[float | None, ...]], num_outputs: int) -> Tensor:
    return torch.tensor(values, dtype=DTYPE).reshape(-1, num_outputs)
