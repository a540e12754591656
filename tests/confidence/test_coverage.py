"""The widths cover: the theorems' statements, checked on many functions of known norm.

All functions of one experiment are one batched model, so that an experiment takes a second. The
number of runs that fail is compared with binomial quantiles: a correct program would be refused
for at most one seed in a million.
"""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel
from scipy.stats import binom
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.confidence import FiniteArmsWidth, KernelizedWidth, PriorSummary, WidthRule

NUM_RUNS, NUM_ARMS, NUM_ROUNDS, DELTA = 300, 30, 20, 0.1
LENGTHSCALE = 0.2
ARMS = torch.linspace(0.0, 1.0, NUM_ARMS, dtype=torch.float64).unsqueeze(-1)
MOST_FAILURES = int(binom.ppf(1 - 1e-6, NUM_RUNS, DELTA))  # 57 of 300: 10 % plus 9 %


def gram(A: Tensor, B: Tensor) -> Tensor:
    return torch.exp(-0.5 * (A - B.mT).square() / LENGTHSCALE**2)


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def functions_of_norm(norm: float, seed: int) -> Tensor:
    """``runs x arms`` values of ``f = sum_i a_i k(c_i, .)``, with ``a' K a = norm ** 2``."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.rand(NUM_RUNS, 8, 1, dtype=torch.float64, generator=generator)
    weights = normal(NUM_RUNS, 8, 1, seed=seed + 1)
    squared = (weights * (gram(centers, centers) @ weights)).sum((-2, -1))
    values = (gram(ARMS, centers) @ weights).squeeze(-1)
    return norm * values / squared.sqrt().unsqueeze(-1)


def failures(f: Tensor, rule: WidthRule, lam: float, noise_std: float, seed: int) -> int:
    """In how many runs the bound fails at some arm in some round, with arms played at random."""
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    played = torch.randint(NUM_ARMS, (NUM_RUNS, NUM_ROUNDS), generator=generator)
    y = f.gather(1, played) + noise_std * normal(NUM_RUNS, NUM_ROUNDS, seed=seed + 1)
    failed = torch.zeros(NUM_RUNS, dtype=torch.bool)
    with torch.no_grad():
        for t in range(NUM_ROUNDS + 1):
            model = BanditGP(ARMS[played[:, :t]], y[:, :t].unsqueeze(-1), kernel, lam)
            posterior = model.posterior(ARMS)
            mean, sd = posterior.mean.squeeze(-1), posterior.variance.sqrt().squeeze(-1)
            width = rule.width(PriorSummary(model), round_number=t + 1).reshape(-1, 1)
            failed |= ((f - mean).abs() > width * sd + 1e-9).any(-1)
    return int(failed.sum())


def test_the_general_width_covers_functions_of_bounded_norm_at_small_lambda() -> None:
    f = functions_of_norm(1.0, seed=0)
    rule = KernelizedWidth(1.0, 0.5, DELTA, any_lambda=True)
    assert failures(f, rule, lam=0.05, noise_std=0.5, seed=10) <= MOST_FAILURES
    # The experiment can tell: less norm and noise than there are is refused.
    understated = KernelizedWidth(0.0, 0.15, DELTA, any_lambda=True)
    assert failures(f, understated, lam=0.05, noise_std=0.5, seed=10) > NUM_RUNS / 2


def test_the_norm_is_needed_before_the_first_round() -> None:
    # |f| <= B at every arm is all that is known without data; three tenths of B are not enough.
    f = functions_of_norm(2.0, seed=1)
    rule = KernelizedWidth(2.0, 0.01, DELTA, any_lambda=True)
    assert failures(f, rule, lam=0.05, noise_std=0.01, seed=11) <= MOST_FAILURES
    too_small = KernelizedWidth(0.6, 0.01, DELTA, any_lambda=True)
    assert failures(f, too_small, lam=0.05, noise_std=0.01, seed=11) > NUM_RUNS / 2


@pytest.mark.slow
def test_the_printed_width_covers_from_lambda_one_upwards() -> None:
    for lam in (1.0, 1.0 + 2.0 / NUM_ROUNDS):
        f = functions_of_norm(1.0, seed=2)
        rule = KernelizedWidth(1.0, 0.5, DELTA)
        assert failures(f, rule, lam=lam, noise_std=0.5, seed=12) <= MOST_FAILURES


@pytest.mark.slow
def test_the_printed_width_fails_below_lambda_one_where_the_general_one_holds() -> None:
    # lam = R^2 as in the experiments of the literature, and nothing but noise: f = 0, B = 0.
    zero = torch.zeros(NUM_RUNS, NUM_ARMS, dtype=torch.float64)
    printed = KernelizedWidth(0.0, 0.1, DELTA)
    general = KernelizedWidth(0.0, 0.1, DELTA, any_lambda=True)
    assert failures(zero, printed, lam=0.01, noise_std=0.1, seed=13) > 0.9 * NUM_RUNS
    assert failures(zero, general, lam=0.01, noise_std=0.1, seed=13) <= MOST_FAILURES


@pytest.mark.slow
def test_gp_ucb_covers_draws_of_the_prior() -> None:
    eigenvalues, eigenvectors = torch.linalg.eigh(gram(ARMS, ARMS))
    root = eigenvectors * eigenvalues.clamp_min(0.0).sqrt()
    f = normal(NUM_RUNS, NUM_ARMS, seed=3) @ root.mT
    rule = FiniteArmsWidth(NUM_ARMS, DELTA)
    assert failures(f, rule, lam=0.05, noise_std=math.sqrt(0.05), seed=14) <= MOST_FAILURES
    # The experiment can tell: without the union over arms and rounds the bound fails.
    one_arm = FiniteArmsWidth(1, 0.9)
    assert failures(f, one_arm, lam=0.05, noise_std=math.sqrt(0.05), seed=14) > MOST_FAILURES
