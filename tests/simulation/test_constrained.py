"""Replicates under long-term constraints play what loops play."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from gpytorch.kernels import RBFKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    DMMUpperConfidenceBound,
    Exponential,
    GPThompsonSampling,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LogExpectedImprovement,
    MultiplicativeEpochs,
    Policy,
    RandomSearch,
    run,
    simulate,
)
from botorch_bandits.acquisition import AcquisitionRecipe
from botorch_bandits.constraints import MultiplierRule, NoisyConstraintsWarning
from botorch_bandits.problems import (
    ArmsProblem,
    BraninReward,
    ConstrainedArmsProblem,
    GardnerProblem,
)

CHOICES = torch.linspace(0, 1, 21, dtype=torch.float64).unsqueeze(-1)
ARMS = Arms(CHOICES)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=0.25)
BOUNDS = {"rkhs_bound": 2.0, "noise_bound": 0.1, "any_lambda": True}
IGP_UCB = ImprovedUpperConfidenceBound.with_options(**BOUNDS)
NUM_ROUNDS, S = 33, 6


def problems(noisy: bool, count: int = 2) -> list[ConstrainedArmsProblem]:
    x = CHOICES.squeeze(-1)
    return [
        ConstrainedArmsProblem(
            CHOICES,
            torch.sin((4.0 + i) * x) + x,
            torch.stack([0.5 - x, torch.cos(3.0 * x + i) - 0.6], -1),
            noise_std=0.1,
            constraint_noise_std=0.1 if noisy else None,
            constraint_noise_distribution="uniform" if noisy else "normal",
        )
        for i in range(count)
    ]


ADDITIVE = AdditiveEpochs(2, S)
MULTIPLICATIVE = MultiplicativeEpochs(2, S, penalty=Exponential(0.7))
CASES: dict[str, tuple[AcquisitionRecipe | RandomSearch, MultiplierRule, int]] = {
    "igp-ucb, additive": (IGP_UCB, ADDITIVE, 0),
    "igp-ucb, multiplicative": (IGP_UCB, MULTIPLICATIVE, 3),
    "igp-ucb, additive, fresh": (IGP_UCB, replace(ADDITIVE, surrogate="fresh"), 2),
    "igp-ucb, multiplicative, fresh": (IGP_UCB, replace(MULTIPLICATIVE, surrogate="fresh"), 0),
    "gp-ucb, additive, fresh": (
        GPUpperConfidenceBound.with_options(delta=0.1, scale=0.5),
        replace(ADDITIVE, surrogate="fresh"),
        0,
    ),
    "gp-ts, additive": (GPThompsonSampling.with_options(**BOUNDS), ADDITIVE, 0),
    "ei, multiplicative": (
        LogExpectedImprovement.with_options(incumbent="observed"),
        MULTIPLICATIVE,
        1,
    ),
    "dmm, multiplicative": (
        DMMUpperConfidenceBound.with_options(rkhs_bound=20.0, noise_bound=0.2),
        MULTIPLICATIVE,
        0,
    ),
    "random, additive": (RandomSearch(), ADDITIVE, 0),
    "every round": (IGP_UCB, AdditiveEpochs(2, 1, step_size=0.1), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_replicates_play_what_loops_play(name: str) -> None:
    acquisition, rule, num_initial = CASES[name]
    policy = Policy(MODEL, acquisition, num_initial, constraints=rule)
    given = problems(noisy=not rule.expects_exact_constraints)
    played = simulate(given, policy, NUM_ROUNDS, seed=5, progress=False)
    assert played.multipliers is not None
    assert played.constraints is not None
    assert played.constraint_values is not None
    assert played.epochs is not None
    assert len({tuple(row) for row in played.multipliers.flatten(0, 1).tolist()}) > 1
    for b, problem in enumerate(given):
        loop = policy.loop(ARMS, seed=played.seeds[b])
        result = run(loop, problem, NUM_ROUNDS, progress=False)
        arms = problem.arm_indices(torch.stack([query.x for query in loop.history.queries]))
        assert torch.equal(arms, played.arms[b])
        close = {"atol": 1e-10, "rtol": 0.0}
        assert torch.allclose(result.rewards, played.outcomes[b], **close)
        assert torch.allclose(result.regret, played.regret[b], **close)
        assert torch.allclose(loop.history.constraints(), played.constraints[b], **close)
        assert torch.allclose(problem.constraint_table[arms], played.constraint_values[b], **close)
        ledger = loop.ledger()
        assert torch.allclose(ledger.multipliers, played.multipliers[b], **close)
        assert torch.equal(ledger.epochs, played.epochs)
        expected = problem.constraint_table[arms].clamp_min(0.0).sum(0)
        assert torch.allclose(played.ledger().rectified_violation[b], expected, **close)


def test_bounds_are_those_of_the_penalized_reward() -> None:
    """Wide bounds cover it in every epoch; bounds of width nearly 0 do not."""
    for width, holds in ((30.0, True), (1e-3, False)):
        acquisition = GPUpperConfidenceBound.with_options(width=width)
        policy = Policy(MODEL, acquisition, constraints=ADDITIVE)
        played = simulate(problems(noisy=True), policy, 30, progress=False)
        assert played.covered is not None
        assert played.mean_width is not None
        assert played.covered.tolist() == [holds] * 2
        assert len(played.mean_width) == 30
    without = simulate(problems(noisy=True), policy, 30, with_bounds=False, progress=False)
    assert without.covered is None
    assert torch.equal(without.arms, played.arms)


def test_one_problem_for_all_and_no_rounds() -> None:
    policy = Policy(MODEL, IGP_UCB, constraints=ADDITIVE)
    one = simulate(problems(noisy=True)[0], policy, 20, 4, seed=1, progress=False)
    assert one.constraint_values is not None
    assert one.constraint_values.shape == (4, 20, 2)
    assert len({tuple(row) for row in one.outcomes.tolist()}) == 4
    alone = simulate(problems(noisy=True)[0], policy, 20, 1, seed=1, progress=False)
    assert torch.equal(alone.arms, one.arms[:1])
    none = simulate(problems(noisy=True), policy, 0, progress=False)
    assert none.multipliers is not None
    assert none.multipliers.tolist() == [[[0.0, 0.0]]] * 2


def test_average_violation_falls() -> None:
    """The reward rises where the constraint is violated; the mean of 16 seeds falls by half."""
    x = CHOICES.squeeze(-1)
    problem = ConstrainedArmsProblem(
        CHOICES, 2.0 * x, (x - 0.4).unsqueeze(-1), noise_std=0.1, constraint_noise_std=0.1
    )
    acquisition = GPUpperConfidenceBound.with_options(width=2.0)
    policy = Policy(MODEL, acquisition, constraints=AdditiveEpochs(1, 10))
    played = simulate(problem, policy, 250, 16, progress=False)
    average = played.ledger().running_signed_average.squeeze(-1).mean(0)
    assert float(average[49]) > 0.2
    assert float(average[249]) < 0.5 * float(average[49])
    assert abs(float(played.regret.mean())) < 0.5


class TestWhatIsRefused:
    def test_other_problems(self) -> None:
        policy = Policy(MODEL, IGP_UCB, constraints=ADDITIVE)
        plain = ArmsProblem(CHOICES, CHOICES.squeeze(-1))
        for problem in (plain, BraninReward()):
            with pytest.raises(ValueError, match="has 0 constraints, but policy's rule has num"):
                simulate(problem, policy, 5, 2, progress=False)
        with pytest.raises(ValueError, match=r"GardnerProblem\) has constraints, but policy has"):
            simulate(GardnerProblem(), replace(policy, constraints=None), 5, 2, progress=False)
        policy = replace(policy, constraints=AdditiveEpochs(1, S))
        with pytest.raises(ValueError, match="has 2 constraints, but policy"):
            simulate(problems(noisy=True), policy, 5, progress=False)
        plain_result = simulate(plain, replace(policy, constraints=None), 5, 2, progress=False)
        with pytest.raises(ValueError, match="constraints= to Policy"):
            plain_result.ledger()

    def test_noise_under_the_exact_rule_warns(self) -> None:
        policy = Policy(MODEL, IGP_UCB, constraints=MULTIPLICATIVE)
        with pytest.warns(NoisyConstraintsWarning, match="AdditiveEpochs"):
            simulate(problems(noisy=True), policy, 2, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NoisyConstraintsWarning)
            simulate(problems(noisy=False), policy, 2, progress=False)
