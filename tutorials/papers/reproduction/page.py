"""The contents of the pages of all figures, and of the file ``verdicts.csv``.

:mod:`~papers.reproduction.page_html` writes the pages as one self-contained HTML page, and
:mod:`~papers.reproduction.page_markdown` as pages of the documentation.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from pathlib import Path
from typing import Any

from botorch_bandits.cli import write_atomically
from papers.pictures import Row
from papers.reproduction.blocks import (
    Beside,
    Block,
    Bullets,
    Code,
    Details,
    Heading,
    Image,
    Link,
    Page,
    Paragraph,
    Table,
    paragraph,
)
from papers.reproduction.committed import PAGES, VERDICTS
from papers.reproduction.figures import FIGURES
from papers.reproduction.judging import RULES, Check, Verdict
from papers.reproduction.page_html import write_html
from papers.reproduction.page_markdown import write_markdown
from papers.reproduction.state import Judged, State

LEFT_OUT = ("experiment", "final_simple_regret", "mean_width")
"""Columns that no statement refers to; panels are identified by their titles."""

FILES_LEFT_OUT = ("differences", "curves", "boxes", "factors")
"""Tables that checks quote, that pictures show, or that are shown separately."""

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
"""The tables that are shown before the others."""

CAPTIONS = {
    "power": "Powers and other fits",
    "table": "Means over trials, with standard errors and medians",
    "violation": "Time averages over trials, half way and at the end",
    "detections": "What the detector did",
    "growth": "Growth of totals with the rounds, fitted powers with 95% intervals",
}


def result_tables(judged: Judged) -> Iterator[Table]:
    """Return the tables of a figure's panels.

    Args:
        judged: The figure, with the tables of its experiment.
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


def _table(caption: str, rows: Sequence[Row], titles: Mapping[str, str]) -> Table:
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
    return Table(caption, head, cells)


def format_number(text: str) -> str:
    """Return a cell of a CSV file, rounded to four digits if it is a decimal number.

    Args:
        text: The cell.
    """
    try:
        number = float(text)
    except ValueError:
        return text
    return text if "." not in text and "e" not in text else f"{number:.4g}"


PAGE, TABLE = "reproduction.html", "verdicts.csv"
TITLE = "Reproduction, figure by figure"
BEYOND = "Beyond the papers"
QUICK_NOTICE = (
    "Quick settings: few trials and few rounds, to check that everything runs. No verdict follows "
    "from these numbers; --full has the papers' sizes."
)


def write_page(state: State) -> None:
    """Write the HTML page and the table of verdicts, replacing each file as a whole.

    Args:
        state: The state of the reproduction.
    """
    judged = [state.judge(figure) for figure in FIGURES]
    folder = state.settings.folder
    write_atomically(folder / TABLE, verdicts(judged))
    write_atomically(folder / PAGE, write_html(TITLE, make_pages(state, judged)))


def documentation(state: State, docs: Path) -> dict[Path, str]:
    """Return the files of the documentation that report on the figures.

    Args:
        state: The state of the reproduction; pictures are linked to its files.
        docs: The folder of the documentation.

    Returns:
        The text of each file: one page per paper, an index page, and the verdicts.
    """
    judged = [state.judge(figure) for figure in FIGURES]
    files = write_markdown(make_pages(state, judged), docs / PAGES)
    return {**files, docs / VERDICTS: verdicts(judged)}


def make_pages(state: State, judged: Sequence[Judged]) -> list[Page]:
    """Return the index page, one page per paper, and one page beyond the papers.

    Args:
        state: The state of the reproduction.
        judged: All figures.
    """
    pages = [Page("index", TITLE, list(_first_page(state, judged)))]
    for paper, figures in groupby(judged, key=lambda j: j.figure.paper or BEYOND):
        sections = list(figures)
        blocks: list[Block] = []
        for each in sections:
            blocks += _section(state, each)
        for name in dict.fromkeys(each.figure.experiment for each in sections):
            blocks += _experiment(state, name)
        pages.append(Page(_file_name(paper), paper, blocks))
    return pages


