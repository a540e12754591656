"""`recommend()` where rows are not alike: drift, noise levels of their own, lost or withdrawn rows.

The references are dense algebra on the rows that count, written out here.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.means import ZeroMean

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    ExponentialWeights,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    TimeVaryingKernel,
)
from botorch_bandits.confidence.igp_ucb import SUB_GAUSSIAN_ROWS
from botorch_bandits.loop.recommendation import Recommendation

NOISE, LENGTHSCALE, B, R, DELTA = 0.05, 0.3, 2.0, 0.2, 0.1
GRID = np.linspace(0.0, 1.0, 9)
FINE = np.linspace(0.0, 1.0, 2001)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
BOX = Box([[0.0], [1.0]])
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=B, noise_bound=R, delta=DELTA, any_lambda=True
)
FINITE = GPUpperConfidenceBound.with_options(delta=DELTA)
Array = Any


def make(domain: Any, acquisition: Any = IGP_UCB, model: Any = MODEL, **options: Any) -> BanditLoop:
    return BanditLoop(domain, model, acquisition, clock=itertools.count().__next__, **options)


def outcomes(seed: int, count: int = 14) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    x = GRID[random.integers(len(GRID) - 2, size=count)]
    return x, np.sin(4.0 * x) + 0.2 * random.standard_normal(count)


def rbf(a: Array, b: Array) -> Array:
    return np.exp(-0.5 * (a[:, None] - b[None, :]) ** 2 / LENGTHSCALE**2)


def dense(
    x: Array, y: Array, at: Array, noise: Array | float = NOISE
) -> tuple[Array, Array, float]:
    """Posterior mean, standard deviation and realized gain of rows with their noise variances."""
    N = np.diag(np.broadcast_to(noise, x.shape))
    k, K = rbf(at, x), rbf(x, x)
    variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(K + N, k.T))
    gain = 0.5 * float(np.linalg.slogdet(np.eye(len(x)) + np.linalg.solve(N, K))[1])
    return k @ np.linalg.solve(K + N, y), np.sqrt(variance), gain


def igp_width(gain: float, ratio: float) -> float:
    """For every ``lam``; the ratio is that of noise bound and modeled noise."""
    return B + ratio * math.sqrt(2.0 * (gain + math.log(1.0 / DELTA)))


def check(found: Recommendation, bounds: Any, domain: Any) -> None:
    """What is recommended is that of dense bounds: on a box as well as a fine grid is, or better.

    Args:
        bounds: From points to their mean, standard deviation and width.
    """
    x = np.array(found.point)
    mean, deviation, width = bounds(x)
    assert found.mean == pytest.approx(mean[0], abs=1e-8)
    assert found.standard_deviation == pytest.approx(deviation[0], abs=1e-8)
    assert found.lower_bound == pytest.approx(mean[0] - width * deviation[0], abs=1e-8)
    assert found.upper_bound == pytest.approx(mean[0] + width * deviation[0], abs=1e-8)
    mean, deviation, width = bounds(GRID if domain is ARMS else FINE)
    lower, upper = mean - width * deviation, mean + width * deviation
    most = math.inf if found.trivial_certificate is None else found.trivial_certificate
    difference = found.best_possible - found.lower_bound
    assert found.certificate == pytest.approx(min(difference, most), abs=1e-10)
    if domain is ARMS:
        assert found.arm == lower.argmax()
        assert difference == pytest.approx(upper.max() - lower.max(), abs=1e-8)
    else:  # between the points of the grid it may be better by little
        assert -1e-9 <= found.lower_bound - lower.max() <= 1e-3
        assert -1e-9 <= found.best_possible - upper.max() <= 1e-3
    assert not found.reasons
    assert found.theorem


def noise_at(x: Array) -> Array:
    return 0.02 + 0.3 * x


def rows_of_their_own(X: torch.Tensor, Y: torch.Tensor) -> SingleTaskGP:
    """A user's model whose rows have the noise variances that they are known to have."""
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    kernel.outputscale = torch.tensor(1.0, dtype=torch.float64)
    model = SingleTaskGP(
        X,
        Y,
        torch.from_numpy(noise_at(X.numpy())),
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    )
    return model.requires_grad_(False)


@pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")
@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("seed", range(2))
def test_rows_with_noise_of_their_own(domain: Any, seed: int) -> None:
    x, y = outcomes(seed)
    acquisition = ImprovedUpperConfidenceBound.with_options(
        rkhs_bound=B, noise_bound="model", delta=DELTA, any_lambda=True, assume="fixed prior"
    )
    loop = make(domain, acquisition, rows_of_their_own)
    for place, outcome in zip(x, y, strict=True):
        loop.attach([place], outcome)

    def bounds(at: Array) -> tuple[Array, Array, float]:
        mean, deviation, gain = dense(x, y, at, noise_at(x))
        return mean, deviation, igp_width(gain, 1.0)

    found = loop.recommend()
    check(found, bounds, domain)
    assert SUB_GAUSSIAN_ROWS in found.assumptions
    # as if all had the same noise it would be another number
    assert abs(float(dense(x, y, np.array(found.point))[0][0]) - found.mean) > 1e-4


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
def test_what_is_withdrawn_counts_no_more(domain: Any) -> None:
    x, y = outcomes(3)
    kept = [i for i in range(14) if i not in (2, 9)]
    ratio = R / math.sqrt(NOISE)
    loop = make(domain)
    for i, (place, outcome) in enumerate(zip(x, y, strict=True)):
        loop.attach([place], 9.0 if i in (2, 9) else outcome)
    before = loop.recommend()
    for i in (9, 2):
        loop.retract(i, "the sensor was off")

    def bounds(at: Array) -> tuple[Array, Array, float]:
        mean, deviation, gain = dense(x[kept], y[kept], at)
        return mean, deviation, igp_width(gain, ratio)

    found = loop.recommend()
    check(found, bounds, domain)
    assert before.mean > found.mean + 0.5
    told = [each for each in found.assumptions if "2 outcomes were retracted" in each]
    assert told
    assert "does not depend on their noise" in told[0]
    assert loop.recommend(among="played").arm is None or domain is ARMS


def test_what_is_withdrawn_leaves_its_round_to_a_width_that_counts_rounds() -> None:
    x, y = outcomes(4)
    loop = make(ARMS, FINITE)
    for place, outcome in zip(x, y, strict=True):
        loop.attach([place], outcome)
    loop.retract(5, "typing error")
    kept = [i for i in range(14) if i != 5]

    def bounds(at: Array) -> tuple[Array, Array, float]:
        mean, deviation, _ = dense(x[kept], y[kept], at)
        width = math.sqrt(2.0 * math.log(len(GRID) * 15**2 * math.pi**2 / (6.0 * DELTA)))
        return mean, deviation, width

    check(loop.recommend(), bounds, ARMS)


@pytest.mark.parametrize(
    "acquisition", [IGP_UCB, FINITE], ids=["bounded norm", "draw of the prior"]
)
@pytest.mark.parametrize("avoid", [False, True])
def test_what_was_lost_shrinks_no_bound(acquisition: Any, avoid: bool) -> None:
    loop = make(ARMS, acquisition)
    x, y = [], []
    random = np.random.default_rng(1)
    for i in range(12):
        query = loop.ask()
        if i % 4 == 2:
            loop.tell_failed(query.id, "lost", avoid=avoid)
        else:
            x.append(float(query.x))
            y.append(math.sin(4.0 * x[-1]) + 0.2 * random.standard_normal())
            loop.tell(query.id, y[-1])

    def bounds(at: Array) -> tuple[Array, Array, float]:
        mean, deviation, gain = dense(np.array(x), np.array(y), at)
        finite = math.sqrt(2.0 * math.log(len(GRID) * 13**2 * math.pi**2 / (6.0 * DELTA)))
        width = igp_width(gain, R / math.sqrt(NOISE)) if acquisition is IGP_UCB else finite
        return mean, deviation, width

    found = loop.recommend()
    check(found, bounds, ARMS)
    assert any("failed" in each or "arrived" in each for each in found.assumptions)


@pytest.mark.parametrize("domain", [ARMS, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("name", ["drift", "weights"])
def test_a_model_that_forgets_recommends_the_largest_mean_of_now(name: str, domain: Any) -> None:
    """No theorem is stated for it, so there is no certificate."""
    x, y = outcomes(7)
    rate, discount = 0.2, 0.8
    forgetting = TimeVaryingKernel(rate) if name == "drift" else ExponentialWeights(discount)
    loop = make(domain, forgetting=forgetting)
    for place, outcome in zip(x, y, strict=True):
        loop.attach([place], outcome)
    rounds = np.arange(1.0, 15.0)

    def posterior(at: Array) -> tuple[Array, Array]:
        K, k, N = rbf(x, x), rbf(at, x), np.full(14, NOISE)
        if name == "drift":
            K = K * (1.0 - rate) ** (np.abs(np.subtract.outer(rounds, rounds)) / 2.0)
            k = k * (1.0 - rate) ** ((15.0 - rounds) / 2.0)
        else:
            N = NOISE / discount ** (14.0 - rounds)
        whole = K + np.diag(N)
        variance = 1.0 - np.einsum("ij,ji->i", k, np.linalg.solve(whole, k.T))
        return k @ np.linalg.solve(whole, y), np.sqrt(variance)

    found = loop.recommend()
    mean, deviation = posterior(np.array(found.point))
    assert found.mean == pytest.approx(mean[0], abs=1e-8)
    assert found.standard_deviation == pytest.approx(deviation[0], abs=1e-8)
    if domain is ARMS:
        assert found.arm == posterior(GRID)[0].argmax()
    else:
        assert -1e-9 <= found.mean - posterior(FINE)[0].max() <= 1e-3
    assert found.certificate is None
    assert not found.may_come
    assert any("a model that forgets" in each for each in found.reasons)
    played = loop.recommend(among="played")
    assert played.mean == pytest.approx(posterior(x)[0].max(), abs=1e-8)
