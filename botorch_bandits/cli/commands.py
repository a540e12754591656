"""The commands ``tune`` and ``optimize``: each checks its options, runs, and writes a folder.

The folder has the storage of the run (``run.db``) and the settings that determine it
(``settings.json``). The same command, also with more rounds, goes on from there; a folder with
other settings is refused, so that no outcome is ever overwritten by accident.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from botorch.exceptions.warnings import InputDataWarning
from botorch.models.transforms import Normalize

from botorch_bandits.acquisition import (
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    RandomSearch,
)
from botorch_bandits.checks import check_integer, check_number, check_positive
from botorch_bandits.cli.command_line import INTERRUPTED, METHODS, write_atomically
from botorch_bandits.cli.summary import closing_lines, result_of, table_of
from botorch_bandits.loop import BanditLoop
from botorch_bandits.models import BanditGPRecipe, FittedSingleTaskGP, candidate_grid
from botorch_bandits.problems.random_rewards import random_baseline_of
from botorch_bandits.problems.tuning import TuningProblem, load_csv, load_dataset
from botorch_bandits.random_baseline import RandomBaseline
from botorch_bandits.running import EvaluationError, end_with_parent, run
from botorch_bandits.spaces import Space

STORAGE_FILE = "run.db"
SETTINGS_FILE = "settings.json"

NUM_INITIAL = 5
"""The number of uniform rounds at the start, as many as the loop itself has by default."""

BAD_REWARD = 1
"""The exit code of a run with an evaluation that did not give a usable reward."""


@dataclass(frozen=True)
class Job:
    """What a command runs.

    Attributes:
        function: A function of a dict of values by name that returns one number.
        space: The parameters.
        title: A description of the run.
        name: The name of its folder in ``runs``.
        settings: The settings that determine the run, by option.
        in_python: A function from the recommended parameters to a Python expression.
        maximize: Whether large numbers are sought.
        reference: A name, and a function that returns a reward to compare with.
        random_search: What random search finds, if it is known.
        fold_accuracies: A function from parameters by name to the accuracy on each fold.
    """

    function: Callable[[Any], Any]
    space: Space
    title: str
    name: str
    settings: Mapping[str, Any]
    in_python: Callable[[Mapping[str, Any]], str]
    maximize: bool = True
    reference: tuple[str, Callable[[], float]] | None = None
    random_search: RandomBaseline | None = None
    fold_accuracies: Callable[..., list[float]] | None = None


def tune(options: argparse.Namespace) -> int:
    """Tune a classifier; returns the exit code.

    Args:
        options: The parsed options.

    Raises:
        ValueError: If options are wrong or conflict.
    """
    if (options.data is None) != (options.target is None):
        raise ValueError(
            f"--data is {options.data} and --target is {options.target}; give both, a CSV file and "
            "its class column, or neither."
        )
    if options.data is None:
        name, data = options.dataset, load_dataset(options.dataset)
    else:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            name, data = Path(options.data).stem, load_csv(options.data, options.target)
        for note in notes:
            print(f"note: {note.message}", file=sys.stderr)
    problem = TuningProblem(options.task, *data)
    own = {"task": options.task, "data": options.data or options.dataset, "target": options.target}
    job = Job(
        problem,
        problem.space,
        f"{options.task} on {name}, {METHODS[options.method]}",
        f"tune-{options.task}-{name}-{options.method}-{options.seed}",
        {"command": "tune", **own, **_shared_settings(options)},
        problem.describe_estimator,
        reference=("scikit-learn's default", problem.default_accuracy),
        random_search=None if options.data else random_baseline_of(problem, name),
        fold_accuracies=problem.fold_accuracies,
    )
    return _execute(job, options)


def optimize(options: argparse.Namespace) -> int:
    """Optimize a user's function; returns the exit code.

    Args:
        options: The parsed options.

    Raises:
        ValueError: If options are wrong or conflict.
    """
    function = NamedFunction(options.function, str(Path.cwd()))
    function.load()
    try:
        space = Space.parse(options.param)
    except ValueError as error:
        raise ValueError(f"--param: {error}") from error
    own = {
        "function": options.function,
        "param": options.param,
        "minimize": options.minimize,
    }
    job = Job(
        function,
        space,
        f"{options.function}{', minimized' * options.minimize}, {METHODS[options.method]}",
        f"optimize-{options.function.replace(':', '-')}-{options.method}-{options.seed}",
        {"command": "optimize", **own, **_shared_settings(options)},
        repr,
        maximize=not options.minimize,
    )
    return _execute(job, options)


def _shared_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Check the options of both commands; return those that determine the run."""
    for name, minimum in (("rounds", 1), ("seed", 0), ("workers", 1)):
        check_integer(f"--{name}", vars(options)[name], minimum)
    bounds = {"rkhs_bound": options.rkhs_bound, "noise_bound": options.noise_bound}
    for name, bound in bounds.items():
        if bound is not None and options.method not in ("igp-ucb", "gp-ts"):
            raise ValueError(
                f"--{name.replace('_', '-')} is {bound:g}, but --method {options.method} would not "
                "use it. Name a method that does (igp-ucb or gp-ts), or leave it out."
            )
    return {"method": options.method, "prior": options.prior, **bounds, "seed": options.seed}


