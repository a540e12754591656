"""Run the experiments of the papers: play missing trials, write tables and draw one figure.

A study is what is played. An experiment is one panel of a figure, with a study, methods, and
numbers of trials and rounds. A piece consists of some trials of one method in one panel, and is
stored in one file, so that an interrupted run continues. Random numbers belong to the trial, so it
does not matter which process plays it or how many processes there are.

Each file of a paper registers its experiments in its own ``EXPERIMENTS``, and tables that are not
played trial by trial in its own ``TABLES``.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import inspect
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from joblib import Parallel, delayed, parallel_config
from torch import Tensor

from botorch_bandits import __version__
from botorch_bandits.acquisition import AcquisitionRecipe, RandomSearch, Replicates
from botorch_bandits.checks import check_integer
from botorch_bandits.core.priors import Prior
from botorch_bandits.domains import Arms
from botorch_bandits.random_streams import derive_seed
from botorch_bandits.simulation import SimulationResult, play_arms

PAPERS = ("srinivas", "chowdhury", "verma", "avanesov", "shi", "beyond")
"""The files that register experiments."""

INTERRUPTED = 130
"""The exit code after an interruption, as shells have it."""

REPORTED_ROUND = 80
"""The round at which simple regrets are tabulated in addition to the last one."""

Row: TypeAlias = dict[str, Any]


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
    def prior(self) -> Prior:
        """The prior of the arms."""
        return Prior.from_matrix(self.kernel_matrix)


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


def play(study: ArmsStudy, method: Method) -> SimulationResult:
    """Play every function of a study with one method; the noise is the same for every method.

    If a method has bounded noise, its noise is ``noise_std`` times the sign of the other methods'
    noise.

    Args:
        study: The study to play.
        method: The method that plays it.

    Raises:
        ValueError: If the acquisition has no rule on arms.
    """
    rule = None
    if isinstance(method.acquisition, AcquisitionRecipe):
        # the rules only use the domain's number of arms
        numbered = torch.arange(float(study.prior.num_points), dtype=torch.float64)
        rule = method.acquisition.arms_rule(Arms(numbered.unsqueeze(-1)))
        if rule is None:
            raise ValueError(f"method {method.name!r} has no rule on arms; choose another.")
    return play_arms(
        Replicates(rule, [study.prior], method.lam, [1.0], study.seeds),
        study.values,
        study.noise_std,
        study.num_rounds,
        study.seeds,
        bounded_noise=method.bounded_noise,
    )


def play_method(study: ArmsStudy, method: Method) -> dict[str, Any]:
    """Play without delays; returns the regret and, for rules with bounds, their coverage."""
    played = play(study, method)
    piece: dict[str, Any] = {"regret": played.regret.numpy()}
    if played.covered is not None and played.mean_width is not None:
        piece["covered"] = played.covered.numpy()
        piece["mean_width"] = played.mean_width.mean().expand(len(played.regret)).numpy()
    return piece


@dataclass(frozen=True, eq=False)
class Curves:
    """The result of one method.

    Attributes:
        regret: ``num_trials x num_rounds`` regrets.
        others: Further arrays of the experiment's player, one row per trial, by name:
            ``simple_regret``, the smallest regret known by each round, if outcomes are delayed;
            ``covered`` and ``mean_width``, whether the bounds held throughout and their mean
            half-distance, if the method has bounds.
        seconds: The wall time of the trials, played one after another.
    """

    regret: Tensor
    others: Mapping[str, Tensor] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def simple_regret(self) -> Tensor | None:
        """``num_trials x num_rounds``, or None if outcomes arrive at once."""
        return self.others.get("simple_regret")


PlayMethod: TypeAlias = Callable[[Any, Any], dict[str, Any]]
"""Maps a study and a method to arrays by name, one row per trial."""


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
        logarithmic: Whether to draw both axes on a logarithmic scale.
        average: Whether to tabulate and draw the mean regret per round in place of the sum.
        chunk: The number of trials that are played at once; results do not depend on it.
        settings: Further settings that determine the result, by name.
        player: Plays a study with a method and returns ``regret`` and further arrays.
        tabulated: The player's further arrays that have means and standard errors in the table.
        shown: Maps the result of a method to what the figure shows over the rounds, by name, each
            ``num_trials x num_rounds`` with NaN after a run has stopped; regrets if omitted.
    """

    name: str
    title: str
    published: str
    num_trials: int
    num_rounds: int
    make_study: Callable[[int, int], Any]
    make_methods: Callable[[Any], Sequence[Any]]
    logarithmic: bool = False
    average: bool = False
    chunk: int = 10
    settings: Mapping[str, Any] | None = None
    player: PlayMethod = play_method
    tabulated: tuple[str, ...] = ()
    shown: Callable[[Curves], Mapping[str, Tensor]] | None = None


