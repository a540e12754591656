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
MAX_LINES = 300

# The floors are in the table of docs/architecture.md; the command that draws them reads it.
_spec = importlib.util.spec_from_file_location(
    "make_architecture", ROOT / "docs" / "make_architecture.py"
)
architecture = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(architecture)

FILES = architecture.read_files()

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
    path = architecture.PACKAGE / "models" / "recipe.py"
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
        "models/recipe.py:1 imports botorch_bandits.loop.x, which is no floor"
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


def test_long_files_are_justified(house):
    page = architecture.PAGE.read_text(encoding="utf-8")
    excused = re.findall(r"^\| `(\w+(?:/\w+)*\.py)` \| \S", page, re.MULTILINE)
    long = [
        str(path.relative_to(architecture.PACKAGE))
        for path in FILES
        if architecture.count_lines(path) > MAX_LINES
    ]
    new, stale = sorted(set(long) - set(excused)), sorted(set(excused) - set(long))
    assert not new, (
        f"over {MAX_LINES} lines: {new}. Split what has two things in it; else say why it is one "
        "thing in the table of long files in docs/architecture.md"
    )
    assert not stale, f"no longer over {MAX_LINES} lines, so not in the table: {stale}"


@pytest.mark.parametrize("room", ["confidence", "models", "acquisition"])
def test_rooms_for_other_peoples_loops_know_no_loop(house, room):
    assert not house.reached(room) & {"history", "loop", "evaluation", "cli"}


def test_no_file_throws_a_global_switch():
    # the command line owns its process; `bench` puts the number of threads back all the same
    for path in (path for path in FILES if path.name != "bench.py"):
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
import importlib, pkgutil
for module in pkgutil.walk_packages(botorch_bandits.__path__, "botorch_bandits."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
after = state()
changed = sorted(name for name in before if before[name] != after[name])
print(json.dumps({"changed": changed, "extras": extras}))
"""


def test_import_changes_no_global_state():
    """In a fresh process, after what the package builds on was imported."""
    result = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=True, timeout=300
    )
    assert json.loads(result.stdout) == {"changed": [], "extras": []}
