"""What is published says what is so: one address, no other one, and the same version everywhere."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import botorch_bandits

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PROJECT["tool"]["botorch_bandits"]["repository"]
EXAMPLE = "https://git.example/somebody/something"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_spec = importlib.util.spec_from_file_location("setup_script", ROOT / "setup.py")
assert _spec is not None
assert _spec.loader is not None
setup = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(setup)


def test_links_of_the_readme_lead_to_files_of_the_tag() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    made = setup.absolute_links(text, f"{EXAMPLE}/", "v1.2")
    targets = re.findall(r"\]\(([^)\s]+)\)", made)
    assert len(targets) == len(re.findall(r"\]\(([^)\s]+)\)", text)) > 40
    assert all(target.startswith(("https://", "#")) for target in targets)
    ours = [target.removeprefix(EXAMPLE) for target in targets if target.startswith(EXAMPLE)]
    for target in ours:
        kind, tag, path = re.fullmatch(r"/(blob|raw)/(v1\.2)/([^#]+)(?:#.*)?", target).groups()
        assert (ROOT / path).exists(), path
        assert (kind == "raw") == (path.endswith((".png", ".svg"))), path
        assert tag == "v1.2"
    assert re.sub(rf"{EXAMPLE}/(blob|raw)/v1\.2/", "", made) == text


def test_without_an_address_nothing_is_made_up() -> None:
    text = "[a](docs/a.md) ![b](c.png) [d](https://e.example/) [f](#g)"
    assert setup.absolute_links(text, "", "v1") == text
    assert setup.project_urls("") == {}
    known = setup.metadata()
    assert known["project_urls"] == setup.project_urls(REPOSITORY)
    if not REPOSITORY:
        assert known["long_description"] == (ROOT / "README.md").read_text(encoding="utf-8")
    urls = setup.project_urls(f"{EXAMPLE}/")
    assert all(url == EXAMPLE or url.startswith(f"{EXAMPLE}/") for url in urls.values())


@pytest.mark.parametrize(
    "address", ["example", "http://a.example/b", "https://example", "https://a/b c"]
)
def test_what_is_no_address_is_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.botorch_bandits]\nrepository = "{address}"\n')
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"repository in pyproject\.toml"):
        setup.metadata()


def test_no_page_says_that_an_index_has_the_package() -> None:
    if REPOSITORY:
        pytest.skip("there is an address; the package may be in an index")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        found = re.search(r"pip install [^\n`]*botorch_bandits", text)
        assert found is None, f"{page.name}: {found and found[0]}"


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    shown = (ROOT / "docs" / "citing.md").read_text(encoding="utf-8")
    assert f"version = {{{botorch_bandits.__version__}}}" in shown
    known = dict(line.split(": ", 1) for line in text.splitlines() if re.match(r"[a-z-]+: ", line))
    assert known["version"] == botorch_bandits.__version__
    assert known["title"] == PROJECT["project"]["name"]
    assert known["license"] == PROJECT["project"]["license"]
    assert known["abstract"].rstrip(".") == PROJECT["project"]["description"].rstrip(".")
    assert "  - name: the botorch_bandits developers\n" in text
    assert ("repository-code" in known) == bool(REPOSITORY)


def test_versions_of_python_are_those_that_are_checked() -> None:
    classifiers = PROJECT["project"]["classifiers"]
    named = [c.rpartition(" ")[2] for c in classifiers if re.search(r":: 3\.\d+$", c)]
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"python-version: \[(.*)\]", workflow)
    assert re.findall(r'"([\d.]+)"', matrix) == named
    assert "run: bash .ci/run\n" in workflow


def test_the_source_distribution_has_what_its_tests_need() -> None:
    lines = (ROOT / "MANIFEST.in").read_text(encoding="utf-8").split("\n")
    grafted = {name for line in lines if line.startswith("graft ") for name in line.split()[1:]}
    assert {"tests", "docs", "tutorials", ".github"} <= grafted
    included = {name for line in lines if line.startswith("include ") for name in line.split()[1:]}
    assert {"constraints.txt", "CHANGELOG.md", "CITATION.cff", ".ci/run"} <= included
    assert all((ROOT / name).exists() for name in grafted | included)
