"""Models that continue another one have hyperparameters of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gpytorch
import pytest
import torch
from botorch.models.transforms.input import Normalize
from gpytorch.constraints import Interval
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior
from torch import Tensor
from torch.nn import Module

from botorch_bandits import BanditGP
from botorch_bandits.models import condition
from botorch_bandits.models.condition import hallucinate
from botorch_bandits.models.module_copies import copy_modules

X = torch.tensor([[0.1, 0.3], [0.5, 0.9], [0.8, 0.2], [0.4, 0.4]], dtype=torch.float64)
Y = X.sin().sum(-1, keepdim=True)
NEW = torch.tensor([[0.25, 0.75], [0.6, 0.1]], dtype=torch.float64)
POINTS = torch.tensor([[0.3, 0.3], [0.9, 0.7], [0.5, 0.5]], dtype=torch.float64)
TWO = torch.cat([Y, Y.cos()], dim=-1)

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
    "two outputs": lambda: BanditGP(X, TWO, kernel=RBFKernel(), noise=0.1),
    "no rows": lambda: BanditGP(X[:0], Y[:0], kernel=RBFKernel(), noise=0.1),
}


def outcomes(model: BanditGP, X: Tensor) -> Tensor:
    return X.cos().sum(-1, keepdim=True).expand(len(X), model.num_outputs)


VIEWS: dict[str, Callable[[BanditGP], Any]] = {
    "condition_on_observations": lambda m: m.condition_on_observations(NEW, outcomes(m, NEW)),
    "censored": lambda m: m.censored(NEW, minimum=-1.0),
    "with_outcomes": lambda m: m.with_outcomes(outcomes(m, X[: m.num_rows])),
    "since": lambda m: m.since(min(1, m.num_rows)),
    "condition": lambda m: condition(m, NEW, outcomes(m, NEW)),
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


def test_the_child_of_a_changed_model_has_what_it_was_changed_to() -> None:
    parent = MODELS["scaled"]()
    moments(parent)
    parent.likelihood.noise = 0.3
    parent.covar_module.outputscale = 2.0
    child = parent.condition_on_observations(NEW, outcomes(parent, NEW))
    rows, targets = torch.cat([X, NEW]), torch.cat([Y, outcomes(parent, NEW)])
    noise = parent.likelihood.noise.detach().squeeze(-1)  # 0.3, by way of float32
    fresh = BanditGP(rows, targets, kernel=parent.covar_module, noise=noise)
    assert torch.allclose(moments(child), moments(fresh), rtol=0.0, atol=1e-10)


def test_a_child_inherits_the_factor_of_its_parent() -> None:
    parent = MODELS["closed form"]()
    moments(parent)
    child = parent.condition_on_observations(NEW, outcomes(parent, NEW))
    known = child._cached
    assert known is not None
    assert known.closed_form is not None
    assert known.is_current(child)
    moments(child)
    assert child._cached is known  # nothing was factorized again


class Tagged(Kernel):
    """A kernel with state of all kinds, and references to itself."""

    def __init__(self) -> None:
        super().__init__(has_lengthscale=True)
        self.base = RBFKernel()
        self.register_buffer("table", torch.arange(3.0))
        self.plain = torch.ones(2)
        self.names = {"base": self.base, "list": [self.base, 1]}
        self.method = self.answer
        self.nothing = None

    def answer(self) -> Tagged:
        return self


MODULES: dict[str, Callable[[], Module]] = {
    "kernel": lambda: ScaleKernel(
        MaternKernel(ard_num_dims=2, lengthscale_prior=GammaPrior(3.0, 6.0)),
        outputscale_constraint=Interval(0.1, 5.0),
    ),
    "sum": lambda: AdditiveKernel(RBFKernel(active_dims=(0,)), PeriodicKernel() * LinearKernel()),
    "likelihood": lambda: gpytorch.likelihoods.GaussianLikelihood(),
    "mean": lambda: gpytorch.means.ConstantMean(),
    "transform": lambda: Normalize(2),
    "own": Tagged,
}


@pytest.mark.parametrize("name", MODULES)
def test_a_copy_is_what_deepcopy_makes(name: str) -> None:
    module = MODULES[name]().double()
    (made,) = copy_modules({"it": module}).values()
    expected = copy.deepcopy(module)
    assert list(made.state_dict()) == list(expected.state_dict())
    for key, value in expected.state_dict().items():
        assert torch.equal(made.state_dict()[key], value)
    parts = dict(module.named_modules())
    for key, part in made.named_modules():
        assert type(part) is type(parts[key])
        assert vars(part).keys() == vars(dict(expected.named_modules())[key]).keys()
        if list(parts[key].parameters()) or isinstance(part, Kernel):
            assert part is not parts[key]
    theirs = {p.data_ptr() for p in (*module.parameters(), *module.buffers())}
    assert not theirs & {p.data_ptr() for p in (*made.parameters(), *made.buffers())}
    for key, parameter in made.named_parameters():
        assert parameter.requires_grad == dict(module.named_parameters())[key].requires_grad
    # constraints, hooks and settings act on the copy
    changed = {key: value + value.new_ones(()) for key, value in made.state_dict().items()}
    before = {key: value.clone() for key, value in module.state_dict().items()}
    made.load_state_dict(changed)
    assert all(torch.equal(made.state_dict()[key], changed[key]) for key in changed)
    assert all(torch.equal(module.state_dict()[key], before[key]) for key in before)


def test_references_within_a_module_stay_within_its_copy() -> None:
    module = Tagged()
    (made,) = copy_modules({"it": module}).values()
    assert isinstance(made, Tagged)
    assert made.method() is made
    assert made.names["base"] is made.base is made.names["list"][0]
    assert made.base is not module.base
    made.plain.add_(1.0)
    assert module.plain.tolist() == [1.0, 1.0]


def test_a_part_that_two_modules_share_stays_shared() -> None:
    kernel = RBFKernel()
    made = copy_modules({"a": ScaleKernel(kernel), "b": ScaleKernel(kernel)})
    assert made["a"].base_kernel is made["b"].base_kernel
    assert made["a"].base_kernel is not kernel
