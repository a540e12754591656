"""The widths of censored feedback, and the rule that makes them from a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double

from botorch_bandits import BanditGP
from botorch_bandits.confidence import (
    BoundedNorm,
    CensoredWidth,
    ConstantWidth,
    KernelizedWidth,
    PriorSummary,
    UnreadablePriorError,
)

BOUNDS: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": 0.3, "delta": 0.1}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BoundedNorm(1.0, 0.1, 0.1, outcome_bound=1.0).width(0.0, -1.0), "deviation_sum"),
        (lambda: BoundedNorm(1.0, 0.1, 0.1, outcome_bound=-1.0), "outcome_bound"),
        (lambda: BoundedNorm(1.0, 0.1, 1.5, outcome_bound=1.0), "delta is 1.5"),
        (lambda: BoundedNorm(1.0, 0.1, 0.1, -1.0), "lam is -1.0"),
        (lambda: CensoredWidth(KernelizedWidth(**BOUNDS)), "needs outcome_bound="),
        (lambda: CensoredWidth(ConstantWidth(1.0), -1.0), "outcome_bound is -1.0"),
        (lambda: CensoredWidth(ConstantWidth(1.0), 1.0, units="raw"), "units is 'raw'"),
    ],
)
def test_infeasible_ingredients_are_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def model_of(variance: float, scale: float) -> BanditGP:
    stream = torch.Generator().manual_seed(1)
    X = torch.rand(6, 2, dtype=torch.float64, generator=stream)
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(variance)
    return BanditGP(X, scale * X.sin().sum(-1, keepdim=True), kernel=kernel, noise=0.2 * variance)


def test_a_constant_keeps_the_sum_if_there_is_an_outcome_bound() -> None:
    summary = PriorSummary(model_of(4.0, 1.0))
    constant, sums = ConstantWidth(1.0), double(0.6)
    assert CensoredWidth(constant, deviation_sums=sums).width(summary, 1) == 1.0
    kept = CensoredWidth(constant, 3.0, deviation_sums=sums).width(summary, 1)
    assert kept.item() == pytest.approx(1.0 + 3.0 / 2.0 * 0.6 / 2.0, rel=1e-12)


def test_an_unreadable_prior_names_the_remedy() -> None:
    with pytest.raises(UnreadablePriorError, match="explicit width="):
        CensoredWidth(KernelizedWidth(**BOUNDS), 1.5).width(PriorSummary(_Opaque()), 1)


class _Opaque:
    num_outputs = 1
