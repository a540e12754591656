"""Tuning with delays: Figures 2 and 3 of Verma, Dai and Low 2022.

Validation accuracies of a support vector machine, of logistic regression and of a small
convolutional network. Where the paper searches a box, this plays a fixed set of points of the box,
whose accuracies are tabulated once a trial; scikit-learn's digits stand in for MNIST.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.domains import Box
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.problems import ConstantDelay, Delays, PoissonDelay, load_csv, load_dataset
from botorch_bandits.random_streams import derive_seed
from papers.delayed_studies import (
    NUM_INITIAL,
    REFIT_EVERY,
    SMALLEST_NOISE,
    Hyperparameters,
    LearnedMethod,
    LearnedPlayer,
)
from papers.trials import ArmsExperiment, ArmsStudy
from papers.verma import FAMILIES, MEAN_DELAY
from papers.verma_problems import (
    ConvolutionalNetworkTuning,
    HoldOutTuning,
    LogisticRegressionTuning,
    SupportVectorTuning,
)

NUM_TUNING_ARMS = 400
"""Points of the box that a tuning chooses from."""
TARGET = "Outcome"
"""The column of the diabetes file with the class."""

DELAYS: dict[str, Delays] = {
    "poisson": PoissonDelay(MEAN_DELAY),
    "fixed": ConstantDelay(MEAN_DELAY),
}


@dataclass(frozen=True)
class Task:
    """What is tuned, and where the paper shows it.

    Attributes:
        name: For files.
        title: In words.
        problem: From features, labels and seed to the problem.
        load: Returns features and labels.
        figures: Of the paper, by family and delays.
    """

    name: str
    title: str
    problem: type[HoldOutTuning]
    load: Callable[[], tuple[NDArray[Any], NDArray[Any]]]
    figures: dict[tuple[str, str], str]


def tuning(
    diabetes: Path | None = None, num_trials: int = 10, num_rounds: int = 50, seed: int = 0
) -> list[ArmsExperiment]:
    """Return four panels a task: upper confidence bounds and Thompson sampling, both delays.

    Args:
        diabetes: The Pima Indians diabetes data, a CSV file with a header and the class in the
            column ``Outcome``. Without it there are no panels of the support vector machine, and a
            warning says so.
        num_trials: Splits of the data, each with starting weights of its own.
        num_rounds: Rounds each.
        seed: Seeds splits, trainings, initial queries, delays and draws; a trial's are the same for
            every method.

    Raises:
        ImportError: If scikit-learn is not installed, or pandas with ``diabetes``.
        ValueError: If the file cannot be read or has no such column.
    """
    experiments = []
    for task in _tasks(diabetes):
        data = task.load()
        # accuracies are tabulated once a trial, for all panels of the task
        box = task.problem(*data).box
        points = points_of(box, NUM_TUNING_ARMS, seed)
        unit = (points - box.bounds[0]) / (box.bounds[1] - box.bounds[0])
        player = LearnedPlayer(unit, partial(tabulate_accuracies, task.problem, data, points, seed))
        experiments += [
            _panel(task, family, name, player, num_trials, num_rounds, seed)
            for family in FAMILIES
            for name in DELAYS
        ]
    return experiments


def points_of(box: Box, num_points: int, seed: int) -> Tensor:
    """Return points spread evenly over a box (a scrambled Sobol sequence), ``num_points x d``.

    Args:
        box: Its integer dimensions get whole numbers.
        num_points: How many.
        seed: Seeds the scrambling.
    """
    engine = SobolEngine(box.dim, scramble=True, seed=derive_seed(seed, 0, "arms") % 2**31)
    low, high = box.bounds
    points = low + (high - low) * engine.draw(num_points, dtype=torch.float64)
    for dim in box.integer_dims:
        points[:, dim] = points[:, dim].round()
    return points


def tabulate_accuracies(
    problem_class: type[HoldOutTuning],
    data: tuple[NDArray[Any], NDArray[Any]],
    points: Tensor,
    seed: int,
    trial: int,
) -> Tensor:
    """Return the accuracies of a trial at some points.

    Args:
        problem_class: What is tuned.
        data: Features and labels.
        points: ``n x d`` points of its box.
        seed: Of the experiment.
        trial: Has a split of its own.
    """
    problem = problem_class(*data, seed=derive_seed(seed, trial, "tuning"))
    return torch.tensor([problem(x) for x in points], dtype=torch.float64)


def _tasks(diabetes: Path | None) -> list[Task]:
    def shown(number: int, letters: str) -> dict[tuple[str, str], str]:
        places = [(family, delays) for family in FAMILIES for delays in DELAYS]
        return {p: f"Figure {number}{c}" for p, c in zip(places, letters, strict=True)}

    tasks = [
        Task(
            "logistic",
            "logistic regression",
            LogisticRegressionTuning,
            partial(load_dataset, "breast-cancer"),
            shown(3, "abcd"),
        ),
        Task(
            "cnn",
            "convolutional network",
            ConvolutionalNetworkTuning,
            partial(load_dataset, "digits"),
            shown(2, "efgh"),
        ),
    ]
    if diabetes is None:
        warnings.warn(
            "the support vector machine is left out: it needs --data with the Pima Indians "
            f"diabetes data, a CSV file with a header and the class in the column {TARGET!r}.",
            UserWarning,
            stacklevel=3,
        )
        return tasks
    machine = Task(
        "svm",
        "support vector machine",
        SupportVectorTuning,
        partial(load_csv, diabetes, TARGET),
        shown(2, "abcd"),
    )
    return [machine, *tasks]


def _panel(
    task: Task,
    family: str,
    delays: str,
    player: LearnedPlayer,
    num_trials: int,
    num_rounds: int,
    seed: int,
) -> ArmsExperiment:
    methods = _methods(family, DELAYS[delays])
    words = {"poisson": f"Poisson({MEAN_DELAY}) delays", "fixed": f"delays of {MEAN_DELAY}"}

    def make_study(first: int, count: int) -> ArmsStudy:
        # the player has the kernel, and makes the tables when they are needed
        nothing = torch.empty(0, 0, dtype=torch.float64)
        values = torch.empty(count, 0, dtype=torch.float64)
        return ArmsStudy(nothing, values, 0.0, num_rounds, seed, first)

    return ArmsExperiment(
        name=f"verma-tuning-{task.name}-{family.lower()}-{delays}",
        title=f"{task.title}, {words[delays]}",
        published=f"{task.figures[family, delays]}: {methods[0].name} is best",
        num_trials=num_trials,
        num_rounds=num_rounds,
        make_study=make_study,
        make_methods=lambda study: methods,
        player=player,
        chunk=1,
        settings={
            "seed": seed,
            "num_arms": len(player.choices),
            "num_initial": NUM_INITIAL,
            "refit_every": REFIT_EVERY,
            "start": repr(Hyperparameters()),
            "smallest_noise": SMALLEST_NOISE,
            "mean_delay": MEAN_DELAY,
            "max_delay": "2 * mean_delay",
            "minimum": 0.0,
            "width": 1.0,
        },
    )


def _methods(family: str, delays: Delays) -> list[LearnedMethod]:
    """The paper's three, and censoring with hyperparameters learned from pseudo-values too."""
    censored, ignored, hallucinated = FAMILIES[family]
    waiting = Censored(minimum=0.0, outcome_bound=1.0, max_delay=2 * MEAN_DELAY, window="all")
    name, recipe = censored
    ways: list[tuple[str, Any, Feedback, bool]] = [
        (name, recipe, waiting, False),
        (f"{name}, fitted to all", recipe, waiting, True),
        (*ignored, Ignored(), False),
        (*hallucinated, Hallucinated(), False),
    ]
    noise = Hyperparameters().noise
    return [
        LearnedMethod(n, r, noise, delays=delays, feedback=f, learns_from_pseudo_values=p)
        for n, r, f, p in ways
    ]
