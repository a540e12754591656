"""The one place where mean, deviation and width become values."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import RBFKernel
from models.textbook import double

from botorch_bandits import (
    Arms,
    BanditGP,
    DMMUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
)
from botorch_bandits.acquisition.rules import Replicates, WidthArmsRule, player_of
from botorch_bandits.confidence import ConstantWidth
from botorch_bandits.core.posterior import Rows

from .cases import uniform

ARMS = Arms(uniform(7, 2, seed=1))


MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.05)


def replicates_after(rounds: int, recipe: object) -> Replicates:
    replicates = player_of(MODEL, recipe, ARMS, range(3))  # type: ignore[arg-type]
    assert isinstance(replicates, Replicates)
    for t in range(rounds):
        outcomes = double([0.2 * t, -0.1, 1.0])
        replicates.observe(torch.tensor([t % 7, 2, (3 * t) % 7]), outcomes)
    return replicates


def test_what_a_rule_computes_once_a_round_is_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    prepare = WidthArmsRule.prepare
    monkeypatch.setattr(
        WidthArmsRule, "prepare", lambda self, seen: calls.append(1) or prepare(self, seen)
    )
    recipe = ImprovedUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound=0.1)
    player = replicates_after(4, recipe)
    seen = player.look(5)
    assert seen.rule is player.rule
    player.choose(seen)
    lower, upper = seen.rule.known(seen)[2:4]
    assert len(calls) == 1
    assert torch.equal(seen.scores, upper)
    assert torch.allclose(upper - seen.mean, seen.mean - lower, atol=1e-12, rtol=0.0)
    # another round, and a round with another rule, have their own
    assert torch.equal(player.look(5).scores, upper)
    other = player.look(5, rule=WidthArmsRule(ConstantWidth(0.0)))
    assert torch.allclose(other.scores, other.mean, atol=1e-12, rtol=0.0)
    assert len(calls) == 3


@pytest.mark.parametrize("pending", [None, [[1, 4], [0, 0], [6, 2]]])
@pytest.mark.parametrize("rkhs_bound", [2.0, 0.05])
def test_dmm_has_the_same_bounds_as_drop_in_and_on_arms(
    rkhs_bound: float, pending: list[list[int]] | None
) -> None:
    options = {"rkhs_bound": rkhs_bound, "noise_bound": 0.05, "double_rkhs_bound": True}
    recipe = DMMUpperConfidenceBound.with_options(**options)
    X = ARMS.choices
    together = replicates_after(6, recipe).look(7)
    for b in range(3):
        played = [[t % 7, 2, (3 * t) % 7][b] for t in range(6)]
        outcomes = double([[0.2 * t, -0.1, 1.0][b] for t in range(6)])
        model = BanditGP(X[played], outcomes.unsqueeze(-1), kernel=RBFKernel(), noise=0.05)
        waiting = None if pending is None else X[pending[b]]
        acqf = DMMUpperConfidenceBound(model, **options, X_pending=waiting)
        player = player_of(MODEL, recipe, ARMS, b)
        assert player is not None
        told = Rows(torch.tensor(played), outcomes.unsqueeze(-1), torch.ones_like(outcomes))
        asked = None
        if pending is not None:
            some = torch.tensor(pending[b])
            asked = Rows(some, torch.zeros(2, 1).double(), torch.ones(2).double())
        seen = player.look(7, told, pending=asked)
        bounds = seen.rule.known(seen)[2:4]
        for found, expected in zip(bounds, acqf.bounds(X), strict=True):
            assert torch.allclose(found, expected, atol=1e-8, rtol=0.0)
        if pending is None:
            for found, expected in zip(together.rule.known(together)[2:4], bounds, strict=True):
                assert torch.allclose(found[b], expected, atol=1e-8, rtol=0.0)
        (bound,) = acqf.rkhs_bounds.values()
        power = torch.tensor(bound / rkhs_bound).log2()
        assert float(power) == round(float(power))
        assert acqf.smallest_rkhs_bound <= bound
        assert power == 0 or acqf.smallest_rkhs_bound > 0.5 * bound
