"""The documentation says what the program does: its commands, tables, messages and anchors."""

import ast
import csv
import re
import shlex
from pathlib import Path

import pytest

from benchmarks import commands as benchmarks_commands
from botorch_bandits.cli.command_line import build_parser
from papers import commands as papers_commands

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.rst")),
]
SHELL = re.compile(r"^```bash\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = ("botorch-bandits", "python tutorials/papers", "python tests/benchmarks")
INLINE = re.compile(rf"`((?:{'|'.join(PROGRAMS)}) [^`]*)`")
ANCHOR = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")
PATTERN = re.compile(r"\[|\.\.\.|\b[A-Z]{4,}\b")
BARE = {
    "python tutorials/papers experiment",
    *(f"botorch-bandits {name}" for name in ("tune", "optimize", "show")),
}
RESULTS = ROOT / "docs" / "results"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands_of(page: Path) -> list[str]:
    """Return the commands of our programs in shell blocks and in running text.

    Patterns such as ``experiment NAME [--trials N]`` are none, nor is a subcommand's bare name in
    the text.
    """
    text = page.read_text(encoding="utf-8")
    lines = [line for block in SHELL.findall(text) for line in block.splitlines()]
    calls = [part for line in lines for part in line.split(" && ")]
    calls += [call for call in INLINE.findall(FENCE.sub("", text)) if call not in BARE]
    calls = [call.split("#")[0].strip().removeprefix(".venv/bin/") for call in calls]
    ours = tuple(f"{program} " for program in PROGRAMS)
    return [c for c in calls if f"{c} ".startswith(ours) and not PATTERN.search(c)]


COMMANDS = sorted({(name_of(page), call) for page in PAGES for call in commands_of(page)})


def test_there_are_commands():
    calls = {call for _, call in COMMANDS}
    assert len(calls) > 20
    assert all(any(call.startswith(program) for call in calls) for program in PROGRAMS)


@pytest.mark.parametrize(("page", "call"), COMMANDS, ids=[f"{p}: {c}" for p, c in COMMANDS])
def test_commands_are_understood(page, call):
    """The parser of the program takes every command that a page shows."""
    program = next(program for program in PROGRAMS if call.startswith(program))
    arguments = shlex.split(call.removeprefix(program))
    if program == "botorch-bandits":
        build_parser().parse_args(arguments)
    elif program == "python tutorials/papers":
        papers_commands.build_parser().parse_args(arguments)
    else:
        parser, rest = benchmarks_commands.parser_for(arguments)
        parser.parse_args(rest)


def test_commands_that_moved_are_named_as_they_are_now():
    texts = {
        name_of(path): path.read_text(encoding="utf-8")
        for path in [*PAGES, ROOT / "CHANGELOG.md", *(ROOT / "tutorials").glob("*.ipynb")]
    }
    # but for the table in the changelog that says what became of them
    old = re.compile(r"(?<!^\| `)botorch-bandits (experiment|reproduce|bench|faults)", re.MULTILINE)
    assert [name for name, text in texts.items() if old.search(text)] == []


def table_after(page: str, header: str, with_header: bool = False) -> list[list[str]]:
    """Return the cells of the Markdown tables whose header row begins like this."""
    rows, inside = [], False
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if line.startswith(header):
            inside = True
            if with_header:
                rows.append([cell.strip() for cell in line.strip("|").split("|")])
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("| ---"):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def read_csv(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_benchmark_table_is_that_of_the_results():
    shown = table_after("performance.md", "| Benchmark | Ratio |")
    measured = read_csv("benchmarks.csv")
    assert [row[0] for row in shown] == [row["name"] for row in measured]
    for cells, row in zip(shown, measured, strict=True):
        assert float(cells[1]) == pytest.approx(float(row["ratio"]), rel=0.01)
        assert float(cells[2]) == float(row["at_least"])
        assert cells[3] == "" or float(cells[3]) == float(row["aim"])


def test_comparison_has_numbers_of_the_league():
    """Medians of simple regret after 60 evaluations, as the league's page has them."""
    sections = (RESULTS / "league.md").read_text(encoding="utf-8").split("\n### ")
    titles = {"ackley5": "Ackley", "svr": "A support vector machine for regression"}
    header, *rows = table_after("comparison.md", "| Problem | `ours-best` |", with_header=True)
    assert len(rows) == 3
    for problem, *shown in rows:
        name = titles.get(problem.strip("`"), "Michalewicz")
        (section,) = [text for text in sections if text.startswith(name)]
        table = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in section.splitlines()
            if line.startswith("|")
        ]
        after_60 = {cells[0]: cells[table[0].index("at 60")].split(" ")[0] for cells in table}
        assert [after_60[method.strip("`")] for method in header[1:]] == shown, problem


def messages() -> list[str]:
    """Return all texts of the package, with a hole for each value that is put in."""
    texts = []
    for path in (ROOT / "botorch_bandits").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
            if isinstance(node, ast.JoinedStr):
                parts = [v.value if isinstance(v, ast.Constant) else "\0" for v in node.values]
                texts.append("".join(parts))
    return texts


def test_troubleshooting_quotes_messages_of_the_program():
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    ours = page.split("## Wrong results")[1].split("## Messages of BoTorch")[0]
    quoted = [
        quote
        for row in re.findall(r"^\| (`.*?) \|", ours, re.MULTILINE)
        for quote in re.findall(r"`([^`]+)`", row)
    ]
    texts = messages()
    assert len(quoted) > 30
    assert [q for q in quoted if not any(q in text for text in texts)] == []


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page: explicit targets, and headings as GitHub names them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("page", [p for p in PAGES if p.suffix == ".md"], ids=name_of)
def test_anchors_exist(page):
    for target, anchor in ANCHOR.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        aim = page.parent / target if target else page
        assert anchor in anchors_of(aim), f"{name_of(page)} links to {target}#{anchor}"


def test_tutorials_are_on_their_page():
    page = (ROOT / "docs/tutorials.md").read_text(encoding="utf-8")
    for notebook in (ROOT / "tutorials").glob("*.ipynb"):
        assert f"../tutorials/{notebook.name}" in page
