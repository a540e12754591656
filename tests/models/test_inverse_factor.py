"""The growing inverse Cholesky factor against torch.linalg, and its memory and sharing rules."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from botorch_bandits.models.closed_form import SLAB_ROWS, STEP_ROWS, InverseFactor

from .textbook import matern, uniform

NOISE = 0.01
INPUTS = uniform(330, 3, seed=0)
MATRIX = matern(2.5, 0.4)(INPUTS, INPUTS) + NOISE * torch.eye(330, dtype=torch.float64)
OUTCOMES = uniform(330, seed=1)
SIZES = [1, 2, 15, 16, 17, 100, 127, 128, 129, 160, 256, 300, 330]


def grow(*sizes: int, matrix: Tensor = MATRIX) -> InverseFactor:
    """The factor that has these numbers of rows in turn."""
    factor = InverseFactor.empty(matrix)
    for size in sizes:
        grown = factor.extended(
            size, lambda i, j: (matrix[i:j, :i].clone(), matrix[i:j, i:j].clone()), NOISE
        )
        assert grown is not None
        factor = grown
    return factor


def dense(factor: InverseFactor) -> Tensor:
    return factor.solve(torch.eye(factor.num_rows, dtype=torch.float64)).mT


def assert_same_bits(first: InverseFactor, second: InverseFactor) -> None:
    assert first.num_rows == second.num_rows
    assert torch.equal(first.pivots, second.pivots)
    for (i, one), (j, other) in zip(first.slabs, second.slabs, strict=True):
        assert i == j
        assert torch.equal(one, other)


@pytest.mark.parametrize("num_rows", SIZES)
def test_it_is_the_inverse_of_the_cholesky_factor(num_rows: int) -> None:
    factor = grow(num_rows)
    matrix = MATRIX[:num_rows, :num_rows]
    cholesky = torch.linalg.cholesky(matrix)
    expected = torch.linalg.inv(cholesky)
    assert torch.allclose(dense(factor), expected, rtol=0, atol=1e-10)
    assert torch.allclose(factor.pivots, cholesky.diagonal(), rtol=0, atol=1e-12)
    rows = uniform(4, num_rows, seed=2)
    assert torch.allclose(factor.solve(rows), rows @ expected.mT, rtol=0, atol=1e-10)
    assert torch.allclose(factor.solve_transposed(rows), rows @ expected, rtol=0, atol=1e-10)
    weights, _ = factor.weights(OUTCOMES[:num_rows])
    solution = torch.linalg.solve(matrix, OUTCOMES[:num_rows])
    assert torch.allclose(weights, solution, rtol=0, atol=1e-9)
    gain = 0.5 * torch.logdet(matrix / NOISE).item()
    assert factor.information_gain(NOISE).item() == pytest.approx(gain, abs=1e-9)


@pytest.mark.parametrize("num_rows", SIZES)
def test_every_route_gives_the_same_bits(num_rows: int) -> None:
    at_once = grow(num_rows)
    for step in (1, 7, 16, 45, 128):
        assert_same_bits(at_once, grow(*range(min(step, num_rows), num_rows, step), num_rows))


def test_weights_may_continue_those_of_fewer_rows() -> None:
    sizes = [100, 128, 200, 257, 330]
    known = None
    for size in sizes:
        weights, known = grow(size).weights(OUTCOMES[:size], known)
        assert torch.equal(weights, grow(size).weights(OUTCOMES[:size])[0])


@pytest.mark.parametrize("num_rows", [1, 15, 16, 40, 127, 128, 140])
def test_factors_that_part_ways_leave_each_other_alone(num_rows: int) -> None:
    other = MATRIX.clone()
    other[num_rows:, :num_rows] *= 0.9
    other[:num_rows, num_rows:] *= 0.9
    parent = grow(num_rows)
    before = dense(parent)
    children = []
    for matrix in (MATRIX, other, MATRIX):
        child = parent.extended(
            num_rows + 25,
            lambda i, j, m=matrix: (m[i:j, :i].clone(), m[i:j, i:j].clone()),  # type: ignore[misc]
            NOISE,
        )
        assert child is not None
        children.append(child)
    assert torch.equal(dense(parent), before)
    assert_same_bits(children[0], children[2])
    assert_same_bits(children[0], grow(num_rows + 25))
    rows = num_rows + 25
    for child, matrix in zip(children[:2], (MATRIX, other), strict=False):
        product = dense(child) @ matrix[:rows, :rows] @ dense(child).mT
        assert torch.allclose(product, torch.eye(rows, dtype=torch.float64), rtol=0, atol=1e-10)


def test_rows_are_appended_in_place_and_full_slabs_are_shared() -> None:
    factors = [grow(140)]
    for size in range(141, 144):
        grown = factors[-1].extended(
            size, lambda i, j: (MATRIX[i:j, :i].clone(), MATRIX[i:j, i:j].clone()), NOISE
        )
        assert grown is not None
        factors.append(grown)
    for first, second in pairwise(factors):
        for (_, one), (_, other) in zip(first.slabs, second.slabs, strict=True):
            assert one.data_ptr() == other.data_ptr()


def test_live_memory_at_a_thousand_rows() -> None:
    inputs = uniform(1000, 2, seed=3)
    matrix = matern(1.5, 0.1)(inputs, inputs) + NOISE * torch.eye(1000, dtype=torch.float64)
    factor = grow(500, *range(900, 1001), matrix=matrix)
    num_doubles = sum(slab.untyped_storage().nbytes() // 8 for _, slab in factor.slabs)
    assert num_doubles < 0.6 * 1000**2
    assert SLAB_ROWS % STEP_ROWS == 0


@pytest.mark.parametrize("num_rows", [10, 32])
@pytest.mark.parametrize("entry", [-1.0, 0.4 * NOISE, math.nan])
def test_an_indefinite_matrix_is_refused(num_rows: int, entry: float) -> None:
    """The last pivot is far below what noise on the diagonal guarantees."""
    matrix = torch.eye(num_rows, dtype=torch.float64)
    matrix[-1, -1] = entry
    parent = grow(num_rows - 1, matrix=matrix)
    before = dense(parent)
    for start in (parent, InverseFactor.empty(matrix)):
        refused = start.extended(
            num_rows, lambda i, j: (matrix[i:j, :i].clone(), matrix[i:j, i:j].clone()), NOISE
        )
        assert refused is None
    assert torch.equal(dense(parent), before)
