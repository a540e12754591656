"""All figures, in the order of the page: paper by paper, then those beyond the papers.

Experiments in the registry that no figure shows are added at the end, so that none is left out.
"""

from __future__ import annotations

from papers import EXPERIMENTS, TABLES
from papers.registry import FACTORS
from papers.reproduction import avanesov, beyond, chowdhury, shi, srinivas, verma
from papers.reproduction.beyond import find_least
from papers.reproduction.judging import Figure

PUBLISHED = (
    *srinivas.FIGURES,
    *chowdhury.FIGURES,
    *verma.FIGURES,
    *avanesov.FIGURES,
    *shi.FIGURES,
)


def _others() -> tuple[Figure, ...]:
    """Return the experiments that have no figure above; a new experiment needs no entry.

    Those that change one setting at a time are shown below the claims that they concern.
    """
    known = {figure.experiment for figure in (*PUBLISHED, *beyond.FIGURES)}
    described = {name: entry.description for name, entry in EXPERIMENTS.items()}
    described |= {name: entry.description for name, entry in TABLES.items()}
    return tuple(
        Figure(name, "", name, name, ("*",), _sentence(description), findings=find_least)
        for name, description in described.items()
        if name not in known and not name.endswith(FACTORS)
    )


def _sentence(description: str) -> str:
    return f"{description[:1].upper()}{description[1:]}."


def _registered(figure: Figure) -> bool:
    return figure.experiment in EXPERIMENTS or figure.experiment in TABLES


FIGURES = (*PUBLISHED, *filter(_registered, beyond.FIGURES), *_others())
"""Published figures, paper by paper, followed by those beyond the papers."""
