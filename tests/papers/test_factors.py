"""Tables of one changed factor: rules, settings and the committed rows."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from papers import chowdhury_factors, srinivas_factors
from papers.chowdhury_factors import Sensors
from papers.environments import SensorData
from papers.factors import Claim, Factor, Kind, check_claim, tabulate_factors
from papers.registry import build_experiments
from papers.reproduction.judging import Evidence, ahead, alike, best
from papers.results import tabulate, write_csv
from papers.running import read_rows, tabulate_differences
from papers.trials import Curves

RESULTS = Path(__file__).parents[2] / "docs" / "results"
COLUMNS = ["figure", "factor", "setting", "claim", "ours", "difference", "standard_error"]
COLUMNS += ["holds", "trials", "source"]
METHODS = ("one", "two", "three")


@pytest.fixture(scope="module")
def curves() -> dict[str, Curves]:
    """Regrets of 6 trials and 4 rounds: one is far ahead of two, three is like one."""
    random = torch.Generator().manual_seed(0)
    regret = torch.rand(6, 4, dtype=torch.float64, generator=random)
    rest = torch.rand(2, 6, 4, dtype=torch.float64, generator=random)
    regrets = (regret, 3.0 * regret + 0.1 * rest[0], regret + 0.2 * (rest[1] - 0.5))
    return {name: Curves(r, None, None) for name, r in zip(METHODS, regrets, strict=True)}


@pytest.mark.parametrize("average", [False, True])
def test_claims_are_checked_by_the_rules_of_the_judged_figures(
    curves: dict[str, Curves], average: bool, tmp_path: Path
) -> None:
    (panel,) = build_experiments("srinivas-synthetic", num_trials=6, num_rounds=4)
    panel = replace(panel, name="panel", average=average)
    write_csv(tmp_path / "table.csv", tabulate(panel, curves))
    write_csv(tmp_path / "differences.csv", tabulate_differences(panel, curves))
    evidence = Evidence.of_folder(tmp_path)
    factor = Factor("figure", "as judged", "", "panel", ())
    judged = partial(ahead, evidence, "panel")
    cases = [
        (Claim(Kind.AHEAD, "one", ("two",), "here"), judged("one", "two", where="here")),
        (Claim(Kind.AHEAD, "two", ("one",)), judged("two", "one")),
        (Claim(Kind.AHEAD, "one", ("three",)), judged("one", "three")),
        (Claim(Kind.FAR_AHEAD, "one", ("two",)), judged("one", "two", far=True)),
        (Claim(Kind.FAR_AHEAD, "three", ("two",)), judged("three", "two", far=True)),
        (Claim(Kind.ALIKE, "one", ("three",)), alike(evidence, "panel", "one", "three")),
        (Claim(Kind.ALIKE, "one", ("two",)), alike(evidence, "panel", "one", "two")),
    ]
    for first, *others in (METHODS, METHODS[::-1]):
        claim = Claim(Kind.BEST, first, tuple(others))
        cases.append((claim, best(evidence, "panel", first, others)))
    verdicts = set()
    for claim, check in cases:
        row = check_claim(claim, factor, panel, curves)
        assert (row["claim"], row["ours"]) == (check.claim, check.ours)
        assert row["holds"] == ("yes" if check.holds else "no")
        verdicts.add(row["holds"])
    assert verdicts == {"yes", "no"}


def test_a_factor_may_change_methods_and_rounds(curves: dict[str, Curves]) -> None:
    (panel,) = build_experiments("srinivas-synthetic", num_trials=6, num_rounds=4)
    panel = replace(panel, name="panel", average=False)
    claim, other = Claim(Kind.AHEAD, "one", ("three",)), Claim(Kind.AHEAD, "two", ("three",))
    changed = Factor(
        "figure", "factor", "value", "panel", (claim, other), methods={"one": "two"}, num_rounds=3
    )
    elsewhere = replace(changed, panel="not played")
    (row,) = tabulate_factors([changed, elsewhere], [panel], [curves])  # the other is as judged
    found = curves["three"].regret[:, :3].sum(-1) - curves["two"].regret[:, :3].sum(-1)
    assert row["difference"] == pytest.approx(float(found.mean()), abs=1e-12)
    assert row["standard_error"] == pytest.approx(float(found.std()) / 6**0.5, abs=1e-12)
    assert list(row) == COLUMNS


@pytest.mark.parametrize("kernel", ["covariance", "correlation", "second moments"])
@pytest.mark.parametrize("is_scaled", [True, False])
def test_readings_become_kernel_and_rewards(kernel: str, is_scaled: bool) -> None:
    random = np.random.default_rng(1)
    past, later = 20 + random.normal(size=(9, 4)) * [1, 2, 3, 4], 20 + random.normal(size=(2, 4))
    sensors = Sensors(kernel=kernel, centered=False, ridge=0.2, is_scaled=is_scaled)
    table = SensorData(torch.from_numpy(past), torch.from_numpy(later))
    found, rewards, noise_std = sensors.kernel_and_rewards(table)
    expected, values = {
        "covariance": (np.cov(past.T), later),
        "correlation": (np.corrcoef(past.T), later / past.std(0, ddof=1)),
        "second moments": (past.T @ past / 9, later),
    }[kernel]
    average = np.diag(expected).mean()
    unit = average if is_scaled else 1.0
    expected = (expected + 0.2 * average * np.eye(4)) / unit
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-10)
    np.testing.assert_allclose(rewards.numpy(), values / unit**0.5, rtol=1e-10)
    assert noise_std == pytest.approx((0.05 * average / unit) ** 0.5, rel=1e-10)


def test_scales_and_norms_are_those_of_their_names() -> None:
    random = torch.Generator().manual_seed(2)
    root = torch.randn(5, 5, dtype=torch.float64, generator=random)
    (panel,) = build_experiments("srinivas-synthetic", num_trials=2, num_rounds=6)
    study = replace(
        panel.make_study(0, 2),
        kernel_matrix=root @ root.T + 0.1 * torch.eye(5, dtype=torch.float64),
        values=torch.randn(2, 5, dtype=torch.float64, generator=random),
        noise_std=0.3,
    )
    methods = {m.name: m for m in chowdhury_factors._sensor_methods("", study)}
    known = {name: dict(m.acquisition.options) for name, m in methods.items()}  # type: ignore[union-attr]
    K, f = study.kernel_matrix.numpy(), study.values.numpy()
    norms = {
        "B^2 = f' K f": [(v @ K @ v) ** 0.5 for v in f],
        "B^2 = f' K^-1 f": [(v @ np.linalg.inv(K) @ v) ** 0.5 for v in f],
        "B = largest reward": np.abs(f).max(1),
        "B = 2": [2.0, 2.0],
    }
    for words, expected in norms.items():
        for name in chowdhury_factors.WITH_WIDTH:
            bound = known[f"{name}, {words}"]["rkhs_bound"]
            np.testing.assert_allclose(bound.numpy(), expected, rtol=1e-6)
    lower = [(v @ np.linalg.inv(K + 0.09 * np.eye(5)) @ v) ** 0.5 for v in f]
    np.testing.assert_allclose(known["GP-TS, v = B"]["rkhs_bound"].numpy(), lower, rtol=1e-8)
    assert known["GP-TS, v = B"]["noise_bound"] == known["GP-TS, v without B"]["rkhs_bound"] == 1e-9
    assert known["GP-TS, v = 1"]["width"] == 1.0
    assert methods["GP-PI, lam = 1 + 2/T"].lam == pytest.approx(1.0 + 2.0 / 6)
    assert known["GP-PI, margin 0.1"]["margin"] == 0.1


@pytest.mark.parametrize("paper", ["chowdhury", "srinivas"])
def test_every_row_has_a_panel_and_methods_that_are_played(paper: str, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    np.savez(tmp_path / "temperature.npz", temperature=20 + random.normal(size=(1008, 6)))
    light = {f"{part}_raw": random.integers(0, 500, (9, 5)) for part in ("train", "test")}
    np.savez(tmp_path / "light.npz", **light)
    files = [tmp_path / "temperature.npz", tmp_path / "light.npz"][
        : 2 if paper == "chowdhury" else 1
    ]
    panels = build_experiments(f"{paper}-factors", files, num_trials=1, num_rounds=3)
    known = {panel.name: panel.make_methods(panel.make_study(0, 1)) for panel in panels}
    assert len(known) == len(panels)
    factors = {"chowdhury": chowdhury_factors, "srinivas": srinivas_factors}[paper].FACTORS
    assert {factor.panel for factor in factors} == set(known)
    for factor in factors:
        names = {method.name for method in known[factor.panel]}
        needed = {name for claim in factor.claims for name in (claim.method, *claim.others)}
        assert {factor.methods.get(name, name) for name in needed} <= names, factor
        assert factor.methods.keys() <= needed, factor
    words = [(f.figure, f.factor, f.setting, c) for f in factors for c in f.claims]
    assert len(set(words)) == len(words)


PAPERS = {
    "chowdhury": "Chowdhury and Gopalan 2017",
    "srinivas": "Srinivas, Krause, Kakade and Seeger 2010",
}


@pytest.mark.parametrize("paper", PAPERS)
def test_committed_rows_begin_with_the_judged_settings(paper: str) -> None:
    rows = read_rows(RESULTS / f"factors-{paper}.csv")
    assert list(rows[0]) == COLUMNS
    judged = [row for row in rows if row["factor"] == "as judged"]
    assert {row["figure"] for row in judged} == {row["figure"] for row in rows}
    with (RESULTS / "verdicts.csv").open(encoding="utf-8", newline="") as file:
        known = {
            (f"{paper}-{row['figure'].removeprefix('Figure ')}", row["published"]): row
            for row in csv.DictReader(file)
            if row["paper"] == PAPERS[paper]
        }
    for row in judged:
        verdict = known[row["figure"], row["claim"]]
        assert (row["ours"], row["holds"]) == (verdict["ours"], verdict["holds"])
