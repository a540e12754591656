"""Experiments on arms: run them by trial and continue what was interrupted.

Each experiment states its setting once (:class:`ArmsExperiment`); this module does the rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.experiments.arms_study import ArmsStudy, Method, play
from botorch_bandits.progress import ProgressBar

Player: TypeAlias = Callable[[ArmsStudy, Any, Callable[[int], None]], dict[str, Any]]
"""From a study, a method and what to call after each round to arrays by name."""

_SECONDS = "seconds"


@dataclass(frozen=True, eq=False)
class ArmsExperiment:
    """One panel of a published figure.

    Attributes:
        name: A short name for files.
        title: What is shown, in words.
        published: What the paper states.
        num_trials: How many functions.
        num_rounds: How many rounds each.
        make_study: From first trial and number of trials to the study of those.
        make_methods: From a study to its methods; constants may depend on the functions.
        logarithmic: Draw both axes on a logarithmic scale, for regrets of several magnitudes.
        average: Draw the mean regret a round (``R_t / t``) in place of the cumulative regret.
        chunk: Trials that are played at once; results do not depend on it.
        settings: What else determines the result, by name.
        player: Plays a study with a method and returns ``regret``, and ``simple_regret`` if that
            is what is tabulated and drawn; without delays if omitted.
        tabulated: Which of the player's further arrays have means and standard errors in the table.
    """

    name: str
    title: str
    published: str
    num_trials: int
    num_rounds: int
    make_study: Callable[[int, int], ArmsStudy]
    make_methods: Callable[[ArmsStudy], Sequence[Method]]
    logarithmic: bool = False
    average: bool = False
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
        others: What else the experiment's own player returned, a row a trial, by name.
        seconds: How long the trials took when they were played, by the wall clock, one after
            another. None if that was not written down.
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

    Every chunk of trials is a file under ``folder/trials``; files of other settings are ignored.

    Args:
        experiment: What to run.
        folder: Where results are kept.
        progress: Show a progress bar.
        only: Just the chunk that begins with this trial.
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
    known = all(_SECONDS in part for part in parts)  # a file of an earlier version lacks it
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
