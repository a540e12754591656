"""A sample of the committed tables is played again with all trials, and agrees.

The same processor gives the same digits. On another one, a difference in rounding may become a
different query late in a run, which moves a mean by less than a tenth of its standard error.

Data files are not part of this project: rows that need them look in the folder that the environment
variable ``BANDITS_DATA`` names, and are skipped without it. The rows of Verma, of Shi and of what
goes beyond the papers are played again in ``papers/test_beyond.py``.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from papers.avanesov import tabulate_detections
from papers.runner import (
    ArmsExperiment,
    Curves,
    build_experiments,
    run_arms_experiment,
    standard_error,
    tabulate,
)

RESULTS = Path(__file__).parents[1] / "docs" / "results"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SENSORS = ["intel_lab_temperature_46x7d.npz", "cmu_light_sensors.npz"]
DATA = {
    "srinivas-sensors": SENSORS[:1],
    "srinivas-traffic": ["pems_bay_monday_1730_speeds.csv"],
    "chowdhury-sensors": SENSORS,
}
# experiment, panel, methods
ROWS = [
    ("coverage", "coverage-rkhs", ["AMM", "IGP-UCB, any lam", "GP-TS, lam = 1 + 2/T"]),
    ("coverage", "coverage-gp-random", ["IRGP-UCB", "Thompson sampling"]),
    ("coverage", "coverage-rkhs-matern", ["IGP-UCB printed, lam = R^2", "fixed width 2"]),
    ("coverage", "coverage-rkhs-overstated", ["GP-UCB Theorem 3, bounded noise"]),
    ("srinivas-synthetic", "srinivas-synthetic", ["GP-UCB (beta / 5)"]),
    ("srinivas-sensors", "srinivas-sensors", ["GP-UCB (beta / 5)", "EI", "MPI", "mean only"]),
    ("srinivas-traffic", "srinivas-traffic", ["GP-UCB (beta / 5)"]),
    ("chowdhury-functions", "chowdhury-rosenbrock", ["IGP-UCB"]),
    ("chowdhury-functions", "chowdhury-hartmann3", ["GP-EI"]),
    ("chowdhury-sensors", "chowdhury-temperature", ["GP-UCB (Theorem 3)", "GP-TS", "GP-PI"]),
    ("chowdhury-sensors", "chowdhury-light", ["IGP-UCB", "GP-EI"]),
    ("avanesov-horizon", "avanesov-horizon-900", ["GP-UCB-CPD"]),
    ("avanesov-compare", "avanesov-compare", ["GP-UCB-Oracle", "GP-UCB"]),
]
# figure and settings of rows of factors-PAPER.csv, that is what decides the claims
FACTORS = [
    ("srinivas", "srinivas-5a", "margin=0.03", ""),
    ("srinivas", "srinivas-5b", "margin=0.3", ""),
    ("chowdhury", "chowdhury-1", "ei_margin=0.01", "3000"),
    ("chowdhury", "chowdhury-3", "draws=B", "1000"),
    ("chowdhury", "chowdhury-3", "incumbent=observed", "1000"),
    ("chowdhury", "chowdhury-4a", "draws=unit", ""),
    ("chowdhury", "chowdhury-4a", "center=false norm=2", ""),
    ("chowdhury", "chowdhury-4b", "units=data norm=printed", ""),
]


def played(
    name: str, panel: str, methods: Sequence[str], folder: Path, **options: object
) -> tuple[ArmsExperiment, dict[str, Curves]]:
    """Play some methods of a panel; the test is skipped where its data are missing."""
    files = [Path(os.environ.get("BANDITS_DATA", "")) / file for file in DATA.get(name, ())]
    if not all(file.is_file() for file in files):
        pytest.skip("BANDITS_DATA names no folder with the data")
    (whole,) = [p for p in build_experiments(name, files, **options) if p.name == panel]  # type: ignore[arg-type]
    experiment = replace(
        whole,
        make_methods=lambda study: [m for m in whole.make_methods(study) if m.name in methods],
    )
    return experiment, run_arms_experiment(experiment, folder)


def read(stem: str) -> list[dict[str, str]]:
    return list(csv.DictReader((RESULTS / f"{stem}.csv").read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize(("name", "panel", "methods"), ROWS, ids=[row[1] for row in ROWS])
def test_rows_are_played_again(name: str, panel: str, methods: list[str], tmp_path: Path) -> None:
    experiment, curves = played(name, panel, methods, tmp_path)
    assert list(curves) == methods
    tables = {name: tabulate(experiment, curves)}
    if name.startswith("avanesov"):
        tables["avanesov-detections"] = tabulate_detections([experiment], [curves])
    for stem, rows in tables.items():
        known = [row for row in read(stem) if not row.get("set")]
        for row in rows:
            keys = ("experiment", "method")
            (expected,) = [k for k in known if all(k[key] == row[key] for key in keys)]
            # in columns of other numbers, one query decides more than in means
            columns = {"mean", "covered", "missed", "mean_regret", "explored_per_run"} & row.keys()
            # how often the bounds of a draw hold was not recorded
            compared = [column for column in columns if expected[column] != ""]
            assert len(compared) >= 1
            for column in compared:
                near = 0.1 * row.get("standard_error", 0.0)
                cell = float(expected[column])
                assert row[column] == pytest.approx(cell, rel=1e-6, abs=near), column


@pytest.mark.parametrize(("paper", "figure", "options", "rounds"), FACTORS)
def test_what_decides_is_played_again(
    paper: str, figure: str, options: str, rounds: str, tmp_path: Path
) -> None:
    rows = [
        row
        for row in read(f"factors-{paper}")
        if (row["figure"], row["set"], row["rounds"]) == (figure, options, rounds)
    ]
    assert rows
    for row in rows:
        given: dict[str, object] = {"num_trials": int(row["trials"])}
        if rounds:
            given["num_rounds"] = int(rounds)
        for option in options.split():
            name, value = option.split("=")
            is_word = value.isalpha() and value not in ("true", "false")
            given[name] = value if is_word else json.loads(value)
        pair = (row["method"], row["than"])
        experiment, curves = played(row["command"], row["panel"], pair, tmp_path, **given)
        divisor = experiment.num_rounds if experiment.average else 1
        own, other = (curves[name].regret.sum(-1) / divisor for name in pair)
        difference = other - own
        error = standard_error(difference)
        assert float(difference.mean()) == pytest.approx(float(row["difference"]), abs=0.1 * error)
        assert error == pytest.approx(float(row["standard_error"]), rel=0.05)
