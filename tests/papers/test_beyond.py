"""What is not in the papers: environments, players and switches of the three experiments."""

from __future__ import annotations

import csv
import math
import multiprocessing
from dataclasses import fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from botorch.fit import fit_fully_bayesian_model_nuts
from botorch.models.fully_bayesian import FullyBayesianSingleTaskGP
from torch import Tensor

from botorch_bandits import Arms, BanditGP, GPUpperConfidenceBound, run
from botorch_bandits.constraints import AdditiveEpochs, MultiplicativeEpochs, PrimalDual
from botorch_bandits.forgetting import SlidingWindow, TimeVaryingKernel
from botorch_bandits.problems import ArmsProblem, GardnerProblem
from botorch_bandits.random_streams import RandomBlocks
from botorch_bandits.simulation import Policy
from papers import (
    beyond_changes,
    beyond_forgetting,
    beyond_multipliers,
    beyond_priors,
    build_experiments,
)
from papers.avanesov import ChangingStudy, RestartMethod, arms_of, prior_of
from papers.avanesov import kernel as matern
from papers.beyond_combined import (
    CORRELATION,
    CUT_OFF,
    DELAYS,
    NOISE_STD,
    build_loop,
    detection_power,
    draw_scenario,
    play_scenario,
    play_scenarios,
    variants,
)
from papers.beyond_fills import poisson
from papers.beyond_forgetting import EnvironmentStudy, forgotten_posterior, play_environments
from papers.beyond_multipliers import EPOCH_LENGTHS, MAX_MULTIPLIER, STEP_SIZES
from papers.beyond_priors import (
    FITTED_LENGTHSCALES,
    FITTED_RATIOS,
    ON_BOX,
    TRUTHS,
    PriorMethod,
    Samples,
    draw_on_box,
    fitted_posterior,
    list_of_priors,
    play_on_box,
    play_priors,
    points_of,
    sample_hyperparameters,
    sampled_posterior,
    slopes,
)
from papers.environments import PeriodRewards
from papers.results import tabulate
from papers.shi import averages
from papers.trials import ArmsExperiment, run_arms_experiment, run_pieces

matplotlib.use("Agg")

SMALL = {
    "beyond-multipliers": {"num_points": (9, 3), "num_trials": 3, "num_rounds": 6},
    "beyond-forgetting": {"num_arms": 15, "num_trials": 3, "num_rounds": 8, "chunk": 3},
    "beyond-priors": {"num_arms": 15, "num_trials": 3, "num_rounds": 8, "chunk": 3},
    # three rounds have no chain, which would need more than the tests install
    "beyond-priors-sampled": {"num_arms": 15, "num_trials": 3, "num_rounds": 3, "chunk": 3},
    "beyond-changes": {"num_arms": 15, "num_trials": 3, "num_rounds": 24, "chunk": 3},
    "beyond-changes-hard": {"num_arms": 16, "num_trials": 3, "num_rounds": 24, "chunk": 3},
    "beyond-calm": {"num_arms": 15, "num_trials": 3, "num_rounds": 12, "chunk": 3},
    "beyond-misspecified": {"num_arms": 15, "num_trials": 3, "num_rounds": 12, "chunk": 3},
    "beyond-combined": {"num_trials": 3, "num_rounds": 8, "chunk": 3},
    "beyond-fills": {"num_trials": 3, "num_rounds": 8},
}


