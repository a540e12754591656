"""Committed results: what a run puts there, what is read again, and the pages that follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from papers.commands import main
from papers.registry import EXPERIMENTS, TABLES
from papers.reproduction import FIGURES, committed
from papers.reproduction import state as plan
from papers.reproduction.blocks import Beside, Details, Heading, Image, Link, Page, Table, paragraph
from papers.reproduction.judging import Evidence
from papers.reproduction.page_markdown import escape, slug, write_markdown
from papers.reproduction.run import commit_to, from_results, write_from_results
from papers.reproduction.state import Reproduction, State
from papers.results import write_csv
from papers.running import run_experiment

DOCS = Path(__file__).parents[3] / "docs"


def test_the_pages_and_verdicts_are_those_of_the_committed_results(tmp_path: Path) -> None:
    """If this fails: python tutorials/papers reproduce --from-results."""
    from papers.reproduction.page import documentation

    files = documentation(from_results(DOCS, tmp_path), DOCS)
    assert len(files) == 8
    for path, text in files.items():
        assert path.read_text(encoding="utf-8") == text, path.name
    written = {path.name for path in (DOCS / committed.PAGES).iterdir()}
    assert written == {path.name for path in files if path.suffix == ".md"}


def test_every_picture_of_committed_curves_is_committed() -> None:
    known = {path.stem for path in (DOCS / committed.IMAGES).glob("*.svg")}
    shown = set()
    for name in EXPERIMENTS:
        evidence = committed.read_evidence(name, DOCS)
        shown |= {picture.name for picture in committed.pictures_of(name, evidence)}
    assert known == shown
    assert {path.stem for path in (DOCS / committed.CURVES).glob("*.csv")} <= {
        *EXPERIMENTS,
        *(f"{name}-boxes" for name in EXPERIMENTS),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "sizes", lambda name, quick: (3, 4))
        run_experiment(
            "chowdhury-functions",
            folder / "experiments" / "chowdhury-functions",
            num_trials=3,
            num_rounds=4,
            progress=False,
        )
        yield folder


def test_what_is_committed_is_read_again(run: Path, tmp_path: Path) -> None:
    folder = run / "experiments" / "chowdhury-functions"
    files = committed.commit("chowdhury-functions", folder, tmp_path)
    assert len(files) == len(set(files)) == 3 + 2 + 1  # tables, pictures, settings
    ours, theirs = (
        Evidence.of_folder(folder),
        committed.read_evidence("chowdhury-functions", tmp_path),
    )
    assert ours.tables == theirs.tables
    assert set(ours.tables) == {"table", "differences", "curves"}
    assert theirs.settings == {
        key: value for key, value in ours.settings.items() if key != "seconds_of_this_start"
    }
    pictures = committed.committed_pictures("chowdhury-functions", tmp_path)
    assert [path.stem for _, path in pictures] == ["chowdhury-rosenbrock", "chowdhury-hartmann3"]


def test_tables_of_several_experiments_share_a_file(tmp_path: Path) -> None:
    """Committing one of them again replaces its rows only; a longer name is another experiment."""
    for round_ in ("1", "2"):
        for name, panel in (
            ("avanesov-horizon", "avanesov-horizon-900"),
            ("avanesov-compare", "avanesov-compare"),
        ):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            write_csv(folder / "detections.csv", [{"experiment": panel, "runs": round_}])
            write_csv(folder / "table.csv", [{"experiment": panel, "mean": round_}])
            committed.commit(name, folder, tmp_path)
    for name in ("avanesov-horizon", "avanesov-compare"):
        tables = committed.read_evidence(name, tmp_path).tables
        assert [row["runs"] for row in tables["detections"]] == ["2"]
        assert len(tables["table"]) == 1
    for name in ("beyond-changes", "beyond-changes-hard"):
        write_csv(tmp_path / "results" / f"{name}-differences.csv", [{"less": name}])
    found = committed.read_evidence("beyond-changes", tmp_path).tables
    assert {kind: rows[0]["less"] for kind, rows in found.items()} == {
        "differences": "beyond-changes"
    }


def test_a_full_run_goes_into_the_documentation_and_a_quick_one_does_not(
    run: Path, tmp_path: Path
) -> None:
    full = State(Reproduction(folder=run, quick=False, progress=False))
    files = commit_to(full, tmp_path)
    assert tmp_path / "figure-by-figure" / "chowdhury-2017.md" in files
    text = (tmp_path / "figure-by-figure" / "chowdhury-2017.md").read_text(encoding="utf-8")
    assert "../images/experiments/chowdhury-rosenbrock.svg" in text
    assert "## Figure 3" in text
    alone = tmp_path / "alone"
    write_from_results(tmp_path, alone)
    assert "data:image/svg+xml" in (alone / "reproduction.html").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="give --full"):
        commit_to(State(Reproduction(folder=run, quick=True)), tmp_path)


def test_changed_settings_stand_below_the_claims_of_their_figure(tmp_path: Path, run: Path) -> None:
    full = State(Reproduction(folder=run, quick=False, progress=False))
    commit_to(full, tmp_path)
    row = {"figure": "chowdhury-3", "factor": "the noise", "setting": "half of it"}
    row |= {"claim": "EI best", "ours": "1 and 2", "difference": "+1", "standard_error": "0.25"}
    row |= {"holds": "yes", "trials": "7", "source": "section 6"}
    write_csv(tmp_path / "results" / "factors-chowdhury.csv", [row])
    write_from_results(tmp_path)
    page = (tmp_path / "figure-by-figure" / "chowdhury-2017.md").read_text(encoding="utf-8")
    line = "| the noise | half of it | EI best | 1 and 2 | +1 | 0.25 | yes | 7 | section 6 |"
    assert page.count(line) == 1
    assert page.index("**Claims**") < page.index(line)
    assert page.index("## Figure 3") < page.index(line) < page.index("## Figure 4a")


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--from-results", "--docs", str(tmp_path)]) == 2
    assert "has no results/settings/reproduction.json" in capsys.readouterr().err
    assert main(["reproduce", "--quick", "--commit", "--out", str(tmp_path / "x")]) == 2
    assert "--commit is given without --full" in capsys.readouterr().err


def test_markdown_shows_text_as_it_is_and_links_across_pages(tmp_path: Path) -> None:
    nasty = "a*b_c `d` <script> [x](y) |z| $1$ T^0.7 #h"
    blocks: list[Any] = [
        Heading("Figure 1: a", "one"),
        paragraph(nasty, label="Label."),
        Table("", ("name", "number"), [(Link("two", "there"), "1.5"), (nasty, "-2")]),
        Beside([paragraph("left")], [Image(tmp_path / "p.svg", "what is [seen]")]),
        Details("more", [paragraph("hidden")]),
    ]
    pages = [Page("index", "T", blocks), Page("other", "O", [Heading("Figure 2", "two")])]
    text = write_markdown(pages, tmp_path / "pages")[tmp_path / "pages" / "index.md"]
    assert "[there](other.md#figure-2)" in text
    assert r"\<script\>" in text
    assert r"\|z\| \$1\$ T\^0.7" in text
    assert r"![what is \[seen\]](../p.svg)" in text
    assert "| --- | ---: |" in text
    assert text.count("<div") == text.count("</div>") == 3
    assert text.count("<details>") == text.count("</details>") == 1
    assert slug("Figures 4a and 4b") == "figures-4a-and-4b"
    assert escape("a\n b") == "a b"


def test_headings_of_a_page_are_different() -> None:
    """Their anchors come from their text."""
    by_paper: dict[str, list[str]] = {}
    for figure in FIGURES:
        by_paper.setdefault(figure.paper, []).append(slug(figure.number))
    assert all(len(set(names)) == len(names) for names in by_paper.values())
    assert {figure.experiment for figure in FIGURES} <= {*EXPERIMENTS, *TABLES}
