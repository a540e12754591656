"""Widths and rules of GP-UCB's Theorems 2 and 3, IRGP-UCB and AMM."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.confidence import (
    CompactBoxWidth,
    KernelizedWidth,
    PriorSummary,
    RandomizedWidth,
    RKHSWidth,
    WaterFillingGain,
    gp_ucb_compact_width,
    gp_ucb_rkhs_width,
)
from papers.chowdhury import RateGain

X = double([[0.1, 0.2], [0.5, 0.9], [0.8, 0.3]])
Y = double([[1.0], [-2.0], [0.5]])


def scaled_model(variance: float, noise: float) -> BanditGP:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(variance)
    return BanditGP(X, Y, kernel=kernel, noise=noise)


def dense_gain(model: BanditGP) -> Tensor:
    K = model.covar_module(X).to_dense().detach()
    noise = model.likelihood.noise.detach()
    return 0.5 * torch.logdet(torch.eye(3, dtype=torch.float64) + K / noise)


@pytest.mark.parametrize(("dim", "t"), [(1, 1), (2, 100), (5, 7)])
def test_theorem_2(dim: int, t: int) -> None:
    delta, r, a, b = 0.1, 2.0, 1.5, 3.0
    beta = 2 * math.log(t**2 * 2 * math.pi**2 / (3 * delta)) + 2 * dim * math.log(
        t**2 * dim * b * r * math.sqrt(math.log(4 * dim * a / delta))
    )
    assert float(gp_ucb_compact_width(dim, t, delta, r, a, b)) == pytest.approx(
        math.sqrt(beta), abs=1e-12
    )


def test_theorem_2_constants_that_void_it_are_named() -> None:
    with pytest.raises(ValueError, match=r"smoothness_a is 0\.01.*always allowed"):
        gp_ucb_compact_width(1, 1, 0.1, 1.0, 0.01, 1.0)


def test_theorem_2_never_has_less_than_one_point_a_side() -> None:
    expected = math.sqrt(2 * math.log(2 * math.pi**2 / (3 * 0.1)))
    assert float(gp_ucb_compact_width(2, 1, 0.1, 1.0, 1.0, 1e-9)) == pytest.approx(expected)


def test_theorem_3_takes_the_norm_not_its_square() -> None:
    bound, gain, t, delta = 2.0, 5.0, 10, 0.1
    expected = math.sqrt(2 * bound**2 + 300 * gain * math.log(t / delta) ** 3)
    assert float(gp_ucb_rkhs_width(bound, gain, t, delta)) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("variance", [1.0, 6.25])
def test_rules_divide_by_the_prior_standard_deviation(variance: float) -> None:
    noise, delta, s = 0.4, 0.1, math.sqrt(variance)
    model = scaled_model(variance, noise)
    summary, gain = PriorSummary(model), float(dense_gain(model))
    lam = noise / variance

    amm = KernelizedWidth(2.0, 0.3, delta, is_mixture=True).width(summary, 1)
    expected = math.sqrt(
        (2.0 / s) ** 2 + (0.3 / s) ** 2 / lam * (2 * gain + 2 * math.log(1 / delta))
    )
    assert float(amm) == pytest.approx(expected, abs=1e-8)

    K = model.covar_module(X).to_dense().detach()
    maximal = WaterFillingGain(K, noise)
    three = RKHSWidth(2.0, maximal, delta).width(summary, 4)
    expected = math.sqrt(2 * (2.0 / s) ** 2 + 300 * maximal(4) * math.log(4 / delta) ** 3)
    assert float(three) == pytest.approx(expected, abs=1e-8)

    two = CompactBoxWidth(
        dim=2, side_length=1.0, smoothness_a=1.0, smoothness_b=5.0, delta=delta
    ).width(summary, 4)
    assert float(two) == pytest.approx(
        float(gp_ucb_compact_width(2, 4, delta, 1.0, 1.0, 5.0 / s)), abs=1e-10
    )


def test_a_gain_bound_stands_for_the_realized_gain() -> None:
    model = scaled_model(1.0, 1.5)
    K = model.covar_module(X).to_dense().detach()
    bound = WaterFillingGain(K, 1.5)
    rule = KernelizedWidth(2.0, 0.3, 0.1, explicit_gain=bound)
    expected = 2.0 + 0.3 * math.sqrt(2 * (bound(3) + 1 + math.log(10)))
    assert float(rule.width(PriorSummary(model), 1)) == pytest.approx(expected, abs=1e-10)
    assert rule.guarantee(PriorSummary(model), 1).holds
    rate = KernelizedWidth(2.0, 0.3, 0.1, explicit_gain=RateGain("rbf", 2))
    guarantee = rate.guarantee(PriorSummary(model), 1)
    assert not guarantee.holds
    assert "growth rate, not a bound" in guarantee.explain(10_000)


def test_guarantees_name_their_theorem() -> None:
    model = scaled_model(1.0, 0.1)
    summary = PriorSummary(model)
    gain = WaterFillingGain(model.covar_module(X).to_dense().detach(), 0.1)
    for rule, words in (
        (KernelizedWidth(2.0, 0.1, 0.1, is_mixture=True), "Flynn and Reeb 2024"),
        (RKHSWidth(2.0, gain, 0.1), "Theorem 3"),
        (CompactBoxWidth(2, 1.0, 1.0, 1.0, 0.1), "Theorem 2"),
        (RandomizedWidth(10), "Takeno"),
    ):
        guarantee = rule.guarantee(summary, 3)
        assert guarantee.holds, guarantee
        assert words in guarantee.explain(10_000)
        fitted = SingleTaskGP(X, Y)
        assert not rule.guarantee(PriorSummary(fitted), 3).holds


def test_theorem_2_says_for_which_boxes_it_is() -> None:
    summary = PriorSummary(scaled_model(1.0, 0.1))
    told = CompactBoxWidth(2, 1.5, 1.0, 1.0, 0.1).guarantee(summary, 3)
    assert any("with sides of at most side_length" in each for each in told.assumptions)
    assert (told.constants["dim"], told.constants["side_length"]) == (2.0, 1.5)


def test_theorem_3_refuses_a_realized_gain() -> None:
    with pytest.raises(TypeError, match="WaterFillingGain"):
        RKHSWidth(2.0, 3.0, 0.1)  # type: ignore[arg-type]
