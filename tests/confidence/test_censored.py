"""The widths of censored feedback, and the rule that makes them from a model."""

from __future__ import annotations

import math
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


@pytest.mark.parametrize("seed", range(5))
def test_every_form_is_its_formula(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    total, B, R, B_y, gain, lam = (
        3.0 * torch.rand(6, dtype=torch.float64, generator=stream)
    ).tolist()
    delta = 0.05 + 0.1 * seed
    printed = B_y * total + B + (R + B_y) * math.sqrt(2 * (gain + 1 + math.log(2 / delta)))
    any_lambda = (
        B_y / lam * total
        + B
        + (R + B_y) / math.sqrt(lam) * math.sqrt(2 * (gain + math.log(2 / delta)))
    )
    found = (
        BoundedNorm(B, R, delta, outcome_bound=B_y).width(gain, total),
        BoundedNorm(B, R, delta, lam, any_lambda=True, outcome_bound=B_y).width(gain, total),
    )
    for width, expected in zip(found, (printed, any_lambda), strict=True):
        assert width.dtype == torch.float64
        assert width.item() == pytest.approx(expected, rel=1e-12)


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


@pytest.mark.parametrize("form", [{}, {"any_lambda": True}, {"bounded_outcomes": True}])
def test_an_outputscale_is_a_choice_of_units(form: dict[str, bool]) -> None:
    def width(unit: float, scale: float, units: str) -> float:
        own = {"any_lambda": True} if "any_lambda" in form else {}
        inner = KernelizedWidth(2.0 * unit, 0.3 * unit, 0.1, units=units, **own)
        sums = double(0.7 * scale)
        rule = CensoredWidth(inner, 1.5 * unit, deviation_sums=sums, **form)
        return rule.width(PriorSummary(model_of(scale**2, scale)), 1).item()

    first = width(1.0, 1.0, "outcome")
    # the same problem in units three times as small: every bound is three times as large
    assert width(3.0, 3.0, "outcome") == pytest.approx(first, rel=1e-12)
    # multiples of the prior standard deviation
    assert width(1.0, 3.0, "prior") == pytest.approx(first, rel=1e-12)


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
