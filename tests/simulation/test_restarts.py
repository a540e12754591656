"""Replicates that begin anew each at its own time play what loops play."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    Arms,
    BanditGP,
    ChangePointDetector,
    ChangePointRestart,
    ChangePointUpperConfidenceBound,
    DMMUpperConfidenceBound,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    NeverRestart,
    OracleRestart,
    Policy,
    RandomSearch,
    run,
    simulate,
)
from botorch_bandits.change_points import PowerThreshold, Restart
from botorch_bandits.problems import SwitchingProblem, switching_gp_draws

CHOICES = torch.linspace(0, 1, 25, dtype=torch.float64).unsqueeze(-1)
ARMS = Arms(CHOICES)
KERNEL = MaternKernel(nu=2.5)
MODEL = BanditGP.with_kernel(KERNEL, noise=0.01, lengthscale=0.3)
DETECTOR = ChangePointDetector(
    KERNEL, lengthscale=0.3, ridge=0.5, threshold=PowerThreshold(scale=0.7)
)
NUM_ROUNDS = 90
CHANGES = [[30, 60], [45], [], [20, 40, 70]]
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.05}
ACQUISITIONS = {
    "ucb": GPUpperConfidenceBound.with_options(delta=0.1),
    "igp-ucb": ImprovedUpperConfidenceBound.with_options(**BOUNDS, any_lambda=True),
    "ts": GPThompsonSampling.with_options(**BOUNDS, any_lambda=True),
    "cpd": ChangePointUpperConfidenceBound.with_options(horizon=NUM_ROUNDS, smoothness=2.5),
    "ei": LogExpectedImprovement.with_options(incumbent="observed"),
    "dmm": DMMUpperConfidenceBound.with_options(rkhs_bound=8.0, noise_bound=0.2),
    "random": RandomSearch(),
}
RESTARTS: dict[str, Restart] = {
    "change-point": ChangePointRestart(detector=DETECTOR),
    "oracle": OracleRestart(change_points=(30, 61)),
    "never": NeverRestart(),
}


def environments() -> list[SwitchingProblem]:
    return [
        switching_gp_draws(
            MaternKernel(nu=2.5).double().initialize(lengthscale=0.3),
            ARMS,
            changes,
            seed=i,
            noise_std=0.05,
        )
        for i, changes in enumerate(CHANGES)
    ]


def check_against_loops(policy: Policy, num_rounds: int = NUM_ROUNDS) -> int:
    """Compare all replicates with loops of the same seed; return how many resets there were."""
    problems = environments()
    played = simulate(problems, policy, num_rounds, seed=5, progress=False)
    assert played.arms is not None
    assert played.resets is not None
    assert played.explored is not None
    for b, environment in enumerate(problems):
        loop = policy.loop(ARMS, seed=played.seeds[b])
        result = run(loop, environment, num_rounds, progress=False)
        points = torch.stack([query.x for query in loop.history.queries])
        assert torch.equal(ARMS.index_of(points), played.arms[b])
        assert torch.allclose(result.rewards, played.outcomes[b], atol=1e-12, rtol=0)
        assert torch.allclose(result.regret, played.regret[b], atol=1e-12, rtol=0)
        origins = [query.origin in ("exploration", "initial") for query in loop.history.queries]
        assert played.explored[b].tolist() == origins
        assert len(loop.resets) == len(played.resets[b])
        for one, other in zip(loop.resets, played.resets[b], strict=True):
            same = ("after_round", "num_dropped", "num_uniform", "reason", "half_size")
            assert all(getattr(one, name) == getattr(other, name) for name in same)
            assert one.change_round == other.change_round
            assert other.statistic == pytest.approx(one.statistic, abs=1e-12, nan_ok=True)
            assert other.threshold == pytest.approx(one.threshold, abs=1e-12, nan_ok=True)
    return sum(map(len, played.resets))


@pytest.mark.parametrize("restart", RESTARTS)
@pytest.mark.parametrize("name", ["ucb", "igp-ucb", "ts"])
def test_replicates_play_what_loops_play(name: str, restart: str) -> None:
    num_resets = check_against_loops(Policy(MODEL, ACQUISITIONS[name], restart=RESTARTS[restart]))
    assert num_resets == {"oracle": 8, "never": 0}.get(restart, num_resets)
    if restart == "change-point":
        assert num_resets >= 4


@pytest.mark.parametrize("name", ["cpd", "ei", "dmm", "random"])
def test_other_policies_begin_anew_too(name: str) -> None:
    policy = Policy(MODEL, ACQUISITIONS[name], restart=RESTARTS["change-point"])
    assert check_against_loops(policy, 60) >= 2 or name == "random"


def test_bounds_count_where_something_was_chosen_by_them() -> None:
    policy = Policy(MODEL, ACQUISITIONS["ucb"], restart=RESTARTS["oracle"])
    calm = environments()[2]
    covered = simulate(calm, policy, 40, 3, seed=5, progress=False)
    assert covered.covered is not None
    assert covered.covered.all()
    assert covered.explored is not None
    assert covered.mean_width is not None
    assert len(covered.mean_width) == int((~covered.explored).any(0).sum())
    sure = Policy(MODEL, GPUpperConfidenceBound.with_options(width=1e-6), restart=NeverRestart())
    result = simulate(calm, sure, 10, 3, seed=5, progress=False)
    assert result.covered is not None
    assert not result.covered.any()
