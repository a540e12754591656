"""Experiments on arms, which run trial by trial and continue after an interruption.

A study is what is played. An experiment is one panel of a figure, with a study, methods, and
numbers of trials and rounds.

A study describes its arms only by the covariance of their rewards, because some of the papers'
kernels are the empirical covariance of sensors. The rules that are played are those of the loop.

A piece consists of some trials of one panel with all its methods, and is stored in one file. Random
numbers belong to the trial, so it does not matter which process plays it or how many processes
there are.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import pickle
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.acquisition import AcquisitionRecipe, ArmsEngine, RandomSearch
from botorch_bandits.asynchronous import one_thread_each
from botorch_bandits.checks import check_integer
from botorch_bandits.domains import Arms
from botorch_bandits.models import ArmsPrior
from botorch_bandits.progress import ProgressBar
from botorch_bandits.random_streams import derive_seed
from botorch_bandits.simulation import SimulationResult, play_arms


@dataclass(frozen=True, eq=False)
class ArmsStudy:
    """Reward functions on the same arms.

    Attributes:
        kernel_matrix: ``num_arms x num_arms``; the model's prior covariance. Bounds on the norm are
            in its units.
        values: ``num_functions x num_arms``; the noiseless rewards.
        noise_std: Standard deviation of the Gaussian noise on outcomes, one number or one
            per function.
        num_rounds: The number of rounds of each function.
        seed: Seeds the noise and the draws of methods.
        first_trial: The number of the first function. Random numbers belong to the trial, so a
            study may be divided into pieces without changing the results.
    """

    kernel_matrix: Tensor
    values: Tensor
    noise_std: float | Tensor
    num_rounds: int
    seed: int = 0
    first_trial: int = 0

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seed of each function."""
        trials = range(self.first_trial, self.first_trial + len(self.values))
        return tuple(derive_seed(self.seed, trial, "replicate") for trial in trials)

    @cached_property
    def prior(self) -> ArmsPrior:
        """The prior of the arms."""
        return ArmsPrior.from_matrix(self.kernel_matrix)


@dataclass(frozen=True)
class Method:
    """An acquisition with its name and the regularization of its posterior.

    Attributes:
        name: The name in the figure's legend.
        acquisition: The acquisition that is played.
        lam: The regularization.
        bounded_noise: Whether it is played with noise of plus or minus the study's ``noise_std``,
            because its theorem needs noise of at most that size.
    """

    name: str
    acquisition: AcquisitionRecipe | RandomSearch
    lam: float | Tensor
    bounded_noise: bool = False


def play(
    study: ArmsStudy, method: Method, on_round: Callable[[int], None] | None = None
) -> SimulationResult:
    """Play every function of a study with one method; the noise is the same for every method.

    If a method has bounded noise, its noise is ``noise_std`` times the sign of the other methods'
    noise.

    Args:
        study: The study to play.
        method: The method that plays it.
        on_round: Called with the number of each finished round.

    Raises:
        ValueError: If the acquisition has no rule on arms.
    """
    rule = None
    if isinstance(method.acquisition, AcquisitionRecipe):
        # the rules only use the domain's number of arms
        numbered = torch.arange(float(study.prior.num_arms), dtype=torch.float64)
        rule = method.acquisition.arms_rule(Arms(numbered.unsqueeze(-1)))
        if rule is None:
            raise ValueError(f"method {method.name!r} has no rule on arms.")
    player = ArmsEngine(rule, study.prior, method.lam, 1.0, study.seeds)
    return play_arms(
        player,
        study.values,
        study.noise_std,
        study.num_rounds,
        study.seeds,
        on_round=on_round,
        bounded_noise=method.bounded_noise,
    )


Player: TypeAlias = Callable[[ArmsStudy, Any, Callable[[int], None]], dict[str, Any]]
"""Maps a study, a method and a callback for each round to arrays by name."""

_SECONDS = "seconds"


@dataclass(frozen=True, eq=False)
class ArmsExperiment:
    """One panel of a published figure.

    Attributes:
        name: A short name for files.
        title: A title in words.
        published: The statement of the paper.
        num_trials: The number of functions.
        num_rounds: The number of rounds of each.
        make_study: Maps the first trial and the number of trials to their study.
        make_methods: Maps a study to its methods, which have a ``name`` each; constants may depend
            on the functions.
        logarithmic: Whether to draw both axes on a logarithmic scale, for regrets of several
            magnitudes.
        average: Whether to draw the mean regret per round (``R_t / t``) in place of the cumulative
            regret.
        totals: Whether to draw cumulative regret and cost, if there is a constraint, in place of
            time averages.
        chunk: The number of trials that are played at once; results do not depend on it.
        settings: Further settings that determine the result, by name.
        player: Plays a study with a method and returns ``regret``, and ``simple_regret`` if that is
            tabulated and drawn; plays without delays if omitted.
        tabulated: The player's further arrays that have means and standard errors in the table.
    """

    name: str
    title: str
    published: str
    num_trials: int
    num_rounds: int
    make_study: Callable[[int, int], ArmsStudy]
    make_methods: Callable[[ArmsStudy], Sequence[Any]]
    logarithmic: bool = False
    average: bool = False
    totals: bool = False
    chunk: int = 10
    settings: Mapping[str, Any] | None = None
    player: Player | None = None
    tabulated: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Curves:
    """The result of one method.

    Attributes:
        regret: ``num_trials x num_rounds`` regrets.
        covered: ``num_trials``; whether the bounds held throughout, or None.
        mean_width: The mean half-distance of the bounds over arms, rounds and trials, or None.
        simple_regret: ``num_trials x num_rounds``; the smallest regret known by each round. None
            if outcomes arrive at once.
        others: Further arrays of the experiment's own player, one row per trial, by name.
        seconds: The wall time of the trials, played one after another. None if it was not recorded.
    """

    regret: Tensor
    covered: Tensor | None
    mean_width: float | None
    simple_regret: Tensor | None = None
    others: Mapping[str, Tensor] = field(default_factory=dict)
    seconds: float | None = None