def _file_name(paper: str) -> str:
    first, *_, last = paper.replace(",", "").lower().split()
    return f"{first}-{last}" if last.isdigit() else first


def _first_page(state: State, judged: Sequence[Judged]) -> Iterator[Block]:
    yield paragraph(
        "For each figure of five papers on Gaussian-process bandits, these pages say what the "
        "paper states, show what this package draws, and say how far the two agree. Regret is what "
        "is lost relative to the best choice, so less is better. The bands around curves are one "
        "standard error of the mean on either side."
    )
    yield from _notices(state, judged)
    yield from _overview(judged)
    yield Heading("How verdicts are reached", "rules")
    yield paragraph(
        "Each paper's statement is divided into claims, and each claim is checked against the "
        "tables of this run by one of the following rules. No verdict is written by hand."
    )
    yield Bullets(RULES)
    yield Heading("How the numbers were made", "made")
    yield paragraph(
        "The numbers were made by this command, in which paths are shortened to file names:"
    )
    record = state.record
    yield Code(record.command)
    known = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    yield paragraph(
        f"The seed is {record.seed}, and the versions are {known}. Trials were played in "
        f"{record.num_workers} process(es) on a machine with {record.num_cores} cores; wall times "
        "are sums over trials."
    )


def _notices(state: State, judged: Sequence[Judged]) -> Iterator[Block]:
    if state.settings.quick:
        yield Paragraph((QUICK_NOTICE,), is_notice=True)
    waiting = [j for j in judged if not j.was_run]
    if waiting:
        words = (
            f"{len(waiting)} of {len(judged)} sections have not been run or have failed; each says "
            "why."
        )
        yield Paragraph((words,), is_notice=True)


def _overview(judged: Sequence[Judged]) -> Iterator[Block]:
    yield Heading("Contents and verdicts", "contents")
    counts = {v: sum(j.verdict is v for j in judged if j.figure.is_published) for v in Verdict}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    yield paragraph(f"Published figures: {words}.")
    rows = [
        (
            Link(j.figure.name, f"{j.figure.paper}, {j.figure.number}"),
            str(j.verdict),
            j.figure.published,
            j.reason,
        )
        for j in judged
        if j.figure.is_published
    ]
    yield Table("Published figures", ("figure", "verdict", "published", "ours"), rows)
    others = [
        (
            Link(j.figure.name, j.figure.number),
            j.figure.published,
            j.reason or (j.findings[0] if j.findings else ""),
        )
        for j in judged
        if not j.figure.is_published
    ]
    yield Table(BEYOND, ("experiment", "question", "found"), others)


def _section(state: State, judged: Judged) -> Iterator[Block]:
    figure = judged.figure
    yield Heading(figure.number, figure.name)
    if state.settings.quick:
        yield Paragraph((QUICK_NOTICE,), is_notice=True)
    label = "Published." if figure.is_published else "Question."
    left: list[Block] = [paragraph(figure.published, label=label), *_ours(judged)]
    if not judged.was_run:
        yield from left
        return
    if figure.numbers is not None:
        rows = [(n.name, n.published, n.ours) for n in figure.numbers(judged.evidence)]
        left.append(Table("Numbers of the paper", ("", "published", "ours"), rows))
    pictures = state.pictures(figure)
    shown = [Image(path, picture.alt) for picture, path in pictures if not picture.is_detail]
    yield Beside(left, shown)
    details = [Image(path, picture.alt) for picture, path in pictures if picture.is_detail]
    if details:
        yield Details(f"Box plots over runs ({len(details)} pictures)", details)
    if judged.checks:
        checks = [(c.claim, "holds" if c.holds else "does not hold", c.ours) for c in judged.checks]
        yield Table("Claims", ("claim", "here", "numbers compared"), checks)
    yield from _factors(state.factors(figure), figure.experiment.split("-")[0])
    yield from result_tables(judged)
    if figure.differs:
        yield paragraph(figure.differs, label="What differs from the paper.")
    yield paragraph(_run_words(judged), Link(_anchor(figure.experiment), "Settings"))


