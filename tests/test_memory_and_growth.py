"""What a run keeps, and how its cost grows, counted and not timed."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    ImprovedUpperConfidenceBound,
    Policy,
)
from botorch_bandits.acquisition.engines import ArmsEngine, build_arms_engine
from botorch_bandits.models.arms import ArmsPosterior

CHOICES = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(-1)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.1)
BOUNDS = {"rkhs_bound": 20.0, "noise_bound": 0.1}


def tensor_bytes(value: Any, seen: set[int]) -> int:
    """The memory of all tensors that can be reached, each storage once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()
    if isinstance(value, dict):
        return sum(tensor_bytes(entry, seen) for entry in value.values())
    if isinstance(value, list | tuple):
        return sum(tensor_bytes(entry, seen) for entry in value)
    if type(value).__module__.startswith("botorch_bandits"):
        return tensor_bytes(vars(value), seen) if hasattr(value, "__dict__") else 0
    return 0


def play(engine: ArmsEngine, first: int, last: int, noise: Tensor) -> None:
    for t in range(first, last):
        arm = engine.choose(engine.look(t + 1))
        engine.observe(arm, float(torch.sin(7 * CHOICES[int(arm)])) + float(noise[t]))


@pytest.mark.slow
@pytest.mark.parametrize("cls", [ImprovedUpperConfidenceBound, GPThompsonSampling])
def test_model_on_arms_keeps_the_same_over_2500_rounds(cls: Any) -> None:
    engine = build_arms_engine(MODEL, cls.with_options(**BOUNDS), Arms(CHOICES), 0)
    assert engine is not None
    noise = 0.1 * torch.randn(2500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    play(engine, 0, 500, noise)
    gc.collect()
    early = tensor_bytes(engine, set())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    play(engine, 500, 2500, noise)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # the rows of distinct arms may double once more; 2000 observations would take 0.9 MB as rows
    assert tensor_bytes(engine, set()) <= early + 2 * 8 * 60 * 64 + 1024
    assert grown < 100_000
    assert int(engine.posterior.counts.sum()) == 2500


def test_work_of_a_round_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count rows that each observation touches, and factorizations, instead of time."""
    rows: list[int] = []
    factorized: list[int] = []
    observe, compact = ArmsPosterior._observe_one, ArmsPosterior._compact

    def counting_observe(self: ArmsPosterior, *given: Any, **more: Any) -> None:
        observe(self, *given, **more)
        rows.append(self._num_rows)

    def counting_compact(self: ArmsPosterior) -> None:
        factorized.append(len(rows))
        compact(self)

    monkeypatch.setattr(ArmsPosterior, "_observe_one", counting_observe)
    monkeypatch.setattr(ArmsPosterior, "_compact", counting_compact)
    posterior = ArmsPosterior(torch.exp(-((CHOICES - CHOICES.T) ** 2) / 0.02), 0.01)
    stream = torch.Generator().manual_seed(1)
    for arm in torch.randint(20, (5000,), generator=stream).tolist():
        posterior.observe(arm, 0.5)
    assert max(rows) <= 64
    # few factorizations, evenly spread
    assert len([n for n in factorized if n <= 2500]) >= len(factorized) // 2 - 2
    assert len(factorized) <= 5000 // 32 + 5


def test_dmm_on_arms_works_with_distinct_arms_only() -> None:
    """After 2000 rounds its eigenproblem is as large as the arms it played, not as the rounds."""
    recipe = DMMUpperConfidenceBound.with_options(**BOUNDS)
    loop = Policy(MODEL, recipe).loop(Arms(CHOICES), seed=0)
    for _ in range(300):
        query = loop.ask()
        loop.tell(query.id, float(torch.sin(7 * query.x)))
    assert loop._chooser._stream is not None
    loop._chooser._stream.catch_up()
    engine = loop._chooser._stream.engine
    played = int((engine.posterior.counts > 0).sum())
    sizes = []
    original = torch.linalg.eigh

    def counting(matrix: Tensor) -> Any:
        sizes.append(matrix.shape[-1])
        return original(matrix)

    torch.linalg.eigh = counting
    try:
        loop.ask()
    finally:
        torch.linalg.eigh = original
    assert sizes == [played]
    assert played < 60


def test_model_on_a_box_keeps_half_a_square() -> None:
    """The factor is triangular: about n^2 / 2 numbers, and the same after each append."""
    X = torch.rand(700, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    Y = torch.sin(5 * X[:, :1])
    recipe = BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.3)
    model = recipe(X[:20], Y[:20])
    for n in range(20, 700):
        grown = model.condition_on_observations(X[n : n + 1], Y[n : n + 1])
        assert isinstance(grown, BanditGP)
        model = grown
        model.posterior(X[:1])
        if n in (349, 699):
            kept = tensor_bytes(model.closed_form, set())
            assert kept < 1.3 * 8 * (n + 1) ** 2
