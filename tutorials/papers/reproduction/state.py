"""What a reproduction runs, with which files and sizes, and how far it has progressed.

The settings are fixed when it starts. The state is read from the folders of the experiments, so an
interrupted run can continue.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from papers import EXPERIMENTS, TABLES
from papers.pictures import FOLDER as IMAGES
from papers.pictures import Picture, Row
from papers.registry import FACTORS
from papers.reproduction.committed import (
    Record,
    committed_pictures,
    read_evidence,
    read_factors,
    read_record,
)
from papers.reproduction.judging import (
    Check,
    Evidence,
    Figure,
    MissingRowsError,
    Verdict,
    decide,
    reason,
)
from papers.running import pictures_of, read_rows, versions


@dataclass(frozen=True)
class DataFile:
    """A file that is not part of this project.

    Attributes:
        what: Its contents and layout.
        source: Where such data are publicly available.
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
        "road speeds: CSV with a header, time first, then one column per sensor",
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
"""Data files by the name of the option of ``reproduce``."""

NEEDS: dict[str, tuple[str, ...]] = {
    "srinivas-sensors": ("temperatures",),
    "srinivas-traffic": ("speeds",),
    "srinivas-factors": ("temperatures",),
    "chowdhury-sensors": ("temperatures", "light"),
    "chowdhury-factors": ("temperatures", "light"),
    "verma-tuning": ("diabetes",),
    "verma-contextual": ("tasks", "diabetes"),
    "verma-factors": ("diabetes", "tasks"),
}
"""The data files of each experiment, in the order of its entry."""

NEEDED_BY_PANEL = {
    "chowdhury-light": "light",
    "verma-tuning-svm": "diabetes",
    "verma-tasks": "tasks",
    "verma-growing": "diabetes",
}
"""Data that panels need, by the start of their names, if the experiment runs without them."""

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
    "verma-factors": (2, 20),
    "avanesov-horizon": (4, 480),
    "avanesov-periods": (4, 540),
    "avanesov-compare": (4, 400),
    "avanesov-constants": (4, 200),
    "shi-gardner": (2, 60),
    "shi-rates": (2, 60),
    "avanesov-factors": (2, 120),
    "avanesov-calibration": (20, None),
    "shi-factors": (1, 25),
    "shi-varying": (1, 60),
}
"""Trials and rounds of a quick run."""

QUICK_OTHERS = (2, 60)


def sizes(name: str, quick: bool) -> tuple[int | None, int | None]:
    """Return the trials and rounds of an experiment; None stands for the paper's number.

    Args:
        name: The name of the experiment.
        quick: Whether the run is a quick one.
    """
    if not quick:
        return None, None
    return QUICK.get(name, (QUICK_OTHERS[0], None) if name in TABLES else QUICK_OTHERS)


def files_of(name: str, given: Mapping[str, Path]) -> tuple[Path, ...] | None:
    """Return the data files of an experiment, or None if required files are missing.

    Args:
        name: The name of the experiment.
        given: Files by the names of :data:`DATA`.
    """
    entry = EXPERIMENTS.get(name)
    if entry is None or not entry.data:
        return ()
    found = [given[kind] for kind in NEEDS[name] if kind in given]
    first_is_needed = entry.num_required > 0 and name != "verma-contextual"  # takes either file
    if len(found) < entry.num_required or (first_is_needed and NEEDS[name][0] not in given):
        return None
    return tuple(found)


