"""Runs the tests in environments of other versions: ``python tests/environments [NAME ...]``.

Each environment is made afresh with ``venv`` and ``pip`` in a folder outside of the repository, and
left there. The table ``docs/results/environments.md`` gets a row for each. Nothing but Python's
standard library is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTED = ROOT / "constraints.txt"
OLDEST = Path(__file__).with_name("oldest.txt")
TABLE = ROOT / "docs" / "results" / "environments.md"

# two minutes: something of each room, and all that depends on a version
SUBSET = (
    *(
        f"tests/acquisition/test_{name}.py"
        for name in (
            "affine_outcomes",
            "baselines",
            "dmm",
            "generation",
            "input_constructors",
            "lagrangian",
            "other_models",
            "outcome_transforms",
            "recipe",
            "signatures",
            "thompson_sampling",
            "upper_confidence_bound",
        )
    ),
    *(f"tests/change_points/test_{name}.py" for name in ("detector", "restart")),
    "tests/cli",
    "tests/confidence",
    "tests/constraints",
    "tests/durable/test_failed_evaluations.py",
    "tests/durable/test_states.py",
    "tests/fingerprints",
    "tests/store/test_events.py",
    *(f"tests/loop/test_{name}.py" for name in ("best", "contexts", "defaults", "guarantees")),
    *(
        f"tests/models/test_{name}.py"
        for name in (
            "bandit_gp",
            "closed_form",
            "condition",
            "data_views",
            "fitted",
            "kernels",
            "learned_posterior",
            "likelihoods",
            "means",
            "noise_floor",
            "pending",
            "users_models",
        )
    ),
    *(f"tests/plotting/test_plot_{name}.py" for name in ("posterior", "regret", "run")),
    *(f"tests/problems/test_{name}.py" for name in ("base", "constrained", "rkhs", "tuning")),
    "tests/simulation/test_replicates.py",
    "tests/spaces/test_conversions.py",
    "tests/spaces/test_space.py",
    *(
        f"tests/test_{name}.py"
        for name in (
            "checks",
            "domains",
            "feasible_sets",
            "forgetting",
            "history",
            "in_optuna",
            "model_selection",
            "optim",
            "penalties",
            "public_api",
            "random_baseline",
            "random_streams",
            "regret",
            "running",
            "wrong_kinds",
        )
    ),
)
NEEDED_BY_SUBSET = ("pytest", "pytest-xdist", "hypothesis")  # beside the extras tune and spaces


@dataclass(frozen=True)
class Environment:
    """What is installed, and with which Python."""

    note: str
    constraints: tuple[Path, ...] = ()
    python: str | None = None


ENVIRONMENTS = {
    "oldest": Environment("the minimum versions in `pyproject.toml`", (OLDEST,)),
    "small": Environment(
        "the same with torch from `constraints.txt`, because torch 2.4 needs several GB of CUDA "
        "libraries",
        (OLDEST, TESTED),
    ),
    "tested": Environment("`constraints.txt`", (TESTED,)),
    "tested, Python 3.12": Environment("`constraints.txt`", (TESTED,), "3.12"),
    "tested, Python 3.13": Environment("`constraints.txt`", (TESTED,), "3.13"),
    "newest": Environment("no constraints"),
}
HEADER = (
    "| Environment | What is installed | Tests | Python | torch | BoTorch | GPyTorch | NumPy "
    "| Passed | Failed | Skipped |"
)
LIBRARIES = ("torch", "botorch", "gpytorch", "numpy")


def pins(path: Path) -> dict[str, str]:
    """Return the versions that a file of constraints pins."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pinned = (line.partition("#")[0].strip().split("==") for line in lines)
    return {parts[0]: parts[1] for parts in pinned if len(parts) == 2}


def constraints_of(environment: Environment) -> dict[str, str]:
    """Return the versions of an environment; of a second file only torch is taken."""
    versions: dict[str, str] = {}
    for i, path in enumerate(environment.constraints):
        found = pins(path)
        versions |= {"torch": found["torch"]} if i else found
    return versions


