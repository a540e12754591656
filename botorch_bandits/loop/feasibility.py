"""Whether the constraints of a loop can be met, as far as its data say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from botorch.acquisition.objective import PosteriorTransform, ScalarizedPosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.arms_rules import (
    RandomizedArmsRule,
    ThompsonArmsRule,
    WidthArmsRule,
)
from botorch_bandits.acquisition.lagrangian_options import output_rules, select_output
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence import PriorReading
from botorch_bandits.constraints import MultiplierRule, recognise_infeasibility
from botorch_bandits.domains import Arms, Domain
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop.constrained import LAGRANGIAN
from botorch_bandits.loop.multipliers import Multipliers
from botorch_bandits.loop.segments import Segments
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.random_streams import derive_seed, seeded_globally

NUM_EPOCHS = 3
"""How many updates in a row must have raised a multiplier before a problem is called infeasible."""

NUM_CONTEXTS = 10
"""Over how many of the latest contexts the smallest lower bounds are averaged."""


class NoWidthError(ValueError):
    """The loop has no model, or no width, for confidence bounds of the constraints."""


@dataclass(frozen=True)
class ConstraintFeasibility:
    """What is known of one constraint.

    Attributes:
        constraint: Its number, from 1.
        smallest_lower_bound: The minimum over the domain of its lower confidence bound. Where it
            is positive no point meets the constraint, as far as the bound can be trusted.
        multiplier: In force.
        is_infeasible: Whether the bound is positive and the multiplier grew in each of the last
            three updates; see :func:`~botorch_bandits.constraints.recognise_infeasibility`.
    """

    constraint: int
    smallest_lower_bound: float
    multiplier: float
    is_infeasible: bool


@dataclass(frozen=True)
class Feasibility:
    """What a loop knows of whether its constraints can be met.

    Attributes:
        constraints: One entry a constraint.
        nearest: The best observed point that meets all constraints, with its outcome; without one
            that of the smallest violation, and None before the first outcome.
        nearest_is_feasible: Whether it meets them.
    """

    constraints: tuple[ConstraintFeasibility, ...]
    nearest: tuple[Query, Outcome] | None
    nearest_is_feasible: bool

    @property
    def infeasible(self) -> tuple[int, ...]:
        """The numbers, from 1, of the constraints that no point seems to meet."""
        return tuple(entry.constraint for entry in self.constraints if entry.is_infeasible)


def recognise(multipliers: Multipliers, bounds: Tensor) -> Tensor:
    """Return which constraints no point seems to meet, ``num_constraints`` booleans.

    Args:
        multipliers: The rule and what it did so far.
        bounds: ``num_constraints``; the smallest lower confidence bounds.
    """
    latest = multipliers.updates[-NUM_EPOCHS - 1 :]
    table = torch.tensor([update.multipliers for update in latest], dtype=DTYPE)
    largest = getattr(multipliers.rule, "max_multiplier", None)
    return recognise_infeasibility(table, bounds, NUM_EPOCHS, largest)


def feasibility_of(multipliers: Multipliers, history: History, bounds: Tensor) -> Feasibility:
    """Return what is known of the constraints.

    Args:
        multipliers: The rule and what it did so far.
        history: The whole history.
        bounds: From :func:`smallest_lower_bounds`.
    """
    rewards = torch.tensor([outcome.reward for outcome in history.outcomes], dtype=DTYPE)
    row, is_feasible = multipliers.ledger().best_point(rewards)
    nearest = None
    if int(row) >= 0:
        outcome = history.outcomes[int(row)]
        nearest = history.query(outcome.query_id), outcome
    found = recognise(multipliers, bounds).tolist()
    in_force = multipliers.values.tolist()
    entries = [
        ConstraintFeasibility(j + 1, float(bound), in_force[j], found[j])
        for j, bound in enumerate(bounds)
    ]
    return Feasibility(tuple(entries), nearest, bool(is_feasible))


def smallest_lower_bounds(
    settings: LoopSettings,
    segments: Segments,
    history: History,
    separate_model: Callable[[], Model],
    width: float | None = None,
) -> Tensor:
    """Return the minimum over the domain of each constraint's lower confidence bound.

    Each constraint has a model of its own, of all its values since the last reset. With separate
    surrogates these are the loop's; otherwise they are built as the loop's model is, with prior
    mean 0. The width is that of the loop's acquisition at ``delta / (1 + num_constraints)``.

    Args:
        settings: Of the loop.
        segments: What counts of its history.
        history: The whole history.
        separate_model: Gives the loop's model of reward and constraints, where that is separate.
        width: A constant in place of the acquisition's width.

    Returns:
        ``num_constraints`` numbers. They are found by an optimiser where the domain is a box, so
        that they may be too large there.

    Raises:
        NoWidthError: If the loop has no model, or the acquisition no width and none is given.
    """
    rule, recipe = settings.constraints, settings.acquisition
    assert rule is not None
    X, values = _data(segments, history)
    round_number = history.num_queries - segments.first_id_of_segment + 1
    domains = _domains(settings, history)
    if isinstance(recipe, AcquisitionRecipe) and settings.restart is not None:
        share = partial(settings.restart.share_of_delta, segment=segments.number)
        recipe = recipe.at_share_of_delta(share)
    if settings.model is None:
        raise NoWidthError("random search has no model, so constraints have no confidence bounds.")
    if len(X) == 0 and not isinstance(settings.model, BanditGPRecipe):
        raise NoWidthError("no outcome has arrived, so a user's model cannot be built; tell one.")
    model = separate_model() if rule.surrogate_in_use == "separate" else None
    bounds = []
    for j in range(rule.num_constraints):
        transform: PosteriorTransform | None = None
        if model is not None:
            used = model
            sign = -select_output(j + 1, model.num_outputs).weights
            transform = ScalarizedPosteriorTransform(sign)
        else:
            used = _model_of(settings, X, -values[:, j : j + 1])
        factor = width
        if factor is None:
            factor = _width_of(settings, recipe, rule, used, j, round_number)
        bound = ImprovedUpperConfidenceBound(used, width=factor, posterior_transform=transform)
        seed = derive_seed(settings.seed, history.num_queries, f"feasibility {j}")
        largest = [domain.maximize(bound, seed)[1] for domain in domains]
        bounds.append(-sum(largest) / len(largest))
    return torch.tensor(bounds, dtype=DTYPE)


def _model_of(settings: LoopSettings, X: Tensor, Y: Tensor) -> Model:
    """The model of one constraint's negative, so that its smallest values are the largest."""
    model = settings.model
    if isinstance(model, BanditGPRecipe):
        collapses = isinstance(settings.domain, Arms) and settings.context_dim == 0
        return replace(model, prior_mean=0.0).builder(settings.seed, collapses)(X, Y)
    assert model is not None
    with seeded_globally(derive_seed(settings.seed, len(X), "model")):
        return model(X, Y)


