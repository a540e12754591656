"""Plants small faults in the package, one at a time, and reports which of them the tests find.

``python tests/mutants.py --number 60 --seed 0 --table found.csv`` draws faults at random in the
rooms that compute (an operator, a constant, a comparison, or a dropped statement), and plays for
each the tests of its room and the table of settings, those alone that reach the line. With
``--again found.csv``, the faults of an earlier table are planted once more where the code still
stands, so that two states of the tests can be compared on the same faults.
``tests/data/mutants.csv`` is such a table.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "botorch_bandits"
ROOMS = ("core", "confidence", "models", "acquisition", "change_points", "constraints", "loop")
TABLE = "tests/loop/test_rounds.py"  # the table of settings, which belongs to every room
LIMIT = 900.0  # seconds; a fault that makes the tests run for longer counts as found

# what stands in the code, and what replaces it
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.MatMult: ("@", "*"),
    ast.Pow: ("**", "*"),
}
COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}

MARKS = """
import os
_seen = set()
def hit(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    if test and (number, test) not in _seen:
        _seen.add((number, test))
        with open(os.environ["MUTANT_MARKS"] + f".{os.getpid()}", "a") as file:
            file.write(f"{number}\\t{test}\\n")
"""


@dataclass(frozen=True)
class Mutant:
    """One fault: what stands at a place, and what replaces it.

    Attributes:
        file: Relative to the repository.
        function: The qualified name of the function.
        kind: "operator", "constant", "comparison" or "dropped".
        statement: The statement in which it lies, as :func:`ast.unparse` writes it.
        occurrence: Which of the places with the same statement, kind and texts in the function.
        before: The text that is replaced.
        after: The text that replaces it.
    """

    file: str
    function: str
    kind: str
    statement: str
    occurrence: int
    before: str
    after: str


@dataclass(frozen=True)
class Site:
    """Where a mutant lies in a file: character offsets, and the line to mark."""

    start: int
    end: int
    mark_line: int


class Source:
    """The text of a file, in which mutants are found by their syntax.

    Args:
        path: Of the file, in the repository.
    """

    def __init__(self, path: Path) -> None:
        self.name = str(path.relative_to(ROOT))
        self.data = path.read_bytes()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.counts: dict[tuple[str, ...], int] = defaultdict(int)

    def span(self, node: Any) -> tuple[int, int]:
        """Return where a node begins and ends, in bytes."""
        start = self.starts[node.lineno - 1] + node.col_offset
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset

    def between(self, left: ast.expr, right: ast.expr, symbol: str) -> tuple[int, int] | None:
        """Return where a symbol stands between two nodes; None if more than it stands there."""
        start = self.span(left)[1]
        text = self.data[start : self.span(right)[0]]
        at = start + text.find(symbol.encode())
        return (at, at + len(symbol)) if text.strip() == symbol.encode() else None

    def faults(self, node: ast.AST) -> Iterator[tuple[str, tuple[int, int] | None, str]]:
        """Yield kind, place and replacement of each fault at a node."""
        match node:
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                symbol, after = OPERATORS[type(op)]
                yield "operator", self.between(left, right, symbol), after
            case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
                yield "operator", (self.span(node)[0], self.span(operand)[0]), ""
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                symbol, after = COMPARISONS[type(op)]
                yield "comparison", self.between(left, right, symbol), after
            case ast.BoolOp(op=op, values=[left, right]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield "comparison", self.between(left, right, words[0]), words[1]
            case ast.Constant(value=bool() as value):
                yield "constant", self.span(node), str(not value)
            case ast.Constant(value=int() as value):
                yield "constant", self.span(node), str(value + 1)
            case ast.Constant(value=float() as value):
                yield "constant", self.span(node), repr(value * 1.1 + (value == 0.0))
            case ast.AugAssign() | ast.Expr(value=ast.Call()):
                yield "dropped", self.span(node), "pass"

    def sites(
        self, node: ast.AST, statement: ast.stmt | None = None, line: int = 0, names: str = ""
    ) -> Iterator[tuple[Mutant, Site]]:
        """Yield the faults in a node and below.

        Args:
            node: Where to look.
            statement: The one that contains it; None outside of functions.
            line: Before which a mark of the statement can be put.
            names: The qualified name of the function.
        """
        match node:
            case ast.FunctionDef(name=name, body=body) | ast.ClassDef(name=name, body=body):
                for child in body:
                    inner = child if isinstance(node, ast.FunctionDef) else None
                    yield from self.sites(child, inner, child.lineno, f"{names}.{name}".strip("."))
                return
            case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.Expr(value=ast.Constant()):
                return  # the wording of errors, and docstrings
            case ast.stmt() if statement is not None:
                is_elif = self.data[self.span(node)[0] :].startswith(b"elif")
                statement, line = node, line if is_elif else node.lineno
        if statement is not None:
            yield from self._here(node, statement, line, names)
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and name not in ("annotation", "format_spec"):
                    yield from self.sites(child, statement, line, names)

    def _here(
        self, node: ast.AST, statement: ast.stmt, line: int, names: str
    ) -> Iterator[tuple[Mutant, Site]]:
        for kind, place, after in self.faults(node):
            if place is not None:
                before = self.data[slice(*place)].decode()
                source = ast.unparse(statement).split("\n")[0]
                key = (names, kind, source, before, after)
                self.counts[key] += 1
                yield (
                    Mutant(self.name, names, kind, source, self.counts[key], before, after),
                    Site(*place, line),
                )


def all_sites() -> dict[Mutant, Site]:
    """Return every fault that can be planted in the rooms, with its place."""
    found = {}
    for room in ROOMS:
        for path in sorted((ROOT / PACKAGE / room).rglob("*.py")):
            source = Source(path)
            found.update(source.sites(ast.parse(source.data)))
    return found


def draw(number: int, seed: int, exclude: tuple[str, ...]) -> list[Mutant]:
    """Draw faults, as many of each kind."""
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in all_sites():
        if not any(part in mutant.file for part in exclude):
            kinds[mutant.kind].append(mutant)
    generator = random.Random(seed)
    names = sorted(kinds)
    return [generator.choice(kinds[names[k % len(names)]]) for k in range(number)]


def copy_tree(folder: Path) -> None:
    """Copy the files that git knows, as they are in the working tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def planted(mutant: Mutant, site: Site) -> str:
    """Return the text of the file with the fault."""
    data = (ROOT / mutant.file).read_bytes()
    assert data[site.start : site.end].decode() == mutant.before
    return (data[: site.start] + mutant.after.encode() + data[site.end :]).decode()


def run_tests(folder: Path, arguments: list[str], marks: Path | None = None) -> int:
    """Run pytest in a copy of the tree; returns its exit code, 1 if it takes too long."""
    environment = dict(
        os.environ, PYTHONPATH=os.pathsep.join([str(folder), str(folder / ".marks")])
    )
    environment.setdefault("OMP_NUM_THREADS", "1")
    if marks is not None:
        environment["MUTANT_MARKS"] = str(marks)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    limit = None if marks is not None else LIMIT
    try:
        with open(folder / "pytest.log", "w") as log:
            return subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=log,
                timeout=limit,
                check=False,
            ).returncode
    except subprocess.TimeoutExpired:
        return 1


