"""Joint draws of several outputs: BoTorch's numbers, dense algebra, and loops on boxes."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from botorch.sampling.pathwise import draw_matheron_paths
from gpytorch.kernels import MaternKernel, ProductKernel, RBFKernel, ScaleKernel

from botorch_bandits import (
    BanditGP,
    BanditLoop,
    Box,
    Exponential,
    LagrangianThompsonSampling,
    PrimalDual,
)
from botorch_bandits.acquisition.draws import draw_path
from botorch_bandits.acquisition.pathwise import draw_joint_paths
from botorch_bandits.models import BanditGPRecipe
from botorch_bandits.models.several_outputs import TOGETHER, JointOutputs
from botorch_bandits.penalties import Linear
from botorch_bandits.random_streams import seeded_globally

M = 3
STREAM = torch.Generator().manual_seed(0)
X = torch.rand(150, 2, dtype=torch.float64, generator=STREAM)
Y = torch.stack([(5.0 * X).sin().sum(-1), X.cos().prod(-1), X[:, 0] - X[:, 1]], dim=-1)
POINTS = torch.rand(9, 2, dtype=torch.float64, generator=STREAM)


def kernel_each() -> ScaleKernel:
    shape = torch.Size([M])
    kernel = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape).double()
    kernel.base_kernel.lengthscale = torch.tensor([0.2, 0.4, 0.8]).double().view(-1, 1, 1)
    kernel.outputscale = torch.tensor([1.0, 2.0, 0.5]).double()
    return kernel


RECIPES: dict[str, BanditGPRecipe] = {
    "Matern": BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3),
    "prior mean": BanditGP.with_kernel(RBFKernel(), noise=0.05, prior_mean=1.5),
    "scaled": BanditGP.with_kernel(ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)), noise=0.05),
    "a kernel each": BanditGP.with_kernel(kernel_each(), noise=0.05),
}
every_recipe = pytest.mark.parametrize("name", RECIPES)


def joint(name: str, num_rows: int = len(X)) -> JointOutputs:
    model = RECIPES[name].builder(seed=0, separates_outputs=TOGETHER)(X[:num_rows], Y[:num_rows])
    assert isinstance(model, JointOutputs)
    return model


@every_recipe
@pytest.mark.parametrize("penalty", [Linear(), Exponential(0.5)], ids=["linear", "exponential"])
def test_the_score_is_that_of_the_scaled_draws(name: str, penalty: Any) -> None:
    model, multipliers, widths = joint(name), torch.tensor([0.7, 0.0]).double(), (0.5, 1.5, 2.0)
    plain, scaled = (
        LagrangianThompsonSampling(
            model, multipliers=multipliers, penalty=penalty, width=w, maximize=False, seed=5
        )
        for w in (1.0, widths)
    )
    X = POINTS.unsqueeze(-2)
    mean = model.posterior(X).mean.squeeze(-2)
    drawn = mean + torch.tensor(widths).double() * (plain.draw(X) - mean)
    excess = drawn[:, 1:] if penalty.is_linear else (0.5 * drawn[:, 1:]).exp() - 1.0
    expected = -drawn[:, 0] - (multipliers * excess).sum(-1)
    assert torch.allclose(scaled(X), expected, rtol=0.0, atol=1e-8)


@every_recipe
def test_draws_are_those_that_botorch_makes_of_one_model_of_all_outputs(name: str) -> None:
    with seeded_globally(3), torch.no_grad():
        path = draw_matheron_paths(RECIPES[name](X, Y), torch.Size())
        expected, behind = path(POINTS.unsqueeze(-3)).mT, torch.randn(4)
    with seeded_globally(3), torch.no_grad():
        found = draw_path(joint(name))(POINTS)
        assert torch.equal(torch.randn(4), behind)  # what is drawn later is the same, too
    assert torch.allclose(found, expected, rtol=0.0, atol=1e-8)


def test_a_score_is_that_of_dense_algebra() -> None:
    multiplier, model = 0.7, joint("Matern")
    acquisition = LagrangianThompsonSampling(model, multipliers=[multiplier, 0.2], seed=5, width=1)
    with seeded_globally(acquisition._seed_of("path")):
        paths = draw_joint_paths(model).paths
    K = MaternKernel(nu=2.5).double()
    K.lengthscale = torch.tensor(0.3, dtype=torch.float64)

    def kernel(A: torch.Tensor, B: torch.Tensor) -> np.ndarray:
        r = np.sqrt(5.0) * np.linalg.norm(A.numpy()[:, None] - B.numpy()[None], axis=-1) / 0.3
        return (1.0 + r + r**2 / 3.0) * np.exp(-r)

    total = np.zeros(len(POINTS))
    for path, weight in zip(paths, (1.0, -multiplier, -0.2), strict=True):
        prior = path.paths["prior_paths"]
        omega = prior.feature_map.weight.numpy() / 0.3
        both = [
            np.concatenate([f(A.numpy() @ omega.T) for f in (np.sin, np.cos)], 1)
            for A in (POINTS, X)
        ]
        waves, at_rows = (each @ prior.weight.numpy() / np.sqrt(512.0) for each in both)
        # the correction solves the noisy kernel matrix for what the draw missed
        c = path.paths["update_paths"].weight.numpy()
        residual = (kernel(X, X) + 0.05 * np.eye(len(X))) @ c
        j = [*paths].index(path)
        simulated = Y[:, j].numpy() - at_rows - residual
        assert 0.5 * 0.05 < simulated.var() < 2.0 * 0.05  # noise
        total += weight * (waves + kernel(POINTS, X) @ c)
    with torch.no_grad():
        found = acquisition(POINTS.unsqueeze(-2)).numpy()
    np.testing.assert_allclose(found, total, rtol=0.0, atol=1e-8)


@pytest.mark.slow
def test_what_cannot_be_drawn_together_is_drawn_one_output_at_a_time() -> None:
    product = ProductKernel(RBFKernel(active_dims=[0]), RBFKernel(active_dims=[1]))
    recipe = BanditGP.with_kernel(product.double(), noise=0.05)
    model = recipe.builder(seed=0, separates_outputs=TOGETHER)(X, Y)
    assert isinstance(model, BanditGP)
    assert isinstance(
        RECIPES["Matern"].builder(0, separates_outputs=TOGETHER)(X[:0], Y[:0]), BanditGP
    )
    weights = torch.tensor([1.0, -0.5, -0.5], dtype=torch.float64)
    draws = []
    with torch.no_grad():
        for seed in range(200):
            acquisition = LagrangianThompsonSampling(
                model, multipliers=[0.5, 0.5], seed=seed, width=1.0
            )
            draws.append(acquisition(POINTS.unsqueeze(-2)))
            if seed % 10 == 0:  # one function
                assert torch.equal(acquisition(POINTS.unsqueeze(-2)), draws[-1])
        posterior = model.posterior(POINTS)
    values = torch.stack(draws)
    mean, variance = posterior.mean @ weights, posterior.variance @ weights.square()
    error = (values.mean(0) - mean).abs() / (variance / 200).sqrt()
    assert float(error.max()) < 5.0
    spread = (values.var(0) / variance - 1.0).abs() / math.sqrt(2.0 / 199)
    assert float(spread.max()) < 5.0


def test_outputs_with_one_prior_share_a_factor() -> None:
    first, *others = (model.factored for model in joint("Matern").models)
    assert all(each.W.data_ptr() == first.W.data_ptr() for each in others)
    for j, model in enumerate(joint("Matern").models):
        alone = RECIPES["Matern"](X, Y[:, j : j + 1]).factored
        torch.testing.assert_close(model.factored.coefficients, alone.coefficients)


def test_a_loop_searches_the_draw_and_goes_on_from_its_history() -> None:
    def loop(history: Any = None) -> BanditLoop:
        return BanditLoop(
            Box([(0.0, 1.0)] * 2, num_restarts=8, raw_samples=128),
            RECIPES["Matern"],
            LagrangianThompsonSampling.with_options(width=1.0),
            constraints=PrimalDual(1, max_multiplier=2.0, divisor=4.0),
            num_initial=4,
            seed=2,
            history=history,
        )

    played = loop()
    for _ in range(9):
        query = played.ask()
        played.tell(query.id, float(query.x.sin().sum()), constraints=[float(query.x[0]) - 0.4])
    assert isinstance(played.current_model(), JointOutputs)
    known = copy.deepcopy(played.history)
    torch.testing.assert_close(loop(known).ask().x, played.ask().x, rtol=0, atol=1e-6)
