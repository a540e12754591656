"""The batched arms study plays what the acquisition functions play."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    DMMUpperConfidenceBound,
    ExpectedImprovement,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    MeanOnly,
    ProbabilityOfImprovement,
    VarianceOnly,
)
from botorch_bandits.confidence import amm_width, any_lambda_width
from botorch_bandits.experiments.arms_study import (
    ArmsStudy,
    DMMPolicy,
    ImprovementPolicy,
    MeanPolicy,
    Policy,
    RandomPolicy,
    ThompsonPolicy,
    VariancePolicy,
    WidthPolicy,
    play,
    srinivas_width,
)

NUM_ARMS, LENGTHSCALE, LAM = 12, 0.2, 0.01
CHOICES = torch.linspace(0, 1, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
KERNEL = torch.exp(-(torch.cdist(CHOICES, CHOICES) ** 2) / (2 * LENGTHSCALE**2))


def study(num_functions: int = 3, num_rounds: int = 12, first_trial: int = 0) -> ArmsStudy:
    rows = []
    for trial in range(first_trial, first_trial + num_functions):
        generator = torch.Generator().manual_seed(trial)
        rows.append(KERNEL @ torch.randn(NUM_ARMS, dtype=torch.float64, generator=generator))
    values = torch.stack(rows)
    values = 2 * values / values.abs().amax(-1, keepdim=True)
    return ArmsStudy(KERNEL, values, 0.1, num_rounds, seed=3, first_trial=first_trial)


def any_lambda(t: int, gain: Tensor) -> Tensor:
    return any_lambda_width(2.0, 0.1, gain, 0.1, LAM)


def amm(t: int, gain: Tensor) -> Tensor:
    return amm_width(2.0, gain, 0.1, radius_factor=0.1**2 / LAM)


OPTIONS = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.1}
SAME_RULE: dict[str, tuple[Policy, Any]] = {
    "GP-UCB": (
        WidthPolicy(srinivas_width(NUM_ARMS, 0.1, scale=0.5)),
        GPUpperConfidenceBound.with_options(delta=0.1, scale=0.5),
    ),
    "IGP-UCB": (
        WidthPolicy(any_lambda),
        ImprovedUpperConfidenceBound.with_options(**OPTIONS, any_lambda=True),
    ),
    "AMM": (WidthPolicy(amm), AMMUpperConfidenceBound.with_options(**OPTIONS)),
    "DMM": (DMMPolicy(2.0, 0.1, 0.1), DMMUpperConfidenceBound.with_options(**OPTIONS)),
    "EI": (ImprovementPolicy(), ExpectedImprovement.with_options()),
    "EI, observed": (
        ImprovementPolicy(incumbent="observed"),
        ExpectedImprovement.with_options(incumbent="observed"),
    ),
    "PI": (
        ImprovementPolicy("probability", margin=0.05),
        ProbabilityOfImprovement.with_options(margin=0.05),
    ),
    "mean only": (MeanPolicy(), MeanOnly.with_options()),
    "variance only": (VariancePolicy(), VarianceOnly.with_options()),
}


@pytest.mark.filterwarnings("ignore::botorch_bandits.AssumptionRefutedWarning")
@pytest.mark.parametrize("name", SAME_RULE)
def test_study_plays_the_arms_that_the_loop_plays(name: str) -> None:
    policy, recipe = SAME_RULE[name]
    played_study = study()
    played = play(played_study, policy, LAM)
    for i in range(len(played_study.values)):
        values = played_study.values[i]
        arms = []
        loop = BanditLoop(
            Arms(CHOICES),
            BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=LENGTHSCALE),
            recipe,
        )
        noise = 0.1 * torch.randn(
            12, dtype=torch.float64, generator=played_study.generators("noise")[i]
        )
        for t in range(12):
            query = loop.ask()
            arm = int((query.x == CHOICES).all(-1).nonzero())
            arms.append(arm)
            loop.tell(query.id, float(values[arm] + noise[t]))
        regret = values.max() - values[arms]
        assert torch.allclose(played.regret[i], regret, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    "policy", [ThompsonPolicy(any_lambda), RandomPolicy(), WidthPolicy(any_lambda)]
)
def test_results_belong_to_trials_not_to_pieces(policy: Policy) -> None:
    whole = play(study(4), policy, LAM).regret
    pieces = [play(study(2, first_trial=first), policy, LAM).regret for first in (0, 2)]
    assert torch.allclose(whole, torch.cat(pieces), atol=1e-10, rtol=0)


def test_thompson_sampling_plays_posterior_maximisers_as_often_as_it_should() -> None:
    """Two independent arms with equal prior: each is drawn largest half of the time."""
    identity = torch.eye(2, dtype=torch.float64)
    trials = ArmsStudy(identity, torch.tensor([[0.0, 1.0]]).double().expand(2000, 2), 0.1, 1)
    played = play(trials, ThompsonPolicy(lambda t, gain: torch.ones_like(gain)), 1.0)
    share = float((played.regret[:, 0] == 0).double().mean())
    assert abs(share - 0.5) < 5 * (0.25 / 2000) ** 0.5


def test_coverage_is_all_arms_in_all_rounds() -> None:
    trials = study()
    wide = play(trials, WidthPolicy(lambda t, gain: torch.full_like(gain, 50.0)), LAM)
    narrow = play(trials, WidthPolicy(lambda t, gain: torch.full_like(gain, 1e-6)), LAM)
    assert wide.covered is not None
    assert narrow.covered is not None
    assert bool(wide.covered.all())
    assert not bool(narrow.covered.any())
    assert play(trials, MeanPolicy(), LAM).covered is None


def test_ties_go_to_the_smallest_arm() -> None:
    constant = ArmsStudy(
        torch.eye(5, dtype=torch.float64), torch.arange(5.0).double()[None], 0.1, 1
    )
    assert float(play(constant, MeanPolicy(), 1.0).regret[0, 0]) == 4.0  # arm 0


def test_unknown_settings_are_refused() -> None:
    for options in itertools.product(("best",), ("expected",)):
        with pytest.raises(ValueError, match="incumbent is 'best'"):
            ImprovementPolicy(options[1], incumbent=options[0])
    with pytest.raises(ValueError, match="kind is 'upper'"):
        ImprovementPolicy("upper")
