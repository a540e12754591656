"""Each width against its formula, written out with plain numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.textbook import double

from botorch_bandits.confidence import (
    BoundedNorm,
    gp_ucb_finite_width,
)
from botorch_bandits.confidence.width_rules import check_scale

NAN, INF = float("nan"), float("inf")
deltas = st.floats(1e-12, 1 - 1e-9)
bounds = st.floats(0.0, 1e6)
exactly = settings(deadline=None, derandomize=True, max_examples=80)


@given(st.integers(1, 10**6), st.integers(1, 10**6), deltas)
@exactly
def test_gp_ucb_on_finitely_many_arms(num_arms: int, round_number: int, delta: float) -> None:
    # 004, Theorem 1: beta_t = 2 ln(|D| t^2 pi^2 / (6 delta)), and the width is its root.
    beta = 2.0 * (
        math.log(num_arms)
        + 2.0 * math.log(round_number)
        + 2.0 * math.log(math.pi)
        - math.log(6.0)
        - math.log(delta)
    )
    width = gp_ucb_finite_width(num_arms, round_number, delta)
    assert width.shape == ()
    assert width.dtype == torch.float64
    assert width.item() ** 2 == pytest.approx(beta, rel=1e-12, abs=1e-12)


def test_a_scale_is_positive() -> None:
    assert check_scale(5**-0.5) == 5**-0.5
    for bad in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"scale is {bad}; it must be greater than 0"):
            check_scale(bad)


@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("bad", [-1e-9, NAN, INF, [1.0, -1.0]])
def test_infeasible_ingredients_are_named(position: int, bad: Any) -> None:
    arguments: list[Any] = [1.0, 1.0, 1.0]
    arguments[position] = double(bad)
    name = ("rkhs_bound", "noise_bound", "information_gain")[position]
    with pytest.raises(ValueError, match=f"{name} is .*; it must be finite and at least 0"):
        BoundedNorm(*arguments[:2], 0.1).width(arguments[2])


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5])
def test_delta_is_a_probability(delta: float) -> None:
    with pytest.raises(ValueError, match=f"delta is {delta}; it must lie strictly between"):
        BoundedNorm(1.0, 1.0, delta)
    with pytest.raises(ValueError, match="delta is"):
        gp_ucb_finite_width(10, 1, delta)


@pytest.mark.parametrize("lam", [0.0, -1.0, NAN, [1.0, 0.0]])
def test_lambda_is_positive(lam: Any) -> None:
    with pytest.raises(ValueError, match=r"lam is .*; it"):
        BoundedNorm(1.0, 1.0, 0.1, double(lam))


def test_arms_and_rounds_count_from_one() -> None:
    with pytest.raises(ValueError, match="num_arms is 0"):
        gp_ucb_finite_width(0, 1, 0.1)
    with pytest.raises(ValueError, match="round_number is 0"):
        gp_ucb_finite_width(10, 0, 0.1)
    with pytest.raises(TypeError, match="round_number must be"):
        gp_ucb_finite_width(10, 1.5, 0.1)  # type: ignore[arg-type]
