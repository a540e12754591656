"""Regions of hyperparameters: dense likelihoods, extremes on grids, and how often they hold."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from botorch_bandits import BanditGP
from botorch_bandits.change_points.calibration import binomial_interval
from botorch_bandits.confidence.candidates import RefutedListWarning
from botorch_bandits.models import (
    HyperparameterRegion,
    PriorFamily,
    candidate_grid,
    refitted_scores,
)

FAMILY = PriorFamily((0.05, 2.0), scales=(0.2, 5.0), noises=(0.005, 0.5))


def kernel_of(smoothness, A, B, lengthscales):
    distance = np.sqrt((((A[:, None] - B[None]) / np.asarray(lengthscales)) ** 2).sum(-1))
    if smoothness == math.inf:
        return np.exp(-0.5 * distance**2)
    a = math.sqrt(2.0 * smoothness) * distance
    return {0.5: 1.0, 1.5: 1.0 + a, 2.5: 1.0 + a + a**2 / 3.0}[smoothness] * np.exp(-a)


def dense_likelihood(smoothness, X, y, lengthscales, scale, noise, mean=0.0):
    K = scale * kernel_of(smoothness, X, X, lengthscales) + noise * np.eye(len(y))
    r = y - mean
    _, log_determinant = np.linalg.slogdet(2.0 * math.pi * K)
    return -0.5 * (r @ np.linalg.solve(K, r) + log_determinant)


def some_rows(n=12, d=1, seed=0):
    random = np.random.default_rng(seed)
    X = random.random((n, d))
    return X, np.sin(6.0 * X.sum(-1)) + 0.2 * random.standard_normal(n)


def tensors(X, y):
    return torch.as_tensor(X), torch.as_tensor(y)


@pytest.mark.parametrize("smoothness", [0.5, 1.5, 2.5, math.inf])
@pytest.mark.parametrize("num_lengthscales", [1, 2])
def test_likelihood_moments_and_gradients_are_dense_ones(smoothness, num_lengthscales):
    X, y = some_rows(9, 2)
    family = PriorFamily(
        (0.1, 2.0), (0.2, 5.0), (0.01, 0.5), smoothness, num_lengthscales, prior_mean=0.3
    )
    random = np.random.default_rng(1)
    low, high = family.box.numpy()
    thetas = low + random.random((4, family.size)) * (high - low)
    found = family.log_likelihoods(torch.as_tensor(thetas), *tensors(X, y))
    points, pending = random.random((3, 2)), random.random((2, 2))
    for theta, likelihood in zip(thetas, found, strict=True):
        *lengthscales, scale, noise = np.exp(theta)
        assert float(likelihood) == pytest.approx(
            dense_likelihood(smoothness, X, y, lengthscales, scale, noise, 0.3), abs=1e-9
        )
        after_four = dense_likelihood(smoothness, X[:4], y[:4], lengthscales, scale, noise, 0.3)
        later = family.log_likelihoods(
            torch.as_tensor(theta).unsqueeze(0), *tensors(X, y), num_skipped=4
        )
        assert float(later) == pytest.approx(float(likelihood) - after_four, abs=1e-9)
        mean, deviation = family.posterior(
            torch.as_tensor(theta).unsqueeze(0),
            *tensors(X, y),
            torch.as_tensor(points),
            torch.as_tensor(pending),
        )
        known = X
        for i, x in enumerate(points):  # one after the other
            rows = np.concatenate([known, pending, points[:i]])

            def k(A, B, scale=scale, lengthscales=lengthscales):
                return scale * kernel_of(smoothness, A, B, lengthscales)

            alpha = np.linalg.solve(k(known, known) + noise * np.eye(len(known)), y - 0.3)
            assert float(mean[0, i]) == pytest.approx(
                0.3 + (k(x[None], known) @ alpha)[0], abs=1e-9
            )
            cross = k(x[None], rows)[0]
            solved = np.linalg.solve(k(rows, rows) + noise * np.eye(len(rows)), cross)
            assert float(deviation[0, i] ** 2) == pytest.approx(scale - cross @ solved, abs=1e-9)
        recipe = family.recipe(torch.as_tensor(theta))
        model = recipe(torch.as_tensor(X), torch.as_tensor(y).unsqueeze(-1))
        alone = model.posterior(torch.as_tensor(points[:1]))
        assert float(alone.mean) == pytest.approx(float(mean[0, 0]), abs=1e-8)
    theta = torch.as_tensor(thetas[:2]).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda t: family.log_likelihoods(t, *tensors(X, y)), (theta,), atol=1e-6
    )
    assert torch.autograd.gradcheck(
        lambda t: family.posterior(t, *tensors(X, y), torch.as_tensor(points)), (theta,), atol=1e-6
    )


def region_of(X, y, level=0.05, family=FAMILY, **given):
    model = BanditGP.with_candidates(candidate_grid([0.1, 0.3, 0.9], scales=[0.5, 2.0]))(
        torch.as_tensor(X), torch.as_tensor(y).unsqueeze(-1)
    )
    score = model.evidence.log_marginal_likelihood
    return HyperparameterRegion(family, *tensors(X, y), score, level=level, **given), model


def test_the_region_is_where_the_likelihood_is_high_enough():
    X, y = some_rows()
    region, model = region_of(X, y)
    scores = []
    weights = np.full(6, 1.0 / 6.0)
    for entry in model.recipe.candidates:  # of the mixture, densely
        scale = float(entry.kernel.outputscale.detach())
        lengthscale = float(entry.kernel.base_kernel.lengthscale.detach())
        smoothness = getattr(entry.kernel.base_kernel, "nu", math.inf)
        scores.append(dense_likelihood(smoothness, X, y, [lengthscale], scale, entry.noise))
    score = np.logaddexp.reduce(np.log(weights) + scores)
    assert region.score == pytest.approx(score, abs=1e-8)
    assert region.threshold == pytest.approx(score - math.log(20.0), abs=1e-8)
    random = np.random.default_rng(2)
    low, high = FAMILY.box.numpy()
    inside = 0
    for theta in low + random.random((200, 3)) * (high - low):
        lengthscale, scale, noise = np.exp(theta)
        expected = dense_likelihood(2.5, X, y, [lengthscale], scale, noise) > region.threshold
        assert region.contains(torch.as_tensor(theta)) == expected
        inside += expected
    assert 5 <= inside <= 195
    assert all(region.contains(theta) for theta in region.members)
    assert len(region.members) > 30


@pytest.mark.parametrize("seed", [0, 1])
def test_extremes_agree_with_a_dense_grid(seed):
    X, y = some_rows(10, seed=seed)
    region, _ = region_of(X, y, level=0.1)
    low, high = FAMILY.box.numpy()
    axes = [np.linspace(low[i], high[i], size) for i, size in enumerate((81, 41, 41))]
    grid = torch.as_tensor(np.array(list(itertools.product(*axes))))
    with torch.no_grad():
        likelihoods = torch.cat([region.log_likelihoods(part) for part in grid.split(4096)])
    inside = grid[likelihoods > region.threshold]
    assert len(inside) > 100
    assert float(region.log_likelihoods(region.likeliest.unsqueeze(0))) >= float(likelihoods.max())
    steps = (high - low) / (np.array([80, 40, 40]))
    for i, name in enumerate(FAMILY.names):
        smallest, largest = region.range_of(name)
        least, most = float(inside[:, i].min()), float(inside[:, i].max())
        assert math.log(smallest) <= least + 1e-9
        assert math.log(largest) >= most - 1e-9
        assert least - math.log(smallest) <= 1.5 * steps[i]  # and not far beyond the grid's
        assert math.log(largest) - most <= 1.5 * steps[i]
    point = torch.tensor([0.37], dtype=torch.float64)
    for sign in (1.0, -1.0):
        theta, found = region.largest_bound(point, 2.0, sign)
        assert region.contains(theta)
        mean, deviation = FAMILY.posterior(inside, region.X, region.y, point.unsqueeze(0))
        best = float((sign * mean + 2.0 * deviation).max())
        assert best - 1e-9 <= found <= best + 0.1 * abs(best)


def test_the_true_hyperparameters_stay_in_the_region():
    """In all rounds; once with a list that does not have them, once with fits as forecaster."""
    level, num_runs, num_rounds = 0.25, 200, 15
    true = FAMILY.hyperparameters((0.2,), scale=1.3, noise=0.05)
    priors = candidate_grid([0.1, 0.4], scales=[0.5, 2.0], smoothness=(2.5,))
    recipe = BanditGP.with_candidates(priors)
    first = FAMILY.hyperparameters((0.1,), 0.5, priors[0].noise)
    failed = {"list": 0, "fits": 0}
    smallest = {"list": math.inf, "fits": math.inf}
    for run in range(num_runs):
        random = np.random.default_rng(run)
        grid = np.linspace(0.0, 1.0, 21)[:, None]
        K = 1.3 * kernel_of(2.5, grid, grid, [0.2]) + 1e-10 * np.eye(21)
        f, arm = np.linalg.cholesky(K) @ random.standard_normal(21), 10
        X, y = [], []
        for _ in range(num_rounds):  # queries follow what was seen
            X.append(grid[arm])
            y.append(f[arm] + math.sqrt(0.05) * random.standard_normal())
            arm = int(random.integers(21)) if y[-1] < 0.5 else arm
        X, y = tensors(np.array(X), np.array(y))
        densities = FAMILY.log_densities(true.unsqueeze(0), X, y)[0].numpy()
        model = recipe(X, y.unsqueeze(-1))
        # ln Z_s = ln e_s + ln p_s, of any entry
        of_entry = FAMILY.log_densities(first.unsqueeze(0), X, y)[0].numpy().cumsum()
        against = {"list": model.evidence.path[:, 0].numpy() + of_entry}
        if run < 40:
            against["fits"] = np.cumsum(refitted_scores(FAMILY, X, y))
        for name, score in against.items():
            margins = densities.cumsum() - score + math.log(1.0 / level)
            failed[name] += bool((margins <= 0.0).any())
            smallest[name] = min(smallest[name], float(margins.min()))
    for name, count in (("list", num_runs), ("fits", 40)):
        lower, _ = binomial_interval(failed[name], count, confidence=0.99)
        assert lower <= level
        assert failed[name] <= level * count
    assert smallest["list"] < math.log(4.0)  # it does move


def test_refitted_scores_look_at_earlier_outcomes_only():
    X, y = tensors(*some_rows(10))
    scores = refitted_scores(FAMILY, X, y)
    assert len(scores) == 10
    middle = FAMILY.box.mean(0).unsqueeze(0)
    assert scores[0] == pytest.approx(float(FAMILY.log_densities(middle, X[:1], y[:1])))
    changed = y.clone()
    changed[6:] += 3.0
    assert refitted_scores(FAMILY, X, changed)[:6] == scores[:6]
    assert refitted_scores(FAMILY, X, changed)[6] < scores[6]
    assert refitted_scores(FAMILY, X, y, num_skipped=4)[0] == pytest.approx(scores[4], abs=0.2)


def test_skipped_outcomes_are_conditioned_on():
    X, y = some_rows()
    recipe = BanditGP.with_candidates(candidate_grid([0.1, 0.3]), num_skipped=4)
    model = recipe(torch.as_tensor(X), torch.as_tensor(y).unsqueeze(-1))
    region = HyperparameterRegion(
        FAMILY, *tensors(X, y), model.evidence.log_marginal_likelihood, num_skipped=4
    )
    theta = FAMILY.hyperparameters((0.3,), 1.0, 0.05)
    expected = dense_likelihood(2.5, X, y, [0.3], 1.0, 0.05)
    expected -= dense_likelihood(2.5, X[:4], y[:4], [0.3], 1.0, 0.05)
    assert float(region.log_likelihoods(theta.unsqueeze(0))) == pytest.approx(expected, abs=1e-9)


def test_an_empty_region_is_said_and_no_data_leave_all():
    X, y = some_rows()
    wrong = PriorFamily((1.5, 2.0), scales=(0.01, 0.02), noises=(0.001, 0.002))
    region, _ = region_of(X, y, family=wrong)
    assert region.is_refuted
    with pytest.warns(RefutedListWarning, match="no prior of PriorFamily"):
        region.range_of("noise")
    assert len(region.members) == 1
    assert region.maximize(lambda theta: theta[:, 0])[0] is region.likeliest
    nothing = HyperparameterRegion(FAMILY, *tensors(X[:0], y[:0]), 0.0)
    assert nothing.range_of("lengthscale") == pytest.approx((0.05, 2.0))
    assert nothing.range_of("noise") == pytest.approx((0.005, 0.5))


def test_known_hyperparameters_may_be_fixed():
    X, y = some_rows()
    family = PriorFamily((0.05, 2.0), scales=(1.0, 1.0), noises=(0.04, 0.04))
    region, _ = region_of(X, y, family=family)
    assert region.range_of("noise") == pytest.approx((0.04, 0.04))
    smallest, largest = region.range_of("lengthscale")
    grid = np.linspace(math.log(0.05), math.log(2.0), 4001)
    inside = [
        t for t in grid if dense_likelihood(2.5, X, y, [math.exp(t)], 1.0, 0.04) > region.threshold
    ]
    assert math.log(smallest) == pytest.approx(inside[0], abs=2e-3)
    assert math.log(largest) == pytest.approx(inside[-1], abs=2e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengthscales": (0.5, 0.1)}, "the first must not exceed"),
        ({"lengthscales": 0.5}, "lengthscales is 0.5"),
        ({"scales": (0.0, 1.0)}, "scales is 0"),
        ({"noises": (0.1, math.nan)}, "noises is nan"),
        ({"smoothness": 2.0}, "smoothness is 2"),
        ({"num_lengthscales": 0}, "num_lengthscales is 0"),
        ({"prior_mean": math.inf}, "prior_mean is inf"),
    ],
)
def test_families_are_checked(arguments, message):
    given = {"lengthscales": (0.1, 1.0), "scales": (0.1, 1.0), "noises": (0.1, 1.0), **arguments}
    with pytest.raises(ValueError, match=message):
        PriorFamily(**given)


def test_what_a_region_is_asked_is_checked():
    X, y = tensors(*some_rows())
    with pytest.raises(TypeError, match="X"):
        HyperparameterRegion(FAMILY, X.float(), y, 0.0)
    with pytest.raises(ValueError, match="y has the shape"):
        HyperparameterRegion(FAMILY, X, y.unsqueeze(-1), 0.0)
    with pytest.raises(ValueError, match="score is nan"):
        HyperparameterRegion(FAMILY, X, y, math.nan)
    with pytest.raises(ValueError, match="level is 1"):
        HyperparameterRegion(FAMILY, X, y, 0.0, level=1.0)
    with pytest.raises(ValueError, match="num_skipped is 13, but"):
        HyperparameterRegion(FAMILY, X, y, 0.0, num_skipped=13)
    several = PriorFamily((0.1, 1.0), (0.1, 1.0), (0.1, 1.0), num_lengthscales=3)
    with pytest.raises(ValueError, match="num_lengthscales is 3, but"):
        HyperparameterRegion(several, X, y, 0.0)
    region = HyperparameterRegion(FAMILY, X, y, 0.0)
    with pytest.raises(ValueError, match="theta has the shape"):
        region.contains(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="name is 'width'"):
        region.range_of("width")
    with pytest.raises(ValueError, match="lengthscales has 2 entries"):
        FAMILY.hyperparameters((0.1, 0.2), 1.0, 0.1)