def panels(name: str, **options: object) -> list[ArmsExperiment]:
    return build_experiments(name, **{**SMALL[name], **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SMALL)
def test_chunks_and_interruptions_do_not_change_results(name: str, tmp_path: Path) -> None:
    for experiment in panels(name)[:1]:
        whole = run_arms_experiment(experiment, tmp_path / "whole", progress=False)
        pieces = replace(experiment, chunk=2)
        run_arms_experiment(pieces, tmp_path / "parts", progress=False, only=2)
        parts = run_arms_experiment(pieces, tmp_path / "parts", progress=False)
        for method, curve in whole.items():
            assert torch.equal(curve.regret, parts[method].regret)
            for key, values in curve.others.items():
                assert torch.equal(values.nan_to_num(-1), parts[method].others[key].nan_to_num(-1))
        for row in tabulate(experiment, whole):
            assert list(row)[:4] == ["experiment", "method", "trials", "rounds"]
            for key in experiment.tabulated:
                known = whole[row["method"]].others[key].double()
                assert row[f"{key}_mean"] == pytest.approx(float(known.mean()))
                error = float(known.std()) / math.sqrt(3)
                assert row[f"{key}_standard_error"] == pytest.approx(error)


def test_processes_do_not_change_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # forked ones import nothing; test_papers_are_public.py has those that begin from nothing
    forked = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: forked)
    build = partial(
        build_experiments, "beyond-combined", num_trials=2, num_rounds=3, seed=0, chunk=1
    )
    run_pieces(build, tmp_path / "two", 2, progress=False)
    (experiment,) = build()
    alone = run_arms_experiment(experiment, tmp_path / "one", progress=False)
    together = run_arms_experiment(experiment, tmp_path / "two", progress=False)
    names = [sorted(p.name for p in (tmp_path / n / "trials").iterdir()) for n in ("one", "two")]
    assert names[0] == names[1]
    for method, curve in alone.items():
        assert torch.equal(curve.regret, together[method].regret)
        assert torch.equal(curve.others["constraint"], together[method].others["constraint"])


# multipliers


def test_families_of_multipliers_have_as_many_settings(tmp_path: Path) -> None:
    experiments = panels("beyond-multipliers")
    assert [e.name.removeprefix("beyond-multipliers-") for e in experiments] == [
        "gardner-exact",
        "gardner-noisy",
        "rates-exact",
        "rates-noisy",
    ]
    for experiment in experiments:
        every_round, separate, relabeled = np.reshape(
            experiment.make_methods(experiment.make_study(0, 1)), (3, 5)
        )
        rules = [method.build(0).rule for method in every_round]
        assert all(isinstance(rule, PrimalDual) for rule in rules)
        assert [1.0 / rule.divisor for rule in rules[1:]] == pytest.approx(STEP_SIZES)
        assert {rule.max_multiplier for rule in rules[1:]} == {MAX_MULTIPLIER}
        bound, _, gap = experiment.settings["bounds"]
        assert rules[0].max_multiplier == pytest.approx(4.0 * bound / gap)
        rules = [m.build(0).rule for m in separate]
        rules += [m.build(0).loop.settings.constraints for m in relabeled]
        assert [rule.epoch_length for rule in rules] == [*EPOCH_LENGTHS, *EPOCH_LENGTHS]
        assert [rule.surrogate for rule in rules] == 5 * ["separate"] + 5 * ["relabeled"]
        kind = MultiplicativeEpochs if experiment.name.endswith("exact") else AdditiveEpochs
        assert all(isinstance(rule, kind) for rule in rules)
    results = run_arms_experiment(experiments[0], tmp_path, progress=False)
    for curve in results.values():
        known = averages(curve)
        for name in experiments[0].tabulated:
            assert torch.allclose(known.at(name, 6), curve.others[name], atol=1e-15)


def test_priced_regret_is_that_of_the_lagrangian(tmp_path: Path) -> None:
    experiments = panels("beyond-multipliers")
    curves = [run_arms_experiment(e, tmp_path, progress=False) for e in experiments[:1]]
    beyond_multipliers.report(experiments[:1], curves, tmp_path)
    with (tmp_path / "violation.csv").open() as file:
        rows = {(row["method"], int(row["round"])): row for row in csv.DictReader(file)}
    box = GardnerProblem()
    grid, price = box.on_grid(9), box.optimal_multiplier
    largest = float((grid.values - price * grid.constraint_table[:, 0]).max())
    for method, curve in curves[0].items():
        values = grid.optimal_value - curve.regret
        losses = largest - (values - price * curve.others["constraint"])
        assert float(losses.min()) >= -1e-12
        for t in (3, 6):
            row = rows[method, t]
            own = losses[:, :t].mean(-1)
            assert float(row["priced_mean"]) == pytest.approx(float(own.mean()))
            error = float(own.std()) / math.sqrt(3)
            assert float(row["priced_standard_error"]) == pytest.approx(error)


