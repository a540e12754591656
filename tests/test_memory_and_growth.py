"""What a run keeps, and how its cost grows, counted and not timed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double, line, normal, uniform
from torch import Tensor

from benchmarks.peak_memory import kept_bytes
from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    Policy,
)
from botorch_bandits.core.posterior import FIRST_ROOM, Posterior, Rows
from botorch_bandits.core.priors import Prior, Stack

CHOICES = line(0, 1, 60)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.1)
BOUNDS = {"rkhs_bound": 20.0, "noise_bound": 0.1}


def play(loop: BanditLoop, num_rounds: int, noise: Tensor) -> None:
    for t in range(loop.history.num_queries, num_rounds):
        query = loop.ask()
        loop.tell(query.id, float(torch.sin(7 * query.x)) + float(noise[t]))


@pytest.mark.slow
@pytest.mark.parametrize("cls", [ImprovedUpperConfidenceBound, GPThompsonSampling])
def test_what_plays_arms_keeps_little_more_than_the_outcomes(cls: Any) -> None:
    loop = Policy(MODEL, cls.with_options(**BOUNDS)).loop(Arms(CHOICES), seed=0)
    noise = 0.1 * normal(1500, seed=0)
    play(loop, 500, noise)
    player = loop._chooser._arms.player
    early = kept_bytes(player)
    play(loop, 1500, noise)
    # number, outcome, weight, place and id of 1000 rounds, in memory that doubles; no row of 60
    assert kept_bytes(player) <= early + 2 * 1000 * 8 * 6 + 2 * 8 * 60 * 64
    assert player.posterior.num_kept <= 2 * 60 + FIRST_ROOM


def test_work_of_a_round_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count kept rows, and factorizations, instead of time."""
    factorized: list[int] = []
    factorize = Posterior.factorize

    def counting(self: Posterior, rows: Rows) -> Posterior:
        factorized.append(len(rows))
        return factorize(self, rows)

    monkeypatch.setattr(Posterior, "factorize", counting)
    kernel = torch.exp(-((CHOICES - CHOICES.T) ** 2) / 0.02)
    lam = double([0.01])
    posterior = Posterior(Stack([Prior.from_matrix(kernel)]), lam)
    arms = torch.randint(20, (3000,), generator=torch.Generator().manual_seed(1))
    rows = Rows(arms, torch.full((3000, 1), 0.5).double(), torch.ones(3000).double())
    kept = [posterior.at(rows[:count]).num_kept for count in range(3001)]
    assert max(kept) <= FIRST_ROOM
    assert max(factorized) <= 20
    assert len(factorized) <= 3000 // 32 + 5


def test_dmm_on_arms_works_with_distinct_arms_only() -> None:
    """After 2000 rounds its eigenproblem is as large as the arms it played, not as the rounds."""
    recipe = DMMUpperConfidenceBound.with_options(**BOUNDS)
    loop = Policy(MODEL, recipe).loop(Arms(CHOICES), seed=0)
    for _ in range(300):
        query = loop.ask()
        loop.tell(query.id, float(torch.sin(7 * query.x)))
    assert loop._chooser._arms is not None
    played = len({float(query.x) for query in loop.history.queries})
    sizes = []
    original = torch.linalg.eigh

    def counting(matrix: Tensor) -> Any:
        sizes.append(matrix.shape[-1])
        return original(matrix)

    torch.linalg.eigh = counting
    try:
        loop.ask()
    finally:
        torch.linalg.eigh = original
    assert sizes == [played]
    assert played < 60


def test_model_on_a_box_keeps_half_a_square() -> None:
    """The factor is triangular: about n^2 / 2 numbers, and the same after each append."""
    X = uniform(700, 2, seed=2)
    Y = torch.sin(5 * X[:, :1])
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3)
    model = recipe(X[:20], Y[:20])
    for n in range(20, 700):
        grown = model.condition_on_observations(X[n : n + 1], Y[n : n + 1])
        assert isinstance(grown, BanditGP)
        model = grown
        model.posterior(X[:1])
        if n in (349, 699):
            kept = kept_bytes(model.closed_form)
            assert kept < 1.3 * 8 * (n + 1) ** 2
