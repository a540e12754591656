"""DMM on arms looks at all ridges of few arms: the same choice and numbers, at a flat cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from botorch_bandits import Arms, BanditGP, BanditLoop, DMMUpperConfidenceBound
from botorch_bandits.acquisition import dmm, dmm_on_arms
from botorch_bandits.history import History


def uniform(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, dtype=torch.float64, generator=generator)


CHOICES = uniform(150, 2, seed=1)
DOMAIN = Arms(CHOICES)


def reward(x: Tensor, t: int) -> float:
    return math.sin(6.0 * float(x[0])) + math.cos(4.0 * float(x[1])) + 0.1 * math.sin(7.0 * t)


def history_of(num_rounds: int) -> History:
    history = History(2)
    for t, i in enumerate((uniform(num_rounds, seed=2) * 150).long().tolist()):
        query = history.add_query(CHOICES[i], "acquisition", 0.0)
        history.add_outcome(query.id, reward(CHOICES[i], t), 0.0)
    return history


def scaled() -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=2.5)).double()
    kernel.base_kernel.lengthscale = 0.3
    kernel.outputscale = 2.5
    return kernel


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "bounds": (BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3), {"rkhs_bound": 9.0}),
    "minimizing": (
        BanditGP.with_kernel(MaternKernel(nu=1.5), noise=0.02, lengthscale=0.3),
        {"rkhs_bound": 12.0, "maximize": False},
    ),
    "doubling": (BanditGP.with_kernel(scaled(), noise=0.02, prior_mean=0.4), {}),
    "one ridge": (
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3),
        {"rkhs_bound": 12.0, "num_ridges": 1},
    ),
    "refuted": (
        BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3),
        {"rkhs_bound": 0.5},
    ),
}


@pytest.mark.filterwarnings("ignore:the data refute")
@pytest.mark.parametrize("case", CASES)
def test_choice_and_numbers_are_those_of_all_ridges_at_all_arms(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, options = CASES[case]
    if "rkhs_bound" in options:
        options = {"noise_bound": 0.2, **options}
    acquisition = DMMUpperConfidenceBound.with_options(**options)
    pruned = 0
    prune = dmm.DMMArmsRule._prune

    def count(self: Any, *given: Any) -> Any:
        nonlocal pruned
        found = prune(self, *given)
        pruned += found is not None
        return found

    for num_rounds in (70, 300):
        loops = [
            BanditLoop(DOMAIN, model, acquisition, seed=0, history=history_of(num_rounds))
            for _ in range(2)
        ]
        for t in range(12):
            monkeypatch.setattr(dmm_on_arms, "FEWEST_ARMS", 10)
            monkeypatch.setattr(dmm.DMMArmsRule, "_prune", count)
            query = loops[0].ask()
            monkeypatch.setattr(dmm_on_arms, "FEWEST_ARMS", math.inf)
            other = loops[1].ask()
            assert torch.equal(query.x, other.x)
            assert query.diagnostics == pytest.approx(other.diagnostics, rel=1e-7, abs=1e-8)
            for loop in loops:
                loop.tell(query.id, reward(query.x, t))
    assert (pruned == 0) if case == "refuted" else (pruned >= 12)


def test_bounds_of_all_arms_are_those_of_the_dense_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dmm_on_arms, "FEWEST_ARMS", 10)
    model = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3)
    acquisition = DMMUpperConfidenceBound.with_options(rkhs_bound=9.0, noise_bound=0.2)
    loop = BanditLoop(DOMAIN, model, acquisition, seed=0, history=history_of(117))
    loop.ask()
    engine = loop._chooser._stream.engine
    seen = engine.look(118)
    known = seen.prepared
    assert isinstance(known, dmm._Pruned)
    lower, upper = (torch.from_numpy(end) for end in known.ridges.ends(np.arange(150)))
    whole = engine.rule._prepare(seen, may_prune=False)
    assert torch.allclose(lower, whole.lower, rtol=0.0, atol=1e-8)
    assert torch.allclose(upper, whole.upper, rtol=0.0, atol=1e-8)
    # what is not a bound is above it, and below the largest one
    is_bound = (known.scores - upper).abs() < 1e-8
    assert bool((known.scores >= upper - 1e-8).all())
    assert bool((known.scores[~is_bound] < upper.max()).all())
    assert 0 < int(is_bound.sum()) < 150
    assert torch.equal(engine.rule.bounds(seen)[1], whole.upper)


def test_a_rebuilt_loop_goes_on_to_the_last_bit_and_eigenvectors_are_rare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dmm_on_arms, "FEWEST_ARMS", 10)
    model = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.01, lengthscale=0.3)
    acquisition = DMMUpperConfidenceBound.with_options(rkhs_bound=12.0, noise_bound=0.2)

    def build(history: History) -> BanditLoop:
        return BanditLoop(DOMAIN, model, acquisition, seed=0, history=history, clock=lambda: 0.0)

    def go_on(loop: BanditLoop, num_rounds: int) -> None:
        for _ in range(num_rounds):
            query = loop.ask()
            loop.tell(query.id, reward(query.x, query.id))

    whole = build(history_of(60))
    calls = 0
    eigh = np.linalg.eigh

    def count(matrix: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        return eigh(matrix)

    monkeypatch.setattr(np.linalg, "eigh", count)
    go_on(whole, 70)
    assert calls <= 4  # at 32, 64, 96 and 128 outcomes
    records = whole.history.to_records()
    for cut in (3, 41, 64):
        kept = History.from_records(records[: 60 + cut], dim=2)
        again = build(kept)
        go_on(again, 70 - cut)
        assert again.history.to_records() == records