def run_arms_experiment(
    experiment: ArmsExperiment, folder: Path, progress: bool = True, only: int | None = None
) -> dict[str, Curves]:
    """Run the missing trials of an experiment and return all of them.

    Every chunk of trials is a file under ``folder/trials``; files with other settings are ignored.

    Args:
        experiment: The experiment to run.
        folder: The folder for results.
        progress: Whether to show a progress bar.
        only: Run only the chunk that begins with this trial.
    """
    trials = folder / "trials"
    trials.mkdir(parents=True, exist_ok=True)
    starts = list(range(0, experiment.num_trials, experiment.chunk))
    starts = starts if only is None else [first for first in starts if first == only]
    names = [m.name for m in experiment.make_methods(experiment.make_study(0, 1))]
    pieces: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    rounds = len(starts) * len(names) * experiment.num_rounds
    with ProgressBar(rounds, experiment.name, progress) as bar:
        for first in starts:
            count = min(experiment.chunk, experiment.num_trials - first)
            study: ArmsStudy | None = None
            for i, name in enumerate(names):
                key = _digest(experiment, name, first, count)
                path = trials / f"{experiment.name}-{first:05d}-{key}.npz"
                piece = _load(path)
                if piece is None:
                    study = study or experiment.make_study(first, count)
                    method = experiment.make_methods(study)[i]
                    player = experiment.player or _play
                    started = time.monotonic()
                    piece = player(study, method, lambda t: bar.advance())
                    piece = {**piece, _SECONDS: np.array(time.monotonic() - started)}
                    _save(path, piece)
                else:
                    bar.advance(experiment.num_rounds)
                pieces[name].append(piece)
    return {name: _join(parts) for name, parts in pieces.items()}


def _play(study: ArmsStudy, method: Method, on_round: Callable[[int], None]) -> dict[str, Any]:
    played = play(study, method, on_round)
    piece: dict[str, Any] = {"regret": played.regret.numpy()}
    if played.covered is not None and played.mean_width is not None:
        piece["covered"] = played.covered.numpy()
        piece["mean_width"] = played.mean_width.numpy()
    return piece


def _join(parts: list[dict[str, Any]]) -> Curves:
    known = all(_SECONDS in part for part in parts)  # files of earlier versions lack it
    seconds = sum(float(part[_SECONDS]) for part in parts) if known else None
    regret = torch.cat([torch.from_numpy(part["regret"]) for part in parts])
    if "simple_regret" in parts[0]:
        simple = torch.cat([torch.from_numpy(part["simple_regret"]) for part in parts])
        return Curves(regret, None, None, simple, seconds=seconds)
    if "covered" not in parts[0]:
        others = {
            name: torch.cat([torch.from_numpy(part[name]) for part in parts])
            for name in parts[0]
            if name not in ("regret", _SECONDS)
        }
        return Curves(regret, None, None, others=others, seconds=seconds)
    covered = torch.cat([torch.from_numpy(part["covered"]) for part in parts])
    sizes = np.array([len(part["regret"]) for part in parts])
    width = np.average([part["mean_width"].mean() for part in parts], weights=sizes)
    return Curves(regret, covered, float(width), seconds=seconds)


def _digest(experiment: ArmsExperiment, method: str, first: int, count: int) -> str:
    known = {
        "name": experiment.name,
        "method": method,
        "first": first,
        "count": count,
        "rounds": experiment.num_rounds,
        "settings": dict(experiment.settings or {}),
    }
    text = json.dumps(known, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _load(path: Path) -> dict[str, Any] | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None


def _save(path: Path, piece: Mapping[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.tmp.npz")
    np.savez_compressed(temporary, **piece)
    os.replace(temporary, path)


Build = Callable[[], list[ArmsExperiment]]


def run_pieces(build: Build, folder: Path, num_workers: int, progress: bool = True) -> None:
    """Play the missing trials of all panels; :func:`run_arms_experiment` then finds their files.

    Args:
        build: Makes the panels. It is sent to other processes, so it must be picklable, such as
            ``functools.partial`` of a function that can be imported.
        folder: The folder for results.
        num_workers: The number of processes, each with one thread.
        progress: Whether to show a progress bar.

    Raises:
        Exception: The exception of a piece, after the pieces in progress have finished.
    """
    check_integer("num_workers", num_workers, minimum=1)
    jobs = [
        (panel, first)
        for panel, experiment in enumerate(build())
        for first in range(0, experiment.num_trials, experiment.chunk)
    ]
    context = multiprocessing.get_context("spawn")
    with (
        one_thread_each(),
        ProcessPoolExecutor(num_workers, mp_context=context) as pool,
        ProgressBar(len(jobs), "pieces", progress) as bar,
    ):
        known = pickle.dumps(build)  # with a key, because equal partials are not equal objects
        futures: list[Future[Any]] = [pool.submit(_play_piece, known, folder, *job) for job in jobs]
        try:
            for future in as_completed(futures):
                future.result()
                bar.advance()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _play_piece(build: bytes, folder: Path, panel: int, first: int) -> None:
    experiment = _built(build)[panel]
    run_arms_experiment(experiment, folder, progress=False, only=first)


@cache
def _built(build: bytes) -> list[ArmsExperiment]:
    """Make the panels once per process, because a panel may hold large matrices."""
    panels: list[ArmsExperiment] = pickle.loads(build)()
    return panels
