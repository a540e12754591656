"""A simulated replicate plays what a loop with its seed plays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double, line
from other_device import other_device
from pairwise import by_day

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    LogProbabilityOfImprovement,
    MeanOnly,
    Policy,
    RandomizedUpperConfidenceBound,
    RandomSearch,
    TopTwoThompsonSampling,
    VarianceOnly,
    run,
    simulate,
)
from botorch_bandits.acquisition import (
    AcquisitionRecipe,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
)
from botorch_bandits.confidence import WaterFillingGain
from botorch_bandits.core.posterior import FIRST_ROOM
from botorch_bandits.models import candidate_grid
from botorch_bandits.problems import ArmsProblem, gp_draw_on_arms

CHOICES = line(0, 1, 30)
LENGTHSCALE, LAM = 0.15, 0.02
KERNEL_MATRIX = torch.exp(-(torch.cdist(CHOICES, CHOICES) ** 2) / (2 * LENGTHSCALE**2))
MODEL = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=LENGTHSCALE)
LIST = BanditGP.with_candidates(candidate_grid([0.1, 0.4], [0.02], [0.5, 2.0]))
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.1}

RECIPES: dict[str, AcquisitionRecipe | RandomSearch] = {
    "GP-UCB": GPUpperConfidenceBound.with_options(delta=0.1, scale=0.5),
    "GP-UCB, Theorem 3": GPUpperConfidenceBound.with_options(
        rkhs_bound=0.05, information_gain=WaterFillingGain(KERNEL_MATRIX, LAM)
    ),
    "constant width": GPUpperConfidenceBound.with_options(width=2.0),
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**BOUNDS),
    "IGP-UCB, any lam": ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
    "IGP-UCB, minimizing": ImprovedUpperConfidenceBound.with_options(**BOUNDS, maximize=False),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
    "DMM": DMMUpperConfidenceBound.with_options(**{**BOUNDS, "rkhs_bound": 12.0}),
    "DMM, doubling": DMMUpperConfidenceBound.with_options(
        **{**BOUNDS, "rkhs_bound": 0.5}, double_rkhs_bound=True
    ),
    "EI": LogExpectedImprovement.with_options(),
    "EI, observed": LogExpectedImprovement.with_options(incumbent="observed"),
    "EI, given": LogExpectedImprovement.with_options(best_f=0.5),
    "EI, minimizing": LogExpectedImprovement.with_options(maximize=False),
    "EI, augmented": LogExpectedImprovement.with_options(augmented=True),
    "PI": LogProbabilityOfImprovement.with_options(margin=0.05),
    "PI, observed, minimizing": LogProbabilityOfImprovement.with_options(
        incumbent="observed", maximize=False
    ),
    "mean only": MeanOnly.with_options(),
    "variance only": VarianceOnly.with_options(),
    "GP-TS": GPThompsonSampling.with_options(**BOUNDS),
    "TTTS": TopTwoThompsonSampling.with_options(leader_probability=0.4, max_draws=9, **BOUNDS),
    "IRGP-UCB": RandomizedUpperConfidenceBound.with_options(),
    "random": RandomSearch(),
}
OF_LISTS: dict[str, AcquisitionRecipe] = {
    "list": CandidatesUpperConfidenceBound.with_options(),
    "list, mixture": CandidatesUpperConfidenceBound.with_options(form="mixture"),
    "list, draws": CandidatesThompsonSampling.with_options(),
}


def problems(count: int) -> list[ArmsProblem]:
    kernel = RBFKernel().double()
    kernel.lengthscale = double(LENGTHSCALE)
    return [gp_draw_on_arms(kernel, CHOICES, seed=i, noise_std=0.1) for i in range(count)]


# initial points change the first rounds alone: the long runs, which fill buffers, need none
@pytest.mark.parametrize("name", [*by_day(RECIPES), *OF_LISTS])
@pytest.mark.parametrize(("num_initial", "num_rounds"), [(0, 80), (3, 15)], ids=["0", "3"])
def test_replicates_play_what_loops_play(name: str, num_initial: int, num_rounds: int) -> None:
    model, recipe = (LIST, OF_LISTS[name]) if name in OF_LISTS else (MODEL, RECIPES[name])
    policy = Policy(model, recipe, num_initial)
    played = simulate(problems(3), policy, num_rounds, seed=5, progress=False)
    for b, problem in enumerate(problems(3)):
        loop = policy.loop(Arms(CHOICES), seed=played.seeds[b])
        result = run(loop, problem, num_rounds, progress=False)
        arms = problem.arm_indices(torch.stack([query.x for query in loop.history.queries]))
        assert torch.equal(arms, played.arms[b])
        assert torch.allclose(result.rewards, played.outcomes[b], atol=1e-12, rtol=0)
        assert torch.allclose(result.regret, played.regret[b], atol=1e-12, rtol=0)


def test_bounds_of_norm_and_noise_per_replicate() -> None:
    bounds = double([3.0, 20.0])
    for cls in (ImprovedUpperConfidenceBound, DMMUpperConfidenceBound, AMMUpperConfidenceBound):
        both = cls.with_options(rkhs_bound=bounds, noise_bound=0.1, delta=0.1)
        played = simulate(problems(2), Policy(MODEL, both), 25, seed=1, progress=False)
        for b in range(2):
            alone = cls.with_options(rkhs_bound=float(bounds[b]), noise_bound=0.1, delta=0.1)
            loop = Policy(MODEL, alone).loop(Arms(CHOICES), seed=played.seeds[b])
            run(loop, problems(2)[b], 25, progress=False)
            points = torch.stack([query.x for query in loop.history.queries])
            assert torch.equal(problems(1)[0].arm_indices(points), played.arms[b])


def test_result_adds_up() -> None:
    policy = Policy(MODEL, RECIPES["IGP-UCB"])
    result = simulate(problems(2), policy, 30, progress=False)
    values = torch.stack([p.values for p in problems(2)])
    regret = values.amax(-1, keepdim=True) - values.gather(-1, result.arms)
    assert torch.equal(result.regret, regret)
    assert torch.equal(result.cumulative_regret[:, -1], regret.cumsum(-1)[:, -1])
    assert torch.equal(result.simple_regret[:, -1], regret.amin(-1))
    assert result.covered is not None
    assert result.covered.shape == (2,)
    assert result.mean_width is not None
    assert result.mean_width.shape == (30,)
    assert simulate(problems(1)[0], policy, 0, 2, progress=False).regret.shape == (2, 0)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda p: simulate(lambda x: x, p, 3), TypeError, "not iterable|must be an ArmsProblem"),
        (lambda p: simulate([], p, 3), ValueError, "empty list"),
        (lambda p: simulate(problems(2), p, 3, 3), ValueError, "num_replicates is 3"),
        (lambda p: simulate(problems(1)[0], p, -1), ValueError, "num_rounds is -1"),
        (lambda p: simulate(problems(1)[0], p, 3, 0), ValueError, "num_replicates is 0"),
        (
            lambda p: simulate([problems(1)[0], ArmsProblem(CHOICES, CHOICES[:, 0])], p, 3),
            ValueError,
            "problem 1 has other arms or another noise_std",
        ),
    ],
)
def test_bad_settings_are_refused(act: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        act(Policy(MODEL, RECIPES["IGP-UCB"]))


@pytest.mark.parametrize("name", by_day(RECIPES))
def test_devices_play_the_same_arms(name: str) -> None:
    policy = Policy(MODEL, RECIPES[name])
    # some runs outgrow the buffers, which are the same for all rules
    num_rounds = FIRST_ROOM + 6 if name in ("GP-UCB", "DMM, doubling") else 30
    host = simulate(problems(4), policy, num_rounds, progress=False)
    with other_device() as device_name:
        device = simulate(problems(4), policy, num_rounds, device=device_name, progress=False)
    assert torch.equal(host.arms, device.arms)
    assert torch.allclose(host.regret, device.regret, atol=1e-8, rtol=0)
