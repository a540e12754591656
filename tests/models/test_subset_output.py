"""``BanditGP.subset_output``: some of the outputs, against dense linear algebra of each."""

from __future__ import annotations

import pytest
import torch
from botorch.models.transforms import Normalize
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import BanditGP, GPUpperConfidenceBound

from .textbook import double, posterior, squared_exponential, uniform

BATCH, NUM_OUTPUTS = 2, 3
X, POINTS = uniform(BATCH, 7, 2, seed=0), uniform(BATCH, 5, 2, seed=1)
Y = torch.cat([5.0 + X[..., :1].sin(), 40.0 * X[..., 1:].cos(), X.prod(-1, keepdim=True)], dim=-1)
LENGTHSCALES = double([[0.2, 0.7, 0.4], [0.3, 0.5, 0.6]])
SCALES = double([[1.0, 900.0, 0.1], [2.0, 800.0, 0.2]])
NOISE = 0.1 * SCALES


def build(**options: object) -> BanditGP:
    """Three outputs in two batches, with a kernel and a noise variance each."""
    shape = torch.Size([BATCH, NUM_OUTPUTS])
    kernel = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape).double()
    kernel.base_kernel.lengthscale = LENGTHSCALES[..., None, None]
    kernel.outputscale = SCALES
    return BanditGP(X, Y, kernel, NOISE, prior_mean=0.3, **options)


def assert_outputs(model: BanditGP, outputs: list[int]) -> None:
    found = model.posterior(POINTS)
    assert model.num_outputs == len(outputs)
    assert found.mean.shape == (BATCH, 5, len(outputs))
    for b in range(BATCH):
        for column, j in enumerate(outputs):
            function = squared_exponential(LENGTHSCALES[b, j], float(SCALES[b, j]))
            y: Tensor = Y[b, :, j] - 0.3
            mean, covariance = posterior(function, X[b], y, NOISE[b, j], POINTS[b])
            unit = float(SCALES[b, j])
            assert torch.allclose(found.mean[b, :, column], mean + 0.3, rtol=1e-8, atol=1e-9 * unit)
            variance = found.variance[b, :, column]
            assert torch.allclose(variance, covariance.diagonal(), rtol=0, atol=1e-8 * unit)


@pytest.mark.parametrize("outputs", [[1], [2, 0], [0, 2], [2, 1, 0], [0, 1, 2]], ids=str)
def test_outputs_keep_their_data_and_hyperparameters(outputs: list[int]) -> None:
    model = build()
    subset = model.subset_output(outputs)
    assert_outputs(subset, outputs)
    assert subset is not model
    assert not any(p.requires_grad for p in subset.parameters())
    assert_outputs(model, [0, 1, 2])  # which is left as it was
    with torch.no_grad():
        subset.covar_module.base_kernel.lengthscale = 9.0
    assert_outputs(model, [0, 1, 2])


def test_inputs_are_transformed_once() -> None:
    bounds = double([[-1.0, 0.0], [3.0, 5.0]])
    raw = bounds[0] + (bounds[1] - bounds[0]) * X[0]
    kernel = ScaleKernel(RBFKernel()).double()
    model = BanditGP(raw, Y[0], kernel, 0.1, input_transform=Normalize(2, bounds=bounds))
    points = bounds[0] + (bounds[1] - bounds[0]) * POINTS[0]
    subset = model.subset_output([1])
    plain = BanditGP(X[0], Y[0, :, 1:2], kernel, 0.1)
    expected = plain.posterior(POINTS[0])
    assert torch.allclose(subset.posterior(points).mean, expected.mean, rtol=0, atol=1e-9)
    grown = subset.condition_on_observations(points, POINTS[0, :, :1])
    expected = plain.condition_on_observations(POINTS[0], POINTS[0, :, :1]).posterior(X[0])
    assert torch.allclose(grown.posterior(raw).mean, expected.mean, rtol=0, atol=1e-9)


def test_a_model_without_data_that_is_learned() -> None:
    kernel = PeriodicKernel().double()  # two parameters in one kernel
    prior = BanditGP(X[:, :0], Y[:, :0], kernel, 0.1, learn_hyperparameters=True).train()
    subset = prior.subset_output([2])
    assert subset.training
    assert all(p.requires_grad and p.shape[0] == BATCH for p in subset.covar_module.parameters())
    assert torch.equal(subset.eval().posterior(POINTS).variance, torch.ones(BATCH, 5, 1).double())


def test_one_output_of_a_model_plays_on() -> None:
    kernel = RBFKernel().double()
    kernel.lengthscale = double(0.5)
    model = BanditGP(X[0], Y[0, :, :2], kernel, 0.1)
    point = POINTS[0].unsqueeze(-2)
    for j in (0, 1):
        value = GPUpperConfidenceBound(model.subset_output([j]), width=2.0)(point)
        mean, covariance = posterior(squared_exponential(0.5), X[0], Y[0, :, j], 0.1, POINTS[0])
        expected = mean + 2.0 * covariance.diagonal().sqrt()
        assert torch.allclose(value, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("outputs", [[], [0, 0], [3], [-1]], ids=str)
def test_what_is_no_subset_is_refused(outputs: list[int]) -> None:
    with pytest.raises(ValueError, match="from 0 to 2"):
        build().subset_output(outputs)
