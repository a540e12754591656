"""Loops and replicates in environments: dynamic regret, round by round."""

from __future__ import annotations

import pytest
import torch
from gpytorch.kernels import MaternKernel
from torch import Tensor

from botorch_bandits import (
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    Policy,
    RandomSearch,
    run,
    simulate,
)
from botorch_bandits.acquisition.engines import build_arms_engine
from botorch_bandits.problems import (
    ArmsProblem,
    ChangingProblem,
    ConstantDelay,
    DriftingGP,
    RKHSFunction,
    SwitchingProblem,
    switching_gp_draws,
)
from botorch_bandits.simulation import play_arms
from papers.environments import PeriodRewards

CHOICES = torch.linspace(0, 2, 12, dtype=torch.float64).unsqueeze(-1)
ARMS, BOX = Arms(CHOICES), Box([[0.0], [2.0]], num_restarts=2, raw_samples=16)
KERNEL = MaternKernel(nu=2.5)
POLICY = Policy(
    BanditGP.with_kernel(KERNEL, noise=0.01, lengthscale=0.5),
    GPUpperConfidenceBound.with_options(width=2.0),
    num_initial=2,
)
NUM_ROUNDS = 15


def environments() -> dict[str, ChangingProblem]:
    switching = switching_gp_draws(KERNEL, ARMS, [4, 9], seed=1, noise_std=0.1)
    return {
        "switching": switching,
        "drifting": DriftingGP(KERNEL, ARMS, rate=0.2, seed=2, noise_std=0.1),
    }


def on_box() -> SwitchingProblem:
    bounds = BOX.bounds
    return SwitchingProblem(
        [RKHSFunction(KERNEL, bounds, seed=seed, noise_std=0.1) for seed in (1, 2)], [3]
    )


def points_of(loop: BanditLoop) -> Tensor:
    return torch.stack([query.x for query in loop.history.queries])


@pytest.mark.parametrize("name", environments())
def test_regret_of_a_round_is_against_the_best_of_that_round(name: str) -> None:
    environment = environments()[name]
    loop = POLICY.loop(ARMS, seed=3)
    result = run(loop, environment, NUM_ROUNDS, progress=False)
    played = ARMS.index_of(points_of(loop))
    table = torch.stack([environment.arm_values(t) for t in range(1, NUM_ROUNDS + 1)])
    values = table.gather(-1, played.unsqueeze(-1)).squeeze(-1)
    assert result.values is not None
    assert torch.allclose(result.values, values, atol=1e-12, rtol=0)
    assert torch.allclose(result.regret, table.amax(-1) - values, atol=1e-12, rtol=0)
    assert result.optimal_value is None
    noise = result.rewards - values
    assert 0.03 < float(noise.std()) < 0.3
    # against any fixed number the sum would be another one
    assert not torch.allclose(result.regret, table.max() - values, atol=1e-3)


@pytest.mark.parametrize("name", environments())
def test_run_that_goes_on_or_waits_keeps_the_rounds(name: str) -> None:
    """The function is that of the round of the query, however late its outcome is told."""
    environment = environments()[name]
    whole, parts = POLICY.loop(ARMS, seed=3), POLICY.loop(ARMS, seed=3)
    result = run(whole, environment, NUM_ROUNDS, progress=False)
    first = run(parts, environment, 6, progress=False)
    second = run(parts, environment, NUM_ROUNDS - 6, progress=False)
    assert torch.equal(points_of(whole), points_of(parts))
    assert torch.equal(torch.cat([first.regret, second.regret]), result.regret)
    late = POLICY.loop(ARMS, seed=3)
    waited = run(late, environment, NUM_ROUNDS, delays=ConstantDelay(4), progress=False)
    played = ARMS.index_of(points_of(late))
    for query, index in zip(late.history.queries, played.tolist(), strict=True):
        values = environment.arm_values(query.round_number)
        expected = float(values.max() - values[index])
        assert float(waited.regret[query.id]) == pytest.approx(expected, abs=1e-12)
        outcome = late.history.outcome(query.id)
        if outcome is not None:
            assert abs(outcome.reward - float(values[index])) < 0.6
            assert outcome.arrived_round > query.round_number