def find_reaching(
    mutants: list[Mutant], places: dict[Mutant, Site], folder: Path, tests: list[str], workers: int
) -> list[list[str]]:
    """Return for each fault the tests that reach its statement, the fastest ones first."""
    copy_tree(folder)
    (folder / ".marks").mkdir()
    (folder / ".marks" / "mutant_marks.py").write_text(MARKS)
    lines_of: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for number, mutant in enumerate(mutants):
        lines_of[mutant.file][places[mutant].mark_line].append(number)
    for file, marked in lines_of.items():
        lines = (ROOT / file).read_text().splitlines(keepends=True)
        for line in sorted(marked, reverse=True):
            indent = lines[line - 1][: len(lines[line - 1]) - len(lines[line - 1].lstrip())]
            hits = "; ".join(f"mutant_marks.hit({number})" for number in marked[line])
            lines.insert(line - 1, f"{indent}import mutant_marks; {hits}\n")
        (folder / file).write_text("".join(lines))
    run_tests(
        folder,
        ["-n", str(workers), "--durations=0", *tests],
        folder / "marks",
    )
    seconds = durations_of(folder / "pytest.log")
    reaching: list[set[str]] = [set() for _ in mutants]
    for file in folder.glob("marks.*"):
        for line in file.read_text().splitlines():
            number, _, test = line.partition("\t")
            reaching[int(number)].add(test)
    return [sorted(tests, key=lambda test: (seconds.get(test, 0.0), test)) for tests in reaching]