# forgetting


@pytest.mark.parametrize("kind", ["abrupt", "drift"])
def test_methods_play_what_the_loop_plays(kind: str) -> None:
    rounds = 36 if kind == "abrupt" else 20
    options = {"num_arms": 12, "num_rounds": rounds}
    experiment = panels("beyond-forgetting", **options)[kind == "drift"]
    study = experiment.make_study(2, 1 if kind == "abrupt" else 2)
    assert isinstance(study, EnvironmentStudy)
    assert study.change_points == ((9, 18, 27) if kind == "abrupt" else ())
    methods = experiment.make_methods(study)
    assert len(methods) == 10 + (kind == "abrupt")
    arms = Arms(torch.linspace(0.0, 5.0, 12, dtype=torch.float64).unsqueeze(-1))
    distinct = set()
    for method in methods:
        if kind == "drift" and "restart" in method.name:
            continue
        if isinstance(method.forgetting, SlidingWindow):  # shorter than the run
            length = method.forgetting.length // 10
            method = replace(method, forgetting=SlidingWindow(length))
        policy = Policy(
            BanditGP.with_kernel(matern(), noise=method.lam),
            method.acquisition,
            forgetting=method.forgetting,
            restart=method.restart(study) if method.restart else None,
        )
        played = play_environments(study, method, lambda t: None)
        distinct.add(played["regret"].tobytes())
        for i, seed in enumerate(study.seeds):
            loop = policy.loop(arms, seed)
            result = run(loop, study.environments[i], rounds, progress=False)
            assert played["regret"][i] == pytest.approx(result.regret.numpy(), abs=1e-9)
            assert played["resets"][i] == len(loop.resets)
            origins = [query.origin for query in loop.history.queries]
            assert played["explored"][i] == origins.count("exploration")
    assert len(distinct) >= 5


def test_the_same_environments_for_every_method_and_chunk() -> None:
    for experiment in panels("beyond-forgetting"):
        whole, part = experiment.make_study(0, 3), experiment.make_study(2, 1)
        assert isinstance(whole, EnvironmentStudy)
        assert isinstance(part, EnvironmentStudy)
        assert whole.seeds[2:] == part.seeds
        for t in (8, 1, 7):
            ours, theirs = whole.environments[2].arm_values(t), part.environments[0].arm_values(t)
            assert torch.equal(ours, theirs)
    calibrated = beyond_forgetting._calibrated_restart(15, 8)
    assert calibrated.detector.threshold.false_alarm_rate == 0.1


def test_the_posterior_of_the_time_kernel_is_computed_in_double_precision() -> None:
    matrix, (rate, lam, rounds) = prior_of(20).matrix, (0.03, 0.0025, 40)
    assert matrix is not None
    stream = torch.Generator().manual_seed(1)
    arms = torch.randint(20, (2, rounds), generator=stream)
    outcomes = torch.randn(2, rounds, dtype=torch.float64, generator=stream)
    rule = TimeVaryingKernel(rate)
    means, variances = forgotten_posterior(matrix, lam, rule, arms, outcomes)
    K = matrix.numpy()
    asked = np.arange(1.0, rounds + 1.0)
    fades = (1.0 - rate) ** (0.5 * np.abs(asked[:, None] - asked))
    for own, y, mean, variance in zip(
        arms.numpy(), outcomes.numpy(), means, variances, strict=True
    ):
        cross = K[:, own] * (1.0 - rate) ** (0.5 * (rounds + 1.0 - asked))
        solved = np.linalg.solve(K[np.ix_(own, own)] * fades + lam * np.eye(rounds), cross.T)
        np.testing.assert_allclose(mean.numpy(), solved.T @ y, rtol=0.0, atol=1e-11)
        expected = K.diagonal() - (cross * solved.T).sum(-1)
        np.testing.assert_allclose(variance.numpy(), expected, rtol=0.0, atol=1e-12)