def _ours(judged: Judged) -> Iterator[Block]:
    verdict = f"Ours: {judged.verdict}." if judged.verdict is not None else "Ours."
    if judged.reason or not judged.findings:
        yield paragraph(judged.reason, label=verdict)
    else:
        yield paragraph("", label=verdict)
    if judged.findings:
        yield Bullets(judged.findings)


FACTORS = {
    "factor": "what was changed",
    "setting": "to what",
    "claim": "claim",
    "ours": "numbers compared",
    "difference": "difference",
    "standard_error": "std. error",
    "holds": "holds",
    "trials": "trials",
    "source": "where the setting is from",
}


def _factors(rows: Sequence[Row], paper: str) -> Iterator[Block]:
    """Show what changes if one setting is changed; the first row has the settings as judged."""
    if not rows:
        return
    names = [name for name in FACTORS if any(row.get(name) for row in rows)]
    cells = [[format_number(row.get(name, "")) for name in names] for row in rows]
    words = (
        f"One setting changed at a time (experiment {paper}-factors); the first row is as judged"
    )
    yield Table(words, [FACTORS[name] for name in names], cells)


def _run_words(judged: Judged) -> str:
    panels = judged.evidence.panels(judged.figure.panels)
    trials = _range(panels, "trials")
    rounds = _range(panels, "rounds")
    words = f"Repeats: {trials} trials" + (f" of {rounds} rounds" if rounds else "")
    return (
        f"{words}, seed {judged.evidence.settings.get('seed')}. Wall time of all trials of all "
        f"methods: {_seconds(panels)}. "
    )


def _range(panels: Sequence[dict[str, Any] | Any], key: str) -> str:
    values = sorted({panel[key] for panel in panels if panel[key] is not None})
    return " to ".join(str(value) for value in dict.fromkeys([*values[:1], *values[-1:]]))


def _seconds(panels: Sequence[Any]) -> str:
    known = [panel["seconds"] for panel in panels]
    if any(seconds is None for seconds in known):
        return "not recorded"
    total = sum(known)
    return f"{total:.0f} s" if total < 600 else f"{total / 60:.0f} min"


def _experiment(state: State, name: str) -> Iterator[Block]:
    yield Heading(f"Settings of {name}", _anchor(name))
    yield Code(state.settings.command_of(name))
    evidence = state.evidence(name)
    panels = evidence.panels(("*",))
    if not panels:
        yield paragraph("Not run.")
        return
    rows = [(p["title"], str(p["trials"]), str(p["rounds"] or ""), _seconds([p])) for p in panels]
    yield Table("Panels", ("panel", "trials", "rounds", "wall time"), rows)
    known = evidence.settings
    used = ", ".join(f"{key} {value}" for key, value in known["versions"].items())
    words = f"Tabulated with {used}; " if used else "Versions were not recorded; "
    yield paragraph(f"Seed {known['seed']}. {words}{known['threads']} thread(s) per process.")
    yield Details("All settings", [Code(json.dumps(known["settings"], indent=1))])


def _anchor(name: str) -> str:
    return "of-" + "".join(c if c.isalnum() else "-" for c in name.lower())


def verdicts(judged: Iterable[Judged]) -> str:
    """Return the table of verdicts as CSV.

    It has one row per claim. Figures that were not run, and those beyond the papers, have one row.

    Args:
        judged: All figures.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("paper", "figure", "verdict", "published", "ours", "standard_error", "holds", "reason")
    )
    for j in judged:
        start = (j.figure.paper or BEYOND, j.figure.number, j.verdict or "")
        nothing: Check | None = None
        for check in j.checks or (nothing,):
            if check is None:
                row = (j.figure.published, " ".join(j.findings), "", "")
            else:
                error = check.standard_error
                shown = "" if error is None else f"{error:.4g}"
                row = (check.claim, check.ours, shown, "yes" if check.holds else "no")
            writer.writerow((*start, *row, j.reason))
    return text.getvalue()
