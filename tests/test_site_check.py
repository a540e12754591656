"""The check of the built pages finds what it is for. It needs Playwright and a Chromium."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="needs the extra browser")
PROGRAM = Path(__file__).parents[1] / "docs" / "check_site.py"
SPECIFICATION = importlib.util.spec_from_file_location("check_site", PROGRAM)
check_site = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(check_site)
CHROMIUM = check_site.find_chromium()
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")

ROW = "".join(f"<td>{word}</td>" for word in ["unbreakable" * 4] * 9)
TABLE = f"<table><tr>{ROW}</tr></table>"
PICTURE = (
    "<img src='data:image/svg+xml,<svg xmlns=%22http://www.w3.org/2000/svg%22/>' alt='{}'>".format
)
FAULTS = {
    "good": ("<p>Nothing is wrong.</p>", None),
    "wide": ("<div style='width: 3000px'>wide</div>", "the page is 30"),
    "table": (f"<div style='overflow: hidden'>{TABLE}</div>", "a table sticks out of its column"),
    "scrolls": (f"<div style='overflow-x: auto'>{TABLE}</div>", "a table is wider than the text"),
    "closed": (
        f"<details><summary>More</summary><div style='overflow-x: auto'>{TABLE}</div></details>",
        "a table is wider than the text",
    ),
    "bar": (
        f"<style>div::-webkit-scrollbar {{display: none}}</style>"
        f"<div style='overflow-x: auto'>{TABLE}</div>",
        "a scroll bar cannot be seen",
    ),
    "small": ("<table style='font-size: 9px'><tr><td>a</td></tr></table>", "a table has text of 9"),
    "cell": (
        "<table style='table-layout: fixed; width: 50px'><tr><td>unbreakable</td></tr></table>",
        "a cell is cut off",
    ),
    "away": ("<script src='https://example.invalid/mathjax.js'></script>", "asks https://example"),
    "missing": ("<script src='missing.js'></script>", "/missing.js answers 404"),
    "script": ("<script>undefinedFunction()</script>", "a script fails"),
    "error": ("<script>console.error('no')</script>", "the console says: no"),
    "nameless": (PICTURE(""), "has no alternative text"),
    "lost": ("<img src='lost.png' alt='lost'>", "lost.png is not shown"),
    "silent": (
        f"<div style='overflow-x: auto'><p style='width: 3000px'>{PICTURE('a')}</p></div>",
        "no line says that",
    ),
    "formula": ("<span class='math'>\\(x^2\\)</span>", "a formula is not rendered"),
    "title": (
        "<span class='sidebar-brand-text' style='display: block; width: 50px'>two words</span>",
        "the title is broken into lines",
    ),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for name, (body, _) in FAULTS.items():
        text = f"<!doctype html><title>{name}</title><body><article>{body}</article></body>"
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    names = check_site.pages_of(folder)
    return {page.name: page for page in check_site.check(folder, CHROMIUM, names, None)}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found(name, pages):
    expected = FAULTS[name][1]
    found = list(pages[f"{name}.html"].faults)
    assert (
        any(fault.startswith(expected) or expected in fault for fault in found)
        if expected
        else not found
    )


def test_the_exit_code_says_whether_all_is_well(pages, tmp_path, capsys):
    (tmp_path / "good.html").write_text("<!doctype html><title>a</title><body><p>a</p></body>")
    assert check_site.main([str(tmp_path), "--chromium", CHROMIUM]) == 0
    assert "1 pages at 3 widths" in capsys.readouterr().out
    (tmp_path / "bad.html").write_text("<!doctype html><title>a</title><body><img alt=''></body>")
    assert check_site.main([str(tmp_path), "--chromium", CHROMIUM]) == 1
    assert "bad.html: " in capsys.readouterr().out