# priors that are not known


def test_priors_are_played_as_loops_play_them() -> None:
    experiment = panels("beyond-priors")[0]
    study = experiment.make_study(1, 2)
    arms = points_of(15)
    truth = TRUTHS["listed"]
    covered = []
    for method in experiment.make_methods(study):
        assert isinstance(method, PriorMethod)
        if method.form not in ("oracle", "list"):
            continue
        known = BanditGP.with_kernel(truth.kernel, noise=0.01)
        model = list_of_priors() if method.form == "list" else known
        played = play_priors(study, method, lambda t: None)
        for i, seed in enumerate(study.seeds):
            problem = ArmsProblem(arms.choices, study.values[i], noise_std=0.1)
            loop = Policy(model, method.acquisition).loop(arms, seed)
            result = run(loop, problem, 8, progress=False)
            assert played["regret"][i] == pytest.approx(result.regret.numpy(), abs=1e-9)
        covered.append("covered" in played)
    assert covered == [True, True, False, False, False]


def test_draws_on_the_box_are_those_of_the_kernel_and_their_slopes_as_steep_as_assumed() -> None:
    x = torch.linspace(0.0, 1.0, 201, dtype=torch.float64)
    drawn = torch.stack([draw_on_box(seed)(x) for seed in range(800)])
    expected = ON_BOX.kernel(x[::50].unsqueeze(-1)).to_dense().detach()
    found = drawn[:, ::50].mT @ drawn[:, ::50] / 800.0
    assert torch.allclose(found, expected, atol=0.18)
    a, b = slopes(ON_BOX.lengthscale, ON_BOX.scale)
    largest = (drawn.diff() * 200.0).abs().amax(-1)
    for level in (10.0, 14.0, 17.0):
        bound = a * math.exp(-((level / b) ** 2))
        assert float((largest > level).double().mean()) <= bound + 0.05
    assert a * math.exp(-((14.0 / b) ** 2)) < 0.1  # the levels say something


def test_the_box_is_played_with_widths_of_each_prior() -> None:
    experiment = panels("beyond-priors")[-1]
    study = experiment.make_study(0, 1)
    methods = {method.name: method for method in experiment.make_methods(study)}
    options = methods["survivors"].acquisition.options  # type: ignore[union-attr]
    entries = list_of_priors().candidates
    for entry, a, b in zip(entries, options["smoothness_a"], options["smoothness_b"], strict=True):
        length = float(entry.kernel.base_kernel.lengthscale.detach())
        assert (a, b) == pytest.approx(slopes(length, float(entry.kernel.outputscale.detach())))
    regret = play_on_box(study, methods["survivors"], lambda t: None)["regret"]
    assert regret.shape == (1, 8)
    assert float(regret.min()) >= -1e-9


