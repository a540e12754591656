"""The experiments with long-term constraints."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from botorch_bandits import Arms, BanditLoop, LagrangianUpperConfidenceBound
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
from botorch_bandits.penalties import Polynomial
from botorch_bandits.problems import GardnerProblem
from papers import EXPERIMENTS, build_experiments
from papers.commands import main
from papers.constrained_study import PlayedLoop, SeparateArms, play_constrained
from papers.environments import RatesProblem
from papers.shi import Constants, Setting, averages, fit_growth, gardner, tabulate_growth
from papers.trials import ArmsExperiment, Curves, run_arms_experiment

NAMES = ("shi-gardner", "shi-rates")
CONSTANTS = Constants(lengthscale=1.5)


SMALL = {"shi-gardner": 9, "shi-rates": 3}
"""Points of the grids, a dimension."""


def panels(name: str, **options: int) -> list[ArmsExperiment]:
    return build_experiments(name, num_points=SMALL[name], **options)


def panel(name: str, **options: int) -> ArmsExperiment:
    experiments = panels("-".join(name.split("-")[:2]), **options)
    return next(e for e in experiments if e.name == name)


@pytest.mark.parametrize(
    "rule",
    [
        MultiplicativeEpochs(1, 4, penalty=Polynomial(1.0, 2), surrogate="separate"),
        AdditiveEpochs(1, 4, step_size=0.7, surrogate="separate"),
        PrimalDual(1, 3.0, 2.0, reward_bound=1.5, constraint_bound=0.8),
    ],
    ids=["multiplicative", "additive", "every round"],
)
def test_separate_models_play_what_the_loop_plays(rule) -> None:
    exact = isinstance(rule, MultiplicativeEpochs)
    problem = GardnerProblem(0.1, None if exact else 0.1).on_grid(9)
    loop = BanditLoop(
        Arms(problem.choices),
        CONSTANTS.model,
        LagrangianUpperConfidenceBound.with_options(**CONSTANTS.widths),
        constraints=rule,
        num_initial=2,
        seed=5,
    )
    ours = SeparateArms(
        problem.choices,
        CONSTANTS.kernel,
        CONSTANTS.lam,
        rule,
        num_initial=2,
        seed=5,
        **CONSTANTS.widths,
    )
    expected = play_constrained(PlayedLoop(loop), problem, 30, seed=3)
    record = play_constrained(ours, problem, 30, seed=3)
    assert torch.equal(record.points, expected.points)
    assert ours.multipliers == pytest.approx(loop.multipliers, rel=1e-9)
    assert len({tuple(x) for x in record.points.tolist()}) > 8
    with pytest.raises(ValueError, match="must be 'separate'"):
        SeparateArms(
            problem.choices, CONSTANTS.kernel, 0.01, AdditiveEpochs(1, 4), **CONSTANTS.widths
        )


@pytest.mark.parametrize(
    "name", ["shi-gardner-noiseless", "shi-gardner-noisy-surrogates", "shi-gardner-noiseless-slow"]
)
def test_chunks_and_interruptions_do_not_change_results(name: str, tmp_path: Path) -> None:
    experiment = panel(name, num_trials=3, num_rounds=5)
    whole = run_arms_experiment(experiment, tmp_path / "whole", progress=False)
    pieces = replace(experiment, chunk=2)
    parts = run_arms_experiment(pieces, tmp_path / "parts", progress=False)
    for path in sorted((tmp_path / "parts" / "trials").iterdir())[::2]:
        path.unlink()
    again = run_arms_experiment(pieces, tmp_path / "parts", progress=False)
    for method, curve in whole.items():
        assert curve.regret.shape == curve.others["constraint"].shape == (3, 5)
        for other in (parts[method], again[method]):
            assert torch.equal(curve.regret, other.regret)
            for key in ("constraint", "stopped", "multiplier"):
                assert torch.equal(
                    curve.others[key].nan_to_num(-1), other.others[key].nan_to_num(-1)
                )


def test_trials_begin_at_other_points_and_regret_is_against_the_grid(tmp_path: Path) -> None:
    experiment = panel("shi-gardner-noiseless", num_trials=4, num_rounds=3)
    curve = run_arms_experiment(experiment, tmp_path, progress=False)["Algorithm 2"]
    assert len(set(curve.regret[:, 0].tolist())) >= 3
    grid, box = GardnerProblem().on_grid(9), GardnerProblem()
    assert experiment.settings is not None
    assert experiment.settings["optimal_value_of_grid"] == grid.optimal_value
    assert GardnerProblem().on_grid(41).optimal_value == pytest.approx(-0.352, abs=5e-4)
    assert box.optimal_value == pytest.approx(-0.253236, abs=1e-6)
    assert box.optimizers[0].tolist() == pytest.approx([4.71239, 1.25324], abs=1e-5)
    # every regret and constraint value is that of one arm
    table = torch.stack([grid.optimal_value - grid.values, grid.constraint_table[:, 0]], -1)
    for regret, constraint in zip(
        curve.regret.flatten(), curve.others["constraint"].flatten(), strict=True
    ):
        assert float((table - torch.stack([regret, constraint])).abs().sum(-1).min()) < 1e-12


@pytest.mark.parametrize(
    ("box", "num_points", "earned"),
    [(GardnerProblem(), 41, "-0.2700"), (RatesProblem(), 7, "3.0236")],
)
def test_what_a_mixture_of_arms_earns_without_violation(box, num_points: int, earned: str) -> None:
    """By duality, the least over prices of the largest priced reward; the page says it."""
    grid = box.on_grid(num_points)
    prices = torch.linspace(0.0, 6.0, 3001, dtype=torch.float64)
    g = grid.constraint_table[:, 0]
    best = min(float((grid.values - price * g).max()) for price in prices)
    assert f"{best:.4f}" == earned
    assert grid.optimal_value < best < box.optimal_value
    page = (Path(__file__).parents[2] / "docs" / "experiments" / "shi-2022.md").read_text(
        encoding="utf-8"
    )
    assert f"{earned} on the" in page
    assert f"{grid.optimal_value - best:.3f}" in page


def test_reuse_learns_what_fresh_epochs_forget() -> None:
    """Three runs of 160 rounds on a coarse grid: by a factor, and by all runs."""
    steps = ((10, 5), (50, 5))
    setting = Setting("x", GardnerProblem(0.1), 25, steps, (7.0, 1.95, 0.05), 160)
    found = {}
    for surrogate in ("relabeled", "fresh"):
        rule = MultiplicativeEpochs(1, 20, surrogate=surrogate)
        method = setting.loop(surrogate, rule)
        found[surrogate] = [
            play_constrained(method.build(seed), method.problem, 160, seed=seed)
            for seed in range(3)
        ]
    for kept, fresh in zip(found["relabeled"], found["fresh"], strict=True):
        violation = kept.average_signed_violation
        assert float(violation[-1]) < 0.5 * float(fresh.average_signed_violation[-1])
        assert float(violation[-1]) < 0.7 * float(violation[79])  # and falling
        assert float(kept.average_regret[-1]) < 0.3
        assert float(fresh.average_regret[-1]) > 0.8


def curves(regret: Tensor, constraint: Tensor, stopped: list[int]) -> Curves:
    others = {
        "constraint": constraint,
        "stopped": torch.tensor(stopped),
        "multiplier": torch.ones(len(regret), dtype=torch.float64),
    }
    return Curves(regret, None, None, others=others)


def test_averages_end_where_a_method_stops() -> None:
    regret = torch.tensor([[1.0, 3.0, 5.0, 7.0], [2.0, 0.0, -2.0, 8.0]], dtype=torch.float64)
    constraint = torch.tensor([[1.0, -3.0, 1.0, 3.0], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    known = averages(curves(regret, constraint, [2, 4]))
    assert known.regret.tolist() == [[1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 0.0, 2.0]]
    assert known.violation[0].tolist() == [1.0, 0.0, 0.0, 0.5]
    assert known.rectified[0].tolist() == pytest.approx([1.0, 0.5, 2 / 3, 5 / 4])
    assert known.at("regret", 1).tolist() == [1.0, 2.0]
    assert known.at("regret", 4).tolist() == [2.0, 2.0]  # the first run ended behind round 2
    assert known.last_round == 4
    assert known.running_mean("regret").tolist() == [1.5, 1.5, 0.0, 2.0]
    most = averages(curves(regret.repeat(2, 1), constraint.repeat(2, 1), [2, 4, 2, 3]))
    assert most.last_round == 3
    assert most.running_mean("regret").tolist() == [1.5, 1.5, 0.0]


def test_a_power_is_found_with_an_interval_that_covers_it() -> None:
    sizes = [350, 700, 1400]
    scale = torch.rand(40, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    exact = scale * torch.tensor(sizes, dtype=torch.float64) ** 0.6
    fit = fit_growth(sizes, exact)
    assert fit is not None
    assert [fit.power, fit.lower, fit.upper] == pytest.approx([0.6] * 3, abs=1e-12)
    covered = 0
    for seed in range(40):
        stream = torch.Generator().manual_seed(seed)
        noise = torch.randn(40, 3, dtype=torch.float64, generator=stream)
        fit = fit_growth(sizes, exact * (1.0 + 0.3 * noise), seed)
        assert fit is not None
        covered += fit.lower <= 0.6 <= fit.upper
    # 38 expected; 32 of 40 is below the 0.1% quantile of Binomial(40, 0.95)
    assert covered >= 32
    assert fit_growth(sizes, exact - exact.mean(0)) is None
    assert fit_growth(sizes, exact * torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)) is None


def test_priced_regret_is_never_negative(tmp_path: Path) -> None:
    experiment = panel("shi-gardner-powers", num_trials=2, num_rounds=10)
    assert experiment.num_rounds == 40
    results = run_arms_experiment(experiment, tmp_path, progress=False)
    rows = {(r["method"], r["quantity"]): r for r in tabulate_growth(experiment, results)}
    box, grid = GardnerProblem(), GardnerProblem().on_grid(9)
    for method in results:
        priced = [rows[method, "priced regret"][f"mean_total_{i}"] for i in (1, 2, 3)]
        assert 0.0 < priced[0] < priced[1] < priced[2]
    curve = results["Algorithm 2"]
    price = 1.0 / math.sqrt(1.0 - 0.95**2)
    assert box.optimal_multiplier == pytest.approx(price)
    largest = (grid.values - price * grid.constraint_table[:, 0]).max()
    values = grid.optimal_value - curve.regret
    hand = (largest - values + price * curve.others["constraint"]).sum(1).mean()
    assert rows["Algorithm 2", "priced regret"]["mean_total_3"] == pytest.approx(float(hand))


@pytest.mark.parametrize("name", NAMES)
def test_the_report_shows_regret_with_its_violation(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments = panels(name, num_trials=2, num_rounds=4)
    results = [run_arms_experiment(e, tmp_path, progress=False) for e in experiments]
    report = EXPERIMENTS[name].report
    assert report is not None
    report(experiments, results, tmp_path)
    output = capsys.readouterr().out
    with (tmp_path / "violation.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {
        (e.name, m): c for e, r in zip(experiments, results, strict=True) for m, c in r.items()
    }
    assert len(rows) == 2 * len(found)
    for row in rows:
        assert f"{row['experiment']}, {row['method']}" in output
        curve = found[row["experiment"], row["method"]]
        if row["method"] == "ADMMBO":
            continue  # it may stop
        t = int(row["round"])
        total = curve.others["constraint"][:, :t].sum(1)
        assert float(row["regret_mean"]) == pytest.approx(float(curve.regret[:, :t].mean()))
        assert float(row["violation_mean"]) == pytest.approx(float(total.clamp_min(0).mean()) / t)
        assert float(row["rectified_mean"]) >= float(row["violation_mean"]) - 1e-12
    with (tmp_path / "boxes.csv").open() as file:
        boxes = list(csv.DictReader(file))
    assert {row["experiment"].rsplit("-", 1)[1] for row in boxes} == {"noiseless", "noisy"}
    for row in boxes:
        curve = found[row["experiment"], row["method"]]
        values = getattr(averages(curve), row["quantity"].split()[-1])[:, int(row["round"]) - 1]
        if row["method"] != "ADMMBO":
            for p, column in ((0, "least"), (0.25, "lower_quartile"), (1, "largest")):
                assert float(row[column]) == pytest.approx(float(values.quantile(p)), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_runs_from_the_command_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["experiment", name, "--trials", "2", "--rounds", "3", "--quiet"]
    arguments += ["--out", str(tmp_path)]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert len(list((tmp_path / "images").iterdir())) >= 16
    stamps = {p: p.stat().st_mtime_ns for p in (tmp_path / "trials").iterdir()}
    assert main(arguments) == 0
    assert capsys.readouterr().out == output
    assert stamps == {p: p.stat().st_mtime_ns for p in (tmp_path / "trials").iterdir()}


def test_panels_say_what_the_paper_states() -> None:
    experiments = gardner(num_trials=1, num_rounds=2)
    assert len({e.name for e in experiments}) == len(experiments)
    stated = [e.published for e in experiments if e.published]
    assert len(stated) == 3
    assert all("Figure" in words for words in stated)
