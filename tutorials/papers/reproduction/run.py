"""Run all experiments, one after another, and write the page after each.

What is done is not played again, and an experiment that fails does not stop the others.
"""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from pathlib import Path

from botorch_bandits.checks import check_integer, check_one_of
from botorch_bandits.cli import write_atomically
from papers import EXPERIMENTS
from papers.reproduction.figures import FIGURES
from papers.reproduction.judging import Evidence, Figure
from papers.reproduction.page import write_page
from papers.reproduction.state import Reproduction, State, can_run, files_of, sizes
from papers.results import plot_curves, save_figure
from papers.running import Finished, run_experiment

SETTINGS_FILE = "reproduction.json"
NAMES = tuple(dict.fromkeys(figure.experiment for figure in FIGURES))
"""Of all experiments, in the order of the page."""


def reproduce(settings: Reproduction) -> State:
    """Run experiments and write ``reproduction.html`` and ``verdicts.csv`` after each.

    Trials that an earlier start finished, or the command ``experiment`` with the same folder, are
    not played again. An experiment that fails does not stop the others. A start that is
    interrupted leaves a whole page, and the same call continues it.

    Args:
        settings: What is run.

    Returns:
        What went wrong, if anything, and whether it was interrupted.

    Raises:
        ValueError: If an experiment's name is unknown, a data file does not exist, or the folder
            holds a reproduction with another seed or size.
    """
    check_integer("seed", settings.seed, minimum=0)
    check_integer("num_workers", settings.num_workers, minimum=1)
    for name in settings.only:
        check_one_of("only", name, NAMES)
    for kind, path in settings.files.items():
        if not path.is_file():
            raise ValueError(f"{kind} is {path}, which is no file; give the file itself.")
    _claim(settings)
    state = State(settings)
    names = [name for name in NAMES if not settings.only or name in settings.only]
    write_page(state)
    for i, name in enumerate(names):
        print(f"[{i + 1} of {len(names)}] {name}", flush=True)
        if not can_run(name, settings):
            print("    not run: data are missing; the page says which")
            continue
        try:
            _run(name, settings)
            state.num_finished += 1
        except KeyboardInterrupt:
            state.is_interrupted = True
        except Exception as error:
            state.errors[name] = f"{type(error).__name__}: {error}"
            print(f"    failed: {state.errors[name]}")
            text = traceback.format_exc()
            settings.folder_of(name).mkdir(parents=True, exist_ok=True)
            write_atomically(settings.folder_of(name) / "error.txt", text)
        state.forget(name)
        write_page(state)
        if state.is_interrupted:
            break
    return state


def _claim(settings: Reproduction) -> None:
    """Make the folder this reproduction's, or see that it is."""
    path = settings.folder / SETTINGS_FILE
    wanted = {"quick": settings.quick, "seed": settings.seed}
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        if known != wanted:
            raise ValueError(
                f"{settings.folder} holds a reproduction with {_words(known)}, not "
                f"{_words(wanted)}; choose another folder with --out."
            )
    settings.folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(wanted) + "\n")


def _words(known: Mapping[str, object]) -> str:
    return f"{'quick' if known.get('quick') else 'full'} settings and seed {known.get('seed')}"


def _run(name: str, settings: Reproduction) -> None:
    folder = settings.folder_of(name)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "error.txt").unlink(missing_ok=True)
    trials, rounds = sizes(name, settings.quick)
    printed = io.StringIO()
    with redirect_stdout(printed):
        finished = run_experiment(
            name,
            folder,
            files_of(name, settings.files) or (),
            trials,
            rounds,
            settings.seed,
            settings.num_workers,
            settings.progress,
        )
    write_atomically(folder / "report.txt", printed.getvalue())
    for figure in FIGURES:
        if figure.experiment == name:
            _draw(figure, finished, folder)


def _draw(figure: Figure, finished: Finished, folder: Path) -> None:
    """Draw the panels of a figure, unless the experiment has drawn them."""
    shown = [
        (experiment, curves)
        for experiment, curves in zip(finished.panels, finished.curves, strict=True)
        if any(fnmatchcase(experiment.name, pattern) for pattern in figure.panels)
    ]
    if figure.draw is not None:
        axes = figure.draw(Evidence.of_folder(folder))
    elif shown and not figure.images and EXPERIMENTS[figure.experiment].report is None:
        axes = plot_curves([e for e, _ in shown], [c for _, c in shown], 2)
    else:
        return
    save_figure(axes[0].figure, folder / f"figure-{figure.name}.png")