def durations_of(log: Path) -> dict[str, float]:
    """Read the seconds of each test from what pytest printed."""
    seconds: dict[str, float] = defaultdict(float)
    for line in log.read_text().splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3 and parts[0].endswith("s") and parts[1] in ("call", "setup", "teardown"):
            seconds[parts[2]] += float(parts[0][:-1])
    return seconds


def is_found(mutant: Mutant, site: Site, tests: list[str], folder: Path) -> bool:
    """Plant a fault in a copy of the tree, and tell whether a test fails."""
    if not tests:
        return False
    copy_tree(folder)
    (folder / mutant.file).write_text(planted(mutant, site))
    names = folder / "tests.txt"
    names.write_text("\n".join(tests))
    code = run_tests(folder, ["-x", f"@{names}"])
    shutil.rmtree(folder)
    return code != 0


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=60, help="of faults (default 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, help="plant the faults of this table once more")
    parser.add_argument("--exclude", nargs="*", default=[], help="parts of paths not to draw from")
    parser.add_argument("--table", type=Path, default=Path("mutants.csv"))
    parser.add_argument("--reach", type=Path, help="keep here who reaches what, and use it again")
    parser.add_argument("--tests", nargs="*", help="default: the tests of the rooms")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    places = all_sites()
    if options.again is None:
        mutants = draw(options.number, options.seed, tuple(options.exclude))
    else:
        with open(options.again) as file:
            names = [field.name for field in fields(Mutant)]
            rows = [{name: row[name] for name in names} for row in csv.DictReader(file)]
        told = [Mutant(**{**row, "occurrence": int(row["occurrence"])}) for row in rows]
        mutants = [mutant for mutant in told if mutant in places]
        print(f"{len(mutants)} of {len(told)} faults can be planted again")
    tests = options.tests or [f"tests/{room}" for room in ROOMS]
    tests = [test for test in tests if (ROOT / test).exists()]
    with tempfile.TemporaryDirectory() as scratch:
        if options.reach is not None and options.reach.exists():
            reaching = json.loads(options.reach.read_text())
        else:
            folder = Path(scratch) / "marked"
            folder.mkdir()
            reaching = find_reaching(mutants, places, folder, tests, options.workers)
            if options.reach is not None:
                options.reach.write_text(json.dumps(reaching))
                shutil.copy(folder / "pytest.log", options.reach.with_suffix(".log"))

        def play(number: int) -> tuple[bool, float, int]:
            mutant = mutants[number]
            room = mutant.file.split("/")[1]
            own = [test for test in reaching[number] if test.startswith((f"tests/{room}/", TABLE))]
            start = time.monotonic()
            found = is_found(mutant, places[mutant], own, Path(scratch) / f"mutant{number}")
            seconds = time.monotonic() - start
            print(
                f"{number}: {'found' if found else 'NOT FOUND'} in {seconds:.0f} s of {len(own)}"
                f": {mutant.file} {mutant.function}: {mutant.statement[:80]}: "
                f"{mutant.before!r} -> {mutant.after!r}",
                flush=True,
            )
            return found, seconds, len(own)

        with ThreadPoolExecutor(options.workers) as pool:
            results = list(pool.map(play, range(len(mutants))))
    with open(options.table, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(field.name for field in fields(Mutant)), "found", "num_tests"])
        for mutant, (found, _, count) in zip(mutants, results, strict=True):
            writer.writerow([*asdict(mutant).values(), found, count])
    print(f"{sum(found for found, _, _ in results)} of {len(mutants)} faults found")


if __name__ == "__main__":
    main()
