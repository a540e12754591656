"""Runs that stop when no point can be much better than the one that is recommended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    RandomSearch,
    SlidingWindow,
    run,
)
from botorch_bandits.running import SmallCertificate

GRID = np.linspace(0.0, 1.0, 6)
ARMS = Arms(torch.from_numpy(GRID).unsqueeze(-1))
NOISE, LENGTHSCALE, DELTA = 0.25, 0.25, 0.2
MODEL = BanditGP.with_kernel(RBFKernel(), noise=NOISE, lengthscale=LENGTHSCALE)
UCB = GPUpperConfidenceBound.with_options(delta=DELTA)
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=2.0, noise_bound=0.5, delta=DELTA, any_lambda=True
)
ROOT = np.linalg.cholesky(
    np.exp(-0.5 * (GRID[:, None] - GRID) ** 2 / LENGTHSCALE**2) + 1e-12 * np.eye(len(GRID))
)


def make(acquisition: Any = UCB, domain: Any = ARMS, model: Any = MODEL, **more: Any) -> BanditLoop:
    return BanditLoop(domain, model, acquisition, **more)


def reward_of(seed: int) -> tuple[np.ndarray, Any]:
    """A draw of the prior, and a function that observes it with noise."""
    random = np.random.default_rng(seed)
    values = ROOT @ random.standard_normal(len(GRID))

    def observe(x: torch.Tensor) -> float:
        arm = int(np.abs(GRID - float(x)).argmin())
        return float(values[arm] + NOISE**0.5 * random.standard_normal())

    return values, observe


@pytest.mark.slow
def test_the_recommended_arm_is_as_good_as_it_says() -> None:
    """In 100 draws of the reward, with delta = 0.2: more than 36 misses have probability 1e-4.

    A miss is an arm that is worse than the best by more than the tolerance.
    """
    lengths: dict[float, list[int]] = {}
    for tolerance in (1.8, 1.2):
        misses, lengths[tolerance] = 0, []
        for seed in range(100):
            values, observe = reward_of(seed)
            loop = make(seed=seed)
            result = run(loop, observe, 1000, stop=SmallCertificate(tolerance), progress=False)
            assert result.stopped is not None
            found = loop.recommend()
            assert found.certificate is not None
            assert found.certificate <= tolerance
            assert f"certificate {found.certificate:.6g} at {found.point}" == result.stopped
            misses += values.max() - values[found.arm] > tolerance
            lengths[tolerance].append(len(result.rewards))
        assert misses <= 36
    wide, narrow = lengths[1.8], lengths[1.2]
    assert all(a <= b for a, b in zip(wide, narrow, strict=True))
    assert sum(wide) < sum(narrow)


@pytest.mark.parametrize("domain", [ARMS, Box([[0.0], [1.0]])], ids=["arms", "box"])
def test_a_run_that_goes_on_stops_at_the_same_place(domain: Any, tmp_path: Path) -> None:
    _, observe = reward_of(1)
    outcomes: dict[int, float] = {}

    def remembered(x: torch.Tensor) -> float:
        return outcomes.setdefault(len(outcomes), observe(x))

    path = tmp_path / "run.db"
    whole = make(IGP_UCB, domain)
    stopped = run(whole, remembered, 200, stop=SmallCertificate(3.9), progress=False)
    assert stopped.stopped is not None
    told = iter(outcomes.values())
    stop = SmallCertificate(3.9)
    for rounds in (2, 200, 200):  # interrupted, gone on with, gone on with though it is over
        with make(IGP_UCB, domain, storage=path) as loop:
            again = run(loop, lambda x: next(told), rounds, stop=stop, progress=False)
            num_queries = loop.history.num_queries
    assert num_queries == whole.history.num_queries
    assert again.stopped is not None
    assert again.stopped[:19] == stopped.stopped[:19]  # the certificate, in fewer digits
    with make(IGP_UCB, domain, storage=path) as loop:
        later = run(loop, observe, 200, stop=SmallCertificate(3.5), progress=False)
        assert len(later.rewards) > 0
        assert later.stopped is not None


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a constant width": (GPUpperConfidenceBound.with_options(width=2.0), {}, "is a heuristic"),
    "random search": (RandomSearch(), {"model": None}, "random search has no model"),
    "contexts": (IGP_UCB, {"context_dim": 1}, "context is missing"),
    "a window": (IGP_UCB, {"forgetting": SlidingWindow(5)}, "a model that forgets"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_where_no_certificate_can_come_it_is_refused_at_the_start(name: str) -> None:
    acquisition, options, reason = REFUSED[name]
    loop = make(acquisition, **options)
    given = {"contexts": lambda t: torch.zeros(1).double()} if name == "contexts" else {}
    with pytest.raises((ValueError, RuntimeError), match=reason):
        run(loop, lambda x: 0.0, 3, stop=SmallCertificate(0.1), progress=False, **given)
    assert loop.history.num_queries == 0


def test_models_that_learn_and_numbers_without_meaning_are_refused() -> None:
    loop = make(None, Box([[0.0], [1.0]]), None)
    with pytest.raises(ValueError, match="this loop cannot have"):
        run(loop, lambda x: float(x), 8, stop=SmallCertificate(0.1), progress=False)
    assert loop.history.num_queries == 0
    own = make(UCB, Box([[0.0], [1.0]]), lambda X, Y: SingleTaskGP(X, Y))
    with pytest.raises(ValueError, match="this loop cannot have"):
        run(own, lambda x: float(x), 8, stop=SmallCertificate(0.1), progress=False)
    assert own.history.num_arrived == own.history.num_queries
    with pytest.raises(ValueError, match=r"at_most=4.0\), but any"):
        run(make(IGP_UCB), lambda x: 0.0, 3, stop=SmallCertificate(4.0), progress=False)
    with pytest.raises(ValueError, match="at_most is -1"):
        run(make(), lambda x: 0.0, 3, stop=SmallCertificate(-1.0), progress=False)