def _width_of(
    settings: LoopSettings,
    recipe: object,
    rule: MultiplierRule,
    model: Model,
    constraint: int,
    round_number: int,
) -> float:
    """The loop's width for one constraint."""
    num_outputs = 1 + rule.num_constraints
    if isinstance(recipe, AcquisitionRecipe):
        name, options = recipe.acquisition_class.__name__, dict(recipe.options)
        if recipe.acquisition_class in LAGRANGIAN:
            of_output = output_rules(name, num_outputs, **options)[constraint + 1]
            reading = PriorReading(model, select_output(constraint + 1, num_outputs))
            return float(options.get("scale", 1.0) * of_output.width(reading, 1))
        shared = recipe.at_share_of_delta(lambda delta: delta / num_outputs)
        known = shared.arms_rule(settings.domain)  # on a box too, for its settings
        is_drawn = isinstance(known, RandomizedArmsRule)
        if isinstance(known, WidthArmsRule | ThompsonArmsRule) and not is_drawn:
            return float(known.scale * known.rule.width(PriorReading(model), round_number))
    raise NoWidthError(
        f"acquisition={recipe!r} has no width for a confidence bound of the constraints; pass "
        "width=, the factor of the standard deviation, such as feasibility(width=2.0)."
    )


def _data(segments: Segments, history: History) -> tuple[Tensor, Tensor]:
    """Inputs and constraint values that arrived since the last reset."""
    first = segments.first_id_of_segment
    counts = [outcome.query_id >= first for outcome in history.outcomes]
    here = torch.tensor(counts, dtype=torch.bool)
    return history.arrived()[0][here], history.constraints()[here]


def _domains(settings: LoopSettings, history: History) -> list[Domain]:
    """The domain in each of the latest contexts; itself where there are none."""
    if settings.context_dim == 0:
        return [settings.domain]
    latest = history.queries_since(max(history.num_queries - NUM_CONTEXTS, 0))
    contexts = [query.context for query in latest if query.context is not None]
    contexts = contexts or [torch.zeros(settings.context_dim, dtype=DTYPE)]
    return [settings.domain.in_context(context) for context in contexts]
