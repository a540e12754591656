"""What is read from a model against explicit kernels on the raw data.

Every model is built twice over: by BoTorch, and by hand from its lengthscales, noise and the
statistics of its data.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from botorch.acquisition.objective import (
    ExpectationPosteriorTransform,
    ScalarizedPosteriorTransform,
)
from botorch.fit import fit_gpytorch_mll
from botorch.models import (
    ModelListGP,
    MultiTaskGP,
    SingleTaskGP,
    SingleTaskVariationalGP,
)
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.model import Model
from botorch.models.multitask import KroneckerMultiTaskGP
from botorch.models.transforms import Log, Normalize
from botorch.models.transforms.input import InputPerturbation, Warp
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from models.textbook import uniform
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.confidence import PriorSummary, UnreadablePriorError
from botorch_bandits.confidence.prior_reading import OutputPrior, read_prior

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")


X = uniform(9, 2, seed=0)
WIDE = X * torch.tensor([15.0, 4.0]).double() - 5.0
Y = torch.cat([3.0 + 2.0 * (5.0 * X[:, :1]).sin(), 40.0 * (4.0 * X[:, 1:]).cos()], dim=-1)
BOUNDS = torch.tensor([[-5.0, -5.0], [10.0, 0.0]], dtype=torch.float64)
STDVS = [Y[:, j].std().item() for j in range(2)]


def squared_exponential(points: Tensor, lengthscale: Tensor) -> Tensor:
    scaled = points / lengthscale
    return torch.exp(-0.5 * (scaled.unsqueeze(1) - scaled.unsqueeze(0)).square().sum(-1))


def matern_five_halves(points: Tensor, lengthscale: Tensor) -> Tensor:
    scaled = points / lengthscale
    r = math.sqrt(5.0) * (scaled.unsqueeze(1) - scaled.unsqueeze(0)).square().sum(-1).sqrt()
    return (1.0 + r + r**2 / 3.0) * torch.exp(-r)


@dataclass
class Expected:
    """The prior of one output, by hand; ``K`` is the kernel matrix, noise and scale included."""

    K: Tensor
    noise: float
    prior_variance: float
    outcome_scale: float


def fitted(model: Any) -> Any:
    """Learned hyperparameters, so that none has a special value."""
    return fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model)).model


def check(prior: OutputPrior, expected: Expected, batch: int | None = None) -> None:
    def pick(value: Tensor) -> Tensor:
        return value if batch is None else value[batch]

    n = len(expected.K)
    lam = expected.noise / expected.prior_variance
    unit = expected.K / expected.prior_variance
    gain = 0.5 * torch.logdet(torch.eye(n, dtype=torch.float64) + unit / lam)
    assert pick(prior.noise_variance).item() == pytest.approx(expected.noise, rel=1e-10)
    assert pick(prior.lam).item() == pytest.approx(lam, rel=1e-10)
    assert pick(prior.standard_deviation).item() == pytest.approx(
        math.sqrt(expected.prior_variance) * expected.outcome_scale, rel=1e-10
    )
    assert pick(prior.information_gain).item() == pytest.approx(gain.item(), rel=1e-8)


# --- one model family after the other -----------------------------------------------------------


def standardized() -> tuple[Model, list[Expected]]:
    model = fitted(SingleTaskGP(X, Y[:, :1]))
    K = squared_exponential(X, model.covar_module.lengthscale.detach())
    return model, [Expected(K, model.likelihood.noise.item(), 1.0, STDVS[0])]


def normalized() -> tuple[Model, list[Expected]]:
    model = fitted(SingleTaskGP(WIDE, Y[:, :1], input_transform=Normalize(2, bounds=BOUNDS)))
    points = (WIDE - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    K = squared_exponential(points, model.covar_module.lengthscale.detach())
    return model, [Expected(K, model.likelihood.noise.item(), 1.0, STDVS[0])]


def perturbed() -> tuple[Model, list[Expected]]:
    # perturbs test points only: the rows stay what they are
    shifts = torch.tensor([[0.0, 0.0], [0.1, -0.1]], dtype=torch.float64)
    model = SingleTaskGP(X, Y[:, :1], input_transform=InputPerturbation(shifts))
    K = squared_exponential(X, model.covar_module.lengthscale.detach())
    return model, [Expected(K, model.likelihood.noise.item(), 1.0, STDVS[0])]


def given_noise() -> tuple[Model, list[Expected]]:
    model = fitted(SingleTaskGP(X, Y[:, :1], torch.full_like(Y[:, :1], 0.3)))
    K = squared_exponential(X, model.covar_module.lengthscale.detach())
    return model, [Expected(K, 0.3 / STDVS[0] ** 2, 1.0, STDVS[0])]


def two_outputs_with_given_noise() -> tuple[Model, list[Expected]]:
    Yvar = torch.tensor([0.2, 5.0], dtype=torch.float64).expand(9, 2)
    kernel = ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
    kernel = kernel.double()
    kernel.base_kernel.lengthscale = torch.tensor([[[0.3]], [[0.7]]], dtype=torch.float64)
    kernel.outputscale = torch.tensor([0.5, 2.0], dtype=torch.float64)
    model = SingleTaskGP(X, Y, Yvar, covar_module=kernel)
    return model, [
        Expected(
            scale * squared_exponential(X, torch.tensor(lengthscale, dtype=torch.float64)),
            noise / STDVS[j] ** 2,
            scale,
            STDVS[j],
        )
        for j, (lengthscale, scale, noise) in enumerate([(0.3, 0.5, 0.2), (0.7, 2.0, 5.0)])
    ]


def model_list() -> tuple[Model, list[Expected]]:
    (first, expected), (second, second_expected) = build("standardized"), build("bandit")
    return ModelListGP(first, second), expected + second_expected


def bandit() -> tuple[Model, list[Expected]]:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = torch.tensor(9.0, dtype=torch.float64)
    kernel.base_kernel.lengthscale = torch.tensor(0.2, dtype=torch.float64)
    model = BanditGP(X, Y[:, :1], kernel, noise=0.25)
    K = 9.0 * squared_exponential(X, torch.tensor(0.2, dtype=torch.float64))
    return model, [Expected(K, 0.25, 9.0, 1.0)]


def bandit_without_data() -> tuple[Model, list[Expected]]:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = torch.tensor(9.0, dtype=torch.float64)
    model = BanditGP(X[:0], Y[:0, :1], kernel, noise=0.25)
    return model, [Expected(torch.empty(0, 0, dtype=torch.float64), 0.25, 9.0, 1.0)]


FAMILIES: dict[str, Callable[[], tuple[Model, list[Expected]]]] = {
    "standardized": standardized,
    "normalized": normalized,
    "perturbed": perturbed,
    "given noise": given_noise,
    "two outputs with given noise": two_outputs_with_given_noise,
    "model list": model_list,
    "bandit": bandit,
    "bandit without data": bandit_without_data,
}
families = pytest.mark.parametrize("family", list(FAMILIES))


@cache
def _build(family: str) -> tuple[Model, list[Expected]]:
    return FAMILIES[family]()


def build(family: str) -> tuple[Model, list[Expected]]:
    """A copy of the model, fitted once, and what is expected of it."""
    return copy.deepcopy(_build(family))


def snapshot(model: Model) -> dict[str, Any]:
    parts = model.models if isinstance(model, ModelListGP) else [model]
    return {
        "state": copy.deepcopy(model.state_dict()),
        "training": [module.training for module in model.modules()],
        "inputs": [part.train_inputs[0].clone() for part in parts],
        "targets": [part.train_targets.clone() for part in parts],
        "strategies": [part.prediction_strategy for part in parts],
    }


def same(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@families
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
def test_what_is_read_is_what_the_model_was_built_from(family: str, training: bool) -> None:
    model, expected = build(family)
    model.train(training)
    before = snapshot(model)
    priors = read_prior(model)
    assert len(priors) == len(expected)
    for prior, by_hand in zip(priors, expected, strict=True):
        check(prior, by_hand)
    assert same(snapshot(model), before)


def test_batched_models_have_one_prior_a_batch() -> None:
    inputs = uniform(3, 6, 2, seed=4)
    outcomes = torch.stack([(k + 1.0) * inputs[k, :, :1].sin() for k in range(3)])
    kernel = ScaleKernel(
        MaternKernel(nu=2.5, batch_shape=torch.Size([3])), batch_shape=torch.Size([3])
    ).double()
    kernel.base_kernel.lengthscale = torch.tensor([0.1, 0.3, 0.9]).double()[:, None, None]
    kernel.outputscale = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    model = SingleTaskGP(inputs, outcomes, covar_module=kernel)
    noise = model.likelihood.noise.detach().squeeze(-1)
    (prior,) = read_prior(model)
    assert prior.lam.shape == prior.standard_deviation.shape == (3,)
    for k in range(3):
        lengthscale, scale = kernel.base_kernel.lengthscale[k].detach(), kernel.outputscale[k]
        K = scale.item() * matern_five_halves(inputs[k], lengthscale)
        expected = Expected(K, noise.expand(3)[k].item(), scale.item(), outcomes[k].std().item())
        check(prior, expected, batch=k)


def test_batches_of_two_outputs() -> None:
    inputs, outcomes = uniform(3, 6, 1, seed=4), uniform(3, 6, 2, seed=5)
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(0.4, dtype=torch.float64)
    noise = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], dtype=torch.float64)
    model = SingleTaskGP(inputs, outcomes, covar_module=kernel, outcome_transform=None)
    model.likelihood.noise = noise.unsqueeze(-1)
    for j, prior in enumerate(read_prior(model)):
        assert prior.lam.shape == (3,)
        for k in range(3):
            K = squared_exponential(inputs[k], torch.tensor(0.4, dtype=torch.float64))
            check(prior, Expected(K, noise[k, j].item(), 1.0, 1.0), batch=k)


def test_ensembles_have_one_prior_a_member() -> None:
    torch.manual_seed(0)
    model = EnsembleMapSaasSingleTaskGP(
        WIDE, Y[:, :1], num_taus=3, input_transform=Normalize(2, bounds=BOUNDS)
    )
    fitted(model)
    points = (WIDE - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])
    for training in (True, False):
        model.train(training)
        (prior,) = read_prior(model)
        assert prior.lam.shape == (3,)
        for k in range(3):
            scale = model.covar_module.outputscale[k].item()
            lengthscale = model.covar_module.base_kernel.lengthscale[k].detach()
            expected = Expected(
                scale * matern_five_halves(points, lengthscale),
                model.likelihood.noise[k].item(),
                scale,
                STDVS[0],
            )
            check(prior, expected, batch=k)


def test_a_sum_of_stationary_kernels_has_their_total_variance() -> None:
    kernel = ScaleKernel(RBFKernel()).double() + ScaleKernel(MaternKernel(nu=0.5)).double()
    kernel.kernels[0].outputscale = torch.tensor(2.0, dtype=torch.float64)
    kernel.kernels[1].outputscale = torch.tensor(0.5, dtype=torch.float64)
    (prior,) = read_prior(BanditGP(X, Y[:, :1], kernel, noise=0.1))
    assert prior.standard_deviation.item() == pytest.approx(math.sqrt(2.5), rel=1e-12)
    assert prior.lam.item() == pytest.approx(0.1 / 2.5, rel=1e-12)


def test_a_kernel_that_is_not_stationary_counts_with_its_outputscale() -> None:
    kernel = ScaleKernel(LinearKernel()).double()
    kernel.outputscale = torch.tensor(4.0, dtype=torch.float64)
    (prior,) = read_prior(BanditGP(X, Y[:, :1], kernel, noise=0.1))
    assert prior.standard_deviation.item() == 2.0
    (plain,) = read_prior(BanditGP(X, Y[:, :1], LinearKernel(), noise=0.1))
    assert plain.standard_deviation.item() == 1.0


# --- what was learned ---------------------------------------------------------------------------


def learned(model: Model) -> set[str]:
    return {what for prior in read_prior(model) for what in prior.learned}


def test_fixed_parameters_are_not_learned() -> None:
    assert learned(bandit()[0]) == set()
    assert (
        learned(BanditGP(X, Y[:, :1], RBFKernel(), input_transform=Normalize(2, bounds=BOUNDS)))
        == set()
    )
    frozen = SingleTaskGP(X, Y[:, :1], outcome_transform=None).requires_grad_(False)
    assert learned(frozen) == set()


def test_everything_that_was_or_could_have_been_learned_is_named() -> None:
    noise = "likelihood noise (a free parameter)"
    inputs = "input scale (an input transform without given bounds)"
    outcomes = "outcome scale and mean (Standardize)"
    lengthscale = "covar_module.raw_lengthscale (a free parameter)"
    free = BanditGP(X, Y[:, :1], RBFKernel(), learn_hyperparameters=True)
    assert learned(free) == {noise, lengthscale}
    assert learned(BanditGP(WIDE, Y[:, :1], RBFKernel(), input_transform=Normalize(2))) == {inputs}
    model = SingleTaskGP(X, Y[:, :1])
    assert {noise, outcomes, lengthscale} <= learned(model)
    assert learned(model.requires_grad_(False)) == {outcomes}
    extra = FixedNoiseGaussianLikelihood(
        torch.full((9,), 0.1, dtype=torch.float64), learn_additional_noise=True
    )
    assert noise in learned(SingleTaskGP(X, Y[:, :1], likelihood=extra))
    warped = SingleTaskGP(X, Y[:, :1], input_transform=Warp(2, [0])).requires_grad_(False)
    warped.input_transform.concentration0.requires_grad_(True)
    assert "input_transform.concentration0 (a free parameter)" in learned(warped)


# --- what cannot be read ------------------------------------------------------------------------


TASK = (torch.arange(9) % 2).double()[:, None]
UNREADABLE: dict[str, tuple[Callable[[], Model], str]] = {
    "variational": (
        lambda: SingleTaskVariationalGP(X, Y[:, :1]),
        "SingleTaskVariationalGP is not an exact Gaussian process",
    ),
    "log": (
        lambda: SingleTaskGP(X, Y[:, :1].exp(), outcome_transform=Log()),
        "the outcome transform Log is not affine",
    ),
    "multi-task": (
        lambda: MultiTaskGP(torch.cat([X, TASK], -1), Y[:, :1], task_feature=-1),
        "MultiTaskGP has 2 output tasks, which are correlated",
    ),
    "kronecker": (
        lambda: KroneckerMultiTaskGP(X, Y),
        "KroneckerMultiTaskGP is not an exact Gaussian process with its own kernel",
    ),
    "one of a list": (
        lambda: ModelListGP(
            SingleTaskGP(X, Y[:, :1]),
            SingleTaskGP(X, Y[:, 1:].abs(), X[:, :1] + 0.1, outcome_transform=Log()),
        ),
        "the outcome transform Log is not affine",
    ),
}


@pytest.mark.parametrize("name", list(UNREADABLE))
def test_models_that_cannot_be_read_say_why(name: str) -> None:
    build_model, reason = UNREADABLE[name]
    with pytest.raises(UnreadablePriorError, match=reason):
        read_prior(build_model())


# --- which outputs count ------------------------------------------------------------------------


def test_outputs_without_weight_do_not_count() -> None:
    model = SingleTaskGP(X, torch.cat([Y, Y[:, :1] ** 2], -1))
    weights = torch.tensor([0.0, -2.0, 1.0], dtype=torch.float64)
    summary = PriorSummary(model, ScalarizedPosteriorTransform(weights))
    assert tuple(summary.active) == (1, 2)
    assert tuple(summary.active.values()) == summary.priors[1:]
    assert tuple(PriorSummary(model).active) == (0, 1, 2)
    assert summary.num_rows == 9


def test_a_scalarization_of_nothing_is_refused() -> None:
    transform = ScalarizedPosteriorTransform(torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="only zero weights"):
        _ = PriorSummary(SingleTaskGP(X, Y), transform).active


def test_other_posterior_transforms_cannot_be_read() -> None:
    transform = ExpectationPosteriorTransform(n_w=3)
    with pytest.raises(UnreadablePriorError, match="ExpectationPosteriorTransform is not"):
        _ = PriorSummary(SingleTaskGP(X, Y), transform).active


def test_the_number_of_rows_is_the_largest_of_a_list() -> None:
    models = ModelListGP(SingleTaskGP(X[:4], Y[:4, :1]), SingleTaskGP(X, Y[:, 1:]))
    assert PriorSummary(models).num_rows == 9
    assert PriorSummary(SingleTaskGP(X.expand(5, 9, 2), Y.expand(5, 9, 2))).num_rows == 9
    with pytest.raises(UnreadablePriorError, match="does not show its"):
        _ = PriorSummary(SingleTaskVariationalGP(X, Y[:, :1])).num_rows
