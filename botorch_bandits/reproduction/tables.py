"""Tables of the page: an experiment's CSV files, made readable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from botorch_bandits.reproduction.evidence import Row
from botorch_bandits.reproduction.html import table
from botorch_bandits.reproduction.state import Judged

LEFT_OUT = ("experiment", "final_simple_regret", "mean_width")
"""Columns that no statement is about; panels are shown by their titles."""

FILES_LEFT_OUT = ("differences",)
"""The checks quote them."""

TITLES = {
    "regret": "regret is",
    "mean": "mean",
    "standard_error": "std. error",
    "cumulative_mean": "R_T",
    "cumulative_standard_error": "R_T std. error",
    "covered": "covered",
    "regret_mean": "regret",
    "regret_standard_error": "std. error",
    "regret_median": "median",
    "violation_mean": "violation",
    "violation_standard_error": "std. error",
    "violation_median": "median",
    "rectified_mean": "rectified",
    "rectified_standard_error": "std. error",
    "rectified_median": "median",
}

FIRST = ("table", "violation")
"""Tables that are shown before the others."""

CAPTIONS = {
    "power": "Powers and other fits",
    "table": "Means over trials, with standard errors and medians",
    "violation": "Time averages over trials, half way and at the end",
    "detections": "What the detector did",
    "growth": "Growth of totals with the rounds, fitted powers with 95% intervals",
}


def result_tables(judged: Judged) -> Iterator[str]:
    """Return the tables of a figure's panels as HTML.

    Args:
        judged: The figure with its experiment's tables.
    """
    evidence, figure = judged.evidence, judged.figure
    titles = {panel["name"]: panel["title"] for panel in evidence.panels(figure.panels)}
    for name, rows in sorted(evidence.tables.items(), key=lambda item: item[0] not in FIRST):
        if name in FILES_LEFT_OUT or (name == "table" and "violation" in evidence.tables):
            continue
        shown = [row for row in rows if _belongs(row, figure.panels)]
        if shown:
            yield _table(CAPTIONS.get(name, name.replace("_", " ").capitalize()), shown, titles)


def _belongs(row: Row, panels: Sequence[str]) -> bool:
    return "experiment" not in row or any(fnmatchcase(row["experiment"], p) for p in panels)


def _table(caption: str, rows: Sequence[Row], titles: Mapping[str, str]) -> str:
    columns = [
        name
        for name in rows[0]
        if name not in LEFT_OUT and any(row[name] not in ("", None) for row in rows)
    ]
    of_panels = "experiment" in rows[0] and len({row["experiment"] for row in rows}) > 1
    head = [TITLES.get(name, name.replace("_", " ")) for name in columns]
    cells = [[format_number(row[name]) for name in columns] for row in rows]
    if of_panels:
        head = ["panel", *head]
        names = [titles.get(row["experiment"], row["experiment"]) for row in rows]
        cells = [[name, *row] for name, row in zip(names, cells, strict=True)]
    return table(caption, head, cells)


def format_number(text: str) -> str:
    """Return a cell of a CSV file with four digits if it is a number, else as it is.

    Args:
        text: The cell.
    """
    try:
        number = float(text)
    except ValueError:
        return text
    return text if "." not in text and "e" not in text else f"{number:.4g}"
