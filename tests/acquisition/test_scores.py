"""The one place where mean, deviation and width become values."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    DMMUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.engines import ArmsEngine, build_arms_engine
from botorch_bandits.acquisition.rules import WidthArmsRule
from botorch_bandits.confidence import ConstantWidth

from .cases import uniform

ARMS = Arms(uniform(7, 2, seed=1))


def engine_after(rounds: int, recipe: object) -> ArmsEngine:
    model = BanditGP.with_kernel(RBFKernel(), noise=0.05)
    engine = build_arms_engine(model, recipe, ARMS, range(3))  # type: ignore[arg-type]
    assert engine is not None
    for t in range(rounds):
        outcomes = torch.tensor([0.2 * t, -0.1, 1.0], dtype=torch.float64)
        engine.observe(torch.tensor([t % 7, 2, (3 * t) % 7]), outcomes)
    return engine


def test_what_a_rule_computes_once_a_round_is_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    deviation = WidthArmsRule.deviation
    monkeypatch.setattr(
        WidthArmsRule, "deviation", lambda self, seen: calls.append(1) or deviation(self, seen)
    )
    recipe = ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1)
    engine = engine_after(4, recipe)
    seen = engine.look(5)
    assert seen.rule is engine.rule
    engine.choose(seen)
    lower, upper = seen.rule.bounds(seen)
    assert len(calls) == 1
    assert torch.equal(seen.scores, upper)
    assert torch.allclose(upper - seen.mean, seen.mean - lower, atol=1e-12, rtol=0.0)
    # another round, and a round with another rule, have their own
    assert torch.equal(replace(seen).scores, upper)
    other = engine.look(5, rule=WidthArmsRule(ConstantWidth(0.0)))
    assert torch.allclose(other.scores, other.mean, atol=1e-12, rtol=0.0)
    assert len(calls) == 3


def test_an_engine_without_a_rule_can_only_play_at_random() -> None:
    engine = engine_after(
        2, ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1)
    )
    engine.rule = None
    with pytest.raises(ValueError, match="no rule; call choose_uniformly"):
        engine.look(3)
    assert engine.choose_uniformly(3).shape == (3,)


@pytest.mark.parametrize("pending", [None, [[1, 4], [0, 0], [6, 2]]])
@pytest.mark.parametrize("rkhs_bound", [2.0, 0.05])
def test_dmm_has_the_same_bounds_as_drop_in_and_on_arms(
    rkhs_bound: float, pending: list[list[int]] | None
) -> None:
    options = {"rkhs_bound": rkhs_bound, "noise_bound": 0.05, "double_rkhs_bound": True}
    recipe = DMMUpperConfidenceBound.with_options(**options)
    engine = engine_after(6, recipe)
    seen = engine.look(7, None if pending is None else torch.tensor(pending))
    lower, upper = seen.rule.bounds(seen)
    X = ARMS.choices
    for b in range(3):
        played = [[t % 7, 2, (3 * t) % 7][b] for t in range(6)]
        outcomes = torch.tensor([[0.2 * t, -0.1, 1.0][b] for t in range(6)], dtype=torch.float64)
        model = BanditGP(X[played], outcomes.unsqueeze(-1), kernel=RBFKernel(), noise=0.05)
        waiting = None if pending is None else X[pending[b]]
        acqf = DMMUpperConfidenceBound(model, **options, X_pending=waiting)
        for found, expected in zip((lower[b], upper[b]), acqf.bounds(X), strict=True):
            assert torch.allclose(found, expected, atol=1e-8, rtol=0.0)
        (bound,) = acqf.rkhs_bounds.values()
        power = torch.tensor(bound / rkhs_bound).log2()
        assert float(power) == round(float(power))
        assert acqf.smallest_rkhs_bound <= bound
        assert power == 0 or acqf.smallest_rkhs_bound > 0.5 * bound