def find_python(version: str | None) -> str | None:
    """Return the interpreter of a version, the one that runs this if there is no version."""
    return sys.executable if version is None else shutil.which(f"python{version}")


def inside_of(folder: Path) -> Path:
    """Return the interpreter of the environment in a folder."""
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def install(environment: Environment, python: str, folder: Path, subset: bool) -> None:
    """Make the environment in ``folder``."""
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    extras, more = ("tune,spaces", NEEDED_BY_SUBSET) if subset else ("test", ())
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        file.writelines(f"{name}=={at}\n" for name, at in constraints_of(environment).items())
    command = [str(inside_of(folder)), "-m", "pip", "install", "-q", "-c", file.name]
    subprocess.run([*command, "-e", f"{ROOT}[{extras}]", *more], check=True)
    Path(file.name).unlink()


def run_tests(python: Path, subset: bool, jobs: int) -> dict[str, int]:
    """Run the tests and return how many passed, failed and were skipped."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [str(python), "-m", "pytest", "-q", "--disable-warnings", f"--junitxml={report}"]
        command += ["-p", "no:cacheprovider", "-n", str(jobs), *(SUBSET if subset else ())]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
        (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    total, skipped = int(suite.attrib["tests"]), int(suite.attrib["skipped"])
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    return {"passed": total - failed - skipped, "failed": failed, "skipped": skipped}


def versions_in(python: Path) -> list[str]:
    """Return the version of Python and of the libraries that matter."""
    code = (
        "import json, platform; from importlib.metadata import version; "
        f"print(json.dumps([platform.python_version(), *map(version, {LIBRARIES!r})]))"
    )
    result = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    return [str(version) for version in json.loads(result.stdout)]


def write_row(cells: list[str]) -> None:
    """Put a row into the table, in the place of the one with the same first and third cell."""
    old = TABLE.read_text(encoding="utf-8").splitlines()[2:] if TABLE.exists() else []
    rows = {(row[0], row[2]): row for row in (line.strip("| ").split(" | ") for line in old)}
    rows[cells[0], cells[2]] = cells
    order = list(ENVIRONMENTS)
    ordered = sorted(rows.values(), key=lambda row: (order.index(row[0]), row[2]))
    lines = [HEADER, "| --- " * len(cells) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in ordered]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Run what the command line asks for, and return 1 if a test fails."""
    parser = argparse.ArgumentParser(prog="python tests/environments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {list(ENVIRONMENTS)}; or all")
    parser.add_argument("--subset", action="store_true", help="two minutes instead of all tests")
    parser.add_argument("--folder", type=Path, help="where environments are made")
    parser.add_argument("--reuse", action="store_true", help="take environments that are there")
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests")
    parser.add_argument("--no-table", action="store_true", help="leave the table as it is")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="environments-"))
    num_failed = 0
    for name in options.names or ENVIRONMENTS:
        if name not in ENVIRONMENTS:
            parser.error(f"there is no environment {name!r}; there are {list(ENVIRONMENTS)}")
        environment = ENVIRONMENTS[name]
        cells = [name, environment.note, "subset" if options.subset else "all"]
        python = find_python(environment.python)
        if python is None:
            cells += [f"{environment.python} is not installed", *["-"] * 7]
        else:
            place = folder / re.sub(r"\W+", "-", name)
            inside = inside_of(place)
            if not (options.reuse and inside.exists()):
                install(environment, python, place, options.subset)
            versions = versions_in(inside)
            print(f"{name}: Python {versions[0]}", *map("{} {}".format, LIBRARIES, versions[1:]))
            counts = run_tests(inside, options.subset, options.jobs)
            num_failed += counts["failed"]
            cells += [*versions, *(str(count) for count in counts.values())]
        if not options.no_table:
            write_row(cells)
    return int(num_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