def _acquisition(settings: Mapping[str, Any]) -> Any:
    """Return the acquisition of a method.

    The scale of the reward is unknown to the command line: bounds are multiples of the prior
    standard deviation. With a fixed prior, they are on the reward minus its mean.
    """
    method = settings["method"]
    if method in ("best", "earned"):
        return method
    if method == "random":
        return RandomSearch()
    given: dict[str, Any] = {"delta": 0.1, "units": "prior"}
    for name in ("rkhs_bound", "noise_bound"):
        if settings[name] is not None:
            given[name] = settings[name]
    if settings["prior"] is not None:
        given |= {"any_lambda": True, "assume": "centered bound"}
    kind = ImprovedUpperConfidenceBound if method == "igp-ucb" else GPThompsonSampling
    return kind.with_options(**given)


def read_prior(text: str, space: Space) -> BanditGPRecipe:
    """Return the model that ``--prior`` names: a Matern 5/2 kernel, fixed beforehand.

    Args:
        text: The value, as in ``0.2:1:0.1`` or ``0.2:1:0.1:50``: a lengthscale as a share of each
            range, standard deviations of the reward and of its noise, and a mean.
        space: The parameters; categories without an order have one column each.

    Raises:
        ValueError: If the text has another form.
    """
    try:
        numbers = [float(part) for part in text.split(":")]
    except ValueError:
        numbers = []
    if len(numbers) not in (3, 4):
        raise ValueError(
            f"--prior is {text!r}; it must be LENGTHSCALE:SCALE:NOISE or "
            "LENGTHSCALE:SCALE:NOISE:MEAN, four numbers at most, as in 0.2:1:0.1."
        )
    names = ("LENGTHSCALE", "SCALE", "NOISE")
    lengthscale, scale, noise = (
        check_positive(f"--prior, {name},", number)
        for name, number in zip(names, numbers, strict=False)
    )
    means = [check_number("--prior, MEAN,", number) for number in numbers[3:]] or [0.0]
    ratio = (noise / scale) ** 2
    (prior,) = candidate_grid([lengthscale], [ratio], [scale**2], prior_means=means)
    transform = space.input_transform() or Normalize(space.dim, bounds=space.bounds)
    return replace(prior, input_transform=transform)


def _open_loop(job: Job, folder: Path) -> BanditLoop:
    """Return the loop of a run, which continues what the folder has if there is one.

    Raises:
        ValueError: If the folder cannot be written, or holds a run with other settings.
    """
    settings = json.loads(json.dumps(dict(job.settings)))
    prior = job.settings["prior"]
    model = FittedSingleTaskGP.for_domain(job.space)
    parts: dict[str, Any] = {
        "model": model if prior is None else read_prior(prior, job.space),
        "acquisition": _acquisition(job.settings),
        "num_initial": NUM_INITIAL,
        "seed": job.settings["seed"],
        "maximize": job.maximize,
    }
    BanditLoop(job.space, **parts)  # settings that conflict are refused before a folder is made
    path, known = folder / SETTINGS_FILE, settings
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if path.exists():
            known = dict(json.loads(path.read_text(encoding="utf-8")))
        else:
            write_atomically(path, json.dumps(settings, indent=2) + "\n")
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"output folder {folder} cannot be used: {error}. Choose another --out folder, or make "
            "this one writable."
        ) from error
    for name, value in settings.items():
        if known.get(name) != value:
            raise ValueError(
                f"{folder} holds a run with --{name.replace('_', '-')} {known.get(name)}, not "
                f"{value}. Choose another --out folder, or delete this one."
            )
    return BanditLoop(job.space, **parts, storage=folder / STORAGE_FILE)


