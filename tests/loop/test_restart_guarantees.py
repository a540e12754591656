"""What is guaranteed with exploration that never restarts, and with changes that are told."""

from __future__ import annotations

import math
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
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.change_points import NeverRestart, OracleRestart

NORM, NOISE, DELTA = 1.5, 0.2, 0.2
LENGTHSCALE, LAM = 0.15, 0.04
ARMS = torch.linspace(0.0, 1.0, 25, dtype=torch.float64).unsqueeze(-1)
BOUNDS: dict[str, Any] = {"rkhs_bound": NORM, "noise_bound": NOISE, "delta": DELTA}
IGP = ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True)
AMM = AMMUpperConfidenceBound.with_options(**BOUNDS)
THEOREM_1 = GPUpperConfidenceBound.with_options(delta=DELTA)


def gram(A: Tensor, B: Tensor) -> Tensor:
    return torch.exp(-0.5 * (A - B.mT).square() / LENGTHSCALE**2)


def reward_of_norm(norm: float, seed: int) -> Tensor:
    """One value per arm of a function of exactly this norm."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.rand(6, 1, dtype=torch.float64, generator=generator)
    weights = torch.randn(6, dtype=torch.float64, generator=generator)
    squared = weights @ gram(centers, centers) @ weights
    values: Tensor = norm / squared.sqrt() * (gram(ARMS, centers) @ weights)
    return values


def build(acquisition: Any, seed: int = 0, **settings: Any) -> BanditLoop:
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    prior = BanditGP.with_kernel(kernel, noise=LAM)
    return BanditLoop(Arms(ARMS), prior, acquisition, seed=seed, **settings)


def play(loop: BanditLoop, rewards: list[Tensor], seed: int) -> tuple[bool, float]:
    """Play one reward a round; return whether the bands held throughout, and the regret."""
    noise = torch.randn(
        len(rewards), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    held, regret = True, 0.0
    for f, error in zip(rewards, noise.tolist(), strict=True):
        query = loop.ask()
        posterior = loop.current_model().posterior(ARMS)
        mean, sd = posterior.mean.squeeze(-1), posterior.variance.sqrt().squeeze(-1)
        if query.origin == "acquisition":
            width = query.diagnostics["width"]
            held &= bool(((f - mean).abs() <= width * sd + 1e-9).all())
        value = float(f[(ARMS - query.x).abs().squeeze(-1).argmin()])
        regret += float(f.max()) - value
        loop.tell(query.id, value + NOISE * error)
    return held, regret


@pytest.mark.parametrize("acquisition", [IGP, AMM])
def test_exploration_without_restarts_voids_nothing(acquisition: Any) -> None:
    loop = build(acquisition, restart=NeverRestart(exploration=1.0))
    f = reward_of_norm(NORM, seed=1)
    held, regret = play(loop, [f] * 30, seed=2)
    guarantee = loop.guarantee()
    assert guarantee.holds
    explored = sum(query.origin != "acquisition" for query in loop.history.queries)
    assert 3 < explored < 15
    statement = guarantee.regret
    assert statement is not None
    assert (statement.num_rounds, statement.num_others) == (30 - explored, explored)
    assert statement.bound_of_others == pytest.approx(2.0 * NORM * explored)
    assert held
    assert guarantee.regret_bound is not None
    assert regret <= guarantee.regret_bound
    rounds = [query for query in loop.history.queries if query.origin == "acquisition"]
    each = [
        min(2.0 * q.diagnostics["width"] * q.diagnostics["standard_deviation"], 2.0 * NORM)
        for q in rounds
    ]
    assert statement.bound == pytest.approx(math.fsum(each), abs=1e-8)


def test_told_changes_are_an_assumption_and_theorems_on_draws_need_new_draws() -> None:
    restart = OracleRestart(exploration=None, change_points=(4, 9))
    told = build(IGP, restart=restart).guarantee()
    assert told.holds
    assert any("changes after 4, 9 only" in each for each in told.assumptions)
    drawn = build(THEOREM_1, restart=restart).guarantee()
    assert drawn.holds
    assert any("independent of what came before" in each for each in drawn.assumptions)


@pytest.mark.parametrize("acquisition", [IGP, AMM, THEOREM_1])
def test_segments_at_the_whole_delta_each_are_not_guaranteed(acquisition: Any) -> None:
    restart = OracleRestart(exploration=None, change_points=(4, 9), split_delta=False)
    loop = build(acquisition, restart=restart)
    play(loop, [reward_of_norm(NORM, seed=1)] * 12, seed=3)
    assert not loop.guarantee().holds
    assert any("each segment has all of delta" in gap for gap in loop.guarantee().reasons)
