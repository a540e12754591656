"""The documentation cannot rot: its examples run, its commands exist, its pictures are there."""

import importlib
import json
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
import torch

import botorch_bandits

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOTEBOOKS = sorted((ROOT / "tutorials").glob("*.ipynb"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
# `[text](target)` and MyST's {role}`text <target>`, without anchors and addresses
INTERNAL = {  # modules that users do not import from
    f"botorch_bandits.{name}"
    for name in (
        "__main__",
        "bounds",
        "checks",
        "cli",  # docs/tuning.md has its commands
        "core",
        "feasible_sets",
        "fingerprints",
        "progress",
        "queries",
        "random_streams",
        "version",
    )
}
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks_of(path: Path, language: str) -> list[tuple[int, str]]:
    """Return first line numbers and texts of the fenced blocks of one language."""
    text = path.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start()) + 2, match[2])
        for match in FENCE.finditer(text)
        if match[1] == language
    ]


RECIPES = ROOT / "docs" / "other-tools.md"
"""Its blocks stand alone; each names what it needs."""
PAGES_WITH_EXAMPLES = [page for page in PAGES if blocks_of(page, "python") and page != RECIPES]


def test_there_are_examples():
    assert ROOT / "README.md" in PAGES_WITH_EXAMPLES
    assert len(PAGES_WITH_EXAMPLES) >= 5


@pytest.mark.parametrize("page", PAGES_WITH_EXAMPLES, ids=name_of)
def test_examples_run(page, tmp_path, monkeypatch, capsys):
    """The Python blocks of a page run in order, in one namespace, as a reader would type them.

    What a page shows in ``output`` blocks is what they print. Numbers may differ by what rounding
    on another platform makes of a run.
    """
    if page.stem == "tuning":
        pytest.importorskip("sklearn")
    if page.stem == "ax":  # continuous integration runs it in an environment with Ax
        pytest.importorskip("ax.api.client", reason="needs Ax, the extra ax")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    namespace: dict[str, object] = {"__name__": "__main__"}
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for line, block in blocks_of(page, "python"):
            # empty lines in front, so that a traceback names the line of the page
            code = compile("\n" * (line - 1) + block, name_of(page), "exec")
            exec(code, namespace)
    printed = capsys.readouterr().out.splitlines()
    for _, block in blocks_of(page, "output"):
        for shown in block.splitlines():
            assert any(agree(shown, line) for line in printed), f"nothing printed {shown!r}"


def recipes():
    text = RECIPES.read_text(encoding="utf-8")
    return re.findall(r"^<!-- needs ([\w.]+) -->\n```python\n(.*?)^```$", text, re.M | re.S)


@pytest.mark.parametrize(("library", "block"), recipes(), ids=[name for name, _ in recipes()])
def test_recipes_run(library, block, tmp_path, monkeypatch):
    """Where the other tool is installed; of them the tests' extra has Optuna alone."""
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, library, "exec"), {"__name__": "__main__"})


def test_every_recipe_names_what_it_needs():
    assert [block for _, block in blocks_of(RECIPES, "python")] == [block for _, block in recipes()]


def agree(shown: str, printed: str) -> bool:
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (shown, printed)]
    same_words = NUMBER.sub("#", shown) == NUMBER.sub("#", printed)
    return same_words and numbers[1] == pytest.approx(numbers[0], rel=0.3)


@pytest.mark.parametrize("marker", ["COMMAND ONE", "COMMAND TWO"])
def test_readme_has_one_line_commands(marker):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pattern = rf"^<!-- {marker} -->\n```bash\n(.+)\n```$"
    (command,) = re.findall(pattern, text, re.MULTILINE)
    assert command.startswith("python3 -m venv .venv && .venv/bin/python -m pip install -c ")
    # continuous integration appends options to the main job
    assert command.split(" && ")[2] == {
        "COMMAND ONE": ".venv/bin/botorch-bandits tune --dataset digits",
        "COMMAND TWO": ".venv/bin/python -m pytest -n 2",
    }.get(marker)
    extra = re.search(r"\[(\w+)\]", command)
    assert extra is not None
    assert re.search(rf"^{extra[1]} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_constraints_pin_every_requirement():
    """Whoever installs with constraints.txt gets tested versions of all that we name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = set()
    for requirement in (
        *project["dependencies"],
        *(r for extra in project["optional-dependencies"].values() for r in extra),
    ):
        wanted.add(re.match(r"[\w-]+", requirement)[0])
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line and not line.startswith("#")}
    assert wanted - pinned == {"botorch_bandits"}
    assert "torch==2.13.0" in [line.split(" ")[0] for line in lines]


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of
)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        # the build copies the notebooks into docs
        at = ROOT if target.startswith("tutorials/") else page.parent
        assert (at / target).exists(), f"{name_of(page)} links to {target}"


def test_reference_has_every_public_module():
    """Sphinx makes a page of each name of the modules that are listed."""
    page = (ROOT / "docs" / "api" / "index.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   (botorch_bandits[.\w]*)$", page, re.M)) - {"botorch_bandits"}
    modules = {m.name for m in pkgutil.iter_modules(botorch_bandits.__path__, "botorch_bandits.")}
    assert listed == modules - INTERNAL
    assert all(importlib.import_module(name).__all__ for name in listed)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebook_is_committed_as_it_ran(path):
    """Executed from top to bottom, without errors, without traces of a machine, and small."""
    text = path.read_text(encoding="utf-8")
    assert len(text) < 500_000
    notebook = json.loads(text)
    assert notebook["metadata"].keys() <= {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
    for cell in cells:
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr", output
    prose = re.sub(r'"image/png": "[^"]*"', "", text)
    assert not re.search(r"/home/|/root/|/tmp/|/Users/|C:\\\\", prose)


def test_tutorials_are_there():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_drop_in",
        "02_widths_and_guarantees",
        "03_delayed_feedback",
        "04_changing_environment",
        "05_budget_on_average",
        "06_contexts",
        "07_gpu_and_scale",
        "08_ax",
        "09_your_own_data",
        "10_clicks",
    ]
