"""A loop that minimizes: the one place where outcomes, settings and answers change their sign.

History and storage have the user's own numbers. Models, widths, tests and multipliers see minus
these numbers, so that all other modules maximize and do not know about it: the choices are those of
a loop that maximizes and is told the negatives. Constraint values keep their sign.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.checks import store_checked
from botorch_bandits.confidence import ModelCheck
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
