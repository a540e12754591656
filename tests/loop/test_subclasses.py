"""A loop evaluates a subclass of an acquisition function, unless it says that a rule plays it.

One that is evaluated is refused wherever its parent is treated in a way of its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    CensoredThompsonSampling,
    CensoredUpperConfidenceBound,
    ChangePointUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    MultiplicativeEpochs,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits import acquisition as acquisitions
from botorch_bandits.acquisition.base import BanditAcquisition
from botorch_bandits.confidence import ConstantWidth

ARMS = Arms(torch.linspace(0.0, 1.0, 12, dtype=torch.float64).unsqueeze(-1))
BOX = Box([[0.0], [1.0]], num_restarts=2, raw_samples=16)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=1.0, lengthscale=0.3)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
OPTIONS: dict[type[BanditAcquisition], dict[str, Any]] = {
    ImprovedUpperConfidenceBound: {**BOUNDS, "any_lambda": True},
    GPThompsonSampling: BOUNDS,
    GPUpperConfidenceBound: {},
    AMMUpperConfidenceBound: BOUNDS,
    RandomizedUpperConfidenceBound: {},
    ChangePointUpperConfidenceBound: {},
    LagrangianUpperConfidenceBound: {"width": 1.5},
    LagrangianThompsonSampling: {"width": 1.0},
}
CENSORED = {"feedback": Censored(-3.0, 6.0, max_delay=3)}
RELABELED = {"constraints": AdditiveEpochs(1, 4)}
MULTIPLICATIVE = {"constraints": MultiplicativeEpochs(1, 4, surrogate="fresh")}
SEPARATE = {"constraints": AdditiveEpochs(1, 4, surrogate="separate")}
LAGRANGIAN = (LagrangianUpperConfidenceBound, LagrangianThompsonSampling)


def shifted(parent: type[BanditAcquisition]) -> type[BanditAcquisition]:
    class Shifted(parent):
        def forward(self, X: Tensor) -> Tensor:
            return super().forward(X) - X[..., 0, 0]

    return Shifted


class Wider(ImprovedUpperConfidenceBound):
    """A subclass with a width of its own, and the score of its parent."""

    defines_rule = True

    @classmethod
    def width_rule(cls, options):
        return ConstantWidth(3.0)


def build(cls: type[BanditAcquisition], options: dict[str, Any], domain: Any = ARMS, **given: Any):
    acquisition = cls.with_options(**given)
    return BanditLoop(domain, MODEL, acquisition, seed=3, **options)


@pytest.mark.parametrize("parent", list(OPTIONS)[:5], ids=lambda parent: parent.__name__)
def test_a_subclass_that_changes_values_is_refused_with_censored_feedback(parent):
    with pytest.raises(ValueError, match="no width for"):
        build(shifted(parent), CENSORED, **OPTIONS[parent])


def test_a_subclass_with_another_width_is_not_its_parent():
    with pytest.raises(ValueError, match="no width for"):
        build(Wider, CENSORED, **BOUNDS)
    gaps = build(Wider, MULTIPLICATIVE, **BOUNDS).guarantee().reasons
    assert any("inner algorithm is IGP-UCB" in gap for gap in gaps)
    loop = build(Wider, {}, **BOUNDS)
    assert loop.ask().diagnostics["width"] == 3.0


@pytest.mark.parametrize("parent", [GPThompsonSampling, RandomizedUpperConfidenceBound])
def test_predictive_deviations_are_refused(parent):
    feedback = Censored(-3.0, 6.0, max_delay=3, predictive=True)
    with pytest.raises(ValueError, match=rf"not for {parent.__name__}\."):
        build(parent, {"feedback": feedback}, **OPTIONS[parent])


@pytest.mark.parametrize("parent", [CensoredUpperConfidenceBound, CensoredThompsonSampling])
def test_what_censors_pending_points_is_not_censored_twice(parent):
    for cls in (parent, shifted(parent)):
        with pytest.raises(ValueError, match="would censor them twice"):
            build(cls, CENSORED, minimum=-3.0, width=1.0)


@pytest.mark.parametrize("parent", LAGRANGIAN)
def test_what_weighs_constraints_is_refused_in_words(parent):
    for cls in (parent, shifted(parent)):
        with pytest.raises(ValueError, match="weighs constraints, but"):
            build(cls, {}, **OPTIONS[parent])
        with pytest.raises(ValueError, match="must not penalize again"):
            build(cls, RELABELED, **OPTIONS[parent])
    with pytest.raises(ValueError, match="models reward and constraints"):
        build(shifted(parent), SEPARATE, **OPTIONS[parent])
    with pytest.raises(ValueError, match="Leave them out"):
        build(parent, SEPARATE, multipliers=[1.0], **OPTIONS[parent])


def test_a_changed_subclass_with_multipliers_of_its_own_needs_no_constraints():
    build(shifted(LAGRANGIAN[0]), {}, multipliers=[1.0], width=1.0)


def test_each_class_of_the_package_is_played_as_itself_and_subclasses_only_if_they_say_so():
    for name in acquisitions.__all__:
        cls = getattr(acquisitions, name)
        if isinstance(cls, type) and issubclass(cls, BanditAcquisition) and cls.defines_rule:
            assert cls.played_as is cls
            assert shifted(cls).played_as is None
    assert Wider.played_as is Wider
