"""Subclasses with constructors of their own, which hand arguments on, and what is checked there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from botorch.models import ModelListGP, SingleTaskGP
from models.textbook import line
from torch import Tensor

from botorch_bandits import (
    CensoredThompsonSampling,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    LogExpectedImprovement,
    MeanOnly,
)
from botorch_bandits.acquisition.base import BanditAcquisition

X = line(0.0, 1.0, 6)
POINTS = X[:3].unsqueeze(1)


def model() -> SingleTaskGP:
    return SingleTaskGP(X, X.sin())


class Forwarding(ImprovedUpperConfidenceBound):
    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)


class ByPosition(LogExpectedImprovement):
    def __init__(self, model: Any, best_f: float, *args: Any, **given: Any) -> None:
        super().__init__(model, best_f, *args, **given)


class Mixin:
    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)


class WithMixin(Mixin, ImprovedUpperConfidenceBound):
    pass


class BehindMixin(Mixin, ImprovedUpperConfidenceBound):
    def __init__(self, model: Any, **given: Any) -> None:
        super().__init__(model, **given)


class OwnNames(BanditAcquisition):
    def __init__(self, model: Any, **given: Any) -> None:
        super().__init__(model)
        self.given = given

    def forward(self, X: Tensor) -> Tensor:
        return X.sum((-2, -1))


class OneSetting(CensoredThompsonSampling):
    def __init__(self, model: Any) -> None:
        super().__init__(model, minimum=-1.0, choices=X)


BUILT: dict[str, Callable[[], BanditAcquisition]] = {
    "forwarding": lambda: Forwarding(model(), width=2.0),
    "by position": lambda: ByPosition(model(), 0.5, None, False),
    "with a mixin": lambda: WithMixin(model(), width=2.0),
    "behind a mixin": lambda: BehindMixin(model(), width=2.0),
    "names of its own": lambda: OwnNames(model(), alpha=2.0),
    "one setting": lambda: OneSetting(model()),
}


@pytest.mark.parametrize("build", BUILT.values(), ids=BUILT)
def test_they_can_be_built(build: Callable[[], BanditAcquisition]) -> None:
    assert build()(POINTS).shape == (3,)


@pytest.mark.parametrize("cls", [Forwarding, WithMixin, BehindMixin])
def test_names_that_the_base_class_does_not_have_are_refused(cls: Any) -> None:
    with pytest.raises(TypeError, match=f"{cls.__name__} has no argument 'widht'; it has .*width"):
        cls(model(), widht=2.0)
    assert cls.with_options(width=2.0).options == {"width": 2.0}


def test_a_direction_that_is_none_is_refused() -> None:
    models = ModelListGP(model(), model())
    with pytest.raises(ValueError, match="maximize is None"):
        LagrangianUpperConfidenceBound(models, multipliers=[0.5], maximize=None)
    with pytest.raises(ValueError, match="maximize is 'min'"):
        MeanOnly(model(), None, "min")  # type: ignore[arg-type]


def test_the_noise_of_an_incumbent_keeps_no_graph() -> None:
    acqf = LogExpectedImprovement(model(), augmented=True)
    copy.deepcopy(acqf)
    for _ in range(2):
        acqf(POINTS).sum().backward()
