"""The experiments with contexts and delays of Verma, Dai and Low 2022: Figure 4.

*SVM tasks*: 50 classification tasks with the accuracies of 288 SVM configurations; six
meta-features of a task are its context. *Growing data*: an SVM is tuned on 20 growing parts of a
data set, whose index is the context. Every context stays for 30 rounds. Outcomes are accuracies,
without noise, and their known minimum is 0.

As in the paper, the kernel is squared exponential and ``beta_t = 1``. As in the authors' released
code for tuning without contexts, deviations include the noise, the width of GP-UCB-SDF includes
their unscaled sum, draws are not scaled, C and gamma are spaced linearly, and features are not
rescaled.

The paper refits hyperparameters every 10 rounds. Here, they are fitted once to random entries of
the table (*given*), or to the outcomes that have arrived (*learned*): every 10 rounds up to round
100, every 20 up to 200, and every 50 up to 600.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor

from botorch_bandits.acquisition import GPThompsonSampling, GPUpperConfidenceBound
from botorch_bandits.feedback import Censored, Feedback, Hallucinated, Ignored
from botorch_bandits.problems import PoissonDelay
from botorch_bandits.random_streams import generator
from papers.contextual_studies import (
    LENGTHSCALES,
    SMALLEST_NOISE,
    VARIANCES,
    ContextualMethod,
    ContextualPlayer,
    ContextualStudy,
    ContextualTask,
    Hyperparameters,
    growing_accuracies,
    growing_choices,
    growing_contexts,
    load_growing,
    load_tasks,
)
from papers.trials import ArmsExperiment, ArmsStudy

WIDTH = 1.0
DELAY, MAX_DELAY = 3, 6
ROUNDS_A_CONTEXT = 30
REFIT_ROUNDS = (*range(10, 101, 10), *range(120, 201, 20), *range(250, 601, 50))
START_LENGTHSCALE, START_VARIANCE, START_NOISE = 0.5, 0.25, 0.01

UCB = GPUpperConfidenceBound.with_options(width=WIDTH)
TS = GPThompsonSampling.with_options(width=WIDTH)
FAMILIES = {
    "UCB": (UCB, ("GP-UCB-SDF", "GP-UCB", "GP-BUCB")),
    "TS": (TS, ("GP-TS-SDF", "asy-TS", "GP-BTS")),
}
"""The acquisition, and the names with censored, ignored and hallucinated feedback."""


def contextual(
    *files: Path,
    num_trials: int = 10,
    num_rounds: int | None = None,
    seed: int = 0,
    chunk: int = 5,
    logarithmic: bool = False,
    standardizes: bool = False,
) -> list[ArmsExperiment]:
    """Return the panels, four per data file.

    Args:
        files: The tasks (``.npz``), the growing data (CSV) or both; without one of them its panels
            are left out, with a warning.
        num_trials: The number of orders of the tasks, or of the rows of the data.
        num_rounds: The number of rounds of each; 30 per context if omitted.
        seed: Seeds orders, delays and draws; a trial's are the same for every method.
        chunk: Trials per file; results do not depend on it.
        logarithmic: For the growing data; see
            :func:`~papers.contextual_studies.growing_accuracies`.
        standardizes: For the growing data, likewise.

    Raises:
        ValueError: If a file is of another kind, two files are of the same kind, or a file cannot
            be used.
    """
    kinds = {".npz": "SVM tasks", ".csv": "growing data"}
    given: dict[str, Path] = {}
    for file in files:
        kind = kinds.get(file.suffix.lower())
        if kind is None or kind in given:
            raise ValueError(
                f"--data has {', '.join(map(str, files))}; give an .npz file with the SVM tasks, a "
                "CSV file with the growing data, or one of each."
            )
        given[kind] = file
    experiments = []
    growing = partial(_read_growing, logarithmic=logarithmic, standardizes=standardizes)
    sources: tuple[tuple[str, str, str, str, Callable[[Path], Source]], ...] = (
        ("SVM tasks", "tasks", "4a", "4b", _read_tasks),
        ("growing data", "growing", "4c", "4d", growing),
    )
    grid = f"{'logarithmic' if logarithmic else 'linear'}, features "
    grid += "standardized" if standardizes else "as they come"
    for kind, short, *figures, read in sources:
        if kind not in given:
            warnings.warn(f"no file with the {kind}: those panels are left out.", stacklevel=2)
            continue
        make_task, num_contexts, dim, digest = read(given[kind])
        rounds = num_rounds or ROUNDS_A_CONTEXT * num_contexts
        start = Hyperparameters((START_LENGTHSCALE,) * dim, START_VARIANCE, START_NOISE)
        for learned in (False, True):
            for family, figure in zip(FAMILIES, figures, strict=True):
                suffix, fits = (["learned"], "learned") if learned else ([], "given")
                experiments.append(
                    ArmsExperiment(
                        name="-".join(("verma", short, family.lower(), "poisson", *suffix)),
                        title=f"{kind}, Poisson({DELAY}) delays, {fits}",
                        published=f"Figure {figure}: {FAMILIES[family][1][0]} has the least "
                        "cumulative regret",
                        num_trials=num_trials,
                        num_rounds=rounds,
                        make_study=partial(_study, make_task, rounds, seed),
                        make_methods=partial(_given, _methods(family, learned)),
                        player=ContextualPlayer(start),
                        chunk=chunk,
                        settings=_settings(seed, digest, learned, grid),
                    )
                )
    return experiments


def _given(methods: list[ContextualMethod], study: ArmsStudy) -> list[ContextualMethod]:
    return methods


def _study(
    make_task: Callable[[int, int], ContextualTask], rounds: int, seed: int, first: int, count: int
) -> ContextualStudy:
    nothing = torch.empty(count, 0, dtype=torch.float64)  # tasks have their own tables
    task = partial(make_task, rounds)
    return ContextualStudy(nothing[:0], nothing, 0.0, rounds, seed, first, make_task=task)


def _methods(family: str, learned: bool) -> list[ContextualMethod]:
    acquisition, names = FAMILIES[family]
    censored = Censored(minimum=0.0, outcome_bound=1.0, max_delay=MAX_DELAY, window="all")
    ways: list[Feedback] = [censored, Ignored(), Hallucinated()]
    return [
        ContextualMethod(
            name,
            acquisition,
            torch.nan,  # the noise is fitted
            draws=family == "TS",
            width=WIDTH,
            delays=PoissonDelay(DELAY),
            feedback=way,
            refit_rounds=REFIT_ROUNDS if learned else (),
        )
        for name, way in zip(names, ways, strict=True)
    ]


def _settings(seed: int, digest: str, learned: bool, grid: str) -> dict[str, object]:
    return {
        "seed": seed,
        "data": digest,
        "width": WIDTH,
        "window": "all",
        "sum": "of predictive deviations as they are; not of draws",
        "grid": grid,
        "fitted_to": "outcomes",
        "delay": DELAY,
        "max_delay": MAX_DELAY,
        "rounds_a_context": ROUNDS_A_CONTEXT,
        "start": [START_LENGTHSCALE, START_VARIANCE, START_NOISE],
        "fitted_between": [LENGTHSCALES, VARIANCES, SMALLEST_NOISE],
        "refit_rounds": list(REFIT_ROUNDS)
        if learned
        else f"{ContextualPlayer.num_sampled} entries",
    }


Source = tuple[Callable[[int, int], ContextualTask], int, int, str]
"""Makes a trial's task from rounds and seed; number of contexts; dimensions; data digest."""


