"""Threshold schedules, their units, and calibrated rates checked by simulation anew."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from models.textbook import double, line
from scipy.stats import beta, binom

from botorch_bandits import Arms, Box, ChangePointDetector
from botorch_bandits.change_points import (
    CalibratedThreshold,
    PowerThreshold,
    calibrate_threshold,
    cross_validated_ridge,
    estimate_false_alarm_rate,
)
from botorch_bandits.change_points.calibration import (
    NullStreams,
    binomial_interval,
    fit_to_data,
    level_rank,
)

from . import dense

LINE = Arms(line(0.0, 5.0, 50))
DETECTOR = ChangePointDetector(MaternKernel(nu=2.5), lengthscale=1.0)
SIZES = double([1.0, 7.0, 50.0])


def test_bad_thresholds():
    with pytest.raises(ValueError, match=r"scale is 0\.0"):
        PowerThreshold(scale=0.0)
    with pytest.raises(ValueError, match="exponent is inf"):
        PowerThreshold(exponent=math.inf)


def test_calibrated_threshold_goes_on_beyond_its_horizon():
    threshold = CalibratedThreshold((3.0, 2.0), -0.5, 4, 0.1, 0.95, 100, 5, 0, "an example")
    n = double([1.0, 2.0, 8.0])
    assert threshold.values(n, 2.5, 1).tolist() == [3.0, 2.0, 1.0]


@pytest.mark.parametrize(("k", "m"), [(0, 20), (3, 20), (20, 20), (37, 400)])
def test_binomial_interval(k, m):
    """By its definition: at the bounds, counts as extreme as k have probability 2.5 %."""
    lower, upper = binomial_interval(k, m)
    if k > 0:
        assert binom.sf(k - 1, m, lower) == pytest.approx(0.025)
    if k < m:
        assert binom.cdf(k, m, upper) == pytest.approx(0.025)
    assert (lower == 0.0, upper == 1.0) == (k == 0, k == m)


@pytest.mark.parametrize(("m", "rate"), [(100, 0.1), (1000, 0.05), (59, 0.05)])
def test_level_keeps_the_rate(m, rate):
    rank = level_rank(m, rate, 0.95)
    # P(true rate <= rate) when the level is the j-th largest of m
    assert beta.cdf(rate, rank, m + 1 - rank) >= 0.95
    assert beta.cdf(rate, rank + 1, m - rank) < 0.95
    on_average = level_rank(m, rate, None)
    assert on_average / (m + 1) <= rate < (on_average + 1) / (m + 1)


@pytest.mark.parametrize(("m", "confidence", "needed"), [(58, 0.95, 59), (18, None, 19)])
def test_too_few_simulations(m, confidence, needed):
    with pytest.raises(ValueError, match=f"at least {needed} are needed"):
        level_rank(m, 0.05, confidence)
    assert level_rank(needed, 0.05, confidence) == 1


@pytest.mark.slow
@pytest.mark.parametrize("functions", ["prior", "given"])
def test_calibrated_rate_holds(functions):
    """Simulated anew: the rate is at most the stated one, and of its size."""
    values = torch.stack([torch.sin(LINE.choices[:, 0]), torch.cos(2.0 * LINE.choices[:, 0])])
    settings = {
        "horizon": 16,
        "noise_std": 0.1,
        "functions": values if functions == "given" else None,
        "progress": False,
    }
    threshold = calibrate_threshold(
        DETECTOR, LINE, false_alarm_rate=0.2, num_simulations=400, **settings
    )
    assert threshold.num_alarms == level_rank(threshold.num_simulations, 0.2, 0.95) - 1
    calibrated = dataclasses.replace(DETECTOR, threshold=threshold)
    found = estimate_false_alarm_rate(calibrated, LINE, num_simulations=400, seed=11, **settings)
    # with confidence 95 % the true rate is at most 0.2, and its mean is rank / (M + 1) >= 0.15
    assert binom.sf(found.num_alarms - 1, 400, 0.2) > 0.005
    assert binom.cdf(found.num_alarms, 400, 0.1) > 0.005
    assert (found.lower, found.upper) == binomial_interval(found.num_alarms, 400)


@pytest.mark.slow
def test_alarms_of_the_estimate_are_those_of_a_stream():
    """The same streams through the detector, one sample after the other."""
    detector = dataclasses.replace(DETECTOR, threshold=PowerThreshold(scale=1.0))
    engine = detector.on(LINE)
    streams = NullStreams(engine, horizon=20, noise=0.3, seed=4)
    alarms = 0
    for number in range(30):
        X, y = streams.draw(number)
        tests = [engine.test(X[:t], y[:t]) for t in range(2, 21)]
        alarms += any(test.detected for test in tests)
    found = estimate_false_alarm_rate(
        detector, LINE, horizon=20, noise_std=0.3, num_simulations=30, seed=4, progress=False
    )
    assert 0 < alarms < 30
    assert found.num_alarms == alarms


def test_level_is_in_prior_units():
    """Everything scaled by 3: the same levels, thresholds 9 times as large."""
    scaled = ScaleKernel(MaternKernel(nu=2.5)).double()
    scaled.outputscale = double(9.0)
    other = ChangePointDetector(scaled, lengthscale=1.0, prior_mean=5.0)
    settings = {"horizon": 10, "false_alarm_rate": 0.2, "num_simulations": 60, "progress": False}
    plain = calibrate_threshold(DETECTOR, LINE, noise_std=0.1, **settings)
    large = calibrate_threshold(other, LINE, noise_std=0.3, **settings)
    torch.testing.assert_close(torch.tensor(large.levels), torch.tensor(plain.levels))
    a = dataclasses.replace(DETECTOR, threshold=plain).thresholds(SIZES, 1, 1.0)
    b = dataclasses.replace(other, threshold=large).thresholds(SIZES, 1, 9.0)
    torch.testing.assert_close(b, 9.0 * a)


def test_functions_on_a_box():
    found = estimate_false_alarm_rate(
        DETECTOR, Box([[0.0], [5.0]]), horizon=8, noise_std=0.0, num_simulations=5,
        functions=[lambda X: torch.zeros(len(X), dtype=torch.float64)], progress=False,
    )  # fmt: skip
    assert found.num_alarms == 0  # two fits to zeros are equal


def left_out_errors(X, y, ridge):
    """Leaves out each sample in turn and fits the others, with the same ridge."""
    kernel, errors = dense.matern52(), []
    for i in range(len(y)):
        rest = [j for j in range(len(y)) if j != i]
        fitted = dense.mean_function(kernel, X[rest], y[rest], ridge)
        errors.append(y[i] - fitted(X[i : i + 1])[0])
    return errors


def test_ridge_is_cross_validated():
    random = torch.Generator().manual_seed(0)
    X = LINE.sample(25, random)
    y = torch.sin(X[:, 0]) + 0.3 * torch.randn(25, dtype=torch.float64, generator=random)
    candidates = [0.01, 0.1, 0.3, 1.0, 10.0]
    losses = {
        c: sum(e**2 for e in left_out_errors(X.numpy(), y.numpy(), c * 25 ** (1 / 7)))
        for c in candidates
    }
    best = min(losses, key=losses.__getitem__)
    chosen = cross_validated_ridge(DETECTOR, LINE, X, y, candidates)
    assert chosen == dataclasses.replace(DETECTOR, ridge=best)
    fit = fit_to_data(DETECTOR.on(LINE), X, y, candidates)
    exact = dense.mean_function(dense.matern52(), X.numpy(), y.numpy(), best * 25 ** (1 / 7))
    torch.testing.assert_close(
        fit.mean(LINE.choices), torch.from_numpy(exact(LINE.choices.numpy())), rtol=1e-9, atol=1e-9
    )
    assert abs(float(fit.residuals.mean())) < 1e-12


def test_calibration_from_data_holds():
    """Learned from 80 samples of one function, checked on new streams of the true one."""
    random = torch.Generator().manual_seed(5)
    X = LINE.sample(80, random)
    y = torch.sin(X[:, 0]) + 0.2 * torch.randn(80, dtype=torch.float64, generator=random)
    threshold = calibrate_threshold(
        DETECTOR, LINE, horizon=16, false_alarm_rate=0.2, data=(X, y), num_simulations=400,
        progress=False,
    )  # fmt: skip
    assert "80 samples" in threshold.source
    found = estimate_false_alarm_rate(
        dataclasses.replace(DETECTOR, threshold=threshold), LINE, horizon=16, noise_std=0.2,
        functions=torch.sin(LINE.choices.T), num_simulations=400, progress=False,
    )  # fmt: skip
    # what is learned from 80 samples is not exact: half as much again is allowed for
    assert binom.sf(found.num_alarms - 1, 400, 0.3) > 0.01
    assert found.num_alarms > 0


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"noise_std": None}, ValueError, "noise_std is missing"),
        ({"noise_std": -1.0}, ValueError, "noise_std is -1.0"),
        ({"horizon": 1}, ValueError, "horizon is 1"),
        ({"false_alarm_rate": 1.0}, ValueError, "false_alarm_rate is 1.0"),
        ({"num_simulations": 5}, ValueError, "5 simulations are too few"),
        ({"confidence": 1.0}, ValueError, "confidence is 1.0"),
        ({"functions": torch.zeros(2, 3).double()}, ValueError, "functions must be"),
        ({"functions": []}, ValueError, "functions is empty"),
        ({"data": (LINE.choices[:5], torch.zeros(5).double())}, ValueError, "data replaces"),
        ({"data": (LINE.choices[:2], torch.zeros(2).double()), "noise_std": None}, ValueError,
         "data has 2 samples"),
    ],
    ids=range(10),
)  # fmt: skip
def test_bad_calibrations(changes, error, message):
    settings = {"horizon": 4, "false_alarm_rate": 0.1, "noise_std": 0.1, "num_simulations": 50}
    with pytest.raises(error, match=message):
        calibrate_threshold(DETECTOR, LINE, progress=False, **{**settings, **changes})
