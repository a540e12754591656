"""Runs on problems: noise, delays, constraints, and regret."""

from __future__ import annotations

import pytest
import torch
from botorch.test_functions import PressureVessel
from gpytorch.kernels import RBFKernel
from models.textbook import double, line
from torch import Tensor

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    GPUpperConfidenceBound,
    RandomSearch,
    run,
)
from botorch_bandits.problems import (
    ArmsProblem,
    ConstantDelay,
    ConstrainedArmsProblem,
    Delays,
    PoissonDelay,
    SwitchingProblem,
)

CHOICES = line(0, 1, 11)
VALUES = torch.sin(6 * CHOICES).squeeze(-1)


def arms_loop(seed: int = 0, random: bool = False) -> BanditLoop:
    return BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        RandomSearch() if random else GPUpperConfidenceBound.with_options(delta=0.1),
        seed=seed,
    )


def test_regret_is_of_noiseless_values_against_the_arms_own_optimum() -> None:
    problem = ArmsProblem(CHOICES, VALUES, noise_std=0.5)
    result = run(arms_loop(), problem, 20, progress=False)
    index = [int((q.x == CHOICES).all(-1).nonzero()) for q in result.history.queries]
    expected = VALUES.max() - VALUES[index]
    assert torch.allclose(result.regret, expected, atol=1e-12, rtol=0)
    assert torch.allclose(result.cumulative_regret, expected.cumsum(0), atol=1e-12, rtol=0)
    assert torch.allclose(result.simple_regret, expected.cummin(0).values, atol=1e-12, rtol=0)
    assert not torch.allclose(result.rewards, VALUES[index], atol=0.1)
    assert result.best_so_far[-1] == result.rewards.max()


