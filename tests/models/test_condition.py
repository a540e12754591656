"""Pseudo-observations against dense algebra, for each kind of model that takes them.

The dense side knows lengthscales, noise, mean and the statistics of the data, and nothing else:
``outcome = shift + unit * transformed outcome``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, PairwiseGP, SingleTaskGP, SingleTaskVariationalGP
from botorch.models.map_saas import EnsembleMapSaasSingleTaskGP
from botorch.models.model import Model
from botorch.models.multitask import KroneckerMultiTaskGP
from botorch.models.transforms import Log, Normalize
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.models import condition, hallucinate

from .textbook import KernelFunction, double, matern, posterior, squared_exponential, uniform

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")

LOW, HIGH = double([-5.0, 0.0]), double([10.0, 15.0])
X, PENDING, POINTS = (LOW + (HIGH - LOW) * uniform(n, 2, seed=n) for n in (9, 3, 6))
BOUNDS = torch.stack([LOW, HIGH])


def outcomes(inputs: Tensor) -> Tensor:
    first = 3.0 + 2.0 * (0.3 * inputs[..., :1]).sin()
    return torch.cat([first, 40.0 * (0.2 * inputs[..., 1:2]).cos()], dim=-1)


Y = outcomes(X)


@dataclass
class Dense:
    """One output of one member, by hand; ``noise`` and ``new_noise`` are in transformed units."""

    kernel: KernelFunction
    noise: Tensor | float
    new_noise: float
    inputs: Tensor
    targets: Tensor  # raw
    prior_mean: float = 0.0
    shift: float = 0.0
    unit: float = 1.0
    low: Tensor | float = 0.0
    width: Tensor | float = 1.0

    def posterior(
        self, points: Tensor, new_inputs: Tensor | None = None, new_targets: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean and covariance in raw units, with further rows if given."""
        rows, targets = self.inputs, self.targets
        levels = torch.as_tensor(self.noise, dtype=torch.float64).expand(len(rows))
        if new_inputs is not None and new_targets is not None:
            rows, targets = torch.cat([rows, new_inputs]), torch.cat([targets, new_targets])
            levels = torch.cat([levels, torch.full((len(new_inputs),), self.new_noise).double()])
        mean, covariance = posterior(
            self.kernel,
            (rows - self.low) / self.width,
            (targets - self.shift) / self.unit - self.prior_mean,
            levels,
            (points - self.low) / self.width,
        )
        return self.shift + self.unit * (self.prior_mean + mean), self.unit**2 * covariance


def fitted(model: Any) -> Any:
    return fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model)).model


def standardization(targets: Tensor) -> dict[str, float]:
    return {"shift": targets.mean().item(), "unit": targets.std().item()}


NORMALIZED = {"low": LOW, "width": HIGH - LOW}


def learned() -> tuple[Model, list[Dense]]:
    """BoTorch's default: Standardize, constant mean and noise learned, here with Normalize."""
    model = fitted(SingleTaskGP(X, Y[:, :1], input_transform=Normalize(2, bounds=BOUNDS)))
    noise = model.likelihood.noise.item()
    return model, [
        Dense(
            squared_exponential(model.covar_module.lengthscale.detach().squeeze(0)),
            noise,
            noise,
            X,
            Y[:, 0],
            model.mean_module.constant.item(),
            **standardization(Y[:, 0]),
            **NORMALIZED,
        )
    ]


def normalized_by_data() -> tuple[Model, list[Dense]]:
    model = SingleTaskGP(X, Y[:, :1], input_transform=Normalize(2))
    model.covar_module.lengthscale = double([[0.3, 0.5]])
    noise = model.likelihood.noise.item()
    low, high = X.amin(0), X.amax(0)
    return model, [
        Dense(
            squared_exponential(double([0.3, 0.5])),
            noise,
            noise,
            X,
            Y[:, 0],
            model.mean_module.constant.item(),
            **standardization(Y[:, 0]),
            low=low,
            width=high - low,
        )
    ]


def given_noise() -> tuple[Model, list[Dense]]:
    """A noise level a row: pseudo-observations get the mean of the levels."""
    levels = 0.05 + 0.1 * uniform(9, 1, seed=20)
    model = SingleTaskGP(X, Y[:, :1], levels, input_transform=Normalize(2, bounds=BOUNDS))
    model.covar_module.lengthscale = double([[0.3, 0.5]])
    unit = Y[:, 0].std().item()
    noise = levels.squeeze(-1) / unit**2
    return model, [
        Dense(
            squared_exponential(double([0.3, 0.5])),
            noise,
            noise.mean().item(),
            X,
            Y[:, 0],
            model.mean_module.constant.item(),
            **standardization(Y[:, 0]),
            **NORMALIZED,
        )
    ]


