"""The best fit in a ball against its dual and against functions of the ball."""

import math

import numpy as np
import pytest

from botorch_bandits.change_points.fit_in_ball import log_likelihood_in_ball


def smallest_squares(covariances, places, y, bound, weights, noise=0.01):
    """The smallest weighted sum of squares, from the log likelihood."""
    given = covariances, np.array(places), np.array(y), noise, bound, weights
    constant = np.log(2.0 * math.pi * noise / weights).sum()
    return -noise * (2.0 * log_likelihood_in_ball(*given) + constant)


def test_no_function_of_the_ball_fits_better():
    random = np.random.default_rng(7)
    X = np.linspace(0.0, 2.0, 5)[:, None]
    K = np.exp(-0.5 * (X - X.T) ** 2)
    slots = [0, 2, 4, 2, 2, 1, 3, 2]
    y = np.array([0.1, 0.6, -0.4, 0.65, 0.55, 0.7, -0.1, -0.15])
    for bound, weights in ((0.3, np.ones(8)), (0.7, 5.0 * random.random(8)), (50.0, np.ones(8))):
        found = smallest_squares(K, slots, y, bound, weights)
        # the dual at its best over a fine grid of multipliers
        full = K[np.ix_(slots, slots)]
        duals = [
            a * (y @ np.linalg.solve(full + np.diag(a / weights), y) - bound**2)
            for a in np.logspace(-9, 4, 5200)
        ]
        assert found == pytest.approx(max(duals), abs=1e-5)
        for _ in range(200):
            alpha = np.linalg.solve(K, random.standard_normal(5))
            alpha *= bound / math.sqrt(alpha @ K @ alpha)
            assert weights @ (y - (K @ alpha)[slots]) ** 2 >= found - 1e-9


def test_a_singular_kernel_errs_on_the_side_of_no_alarm():
    X = np.array([0.0, 1.0, 2.0, 1.0, 1.0, 0.5, 1.0, 1.0])
    y = np.array([0.3, 0.8, -0.2, 0.85, 0.75, 0.9, 0.1, 0.05])
    places = sorted(set(X))
    K = np.outer(places, places)  # functions are theta x, of norm theta
    for bound in (0.05, 0.5):
        theta = min((X @ y) / (X @ X), bound)
        exact = ((y - theta * X) ** 2).sum()
        found = smallest_squares(K, [places.index(x) for x in X], y, bound, np.ones(8))
        assert exact - 1e-6 < found <= exact + 1e-12
