"""Plants small faults in the package, one at a time, and reports which of them the tests find.

``python tests/mutants.py --number 60 --seed 0 --table found.csv`` draws faults at random in the
rooms that compute (an operator, a constant, a comparison, or a dropped statement), and plays for
each the tests of the rooms and the table of settings, those alone that reach the line. With
``--again found.csv``, the faults of an earlier table are planted once more where the code still
stands, so that two states of the tests can be compared on the same faults.
``tests/data/mutants.csv`` is such a table.

The tests are imported and collected once. Each fault is planted in a fork of that process, where
the code of the functions of its file is replaced.
"""

from __future__ import annotations

import argparse
import ast
import csv
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "botorch_bandits"
ROOMS = ("core", "confidence", "models", "acquisition", "change_points", "constraints", "loop")
TABLE = "tests/loop/test_rounds.py"  # the table of settings, which belongs to every room
LIMIT = 900  # seconds; a fault that makes the tests run for longer counts as found

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


def all_sites(rooms: Sequence[str] = ROOMS) -> dict[Mutant, Site]:
    """Return every fault that can be planted in some rooms or files, with its place."""
    found: dict[Mutant, Site] = {}
    for room in rooms:
        folder = ROOT / PACKAGE / room
        for path in sorted(folder.rglob("*.py")) or [folder.with_suffix(".py")]:
            source = Source(path)
            found.update(source.sites(ast.parse(source.data)))
    return found


def draw(places: dict[Mutant, Site], number: int, seed: int) -> list[Mutant]:
    """Draw faults, as many of each kind."""
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in places:
        kinds[mutant.kind].append(mutant)
    generator = random.Random(seed)
    names = sorted(kinds)
    return [generator.choice(kinds[names[k % len(names)]]) for k in range(number)]


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and all that are in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes_in(each)


def plant(mutant: Mutant, site: Site) -> None:
    """Replace the code of all functions of a file by that of the file with the fault."""
    path = ROOT / mutant.file
    data = path.read_bytes()
    assert data[site.start : site.end].decode() == mutant.before
    text = data[: site.start] + mutant.after.encode() + data[site.end :]
    codes = codes_in(compile(text, str(path), "exec", dont_inherit=True))
    changed = {(code.co_name, code.co_firstlineno, code.co_freevars): code for code in codes}
    gc.unfreeze()  # what is frozen is not listed
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == str(path):
            old = function.__code__
            key = old.co_name, old.co_firstlineno, old.co_freevars
            function.__code__ = changed.get(key, old)


def start(work: Callable[..., bool], *arguments: Any) -> int:
    """Return the id of a fork that does some work and ends with 0 if it returns True."""
    if pid := os.fork():
        return pid
    is_done = False
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        is_done = work(*arguments)
    finally:
        os._exit(0 if is_done else 1)


class Planter:
    """A plugin of pytest that plants faults, in place of running the tests.

    Attributes:
        found: The results of the faults, in their order, with the number of tests that reach each.
    """

    def __init__(self, mutants: list[Mutant], places: dict[Mutant, Site], workers: int) -> None:
        self.mutants, self.places, self.workers = mutants, places, workers
        self.found: dict[int, tuple[bool, int]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Find the tests of each fault, and then the faults that they find."""
        with tempfile.NamedTemporaryFile() as file:
            os.waitpid(start(self.find_reaching, session.items, Path(file.name)), 0)
            reaching = json.loads(Path(file.name).read_text())
        waiting, running = list(range(len(self.mutants))), dict[int, tuple[int, float]]()
        while waiting or running:
            while waiting and len(running) < self.workers:
                number = waiting.pop(0)
                items = [session.items[i] for i in reaching[number]]
                pid = start(self.passes, self.mutants[number], items)
                running[pid] = number, time.monotonic()
            pid, status = os.wait()
            number, begun = running.pop(pid)
            self.found[number] = status != 0, len(reaching[number])
            print(
                f"{number}: {'found' if status else 'NOT FOUND'} in "
                f"{time.monotonic() - begun:.0f} s of {len(reaching[number])}: "
                f"{self.mutants[number]}",
                flush=True,
            )
        return True

    def passes(self, mutant: Mutant, items: list[pytest.Item]) -> bool:
        """Plant a fault, and return whether all of some tests pass nevertheless."""
        signal.alarm(LIMIT)
        plant(mutant, self.places[mutant])
        return all(not fails(item) for item in items)

    def find_reaching(self, items: list[pytest.Item], file: Path) -> bool:
        """Write down which tests reach the statement of each fault, the fastest ones first."""
        wanted: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, mutant in enumerate(self.mutants):
            line = self.places[mutant].mark_line
            wanted[str(ROOT / mutant.file)][line].append(number)
        hit: set[int] = set()

        def follow(frame: Any, event: str, _: Any) -> Any:
            lines = wanted.get(frame.f_code.co_filename)
            if lines is not None and event == "line":
                hit.update(lines.get(frame.f_lineno, ()))
            return None if lines is None else follow

        reaching: list[list[tuple[float, int]]] = [[] for _ in self.mutants]
        for index, item in enumerate(items):
            hit.clear()
            begun = time.monotonic()
            sys.settrace(follow)
            fails(item)
            sys.settrace(None)
            for number in hit:
                reaching[number].append((time.monotonic() - begun, index))
        file.write_text(json.dumps([[index for _, index in sorted(each)] for each in reaching]))
        return True


def fails(item: pytest.Item) -> bool:
    """Run a test, and return whether it fails."""
    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=60, help="of faults (default 60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, help="plant the faults of this table once more")
    parser.add_argument("--rooms", nargs="*", default=ROOMS, help="folders and files to draw from")
    parser.add_argument("--table", type=Path, default=Path("mutants.csv"))
    parser.add_argument("--tests", nargs="*", help="default: the tests of the rooms")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    places = all_sites(options.rooms)
    if options.again is None:
        mutants = draw(places, options.number, options.seed)
    else:
        with open(options.again) as file:
            names = [field.name for field in fields(Mutant)]
            rows = [{name: row[name] for name in names} for row in csv.DictReader(file)]
        told = [Mutant(**{**row, "occurrence": int(row["occurrence"])}) for row in rows]
        mutants = [mutant for mutant in told if mutant in places]
        print(f"{len(mutants)} of {len(told)} faults can be planted again")
    of_rooms = [f"tests/{room}" for room in options.rooms]
    of_rooms += [f"tests/test_{room}.py" for room in options.rooms] + [TABLE]
    tests = options.tests or [test for test in of_rooms if (ROOT / test).exists()]
    planter = Planter(mutants, places, options.workers)
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    pytest.main(["-q", "-p", "no:cacheprovider", *tests], plugins=[planter])
    with open(options.table, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(field.name for field in fields(Mutant)), "found", "num_tests"])
        for number, mutant in enumerate(mutants):
            writer.writerow([*asdict(mutant).values(), *planter.found[number]])
    print(f"{sum(found for found, _ in planter.found.values())} of {len(mutants)} faults found")


if __name__ == "__main__":
    main()
