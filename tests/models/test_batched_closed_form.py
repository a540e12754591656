"""Posteriors of replicates: each is the textbook's, whatever the others do."""

from __future__ import annotations

import math

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits.core.kernels import StationaryKernel
from botorch_bandits.models import batched_closed_form
from botorch_bandits.models.batched_closed_form import (
    FIRST_CAPACITY,
    BatchedClosedForm,
    ReplicatesPriorSummary,
)

from .textbook import KernelFunction, double, matern, posterior, squared_exponential, uniform

NOISE, OUTPUTSCALE, PRIOR_MEAN = 0.03, 1.7, -0.4
LENGTHSCALE = double([0.3, 0.5, 0.4])
SMOOTHNESS = [0.5, 1.5, 2.5, math.inf]


def kernels(nu: float) -> tuple[StationaryKernel, KernelFunction]:
    base: Kernel = (
        RBFKernel(ard_num_dims=3) if nu == math.inf else MaternKernel(nu=nu, ard_num_dims=3)
    )
    kernel = ScaleKernel(base).double()
    kernel.base_kernel.lengthscale = LENGTHSCALE
    kernel.outputscale = double(OUTPUTSCALE)
    known = StationaryKernel.read(kernel)
    assert known is not None
    if nu == math.inf:
        return known, squared_exponential(LENGTHSCALE, OUTPUTSCALE)
    return known, matern(nu, LENGTHSCALE, OUTPUTSCALE)


def data(num_replicates: int, num_rows: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    X = uniform(num_replicates, num_rows, 3, seed=seed)
    return X, torch.sin(5.0 * X.sum(-1)) + 0.1 * uniform(num_replicates, num_rows, seed=seed + 1)


def grown(nu: float, X: Tensor, Y: Tensor) -> BatchedClosedForm:
    state = BatchedClosedForm(kernels(nu)[0], NOISE, len(X), double([0.5, 0.5, 0.5]), PRIOR_MEAN)
    for i in range(X.shape[1]):
        state.append(X[:, i], Y[:, i])
    return state


def close(a: Tensor, b: Tensor, tolerance: float = 1e-8) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, atol=tolerance, rtol=0)


@pytest.mark.parametrize("nu", SMOOTHNESS)
@pytest.mark.parametrize("num_rows", [1, FIRST_CAPACITY, 2 * FIRST_CAPACITY + 5])
def test_each_replicate_has_the_textbook_posterior(nu: float, num_rows: int) -> None:
    """Values, gradients by automatic differentiation of the textbook, and information gain."""
    X, Y = data(4, num_rows)
    state, dense = grown(nu, X, Y), kernels(nu)[1]
    points = uniform(4, 6, 3, seed=9)
    mean, variance, mean_gradient, variance_gradient = state.value_and_gradient(points)
    both = state.mean_and_variance(points)
    for b in range(4):
        P = points[b].clone().requires_grad_()
        shift, covariance = posterior(dense, X[b], Y[b] - PRIOR_MEAN, NOISE, P)
        expected = shift + PRIOR_MEAN
        # the covariance of a point with itself has a kink of its own: take the part given data
        cross = dense(P, X[b])
        system = dense(X[b], X[b]) + NOISE * torch.eye(num_rows, dtype=torch.float64)
        given = OUTPUTSCALE - (cross * torch.linalg.solve(system, cross.mT).mT).sum(-1)
        slopes = [torch.autograd.grad(v.sum(), P, retain_graph=True)[0] for v in (expected, given)]
        assert close(mean[b], expected.detach())
        assert close(both[0][b], expected.detach())
        assert close(variance[b], covariance.detach().diagonal().clone())
        assert close(both[1][b], variance[b])
        assert close(mean_gradient[b], slopes[0])
        assert close(variance_gradient[b], slopes[1])
        gain = 0.5 * torch.logdet(system / NOISE)
        assert close(state.information_gain[b], gain)
    assert close(state.kernel_matrix(), torch.stack([dense(x, x) for x in X]))


def test_without_rows_it_is_the_prior() -> None:
    state = grown(2.5, *data(3, 0))
    values = state.value_and_gradient(uniform(3, 5, 3, seed=1))
    for found, expected in zip(values, (PRIOR_MEAN, OUTPUTSCALE, 0.0, 0.0), strict=True):
        assert close(found, torch.full_like(found, expected))
    assert torch.equal(state.information_gain, torch.zeros(3, dtype=torch.float64))


def test_replicates_do_not_depend_on_each_other() -> None:
    X, Y = data(5, 20)
    points = uniform(5, 4, 3, seed=3)
    everything = grown(2.5, X, Y).value_and_gradient(points)
    for b in range(5):
        alone = grown(2.5, X[b : b + 1], Y[b : b + 1]).value_and_gradient(points[b : b + 1])
        assert all(close(a[0], e[b], 1e-11) for a, e in zip(alone, everything, strict=True))


def test_some_replicates_can_be_selected_and_go_on() -> None:
    X, Y = data(5, 20)
    index = torch.tensor([3, 0])
    state = grown(1.5, X[:, :-1], Y[:, :-1])
    chosen = state.select(index)
    points = uniform(2, 4, 3, seed=3)
    assert close(chosen.information_gain, state.information_gain[index])
    chosen.append(X[index, -1], Y[index, -1])
    assert (chosen.num_rows, state.num_rows) == (20, 19)
    expected = grown(1.5, X[index], Y[index]).value_and_gradient(points)
    found = chosen.value_and_gradient(points)
    assert all(close(f, e, 1e-11) for f, e in zip(found, expected, strict=True))


def test_pieces_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    state = grown(2.5, *data(7, 10))
    points = uniform(7, 4, 3, seed=3)
    whole = (*state.mean_and_variance(points), *state.value_and_gradient(points))
    monkeypatch.setattr(batched_closed_form, "CHUNK_ENTRIES", 100)  # two replicates at a time
    parts = (*state.mean_and_variance(points), *state.value_and_gradient(points))
    assert all(close(a, b, 1e-12) for a, b in zip(whole, parts, strict=True))


def test_repeated_inputs_and_reading() -> None:
    X, Y = data(2, 1)
    state = grown(2.5, X.expand(2, 30, 3), Y.expand(2, 30))
    mean, variance = state.mean_and_variance(X)
    expected = PRIOR_MEAN + (Y - PRIOR_MEAN) * OUTPUTSCALE / (OUTPUTSCALE + NOISE / 30)
    assert close(mean, expected)
    assert close(variance, torch.full_like(mean, 1.0 / (1.0 / OUTPUTSCALE + 30 / NOISE)))
    summary = ReplicatesPriorSummary(state)
    assert summary.num_rows == 30
    gain = torch.full((2,), 0.5 * math.log1p(30 * OUTPUTSCALE / NOISE), dtype=torch.float64)
    found = summary.realized_information_gain()
    assert found is not None
    assert close(found, gain)
    assert summary.smallest_lam() == pytest.approx(NOISE / OUTPUTSCALE)


def test_too_little_noise_is_refused() -> None:
    state = BatchedClosedForm(kernels(math.inf)[0], 1e-16, 2, double([0.5, 0.5, 0.5]))
    X = uniform(2, 60, 3, seed=0) * 0.1
    X[0] += 10.0 * torch.arange(60.0, dtype=torch.float64).unsqueeze(-1)  # far from each other

    def append_all() -> None:
        for row in X.unbind(1):
            state.append(row, row[:, 0])

    with pytest.raises(ValueError, match="noise is 1e-16, too"):
        append_all()
