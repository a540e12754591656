"""The page: well-formed, self-contained, escaped; the same after an interruption."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from papers import running
from papers.registry import TABLES, TableEntry
from papers.reproduction import FIGURES, Reproduction, reproduce, run
from papers.reproduction import state as plan
from papers.reproduction.blocks import Code, Heading, Link, Page, Table
from papers.reproduction.judging import Figure, Verdict
from papers.reproduction.page import PAGE, QUICK_NOTICE, TABLE
from papers.reproduction.page_html import write_html
from papers.reproduction.state import DATA, State

EMPTY = ("meta", "img", "br", "link")
ONLY = ("srinivas-sensors", "chowdhury-functions", "ringing")


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    sizes = {"srinivas-sensors": (7, 2), "chowdhury-functions": (2, 3)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", sizes | {"ringing": (1, None)})
        patch.setitem(TABLES, "ringing", TableEntry(ringing, "an experiment with a table alone"))
        yield


def ringing(num_trials: int, seed: int) -> list[dict[str, Any]]:
    """A table at no cost."""
    row = {"model": "given", "pending": "fill", "trials": num_trials}
    return [row | {"rings": 0.25, "best_reward": 1.5 + seed}]


@pytest.fixture(scope="module")
def temperatures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "temperature <&>.npz"
    np.savez(path, temperature=20 + np.random.default_rng(0).normal(size=(1008, 6)))
    return path


def settings(folder: Path, **others: Any) -> Reproduction:
    given: dict[str, Any] = {"quick": True, "only": ONLY, "progress": False}
    return Reproduction(folder=folder, **{**given, **others})


class Parsed(HTMLParser):
    """Checks balance while it reads; collects ids, links, sources and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def values(self, tag: str, name: str) -> list[str]:
        return [value for t, n, value in self.attributes if (t, n) == (tag, name)]


def read(folder: Path) -> Parsed:
    return Parsed((folder / PAGE).read_text(encoding="utf-8"))


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / TABLE).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, temperatures: Path, tiny: None) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    state = reproduce(settings(folder, files={"temperatures": temperatures}))
    assert state.errors == {}
    return folder


def test_the_page_is_well_formed_and_stands_alone(whole: Path) -> None:
    page = read(whole)
    assert len(set(page.ids)) == len(page.ids)
    links = page.values("a", "href")
    assert {link[1:] for link in links} <= set(page.ids)
    assert all(link.startswith("#") for link in links)
    sources = page.values("img", "src")
    assert len(sources) == 3  # ringing has none, the functions have two panels
    assert all(source.startswith("data:image/svg+xml;base64,PHN2Z") for source in sources)
    assert len(page.values("img", "alt")) == len(sources)
    assert page.values("html", "lang") == ["en"]
    assert {tag for tag, _, _ in page.attributes} & {"script", "link", "iframe"} == set()
    text = (whole / PAGE).read_text(encoding="utf-8")
    assert re.findall(r"(?:https?:|@import|url\()", text) == []


def test_every_figure_has_a_section_and_a_row(whole: Path) -> None:
    page = read(whole)
    assert {figure.name for figure in FIGURES} <= set(page.ids)
    links = {link[1:] for link in page.values("a", "href")}
    assert {figure.name for figure in FIGURES} <= links
    assert {row["figure"] for row in rows(whole)} == {figure.number for figure in FIGURES}


def test_quick_pages_give_no_verdict(whole: Path) -> None:
    verdicts = {row["figure"]: row["verdict"] for row in rows(whole)}
    assert verdicts["Figure 5b"] == Verdict.NONE
    assert verdicts["Pending queries at the minimum"] == ""
    known = {Verdict.NONE, Verdict.NOT_RUN, ""}
    assert set(verdicts.values()) == known
    text = (whole / PAGE).read_text(encoding="utf-8")
    assert text.count(escape(QUICK_NOTICE)) == len(FIGURES) + 1


def test_the_page_shows_numbers_and_how_they_came_about(whole: Path) -> None:
    text = " ".join(read(whole).texts)
    with (whole / "experiments/srinivas-sensors/table.csv").open() as file:
        for row in csv.DictReader(file):
            for name in ("mean", "standard_error", "median"):
                assert f"{float(row[name]):.4g}" in text
    assert "7 trials of 2 rounds, seed 0" in text
    assert "python tutorials/papers experiment srinivas-sensors --trials 7 --rounds 2" in text
    for name, version in running.versions().items():
        assert f"{name} {version}" in text


def test_text_is_escaped_and_data_files_are_named_without_their_folder(
    whole: Path, temperatures: Path
) -> None:
    raw = (whole / PAGE).read_text(encoding="utf-8")
    assert "temperature <&>.npz" in " ".join(read(whole).texts)
    assert "temperature &lt;&amp;&gt;.npz" in raw
    assert "temperature <&>" not in raw
    assert str(temperatures.parent) not in raw


def test_cells_are_text_unless_they_are_links() -> None:
    rows = [["<b>"], [Link("x", "<y>")], ["1.5"]]
    blocks = [Heading("<h>", "x"), Table("<c>", ["<t>"], rows), Code("<pre>")]
    found = write_html("<title>", [Page("p", "<p>", blocks)])
    for tag in ("<b>", "<t>", "<c>", "<h>", "<pre><pre>", "<title><title>"):
        assert tag not in found
    assert '<a href="#x">&lt;y&gt;</a>' in found
    Parsed(found)


def test_missing_data_are_said_with_their_source(tmp_path: Path) -> None:
    state = reproduce(settings(tmp_path, only=("srinivas-sensors", "chowdhury-sensors")))
    assert state.errors == {}
    reasons = {row["figure"]: row["reason"] for row in rows(tmp_path)}
    assert DATA["temperatures"].source in reasons["Figure 5b"]
    assert DATA["light"].source in reasons["Figure 4b"]
    assert DATA["light"].source not in reasons["Figure 4a"]
    assert "Left out by --only" in reasons["Figure 5a"]
    read(tmp_path)


