"""The HTML page of all figures, and ``verdicts.csv`` beside it.

The page stands alone: pictures are inside, and nothing is loaded from elsewhere. The first part of
the file makes HTML, the second puts contents, verdicts and sections together.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from botorch_bandits.cli import write_atomically
from papers.reproduction.figures import FIGURES
from papers.reproduction.judging import RULES, Check, Row, Verdict
from papers.reproduction.state import Judged, State
from papers.running import versions

STYLE = """
body { font: 1rem/1.5 Georgia, serif; color: #111; background: #fff; margin: 0 auto;
  max-width: 62rem; padding: 1rem; overflow-wrap: break-word; }
h1, h2, h3, h4 { font-family: Helvetica, Arial, sans-serif; line-height: 1.25; }
h2 { border-top: 3px solid #111; padding-top: .6rem; margin-top: 3rem; }
h3 { border-top: 1px solid #111; padding-top: .5rem; margin-top: 2.5rem; }
a { color: #111; }
.beside { display: grid; grid-template-columns: 1fr 1fr; gap: 0 2rem; }
.beside > div { min-width: 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; margin: .6rem 0; }
caption { text-align: left; font-weight: bold; padding: .3rem 0; }
th, td { border-bottom: 1px solid #999; padding: .2rem .7rem .2rem 0; text-align: left;
  vertical-align: top; }
thead th { border-bottom: 2px solid #111; }
td.number { text-align: right; white-space: nowrap; }
img { max-width: 100%; height: auto; border: 1px solid #999; }
figure { margin: 1rem 0; }
figcaption, .small { font-size: .85rem; }
.notice { border: 2px solid #111; padding: .5rem .8rem; }
pre { white-space: pre-wrap; font-size: .8rem; }
@media (max-width: 40rem) { .beside { display: block; } }
@media print { h3, figure, tr { break-inside: avoid; } a { text-decoration: none; } }
"""


class Html(str):
    """What is HTML already."""

    __slots__ = ()


def page(title: str, body: Iterable[str]) -> str:
    """Return a whole page.

    Args:
        title: As text.
        body: HTML.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def element(name: str, text: str, *, of_class: str = "", anchor: str = "") -> str:
    """Return an element around a text.

    Args:
        name: Of the element.
        text: As text.
        of_class: Its class.
        anchor: Its id, where links lead.
    """
    return wrap(name, [escape(text)], of_class=of_class, anchor=anchor)


def wrap(name: str, inside: Iterable[str], *, of_class: str = "", anchor: str = "") -> str:
    """Return an element around HTML; arguments as for :func:`element`."""
    given = f' id="{escape(anchor)}"' if anchor else ""
    given += f' class="{escape(of_class)}"' if of_class else ""
    return f"<{name}{given}>{''.join(inside)}</{name}>"


def link(anchor: str, text: str) -> Html:
    """Return a link to a place on the page.

    Args:
        anchor: The id of the place.
        text: As text.
    """
    return Html(f'<a href="#{escape(anchor)}">{escape(text)}</a>')


def bullets(texts: Iterable[str]) -> str:
    """Return a list.

    Args:
        texts: As text.
    """
    return wrap("ul", (element("li", text) for text in texts))


def table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. Cells are text, but for those of :class:`Html`.

    Args:
        caption: As text.
        titles: Of the columns.
        rows: Cells.
    """
    head = wrap("tr", (f'<th scope="col">{escape(title)}</th>' for title in titles))
    body = (wrap("tr", [_cell(cell, i == 0) for i, cell in enumerate(row)]) for row in rows)
    inside = [
        element("caption", caption),
        wrap("thead", [head]),
        wrap("tbody", body),
    ]
    return wrap("div", [wrap("table", inside)], of_class="scroll")


def _cell(cell: str, is_first: bool) -> str:
    text = cell if isinstance(cell, Html) else escape(cell)
    if is_first:
        return f'<th scope="row">{text}</th>'
    return wrap("td", [text], of_class="number" if _is_number(cell) else "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def image(path: Path, caption: str, description: str) -> str:
    """Return a PNG file as part of the page.

    Args:
        path: The file.
        caption: As text.
        description: What it shows, for who cannot see it; as text.
    """
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    source = f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'
    return wrap("figure", [source, element("figcaption", caption)])


LEFT_OUT = ("experiment", "final_simple_regret", "mean_width")
"""Columns that no statement is about; panels are shown by their titles."""

FILES_LEFT_OUT = ("differences", "curves", "boxes")
"""The checks quote them, or figures show them."""

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


PAGE, TABLE = "reproduction.html", "verdicts.csv"
BEYOND = "Beyond the papers"
QUICK_NOTICE = (
    "Quick settings: few trials and few rounds, to see that everything runs. No verdict follows "
    "from these numbers; --full has the papers' sizes."
)


def write_page(state: State) -> None:
    """Write the page and the table of verdicts, each replaced as a whole.

    Args:
        state: Where the reproduction stands.
    """
    judged = [state.judge(figure) for figure in FIGURES]
    folder = state.settings.folder
    write_atomically(folder / TABLE, _verdicts(judged))
    write_atomically(folder / PAGE, page("Reproduction, figure by figure", _body(state, judged)))


def _body(state: State, judged: Sequence[Judged]) -> Iterator[str]:
    yield element("h1", "Reproduction, figure by figure")
    yield element(
        "p",
        "Each figure of five papers on Gaussian-process bandits, as published and as this package "
        "draws it, and how far the two agree. Regret is what is lost against the best choice: less "
        "is better.",
    )
    yield from _notices(state, judged)
    yield from _overview(judged)
    yield element("h2", "How verdicts are reached", anchor="rules")
    yield element(
        "p",
        "What a paper states is taken apart into claims, and each is held against the tables of "
        "this run by one of these rules. No verdict is written by hand.",
    )
    yield bullets(RULES)
    shown: dict[Path, str] = {}
    for paper, figures in groupby(judged, key=lambda j: j.figure.paper or BEYOND):
        yield element("h2", paper, anchor=_anchor(paper))
        for each in figures:
            yield from _section(state, each, shown)
    yield element("h2", "Settings of each experiment", anchor="settings")
    for name in dict.fromkeys(j.figure.experiment for j in judged):
        yield from _experiment(state, name)


def _notices(state: State, judged: Sequence[Judged]) -> Iterator[str]:
    settings = state.settings
    if settings.quick:
        yield element("p", QUICK_NOTICE, of_class="notice")
    waiting = [j for j in judged if not j.was_run]
    if waiting:
        words = (
            f"{len(waiting)} of {len(judged)} sections have not been run, or failed; each says why."
        )
        yield element("p", words, of_class="notice")
    yield element("p", "The command (paths of files are shortened to their names):")
    yield element("pre", settings.command)
    known = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield element(
        "p",
        f"Seed {settings.seed}. Versions: {known}. Trials are played in {settings.num_workers} "
        f"process(es) on a machine with {os.cpu_count()} cores; wall times are sums over trials.",
    )


def _overview(judged: Sequence[Judged]) -> Iterator[str]:
    yield element("h2", "Contents and verdicts", anchor="contents")
    counts = {v: sum(j.verdict is v for j in judged if j.figure.is_published) for v in Verdict}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    yield element("p", f"Published figures: {words}.")
    rows = [
        (
            link(j.figure.name, f"{j.figure.paper}, {j.figure.number}"),
            j.figure.published,
            j.reason,
            str(j.verdict),
        )
        for j in judged
        if j.figure.is_published
    ]
    yield table("Published figures", ("figure", "published", "ours", "verdict"), rows)
    others = [
        (
            link(j.figure.name, j.figure.number),
            j.figure.published,
            j.reason or (j.findings[0] if j.findings else ""),
        )
        for j in judged
        if not j.figure.is_published
    ]
    yield table(BEYOND, ("experiment", "question", "found"), others)
    links = (link("rules", "How verdicts are reached"), link("settings", "All settings"))
    yield wrap("p", [" · ".join(links)])


def _section(state: State, judged: Judged, shown: dict[Path, str]) -> Iterator[str]:
    figure = judged.figure
    end = f": {judged.verdict}" if judged.verdict is not None else ""
    yield element("h3", f"{figure.number}{end}", anchor=figure.name)
    if state.settings.quick:
        yield element("p", QUICK_NOTICE, of_class="notice")
    left = [
        element("h4", "Published" if figure.is_published else "Question"),
        element("p", figure.published),
    ]
    right = [element("h4", "Ours"), *_ours(judged)]
    columns = (wrap("div", column) for column in (left, right))
    yield wrap("div", columns, of_class="beside")
    if not judged.was_run:
        return
    if figure.numbers is not None:
        rows = [(n.name, n.published, n.ours) for n in figure.numbers(judged.evidence)]
        yield table("Numbers of the paper", ("", "published", "ours"), rows)
    if judged.checks:
        checks = [(c.claim, "holds" if c.holds else "does not hold", c.ours) for c in judged.checks]
        yield table("Claims", ("claim", "here", "numbers compared"), checks)
    yield from _images(state, judged, shown)
    yield from result_tables(judged)
    if figure.differs:
        yield element("p", f"What differs from the paper: {figure.differs}")
    yield wrap("p", [_run_words(judged), link(_anchor(figure.experiment), "Settings")])


def _ours(judged: Judged) -> Iterator[str]:
    if judged.reason:
        yield element("p", judged.reason)
    if judged.findings:
        yield bullets(judged.findings)


def _images(state: State, judged: Judged, shown: dict[Path, str]) -> Iterator[str]:
    figure = judged.figure
    panels = judged.evidence.panels(figure.panels)
    titles = "; ".join(dict.fromkeys(panel["title"] for panel in panels))
    folder = state.settings.folder_of(figure.experiment)
    for name in figure.images or (f"figure-{figure.name}.png", f"{figure.experiment}.png"):
        path = folder / name
        if not path.exists():
            continue
        if path in shown:
            yield wrap("p", ["The curves are with ", link(*_first(shown[path])), "."])
        else:
            shown[path] = figure.name
            of = figure.number if figure.is_published else f"the experiment {figure.experiment}"
            description = f"Our version of {of}. Panels: {titles}. The numbers are in the tables."
            yield image(path, f"Ours: {titles}.", description)
        if not figure.images:
            break


def _first(name: str) -> tuple[str, str]:
    return name, next(f"{f.number} above" for f in FIGURES if f.name == name)


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
        return "not written down"
    total = sum(known)
    return f"{total:.0f} s" if total < 600 else f"{total / 60:.0f} min"


def _experiment(state: State, name: str) -> Iterator[str]:
    yield element("h3", name, anchor=_anchor(name))
    yield element("pre", state.settings.command_of(name))
    evidence = state.evidence(name)
    panels = evidence.panels(("*",))
    if not panels:
        yield element("p", "Not run.")
        return
    rows = [(p["title"], str(p["trials"]), str(p["rounds"] or ""), _seconds([p])) for p in panels]
    yield table("Panels", ("panel", "trials", "rounds", "wall time"), rows)
    known = evidence.settings
    used = ", ".join(f"{key} {value}" for key, value in known["versions"].items())
    words = f"Seed {known['seed']}. Tabulated with {used}; {known['threads']} thread(s) a process."
    yield element("p", words, of_class="small")
    text = json.dumps(known["settings"], indent=1)
    inside = [element("summary", "All settings"), element("pre", text)]
    yield wrap("details", inside)


def _anchor(name: str) -> str:
    return "of-" + "".join(c if c.isalnum() else "-" for c in name.lower())


def _verdicts(judged: Sequence[Judged]) -> str:
    """One row a claim; figures that were not run, and what is beyond the papers, have one row."""
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
