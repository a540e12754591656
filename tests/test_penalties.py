"""Penalty functions: their values, their properties, and refusals that name the property."""

import math

import numpy as np
import pytest
import torch
from models.textbook import double

from botorch_bandits import Exponential
from botorch_bandits.penalties import (
    CustomPenalty,
    Linear,
    PenaltyPropertyError,
    Polynomial,
    check_penalty_properties,
)

X = double([-3.0, -1e-12, 0.0, 1e-9, 0.2, 1.0, 2.5])
PENALTIES = [
    (Polynomial(c=0.7, n=1.0), lambda x: 0.7 * x + 1.0),
    (Polynomial(c=2.0, n=2.5), lambda x: (2.0 * x + 1.0) ** 2.5),
    (Exponential(c=3.0), lambda x: math.exp(3.0 * x)),
]
IDS = ["line", "polynomial", "exponential"]


@pytest.mark.parametrize(("penalty", "formula"), PENALTIES, ids=IDS)
def test_values_are_those_of_the_formula(penalty, formula):
    expected = np.array([formula(x) if x > 0.0 else 1.0 for x in X.tolist()])
    np.testing.assert_allclose(penalty.value(X), expected, rtol=1e-14)
    np.testing.assert_allclose(penalty.log_value(X), np.log(expected), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(penalty.excess(X), expected - 1.0, rtol=1e-12, atol=1e-15)
    # a met constraint costs nothing, to the last digit; c is inside psi and not outside
    assert penalty.value(X[:3]).tolist() == [1.0, 1.0, 1.0]
    assert penalty.excess(X[:3]).tolist() == [0.0, 0.0, 0.0]
    assert penalty.excess(X[3]) > 0.0


@pytest.mark.parametrize(("penalty", "formula"), PENALTIES, ids=IDS)
def test_gradients_and_properties(penalty, formula):
    x = X[[0, 4, 5, 6]].clone().requires_grad_()
    for function in (penalty.value, penalty.log_value, penalty.excess):
        assert torch.autograd.gradcheck(function, (x,))
    check_penalty_properties(penalty, largest=4.0, num_points=80)


def test_linear_penalty_is_the_constraint_itself():
    assert torch.equal(Linear().excess(X), X)
    assert torch.equal(Linear().value(X), 1.0 + X)
    with pytest.raises(PenaltyPropertyError, match="1 for x <="):
        Linear().log_value(X)
    with pytest.raises(PenaltyPropertyError, match="1 for x <="):
        check_penalty_properties(Linear(), largest=0.5)


def test_logarithms_do_not_overflow():
    far = double([1e6])
    assert Exponential(c=2.0).log_value(far).item() == 2e6
    assert math.isclose(Polynomial(1.0, 90.0).log_value(far).item(), 90.0 * math.log1p(1e6))
    assert Exponential(c=2.0).value(far).isinf().all()


def test_custom_penalty_is_used_as_given():
    penalty = CustomPenalty(
        lambda x: x.clamp_min(0.0).exp(), log_function=lambda x: x.clamp_min(0.0)
    )
    torch.testing.assert_close(penalty.value(X), Exponential(1.0).value(X))
    torch.testing.assert_close(penalty.excess(X), Exponential(1.0).excess(X))
    assert penalty.log_value(double([900.0])).item() == 900.0
    bare = CustomPenalty(lambda x: (1.0 + x.clamp_min(0.0)) ** 2)
    torch.testing.assert_close(bare.log_value(X), Polynomial(1.0, 2.0).log_value(X))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.exp(), "psi is not 1 for x <= 0"),
        (lambda x: 2.0 + x.clamp_min(0.0), "psi is not 1 for x <= 0"),
        (lambda x: torch.ones_like(x), "psi is not strictly increasing on x >= 0"),
        (lambda x: 1.0 + x.clamp(0.0, 1.0), "psi is not strictly increasing on x >= 0"),
        (lambda x: 1.0 + x.clamp_min(0.0).sqrt(), "psi is not convex"),
        # convex and increasing, but it grows faster than any exponential
        (lambda x: x.clamp_min(0.0).square().exp(), r"psi\(x\) psi\(y\) >= psi\(x \+ y\) fails"),
        (lambda x: (400.0 * x.clamp_min(0.0)).exp(), "psi is not finite at x = .*largest="),
    ],
    ids=["below 0", "above 1 at 0", "constant", "flat", "concave", "too fast", "overflow"],
)
def test_missing_property_is_named(function, message):
    with pytest.raises(PenaltyPropertyError, match=message):
        CustomPenalty(function)


def test_bad_functions_and_constants_are_refused():
    with pytest.raises(TypeError, match=r"map a float64 tensor.*float32"):
        CustomPenalty(lambda x: x.float())
    with pytest.raises(TypeError, match=r"element by element"):
        CustomPenalty(lambda x: x.sum())
    with pytest.raises(TypeError, match=r"function is 3.0. Pass a function"):
        CustomPenalty(3.0)
    with pytest.raises(ValueError, match=r"psi\(x \+ y\) fails.*1"):
        CustomPenalty(lambda x: 1.0 + x.clamp_min(0.0).square())
    with pytest.raises(ValueError, match=r"n is 0.5"):
        Polynomial(1.0, 0.5)
    with pytest.raises(ValueError, match=r"c is 0.0"):
        Exponential(0.0)
    with pytest.raises(ValueError, match=r"c is -1.0"):
        Polynomial(-1.0, 2.0)


def test_penalties_compare_by_their_constants():
    assert Polynomial(1.0, 2.0) == Polynomial(1.0, 2.0) != Polynomial(1.0, 3.0)
    assert Exponential(1.0) != Polynomial(1.0, 2.0)
