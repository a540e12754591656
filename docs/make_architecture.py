"""Draws the rooms of the package and who imports whom: ``python docs/make_architecture.py``.

The floors are read from the table in ``docs/architecture.md``, the imports from the source. The
command writes ``docs/images/architecture.svg`` and ``docs/results/imports.csv``, and prints the
rooms with their files and lines. It fails if an import does not go down, or if files import each
other in a circle. ``--check`` writes nothing and fails if what is written is out of date.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
import sys
from collections.abc import Iterator
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "botorch_bandits"
BESIDE = (DOCS.parent / "tutorials" / "papers", DOCS.parent / "tests" / "benchmarks")
PAGE = DOCS / "architecture.md"
PICTURE = DOCS / "images" / "architecture.svg"
TABLE = DOCS / "results" / "imports.csv"
ROOF = ("__init__", "__main__")  # they may import every room

ROW, GAP, LETTER, HEIGHT, MARGIN = 62.0, 26.0, 8.2, 26.0, 60.0  # of the picture, in pixels


class Import(NamedTuple):
    """One import of a module of the package by another room."""

    path: Path
    line: int
    module: str
    room: str
    imported: str


def read_floors() -> list[list[str]]:
    """Return the rooms of each floor, lowest first, from the table of the page."""
    text = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ((?:`\w+`(?:, )?)+) \|", text, re.MULTILINE)
    if [int(number) for number, _ in rows] != list(range(len(rows))):
        raise ValueError(f"floors in {PAGE.name} must be numbered from 0: {[n for n, _ in rows]}.")
    return [re.findall(r"`(\w+)`", rooms) for _, rooms in rows]


def read_files() -> list[Path]:
    """Return the package's files."""
    return sorted(PACKAGE.rglob("*.py"))


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path: Path, package: Path = PACKAGE) -> list[str]:
    parts = list(path.relative_to(package.parent).with_suffix("").parts)
    return parts[:-1] if parts[-1] == "__init__" else parts


@cache
def imported_modules(path: Path, package_path: Path = PACKAGE) -> list[tuple[int, str]]:
    """Return line numbers and absolute names of everything that a file of a package imports.

    Imports for type checkers and imports within functions are among them.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return _imports_in(tree, path, package_path)


def imports_within_functions(path: Path, package_path: Path = PACKAGE) -> list[tuple[int, str]]:
    """Return what a file imports of its own package within functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    found = {
        one
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for one in _imports_in(node, path, package_path)
    }
    return sorted(one for one in found if one[1].split(".")[0] == package_path.name)


