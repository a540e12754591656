"""The floor on the modeled noise is one on its ratio to the kernel's output scale."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, ScaleKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPThompsonSampling,
    GPUpperConfidenceBound,
)
from botorch_bandits.domains import Domain
from botorch_bandits.models.noise import output_scale_of

from .textbook import double, line

CHOICES = line(0.0, 1.0, 12)
DOMAINS = {"arms": Arms(CHOICES), "box": Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)}


def scaled(variance: float, base: Kernel | None = None) -> Kernel:
    kernel = ScaleKernel(RBFKernel() if base is None else base).double()
    kernel.outputscale = double(variance)
    return kernel


@pytest.mark.parametrize(
    ("variance", "noise"), [(1.0, 0.99e-10), (1e-6, 0.99e-16), (1e6, 0.99e-4), (1e6, 1e-9)]
)
def test_a_ratio_that_is_too_small_is_refused_at_once(variance: float, noise: float) -> None:
    told = (
        r"noise is .* output scale .*: their ratio is .*above 1e-10.*Model a noise variance above"
    )
    with pytest.raises(ValueError, match=told):
        BanditGP.with_kernel(scaled(variance), noise=noise)
    X = CHOICES[:3]
    with pytest.raises(ValueError, match=told):
        BanditGP(X, X.sin(), kernel=scaled(variance), noise=noise)


@pytest.mark.parametrize("name", DOMAINS)
@pytest.mark.parametrize("method", ["bound", "draw"])
@pytest.mark.parametrize(("variance", "noise"), [(1e-6, 1e-14), (1e-16, 1e-22), (1.0, 1.1e-10)])
def test_a_ratio_that_is_large_enough_works(
    name: str, method: str, variance: float, noise: float
) -> None:
    """Whatever the noise itself is."""
    domain: Domain = DOMAINS[name]
    acquisition = (
        GPUpperConfidenceBound.with_options(width=2.0)
        if method == "bound"
        else GPThompsonSampling.with_options(width=1.0)
    )
    recipe = BanditGP.with_kernel(scaled(variance), noise=noise, lengthscale=0.3)
    loop = BanditLoop(domain, recipe, acquisition, seed=0)
    for _ in range(4):
        query = loop.ask()
        loop.tell(query.id, variance**0.5 * float((5.0 * query.x).sin()))
    X = CHOICES[::4]
    model = recipe(X, variance**0.5 * (5.0 * X).sin())
    assert float(model.likelihood.noise) == pytest.approx(noise, rel=1e-9)
    # nearly without noise, the posterior mean passes through the outcomes
    error = model.posterior(X).mean - variance**0.5 * (5.0 * X).sin()
    assert float(error.abs().max()) < 1e-4 * variance**0.5


def test_the_output_scale_of_composed_kernels() -> None:
    a, b = scaled(4.0), scaled(0.5, MaternKernel())
    assert float(output_scale_of(RBFKernel())) == 1.0
    assert float(output_scale_of(LinearKernel())) == 1.0
    assert float(output_scale_of(a)) == pytest.approx(4.0)
    assert float(output_scale_of(a + b)) == pytest.approx(4.5)
    assert float(output_scale_of(a * b)) == pytest.approx(2.0)
    assert float(output_scale_of(scaled(3.0, a + b))) == pytest.approx(13.5)
    batched = ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
    batched = batched.double()
    batched.outputscale = double([2.0, 3.0])
    assert output_scale_of(batched).tolist() == pytest.approx([2.0, 3.0])


def test_a_fit_at_a_tiny_scale_keeps_the_floor() -> None:
    """Rows without noise drive the noise to its bound, relative to the output scale."""
    recipe = BanditGP.with_kernel(scaled(1e-10), noise=1e-14, lengthscale=0.3, refit_every=6)
    build = recipe.builder(seed=0)
    Y = 1e-5 * (5.0 * CHOICES).sin()
    for count in (6, 12):
        model = build(CHOICES[:count], Y[:count])
        ratio = float(model.likelihood.noise) / float(model.covar_module.outputscale)
        assert ratio > 1e-10
