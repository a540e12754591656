"""Factors and posteriors without their first rows, against dense algebra of the rows left."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import Kernel, MaternKernel, PeriodicKernel, ProductKernel, ScaleKernel
from torch import Tensor

import botorch_bandits.models.growing as growing_module
from botorch_bandits import BanditGP
from botorch_bandits.confidence.candidates import CandidateEvidence
from botorch_bandits.forgetting import SlidingWindow
from botorch_bandits.models import candidate_grid, double_kernel
from botorch_bandits.models.candidates import CandidatesModel
from botorch_bandits.models.closed_form import InverseFactor
from botorch_bandits.models.forgetting import FEWEST_ROWS, STRIDE, ForgettingModels, WindowModels
from botorch_bandits.models.row_deletion import inverse_without_first_rows, without_first_rows

from .textbook import matern, posterior, uniform

NOISE = 0.01
INPUTS = uniform(330, 2, seed=0)
MATRIX = matern(2.5, 0.4)(INPUTS, INPUTS) + NOISE * torch.eye(330, dtype=torch.float64)


def factor_of(matrix: Tensor) -> InverseFactor:
    grown = InverseFactor.empty(matrix).extended(
        len(matrix), lambda i, j: (matrix[i:j, :i].clone(), matrix[i:j, i:j].clone()), NOISE
    )
    assert grown is not None
    return grown


def dense(factor: InverseFactor) -> Tensor:
    return factor.solve(torch.eye(factor.num_rows, dtype=torch.float64)).mT


def inverse_cholesky(matrix: Tensor) -> Tensor:
    return torch.linalg.inv(torch.linalg.cholesky(matrix))


@pytest.mark.parametrize("num_rows", [2, 65, 128, 192, 257, 330])
@pytest.mark.parametrize("num_left_out", [1, 31, 64, 130])
def test_it_is_the_factor_of_the_rows_that_are_left(num_rows: int, num_left_out: int) -> None:
    if num_left_out >= num_rows:
        num_left_out = num_rows - 1
    whole = factor_of(MATRIX[:num_rows, :num_rows])
    before = dense(whole)
    found = without_first_rows(whole, num_left_out)
    left = MATRIX[num_left_out:num_rows, num_left_out:num_rows]
    expected = inverse_cholesky(left)
    assert torch.allclose(dense(found), expected, rtol=0, atol=1e-9)
    assert torch.allclose(found.pivots, torch.linalg.cholesky(left).diagonal(), rtol=0, atol=1e-12)
    assert torch.equal(dense(whole), before)
    both = torch.stack([before, 2.0 * before])
    stacked = inverse_without_first_rows(both, num_left_out)
    assert torch.allclose(stacked[0], expected, rtol=0, atol=1e-9)
    assert torch.allclose(stacked[1], 2.0 * expected, rtol=0, atol=1e-9)
    assert float(stacked.triu(1).abs().max()) == 0.0


@pytest.mark.parametrize("num_left_out", [3, 74])
def test_it_grows_again(num_left_out: int) -> None:
    found = without_first_rows(factor_of(MATRIX[:250, :250]), num_left_out)
    rows = MATRIX[num_left_out:, num_left_out:]

    def block(start: int, end: int) -> tuple[Tensor, Tensor]:
        return rows[start:end, :start].clone(), rows[start:end, start:end].clone()

    for size in (found.num_rows + 1, len(rows)):
        grown = found.extended(size, block, NOISE)
        assert grown is not None
        expected = inverse_cholesky(rows[:size, :size])
        assert torch.allclose(dense(grown), expected, rtol=0, atol=1e-9)
    assert torch.allclose(
        dense(found), inverse_cholesky(MATRIX[num_left_out:250, num_left_out:250]), atol=1e-9
    )


def product(X: Tensor, Z: Tensor) -> Tensor:
    return 1.3 * matern(2.5, 0.3)(X[:, :1], Z[:, :1]) * matern(1.5, 0.5)(X[:, 1:], Z[:, 1:])


def single(X: Tensor, Z: Tensor) -> Tensor:
    return 1.3 * matern(2.5, 0.3)(X, Z)


def scaled(kernel: Kernel) -> ScaleKernel:
    outer = ScaleKernel(kernel).double()
    outer.outputscale = torch.tensor(1.3, dtype=torch.float64)
    return outer


KERNELS: dict[str, Any] = {
    "one": (scaled(double_kernel(MaternKernel(nu=2.5), 0.3)), single),
    "product": (
        scaled(
            ProductKernel(
                double_kernel(MaternKernel(nu=2.5, active_dims=[0]), 0.3),
                double_kernel(MaternKernel(nu=1.5, active_dims=[1]), 0.5),
            )
        ),
        product,
    ),
}
AT = uniform(5, 2, seed=7)


def rows_of(num_rows: int, num_outputs: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    X = uniform(num_rows, 2, seed=3)
    Y = torch.stack([(4.0 + j) * X.sum(-1).sin() + X[:, 0] for j in range(num_outputs)], dim=-1)
    return X, Y, torch.arange(1, num_rows + 1)


def assert_is_posterior(model: Any, kernel: Any, X: Tensor, y: Tensor, prior_mean: float) -> None:
    mean, covariance = posterior(kernel, X, y - prior_mean, 0.02, AT)
    found = model.posterior(AT.unsqueeze(-2))
    assert torch.allclose(found.mean.reshape(-1), mean + prior_mean, rtol=0, atol=1e-8)
    assert torch.allclose(found.variance.reshape(-1), covariance.diagonal(), rtol=0, atol=1e-8)
    assert torch.equal(model.train_targets, y)
    noisy = torch.eye(len(X), dtype=torch.float64) + kernel(X, X) / 0.02
    assert float(model.information_gain) == pytest.approx(
        0.5 * float(torch.logdet(noisy)), abs=1e-8
    )


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("has_transform", [False, True])
def test_window_is_the_dense_posterior_on_every_way(name: str, has_transform: bool) -> None:
    """Models that were continued, and one that is built of the history, agree to the last bit."""
    length = FEWEST_ROWS + 6
    X, Y, rounds = rows_of(length + 2 * STRIDE + 3)
    kernel, formula = KERNELS[name]
    transform = Normalize(2, bounds=torch.tensor([[0.0, 0.0], [2.0, 0.5]]).double())
    recipe = BanditGP.with_kernel(
        kernel,
        noise=0.02,
        prior_mean=0.4,
        input_transform=transform if has_transform else None,
    )
    side = torch.tensor([2.0, 0.5]).double() if has_transform else torch.ones(2).double()

    def in_kernel(one: Tensor, other: Tensor) -> Tensor:
        found: Tensor = formula(one / side, other / side)
        return found

    continued = ForgettingModels(recipe, SlidingWindow(length))
    for t in (*range(length - 2, length + 4), *range(length + STRIDE - 1, len(X) + 1)):
        given = X[:t], Y[:t], rounds[:t]
        model = continued.build(*given, round_number=t + 1)
        kept = slice(max(0, t - length), t)
        assert_is_posterior(model, in_kernel, X[kept], Y[kept, 0], 0.4)
        anew = ForgettingModels(recipe, SlidingWindow(length)).build(*given, round_number=t + 1)
        for one, other in zip(model.factored.factor.slabs, anew.factored.factor.slabs, strict=True):
            assert torch.equal(one[1], other[1])
        assert torch.equal(model.factored.weights, anew.factored.weights)
        added = model.condition_on_observations(AT[:1], torch.ones(1, 1).double())
        mean, _ = posterior(
            in_kernel,
            torch.cat([X[kept], AT[:1]]),
            torch.cat([Y[kept, 0], torch.ones(1).double()]) - 0.4,
            0.02,
            AT,
        )
        assert torch.allclose(added.posterior(AT).mean.reshape(-1), mean + 0.4, rtol=0, atol=1e-8)


def test_window_is_factorized_once_in_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    count = itertools.count()
    compute = growing_module.closed_form_of

    def counted(model: Any) -> Any:
        next(count)
        return compute(model)

    monkeypatch.setattr(growing_module, "closed_form_of", counted)
    length = FEWEST_ROWS
    X, Y, rounds = rows_of(length + 3 * STRIDE)
    recipe = BanditGP.with_kernel(KERNELS["one"][0], noise=0.02)
    models = ForgettingModels(recipe, SlidingWindow(length))
    for t in range(length + 1, len(X) + 1):
        models.build(X[:t], Y[:t], rounds[:t], round_number=t + 1).posterior(AT[:1])
    assert next(count) <= 5


@pytest.mark.parametrize("together", [True, "together"])
def test_outputs_share_what_is_left(together: bool | str) -> None:
    length = FEWEST_ROWS + 3
    X, Y, rounds = rows_of(length + 12, num_outputs=2)
    recipe = BanditGP.with_kernel(KERNELS["one"][0], noise=0.02)
    models = ForgettingModels(recipe, SlidingWindow(length), separates_outputs=together)
    for t in range(length + 8, len(X) + 1):
        model = models.build(X[:t], Y[:t], rounds[:t], round_number=t + 1)
        assert isinstance(model, ModelListGP)
        for j, output in enumerate(model.models):
            kept = slice(t - length, t)
            assert_is_posterior(output, single, X[kept], Y[kept, j], 0.0)
        first, last = (each.factored for each in model.models)
        assert first.factor is last.factor


def test_rows_that_arrive_late_leave_all_the_same() -> None:
    length = FEWEST_ROWS + 10
    X, Y, _ = rows_of(length + 30)
    rounds = torch.arange(1, len(X) + 1)
    for i in range(2, len(X) - 3, 5):  # the third next arrives first
        rounds[[i, i + 1, i + 2]] = rounds[[i + 2, i, i + 1]]
    recipe = BanditGP.with_kernel(KERNELS["one"][0], noise=0.02)
    continued = ForgettingModels(recipe, SlidingWindow(length))
    for t in range(length + 3, len(X) + 1):
        now = int(rounds[:t].max()) + 1
        model = continued.build(X[:t], Y[:t], rounds[:t], round_number=now)
        kept = (rounds >= now - length)[:t]
        assert_is_posterior(model, single, X[:t][kept], Y[:t][kept, 0], 0.0)
        anew = ForgettingModels(recipe, SlidingWindow(length))
        built = anew.build(X[:t], Y[:t], rounds[:t], round_number=now)
        assert torch.equal(built.factored.weights, model.factored.weights)


def test_kernels_without_a_closed_form_have_windows_too() -> None:
    length = FEWEST_ROWS + 1
    X, Y, rounds = rows_of(length + 4)
    kernel = double_kernel(PeriodicKernel(), 0.3)
    models = ForgettingModels(BanditGP.with_kernel(kernel, noise=0.02), SlidingWindow(length))
    for t in range(length + 1, len(X) + 1):
        model = models.build(X[:t], Y[:t], rounds[:t], round_number=t + 1)
        kept = slice(t - length, t)
        assert_is_posterior(
            model, lambda a, b: kernel(a, b).to_dense().detach(), X[kept], Y[kept, 0], 0.0
        )


def test_lists_of_priors_in_a_window() -> None:
    """Posteriors and evidence are those of the list that is given the rows of the window alone."""
    length = FEWEST_ROWS + 5
    X, Y, rounds = rows_of(length + STRIDE + 9, 1)
    recipe = BanditGP.with_candidates(
        candidate_grid([0.3, 0.6], [0.02, 0.1], [0.5, 2.0]), num_skipped=2
    )
    window = SlidingWindow(length)
    continued = WindowModels(window, recipe.builder)
    for t in (*range(length - 1, length + 3), *range(length + STRIDE - 2, len(X) + 1)):
        given = X[:t], Y[:t], rounds[:t]
        model = continued.build(*given, round_number=t + 1)
        anew = WindowModels(window, recipe.builder).build(*given, round_number=t + 1)
        kept = slice(max(0, t - length), t)
        models = [model]
        others = [anew]
        for j, (one, other) in enumerate(zip(models, others, strict=True)):
            assert isinstance(one, CandidatesModel)
            expected = CandidatesModel(recipe, X[kept], Y[kept, j : j + 1])
            for found, wanted, same in zip(
                one.group_moments(AT),
                expected.group_moments(AT),
                other.group_moments(AT),
                strict=True,
            ):
                assert torch.allclose(found, wanted, rtol=0, atol=1e-8)
                assert torch.equal(found, same)
            assert torch.allclose(one.evidence.path, expected.evidence.path, rtol=1e-9, atol=1e-8)
            assert torch.equal(one.evidence.path, other.evidence.path)
            assert one.evidence.num_outcomes == (kept.stop - kept.start) - 2


def test_outcomes_are_counted_at_once_as_one_by_one() -> None:
    densities = uniform(150, 3, seed=4).numpy() * 9.0 - 6.0
    one, other = CandidateEvidence([1.0, 2.0, 0.5]), CandidateEvidence([1.0, 2.0, 0.5])
    for row in densities:
        one.update(row)
    for part in (densities[:7], densities[7:7], densities[7:90], densities[90:]):
        other.update_all(part)
    assert torch.equal(one.path, other.path)
    assert torch.equal(one.posterior_weights, other.posterior_weights)
    assert torch.equal(one.largest_log_evidence_against, other.largest_log_evidence_against)
    densities[40, 1] = -float("inf")
    third = CandidateEvidence([1.0, 2.0, 0.5])
    with pytest.raises(ValueError, match=r"densities\[1\]"):
        third.update_all(densities)
    assert third.num_outcomes == 40
