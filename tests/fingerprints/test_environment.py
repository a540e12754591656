"""Fingerprints in another process, and what an environment says."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from botorch_bandits.fingerprints import environment, environment_warnings, fingerprint

from .cases import loop_settings

PRINT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tests.fingerprints.cases import loop_settings
from botorch_bandits.fingerprints import environment, fingerprint
print(json.dumps([fingerprint(loop_settings()), environment()]))
"""


@pytest.mark.slow
def test_another_process_has_the_same_fingerprint_and_environment() -> None:
    root = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable, "-c", PRINT, root],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=root,
    )
    settings, surroundings = json.loads(result.stdout.splitlines()[-1])
    assert json.dumps(settings) == json.dumps(fingerprint(loop_settings()))
    threads = {"number of threads": surroundings["number of threads"]}  # tests may set it
    here = environment() | threads
    assert environment_warnings(surroundings, here) == []


def test_an_environment_says_what_a_suggestion_depends_on() -> None:
    known = environment()
    assert known["torch"] == torch.__version__
    assert known["number of threads"] == torch.get_num_threads()
    assert known["processor"]
    assert all(isinstance(value, str | int) for value in known.values())
    old = known | {"torch": "1.0", "processor": "Z80", "number of threads": 99}
    lines = environment_warnings(old, known)
    assert [line.partition(" was ")[0] for line in lines] == [
        "torch",
        "number of threads",
        "processor",
    ]
    assert lines[0].startswith(f"torch was 1.0 and is {torch.__version__}: suggestions may differ")
    del old["torch"]
    assert environment_warnings(old, known)[-1].startswith("torch was not known and is")


@pytest.mark.parametrize("library", ["scipy", "linear_operator"])
def test_all_libraries_that_compute_are_on_record(library: str) -> None:
    """SciPy searches on boxes, and linear_operator factorizes."""
    known = environment()
    assert known[library] == importlib.import_module(library).__version__
    (line,) = environment_warnings(known | {library: "0.1"}, known)
    assert line.startswith(f"{library} was 0.1 and is {known[library]}: suggestions may differ")
