"""Changes that are hard to see, runs without any, and models that are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from botorch_bandits import BanditGP, GPUpperConfidenceBound
from botorch_bandits.change_points import EvidenceRestart
from botorch_bandits.random_streams import RandomBlocks
from botorch_bandits.simulation import Policy
from papers import build_experiments
from papers.avanesov import RestartMethod, count_detections, tabulate_detections
from papers.avanesov import kernel as matern
from papers.beyond_changes import ForgettingMethod, play
from papers.beyond_changes_hard import (
    HARD,
    MISSPECIFIED,
    HardStudy,
    bump,
    changed,
    points_of,
    student,
)
from papers.trials import ArmsExperiment, Curves


def panel(end: str, num_rounds: int = 48, **options: int) -> ArmsExperiment:
    name = "beyond-changes-hard" if end in HARD else "beyond-misspecified"
    given = {"num_trials": 3, "num_arms": 16, **options}
    found = build_experiments(name, num_rounds=num_rounds, **given)  # type: ignore[arg-type]
    (wanted,) = [e for e in found if e.name == f"{name}-{end}"]
    return wanted


def study_of(experiment: ArmsExperiment, first: int = 1, count: int = 2) -> HardStudy:
    study = experiment.make_study(first, count)
    assert isinstance(study, HardStudy)
    return study


def test_arms_are_a_line_or_a_square() -> None:
    assert points_of(1, 6).tolist() == [[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]]
    assert points_of(2, 11).tolist() == [[x, y] for x in (0.0, 1.5, 3.0) for y in (0.0, 1.5, 3.0)]


def test_a_bump_is_one_at_its_center_and_vanishes_at_distance_one() -> None:
    x = torch.tensor([[2.0], [2.5], [2.999], [3.0], [4.0], [1.0]], dtype=torch.float64)
    expected = [1.0, 0.5, math.cos(math.pi * 0.4995) ** 2, 0.0, 0.0, 0.0]
    assert bump(x, x[0]).tolist() == pytest.approx(expected, abs=1e-15)


def test_the_peak_falls_by_deviations_of_the_noise() -> None:
    setting, points = HARD["fall-2"], points_of(1, 101)
    values = torch.sin(points.squeeze(-1))
    after = changed(setting, points, values, seed=0)
    peak = int(values.argmax())
    assert float(values[peak] - after[peak]) == pytest.approx(2.0 * 0.3)
    far = (points.squeeze(-1) - points[peak]).abs() >= 1.0
    assert torch.equal(after[far], values[far])
    assert bool((after <= values).all())


def test_a_hidden_peak_rises_away_from_the_old_one() -> None:
    setting, points = HARD["hidden"], points_of(1, 101)
    values = torch.sin(points.squeeze(-1))
    peak, tops = int(values.argmax()), set()
    for seed in range(30):
        after = changed(setting, points, values, seed)
        near = (points.squeeze(-1) - points[peak]).abs() < 0.5
        assert torch.equal(after[near], values[near])
        (rises,) = torch.nonzero(after != values).T
        top = rises[len(rises) // 2] if 0 not in rises and 100 not in rises else after.argmax()
        assert float((points[top] - points[peak]).abs()) >= 1.5 - 0.3
        assert float(after.max()) >= float(values.max()) + 1.0 - 1e-12
        tops.add(int(after.argmax()))
    assert len(tops) > 10


def test_heavy_tails_have_a_student_distribution_of_unit_variance() -> None:
    normal = torch.randn(20000, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn = student(normal)
    one = normal[0].tolist()
    expected = one[0] / math.sqrt((one[1] ** 2 + one[2] ** 2 + one[3] ** 2) / 3.0) / math.sqrt(3.0)
    assert float(drawn[0]) == pytest.approx(expected, rel=1e-12)
    assert stats.kstest(drawn.numpy() * math.sqrt(3.0), stats.t(3).cdf).pvalue > 0.01


@pytest.mark.parametrize("end", ["long", "short", "noise-1.5", "noise-2", "t-3"])
def test_functions_and_noise_are_not_those_of_the_model(end: str) -> None:
    setting = MISSPECIFIED[end]
    study = study_of(panel(end, num_trials=600, num_arms=9), 0, 600)
    drawn = study.periods[:, 0]
    length = {"long": 1.0 / 1.5, "short": 1.5}.get(end, 1.0)
    distance = (study.points - study.points.T).abs() * math.sqrt(5.0) / length
    exact = (1.0 + distance + distance**2 / 3.0) * torch.exp(-distance)
    found = drawn.T @ drawn / len(drawn)
    assert float((found - exact).abs().max()) < 5.0 * math.sqrt(2.0 / len(drawn))
    ratio = {"noise-1.5": 1.5, "noise-2": 2.0}.get(end, 1.0)
    assert study.noise_std == pytest.approx(0.0 if end == "t-3" else 0.05 * ratio)
    assert study.change_points == ()
    shifts = torch.stack([study.rewards.at(t) - study.periods[:, 0] for t in (1, 2, 40)])
    assert float((shifts - shifts[..., :1]).abs().max()) < 1e-12
    scores = (shifts[..., 0] / 0.05 * math.sqrt(3.0)).flatten().numpy()
    if end == "t-3":
        assert stats.kstest(scores, stats.t(3).cdf).pvalue > 0.01
    else:
        assert not scores.any()
    for method in panel(end).make_methods(study):
        assert float(method.lam) == pytest.approx(setting.noise_std**2)


def test_functions_belong_to_panel_and_trial() -> None:
    for end in HARD:
        whole, part = study_of(panel(end), 0, 3), study_of(panel(end), 2, 1)
        assert whole.seeds[2:] == part.seeds
        for t in (1, 48, 30):
            ours, theirs = whole.rewards.at(t)[2:], part.rewards.at(t)
            assert torch.allclose(ours, theirs, rtol=0.0, atol=1e-12)
    drift = study_of(panel("drift"))
    assert len({tuple(drift.rewards.at(t)[0].tolist()) for t in (1, 2, 3)}) == 3
    assert len(study_of(panel("frequent")).change_points) == 11
    assert len(study_of(panel("very-frequent")).change_points) == 23


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("frequent", "evidence, robust"),
        ("frequent", "half-samples"),
        ("plane", "evidence, plain"),
        ("plane", "window"),
        ("fall-2", "told of the changes"),
        ("hidden", "evidence, robust, explores"),
        ("hidden", "never restarts"),
        ("drift", "time kernel"),
        ("drift", "evidence, robust"),
        ("t-3", "evidence, plain"),
    ],
)
def test_methods_play_what_the_loop_plays(end: str, name: str) -> None:
    rounds = 48
    experiment = panel(end, rounds)
    study = study_of(experiment)
    method = next(m for m in experiment.make_methods(study) if m.name.startswith(name))
    restart, forgetting, acquisition = None, None, method.acquisition
    if isinstance(method, RestartMethod):
        restart = method.restart(study.change_points)
    else:
        assert isinstance(method, ForgettingMethod)
        forgetting = method.forgetting
        acquisition = GPUpperConfidenceBound.with_options(width=method.width)
    policy = Policy(
        BanditGP.with_kernel(matern(), noise=method.lam),
        acquisition,
        forgetting=forgetting,
        restart=restart,
    )
    played = play(study, method, lambda t: None)
    for i, seed in enumerate(study.seeds):
        rewards, loop, noise = study.rewards, policy.loop(study.arms, seed), None
        noise = RandomBlocks((seed,), "noise")
        for t in range(rounds):
            query = loop.ask()
            arm = study.arms.index_of(query.x.unsqueeze(0))
            values = rewards.at(t + 1)[i]
            regret = float(values.max() - values[arm])
            assert played["regret"][i, t] == pytest.approx(regret, abs=1e-12)
            loop.tell(query.id, float(values[arm] + study.noise_std * noise.at(t + 1)))
        ended = [reset.after_round - 1 for reset in loop.resets]
        assert np.flatnonzero(played["resets"][i]).tolist() == ended
        explored = [query.origin == "exploration" for query in loop.history.queries]
        assert played["explored"][i].tolist() == explored


def test_exploration_is_the_only_difference_of_policies_that_explore() -> None:
    study = study_of(panel("hidden"))
    rules = {
        method.name: method.restart(study.change_points)
        for method in panel("hidden").make_methods(study)
        if isinstance(method, RestartMethod)
    }
    xi = math.sqrt(3.0)
    assert rules["evidence, robust"] == EvidenceRestart()
    assert rules["evidence, robust, explores"] == EvidenceRestart(exploration=xi)


def test_without_changes_every_restart_is_a_false_alarm() -> None:
    resets = torch.zeros(2, 90, dtype=torch.bool)
    resets[1, [3, 60]] = True
    found = count_detections(resets, ())
    assert len(found.delays) == 0
    assert found.missed.tolist() == [0, 0]
    assert found.false_alarms.tolist() == [0, 2]
    experiment = panel("t-3", 90, num_trials=2)
    none = {"resets": resets, "explored": torch.zeros_like(resets)}
    curve = Curves(torch.zeros(2, 90, dtype=torch.float64), None, None, others=none)
    rows = tabulate_detections([experiment], [dict.fromkeys(_names(experiment), curve)])
    assert [row["method"] for row in rows] == ["evidence, plain", "evidence, robust"]
    for row in rows:
        assert (row["changes"], row["missed"], row["missed_share"]) == (0, 0, "")
        assert (row["false_alarms_per_run"], row["runs_with_false_alarm"]) == (1.0, 1)


def _names(experiment: ArmsExperiment) -> list[str]:
    return [method.name for method in experiment.make_methods(experiment.make_study(0, 1))]