def test_run_on_a_box() -> None:
    environment = on_box()
    loop = BanditLoop(BOX, None, RandomSearch(), seed=0)
    result = run(loop, environment, 6, progress=False)
    X = points_of(loop)
    for t in range(1, 7):
        problem = environment.problems[0 if t <= 3 else 1]
        expected = problem.optimal_value - float(problem(X[t - 1 : t], noise=False))
        assert float(result.regret[t - 1]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    "acquisition",
    [POLICY.acquisition, GPThompsonSampling.with_options(rkhs_bound=1.0, noise_bound=0.1)],
    ids=["UCB", "TS"],
)
def test_replicates_in_environments_play_what_loops_play(acquisition: object) -> None:
    """One environment of each kind a replicate, so change points differ too."""
    policy = Policy(POLICY.model, acquisition, 2)  # type: ignore[arg-type]
    mixed = list(environments().values())
    switching: list[ChangingProblem] = [
        switching_gp_draws(KERNEL, ARMS, points, seed=i, noise_std=0.1)
        for i, points in enumerate([[4, 9], [7], []])
    ]
    for problems in (mixed, switching):
        played = simulate(problems, policy, NUM_ROUNDS, seed=5, progress=False)
        for b, environment in enumerate(problems):
            loop = policy.loop(ARMS, seed=played.seeds[b])
            result = run(loop, environment, NUM_ROUNDS, progress=False)
            assert played.arms is not None
            assert torch.equal(ARMS.index_of(points_of(loop)), played.arms[b])
            assert torch.allclose(result.rewards, played.outcomes[b], atol=1e-12, rtol=0)
            assert torch.allclose(result.regret, played.regret[b], atol=1e-12, rtol=0)


@pytest.mark.parametrize("num_replicates", [1, 3])
def test_one_environment_for_all_replicates(num_replicates: int) -> None:
    environment = environments()["switching"]
    played = simulate(environment, POLICY, NUM_ROUNDS, num_replicates, seed=5, progress=False)
    for b in range(num_replicates):
        loop = POLICY.loop(ARMS, seed=played.seeds[b])
        result = run(loop, environment, NUM_ROUNDS, progress=False)
        assert torch.allclose(result.regret, played.regret[b], atol=1e-12, rtol=0)


def test_period_rewards_choose_the_period_of_each_replicate() -> None:
    stream = torch.Generator().manual_seed(0)
    values = torch.randn(3, 4, 12, dtype=torch.float64, generator=stream)
    own = [[2, 5, 9], [4], []]
    for points in (own, [3, 7, 8]):
        rewards = PeriodRewards(values, points)  # type: ignore[arg-type]
        for t in [*range(1, 13), 3, 9, 2]:
            for b in range(3):
                mine = own[b] if points is own else [3, 7, 8]
                period = sum(t > tau for tau in mine)
                assert torch.equal(rewards.at(t)[b], values[b, period])
    engine = build_arms_engine(POLICY.model, POLICY.acquisition, ARMS, (1, 2, 3))
    assert engine is not None
    played = play_arms(engine, PeriodRewards(values, own), 0.1, 12, (1, 2, 3))
    assert played.arms is not None
    for b in range(3):
        for t in range(12):
            now = values[b, sum(t + 1 > tau for tau in own[b])]
            expected = float(now.max() - now[played.arms[b, t]])
            assert float(played.regret[b, t]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("points", "message"),
    [([3, 3, 4], "must increase"), ([[3], [2]], "2 sequences for 3"), ([1, 2, 3, 4], "at most 3")],
)
def test_period_rewards_refuse_what_does_not_fit(points: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PeriodRewards(torch.zeros(3, 4, 2, dtype=torch.float64), points)


def test_coverage_is_of_the_function_of_the_round() -> None:
    """Bounds that hold before the change, and fail behind it."""
    low = ArmsProblem(CHOICES, 0.1 * torch.sin(CHOICES).squeeze(-1), noise_std=0.1)
    far = ArmsProblem(CHOICES, low.values + 50.0, noise_std=0.1)
    policy = Policy(POLICY.model, GPUpperConfidenceBound.with_options(width=6.0))
    for tau, is_covered in ((10, False), (20, True)):
        environment = SwitchingProblem([low, far], [tau])
        played = simulate(environment, policy, NUM_ROUNDS, 4, progress=False)
        assert played.covered is not None
        assert bool(played.covered.all()) is is_covered
        assert bool(played.covered.any()) is is_covered


def test_replicates_on_a_box_have_dynamic_regret() -> None:
    kinds: list[ChangingProblem] = [on_box(), on_box()]
    played = simulate(kinds, POLICY, 6, seed=2, progress=False)
    assert played.points is not None
    for b, environment in enumerate(kinds):
        for t in range(1, 7):
            point = played.points[b, t - 1 : t]
            expected = environment.optimal_value(t) - float(environment.evaluate_true(point, t))
            assert float(played.regret[b, t - 1]) == pytest.approx(expected, abs=1e-9)
        noise = played.outcomes[b] - torch.stack(
            [environment.evaluate_true(played.points[b, t], t + 1) for t in range(6)]
        )
        assert float(noise.abs().max()) < 0.6


def test_environments_on_other_arms_are_refused() -> None:
    other = ArmsProblem(CHOICES[:3], CHOICES[:3].squeeze(-1), noise_std=0.1)
    with pytest.raises(ValueError, match="problem 1 has other arms"):
        simulate([environments()["switching"], other], POLICY, 3, progress=False)
    with pytest.raises(TypeError, match="problem must be"):
        simulate([environments()["switching"], 3], POLICY, 3, progress=False)  # type: ignore[list-item]
