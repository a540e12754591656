"""Rounds that play the point of an earlier choice again, as ``repeats=`` of a loop requests.

What is still to be played follows from the queries that were asked: the diagnostics of a chosen one
contain the number of its plays (``plays``), and those of each later one contain its own number
(``play``) and the round of the choice (``choice_round``). A rebuilt loop therefore continues as the
original one would have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from botorch_bandits.confidence import Guarantee
from botorch_bandits.confidence.candidates import LEVEL_OF_SURVIVORS
from botorch_bandits.confidence.repeats import (
    most_choices,
    num_plays,
    num_plays_of_ratio,
)
from botorch_bandits.history import History, Query
from botorch_bandits.loop.acquisitions import model_of
from botorch_bandits.models import CandidatesModel

if TYPE_CHECKING:
    from botorch_bandits.loop.settings import LoopSettings

CHOSEN, AGAIN = "acquisition", "repeat"
"""The origins of a chosen point and of a point that is played again."""


def with_plays(
    diagnostics: dict[str, float], settings: LoopSettings, noise_ratio: float | None = None
) -> dict[str, float]:
    """Return diagnostics with the number of plays of the point being chosen, if it has one.

    Args:
        diagnostics: The diagnostics of the choice.
        settings: The settings of the loop, of which ``repeats`` is not None.
        noise_ratio: Noise variance over posterior variance, for a list of priors.
    """
    assert settings.repeats is not None
    deviation = diagnostics.get("standard_deviation")
    if noise_ratio is not None:
        plays = num_plays_of_ratio(noise_ratio, settings.repeats)
    elif deviation is None or settings.recipe is None:
        return diagnostics
    else:
        plays = num_plays(deviation, settings.recipe.noise, settings.repeats)
    return {**diagnostics, "plays": float(plays)}


def noise_ratio_of(acquisition: Any, x: Tensor) -> float | None:
    """Return the least noise variance over posterior variance among the survivors of a list.

    Args:
        acquisition: The acquisition on the model of the round.
        x: The point that it chose, with the columns in front of it.

    Returns:
        None for a single prior, whose standard deviation is known already.
    """
    model = model_of(acquisition)
    if not isinstance(model, CandidatesModel):
        return None
    level = getattr(getattr(acquisition, "widths", None), "level", LEVEL_OF_SURVIVORS)
    return model.least_noise_ratio(x, model.evidence.numpy_in_force(level))


def next_play(
    history: History, context: Tensor | None, first: int
) -> tuple[Tensor, str, dict[str, float]] | None:
    """Return the point to play again, its origin and diagnostics; None if one is to be chosen.

    A choice is over after its plays, if the context differs, or if its latest play failed or was
    retracted. Rounds of exploration come in between.

    Args:
        history: The history of all rounds.
        context: The context of the round, or None without contexts.
        first: The id of the first query since the last reset.
    """
    latest = _latest_play(history, first)
    if latest is None or latest.restriction is not None or "plays" not in latest.diagnostics:
        return None  # the best available point of one round need not be good in another
    known = latest.diagnostics
    play = known.get("play", 1.0) + 1.0
    if play > known["plays"]:
        return None
    if context is not None and (latest.context is None or not torch.equal(latest.context, context)):
        return None
    if history.failure(latest.id) is not None or history.retraction(latest.id) is not None:
        return None
    chosen_in = known.get("choice_round", float(latest.round_number))
    return latest.x, AGAIN, {"play": play, "plays": known["plays"], "choice_round": chosen_in}


def _latest_play(history: History, first: int) -> Query | None:
    for number in range(history.num_queries - 1, first - 1, -1):
        query = history.query(number)
        if query.origin in (CHOSEN, AGAIN):
            return query
    return None


def choices_that_end_early(history: History) -> tuple[int, int]:
    """Return how many choices there were, and how many but the last had fewer plays than planned.

    Args:
        history: The history of all rounds.
    """
    planned = played = 0
    num_choices = num_short = 0
    for query in history.queries:
        if query.origin == CHOSEN:
            num_short += played < planned
            num_choices += 1
            planned, played = int(query.diagnostics.get("plays", 1.0)), 1
        elif query.origin == AGAIN:
            played += 1
    return num_choices, num_short


def with_repeats(
    guarantee: Guarantee, history: History, factor: float, keeps_all: bool
) -> Guarantee:
    """Return a guarantee whose constants contain the number of choices and a bound on it.

    Args:
        guarantee: The guarantee of the loop.
        history: The history of all rounds.
        factor: ``repeats`` of the loop.
        keeps_all: Whether the gain is that of all rounds, because nothing was forgotten or reset.
            Otherwise, and if outcomes are missing or have a different noise, there is no bound.
    """
    num_choices, num_short = choices_that_end_early(history)
    constants = {**guarantee.constants, "repeats": factor, "choices": float(num_choices)}
    gain = guarantee.constants.get("information_gain")
    has_all = history.num_arrived == history.num_queries and not history.is_weighted
    if gain is not None and keeps_all and has_all:
        constants["most_choices"] = most_choices(gain, factor, num_short)
    return replace(guarantee, constants=constants)
