"""Reward and constraints modeled apart, each by what has not been forgotten of it."""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    ExponentialWeights,
    LagrangianThompsonSampling,
    LagrangianUpperConfidenceBound,
    OracleRestart,
    PrimalDual,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.history import History

LAM, ETA = 0.05, 0.8
LENGTHS = (0.3, 0.6, 0.45)
CHOICES = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
DOMAINS: dict[str, Any] = {
    "arms": Arms(CHOICES),
    "box": Box([[0.0], [1.0]], num_restarts=2, raw_samples=16),
}
FORGETTING: dict[str, Any] = {
    "window": SlidingWindow(6),
    "weights": ExponentialWeights(ETA),
    "time": TimeVaryingKernel(0.1),
}


def model() -> Any:
    kernel = RBFKernel(batch_shape=torch.Size([3])).double()
    kernel.lengthscale = torch.tensor(LENGTHS, dtype=torch.float64).view(-1, 1, 1)
    return BanditGP.with_kernel(kernel, noise=LAM)


def build(domain: str, forgetting: str, **options: Any) -> BanditLoop:
    given = {
        "acquisition": LagrangianUpperConfidenceBound.with_options(
            width=(1.5, 1.0, 0.5), separate_bounds=True
        ),
        "constraints": AdditiveEpochs(2, 4, surrogate="separate"),
        **options,
    }
    return BanditLoop(
        DOMAINS[domain],
        model(),
        forgetting=FORGETTING[forgetting],
        clock=lambda: 0.0,
        seed=5,
        **given,
    )


def outcome(t: int, x: float) -> tuple[float, list[float]]:
    reward = math.cos(5.0 * x) + 0.1 * math.sin(9.0 * t)
    return reward, [0.7 - x + 0.05 * math.cos(7.0 * t), math.sin(4.0 * x) - 0.3]


def go_on(loop: BanditLoop, num_rounds: int, delayed: bool = False) -> None:
    for _ in range(num_rounds):
        query = loop.ask(context=[0.5] if loop.settings.context_dim else None)
        t = query.round_number
        waiting = [query.id] if not delayed else [i.id for i in loop.history.pending()]
        if delayed:
            waiting = [] if len(waiting) < 3 else [waiting[(5 * t) % 3]]
        for i in waiting:
            reward, constraints = outcome(i, float(loop.history.query(i).x[0]))
            loop.tell(i, reward, constraints)


def dense(
    history: History, forgetting: str, t: int, points: np.ndarray, output: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of an output in round t, by the textbook."""
    rows = [(q, history.outcome(q.id)) for q in history.queries if q.round_number < t]
    x = np.array([float(q.x[0]) for q, _ in rows])
    s = np.array([float(q.round_number) for q, _ in rows])
    y = np.array([[o.reward, *o.constraints][output] for _, o in rows if o is not None])
    noise = np.full(len(rows), LAM)
    gram = np.exp(-((x[:, None] - x[None]) ** 2) / (2 * LENGTHS[output] ** 2))
    cross = np.exp(-((points[:, None] - x[None]) ** 2) / (2 * LENGTHS[output] ** 2))
    if forgetting == "window":
        kept = s >= t - 6
        gram, cross, noise, y = gram[np.ix_(kept, kept)], cross[:, kept], noise[kept], y[kept]
    elif forgetting == "weights":
        noise = LAM / ETA ** (t - 1.0 - s)
    else:
        gram = gram * 0.9 ** (np.abs(s[:, None] - s[None]) / 2)
        cross = cross * 0.9 ** ((t - s[None]) / 2)
    inverse = np.linalg.inv(gram + np.diag(noise))
    return cross @ inverse @ y, 1.0 - np.einsum("ij,jk,ik->i", cross, inverse, cross)


@pytest.mark.parametrize("forgetting", FORGETTING)
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_dense_rule_is_played(domain: str, forgetting: str) -> None:
    loop = build(domain, forgetting, num_initial=3)
    go_on(loop, 14)
    grid = np.linspace(0.0, 1.0, 9 if domain == "arms" else 401)
    multiplied = 0
    for query in loop.history.queries[3:]:
        kappa = [query.diagnostics[f"multiplier_{j}"] for j in (1, 2)]
        multiplied += max(kappa) > 0

        def value(points: np.ndarray, t: int = query.round_number, k: Any = kappa) -> np.ndarray:
            scores = np.zeros(len(points))
            widths, weights = (1.5, -1.0, -0.5), (1.0, -k[0], -k[1])
            for output, (width, weight) in enumerate(zip(widths, weights, strict=True)):
                mean, variance = dense(loop.history, forgetting, t, points, output)
                scores += weight * (mean + width * np.sqrt(variance.clip(1e-18)))
            return scores

        (played,) = value(np.array([float(query.x[0])]))
        assert query.diagnostics["acquisition_value"] == pytest.approx(played, abs=1e-8)
        slack = 1e-8 if domain == "arms" else 1e-3
        assert played >= value(grid).max() - slack
    assert multiplied  # some round weighs constraints


def in_turns() -> list[Any]:
    """Every pair of settings, domain and forgetting; what repeats pairs is marked as slow."""
    names = ("bounds", "every round", "draws", "contexts", "restarts", "pending")
    runs = []
    for (i, name), (j, domain), (k, forgetting) in product(
        enumerate(names), enumerate(DOMAINS), enumerate(FORGETTING)
    ):
        marks: Any = [] if (i + j + k) % 2 == 0 else pytest.mark.slow
        label = f"{name}-{domain}-{forgetting}"
        runs.append(pytest.param(name, domain, forgetting, id=label, marks=marks))
    return runs


@pytest.mark.slow
@pytest.mark.parametrize(("name", "domain", "forgetting"), in_turns())
def test_reopened_loops_go_on(name: str, domain: str, forgetting: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "bounds": {},
        "every round": {"constraints": PrimalDual(2, 3.0, 5.0)},
        "draws": {"acquisition": LagrangianThompsonSampling.with_options(scale=1.0)},
        "contexts": {"context_dim": 1},
        "restarts": {"restart": OracleRestart((5,))},
        "pending": {},
    }[name]
    delayed = name == "pending"
    path = tmp_path / "run.journal"
    with build(domain, forgetting, journal=path, **options) as first:
        go_on(first, 6, delayed)
    with build(domain, forgetting, journal=path, **options) as second:
        go_on(second, 3, delayed)
        whole = build(domain, forgetting, **options)
        go_on(whole, 9, delayed)
        for ours, theirs in zip(second.history.queries, whole.history.queries, strict=True):
            assert torch.equal(ours.x, theirs.x)
        guarantee = second.guarantee()
    assert not guarantee.holds
    assert any("forget" in gap for gap in guarantee.gaps)
