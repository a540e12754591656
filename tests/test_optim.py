"""Several functions minimized together: each as if it were alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from botorch_bandits.optim import Array, Evaluation, Index, minimize_on_unit_cube

SIZES = np.array([1.0, 1e4, 0.0])  # of the functions: tolerances are relative to each


def waves(only: int | None = None) -> Evaluation:
    """Sums of a wave and a bowl, with minima at different places."""

    def evaluate(points: Array, function: Index) -> tuple[Array, Array]:
        assert bool((np.diff(function) >= 0).all())
        number = function if only is None else np.full(len(points), only)
        size, center = SIZES[number][:, None], 0.2 + 0.3 * number[:, None]
        away = points - center
        loss = size * (1.0 - np.cos(9.0 * away) + 2.0 * away**2)
        slope: Any = size * (9.0 * np.sin(9.0 * away) + 4.0 * away)
        return loss.sum(-1), slope

    return evaluate


@pytest.mark.parametrize("has_cheap_gradients", [True, False])
def test_functions_do_not_disturb_each_other(has_cheap_gradients: bool) -> None:
    points = np.random.default_rng(0).random((3 * 8, 2))
    together = minimize_on_unit_cube(
        waves(), points, 100, has_cheap_gradients=has_cheap_gradients, num_functions=3
    )
    assert together is not None
    for i in range(3):
        share = slice(8 * i, 8 * i + 8)
        alone = minimize_on_unit_cube(
            waves(i), points[share], 100, has_cheap_gradients=has_cheap_gradients
        )
        assert alone is not None
        assert np.array_equal(together[0][share], alone[0])
        assert np.array_equal(together[1][share], alone[1])
    best = together[1].reshape(3, 8).min(-1)
    assert np.allclose(best / np.array([1.0, 1e4, 1.0]), 0.0, atol=1e-10)
