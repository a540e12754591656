"""What pending queries are filled in with: the lemma, distributions of delays, heights of fills."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from botorch_bandits import BanditGP, Censored
from botorch_bandits.confidence import CensoredWidth, KernelizedWidth, PriorSummary
from botorch_bandits.confidence.fills import (
    FILLS,
    Survival,
    share_of_bound,
)
from botorch_bandits.models import condition

# --- the lemma ------------------------------------------------------------------------------


def posterior(
    kernel: Any, scale: float, lam: float, X: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights of the rows in the mean, posterior covariances with the rows, deviations."""
    K, k = kernel(X, X, scale) + lam * np.eye(len(X)), kernel(x, X, scale)
    weights = np.linalg.solve(K, k.T).T
    covariance = k - weights @ kernel(X, X, scale)
    variance = np.diag(kernel(x, x, scale)) - (weights * k).sum(-1)
    return weights, covariance, np.sqrt(np.maximum(variance, 0.0))


@pytest.mark.parametrize("lam", [0.05, 1.3])
def test_the_lemma_on_models_of_the_package(lam: float) -> None:
    low, bound = -2.0, 5.0
    for seed in range(20):
        stream = torch.Generator().manual_seed(seed)
        X = torch.rand(9, 2, dtype=torch.float64, generator=stream)
        Y = low + bound * torch.rand(9, 1, dtype=torch.float64, generator=stream)
        phi = low + bound * torch.rand(4, 1, dtype=torch.float64, generator=stream)
        kernel = MaternKernel(nu=2.5).double()
        base = BanditGP(X[:5], Y[:5], kernel=kernel, noise=lam, prior_mean=low)
        filled, true = (condition(base, X[5:], y) for y in (phi, Y[5:]))
        x = torch.cat([X, torch.rand(50, 2, dtype=torch.float64, generator=stream)])
        moved = (filled.posterior(x).mean - true.posterior(x).mean).abs().squeeze(-1)
        sd = filled.posterior(x).variance.sqrt().squeeze(-1)
        b = bound * share_of_bound(phi - low, bound).squeeze(-1)
        assert bool((moved <= sd / lam * (b * sd[5:9]).sum() * (1 + 1e-9)).all())


# --- how likely an outcome is still to come -------------------------------------------------


def redistributed(arrived: list[float], waiting: list[float], delay: float) -> float:
    """Kaplan and Meier's estimate as Efron has it: mass of a query without outcome moves right."""
    rows = sorted([(u, 0) for u in arrived] + [(a, 1) for a in waiting])
    mass = [1.0 / len(rows)] * len(rows)
    for i, (_, is_waiting) in enumerate(rows):
        others = len(rows) - i - 1
        if is_waiting and others:
            for j in range(i + 1, len(rows)):
                mass[j] += mass[i] / others
            mass[i] = 0.0
    arrived_by = [m for m, (u, waits) in zip(mass, rows, strict=True) if not waits and u <= delay]
    return 1.0 - sum(arrived_by)


@pytest.mark.parametrize("seed", range(40))
def test_the_estimate_against_another_computation_of_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    draw = rng.integers if seed % 2 else lambda low, high, n: low + (high - low) * rng.random(n)
    arrived = [float(u) for u in draw(1, 12, int(rng.integers(0, 25)))]
    waiting = [float(a) for a in draw(1, 12, int(rng.integers(0, 15)))]
    num_longer = int(rng.integers(0, 4))
    found = Survival.estimated(Counter(arrived), waiting, num_longer)
    if not arrived:
        assert found.still_to_come(1.0, 5.0) == 0.0  # nobody has seen an outcome
        return
    for delay in (0.0, 1.0, 2.5, 4.0, 7.0, 11.0, 20.0):
        expected = redistributed(arrived, [*waiting, *[math.inf] * num_longer], delay)
        assert found.beyond(delay) == pytest.approx(expected, abs=1e-12)
    everyone = [*waiting, *[99.0] * num_longer]
    before, after = (redistributed(arrived, everyone, delay) for delay in (3.0, 8.0))
    if before > 1e-9:
        assert found.still_to_come(3.0, 8.0) == pytest.approx(1.0 - after / before, abs=1e-10)


# --- heights --------------------------------------------------------------------------------


def falling(delay: float) -> float:
    return math.exp(-delay)


def too_large(delay: float) -> float:
    return 1.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fill": "mean"}, "fill is 'mean'; it must be one of"),
        ({"fill": "soft", "outcome_bound": None}, "fill='soft' needs outcome_bound="),
        ({"fill": "middle", "minimum": None, "minimum_proxy": 2.0}, "needs minimum="),
        ({"fill": "soft", "on_lower": "lower"}, "does not go with on_lower='lower'"),
        ({"fill": "middle", "delay_distribution": (1.0,)}, "which does not use it"),
        ({"delay_distribution": (1.0,)}, "which does not use it"),
        ({"fill": "soft", "delay_distribution": (0.5, 0.4)}, "sums to 0.9, not 1"),
        ({"fill": "soft", "delay_distribution": (1.5, -0.5)}, "the least of which is -0.5"),
        ({"fill": "soft", "delay_distribution": ()}, "has 0 probabilities"),
        ({"fill": "soft", "delay_distribution": (1.0, math.nan)}, "delay_distribution is nan"),
        ({"fill": "soft", "delay_distribution": falling}, "falls to"),
        ({"fill": "soft", "delay_distribution": too_large}, "gives 1.5 at a delay of 0"),
        (
            {"fill": "soft", "delay_distribution": (0.5, 0.5), "unit": "seconds"},
            "Pass a cumulative distribution function of seconds",
        ),
    ],
)
def test_what_does_not_go_is_an_error_that_names_the_remedy(
    options: dict[str, Any], message: str
) -> None:
    given = {"minimum": 0.0, "outcome_bound": 1.0, **options}
    with pytest.raises(ValueError, match=message):
        Censored(**given)


@pytest.mark.parametrize("distribution", ["poisson", 3.0, {"a": 1.0}])
def test_a_distribution_of_another_kind_is_an_error(distribution: Any) -> None:
    with pytest.raises(TypeError, match="delay_distribution is"):
        Censored(0.0, 1.0, fill="soft", delay_distribution=distribution)


def test_probabilities_may_come_in_an_array() -> None:
    feedback = Censored(0.0, 1.0, fill="soft", delay_distribution=np.array([0.25, 0.75]))
    assert feedback.delay_distribution == (0.25, 0.75)


def test_the_guarantee_says_what_it_assumes() -> None:
    stream = torch.Generator().manual_seed(1)
    X = torch.rand(6, 2, dtype=torch.float64, generator=stream)
    model = BanditGP(X, X[:, :1], kernel=RBFKernel(), noise=1.2)
    for fill in FILLS:
        rule = CensoredWidth(KernelizedWidth(2.0, 0.1, 0.1), 1.0, fill=fill)
        guarantee = rule.guarantee(PriorSummary(model), 1)
        assert guarantee.holds, guarantee.gaps
        between = any("values that fill in pending queries" in a for a in guarantee.assumptions)
        assert between == (fill != "minimum")
        assert ("lemma" in guarantee.theorem) == (fill != "minimum")
