"""Noise of plus or minus a bound, for theorems that need noise of at most that size."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import line

from botorch_bandits.acquisition import GPUpperConfidenceBound, Replicates
from botorch_bandits.core.priors import Prior
from botorch_bandits.domains import Arms
from botorch_bandits.simulation import SimulationResult
from botorch_bandits.simulation.arms import play_arms

CHOICES = line(0.0, 1.0, 11)
LEVEL = 0.3


def played(num_replicates: int, bounded_noise: bool) -> tuple[torch.Tensor, SimulationResult]:
    prior = Prior.from_matrix(RBFKernel().double()(CHOICES).to_dense().detach())
    rule = GPUpperConfidenceBound.with_options(width=2.0).arms_rule(Arms(CHOICES))
    seeds = tuple(range(num_replicates))
    values = torch.stack([(3.0 * CHOICES[:, 0] + seed).sin() for seed in seeds])
    engine = Replicates(rule, [prior], LEVEL**2, [1.0], seeds)
    result = play_arms(engine, values, LEVEL, 40, seeds, bounded_noise=bounded_noise)
    return result.outcomes - values.gather(-1, result.arms), result


@pytest.mark.parametrize("num_replicates", [1, 3])
def test_noise_is_plus_or_minus_its_bound(num_replicates: int) -> None:
    noise, _ = played(num_replicates, bounded_noise=True)
    assert torch.allclose(noise.abs(), torch.full_like(noise, LEVEL), rtol=0.0, atol=1e-12)
    for row in noise:
        assert 8 < int((row > 0).sum()) < 32  # of 40
    gaussian, _ = played(num_replicates, bounded_noise=False)
    assert float(gaussian.abs().max()) > 1.5 * LEVEL
    assert bool((gaussian[:, 0].sign() == noise[:, 0].sign()).all())
