"""Loops on another device choose the points that they choose on the CPU, with the same widths."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double
from other_device import other_device
from pairwise import by_day
from torch import Tensor

from benchmarks.combinations import WAYS, Combination, World, build_loop, domain_of
from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    ExponentialWeights,
    GPUpperConfidenceBound,
)

NUM_ROWS, NUM_ARMS, NUM_ROUNDS = 40, 60, 4


def play(one: Combination, device: str) -> tuple[BanditLoop, Tensor]:
    """Return the loop and what it asked for in a few rounds, on the CPU.

    Args:
        one: Its settings.
        device: Of its domain.
    """
    world = World(one)
    domain = domain_of(one, NUM_ARMS, device)
    loop = build_loop(one, domain, world.history(domain))
    assert domain.sample(1, torch.Generator().manual_seed(0)).device.type == device
    points = []
    # On a box two rounds are enough: the second is on what the first one added to the model.
    for _ in range(NUM_ROUNDS if one.on_arms else 2):
        context = world.context()
        query = loop.ask(context)
        points.append(query.x.cpu())
        reward, constraints = world.outcome(query.x.cpu(), context)
        loop.tell(query.id, reward, constraints)
    return loop, torch.stack(points)


BOX, CONTEXT = {"domain": "box"}, {"contexts": "one"}
FEW = [
    Combination(NUM_ROWS, **settings)
    for settings in (
        *({"acquisition": name} for name in WAYS),
        *({"acquisition": name, **BOX} for name in ("EI", "GP-TS", "DMM", "list, TS")),
        {"feedback": "censored", **CONTEXT},
        {"feedback": "censored", "constraints": "separate"},
        {"feedback": "ignored", "constraints": "primal-dual"},
        {"feedback": "hallucinated", "restart": "evidence", **BOX},
        {"restart": "evidence", "constraints": "relabeled", **CONTEXT},
        {"restart": "halves", "constraints": "fresh", **BOX},
        {"forgetting": "window", "constraints": "fresh"},
        {"forgetting": "weights", **CONTEXT, **BOX},
        {"forgetting": "time", "contexts": "product"},
    )
]
"""Every setting and every acquisition."""


def draws_otherwise(one: Combination) -> bool:
    """Whether a seed gives other draws on a device than on the CPU, though the same each time.

    Args:
        one: The settings. The weights of a function drawn on a box come from the device's
            generator; on arms, a stream in NumPy draws with contexts or when rows are forgotten.
    """
    if "TS" not in one.acquisition:
        return False
    plain = ("none", "none")
    has_stream = one.acquisition == "GP-TS" and (one.contexts, one.forgetting) != plain
    return not one.on_arms or has_stream


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("one", by_day(FEW), ids=lambda one: one.key)
def test_loops_choose_the_same_points(one: Combination) -> None:
    host, expected = play(one, "cpu")
    with other_device() as name:
        device, found = play(one, name)
    if draws_otherwise(one):
        with other_device() as name:
            expected = play(one, name)[1]
        torch.testing.assert_close(found, expected, atol=0, rtol=0)
        return
    # Searches of a box end within their tolerance of the maximum.
    torch.testing.assert_close(found, expected, atol=1e-8 if one.on_arms else 1e-3, rtol=0)
    for ours, theirs in zip(device.history.queries, host.history.queries, strict=True):
        # The engine on arms, which only the CPU uses for these, records additional diagnostics.
        for name in theirs.diagnostics.keys() & ours.diagnostics.keys():
            value = theirs.diagnostics[name]
            assert ours.diagnostics[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name


def test_fading_outcomes_have_their_own_weights_on_a_device() -> None:
    with other_device() as name:
        box = Box(double([[0.0], [1.0]]).to(name), num_restarts=1)
        model = BanditGP.with_kernel(RBFKernel(), noise=0.04)
        rule = GPUpperConfidenceBound.with_options(width=2.0)
        loop = BanditLoop(box, model, rule, forgetting=ExponentialWeights(0.5))
        loop.attach([0.2], 1.0, count=4)
        loop.attach([0.4], 1.0)
        assert loop.current_model().repeats.cpu().tolist() == pytest.approx([2.0, 1.0])
