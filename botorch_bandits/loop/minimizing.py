"""A loop that minimizes: the one place where outcomes, settings and answers change their sign.

History and journal have the user's own numbers. Models, widths, tests and multipliers see minus
these numbers, so that all other modules maximize and do not know about it: the choices are those of
a loop that maximizes and is told the negatives. Constraint values keep their sign.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.acquisition.lagrangian import of_minus_the_reward
from botorch_bandits.change_points import ChangePointRestart, EvidenceRestart, Restart
from botorch_bandits.checks import store_checked
from botorch_bandits.confidence import Guarantee
from botorch_bandits.confidence.guarantee import FunctionAssumption
from botorch_bandits.feedback import Censored, CensoredView
from botorch_bandits.history import Event, History, Outcome, Query, Retraction
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.models import (
    BanditGPRecipe,
    CandidatesRecipe,
    DefaultCandidates,
    ModelCheck,
)

_Entry = TypeVar("_Entry", bound=Query | Event)


def turned(value: float) -> float:
    """Return minus a value; 0 stays 0."""
    return 0.0 - value


def turned_diagnostics(known: Mapping[str, float]) -> dict[str, float]:
    """Return diagnostics of a query with the other sign; a second call restores them.

    The value of the acquisition function is unchanged, because it is maximized in either case.

    Args:
        known: The diagnostics by name.
    """
    told = dict(known)
    if "mean" in told:
        told["mean"] = turned(told["mean"])
    if "lower_bound" in told and "upper_bound" in told:
        told["lower_bound"] = turned(known["upper_bound"])
        told["upper_bound"] = turned(known["lower_bound"])
    return told


def turned_entry(entry: _Entry) -> _Entry:
    """Return a query or an event whose reward and diagnostics have the other sign.

    Args:
        entry: The query or event, which is not changed.
    """
    told: Any = entry
    if isinstance(entry, Query):
        told = replace(entry, _diagnostics=turned_diagnostics(entry._diagnostics))
    elif isinstance(entry, Outcome):
        told = replace(entry, reward=turned(entry.reward))
    elif isinstance(entry, Retraction):
        told = replace(entry, outcome=turned_entry(entry.outcome))
    return cast(_Entry, told)


def turned_history(history: History) -> History:
    """Return a history of the same queries and events in which rewards have the other sign.

    Args:
        history: The history, which is not changed.
    """
    other = History(history.dim, history.context_dim, history.num_constraints, not history.maximize)
    for query in history.queries:
        other.record(turned_entry(query))
    for event in history.events:
        outcome = event.outcome if isinstance(event, Retraction) else event
        other.record(turned_entry(outcome))
    for retraction in history.retractions:  # in the order of the retractions
        # a retraction must hold the same outcome object as the other history
        told = other.outcome(retraction.query_id)
        assert told is not None
        other.record(replace(retraction, outcome=told))
    return other


def settings_of_model(settings: LoopSettings) -> LoopSettings:
    """Return settings for outcomes of the opposite sign: everything stated about a cost is negated.

    These are the prior mean (of a family, too), the ``minimum`` of censored feedback and
    ``best_f``.

    Args:
        settings: The settings of a loop that minimizes, checked by :func:`check_minimizing`.
    """
    told = copy.copy(settings)
    store_checked(
        told,
        model=_turned_model(settings.model),
        acquisition=_turned_acquisition(settings.acquisition),
        feedback=_turned_feedback(settings.feedback),
        restart=_turned_restart(settings.restart),
        maximize=True,
    )
    return told


def _turned_model(model: Any) -> Any:
    if isinstance(model, CandidatesRecipe) and any(c.prior_mean for c in model.candidates):
        # the names are kept, so they describe what the user gave
        return replace(model, candidates=tuple(map(_turned_model, model.candidates)))
    if isinstance(model, BanditGPRecipe) and model.prior_mean:
        return replace(model, prior_mean=turned(model.prior_mean))
    return model


def _turned_acquisition(acquisition: Any) -> Any:
    if not isinstance(acquisition, AcquisitionRecipe):
        return acquisition
    given = acquisition.options
    changed: dict[str, Any] = {}
    if given.get("best_f") is not None:
        changed["best_f"] = turned(given["best_f"])
    if not changed:
        return acquisition
    return AcquisitionRecipe(acquisition.acquisition_class, {**given, **changed})


def _turned_feedback(feedback: Any) -> Any:
    if not isinstance(feedback, Censored) or not feedback.minimum:
        return feedback
    return replace(feedback, minimum=turned(feedback.minimum))


def _turned_restart(restart: Restart | None) -> Restart | None:
    if isinstance(restart, ChangePointRestart) and restart.detector.prior_mean:
        mean = turned(restart.detector.prior_mean)
        return replace(restart, detector=replace(restart.detector, prior_mean=mean))
    if isinstance(restart, EvidenceRestart) and restart.candidates is not None:
        listed = restart.candidates
        if isinstance(listed, DefaultCandidates):
            listed = replace(listed, prior_mean=turned(listed.prior_mean))
            return replace(restart, candidates=listed)
        return replace(restart, candidates=_turned_model(listed))
    return restart


def turned_view(view: CensoredView) -> CensoredView:
    """Return the view of a censored model in the other sign.

    Args:
        view: The view, which is not changed.
    """
    rewards = tuple(None if reward is None else turned(reward) for reward in view.rewards)
    return replace(view, rewards=rewards)


def turned_check(check: ModelCheck) -> ModelCheck:
    """Return a check of a model of minus the outcomes as a check of a model of the outcomes.

    Args:
        check: The check, which is not changed.
    """
    return replace(check, one_step=0.0 - check.one_step, left_out=0.0 - check.left_out)


_NUMBER = r"(-?\d[\d.]*(?:e[+-]?\d+)?)"
_NUMBERS_IN_WORDS = re.compile(rf"(the prior mean is |prior mean of |minimum=){_NUMBER}")

_WORDS = (
    ("that maximizes the bound of the penalized reward", "that maximizes the bound of minus the "
     "penalized cost"),
    ("maximizes the upper confidence bound", "minimizes the lower confidence bound"),
    ("largest rewards", "least costs"),
    ("largest reward", "least cost"),
    ("the least reward", "the least cost"),
    ("below the minimum", "above the largest cost"),
    ("its minimum", "its largest value"),
    ("the minimum", "the largest cost"),
)  # fmt: skip


def in_costs(text: str) -> str:
    """Return a text about a reward as a text about a cost.

    Args:
        text: A text of a guarantee.

    Example:
        >>> in_costs("the reward lies within the width of the posterior mean")
        'the cost lies within the width of the posterior mean'
    """
    for old, new in _WORDS:
        text = text.replace(old, new)
    text = re.sub(r"\breward(s?)\b", r"cost\1", text)
    return _NUMBERS_IN_WORDS.sub(lambda m: f"{m[1]}{turned(float(m[2])):g}", text)


def guarantee_of_costs(guarantee: Guarantee) -> Guarantee:
    """Return a guarantee about minus a cost as one about the cost, in words and numbers.

    The regret of a round is the cost at its point less the least cost. It is thus not negative, and
    every bound on it is unchanged.

    Args:
        guarantee: The guarantee of the loop for minus the cost.
    """
    regret = guarantee.regret
    if regret is not None and "penalized reward" in regret.wording:
        guarantee = of_minus_the_reward(guarantee)
    else:
        guarantee = guarantee.for_minimizing()
    statements: dict[str, Any] = {
        name: replace(
            each, wording=in_costs(each.wording), gaps=tuple(in_costs(gap) for gap in each.gaps)
        )
        for name, each in guarantee.statements.items()
    }
    assumptions = [
        FunctionAssumption(*(in_costs(part) for part in (each.before, each.after, each.function)))
        if isinstance(each, FunctionAssumption)
        else in_costs(each)
        for each in guarantee.assumptions
    ]
    constants = {
        name: turned(value) if name.startswith("prior_mean") else value
        for name, value in guarantee.constants.items()
    }
    return replace(
        guarantee,
        method=in_costs(guarantee.method),
        theorem=None if guarantee.theorem is None else in_costs(guarantee.theorem),
        assumptions=tuple(assumptions),
        gaps=tuple(in_costs(gap) for gap in guarantee.gaps),
        constants=constants,
        **statements,
    )
