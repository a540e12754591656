"""Pseudo-observations against dense algebra, for each kind of model that takes them.

The dense side knows hyperparameters and the statistics of the data, and nothing else:
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
from botorch.models.model import Model
from botorch.models.multitask import KroneckerMultiTaskGP
from botorch.models.transforms import Normalize
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from botorch_bandits import BanditGP
from botorch_bandits.models import condition, hallucinate

from .textbook import KernelFunction, double, matern, posterior, squared_exponential, uniform

pytestmark = pytest.mark.filterwarnings("ignore::botorch.exceptions.InputDataWarning")

LOW, HIGH = double([-5.0, 0.0]), double([10.0, 15.0])
X, PENDING, POINTS = (LOW + (HIGH - LOW) * uniform(n, 2, seed=n) for n in (9, 3, 6))


def unit_cube() -> Normalize:
    return Normalize(2, bounds=torch.stack([LOW, HIGH]))


def outcomes(inputs: Tensor) -> Tensor:
    first = 3.0 + 2.0 * (0.3 * inputs[..., :1]).sin()
    return torch.cat([first, 40.0 * (0.2 * inputs[..., 1:2]).cos()], dim=-1)


Y = outcomes(X)


@dataclass
class Dense:
    """One output of one member, by hand; ``noise`` and ``new_noise`` are in transformed units."""

    kernel: KernelFunction
    noise: Tensor
    targets: Tensor  # raw
    prior_mean: float = 0.0
    shift: float = 0.0
    unit: float = 1.0
    inputs: Tensor = X
    low: Tensor | float = LOW
    width: Tensor | float = HIGH - LOW

    def posterior(
        self, points: Tensor, new_inputs: Tensor = X[:0], new_targets: Tensor = X[:0, 0]
    ) -> tuple[Tensor, Tensor]:
        """Mean and covariance in raw units, with further rows of the mean noise."""
        rows = torch.cat([self.inputs, new_inputs])
        targets = torch.cat([self.targets, new_targets])
        levels = [self.noise.expand(len(self.inputs)), self.noise.mean().expand(len(new_inputs))]
        mean, covariance = posterior(
            self.kernel,
            (rows - self.low) / self.width,
            (targets - self.shift) / self.unit - self.prior_mean,
            torch.cat(levels),
            (points - self.low) / self.width,
        )
        return self.shift + self.unit * (self.prior_mean + mean), self.unit**2 * covariance

    def hallucinated(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return self.posterior(points, PENDING, self.posterior(PENDING)[0])


def fitted(model: Any) -> Any:
    return fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model)).model


def single_task(columns: slice, levels: Tensor | None = None, **options: Any) -> Any:
    """A model whose parameters are read, and its outputs by hand: Standardize, learned mean."""
    targets = Y[:, columns]
    transform = options.pop("input_transform", None) or unit_cube()
    model = SingleTaskGP(X, targets, levels, input_transform=transform)
    if options.pop("is_fitted", False):
        fitted(model)
    else:
        model.covar_module.lengthscale = double([[0.3, 0.5]])
    m = model.num_outputs
    lengthscales = model.covar_module.lengthscale.detach().expand(m, 1, 2)
    noise = model.likelihood.noise.detach().expand(m, -1)
    means = model.mean_module.constant.detach().expand(m)
    return model, [
        Dense(
            squared_exponential(lengthscales[j, 0]),
            noise[j],
            targets[:, j],
            means[j].item(),
            targets[:, j].mean().item(),
            targets[:, j].std().item(),
            **options,
        )
        for j in range(m)
    ]


def bandit(lengthscale: float, num_rows: int, **options: Any) -> tuple[Model, list[Dense]]:
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = double(lengthscale)
    targets = Y[:num_rows, :1]
    model = BanditGP(X[:num_rows], targets, kernel, noise=0.2, **options)
    outputs = targets.unbind(-1)
    known: dict[str, Any] = {} if options else {"low": 0.0, "width": 1.0}
    known["inputs"] = X[:num_rows]
    prior = matern(2.5, lengthscale)
    return model, [Dense(prior, double(0.2), column, **known) for column in outputs]


def model_list() -> tuple[Model, list[Dense]]:
    names = ("learned", "given noise", "bandit")
    parts = [build(name) for name in names]
    return ModelListGP(*(model for model, _ in parts)), [o for _, dense in parts for o in dense]


ONE, BOTH = slice(0, 1), slice(0, 2)
FAMILIES: dict[str, Callable[[], tuple[Model, list[Dense]]]] = {
    "learned": lambda: single_task(ONE, is_fitted=True),
    "normalized by data": lambda: single_task(
        ONE, input_transform=Normalize(2), low=X.amin(0), width=X.amax(0) - X.amin(0)
    ),
    "given noise": lambda: single_task(ONE, 0.05 + 0.1 * uniform(9, 1, seed=20)),
    "two outputs": lambda: single_task(BOTH, is_fitted=True),
    "two outputs with given noise": lambda: single_task(
        BOTH, double([0.05, 8.0]) * (0.5 + uniform(9, 2, seed=21))
    ),
    "bandit": lambda: bandit(0.4, 9, input_transform=unit_cube()),
    "bandit without data": lambda: bandit(3.0, 0),
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


def agrees(found: Any, expected: list[tuple[Tensor, Tensor]]) -> bool:
    return all(
        close(found.mean[..., j], mean) and close(found.variance[..., j], covariance.diagonal())
        for j, (mean, covariance) in enumerate(expected)
    )


# --- one model ------------------------------------------------------------------------------------


@families
def test_hallucination_keeps_the_mean_and_shrinks_the_variance(family: str) -> None:
    model, dense = build(family)
    before = model.posterior(POINTS)
    assert agrees(before, [output.posterior(POINTS) for output in dense])
    pending = hallucinate(model, PENDING)
    assert type(pending) is type(model)
    after = pending.posterior(POINTS)
    assert close(after.mean, before.mean)
    assert agrees(after, [output.hallucinated(POINTS) for output in dense])
    # as if the outcomes were known: at the pending points little is left
    at_pending = pending.posterior(PENDING).variance / model.posterior(PENDING).variance
    assert (at_pending < 0.9).all()
    points = POINTS[:2].clone().requires_grad_(True)
    assert torch.autograd.gradcheck(lambda x: pending.posterior(x).variance, points, atol=1e-5)


@families
def test_conditioning_is_adding_rows_at_once_or_in_turn(family: str) -> None:
    model, dense = build(family)
    imagined = outcomes(PENDING)[:, [0, 1, 0][: len(dense)]] - 7.0
    expected = [o.posterior(POINTS, PENDING, imagined[:, j]) for j, o in enumerate(dense)]
    assert agrees(condition(model, PENDING, imagined).posterior(POINTS), expected)
    twice = condition(condition(model, PENDING[:1], imagined[:1]), PENDING[1:], imagined[1:])
    assert agrees(twice.posterior(POINTS), expected)


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


# --- what is refused ------------------------------------------------------------------------------


def without_levels() -> Model:
    model = SingleTaskGP(X, Y[:, :1], torch.full_like(Y[:, :1], 0.1), outcome_transform=None)
    model.likelihood.noise = torch.empty(0, dtype=torch.float64)
    return model


REFUSED: dict[str, tuple[Callable[[], Model], str]] = {
    name: (make, r"process \(SingleTaskGP, BanditGP, ModelListGP")
    for name, make in {
        "variational": lambda: SingleTaskVariationalGP(X, Y[:, :1]),
        "kronecker": lambda: KroneckerMultiTaskGP(X, Y),
        "pairwise": lambda: PairwiseGP(X, torch.tensor([[0, 1], [2, 3]])),
        "one of a list": lambda: ModelListGP(
            SingleTaskGP(X, Y[:, :1]), SingleTaskVariationalGP(X, Y[:, :1])
        ),
    }.items()
} | {"given noise without rows": (without_levels, r"no rows.*Give it a likelihood")}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_take_no_rows_are_refused_with_the_remedy(name: str) -> None:
    build_model, message = REFUSED[name]
    model = build_model()
    with pytest.raises(UnsupportedError, match=message):
        condition(model, PENDING, PENDING.new_zeros(len(PENDING), model.num_outputs))


def test_single_precision_is_refused() -> None:
    model = BanditGP(X, Y[:, :1], RBFKernel())
    for name, given in {
        "X": (PENDING.float(), Y[:3, :1]),
        "Y": (PENDING, Y[:3, :1].float()),
    }.items():
        with pytest.raises(TypeError, match=rf"{name} has dtype torch\.float32"):
            condition(model, *given)