def test_noise_is_a_function_of_the_seed_and_fresh_each_round() -> None:
    problem = ArmsProblem(CHOICES[:1], VALUES[:1], noise_std=1.0)

    def rewards(seed: int) -> Tensor:
        loop = BanditLoop(Arms(CHOICES[:1]), None, RandomSearch(), seed=seed)
        return run(loop, problem, 400, progress=False).rewards - VALUES[0]

    first, again, other = rewards(0), rewards(0), rewards(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.unique().numel() == 400
    # 5 standard errors of mean and of variance
    assert abs(float(first.mean())) < 5 / 20
    assert abs(float(first.var()) - 1) < 5 * (2 / 399) ** 0.5


def test_plain_function_has_no_regret() -> None:
    result = run(arms_loop(), lambda x: float(-((x - 0.5) ** 2)), 3, progress=False)
    assert result.rewards.shape == (3,)
    with pytest.raises(ValueError, match="knows its noiseless values"):
        _ = result.regret


@pytest.mark.parametrize(
    "delays", [ConstantDelay(0), ConstantDelay(1), ConstantDelay(4), PoissonDelay(3.0)]
)
@pytest.mark.parametrize("random", [True, False])
def test_an_outcome_can_be_used_once_its_delay_has_passed(delays: Delays, random: bool) -> None:
    """Usable in round t if d <= t - s: against the definition, query by query."""
    problem = ArmsProblem(CHOICES, VALUES, noise_std=0.1)
    loop = arms_loop(seed=3, random=random)
    result = run(loop, problem, 25, delays=delays, progress=False)
    history = result.history
    for t in range(1, 27):
        pending = {query.round_number for query in history.pending_in(t)}
        for query in history.queries[: t - 1]:
            s = query.round_number
            delay = max(1.0, delays.of_query(query.x, 3, s))
            assert (s in pending) == (delay > t - s), (t, s)
    told = [outcome.query_id for outcome in history.outcomes]
    due = {q.id: max(1.0, delays.of_query(q.x, 3, q.round_number)) + q.id for q in history.queries}
    assert told == sorted(told, key=lambda i: (due[i], i))
    for i, query in enumerate(history.queries):
        outcome = history.outcome(query.id)
        if outcome is None:
            assert torch.isnan(result.rewards[i])
            assert torch.isinf(result.arrivals[i])
        else:
            assert float(result.arrivals[i]) == outcome.arrived_round


def test_simple_regret_counts_arrived_outcomes_only() -> None:
    problem = ArmsProblem(CHOICES, VALUES, noise_std=0.1)
    result = run(arms_loop(seed=1), problem, 20, delays=PoissonDelay(4.0), progress=False)
    for t in range(1, 21):
        arrived = result.arrivals <= t
        expected = result.regret[arrived].min() if arrived.any() else torch.tensor(torch.inf)
        assert float(result.simple_regret[t - 1]) == float(expected)
        best = result.rewards[arrived].max() if arrived.any() else torch.tensor(-torch.inf)
        assert float(result.best_so_far[t - 1]) == float(best)


class TestConstraints:
    """Rewards come with constraint values, which are noisy where the problem says so."""

    TABLE = torch.stack([0.4 - CHOICES.squeeze(-1), CHOICES.squeeze(-1) - 0.9], -1)

    def loop(self, num_constraints: int, domain: Arms | Box | None = None) -> BanditLoop:
        rule = AdditiveEpochs(num_constraints, 4)
        domain = Arms(CHOICES) if domain is None else domain
        return BanditLoop(domain, None, RandomSearch(), constraints=rule, seed=5)

    @pytest.mark.parametrize("delays", [None, ConstantDelay(3)])
    def test_arms_with_noisy_constraints(self, delays: Delays | None) -> None:
        problem = ConstrainedArmsProblem(
            CHOICES, VALUES, self.TABLE, noise_std=0.1, constraint_noise_std=0.3
        )
        result = run(self.loop(2), problem, 400, delays=delays, progress=False)
        queries = result.history.queries
        index = [int((q.x == CHOICES).all(-1).nonzero()) for q in queries]
        assert torch.equal(result.constraint_values, self.TABLE[index])
        arrived = torch.isfinite(result.rewards)
        assert int((~arrived).sum()) == (0 if delays is None else 2)
        assert torch.equal(torch.isfinite(result.constraints).all(-1), arrived)
        for i, query in enumerate(queries):
            outcome = result.history.outcome(query.id)
            if outcome is not None:
                assert outcome.constraints == tuple(result.constraints[i].tolist())
        noise = (result.constraints - result.constraint_values)[arrived]
        assert noise.unique().numel() == noise.numel()
        # 5 standard errors of mean and of variance
        size = noise.numel()
        assert abs(float(noise.mean())) < 5 * 0.3 / size**0.5
        assert abs(float(noise.var()) / 0.09 - 1) < 5 * (2 / size) ** 0.5
        # the reward's noise is another one, and that of a loop without constraints
        rewards = result.rewards[arrived] - VALUES[index][arrived]
        assert abs(float(torch.corrcoef(torch.stack([rewards, noise[:, 0]]))[0, 1])) < 0.25
        plain = BanditLoop(Arms(CHOICES), None, RandomSearch(), seed=5)
        same = run(plain, ArmsProblem(CHOICES, VALUES, noise_std=0.1), 400, progress=False)
        assert torch.equal(same.rewards[arrived], result.rewards[arrived])
        assert same.constraints.shape == (400, 0)
        # regret against the best feasible arm
        feasible = (self.TABLE <= 0).all(-1)
        expected = VALUES[feasible].max() - VALUES[index]
        assert torch.allclose(result.regret, expected, atol=1e-12, rtol=0)
        assert float(result.regret.min()) < 0

    def test_botorch_slacks_are_negative_constraints(self) -> None:
        problem = PressureVessel(negate=True)
        loop = self.loop(4, Box(problem.bounds.tolist()))
        result = run(loop, problem, 5, progress=False)
        X = torch.stack([query.x for query in result.history.queries])
        assert torch.allclose(result.constraints, -problem.evaluate_slack_true(X))

    def test_an_environment_whose_constraint_changes_alone(self) -> None:
        reward = ArmsProblem(CHOICES, VALUES)
        low, high = (ArmsProblem(CHOICES, c * self.TABLE[:, 0], noise_std=0.0) for c in (1.0, -2.0))
        switching = SwitchingProblem([low, high], [3])
        environment = SwitchingProblem([reward], [], constraints=[switching])
        result = run(self.loop(1), environment, 6, progress=False)
        index = [int((q.x == CHOICES).all(-1).nonzero()) for q in result.history.queries]
        sign = double([1.0, 1.0, 1.0, -2.0, -2.0, -2.0])
        expected = (sign * self.TABLE[index, 0]).unsqueeze(-1)
        assert torch.equal(result.constraint_values, expected)
        assert torch.equal(result.constraints, expected)

    def test_functions_return_pairs(self) -> None:
        loop = self.loop(1)
        result = run(loop, lambda x: (float(x), [0.5 - float(x)]), 6, progress=False)
        with pytest.raises(ValueError, match="a function of yours"):
            _ = result.constraint_values
        assert torch.equal(result.constraints[:, 0], 0.5 - result.rewards)
        with pytest.raises(TypeError, match="reward and the 1"):
            run(loop, lambda x: float(x), 1, progress=False)

    def test_problem_and_loop_must_agree(self) -> None:
        loop = self.loop(1)
        with pytest.raises(ValueError, match=r"ArmsProblem\) has 0 constraints"):
            run(loop, ArmsProblem(CHOICES, VALUES), 1, progress=False)
        problem = ConstrainedArmsProblem(CHOICES, VALUES, self.TABLE)
        with pytest.raises(ValueError, match="num_constraints=2"):
            run(loop, problem, 1, progress=False)
        assert loop.history.num_queries == 0


def test_a_problem_without_a_feasible_arm_has_no_regret_but_a_result() -> None:
    constraint = torch.full((len(VALUES), 1), 0.5, dtype=torch.float64)
    problem = ConstrainedArmsProblem(CHOICES, VALUES, constraint)
    loop = BanditLoop(
        Arms(CHOICES),
        BanditGP.with_kernel(RBFKernel(), noise=0.01, lengthscale=0.2),
        GPUpperConfidenceBound.with_options(width=2.0),
        constraints=AdditiveEpochs(1, 2),
    )
    result = run(loop, problem, 3, progress=False)
    assert result.rewards.shape == (3,)
    assert repr(result) == "RunResult(3 rounds, History(3 queries, 3 arrived))"
    with pytest.raises(ValueError, match="regret needs"):
        _ = result.regret
