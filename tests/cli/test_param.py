"""``optimize --param``: named parameters from the command line to every file, and back."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits import Space
from botorch_bandits.cli import main
from botorch_bandits.journal import Journal

MODULE = """
import math

def reward(values):
    assert list(values) == ["C", "depth", "kernel", "data"], values
    assert values["data"] == "digits"
    assert type(values["depth"]) is int
    size = math.log10(values["C"])
    return -(size - 1.0) ** 2 / 4.0 - abs(values["depth"] - 3) - (values["kernel"] is None)
"""
TEXTS = ("C=log:1e-3:1e3", "depth=int:2:4", "kernel=choice:rbf,None", "data=fixed:digits")
PARAM = [word for text in TEXTS for word in ("--param", text)]
COMMAND = ["optimize", "named_rewards:reward", "--quiet", "--seed", "3"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "named_rewards.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("named_rewards", None)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def reward(C: float, depth: int, kernel: str | None, data: str) -> float:
    return -((math.log10(C) - 1.0) ** 2) / 4.0 - abs(depth - 3) - (kernel is None)


def test_every_file_has_names_and_native_values(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, *PARAM, "--rounds", "6", "--out", "out"]) == 0
    rows = rows_of(here / "out" / "history.csv")
    known = json.loads((here / "out" / "history.json").read_text())
    for row, record in zip(rows, known["queries"], strict=True):
        named = record["parameters"]
        assert list(named) == ["C", "depth", "kernel", "data"]
        assert float(row["reward"]) == reward(**named)
        assert float(row["C"]) == named["C"]
        assert row["depth"] == str(named["depth"])
        assert row["kernel"] == (named["kernel"] or "")
        assert "x0" not in row
    result = json.loads((here / "out" / "result.json").read_text())
    best = max(known["queries"], key=lambda record: record["reward"])
    assert result["best_parameters"] == best["parameters"]
    printed = capsys.readouterr().out
    best["parameters"]["C"] = f"{best['parameters']['C']:.6g}"
    for name in ("C", "depth", "data"):
        assert re.search(rf"^  {name} +{best['parameters'][name]}$", printed, re.MULTILINE)


@pytest.mark.usefixtures("here")
def test_a_run_is_continued_in_its_folder_and_refused_with_other_parameters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    straight, parts = (
        [*COMMAND, *PARAM, "--out", name, "--initial", "3"] for name in ("straight", "parts")
    )
    assert main([*straight, "--rounds", "5"]) == 0
    assert main([*parts, "--rounds", "4"]) == 0
    assert main([*parts, "--rounds", "5"]) == 0
    one, other = (
        [[row[name] for name in ("C", "depth", "kernel", "reward")] for row in rows_of(path)]
        for path in (Path("straight/history.csv"), Path("parts/history.csv"))
    )
    assert one == other
    changed = [word.replace("int:2:4", "int:2:5") for word in parts]
    assert main([*changed, "--rounds", "7"]) == 2
    assert "holds a run with param=['C=log:1e-3:1e3', 'depth=int:2:4'" in capsys.readouterr().err


def test_a_journal_is_resumed_and_shown_in_names(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = str(here / "run.journal")
    assert main([*COMMAND, *PARAM, "--rounds", "3", "--out", "out", "--journal", journal]) == 0
    assert main(["resume", "--trust", journal, "--rounds", "4", "--quiet"]) == 0
    reader = Journal.read(journal)
    asked = [record for record in reader.records() if record["kind"] == "asked"]
    space = Space.parse(TEXTS)
    assert [record["parameters"] for record in asked] == [space.decode(r["x"]) for r in asked]
    capsys.readouterr()
    assert main(["show", journal]) == 0
    shown = capsys.readouterr().out
    assert "Space(C=Float(high=1000, log=True, low=0.001), depth=Integer(" in shown
    assert shown.count("Space(") == 1  # what encodes it names it
    for record in asked:
        named = record["parameters"]
        text = f"C={named['C']:.6g}, depth={named['depth']}, kernel={named['kernel']}, data=digits"
        assert f"{text}\n" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "optimize needs --bounds or --param, but neither is given. Give --bounds low:high"),
        ([*PARAM, "--bounds", "0:1"], "optimize needs --bounds or --param, but both are given"),
        ([*PARAM, "--integer", "0"], "--integer is '0', but it goes with --bounds only"),
        (["--param", "C=log:0:1"], "--param: 'C=log:0:1': low is 0.0, but log=True needs"),
        (["--param", "C=0:1"], "--param: 'C=0:1' does not describe a parameter; write NAME=KIND"),
        (["--param", "C=float:0:1", "--param", "C=int:0:1"], "--param: 'C' is described twice"),
        (["--param", "C=fixed:1"], "where nothing varies"),
    ],
)
def test_what_describes_no_parameters_is_refused_before_anything_is_written(
    arguments: list[str], message: str, here: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    assert main([*COMMAND, *arguments, "--out", "out"]) == 2
    assert message in capsys.readouterr().err
    assert not (here / "out").exists()


def test_tune_takes_ranges_of_the_classifier(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["tune", "--dataset", "iris", "--folds", "2", "--quiet", "--rounds", "3"]
    narrowed = [*command, "--param", "C=log:1:2", "--param", "kernel=choice:rbf,poly"]
    assert main([*narrowed, "--out", "out"]) == 0
    rows = rows_of(here / "out" / "history.csv")
    assert [name for name in rows[0] if name in ("C", "gamma", "kernel")] == [
        "C",
        "gamma",
        "kernel",
    ]
    assert all(1.0 <= float(row["C"]) <= 2.0 for row in rows)
    assert {row["kernel"] for row in rows} <= {"rbf", "poly"}
    capsys.readouterr()
    assert main([*command, "--out", "out"]) == 2
    assert "out holds a run with param=['C=log:1:2', " in capsys.readouterr().err
    assert main([*command, "--out", "other", "--param", "D=log:1:2"]) == 2
    assert "--param: parameter 'D' is not an argument of support vector" in capsys.readouterr().err
    assert not (here / "other").exists()