def two_outputs() -> tuple[Model, list[Dense]]:
    model = fitted(SingleTaskGP(X, Y, input_transform=Normalize(2, bounds=BOUNDS)))
    noise = model.likelihood.noise.detach().squeeze(-1).expand(2)
    lengthscales = model.covar_module.lengthscale.detach().expand(2, 1, 2)
    means = model.mean_module.constant.detach().expand(2)
    return model, [
        Dense(
            squared_exponential(lengthscales[j, 0]),
            noise[j].item(),
            noise[j].item(),
            X,
            Y[:, j],
            means[j].item(),
            **standardization(Y[:, j]),
            **NORMALIZED,
        )
        for j in range(2)
    ]


def two_outputs_with_given_noise() -> tuple[Model, list[Dense]]:
    levels = double([0.05, 8.0]) * (0.5 + uniform(9, 2, seed=21))
    model = SingleTaskGP(X, Y, levels, input_transform=Normalize(2, bounds=BOUNDS))
    model.covar_module.lengthscale = double([[0.3, 0.5]])
    means = model.mean_module.constant.detach().expand(2)
    dense = []
    for j in range(2):
        noise = levels[:, j] / Y[:, j].std() ** 2
        dense.append(
            Dense(
                squared_exponential(double([0.3, 0.5])),
                noise,
                noise.mean().item(),
                X,
                Y[:, j],
                means[j].item(),
                **standardization(Y[:, j]),
                **NORMALIZED,
            )
        )
    return model, dense


def model_list() -> tuple[Model, list[Dense]]:
    (first, one), (second, two), (third, three) = (
        build("learned"),
        build("given noise"),
        build("bandit"),
    )
    return ModelListGP(first, second, third), one + two + three


def bandit() -> tuple[Model, list[Dense]]:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = double(0.4)
    transform = Normalize(2, bounds=BOUNDS)
    model = BanditGP(X, Y[:, :1], kernel, noise=0.2, input_transform=transform)
    return model, [Dense(matern(2.5, 0.4), 0.2, 0.2, X, Y[:, 0], **NORMALIZED)]


def bandit_without_data() -> tuple[Model, list[Dense]]:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = double(3.0)
    model = BanditGP(X[:0], Y[:0], kernel, noise=0.2)
    return model, [Dense(matern(2.5, 3.0), 0.2, 0.2, X[:0], Y[:0, j]) for j in range(2)]


FAMILIES: dict[str, Callable[[], tuple[Model, list[Dense]]]] = {
    "learned": learned,
    "normalized by data": normalized_by_data,
    "given noise": given_noise,
    "two outputs": two_outputs,
    "two outputs with given noise": two_outputs_with_given_noise,
    "bandit": bandit,
    "bandit without data": bandit_without_data,
    "model list": model_list,
}
families = pytest.mark.parametrize("family", list(FAMILIES))


@cache
def _build(family: str) -> tuple[Model, list[Dense]]:
    return FAMILIES[family]()


def build(family: str) -> tuple[Model, list[Dense]]:
    """A copy of the model, fitted once, and its outputs by hand."""
    model, dense = _build(family)
    return copy.deepcopy(model), dense


def close(first: Tensor, second: Tensor, tolerance: float = 1e-8) -> bool:
    scale = max(1.0, second.abs().max().item())
    return torch.allclose(first, second, rtol=0, atol=tolerance * scale)


# --- one model ------------------------------------------------------------------------------------


@families
def test_the_dense_side_describes_the_model(family: str) -> None:
    model, dense = build(family)
    found = model.posterior(POINTS)
    for j, output in enumerate(dense):
        mean, covariance = output.posterior(POINTS)
        assert close(found.mean[:, j], mean)
        assert close(found.variance[:, j], covariance.diagonal())