Results: TypeAlias = Sequence[Mapping[str, Curves]]
"""The results of each panel by method."""


@dataclass(frozen=True)
class Entry:
    """How an experiment is built.

    Attributes:
        build: Takes the data files, then ``num_trials``, ``num_rounds``, ``seed`` and further
            options by name.
        description: What it reproduces.
        data: What each data file is.
        num_required: The number of required data files.
        report: Takes the panels, their results and the folder; prints and writes what is not in
            the table.
    """

    build: Callable[..., list[ArmsExperiment]]
    description: str
    data: tuple[str, ...] = ()
    num_required: int = 0
    report: Callable[[Sequence[ArmsExperiment], Results, Path], None] | None = None


def _registered(what: str) -> dict[str, Any]:
    modules = [vars(import_module(f"papers.{paper}")) for paper in PAPERS]
    return {name: entry for module in modules for name, entry in module.get(what, {}).items()}


def experiments() -> dict[str, Entry]:
    """Return the experiments of all papers by name."""
    return _registered("EXPERIMENTS")


def tables() -> dict[str, Callable[..., list[Row]]]:
    """Return what yields only a table: takes ``num_trials`` and ``seed`` by name."""
    return _registered("TABLES")


def build_experiments(
    name: str,
    data: Sequence[Path] = (),
    num_trials: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
    **options: Any,
) -> list[ArmsExperiment]:
    """Return the panels of an experiment.

    Args:
        name: The name of an experiment.
        data: Data files, in the entry's order.
        num_trials: The paper's number if omitted.
        num_rounds: The paper's number if omitted.
        seed: Seeds everything that is drawn.
        options: Further settings of the experiment that replace those of its figure.

    Raises:
        ValueError: If the name or an option is unknown, or data files are missing or too many.
    """
    entries = experiments()
    if name not in entries:
        raise ValueError(f"experiment is {name!r}; it must be one of {', '.join(entries)}.")
    entry = entries[name]
    if not entry.num_required <= len(data) <= len(entry.data):
        files = "; ".join(entry.data) or "no files"
        raise ValueError(f"{name} takes --data with {files}; got {len(data)} files.")
    given = {"num_trials": num_trials, "num_rounds": num_rounds, "seed": seed, **options}
    given = {option: value for option, value in given.items() if value is not None}
    _check_options(name, entry.build, given)
    return entry.build(*data, **given)


def _check_options(name: str, build: Callable[..., Any], given: Mapping[str, Any]) -> None:
    known = inspect.signature(build).parameters
    for option, value in given.items():
        if option not in known:
            raise ValueError(
                f"{option} is {value!r}, but {name} has no such option; it has {', '.join(known)}."
            )


def run_arms_experiment(
    experiment: ArmsExperiment, folder: Path, num_workers: int = 1, progress: bool = False
) -> dict[str, Curves]:
    """Play the missing trials of an experiment and return all of them.

    Every piece is a file under ``folder/trials``; files with other settings are ignored.

    Args:
        experiment: The experiment to run.
        folder: The folder for results.
        num_workers: The number of processes, each with one thread.
        progress: Whether to print a line for each finished piece.
    """
    (folder / "trials").mkdir(parents=True, exist_ok=True)
    names = [m.name for m in experiment.make_methods(experiment.make_study(0, 1))]
    starts = range(0, experiment.num_trials, experiment.chunk)
    jobs = [(i, first) for first in starts for i in range(len(names))]
    if num_workers == 1:
        pieces = [_piece(experiment, folder, names, *job, progress) for job in jobs]
    else:
        with parallel_config("loky", n_jobs=num_workers, inner_max_num_threads=1):
            pieces = Parallel()(
                delayed(_piece)(experiment, folder, names, *job, progress) for job in jobs
            )
    return {name: _join(pieces[i :: len(names)]) for i, name in enumerate(names)}


