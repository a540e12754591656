"""Policies that no engine plays as one tensor program are played by loops, one per replicate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from models.textbook import line
from pairwise import by_day

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    Box,
    CandidatesThompsonSampling,
    CandidatesUpperConfidenceBound,
    ChangePointDetector,
    ChangePointRestart,
    DMMUpperConfidenceBound,
    EvidenceRestart,
    ExponentialWeights,
    GPUpperConfidenceBound,
    ImprovedUpperConfidenceBound,
    LagrangianUpperConfidenceBound,
    NeverRestart,
    OracleRestart,
    Policy,
    PrimalDual,
    SlidingWindow,
    TimeVaryingKernel,
    run,
    simulate,
)
from botorch_bandits.change_points import PowerThreshold
from botorch_bandits.constraints import Ledger
from botorch_bandits.problems import (
    BraninReward,
    ConstrainedArmsProblem,
    switching_gp_draws,
)
from papers.environments import GardnerProblem

CHOICES = line(0, 1, 15)
ARMS = Arms(CHOICES)
MODEL = BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=0.25)
LIST = BanditGP.with_candidates(
    [BanditGP.with_kernel(RBFKernel(), noise=0.05, lengthscale=each) for each in (0.1, 0.4)]
)
UCB = GPUpperConfidenceBound.with_options(width=2.0)
IGP_UCB = ImprovedUpperConfidenceBound.with_options(
    rkhs_bound=2.0, noise_bound=0.1, any_lambda=True
)
DETECTOR = ChangePointDetector(
    RBFKernel(), lengthscale=0.25, threshold=PowerThreshold(scale=0.3, exponent=-0.5)
)
S, ROUNDS = 5, 18


def constrained(count: int) -> list[ConstrainedArmsProblem]:
    x = CHOICES.squeeze(-1)
    return [
        ConstrainedArmsProblem(
            CHOICES,
            torch.sin((4.0 + i) * x) + x,
            torch.stack([0.6 - x, torch.cos(3.0 * x + i) - 0.2], -1),
            noise_std=0.1,
            constraint_noise_std=0.1,
        )
        for i in range(count)
    ]


SWITCHING = switching_gp_draws(MaternKernel(nu=2.5), ARMS, [9], seed=0, noise_std=0.1)
SEPARATE = LagrangianUpperConfidenceBound.with_options(width=1.0)
RESTARTS: dict[str, Any] = {
    "never": NeverRestart(),
    "oracle": OracleRestart((7,)),
    "detector": ChangePointRestart(detector=DETECTOR),
    "evidence": EvidenceRestart(robust=False),
}
PLAIN: dict[str, Policy] = {
    **{
        type(forgetting).__name__: Policy(MODEL, UCB, forgetting=forgetting)
        for forgetting in (SlidingWindow(6), ExponentialWeights(0.9), TimeVaryingKernel(0.1))
    },
    **{
        f"a list with {name}": Policy(
            LIST, CandidatesUpperConfidenceBound.with_options(), num_initial=2, restart=restart
        )
        for name, restart in RESTARTS.items()
    },
    "a list in a window": Policy(
        LIST, CandidatesThompsonSampling.with_options(), forgetting=SlidingWindow(6)
    ),
    "a list with another rule": Policy(LIST, UCB),
    "learned": Policy(BanditGP.with_kernel(RBFKernel(), refit_every=9), UCB, num_initial=3),
}
CONSTRAINED: dict[str, Policy] = {
    "separate": Policy(MODEL, SEPARATE, constraints=AdditiveEpochs(2, S, surrogate="separate")),
    "primal-dual": Policy(MODEL, SEPARATE, constraints=PrimalDual(2, 3.0, 5.0)),
    "no width": Policy(
        MODEL,
        DMMUpperConfidenceBound.with_options(rkhs_bound=20.0, noise_bound=0.2),
        constraints=AdditiveEpochs(2, S),
    ),
    **{
        f"relabeled with {name}": Policy(
            MODEL, IGP_UCB, constraints=AdditiveEpochs(2, S), restart=restart
        )
        for name, restart in RESTARTS.items()
    },
}


@pytest.mark.parametrize("name", by_day(PLAIN))
def test_replicates_play_what_loops_play(name: str) -> None:
    policy = PLAIN[name]
    played = simulate(SWITCHING, policy, ROUNDS, 2, seed=4, progress=False)
    assert played.arms is not None
    assert played.points is None
    assert played.covered is played.mean_width is None
    for b, seed in enumerate(played.seeds):
        loop = policy.loop(ARMS, seed=seed)
        alone = run(loop, SWITCHING, ROUNDS, progress=False)
        X, Y = loop.history.arrived()
        assert played.arms[b].tolist() == ARMS.index_of(X).tolist()
        torch.testing.assert_close(played.outcomes[b], Y.squeeze(-1), rtol=0.0, atol=1e-12)
        torch.testing.assert_close(played.regret[b], alone.regret, rtol=0.0, atol=1e-12)
        if policy.restart is not None:
            assert played.resets is not None
            assert played.resets[b] == loop.resets
            assert played.explored is not None
            assert played.explored[b].tolist() == [
                query.origin in ("initial", "exploration") for query in loop.history.queries
            ]
    # regret is of the rewards of each round
    tables = torch.stack([SWITCHING.arm_values(t) for t in range(1, ROUNDS + 1)])
    values = tables.expand(2, -1, -1).gather(-1, played.arms.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(played.regret, tables.amax(-1) - values)


@pytest.mark.parametrize("name", CONSTRAINED)
def test_replicates_under_constraints(name: str) -> None:
    policy, problems = CONSTRAINED[name], constrained(2)
    played = simulate(problems, policy, ROUNDS, seed=1, progress=False)
    assert played.arms is not None
    assert played.constraints is not None
    assert played.constraint_values is not None
    assert played.multipliers is not None
    assert played.epochs is not None
    assert played.epochs.shape == ((ROUNDS,) if policy.restart is None else (2, ROUNDS))
    ledger = played.ledger()
    assert isinstance(ledger, Ledger)
    for b, seed in enumerate(played.seeds):
        loop = policy.loop(ARMS, seed=seed)
        run(loop, problems[b], ROUNDS, progress=False)
        assert played.arms[b].tolist() == ARMS.index_of(loop.history.arrived()[0]).tolist()
        of_loop = loop.ledger()
        torch.testing.assert_close(played.constraints[b], of_loop.constraints)
        assert played.epochs.expand(2, -1)[b].tolist() == of_loop.epochs.tolist()
        in_force = played.multipliers[b, : of_loop.num_epochs]
        torch.testing.assert_close(in_force, of_loop.multipliers)
        rest = played.multipliers[b, of_loop.num_epochs :]
        torch.testing.assert_close(rest, in_force[-1:].expand_as(rest))
        truth = -problems[b].evaluate_slack_true(CHOICES[played.arms[b]])
        torch.testing.assert_close(played.constraint_values[b], truth)
        violation = truth.sum(0).clamp_min(0.0)
        torch.testing.assert_close(ledger.signed_violation[b], violation)


BOXES: dict[str, tuple[Any, Policy]] = {
    "constraints": (
        GardnerProblem(noise_std=0.1),
        Policy(MODEL, IGP_UCB, constraints=AdditiveEpochs(1, 2), num_initial=2),
    ),
    "constraints and restarts": (
        GardnerProblem(noise_std=0.1),
        Policy(
            MODEL,
            SEPARATE,
            constraints=AdditiveEpochs(1, 2, surrogate="separate"),
            restart=OracleRestart((3,)),
        ),
    ),
    "restarts": (BraninReward(noise_std=0.1), Policy(MODEL, UCB, restart=OracleRestart((3,)))),
    "a list": (
        BraninReward(noise_std=0.1),
        Policy(LIST, CandidatesUpperConfidenceBound.with_options(), num_initial=2),
    ),
}


@pytest.mark.parametrize("name", BOXES)
def test_on_boxes(name: str) -> None:
    problem, policy = BOXES[name]
    played = simulate(problem, policy, 5, 2, seed=2, progress=False)
    assert played.points is not None
    box = Box(problem.bounds)
    for b, seed in enumerate(played.seeds):
        loop = policy.loop(box, seed=seed)
        run(loop, problem, 5, progress=False)
        X, Y = loop.history.arrived()
        torch.testing.assert_close(played.points[b], X, rtol=0.0, atol=1e-9)
        torch.testing.assert_close(played.outcomes[b], Y.squeeze(-1), rtol=0.0, atol=1e-9)
    values = problem(played.points.reshape(-1, 2), noise=False).reshape(2, 5)
    torch.testing.assert_close(played.regret, problem.optimal_value - values)
    if policy.constraints is not None:
        assert played.ledger().constraints.shape == (2, 5, 1)
    if policy.restart is not None:
        assert played.resets is not None
        assert [[reset.after_round for reset in each] for each in played.resets] == [[3], [3]]


def test_another_device_is_refused() -> None:
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    with pytest.raises(ValueError, match=r"device is cuda.*played by"):
        simulate(SWITCHING, PLAIN["SlidingWindow"], 3, 2, device="cuda", progress=False)
