"""The house stands: imports go down, and importing the package changes nothing."""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAX_LINES = 900

# The floors are in the table of docs/architecture.md; the command that draws them reads it.
_spec = importlib.util.spec_from_file_location(
    "make_architecture", ROOT / "docs" / "make_architecture.py"
)
architecture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(architecture)

FILES = architecture.read_files()
PACKAGES = (architecture.PACKAGE, *architecture.BESIDE)

# Imports of the package's own modules within functions, each with the reason why it is there.
IMPORTS_WITHIN_FUNCTIONS = {
    ("cli/session.py", "botorch_bandits.plotting"): "only for a picture, after its backend is set",
    ("cli/show.py", "botorch_bandits.plotting"): "only for a picture, after its backend is set",
}

# Switches of torch that belong to the user.
FORBIDDEN_CALLS = (
    "set_default_dtype",
    "set_default_device",
    "set_default_tensor_type",
    "set_num_threads",
    "set_grad_enabled",
    "use_deterministic_algorithms",
)


@pytest.fixture(scope="module")
def house():
    return architecture.House()


def test_imports_go_down_between_rooms_with_a_floor(house):
    assert house.faults() == []


def test_rooms_of_the_table_exist(house):
    assert set(house.floor_of) == {architecture.room_of(path) for path in house.files}


def test_an_import_from_above_is_a_fault(house):
    """The check itself: upwards, sideways, of the package, from a room without a floor."""
    path = architecture.PACKAGE / "models" / "bandit_gp.py"
    house = architecture.House()
    house.imports = [
        architecture.Import(path, 1, f"botorch_bandits.{imported}.x", room, imported)
        for room, imported in [
            ("models", "loop"),
            ("acquisition", "change_points"),
            ("models", "BanditGP"),
            ("models", "confidence"),
        ]
    ]
    house.files = [architecture.PACKAGE / "attic.py"]
    attic, upwards, sideways, package = house.faults()
    assert attic.startswith("attic has no floor")
    assert upwards.startswith(
        "models/bandit_gp.py:1 imports botorch_bandits.loop.x, which is no floor"
    )
    assert sideways.endswith("which is no floor below acquisition.")
    assert package.endswith("name the room, not the package.")


def test_arrows_left_out_follow_from_the_others(house):
    """The picture leaves out an import of a room that another import leads to anyway."""
    reached = {}
    arrows = house.arrows()
    for rooms in house.floors:
        for room in rooms:
            direct = {below for above, below in arrows if above == room}
            reached[room] = direct.union(*(reached[below] for below in direct))
    assert reached == {room: house.reached(room) for room in house.floor_of}
    assert len(arrows) < sum(map(len, house.edges.values()))


@pytest.mark.parametrize("name", ["PICTURE", "TABLE"])
def test_picture_and_table_are_up_to_date(house, name):
    text = architecture.draw(house) if name == "PICTURE" else house.to_csv()
    written = getattr(architecture, name).read_text(encoding="utf-8")
    assert written == text, "run `python docs/make_architecture.py`"