def test_learned_hyperparameters_are_the_most_likely_ones_or_integrated_out() -> None:
    stream = torch.Generator().manual_seed(4)
    X, points = torch.rand(2, 5, dtype=torch.float64, generator=stream)
    y = torch.sin(6.0 * X)
    log_scales = torch.linspace(-12.0, 8.0, 4001, dtype=torch.float64)  # s, under the prior 1 / s
    densities, means, units, tops, bests = [], [], [], [], []
    for length in FITTED_LENGTHSCALES:
        for ratio in FITTED_RATIOS:
            K = torch.exp(-0.5 * ((X.unsqueeze(-1) - X) / length) ** 2)
            K = K + ratio * torch.eye(5).double()
            k = torch.exp(-0.5 * ((points.unsqueeze(-1) - X) / length) ** 2)
            fit = float(y @ torch.linalg.solve(K, y))
            values = -0.5 * (5.0 * log_scales + torch.logdet(K) + fit * (-log_scales).exp())
            densities.append(values)
            means.append(k @ torch.linalg.solve(K, y))
            units.append(1.0 - (k @ torch.linalg.solve(K, k.mT)).diagonal())
            tops.append(float(values.max()))
            bests.append(fit / 5.0)
    best = int(np.argmax(tops))
    mean, variance = fitted_posterior(X, y.unsqueeze(-1), points)
    torch.testing.assert_close(mean, means[best], rtol=0.0, atol=1e-8)
    torch.testing.assert_close(variance, units[best] * bests[best], rtol=1e-6, atol=1e-8)
    joint = torch.stack(densities)
    weights = (joint - joint.max()).exp()
    weights = weights / weights.sum()
    m = sum(w.sum() * each for w, each in zip(weights, means, strict=True))
    v = sum(
        (w * log_scales.exp()).sum() * unit + w.sum() * (each - m) ** 2
        for w, unit, each in zip(weights, units, means, strict=True)
    )
    mean, variance = fitted_posterior(X, y.unsqueeze(-1), points, is_integrated=True)
    assert isinstance(m, torch.Tensor)
    assert isinstance(v, torch.Tensor)
    torch.testing.assert_close(mean, m, rtol=0.0, atol=2e-3)  # what is negligible is left out
    torch.testing.assert_close(variance, v, rtol=0.02, atol=2e-3)


def samples_of(num_samples: int, seed: int) -> Samples:
    stream = torch.Generator().manual_seed(seed)
    u = torch.rand(3, num_samples, dtype=torch.float64, generator=stream)
    return Samples(0.05 + u[0], 0.01 + 0.2 * u[1], u[2] - 0.5, center=1.5, unit=0.7)


def test_a_mixture_of_samples_is_that_of_their_posteriors() -> None:
    stream = torch.Generator().manual_seed(4)
    X, y = torch.rand(2, 9, dtype=torch.float64, generator=stream)
    points, samples = torch.linspace(0.0, 1.0, 6, dtype=torch.float64), samples_of(5, seed=1)
    mean, variance = sampled_posterior(X, y.unsqueeze(-1), points, samples)
    moments = []
    for length, noise, constant in zip(
        samples.lengthscale, samples.noise, samples.constant, strict=True
    ):

        def matern(a: float, b: float, length: Tensor = length) -> float:
            r = math.sqrt(5.0) * abs(a - b) / float(length)
            return (1.0 + r + r * r / 3.0) * math.exp(-r)

        K = np.array([[matern(a, b) for b in X] for a in X]) + float(noise) * np.eye(9)
        cross = np.array([[matern(a, b) for b in points] for a in X])
        m = 1.5 + 0.7 * float(constant)
        at = m + cross.T @ np.linalg.solve(K, y.numpy() - m)
        moments.append((at, 0.49 * (1.0 - (cross * np.linalg.solve(K, cross)).sum(0))))
    expected = np.mean([at for at, _ in moments], axis=0)
    spread = np.mean([v + (at - expected) ** 2 for at, v in moments], axis=0)
    np.testing.assert_allclose(mean, expected, atol=1e-10)
    np.testing.assert_allclose(variance, spread, atol=1e-10)


