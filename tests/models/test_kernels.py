"""Models that continue another one have hyperparameters of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.models.transforms.input import Normalize
from gpytorch.kernels import (
    LinearKernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.models import condition
from botorch_bandits.models.reading import hallucinate

from .textbook import double

X = double([[0.1, 0.3], [0.5, 0.9], [0.8, 0.2], [0.4, 0.4]])
Y = X.sin().sum(-1, keepdim=True)
NEW = double([[0.25, 0.75], [0.6, 0.1]])
POINTS = double([[0.3, 0.3], [0.9, 0.7], [0.5, 0.5]])

MODELS: dict[str, Callable[[], BanditGP]] = {
    "closed form": lambda: BanditGP(X, Y, kernel=MaternKernel(nu=2.5), noise=0.1),
    "scaled": lambda: BanditGP(X, Y, kernel=ScaleKernel(RBFKernel(ard_num_dims=2)), noise=0.1),
    "prior mean": lambda: BanditGP(X, Y, kernel=RBFKernel(), noise=0.1, prior_mean=2.0),
    "learned": lambda: BanditGP(X, Y, kernel=RBFKernel(), noise=0.1, learn_hyperparameters=True),
    "transform": lambda: BanditGP(
        X, Y, kernel=RBFKernel(), noise=0.1, input_transform=Normalize(2)
    ),
    "no closed form": lambda: BanditGP(X, Y, kernel=LinearKernel(), noise=0.1),
    "repeats": lambda: BanditGP(X, Y, kernel=RBFKernel(), noise=0.1, repeats=2.0 + X[:, 0]),
    "no rows": lambda: BanditGP(X[:0], Y[:0], kernel=RBFKernel(), noise=0.1),
}


def outcomes(X: Tensor) -> Tensor:
    return X.cos().sum(-1, keepdim=True)


VIEWS: dict[str, Callable[[BanditGP], Any]] = {
    "condition_on_observations": lambda m: m.condition_on_observations(NEW, outcomes(NEW)),
    "censored": lambda m: m.censored(NEW, minimum=-1.0),
    "with_outcomes": lambda m: m.with_outcomes(outcomes(X[: m.num_rows])),
    "since": lambda m: m.since(min(1, m.num_rows)),
    "condition": lambda m: condition(m, NEW, outcomes(NEW)),
    "hallucinate": lambda m: hallucinate(m, NEW),
}


def moments(model: Any) -> Tensor:
    with torch.no_grad():
        posterior = model.posterior(POINTS)
        return torch.stack([posterior.mean, posterior.variance])


def change(model: Any) -> None:
    model.likelihood.noise = 0.5
    for parameter in (*model.covar_module.parameters(), *model.mean_module.parameters()):
        parameter.data.add_(0.7)
    for buffer in model.mean_module.buffers():
        buffer.add_(0.7)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("changes_child", [True, False], ids=["child", "parent"])
def test_hyperparameters_of_one_model_leave_the_other_as_it_was(
    name: str, view: str, changes_child: bool
) -> None:
    if name == "repeats" and view == "since":
        pytest.skip("rows that are means have no order in time")
    parent = MODELS[name]()
    moments(parent)  # caches are there to be inherited
    child = VIEWS[view](parent)
    changed, kept = (child, parent) if changes_child else (parent, child)
    before, to_be_changed = moments(kept), moments(changed)
    noise = kept.likelihood.noise.clone()
    change(changed)
    assert torch.equal(kept.likelihood.noise, noise)
    assert torch.equal(moments(kept), before)
    if changed.closed_form is not None:  # GPyTorch keeps caches of what was, ours are renewed
        after = moments(changed)
        assert not torch.allclose(after, to_be_changed)
        assert torch.allclose(after, moments(copy.deepcopy(changed)), rtol=0.0, atol=1e-10)


def test_a_child_inherits_the_factor_of_its_parent() -> None:
    parent = MODELS["closed form"]()
    moments(parent)
    child = parent.condition_on_observations(NEW, outcomes(NEW))
    known = child.closed_form
    assert known is not None
    moments(child)
    assert child.closed_form is known  # nothing was factorized again