@families
def test_hallucination_keeps_the_mean_and_shrinks_the_variance(family: str) -> None:
    model, dense = build(family)
    before = model.posterior(POINTS)
    pending = hallucinate(model, PENDING)
    assert type(pending) is type(model)
    after = pending.posterior(POINTS)
    assert close(after.mean, before.mean)
    for j, output in enumerate(dense):
        imagined, _ = output.posterior(PENDING)
        mean, covariance = output.posterior(POINTS, PENDING, imagined)
        assert close(after.mean[:, j], mean)
        assert close(after.variance[:, j], covariance.diagonal())
    # as if the outcomes were known: at the pending points little is left
    at_pending = pending.posterior(PENDING).variance / model.posterior(PENDING).variance
    assert (at_pending < 0.9).all()


@families
def test_conditioning_is_adding_rows(family: str) -> None:
    model, dense = build(family)
    imagined = outcomes(PENDING)[:, [0, 1, 0][: len(dense)]] - 7.0
    found = condition(model, PENDING, imagined).posterior(POINTS)
    for j, output in enumerate(dense):
        mean, covariance = output.posterior(POINTS, PENDING, imagined[:, j])
        assert close(found.mean[:, j], mean)
        assert close(found.variance[:, j], covariance.diagonal())


@families
def test_conditioning_twice_is_conditioning_once(family: str) -> None:
    model, dense = build(family)
    imagined = outcomes(PENDING)[:, [0, 1, 0][: len(dense)]]
    once = condition(model, PENDING, imagined).posterior(POINTS)
    twice = condition(condition(model, PENDING[:1], imagined[:1]), PENDING[1:], imagined[1:])
    found = twice.posterior(POINTS)
    assert close(found.mean, once.mean)
    assert close(found.variance, once.variance)


@families
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluating"])
def test_the_users_model_is_left_as_it_was(family: str, training: bool) -> None:
    model, _ = build(family)
    untouched = copy.deepcopy(model).posterior(POINTS)
    model.train(training)
    state = copy.deepcopy(model.state_dict())
    parts = model.models if isinstance(model, ModelListGP) else [model]
    rows = [part.train_targets.shape[-1] for part in parts]
    pending = hallucinate(model, PENDING)
    # what happens to the new model is no matter of the old one either
    for parameter in pending.parameters():
        parameter.data.add_(1.0)
    assert model.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert [part.train_targets.shape[-1] for part in parts] == rows
    after = model.posterior(POINTS)
    assert torch.allclose(after.mean, untouched.mean, rtol=0, atol=1e-12)
    assert torch.allclose(after.variance, untouched.variance, rtol=0, atol=1e-12)


@families
def test_gradients_flow_to_where_the_posterior_is_asked_for(family: str) -> None:
    model, _ = build(family)
    pending = hallucinate(model, PENDING)
    points = POINTS[:2].clone().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: pending.posterior(x).variance, points, atol=1e-5)


# --- batches and ensembles ------------------------------------------------------------------------


@pytest.mark.parametrize("num_outputs", [1, 2])
@pytest.mark.parametrize("kind", ["learned noise", "given noise", "bandit"])
def test_each_batch_is_conditioned_on_its_own_mean(kind: str, num_outputs: int) -> None:
    inputs = torch.stack([X, X.flip(0) + 0.1, X - 0.2])
    targets = outcomes(inputs)[..., :num_outputs] * double([1.0, 2.0, 3.0])[:, None, None]
    levels = (0.1 + uniform(3, 9, num_outputs, seed=22)) * targets.var(dim=1, keepdim=True)

    def make(rows: Tensor, values: Tensor, noise: Tensor) -> Any:
        transform = Normalize(2, bounds=BOUNDS)
        if kind == "bandit":
            return BanditGP(rows, values, RBFKernel(), noise=0.2, input_transform=transform)
        given = noise if kind == "given noise" else None
        return SingleTaskGP(rows, values, given, input_transform=transform)

    model = make(inputs, targets, levels)
    before, after = model.posterior(POINTS), hallucinate(model, PENDING).posterior(POINTS)
    assert close(after.mean, before.mean)
    assert (after.variance < 0.99 * before.variance).any()
    for k in range(3):
        alone = hallucinate(make(inputs[k], targets[k], levels[k]), PENDING).posterior(POINTS)
        assert close(after.mean[k], alone.mean)
        assert close(after.variance[k], alone.variance)


