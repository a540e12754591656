"""A loop that models reward and constraints separately has a model of one output for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from botorch.models import ModelListGP
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    LagrangianUpperConfidenceBound,
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


def outcome(x: Tensor) -> tuple[float, list[float]]:
    return float((3.0 * x).sin().sum()), [float((2.0 * x).cos().prod() - 0.3)]


def make_loop(domain: Any, acquisition: Any, **settings: Any) -> BanditLoop:
    return BanditLoop(
        domain,
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3),
        acquisition,
        constraints=AdditiveEpochs(1, epoch_length=3, step_size=0.5, surrogate="separate"),
        num_initial=3,
        seed=4,
        **settings,
    )


def play(loop: BanditLoop, num_rounds: int) -> Tensor:
    for _ in range(num_rounds):
        query = loop.ask()
        reward, constraints = outcome(query.x)
        loop.tell(query.id, reward, constraints=constraints)
    return torch.stack([query.x for query in loop.history.queries])


BOX = Box([[0.0, 0.0], [1.0, 1.0]])


class LargestTensor(TorchDispatchMode):
    """Notes the number of entries of the largest tensor that an operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.num_entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given, made = (
            [each for each in tree_leaves(some) if isinstance(each, Tensor)]
            for some in ((args, kwargs), result)
        )
        known = {each.untyped_storage().data_ptr() for each in given}
        for part in made:
            if part.untyped_storage().data_ptr() not in known:  # a view of what there is
                self.num_entries = max(self.num_entries, part.numel())
        return result


@pytest.mark.parametrize("domain", [Arms(uniform(300, 2, seed=5)), BOX], ids=["arms", "box"])
def test_no_round_makes_a_covariance_of_all_rows_at_every_point(domain: Any) -> None:
    # one model with both outputs made a matrix of (2 outputs) x (n + 1)^2 for each point
    loop = make_loop(domain, LagrangianUpperConfidenceBound.with_options(width=2.0))
    num_rows, num_points = 40, 300
    for i, x in enumerate(uniform(num_rows, 2, seed=6)):
        at = domain.choices[i] if isinstance(domain, Arms) else x
        reward, constraints = outcome(at)
        loop.attach(at, reward, constraints=constraints)
    play(loop, 3)
    with LargestTensor() as largest:
        query = loop.ask()
    assert query.origin == "acquisition"
    size = num_points if isinstance(domain, Arms) else 2048
    assert 0 < largest.num_entries <= 2 * size * (num_rows + 5)
    assert largest.num_entries < (2 * num_points) ** 2
