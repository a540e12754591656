"""Loops continue from journals of version 0.1 to the suggestions that that version made.

Those with a model that learns its hyperparameters continue with what this version learns, those
with exact draws of a model of BoTorch with the draws of this version. With another version of
torch, searches in boxes start elsewhere: these continue to the points that are found there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from botorch_bandits.fingerprints import environment
from botorch_bandits.journal import Journal

from . import journal_settings as cases

FOLDER = Path(__file__).parent / "journals_0_1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
pytestmark = [
    pytest.mark.usefixtures("quick_disk"),
    pytest.mark.filterwarnings("ignore"),  # of another environment, late outcomes, lowered minima
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


def copy_of(name: str, folder: Path) -> Path:
    path = FOLDER / cases.file_name(name)
    for part in (path, path.with_name(path.name + ".snapshot")):
        if part.exists():
            shutil.copy(part, folder)
    return folder / path.name


def tolerance(path: Path) -> float:
    """Return how far points in a box may be off: on other processors optimizers end elsewhere."""
    known, here = Journal.read(path).header["environment"], environment()
    own = "botorch_bandits"  # the version under test
    recorded = {name: here.get(name) for name in known}  # others were added later
    return 1e-9 if {**known, own: ""} == {**recorded, own: ""} else 1e-3


LEARNED = {"box, fitted"}
"""These play the fitted model, whose kernel and priors were chosen anew since: they go on with
those of this version, to points of their own."""

DRAWN = {
    "arms, primal dual, ts",
    "arms, lagrangian ts",
    "box, ts, discretized",
    "arms, censored acquisition, ts",
}
"""Their draws came from eigenvectors and come from a Cholesky factor now: others, as likely."""


DRAWN_BY_TORCH = {"arms, randomized"}
"""Their draws from torch's generator are others in another version of torch."""


def has_other_torch(path: Path) -> bool:
    """Tell whether starts of searches and some draws are others than when it was recorded."""
    known, here = Journal.read(path).header["environment"]["torch"], environment()["torch"]
    return bool(known.partition("+")[0] != here.partition("+")[0])


def assert_agree(
    found: list[dict[str, Any]], expected: list[dict[str, Any]], off: float, is_exact: bool
) -> None:
    assert [each["origin"] for each in found] == [each["origin"] for each in expected]
    assert [set(each) for each in found] == [set(each) for each in expected]
    for ours, theirs in zip(found, expected, strict=True):
        x, known = ([float.fromhex(value) for value in each["x"]] for each in (ours, theirs))
        assert x == known if is_exact else x == pytest.approx(known, rel=0.0, abs=off)
        widths = ours.get("width"), theirs.get("width")
        if None in widths:
            assert widths == (None, None)
        else:
            ours_width, known_width = (float.fromhex(width) for width in widths)
            assert ours_width == pytest.approx(known_width, rel=off)


@pytest.mark.parametrize(
    "name",
    [name for name in EXPECTED if name in cases.settings()],
)
def test_an_old_journal_continues_to_the_same_suggestions(name: str, tmp_path: Path) -> None:
    path, expected = copy_of(name, tmp_path), EXPECTED[name]
    off = tolerance(path)
    with cases.build(name, path) as loop:
        assert cases.num_steps(loop.history) == cases.length(name)
        found = cases.go_on(loop)
    is_by_torch = name.startswith("box") or name in DRAWN_BY_TORCH
    if name in LEARNED | DRAWN or (is_by_torch and has_other_torch(path)):
        old_origins = [s["origin"] for s in expected["suggestions"]]
        (tmp_path / "again").mkdir()
        with cases.build(name, copy_of(name, tmp_path / "again")) as again:
            expected = cases.go_on(again)
        assert [s["origin"] for s in expected["suggestions"]] == old_origins
    assert_agree(found["suggestions"], expected["suggestions"], off, name.startswith("arms"))
    assert found["resets"] == expected["resets"]
    assert (found["multipliers"] is None) == (expected["multipliers"] is None)
    ours, theirs = (
        [float.fromhex(value) for value in each["multipliers"] or ()] for each in (found, expected)
    )
    assert ours == pytest.approx(theirs, rel=off, abs=off)


def test_the_journals_have_what_they_are_there_for() -> None:
    """Resets, multipliers that moved, snapshots, late outcomes, failures and attached points."""
    assert set(EXPECTED) >= set(cases.settings())
    restarts = [name for name in cases.settings() if "restart" in cases.settings()[name]]
    assert [name for name in restarts if not EXPECTED[name]["resets"]] == ["arms, never"]
    ruled = [name for name in cases.settings() if "constraints" in cases.settings()[name]]
    for name in ruled:
        assert any(
            float.fromhex(value) not in (0.0, 1.0) for value in EXPECTED[name]["multipliers"]
        )
    for name in cases.settings():
        path = FOLDER / cases.file_name(name)
        has_snapshot = path.with_name(path.name + ".snapshot").exists()
        assert has_snapshot == ("snapshots" in cases.settings()[name])
    kinds = {
        record["kind"]
        for name in cases.settings()
        for record in Journal.read(FOLDER / cases.file_name(name)).records()
    }
    assert kinds == {"asked", "told", "failed", "attached", "given"}
