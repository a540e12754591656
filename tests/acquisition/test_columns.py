"""Points of another shape than the model's inputs are refused by name, in every class."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import (
    MultiTaskGP,
    SingleTaskGP,
)
from botorch.models.model import Model
from botorch.models.transforms.input import (
    AppendFeatures,
)
from gpytorch.kernels import RBFKernel
from torch import Tensor

import botorch_bandits.acquisition
from botorch_bandits import BanditGP, GPThompsonSampling, GPUpperConfidenceBound
from botorch_bandits.acquisition import BanditAcquisition
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.loop.settings import OF_LISTS

from .cases import OwnGP, Waves, rows, uniform

X, Y = rows(8)
CENSORED = {"minimum_proxy": 2.0, "outcome_bound": 9.0}
OPTIONS: dict[str, dict[str, Any]] = {
    "CensoredThompsonSampling": CENSORED,
    "CensoredUpperConfidenceBound": CENSORED,
    "ChangePointUpperConfidenceBound": {"horizon": 100, "smoothness": 2.5, "dim": 2},
    "GPUpperConfidenceBound": {"width": 2.0},
    "LagrangianThompsonSampling": {"multipliers": (1.0,)},
    "LagrangianUpperConfidenceBound": {"multipliers": (1.0,)},
    "RandomizedUpperConfidenceBound": {"num_arms": 50},
    "TopTwoThompsonSampling": {"choices": X},
    "WidthUpperConfidenceBound": {"rule": ConstantWidth(2.0)},
}
CLASSES = [
    cls
    for name in sorted(botorch_bandits.acquisition.__all__)
    if inspect.isclass(cls := getattr(botorch_bandits.acquisition, name))
    and issubclass(cls, BanditAcquisition)
    and cls is not BanditAcquisition
]
PRIORS = [BanditGP.with_kernel(RBFKernel(), lengthscale=each) for each in (0.2, 0.5)]


def make(cls: type, **more: Any) -> AcquisitionFunction:
    outcomes = Y if "Lagrangian" in cls.__name__ else Y[:, :1]
    if issubclass(cls, OF_LISTS):
        model: Model = BanditGP.with_candidates(PRIORS)(X, outcomes)
    else:
        model = SingleTaskGP(X, outcomes).eval()
    acqf: AcquisitionFunction = cls(model, **{**OPTIONS.get(cls.__name__, {}), **more})
    return acqf


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_other_shapes_are_refused(cls: type) -> None:
    acqf = make(cls)
    with pytest.raises(ValueError, match=rf"^{cls.__name__} requires X to have at least 2 dim.*"):
        acqf(X[0])
    for count, words in ((1, "1 column"), (3, "3 columns")):
        told = rf"^{{}} has {words} \(shape .*\), but the inputs of the model, .*, have 2\. Pass"
        for q in (1, 2):
            with pytest.raises(ValueError, match=told.format("X")):
                acqf(uniform(4, q, count, seed=3))
        with pytest.raises(ValueError, match=told.format("X_pending")):
            acqf.set_X_pending(uniform(2, count, seed=4))
        with pytest.raises(ValueError, match=told.format("X_pending")):
            make(cls, X_pending=uniform(2, count, seed=4))
        if "choices" in inspect.signature(cls).parameters:
            with pytest.raises(ValueError, match=told.format("choices")):
                make(cls, choices=uniform(5, count, seed=4))
    assert acqf.X_pending is None  # a refusal leaves everything in its place
    assert acqf(X.unsqueeze(-2)).shape == (8,)


class AddsColumns(OwnGP):
    """Takes points without the second column."""

    def posterior(self, X: Tensor, *args: Any, **options: Any) -> Any:
        return super().posterior(torch.cat([X, torch.zeros_like(X)], -1), *args, **options)


def several_tasks() -> MultiTaskGP:
    tasks = torch.cat([torch.zeros(8, 1), torch.ones(8, 1)]).double()
    inputs = torch.cat([torch.cat([X, X]), tasks], dim=-1)
    outcomes = torch.cat([Y[:, :1], Y[:, 1:]])
    return MultiTaskGP(inputs, outcomes, task_feature=-1, output_tasks=[0])


def appended() -> Model:
    """The second column is appended to points, not to the rows, which have it."""
    later = AppendFeatures(feature_set=torch.zeros(1, 1).double())
    return SingleTaskGP(X, Y[:, :1], input_transform=later)


def test_models_that_take_other_points_than_their_rows_are_not_refused() -> None:
    for build, count in (
        (appended, 1),
        (lambda: AddsColumns(X, Y[:, :1]), 1),
        (several_tasks, 3),
        (Waves, 5),
    ):
        points = uniform(4, 1, count, seed=3)
        if build is several_tasks:
            points[..., 2] = 0.0  # the task
        value = GPUpperConfidenceBound(build().eval(), width=2.0)(points)
        assert value.shape == (4,)
        assert value.isfinite().all()
    with pytest.raises(ValueError, match=r"X has 4 columns"):
        GPThompsonSampling(several_tasks(), seed=0, choices=X)(uniform(4, 1, 4, seed=3))