def test_hyperparameters_are_sampled_every_few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def chain(X: Tensor, y: Tensor, seed: int) -> Samples:
        calls.append((len(X), seed))
        return samples_of(4, seed)

    monkeypatch.setattr(beyond_priors, "sample_hyperparameters", chain)
    experiment = panels("beyond-priors-sampled", num_rounds=12, num_trials=2)[1]
    study = experiment.make_study(0, 2)
    *_, method = experiment.make_methods(study)
    regret = play_priors(study, method, lambda t: None)["regret"]
    assert regret.shape == (2, 12)
    assert (regret >= 0.0).all()
    assert [rows for rows, _ in calls] == [3, 3, 8, 8]
    assert len({seed for _, seed in calls}) == 4


@pytest.mark.skipif(find_spec("numpyro") is None, reason="BoTorch's chains need JAX and NumPyro")
def test_samples_are_those_of_botorchs_model() -> None:
    X = torch.linspace(0.0, 1.0, 8, dtype=torch.float64)
    y = (5.0 * X).sin().unsqueeze(-1)
    samples = sample_hyperparameters(X, y, seed=3)
    assert len(samples.lengthscale) == len(samples.noise) == len(samples.constant) == 16
    model = FullyBayesianSingleTaskGP(X.unsqueeze(-1), (y - samples.center) / samples.unit)
    fit_fully_bayesian_model_nuts(
        model, warmup_steps=64, num_samples=64, thinning=4, disable_progbar=True, seed=3
    )
    points = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
    posterior = model.posterior(points.unsqueeze(-1))
    mean, variance = sampled_posterior(X, y, points, samples)
    expected = samples.center + samples.unit * posterior.mixture_mean.squeeze(-1)
    assert (mean - expected).abs().max() < 1e-8
    assert (variance - samples.unit**2 * posterior.mixture_variance.squeeze(-1)).abs().max() < 1e-8


# ways to follow changes


