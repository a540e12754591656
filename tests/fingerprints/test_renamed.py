"""A journal that was written under old names opens and continues as it would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    Arms,
    BanditAcquisition,
    BanditGP,
    BanditLoop,
    DifferentSettingsError,
    GPUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
)
from botorch_bandits.cli import main
from botorch_bandits.fingerprints import (
    RENAMED_CLASSES,
    RENAMED_OPTIONS,
    difference,
    fingerprint,
    translate_settings,
)
from botorch_bandits.journal import Journal

pytestmark = pytest.mark.filterwarnings(
    "ignore::botorch_bandits.fingerprints.EnvironmentWarning"  # of another processor
)

# ten rounds each, written before the classes were renamed
JOURNALS = Path(__file__).parent / "journals"
RECORDED: dict[str, type[BanditAcquisition]] = {
    "expected-improvement.journal": LogExpectedImprovement,
    "probability-of-improvement.journal": LogProbabilityOfImprovement,
}
LINES_BEFORE_RECORDS, NUM_ROUNDS = 2, 10


def settings(acquisition: type[BanditAcquisition], margin: float = 0.02) -> dict[str, Any]:
    arms = torch.linspace(0.0, 1.0, 9, dtype=torch.float64).unsqueeze(-1)
    return {
        "domain": Arms(arms),
        "model": BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        "acquisition": acquisition.with_options(incumbent="observed", margin=margin),
        "num_initial": 2,
        "seed": 5,
    }


def copy_of_first_rounds(name: str, num_rounds: int, folder: Path) -> Path:
    lines = (JOURNALS / name).read_bytes().splitlines(keepends=True)
    path = folder / name
    path.write_bytes(b"".join(lines[: LINES_BEFORE_RECORDS + 2 * num_rounds]))
    return path


@pytest.mark.parametrize("name", RECORDED)
def test_an_old_journal_continues_to_the_same_points(name: str, tmp_path: Path) -> None:
    old = Journal.read(JOURNALS / name)
    recorded = [record["x"] for record in old.records() if record["kind"] == "asked"]
    assert len(recorded) == NUM_ROUNDS
    acquisition = RECORDED[name]
    old_name = acquisition.__name__.removeprefix("Log")
    assert f'"botorch_bandits:{old_name}"' in json.dumps(old.header)
    path = copy_of_first_rounds(name, 4, tmp_path)
    with BanditLoop.open(path, **settings(acquisition)) as loop:
        assert loop.history.num_queries == 4
        for _ in range(4, NUM_ROUNDS):
            query = loop.ask()
            loop.tell(query.id, float(torch.sin(6 * query.x).sum()))
        assert [query.x.tolist() for query in loop.history.queries] == recorded


def test_other_settings_of_a_renamed_class_are_still_refused(tmp_path: Path) -> None:
    path = copy_of_first_rounds("expected-improvement.journal", 4, tmp_path)
    with pytest.raises(DifferentSettingsError, match=r"margin: was 0\.02, is 0\.03"):
        BanditLoop.open(path, **settings(LogExpectedImprovement, margin=0.03))
    with pytest.raises(DifferentSettingsError, match="was 'botorch_bandits:LogExpectedImpr"):
        BanditLoop.open(path, **settings(LogProbabilityOfImprovement))


def test_show_prints_present_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(JOURNALS / "expected-improvement.journal")]) == 0
    assert "LogExpectedImprovement(incumbent=observed, margin=0.02)" in capsys.readouterr().out


def test_names_are_translated_wherever_they_stand() -> None:
    old = {
        "acquisition": {
            "class": "botorch_bandits:AcquisitionRecipe",
            "acquisition_class": "botorch_bandits:Old",
            "options": {"size": 1, "kept": [2, "text", {"class": "botorch_bandits:Old"}]},
        },
        "model": {"partial": "botorch_bandits:Old.method", "keywords": {"size": 4}},
        "users": "users_package:Old",
        "domain": {"class": "botorch_bandits:Part", "length": 3},
        "count": 5,
        "constraints": {"surrogate": "relabelled", "penalty": {"kind": "relabelled"}},
    }
    before = json.dumps(old)
    new = translate_settings(
        old,
        classes={"Old": "New"},
        options={
            "New": {"size": "length"},
            "Part": {"length": "width"},
            "LoopSettings": {"count": "number"},
        },
    )
    assert json.dumps(old) == before
    assert new == {
        "acquisition": {
            "class": "botorch_bandits:AcquisitionRecipe",
            "acquisition_class": "botorch_bandits:New",
            "options": {"length": 1, "kept": [2, "text", {"class": "botorch_bandits:New"}]},
        },
        "model": {"partial": "botorch_bandits:New.method", "keywords": {"size": 4}},
        "users": "users_package:Old",
        "domain": {"class": "botorch_bandits:Part", "width": 3},
        "number": 5,
        "constraints": {"surrogate": "relabeled", "penalty": {"kind": "relabelled"}},
    }


def test_settings_under_present_names_stay_as_they_are() -> None:
    for acquisition in (LogExpectedImprovement, GPUpperConfidenceBound):
        recipe = acquisition.with_options()
        described = fingerprint({"acquisition": recipe, "seed": 3})
        assert difference(translate_settings(described), described) == []


def test_the_table_leads_from_names_that_are_gone_to_names_that_are_there() -> None:
    import botorch_bandits

    assert not set(RENAMED_CLASSES) & set(RENAMED_CLASSES.values())
    for old, new in RENAMED_CLASSES.items():
        assert not hasattr(botorch_bandits, old)
        assert hasattr(botorch_bandits, new)
    assert all(names for names in RENAMED_OPTIONS.values())
