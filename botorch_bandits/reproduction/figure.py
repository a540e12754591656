"""What is known of a published figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from botorch_bandits.reproduction.evidence import Evidence
from botorch_bandits.reproduction.judging import Check


@dataclass(frozen=True)
class Number:
    """A number of the paper beside ours.

    Attributes:
        name: Of what.
        published: The paper's.
        ours: That of this run, with its error where it has one.
    """

    name: str
    published: str
    ours: str


@dataclass(frozen=True)
class Figure:
    """A published figure, or several that show one run; or an experiment beyond the papers.

    Attributes:
        name: Short, for links and files.
        paper: Who and when; empty beyond the papers.
        number: Of the figure; a title beyond the papers.
        experiment: What it is drawn from.
        panels: Patterns of the experiment's panels.
        published: What the paper says, in our words; what is asked, beyond the papers.
        judge: From the experiment's tables to the claims; None beyond the papers.
        differs: What this run has in place of what the paper has.
        numbers: From the tables to the paper's numbers beside ours.
        findings: From the tables to what was found, for experiments beyond the papers.
        draw: From the tables to axes, where the usual curves are not what the figure shows.
        images: Files of the experiment's folder in place of drawn curves.
    """

    name: str
    paper: str
    number: str
    experiment: str
    panels: tuple[str, ...]
    published: str
    judge: Callable[[Evidence], list[Check]] | None = None
    differs: str = ""
    numbers: Callable[[Evidence], list[Number]] | None = None
    findings: Callable[[Evidence], Sequence[str]] | None = None
    draw: Callable[[Evidence], Any] | None = None
    images: tuple[str, ...] = ()

    @property
    def is_published(self) -> bool:
        """Whether a paper has it."""
        return self.judge is not None
