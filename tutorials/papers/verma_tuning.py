"""Tuning with delays: Figures 2 and 3 of Verma, Dai and Low 2022.

The rewards are validation accuracies of a support vector machine, of logistic regression and of a
small convolutional network. The settings are those of the authors' released code, which plays the
support vector machine: ranges are searched linearly and features are not rescaled, five common
initial points precede 100 rounds, delays of exactly 10 have ``m = 10``, and methods other than the
paper's choose uniformly until two outcomes have arrived. With the *common start*, they follow the
model as soon as the initial points have been asked, as the paper's methods do.

The support vector machine is played in its box, with the code's split of the rows. The other two
are played on fixed points of their boxes, and scikit-learn's digits replace MNIST. Regret is
relative to an accuracy of 1, so it is the validation error.

Figure 2a has two methods in addition to those of the paper: the common start, and censored feedback
that is also fitted to pseudo-values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.quasirandom import SobolEngine

from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    GPThompsonSampling,
    GPUpperConfidenceBound,
)
from botorch_bandits.domains import Arms, Box
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.problems import ConstantDelay, Delays, PoissonDelay, load_csv, load_dataset
from botorch_bandits.random_streams import derive_seed
from papers.delayed_studies import NUM_INITIAL, REFIT_EVERY, SMALLEST_NOISE, Hyperparameters
from papers.results import write_csv
from papers.trials import ArmsExperiment, ArmsStudy, Curves
from papers.tuning_studies import TunedFunction, TuningMethod, TuningPlayer, remembered
from papers.verma_problems import (
    ConvolutionalNetworkTuning,
    HoldOutTuning,
    LogisticRegressionTuning,
    StratifiedSupportVectorTuning,
)

NUM_TUNING_ARMS = 400
"""The number of points of the box among which a tuning chooses."""
TARGET = "Outcome"
"""The column of the diabetes file that has the class."""

MEAN_DELAY = 10
DELAYS: dict[str, tuple[Delays, int]] = {
    "poisson": (PoissonDelay(MEAN_DELAY), 2 * MEAN_DELAY),
    "fixed": (ConstantDelay(MEAN_DELAY), MEAN_DELAY),
}
"""The delays and ``m``."""

WIDTH = 1.0
UNIFORM_UNTIL = 2
"""Methods other than the paper's choose uniformly until this many outcomes have arrived."""

NUM_ROUNDS = NUM_INITIAL + 100
REPORTED_ROUNDS = (NUM_INITIAL + 30, NUM_INITIAL + 100)
"""Further rounds at which simple regrets are tabulated."""

FAMILIES: dict[str, tuple[AcquisitionRecipe, tuple[str, str, str]]] = {
    "UCB": (
        GPUpperConfidenceBound.with_options(width=WIDTH),
        ("GP-UCB-SDF", "GP-UCB", "GP-BUCB"),
    ),
    "TS": (GPThompsonSampling.with_options(width=WIDTH), ("GP-TS-SDF", "asy-TS", "GP-BTS")),
}
"""The acquisition, and the names with censored, ignored and hallucinated feedback."""

PUBLISHED: Mapping[str, bool] = {"standardizes": False, "logarithmic": False}
"""The options of the problems, as in the released code."""


@dataclass(frozen=True)
class Task:
    """A model to tune, and the figure that shows it.

    Attributes:
        name: A name for files.
        title: A title in words.
        problem: Maps features, labels and a seed to the problem.
        load: Returns features and labels.
        letters: The letters of the figure's panels, for both families and delays.
        num_trials: The number of trials.
        in_box: Whether to play the box rather than points of it.
        one_split: Whether all trials have the same split of the rows.
    """

    name: str
    title: str
    problem: Callable[..., HoldOutTuning]
    load: Callable[[], tuple[NDArray[Any], NDArray[Any]]]
    figure: str
    num_trials: int
    in_box: bool = False
    one_split: bool = False
    options: Mapping[str, bool] = field(default_factory=lambda: PUBLISHED)

    def player(self, seed: int) -> TuningPlayer:
        """Return the player of the task, which makes functions when they are needed.

        Args:
            seed: The seed of the experiment.
        """
        data = self.load()
        problem = partial(self.problem, **self.options)
        if self.in_box:
            return TuningPlayer(unit_box(2), _one_function(problem(*data)))
        box = problem(*data).box
        points = points_of(box, NUM_TUNING_ARMS, seed)
        unit = (points - box.bounds[0]) / (box.bounds[1] - box.bounds[0])
        split = None if self.one_split else seed
        make = partial(function_of_trial, problem, data, points, unit, split)
        return TuningPlayer(Arms(unit), make)