def _read_tasks(path: Path) -> Source:
    contexts, choices, values = load_tasks(path)

    def make(num_rounds: int, seed: int) -> ContextualTask:
        order = torch.randperm(len(contexts), generator=generator(seed, 0, "order of tasks"))
        return ContextualTask(contexts, choices, values, _in_blocks(order, num_rounds))

    dim = contexts.shape[1] + choices.shape[1]
    return make, len(contexts), dim, _digest(contexts, choices, values)


def _read_growing(path: Path, logarithmic: bool, standardizes: bool) -> Source:
    inputs, labels = load_growing(path)
    contexts, choices = growing_contexts(), growing_choices()

    @cache
    def accuracies(seed: int, num_parts: int) -> Tensor:
        return growing_accuracies(inputs, labels, seed, logarithmic, standardizes, num_parts)

    def make(num_rounds: int, seed: int) -> ContextualTask:
        sequence = _in_blocks(torch.arange(len(contexts)), num_rounds)
        met = max(sequence) + 1  # short runs do not need the largest parts
        return ContextualTask(contexts[:met], choices, accuracies(seed, met), sequence)

    dim = contexts.shape[1] + choices.shape[1]
    classes = ",".join(map(str, labels.tolist()))
    return make, len(contexts), dim, _digest(torch.from_numpy(inputs), classes, choices)


def _in_blocks(order: Tensor, num_rounds: int) -> tuple[int, ...]:
    """Return each context for 30 rounds, starting over if there are more rounds."""
    blocks = order.repeat_interleave(ROUNDS_A_CONTEXT)
    return tuple(blocks[torch.arange(num_rounds) % len(blocks)].tolist())


def _digest(*parts: Tensor | str) -> str:
    known = hashlib.sha256()
    for part in parts:
        known.update(part.encode() if isinstance(part, str) else part.numpy().tobytes())
    return known.hexdigest()[:12]
