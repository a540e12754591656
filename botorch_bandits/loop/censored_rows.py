"""The rows of a censored model: outcomes that came in time, and pseudo-values for the others.

:func:`build_censored` makes the model of a round from the queries that count in it, which
:class:`CountedRows` says: all of them, or with a model that forgets those in its window.
:func:`widen` gives the acquisition function on it the width of censored feedback.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition import GPThompsonSampling
from botorch_bandits.acquisition.upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.checks import DTYPE
from botorch_bandits.confidence.censored import censored_rule
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.feedback import Censored, CensoredView
from botorch_bandits.history import History
from botorch_bandits.models import condition
from botorch_bandits.models.censoring import least_lower_bounds
from botorch_bandits.models.moments import prior_means, variances_of_outputs


@dataclass(frozen=True)
class CountedRows:
    """The queries that count in a round, and what makes a model of them.

    Attributes:
        ids: Of these queries, in asking order.
        inputs: From ids to ``n x d`` inputs of the model.
        build: From ids and ``n x 1`` outcomes to a model.
        is_recipe: Whether a recipe makes the model, which is not fitted to pseudo-values.
        joins: Whether pseudo-values of an unknown minimum join the model of what arrived. Where
            outcomes fade they do not, for they are to fade likewise.
    """

    ids: Sequence[int]
    inputs: Callable[[list[int]], Tensor]
    build: Callable[[list[int], Tensor], Model]
    is_recipe: bool
    joins: bool = True


def build_censored(
    feedback: Censored,
    minimum: float | None,
    rewards: Sequence[float | None],
    history: History,
    rows: CountedRows,
) -> Model:
    """Return the model with a row a query; censored ones are at their pseudo-value.

    A recipe has all queries as rows in asking order. Pseudo-values join the model of what arrived
    in time where it is a user's, which must not be fitted to them, and where it says what they are
    (an unknown minimum).

    Args:
        feedback: Says what the pseudo-value is.
        minimum: That value, or None where the model says it.
        rewards: One a query in asking order, None where it is censored.
        history: Of these queries.
        rows: The queries that count.
    """
    if rows.is_recipe and minimum is not None:
        values = [minimum if rewards[i] is None else rewards[i] for i in rows.ids]
        return rows.build(list(rows.ids), _column(values))
    told = [i for i in rows.ids if rewards[i] is not None]
    censored = [i for i in rows.ids if rewards[i] is None]
    if rows.is_recipe:  # in order of arrival, rows are appended only
        counted = set(told)
        told = [o.query_id for o in history.outcomes if o.query_id in counted]
    observed = [rewards[i] for i in told]
    model = rows.build(told, _column(observed))
    if not censored:
        return model
    if minimum is None:
        assert feedback.minimum_proxy is not None
        places = rows.inputs(told or censored)
        (minimum,) = least_lower_bounds(model, feedback.minimum_proxy, (1.0,), places)
    pseudo_values = [minimum] * len(censored)
    if not rows.joins:
        return rows.build([*told, *censored], _column([*observed, *pseudo_values]))
    X = rows.inputs(censored)
    return condition(model, X, _column(pseudo_values).to(X.device))


def widen(
    acquisition: AcquisitionFunction,
    feedback: Censored,
    view: CensoredView,
    model: Model,
    history: History,
    rows: CountedRows,
    round_number: int,
) -> AcquisitionFunction:
    """Give an acquisition function the width of censored feedback, and return it.

    Args:
        acquisition: On the censored model.
        feedback: Says what the width grows by.
        view: What the model sees of the queries.
        model: That model.
        history: Of these queries.
        rows: Those that count; what has left a window is waited for no more.
        round_number: The number of the round, from 1.
    """
    assert isinstance(acquisition, WidthUpperConfidenceBound | GPThompsonSampling)
    deviation_sum = torch.zeros((), dtype=DTYPE)
    ids = [i for i in feedback.summed(view.pending, round_number - 1) if i in rows.ids]
    if ids:
        with torch.no_grad():
            posterior = model.posterior(
                rows.inputs(ids).unsqueeze(-2), observation_noise=feedback.predictive
            )
            variance = variances_of_outputs(posterior, model)
        deviation_sum = variance.clamp_min(0.0).sqrt().sum()
    rule = censored_rule(acquisition.rule, feedback.outcome_bound, feedback.unit)
    gaps = partial(_gaps, feedback, view, model, history, rule.censored.units)
    width = rule.in_round(deviation_sum, round_number, gaps)
    if isinstance(acquisition, GPThompsonSampling):
        acquisition.set_rule(width)
    else:
        acquisition.set_rule(width, feedback.predictive)
    return acquisition


def _gaps(
    feedback: Censored, view: CensoredView, model: Model, history: History, units: str
) -> Iterator[str]:
    """Why the theorem does not cover this use, beside what the width rule knows."""
    minimum = feedback.current_minimum(history)
    observed = [reward for reward in view.rewards if reward is not None]
    values = () if minimum is None else (minimum,)
    outcomes = (torch.tensor(observed, dtype=DTYPE),)
    return feedback.gaps(values, prior_means(model), outcomes, units)


def _column(values: Sequence[float | None]) -> Tensor:
    return torch.tensor(values, dtype=DTYPE).unsqueeze(-1)


fill_in_docstrings(__name__)
