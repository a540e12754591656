"""How the outcomes of a loop agree with its model, and with each prior on a list.

The check of the loop's model refuses rows that are not outcomes as they were told.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from botorch.models.model import Model, ModelList
from torch import Tensor

from botorch_bandits.checks import level_of_users_line
from botorch_bandits.confidence import EvidenceTable, ModelCheck, check_model
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.loop.view import View
from botorch_bandits.models import CandidatesModel

if TYPE_CHECKING:
    from botorch_bandits.loop.chooser import Chooser

ALIKE = (
    "the model fades old outcomes, but the check treats all of them equally, as if the reward did "
    "not change"
)
"""What the check of a model with exponential weights does not take into account."""


def check_of_loop(settings: LoopSettings, model: Model, view: View, X: Tensor) -> ModelCheck:
    """Return how the outcomes since the last reset agree with the model of the reward.

    Args:
        settings: The settings of the loop.
        model: The loop's model now.
        view: The view of the outcomes that count, ``n`` rows.
        X: ``n x (context_dim + d)`` contexts and points of the rows.

    Raises:
        RuntimeError: If the model's rows are not outcomes.
    """
    check, rounds = _check_rows(settings, model, view, X), view.ids + 1
    # of a list of priors, the first outcomes may be left out; merged rows have no single round
    rounds = rounds[max(len(rounds) - len(check.one_step), 0) :]
    return check if len(rounds) != len(check.one_step) else replace(check, rounds=rounds)


def _check_rows(settings: LoopSettings, model: Model, view: View, X: Tensor) -> ModelCheck:
    if settings.feedback.censored is not None:
        raise RuntimeError(
            "with censored feedback the model has pseudo-values for missing outcomes, and how it "
            "predicts those says nothing about it. Pass outcomes and a model of them to "
            "botorch_bandits.confidence.check_model."
        )
    if isinstance(model, ModelList):  # the model of the reward, then of the constraints
        model = model.models[0]
    if isinstance(model, CandidatesModel):
        return check_model(model)
    repeats = getattr(model, "repeats", None)
    if repeats is None:
        return check_model(model)
    if settings.constraints is not None and settings.constraints.surrogate != "separate":
        if len(repeats) == len(view.ids):  # weights of outcomes none of which were merged
            return check_model(model, weights=repeats)
        raise RuntimeError(
            "the model's rows are means of penalized rewards, whose order is lost. Use "
            "surrogate='separate', or a domain whose points are not repeated."
        )
    Y, weights = view.Y[:, :1].to(X.device), view.weight
    is_learned = settings.learned is not None
    if settings.drift_rate is not None or (is_learned and len(repeats) == len(Y)):
        return check_model(model, weights=repeats)  # own rows: with times, or bad outcomes raised
    if weights is not None and is_learned:
        weights = weights * (repeats.sum() / weights.sum())  # only ratios of counts matter there
    check = check_model(model, X, Y, weights)
    if view.fading is not None:
        return replace(check, cautions=(ALIKE,))
    return check


def evidence_of_loop(
    settings: LoopSettings, chooser: Chooser, now: float, level: float | None
) -> EvidenceTable:
    """Return the evidence of the outcomes since the last reset for each prior on the list.

    Args:
        settings: The settings of the loop.
        chooser: The chooser of the loop.
        now: The time in seconds.
        level: See :meth:`.BanditLoop.evidence`.

    Raises:
        RuntimeError: If the loop's model is not a list of priors, or a user's model lacks data.
    """
    has_model = settings.model is not None and not chooser.has_no_data()
    model = chooser.model(now) if has_model else None
    if model is None and settings.model is not None:
        raise RuntimeError(
            "no outcome has arrived, so the model cannot be built. Tell the first outcome with "
            "loop.tell(query.id, reward)."
        )
    if not isinstance(model, CandidatesModel):
        remedy = "Pass BanditGP.with_candidates([...]) as model="
        if settings.drift_rate is not None:
            remedy = (
                f"forgetting=TimeVaryingKernel({settings.drift_rate:g}) needs one fixed prior; to "
                "compare several, attach the outcomes to one loop for each and compare their "
                "check_model().log_likelihood"
            )
        if settings.evidence is not None and settings.evidence.candidates is not None:
            remedy += (
                ". The list of EvidenceRestart(candidates=...) has its posterior weights in "
                "loop.change_tests[-1].candidate_weights"
            )
        raise RuntimeError(f"the loop's model is not a list of priors. {remedy}.")
    level = 0.5 * chooser.delta_now(0.1) if level is None else level
    table = model.evidence.table(level)
    return replace(table, outcome_name="reward" if settings.maximize else "cost")


def warn_of_drift_rate(settings: LoopSettings) -> None:
    """Warn if the model drifts and the test for changes assumes another drift, or none.

    Args:
        settings: The settings of the loop.

    Warns:
        UserWarning: Naming both rates.
    """
    rate, evidence = settings.drift_rate, settings.evidence
    if rate is None or evidence is None or evidence.drift_rate == rate:
        return
    tested = evidence.drift_rate
    effect = (
        "steady drift counts as a change"
        if tested is None or tested < rate
        else "changes are harder to detect"
    )
    warnings.warn(
        f"forgetting=TimeVaryingKernel({rate:g}) drifts, but restart=EvidenceRestart(...) has "
        f"drift_rate={tested if tested is None else format(tested, 'g')}, so that {effect}. Pass "
        f"EvidenceRestart(drift_rate={rate:g}).",
        UserWarning,
        stacklevel=level_of_users_line(),
    )