def _piece(
    experiment: ArmsExperiment,
    folder: Path,
    names: Sequence[str],
    method: int,
    first: int,
    progress: bool,
) -> dict[str, Any]:
    """Load the trials of a method from ``first`` on, or play them."""
    count = min(experiment.chunk, experiment.num_trials - first)
    key = _digest(experiment, names[method], first, count)
    path = folder / "trials" / f"{experiment.name}-{first:05d}-{key}.npz"
    known = _load(path)
    if known is not None:
        return known
    started = time.monotonic()
    study = experiment.make_study(first, count)
    piece = experiment.player(study, experiment.make_methods(study)[method])
    seconds = time.monotonic() - started
    piece = {**piece, "seconds": np.array(seconds)}
    content = io.BytesIO()
    np.savez_compressed(content, **piece)
    _replace(path, content.getvalue())
    if progress:
        trials = f"trials {first + 1} to {first + count} of {experiment.num_trials}"
        print(f"{experiment.name}, {names[method]}: {trials}, {seconds:.1f} s", flush=True)
    return piece


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
        return None  # missing, or cut off by an interruption: play it again


def _replace(path: Path, content: bytes) -> None:
    """Write a file as a whole, so that an interruption leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def _join(pieces: Sequence[Mapping[str, Any]]) -> Curves:
    arrays = {
        name: torch.cat([torch.from_numpy(piece[name]) for piece in pieces])
        for name in pieces[0]
        if name != "seconds"
    }
    seconds = sum(float(piece["seconds"]) for piece in pieces)
    return Curves(arrays.pop("regret"), arrays, seconds)


def standard_error(values: Tensor) -> float:
    """Return the standard error of the mean; NaN with one value, which shows no spread."""
    return float(values.std() / len(values) ** 0.5) if len(values) > 1 else float("nan")


def tabulate(experiment: ArmsExperiment, curves: Mapping[str, Curves]) -> list[Row]:
    """Return one row per method: mean, standard error and median of its regret.

    The regret is the final simple regret if outcomes are delayed, and otherwise the sum, or the
    mean over rounds. ``more_than_first`` is the mean difference to the first method over the same
    trials, whose standard error is smaller than that of independent means.

    Args:
        experiment: The panel.
        curves: Its results by method.
    """
    rows: list[Row] = []
    first = None
    for name, curve in curves.items():
        total = curve.regret.sum(-1)
        simple = curve.simple_regret
        kind, values = "R_T", total
        if experiment.average:
            kind, values = "R_T / T", total / experiment.num_rounds
        if simple is not None:
            kind, values = "simple", simple[:, -1]
        first = values if first is None else first
        row = {
            "experiment": experiment.name,
            "method": name,
            "trials": len(values),
            "rounds": experiment.num_rounds,
            "regret": kind,
            "mean": float(values.mean()),
            "standard_error": standard_error(values),
            "median": float(values.quantile(0.5)),
            "more_than_first": float((values - first).mean()),
            "more_than_first_standard_error": standard_error(values - first),
        }
        if simple is None:
            row["final_simple_regret"] = float(curve.regret.amin(-1).mean())
        else:
            if simple.shape[1] >= REPORTED_ROUND:
                row |= _mean(f"round_{REPORTED_ROUND}", simple[:, REPORTED_ROUND - 1])
            row |= _mean("cumulative", total)
        if "covered" in curve.others:
            row["covered"] = float(curve.others["covered"].double().mean())
            row["mean_width"] = float(curve.others["mean_width"].mean())
        for quantity in experiment.tabulated:
            row |= _mean(quantity, curve.others[quantity].to(total.dtype))
        rows.append(row)
    return rows


def _mean(name: str, values: Tensor) -> Row:
    return {f"{name}_mean": float(values.mean()), f"{name}_standard_error": standard_error(values)}


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file, replacing the whole file; missing entries of a row are empty."""
    text = io.StringIO()
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(_formatted(row) for row in rows)
    _replace(path, text.getvalue().encode())


