"""Bounds for a horizon: each formula written out again, and what small runs do against them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from botorch_bandits.confidence.gp_ucb import (
    change_point_rate,
    change_point_spacing,
    gp_ucb_compact_width,
    gp_ucb_finite_width,
    regret_exponent,
)
from botorch_bandits.confidence.horizon import (
    OPTIMISM,
    exact_constraints_bounds,
    gp_ts_regret_bound,
    igp_ucb_regret_bound,
    noisy_constraints_bounds,
    realized_ts_regret_bound,
    regret_bound_of_width,
)
from botorch_bandits.confidence.igp_ucb import BoundedNorm
from botorch_bandits.penalties import Linear


def gain(count: int) -> float:
    """A bound that is easily written down again."""
    return 1.3 * math.log1p(count)


CASES = list(itertools.product([3, 60], [1.0, 4.0], [0.0, 0.7, 2.0]))


def c1_squared(lam: float) -> float:
    return 2.0 / math.log(1.0 + 1.0 / lam)


# --- upper confidence bounds ------------------------------------------------------------------


@pytest.mark.parametrize(("T", "lam", "noise"), CASES)
def test_igp_ucb(T: int, lam: float, noise: float) -> None:
    B, delta = 1.7, 0.05
    w = B + noise * math.sqrt(2 * (gain(T - 1) + 1 + math.log(1 / delta)))
    expected = min(2 * w * math.sqrt(T * min(c1_squared(lam) * gain(T), T)), 2 * B * T)
    found = igp_ucb_regret_bound(T, gain, BoundedNorm(B, noise, delta, lam))
    assert found == pytest.approx(expected, rel=1e-12)
    printed = 2 * w * math.sqrt(4 * (T + 2) * gain(T))  # with lam = 1 + 2 / T
    assert igp_ucb_regret_bound(T, gain, BoundedNorm(B, noise, delta, 1 + 2 / T)) <= printed
    w = B + noise / math.sqrt(lam) * math.sqrt(2 * (gain(T - 1) + math.log(1 / delta)))
    expected = min(2 * w * math.sqrt(T * min(c1_squared(lam) * gain(T), T)), 2 * B * T)
    found = igp_ucb_regret_bound(T, gain, BoundedNorm(B, noise, delta, lam, any_lambda=True))
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("T", [1, 5, 1000])
def test_gp_ucb_has_the_constants_of_theorems_1_and_2(T: int) -> None:
    lam, delta = 0.025, 0.1
    many = lambda count: 1e-3 * gain(count)  # noqa: E731 - so small that no cap applies
    c1 = 8.0 / math.log(1.0 + 1.0 / lam)
    beta = 2 * math.log(50 * T**2 * math.pi**2 / (6 * delta))
    width = gp_ucb_finite_width(50, T, delta)
    expected = math.sqrt(c1 * T * beta * many(T))
    assert regret_bound_of_width(width, T, many, lam) == pytest.approx(expected, rel=1e-12)
    box = gp_ucb_compact_width(2, T, delta, 1.0, 1.0, 3.0)
    expected = math.sqrt(c1 * T * float(box) ** 2 * many(T)) + math.pi**2 / 6
    found = regret_bound_of_width(box, T, many, lam, tail=math.pi**2 / 6)
    assert found == pytest.approx(expected, rel=1e-12)
    assert found <= math.sqrt(c1 * T * float(box) ** 2 * many(T)) + 2.0  # as printed


# --- Thompson sampling ------------------------------------------------------------------------


def optimism_factor(t: int, points: int) -> float:
    return (1 + math.sqrt(2 * math.log(points * t**2))) * (1 + 2 / (OPTIMISM - 1 / t**2))


@pytest.mark.parametrize("T", [1, 2, 3, 70])
@pytest.mark.parametrize("discretized", [False, True])
def test_gp_ts(T: int, discretized: bool) -> None:
    B, R, delta, lam = 900.0, 0.4, 0.05, 2.0  # the norm is so large that 2 B T is no bound
    points = (lambda t: 3 * t) if discretized else 17
    steps, unlikely = [], 0.0
    for t in range(3, T + 1):
        v = B + R * math.sqrt(2 * (gain(t - 1) + 1 + math.log(2 / delta)))
        steps.append(v * optimism_factor(t, 3 * t if discretized else 17))
        unlikely += 2 * B / t**2
    expected = 2 * B * min(T, 2) + unlikely
    expected += math.sqrt(sum(s**2 for s in steps) * min(c1_squared(lam) * gain(T), T))
    expected += math.sqrt(0.5 * math.log(2 / delta) * sum((2 * B + s) ** 2 for s in steps))
    if discretized:
        expected += sum(1 / t**2 for t in range(1, T + 1))
    found = gp_ts_regret_bound(T, gain, BoundedNorm(B, R, delta, lam), points, discretized)
    assert found == pytest.approx(min(expected, 2 * B * T), rel=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_realized_gp_ts(count: int) -> None:
    generator = torch.Generator().manual_seed(count)
    v = (1.0 + torch.rand(count, dtype=torch.float64, generator=generator)).tolist()
    sd = torch.rand(count, dtype=torch.float64, generator=generator).tolist()
    rounds = list(range(1, 2 * count, 2))  # every second round was chosen with all outcomes
    b, s, points, delta = 1e6, 1.5, 8, 0.05
    expected, variance = 0.0, 0.0
    for scale, deviation, t in zip(v, sd, rounds, strict=True):
        if t <= 2:
            expected += b
            continue
        C = scale * optimism_factor(t, points)
        expected += C * deviation + b / t**2
        variance += (b + s * C) ** 2 / 4
    rho = (b + optimism_factor(3, points) * b / 2) ** 2 / 4
    expected += math.sqrt((variance + rho) * math.log((variance + rho) / (rho * delta**2)))
    found = realized_ts_regret_bound(v, sd, rounds, points, b, s, delta)
    assert found == pytest.approx(min(expected, b * count), rel=1e-12)


# --- censored feedback ------------------------------------------------------------------------


@pytest.mark.parametrize("T", [1, 2, 40])
@pytest.mark.parametrize("any_lambda", [False, True])
def test_censored_feedback(T: int, any_lambda: bool) -> None:
    B, R, By, m, rho, delta, lam = 800.0, 0.3, 0.6, 5, 0.8, 0.1, 3.0

    def beta(count: int, level: float) -> float:
        if any_lambda:
            return B + (R + By) / math.sqrt(lam) * math.sqrt(
                2 * (gain(count) + math.log(2 / level))
            )
        return B + (R + By) * math.sqrt(2 * (gain(count) + 1 + math.log(2 / level)))

    slope = By / lam if any_lambda else By
    total = min(c1_squared(lam) * gain(T), T)
    expected = 2 / rho * (beta(T - 1, delta) * math.sqrt(T * total) + m * slope * total)
    assumed = BoundedNorm(B, R, delta, lam, any_lambda, outcome_bound=By)
    delays = {"max_delay": m, "arrival_probability": rho}
    found = igp_ucb_regret_bound(T, gain, assumed, **delays)
    assert found == pytest.approx(min(expected, 2 * B * T), rel=1e-12)

    factors = [optimism_factor(t, 9) / rho for t in range(3, T + 1)]
    betas = [beta(t - 1, delta / 2) for t in range(3, T + 1)]
    expected = 2 * B * min(T, 2) + sum(2 * B / t**2 for t in range(3, T + 1))
    expected += math.sqrt(total * sum((f * b) ** 2 for f, b in zip(factors, betas, strict=True)))
    expected += m * slope * total * max(factors, default=0.0)
    expected += math.sqrt(
        0.5
        * math.log(2 / delta)
        * sum((2 * B + f * (b + m * slope)) ** 2 for f, b in zip(factors, betas, strict=True))
    )
    found = gp_ts_regret_bound(T, gain, assumed, 9, **delays)
    assert found == pytest.approx(min(expected, 2 * B * T), rel=1e-12)


# --- constraints ------------------------------------------------------------------------------


def test_exact_constraints_refuse_a_linear_penalty() -> None:
    with pytest.raises(ValueError, match="penalty is Linear"):
        exact_constraints_bounds(2, 5, gain, BoundedNorm(1.0, 0.1, 0.1), Linear(), 0.0)


def test_a_margin_that_is_too_small_says_which_would_do() -> None:
    given = (10, 20, gain, BoundedNorm(1.0, 0.5, 0.1), 0.3)
    with pytest.raises(ValueError, match=r"slater_margin is 0\.1") as told:
        noisy_constraints_bounds(*given, 0.1, 1.0, 1.0)
    needed = float(str(told.value).split("more than ")[1].split(" with")[0])
    noisy_constraints_bounds(*given, 1.001 * needed, 1.0, 1.0)


# --- change-points ----------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "d"), [(2.5, 1), (1.5, 2)])
def test_rate_and_spacing_of_change_points(a: float, d: int) -> None:
    periods, change = [300, 120, 780], 0.4
    e = (2 * a + 3 * d * (d + 1)) / (4 * a + 2 * d * (d + 1))
    assert regret_exponent(a, d) == pytest.approx(e, rel=1e-14)
    total = sum(t**e for t in periods) * change ** -(2 + 2 / (2 * a + d)) * math.log(1200) ** 3
    assert change_point_rate(periods, change, a, d) == pytest.approx(total, rel=1e-12)
    ratio = math.sqrt(780) / 120
    assert change_point_spacing(periods, None, a, d) == pytest.approx(ratio, rel=1e-14)
    spaced = (math.log(1200) / change) ** (2 + 2 / (2 * a + d)) * ratio
    assert change_point_spacing(periods, change, a, d) == pytest.approx(spaced, rel=1e-12)


# --- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lam": 0.5}, "lam is 0.5, but the printed width"),
        ({"horizon": 0}, "horizon"),
        ({"delta": 1.5}, "delta"),
        ({"rkhs_bound": -1.0}, "rkhs_bound"),
        ({"noise_bound": math.nan}, "noise_bound"),
        ({"information_gain": lambda count: math.nan}, r"information_gain\("),
    ],
)
@pytest.mark.parametrize("bound", [igp_ucb_regret_bound, gp_ts_regret_bound])
def test_bad_arguments_are_named(bound: Any, changed: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        "horizon": 10,
        "information_gain": gain,
        "rkhs_bound": 1.0,
        "noise_bound": 0.1,
        "delta": 0.1,
        "lam": 1.0,
    }
    further = [5] if bound is gp_ts_regret_bound else []
    given |= changed
    first = given.pop("horizon"), given.pop("information_gain")
    with pytest.raises((ValueError, TypeError), match=words):
        bound(*first, BoundedNorm(**given), *further)


def test_arrival_probability_is_one_at_most() -> None:
    with pytest.raises(ValueError, match=r"arrival_probability is 1\.5"):
        igp_ucb_regret_bound(5, gain, BoundedNorm(1.0, 0.1, 0.1), arrival_probability=1.5)
    with pytest.raises(ValueError, match="periods is empty"):
        change_point_spacing([], None, 2.5, 1)


@pytest.mark.parametrize("bound", [igp_ucb_regret_bound, gp_ts_regret_bound])
def test_a_noise_of_1_that_was_rounded_is_one_of_1(bound: Any) -> None:
    further = [5] if bound is gp_ts_regret_bound else []
    found = [
        bound(10, gain, BoundedNorm(1.0, 0.1, 0.1, lam), *further) for lam in (1.0 - 1.2e-16, 1)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-12)
