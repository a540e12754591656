"""What the command line plays where no method is named, and how a method is named."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from botorch_bandits import (
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
)
from botorch_bandits.cli import main
from botorch_bandits.cli.options import METHODS, build_acquisition
from botorch_bandits.loop.settings import DEFAULT_WIDTH, EARNING_WIDTH, OBJECTIVES

FUNCTION = """
def reward(x):
    return -(float(x[0]) - 0.3) ** 2 - (float(x[1]) - 2.0) ** 2
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "quadratic.py").write_text(FUNCTION)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def optimize(*arguments: str) -> int:
    fixed = ("optimize", "quadratic:reward", "--bounds", "0:1,0:4", "--rounds", "7", "--quiet")
    return main([*fixed, *arguments])


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "history.csv").open() as file:
        return list(csv.DictReader(file))


def settings_and_rows(run: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    known = json.loads((run / "history.json").read_text())
    return known["settings"], rows_of(run)


def test_the_best_point_is_sought_unless_something_else_is_said(folder: Path) -> None:
    assert optimize() == 0
    settings, rows = settings_and_rows(folder / "runs" / "optimize-quadratic-reward-best-0")
    assert settings["method"] == "best"
    assert "objective" not in settings
    assert optimize("--objective", "best", "--out", "named") == 0
    assert optimize("--method", "best", "--out", "method") == 0
    for run in ("named", "method"):
        again, theirs = settings_and_rows(folder / run)
        assert again == settings
        assert [(row["x0"], row["x1"]) for row in theirs] == [(r["x0"], r["x1"]) for r in rows]


def test_reward_on_the_way_has_a_narrow_width(folder: Path) -> None:
    assert optimize("--objective", "earned", "--out", "run") == 0
    settings, rows = settings_and_rows(folder / "run")
    assert settings["method"] == "earned"
    assert [float(row["width"]) for row in rows[5:]] == [EARNING_WIDTH] * 2


def test_a_run_that_goes_on_keeps_its_method_unless_another_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for where in (["--out", "run"], ["--journal", "kept", "--out", "other"]):
        assert optimize("--method", "gp-ucb", "--width", "0.7", *where) == 0
        assert optimize("--width", "0.7", "--rounds", "8", *where) == 0
        rows = rows_of(folder / where[-1])
        assert [float(row["width"]) for row in rows[5:]] == [0.7] * 3
        assert optimize("--objective", "best", *where) == 2
        assert "method" in capsys.readouterr().err


def test_settings_of_methods_are_recorded(folder: Path) -> None:
    assert optimize("--method", "random", "--delta", "0.2", "--out", "run") == 0
    settings, _ = settings_and_rows(folder / "run")
    names = ("rkhs_bound", "noise_bound", "delta", "width")
    assert [settings[name] for name in names] == [None, None, 0.2, 2.0]


@pytest.mark.parametrize("method", ["igp-ucb", "gp-ts"])
def test_a_method_whose_bounds_nobody_gave_says_so(folder: Path, method: str) -> None:
    assert optimize("--method", method, "--out", "run", "--rounds", "7") == 0
    told = json.loads((folder / "run" / "result.json").read_text())["guarantee"]
    assert not told["holds"]
    assert any("given; the default" in gap for gap in told["gaps"])
    assert all(float(row["width"]) < 2.0 for row in rows_of(folder / "run")[5:])
    bounds = ("--rkhs-bound", "1", "--noise-bound", "0.1")
    assert optimize("--method", method, *bounds, "--out", "other", "--rounds", "6") == 0
    told = json.loads((folder / "other" / "result.json").read_text())["guarantee"]
    assert not any("given; the default" in gap for gap in told["gaps"])


def test_methods_are_what_their_names_say() -> None:
    def built(method: str, **given: bool) -> tuple[type, Any]:
        recipe = build_acquisition(method, 1.0, 0.1, 0.1, 3.0, **given)
        return recipe.acquisition_class, recipe.options.get("width")

    assert list(METHODS)[:2] == list(OBJECTIVES)
    assert built("best") == (LogExpectedImprovement, None)
    assert built("earned") == (GPUpperConfidenceBound, EARNING_WIDTH)
    assert built("best", is_censored=True) == (GPUpperConfidenceBound, DEFAULT_WIDTH)
    for objective in OBJECTIVES:
        assert built(objective, weighs_constraints=True)[0] is LagrangianUpperConfidenceBound
    assert built("igp-ucb")[0] is ImprovedUpperConfidenceBound
    assert built("gp-ucb") == (GPUpperConfidenceBound, 3.0)


def test_a_run_with_a_journal_goes_on(folder: Path) -> None:
    assert optimize("--journal", "kept", "--objective", "earned", "--out", "run") == 0
    assert main(["resume", "--trust", "kept", "--rounds", "9", "--quiet"]) == 0
    rows = rows_of(folder / "run")
    assert len(rows) == 9
    assert {float(row["width"]) for row in rows[5:]} == {EARNING_WIDTH}
