"""Where a reproduction stands: what was asked, what its folder holds, what went wrong."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from botorch_bandits.experiments import EXPERIMENTS
from botorch_bandits.reproduction.evidence import Evidence, MissingRowsError
from botorch_bandits.reproduction.figure import Figure
from botorch_bandits.reproduction.judging import Check, Verdict, decide, reason
from botorch_bandits.reproduction.plan import DATA, NEEDS, files_of, missing_for, sizes


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What is to be run.

    Attributes:
        folder: Where experiments and the page go; an experiment has ``experiments/NAME``.
        quick: A quick look in place of the papers' sizes.
        seed: Seeds everything that is drawn.
        num_workers: Play trials in so many processes.
        files: Data files, by the names of :data:`~botorch_bandits.reproduction.plan.DATA`.
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
        words = ["botorch-bandits", "reproduce", "--quick" if self.quick else "--full"]
        words += ["--seed", str(self.seed)] if self.seed else []
        words += ["--workers", str(self.num_workers)] if self.num_workers > 1 else []
        words += ["--only", *self.only] if self.only else []
        for kind in DATA:
            words += [f"--{kind}", self.files[kind].name] if kind in self.files else []
        return shlex.join([*words, "--out", "FOLDER"])

    def command_of(self, experiment: str) -> str:
        """Return the command that runs one experiment by itself."""
        words = ["botorch-bandits", "experiment", experiment]
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
