"""The gain of observations against its definition, and what is no covariance."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from models.textbook import double, line, squared_exponential
from torch import Tensor

from botorch_bandits.confidence import realized_information_gain


def test_a_smooth_kernel_of_low_rank_is_no_trouble() -> None:
    # 300 points on a line: the matrix has rank about 18, and lam is far below its scale
    points = line(0.0, 1.0, 300)
    K = squared_exponential(0.2)(points, points)
    expected = 0.5 * float(torch.linalg.eigvalsh(K).clamp_min(0.0).div(1e-8).log1p().sum())
    assert realized_information_gain(K, 1e-8).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("matrix", "lam", "error", "message"),
    [
        (torch.eye(2), 0.1, TypeError, r"kernel_matrix has dtype torch\.float32"),
        (double([[0.0, 3.0], [3.0, 0.0]]), 0.1, ModelFittingError, r"or lam = 0\.1"),
        *(
            (torch.eye(2).double(), lam, ValueError, f"lam is {lam}; it is a noise variance and")
            for lam in (0.0, -5.0, math.nan)
        ),
    ],
)
def test_what_is_no_covariance_or_noise_is_refused(
    matrix: Tensor, lam: float, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        realized_information_gain(matrix, lam)
