"""A loop treats a subclass of an acquisition function that changes nothing as it treats its parent.

One that changes values is refused wherever its parent is treated in a way of its own.
"""

from __future__ import annotations

import math
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
    OracleRestart,
    PrimalDual,
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
EVERY_ROUND = {
    "constraints": PrimalDual(1, 3.0, 5.0, reward_bound=4.0, constraint_bound=0.4),
}
RESTARTS = {"restart": OracleRestart((5,), exploration=0.1)}
IGP, LAGRANGIAN = ImprovedUpperConfidenceBound, LagrangianUpperConfidenceBound
CASES = [
    *(("censored", parent, CENSORED, ARMS) for parent in list(OPTIONS)[:5]),
    ("censored box", IGP, CENSORED, BOX),
    *(("relabeled", parent, RELABELED, ARMS) for parent in (IGP, GPThompsonSampling)),
    *(("fresh", parent, MULTIPLICATIVE, ARMS) for parent in (IGP, GPThompsonSampling)),
    *(("separate", p, SEPARATE, ARMS) for p in (LAGRANGIAN, LagrangianThompsonSampling)),
    ("separate box", LAGRANGIAN, SEPARATE, BOX),
    ("separate restarts", LAGRANGIAN, {**SEPARATE, **RESTARTS}, ARMS),
    ("every round", LAGRANGIAN, EVERY_ROUND, ARMS),
    ("censored restarts", IGP, {**CENSORED, **RESTARTS}, ARMS),
    *(("restarts", parent, RESTARTS, ARMS) for parent in list(OPTIONS)[:5]),
    *(("arms", parent, {}, ARMS) for parent in list(OPTIONS)[:5]),
]


def trivial(parent: type[BanditAcquisition]) -> type[BanditAcquisition]:
    class Mine(parent):
        pass

    return Mine


def shifted(parent: type[BanditAcquisition]) -> type[BanditAcquisition]:
    class Shifted(parent):
        def forward(self, X: Tensor) -> Tensor:
            return super().forward(X) - X[..., 0, 0]

    return Shifted


def build(cls: type[BanditAcquisition], options: dict[str, Any], domain: Any = ARMS, **given: Any):
    acquisition = cls.with_options(**given)
    return BanditLoop(domain, MODEL, acquisition, seed=3, clock=lambda: 0.0, **options)


def play(loop: BanditLoop, num_rounds: int) -> list[dict[str, Any]]:
    """Tell every outcome a round late; return the points and what was known of them."""
    for _ in range(num_rounds):
        loop.ask()
        for query in list(loop.history.pending())[:-1]:
            x = float(query.x[0])
            told = {} if loop.settings.constraints is None else {"constraints": [0.5 - x]}
            loop.tell(query.id, math.sin(5.0 * x) + x, **told)
    return [{"x": query.x.tolist(), **query.diagnostics} for query in loop.history.queries]


@pytest.mark.parametrize(
    ("parent", "options", "domain"),
    [case[1:] for case in CASES],
    ids=[f"{case[0]} {case[1].__name__}" for case in CASES],
)
def test_a_subclass_that_changes_nothing_is_treated_as_its_parent(parent, options, domain):
    ours, theirs = (
        build(cls, options, domain, **OPTIONS[parent]) for cls in (trivial(parent), parent)
    )
    num_rounds = 10 if domain is ARMS else 5
    assert play(ours, num_rounds) == play(theirs, num_rounds)
    assert (ours.resets, ours.multipliers) == (theirs.resets, theirs.multipliers)
    mine, known = ours.guarantee(), theirs.guarantee()
    assert (mine.theorem, mine.constants, mine.holds) == (
        known.theorem,
        known.constants,
        known.holds,
    )
    assert [gap.replace("Mine", parent.__name__) for gap in mine.gaps] == list(known.gaps)
    if ours.settings.constraints is not None:
        assert ours.feasibility().constraints == theirs.feasibility().constraints


@pytest.mark.parametrize("parent", list(OPTIONS)[:5], ids=lambda parent: parent.__name__)
def test_a_subclass_that_changes_values_is_refused_with_censored_feedback(parent):
    with pytest.raises(ValueError, match="no width for"):
        build(shifted(parent), CENSORED, **OPTIONS[parent])


def test_a_subclass_with_another_width_is_not_its_parent():
    class Wider(ImprovedUpperConfidenceBound):
        @classmethod
        def width_rule(cls, options):
            return ConstantWidth(3.0)

    assert Wider.played_as is Wider
    with pytest.raises(ValueError, match="no width for"):
        build(Wider, CENSORED, **BOUNDS)
    gaps = build(Wider, MULTIPLICATIVE, **BOUNDS).guarantee().reasons
    assert any("inner algorithm is IGP-UCB" in gap for gap in gaps)


def test_predictive_deviations_are_refused_as_with_the_parent():
    feedback = Censored(-3.0, 6.0, max_delay=3, predictive=True)
    for parent in (GPThompsonSampling, RandomizedUpperConfidenceBound):
        with pytest.raises(ValueError, match=r"not for Mine\."):
            build(trivial(parent), {"feedback": feedback}, **OPTIONS[parent])


@pytest.mark.parametrize("change", [trivial, shifted])
@pytest.mark.parametrize("parent", [CensoredUpperConfidenceBound, CensoredThompsonSampling])
def test_what_censors_pending_points_is_not_censored_twice(parent, change):
    with pytest.raises(ValueError, match="would censor them twice"):
        build(change(parent), CENSORED, minimum=-3.0, width=1.0)


@pytest.mark.parametrize("parent", [LAGRANGIAN, LagrangianThompsonSampling])
def test_what_weighs_constraints_is_refused_in_words(parent):
    for cls in (parent, trivial(parent), shifted(parent)):
        with pytest.raises(ValueError, match="weighs constraints, but"):
            build(cls, {}, **OPTIONS[parent])
        with pytest.raises(ValueError, match="must not penalize again"):
            build(cls, RELABELED, **OPTIONS[parent])
    with pytest.raises(ValueError, match="models reward and constraints"):
        build(shifted(parent), SEPARATE, **OPTIONS[parent])
    with pytest.raises(ValueError, match="Leave them out"):
        build(trivial(parent), SEPARATE, multipliers=[1.0], **OPTIONS[parent])


def test_a_changed_subclass_with_multipliers_of_its_own_needs_no_constraints():
    build(shifted(LAGRANGIAN), {}, multipliers=[1.0], width=1.0)


def test_each_class_of_the_package_is_evaluated_as_itself():
    for name in acquisitions.__all__:
        cls = getattr(acquisitions, name)
        if isinstance(cls, type) and issubclass(cls, BanditAcquisition) and cls.defines_rule:
            assert cls.played_as is cls
            assert trivial(cls).played_as is cls
            assert shifted(cls).played_as is None
