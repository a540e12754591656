"""DMM as an acquisition function: units, refutation, pending points, optimizers."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    DMMUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    run,
)
from botorch_bandits.acquisition import AssumptionRefutedWarning
from botorch_bandits.confidence import UnreadablePriorError
from botorch_bandits.models.reading import PendingModel
from botorch_bandits.problems import RKHSFunction

from .cases import MODELS, named

LENGTHSCALE, LAM = 0.2, 0.01
GRID = torch.linspace(0, 1, 25, dtype=torch.float64).unsqueeze(-1)


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


def test_less_is_better_by_the_lower_end_of_the_set(data: tuple[Tensor, Tensor]) -> None:
    upper, lower = (
        DMMUpperConfidenceBound(
            fixed_model(*data), rkhs_bound=2.0, noise_bound=0.1, maximize=maximize
        )
        for maximize in (True, False)
    )
    assert torch.allclose(lower(GRID.unsqueeze(-2)), -upper.bounds(GRID)[0], atol=1e-8, rtol=0)


def test_a_refuted_assumption_is_reported_never_nan(data: tuple[Tensor, Tensor]) -> None:
    model = fixed_model(*data)
    with pytest.warns(AssumptionRefutedWarning, match=r"refute.*rkhs_bound and noise_bound"):
        acqf = DMMUpperConfidenceBound(model, rkhs_bound=0.1, noise_bound=0.1)
    assert acqf.is_refuted
    assert bool(torch.isfinite(acqf(GRID.unsqueeze(-2))).all())
    assert not acqf.guarantee().holds
    assert "refute" in str(acqf.guarantee())


def test_guess_and_double_takes_the_first_power_that_is_not_refuted(
    data: tuple[Tensor, Tensor],
) -> None:
    model = fixed_model(*data)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionRefutedWarning)
        acqf = DMMUpperConfidenceBound(
            model, rkhs_bound=0.1, noise_bound=0.1, double_rkhs_bound=True
        )
    (bound,) = acqf.rkhs_bounds.values()
    doublings = math.log2(bound / 0.1)
    assert doublings == round(doublings)
    assert bound / 2 < acqf.smallest_rkhs_bound <= bound
    assert not acqf.is_refuted
    assert "guessed and doubled" in str(acqf.guarantee())


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


@pytest.mark.slow
def test_less_regret_than_amm_and_igp_ucb_in_the_loop() -> None:
    """Mean cumulative regret over 6 functions at 25 rounds: DMM < AMM < IGP-UCB."""
    options = {"rkhs_bound": 2.0, "noise_bound": 0.1, "delta": 0.1}
    recipes = [
        DMMUpperConfidenceBound.with_options(**options),
        AMMUpperConfidenceBound.with_options(**options),
        ImprovedUpperConfidenceBound.with_options(**options, any_lambda=True),
    ]
    covar = RBFKernel().double()
    covar.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    totals = []
    for recipe in recipes:
        total = 0.0
        for seed in range(6):
            problem = RKHSFunction.on_arms(covar, GRID, rkhs_norm=2.0, seed=seed, noise_std=0.1)
            model = BanditGP.with_kernel(RBFKernel(), noise=LAM, lengthscale=LENGTHSCALE)
            loop = BanditLoop(Arms(GRID), model, recipe, seed=seed)
            total += float(run(loop, problem, 25, progress=False).cumulative_regret[-1])
        totals.append(total)
        guarantee = loop.guarantee()
        assert guarantee.holds
        assert guarantee.regret_bound is not None
    assert totals[0] < totals[1] < totals[2]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_keeps_its_mode(data: tuple[Tensor, Tensor], training: bool) -> None:
    X, Y = data
    outside = torch.tensor([[-0.5], [1.5]], dtype=torch.float64)
    values = []
    for mode in (training, False):
        model = SingleTaskGP(X, Y, input_transform=Normalize(1))  # it would learn from new points
        model.train(mode)
        acqf = DMMUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1)
        found = [acqf(GRID.unsqueeze(-2)), acqf(outside.unsqueeze(-2))]
        assert str(acqf.guarantee())
        assert model.training is mode
        assert torch.equal(model.train_inputs[0], X) or not mode
        values.append(torch.cat(found).detach())
    assert torch.allclose(*values, rtol=1e-12, atol=1e-12)


OWN_NOISE = torch.linspace(0.004, 0.05, 9, dtype=torch.float64).unsqueeze(-1)


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
    weights = torch.tensor([1.0, -0.5], dtype=torch.float64)[: len(models[kind])]
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


@pytest.mark.parametrize("num_pending", [0, 2])
def test_an_ensemble_has_the_average_of_its_members_bounds(num_pending: int) -> None:
    case = named(MODELS, "EnsembleMapSaasSingleTaskGP")
    model, x, pending = case.build(), case.points(6, seed=3), case.points(num_pending, seed=4)
    acqf = DMMUpperConfidenceBound(model, rkhs_bound=2.0, noise_bound=0.1, X_pending=pending)
    ends = case.reference(model).ridge_bounds(x.numpy(), 2.0, 0.1, 0.1, pending.numpy())
    lower, upper = (torch.from_numpy(each.mean(0)) for each in ends)
    for found, expected in zip(acqf.bounds(x), (lower, upper), strict=True):
        assert torch.allclose(found, expected, rtol=1e-8, atol=1e-8)
    # as many points as members, which GPyTorch could take for a matrix
    assert torch.allclose(acqf(x[:3].unsqueeze(-2)), upper[:3], rtol=1e-8, atol=1e-8)
    assert any("averaged over the members" in gap for gap in acqf.guarantee().gaps)
    assert acqf.describe(x[4])["acquisition_value"] == pytest.approx(float(upper[4]))
