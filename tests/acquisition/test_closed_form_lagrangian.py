"""The bound of a penalized reward in closed form, against automatic differentiation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from botorch_bandits import BanditGP, Box, LagrangianUpperConfidenceBound
from botorch_bandits.acquisition import AffineOutcomes
from botorch_bandits.acquisition import closed_form_lagrangian as module
from botorch_bandits.models.closed_form import ClosedForm
from botorch_bandits.penalties import Exponential, Linear, Polynomial

torch_options: dict[str, Any] = {"dtype": torch.float64}
X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), **torch_options)
Y = torch.stack([(5 * X).sin().sum(-1), (4 * X).cos().sum(-1) - 0.3, X.prod(-1) - 0.4], dim=-1)
POINTS = torch.rand(9, 2, generator=torch.Generator().manual_seed(1), **torch_options)


def model(kernels: str) -> ModelListGP:
    """Kernels are equal, or differ, or the second is a product."""
    parts = []
    for j in range(3):
        kernel: Any = MaternKernel(nu=2.5).double()
        kernel.lengthscale = torch.tensor(0.5 + (0.1 * j if kernels == "different" else 0.0))
        if kernels == "products":
            kernel = ScaleKernel(kernel * RBFKernel(active_dims=[1])).double()
        parts.append(BanditGP(X, Y[:, j : j + 1], kernel=kernel.double(), noise=0.02))
    return ModelListGP(*parts)


CASES: dict[str, dict[str, Any]] = {
    "one sum": {"penalty": Linear()},
    "minimized": {"penalty": Linear(), "maximize": False},
    "separate": {"penalty": Linear(), "separate_bounds": True},
    "clipped": {"penalty": Linear(), "reward_bound": 1.5, "constraint_bound": 0.2},
    "polynomial": {"penalty": Polynomial(c=2.0)},
    "exponential": {"penalty": Exponential(c=1.0), "width": (1.0, 2.0, 0.5)},
}


@pytest.mark.parametrize("kernels", ["equal", "different", "products"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("multipliers", [[1.5, 0.7], [1.5, 0.0]])
def test_values_and_gradients_are_those_of_autograd(
    kernels: str, name: str, multipliers: list[float]
) -> None:
    options = {"width": 2.0, **CASES[name]}
    acquisition = LagrangianUpperConfidenceBound(model(kernels), multipliers=multipliers, **options)
    closed_form = acquisition.closed_form
    assert closed_form is not None
    points = POINTS.clone().requires_grad_()
    expected = acquisition(points.unsqueeze(-2))
    (slope,) = torch.autograd.grad(expected.sum(), points)
    value, gradient = closed_form.value_and_gradient(POINTS)
    assert torch.allclose(value, expected.detach(), rtol=0.0, atol=1e-12)
    assert torch.allclose(gradient, slope, rtol=0.0, atol=1e-10)
    assert torch.allclose(closed_form.value(POINTS), value, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize(("kernels", "count"), [("equal", 1), ("different", 3)])
def test_outputs_with_one_factor_have_one_variance(
    kernels: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquisition = LagrangianUpperConfidenceBound(
        model(kernels), multipliers=[1.0, 1.0], width=2.0, separate_bounds=True
    )
    closed_form = acquisition.closed_form
    assert closed_form is not None
    calls, original = [0], ClosedForm.value_and_gradient

    def counted(self: ClosedForm, points: torch.Tensor) -> Any:
        calls[0] += 1
        return original(self, points)

    monkeypatch.setattr(ClosedForm, "value_and_gradient", counted)
    closed_form.value_and_gradient(POINTS)
    assert calls == [count]


def test_a_box_is_searched_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    acquisition = LagrangianUpperConfidenceBound(model("equal"), multipliers=[1.0, 0.5], width=2.0)
    box = Box([[0.0, 0.0], [1.0, 1.0]], num_restarts=4, raw_samples=32)
    found, value = box.maximize(acquisition, seed=1)
    monkeypatch.setattr(LagrangianUpperConfidenceBound, "closed_form", None)
    ordinary, other = box.maximize(acquisition, seed=1)
    assert value >= other - 1e-9
    assert torch.allclose(found, ordinary, rtol=0.0, atol=1e-4)


def test_other_models_and_subclasses_have_none() -> None:
    class Own(LagrangianUpperConfidenceBound):
        def _bounds(self, mean: torch.Tensor, sigma: torch.Tensor) -> Any:
            return super()._bounds(mean, 2.0 * sigma)

    ours = model("equal")
    plain = ModelListGP(*(SingleTaskGP(X, Y[:, j : j + 1]) for j in range(3)))
    assert Own(ours, multipliers=[1.0, 1.0], width=1.0).closed_form is None
    assert LagrangianUpperConfidenceBound(plain, multipliers=[1, 1], width=1.0).closed_form is None
    transform = AffineOutcomes(torch.eye(3, **torch_options))
    acquisition = LagrangianUpperConfidenceBound(
        ours, multipliers=[1.0, 1.0], width=1.0, posterior_transform=transform
    )
    assert acquisition.closed_form is None
    assert acquisition.gen_candidates is None
    assert module.closed_forms_of_outputs(ours.models[0], [True]) is None
