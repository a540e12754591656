"""Whether the constraints of a loop can be met, according to the data.

:class:`ConstraintWatch` warns if no point seems to meet a constraint, or if values are noisy but
the rule treats them as exact. Warnings change nothing: a loop suggests the same points with and
without them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import ImprovedUpperConfidenceBound
from botorch_bandits.acquisition.rules import RandomizedArmsRule, WidthArmsRule
from botorch_bandits.acquisition.scores import select_output
from botorch_bandits.change_points import Reset
from botorch_bandits.checks import DTYPE, level_of_users_line
from botorch_bandits.confidence import PriorSummary, WidthRule
from botorch_bandits.confidence.ingredients import output_rules
from botorch_bandits.constraints import (
    InfeasibleConstraintsWarning,
    MultiplierRule,
    recognize_infeasibility,
    warn_if_noisy,
)
from botorch_bandits.domains import Domain
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop.aspects import Multipliers
from botorch_bandits.loop.refusals import LAGRANGIAN
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.view import Aspect, View
from botorch_bandits.random_streams import derive_seed

NUM_EPOCHS = 3
"""How many updates in a row must have raised a multiplier before a problem is called infeasible."""

NUM_CONTEXTS = 10
"""The number of latest contexts over which the smallest lower bounds are averaged."""


class NoWidthError(ValueError):
    """The loop has no model, or no width, for confidence bounds of the constraints."""


@dataclass(frozen=True)
class ConstraintFeasibility:
    """The feasibility of one constraint.

    Attributes:
        constraint: The number of the constraint, from 1.
        smallest_lower_bound: The minimum over the domain of its lower confidence bound. If it is
            positive and the bound holds, no point meets the constraint.
        multiplier: The multiplier in force.
        is_infeasible: Whether the bound is positive, so that no point seems to meet the constraint.
            (The warning of a loop also requires that the multiplier grew in each of the last three
            updates; see :func:`~botorch_bandits.constraints.recognize_infeasibility`.)
    """

    constraint: int
    smallest_lower_bound: float
    multiplier: float
    is_infeasible: bool


@dataclass(frozen=True)
class Feasibility:
    """The result of :meth:`.BanditLoop.feasibility`: whether the constraints can be met.

    Attributes:
        constraints: One entry per constraint.
        nearest: The best observed point that meets all constraints, with its outcome; if there is
            none, the point with the smallest violation; None before the first outcome.
        nearest_is_feasible: Whether its observed values meet them. It is False while
            :attr:`infeasible` is not empty, because one noisy value may meet a constraint that its
            point violates.
    """

    constraints: tuple[ConstraintFeasibility, ...]
    nearest: tuple[Query, Outcome] | None
    nearest_is_feasible: bool

    @property
    def infeasible(self) -> tuple[int, ...]:
        """The numbers, from 1, of the constraints that no point seems to meet."""
        return tuple(entry.constraint for entry in self.constraints if entry.is_infeasible)


def recognize(multipliers: Multipliers, bounds: Tensor) -> Tensor:
    """Return which constraints no point seems to meet, ``num_constraints`` booleans.

    Args:
        multipliers: The rule and what it did so far.
        bounds: ``num_constraints``; the smallest lower confidence bounds.
    """
    latest = multipliers.updates[-NUM_EPOCHS - 1 :]
    table = torch.tensor([update.multipliers for update in latest], dtype=DTYPE)
    return recognize_infeasibility(table, bounds, NUM_EPOCHS, multipliers.rule.max_multiplier)


def feasibility_of(multipliers: Multipliers, history: History, bounds: Tensor) -> Feasibility:
    """Return the feasibility of the constraints.

    Args:
        multipliers: The rule and its state so far.
        history: The whole history.
        bounds: What :func:`smallest_lower_bounds` returned.
    """
    sign = 1.0 if history.maximize else -1.0

    def excess(outcome: Outcome) -> float:
        return math.hypot(*(max(value, 0.0) for value in outcome.constraints))

    nearest, is_feasible = None, False
    if history.num_arrived:
        best = max(history.outcomes, key=lambda told: (-excess(told), sign * told.reward))
        nearest, is_feasible = (history.query(best.query_id), best), excess(best) == 0.0
    in_force = multipliers.values.tolist()
    entries = [
        ConstraintFeasibility(j + 1, float(bound), in_force[j], float(bound) > 0.0)
        for j, bound in enumerate(bounds)
    ]
    is_met = is_feasible and not any(entry.is_infeasible for entry in entries)
    return Feasibility(tuple(entries), nearest, is_met)


def smallest_lower_bounds(
    settings: LoopSettings,
    view: View,
    history: History,
    model_of: Callable[[int], Model],
    width: float | None = None,
    widened: Callable[[Sequence[WidthRule]], Sequence[WidthRule]] = tuple,
) -> Tensor:
    """Return the minimum over the domain of each constraint's lower confidence bound.

    Each constraint has its own model of all its values since the last reset. With separate
    surrogates, these are the loop's models; otherwise they are built like the loop's model, with
    prior mean 0. The width is that of the loop's acquisition at ``delta / (1 + num_constraints)``.
    If the loop forgets, so do these models, and the bounds are those of the next round.

    Args:
        settings: The loop's settings.
        view: The view of the next round, before multipliers change it.
        history: The whole history.
        model_of: Maps the index of a constraint to the model of its negative, or to the loop's
            model of reward and constraints, if it is separate.
        width: A constant that replaces the acquisition's width.
        widened: Adds the terms of pending queries to the rules of separate surrogates, if these
            queries are censored. Bounds are then on constraints times the share of outcomes that
            arrive, which has the same sign.

    Returns:
        ``num_constraints`` numbers. On a box they are found by an optimizer, so they may be too
        large.

    Raises:
        NoWidthError: If the loop has no model, or the acquisition has no width and none is given.
    """
    rule = settings.constraints
    assert rule is not None
    is_separate = rule.surrogate == "separate"
    domains = _domains(settings, history, view.local_round)
    if settings.model is None:
        raise NoWidthError("random search has no model, so constraints have no confidence bounds.")
    if not len(view.ids) and not settings.priors:
        raise NoWidthError(
            "no outcome has arrived, so the model that was passed cannot be built. Tell the first "
            "outcome with loop.tell(query.id, reward)."
        )
    bounds = []
    for j in range(rule.num_constraints):
        seed = derive_seed(settings.seed, history.num_queries, f"feasibility {j}")
        transform: PosteriorTransform | None = None
        used = model_of(j)
        if is_separate:
            sign = -select_output(j + 1, used.num_outputs).weights
            transform = ScalarizedPosteriorTransform(sign)
        factor = width
        if factor is None:
            factor = _width_of(settings, view, rule, used, j, widened)
        bound = ImprovedUpperConfidenceBound(used, width=factor, posterior_transform=transform)
        largest = [domain.maximize(bound, seed)[1] for domain in domains]
        bounds.append(-sum(largest) / len(largest))
    return torch.tensor(bounds, dtype=DTYPE)


def _width_of(
    settings: LoopSettings,
    view: View,
    rule: MultiplierRule,
    model: Model,
    constraint: int,
    widened: Callable[[Sequence[WidthRule]], Sequence[WidthRule]],
) -> float:
    """Return the loop's width for one constraint."""
    num_outputs, recipe = 1 + rule.num_constraints, view.recipe
    if recipe is not None:
        name = recipe.acquisition_class.__name__
        if recipe.acquisition_class.played_as in LAGRANGIAN:
            options = recipe.acquisition_class.complete_options(recipe.options, None)
            of_output = widened(output_rules(name, num_outputs, options))[constraint + 1]
            summary = PriorSummary(model, select_output(constraint + 1, num_outputs))
            return float(options["scale"] * of_output.width(summary, 1))
        shared = recipe.at_share_of_delta(lambda delta: delta / num_outputs)
        arms_rule = shared.arms_rule(settings.domain)  # on a box as well, for its settings
        is_drawn = isinstance(arms_rule, RandomizedArmsRule)
        if isinstance(arms_rule, WidthArmsRule) and not is_drawn:
            own = arms_rule.rule.width(PriorSummary(model), view.local_round)
            return float(arms_rule.scale * own)
    raise NoWidthError(
        f"acquisition={settings.acquisition!r} has no width for a confidence bound of the "
        "constraints; pass width=, the factor of the standard deviation, such as "
        "feasibility(width=2.0)."
    )