def tuning(
    diabetes: Path | None = None,
    num_trials: int | None = None,
    num_rounds: int = NUM_ROUNDS,
    seed: int = 0,
) -> list[ArmsExperiment]:
    """Return four panels per task: upper confidence bounds and Thompson sampling, both delays.

    Args:
        diabetes: The Pima Indians diabetes data, a CSV file with a header and the class in the
            column ``Outcome``. If omitted, the panels of the support vector machine are left out
            with a warning.
        num_trials: The number of trials, which differ in initial points and delays, and for the
            other tasks also in the split of the data and the starting weights; the task's number if
            omitted.
        num_rounds: The number of rounds of each, including initial points.
        seed: Seeds splits, trainings, initial queries, delays and draws; a trial's are the same for
            every method.

    Raises:
        ImportError: If scikit-learn is not installed, or pandas with ``diabetes``.
        ValueError: If the file cannot be read or lacks that column.
    """
    experiments = []
    for task in tuning_tasks(diabetes):
        player = task.player(seed)
        letters = iter(task.figure[1:])
        for family in FAMILIES:
            for delays in DELAYS:
                names = FAMILIES[family][1]
                varied = task.in_box and (family, delays) == ("UCB", "poisson")
                words = "Poisson(10) delays" if delays == "poisson" else "delays of 10"
                experiments.append(
                    panel(
                        f"verma-tuning-{task.name}-{family.lower()}-{delays}",
                        f"{task.title}, {words}",
                        f"Figure {task.figure[0]}{next(letters)}: {names[0]} is best",
                        player,
                        (variants if varied else compared)(family, delays),
                        num_trials or task.num_trials,
                        num_rounds,
                        seed,
                    )
                )
    return experiments


def report(
    panels: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]], folder: Path
) -> None:
    """Write ``rounds.csv``, and print its rows, which are not in the table.

    Args:
        panels: The panels that were played.
        curves: The results of each, by method.
        folder: The folder of the experiment.
    """
    rows = tabulate_rounds(panels, curves)
    write_csv(folder / "rounds.csv", rows)
    for row in rows:
        print(f"{row['experiment']}, round {row['round']}, {row['method']}: ", end="")
        print(f"{row['mean']:.4g}, {row['more']:+.3g} than {row['than']}")


