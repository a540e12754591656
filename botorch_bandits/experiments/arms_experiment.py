"""Experiments on arms: run them by trial, continue what was interrupted, tabulate, draw.

Each experiment states its setting once (:class:`ArmsExperiment`); this module does the rest.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from botorch_bandits.experiments.arms_study import ArmsStudy, Method, play
from botorch_bandits.plotting import LINE_STYLES, new_figure
from botorch_bandits.progress import ProgressBar


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
    """

    name: str
    title: str
    published: str
    num_trials: int
    num_rounds: int
    make_study: Callable[[int, int], ArmsStudy]
    make_methods: Callable[[ArmsStudy], list[Method]]
    logarithmic: bool = False
    average: bool = False
    chunk: int = 10
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, eq=False)
class Curves:
    """The result of one method.

    Attributes:
        regret: ``num_trials x num_rounds`` regrets.
        covered: ``num_trials``; whether the bounds held throughout, or None.
        mean_width: The mean half-distance of the bounds over arms, rounds and trials, or None.
    """

    regret: Tensor
    covered: Tensor | None
    mean_width: float | None


def run_arms_experiment(
    experiment: ArmsExperiment, folder: Path, progress: bool = True
) -> dict[str, Curves]:
    """Run the missing trials of an experiment and return all of them.

    Every chunk of trials is a file under ``folder/trials``; files of other settings are ignored.

    Args:
        experiment: What to run.
        folder: Where results are kept.
        progress: Show a progress bar.
    """
    trials = folder / "trials"
    trials.mkdir(parents=True, exist_ok=True)
    starts = range(0, experiment.num_trials, experiment.chunk)
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
                    piece = _play(study, method, lambda t: bar.advance())
                    _save(path, piece)
                else:
                    bar.advance(experiment.num_rounds)
                pieces[name].append(piece)
    return {name: _join(parts) for name, parts in pieces.items()}


def tabulate(experiment: ArmsExperiment, curves: Mapping[str, Curves]) -> list[dict[str, Any]]:
    """Return one row a method: mean, standard error and median of the final regret."""
    rows = []
    for name, curve in curves.items():
        total = curve.regret.sum(-1)
        if experiment.average:
            total = total / experiment.num_rounds
        row: dict[str, Any] = {
            "experiment": experiment.name,
            "method": name,
            "trials": len(total),
            "rounds": experiment.num_rounds,
            "regret": "R_T / T" if experiment.average else "R_T",
            "mean": float(total.mean()),
            "standard_error": float(total.std() / len(total) ** 0.5) if len(total) > 1 else 0.0,
            "median": float(total.quantile(0.5)),
            "final_simple_regret": float(curve.regret.amin(-1).mean()),
            "covered": ""
            if curve.covered is None
            else float(curve.covered.to(torch.float64).mean()),
            "mean_width": "" if curve.mean_width is None else curve.mean_width,
        }
        rows.append(row)
    return rows


def format_table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as text with aligned columns."""
    lines = [
        f"{'method':<28}{'mean':>12}{'std. error':>12}{'median':>12}{'simple':>12}{'covered':>9}"
    ]
    for row in rows:
        covered = row["covered"] if row["covered"] == "" else f"{row['covered']:.3f}"
        lines.append(
            f"{row['method']:<28}{row['mean']:>12.5g}{row['standard_error']:>12.3g}"
            f"{row['median']:>12.5g}{row['final_simple_regret']:>12.3g}{covered:>9}"
        )
    return "\n".join(lines)


def plot_curves(
    experiments: Sequence[ArmsExperiment], curves: Sequence[Mapping[str, Curves]]
) -> Any:
    """Draw one panel an experiment, as the papers do: regret over rounds, one line a method.

    Bands are one standard error wide on either side.

    Args:
        experiments: One panel each.
        curves: Their results.

    Returns:
        An array of axes.
    """
    _, axes = new_figure(1, len(experiments), width=5.2 * len(experiments), height=3.6)
    for ax, experiment, results in zip(axes[0], experiments, curves, strict=True):
        for (name, curve), style in zip(results.items(), itertools.cycle(LINE_STYLES)):
            rounds = torch.arange(1, curve.regret.shape[1] + 1)
            shown = curve.regret.cumsum(-1)
            shown = shown / rounds if experiment.average else shown
            mean = shown.mean(0)
            ax.plot(rounds, mean, label=name, lw=1.4, **style)
            if len(shown) > 1:
                error = shown.std(0) / len(shown) ** 0.5
                ax.fill_between(rounds, mean - error, mean + error, color="0.5", alpha=0.2, lw=0)
        ax.set_title(experiment.title, fontsize=9)
        ax.set_xlabel("round")
        ax.set_ylabel("mean regret a round" if experiment.average else "cumulative regret")
        if experiment.logarithmic:
            ax.set_xscale("log")
            ax.set_yscale("log")
        else:
            ax.set_ylim(bottom=0)
        ax.legend(fontsize=7)
    return axes[0]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a CSV file, replaced as a whole."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: f"{v:.10g}" if isinstance(v, float) else v for k, v in row.items()})
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text.getvalue(), encoding="utf-8")
    os.replace(temporary, path)


def _play(study: ArmsStudy, method: Method, on_round: Callable[[int], None]) -> dict[str, Any]:
    played = play(study, method, on_round)
    piece: dict[str, Any] = {"regret": played.regret.numpy()}
    if played.covered is not None and played.mean_width is not None:
        piece["covered"] = played.covered.numpy()
        piece["mean_width"] = played.mean_width.numpy()
    return piece


def _join(parts: list[dict[str, Any]]) -> Curves:
    regret = torch.cat([torch.from_numpy(part["regret"]) for part in parts])
    if "covered" not in parts[0]:
        return Curves(regret, None, None)
    covered = torch.cat([torch.from_numpy(part["covered"]) for part in parts])
    sizes = np.array([len(part["regret"]) for part in parts])
    width = np.average([part["mean_width"].mean() for part in parts], weights=sizes)
    return Curves(regret, covered, float(width))


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