@pytest.mark.parametrize("given", [False, True], ids=["learned noise", "given noise"])
def test_each_member_of_an_ensemble_is_conditioned_on_its_own_mean(given: bool) -> None:
    torch.manual_seed(0)
    levels = 0.05 + 0.1 * uniform(9, 1, seed=20)
    model = EnsembleMapSaasSingleTaskGP(
        X,
        Y[:, :1],
        levels if given else None,
        num_taus=3,
        input_transform=Normalize(2, bounds=BOUNDS),
    )
    fitted(model)
    before = model.posterior(POINTS)
    pending = hallucinate(model, PENDING)
    assert type(pending) is EnsembleMapSaasSingleTaskGP
    after = pending.posterior(POINTS)
    assert close(after.mean, before.mean)
    statistics = standardization(Y[:, 0])
    for k in range(3):
        kernel = model.covar_module
        noise = (
            levels.squeeze(-1) / statistics["unit"] ** 2
            if given
            else model.likelihood.noise[k].detach().expand(9)
        )
        lengthscale = kernel.base_kernel.lengthscale[k, 0].detach()
        dense = Dense(
            matern(2.5, lengthscale, kernel.outputscale[k].item()),
            noise,
            noise.mean().item(),
            X,
            Y[:, 0],
            model.mean_module.constant[k].item(),
            **statistics,
            **NORMALIZED,
        )
        imagined, _ = dense.posterior(PENDING)
        mean, covariance = dense.posterior(POINTS, PENDING, imagined)
        assert close(after.mean[k, :, 0], mean)
        assert close(after.variance[k, :, 0], covariance.diagonal())


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build_model",
    [
        lambda: SingleTaskVariationalGP(X, Y[:, :1]),
        lambda: KroneckerMultiTaskGP(X, Y),
        lambda: PairwiseGP(X, torch.tensor([[0, 1], [2, 3]])),
        lambda: ModelListGP(SingleTaskGP(X, Y[:, :1]), SingleTaskVariationalGP(X, Y[:, :1])),
    ],
    ids=["variational", "kronecker", "pairwise", "one of a list"],
)
def test_models_that_take_no_rows_are_refused_with_the_remedy(
    build_model: Callable[[], Model],
) -> None:
    model = build_model()
    with pytest.raises(
        UnsupportedError,
        match=r"process \(SingleTaskGP, BanditGP, ModelListGP",
    ):
        condition(model, PENDING, PENDING.new_zeros(len(PENDING), model.num_outputs))


def test_a_given_noise_without_rows_has_no_level_for_new_ones() -> None:
    empty = torch.empty(0, 1, dtype=torch.float64)
    model = BanditGP(X, Y[:, :1], RBFKernel())
    with_levels = SingleTaskGP(X, Y[:, :1], torch.full_like(Y[:, :1], 0.1), outcome_transform=None)
    with_levels.likelihood.noise = empty.squeeze(-1)
    with pytest.raises(UnsupportedError, match="no rows to take"):
        condition(with_levels, PENDING, outcomes(PENDING)[:, :1])
    assert condition(model, PENDING, outcomes(PENDING)[:, :1]).num_rows == 12


def test_single_precision_is_refused() -> None:
    model = BanditGP(X, Y[:, :1], RBFKernel())
    with pytest.raises(TypeError, match=r"X has dtype torch\.float32"):
        condition(model, PENDING.float(), outcomes(PENDING)[:, :1])
    with pytest.raises(TypeError, match=r"Y has dtype torch\.float32"):
        condition(model, PENDING, outcomes(PENDING)[:, :1].float())


@pytest.mark.parametrize("in_a_list", [False, True])
def test_a_logarithm_of_outcomes_keeps_the_mean_of_the_process(in_a_list: bool) -> None:
    # mean = exp(m + s^2 / 2) and variance = (exp(s^2) - 1) mean^2 of a log-normal: m is kept
    model: Model = SingleTaskGP(
        X, (Y / 20.0).exp()[:, :1], outcome_transform=Log(), input_transform=Normalize(2)
    )
    if in_a_list:
        model = ModelListGP(model, SingleTaskGP(X, Y[:, 1:], input_transform=Normalize(2)))

    def moments(of: Model) -> tuple[Tensor, Tensor]:
        found = of.posterior(torch.cat([PENDING, POINTS]))
        mean, variance = found.mean[:, 0], found.variance[:, 0]
        squared = (1.0 + variance / mean**2).log()
        return mean.log() - 0.5 * squared, squared

    before, after = moments(model), moments(hallucinate(model, PENDING))
    assert close(after[0], before[0])
    assert (after[1][:3] < 0.9 * before[1][:3]).all()
