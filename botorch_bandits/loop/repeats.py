"""Rounds that play the point of an earlier choice again, as ``repeats=`` of a loop has it.

What is to come follows from the queries that were asked: the one that was chosen has the number of
its plays (``plays``) among its diagnostics, each later one its own number (``play``) and the round
of the choice (``choice_round``). So a loop that is rebuilt goes on as it would have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.confidence import Guarantee
from botorch_bandits.confidence.candidates import LEVEL_OF_SURVIVORS
from botorch_bandits.confidence.repeats import (
    check_factor,
    most_choices,
    num_plays,
    num_plays_of_ratio,
)
from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.forgetting import Forgetting, TimeVaryingKernel
from botorch_bandits.history import History, Query
from botorch_bandits.models import (
    BanditGPRecipe,
    CandidatesModel,
    CandidatesRecipe,
    DefaultCandidates,
)

CHOSEN, AGAIN = "acquisition", "repeat"
"""The origins of a chosen point and of a point that is played again."""


def check_repeats(
    repeats: Any, model: Any, acquisition: Any, forgetting: Forgetting | None, constraints: Any
) -> float | None:
    """Return the factor of a loop that plays points several times; None if it does not.

    Args:
        repeats: The factor, or None.
        model: That of the loop.
        acquisition: That of the loop.
        forgetting: That of the loop.
        constraints: That of the loop.

    Raises:
        TypeError: If it is no number.
        ValueError: If it is at most 1, or does not go with another setting.
    """
    if repeats is None:
        return None
    factor = check_factor("repeats", repeats)
    is_list = isinstance(model, CandidatesRecipe | DefaultCandidates)
    if not is_list and (not isinstance(model, BanditGPRecipe) or model.refit_every is not None):
        raise ValueError(
            f"repeats is {factor:g}, but the model is not one with a fixed kernel and noise "
            "variance, from which the number of plays follows. Pass BanditGP.with_kernel(..., "
            "noise=...) without refit_every=, a list of priors (BanditGP.with_candidates([...])), "
            "or leave repeats= out."
        )
    if not hasattr(acquisition, "acquisition_class"):
        raise ValueError(
            f"repeats is {factor:g}, but the acquisition does not say with which standard "
            "deviation a point is chosen. Pass a recipe, such as "
            "ImprovedUpperConfidenceBound.with_options(...), or leave repeats= out."
        )
    if isinstance(forgetting, TimeVaryingKernel):
        raise ValueError(
            f"repeats is {factor:g}, but with {forgetting!r} the reward of a point drifts while it "
            "is played, so that its outcomes tell less of it than repeats do. Leave repeats= out."
        )
    if constraints is not None:
        raise ValueError(
            f"repeats is {factor:g}, but with constraints= the multipliers change while a point is "
            "played, and it was chosen for those of one round. Leave repeats= out."
        )
    return factor


def with_plays(
    diagnostics: dict[str, float], model: Any, factor: float, noise_ratio: float | None = None
) -> dict[str, float]:
    """Return diagnostics with the number of plays of a point that is being chosen, if it has any.

    Args:
        diagnostics: Of the choice.
        model: That of the loop, with the noise variance of an outcome unless it is a list.
        factor: ``repeats`` of the loop.
        noise_ratio: Noise variance over posterior variance, of a list of priors.
    """
    deviation = diagnostics.get("standard_deviation")
    if noise_ratio is not None:
        plays = num_plays_of_ratio(noise_ratio, factor)
    elif deviation is None or not isinstance(model, BanditGPRecipe):
        return diagnostics
    else:
        plays = num_plays(deviation, model.noise, factor)
    return {**diagnostics, "plays": float(plays)}


def noise_ratio_of(acquisition: Any, x: Tensor) -> float | None:
    """Return the least noise variance over posterior variance that the survivors of a list have.

    Args:
        acquisition: On the model of the round.
        x: The point that it chose, with what stands in front of it.

    Returns:
        None for one prior, whose standard deviation is known already.
    """
    model = getattr(acquisition, "base_model", None)
    if not isinstance(model, CandidatesModel):
        return None
    level = getattr(getattr(acquisition, "widths", None), "level", LEVEL_OF_SURVIVORS)
    return model.least_noise_ratio(x, model.evidence.numpy_in_force(level))


def next_play(
    history: History, context: Tensor | None, rounds_before: int
) -> tuple[Tensor, str, dict[str, float]] | None:
    """Return the point to play again, its origin and diagnostics; None if one is to be chosen.

    A choice is over after its plays, with another context, and where its latest play failed or was
    retracted. Rounds of exploration come between.

    Args:
        history: Since the last reset.
        context: Of the round, or None without contexts.
        rounds_before: How many rounds there were before that.
    """
    latest = _latest_play(history)
    if latest is None or latest.restriction is not None or "plays" not in latest.diagnostics:
        return None  # the best of what there was in one round need not be good in another
    known = latest.diagnostics
    play = known.get("play", 1.0) + 1.0
    if play > known["plays"]:
        return None
    if context is not None and (latest.context is None or not torch.equal(latest.context, context)):
        return None
    if history.failure(latest.id) is not None or history.retraction(latest.id) is not None:
        return None
    chosen_in = known.get("choice_round", float(rounds_before + latest.round_number))
    return latest.x, AGAIN, {"play": play, "plays": known["plays"], "choice_round": chosen_in}


def _latest_play(history: History) -> Query | None:
    for number in range(history.num_queries - 1, -1, -1):
        query = history.query(number)
        if query.origin in (CHOSEN, AGAIN):
            return query
    return None


def choices_that_end_early(history: History) -> tuple[int, int]:
    """Return how many choices there were, and how many but the last got less plays than planned.

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
    """Return a guarantee with the number of choices and a bound on it among the constants.

    Args:
        guarantee: Of the loop.
        history: The history of all rounds.
        factor: ``repeats`` of the loop.
        keeps_all: Whether the gain is that of all rounds: nothing was forgotten or reset. There is
            no bound on the choices otherwise, nor where outcomes are missing or of another noise.
    """
    num_choices, num_short = choices_that_end_early(history)
    constants = {**guarantee.constants, "repeats": factor, "choices": float(num_choices)}
    gain = guarantee.constants.get("information_gain")
    has_all = history.num_arrived == history.num_queries and not history.is_weighted
    if gain is not None and keeps_all and has_all:
        constants["most_choices"] = most_choices(gain, factor, num_short)
    return replace(guarantee, constants=constants)


fill_in_docstrings(__name__)
