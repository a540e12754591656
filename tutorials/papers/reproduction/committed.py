"""The files that a full run leaves in the documentation, and how they are read back.

An experiment's tables are ``results/NAME.csv`` and ``results/NAME-KIND.csv``, its curves
``results/curves/NAME.csv``, its settings ``results/settings/NAME.json``, and its pictures
``images/experiments/PICTURE.svg`` of the folder of the documentation.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from botorch_bandits.cli import write_atomically
from papers.curves import CURVES_TABLE
from papers.pictures import FOLDER as DRAWN
from papers.pictures import Picture, Row, save_picture
from papers.registry import EXPERIMENTS, FACTORS, TABLES
from papers.reproduction.judging import Evidence
from papers.results import write_csv
from papers.running import pictures_of, read_rows, read_settings, read_written
from papers.shi import BOXES_TABLE

RESULTS, CURVES, SETTINGS = Path("results"), Path("results/curves"), Path("results/settings")
IMAGES, PAGES = Path("images/experiments"), Path("figure-by-figure")
VERDICTS, RECORD = RESULTS / "verdicts.csv", SETTINGS / "reproduction.json"

SHARED = {
    "power": ("avanesov-powers", {"avanesov-horizon": "T", "avanesov-periods": "K"}),
    "detections": (
        "avanesov-detections",
        dict.fromkeys(
            (f"avanesov-{kind}" for kind in ("horizon", "periods", "compare", "constants")), ""
        ),
    ),
}
"""Tables that several experiments share: the file, and the variable of each experiment's rows."""


@dataclass(frozen=True)
class Record:
    """How a reproduction was made.

    Attributes:
        command: The command, with file names but without their folders.
        seed: The seed of everything that was drawn.
        num_workers: The number of processes.
        num_cores: The number of cores of the machine.
        versions: The versions of the software that computed the results, by name.
        files: The names of the data files, by the names of :data:`~papers.reproduction.state.DATA`.
    """

    command: str
    seed: int
    num_workers: int
    num_cores: int
    versions: Mapping[str, str]
    files: Mapping[str, str]


def read_record(docs: Path) -> Record:
    """Return how the committed reproduction was made.

    Args:
        docs: The folder of the documentation.
    """
    return Record(**json.loads((docs / RECORD).read_text(encoding="utf-8")))


def write_record(record: Record, docs: Path) -> None:
    """Write how a reproduction was made.

    Args:
        record: The record to write.
        docs: The folder of the documentation.
    """
    (docs / SETTINGS).mkdir(parents=True, exist_ok=True)
    write_atomically(docs / RECORD, json.dumps(asdict(record), indent=2) + "\n")


def read_evidence(name: str, docs: Path) -> Evidence:
    """Return the committed tables and settings of an experiment, as its folder would have them.

    Args:
        name: The name of the experiment.
        docs: The folder of the documentation.
    """
    tables = {}
    longer = [other for other in (*EXPERIMENTS, *TABLES) if other.startswith(f"{name}-")]
    for path in sorted((docs / RESULTS).glob(f"{name}*.csv")):
        kind = path.stem.removeprefix(name).removeprefix("-")
        if any(f"{path.stem}-".startswith(f"{other}-") for other in longer):
            continue
        rows = read_rows(path)
        tables[kind or _kind(rows)] = rows
    for kind, (file, variables) in SHARED.items():
        if name in variables:
            rows = read_rows(docs / RESULTS / f"{file}.csv")
            rows = [row for row in rows if _is_of(row, name, variables[name])]
            if rows:
                tables[kind] = rows
    for path in sorted((docs / CURVES).glob(f"{name}*.csv")):
        kind = path.stem.removeprefix(name)
        if kind in ("", f"-{BOXES_TABLE}"):
            tables[kind[1:] or CURVES_TABLE] = read_rows(path)
    settings = {}
    if (docs / SETTINGS / f"{name}.json").exists():
        settings = json.loads((docs / SETTINGS / f"{name}.json").read_text(encoding="utf-8"))
    return Evidence(tables, settings)


def _kind(rows: Sequence[Row]) -> str:
    """Return the kind of an experiment's main table: time averages if there is a constraint."""
    is_violation = bool(rows) and {"violation_mean", "round"} <= rows[0].keys()
    return "violation" if is_violation else "table"


