"""Committed tables of results are played again, in part, and agree to the digit.

Three kinds of tests, all ``slow``:

* rows of ``docs/results`` that take seconds are played again with all their trials: of coverage,
  srinivas-synthetic, srinivas-sensors, srinivas-traffic, chowdhury-functions, chowdhury-sensors,
  verma-synthetic, avanesov-horizon (with avanesov-detections), avanesov-compare and
  beyond-forgetting (with their differences), shi-gardner, shi-rates, beyond-multipliers,
  beyond-changes, beyond-changes-hard, beyond-calm and beyond-misspecified (with what the detectors
  did), beyond-fills, beyond-combined-power;
* every experiment is played with few trials and rounds, and whatever tables it writes are those of
  ``data/tables_sample.json``, which was recorded with version 0.1. That holds all methods and
  panels, also where the committed numbers take longer (chowdhury-rkhs, verma-tuning,
  verma-contextual, avanesov-constants, avanesov-periods, beyond-combined, ringing, the fitted
  powers and the growth);
* ``verdicts.csv`` follows from the committed tables wherever these have what the verdict needs.

Not played again: ``benchmarks.csv`` and ``faults.csv``, which depend on the machine, and
``compatibility_models.md``, which has a test of its own.

Data files are not part of this project: tests that need them look in the folder that the
environment variable ``BANDITS_DATA`` names, and are skipped without it. To record the sample anew::

    BANDITS_DATA=FOLDER PYTHONPATH=tutorials OMP_NUM_THREADS=1 \\
        python tests/test_tables_replayed.py
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from papers.avanesov import tabulate_detections
from papers.beyond_combined import detection_power
from papers.registry import EXPERIMENTS, TABLES, build_experiments
from papers.reproduction.committed import read_evidence
from papers.reproduction.figures import FIGURES
from papers.reproduction.judging import MissingRowsError
from papers.results import tabulate
from papers.running import run_experiment, tabulate_differences
from papers.shi import tabulate_violation
from papers.trials import ArmsExperiment, run_arms_experiment

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SAMPLE = Path(__file__).parent / "data" / "tables_sample.json"
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

DATA = {
    "srinivas-sensors": ["intel_lab_temperature_46x7d.npz"],
    "srinivas-traffic": ["pems_bay_monday_1730_speeds.csv"],
    "srinivas-factors": ["intel_lab_temperature_46x7d.npz"],
    "chowdhury-sensors": ["intel_lab_temperature_46x7d.npz", "cmu_light_sensors.npz"],
    "chowdhury-factors": ["intel_lab_temperature_46x7d.npz", "cmu_light_sensors.npz"],
    "verma-tuning": ["pima_diabetes.csv"],
    "verma-contextual": ["tst_svm_meta.npz", "pima_diabetes.csv"],
    "verma-factors": ["pima_diabetes.csv", "tst_svm_meta.npz"],
}
"""Files by the name of the experiment, in its order."""

# experiment, panel, methods that are played again; their differences too, if there are two
ROWS = [
    ("coverage", "coverage-rkhs", ["AMM", "IGP-UCB, any lam", "GP-TS, lam = 1 + 2/T"]),
    ("coverage", "coverage-gp", ["GP-UCB Theorem 1", "GP-UCB Theorem 1, beta / 5"]),
    ("coverage", "coverage-gp-random", ["IRGP-UCB", "Thompson sampling"]),
    ("coverage", "coverage-rkhs-matern", ["IGP-UCB printed, lam = R^2", "fixed width 2"]),
    ("coverage", "coverage-rkhs-noise", ["DMM"]),
    (
        "coverage",
        "coverage-rkhs-overstated",
        ["GP-UCB Theorem 3, bounded noise", "IGP-UCB, lam = 1 + 2/T"],
    ),
    ("srinivas-synthetic", "srinivas-synthetic", ["GP-UCB (beta / 5)"]),
    ("srinivas-sensors", "srinivas-sensors", ["GP-UCB (beta / 5)", "EI", "MPI", "mean only"]),
    ("srinivas-traffic", "srinivas-traffic", ["GP-UCB (beta / 5)"]),
    ("chowdhury-functions", "chowdhury-rosenbrock", ["IGP-UCB"]),
    ("chowdhury-functions", "chowdhury-hartmann3", ["GP-EI"]),
    (
        "chowdhury-sensors",
        "chowdhury-temperature",
        ["GP-UCB (Theorem 3)", "IGP-UCB", "GP-TS", "GP-EI", "GP-PI"],
    ),
    ("chowdhury-sensors", "chowdhury-light", ["IGP-UCB", "GP-TS"]),
    ("verma-synthetic", "verma-ucb-poisson", ["GP-UCB-SDF", "GP-UCB"]),
    ("verma-synthetic", "verma-ts-fixed", ["GP-TS-SDF"]),
    ("avanesov-horizon", "avanesov-horizon-900", ["GP-UCB-CPD"]),
    ("avanesov-compare", "avanesov-compare", ["GP-UCB-Oracle", "GP-UCB"]),
    (
        "beyond-forgetting",
        "beyond-forgetting-abrupt",
        ["never restarts", "restart, published threshold"],
    ),
    ("beyond-priors", "beyond-priors-listed", ["oracle, Theorem 1", "survivors"]),
    ("beyond-changes", "beyond-changes-4", ["told of the changes"]),
    (
        "beyond-changes-hard",
        "beyond-changes-hard-fall-2",
        ["told of the changes", "evidence, plain"],
    ),
    ("beyond-calm", "beyond-calm", ["never restarts"]),
    ("beyond-fills", "beyond-fills-given", ["soft", "middle"]),
    ("beyond-misspecified", "beyond-misspecified-t-3", ["evidence, robust"]),
    ("shi-gardner", "shi-gardner-epochs", ["S = 35"]),
    ("shi-rates", "shi-rates-noiseless-surrogates", ["Algorithm 2, fresh"]),
    ("beyond-multipliers", "beyond-multipliers-gardner-exact", ["every round, theory"]),
]

# trials and rounds of the sample
SIZES: dict[str, tuple[int, int | None]] = {
    "coverage": (2, 12),
    "srinivas-synthetic": (2, 25),
    "srinivas-sensors": (3, 12),
    "srinivas-traffic": (2, 15),
    "srinivas-factors": (2, 6),
    "chowdhury-rkhs": (2, 40),
    "chowdhury-functions": (2, 25),
    "chowdhury-sensors": (2, 20),
    "chowdhury-factors": (2, 6),
    "verma-synthetic": (2, 25),
    "verma-tuning": (1, 6),
    "verma-contextual": (1, 30),
    "verma-factors": (1, 6),
    "avanesov-horizon": (2, 240),
    "avanesov-periods": (2, 240),
    "avanesov-compare": (2, 240),
    "avanesov-constants": (2, 120),
    "avanesov-factors": (2, 120),
    "avanesov-calibration": (20, None),
    "shi-gardner": (2, 30),
    "shi-rates": (2, 30),
    "shi-factors": (1, 25),
    "shi-varying": (1, 60),
    "beyond-multipliers": (2, 16),
    "beyond-forgetting": (2, 60),
    "beyond-priors": (2, 12),
    "beyond-priors-sampled": (2, 3),  # before the first chain, which needs JAX
    "beyond-changes": (2, 60),
    "beyond-changes-hard": (2, 60),
    "beyond-calm": (2, 60),
    "beyond-misspecified": (2, 60),
    "beyond-fills": (1, 15),
    "beyond-combined": (2, 40),
    "beyond-varying": (1, None),
    "ringing": (1, None),
    "identification": (1, None),
}

SEARCHED = ("beyond-priors-box", "verma-tuning-svm")
DRAWN = ("curves", "boxes")
"""Tables that figures are drawn from; what they summarize is in the others at the last round."""

EXACT = 2e-9
BY_SEARCH = 1e-3
"""Where a search ends on a box depends on the last digits of the processor's arithmetic; one round
builds on another, and the sample was recorded with one processor."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    number = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(number)


