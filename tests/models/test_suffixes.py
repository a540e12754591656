"""Suffixes of one stream under many priors, against dense posteriors of the rows of each."""

import math

import numpy as np
import pytest
import torch
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

from botorch_bandits.models.suffixes import ArmsSuffixes, RowsSuffixes, SuffixPrior

NUM_ROWS, OPENED = 34, (6, 15)
SIDES = np.array([2.0, 5.0])


def correlation(smoothness, lengthscale, X, Z):
    r = np.sqrt((((X[:, None] - Z[None]) / lengthscale) ** 2).sum(-1))
    if smoothness == math.inf:
        return np.exp(-0.5 * r**2)
    a = math.sqrt(2.0 * smoothness) * r
    polynomial = {0.5: 1.0, 1.5: 1.0 + a, 2.5: 1.0 + a + a**2 / 3.0}[smoothness]
    return polynomial * np.exp(-a)


def listed_priors():
    """Priors with what their kernel is: (smoothness, lengthscale, scale, noise, mean, inputs)."""
    normalized = Normalize(2, bounds=torch.tensor([[0.0, 0.0], SIDES.tolist()]).double()).eval()
    priors, facts = [], []
    for smoothness in (0.5, 1.5, 2.5, math.inf):
        for lengthscale in ([0.3, 0.8], [0.5]):
            for ratio, scales, mean in ((0.01, (0.5, 4.0), 0.3), (0.1, (0.5, 2.0, 9.0), 0.0)):
                for scale in scales:
                    d = len(lengthscale) if len(lengthscale) > 1 else None
                    base = (
                        RBFKernel(ard_num_dims=d)
                        if smoothness == math.inf
                        else MaternKernel(nu=smoothness, ard_num_dims=d)
                    )
                    kernel = ScaleKernel(base).double()
                    base.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
                    kernel.outputscale = scale
                    # a transform of its own, as recipes have that were copied
                    transform = Normalize(2, bounds=normalized.bounds.clone()).eval()
                    priors.append(SuffixPrior(kernel, ratio * scale, mean, transform))
                    facts.append((smoothness, lengthscale, scale, ratio * scale, mean, SIDES))
    linear = LinearKernel().double()
    linear.variance = 0.5
    priors.append(SuffixPrior(linear, 0.2, 0.1))
    facts.append(("linear", None, 0.5, 0.2, 0.1, np.ones(2)))
    matern = MaternKernel(nu=2.5).double()
    matern.lengthscale = 1.5
    priors.append(SuffixPrior(matern, 0.05))  # on raw inputs
    facts.append((2.5, [1.5], 1.0, 0.05, 0.0, np.ones(2)))
    return priors, facts


def covariance(fact, X, Z):
    smoothness, lengthscale, scale, _, _, sides = fact
    if smoothness == "linear":
        return scale * X @ Z.T
    return scale * correlation(smoothness, np.array(lengthscale), X / sides, Z / sides)


def dense(fact, X, y, x):
    noise, mean = fact[3:5]
    if not len(X):
        return mean, covariance(fact, x[None], x[None])[0, 0]
    noisy = covariance(fact, X, X) + noise * np.eye(len(X))
    k = covariance(fact, X, x[None])[:, 0]
    solved = np.linalg.solve(noisy, np.stack([y - mean, k], axis=1))
    return mean + k @ solved[:, 0], covariance(fact, x[None], x[None])[0, 0] - k @ solved[:, 1]


@pytest.mark.parametrize("on_arms", [True, False])
def test_each_suffix_predicts_as_a_dense_posterior_of_its_rows(on_arms):
    priors, facts = listed_priors()
    random = np.random.default_rng(3)
    arms = random.random((7, 2)) * SIDES
    played = random.integers(7, size=NUM_ROWS)
    X = arms[played] if on_arms else random.random((NUM_ROWS, 2)) * SIDES
    if not on_arms:
        X[20:24] = X[3]  # rows that repeat
    outcomes = random.standard_normal((NUM_ROWS, len(priors)))
    choices = torch.as_tensor(arms)
    posteriors = ArmsSuffixes(priors, choices) if on_arms else RowsSuffixes(priors)
    starts = [0]
    for t in range(NUM_ROWS):
        if t in OPENED:
            posteriors.open()
            starts.append(t)
        located = torch.tensor(float(played[t])) if on_arms else torch.as_tensor(X[t])
        means, variances = posteriors.observe(located, outcomes[t], len(starts))
        for i, start in enumerate(starts):
            rows = slice(start, t)
            for j, fact in enumerate(facts):
                mean, variance = dense(fact, X[rows], outcomes[rows, j], X[t])
                assert means[i, j] == pytest.approx(mean, abs=1e-9)
                assert variances[i, j] == pytest.approx(variance, abs=1e-9)


def test_priors_that_differ_in_scale_alone_share_their_matrices():
    priors, _ = listed_priors()
    posteriors = RowsSuffixes(priors)
    # 4 smoothnesses with 2 lengthscales, the linear kernel, and the one on raw inputs
    assert len(posteriors._kernels) == 4 * 2 + 2
    assert [len(matrices) for matrices in posteriors._matrices] == [4 * 2 * 2 + 2]
