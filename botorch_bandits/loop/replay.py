"""Whether a machine makes the choices that are on record: a run is played again from its log."""

from __future__ import annotations

import torch
from torch import Tensor

from botorch_bandits.history import Event, History, Query, Retraction
from botorch_bandits.loop.aspects import NOTHING_DECIDED, Decided
from botorch_bandits.loop.chooser import Chooser
from botorch_bandits.loop.restrictions import recorded_restriction
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.progress import progress_bar

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
