"""The walks of ``docs/architecture.md`` name the files that a loop passes through, no others."""

import re
from pathlib import Path

import pytest
from walks import WALKS, trace

from botorch_bandits import Box

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
TITLES = {
    "round": "A round of IGP-UCB on a box",
    "censored": "A censored outcome, from `tell` to the next `ask`",
    "restart": "A restart on arms",
}
MOST_FILES = {"round": 16, "censored": 18, "restart": 19}


def files_of_section(title):
    text = PAGE.read_text(encoding="utf-8")
    section = text.split(f"### {title}\n")[1].split("\n#")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`: \S", section, re.MULTILINE)


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.filterwarnings("ignore")
def test_the_page_names_the_files_of_the_walk(name):
    told, passed = files_of_section(TITLES[name]), WALKS[name]()
    assert len(set(told)) == len(told)
    missing = [path for path in passed if path not in told]
    assert not missing, f"not named in {PAGE.name}: {missing}; in order: {passed}"
    needless = [path for path in told if path not in passed]
    assert not needless, f"named in {PAGE.name} but not passed: {needless}"


@pytest.mark.parametrize("name", WALKS)
def test_a_reader_passes_few_files(name):
    assert len(files_of_section(TITLES[name])) <= MOST_FILES[name]


def test_tracing_finds_the_files_of_what_is_called():
    assert trace(lambda: None) == []
    assert trace(lambda: Box([[0.0], [1.0]]).sample(1)) == ["domains.py", "checks.py"]
