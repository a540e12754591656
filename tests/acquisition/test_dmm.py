"""DMM as an acquisition function: units, refutation, pending points, optimizers."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from models.textbook import double, line
from torch import Tensor

from botorch_bandits import (
    BanditGP,
    DMMUpperConfidenceBound,
)
from botorch_bandits.confidence import UnreadablePriorError
from botorch_bandits.models.reading import PendingModel

LENGTHSCALE, LAM = 0.2, 0.01
GRID = line(0, 1, 25)


def kernel(a: Tensor, b: Tensor) -> Tensor:
    return torch.exp(-(torch.cdist(a, b) ** 2) / (2 * LENGTHSCALE**2))


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    X = torch.rand(9, 1, dtype=torch.float64, generator=generator)
    centers = torch.rand(6, 1, dtype=torch.float64, generator=generator)
    weights = torch.randn(6, 1, dtype=torch.float64, generator=generator)
    weights = weights * 2 / (weights.T @ kernel(centers, centers) @ weights).sqrt()
    noise = 0.1 * torch.randn(9, 1, dtype=torch.float64, generator=generator)
    return X, kernel(X, centers) @ weights + noise


def fixed_model(X: Tensor, Y: Tensor) -> BanditGP:
    return BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=LENGTHSCALE)(X, Y)


def test_models_it_cannot_read_are_refused(data: tuple[Tensor, Tensor]) -> None:
    X, Y = data
    batched = BanditGP(X.expand(2, 9, 1), Y.expand(2, 9, 1), kernel=RBFKernel(), noise=LAM)
    with pytest.raises(UnreadablePriorError, match=r"batch of \(2,\) models"):
        DMMUpperConfidenceBound(batched, rkhs_bound=2.0, noise_bound=0.1)
    two = BanditGP.with_kernel(RBFKernel(), noise=LAM)(X, Y.expand(9, 2))
    with pytest.raises(UnreadablePriorError, match="outputs and no posterior_transform"):
        DMMUpperConfidenceBound(two, rkhs_bound=2.0, noise_bound=0.1)
    with pytest.raises(ValueError, match="needs rkhs_bound= and noise_bound="):
        DMMUpperConfidenceBound.with_options(rkhs_bound=1.0)
    with pytest.raises(ValueError, match="rkhs_bound is 0"):
        DMMUpperConfidenceBound.with_options(rkhs_bound=0.0, noise_bound=0.1)


OWN_NOISE = line(0.004, 0.05, 9)


def single(X: Tensor, Y: Tensor, noise: Tensor) -> SingleTaskGP:
    options = {"outcome_transform": Standardize(Y.shape[-1])}
    model = SingleTaskGP(X, Y, noise, covar_module=ScaleKernel(RBFKernel()).double(), **options)
    return model.requires_grad_(False).eval()


@pytest.mark.parametrize("noise_bound", [0.3, "model"])
@pytest.mark.parametrize("kind", ["plain", "noise of rows", "outputs"])
def test_pending_points_shrink_deviations_as_in_the_model(
    kind: str, noise_bound: Any, data: tuple[Tensor, Tensor]
) -> None:
    """Against BoTorch's own posterior, given pending points and those before in a batch."""
    X, Y = data
    models = {"plain": [fixed_model(X, Y)], "noise of rows": [single(X, Y, OWN_NOISE)]}
    models["outputs"] = [fixed_model(X, Y), single(X[:5], -Y[:5], OWN_NOISE[:5].flip(0))]
    weights = double([1.0, -0.5])[: len(models[kind])]
    whole = models[kind][0] if kind != "outputs" else ModelListGP(*models[kind])
    options: dict[str, Any] = {"rkhs_bound": 2.0, "noise_bound": noise_bound, "units": "prior"}
    options["delta"] = 0.1 * len(weights)
    options["posterior_transform"] = ScalarizedPosteriorTransform(weights)
    pending, points = GRID[[3, 3, 20]] + 0.01, GRID[[2, 3, 8, 19, 4, 5]].reshape(3, 2, 1)
    acqf = DMMUpperConfidenceBound(whole, X_pending=pending, **options)
    expected = torch.zeros(3, dtype=torch.float64)
    for model, weight in zip(models[kind], weights.tolist(), strict=True):
        alone = DMMUpperConfidenceBound(
            model, **options | {"delta": 0.1, "posterior_transform": None}
        )
        for i in range(2):
            lower, upper = alone.bounds(points[:, i])
            shrunk = [
                PendingModel(model, torch.cat([pending, x[:i]])).posterior(x[i : i + 1]).variance
                for x in points
            ]
            before = model.posterior(points[:, i]).variance.squeeze(-1)
            ratio = (torch.cat(shrunk).reshape(-1) / before).sqrt()
            end = 0.5 * (weight * (lower + upper) + abs(weight) * ratio * (upper - lower))
            expected = expected + end
    assert torch.allclose(acqf(points), expected, rtol=0.0, atol=1e-8)
    X = points.clone().requires_grad_()
    assert torch.autograd.gradcheck(acqf, (X,), atol=1e-4)
    copied = copy.deepcopy(acqf)
    acqf.set_X_pending(None)
    assert bool((acqf(points) > expected).all())
    assert torch.allclose(pickle.loads(pickle.dumps(copied))(points), expected, atol=1e-8)
