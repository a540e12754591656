"""What is best now: the answer of :meth:`.BanditLoop.best`.

If the reward is the same in all rounds, the best is the largest reward that was observed. If it is
not, only what still counts is considered: the rounds since a reset, the rounds within a sliding
window, and, if contexts or the age of an outcome matter, the model's means at the played points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from botorch_bandits.checks import DTYPE
from botorch_bandits.history import History, Outcome, Query
from botorch_bandits.loop.settings import LoopSettings

if TYPE_CHECKING:
    from botorch_bandits.loop.chooser import Chooser

Told = tuple[Query, Outcome]


def best_now(
    settings: LoopSettings,
    history: History,
    chooser: Chooser,
    context: Tensor | None,
    now: float,
) -> Told | None:
    """Return the query that is best now and its outcome, if there is one.

    Args:
        settings: The settings of the loop.
        history: The history of all rounds.
        chooser: The loop's chooser, which has resets, multipliers and the model.
        context: The context for which it is best; None in a loop without contexts.
        now: The time in seconds.
    """
    first_id, window = chooser.restarts.first, settings.window
    if context is None and settings.forgetting is None and first_id == 0:
        if chooser.multipliers is None:
            return history.best()
        best = chooser.multipliers.best
        return None if best is None else (history.query(best.query_id), best)
    if window is not None:
        first_id = max(first_id, history.num_queries - window)
    told = [
        (history.query(outcome.query_id), outcome)
        for outcome in history.outcomes
        if outcome.query_id >= first_id and max(outcome.constraints, default=0.0) <= 0.0
    ]
    is_by_model = context is not None or not settings.outcomes_are_alike
    # a surrogate that starts over in each epoch may not have seen an outcome yet
    if is_by_model and settings.model is not None and len(chooser.arrived(now).ids):
        return _best_of_model(told, chooser, context, settings, now)
    if context is not None:
        told = [(query, outcome) for query, outcome in told if is_in(query, context)]
    return max(told, key=lambda pair: history.rank(pair[1]), default=None)


def is_in(query: Query, context: Tensor) -> bool:
    """Return whether a query was asked in a context, to the last bit."""
    asked_in = query.context
    return asked_in is not None and torch.equal(asked_in.to(context), context)


def _best_of_model(
    told: list[Told], chooser: Chooser, context: Tensor | None, settings: LoopSettings, now: float
) -> Told | None:
    """Return the point with the largest posterior mean among those that were played.

    Of several outcomes there, it is the latest in this context, or else the latest of all.
    """
    if not told or chooser.has_no_data():
        return None
    points: dict[tuple[float, ...], list[Told]] = {}
    for pair in told:
        points.setdefault(tuple(pair[0].x.tolist()), []).append(pair)
    X = torch.stack([pairs[0][0].x for pairs in points.values()])
    front = [] if context is None else [context.to(X)]
    if settings.drift_rate is not None:
        next_round = float(chooser.local_round)
        front.insert(0, torch.tensor([next_round], dtype=DTYPE, device=X.device))
    if front:
        X = torch.cat([torch.cat(front).expand(len(X), -1), X], dim=-1)
    with torch.no_grad():
        means = chooser.model(now).posterior(X).mean[:, 0]
    pairs = list(points.values())[int(means.argmax())]
    here = [pair for pair in pairs if context is not None and is_in(pair[0], context)]
    return (here or pairs)[-1]
