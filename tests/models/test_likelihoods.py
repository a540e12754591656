"""A model of means and counts is the model of all raw observations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    BanditGP,
    DMMUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.models.noise import collapse

from .textbook import uniform

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
