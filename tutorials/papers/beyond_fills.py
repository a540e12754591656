"""What pending queries are filled in with: the minimum, something else, or nothing.

There are two problems with outcomes that arrive after Poisson distributed delays. Each is played
with given and with learned hyperparameters:

* the functions of :mod:`papers.verma`, draws of a Gaussian process on 1000 points of [0, 1],
  scaled to [0, 1]; the learned lengthscale may be as small as theirs,
* the accuracy of a support vector machine on scikit-learn's breast cancer data, on 400 points of
  the box of its two parameters.

All methods are upper confidence bounds of width 1. With censored feedback, the width includes the
sum over pending queries, as the loop computes it. Within a panel, all methods play the same
functions, delays and initial points.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.problems import PoissonDelay, load_dataset
from papers.delayed_studies import (
    NUM_INITIAL,
    REFIT_EVERY,
    SMALLEST_NOISE,
    DelayedMethod,
    DelayedPlayer,
    Hyperparameters,
    LearnedMethod,
    LearnedPlayer,
)
from papers.trials import ArmsExperiment, ArmsStudy
from papers.verma import (
    LAM,
    LENGTHSCALE,
    MEAN_DELAY,
    NUM_ARMS,
    THEORY_LAM,
    UCB,
    draw_rewards,
    process_on_arms,
)
from papers.verma_problems import SupportVectorTuning
from papers.verma_tuning import NUM_TUNING_ARMS, points_of, tabulate_accuracies

MAX_DELAY = 2 * MEAN_DELAY
LENGTHSCALES = (0.005, 2.0)
"""Bounds of the learned lengthscale; that of the functions is 0.02."""

ROUNDS, TUNING_ROUNDS = 100, 50
NUM_TRIALS, NUM_SPLITS = 50, 20


def poisson(mean: float, num_delays: int) -> tuple[float, ...]:
    """Return the probabilities of delays 0, 1, ..., with the remaining mass on the last one.

    Args:
        mean: The mean of the delays.
        num_delays: The number of probabilities.
    """
    known = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(num_delays)]
    return (*known[:-1], 1.0 - math.fsum(known[:-1]))


def ways() -> list[tuple[str, Feedback]]:
    """Return the name and the feedback of each method."""
    stated = {"delay_distribution": poisson(MEAN_DELAY, 4 * MEAN_DELAY)}
    fills: list[tuple[str, str, dict[str, Any]]] = [
        ("minimum", "minimum", {}),
        ("soft", "soft", {}),
        ("soft, stated delays", "soft", stated),
        ("middle", "middle", {}),
        ("lower bound", "lower_bound", {}),
    ]
    return [
        *((name, Censored(0.0, 1.0, MAX_DELAY, fill=fill, **more)) for name, fill, more in fills),
        ("hallucinated", Hallucinated()),
        ("ignored", Ignored()),
    ]


def fills(
    num_trials: int | None = None, num_rounds: int | None = None, seed: int = 0
) -> list[ArmsExperiment]:
    """Return the panels: functions with given and learned hyperparameters, then the machine.

    Args:
        num_trials: The number of functions, or of splits of the data; 50 and 20 if omitted.
        num_rounds: The number of rounds of each; 100 and 50 if omitted.
        seed: Seeds functions, splits, delays and initial points; a trial's are the same for every
            method.

    Raises:
        ImportError: If scikit-learn is not installed.
    """
    choices, kernel = process_on_arms()
    tables = partial(_one_draw, seed)
    small = Hyperparameters(lengthscale=0.1, lengthscales=LENGTHSCALES)
    data = load_dataset("breast-cancer")
    box = SupportVectorTuning(*data).box
    points = points_of(box, NUM_TUNING_ARMS, seed)
    unit = (points - box.bounds[0]) / (box.bounds[1] - box.bounds[0])
    accuracies = partial(tabulate_accuracies, SupportVectorTuning, data, points, seed)
    tuned: dict[int, Tensor] = {}  # the panels share the tabulated values
    size = num_trials, num_rounds, seed
    return [
        _synthetic("given", LAM, DelayedPlayer(choices, kernel), *size),
        _synthetic("theory", THEORY_LAM, DelayedPlayer(choices, kernel), *size),
        _learned(
            "learned",
            "functions, hyperparameters learned",
            LearnedPlayer(choices, tables, start=small, as_published=False),
            (NUM_TRIALS, ROUNDS),
            *size,
        ),
        *(
            _learned(
                f"svm-{name}",
                f"support vector machine, hyperparameters {name}",
                LearnedPlayer(
                    unit, accuracies, tuned, learns=name == "learned", as_published=False
                ),
                (NUM_SPLITS, TUNING_ROUNDS),
                *size,
            )
            for name in ("given", "learned")
        ),
    ]


def _one_draw(seed: int, trial: int) -> Tensor:
    return draw_rewards(seed, trial, 1)[0]


_SETTINGS: dict[str, Any] = {
    "width": 1.0,
    "minimum": 0.0,
    "outcome_bound": 1.0,
    "mean_delay": MEAN_DELAY,
    "max_delay": MAX_DELAY,
}


def _synthetic(
    name: str,
    lam: float,
    player: DelayedPlayer,
    num_trials: int | None,
    num_rounds: int | None,
    seed: int,
) -> ArmsExperiment:
    rounds = num_rounds or ROUNDS
    delays = PoissonDelay(MEAN_DELAY)
    methods = [DelayedMethod(n, UCB, lam, delays=delays, feedback=f) for n, f in ways()]

    def make_study(first: int, count: int) -> ArmsStudy:
        # the loop plays the trials and has its own kernel
        no_matrix = torch.empty(0, 0, dtype=torch.float64)
        return ArmsStudy(no_matrix, draw_rewards(seed, first, count), 0.0, rounds, seed, first)

    return ArmsExperiment(
        name=f"beyond-fills-{name}",
        title=f"functions, hyperparameters given, lam = {lam:g}",
        published="",
        num_trials=num_trials or NUM_TRIALS,
        num_rounds=rounds,
        make_study=make_study,
        make_methods=lambda study: methods,
        player=player,
        settings={
            **_SETTINGS,
            "seed": seed,
            "num_arms": NUM_ARMS,
            "lengthscale": LENGTHSCALE,
            "lam": lam,
        },
    )


def _learned(
    name: str,
    title: str,
    player: LearnedPlayer,
    full_size: tuple[int, int],
    num_trials: int | None,
    num_rounds: int | None,
    seed: int,
) -> ArmsExperiment:
    rounds = num_rounds or full_size[1]
    start, delays = player.start, PoissonDelay(MEAN_DELAY)
    methods = [LearnedMethod(n, UCB, start.noise, delays=delays, feedback=f) for n, f in ways()]

    def make_study(first: int, count: int) -> ArmsStudy:
        # the player has the kernel and makes tables when they are needed
        nothing = torch.empty(0, 0, dtype=torch.float64)
        values = torch.empty(count, 0, dtype=torch.float64)
        return ArmsStudy(nothing, values, 0.0, rounds, seed, first)

    return ArmsExperiment(
        name=f"beyond-fills-{name}",
        title=title,
        published="",
        num_trials=num_trials or full_size[0],
        num_rounds=rounds,
        make_study=make_study,
        make_methods=lambda study: methods,
        player=player,
        chunk=1,
        settings={
            **_SETTINGS,
            "seed": seed,
            "num_arms": len(player.choices),
            "num_initial": NUM_INITIAL,
            "start": repr(start),
            "lengthscales": list(start.lengthscales),
            "learns": player.learns,
            "refit_every": REFIT_EVERY,
            "smallest_noise": SMALLEST_NOISE,
        },
    )
