"""Recipes compare by what they build, and refit by a rule that depends on the data alone."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from botorch.exceptions.errors import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import Round
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import (
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import BanditGP, BanditGPRecipe
from botorch_bandits.models import RefitWarning

from .textbook import double, log_likelihood, matern, normal, uniform

X = uniform(23, 2, seed=0)
NOISE = normal(23, 1, seed=1)
Y = 2.0 * (6.0 * X[:, :1]).sin() + X[:, 1:] + 0.2 * NOISE
UNIT_BOX = double([[0.0, 0.0], [1.0, 1.0]])
WIDE_BOX = double([[-1.0, -1.0], [2.0, 2.0]])


def scaled_matern(nu: float = 2.5, scale: float = 1.0, lengthscale: float = 0.5) -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=nu)).double()
    kernel.outputscale = double(scale)
    kernel.base_kernel.lengthscale = double(lengthscale)
    return kernel


# --- building -------------------------------------------------------------------------------------


def test_a_recipe_shares_nothing_with_what_it_was_made_from_or_makes() -> None:
    kernel, transform = scaled_matern(), Normalize(2, bounds=UNIT_BOX)
    recipe = BanditGP.with_kernel(kernel, noise=0.3, input_transform=transform)
    before = copy.deepcopy(recipe)
    kernel.outputscale = double(9.0)
    transform.coefficient.fill_(9.0)
    model = recipe(X, Y)
    model.covar_module.outputscale = double(7.0)
    model.input_transform.coefficient.fill_(7.0)
    assert recipe == before
    assert recipe(X, Y).covar_module.outputscale.item() == 1.0


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"kernel": "rbf"}, TypeError, "kernel must be a gpytorch.*MaternKernel"),
        ({"kernel": RBFKernel}, TypeError, "kernel must be a gpytorch"),
        ({"noise": 0.0}, ValueError, "noise is 0.0"),
        ({"prior_mean": float("nan")}, ValueError, "prior_mean is"),
        ({"noise": "0.1"}, TypeError, "noise must be one number"),
        ({"lengthscale": -0.1}, ValueError, "lengthscale is -0.1"),
        ({"refit_every": 0}, ValueError, "refit_every is 0; it must be at least 1"),
        ({"refit_every": 2.0}, TypeError, "refit_every must be an integer"),
        (
            {"kernel": LinearKernel(), "lengthscale": 0.2},
            ValueError,
            "LinearKernel has no single lengthscale",
        ),
        (
            {"kernel": RBFKernel() + MaternKernel(), "lengthscale": 0.2},
            ValueError,
            "AdditiveKernel has no single lengthscale",
        ),
    ],
)
def test_malformed_settings_are_refused_before_there_are_data(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        BanditGP.with_kernel(**({"kernel": RBFKernel()} | arguments))


# --- comparing ------------------------------------------------------------------------------------


def subclass() -> BanditGPRecipe:
    class OtherGP(BanditGP):
        pass

    return OtherGP.with_kernel(RBFKernel())


def with_constraint() -> Kernel:
    return RBFKernel(lengthscale_constraint=GreaterThan(0.0))


RECIPES: dict[str, Callable[[], BanditGPRecipe]] = {
    "se": lambda: BanditGP.with_kernel(RBFKernel()),
    "matern 1/2": lambda: BanditGP.with_kernel(MaternKernel(nu=0.5)),
    "matern 3/2": lambda: BanditGP.with_kernel(MaternKernel(nu=1.5)),
    "matern 5/2": lambda: BanditGP.with_kernel(MaternKernel(nu=2.5)),
    # so short that the kernel underflows to 0 between any two points one would try
    "short 3/2": lambda: BanditGP.with_kernel(MaternKernel(nu=1.5), lengthscale=1e-6),
    "short 5/2": lambda: BanditGP.with_kernel(MaternKernel(nu=2.5), lengthscale=1e-6),
    "lengthscale": lambda: BanditGP.with_kernel(RBFKernel(), lengthscale=0.3),
    "ard 2": lambda: BanditGP.with_kernel(RBFKernel(ard_num_dims=2)),
    "ard 3": lambda: BanditGP.with_kernel(RBFKernel(ard_num_dims=3)),
    "scaled": lambda: BanditGP.with_kernel(ScaleKernel(RBFKernel())),
    "sum": lambda: BanditGP.with_kernel(RBFKernel() + RBFKernel()),
    "product": lambda: BanditGP.with_kernel(RBFKernel() * RBFKernel()),
    "column 0": lambda: BanditGP.with_kernel(RBFKernel(active_dims=(0,))),
    "column 1": lambda: BanditGP.with_kernel(RBFKernel(active_dims=(1,))),
    "quadratic": lambda: BanditGP.with_kernel(PolynomialKernel(power=2)),
    "cubic": lambda: BanditGP.with_kernel(PolynomialKernel(power=3)),
    "periodic": lambda: BanditGP.with_kernel(PeriodicKernel()),
    "bounded": lambda: BanditGP.with_kernel(with_constraint()),
    "noise": lambda: BanditGP.with_kernel(RBFKernel(), noise=0.02),
    "mean": lambda: BanditGP.with_kernel(RBFKernel(), prior_mean=-2.5),
    "refit 5": lambda: BanditGP.with_kernel(RBFKernel(), refit_every=5),
    "refit 6": lambda: BanditGP.with_kernel(RBFKernel(), refit_every=6),
    "unit box": lambda: BanditGP.with_kernel(
        RBFKernel(), input_transform=Normalize(2, bounds=UNIT_BOX)
    ),
    "wide box": lambda: BanditGP.with_kernel(
        RBFKernel(), input_transform=Normalize(2, bounds=WIDE_BOX)
    ),
    "learned box": lambda: BanditGP.with_kernel(RBFKernel(), input_transform=Normalize(2)),
    "rounded": lambda: BanditGP.with_kernel(RBFKernel(), input_transform=Round([0])),
    "nearly rounded": lambda: BanditGP.with_kernel(
        RBFKernel(), input_transform=Round([0], approximate=True)
    ),
    "subclass": subclass,
}


def test_recipes_are_equal_if_and_only_if_they_build_equal_models() -> None:
    first = [build() for build in RECIPES.values()]
    second = [build() for build in RECIPES.values()]
    assert first == second
    assert all(a != b for a, b in itertools.pairwise(first))
    assert len({*first, *second}) == len(RECIPES)
    assert first[0] != "se"
    # up to rounding
    one, near, other = (
        BanditGP.with_kernel(RBFKernel(), lengthscale=0.3 + more) for more in (0.0, 1e-15, 1e-9)
    )
    assert (one == near, hash(one) == hash(near), one == other) == (True, True, False)


# --- refitting ------------------------------------------------------------------------------------


def hyperparameters(model: BanditGP) -> list[float]:
    return [
        model.covar_module.base_kernel.lengthscale.item(),
        model.covar_module.outputscale.item(),
        model.likelihood.noise.item(),
    ]


def refitting(every: int = 5, noise: float = 0.1) -> BanditGPRecipe:
    return BanditGP.with_kernel(scaled_matern(), noise=noise, refit_every=every)


def test_hyperparameters_come_from_the_first_multiple_of_rows() -> None:
    at_ten = hyperparameters(refitting()(X[:10], Y[:10]))
    for n in (11, 14):
        changed = Y[:n].clone()
        changed[10:] += 100.0
        for outcomes in (Y[:n], changed):
            model = refitting()(X[:n], outcomes)
            assert hyperparameters(model) == at_ten
            assert torch.equal(model.train_targets, outcomes.squeeze(-1))
    assert hyperparameters(refitting()(X[:15], Y[:15])) != at_ten
    moved = Y[:14].clone()
    moved[9] += 100.0
    assert hyperparameters(refitting()(X[:14], moved)) != at_ten


def test_refits_are_a_chain_of_warm_starts() -> None:
    # each link starts from the better of the recipe's values and the link before
    link = BanditGP(X[:5], Y[:5], scaled_matern(), 0.1, learn_hyperparameters=True)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(link.likelihood, link))
    for n in (10, 15, 20):
        values, links = [], []
        for kernel, noise in (
            (scaled_matern(), 0.1),
            (link.covar_module, link.likelihood.noise.detach().squeeze()),
        ):
            model = BanditGP(X[:n], Y[:n], kernel, noise, learn_hyperparameters=True)
            found = hyperparameters(model)
            values.append(log_likelihood(matern(2.5, *found[:2]), X[:n], Y[:n, 0], found[2]))
            links.append(model)
        link = links[values.index(max(values))]
        fit_gpytorch_mll(ExactMarginalLogLikelihood(link.likelihood, link))
        found = hyperparameters(refitting()(X[:n], Y[:n]))
        # building a model rounds the noise
        assert found == pytest.approx(hyperparameters(link), rel=1e-9)


def test_a_changed_row_changes_the_links_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    import botorch_bandits.models.bandit_gp as module

    fits: list[int] = []
    plain: Callable[..., Any] = module.fit_gpytorch_mll

    def counting(mll: Any, **kwargs: Any) -> Any:
        fits.append(len(mll.model.train_targets))
        return plain(mll, **kwargs)

    monkeypatch.setattr(module, "fit_gpytorch_mll", counting)
    build = refitting().builder(seed=0)
    build(X, Y)
    changed = Y.clone()
    changed[11] += 3.0
    fits.clear()
    found = hyperparameters(build(X, changed))
    assert fits == [15, 20]
    assert found == hyperparameters(refitting()(X, changed))
    fits.clear()
    assert hyperparameters(build(X[:12], changed[:12])) == hyperparameters(
        refitting()(X[:12], Y[:12])
    )
    assert fits == [5, 10]  # of the new builder only


def test_a_fit_that_draws_draws_from_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    # BoTorch's fit starts again from random values when it fails.
    def drawing(mll: Any, **kwargs: Any) -> Any:
        mll.model.covar_module.outputscale = torch.rand((), dtype=torch.float64)
        return mll

    monkeypatch.setattr("botorch_bandits.models.bandit_gp.fit_gpytorch_mll", drawing)

    def scale(seed: int, num_rows: int) -> float:
        torch.rand(7)  # what others draw must not matter
        model = refitting().builder(seed)(X[:num_rows], Y[:num_rows])
        return model.covar_module.outputscale.item()

    assert scale(0, 10) == scale(0, 10) == scale(0, 12)
    assert len({scale(0, 10), scale(1, 10), scale(0, 15)}) == 3


def test_a_failed_fit_is_warned_of_and_keeps_the_starting_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(mll: Any, **kwargs: Any) -> Any:
        mll.model.covar_module.outputscale = double(1e9)
        raise ModelFittingError("all attempts failed")

    monkeypatch.setattr("botorch_bandits.models.bandit_gp.fit_gpytorch_mll", failing)
    with pytest.warns(RefitWarning, match=r"10 rows failed \(all"):
        model = refitting()(X[:12], Y[:12])
    assert hyperparameters(model) == pytest.approx([0.5, 1.0, 0.1], rel=1e-12)


def test_a_noise_fitted_to_its_lower_end_builds_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def vanishing(mll: Any, **kwargs: Any) -> Any:
        mll.model.likelihood.noise_covar.raw_noise.data.fill_(-1e3)
        return mll

    monkeypatch.setattr("botorch_bandits.models.bandit_gp.fit_gpytorch_mll", vanishing)
    model = refitting()(X[:12], Y[:12])
    assert model.likelihood.noise.item() == pytest.approx(1e-10, rel=1e-9)


def test_several_outputs_are_refitted_each_on_its_own() -> None:
    both: Tensor = torch.cat([Y, 50.0 * X[:, 1:] ** 2], dim=-1)
    model = refitting()(X, both)
    first, second = (float(each.covar_module.outputscale) for each in model.models)
    assert second > 5.0 * first
