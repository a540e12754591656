"""A loop that models reward and constraints separately has a model of one output for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from botorch.models import ModelListGP
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

from botorch_bandits import (
    BanditGP,
)
from botorch_bandits.core.kernels import kernel_of_output
from botorch_bandits.models import BanditGPRecipe

from .textbook import uniform

NUM_OUTPUTS = 3


def batch_kernel() -> ScaleKernel:
    shape = torch.Size([NUM_OUTPUTS])
    kernel = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape).double()
    kernel.base_kernel.lengthscale = torch.tensor([0.2, 0.4, 0.8]).double().view(-1, 1, 1)
    kernel.outputscale = torch.tensor([1.0, 2.0, 0.5]).double()
    return kernel


RECIPES: dict[str, Callable[[], BanditGPRecipe]] = {
    "Matern": lambda: BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.05, lengthscale=0.3),
    "prior mean": lambda: BanditGP.with_kernel(RBFKernel(), noise=0.05, prior_mean=1.5),
    "scaled": lambda: BanditGP.with_kernel(ScaleKernel(MaternKernel(ard_num_dims=2)), noise=0.05),
    "linear": lambda: BanditGP.with_kernel(LinearKernel(), noise=0.05),
    "a kernel each": lambda: BanditGP.with_kernel(batch_kernel(), noise=0.05),
    "transform": lambda: BanditGP.with_kernel(
        RBFKernel(), noise=0.05, input_transform=Normalize(2)
    ),
    "learned": lambda: BanditGP.with_kernel(ScaleKernel(RBFKernel()), noise=0.05, refit_every=6),
}


@pytest.mark.parametrize("name", RECIPES)
def test_each_output_is_the_model_of_its_own_prior_and_outcomes(name: str) -> None:
    recipe = RECIPES[name]()
    build = recipe.builder(seed=3)
    X = uniform(14, 2, seed=1)
    Y = torch.stack([X.sin().sum(-1), X.cos().prod(-1), X[:, 0] - X[:, 1]], dim=-1)
    Y = Y + 0.3 * uniform(14, NUM_OUTPUTS, seed=8)  # a fit finds some noise
    points = uniform(9, 1, 2, seed=2)
    for num_rows in (0, 1, 5, 6, 9, 14):  # continued, and refitted
        if num_rows == 0 and name == "transform":
            continue  # it learns its scale from rows
        model = build(X[:num_rows], Y[:num_rows])
        assert isinstance(model, ModelListGP)
        found = model.posterior(points)
        for j in range(NUM_OUTPUTS):
            alone = replace(recipe, kernel=kernel_of_output(recipe.kernel, j))
            expected = alone(X[:num_rows], Y[:num_rows, j : j + 1]).posterior(points)
            for one, other in ((found.mean, expected.mean), (found.variance, expected.variance)):
                assert torch.allclose(one[..., j : j + 1], other, rtol=0.0, atol=1e-8)


def test_models_of_outputs_grow_row_by_row_and_keep_parameters_of_their_own() -> None:
    build = RECIPES["Matern"]().builder(seed=0)
    X = uniform(8, 2, seed=1)
    Y = torch.stack([X.sum(-1), X.prod(-1)], dim=-1)
    first = build(X[:7], Y[:7])
    first.posterior(X)
    second = build(X, Y)
    forms = [part.closed_form for part in second.models]
    assert forms[0].W.data_ptr() == forms[1].W.data_ptr()  # the factor is shared
    second.models[0].likelihood.noise = 0.5
    for part in (first.models[0], second.models[1], build(X, Y).models[0]):
        assert part.likelihood.noise.item() == pytest.approx(0.05)
