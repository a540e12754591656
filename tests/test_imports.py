"""Names are imported when they are asked for, and acquisition functions are registered then."""

import ast
import importlib
import json
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import botorch_bandits
from botorch_bandits.cli import arguments
from botorch_bandits.loop import settings as loop_settings
from botorch_bandits.problems import tuning

ROOT = Path(__file__).parents[1]
SOURCE = Path(botorch_bandits.__file__).read_text(encoding="utf-8")


def run_fresh(code: str) -> object:
    """Run code in a process of its own and return what it prints as JSON."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


FORKS = """
import json, os, sys, tempfile
# and nothing of BoTorch: these take most of the time
import torch, gpytorch, linear_operator, scipy.optimize, scipy.spatial, scipy.stats
assert not any(name.startswith("botorch") for name in sys.modules)

def in_fork(run, *inputs):
    with tempfile.TemporaryFile("w+") as file:
        child = os.fork()
        if not child:
            os.dup2(file.fileno(), 1)
            run(*inputs)
            sys.stdout.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, inputs
        file.seek(0)
        return json.load(file)

def run_each(first, codes):
    exec(first, {})
    print(json.dumps([in_fork(exec, code, {}) for code in codes]))

print(json.dumps([in_fork(run_each, *group) for group in json.load(sys.stdin)]))
"""


def run_fresh_each(groups: list[tuple[str, list[str]]]) -> list[list[object]]:
    """Run each code in a process that has imported torch, and return what they print as JSON.

    The codes of a group follow what comes first in it, which is run once.
    """
    result = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=json.dumps(groups),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_importing_the_package_loads_neither_torch_nor_botorch():
    loaded = run_fresh(
        """
        import json, sys
        import botorch_bandits
        botorch_bandits.__version__, dir(botorch_bandits)
        print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
        """
    )
    assert not set(loaded) & {"torch", "botorch", "gpytorch", "numpy", "scipy", "linear_operator"}


def test_the_loop_loads_nothing_that_only_other_rooms_need():
    loaded = run_fresh(
        """
        import json, sys
        from botorch_bandits import BanditGP, BanditLoop, Box, ImprovedUpperConfidenceBound
        print(json.dumps(sorted(sys.modules)))
        """
    )
    heavy = {"scipy.stats", "sklearn", "matplotlib", "pandas", "botorch.test_functions"}
    rooms = {f"botorch_bandits.{room}" for room in ("plotting", "problems", "cli", "simulation")}
    registry = {"botorch.acquisition.input_constructors"}
    assert not set(loaded) & (heavy | rooms | registry)


ENTRY = "import sys; from botorch_bandits.cli import main; sys.exit(main())"
COMMAND_LINES = {
    "--version": (0, f"^{re.escape(botorch_bandits.__version__)}$"),
    "--help": (0, "{tune,optimize,compare,resume,check,salvage,show}"),
    "tune --help": (0, "--shift-round ROUND"),
    "optimize --help": (0, "--bounds BOUNDS"),
    "compare --help": (0, "--seeds SEEDS"),
    "resume --help": (0, "--stop-after-no-gain N"),
    "show --help": (0, "--epochs"),
    "": (2, "error: the following arguments are required: command"),
    "tune --nonsense": (2, "error: unrecognized arguments: --nonsense"),
    "tune --task nonsense": (2, "argument --task: invalid choice: 'nonsense'"),
    "optimize --bounds -5:5": (2, "the following arguments are required: MODULE:FUNCTION"),
    "optimize f:g --rounds many": (2, "argument --rounds: invalid int value: 'many'"),
}


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_pages_and_errors_of_arguments_are_shown_without_torch(line):
    code, said = COMMAND_LINES[line]
    for start in (["-m", "botorch_bandits"], ["-c", ENTRY]):
        result = subprocess.run(
            [sys.executable, "-X", "importtime", *start, *line.split()],
            capture_output=True,
            text=True,
            timeout=300,
            cwd=ROOT,
        )
        assert result.returncode == code
        imports = [row for row in result.stderr.splitlines() if row.startswith("import time:")]
        spoken = [row for row in result.stderr.splitlines() if row not in imports]
        assert re.search(said, result.stdout if code == 0 else "\n".join(spoken))
        assert len(spoken) == (code != 0)
        loaded = {row.rpartition("|")[2].strip() for row in imports}
        assert "botorch_bandits.version" in loaded
        assert not loaded & {"torch", "botorch", "gpytorch", "numpy"}


def test_what_the_parser_restates_is_what_the_rooms_below_say():
    assert arguments.TASK_NAMES == tuning.TASK_NAMES
    assert arguments.DATASETS == tuning.DATASETS
    assert list(arguments.COSTS) == list(tuning.COSTS)
    assert arguments.OBJECTIVES == loop_settings.OBJECTIVES


def test_names_are_listed_alike_for_python_and_for_type_checkers():
    """The list, the table of modules and what a type checker sees hold the same names."""
    tree = ast.parse(SOURCE)
    (typing_only,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.name: node.module.removeprefix("botorch_bandits.")
        for node in typing_only.body
        for alias in node.names
    }
    assert seen == botorch_bandits._MODULE_OF
    assert {*seen, "__version__"} == set(botorch_bandits.__all__)
    (listed,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert ast.literal_eval(listed) == botorch_bandits.__all__  # readable without running it


def test_no_name_is_that_of_a_module():
    """Importing the module would put it in the place of the name."""
    modules = {path.stem for path in Path(botorch_bandits.__file__).parent.iterdir()}
    assert not modules & set(botorch_bandits.__all__)
    assert set(botorch_bandits._MODULES) <= modules


def test_everything_can_be_asked_for_in_every_way():
    namespace: dict[str, object] = {}
    exec("from botorch_bandits import *", namespace)
    assert set(botorch_bandits.__all__) <= set(namespace)
    assert set(botorch_bandits.__all__) <= set(dir(botorch_bandits))
    for name in botorch_bandits.__all__:
        assert namespace[name] is getattr(botorch_bandits, name)
    for name in botorch_bandits._MODULES:
        module = importlib.import_module(f"botorch_bandits.{name}")
        assert getattr(botorch_bandits, name) is module
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        botorch_bandits.Nonsense  # noqa: B018
    with pytest.raises(ImportError, match="Nonsense"):
        from botorch_bandits import Nonsense  # noqa: F401


def test_modules_are_there_without_an_import_of_their_own():
    name = run_fresh(
        "import botorch_bandits, json; print(json.dumps(botorch_bandits.penalties.Linear.__name__))"
    )
    assert name == "Linear"


def test_classes_of_the_package_can_be_pickled():
    for name in {*botorch_bandits.__all__} - {"__version__"}:
        value = getattr(botorch_bandits, name)
        assert pickle.loads(pickle.dumps(value)) is value


ASK = """
from botorch.acquisition.input_constructors import (
    ACQF_INPUT_CONSTRUCTOR_REGISTRY, get_acqf_input_constructor
)
"""
PATHS = {
    "by the package": "from botorch_bandits import ImprovedUpperConfidenceBound as found",
    "by the room": "from botorch_bandits.acquisition import ImprovedUpperConfidenceBound as found",
    "by its file": (
        "from botorch_bandits.acquisition.upper_confidence_bound import "
        "ImprovedUpperConfidenceBound as found"
    ),
    "as an attribute": (
        "import botorch_bandits; found = botorch_bandits.acquisition.ImprovedUpperConfidenceBound"
    ),
    "by unpickling": (
        "import pickle; found = pickle.loads(b'cbotorch_bandits.acquisition."
        "upper_confidence_bound\\nImprovedUpperConfidenceBound\\n.')"
    ),
    "by the loop": (
        "import botorch_bandits.loop, sys; found = sys.modules['botorch_bandits.acquisition."
        "upper_confidence_bound'].ImprovedUpperConfidenceBound"
    ),
}


def code_that_reaches(path: str) -> str:
    return "\n".join(
        [
            "import json, sys",
            PATHS[path],
            ASK,
            "inputs = get_acqf_input_constructor(found)(model=None, width=2.0)",
            "module = sys.modules['botorch.acquisition.input_constructors']",
            "loader = type(module.__loader__).__name__, type(module.__spec__.loader).__name__",
            "left = [f for f in sys.meta_path if type(f).__module__.startswith('botorch_bandits')]",
            "ours = [c for c in ACQF_INPUT_CONSTRUCTOR_REGISTRY",
            "        if c.__module__.startswith('botorch_bandits')]",
            "print(json.dumps([inputs, loader, len(left), len(ours)]))",
        ]
    )


def test_a_class_that_is_reached_is_registered():
    codes = [code_that_reaches(path) for path in PATHS]
    orders = {"registry first": ASK, "registry last": ""}
    seen = run_fresh_each([(first, codes) for first in orders.values()])
    for order, answers in zip(orders, seen, strict=True):
        for path, (inputs, loader, left, ours) in zip(PATHS, answers, strict=True):
            assert inputs == {"model": None, "width": 2.0}, (path, order)
            assert loader == ["SourceFileLoader", "SourceFileLoader"], (path, order)
            assert (left, ours) == (0, 22), (path, order)


def test_type_checkers_know_the_names(tmp_path):
    """As a user's own file sees them, in mypy's strict mode."""
    snippet = tmp_path / "snippet.py"
    snippet.write_text(
        "from botorch_bandits import Arms, BanditLoop, Box, run\n"
        "import botorch_bandits\n"
        "reveal_type(Box)\n"
        "reveal_type(BanditLoop.ask)\n"
        "reveal_type(botorch_bandits.__version__)\n"
        "from botorch_bandits import Nonsense\n",
        encoding="utf-8",
    )
    config = tmp_path / "mypy.ini"
    config.write_text(
        "[mypy]\nstrict = True\nfollow_imports = silent\n"
        "[mypy-torch.*,botorch.*,gpytorch.*,linear_operator.*,numpy.*,scipy.*]\n"
        "follow_imports = skip\nignore_missing_imports = True\n",
        encoding="utf-8",
    )
    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, "--cache-dir", tmp_path, snippet],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    lines = [line for line in result.stdout.splitlines() if "snippet.py" in line]
    notes = [line for line in lines if " note: Revealed type" in line]
    assert ["Box" in notes[0], "Query" in notes[1], "str" in notes[2]] == [True] * 3, lines
    errors = [line for line in lines if " error: " in line]
    assert len(errors) == 1, result.stdout
    assert "Nonsense" in errors[0]