def files_of(name: str) -> list[Path]:
    """Return the data files of an experiment; the test is skipped if they are not there."""
    folder = os.environ.get("BANDITS_DATA")
    wanted = [Path(folder or "") / file for file in DATA.get(name, ())]
    if wanted and (folder is None or not all(path.is_file() for path in wanted)):
        pytest.skip("BANDITS_DATA names no folder with the data")
    return wanted


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def assert_same(cell: Any, committed: str, where: str, rel: float = EXACT) -> None:
    """Hold a value against a cell, in which it has ten digits."""
    if isinstance(cell, str):
        try:
            number = float(cell)
        except ValueError:
            assert cell == committed, where
            return
    else:
        number = float(cell)
    assert number == pytest.approx(float(committed), rel=rel, abs=5e-4 * rel), where


def committed_rows(stem: str, keys: dict[str, Any]) -> list[dict[str, str]]:
    """Return the rows of a committed table that have these entries."""
    return [
        row
        for row in read(RESULTS / f"{stem}.csv")
        if all(row[key] == str(value) for key, value in keys.items())
    ]


def compare(stem: str, found: list[dict[str, Any]], keys: tuple[str, ...]) -> int:
    """Hold rows against those of a committed table; return how many."""
    for row in found:
        known = committed_rows(stem, {key: row[key] for key in keys})
        assert len(known) == 1, (stem, row)
        for column in row.keys() & known[0].keys():
            where = f"{stem}, {column} of {[row[key] for key in keys]}"
            assert_same(row[column], known[0][column], where)
    return len(found)