def tabulate_rounds(
    panels: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> list[dict[str, Any]]:
    """Return simple regrets at some rounds, and their excess over the first method's.

    Args:
        panels: The panels that were played.
        curves: The results of each, by method.
    """
    rows = []
    for experiment, found in zip(panels, curves, strict=True):
        first = next(iter(found))
        for number in sorted({min(t, experiment.num_rounds) for t in REPORTED_ROUNDS}):
            for name in found:
                own, known = (found[n].simple_regret for n in (name, first))
                assert own is not None
                assert known is not None
                shown = own[:, number - 1]
                more = shown - known[:, number - 1]
                count = len(shown)
                rows.append(
                    {
                        "experiment": experiment.name,
                        "method": name,
                        "round": number,
                        "trials": count,
                        "mean": float(shown.mean()),
                        "standard_error": float(shown.std() / count**0.5) if count > 1 else "",
                        "than": first,
                        "more": float(more.mean()),
                        "more_standard_error": float(more.std() / count**0.5) if count > 1 else "",
                    }
                )
    return rows


def points_of(box: Box, num_points: int, seed: int) -> Tensor:
    """Return points spread evenly over a box (a scrambled Sobol sequence), ``num_points x d``.

    Args:
        box: The box, whose integer dimensions get whole numbers.
        num_points: The number of points.
        seed: Seeds the scrambling.
    """
    engine = SobolEngine(box.dim, scramble=True, seed=derive_seed(seed, 0, "arms") % 2**31)
    low, high = box.bounds
    points = low + (high - low) * engine.draw(num_points, dtype=torch.float64)
    for dim in box.integer_dims:
        points[:, dim] = points[:, dim].round()
    return points


def tabulate_accuracies(
    problem_class: Callable[..., HoldOutTuning],
    data: tuple[NDArray[Any], NDArray[Any]],
    points: Tensor,
    seed: int,
    trial: int,
) -> Tensor:
    """Return the accuracies of a trial at some points.

    Args:
        problem_class: The class of the problem.
        data: Features and labels.
        points: ``n x d`` points of its box.
        seed: The seed of the experiment.
        trial: The number of the trial, which has its own split.
    """
    problem = problem_class(*data, seed=derive_seed(seed, trial, "tuning"))
    return torch.tensor([problem(x) for x in points], dtype=torch.float64)


def function_of_trial(
    problem_class: Callable[..., HoldOutTuning],
    data: tuple[NDArray[Any], NDArray[Any]],
    points: Tensor,
    unit: Tensor,
    seed: int | None,
    trial: int,
) -> TunedFunction:
    """Return the accuracies of a trial as a function on points of the unit cube.

    Args:
        problem_class: The class of the problem.
        data: Features and labels.
        points: ``n x d`` points of its box.
        unit: The same points in the unit cube.
        seed: The seed of the experiment; None to share one split among all trials.
        trial: The number of the trial, which has its own split.
    """
    own = 0 if seed is None else derive_seed(seed, trial, "tuning")
    problem = problem_class(*data, seed=own)
    numbers = {tuple(x): i for i, x in enumerate(unit.tolist())}
    reward = remembered(lambda x: problem(points[numbers[x]]))
    return TunedFunction(reward, best=1.0, worst=0.0)


def unit_box(dim: int) -> Box:
    """Return the unit cube.

    Args:
        dim: Its dimension.
    """
    return Box(torch.tensor([[0.0] * dim, [1.0] * dim], dtype=torch.float64))


def _one_function(problem: HoldOutTuning) -> Callable[[int], TunedFunction]:
    """Return the same function for every trial."""
    low, high = problem.box.bounds

    def reward(x: tuple[float, ...]) -> float:
        point = low + (high - low) * torch.tensor(x, dtype=torch.float64)
        return problem(torch.minimum(point, high))  # rounding may lead outside

    tuned = TunedFunction(remembered(reward), best=1.0, worst=0.0)
    return lambda trial: tuned


def tuning_tasks(diabetes: Path | None) -> list[Task]:
    """Return the tasks, with a warning if the data of one are missing.

    Args:
        diabetes: See :func:`tuning`.
    """
    tasks = [
        Task(
            "logistic",
            "logistic regression",
            LogisticRegressionTuning,
            partial(load_dataset, "breast-cancer"),
            "3abcd",
            60,
        ),
        Task(
            "cnn",
            "convolutional network",
            ConvolutionalNetworkTuning,
            partial(load_dataset, "digits"),
            "2efgh",
            10,
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
    return [support_vector_machine(diabetes), *tasks]


def support_vector_machine(diabetes: Path, **others: Any) -> Task:
    """Return the task of Figures 2a to 2d.

    Args:
        diabetes: The data.
        others: Attributes that differ from the default ones.
    """
    given: dict[str, Any] = {
        "name": "svm",
        "title": "support vector machine",
        "problem": StratifiedSupportVectorTuning,
        "load": partial(load_csv, diabetes, TARGET),
        "figure": "2abcd",
        "num_trials": 10,
        "in_box": True,
        "one_split": True,
    }
    return Task(**{**given, **others})


def panel(
    name: str,
    title: str,
    published: str,
    player: TuningPlayer,
    methods: list[TuningMethod],
    num_trials: int,
    num_rounds: int,
    seed: int,
) -> ArmsExperiment:
    """Return a panel.

    Args:
        name: A name for files.
        title: A title in words.
        published: The statement of the paper.
        player: The player of the task.
        methods: The methods that are compared.
        num_trials: The number of trials.
        num_rounds: The number of rounds of each.
        seed: The seed of the experiment.
    """

    def make_study(first: int, count: int) -> ArmsStudy:
        # the player has the kernel and makes functions when they are needed
        nothing = torch.empty(0, 0, dtype=torch.float64)
        values = torch.empty(count, 0, dtype=torch.float64)
        return ArmsStudy(nothing, values, 0.0, num_rounds, seed, first)

    return ArmsExperiment(
        name=name,
        title=title,
        published=published,
        num_trials=num_trials,
        num_rounds=num_rounds,
        make_study=make_study,
        make_methods=lambda study: methods,
        player=player,
        chunk=1,
        settings={
            "seed": seed,
            "num_arms": len(player.domain.choices) if isinstance(player.domain, Arms) else "box",
            "box": "linear, features as they come, stratified split of the support vector machine",
            "num_initial": NUM_INITIAL,
            "refit_every": REFIT_EVERY,
            "start": repr(Hyperparameters()),
            "smallest_noise": SMALLEST_NOISE,
            "mean_delay": MEAN_DELAY,
            "max_delay": "twice the mean of Poisson delays, 10 with delays of 10",
            "minimum": 0.0,
            "width": "1 + sum of predictive deviations as they are; draws without it",
            "uniform_until": UNIFORM_UNTIL,
        },
    )


def censored(delays: str) -> Censored:
    """Return the feedback of the released code, with which draws do not use the sum.

    Args:
        delays: The name of the delays.
    """
    m = DELAYS[delays][1]
    return Censored(minimum=0.0, outcome_bound=1.0, max_delay=m, **Censored.as_published)


def method(name: str, family: str, delays: str, feedback: Feedback, **options: Any) -> TuningMethod:
    """Return a method.

    Args:
        name: The name in the legend.
        family: The family of its acquisition.
        delays: The name of the delays.
        feedback: Its treatment of pending queries.
        options: Further attributes of :class:`~papers.tuning_studies.TuningMethod`.
    """
    waits, acquisition = DELAYS[delays][0], FAMILIES[family][0]
    noise = Hyperparameters().noise
    return TuningMethod(name, acquisition, noise, delays=waits, feedback=feedback, **options)


def compared(family: str, delays: str, **options: Any) -> list[TuningMethod]:
    """Return the paper's three methods, all with the same options.

    Args:
        family: The family of the acquisition.
        delays: The name of the delays.
        options: See :func:`method`.
    """
    waiting, ignoring, hallucinating = FAMILIES[family][1]
    late = {"uniform_until": UNIFORM_UNTIL, **options}
    return [
        method(waiting, family, delays, censored(delays), **options),
        method(ignoring, family, delays, Ignored(), **late),
        method(hallucinating, family, delays, Hallucinated(), **late),
    ]


def variants(family: str, delays: str) -> list[TuningMethod]:
    """Return these methods, censoring that also learns from pseudo-values, and the common start.

    Args:
        family: The family of the acquisition.
        delays: The name of the delays.
    """
    published = compared(family, delays)
    waiting, ignoring, hallucinating = FAMILIES[family][1]
    way = censored(delays)
    return [
        published[0],
        method(f"{waiting}, fitted to all", family, delays, way, learns_from_pseudo_values=True),
        *published[1:],
        method(f"{ignoring}, common start", family, delays, Ignored()),
        method(f"{hallucinating}, common start", family, delays, Hallucinated()),
    ]
