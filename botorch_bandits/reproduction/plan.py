"""What is run: sizes of a quick look, and the data files that experiments need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from botorch_bandits.experiments import EXPERIMENTS, TABLES


@dataclass(frozen=True)
class DataFile:
    """A file that is not part of this project.

    Attributes:
        what: What it holds, and its layout.
        source: Where the public gets such data.
    """

    what: str
    source: str


DATA = {
    "temperatures": DataFile(
        "sensor temperatures: .npz with the array 'temperature', times x sensors, 144 a day for "
        "seven days",
        "the Intel Berkeley Research Lab published readings of 54 sensors",
    ),
    "light": DataFile(
        "light readings: .npz with the arrays 'train_raw' and 'test_raw', times x sensors",
        "the Carnegie Mellon light sensors of November 2005",
    ),
    "speeds": DataFile(
        "road speeds: CSV with a header, time first, then one column a sensor",
        "the California Performance Measurement System (PeMS)",
    ),
    "diabetes": DataFile(
        "Pima Indians diabetes data: CSV with a header and the class in the column 'Outcome'",
        "Kaggle has it as the Pima Indians Diabetes Database",
    ),
    "tasks": DataFile(
        "SVM tasks: .npz with the arrays 'accuracy', 'hyperparameters' and 'context'",
        "the SVM meta-data set of 50 classification tasks by 288 configurations of Wistuba, "
        "Schilling and Schmidt-Thieme",
    ),
}
"""By the name of the option of ``reproduce``."""

NEEDS: dict[str, tuple[str, ...]] = {
    "srinivas-sensors": ("temperatures",),
    "srinivas-traffic": ("speeds",),
    "chowdhury-sensors": ("temperatures", "light"),
    "verma-tuning": ("diabetes",),
    "verma-contextual": ("tasks", "diabetes"),
}
"""The data of each experiment, in its entry's order."""

NEEDED_BY_PANEL = {
    "chowdhury-light": "light",
    "verma-tuning-svm": "diabetes",
    "verma-tasks": "tasks",
    "verma-growing": "diabetes",
}
"""What panels need, by the beginning of their names, where the experiment can do without."""

QUICK: dict[str, tuple[int, int | None]] = {
    "coverage": (10, 40),
    "ringing": (2, None),
    "srinivas-synthetic": (4, 100),
    "srinivas-sensors": (40, 20),
    "srinivas-traffic": (20, 60),
    "chowdhury-rkhs": (3, 500),
    "chowdhury-functions": (3, 100),
    "chowdhury-sensors": (4, 50),
    "verma-synthetic": (2, 40),
    "verma-tuning": (1, 15),
    "verma-contextual": (1, 60),
    "avanesov-horizon": (4, 480),
    "avanesov-periods": (4, 540),
    "avanesov-compare": (4, 400),
    "avanesov-constants": (4, 200),
    "shi-gardner": (2, 60),
    "shi-rates": (2, 60),
}
"""Trials and rounds of a quick look."""

QUICK_OTHERS = (2, 60)


def sizes(name: str, quick: bool) -> tuple[int | None, int | None]:
    """Return trials and rounds of an experiment; None for the paper's.

    Args:
        name: Of the experiment.
        quick: Whether a quick look is wanted.
    """
    if not quick:
        return None, None
    return QUICK.get(name, (QUICK_OTHERS[0], None) if name in TABLES else QUICK_OTHERS)


def files_of(name: str, given: Mapping[str, Path]) -> tuple[Path, ...] | None:
    """Return the data files of an experiment, or None if it cannot do without those missing.

    Args:
        name: Of the experiment.
        given: Files by the names of :data:`DATA`.
    """
    entry = EXPERIMENTS.get(name)
    if entry is None or not entry.data:
        return ()
    found = [given[kind] for kind in NEEDS[name] if kind in given]
    first_is_needed = entry.num_required > 0 and name != "verma-contextual"  # takes either
    if len(found) < entry.num_required or (first_is_needed and NEEDS[name][0] not in given):
        return None
    return tuple(found)


def missing_for(name: str, panels: tuple[str, ...], given: Mapping[str, Path]) -> list[str]:
    """Return the names of the data files that a figure's panels lack.

    Args:
        name: Of the experiment.
        panels: Patterns of the figure's panels.
        given: Files by the names of :data:`DATA`.
    """
    special = [kind for start, kind in NEEDED_BY_PANEL.items() if panels[0].startswith(start)]
    needed = special
    if name in EXPERIMENTS and EXPERIMENTS[name].num_required and not special:
        needed = list(NEEDS[name][:1])
    elif name == "chowdhury-sensors":
        needed = ["temperatures", *special]
    return [kind for kind in needed if kind not in given]
