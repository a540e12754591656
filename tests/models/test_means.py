"""A constant prior mean is a shift of the reward; censored views of a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

from botorch_bandits import BanditGP
from botorch_bandits.models import condition

from .textbook import uniform

X, NEW, POINTS = (uniform(n, 2, seed=n) for n in (8, 3, 5))
Y, Y_NEW = ((6.0 * rows).sin().sum(-1, keepdim=True) - 3.0 for rows in (X, NEW))
MEAN = -2.5
KERNELS = {
    "closed form": MaternKernel(nu=2.5),
    "scaled": ScaleKernel(RBFKernel()),
    "GPyTorch": ScaleKernel(RBFKernel()) + LinearKernel(),
}


def pair(kernel: str = "closed form", **options: Any) -> tuple[BanditGP, BanditGP]:
    """A model with a prior mean, and the zero-mean model of the shifted reward."""
    shifted = BanditGP(X, Y - MEAN, kernel=KERNELS[kernel], noise=0.03, **options)
    return BanditGP(X, Y, kernel=KERNELS[kernel], noise=0.03, prior_mean=MEAN, **options), shifted


def assert_shifted(model: Any, shifted: Any, tolerance: float = 1e-10) -> None:
    found, expected = model.posterior(POINTS), shifted.posterior(POINTS)
    assert torch.allclose(found.mean, expected.mean + MEAN, rtol=0.0, atol=tolerance)
    assert torch.allclose(found.variance, expected.variance, rtol=0.0, atol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
def test_posterior_conditioning_and_replaced_outcomes_are_shifted(kernel: str) -> None:
    model, shifted = pair(kernel)
    assert model.prior_mean == MEAN
    assert shifted.prior_mean == 0.0
    assert_shifted(model, shifted)
    grown = model.condition_on_observations(NEW, Y_NEW)
    also = shifted.condition_on_observations(NEW, Y_NEW - MEAN)
    assert grown.prior_mean == MEAN
    assert_shifted(grown, also)
    assert_shifted(model.with_outcomes(2.0 * Y), shifted.with_outcomes(2.0 * Y - MEAN))
    assert_shifted(condition(model, NEW, Y_NEW), also)
    joint = model.posterior(POINTS.unsqueeze(0), observation_noise=True)
    wanted = shifted.posterior(POINTS.unsqueeze(0), observation_noise=True)
    assert torch.allclose(joint.mean, wanted.mean + MEAN, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("kernel", ["scaled", "GPyTorch"])
def test_a_fit_leaves_it_alone(kernel: str) -> None:
    model, shifted = pair(kernel, learn_hyperparameters=True)
    for each in (model, shifted):
        fit_gpytorch_mll(ExactMarginalLogLikelihood(each.likelihood, each))
    assert model.prior_mean == MEAN
    assert not model.mean_module.raw_constant.requires_grad
    assert torch.allclose(model.likelihood.noise, shifted.likelihood.noise, rtol=1e-4)
    assert_shifted(model.eval(), shifted.eval(), 1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="prior_mean is"):
        BanditGP(X, Y, kernel=RBFKernel(), prior_mean=value)
    with pytest.raises(ValueError, match="prior_mean is"):
        BanditGP.with_kernel(RBFKernel(), prior_mean=value)


# --- censored views -------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_censored_view_and_the_value_that_arrives(kernel: str) -> None:
    model, _ = pair(kernel)
    before = model.posterior(POINTS).mean.detach().clone()
    view = model.censored(NEW, minimum=-5.0)
    dense = BanditGP(
        torch.cat([X, NEW]),
        torch.cat([Y, torch.full_like(Y_NEW, -5.0)]),
        kernel=KERNELS[kernel],
        noise=0.03,
        prior_mean=MEAN,
    )
    assert torch.allclose(view.posterior(POINTS).mean, dense.posterior(POINTS).mean, atol=1e-9)
    assert torch.equal(model.posterior(POINTS).mean, before)
    # the first of the three arrives; the others keep the minimum
    targets = view.train_targets.unsqueeze(-1).clone()
    targets[len(X)] = Y_NEW[0]
    arrived = view.with_outcomes(targets)
    expected = BanditGP(
        torch.cat([X, NEW]), targets, kernel=KERNELS[kernel], noise=0.03, prior_mean=MEAN
    )
    assert torch.allclose(
        arrived.posterior(POINTS).mean, expected.posterior(POINTS).mean, atol=1e-9
    )
    assert model.censored(NEW[:0], minimum=0.0) is model


def test_a_view_without_data_and_what_is_refused() -> None:
    prior = BanditGP(X[:0], Y[:0], kernel=RBFKernel(), noise=0.03)
    view = prior.censored(NEW, minimum=-1.0)
    assert view.train_targets.tolist() == [-1.0, -1.0, -1.0]
    with pytest.raises(TypeError, match=r"X has dtype torch\.float32"):
        prior.censored(NEW.float(), minimum=0.0)
    with pytest.raises(ValueError, match="X must be"):
        prior.censored(NEW[0], minimum=0.0)
    with pytest.raises(ValueError, match="minimum is nan"):
        prior.censored(NEW, minimum=float("nan"))
    # 0.1 must not become a float32
    assert prior.censored(NEW, minimum=0.1).train_targets[0].item() == 0.1
