"""What users hand in is returned unchanged in value, or refused by name."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.textbook import double

from botorch_bandits.checks import (
    check_double,
    check_finite,
    check_integer,
    check_matrix,
    check_nonnegative,
    check_number,
    check_one_of,
    check_positive,
    check_probability,
    check_reward,
    check_vector,
)

NAN, INF = float("nan"), float("inf")
exactly = settings(deadline=None, derandomize=True, max_examples=100)


def test_a_double_tensor_is_passed_through_as_it_is() -> None:
    value = double([[1.0, NAN]])
    assert check_double("x", value) is value


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
def test_other_precisions_are_refused_with_the_remedy(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"my_x has dtype {dtype}.*Pass my_x\.double\(\)"):
        check_double("my_x", torch.zeros(2, dtype=dtype))


def test_what_is_no_tensor_is_refused() -> None:
    with pytest.raises(TypeError, match="my_x must be"):
        check_double("my_x", [1.0])  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_the_first_entry_that_is_not_finite_is_named(bad: float) -> None:
    value = torch.zeros(2, 3, dtype=torch.float64)
    assert check_finite("x", value) is value
    value[1, 0], value[1, 2] = bad, NAN
    with pytest.raises(ValueError, match=rf"x\[1, 0\] is {bad}; every entry of x must be finite"):
        check_finite("x", value)
    with pytest.raises(ValueError, match=f"^x is {bad}"):
        check_finite("x", double(bad))


def test_matrices_come_from_tensors_numpy_and_nested_sequences() -> None:
    expected = double([[1.0, 2.0], [3.0, 4.5]])
    for value in (expected, [[1, 2], [3, 4.5]], ((1, 2), (3, 4.5)), expected.numpy()):
        assert torch.equal(check_matrix("x", value, num_columns=2), expected)
    assert check_matrix("x", expected) is expected
    assert check_matrix("x", torch.empty(0, 3, dtype=torch.float64)).shape == (0, 3)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (double([1.0, 2.0]), ValueError, r"x must be a matrix with 2 columns.*got shape \(2,\)"),
        (double([[1.0]]), ValueError, r"2 columns.*got shape \(1, 1\).*x\.unsqueeze\(0\)"),
        (double([[1.0, NAN]]), ValueError, r"x\[0, 1\] is nan"),
        (torch.zeros(1, 2), TypeError, r"dtype torch\.float32"),
        (np.zeros((1, 2), dtype=np.float32), TypeError, r"x\.astype\('float64'\)"),
        ([[1.0, 2.0], [3.0]], TypeError, "nested sequences of numbers"),
        ([["a", "b"]], TypeError, "nested sequences of numbers"),
        (None, TypeError, "nested sequences of numbers"),
        ([[10**400, 1]], ValueError, "too large for float64"),
    ],
)
def test_bad_matrices_are_refused(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_matrix("x", value, num_columns=2)


def test_vectors_come_from_tensors_numpy_and_sequences() -> None:
    expected = double([1.0, -2.5])
    for value in (expected, [1, -2.5], (1, -2.5), expected.numpy()):
        assert torch.equal(check_vector("x", value, length=2), expected)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (double([1.0]), ValueError, r"x must be a vector of length 2, got shape \(1,\)"),
        (double([[1.0, 2.0]]), ValueError, r"got shape \(1, 2\)"),
        (1.0, ValueError, r"got shape \(\)"),
        ([1.0, INF], ValueError, r"x\[1\] is inf"),
        (torch.zeros(2), TypeError, r"dtype torch\.float32"),
    ],
)
def test_bad_vectors_are_refused(value: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_vector("x", value, length=2)


@given(st.floats(allow_nan=False, allow_infinity=False))
@exactly
def test_numbers_keep_every_digit(number: float) -> None:
    for value in (number, np.float64(number), double(number), double([[number]])):
        result = check_number("x", value)
        assert type(result) is float
        assert result == number
        assert math.copysign(1.0, result) == math.copysign(1.0, number)


@given(st.integers(min_value=-(2**53), max_value=2**53))
@exactly
def test_whole_numbers_are_numbers(number: int) -> None:
    for value in (number, np.int64(number), torch.tensor(number)):
        assert check_number("x", value) == float(number)
        assert type(check_integer("x", value, minimum=-(2**53))) is int
        assert check_integer("x", value, minimum=-(2**53)) == number


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (NAN, ValueError, "x is nan; it must be finite"),
        (-INF, ValueError, "x is -inf; it must be finite"),
        (10**400, ValueError, "too large for float64"),
        (torch.tensor(0.1), TypeError, r"dtype torch\.float32.*x\.double\(\)"),
        (np.float32(0.1), TypeError, r"float32 number.*Pass float\(x\)"),
        (np.float16(0.1), TypeError, "float16 number"),
        (double([1.0, 2.0]), TypeError, r"one number, got a tensor of shape \(2,\)"),
        ("1.0", TypeError, "one number, got the text '1.0'"),
        (None, TypeError, "one number, got None"),
        ([1.0], TypeError, r"one number, got \[1\.0\]"),
        (1j, TypeError, "one real number, got 1j"),
        (np.complex128(1.0), TypeError, "one real number, got "),
    ],
)
def test_what_is_not_one_number_is_refused(
    value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_number("x", value)


class ScalarOfAnotherLibrary:
    """An array with one entry in single precision, as JAX's are."""

    dtype, size = np.dtype("float32"), 1

    def item(self) -> float:
        return float(np.float32(0.1))

    def __float__(self) -> float:
        return self.item()

    def __repr__(self) -> str:  # an address would name the test differently in each process
        return "ScalarOfAnotherLibrary()"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3.0),
        (True, 1.0),
        (Fraction(1, 3), 1 / 3),
        (Decimal("0.1"), 0.1),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float16(0.1), float(np.float16(0.1))),
        (np.longdouble(0.5), 0.5),
        (np.uint8(200), 200.0),
        (np.bool_(False), 0.0),
        (np.array(0.25), 0.25),
        (np.array([[0.25]], dtype=np.float32), 0.25),
        (torch.tensor(0.1), float(np.float32(0.1))),
        (torch.tensor([0.1], dtype=torch.bfloat16), float(torch.tensor(0.1).bfloat16())),
        (torch.tensor([[7]], dtype=torch.int32), 7.0),
        (torch.tensor(True), 1.0),
        (double(0.3).requires_grad_(), 0.3),
        (np.array([Fraction(1, 3)], dtype=object), 1 / 3),
        (ScalarOfAnotherLibrary(), float(np.float32(0.1))),
    ],
    ids=repr,
)
def test_a_reward_is_any_real_number(value: Any, expected: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = check_reward("x", value)
    assert type(found) is float
    assert found == expected


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (NAN, ValueError, "x is nan; it must be finite"),
        (torch.tensor(INF), ValueError, "x is inf; it must be finite"),
        (Decimal("NaN"), ValueError, "x is nan; it must be finite"),
        (10**400, ValueError, "too large for float64"),
        (torch.zeros(2), TypeError, r"one number, got a tensor of shape \(2,\)"),
        (np.zeros(2), TypeError, "one number, got array"),
        (np.zeros(0), TypeError, "one number, got array"),
        (torch.tensor(1j), TypeError, "one real number, got 1j"),
        (np.complex64(1.0), TypeError, "one real number, got "),
        (np.array([1j]), TypeError, "one real number, got "),
        (np.timedelta64(5, "ns"), TypeError, "one real number, got "),
        ("1.0", TypeError, "one number, got the text '1.0'"),
        (None, TypeError, "one number, got None"),
        ([1.0], TypeError, r"one number, got \[1\.0\]"),
        (np.array("1.0"), TypeError, "one number, got the text '1.0'"),
        (np.array("1.0", dtype=object), TypeError, "one number, got the text '1.0'"),
        (np.array(1j, dtype=object), TypeError, "one real number, got 1j"),
        (np.ma.masked, TypeError, "x is masked, so it is not a number"),
        ({"reward": 1.0}, TypeError, "one number, got {"),
    ],
    ids=repr,
)
def test_a_reward_is_one_finite_real_number(
    value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_reward("x", value)


def test_a_reward_that_is_long_is_cut_in_the_error() -> None:
    with pytest.raises(TypeError, match=r"number, got \[0\.0, .{151}\.\.\.\.$"):
        check_reward("x", [0.0] * 1000)


def test_a_reward_that_cannot_be_shown_is_refused_by_its_class() -> None:
    with pytest.raises(ValueError, match="x is an object"):
        check_reward("x", 10**5000)  # more digits than Python writes


@pytest.mark.parametrize(
    ("check", "accepted", "refused", "message"),
    [
        (check_positive, [5e-324, 1.0, 1e308], [0.0, -0.0, -1e-9], "must be greater than 0"),
        (check_nonnegative, [0.0, 5e-324], [-5e-324, -1.0], "must be at least 0"),
        (check_probability, [1e-300, 1 - 1e-16], [0.0, 1.0, -0.1, 1.1], "strictly between 0 and 1"),
    ],
)
def test_ranges(
    check: Callable[[str, Any], float], accepted: list[float], refused: list[float], message: str
) -> None:
    for value in accepted:
        assert check("x", value) == value
    for value in refused:
        with pytest.raises(ValueError, match=f"x is .*{message}"):
            check("x", value)
    for value in (NAN, INF):
        with pytest.raises(ValueError, match="must be finite"):
            check("x", value)


@pytest.mark.parametrize("value", [1.0, 1.5, True, False, "1", None, np.float64(1.0)])
def test_what_is_no_integer_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="x must be"):
        check_integer("x", value, minimum=0)


