"""Width rules: units, several outputs, batches; and what they promise."""

from __future__ import annotations

import math

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.model import Model
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from models.textbook import double, uniform
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.confidence import (
    KernelizedWidth,
    PriorSummary,
    UnreadablePriorError,
)

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


X = uniform(10, 2, seed=0)
Y = torch.cat([3.0 + 2.0 * (5.0 * X[:, :1]).sin(), 40.0 * (4.0 * X[:, 1:]).cos()], dim=-1)
DELTA = 0.05


def squared_exponential(points: Tensor, lengthscale: float) -> Tensor:
    difference = points.unsqueeze(-2) - points.unsqueeze(-3)
    return torch.exp(-0.5 * difference.square().sum(-1) / lengthscale**2)


def gain_of(unit_kernel_matrix: Tensor, lam: float) -> float:
    eye = torch.eye(len(unit_kernel_matrix), dtype=torch.float64)
    return 0.5 * torch.logdet(eye + unit_kernel_matrix / lam).item()


def printed(B: float, R: float, gain: float, delta: float) -> float:
    return B + R * math.sqrt(2.0 * (gain + 1.0 + math.log(1.0 / delta)))


def scaled_kernel(outputscale: float, lengthscale: float = 0.3) -> Kernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = double(outputscale)
    kernel.base_kernel.lengthscale = double(lengthscale)
    return kernel


def width_of(rule: KernelizedWidth, model: Model, weights: list[float] | None = None) -> Tensor:
    transform = None if weights is None else ScalarizedPosteriorTransform(double(weights))
    return rule.width(PriorSummary(model, transform), round_number=1)


# --- units ------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-3, 7.0])
def test_a_change_of_units_changes_no_width(factor: float) -> None:
    # euros or cents: outcomes, B and R times c, prior and noise variance times c^2
    def width(c: float, any_lambda: bool) -> float:
        model = BanditGP(X, c * Y[:, :1], scaled_kernel(3.0 * c**2), 0.2 * c**2)
        rule = KernelizedWidth(2.0 * c, 0.5 * c, DELTA, any_lambda=any_lambda)
        return width_of(rule, model).item()

    for any_lambda in (False, True):
        assert width(factor, any_lambda) == pytest.approx(width(1.0, any_lambda), rel=1e-9)

    # the same through Standardize: there the model's own numbers do not change at all
    def standardized(c: float) -> float:
        model = SingleTaskGP(X, c * Y[:, :1], covar_module=scaled_kernel(3.0))
        return width_of(KernelizedWidth(2.0 * c, 0.5 * c, DELTA), model).item()

    assert standardized(factor) == pytest.approx(standardized(1.0), rel=1e-9)


# --- several outputs --------------------------------------------------------------------------


def both_outputs(scale: float, *noises: float) -> SingleTaskGP:
    model = SingleTaskGP(X, Y, covar_module=scaled_kernel(scale), outcome_transform=None)
    model.likelihood.noise = double(noises).unsqueeze(-1)
    return model


# --- explicit gains, and models that cannot be read -------------------------------------------


def test_a_given_gain_replaces_the_realized_one() -> None:
    model = BanditGP(X, Y[:, :1], scaled_kernel(4.0), noise=0.3)
    rule = KernelizedWidth(2.0, 0.5, DELTA, explicit_gain=7.0)
    assert width_of(rule, model).item() == pytest.approx(printed(1.0, 0.25, 7.0, DELTA), rel=1e-12)
    assert rule.information_gain(PriorSummary(model)) == 7.0


def test_a_given_gain_serves_a_model_that_cannot_be_read() -> None:
    model = SingleTaskVariationalGP(X, Y[:, :1])
    rule = KernelizedWidth(2.0, 0.5, DELTA, explicit_gain=7.0)
    assert width_of(rule, model).item() == pytest.approx(printed(2.0, 0.5, 7.0, DELTA), rel=1e-12)


@pytest.mark.parametrize(
    "rule",
    [
        KernelizedWidth(2.0, 0.5, DELTA),
        KernelizedWidth(2.0, 0.5, DELTA, any_lambda=True, explicit_gain=7.0),
        KernelizedWidth((2.0,), 0.5, DELTA, explicit_gain=7.0),
    ],
)
def test_a_model_that_cannot_be_read_is_refused_with_the_remedy(rule: KernelizedWidth) -> None:
    model = SingleTaskVariationalGP(X, Y[:, :1])
    with pytest.raises(
        UnreadablePriorError,
        match=r"not .*Pass information_gain= .*or",
    ):
        width_of(rule, model)
    if rule.explicit_gain is None:
        assert rule.information_gain(PriorSummary(model)) is None


def test_the_gain_is_summed_over_the_outputs_that_count() -> None:
    model = both_outputs(1.0, 0.3, 2.0)
    gains = [gain_of(squared_exponential(X, 0.3), lam) for lam in (0.3, 2.0)]
    rule = KernelizedWidth(2.0, 0.5, DELTA)

    def gain(weights: list[float]) -> float:
        summary = PriorSummary(model, ScalarizedPosteriorTransform(double(weights)))
        total = rule.information_gain(summary)
        assert total is not None
        return total.item()

    assert gain([1.0, 1.0]) == pytest.approx(sum(gains), rel=1e-10)
    assert gain([0.0, 1.0]) == pytest.approx(gains[1], rel=1e-10)
