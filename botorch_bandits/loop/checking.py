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


import torch

from botorch_bandits.history import Event, Failure, History, Query, Retraction, point_text
from botorch_bandits.loop.aspects import NOTHING_DECIDED, Decided
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.restrictions import recorded_restriction
from botorch_bandits.progress import progress_bar

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


# --- The warning of a loop that keeps asking for a point at which every evaluation fails ----------
#
# A failure that is reported without ``avoid=True`` is treated as chance: the model does not
# change, so the same point maximizes the acquisition function again.


MOST_AT_A_POINT = 3
"""The number of consecutive failures at one point after which a loop warns."""

SAME_POINT = 1e-3
"""Points of a box count as the same if they differ by at most this share of each range."""


class RepeatedFailureWarning(RuntimeWarning):
    """A point fails each time it is asked for, and the loop was not told to avoid it."""


def warn_of_repeated_failures(settings: LoopSettings, history: History) -> None:
    """Warn if the last three evaluations failed at one point that the loop does not avoid.

    Args:
        settings: The settings of the loop.
        history: The history, which ends with a failure. Further failures in the same series are not
            reported again.
    """
    # otherwise avoid=True would change nothing
    if not settings.feedback.hallucinates or settings.is_random:
        return
    events = history.events[-MOST_AT_A_POINT - 1 :]
    row, before = events[-MOST_AT_A_POINT:], events[:-MOST_AT_A_POINT]
    if len(row) < MOST_AT_A_POINT:
        return
    query = history.query(row[-1].query_id)
    tolerance: float | Tensor = 0.0
    if settings.domain.bounds is not None:
        lower, upper = settings.domain.bounds
        tolerance = SAME_POINT * (upper - lower)

    def is_there(x: Tensor) -> bool:
        return bool(((x - query.x).abs() <= tolerance).all())

    def failed_there(event: Event) -> bool:
        is_failure = event.state == Failure.state and not event.avoided
        return is_failure and is_there(history.query(event.query_id).x)

    if not all(map(failed_there, row)):
        return
    if any(map(failed_there, before)):
        return  # the warning was issued before
    if any(is_there(history.query(outcome.query_id).x) for outcome in history.outcomes):
        return
    warnings.warn(
        f"the point ({point_text(query)}) failed {MOST_AT_A_POINT} times in a row and never gave "
        "an outcome, and the loop will go on asking for it. If the point is the cause, pass "
        "avoid=True: loop.fail(query.id, reason, avoid=True).",
        RepeatedFailureWarning,
        stacklevel=level_of_users_line(),
    )


# --- Whether a machine makes the choices that are on record: a run is played again from its log ---


SAME_CHOICE = 1e-6
"""Two searches of a box end within so much of its sides of the same maximum."""


def differences_of_replay(
    settings: LoopSettings, history: History, decided: Decided, progress: bool | None = None
) -> tuple[str, ...]:
    """Return where the choices of a run, made again, differ from those on record.

    Args:
        settings: The settings of the loop.
        history: The history.
        decided: The resets on record.
        progress: Whether to show a progress bar; None shows it if tqdm is installed.
    """
    replayed = History(*settings.history_sizes)
    # a retraction moves resets, and what was on record before it is not known any more
    known = NOTHING_DECIDED if history.retractions else decided
    chooser = Chooser(settings, replayed, known)
    found: list[str] = []
    with progress_bar(history.num_queries, "check_log", progress) as advance:
        for entry in _in_order_of_recording(history):
            if isinstance(entry, Query) and entry.origin != "attached":
                found += _differences(settings, chooser, entry)
                advance()
            replayed.record(entry)
            if isinstance(entry, Retraction):
                chooser = Chooser(settings, replayed)
            else:
                chooser.hear(entry)
    own = Chooser(settings, history).restarts
    if decided != NOTHING_DECIDED and not own.agrees_with(decided):
        rounds, recorded = (
            [each["after_round"] for each in resets] for resets in (own.decisions, decided.resets)
        )
        found.append(
            f"tests decide on resets after rounds {rounds} here, and after {recorded} on record."
        )
    return tuple(found)


def _in_order_of_recording(history: History) -> list[Query | Event]:
    """Return what was asked, told and withdrawn, in the order in which it counts."""
    rows: list[tuple[int, Query | Event]] = [(q.round_number, q) for q in history.queries]
    rows += [(e.arrived_round, e.ever_told or e) for e in history.events]
    rows += [(r.retracted_round, r) for r in history.retractions]
    return [entry for _, entry in sorted(rows, key=lambda row: row[0])]


def _differences(settings: LoopSettings, chooser: Chooser, query: Query) -> list[str]:
    limits = recorded_restriction(settings, query.restriction)
    x, origin, _ = chooser.choose(query.round_number, query.context, query.asked_at, limits)
    if origin != query.origin:
        return [f"query {query.id} is on record as {query.origin!r}, and is {origin!r} here."]
    if _are_equal(settings, x, query.x):
        return []
    return [f"query {query.id} is at {query.x.tolist()} on record, and at {x.tolist()} here."]


def _are_equal(settings: LoopSettings, one: Tensor, other: Tensor) -> bool:
    if settings.domain.bounds is None or settings.domain.choices is not None:
        return torch.equal(one, other)
    lower, upper = settings.domain.bounds
    return bool(((one - other).abs() <= SAME_CHOICE * (upper - lower)).all())
