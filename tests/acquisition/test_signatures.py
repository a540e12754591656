"""Arguments that BoTorch's users know mean here what they mean there."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from botorch import acquisition as stock
from botorch.acquisition.analytic import LogProbabilityOfImprovement, PosteriorStandardDeviation
from botorch.models import ModelListGP, SingleTaskGP
from gpytorch.kernels import RBFKernel
from models.textbook import double

import botorch_bandits
from botorch_bandits import (
    BanditGP,
    GPUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    acquisition,
)
from botorch_bandits.acquisition.base import BanditAcquisition

from .cases import bandit_gp, rows, uniform

NAMESAKES = {
    "GPUpperConfidenceBound": stock.UpperConfidenceBound,
    "LogExpectedImprovement": stock.LogExpectedImprovement,
    "LogProbabilityOfImprovement": LogProbabilityOfImprovement,
    "MeanOnly": stock.PosteriorMean,
    "VarianceOnly": PosteriorStandardDeviation,
}

CLASSES = sorted(
    name
    for name in acquisition.__all__
    if isinstance(getattr(acquisition, name), type)
    and issubclass(getattr(acquisition, name), BanditAcquisition)
    and name != "BanditAcquisition"
)

POINTS = uniform(6, 2, seed=3).unsqueeze(-2)


@pytest.mark.parametrize("name", NAMESAKES)
def test_positional_arguments_are_those_of_botorch(name: str) -> None:
    ours = inspect.signature(getattr(acquisition, name)).parameters
    theirs = inspect.signature(NAMESAKES[name]).parameters
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert [n for n, p in ours.items() if p.kind is positional] == list(theirs)


@pytest.mark.parametrize("maximize", [True, False])
@pytest.mark.parametrize("name", NAMESAKES)
def test_values_are_those_of_botorch_by_position(name: str, maximize: bool) -> None:
    model, margin = bandit_gp(), 0.01 if maximize else -0.01
    numbers = {
        "GPUpperConfidenceBound": (4.0, 4.0),
        "LogExpectedImprovement": (0.3, double(0.3)),  # BoTorch rounds a plain number to float32
        "LogProbabilityOfImprovement": (0.3, double(0.3 + margin)),
    }
    ours, theirs = (
        cls(model, *given, None, maximize)
        for cls, given in zip(
            (getattr(acquisition, name), NAMESAKES[name]),
            ([number] for number in numbers[name]) if name in numbers else ([], []),
            strict=True,
        )
    )
    assert name not in numbers or isinstance(ours, NAMESAKES[name])
    assert torch.allclose(ours(POINTS), theirs(POINTS), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_takes_maximize(name: str) -> None:
    parameter = inspect.signature(getattr(acquisition, name)).parameters["maximize"]
    assert parameter.default is True


@pytest.mark.parametrize("options", [{}, {"separate_bounds": True}], ids=["scalarized", "apart"])
def test_the_penalized_reward_is_that_of_the_negative_reward(options: dict[str, Any]) -> None:
    X, Y = rows()

    def model(sign: float) -> ModelListGP:
        return ModelListGP(
            SingleTaskGP(X, sign * Y[:, :1], outcome_transform=None),
            SingleTaskGP(X, Y[:, 1:], outcome_transform=None),
        )

    down = LagrangianUpperConfidenceBound(
        model(1.0), multipliers=[1.5], width=2.0, maximize=False, **options
    )
    up = LagrangianUpperConfidenceBound(model(-1.0), multipliers=[1.5], width=2.0, **options)
    assert torch.allclose(down(POINTS), up(POINTS), atol=1e-10)
    draw = LagrangianThompsonSampling(model(1.0), multipliers=[1.5], seed=0, maximize=False)
    both = draw.draw(POINTS)
    assert torch.allclose(draw(POINTS), -both[:, 0] - 1.5 * both[:, 1])


def test_a_loop_under_constraints_maximizes() -> None:
    for cls in (LagrangianUpperConfidenceBound, LagrangianThompsonSampling):
        with pytest.raises(ValueError, match=r"maximize=False.*pass maximize=False to"):
            botorch_bandits.BanditLoop(
                botorch_bandits.Arms(POINTS.squeeze(-2)),
                BanditGP.with_kernel(RBFKernel()),
                cls.with_options(maximize=False),
                constraints=botorch_bandits.AdditiveEpochs(1, 4, surrogate="separate"),
            )


def test_beta_is_one_number_or_one_a_model_of_a_batch() -> None:
    X, Y = rows()
    batch = SingleTaskGP(torch.stack([X, X]), torch.stack([Y[:, :1], Y[:, 1:]]))
    beta = double([1.0, 4.0])
    ours = GPUpperConfidenceBound(batch, beta)
    grid = POINTS.unsqueeze(-3)
    for member in range(2):
        alone = stock.UpperConfidenceBound(batch, float(beta[member]))
        assert torch.allclose(ours(grid)[:, member], alone(grid)[:, member], atol=1e-10)
    assert torch.allclose(ours.width, beta.sqrt())
    ours.set_X_pending(X[:2])
    assert ours(grid).shape == (6, 2)
    assert ours(POINTS.reshape(3, 1, 2, 2)).shape == (3, 2)
    with pytest.raises(ValueError, match=r"beta has 3 entries.*batch"):
        GPUpperConfidenceBound(batch, torch.ones(3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"beta.*-1"):
        GPUpperConfidenceBound(batch, double([1.0, -1.0]))