def _is_of(row: Row, name: str, variable: str) -> bool:
    if "variable" in row:
        return row["variable"] == variable
    return row["experiment"] == name or row["experiment"].startswith(f"{name}-")


def committed_pictures(name: str, docs: Path) -> list[tuple[Picture, Path]]:
    """Return the pictures of an experiment that the documentation has, with their files.

    Panels whose curves have not been committed are shown in a single picture.

    Args:
        name: The name of the experiment.
        docs: The folder of the documentation.
    """
    evidence = read_evidence(name, docs)
    found = [(each, docs / IMAGES / f"{each.name}.svg") for each in pictures_of(name, evidence)]
    found = [(each, path) for each, path in found if path.exists()]
    shown = {panel for picture, _ in found for panel in picture.panels}
    whole = docs / "images" / f"{name}.png"
    others = [p["name"] for p in evidence.panels(("*",)) if p["name"] not in shown]
    if others and whole.exists():
        alt = f"All panels of {name} in one picture; the numbers are in the tables."
        found.append((Picture(name, tuple(others), name, alt, _not_drawn), whole))
    return found


def redraw(docs: Path) -> list[Path]:
    """Redraw all pictures from committed tables, and remove pictures without a table.

    Args:
        docs: The folder of the documentation.

    Returns:
        The files.
    """
    files = []
    for name in EXPERIMENTS:
        for picture in pictures_of(name, read_evidence(name, docs)):
            files.append(docs / IMAGES / f"{picture.name}.svg")
            save_picture(picture, files[-1])
    for path in set((docs / IMAGES).glob("*.svg")) - set(files):
        path.unlink()
    return files


def _not_drawn(ax: Any) -> None:
    raise NotImplementedError("there are no curves to draw it from")


def read_factors(docs: Path) -> list[Row]:
    """Return the committed rows on the effects of changing one setting, for all papers.

    Args:
        docs: The folder of the documentation.
    """
    paths = sorted((docs / RESULTS).glob("factors-*.csv"))
    return [row for path in paths for row in read_rows(path)]


def commit(name: str, folder: Path, docs: Path) -> list[Path]:
    """Copy what an experiment has written into the documentation.

    For experiments that change one setting at a time, only the table of these changes is copied.

    Args:
        name: The name of the experiment.
        folder: What :func:`~papers.running.run_experiment` wrote.
        docs: The folder of the documentation.

    Returns:
        The files that were written.
    """
    written = read_written(folder)
    if name.endswith(FACTORS):
        path = docs / RESULTS / f"factors-{name.removesuffix(FACTORS)}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_csv(path, [dict(row) for row in written.tables["factors"]])
        return [path]
    files = []
    for kind, rows in written.tables.items():
        if not rows or (kind == "table" and "violation" in written.tables):
            continue
        path = _place(name, kind, rows, docs)
        shared, variables = SHARED.get(kind, ("", {}))
        if name in variables:
            path = docs / RESULTS / f"{shared}.csv"
            known = read_rows(path)
            mine = [_is_of(row, name, variables[name]) for row in known]
            place = mine.index(True) if any(mine) else len(known)
            others = [row for row, is_mine in zip(known, mine, strict=True) if not is_mine]
            rows = [*others[:place], *rows, *others[place:]]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_csv(path, [dict(row) for row in rows])
        files.append(path)
    for source in sorted((folder / DRAWN).glob("*.svg")):
        path = docs / IMAGES / source.name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, path)
        files.append(path)
    settings = read_settings(folder)
    settings.pop("seconds_of_this_start", None)
    path = docs / SETTINGS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(settings, indent=1) + "\n")
    return [*files, path]


def _place(name: str, kind: str, rows: Sequence[Row], docs: Path) -> Path:
    if kind == CURVES_TABLE:
        return docs / CURVES / f"{name}.csv"
    if kind == BOXES_TABLE:
        return docs / CURVES / f"{name}-{kind}.csv"
    is_first = kind in ("table", "violation")
    return docs / RESULTS / (f"{name}.csv" if is_first else f"{name}-{kind}.csv")
