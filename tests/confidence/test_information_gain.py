"""The realized information gain against its two textbook forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from models.textbook import double
from torch import Tensor

from botorch_bandits.confidence import realized_information_gain


def squared_exponential(points: np.ndarray, lengthscale: float) -> np.ndarray:
    squared = ((points[:, None, :] - points[None, :, :]) ** 2).sum(-1)
    return np.exp(-0.5 * squared / lengthscale**2)


def random_points(num_points: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((num_points, 2))


def by_determinant(K: np.ndarray, lam: float) -> float:
    """``1/2 ln det(I + K / lam)``, through eigenvalues."""
    return 0.5 * float(np.log1p(np.linalg.eigvalsh(K).clip(min=0.0) / lam).sum())


def one_by_one(K: np.ndarray, lam: float) -> float:
    """``1/2 sum_s ln(1 + sigma_{s-1}^2(x_s) / lam)``, each variance from the rows before it."""
    gain = 0.0
    for s in range(len(K)):
        seen = K[:s, :s] + lam * np.eye(s)
        variance = K[s, s] - K[s, :s] @ np.linalg.solve(seen, K[:s, s]) if s else K[s, s]
        gain += 0.5 * math.log(1.0 + variance / lam)
    return gain


@pytest.mark.parametrize("lam", [1e-3, 0.05, 1.0, 30.0])
@pytest.mark.parametrize("num_points", [1, 2, 7, 40])
def test_it_is_half_a_log_determinant_and_a_sum_over_rounds(num_points: int, lam: float) -> None:
    for seed in range(3):
        K = squared_exponential(random_points(num_points, seed), 0.3)
        gain = realized_information_gain(torch.from_numpy(K), lam).item()
        assert gain == pytest.approx(by_determinant(K, lam), rel=1e-9)
        assert gain == pytest.approx(one_by_one(K, lam), rel=1e-9)


def test_without_observations_it_is_zero() -> None:
    empty = torch.empty(0, 0, dtype=torch.float64)
    assert realized_information_gain(empty, 0.1).shape == ()
    assert realized_information_gain(empty, 0.1).item() == 0.0
    batch = realized_information_gain(torch.empty(4, 0, 0, dtype=torch.float64), 0.1)
    assert batch.tolist() == [0.0] * 4
    lams = double([0.1, 1.0])
    assert realized_information_gain(empty, lams).tolist() == [0.0, 0.0]


def test_a_smooth_kernel_of_low_rank_is_no_trouble() -> None:
    # 300 points on a line: the matrix has rank about 18, and lam is far below its scale.
    points = np.linspace(0.0, 1.0, 300)[:, None]
    K = squared_exponential(points, 0.2)
    gain = realized_information_gain(torch.from_numpy(K), 1e-8).item()
    assert gain == pytest.approx(by_determinant(K, 1e-8), rel=1e-6)


def test_single_precision_is_refused() -> None:
    with pytest.raises(TypeError, match=r"kernel_matrix has dtype torch\.float32"):
        realized_information_gain(torch.eye(2), 0.1)


def test_a_matrix_that_is_no_covariance_is_refused() -> None:
    indefinite: Tensor = double([[0.0, 3.0], [3.0, 0.0]])
    with pytest.raises(ModelFittingError, match=r"or lam = 0\.1"):
        realized_information_gain(indefinite, 0.1)


@pytest.mark.parametrize("lam", [0.0, -5.0, float("nan")])
def test_lambda_is_positive(lam: float) -> None:
    with pytest.raises(ValueError, match=f"lam is {lam}; it is a noise variance and must be"):
        realized_information_gain(torch.eye(2, dtype=torch.float64), lam)
