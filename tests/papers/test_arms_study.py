"""A study plays the rules of the loop, from a covariance of the arms alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double, line

from botorch_bandits import (
    Arms,
    BanditGP,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    MeanOnly,
    Policy,
    RandomSearch,
    run,
)
from botorch_bandits.problems import ArmsProblem
from papers.runner import ArmsStudy, Method, build_experiments, play

NUM_ARMS, LENGTHSCALE, LAM = 12, 0.2, 0.01
CHOICES = line(0, 1, NUM_ARMS)
KERNEL = torch.exp(-(torch.cdist(CHOICES, CHOICES) ** 2) / (2 * LENGTHSCALE**2))
OPTIONS = {"rkhs_bound": 9.0, "noise_bound": 0.1, "delta": 0.1}
RECIPES: dict[str, Any] = {
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**OPTIONS, any_lambda=True),
    "DMM": DMMUpperConfidenceBound.with_options(**OPTIONS),
    "GP-TS": GPThompsonSampling.with_options(**OPTIONS),
    "random": RandomSearch(),
}


def study(num_functions: int = 3, num_rounds: int = 12, first_trial: int = 0) -> ArmsStudy:
    rows = []
    for trial in range(first_trial, first_trial + num_functions):
        generator = torch.Generator().manual_seed(trial)
        rows.append(KERNEL @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=generator))
    values = torch.stack(rows)
    values = 2 * values / values.abs().amax(-1, keepdim=True)
    return ArmsStudy(KERNEL, values, 0.1, num_rounds, seed=3, first_trial=first_trial)


@pytest.mark.parametrize("name", RECIPES)
def test_study_plays_the_arms_that_the_loop_plays(name: str) -> None:
    trials = study()
    played = play(trials, Method(name, RECIPES[name], LAM))
    model = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=LENGTHSCALE)
    for i, seed in enumerate(trials.seeds):
        problem = ArmsProblem(CHOICES, trials.values[i], noise_std=0.1)
        loop = Policy(model, RECIPES[name]).loop(Arms(CHOICES), seed=seed)
        regret = run(loop, problem, 12, progress=False).regret
        assert torch.allclose(played.regret[i], regret, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", RECIPES)
def test_results_belong_to_trials_not_to_pieces(name: str) -> None:
    method = Method(name, RECIPES[name], LAM)
    whole = play(study(4), method).regret
    pieces = [play(study(2, first_trial=first), method).regret for first in (0, 2)]
    assert torch.allclose(whole, torch.cat(pieces), atol=1e-10, rtol=0)


def test_coverage_is_all_arms_in_all_rounds() -> None:
    trials = study()
    wide = play(trials, Method("wide", GPUpperConfidenceBound.with_options(width=50.0), LAM))
    narrow = play(trials, Method("narrow", GPUpperConfidenceBound.with_options(width=1e-6), LAM))
    assert wide.covered is not None
    assert narrow.covered is not None
    assert bool(wide.covered.all())
    assert not bool(narrow.covered.any())
    assert play(trials, Method("mean", MeanOnly.with_options(), LAM)).covered is None


def test_noise_and_regularization_may_differ_between_functions() -> None:
    values = study(2).values
    levels = double([0.01, 1.0])
    trials = ArmsStudy(KERNEL, values, levels, 200, seed=3)
    recipe = ImprovedUpperConfidenceBound.with_options(rkhs_bound=9.0, noise_bound=levels)
    both = play(trials, Method("IGP-UCB", recipe, levels**2))
    noise = both.outcomes - values.gather(-1, both.arms)
    for b, level in enumerate(levels.tolist()):
        assert 0.8 * level < float(noise[b].std()) < 1.2 * level
        alone = ArmsStudy(KERNEL, values[b : b + 1], level, 200, seed=3, first_trial=b)
        own = ImprovedUpperConfidenceBound.with_options(rkhs_bound=9.0, noise_bound=level)
        assert torch.equal(play(alone, Method("one", own, level**2)).arms[0], both.arms[b])


def test_functions_of_figures_1_and_2_are_what_the_paper_draws() -> None:
    experiments = build_experiments("chowdhury-rkhs", num_trials=3, num_rounds=2)
    assert [e.name.split("rkhs-")[1] for e in experiments] == [
        "se-figure1",
        "matern-figure1",
        "se-figure2",
        "matern-figure2",
    ]
    for experiment in experiments:
        trials = experiment.make_study(0, 3)
        f, K = trials.values, trials.kernel_matrix
        assert f.shape == (3, 100)
        spread = f.amax(-1) - f.amin(-1)
        assert torch.allclose(torch.as_tensor(trials.noise_std) ** 2, 0.01 * spread)
        igp = {m.name: m for m in experiment.make_methods(trials)}["IGP-UCB"]
        assert not isinstance(igp.acquisition, RandomSearch)
        bound = igp.acquisition.options["rkhs_bound"]
        # f' (K + r I)^-1 f rises to the squared norm as r falls to 0
        ridge = 1e-10 * torch.eye(100, dtype=torch.float64)
        below = (f * torch.linalg.solve(K + ridge, f.T).T).sum(-1).sqrt()
        if experiment.name.endswith("1"):
            assert torch.allclose(below, bound, rtol=1e-3)
            assert bool((below <= bound * (1 + 1e-9)).all())
        else:
            assert bool((bound < below).all())
