"""Run all experiments one after another, and write the page after each.

Finished trials are not played again, and an experiment that fails does not stop the others.
"""

from __future__ import annotations

import io
import json
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path

from botorch_bandits.checks import check_integer, check_one_of
from botorch_bandits.cli import write_atomically
from papers.registry import EXPERIMENTS, FACTORS
from papers.reproduction.committed import RECORD, commit, read_record, write_record
from papers.reproduction.figures import FIGURES
from papers.reproduction.page import PAGE, TABLE, documentation, write_page
from papers.reproduction.state import Reproduction, State, can_run, files_of, sizes
from papers.running import run_experiment

SETTINGS_FILE = "reproduction.json"
NAMES = tuple(
    dict.fromkeys(
        [
            *(figure.experiment for figure in FIGURES),
            *(name for name in EXPERIMENTS if name.endswith(FACTORS)),
        ]
    )
)
"""All experiments in the order of the page; those that change one setting come last."""


def reproduce(settings: Reproduction) -> State:
    """Run experiments and write ``reproduction.html`` and ``verdicts.csv`` after each.

    Trials that an earlier start or the command ``experiment`` with the same folder has finished
    are not played again. An experiment that fails does not stop the others. An interrupted run
    leaves a complete page, and the same call continues it.

    Args:
        settings: What is to be run.

    Returns:
        The state, with the errors of experiments and whether the run was interrupted.

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
            raise ValueError(f"{kind} is {path}, which is not a file; give the path of a file.")
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


def write_from_results(docs: Path, folder: Path | None = None) -> list[Path]:
    """Write the pages of the documentation from its committed results; nothing is played.

    Args:
        docs: The folder of the documentation.
        folder: If given, also write the self-contained HTML page and its table of verdicts here.

    Returns:
        The files that were written.

    Raises:
        ValueError: If the folder has no committed results.
    """
    state = from_results(docs, folder or docs)
    files = documentation(state, docs)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    if folder is None:
        return list(files)
    folder.mkdir(parents=True, exist_ok=True)
    write_page(state)
    return [*files, folder / PAGE, folder / TABLE]


def from_results(docs: Path, folder: Path) -> State:
    """Return the state of the committed reproduction.

    Args:
        docs: The folder of the documentation.
        folder: The folder of its HTML page.

    Raises:
        ValueError: If the folder has no committed results.
    """
    if not (docs / RECORD).is_file():
        raise ValueError(
            f"docs is {docs}, which has no {RECORD}; give the folder of the documentation."
        )
    record = read_record(docs)
    return State(
        Reproduction(
            folder=folder,
            quick=False,
            seed=record.seed,
            num_workers=record.num_workers,
            files={kind: Path(name) for kind, name in record.files.items()},
            docs=docs,
        )
    )


def commit_to(state: State, docs: Path) -> list[Path]:
    """Copy what a full reproduction has finished into the documentation, and write its pages.

    Args:
        state: What :func:`reproduce` returned.
        docs: The folder of the documentation.

    Returns:
        The files.

    Raises:
        ValueError: If the reproduction is a quick one, from which no verdict follows.
    """
    settings = state.settings
    if settings.quick:
        raise ValueError("only a full reproduction goes into the documentation; give --full.")
    files = []
    for name in NAMES:
        if name not in state.errors and state.evidence(name).settings.get("panels"):
            files += commit(name, settings.folder_of(name), docs)
    write_record(state.record, docs)
    return [*files, docs / RECORD, *write_from_results(docs)]


def _claim(settings: Reproduction) -> None:
    """Claim the folder for this reproduction, or check that it already belongs to it."""
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
        run_experiment(
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
