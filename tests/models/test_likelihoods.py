"""A model of means and counts is the model of all raw observations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.sampling.normal import SobolQMCNormalSampler
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    BanditGP,
    DMMUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.models import hallucinate
from botorch_bandits.models.likelihoods import collapse

from .textbook import double, uniform

NOISE = 0.05


def data(num_distinct: int = 6, num_rows: int = 40, dim: int = 2) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(3)
    points = torch.rand(num_distinct, dim, dtype=torch.float64, generator=stream)
    X = points[torch.randint(num_distinct, (num_rows,), generator=stream)]
    normal = torch.randn(num_rows, 1, dtype=torch.float64, generator=stream)
    return X, torch.sin(4 * X[:, :1]) + 0.3 * normal


def both(kernel: Kernel, **options: Any) -> tuple[BanditGP, BanditGP]:
    X, Y = data()
    raw = BanditGP(X, Y, kernel=kernel, noise=NOISE, **options)
    distinct, means, repeats, squares = collapse(X, Y)
    collapsed = BanditGP(
        distinct,
        means,
        kernel=kernel,
        noise=NOISE,
        repeats=repeats,
        within_sum_of_squares=squares,
        **options,
    )
    return raw, collapsed


KERNELS = [
    RBFKernel().double(),
    ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)).double(),
    RQKernel().double(),
]


def test_collapse_is_what_it_says() -> None:
    X, Y = data()
    distinct, means, repeats, squares = collapse(X, Y)
    assert len(distinct) == 6
    total = 0.0
    for x, mean, count in zip(distinct, means, repeats, strict=True):
        rows = (x == X).all(-1)
        assert float(count) == int(rows.sum())
        assert float(mean) == pytest.approx(float(Y[rows].mean()), abs=1e-12)
        total += float(((Y[rows] - Y[rows].mean()) ** 2).sum())
    assert squares == pytest.approx(total, abs=1e-10)
    empty = collapse(X[:0], Y[:0])
    assert empty[0].shape == (0, 2)
    assert empty[2].shape == (0,)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    "transform", [None, Normalize(2, bounds=torch.tensor([[0.0, -1], [2, 3]]).double())]
)
@pytest.mark.parametrize("num_points", [1, 5, 6])
def test_posterior_is_that_of_all_rows(kernel: Kernel, transform: Any, num_points: int) -> None:
    """Also at as many points as there are rows, where noise could be mistaken."""
    raw, collapsed = both(kernel, input_transform=transform)
    points = uniform(3, num_points, 2, seed=1)
    for X in (points, points[0], points[0].unsqueeze(-2)):
        for noise in (False, True):
            expected = raw.posterior(X, observation_noise=noise)
            found = collapsed.posterior(X, observation_noise=noise)
            assert torch.allclose(found.mean, expected.mean, atol=1e-8)
            assert torch.allclose(
                found.distribution.covariance_matrix,
                expected.distribution.covariance_matrix,
                atol=1e-8,
            )
    assert collapsed.num_observations == raw.num_observations == 40
    assert float(collapsed.information_gain) == pytest.approx(float(raw.information_gain), abs=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_widths_and_confidence_sets_see_all_observations(kernel: Kernel) -> None:
    raw, collapsed = both(kernel)
    points = uniform(7, 1, 2, seed=2)
    options = {"rkhs_bound": 4.0, "noise_bound": 0.3}
    for cls in (ImprovedUpperConfidenceBound, AMMUpperConfidenceBound, DMMUpperConfidenceBound):
        expected, found = cls(raw, **options), cls(collapsed, **options)
        assert torch.allclose(found(points), expected(points), atol=1e-8)
        assert found.guarantee().constants == pytest.approx(expected.guarantee().constants)
    pending = points[:2, 0]
    expected = ImprovedUpperConfidenceBound(raw, **options, X_pending=pending)
    found = ImprovedUpperConfidenceBound(collapsed, **options, X_pending=pending)
    assert found.round_number == expected.round_number == 43
    assert torch.allclose(found(points), expected(points), atol=1e-8)


@pytest.mark.parametrize("kernel", KERNELS)
def test_conditioning_and_fantasies(kernel: Kernel) -> None:
    raw, collapsed = both(kernel)
    new = uniform(3, 2, seed=4)
    points = uniform(5, 2, seed=5)
    outcomes = double([[0.1], [0.2], [-0.3]])
    fantasies = torch.stack([outcomes, 2 * outcomes])
    for Y in (outcomes, fantasies):
        X = new.expand(*Y.shape[:-1], 2)
        expected = raw.condition_on_observations(X, Y).posterior(points)
        found = collapsed.condition_on_observations(X, Y).posterior(points)
        assert torch.allclose(found.mean, expected.mean, atol=1e-8)
        assert torch.allclose(found.variance, expected.variance, atol=1e-8)
    expected, found = hallucinate(raw, new), hallucinate(collapsed, new)
    assert torch.allclose(found.posterior(points).variance, expected.posterior(points).variance)
    sampler = SobolQMCNormalSampler(torch.Size([4]), seed=1)
    assert collapsed.fantasize(new, sampler).posterior(points).mean.shape == (4, 5, 1)


@pytest.mark.parametrize("kernel", KERNELS[:2])
def test_fit_is_that_of_all_rows(kernel: Kernel) -> None:
    raw, collapsed = both(kernel, learn_hyperparameters=True)
    for model in (raw, collapsed):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    expected = dict(raw.named_parameters())
    for name, parameter in collapsed.named_parameters():
        assert torch.allclose(parameter, expected[name], atol=1e-4), name


@pytest.mark.parametrize(
    ("repeats", "error", "message"),
    [
        (torch.ones(5).double(), ValueError, r"repeats has shape \(5,\)"),
        (torch.ones(6), TypeError, "float64"),
        (torch.zeros(6).double(), ValueError, "entry 0.0"),
        (torch.full((6,), torch.nan).double(), ValueError, "nan"),
    ],
)
def test_bad_repeats_are_named(repeats: Tensor, error: type[Exception], message: str) -> None:
    X, Y = data(num_rows=6)
    with pytest.raises(error, match=message):
        BanditGP(X, Y, kernel=RBFKernel(), noise=NOISE, repeats=repeats)
