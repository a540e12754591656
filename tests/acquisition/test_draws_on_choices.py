"""Draws on finite sets are those of the dense posterior, also where it is computed in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import MixedSingleTaskGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import Warp
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import GPThompsonSampling
from botorch_bandits.acquisition import draws
from botorch_bandits.models.growing import box_posterior_of

from .cases import rows, uniform
from .dense import matern_five_halves, squared_exponential

X, Y = rows(8)
CHOICES = uniform(12, 2, seed=3)
BOUNDS = torch.tensor([[0.0, -1.0], [1.0, 2.0]], dtype=torch.float64)


def plain(kernel: Any = None, outcome_transform: Any = None, **more: Any) -> SingleTaskGP:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double() if kernel is None else kernel
    base = getattr(kernel, "base_kernel", kernel)
    base.lengthscale = torch.tensor([0.3, 0.5], dtype=torch.float64)[: base.lengthscale.numel()]
    model = SingleTaskGP(
        X, Y[:, :1], covar_module=kernel, outcome_transform=outcome_transform, **more
    )
    model.likelihood.noise = torch.tensor(0.05, dtype=torch.float64)
    model.mean_module.constant = torch.tensor(0.7, dtype=torch.float64)
    return model.eval()


CASES: dict[
    str, tuple[Callable[[], SingleTaskGP], Callable[[object], Callable[..., np.ndarray]], Any]
] = {
    "squared exponential": (plain, squared_exponential, [0.3, 0.5]),
    "Matern, standardized": (
        lambda: plain(MaternKernel(nu=2.5).double(), Standardize(1)),
        matern_five_halves,
        [0.3],
    ),
    "normalized": (
        lambda: plain(
            input_transform=Normalize(2, bounds=BOUNDS), outcome_transform=Standardize(1)
        ),
        squared_exponential,
        [0.3, 0.5],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_moments_and_draws_are_the_textbooks(name: str) -> None:
    build, kernel, lengthscale = CASES[name]
    model = build()
    is_scaled = hasattr(model, "outcome_transform")
    shift = model.outcome_transform.means.item() if is_scaled else 0.0
    unit = model.outcome_transform.stdvs.item() if is_scaled else 1.0
    y = (Y[:, 0].numpy() - shift) / unit - 0.7
    outputscale = float(getattr(model.covar_module, "outputscale", 1.0))

    def k(a: Tensor, b: Tensor) -> np.ndarray:
        if name == "normalized":
            a, b = ((each - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0]) for each in (a, b))
        return outputscale * kernel(lengthscale)(a.numpy(), b.numpy())

    own, cross = k(X, X) + 0.05 * np.eye(8), k(X, CHOICES)
    mean = shift + unit * (0.7 + cross.T @ np.linalg.solve(own, y))
    covariance = unit**2 * (k(CHOICES, CHOICES) - cross.T @ np.linalg.solve(own, cross))
    box = box_posterior_of(model)
    assert box is not None
    moments = box.mean_and_covariance(model.transform_inputs(CHOICES))
    assert np.allclose(moments[0].numpy(), mean, 0.0, 1e-10)
    assert np.allclose(moments[1].numpy(), covariance, 0.0, 1e-10)
    draw = GPThompsonSampling(model, choices=CHOICES, seed=5)
    generator = torch.Generator().manual_seed(draw._seed_of("arms"))
    normal = torch.randn(12, dtype=torch.float64, generator=generator).numpy()
    expected = mean + np.linalg.cholesky(covariance) @ normal
    assert np.allclose(draw(CHOICES.unsqueeze(-2)).detach().numpy(), expected, 0.0, 1e-8)


def test_a_singular_covariance_is_computed_again_and_factored_with_pivots() -> None:
    close = torch.cat([CHOICES, CHOICES + 1e-13])
    model = plain()
    assert draws.factor_in_place(box_posterior_of(model).mean_and_covariance(close)[1]) is None
    posterior = draws.joint_posterior(model, close, None)
    assert isinstance(posterior, draws.FactoredPosterior)
    assert posterior._root.shape[-1] < 24  # the rank
    expected = model.posterior(close).distribution.covariance_matrix.detach()
    assert torch.allclose(posterior._root @ posterior._root.mT, expected, rtol=0.0, atol=1e-10)
    _, deviation = posterior.draw(3)
    assert torch.allclose(deviation[:12], deviation[12:], rtol=0.0, atol=1e-5)


class Own(SingleTaskGP):
    """Its posterior may be another one."""

    def posterior(self, X: Tensor, *args: Any, **options: Any) -> Any:
        return super().posterior(X, *args, **options)


def test_only_a_plain_model_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    rounded = torch.cat([X[:, :1], X[:, 1:].round()], dim=-1)
    columns = torch.cat([CHOICES[:, :1], CHOICES[:, 1:].round()], dim=-1)
    asked = {
        "plain": (plain(), CHOICES, 0),
        "warped": (SingleTaskGP(X, Y[:, :1], input_transform=Warp(2, [0])).eval(), CHOICES, 0),
        "a kernel without a form": (plain_with(RBFKernel() + LinearKernel()), CHOICES, 0),
        "variances of rows": (SingleTaskGP(X, Y[:, :1], 0.1 + X[:, :1]).eval(), CHOICES, 0),
        "a class of one's own": (Own(X, Y[:, :1]).eval(), CHOICES, 1),
        "categories": (MixedSingleTaskGP(rounded, Y[:, :1], cat_dims=[1]).eval(), columns, 0),
        "fewer points than rows": (plain(), CHOICES[:5], 1),
        "training": (plain().train(), CHOICES, 0),
    }
    calls: list[int] = []
    usual = SingleTaskGP.posterior

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        calls.append(1)
        return usual(self, *args, **options)

    for name, (model, choices, expected) in asked.items():
        # as in BoTorch, to rounding
        reference = model.posterior(choices)
        mean = reference.mean.detach()
        covariance = reference.distribution.covariance_matrix.detach()
        if name == "training":
            model.train()
        with monkeypatch.context() as patch:
            patch.setattr(SingleTaskGP, "posterior", counted)
            calls.clear()
            with torch.no_grad():
                joint = draws.joint_posterior(model, choices, None)
            assert len(calls) == expected, name
        assert isinstance(joint, draws.FactoredPosterior) == (expected == 0), name
        with torch.no_grad():
            drawn = torch.stack([joint.draw(seed)[1].squeeze(-1) for seed in range(3)])
        assert torch.allclose(joint.draw(0)[0], mean, rtol=0.0, atol=1e-10), name
        root = draws.root_of(covariance)
        expected_draws = torch.stack([draws.draw_deviation(root, seed) for seed in range(3)])
        assert torch.allclose(drawn, expected_draws, rtol=0.0, atol=1e-6), name


def plain_with(kernel: Any) -> SingleTaskGP:
    return SingleTaskGP(X, Y[:, :1], covar_module=kernel).eval()
