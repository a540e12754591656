"""The experiments and the benchmarks use what users have: public names of the package only."""

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"papers": ROOT / "tutorials" / "papers", "benchmarks": ROOT / "tests" / "benchmarks"}
FILES = [path for folder in FOLDERS.values() for path in sorted(folder.rglob("*.py"))]
PACKAGE = "botorch_bandits"
MAX_LINES = 900


def faults_of(source: str) -> list[str]:
    """Return what a file imports of the package although it is not public.

    Public are the names in ``__all__`` of the package and of its rooms, which are the modules and
    packages directly in it.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] == PACKAGE]
        if not isinstance(node, ast.ImportFrom):
            continue
        module = node.module or ""
        if node.level:
            found.append(f"{'.' * node.level}{module}")
        elif module.split(".")[0] == PACKAGE:
            is_room = module.count(".") <= 1
            public = getattr(importlib.import_module(module), "__all__", ()) if is_room else ()
            found += [f"{module}.{a.name}" for a in node.names if a.name not in public]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_public_names_only(path):
    assert faults_of(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_reads_no_private_attribute_of_others(path):
    """Names with an underscore belong to ``self``, ``cls`` or the file itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [
        f"{ast.unparse(node)} in line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]
    assert found == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_enough_and_says_what_it_is(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES
    opening = ast.get_docstring(ast.parse(text)) or ""
    assert opening.count(". ") + opening.count(".\n") + opening.endswith(".") >= 2, opening


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import botorch_bandits.models", "botorch_bandits.models"),
        ("from botorch_bandits import models", "botorch_bandits.models"),
        ("from .trials import play", ".trials"),
        ("from botorch_bandits.models.arms import ArmsPrior", "botorch_bandits.models.arms."),
        ("from botorch_bandits.checks import _as_double", "botorch_bandits.checks._as_double"),
        ("from botorch_bandits.history import fill", "botorch_bandits.history.fill"),
        ("def f():\n    from botorch_bandits.optim import _clip", "botorch_bandits.optim._clip"),
    ],
)
def test_the_check_finds_private_imports(source, fault):
    (found,) = faults_of(source)
    assert found.startswith(fault)
    assert faults_of("from botorch_bandits.models import ArmsPrior, double_kernel") == []


def imports_of(name: str, path: Path) -> set[str]:
    """Return the modules of its own package that a file imports when it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == name:
            modules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {m if file_of(m) else node.module for m in modules}
    return found


def file_of(module: str) -> Path | None:
    name, *parts = module.split(".")
    base = FOLDERS[name].joinpath(*parts)
    paths = [base.with_suffix(".py"), base / "__init__.py"] if parts else [base / "__init__.py"]
    return next((path for path in paths if path.is_file()), None)


@pytest.mark.parametrize("name", FOLDERS)
def test_modules_import_each_other_in_no_circle(name):
    graph = {path: {file_of(m) for m in imports_of(name, path)} for path in FILES}
    finished: set[Path] = set()

    def visit(path: Path, above: tuple[Path, ...]) -> None:
        assert path not in above, f"circle: {[str(p.relative_to(ROOT)) for p in (*above, path)]}"
        if path not in finished:
            for below in graph[path] - {path}:
                visit(below, (*above, path))
            finished.add(path)

    for path in FILES:
        visit(path, ())


def test_no_experiment_throws_a_global_switch():
    """The command line of the benchmarks owns its process, and puts the number of threads back."""
    switches = {"set_default_dtype", "set_default_device", "set_num_threads", "set_grad_enabled"}
    for path in FILES:
        if path == FOLDERS["benchmarks"] / "commands.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in switches, f"{path.name}:{node.lineno} has {node.attr}"


def test_what_is_installed_is_the_package_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found = project["tool"]["setuptools"]["packages"]["find"]
    tops = [ROOT / name for name in (PACKAGE, "tutorials", "tests", "docs")]
    folders = [f.parent.relative_to(ROOT) for top in tops for f in top.rglob("__init__.py")]
    installed = {
        name.split(".")[0]
        for name in (".".join(folder.parts) for folder in folders)
        if any(fnmatchcase(name, pattern) for pattern in found["include"])
    }
    assert installed == {PACKAGE}


def start(folder: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a folder of the clone as a user does, from anywhere and with no path of our own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, str(ROOT / folder), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_experiments_run_from_anywhere_with_workers(tmp_path):
    arguments = ["experiment", "chowdhury-functions", "--trials", "2", "--rounds", "2"]
    done = start(
        "tutorials/papers", *arguments, "--workers", "2", "--out", "out", "--quiet", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "table.csv").stat().st_size > 0


def test_the_page_runs_from_within_the_folder(tmp_path):
    """The folder is the current one, where its modules could be taken for others."""
    arguments = ["reproduce", "--only", "no-such-experiment", "--out", str(tmp_path / "out")]
    done = start("tutorials/papers", *arguments, cwd=FOLDERS["papers"])
    assert done.returncode == 2
    assert "python tutorials/papers reproduce: error: " in done.stderr
    assert "no-such-experiment" in done.stderr
    assert done.stderr.count("\n") == 1


def test_faults_run_from_anywhere(tmp_path):
    done = start(
        "tests/benchmarks", "faults", "--kills", "1", "--cuts", "1", "--quiet", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "lost outcomes" in done.stdout


def test_benchmarks_run_from_anywhere(tmp_path):
    arguments = ["chain-500", "--quick", "--repeats", "1", "--quiet", "--out", "table.csv"]
    done = start("tests/benchmarks", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table.csv").exists()
