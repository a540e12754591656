"""Experiments run by name, continue where they stopped, and tabulate their trials."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from papers.runner import build_experiments, experiments, main, run_arms_experiment, tabulate

# one experiment a paper; the others are played at night
QUICK = (
    "srinivas-synthetic",
    "chowdhury-rkhs",
    "verma-synthetic",
    "avanesov-compare",
    "shi-gardner",
)
# nine periods need more rounds
ROUNDS = {"avanesov-horizon": 12, "avanesov-periods": 12, "avanesov-compare": 12}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, list[Path]]:
    """Sensor files of the expected layout, small enough for a test."""
    random = np.random.default_rng(0)
    common = random.normal(size=(1008, 1))
    np.savez(
        tmp_path / "temperature.npz",
        temperature=20 + common + 0.5 * random.normal(size=(1008, 6)),
    )
    np.savez(
        tmp_path / "light.npz",
        train_raw=random.integers(0, 500, (60, 5)),
        test_raw=random.integers(0, 500, (9, 5)),
    )
    lines = ["time,s1,s2,s3,s4"]
    lines += [f"{i}," + ",".join(f"{v:.3f}" for v in 60 + random.normal(size=4)) for i in range(12)]
    (tmp_path / "speeds.csv").write_text("\n".join(lines) + "\n")
    np.savez(
        tmp_path / "tasks.npz",
        accuracy=random.random((3, 5)),
        hyperparameters=random.random((5, 2)),
        context=random.random((3, 2)),
    )
    return {
        "srinivas-sensors": [tmp_path / "temperature.npz"],
        "srinivas-traffic": [tmp_path / "speeds.csv"],
        "chowdhury-sensors": [tmp_path / "temperature.npz", tmp_path / "light.npz"],
        "verma-contextual": [tmp_path / "tasks.npz"],
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow])
        for name in experiments()
    ],
)
def test_every_experiment_runs_by_name_and_continues(
    name: str, files: dict[str, list[Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = str(ROUNDS.get(name, 4))
    out = tmp_path / "out"
    arguments = [name, "--trials", "2", "--rounds", rounds, "--quiet", "--out", str(out)]
    if name in files:
        arguments += ["--data", *map(str, files[name])]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    with (out / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    for row in rows:
        assert row["trials"] == "2"
        assert row["method"] in output
    assert (out / "figure.svg").stat().st_size > 5_000
    stamps = {path: path.stat().st_mtime_ns for path in (out / "trials").iterdir()}
    assert main(arguments) == 0
    assert capsys.readouterr().out == output
    assert stamps == {path: path.stat().st_mtime_ns for path in (out / "trials").iterdir()}


def test_interrupted_experiment_continues(tmp_path: Path) -> None:
    (experiment,) = build_experiments("srinivas-synthetic", num_trials=7, num_rounds=2)
    whole = run_arms_experiment(experiment, tmp_path / "whole")
    run_arms_experiment(experiment, tmp_path / "part")
    pieces = sorted((tmp_path / "part" / "trials").iterdir())
    for path in pieces[::2]:
        path.unlink()
    pieces[1].write_bytes(pieces[1].read_bytes()[:40])  # cut off
    again = run_arms_experiment(experiment, tmp_path / "part")
    for name, curve in whole.items():
        assert curve.regret.shape == (7, 2)
        assert torch.equal(curve.regret, again[name].regret)


def test_other_settings_do_not_reuse_trials(tmp_path: Path) -> None:
    regrets = []
    for options in ({}, {"seed": 1}, {"margin": 0.0}):
        (experiment,) = build_experiments(
            "srinivas-synthetic", num_trials=1, num_rounds=8, **options
        )
        regrets.append(run_arms_experiment(experiment, tmp_path)["MPI"].regret)
    assert not torch.equal(regrets[0], regrets[1])
    assert not torch.equal(regrets[0], regrets[2])


def test_table_has_means_errors_and_paired_differences(tmp_path: Path) -> None:
    (experiment,) = build_experiments("srinivas-synthetic", num_trials=4, num_rounds=5)
    curves = run_arms_experiment(experiment, tmp_path)
    first = curves["GP-UCB (beta / 5)"].regret.mean(-1).numpy()
    for row in tabulate(experiment, curves):
        values = curves[row["method"]].regret.mean(-1).numpy()
        assert row["mean"] == pytest.approx(values.mean())
        assert row["standard_error"] == pytest.approx(values.std(ddof=1) / 2)
        assert row["more_than_first"] == pytest.approx((values - first).mean())
        error = (values - first).std(ddof=1) / 2
        assert row["more_than_first_standard_error"] == pytest.approx(error)


def test_guarantees_hold_and_cost_what_they_cost(tmp_path: Path) -> None:
    """A tenth of the committed study: coverage within binomial error, and the order of regrets."""
    known_norm, process, *_ = build_experiments("coverage", num_trials=20, num_rounds=40)
    rows = {
        row["method"]: row
        for experiment in (known_norm, process)
        for row in tabulate(experiment, run_arms_experiment(experiment, tmp_path))
    }
    # 0.95 claimed; 16 of 20 is the 0.1% quantile of Binomial(20, 0.95)
    for name in ("DMM", "AMM", "IGP-UCB, any lam", "IGP-UCB, lam = 1 + 2/T", "GP-UCB Theorem 1"):
        assert rows[name]["covered"] >= 16 / 20, name
    assert rows["DMM"]["mean"] < rows["AMM"]["mean"] < rows["IGP-UCB, lam = 1 + 2/T"]["mean"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["fly"], "invalid choice"),
        (["srinivas-sensors"], "--data with temperatures"),
        (["srinivas-synthetic", "--data", "x.csv"], "--data with no files"),
        (["srinivas-sensors", "--data", "missing.npz"], "missing.npz"),
        (["coverage", "--trials", "0"], "--trials is 0"),
        (["coverage", "--set", "ridge=1.0"], "ridge is 1.0"),
        (["avanesov-periods", "--rounds", "5", "--trials", "1"], "num_rounds is 5"),
        (["identification", "--rounds", "5"], "identification takes --trials and --seed"),
    ],
)
def test_bad_arguments_are_explained(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert expected in capsys.readouterr().err
