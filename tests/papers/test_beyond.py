"""What goes beyond the papers, against loops and dense computations; tables played again."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from models.textbook import double

from botorch_bandits import Arms, BanditGP, BanditLoop
from botorch_bandits.random_streams import RandomBlocks
from papers import beyond
from papers.avanesov import kernel, play_changing, tabulate_detections
from papers.runner import build_experiments, run_arms_experiment, tabulate
from papers.shi import tabulate_violation

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("name", [beyond.PLAIN, beyond.ROBUST, beyond.NEVER])
def test_ways_to_follow_changes_are_those_of_the_loop(name: str) -> None:
    panel = next(p for p in beyond.hard(1, 60, num_arms=25) if p.name.endswith("plane"))
    study = panel.make_study(0, 1)
    (method,) = [m for m in panel.make_methods(study) if m.name == name]
    played = play_changing(study, method)
    loop = BanditLoop(
        Arms(study.points),
        BanditGP.with_kernel(kernel(), noise=float(method.lam)),
        method.acquisition,
        restart=method.restart(study.change_points),
        seed=study.seeds[0],
    )
    noise = RandomBlocks(study.seeds, "noise")
    for t in range(1, 61):
        query, values = loop.ask(), study.problems[0].arm_values(t)
        value = float(values[study.arms.index_of(query.x.unsqueeze(0))])
        assert float(values.max()) - value == pytest.approx(float(played["regret"][0, t - 1]))
        loop.tell(query.id, value + study.noise_std * float(noise.at(t)[0]))
    assert [r.after_round for r in loop.resets] == (
        np.flatnonzero(played["resets"][0]) + 1
    ).tolist()


def test_hyperparameters_are_the_most_likely_ones_or_integrated_out() -> None:
    X = double([0.1, 0.35, 0.4, 0.8])
    y = double([[0.3], [1.0], [1.1], [-0.4]])
    points = torch.linspace(0, 1, 7, dtype=torch.float64)
    fits, means, variances, integrated = [], [], [], []
    for length in beyond.FITTED_LENGTHSCALES:
        for ratio in beyond.FITTED_RATIOS:
            matrix = torch.exp(-0.5 * ((X.unsqueeze(-1) - X) / length).square())
            matrix = matrix + ratio * torch.eye(4, dtype=torch.float64)
            cross = torch.exp(-0.5 * ((X.unsqueeze(-1) - points) / length).square())
            weights = torch.linalg.solve(matrix, cross).mT
            scale = float(y.mT @ torch.linalg.solve(matrix, y)) / 4
            fits.append(-2.0 * math.log(scale) - 0.5 * float(matrix.logdet()))
            means.append((weights @ y).squeeze(-1))
            shrunk = 1.0 - (weights * cross.mT).sum(-1)
            variances.append(scale * shrunk)
            integrated.append(2.0 * scale * shrunk)
    best = int(np.argmax(fits))
    mean, variance = beyond.fitted_posterior(X, y, points)
    torch.testing.assert_close(mean, means[best])
    torch.testing.assert_close(variance, variances[best], atol=1e-9, rtol=1e-6)
    share = double(fits).softmax(0).unsqueeze(-1)
    middle = (share * torch.stack(means)).sum(0)
    spread = (share * (torch.stack(integrated) + (torch.stack(means) - middle).square())).sum(0)
    mean, variance = beyond.fitted_posterior(X, y, points, is_integrated=True)
    torch.testing.assert_close(mean, middle, atol=1e-2, rtol=1e-2)  # negligible ones are left out
    torch.testing.assert_close(variance, spread, atol=2e-2, rtol=2e-2)


def test_priced_regret_is_what_the_lagrangian_loses(tmp_path: Path) -> None:
    panel = beyond.multipliers(2, 12, num_points=(9, 3))[0]
    method = panel.make_methods(panel.make_study(0, 1))[-1]
    small = replace(panel, make_methods=lambda study: [method])
    curves = run_arms_experiment(small, tmp_path)
    beyond.report_priced([small], [curves], tmp_path)
    (*_, row) = csv.DictReader((tmp_path / "violation.csv").open())
    grid, price = method.problem, panel.settings["price"]
    lagrangian = grid.values - price * grid.constraint_table[:, 0]
    curve = curves[method.name]
    played = grid.optimal_value - curve.regret - price * curve.others["constraint"]
    assert float(row["priced_mean"]) == pytest.approx(float((lagrangian.max() - played).mean()))
    assert float(played.max()) <= float(lagrangian.max()) + 1e-9


def test_environments_vary_as_they_say() -> None:
    for kind, variation in beyond.VARIATIONS.items():
        problem, norms = beyond.environment(variation, 3)
        (constraint,) = problem.constraints
        assert norms[0] == pytest.approx(1.5)
        assert float(constraint.mean.values.min()) == pytest.approx(-0.5)
        rows = torch.stack([problem.arm_values(t) for t in range(1, 51)])
        moved = (rows - problem.mean.values).abs().amax()
        assert float(moved) <= variation.reward + 1e-9
        within = (rows - rows[0]).abs().amax()
        if kind == "drift":  # the functions of an epoch are near one of them
            assert float(within) <= 2 * variation.within * variation.reward
        if kind == "shocks":  # shared by all arms
            torch.testing.assert_close((rows - rows[0]).std(-1), torch.zeros(50).double())


def test_scenarios_are_played_with_late_outcomes_and_judged_in_their_period() -> None:
    scenario = beyond.draw_scenario(40, 1)
    assert bool((scenario.costs <= 0.0).any(-1).all())
    study = beyond.combined(1, 40)[0].make_study(0, 1)
    told: list[tuple[int, int]] = []

    class Told:
        """The loop of a variant, whose outcomes are counted."""

        def __init__(self, loop: BanditLoop) -> None:
            self.loop, self.history, self.round = loop, loop.history, 0

        def ask(self, context):
            self.round += 1
            return self.loop.ask(context)

        def tell(self, query_id: int, *outcome) -> None:
            told.append((query_id, self.round))
            self.loop.tell(query_id, *outcome)

        def fail(self, query_id: int) -> None:
            self.loop.fail(query_id)

    variant = beyond.variants(40)[0]
    loop = Told(beyond.build_loop(variant, study.seeds[0]))
    scenario = beyond.draw_scenario(40, study.seeds[0])
    arms = beyond.play_scenario(scenario, loop, 40, study.seeds[0], True)
    asked = {query.id: number for number, query in enumerate(loop.history.queries, 1)}
    nowhere = torch.zeros(1, dtype=torch.float64)
    for query_id, after in told:
        delay = beyond.DELAYS.of_query(nowhere, study.seeds[0], asked[query_id])
        assert delay <= 30
        assert after + 1 == asked[query_id] + max(delay, 1)
    played = beyond.play_scenarios(study, variant)
    for t, arm in enumerate(arms):
        z, period = scenario.contexts[t], int(t >= 20)
        rewards, feasible = scenario.rewards[period, z], scenario.costs[z] <= 0.0
        expected = float(rewards[feasible].max() - rewards[arm])
        assert float(played["regret"][0, t]) == pytest.approx(expected)


# experiment, panel, methods whose committed rows are played again with all their trials
ROWS = [
    ("verma-synthetic", "verma-ucb-poisson", ["GP-UCB-SDF", "GP-UCB"]),
    ("verma-synthetic", "verma-ts-fixed", ["GP-TS-SDF"]),
    ("verma-synthetic-given", "verma-ucb-poisson", ["GP-BUCB"]),
    ("shi-gardner", "shi-gardner-epochs", ["S = 35"]),
    ("shi-rates", "shi-rates-noiseless-surrogates", ["Algorithm 2, fresh"]),
    ("beyond-multipliers", "beyond-multipliers-gardner-exact", ["every round, theory"]),
    ("beyond-forgetting", "beyond-forgetting-abrupt", ["never restarts", "window 50"]),
    ("beyond-priors", "beyond-priors-listed", ["oracle, Theorem 1", "survivors"]),
    ("beyond-changes", "beyond-changes-4", ["told of the changes"]),
    (
        "beyond-changes-hard",
        "beyond-changes-hard-fall-2",
        ["told of the changes", "evidence, plain"],
    ),
    ("beyond-fills", "beyond-fills-given", ["soft", "middle"]),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "panel", "methods"), ROWS, ids=["-".join(row[:2]) for row in ROWS]
)
def test_committed_rows_are_played_again(
    name: str, panel: str, methods: list[str], tmp_path: Path
) -> None:
    options = {"given": True} if name.endswith("-given") else {}
    found = build_experiments(name.removesuffix("-given"), **options)
    (whole,) = [p for p in found if p.name == panel]
    study = whole.make_study(0, 1)
    chosen = [m.name for m in whole.make_methods(study) if m.name in methods]
    assert chosen == methods
    experiment = replace(
        whole,
        make_methods=lambda study: [m for m in whole.make_methods(study) if m.name in methods],
    )
    curves = run_arms_experiment(experiment, tmp_path)
    tables = {name: tabulate(experiment, curves)}
    if "stopped" in curves[methods[0]].others:
        tables = {name: tabulate_violation([experiment], [curves])}
    if (RESULTS / f"{name}-detections.csv").exists():
        tables[f"{name}-detections"] = tabulate_detections([experiment], [curves])
    for stem, rows in tables.items():
        known = list(csv.DictReader((RESULTS / f"{stem}.csv").open()))
        for row in rows:
            keys = [key for key in ("experiment", "method", "round") if key in row]
            (expected,) = [k for k in known if all(k[key] == str(row[key]) for key in keys)]
            for column, value in row.items():
                cell = expected.get(column, "")
                if not isinstance(value, float) or not cell or column.startswith("more_than"):
                    continue
                # rounding depends on the processor, so some runs take another path
                error = expected.get(f"{column.removesuffix('mean')}standard_error", "")
                near = 0.5 * float(error) if error else 0.05 * abs(float(cell)) + 1e-3
                assert value == pytest.approx(float(cell), rel=1e-9, abs=near), (stem, column)
