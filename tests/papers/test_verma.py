"""The synthetic experiment with delayed feedback, and its tables of one changed factor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from botorch_bandits.evaluation import RunResult
from botorch_bandits.history import History
from papers import build_experiments
from papers.delayed_studies import simple_regret_in_time
from papers.reproduction.figures import FIGURES
from papers.reproduction.judging import Evidence
from papers.results import tabulate
from papers.running import tabulate_differences
from papers.trials import ArmsExperiment, run_arms_experiment
from papers.verma import curve_player, synthetic
from papers.verma_factors import FactorPanel, tabulate_factors


def panel(name: str, **options: int) -> ArmsExperiment:
    return next(e for e in build_experiments("verma-synthetic", **options) if e.name == name)


def test_chunks_and_interruptions_do_not_change_results(tmp_path: Path) -> None:
    size = {"num_trials": 4, "num_rounds": 14}
    for name in ("verma-ucb-limit", "verma-ts-poisson"):
        whole = run_arms_experiment(panel(name, **size), tmp_path / "whole", progress=False)
        curve_player.cache_clear()  # or nothing would be played again
        pieces = replace(panel(name, **size), chunk=3)
        parts = run_arms_experiment(pieces, tmp_path / "parts", progress=False)
        for path in sorted((tmp_path / "parts" / "trials").iterdir())[::2]:
            path.unlink()
        curve_player.cache_clear()
        again = run_arms_experiment(
            replace(panel(name, **size), chunk=3), tmp_path / "parts", progress=False
        )
        for method, curve in whole.items():
            assert curve.simple_regret is not None
            assert curve.simple_regret.shape == curve.regret.shape == (4, 14)
            # the worst before anything arrived, and never worse than before
            assert bool((curve.simple_regret[:, 0] == 1.0).all())
            assert bool((curve.simple_regret.diff(dim=-1) <= 0.0).all())
            for other in (parts[method], again[method]):
                assert other.simple_regret is not None
                assert torch.equal(curve.regret, other.regret)
                assert torch.equal(curve.simple_regret, other.simple_regret)


def test_same_settings_are_the_same_run_in_every_panel(tmp_path: Path) -> None:
    """Mean 10 with m = 20 stands in several panels: functions and delays belong to the trial."""
    names = {
        "verma-ucb-mean": "GP-UCB-SDF, mean 10",
        "verma-ucb-limit": "GP-UCB-SDF, m = 20",
        "verma-ucb-poisson": "GP-UCB-SDF",
        "verma-ucb-poisson-given": "GP-UCB-SDF, learned",
    }
    curves = []
    for p, m in names.items():
        curve_player.cache_clear()
        experiment = panel(p, num_trials=1, num_rounds=12)
        curves.append(run_arms_experiment(experiment, tmp_path, False)[m].regret)
    for other in curves[1:]:
        assert torch.equal(curves[0], other)


def test_censoring_beats_ignoring_and_small_m_is_bad(tmp_path: Path) -> None:
    size = {"num_trials": 6, "num_rounds": 80}
    rows = {}
    for name in ("verma-ucb-poisson-given", "verma-ucb-limit"):
        experiment = panel(name, **size)
        table = tabulate(experiment, run_arms_experiment(experiment, tmp_path, progress=False))
        rows |= {(name, row["method"]): row for row in table}
    censored, ignored = (rows["verma-ucb-poisson-given", m] for m in ("GP-UCB-SDF", "GP-UCB"))
    assert censored["round_80_mean"] < 0.25 * ignored["round_80_mean"]
    small, enough = (rows["verma-ucb-limit", f"GP-UCB-SDF, m = {m}"] for m in (5, 20))
    assert enough["round_80_mean"] < 0.25 * small["round_80_mean"]


def test_simple_regret_counts_what_arrived_in_time() -> None:
    values = torch.tensor([0.5, 0.9, 0.7, 0.1], dtype=torch.float64)
    # round 1 arrives behind round 1 (delay 1), 2 behind round 4 (3), 3 behind round 4 (2), 4 never
    arrivals = torch.tensor([1.0, 4.0, 4.0, torch.inf], dtype=torch.float64)
    result = RunResult(History(1), values, values, 1.0, arrivals)
    assert simple_regret_in_time(result, None).tolist() == pytest.approx([0.5, 0.5, 0.5, 0.1])
    assert simple_regret_in_time(result, 3).tolist() == pytest.approx([0.5, 0.5, 0.5, 0.1])
    assert simple_regret_in_time(result, 2).tolist() == pytest.approx([0.5, 0.5, 0.5, 0.3])
    assert simple_regret_in_time(result, 1).tolist() == pytest.approx([0.5, 0.5, 0.5, 0.5])


def test_titles_say_what_the_paper_states() -> None:
    experiments = synthetic(num_trials=1, num_rounds=2)
    assert len({e.name for e in experiments}) == len(experiments) == 16
    judged = [e for e in experiments if not e.name.endswith(("-given", "-theory"))]
    assert len(judged) == 8
    assert all("Figure" in e.published for e in judged)


def test_factors_begin_with_the_judged_settings_and_judge_alike(tmp_path: Path) -> None:
    size = {"num_trials": 2, "num_rounds": 25}
    panels = [e for e in build_experiments("verma-factors", **size) if "-factors-ucb" in e.name]
    assert all(isinstance(e, FactorPanel) for e in panels)
    curves = [run_arms_experiment(e, tmp_path, progress=False) for e in panels]
    rows = tabulate_factors(panels, curves)
    judged = [panel(f"verma-ucb-{delays}", **size) for delays in ("poisson", "fixed")]
    found = [run_arms_experiment(e, tmp_path, progress=False) for e in judged]
    tables: dict[str, list[dict[str, str]]] = {"table": [], "differences": []}
    for experiment, results in zip(judged, found, strict=True):
        for name, made in (
            ("table", tabulate(experiment, results)),
            ("differences", tabulate_differences(experiment, results)),
        ):
            tables[name] += [{key: str(cell) for key, cell in row.items()} for row in made]
    (figure,) = [each for each in FIGURES if each.name == "verma-1cd"]
    checks = figure.judge(Evidence(tables))
    assert [row["factor"] for row in rows[:5]] == ["none"] * 4 + [rows[4]["factor"]]
    assert rows[4]["factor"] != "none"
    for row, check in zip(rows[:4], checks, strict=True):
        assert row["claim"] == check.claim
        assert row["ours"] == check.ours
        assert row["holds"] == ("yes" if check.holds else "no")
    claims = {check.claim for check in checks}
    assert {row["claim"] for row in rows} == claims


def test_every_changed_setting_belongs_to_a_judged_figure() -> None:
    panels = build_experiments("verma-factors", num_trials=1, num_rounds=2)
    settings = [setting for panel in panels for setting in panel.compared]
    assert {setting.figure for setting in settings} <= {figure.name for figure in FIGURES}
    firsts = {setting.figure: setting.factor for setting in settings[::-1]}
    assert set(firsts.values()) == {"none"}, "each figure begins with the settings as judged"
    for panel in panels:
        methods = [m.name for m in panel.make_methods(panel.make_study(0, 1))]
        assert len(set(methods)) == len(methods)
        compared = panel.compared
        claims = [claim for setting in compared for claim in setting.claims]
        assert {name for c in claims for name in (c.better, c.worse)} <= set(methods)