def missing_for(name: str, panels: tuple[str, ...], given: Mapping[str, Path]) -> list[str]:
    """Return the names of the data files that a figure's panels lack.

    Args:
        name: The name of the experiment.
        panels: Patterns for the figure's panels.
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
        folder: The folder for experiments and the page; each experiment is in ``experiments/NAME``.
        quick: Whether to run few trials and rounds in place of the papers' sizes.
        seed: The seed of everything that is drawn.
        num_workers: The number of processes that play trials.
        files: Data files, by the names of :data:`~papers.reproduction.state.DATA`.
        only: Names of experiments; all of them if empty.
        progress: Whether to show progress bars.
        docs: The folder of a documentation whose committed results are read in place of those in
            ``folder``; nothing is played in this case.
    """

    folder: Path
    quick: bool
    seed: int = 0
    num_workers: int = 1
    files: Mapping[str, Path] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    progress: bool = True
    docs: Path | None = None

    def folder_of(self, experiment: str) -> Path:
        """Return the folder of an experiment."""
        return self.folder / "experiments" / experiment

    @property
    def command(self) -> str:
        """The command that runs this reproduction, with file names but without their folders."""
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
    """A figure and its verdict.

    Attributes:
        figure: The figure.
        evidence: The tables of its experiment.
        verdict: The verdict; None beyond the papers, where the experiment was run.
        checks: The checks of its claims; empty if it was not run.
        reason: The reason for the verdict, in words.
        findings: What was found, for experiments beyond the papers.
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
    """The state of a reproduction while experiments run.

    Attributes:
        settings: What was requested.
        errors: The error message of each experiment that failed.
        is_interrupted: Whether the user stopped it.
        num_finished: The number of experiments that have finished since this start.
    """

    settings: Reproduction
    errors: dict[str, str] = field(default_factory=dict)
    is_interrupted: bool = False
    num_finished: int = 0

    @cached_property
    def _evidence(self) -> dict[str, Evidence]:
        return {}

    def evidence(self, experiment: str) -> Evidence:
        """Return the tables of an experiment, which are read only once, when it has finished."""
        if experiment not in self._evidence:
            docs = self.settings.docs
            if docs is None:
                found = Evidence.of_folder(self.settings.folder_of(experiment))
            else:
                found = read_evidence(experiment, docs)
            if not found.settings.get("panels"):
                return Evidence({})
            self._evidence[experiment] = found
        return self._evidence[experiment]

    def forget(self, experiment: str) -> None:
        """Forget the tables of an experiment, so that they are read again next time."""
        self._evidence.pop(experiment, None)
        self.__dict__.pop("_factors", None)

    @cached_property
    def record(self) -> Record:
        """How the numbers were produced."""
        settings = self.settings
        if settings.docs is not None:
            return read_record(settings.docs)
        return Record(
            settings.command,
            settings.seed,
            settings.num_workers,
            os.cpu_count() or 1,
            versions(),
            {kind: path.name for kind, path in settings.files.items()},
        )

    def pictures(self, figure: Figure) -> list[tuple[Picture, Path]]:
        """Return the pictures of a figure's panels with their files, in the panels' order.

        Args:
            figure: The figure whose panels are shown.
        """
        name, docs = figure.experiment, self.settings.docs
        if docs is None:
            folder = self.settings.folder_of(name) / IMAGES
            drawn = pictures_of(name, self.evidence(name))
            known = [(each, folder / f"{each.name}.svg") for each in drawn]
        else:
            known = committed_pictures(name, docs)
        return [
            (picture, path)
            for picture, path in known
            if path.exists()
            and any(fnmatchcase(panel, p) for panel in picture.panels for p in figure.panels)
        ]

    def factors(self, figure: Figure) -> list[Row]:
        """Return the rows that show the effect of one changed setting on a figure's claims.

        Args:
            figure: The figure.
        """
        return [row for row in self._factors if row.get("figure") == figure.name]

    @cached_property
    def _factors(self) -> list[Row]:
        if self.settings.docs is not None:
            return read_factors(self.settings.docs)
        folders = sorted((self.settings.folder / "experiments").glob(f"*{FACTORS}"))
        return [row for folder in folders for row in read_rows(folder / "factors.csv")]

    def judge(self, figure: Figure) -> Judged:
        """Return a figure with its verdict.

        Args:
            figure: The figure to judge.
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
    """Whether the data files that an experiment requires are available.

    Args:
        name: The name of the experiment.
        settings: What was requested.
    """
    needs_data = name in EXPERIMENTS and name in NEEDS
    return not needs_data or files_of(name, settings.files) is not None
