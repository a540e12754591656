"""Loops with constraints in which the evidence is that of the reward alone."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel
from models.textbook import double

from botorch_bandits import (
    AdditiveEpochs,
    BanditGP,
    BanditLoop,
    EvidenceDetector,
    EvidenceRestart,
    LagrangianUpperConfidenceBound,
)
from botorch_bandits.models import DefaultCandidates
from tests.records import rebuilt

from .streams import GRID, PRIOR, UCB, assert_tests_as

BOTH = ("all", "reward")
WEIGHS = LagrangianUpperConfidenceBound.with_options(width=2.0)


def constrained(restart, model=PRIOR, surrogate="relabeled", **more):
    rule = AdditiveEpochs(num_constraints=1, epoch_length=4, surrogate=surrogate)
    settings = {
        "domain": GRID,
        "model": model,
        "acquisition": WEIGHS if surrogate == "separate" else UCB,
        "restart": restart,
        "constraints": rule,
        "seed": 0,
    }
    return BanditLoop(**(settings | more))


def play(loop, num_rounds, reward_changes=10**6, constraint_changes=10**6):
    for n in range(num_rounds):
        query = loop.ask()
        x = float(query.x[0])
        noise = 0.05 * torch.randn(2, generator=torch.Generator().manual_seed(n)).double()
        reward = (-1.0 if n >= reward_changes else 1.0) * math.sin(x) + float(noise[0])
        value = (-1.0 if n >= constraint_changes else 1.0) * math.cos(x) + float(noise[1])
        loop.tell(query.id, reward, constraints=[value])


OWN_KERNELS = MaternKernel(nu=2.5, batch_shape=torch.Size([2])).double()
OWN_KERNELS.lengthscale = double([[[1.0]], [[2.0]]])


@pytest.mark.parametrize("surrogate", ["relabeled", "separate", "fresh", "own kernels"])
def test_tests_are_those_of_a_stream_that_sees_the_rewards(surrogate):
    given = {"surrogate": surrogate}
    if surrogate == "own kernels":
        model = BanditGP.with_kernel(OWN_KERNELS, noise=0.0025)
        given = {"surrogate": "separate", "model": model}
    loop = constrained(EvidenceRestart(outputs="reward"), **given)
    play(loop, 30, reward_changes=15)
    assert_tests_as(EvidenceDetector().on(GRID, PRIOR), loop)
    (reset,) = loop.resets
    assert reset.quantity == "reward"
    assert 16 <= reset.after_round <= 20
    twin = rebuilt(constrained(EvidenceRestart(outputs="reward"), **given), loop.history)
    assert twin.resets == loop.resets
    assert torch.equal(twin.ask().x, loop.ask().x)


def test_change_of_a_constraint_is_seen_only_where_it_is_tested():
    for outputs, expected in (("all", 1), ("reward", 0)):
        loop = constrained(EvidenceRestart(outputs=outputs))
        play(loop, 30, constraint_changes=15)
        assert len(loop.resets) == expected


def test_refusals():
    with pytest.raises(ValueError, match="outputs"):
        EvidenceRestart(outputs="constraints")
    bounds = double([[0.0], [5.0]])
    restart = EvidenceRestart(candidates=DefaultCandidates(bounds))
    with pytest.raises(ValueError, match="outputs='reward' to test"):
        constrained(restart)


def test_guarantee_says_what_is_assumed_of_constraints():
    told = {outputs: EvidenceRestart(outputs=outputs).describe_level(PRIOR) for outputs in BOTH}
    assert "Gaussian, and constraint values, contexts, delays" in told["reward"]
    assert "constraint" not in told["all"]