def panel_of(name: str, panel: str, methods: list[str]) -> ArmsExperiment:
    """Return a panel that plays some of its methods only."""
    (whole,) = [p for p in build_experiments(name, files_of(name)) if p.name == panel]
    known = [method.name for method in whole.make_methods(whole.make_study(0, 1))]
    assert set(methods) <= set(known), known
    return replace(
        whole,
        make_methods=lambda study: [m for m in whole.make_methods(study) if m.name in methods],
    )


@pytest.mark.parametrize(("name", "panel", "methods"), ROWS, ids=[row[1] for row in ROWS])
def test_rows_of_committed_tables_are_played_again(
    name: str, panel: str, methods: list[str], tmp_path: Path
) -> None:
    experiment = panel_of(name, panel, methods)
    curves = run_arms_experiment(experiment, tmp_path, progress=False)
    if "constraint" in curves[methods[0]].others:
        rows = tabulate_violation([experiment], [curves])
        assert compare(name, rows, ("experiment", "method", "round")) == 2 * len(methods)
    else:
        rows = tabulate(experiment, curves)
        keys = ("experiment", "method")
        stem = next(
            stem
            for stem in (name, *sorted(path.stem for path in RESULTS.glob(f"{name}*.csv")))
            if committed_rows(stem, {key: rows[0][key] for key in keys})
        )
        assert compare(stem, rows, keys) == len(methods)
    if (RESULTS / f"{name}-differences.csv").exists() and len(methods) > 1:
        keys = ("experiment", "quantity", "method", "less")
        assert compare(f"{name}-differences", tabulate_differences(experiment, curves), keys)
    detections = "avanesov-detections" if name == "avanesov-horizon" else f"{name}-detections"
    if (RESULTS / f"{detections}.csv").exists():
        rows = tabulate_detections([experiment], [curves])
        assert compare(detections, rows, ("experiment", "method")) == len(rows)


def test_the_power_of_the_detector_is_measured_again() -> None:
    found = detection_power(300)
    for row, known in zip(found, read(RESULTS / "beyond-combined-power.csv"), strict=True):
        for column, cell in known.items():
            assert_same(row[column], cell, f"beyond-combined-power, {column}")


# --- a sample of every experiment -----------------------------------------------------------------


def tables_of(name: str) -> dict[str, list[str]]:
    """Play an experiment with few trials and rounds; return the lines of all tables it writes."""
    trials, rounds = SIZES[name]
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path = Path(folder)
        run_experiment(name, path, files_of(name), trials, rounds, progress=False)
        if name.endswith("-factors"):  # its table of factors has the pairs that matter
            (path / "differences.csv").unlink()
        tables = [table for table in sorted(path.glob("*.csv")) if table.stem not in DRAWN]
        return {table.stem: table.read_text(encoding="utf-8").splitlines() for table in tables}


@pytest.mark.parametrize("name", SIZES)
def test_every_experiment_gives_the_tables_of_the_sample(name: str) -> None:
    expected = json.loads(SAMPLE.read_text(encoding="utf-8"))[name]
    found = tables_of(name)
    assert found.keys() == expected.keys()
    for table, lines in expected.items():
        assert len(found[table]) == len(lines), table
        rows = zip(csv.DictReader(found[table]), csv.DictReader(lines), strict=True)
        for ours, theirs in rows:
            assert ours.keys() == theirs.keys()
            rel = BY_SEARCH if theirs.get("experiment", "").startswith(SEARCHED) else EXACT
            for column, cell in theirs.items():
                assert_same(ours[column], cell, f"{table} of {name}, {column} of {theirs}", rel)


def test_the_sample_has_every_experiment() -> None:
    assert set(SIZES) == {*EXPERIMENTS, *TABLES}
    assert set(json.loads(SAMPLE.read_text(encoding="utf-8"))) == set(SIZES)


# --- verdicts -------------------------------------------------------------------------------------


def test_verdicts_follow_from_the_committed_tables() -> None:
    known = read(RESULTS / "verdicts.csv")
    num_judged = 0
    for figure in FIGURES:
        if figure.judge is None:
            continue
        try:
            checks = figure.judge(read_evidence(figure.experiment, RESULTS.parent))
        except (MissingRowsError, KeyError):
            continue  # it needs rows that are not committed
        for check in checks:
            rows = [row for row in known if row["published"] == check.claim]
            ours = [row for row in rows if row["ours"] == check.ours]
            assert ours, (check, rows)
            assert {row["holds"] for row in ours} == {"yes" if check.holds else "no"}
            num_judged += 1
    assert num_judged >= 40, num_judged


def record() -> None:
    """Write the sample."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(SIZES)
    sample = json.loads(SAMPLE.read_text(encoding="utf-8")) if SAMPLE.exists() else {}
    for name in names:
        sample[name] = tables_of(name)
        print(name, {table: len(lines) for table, lines in sample[name].items()}, flush=True)
        SAMPLE.parent.mkdir(exist_ok=True)
        known = {each: sample[each] for each in SIZES if each in sample}
        SAMPLE.write_text(json.dumps(known, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    record()
