"""A loop that minimizes: the one place where outcomes, settings and answers change their sign.

History and storage have the user's own numbers. Models, widths, tests and multipliers see minus
these numbers, so that all other modules maximize and do not know about it: the choices are those of
a loop that maximizes and is told the negatives. Constraint values keep their sign.
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.checks import store_checked
from botorch_bandits.confidence import Guarantee, ModelCheck
from botorch_bandits.confidence.guarantee import FunctionAssumption, of_minus_the_reward
from botorch_bandits.loop.settings import LoopSettings


def turned(value: float) -> float:
    """Return minus a value; 0 stays 0."""
    return 0.0 - value


def settings_of_model(settings: LoopSettings) -> LoopSettings:
    """Return settings for outcomes of the opposite sign: everything stated about a cost is negated.

    These are the prior mean (of a family, too), the ``minimum`` of censored feedback and
    ``best_f``.

    Args:
        settings: The settings of a loop that minimizes, checked by :func:`check_minimizing`.
    """
    changed: dict[str, Any] = {"maximize": True}
    censored = settings.feedback.censored
    detection, evidence = settings.detection, settings.evidence
    if settings.recipe is not None:
        changed["model"] = _with_turned_mean(settings.recipe)
    if settings.listed is not None:
        changed["model"] = settings.listed.flipped()
    if settings.played is not None and settings.options.get("best_f") is not None:
        options = {**settings.options, "best_f": turned(settings.options["best_f"])}
        changed["acquisition"] = AcquisitionRecipe(settings.played.acquisition_class, options)
    if censored is not None and censored.minimum is not None:
        changed["feedback"] = replace(censored, minimum=turned(censored.minimum))
    if detection is not None:
        changed["restart"] = replace(detection, detector=_with_turned_mean(detection.detector))
    if evidence is not None and evidence.candidates is not None:
        changed["restart"] = replace(evidence, candidates=evidence.candidates.flipped())
    told = copy.copy(settings)
    store_checked(told, **changed)
    return told


def _with_turned_mean(settings: Any) -> Any:
    mean = settings.prior_mean
    return replace(settings, prior_mean=turned(mean)) if mean else settings


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
