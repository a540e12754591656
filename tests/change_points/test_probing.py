"""Exploration rounds that look for a change where the policy does not look."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel

from botorch_bandits import (
    AdditiveEpochs,
    Arms,
    BanditGP,
    BanditLoop,
    Box,
    Censored,
    EvidenceRestart,
    GPUpperConfidenceBound,
    Hallucinated,
)
from botorch_bandits.problems import ArmsProblem, SwitchingProblem, gp_draw_on_arms
from botorch_bandits.simulation import Policy, simulate
from change_points import dense

GRID = Arms(torch.linspace(0.0, 5.0, 40, dtype=torch.float64).unsqueeze(-1))
BOX = Box([[0.0], [5.0]])
PRIOR = BanditGP.with_kernel(MaternKernel(nu=2.5), noise=0.0025, lengthscale=1.0, prior_mean=0.2)
UCB = GPUpperConfidenceBound.with_options(width=2.0)
PROBING = EvidenceRestart(exploration=1.0, probing=True)


def drifting_bound(X, rounds, y, points, round_number, lengthscale=1.0, pending=((), ())):
    """``mu + 2 sigma`` of the process with the time kernel; pending points have their mean."""
    kernel = dense.matern52(lengthscale)

    def covariance(A, s, B, t):
        return kernel(A, B) * 0.99 ** (np.abs(np.subtract.outer(s, t)) / 2.0)

    now = np.full(len(points), float(round_number))
    cross = covariance(points, now, X, rounds)
    noisy = covariance(X, rounds, X, rounds) + 0.0025 * np.eye(len(X))
    mean = 0.2 + cross @ np.linalg.solve(noisy, y - 0.2)
    if len(pending[0]):
        X, rounds = np.concatenate([X, pending[0]]), np.concatenate([rounds, pending[1]])
        cross = covariance(points, now, X, rounds)
        noisy = covariance(X, rounds, X, rounds) + 0.0025 * np.eye(len(X))
    variance = 1.0 - (cross * np.linalg.solve(noisy, cross.T).T).sum(-1)
    return mean + 2.0 * np.sqrt(variance)


def play(loop, num_rounds, contexts=None):
    for n in range(num_rounds):
        query = loop.ask() if contexts is None else loop.ask(context=contexts[n])
        shift = 0.0 if contexts is None else contexts[n][0]
        noise = torch.randn((), generator=torch.Generator().manual_seed(n))
        loop.tell(query.id, math.sin(float(query.x[0]) + shift) + 0.05 * float(noise))


@pytest.mark.parametrize("domain", [GRID, BOX], ids=["arms", "box"])
@pytest.mark.parametrize("context_dim", [0, 1])
def test_a_round_probes_where_a_drifting_copy_is_largest(domain, context_dim):
    loop = BanditLoop(domain, PRIOR, UCB, restart=PROBING, seed=0, context_dim=context_dim)
    contexts = [[0.3 * (n % 3)] for n in range(26)] if context_dim else None
    play(loop, 26, contexts)
    assert loop.resets == ()
    queries, outcomes = loop.history.queries, loop.history.outcomes
    probes = [q.round_number for q in queries if q.origin == "exploration"]
    assert probes == [1, 2, 5, 10, 17, 26]  # while the number of probes is at most sqrt(n)
    points = GRID.choices.numpy() if domain is GRID else np.linspace(0.0, 5.0, 2001)[:, None]
    for round_number in probes[2:]:
        n = round_number - 1
        query = queries[n]

        def whole(x, context):
            return x if context is None else np.concatenate([context.expand(len(x), -1), x], -1)

        X = np.stack([whole(q.x.numpy()[None], q.context)[0] for q in queries[:n]])
        y = np.array([outcome.reward for outcome in outcomes[:n]])
        rounds = np.arange(1.0, n + 1.0)
        scores = drifting_bound(X, rounds, y, whole(points, query.context), round_number)
        if domain is GRID:
            assert float(query.x[0]) == pytest.approx(points[scores.argmax(), 0], abs=1e-12)
        else:
            there = whole(query.x.numpy()[None], query.context)
            found = drifting_bound(X, rounds, y, there, round_number)
            assert found[0] >= scores.max() - 1e-6
    twin = BanditLoop(
        domain,
        PRIOR,
        UCB,
        restart=PROBING,
        seed=0,
        context_dim=context_dim,
        history=copy.deepcopy(loop.history),
    )
    play(twin, 11, contexts)  # the last of them probes
    play(loop, 11, contexts)
    assert [q.x.tolist() for q in twin.history.queries] == [
        q.x.tolist() for q in loop.history.queries
    ]


def test_probing_avoids_points_whose_outcomes_are_pending():
    loop = BanditLoop(GRID, PRIOR, UCB, restart=PROBING, seed=0, feedback=Hallucinated())
    play(loop, 8)
    waiting = [loop.ask() for _ in range(2)]
    assert waiting[-1].origin == "exploration"
    queries, outcomes = loop.history.queries, loop.history.outcomes
    X, y = np.stack([q.x.numpy() for q in queries[:8]]), np.array([o.reward for o in outcomes])
    pending = waiting[0].x.numpy()[None], np.array([9.0])
    points = GRID.choices.numpy()
    scores = drifting_bound(X, np.arange(1.0, 9.0), y, points, 10, pending=pending)
    assert float(waiting[1].x[0]) == points[scores.argmax(), 0]


def test_of_candidates_the_likeliest_one_drifts():
    priors = [
        BanditGP.with_kernel(
            MaternKernel(nu=2.5), noise=0.0025, lengthscale=lengthscale, prior_mean=0.2
        )
        for lengthscale in (0.2, 1.0, 3.0)
    ]
    restart = EvidenceRestart(robust=False, candidates=priors, exploration=1.0, probing=True)
    loop = BanditLoop(GRID, PRIOR, UCB, restart=restart, seed=0)
    play(loop, 17)
    queries, outcomes = loop.history.queries, loop.history.outcomes
    X, y = np.stack([q.x.numpy() for q in queries]), np.array([o.reward for o in outcomes])
    assert queries[-1].origin == "exploration"

    def log_marginal(lengthscale):
        covariance = dense.matern52(lengthscale)(X[:16], X[:16]) + 0.0025 * np.eye(16)
        residuals = y[:16] - 0.2
        return -0.5 * (
            residuals @ np.linalg.solve(covariance, residuals) + np.linalg.slogdet(covariance)[1]
        )

    likeliest = max((0.2, 1.0, 3.0), key=log_marginal)
    points = GRID.choices.numpy()
    scores = drifting_bound(X[:16], np.arange(1.0, 17.0), y[:16], points, 17, likeliest)
    assert float(queries[-1].x[0]) == points[scores.argmax(), 0]
    assert likeliest != 0.2


def with_a_hidden_peak(seed, num_rounds):
    """A function that gains a new peak far from its optimum, where it does not change."""
    kernel = MaternKernel(nu=2.5).double()
    kernel.lengthscale = 1.0
    before = gp_draw_on_arms(kernel, GRID.choices, noise_std=0.05, seed=seed)
    x = GRID.choices[:, 0]
    best = float(x[before.optimal_arm])
    generator, place = torch.Generator().manual_seed(seed), best
    while abs(place - best) < 1.2:
        place = 5.0 * float(torch.rand((), generator=generator))
    gap = before.optimal_value - float(before.values[(x - place).abs().argmin()]) + 1.0
    values = before.values + gap * torch.exp(-0.5 * ((x - place) / 0.35) ** 2)
    after = ArmsProblem(GRID.choices, values, noise_std=0.05)
    return SwitchingProblem([before, after], [num_rounds])


def test_a_change_where_nobody_looks_is_found_more_often_and_probing_costs_less_than_chance():
    problems = [with_a_hidden_peak(seed, 100) for seed in range(8)]
    seen, spent = {}, {}
    for name, restart in {
        "never": EvidenceRestart(),
        "uniform": EvidenceRestart(exploration=2.0),
        "probing": EvidenceRestart(exploration=2.0, probing=True),
    }.items():
        result = simulate(problems, Policy(PRIOR, UCB, restart=restart), 200, progress=False)
        seen[name] = sum(bool(resets) for resets in result.resets)
        spent[name] = float(result.regret[:, :100].sum(-1).mean())
    assert seen["never"] <= 1
    assert seen["probing"] >= seen["never"] + 3
    assert spent["never"] < spent["probing"] < 0.6 * spent["uniform"]


def test_replicates_probe_where_loops_do():
    problem = with_a_hidden_peak(3, 20)
    policy = Policy(PRIOR, UCB, restart=PROBING, num_initial=2)
    result = simulate(problem, policy, 40, 2, progress=False)
    for b, seed in enumerate(result.seeds):
        loop = policy.loop(GRID, seed=seed)
        for t in range(40):
            query = loop.ask()
            assert int(GRID.index_of(query.x.unsqueeze(0))) == int(result.arms[b, t])
            assert (query.origin in ("exploration", "initial")) == bool(result.explored[b, t])
            loop.tell(query.id, float(result.outcomes[b, t]))


def test_what_does_not_go_with_probing_is_refused():
    with pytest.raises(ValueError, match=r"exploration is None, .* Pass exploration=1.0"):
        EvidenceRestart(probing=True)
    with pytest.raises(TypeError, match="probing"):
        EvidenceRestart(exploration=1.0, probing=1)
    rule = AdditiveEpochs(num_constraints=1, epoch_length=4, surrogate="relabeled")
    with pytest.raises(ValueError, match="does not go with constraints="):
        BanditLoop(GRID, PRIOR, UCB, restart=PROBING, constraints=rule)
    late = Censored(minimum=-1.0, outcome_bound=2.0, max_delay=4)
    with pytest.raises(ValueError, match="does not go with feedback=Censored"):
        BanditLoop(GRID, PRIOR, UCB, restart=PROBING, feedback=late)
