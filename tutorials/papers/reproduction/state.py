"""What a reproduction runs, with which files and sizes, and how far it is.

Settings are fixed when it starts; the state is read from the folders of the experiments, so that an
interrupted run continues.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from papers import EXPERIMENTS, TABLES
from papers.reproduction.judging import (
    Check,
    Evidence,
    Figure,
    MissingRowsError,
    Verdict,
    decide,
    reason,
)


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
    "srinivas-factors": ("temperatures",),
    "chowdhury-sensors": ("temperatures", "light"),
    "chowdhury-factors": ("temperatures", "light"),
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
    "srinivas-factors": (2, 10),
    "chowdhury-rkhs": (3, 500),
    "chowdhury-functions": (3, 100),
    "chowdhury-sensors": (4, 50),
    "chowdhury-factors": (2, 10),
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


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What is to be run.

    Attributes:
        folder: Where experiments and the page go; an experiment has ``experiments/NAME``.
        quick: A quick look in place of the papers' sizes.
        seed: Seeds everything that is drawn.
        num_workers: Play trials in so many processes.
        files: Data files, by the names of :data:`~papers.reproduction.state.DATA`.
        only: Names of experiments; all of them if empty.
        progress: Show progress bars.
    """

    folder: Path
    quick: bool
    seed: int = 0
    num_workers: int = 1
    files: Mapping[str, Path] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    progress: bool = True

    def folder_of(self, experiment: str) -> Path:
        """Return the folder of an experiment."""
        return self.folder / "experiments" / experiment

    @property
    def command(self) -> str:
        """The command that runs this, without the folders of files."""
        words = ["python", "tutorials/papers", "reproduce", "--quick" if self.quick else "--full"]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--workers", str(self.num_workers)] if self.num_workers > 1 else []
        words += ["--only", *self.only] if self.only else []
        for kind in DATA:
            words += [f"--{kind}", self.files[kind].name] if kind in self.files else []
        return shlex.join([*words, "--out", "FOLDER"])

    def command_of(self, experiment: str) -> str:
        """Return the command that runs one experiment by itself."""
        words = ["python", "tutorials/papers", "experiment", experiment]
        for option, size in zip(("trials", "rounds"), sizes(experiment, self.quick), strict=True):
            words += [f"--{option}", str(size)] if size is not None else []
        files = files_of(experiment, self.files) or ()
        words += ["--data", *(file.name for file in files)] if files else []
        return shlex.join([*words, "--seed", str(self.seed)])


@dataclass(frozen=True)
class Judged:
    """A figure and what became of it.

    Attributes:
        figure: The figure.
        evidence: The tables of its experiment.
        verdict: The verdict; None beyond the papers, where the experiment was run.
        checks: Of its claims; empty if it was not run.
        reason: Why, in words.
        findings: Beyond the papers: what was found.
    """

    figure: Figure
    evidence: Evidence
    verdict: Verdict | None
    checks: tuple[Check, ...] = ()
    reason: str = ""
    findings: tuple[str, ...] = ()

    @property
    def was_run(self) -> bool:
        """Whether there is anything to show."""
        return self.verdict is not Verdict.NOT_RUN


@dataclass
class State:
    """What is known while experiments run.

    Attributes:
        settings: What was asked.
        errors: What each experiment that failed said.
        is_interrupted: Whether the user stopped it.
        num_finished: How many experiments this start has behind it.
    """

    settings: Reproduction
    errors: dict[str, str] = field(default_factory=dict)
    is_interrupted: bool = False
    num_finished: int = 0

    @cached_property
    def _evidence(self) -> dict[str, Evidence]:
        return {}

    def evidence(self, experiment: str) -> Evidence:
        """Return the tables of an experiment; they are read once, when it has finished."""
        if experiment not in self._evidence:
            found = Evidence.of_folder(self.settings.folder_of(experiment))
            if not found.settings.get("panels"):
                return Evidence({})
            self._evidence[experiment] = found
        return self._evidence[experiment]

    def forget(self, experiment: str) -> None:
        """Read the tables of an experiment anew next time."""
        self._evidence.pop(experiment, None)

    def judge(self, figure: Figure) -> Judged:
        """Return a figure with its verdict.

        Args:
            figure: What is judged.
        """
        evidence = self.evidence(figure.experiment)
        if figure.experiment in self.errors or not evidence.panels(figure.panels):
            return Judged(figure, evidence, Verdict.NOT_RUN, reason=self._why_not(figure))
        try:
            if figure.judge is None:
                findings = () if figure.findings is None else tuple(figure.findings(evidence))
                return Judged(figure, evidence, None, findings=findings)
            checks = tuple(figure.judge(evidence))
        except (MissingRowsError, KeyError, ValueError) as error:
            words = f"The tables cannot be judged: {error}."
            return Judged(figure, evidence, Verdict.NOT_RUN, reason=words)
        why = reason(checks)
        if self.settings.quick:
            return Judged(figure, evidence, Verdict.NONE, checks, f"At quick settings: {why}")
        return Judged(figure, evidence, decide(checks), checks, why)

    def _why_not(self, figure: Figure) -> str:
        name = figure.experiment
        if name in self.errors:
            return f"The experiment failed: {self.errors[name]}"
        missing = missing_for(name, figure.panels, self.settings.files)
        if missing:
            files = "; ".join(
                f"--{kind} with {DATA[kind].what} ({DATA[kind].source})" for kind in missing
            )
            return f"Data are missing: {files}."
        if self.settings.only and name not in self.settings.only:
            return f"Left out by --only; {self.settings.command_of(name)} runs the experiment."
        return "Not finished yet; the same command continues."


def can_run(name: str, settings: Reproduction) -> bool:
    """Whether the data files that an experiment cannot do without are there.

    Args:
        name: Of the experiment.
        settings: What was asked.
    """
    needs_data = name in EXPERIMENTS and name in NEEDS
    return not needs_data or files_of(name, settings.files) is not None
