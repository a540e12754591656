"""The walks of ``docs/architecture.md`` name the files that a loop passes through, no others."""

import json
import re
import subprocess
import sys
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
# about half of what it was when families were cut into small files
MOST_FILES = {"round": 23, "censored": 28, "restart": 23}


def files_of_section(title):
    text = PAGE.read_text(encoding="utf-8")
    section = text.split(f"### {title}\n")[1].split("\n#")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)`: \S", section, re.MULTILINE)


@pytest.fixture(scope="module")
def passed():
    """In a fresh process, where no cache is filled that could spare a call."""
    command = [sys.executable, str(Path(__file__).with_name("walks.py"))]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", WALKS)
def test_the_page_names_the_files_of_the_walk_in_order(name, passed):
    told = files_of_section(TITLES[name])
    assert set(told) == set(passed[name]), f"name these in {PAGE.name}: {passed[name]}"
    assert told == passed[name]


@pytest.mark.parametrize("name", WALKS)
def test_a_reader_passes_few_files(name):
    assert len(files_of_section(TITLES[name])) <= MOST_FILES[name]


def test_tracing_finds_the_files_of_what_is_called():
    assert trace(lambda: None) == []
    assert trace(lambda: Box([[0.0], [1.0]]).sample(1)) == [
        *("domains.py", "bounds.py", "checks.py")
    ]