def _imports_in(tree: ast.AST, path: Path, package_path: Path) -> list[tuple[int, str]]:
    parts = module_of(path, package_path)
    package = parts if path.name == "__init__.py" else parts[:-1]
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from botorch_bandits import domains` names a room only with its last part
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return found


def imports_of(path: Path) -> Iterator[Import]:
    """Yield what a file imports from other rooms."""
    room = room_of(path)
    for line, name in imported_modules(path, PACKAGE):
        parts = name.split(".")
        if parts[0] == PACKAGE.name and parts[1] != room:
            yield Import(path, line, name, room, parts[1])


def read_file_graph(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return which modules of a package each of its modules imports; the roof is left out."""
    modules = {".".join(module_of(p, package)): p for p in sorted(package.rglob("*.py"))}
    graph: dict[str, set[str]] = {
        name: set() for name in modules if name.split(".")[-1] not in (package.name, "__main__")
    }
    for name, imported in graph.items():
        for _, full in imported_modules(modules[name], package):
            # `from package.room import name` imports a module of that name, or the room
            module = full if full in graph else full.rpartition(".")[0]
            if module in graph and module != name:
                imported.add(module)
    return graph


def find_circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or by way of others (Tarjan)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    circles = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            circle = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(circle) > 1:
                circles.append(sorted(circle))

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return circles


class House:
    """The rooms, their floors, and which rooms each imports."""

    def __init__(self) -> None:
        self.floors = read_floors()
        self.floor_of = {room: floor for floor, rooms in enumerate(self.floors) for room in rooms}
        self.files = [path for path in read_files() if room_of(path) not in ROOF]
        self.imports = [one for path in self.files for one in imports_of(path)]

    def faults(self) -> list[str]:
        """Return what is wrong with the house, one sentence each."""
        found = [
            f"{room} has no floor: give it one in the table of {PAGE.name}."
            for room in sorted({room_of(path) for path in self.files} - set(self.floor_of))
        ]
        for one in self.imports:
            where = f"{one.path.relative_to(PACKAGE)}:{one.line} imports {one.module}"
            if one.imported not in self.floor_of:
                found.append(f"{where}: name the room, not the package.")
            elif self.floor_of[one.imported] >= self.floor_of.get(one.room, 0):
                found.append(f"{where}, which is no floor below {one.room}.")
        return found

    @cached_property
    def edges(self) -> dict[str, set[str]]:
        """The rooms that each room imports."""
        edges: dict[str, set[str]] = {room: set() for rooms in self.floors for room in rooms}
        for one in self.imports:
            edges[one.room].add(one.imported)
        return edges

    def reached(self, room: str) -> set[str]:
        """Return the rooms below a room that it imports, or that these import, and so on."""
        return self.edges[room].union(*(self.reached(below) for below in self.edges[room]))

    def arrows(self) -> list[tuple[str, str]]:
        """Return the imports between rooms that do not follow from others."""
        return [
            (room, below)
            for room, imported in self.edges.items()
            for below in sorted(imported)
            if not any(below in self.reached(other) for other in imported - {below})
        ]

    def to_csv(self) -> str:
        """Return one row a room: floor, room, the rooms it imports."""
        rows = [
            f"{floor},{room},{' '.join(sorted(self.edges[room]))}"
            for floor, rooms in enumerate(self.floors)
            for room in rooms
        ]
        return "\n".join(["floor,room,imports", *rows, ""])

    def to_text(self) -> str:
        """Return the rooms, top floor first, with their files and lines."""
        lines = []
        for floor in reversed(range(len(self.floors))):
            for room in self.floors[floor]:
                sizes = {p: count_lines(p) for p in self.files if room_of(p) == room}
                lines.append(f"{floor:2} {room}: {len(sizes)} files, {sum(sizes.values())} lines")
                lines += [f"     {size:4} {p.relative_to(PACKAGE)}" for p, size in sizes.items()]
        return "\n".join(lines)


class Layout:
    """Where the rooms stand; an arrow past a floor goes through a joint on it.

    Rooms are put in order by the mean place of their neighbors, as in Sugiyama's layouts.
    """

    def __init__(self, house: House) -> None:
        self.layers: list[list[str]] = [list(rooms) for rooms in house.floors]
        self.paths: list[list[str]] = []
        for upper, lower in house.arrows():
            joints = []
            for floor in range(house.floor_of[upper] - 1, house.floor_of[lower], -1):
                joints.append(f"{upper} > {lower} @ {floor}")
                self.layers[floor].append(joints[-1])
            self.paths.append([upper, *joints, lower])
        self.neighbors: dict[str, list[str]] = {n: [] for layer in self.layers for n in layer}
        for path in self.paths:
            for above, below in itertools.pairwise(path):
                self.neighbors[above].append(below)
                self.neighbors[below].append(above)
        self.x = {name: float(i) for layer in self.layers for i, name in enumerate(layer)}
        for sweep in range(40):
            for layer in self.layers if sweep % 2 else self.layers[::-1]:
                self._place(layer)
        left = min(self.x[name] - width(name) / 2 for name in self.x)
        self.x = {name: round(x - left + MARGIN, 1) for name, x in self.x.items()}
        self.size = (
            max(self.x[name] + width(name) / 2 for name in self.x) + GAP,
            ROW * len(self.layers),
        )

    def _place(self, layer: list[str]) -> None:
        wanted = {
            name: sum(map(self.x.__getitem__, self.neighbors[name]))
            / max(len(self.neighbors[name]), 1)
            if self.neighbors[name]
            else self.x[name]
            for name in layer
        }
        layer.sort(key=lambda name: (wanted[name], name))
        right = float("-inf")
        for name in layer:
            self.x[name] = max(wanted[name], right + width(name) / 2)
            right = self.x[name] + width(name) / 2 + GAP
        shift = sum(self.x[name] - wanted[name] for name in layer) / len(layer)
        for name in layer:
            self.x[name] -= shift

    def y(self, floor: int) -> float:
        """Return the height of the middle of a floor; the lowest is at the bottom."""
        return self.size[1] - ROW * (floor + 0.5)


def width(name: str) -> float:
    """Return how wide a room is drawn; a joint is a point."""
    return 0.0 if "@" in name else LETTER * len(name) + 16.0


def draw(house: House) -> str:
    """Return the picture as SVG: black lines on white, one row a floor."""
    layout = Layout(house)
    wide, high = layout.size
    floor_of = {name: floor for floor, layer in enumerate(layout.layers) for name in layer}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {high:.0f}" '
        'font-family="monospace" font-size="13">',
        f"<title>The rooms of {PACKAGE.name}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for floor in range(len(house.floors)):
        y = layout.y(floor)
        if floor % 2:
            parts.append(f'<rect y="{y - ROW / 2}" width="100%" height="{ROW}" fill="#f2f2f2"/>')
        parts.append(f'<text x="12" y="{y + 4.5}">{floor}</text>')
    for path in layout.paths:
        # a joint is as high as a room, so that a line passes between rooms and not over corners
        points = [
            (layout.x[name], layout.y(floor_of[name]) + side * HEIGHT / 2)
            for name in path
            for side in (-1, 1)
        ][1:-1]
        points[-1] = (points[-1][0], points[-1][1] - 1.0)
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="black" marker-end="url(#head)">'
            f"<title>{escape(path[0])} imports {escape(path[-1])}</title></polyline>"
        )
    for room, floor in house.floor_of.items():
        x, y, w = layout.x[room], layout.y(floor), width(room)
        parts.append(
            f'<rect x="{x - w / 2:.1f}" y="{y - HEIGHT / 2:.1f}" width="{w:.1f}" '
            f'height="{HEIGHT}" rx="4" fill="white" stroke="black"/>'
            f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{room}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    check = parser.parse_args().check
    house = House()
    faults = house.faults()
    if not faults:
        for path, text in ((PICTURE, draw(house)), (TABLE, house.to_csv())):
            if not check:
                path.write_text(text, encoding="utf-8")
            elif path.read_text(encoding="utf-8") != text:
                faults.append(f"{path.relative_to(DOCS.parent)} is out of date.")
        print(house.to_text())
    faults += [
        f"{', '.join(circle)} import each other in a circle."
        for package in (PACKAGE, *BESIDE)
        for circle in find_circles(read_file_graph(package))
    ]
    print("\n".join(faults), file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
