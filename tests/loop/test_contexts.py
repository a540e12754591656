"""Contexts: the point is chosen for a context that is given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.test_functions import Branin
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from botorch_bandits import (
    AMMUpperConfidenceBound,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    RandomSearch,
    run,
)

CHOICES = torch.linspace(0, 1, 11, dtype=torch.float64).unsqueeze(-1)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1}


ACQUISITIONS = {
    "IGP-UCB": ImprovedUpperConfidenceBound.with_options(**BOUNDS),
    "AMM": AMMUpperConfidenceBound.with_options(**BOUNDS),
    "DMM": DMMUpperConfidenceBound.with_options(**BOUNDS),
    "EI": LogExpectedImprovement.with_options(),
    "GP-TS": GPThompsonSampling.with_options(**BOUNDS),
    "random": RandomSearch(),
}


def make_loop(domain: str, acquisition: Any, kernel: Kernel | None = None, **options: Any) -> Any:
    return BanditLoop(
        Arms(CHOICES) if domain == "arms" else Box([[0.0], [1.0]], num_restarts=4, raw_samples=32),
        BanditGP.with_kernel(RBFKernel() if kernel is None else kernel, noise=0.01),
        acquisition,
        context_dim=1,
        seed=2,
        **options,
    )


def test_integer_dimensions_in_a_context() -> None:
    for high in (5, 40):  # all combinations, and BoTorch's alternating search
        loop = BanditLoop(
            Box([[0.0, 0.0], [1.0, high]], integer_dims=[1], num_restarts=2, raw_samples=16),
            BanditGP.with_kernel(RBFKernel(), noise=0.01),
            ACQUISITIONS["IGP-UCB"],
            context_dim=2,
        )
        for t in range(3):
            query = loop.ask(context=torch.tensor([0.5, float(t)], dtype=torch.float64))
            assert float(query.x[1]) == round(float(query.x[1]))
            loop.tell(query.id, float(query.x.sum()))


def test_a_users_model_and_acquisition_get_context_columns() -> None:
    seen = []

    def build(X: Tensor, Y: Tensor) -> SingleTaskGP:
        seen.append(X.shape)
        return SingleTaskGP(X, Y)

    loop = BanditLoop(
        Box([[0.0], [1.0]], num_restarts=2, raw_samples=8),
        build,
        GPUpperConfidenceBound.with_options(width=2.0),
        context_dim=2,
        num_initial=2,
    )
    for t in range(4):
        query = loop.ask(context=[0.1 * t, 1.0])
        loop.tell(query.id, float(query.x))
    assert seen[-1] == (3, 3)


def test_guarantee_holds_in_contexts() -> None:
    loop = make_loop("arms", ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True))
    assert loop.guarantee().holds
    for t in range(3):
        query = loop.ask(context=[0.3 * t])
        loop.tell(query.id, 0.1)
    guarantee = loop.guarantee()
    assert guarantee.holds
    assert guarantee.regret_bound is not None


def test_run_plays_contexts() -> None:
    problem = Branin(negate=True)
    domain = Box([[0.0], [15.0]], num_restarts=2, raw_samples=16)
    contexts = torch.linspace(-5, 10, 6, dtype=torch.float64).unsqueeze(-1)
    results = []
    for given in (contexts, lambda t: contexts[t - 1]):
        loop = BanditLoop(
            domain,
            BanditGP.with_kernel(RBFKernel(), noise=0.01),
            GPUpperConfidenceBound.with_options(width=2.0),
            context_dim=1,
        )
        results.append(run(loop, problem, 6, contexts=given, progress=False))
    X, _ = results[0].history.arrived()
    assert torch.equal(X[:, :1], contexts)
    assert torch.allclose(results[0].rewards, problem(X))
    assert torch.equal(results[0].rewards, results[1].rewards)
    with pytest.raises(ValueError, match="regret needs"):
        _ = results[0].regret
    with pytest.raises(ValueError, match="contexts has 6 rows"):
        run(loop, problem, 1, contexts=contexts, progress=False)