def _formatted(row: Mapping[str, Any], digits: int = 10) -> Row:
    """Return a row with rounded numbers, and without those that are NaN."""
    return {
        name: f"{value:.{digits}g}" if isinstance(value, float) else value
        for name, value in row.items()
        if value == value
    }


def format_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as text with aligned columns.

    Args:
        rows: The rows; columns are those of all rows, and a missing entry is empty.
    """
    shown = [_formatted(row, 4) for row in rows]
    columns = dict.fromkeys(column for row in rows for column in row)
    widths = {c: max(len(c), *(len(str(row.get(c, ""))) for row in shown)) for c in columns}
    lines = [dict(zip(columns, columns, strict=True)), *shown]
    return "\n".join(
        "  ".join(f"{line.get(c, '')!s:>{width}}" for c, width in widths.items()) for line in lines
    )


def over_rounds(experiment: ArmsExperiment, curve: Curves) -> Mapping[str, Tensor]:
    """Return what the figure shows over the rounds by name, each ``num_trials x num_rounds``.

    Args:
        experiment: A panel.
        curve: The result of one of its methods.
    """
    if experiment.shown is not None:
        return experiment.shown(curve)
    if curve.simple_regret is not None:
        return {"simple regret": curve.simple_regret}
    total = curve.regret.cumsum(-1)
    if experiment.average:
        return {"mean regret per round": total / torch.arange(1, total.shape[1] + 1)}
    return {"cumulative regret": total}


def draw(panels: Sequence[ArmsExperiment], results: Results, path: Path) -> None:
    """Draw one axes per panel and quantity: means over trials with one standard error.

    Args:
        panels: The panels.
        results: Their results.
        path: The file, whose suffix is the format.
    """
    from matplotlib.figure import Figure  # only for drawing

    axes = list(_axes(panels, results))
    figure = Figure(figsize=(7.0, 3.5 * len(axes)), layout="constrained")
    rows = figure.subplots(len(axes), squeeze=False)[:, 0]
    for ax, (panel, quantity, lines) in zip(rows, axes, strict=True):
        for name, values in lines.items():
            rounds = torch.arange(1, values.shape[1] + 1)
            running = values.isfinite().double().sum(0)  # runs that have not stopped
            mean = values.nanmean(0)
            error = ((values - mean).square().nanmean(0) / (running - 1.0).clamp_min(1.0)).sqrt()
            ax.plot(rounds, mean, label=name)
            ax.fill_between(rounds, mean - error, mean + error, alpha=0.2)
        if panel.logarithmic:
            ax.set_xscale("log")
            ax.set_yscale("log")
        ax.set_title(panel.title, fontsize="medium")
        ax.set_xlabel("round")
        ax.set_ylabel(quantity)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path)


def _axes(
    panels: Sequence[ArmsExperiment], results: Results
) -> Iterator[tuple[ArmsExperiment, str, dict[str, Tensor]]]:
    for panel, curves in zip(panels, results, strict=True):
        found = {name: over_rounds(panel, curve) for name, curve in curves.items()}
        for quantity in next(iter(found.values())):
            yield panel, quantity, {name: shown[quantity] for name, shown in found.items()}


def run_experiment(
    name: str,
    folder: Path,
    data: Sequence[Path] = (),
    num_trials: int | None = None,
    num_rounds: int | None = None,
    seed: int = 0,
    num_workers: int = 1,
    progress: bool = False,
    **options: Any,
) -> tuple[list[ArmsExperiment], list[dict[str, Curves]]]:
    """Run an experiment, print its tables and write its folder.

    Writes ``table.csv``, ``settings.json``, ``figure.svg`` and what the experiment's report
    writes. Trials that an earlier start finished are not played again.

    Args:
        name: The name of an experiment.
        folder: The folder for results.
        data: See :func:`build_experiments`, also for the next three arguments and the options.
        num_trials: The number of trials.
        num_rounds: The number of rounds.
        seed: The seed.
        num_workers: The number of processes that play trials.
        progress: Whether to print a line for each finished piece.
        options: Further settings.

    Returns:
        The panels and the results of each by method.
    """
    panels = build_experiments(name, data, num_trials, num_rounds, seed, **options)
    results, rows = [], []
    for panel in panels:
        curves = run_arms_experiment(panel, folder, num_workers, progress)
        results.append(curves)
        table = tabulate(panel, curves)
        rows += table
        print(f"\n{panel.title}: {panel.num_trials} trials of {panel.num_rounds} rounds")
        if panel.published:
            print(f"published: {panel.published}")
        hidden = ("experiment", "trials", "rounds")
        print(format_table([{k: v for k, v in row.items() if k not in hidden} for row in table]))
    write_csv(folder / "table.csv", rows)
    _write_settings(folder, name, {panel.name: dict(panel.settings or {}) for panel in panels})
    report = experiments()[name].report
    if report is not None:
        report(panels, results, folder)
    draw(panels, results, folder / "figure.svg")
    return panels, results


def run_table(name: str, folder: Path, num_trials: int | None = None, seed: int = 0) -> list[Row]:
    """Write and return the rows of a table that is not played trial by trial.

    Args:
        name: The name of the table.
        folder: The folder for results.
        num_trials: The default of the table if omitted.
        seed: Seeds everything that is drawn.
    """
    given = {} if num_trials is None else {"num_trials": num_trials}
    rows = tables()[name](**given, seed=seed)
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "table.csv", rows)
    _write_settings(folder, name, {**given, "seed": seed})
    print(format_table(rows))
    return rows


def _write_settings(folder: Path, name: str, settings: Mapping[str, Any]) -> None:
    versions = {"botorch_bandits": __version__, "torch": torch.__version__}
    known = {"experiment": name, "settings": settings, "versions": versions}
    text = json.dumps(known, indent=2, default=repr)
    _replace(folder / "settings.json", f"{text}\n".encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one experiment by name.

    Args:
        arguments: The command-line arguments; those of the process if omitted.

    Returns:
        The exit code: 0, or 130 if the user interrupted; bad arguments exit with 2.
    """
    names = {**experiments(), **tables()}
    parser = argparse.ArgumentParser(
        prog="python tutorials/papers",
        description="Run an experiment. The same command continues one that was interrupted.",
    )
    parser.add_argument("name", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--trials", type=int, help="default: the paper's number")
    parser.add_argument("--rounds", type=int, help="default: the paper's number")
    parser.add_argument("--data", type=Path, nargs="+", default=[], help="data files")
    parser.add_argument(
        "--set",
        nargs="+",
        type=_option,
        default=[],
        metavar="OPTION=VALUE",
        help="settings that replace those of the figure, such as margin=0.3",
    )
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="default runs/NAME")
    parser.add_argument("--workers", type=int, default=1, help="processes (default 1)")
    parser.add_argument("--quiet", action="store_true", help="print the results only")
    given = parser.parse_args(arguments)
    folder = given.out or Path("runs") / given.name
    try:
        for option, least in (("trials", 1), ("rounds", 1), ("seed", 0), ("workers", 1)):
            if vars(given)[option] is not None:
                check_integer(f"--{option}", vars(given)[option], minimum=least)
        if given.name in tables():
            if given.data or given.set or given.rounds is not None:
                raise ValueError(f"{given.name} takes --trials and --seed only; drop the others.")
            run_table(given.name, folder, given.trials, given.seed)
        else:
            run_experiment(
                given.name,
                folder,
                given.data,
                given.trials,
                given.rounds,
                given.seed,
                given.workers,
                not given.quiet,
                **dict(given.set),
            )
    except (OSError, ValueError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print(f"\ninterrupted; the same command continues from {folder}")
        return INTERRUPTED
    print(f"\nfiles: {folder}")
    return 0


def _option(text: str) -> tuple[str, Any]:
    """Return name and value; what is not JSON, such as a number, is a word."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