def _domains(settings: LoopSettings, history: History, round_number: int) -> list[Domain]:
    """Return the domain in each of the latest contexts; the domain itself without contexts.

    If the round is an input of the models, it is the one given.
    """
    varies = settings.drift_rate is not None
    front = torch.tensor([float(round_number)] if varies else [], dtype=DTYPE)
    if settings.context_dim == 0:
        return [settings.domain.in_context(front)] if varies else [settings.domain]
    latest = history.queries_since(max(history.num_queries - NUM_CONTEXTS, 0))
    contexts = [query.context for query in latest if query.context is not None]
    contexts = contexts or [torch.zeros(settings.context_dim, dtype=DTYPE)]
    return [settings.domain.in_context(torch.cat([front.to(c), c])) for c in contexts]


class ConstraintWatch(Aspect):
    """Detects noise under a rule for exact values, and constraints that no point meets.

    Args:
        settings: The settings of a loop with constraints.
        history: The history, which grows.
        multipliers: The multipliers.
    """

    def __init__(self, settings: LoopSettings, history: History, multipliers: Multipliers) -> None:
        """See the class."""
        self._rule, self._history, self._multipliers = multipliers.rule, history, multipliers
        # if functions change, a value that differs is not necessarily noise
        varies = bool(settings.options.get("variation"))
        self._forgets = settings.forgetting is not None
        self._compares = self._rule.expects_exact_constraints and not (self._forgets or varies)
        self._first_values: dict[tuple[float, ...], tuple[float, ...]] = {}  # by input
        self._looks = True
        self._next_look, self._num_epochs = 0, 0

    def reset(self, reset: Reset) -> None:
        self._first_values.clear()

    def told(self, outcome: Outcome) -> None:
        """Compare the values with the first ones of the same input, in this segment."""
        if not self._compares or outcome.query_id < self._multipliers.first_of_segment:
            return
        query = self._history.query(outcome.query_id)
        context = () if query.context is None else query.context.tolist()
        key = (*context, *query.x.tolist())
        first = self._first_values.setdefault(key, outcome.constraints)
        given = (self._rule, first, outcome.constraints)
        if warn_if_noisy(*given, stacklevel=1 + level_of_users_line()):
            self._compares = False

    def look(self, smallest_bounds: Callable[[], Tensor]) -> None:
        """Warn at the end of an epoch if a constraint seems infeasible; to be called every round.

        This requires a model of each constraint and a search of the domain. It is therefore done
        only if multipliers grew in each of the last updates, and then not again for ten rounds or a
        fifth of the rounds so far.

        Args:
            smallest_bounds: Returns the result of :func:`smallest_lower_bounds`.
        """
        multipliers, num_queries = self._multipliers, self._history.num_queries
        is_new_epoch = multipliers.num_epochs != self._num_epochs
        self._num_epochs = multipliers.num_epochs
        if not (self._looks and is_new_epoch and num_queries >= self._next_look):
            return
        positive = torch.ones(self._rule.num_constraints, dtype=DTYPE)
        if not bool(recognize(multipliers, positive).any()):
            return
        self._next_look = num_queries + max(num_queries // 5, 10)
        try:
            bounds = smallest_bounds()
        except NoWidthError:  # only loop.feasibility(width=...) can give an answer then
            self._looks = False
            return
        infeasible = torch.nonzero(recognize(multipliers, bounds)).squeeze(-1).tolist()
        if not infeasible:
            return
        self._looks = False
        told = ", ".join(f"{j + 1} (at least {bounds[j]:.4g})" for j in infeasible)
        now = " now" if self._forgets else ""
        warnings.warn(
            f"no point seems to meet constraint {told}{now}: its smallest lower confidence bound "
            "is positive and its multiplier keeps growing. Relax the constraint, or widen the "
            "domain; loop.feasibility() says what is known. The bound is only as good as the model "
            "of the constraint, which has the kernel and the noise of the reward unless model= "
            "learns them apart: if you know points that meet it, mend the model.",
            InfeasibleConstraintsWarning,
            stacklevel=level_of_users_line(),
        )