def without_times(folder: Path) -> str:
    text = (folder / PAGE).read_text(encoding="utf-8")
    text = re.sub(r"\b\d+ (?:s|min)\b", "TIME", text)
    return text


def test_interruption_and_continuation_give_the_same_page(
    tmp_path: Path, whole: Path, temperatures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(tmp_path, files={"temperatures": temperatures})
    original, calls = running.run_arms_experiment, []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(running, "run_arms_experiment", interrupted)
        state = reproduce(given)
    assert state.is_interrupted
    assert state.num_finished == 1
    reasons = {(row["paper"], row["figure"]): row["reason"] for row in rows(tmp_path)}
    assert (
        reasons["Chowdhury and Gopalan 2017", "Figure 3"]
        == "Not finished yet; the same command continues."
    )
    read(tmp_path)
    trials = tmp_path / "experiments/srinivas-sensors/trials"
    stamps = {path: path.stat().st_mtime_ns for path in trials.iterdir()}
    assert not reproduce(given).is_interrupted
    assert {path: path.stat().st_mtime_ns for path in trials.iterdir()} == stamps
    assert without_times(tmp_path) == without_times(whole)
    assert (tmp_path / TABLE).read_text() == (whole / TABLE).read_text()


def test_a_folder_of_the_experiment_command_is_taken_over(
    tmp_path: Path, temperatures: Path
) -> None:
    folder = tmp_path / "experiments/srinivas-sensors"
    running.run_experiment("srinivas-sensors", folder, (temperatures,), 7, 2, progress=False)
    (folder / "settings.json").write_text("{}")  # of an earlier version
    stamps = {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()}
    given = {"only": ("srinivas-sensors",), "files": {"temperatures": temperatures}}
    reproduce(settings(tmp_path, **given))
    assert {path: path.stat().st_mtime_ns for path in (folder / "trials").iterdir()} == stamps


def test_an_experiment_that_fails_does_not_stop_the_others(
    tmp_path: Path, temperatures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = run.run_experiment

    def failing(name: str, *arguments: Any) -> Any:
        if name == "srinivas-sensors":
            raise RuntimeError("a <broken> pipe")
        return original(name, *arguments)

    monkeypatch.setattr(run, "run_experiment", failing)
    only = ("srinivas-sensors", "ringing")
    given = settings(tmp_path, only=only, files={"temperatures": temperatures})
    state = reproduce(given)
    assert state.errors == {"srinivas-sensors": "RuntimeError: a <broken> pipe"}
    assert "a <broken> pipe" in " ".join(read(tmp_path).texts)
    assert "Traceback" in (given.folder_of("srinivas-sensors") / "error.txt").read_text()
    assert (given.folder_of("ringing") / "table.csv").exists()
    # once it works its error is gone
    monkeypatch.setattr(run, "run_experiment", original)
    assert reproduce(given).errors == {}
    assert "broken" not in (tmp_path / PAGE).read_text(encoding="utf-8")


def test_only_adds_to_what_the_folder_has(tmp_path: Path, temperatures: Path) -> None:
    reproduce(settings(tmp_path, only=("ringing",)))
    given = {"only": ("srinivas-sensors",), "files": {"temperatures": temperatures}}
    reproduce(settings(tmp_path, **given))
    found = {row["figure"]: row["verdict"] for row in rows(tmp_path)}
    assert found["Pending queries at the minimum"] == ""
    assert found["Figure 5b"] == Verdict.NONE
    # a table that is there is not made again
    stamp = (tmp_path / "experiments/ringing/table.csv").stat().st_mtime_ns
    reproduce(settings(tmp_path, only=("ringing",)))
    assert (tmp_path / "experiments/ringing/table.csv").stat().st_mtime_ns == stamp


def test_full_pages_give_the_verdict_that_the_judge_gives(tmp_path: Path, whole: Path) -> None:
    """The same tables, under settings that are not quick."""
    (figure,) = (figure for figure in FIGURES if figure.name == "srinivas-5b")
    quick, full = (
        State(settings(whole, quick=quick, only=())).judge(figure) for quick in (True, False)
    )
    assert quick.checks == full.checks
    assert full.verdict in (Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT)
    assert quick.verdict is Verdict.NONE


def test_a_judge_that_lacks_rows_does_not_stop_the_page(whole: Path) -> None:
    def lacking(evidence: Any) -> Any:
        return evidence.rows("table", "nowhere")

    figure = Figure("x", "p", "n", "srinivas-sensors", ("srinivas-*",), "", lacking)
    judged = State(settings(whole)).judge(figure)
    assert judged.verdict is Verdict.NOT_RUN
    assert "no rows of nowhere" in judged.reason


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"only": ("fly",)}, "only is 'fly'"),
        ({"files": {"light": Path("nowhere.npz")}}, "light is nowhere.npz, which is not a file"),
        ({"seed": -1}, "seed is -1"),
        ({"num_workers": 0}, "num_workers is 0"),
    ],
)
def test_bad_settings_are_named(others: dict[str, Any], expected: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(expected)):
        reproduce(settings(tmp_path / "out", **others))
    assert not (tmp_path / "out").exists()


def test_a_folder_keeps_its_size_and_seed(whole: Path) -> None:
    with pytest.raises(ValueError, match="holds a reproduction with quick settings and seed 0"):
        reproduce(settings(whole, seed=1))
    assert json.loads((whole / run.SETTINGS_FILE).read_text()) == {"quick": True, "seed": 0}
