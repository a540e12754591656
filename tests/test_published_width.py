"""The settings of the released code of Verma, Dai and Low 2022, against dense computations.

Its width is ``1 + B_y`` times the sum of posterior deviations as they are, noise included, over the
last ``m`` queries, whatever the prior variance; its draws are those of the posterior as it is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double, line

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits.confidence import CensoredWidth, ConstantWidth, KernelizedWidth

LENGTHSCALE, NOISE, MINIMUM, BOUND, M = 0.2, 0.05, -1.0, 1.4, 4
VARIANCES = (0.3, 1.0, 2.7)
CHOICES = line(0, 1, 12)
REWARDS = (0.4, None, -0.6, None, None)
"""None: censored."""
UCB = GPUpperConfidenceBound.with_options(width=1.0)


def kernel(variance: float) -> ScaleKernel:
    scaled = ScaleKernel(RBFKernel()).double()
    scaled.base_kernel.lengthscale = double(LENGTHSCALE)
    scaled.outputscale = double(variance)
    return scaled


def dense(
    rows: np.ndarray, labels: np.ndarray, points: np.ndarray, variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of f at points, from rows with labels, by a solve."""

    def k(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return variance * np.exp(-((a - b.T) ** 2) / (2.0 * LENGTHSCALE**2))

    weights = np.linalg.solve(k(rows, rows) + NOISE * np.eye(len(rows)), k(rows, points)).T
    mean = MINIMUM + weights @ (labels - MINIMUM)
    return mean, k(points, points) - weights @ k(rows, points)


def published_width(rows: np.ndarray, variance: float) -> float:
    _, covariance = dense(rows, np.zeros(len(rows)), rows[-M:], variance)
    return 1.0 + BOUND * float(np.sqrt(np.diag(covariance) + NOISE).sum())


def labels() -> np.ndarray:
    return np.array([MINIMUM if reward is None else reward for reward in REWARDS])


def build(domain: Any, acquisition: Any, variance: float, **options: Any) -> BanditLoop:
    feedback = Censored(MINIMUM, BOUND, max_delay=M, **Censored.as_published)
    recipe = BanditGP.with_kernel(kernel(variance), noise=NOISE, prior_mean=MINIMUM)
    loop = BanditLoop(domain, recipe, acquisition, feedback=feedback, seed=3, **options)
    for reward in REWARDS:
        query = loop.ask(**({"context": [0.0]} if options else {}))
        if reward is not None:
            loop.tell(query.id, reward)
    return loop


DOMAINS = {"arms": Arms(CHOICES), "box": Box([[0.0], [1.0]], num_restarts=4, raw_samples=64)}


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("domain", [*DOMAINS, "arms with contexts"])
def test_the_width_of_the_loop(domain: str, variance: float) -> None:
    more = {"context_dim": 1} if domain == "arms with contexts" else {}
    loop = build(DOMAINS.get(domain, DOMAINS["arms"]), UCB, variance, **more)
    query = loop.ask(**({"context": [0.0]} if more else {}))
    rows = torch.stack([each.x for each in loop.history.queries[:-1]]).numpy()
    known = query.diagnostics
    assert known["width"] == pytest.approx(published_width(rows, variance), abs=1e-8)
    mean, covariance = dense(rows, labels(), query.x.numpy()[None], variance)
    deviation = math.sqrt(covariance.item() + NOISE)
    assert known["standard_deviation"] == pytest.approx(deviation, abs=1e-8)
    value = mean.item() + known["width"] * deviation
    assert known["acquisition_value"] == pytest.approx(value, abs=1e-8)
    gaps = loop.guarantee().gaps
    assert "the terms of pending queries are those of the published code" in gaps
    assert "standard deviations include the noise" in gaps


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="sum_form is 'raw'"):
        Censored(0.0, sum_form="raw")
    feedback = Censored(0.0, 1.0, max_delay=3, **Censored.as_published)
    improved = ImprovedUpperConfidenceBound.with_options(rkhs_bound=1.0, noise_bound=0.1)
    randomized = RandomizedUpperConfidenceBound.with_options()
    for acquisition, message in (
        (improved, "constant width"),
        (randomized, "predictive=True is for"),
    ):
        with pytest.raises(ValueError, match=message):
            BanditLoop(
                Arms(CHOICES),
                BanditGP.with_kernel(RBFKernel(), noise=NOISE),
                acquisition,
                feedback=feedback,
            )
    for rule, more in (
        (KernelizedWidth(1.0, 0.1, 0.1), {}),
        (ConstantWidth(1.0), {"any_lambda": True}),
    ):
        with pytest.raises(ValueError, match="goes with a constant"):
            CensoredWidth(rule, 1.0, **more, sum_form="published")