def _execute(job: Job, options: argparse.Namespace) -> int:
    """Run a job, print the summary and write the files; returns the exit code."""
    folder = Path(options.out or f"runs/{job.name}")
    started = time.monotonic()
    with warnings.catch_warnings(), _open_loop(job, folder) as loop:
        # the model standardizes; the remaining warnings are about first outcomes that are equal
        warnings.filterwarnings("ignore", ".*is not standardized", InputDataWarning)
        num_known = loop.history.num_queries
        if num_known:
            print(f"continuing {folder} after {num_known} rounds", file=sys.stderr)
        exit_code = _play(loop, job, options)
        compared = None if job.reference is None else (job.reference[0], job.reference[1]())
        result = {
            "title": job.title,
            "settings": dict(job.settings),
            "seconds": round(time.monotonic() - started, 3),
            "interrupted": exit_code == INTERRUPTED,
            "num_rounds_before": num_known,
            **result_of(loop, compared, job.random_search),
        }
        if job.fold_accuracies is not None and (found := result["recommended"]) is not None:
            found["folds"] = job.fold_accuracies(**found["parameters"])
        write_atomically(folder / "result.json", json.dumps(result, indent=2) + "\n")
        write_atomically(folder / "history.csv", table_of(loop.history))
        files = str(folder)
        if _draw(loop, job, compared, folder / "run.png"):
            files += " (run.png is the picture)"
        print(closing_lines(result, options, files, job.in_python))
    return exit_code


def _play(loop: BanditLoop, job: Job, options: argparse.Namespace) -> int:
    """Play the rounds that are left; returns the exit code."""
    num_left = max(options.rounds - loop.history.num_queries, 0)
    executor: Any = nullcontext()
    if options.workers > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # of each process
        given = options.workers, get_context("spawn")
        executor = ProcessPoolExecutor(*given, initializer=end_with_parent)
    try:
        with executor as pool:
            run(
                loop,
                job.function,
                num_left,
                executor=pool,
                catch=(Exception,) if options.catch else (),
                progress=False if options.quiet else None,
            )
    except KeyboardInterrupt:
        print("\ninterrupted; the same command continues", file=sys.stderr)
        return INTERRUPTED
    except EvaluationError as error:
        print(f"error: {error} The same command continues.", file=sys.stderr)
        return BAD_REWARD
    except Exception:  # of the user's function: all told outcomes are kept
        traceback.print_exc()
        print("error: the function raised; the same command continues.", file=sys.stderr)
        return BAD_REWARD
    return BAD_REWARD if loop.history.num_failed and not loop.history.num_arrived else 0


def _draw(loop: BanditLoop, job: Job, reference: tuple[str, float] | None, path: Path) -> bool:
    """Draw the run; returns whether matplotlib is there to do it."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'botorch_bandits[plot]'")
        return False
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from botorch_bandits.plotting import plot_run

    panels = plot_run(loop, job.title, reference, random_search=job.random_search)
    figure = panels[0].figure
    figure.savefig(path, dpi=130)
    plt.close(figure)
    return True


@dataclass(frozen=True)
class NamedFunction:
    """A user's function by its name, so that a worker process can import it for itself.

    Attributes:
        name: ``MODULE:FUNCTION``.
        folder: Modules in this folder can also be named, as with ``python -m``.
    """

    name: str
    folder: str

    def load(self) -> Callable[[Any], Any]:
        """Import the function.

        Raises:
            ValueError: If the name is malformed, or does not name a function that can be imported.
        """
        module_name, _, function_name = self.name.partition(":")
        if not (module_name and function_name):
            raise ValueError(
                f"function is {self.name!r}; it must be MODULE:FUNCTION, as in mymodule:reward."
            )
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # whatever the user's own code raises
            raise ValueError(
                f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}. "
                "Name it without .py, and run the command where it is."
            ) from error
        function = vars(module).get(function_name)
        if not callable(function):
            raise ValueError(f"module {module_name!r} has no function {function_name!r}.")
        return function

    def __call__(self, values: Any) -> Any:
        """Return what the function returns for a dict of values."""
        return self.load()(values)
