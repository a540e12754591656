"""A loop that forgets plays what dense arithmetic says, and goes on from its history exactly."""

from __future__ import annotations

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from models.textbook import double, line
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPUpperConfidenceBound,
    run,
)
from botorch_bandits.loop import (
    ExponentialWeights,
    Forgetting,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.problems import ArmsProblem, gp_draw_on_arms

CHOICES = line(0, 1, 25)
ARMS, BOX = Arms(CHOICES), Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
LAM, LENGTHSCALE = 0.03, 0.15
MODEL = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=LENGTHSCALE)
UCB = GPUpperConfidenceBound.with_options(width=2.0)
KINDS: dict[str, Forgetting] = {
    "window": SlidingWindow(8),
    "weights": ExponentialWeights(0.8),
    "time": TimeVaryingKernel(0.1),
}
every_kind = pytest.mark.parametrize("name", KINDS)


def problem(noise_std: float = 0.1) -> ArmsProblem:
    kernel = RBFKernel().double()
    kernel.lengthscale = double(LENGTHSCALE)
    return gp_draw_on_arms(kernel, CHOICES, seed=1, noise_std=noise_std)


def test_model_of_the_user_gets_the_window_alone() -> None:
    seen: list[Tensor] = []

    def model(X: Tensor, Y: Tensor) -> SingleTaskGP:
        seen.append(X)
        return SingleTaskGP(X, Y)

    def told(t: int) -> bool:
        return t <= 5 or t > 9

    loop = BanditLoop(BOX, model, UCB, forgetting=SlidingWindow(3))
    for t in range(1, 13):
        query = loop.ask()
        window = [
            q for q in loop.history.queries if t - 3 <= q.round_number < t and told(q.round_number)
        ]
        if window:
            assert query.origin == "acquisition"
            assert torch.equal(seen[-1], torch.stack([q.x for q in window]))
        else:  # a window may be empty again
            assert query.origin == "initial"
        if told(t):
            loop.tell(query.id, float(torch.sin(5 * query.x).sum()))
    assert {q.round_number for q in loop.history.queries if q.origin == "initial"} == {1, 9, 10}


@every_kind
def test_the_guarantee_says_that_something_was_forgotten(name: str) -> None:
    loop = BanditLoop(ARMS, MODEL, GPUpperConfidenceBound.with_options(), forgetting=KINDS[name])
    run(loop, problem(), 12, progress=False)
    guarantee = loop.guarantee()
    assert not guarantee.holds
    assert any("forgets" in gap for gap in guarantee.gaps)
    assert guarantee.regret_bound is None
