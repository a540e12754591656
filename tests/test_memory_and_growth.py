"""What a run keeps, and how its cost grows, counted and not timed."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double, line, uniform

from benchmarks.peak_memory import kept_bytes
from botorch_bandits import (
    BanditGP,
)
from botorch_bandits.core.posterior import FIRST_ROOM, Posterior, Rows
from botorch_bandits.core.priors import Prior, Stack

CHOICES = line(0, 1, 60)


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