def test_no_file_is_long():
    sizes = {path: architecture.count_lines(path) for p in PACKAGES for path in p.rglob("*.py")}
    long = {str(path.relative_to(ROOT)): n for path, n in sizes.items() if n > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines: {long}. Split what has two families in it."


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_files_import_each_other_in_a_circle(package):
    """Neither for type checkers nor within functions, and neither in a room nor between rooms."""
    assert architecture.find_circles(architecture.read_file_graph(package)) == []


def test_circles_are_found(tmp_path):
    """The check itself: at the top, for type checkers, within a function, relative, in a room."""
    files = {
        "__init__.py": "from house.a import x",
        "a.py": "from house.b import x",
        "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.c",
        "c.py": "def f():\n    from . import a",
        "d.py": "from house.a import x\nfrom house.room import y\nimport torch",
        "room/__init__.py": "from house.room.inner import y",
        "room/inner.py": "from ..room import z",
        "room/other.py": "from house.room.inner import y",
        "__main__.py": "from house import a",
    }
    for name, text in files.items():
        path = tmp_path / "house" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    graph = architecture.read_file_graph(tmp_path / "house")
    assert graph["house.d"] == {"house.a", "house.room"}
    assert graph["house.b"] == {"house.c"}
    assert architecture.find_circles(graph) == [
        ["house.a", "house.b", "house.c"],
        ["house.room", "house.room.inner"],
    ]
    graph["house.c"].clear()
    graph["house.room.inner"].clear()
    assert architecture.find_circles(graph) == []
    within = architecture.imports_within_functions(tmp_path / "house" / "c.py", tmp_path / "house")
    assert within == [(2, "house.a")]


def test_imports_within_functions_have_a_reason():
    """They hide what a file needs, and often hold a circle open."""
    found = {
        (path.relative_to(package).as_posix(), name.rpartition(".")[0])
        for package in PACKAGES
        for path in package.rglob("*.py")
        for _, name in architecture.imports_within_functions(path, package)
    }
    assert found - set(IMPORTS_WITHIN_FUNCTIONS) == set()
    assert set(IMPORTS_WITHIN_FUNCTIONS) - found == set(), "no longer there"


def count_sentences(text):
    return len(re.findall(r"[^.!?]{3,}[.!?](?=[\s`)]|$)", text))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_files_open_with_what_they_are(package):
    """In two sentences at least."""
    short = [
        path.relative_to(package).as_posix()
        for path in sorted(package.rglob("*.py"))
        if not path.name.startswith("test_")
        and count_sentences(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "") < 2
    ]
    assert not short, f"say in two sentences what they are: {short}"


@pytest.mark.parametrize("room", ["confidence", "models", "acquisition"])
def test_rooms_for_other_peoples_loops_know_no_loop(house, room):
    assert not house.reached(room) & {"history", "loop", "evaluation", "cli"}


def test_no_file_throws_a_global_switch():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                assert name not in FORBIDDEN_CALLS, f"{path.name}:{node.lineno} calls {name}"


PROBE = """
import json, random, signal, sys, warnings
import numpy, torch, gpytorch, linear_operator, botorch
import botorch.models, botorch.optim, botorch.acquisition, botorch.sampling.pathwise
import botorch.models.fully_bayesian, botorch.test_functions

def state():
    return {
        "dtype": str(torch.get_default_dtype()),
        "device": str(torch.get_default_device()),
        "threads": torch.get_num_threads(),
        "gradients": torch.is_grad_enabled(),
        "torch": torch.random.get_rng_state().tolist(),
        "numpy": str(numpy.random.get_state()),
        "python": str(random.getstate()),
        "printing": str(torch._tensor_str.PRINT_OPTS),
        "warnings": str(warnings.filters),
        "interrupt": str(signal.getsignal(signal.SIGINT)),
        "cholesky": linear_operator.settings.cholesky_max_tries.value(),
        "jitter": linear_operator.settings.cholesky_jitter.value(torch.float64),
        "exact": linear_operator.settings.max_cholesky_size.value(),
    }

before = state()
modules = set(sys.modules)
import botorch_bandits
loaded = set(sys.modules) - modules
extras = sorted(loaded & {"matplotlib", "pandas", "sklearn", "tqdm"})
changed = {name for name, value in state().items() if value != before[name]}
import importlib, pkgutil
import sklearn.model_selection # a room builds on it; what it imports in turn may draw numbers
before = state()
for module in pkgutil.walk_packages(botorch_bandits.__path__, "botorch_bandits."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
after = state()
changed |= {name for name in before if before[name] != after[name]}
print(json.dumps({"changed": sorted(changed), "extras": extras}))
"""


def test_import_changes_no_global_state():
    """In a fresh process, after what the package builds on was imported."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(result.stdout) == {"changed": [], "extras": []}
