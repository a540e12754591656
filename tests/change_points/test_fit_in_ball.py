"""The best fit in a ball against its dual and against functions of the ball."""

import math

import numpy as np
import pytest

from botorch_bandits.change_points.fit_in_ball import log_likelihood_in_ball


def smallest_squares(covariances, places, y, bound, noise=0.01):
    """The smallest sum of squares, from the log likelihood."""
    found = log_likelihood_in_ball(covariances, np.array(places), np.array(y), noise, bound)
    return -noise * (2.0 * found + len(y) * math.log(2.0 * math.pi * noise))


def test_no_function_of_the_ball_fits_better():
    random = np.random.default_rng(7)
    X = np.linspace(0.0, 2.0, 5)[:, None]
    K = np.exp(-0.5 * (X - X.T) ** 2)
    slots = [0, 2, 4, 2, 2, 1, 3, 2]
    y = np.array([0.1, 0.6, -0.4, 0.65, 0.55, 0.7, -0.1, -0.15])
    for bound in (0.3, 0.7, 50.0):
        found = smallest_squares(K, slots, y, bound)
        # the dual at its best over a fine grid of multipliers
        grid = np.concatenate([[1e-13], np.logspace(-6, 4, 4000)])
        full = K[np.ix_(slots, slots)]
        duals = [
            a * (y @ np.linalg.solve(full + a * np.eye(8), y) - bound**2) if a > 1e-12 else 0.0
            for a in grid
        ]
        within = sum((y[np.array(slots) == s].var() * slots.count(s)) for s in set(slots))
        assert found == pytest.approx(max(*duals, within), abs=1e-5)
        for _ in range(200):
            alpha = np.linalg.solve(K, random.standard_normal(5))
            alpha *= bound / math.sqrt(alpha @ K @ alpha)
            assert ((y - (K @ alpha)[slots]) ** 2).sum() >= found - 1e-9


def test_a_singular_kernel_errs_on_the_side_of_no_alarm():
    X = np.array([0.0, 1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 1.0])
    y = np.array([0.3, 0.8, -0.2, 0.85, 0.75, 0.9, 0.1, 0.05])
    places = sorted(set(X))
    K = np.outer(places, places)  # functions are theta x, of norm theta
    for bound in (0.05, 0.5):
        theta = min((X @ y) / (X @ X), bound)
        exact = ((y - theta * X) ** 2).sum()
        found = smallest_squares(K, [places.index(x) for x in X], y, bound)
        assert exact - 1e-6 < found <= exact + 1e-12
