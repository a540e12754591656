"""Run an experiment by name and write its folder: tables, settings and pictures.

Methods of a panel meet the same functions, noise and delays, so their differences vary less than
the regrets.
"""

from __future__ import annotations

import csv
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import botorch
import gpytorch
import torch
from torch import Tensor

from botorch_bandits import __version__
from botorch_bandits.cli import write_atomically
from papers.curves import CURVES_TABLE, tabulate_curves
from papers.pictures import FOLDER as IMAGES
from papers.pictures import Picture, Written, save_picture
from papers.registry import EXPERIMENTS, TABLES, build_experiments
from papers.results import (
    REPORTED_ROUND,
    format_table,
    tabulate,
    write_csv,
)
from papers.shi import averages
from papers.trials import ArmsExperiment, Curves, run_arms_experiment, run_pieces


def middle_round(num_rounds: int) -> int:
    """Return the round at which simple regrets are compared, in addition to the last one.

    Args:
        num_rounds: The number of rounds of the experiment.
    """
    return REPORTED_ROUND if num_rounds >= REPORTED_ROUND else max(num_rounds * 3 // 5, 1)


def quantities(experiment: ArmsExperiment, curve: Curves) -> dict[str, Tensor]:
    """Return the quantities by which methods are compared, by name, with one number per trial.

    The cumulative regret is ``regret``, or its mean over rounds if the experiment uses that; other
    quantities that the experiment tabulates are added. If outcomes are delayed, ``simple regret``
    is that of the last round and ``simple regret, middle`` that of :func:`middle_round`. With a
    constraint, ``regret`` and ``violation`` are time averages at the end, or up to the stop of runs
    that stopped earlier.

    Args:
        experiment: A panel.
        curve: The result of one of its methods.
    """
    last = experiment.num_rounds
    if "constraint" in curve.others:
        known = averages(curve)
        return {name: known.at(name, last) for name in ("regret", "violation")}
    total = curve.regret.sum(-1)
    if curve.simple_regret is None:
        further = {name: curve.others[name].to(total.dtype) for name in experiment.tabulated}
        return {"regret": total / last if experiment.average else total, **further}
    simple = curve.simple_regret
    return {
        "simple regret": simple[:, -1],
        "simple regret, middle": simple[:, middle_round(last) - 1],
        "regret": total,
    }


def tabulate_differences(
    experiment: ArmsExperiment, curves: Mapping[str, Curves]
) -> list[dict[str, Any]]:
    """Return one row per quantity and pair of methods: the first method's minus the second's.

    The standard error is empty with a single trial.
    """
    known = {name: quantities(experiment, curve) for name, curve in curves.items()}
    rows = []
    for (first, ours), (second, theirs) in itertools.combinations(known.items(), 2):
        for quantity in ours.keys() & theirs.keys():
            difference = ours[quantity] - theirs[quantity]
            count = len(difference)
            rows.append(
                {
                    "experiment": experiment.name,
                    "quantity": quantity,
                    "method": first,
                    "less": second,
                    "trials": count,
                    "mean": float(difference.mean()),
                    "standard_error": float(difference.std() / count**0.5) if count > 1 else "",
                }
            )
    return sorted(rows, key=lambda row: row["quantity"])


SETTINGS_FILE = "settings.json"


@dataclass(frozen=True, eq=False)
class Finished:
    """An experiment that has been run.

    Attributes:
        panels: Its panels; none if the experiment only yields a table.
        curves: The result of each panel's methods.
    """

    panels: Sequence[ArmsExperiment]
    curves: Sequence[Mapping[str, Curves]]


def run_experiment(
    name: str,
    folder: Path,
    data: Sequence[Path] = (),
    num_trials: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
    num_workers: int = 1,
    progress: bool = True,
    **options: Any,
) -> Finished:
    """Run an experiment, print its tables and write its folder.

    Writes ``table.csv``, ``differences.csv``, ``curves.csv``, ``settings.json`` and pictures, one
    per panel. Trials that an earlier start finished are not run again.

    Args:
        name: A key of ``EXPERIMENTS`` or of ``TABLES``.
        folder: The folder for results.
        data: Data files, in the entry's order.
        num_trials: The paper's number if omitted.
        num_rounds: The paper's number if omitted.
        seed: Seeds everything that is drawn.
        num_workers: The number of processes that play trials.
        progress: Whether to show a progress bar.
        options: Further settings of some experiments, such as ``center`` and ``ridge``.

    Raises:
        ValueError: If the experiment is unknown, data files are missing or too many, or the
            experiment does not take these settings.
    """
    if name in TABLES:
        return _run_table(name, folder, data, num_trials, num_rounds, seed, **options)
    build = partial(build_experiments, name, tuple(data), num_trials, num_rounds, seed, **options)
    try:
        experiments = build()
    except TypeError as error:
        raise ValueError(f"{name} does not take these settings: {error}") from error
    started = time.monotonic()
    rows, differences, curves = [], [], []
    if num_workers > 1:
        run_pieces(build, folder, num_workers, progress)
    for experiment in experiments:
        results = run_arms_experiment(experiment, folder, progress)
        curves.append(results)
        table = tabulate(experiment, results)
        rows += table
        differences += tabulate_differences(experiment, results)
        print(f"\n{experiment.title}: {experiment.num_trials} trials", end="")
        print(f" of {experiment.num_rounds} rounds; regret is {table[0]['regret']}")
        if experiment.published:
            print(f"published: {experiment.published}")
        print(format_table(table))
    write_csv(folder / "table.csv", rows)
    if differences:
        write_csv(folder / "differences.csv", differences)
    write_csv(folder / f"{CURVES_TABLE}.csv", tabulate_curves(experiments, curves))
    report = EXPERIMENTS[name].report
    if report is not None:
        report(experiments, curves, folder)
    panels = [_describe(*pair) for pair in zip(experiments, curves, strict=True)]
    settings = {e.name: dict(e.settings or {}) for e in experiments}
    _write_settings(folder, name, settings, time.monotonic() - started, panels=panels, seed=seed)
    draw_pictures(name, folder)
    return Finished(experiments, curves)


def draw_pictures(name: str, folder: Path) -> list[Path]:
    """Draw the pictures of an experiment, one per panel, from the tables in its folder.

    Args:
        name: The name of the experiment.
        folder: What :func:`run_experiment` wrote; pictures go to its folder ``images``.

    Returns:
        The files.
    """
    files = []
    for picture in pictures_of(name, read_written(folder)):
        files.append(folder / IMAGES / f"{picture.name}.svg")
        save_picture(picture, files[-1])
    return files


def pictures_of(name: str, written: Written) -> list[Picture]:
    """Return the pictures of an experiment; one that only yields a table has none.

    Args:
        name: The name of the experiment.
        written: Its tables.
    """
    return EXPERIMENTS[name].pictures(written) if name in EXPERIMENTS else []


def read_written(folder: Path) -> Written:
    """Return the tables and settings that an experiment has written.

    Args:
        folder: The folder of the experiment.
    """
    tables = {path.stem: read_rows(path) for path in sorted(folder.glob("*.csv"))}
    return Written(tables, read_settings(folder))


def _describe(experiment: ArmsExperiment, results: Mapping[str, Curves]) -> dict[str, Any]:
    known = [curve.seconds for curve in results.values() if curve.seconds is not None]
    return {
        "name": experiment.name,
        "title": experiment.title,
        "published": experiment.published,
        "trials": experiment.num_trials,
        "rounds": experiment.num_rounds,
        "logarithmic": experiment.logarithmic,
        "seconds": round(sum(known), 2) if len(known) == len(results) else None,
    }


def _run_table(
    name: str,
    folder: Path,
    data: Sequence[Path],
    num_trials: int | None,
    num_rounds: int | None,
    seed: int,
    **options: Any,
) -> Finished:
    """Run an experiment that only yields a table, unless its folder already has that table."""
    refused = {"--rounds": num_rounds, "--data": data or None}
    refused |= {f"--{option}": value for option, value in options.items()}
    for option, value in refused.items():
        if value is not None:
            raise ValueError(f"{name} does not take {option}.")
    settings = {"trials": num_trials, "seed": seed}
    if read_settings(folder).get("settings") != settings or not (folder / "table.csv").exists():
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        given = {} if num_trials is None else {"num_trials": num_trials}
        rows = TABLES[name].tabulate(**given, seed=seed)
        write_csv(folder / "table.csv", rows)
        seconds = time.monotonic() - started
        panel = {
            "name": name,
            "title": TABLES[name].description,
            "published": "",
            "trials": rows[0].get("trials", num_trials),
            "rounds": None,
            "seconds": round(seconds, 2),
        }
        _write_settings(folder, name, settings, seconds, panels=[panel], seed=seed)
    print((folder / "table.csv").read_text(encoding="utf-8"), end="")
    return Finished([], [])


def _write_settings(
    folder: Path, name: str, settings: dict[str, Any], seconds: float, **others: Any
) -> None:
    known = {
        "experiment": name,
        "settings": settings,
        **others,
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "seconds_of_this_start": round(seconds, 1),
    }
    write_atomically(folder / SETTINGS_FILE, json.dumps(known, indent=2) + "\n")


def versions() -> dict[str, str]:
    """Return the versions of the packages that compute the results, by name."""
    return {
        "botorch_bandits": __version__,
        "torch": torch.__version__,
        "gpytorch": gpytorch.__version__,
        "botorch": botorch.__version__,
    }


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the settings in an experiment's folder; empty if there is no complete file.

    Args:
        folder: The folder of one experiment.
    """
    try:
        known = json.loads((folder / SETTINGS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, or none if there is no file.

    Args:
        path: The file.
    """
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
