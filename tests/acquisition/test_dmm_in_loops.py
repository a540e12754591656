"""DMM in loops: every choice and its numbers are those of dense algebra, ridge by ridge."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel, RBFKernel
from models.textbook import uniform
from pairwise import by_day

from acquisition.dense import matern_five_halves, ridge_bounds, squared_exponential
from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    DMMUpperConfidenceBound,
    ExponentialWeights,
    SlidingWindow,
    TimeVaryingKernel,
)
from botorch_bandits.acquisition import AssumptionRefutedWarning
from botorch_bandits.core import ridges

CHOICES = uniform(60, 1, seed=3)
DOMAINS = {"arms": Arms(CHOICES), "box": Box([[0.0], [1.0]])}
FORGETTING: dict[str, Any] = {
    "all is kept": None,
    "window": SlidingWindow(14),
    "weights": ExponentialWeights(0.8),
    "time": TimeVaryingKernel(0.1),
}
JOINT, PRODUCT = "joint", "product"
NORM, NOISE, LAM, MEAN, DELTA = 6.0, 0.3, 0.05, 0.3, 0.1


def kernel_of(name: str) -> Any:
    if name == JOINT:
        return MaternKernel(nu=2.5).double()
    return (RBFKernel(active_dims=(0,)) * MaternKernel(nu=2.5, active_dims=(1,))).double()


def build(domain: str, forgetting: str, contexts: int, kernel: str, **options: Any) -> BanditLoop:
    given = {"rkhs_bound": NORM, "noise_bound": NOISE, "delta": DELTA, **options}
    return BanditLoop(
        DOMAINS[domain],
        BanditGP.with_kernel(kernel_of(kernel), noise=LAM, prior_mean=MEAN),
        DMMUpperConfidenceBound.with_options(**given),
        context_dim=contexts,
        forgetting=FORGETTING[forgetting],
        seed=3,
    )


def context_of(loop: BanditLoop, t: int) -> dict[str, Any]:
    """Contexts come again now and then."""
    return {"context": [math.sin(3.0 * t) if t % 3 else 0.5]} if loop.settings.context_dim else {}


def play(loop: BanditLoop, num_rounds: int) -> None:
    for _ in range(num_rounds):
        t = loop.history.num_queries + 1
        query = loop.ask(**context_of(loop, t))
        x = float(query.x[0])
        shift = 0.0 if query.context is None else x * float(query.context[0])
        loop.tell(query.id, math.cos(5.0 * x) + shift + 0.1 * math.sin(9.0 * t))


def dense_upper(loop: BanditLoop, points: np.ndarray, kernel: str, sign: float) -> Any:
    """Upper ends (of minus the reward, if ``sign`` is -1) and half widths in deviations."""
    queries, forgetting = loop.history.queries, loop.settings.forgetting
    told, now = queries[:-1], queries[-1]
    fronts = [[] if q.context is None else q.context.tolist() for q in queries]
    X = np.array([front + q.x.tolist() for front, q in zip(fronts[:-1], told, strict=True)])
    at = np.array([fronts[-1] + point.tolist() for point in points])
    y = sign * (np.array([outcome.reward for outcome in loop.history.outcomes]) - MEAN)
    age = now.round_number - 1 - np.arange(1, len(y) + 1)
    w, decay = np.ones(len(y)), np.zeros(len(y))
    if isinstance(forgetting, SlidingWindow):
        w = (age < 14).astype(float)
    elif isinstance(forgetting, ExponentialWeights):
        w = 0.8**age
    elif isinstance(forgetting, TimeVaryingKernel):
        decay = np.arange(1.0, len(y) + 1.0)
    factors = [(matern_five_halves(math.log(2.0)), slice(None))]
    if kernel == PRODUCT:
        parts = squared_exponential(math.log(2.0)), matern_five_halves(math.log(2.0))
        factors = [(parts[0], slice(0, 1)), (parts[1], slice(1, 2))]

    def k(A: np.ndarray, B: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        values = 0.9 ** (np.abs(a[:, None] - b) / 2.0)
        for factor, columns in factors:
            values = values * factor(A[:, columns], B[:, columns])
        return values

    root = np.sqrt(w)
    K = k(X, X, decay, decay) * np.outer(root, root)
    latest = np.full(len(at), float(now.round_number) if decay.any() else 0.0)
    cross, y = k(at, X, latest, decay) * root, y * root
    lower, upper, deviation = ridge_bounds(K, cross, y, NORM, NOISE, DELTA, LAM)
    return upper + sign * MEAN, 0.5 * (upper - lower) / deviation


CASES = [
    (domain, forgetting, contexts, kernel, is_kept, maximize)
    for domain in DOMAINS
    for forgetting in FORGETTING
    for contexts, kernel in ((0, JOINT), (1, JOINT), (1, PRODUCT))
    for is_kept, maximize in ((False, True), (True, True), (True, False))
    if domain == "arms" or (is_kept and maximize)
]


@pytest.mark.parametrize(
    ("domain", "forgetting", "contexts", "kernel", "is_kept", "maximize"), by_day(CASES, 5)
)
def test_choices_are_those_of_the_definition(
    domain: str,
    forgetting: str,
    contexts: int,
    kernel: str,
    is_kept: bool,
    maximize: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether or not eigenvectors are kept; on a box, the value is that of the point chosen."""
    if is_kept:
        monkeypatch.setattr(ridges, "FEWEST_KEPT", 5)
        monkeypatch.setattr(ridges, "MOST_CHANGES", 8)
    loop = build(domain, forgetting, contexts, kernel, maximize=maximize)
    for num_rounds in (20, 3, 6):
        play(loop, num_rounds)
        query = loop.ask(**context_of(loop, loop.history.num_queries + 1))
        points = CHOICES.numpy() if domain == "arms" else query.x[None].numpy()
        upper, width = dense_upper(loop, points, kernel, 1.0 if maximize else -1.0)
        at = int(np.abs(points - query.x.numpy()).argmin())
        assert upper[at] == pytest.approx(upper.max(), rel=0.0, abs=1e-8)
        found = query.diagnostics
        assert found["acquisition_value"] == pytest.approx(upper[at], rel=0.0, abs=1e-8)
        assert found["width"] == pytest.approx(width[at], rel=1e-7)
        loop.tell(query.id, math.cos(5.0 * float(query.x[0])))


@pytest.mark.parametrize("domain", DOMAINS)
def test_refuted_assumptions_are_reported(domain: str) -> None:
    refuted = {"rkhs_bound": 0.05, "noise_bound": 0.01}
    with pytest.warns(
        AssumptionRefutedWarning, match=r"no function of norm 0\.05.*noise_bound=0\.01"
    ):
        play(build(domain, "window", 0, JOINT, **refuted), 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssumptionRefutedWarning)  # as a script can ask for
        with pytest.raises(AssumptionRefutedWarning, match="the data refute"):
            play(build(domain, "window", 0, JOINT, **refuted), 12)
