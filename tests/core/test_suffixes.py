"""Suffixes of one stream under many priors, against dense posteriors of the rows of each."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from models.textbook import double

from botorch_bandits.core.suffixes import Suffixes, SuffixPrior


def correlation(smoothness, lengthscale, X, Z):
    r = np.sqrt((((X[:, None] - Z[None]) / lengthscale) ** 2).sum(-1))
    if smoothness == math.inf:
        return np.exp(-0.5 * r**2)
    a = math.sqrt(2.0 * smoothness) * r
    polynomial = {0.5: 1.0, 1.5: 1.0 + a, 2.5: 1.0 + a + a**2 / 3.0}[smoothness]
    return polynomial * np.exp(-a)


def listed_priors(noise):
    """Priors with what their kernel is: (smoothness, lengthscale, scale, noise, mean)."""
    priors, facts = [], []
    for smoothness in (0.5, 1.5, 2.5, math.inf):
        for lengthscale in ([0.3, 0.8], [0.5]):
            for scale, mean in ((0.5, 0.3), (4.0, 0.3), (2.0, 0.0)):
                d = len(lengthscale) if len(lengthscale) > 1 else None
                smooth = RBFKernel(ard_num_dims=d)
                rough = MaternKernel(nu=min(smoothness, 2.5), ard_num_dims=d)
                base = smooth if smoothness == math.inf else rough
                kernel = ScaleKernel(base).double()
                base.lengthscale = double(lengthscale)
                kernel.outputscale = scale
                priors.append(SuffixPrior(kernel, noise * scale, mean))
                facts.append((smoothness, lengthscale, scale, noise * scale, mean))
    linear = LinearKernel().double()
    linear.variance = 0.5
    priors.append(SuffixPrior(linear, 0.2, 0.1))
    facts.append(("linear", None, 0.5, 0.2, 0.1))
    priors.append(SuffixPrior(priors[0].kernel, 5.0 * noise))  # in another ratio to the noise
    facts.append((0.5, [0.3, 0.8], 0.5, 5.0 * noise, 0.0))
    return priors, facts


def covariance(fact, X, Z):
    smoothness, lengthscale, scale, _, _ = fact
    if smoothness == "linear":
        return scale * X @ Z.T
    return scale * correlation(smoothness, np.array(lengthscale), X, Z)


def dense(fact, X, y, x, weights):
    noise, mean = fact[3:]
    if not len(X):
        return mean, covariance(fact, x[None], x[None])[0, 0]
    noisy = covariance(fact, X, X) + np.diag(noise / weights)
    k = covariance(fact, X, x[None])[:, 0]
    solved = np.linalg.solve(noisy, np.stack([y - mean, k], axis=1))
    return mean + k @ solved[:, 0], covariance(fact, x[None], x[None])[0, 0] - k @ solved[:, 1]


@pytest.mark.parametrize("noise", [1e-4, 1e-2, 1e2])
@pytest.mark.parametrize("num_points", [7, None])
def test_each_suffix_predicts_as_a_dense_posterior_of_its_rows(num_points, noise):
    """Rows come in any order, alone or several, with weights, and repeat; a start is dropped."""
    priors, facts = listed_priors(noise)
    random, num_rows = np.random.default_rng(3), 120
    points = random.random((num_points or num_rows, 2))
    played = random.integers(7, size=num_rows) if num_points else np.arange(num_rows)
    X, Y = points[played], random.standard_normal((num_rows, len(priors)))
    weights = random.choice([0.3, 1.0, 7.0], num_rows)
    suffixes, starts, rows, waiting, block = Suffixes(priors, 2), [], [], [], []
    for query in range(1, num_rows):
        starts += [query] if query in (6, 15, 40, 70) else []
        if query == 80:
            starts.remove(15)
        waiting.append(query)
        if random.random() < 0.2:
            continue
        block.append(waiting.pop() if random.random() < 0.7 else waiting.pop(0))
        if random.random() < 0.3:
            continue
        x = torch.as_tensor(X[block])
        means, variances = suffixes.observe(x, Y[block], block, starts, weights[block])
        assert means.shape == variances.shape == (len(block), 1 + len(starts), len(priors))
        for b, now in enumerate(block):
            for i, start in enumerate([0, *starts]):
                mine = [row for row in rows if row >= start]
                for j in range(query % 5, len(facts), 5) if start <= now else ():
                    mean, variance = dense(facts[j], X[mine], Y[mine, j], X[now], weights[mine])
                    # outcomes that the prior does not explain are divided by the noise
                    scale = max(1.0, 1e-3 / noise)
                    assert means[b, i, j] == pytest.approx(mean, abs=1e-8 * scale)
                    assert variances[b, i, j] == pytest.approx(variance, abs=1e-8)
            rows.append(now)
        block = []
    known = X[rows[:9]]
    K = suffixes.covariances(torch.as_tensor(known))
    for j in range(len(facts)):
        np.testing.assert_allclose(K[j], covariance(facts[j], known, known), atol=1e-8)