def test_integers_have_a_minimum() -> None:
    assert check_integer("x", 3, minimum=3) == 3
    with pytest.raises(ValueError, match="x is 2"):
        check_integer("x", 2, minimum=3)


def test_choices_are_listed_in_the_error() -> None:
    assert check_one_of("x", None, (None, "a")) is None
    with pytest.raises(ValueError, match="x is 'b'"):
        check_one_of("x", "b", (None, "a"))


MASKED_ROW = np.ma.array([0.1, 0.5], mask=[False, True])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ma.array([[0.1], [0.5]], mask=[[0], [1]]), r"x is an array .* the first at \[1, 0\]"),
        ([MASKED_ROW, [0.1, 0.2]], r"x\[0\] is an array with 1 masked entries"),
        ([[np.ma.masked], [0.5]], r"x\[0\]\[0\] is masked"),
        (np.array([[0.5 + 1j]]), "x has dtype complex128, but numbers must be real"),
        ([[0.5 + 1j]], r"x\[0\]\[0\] is \(0.5\+1j\), but numbers must be real"),
        ([[np.complex128(1.0)]], r"x\[0\]\[0\] has dtype complex128"),
        (torch.tensor([[0.5 + 1j]]), "x has dtype torch.complex64, but numbers must be real"),
        ([[torch.tensor(1j)]], r"x\[0\]\[0\] has dtype torch.complex64"),
        ([[np.float32(0.1)]], r"x\[0\]\[0\] is a float32 number"),
        ([(0.2,), (np.float16(0.1),)], r"x\[1\]\[0\] is a float16 number"),
        ([np.array([0.1], dtype=np.float32)], r"x\[0\] has dtype float32"),
        ([[torch.tensor(0.1)]], r"x\[0\]\[0\] has dtype torch.float32"),
    ],
)
def test_what_a_conversion_would_change_is_refused(value: Any, message: str) -> None:
    """Each of these became another number, or lost a part, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy's warnings are no errors of ours
        with pytest.raises(TypeError, match=message):
            check_matrix("x", value)


def test_what_a_mask_leaves_open_passes() -> None:
    """A mask that hides nothing is no obstacle, nor are numbers of numpy in float64."""
    assert check_matrix("x", np.ma.array([[0.1]], mask=[[False]])).tolist() == [[0.1]]
    assert check_matrix("x", [[np.float64(0.1), np.int64(2)]]).tolist() == [[0.1, 2.0]]


@pytest.mark.parametrize("hidden", [np.ma.masked, np.ma.array(3, mask=True)])
def test_a_masked_setting_is_refused(hidden: Any) -> None:
    """``operator.index`` returns what is behind the mask."""
    with pytest.raises(TypeError, match="seed is masked"):
        check_integer("seed", hidden, minimum=0)
    with pytest.raises(TypeError, match="width is masked"):
        check_number("width", hidden)
