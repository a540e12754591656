"""One HTML page of all figures, and ``verdicts.csv`` beside it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from botorch_bandits.experiments.results import write_text
from botorch_bandits.experiments.running import versions
from botorch_bandits.reproduction import html
from botorch_bandits.reproduction.figures import FIGURES
from botorch_bandits.reproduction.judging import RULES, Check, Verdict
from botorch_bandits.reproduction.state import Judged, State
from botorch_bandits.reproduction.tables import result_tables

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
    write_text(folder / TABLE, _verdicts(judged))
    write_text(folder / PAGE, html.page("Reproduction, figure by figure", _body(state, judged)))


def _body(state: State, judged: Sequence[Judged]) -> Iterator[str]:
    yield html.element("h1", "Reproduction, figure by figure")
    yield html.element(
        "p",
        "Each figure of five papers on Gaussian-process bandits, as published and as this package "
        "draws it, and how far the two agree. Regret is what is lost against the best choice: less "
        "is better.",
    )
    yield from _notices(state, judged)
    yield from _overview(judged)
    yield html.element("h2", "How verdicts are reached", anchor="rules")
    yield html.element(
        "p",
        "What a paper states is taken apart into claims, and each is held against the tables of "
        "this run by one of these rules. No verdict is written by hand.",
    )
    yield html.bullets(RULES)
    shown: dict[Path, str] = {}
    for paper, figures in groupby(judged, key=lambda j: j.figure.paper or BEYOND):
        yield html.element("h2", paper, anchor=_anchor(paper))
        for each in figures:
            yield from _section(state, each, shown)
    yield html.element("h2", "Settings of each experiment", anchor="settings")
    for name in dict.fromkeys(j.figure.experiment for j in judged):
        yield from _experiment(state, name)


def _notices(state: State, judged: Sequence[Judged]) -> Iterator[str]:
    settings = state.settings
    if settings.quick:
        yield html.element("p", QUICK_NOTICE, of_class="notice")
    waiting = [j for j in judged if not j.was_run]
    if waiting:
        words = (
            f"{len(waiting)} of {len(judged)} sections have not been run, or failed; each says why."
        )
        yield html.element("p", words, of_class="notice")
    yield html.element("p", "The command (paths of files are shortened to their names):")
    yield html.element("pre", settings.command)
    known = ", ".join(f"{name} {version}" for name, version in versions().items())
    yield html.element(
        "p",
        f"Seed {settings.seed}. Versions: {known}. Trials are played in {settings.num_workers} "
        f"process(es) on a machine with {os.cpu_count()} cores; wall times are sums over trials.",
    )


def _overview(judged: Sequence[Judged]) -> Iterator[str]:
    yield html.element("h2", "Contents and verdicts", anchor="contents")
    counts = {v: sum(j.verdict is v for j in judged if j.figure.is_published) for v in Verdict}
    words = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    yield html.element("p", f"Published figures: {words}.")
    rows = [
        (
            html.link(j.figure.name, f"{j.figure.paper}, {j.figure.number}"),
            j.figure.published,
            j.reason,
            str(j.verdict),
        )
        for j in judged
        if j.figure.is_published
    ]
    yield html.table("Published figures", ("figure", "published", "ours", "verdict"), rows)
    others = [
        (
            html.link(j.figure.name, j.figure.number),
            j.figure.published,
            j.reason or (j.findings[0] if j.findings else ""),
        )
        for j in judged
        if not j.figure.is_published
    ]
    yield html.table(BEYOND, ("experiment", "question", "found"), others)
    links = (html.link("rules", "How verdicts are reached"), html.link("settings", "All settings"))
    yield html.wrap("p", [" · ".join(links)])


def _section(state: State, judged: Judged, shown: dict[Path, str]) -> Iterator[str]:
    figure = judged.figure
    end = f": {judged.verdict}" if judged.verdict is not None else ""
    yield html.element("h3", f"{figure.number}{end}", anchor=figure.name)
    if state.settings.quick:
        yield html.element("p", QUICK_NOTICE, of_class="notice")
    left = [
        html.element("h4", "Published" if figure.is_published else "Question"),
        html.element("p", figure.published),
    ]
    right = [html.element("h4", "Ours"), *_ours(judged)]
    columns = (html.wrap("div", column) for column in (left, right))
    yield html.wrap("div", columns, of_class="beside")
    if not judged.was_run:
        return
    if figure.numbers is not None:
        rows = [(n.name, n.published, n.ours) for n in figure.numbers(judged.evidence)]
        yield html.table("Numbers of the paper", ("", "published", "ours"), rows)
    if judged.checks:
        checks = [(c.claim, "holds" if c.holds else "does not hold", c.ours) for c in judged.checks]
        yield html.table("Claims", ("claim", "here", "numbers compared"), checks)
    yield from _images(state, judged, shown)
    yield from result_tables(judged)
    if figure.differs:
        yield html.element("p", f"What differs from the paper: {figure.differs}")
    yield html.wrap("p", [_run_words(judged), html.link(_anchor(figure.experiment), "Settings")])


def _ours(judged: Judged) -> Iterator[str]:
    if judged.reason:
        yield html.element("p", judged.reason)
    if judged.findings:
        yield html.bullets(judged.findings)


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
            yield html.wrap("p", ["The curves are with ", html.link(*_first(shown[path])), "."])
        else:
            shown[path] = figure.name
            of = figure.number if figure.is_published else f"the experiment {figure.experiment}"
            description = f"Our version of {of}. Panels: {titles}. The numbers are in the tables."
            yield html.image(path, f"Ours: {titles}.", description)
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
    yield html.element("h3", name, anchor=_anchor(name))
    yield html.element("pre", state.settings.command_of(name))
    evidence = state.evidence(name)
    panels = evidence.panels(("*",))
    if not panels:
        yield html.element("p", "Not run.")
        return
    rows = [(p["title"], str(p["trials"]), str(p["rounds"] or ""), _seconds([p])) for p in panels]
    yield html.table("Panels", ("panel", "trials", "rounds", "wall time"), rows)
    known = evidence.settings
    used = ", ".join(f"{key} {value}" for key, value in known["versions"].items())
    words = f"Seed {known['seed']}. Tabulated with {used}; {known['threads']} thread(s) a process."
    yield html.element("p", words, of_class="small")
    text = json.dumps(known["settings"], indent=1)
    inside = [html.element("summary", "All settings"), html.element("pre", text)]
    yield html.wrap("details", inside)


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
