"""A single stream in numpy chooses, to the last bit, what the rules choose on tensors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from botorch_bandits.acquisition.one_stream import NumpyUpperConfidenceBound
from gpytorch.kernels import RBFKernel, ScaleKernel

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    GPUpperConfidenceBound,
    Ignored,
    ImprovedUpperConfidenceBound,
    RandomizedUpperConfidenceBound,
)
from botorch_bandits.acquisition import build_arms_engine
from botorch_bandits.acquisition.engines import ArmsEngine
from botorch_bandits.confidence import ConstantWidth

CHOICES = torch.rand(150, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}
RECIPES = {
    "GP-UCB": GPUpperConfidenceBound.with_options(delta=0.1, scale=0.5),
    "constant": GPUpperConfidenceBound.with_options(width=1.5),
    "minimizing": GPUpperConfidenceBound.with_options(width=1.5, maximize=False),
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**BOUNDS),
    "any lambda": ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
    "gain": ImprovedUpperConfidenceBound.with_options(**BOUNDS, information_gain=7.0),
    "no bounds": ImprovedUpperConfidenceBound.with_options(),
    "prior units": ImprovedUpperConfidenceBound.with_options(**BOUNDS, units="prior"),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
    "AMM, model noise": AMMUpperConfidenceBound.with_options(rkhs_bound=2.0, noise_bound="model"),
}


def kernel() -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale = torch.tensor(2.5, dtype=torch.float64)
    return kernel


def play(recipe: Any, rounds: int = 150, **settings: Any) -> BanditLoop:
    """Two of thirteen outcomes come late, so that some rounds have pending arms."""
    noise = 0.1 * torch.randn(
        rounds, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    model = BanditGP.with_kernel(kernel(), noise=0.01, lengthscale=0.2, prior_mean=0.7)
    loop = BanditLoop(Arms(CHOICES), model, recipe, seed=3, **settings)
    late = []
    for t in range(rounds):
        query = loop.ask()
        value = float(torch.sin(6.0 * query.x).sum() + noise[t])
        if t % 13 < 2:
            late.append((query.id, value))
            continue
        loop.tell(query.id, value)
        if t % 13 == 5:
            for each in late:
                loop.tell(*each)
            late.clear()
    return loop


@pytest.mark.filterwarnings("ignore::botorch_bandits.acquisition.AssumptionRefutedWarning")
@pytest.mark.parametrize("name", RECIPES)
def test_a_loop_chooses_and_describes_to_the_last_bit_what_tensors_do(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    choose = NumpyUpperConfidenceBound.choose

    def counting(self: NumpyUpperConfidenceBound, round_number: int, *among: Any) -> int:
        calls.append(round_number)
        return choose(self, round_number, *among)

    monkeypatch.setattr(NumpyUpperConfidenceBound, "choose", counting)
    quick = play(RECIPES[name]).history.queries
    assert 80 < len(calls) < 150
    monkeypatch.setattr(ArmsEngine, "in_numpy", lambda self, rule: None)
    slow = play(RECIPES[name]).history.queries
    for ours, theirs in zip(quick, slow, strict=True):
        assert torch.equal(ours.x, theirs.x)
        assert ours.diagnostics == theirs.diagnostics
        assert list(ours.diagnostics) == list(theirs.diagnostics)


def engine_of(recipe: Any, seeds: Any = 0) -> ArmsEngine:
    model = BanditGP.with_kernel(kernel(), noise=0.01, lengthscale=0.2)
    engine = build_arms_engine(model, recipe, Arms(CHOICES), seeds)
    assert engine is not None
    return engine


def test_only_what_it_can_do_is_played_in_numpy() -> None:
    engine = engine_of(RECIPES["GP-UCB"])
    assert engine.rule is not None
    quick = engine.in_numpy(engine.rule)
    assert quick is not None
    assert engine.in_numpy(engine.rule) is quick
    replicates = engine_of(RECIPES["GP-UCB"], [0, 1])
    assert replicates.rule is not None
    assert replicates.in_numpy(replicates.rule) is None
    drawn = engine_of(RandomizedUpperConfidenceBound.with_options())
    assert drawn.rule is not None
    assert drawn.in_numpy(drawn.rule) is None


@pytest.mark.parametrize("again", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_of_an_engine_has_memory_of_its_own(again: Any) -> None:
    engine = engine_of(RECIPES["GP-UCB"])
    for arm in range(40):
        engine.observe(arm, 0.1 * arm)
    assert engine.rule is not None
    quick = engine.in_numpy(engine.rule)
    assert quick is not None
    before = quick.choose(41)
    other = again(engine)
    other.observe(before, -100.0)
    assert quick.choose(41) == before
    theirs = other.in_numpy(other.rule)
    assert theirs.choose(41) == int(other.choose(other.look(41))) != before


def test_scores_that_are_not_finite_are_refused() -> None:
    engine = engine_of(RECIPES["GP-UCB"])
    assert engine.rule is not None
    quick = engine.in_numpy(engine.rule)
    assert quick is not None
    for bad in (np.nan, np.inf, -np.inf):
        engine.posterior.mean[7] = bad
        with pytest.raises(ValueError, match="values"):
            quick.choose(2)
    engine.posterior.mean[7] = 1e200  # its square overflows, and it is finite
    assert quick.choose(2) == 7


def test_the_first_of_equals_is_chosen() -> None:
    engine = engine_of(RECIPES["constant"])
    assert engine.rule is not None
    quick = engine.in_numpy(engine.rule)
    assert quick is not None
    engine.posterior.mean[[3, 5]] = torch.tensor([4.0, 4.0 + 1e-10], dtype=torch.float64)
    assert quick.choose(1) == 3 == int(engine.choose(engine.look(1)))


def test_a_loop_that_does_not_wait_plays_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With pending queries that are ignored it does not look at them either."""
    calls = []
    monkeypatch.setattr(ArmsEngine, "look", lambda *given: calls.append(given))
    loop = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(kernel(), noise=0.01, lengthscale=0.2),
        RECIPES["GP-UCB"],
        feedback=Ignored(),
    )
    for _ in range(5):
        loop.ask()
    assert not calls


def test_rules_say_their_width_in_numbers() -> None:
    assert ConstantWidth(1.5).in_numbers(None)(3) == 1.5  # type: ignore[arg-type]
    bounds = torch.ones(2, dtype=torch.float64)
    engine = engine_of(
        ImprovedUpperConfidenceBound.with_options(rkhs_bound=bounds, noise_bound=0.1)
    )
    assert engine.rule is not None
    quick = engine.in_numpy(engine.rule)
    assert quick is not None
    with pytest.raises(ValueError, match="the width"):
        quick.choose(1)