def test_the_drifting_posterior_is_that_of_the_time_kernel() -> None:
    matrix, (rate, lam, rounds) = prior_of(20).matrix, (0.03, 0.01, 30)
    assert matrix is not None
    stream = torch.Generator().manual_seed(0)
    arms = torch.randint(20, (2, rounds), generator=stream)
    outcomes = torch.randn(2, rounds, dtype=torch.float64, generator=stream)
    posterior = beyond_changes.DriftingPosterior(matrix, lam, rate, 2)
    for t in range(rounds):
        posterior.observe(arms[:, t], outcomes[:, t])
    asked = torch.arange(rounds, dtype=torch.float64)
    fades = (1.0 - rate) ** (0.5 * (asked.unsqueeze(-1) - asked).abs())
    for own, rewards, mean, variance in zip(
        arms, outcomes, posterior.mean, posterior.variance, strict=True
    ):
        noisy = matrix[own][:, own] * fades + lam * torch.eye(rounds, dtype=torch.float64)
        cross = matrix[:, own] * (1.0 - rate) ** (0.5 * (rounds - asked))
        solved = torch.linalg.solve(noisy, cross.T)
        assert torch.allclose(mean, solved.T @ rewards, rtol=0.0, atol=1e-8)
        expected = matrix.diagonal() - (cross * solved.T).sum(-1)
        assert torch.allclose(variance, expected, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("name", ["evidence, robust", "evidence, plain", "window 6", "time kernel"])
def test_ways_to_follow_changes_are_those_of_the_loop(name: str) -> None:
    rounds, num_arms = 48, 12
    experiment = panels("beyond-changes", num_arms=num_arms, num_rounds=rounds)[0]
    study = experiment.make_study(1, 2)
    assert isinstance(study, ChangingStudy)
    (method,) = [m for m in experiment.make_methods(study) if m.name.startswith(name)]
    restart, forgetting, acquisition = None, None, method.acquisition
    if isinstance(method, RestartMethod):
        restart = method.restart(study.change_points)
    else:
        assert isinstance(method, beyond_changes.ForgettingMethod)
        forgetting = method.forgetting
        acquisition = GPUpperConfidenceBound.with_options(width=method.width)
    policy = Policy(
        BanditGP.with_kernel(matern(), noise=method.lam),
        acquisition,
        forgetting=forgetting,
        restart=restart,
    )
    played = beyond_changes.play(study, method, lambda t: None)
    for i, seed in enumerate(study.seeds):
        environment = PeriodRewards(study.periods[i : i + 1], study.change_points)
        loop = policy.loop(arms_of(num_arms), seed)
        noise = RandomBlocks((seed,), "noise")
        for t in range(rounds):
            query = loop.ask()
            arm = arms_of(num_arms).index_of(query.x.unsqueeze(0))
            values = environment.at(t + 1)[0]
            assert played["regret"][i, t] == pytest.approx(float(values.max() - values[arm]))
            loop.tell(query.id, float(values[arm] + study.noise_std * noise.at(t + 1)))
        ended = [reset.after_round - 1 for reset in loop.resets]
        assert np.flatnonzero(played["resets"][i]).tolist() == ended
        assert bool(ended) == isinstance(method, RestartMethod)


# the combined scenario


def test_scenarios_are_what_they_say() -> None:
    scenarios = [draw_scenario(20, seed) for seed in range(60)]
    for scenario in scenarios:
        for period in range(2):
            for z in range(5):
                pairs = zip(
                    scenario.costs[z].tolist(), scenario.rewards[period, z].tolist(), strict=True
                )
                best = max(reward for cost, reward in pairs if cost <= 0.0)
                assert float(scenario.best[period, z]) == best
        assert scenario.change_point == 10
        assert [scenario.period(t) for t in (1, 10, 11, 20)] == [0, 0, 1, 1]
        assert len(scenario.contexts) == 20
        assert set(scenario.contexts) <= set(range(5))
    again = draw_scenario(20, 7)
    assert torch.equal(again.rewards, scenarios[7].rewards)
    assert again.contexts == scenarios[7].contexts
    rewards = torch.stack([s.rewards for s in scenarios]).reshape(60, 2, -1)
    costs = torch.stack([s.costs for s in scenarios]).reshape(60, -1)
    # costs are tilted a little by the demand that each context has a feasible arm
    assert float((rewards[:, 0] * costs).mean()) == pytest.approx(CORRELATION, abs=0.25)
    assert float((rewards[:, 0] * rewards[:, 1]).mean()) == pytest.approx(0.5, abs=0.25)
    assert float(rewards.square().mean()) == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("sees_context", [True, False], ids=["context", "withheld"])
def test_outcomes_arrive_late_or_never(monkeypatch: pytest.MonkeyPatch, sees_context: bool) -> None:
    seed, rounds = 11, 120
    scenario = draw_scenario(rounds, seed)
    loop = build_loop(variants(120)[7], rounds, seed)
    told: dict[int, tuple[int, float | None]] = {}

    def tell(query_id: int, reward: float, constraints: object = None) -> None:
        assert constraints is None
        told[query_id] = (loop.history.num_queries + 1, reward)

    def tell_failed(query_id: int) -> None:
        told[query_id] = (loop.history.num_queries + 1, None)

    monkeypatch.setattr(loop, "tell", tell)
    monkeypatch.setattr(loop, "tell_failed", tell_failed)
    arms = play_scenario(scenario, loop, rounds, seed, sees_context)
    lost, errors = 0, []
    for query in loop.history.queries:
        s = query.round_number
        z = scenario.contexts[s - 1]
        assert float(query.context) == (z / 4 if sees_context else 0.5)
        assert float(query.x) == pytest.approx(arms[s - 1] / 39)
        delay = DELAYS.of_query(query.x, seed, s)
        due = s + (CUT_OFF if delay > CUT_OFF else max(delay, 1.0))
        if due > rounds:
            assert query.id not in told
            continue
        arrived, reward = told[query.id]
        assert arrived == due
        assert (reward is None) == (delay > CUT_OFF)
        if reward is None:
            lost += 1
        else:
            errors.append(reward - float(scenario.rewards[int(s > 60), z, arms[s - 1]]))
    assert lost >= 2
    assert float(np.std(errors)) == pytest.approx(NOISE_STD, rel=0.3)


def test_a_switch_changes_one_setting() -> None:
    full, *others = [build_loop(variant, 40, 3) for variant in variants(40)]
    changed = []
    for loop in others:
        different = {
            field.name
            for field in fields(full.settings)
            if field.name not in ("domain", "model", "acquisition", "seed")
            and getattr(loop.settings, field.name) != getattr(full.settings, field.name)
        }
        changed.append(different)
    restart, constraints = {"restart"}, {"constraints"}
    assert changed[:6] == [{"feedback"}, restart, constraints, set(), restart, restart]
    assert [variant.sees_context for variant in variants(40)].count(False) == 1
    for loop in others[:6]:
        assert type(loop.settings.model) is type(full.settings.model)
        assert repr(loop.settings.acquisition) == repr(full.settings.acquisition)
    # those that test all outcomes, and those that are told, spend nothing on exploration
    assert full.settings.restart.exploration is None
    assert others[5].settings.restart.exploration is None


def test_regret_and_violation_of_a_scenario() -> None:
    (experiment,) = panels("beyond-combined", num_rounds=16)
    study = experiment.make_study(1, 2)
    full = experiment.make_methods(study)[0]
    played = play_scenarios(study, full, lambda t: None)
    for i, seed in enumerate(study.seeds):
        scenario = draw_scenario(16, seed)
        arms = play_scenario(scenario, build_loop(full, 16, seed), 16, seed, True)
        total = violation = 0.0
        for t, (z, arm) in enumerate(zip(scenario.contexts, arms, strict=True)):
            period = int(t >= 8)
            allowed = scenario.rewards[period, z][scenario.costs[z] <= 0.0]
            total += float(allowed.max() - scenario.rewards[period, z, arm])
            violation += float(scenario.costs[z, arm])
        assert played["regret"][i].sum() == pytest.approx(total)
        assert 8 * (played["before"][i] + played["after"][i]) == pytest.approx(total)
        assert played["violation"][i] == pytest.approx(max(violation, 0.0) / 16)
        assert played["rectified"][i] >= played["violation"][i] - 1e-12


def test_power_of_the_detector_with_the_samples_of_a_policy() -> None:
    rows = detection_power(60, num_streams=12)
    shares = [row["detected"] for row in rows]
    assert [row["samples_after"] for row in rows] == [8, 16, 32]
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] < shares[-1] <= 1.0
    loop = build_loop(variants(30)[5], 60, 5)
    play_scenario(draw_scenario(60, 5), loop, 30, 5, True)
    origins = [query.origin for query in loop.history.queries]
    assert rows[0]["samples_before"] == origins.count("exploration")


# the page


def test_stated_delays_are_those_that_are_drawn() -> None:
    known = torch.distributions.Poisson(torch.tensor(10.0, dtype=torch.float64))
    stated = poisson(10.0, 40)
    delays = torch.arange(39, dtype=torch.float64)
    assert stated[:39] == pytest.approx(known.log_prob(delays).exp().tolist(), rel=1e-12)
    assert math.fsum(stated) == pytest.approx(1.0, abs=1e-15)


def test_fills_meet_the_same_functions_and_delays(tmp_path: Path) -> None:
    """Where nothing has arrived nor can arrive, fills make no difference to the first query."""
    experiments = panels("beyond-fills", num_rounds=4)
    assert [e.name.removeprefix("beyond-fills-") for e in experiments] == [
        "given",
        "theory",
        "learned",
        "svm-given",
        "svm-learned",
    ]
    curves = run_arms_experiment(experiments[2], tmp_path, progress=False)
    firsts = [curve.regret[:, :4] for curve in curves.values()]
    assert len(firsts) == 7
    for each in firsts[1:]:  # the initial points
        assert torch.equal(each, firsts[0])
